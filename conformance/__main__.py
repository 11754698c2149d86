"""Runs each suite on each MPI across two nodes, plain and sealed; what passed plain must pass sealed."""

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

from conformance.suites import LEFT_OUT, SUITES
from lab.nodes import REPOSITORY, Lab, LabError, acquire_namespaces, end_on_signals
from lab.sealing import COMMAND, Sealing
from lab.stacks import STACKS, abi_environment

BEGAN = time.monotonic()


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


def run_suite(lab, mpi, suite, ranks, sealing, folder, attempts):
    """The results of one run and whether it came to its end; the fullest of several attempts where it did not."""
    best, ended, seconds = {}, False, 0.0
    for attempt in range(1, attempts + 1):
        place = folder / f"attempt-{attempt}"
        place.mkdir(parents=True)
        for file in suite.files:
            shutil.copy(file, place)
        program = [str(word) for word in suite.command(mpi)]
        env = {**mpi.env(lab), **abi_environment(mpi), "OMP_NUM_THREADS": "1"}
        if sealing:
            program = sealing.exec_line(program, place / "report.json")
            env.update(sealing.env())
        done = lab.run(mpi.command(lab, ranks, program), env=env, timeout=suite.timeout, cwd=place, log=place / "output.txt")
        results = suite.results(place, done.output)
        seconds = done.seconds
        if sum(map(bool, results.values())) >= sum(map(bool, best.values())):
            best = results
        # mpi4py's main exits with a failure if one test failed; that is no reason to repeat.
        ended = not done.timed_out and bool(results)
        if done.ok or (ended and suite.name == "mpi4py"):
            break
    return best, ended, seconds


def compare(plain, sealed):
    passed = [test for test, value in plain.items() if value]
    regressions = [test for test in passed if sealed.get(test) != plain[test]]
    return passed, regressions


def one(lab, mpi, suite, ranks, sealing, folder, options):
    shutil.rmtree(folder, ignore_errors=True)
    plain, plain_ended, plain_s = run_suite(lab, mpi, suite, ranks, None, folder / "plain", options.attempts)
    sealed, sealed_ended, sealed_s = ({}, True, 0.0) if options.plain_only else \
        run_suite(lab, mpi, suite, ranks, sealing, folder / "sealed", options.attempts)
    passed, regressions = compare(plain, sealed)
    if options.plain_only:
        regressions = []
    row = {"mpi": mpi.name, "suite": suite.name, "ranks": ranks, "tests": len(plain.keys() | sealed.keys()), "passed_plain": len(passed),
           "passed_sealed": len(passed) - len(regressions), "regressions": sorted(regressions), "plain_s": round(plain_s, 1),
           "sealed_s": round(sealed_s, 1)}
    notes = [f"{kind} did not end" for kind, ended in (("plain", plain_ended), ("sealed", sealed_ended)) if not ended]
    if not passed:
        notes.append(f"nothing passed plain: see {(folder / 'plain').relative_to(REPOSITORY)}")
    elif regressions:
        notes.append(f"logs: {folder.relative_to(REPOSITORY)}")
    else:
        shutil.rmtree(folder)
    if notes:
        row["note"] = "; ".join(notes)
    return row


def main():
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--layer", choices=["channel"], default="channel")
    parser.add_argument("--stack", action="append", choices=[mpi.name for mpi in STACKS])
    parser.add_argument("--suite", action="append", choices=sorted({suite.name for suite in SUITES}))
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--attempts", type=int, default=2, help="runs of a suite that does not come to its end")
    parser.add_argument("--plain-only", action="store_true", help="only tries the suites themselves")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    options = parser.parse_args()
    why_not = acquire_namespaces()
    if why_not:
        say(f"one loopback instead of two nodes: {why_not}")
    end_on_signals()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    folder = REPOSITORY / "build" / "conformance" / options.layer
    folder.mkdir(parents=True, exist_ok=True)

    rows = []
    with Lab(isolated=why_not is None) as lab:
        sealing = None if options.plain_only else Sealing(folder / "config", lab, options.cryptmpi)
        for mpi in STACKS:
            if options.stack and mpi.name not in options.stack:
                continue
            for suite in SUITES:
                if mpi.name not in suite.mpis or (options.suite and suite.name not in options.suite):
                    continue
                for ranks in options.ranks or suite.ranks:
                    row = one(lab, mpi, suite, ranks, sealing, folder / f"{mpi.name}-{suite.name}-{ranks}", options)
                    rows.append(row)
                    say(f"{mpi.name} {suite.name} {ranks} ranks: {row['tests']} tests, passed plain {row['passed_plain']}, "
                        f"sealed {row['passed_sealed']}; {row['plain_s']} s, {row['sealed_s']} s {row.get('note', '')}")
                    left_out = [{"tests": pattern, "reason": reason} for _, pattern, reason in LEFT_OUT]
                    (folder / "report.json").write_text(json.dumps({"results": rows, "left_out": left_out}, indent=2) + "\n")

    print(f"\n{'MPI':18} {'suite':10} ranks  tests  plain  sealed  regressions")
    for row in rows:
        print(f"{row['mpi']:18} {row['suite']:10} {row['ranks']:5} {row['tests']:6} {row['passed_plain']:6} {row['passed_sealed']:7}  "
              f"{len(row['regressions'])}  {row.get('note', '')}")
    good = bool(rows) and all(row["passed_plain"] and not row["regressions"] for row in rows)
    print(f"{'No regressions.' if good else 'Not all is as it should be.'} Report: {(folder / 'report.json').relative_to(REPOSITORY)}")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"conformance: {error}")
    except KeyboardInterrupt:
        sys.exit("conformance: interrupted; the nodes are gone")
