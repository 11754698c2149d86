"""What each way of key distribution costs at MPI_Init, under the MPI layer: the agreement, and the papers' two ways, in
turn.

    python3 -m cryptmpi_tools.bench.key_distribution [--ranks 2 4 8 16] [--turns 7] [--stack openmpi-4.1.4]
                                                     [--json FILE]

The way "none" is the program under its MPI alone. Two nodes on one machine, half of the ranks on each: where there are
more ranks than cores they wait for each other, so ratios can be compared, not times. A private key takes a time that
varies a lot to be drawn, hence the range.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.networks import Networks
from cryptmpi_tools.bench.parts import PLAIN, Part, Variant
from cryptmpi_tools.bench.programs import FOLDER, Starter
from cryptmpi_tools.lab.nodes import LabError, acquire_namespaces, end_on_signals, let_root_start_jobs
from cryptmpi_tools.lab.sealing import COMMAND

NONE = "none"
WAYS = ("agreement", "rsa-oaep", "interchange")
HELLO, ENTRY, RECORD, MODULUS, NAME = 200, 68, 20, 384, 64  # bytes, docs/protocol.md


def subtree(rank, ranks):
    return ranks if rank == 0 else min(rank & -rank, ranks - rank)


def bytes_of(way, ranks):
    """What all edges of the tree carry together, by docs/protocol.md."""
    total = 0
    for child in range(1, ranks):
        below = subtree(child, ranks)
        total += 2 * HELLO + ENTRY * (ranks + below) + 80 + 6 * RECORD
        if way == "rsa-oaep":
            total += HELLO + 2 * MODULUS * below
        elif way == "interchange":
            total += HELLO + (NAME + MODULUS) * below
    return total


def make_pair(folder, command):
    """One pair for both nodes: what it costs is the same."""
    key, keys = folder / "interchange.key", folder / "interchange.keys"
    if not key.exists():
        env = {**os.environ, "HOME": str(folder), "CRYPTMPI_INTERCHANGE_KEY_FILE": str(key)}
        done = subprocess.run([command, "keygen", "--interchange"], env=env, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"cryptmpi keygen --interchange: {(done.stderr or done.stdout).strip()}")
        digits = done.stdout.split()[-1]
        names = ["node1", "node2"]
        keys.write_text("".join(f"{name} rsa-3072 {digits}\n" for name in names))
        keys.chmod(0o644)
    return key, keys


def variant(way, key, keys):
    if way == NONE:
        return PLAIN
    return Variant(way, "mpi", "AES-256-GCM", (("layer", "mpi"), ("key_distribution", way), ("interchange_key_file", str(key)),
                                               ("interchange_keys", str(keys))))


def take(options, networks):
    starter = Starter(networks, options.folder, options.cryptmpi, timeout=options.timeout)
    key, keys = make_pair(options.folder, options.cryptmpi)
    order = random.Random(options.seed)
    found = {}
    for turn in range(options.turns):
        for ranks in options.ranks:
            part = Part("startup", "veth", (), options.stack, ranks, ranks // 2, (("init", 0),))
            for way in order.sample((NONE, *WAYS), 1 + len(WAYS)):
                us = starter.start(part, variant(way, key, keys))["init 0"]["us"]
                found.setdefault((ranks, way), []).append(us / 1000)
        print(f"turn {turn + 1} of {options.turns} is done", file=sys.stderr, flush=True)
    return found


def rows_of(found):
    rows = []
    for (ranks, way), times in sorted(found.items(), key=lambda one: (one[0][0], (NONE, *WAYS).index(one[0][1]))):
        median = statistics.median(times)
        plain, ours = (statistics.median(found[ranks, other]) for other in (NONE, WAYS[0]))
        rows.append({"ranks": ranks, "way": way, "init_ms": median, "least_ms": min(times), "most_ms": max(times),
                     "added_ms": median - plain, "added_of_agreement": (median - plain) / (ours - plain) if ours > plain else None,
                     "bytes_per_rank": 0 if way == NONE else bytes_of(way, ranks) / ranks})
    return rows


def show(rows):
    print("| ranks | way | MPI_Init, ms (least to most) | added, ms | added, of the agreement's | bytes per rank |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        share = row["added_of_agreement"]
        added = "" if row["way"] == NONE else f"{row['added_ms']:.0f}"
        times = "" if row["way"] == NONE or share is None else f"{share:.1f}"
        print(f"| {row['ranks']} | {row['way']} | {row['init_ms']:.0f} ({row['least_ms']:.0f} to {row['most_ms']:.0f}) | {added} | {times} | "
              f"{row['bytes_per_rank']:.0f} |")


def parse(words):
    parser = argparse.ArgumentParser(prog="python3 -m cryptmpi_tools.bench.key_distribution", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--stack", default="openmpi-4.1.4")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1, help="of the order of the ways")
    parser.add_argument("--folder", type=Path, default=FOLDER / "key-distribution")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    if any(ranks < 2 or ranks % 2 for ranks in options.ranks):
        parser.error("--ranks: even numbers, half of the ranks on each node")
    options.folder = options.folder.resolve()
    return options


def main():
    options = parse(sys.argv[1:])
    why_not = acquire_namespaces()
    if why_not:
        raise SystemExit(why_not)
    end_on_signals()
    let_root_start_jobs()
    options.folder.mkdir(parents=True, exist_ok=True)
    with Networks() as networks:
        rows = rows_of(take(options, networks))
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "machine": machine.facts(options.cryptmpi)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
