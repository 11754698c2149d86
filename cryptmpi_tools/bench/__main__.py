"""What sealing costs: benchmarks plain and sealed by each layer in turn, medians against the targets and against the
best that could be done. `cryptmpi bench NAME` is another: one benchmark of the papers' study, from an installed
copy."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from cryptmpi_tools import needs_figures  # noqa: F401
from cryptmpi_tools.bench import machine, parts, plot, programs, table
from cryptmpi_tools.bench.bounds import Bounds
from cryptmpi_tools.bench.networks import Networks
from cryptmpi_tools.bench.rows import rows_of
from cryptmpi_tools.bench.targets import TARGETS
from cryptmpi_tools.bench.turns import BEGAN, Turns, say
from cryptmpi_tools.lab.nodes import LabError, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND, Sealing
from cryptmpi_tools.lab.stacks import stack

QUICK_MINUTES = 8
QUICK_TURNS, FULL_TURNS = 7, 15
QUICK_TIMEOUT, FULL_TIMEOUT = 30, 90  # seconds for a start


def usable_ciphers(options, networks, folder):
    """Those that the library knows, and for the others a line each with its reason."""
    usable, refused = [], []
    for cipher in options.cipher or parts.CIPHERS:
        sealing = Sealing(folder / "config", networks.lab("loopback"), options.cryptmpi, {"layer": "channel", "cipher": cipher})
        done = subprocess.run(sealing.exec_line(["/bin/true"]), env={**os.environ, **sealing.env()}, capture_output=True, text=True)
        if done.returncode:
            refused.append(f"{cipher}: {(done.stderr or done.stdout).strip()}")
        else:
            usable.append(cipher)
    return tuple(usable), refused


def make_key(options, networks, folder):
    """Before any setting that the library may refuse."""
    Sealing(folder / "config", networks.lab("loopback"), options.cryptmpi)


def chosen_parts(options, ciphers, why_not):
    """(parts, problems): without those of MPIs that are not installed, and of networks that cannot be had."""
    networks = tuple(options.network or (parts.NETWORKS if options.full else parts.QUICK_NETWORKS))
    problems = []
    if why_not:
        problems = [f"network {name}: {why_not}" for name in networks if name != "loopback"]
        networks = ("loopback",)
    wanted = parts.Wanted(tuple(options.stack or ()), tuple(options.layer or parts.LAYERS), networks, tuple(options.benchmark or ()), ciphers,
                          tuple(options.size or ()))
    found = (parts.full if options.full else parts.quick)(wanted, machine.cores())
    missing = [name for name in dict.fromkeys(part.mpi for part in found) if name and not stack(name).present()]
    problems += [f"{name} is not installed (make mpis)" for name in missing]
    found = [part for part in found if part.mpi not in missing]
    return [*parts.speeds(found), *found], problems


def parse(words):
    benchmarks = sorted({*(target.benchmark for target in TARGETS), *(name for name, _ in parts.ONE_SIDED)})
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="everything on every MPI; else what takes less than ten minutes")
    parser.add_argument("--stack", action="append", choices=[mpi.name for mpi in parts.EVERY],
                        help="only this MPI (several allowed, as in the next ones)")
    parser.add_argument("--layer", action="append", choices=parts.LAYERS)
    parser.add_argument("--network", action="append", choices=parts.NETWORKS)
    parser.add_argument("--benchmark", action="append", choices=benchmarks)
    parser.add_argument("--cipher", action="append", help=f"default: {', '.join(parts.CIPHERS)}")
    parser.add_argument("--size", action="append", type=int, choices=parts.SIZES, help="of the ping-pong, in bytes")
    parser.add_argument("--turns", type=int, help=f"default: {QUICK_TURNS}, of the full benchmark {FULL_TURNS}")
    parser.add_argument("--rounds", type=int, default=1000, help="of the small messages in a start")
    parser.add_argument("--minutes", type=float, help=f"take no more than so long; default: {QUICK_MINUTES}, of the full benchmark no limit")
    parser.add_argument("--resume", action="store_true", help="keep the turns of an earlier run, if nothing has changed since")
    parser.add_argument("--timeout", type=float, help=f"seconds for a start of a program; default: {QUICK_TIMEOUT}, {FULL_TIMEOUT}")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order in which plain and sealed are started")
    parser.add_argument("--folder", type=Path, default=programs.FOLDER, help="for the report and all that belongs to it")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    options = parser.parse_args(words)
    options.turns = options.turns or (FULL_TURNS if options.full else QUICK_TURNS)
    options.minutes = options.minutes or (0 if options.full else QUICK_MINUTES)
    options.timeout = options.timeout or (FULL_TIMEOUT if options.full else QUICK_TIMEOUT)
    options.folder = options.folder.resolve()
    return options


def make_report(options, turns, problems, refused):
    bounds = Bounds(turns.samples, machine.cores())
    rows = []
    for samples in turns.samples:
        transport = stack(samples.part.mpi).transport if samples.part.mpi else None
        rows += rows_of(samples, transport, bounds)
    mpis = {name: stack(name).title for name in dict.fromkeys(row["mpi"] for row in rows) if name}
    settings = {name: getattr(options, name) for name in ("full", "turns", "rounds", "minutes", "seed", "resume")}
    return {"rows": rows, "machine": {**machine.facts(options.cryptmpi), **turns.load()}, "mpis": mpis, "settings": settings,
            "bounds": bounds.facts(), "not_measured": problems + turns.problems + refused, "seconds": round(time.monotonic() - BEGAN, 1)}


def show(report, picture):
    rows = report["rows"]
    lines = table.ping_pongs(rows)
    if lines:
        print("\nPing-pong, one-way time plain and sealed over plain:", *lines, sep="\n")
    lines, met, count = table.against_targets(rows)
    if lines:
        print("\nAgainst the targets (added time of the best MPI, and of the worst against twice as much):", *lines, sep="\n")
        print(f"{met} of {count} targets met.")
    print(f"\n{report['machine']['cpu']}, {report['machine']['cores']} cores; {machine.sentence(report['machine'])}.")
    for problem in report["not_measured"]:
        print(f"NOT MEASURED: {problem}")
    print(picture)


def main():
    options = parse(sys.argv[1:])
    why_not = acquire_namespaces()
    end_on_signals()
    let_root_start_jobs()
    options.folder.mkdir(parents=True, exist_ok=True)
    with Networks() as networks:
        make_key(options, networks, options.folder)
        ciphers, refused = usable_ciphers(options, networks, options.folder)
        all_parts, problems = chosen_parts(options, ciphers, why_not)
        if not all_parts:
            raise LabError("; ".join(["nothing to measure is left by the options", *problems, *refused]))
        starter = programs.Starter(networks, options.folder, options.cryptmpi, options.rounds, options.timeout)
        turns = Turns(options, starter, all_parts)
        say(f"{len(all_parts)} parts, {options.turns} turns; {machine.sentence(turns.load())}")
        turns.take_all()
    report = make_report(options, turns, problems, refused)
    path = options.folder / "report.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    no_picture = plot.draw(report["rows"], path.with_suffix(".png"))
    show(report, f"Report: {path}; {no_picture or f'picture: {path.stem}.png'}")
    # A cipher that nobody asked for by name may be missing.
    return 1 if problems or turns.problems or (refused and options.cipher) else 0


if __name__ == "__main__":
    run_program("bench", main)
