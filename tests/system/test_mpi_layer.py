"""The MPI layer: whole jobs under each MPI across two nodes, messages as others got them wrong, and jobs that must not
start."""

import os
import re
import secrets
import shlex
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY, error_lines, expect_not_fooled, expect_unseen
from jobs import ALL, ended, run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.programs import CANARY
from cryptmpi_tools.lab.sealing import ALONE

COLLECTIVE = ["reductions", "broadcasts", "alltoalls", "allgathers"]
CASES = ["many_requests", "tags_out_of_order", "wildcards", "other_sizes", "vectors", "split", "cancel", "cancel_sent",
         "automatic_buffer", "from_nobody", "named_once", "ordered_reduction", "swapped"]
LARGE = ["large", "large_while_elsewhere", "large_synchronous", "large_before_waiting", "large_behind_others", "large_to_all",
         "large_probed", "large_matched", "large_persistent", "started_after_probe", "large_many", "large_in_flight", "large_vectors", "large_blocks",
         "large_truncated", "whole_truncated"]
# Several threads of a rank that seal and open, however many cores there are.
WORKERS = {"threads": 4}
ONE_OF_EACH_ABI = pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "openmpi-4.1.4", "mpich-5.0.2-abi"])
# Cases that an MPI gets wrong plain, too.
WRONG = {
    # MPICH 5.0.2 over UCX hangs in MPI_Probe of MPI_ANY_SOURCE, and of a source when another message of it waits
    "mpich-5.0.2-ucx": {"wildcards", "large_probed"},
    # Intel MPI 2021.19's standard ABI ends the job where errors are to be returned
    "impi-2021.19-abi": {"other_sizes", "large_truncated", "whole_truncated"},
    # Open MPI 4.1.4 and 5.0.11 over btl tcp write all of a message of 64 KiB or more, past the end of a buffer that is
    # too small for it
    "openmpi-4.1.4": {"whole_truncated"},
    "openmpi-5.0.11": {"whole_truncated"},
}
RANK = "${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}"


def cases_of(mpi, cases=CASES):
    return [case for case in cases if case not in WRONG.get(mpi.name, ())]


@pytest.mark.parametrize("settings", [pytest.param({}, marks=pytest.mark.every_mpi), ALONE], ids=["sealed-sockets", "alone"])
@ALL
def test_sealed_job(mpi, settings, build, nodes, tmp_path):
    program = build(mpi, CANARY)
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    job = [str(program), str(tmp_path / "canary.bin"), "messages"]
    with nodes.capture(tmp_path / "plain.pcap"):
        plain = run(mpi, nodes, None, job, cwd=tmp_path)
    assert ended(mpi, plain, "all as sent"), plain.output
    assert count(tmp_path / "plain.pcap", [canary])[0][canary] > 0

    sealing = sealing_of(tmp_path, nodes, **settings)
    line = sealing.run_line(mpi, nodes, 2, job, tmp_path / "report.json")
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    with nodes.capture(tmp_path / "sealed.pcap"):
        sealed = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=180, cwd=tmp_path)
    assert ended(mpi, sealed, "all as sent"), sealed.output
    expect_unseen(count(tmp_path / "sealed.pcap", [canary])[0][canary])
    facts = sealing.report(tmp_path / "report.json")
    assert facts["layer"] == "mpi" and facts["layer_reason"] == "asked for by --layer or the setting layer"
    assert facts["complete"] and not facts["errors"], facts
    assert facts["ranks_reported"] == facts["ranks"] == 2
    assert facts["totals"]["sealed_bytes_sent"] > 100_000_000
    assert facts["totals"]["failed_opens"] == 0
    # Below, MPI's own packets go around the program's data, and the launcher's are there in any case.
    assert (facts["sockets"]["sealed_bytes_sent"] > facts["totals"]["sealed_bytes_sent"]) == (not settings)
    assert facts["sockets"]["sealed_connections"] > 0
    left = [entry["reason"] for entry in facts["not_sealed"]]
    assert bool(left) == bool(settings) and all("seal_sockets" in reason or "scope" in reason for reason in left), left


@pytest.mark.parametrize("ranks", [2, 4])
@ALL
def test_messages(mpi, ranks, build, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    cases = cases_of(mpi, CASES if ranks > 2 else CASES + COLLECTIVE)
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [str(program), *cases], ranks, timeout=60 if ranks == 2 else 240)
    assert ended(mpi, done, "cases right"), done.output
    assert f"messages: {len(cases)} cases right" in done.output
    assert not error_lines(done.output)


def test_a_send_that_mpi_could_take_back(build, nodes, tmp_path):
    mpi = stacks.stack("mpich-3.4.3-ch3")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [str(program), "cancel_sent"], timeout=30)
    assert done.ok and "messages: 1 cases right" in done.output and not error_lines(done.output), done.output


