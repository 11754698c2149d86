"""The method on synthetic series: when it is content, what it says of a series, and the papers' sums."""

import math

import numpy
import pytest

from cryptmpi_tools import literature
from cryptmpi_tools.study.method import RULES, Rule, overhead_of_sums, ratio, ratio_interval, summary


def normal(count, deviation, seed=3):
    """Mean 1, exactly of the standard deviation asked for."""
    drawn = numpy.random.default_rng(seed).normal(size=count)
    return 1 + deviation * (drawn - drawn.mean()) / drawn.std(ddof=1)


def test_a_quiet_series_is_enough_from_twenty_repeats_on():
    assert summary(normal(19, 0.01)).met == ""
    assert summary(normal(20, 0.01)).met == "deviation"


def test_encryption_alone_is_enough_from_five_repeats_on():
    assert summary(normal(4, 0.01), RULES["crypto"]).met == ""
    assert summary(normal(5, 0.01), RULES["crypto"]).met == "deviation"


def test_the_deviation_may_be_five_percent_of_the_mean_and_no_more():
    assert summary(normal(50, 0.0499)).met == "deviation"
    assert summary(normal(50, 0.0501)).met == ""


def test_the_interval_counts_from_a_hundred_repeats_on():
    # Half of the interval of 99 repeats is 2.6 * 0.1 / sqrt(99) = 2.6 %, but that does not count yet.
    assert summary(normal(99, 0.10)).met == ""
    assert summary(normal(100, 0.10)).met == "interval"


def test_a_loud_series_goes_on_past_a_hundred_repeats_until_its_interval_is_narrow():
    # 2.576 * 0.5 / sqrt(n) <= 0.05 from about 665 repeats on.
    assert summary(normal(640, 0.5)).met == ""
    assert summary(normal(690, 0.5)).met == "interval"


def test_a_series_by_hand():
    # Of 1, 2, 3, 4: mean 2.5, standard deviation sqrt(5/3), t(0.995, 3) = 5.8409.
    found = summary([4, 1, 3, 2], Rule(least=2))
    assert (found.repeats, found.mean, found.median) == (4, 2.5, 2.5)
    assert found.deviation == pytest.approx(math.sqrt(5 / 3) / 2.5)
    assert found.interval == pytest.approx(5.8409 * math.sqrt(5 / 3) / 2 / 2.5, rel=1e-4)


def test_the_mean_of_a_normal_series_lies_in_its_interval_as_often_as_it_says():
    rule = Rule(confidence=0.9)
    draws = [summary(numpy.random.default_rng(seed).normal(10, 2, 25), rule) for seed in range(400)]
    inside = sum(abs(found.mean - 10) <= found.interval * found.mean for found in draws)
    assert 0.86 * 400 < inside < 0.94 * 400


def test_one_value_has_no_deviation_and_meets_no_rule():
    found = summary([7.0], Rule(least=1))
    assert (found.median, found.deviation, found.met) == (7.0, math.inf, "")


def test_zeros_are_a_quiet_series():
    assert summary([0.0] * 20).met == "deviation"


@pytest.mark.parametrize("series", [[], [1.0, math.nan], [math.inf]])
def test_what_is_no_series_is_refused(series):
    with pytest.raises(ValueError, match="have to be numbers"):
        summary(series)


def test_ratios_are_of_medians():
    assert ratio([2, 2, 200], [1, 1, 1]) == 2
    with pytest.raises(ValueError):
        ratio([1], [0])


def test_the_interval_of_a_ratio_holds_it_and_is_the_same_each_time():
    above, base = normal(40, 0.05, 1) * 3, normal(40, 0.05, 2)
    low, high = ratio_interval(above, base)
    assert low < ratio(above, base) < high and high - low < 0.5
    assert (low, high) == ratio_interval(above, base)


def test_equal_series_are_not_told_apart():
    low, high = ratio_interval(normal(30, 0.05, 5), normal(30, 0.05, 6))
    assert low < 1 < high


def test_sums_over_the_programs_that_both_ran():
    assert overhead_of_sums({"a": 10, "b": 1, "c": 5}, {"a": 11, "b": 2}) == (pytest.approx(100 * (13 / 11 - 1)), ["a", "b"])
    with pytest.raises(ValueError):
        overhead_of_sums({"a": 1}, {"b": 1})


def test_the_papers_own_overheads_of_nas_are_those_of_sums():
    """N20, section 5: 12.75, 19.25 and 30.33 % on Ethernet, and 17.93, 24.27 and 29.41 % on InfiniBand.

    The rows of tables IV and VIII give them back within two hundredths: they are printed rounded, and their sums are
    (BoringSSL's on Ethernet is
    99.80 s of the rows, and 99.81 s in the text).
    """
    quoted = {"table IV": {"BoringSSL": 12.75, "Libsodium": 19.25, "CryptoPP": 30.33},
              "table VIII": {"BoringSSL": 17.93, "Libsodium": 24.27, "CryptoPP": 29.41}}
    for name, overheads in quoted.items():
        times = literature.table("N20", name)
        for library, printed in overheads.items():
            assert overhead_of_sums(times["Unencrypted"], times[library])[0] == pytest.approx(printed, abs=0.02), (name, library)
