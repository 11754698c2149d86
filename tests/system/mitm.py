"""A man in the middle: runs in a node through which two others reach each other, ends their TCP connections and opens
his own.

    mitm.py --attack NAME [--toward initiator|responder] [--record N] [--smallest BYTES] [--own-address]
            [--replace FROM:TO]

He knows the wire format (src/keys/handshake.hpp, src/seal/constants.hpp) and no key. To each side he looks like the
other one, address and port included, unless --own-address. What is not sealed passes as it is, but that each FROM in it
becomes TO (both in hexadecimal digits, as long as each other). Each attack is done once, on the N-th data record of at
least --smallest bytes that goes that way; "done" on standard output says that it was.
"""

import argparse
import os
import socket
import struct
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cryptmpi_tools.lab.formats import HEADER, HYBRID, PREFIX, SHARE, TAG, hello_size, kem_part  # noqa: E402
from cryptmpi_tools.lab.middle import Stop, between, flipped, read_up_to, reset, sealed_record  # noqa: E402

DATA, CLOSE = 1, 4


class Attack:
    """Shared by all connections: what was seen on earlier ones, and whether it is done."""

    def __init__(self, options):
        self.options = options
        self.lock = threading.Condition()
        self.is_done = False
        self.first_connection = {}  # (toward, index or "hello") -> bytes
        self.offered = {}           # connection number -> record, for "splice"

    def done(self):
        self.is_done = True
        print("done", flush=True)


