"""The page: every figure of the papers beside ours, in one file that a browser reads without a server. Its text is
page.html.j2."""

import base64
from pathlib import Path

import jinja2

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.table import readable

COLUMNS = (("network", "network"), ("mpi", "MPI"), ("ranks", "ranks"), ("benchmark", "benchmark"), ("size", "size"), ("way", "way"),
           ("plan", "how it is cut"), ("us", "median, us"), ("communicating_us", "communicating, us"), ("mb_s", "MB/s"), ("added_pct", "added, %"),
           ("ratio_interval", "99 % interval of the ratio to plain"), ("repeats", "repeats"), ("starts", "in starts"),
           ("deviation_pct", "deviation, %"), ("interval_pct", "99 % interval of the mean, ± %"), ("rule_met", "rule met by"))
TITLES = {"N20": "Cryptographic libraries for MPI: measured and modelled", "C20": "CryptMPI", "E12": "ES-MPICH2", None: "Beyond the papers"}


def page(study, pictures):
    """`study` as in study.json; `pictures`: {a figure's "image": PNG bytes}."""
    papers = {}
    for figure in study["figures"]:
        papers.setdefault(figure["paper"], []).append(figure)
    return TEMPLATES.get_template("page.html.j2").render(study=study, papers=papers, titles=TITLES, pictures=pictures)


def anchor(figure):
    return "-".join(f"{figure['paper'] or 'ours'} {figure['figure']}".lower().split())


def name_of(figure):
    number = figure["figure"]
    return f"{figure['paper']}, {'figure ' + number if number.isdigit() else number}" if figure["paper"] else number


def quoted(quote):
    """A line of the table of what the paper's text says."""
    ours = quote.get("ours")
    beside = f"{shown(float(ours))} {quote['unit']}" if isinstance(ours, (int, float)) else ""
    return [quote["what"], f"{quote['value']} {quote['unit']}", beside, quote["source"]]


def columns_of(rows):
    """{key: title} of what the rows have."""
    return {key: title for key, title in COLUMNS if any(row.get(key) is not None for row in rows)}


def cells(row, keys):
    return [cell(row, key) for key in keys]


def cell(row, key):
    value = row.get(key)
    if value is None:
        return "no" if key == "rule_met" else ""
    if key == "size":
        return readable(value)
    return " to ".join(f"{end:.3f}" for end in value) if isinstance(value, list) else shown(value)


def shown(value):
    """Four digits of what has more."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else value


TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True,
                               keep_trailing_newline=True)
TEMPLATES.filters.update(anchor=anchor, name=name_of, sentence=machine.sentence, quoted=quoted, columns=columns_of, cells=cells, shown=shown,
                         base64=lambda data: base64.b64encode(data).decode())
