"""The channel library in a process of its own against a peer in Python over TCP: what it does with what no peer of its
own kind would send."""

import hashlib
import os
import socket
import subprocess
import sys
import time

import pytest
from hybrid import IN_PREFIX as HYBRID
from members import IN_PREFIX
from test_protocol import (CLOSE, CONFIRM, DATA, JOB_KEY, PADDED, PEER, Direction, Members, hybrid_noise, noise, padded,
                           padme, prefix, unpadded)

CHANNEL = PEER.parents[1] / "lib" / "cryptmpi" / "libcryptmpi-channel.so"
SUITE = "AES-256-GCM"
RECORD = 20  # bytes without plaintext

# What it writes before it reads, then all that it reads: bytes, the end, or an error.
PROGRAM = """
import errno, os, socket, sys
if sys.argv[1] == "responder":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        stream = listener.accept()[0]
else:
    stream = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
read = b""
try:
    stream.sendall(b"from us" + bytes(int(os.environ.get("MORE", "0"))))
    stream.settimeout(20)
    while part := stream.recv(100):
        read += part
    print(read.hex() or "nothing", "end", flush=True)
except OSError as error:
    print(read.hex() or "nothing", errno.errorcode.get(error.errno, "timeout"), flush=True)
"""


def endpoint(address):
    host, port = address
    return bytes(10) + b"\xff\xff" + socket.inet_aton(host) + port.to_bytes(2, "big")


class Connection:
    """Our process in one role, and Python in the other."""

    def __init__(self, role, folder, ours=None, theirs=None, hybrid=False, **more):
        """`ours`, `theirs`: the members (test_protocol.Members) where our process, or Python, requires them. `hybrid`:
        Python uses ML-KEM."""
        key = folder / "job.key"
        key.touch(mode=0o600)
        key.write_text(f"cryptmpi-job-key-1 {JOB_KEY.hex()}\n")
        settings = {"KEY_FILE": key, "JOB_ID": "a job", "SCOPE": "all", "CIPHER": SUITE, "HANDSHAKE_TIMEOUT_S": 20, **more}
        if ours:
            settings |= {"REQUIRE_MEMBERS": "true", "MEMBER_KEY_FILE": ours.files[0], "MEMBER_LIST": ours.files[1]}
        environment = {**os.environ, "LD_PRELOAD": str(CHANNEL), **{f"CRYPTMPI_{name}": str(value) for name, value in settings.items()}}
        program = [sys.executable, "-c", PROGRAM, role]
        pipes = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        if role == "responder":
            self.process = subprocess.Popen(program, **pipes)
            self.stream = socket.create_connection(("127.0.0.1", int(self.process.stdout.readline())))
        else:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.process = subprocess.Popen([*program, str(listener.getsockname()[1])], **pipes)
                self.stream = listener.accept()[0]
        self.stream.settimeout(20)
        self.role = "initiator" if role == "responder" else "responder"  # Python's
        self.conduct = (IN_PREFIX if theirs else 0) | (HYBRID if hybrid else 0)
        self.noise = theirs.end(self.role, SUITE) if theirs else hybrid_noise(self.role, SUITE) if hybrid else noise(self.role, SUITE)

    def identity(self):
        ends = endpoint(self.stream.getsockname()) + endpoint(self.stream.getpeername())
        return hashlib.sha256(b"a job").digest() + ends + b"python".ljust(64, b"\0") + (4711).to_bytes(4, "little")

    def own_hello(self):
        return prefix(1 if self.role == "initiator" else 2, SUITE, self.conduct) + self.noise.write_message(self.identity())

    def take(self, size):
        taken = b""
        while len(taken) < size:
            part = self.stream.recv(size - len(taken))
            assert part, f"{len(taken)} bytes of {size} came"
            taken += part
        return taken

    def take_hello(self):
        kem_part = (1200 if self.role == "responder" else 1104) if self.conduct & HYBRID else 0
        hello = self.take((296 if self.conduct & IN_PREFIX else 200) + kem_part)
        assert hello[:16] == prefix(2 if self.role == "initiator" else 1, SUITE, self.conduct)
        self.noise.read_message(hello[16:])

    def shake_hands(self):
        if self.role == "initiator":
            self.stream.sendall(self.own_hello())
            self.take_hello()
        else:
            self.take_hello()
            self.stream.sendall(self.own_hello())
        states = self.noise.noise_protocol
        self.out, self.into = Direction(states.cipher_state_encrypt.k, SUITE), Direction(states.cipher_state_decrypt.k, SUITE)
        return self

    def confirmed(self):
        """Past the handshake, with what our process wrote."""
        self.shake_hands()
        if self.role == "initiator":
            self.stream.sendall(self.out.seal(CONFIRM))
        else:
            assert self.into.open(self.take(RECORD)) == [(CONFIRM, b"")]
        assert self.into.open(self.take(RECORD + 7)) == [(DATA, b"from us")]
        return self

    def rest(self):
        """All that still comes from our process."""
        rest = b""
        try:
            while part := self.stream.recv(1000):
                rest += part
        except ConnectionResetError:
            pass
        return rest

    def end(self):
        """What our process read, and how it ended; what it said."""
        self.stream.close()
        said, complaints = self.process.communicate(timeout=30)
        return said.strip(), complaints


