"""A figure as a PNG: a panel for each value of one column, a line for each of another; bars where the x axis has
names."""

import io
import math

import matplotlib

from cryptmpi_tools.bench.table import readable
from cryptmpi_tools.study.figures import varying

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

MOST_COLUMNS = 3
COLOURS = {"plain": "#555555", "naive": "#c44e52", "mpi AES-256-GCM": "#1f77b4", "channel AES-256-GCM": "#2ca02c",
           "wireguard": "#9467bd", "ipsec": "#8c6d31", "direct": "#ff7f0e", "pipelined": "#1f77b4", "threaded": "#17becf", "tuned": "#2ca02c"}


def png(drawing, rows):
    """The picture's bytes. ValueError: no row has what is drawn."""
    usable = [row for row in rows if _number(row.get(drawing.y)) and row.get(drawing.x) is not None and row.get(drawing.panel) is not None]
    if not usable:
        raise ValueError(f"no row has {drawing.x}, {drawing.y} and {drawing.panel}")
    more = varying(drawing, usable)

    def panel_of(row):
        return ", ".join([str(row[drawing.panel]), *more(row)])

    panels = list(dict.fromkeys(map(panel_of, usable)))
    columns = min(len(panels), MOST_COLUMNS)
    lines = math.ceil(len(panels) / columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(max(6.4, 4.6 * columns), 3.4 * lines + 0.4), squeeze=False)
    for axis, panel in zip(axes.flat, panels):
        _panel(axis, drawing, [row for row in usable if panel_of(row) == panel])
        axis.set_title(panel, fontsize="medium")
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    figure.tight_layout()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=90)
    pyplot.close(figure)
    return file.getvalue()


def _number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def _panel(axis, drawing, rows):
    names = list(dict.fromkeys(row[drawing.line] for row in rows))
    by_name = isinstance(rows[0][drawing.x], str)
    (_bars if by_name else _lines)(axis, drawing, rows, names)
    if drawing.log_y and all(row[drawing.y] > 0 for row in rows):
        axis.set_yscale("log")
    if drawing.y == "added_pct":
        axis.axhline(0, color="#999999", linewidth=0.8)
    axis.set_xlabel(drawing.x_title)
    axis.set_ylabel(drawing.y_title)
    axis.grid(alpha=0.3)
    axis.legend(fontsize="x-small")


def _lines(axis, drawing, rows, names):
    places = sorted({row[drawing.x] for row in rows})
    for name in names:
        mine = sorted((row for row in rows if row[drawing.line] == name), key=lambda row: row[drawing.x])
        label = f"{name} thread{'' if name == 1 else 's'}" if drawing.line == "threads" else str(name)
        axis.plot([row[drawing.x] for row in mine], [row[drawing.y] for row in mine], marker="o", markersize=3.5, label=label,
                  color=COLOURS.get(name))
    if drawing.x == "size":
        places = [place for place in places if place > 0]
        axis.set_xscale("log", base=2)
        shown = places[::-(-len(places) // 7) or 1]
        axis.set_xticks(shown, [readable(place) for place in shown], rotation=45, fontsize="small")
    else:
        axis.set_xticks(places, [str(place) for place in places])


def _bars(axis, drawing, rows, names):
    places = list(dict.fromkeys(row[drawing.x] for row in rows))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        values = {row[drawing.x]: row[drawing.y] for row in rows if row[drawing.line] == name}
        axis.bar([at + number * width for at, place in enumerate(places) if place in values], [values[place] for place in places if place in values],
                 width, label=str(name), color=COLOURS.get(name))
    axis.set_xticks([at + 0.4 - width / 2 for at in range(len(places))], places, rotation=30, ha="right", fontsize="small")
