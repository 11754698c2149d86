"""Starts a part's program in one of its ways, and reads its repeats.

What a start gives is {"BENCHMARK SIZE": {quantity: [a value for each repeat]}}; the quantities are "us", "cpu_us" (of
all ranks) and what a program adds: "seal_us" and "open_us" of ciphers, "computing_us" and "communicating_us" of
stencils and n-body.
"""

import json
import re
import subprocess
from dataclasses import replace

from cryptmpi_tools.bench.programs import HERE as BENCH
from cryptmpi_tools.bench.programs import is_whole, last_lines
from cryptmpi_tools.lab.nodes import REPOSITORY, LabError
from cryptmpi_tools.lab.stacks import stack
from cryptmpi_tools.study.parts import MB, NAIVE, PLAIN, network_of
from cryptmpi_tools.study.profiles import refuse_unused

HERE = REPOSITORY / "cryptmpi_tools" / "study" / "programs"
SHARES = ("computing_us", "communicating_us")


class Programs:
    """The C programs here and in bench/ under an MPI. `starter` is a bench.programs.Starter; `profiles`, for our plans,
    study.profiles.Profiles."""

    def __init__(self, starter, folder, profiles=None):
        self.starter = starter
        self.folder = folder
        self.profiles = profiles
        self._compiled = {}

    def start(self, part, way):
        program = self._program(part.program, self._compiler(part), way == NAIVE)
        if self.profiles:
            way = self.profiles.applied(part, way)
        return self._run(part, way, [program, part.rounds, *self._words(part)])

    @staticmethod
    def _words(part):
        """Every case, as often as it is repeated in a start; windows of large messages, which take gigabytes, once."""
        def repeats(size):
            return 1 if part.program == "window" and size >= MB else part.repeats

        return [f"{label}:{size}" for turn in range(part.repeats) for label, size in part.tests if turn < repeats(size)]

    def _run(self, part, way, line):
        network = network_of(part, way)
        # Debian's MPICH 4.0.2 now and then prints its result and does not exit, plain too.
        enough = is_whole if part.mpi == "mpich-4.0.2-ucx" else None
        done = self.starter.run(replace(part, network=network), way, line, timeout=self.starter.timeout, enough=enough)
        if is_whole(done.output) and (done.ok or enough):
            refuse_unused(done.output)
            return read_results(done.output)
        raise LabError(f"{done.why()}: {last_lines(done.output)}")

    @staticmethod
    def _compiler(part):
        mpi = stack(part.mpi)
        return (stack(mpi.built_with) if mpi.built_with else mpi).mpicc

    def _program(self, name, compiler, naive):
        """Compiled once; with the naive construction linked in, or not."""
        key = (name, str(compiler), naive)
        if key not in self._compiled:
            source = next(folder / f"{name}.c" for folder in (BENCH, HERE) if (folder / f"{name}.c").exists())
            path = self.folder / "programs" / f"{name}{'-naive' if naive else ''}{str(compiler).replace('/', '-')}"
            path.parent.mkdir(parents=True, exist_ok=True)
            more = [HERE / "naive.c", "-lcrypto"] if naive else []
            done = subprocess.run([compiler, "-O2", "-o", path, source, *more, "-lm"], capture_output=True, text=True)
            if done.returncode:
                raise LabError(f"{compiler} does not compile {source.relative_to(REPOSITORY)}: {done.stderr.strip()[-300:]}")
            self._compiled[key] = path
        return self._compiled[key]


class Stencils(Programs):
    """First finds, plain, how many matrix products make the wanted share of computing; kept beside the results, for
    --resume."""

    def __init__(self, starter, folder):
        super().__init__(starter, folder)
        self._kept = folder / "stencils.json"

    def start(self, part, way):
        products = self._products(part)
        program = self._program(part.program, self._compiler(part), way == NAIVE)
        words = [f"{label}:{size}:{products[f'{label} {size}']}" for label, size in part.tests]
        return self._run(part, way, [program, part.rounds, *words * part.repeats])

    def _products(self, part):
        kept = json.loads(self._kept.read_text()) if self._kept.exists() else {}
        if part.name not in kept:
            program = self._program(part.program, self._compiler(part), False)
            words = [f"{label}:{size}:{label.rsplit('-', 1)[1]}" for label, size in part.tests]
            done = self.starter.run(part, PLAIN, [program, "calibrate", min(part.rounds, 20), *words], timeout=self.starter.timeout)
            found = re.findall(r"^calibrated (\S+) (\d+) \d+ (\d+) ([\d.]+)$", done.output, re.M)
            if len(found) != len(words):
                raise LabError(f"the stencils' computing cannot be calibrated: {done.why()}: {last_lines(done.output)}")
            kept[part.name] = {f"{label} {size}": int(products) for label, size, products, _ in found}
            self._kept.write_text(json.dumps(kept))
        return kept[part.name]


def read_results(output):
    results = {}
    for label, size, us, cpu in re.findall(r"^result (\S+) (\d+) (\S+) (\S+)$", output, re.M):
        _append(results, f"{label} {size}", us=us, cpu_us=cpu)
    for label, size, *shares in re.findall(r"^shares (\S+) (\d+) (\S+) (\S+)$", output, re.M):
        _append(results, f"{label} {size}", **dict(zip(SHARES, shares)))
    if not results:
        raise LabError(f"no result: {last_lines(output)}")
    return results


def _append(results, key, **values):
    for quantity, value in values.items():
        results.setdefault(key, {}).setdefault(quantity, []).append(float(value))


class Crypto:
    """The tools that time crypto modules without any message."""

    def __init__(self, command):
        self.folder = command.resolve().parent
        self.modules = self.folder.parent / "lib" / "cryptmpi"

    def found(self):
        """(((module, version, (cipher, ...)), ...), [a line for each module that cannot be used])."""
        output = self._tool("cipher")
        modules = [(name, version, tuple(ciphers.split())) for name, version, ciphers in re.findall(r"^module (\S+) (\S+): *(.*)$", output, re.M)]
        return tuple(modules), [f"module {line}" for line in re.findall(r"^unusable (.*)$", output, re.M)]

    def start(self, part, way):
        module = dict(way.settings)["module"]
        sizes = list(dict.fromkeys(size for _, size in part.tests))
        results = {}
        if part.program == "cipher":
            output = self._tool("cipher", module, way.cipher, *sizes)
            for size, seal, opening in re.findall(r"^(\d+) (\S+) (\S+) \S+ \S+$", output, re.M):
                _append(results, f"cipher {size}", us=float(seal) + float(opening), seal_us=seal, open_us=opening)
            return results
        for label in dict.fromkeys(label for label, _ in part.tests):
            output = self._tool("threads", module, way.cipher, label.rsplit("-", 1)[1], *sizes)
            for count, size, us in re.findall(r"^(\d+) (\d+) (\S+)$", output, re.M):
                _append(results, f"threads-{count} {size}", us=us)
        return results

    def _tool(self, name, *words):
        tool = self.folder / f"cryptmpi-bench-{name}"
        if not tool.exists():
            raise LabError(f"{tool} is not built: run `cmake --build --preset release`")
        done = subprocess.run([str(word) for word in (tool, self.modules, *words)], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise LabError(done.stderr.strip() or f"exit status {done.returncode}")
        return done.stdout
