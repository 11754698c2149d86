"""The papers' figures and tables, each with the rows of ours that stand beside it, how they are drawn, and what they
show.

The papers' machines were clusters; here nodes are network namespaces of one machine. What stands for a network of
theirs is the veth of its rate.
"""

from dataclasses import dataclass
from typing import Callable

from cryptmpi_tools import literature
from cryptmpi_tools.study import saying
from cryptmpi_tools.study.parts import BARE, ETHERNET, INFINIBAND, KB, MB, REDUCTIONS


@dataclass(frozen=True)
class Drawing:
    """Names of the rows' columns: a panel for each value of `panel`, a line for each of `line`."""

    y: str = "mb_s"
    x: str = "size"
    line: str = "way"
    panel: str = "network"
    y_title: str = "MB/s"
    x_title: str = "message"
    log_y: bool = True


@dataclass(frozen=True)
class Figure:
    paper: str   # key of literature.TITLES; "": ours alone
    figure: str  # "3", "table II"
    title: str
    rows: Callable       # (all rows) -> the figure's
    drawing: Drawing
    say: Callable        # (rows) -> what they show
    about: str = ""      # what theirs was measured on, where ours differs
    table: Drawing | None = None  # what a table of ours has; a figure that is called a table has one of what is drawn


TIME = Drawing(y="us", y_title="microseconds")
EACH_TIME = Drawing(y="us", panel="benchmark", y_title="microseconds")  # networks and MPIs apart
ADDED = Drawing(y="added_pct", y_title="added to plain, %", log_y=False)


# Choosing rows


def of(experiment, network=None, benchmarks=(), sizes=(), least=0, ciphers=(), ways=()):
    """A chooser of rows; () and None leave everything."""
    def choose(rows):
        return [row for row in rows if row["experiment"] == experiment and (network is None or row["network"] == network)
                and (not benchmarks or row["benchmark"] in benchmarks) and (not sizes or row["size"] in sizes) and row["size"] >= least
                and (not ciphers or row["cipher"] in ciphers) and (not ways or row["way"] in ways)]
    return lambda rows: with_throughput(choose(rows))


def both(*choosers):
    return lambda rows: [row for chooser in choosers for row in chooser(rows)]


def with_throughput(rows):
    """MB/s of 10^6 bytes, tags and nonces not counted; of pairs and flows, of all of them together, and how many they
    are."""
    made = []
    for row in rows:
        together = (row["ranks"] or 2) // 2 if row["experiment"] in ("pairs", "flows") else 1
        more = {"mb_s": round(together * row["size"] / row["us"], 4)} if row["us"] > 0 and row["size"] else {}
        if row["experiment"] in ("pairs", "flows"):
            more["pairs"] = together
            more["size_name"] = saying.readable(row["size"])
        if row["experiment"] == "threads":
            more["threads"] = int(row["benchmark"].rsplit("-", 1)[1])
        if "-" in row["benchmark"] and row["experiment"].startswith("stencil"):
            more["load"] = f"{row['benchmark'].rsplit('-', 1)[1]} % computing"
        made.append({**row, **more})
    return made


def nas(network):
    return lambda rows: [{**row, "program": row["benchmark"].removeprefix("nas-"), "seconds": round(row["us"] / 1e6, 4)}
                         for row in of("nas", network)(rows)]


def shared(experiments):
    """Rows of programs that tell communication from computing: Tc and Te of a step, in us."""
    def choose(rows):
        return [{**row, "program": f"{row['benchmark']} {saying.readable(row['size'])}"} for row in rows
                if row["experiment"] in experiments and "communicating_us" in row]
    return choose


# The papers' figures


def ping_pongs(paper, small, large, network, about):
    figures = [Figure(paper, small, f"One-way throughput of small messages, {network}", of("ping-pong", network, sizes=(1, 16, 256, KB)), Drawing(),
                      saying.added, about)] if small else []
    return figures + [Figure(paper, large, f"Ping-pong throughput of medium and large messages, {network}", of("ping-pong", network, least=4 * KB),
                             Drawing(panel="mpi"), saying.added, about)]


