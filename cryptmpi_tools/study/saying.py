"""What the rows of a figure show, in sentences that are computed from them."""

from cryptmpi_tools.bench.parts import PLAIN
from cryptmpi_tools.bench.table import readable
from cryptmpi_tools.study.method import overhead_of_sums
from cryptmpi_tools.study.parts import DIRECT, GCM, NAIVE, PIPELINED, PLANS, THREADED, TUNED

__all__ = ["added", "ciphers", "flows", "host_overhead", "nas", "pairs", "plans", "readable", "shares", "stencil", "threads"]


WAYS = {"naive": "the naive construction", f"mpi {GCM}": "the MPI layer", f"channel {GCM}": "the channel layer",
        "wireguard": "the WireGuard tunnel", "ipsec": "the IPsec tunnel"}
OF_OURS = tuple(way.name for way in PLANS)


FEW = 5  # repeats
MOST_PLACES = 8  # that are named in a sentence


def called(way):
    return WAYS.get(way, way)


def capital(text):
    return text[:1].upper() + text[1:]


def joined(words):
    words = list(words)
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1] if words else ""


def signed(pct):
    return f"{pct:+.1f} %"


def short(value):
    """Three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ways_in(rows):
    return list(dict.fromkeys(row["way"] for row in rows))


def told_apart(row):
    """Whether the 99 % interval of the ratio to plain leaves 1 out; that of a few repeats says nothing."""
    low, high = row["ratio_interval"]
    return row["repeats"] >= FEW and not low <= 1 <= high


def method(rows):
    """How well the rule was kept: the last sentence of each paragraph."""
    met = sum(row["rule_met"] is not None for row in rows)
    repeats = sorted(row["repeats"] for row in rows)
    return (f"{met} of {len(rows)} series meet the rule of the method; they have {repeats[0]} to {repeats[-1]} repeats, "
            f"{repeats[len(repeats) // 2]} in the middle.")


def case_of(row):
    return (row["experiment"], row["network"], row["mpi"], row["ranks"], row["benchmark"], row["size"])


def paired(rows, way, base):
    """(row of way, row of base) of the cases that have both."""
    bases = {case_of(row): row for row in rows if row["way"] == base}
    return [(row, bases[case_of(row)]) for row in rows if row["way"] == way and case_of(row) in bases]


def against_naive(rows):
    """How much of the naive construction's time each way of ours saves, at its best and worst case."""
    lines = []
    for way in ways_in(rows):
        both = [(100 * (1 - mine["us"] / theirs["us"]), mine) for mine, theirs in paired(rows, way, NAIVE.name) if theirs["us"] > 0]
        if way in (PLAIN.name, NAIVE.name) or way in ("wireguard", "ipsec") or not both:
            continue
        (worst, worst_row), (best, best_row) = min(both, key=lambda pair: pair[0]), max(both, key=lambda pair: pair[0])
        line = f"{called(way)} takes {less_or_more(best)} time ({named(best_row)})"
        if worst_row is not best_row:
            line += f" to {less_or_more(worst)} ({named(worst_row)})"
        lines.append(line)
    return f"Against the naive construction, {joined(lines)}." if lines else ""


def less_or_more(pct):
    return f"{abs(pct):.1f} % {'less' if pct >= 0 else 'more'}"


def named(row):
    ranks = f", {row['ranks'] // 2} pairs" if row["experiment"] in ("pairs", "flows") else ""
    size = f" of {readable(row['size'])}" if row["size"] else ""
    return f"{row['benchmark']}{size}{ranks}"


def plain_sentence(rows):
    plain = [row for row in rows if row["way"] == PLAIN.name]
    if not plain:
        return "Plain was not measured."
    low, high = min(plain, key=lambda row: row["us"]), max(plain, key=lambda row: row["us"])
    if low is high:
        return f"Plain takes {short(low['us'])} us ({named(low)})."
    return f"Plain takes from {short(low['us'])} us ({named(low)}) to {short(high['us'])} us ({named(high)})."


def added_by(rows, way):
    """The least and the most that a way adds, and how many cases cannot be told from plain."""
    mine = [row for row in rows if row["way"] == way and row.get("added_pct") is not None]
    if not mine:
        return ""
    low, high = min(mine, key=lambda row: row["added_pct"]), max(mine, key=lambda row: row["added_pct"])
    blurred = sum(not told_apart(row) for row in mine)
    line = f"{called(way)} adds {signed(low['added_pct'])} ({named(low)})"
    if high is not low:
        line += f" to {signed(high['added_pct'])} ({named(high)})"
    return line + (f", in {blurred} of {len(mine)} cases not to be told from nothing" if blurred else "")


