"""`cryptmpi model predict`: times of plain and encrypted messages by size, without running encrypted MPI."""

from pathlib import Path

from cryptmpi_tools.model import chopping, command, enhanced, pairs, plot, system, table
from cryptmpi_tools.tables import aligned

NAME, HELP = "predict", "times by size: plain, encrypted directly, pipelined, by threads; or of several pairs"
KB = 1 << 10
SIZES = tuple(1 << power for power in (0, 4, 8, 10, 12, 14, *range(16, 23)))
WAYS = (("plain", "plain"), ("direct", "direct"), ("pipelined", "pipelined (t = 1)"), ("threaded", "threaded (k = 1)"), ("chopped", "(k,t)-chopping"))


def add(parser):
    system.add_options(parser)
    parser.add_argument("--size", type=command.size, action="append", metavar="BYTES", help="as 1, 64K or 4M; may be repeated; default: 1 to 4M")
    parser.add_argument("--pairs", type=command.positive(int), action="append", metavar="N",
                        help="of messages in flight between so many pairs of ranks, plain and encrypted; may be repeated")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the times")
    command.add_json(parser)


def run(options):
    return of_pairs(options) if options.pairs else of_messages(options)


def of_messages(options):
    """One message at a time."""
    of = system.read(options)
    rows = [predicted(size, of) for size in options.size or SIZES]
    assumptions = [*of.assumptions, f"at most {of.threads} thread(s) a rank: {of.cores} hardware threads, {of.ranks_per_node} rank(s) a node, "
                   f"{chopping.COMMUNICATING_THREADS} kept for communication", "messages below 64 KB go whole, encrypted by one thread"]
    if options.plot:
        series = [(title, [(row["size"], row[f"{way}_s"]) for row in rows if row[f"{way}_s"] is not None]) for way, title in WAYS]
        plot.draw(options.plot, [(of.title, [(title, points) for title, points in series if points])], "message", "one-way time, s")
    command.show(options, {"system": of.title, "rows": rows, "assumptions": assumptions},
                 [of.title, *aligned(lines(rows)), *(f"Assumed: {line}" for line in assumptions)])
    return 0


def predicted(size, of):
    """Seconds of a message in each way that C20 knows; None where it does not go that way."""
    row = {"size": size, "plain_s": of.network.time(size), "direct_s": enhanced.time(size, of.network, of.cipher),
           "pipelined_s": None, "threaded_s": None, "chopped_s": None, "k": 1, "t": 1}
    if size >= chopping.SMALLEST:
        plan = chopping.best(size, of.network, of.cipher, of.threads)
        row.update(pipelined_s=chopping.best(size, of.network, of.cipher).seconds,
                   threaded_s=chopping.time(size, 1, of.threads, of.network, of.cipher), chopped_s=plan.seconds, k=plan.k, t=plan.t)
    return row


def of_pairs(options):
    """The multiple-pair model."""
    of = system.read(options, of_pairs=True)
    rows = [predicted_of_pairs(size, number, of) for number in options.pairs for size in options.size or SIZES]
    assumptions = [*of.assumptions, f"{pairs.IN_FLIGHT} messages in flight between each pair, all of which share the network",
                   "one thread a rank; all messages of a round are decrypted after the last one came"]
    if options.plot:
        series = [(f"{title}, {number} pair{'' if number == 1 else 's'}", [(row["size"], row[name]) for row in rows if row["pairs"] == number])
                  for number in dict.fromkeys(options.pairs) for name, title in (("plain_s", "plain"), ("encrypted_s", "encrypted"))]
        plot.draw(options.plot, [(of.title, series)], "message", "time of a message, s")
    command.show(options, {"system": of.title, "rows": rows, "assumptions": assumptions},
                 [of.title, *aligned(lines_of_pairs(rows)), *(f"Assumed: {line}" for line in assumptions)])
    return 0


def predicted_of_pairs(size, number, of):
    return {"size": size, "pairs": number, "plain_s": pairs.plain(size, number, of.network),
            "encrypted_s": pairs.encrypted(size, number, of.network, of.cipher)}


def lines_of_pairs(rows):
    return [["size", "pairs", "plain", "encrypted", "overhead"],
            *([table.readable(row["size"]), str(row["pairs"]), table.seconds(row["plain_s"]), table.seconds(row["encrypted_s"]),
               table.percent(row["encrypted_s"] / row["plain_s"] - 1)] for row in rows)]


def lines(rows):
    found = [["size", *(title for _, title in WAYS), "k", "t", "least overhead"]]
    for row in rows:
        times = [row[f"{way}_s"] for way, _ in WAYS]
        least = min(time for time in times[1:] if time is not None)
        found.append([table.readable(row["size"]), *("-" if time is None else table.seconds(time) for time in times), str(row["k"]), str(row["t"]),
                      table.percent(least / row["plain_s"] - 1)])
    return found
