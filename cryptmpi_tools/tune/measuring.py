"""Measures, fits, tries the most promising plans, keeps the best, and measures those once more: the content of a
profile."""

import random
import sys
import time
from dataclasses import dataclass

from cryptmpi_tools.bench import machine
from cryptmpi_tools.model import caches, fit, measurements, parameters
from cryptmpi_tools.model.measurements import lower_quarter
from cryptmpi_tools.tune import choosing, ciphers, jobs, pipeline, plans, profile, reductions
from cryptmpi_tools.tune.error import TuneError
from cryptmpi_tools.tune.plans import KB, MB, Plan, Plans, Row

SILENCE_S = 10  # a line of progress so often
SIZES = (1, 4, 16, 64, 256, KB, 4 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, 512 * KB, MB, 2 * MB, 4 * MB)
QUICK_SIZES = (1, 64, KB, 4 * KB, 16 * KB, 64 * KB, 128 * KB, 256 * KB, 512 * KB, MB, 2 * MB, 4 * MB)
# Tells what a segment costs from what a byte costs: as many segments as there can be.
MANY_SEGMENTS = Plans(plans.ALWAYS_WHOLE, (Row(None, Plan(16 * KB, 128 * KB, 2)),))
SEED = 1


@dataclass(frozen=True)
class Effort:
    sizes: tuple
    rounds: int      # of a size in a start, at most
    turns: int       # of each of the three parts
    candidates: int  # plans that are tried for each band of sizes


FULL = Effort(SIZES, 1000, 8, 4)
QUICK = Effort(QUICK_SIZES, 100, 3, 2)


class Progress:
    """Lines on stderr."""

    def __init__(self):
        self._began = time.monotonic()
        self._said = 0.0

    def say(self, line, always=True):
        now = time.monotonic()
        if always or now - self._said > SILENCE_S:
            sys.stderr.write(f"[{now - self._began:4.0f} s] {line}\n")
            sys.stderr.flush()
            self._said = now


def in_turns(ways, turns, sizes, progress, seen=lambda: None):
    """[{bytes: [s of each turn]}] of each of `ways`, which are functions of sizes; None for one that failed twice.

    A turn has every way once, in an order that is drawn anew: what the machine does for a while, it does to all of
    them. The first has to succeed.
    """
    order, taken = random.Random(SEED), [{size: [] for size in sizes} for _ in ways]
    for turn in range(turns):
        for at in order.sample(range(len(ways)), len(ways)):
            if taken[at] is None:
                continue
            seen()
            times = _twice(ways[at], sizes, progress, at == 0)
            if times is None:
                taken[at] = None
                continue
            for size in sizes:
                taken[at][size].append(times[size])
        progress.say(f"  turn {turn + 1} of {turns}", always=turn + 1 == turns)
    return taken


def _twice(way, sizes, progress, must):
    """A busy machine makes even plain jobs fail now and then."""
    try:
        return way(sizes)
    except TuneError as error:
        progress.say(f"  tried again: {error}")
    try:
        return way(sizes)
    except TuneError as error:
        if must:
            raise
        progress.say(f"  left out: {error}")
        return None


def points(taken, of):
    """[(bytes, Plan or None, s)] of what was taken under plans."""
    return [(size, of.of(size), lower_quarter(times)) for size, times in taken.items()]


def measured(options, effort, progress):
    """The content of a profile."""
    watch, others = machine.Watch(), []

    def seen():
        others.append(machine.others_running())

    with jobs.Jobs(options, effort.rounds) as started:
        progress.say(f"starting two ranks {_where(options)}")
        started.sealed((1,))
        made_for = started.fingerprint
        built_in = plans.default_of(made_for["abi"])
        progress.say(f"{made_for['mpi']}; {made_for['cipher']} by {made_for['module']}; nodes {' and '.join(started.nodes)}")
        progress.say("the cipher alone")
        cipher = ciphers.measure(options.cryptmpi, made_for["cipher"], made_for["module"].split()[0], made_for["processors"])

        def under(tried):
            return lambda sizes: started.sealed(sizes, tried)

        progress.say(f"plain and sealed messages, {effort.turns} turns")
        plain, default, many = _all(in_turns([started.plain, started.sealed, under(MANY_SEGMENTS)], effort.turns, effort.sizes, progress, seen))
        found = measurements.Measurements()
        names = ("", made_for["mpi"])
        found.ping_pong[names] = {size: lower_quarter(times) for size, times in plain.items()}
        found.ciphers[made_for["cipher"], made_for["module"]] = cipher
        model = fit.fitted(found, caches.sizes(), relative=True)
        if model["not_fitted"]:
            raise TuneError(f"nothing could be fitted: {'; '.join(model['not_fitted'])}; measure again on a machine that does nothing else")
        system = profile.system_of(parameters.of(model))
        known = points(default, built_in) + points(many, MANY_SEGMENTS)
        costs = pipeline.fit(known, system)

        tried = [built_in, *choosing.candidates(effort.candidates, lambda size, plan: system.time(size, plan, costs))]
        progress.say(f"the {len(tried) - 1} most promising plans of {len(plans.every())} for each size, {effort.turns} turns")
        taken = in_turns([started.sealed, *map(under, tried[1:])], effort.turns, choosing.sizes_in_segments(), progress, seen)
        tried, taken = zip(*((one, times) for one, times in zip(tried, taken) if times is not None))
        known += [point for one, times in zip(tried, taken) for point in points(times, one)]
        costs = pipeline.fit(known, system)

        best = choosing.chosen(tried, taken)
        progress.say(f"what was chosen, once more, {effort.turns} turns")
        ways = [started.sealed, started.plain, *([under(best)] if best != built_in else [])]
        default, plain, *again = _all(in_turns(ways, effort.turns, effort.sizes, progress, seen))
        kept, sealed = built_in, default
        if again:
            kept = choosing.confirmed(best, built_in, again[0], default)
            sealed = {size: (again[0] if kept.of(size) == best.of(size) else default)[size] for size in effort.sizes}
        busy = watch.found(others)
        model["busy_machine"] = busy["busy"]
    return {"format": profile.FORMAT, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "where": _where(options), "nodes": started.nodes,
            "busy": busy["busy"], "load": machine.sentence(busy), "fingerprint": made_for, "plan": kept.as_json(), "model": model,
            "costs": costs.as_json(), "reductions": reductions.costs_of(system, costs, reductions.combine_s()).as_json(),
            "measurements": {"plain": _rows(plain), "sealed": _rows(sealed), "sealed_by_default": _rows(default),
                             "cipher": [{"size": size, "threads": threads, "us": seconds * 1e6} for (size, threads), seconds in cipher.items()],
                             "fitted": [{"size": size, "segments": plan and list(plan.pieces(size)), "in_flight": plan and plan.in_flight,
                                         "us": seconds * 1e6} for size, plan, seconds in known]}}


def _where(options):
    if options.hosts:
        return f"between {' and '.join(options.hosts)}"
    return "inside this machine, sealed by scope = \"all\" (no --hosts): plans for a network need --hosts A,B"


def _all(taken):
    if None in taken:
        raise TuneError("the jobs do not run; the lines above say why")
    return taken


def _rows(taken):
    return [{"size": size, "us": lower_quarter(times) * 1e6} for size, times in taken.items()]
