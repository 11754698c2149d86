"""Least squares with confidence intervals: lines and curves through measured times.

numpy and scipy are imported where they are used: --help, and what fits nothing, work without them.
"""

from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Fit:
    """What a fit found. Units are those of the values fitted: seconds, bytes."""

    values: tuple
    intervals: tuple     # (low, high) of each value at CONFIDENCE; None where it was given, or n leaves no degree of freedom
    n: int               # points
    rms_s: float         # root mean square of the residuals
    median_error: float  # of |predicted / measured - 1|
    worst_error: float


def _judged(values, covariance, free, predicted, times):
    """Student's t at the residuals' degrees of freedom; `free` has the places of the values that were fitted."""
    import numpy
    from scipy import stats

    residuals = predicted - times
    left = len(times) - len(free)
    intervals = [None] * len(values)
    if left > 0:
        reach = stats.t.ppf((1 + CONFIDENCE) / 2, left)
        for at, place in enumerate(free):
            half = reach * float(numpy.sqrt(max(covariance[at, at], 0.0)))
            intervals[place] = (values[place] - half, values[place] + half)
    errors = numpy.abs(residuals / times)
    return Fit(tuple(map(float, values)), tuple(intervals), len(times), float(numpy.sqrt(numpy.mean(residuals ** 2))), float(numpy.median(errors)),
               float(errors.max()))


def line(sizes, times, relative=False, alpha=None):
    """alpha + beta size through times (s) of sizes (bytes); with `alpha` given, beta alone.

    Least squares of the residuals, as the papers do (C20 IV, N20 6.1), or with `relative` of the residuals over the
    times, which gives every size the same say. No beta below 0: where that would fit best, alpha is the (weighted)
    mean. Raises ValueError without two points.
    """
    import numpy

    sizes, times = numpy.asarray(sizes, float), numpy.asarray(times, float)
    if len(sizes) < 2:
        raise ValueError(f"a line needs two points, not {len(sizes)}")
    weights = 1 / times if relative else numpy.ones_like(times)
    scale = sizes.max() or 1.0  # else a column of bytes beside a column of ones is badly conditioned
    columns = {0: numpy.ones_like(sizes), 1: sizes / scale}
    free = [1] if alpha is not None else [0, 1]
    if numpy.ptp(sizes) == 0:
        free = [0] if alpha is None else []
    solution, covariance = _solve(columns, free, times - (alpha or 0.0), weights)
    if solution.get(1, 0.0) < 0:
        free = [0] if alpha is None else []
        solution, covariance = _solve(columns, free, times - (alpha or 0.0), weights)
    found = numpy.array([solution.get(0, alpha if alpha is not None else 0.0), solution.get(1, 0.0) / scale])
    units = numpy.array([1.0, 1 / scale])[free]
    return _judged(found, covariance * numpy.outer(units, units), free, found[0] + found[1] * sizes, times)


def _solve(columns, free, target, weights):
    """({place: value}, covariance) of the weighted least squares over the columns in `free`."""
    import numpy

    if not free:
        return {}, numpy.zeros((0, 0))
    design = numpy.stack([columns[place] * weights for place in free], axis=1)
    solution, _, _, _ = numpy.linalg.lstsq(design, target * weights, rcond=None)
    residuals = design @ solution - target * weights
    variance = float(residuals @ residuals) / max(len(target) - len(free), 1)
    return dict(zip(free, solution)), variance * numpy.linalg.inv(design.T @ design)


def curve(function, start, points, times, relative=False):
    """Values of function(values, points) >= 0 that fit times (s) best, from `start`; the papers' lsqnonlin (C20 IV, N20
    6.2).

    Raises ValueError where there are fewer points than values, or where no minimum is found.
    """
    import numpy
    from scipy import optimize

    start, times = numpy.asarray(start, float), numpy.asarray(times, float)
    if len(times) < len(start):
        raise ValueError(f"{len(start)} values need as many points, not {len(times)}")
    scale = numpy.where(start > 0, start, 1.0)
    weights = 1 / times if relative else numpy.full_like(times, 1 / times.mean())
    found = optimize.least_squares(lambda values: (function(values * scale, points) - times) * weights, start / scale, bounds=(0, numpy.inf),
                                   jac="3-point", xtol=1e-12, ftol=1e-12, gtol=1e-12, max_nfev=2000)
    if not found.success:
        raise ValueError("least squares found no minimum")
    values = found.x * scale
    variance = 2 * found.cost / max(len(times) - len(start), 1)
    covariance = variance * numpy.linalg.pinv(found.jac.T @ found.jac) * numpy.outer(scale, scale)
    return _judged(values, covariance, list(range(len(values))), function(values, points), times)