def check_large_messages(mpi, ranks, settings, build, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    cases = cases_of(mpi, LARGE)
    # libfabric's own limit: messages of ours must not stop each other at it.
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, **settings), [str(program), *cases], ranks, env={"FI_TCP_MAX_SAVED": "64"})
    assert ended(mpi, done, "cases right"), done.output
    assert f"messages: {len(cases)} cases right" in done.output
    assert not error_lines(done.output)


@ALL
def test_large_messages(mpi, build, nodes, tmp_path):
    check_large_messages(mpi, 2, {}, build, nodes, tmp_path)


@pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "openmpi-4.1.4", "impi-2021.19-ofi"])
def test_large_messages_of_one_node(name, build, nodes, tmp_path):
    check_large_messages(stacks.stack(name), 4, {"scope": "all"}, build, nodes, tmp_path)


@ONE_OF_EACH_ABI
def test_memory_for_a_late_receiver(name, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [program, "late_receiver"])
    assert ended(mpi, done, "1 cases right"), done.output


# Four ranks with four threads each on two cores: only where ranks yield while they wait.
@pytest.mark.parametrize("name, ranks", [("mpich-5.0.2-ofi", 2), ("mpich-5.0.2-ofi", 4), ("openmpi-4.1.4", 2), ("openmpi-4.1.4", 4),
                                         ("mpich-5.0.2-abi", 2)])
def test_large_messages_with_workers(name, ranks, build, nodes, tmp_path):
    check_large_messages(stacks.stack(name), ranks, WORKERS, build, nodes, tmp_path)


# Of tests/system/layouts.c: types whose parts we find ourselves, those that only MPI packs, and those made with large
# counts, which MPI-4 has.
IN_PARTS = ["vector", "tiny_blocks", "backwards", "block_in_c", "block_in_fortran", "indexed", "indexed_by_bytes", "indexed_blocks",
            "indexed_blocks_by_bytes", "structure", "resized", "interleaved", "nest", "one_stretch"]
WHOLE = ["many_indexed", "distributed", "pairs", "replaced"]
WITH_LARGE_COUNTS = ["large_vector", "large_block", "large_indexed", "large_structure"]
SEEDS = [str(seed) for seed in range(1, 21)]


def check_layouts(mpi, cases, settings, build, nodes, tmp_path):
    """Returns how many messages MPI packed or unpacked whole."""
    program = build(mpi, REPOSITORY / "tests" / "system" / "layouts.c")
    packs = build(mpi, REPOSITORY / "tests" / "system" / "packs.c", "-shared", "-fPIC")
    sealing = sealing_of(tmp_path, nodes, **settings)
    line = ["env", f"CRYPTMPI_INTERNAL_BELOW={packs}", *sealing.exec_line([program, *cases])]
    done = nodes.run(mpi.command(nodes, 2, line), env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=120)
    assert ended(mpi, done, "right") and f"layouts: {len(cases)} right" in done.output, done.output
    assert not error_lines(done.output)
    return done.output.count("packs: all of a message")


# protocol: M2
@ALL
def test_layouts(mpi, build, nodes, tmp_path):
    cases = IN_PARTS + SEEDS + (WITH_LARGE_COUNTS if mpi.family == "hydra" else [])
    assert check_layouts(mpi, cases, {}, build, nodes, tmp_path) == 0


@ONE_OF_EACH_ABI
def test_layouts_that_mpi_packs(name, build, nodes, tmp_path):
    assert check_layouts(stacks.stack(name), WHOLE, {}, build, nodes, tmp_path) > 0


@ONE_OF_EACH_ABI
def test_layouts_with_workers(name, build, nodes, tmp_path):
    check_layouts(stacks.stack(name), IN_PARTS + WHOLE + SEEDS, WORKERS, build, nodes, tmp_path)


def check_threads(mpi, case, settings, build, nodes, tmp_path, below=()):
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, **settings)
    line = ["env", *below, *sealing.exec_line([str(program), case])]
    done = nodes.run(mpi.command(nodes, 2, line), env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=120)
    assert ended(mpi, done, "cases right"), done.output
    assert "messages: threads ran" in done.output and not error_lines(done.output), done.output


@pytest.mark.parametrize("case", ["threads", "threads_mixed", "threads_sendrecv"])
@ALL
def test_threads(mpi, case, build, nodes, tmp_path):
    if case == "threads_sendrecv" and mpi.name == "mpich-4.0.2-ucx":
        pytest.skip("Debian's MPICH 4.0.2 over UCX does not end an MPI_Sendrecv that waits for another thread of its rank, plain, too")
    check_threads(mpi, case, {}, build, nodes, tmp_path)


@ALL
def test_threads_that_free_communicators(mpi, build, nodes, tmp_path):
    below = build(mpi, REPOSITORY / "tests" / "system" / "slow_free.c", "-shared", "-fPIC")
    check_threads(mpi, "threads_renew", {}, build, nodes, tmp_path, [f"CRYPTMPI_INTERNAL_BELOW={below}"])


@ONE_OF_EACH_ABI
def test_communicator_made_later(name, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [str(program), "threads_idup"], 4)
    assert ended(mpi, done, "cases right"), done.output


