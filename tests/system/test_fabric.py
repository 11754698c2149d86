"""Jobs under the fabric layer, through the door of UCX: right results, nothing of the program on the wire."""

import json
from pathlib import Path

import pytest
from conftest import error_lines
from jobs import TestedSealing, build, run  # noqa: F401
from lab import capture, stacks
from lab.sealing import COMMAND

HERE = Path(__file__).parent
PROGRAM = HERE / "fabric.c"
NOT_SEALED = 123
CANARY = b"fabric canary 7c1e"
CASES = ["talk", "unexpected", "many", "mixed", "datatypes", "one_sided", "collectives"]
UCX = [stacks.stack("mpich-5.0.2-ucx"), stacks.stack("mpich-4.0.2-ucx")]
ALL = pytest.mark.parametrize("mpi", UCX, ids=lambda mpi: mpi.name)
NEWEST = UCX[0]


def sealing_of(tmp_path, nodes, **settings):
    return TestedSealing(tmp_path / "config", nodes, COMMAND, {"layer": "fabric", "handshake_timeout_s": 20, **settings})


def count_canaries(nodes, path, job):
    with nodes.capture(path):
        done = job()
    assert done.ok, done.output
    found, _ = capture.count(path, [CANARY])
    return found[CANARY]


def test_a_plain_job_shows_the_canary(nodes, tmp_path, build):  # noqa: F811
    """Else the test below could not fail."""
    program = build(NEWEST, PROGRAM)
    assert count_canaries(nodes, tmp_path / "wire.pcap", lambda: run(NEWEST, nodes, None, [program, "talk"])) > 1000


@ALL
def test_nothing_of_the_program_is_on_the_wire(nodes, tmp_path, build, mpi):  # noqa: F811
    """The sockets are not sealed below: what is gone, the fabric layer has sealed."""
    sealing = sealing_of(tmp_path, nodes, seal_sockets="false", network="any")
    program = build(mpi, PROGRAM)
    job = lambda: run(mpi, nodes, sealing, [program, "talk", "unexpected"])  # noqa: E731
    assert count_canaries(nodes, tmp_path / "wire.pcap", job) == 0


@ALL
@pytest.mark.parametrize("case", CASES)
def test_results_are_right(nodes, tmp_path, build, mpi, case):  # noqa: F811
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [build(mpi, PROGRAM), case])
    assert done.ok and f"{case} ok" in done.output, done.output
    assert not error_lines(done.output), done.output


def run_job(nodes, sealing, mpi, program, report):
    return nodes.run(sealing.run_line(mpi, nodes, 2, program, report), env={**mpi.env(nodes), **sealing.env()}, timeout=60)


def test_the_verdict_of_a_job(nodes, tmp_path, build):  # noqa: F811
    sealing = sealing_of(tmp_path, nodes)
    report = tmp_path / "report.json"
    done = run_job(nodes, sealing, NEWEST, [build(NEWEST, PROGRAM), "talk"], report)
    assert done.ok and "cryptmpi: SEALED: " in done.output, done.output
    told = json.loads(report.read_text())
    assert told["layer"] == "fabric"
    assert told["totals"]["sealed_bytes_sent"] > 10_000_000


def test_a_job_past_the_door_is_not_called_sealed(nodes, tmp_path, build):  # noqa: F811
    """Open MPI over btl tcp uses neither UCX nor libfabric, and its roads are open."""
    mpi = stacks.stack("openmpi-4.1.4")
    sealing = sealing_of(tmp_path, nodes, network="any", seal_sockets="false")
    report = tmp_path / "report.json"
    done = run_job(nodes, sealing, mpi, [build(mpi, PROGRAM), "talk"], report)
    assert "cryptmpi: SEALED WITH EXCEPTIONS: " in done.output and "neither through UCX" in done.output, done.output
    assert done.returncode == NOT_SEALED
