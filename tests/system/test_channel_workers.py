"""Workers under the channel layer: whole jobs across two nodes, whose records several threads seal and open
together."""

import re
import secrets
import subprocess

import pytest
from conftest import REPOSITORY, error_lines
from jobs import ended, run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.programs import CANARY

MPIS = pytest.mark.parametrize("name", ["openmpi-4.1.4", "openmpi-5.0.11", "mpich-5.0.2-ofi", "impi-2021.19-ofi"])
CHANNEL = {"layer": "channel"}


# However many cores there are, and with none that is idle: which records others seal or open is chance, that they do
# some is not.
@pytest.mark.parametrize("threads, shared", [(4, True), (1, False)])
@MPIS
def test_records_are_shared(name, threads, shared, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, CANARY)
    (tmp_path / "canary.bin").write_bytes(secrets.token_bytes(32))
    sealing = sealing_of(tmp_path, nodes, **CHANNEL, threads=threads)
    line = sealing.run_line(mpi, nodes, 2, [str(program), str(tmp_path / "canary.bin"), "messages"], tmp_path / "report.json")
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}
    done = nodes.run(line, env=environment, timeout=180, cwd=tmp_path)
    assert ended(mpi, done, "all as sent"), done.output
    facts = sealing.report(tmp_path / "report.json")
    assert facts["layer"] == "channel" and facts["complete"] and not facts["errors"], facts
    assert facts["totals"]["failed_opens"] == 0
    assert facts["totals"]["sealed_bytes_sent"] > 100_000_000
    assert (facts["totals"]["records_by_workers"] > 0) == shared, facts["totals"]


def workers_of_ranks(name, before, ranks, settings, build, nodes, tmp_path):
    """How many workers each rank has after a large message."""
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, **CHANNEL, **settings)
    line = [*before, *sealing.exec_line([program, "workers"])]
    done = nodes.run(mpi.command(nodes, ranks, line), env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60)
    assert ended(mpi, done, "cases right") and not error_lines(done.output), done.output
    found = re.findall(r"messages: a rank with (\d+) workers", done.output)  # two ranks' lines may be one
    assert len(found) == ranks, done.output
    return {int(workers) for workers in found}


# With one hardware thread none is idle. More than four threads would wait for the kernel.
@pytest.mark.parametrize("before, settings, workers", [([], {"threads": 3}, 2), ([], {"threads": 9}, 3), ([], {"threads": 1}, 0),
                                                       (["taskset", "-c", "0"], {}, 0)],
                         ids=["3", "9", "1", "auto"])
@MPIS
def test_workers(name, before, settings, workers, build, nodes, tmp_path):
    assert workers_of_ranks(name, before, 2, settings, build, nodes, tmp_path) == {workers}


# T0 - T1 of eight hardware threads of a node, shared by its ranks, whom each finds among its siblings.
@pytest.mark.parametrize("ranks, variables, workers", [
    (2, [], 3),
    (4, [], 1),
    (6, [], 0),
    (2, ["OMP_NUM_THREADS=5"], 1),
    (2, ["OMP_NUM_THREADS=2,4"], 0),
])
@MPIS
def test_workers_of_a_wide_node(name, ranks, variables, workers, build, nodes, tmp_path):
    wide = tmp_path / "wide.so"
    source = REPOSITORY / "tests" / "system" / "wide.c"
    subprocess.run([stacks.stack("openmpi-4.1.4").mpicc, "-O1", "-shared", "-fPIC", "-o", wide, source], check=True)
    before = ["env", f"LD_PRELOAD={wide}", *variables]
    assert workers_of_ranks(name, before, ranks, {}, build, nodes, tmp_path) == {workers}


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
def test_large_messages_with_workers(name, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    cases = ["large", "large_while_elsewhere", "large_to_all", "large_many", "large_in_flight", "large_vectors", "threads_mixed"]
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, **CHANNEL, threads=4), [str(program), *cases])
    assert ended(mpi, done, "cases right"), done.output
    assert f"messages: {len(cases)} cases right" in done.output and not error_lines(done.output), done.output