@ONE_OF_EACH_ABI
def test_threads_with_workers(name, build, nodes, tmp_path):
    check_threads(stacks.stack(name), "threads_mixed", WORKERS, build, nodes, tmp_path)


# With one hardware thread none is idle.
@pytest.mark.parametrize("before, settings, workers", [([], {"threads": 4}, 3), ([], {"threads": 1}, 0), (["taskset", "-c", "0"], {}, 0)],
                         ids=["4", "1", "auto"])
@ONE_OF_EACH_ABI
def test_workers(name, before, settings, workers, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, **settings), [*before, str(program), "workers"])
    assert ended(mpi, done, "cases right"), done.output
    assert done.output.count(f"messages: a rank with {workers} workers") == 2, done.output


# T0 - T1: eight hardware threads of a node, shared by its ranks, without two, or one more than OpenMP has. A program of
# several threads may use all.
@pytest.mark.parametrize("ranks, variables, case, workers", [
    (2, [], "workers", 5),
    (4, [], "workers", 1),
    (2, ["OMP_NUM_THREADS=4"], "workers", 2),
    (2, ["OMP_NUM_THREADS=2,4"], "workers", 0),
    (2, [], "threads_workers", 0),
    (2, ["OMP_NUM_THREADS=4"], "threads_workers", 2),
])
@ONE_OF_EACH_ABI
def test_workers_of_a_wide_node(name, ranks, variables, case, workers, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    wide = tmp_path / "wide.so"
    source = REPOSITORY / "tests" / "system" / "wide.c"
    subprocess.run([stacks.stack("openmpi-4.1.4").mpicc, "-O1", "-shared", "-fPIC", "-o", wide, source], check=True)
    sealing = sealing_of(tmp_path, nodes)
    line = ["env", f"LD_PRELOAD={wide}", *variables, *sealing.exec_line([program, case])]
    done = nodes.run(mpi.command(nodes, ranks, line), env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60)
    assert ended(mpi, done, "cases right"), done.output
    assert done.output.count(f"messages: a rank with {workers} workers") == ranks, done.output


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
def test_sealed_to_the_end(name, build, nodes, tmp_path):
    """What the program sends out of MPI_Finalize."""
    mpi = stacks.stack(name)
    program = [str(build(mpi, REPOSITORY / "tests" / "system" / "messages.c")), "at_the_end"]
    words = b"while MPI_Finalize deletes"
    for sealing, seen in ((None, True), (sealing_of(tmp_path, nodes, **ALONE), False)):
        wire = tmp_path / f"{seen}.pcap"
        with nodes.capture(wire):
            done = run(mpi, nodes, sealing, program)
        assert done.ok, done.output
        if seen:
            assert count(wire, [words])[0][words] > 0
        else:
            expect_unseen(count(wire, [words])[0][words])


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "openmpi-5.0.11", "mpich-4.0.2-ucx", "mpich-5.0.2-ofi", "mpich-5.0.2-abi"])
def test_finalize_waits_for_nobody_before_attributes_are_deleted(name, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = [str(build(mpi, REPOSITORY / "tests" / "system" / "messages.c")), "first_of_all", "at_the_end"]
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), program, timeout=30)
    assert ended(mpi, done, "cases right"), done.output
    assert not error_lines(done.output)


# What takes a way of its own where int does not count the bytes; each on one of the ABIs.
GIGABYTES = {
    "openmpi-4.1.4": ["gatherv", "gather_in_place", "scatterv"],
    "mpich-5.0.2-ofi": ["gather", "scatter", "allgather", "message"],
    "mpich-5.0.2-abi": ["bcast", "alltoall", "message_with_gaps"],
}


@pytest.mark.long
@pytest.mark.xdist_group("gigabytes")   # One after the other: the memory of two would not be there.
@pytest.mark.parametrize("name", GIGABYTES)
def test_more_than_int_counts(name, build, nodes, tmp_path):
    if available_memory() < 16 << 30:
        pytest.skip("two ranks take 14 GiB, which are not there")
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "gigabytes.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [program, *GIGABYTES[name]], timeout=300)
    assert ended(mpi, done, "gigabytes: right"), done.output


def available_memory():
    return 1024 * int(re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M).group(1))


@ALL
def test_refused_procedure(mpi, build, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [str(program), "refused"])
    assert "MPI_Ibcast is refused" in done.output and "CRYPTMPI_ALLOW=MPI_Ibcast" in done.output
    assert "messages: passed" not in done.output
    if not done.output.count("messages: refused") == 2:
        # Intel MPI 2021.19 ends the job where the program asked for errors to be returned, plain, too.
        assert mpi.name.startswith("impi") and not done.ok, done.output


@pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "mpich-5.0.2-abi"])   # Open MPI 5.0.11 has no such procedures
def test_buffer_of_a_session(name, build, nodes, tmp_path):
    """What is sealed goes by memory of ours, of which a session's buffer does not say how much there may be."""
    mpi = stacks.stack(name)
    program = [str(build(mpi, REPOSITORY / "tests" / "system" / "messages.c")), "session_buffer"]
    plain = run(mpi, nodes, None, program, timeout=30)
    assert ended(mpi, plain, "cases right") and plain.output.count("messages: passed") == 2, plain.output
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), program, timeout=30)
    assert ended(mpi, done, "cases right") and done.output.count("messages: refused") == 2, done.output
    assert "MPI_Session_attach_buffer is refused" in done.output and "CRYPTMPI_ALLOW=MPI_Session_attach_buffer" in done.output


@ALL
def test_all_of_one_node(mpi, build, nodes, tmp_path):
    """Scope "all" seals between ranks of a node, too."""
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    cases = cases_of(mpi)
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, scope="all"), [str(program), *cases], 4, timeout=120)
    assert ended(mpi, done, "cases right"), done.output
    assert f"messages: {len(cases)} cases right" in done.output


@ALL
def test_error_handlers_that_throw(mpi, build, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "throws.cpp", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-lstdc++")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [str(program)], 2)
    assert ended(mpi, done, "throws: 6 6 3 3"), done.output


def of_many_ranks(names, all_ranks, quick):
    """Cases of a test of whole jobs with more ranks than cores. tests/unit/comm runs each number of ranks from 2 to 9
    over an MPI that is made up: `make test` takes the `quick` ones, and test-rest all others."""
    return pytest.mark.parametrize("name, ranks", [
        pytest.param(name, ranks, marks=() if (name, ranks) in quick else pytest.mark.long) for name in names for ranks in all_ranks])


# Ranks of MPICH over UCX never yield while they wait: four of them on two cores take minutes, plain, too.
YIELDING = [mpi.name for mpi in [*stacks.STACKS, *stacks.STANDARD_ABI] if not mpi.name.endswith("-ucx")]


@pytest.mark.parametrize("settings", [{}, {"scope": "all"}], ids=["between nodes", "all"])
@of_many_ranks(YIELDING, [4], {("openmpi-4.1.4", 4)})
def test_collective_operations(name, ranks, settings, build, nodes, tmp_path):
    """Two ranks on each node, of which one is the node's leader, or all are leaders."""
    check_collective_operations(stacks.stack(name), ranks, settings, build, nodes, tmp_path)


@of_many_ranks(["mpich-5.0.2-ofi", "openmpi-4.1.4", "mpich-5.0.2-abi"], [3, 5, 6, 7], {("openmpi-4.1.4", 5), ("mpich-5.0.2-abi", 3)})
def test_many_leaders(name, ranks, build, nodes, tmp_path):
    """Scope "all" makes each rank the leader of a node of its own."""
    check_collective_operations(stacks.stack(name), ranks, {"scope": "all"}, build, nodes, tmp_path)


@of_many_ranks(["mpich-5.0.2-ofi", "openmpi-4.1.4", "mpich-5.0.2-abi"], [4], {("mpich-5.0.2-ofi", 4)})
def test_many_leaders_with_workers(name, ranks, build, nodes, tmp_path):
    check_collective_operations(stacks.stack(name), ranks, {"scope": "all", **WORKERS}, build, nodes, tmp_path)


def check_collective_operations(mpi, ranks, settings, build, nodes, tmp_path):
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, **settings), [str(program), *COLLECTIVE], ranks, timeout=120)
    assert ended(mpi, done, "cases right"), done.output
    assert f"messages: {len(COLLECTIVE)} cases right" in done.output and not error_lines(done.output), done.output


@pytest.mark.long
@pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "openmpi-4.1.4", "mpich-5.0.2-abi"])
def test_many_communicators(name, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes, **ALONE), [str(program), "many_communicators"], 4, timeout=120)
    assert ended(mpi, done, "cases right") and not error_lines(done.output), done.output


@pytest.mark.long
def test_all_communicators(build, nodes, tmp_path):
    """As many as MPI has, where it has few, but those that the layer needs for itself."""
    mpi = stacks.stack("mpich-5.0.2-ofi")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    had = []
    for sealing in (None, sealing_of(tmp_path, nodes)):
        done = run(mpi, nodes, sealing, [str(program), "all_communicators"], 4, timeout=120)
        assert ended(mpi, done, "cases right") and not error_lines(done.output), done.output
        had.append(int(re.search(r"messages: (\d+) communicators", done.output)[1]))
    assert had[1] >= had[0] - 5, had


def of_groups(mpi, build):
    if mpi.name == "openmpi-4.1.4":
        pytest.skip("Open MPI 4.1.4 has no MPI_Comm_create_from_group: it is of MPI 4.0, and Open MPI has it from 5.0 on")
    return build(mpi, REPOSITORY / "tests" / "system" / "groups.c")


