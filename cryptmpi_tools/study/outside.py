"""Other people's benchmarks and applications, driven where they are installed: how each is found and started, its
results read and checked."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from cryptmpi_tools.bench.applications import Applications
from cryptmpi_tools.bench.programs import last_lines
from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.lab.stacks import STACKS, stack
from cryptmpi_tools.study import planned
from cryptmpi_tools.study.parts import NAIVE, Part, ways_of

NAS = ("cg", "ft", "mg", "lu", "bt", "sp", "is", "ep")
NAS_RANKS = 4  # a square and a power of two: BT and SP want the one, the others the other
OSU = ("osu_latency", "osu_bw", "osu_mbw_mr", "osu_bcast", "osu_alltoall", "osu_allgather", "osu_allreduce")
IMB = ("PingPong", "PingPing", "Sendrecv", "Exchange", "Bcast", "Allgather", "Allgatherv", "Scatter", "Scatterv", "Gather", "Gatherv", "Alltoall",
       "Alltoallv", "Reduce", "Reduce_scatter", "Allreduce")
NETPIPE = Path("/usr/bin/NPopenmpi")
APPLICATIONS = {"hpcc": "/usr/bin/hpcc", "lammps": "/usr/bin/lmp"}  # by Debian's package
MOST_S = 3600  # for one run
SECONDS = 1e6  # microseconds


@dataclass(frozen=True)
class Program:
    read: Callable   # (output) -> {"BENCHMARK SIZE": microseconds}; LabError where the results are wrong
    command: Callable  # (options, part) -> [word, ...]


def read_nas(output):
    """A program's own time. It checks its results itself."""
    name = re.search(r"^ *(\w+) Benchmark Completed", output, re.M)
    seconds = re.search(r"^ *Time in seconds *= *([\d.]+)", output, re.M)
    verified = re.search(r"^ *Verification *= *(\w+)", output, re.M)
    if not name or not seconds or not verified:
        raise LabError(f"no results of NAS: {last_lines(output)}")
    if verified.group(1) != "SUCCESSFUL":
        raise LabError(f"NAS {name.group(1)}: verification {verified.group(1)}")
    return {f"nas-{name.group(1).lower()} 0": float(seconds.group(1)) * SECONDS}


def read_osu(output):
    """Latencies in us as they are; of bandwidths in MB/s the time of a message."""
    title = re.search(r"^# OSU MPI (.+?)(?: Test| v[\d.]+|$)", output, re.M)
    rows = re.findall(r"^(\d+)\s+([\d.]+)", output, re.M)
    if not title or not rows or re.search(r"\bFail\b", output):
        raise LabError(f"no results of OSU's benchmark, or wrong ones: {last_lines(output)}")
    name = "osu-" + re.sub(r"\W+", "-", title.group(1).strip()).lower()
    in_mb_s = re.search(r"^# Size\s+.*(?:Bandwidth \(MB/s\)|MB/s)", output, re.M)
    return {f"{name} {size}": int(size) / float(value) if in_mb_s else float(value) for size, value in rows if float(value) > 0}


def read_imb(output):
    """t[usec], or t_avg[usec] where there are three, of each section and size; an operation on no bytes sends nothing
    that could be sealed."""
    results = {}
    for section in re.split(r"^# Benchmarking ", output, flags=re.M)[1:]:
        name = section.split()[0].lower()
        columns = re.search(r"^\s+#bytes.*$", section, re.M)
        if not columns:
            continue
        words = columns.group(0).split()
        at = next((words.index(word) for word in ("t_avg[usec]", "t[usec]") if word in words), None)
        for row in re.findall(r"^[ \t]+(\d+(?:[ \t]+[\d.]+)+)[ \t]*$", section, re.M) if at is not None else []:
            cells = row.split()
            if len(cells) > at and float(cells[at]) > 0 and cells[0] != "0":
                results[f"imb-{name} {cells[0]}"] = float(cells[at])
    if not results or "All processes entering MPI_Finalize" not in output:
        raise LabError(f"no results of IMB, or no end: {last_lines(output)}")
    return results


def read_netpipe(output):
    rows = re.findall(r"^\s*\d+:\s+(\d+) bytes\s+\d+ times -->\s+[\d.]+ Mbps in\s+([\d.]+) usec", output, re.M)
    if not rows or re.search(r"[Ii]ntegrity check:? failed", output):
        raise LabError(f"no results of NetPIPE, or wrong ones: {last_lines(output)}")
    return {f"netpipe {size}": float(us) for size, us in rows}


def nas_binary(folder, name, size_class, ranks):
    """NPB 3.4 calls it cg.C.x, NPB 3.3 cg.C.4; None where there is none."""
    for folder_of_it in (folder, folder / "bin"):
        for ending in ("x", str(ranks)):
            path = folder_of_it / f"{name}.{size_class.upper()}.{ending}"
            if path.exists():
                return path
    return None


def osu_binary(folder, name):
    return next((path for path in sorted(folder.rglob(name)) if path.is_file()), None)


PROGRAMS = {
    "nas": Program(read_nas, lambda options, part: [nas_binary(options.nas, part.options[0], options.nas_class, part.ranks)]),
    "osu": Program(read_osu, lambda options, part: [osu_binary(options.osu, part.options[0])]),
    "imb": Program(read_imb, lambda options, part: [options.imb / "IMB-MPI1", "-npmin", part.ranks, "-iter", "100", "-msglog", "22", *IMB]),
    "netpipe": Program(read_netpipe, lambda options, part: [NETPIPE, "-n", "20", "-u", "4194304", "-o", "/dev/null"]),
}


