"""The suites: which MPIs each runs on, its command, and how its results are read.

Results are {test: value}; a test passed plain if its value is true, and sealed if the value is the plain run's. One
that needs a procedure that CryptMPI refuses has the value REFUSED.
"""

import functools
import hashlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from cryptmpi_tools.lab.nodes import REPOSITORY
from cryptmpi_tools.lab.programs import HPCC_INPUT, LAMMPS_INPUT, hpcc_checks, lammps_thermodynamics
from cryptmpi_tools.lab.stacks import MPIS

HERE = Path(__file__).resolve().parent
MPI4PY = MPIS / "mpi4py-4.1.2"
SILICON = Path("/usr/share/doc/quantum-espresso/examples/atomic/pseudo-LDA-0.5/Si.pz-vbc.UPF.gz")
SCALAPACK_TESTS = Path("/usr/lib/x86_64-linux-gnu/scalapack")
SCALAPACK_DATA = Path("/usr/share/scalapack")
REPEATABLE_SUM = "REPEATABLE SUM TEST"  # skipped by BLACS where two sums in another order happened to be the same
IMB = MPIS / "impi-2021.19" / "bin"
REFUSED = "refused"
ENDED = "ended"  # the recorder's last line
ENDED_BY_SIGNAL = re.compile(r"exited on signal|EXIT STRING: .*\(signal")  # as the launchers of Open MPI and MPICH say it
OPEN_MPI = ("openmpi-4.1.4", "openmpi-5.0.11")
MPICH_ABI = ("mpich-4.0.2-ucx", "mpich-5.0.2-ucx", "mpich-5.0.2-ofi", "impi-2021.19-ofi")
# Intel MPI 2021.19's libmpi_abi, plain, refuses a datatype at mpi4py's import: "MPI_Type_size_c(MPI_DATATYPE_NULL)
# failed".
STANDARD_ABI = ("mpich-5.0.2-abi",)

# What ends by a synchronous send to a receive of a probed message.
SYNCHRONOUS_TO_MRECV = ["*test_util_pkl5.*", *(f"*test_p2p_obj.*.{test}" for test in (
    "testISSendAndRecv", "testSSendAndRecv", "testProbe", "testSendrecv", "testTestSomeSend", "testWaitSomeSend"))]

# Tests left out, each with where it is left out and the reason.
LEFT_OUT = [
    (lambda mpi, ranks: mpi.family == "hydra", "*.testDistgraphcomm",
     "MPICH's own race: plain runs on a busy machine see an in-degree of 4 instead of 3 now and then, and then hang"),
    (lambda mpi, ranks: True, "*TestThreadPool.test_apply_async_timeout",
     "a race of Python's threads against 2 ms and 0.2 s that a busy machine loses; no MPI call is in it"),
    (lambda mpi, ranks: mpi.base == "mpich-4.0.2-ucx", "*test_comm_inter*.testSplitTypeShared",
     "MPICH 4.0.2 crashes in MPI_Comm_split_type of an intercommunicator, plain too (mpi4py skips it for ch3 only)"),
    (lambda mpi, ranks: mpi.base == "mpich-4.0.2-ucx" and ranks > 2, "*test_util_sync.*World*",
     "MPICH 4.0.2 over UCX hangs in MPI_Win_free, or a mutex made of MPI_Fetch_and_op is wrong, plain too"),
    (lambda mpi, ranks: mpi.name == "openmpi-5.0.11-pml-ucx", "*test_util_sync.*World*",
     "Open MPI 5.0.11 over UCX tcp waits for ever in a mutex or condition made of one-sided operations, plain too"),
    (lambda mpi, ranks: mpi.base.startswith("impi"), "*test_cco_buf*InplaceWorld.testReduceScatter",
     "Intel MPI 2021.19's in-place MPI_Reduce_scatter is wrong on one of two ranks, plain too, and the other then waits for ever"),
    (lambda mpi, ranks: mpi.name == "openmpi-4.1.4-mtl-ofi", "*testAlltoallwBottom",
     "Open MPI 4.1.4's mtl ofi crashes in MPI_Alltoallw of MPI_BOTTOM, plain too: libfabric 1.17 copies from a null pointer"),
    (lambda mpi, ranks: mpi.name == "openmpi-4.1.4-mtl-ofi", "*test_p2p_obj.*testCancel",
     "Open MPI 4.1.4's mtl ofi crashes in MPI_Cancel of a send, plain too: it takes the request for one of a receive"),
    *((lambda mpi, ranks: mpi.name == "openmpi-4.1.4-mtl-ofi", pattern,
       "Open MPI 4.1.4's mtl ofi waits for ever for a synchronous send that MPI_Mrecv has received, plain too")
      for pattern in SYNCHRONOUS_TO_MRECV),
]

