"""The page: every figure of the papers beside ours, in one file that a browser reads without a server."""

import base64
import html

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.table import readable

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
h1 { line-height: 1.2 } h2 { margin-top: 3rem; border-top: 2px solid #ddd; padding-top: 1rem; } h3 { margin-top: 2.5rem; }
img { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: 0.85rem; margin: 0.5rem 0; } td, th { border: 1px solid #ccc; padding: 0.15rem 0.5rem; }
td { text-align: right; } td:first-child, th { text-align: left; } .scroll { overflow-x: auto; }
.theirs { background: #f6f3ea; padding: 0.5rem 1rem; margin: 0.5rem 0; } .missing { color: #a33; } .about, nav { font-size: 0.9rem; color: #555; }
.busy { background: #fdd; padding: 0.5rem 1rem; font-weight: bold; }
nav a { margin-right: 0.8rem; white-space: nowrap; }
"""
COLUMNS = (("network", "network"), ("mpi", "MPI"), ("ranks", "ranks"), ("benchmark", "benchmark"), ("size", "size"), ("way", "way"),
           ("plan", "how it is cut"), ("us", "median, us"), ("communicating_us", "communicating, us"), ("mb_s", "MB/s"), ("added_pct", "added, %"),
           ("ratio_interval", "99 % interval of the ratio to plain"), ("repeats", "repeats"), ("starts", "in starts"),
           ("deviation_pct", "deviation, %"), ("interval_pct", "99 % interval of the mean, ± %"), ("rule_met", "rule met by"))
TITLES = {"N20": "Cryptographic libraries for MPI: measured and modelled", "C20": "CryptMPI", "E12": "ES-MPICH2", None: "Beyond the papers"}


def page(study, pictures):
    """`study` as in study.json; `pictures`: {a figure's "image": PNG bytes}."""
    figures = study["figures"]
    papers = list(dict.fromkeys(figure["paper"] for figure in figures))
    parts = [head(study), contents(figures)]
    for paper in papers:
        source = study["papers"].get(paper)
        parts.append(f"<h2>{escape(TITLES.get(paper, paper))}</h2>" + (f'<p class="about">{escape(paper)}: {escape(source)}</p>' if source else ""))
        parts += [section(figure, pictures) for figure in figures if figure["paper"] == paper]
    parts.append(end(study))
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>What encrypted MPI costs</title><style>{STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n")


def escape(text):
    return html.escape(str(text))


def head(study):
    facts, settings = study["machine"], study["settings"]
    busy = f'<p class="busy">{escape(machine.sentence(facts))}</p>' if facts["busy"] else f"<p>{escape(machine.sentence(facts)).capitalize()}.</p>"
    how = "quick" if not settings["full"] else "full"
    return (f"<h1>What encrypted MPI costs: the papers' figures, measured again</h1><p>The {how} study, {study['seconds'] / 60:.1f} minutes on "
            f"{escape(facts['cpu'])}, {facts['cores']} cores ({escape(', '.join(facts['flags']))}), {facts['memory_gib']} GiB, Linux "
            f"{escape(facts['kernel'])}; {escape(facts['cryptmpi'])}, commit {escape(facts['commit'])}; "
            f"{escape(', '.join(study['mpis'].values()))}; {escape(', '.join(study['modules']))}.</p>{busy}"
            f"<p>Every way of running a program is started in turn, in an order drawn anew each time: plain; sealed by each layer; under the "
            f"papers' naive construction (a random nonce, the whole message sealed, then sent); and, where it says so, under each plan of ours, and "
            f"plain through a tunnel. {escape(tuned(study))}Messages: {escape(study['method']['mpi'])}. Encryption alone: "
            f"{escape(study['method']['crypto'])}. Figures are medians, overheads are "
            f"ratios of medians; tags and nonces are not counted as payload. {escape(study['method']['repeats'])}</p>"
            "<p>Beside a number that a paper prints for its CryptMPI stands our MPI layer; beside one for its naive construction, or for a library "
            "in it (BoringSSL), our naive construction.</p>")


def tuned(study):
    """What `cryptmpi tune` found."""
    return "".join(f"Tuning for {one['network']} under {study['mpis'].get(one['mpi'], one['mpi'])} found: {one['words']}. "
                   for one in study["profiles"])


def anchor(figure):
    return "-".join(f"{figure['paper'] or 'ours'} {figure['figure']}".lower().split())


def name_of(figure):
    number = figure["figure"]
    return f"{figure['paper']}, {'figure ' + number if number.isdigit() else number}" if figure["paper"] else number


def contents(figures):
    return "<nav>" + " ".join(f'<a href="#{anchor(figure)}">{escape(name_of(figure))}</a>' for figure in figures) + "</nav>"


def section(figure, pictures):
    parts = [f'<section id="{anchor(figure)}"><h3>{escape(name_of(figure))}: {escape(figure["title"])}</h3>']
    if figure["about"]:
        parts.append(f'<p class="about">{escape(figure["about"])}</p>')
    picture = pictures.get(figure.get("image"))
    if picture:
        data = base64.b64encode(picture).decode()
        parts.append(f'<img alt="{escape(figure["title"])}" src="data:image/png;base64,{data}">')
    parts.append(f'<p{"" if figure["rows"] else " class=missing"}>{escape(figure["text"])}</p>')
    own = figure.get("table")
    if own:
        parts.append(f"<p>Ours, in {escape(own['unit'])}:</p>" + table([own["columns"], *([shown(value) for value in line] for line in own["rows"])]))
    parts.append(theirs(figure))
    if figure["rows"]:
        parts.append(f"<details><summary>All {len(figure['rows'])} rows</summary>{own_table(figure['rows'])}</details>")
    return "".join(parts) + "</section>"


def theirs(figure):
    """What the paper prints; its curves are in the paper."""
    tables, quotes = figure["paper_tables"], figure["paper_quotes"]
    parts = [f"<p>{escape(one['title'])}, in {escape(one['unit'])} ({escape(one['source'])}):</p>" + table([one["columns"], *one["rows"]])
             for one in tables]
    if quotes:
        lines = [[one["what"], f"{one['value']} {one['unit']}", _with_unit(one), one["source"]] for one in quotes]
        parts.append("<p>The paper's text says:</p>" + table([["", "theirs", "ours", "where"], *lines]))
    if not parts and figure["paper"]:
        parts.append("<p>The paper prints no numbers of this in its text.</p>")
    return f'<div class="theirs">{"".join(parts)}</div>' if parts else ""


def _with_unit(quote):
    ours = quote.get("ours")
    return f"{shown(float(ours))} {quote['unit']}" if isinstance(ours, (int, float)) else ""


def table(lines):
    first, *others = lines
    return ('<div class="scroll"><table><tr>' + "".join(f"<th>{escape(cell)}</th>" for cell in first) + "</tr>"
            + "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in others) + "</table></div>")


def own_table(rows):
    columns = [(key, title) for key, title in COLUMNS if any(row.get(key) is not None for row in rows)]
    return table([[title for _, title in columns], *([cell(row, key) for key, _ in columns] for row in rows)])


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


def end(study):
    lines = "".join(f"<li>{escape(line)}</li>" for line in study["not_measured"]) or "<li>nothing</li>"
    return f"<h2>Not measured</h2><ul>{lines}</ul><p class=about>Settings: {escape(study['settings'])}</p>"
