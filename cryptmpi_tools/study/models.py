"""The models' figures: what `cryptmpi model` predicts from this run's measurements, against what this run measured.

The models are the package `model`; the study hands it measurements as files and reads its JSON. Where it is missing,
the figures say so.
"""

import importlib.util
import json
import subprocess
import sys

from cryptmpi_tools import literature
from cryptmpi_tools.lab.nodes import REPOSITORY
from cryptmpi_tools.study.figures import Drawing
from cryptmpi_tools.study.parts import ETHERNET, GCM, INFINIBAND, NAIVE, PLAIN
from cryptmpi_tools.study.saying import readable, signed

SHOWN = Drawing(y="us", line="series", panel="panel", y_title="microseconds")

# (paper, figure, title, models of the package, network, layers; None: all)
FIGURES = [
    ("N20", "10", "Ping-pong under the naive construction: measured, and predicted by the enhanced Hockney model", ("enhanced Hockney",), None,
     ("naive",)),
    ("N20", "11", f"Pairs of ranks: measured and predicted, {ETHERNET}", ("Hockney of pairs", "multiple pairs"), ETHERNET, None),
    ("N20", "12", f"Pairs of ranks: measured and predicted, {INFINIBAND}", ("Hockney of pairs", "multiple pairs"), INFINIBAND, None),
    ("C20", "3", "Ping-pong under the MPI layer: measured, and predicted by the model of (k,t)-chopping", ("(k,t)-chopping",), None,
     ("mpi",)),
    ("C20", "table II", "Threads that seal one message: measured, and predicted by the max-rate model", ("max-rate",), None, None),
]
NAIVE_MODULE = "openssl"  # cryptmpi_tools/study/programs/naive.c
ABOUT = {"N20": "Theirs: parameters from plain MPI and from ciphers alone, as here, predict what encrypted MPI then took.",
         "C20": "Theirs: the model that chooses k and t, on InfiniBand and 32 hardware threads."}
NONE_13 = ("N20", "13", "No such figure",
           "The text of N20 that we have ends with figure 12. N19's figure 13, pairs of 2 MB on InfiniBand, is in N20's figure 8.")
MISSING = "Missing: the package `model` (`cryptmpi model`) is not in this tree."


def built(rows, folder):
    """Figures as figures.built gives them, with a "drawing"; `rows`: all of the study's."""
    compared, why = errors(rows, folder)
    figures = [figure_of(*entry, compared, why) for entry in FIGURES]
    paper, number, title, text = NONE_13
    return figures + [{"paper": paper, "figure": number, "title": title, "about": "", "rows": [], "text": text, "paper_tables": [],
                       "paper_quotes": []}]


def figure_of(paper, number, title, models, network, layers, compared, why):
    mine = [row for row in compared if row["model"] in models and network in (None, row["network"]) and (not layers or row["layer"] in layers)]
    tables, quotes = literature.of_figure(paper, number)
    text = said(mine) if mine else why or "Not measured in this run: the models need ping-pong, pairs, and ciphers alone."
    return {"paper": paper, "figure": number, "title": title, "about": ABOUT[paper], "rows": [line for row in mine for line in drawn(row)],
            "text": text, "paper_tables": tables, "paper_quotes": quotes, "drawing": SHOWN}


def said(compared):
    """The median and the worst error of each model."""
    lines = []
    for name in dict.fromkeys(map(_what, compared)):
        mine = sorted((row for row in compared if _what(row) == name), key=lambda row: abs(row["error"]))
        worst = mine[-1]
        lines.append(f"{' '.join(filter(None, name))}: half of {len(mine)} predictions are within {100 * abs(mine[len(mine) // 2]['error']):.0f} %, "
                     f"the worst is off by {signed(100 * worst['error'])} at {readable(worst['size'])}")
    return f"{'; '.join(lines)}."


def _what(row):
    return row["model"], row["network"], row["layer"], row["cipher"]


def drawn(row):
    """A prediction as two rows: what was measured, what was predicted."""
    panel, name = (_of_pairs if row["pairs"] else _of_messages)(row)
    for series, seconds in (("measured", row["measured_s"]), ("predicted", row["predicted_s"])):
        yield {"panel": panel, "series": f"{name} {series}".strip(), "benchmark": row["model"], "network": row["network"] or None,
               "size": row["size"], "way": series, "us": round(seconds * 1e6, 4), "error_pct": round(100 * row["error"], 2),
               "cipher": row["cipher"] or None}


def _of_pairs(row):
    """(panel, line): plain and each way of encrypting apart."""
    return f"{row['network']}, {row['layer'] or 'plain'}", f"{row['pairs']} pair{'' if row['pairs'] == 1 else 's'}"


