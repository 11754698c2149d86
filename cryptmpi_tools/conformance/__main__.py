"""Runs each suite on each MPI across two nodes, plain and sealed; what passed plain must pass sealed."""

import argparse
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

from cryptmpi_tools.conformance.suites import LEFT_OUT, LEFT_OUT_REFUSED, REFUSED, SUITES, refused_only
from cryptmpi_tools.lab.nodes import REPOSITORY, Lab, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND, Sealing, alone
from cryptmpi_tools.lab.stacks import FABRIC, STACKS, STANDARD_ABI, abi_environment
from cryptmpi_tools.tables import aligned

BEGAN = time.monotonic()
END = "the run comes to its end"
EVERY = {"channel": [*STACKS, *STANDARD_ABI], "mpi": [*STACKS, *STANDARD_ABI], "fabric": FABRIC}


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


def run_once(lab, mpi, suite, ranks, sealing, place, words=(), enough=None):
    """The finished run, with these words added to the suite's command."""
    place.mkdir(parents=True)
    for file in suite.files:
        shutil.copy(file, place)
    program = [str(word) for word in [*suite.command(mpi, ranks), *words]]
    env = {**mpi.env(lab), **abi_environment(mpi), "OMP_NUM_THREADS": "1", **suite.environment(mpi)}
    if sealing:
        env.update(sealing.env())
    if sealing and not suite.by_run:
        program = sealing.exec_line(program, place / "report.json")
    if sealing and suite.by_run:
        line = sealing.run_line(mpi, lab, ranks, program, place / "report.json", mpi.mpiexec, suite.slots)
    else:
        line = mpi.command(lab, ranks, program, slots=suite.slots)
    return lab.run(line, env=env, timeout=suite.timeout, cwd=place, log=place / "output.txt",
                   enough=enough)


def run_suite(lab, mpi, suite, ranks, sealing, folder, attempts, words=()):
    """The results of a run, its coming to an end among them, and its seconds: of the first of `attempts` that ended, or
    the last."""
    for attempt in range(1, attempts + 1):
        place = folder / f"attempt-{attempt}"
        done = run_once(lab, mpi, suite, ranks, sealing, place, words)
        ended = suite.ended(place, done)
        if ended:
            break
    return {**suite.results(place, done.output), END: ended}, done.seconds


def run_apart(lab, mpi, suite, ranks, sealing, folder, tests):
    """The same of a run for each of these tests: one that needs a refused procedure ends its own run only."""
    results, every_end, seconds = {}, True, 0.0
    for number, test in enumerate(tests, 1):
        place = folder / f"test-{number}"
        # MPICH 5.0.2 does not end the job when an error ends one rank, plain too.
        done = run_once(lab, mpi, suite, ranks, sealing, place, suite.alone(test), refused_only)
        seconds += done.seconds
        ended = suite.ended(place, done)
        refused = not done.timed_out and refused_only(done.output)
        results[test] = REFUSED if refused else ended and suite.results(place, done.output).get(test)
        every_end = every_end and (ended or refused)
    return {**results, END: every_end}, seconds


def compare(plain, sealed):
    passed = [test for test, value in plain.items() if value]
    refused = [test for test in passed if is_refused(test, sealed)]
    regressions = [test for test in passed if sealed.get(test) != plain[test] and test not in refused]
    return passed, refused, regressions


def is_refused(test, sealed):
    """Itself, or what unittest calls once before all tests of its class."""
    return REFUSED in (sealed.get(test), sealed.get(f"setUpClass ({test.rpartition('.')[0]})"))


def run_plain(lab, mpi, suite, ranks, folder, options):
    """As run_suite, kept in a file; with --again, of that file."""
    kept = folder / "plain.json"
    if options.again and kept.exists():
        return json.loads(kept.read_text())
    shutil.rmtree(folder / "plain", ignore_errors=True)
    done = run_suite(lab, mpi, suite, ranks, None, folder / "plain", options.attempts)
    kept.write_text(json.dumps(done))
    return done


