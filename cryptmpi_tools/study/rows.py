"""Rows of the study: what the method says of each series, and what each way adds to plain."""

import dataclasses
import math

from cryptmpi_tools.bench.parts import PLAIN
from cryptmpi_tools.study.method import RULES, ratio, ratio_interval, summary

MORE = ("seal_us", "open_us", "computing_us", "communicating_us", "cpu_us", "job_us")  # quantities beside the time: their medians


def rows_of(taken):
    """A row for each way and case of a part, in that order."""
    return [row_of(taken, way, key) for way in taken.part.variants for key in taken.samples.keys() if taken.series(way, key)]


def row_of(taken, way, key):
    """Times in microseconds. `added_pct` compares medians; `ratio_interval` is its 99 % interval, as a ratio to
    plain."""
    part = taken.part
    benchmark, size = key.rsplit(" ", 1)
    series = taken.series(way, key)
    found = summary(series, RULES[part.rule])
    row = {"experiment": part.experiment, "benchmark": benchmark, "size": int(size), "network": part.network, "mpi": part.mpi or None,
           "ranks": part.ranks if part.mpi else None, "way": way.name, "cipher": way.cipher or None,
           "us": round(found.median, 4), "mean_us": round(found.mean, 4), "repeats": found.repeats, "starts": starts_of(taken, way, key),
           "deviation_pct": percent(found.deviation), "interval_pct": percent(found.interval), "rule_met": found.met or None}
    for quantity in MORE:
        values = taken.series(way, key, quantity)
        if values:
            row[quantity] = round(summary(values).median, 4)
    plain = PLAIN if way != PLAIN else None
    row.update(against_plain(series, taken.series(plain, key) if plain else []))
    communicating = taken.series(plain, key, "communicating_us") if plain else []
    if communicating and min(communicating) > 0:
        row["communicating_added_pct"] = percent(ratio(taken.series(way, key, "communicating_us"), communicating) - 1)
    return row


def starts_of(taken, way, key):
    return sum(bool(repeats) for repeats in taken.samples.values(way.name, key, "us"))


def against_plain(series, plain):
    if not plain or min(plain) <= 0:
        return {}
    return {"added_pct": percent(ratio(series, plain) - 1), "ratio_interval": [round(end, 4) for end in ratio_interval(series, plain)]}


def percent(part):
    """None where there is none: JSON knows no infinity."""
    return round(100 * part, 2) if math.isfinite(part) else None


def rule_text(name):
    rule = dataclasses.asdict(RULES[name])
    return (f"at least {rule['least']} repeats, up to {rule['most']} until the standard deviation is within {100 * rule['within']:.0f} % of the "
            f"mean, else on until the {100 * rule['confidence']:.0f} % confidence interval is")