def collective_figures(numbers, network, about):
    bcast, alltoall, overheads = numbers
    chosen = of("collectives", network, ("bcast", "alltoall"), (1, 16 * KB, 4 * MB))
    return [Figure("N20", bcast, f"Bcast, {network}", of("collectives", network, ("bcast",), (1, 16 * KB, 4 * MB)), TIME, saying.added, about),
            Figure("N20", alltoall, f"Alltoall, {network}", of("collectives", network, ("alltoall",), (1, 16 * KB, 4 * MB)), TIME, saying.added,
                   about),
            Figure("N20", overheads, f"What is added to Bcast and Alltoall, {network}", chosen,
                   Drawing(y="added_pct", y_title="added to plain, %", panel="benchmark", log_y=False), saying.added, about)]


def pair_figure(paper, number, network, sizes, about):
    return Figure(paper, number, f"Pairs of ranks, 64 messages in flight each, {network}", of("pairs", network, sizes=sizes),
                  Drawing(x="pairs", panel="size_name", x_title="pairs"), saying.pairs, about)


N20_ETHERNET = f"Theirs: 8 nodes of 8 cores, 10 Gb/s Ethernet, MPICH 3.2.1. Ours: two nodes of one machine, {ETHERNET}."
N20_INFINIBAND = f"Theirs: the same nodes, 40 Gb/s InfiniBand, MVAPICH2 2.3. Ours: two nodes of one machine, {INFINIBAND}, TCP."
C20_FIRST = f"Theirs: two nodes of 16 cores, 100 Gb/s InfiniBand. Ours: two nodes of one machine that share its cores, {BARE}: copying memory."
C20_SECOND = f"Theirs: two nodes of 28 hardware threads, 100 Gb/s Omni-Path. Ours: two nodes of one machine that share its cores, {INFINIBAND}."
E12_ABOUT = f"Theirs: 6 nodes of one core, 1 Gb/s Ethernet, AES and 3DES without any authentication. Ours: two nodes of one machine, {BARE}."
BAR = Drawing(y="seconds", x="program", y_title="seconds", x_title="program", log_y=False)
PLANS = ("Theirs: figure 3 is the model that chooses k chunks and t threads. Ours, by profiles and settings: direct (one thread; messages up to "
         "256 KB whole, longer ones in pieces of up to 1 MB, one after the other), pipelined (one thread, the built-in plan), threaded (the built-in "
         "plan, by several threads), tuned (the plan that `cryptmpi tune` found). Beside them plain and the papers' naive construction.")
# Figures of ours that are shown after one of a paper's: its number, and a little more.
BESIDE = {("C20", "plans"): 3.1, ("C20", "plans of streams"): 3.2}
CIPHERS = Drawing(panel="cipher", y_title="sealing and opening, MB/s")

