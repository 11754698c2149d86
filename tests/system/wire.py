"""Takes captured TCP streams apart by the wire format of src/keys/handshake.hpp and src/seal/constants.hpp."""

import struct
from collections import Counter

from cryptmpi_tools.lab.formats import HEADER, HELLO, MOST, TAG, hello_size
from cryptmpi_tools.lab.formats import RECORD_KINDS as NAMES


class NotRecords(AssertionError):
    pass


def parse_stream(data):
    """One direction from its first byte to its last: a hello, then whole records. Counts by type; ["bytes"] is the
    plaintext's length."""
    if len(data) < HELLO or data[:4] != b"CMPI":
        raise NotRecords(f"no hello at the start: {data[:16]!r}")
    found = Counter()
    at = hello_size(data)
    last = None
    while at < len(data):
        if at + HEADER > len(data):
            raise NotRecords(f"half a header at {at} of {len(data)}")
        word = struct.unpack_from("<I", data, at)[0]
        kind, size = word >> 24, word & 0xFFFFFF
        if kind not in NAMES or size > MOST or (kind not in (1, 6) and size != 0):
            raise NotRecords(f"no record at {at} of {len(data)}: type {kind}, length {size}")
        if last in (4, 5):
            raise NotRecords(f"a record after the {NAMES[last]} record")
        at += HEADER + size + TAG
        found[NAMES[kind]] += 1
        found["bytes"] += size
        last = kind
    if at != len(data):
        raise NotRecords("the last record is not whole")
    return found
