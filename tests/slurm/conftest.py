"""What the tests of Slurm share: two nodes, a Slurm on them that goes with the tests, and what the pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TEST_BUILD", REPOSITORY / "build" / "release"))
PAGE = REPOSITORY / "docs" / "slurm.md"

sys.path.insert(0, str(REPOSITORY))

from cryptmpi_tools.lab.nodes import Lab, acquire_namespaces  # noqa: E402
from cryptmpi_tools.lab.programs import CANARY  # noqa: E402
from cryptmpi_tools.lab.slurm import Slurm, missing  # noqa: E402

# What would seal or set anything for the processes that the tests start, or name another Slurm.
for _name in [name for name in os.environ if name == "LD_PRELOAD" or name.startswith(("CRYPTMPI_", "SLURM_", "SBATCH_", "SRUN_"))]:
    del os.environ[_name]


@pytest.fixture(scope="session")
def two_nodes():
    reason = acquire_namespaces() if os.geteuid() == 0 else "only root can make nodes in these tests"
    if reason is None and missing():
        reason = f"not installed: {', '.join(missing())}"
    if reason is not None:
        pytest.skip(reason)
    with Lab(nodes=2) as lab:
        yield lab


@pytest.fixture(scope="session")
def _slurm(two_nodes):
    with Slurm(two_nodes) as slurm:
        yield slurm


@pytest.fixture
def nodes(two_nodes, _slurm):
    """The lab, with a Slurm on it."""
    yield two_nodes
    two_nodes.end_processes()
    _slurm.end_jobs()


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """cryptmpi_tools/lab/kinds_of_call.c or another source, by an MPI's own compiler."""
    built = {}

    def compiled(mpi, source=CANARY):
        if (mpi.name, source) not in built:
            if not mpi.present() or mpi.mpicc is None or not mpi.mpicc.exists():
                pytest.skip(f"{mpi.title} is not installed (make mpis)")
            file = tmp_path_factory.mktemp("program") / "program"
            done = subprocess.run([mpi.mpicc, "-O1", "-o", file, source], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            built[mpi.name, source] = file
        return built[mpi.name, source]

    return compiled


def from_page(heading):
    """The blocks of commands below a heading of the page, word for word."""
    text = PAGE.read_text()
    part = re.split(r"^## ", text, flags=re.MULTILINE)
    [own] = [section for section in part if section.startswith(heading + "\n")]
    return re.findall(r"^```[a-z]+\n(.*?)^```$", own, flags=re.MULTILINE | re.DOTALL)
