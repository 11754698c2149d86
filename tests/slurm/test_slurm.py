"""Jobs on a Slurm of two nodes that these tests start and end: by srun, and by cryptmpi run in a batch job, as
docs/slurm.md says it."""

import json
import re
import secrets
from pathlib import Path

import pytest
from conftest import BUILD, from_page

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count, streams
from cryptmpi_tools.lab.nodes import Lab
from cryptmpi_tools.lab.sealing import Sealing
from cryptmpi_tools.lab.slurm import Slurm

# Debian's, which speaks PMI-2. Over UCX it now and then does not end its ranks in MPI_Finalize, plain, too, and the
# more ranks the more often: two.
MPICH = stacks.stack("mpich-4.0.2-ucx")
MPICH5 = stacks.stack("mpich-5.0.2-ofi")
OPENMPI4 = stacks.stack("openmpi-4.1.4")
OPENMPI5 = stacks.stack("openmpi-5.0.11")
BY_SRUN = pytest.mark.parametrize("mpi, pmi", [(MPICH, "pmi2"), (OPENMPI4, "pmix")], ids=["mpich", "openmpi"])
EVERY = pytest.mark.parametrize("mpi", [MPICH5, OPENMPI4, OPENMPI5], ids=lambda mpi: mpi.name)


class Job:
    """A user's folder with ./program and a canary, and cryptmpi in the PATH."""

    def __init__(self, nodes, folder, mpi, built, **settings):
        self.nodes = nodes
        self.folder = folder
        self.canary = secrets.token_bytes(32)
        (folder / "canary.bin").write_bytes(self.canary)
        (folder / "program").symlink_to(built)
        self.sealing = Sealing(folder / "config", nodes, BUILD / "bin" / "cryptmpi", settings)
        self.environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **_parameters(mpi), **self.sealing.env(),
                            "PATH": f"{BUILD / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, script, timeout=90, env=None):
        """The user's lines, in a shell on the first node, while the wire is captured."""
        script = script.replace("./program", "./program canary.bin")
        with self.nodes.capture(self.folder / "wire.pcap"):
            return self.nodes.run(["sh", "-c", script], env={**self.environment, **(env or {})}, timeout=timeout, cwd=self.folder)

    def on_the_wire(self, text):
        return count(self.folder / "wire.pcap", [text])[0][text]

    def report(self, name="job.json"):
        done = self.nodes.run([BUILD / "bin" / "cryptmpi", "report", "--json", self.folder / name], env=self.environment)
        assert done.ok, done.output
        return json.loads(done.output)


def _parameters(mpi):
    """What an MPI's launcher is told on a lab's command line, as variables that srun passes on, too."""
    if mpi.family == "hydra":
        return {}
    network = {"btl": mpi.btl, "btl_tcp_if_include": stacks.NETWORK, "pml": "ob1", "mpi_yield_when_idle": "1", "oob_tcp_if_include": stacks.NETWORK}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
            "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**{f"OMPI_MCA_{name}": value for name, value in network.items()}, **root}


def sealed_whole(job, ranks, name="job.json"):
    """The report of a job whose program was sealed on both nodes, and whose canary was not on the wire."""
    facts = job.report(name)
    assert facts["complete"] and facts["ranks_reported"] == facts["ranks"] == ranks, facts
    assert not facts["errors"] and facts["totals"]["failed_opens"] == 0, facts
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000
    assert job.on_the_wire(job.canary) == 0
    return facts


def reasons(facts):
    return [entry["reason"] for entry in facts["not_sealed"] if not entry["reason"].startswith("loopback")]


@BY_SRUN
def test_plain_canary_is_on_the_wire(nodes, tmp_path, program, mpi, pmi):
    job = Job(nodes, tmp_path, mpi, program(mpi))
    done = job.run(f"srun -N2 -n2 --mpi={pmi} ./program")
    assert done.ok, done.output
    assert job.on_the_wire(job.canary) > 0


