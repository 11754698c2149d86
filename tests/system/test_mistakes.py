"""Mistakes of a program: it is told of them as MPI tells it, and nobody takes them for an attack."""

import re

import pytest
from conftest import REPOSITORY, error_lines
from jobs import ended, run, sealing_of

from cryptmpi_tools.lab import stacks

MPIS = pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "openmpi-4.1.4"])
SOURCE = REPOSITORY / "tests" / "system" / "mistakes.c"


def told(done):
    return sorted(line for line in done.output.splitlines() if line.startswith("mistakes: "))


def check_told_as_plain(mpi, mistake, ranks, build, nodes, tmp_path):
    job = [build(mpi, SOURCE), mistake]
    plain, sealed = (run(mpi, nodes, sealing, job, ranks, timeout=30) for sealing in (None, sealing_of(tmp_path, nodes)))
    assert ended(mpi, plain, "made") and plain.output.count(": made") == ranks, plain.output
    assert not sealed.timed_out and told(sealed) == told(plain), (sealed.why(), sealed.output, set(told(sealed)) ^ set(told(plain)))
    assert "altered" not in sealed.output, sealed.output


@pytest.mark.parametrize("mistake", ["null", "operation", "alias", "own", "types", "places", "part", "inactive", "sendrecv", "handled"])
@MPIS
def test_mistakes_are_told_as_plain(name, mistake, build, nodes, tmp_path):
    check_told_as_plain(stacks.stack(name), mistake, 2, build, nodes, tmp_path)


# MPIs differ in whose error handler they call.
@pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "mpich-4.0.2-ucx", "mpich-3.4.3-ch3", "openmpi-4.1.4", "mpich-5.0.2-abi"])
def test_mistakes_with_no_communicator_are_told_as_plain(name, build, nodes, tmp_path):
    check_told_as_plain(stacks.stack(name), "nobody", 2, build, nodes, tmp_path)


@MPIS
def test_communicators_that_mpi_keeps(name, build, nodes, tmp_path):
    check_told_as_plain(stacks.stack(name), "kept", 4, build, nodes, tmp_path)


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "openmpi-5.0.11"])   # MPICH calls no communicator's own error handler
def test_several_requests(name, build, nodes, tmp_path):
    check_told_as_plain(stacks.stack(name), "several", 2, build, nodes, tmp_path)


@MPIS
def test_what_is_cut_off_is_told_once_and_is_no_alarm(name, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    report = tmp_path / "report.json"
    sealing = sealing_of(tmp_path, nodes)
    line = sealing.run_line(mpi, nodes, 2, [str(build(mpi, SOURCE)), "cut"], report)
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    done = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=30, cwd=tmp_path)
    assert not done.timed_out and done.output.count(": made") == 2, done.output
    assert done.output.count(": heard: ") == 4 and "could not be opened" in done.output, done.output
    assert re.search(r"^cryptmpi: SEALED.* 4 message\(s\) were longer than their receives", done.output, re.MULTILINE), done.output
    totals = sealing.report(report)["totals"]
    assert (totals["failed_opens"], totals["cut_off"]) == (0, 4), totals


# MPICH's ranks take more than was expected, over what they have yet to send themselves: no such block can be told from
# an altered one, and what is said of it names both.
MIXED = {("mpich-5.0.2-ofi", "Allgather")}


# Elements that the root has, or says, and the others.
@pytest.mark.parametrize("counts", [(3, 4), (4, 3), (100, 90), (90, 100)], ids=lambda counts: "-".join(map(str, counts)))
@pytest.mark.parametrize("operation", ["Bcast", "Gather", "Scatter", "Allgather", "Alltoall", "Alltoallv", "Reduce", "Allreduce", "Scan"])
@MPIS
def test_ranks_that_disagree_in_a_size(name, operation, counts, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    report = tmp_path / "report.json"
    sealing = sealing_of(tmp_path, nodes)
    line = sealing.run_line(mpi, nodes, 2, [str(build(mpi, SOURCE)), "sizes", operation, *map(str, counts)], report)
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    done = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=30, cwd=tmp_path)
    assert not done.timed_out and "replayed" not in done.output, done.output
    # Every line, the verdict's too where it blames something, says that it may be a mistake.
    assert not [line for line in error_lines(done.output) if not re.search("disagreed? in|: SEALED: |: INCOMPLETE: ", line)], done.output
    if (name, operation) in MIXED:  # MPI itself may end the job, too
        return
    assert "altered" not in done.output, done.output
    classes = re.findall(rf"mistakes: rank \d: MPI_{operation}\(.*: (\d+)$", done.output, re.MULTILINE)
    assert len(classes) == 2 and set(classes) != {"0"}, done.output
    assert sealing.report(report)["totals"]["failed_opens"] == 0
