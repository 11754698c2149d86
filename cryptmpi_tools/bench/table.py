"""The report on the terminal: the ping-pong of every MPI, and every target with the best and the worst MPI."""

from cryptmpi_tools.bench.parts import NETWORKS
from cryptmpi_tools.bench.targets import KB, MB, OTHERS, TARGETS, target_of
from cryptmpi_tools.model.table import readable
from cryptmpi_tools.tables import aligned

COLUMNS = [1, 256, 16 * KB, 64 * KB, 256 * KB, 1 * MB, 4 * MB]


def ping_pongs(rows):
    """A line for each network, layer, cipher and MPI: one-way microseconds plain, and sealed over plain."""
    rows = [row for row in rows if row["benchmark"] == "ping-pong"]
    sizes = [size for size in COLUMNS if any(row["size"] == size for row in rows)]
    lines = [["network", "layer", "cipher", "MPI", *map(readable, sizes)]]
    for name in dict.fromkeys((row["network"], row["layer"], row["cipher"], row["mpi"]) for row in rows):
        own = {row["size"]: row for row in rows if (row["network"], row["layer"], row["cipher"], row["mpi"]) == name}
        lines.append([*name, *(f"{own[size]['plain_us']:.1f} us x{own[size]['ratio']:.2f}" if size in own else "-" for size in sizes)])
    return aligned(lines) if rows else []


def against_targets(rows):
    """Lines, and how many targets are met: by the best MPI, and by no other one missed by more than twice."""
    lines = [["layer", "network", "benchmark", "size", "cipher", "target", "best MPI", "plain", "added", "quartiles", "bound", "reached", "",
              "worst MPI", "added", ""]]
    met = 0
    for target, group in groups(rows):
        group.sort(key=lambda row: (len(row["missed"]), _added(row, target)))
        best, worst = group[0], group[-1]
        good, others_good = not best["missed"], all(row["within_twice"] for row in group)
        met += good and others_good
        others = [worst["mpi"], added(worst, target), "pass" if others_good else f"MISSED x{OTHERS}"] if len(group) > 1 else ["", "", ""]
        lines.append([*place(best), target.text(), best["mpi"] or "-", plain(best, target), added(best, target), quartiles(best), bound(best, target),
                      share(best, target), "pass" if good else f"MISSED ({', '.join(best['missed'])})", *others])
    return aligned(lines) if len(lines) > 1 else [], met, len(lines) - 1


def groups(rows):
    """(target, the rows of all MPIs that it is for), by layer and network, and in the targets' order."""
    found = {}
    for row in rows:
        target = target_of(row)
        if target:
            key = (row["layer"], NETWORKS.index(row["network"]), TARGETS.index(target), row["size"] or 0, row["cipher"], row["ranks"] or 0)
            found.setdefault(key, []).append(row)
    return [(TARGETS[key[2]], found[key]) for key in sorted(found)]


def place(row):
    size = readable(row["size"]) if row["size"] and row["benchmark"] != "connections" else ""
    ranks = f" {row['ranks']} ranks" if row["benchmark"] in ("init", "first-message") else ""
    return [row["layer"], row["network"], row["benchmark"] + ranks, size, row["cipher"] or "-"]


def _added(row, target):
    quantity = "bytes" if target.bytes is not None else "cpu_pct" if target.quantity == "cpu_us" else "pct"
    return row.get(f"added_{quantity}", float("inf"))


def plain(row, target):
    if "plain_bytes" in row:
        return f"{row['plain_bytes'] / MB:.1f} MiB"
    us = row[f"plain_{target.quantity}"]
    return f"{us / 1e6:.2f} s" if us >= 1e6 else f"{us:.2f} us" if us < 100 else f"{us:.0f} us"


def added(row, target):
    if "added_bytes" in row:
        return f"{row['added_bytes'] / KB:+.0f} KiB"
    in_us = f" {row['added_us']:+.2f} us" if target.us is not None or target.us_a_round is not None else ""
    return percent(row.get("added_cpu_pct" if target.quantity == "cpu_us" else "added_pct")) + in_us


def quartiles(row):
    return " .. ".join(f"{value:+.1f}" for value in row["spread"].get("added_pct", []))


def bound(row, target):
    return percent(row.get("bound_cpu_pct" if target.quantity == "cpu_us" else "bound_pct"))


def share(row, target):
    reached = row.get("reached_cpu_pct" if target.quantity == "cpu_us" else "reached_pct")
    return "" if reached is None else f"{reached:.0f} %"


def percent(value):
    return "" if value is None else f"{value:+.1f} %"
