"""How fast the cipher of a job is alone, by size and threads: what the installed tools measure (microbench/cipher.cpp,
threads.cpp)."""

import os
import re
import subprocess
from pathlib import Path

from cryptmpi_tools.tune.error import TuneError
from cryptmpi_tools.tune.plans import KB, MB

SIZES = (16, 256, 1 * KB, 4 * KB, 8 * KB, 16 * KB, 32 * KB, 60 * KB, 128 * KB, 256 * KB, 512 * KB, MB, 2 * MB, 4 * MB, 8 * MB)
OF_THREADS = (64 * KB, 256 * KB, MB, 4 * MB)
MOST_THREADS = 16


def measure(command, cipher, module, processors):
    """{(bytes, threads): s} of sealing or opening, which are taken to need the same."""
    found = {}
    for size, seal_us, open_us in re.findall(r"^(\d+) (\S+) (\S+) \S+ \S+$", _tool(command, "cipher", module, cipher, SIZES), re.M):
        found[int(size), 1] = (float(seal_us) + float(open_us)) / 2 * 1e-6
    threads = 2
    while threads <= min(processors, MOST_THREADS):
        for _, size, us in re.findall(r"^(\d+) (\d+) (\S+)$", _tool(command, "threads", module, cipher, (threads, *OF_THREADS)), re.M):
            found[int(size), threads] = float(us) * 1e-6
        threads *= 2
    return found


def _tool(command, name, module, cipher, words):
    tool = command.parent / f"cryptmpi-bench-{name}"
    modules = os.environ.get("CRYPTMPI_MODULE_FOLDER") or Path(command).resolve().parent.parent / "lib" / "cryptmpi"
    try:
        done = subprocess.run([str(word) for word in (tool, modules, module, cipher, *words)], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TuneError(f"{tool} cannot be run ({error}); install all of CryptMPI (make install)") from error
    if done.returncode:
        raise TuneError(done.stderr.strip().removeprefix(f"{tool.name}: ") or f"{tool}: exit status {done.returncode}")
    return done.stdout
