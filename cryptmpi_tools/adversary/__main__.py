"""An active adversary on the wire of real jobs: attack after attack on every operation of MPI, for each layer and two
MPIs each.

In every cell a job must end as if nobody were there, or be told an error. It must never take bytes that nobody of the
job sent, and never hang: a record that is withheld ends in a diagnosis after silence_timeout_s. Under the fabric and
the MPI layer he also strikes packets of MPI's own, which are in clear there: what MPI makes of that (it ends, crashes,
waits) is listed.
"""

import argparse
import json
import queue
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from cryptmpi_tools.lab.nodes import REPOSITORY, LabError, acquire_namespaces, end_on_signals

from cryptmpi_tools.adversary.cells import FRAMING, cells
from cryptmpi_tools.adversary.jobs import Place, stacks
from cryptmpi_tools.tables import aligned

BEGAN = time.monotonic()
FOLDER = REPOSITORY / "build" / "adversary"
REPORT = FOLDER / "report.json"
BAD = ("undetected", "hang")


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


class Matrix:
    """The cells that were done, as they stand in the report."""

    def __init__(self, path, resume):
        self.path = path
        self.lock = threading.Lock()
        self.rows = {}
        if resume and path.exists():
            self.rows = {row["key"]: row for row in json.loads(path.read_text())["cells"]}

    def add(self, cell, outcome):
        with self.lock:
            row = {"key": cell.key, "layer": cell.layer, "mpi": cell.mpi, "operation": cell.operation, "attack": cell.attack,
                   "toward": cell.toward, "from": cell.origin, "outcome": outcome.kind, "detected": outcome.detected, "by": outcome.by,
                   "seconds": round(outcome.seconds, 1)}
            self.rows[cell.key] = row
            self.write()
            return row

    def write(self):
        rows = list(self.rows.values())
        kinds = Counter(row["outcome"] for row in rows)
        report = {"undetected": kinds["undetected"], "hangs": kinds["hang"], "mpi_waits": kinds["MPI waits"],
                  "not_carried_out": kinds["not carried out"], "outcomes": dict(kinds), "cells": rows}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(report, indent=1) + "\n")
        new.replace(self.path)
        return report


def attempt(place, cell):
    place.quiet(cell.layer, cell.mpi, cell.operation)
    recorded = place.recording(cell.layer, cell.mpi, cell.operation) if cell.needs_recording else None
    if cell.origin == "stranger":
        outcome = place.run(cell.layer, cell.mpi, "eager", stranger=cell.attack, pause_us=20000, rounds=60)
        carried_out = "stranger" in outcome.done
    else:
        outcome = place.run(cell.layer, cell.mpi, cell.operation, [{**cell.strike, "id": "it"}], recorded=recorded)
        carried_out = "it" in outcome.done
    if not carried_out and outcome.kind not in BAD:
        outcome.kind, outcome.by = "not carried out", f"{outcome.kind}; {outcome.by}".rstrip("; ")
    return outcome


def work(place, waiting, matrix, total, problems):
    while True:
        try:
            number, cell = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            outcome = attempt(place, cell)
            if outcome.kind in BAD:  # the first finding stands, whatever comes the second time
                say(f"{cell.key}: {outcome.kind}, once more")
                again = attempt(place, cell)
                (FOLDER / "findings").mkdir(exist_ok=True)
                (FOLDER / "findings" / (cell.key.replace(" ", "_").replace(":", "") + ".txt")).write_text(
                    f"{cell.key}\n{outcome.kind}: {outcome.by}\n{outcome.output}\n---- again: {again.kind}: {again.by}\n{again.output}\n")
                outcome = again if again.kind in BAD else outcome
        except (LabError, OSError) as error:
            problems.append(f"{cell.key}: {error}")
            say(f"{cell.key}: cannot be tried: {error}")
            continue
        row = matrix.add(cell, outcome)
        say(f"{number}/{total} {cell.key}: {row['outcome']}{': ' if row['by'] else ''}{row['by']} ({row['seconds']} s)")


def table(rows):
    """Operations by layer and MPI, with how many of their cells came out how."""
    kinds = ["as plain", "told", "ended", "MPI waits", "not carried out", "undetected", "hang"]
    groups = {}
    for row in rows:
        groups.setdefault((row["layer"], row["mpi"], row["operation"]), Counter())[row["outcome"]] += 1
    lines = [["layer", "MPI", "operation", *kinds]]
    lines += [[*place, *(str(count[kind]) for kind in kinds)] for place, count in sorted(groups.items())]
    return "\n".join(aligned(lines))


def parse():
    parser = argparse.ArgumentParser(prog="make adversary", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all samples, an hour; else every second one, half as long")
    parser.add_argument("--full", action="store_true", help="every byte position: days")
    parser.add_argument("--layer", action="append", choices=["channel", "mpi", "fabric"])
    parser.add_argument("--mpi", action="append", choices=sorted(FRAMING))
    parser.add_argument("--operation", action="append", help="begins with this")
    parser.add_argument("--attack", action="append", help="begins with this")
    parser.add_argument("--from", dest="origin", action="append", choices=["wire", "stranger"])
    parser.add_argument("--every", type=int, help="only each N-th of the cells")
    parser.add_argument("--resume", action="store_true", help="keeps what the report has, and does what it lacks")
    parser.add_argument("--jobs", type=int, default=2, help="at a time")
    parser.add_argument("--limit", type=int, default=60, help="seconds after which a job hangs")
    parser.add_argument("--seconds", type=int, default=10**9, help="begins no more cells after so long")
    return parser.parse_args()


def chosen(options):
    def wanted(value, names):
        return not names or any(value.startswith(name) for name in names)

    some = [cell for cell in cells(options.full)
            if wanted(cell.layer, options.layer) and wanted(cell.mpi, options.mpi) and wanted(cell.operation, options.operation)
            and wanted(cell.attack, options.attack) and wanted(cell.origin, options.origin)]
    return some[::options.every or (1 if options.all or options.full else 2)]


def main():
    options = parse()
    end_on_signals()
    if reason := acquire_namespaces():
        sys.exit(f"adversary: {reason}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(REPORT, options.resume)
    todo = [cell for cell in chosen(options) if cell.key not in matrix.rows]
    absent = sorted({cell.mpi for cell in todo if not stacks.stack(cell.mpi).present()})
    if absent:
        sys.exit(f"adversary: not installed: {', '.join(absent)} (make mpis)")
    waiting = queue.Queue()
    for numbered in enumerate(todo, 1):
        waiting.put(numbered)
    say(f"{len(todo)} cells, {len(matrix.rows)} were done before")
    problems, places = [], []
    try:
        places = [Place(FOLDER, number, options.limit) for number in range(options.jobs)]
        threads = [threading.Thread(target=work, args=(place, waiting, matrix, len(todo), problems)) for place in places]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.5)
            if time.monotonic() - BEGAN > options.seconds:
                waiting.queue.clear()
    finally:
        waiting.queue.clear()
        for place in places:
            place.close()
    report = matrix.write()
    print(table(report["cells"]))
    for row in report["cells"]:
        if row["outcome"] in BAD:
            print(f"{row['outcome'].upper()}: {row['key']}: {row['by']}")
    print(f"adversary: {len(report['cells'])} cells: undetected {report['undetected']}, hangs {report['hangs']}, "
          f"not carried out {report['not_carried_out']}; {Path(REPORT).relative_to(REPOSITORY)}")
    for problem in problems:
        print(f"adversary: {problem}")
    sys.exit(1 if report["undetected"] or report["hangs"] or problems else 0)


if __name__ == "__main__":
    main()
