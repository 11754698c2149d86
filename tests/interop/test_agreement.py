"""The MPI layer's agreement and the messages of its flows: ranks in Python (mpi_rank.py) beside one of our own."""

import contextlib
import os
import queue
import subprocess
import threading

import pytest
from mpi_rank import COLLECTIVE, MESSAGES, TO_ALL, Flow, Rank, number
from test_protocol import JOB_KEY, PEER, Members

AGREEMENT_PEER = PEER.with_name("agreement_peer")
TERMS = bytes(12) + number(61440)


class Ours:
    """Our rank, in a process of its own; `deliver(rank, bytes)` brings what it sends in the agreement to others."""

    def __init__(self, rank, ranks, deliver, suite="AES-256-GCM", job_id="a job", conduct=1, record_limit=1 << 24, members=(), key_exchange="x25519"):
        arguments = [suite, JOB_KEY.hex(), job_id, bytes([rank] * 32).hex(), TERMS.hex(), conduct, rank, ranks, record_limit, key_exchange, *members]
        self.process = subprocess.Popen([AGREEMENT_PEER, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.deliver, self.answers, self.writing = deliver, queue.Queue(), threading.Lock()
        self.reading = threading.Thread(target=self._read)
        self.reading.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("> "):
                _, rank, message = line.split()
                self.deliver(int(rank), bytes.fromhex(message))
            else:
                self.answers.put(line.rstrip("\n"))
        self.answers.put("ended")

    def hear(self, sender, message):
        with self.writing, contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{sender} {message.hex()}\n")
            self.process.stdin.flush()

    def ask(self, *words):
        with self.writing:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        return self.answers.get(timeout=30)

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=30)
        self.reading.join(30)
        self.process.stdout.close()


class Job:
    """Rank `ours` of `ranks` is our own code, all others are Python."""

    def __init__(self, ours, ranks, spoil=None, others=None, **settings):
        self.theirs = {}
        suite = settings.get("suite", "AES-256-GCM")
        for rank in range(ranks):
            if rank != ours:
                self.theirs[rank] = Rank(rank, ranks, self._way_from(rank, ours), suite, node=bytes([rank] * 32), terms=TERMS,
                                         **(others or {}), spoil=spoil)
        self.ours_rank, self.failed = ours, {}
        self.ours = Ours(ours, ranks, lambda peer, message: self.theirs[peer].came[ours].put(message), **settings)

    def _way_from(self, rank, ours):
        def send(peer, message):
            if peer == ours:
                self.ours.hear(rank, message)
            else:
                self.theirs[peer].came[rank].put(message)
        return send

    def run(self):
        """What our rank says in the end."""
        def part(rank):
            try:
                rank.agree()
            except Exception as error:
                self.failed[rank.rank] = error
                for other in self.theirs.values():  # nothing more comes: whoever waits for it gives up
                    other.came[rank.rank].put(None)
        threads = [threading.Thread(target=part, args=(rank,)) for rank in self.theirs.values()]
        for thread in threads:
            thread.start()
        said = self.ours.answers.get(timeout=30)
        if said != "agreed":
            for other in self.theirs.values():
                other.came[self.ours_rank].put(None)
        for thread in threads:
            thread.join(60)
        return said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.end()


# protocol: A1, A3, A6, A11, A12
@pytest.mark.parametrize("ours, ranks", [(0, 1), (0, 2), (1, 2), (0, 5), (2, 5), (4, 5), (0, 8), (4, 8), (6, 8), (7, 8)])
def test_all_come_to_one_secret_and_one_table(ours, ranks):
    with Job(ours, ranks) as job:
        assert job.run() == "agreed" and not job.failed, job.failed
        assert len({rank.job_secret for rank in job.theirs.values()}) == (ranks > 1)
        for peer, rank in job.theirs.items():
            assert rank.nodes == [bytes([r] * 32) for r in range(ranks)]
            check_flows(job.ours, ours, rank, peer)


# protocol: A24
@pytest.mark.parametrize("ours", [0, 2, 4])
def test_ranks_that_are_members(ours, tmp_path):
    members = Members(tmp_path)
    with Job(ours, 5, others={"member": members.theirs, "listed": (members.ours, members.theirs)}, members=members.files) as job:
        assert job.run() == "agreed" and not job.failed, job.failed


# protocol: A24
@pytest.mark.parametrize("required", ["here", "there"])
def test_ranks_of_which_one_requires_members(required, tmp_path):
    members = Members(tmp_path)
    others = {"member": members.theirs, "listed": (members.ours, members.theirs)} if required == "there" else {}
    with Job(0, 2, others=others, members=members.files if required == "here" else ()) as job:
        assert f"require_members is {'on' if required == 'here' else 'off'} here" in job.run()


# protocol: A25
@pytest.mark.parametrize("as_members", [False, True], ids=["", "members"])
@pytest.mark.parametrize("ours", [0, 2, 4])
def test_ranks_with_ml_kem(ours, as_members, tmp_path):
    members = Members(tmp_path)
    who = {"member": members.theirs, "listed": (members.ours, members.theirs)} if as_members else {}
    more = {"members": members.files} if as_members else {}
    with Job(ours, 5, others={"hybrid": True, **who}, key_exchange="x25519-mlkem768", **more) as job:
        assert job.run() == "agreed" and not job.failed, job.failed
        for peer, rank in job.theirs.items():
            check_flows(job.ours, ours, rank, peer)


# protocol: A25
@pytest.mark.parametrize("hybrid", ["here", "there"])
def test_ranks_of_which_one_uses_ml_kem(hybrid):
    with Job(0, 2, others={"hybrid": hybrid == "there"}, key_exchange="x25519-mlkem768" if hybrid == "here" else "x25519") as job:
        assert "give every node the same setting key_exchange" in job.run()


def check_flows(ours, self, rank, peer, suite="AES-256-GCM", limit=1 << 24):
    """Messages of every use, both ways: they open only if both have the same job secret."""
    for use, lane in ((MESSAGES, 7), (COLLECTIVE, 5 << 24 | 3), (TO_ALL, 1 << 24)):
        there = Flow(rank.flow_secret(self, peer, use), suite)
        back = Flow(rank.flow_secret(peer, self, use), suite)
        for count, size in enumerate((0, 1, 100)):
            plain = os.urandom(size)
            if use != TO_ALL or peer == min(r for r in range(rank.ranks) if r != self):  # sealed once for all
                message = bytes.fromhex(ours.ask("s", peer, use, bytes(32).hex(), lane, count, plain.hex()))
                assert there.open(lane, message) == (count, count // limit, plain)
            answer = ours.ask("o", peer, use, bytes(32).hex(), lane, back.seal(lane, count, plain, count // limit).hex())
            assert answer == f"{count} {plain.hex()}"


# protocol: M1, M3, M8, M11
@pytest.mark.parametrize("suite", ["AES-128-GCM", "AEGIS-256X2"])
@pytest.mark.parametrize("ours", [0, 1])
def test_messages_of_a_pair(ours, suite):
    """On another communicator, past several keys, and what must not open."""
    id = bytes(range(32))
    with Job(ours, 2, suite=suite, record_limit=2) as job:
        assert job.run() == "agreed" and not job.failed, job.failed
        (peer, rank), = job.theirs.items()
        check_flows(job.ours, ours, rank, peer, suite, limit=2)
        there, back = Flow(rank.flow_secret(ours, peer, MESSAGES, id), suite), Flow(rank.flow_secret(peer, ours, MESSAGES, id), suite)
        for count in range(9):
            message = bytes.fromhex(job.ours.ask("s", peer, MESSAGES, id.hex(), 2, count, "0102"))
            assert there.open(2, message) == (count, count // 2, b"\1\2")
        assert job.ours.ask("o", peer, MESSAGES, id.hex(), 2, back.seal(2, 5, b"late", 700).hex()) == f"5 {b'late'.hex()}"
        message = back.seal(2, 6, b"plain")
        for lane, altered in ((3, message), (2, message[:-1]), (2, message[:8] + bytes([message[8] ^ 1]) + message[9:]), (2, b"\1" + message[1:])):
            assert job.ours.ask("o", peer, MESSAGES, id.hex(), lane, altered.hex()).startswith("error")
        assert job.ours.ask("o", peer, COLLECTIVE, id.hex(), 2, message.hex()).startswith("error")
        assert job.ours.ask("o", peer, MESSAGES, id.hex(), 2, message.hex()) == f"6 {b'plain'.hex()}"


def entry_of(rank, **changes):
    """A spoiler: changes bytes of that rank's entry in a table; `at` counts from the entry's beginning."""
    def spoil(what, plain):
        if what != changes["what"]:
            return plain
        begin = 68 * rank + changes["at"]
        return plain[:begin] + changes["by"] + plain[begin + len(changes["by"]) :]
    return spoil


def instead(what, by):
    return lambda said, plain: by if said == what else plain


# protocol: A14, A15, A16, A17, A18, A19
@pytest.mark.parametrize("ours, spoil, line", [
    (0, instead("confirm record", b"data"), "another type than was due"),
    (0, entry_of(0, what="table up", at=0, by=number(2)), "other members than rank 1 in order"),
    (0, entry_of(0, what="table up", at=36, by=bytes(32)), "the same key share, or one has none"),
    (0, instead("confirmation", bytes(32)), "confirms another secret, other terms or another table"),
    (0, instead("table up", bytes(67)), "were expected"),
    (1, entry_of(1, what="table down", at=4, by=b"\xaa"), "changes the node or the share of rank 1"),
    (1, entry_of(1, what="table down", at=36, by=b"\xaa\xbb"), "changes the node or the share of rank 1"),
    (1, entry_of(0, what="table down", at=0, by=number(1)), "other members than ranks 0 to 1 in order"),
    (1, entry_of(0, what="table down", at=36, by=bytes(32)), "the same key share, or one has none"),
    (1, instead("spread", bytes(47)), "were expected"),
])
def test_a_rank_that_breaks_a_rule_is_refused(ours, spoil, line):
    with Job(ours, 2, spoil) as job:
        said = job.run()
        assert said.startswith("error ") and line in said, said


# protocol: A2, A3
@pytest.mark.parametrize("others, line", [({"conduct": 2}, "seals"), ({"conduct": 0}, "seals"), ({"job_id": b"another"}, "belongs to another job")])
def test_a_rank_of_another_kind_is_refused(others, line):
    with Job(0, 2, others=others) as job:
        said = job.run()
        assert said.startswith("error ") and line in said, said


# protocol: A3
def test_a_rank_that_counts_other_ranks_is_refused():
    class Elsewhere(Rank):
        def __post_init__(self):
            super().__post_init__()
            self.ranks = 3
    with Job(0, 2) as job:
        job.theirs[1] = Elsewhere(1, 2, job.theirs[1].send_to, node=bytes([1] * 32), terms=TERMS)
        said = job.run()
        assert said.startswith("error ") and "does not open" in said, said
