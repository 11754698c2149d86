"""One job between two nodes with the adversary on its wire, and what became of it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.middle import lead_through_third
from cryptmpi_tools.lab.nodes import REPOSITORY, FirstNodes, Lab, LabError
from cryptmpi_tools.lab.sealing import COMMAND, Sealing

from cryptmpi_tools.adversary.cells import FRAMING

ROUNDS = 14
BUILDING = threading.Lock()
HERE = Path(__file__).resolve().parent
SHORT_LIMIT_S = 15  # where MPI's own packets are in clear, and MPI waits without end for one that is withheld
# Under the two layers that seal messages, MPI's own packets are in clear, as on a network that is not TCP.
SETTINGS = {"channel": {}, "mpi": {"seal_sockets": "false", "scope": "auto"}, "fabric": {}}
# Those of UCX's transport tcp are sealed like all others, unless all roads are open.
UCX_OPEN = {"seal_sockets": "false", "network": "any"}
ONE_MAKES_THE_KEY = threading.Lock()  # of the jobs that begin at the same time
PATIENCE = {"silence_timeout_s": 4, "handshake_timeout_s": 6, "agreement_timeout_s": 6, "abort_after_s": 0.5}


@dataclass
class Outcome:
    """How a job ended."""

    # "as plain", "told": by us or the program; "ended": by MPI or the launcher; "MPI waits": for packets of MPI's own
    # that are in clear; "hang", "undetected"
    kind: str
    by: str
    seconds: float
    done: set = field(default_factory=set)  # of the strikes
    output: str = ""

    @property
    def detected(self):
        return self.kind in ("told", "ended")


def build(mpi, folder):
    with BUILDING:
        return built(mpi, folder)


def built(mpi, folder):
    compiler = mpi.mpicc or stacks.stack(mpi.built_with).mpicc
    program = folder / "programs" / f"checking-{mpi.name}"
    source = HERE / "checking.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([compiler, "-O1", "-Wall", "-Wextra", "-o", program, source], capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"{compiler} does not compile {source}: {done.stderr.strip()}")
    return program


class Place:
    """Two nodes, a third for the adversary, and a folder for one job at a time."""

    def __init__(self, folder, number, limit):
        self.root = folder
        self.folder = folder / f"place-{number}"
        self.limit = limit
        self.lab = Lab(nodes=3)
        lead_through_third(self.lab)
        self.recordings = {}
        self.good = set()

    def close(self):
        self.lab.close()

    def run(self, layer, mpi_name, operation, strikes=(), record=None, recorded=None, stranger=None, pause_us=0, rounds=ROUNDS):
        """The outcome of one job."""
        mpi = stacks.stack(mpi_name)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        begun = self.folder / "begun"
        plan = {"framing": "records" if layer == "channel" else FRAMING[mpi_name], "begun": str(begun),
                "record": record and str(record), "recorded": recorded and str(recorded), "strikes": list(strikes)}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        two = FirstNodes(self.lab, 2)
        more = UCX_OPEN if layer == "fabric" and FRAMING[mpi_name] == "uct" else {}
        with ONE_MAKES_THE_KEY:
            sealing = Sealing(self.root / "config", self.lab, COMMAND, {"layer": layer, **SETTINGS[layer], **more, **PATIENCE})
        operation = operation if operation in known() else "eager"
        program = [build(mpi, self.root), operation, rounds, begun, pause_us]
        line = sealing.run_line(mpi, two, 2, [str(word) for word in program], self.folder / "report.json")
        line[2:2] = ["--mpi", str(mpi.mpiexec)]
        if mpi.family == "openmpi4":
            at = line.index("--launcher-args") + 1
            line[at] += " " + shlex.join(["--map-by", "ppr:1:node:oversubscribe"])
        env = {**mpi.env(self.lab), **stacks.abi_environment(mpi), **sealing.env()}
        companions = [self.start("man", self.folder / "plan.json")]
        if stranger:
            companions.append(self.start("stranger", stranger, os.getpid(), *(f"{node.pid}:{node.address}" for node in self.lab.nodes[:2]),
                                         COMMAND.parent.parent / "lib" / "cryptmpi" / "libcryptmpi-channel.so", self.folder))
        try:
            done = self.lab.run(line, env=env, timeout=self.limit if layer == "channel" else min(self.limit, SHORT_LIMIT_S), cwd=self.folder)
        finally:
            said = [end(one) for one in companions]
        lines = [line for text in said for line in text.splitlines()]
        return judge(done, layer, {line.removeprefix("done ") for line in lines if line.startswith("done ")})

    def start(self, script, *arguments):
        line = [sys.executable, "-m", f"cryptmpi_tools.adversary.{script}", *arguments]
        process = self.lab.start(line, node=2, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if process.stdout.readline() != "ready\n":
            raise LabError(f"{script} does not start: {process.communicate()[1]}")
        return process

    def quiet(self, layer, mpi_name, operation):
        """A job that nobody attacks has to end as it should, or the attacks on it say nothing."""
        key = (layer, mpi_name, operation if operation in known() else "eager")
        if key not in self.good:
            done = self.run(*key)
            if done.kind != "as plain":
                raise LabError(f"{' '.join(key)}: a job that nobody attacks does not end as it should: {done.kind}: {done.output[-2000:]}")
            self.good.add(key)

    def recording(self, layer, mpi_name, operation):
        """The streams of a job that nobody attacked, of another key than those that follow."""
        key = (layer, mpi_name, operation)
        if key not in self.recordings:
            folder = self.folder.with_name(f"{self.folder.name}-recorded-{'-'.join(key)}")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            done = self.run(layer, mpi_name, operation, record=folder)
            if done.kind != "as plain":
                raise LabError(f"the job that is recorded does not end as plain: {done.kind}: {done.output[-2000:]}")
            self.recordings[key] = folder
        return self.recordings[key]


def known():
    return re.findall(r'\{"([a-z]+)", ', (HERE / "checking.c").read_text())


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    return process.communicate(timeout=20)[0]


def first_line(output):
    """Who says that something is wrong: our library, else MPI, else the program."""
    lines = output.splitlines()
    ours = [line for line in lines if line.startswith("cryptmpi") and ": note: " not in line]
    if ours:
        return re.sub(r"^(cryptmpi)[^:]*: (rank \d+[^:]*: )?", r"\1: ", ours[0])[:200]
    told = [line for line in lines if "told, nothing left" in line]
    return told[0][:200] if told else next((f"MPI: {line.strip()}"[:200] for line in lines if line.strip()), "nothing was said")


def ends_told(output):
    """The job went on after an error: each rank that lacks something was told, and so is who reads the verdict."""
    ranks = {}
    said = r"^checking: rank (\d+): (?:round -?\d+: )?(told, nothing left|went on to the end|all as sent)"
    for rank, what in re.findall(said, output, re.MULTILINE):
        ranks.setdefault(rank, set()).add(what)
    all_told = len(ranks) == 2 and all(lines in ({"all as sent"}, {"told, nothing left", "went on to the end"}) for lines in ranks.values())
    return all_told and re.search(r"^cryptmpi: SEALED.* message\(s\) were longer than their receives, and were cut off", output, re.MULTILINE)


def judge(done, layer, strikes):
    bad = [line for line in done.output.splitlines() if "WRONG BYTES" in line or "BYTES LEFT" in line]
    whole = done.output.count("all as sent") == 2
    if bad:
        return Outcome("undetected", bad[0], done.seconds, strikes, done.output)
    if done.timed_out:
        return Outcome("hang" if layer == "channel" else "MPI waits", first_line(done.output), done.seconds, strikes, done.output)
    if done.ok and whole:
        return Outcome("as plain", "", done.seconds, strikes, done.output)
    if done.ok and ends_told(done.output):
        return Outcome("told", first_line(done.output), done.seconds, strikes, done.output)
    if done.ok:
        return Outcome("undetected", "status 0 of a job that did not do its work", done.seconds, strikes, done.output)
    by = first_line(done.output)
    if re.search(r"^cryptmpi: (SEALED|NOTHING TO SEAL)", done.output, re.MULTILINE):
        return Outcome("undetected", "the verdict is good, of a job that did not do its work", done.seconds, strikes, done.output)
    return Outcome("told" if by.startswith("cryptmpi") or "told" in by else "ended", by, done.seconds, strikes, done.output)
