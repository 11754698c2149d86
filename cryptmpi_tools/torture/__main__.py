"""Plays random MPI programs plain and sealed across two nodes: what they observe must be the same.

A program is made from its seed, for one MPI and number of ranks. One whose plain run fails, or differs from a second
plain run, says nothing of us: it is counted as not usable. A difference says that one of the two is wrong, and most
often that is us.
"""

import argparse
import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from cryptmpi_tools.lab.nodes import REPOSITORY, Lab, LabError, acquire_namespaces, end_on_signals, let_root_start_jobs, run_program
from cryptmpi_tools.lab.sealing import COMMAND, Sealing, alone
from cryptmpi_tools.lab.stacks import EVERY, FABRIC, STACKS, abi_environment, stack
from cryptmpi_tools.tables import aligned

BEGAN = time.monotonic()
SOURCES = sorted((REPOSITORY / "cryptmpi_tools" / "torture").glob("*.c"))
FOLDER = REPOSITORY / "build" / "torture"
STEPS = 60
TOGETHER = 10  # programs of one start of the job
SLOWER = 4  # times as long as plain: what takes longer does not end
SINGLE, ONE_THREAD, THREADS = 0, 1, 3  # as the player takes them
MODES = {SINGLE: "one thread", ONE_THREAD: "one thread of those that MPI allows", THREADS: "3 threads"}

# What an MPI gets wrong plain, so that its programs do not have it. The names are those of the player's FEATURES.
_ALL = {
    "empty_types": "in collective operations, a count of 0 on one rank and a type without size on the other do not meet: one of them waits",
    "mixed_types": "Bcast and Allgatherv are cut into parts by the size of a rank's own type: ranks with other types wait, or get too much",
}
_MPICH_KIN = {
    **_ALL,
    "status_of_persistent": "after MPI_Request_get_status of a persistent receive, MPI_Wait gives the empty status",
}
_MPICH = {
    **_MPICH_KIN,
    "pairs": "MPICH packs MPI_SHORT_INT and its like wrongly for buffered sends, MPI_Sendrecv_replace and derived types",
    "reduce_scatter_in_place": "MPICH ends a large MPI_Reduce_scatter in place with the assertion that memory ranges overlap",
}
_LIBFABRIC = {"many_unexpected": "libfabric's tcp provider keeps 64 unexpected messages (FI_TCP_MAX_SAVED): behind them, nothing comes through"}
_OPEN_MPI = {
    **_ALL,
    "large_truncation": "Open MPI writes past the end of a receive's buffer where a message beyond the eager limit is longer",
    "truncated_waitall": "Open MPI with MPI_THREAD_MULTIPLE does not come back from MPI_Waitall of a truncated receive",
    "local_copies": "Open MPI copies a rank's own part of Alltoall, Gather and their kin wrongly where one side's type is derived",
}
WITHOUT = {
    "mpich-4.0.2-ucx": {
        **_MPICH,
        "unexpected_self": "MPICH 4.0.2 mixes up messages of the own rank that wait for their receives",
        "irecv_of_nobody": "after some calls, MPICH 4.0.2 gives an MPI_Irecv from MPI_PROC_NULL the status of a message from rank 0",
    },
    "mpich-5.0.2-ucx": {**_MPICH, "any_source": "MPICH 5.0.2 over UCX hangs in receives and probes of MPI_ANY_SOURCE"},
    "mpich-5.0.2-ofi": {
        **_MPICH,
        **_LIBFABRIC,
        "probe_any_source": "MPICH 5.0.2 over libfabric crashes in the receive after a matching probe of MPI_ANY_SOURCE",
    },
    "openmpi-4.1.4": {
        **_OPEN_MPI,
        "bsend_init": "Open MPI 4.1.4: a restarted MPI_Bsend_init request sends what is written to its buffer after it is done",
    },
    "openmpi-5.0.11": _OPEN_MPI,
    "impi-2021.19-ofi": {
        **_MPICH_KIN,
        **_LIBFABRIC,
        "allgather_types": "Intel MPI 2021.19 gathers wrong bytes by MPI_Allgather where ranks have other derived types",
        "disconnect": "Intel MPI 2021.19 crashes in MPI_Comm_disconnect after messages",
        "truncation_in_a_node": "between ranks of a node, Intel MPI 2021.19 now and then gives success for a truncated receive, or hangs in it",
    },
}

