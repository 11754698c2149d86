"""`cryptmpi model error`: predicted against measured times, for each model, network, MPI, layer and cipher."""

import statistics
from pathlib import Path

from cryptmpi_tools.model import chopping, command, enhanced, measurements, pairs, parameters, plot, table
from cryptmpi_tools.tables import aligned

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
    command.show(options, {"busy_machine": found.busy, "summary": summary, "rows": rows}, heading + aligned(lines(summary)))
    return 0


NAMES = ("model", "network", "mpi", "layer", "cipher", "module")


def compared(known, found, threads=1):
    """[{model, network, mpi, layer, cipher, module, size, threads, pairs, measured_s, predicted_s, error}] of all that
    both have.

    `pairs` is None where messages were sent one at a time.
    """
    return [*_of_messages(known, found, threads), *_of_pairs(known, found), *_of_ciphers(known, found)]


def _row(names, size, measured, expected, threads=1, number=None):
    return {**dict(zip(NAMES, names)), "size": size, "threads": threads, "pairs": number, "measured_s": measured, "predicted_s": expected,
            "error": expected / measured - 1}


def _of_messages(known, found, threads):
    """The ping-pong, plain and sealed."""
    for key, network in known.networks.items():
        for size, measured in sorted(found.ping_pong.get(key, {}).items()):
            yield _row(("Hockney", *key, "", "", ""), size, measured, network.time(size))
        for names, cipher, times in _sealed(known, found.sealed, key):
            for size, measured in times:
                yield _row(("enhanced Hockney", *names), size, measured, enhanced.time(size, network, cipher))
                if size >= chopping.SMALLEST:
                    yield _row(("(k,t)-chopping", *names), size, measured, chopping.best(size, network, cipher, threads).seconds)


def _of_pairs(known, found):
    """Messages in flight between several pairs, plain and sealed."""
    for key, network in known.pairs.items():
        for (size, number), measured in sorted(found.pairs.get(key, {}).items()):
            yield _row(("Hockney of pairs", *key, "", "", ""), size, measured, pairs.plain(size, number, network), number=number)
        for names, cipher, times in _sealed(known, found.sealed_pairs, key):
            for (size, number), measured in times:
                yield _row(("multiple pairs", *names), size, measured, pairs.encrypted(size, number, network, cipher), number=number)


def _sealed(known, sealed, key):
    """((network, MPI, layer, cipher, module), Levels, [(place, s)]) of what was sealed on a network, for each module
    that has the cipher."""
    for (*place, layer, name), times in sealed.items():
        for (cipher_name, module), cipher in known.ciphers.items():
            if tuple(place) == key and cipher_name == name:
                yield (*key, layer, name, module), cipher.levels, sorted(times.items())


def _of_ciphers(known, found):
    for (name, module), cipher in known.ciphers.items():
        for (size, number), measured in sorted(found.ciphers.get((name, module), {}).items()):
            yield _row(("max-rate", "", "", "", name, module), size, measured, cipher.levels.time(size, number), number)


def summed(rows):
    """For each model and what it was of: n, the median and the worst |error|, the size of the worst, and the median
    error with its sign."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in NAMES), []).append(row)
    found = []
    for key, group in groups.items():
        worst = max(group, key=lambda row: abs(row["error"]))
        found.append({**dict(zip(NAMES, key)), "n": len(group), "median": statistics.median(abs(row["error"]) for row in group),
                      "worst": abs(worst["error"]), "worst_size": worst["size"], "worst_pairs": worst["pairs"],
                      "bias": statistics.median(row["error"] for row in group)})
    return sorted(found, key=lambda entry: [entry[name] for name in NAMES])


def lines(summary):
    found = [[*NAMES[:1], "network", "MPI", "layer", "cipher", "module", "n", "median error", "worst", "at", "predicted against measured"]]
    for entry in summary:
        found.append([*(entry[name] or "-" for name in NAMES), str(entry["n"]), f"{100 * entry['median']:.1f} %", f"{100 * entry['worst']:.1f} %",
                      table.readable(entry["worst_size"]) + _pairs(entry["worst_pairs"]), table.percent(entry["bias"])])
    return found


def _pairs(number):
    return "" if number is None else f", {number} pair{'' if number == 1 else 's'}"


def panels(rows):
    """A panel for each model, a line for each thing it was of."""
    found = {}
    for row in rows:
        threads = f"t = {row['threads']}" if row["threads"] > 1 else ""
        label = " ".join(filter(None, [*(row[name] for name in NAMES[1:]), threads])) + _pairs(row["pairs"])
        found.setdefault(row["model"], {}).setdefault(label, []).append((row["size"], 1 + row["error"]))
    return [(model, list(lines_of.items())) for model, lines_of in found.items()]