def one(lab, mpi, suite, ranks, sealing, folder, options):
    shutil.rmtree(folder / "sealed" if options.again else folder, ignore_errors=True)
    plain, plain_s = {}, 0.0
    apart = options.layer == "mpi" and suite.alone
    sealed_first = options.sealed_first and not apart  # of those a plain run tells which tests there are
    if not sealed_first:
        plain, plain_s = run_plain(lab, mpi, suite, ranks, folder, options)
    # One attempt: a sealed run that hangs now and then is what is looked for.
    if options.plain_only:
        sealed, sealed_s = plain, 0.0
    elif apart:
        tests = [test for test, value in plain.items() if value and test != END]
        sealed, sealed_s = run_apart(lab, mpi, suite, ranks, sealing, folder / "sealed", tests)
    else:
        left_out = suite.left_out_refused if options.layer == "mpi" else {}
        sealed, sealed_s = run_suite(lab, mpi, suite, ranks, sealing, folder / "sealed", 1, suite.leave_out(left_out))
        sealed.update(dict.fromkeys(left_out, REFUSED))
    if sealed_first:
        if suite.own_verdicts and all(sealed.values()) and REFUSED not in sealed.values():
            plain = sealed  # what passed sealed is no regression, whatever it was plain
        else:
            plain, plain_s = run_plain(lab, mpi, suite, ranks, folder, options)
    passed, refused, regressions = compare(plain, sealed)
    row = {"mpi": mpi.name, "suite": suite.name, "ranks": ranks, "tests": len(plain.keys() | sealed.keys()), "passed_plain": len(passed),
           "passed_sealed": len(passed) - len(regressions) - len(refused), "refused": sorted(refused), "regressions": sorted(regressions),
           "plain_s": round(plain_s, 1), "sealed_s": round(sealed_s, 1)}
    notes = ["all passed sealed: not run plain"] if plain is sealed and not options.plain_only else []
    notes += [f"{kind} did not end well" for kind, results in (("plain", plain), ("sealed", sealed)) if not results[END]]
    if len(passed) <= plain[END]:
        notes.append("nothing passed plain")
    if notes:
        row["note"] = "; ".join(notes)
    if regressions or not all((plain[END], sealed[END], passed)):
        row["note"] = "; ".join([*notes, f"logs: {folder.relative_to(REPOSITORY)}"])
    else:
        shutil.rmtree(folder)
    return row


def main():
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--layer", choices=EVERY, default="channel")
    parser.add_argument("--stack", action="append", choices=sorted({mpi.name for every in EVERY.values() for mpi in every}))
    parser.add_argument("--suite", action="append", choices=sorted({suite.name for suite in SUITES}))
    parser.add_argument("--ranks", type=int, action="append")
    parser.add_argument("--attempts", type=int, default=2, help="plain runs of a suite that does not come to its end")
    parser.add_argument("--sealed-first", action="store_true", help="leaves out the plain run of a suite that passes sealed as a whole")
    parser.add_argument("--again", action="store_true", help="against the plain run that an earlier run with regressions has left")
    parser.add_argument("--slower", type=float, default=1, metavar="TIMES", help="each run may take so many times its limit (a busy machine)")
    parser.add_argument("--add", action="store_true", help="keep what the report has of other suites from earlier runs")
    parser.add_argument("--plain-only", action="store_true", help="only tries the suites themselves")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    options = parser.parse_args()
    why_not = acquire_namespaces()
    if why_not:
        say(f"one loopback instead of two nodes: {why_not}")
    end_on_signals()
    let_root_start_jobs()
    folder = REPOSITORY / "build" / "conformance" / options.layer
    folder.mkdir(parents=True, exist_ok=True)

    rows, earlier = [], []
    if options.add and (folder / "report.json").exists():
        earlier = json.loads((folder / "report.json").read_text())["results"]
    with Lab(isolated=why_not is None) as lab:
        # What MPI spawns is started as the launcher's, whose sockets are always sealed.
        sealed = {by_run: Sealing(folder / "config", lab, options.cryptmpi, {"layer": options.layer, **({} if by_run else alone(options.layer))})
                  for by_run in ([] if options.plain_only else [False, True])}
        for mpi in EVERY[options.layer]:
            if options.stack and mpi.name not in options.stack:
                continue
            for suite in SUITES:
                if options.layer not in suite.layers or mpi.base not in suite.mpis or (options.suite and suite.name not in options.suite):
                    continue
                suite = replace(suite, timeout=suite.timeout * options.slower)
                for ranks in options.ranks or suite.ranks:
                    row = one(lab, mpi, suite, ranks, sealed.get(suite.by_run), folder / f"{mpi.name}-{suite.name}-{ranks}", options)
                    rows.append(row)
                    say(f"{mpi.name} {suite.name} {ranks} ranks: {row['tests']} tests, passed plain {row['passed_plain']}, "
                        f"sealed {row['passed_sealed']}, refused {len(row['refused'])}; {row['plain_s']} s, {row['sealed_s']} s; "
                        f"{row.get('note', 'all as plain')}")
                    left_out = [{"tests": pattern, "reason": reason} for _, pattern, reason in LEFT_OUT]
                    if options.layer == "mpi":
                        left_out += [{"tests": test, "reason": reason} for test, reason in LEFT_OUT_REFUSED.items()]
                    earlier = [old for old in earlier if (old["mpi"], old["suite"], old["ranks"]) != (mpi.name, suite.name, ranks)]
                    report = {"results": earlier + rows, "left_out": left_out}
                    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")

    lines = [["MPI", "suite", "ranks", "tests", "plain", "sealed", "refused", "regressions", ""]]
    lines += [[row["mpi"], row["suite"], *map(str, (row["ranks"], row["tests"], row["passed_plain"], row["passed_sealed"], len(row["refused"]),
                                                    len(row["regressions"]), row.get("note", "")))] for row in rows]
    print("", *aligned(lines), sep="\n")
    good = bool(rows) and all(row["passed_plain"] > 1 and not row["regressions"] for row in rows)
    print(f"{'No regressions.' if good else 'Not all is as it should be.'} Report: {(folder / 'report.json').relative_to(REPOSITORY)}")
    return 0 if good else 1


if __name__ == "__main__":
    run_program("conformance", main)
