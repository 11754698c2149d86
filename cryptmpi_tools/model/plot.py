"""Pictures: lines over sizes or ranks, on logarithmic axes."""

from cryptmpi_tools.model import table
from cryptmpi_tools.model.command import ModelError

FEW_LINES = 6  # as many as have room in a panel beside what they name
COLOURS = 10   # that matplotlib has before it begins again
STYLES = ("-", "--", ":", "-.")


def draw(path, panels, x_label, y_label, logarithmic=True, bytes_on_x=True):
    """Writes a PNG. `panels`: [(title, [(label, [(x, y)])])]. Raises ModelError without matplotlib, or where nothing
    can be written."""
    try:
        import matplotlib
    except ImportError as error:
        raise ModelError("--plot needs matplotlib; install it (Debian: python3-matplotlib)") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    most = max(len(series) for _, series in panels)
    size = (7.5 + (3.5 if most > FEW_LINES else 0), max(4.2, 0.17 * most + 0.8))  # of a panel; lists of many lines stand beside theirs
    figure, axes = pyplot.subplots(rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False, layout="constrained")
    for axis, panel in zip(axes.flat, panels):
        _panel(axis, *panel, bytes_on_x)
        axis.set(xlabel=x_label, ylabel=y_label, yscale="log" if logarithmic else "linear")
    for axis in axes.flat[len(panels):]:
        axis.set_axis_off()
    try:
        figure.savefig(path, dpi=100, format="png")
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _panel(axis, title, series, bytes_on_x):
    for at, (label, points) in enumerate(series):
        axis.plot(*zip(*points), marker=".", label=label, linestyle=STYLES[at // COLOURS % len(STYLES)])
    ticks = sorted({x for _, points in series for x, _ in points})
    ticks = ticks[::max(1, len(ticks) // 8)]
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [table.readable(x) if bytes_on_x else f"{x:,}" for x in ticks], rotation=45)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.set_title(title, fontsize="medium")
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0} if len(series) > FEW_LINES else {}
    axis.legend(fontsize="small", **beside)