# Under the MPI layer, tests in which some ranks get the error of a refused procedure, and the others then wait for them
# for ever: left out of the sealed run, and counted as refused.
LEFT_OUT_REFUSED = {
    "test_comm_inter.TestIntercommCreateFromGroups.testPair":
        "ranks 0 and 1 alone call MPI_Intercomm_create_from_groups, and do not come to the MPI_Allreduce of all ranks behind it",
}


# ScaLAPACK's test programs that are run, and what each reads.
# They are built with Debian's MPIs; MPICH's Fortran part does not run on other libraries of that ABI, and two of Open
# MPI's programs do not run on Open MPI 5, since they are linked with its inner libraries of release 4.
SCALAPACK_MPIS = OPEN_MPI + ("mpich-4.0.2-ucx",)
ON_RELEASE_4 = ("openmpi-4.1.4", "mpich-4.0.2-ucx")
SCALAPACK = (("xdlu", "LU"), ("xdqr", "QR"), ("xdls", "LS"), ("xdinv", "INV"), ("xdtrd", "TRD"), ("xdsvd", "SVD"), ("xdsep", "SEP"),
             ("xzgsep", "SEP"), ("xdgblu", "BLU"), ("xdhseqr", "LU"))


@dataclass(frozen=True)
class Suite:
    name: str
    mpis: tuple
    ranks: tuple
    timeout: float
    command: Callable  # (stack, ranks) -> list
    results: Callable  # (folder, output) -> {test: value}
    files: tuple = ()
    environment: Callable = lambda mpi: {}
    ended: Callable = lambda folder, done: done.ok  # whether the run came to its end
    alone: Callable | None = None  # (test) -> the words that make the command run it alone, where the first refused call ends the run
    left_out_refused: dict = field(default_factory=dict)  # as LEFT_OUT_REFUSED
    leave_out: Callable = lambda tests: []  # (tests) -> the words that make the command leave them out
    own_verdicts: bool = False  # each test says itself whether it passed, and no run has fewer of them than another
    layers: tuple = ("channel", "mpi", "fabric")
    slots: int | None = None  # of a node, where the suite spawns ranks
    by_run: bool = False  # `cryptmpi run` starts the sealed job: what MPI spawns is started past a launcher line's `cryptmpi exec`


def numbered(names):
    """Distinct names for repeated lines."""
    seen = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield f"{name} #{seen[name]}"


def read_hpcc(folder, _output):
    right, wrong = hpcc_checks(folder)
    right = [line for line in right if not line.startswith("CPU ")]  # left out by HPCC where the time is too short for its clock
    blank = [re.sub(r"[-+]?\d[\d.e+-]*", "N", line.strip()) for line in right]
    return {**dict.fromkeys(numbered(blank), True), **dict.fromkeys(numbered(w.strip() for w in wrong), False)}


def read_scalapack(_folder, output):
    """The lines of what passed, without sizes and times: one that failed is missing."""
    passed = [line for line in output.splitlines() if re.search(r"passed", line, re.IGNORECASE) and REPEATABLE_SUM not in line]
    return dict.fromkeys(numbered(re.sub(r"[-+]?\d[\d.eE+-]*", "N", " ".join(line.split())) for line in passed), True)


