"""Jobs of many ranks on two nodes: good ones are called good, and nobody says a word."""

import pytest
from conftest import BUILD, REPOSITORY, error_lines

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.sealing import Sealing

LAYERS = ("channel", "mpi")
RANKS = {"openmpi-4.1.4": (32, 64, 128)}  # where both ends connect at once; others take longer, or say more plain

SEALED = "cryptmpi: SEALED: all traffic between the nodes was encrypted and authenticated. Report: {}"


@pytest.mark.long
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("mpi", "ranks"), [(mpi, ranks) for mpi in stacks.STACKS for ranks in RANKS.get(mpi.name, (64,))],
                         ids=lambda value: getattr(value, "name", value))
def test_alltoall(mpi, ranks, layer, nodes, tmp_path, build):
    program = build(mpi, REPOSITORY / "tests" / "system" / "many.c")
    sealing = Sealing(tmp_path / "config", nodes, BUILD / "bin" / "cryptmpi", {"layer": layer})
    report = tmp_path / "report.json"
    line = sealing.run_line(mpi, nodes, ranks, [str(program)], report)
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}
    right = f"{ranks} ranks: right"
    if mpi.name == "mpich-4.0.2-ucx":
        # Debian's MPICH 4.0.2 over UCX prints its result and does not exit with so many ranks, plain too: its result
        # counts. Then its ranks are killed one by one, and those left may say that they lost the others, and no more.
        done = nodes.run(line, env=environment, timeout=240, cwd=tmp_path, enough=lambda output: right in output)
        assert right in done.output, done.output
        before, _, after = done.output.partition(right)
        assert error_lines(before) == []
        assert [line for line in error_lines(after) if "without the authenticated close" not in line] == []
        return
    done = nodes.run(line, env=environment, timeout=240, cwd=tmp_path)
    assert done.ok and right in done.output, (done.why(), done.output)
    assert error_lines(done.output) == [SEALED.format(report)], done.output
    assert "recv failed" not in done.output and "reset by peer" not in done.output, done.output
    facts = sealing.report(report)
    assert facts["complete"] and facts["ranks_reported"] == ranks, facts
    assert facts["errors"] == [] and facts["not_sealed"] == [], facts
    assert facts["totals"]["refused_handshakes"] == 0 and facts["totals"]["failed_opens"] == 0, facts
