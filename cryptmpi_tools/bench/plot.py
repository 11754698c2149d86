"""A picture of what sealing adds to the ping-pong: by size, for each network, layer and cipher, with the lowest
bound."""

from cryptmpi_tools.model.table import readable

LOWEST, HIGHEST = -10, 200  # % that are shown


def draw(rows, path):
    """None, or in one line why there is no picture."""
    try:
        import matplotlib
    except ImportError:
        return "no picture: matplotlib is not installed (package python3-matplotlib)"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if row["benchmark"] == "ping-pong" and row["size"]]
    panels = list(dict.fromkeys((row["network"], row["cipher"]) for row in rows))
    if not panels:
        return "no picture: no ping-pong was measured"
    layers = sorted({row["layer"] for row in rows})
    figure, axes = pyplot.subplots(len(panels), len(layers), figsize=(7 * len(layers), 4 * len(panels)), squeeze=False, sharey="row")
    for line, panel in zip(axes, panels):
        for axis, layer in zip(line, layers):
            _panel(axis, [row for row in rows if (row["network"], row["cipher"]) == panel and row["layer"] == layer])
            axis.set_title(f"{panel[0]}, {layer} layer, {panel[1]}")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return None


def _panel(axis, rows):
    sizes = sorted({row["size"] for row in rows})
    for mpi in dict.fromkeys(row["mpi"] for row in rows):
        own = sorted((row for row in rows if row["mpi"] == mpi), key=lambda row: row["size"])
        low, high = zip(*(row["spread"]["added_pct"] for row in own))
        drawn = axis.plot([row["size"] for row in own], [row["added_pct"] for row in own], marker=".", label=mpi)
        axis.fill_between([row["size"] for row in own], low, high, alpha=0.15, color=drawn[0].get_color())
    bounds = [(size, min(row["bound_pct"] for row in rows if row["size"] == size and "bound_pct" in row))
              for size in sorted({row["size"] for row in rows if "bound_pct" in row})]
    axis.plot([size for size, _ in bounds], [pct for _, pct in bounds], "k--", label="lowest bound")
    targets = sorted({(row["size"], row["target_pct"]) for row in rows if row["target_pct"] is not None})
    axis.plot([size for size, _ in targets], [pct for _, pct in targets], "kv", fillstyle="none", label="target")
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes[::2], [readable(size) for size in sizes[::2]], rotation=45)
    axis.set_ylim(LOWEST, HIGHEST)
    axis.set_ylabel("added to the one-way time, %")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