# What an MPI gets wrong plain when several threads call it.
_OPEN_MPI_THREADS = dict.fromkeys(
    ("constructor", "constructors_between"),
    "threads of Open MPI that make communicators at a time now and then wait for each other in ompi_comm_nextcid",
)
_INTEL_THREADS = dict.fromkeys(
    ("constructor", "constructors_between"),
    "threads of Intel MPI 2021.19 that make communicators at a time now and then do not come back from MPI_Comm_idup",
)
WITHOUT_IN_THREADS = {"openmpi-4.1.4": _OPEN_MPI_THREADS, "openmpi-5.0.11": _OPEN_MPI_THREADS, "impi-2021.19-ofi": _INTEL_THREADS}

# Where programs of three threads crash, plain.
NO_THREADS = {
    "mpich-4.0.2-ucx": "MPICH 4.0.2 crashes with 3 threads",
}


# Where every second twenty seeds use the forms of MPI 4 with large counts.
LARGE_COUNTS = ("mpich-4.0.2-ucx", "mpich-5.0.2-ucx", "mpich-5.0.2-ofi", "impi-2021.19-ofi")


def say(line):
    print(f"[{time.monotonic() - BEGAN:5.0f} s] {line}", flush=True)


@dataclass(frozen=True)
class Way:
    """How programs are played, the same for all of one start."""

    mpi: object
    ranks: int
    mode: int
    large_counts: bool

    def title(self):
        return f"{self.mpi.name}, {self.ranks} ranks, {MODES[self.mode]}{', large counts' if self.large_counts else ''}"