@ALL
def test_communicators_of_groups(mpi, build, nodes, tmp_path):
    canary = secrets.token_bytes(32)
    job = [of_groups(mpi, build), canary.hex()]
    for sealing in (None, sealing_of(tmp_path, nodes, **ALONE)):
        wire = tmp_path / f"{sealing is None}.pcap"
        with nodes.capture(wire):
            done = run(mpi, nodes, sealing, job, 4, timeout=120)
        assert ended(mpi, done, "all as sent") and not error_lines(done.output), done.output
        if sealing is None:
            assert count(wire, [canary])[0][canary] > 0
        else:
            expect_unseen(count(wire, [canary])[0][canary])


@ALL
def test_communicators_that_outlive_the_world(mpi, build, nodes, tmp_path):
    """The keys are gone with the world: under Open MPI with MPI_Finalize, under the others with the last session."""
    canary = secrets.token_bytes(32)
    job = [of_groups(mpi, build), canary.hex(), "after"]
    seen = {}
    for sealing in (None, sealing_of(tmp_path, nodes, **ALONE)):
        wire = tmp_path / f"{sealing is None}.pcap"
        with nodes.capture(wire):
            done = run(mpi, nodes, sealing, job)
        seen[sealing is None] = count(wire, [canary])[0][canary], done
    assert seen[True][0] and seen[True][1].output.count("groups: passed") == 2, seen[True]
    expect_unseen(seen[False][0], seen[False][1].output)
    if not mpi.name.startswith("openmpi"):
        assert seen[False][1].ok and seen[False][1].output.count("groups: passed") == 2, seen[False]
        return
    assert not seen[False][1].ok and "groups: passed" not in seen[False][1].output, seen[False]
    assert any("after MPI_Finalize" in line for line in error_lines(seen[False][1].output)), seen[False]


def run_sessions(mpi, build, nodes, tmp_path, *how):
    """Plain, where the canary is seen; and sealed: how it ended, and its report."""
    if mpi.name == "openmpi-4.1.4":
        pytest.skip("Open MPI 4.1.4 has no sessions: they are of MPI 4.0, and Open MPI has them from 5.0 on")
    canary = secrets.token_bytes(32)
    job = [str(build(mpi, REPOSITORY / "tests" / "system" / "sessions.c", "-pthread")), *how, canary.hex()]
    with nodes.capture(tmp_path / "plain.pcap"):
        plain = run(mpi, nodes, None, job, timeout=60)
    assert ended(mpi, plain, "sessions: passed") and count(tmp_path / "plain.pcap", [canary])[0][canary] > 0, plain.output
    sealing = sealing_of(tmp_path, nodes, **ALONE)
    line = sealing.run_line(mpi, nodes, 2, job, tmp_path / "report.json", mpiexec=mpi.mpiexec)
    with nodes.capture(tmp_path / "sealed.pcap"):
        sealed = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60, cwd=tmp_path)
    expect_unseen(count(tmp_path / "sealed.pcap", [canary])[0][canary], sealed.output)
    assert sealed.output.count("sessions: passed") == 2, sealed.output
    return sealed, sealing.report(tmp_path / "report.json")


@pytest.mark.parametrize("begun", ["before", "after"])
@ALL
def test_session_that_is_open_at_finalize(mpi, begun, build, nodes, tmp_path):
    """MPICH and its kin end with it, and only then call the functions that delete attributes of MPI_COMM_SELF."""
    if begun == "before" and mpi.name.startswith("impi"):
        pytest.skip("Intel MPI refuses MPI_Init after MPI_Session_init, plain, too")
    done, facts = run_sessions(mpi, build, nodes, tmp_path, begun)
    assert ended(mpi, done, "sessions: passed") and done.output.count("one that deletes") == 2, done.output
    assert facts["complete"] and facts["ranks_reported"] == 2 and not facts["errors"], facts
    assert facts["totals"]["sealed_records_sent"] == facts["totals"]["sealed_records_received"], facts["totals"]


@pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "mpich-5.0.2-abi"])
def test_session_that_never_ends(name, build, nodes, tmp_path):
    """A program that MPICH lets end so has a report, too. (Open MPI ends the job.)"""
    done, facts = run_sessions(stacks.stack(name), build, nodes, tmp_path, "never")
    assert done.ok, done.output
    assert facts["complete"] and facts["ranks_reported"] == 2 and not facts["errors"], facts


@pytest.mark.parametrize("begun", ["before", "after"])
def test_session_of_threads(begun, build, nodes, tmp_path):
    """Open MPI gives it MPI_THREAD_MULTIPLE and MPI_COMM_WORLD nothing of the kind."""
    done, facts = run_sessions(stacks.stack("openmpi-5.0.11"), build, nodes, tmp_path, "threads", begun)
    assert done.ok and facts["complete"] and not facts["errors"], (done.output, facts)


