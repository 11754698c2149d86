"""Whole jobs under the MPI layer, one rank on each node unless told otherwise."""

import fcntl

import pytest
from conftest import BUILD, RUNTIME

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.sealing import Sealing

ALL = pytest.mark.parametrize("mpi", [*stacks.STACKS, *stacks.STANDARD_ABI], ids=lambda mpi: mpi.name)


# MPI and the programs are not instrumented: the sanitizer's runtime has to be preloaded, and what only they do is none
# of its business. `cryptmpi exec` puts our library before it.
SANITIZER = ["env", f"LD_PRELOAD={RUNTIME[0]}", "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0",
             "TSAN_OPTIONS=ignore_noninstrumented_modules=1"] if RUNTIME else []


def command_under_test():
    """The build under test with the library that lets a test put something between us and MPI
    (CRYPTMPI_INTERNAL_BELOW), beside all others."""
    tested = BUILD / "tested"
    library = tested / "libcryptmpi-mpi.so"
    if not library.exists():
        pytest.fail(f"{library} is not built")
    command = tested / "bin" / "cryptmpi"
    (tested / "lib" / "cryptmpi").mkdir(parents=True, exist_ok=True)
    command.parent.mkdir(exist_ok=True)
    with open(tested / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of pytest begin at the same time
        _link_all(tested, library, command)
    return command


def _link_all(tested, library, command):
    files = {path.name: path for path in (BUILD / "lib" / "cryptmpi").iterdir()} | {library.name: library}
    for name, path in files.items():
        link = tested / "lib" / "cryptmpi" / name
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    # It finds its libraries beside the file that it really is.
    if not command.exists() or not command.samefile(BUILD / "bin" / "cryptmpi"):
        command.unlink(missing_ok=True)
        command.hardlink_to(BUILD / "bin" / "cryptmpi")


class SealingUnderTest(Sealing):
    """Under the sanitizer that the build under test was made with, too."""

    def exec_line(self, program, report=None, job=None):
        return [*SANITIZER, *super().exec_line(program, report, job)]


def sealing_of(tmp_path, nodes, **settings):
    return SealingUnderTest(tmp_path / "config", nodes, command_under_test(), {"layer": "mpi", "handshake_timeout_s": 20, **settings})


def ended(mpi, done, last_line):
    """Debian's MPICH 4.0.2 over UCX now and then prints its result and does not exit, plain too: its result counts."""
    return done.ok or (mpi.name == "mpich-4.0.2-ucx" and done.timed_out and last_line in done.output)


def run(mpi, nodes, sealing, program, ranks=2, timeout=120, report=None, cwd=None, env=None):
    line = mpi.command(nodes, ranks, sealing.exec_line(program, report) if sealing else program)
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **(sealing.env() if sealing else {}), **(env or {})}
    return nodes.run(line, env=environment, timeout=timeout, cwd=cwd)
