"""Which plans to try, and which of those tried to keep."""

from cryptmpi_tools.model.measurements import lower_quarter
from cryptmpi_tools.tune import plans
from cryptmpi_tools.tune.plans import KB, MB, Plan

# Messages that are treated alike: (up_to, the sizes that stand for them). The first two may go whole.
BANDS = ((128 * KB, (128 * KB,)), (256 * KB, (256 * KB,)), (768 * KB, (512 * KB,)), (2 * MB, (MB, 2 * MB)), (None, (4 * MB,)))
LEAST_GAIN = 0.03  # less than that is not worth another plan than the default one


def sizes_in_segments(bands=BANDS):
    return [size for _, sizes in bands for size in sizes]


def alike(one, other, size):
    """Do both cut a message alike?"""
    return one.pieces(size) == other.pieces(size)


def ranked(sizes, predict, default=Plan()):
    """Plans for messages of these sizes, the most promising first: of those that cut the largest alike only the best,
    without the default one."""
    found = []
    for plan in sorted(plans.every(), key=lambda plan: (sum(predict(size, plan) / predict(size, default) for size in sizes), plan.segment)):
        if not any(alike(plan, better, max(sizes)) for better in [*found, default]):
            found.append(plan)
    return found


def candidates(count, predict):
    """[Plans] to be tried beside the default ones, each with the next best plan for every band.

    The first has segments for all messages that may have them, the second for those above 128 KB.
    """
    wholes = [plans.WHOLES[0], plans.WHOLES[1]]
    best = [(up_to, ranked(sizes, predict)) for up_to, sizes in BANDS]
    found = []
    for at in range(count):
        whole = wholes[at] if at < len(wholes) else plans.MOST_WHOLE
        found.append(plans.joined([(up_to, choice[min(at, len(choice) - 1)]) for up_to, choice in best], whole))
    return found


def is_better(times, default_times):
    """Is the first better by more than chance? Both are of the same turns; it has to be better in the one half of the
    turns and in the other."""
    if lower_quarter(times) > (1 - LEAST_GAIN) * lower_quarter(default_times):
        return False
    halves = [slice(0, None, 2), slice(1, None, 2)] if len(times) > 1 else [slice(None)]
    return all(lower_quarter(times[half]) < lower_quarter(default_times[half]) for half in halves)


def chosen(tried, taken):
    """The best Plans, band by band, of `tried` (the default ones first).

    `taken`: [{size: [s of each turn]}] of each of `tried`, which have the same turns.
    """
    default = tried[0]
    picked = []
    for up_to, sizes in BANDS:
        def gain(at, sizes=sizes):
            return sum(lower_quarter(taken[at][size]) / lower_quarter(taken[0][size]) for size in sizes)

        good = [at for at in range(1, len(tried)) if tried[at].of(sizes[-1]) is not None
                and all(is_better(taken[at][size], taken[0][size]) for size in sizes)]
        best = min(good, key=gain, default=0)
        picked.append((up_to, tried[best].of(sizes[-1]) or default.rows[-1].plan, best != 0))
    # What is cut at one size is cut at all larger ones.
    whole = plans.MOST_WHOLE
    if picked[1][2]:
        whole = BANDS[0][0]
        if picked[0][2]:
            whole = plans.ALWAYS_WHOLE
    return plans.joined([(up_to, plan) for up_to, plan, _ in picked], whole)


def confirmed(found, default, taken_found, taken_default):
    """`found`, where it was still no worse than the default plans when both were measured again; elsewhere those."""
    def holds(sizes):
        return all(lower_quarter(taken_found[size]) <= lower_quarter(taken_default[size]) for size in sizes)

    kept = [holds(sizes) or found.of(sizes[-1]) == default.of(sizes[-1]) for _, sizes in BANDS]
    whole = found.largest_whole
    for at, (up_to, _) in enumerate(BANDS[:2]):
        if up_to > whole and not kept[at]:
            whole = up_to
    rows = [(up_to, (found if good else default).of(sizes[-1]) or default.rows[-1].plan) for (up_to, sizes), good in zip(BANDS, kept)]
    return plans.joined(rows, whole)
