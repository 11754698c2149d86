"""When the study is content with a part, what it leaves out, and that it goes on where it was stopped; on programs that
only make numbers up."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.study import taking
from cryptmpi_tools.study.parts import NAIVE, PLAIN, Part
from cryptmpi_tools.study.taking import Taking

PART = Part("made-up", "core", (PLAIN, NAIVE), tests=(("made-up", 8),), experiment="made-up", repeats=4)


class MadeUp:
    """Four repeats a start, within `noise` of 100 us; some starts of some ways fail."""

    def __init__(self, noise=0.001, fails=lambda way, start: False):
        self.noise = noise
        self.fails = fails
        self.starts = []
        self._draw = random.Random(7)

    def start(self, _part, way):
        self.starts.append(way.name)
        if self.fails(way, self.starts.count(way.name)):
            raise LabError("it fell over")
        return {"made-up 8": {"us": [100 * (1 + self._draw.uniform(-self.noise, self.noise)) for _ in range(4)]}}


@pytest.fixture
def take(tmp_path, monkeypatch):
    monkeypatch.setattr(taking, "library_of", lambda command: "a library")
    monkeypatch.setattr(taking.machine, "LOOKS_S", 0)
    monkeypatch.setattr(taking.machine, "Watch", lambda: None)

    def take(program, resume=False, part_seconds=0, minutes=0, parts=(PART,)):
        options = SimpleNamespace(folder=tmp_path, full=False, resume=resume, cryptmpi=None, seed=1, part_seconds=part_seconds, minutes=minutes)
        made = Taking(options, parts, {None: program})
        made.take_all()
        return made

    return take


def test_a_quiet_part_ends_with_the_least_repeats(take):
    program = MadeUp()
    taken = take(program).all[0]
    assert [len(taken.series(way, "made-up 8")) for way in PART.variants] == [20, 20]
    assert sorted(program.starts) == ["naive"] * 5 + ["plain"] * 5


def test_ways_are_interleaved(take):
    program = MadeUp()
    take(program)
    assert all(set(program.starts[turn:turn + 2]) == {"plain", "naive"} for turn in range(0, 10, 2))


def test_a_loud_part_goes_on_until_its_interval_is_narrow(take):
    """A uniform spread of +-50 % has a deviation of 29 %: 2.6 * 0.29 / sqrt(n) <= 0.05 from about 230 repeats on."""
    taken = take(MadeUp(noise=0.5)).all[0]
    assert 180 < len(taken.series(PLAIN, "made-up 8")) < 320


def test_a_part_with_a_limit_is_left_with_what_it_has(take):
    taken = take(MadeUp(noise=0.5), part_seconds=1e-9).all[0]
    assert len(taken.series(PLAIN, "made-up 8")) == 4 and not taken.enough()


def test_a_part_may_have_a_limit_of_its_own(take):
    short = replace(PART, most_seconds=1e-9)
    assert len(take(MadeUp(noise=0.5), parts=(short,), part_seconds=100).all[0].samples.turns) == 1
    assert len(take(MadeUp(), parts=(short,)).all[0].samples.turns) == 1


def test_a_way_that_fails_twice_in_a_row_is_left_out_and_said(take):
    made = take(MadeUp(fails=lambda way, start: way == NAIVE))
    assert made.all[0].failed == {"naive": "it fell over"} and made.problems == ["core made-up, naive: it fell over"]
    assert len(made.all[0].series(PLAIN, "made-up 8")) == 20


def test_a_way_that_fails_once_is_taken_again(take):
    made = take(MadeUp(fails=lambda way, start: way == NAIVE and start == 2))
    assert made.problems == [] and len(made.all[0].series(NAIVE, "made-up 8")) == 20


def test_without_plain_a_part_ends(take):
    made = take(MadeUp(fails=lambda way, start: way == PLAIN))
    assert "plain" in made.all[0].failed and len(made.all[0].samples.turns) == 2


def test_resume_keeps_what_was_measured_and_takes_only_what_is_missing(take):
    take(MadeUp(), part_seconds=1e-9)
    program = MadeUp()
    taken = take(program, resume=True).all[0]
    assert len(program.starts) == 8 and len(taken.series(PLAIN, "made-up 8")) == 20


def test_without_resume_nothing_is_kept(take):
    take(MadeUp())
    program = MadeUp()
    take(program)
    assert len(program.starts) == 10


def test_parts_that_time_left_untouched_are_said(take, monkeypatch):
    monkeypatch.setattr(taking, "BEGAN", taking.time.monotonic() - 3600)
    made = take(MadeUp(), minutes=1)
    assert made.problems == ["core made-up: time was up"]
