"""Fitting and choosing, on times that a known system made: what comes out is what went in."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cryptmpi_tools.model import hockney, max_rate  # noqa: E402
from cryptmpi_tools.tune import choosing, measuring, pipeline, plans  # noqa: E402
from cryptmpi_tools.tune.error import TuneError  # noqa: E402
from cryptmpi_tools.tune.plans import KB, MB, Plan, Plans, Row  # noqa: E402

NETWORK = hockney.Network(hockney.Hockney(8e-6, 0.3e-9), hockney.Hockney(20e-6, 0.2e-9), 64 * KB)
SYSTEM = pipeline.System(NETWORK, max_rate.constant(6e9, 0.1e-6))
COSTS = pipeline.Costs(1.5e-6, 4e-6, 1.3, 0.4, 0.3)


def took(plans_of_it, costs=COSTS, sizes=measuring.SIZES):
    """[(bytes, Plan or None, s)] of messages of the known system."""
    return [(size, plans_of_it.of(size), SYSTEM.time(size, plans_of_it.of(size), costs)) for size in sizes]


# The same figures as in tests/unit/engine/plan_test.cpp: both sides cut messages alike.
@pytest.mark.parametrize(("plan", "size", "pieces"), [
    (Plan(), 256 * KB + 1, (61440, 139328, 61377)),
    (Plan(), MB, (61440, 231424, 231424, 231424, 231424, 61440)),
    (Plan(), 4 * MB, (61440, *[254464] * 16, 61440)),
    (Plan(16 * KB, 128 * KB, 2), 64 * KB + 1, (16384, 32832, 16321)),
    (Plan(64 * KB, MB, 2), 128 * KB, (65536, 65536)),
    (Plan(64 * KB, MB, 2), 192 * KB - 1, (65536, 131071)),
    (Plan(64 * KB, MB, 2), 192 * KB, (65536, 65536, 65536)),
    (plans.SHORT.of(MB), MB, (61440, *[58112] * 16, 57344)),
    (plans.SHORT.of(4 * MB), 4 * MB, (61440, *[60800] * 67, 59264)),
])
def test_messages_are_cut_as_the_library_cuts_them(plan, size, pieces):
    assert plan.pieces(size) == pieces
    assert sum(pieces) == size


def test_whole_messages_are_the_papers_enhanced_hockney_and_a_constant():
    assert SYSTEM.time(16 * KB, None, COSTS) == pytest.approx(NETWORK.time(16 * KB + 24) + 2 * 1.3 * SYSTEM.cipher.time(16 * KB) + 1.5e-6)


def test_segments_hide_behind_the_slowest_of_their_ways():
    """A cipher so slow, or a network so slow, that nothing else counts."""
    plan, size = Plan(32 * KB, 256 * KB, 8), 4 * MB
    free = pipeline.Costs(0.0, 0.0, 1.0, 0.0)
    slow_cipher = pipeline.System(hockney.one_line(0.0, 1e-15), max_rate.constant(1e9))
    pieces = plan.pieces(size)
    # The last but one is opened while the last, which is short, is sealed, and after it.
    assert slow_cipher.time(size, plan, free) == pytest.approx((size + pieces[-2]) / 1e9, rel=1e-3)
    slow_network = pipeline.System(hockney.one_line(1e-6, 1e-9), max_rate.constant(1e15))
    assert slow_network.time(size, plan, free) == pytest.approx(1e-6 + (size + 16 * len(pieces)) * 1e-9, rel=1e-3)


def test_an_end_that_copies_cannot_seal_meanwhile():
    plan, size, cipher = Plan(32 * KB, 256 * KB, 8), 4 * MB, max_rate.constant(1e9)
    system = pipeline.System(hockney.one_line(0.0, 1e-9), cipher)
    overlapped, alone = (system.time(size, plan, pipeline.Costs(0.0, 0.0, 1.0, busy)) for busy in (0.0, 1.0))
    assert overlapped < 1.2 * size * 1e-9
    assert alone > 1.9 * size * 1e-9


def test_segments_travel_as_the_whole_or_as_messages_of_their_size():
    slow_when_large = hockney.Network(hockney.Hockney(1e-6, 1e-9), hockney.Hockney(2e-6, 3e-9), 300 * KB)
    system, plan = pipeline.System(slow_when_large, max_rate.constant(1e15)), Plan(32 * KB, 256 * KB, 8)
    as_pieces, between, as_whole = (system.time(4 * MB, plan, pipeline.Costs(0.0, 0.0, 1.0, 0.0, share)) for share in (0.0, 0.5, 1.0))
    assert as_pieces == pytest.approx(4 * MB * 1e-9, rel=1e-2) and as_whole == pytest.approx(4 * MB * 3e-9, rel=1e-2)
    assert between == pytest.approx((as_pieces + as_whole) / 2)


def test_few_segments_in_flight_wait_for_the_network():
    system = pipeline.System(hockney.one_line(100e-6, 0.1e-9), max_rate.constant(100e9))
    few, many = (system.time(4 * MB, Plan(32 * KB, 128 * KB, in_flight), COSTS) for in_flight in (2, 8))
    assert few > 1.5 * many


def test_fit_finds_what_made_the_times():
    points = took(plans.DEFAULT) + took(measuring.MANY_SEGMENTS)
    found = pipeline.fit(points, SYSTEM)
    for size, plan, seconds in points:
        assert SYSTEM.time(size, plan, found) == pytest.approx(seconds, rel=0.01)
    # Of plans, too, that were not among them.
    for size, plan, seconds in took(Plans(64 * KB, (Row(None, Plan(32 * KB, 512 * KB, 4)),))):
        assert SYSTEM.time(size, plan, found) == pytest.approx(seconds, rel=0.02)


def test_fit_bears_noise_and_a_size_that_is_odd():
    order = random.Random(1)
    points = [(size, plan, seconds * order.uniform(0.95, 1.05) * (3 if size == 256 else 1))
              for size, plan, seconds in took(plans.DEFAULT) + took(measuring.MANY_SEGMENTS)]
    found = pipeline.fit(points, SYSTEM)
    errors = sorted(abs(SYSTEM.time(size, plan, found) / seconds - 1) for size, plan, seconds in took(plans.DEFAULT))
    assert errors[len(errors) // 2] < 0.05


def predict(size, plan):
    return SYSTEM.time(size, plan, COSTS)


def test_ranked_plans_are_sorted_and_different():
    found = choosing.ranked((MB,), predict)
    assert [predict(MB, plan) for plan in found] == sorted(predict(MB, plan) for plan in found)
    cuts = [plan.pieces(MB) for plan in found]
    assert len(set(cuts)) == len(cuts) and Plan().pieces(MB) not in cuts


def test_candidates_differ_in_what_goes_whole():
    found = choosing.candidates(4, predict)
    assert [one.largest_whole for one in found] == [64 * KB, 128 * KB, 256 * KB, 256 * KB]
    assert all(one.rows[-1].up_to is None for one in found)
    for size in choosing.sizes_in_segments()[2:]:
        assert len({one.of(size).pieces(size) for one in found}) == 4
        assert predict(size, found[0].of(size)) <= predict(size, found[3].of(size))


@pytest.mark.parametrize(("times", "default", "better"), [
    ([9, 9, 9, 9], [10, 10, 10, 10], True),
    ([9.8, 9.8, 9.8, 9.8], [10, 10, 10, 10], False),   # too little
    ([5, 11, 5, 11], [10, 10, 10, 10], False),         # in one half of the turns only
    ([11, 11, 11, 11], [10, 10, 10, 10], False),
    ([9], [10], True),
    # The lower kind of starts counts, however many of the other kind there are.
    ([9, 9, 30, 30, 30, 30, 30, 30], [10, 10, 10, 10, 10, 10, 10, 10], True),
])
def test_better_is_by_more_than_chance(times, default, better):
    assert choosing.is_better(times, default) is better


def turns_of(one, factor=1.0, turns=4):
    """As in_turns takes them; `factor` of a size, or of all."""
    return {size: [SYSTEM.time(size, one.of(size), COSTS) * (factor(size) if callable(factor) else factor)] * turns
            for size in choosing.sizes_in_segments()}


OTHER = Plan(16 * KB, 512 * KB, 8)
TRIED = [plans.DEFAULT, plans.joined([(up_to, OTHER) for up_to, _ in choosing.BANDS], 64 * KB),
         plans.joined([(up_to, Plan(32 * KB, MB, 2)) for up_to, _ in choosing.BANDS], 256 * KB)]


def flat(*factors):
    """What was taken of TRIED, in multiples of the default's time; a factor is of all sizes, or a function of one."""
    base = turns_of(plans.DEFAULT)
    return [{size: [time * (factor(size) if callable(factor) else factor) for time in times] for size, times in base.items()} for factor in factors]


