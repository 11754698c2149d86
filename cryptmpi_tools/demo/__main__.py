"""Runs each program plain and then sealed while the wire between the nodes is captured, checks everything, and prints
the table."""

import argparse
import dataclasses
import json
import secrets
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Callable

from cryptmpi_tools.lab import capture
from cryptmpi_tools.lab.nodes import REPOSITORY, Lab, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.programs import CANARY, HPCC_INPUT, LAMMPS_INPUT, hpcc_checks, lammps_thermodynamics
from cryptmpi_tools.lab.sealing import COMMAND, Sealing
from cryptmpi_tools.lab.stacks import Stack, stack
from cryptmpi_tools.tables import markdown

FOLDER = REPOSITORY / "build" / "demo"
BEGAN = time.monotonic()
ROUNDS = 3
LAYERS = ("channel", "mpi")
LAUNCHER_BYTES = 1 << 20  # more than a launcher's connection carries: the MPI layer seals messages, not those
CAPTURES = 3  # of one run, until one is complete
ENOUGH_S = 60  # no further round of a program that took this long: the whole is to stay under ten minutes on a slow machine


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    stack: Stack
    ranks: int
    command: list
    files: list           # copied into the folder it runs in
    checks: Callable      # (folder, output) -> None, or what is wrong
    result: Callable      # (folder, output) -> what plain and sealed runs must have in common
    timeout: float
    messages: list        # more words of the command under the MPI layer: only what that seals
    canary: bytes | None  # None: windows of the plain run's own traffic serve as canaries


@dataclasses.dataclass
class Run:
    seconds: float
    output: str
    result: object
    problem: str | None
    wire: Path


def hpcc_problem(folder, _output):
    right, wrong = hpcc_checks(folder)
    if wrong:
        return f"HPCC's checks: {wrong[0].strip()}"
    return None if len(right) >= 3 else "HPCC printed too few passed checks"


def lammps_problem(_folder, output):
    return None if len(lammps_thermodynamics(output)) > 2 else "LAMMPS printed no thermodynamics"


def canary_problem(_folder, output):
    return None if "all as sent" in output else "the canary program did not say that all bytes came as sent"


def programs(canary_file):
    debian = stack("openmpi-4.1.4")
    mpich = stack("mpich-4.0.2-ucx")
    return [
        Program("hpcc", debian, 4, ["/usr/bin/hpcc"], [HPCC_INPUT], hpcc_problem, lambda folder, output: None, 180, [], None),
        Program("lammps", debian, 4, ["/usr/bin/lmp", "-in", "in.melt"], [LAMMPS_INPUT], lammps_problem,
                lambda folder, output: lammps_thermodynamics(output), 120, [], None),
        # One rank a node: with more ranks than cores Debian's MPICH now and then does not exit after its last line,
        # plain.
        Program("canary", mpich, 2, [str(FOLDER / "canary"), str(canary_file)], [], canary_problem,
                lambda folder, output: [line for line in output.splitlines() if line.startswith("canary:")], 60,
                ["messages"], canary_file.read_bytes()),
    ]


def run_once(lab, program, line, env, folder):
    """One run with the wire captured from before its start to after its end."""
    folder.mkdir(parents=True)
    for file in program.files:
        shutil.copy(file, folder)
    wire = folder / "wire.pcap"
    with lab.capture(wire, kernel_mib=2048):  # HPCC sends that much in a few seconds
        done = lab.run(line, env={**program.stack.env(lab), "OMP_NUM_THREADS": "1", **env}, timeout=program.timeout, cwd=folder,
                       log=folder / "output.txt")
    problem = None if done.ok else f"{done.why()}: {last_line(done.output)}"
    return Run(done.seconds, done.output, program.result(folder, done.output), problem or program.checks(folder, done.output), wire)


