"""A man in the middle who knows MPI's and the launchers' own protocols: runs in a node through which two others reach
each other, ends their TCP connections and opens his own, and edits what passes in clear.

    editor.py --replace FROM TO          bytes for bytes, in hexadecimal digits, wherever they are
    editor.py --forge-ob1 TAG FROM TO    Open MPI's messages (pml ob1 over btl tcp) with this tag from rank FROM: they
                                         pass, and behind each come others that seem to be rank TO's, with every
                                         sequence number that may be due

"done" on standard output says that he has done it.
"""

import argparse
import functools
import select
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cryptmpi_tools.lab.middle import between, reset  # noqa: E402

FORGED = b"FORGED! "
NUMBERS = 512  # of rank TO's messages so far
BTL, MATCH = 8, 14  # bytes of the headers of btl tcp and of a message of ob1


def forgeries(frame, rank):
    """`frame` as if it were another rank's, once for each sequence number, with another text."""
    body = FORGED * (len(frame) // len(FORGED))
    head = bytearray(frame[:BTL + MATCH])
    struct.pack_into("<i", head, BTL + 4, rank)
    for number in range(NUMBERS):
        struct.pack_into("<H", head, BTL + 12, number)
        yield bytes(head) + body[:len(frame) - len(head)]


class Editor:
    def __init__(self, options):
        self.replace = [bytes.fromhex(text) for text in options.replace or ()]
        self.forge = options.forge_ob1

    def edit(self, data):
        if self.replace and self.replace[0] in data:
            self.done()
            return data.replace(*self.replace)
        return self.forged(data) if self.forge else data

    def forged(self, data):
        tag, source, rank = self.forge
        at = data.find(struct.pack("<ii", source, tag))
        start = at - BTL - 4
        if at < 0 or start < 0:
            return data
        size = struct.unpack_from("<I", data, start + 4)[0]
        frame = data[start:start + BTL + size]
        if len(frame) < BTL + size:
            return data
        self.done()
        return data[:start] + frame + b"".join(forgeries(frame, rank)) + data[start + len(frame):]

    @staticmethod
    def done():
        print("done", flush=True)


def pass_on(source, target, editor):
    try:
        while data := source.recv(1 << 16):
            while select.select([source], [], [], 0.002)[0] and (more := source.recv(1 << 16)):  # what belongs together
                data += more
            target.sendall(editor.edit(data))
        target.shutdown(socket.SHUT_WR)
    except OSError:
        reset(source)
        reset(target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replace", nargs=2)
    parser.add_argument("--forge-ob1", nargs=3, type=int)
    editor = Editor(parser.parse_args())
    between(lambda near, far, _: (functools.partial(pass_on, near, far, editor), functools.partial(pass_on, far, near, editor)))


if __name__ == "__main__":
    sys.exit(main())