def mpi_of(binary, setting):
    """The MPI that a program was built for, as far as it is one of ours; None: none of them."""
    needed = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
    if "libmpi.so.40" in needed or "libmpi_mpifh.so" in needed:
        return setting.mpi
    if re.search(r"libmpi(ch|fort)?\.so\.12|libmpich", needed):
        return next((mpi.name for mpi in STACKS if mpi.family == "hydra" and mpi.present() and mpi.name in setting.mpis), None)
    return None


def parts(options, setting, networks):
    """(parts, [why one is missing, and how to mend it])."""
    found, missing = [], []
    for chosen in (_nas, _osu, _imb, _netpipe, _applications):
        some, lines = chosen(options, setting, networks)
        found += some
        missing += lines
    return found, missing


def _part(program, setting, network, mpi, ranks, options=(), experiment=None):
    ways = tuple(way for way in ways_of(setting) if way != NAIVE)  # theirs is not in our hands
    return Part(program, network, ways, mpi, ranks, ranks // 2, ((program, 0),), experiment=experiment or program, repeats=1, options=options)


def _nas(options, setting, networks):
    if options.nas is None:
        return [], ["NAS parallel benchmarks: not found: build them, and give --nas FOLDER (with bin/cg.CLASS.x and so on) and --nas-class"]
    found, missing = [], []
    for name in NAS:
        binary = nas_binary(options.nas, name, options.nas_class, NAS_RANKS)
        mpi = mpi_of(binary, setting) if binary else None
        if not mpi:
            why = f"{binary} is for no MPI that is installed here" if binary else f"no {name}.{options.nas_class}.x in {options.nas}"
            missing.append(f"NAS {name.upper()}: {why}")
            continue
        found += [_part("nas", setting, network, mpi, NAS_RANKS, (name,)) for network in networks]
    return found, missing


def _osu(options, setting, networks):
    if options.osu is None:
        return [], ["OSU micro-benchmarks: not found: build them, and give --osu FOLDER"]
    found, missing = [], []
    for name in OSU:
        binary = osu_binary(options.osu, name)
        mpi = mpi_of(binary, setting) if binary else None
        if not mpi:
            missing.append(f"OSU {name}: not in {options.osu}, or for no MPI that is installed here")
            continue
        found += [_part("osu", setting, network, mpi, 2, (name,)) for network in networks]
    return found, missing


def _imb(options, setting, networks):
    binary = options.imb / "IMB-MPI1"
    mpi = next((name for name in ("mpich-5.0.2-ofi", "impi-2021.19-ofi") if stack(name).present() and name in setting.mpis), None)
    if not binary.exists() or not mpi:
        return [], [f"Intel MPI Benchmarks: no {binary}, or no MPI of MPICH's ABI for them: run `make mpis`, or give --imb FOLDER"]
    return [_part("imb", setting, network, mpi, 2) for network in networks], []


def _netpipe(_options, setting, networks):
    if not NETPIPE.exists():
        return [], ["NetPIPE: not installed (package netpipe-openmpi)"]
    return [_part("netpipe", setting, network, setting.mpi, 2) for network in networks], []


def _applications(_options, setting, networks):
    found, missing = [], []
    for name, binary in APPLICATIONS.items():
        if not Path(binary).exists():
            missing.append(f"{name.upper()}: not installed (package {name})")
            continue
        found += [_part(name, setting, network, setting.mpi, 4) for network in networks]
    return found, missing


def planned_parts(setting, networks):
    """(parts, [why one is missing]): HPCC and LAMMPS with a rank and a core on each node, so that their times are not
    those of waiting for a core."""
    if setting.cores < 2:
        return [], [f"{', '.join(name.upper() for name in APPLICATIONS)}, predicted: two ranks need a core each, and there is one"]
    found, missing = [], []
    for name, binary in APPLICATIONS.items():
        if Path(binary).exists():
            found += [planned.part(name, setting, network) for network in networks]
        else:
            missing.append(f"{name.upper()}, predicted: not installed (package {name})")
    return found, missing


class Outside:
    """Starts one of PROGRAMS. `starter` is a bench.programs.Starter."""

    def __init__(self, starter, options):
        self.starter = starter
        self.options = options

    def start(self, part, way):
        program = PROGRAMS[part.program]
        done = self.starter.run(part, way, program.command(self.options, part), timeout=self.options.timeout if part.program != "nas" else MOST_S)
        if not done.ok:
            raise LabError(f"{done.why()}: {last_lines(done.output)}")
        return {key: {"us": [us]} for key, us in program.read(done.output).items()}


class WholeJobs:
    """HPCC and LAMMPS, as the benchmark runs and checks them. `planning` is for those whose overhead is predicted,
    too."""

    def __init__(self, starter, folder, planning):
        self._applications = Applications(starter, folder)
        self._planning = planning

    def start(self, part, way):
        if part.experiment == planned.EXPERIMENT:
            return self._planning.start(part, way, self._applications)
        return {key: {quantity: [value] for quantity, value in values.items()} for key, values in self._applications.start(part, way).items()}
