"""A rank of the MPI layer as docs/protocol.md has it: its part of the agreement, and the secrets of its flows."""

import hashlib
import hmac
import os
import queue
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hybrid import IN_PREFIX as HYBRID
from hybrid import add_ml_kem
from members import IN_PREFIX, prove
from test_protocol import CONFIRM, DATA, JOB_KEY, SUITES, Direction, expand, noise, prefix

MOST = 131072  # bytes of a record
MESSAGES, COLLECTIVE, TO_ALL = 0, 1, 2


class Refused(Exception):
    pass


def require(truth, what):
    if not truth:
        raise Refused(what)


def number(value, size=4):
    return value.to_bytes(size, "little")


def parent_of(rank):
    return rank & (rank - 1)


def subtree_of(rank, ranks):
    return range(rank, rank + min(rank & -rank, ranks - rank)) if rank else range(ranks)


def children_of(rank, ranks):
    """The smallest subtree first."""
    steps = (1 << bit for bit in range(24))
    return [rank + step for step in steps if step < len(subtree_of(rank, ranks))]


class Edge:
    """To a parent or a child: the handshake, then records, each a message of its own."""

    def __init__(self, rank, peer):
        self.rank, self.peer = rank, peer
        child, parent = max(rank.rank, peer), min(rank.rank, peer)
        self.role = "initiator" if rank.rank == child else "responder"
        context = b"mpi layer" + number(rank.ranks) + number(child) + number(parent)
        self.conduct = rank.conduct | (IN_PREFIX if rank.member else 0) | (HYBRID if rank.hybrid else 0)
        self.noise = noise(self.role, rank.suite, JOB_KEY, self.conduct, context)
        if rank.member:
            prove(self.noise, self.role, rank.member, rank.listed)
        if rank.hybrid:
            add_ml_kem(self.noise, self.role)

    def identity(self):
        return self.rank.job + bytes(36) + b"a node".ljust(64, b"\0") + number(4711)

    def send_hello(self):
        own = prefix(1 if self.role == "initiator" else 2, self.rank.suite, self.conduct)
        self.rank.send(self.peer, own + self.noise.write_message(self.identity()))

    def receive_hello(self):
        kem_part = (1200 if self.role == "responder" else 1104) if self.rank.hybrid else 0
        hello = self.rank.receive(self.peer, (296 if self.rank.member else 200) + kem_part)
        expected = prefix(2 if self.role == "initiator" else 1, self.rank.suite, self.conduct)
        require(hello[:16] == expected, "another prefix")
        require(self.noise.read_message(hello[16:])[:68] == self.rank.job + bytes(36), "another job, or addresses")

    def open_streams(self):
        states = self.noise.noise_protocol
        self.out = Direction(states.cipher_state_encrypt.k, self.rank.suite)
        self.into = Direction(states.cipher_state_decrypt.k, self.rank.suite)

    def send(self, plain, type=DATA):
        for at in range(0, max(len(plain), 1), MOST):
            self.rank.send(self.peer, self.out.seal(type, plain[at : at + MOST]))

    def receive(self, size, type=DATA):
        plain = b""
        for at in range(0, max(size, 1), MOST):
            record = self.rank.receive(self.peer, min(size - at, MOST) + 20)
            ((found, part),) = self.into.open(record)
            require(found == type, "a record of another type")
            plain += part
        return plain


