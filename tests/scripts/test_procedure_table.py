"""The table of MPI procedures against the MPI Forum's own list (pympistandard) and what the installed MPIs export."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
INTERPOSE = REPOSITORY / "src" / "interpose"
BUILD = Path(os.environ.get("TEST_BUILD", REPOSITORY / "build" / "release"))
COMMAND = BUILD / "bin" / "cryptmpi"
MPIS = REPOSITORY / "build" / "mpis"
DEBIAN = Path("/usr/lib/x86_64-linux-gnu")
LIBRARIES = {
    "mpich-4.0.2": DEBIAN / "libmpich.so.12",
    "mpich-5.0.2": MPIS / "mpich-5.0.2" / "lib" / "libmpi.so.12",
    "mpich-5.0.2-abi": MPIS / "mpich-5.0.2" / "lib" / "libmpi_abi.so.1",
    "openmpi-4.1.4": DEBIAN / "libmpi.so.40",
    "openmpi-5.0.11": MPIS / "openmpi-5.0.11" / "lib" / "libmpi.so.40",
    "impi-2021.19": MPIS / "impi-2021.19" / "lib" / "libmpi.so.12",
    "impi-2021.19-abi": MPIS / "impi-2021.19" / "lib" / "libmpi_abi.so.1",
}

sys.path.insert(0, str(INTERPOSE))
from table import CLASSES, read_table  # noqa: E402

TABLE = read_table(INTERPOSE / "procedures.txt")


def standard():
    """The C procedures of MPI 5.0 in the order of the Forum's list, each before its form with large counts."""
    package = importlib.util.find_spec("pympistandard")
    if package is None:
        pytest.skip("not installed: pympistandard (tests/interop/requirements.txt; `make test` installs it)")
    names = []
    for entry in json.loads((Path(package.origin).parent / "data" / "apis.json").read_text()).values():
        about = entry["attributes"]
        if about["callback"] or about["predefined_function"] or not about["c_expressible"]:
            continue
        names.append(entry["name"])
        if any(parameter["kind"].startswith("POLY") for parameter in entry["parameters"]):
            names.append(entry["name"] + "_c")
    return names


@pytest.fixture(params=LIBRARIES, ids=str)
def library(request):
    if not LIBRARIES[request.param].exists():
        pytest.skip(f"not installed: {request.param}")
    return LIBRARIES[request.param]


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {re.sub("@.*", "", line.split()[-1]): line.split()[-2] for line in lines.splitlines()}


def test_standard_is_complete_and_in_its_order():
    names = standard()
    assert len(names) == 690
    assert [row.name for row in TABLE][:690] == names


def test_every_export_has_a_class(library):
    functions = {name for name, kind in exported(library).items() if kind in "TWi"}
    # A name without a small letter is Fortran's or a constant's.
    procedures = {name.removeprefix("P") for name in functions if re.fullmatch("P?MPIX?_.*[a-z].*", name)}
    assert len(procedures) > 400
    assert procedures <= {row.name for row in TABLE}


def test_fortran_is_a_library_of_its_own(library):
    """What an MPI library calls of itself stays native: its Fortran procedures must not be inside."""
    assert "PMPI_Send" in exported(library)
    assert not {"mpi_send", "mpi_send_", "mpi_send__", "MPI_SEND"} & exported(library).keys()


@pytest.mark.parametrize("mpi", ["openmpi-4.1.4", "openmpi-5.0.11"])
def test_open_mpi_has_the_handles_that_our_layer_needs(mpi):
    """They are data of its library, and our layer was built with one Open MPI for all."""
    if not LIBRARIES[mpi].exists():
        pytest.skip(f"not installed: {mpi}")
    layer = BUILD / "lib" / "cryptmpi" / "cryptmpi-mpi-openmpi.so"
    undefined = subprocess.run(["nm", "-D", "--undefined-only", layer], check=True, capture_output=True, text=True).stdout.split()
    needed = {name for name in undefined if name.startswith("ompi_")}
    assert "ompi_mpi_comm_world" in needed
    assert needed <= exported(LIBRARIES[mpi]).keys()


def test_nothing_that_carries_a_buffer_between_processes_is_local_by_mistake():
    """A local procedure with a communicator or window and a buffer is one of these."""
    standard()  # skips
    import pympistandard

    entries = json.loads((Path(pympistandard.__file__).parent / "data" / "apis.json").read_text()).values()
    moving = {e["name"] for e in entries if {"BUFFER"} <= {p["kind"] for p in e["parameters"]}
              and {"COMMUNICATOR", "WINDOW", "REQUEST", "MESSAGE"} & {p["kind"] for p in e["parameters"]}}
    local = {row.name for row in TABLE if row.group == "local"}
    assert len(moving) > 80
    independent_files = {"MPI_File_iread", "MPI_File_iread_at", "MPI_File_iwrite", "MPI_File_iwrite_at"}
    sized_or_set_up = {"MPI_Pack", "MPI_Unpack", "MPI_Win_attach", "MPI_Win_create", "MPI_Win_detach"}
    assert moving & local == independent_files | sized_or_set_up


