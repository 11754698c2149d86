"""What sizes on the wire tell of a program: who sees nothing but the lengths and directions of sealed records guesses
which communication pattern ran, and with which problem size.

    python3 -m cryptmpi_tools.bench.padding [--mpi NAME] [--runs N] [--schemes none,padme,...]

Each pattern (patterns.c) runs with each problem size between two nodes, its ranks under the channel layer with the
setting `padding`. The guess is the nearest of all other runs by their histograms of lengths: exact, in classes, or in
classes by bytes, whichever is right most often. Printed: how often it was right, the chance of a blind guess, and what
the padding cost in bytes.
"""

import argparse
import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from cryptmpi_tools.lab import capture
from cryptmpi_tools.lab.formats import HEADER, HELLO, TAG
from cryptmpi_tools.lab.nodes import BUILD, Lab, LabError
from cryptmpi_tools.lab.stacks import abi_environment, stack
from cryptmpi_tools.tables import aligned

HERE = Path(__file__).resolve().parent
LIBRARY = BUILD / "release" / "lib" / "cryptmpi" / "libcryptmpi-channel.so"
PATTERNS = ("cg", "ft", "mg", "lu", "is")
EDGES = (60, 64, 72)
ITERATIONS = 12


def records(data):
    """(type, length of the plaintext) of each record of a direction; nothing where it is no sealed connection."""
    if data[:4] != b"CMPI":
        return
    at = HELLO
    while at + HEADER <= len(data):
        size = int.from_bytes(data[at:at + 3], "little")
        yield data[at + 3], size
        at += HEADER + size + TAG


def histogram(path):
    """How large a part of the records each (direction, length) is, and the bytes on sealed connections."""
    seen, total = Counter(), 0
    for (flow, _), data in capture.streams(path).items():
        lengths = [size for kind, size in records(bytes(data)) if kind in (1, 6)]
        total += len(data) if lengths else 0
        seen.update((flow.source < flow.target, size) for size in lengths)
    number = sum(seen.values())
    if not number:
        raise LabError(f"{path}: no sealed record passed between the nodes")
    return {what: times / number for what, times in seen.items()}, total


def distance(one, other):
    return sum(abs(one.get(what, 0) - other.get(what, 0)) for what in one.keys() | other.keys())


def coarse(seen):
    """The same with lengths in classes, of which eight are a factor of two."""
    classes = Counter()
    for (direction, size), part in seen.items():
        classes[direction, round(8 * math.log2(size + 1))] += part
    return classes


def by_bytes(seen):
    """How large a part of the bytes, not of the records, has each class of lengths."""
    whole = sum(part * size for (_, size), part in seen.items())
    return coarse({(direction, size): part * size / whole for (direction, size), part in seen.items()})


def guessed(runs, told):
    """Of the ways to look the one that is right most often."""
    return max(guessed_by([(label, view(seen)) for label, seen in runs], told) for view in (dict, coarse, by_bytes))


def guessed_by(runs, told):
    """The part of the runs whose nearest neighbour among the others is told the same as they are."""
    right = 0
    for number, (label, seen) in enumerate(runs):
        others = (run for at, run in enumerate(runs) if at != number)
        nearest, _ = min(others, key=lambda run: distance(seen, run[1]))
        right += told(nearest) == told(label)
    return right / len(runs)


def sealed_by_hand(folder, scheme):
    """The words that start a rank under the channel layer, whatever starts it."""
    key = folder / "job.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(f"cryptmpi-job-key-1 {bytes(range(32)).hex()}\n")
    settings = {"KEY_FILE": key, "JOB_ID": "padding", "LAYER": "channel", "PADDING": scheme, "KEY_ON_NETWORK": "allow"}
    return ["env", f"LD_PRELOAD={LIBRARY}", *(f"CRYPTMPI_{name}={value}" for name, value in settings.items())]


def observe(lab, mpi, program, scheme, words, folder):
    line = mpi.command(lab, 2, [*sealed_by_hand(folder, scheme), program, *map(str, words)], 1)
    wire = folder / "wire.pcap"
    with lab.capture(wire):
        began = time.monotonic()
        done = lab.run(line, env={**mpi.env(lab), **abi_environment(mpi)}, timeout=120)
        seconds = time.monotonic() - began
    if not done.ok:
        raise LabError(f"{' '.join(map(str, words))} with padding {scheme}: {done.why()}: {done.output[-400:]}")
    seen, total = histogram(wire)
    wire.unlink()
    return seen, total, seconds


def compiled(mpi, folder):
    path = folder / "patterns"
    done = subprocess.run([mpi.mpicc, "-O2", "-o", path, HERE / "patterns.c"], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{mpi.mpicc} does not compile bench/patterns.c: {done.stderr.strip()}")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], prog="python3 -m cryptmpi_tools.bench.padding")
    parser.add_argument("--mpi", default="mpich-3.4.3-ch3", help="which MPI (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=2, help="of each pattern and size (default: %(default)s)")
    parser.add_argument("--schemes", default="none,padme,padme:4096,power-of-two", help="default: %(default)s")
    options = parser.parse_args()
    mpi = stack(options.mpi)
    runs, bytes_of, seconds_of = defaultdict(list), Counter(), Counter()
    with tempfile.TemporaryDirectory(dir=BUILD) as name, Lab() as lab:
        folder = Path(name)
        program = compiled(mpi, folder)
        # One scheme after another in each round, so that a busy machine is busy for all of them.
        for seed, edge, pattern, scheme in itertools.product(range(options.runs), EDGES, PATTERNS, options.schemes.split(",")):
            seen, total, seconds = observe(lab, mpi, program, scheme, (pattern, edge, ITERATIONS, seed), folder)
            runs[scheme].append(((pattern, edge), seen))
            bytes_of[scheme] += total
            seconds_of[scheme] += seconds
    print(f"chance: pattern {1 / len(PATTERNS):.2f}, pattern and problem size {1 / len(PATTERNS) / len(EDGES):.2f}")
    lines = [["scheme", "pattern", "pattern and problem size", "bytes", "a job", "runs"]]
    for scheme, seen in runs.items():
        base = bytes_of.get("none", bytes_of[scheme])
        lines.append([scheme, f"{guessed(seen, lambda label: label[0]):.2f}", f"{guessed(seen, lambda label: label):.2f}",
                      f"{bytes_of[scheme] / base - 1:+.1%}", f"{seconds_of[scheme] / len(seen):.2f} s", str(len(seen))])
    print(*aligned(lines), sep="\n")


if __name__ == "__main__":
    try:
        main()
    except LabError as error:
        sys.exit(str(error))
