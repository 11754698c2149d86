"""What the papers print (literature.json): parameters of their models, tables, and figures that their text quotes."""

import json
from pathlib import Path

PRINTED = json.loads(Path(__file__).with_suffix(".json").read_text())
TITLES, PARAMETERS = PRINTED["papers"], PRINTED["parameters"]


def of_figure(paper, figure):
    """(tables, quotes): what the paper prints of this figure or table."""
    return tuple([entry for entry in PRINTED[kind] if (entry["paper"], entry["figure"]) == (paper, figure)] for kind in ("tables", "quoted"))


def table(paper, figure):
    """{a line's name: {a column's: the value}}."""
    [found], _ = of_figure(paper, figure)
    return {row[0]: dict(zip(found["columns"][1:], row[1:])) for row in found["rows"]}


def quoted(paper, figure, what):
    [value] = [quote["value"] for quote in of_figure(paper, figure)[1] if quote["what"] == what]
    return value
