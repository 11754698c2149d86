"""`python -m bench`, as short as it goes: the report has its rows, and they have times."""

import json
import subprocess
import sys

import pytest
from conftest import BUILD, REPOSITORY

from lab import stacks

SIZES = [1, 16 << 10]


@pytest.mark.parametrize("name", ["openmpi-4.1.4"])
def test_ping_pong_of_both_layers(name, two_nodes, tmp_path):
    mpi = stacks.stack(name)
    if not mpi.present():
        pytest.skip(f"{mpi.title} is not installed")
    line = [sys.executable, "-m", "bench", "--stack", name, "--network", "veth", "--benchmark", "ping-pong", "--cipher", "AES-256-GCM",
            "--turns", "2", "--rounds", "20", "--folder", tmp_path, "--cryptmpi", BUILD / "bin" / "cryptmpi", *(f"--size={size}" for size in SIZES)]
    done = subprocess.run([str(word) for word in line], cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [(row["layer"], row["size"]) for row in rows] == [(layer, size) for layer in ("channel", "mpi") for size in SIZES]
    for row in rows:
        assert (row["mpi"], row["network"], row["benchmark"], row["cipher"], row["turns"]) == (name, "veth", "ping-pong", "AES-256-GCM", 2)
        assert row["plain_us"] > 0 and row["sealed_us"] > 0 and row["plain_cpu_us"] > 0 and row["sealed_cpu_us"] > 0
        assert row["bound_us"] > row["plain_us"]
        assert row["target_pct"] > 0 and row["verdict"] in ("pass", "MISSED")
    assert "Against the targets" in done.stdout
