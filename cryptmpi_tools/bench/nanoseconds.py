"""Where the nanoseconds go that the MPI layer adds to a small message: `make bench-nanoseconds`.

The ping-pong between two nodes, plain and sealed in turn, says how many there are; cryptmpi-bench-message times those
of our parts that need no MPI, each by itself. What MPI takes for the 24 bytes more is the plain ping-pong's difference.
The rest is what finds communicators, datatypes and receives, and the code's way through the processor's caches, which a
part by itself does not see.
"""

import argparse
import json
import random
import re
import subprocess
import sys
from pathlib import Path

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.networks import Networks
from cryptmpi_tools.bench.parts import PLAIN, Part, sealed
from cryptmpi_tools.bench.programs import FOLDER, Starter
from cryptmpi_tools.bench.targets import GCM
from cryptmpi_tools.lab.nodes import LabError, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND
from cryptmpi_tools.lab.stacks import STACKS
from cryptmpi_tools.model.measurements import lower_quarter
from cryptmpi_tools.tables import aligned

OVERHEAD = 24  # bytes that sealing adds to a message
PARTS = {"cipher": "the cipher: sealing and opening, with the crypto library's own calls", "message": "numbers, nonces, headers, the key's limits",
         "order": "that each message comes once, in order", "buffers": "a buffer at each end", "counting": "counters for the report"}


def parts_alone(command, cipher, size):
    """(module, {part: nanoseconds})"""
    tool, modules = command.resolve().parent / "cryptmpi-bench-message", command.resolve().parent.parent / "lib" / "cryptmpi"
    done = subprocess.run([tool, modules, "auto", cipher, str(size)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise LabError(done.stderr.strip() or f"{tool.name}: exit status {done.returncode}")
    return read_parts(done.stdout)


def read_parts(output):
    found = {name: float(ns) for name, ns in re.findall(r"^(\w+) (-?[\d.]+)$", output, re.M)}
    if found.keys() != PARTS.keys():
        raise LabError(f"cryptmpi-bench-message said not {', '.join(PARTS)} but {', '.join(found) or 'nothing'}")
    return re.search(r"^module (.*)$", output, re.M).group(1), found


def ping_pongs(starter, options):
    """{(way, size): one-way nanoseconds}"""
    way = sealed("mpi", options.cipher)
    size = options.size
    part = Part("pingpong", options.network, (PLAIN, way), options.stack, tests=(("ping-pong", size), ("ping-pong", size + OVERHEAD)))
    samples = {}
    for turn in range(options.turns):
        for variant in random.sample(part.variants, 2):
            for key, values in starter.start(part, variant).items():
                if key.startswith("ping-pong"):
                    samples.setdefault((variant == PLAIN, int(key.split()[1])), []).append(1000 * values["us"])
        print(f"turn {turn + 1} of {options.turns}", end="\r", flush=True, file=sys.stderr)
    return {key: lower_quarter(values) for key, values in samples.items()}


def table(options, module, alone, times):
    """[(what, nanoseconds)]; the last two are the rest and the sum."""
    plain = times[True, options.size]
    carried = times[True, options.size + OVERHEAD] - plain
    added = times[False, options.size] - plain
    rows = [(f"MPI: {OVERHEAD} bytes more to carry", carried), *((PARTS[name], ns) for name, ns in alone.items())]
    rows.append(("the rest: finding communicator, datatype and receive, caches", added - sum(ns for _, ns in rows)))
    return [*rows, (f"added to {plain:.0f} ns plain, one way", added)]


def parse(words):
    parser = argparse.ArgumentParser(prog="make bench-nanoseconds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", choices=[mpi.name for mpi in STACKS], default="openmpi-4.1.4")
    parser.add_argument("--network", default="veth", choices=("veth", "loopback"))
    parser.add_argument("--cipher", default=GCM)
    parser.add_argument("--size", type=int, default=1, help="bytes")
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--output", type=Path, default=FOLDER / "nanoseconds.json")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    return parser.parse_args(words)


def main():
    options = parse(sys.argv[1:])
    why_not = acquire_namespaces()
    if why_not and options.network != "loopback":
        raise LabError(f"{why_not}; --network loopback does without nodes")
    end_on_signals()
    let_root_start_jobs()
    FOLDER.mkdir(parents=True, exist_ok=True)
    watch, others = machine.Watch(), [machine.others_running()]
    module, alone = parts_alone(options.cryptmpi, options.cipher, options.size)
    with Networks() as networks:
        times = ping_pongs(Starter(networks, FOLDER, options.cryptmpi, rounds=2000), options)
    rows = table(options, module, alone, times)
    load = watch.found(others)
    facts = {"mpi": options.stack, "network": options.network, "cipher": options.cipher, "module": module, "size": options.size,
             "turns": options.turns, "parts": [{"part": what, "ns": round(ns, 1)} for what, ns in rows], **load}
    options.output.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"A message of {options.size} B under {options.stack} on {options.network}, {options.cipher} by {module}; means of the lowest quarter of "
          f"{options.turns} turns.", *aligned([["part", "ns"], *([what, f"{ns:.0f}"] for what, ns in rows)]), sep="\n")
    print(f"{machine.sentence(load)}. {options.output}")
    return 0


if __name__ == "__main__":
    run_program("bench-nanoseconds", main)