@ALL
def test_communicators_that_cannot_be_made(mpi, build, nodes, tmp_path):
    """Whoever hears of it hears the same as plain, and the others need not know."""
    if mpi.name == "impi-2021.19-abi":
        pytest.skip("Intel MPI 2021.19 by the standard ABI ends the job at errors where the handler is MPI_ERRORS_RETURN, plain, too")
    job = [of_groups(mpi, build), "failing"]
    said = []
    for sealing in (None, sealing_of(tmp_path, nodes)):
        done = run(mpi, nodes, sealing, job, timeout=60)
        assert done.ok and done.output.count("groups: passed") == 2 and not error_lines(done.output), done.output
        said.append(sorted(re.findall(r"rank \d was told of \d+ errors", done.output)))
    assert said[0] == said[1], said


@ALL
def test_grids_with_fewer_places_than_ranks(mpi, build, nodes, tmp_path):
    job = [build(mpi, REPOSITORY / "tests" / "system" / "grids.c")]
    said = []
    for sealing in (None, sealing_of(tmp_path, nodes)):
        done = run(mpi, nodes, sealing, job, 3, timeout=60)
        lines = sorted(re.findall(r"grids: rank.*", done.output))
        assert len(lines) == 18 and not error_lines(done.output), done.output
        said.append(lines)
    assert said[0] == said[1]


# protocol: M6
def test_communicators_made_alike(build, nodes, tmp_path):
    """Each has keys of its own, whatever it was made by: the same bytes do not travel alike on any two."""
    mpi = stacks.stack("mpich-5.0.2-ofi")
    program = build(mpi, REPOSITORY / "tests" / "system" / "twins.c")
    below = build(mpi, REPOSITORY / "tests" / "system" / "listening.c", "-shared", "-fPIC")
    done = run(mpi, nodes, sealing_of(tmp_path, nodes), [str(program)], env={"CRYPTMPI_INTERNAL_BELOW": str(below)})
    assert done.ok, done.output
    travelled = re.findall(r"listening: ([0-9a-f]+)", done.output)
    assert len(travelled) == int(re.search(r"twins: (\d+) communicators", done.output)[1]) == 45
    assert len({text[-2 * 64:] for text in travelled}) == len(travelled)      # without the header


@ALL
def test_communicators_without_world(mpi, build, nodes, tmp_path):
    """No keys are agreed on before MPI_Init: what a session alone makes is refused."""
    job = [of_groups(mpi, build), "sessions"]
    plain = run(mpi, nodes, None, job)
    assert plain.ok and plain.output.count("groups: passed") == 2, plain.output
    sealed = run(mpi, nodes, sealing_of(tmp_path, nodes), job)
    assert sealed.ok and sealed.output.count("groups: refused") == 2, sealed.output
    said = [line for line in error_lines(sealed.output) if "MPI_Comm_create_from_group is refused" in line and "MPI_Init" in line]
    assert len(said) == 2, sealed.output    # each process, once


def test_refused_procedure_that_is_allowed(build, nodes, tmp_path):
    mpi = stacks.stack("mpich-4.0.2-ucx")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, allow="MPI_Ibcast")
    line = sealing.run_line(mpi, nodes, 2, [str(program), "refused"], tmp_path / "report.json")
    done = nodes.run(line, env={**mpi.env(nodes), **sealing.env()}, timeout=60, cwd=tmp_path)
    assert ended(mpi, done, "cases right"), done.output
    assert done.output.count("messages: passed") == 2
    assert "allow: MPI_Ibcast" in [entry["reason"] for entry in sealing.report(tmp_path / "report.json")["not_sealed"]]


def test_misspelt_procedure_that_is_allowed(build, nodes, tmp_path):
    """What cryptmpi exec cannot judge, of a script whose MPI it does not know, the layer does."""
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, allow="MPI_Ibcst")
    script = sealing.exec_line(["sh", "-c", f"exec {program} split"])
    lines = start_fails(mpi, nodes, sealing, script, 2, ["CRYPTMPI_ALLOW", '"MPI_Ibcst"', '"MPI_Ibcast"'])
    assert len(lines) <= 2 and all("rank" in line for line in lines), lines


def with_one_different(sealing, rank, change, program):
    """Each rank through a shell, of which one does `change` before it goes on."""
    line = shlex.join(sealing.exec_line(program))
    return ["sh", "-c", f"if [ {RANK} = {rank} ]; then {change}; fi; exec {line}"]


def start_fails(mpi, nodes, sealing, program, ranks, words):
    done = nodes.run(mpi.command(nodes, ranks, program), env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60)
    assert done.returncode == 125 and not done.timed_out, (done.returncode, done.output)
    assert "cases right" not in done.output
    lines = error_lines(done.output)
    assert any(all(word in line for word in words) for line in lines), done.output
    return lines


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_other_key_on_one_rank(rank, build, nodes, tmp_path):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes)
    other = tmp_path / "other.key"
    other.touch(mode=0o600)
    other.write_text(f"cryptmpi-job-key-1 {secrets.token_hex(32)}\n")
    ranks = with_one_different(sealing, rank, f"export CRYPTMPI_KEY_FILE={other}", [str(program), "split"])
    start_fails(mpi, nodes, sealing, ranks, 4, ["job key", "rank"])


