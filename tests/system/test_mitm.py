"""A man in the middle between two nodes: whatever he does is noticed, nothing altered is delivered, and nothing
hangs."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import error_lines, needs
from cryptmpi_tools.lab.nodes import FirstNodes
from cryptmpi_tools.lab.stacks import stack
from run_talk import PORTS, Talk, talk

MITM = Path(__file__).with_name("mitm.py")

pytestmark = needs("nft")


class Man:
    def __init__(self, lab, attack, *options):
        self.process = lab.start([sys.executable, MITM, "--attack", attack, *options], node=2, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.said = self.process.communicate()[0]

    @property
    def did_it(self):
        return "done" in self.said


def check_unaltered(ends):
    for seen, said in ends:
        assert seen["unaltered"], said


def check_detected(lab, ends, toward, parts):
    """The end that the attack went to got an error, not an end, and said why; the other one did not get everything as
    if all were well."""
    check_unaltered(ends)
    victim = 0 if toward == "initiator" else 1
    seen, said = ends[victim]
    other = lab.nodes[1 - victim].address
    assert not seen["complete"] or seen["read_error"], said
    assert seen["read_error"], f"an end without an error: {seen} {said}"
    lines = [line for line in error_lines(said) if other in line]
    assert len(lines) == 1, said
    assert "from" in lines[0], lines


FORGERIES = ["flip:size", "flip:type", "flip:first", "flip:middle", "flip:last", "flip:tag", "flip:end", "drop", "duplicate", "reorder",
             "replay", "reflect", "inject", "inject-close", "inject-garbage"]
CUTS = ["truncate", "truncate-inside", "truncate-close"]


@pytest.mark.parametrize("toward", ["responder", "initiator"])
def test_without_an_attack_all_is_well(middle, sealing, toward):
    report = sealing.report_file()
    environment = sealing.environment(report)  # not even addresses show him
    with Man(middle, "none"):
        ends = talk(middle, environment, environment)
    for seen, said in ends:
        assert seen["complete"] and not seen["read_error"], (seen, said)
        assert error_lines(said) == []
    assert all(part["failed_opens"] == 0 for part in sealing.parts(report))


def test_he_can_alter_a_plain_connection(middle):
    """Else the tests below would show nothing: what goes in clear reaches the other side through him."""
    with Man(middle, "none"):
        ends = talk(middle, {}, {})
    assert all(seen["complete"] for seen, _ in ends)


@pytest.mark.parametrize("toward", ["responder", "initiator"])
@pytest.mark.parametrize("attack", FORGERIES)
def test_forged_records(middle, sealing, attack, toward):
    report = sealing.report_file()
    environment = sealing.environment(report)
    with Man(middle, attack, "--toward", toward) as man:
        ends = talk(middle, environment, environment)
    assert man.did_it
    check_detected(middle, ends, toward, sealing.parts(report))
    assert sum(part["failed_opens"] for part in sealing.parts(report)) == 1


@pytest.mark.parametrize("attack", ["flip:middle", "flip:tag", "flip:size", "drop", "duplicate", "reorder", "inject-garbage", "truncate-inside"])
def test_forged_records_among_several_that_are_opened_together(middle, sealing, attack):
    report = sealing.report_file()
    environment = sealing.environment(report, threads=4)
    with Man(middle, attack, "--toward", "responder", "--smallest", "60000", "--record", "200") as man:
        ends = talk(middle, environment, environment, 1 << 20)
    assert man.did_it
    check_detected(middle, ends, "responder", sealing.parts(report))
    assert sum(part["records_by_workers"] for part in sealing.parts(report)) > 0


# protocol: R8
@pytest.mark.parametrize("toward", ["responder", "initiator"])
@pytest.mark.parametrize("attack", CUTS)
def test_cut_off(middle, sealing, attack, toward):
    report = sealing.report_file()
    environment = sealing.environment(report)
    with Man(middle, attack, "--toward", toward, *(["--record", "0"] if attack == "truncate-close" else [])) as man:
        ends = talk(middle, environment, environment)
    assert man.did_it
    check_detected(middle, ends, toward, sealing.parts(report))


@pytest.mark.parametrize("toward", ["responder", "initiator"])
def test_reset(middle, sealing, toward):
    """A reset is an error without us, too; it is never taken for an end, and it is said that no peer announced it."""
    environment = sealing.environment()
    with Man(middle, "reset", "--toward", toward) as man:
        ends = talk(middle, environment, environment)
    assert man.did_it
    check_unaltered(ends)
    for seen, said in ends:
        assert seen["read_error"] or seen["write_error"], said
        assert any("without the authenticated close" in line for line in error_lines(said)), said


# A client that the kernel tells of a broken connection, and that closes it without reading, as libfabric does.
CLOSES_UNREAD = """
import select, socket, sys, time
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
poll = select.poll()
poll.register(one, select.POLLRDHUP)
while not poll.poll(10):
    one.send(bytes(5000))
    time.sleep(0.01)
