"""How what passes on a TCP stream is cut into frames: CryptMPI's own records, and the frames of MPI's transports, whose
headers are in clear.

Each framing is a generator of Frames: it gets a function that reads so many bytes of the stream, and one that reads
what there is."""

import struct
from dataclasses import dataclass

from cryptmpi_tools.lab.formats import HEADER, PREFIX, RECORD_KINDS, TAG, hello_size

LONGEST = 1 << 24  # of a frame that is one


@dataclass
class Frame:
    kind: str
    head: bytes  # what is in clear, the length among it
    body: bytes
    length: tuple = ()  # of the field with the length: where it is, how struct packs it, what is added to the body's

    @property
    def raw(self):
        return self.head + self.body

    def with_body(self, body):
        """The same with another body, and with its length in the header."""
        head = bytearray(self.head)
        if self.length:
            at, form, more = self.length
            kept = struct.unpack_from(form, head, at)[0] & ~0xFFFFFF if self.kind in RECORD_KINDS.values() else 0
            struct.pack_into(form, head, at, kept | len(body) + more)
        return Frame(self.kind, bytes(head), body, self.length).raw


def records(read, read_any):
    """A connection of the channel layer; one that begins otherwise is not cut up."""
    start = read(4)
    if start != b"CMPI":
        yield from chunks(start, read_any)
        return
    start += read(4)
    size = hello_size(start) if len(start) == 8 else 8
    hello = start + read(size - len(start))
    yield Frame("hello" if len(hello) == size else "rest", hello[:PREFIX], hello[PREFIX:])
    while header := read(HEADER):
        word = struct.unpack("<I", header)[0] if len(header) == HEADER else 0
        yield Frame(RECORD_KINDS.get(word >> 24, "rest"), header, read((word & 0xFFFFFF) + TAG), (0, "<I", -TAG))


def chunks(start, read_any):
    part = start
    while part:
        yield Frame("chunk", b"", part)
        part = read_any()


def xnet(read, read_any):
    """libfabric's provider tcp: 32 bytes and a few to begin with, then messages."""
    start = read(32)
    if len(start) < 32 or start[0] != 3:
        yield from chunks(start, read_any)
        return
    yield Frame("begin", start, read(struct.unpack_from(">H", start, 2)[0]))
    while base := read(16):
        size = struct.unpack_from("<Q", base, 8)[0] if len(base) == 16 else 0
        head = base[6] if len(base) == 16 else 0
        if base[0] != 3 or not 16 <= head <= size < LONGEST:
            yield from chunks(base, read_any)
            return
        yield Frame("frame", base + read(head - 16), read(size - head), (8, "<Q", head))


def btl(read, read_any):
    """Open MPI's btl tcp, and in it the envelope of a whole message of pml ob1."""
    start = read(24)
    if start[8:20] != b"OPAL-TCP-BTL":
        yield from chunks(start, read_any)
        return
    yield Frame("begin", start, b"")
    while header := read(8):
        if len(header) < 8 or header[1] not in (1, 2):
            yield from chunks(header, read_any)
            return
        count, size = struct.unpack_from("<HI", header, 2)
        envelope = read(16 * count) if header[1] == 2 else b""
        body = read(size)
        whole = header[0] == body[0] == 0x41 if body and header[1] == 1 else False
        inside = 14 if whole else 0
        yield Frame("frame", header + envelope + body[:inside], body[inside:], (4, "<I", inside))


def uct(read, read_any):
    """UCX's transport tcp: after eight bytes of its initiator's, active messages; that of a whole tagged message begins
    with the tag."""
    start = read(5)
    if start == b"\x78\x56\x34\x12\xbe":
        yield Frame("begin", start + read(3), b"")
        start = read(5)
    while len(start) == 5:
        size = struct.unpack_from("<I", start, 1)[0]
        if size > LONGEST or start[0] > 40:
            break
        inside = min(8, size) if start[0] == 2 else 0
        yield Frame("frame", start + read(inside), read(size - inside), (1, "<I", inside))
        start = read(5)
    if start:
        yield from chunks(start, read_any)


FRAMINGS = {"records": records, "xnet": xnet, "btl": btl, "uct": uct}
