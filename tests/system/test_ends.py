"""An error of one rank ends the whole job, on all nodes, unless the program has another error handler than MPI's
own."""

import pytest
from conftest import REPOSITORY, error_lines
from jobs import sealing_of

from cryptmpi_tools.lab import stacks

# Their error handlers differ: Open MPI's ends the job, MPICH's the process that calls it.
MPIS = pytest.mark.parametrize("name", ["mpich-5.0.2-ofi", "mpich-4.0.2-ucx", "openmpi-4.1.4", "mpich-5.0.2-abi"])
# What the rank that made the error says of it.
ERRORS = {
    "call": "MPI_Ibcast is refused",
    "self": "MPI_Intercomm_create is refused",
    "window": "MPI_Put is refused",
    "file": "MPI_File_write_all is refused",
    "buffer": "buffer",
    "message": "does not open",
    "segment": "segment that does not open",
    "block": "does not open",
}
ALTERED = {"message": "flip body", "segment": "flip in a segment", "block": "flip in a collective"}


@pytest.mark.parametrize("error", ERRORS)
@MPIS
def test_error_ends_the_job(name, error, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "ends.c")
    hostile = build(mpi, REPOSITORY / "tests" / "system" / "hostile.c", "-shared", "-fPIC")
    words = [f"CRYPTMPI_INTERNAL_BELOW={hostile}", f"HOSTILE={ALTERED.get(error, 'nothing')}", f"ENDS_FILE={tmp_path / 'file'}"]
    sealing = sealing_of(tmp_path, nodes)
    # Hydra may lose what a rank says just before it ends the job.
    lines = tmp_path / "lines"
    line = mpi.command(nodes, 2, ["env", *words, "sh", "-c", f'exec "$@" 2>> {lines}', "sh", *sealing.exec_line([program, error])])
    done = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=30)
    assert not done.timed_out and done.returncode != 0, (done.returncode, done.output)
    output = done.output + lines.read_text()
    assert any(ERRORS[error] in line for line in error_lines(output)), output
    # Some MPIs' text for what is not supported.
    assert "file operation" not in output, output
