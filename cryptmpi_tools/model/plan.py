"""`cryptmpi model plan`: what encryption would cost an application, from what its ranks send and how long it runs
plain."""

from dataclasses import dataclass
from pathlib import Path

from cryptmpi_tools.model import chopping, command, enhanced, system, table
from cryptmpi_tools.tables import aligned

NAME, HELP = "plan", "expected overhead of an application"


@dataclass(frozen=True)
class Traffic:
    """What one rank sends to and receives from other nodes: [(bytes of a message, how many)]."""

    node: str
    sent: tuple
    received: tuple


def add(parser):
    system.add_options(parser)
    parser.add_argument("--report", type=Path, metavar="FILE", help="job report of the application (`cryptmpi run --report FILE`)")
    parser.add_argument("--messages", type=_messages, action="append", metavar="SIZE:COUNT",
                        help="instead of --report: what every rank sends to other nodes, and receives as much of; may be repeated")
    parser.add_argument("--seconds", type=command.positive(float), help="how long the application runs plain; "
                        "without it, the overhead is that of its communication alone")
    command.add_json(parser)


def _messages(word):
    size, _, count = word.partition(":")
    return command.size(size), command.positive(float)(count)


def run(options):
    if (options.report is None) == (options.messages is None):
        raise command.ModelError("what the application sends: give either --report FILE or --messages SIZE:COUNT")
    of, assumptions = system.read(options), []
    if options.report:
        traffic, per_node, about = from_report(options.report)
        of = system.System(of.title, of.network, of.cipher, of.cores, per_node, of.assumptions)
        assumptions.append(about)
    else:
        each = tuple(options.messages)
        traffic = [Traffic("a node", each, each)] * of.ranks_per_node
    found = planned(traffic, of, options.seconds)
    assumptions += assumed(of, options.seconds)
    command.show(options, {"system": of.title, **found, "assumptions": assumptions}, lines(of, found, assumptions))
    return 0


def from_report(path):
    """([Traffic] of the ranks, the most ranks of a node, what the report does not tell), from a job report.

    Under the MPI layer a report has the messages of each process by size; under the channel layer only bytes and
    records, of which each counts as a message of the mean size of its rank's. Raises ModelError.
    """
    report = command.read_json(path)
    try:
        ranks = [part for part in report["processes"] if part["rank"] >= 0]
        traffic = [Traffic(part["node"], *(_messages_of(part, way) for way in ("sent", "received"))) for part in ranks]
        layer = report["layer"]
    except (KeyError, TypeError) as error:
        raise command.ModelError(f"{path} is not a job report of CryptMPI (cryptmpi run --report FILE): {error!r}") from error
    if not any(rank.sent or rank.received for rank in traffic):
        raise command.ModelError(f"{path}: no rank sealed anything, so nothing tells what it sends to other nodes")
    nodes = [rank.node for rank in traffic]
    if not report.get("complete", False):
        raise command.ModelError(f"{path} is not complete: ranks are missing, so what they send is not known; run the job to its end")
    about = ("the report counts messages, and blocks of collective operations, by powers of two: each is taken to have the mean size of its class"
             if layer == "mpi" else "the report counts records and bytes of each rank, not sizes: each record (a piece of a stream, 128 KB at most) "
             "is taken as a message of the rank's mean size")
    return traffic, max(nodes.count(node) for node in set(nodes)), about


def _messages_of(part, way):
    """((bytes, how many), ...)"""
    if part.get(f"sizes_{way}"):
        return tuple((of["bytes"] / of["messages"], of["messages"]) for of in part[f"sizes_{way}"])
    records = part[f"sealed_records_{way}"]
    return ((part[f"sealed_bytes_{way}"] / records, records),) if records else ()


def planned(traffic, of, seconds=None):
    """Seconds and shares that encryption adds, for the busiest node: nothing hidden, and (k,t)-chopping of large
    messages (C20 IV).

    A message costs its sender half and its receiver half of what it adds to a ping-pong. Ranks that have a core each
    work at the same time; those of a node that has fewer cores share them.
    """
    plain, direct, chopped = (_busiest(traffic, of, cost) for cost in (_plain, _direct, _chopped))
    base = seconds or plain
    sent = [message for rank in traffic for message in rank.sent]
    return {"ranks": len(traffic), "ranks_per_node": of.ranks_per_node, "cores": of.cores, "messages_sent": sum(count for _, count in sent),
            "bytes_sent": sum(size * count for size, count in sent), "plain_s": seconds, "communication_s": plain,
            "added_direct_s": direct, "added_chopped_s": chopped, "overhead_direct_pct": 100 * direct / base,
            "overhead_chopped_pct": 100 * chopped / base,
            "of": "run time" if seconds else "communication"}


def _plain(size, of):
    return of.network.time(size)


def _direct(size, of):
    return enhanced.time(size, of.network, of.cipher) - _plain(size, of)


def _chopped(size, of):
    if size < chopping.SMALLEST:
        return _direct(size, of)
    return min(_direct(size, of), chopping.best(size, of.network, of.cipher, of.threads).seconds - _plain(size, of))


def _busiest(traffic, of, cost):
    nodes = {}
    for rank in traffic:
        nodes.setdefault(rank.node, []).append(sum(count * cost(size, of) / 2 for size, count in (*rank.sent, *rank.received)))
    return max(max(max(ranks), sum(ranks) / of.cores) for ranks in nodes.values())


def assumed(of, seconds):
    return [*of.assumptions, "every message is waited for: what an application does meanwhile would hide a part",
            "the slowest node decides; computing is not slowed by encryption",
            f"large messages in chunks: at most {of.threads} thread(s) a rank ({of.cores} hardware threads, {of.ranks_per_node} rank(s) a node)",
            *(["--seconds was not given: the overhead is that of the communication alone, as if the application did nothing else"]
              if not seconds else [])]


def lines(of, found, assumptions):
    rows = [["", "added", f"of the {found['of']}"],
            ["each message encrypted, sent, decrypted", table.seconds(found["added_direct_s"]), table.percent(found["overhead_direct_pct"] / 100)],
            ["large ones in chunks, (k,t)-chopping", table.seconds(found["added_chopped_s"]), table.percent(found["overhead_chopped_pct"] / 100)]]
    plain = f"; {table.seconds(found['plain_s'])} plain" if found["plain_s"] else ""
    return [of.title, f"{found['ranks']} rank(s) send {found['messages_sent']:,.0f} messages of {found['bytes_sent']:,.0f} bytes in all to other "
            f"nodes; communication of the busiest node by itself {table.seconds(found['communication_s'])}{plain}", "", *aligned(rows), "",
            *(f"Assumed: {line}" for line in assumptions)]
