"""`cryptmpi canary` between two nodes: it sees canaries plain, none sealed, and those that a setting lets out."""

import json

import pytest
from conftest import BUILD
from jobs import sealing_of

from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
OF_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def canary(nodes, folder, name, *words, **settings):
    """(exit status, what it printed as JSON)."""
    mpi = stacks.stack(name)
    if not mpi.present() or not mpi.mpicc.exists():
        pytest.skip(f"{mpi.title} is not installed")
    sealing = sealing_of(folder, nodes)
    line = [COMMAND, "canary", "--hosts", ",".join(nodes.hosts()[:2]), "--mpi", mpi.mpiexec, "--rsh", nodes.rsh, "--folder", folder, "--json", *words]
    environment = {**OF_ROOT, **mpi.env(nodes), **sealing.env(), **{f"CRYPTMPI_{key.upper()}": value for key, value in settings.items()}}
    done = nodes.run([str(word) for word in line], env=environment, timeout=200)
    start = done.output.find("{\n")
    assert start >= 0, done.output
    return done.returncode, json.loads(done.output[start:done.output.rindex("}") + 1])


@pytest.mark.parametrize(("name", "layer"), [("openmpi-4.1.4", "channel"), ("openmpi-4.1.4", "mpi"), ("mpich-4.0.2-ucx", "fabric"),
                                             ("mpich-5.0.2-ofi", "fabric"), ("mpich-5.0.2-ofi", "channel")])
def test_it_is_seen_plain_and_not_sealed(name, layer, two_nodes, tmp_path):
    status, found = canary(two_nodes, tmp_path, name, "--layer", layer)
    assert (status, found["held"], found["why"]) == (0, True, ""), found
    assert (found["layer"], len(set(found["nodes"])), found["sealed"]["canaries"]) == (layer, 2, 0)
    assert found["plain"]["canaries"] * 32 > found["plain"]["payload"] / 2 and found["sealed"]["bytes"] > found["sealed"]["payload"]


def test_what_a_setting_lets_out_is_seen(two_nodes, tmp_path):
    peers = ",".join(node.address for node in two_nodes.nodes)
    status, found = canary(two_nodes, tmp_path, "openmpi-4.1.4", "--layer", "channel", plaintext_peers=peers)
    assert status == 123 and not found["held"] and "IN CLEAR" in found["why"] and found["sealed"]["canaries"] > 0
