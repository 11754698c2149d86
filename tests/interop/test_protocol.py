"""The protocol as docs/protocol.md has it, on Python's noiseprotocol and cryptography, against our own code in both
roles."""

import hashlib
import hmac
import math
import json
import os
import subprocess
from pathlib import Path

import aegis
import pytest
import tripledes
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hybrid import IN_PREFIX as HYBRID
from hybrid import NAME as HYBRID_NAME
from hybrid import add_ml_kem
from members import IN_PREFIX, Member, prove
from noise.connection import NoiseConnection
from noise.exceptions import NoiseInvalidMessage

# Number, bytes of a key, bytes of a nonce, cipher.
SUITES = {
    "AES-128-GCM": (1, 16, 12, AESGCM),
    "AES-256-GCM": (2, 32, 12, AESGCM),
    "AEGIS-128L": (3, 16, 16, lambda key: aegis.Aegis(key, 1)),
    "AEGIS-128X2": (4, 16, 16, lambda key: aegis.Aegis(key, 2)),
    "AEGIS-128X4": (5, 16, 16, lambda key: aegis.Aegis(key, 4)),
    "AEGIS-256": (6, 32, 32, lambda key: aegis.Aegis(key, 1)),
    "AEGIS-256X2": (7, 32, 32, lambda key: aegis.Aegis(key, 2)),
    "AEGIS-256X4": (8, 32, 32, lambda key: aegis.Aegis(key, 4)),
    "3DES-CBC-HMAC-SHA-256": (9, 32, 12, tripledes.TripleDesCbcHmac),
}
DATA, CONFIRM, REKEY, CLOSE, PADDED = 1, 2, 3, 4, 6
JOB_KEY = bytes(range(100, 132))
REPOSITORY = Path(__file__).resolve().parents[2]
PEER = Path(os.environ.get("TEST_BUILD", REPOSITORY / "build" / "release")) / "bin" / "protocol_peer"


def endpoint(last, port):
    return bytes(10) + b"\xff\xff" + bytes([10, 0, 0, last]) + port.to_bytes(2, "big")


def identity(role, job=b"a job"):
    ends = endpoint(1, 40000), endpoint(2, 5000)
    local, remote = ends if role == "initiator" else ends[::-1]
    return hashlib.sha256(job).digest() + local + remote + b"a node".ljust(64, b"\0") + (4711).to_bytes(4, "little")


def expand(secret, label, size):
    block = hmac.new(secret, b"cryptmpi 1 " + label + b"\1", hashlib.sha256).digest()
    return block[:size]


def prefix(message, suite, conduct=0, key=JOB_KEY):
    return b"CMPI" + bytes([2, message, SUITES[suite][0], conduct]) + expand(key, b"key id", 8)


def padme(size):
    """As its authors have it, in Python."""
    if size < 2:
        return size
    exponent = math.floor(math.log2(size))
    last_bits = exponent - (math.floor(math.log2(exponent)) + 1 if exponent else 0)
    return size + -size % (1 << max(last_bits, 0))


def padded(data, room):
    """A padded record's plaintext."""
    return data + bytes(room - len(data)) + len(data).to_bytes(4, "little")


def unpadded(plain):
    size = int.from_bytes(plain[-4:], "little")
    assert 0 < size <= len(plain) - 4 and not any(plain[size:-4])
    return plain[:size]


class Direction:
    """One direction of a connection, from its secret."""

    def __init__(self, secret, suite):
        _, self.key_size, self.nonce_size, self.new_cipher = SUITES[suite]
        self.use(secret)

    def use(self, secret):
        self.secret = secret
        self.cipher = self.new_cipher(expand(secret, b"key", self.key_size))
        self.base = int.from_bytes(expand(secret, b"nonce", self.nonce_size), "big")
        self.counter = 0

    def nonce(self):
        nonce = (self.base ^ self.counter).to_bytes(self.nonce_size, "big")
        self.counter += 1
        return nonce

    def seal(self, type, plain=b""):
        header = (len(plain) | type << 24).to_bytes(4, "little")
        record = header + self.cipher.encrypt(self.nonce(), plain, header)
        if type == REKEY:
            self.use(expand(self.secret, b"next", 32))
        return record

    def open(self, wire):
        """The types and plaintexts of the records in `wire`."""
        opened = []
        while wire:
            word = int.from_bytes(wire[:4], "little")
            type, size = word >> 24, word & 0xFFFFFF
            opened.append((type, self.cipher.decrypt(self.nonce(), wire[4 : size + 20], wire[:4])))
            wire = wire[size + 20 :]
            if type == REKEY:
                self.use(expand(self.secret, b"next", 32))
        return opened


