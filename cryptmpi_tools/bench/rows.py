"""Rows of the report: medians of the turns, plain against each sealed variant, with target and bound."""

import statistics

from cryptmpi_tools.bench.parts import BY_MESSAGES, PLAIN
from cryptmpi_tools.bench.targets import OTHERS, target_of

QUANTITIES = ("us", "cpu_us", "bytes")


def rows_of(samples, transport, bounds):
    """`bounds.add` gives what is known of each row's bound."""
    part = samples.part
    rows = []
    for variant in part.variants:
        for key, base in comparisons(samples, variant):
            row = compare(samples, base, variant, key)
            if row:
                benchmark, size = key.rsplit(" ", 1)
                if base == BY_MESSAGES:
                    benchmark += " by messages"
                described = {"layer": variant.layer, "mpi": part.mpi or None, "transport": transport, "network": part.network, "benchmark": benchmark,
                             "size": int(size) or None, "ranks": part.ranks if part.mpi else None, "cipher": variant.cipher,
                             "plain_us": None, "sealed_us": None, "added_pct": None}
                rows.append(judged(bounds.add({**described, **row}, part.per_node)))
    return rows


def comparisons(samples, variant):
    """What a sealed variant is compared in, and with what: (key, plain variant)."""
    if variant.is_plain:
        return []
    bases = [base for base in (PLAIN, BY_MESSAGES) if base in samples.part.variants]
    return [(key, base) for base in bases for key in samples.keys() if base == PLAIN or variant.layer == "fabric"]


def compare(samples, base, variant, key):
    """The figures of one row; {} where there are none. A turn counts where it has both."""
    row = {}
    for quantity in QUANTITIES:
        both = [pair for pair in zip(samples.values(base.name, key, quantity), samples.values(variant.name, key, quantity)) if None not in pair]
        if not both:
            continue
        plain, sealed = (statistics.median(side) for side in zip(*both))
        short = quantity.removesuffix("us")  # "", "cpu_", "bytes"
        row[f"plain_{quantity}"], row[f"sealed_{quantity}"] = round(plain, 4), round(sealed, 4)
        row["added_" + quantity] = round(sealed - plain, 4)
        if plain > 0 and quantity != "bytes":
            row[f"added_{short}pct"] = round(100 * (sealed / plain - 1), 2)
        if quantity != "cpu_us":
            row["turns"], row["spread"] = len(both), spread(both, quantity)
        if quantity == "us" and plain > 0:
            row["ratio"] = round(sealed / plain, 4)
    sealed_bytes = [value for value in samples.values(variant.name, key, "sealed_bytes") if value is not None]
    if sealed_bytes:
        row["sealed_between_nodes"] = statistics.median(sealed_bytes)
    return row


def quartiles(values):
    values = sorted(values)
    return [round(q, 4) for q in statistics.quantiles(values, n=4, method="inclusive")[::2]] if len(values) > 1 else [values[0], values[0]]


def spread(both, quantity):
    """The quartiles of the turns; of what was added, those of each turn's pair."""
    plain, sealed = zip(*both)
    added = [100 * (s / p - 1) for p, s in both if p > 0]
    return {f"plain_{quantity}": quartiles(plain), f"sealed_{quantity}": quartiles(sealed), **({"added_pct": quartiles(added)} if added else {})}


def judged(row):
    """With the target, and which of its limits are missed by it and by twice it."""
    target = target_of(row)
    if target is None:
        return {**row, "target_pct": None}
    missed = target.missed(row)
    return {**row, "target": target.text(), "target_pct": 0.0 if target.noise else target.pct, "target_us": target.us, "missed": missed,
            "verdict": "MISSED" if missed else "pass", "within_twice": not target.missed(row, OTHERS)}