def blacs_ended(_folder, done):
    """Its last test is an abort of the job."""
    return not done.ok and not done.timed_out and "final auxiliary test is for BLACS_ABORT" in done.output


def scalapack(program):
    """Debian has ScaLAPACK's tests built for both families."""
    def command(mpi, _ranks):
        folder = "mpich-tests" if mpi.family == "hydra" else "openmpi-tests"
        return [SCALAPACK_TESTS / folder / program]
    return command


def read_lammps(_folder, output):
    return {f"step {line[0]}": line for line in lammps_thermodynamics(output)}


@functools.cache
def water():
    """A run of GROMACS, as its own tools prepare it."""
    folder = REPOSITORY / "build" / "conformance" / "water"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "water.top", folder)
    for line in (["solvate", "-cs", "spc216", "-box", "3.72412", "3.72412", "3.72412", "-o", "water.gro", "-p", "water.top"],
                 ["grompp", "-f", HERE / "water.mdp", "-c", "water.gro", "-p", "water.top", "-o", "water.tpr"]):
        subprocess.run(["gmx", "-quiet", "-nobackup", *line], check=True, cwd=folder, capture_output=True)
    return folder / "water.tpr"


def gromacs(_mpi, _ranks):
    # -reprod: as many ranks do the same in the same order, so that every digit is as plain.
    return ["/usr/bin/gmx_mpi", "-quiet", "-nobackup", "mdrun", "-s", water(), "-deffnm", "water", "-reprod", "-ntomp", "1"]


def read_gromacs(folder, _output):
    """Its energies, and where all atoms are in the end."""
    log, atoms = Path(folder) / "water.log", Path(folder) / "water.gro"
    text = log.read_text(errors="replace") if log.exists() else ""
    results = dict(zip(numbered(["energies"] * text.count("Energies (kJ/mol)")), re.findall(r"Energies \(kJ/mol\)\n(.*?)\n\n", text, re.S)))
    if atoms.exists():
        results["atoms"] = hashlib.sha256(atoms.read_bytes()).hexdigest()
    return results


def silicon(_mpi, _ranks):
    """Quantum ESPRESSO in two pools of ranks; the pseudopotential lies in its package as documentation."""
    unpack = f"gunzip -c {SILICON} > Si.pz-vbc.UPF.$$ && mv Si.pz-vbc.UPF.$$ Si.pz-vbc.UPF && exec /usr/bin/pw.x -npool 2 -in silicon.in"
    return ["sh", "-c", unpack]


def read_silicon(_folder, output):
    """Each iteration's energy; the total energy, forces and stress."""
    lines = re.findall(r"^!?\s+total energy +=.*|^ +atom +\d+ type.*|^ +Total force.*|^ +total +stress.*P=.*", output, re.M)
    return dict(zip(numbered(line.split("=")[0].split("(")[0].strip() for line in lines), lines))


def read_netpipe(_folder, output):
    if "Integrity check failed" in output or "Integrity check: failed" in output:
        return {"integrity": False}
    sizes = re.findall(r"^\s*\d+:\s+(\d+) bytes", output, re.M)
    return dict.fromkeys(numbered(f"{size} bytes" for size in sizes), True)


def read_imb(_folder, output):
    results = {}
    for section in re.split(r"^# Benchmarking ", output, flags=re.M)[1:]:
        title = section.splitlines()[0].strip()
        rows = len(re.findall(r"^\s+\d+\s+\d+\s+[\d.]+", section, re.M))
        results[title] = rows or ("#processes" in section or "#bytes" in section or "t[usec]" in section)
    return dict(zip(numbered(results), results.values()))