@pytest.fixture(params=["initiator", "responder"])
def role(request):
    return request.param


@pytest.fixture
def connection(role, tmp_path):
    made = Connection(role, tmp_path)
    yield made
    made.stream.close()
    made.process.kill()
    made.process.communicate()


# protocol: R1, R2, R3
def test_a_stream_may_be_cut_into_records_in_any_way(connection):
    connection.confirmed()
    records = [connection.out.seal(DATA, part) for part in (b"", b"a", b"", b"", b"bc", b"def", b"")]
    connection.stream.sendall(b"".join(records) + connection.out.seal(CLOSE))
    assert connection.end() == (f"{b'abcdef'.hex()} end", "")


# protocol: H7, H13
@pytest.mark.parametrize("at", [0, 4, 5, 6, 7, 8, 16, 60, 199])
def test_a_refused_hello_is_not_answered(at, tmp_path):
    connection = Connection("responder", tmp_path)
    hello = bytearray(connection.own_hello())
    hello[at] ^= 1
    connection.stream.sendall(hello)
    assert connection.rest() == b""
    said, complaints = connection.end()
    assert said.startswith("nothing E") and complaints.count("refused: ") == 1, (said, complaints)


# protocol: H7, H13
@pytest.mark.parametrize("at", [0, 7, 8, 16, 199])
def test_nothing_follows_a_refused_answer(at, tmp_path):
    connection = Connection("initiator", tmp_path)
    connection.take_hello()
    answer = bytearray(connection.own_hello())
    answer[at] ^= 1
    connection.stream.sendall(answer)
    assert connection.rest() == b""
    said, complaints = connection.end()
    assert said.startswith("nothing E") and complaints.count("refused: ") == 1, (said, complaints)


# protocol: H15, H16
def test_members_on_a_connection(role, tmp_path):
    members = Members(tmp_path)
    connection = Connection(role, tmp_path, members, members).confirmed()
    connection.stream.sendall(connection.out.seal(DATA, b"abc") + connection.out.seal(CLOSE))
    assert connection.end() == (f"{b'abc'.hex()} end", "")


# protocol: H15
def test_a_members_hello_that_comes_in_pieces(tmp_path):
    members = Members(tmp_path)
    connection = Connection("responder", tmp_path, members, members)
    hello = connection.own_hello()
    for piece in (hello[:7], hello[7:200], hello[200:295], hello[295:]):
        connection.stream.sendall(piece)
        time.sleep(0.1)
    connection.take_hello()
    connection.stream.close()
    connection.end()


# protocol: H18, H13
@pytest.mark.parametrize("required", ["here", "there"])
def test_only_one_side_of_a_connection_requires_members(required, role, tmp_path):
    """It is said at once: nobody waits for the rest of a hello that is shorter."""
    members = Members(tmp_path)
    connection = Connection(role, tmp_path, *((members, None) if required == "here" else (None, members)))
    if role == "initiator":
        connection.take(296 if required == "here" else 200)
        connection.stream.sendall(prefix(2, SUITE, connection.conduct) + bytes([9] * (280 if required == "there" else 184)))
    else:
        connection.stream.sendall(connection.own_hello())
    assert connection.rest() == b""
    said, complaints = connection.end()
    assert said.startswith("nothing E") and f"require_members is {'on' if required == 'here' else 'off'} here" in complaints, (said, complaints)


