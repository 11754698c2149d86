"""Communicators of some ranks of a job: their members draw the secret of what goes to all of them."""

import pytest
from conftest import REPOSITORY
from jobs import run, sealing_of

from cryptmpi_tools.lab import stacks

# Not MPICH 4.0.2 over UCX: with more ranks than cores it sometimes does not exit after its result.
MPIS = ["openmpi-4.1.4", "mpich-5.0.2-ofi"]


@pytest.mark.parametrize("scope", ["all", "between-nodes"])
@pytest.mark.parametrize("name", MPIS)
def test_collective_operations_of_some_ranks(name, scope, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "subsets.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, layer="mpi", scope=scope), [str(program)], ranks=5, timeout=120)
    assert done.returncode == 0 and "subsets: all is right" in done.output, done.output


class Spliced:
    """spliced.c, whose ranks 0 and 1 have two communicators, with splicing.c below it."""

    def __init__(self, name, build, nodes, tmp_path):
        self.mpi, self.nodes, self.folder = stacks.stack(name), nodes, tmp_path
        self.program = build(self.mpi, REPOSITORY / "tests" / "system" / "spliced.c")
        self.below = build(self.mpi, REPOSITORY / "tests" / "system" / "splicing.c", "-shared", "-fPIC")

    def run(self, attack):
        """What it printed, and what its ranks said of errors: Hydra may lose what a rank says just before it ends the
        job."""
        said = self.folder / "said"
        sealing = sealing_of(self.folder, self.nodes, layer="mpi", scope="all")
        ranks = ["env", f"SPLICING={attack}", f"CRYPTMPI_INTERNAL_BELOW={self.below}", "sh", "-c", f'exec "$@" 2>> {said}', "sh",
                 *sealing.exec_line([self.program])]
        line = self.mpi.command(self.nodes, 3, ranks, per_node=2)
        environment = {**self.mpi.env(self.nodes), **stacks.abi_environment(self.mpi), **sealing.env()}
        done = self.nodes.run(line, env=environment, timeout=60)
        assert not done.timed_out, done.output
        return done, said.read_text()


@pytest.fixture(params=MPIS)
def spliced(request, build, nodes, tmp_path):
    return Spliced(request.param, build, nodes, tmp_path)


def test_without_splicing_all_is_as_sent(spliced):
    done, said = spliced.run("nothing")
    assert done.returncode == 0 and done.output.count("success, as sent") == 4 and "splicing" not in said, (done.output, said)


def test_a_block_of_another_communicator_of_the_same_ranks_does_not_open(spliced):
    """Number, sender, operation and root are the same: only the secrets of the two communicators differ."""
    done, said = spliced.run("block of another")
    assert "splicing: a block moved" in said, (done.output, said)
    assert "rank 1: first: success, as sent" in done.output, (done.output, said)
    assert "rank 1: second: error, nothing" in done.output and "other bytes" not in done.output, (done.output, said)


# protocol: M10
@pytest.mark.parametrize("attack", ["secret altered", "secret of another"])
def test_the_secret_of_a_communicator_travels_sealed_and_once(spliced, attack):
    """The members of each communicator draw one of its own, and whoever changes it on its way ends the job."""
    done, said = spliced.run(attack)
    assert f"splicing: a secret {'altered' if attack == 'secret altered' else 'moved'}" in said, (done.output, said)
    assert done.returncode != 0 and "came to the end" not in done.output, (done.output, said)
    assert "tells of the secret of what is sealed for all" in said and "SIGSEGV" not in said, (done.output, said)
