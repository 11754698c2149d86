"""What passes between the nodes: sealed, nothing of the programs' data, and nothing but hellos and records."""

import subprocess
import sys

import pytest
import wire
from conftest import error_lines, expect_unseen
from cryptmpi_tools.lab import capture
from run_talk import talk
from talk import CANARY, CHUNKS


def captured_talk(nodes, path, environment):
    with nodes.capture(path):
        ends = talk(nodes, environment, environment)
    for seen, said in ends:
        assert seen["complete"], (seen, said)
    return ends


def test_a_plain_talk_shows_the_canary(nodes, tmp_path):
    """Else the test below could not fail."""
    captured_talk(nodes, tmp_path / "wire.pcap", {})
    found, _ = capture.count(tmp_path / "wire.pcap", [CANARY])
    assert found[CANARY] == 2 * CHUNKS
    for data in capture.streams(tmp_path / "wire.pcap").values():
        with pytest.raises(wire.NotRecords):
            wire.parse_stream(data)


def test_a_sealed_talk_is_hellos_and_records(nodes, sealing, tmp_path):
    report = sealing.report_file()
    captured_talk(nodes, tmp_path / "wire.pcap", sealing.environment(report))
    found, _ = capture.count(tmp_path / "wire.pcap", [CANARY, CANARY[:12]])
    expect_unseen(sum(found.values()))
    streams = capture.streams(tmp_path / "wire.pcap")
    assert len(streams) == 2
    counts = sorted((wire.parse_stream(data) for data in streams.values()), key=lambda c: c["bytes"])
    answers, requests = counts
    assert (answers["bytes"], requests["bytes"]) == (CHUNKS * 500, CHUNKS * 5000)
    assert requests["confirm"] == 1 and answers["confirm"] == 0
    assert answers["close"] == requests["close"] == 1
    parts = sealing.parts(report)
    on_wire = sum(count["data"] for count in counts)
    assert sum(part["sealed_records_sent"] for part in parts) >= on_wire


def test_the_same_talk_twice_has_nothing_in_common(nodes, sealing, tmp_path):
    """Fresh keys each time: no 16 bytes of ciphertext come again."""
    seen = set()
    for round_number in range(2):
        path = tmp_path / f"wire-{round_number}.pcap"
        captured_talk(nodes, path, sealing.environment())
        for data in capture.streams(path).values():
            blocks = {data[at:at + 16] for at in range(wire.HELLO, len(data) - 16, 16)}
            assert not blocks & seen
            seen |= blocks


def test_a_process_that_ends_without_closing(nodes, sealing, tmp_path):
    """A process that ends without closing its socket: the peer sees an ordinary end, the wire a whole stream."""
    script = ("import os, socket, sys\ns = socket.create_connection((sys.argv[1], 5555))\ns.sendall(b'canary' * 1000)\n"
              "s.shutdown(socket.SHUT_WR)\ns.recv(10)\n")
    server = ("import socket\nl = socket.create_server(('', 5555))\nprint('up', flush=True)\nc = l.accept()[0]\nn = 0\n"
              "while d := c.recv(10000): n += len(d)\nprint(n)\n")
    environment = sealing.environment()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with nodes.capture(tmp_path / "wire.pcap"):
        serving = nodes.start([sys.executable, "-c", server], node=1, env=environment, **pipes)
        assert serving.stdout.readline() == "up\n"
        asking = nodes.start([sys.executable, "-c", script, nodes.nodes[1].address], node=0, env=environment, **pipes)
        assert asking.wait(20) == 0
        out, err = serving.communicate(timeout=20)
    assert (out, error_lines(err)) == ("6000\n", [])
    for data in capture.streams(tmp_path / "wire.pcap").values():
        assert wire.parse_stream(data)["close"] == 1
