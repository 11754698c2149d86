"""One whole job under each MPI: `cryptmpi run` finds the launcher, seals it and its ranks across two nodes, and proves
it."""

import secrets
import signal
import subprocess

import pytest
from conftest import BUILD, REPOSITORY, expect_unseen

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.nodes import Lab
from cryptmpi_tools.lab.programs import CANARY
from cryptmpi_tools.lab.sealing import Sealing


def built(mpi, folder):
    """cryptmpi_tools/lab/kinds_of_call.c, by the MPI's own compiler, or by that of another MPI of the same ABI."""
    compiler = mpi.mpicc or stacks.stack(mpi.built_with).mpicc
    if not mpi.present() or not compiler.exists():
        pytest.skip(f"{mpi.title} is not installed (make mpis)")
    program = folder / "canary"
    done = subprocess.run([compiler, "-O1", "-o", program, CANARY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def ended(mpi, done):
    """Debian's MPICH 4.0.2 over UCX now and then prints its result and does not exit, plain too: its result counts."""
    return done.ok or (mpi.name == "mpich-4.0.2-ucx" and done.timed_out and "all as sent" in done.output)


@pytest.mark.every_mpi
@pytest.mark.parametrize("mpi", stacks.STACKS, ids=lambda mpi: mpi.name)
def test_sealed_job(mpi, nodes, tmp_path):
    program = built(mpi, tmp_path)
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    job = [str(program), str(tmp_path / "canary.bin")]
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi)}
    with nodes.capture(tmp_path / "plain.pcap"):
        plain = nodes.run(mpi.command(nodes, 2, job), env=environment, timeout=60, cwd=tmp_path)
    assert ended(mpi, plain), plain.output
    assert count(tmp_path / "plain.pcap", [canary])[0][canary] > 0

    sealing = Sealing(tmp_path / "config", nodes, BUILD / "bin" / "cryptmpi")
    report = tmp_path / "report.json"
    with nodes.capture(tmp_path / "sealed.pcap"):
        line = sealing.run_line(mpi, nodes, 2, job, report)
        line[2:2] = ["--mpi", str(mpi.mpiexec)]
        sealed = nodes.run(line, env={**environment, **sealing.env()}, timeout=180, cwd=tmp_path)
    assert sealed.ok, sealed.output
    expect_unseen(count(tmp_path / "sealed.pcap", [canary])[0][canary])
    facts = sealing.report(report)
    assert facts["complete"], facts
    assert facts["ranks_reported"] == facts["ranks"] == 2
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000
    assert facts["totals"]["failed_opens"] == 0
    assert not facts["errors"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("mpi", stacks.STACKS, ids=lambda mpi: mpi.name)
def test_worker_that_is_killed(mpi, number, build, nodes, tmp_path):
    """The rank is left as the last one that holds its connections, and ends them in order."""
    program = build(mpi, REPOSITORY / "tests" / "system" / "killed_worker.c")
    sealing = Sealing(tmp_path / "config", nodes, BUILD / "bin" / "cryptmpi")
    line = sealing.run_line(mpi, nodes, 2, [program, int(number)], tmp_path / "report.json", mpiexec=mpi.mpiexec)
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}
    sealed = nodes.run(line, env=environment, timeout=60, cwd=tmp_path)
    assert sealed.ok and sealed.output.count("the worker is gone") == 2, sealed.output
    assert "SEALED: all traffic" in sealed.output, sealed.output


@pytest.mark.parametrize("mpi", stacks.STACKS, ids=lambda mpi: mpi.name)
def test_everything_of_one_node_sealed(mpi, tmp_path):
    """Scope "all": the launcher's own connections on the node, too."""
    program = built(mpi, tmp_path)
    (tmp_path / "canary.bin").write_bytes(secrets.token_bytes(32))
    with Lab(isolated=False) as loopback:
        sealing = Sealing(tmp_path / "config", loopback, BUILD / "bin" / "cryptmpi")
        line = sealing.run_line(mpi, loopback, 2, [str(program), str(tmp_path / "canary.bin")], tmp_path / "report.json")
        line[2:2] = ["--mpi", str(mpi.mpiexec)]
        environment = {**mpi.env(loopback), **stacks.abi_environment(mpi), **sealing.env()}
        sealed = loopback.run(line, env=environment, timeout=180, cwd=tmp_path)
        assert sealed.ok, sealed.output
        facts = sealing.report(tmp_path / "report.json")
    assert facts["complete"] and not facts["errors"], facts
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000
    assert not facts["not_sealed"]