def test_within_noise_the_default_plans_stay():
    assert choosing.chosen(TRIED, flat(1, 0.98, 1.2)) == plans.DEFAULT


def test_the_best_is_chosen_for_each_size():
    found = choosing.chosen(TRIED, flat(1, lambda size: 0.8 if size >= 4 * MB else 1.1, lambda size: 0.9 if size == 512 * KB else 1.1))
    assert found.largest_whole == 256 * KB
    assert [found.of(size) for size in (256 * KB + 1, 768 * KB, 768 * KB + 1, 2 * MB, 2 * MB + 1, 64 * MB)] == \
        [TRIED[2].rows[-1].plan] * 2 + [Plan()] * 2 + [OTHER] * 2


@pytest.mark.parametrize(("better_at", "whole"), [
    ((), 256), ((256,), 128), ((128, 256), 64),
    ((128,), 256),  # what is cut at one size is cut at all larger ones
])
def test_messages_go_whole_unless_all_larger_ones_are_better_cut(better_at, whole):
    found = choosing.chosen(TRIED, flat(1, lambda size: 0.8 if size // KB in better_at else 1.1, 1.1))
    assert found.largest_whole == whole * KB
    for size in better_at:
        assert found.of(size * KB) == (OTHER if size > whole else None)


def test_what_does_not_hold_when_measured_again_is_given_up():
    best = choosing.chosen(TRIED, flat(1, 0.8, 1.1))
    assert (best.largest_whole, best.rows) == (64 * KB, (Row(None, OTHER),))
    again, default = flat(lambda size: 1.1 if size in (128 * KB, 512 * KB) else 0.8, 1)
    kept = choosing.confirmed(best, plans.DEFAULT, again, default)
    assert kept.largest_whole == 128 * KB
    assert [kept.of(size) for size in (128 * KB, 256 * KB, 512 * KB, MB, 4 * MB)] == [None, OTHER, Plan(), OTHER, OTHER]
    assert choosing.confirmed(best, plans.DEFAULT, *flat(1.1, 1)) == plans.DEFAULT
    assert choosing.confirmed(best, plans.DEFAULT, *flat(0.9, 1)) == best


class Silent:
    def say(self, *_words, **_more):
        pass


def test_every_way_is_taken_once_a_turn_and_what_fails_twice_is_left_out():
    calls, failures = [], {"b": 1, "c": 9}

    def way(name):
        def start(sizes):
            calls.append(name)
            if failures.get(name, 0) > 0:
                failures[name] -= 1
                raise TuneError("no")
            return {size: float(size) for size in sizes}
        return start

    taken = measuring.in_turns([way("a"), way("b"), way("c")], 3, (1, 2), Silent())
    assert taken == [{1: [1.0] * 3, 2: [2.0] * 3}, {1: [1.0] * 3, 2: [2.0] * 3}, None]
    assert [calls.count(name) for name in "abc"] == [3, 4, 2]
    failures["a"] = 9
    with pytest.raises(TuneError):
        measuring.in_turns([way("a")], 1, (1,), Silent())