class Direction:
    """One direction of one connection."""

    def __init__(self, attack, number, toward, source, target):
        self.attack, self.number, self.toward, self.source, self.target = attack, number, toward, source, target
        self.name = attack.options.attack
        self.count = 0       # data records that counted
        self.kept = None     # a record to come back to
        self.other = None    # the opposite direction
        self.last = b""      # the last record that passed

    def run(self):
        try:
            self.pass_on()
            self.target.shutdown(socket.SHUT_WR)
        except Stop:
            pass
        except OSError:
            reset(self.source)
            reset(self.target)

    def read(self, size):
        return read_up_to(self.source, size)

    def pass_on(self):
        # What arrives together goes on together: libfabric takes a part of a header for a refusal.
        start = self.source.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
        if start != b"CMPI":
            while part := self.source.recv(1 << 16):
                self.target.sendall(self.replaced(part))
            return
        start = self.read(8)
        size = hello_size(start) if len(start) == 8 else 8
        hello = start + self.read(size - len(start))
        self.target.sendall(self.hello(hello) if len(hello) == size else hello)
        while header := self.read(HEADER):
            if len(header) < HEADER:
                self.target.sendall(header)
                return
            word = struct.unpack("<I", header)[0]
            record = header + self.read((word & 0xFFFFFF) + TAG)
            self.record(word >> 24, record)

    def replaced(self, part):
        for before, after in self.attack.options.replace:
            if before in part:
                self.attack.done()
                part = part.replace(before, after)
        return part

    def mine(self):
        return self.toward == self.attack.options.toward and not self.attack.is_done

    def hello(self, hello):
        if self.number == 1:
            self.attack.first_connection[self.toward, "hello"] = hello
        if not self.mine():
            return hello
        if self.name.startswith("hello-flip-"):
            self.attack.done()
            return flipped(hello, int(self.name.removeprefix("hello-flip-")))
        if self.name == "hello-zero-share":
            self.attack.done()
            return hello[:8] + bytes(32) + hello[40:]
        if self.name == "hello-replay" and self.number == 2:
            self.attack.done()
            return self.attack.first_connection[self.toward, "hello"]
        if self.name == "hello-without-ml-kem":
            self.attack.done()
            return hello[:7] + bytes([hello[7] & ~HYBRID]) + hello[8:PREFIX + SHARE] + hello[PREFIX + SHARE + kem_part(hello):]
        if self.name == "hello-other-ml-kem" and self.number == 2:
            self.attack.done()
            where = slice(PREFIX + SHARE, PREFIX + SHARE + kem_part(hello))
            return hello[:where.start] + self.attack.first_connection[self.toward, "hello"][where] + hello[where.stop:]
        if self.name == "hello-reflect":
            self.attack.done()
            self.source.sendall(hello)
            reset(self.target)
            raise Stop
        return hello

    def record(self, kind, record):
        wanted = self.name == "truncate-close" if kind == CLOSE else kind == DATA and len(record) >= self.attack.options.smallest
        index = -1
        if wanted:
            index, self.count = self.count, self.count + 1
            if self.number == 1:
                self.attack.first_connection[self.toward, index] = record
        if wanted and self.mine():
            if kind == CLOSE:
                self.attack.done()
                return
            handler = getattr(self, "do_" + self.name.split(":")[0].replace("-", "_"), None)
            if handler is not None and (replaced := handler(index - self.attack.options.record, index, record)) is not None:
                self.attack.done()
                record = replaced
        if record:
            self.target.sendall(record)
        self.last = record or self.last

    # Each gets how far the record is from the one to attack, its index, and the record; it gives what passes instead,
    # or None.

    def do_flip(self, distance, index, record):
        if distance == 0:
            where = self.name.split(":")[1]
            at = {"size": 0, "type": 3, "first": HEADER, "middle": len(record) // 2, "last": len(record) - TAG - 1,
                  "tag": len(record) - TAG, "end": len(record) - 1}[where]
            return flipped(record, at)
        return None

    def do_drop(self, distance, index, record):
        return b"" if distance == 0 else None

    def do_duplicate(self, distance, index, record):
        return record + record if distance == 0 else None

    def do_reorder(self, distance, index, record):
        if distance == 0:
            self.kept = record
            # Held back: the next one goes first.
            following = self.read(HEADER)
            following += self.read((struct.unpack("<I", following)[0] & 0xFFFFFF) + TAG)
            return following + record
        return None

    def do_replay(self, distance, index, record):
        if distance == 0:
            self.kept = record
        return record + self.kept if distance == 3 else None

    def do_replay_earlier_connection(self, distance, index, record):
        return self.attack.first_connection[self.toward, index] if distance == 0 and self.number == 2 else None

    def do_reflect(self, distance, index, record):
        """The receiver gets a record that it sent itself."""
        return self.other.last + record if distance >= 0 and self.other.last else None

    def do_splice(self, distance, index, record):
        if distance != 0:
            return None
        with self.attack.lock:
            self.attack.offered[self.number] = record
            self.attack.lock.notify_all()
            self.attack.lock.wait_for(lambda: len(self.attack.offered) >= 2, timeout=20)
            return next(other for number, other in self.attack.offered.items() if number != self.number)

    def do_inject(self, distance, index, record):
        return record + sealed_record(DATA, 1000) if distance == 0 else None

    def do_inject_close(self, distance, index, record):
        if distance == 0:
            self.attack.done()
            self.target.sendall(record + sealed_record(CLOSE, 0))
            self.target.shutdown(socket.SHUT_WR)
            raise Stop
        return None

    def do_inject_garbage(self, distance, index, record):
        return record + os.urandom(3000) if distance == 0 else None

    def do_truncate(self, distance, index, record):
        """The end of the connection, as if the sender had said so."""
        if distance == 0:
            self.attack.done()
            self.target.sendall(record)
            self.target.shutdown(socket.SHUT_WR)
            raise Stop
        return None

    def do_truncate_inside(self, distance, index, record):
        if distance == 0:
            self.attack.done()
            self.target.sendall(record[:len(record) // 2])
            self.target.shutdown(socket.SHUT_WR)
            raise Stop
        return None

    def do_withhold(self, distance, index, record):
        """This record and all that follows, while the connection stays."""
        if distance == 0:
            self.attack.done()
            while self.source.recv(1 << 16):
                pass
            threading.Event().wait()
        return None

    def do_reset(self, distance, index, record):
        if distance == 0:
            self.attack.done()
            reset(self.target)
            reset(self.source)
            raise Stop
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attack", default="none")
    parser.add_argument("--toward", choices=("initiator", "responder"), default="responder")
    parser.add_argument("--record", type=int, default=5)
    parser.add_argument("--smallest", type=int, default=0)
    parser.add_argument("--own-address", action="store_true")
    parser.add_argument("--replace", action="append", default=[], type=lambda pair: [bytes.fromhex(side) for side in pair.split(":")])
    options = parser.parse_args()
    attack = Attack(options)

    def directions(near, far, number):
        there = Direction(attack, number, "responder", near, far)
        back = Direction(attack, number, "initiator", far, near)
        there.other, back.other = back, there
        return there.run, back.run

    between(directions, options.own_address)


if __name__ == "__main__":
    sys.exit(main())
