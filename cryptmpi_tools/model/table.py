"""Sizes, times and shares as tables show them."""

import math

KB, MB = 1 << 10, 1 << 20


def readable(size):
    """Bytes, as 64 KB where they are whole kilobytes."""
    for unit, name in ((MB, "MB"), (KB, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def seconds(value):
    """Four digits of a time in the unit that suits it."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} s"
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(value) >= unit:
            return f"{value / unit:.4g} {name}"
    return f"{value / 1e-9:.4g} ns"


def percent(share):
    """A share of 1 as percents with their sign."""
    return f"{100 * share:+.1f} %"
