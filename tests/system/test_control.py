"""Whoever owns the network between the nodes, and has no key, neither chooses what a node runs nor speaks to MPI: he
edits the packets of launchers and of MPI itself, in jobs under the MPI layer."""

import shlex
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY, error_lines, needs
from jobs import SealingUnderTest

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.programs import CANARY

EDITOR = Path(__file__).with_name("editor.py")
TAG = 23123  # of tests/system/forged.c
NAMES = ["openmpi-4.1.4", "mpich-5.0.2-ucx", "mpich-5.0.2-ofi", "mpich-4.0.2-ucx"]

pytestmark = needs("nft")


class Editor:
    def __init__(self, lab, *options):
        self.process = lab.start([sys.executable, EDITOR, *options], node=2, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.did_it = "done" in self.process.communicate()[0]


def run(mpi, lab, sealing, ranks, program, report, **env):
    """`cryptmpi run` on the first two nodes, whose packets pass through the third."""
    options = mpi.launcher_options(lab)
    if mpi.family != "hydra":
        options += ["--map-by", ":OVERSUBSCRIBE"]
    more = ["--launcher-args", shlex.join(options)] if options else []
    line = [sealing.command, "run", "-n", ranks, "--hosts", f"node1:{ranks - 1},node2:1", "--rsh", lab.rsh, "--mpi", mpi.mpiexec, *more,
            "--report", report, *program]
    return lab.run(line, env={**mpi.env(lab), **stacks.abi_environment(mpi), **sealing.env(), **env}, timeout=90)


def sealing_of(tmp_path, lab, **settings):
    return SealingUnderTest(tmp_path / "config", lab, BUILD / "bin" / "cryptmpi", {"layer": "mpi", "handshake_timeout_s": 20, **settings})


@pytest.mark.parametrize("name", NAMES)
def test_he_does_not_choose_what_a_node_runs(name, build, middle, tmp_path):
    mpi = stacks.stack(name)
    build(mpi, CANARY)  # skips where the MPI is not installed
    for word in ("good", "evil"):
        script = tmp_path / f"{word}-program"
        script.write_text(f"#!/bin/sh\necho {word} > {tmp_path}/$(hostname).{word}\n")
        script.chmod(0o755)
    words = [str(tmp_path / f"{word}-program").encode().hex() for word in ("good", "evil")]
    with Editor(middle, "--replace", *words) as editor:
        done = run(mpi, middle, sealing_of(tmp_path, middle), 2, [tmp_path / "good-program"], tmp_path / "report.json")
    assert not list(tmp_path.glob("*.evil")), done.output
    assert not editor.did_it
    assert (tmp_path / "node2.good").exists(), done.output


def forging(mpi, source=1):
    """How he makes a message of rank 2 one of rank 1, and from whom it is received. MPICH keeps ranks of the own node
    and of others apart but where it receives from any."""
    if mpi.family != "hydra":
        return ["--forge-ob1", str(TAG), "2", str(source)], [] if source == 1 else ["any"]
    if mpi.transport.startswith("UCX"):  # its tag is made of MPI's, the sender's rank and the communicator
        message = [struct.pack("<IH", TAG, rank).hex() for rank in (2, source)]
    else:  # libfabric's: the sender's rank as data of the completion, the tag
        message = [struct.pack("<QI", rank, TAG).hex() for rank in (2, source)]
    return ["--replace", *message], ["any"]


# MPICH 5.0.2 over UCX now and then hangs, plain too, in a receive from any.
@pytest.mark.parametrize("sockets", [True, False], ids=["sealed-sockets", "clear-sockets"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "mpich-5.0.2-ucx"])
def test_he_does_not_speak_as_a_rank_of_the_own_node(name, sockets, build, middle, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "forged.c")
    attack, words = forging(mpi)
    settings = {} if sockets else {"seal_sockets": "false", "scope": "auto"}
    with Editor(middle, *attack) as editor:
        done = run(mpi, middle, sealing_of(tmp_path, middle, **settings), 3, [program, *words], tmp_path / "report.json")
    assert "of somebody else" not in done.output and not done.timed_out, done.output
    assert editor.did_it is not sockets, done.output
    if sockets:
        assert "from rank 1 64 bytes: of rank 1" in done.output, done.output
    else:
        assert any("does not open" in line for line in error_lines(done.output)), done.output
        assert "received with code 0" not in done.output, done.output


@pytest.mark.parametrize("source", [0, 9], ids=["itself", "nobody"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "mpich-5.0.2-ucx"])
def test_he_does_not_speak_as_the_receiver_itself_or_as_nobody(name, source, build, middle, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "forged.c")
    attack, words = forging(mpi, source)
    sealing = sealing_of(tmp_path, middle, seal_sockets="false", scope="auto")
    with Editor(middle, *attack) as editor:
        done = run(mpi, middle, sealing, 3, [program, *words], tmp_path / "report.json")
    assert editor.did_it and "received with code 0" not in done.output and not done.timed_out, done.output


def test_roads_around_tcp_are_open_to_ranks_where_another_network_carries_mpi(build, middle, tmp_path):
    """UDP, which stands for all that is not TCP. Strangers can speak to MPI there, so nothing is taken unsealed; the
    launcher has no such road."""
    mpi = stacks.stack("mpich-5.0.2-ofi")
    program = build(mpi, REPOSITORY / "tests" / "system" / "forged.c")
    sealing = sealing_of(tmp_path, middle, layer="mpi")
    done = run(mpi, middle, sealing, 3, [program, "any"], tmp_path / "report.json", FI_PROVIDER="udp")
    assert "from rank 1 64 bytes: of rank 1" in done.output and not done.timed_out, done.output
    facts = sealing.report(tmp_path / "report.json")
    assert facts["layer"] == "mpi" and facts["scope"] == "all" and facts["refused_roads"] == [], facts
    (left,) = [entry["reason"] for entry in facts["not_sealed"]]
    assert left.startswith("MPI's own packets") and "network = any" in left


def test_roads_around_tcp_are_closed_to_ranks_where_tcp_carries_mpi(build, middle, tmp_path):
    mpi = stacks.stack("mpich-5.0.2-ofi")
    program = build(mpi, REPOSITORY / "tests" / "system" / "forged.c")
    sealing = sealing_of(tmp_path, middle, network="tcp", agreement_timeout_s=2, handshake_timeout_s=5, abort_after_s=3)
    done = run(mpi, middle, sealing, 3, [program, "any"], tmp_path / "report.json", FI_PROVIDER="udp")
    assert "received" not in done.output and not done.ok and not done.timed_out, done.output
    assert any("UDP to 10.77.0." in line and "is refused" in line for line in error_lines(done.output)), done.output


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
def test_a_rank_that_takes_more_unsealed_than_others_ends_the_job(name, build, middle, tmp_path):
    """As where one node has other settings: rank 2, which would take what strangers send."""
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "forged.c")
    sealing = sealing_of(tmp_path, middle, seal_sockets="false", scope="all", agreement_timeout_s=2, handshake_timeout_s=5)
    script = f'[ "${{PMIX_RANK:-$PMI_RANK}}" = 2 ] && export CRYPTMPI_SCOPE=between-nodes; exec {sealing.command} exec -- {program} any'
    done = run(mpi, middle, sealing, 3, ["sh", "-c", script], tmp_path / "report.json")
    assert "received" not in done.output and not done.ok and not done.timed_out, done.output
    assert any("rank 2 seals between nodes" in line and "we all messages" in line for line in error_lines(done.output)), done.output
