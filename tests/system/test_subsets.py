"""Communicators of some ranks of a job: their members draw the secret of what goes to all of them."""

import pytest
from conftest import REPOSITORY
from jobs import build, run, sealing_of  # noqa: F401

from lab import stacks

# Not MPICH 4.0.2 over UCX: with more ranks than cores it sometimes does not exit after its result.
MPIS = ["openmpi-4.1.4", "mpich-5.0.2-ofi"]


@pytest.mark.parametrize("scope", ["all", "between-nodes"])
@pytest.mark.parametrize("name", MPIS)
def test_collective_operations_of_some_ranks(name, scope, build, nodes, tmp_path):  # noqa: F811
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "subsets.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, layer="mpi", scope=scope), [str(program)], ranks=5, timeout=120)
    assert done.returncode == 0 and "subsets: all is right" in done.output, done.output
