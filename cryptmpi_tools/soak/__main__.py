"""Jobs of eight ranks under each layer for a long time, with ranks that are killed, stopped and continued, and with
links that are slow or cut.

Half of a layer's minutes is one long job, whose memory must not grow; the rest are short jobs, each of which is
disturbed in one way. Ranks that are left after a disturbance must come to their end, with a line that says why; a job
whose disturbance was none to it must do all its work. Afterwards nothing of a job may be left: no process, no file in
shared memory, in the folders of runs and settings, no namespace.
"""

import argparse
import fcntl
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import REPOSITORY, Finished, Lab, LabError, acquire_namespaces, end_on_signals, enter, let_root_start_jobs
from cryptmpi_tools.lab.sealing import COMMAND, Sealing

BEGAN = time.monotonic()
FOLDER = REPOSITORY / "build" / "soak"
SOURCE = Path(__file__).resolve().parent / "mixed.c"
RANKS = 8
# What carries each layer's jobs; ranks of the first two yield while they wait.
MPIS = {"channel": "openmpi-4.1.4", "fabric": "openmpi-4.1.4-pml-ucx", "mpi": "mpich-5.0.2-ofi"}
# A connection on which nothing opens for so long counts as cut off; twice that, and what comes after it, is what a job
# may take to end.
SILENCE_S = 8
# Of the long job, in which one moment without a link may follow another: TCP waits twice as long after each try.
LONG_SILENCE_S = 30
PATIENCE = {"handshake_timeout_s": 20, "agreement_timeout_s": 20, "abort_after_s": 5}
TO_END_S = 60
AFTER_LAUNCHER_S = 45  # ranks and daemons notice a cut by its silence, and live for abort_after_s then; longer on a busy machine
TURN_S = 12
# How a job is disturbed -> may it end well all the same?
GENTLE = ("nothing", "stopped", "slow", "cut for a moment")
DEADLY = ("killed", "cut")
MORE_MEMORY = 1.15, 8 << 10  # of the long job, at its end against a third of its time: times, and KiB more


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


@dataclass
class Turn:
    layer: str
    mpi: str
    disturbance: str
    seconds: float = 0
    problems: list = field(default_factory=list)
    memory: list = field(default_factory=list)  # [early, late] KiB of each rank
    rounds: int = 0
    late_parts: int = 0
    said: str = ""
    output: str = ""  # of a job that did not do all of its work


class Site:
    """The nodes, and what stands on this machine when no job runs."""

    def __init__(self, lab, folder):
        self.lab = lab
        self.folder = folder

    def in_node(self, node, *words):
        return subprocess.run([*enter(node.pid), *map(str, words)], capture_output=True, text=True, timeout=60)

    def slow_down(self, node):
        """Late and lossy, where this machine's kernel can do that; else narrow."""
        for discipline in ("netem delay 20ms 5ms loss 1%", "tbf rate 4mbit burst 16kb latency 200ms"):
            done = self.in_node(node, "tc", "qdisc", "replace", "dev", "eth0", "root", *discipline.split())
            if done.returncode == 0:
                return
        raise LabError(f"tc: {done.stderr.strip()}")

    def cut(self, node, whole=False):
        """At the switch, so that the node sees no more of it than of a cable that is cut far away."""
        port = f"port{self.lab.nodes.index(node) + 1}"
        done = subprocess.run([*enter(self.lab.switch), "ip", "link", "set", port, *(["master", "br0"] if whole else ["nomaster"])],
                              capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"ip link set {port}: {done.stderr.strip()}")

    def mended(self):
        for node in self.lab.nodes:
            self.in_node(node, "tc", "qdisc", "del", "dev", "eth0", "root")
            self.cut(node, whole=True)

    def traces(self, config):
        """Names of all that jobs could leave behind: shared memory, which each node has for itself, runs, settings."""
        found = set()
        for node in self.lab.nodes:
            self.in_node(node, COMMAND, "top", "--once", "--interval", "0.1", "--json")  # removes the pages of processes that were killed
            listed = self.in_node(node, "find", "/dev/shm", "-path", "*cryptmpi*", "-not", "-type", "d")
            found |= {f"{node.name}:{line}" for line in listed.stdout.splitlines()}
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR", "/run/user/0")) / "cryptmpi"
        for home in (Path(config), Path.home() / ".config" / "cryptmpi", self.folder, runtime):
            found |= {str(path) for path in home.rglob("*")} if home.is_dir() else set()
        return found

    def ranks(self, folder):
        """Process numbers by rank, of those that have begun."""
        return {int(path.name.removeprefix("rank-")): int(path.read_text() or 0) for path in folder.glob("rank-*")}


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a process that has ended by now"


