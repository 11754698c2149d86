"""The table of what each way of key distribution costs."""

import pytest

from cryptmpi_tools.bench.key_distribution import NONE, bytes_of, parse, rows_of


def test_bytes_are_those_of_the_page():
    """The subtrees of ranks 1 to 5 have 1, 2, 1, 2 and 1 ranks; tests/unit/keys counts what really travels."""
    agreement = bytes_of("agreement", 6)
    assert agreement == 5 * (2 * 200 + 68 * 6 + 80 + 6 * 20) + 68 * 7
    assert bytes_of("interchange", 6) - agreement == 5 * 200 + 7 * (64 + 384)
    assert bytes_of("rsa-oaep", 6) - agreement == 5 * 200 + 7 * 2 * 384


def test_what_is_added_is_compared_with_what_the_agreement_adds():
    times = {(2, NONE): [10, 11, 12], (2, "agreement"): [15, 13, 14], (2, "rsa-oaep"): [400, 41, 30], (2, "interchange"): [17, 18, 16]}
    rows = {row["way"]: row for row in rows_of(times)}
    assert [row["added_ms"] for row in rows.values()] == [0, 3, 30, 6]
    assert rows["rsa-oaep"]["added_of_agreement"] == 10 and rows["rsa-oaep"]["most_ms"] == 400
    assert rows[NONE]["bytes_per_rank"] == 0


def test_ranks_are_halved():
    with pytest.raises(SystemExit):
        parse(["--ranks", "3"])