def read_mpi4py(folder, _output):
    outcomes = {}
    for file in Path(folder).glob("results.*"):
        for line in file.read_text().splitlines():
            outcome, _, name = line.partition(" ")
            if outcome == ENDED:
                continue
            outcomes.setdefault(name, []).append(outcome)
    ranks = len(list(Path(folder).glob("results.*")))
    return {name: REFUSED if REFUSED in all_ranks else len(all_ranks) >= ranks and "failed" not in all_ranks
            for name, all_ranks in outcomes.items() if set(all_ranks) != {"skipped"}}


def mpi4py_ended(folder, done):
    # Its exit status is a failure if a test failed. A rank may have its results and crash at its exit.
    files = list(Path(folder).glob("results.*"))
    if done.timed_out or ENDED_BY_SIGNAL.search(done.output):
        return False
    return bool(files) and all(file.read_text().endswith(f"{ENDED}\n") for file in files)


def mpi4py_command(mpi, ranks):
    left_out = mpi4py_without(pattern for applies, pattern, _ in LEFT_OUT if applies(mpi, ranks))
    return ["/usr/bin/python3", HERE / "mpi4py_recorder.py", MPI4PY / "test" / "main.py", "-q",
            "-e", "spawn", "-e", "dynproc", "-e", "mpiabi", *left_out]


def mpi4py_only(pattern):
    return lambda mpi, ranks: ["/usr/bin/python3", HERE / "mpi4py_recorder.py", MPI4PY / "test" / "main.py", "-q", "-i", pattern]


def mpi4py_without(patterns):
    return [word for pattern in patterns for word in ("-x", pattern)]


def mpi4py_environment(mpi):
    # mpi4py's wheel has an extension for each ABI but the standard one, which has a build of its own; which libmpi an
    # extension finds is lab.stacks.abi_environment's to say.
    settings = {**yielding(mpi), "MPI4PY_MPIABI": "mpich" if mpi.family == "hydra" else "openmpi", "PYTHONPATH": MPI4PY / "site"}
    if mpi.name in STANDARD_ABI:
        settings.update(MPI4PY_MPIABI="mpiabi", PYTHONPATH=MPI4PY / "site-standard")
    return settings


def mpi4py_spawning_environment(mpi):
    """Under Intel MPI mpi4py tests it only without matched probes. Open MPI 5 binds what is spawned to cores, of which
    there may be too few, whatever its launcher was told."""
    return {**mpi4py_environment(mpi), "MPI4PY_RC_RECV_MPROBE": "0", "PRTE_MCA_hwloc_default_binding_policy": "none"}


def yielding(mpi):
    """Ranks that wait on a busy core make room, where the MPI can be told so."""
    settings = {"I_MPI_THREAD_YIELD": "3", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10"}
    if mpi.base == "mpich-4.0.2-ucx":
        settings["LD_PRELOAD"] = make_room()
    return settings


@functools.cache
def make_room():
    library = REPOSITORY / "build" / "conformance" / "make_room.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", HERE / "make_room.c", "-o", library, "-ldl"], check=True)
    return library


def refused_only(output):
    """Did CryptMPI refuse a procedure, and complain of nothing else?"""
    complaints = [line for line in re.findall(r"cryptmpi: .*", output) if not re.match(r"cryptmpi: (rank \d+ on \S+: )?note: ", line)]
    return bool(complaints) and all(re.search(r": MPI_\w+ is refused: ", line) for line in complaints)


def imb(name):
    # Short: each size some rounds, up to 1 MB; what counts here is that it runs to its end.
    command = [IMB / name, "-npmin", "64", "-iter", "10", "-iter_policy", "off", "-msglog", "20"]
    return lambda mpi, ranks: command


def imb_alone(test):
    return [test.partition(" #")[0]]


