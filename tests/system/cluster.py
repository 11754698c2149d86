"""Nodes that share no home, as those of a cluster of which somebody has only just got an account."""

import os
import shlex
import subprocess
import time

from conftest import BUILD

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import enter

COMMAND = BUILD / "bin" / "cryptmpi"


class Cluster:
    """Nodes of a lab, each with a home of its own that the others do not see, and a remote shell that brings no
    environment with it."""

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, folder
        self.homes = [folder / f"home-{name}" for name in lab.hosts()]
        for home in self.homes:
            home.mkdir()
        for node in lab.nodes:
            for home in self.homes:
                if not home.name.endswith(node.name):
                    self.within(node, "mount", "-t", "tmpfs", "tmpfs", home)
        self.rsh = folder / "rsh"
        self.rsh.write_text('#!/bin/sh\nfor word; do case "$word" in -*) ;; *) node=$word; break ;; esac; done\n'
                            f'exec env -i PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" LAB_OF="$LAB_OF" HOME={folder}/home-$node '
                            f'{lab.rsh} "$@"\n')
        self.rsh.chmod(0o755)

    def close(self):
        self.lab.end_processes()
        for node in self.lab.nodes:
            self.within(node, "sh", "-c", "rm -rf /dev/shm/*")
            for home in self.homes:
                if not home.name.endswith(node.name):
                    self.within(node, "umount", home)

    @staticmethod
    def within(node, *command):
        done = subprocess.run([*enter(node.pid), *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def memory(self, node):
        """What the command keeps in a node's memory."""
        return [name for name in self.within(self.lab.nodes[node], "ls", "/dev/shm").split() if name.startswith("cryptmpi-")]

    def keys(self):
        return [name for node in range(len(self.homes)) for name in self.memory(node) if name.startswith("cryptmpi-key-")]

    def line(self, mpi, program, ranks=2, more=(), hosts=None, options=(), rsh=None):
        options = [*mpi.launcher_options(self.lab), *options]
        if mpi.family != "hydra":
            options += ["--map-by", ":OVERSUBSCRIBE"]
        launcher = ["--launcher-args", shlex.join(options)] if options else []
        line = [COMMAND, "run", "-n", ranks, "--mpi", mpi.mpiexec, "--hosts", hosts or ",".join(self.lab.hosts()), "--rsh", rsh or self.rsh,
                *launcher, *more, *program]
        return [str(word) for word in line]

    def env(self, mpi, **settings):
        return {**mpi.env(self.lab), **stacks.abi_environment(mpi), "HOME": self.homes[0], "CRYPTMPI_HANDSHAKE_TIMEOUT_S": "20",
                **{f"CRYPTMPI_{name.upper()}": str(value) for name, value in settings.items()}}

    def run(self, mpi, program, ranks=2, more=(), timeout=100, hosts=None, options=(), rsh=None, **settings):
        line = self.line(mpi, program, ranks, more, hosts, options, rsh)
        done = self.lab.run(line, env=self.env(mpi, **settings), timeout=timeout, cwd=self.folder)
        assert not done.timed_out, done.output
        return done

    def start(self, mpi, program, more=(), **settings):
        return self.lab.start(self.line(mpi, program, 2, more), env=self.env(mpi, **settings), cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def reports(self):
        return sorted((self.homes[0] / ".cache" / "cryptmpi" / "jobs").glob("*.json"))

    def check(self, *words):
        return subprocess.run([COMMAND, "report", *words], env={"PATH": os.environ["PATH"], "HOME": str(self.homes[0])}, capture_output=True,
                              text=True)


def await_that(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