class Ours:
    """Our end, in a process of its own."""

    def __init__(self, role, suite, record_limit=1 << 24, members=(), key_exchange="x25519"):
        arguments = [role, suite, JOB_KEY.hex(), identity(role).hex(), str(record_limit), key_exchange, *members]
        self.process = subprocess.Popen(
            [PEER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")

    def seal(self, plain):
        self.tell("s " + plain.hex())
        return bytes.fromhex(self.hear())

    def control(self, letter):
        self.tell(letter)
        return bytes.fromhex(self.hear())

    def open(self, record):
        self.tell("o " + record.hex())
        answer = self.hear()
        if answer.startswith("error"):
            return answer
        type, plain = answer.split(" ")
        return int(type), bytes.fromhex(plain)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def noise(role, suite, key=JOB_KEY, conduct=0, context=b""):
    theirs = NoiseConnection.from_name(b"Noise_NNpsk0_25519_AESGCM_SHA256")
    if conduct & HYBRID:
        theirs.noise_protocol.name = HYBRID_NAME
    theirs.set_psks(key)
    theirs.set_prologue(prefix(1, suite, conduct, key) + prefix(2, suite, conduct, key) + context)
    theirs.set_as_initiator() if role == "initiator" else theirs.set_as_responder()
    theirs.start_handshake()
    return theirs


@pytest.fixture(params=SUITES)
def suite(request):
    if request.param.startswith("3DES") and not (PEER.parents[1] / "lib" / "cryptmpi" / "cryptmpi-module-legacy.so").exists():
        pytest.skip("the module legacy is not built: its library is missing")
    return request.param


@pytest.fixture(params=["initiator", "responder"])
def role(request):
    """Which role is ours."""
    return request.param


def shake_hands(role, suite, record_limit=1 << 24):
    """Our end, and the two directions of the other, seen from there: (ours, send, receive)."""
    ours = Ours(role, suite, record_limit)
    if role == "initiator":
        theirs = noise("responder", suite)
        hello = bytes.fromhex(ours.hear())
        assert hello[:16] == prefix(1, suite)
        assert theirs.read_message(hello[16:]) == identity("initiator")
        ours.tell((prefix(2, suite) + theirs.write_message(identity("responder"))).hex())
    else:
        theirs = noise("initiator", suite)
        ours.tell((prefix(1, suite) + theirs.write_message(identity("initiator"))).hex())
        hello = bytes.fromhex(ours.hear())
        assert hello[:16] == prefix(2, suite)
        assert theirs.read_message(hello[16:]) == identity("responder")
    assert len(hello) == 200
    assert theirs.handshake_finished
    states = theirs.noise_protocol
    return ours, Direction(states.cipher_state_encrypt.k, suite), Direction(states.cipher_state_decrypt.k, suite)


def vectors():
    return json.loads((REPOSITORY / "tests" / "data" / "aegis" / "draft-irtf-cfrg-aegis-aead-17.json").read_text())


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["section"])
def test_aegis_gives_the_vectors(vector):
    key, nonce, ad, sealed = (bytes.fromhex(vector[name]) for name in ("key", "nonce", "ad", "ct"))
    sealed += bytes.fromhex(vector["tag"])
    cipher = SUITES[vector["suite"]][3](key)
    if "msg" in vector:
        plain = bytes.fromhex(vector["msg"])
        assert cipher.encrypt(nonce, plain, ad) == sealed
        assert cipher.decrypt(nonce, sealed, ad) == plain
    else:
        with pytest.raises(aegis.InvalidTag):
            cipher.decrypt(nonce, sealed, ad)


# protocol: L1, L2
def test_the_legacy_suites_vectors_are_this_implementations():
    assert json.loads((REPOSITORY / "tests" / "data" / "legacy" / "3des-cbc-hmac-sha-256.json").read_text()) == tripledes.vectors()


# protocol: H2, R3
def test_records_pass_both_ways(role, suite):
    ours, send, receive = shake_hands(role, suite)
    assert receive.open(ours.control("c")) == [(CONFIRM, b"")]
    assert ours.open(send.seal(CONFIRM)) == (CONFIRM, b"")
    for size in (0, 1, 16, 1000, 131072):
        plain = os.urandom(size)
        assert receive.open(ours.seal(plain)) == [(DATA, plain)]
        assert ours.open(send.seal(DATA, plain)) == (DATA, plain)
    assert receive.open(ours.control("x")) == [(CLOSE, b"")]
    assert ours.open(send.seal(CLOSE)) == (CLOSE, b"")
    ours.end()


def test_both_ends_change_keys(role, suite):
    ours, send, receive = shake_hands(role, suite, record_limit=4)
    for number in range(10):
        plain = bytes([number])
        expected = [(DATA, plain)] if number % 3 or number == 0 else [(REKEY, b""), (DATA, plain)]
        assert receive.open(ours.seal(plain)) == expected
        if number % 3 == 0 and number:
            assert ours.open(send.seal(REKEY)) == (REKEY, b"")
        assert ours.open(send.seal(DATA, plain)) == (DATA, plain)
    ours.end()


def test_an_altered_record_opens_on_neither_side(role, suite):
    ours, send, receive = shake_hands(role, suite)
    record = bytearray(ours.seal(b"something"))
    record[-1] ^= 1
    with pytest.raises((InvalidTag, aegis.InvalidTag, tripledes.InvalidTag)):
        receive.open(bytes(record))
    record = bytearray(send.seal(DATA, b"something"))
    record[-1] ^= 1
    assert ours.open(bytes(record)).startswith("error record 0 of epoch 0 does not open")
    ours.end()


def test_another_job_key_is_refused_by_both(suite):
    ours = Ours("initiator", suite)
    with pytest.raises((InvalidTag, NoiseInvalidMessage)):
        noise("responder", suite, bytes(32)).read_message(bytes.fromhex(ours.hear())[16:])
    ours.end()

    ours = Ours("responder", suite)
    ours.tell((prefix(1, suite) + noise("initiator", suite, bytes(32)).write_message(identity("initiator"))).hex())
    assert "does not have the job key that it names" in ours.hear()
    ours.end()

    other = bytes(32)
    ours = Ours("responder", suite)
    ours.tell((prefix(1, suite, key=other) + noise("initiator", suite, other).write_message(identity("initiator"))).hex())
    assert f"has job key {expand(other, b'key id', 8).hex()}, which is not in our key file" in ours.hear()
    ours.end()


class Members:
    """Two members that all know: ours, whose key is in a file, and Python's."""

    def __init__(self, folder):
        self.ours, self.theirs = Member("ours"), Member("theirs")
        self.list = folder / "members"
        self.list.write_text(self.ours.line() + self.theirs.line())
        self.list.chmod(0o644)
        self.files = [self.ours.write_key(folder / "member.key"), self.list]

    def end(self, role, suite, own=None, signer=None):
        """The Python end in this role."""
        connection = noise(role, suite, conduct=IN_PREFIX)
        return prove(connection, role, own or self.theirs, [self.ours], signer)


@pytest.fixture
def members(tmp_path):
    return Members(tmp_path)


def hello_of(connection, role):
    own = prefix(1 if role == "initiator" else 2, "AES-256-GCM", IN_PREFIX)
    return own + connection.write_message(identity(role))


# protocol: H15, H16
def test_members_prove_who_they_are(role, members):
    ours = Ours(role, "AES-256-GCM", members=members.files)
    if role == "initiator":
        theirs = members.end("responder", "AES-256-GCM")
        hello = bytes.fromhex(ours.hear())
        assert theirs.read_message(hello[16:]) == identity("initiator")
        ours.tell(hello_of(theirs, "responder").hex())
    else:
        theirs = members.end("initiator", "AES-256-GCM")
        ours.tell(hello_of(theirs, "initiator").hex())
        hello = bytes.fromhex(ours.hear())
        assert theirs.read_message(hello[16:]) == identity("responder")
    assert len(hello) == 296 and hello[7] == 0x80
    states = theirs.noise_protocol
    send, receive = Direction(states.cipher_state_encrypt.k, "AES-256-GCM"), Direction(states.cipher_state_decrypt.k, "AES-256-GCM")
    assert receive.open(ours.control("c")) == [(CONFIRM, b"")]
    assert ours.open(send.seal(DATA, b"to a member")) == (DATA, b"to a member")
    ours.end()


# protocol: H17
@pytest.mark.parametrize("lie, line", [("stolen", "somebody without theirs's member key poses as it"), ("unlisted", "is no member that we take")])
def test_who_is_another_member_than_it_says_is_refused(lie, line, role, members):
    """Also who has the job key and the very member key of the one that it speaks to."""
    own, signer = (members.theirs, members.ours) if lie == "stolen" else (Member("new"), None)
    ours = Ours(role, "AES-256-GCM", members=members.files)
    liar_role = "responder" if role == "initiator" else "initiator"
    liar = members.end(liar_role, "AES-256-GCM", own, signer)
    if role == "initiator":
        liar.read_message(bytes.fromhex(ours.hear())[16:])
    ours.tell(hello_of(liar, liar_role).hex())
    assert line in ours.hear()
    ours.end()


# protocol: H18
@pytest.mark.parametrize("required", ["here", "there"])
def test_only_one_side_requires_members(required, members):
    ours = Ours("responder", "AES-256-GCM", members=members.files if required == "here" else ())
    theirs = members.end("initiator", "AES-256-GCM") if required == "there" else noise("initiator", "AES-256-GCM")
    own = prefix(1, "AES-256-GCM", IN_PREFIX if required == "there" else 0)
    ours.tell((own + theirs.write_message(identity("initiator"))).hex())
    assert f"require_members is {'on' if required == 'here' else 'off'} here" in ours.hear()
    ours.end()


HELLO_SIZES = {"initiator": 1400, "responder": 1304}


def hybrid_noise(role, suite, conduct=0, context=b"", own=None, listed=()):
    """The Python end, of X25519 and ML-KEM-768; `own`: as this member."""
    connection = noise(role, suite, conduct=conduct | HYBRID, context=context)
    if own:
        prove(connection, role, own, listed)
    return add_ml_kem(connection, role)


def exchange_keys_both_ways(role, suite, members=None):
    conduct = HYBRID | (IN_PREFIX if members else 0)
    proof = 96 if members else 0
    theirs_role = "responder" if role == "initiator" else "initiator"
    who = {"own": members.theirs, "listed": [members.ours]} if members else {}
    theirs = hybrid_noise(theirs_role, suite, conduct, **who)
    ours = Ours(role, suite, members=members.files if members else (), key_exchange="x25519-mlkem768")
    if theirs_role == "initiator":
        ours.tell((prefix(1, suite, conduct) + theirs.write_message(identity("initiator"))).hex())
    hello = bytes.fromhex(ours.hear())
    assert hello[:16] == prefix(1 if role == "initiator" else 2, suite, conduct) and len(hello) == HELLO_SIZES[role] + proof
    assert theirs.read_message(hello[16:]) == identity(role)
    if theirs_role == "responder":
        ours.tell((prefix(2, suite, conduct) + theirs.write_message(identity("responder"))).hex())
    states = theirs.noise_protocol
    send, receive = Direction(states.cipher_state_encrypt.k, suite), Direction(states.cipher_state_decrypt.k, suite)
    assert receive.open(ours.control("c")) == [(CONFIRM, b"")]
    assert ours.open(send.seal(CONFIRM)) == (CONFIRM, b"")
    assert receive.open(ours.seal(b"from us")) == [(DATA, b"from us")]
    assert ours.open(send.seal(DATA, b"from them")) == (DATA, b"from them")
    ours.end()


# protocol: H19
def test_ml_kem_beside_x25519(role, suite):
    exchange_keys_both_ways(role, suite)


# protocol: H19
def test_members_use_ml_kem(role, members):
    exchange_keys_both_ways(role, "AES-256-GCM", members)


# protocol: H20
@pytest.mark.parametrize("hybrid", ["here", "there"])
def test_only_one_side_uses_ml_kem(hybrid):
    ours = Ours("responder", "AES-256-GCM", key_exchange="x25519-mlkem768" if hybrid == "here" else "x25519")
    theirs = hybrid_noise("initiator", "AES-256-GCM") if hybrid == "there" else noise("initiator", "AES-256-GCM")
    own = prefix(1, "AES-256-GCM", HYBRID if hybrid == "there" else 0)
    ours.tell((own + theirs.write_message(identity("initiator"))).hex())
    said = ours.hear()
    assert "give every node the same setting key_exchange" in said and f"we by {'x25519-mlkem768' if hybrid == 'here' else 'x25519:'}" in said, said
    ours.end()


# protocol: H21
def test_a_key_that_is_none_of_ml_kem_is_refused():
    ours = Ours("responder", "AES-256-GCM", key_exchange="x25519-mlkem768")
    theirs = add_ml_kem(noise("initiator", "AES-256-GCM", conduct=HYBRID), "initiator", key=b"\xff" * 1184)
    ours.tell((prefix(1, "AES-256-GCM", HYBRID) + theirs.write_message(identity("initiator"))).hex())
    assert "encapsulation key is none of ML-KEM-768" in ours.hear()
    ours.end()


# protocol: H21
def test_a_ciphertext_that_is_none_ends_as_a_hello_that_does_not_open():
    """Also from who has the job key: implicit rejection."""
    ours = Ours("initiator", "AES-256-GCM", key_exchange="x25519-mlkem768")
    theirs = add_ml_kem(noise("responder", "AES-256-GCM", conduct=HYBRID), "responder", spoil=lambda text: bytes([text[0] ^ 1]) + text[1:])
    theirs.read_message(bytes.fromhex(ours.hear())[16:])
    ours.tell((prefix(2, "AES-256-GCM", HYBRID) + theirs.write_message(identity("responder"))).hex())
    assert "does not open" in ours.hear()
    ours.end()
