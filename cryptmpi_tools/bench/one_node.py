"""What a message between two ranks of one node costs: `make bench-one-node`.

Plain; under the MPI layer, native and sealed (scope = "all"); and, to compare, a message that is not sealed but brings
a secret of 16 bytes as a piece before the user's data (tokens.c). In turns, in one run; of each the fastest, since
nothing but other work on the processor differs between two starts.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.networks import Networks
from cryptmpi_tools.bench.parts import PLAIN, Part, Variant
from cryptmpi_tools.bench.programs import FOLDER, Starter
from cryptmpi_tools.bench.targets import GCM
from cryptmpi_tools.lab.nodes import LabError, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND
from cryptmpi_tools.lab.stacks import STACKS
from cryptmpi_tools.tables import aligned

SIZES = (1, 16 << 10, 1 << 20)
# What is started, and how.
WAYS = {"plain": ("pingpong", PLAIN),
        "native": ("pingpong", Variant("native", "mpi", GCM, (("layer", "mpi"), ("scope", "between-nodes")))),
        "sealed": ("pingpong", Variant("sealed", "mpi", GCM, (("layer", "mpi"), ("scope", "all")))),
        "token": ("tokens", PLAIN)}


def measure(starter, mpi, turns):
    """{(way, size): microseconds one way}"""
    samples = {}
    for turn in range(turns):
        for way in random.sample(list(WAYS), len(WAYS)):
            program, variant = WAYS[way]
            part = Part(program, "veth", (variant,), mpi, 2, 2, tuple(("one-node", size) for size in SIZES))
            for key, values in starter.start(part, variant).items():
                if key.startswith("one-node"):
                    samples.setdefault((way, int(key.split()[1])), []).append(values["us"])
        print(f"{mpi}: turn {turn + 1} of {turns}", end="\r", flush=True, file=sys.stderr)
    return {key: min(values) for key, values in samples.items()}


def rows_of(mpi, times):
    return [[mpi, str(size), f"{times['plain', size]:.2f}",
             *(f"{times[way, size]:.2f} x{times[way, size] / times['plain', size]:.2f}" for way in WAYS if way != "plain")] for size in SIZES]


def parse(words):
    parser = argparse.ArgumentParser(prog="make bench-one-node", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", action="append", choices=[mpi.name for mpi in STACKS], help="default: openmpi-4.1.4 and mpich-5.0.2-ofi")
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--output", type=Path, default=FOLDER / "one-node.json")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    return parser.parse_args(words)


def main():
    options = parse(sys.argv[1:])
    if why_not := acquire_namespaces():
        raise LabError(why_not)
    end_on_signals()
    let_root_start_jobs()
    FOLDER.mkdir(parents=True, exist_ok=True)
    watch, others = machine.Watch(), [machine.others_running()]
    with Networks() as networks:
        starter = Starter(networks, FOLDER, options.cryptmpi, rounds=2000)
        found = {mpi: measure(starter, mpi, options.turns) for mpi in options.stack or ("openmpi-4.1.4", "mpich-5.0.2-ofi")}
    load = watch.found(others)
    options.output.write_text(json.dumps({"turns": options.turns, **load, "times": [
        {"mpi": mpi, "way": way, "size": size, "us": us} for mpi, times in found.items() for (way, size), us in times.items()]}, indent=1) + "\n")
    rows = [row for mpi, times in found.items() for row in rows_of(mpi, times)]
    print(f"One way between two ranks of one node, us; the fastest of {options.turns} turns.",
          *aligned([["MPI", "bytes", *WAYS], *rows]), sep="\n")
    print(f"{machine.sentence(load)}. {options.output}")
    return 0


if __name__ == "__main__":
    run_program("bench-one-node", main)
