"""HPCC and LAMMPS with one rank on each of two nodes: what `cryptmpi model plan` predicts that sealing adds, beside
what it added.

It predicts from a sealed job's report, and from parameters fitted to this run's ping-pong and ciphers.
"""

import os
import subprocess

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.parts import PLAIN
from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.lab.stacks import stack
from cryptmpi_tools.study import models
from cryptmpi_tools.study.figures import Drawing
from cryptmpi_tools.study.parts import GCM, LAYERS, Part
from cryptmpi_tools.study.saying import FEW, method, short, signed, told_apart

EXPERIMENT = "applications"
QUICK_SECONDS = 20  # of each, in the quick study: some two to four turns
NODES = 2
SHOWN = Drawing(y="added_pct", x="program", y_title="added to plain, %", x_title="program", log_y=False)
FIGURE = "applications planned"
TITLE = "HPCC and LAMMPS: what sealing adds, predicted from their reports and measured"
ABOUT = ("Two ranks, each with a core and a node of its own. Measured is the time of a whole job less that of one that only starts and ends. "
         "Predicted is by `cryptmpi model plan`, from the messages that a sealed job's report counts, and from alpha, beta and the cipher's speed as "
         "fitted to this run's ping-pong and to ciphers alone: once with each message sealed, sent and opened, once with the large ones in chunks.")
WAYS = (("predicted, each message whole", "overhead_direct_pct"), ("predicted, large ones in chunks", "overhead_chopped_pct"))
COLUMNS = ["application", "network", "layer", "plain, s", "measured, %", "99 % interval, %", *(f"{way}, %" for way, _ in WAYS)]


def part(name, setting, network):
    """The quick study takes the work of the demo, and the MPI layer only: under the other, reports have no sizes of
    messages."""
    ways = (PLAIN, *(LAYERS if setting.full else LAYERS[:1]))
    return Part(name, network, ways, setting.mpi, NODES, 1, ((name, 0),), experiment=EXPERIMENT, repeats=1, options=(name,),
                most_seconds=0 if setting.full else QUICK_SECONDS)


def report_path(folder, program, network, mpi, layer):
    return folder / "reports" / f"{program}-{network}-{mpi}-{layer}.json"


class Planning:
    """Starts them, and keeps the report of the last sealed job."""

    def __init__(self, starter, folder):
        self.starter = starter
        self.folder = folder

    def start(self, part, way, applications):
        values = applications.start(part, way, as_in_the_demo=bool(part.most_seconds))
        job_us = values[f"{part.program} 0"]["us"]
        if way != PLAIN:
            self._keep_report(part, way, applications.folder_of(part) / "report.json")
        working_us = job_us - self._start_us(part, way)
        if working_us <= 0:
            raise LabError(f"{part.program} took no longer than a job that does nothing")
        return {f"{part.program} 0": {"us": [working_us], "job_us": [job_us], "cpu_us": [values[f"{part.program} 0"]["cpu_us"]]}}

    def _start_us(self, part, way):
        """Of a job that does nothing but to start and to end."""
        done = self.starter.run(part, way, [self.starter.program("pingpong", stack(part.mpi).mpicc), 1], timeout=self.starter.timeout)
        if not done.ok:
            raise LabError(f"a job that does nothing: {done.why()}")
        return done.seconds * 1e6

    def _keep_report(self, part, way, file):
        # With the key that signed it: under another one, such as the user's own, its parts would not be believed.
        env = {**os.environ, **self.starter.sealing(part.network, way).env()}
        done = subprocess.run([self.starter.command, "report", file, "--json"], env=env, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"cryptmpi report {file}: {done.stderr.strip()}")
        path = report_path(self.folder, part.program, part.network, part.mpi, way.layer)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(done.stdout)


# Predicted beside measured


def built(rows, folder, cores=None):
    """The figure, as figures.built gives them; `rows`: all of the study's. `cores` of the machine, which the nodes
    share."""
    cases, why = compared([row for row in rows if row["experiment"] == EXPERIMENT], rows, folder, cores or machine.cores())
    shown = [row for case in cases for row in drawn(case)]
    figure = {"paper": None, "figure": FIGURE, "title": TITLE, "about": ABOUT, "rows": shown, "text": said(cases, why) if cases else "Not measured.",
              "paper_tables": [], "paper_quotes": []}
    if cases:
        figure |= {"table": {"unit": "percent of the plain time", "columns": COLUMNS, "rows": [line(case) for case in cases]}, "drawing": SHOWN}
    return figure


