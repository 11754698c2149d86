"""Jobs of two ranks on two nodes, started as a user does: by the installed `cryptmpi run`, with the MPI's own compiler
and launcher."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from cryptmpi_tools.model import command

EXIT_S = 3  # a rank of Debian's MPICH 4.0.2 now and then prints its result and does not end, plain too


class JobError(Exception):
    """One line for the user: what, where, how to mend it."""


def own_command():
    """The cryptmpi of the installation or build tree in which this package is; in the sources, that of `make build`."""
    holder = Path(__file__).absolute().parents[1]
    installed = holder.match("share/cryptmpi")
    return (holder.parents[1] if installed else holder / "build" / "release") / "bin" / "cryptmpi"


def work_folder(name, environment=os.environ):
    """A folder that nodes share where they share the home folder."""
    xdg = environment.get("XDG_CACHE_HOME", "")
    cache = Path(xdg) if xdg.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".cache"
    return cache / "cryptmpi" / name


def compiler(given, mpi):
    """The mpicc that is named, or the one beside the launcher that is named, or the first of PATH."""
    if given:
        wanted = [given]
    elif mpi:
        launcher = Path(shutil.which(mpi) or mpi)
        wanted = [launcher.with_name(f"mpicc{launcher.suffix}"), launcher.with_name("mpicc")]
    else:
        wanted = ["mpicc"]
    found = next(filter(None, (shutil.which(str(name)) for name in wanted)), None)
    if not found:
        raise JobError(f"there is no {' and no '.join(map(str, wanted))}: install the MPI's compiler (Debian: libopenmpi-dev, libmpich-dev), or "
                       "name it with --mpicc")
    return found


def two_hosts(word):
    """For argparse: two different nodes."""
    hosts = word.split(",")
    if len(hosts) != 2 or not all(hosts) or hosts[0] == hosts[1]:
        raise ValueError
    return hosts


two_hosts.__name__ = "two different nodes A,B"


def add_options(parser, name, without_hosts):
    """Which MPI on which nodes; `line` needs them. `name` is the subcommand's, `without_hosts` what it does where no
    nodes are named."""
    parser.add_argument("--hosts", type=two_hosts, metavar="A,B", help=f"the two nodes; default: {without_hosts}")
    parser.add_argument("--mpi", metavar="MPIEXEC", help="the launcher; default: that of the MPI whose mpicc is the first in PATH")
    parser.add_argument("--mpicc", help="the MPI's compiler; default: beside MPIEXEC, or in PATH")
    parser.add_argument("--rsh", help="starts commands on other nodes, as for cryptmpi run")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the ranks; may be repeated")
    parser.add_argument("--launcher-args", metavar="WORDS", help="more arguments for the launcher, in one word")
    parser.add_argument("--folder", type=Path, help=f"for temporary files, seen by both nodes; default: ~/.cache/cryptmpi/{name}")
    parser.add_argument("--timeout", type=command.positive(float), default=120, metavar="SECONDS", help="for one job; default: 120")
    parser.add_argument("--cryptmpi", type=Path, default=own_command(), help="the command to measure; default: this one")


def line(options):
    """The words of `cryptmpi run` up to the program and what is said of it."""
    where = ["--hosts", ",".join(f"{host}:1" for host in options.hosts), "--ppn", "1"] if options.hosts else []
    named = [word for name in ("mpi", "rsh", "launcher_args") if getattr(options, name)
             for word in ("--" + name.replace("_", "-"), getattr(options, name))]
    variables = [word for variable in options.env for word in ("--env", variable)]
    return [options.cryptmpi, "run", "-n", "2", *where, *named, *variables]


def finish(words, environment, output, timeout, is_whole):
    """(exit status, output). The status is None where it had to be ended: after the timeout, or when it did not end
    after its results, which `is_whole` sees in its output."""
    began, whole_since = time.monotonic(), None
    with open(output, "wb") as out:
        process = subprocess.Popen([str(word) for word in words], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(0.25), output.read_text(errors="replace")
                now = time.monotonic()
                if whole_since is None and is_whole(output.read_text(errors="replace")):
                    whole_since = now
                if now - began > timeout or (whole_since and now - whole_since > EXIT_S):
                    return None, output.read_text(errors="replace")
        finally:
            _end(process)


def _end(process):
    """The launcher ends its ranks when it is told to end."""
    for stop in (process.terminate, process.kill):
        if process.poll() is None:
            stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_S)
