"""A few programs of `make torture`, and what it makes of logs that differ."""

import json
import subprocess
import sys

import pytest
from conftest import BUILD, REPOSITORY

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.torture.__main__ import compare

NAMES = ["openmpi-4.1.4", "impi-2021.19-ofi"]


def torture(name, folder, *options):
    line = [sys.executable, "-m", "cryptmpi_tools.torture", "--stack", name, "--ranks", "2", "--folder", folder,
            "--cryptmpi", BUILD / "bin" / "cryptmpi", *options]
    done = subprocess.run([str(word) for word in line], cwd=REPOSITORY, capture_output=True, text=True, timeout=180)
    report = folder / "report.json"
    assert report.exists(), done.stdout + done.stderr
    return done, json.loads(report.read_text())["results"][0]


@pytest.mark.parametrize("name", NAMES)
def test_random_programs(name, two_nodes, tmp_path):
    mpi = stacks.stack(name)
    if not mpi.present():
        pytest.skip(f"{mpi.title} is not installed (make mpis)")
    done, result = torture(name, tmp_path, "--seed", "401", "--count", "3", "--steps", "40")
    assert done.returncode == 0 and not result["findings"], done.stdout
    assert result["as_plain"] >= 2, done.stdout  # one may be not usable: a plain job that fails


def test_first_difference():
    log = ["7 3 step ring on world", "7 3 message 0: to 1", "7 4 step ring on world", "7 4 message 0: buffer 12"]
    other = [*log[:3], "7 4 message 0: buffer 13"]
    assert compare({"rank-0": log, "rank-1": log}, {"rank-0": log, "rank-1": log}) is None
    found = compare({"rank-0": log, "rank-1": log}, {"rank-0": log, "rank-1": other})
    assert (found["step"], found["plain"], found["sealed"]) == (4, log[3], other[3])
    assert found["where"] == ["rank-1", log[2]]
    shorter = compare({"rank-0": log}, {"rank-0": log[:3]})
    assert (shorter["step"], shorter["sealed"]) == (4, "(nothing)")
