"""HPCC and LAMMPS as Debian ships them: the time of a whole job, launcher included, and the processor time of its
ranks.

They are the demo's, made longer: until a plain run takes half a minute, which is tried once for each network and MPI.
"""

import json
import math
import re
import shutil
from pathlib import Path

from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.lab.programs import HPCC_INPUT, LAMMPS_INPUT, hpcc_checks, lammps_thermodynamics

LEAST_S = 30
MOST_S = 900


def hpcc_input(scale, ranks=4):
    """Most of HPCC's time grows with the memory it works on: the square of N. The ranks make a grid."""
    text = re.sub(r"^700 ", f"{round(700 * math.sqrt(scale))} ", HPCC_INPUT.read_text(), flags=re.M)
    low = max(divisor for divisor in range(1, math.isqrt(ranks) + 1) if ranks % divisor == 0)
    for name, count in (("P", low), ("Q", ranks // low)):
        text = re.sub(rf"^\d+( +{name}s)$", rf"{count}\1", text, flags=re.M)
    return text


def lammps_input(scale, _ranks=4):
    return re.sub(r"^run +1000$", f"run {round(1000 * scale)}", LAMMPS_INPUT.read_text(), flags=re.M)


def hpcc_right(folder, _output):
    right, wrong = hpcc_checks(folder)
    return bool(right) and not wrong


def lammps_right(_folder, output):
    return len(lammps_thermodynamics(output)) > 2


PROGRAMS = {
    "hpcc": (["/usr/bin/hpcc"], "hpccinf.txt", hpcc_input, hpcc_right),
    "lammps": (["/usr/bin/lmp", "-in", "in.melt"], "in.melt", lammps_input, lammps_right),
}


class Applications:
    def __init__(self, starter, folder):
        self.starter = starter
        self._kept = folder / "scales.json"

    def start(self, part, variant, as_in_the_demo=False):
        return self._run(part, variant, 1.0 if as_in_the_demo else self._scale(part))

    def folder_of(self, part):
        """Where its job runs: of the last one everything is still there."""
        return Path(self.starter.folder) / "runs" / part.name

    def _scale(self, part):
        """How many times the demo's work takes half a minute; kept beside the results, for --resume."""
        scales = json.loads(self._kept.read_text()) if self._kept.exists() else {}
        if part.name not in scales:
            scale = 1.0
            for _ in range(8):
                seconds = self._run(part, part.variants[0], scale)[f"{part.program} 0"]["us"] / 1e6
                if seconds >= LEAST_S:
                    break
                scale *= min(max(1.15 * LEAST_S / seconds, 1.2), 12)
            scales[part.name] = scale
            self._kept.write_text(json.dumps(scales))
        return scales[part.name]

    def _run(self, part, variant, scale):
        command, input_name, make_input, right = PROGRAMS[part.program]
        place = self.folder_of(part)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / input_name).write_text(make_input(scale, part.ranks))
        usage = [self.starter.program("usage", "cc"), place]
        done = self.starter.run(part, variant, command, usage, place / "report.json", timeout=MOST_S, cwd=place, log=place / "output.txt")
        if not done.ok or not right(place, done.output):
            raise LabError(f"{done.why()}, or its results are wrong: {place}")
        cpu = sum(float(path.read_text()) for path in place.glob("usage.*"))
        return {f"{part.program} 0": {"us": done.seconds * 1e6, "cpu_us": cpu, **sealed_bytes(place / "report.json.parts")}}


def sealed_bytes(parts):
    """What the ranks sealed, by their parts of the report; nothing for a plain run."""
    sent = [json.loads(path.read_text()) for path in Path(parts).glob("*.json")]
    return {"sealed_bytes": sum(part["sealed_bytes_sent"] for part in sent)} if sent else {}
