"""The max-rate model of threads that encrypt: alpha + m / (A + B (t - 1)). C20 IV and table II, N20 6.2 and table XII
(after Gropp 2016)."""

import math
from dataclasses import dataclass

from cryptmpi_tools.model import least_squares

PARAMETERS = ("alpha", "a", "b")


@dataclass(frozen=True)
class MaxRate:
    """Of one range of sizes: overhead alpha (s), rate A of the first thread and B of each further one (bytes a
    second)."""

    alpha: float
    a: float
    b: float

    def time(self, size, threads=1):
        """Seconds in which `threads` threads encrypt `size` bytes together (C20 IV, T_enc).

        N20 6.2 lets t threads work on m bytes each: that is time(t m, t).
        """
        return self.alpha + size / (self.a + self.b * (threads - 1))


@dataclass(frozen=True)
class Levels:
    """A MaxRate for each range of sizes, ascending: [(name, below, MaxRate)], `below` in bytes and infinite for the
    last.

    The ranges are those of the caches: small fits L1, moderate L2 (C20 IV: 32 KB and 1 MB; N20 6.2 has 256 B and 32
    KB).
    """

    levels: tuple

    def level(self, size):
        return next(rate for _, below, rate in self.levels if size < below)

    def time(self, size, threads=1):
        """Seconds in which `threads` threads encrypt `size` bytes together."""
        return self.level(size).time(size, threads) if size > 0 else self.levels[0][2].alpha


def constant(rate, alpha=0.0):
    """A cipher of one speed (bytes a second) at all sizes, whose threads do not slow each other."""
    return Levels((("all", math.inf, MaxRate(alpha, rate, rate)),))


def fit(points, relative=False):
    """(MaxRate, Fit) of [(bytes, threads, s)], nonlinear least squares as in C20 IV.

    With one number of threads B cannot be told: it is taken to be A, that is, threads do not slow each other, and has
    no interval.
    """
    import numpy

    points = sorted(points)
    sizes, threads, times = (numpy.array(column, float) for column in zip(*points))
    line = least_squares.line(sizes, times, relative)
    alpha, slope = max(line.values[0], 0.0), line.values[1] or times.max() / sizes.max()
    if len(set(threads)) == 1:
        return _of_one_number(sizes, threads[0], times, relative)
    rate = 1 / slope / max(threads.mean(), 1.0)
    start = (max(alpha, times.min() / 100), rate, rate)
    found = least_squares.curve(lambda values, _: values[0] + sizes / (values[1] + values[2] * (threads - 1)), start, None, times, relative)
    return MaxRate(*found.values), found


def _of_one_number(sizes, threads, times, relative):
    found = least_squares.line(sizes, times, relative)
    if found.values[0] < 0:
        found = least_squares.line(sizes, times, relative, alpha=0.0)
    alpha, slope = found.values
    if slope <= 0:
        raise ValueError("larger messages were not encrypted in more time: no rate can be told")
    rate = 1 / (slope * threads)
    interval = None
    if found.intervals[1] is not None and found.intervals[1][0] > 0:
        interval = tuple(1 / (bound * threads) for bound in reversed(found.intervals[1]))
    return MaxRate(alpha, rate, rate), least_squares.Fit((alpha, rate, rate), (found.intervals[0], interval, None), found.n, found.rms_s,
                                                         found.median_error, found.worst_error)


def fit_levels(points, limits, relative=False):
    """(Levels, [Fit]) of [(bytes, threads, s)]; `limits` = [(name, below)] ascending.

    A range with fewer than three points is joined to the next one, the last to the one before.
    """
    groups, low = [], 0.0
    for name, below in limits:
        groups.append((name, below, [point for point in points if low <= point[0] < below]))
        low = below
    joined = []
    for name, below, group in groups:
        if joined and len(joined[-1][2]) < 3:
            last, _, fewer = joined.pop()
            joined.append((f"{last}, {name}" if fewer else name, below, fewer + group))
        else:
            joined.append((name, below, group))
    if len(joined) > 1 and len(joined[-1][2]) < 3:
        name, below, group = joined.pop()
        last, _, more = joined.pop()
        joined.append((f"{last}, {name}" if group else last, below, more + group))
    fits = [fit(group, relative) for _, _, group in joined]
    return Levels(tuple((name, below, rate) for (name, below, _), (rate, _) in zip(joined, fits))), [found for _, found in fits]
