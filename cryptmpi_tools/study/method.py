"""How often a measurement is repeated, and what is said of it.

The rule is that of Naser et al. (2019, section V; 2020, section 5, "benchmark methodology"): at least 20 times (5 for
encryption alone), up to 100 times until the standard deviation is within 5 % of the mean; if it still is not, on until
the 99 % confidence interval is within 5 % of it.
"""

import math
from dataclasses import dataclass

import numpy
from scipy import stats


@dataclass(frozen=True)
class Rule:
    least: int = 20          # repeats
    most: int = 100          # repeats after which the interval counts instead of the deviation
    within: float = 0.05     # of the mean
    confidence: float = 0.99


RULES = {"mpi": Rule(), "crypto": Rule(least=5)}
RESAMPLES = 1000  # of the bootstrap


@dataclass(frozen=True)
class Summary:
    """Of one series; times in the unit of the series, the deviation and the interval as parts of the mean."""

    repeats: int
    mean: float
    median: float
    deviation: float  # standard deviation of the sample over the mean
    interval: float   # half of the confidence interval of the mean, over the mean
    met: str          # by what the rule was met: "deviation", "interval"; "": it was not


def summary(values, rule=RULES["mpi"]):
    """Of a series of one value or more. ValueError: an empty one, or a value that is no number."""
    series = numpy.asarray(values, dtype=float)
    if series.size == 0 or not numpy.all(numpy.isfinite(series)):
        raise ValueError(f"a series of {series.size} values, all of which have to be numbers")
    mean = float(series.mean())
    deviation, interval = spread(series, mean, rule.confidence)
    return Summary(int(series.size), mean, float(numpy.median(series)), deviation, interval, met(int(series.size), deviation, interval, rule))


def spread(series, mean, confidence):
    """(standard deviation, half of the confidence interval by Student's t), both over the mean; infinite for one value
    or a mean of zero."""
    if series.size < 2:
        return math.inf, math.inf
    deviation = float(series.std(ddof=1))
    half = float(stats.t.ppf((1 + confidence) / 2, series.size - 1)) * deviation / math.sqrt(series.size)
    if mean == 0:
        return (0.0, 0.0) if deviation == 0 else (math.inf, math.inf)
    return deviation / abs(mean), half / abs(mean)


def met(repeats, deviation, interval, rule):
    if repeats < rule.least:
        return ""
    if deviation <= rule.within:
        return "deviation"
    return "interval" if repeats >= rule.most and interval <= rule.within else ""


def ratio(values, base):
    """median(values) / median(base). ValueError where the base's median is not positive."""
    middle = float(numpy.median(base))
    if middle <= 0:
        raise ValueError("a ratio to a median that is not positive")
    return float(numpy.median(values)) / middle


def ratio_interval(values, base, confidence=0.99, seed=1):
    """(low, high) of the ratio of the medians by the percentile bootstrap, drawn with a fixed seed: the same data give
    the same interval."""
    draw = numpy.random.default_rng(seed)
    above, below = (numpy.median(draw.choice(numpy.asarray(side, dtype=float), (RESAMPLES, len(side))), axis=1) for side in (values, base))
    usable = below > 0
    if not usable.any():
        raise ValueError("a ratio to medians that are not positive")
    tail = 100 * (1 - confidence) / 2
    low, high = numpy.percentile(above[usable] / below[usable], [tail, 100 - tail])
    return float(low), float(high)


def overhead_of_sums(plain, other):
    """(%, names) by which the summed times of `other` exceed those of `plain`, both {name: seconds}, over the names in
    both.

    A mean of the programs' ratios would say nothing (Fleming and Wallace 1986, as the papers cite). ValueError where
    they share no name.
    """
    names = sorted(set(plain) & set(other))
    if not names or sum(plain[name] for name in names) <= 0:
        raise ValueError("no program was measured both plain and sealed")
    return 100 * (sum(other[name] for name in names) / sum(plain[name] for name in names) - 1), names
