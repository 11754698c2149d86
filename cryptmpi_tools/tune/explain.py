"""What a profile says: the plan of each size, what it is predicted to take, and what it took."""

import statistics

from cryptmpi_tools.model import table
from cryptmpi_tools.tune import reductions
from cryptmpi_tools.tables import aligned

POWERS = tuple(4 ** power for power in range(12))  # 1 B to 4 MB


def sizes(profile):
    """Powers of 4, what was measured, and both sides of every limit of the plans."""
    limits = [profile.plans.largest_whole, *(row.up_to for row in profile.plans.rows if row.up_to is not None)]
    return sorted({*POWERS, *profile.measured(), *limits, *(limit + 1 for limit in limits)})


def rows(profile):
    measured, plain = profile.measured(), {row["size"]: row["us"] * 1e-6 for row in profile.content["measurements"]["plain"]}
    found = []
    for size in sizes(profile):
        plan, predicted, seen = profile.plans.of(size), profile.time(size), measured.get(size)
        found.append({"size": size, "segments": plan and list(plan.pieces(size)), "in_flight": plan and plan.in_flight,
                      "predicted_us": predicted * 1e6, "measured_us": seen and seen * 1e6, "plain_us": plain.get(size, 0) * 1e6 or None,
                      "error_pct": seen and 100 * (predicted / seen - 1)})
    return found


def median_error_pct(found):
    """Of those that were measured; None: none was."""
    errors = [abs(row["error_pct"]) for row in found if row["error_pct"] is not None]
    return statistics.median(errors) if errors else None


def plan_words(row):
    words = pieces_words(row["segments"])
    return words if row["segments"] is None else f"{words}, {row['in_flight']} in flight"


def pieces_words(segments):
    """How a message is cut; None: it is not."""
    if segments is None:
        return "whole"
    first, *others, last = segments
    middle = f" + {len(others)} x {others[0]:,}" if others else ""
    return f"in {len(segments)}: {first:,}{middle} + {last:,} B"


def as_json(profile):
    found = rows(profile)
    return {"fingerprint": profile.content["fingerprint"], "plan": profile.content["plan"], "reductions": profile.reductions.as_json(),
            "allreduce": {nodes: reductions.ways(profile.reductions, nodes) for nodes in reductions.NODES}, "rows": found,
            "median_error_pct": median_error_pct(found)}


def lines(profile, path):
    content, found = profile.content, rows(profile)
    made_for = content["fingerprint"]
    head = [f"{path}, made {content['made']} {content['where']}",
            f"for {made_for['mpi']}, {made_for['cipher']} by {made_for['module']}, {made_for['processors']} x {made_for['processor']}", ""]
    if content["busy"]:
        head.insert(2, "THE MACHINE WAS BUSY when this was measured: the figures mean little, and the plans may not be the best.")
    listed = [["message", "plan", "predicted", "measured", "error", "plain"]]
    for row in found:
        listed.append([table.readable(row["size"]), plan_words(row), _us(row["predicted_us"]), _us(row["measured_us"]),
                       "" if row["error_pct"] is None else f"{row['error_pct']:+.0f} %", _us(row["plain_us"])])
    error = median_error_pct(found)
    tail = [] if error is None else ["", f"Predicted against measured: {error:.0f} % off, by the median"]
    return head + aligned(listed) + tail + ["", *allreduce_lines(profile.reductions)]


def allreduce_lines(costs):
    listed = [["Allreduce between", "bytes of the vector, and its way"]]
    for nodes in reductions.NODES:
        ways = [f"{way} to {table.readable(most)}" if most else way for most, way in reductions.ways(costs, nodes)]
        listed.append([f"{nodes} nodes", ", then ".join(ways)])
    return aligned(listed)


def _us(time):
    return "" if time is None else f"{time:,.1f} us"