@pytest.mark.parametrize("ciphers", [("AES-256-GCM", "AES-128-GCM"), ("AES-256-GCM", "AEGIS-128L"), ("AEGIS-128X2", "AEGIS-128X4")],
                         ids="-".join)
def test_other_cipher_on_one_rank(ciphers, build, nodes, tmp_path):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, cipher=ciphers[0], **ALONE)
    ranks = with_one_different(sealing, 2, f"export CRYPTMPI_CIPHER={ciphers[1]}", [str(program), "split"])
    start_fails(mpi, nodes, sealing, ranks, 4, [*ciphers, "rank 2"])


@pytest.mark.parametrize("rank", [0, 2, 3])
@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
def test_rank_without_us(name, rank, build, nodes, tmp_path):
    """Its neighbours wait for it as long as agreement_timeout_s says, not handshake_timeout_s, and the first to give up
    names it."""
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, agreement_timeout_s=2, handshake_timeout_s=600, **ALONE)
    ranks = with_one_different(sealing, rank, f"exec {program} split", [str(program), "split"])
    lines = start_fails(mpi, nodes, sealing, ranks, 4, [f"rank {rank} did not come", "under cryptmpi", "--layer", "agreement_timeout_s"])
    assert any(f"rank {rank} has not come to the key agreement yet" in line for line in lines), lines
    # Where an MPI takes long to end a job, ranks further down the tree give up on their neighbours, too.
    assert f": rank {rank} did not" in [line for line in lines if "did not come" in line][0], lines


def test_late_rank(build, nodes, tmp_path):
    """One that comes after the others were told so is no error."""
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    late = tmp_path / "late.so"
    source = """
#include <string.h>
#include <unistd.h>
static int (*init)(int *, char ***);
static int late(int *argc, char ***argv) { int code = init(argc, argv); sleep(6); return code; }
void *cryptmpi_below(const char *name, void *(*find)(const char *)) {
    if (strcmp(name, "PMPI_Init") != 0) return 0;
    init = find(name);
    return late;
}
"""
    subprocess.run([mpi.mpicc, "-shared", "-fPIC", "-x", "c", "-", "-o", late], input=source, text=True, check=True)
    sealing = sealing_of(tmp_path, nodes, agreement_timeout_s=10, report_file=tmp_path / "report.json")
    ranks = with_one_different(sealing, 1, f"export CRYPTMPI_INTERNAL_BELOW={late}", [str(program), "split"])
    done = nodes.run(mpi.command(nodes, 2, ranks), env={**mpi.env(nodes), **sealing.env()}, timeout=60)
    assert done.ok and "cases right" in done.output, done.output
    (line,) = error_lines(done.output)
    assert "rank 0 " in line and "rank 1 has not come to the key agreement yet" in line
    shown = subprocess.run([sealing.command, "report", tmp_path / "report.json"], env={**os.environ, **sealing.env()}, capture_output=True,
                           text=True, check=True).stdout
    assert not shown.startswith("FAILED"), shown


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
def test_other_layer_on_one_rank(name, rank, build, nodes, tmp_path):
    """As when exec decides on each node by itself, and the nodes differ. libfabric's ranks do not come back from
    MPI_Init then."""
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "messages.c")
    sealing = sealing_of(tmp_path, nodes, agreement_timeout_s=2, handshake_timeout_s=5, abort_after_s=3)
    ranks = with_one_different(sealing, rank, "export CRYPTMPI_LAYER=channel", [str(program), "split"])
    lines = start_fails(mpi, nodes, sealing, ranks, 2, ["--layer"])
    assert len(lines) < 10, lines  # however often MPI tries again


# What a hostile layer does to rank 0's messages, and the words of the line that says so.
ATTACKS = {
    "flip header": ["does not open"],
    "flip form": ["does not open"],
    "flip body": ["does not open"],
    "flip tag": ["does not open"],
    "truncate": ["does not open"],
    "extend": ["does not open"],
    "extend far": ["was cut off by MPI", "altered on the way"],
    "empty": ["shorter than any"],
    "header only": ["shorter than any"],
    "zero": ["does not open"],
    "drop": ["lost on the way"],
    "swap": ["out of order"],
    "replay": ["replayed"],
    "reflect": ["does not open"],
    "other tag": ["does not open"],
    "other communicator": ["does not open"],
    "other receiver": ["does not open"],
    "collective": ["does not open"],
    "replay of a collective": ["replayed or moved"],
    "flip in a collective": ["does not open"],
    "message in a collective": ["does not open"],
    "flip in an announcement": ["does not open"],
    "announcement dropped": ["lost on the way"],
    "announcement replayed": ["replayed"],
    "flip in a segment": ["segment that does not open"],
    "segment cut": ["segment of the wrong size"],
    "segment dropped": ["has a segment"],  # the next one, which may be of another size
    "segment repeated": ["segment that does not open"],
    "segment of another message": ["segment that does not open"],
    "flip in a rest": ["segment that does not open"],
    "rest cut": ["of no segments of this message"],
    "rest of another message": ["does not open"],
    "flip in a gathered block": ["does not open"],
}
# How the messages are sealed, and how they lie in memory.
WAYS = {"alone": ({}, []), "with workers": (WORKERS, []), "spread": ({}, ["spread"]), "spread with workers": (WORKERS, ["spread"])}


