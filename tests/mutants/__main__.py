"""Breaks each promise once, in a copy of the sources, and runs the test that has to see it. One that survives is a
promise without a test."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from table import MUTANTS

REPOSITORY = Path(__file__).resolve().parents[2]
COPY = REPOSITORY / "build" / "mutants"
BUILD = COPY / "build" / "debug"  # quickly built; and it dies of a nonce that comes twice
PYTHON = REPOSITORY / "build" / "python" / "bin" / "python"
WHOLE_JOBS = ["product", "cryptmpi-test-sockets", "cryptmpi_mpi_tested"]  # what tests with pytest need
SECONDS = 300


def copy_sources():
    """What git knows, where it differs: what does not is not built again."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, check=True)
    names = {name for name in listed.stdout.decode().split("\0") if name and (REPOSITORY / name).is_file()}
    for name in names:
        source, target = REPOSITORY / name, COPY / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for folder in ("src", "tests", "include"):
        for path in (COPY / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and str(path.relative_to(COPY)) not in names:
                path.unlink()
    for tool in ("mpis", "python"):
        link = COPY / "build" / tool
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to((REPOSITORY / "build" / tool).resolve())


def call(line):
    return subprocess.run([str(word) for word in line], cwd=COPY, capture_output=True, text=True)


def build(programs):
    targets = sorted({target for program in programs for target in (WHOLE_JOBS if program == "pytest" else [program])})
    return call(["cmake", "--build", BUILD, "-j2", "--target", *targets])


def passes(mutant):
    if mutant.program == "pytest":
        line = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(mutant.tests)]
    else:
        line = [BUILD / "bin" / mutant.program, f"--gtest_filter={mutant.tests}"]
    try:
        done = subprocess.run([str(word) for word in line], cwd=COPY, capture_output=True, text=True, timeout=SECONDS, env=clean())
    except subprocess.TimeoutExpired:
        return False, "no end"
    none = re.search(r"Running 0 tests|no tests ran|deselected in|^\d+ skipped", done.stdout, re.MULTILINE)
    if none and not re.search(r"[1-9]\d* (passed|failed)", done.stdout):
        return None, done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def clean():
    return {**{name: value for name, value in os.environ.items() if not name.startswith("CRYPTMPI_")}, "TEST_BUILD": str(BUILD)}


class Broken:
    """The copy with the edits in it; without them again afterwards."""

    def __init__(self, mutant):
        self.before = {}
        for file, old, new in mutant.edits:
            text = (COPY / file).read_text()
            self.before.setdefault(file, text)
            if text.count(old) != 1:
                self.restore()
                raise LookupError(f"{file} has {text.count(old)} times: {old.strip()[:100]}")
            (COPY / file).write_text(text.replace(old, new))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore()

    def restore(self):
        for file, text in self.before.items():
            (COPY / file).write_text(text)


def verdict_on(mutant):
    """None: it was killed. Else what is wrong."""
    try:
        with Broken(mutant):
            built = build([mutant.program])
            if built.returncode:
                errors = [line for line in built.stdout.splitlines() if "error" in line]
                return f"does not build: {errors[0] if errors else built.stdout[-300:]}"
            passed, said = passes(mutant)
    except LookupError as error:
        return f"does not apply: {error}"
    if passed is None:
        return f"no test ran: {said[-300:]}"
    return f"SURVIVED {mutant.program} {mutant.tests}" if passed else None


def main():
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of what is broken; none: all of table.py")
    names = parser.parse_args().names
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.what for name in names)]
    if not chosen:
        parser.error(f"nothing in table.py is called {' or '.join(names)}")
    began = time.monotonic()
    copy_sources()
    configured = call(["cmake", "--preset", "debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "--log-level=WARNING"])
    built = build([mutant.program for mutant in chosen]) if configured.returncode == 0 else configured
    if built.returncode:
        sys.exit(f"mutants: the copy does not build: {built.stdout[-2000:]}{built.stderr[-2000:]}")
    print(f"[{time.monotonic() - began:4.0f} s] the copy is built", flush=True)
    wrong = []
    for mutant in {(one.program, one.tests): one for one in chosen}.values():
        passed, said = passes(mutant)
        if not passed:
            wrong.append(f"{mutant.program} {mutant.tests}: does not pass unbroken: {said[-500:]}")
            print(wrong[-1], flush=True)
    for mutant in chosen:
        found = verdict_on(mutant)
        print(f"[{time.monotonic() - began:4.0f} s] {mutant.what}: {found or 'killed'}", flush=True)
        if found:
            wrong.append(f"{mutant.what}: {found}")
    build([mutant.program for mutant in chosen])
    print(f"mutants: {len(chosen)} tried, {len(wrong)} wrong")
    for line in wrong:
        print(f"mutants: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