def test_every_procedure_that_has_a_form_without_waiting_waits():
    """MPI_Xyz, where there is an MPI_Ixyz; and of every procedure, the form with large counts does what the other
    does."""
    rows = {row.name: row for row in TABLE}
    blocking = {name for name in rows if name.startswith("MPI_") and f"MPI_I{name[4].lower()}{name[5:]}" in rows}
    assert {"MPI_Recv", "MPI_Allreduce_c", "MPI_Neighbor_alltoallw"} <= blocking and len(blocking) >= 60
    # MPI says of these that they wait for nobody.
    local = {"MPI_Bsend", "MPI_Bsend_c"}
    assert {name for name in blocking if not rows[name].waits} == local
    assert not {name for name in rows if name + "_c" in rows and rows[name].waits != rows[name + "_c"].waits}


def test_a_buffer_for_buffered_sends_is_known_or_refused():
    """One that only MPI knew of would have no room for what is sealed."""
    buffers = [row for row in TABLE if re.fullmatch(r"MPI_\w+_(attach|detach|i?flush)_buffer(_c)?", row.name)]
    assert len(buffers) == 12 and {row.group for row in buffers} == {"refused"}


@pytest.mark.parametrize("line, problem", [
    ("MPI_New", "has no class"),
    ("MPI_New  secret", "has no class"),
    ("MPI_New  refused", "without a reason"),
    ("MPI_New  local\nMPI_New  sealed", "is there twice"),
])
def test_table_with_a_mistake_is_refused(line, problem, tmp_path):
    (tmp_path / "table.txt").write_text(f"# a comment\n{line}\n")
    with pytest.raises(SystemExit, match=problem):
        read_table(tmp_path / "table.txt")


def generate(folder, table, *headers):
    files = []
    for i, text in enumerate(headers):
        files.append(folder / f"{i}.i")
        files[-1].write_text(text)
    (folder / "table.txt").write_text(table)
    subprocess.run([sys.executable, "-B", INTERPOSE / "generate.py", folder / "table.txt", "test", folder / "out", *files], check=True,
                   capture_output=True, text=True)
    return {name: (folder / "out" / name).read_text() for name in ("comm/native.hpp", "interpose/resolve.cpp", "interpose/entries.cpp")}


def test_procedure_without_a_class_breaks_the_build(tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as stopped:
        generate(tmp_path, "MPI_Send  local\n", "int MPI_Send(int a); int MPI_New(void);")
    assert "no class for MPI_New" in stopped.value.stderr


def test_entries_follow_the_table(tmp_path):
    header = """typedef int MPI_Comm;
        extern __attribute__((visibility("default"))) int MPI_Bcast(void *at, const int n[], MPI_Comm comm) __attribute__((nonnull(1)));
        int MPI_Put(MPI_Win win); double MPI_Wtime(void);"""
    newer = "int MPI_Flush(MPI_Comm comm); int MPI_Flow_end(MPI_Flow flow); int MPI_Session_end(MPI_Session session);"
    table = ("MPI_Bcast  sealed\nMPI_Flush  refused  not yet\nMPI_Put  refused  one-sided\nMPI_Flow_end  refused  no keys\n"
             "MPI_Session_end  local\nMPI_Wtime  local\n")
    files = generate(tmp_path, table, header, newer)
    assert "int (*Bcast)(void *at, const int n[], MPI_Comm comm) = nullptr;" in files["comm/native.hpp"]
    assert "int (*Flush)(MPI_Comm comm)" in files["comm/native.hpp"]  # the newer header's, in the older one's types
    assert "MPI_Flow" not in files["comm/native.hpp"]                 # a type that the older one lacks
    assert "int (*Session_end)(MPI_Session session)" in files["comm/native.hpp"]  # one that we declare there
    assert "return comm::Bcast(layer(), at, n, comm);" in files["interpose/entries.cpp"]
    assert "if (comm == MPI_COMM_NULL || comm::stays_on_node(layer(), comm)) return native().Flush(comm);" in files["interpose/entries.cpp"]
    assert 'return refuse_to_win("MPI_Put", "one-sided", win);' in files["interpose/entries.cpp"]
    assert 'return refuse_to_anyone("MPI_Flow_end", "no keys");' in files["interpose/entries.cpp"]
    assert '{"MPI_Wtime", nullptr, false},' in files["interpose/entries.cpp"]


def coverage(*options):
    done = subprocess.run([COMMAND, "coverage", "--json", *options], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def test_coverage_is_the_table():
    status, facts = coverage()
    assert status == 0
    assert facts["mpi"] == "MPI 5.0"
    assert [(p["name"], p["class"], p["reason"]) for p in facts["procedures"]] == [(row.name, row.group, row.reason) for row in TABLE]
    groups = [row.group for row in TABLE]
    assert facts["counts"] == {**{name: groups.count(name) for name in CLASSES}, "unclassified": 0}


def test_coverage_of_a_library(library):
    status, facts = coverage("--mpi", library)
    assert (status, facts["mpi"], facts["counts"]["unclassified"]) == (0, str(library), 0)
    assert {p["name"] for p in facts["procedures"]} <= {row.name for row in TABLE}
    assert sum(facts["counts"].values()) == len(facts["procedures"]) > 400


def test_coverage_of_a_newer_library(tmp_path):
    (tmp_path / "new.c").write_text("int MPI_Send(void) { return 0; } int PMPI_Send(void) { return 0; } int MPI_New(void) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libmpi.so", tmp_path / "new.c"], check=True)
    status, facts = coverage("--mpi", tmp_path / "libmpi.so")
    assert status == 1
    assert [(p["name"], p["class"]) for p in facts["procedures"]][1:] == [("MPI_New", "unclassified")]