def added(rows):
    lines = filter(None, (added_by(rows, way) for way in ways_in(rows) if way != PLAIN.name))
    return " ".join(filter(None, [plain_sentence(rows), capital("; ".join(lines)) + ".", against_naive(rows), method(rows)]))


def plans(rows):
    """Which plan is the fastest, what cutting, threads and tuning save, and what each adds."""
    saved = [saved_by(rows, PIPELINED.name, DIRECT.name), saved_by(rows, THREADED.name, PIPELINED.name), saved_by(rows, TUNED.name, PIPELINED.name)]
    return " ".join(filter(None, [fastest_plans(rows), *saved, added(rows)]))


def fastest_plans(rows):
    """How often each plan is the fastest, and how often that says something: its interval does not meet the next
    one's."""
    wins, clear = {}, 0
    for case in dict.fromkeys(map(case_of, rows)):
        mine = sorted(unlike([row for row in rows if case_of(row) == case and row["way"] in OF_OURS]), key=lambda row: row["us"])
        if len(mine) > 1:
            wins.setdefault(mine[0]["way"], []).append(mine[0])
            clear += apart(*mine[:2])
    count = sum(map(len, wins.values()))
    if not wins:
        return ""
    lines = [f"{way} in {len(won)}{places(won, rows)}" for way, won in sorted(wins.items(), key=lambda item: -len(item[1]))]
    return (f"Of the {count} case{'' if count == 1 else 's'} in which our plans differ, the fastest is {joined(lines)}; in {clear} it can be told "
            "from the next one (their 99 % intervals do not meet).")


def unlike(rows):
    """One row for each way of cutting and sealing a message, the built-in plan's first."""
    kept = {}
    for row in sorted(rows, key=lambda row: row["way"] != PIPELINED.name):
        kept.setdefault(done_as(row), row)
    return list(kept.values())


def done_as(row):
    """How the message is cut and by how many threads: plans that have that in common are one at this size."""
    return row.get("plan") or row["way"]


def places(mine, rows):
    """ (64 KB, 1 MB): where rows are among others; nothing where that would be long."""
    more = [column for column in ("network", "mpi") if len({row[column] for row in rows}) > 1]
    names = dict.fromkeys(" ".join([readable(row["size"]), *(row[column] for column in more)]) for row in mine)
    return f" ({', '.join(names)})" if len(names) <= MOST_PLACES else ""


def apart(one, other):
    """Whether the intervals of two ratios to the same plain series leave a gap; those of a few repeats say nothing."""
    (low, high), (other_low, other_high) = one["ratio_interval"], other["ratio_interval"]
    return min(one["repeats"], other["repeats"]) >= FEW and (high < other_low or other_high < low)


def saved_by(rows, way, base):
    """How much less time a plan takes than another, where it is another."""
    both = paired(rows, way, base)
    if not both:
        return ""
    alike = [row for row, other in both if done_as(row) == done_as(other)]
    different = [(100 * (1 - row["us"] / other["us"]), row) for row, other in both if row not in alike]
    same = f"In {len(alike)} of {len(both)} cases{places(alike, rows)} {way} and {base} are the same thing, measured twice." if alike else ""
    if not different:
        return same
    (worst, worst_row), (best, best_row) = min(different, key=lambda pair: pair[0]), max(different, key=lambda pair: pair[0])
    line = f"{capital(way)} takes {less_or_more(best)} time than {base} ({named(best_row)})"
    line += f" to {less_or_more(worst)} ({named(worst_row)})" if worst_row is not best_row else ""
    return f"{line}. {same}".strip()


def pairs(rows):
    return " ".join([at_more_pairs(rows), added(rows)])


def at_more_pairs(rows):
    """What the naive and our overhead at the largest size does as pairs are added."""
    largest = max(row["size"] for row in rows)
    lines = []
    for way in ways_in(rows):
        mine = sorted((row for row in rows if row["way"] == way and row["size"] == largest and row.get("added_pct") is not None),
                      key=lambda row: row["pairs"])
        if len(mine) > 1:
            ends = (f"{signed(row['added_pct'])} with {row['pairs']}" for row in (mine[0], mine[-1]))
            lines.append(f"{called(way)} {joined(ends)}")
    return f"By the number of pairs, at {readable(largest)}: {'; '.join(lines)}." if lines else ""


