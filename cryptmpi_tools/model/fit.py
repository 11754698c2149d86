"""`cryptmpi model fit`: parameters of the models from measurements, by least squares as in the papers."""

import math
from pathlib import Path

from cryptmpi_tools.model import caches, command, hockney, least_squares, max_rate, measurements, parameters, table
from cryptmpi_tools.tables import aligned

NAME, HELP = "fit", "parameters from measurements"
CACHE_NAMES = ("L1", "L2")


def add(parser):
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="build/bench/report.json, or measurements (docs/models.md)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the parameters here, for predict, error, plan and scale")
    parser.add_argument("--relative", action="store_true", help="least squares of relative errors, so that every size has the same say; "
                        "without it, of the times, as in the papers: the largest messages decide")
    parser.add_argument("--switch", type=command.size, metavar="BYTES", help="MPI's eager limit; default: where two lines fit best")
    parser.add_argument("--l1", type=command.size, metavar="BYTES", help="default: this machine's L1 data cache")
    parser.add_argument("--l2", type=command.size, metavar="BYTES", help="default: this machine's L2 cache")
    command.add_json(parser)


def run(options):
    found = measurements.read(options.files)
    sizes = tuple(given or own for given, own in zip((options.l1, options.l2), caches.sizes()))
    if sizes[0] >= sizes[1]:
        raise command.ModelError(f"--l1 and --l2: L1 has to be smaller than L2, not {sizes[0]} and {sizes[1]} bytes")
    content = fitted(found, sizes, options.relative, options.switch)
    content["sources"] = [str(path) for path in options.files]
    if not (content["networks"] or content["ciphers"]):
        raise command.ModelError("; ".join(content["not_fitted"]) or "the files hold nothing that a model can be fitted to")
    if options.output:
        command.write(options.output, command.as_json(content))
    command.show(options, content, lines(content) + ([f"Parameters: {options.output}"] if options.output else []))
    return 0


def fitted(found, cache_sizes, relative=False, switch=None):
    """The content of a parameters file from Measurements; `cache_sizes` = (L1, L2) in bytes."""
    problems = []

    def switch_of(key):
        return switch or found.switch.get(key)

    networks = _each("ping-pong", found.ping_pong, lambda key, points: _network_entry(key, points, switch_of(key), relative), problems)
    pairs = _each("pairs", found.pairs, lambda key, points: _pairs_entry(key, points, switch_of(key), relative), problems)
    ciphers = _each("cipher", found.ciphers, lambda key, points: _cipher_entry(key, points, cache_sizes, relative), problems)
    return {"format": parameters.FORMAT, "units": "seconds, bytes", "confidence": least_squares.CONFIDENCE,
            "least_squares": "relative errors" if relative else "times", "caches": dict(zip(CACHE_NAMES, cache_sizes)), "busy_machine": found.busy,
            "networks": networks, "pairs": pairs, "ciphers": ciphers, "not_fitted": problems}


def _each(what, measured, entry_of, problems):
    entries = []
    for key, points in measured.items():
        try:
            entries.append(entry_of(key, points))
        except ValueError as error:
            problems.append(f"{' '.join([what, *filter(None, key)])}: {error}")
    return entries


def _network_entry(key, points, switch, relative):
    network, eager, rendezvous = hockney.fit_network(list(points.items()), switch, relative)
    return _lines_entry(key, network, eager, rendezvous)


def _pairs_entry(key, points, switch, relative):
    """alpha + beta p m (N20 6.2): a line over the bytes of all p pairs; the protocol goes by the size of one
    message."""
    eager = [(size * pairs, time) for (size, pairs), time in points.items() if switch and size < switch]
    rendezvous = [(size * pairs, time) for (size, pairs), time in points.items() if not switch or size >= switch]
    if not eager or not rendezvous:
        switch, eager, rendezvous = 0, eager or rendezvous, rendezvous or eager
    smallest = min(eager + rendezvous)[1]
    lines_of = [hockney.fit(part, relative, smallest) for part in (eager, rendezvous)]
    network = hockney.Network(*(line for line, _ in lines_of), switch)
    return _lines_entry(key, network, *(found for _, found in lines_of))


