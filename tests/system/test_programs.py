"""Programs that know nothing of us, between two nodes, sealed: a web server with curl, iperf3."""

import contextlib
import hashlib
import json
import random
import subprocess
import sys
import time

import pytest
import wire
from conftest import error_lines, expect_unseen, needs
from cryptmpi_tools.lab import capture

PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def await_port(nodes, port):
    """Until something listens on the second node; looked up there, so that no connection is made for it."""
    for _ in range(200):
        reading = nodes.start(["cat", "/proc/net/tcp", "/proc/net/tcp6"], node=1, **PIPES)
        listening = reading.communicate()[0]
        if any(f":{port:04X} " in line.split(" 0A ")[0] for line in listening.splitlines() if " 0A " in line):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


@contextlib.contextmanager
def serving(nodes, line, port, environment, cwd=None):
    process = nodes.start(line, node=1, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    try:
        await_port(nodes, port)
        yield process
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with files of many sizes, the biggest of 100 MB."""
    folder = tmp_path_factory.mktemp("served")
    source = random.Random(7)
    for name, size in {"empty": 0, "one": 1, "small": 4000, "middle": 300_000, "big": 100_000_000}.items():
        (folder / name).write_bytes(source.randbytes(size))
    return folder


def fetch(nodes, environment, address, name, *options):
    line = ["curl", "-sS", "--fail", "--max-time", "60", *options, f"http://{address}:8000/{name}"]
    curl = nodes.start(line, env=environment, **{**PIPES, "text": False})
    got, said = curl.communicate(timeout=90)
    assert curl.returncode == 0, said.decode()
    assert error_lines(said.decode()) == []
    return got


@needs("curl")
def test_web_server(nodes, sealing, served, tmp_path):
    environment = sealing.environment()
    address = nodes.nodes[1].address
    with serving(nodes, [sys.executable, "-m", "http.server", "8000", "--bind", address], 8000, environment, served):
        for name in ("empty", "one", "small", "middle", "big"):
            got = fetch(nodes, environment, address, name)
            assert hashlib.sha256(got).digest() == hashlib.sha256((served / name).read_bytes()).digest(), name
        with nodes.capture(tmp_path / "wire.pcap"):
            for name in ("small", "middle"):
                assert fetch(nodes, environment, address, name) == (served / name).read_bytes()
        assert fetch(nodes, environment, address, "middle", "--range", "1000-1999").find((served / "middle").read_bytes()[1000:2000]) >= 0
        assert b"Directory listing" in fetch(nodes, environment, address, "")
    needles = [(served / "middle").read_bytes()[1000:1032], b"HTTP/1"]
    found, total = capture.count(tmp_path / "wire.pcap", needles)
    expect_unseen(sum(found.values()))
    assert total > 300_000
    for data in capture.streams(tmp_path / "wire.pcap").values():
        wire.parse_stream(data)


@needs("curl")
def test_the_plain_web_server_shows_its_files(nodes, served, tmp_path):
    address = nodes.nodes[1].address
    needles = [(served / "middle").read_bytes()[1000:1032], b"HTTP/1"]
    with serving(nodes, [sys.executable, "-m", "http.server", "8000", "--bind", address], 8000, {}, served):
        with nodes.capture(tmp_path / "wire.pcap"):
            fetch(nodes, {}, address, "middle")
    found, _ = capture.count(tmp_path / "wire.pcap", needles)
    assert all(found.values()), found


@needs("iperf3")
@pytest.mark.parametrize("options", [(), ("-P", "4"), ("-R",), ("--bidir",), ("-Z",)], ids=lambda o: " ".join(o) or "one stream")
def test_iperf3(nodes, sealing, options):
    report = sealing.report_file()
    environment = sealing.environment(report)
    address = nodes.nodes[1].address
    with serving(nodes, ["iperf3", "--server", "--one-off", "--bind", address], 5201, environment):
        client = nodes.start(["iperf3", "--client", address, "--time", "2", "--json", *options], env=environment, **PIPES)
        out, err = client.communicate(timeout=40)
    assert client.returncode == 0, out + err
    assert error_lines(err) == []
    result = json.loads(out)
    assert "error" not in result
    assert result["end"]["sum_received"]["bytes"] > 0
    parts = sealing.parts(report)
    assert sum(part["failed_opens"] for part in parts) == 0
    assert max(part["sealed_bytes_received"] for part in parts) >= result["end"]["sum_received"]["bytes"]
