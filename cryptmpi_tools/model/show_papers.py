"""`cryptmpi model papers`: what the papers quote, beside what their own parameters give."""

from dataclasses import asdict

from cryptmpi_tools.model import command, papers
from cryptmpi_tools.tables import aligned

NAME, HELP = "papers", "compute the papers' figures again from the parameters that they print"


def add(parser):
    command.add_json(parser)


def verdict(row):
    if row.agrees:
        return "agrees"
    return f"model, {100 * row.deviation:+.1f} %" if row.measured else f"differs by {100 * row.deviation:+.2f} %"


def run(options):
    found = papers.rows()
    lines = [["paper", "where", "figure", "quoted", "computed", "", "why"]]
    for row in found:
        unit = f" {row.unit}" if row.unit else ""
        lines.append([row.paper, row.where, row.what, f"{row.quoted:.{row.decimals}f}{unit}", f"{row.computed:.{row.decimals + 1}f}{unit}",
                      verdict(row), row.why])
    agreed, computed, measured = sum(row.agrees for row in found), sum(not row.measured for row in found), sum(row.measured for row in found)
    worst = max((row for row in found if row.measured), key=lambda row: abs(row.deviation))
    summary = [f"{agreed} of {computed} figures that the papers computed agree within their rounding; the others have a reason beside them.",
               f"{measured} predictions against what the papers measured: the farthest is {100 * worst.deviation:+.0f} % off ({worst.what})."]
    rows = [{**asdict(row), "agrees": row.agrees, "deviation": round(row.deviation, 6)} for row in found]
    command.show(options, {"rows": rows}, [*aligned(lines), "", *summary])
    return 0
