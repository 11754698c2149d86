"""`cryptmpi model error`: predicted against measured times, for each model, network, MPI, layer and cipher."""

import statistics
from pathlib import Path

from model import chopping, command, enhanced, measurements, pairs, parameters, plot, table

NAME, HELP = "error", "predicted against measured times, median and worst"


def add(parser):
    parser.add_argument("parameters", type=Path, metavar="PARAMETERS", help="file of `cryptmpi model fit --output`")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="measurements, as for fit; those of encrypted messages are not fitted to")
    parser.add_argument("--threads", type=command.positive(int), default=1, help="the most that a rank encrypts with; default: 1")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw predicted over measured by size")
    command.add_json(parser)


def run(options):
    found = measurements.read(options.files)
    rows = compared(parameters.read(options.parameters), found, options.threads)
    if not rows:
        raise command.ModelError("nothing was measured that the parameters are for: their networks, MPIs and ciphers have other names")
    summary = summed(rows)
    if options.plot:
        plot.draw(options.plot, panels(rows), "message", "predicted over measured", logarithmic=False)
    heading = ["THE MACHINE WAS BUSY when this was measured: the figures mean little."] if found.busy else []
    command.show(options, {"busy_machine": found.busy, "summary": summary, "rows": rows}, heading + table.aligned(lines(summary)))
    return 0


def compared(known, found, threads=1):
    """[{model, network, mpi, layer, cipher, module, size, threads, measured_s, predicted_s, error}] of all that both have."""
    rows = []

    def add(model, names, size, measured, expected, of=1):
        rows.append({"model": model, **dict(zip(("network", "mpi", "layer", "cipher", "module"), names)), "size": size, "threads": of,
                     "measured_s": measured, "predicted_s": expected, "error": expected / measured - 1})

    for key, network in known.networks.items():
        for size, measured in sorted(found.ping_pong.get(key, {}).items()):
            add("Hockney", (*key, "", "", ""), size, measured, network.time(size))
        for (*place, layer, name), times in found.sealed.items():
            for (cipher_name, module), cipher in known.ciphers.items():
                if tuple(place) == key and cipher_name == name:
                    for size, measured in sorted(times.items()):
                        names = (*key, layer, name, module)
                        add("enhanced Hockney", names, size, measured, enhanced.time(size, network, cipher.levels))
                        if size >= chopping.SMALLEST:
                            add("(k,t)-chopping", names, size, measured, chopping.best(size, network, cipher.levels, threads).seconds)
    for key, network in known.pairs.items():
        for (size, number), measured in sorted(found.pairs.get(key, {}).items()):
            add("Hockney of pairs", (*key, "", "", ""), size, measured, pairs.plain(size, number, network), number)
    for (name, module), cipher in known.ciphers.items():
        for (size, number), measured in sorted(found.ciphers.get((name, module), {}).items()):
            add("max-rate", ("", "", "", name, module), size, measured, cipher.levels.time(size, number), number)
    return rows


NAMES = ("model", "network", "mpi", "layer", "cipher", "module")


def summed(rows):
    """For each model and what it was of: n, the median and the worst |error|, the size of the worst, and the median error with its sign."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in NAMES), []).append(row)
    found = []
    for key, group in groups.items():
        worst = max(group, key=lambda row: abs(row["error"]))
        found.append({**dict(zip(NAMES, key)), "n": len(group), "median": statistics.median(abs(row["error"]) for row in group),
                      "worst": abs(worst["error"]), "worst_size": worst["size"], "bias": statistics.median(row["error"] for row in group)})
    return sorted(found, key=lambda entry: [entry[name] for name in NAMES])


def lines(summary):
    found = [[*NAMES[:1], "network", "MPI", "layer", "cipher", "module", "n", "median error", "worst", "at", "predicted against measured"]]
    for entry in summary:
        found.append([*(entry[name] or "-" for name in NAMES), str(entry["n"]), f"{100 * entry['median']:.1f} %", f"{100 * entry['worst']:.1f} %",
                      table.readable(entry["worst_size"]), table.percent(entry["bias"])])
    return found


def panels(rows):
    """A panel for each model, a line for each thing it was of."""
    found = {}
    for row in rows:
        label = " ".join(filter(None, [*(row[name] for name in NAMES[1:]), f"t = {row['threads']}" if row["threads"] > 1 else ""]))
        found.setdefault(row["model"], {}).setdefault(label, []).append((row["size"], 1 + row["error"]))
    return [(model, list(lines_of.items())) for model, lines_of in found.items()]