def last_line(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def try_run(kind, lab, program, make_line, env, folder):
    """A run whose capture is complete: on a machine that could not write as fast as the program sent, one of the next
    ones."""
    for attempt in range(1, CAPTURES + 1):
        try:
            run = run_once(lab, program, make_line(folder), env, folder)
        except capture.CaptureLost as lost:
            if attempt == CAPTURES:
                raise
            say(f"{program.name} {kind}: {lost}; again")
            shutil.rmtree(folder)
        else:
            say(f"{program.name} {kind}: {run.seconds:.1f} s, {run.problem or 'results right'}")
            return run


def try_plain(lab, program, folder):
    """A plain run; once more if it had no end, as those of some MPIs have none on a busy machine now and then. Both are
    shown."""
    for attempt in ("", "-again"):
        run = try_run("plain", lab, program, lambda _: program.stack.command(lab, program.ranks, program.command), {},
                      folder.with_name(folder.name + attempt))
        if run.problem is None or not run.problem.startswith("no end"):
            break
    return run


def try_sealed(lab, sealing, program, folder):
    return try_run("sealed", lab, program,
                   lambda place: sealing.run_line(program.stack, lab, program.ranks, program.command, place / "report.json"),
                   sealing.env(), folder)


def take_program(lab, layer, program, options):
    """The row of the report and the list of what did not hold."""
    sealing = Sealing(FOLDER / "config", lab, options.cryptmpi, {"layer": layer})
    rounds = options.rounds
    if layer == "mpi":
        program = dataclasses.replace(program, command=program.command + program.messages)
    plain_times, sealed_times, problems = [], [], []
    canaries_plain = canaries_sealed = 0
    needles = [program.canary] if program.canary else None
    expected = job = None
    began = time.monotonic()
    for number in range(1, (rounds or ROUNDS) + 1):
        if number > 1 and not rounds and time.monotonic() - began > ENOUGH_S:
            break
        folder = FOLDER / "runs" / f"{program.name}-{layer}"
        place = folder / f"sealed-{number}"
        plain = try_plain(lab, program, folder / f"plain-{number}")
        if plain.problem:
            problems.append(f"{program.name}, {layer}, plain: {plain.problem}")
            break
        if needles is None:
            needles = capture.sample(plain.wire, least_bytes=LAUNCHER_BYTES if layer == "mpi" else 0)
            if len(needles) < 4:
                problems.append(f"{program.name}, {layer}: the plain run's traffic has too little to make canaries of")
        found, _ = capture.count(plain.wire, needles)
        canaries_plain += sum(found.values())
        plain.wire.unlink()  # two captures may be more than memory and disk can take at the speed of the wire

        sealed = try_sealed(lab, sealing, program, place)
        if sealed.problem:
            problems.append(f"{program.name}, {layer}, sealed: {sealed.problem}")
            break
        found, on_wire = capture.count(sealed.wire, needles)
        canaries_sealed += sum(found.values())
        sealed.wire.unlink()
        plain_times.append(plain.seconds)
        sealed_times.append(sealed.seconds)
        expected = plain.result if expected is None else expected
        if sealed.result != expected:
            problems.append(f"{program.name}, {layer}: the sealed run computed something else than the plain one")
        job = sealing.report(place / "report.json")
        problems += [f"{program.name}, {layer}: {what}" for what in report_problems(job, on_wire)]

    if not problems and canaries_plain == 0:
        problems.append(f"{program.name}, {layer}: no canary in the plain capture, so its absence from the sealed one proves nothing")
    if canaries_sealed:
        problems.append(f"{program.name}, {layer}: {canaries_sealed} canaries in the clear on the sealed wire")
    totals = (job or {}).get("totals", {})
    row = {
        "program": program.name,
        "mpi": program.stack.title,
        "layer": (job or {}).get("layer", ""),
        "ranks": program.ranks,
        "rounds": len(sealed_times),
        "cipher": ", ".join((job or {}).get("suites", [])),
        "module": ", ".join((job or {}).get("modules", [])),
        "plain_s": round(statistics.median(plain_times), 3) if plain_times else None,
        "sealed_s": round(statistics.median(sealed_times), 3) if sealed_times else None,
        "sealed_bytes": totals.get("sealed_bytes_sent", 0),
        # What crossed no seal, as far as its bytes are counted: inside a node nothing of ours runs on the path.
        "native_bytes": sum(entry["bytes"] for entry in (job or {}).get("not_sealed", [])),
        "canaries_plain": canaries_plain,
        "canaries_sealed": canaries_sealed,
        "checks_passed": not problems,
    }
    return row, problems


def report_problems(job, on_wire):
    """What the job's own report says that must not be."""
    totals = job["totals"]
    if not job["complete"]:
        yield f"the report is not complete: {job['ranks_reported']} of {job['ranks']} ranks; {'; '.join(job['errors'])}"
    elif job["errors"]:
        yield f"the report has errors: {job['errors'][0]}"
    if totals["failed_opens"]:
        yield f"{totals['failed_opens']} records did not open"
    # The MPI layer seals the blocks of collective operations for ranks of the own node, too: MPI may send them over
    # another one.
    most = on_wire if job["layer"] == "channel" else float("inf")
    if not 0 < totals["sealed_bytes_sent"] <= most:
        yield f"the report counts {totals['sealed_bytes_sent']} sealed bytes, the wire had {on_wire}"


def table(rows):
    def size(count):
        return f"{count / 1e6:,.1f} MB"

    lines = [["program", "MPI", "layer", "ranks", "cipher", "module", "plain s", "sealed s", "added %", "sealed between nodes",
              "canaries plain", "canaries sealed"]]
    for row in rows:
        timed = row["plain_s"] is not None
        lines.append([row["program"], row["mpi"], row["layer"], str(row["ranks"]), row["cipher"], row["module"],
                      f"{row['plain_s']:.2f}" if timed else "-", f"{row['sealed_s']:.2f}" if timed else "-",
                      f"{(row['sealed_s'] / row['plain_s'] - 1) * 100:+.0f}" if timed else "-", size(row["sealed_bytes"]),
                      str(row["canaries_plain"]), str(row["canaries_sealed"])])
    return "\n".join(markdown(lines))


def main():
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"plain and sealed runs of each program; times are medians (default: up to {ROUNDS}, "
                        f"fewer of a program that takes over {ENOUGH_S} s)")
    parser.add_argument("--only", help="one program: hpcc, lammps, canary")
    parser.add_argument("--layer", choices=LAYERS, help="one layer (default: both)")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, as on a machine that allows none")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND, help="the command (default: %(default)s)")
    options = parser.parse_args()

    why_not = "asked for" if options.loopback else acquire_namespaces()
    if why_not:
        say(f"one loopback instead of two nodes, scope \"all\", node-local shortcuts off: {why_not}")
    end_on_signals()
    let_root_start_jobs()

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    canary_file = FOLDER / "canary.bin"
    canary_file.write_bytes(secrets.token_bytes(32))
    mpich = stack("mpich-4.0.2-ucx")
    subprocess.run([mpich.mpicc, "-O1", "-o", FOLDER / "canary", CANARY], check=True, capture_output=True)

    rows, problems = [], []
    with Lab(isolated=why_not is None) as lab:
        say(f"nodes: {', '.join(f'{node.name} ({node.address})' for node in lab.nodes)}")
        for program in programs(canary_file):
            for layer in LAYERS:
                if options.only in (None, program.name) and options.layer in (None, layer):
                    row, wrong = take_program(lab, layer, program, options)
                    rows.append(row)
                    problems += wrong

    ok = not problems
    report = {"ok": ok, "nodes": "namespaces" if why_not is None else "loopback", "problems": problems,
              "runs": rows}
    (FOLDER / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{table(rows)}\n")
    print("Times are medians of wall-clock runs, launcher included. Canaries: for the canary program its 32 random bytes; for HPCC and "
          "LAMMPS,\nwhich choose their data themselves, 32-byte windows taken from what their first plain run sent.")
    for problem in problems:
        print(f"NOT RIGHT: {problem}")
    print(f"{'All of it held.' if ok else 'It did not all hold.'} Report: {(FOLDER / 'report.json').relative_to(REPOSITORY)}")
    return 0 if ok else 1


if __name__ == "__main__":
    run_program("demo", main)