# protocol: H19
def test_ml_kem_on_a_connection(role, tmp_path):
    connection = Connection(role, tmp_path, hybrid=True, KEY_EXCHANGE="x25519-mlkem768").confirmed()
    connection.stream.sendall(connection.out.seal(DATA, b"abc") + connection.out.seal(CLOSE))
    assert connection.end() == (f"{b'abc'.hex()} end", "")


# protocol: H19
def test_a_hello_with_ml_kem_that_comes_in_pieces(tmp_path):
    connection = Connection("responder", tmp_path, hybrid=True, KEY_EXCHANGE="x25519-mlkem768")
    hello = connection.own_hello()
    for piece in (hello[:7], hello[7:200], hello[200:1399], hello[1399:]):
        connection.stream.sendall(piece)
        time.sleep(0.1)
    connection.take_hello()
    connection.stream.close()
    connection.end()


# protocol: H20, H13
@pytest.mark.parametrize("hybrid", ["here", "there"])
def test_only_one_side_of_a_connection_uses_ml_kem(hybrid, role, tmp_path):
    """It is said at once: nobody waits for the rest of a hello that is shorter."""
    ours = "x25519-mlkem768" if hybrid == "here" else "x25519"
    connection = Connection(role, tmp_path, hybrid=hybrid == "there", KEY_EXCHANGE=ours)
    if role == "initiator":
        connection.take(1400 if hybrid == "here" else 200)
        connection.stream.sendall(prefix(2, SUITE, connection.conduct) + bytes([9] * (1288 if hybrid == "there" else 184)))
    else:
        connection.stream.sendall(connection.own_hello())
    assert connection.rest() == b""
    said, complaints = connection.end()
    assert said.startswith("nothing E") and complaints.count("give every node the same setting key_exchange") == 1, (said, complaints)


# protocol: H7, H13
@pytest.mark.parametrize("at", [7, 48, 700, 1231, 1232, 1399])
def test_a_refused_hello_with_ml_kem_is_not_answered(at, tmp_path):
    connection = Connection("responder", tmp_path, hybrid=True, KEY_EXCHANGE="x25519-mlkem768")
    hello = bytearray(connection.own_hello())
    hello[at] ^= 1
    connection.stream.sendall(hello)
    assert connection.rest() == b""
    said, complaints = connection.end()
    assert said.startswith("nothing E") and complaints.count("refused: ") == 1, (said, complaints)


# protocol: H1
def test_nothing_is_sent_before_the_confirm_record(tmp_path):
    connection = Connection("responder", tmp_path).shake_hands()
    connection.stream.settimeout(0.5)
    with pytest.raises(TimeoutError):
        connection.stream.recv(1)
    connection.stream.settimeout(20)
    connection.stream.sendall(connection.out.seal(CONFIRM))
    assert connection.into.open(connection.take(RECORD + 7)) == [(DATA, b"from us")]
    connection.stream.sendall(connection.out.seal(CLOSE))
    assert connection.end() == ("nothing end", "")


# protocol: H1
def test_data_before_the_confirm_record_are_not_handed_out(tmp_path):
    connection = Connection("responder", tmp_path).shake_hands()
    connection.stream.sendall(connection.out.seal(DATA, b"too early") + connection.out.seal(CLOSE))
    assert connection.rest() == b""
    said, _ = connection.end()
    assert said.startswith("nothing E"), said


def header(type, size):
    return (size | type << 24).to_bytes(4, "little")


def altered(record):
    return record[:-1] + bytes([record[-1] ^ 1])


BROKEN = {
    "altered": lambda out: altered(out.seal(DATA, b"something")),
    "type 0": lambda out: header(0, 0) + bytes(16),
    "type 7": lambda out: header(7, 0) + bytes(16),
    "padded, no room": lambda out: out.seal(PADDED, bytes(4)),
    "padded, nothing in it": lambda out: out.seal(PADDED, padded(b"", 10)),
    "padded, too long": lambda out: out.seal(PADDED, bytes(10) + (11).to_bytes(4, "little")),
    "padded, far too long": lambda out: out.seal(PADDED, bytes(10) + b"\xff" * 4),
    "padded with something": lambda out: out.seal(PADDED, b"data" + bytes(5) + b"\1" + (4).to_bytes(4, "little")),
    "padded, altered": lambda out: altered(out.seal(PADDED, padded(b"data", 10))),
    "too long": lambda out: header(DATA, 131073) + bytes(131073 + 16),
    "close with bytes": lambda out: out.seal(CLOSE, b"x"),
    "confirm again": lambda out: out.seal(CONFIRM),
    "record repeated": lambda out: out.seal(DATA, b"twice") * 2,
}


