"""Who is in a communicator: MPI's ranks find out by messages in clear, which a man in the middle alters. Nothing may be
sent in clear for that, and no program may get another communicator than it asked for."""

import secrets
import struct

import pytest
from conftest import BUILD, REPOSITORY, error_lines, expect_not_fooled, expect_unseen, needs
from jobs import sealing_of
from test_mitm import Man

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.nodes import FirstNodes

LAYER = BUILD / "lib" / "cryptmpi" / "libcryptmpi-mpi.so"
MPIS = ["openmpi-4.1.4", "mpich-4.0.2-ucx", "mpich-5.0.2-ofi"]
# What members.c has.
ALL, KEY = 0x5a17c010, 0x00c0ffee

pytestmark = needs("nft")


def numbers(*values):
    return struct.pack(f"<{len(values)}i", *values).hex()


class Job:
    """members.c as two ranks on each of two nodes, under the MPI layer alone: neither the launcher's nor the ranks'
    sockets are sealed."""

    def __init__(self, lab, mpi, build, sealing, tmp_path):
        self.lab, self.mpi, self.tmp_path = lab, mpi, tmp_path
        self.program = build(mpi, REPOSITORY / "tests" / "system" / "members.c")
        settings = sealing.environment(scope="between-nodes", agreement_timeout_s=20, handshake_timeout_s=8, job_id=secrets.token_hex(8))
        self.environment = [f"{key}={value}" for key, value in {**mpi.env(lab), **settings, "LD_PRELOAD": LAYER}.items()]

    def run(self, *words, edits=()):
        """With the man in the middle, who puts the second of each of `edits` in the place of the first; and whether he
        did."""
        replace = [word for before, after in edits for word in ("--replace", f"{before}:{after}")]
        with Man(self.lab, "none", *replace) as man:
            done, lines, seen = self.run_once(*words)
        assert man.did_it == bool(edits), (lines, done.output)
        return done, lines, seen

    def run_once(self, *words):
        """What it printed, the lines of ours among that, and how often its canary was on the wire."""
        canary = secrets.token_bytes(32)
        # Hydra may lose what a rank says just before it ends the job.
        said = self.tmp_path / secrets.token_hex(4)
        ranks = ["env", *self.environment, "sh", "-c", f'exec "$@" 2>> {said}', "sh", self.program, canary.hex(), *words]
        line = self.mpi.command(FirstNodes(self.lab, 2), 4, ranks, per_node=2)
        wire = self.tmp_path / "wire.pcap"
        with self.lab.capture(wire):
            done = self.lab.run(line, env=self.mpi.env(self.lab), timeout=60)
        return done, error_lines(said.read_text()), count(wire, [canary])[0][canary]


@pytest.fixture(params=MPIS)
def job(request, middle, build, sealing, tmp_path):
    return Job(middle, stacks.stack(request.param), build, sealing, tmp_path)


OWN = "the communicator that cryptmpi made"


def check_ended(done, lines, seen, by_what):
    expect_unseen(seen, done.output)
    expect_not_fooled(done.output)
    assert not done.timed_out and done.returncode != 0, done.output
    assert "all as sent" not in done.output, done.output
    assert any(by_what in line and "altered" in line for line in lines), (lines, done.output)


@pytest.mark.parametrize("words", [[], ["split"]], ids=["own", "split"])
def test_without_an_attack_all_is_well(job, words):
    done, lines, seen = job.run(*words)
    assert "members: all as sent" in done.output and not lines, (lines, done.output)
    expect_unseen(seen, done.output)


def test_colors_of_our_own_communicators(job):
    """Each node's ranks are made believe that rank 2, of the other node, is one of them: they would broadcast to it in
    clear."""
    done, lines, seen = job.run(edits=[(numbers(2, 2, 2, 3), numbers(0, 2, 2, 3))])
    check_ended(done, lines, seen, OWN)


# protocol: M17
def test_colors_of_the_program(job):
    """Whoever asked for a communicator of all gets one of his node."""
    pairs = [(numbers(ALL, KEY + rank), numbers(~ALL, KEY + rank)) for rank in range(4)]
    done, lines, seen = job.run("split", edits=pairs)
    check_ended(done, lines, seen, "MPI_Comm_split")


LIES = {"own": OWN, "dup": "MPI_Comm_dup", "create": "MPI_Comm_create", "create_group": "MPI_Comm_create_group", "split": "MPI_Comm_split",
        "split_type": "MPI_Comm_split_type", "cart_create": "MPI_Cart_create", "dist_graph": "MPI_Dist_graph_create_adjacent",
        "dist_graph reordered": "MPI_Dist_graph_create_adjacent"}
# Two ranks can only agree on another order; an MPI that reorders may give them any.
HARMLESS = ["cart_create reordered"]


def construct(mpi, how, lie, build, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "construct.c")
    below = build(mpi, REPOSITORY / "tests" / "system" / "lying.c", "-shared", "-fPIC")
    said = tmp_path / "said"
    sealing = sealing_of(tmp_path, nodes)
    ranks = ["env", f"LYING={lie}", f"CRYPTMPI_INTERNAL_BELOW={below}", "sh", "-c", f'exec "$@" 2>> {said}', "sh", *sealing.exec_line([program, how])]
    line = mpi.command(nodes, 4, ranks, per_node=2)
    done = nodes.run(line, env={**mpi.env(nodes), **sealing.env()}, timeout=60)
    return done, error_lines(said.read_text())


# protocol: M17
@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
@pytest.mark.parametrize("how", ["dup", "create", "create_group", "split", "split_type", "cart_create", "cart_create reordered", "dist_graph",
                                 "dist_graph reordered"])
def test_constructors(name, how, build, nodes, tmp_path):
    for lie in ("none", *(lie for lie in HARMLESS if lie == how)):
        done, lines = construct(stacks.stack(name), how, lie, build, nodes, tmp_path)
        expect_not_fooled(done.output)
        assert "construct: came to the end" in done.output and not lines, (lines, done.output)


# protocol: M16
@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
@pytest.mark.parametrize("lie", LIES)
def test_mpi_that_lies(name, lie, build, nodes, tmp_path):
    """What no packet of these MPIs decides alone: a library below us gives other members than were asked for."""
    done, lines = construct(stacks.stack(name), "dup" if lie == "own" else lie, lie, build, nodes, tmp_path)
    expect_not_fooled(done.output)
    assert not done.timed_out and done.returncode != 0, done.output
    assert "came to the end" not in done.output, done.output
    assert any(LIES[lie] in line and "altered" in line for line in lines), (lines, done.output)