@BY_SRUN
def test_srun(nodes, tmp_path, program, mpi, pmi):
    [line] = [block for block in from_page("A step by srun") if f"--mpi={pmi}" in block]
    job = Job(nodes, tmp_path, mpi, program(mpi))
    done = job.run(line)
    assert done.ok, done.output
    assert done.output.count("srun's own connections are in clear") == 1, done.output
    facts = sealed_whole(job, 2)
    [reason] = reasons(facts)
    assert reason.startswith("srun's own connections")


def test_the_last_rank_without_us_is_missed(nodes, tmp_path, program):
    """PMIx's environment does not say how many ranks there are, Slurm's does."""
    silent = program(OPENMPI4, Path(__file__).parent / "silent.c")
    job = Job(nodes, tmp_path, OPENMPI4, silent, report_file=tmp_path / "job.json")
    (tmp_path / "wrap.sh").write_text(f"#!/bin/sh\n[ $SLURM_PROCID = 2 ] && exec {silent}\nexec cryptmpi exec {silent}\n")
    (tmp_path / "wrap.sh").chmod(0o755)
    done = job.run("srun -N2 -n3 --mpi=pmix ./wrap.sh")
    assert done.ok, done.output
    facts = job.report()
    assert (facts["ranks"], facts["ranks_reported"], facts["complete"]) == (3, 2, False), facts
    check = nodes.run([BUILD / "bin" / "cryptmpi", "report", "--check", tmp_path / "job.json"], env=job.environment)
    assert check.returncode == 123 and "INCOMPLETE" in check.output, check.output


@EVERY
def test_run_in_a_batch_job(nodes, tmp_path, program, mpi):
    script, submit = from_page("A batch job")
    (tmp_path / "job.sh").write_text(script.replace("./program", "./program canary.bin"))
    job = Job(nodes, tmp_path, mpi, program(mpi))
    done = job.run(submit)
    said = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert done.ok, done.output + said
    facts = sealed_whole(job, 4)
    [reason] = reasons(facts)
    assert reason.startswith("srun, which reached other nodes for the launcher"), facts
    # The job's key went by srun, and nobody on the wire can read it.
    assert job.on_the_wire(b"cryptmpi-job-key") == 0
    assert any(b"MUNGE:" in stream and b"\nMUNGE:" not in stream for stream in streams(tmp_path / "wire.pcap").values())


@pytest.mark.parametrize("mpi", [MPICH5, OPENMPI4], ids=lambda mpi: mpi.name)
def test_run_in_an_allocation(nodes, tmp_path, program, mpi):
    [line] = from_page("An allocation by salloc")
    job = Job(nodes, tmp_path, mpi, program(mpi))
    done = job.run(line)
    assert done.ok, done.output
    sealed_whole(job, 4)
    assert job.on_the_wire(b"cryptmpi-job-key") == 0


def test_run_with_the_key_file(nodes, tmp_path, program):
    job = Job(nodes, tmp_path, OPENMPI4, program(OPENMPI4), job_key="file")
    done = job.run("salloc --quiet -N2 --ntasks-per-node=1 cryptmpi run -n 2 --hosts node1,node2 --report job.json ./program")
    assert done.ok, done.output
    sealed_whole(job, 2)
    assert job.on_the_wire(b"MUNGE:") > 0  # Slurm's own
    assert job.on_the_wire((tmp_path / "config" / "cryptmpi" / "job.key").read_bytes().split()[1]) == 0


