"""Jobs under the fabric layer, through the door of UCX: right results, nothing of the program on the wire."""

import json
import secrets
from pathlib import Path

import pytest
from conftest import BUILD, error_lines, expect_unseen
from jobs import SealingUnderTest, run
from cryptmpi_tools.lab import capture, stacks

COMMAND = BUILD / "bin" / "cryptmpi"
HERE = Path(__file__).parent
PROGRAM = HERE / "fabric.c"
NOT_SEALED = 123
CANARY = b"fabric canary 7c1e"
CASES = ["talk", "unexpected", "many", "mixed", "datatypes", "one_sided", "collectives"]
MPICH = [stacks.stack("mpich-5.0.2-ucx"), stacks.stack("mpich-4.0.2-ucx")]
OPEN_MPI = [stacks.stack("openmpi-4.1.4-pml-ucx"), stacks.stack("openmpi-5.0.11-pml-ucx")]
ALL = pytest.mark.parametrize("mpi", [*MPICH, *OPEN_MPI], ids=lambda mpi: mpi.name)
NEWEST = MPICH[0]


def sealing_of(tmp_path, nodes, **settings):
    return SealingUnderTest(tmp_path / "config", nodes, COMMAND, {"layer": "fabric", "handshake_timeout_s": 20, **settings})


def count_canaries(nodes, path, job):
    with nodes.capture(path):
        done = job()
    assert done.ok, done.output
    found, _ = capture.count(path, [CANARY])
    return found[CANARY]


def test_a_plain_job_shows_the_canary(nodes, tmp_path, build):
    """Else the test below could not fail."""
    program = build(NEWEST, PROGRAM)
    assert count_canaries(nodes, tmp_path / "wire.pcap", lambda: run(NEWEST, nodes, None, [program, "talk"])) > 1000


@ALL
def test_nothing_of_the_program_is_on_the_wire(nodes, tmp_path, build, mpi):
    """The sockets are not sealed below: what is gone, the fabric layer has sealed."""
    sealing = sealing_of(tmp_path, nodes, seal_sockets="false", network="any")
    program = build(mpi, PROGRAM)
    job = lambda: run(mpi, nodes, sealing, [program, "talk", "unexpected"])  # noqa: E731
    expect_unseen(count_canaries(nodes, tmp_path / "wire.pcap", job))


@ALL
@pytest.mark.parametrize("case", CASES)
def test_results_are_right(nodes, tmp_path, build, mpi, case):
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [build(mpi, PROGRAM), case])
    assert done.ok and f"{case} ok" in done.output, done.output
    assert not error_lines(done.output), done.output


@ALL
def test_several_threads_seal_and_open_long_messages(nodes, tmp_path, build, mpi):
    cases = ["talk", "mixed", "datatypes"]
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, threads=4), [build(mpi, PROGRAM), *cases])
    assert done.ok and all(f"{case} ok" in done.output for case in cases), done.output
    assert not error_lines(done.output), done.output


WINDOWS = ["counters", "exclusion", "ring", "requests", "dynamic"]


@pytest.mark.parametrize("mpi", OPEN_MPI, ids=lambda mpi: mpi.name)
@pytest.mark.parametrize("case", WINDOWS)
def test_one_sided_operations_are_messages_of_ours(nodes, tmp_path, build, mpi, case):
    """Open MPI's osc ucx knows put, get and atomic operations of UCX alone."""
    program = build(mpi, HERE / "fabric_windows.c")
    plain = run(mpi, nodes, None, [program, case], ranks=4)
    assert plain.ok and f"{case} ok" in plain.output, plain.output
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [program, case], ranks=4)
    assert done.ok and f"{case} ok" in done.output, done.output
    assert not error_lines(done.output), done.output


@pytest.mark.parametrize("mpi", OPEN_MPI, ids=lambda mpi: mpi.name)
def test_nothing_that_is_put_or_got_is_on_the_wire(nodes, tmp_path, build, mpi):
    program = build(mpi, HERE / "fabric_onesided.c")
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    # The sockets are not sealed: what is gone, the fabric layer has sealed.
    sealing = sealing_of(tmp_path, nodes, seal_sockets="false", network="any")
    for name, under in [("plain", None), ("sealed", sealing)]:
        with nodes.capture(tmp_path / f"{name}.pcap"):
            done = run(mpi, nodes, under, [program, tmp_path / "canary.bin", "put_and_get"])
        assert done.ok and "all as put, got and accumulated" in done.output, done.output
        captured = (tmp_path / f"{name}.pcap").read_bytes()
        assert len(captured) > 100_000_000
        if under is None:
            assert captured.count(canary) > 1000
        else:
            expect_unseen(captured.count(canary))


SPAWNING = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm parent, child;
    MPI_Comm_get_parent(&parent);
    int number = 42;
    if (parent == MPI_COMM_NULL) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
        int rank;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0) MPI_Send(&number, 1, MPI_INT, 0, 7, child);
        MPI_Barrier(child);  // MPICH 5.0.2 over UCX does not wait in MPI_Comm_disconnect, plain too
        MPI_Comm_disconnect(&child);
    } else {
        number = 0;
        MPI_Recv(&number, 1, MPI_INT, 0, 7, parent, MPI_STATUS_IGNORE);
        if (number == 42) printf("spawned ok\\n");
        fflush(stdout);
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
    }
    MPI_Finalize();
    return 0;
}
"""


def test_a_spawned_rank_is_under_the_layer(nodes, tmp_path, build):
    """The launcher's processes start it, past `cryptmpi exec`."""
    (tmp_path / "spawning.c").write_text(SPAWNING)
    sealing = sealing_of(tmp_path, nodes)
    done = run_job(nodes, sealing, NEWEST, [build(NEWEST, tmp_path / "spawning.c")], tmp_path / "report.json")
    assert done.ok and "spawned ok" in done.output and "cryptmpi: SEALED: " in done.output, done.output


def run_job(nodes, sealing, mpi, program, report):
    return nodes.run(sealing.run_line(mpi, nodes, 2, program, report), env={**mpi.env(nodes), **sealing.env()}, timeout=60)


def test_the_verdict_of_a_job(nodes, tmp_path, build):
    sealing = sealing_of(tmp_path, nodes)
    report = tmp_path / "report.json"
    done = run_job(nodes, sealing, NEWEST, [build(NEWEST, PROGRAM), "talk"], report)
    assert done.ok and "cryptmpi: SEALED: " in done.output, done.output
    told = json.loads(report.read_text())
    assert told["layer"] == "fabric"
    assert told["totals"]["sealed_bytes_sent"] > 10_000_000


def test_a_job_past_the_door_is_not_called_sealed(nodes, tmp_path, build):
    """Open MPI over btl tcp uses neither UCX nor libfabric, and its roads are open."""
    mpi = stacks.stack("openmpi-4.1.4")
    sealing = sealing_of(tmp_path, nodes, network="any", seal_sockets="false")
    report = tmp_path / "report.json"
    done = run_job(nodes, sealing, mpi, [build(mpi, PROGRAM), "talk"], report)
    assert "cryptmpi: SEALED WITH EXCEPTIONS: " in done.output and "neither through UCX" in done.output, done.output
    assert done.returncode == NOT_SEALED