# protocol: R10, R11, R14, R15, R16, R18, V1
@pytest.mark.parametrize("broken", BROKEN)
def test_after_a_broken_record_nothing_comes_and_nothing_goes(broken, connection):
    connection.confirmed()
    connection.stream.sendall(connection.out.seal(DATA, b"good") + BROKEN[broken](connection.out) + connection.out.seal(DATA, b"late"))
    assert connection.rest() == b"", "no error record, and no close record"
    said, complaints = connection.end()
    read, how = said.split()
    assert bytes.fromhex(read) in (b"good", b"goodtwice") and how.startswith("E"), said
    assert len([line for line in complaints.splitlines() if line.startswith("cryptmpi")]) == 1, complaints


# protocol: R8
def test_an_end_without_the_close_record_is_an_error(connection):
    connection.confirmed()
    connection.stream.sendall(connection.out.seal(DATA, b"good"))
    connection.stream.shutdown(socket.SHUT_WR)
    said, complaints = connection.end()
    assert said == f"{b'good'.hex()} ECONNRESET" and "without the authenticated close" in complaints, (said, complaints)


# protocol: R7, R12
def test_nothing_is_taken_after_the_close_record(connection):
    connection.confirmed()
    connection.stream.sendall(connection.out.seal(DATA, b"good") + connection.out.seal(CLOSE) + connection.out.seal(DATA, b"late"))
    said, _ = connection.end()
    assert said == f"{b'good'.hex()} end", said


# protocol: R17
def test_padded_records_are_taken_whatever_the_setting(connection):
    connection.confirmed()
    parts = [b"a", b"bc" * 30, b"d" * 1000]
    records = [connection.out.seal(PADDED, padded(part, padme(len(part)))) + connection.out.seal(DATA, b"plain") for part in parts]
    for part in records[0], b"".join(records[1:])[:50], b"".join(records[1:])[50:]:
        connection.stream.sendall(part)
    connection.stream.sendall(connection.out.seal(CLOSE))
    assert connection.end() == (b"".join(part + b"plain" for part in parts).hex() + " end", "")


def shown(connection):
    """The lengths of what our process sends until it closes, by their headers, and the data in it."""
    sizes, data = [], b""
    while True:
        start = connection.take(4)
        kind, size = start[3], int.from_bytes(start[:3], "little")
        [(_, plain)] = connection.into.open(start + connection.take(size + 16))
        if kind == CLOSE:
            return sizes, data
        if kind == CONFIRM:
            continue
        assert kind == PADDED, "nothing is sent unpadded"
        sizes.append(size - 4)
        data += unpadded(plain)


def buckets(scheme, more, tmp_path, role):
    folder = tmp_path / f"{scheme}-{more}".replace(":", "-")
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORE", str(more))
        connection = Connection(role, folder, PADDING=scheme)
    connection.shake_hands()
    if connection.role == "initiator":
        connection.stream.sendall(connection.out.seal(CONFIRM))
    connection.stream.sendall(connection.out.seal(CLOSE))
    sizes, data = shown(connection)
    said, complaints = connection.end()
    assert (said, complaints) == ("nothing end", "")
    assert data == b"from us" + bytes(more)
    return sizes


# protocol: R17, R19
def test_the_wire_shows_buckets_only(role, tmp_path):
    for more in (0, 1, 2, 57, 58, 1000, 30000):
        size = 7 + more
        assert buckets("padme", more, tmp_path, role) == [padme(size)]
        assert buckets("padme:256", more, tmp_path, role) == [max(padme(size), 256)]
        assert buckets("power-of-two", more, tmp_path, role) == [1 << (size - 1).bit_length()]


# protocol: R17, R19
def test_long_writes_of_one_bucket_look_alike(role, tmp_path):
    seen = [buckets("power-of-two", more, tmp_path, role) for more in (130000 - 7, 100000, 131072 - 7)]
    assert {sum(sizes) for sizes in seen} == {131072}, seen