def _of_messages(row):
    panel = " ".join(filter(None, [row["network"], row["cipher"] if row["model"] == "max-rate" else ""]))
    return panel, " ".join(filter(None, [row["layer"], row["module"]])) + (f", {row['threads']}" if row["threads"] > 1 else "")


def errors(rows, folder):
    """(rows of `model error`, None or why there are none)."""
    if importlib.util.find_spec("cryptmpi_tools.model") is None:
        return [], MISSING
    files = measurements(rows, folder)
    if not files:
        return [], None
    parameters = folder / "parameters.json"
    try:
        run("fit", *files, "--output", parameters)
        fastest = modules(rows)
        return [row for row in run("error", parameters, *files)["rows"] if _of_its_module(row, fastest)], None
    except FAILURES as error:
        return [], f"The models failed: {why(error)}"


FAILURES = (subprocess.SubprocessError, ValueError, KeyError)  # of `run`


def why(error):
    """In one line why `run` failed."""
    return (getattr(error, "stderr", "") or "").strip()[-300:] or str(error)


def run(*words):
    """What a subcommand of `cryptmpi model` prints as JSON."""
    done = subprocess.run([sys.executable, "-m", "cryptmpi_tools.model", *map(str, words), "--json"], cwd=REPOSITORY, capture_output=True,
                          text=True, timeout=300, check=True)
    return json.loads(done.stdout)


def measurements(rows, folder):
    """Files in the format that `cryptmpi model` reads: one for each network and MPI, one for each cipher and module."""
    contents = [*(_network(rows, *place) for place in _places(rows)), *_ciphers(rows)]
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, content in enumerate(contents):
        files.append(folder / f"measured-{number}.json")
        files[-1].write_text(json.dumps(content, indent=1) + "\n")
    return files


def _places(rows):
    return dict.fromkeys((row["network"], row["mpi"]) for row in rows if row["experiment"] == "ping-pong" and row["way"] == PLAIN.name)


def _network(rows, network, mpi):
    mine = [row for row in rows if (row["network"], row["mpi"]) == (network, mpi)]
    ping_pong = [row for row in mine if row["experiment"] == "ping-pong"]
    layers = {NAIVE.name: "naive", f"mpi {GCM}": "mpi", f"channel {GCM}": "channel"}
    return {"network": network, "mpi": mpi, "cipher_name": GCM,
            "ping_pong": [{"size": row["size"], "us": row["us"]} for row in ping_pong if row["way"] == PLAIN.name],
            "sealed": [{"size": row["size"], "us": row["us"], "layer": layers[row["way"]]} for row in ping_pong if row["way"] in layers],
            "pairs": [pairs_of(row) for row in mine if row["experiment"] == "pairs" and row["way"] == PLAIN.name],
            "sealed_pairs": [{**pairs_of(row), "layer": layers[row["way"]]} for row in mine if row["experiment"] == "pairs" and row["way"] in layers]}


def pairs_of(row):
    return {"size": row["size"], "pairs": row["ranks"] // 2, "us": row["us"]}


def modules(rows):
    """{cipher: the module that is fastest at large sizes}: the one that our layers take."""
    found = {}
    for row in rows:
        if row["experiment"] == "cipher":
            best = found.get(row["cipher"])
            if best is None or (-row["size"], row["us"]) < (-best["size"], best["us"]):
                found[row["cipher"]] = row
    return {cipher: row["way"].split()[0] for cipher, row in found.items()}


def _ciphers(rows):
    """Of each cipher its fastest module, and the naive construction's. Several threads only seal; opening takes as
    long, as the papers assume."""
    for cipher, fastest in modules(rows).items():
        for module in dict.fromkeys([fastest, *([NAIVE_MODULE] if cipher == GCM else [])]):
            points = [{"size": row["size"], "seal_us": row["seal_us"], "open_us": row["open_us"]} for row in rows
                      if row["experiment"] == "cipher" and row["way"] == f"{module} {cipher}"]
            points += [{"size": row["size"], "threads": int(row["benchmark"].rsplit("-", 1)[1]), "seal_us": row["us"], "open_us": row["us"]}
                       for row in rows if module == fastest and row["experiment"] == "threads" and row["cipher"] == cipher
                       and row["benchmark"] != "threads-1"]
            if points:
                yield {"cipher_name": cipher, "module": module, "cipher": points}


def _of_its_module(row, fastest):
    """Whether a prediction is by the module that sealed."""
    if row["layer"] == NAIVE.name:
        return row["module"] == NAIVE_MODULE
    return row["module"] in ("", fastest.get(row["cipher"]))