SUITES = [
    Suite("hpcc", OPEN_MPI, (4,), 300, lambda mpi, ranks: ["/usr/bin/hpcc"], read_hpcc, (HPCC_INPUT,)),
    Suite("lammps", OPEN_MPI, (4,), 200, lambda mpi, ranks: ["/usr/bin/lmp", "-in", "in.melt"], read_lammps, (LAMMPS_INPUT,)),
    Suite("gromacs", OPEN_MPI, (4,), 200, gromacs, read_gromacs),
    # Its Fortran part is of Open MPI 4: plain it does not start on Open MPI 5.
    Suite("quantum-espresso", ("openmpi-4.1.4",), (4,), 100, silicon, read_silicon, (HERE / "silicon.in",)),
    Suite("netpipe", OPEN_MPI, (2,), 200, lambda mpi, ranks: ["/usr/bin/NPopenmpi", "-i", "-n", "10", "-u", "1048576"], read_netpipe),
    Suite("netpipe", MPICH_ABI, (2,), 200, lambda mpi, ranks: ["/usr/bin/NPmpich2", "-i", "-n", "10", "-u", "1048576"], read_netpipe,
          environment=yielding),
    Suite("blacs", ON_RELEASE_4, (4,), 200, scalapack("xCbtest"), read_scalapack,
          tuple(SCALAPACK_DATA / "BLACS" / f"{name}.dat" for name in ("bt", "sdrv", "bsbr", "comb")), environment=yielding, ended=blacs_ended),
    *(Suite(f"scalapack-{program.removeprefix('x')}", ON_RELEASE_4 if program == "xdhseqr" else SCALAPACK_MPIS, (4,), 100, scalapack(program),
            read_scalapack, (SCALAPACK_DATA / f"{data}.dat",), environment=yielding) for program, data in SCALAPACK),
    *(Suite(f"pblas-{level}", SCALAPACK_MPIS, (4,), 100, scalapack(f"PBLAS/dpb{level}tst"), read_scalapack,
            (SCALAPACK_DATA / "PBLAS" / f"PDBLAS{level}TST.dat",), environment=yielding) for level in (1, 2, 3)),
    Suite("imb-mpi1", MPICH_ABI, (2,), 400, imb("IMB-MPI1"), read_imb, environment=yielding),
    Suite("imb-rma", MPICH_ABI, (2,), 400, imb("IMB-RMA"), read_imb, environment=yielding, alone=imb_alone),
    Suite("imb-nbc", MPICH_ABI, (2,), 400, imb("IMB-NBC"), read_imb, environment=yielding, alone=imb_alone),
    Suite("imb-p2p", MPICH_ABI, (2,), 400, imb("IMB-P2P"), read_imb, environment=yielding, alone=imb_alone),
    # Two threads of each rank call MPI; it looks at what has come.
    Suite("imb-mt", MPICH_ABI, (2,), 100,
          lambda mpi, ranks: [IMB / "IMB-MT", "-thread_level", "multiple", "-count", "1,1000,100000", "-check", "1", "-datatype", "int",
                              "-warmup", "2", "-repeat", "20", "-window_size", "8"],
          read_imb, environment=lambda mpi: {**yielding(mpi), "OMP_NUM_THREADS": "2"}, alone=imb_alone),
    Suite("mpi4py", OPEN_MPI + MPICH_ABI + STANDARD_ABI, (2, 4), 900, mpi4py_command, read_mpi4py,
          environment=mpi4py_environment, ended=mpi4py_ended, own_verdicts=True, left_out_refused=LEFT_OUT_REFUSED, leave_out=mpi4py_without),
    # mpi4py skips these tests under MPICH before 4.3.
    Suite("mpi4py-dynproc", OPEN_MPI + MPICH_ABI, (2, 4), 120, mpi4py_only("dynproc"), read_mpi4py,
          environment=mpi4py_environment, ended=mpi4py_ended, own_verdicts=True, layers=("fabric",)),
    Suite("mpi4py-spawn", OPEN_MPI + MPICH_ABI, (2, 4), 400, mpi4py_only("spawn"), read_mpi4py,
          environment=mpi4py_spawning_environment, ended=mpi4py_ended, own_verdicts=True, layers=("fabric",), slots=64,
          by_run=True),
]
