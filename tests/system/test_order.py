"""Two messages of one lane swapped, while a receive is posted for each and the program waits for the later one
first."""

import pytest
from conftest import REPOSITORY, error_lines
from jobs import sealing_of

from cryptmpi_tools.lab import stacks

# A receive that takes messages of one lane only is known to hold the first message when the second one comes; of others
# that is only known when they end.
HOWS = {"named": "told", "any source": "told late", "any tag": "told late", "any of both": "told late", "persistent": "told", "cancelled": "told",
        "cancelled any tag": "told late", "mprobe": "told", "improbe any tag": "told", "thread": "told", "thread any source": "told late"}


def ordered(name, how, swapping, build, nodes, tmp_path):
    mpi = stacks.stack(name)
    program = build(mpi, REPOSITORY / "tests" / "system" / "order.c")
    below = build(mpi, REPOSITORY / "tests" / "system" / "swapping.c", "-shared", "-fPIC")
    sealing = sealing_of(tmp_path, nodes)
    line = ["env", *(["SWAPPING=1"] if swapping else []), f"CRYPTMPI_INTERNAL_BELOW={below}", *sealing.exec_line([program, how])]
    return nodes.run(mpi.command(nodes, 2, line), env={**mpi.env(nodes), **sealing.env()}, timeout=40)


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
@pytest.mark.parametrize("how", [*HOWS, "large", "large any tag"])
def test_messages_in_order(name, how, build, nodes, tmp_path):
    done = ordered(name, how, False, build, nodes, tmp_path)
    assert "order: as sent" in done.output and "order: came to the end" in done.output, done.output
    assert not error_lines(done.output), done.output


@pytest.mark.parametrize("name", ["openmpi-4.1.4", "mpich-5.0.2-ofi"])
@pytest.mark.parametrize("how", HOWS)
def test_swapped_messages(name, how, build, nodes, tmp_path):
    done = ordered(name, how, True, build, nodes, tmp_path)
    assert f"order: {HOWS[how]}\n" in done.output, done.output
    assert any("out of order" in line for line in error_lines(done.output)), done.output
