"""Takes the parts in turn until each series meets the rule of the method, or its time is up, and tells how far it
is."""

import random
import subprocess
import time

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.parts import PLAIN
from cryptmpi_tools.bench.samples import Samples
from cryptmpi_tools.bench.turns import BEGAN, folder_of_parts, library_of, say
from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.study.method import RULES, summary

SILENCE_S = 15     # a line of progress so often
MOST_FAILURES = 2  # of a way, one after another: a busy machine makes plain jobs fail now and then


class Taken:
    """What came of one part: its samples, and whether they are enough."""

    def __init__(self, folder, part, settings, resume):
        self.part = part
        self.samples = Samples(folder, part, settings, resume)
        self.seconds = 0.0  # in this run
        self.failed = {}    # way's name: why

    def series(self, way, key, quantity="us"):
        """All repeats of all turns."""
        return [value for repeats in self.samples.values(way.name, key, quantity) for value in repeats or ()]

    def enough(self):
        """Whether each series of each way that runs meets the rule."""
        rule, keys = RULES[self.part.rule], self.samples.keys()
        lengths = [(way, key, self.series(way, key)) for way in self.part.variants if way.name not in self.failed for key in keys]
        if not keys:
            return False
        return all(summary(series, rule).met for _, _, series in lengths if series) and all(series for _, _, series in lengths)


class Taking:
    """`programs`: {a part's program: what starts it}, and the key None for all others."""

    def __init__(self, options, all_parts, programs):
        self.options = options
        folder = folder_of_parts(options.folder, options)
        settings = {"library": library_of(options.cryptmpi)}
        self.all = [Taken(folder, part, settings, options.resume) for part in all_parts]
        self.problems = []
        self.watch = machine.Watch()
        self._programs = programs
        self._order = random.Random(options.seed)
        self._failures, self._last_error = {}, {}
        self._said = 0.0

    def load(self):
        return self.watch.found([count for taken in self.all for count in taken.samples.others])

    def take_all(self):
        """Every part once before any is taken again: whatever the machine does for a while, it does to all of them."""
        open_parts = [taken for taken in self.all if not taken.enough()]
        turn = 0
        while open_parts:
            turn += 1
            for number, taken in enumerate(open_parts, 1):
                if self._is_late(taken):
                    say(f"time is up, in turn {turn}: {len(open_parts)} of {len(self.all)} parts still want repeats")
                    self._complain_of_untouched("time was up")
                    return
                self._take(taken, f"turn {turn}, part {number} of {len(open_parts)}")
            open_parts = [taken for taken in open_parts if self._goes_on(taken)]
        self._complain_of_untouched("every way of it failed")

    def _complain_of_untouched(self, why):
        """The parts that have nothing; and of the others the ways that have nothing, and were not given up."""
        for taken in self.all:
            keys = taken.samples.keys()
            if not keys:
                self.problems.append(f"{taken.part.title()}: {why}")
            for way in taken.part.variants if keys else ():
                if way.name not in taken.failed and not any(taken.series(way, key) for key in keys):
                    self.problems.append(f"{taken.part.title()}, {way.name}: {self._last_error.get((taken.part.name, way.name), why)}")

    def _goes_on(self, taken):
        if PLAIN.name in taken.failed or len(taken.failed) == len(taken.part.variants) or taken.enough():
            return False
        turn_s = taken.seconds / max(len(taken.samples.turns), 1)
        most = min(filter(None, (self.options.part_seconds, taken.part.most_seconds)), default=0)
        return not most or taken.seconds + turn_s <= most

    def _is_late(self, taken):
        """Whether another turn of it would pass the end."""
        turn_s = taken.seconds / max(len(taken.samples.turns), 1)
        return self.options.minutes and time.monotonic() - BEGAN + turn_s > self.options.minutes * 60

    def _take(self, taken, where):
        results, others, began = {}, [], time.monotonic()
        ways = [way for way in taken.part.variants if way.name not in taken.failed]
        for way in self._order.sample(ways, len(ways)):
            others.append(machine.others_running())
            found = self._start(taken, way)
            if found is not None:
                results[way.name] = found
        taken.samples.add(results, others)
        took = time.monotonic() - began
        taken.seconds += took
        if len(taken.samples.turns) == 1 or time.monotonic() - self._said > SILENCE_S:
            say(f"{where}: {taken.part.title()}: {took:.1f} s")
            self._said = time.monotonic()

    def _start(self, taken, way):
        part, key = taken.part, (taken.part.name, way.name)
        try:
            found = self._programs.get(part.program, self._programs[None]).start(part, way)
            self._failures[key] = 0
            return found
        except (LabError, subprocess.SubprocessError, OSError, ValueError) as error:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._last_error[key] = error
            if self._failures[key] >= MOST_FAILURES:
                taken.failed[way.name] = str(error)
                self.problems.append(f"{part.title()}, {way.name}: {error}")
                say(f"NOT MEASURED (any more): {self.problems[-1]}")
            return None
