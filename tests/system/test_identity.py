"""Which process and which node a rank is: a forked child, one that is restored from a checkpoint, one whose kernel only
looks like another's."""

import json

import pytest
from conftest import REPOSITORY, error_lines
from jobs import run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import FirstNodes

BOTH = pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])


@BOTH
@pytest.mark.parametrize("how", ["fork", "clone", "function", "_Fork"])
def test_forked_child(name, how, build, nodes, tmp_path):
    """It has its parent's keys and counts: the exclusive or of what both send would be that of their messages."""
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "forked.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [program, how])
    assert "forked: the child was refused" in done.output and "SENT" not in done.output, done.output
    assert done.output.count("the parent's") == 2 and "WRONG" not in done.output, done.output
    assert any("forked child" in line for line in error_lines(done.output)), done.output


@pytest.mark.parametrize("layer", ["mpi", "channel"])
def test_checkpoints_are_refused(layer, build, nodes, tmp_path):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "forked.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, layer=layer), [program], env={"DMTCP_HIJACK_LIBS": "libdmtcp.so"})
    # Open MPI hands no variables on to other nodes.
    assert done.returncode != 0 and "forked:" not in done.output, done.output
    assert any("DMTCP" in line for line in error_lines(done.output)), done.output


NODE_OF_ITS_OWN = 'exec unshare --mount sh -c \'mount -t tmpfs tmpfs /dev/shm && exec "$@"\' sh "$@"'


@pytest.mark.parametrize("copied", [False, True], ids=["one kernel", "as if copied"])
@BOTH
def test_nodes_that_look_alike(name, copied, build, nodes, tmp_path):
    """Virtual machines that were copied while they ran have one boot id and one number of their network namespace, but
    no memory in common: here two ranks of one machine that share no memory."""
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "members.c")
    report = tmp_path / "report.json"
    sealing = sealing_of(tmp_path, nodes, report_file=report)
    ranks = sealing.exec_line([program, "00" * 32])
    if copied:
        ranks = ["sh", "-c", NODE_OF_ITS_OWN, "sh", *ranks]
    # They must not look for shared memory.
    sockets = {"MPIR_CVAR_NOLOCAL": "1"}
    line = ["tcp,self" if word == mpi.btl else word for word in mpi.command(FirstNodes(nodes, 1), 2, ranks)]
    done = nodes.run(line, env={**mpi.env(nodes), **sockets, **sealing.env()}, timeout=60)
    assert "members: all as sent" in done.output, done.output
    parts = [json.loads(part.read_text()) for part in (tmp_path / "report.json.parts").glob("*.json")]
    sealed = sum(part["sealed_bytes_sent"] for part in parts if part.get("rank", -1) >= 0)
    assert (sealed > 0) == copied, (parts, done.output)
