"""What the system tests share: the build under test, a job key, how a process is sealed, nodes, and what processes
say."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TEST_BUILD", REPOSITORY / "build" / "release")).resolve()
CHANNEL = BUILD / "lib" / "cryptmpi" / "libcryptmpi-channel.so"
SOCKETS = BUILD / "bin" / "cryptmpi-test-sockets"

sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent)]

from cryptmpi_tools.lab import stacks  # noqa: E402
from cryptmpi_tools.lab.middle import lead_through_third  # noqa: E402
from cryptmpi_tools.lab.nodes import Lab, acquire_namespaces  # noqa: E402
from cryptmpi_tools.lab.programs import CANARY  # noqa: E402
from two_networks import two_networks as made_two_networks  # noqa: E402


def _runtime():
    """The runtime of the sanitizer that the build under test was made with: [path], or nothing."""
    if not SOCKETS.exists():
        return []
    needed = subprocess.run(["ldd", SOCKETS], capture_output=True, text=True, check=True).stdout.split()
    return [word for word in needed if re.match(r"/.*/lib[at]san\.so", word)]


RUNTIME = _runtime()
# ASan's runtime has to come first. (TSan's has to come after the library, or it would not see our locks.)
PRELOAD = " ".join([*(path for path in RUNTIME if "libasan" in path), str(CHANNEL)])


class Leak(AssertionError):
    """Plaintext on the wire, or bytes that nobody sent and a rank took for good: such a test is not run again, since
    what shows once in three runs shows."""


def expect_unseen(times, said=""):
    """`times`: so often were bytes of the program's found on the wire."""
    if times:
        raise Leak(f"{times} times on the wire: {said}")


def expect_not_fooled(output):
    """Programs that compare what they got with what was sent say FOOLED."""
    if "FOOLED" in output:
        raise Leak(output)


@dataclass
class Sealing:
    """Makes the environment of sealed processes, and reads what they reported."""

    folder: Path
    key_file: Path
    count: int = field(default=0)

    def new_key(self, name):
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(f"cryptmpi-job-key-1 {secrets.token_hex(32)}\n")
        return path

    def report_file(self):
        self.count += 1
        return self.folder / f"report-{self.count}.json"

    def environment(self, report=None, **settings):
        """Settings by their names in small letters, as in the settings file."""
        settings = {"key_file": self.key_file, "handshake_timeout_s": 10, **settings}
        if report is not None:
            settings["report_file"] = report
        return {"LD_PRELOAD": PRELOAD, **{f"CRYPTMPI_{name.upper()}": str(value) for name, value in settings.items()}}

    @staticmethod
    def parts(report):
        return [json.loads(part.read_text()) for part in sorted(Path(f"{report}.parts").glob("*.json"))]


# What would seal or set anything for the processes that the tests start.
for _name in [name for name in os.environ if name == "LD_PRELOAD" or name.startswith("CRYPTMPI_")]:
    del os.environ[_name]
# There are more ranks than cores here: those of MPICH that wait leave theirs, too, as Open MPI's are told to
# (cryptmpi_tools/lab/stacks.py). Collective operations of four on two cores then take 20 s of processor time, not 53.
os.environ["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"


@pytest.fixture
def sealing(tmp_path):
    if not CHANNEL.exists():
        pytest.fail(f"{CHANNEL} is not built")
    made = Sealing(tmp_path, tmp_path / "job.key")
    made.new_key("job.key")
    return made


@pytest.fixture(scope="session")
def two_nodes():
    yield from _nodes(2)


@pytest.fixture(scope="session")
def three_nodes():
    """For a man in the middle: node3 is his."""
    yield from _nodes(3)


def _need_nodes():
    reason = acquire_namespaces() if os.geteuid() == 0 else "only root can make nodes in these tests"
    if reason is not None:
        pytest.skip(reason)


def _nodes(count):
    _need_nodes()
    with Lab(nodes=count) as lab:
        yield lab


@pytest.fixture
def nodes(two_nodes):
    yield two_nodes
    two_nodes.end_processes()


@pytest.fixture(scope="session")
def middle(three_nodes):
    """The lab, in which node1 and node2 reach each other through node3 only."""
    lab = three_nodes
    lead_through_third(lab)
    yield lab
    lab.end_processes()


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Compiles a C file with an MPI's own compiler, or that of another MPI of the same ABI; once."""
    built = {}

    def compiled(mpi, source, *options):
        compiler = mpi.mpicc or stacks.stack(mpi.built_with).mpicc
        if not mpi.present() or not compiler.exists():
            pytest.skip(f"{mpi.title} is not installed (make mpis)")
        if (compiler, source, options) not in built:
            program = tmp_path_factory.mktemp("program") / source.stem
            line = [compiler, "-O1", "-pthread", "-o", program, source, *options]
            done = subprocess.run(line, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            built[compiler, source, options] = program
        return built[compiler, source, options]

    return compiled


@pytest.fixture
def cluster(nodes, tmp_path):
    """Two nodes that share no home."""
    from cluster import Cluster  # which imports this file

    made = Cluster(nodes, tmp_path)
    yield made
    made.close()


@pytest.fixture
def canary(tmp_path, build):
    """The line that runs the program of that name, by an MPI's own compiler."""
    (tmp_path / "canary.bin").write_bytes(secrets.token_bytes(32))

    def program(mpi):
        return [str(build(mpi, CANARY)), str(tmp_path / "canary.bin"), "messages"]

    return program


@pytest.fixture(scope="module")
def two_networks():
    """two_networks.py has who is on them."""
    _need_nodes()
    with made_two_networks() as lab:
        yield lab


@pytest.fixture
def lab(two_networks):
    yield two_networks
    two_networks.end_processes()


def needs(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def error_lines(text):
    """The lines that the library printed, but for notes on what a job leaves in clear as it was started."""
    return [line for line in text.splitlines() if line.startswith("cryptmpi") and ": note: " not in line]


def _stack_of(item):
    """The name of the MPI that a test's parameters name, or None."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = [value if isinstance(value, str) else getattr(value, "name", None) for value in values]
    return next((name for name in names if name in STACK_NAMES), None)


STACK_NAMES = {one.name for one in stacks.EVERY}
# One MPI of each ABI, and for tests of the fabric layer one of each family for each of its doors.
FIRST = {"mpich-5.0.2-ofi", "openmpi-4.1.4", "mpich-5.0.2-abi"}
DOORS = {"mpich-5.0.2-ucx", "openmpi-4.1.4-pml-ucx", "mpich-5.0.2-ofi-udp"}


def _is_first(item):
    return _stack_of(item) in (FIRST | DOORS if "fabric" in item.nodeid else FIRST)


def pytest_collection_modifyitems(items):
    """Marks `other_mpi` the cases of a test on MPIs that do not stand for all, where the same test has cases on some
    that do."""
    of_first = {item.function for item in items if _is_first(item)}
    for item in items:
        is_other = _stack_of(item) is not None and not _is_first(item)
        if is_other and item.function in of_first and item.get_closest_marker("every_mpi") is None:
            item.add_marker(pytest.mark.other_mpi)


def pytest_configure(config):
    config.addinivalue_line("markers", "every_mpi: a test of which `make test` runs the cases on all MPIs")
    config.addinivalue_line("markers", "other_mpi: a case on an MPI that `make test` does not take for it: `make test-rest` runs it")
    config.addinivalue_line("markers", "long: a case that takes long, or one of many of a kind: `make test-rest` runs it")
