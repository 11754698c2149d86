"""What stands in a process's memory, and in its core dump."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

WORD = 8


@dataclass(frozen=True)
class Mapping:
    start: int
    end: int
    own: bool  # private, and can be written
    anonymous: bool
    in_dumps: bool  # not marked with MADV_DONTDUMP


def mappings(pid):
    header = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")
    found, head = [], None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = header.fullmatch(line) or head
        if line.startswith("VmFlags:"):
            start, end, rights, inode, name = head.groups()
            own = rights.startswith("rw") and rights.endswith("p")
            found.append(Mapping(int(start, 16), int(end, 16), own, inode == "0" and not name, "dd" not in line.split()))
    return found


def _read(pid, wanted):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        return b"".join(os.pread(memory.fileno(), mapping.end - mapping.start, mapping.start) for mapping in wanted)


def secret_memory(pid):
    """What `src/base/secret_memory.hpp` gives out: memory of the process's own that is in no dump."""
    return _read(pid, [m for m in mappings(pid) if m.own and m.anonymous and not m.in_dumps])


def memory_file(pid):
    """What is in the memory file of the channel layer's connections, without its holes."""
    (name,) = (path for path in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith("/memfd:cryptmpi"))
    data, end = b"", 0
    with open(name, "rb", buffering=0) as file, contextlib.suppress(OSError):  # behind the last data
        while True:
            start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            data += os.pread(file.fileno(), end - start, start)
    return data


def all_memory(pid):
    """What a dump that leaves nothing out would have of the process's own data."""
    return _read(pid, [m for m in mappings(pid) if m.own])


def random_words(memory):
    """Those words of secret memory that no program has by chance: no counts, no text, no addresses.

    Nonces, with the counter of a cipher's blocks before or behind them, are left out: they are no secrets, and stand on
    stacks.
    """
    blocks = (memory[at:at + 2 * WORD] for at in range(0, len(memory), 2 * WORD))
    words = (word for block in blocks if block[1:4] != bytes(3) != block[-4:-1] for word in (block[:WORD], block[WORD:]))
    return {int.from_bytes(word, "little") for word in words if len(set(word)) >= WORD - 1 and word[-2:] != bytes(2)}


def found_words(words, memory):
    """Those of the words that stand anywhere in the memory, aligned or not."""
    found = set()
    for shift in range(WORD):
        whole = (len(memory) - shift) // WORD * WORD
        found |= words.intersection(memoryview(memory)[shift:shift + whole].cast("Q"))
    return found


def _kernel_writes_here():
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    return pattern and not pattern.startswith(("|", "/"))


def dump(pid, folder):
    """The core dump of the process, whose working folder it is; the process is ended by SIGABRT."""
    by_kernel = _kernel_writes_here()
    if not by_kernel:
        if shutil.which("gcore") is None:
            pytest.skip("core dumps go elsewhere (kernel.core_pattern), and gcore (package gdb) is not installed")
        subprocess.run(["gcore", "-o", folder / "core", str(pid)], check=True, capture_output=True)
    os.kill(pid, signal.SIGABRT)
    end = time.monotonic() + 60
    while _alive(pid):
        assert time.monotonic() < end, "the process does not end"
        time.sleep(0.05)
    (core,) = folder.glob("core*")
    return core.read_bytes()


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] not in b"ZX"
    except OSError:
        return False
