"""The costs of reductions come from the fitted model, and choose as the library does
(tests/unit/engine/collectives_test.cpp)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cryptmpi_tools.model import hockney, max_rate  # noqa: E402
from cryptmpi_tools.tune import pipeline, reductions  # noqa: E402
from cryptmpi_tools.tune.plans import KB, MB  # noqa: E402
from cryptmpi_tools.tune.reductions import ReductionCosts  # noqa: E402

ONLY_MESSAGES, NO_MESSAGES = ReductionCosts(1000, 0, 0), ReductionCosts(0, 500, 100)


@pytest.mark.parametrize(("costs", "size", "nodes", "way"), [
    *((ReductionCosts(), 8, nodes, "doubling") for nodes in (2, 3, 4, 5, 8, 64, 1000)),
    *((ONLY_MESSAGES, 1 << 30, nodes, "doubling") for nodes in (2, 3, 4, 5, 8, 64, 1000)),
    *((ReductionCosts(), 64 * MB, nodes, "halves") for nodes in (2, 4, 64)),
    *((ReductionCosts(), 64 * MB, nodes, "parts") for nodes in (3, 5, 6, 7, 63)),
    (ReductionCosts(1000, 77, 10), 200 * KB, 2, "doubling"), (ReductionCosts(1000, 77, 10), 200 * KB + 2, 2, "halves"),
    (ReductionCosts(1000, 40, 0), 100 * KB, 4, "doubling"), (ReductionCosts(1000, 40, 0), 100 * KB + 4, 4, "halves"),
    (ReductionCosts(), 256 * KB, 1000, "halves"), (NO_MESSAGES, 256 * KB, 1000, "parts"),
])
def test_ways_are_the_librarys(costs, size, nodes, way):
    assert reductions.allreduce_way(costs, size, nodes) == way


def test_costs_are_those_of_a_straight_line():
    """Whole messages of a network and a cipher that are lines: 10 us and 1 us more, and 24 bytes that sealing adds."""
    system = pipeline.System(hockney.one_line(10e-6, 0.5e-9), max_rate.constant(4e9))
    costs = pipeline.Costs(1e-6, 0.0, 1.0, 0.0, 0.0)
    found = reductions.costs_of(system, costs, 0.1e-9)
    assert found == ReductionCosts(round((11e-6 + 24 * 0.5e-9) * 1e9), round((0.5e-9 + 2 / 4e9) * KB * 1e9), round(0.1e-9 * KB * 1e9))


def test_costs_stay_within_what_a_profile_may_have():
    system = pipeline.System(hockney.one_line(10.0, 1e-3), max_rate.constant(1e12))
    found = reductions.costs_of(system, pipeline.Costs(0.0, 0.0, 1.0, 0.0, 0.0), 1.0)
    assert found == ReductionCosts(reductions.MOST_OF_MESSAGE, reductions.MOST_OF_KIB, reductions.MOST_OF_KIB)


def test_ways_by_size_end_with_that_of_the_largest():
    found = reductions.ways(ReductionCosts(), 2)
    assert found == [(256 * KB, "doubling"), (None, "halves")]
    assert reductions.ways(ONLY_MESSAGES, 64) == [(None, "doubling")]


def test_adding_up_takes_time():
    assert 0 < reductions.combine_s() < 1e-6
