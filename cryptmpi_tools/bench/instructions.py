"""Counts the instructions that each layer adds to a small message, one sent and one received, and to looking for one,
under callgrind.

Our own code and that of the crypto modules is counted, not MPI's and not the crypto libraries' (these choose their code
by the CPU, of which callgrind shows an older one). The count repeats, whatever else the machine does. It fails when a
kind of call costs more than cryptmpi_tools/bench/instructions.json says by over 2 %.
"""

import argparse
import collections
import json
import os
import re
import subprocess
from pathlib import Path

from cryptmpi_tools.lab.nodes import REPOSITORY, Lab, LabError, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND, Sealing, alone
from cryptmpi_tools.lab.stacks import stack
from cryptmpi_tools.tables import aligned

HERE = Path(__file__).resolve().parent
FOLDER = REPOSITORY / "build" / "bench" / "instructions"
EXPECTED = HERE / "instructions.json"
MPI = "openmpi-4.1.4"  # Debian's: on every machine
BYTES = 1
MESSAGE = f"a message of {BYTES} byte sent and one received"
# The layer; rounds; what is counted, and how many times a round does it.
KINDS = {"blocking": ("mpi", 200, MESSAGE, 1), "nonblocking": ("mpi", 200, MESSAGE, 1), "window": ("mpi", 10, MESSAGE, 64),
         "testany": ("mpi", 200, "a look at 16 receives whose messages have not come", 1),
         "poll": ("channel", 200, MESSAGE, 1), "epoll": ("channel", 200, MESSAGE, 1)}
MOST_GROWTH = 0.02
# What valgrind starts in its own place: a static program, which loads the program to be counted with our library.
TOOL = Path("/usr/libexec/valgrind") / f"callgrind-{'amd64' if os.uname().machine == 'x86_64' else 'arm64'}-linux"
OURS = re.compile(r"cryptmpi-|libcryptmpi-")
LINE = re.compile(r"\s*([\d,]+)\s+\S*?:(.*?) \[(.*)\]$")


def counted(path):
    """{(object, function): instructions} of a callgrind file, of our objects."""
    done = subprocess.run(["callgrind_annotate", "--threshold=100", "--show-percs=no", path], capture_output=True, text=True, check=True)
    costs = collections.Counter()
    for line in done.stdout.splitlines():
        match = LINE.match(line)
        if match and OURS.search(match[3]):
            costs[Path(match[3]).name, re.sub(r"\(.*", "", match[2].replace("(anonymous namespace)::", ""))] += int(match[1].replace(",", ""))
    return costs


def measure(lab, sealing, program, kind):
    """{(object, function): instructions} of one."""
    mpi = stack(MPI)
    _, rounds, _, times = KINDS[kind]
    line = ["valgrind", "-q", "--tool=callgrind", "--toggle-collect=counted_rounds",
            f"--callgrind-out-file={FOLDER / kind}.%q{{OMPI_COMM_WORLD_RANK}}", str(program), kind, str(rounds), str(BYTES)]
    done = lab.run(mpi.command(lab, 2, sealing.exec_line(line)), env={**mpi.env(lab), **sealing.env()}, timeout=240)
    if not done.ok:
        raise LabError(f"{kind}: {done.why()}: {done.output.strip()[-400:]}")
    return {name: cost / rounds / times for name, cost in counted(FOLDER / f"{kind}.0").items()}


def main():
    parser = argparse.ArgumentParser(prog="make bench-instructions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"all unless given, of {', '.join(KINDS)}")
    parser.add_argument("--accept", action="store_true", help=f"write what was counted to {EXPECTED.relative_to(REPOSITORY)}")
    parser.add_argument("--functions", type=int, default=12, help="how many to show of each kind")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    options = parser.parse_args()
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"there is no kind {', '.join(unknown)}: it is one of {', '.join(KINDS)}")
    why_not = acquire_namespaces()
    end_on_signals()
    let_root_start_jobs()
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = FOLDER / "hotpath"
    subprocess.run([stack(MPI).mpicc, "-O2", "-o", program, HERE / "hotpath.c"], check=True)
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}

    totals, good = {}, True
    with Lab(isolated=why_not is None) as lab:
        # On one node as well as on two, everything is sealed; and the module is one that each machine has.
        settings = {"scope": "all", "module": "openssl", "agreement_timeout_s": 120, "allow_programs": TOOL}
        sealings = {layer: Sealing(FOLDER / f"config-{layer}", lab, options.cryptmpi, {"layer": layer, **settings, **alone(layer)})
                    for layer in ("mpi", "channel")}
        for kind, (layer, _, what, _) in KINDS.items():
            if options.kinds and kind not in options.kinds:
                continue
            costs = measure(lab, sealings[layer], program, kind)
            totals[kind] = round(sum(costs.values()))
            was = expected.get(kind)
            grown = was is not None and totals[kind] > was * (1 + MOST_GROWTH)
            good &= not grown
            print(f"{kind}: {totals[kind]} instructions for {what}"
                  + (f"; {was} expected{': GROWN' if grown else ''}" if was is not None else ""), flush=True)
            most = sorted(costs.items(), key=lambda item: -item[1])[: options.functions]
            if most:
                print(*aligned([["of them", "in"], *([f"{cost:.1f}", function] for (_, function), cost in most)]), sep="\n", flush=True)
    if options.accept:
        EXPECTED.write_text(json.dumps({**expected, **totals}, indent=2) + "\n")
    print("No kind of call costs more than it did." if good else "If it is worth that: make bench-instructions ARGS=--accept")
    return 0 if good or options.accept else 1


if __name__ == "__main__":
    run_program("bench-instructions", main)