def flows(rows):
    """Throughput of each way with the fewest and the most flows, and as a part of plain's."""
    plain = {row["pairs"]: row["mb_s"] for row in rows if row["way"] == PLAIN.name}
    lines = []
    for way in ways_in(rows):
        mine = sorted((row for row in rows if row["way"] == way), key=lambda row: row["pairs"])
        ends = [mine[0], mine[-1]] if len(mine) > 1 else mine
        lines.append(f"{called(way)} carries {joined(carried(row, plain) for row in ends)}")
    return f"By the number of flows: {'; '.join(lines)}. {method(rows)}"


def carried(row, plain):
    part = f" ({100 * row['mb_s'] / plain[row['pairs']]:.0f} % of plain)" if row["way"] != PLAIN.name and plain.get(row["pairs"]) else ""
    return f"{short(row['mb_s'])} MB/s{part} with {row['pairs']}"


def ciphers(rows):
    lines = []
    for cipher in dict.fromkeys(row["cipher"] for row in rows):
        mine = [row for row in rows if row["cipher"] == cipher]
        largest = max(row["size"] for row in mine)
        last = sorted((row for row in mine if row["size"] == largest), key=lambda row: -row["mb_s"])
        fastest = f"{last[0]['way']} {short(last[0]['mb_s'])} MB/s"
        lines.append(fastest + (f", {last[0]['mb_s'] / last[-1]['mb_s']:.1f} times {last[-1]['way']}" if len(last) > 1 else ""))
    half = [f"{row['way']} from {readable(row['size'])} on" for row in half_speed(rows)]
    largest = readable(max(row["size"] for row in rows))
    return (f"At {largest}, sealing and opening together: {'; '.join(lines)}. Half of its greatest speed is reached by {joined(half)}. "
            f"{method(rows)}")


def half_speed(rows):
    """Of each way the row of the smallest size at which it has half of its greatest speed."""
    for way in ways_in(rows):
        mine = sorted((row for row in rows if row["way"] == way), key=lambda row: row["size"])
        most = max(row["mb_s"] for row in mine)
        yield next(row for row in mine if row["mb_s"] >= most / 2)


def threads(rows):
    lines = []
    for cipher in dict.fromkeys(row["cipher"] for row in rows):
        largest = max(row["size"] for row in rows if row["cipher"] == cipher)
        speeds = {row["threads"]: row["mb_s"] for row in rows if row["cipher"] == cipher and row["size"] == largest}
        most, least = max(speeds), min(speeds)
        line = f"{cipher} at {readable(largest)}: {short(speeds[least])} MB/s with {least} thread" + ("" if least == 1 else "s")
        if most != least:
            line += f", {speeds[most] / speeds[least]:.2f} times as much with {most}"
        lines.append(line)
    return f"{'; '.join(lines)}. {method(rows)}"


def stencil(rows):
    lines = []
    for way in ways_in(rows):
        both = [100 * (mine["communicating_us"] / base["communicating_us"] - 1) for mine, base in paired(rows, way, PLAIN.name)
                if base.get("communicating_us", 0) > 0]
        if way != PLAIN.name and both:
            lines.append(f"{called(way)} adds {signed(min(both))} to {signed(max(both))} to the time of communication")
    reached = [100 * row["computing_us"] / (row["computing_us"] + row["communicating_us"]) for row in rows if row["way"] == PLAIN.name]
    share = f"Computing took {min(reached):.0f} to {max(reached):.0f} % of plain's steps. " if reached else ""
    return f"{share}{capital('; '.join(lines))}. {added(rows)}"


def shares(rows):
    lines = []
    for row in rows:
        if row["way"] == PLAIN.name:
            whole = row["computing_us"] + row["communicating_us"]
            lines.append(f"{row['program']} {100 * row['communicating_us'] / whole:.0f} %")
    return f"Plain communicates for {joined(lines)} of its steps. {stencil(rows)}"


def host_overhead(rows):
    lines = []
    for row in rows:
        if row["benchmark"] == "send-overhead_t":
            lines.append(f"{called(row['way'])} {short(row['us'])} us at {readable(row['size'])}")
    return f"A non-blocking send keeps the processor for: {joined(lines)}. {method(rows)}" if lines else method(rows)


def nas(rows):
    """Of summed times, as the papers insist."""
    times = {way: {row["program"]: row["seconds"] for row in rows if row["way"] == way} for way in ways_in(rows)}
    plain = times.pop(PLAIN.name, {})
    lines = []
    for way, own in times.items():
        if set(own) & set(plain):
            over, names = overhead_of_sums(plain, own)
            lines.append(f"{called(way)} adds {signed(over)} to the sum of {joined(name.upper() for name in names)}")
    return f"{capital('; '.join(lines))}. {method(rows)}" if lines else method(rows)
