"""The study in one table, and our plans in another, as Markdown, from the study.json of a folder (default:
build/study):

    python3 -m cryptmpi_tools.study.headline [FOLDER]

Each line is one case of an experiment: its plain time, and how many times as long each way took; with the command that
measures it again.
"""

import json
import sys
from pathlib import Path

from cryptmpi_tools.lab.nodes import BUILD
from cryptmpi_tools.model.table import readable

WAYS = {"naive": "naive", "mpi AES-256-GCM": "mpi", "channel AES-256-GCM": "channel", "wireguard": "wireguard", "ipsec": "ipsec"}
PLANS = {name: name for name in ("naive", "direct", "pipelined", "threaded", "tuned")}
KB, MB = 1 << 10, 1 << 20
# (paper, figure; benchmark, or None for all; sizes, or () for all; what measures it again)
CASES = (("N20", "3", None, (16 * KB, MB, 4 * MB), "ping-pong"), ("N20", "7", None, (16 * KB, MB, 4 * MB), "ping-pong"),
         ("C20", "1", None, (), "flows"), ("N20", "4", None, (2 * MB,), "pairs"), ("N20", "5", None, (16 * KB, 4 * MB), "collectives"),
         ("C20", "10", None, (256 * KB,), "stencil-2d"), ("C20", "table III", "n-body", (), "n-body"))
PLAN_CASES = (("C20", "plans", None, (), "plans"), ("C20", "plans of streams", None, (), "plans-streaming"))


def cases(study, wanted):
    """{(experiment, benchmark, network, ranks, size): {way: row}} of what is wanted, in its order."""
    found = {}
    for paper, figure, benchmark, sizes, experiment in wanted:
        for row in next((one["rows"] for one in study["figures"] if (one["paper"], one["figure"]) == (paper, figure)), ()):
            if benchmark in (None, row["benchmark"]) and (not sizes or row["size"] in sizes):
                key = (experiment, row["benchmark"], row["network"], row["ranks"], row["size"])
                found.setdefault(key, {})[row["way"]] = row
    return {key: ways for key, ways in found.items() if "plain" in ways}


def table(study, wanted=CASES, names=WAYS):
    """Lines of Markdown. `names`: {way: its column's}."""
    lines = ["| measured | network | ranks | size | plain | " + " | ".join(names.values()) + " | again |", "|---" * (6 + len(names)) + "|"]
    for (experiment, benchmark, network, ranks, size), ways in cases(study, wanted).items():
        plain = ways["plain"]["us"]
        times = [f"x{ways[way]['us'] / plain:.2f}" if way in ways else "–" for way in names]
        cells = [benchmark, network, ranks, readable(size) if size else "", f"{plain:.1f} us", *times, f"`--only {experiment}`"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BUILD / "study"
    try:
        study = json.loads((folder / "study.json").read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"study.headline: {folder / 'study.json'}: {error}; make study writes it")
    print(*table(study), "", *table(study, PLAN_CASES, PLANS), sep="\n")


if __name__ == "__main__":
    main()
