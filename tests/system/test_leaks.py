"""What MPI's own packets carry besides: the program's memory is full of markers, and no part of one may show between
the nodes."""

import math
import secrets

import pytest
from conftest import REPOSITORY, Leak
from jobs import ended, run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import repeated
from cryptmpi_tools.lab.sealing import ALONE

PLACES = ["heap", "stack", "thread", "sent", "packed", "inside"]  # as in leaks.c
SIZE = 4
# A chance that any test of a long life sees.
NEVER = 1e-6


def new_marker():
    """What does not look like padding, nor like itself turned."""
    while True:
        marker = secrets.token_bytes(SIZE)
        if len(set(marker)) == SIZE and not set(marker) & {0x00, 0xff}:
            return marker


def most_by_chance(expected):
    """More than so many occur by chance with a probability below NEVER, if `expected` do on average."""
    most, term = 0, math.exp(-expected)
    beyond = -math.expm1(-expected)
    while beyond > NEVER:
        most += 1
        term *= expected / most
        beyond -= term
    return most


def job(mpi, build, nodes, tmp_path, ranks, *how, sealed=True, **settings):
    """What shows of the memory of a job, and how many bytes passed."""
    program = build(mpi, REPOSITORY / "tests" / "system" / "leaks.c")
    markers = {place: new_marker() for place in PLACES}
    (tmp_path / "markers").write_bytes(b"".join(markers.values()))
    with nodes.capture(tmp_path / "wire.pcap"):
        done = run(mpi, nodes, sealing_of(tmp_path, nodes, **ALONE, **settings) if sealed else None, [str(program), str(tmp_path / "markers"), *how],
                   ranks, timeout=90)
    if "abort" in how:  # a rank's last words may be lost
        assert "made all calls" in done.output and not done.timed_out, done.output
    else:
        assert done.output.count("made all calls") == ranks and ended(mpi, done, "made all calls"), done.output
    return repeated(tmp_path / "wire.pcap", markers)


def expect_nothing(found, total):
    for length in range(SIZE, 2 * SIZE + 1):
        fragments = [fragment for fragment in found if fragment.length >= length]
        expected = total * len(PLACES) * SIZE / 256 ** length
        if len(fragments) > most_by_chance(expected):
            shown = "\n".join(f"{f.length} bytes of {f.name}: {f.where}" for f in fragments[:20])
            raise Leak(f"{len(fragments)} parts of markers in {total} bytes, {expected:.1e} expected by chance:\n{shown}")


EACH = pytest.mark.parametrize("mpi", [*stacks.STACKS, stacks.CH3], ids=lambda mpi: mpi.name)


@EACH
def test_no_memory_shows(mpi, build, nodes, tmp_path):
    expect_nothing(*job(mpi, build, nodes, tmp_path, 2))


@pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "openmpi-5.0.11", "mpich-3.4.3-ch3"])
def test_no_memory_shows_of_messages_inside_a_node(name, build, nodes, tmp_path):
    """Four ranks, two a node: plaintext goes through MPI's own buffers, too."""
    expect_nothing(*job(stacks.stack(name), build, nodes, tmp_path, 4))


@EACH
def test_no_memory_shows_at_an_abort(mpi, build, nodes, tmp_path):
    expect_nothing(*job(mpi, build, nodes, tmp_path, 2, "abort"))


def test_plain_memory_shows(build, nodes, tmp_path):
    """Else the tests above could not fail."""
    found, _ = job(stacks.stack("openmpi-4.1.4"), build, nodes, tmp_path, 2, sealed=False)
    assert {"sent", "packed"} <= {fragment.name for fragment in found if fragment.length > 2 * SIZE}


def test_a_hole_shows(build, nodes, tmp_path):
    """Four bytes of a structure that were never written, which a refused procedure that is allowed sends in clear."""
    found, total = job(stacks.stack("openmpi-4.1.4"), build, nodes, tmp_path, 2, "hole", allow="MPI_Ibcast")
    with pytest.raises(Leak, match="4 bytes of heap"):
        expect_nothing(found, total)