if sys.argv[3] == "shutdown":
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
one.close()
print("closed", flush=True)
"""
TAKES_ALL = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
one = listener.accept()[0]
try:
    while one.recv(65536):
        one.sendall(b"so far")
except OSError:
    pass
"""


@pytest.mark.parametrize("how", ["shutdown", "close"])
@pytest.mark.parametrize("attack", ["reset", "truncate"])
def test_end_that_the_program_does_not_read(middle, sealing, attack, how):
    environment = sealing.environment()
    where = [middle.nodes[1].address, str(next(PORTS))]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Man(middle, attack, "--toward", "initiator") as man:
        server = middle.start([sys.executable, "-c", TAKES_ALL, *where], node=1, env=environment, **pipes)
        assert server.stdout.readline() == "listening\n"
        rank = {**sealing.environment(abort_after_s=0), "PMI_RANK": "0", "PMI_SIZE": "2"}
        client = middle.start([sys.executable, "-c", CLOSES_UNREAD, *where, how], env=rank, **pipes)
        out, said = client.communicate(timeout=30)
        server.communicate(timeout=30)
    assert man.did_it and out == "closed\n", (out, said)
    assert any("without the authenticated close" in line for line in error_lines(said)), said


@pytest.mark.parametrize("toward", ["responder", "initiator"])
def test_withheld(middle, sealing, toward):
    """The connection stands, and nothing comes: no record that does not open says why."""
    environment = sealing.environment(silence_timeout_s=1)
    with Man(middle, "withhold", "--toward", toward) as man:
        ends = talk(middle, environment, environment)
    assert man.did_it
    check_unaltered(ends)
    seen, said = ends[0 if toward == "initiator" else 1]
    assert seen["read_error"], said
    lines = [line for line in error_lines(said) if "silence_timeout_s" in line]
    assert len(lines) == 1 and "no record has come for 1 s" in lines[0], said


# How long the client waits before each chunk, and the server before it reads what came, against 0.5 s of silence.
@pytest.mark.parametrize("pauses", [("0.9", "0"), ("0", "0.9")], ids=["idle", "busy"])
def test_silence_is_not_withholding(two_nodes, sealing, pauses):
    """Where nobody has anything to say, and where the program does not read what was said."""
    report = sealing.report_file()
    environment = sealing.environment(report, silence_timeout_s=0.5)
    ends = talk(two_nodes, environment, environment, 5000, *pauses, 3)
    for seen, said in ends:
        assert seen["complete"] and error_lines(said) == [], (seen, said)


@pytest.mark.parametrize("attack", ["flip:middle", "truncate-inside", "reset"])
def test_a_rank_learns_nothing_of_a_broken_connection(middle, sealing, attack):
    """MPICH over libfabric calls a receive complete that an error cut short: nothing may go on behind it."""
    rank = {**sealing.environment(abort_after_s=0.5), "PMI_RANK": "0", "PMI_SIZE": "2"}
    with Man(middle, attack, "--toward", "initiator") as man:
        ends = Talk(middle, sealing.environment(), rank)
        out, said = ends.client.communicate(timeout=30)
        ends.server.communicate(timeout=40)
    assert man.did_it
    assert (ends.client.returncode, out) == (125, ""), (out, said)
    assert any("ending this rank" in line for line in error_lines(said)), said


@pytest.mark.parametrize("toward", ["responder", "initiator"])
def test_record_of_an_earlier_connection(middle, sealing, toward):
    report = sealing.report_file()
    environment = sealing.environment(report)
    with Man(middle, "replay-earlier-connection", "--toward", toward) as man:
        first = talk(middle, environment, environment)
        second = talk(middle, environment, environment)
    assert man.did_it
    assert all(seen["complete"] for seen, _ in first)
    check_detected(middle, second, toward, sealing.parts(report))


@pytest.mark.parametrize("toward", ["responder", "initiator"])
def test_splice_of_two_connections(middle, sealing, toward):
    environment = sealing.environment()
    with Man(middle, "splice", "--toward", toward) as man:
        talks = [Talk(middle, environment, environment) for _ in range(2)]
        both = [each.finish() for each in talks]
    assert man.did_it
    check_unaltered(both[0] + both[1])
    # "done" after the first of the two; that one must have been noticed.
    victims = [ends[0 if toward == "initiator" else 1] for ends in both]
    assert any(seen["read_error"] and error_lines(said) for seen, said in victims), victims


# Where a hello is altered: magic, version, message number, suite, reserved byte, key share, sealed identity, tag.
HELLO_BYTES = [0, 3, 4, 5, 6, 7, 8, 39, 40, 100, 175, 176, 191]