def _lines_entry(key, network, eager, rendezvous):
    return {"network": key[0], "mpi": key[1], "switch": network.switch, "eager": parameters.described("hockney", eager),
            "rendezvous": parameters.described("hockney", rendezvous)}


def _cipher_entry(key, points, cache_sizes, relative):
    every = [(size, threads, time) for (size, threads), time in sorted(points.items())]
    levels, fits = max_rate.fit_levels(every, caches.limits(*cache_sizes), relative)
    one = [(size, 2 * time) for size, threads, time in every if threads == 1]
    if len(one) < 2:
        raise ValueError("fewer than two sizes with one thread")
    _, both = hockney.fit(one, relative)
    threads = sorted({threads for _, threads, _ in every})
    return {"cipher": key[0], "module": key[1], "threads": threads, "both": parameters.described("hockney", both),
            "levels": [{"level": name, "below": None if math.isinf(below) else below, **parameters.described("max_rate", found)}
                       for (name, below, _), found in zip(levels.levels, fits)],
            "assumptions": ["sealing takes as long as opening: the mean of both was fitted",
                            *(["threads do not slow each other (B = A): one number of threads was measured"] if len(threads) == 1 else [])]}


def lines(content):
    """The parameters as tables."""
    found = []
    if content["busy_machine"]:
        found.append("THE MACHINE WAS BUSY when this was measured: the figures mean little.")
    found.append(f"Least squares of the {content['least_squares']}, with {100 * content['confidence']:.0f} % confidence intervals. "
                 f"Caches: L1 {table.readable(content['caches']['L1'])}, L2 {table.readable(content['caches']['L2'])}.")
    for name, title in (("networks", "Hockney, plain message"), ("pairs", "Hockney, messages of several pairs")):
        if content[name]:
            found += ["", f"{title}:", *aligned(_network_lines(content[name]))]
    if content["ciphers"]:
        found += ["", "Encrypting and decrypting with one thread (Hockney), and one of both with t threads (max-rate):",
                  *aligned(_cipher_lines(content["ciphers"]))]
    return found + [f"Assumed of {entry['cipher'] or 'the cipher'}: {line}" for entry in content["ciphers"] for line in entry["assumptions"]] + \
        [f"NOT FITTED: {problem}" for problem in content["not_fitted"]]


def _interval(entry, name, unit):
    interval = entry[f"{name}_interval"]
    return f"{entry[name] * unit:.4g}" + (f" ({interval[0] * unit:.4g} .. {interval[1] * unit:.4g})" if interval else "")


def _fit_columns(entry):
    return [str(entry["n"]), table.seconds(entry["rms_s"]), f"{entry['median_error_pct']:.1f} %", f"{entry['worst_error_pct']:.1f} %"]


def _network_lines(entries):
    found = [["network", "MPI", "protocol", "from", "alpha, us", "beta, ns a byte", "n", "rms", "median error", "worst"]]
    for entry in entries:
        for protocol in ("eager", "rendezvous") if entry["switch"] else ("rendezvous",):
            line = entry[protocol]
            start = table.readable(entry["switch"]) if protocol == "rendezvous" and entry["switch"] else ""
            found.append([entry["network"] or "-", entry["mpi"] or "-", protocol if entry["switch"] else "all", start,
                          _interval(line, "alpha_s", 1e6), _interval(line, "beta_s_per_byte", 1e9), *_fit_columns(line)])
    return found


def _cipher_lines(entries):
    found = [["cipher", "module", "model", "sizes", "alpha, us", "beta, ns a byte, or A, GB/s", "B, GB/s", "n", "rms", "median error", "worst"]]
    for entry in entries:
        both = entry["both"]
        found.append([entry["cipher"] or "-", entry["module"] or "-", "Hockney", "all", _interval(both, "alpha_s", 1e6),
                      _interval(both, "beta_s_per_byte", 1e9), "", *_fit_columns(both)])
        for level in entry["levels"]:
            sizes = f"{level['level']}, below {table.readable(int(level['below']))}" if level["below"] else level["level"]
            found.append([entry["cipher"] or "-", entry["module"] or "-", "max-rate", sizes, _interval(level, "alpha_s", 1e6),
                          _interval(level, "a_bytes_per_s", 1e-9), _interval(level, "b_bytes_per_s", 1e-9),
                          *_fit_columns(level)])
    return found
