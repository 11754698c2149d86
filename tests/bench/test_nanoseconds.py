"""The table of a small message's nanoseconds, from times that are made up."""

import pytest

from cryptmpi_tools.bench import nanoseconds
from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.model.measurements import lower_quarter

OUTPUT = "module ipsec-mb 1.3.0\ncipher 120.0\nmessage 30.5\norder 2.0\nbuffers 8.0\ncounting 1.5\n"


def test_parts_and_rest_make_what_is_added():
    module, alone = nanoseconds.read_parts(OUTPUT)
    assert module == "ipsec-mb 1.3.0"
    options = nanoseconds.parse(["--size", "1"])
    rows = nanoseconds.table(options, module, alone, {(True, 1): 7000.0, (True, 25): 7010.0, (False, 1): 7400.0})
    assert rows[-1][1] == pytest.approx(400)
    assert sum(ns for _, ns in rows[:-1]) == pytest.approx(400)
    assert rows[-2][1] == pytest.approx(400 - 10 - 162)


def test_a_part_that_is_missing_is_said():
    with pytest.raises(LabError, match="cipher"):
        nanoseconds.read_parts(OUTPUT.replace("order 2.0\n", ""))


def test_slow_starts_do_not_count():
    assert lower_quarter([10, 12, 30, 31, 32, 33, 34, 35]) == 11
    assert lower_quarter([5.0]) == 5
