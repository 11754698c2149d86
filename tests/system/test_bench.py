"""`python -m cryptmpi_tools.bench`, as short as it goes: the report has its rows, and they have times."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import CONGESTION_CONTROL

SIZES = [1, 16 << 10]
LISTENS = "import socket; s = socket.create_server(('', 7777)); print(flush=True); s.accept()[0].recv(1)"
ASKS = "import socket, sys; s = socket.create_connection((sys.argv[1], 7777)); print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16))"


def test_congestion_control_is_not_the_machines(two_nodes):
    if CONGESTION_CONTROL not in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split():
        pytest.skip(f"this kernel has no {CONGESTION_CONTROL}")
    with two_nodes.start([sys.executable, "-c", LISTENS], node=1, stdout=subprocess.PIPE) as listener:
        listener.stdout.readline()
        asked = two_nodes.run([sys.executable, "-c", ASKS, two_nodes.nodes[1].address], timeout=20)
    assert asked.ok and CONGESTION_CONTROL in asked.output, asked.output


@pytest.mark.parametrize("name", ["openmpi-4.1.4"])
def test_ping_pong_of_both_layers(name, two_nodes, tmp_path):
    mpi = stacks.stack(name)
    if not mpi.present():
        pytest.skip(f"{mpi.title} is not installed")
    line = [sys.executable, "-m", "cryptmpi_tools.bench", "--stack", name, "--network", "veth", "--benchmark", "ping-pong", "--cipher", "AES-256-GCM",
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
