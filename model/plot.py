"""Pictures: lines over sizes or ranks, on logarithmic axes."""

from model import table
from model.command import ModelError


def draw(path, panels, x_label, y_label, logarithmic=True, bytes_on_x=True):
    """Writes a PNG. `panels`: [(title, [(label, [(x, y)])])]. Raises ModelError without matplotlib, or where nothing can be written."""
    try:
        import matplotlib
    except ImportError as error:
        raise ModelError("--plot needs matplotlib; install it (Debian: python3-matplotlib)") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(7.5 * columns, 4.2 * rows), squeeze=False)
    for axis, panel in zip(axes.flat, panels):
        _panel(axis, *panel, bytes_on_x)
        axis.set(xlabel=x_label, ylabel=y_label, yscale="log" if logarithmic else "linear")
    for axis in axes.flat[len(panels):]:
        axis.set_axis_off()
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=100, format="png")
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _panel(axis, title, series, bytes_on_x):
    for label, points in series:
        axis.plot(*zip(*points), marker=".", label=label)
    ticks = sorted({x for _, points in series for x, _ in points})
    ticks = ticks[::max(1, len(ticks) // 8)]
    axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [table.readable(x) if bytes_on_x else f"{x:,}" for x in ticks], rotation=45)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.set_title(title, fontsize="medium")
    axis.legend(fontsize="small")
