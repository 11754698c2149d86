"""Measures what is named, plain and encrypted in turn, as the study does, and prints the medians. `make bench` of the
source tree is another: it holds each layer against the targets of docs/performance.md."""

import argparse
import json
import sys
from pathlib import Path

from cryptmpi_tools.lab.nodes import run_program
from cryptmpi_tools.model import command
from cryptmpi_tools.study import __main__ as study
from cryptmpi_tools.tables import aligned

BENCHMARKS = {
    "cipher": "encrypting and decrypting on one core, by every module and cipher",
    "threads": "encrypting one message by several threads",
    "ping-pong": "one message to and fro between two ranks",
    "pairs": "64 messages in flight between each of several pairs of ranks",
    "flows": "streams of 1 MB through a tunnel beneath plain MPI, too",
    "plans": "one message to and fro, plain and under each plan of ours: direct, pipelined, threaded, tuned",
    "plans-streaming": "the same with 64 messages in flight",
    "collectives": "collective operations that move data",
    "reductions": "collective operations that add",
    "stencil-2d": "halo exchange with five points, and a matrix product as load",
    "stencil-3d": "with seven points",
    "stencil-4d": "with nine points",
    "n-body": "all ranks' bodies around a ring",
    "host-overhead": "time of the processor that a message takes from the program (Sandia's method)",
    "pingping": "two messages that meet",
    "chain": "messages along a chain, and exchanges with both neighbours",
    "applications": "HPCC and LAMMPS, a rank on each of two nodes",
    "window": "one-sided transfers",
}


def parse(words):
    known = "\n".join(f"  {name:<15} {what}" for name, what in BENCHMARKS.items())
    epilog = f"After the names, options of cryptmpi study: --full, --network, --minutes ...\n\nbenchmarks:\n{known}"
    parser = command.Parser(prog="cryptmpi bench", description=__doc__, allow_abbrev=False, epilog=epilog,
                            formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="+", metavar="NAME", help="of a benchmark, below")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the rows as JSON; default: bench.json beside the study's page")
    options, more = parser.parse_known_args(words)
    unknown = [name for name in options.name if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    return options, study.parse([*more, *(word for name in options.name for word in ("--only", name))])


def table(found):
    """Lines: the medians of each row."""
    head = ("network", "MPI", "benchmark", "size", "way", "microseconds", "added", "repeats", "rule of repeating")
    lines = [head] + [(row["network"], row["mpi"] or "", row["benchmark"], str(row["size"]), row["way"], f"{row['us']:.4g}",
                       "" if row.get("added_pct") is None else f"{row['added_pct']:+.1f} %", str(row["repeats"]), row["rule_met"] or "not met")
                      for row in found]
    return aligned(lines)


def main(words):
    own, options = parse(words)
    measured = study.measure(options)
    found, missing = measured.rows(), measured.missing + measured.taking.problems
    output = own.output or options.folder / "bench.json"
    output.write_text(json.dumps({"rows": found, "not_measured": missing}, indent=1, allow_nan=False) + "\n")
    print("\n".join(["", *table(found), *(f"NOT MEASURED: {line}" for line in missing), f"Rows: {output}"]))
    return 0 if found else 1


if __name__ == "__main__":
    run_program("bench", main, sys.argv[1:], goes_on=", and --resume goes on from here")
