"""The verdict of a job: SEALED only if every rank initialised MPI under us and nothing left in clear; what ran without us fails the job."""

import json
import secrets
import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, REPOSITORY, needs

from lab import stacks
from lab.capture import count
from lab.sealing import Sealing

COMMAND = BUILD / "bin" / "cryptmpi"
LIBRARIES = BUILD / "lib" / "cryptmpi"
NOT_SEALED, REFUSED = 123, 125
MPIS = pytest.mark.parametrize("mpi", [stacks.stack("openmpi-4.1.4"), stacks.stack("mpich-5.0.2-ofi")], ids=lambda mpi: mpi.name)
LAYERS = pytest.mark.parametrize("layer", ["channel", "mpi"])


class Job:
    """A program that sends a canary between two nodes, under `cryptmpi run`, and what came of it."""

    def __init__(self, mpi, nodes, folder, layer="channel"):
        if not mpi.present():
            pytest.skip(f"{mpi.title} is not installed (make mpis)")
        self.mpi, self.nodes, self.folder = mpi, nodes, folder
        self.sealing = Sealing(folder / "config", nodes, COMMAND, {"layer": layer, "handshake_timeout_s": 20, "agreement_timeout_s": 5})
        self.report_file = folder / "report.json"
        self.canary = secrets.token_bytes(32)
        (folder / "canary.bin").write_bytes(self.canary)
        self.program = [str(self.compiled(REPOSITORY / "demo" / "canary.c")), str(folder / "canary.bin")]

    def compiled(self, source, *options):
        program = self.folder / source.stem
        done = subprocess.run([self.mpi.mpicc, "-O1", "-o", program, source, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return program

    def script(self, text, name="wrapper"):
        file = self.folder / name
        file.write_text("#!/bin/sh\n" + text + "\n")
        file.chmod(0o755)
        return str(file)

    def line(self, program, ranks=2, more=()):
        line = self.sealing.run_line(self.mpi, self.nodes, ranks, program, self.report_file)
        line[2:2] = ["--mpi", str(self.mpi.mpiexec), *more]
        return line

    def run(self, program, ranks=2, more=(), timeout=60, **settings):
        """Returns what the command did; its verdict is in `verdict`, and how often the canary passed in `seen`."""
        environment = {**self.mpi.env(self.nodes), **stacks.abi_environment(self.mpi), **self.sealing.env(),
                       **{f"CRYPTMPI_{name.upper()}": str(value) for name, value in settings.items()}}
        with self.nodes.capture(self.folder / "wire.pcap"):
            done = self.nodes.run(self.line(program, ranks, more), env=environment, timeout=timeout, cwd=self.folder)
        assert not done.timed_out, done.output
        self.seen = count(self.folder / "wire.pcap", [self.canary])[0][self.canary]
        self.verdict = next((line for line in done.output.splitlines() if "Report: " in line), "").removeprefix("cryptmpi: ")
        return done

    def report(self, *options, file=None):
        return subprocess.run([COMMAND, "report", *options, file or self.report_file], env=self.sealing.env(), capture_output=True, text=True)


@pytest.fixture
def job(mpi, nodes, tmp_path):
    return Job(mpi, nodes, tmp_path)


@MPIS
@LAYERS
def test_a_sealed_job_ends_well(mpi, layer, nodes, tmp_path):
    job = Job(mpi, nodes, tmp_path, layer)
    done = job.run(job.program)
    assert done.returncode == 0 and job.verdict.startswith("SEALED") and job.seen == 0, done.output
    facts = json.loads(job.report_file.read_text())
    assert facts["complete"] and facts["ranks_reported"] == facts["ranks"] == 2


@MPIS
@LAYERS
def test_a_wrapper_that_takes_our_library_away(mpi, layer, nodes, tmp_path):
    """Its part, and those of the tools that it starts, are no rank's."""
    job = Job(mpi, nodes, tmp_path, layer)
    # Not by exec, which puts the library back: by the shell's own words no rank would be left.
    wrapper = job.script('hostname >/dev/null\nexec "$@"')
    done = job.run([wrapper, "true"])
    assert done.returncode == NOT_SEALED and job.verdict.startswith("INCOMPLETE: 0 of 2 ranks"), done.output
    assert job.report("--check").returncode == NOT_SEALED


@MPIS
def test_a_job_that_is_killed_in_the_middle(mpi, job):
    done = job.run([job.script('[ "${PMIX_RANK:-$PMI_RANK}" = 1 ] && { sleep 0.1; kill -9 $$; }\nexec "$@"'), *job.program])
    assert done.returncode not in (0, NOT_SEALED), done.output
    assert job.verdict.startswith("INCOMPLETE:") and f"ended with status {done.returncode}" in job.verdict, done.output
    assert "share" not in job.verdict
    assert job.report("--check").returncode == NOT_SEALED


@MPIS
def test_plaintext_peers_stand_in_the_first_line(mpi, job):
    done = job.run(job.program, plaintext_peers="10.77.0.0/24")
    assert job.seen > 0 and done.returncode == 0, done.output
    assert job.verdict.startswith("SEALED WITH EXCEPTIONS: plaintext_peers allows 10.77.0."), done.output
    assert "all" not in job.verdict.split(" Report:")[0].replace("allows", "")
    assert job.report("--check").returncode == NOT_SEALED
    assert job.report("--check", "--allow-exceptions").returncode == 0


@MPIS
def test_forged_and_repeated_parts(mpi, job, nodes):
    """Whoever writes into the report's folder makes no rank."""
    forger = job.script("sleep 1; mkdir -p report.json.parts\n"
                        "printf '%s' \"$FORGED\" >report.json.parts/node9.1.json; exec \"$@\"")
    part = {"job_id": "j", "layer": "channel", "node": "n1", "pid": 1, "role": "rank", "rank": 1, "ranks": 2, "mpi_initialized": True,
            "ended": True, "sealed_connections": 1}
    done = job.run(["env", f"FORGED={json.dumps(part)}", forger, *job.program])
    assert done.returncode == NOT_SEALED and job.verdict.startswith("FAILED"), done.output
    assert "not signed with this job key" in job.report().stdout


@MPIS
def test_an_altered_report(mpi, job):
    assert job.run(job.program).returncode == 0
    assert job.report("--check").returncode == 0
    text = job.report_file.read_text()
    job.report_file.write_text(text.replace('"ranks": 2', '"ranks": 3'))
    done = job.report("--check")
    assert done.returncode == NOT_SEALED and done.stdout.startswith("FAILED: the report is not signed"), done
    job.report_file.write_text(text)
    shutil.move(job.sealing.config / "cryptmpi" / "job.key", job.folder / "away")
    done = job.report("--check")
    assert done.returncode == NOT_SEALED and done.stdout.startswith("NOT VERIFIED"), done


@MPIS
def test_a_report_that_cannot_be_written(mpi, job):
    job.report_file = job.folder / "canary.bin" / "report.json"
    done = job.run([job.script(f"touch {job.folder}/started")])
    assert done.returncode == REFUSED and "canary.bin" in done.output, done.output
    assert not (job.folder / "started").exists()


@MPIS
@LAYERS
def test_a_disabled_rank_does_not_count(mpi, layer, nodes, tmp_path):
    job = Job(mpi, nodes, tmp_path, layer)
    done = job.run([job.script('CRYPTMPI_ENABLED=no exec "$@"'), *job.program])
    assert done.returncode not in (0,) and not job.verdict.startswith("SEALED"), done.output