def namespaces(pid="[0-9]*"):
    """Of a process, or of all that this machine has, as far as we may see them."""
    found = set()
    for kind in ("net", "mnt", "uts", "ipc"):
        for path in Path("/proc").glob(f"{pid}/ns/{kind}"):
            try:
                found.add(os.readlink(path))
            except OSError:
                continue
    return found


def built(mpi, folder):
    program = folder / "programs" / f"mixed-{mpi.base}"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([mpi.mpicc, "-O1", "-Wall", "-Wextra", "-o", program, SOURCE], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{mpi.mpicc} does not compile {SOURCE}: {done.stderr.strip()}")
    return program


class Disturber(threading.Thread):
    """Does one thing to a job once all of its ranks have begun."""

    def __init__(self, site, turn, folder, chance, seconds):
        super().__init__(daemon=True)
        self.site, self.turn, self.folder, self.chance, self.seconds = site, turn, folder, chance, seconds
        self.done = None      # when it was done
        self.over = threading.Event()

    def run(self):
        try:
            while len(self.site.ranks(self.folder)) < RANKS:
                if self.over.wait(0.1):
                    return
            self.over.wait(self.chance.uniform(0.1, 0.5) * self.seconds)
            getattr(self, "do_" + self.turn.disturbance.replace(" ", "_"))()
            self.done = time.monotonic()
        except (LabError, OSError, subprocess.SubprocessError) as error:
            self.turn.problems.append(f"the disturbance could not be made: {error}")

    def one(self):
        return self.chance.choice(sorted(self.site.ranks(self.folder).items()))

    def node(self):
        return self.chance.choice(self.site.lab.nodes)

    def do_nothing(self):
        pass

    def do_killed(self):
        _rank, pid = self.one()
        os.kill(pid, 9)

    def do_stopped(self):
        """For less than a silence, which a stopped rank looks like."""
        _rank, pid = self.one()
        os.kill(pid, 19)
        self.over.wait(SILENCE_S / 3)
        os.kill(pid, 18)

    def do_slow(self):
        self.site.slow_down(self.node())
        self.over.wait(self.seconds / 3)
        self.site.mended()

    def do_cut_for_a_moment(self):
        self.site.cut(self.node())
        self.over.wait(SILENCE_S / 4)
        self.site.mended()

    def do_cut(self):
        self.site.cut(self.node())


class LongDisturber(Disturber):
    """Of the long job: one gentle thing after the other."""

    def run(self):
        try:
            while len(self.site.ranks(self.folder)) < RANKS:
                if self.over.wait(0.1):
                    return
            self.seconds, whole = TURN_S, self.seconds
            end = time.monotonic() + whole - 2 * TURN_S
            while time.monotonic() < end and not self.over.wait(TURN_S / 2):
                getattr(self, "do_" + self.chance.choice(GENTLE).replace(" ", "_"))()
        except (LabError, OSError, subprocess.SubprocessError) as error:
            self.turn.problems.append(f"a disturbance could not be made: {error}")


def sealing_of(site, layer, silence_s):
    """Sockets are sealed under every layer: on them a withheld record is told (silence_timeout_s)."""
    more = {"network": "tcp"} if layer != "channel" else {}
    return Sealing(site.folder / "config", site.lab, COMMAND, {"layer": layer, "silence_timeout_s": silence_s, **PATIENCE, **more})


def play(site, turn, seconds, chance, disturber_class):
    mpi = stacks.stack(turn.mpi)
    folder = site.folder / "place"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sealing = sealing_of(site, turn.layer, LONG_SILENCE_S if disturber_class is LongDisturber else SILENCE_S)
    program = built(mpi, site.folder)
    before = site.traces(sealing.config)
    line = sealing.run_line(mpi, site.lab, RANKS, [program, seconds, chance.randrange(1 << 30), folder], folder / "report.json")
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    if mpi.family == "openmpi4":
        at = line.index("--launcher-args") + 1
        line[at] += f" --map-by ppr:{RANKS // len(site.lab.nodes)}:node:oversubscribe"
    disturber = disturber_class(site, turn, folder, chance, seconds)
    disturber.start()
    try:
        done = ran(site, turn, line, {**mpi.env(site.lab), **stacks.abi_environment(mpi), **sealing.env()}, seconds + TO_END_S, folder)
    finally:
        disturber.over.set()
        disturber.join(30)
        site.mended()
        site.lab.end_processes()
    turn.seconds = round(done.seconds, 1)
    judge(turn, done, disturber)
    for path in (folder / "output.txt", folder / "report.json", *folder.glob("rank-*")):
        path.unlink(missing_ok=True)
    left = site.traces(sealing.config) - before
    # A daemon that ends after the launcher, as one that was cut off from it, writes its part of the report too late:
    # nothing secret.
    parts = folder / "report.json.parts"
    late = {path for path in left if Path(path) == parts or (Path(path).parent == parts and path.endswith(".json"))}
    turn.late_parts = len(late - {str(parts)})
    left -= late
    if left:
        turn.problems.append(f"left behind: {', '.join(sorted(left)[:5])}")
    return turn


def ran(site, turn, line, env, limit, folder):
    """The launcher to its end, and then all ranks and daemons: nobody ends them but the job itself."""
    began = time.monotonic()
    with open(folder / "output.txt", "wb") as out:
        process = site.lab.start(line, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        seconds = time.monotonic() - began
        timed_out = process.returncode is None
        end = time.monotonic() + AFTER_LAUNCHER_S
        while (left := site.lab.processes()) and time.monotonic() < end and not timed_out:
            time.sleep(0.2)
        if left and not timed_out:
            turn.problems.append(f"still there when the launcher had ended: {', '.join(sorted({name_of(pid) for pid in left}))}")
        site.lab.end_processes()
        process.wait()
    return Finished(process.returncode, (folder / "output.txt").read_text(errors="replace"), seconds, timed_out)


def first_line(output):
    ours = [line for line in output.splitlines() if line.startswith("cryptmpi") and ": note: " not in line]
    return (ours or [line for line in output.splitlines() if line.strip()] or ["nothing was said"])[0][:160]


def judge(turn, done, disturber):
    if done.timed_out or turn.problems or turn.disturbance in DEADLY:
        turn.output = done.output[-4000:]
    output = done.output
    turn.said = first_line(output)
    turn.memory = [[int(early), int(late)] for early, late in re.findall(r"memory (\d+) KiB early, (\d+) KiB late", output)]
    turn.rounds = max(map(int, re.findall(r": (\d+) rounds", output)), default=0)
    if "WRONG BYTES" in output:
        turn.problems.append("WRONG BYTES: " + next(line for line in output.splitlines() if "WRONG BYTES" in line))
    if done.timed_out:
        turn.problems.append(f"no end after {done.seconds:.0f} s")
    if disturber.done is None and turn.disturbance != "gentle ones" and not turn.problems:
        turn.problems.append("the job ended before it was disturbed")
    well = done.returncode == 0 and "mixed: all as sent" in output and "cryptmpi: SEALED" in output
    if turn.disturbance in DEADLY:
        if well:
            turn.problems.append("a job that lost a rank or its link ended as if nothing had been")
        elif turn.said == "nothing was said":
            turn.problems.append("nobody said why it ended")
        elif "cryptmpi: SEALED" in output:
            turn.problems.append("the verdict is good of a job that did not do its work")
    elif not well and not done.timed_out:
        turn.problems.append(f"did not do its work: status {done.returncode}: {turn.said}")


def look_at_memory(turn):
    times, more = MORE_MEMORY
    grown = [(early, late) for early, late in turn.memory if late > early * times + more]
    if len(turn.memory) != RANKS:
        turn.problems.append(f"{len(turn.memory)} of {RANKS} ranks said how much memory they have")
    if grown:
        turn.problems.append("memory grew: " + ", ".join(f"{early} KiB to {late} KiB" for early, late in grown))


def soak(layer, mpi, minutes, chance, disturbances, turns, write):
    with Lab() as lab:
        site = Site(lab, FOLDER)
        spaces = set.union(*(namespaces(node.pid) for node in lab.nodes)) - namespaces(os.getpid())
        end = time.monotonic() + 60 * minutes
        long = play(site, Turn(layer, mpi, "gentle ones"), max(30 * minutes, 3 * TURN_S), chance, LongDisturber)
        look_at_memory(long)
        turns.append(long)
        show(long, write)
        order = []
        while time.monotonic() + TURN_S < end:
            order = order or chance.sample(disturbances, len(disturbances))
            turn = play(site, Turn(layer, mpi, order.pop()), TURN_S, chance, Disturber)
            turns.append(turn)
            show(turn, write)
    if spaces & namespaces():
        turns[-1].problems.append("namespaces are left behind when all nodes are gone")
        show(turns[-1], write)


def show(turn, write):
    write()
    say(f"{turn.layer} {turn.mpi} {turn.disturbance}: {'; '.join(turn.problems) or 'as it should be'} ({turn.seconds} s, {turn.rounds} rounds; "
        f"{turn.said})")


def main():
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="of each layer (default: %(default)s)")
    parser.add_argument("--layer", action="append", choices=sorted(MPIS))
    parser.add_argument("--mpi", choices=[mpi.name for mpi in stacks.EVERY], help="default: one that each layer is for")
    parser.add_argument("--disturbance", action="append", choices=[*GENTLE, *DEADLY], help="of the short jobs; may be repeated (default: all)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the disturbances and of the traffic (default: the clock)")
    options = parser.parse_args()
    why_not = acquire_namespaces()
    if why_not:
        raise LabError(f"there can be no nodes: {why_not}")
    end_on_signals()
    let_root_start_jobs()
    FOLDER.mkdir(parents=True, exist_ok=True)
    alone = open(FOLDER / "lock", "w")  # for as long as this process lives: jobs' places are emptied
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LabError(f"another soak runs in {FOLDER}; wait for its end, or use another checkout") from None
    say(f"seed {options.seed}, {options.minutes:g} minutes of each layer")
    chance, turns = random.Random(options.seed), []

    def write():
        report = {"seed": options.seed, "minutes": options.minutes, "problems": sum(len(turn.problems) for turn in turns),
                  "turns": [vars(turn) for turn in turns]}
        (FOLDER / "report.json").write_text(json.dumps(report, indent=1) + "\n")

    for layer in options.layer or ["channel", "fabric", "mpi"]:
        mpi = stacks.stack(options.mpi or MPIS[layer])
        if not mpi.present() or not mpi.mpicc:
            raise LabError(f"{mpi.title} is not installed (make mpis)")
        soak(layer, mpi.name, options.minutes, chance, options.disturbance or [*GENTLE, *DEADLY], turns, write)
    bad = [turn for turn in turns if turn.problems]
    print(f"{'No findings.' if turns and not bad else 'Not all is as it should be.'} {len(turns)} jobs, {sum(turn.rounds for turn in turns)} rounds. "
          f"Report: {FOLDER / 'report.json'}")
    return 0 if turns and not bad else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"soak: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