def compared(mine, rows, folder, cores):
    """([{row, plain, plan}], why there are no predictions): each sealed row, the plain one, and what `model plan` says
    (None: nothing)."""
    plain = {(row["benchmark"], row["network"]): row for row in mine if row["way"] == PLAIN.name}
    pairs = [(row, plain.get((row["benchmark"], row["network"]))) for row in mine if row["way"] != PLAIN.name]
    pairs = [(row, base) for row, base in pairs if base]
    if not pairs:
        return [], None
    try:
        parameters = fitted(rows, folder / "models")
    except models.FAILURES as error:
        return [{"row": row, "plain": base, "plan": None} for row, base in pairs], models.why(error)
    cases, problems, known = [], [], models.modules(rows)
    module = ["--module", known[GCM]] if GCM in known else []
    for row, base in pairs:
        try:
            plan = planned(row, base, parameters, module, folder, max(cores // NODES, 1))
        except models.FAILURES as error:
            plan = None
            problems.append(models.why(error))
        cases.append({"row": row, "plain": base, "plan": plan})
    return cases, "; ".join(dict.fromkeys(problems)) or None


def fitted(rows, folder):
    """The file with parameters of relative errors: what an application sends is small, for the most part."""
    files = models.measurements(rows, folder)
    if not files:
        raise ValueError("neither ping-pong nor ciphers were measured in this run")
    path = folder / "parameters-relative.json"
    models.run("fit", *files, "--relative", "--output", path)
    return path


def planned(row, plain, parameters, module, folder, cores):
    """`module`: options that name that of the cipher."""
    report = report_path(folder, row["benchmark"], row["network"], row["mpi"], layer_of(row))
    return models.run("plan", parameters, "--network", row["network"], "--mpi", row["mpi"], "--cipher", GCM, *module, "--cores", cores,
                      "--report", report, "--seconds", plain["us"] / 1e6)


def layer_of(row):
    return row["way"].split()[0]


def drawn(case):
    """A case as rows: what was measured, what was predicted."""
    row = case["row"]
    layer = f", {layer_of(row)} layer"
    common = {"program": row["benchmark"].upper(), "benchmark": row["benchmark"], "size": 0, "network": row["network"], "mpi": row["mpi"],
              "ranks": row["ranks"], "cipher": row["cipher"]}
    yield {**row, **common, "way": f"measured{layer}"}
    for way, name in WAYS if case["plan"] else ():
        yield {**common, "way": f"{way}{layer}", "added_pct": round(case["plan"][name], 2)}


def interval(row):
    """Of what was added, in percent."""
    return [round(100 * (end - 1), 2) for end in row["ratio_interval"]]


def line(case):
    row = case["row"]
    predicted = [round(case["plan"][name], 2) if case["plan"] else None for _, name in WAYS]
    return [row["benchmark"].upper(), row["network"], layer_of(row), round(case["plain"]["us"] / 1e6, 2), row["added_pct"],
            " to ".join(f"{end:+.1f}" for end in interval(row)) if row["repeats"] >= FEW else "", *predicted]


def said(cases, why):
    """What the table shows."""
    missing = f"Without a prediction: {why}." if why else ""
    return " ".join(filter(None, [*map(sentence, cases), off([case for case in cases if case["plan"]]), missing,
                                  "The model takes every message to be waited for, and sealing to slow nothing else.",
                                  method([case["row"] for case in cases])]))


def sentence(case):
    row, plan = case["row"], case["plan"]
    text = (f"{row['benchmark'].upper()} under the {'MPI' if layer_of(row) == 'mpi' else layer_of(row)} layer on {row['network']}: sealing added "
            f"{signed(row['added_pct'])} to {short(case['plain']['us'] / 1e6)} s ({blur(row)})")
    if not plan:
        return f"{text}."
    whole, chunks = (signed(plan[name]) for _, name in WAYS)
    return (f"{text}; predicted {whole} with each message whole, {chunks} with large ones in chunks, for {plan['messages_sent']:,.0f} messages of "
            f"{plan['bytes_sent'] / 1e6:,.0f} MB in all.")


def blur(row):
    if row["repeats"] < FEW:
        return f"{row['repeats']} repeat{'' if row['repeats'] == 1 else 's'}, too few for an interval"
    low, high = interval(row)
    return f"99 % interval {signed(low)} to {signed(high)}" + ("" if told_apart(row) else ": not to be told from nothing")


def off(cases):
    """How far the predictions with chunks are from what was measured."""
    if not cases:
        return ""
    points = [case["plan"]["overhead_chopped_pct"] - case["row"]["added_pct"] for case in cases]
    ends = dict.fromkeys(f"{point:+.1f}" for point in (min(points), max(points)))
    return f"The predictions with chunks differ from what was measured by {' to '.join(ends)} points of a percent{inside(cases)}."


def inside(cases):
    """How many of those that have an interval lie in it."""
    judged = [case for case in cases if case["row"]["repeats"] >= FEW]
    lying = sum(low <= case["plan"]["overhead_chopped_pct"] <= high for case, (low, high) in ((case, interval(case["row"])) for case in judged))
    return f"; {lying} of {len(judged)} lie in its interval" if judged else ""
