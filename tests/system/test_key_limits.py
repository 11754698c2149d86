"""Keys that are used up, or old, in the middle of every kind of operation, with messages on their way: the limits are
lowered so that jobs reach them (rekeys.c)."""

import json

import pytest
from conftest import BUILD, REPOSITORY, error_lines
from jobs import SealingUnderTest, command_under_test
from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
PROGRAM = REPOSITORY / "tests" / "system" / "rekeys.c"
OPERATIONS = 12
# Few records, or few bytes: the large messages are of 300,000.
RECORDS, BYTES = "8,1000000000", "1000000,500000"
JOBS = [
    ("mpi", "openmpi-4.1.4", RECORDS, 0),
    ("mpi", "mpich-5.0.2-ofi", BYTES, 0),
    ("mpi", "mpich-5.0.2-ofi", None, 0.001),
    ("channel", "mpich-5.0.2-ofi", RECORDS, 0),
    ("channel", "openmpi-4.1.4", BYTES, 0),
    ("channel", "openmpi-4.1.4", None, 0.001),
    # MPICH 4.0.2 and 5.0.2 over UCX now and then do not come out of MPI_Finalize on a busy machine, plain too, and then
    # report nothing.
    ("fabric", "openmpi-5.0.11-pml-ucx", RECORDS, 0),
    ("fabric", "openmpi-4.1.4-pml-ucx", BYTES, 0),
    ("fabric", "mpich-5.0.2-ofi", BYTES, 0),
]


def job_under(layer, limits, rekey_s, mpi, build, nodes, tmp_path):
    command = COMMAND if layer == "fabric" else command_under_test()
    sealing = SealingUnderTest(tmp_path / "config", nodes, command, {"layer": layer, "handshake_timeout_s": 20, "rekey_s": rekey_s})
    report = tmp_path / "report.json"
    program = [build(mpi, PROGRAM), *(["messages"] if layer == "mpi" else [])]
    ranks = ["env", *([f"CRYPTMPI_INTERNAL_KEY_LIMITS={limits}"] if limits else []), *sealing.exec_line(program, report)]
    line = mpi.command(nodes, 4, [str(word) for word in ranks])
    done = nodes.run(line, env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=90)
    assert done.ok, done.output
    parts = [json.loads(part.read_text()) for part in (tmp_path / "report.json.parts").glob("*.json")]
    of_ranks = [part for part in parts if part["library"] == layer and part.get("rank", -1) >= 0]
    assert len(of_ranks) == 4, "each rank reports how many keys it has used up"
    return done, sum(part["rekeys"] for part in of_ranks)


@pytest.mark.parametrize("layer, name, limits, rekey_s", JOBS, ids=lambda value: str(value))
def test_every_operation_goes_on_past_its_keys(layer, name, limits, rekey_s, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    done, rekeys = job_under(layer, limits, rekey_s, mpi, build, nodes, tmp_path)
    operations = OPERATIONS - (layer == "mpi")  # which refuses non-blocking collective operations
    assert done.output.count(" done") == operations and "rekeys: all is right" in done.output, done.output
    assert not error_lines(done.output), done.output
    # How many keys bytes and time use up depends on the way that an MPI takes, and on the machine; records, on the
    # program alone.
    assert rekeys >= (4 * operations if limits == RECORDS else 4), rekeys


def test_without_lowered_limits_no_key_is_used_up(build, nodes, tmp_path):
    done, rekeys = job_under("mpi", None, 0, stacks.stack("openmpi-4.1.4"), build, nodes, tmp_path)
    assert "rekeys: all is right" in done.output and rekeys == 0, (done.output, rekeys)
