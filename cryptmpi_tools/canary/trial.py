"""A job that sends canaries, once plain and once sealed, each with what its processes handed to the kernel for the
other node."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from cryptmpi_tools import user_jobs
from cryptmpi_tools.bench.programs import last_lines
from cryptmpi_tools.user_jobs import JobError

HERE = Path(__file__).resolve().parent
SAID = re.compile(r"^cryptmpi-canary: payload=(\d+) bytes=(\d+) canaries=(\d+)$", re.M)


class Trial:
    """Use as a context: what it makes is removed at its end. `options` are those of `cryptmpi canary`."""

    def __init__(self, options):
        self.options = options
        self.folder = (options.folder or user_jobs.work_folder("canary")) / f"{socket.gethostname()}-{os.getpid()}"
        self._program = self.folder / "canary"
        if not options.cryptmpi.exists():
            raise JobError(f"{options.cryptmpi} is missing; install all of CryptMPI (make install)")

    def __enter__(self):
        mpicc = user_jobs.compiler(self.options.mpicc, self.options.mpi)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JobError(f"cannot make {self.folder}: {error.strerror}; name a folder that all nodes see with --folder") from error
        line = [mpicc, "-o", self._program, HERE / "canary.c", HERE / "watch.c", "-pthread"]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True)
        if done.returncode:
            self.__exit__()
            raise JobError(f"{mpicc} does not compile {HERE / 'canary.c'}: {last_lines(done.stderr)}")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def taken(self):
        """What came of both jobs, and whether it shows that the path is sealed."""
        plain = self._start([], {"CRYPTMPI_ENABLED": "off"})
        report_file = self.folder / "report.json"
        sealed = self._start(["--report", report_file, *(["--layer", self.options.layer] if self.options.layer else [])], {"CRYPTMPI_ENABLED": "on"})
        report = self._report(report_file)
        result = {"made": int(time.time()), "nodes": report["nodes"], "mpi": report["mpi"], "layer": report["layer"], "suite": report["suite"],
                  "verdict": report["verdict"], "plain": plain, "sealed": sealed}
        why = self.missing(result, report["good"])
        return {**result, "held": not why, "why": why}

    @staticmethod
    def missing(result, report_is_good):
        """Why the jobs do not show that canaries are sealed; empty: they do."""
        plain, sealed = result["plain"], result["sealed"]
        if not plain["bytes"]:
            return ("nothing was seen to leave a node, plain either: both ranks are on one node, or what carries MPI here is no socket and cannot "
                    "be watched this way; capture at the port instead (docs/fabrics.md)")
        if not plain["canaries"]:
            return "no canary was seen to leave a node, plain either: its absence shows nothing; capture at the port (docs/fabrics.md)"
        if sealed["canaries"]:
            return f"{sealed['canaries']} canaries left a node IN CLEAR under the {result['layer']} layer"
        if sealed["bytes"] < sealed["payload"]:
            return (f"the sealed job handed {sealed['bytes']} bytes to the kernel for the other node, less than the {sealed['payload']} that it "
                    "sent: they went another way, which is not watched")
        return "" if report_is_good else f"the report of the sealed job says: {result['verdict']}"

    def _start(self, more, settings):
        line = [*user_jobs.line(self.options), *more, self._program]
        status, output = user_jobs.finish(line, {**os.environ, **settings}, self.folder / "output", self.options.timeout, SAID.search)
        said = SAID.search(output)
        if not said or status not in (0, None):
            own = [line for line in output.splitlines() if line.startswith(("cryptmpi:", "cryptmpi-canary:"))]
            why = "no end in time" if status is None else f"exit status {status}"
            raise JobError(f"a job did not run ({why}): {own[-1] if own else last_lines(output)}")
        return dict(zip(("payload", "bytes", "canaries"), map(int, said.groups())))

    def _report(self, file):
        """Of the sealed job, as `cryptmpi report` judges it."""
        judged, job = (subprocess.run([str(self.options.cryptmpi), "report", str(file), *more], capture_output=True, text=True)
                       for more in (["--check", "--allow-exceptions"], ["--json"]))
        if not judged.stdout or not job.stdout:
            raise JobError(f"the sealed job wrote no report: {(judged.stderr or job.stderr).strip()}")
        whole = json.loads(job.stdout)
        # Under the MPI layer and the fabric layer a rank's sockets have a part of their own.
        ranks = sorted((part for part in whole["processes"] if part["rank"] >= 0 and part["library"] == whole["layer"]),
                       key=lambda part: part["rank"])
        if not ranks:
            raise JobError(f"no rank of the sealed job reported: {judged.stdout.splitlines()[0]}")
        return {"good": not judged.returncode, "nodes": [part["node"] for part in ranks], "mpi": ranks[0]["mpi"], "suite": ranks[0]["suite"],
                "layer": whole["layer"], "verdict": judged.stdout.splitlines()[0]}
