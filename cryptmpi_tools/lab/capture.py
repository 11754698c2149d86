"""The wire between the nodes: tcpdump, a pcap reader, and the byte streams of its TCP connections."""

import ipaddress
import mmap
import os
import re
import signal
import struct
import subprocess
import time
from collections import namedtuple
from pathlib import Path

from cryptmpi_tools.lab.nodes import LabError, _die_with_parent, enter

Flow = namedtuple("Flow", "source source_port target target_port")


class CaptureLost(LabError):
    """Packets passed that the capture does not hold: it proves nothing."""


class Capture:
    """`with lab.capture(path): ...` writes all that passes node1's port of the switch. Raises if a packet was lost.

    `kernel_mib`: of memory for what arrives while other processes have the cores, or the disk is slow; a quarter of
    what is free at most.
    """

    def __init__(self, lab, path, kernel_mib=512):
        self.path = Path(path)
        self.pid = None
        interface, prefix = ("port1", enter(lab.switch)) if lab.isolated else ("lo", [])
        kernel_kib = min(kernel_mib * 1024, _free_kib() // 4, 2**21 - 1)  # tcpdump's option takes no more
        # -Z: do not give root up, the file is ours.
        self._command = [*prefix, "tcpdump", "-i", interface, "-s", "0", "-B", str(kernel_kib), "-n", "-U", "-Z", "root",
                         "-w", str(self.path), "ip or ip6"]
        self._process = None
        # On a loopback interface the filter sees each packet going out and coming in, and one of them is kept.
        self._received_each = 1 if lab.isolated else 2

    def __enter__(self):
        os.sync()  # else the kernel slows tcpdump's writing down, as soon as too much of others' waits for the disk
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                         start_new_session=True, preexec_fn=_die_with_parent)
        self.pid = self._process.pid
        heard = ""
        for line in self._process.stderr:
            heard += line
            if "listening on" in line:
                return self
        mend = "; run as root, or let users make namespaces, or give tcpdump the capability cap_net_raw" if "permi" in heard else ""
        raise LabError(f"cannot capture the wire: {' '.join(heard.split())}{mend}")

    def __exit__(self, kind, *_):
        try:
            drained = kind is None and self._drain()
        finally:
            self._process.send_signal(signal.SIGINT)
            said = self._process.communicate(timeout=60)[1]
            self.pid = None
        if kind is None:
            dropped = re.search(r"(\d+) packets? dropped by kernel", said)
            if not drained or dropped is None or int(dropped[1]):
                raise CaptureLost(f"the capture is not complete: {' '.join(said.split())}")

    def _drain(self, patience=120):
        """Waits until tcpdump has written all that the kernel took for it: it would not read on after SIGINT. False if
        it cannot."""
        end = time.monotonic() + patience
        before = None
        while time.monotonic() < end:
            time.sleep(0.2)
            self._process.send_signal(signal.SIGUSR1)  # says its counts and goes on
            counts = None
            while counts is None:
                line = self._process.stderr.readline()
                if not line:
                    return False
                counts = re.search(r"(\d+) packets? captured, (\d+) packets? received by filter, (\d+) packets? dropped", line)
            if int(counts[3]):
                return False
            now = (int(counts[1]) * self._received_each, int(counts[2]), self.path.stat().st_size)
            if now[0] == now[1] and now == before:
                return True
            before = now
        return False

    def abandon(self):
        if self.pid is not None:
            self._process.kill()
            self._process.wait()
            self.pid = None


def _free_kib():
    return int(re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)[1])


def packets(data):
    """(link type, frame) of each packet of a pcap file's bytes."""
    little = data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
    order = "<" if little else ">"
    link = struct.unpack_from(order + "I", data, 20)[0]
    header = struct.Struct(order + "IIII")
    at, end = 24, len(data)
    while at + 16 <= end:
        _, _, captured, length = header.unpack_from(data, at)
        if captured != length:
            raise LabError("the capture is not complete: a packet was cut short")
        if at + 16 + captured > end:
            return
        yield link, memoryview(data)[at + 16:at + 16 + captured]
        at += 16 + captured


def _tcp(frame):
    """(flow, sequence number, flags, payload) of an Ethernet frame, None if it is not TCP."""
    kind = struct.unpack_from("!H", frame, 12)[0]
    at = 14
    if kind == 0x0800:
        if frame[at + 9] != 6:
            return None
        start = at + (frame[at] & 15) * 4
        total = struct.unpack_from("!H", frame, at + 2)[0]
        end = at + total if total else len(frame)  # 0: longer than the field can say (BIG TCP)
        source, target = bytes(frame[at + 12:at + 16]), bytes(frame[at + 16:at + 20])
    elif kind == 0x86DD:
        if frame[at + 6] != 6:
            return None
        start = at + 40
        length = struct.unpack_from("!H", frame, at + 4)[0]
        end = start + length if length else len(frame)
        source, target = bytes(frame[at + 8:at + 24]), bytes(frame[at + 24:at + 40])
    else:
        return None
    source_port, target_port, sequence = struct.unpack_from("!HHI", frame, start)
    payload = frame[start + (frame[start + 12] >> 4) * 4:end]
    return Flow(source, source_port, target, target_port), sequence, frame[start + 13], payload


