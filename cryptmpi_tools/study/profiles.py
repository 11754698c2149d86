"""The profiles of the ways that are plans of ours: what `cryptmpi tune` finds between the nodes of a network, and one
that seals as much of a message at once as a profile can say. And in words, how each plan cuts a message."""

import json
import shlex
import shutil
import time
from dataclasses import replace

from cryptmpi_tools.bench.networks import SHAPES
from cryptmpi_tools.bench.programs import last_lines
from cryptmpi_tools.bench.turns import say
from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.lab.sealing import Sealing
from cryptmpi_tools.lab.stacks import abi_environment, stack
from cryptmpi_tools.study.parts import DIRECT, KB, MB, TUNED
from cryptmpi_tools.tune import explain, plans, profile
from cryptmpi_tools.tune.error import TuneError

QUICK_TIMEOUT, FULL_TIMEOUT = 120, 3600  # seconds for `cryptmpi tune`
KINDS = {TUNED.name: "", DIRECT.name: "-direct"}  # that have a file, and what its name ends with
# Messages up to 256 KB go whole, and of longer ones all but 2 KB in pieces of 1 MB, of which MPI has one at a time: a
# profile can say no more.
AS_WHOLE_AS_CAN_BE = plans.Plans(plans.MOST_WHOLE, (plans.Row(None, plans.Plan(1 * KB, 1 * MB, 1)),))
CHUNK, LEAST_SEGMENT = 512 * KB, 64 * KB  # of several threads (src/engine/plan.hpp)


class Profiles:
    """Of each network and MPI, in a folder; what an earlier run of the study made is taken again with `resume`."""

    def __init__(self, starter, folder, full, resume):
        self.starter = starter
        self.folder = folder / "profiles" / ("full" if full else "quick")
        self.full = full
        self._places = []  # (network, MPI)
        self._why = {}     # (network, MPI): why there is none
        if not resume:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def make(self, parts):
        """Those that the parts want, and that are not there. What cannot be had is told when it is asked for."""
        self._places = list(dict.fromkeys((part.network, part.mpi) for part in parts if any(way.name in KINDS for way in part.variants)))
        for network, mpi in self._places:
            try:
                if not self._is_there(network, mpi):
                    self._tune(network, mpi)
                self._write_direct(network, mpi)
            except (LabError, TuneError) as error:
                self._why[network, mpi] = f"no profile: {error}"

    def _path(self, network, mpi, kind):
        return self.folder / f"{network}-{mpi}{KINDS[kind]}.json"

    def _tuned(self, network, mpi):
        return profile.read(self._path(network, mpi, TUNED.name))

    def _is_there(self, network, mpi):
        try:
            return bool(self._tuned(network, mpi))
        except TuneError:
            return False

    def _tune(self, network, mpi):
        say(f"tuning for {network} under {mpi}")
        began = time.monotonic()
        self._run(network, mpi)
        say(f"tuned in {time.monotonic() - began:.0f} s: {in_words(self._tuned(network, mpi).plans)}")

    def _write_direct(self, network, mpi):
        """Made for what the other is made for."""
        content = profile.candidate(self._tuned(network, mpi).content["fingerprint"], AS_WHOLE_AS_CAN_BE)
        self._path(network, mpi, DIRECT.name).write_text(json.dumps(content, indent=1) + "\n")

    def _run(self, network, mpi_name):
        """`cryptmpi tune` on the first node."""
        if network not in SHAPES:
            raise LabError(f"{network} is not between nodes")
        lab, mpi = self.starter.networks.lab(network), stack(mpi_name)
        sealing = Sealing(self.starter.folder / "config", lab, self.starter.command)
        compiler = (stack(mpi.built_with) if mpi.built_with else mpi).mpicc
        variables = {**mpi.env(lab), **abi_environment(mpi)}
        options = [f"--launcher-args={shlex.join(mpi.launcher_options(lab))}"] if mpi.launcher_options(lab) else []
        line = [sealing.command, "tune", *([] if self.full else ["--quick"]), "--hosts", ",".join(lab.hosts()), "--mpi", mpi.mpiexec,
                "--mpicc", compiler, "--rsh", lab.rsh, *options, *(word for item in variables.items() for word in ("--env", "=".join(item))),
                "--folder", self.folder / "work", "-o", self._path(network, mpi_name, TUNED.name)]
        done = lab.run(line, env=sealing.env(), timeout=FULL_TIMEOUT if self.full else QUICK_TIMEOUT)
        if not done.ok:
            said = [text for text in done.output.splitlines() if text.startswith("cryptmpi: tune: ")]
            raise LabError(said[-1].removeprefix("cryptmpi: ") if said else f"cryptmpi tune: {done.why()}: {last_lines(done.output)}")

    def applied(self, part, way):
        """The way with the file of its profile, if it has one. LabError: there is none, and why."""
        if way.name not in KINDS:
            return way
        path = self._path(part.network, part.mpi, way.name)
        if not path.exists():
            raise LabError(self._why.get((part.network, part.mpi), f"there is no {path}"))
        return replace(way, settings=tuple((name, str(path) if name == "profile" else value) for name, value in way.settings))

    def plans(self):
        """{(network, MPI): Plans} of what tuning found for the parts that were given to `make`."""
        return {place: self._tuned(*place).plans for place in self._places if place not in self._why}


def refuse_unused(output):
    """LabError where a job said that it did not use its profile: what it took is not what the way is called."""
    for line in output.splitlines():
        if line.startswith("cryptmpi: ") and "the default plans are used" in line:
            raise LabError(line.removeprefix("cryptmpi: "))


# In words


def described(rows, tuned, threads):
    """The rows, those of our plans with how they cut the message. `tuned`: {(network, MPI): Plans}; `threads`: {way:
    how many seal}."""
    return [{**row, "plan": cut(row, tuned, threads[row["way"]])} if row["way"] in threads else row for row in rows]


def cut(row, tuned, threads):
    """In words; None where the plan is not known."""
    built_in = plans.default_of(row["mpi"].split("-")[0]) if threads == 1 else plans.DEFAULT
    known = {DIRECT.name: AS_WHOLE_AS_CAN_BE, TUNED.name: tuned.get((row["network"], row["mpi"]))}.get(row["way"], built_in)
    if known is None:
        return None
    plan = known.of(row["size"])
    if plan is None or threads == 1:
        return explain.pieces_words(plan and plan.pieces(row["size"]))
    segment = min(max(CHUNK // threads, LEAST_SEGMENT), plan.segment)
    return f"{explain.pieces_words(replace(plan, segment=segment).pieces(row['size']))}, {threads} threads"


def in_words(found):
    """Plans in a line."""
    if found in (plans.DEFAULT, plans.SHORT):
        return "nothing better than the built-in plan"
    cuts = [f"{'longer ones' if row.up_to is None else f'those up to {row.up_to // KB} KB'} in segments of up to {row.plan.segment // KB} KB, the "
            f"first and the last of {row.plan.edge // KB} KB, {row.plan.in_flight} with MPI" for row in found.rows]
    return f"messages up to {found.largest_whole // KB} KB whole, {'; '.join(cuts)}"


def facts(tuned):
    """For study.json."""
    return [{"network": network, "mpi": mpi, "plan": found.as_json(), "words": in_words(found)} for (network, mpi), found in tuned.items()]
