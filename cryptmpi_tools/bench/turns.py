"""Takes the parts turn by turn, and tells how far it is."""

import hashlib
import random
import shutil
import subprocess
import time
from pathlib import Path

from cryptmpi_tools.bench import machine
from cryptmpi_tools.bench.applications import Applications
from cryptmpi_tools.bench.memory import Connections
from cryptmpi_tools.bench.parts import PLAIN
from cryptmpi_tools.bench.samples import Samples
from cryptmpi_tools.bench.speeds import CipherSpeed, CopyingCost
from cryptmpi_tools.lab.nodes import LabError

BEGAN = time.monotonic()
SILENCE_S = 15  # a line of progress so often


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


def library_of(command):
    """What was built, as a number."""
    files = sorted((Path(command).resolve().parent.parent / "lib" / "cryptmpi").glob("*.so"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def folder_of_parts(folder, options):
    """Where the parts' samples are kept; empty unless this run goes on from an earlier one."""
    kept = folder / "parts" / ("full" if options.full else "quick")
    if not options.resume:
        shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    return kept


class Turns:
    """Takes every part once a turn, plain and sealed in an order drawn anew each time; what fails twice is left out
    from then on."""

    def __init__(self, options, starter, all_parts):
        self.options = options
        folder = folder_of_parts(starter.folder, options)
        settings = {"rounds": options.rounds, "library": library_of(options.cryptmpi)}
        self.samples = [Samples(folder, part, settings, options.resume) for part in all_parts]
        self.watch = machine.Watch()
        self.problems = []
        self.order = random.Random(options.seed)
        self._failed = set()
        self._seconds = {}  # a turn of each part, by its last one
        self._said = 0.0  # when
        applications = Applications(starter, folder)
        self._starters = {"cipher": CipherSpeed(starter), "copying": CopyingCost(starter), "connections": Connections(starter),
                          "hpcc": applications, "lammps": applications}
        self._usual = starter

    def load(self):
        return self.watch.found([count for samples in self.samples for count in samples.others])

    def take_all(self):
        for turn in range(self.options.turns):
            for number, samples in enumerate(self.samples, 1):
                if len(samples.turns) > turn or turn >= (samples.part.most_turns or self.options.turns):
                    continue
                if self._is_late(samples.part):
                    say(f"time is up: {turn} turns of {self.options.turns} are done, and {number - 1} of {len(self.samples)} parts of one more")
                    self.problems += [f"{left.part.title()}: time was up" for left in self.samples if not left.turns]
                    return
                self._take(samples, f"turn {turn + 1} of {self.options.turns}, part {number} of {len(self.samples)}", turn)

    def _is_late(self, part):
        return self.options.minutes and time.monotonic() - BEGAN + self._seconds.get(part.name, 0) > self.options.minutes * 60

    def _take(self, samples, where, turn):
        part, results, others = samples.part, {}, []
        began = time.monotonic()
        variants = [variant for variant in part.variants if (part.name, variant.name) not in self._failed]
        if (part.name, PLAIN.name) in self._failed:
            variants = []
        for variant in self.order.sample(variants, len(variants)):
            others.append(machine.others_running())
            found = self._start(part, variant, turn)
            if found is not None:
                results[variant.name] = found
        samples.add(results, others)
        took = self._seconds[part.name] = time.monotonic() - began
        if turn == 0 or time.monotonic() - self._said > SILENCE_S:
            say(f"{where}: {part.title()}: {took:.1f} s")
            self._said = time.monotonic()

    def _start(self, part, variant, turn):
        """None where two attempts failed: a busy machine makes plain ones fail now and then."""
        for attempt in (1, 2):
            try:
                return self._starters.get(part.program, self._usual).start(part, variant)
            except (LabError, subprocess.SubprocessError, OSError, ValueError) as error:
                why = error
        self._failed.add((part.name, variant.name))
        self.problems.append(f"{part.title()}, {variant.name}, from turn {turn + 1} on: {why}")
        say(f"NOT MEASURED: {self.problems[-1]}")
        return None
