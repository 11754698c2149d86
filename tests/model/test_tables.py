"""Tables as lines: aligned, nothing cut, and nothing but their text, wherever they are printed."""

import pytest

from cryptmpi_tools import tables

LINES = [["message", "plan", "error", "plain"], ["64 KB", "whole", "", "17 us"], ["1 MB", "in 6: [bold], :x:", "-3 %", "398.2 us"]]


@pytest.fixture(autouse=True, params=["20", "200"])
def terminal(monkeypatch, request):
    """Of so many columns, which shows colours."""
    monkeypatch.setenv("COLUMNS", request.param)
    monkeypatch.setenv("FORCE_COLOR", "1")


def test_numbers_are_to_the_right():
    assert tables.aligned(LINES) == ["message  plan               error     plain",
                                     "  64 KB  whole                        17 us",
                                     "   1 MB  in 6: [bold], :x:   -3 %  398.2 us"]


def test_markdown():
    assert tables.markdown(LINES) == ["| message | plan              | error |    plain |",
                                      "|---------|-------------------|-------|----------|",
                                      "|   64 KB | whole             |       |    17 us |",
                                      "|    1 MB | in 6: [bold], :x: |  -3 % | 398.2 us |"]


def test_a_heading_alone_and_a_wide_cell():
    assert tables.aligned([["one", "other"]]) == ["one  other"]
    assert tables.aligned([["one", "other"], ["x" * 1000, "y z"]])[1] == "x" * 1000 + "  y z"