FIGURES = [
    Figure("N20", "2", "Sealing and then opening on one core, AES-256-GCM", of("cipher", ciphers=("AES-256-GCM",)), CIPHERS, saying.ciphers,
           "Theirs: Xeon E5-2620 v4 at 2.1 GHz, libraries built by GCC 4.8.5. Ours: each module that is installed."),
    *ping_pongs("N20", "table I", "3", ETHERNET, N20_ETHERNET),
    pair_figure("N20", "4", ETHERNET, (1, 16 * KB, 2 * MB), N20_ETHERNET),
    *collective_figures(("table II", "table III", "5"), ETHERNET, N20_ETHERNET + " 4 ranks, as theirs 64."),
    Figure("N20", "table IV", f"NAS parallel benchmarks, {ETHERNET}", nas(ETHERNET), BAR, saying.nas, N20_ETHERNET),
    Figure("N20", "6", "Sealing and then opening on one core, every cipher of every module", of("cipher"), CIPHERS, saying.ciphers,
           "Theirs: figure 2 again, built by MVAPICH's compiler. Ours are built by one compiler: all other ciphers instead."),
    *ping_pongs("N20", "table V", "7", INFINIBAND, N20_INFINIBAND),
    pair_figure("N20", "8", INFINIBAND, (1, 16 * KB, 2 * MB), N20_INFINIBAND),
    *collective_figures(("table VI", "table VII", "9"), INFINIBAND, N20_INFINIBAND + " 4 ranks, as theirs 64."),
    Figure("N20", "table VIII", f"NAS parallel benchmarks, {INFINIBAND}", nas(INFINIBAND), BAR, saying.nas, N20_INFINIBAND),
    Figure("C20", "1", f"Flows of 1 MB messages: plain, sealed, and through a tunnel, {ETHERNET}", of("flows", ETHERNET),
           Drawing(x="pairs", x_title="flows", log_y=False), saying.flows,
           f"Theirs: IPsec in the kernel, 10 Gb/s Ethernet. Ours: WireGuard (wireguard-go) and IPsec (strongSwan's "
           f"kernel-libipsec) in user space, {ETHERNET}."),
    Figure("C20", "2", f"Ping-pong plain and under the naive construction, {INFINIBAND}", of("ping-pong", INFINIBAND, ways=("plain", "naive")),
           Drawing(panel="mpi"), saying.added, N20_INFINIBAND.replace("Theirs: the same nodes,", "Theirs:") + " AES-128-GCM; ours AES-256-GCM."),
    Figure("C20", "4", "Threads that seal one message together, AES-128-GCM", of("threads", ciphers=("AES-128-GCM",)),
           Drawing(line="threads", panel="cipher", y_title="sealing, MB/s"), saying.threads, "Theirs: 16 cores with 32 hardware threads, BoringSSL."),
    Figure("C20", "5", "Threads that seal one message together, other ciphers", of("threads", ciphers=("AES-256-GCM", "AEGIS-128X4")),
           Drawing(line="threads", panel="cipher", y_title="sealing, MB/s"), saying.threads,
           "Theirs: figure 4 on an older machine of 28 hardware threads. Ours: the other ciphers on this machine."),
    Figure("C20", "plans", "Our plans: one message at a time", of("plans"), ADDED, saying.plans, PLANS, EACH_TIME),
    Figure("C20", "plans of streams", "Our plans: 64 messages in flight", of("plans-streaming"), ADDED, saying.plans, PLANS, EACH_TIME),
    *ping_pongs("C20", "", "6", BARE, C20_FIRST),
    pair_figure("C20", "7", BARE, (64 * KB, 4 * MB), C20_FIRST),
    *ping_pongs("C20", "", "8", INFINIBAND, C20_SECOND),
    pair_figure("C20", "9", INFINIBAND, (64 * KB, 4 * MB), C20_SECOND),
    Figure("C20", "10", "2D stencil: time of communication in a step", of("stencil-2d"),
           Drawing(y="communicating_us", panel="load", y_title="communicating, us a step"), saying.stencil,
           "Theirs: 784 ranks on 112 nodes. Ours: 4 ranks on two nodes of one machine: more of them than cores wait for each other."),
    Figure("C20", "table III", "Times of communication (Tc) and of all (Te) in applications", shared(("n-body", "stencil-2d")),
           Drawing(y="communicating_us", x="program", x_title="program and message", y_title="communicating, us a step",
                   log_y=False), saying.shares,
           "Theirs: NAS class D on 784 ranks. Ours: n-body on a ring and the 2D stencil, 4 ranks; NAS stands with tables IV and VIII of N20."),
    Figure("E12", "8", "Host overhead after Sandia's method", of("host-overhead", BARE), Drawing(y="us", panel="benchmark", y_title="microseconds"),
           saying.host_overhead, E12_ABOUT),
    Figure("E12", "9", "Single and parallel transfers as in the Intel MPI Benchmarks",
           both(of("ping-pong", BARE), of("pingping", BARE), of("chain", BARE)), Drawing(y="us", panel="benchmark", y_title="microseconds"),
           saying.added, E12_ABOUT),
    Figure("E12", "10", "Collective operations that move data, 4 ranks", of("collectives", BARE),
           Drawing(y="us", panel="benchmark", y_title="microseconds"), saying.added, E12_ABOUT),
    Figure("E12", "11", "Collective operations that reduce, 4 ranks", of("reductions", BARE, REDUCTIONS),
           Drawing(y="us", panel="benchmark", y_title="microseconds"), saying.added, E12_ABOUT + " The naive construction has no reductions."),
    Figure("E12", "12", "Window: creating, fencing and freeing one, 4 ranks", of("window", BARE), TIME, saying.added, E12_ABOUT),
    Figure("C20", "3D stencil", "3D stencil: time of communication in a step (no figure of theirs)", of("stencil-3d"),
           Drawing(y="communicating_us", panel="load", y_title="communicating, us a step"), saying.stencil, ""),
    Figure("C20", "4D stencil", "4D stencil: time of communication in a step (no figure of theirs)", of("stencil-4d"),
           Drawing(y="communicating_us", panel="load", y_title="communicating, us a step"), saying.stencil, ""),
    *(Figure("", name, title, both(*(of(experiment) for experiment in experiments)), Drawing(y="us", panel="benchmark", y_title="microseconds"),
             saying.added, "Programs of others, plain and sealed.")
      for name, title, experiments in (("OSU", "OSU micro-benchmarks", ("osu",)), ("IMB", "Intel MPI Benchmarks", ("imb",)),
                                       ("NetPIPE", "NetPIPE", ("netpipe",)), ("applications", "HPCC and LAMMPS, whole jobs", ("hpcc", "lammps")))),
]


