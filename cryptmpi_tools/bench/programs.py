"""Starts one of the programs here (*.c) under an MPI, plain or sealed, and reads what it measured.

What a start gives is {"BENCHMARK SIZE": {quantity: value}}; the quantities are "us", "cpu_us" (of all ranks) and
"bytes" (of memory).
"""

import re
import subprocess
from pathlib import Path

from cryptmpi_tools.bench.parts import BY_MESSAGES
from cryptmpi_tools.lab.nodes import BUILD, LabError
from cryptmpi_tools.lab.sealing import COMMAND, Sealing
from cryptmpi_tools.lab.stacks import abi_environment, stack

FOLDER = BUILD / "bench"
HERE = Path(__file__).resolve().parent


class Starter:
    def __init__(self, networks, folder=FOLDER, command=COMMAND, rounds=1000, timeout=60):
        self.networks = networks
        self.folder = folder
        self.command = command
        self.rounds = rounds
        self.timeout = timeout
        self._compiled = {}

    # What the programs of a part have in common

    def sealing(self, network, variant):
        """None for a plain start."""
        if variant.is_plain:
            return None
        return Sealing(self.folder / "config", self.networks.lab(network), self.command, dict(variant.settings))

    def program(self, name, compiler):
        if (name, compiler) not in self._compiled:
            path = self.folder / "programs" / f"{name}{str(compiler).replace('/', '-')}"
            path.parent.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([compiler, "-O2", "-o", path, HERE / f"{name}.c"], capture_output=True, text=True)
            if done.returncode:
                raise LabError(f"{compiler} does not compile bench/{name}.c: {done.stderr.strip()}")
            self._compiled[name, compiler] = path
        return self._compiled[name, compiler]

    def without_remote_memory(self, mpi):
        """The environment that makes an MPI do one-sided operations by messages of its own."""
        if "ofi" in mpi.name:
            return {"MPIR_CVAR_CH4_OFI_ENABLE_RMA": "0"}
        library = self.folder / "programs" / "no_remote_memory.so"
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "no_remote_memory.c"], check=True)
        return {"LD_PRELOAD": str(library)}

    def run(self, part, variant, program, before=(), report=None, **more):
        """A job of the part's MPI, finished. The words `before` come before all that makes it a sealed one."""
        lab, mpi, sealing = self.networks.lab(part.network), stack(part.mpi), self.sealing(part.network, variant)
        line = [*before, *(sealing.exec_line(program, report) if sealing else program)]
        line = mpi.command(lab, part.ranks, line, part.per_node if lab.isolated else part.ranks)
        env = {**mpi.env(lab), **abi_environment(mpi), "OMP_NUM_THREADS": "1", **(sealing.env() if sealing else {})}
        if variant == BY_MESSAGES:
            env |= self.without_remote_memory(mpi)
        return lab.run(line, env=env, **more)

    # The programs that measure themselves

    def start(self, part, variant):
        mpi = stack(part.mpi)
        compiler = (stack(mpi.built_with) if mpi.built_with else mpi).mpicc
        tests = [f"{label}:{size}" for label, size in part.tests]
        # Debian's MPICH 4.0.2 now and then prints its result and does not exit, plain too.
        enough = is_whole if part.mpi == "mpich-4.0.2-ucx" else None
        done = self.run(part, variant, [self.program(part.program, compiler), self.rounds, *tests], timeout=self.timeout, enough=enough)
        if is_whole(done.output) and (done.ok or enough):
            return read_results(done.output)
        raise LabError(f"{done.why()}: {last_lines(done.output)}")


def is_whole(output):
    return re.search(r"^memory \d+$", output, re.M) is not None


def read_results(output):
    results = {f"{label} {size}": {"us": float(us), "cpu_us": float(cpu)}
               for label, size, us, cpu in re.findall(r"^result (\S+) (\d+) (\S+) (\S+)$", output, re.M)}
    for memory in re.findall(r"^memory (\d+)$", output, re.M):
        if any(key.startswith("streaming ") for key in results):
            results["rank-memory 0"] = {"bytes": int(memory)}
    return results


def last_lines(output):
    return " | ".join([line.strip() for line in output.splitlines() if line.strip()][-3:])[-300:] or "no output"
