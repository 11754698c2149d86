"""MPI ping-pong between two nodes, plain and sealed by each layer in turn; medians of several turns, and their ratios."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from lab.nodes import REPOSITORY, Lab, LabError, acquire_namespaces, end_on_signals
from lab.sealing import COMMAND, Sealing
from lab.stacks import STACKS, stack

FOLDER = REPOSITORY / "build" / "bench"
HERE = Path(__file__).resolve().parent
LAYERS = ("channel", "mpi")
SIZES = [1, 256, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]


def readable(size):
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def compile_for(mpi):
    compiler = (stack(mpi.built_with) if mpi.built_with else mpi).mpicc
    target = FOLDER / f"pingpong-{mpi.name}"
    subprocess.run([compiler, "-O2", "-o", target, HERE / "pingpong.c"], check=True)
    return str(target)


def measure(lab, mpi, line, env, timeout):
    """{size: microseconds}; one more try where a launch went wrong, as a busy machine makes plain ones go now and then."""
    for _ in range(2):
        done = lab.run(mpi.command(lab, 2, line), env={**mpi.env(lab), **env}, timeout=timeout)
        pairs = [row.split() for row in done.output.splitlines() if row[:1].isdigit() and len(row.split()) == 2]
        if done.ok and len(pairs) == len(SIZES):
            return {int(size): float(time) for size, time in pairs}
    raise LabError(f"{mpi.name}: the ping-pong failed: {done.why()}: {done.output.strip()[-300:]}")


def bench_one(lab, mpi, sealings, turns, rounds, timeout):
    """Rows of results, by layer and size."""
    program = [compile_for(mpi), str(rounds), *map(str, SIZES)]
    taken = {kind: [] for kind in ("plain", *sealings)}
    for _ in range(turns):
        taken["plain"].append(measure(lab, mpi, program, {}, timeout))
        for layer, sealing in sealings.items():
            taken[layer].append(measure(lab, mpi, sealing.exec_line(program), sealing.env(), timeout))
    medians = {kind: {size: statistics.median(turn[size] for turn in results) for size in SIZES} for kind, results in taken.items()}
    return [row(mpi, layer, size, medians["plain"][size], medians[layer][size]) for layer in sealings for size in SIZES]


def row(mpi, layer, size, plain, sealed):
    return {"layer": layer, "mpi": mpi.name, "transport": mpi.transport, "network": "veth", "benchmark": "ping-pong", "size": size, "ranks": 2,
            "plain_us": round(plain, 2), "sealed_us": round(sealed, 2), "added_pct": round(100 * (sealed / plain - 1), 1)}


def main():
    parser = argparse.ArgumentParser(prog="make bench-quick", description=__doc__)
    parser.add_argument("--stack", action="append", help="only this MPI (several allowed)")
    parser.add_argument("--layer", action="append", choices=LAYERS, help="only this layer")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1000, help="round trips of the small messages in a turn")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    options = parser.parse_args()
    why_not = acquire_namespaces()
    if why_not:
        print(f"one loopback instead of two nodes: {why_not}")
    end_on_signals()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    FOLDER.mkdir(parents=True, exist_ok=True)

    rows, problems = [], []
    with Lab(isolated=why_not is None) as lab:
        sealings = {layer: Sealing(FOLDER / "config", lab, options.cryptmpi, {"layer": layer}) for layer in options.layer or LAYERS}
        print(f"{'MPI':20}{'layer':10}" + "".join(f"{readable(size):>16}" for size in SIZES) + "    one-way us plain, sealed/plain", flush=True)
        for mpi in [stack(name) for name in options.stack] if options.stack else STACKS:
            if not mpi.present():
                problems.append(f"{mpi.name} is not installed")
                continue
            try:
                found = bench_one(lab, mpi, sealings, options.turns, options.rounds, options.timeout)
            except LabError as error:
                problems.append(str(error))
                continue
            rows += found
            for layer in sealings:
                ratios = [(one["plain_us"], one["sealed_us"] / one["plain_us"]) for one in found if one["layer"] == layer]
                print(f"{mpi.name:20}{layer:10}" + "".join(f"{plain:>9.1f} x{ratio:<5.2f}" for plain, ratio in ratios), flush=True)
    report = {"turns": options.turns, "rounds": options.rounds, "rows": rows, "problems": problems}
    (FOLDER / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    for problem in problems:
        print(f"NOT MEASURED: {problem}")
    print(f"Medians of {options.turns} turns each, plain and sealed in turn. Report: build/bench/report.json")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted; the nodes are gone")
