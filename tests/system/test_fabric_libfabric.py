"""The fabric layer's door of libfabric: whole jobs of MPIs that use libfabric, and attacks from beneath us.

The library is preloaded into the ranks alone: sockets are the business of the channel layer, and these captures show
what the door leaves to see."""

import secrets
import subprocess
import sys

import pytest
from conftest import BUILD, REPOSITORY, expect_unseen, needs
from jobs import sealing_of
from test_mitm import Man

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.programs import CANARY

LIBRARY = BUILD / "lib" / "cryptmpi" / "libcryptmpi-fabric.so"
SOURCES = REPOSITORY / "tests" / "system"
TCP = stacks.stack("mpich-5.0.2-ofi")
UDP = stacks.UDP
# It finds libfabric by dlopen and dlvsym.
INTEL = stacks.stack("impi-2021.19-ofi")
# Debian's libfabric 1.17, found by a component that is loaded privately.
OPENMPI = stacks.OPENMPI4_OFI
EVERY = pytest.mark.parametrize("mpi", [TCP, UDP, INTEL, OPENMPI], ids=lambda mpi: mpi.name)
HYDRA = pytest.mark.parametrize("mpi", [TCP, UDP], ids=lambda mpi: mpi.name)

CASES = ["many_requests", "tags_out_of_order", "wildcards", "vectors", "split", "cancel", "named_once", "ordered_reduction", "swapped",
         "reductions", "broadcasts", "alltoalls", "allgathers", "large_probed", "large_vectors"]
# Truncation, where the MPI tells of it plain: over udp;ofi_rxd (2.5.1) and Debian's tcp;ofi_rxm (1.17) it does not.
TRUNCATION = ["other_sizes", "large_truncated", "whole_truncated"]


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "job.key"
    path.touch(mode=0o600)
    path.write_text(f"cryptmpi-job-key-1 {secrets.token_hex(32)}\n")
    return path


def run(mpi, nodes, key, program, ranks=2, below=None, timeout=90, **more):
    """The job, with the door in its ranks; without it if `key` is None. Its finish."""
    preload = [] if key is None else [f"LD_PRELOAD={':'.join(map(str, [LIBRARY, *([below] if below else [])]))}",
                                      f"CRYPTMPI_KEY_FILE={key}", "CRYPTMPI_JOB_ID=one"]
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **more}
    words = [f"{name}={value}" for name, value in environment.items() if name.startswith(("FI_", "OMPI_", "BELOW"))]
    line = mpi.command(nodes, ranks, ["env", *words, *preload, *map(str, program)])
    return nodes.run(line, env=environment, timeout=timeout)


@EVERY
def test_nothing_of_the_program_is_on_the_wire(mpi, build, nodes, key, tmp_path):
    program = build(mpi, CANARY)
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    job = [program, tmp_path / "canary.bin", "messages"]
    for name, with_key, expected in (("plain", None, True), ("sealed", key, False)):
        with nodes.capture(tmp_path / f"{name}.pcap"):
            done = run(mpi, nodes, with_key, job)
        assert done.ok and "all as sent" in done.output, done.output
        # In whole packets, of whatever protocol: enough for the plain job, which shows the canary in thousands.
        captured = (tmp_path / f"{name}.pcap").read_bytes()
        assert len(captured) > 100_000_000
        if expected:
            assert captured.count(canary) > 1000
        else:
            expect_unseen(captured.count(canary))


@EVERY
def test_messages(mpi, build, nodes, key):
    cases = CASES + (TRUNCATION if mpi in (TCP, INTEL) else [])
    done = run(mpi, nodes, key, [build(mpi, SOURCES / "messages.c"), *cases])
    assert done.ok and f"{len(cases)} cases right" in done.output, done.output


@pytest.fixture(scope="session")
def below(tmp_path_factory):
    library = tmp_path_factory.mktemp("below") / "below.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCES / "fabric_below.c",
                    f"-Wl,--version-script={SOURCES / 'fabric_below.map'}", "-ldl"], check=True)
    return library


ATTACKS = {
    "flip": "does not open: altered, moved, or not ours",
    "replay": "came before: it was replayed",
    "drop": "was sent after others that did not come",
    "swap": "was sent after others that did not come",
    "move": "was sent after others that did not come",
}


@HYDRA
def test_a_library_beneath_that_does_nothing(mpi, build, nodes, key, below):
    done = run(mpi, nodes, key, [build(mpi, SOURCES / "fabric_talk.c")], below=below, BELOW="none")
    assert done.ok and "all as sent" in done.output and "three messages went by" in done.output, done.output


@HYDRA
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_beneath_ends_the_job(attack, mpi, build, nodes, key, below):
    done = run(mpi, nodes, key, [build(mpi, SOURCES / "fabric_talk.c")], below=below, BELOW=attack)
    assert not done.ok and not done.timed_out, done.output
    assert ATTACKS[attack] in done.output, done.output
    assert "all as sent" not in done.output and "is wrong" not in done.output


