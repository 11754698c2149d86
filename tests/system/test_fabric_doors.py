"""The roads between nodes under the fabric layer: its doors are open for what it seals, and everything else is closed or sealed."""

import json
import subprocess
from pathlib import Path

import pytest
from jobs import SealingUnderTest, build  # noqa: F401
from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.sealing import COMMAND

HERE = Path(__file__).parent
TALK = HERE / "fabric.c"
CANARY = b"fabric canary 7c1e"
UCX = stacks.stack("mpich-5.0.2-ucx")
LIBFABRIC = stacks.stack("mpich-5.0.2-ofi")
ROADS = pytest.mark.parametrize("mpi", [UCX, LIBFABRIC, stacks.UDP], ids=lambda mpi: mpi.name)


def sealing_of(tmp_path, nodes, **settings):
    return SealingUnderTest(tmp_path / "config", nodes, COMMAND, {"layer": "fabric", "handshake_timeout_s": 20, **settings})


def run_job(mpi, nodes, sealing, program, report):
    line = sealing.run_line(mpi, nodes, 2, program, report)
    return nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60)


@ROADS
def test_a_job_is_sealed_and_nothing_of_it_an_exception(mpi, nodes, tmp_path, build):  # noqa: F811
    sealing, report, wire = sealing_of(tmp_path, nodes), tmp_path / "report.json", tmp_path / "wire.pcap"
    program = build(mpi, TALK)
    with nodes.capture(wire):
        done = run_job(mpi, nodes, sealing, [program, "talk"], report)
    assert done.ok and "cryptmpi: SEALED: " in done.output, done.output
    assert wire.stat().st_size > 1_000_000 and CANARY not in wire.read_bytes()
    assert json.loads(report.read_text())["layer"] == "fabric"


def test_what_is_sealed_is_not_sealed_again(nodes, tmp_path, build):  # noqa: F811
    """Unless it is asked for: where TCP alone is open, the sockets of UCX are streams like all others."""
    def sealed_bytes(**settings):
        report = tmp_path / f"{len(settings)}.json"
        done = run_job(UCX, nodes, sealing_of(tmp_path, nodes, **settings), [build(UCX, TALK), "talk"], report)
        assert done.ok and "cryptmpi: SEALED: " in done.output, done.output
        told = json.loads(report.read_text())
        return told["totals"]["sealed_bytes_sent"], told["sockets"]["sealed_bytes_sent"]

    messages, sockets = sealed_bytes()
    assert sockets < messages / 100  # what the launcher and MPI's start say
    messages, sockets = sealed_bytes(network="tcp")
    assert sockets > messages


@pytest.fixture(scope="module")
def past_the_doors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    gcc = ["gcc", "-O1", "-Wall", "-Werror", "-D_GNU_SOURCE"]
    subprocess.run([*gcc, "-o", folder / "doors", HERE / "fabric_doors.c", "-lfabric", "-luct", "-lucs", "-ldl"], check=True)
    return folder


def lines_of(nodes, folder, sealing):
    program = [folder / "doors", nodes.nodes[1].address]
    done = nodes.run(sealing.exec_line(program) if sealing else program, env=sealing.env() if sealing else {}, timeout=30)
    assert done.ok, done.output
    # UCX's own lines begin with a bracket.
    return {line for line in done.output.splitlines() if not line.startswith(("cryptmpi:", "["))}, done.output


NOT_THERE, REFUSED = "No such file or directory", "Permission denied"
THROUGH = f"device of libfabric: {NOT_THERE}"


def test_plain_everything_is_open(nodes, past_the_doors):
    lines, _ = lines_of(nodes, past_the_doors, None)
    assert lines == {f"device: {NOT_THERE}", THROUGH, "datagram: done", "transport: Success", "hidden ucp: done",
                     "datagram of UCX: done"}


def test_past_the_doors_everything_is_closed(nodes, tmp_path, past_the_doors):
    lines, output = lines_of(nodes, past_the_doors, sealing_of(tmp_path, nodes))
    assert lines == {f"device: {REFUSED}", THROUGH, "datagram: Operation not permitted", "transport: Unsupported operation",
                     "hidden ucp: no network", "datagram of UCX: Operation not permitted"}
    assert "/dev/infiniband/uverbs77 is refused" in output and "uct_md_open is refused" in output, output


@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_other_layers_have_no_doors(nodes, tmp_path, past_the_doors, layer):
    lines, output = lines_of(nodes, past_the_doors, sealing_of(tmp_path, nodes, layer=layer, network="tcp"))
    assert f"device of libfabric: {REFUSED}" in lines and "datagram: Operation not permitted" in lines, output