def way_of(seed, mpi, ranks):
    mode = (SINGLE, SINGLE, ONE_THREAD, ONE_THREAD if mpi.base in NO_THREADS else THREADS)[seed % 4]
    # More ranks than cores only where ranks yield.
    often, now_and_then = (4, 2) if mpi.family.startswith("openmpi") else (2, 3)
    if mode == THREADS:  # Open MPI with 3 threads on each of 4 ranks now and then hangs, plain
        often = now_and_then = 2
    return Way(mpi, ranks or (often if seed // 4 % 5 < 3 else now_and_then), mode, mpi.base in LARGE_COUNTS and seed // 20 % 2 == 1)


@dataclass
class Played:
    """What came of a program."""

    ended: bool
    logs: dict  # name of the rank and thread: its lines
    why: str = ""
    output: str = ""


@dataclass
class Torturer:
    lab: Lab
    sealing: Sealing
    steps: int
    only: int
    without: list
    folder: Path
    players: dict = field(default_factory=dict)

    def player(self, way):
        """The player as the MPI's own compiler builds it, or that of another MPI of the same ABI."""
        compiler = way.mpi.mpicc or stack(way.mpi.built_with).mpicc
        forms = ["-DLARGE_COUNTS"] if way.large_counts else []
        key = "".join([str(compiler), *forms])
        if key not in self.players:
            path = self.folder / "players" / key.strip("/").replace("/", "-")
            path.parent.mkdir(parents=True, exist_ok=True)
            line = [compiler, "-std=gnu11", "-O1", "-g", "-Wall", "-pthread", *forms, "-o", path, *SOURCES]
            done = subprocess.run(line, capture_output=True, text=True)
            if done.returncode:
                raise LabError(f"{compiler} does not compile cryptmpi_tools/torture/*.c: {done.stderr.strip()}")
            self.players[key] = path
        return self.players[key]

    def start(self, way, seeds, sealed, place, least_s):
        """One job that plays `seeds`. Its logs are in `place`. Its limit is for a machine that does little else, or
        `least_s` where that is more."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        in_threads = WITHOUT_IN_THREADS.get(way.mpi.base, {}) if way.mode == THREADS else {}
        without = ",".join([*WITHOUT.get(way.mpi.base, {}), *in_threads, *self.without]) or "nothing"
        program = [self.player(way), place, self.steps, way.mode, self.only, without, *seeds]
        program = [str(word) for word in program]
        env = {**way.mpi.env(self.lab), **abi_environment(way.mpi)}
        if sealed:
            program = self.sealing.exec_line(program)
            env.update(self.sealing.env())
        limit = max(20 + 4 * len(seeds), least_s)
        return self.lab.run(way.mpi.command(self.lab, way.ranks, program), env=env, timeout=limit, cwd=place, log=place / "output.txt")

    def play(self, way, seeds, sealed, place, least_s=0):
        """What came of each seed. After a program that does not end, the others get a job of their own."""
        results, rest = {}, list(seeds)
        while rest:
            done = self.start(way, rest, sealed, place, least_s)
            logs = {path.stem: path.read_text().splitlines() for path in sorted(place.glob("rank-*.log"))}
            for seed in list(rest):
                lines = {name: [line for line in log if line.startswith(f"{seed} ")] for name, log in logs.items()}
                ended = len(lines) == way.ranks * max(way.mode, 1) and all(log and log[-1].endswith(" end") for log in lines.values())
                rest.remove(seed)
                results[seed] = Played(ended, lines)
                if not ended:
                    results[seed].why, results[seed].output = done.why(), done.output[-4000:]
                    break
        return results

    def judge(self, way, seed, plain, sealed, place):
        """None, or a finding."""
        if not plain.ended:
            return {"kind": "not usable", "what": f"plain: {plain.why}", "where": last_lines(plain), "output": plain.output}
        difference = None if sealed.ended else {"what": f"sealed: {sealed.why}", "where": last_lines(sealed), "output": sealed.output}
        difference = difference or compare(plain.logs, sealed.logs)
        if difference is None:
            return None
        again = self.play(way, [seed], False, place / "plain again")[seed]
        if not again.ended or compare(plain.logs, again.logs):
            other = compare(plain.logs, again.logs) if again.ended else {"what": f"a second plain run: {again.why}", "where": last_lines(again)}
            return {"kind": "not usable", **other, "what": other["what"].replace("plain and sealed differ", "two plain runs differ")}
        repeated = self.play(way, [seed], True, place / "sealed again")[seed]
        shows = not repeated.ended or compare(plain.logs, repeated.logs) is not None
        return {"kind": "finding", **difference, "again": "shows again" if shows else "did not show again"}


def last_lines(played):
    return [f"{name}: {log[-1] if log else 'nothing'}" for name, log in played.logs.items()]


def compare(plain, sealed):
    """The first difference, by step; of several ranks', the first rank's."""
    first = None
    for name in sorted(plain):
        left, right = plain[name], sealed.get(name, [])
        for at in range(max(len(left), len(right))):
            pair = [log[at] if at < len(log) else "(nothing)" for log in (left, right)]
            if pair[0] != pair[1]:
                step = int(pair[0].split()[1]) if at < len(left) else int(pair[1].split()[1])
                if first is None or step < first["step"]:
                    first = {"step": step, "where": [name, *context(left, at)], "plain": pair[0], "sealed": pair[1]}
                break
    if first:
        first["what"] = f"step {first['step']}, {first['where'][0]}: plain and sealed differ"
    return first


def context(log, at):
    """The line that names the step, and those that say more of the message in question."""
    words = log[min(at, len(log) - 1)].split()
    step, subject = words[1], words[2:4]
    lines = [line for line in log[: at + 1] if line.split()[1] == step]
    return [line for line in lines if line.split()[2] == "step" or (line.split()[2:4] == subject and line != log[min(at, len(log) - 1)])]


def show(way, seed, finding, torturer):
    print(f"  {finding['kind'].upper()}: seed {seed}, {way.title()}: {finding['what']}")
    for line in finding.get("where", []):
        print(f"    {line}")
    for side in ("plain", "sealed"):
        if side in finding:
            print(f"    {side if finding['kind'] == 'finding' else 'plain':7} {finding[side]}")
    for line in [line for line in finding.get("output", "").splitlines() if line.strip()][-8:]:
        print(f"    | {line}")
    options = [f"--without {name}" for name in torturer.without] + ([f"--steps {torturer.steps}"] if torturer.steps != STEPS else [])
    more = f" ARGS='{' '.join(options)}'" if options else ""
    only = f", this step alone: STEP={finding['step']}" if "step" in finding else ""
    print(f"    {finding.get('again', '')} Again: make torture SEED={seed} COUNT=1 STACK={way.mpi.name} RANKS={way.ranks}{more}{only}", flush=True)


def groups(seeds, mpi, ranks):
    """Programs that are played the same way, some at a time."""
    by_way = {}
    for seed in seeds:
        way = way_of(seed, mpi, ranks)
        by_way.setdefault((way.ranks, way.mode, way.large_counts), (way, []))[1].append(seed)
    for way, some in by_way.values():
        for at in range(0, len(some), TOGETHER):
            yield way, some[at : at + TOGETHER]


def torture(torturer, mpi, seeds, ranks):
    row = {"mpi": mpi.name, "programs": len(seeds), "as_plain": 0, "not_usable": [], "findings": [], "plain_s": 0.0, "sealed_s": 0.0}
    for way, some in groups(seeds, mpi, ranks):
        place = torturer.folder / f"{mpi.name}-{way.ranks}-{way.mode}{'-large-counts' * way.large_counts}"
        began = time.monotonic()
        plain = torturer.play(way, some, False, place / "plain")
        between = time.monotonic()
        usable = [seed for seed in some if plain[seed].ended]
        plain_s = between - began
        sealed = torturer.play(way, usable, True, place / "sealed", SLOWER * plain_s)
        sealed_s = time.monotonic() - between
        row["plain_s"] = round(row["plain_s"] + plain_s, 1)
        row["sealed_s"] = round(row["sealed_s"] + sealed_s, 1)
        bad = []
        for seed in some:
            finding = torturer.judge(way, seed, plain[seed], sealed.get(seed), place)
            if finding is None:
                row["as_plain"] += 1
                continue
            bad.append(finding)
            kind = "not_usable" if finding["kind"] == "not usable" else "findings"
            row[kind].append({"seed": seed, "ranks": way.ranks, "mode": MODES[way.mode], **finding})
            show(way, seed, finding, torturer)
        say(f"{way.title()}: {len(some) - len(bad)} of {len(some)} programs as plain ({plain_s:.1f} s, {sealed_s:.1f} s)")
        if not bad:
            shutil.rmtree(place)
    return row


def main():
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first program (default: the clock)")
    parser.add_argument("--count", type=int, default=20, help="how many programs for each MPI")
    parser.add_argument("--stack", action="append", choices=[mpi.name for mpi in EVERY])
    parser.add_argument("--layer", default="mpi", choices=["mpi", "fabric"])
    parser.add_argument("--ranks", type=int, help="default: by the seed")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each program")
    parser.add_argument("--step", type=int, default=-1, help="plays this step alone")
    parser.add_argument("--without", action="append", default=[], help="a feature or a scene of the player's that is left out")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the report, and the logs of findings")
    parser.add_argument("--cryptmpi", type=Path, default=COMMAND)
    parser.add_argument("--scope", default="between-nodes", choices=["between-nodes", "all"], help="all: messages within a node are sealed, too")
    options = parser.parse_args()
    why_not = acquire_namespaces()
    if why_not:
        say(f"one loopback instead of two nodes: {why_not}")
    end_on_signals()
    let_root_start_jobs()
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    seeds = range(options.seed, options.seed + options.count)
    say(f"seeds {seeds[0]} to {seeds[-1]}")

    rows = []
    with Lab(isolated=why_not is None) as lab:
        settings = {"layer": options.layer, "handshake_timeout_s": 20, **alone(options.layer), **({"scope": "all"} if options.scope == "all" else {})}
        sealing = Sealing(options.folder / "config", lab, options.cryptmpi, settings)
        torturer = Torturer(lab, sealing, options.steps, options.step, options.without, options.folder)
        for mpi in FABRIC if options.layer == "fabric" else STACKS:
            if options.stack and mpi.name not in options.stack:
                continue
            if not mpi.present():
                say(f"{mpi.name} is not installed (make mpis)")
                continue
            rows.append(torture(torturer, mpi, seeds, options.ranks))
            report = {"seeds": [seeds[0], seeds[-1]], "steps": options.steps, "results": rows, "without": WITHOUT,
                      "without_in_threads": WITHOUT_IN_THREADS, "no_threads": NO_THREADS}
            (options.folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")

    lines = [["MPI", "programs", "as plain", "not usable", "findings", "plain s", "sealed s"]]
    lines += [[row["mpi"], *map(str, (row["programs"], row["as_plain"], len(row["not_usable"]), len(row["findings"]), row["plain_s"],
                                      row["sealed_s"]))] for row in rows]
    print("", *aligned(lines), sep="\n")
    good = bool(rows) and all(row["as_plain"] and not row["findings"] for row in rows)
    print(f"{'No findings.' if good else 'Not all is as it should be.'} Report: {options.folder / 'report.json'}")
    return 0 if good else 1


if __name__ == "__main__":
    run_program("torture", main)