@needs("nft")
@pytest.mark.parametrize("attack", ["none", "flip", "drop", "replay", "truncate"])
def test_attacks_on_datagrams_of_rxd(attack, middle, build, key):
    """What rxd repairs (a loss, a copy) arrives as sent; whatever else he does ends the job."""
    one, two, _ = middle.nodes
    line = [sys.executable, SOURCES / "datagrams.py", "--attack", attack, "--from", one.address, "--to", two.address]
    man = middle.start(line, node=2, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert man.stdout.readline() == "ready\n", man.stderr.read()
        with Man(middle, "none"):  # for the launcher's connections
            done = run(UDP, middle, key, [build(UDP, SOURCES / "fabric_talk.c")])
    finally:
        man.terminate()
        said, complaints = man.communicate(timeout=20)
        middle.end_processes()
    assert ("done" in said) == (attack != "none"), said + complaints
    assert not done.timed_out and "is wrong" not in done.output, done.output
    assert done.ok == ("all as sent" in done.output), done.output
    if attack in ("none", "drop", "replay"):
        assert done.ok, done.output
    else:  # a message that rxd says was cut off is an error of MPI's
        assert not done.ok and ("does not open" in done.output or "Message truncated" in done.output), done.output


def test_a_rank_without_the_job_key_gets_nothing(build, nodes, key, tmp_path):
    other = tmp_path / "other.key"
    other.touch(mode=0o600)
    other.write_text(f"cryptmpi-job-key-1 {secrets.token_hex(32)}\n")
    program = build(TCP, SOURCES / "fabric_talk.c")
    script = tmp_path / "rank.sh"
    script.write_text(f'#!/bin/sh\n[ "$PMI_RANK" = 0 ] && export CRYPTMPI_KEY_FILE={other}\nexec {program}\n')
    script.chmod(0o755)
    done = run(TCP, nodes, key, [script])
    assert not done.ok and not done.timed_out, done.output
    assert "does not open" in done.output and "all as sent" not in done.output


@pytest.mark.parametrize("mpi", [TCP, INTEL], ids=lambda mpi: mpi.name)
def test_a_long_send_that_was_given_up_comes_after_its_senders_end(mpi, build, nodes, key):
    """Of which only the head had gone when the sender closed its endpoint."""
    program = build(mpi, SOURCES / "fabric_freed.c")
    for with_key in (None, key):
        done = run(mpi, nodes, with_key, [program])
        assert done.ok and "all as sent" in done.output, done.output
    # Where nobody receives it, the job ends; with an error of MPICH 5.0.2's now and then, plain, too.
    done = run(mpi, nodes, key, [program, "never"], timeout=60)
    assert not done.timed_out and "a message about memory" not in done.output, done.output


# Not over udp;ofi_rxd: with so much under way libfabric 2.5.1 sends packets again without end now and then, plain too.
@pytest.mark.parametrize("mpi", [TCP, INTEL], ids=lambda mpi: mpi.name)
def test_many_one_sided_operations_under_way(mpi, build, nodes, key, tmp_path):
    """Of more than 16 KB: where MPICH makes them of its own messages, it takes the pieces of all for those of one, and
    crashes."""
    program = build(mpi, SOURCES / "fabric_onesided.c")
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    for name, with_key in [("plain", None), ("sealed", key)]:
        with nodes.capture(tmp_path / f"{name}.pcap"):
            done = run(mpi, nodes, with_key, [program, tmp_path / "canary.bin"])
        assert done.ok and "all as put, got and accumulated" in done.output, done.output
        captured = (tmp_path / f"{name}.pcap").read_bytes()
        assert len(captured) > 100_000_000
        if with_key is None:
            assert captured.count(canary) > 1000
        else:
            expect_unseen(captured.count(canary))


@EVERY
def test_run_seals_the_job_and_says_so(mpi, build, nodes, tmp_path):
    program = build(mpi, SOURCES / "messages.c")
    sealing = sealing_of(tmp_path, nodes, layer="fabric")
    line = sealing.run_line(mpi, nodes, 2, [str(program), "tags_out_of_order", "reductions"], tmp_path / "report.json")
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    done = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=90, cwd=tmp_path)
    assert done.ok and "2 cases right" in done.output, done.output
    facts = sealing.report(tmp_path / "report.json")
    assert facts["layer"] == "fabric" and facts["complete"] and not facts["errors"], facts
    assert facts["ranks_reported"] == facts["ranks"] == 2
    assert facts["totals"]["sealed_records_sent"] == facts["totals"]["sealed_records_received"] > 100
    assert facts["not_sealed"] == [] and "cryptmpi: SEALED: " in done.output, facts
