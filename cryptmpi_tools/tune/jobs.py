"""Starts a ping-pong between two ranks by the installed `cryptmpi run`, plain or sealed with given plans, and reads
what it measured."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

from cryptmpi_tools import user_jobs
from cryptmpi_tools.bench.programs import is_whole, last_lines, read_results
from cryptmpi_tools.tune import profile
from cryptmpi_tools.tune.error import TuneError

PROGRAM = Path(__file__).resolve().parent.parent / "bench" / "pingpong.c"
LABEL = "ping-pong"
# What of a rank's part of the report plans are for: the profile's name of it, and the report's.
FINGERPRINT = {"processor": "processor", "processors": "processors", "cipher": "suite", "module": "module", "mpi": "mpi", "abi": "abi"}


class Jobs:
    """Use as a context: what it makes is removed at its end. `options` are those of `cryptmpi tune`."""

    def __init__(self, options, rounds):
        self.options = options
        self.rounds = rounds
        self.nodes = []        # their names, once a sealed job has run
        self.fingerprint = {}  # then, too
        self.folder = (options.folder or user_jobs.work_folder("tune")) / f"{socket.gethostname()}-{os.getpid()}"
        self._program = self.folder / "pingpong"
        if not options.cryptmpi.exists():
            raise TuneError(f"{options.cryptmpi} is missing; install all of CryptMPI (make install)")

    def __enter__(self):
        mpicc = user_jobs.compiler(self.options.mpicc, self.options.mpi)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TuneError(f"cannot make {self.folder}: {error.strerror}; name a folder that all nodes see with --folder") from error
        done = subprocess.run([mpicc, "-O2", "-o", self._program, PROGRAM], capture_output=True, text=True)
        if done.returncode:
            self.__exit__()
            raise TuneError(f"{mpicc} does not compile {PROGRAM}: {last_lines(done.stderr)}")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def plain(self, sizes):
        """{bytes: s} one way of a start; the same from the others."""
        return self._start([], {"CRYPTMPI_ENABLED": "off"}, sizes)

    def sealed(self, sizes, plans=None):
        """With the library's default plans, or with others."""
        report, file = self.folder / "report.json", self.folder / "profile.json"
        if plans is not None:
            profile.write(file, profile.candidate(self.fingerprint, plans))
        # What is planned for is the MPI layer and the network: sockets below are not sealed again.
        settings = {"CRYPTMPI_ENABLED": "on", "CRYPTMPI_SEAL_SOCKETS": "false", "CRYPTMPI_PROFILE": "none" if plans is None else str(file),
                    **({} if self.options.hosts else {"CRYPTMPI_SCOPE": "all"})}
        report.unlink(missing_ok=True)
        times = self._start(["--layer", "mpi", "--report", report], settings, sizes)
        if report.exists():  # it is not, if the launcher had to be ended
            self._check(json.loads(report.read_text()), plans is not None)
        elif not self.fingerprint:
            raise TuneError("the sealed job wrote no report")
        return times

    def _check(self, report, has_profile):
        ranks = sorted((part for part in report["processes"] if part["rank"] >= 0), key=lambda part: part["rank"])
        if len(ranks) != 2:
            raise TuneError(f"the nodes do not share {self.folder}: {len(ranks)} of 2 ranks reported; name a folder that they share with --folder")
        if not report["totals"]["sealed_bytes_sent"]:
            raise TuneError(f"nothing was sealed: both ranks ran on {ranks[0]['node']}; give two different nodes with --hosts, or none")
        unused = next((part["profile"]["unused"] for part in ranks if part["profile"]["unused"]), "")
        if has_profile and (unused or not all(part["profile"]["file"] for part in ranks)):
            raise TuneError(f"a rank did not use the plans that were to be tried: {unused or 'it saw no profile'}")
        self.nodes = [part["node"] for part in ranks]
        own, other = ({name: part[key] for name, key in FINGERPRINT.items()} for part in ranks)
        different = [f"{name}: {own[name]}, {other[name]}" for name in own if own[name] != other[name]]
        if different:
            raise TuneError(f"{' and '.join(self.nodes)} are not alike ({'; '.join(different)}): plans are for nodes that are; name two that are")
        self.fingerprint = own

    def _line(self, more):
        where = [] if self.options.hosts else ["--hosts", "localhost:2"]
        return [*user_jobs.line(self.options), *where, *more, self._program, self.rounds]

    def _start(self, more, settings, sizes):
        line = [str(word) for word in [*self._line(more), *(f"{LABEL}:{size}" for size in sizes)]]
        status, output = user_jobs.finish(line, {**os.environ, **settings}, self.folder / "output", self.options.timeout, is_whole)
        results = read_results(output)
        if not is_whole(output) or status not in (0, None):
            own = [said for said in output.splitlines() if said.startswith("cryptmpi:")
                   and "part of its report" not in said and "made the key file" not in said]
            why = "no end in time" if status is None else f"exit status {status}"
            raise TuneError(f"a job did not run ({why}): {own[0].removeprefix('cryptmpi: ') if own else last_lines(output)}")
        return {size: results[f"{LABEL} {size}"]["us"] * 1e-6 for size in sizes}
