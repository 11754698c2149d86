"""Every procedure that the table calls sealed, each with a canary of its own: on the wire plain, not on the wire
sealed, and all results right."""

import hashlib
import re
import secrets
import shutil
import subprocess
import sys

import pytest
from conftest import REPOSITORY, error_lines
from jobs import ALL, ended, run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.sealing import ALONE

INTERPOSE = REPOSITORY / "src" / "interpose"
sys.path.insert(0, str(INTERPOSE))
from generate import read_headers  # noqa: E402
from table import read_table  # noqa: E402

SEALED = [row.name for row in read_table(INTERPOSE / "procedures.txt") if row.group == "sealed"]
# What it moves does not leave the node.
WITHIN_A_NODE = {"MPI_Comm_split_type": "makes communicators of one node each, by the only type of the standard that two nodes have"}
# What an MPI gets wrong plain, too: MPICH 5.0.2 over UCX may hang in receives and probes of MPI_ANY_SOURCE, and makes
# such ones itself.
WRONG = {"mpich-5.0.2-ucx": {"MPI_Dist_graph_create"}}

# In no mpi_f08 of the MPIs whose Fortran is tested here.
NOT_IN_FORTRAN = {"MPI_Buffer_flush", "MPI_Comm_idup_with_info", "MPI_Request_get_status_all", "MPI_Request_get_status_any",
                  "MPI_Request_get_status_some"}
FROM_FORTRAN = re.findall(r"exercise\('([^']+)'\)", (REPOSITORY / "tests" / "system" / "procedures.F90").read_text())
BINDINGS = {"mpif.h": [], "mpi": ["-DMODULE"], "mpi_f08": ["-DF08"]}
FORTRAN = {
    "mpich-4.0.2-ucx": ("mpif90.mpich", ["-DMPICH"]),
    "openmpi-4.1.4": ("mpif90.openmpi", []),
    "impi-2021.19-ofi": ("mpif90.mpich", ["-DMPICH"]),
}


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
    return set(re.findall(rf"^.*procedures: {what} (.+)$", done.output, re.MULTILINE))


@pytest.fixture(scope="module")
def build_fortran(tmp_path_factory):
    """procedures.F90 for one binding of an MPI, or of another MPI of the same ABI; and the environment that it runs
    in."""
    built = {}
    # Debian's MPICH has another name for its Fortran library, too.
    names = tmp_path_factory.mktemp("names")
    (names / "libmpichfort.so.12").symlink_to(stacks.stack("impi-2021.19-ofi").prefix / "lib" / "libmpifort.so.12")

    def compiled(mpi, binding):
        if mpi.name not in FORTRAN:
            pytest.skip(f"PyPI's {mpi.title} has no Fortran")
        if (mpi.name, binding) == ("impi-2021.19-ofi", "mpi_f08"):
            pytest.skip("Intel MPI 2021.19 has not all of what a program compiled with MPICH's mpi_f08 needs (__mpi_f08_callbacks_MOD_...)")
        compiler, options = FORTRAN[mpi.name]
        if not mpi.present() or shutil.which(compiler) is None:
            pytest.skip(f"{mpi.title} or {compiler} is not installed (make mpis)")
        if (compiler, binding) not in built:
            program = tmp_path_factory.mktemp("program") / "procedures"
            source = REPOSITORY / "tests" / "system" / "procedures.F90"
            # gfortran wants one type for all buffers of a procedure without an interface.
            line = [compiler, "-O1", "-w", "-ffree-line-length-none", "-fallow-argument-mismatch", *options, *BINDINGS[binding], "-o",
                    program, source]
            done = subprocess.run(line, cwd=program.parent, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            built[compiler, binding] = program
        folders = stacks.abi_environment(mpi).get("LD_LIBRARY_PATH")
        return built[compiler, binding], {"LD_LIBRARY_PATH": f"{names}:{folders}"} if mpi.name.startswith("impi") else {}

    return compiled


def check_canaries(mpi, nodes, tmp_path, program, canaries, expected, more, env=None):
    """Runs the program plain and sealed: the names that it exercised, all of whose canaries were seen plain and none
    sealed."""
    job = [str(program), canaries.write(tmp_path / "canaries.txt"), *more]
    with nodes.capture(tmp_path / "plain.pcap"):
        plain = run(mpi, nodes, None, job, timeout=40, env=env)
    assert procedures_of(plain, "no exercise of") == set()
    assert ended(mpi, plain, "all as sent"), plain.output
    exercised = procedures_of(plain, "exercised")
    assert exercised | procedures_of(plain, "not in this MPI:") == expected
    assert canaries.seen(tmp_path / "plain.pcap") == exercised - WITHIN_A_NODE.keys()

    with nodes.capture(tmp_path / "sealed.pcap"):
        sealed = run(mpi, nodes, sealing_of(tmp_path, nodes, **ALONE), job, timeout=40, env=env)
    assert canaries.seen(tmp_path / "sealed.pcap") == set()
    assert ended(mpi, sealed, "all as sent"), sealed.output
    assert procedures_of(sealed, "exercised") == exercised
    assert not error_lines(sealed.output)


# protocol: M4
@pytest.mark.every_mpi
@ALL
def test_every_sealed_procedure(mpi, build, header, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "procedures.c", f"-I{header}", "-ldl")
    wrong = WRONG.get(mpi.name, set())
    check_canaries(mpi, nodes, tmp_path, program, Canaries(SEALED), set(SEALED) - wrong, wrong)


@pytest.mark.parametrize("binding", BINDINGS)
@ALL
def test_every_sealed_procedure_from_fortran(mpi, binding, build_fortran, nodes, tmp_path):
    program, env = build_fortran(mpi, binding)
    check_canaries(mpi, nodes, tmp_path, program, Canaries(FROM_FORTRAN), set(FROM_FORTRAN), [], env)


def test_fortran_exercises_are_complete():
    assert {name for name in SEALED if not name.endswith("_c")} - NOT_IN_FORTRAN <= set(FROM_FORTRAN)
