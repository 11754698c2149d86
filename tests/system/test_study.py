"""The study's programs: under the papers' naive construction they give results, and where a byte of what they receive is wrong, they do not."""

import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY
from jobs import build  # noqa: F401

from bench.programs import is_whole
from lab import stacks
from study.starting import read_results

MPI = stacks.stack("openmpi-4.1.4")
BENCH, STUDY = REPOSITORY / "bench", REPOSITORY / "study" / "programs"
COLLECTIVES = ("bcast", "alltoall", "alltoallv", "allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv")
# (source, ranks, cases)
PROGRAMS = [
    (BENCH / "pingpong.c", 2, ["ping-pong:1", "ping-pong:65536"]),
    (BENCH / "window.c", 2, ["pairs:1", "pairs:16384"]),
    (BENCH / "collectives.c", 4, [f"{name}:24" for name in COLLECTIVES]),
    (STUDY / "stencil.c", 4, ["2d:1024:10", "3d:1024:10"]),
    (STUDY / "nbody.c", 4, ["n-body:640"]),
    (STUDY / "overhead.c", 2, ["send:2048", "receive:2048"]),
    (STUDY / "transfer.c", 4, ["pingping:100", "sendrecv:100", "exchange:100"]),
]
EACH = pytest.mark.parametrize(("source", "ranks", "cases"), PROGRAMS, ids=[source.stem for source, _, _ in PROGRAMS])


def run(nodes, program, ranks, cases, env=None):
    return nodes.run(MPI.command(nodes, ranks, [program, "5", *cases]), env={**MPI.env(nodes), **(env or {})}, timeout=60)


@pytest.fixture(scope="module")
def spoiling(tmp_path_factory):
    if not MPI.present():
        pytest.skip(f"{MPI.title} is not installed")
    library = tmp_path_factory.mktemp("spoil") / "spoil.so"
    subprocess.run([MPI.mpicc, "-shared", "-fPIC", "-o", library, Path(__file__).parent / "spoil.c"], check=True)
    return library


@EACH
def test_naive_programs_give_results(source, ranks, cases, nodes, build):
    done = run(nodes, build(MPI, source, STUDY / "naive.c", "-lcrypto", "-lm"), ranks, cases)
    assert done.ok and is_whole(done.output), done.output
    results = read_results(done.output)
    assert len(results) == len(cases) * (4 if source.stem == "overhead" else 1)
    assert all(us >= 0 for result in results.values() for us in result["us"])


@EACH
def test_programs_whose_data_is_wrong_fail(source, ranks, cases, nodes, build, spoiling):
    done = run(nodes, build(MPI, source, "-lm"), ranks, cases[:1], {"LD_PRELOAD": str(spoiling)})
    assert not done.ok and "is wrong" in done.output, done.output


@pytest.mark.parametrize("case", ["bcast:9", "alltoall:9", "allgather:9", "scatter:9", "allreduce:9"])
def test_collective_operations_whose_data_is_wrong_fail(case, nodes, build, spoiling):
    done = run(nodes, build(MPI, BENCH / "collectives.c", "-lm"), 2, [case], {"LD_PRELOAD": str(spoiling)})
    assert not done.ok and "is wrong" in done.output, done.output