def ours_of(quote, rows):
    """Our number beside one that a paper prints, in its unit; None where there is none. The quote says which row and
    column it is."""
    wanted = dict(quote.get("ours", {}))
    column = wanted.pop("column", None)
    row = next((row for row in rows if column and all(row.get(name) == value for name, value in wanted.items())), {})
    if column == "gb_s":
        return round(row["mb_s"] / 1000, 4) if "mb_s" in row else None
    return row.get(column)


def varying(drawing, rows):
    """(row) -> the words that tell it from rows of other networks, MPIs or numbers of ranks, as far as there are
    several among the rows."""
    own = {drawing.panel, drawing.x, drawing.line} | ({"ranks"} if drawing.x == "pairs" else set())
    columns = [column for column in ("network", "mpi", "ranks") if column not in own and len({row.get(column) for row in rows}) > 1]
    return lambda row: [f"{row[column]} ranks" if column == "ranks" else str(row[column]) for column in columns if row.get(column) is not None]


def own_table(drawing, rows):
    """A line for each way and a column for each place of the x axis, as the papers' tables are; None where rows would
    share a cell."""
    more = varying(drawing, rows)

    def line_of(row):
        return ", ".join([str(row[drawing.line]), *more(row)])

    places = list(dict.fromkeys(row[drawing.x] for row in rows))
    lines = list(dict.fromkeys(map(line_of, rows)))
    cells = {(line_of(row), row[drawing.x]): row.get(drawing.y) for row in rows}
    if len(cells) != len(rows):
        return None
    names = [saying.readable(place) if drawing.x == "size" else str(place) for place in places]
    return {"unit": drawing.y_title, "columns": [drawing.line, *names],
            "rows": [[line, *(cells.get((line, place)) for place in places)] for line in lines]}


def built(figure, rows):
    """The figure as study.json has it, without its picture. Without rows it says what is missing."""
    chosen = figure.rows(rows)
    tables, quotes = literature.of_figure(figure.paper, figure.figure)
    quotes = [{**quote, "ours": ours_of(quote, chosen)} for quote in quotes]
    shown = figure.table or (figure.drawing if figure.figure.startswith("table") else None)
    table = {"table": own_table(shown, chosen)} if chosen and shown else {}
    return {"paper": figure.paper or None, "figure": figure.figure, "title": figure.title, "about": figure.about, "rows": chosen, **table,
            "text": figure.say(chosen) if chosen else "Not measured in this run.", "paper_tables": tables, "paper_quotes": quotes}