def test_no_munge_no_key(nodes, tmp_path, program):
    """A key that cannot be wrapped does not leave the node: one line says what helps."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "libmunge.so.2").write_text("no library")
    job = Job(nodes, tmp_path, MPICH, program(MPICH), handshake_timeout_s=5)
    done = job.run("salloc --quiet -N2 --ntasks-per-node=1 env LD_LIBRARY_PATH=without"
                   " cryptmpi run -n 2 --hosts node1,node2 --report job.json ./program", timeout=60)
    assert not done.ok
    lines = [line for line in done.output.splitlines() if "cannot go to other nodes by srun" in line]
    assert len(lines) == 1 and "--rsh ssh" in lines[0] and 'job_key = "file"' in lines[0], done.output
    assert job.on_the_wire(b"cryptmpi-job-key") == 0 and job.on_the_wire(job.canary) == 0


def test_job_array(nodes, tmp_path, program):
    script, submit = from_page("Job arrays")
    job = Job(nodes, tmp_path, OPENMPI4, program(OPENMPI4))
    (tmp_path / "array.sh").write_text(script.replace("./program", "./program canary.bin"))
    done = job.run(submit)
    said = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert done.ok, done.output + said
    one, other = sealed_whole(job, 2, "job-0.json"), sealed_whole(job, 2, "job-1.json")
    assert one["job_id"] != other["job_id"]


@BY_SRUN
def test_heterogeneous_step(nodes, tmp_path, program, mpi, pmi):
    [line] = [block for block in from_page("Heterogeneous jobs") if f"--mpi={pmi}" in block]
    job = Job(nodes, tmp_path, mpi, program(mpi))
    done = job.run(line)
    assert done.ok, done.output
    sealed_whole(job, 2)


def test_task_prolog(tmp_path, program):
    """A site turns it on for everyone: srun of a program that nobody wrapped."""
    [prolog] = from_page("For everyone, by TaskProlog")
    prolog = prolog.replace("/opt/cryptmpi", str(BUILD))
    with Lab(nodes=2) as lab, Slurm(lab, more="TaskProlog=/etc/slurm/cryptmpi.sh\n", files={"cryptmpi.sh": prolog}):
        job = Job(lab, tmp_path, OPENMPI4, program(OPENMPI4))
        done = job.run("srun -N2 -n2 --mpi=pmix ./program", env={"CRYPTMPI_REPORT_FILE": tmp_path / "job.json"})
        assert done.ok, done.output
        sealed_whole(job, 2)
        # What is no MPI program goes on as it did.
        other = job.run("srun -N2 -n2 sh -c 'echo preloaded: $LD_PRELOAD'")
        assert other.ok and re.findall("preloaded:(.*)", other.output) == ["", ""], other.output


WRAP = "munge --cipher aes256 --mac sha256 --restrict-uid root"


@pytest.mark.parametrize("wrapping, why", [
    (f"{WRAP} <job.key", None),
    ("cat job.key", "Invalid credential format"),
    (f"setpriv --reuid=65534 --clear-groups {WRAP} <job.key", "user 65534 has sent it"),
    ("munge --cipher none --mac sha256 <job.key", "not under AES and SHA-2"),
    ("munge --cipher aes128 --mac sha1 <job.key", "not under AES and SHA-2"),
    (f"head -c 40 job.key >short && {WRAP} <short", "holds no key's line"),
    (f"{WRAP} <job.key >old && unmunge --input old >used && cat old", "Replayed credential"),
], ids=["right", "in clear", "another user's", "not encrypted", "SHA-1", "too short", "a second time"])
def test_key_that_comes_by_srun(nodes, tmp_path, wrapping, why):
    """An attacker who owns srun's streams cannot give a node a key that this user has not wrapped for it."""
    sealing = Sealing(tmp_path / "config", nodes, BUILD / "bin" / "cryptmpi")
    (tmp_path / "job.key").write_bytes((tmp_path / "config" / "cryptmpi" / "job.key").read_bytes())
    place = f"/dev/shm/cryptmpi-key-{secrets.token_hex(16)}"
    line = f"{{ {wrapping}; }} | {sealing.command} exec --role launcher --job x --wrapped-key-on-stdin --set KEY_FILE={place} -- true"
    done = nodes.run(["sh", "-c", line], env=sealing.env(), cwd=tmp_path)
    if why is None:
        assert done.ok, done.output
    else:
        assert done.returncode == 125 and why in done.output, done.output
        assert done.output.count("\n") == 1, done.output
    assert nodes.run(["test", "-e", place]).returncode == 1
