"""`cryptmpi model scale`: collective operations and key agreement at numbers of ranks that nobody has at hand."""

from dataclasses import asdict
from pathlib import Path

from cryptmpi_tools.model import agreement, collectives, command, plot, system, table
from cryptmpi_tools.tables import aligned

NAME, HELP = "scale", "collective operations and key agreement at 64 to 10^6 ranks"
RANKS = (64, 1024, 16384, 1_000_000)
MOST_RANKS = 1 << 24  # of the protocol
SIZES = (8, 16 << 10)


def add(parser):
    system.add_options(parser)
    parser.add_argument("--ranks", type=command.positive(int), action="append", help=f"may be repeated; default: {', '.join(map(str, RANKS))}")
    parser.add_argument("--size", type=command.size, action="append", metavar="BYTES",
                        help="of a rank's message or block, may be repeated; default: 8 and 16K")
    parser.add_argument("--operation", choices=list(collectives.OPERATIONS), action="append", help="may be repeated; default: all")
    parser.add_argument("--x25519", type=command.positive(float), default=agreement.Costs.x25519 * 1e6, metavar="US", help="default: %(default)g")
    parser.add_argument("--rsa-encrypt", type=command.positive(float), default=agreement.Costs.rsa_encrypt * 1e6, metavar="US",
                        help="default: %(default)g")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the times")
    command.add_json(parser)


def run(options):
    of = system.read(options)
    all_ranks = sorted(set(options.ranks or RANKS))
    if not 2 <= all_ranks[0] <= all_ranks[-1] <= MOST_RANKS:
        raise command.ModelError(f"--ranks: 2 to {MOST_RANKS}")
    costs = agreement.Costs(x25519=options.x25519 * 1e-6, rsa_encrypt=options.rsa_encrypt * 1e-6)
    operations = [operated(name, size, ranks, of) for name in options.operation or collectives.OPERATIONS
                  for size in options.size or SIZES for ranks in all_ranks]
    agreements = [agreed(ranks, of, costs) for ranks in all_ranks]
    assumptions = assumed(of, costs)
    if options.plot:
        plot.draw(options.plot, panels(operations, agreements), "ranks", "s", bytes_on_x=False)
    command.show(options, {"system": of.title, "operations": operations, "agreements": agreements, "assumptions": assumptions},
                 [of.title, "", *aligned(operation_lines(operations)), "", "Key agreement in MPI_Init:",
                  *aligned(agreement_lines(agreements)), "", *(f"Assumed: {line}" for line in assumptions)])
    return 0


def operated(name, size, ranks, of):
    found = collectives.OPERATIONS[name](size, ranks, of.network, of.cipher)
    return {"operation": name, "size": size, "ranks": ranks, "algorithm": found.algorithm, "plain_s": found.plain, "each_hop_s": found.each_hop,
            "end_to_end_s": found.end_to_end}


def agreed(ranks, of, costs):
    found = agreement.tree(ranks, of.network, of.cipher, costs)
    return {"ranks": ranks, "seconds": found.seconds, **asdict(found), "rsa_s": agreement.rsa(ranks, of.network, costs)}


def assumed(of, costs):
    return [*of.assumptions, "one rank a node, so that every message is encrypted; a network without contention, as fast between any two nodes",
            "the algorithm of MPI that is the fastest plain (Thakur05); encryption by one thread and in no message hidden behind another",
            "in the channel layer every step is sealed and opened; in the MPI layer a block is sealed once and opened by those it is for, "
            "and Allreduce is a Reduce by a binomial tree and a Bcast",
            "a reduction's arithmetic costs nothing; buffers fit into memory",
            f"X25519 {costs.x25519 * 1e6:g} us a multiplication; the passes of the agreement do not overlap",
            f"C20's RSA of 2048 bits: encrypting {costs.rsa_encrypt * 1e6:g} us, generating {costs.rsa_generate * 1e3:g} ms, "
            f"decrypting {costs.rsa_decrypt * 1e3:g} ms"]


def operation_lines(rows):
    found = [["operation", "size", "ranks", "algorithm", "plain", "channel layer", "times plain", "MPI layer", "times plain"]]
    for row in rows:
        found.append([row["operation"], table.readable(row["size"]), f"{row['ranks']:,}", row["algorithm"], table.seconds(row["plain_s"])] +
                     [text for way in ("each_hop_s", "end_to_end_s")
                      for text in (table.seconds(row[way]), f"{row[way] / row['plain_s']:,.2f}")])
    return found


def agreement_lines(rows):
    found = [["ranks", "ours", "join", "gather", "spread", "confirm", "go", "table of a rank", "root sends", "C20's RSA"]]
    for row in rows:
        found.append([f"{row['ranks']:,}", *(table.seconds(row[name]) for name in ("seconds", "join", "gather", "spread", "confirm", "go")),
                      *(f"{row[name] / 1e6:.3g} MB" for name in ("table_bytes", "root_sends_bytes")), table.seconds(row["rsa_s"])])
    return found


def panels(operations, agreements):
    found = {}
    for row in operations:
        series = found.setdefault(f"{row['operation']}, {table.readable(row['size'])}", {})
        for way, title in (("plain_s", "plain"), ("each_hop_s", "channel layer"), ("end_to_end_s", "MPI layer")):
            series.setdefault(title, []).append((row["ranks"], row[way]))
    found["key agreement"] = {title: [(row["ranks"], row[name]) for row in agreements]
                              for name, title in (("seconds", "ours"), ("rsa_s", "C20's RSA"))}
    return [(title, list(series.items())) for title, series in found.items()]
