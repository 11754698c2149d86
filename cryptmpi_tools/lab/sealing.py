"""The `cryptmpi` command of the build tree, with a job key of its own, as the demo and the suites use it."""

import json
import os
import shlex
import subprocess
from pathlib import Path

from cryptmpi_tools.lab.nodes import BUILD, IN_SOURCES, REPOSITORY, LabError

# An installation has it in PREFIX/share/cryptmpi/cryptmpi_tools.
COMMAND = (BUILD / "release" if IN_SOURCES else REPOSITORY.parents[1]) / "bin" / "cryptmpi"


# Settings of what has to see one layer alone: the sockets below it are not sealed again.
ALONE = {"seal_sockets": "false"}


def alone(layer):
    """Under the fabric layer the sockets of UCX are sealed again, unless all roads are open."""
    return {"channel": {}, "mpi": ALONE, "fabric": {**ALONE, "network": "any"}}[layer]


class Sealing:
    """Makes a key in `folder`; then `exec_line` and `run_line` give the command lines of sealed runs, `env` what they
    need around them."""

    def __init__(self, folder, lab, command=COMMAND, settings=None):
        self.command = Path(command).resolve()
        if not self.command.exists():
            raise LabError(f"{self.command} is not built: run `make build`")
        self.config = Path(folder).resolve()
        self.config.mkdir(parents=True, exist_ok=True)
        self._settings = {f"CRYPTMPI_{key.upper()}": str(value) for key, value in (settings or {}).items()}
        if not lab.isolated:
            self._settings.setdefault("CRYPTMPI_SCOPE", "all")
        elif self._settings.get("CRYPTMPI_SEAL_SOCKETS") == "false":  # native inside a node, as where sockets are sealed
            self._settings.setdefault("CRYPTMPI_SCOPE", "between-nodes")
        key = self.config / "cryptmpi" / "job.key"
        if not key.exists():
            done = subprocess.run([self.command, "keygen"], env={**os.environ, **self.env()}, capture_output=True, text=True)
            if done.returncode:
                raise LabError(f"cryptmpi keygen: {(done.stderr or done.stdout).strip()}")
            if not key.exists():
                raise LabError(f"cryptmpi keygen made no {key}")
            if key.stat().st_mode & 0o777 != 0o600:
                raise LabError(f"cryptmpi keygen left {key} with mode {key.stat().st_mode & 0o777:o}, not 600")

    def env(self):
        return {"XDG_CONFIG_HOME": str(self.config), **self._settings}

    def exec_line(self, program, report=None, job=None):
        """For inside a launcher line."""
        line = [self.command, "exec"]
        if job:
            line += ["--job", job]
        if report:
            line += ["--report", report]
        return [str(word) for word in [*line, "--", *program]]

    def run_line(self, stack, lab, ranks, program, report, mpiexec=None, slots=None):
        """The whole job, launcher included, by one command; `mpiexec` for a program that is not linked with its MPI,
        `slots` as in Stack.command."""
        in_turn = slots is not None and stack.family != "hydra"
        if lab.isolated:
            where = ["--hosts", ",".join(f"{host}:{slots}" if in_turn else host for host in lab.hosts()), "--rsh", lab.rsh]
        else:  # Open MPI starts no more ranks than there are cores, unless it is told of more slots
            where = [] if stack.family == "hydra" else ["--hosts", f"localhost:{ranks}"]
        options = [*stack.launcher_options(lab), *(["--map-by", "node"] if in_turn else [])]
        more = ["--launcher-args", shlex.join(options)] if options else []
        by = ["--mpi", mpiexec] if mpiexec else []
        line = [self.command, "run", "-n", ranks, *where, *by, *more, "--report", report, *program]
        return [str(word) for word in line]

    def report(self, path):
        """A finished job's report."""
        try:
            return json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise LabError(f"no report of the sealed job: {error}") from None
