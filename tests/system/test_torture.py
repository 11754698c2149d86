"""A few fixed programs of `make torture`."""

import json
import subprocess
import sys

import pytest
from conftest import BUILD, REPOSITORY

from lab import stacks

NAMES = ["openmpi-4.1.4", "impi-2021.19-ofi"]


def torture(name, folder, *options):
    line = [sys.executable, "-m", "torture", "--stack", name, "--ranks", "2", "--folder", folder, "--cryptmpi", BUILD / "bin" / "cryptmpi", *options]
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
