"""Whoever owns the network between the nodes, and has no key, neither chooses what a node runs nor speaks to MPI: he edits the packets of
launchers and of MPI itself, in jobs under the MPI layer."""

import shlex
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY, error_lines, needs
from jobs import TestedSealing, build  # noqa: F401
from test_mitm import middle  # noqa: F401

from lab import stacks

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


def run(mpi, lab, sealing, ranks, program, report):
    """`cryptmpi run` on the first two nodes, whose packets pass through the third."""
    options = mpi.launcher_options(lab)
    if mpi.family != "hydra":
        options += ["--map-by", ":OVERSUBSCRIBE"]
    more = ["--launcher-args", shlex.join(options)] if options else []
    line = [sealing.command, "run", "-n", ranks, "--hosts", f"node1:{ranks - 1},node2:1", "--rsh", lab.rsh, "--mpi", mpi.mpiexec, *more,
            "--report", report, *program]
    return lab.run(line, env={**mpi.env(lab), **stacks.abi_environment(mpi), **sealing.env()}, timeout=90)


def sealing_of(tmp_path, lab, **settings):
    return TestedSealing(tmp_path / "config", lab, BUILD / "bin" / "cryptmpi", {"layer": "mpi", "handshake_timeout_s": 20, **settings})


@pytest.mark.parametrize("name", NAMES)
def test_he_does_not_choose_what_a_node_runs(name, build, middle, tmp_path):
    mpi = stacks.stack(name)
    build(mpi, REPOSITORY / "demo" / "canary.c")  # skips where the MPI is not installed
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


def forging(mpi):
    """How he makes a message of rank 2 one of rank 1, and from whom it is received. MPICH keeps ranks of the own node and of others apart but
    where it receives from any."""
    if mpi.family != "hydra":
        return ["--forge-ob1", str(TAG), "2", "1"], []
    if mpi.transport.startswith("UCX"):  # its tag is made of MPI's, the sender's rank and the communicator
        message = [struct.pack("<IH", TAG, rank).hex() for rank in (2, 1)]
    else:  # libfabric's: the sender's rank as data of the completion, the tag
        message = [struct.pack("<QI", rank, TAG).hex() for rank in (2, 1)]
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