@pytest.mark.parametrize("toward", ["responder", "initiator"])
@pytest.mark.parametrize("attack", [*(f"hello-flip-{at}" for at in HELLO_BYTES), "hello-zero-share", "hello-reflect", "hello-replay"])
def test_forged_hello(middle, sealing, attack, toward):
    if attack == "hello-reflect" and toward == "initiator":
        pytest.skip("the responder's hello would be sent back to it where a record is expected: see reflect")
    report = sealing.report_file()
    environment = sealing.environment(report, handshake_timeout_s=3)
    with Man(middle, attack, "--toward", toward) as man:
        if attack == "hello-replay":
            assert all(seen["complete"] for seen, _ in talk(middle, environment, environment))
        ends = talk(middle, environment, environment)
    assert man.did_it
    check_unaltered(ends)
    assert all(seen["received"] == 0 for seen, _ in ends)
    assert any(error_lines(said) for _, said in ends), ends
    assert all(seen["connect_error"] or seen["read_error"] for seen, _ in ends), ends


# Where ML-KEM is used, too: the bit that says so, the first and the last bytes of what ML-KEM adds and of its tag, and
# what is behind them.
HYBRID_BYTES = [7, 48, 1135, 1136, 1151, 1152, 1231, 1232, 1300]
HYBRID = "x25519-mlkem768"


@pytest.mark.parametrize("toward", ["responder", "initiator"])
@pytest.mark.parametrize("attack", [*(f"hello-flip-{at}" for at in HYBRID_BYTES), "hello-without-ml-kem", "hello-other-ml-kem", "hello-replay"])
def test_forged_hello_with_ml_kem(middle, sealing, attack, toward):
    report = sealing.report_file()
    environment = sealing.environment(report, handshake_timeout_s=3, key_exchange=HYBRID)
    with Man(middle, attack, "--toward", toward) as man:
        if attack in ("hello-replay", "hello-other-ml-kem"):
            assert all(seen["complete"] for seen, _ in talk(middle, environment, environment))
        ends = talk(middle, environment, environment)
    assert man.did_it
    check_unaltered(ends)
    assert all(seen["received"] == 0 for seen, _ in ends)
    assert any(error_lines(said) for _, said in ends), ends
    assert all(seen["connect_error"] or seen["read_error"] for seen, _ in ends), ends
    if attack == "hello-without-ml-kem":
        _, said = ends[0 if toward == "initiator" else 1]
        assert any("give every node the same setting key_exchange" in line for line in error_lines(said)), said


# protocol: H20
@pytest.mark.parametrize("hybrid", ["client", "server"])
def test_ends_that_exchange_keys_in_different_ways(two_nodes, sealing, hybrid):
    plain, both = sealing.environment(handshake_timeout_s=3), sealing.environment(handshake_timeout_s=3, key_exchange=HYBRID)
    ends = talk(two_nodes, plain, both) if hybrid == "client" else talk(two_nodes, both, plain)
    check_unaltered(ends)
    assert all(seen["received"] == 0 for seen, _ in ends), ends
    lines = [line for _, said in ends for line in error_lines(said) if "give every node the same setting key_exchange" in line]
    assert len(lines) == 1, ends


def test_relay_with_its_own_address(middle, sealing):
    """He alters nothing, but the ends see each other at other addresses than they are: refused, unless check_addresses
    is off."""
    environment = sealing.environment(handshake_timeout_s=3)
    with Man(middle, "none", "--own-address"):
        ends = talk(middle, environment, environment)
        assert all(seen["received"] == 0 for seen, _ in ends), ends
        assert any("check_addresses" in line for _, said in ends for line in error_lines(said)), ends
        environment = sealing.environment(check_addresses="false")
        ends = talk(middle, environment, environment)
        assert all(seen["complete"] for seen, _ in ends), ends


@pytest.mark.parametrize("attack", ["flip:middle", "drop", "truncate", "reset"])
@pytest.mark.parametrize("name", ["mpich-4.0.2-ucx", "openmpi-4.1.4"])
def test_mpi_job(middle, sealing, name, attack, tmp_path):
    mpi = stack(name)
    if not mpi.present() or mpi.mpicc is None:
        pytest.skip(f"{name} is not installed")
    program = tmp_path / "exchange"
    source = Path(__file__).with_name("exchange.c")
    subprocess.run([mpi.mpicc, "-O1", source, "-o", program], check=True)
    report = sealing.report_file()
    lab = FirstNodes(middle, 2)
    environment = {**mpi.env(lab), **sealing.environment(report, abort_after_s=5)}
    # The ranks alone are sealed here; the launchers' connections pass him in clear.
    settings = [f"{key}={value}" for key, value in environment.items()]
    launcher = {**mpi.env(lab)}
    ranks = mpi.command(lab, 2, ["env", *settings, program], per_node=1)
    with Man(middle, "none"):
        finished = middle.run(ranks, env=launcher, timeout=60)
    assert finished.ok and "sum 4999950000" in finished.output, finished.output
    with Man(middle, attack, "--smallest", "4000", "--record", "3") as man:
        finished = middle.run(ranks, env=launcher, timeout=60)
    assert man.did_it, finished.output
    assert not finished.timed_out, finished.output
    assert finished.returncode != 0, finished.output
    assert "sum" not in finished.output
    # After a reset the MPI may have tried a new connection first.
    assert any("from " in line or attack == "reset" for line in error_lines(finished.output)), finished.output