@dataclass
class Rank:
    rank: int
    ranks: int
    send_to: object  # (rank, bytes)
    suite: str = "AES-256-GCM"
    job_id: bytes = b"a job"
    node: bytes = bytes(32)
    terms: bytes = bytes(12) + number(61440)
    conduct: int = 1
    member: object = None
    listed: tuple = ()
    hybrid: bool = False
    came: dict = field(default_factory=dict)
    spoil: object = None  # (what, plain) -> plain, for a rank that breaks a rule

    def __post_init__(self):
        self.job = hashlib.sha256(self.job_id).digest()
        self.private_key = X25519PrivateKey.generate()
        self.share = self.private_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        for peer in range(self.ranks):
            self.came[peer] = queue.Queue()

    def send(self, peer, message):
        self.send_to(peer, message)

    def receive(self, peer, size):
        message = self.came[peer].get(timeout=30)
        require(message is not None and len(message) == size, "a message of another size")
        return message

    def said(self, what, plain):
        return self.spoil(what, plain) if self.spoil else plain

    def agree(self):
        """The five passes."""
        parent = Edge(self, parent_of(self.rank)) if self.rank else None
        children = [Edge(self, child) for child in children_of(self.rank, self.ranks)]
        if parent:
            parent.send_hello()
            parent.receive_hello()
            parent.open_streams()
        for child in reversed(children):
            child.receive_hello()
            child.send_hello()
            child.open_streams()
        # gather
        table = number(self.rank) + self.node + self.share
        for child in children:
            child.receive(0, CONFIRM)
            below = subtree_of(child.peer, self.ranks)
            part = child.receive(68 * len(below))
            require([part[at : at + 4] for at in range(0, len(part), 68)] == [number(rank) for rank in below], "ranks of a child")
            table += part
        if parent:
            parent.send(b"", CONFIRM if not self.spoil or self.spoil("confirm record", b"") == b"" else DATA)
            parent.send(self.said("table up", table))
        # spread
        if parent:
            spread = parent.receive(48)
            whole = parent.receive(68 * self.ranks)
            own = whole[68 * self.rank : 68 * self.rank + len(table)]
            require(own == table, "our own entries")
        else:
            spread, whole = os.urandom(32) + self.terms, table
        entries = [whole[at : at + 68] for at in range(0, len(whole), 68)]
        require([entry[:4] for entry in entries] == [number(rank) for rank in range(self.ranks)], "order of the ranks")
        self.shares = [entry[36:] for entry in entries]
        require(len(set(self.shares)) == self.ranks and bytes(32) not in self.shares, "shares that differ")
        self.nodes = [entry[4:36] for entry in entries]
        for child in reversed(children):
            child.send(self.said("spread", spread))
            child.send(self.said("table down", whole))
        # confirm
        kind = bytes([2, SUITES[self.suite][0]])
        hashed = b"mpi transcript" + kind + self.job + number(self.ranks) + whole + spread[32:]
        transcript = hashlib.sha256(hashed).digest()
        confirmation = expand(spread[:32], b"mpi confirm" + transcript, 32)
        self.job_secret = expand(spread[:32], b"mpi job" + transcript, 32)
        for child in children:
            require(child.receive(32) == confirmation, "a child's confirmation")
        if parent:
            parent.send(self.said("confirmation", confirmation))
            parent.receive(0)
        for child in reversed(children):
            child.send(b"")
        return self

    def flow_secret(self, sender, receiver, use, id=bytes(32)):
        """Of a communicator; that of all ranks has the id of zeros here."""
        at = "0" if id == bytes(32) else "1" + "".join(f"{byte:08b}" for byte in id)[:61]
        if use == TO_ALL:
            bits = max(1, (self.ranks - 1).bit_length())
            return leaf(leaf(expand(self.job_secret, b"mpi groups", 32), at), f"{sender:0{bits}b}")
        peer = receiver if sender == self.rank else sender
        shared = self.private_key.exchange(X25519PublicKey.from_public_bytes(self.shares[peer]))
        extracted = hmac.new(expand(self.job_secret, b"mpi pairs", 32), shared, hashlib.sha256).digest()
        pair = expand(extracted, b"mpi pair" + number(min(self.rank, peer)) + number(max(self.rank, peer)), 32)
        return leaf(pair, at + ("0" if use == MESSAGES else "1") + ("0" if sender < receiver else "1"))


def leaf(secret, path):
    for bit in path:
        halves = hmac.new(secret, b"cryptmpi 1 mpi branch\1", hashlib.sha256).digest()
        halves += hmac.new(secret, halves + b"cryptmpi 1 mpi branch\2", hashlib.sha256).digest()
        secret = halves[32:] if bit == "1" else halves[:32]
    return secret


class Flow:
    """Messages of one sender to one receiver, or to all."""

    def __init__(self, secret, suite):
        self.secret = secret
        _, self.key_size, self.nonce_size, self.new_cipher = SUITES[suite]

    def cipher(self, epoch):
        secret = leaf(self.secret, "0" if epoch == 0 else f"1{epoch:015b}")
        base = int.from_bytes(expand(secret, b"nonce", self.nonce_size), "big")
        return self.new_cipher(expand(secret, b"key", self.key_size)), base

    def seal(self, lane, count, plain, epoch=0):
        cipher, base = self.cipher(epoch)
        header = number(count | epoch << 48, 8)
        return header + cipher.encrypt((base ^ (lane << 64 | count)).to_bytes(self.nonce_size, "big"), plain, header)

    def open(self, lane, message):
        """Number, epoch and plaintext."""
        word = int.from_bytes(message[:8], "little")
        count, epoch = word & (1 << 48) - 1, word >> 48
        cipher, base = self.cipher(epoch)
        return count, epoch, cipher.decrypt((base ^ (lane << 64 | count)).to_bytes(self.nonce_size, "big"), message[8:], message[:8])