@pytest.fixture(scope="module")
def hostile(build, tmp_path_factory):
    library = tmp_path_factory.mktemp("hostile") / "hostile.so"
    compiler = stacks.stack("openmpi-4.1.4").mpicc
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, REPOSITORY / "tests" / "system" / "hostile.c"], check=True,
                   capture_output=True)
    return library


def test_nothing_comes_between_the_library_that_is_installed_and_mpi():
    library = (BUILD / "lib" / "cryptmpi" / "libcryptmpi-mpi.so").read_bytes()
    assert b"cryptmpi-mpi-" in library  # what it does load is there to be seen
    assert b"CRYPTMPI_INTERNAL_BELOW" not in library and b"cryptmpi_below" not in library


def attacked(attack, way, build, hostile, nodes, tmp_path):
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "attacked.c")
    settings, words = WAYS[way]
    sealing = sealing_of(tmp_path, nodes, **settings)
    below = ["env", f"HOSTILE={attack}", f"CRYPTMPI_INTERNAL_BELOW={hostile}",
             *sealing.exec_line([program, *words])]
    # Rank 0 alone on its node: 1 and 2 are both elsewhere.
    line = mpi.command(nodes, 4, below, per_node=3)
    hosts = line.index("--host") + 1
    line[hosts] = f"{nodes.hosts()[0]}:1,{nodes.hosts()[1]}:3"
    line[line.index("--map-by") + 1] = "slot:oversubscribe"
    return nodes.run(line, env={**mpi.env(nodes), **sealing.env()}, timeout=60)


@pytest.mark.parametrize("way", WAYS)
def test_hostile_layer_that_does_nothing(way, build, hostile, nodes, tmp_path):
    done = attacked("nothing", way, build, hostile, nodes, tmp_path)
    assert done.ok and "attacked: all as sent" in done.output, done.output
    assert not error_lines(done.output)


# protocol: M3, M20, M25, M26
@pytest.mark.parametrize("way, attack", [
    *(("alone", attack) for attack in ATTACKS),
    *(pytest.param(way, attack, marks=pytest.mark.long if "spread" in way else ())
      for way in ("with workers", "spread", "spread with workers") for attack in ATTACKS
      if any(word in attack for word in ("segment", "rest")) or (way == "with workers" and "block" in attack)),
])
def test_attack(attack, way, build, hostile, nodes, tmp_path):
    done = attacked(attack, way, build, hostile, nodes, tmp_path)
    expect_not_fooled(done.output)
    assert not done.timed_out and "all as sent" not in done.output, done.output
    found = [line for line in done.output.splitlines() if "attacked: detected at 1" in line]
    assert found and all("nothing left" in line for line in found), done.output
    if attack != "extend far":
        assert all("own class" in line for line in found), found
    lines = error_lines(done.output)
    assert all(any(word in line for line in lines) for word in ATTACKS[attack]), lines
    assert any("rank 0" in line for line in lines), lines


# Who is told of what was changed on its way from rank 0 to the other node, that of ranks 2 and 3, in the collective
# operations of attacked_nodes.c.
TOLD = {
    **{f"Bcast{gaps} from {root} of {size}": {2, 3} for gaps in ("", " with gaps") for root in (0, 1) for size in (1000, 100000, 1000000)},
    "Alltoall of 1000": {2},
    "Alltoall of 100000": {2},
    "Allgather of 1000": {1, 2, 3},
    "Allgather of 100000": {2, 3},
    "Allreduce of 4000": {2, 3},
    "Allreduce of 400000": {0, 1, 2, 3},  # each node sums up a half
}


# protocol: M5
def test_attack_on_collectives_between_nodes(build, hostile, nodes, tmp_path):
    """Whoever needs what was changed is told, nothing of it is left with him, and the job goes on."""
    mpi = stacks.stack("openmpi-4.1.4")
    program = build(mpi, REPOSITORY / "tests" / "system" / "attacked_nodes.c")
    sealing = sealing_of(tmp_path, nodes)
    below = ["env", "HOSTILE=flip for another node", f"CRYPTMPI_INTERNAL_BELOW={hostile}", *sealing.exec_line([program])]
    done = nodes.run(mpi.command(nodes, 4, below), env={**mpi.env(nodes), **sealing.env()}, timeout=60)
    assert done.ok and "attacked: went on to the end" in done.output, done.output
    said = {line for line in done.output.splitlines() if line.startswith("attacked: ") and ": rank " in line}
    expected = {f"attacked: {attacked}{what}: rank {rank}: {'told, nothing left' if attacked and rank in told else 'success, as sent'}"
                for what, told in TOLD.items() for attacked in ("attacked ", "") for rank in range(4)}
    assert said == expected, (said - expected, expected - said)