class _Direction:
    """Puts the segments of one direction of one connection in order."""

    def __init__(self, flow):
        self.flow = flow
        self.next = None  # sequence number awaited
        self.early = {}   # segments after a gap

    def add(self, sequence, syn, payload):
        """The payloads that are in order now."""
        if syn:
            self.next = (sequence + 1) & 0xFFFFFFFF
        if self.next is None:
            self.next = sequence
        if payload:
            held = self.early.get(sequence)
            if held is None or len(held) < len(payload):
                self.early[sequence] = payload
        ready = []
        while self.early:
            first = min(self.early, key=lambda s: _signed(s - self.next))
            behind = _signed(first - self.next)
            if behind > 0:
                break
            segment = self.early.pop(first)[-behind:] if behind else self.early.pop(first)
            if segment:
                ready.append(segment)
                self.next = (self.next + len(segment)) & 0xFFFFFFFF
        return ready


def _signed(difference):
    return (difference + 0x80000000) % 0x100000000 - 0x80000000


def segments(path):
    """(flow, connection number, payload), in order within each direction of each connection. Raises if bytes are
    missing."""
    if Path(path).stat().st_size <= 24:
        return
    directions = {}
    number = 0
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for _, frame in packets(data):
        parsed = _tcp(frame)
        if parsed is None:
            continue
        flow, sequence, flags, payload = parsed
        syn = bool(flags & 2)
        if flow not in directions or (syn and directions[flow][1].next != (sequence + 1) & 0xFFFFFFFF):
            number += 1
            directions[flow] = (number, _Direction(flow))
        connection, direction = directions[flow]
        for part in direction.add(sequence, syn, bytes(payload)):
            yield flow, connection, part
    torn = [d for _, d in directions.values() if d.early]
    if torn:
        raise LabError(f"the capture is not complete: {len(torn)} TCP streams have holes")


def streams(path):
    """{(flow, connection number): all its bytes}."""
    whole = {}
    for flow, connection, part in segments(path):
        whole.setdefault((flow, connection), bytearray()).extend(part)
    return {key: bytes(value) for key, value in whole.items()}


def count(path, needles):
    """How often each byte string occurs in the TCP streams, segment borders ignored; and the bytes looked at."""
    found = dict.fromkeys(needles, 0)
    keep = max((len(n) for n in needles), default=1) - 1
    tails = {}
    total = 0
    for flow, connection, part in segments(path):
        total += len(part)
        tail = tails.get((flow, connection), b"")
        text = tail + part
        for needle in needles:
            # What lies in the tail alone was counted with the part before.
            at = text.find(needle, max(0, len(tail) - len(needle) + 1))
            while at >= 0:
                found[needle] += 1
                at = text.find(needle, at + len(needle))
        tails[(flow, connection)] = text[-keep:] if keep else b""
    return found, total


def sample(path, amount=8, size=32, least_distinct=16, least_bytes=0):
    """Windows of the captured payload, spread over its connections: known plaintext to look for in another capture of
    the same program.

    Windows of few distinct bytes (zeros, text rules) are left out: they could be anywhere. So are connections with less
    than `least_bytes`: a launcher's.
    """
    carried = {}  # bytes of each connection

    def candidates():
        seen = {}  # windows of each connection: the first ones, then ever fewer of what follows, so that heavy ones do not crowd out the rest
        for flow, connection, part in segments(path):
            carried[flow, connection] = carried.get((flow, connection), 0) + len(part)
            if len(part) < size:
                continue
            number = seen[flow, connection] = seen.get((flow, connection), 0) + 1
            if number & (number - 1):
                continue
            middle = (len(part) - size) // 2
            window = part[middle:middle + size]
            if len(set(window)) >= least_distinct:
                yield window, (flow, connection)

    found = list(candidates())
    windows = list(dict.fromkeys(window for window, connection in found if carried[connection] >= least_bytes))
    return windows[::max(1, len(windows) // amount)][:amount]


Fragment = namedtuple("Fragment", "name length where")  # where: the stream, the place in it, and the bytes around


def repeated(path, markers):
    """Where a part of {name: marker} repeated over and over shows in the capture, as short as one marker, and the bytes
    looked at.

    Looks through the TCP streams, segment borders ignored, and whatever else passed, frame by frame.
    """
    found, total = [], 0
    for title, text in _all_bytes(path):
        total += len(text)
        for name, marker in markers.items():
            for start, end in sorted(_runs(text, marker)):
                around = f"{text[max(0, start - 64):start].hex()} [{text[start:min(end, start + 64)].hex()}] {text[end:end + 32].hex()}"
                found.append(Fragment(name, end - start, f"{title}, byte {start} of {len(text)}: {around}"))
    return found, total


def _runs(text, marker):
    """(start, end) of each part of the repeated marker, wherever in the marker it begins."""
    runs = set()
    for turn in range(len(marker)):
        word = marker[turn:] + marker[:turn]
        whole = re.compile(b"(?:" + re.escape(word) + b")+")
        at = text.find(word)
        while at >= 0:
            end = whole.match(text, at).end()
            start = at
            while start and text[start - 1] == text[start - 1 + len(marker)]:
                start -= 1
            while end < len(text) and text[end] == text[end - len(marker)]:
                end += 1
            runs.add((start, end))
            at = text.find(word, end)
    return runs


def _all_bytes(path):
    for (flow, connection), data in streams(path).items():
        yield f"TCP {_address(flow.source)}:{flow.source_port} to {_address(flow.target)}:{flow.target_port}, connection {connection}", data
    with open(path, "rb") as file:
        data = file.read()
    for number, (_, frame) in enumerate(packets(data)):
        if _tcp(frame) is None:
            yield f"frame {number}, not TCP", bytes(frame)


def _address(raw):
    return str(ipaddress.ip_address(raw))
