"""Every procedure that the table calls sealed, each with a canary of its own: on the wire plain, not on the wire sealed, and all results right."""

import hashlib
import re
import secrets
import subprocess
import sys

import pytest
from conftest import REPOSITORY, error_lines
from jobs import ALL, build, ended, run, sealing_of  # noqa: F401

from lab.capture import count

INTERPOSE = REPOSITORY / "src" / "interpose"
sys.path.insert(0, str(INTERPOSE))
from generate import read_headers  # noqa: E402
from table import read_table  # noqa: E402

SEALED = [row.name for row in read_table(INTERPOSE / "procedures.txt") if row.group == "sealed"]
# What it moves does not leave the node.
WITHIN_A_NODE = {"MPI_Comm_split_type": "makes communicators of one node each, by the only type of the standard that two nodes have"}
# What an MPI gets wrong plain, too: MPICH 5.0.2 over UCX may hang in receives and probes of MPI_ANY_SOURCE, and makes such ones itself.
WRONG = {"mpich-5.0.2-ucx": {"MPI_Dist_graph_create"}}


class Canaries:
    """32 bytes for each name, from one secret."""

    def __init__(self, names):
        secret = secrets.token_bytes(32)
        self.of = {name: hashlib.blake2b(name.encode(), key=secret, digest_size=32).digest() for name in names}

    def write(self, path):
        path.write_text("".join(f"{name} {canary.hex()}\n" for name, canary in self.of.items()))
        return str(path)

    def seen(self, wire):
        """The names whose canaries are in the capture."""
        found, _ = count(wire, list(self.of.values()))
        return {name for name, canary in self.of.items() if found[canary]}


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """sealed.h: the type of each sealed procedure, as MPI 5.0 declares it, and their list."""
    folder = tmp_path_factory.mktemp("generated")
    standard = REPOSITORY / "third_party" / "mpi-abi" / "mpi.h"
    subprocess.run(["cc", "-E", "-P", "-x", "c", standard, "-o", folder / "mpi.i"], check=True)
    procedures = read_headers([folder / "mpi.i"])
    types = [f"typedef {p.result} type_{name}({p.declared});" for name in SEALED for p in [procedures[name]]]
    (folder / "sealed.h").write_text("\n".join([*types, "#define SEALED(X) " + " ".join(f"X({name})" for name in SEALED)]) + "\n")
    return folder


def procedures_of(done, what):
    return set(re.findall(rf"^.*procedures: {what} (\w+)", done.output, re.MULTILINE))


@ALL
def test_every_sealed_procedure(mpi, build, header, nodes, tmp_path):  # noqa: F811
    program = build(mpi, REPOSITORY / "tests" / "system" / "procedures.c", f"-I{header}", "-ldl")
    canaries = Canaries(SEALED)
    wrong = WRONG.get(mpi.name, set())
    job = [str(program), canaries.write(tmp_path / "canaries.txt"), *wrong]
    with nodes.capture(tmp_path / "plain.pcap"):
        plain = run(mpi, nodes, None, job)
    assert procedures_of(plain, "no exercise of") == set()
    assert ended(mpi, plain, "all as sent"), plain.output
    exercised = procedures_of(plain, "exercised")
    assert exercised | procedures_of(plain, "not in this MPI:") | wrong == set(SEALED)
    assert canaries.seen(tmp_path / "plain.pcap") == exercised - WITHIN_A_NODE.keys()

    with nodes.capture(tmp_path / "sealed.pcap"):
        sealed = run(mpi, nodes, sealing_of(tmp_path, nodes), job)
    assert canaries.seen(tmp_path / "sealed.pcap") == set()
    assert ended(mpi, sealed, "all as sent"), sealed.output
    assert procedures_of(sealed, "exercised") == exercised
    assert not error_lines(sealed.output)
