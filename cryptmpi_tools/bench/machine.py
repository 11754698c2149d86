"""The machine that was measured on: what it is, and whether it did anything else meanwhile."""

import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path

from cryptmpi_tools.lab.nodes import REPOSITORY

FLAGS = ("aes", "pclmulqdq", "avx2", "avx512f", "vaes", "vpclmulqdq", "sha_ni", "hypervisor")
LOOKS_S = 2  # how long the machine is watched before anything is started


def cores():
    return len(os.sched_getaffinity(0))


def facts(command):
    info = Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^flags\s*: (.*)$", info, re.M)
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    return {"cpu": model.group(1) if model else platform.machine(), "cores": cores(),
            "flags": [flag for flag in FLAGS if flags and flag in flags.group(1).split()],
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30, 1),
            "kernel": platform.release(), "cryptmpi": _says(command, "--version"), "commit": _commit()}


def _says(*line):
    done = subprocess.run(line, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip()


def _commit():
    commit = _says("git", "-C", REPOSITORY, "rev-parse", "HEAD")
    changed = _says("git", "-C", REPOSITORY, "status", "--porcelain", "--untracked-files=no", "--", "src", "cryptmpi_tools")
    return commit + (" and changes" if changed else "")


def _ticks():
    """(busy, stolen, all) processor time since the start, in ticks."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, stolen = numbers[3] + numbers[4], numbers[7]
    return sum(numbers) - idle - stolen, stolen, sum(numbers)


def others_running():
    """The processes that run now, this one excepted."""
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1


class Watch:
    """What others do on the machine, looked at before the start."""

    def __init__(self):
        self._start = _ticks()
        time.sleep(LOOKS_S)
        busy, _, every = (now - then for now, then in zip(_ticks(), self._start))
        self.load_at_start = os.getloadavg()[0]
        self.busy_at_start = os.cpu_count() * busy / max(every, 1)  # cores

    def found(self, others_seen):
        """`others_seen` counts the processes that ran whenever nothing of ours did."""
        _, stolen, every = (now - then for now, then in zip(_ticks(), self._start))
        others = statistics.mean(others_seen) if others_seen else 0.0
        return {"load_at_start": round(self.load_at_start, 2), "load_at_end": round(os.getloadavg()[0], 2),
                "busy_cores_at_start": round(self.busy_at_start, 2), "others_running": round(others, 2),
                "stolen_pct": round(100 * stolen / max(every, 1), 1), "busy": max(self.busy_at_start, others) > cores() / 2}


def sentence(found):
    """One line for the terminal."""
    line = (f"load average {found['load_at_start']} at the start, {found['load_at_end']} at the end; others kept {found['busy_cores_at_start']} "
            f"cores busy before it and had {found['others_running']} processes running in between; {found['stolen_pct']} % of the time was stolen")
    return f"THE MACHINE WAS BUSY, the figures mean little: {line}" if found["busy"] else line
