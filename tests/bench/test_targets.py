"""Which target is whose, and when it is missed."""

import pytest

from cryptmpi_tools.bench.targets import GCM, KB, MB, TARGETS, target_of


def row(benchmark="ping-pong", layer="channel", network="veth", size=1, cipher=GCM, **more):
    return {"benchmark": benchmark, "layer": layer, "network": network, "size": size, "cipher": cipher, "ranks": 2, "added_pct": 0.0, "added_us": 0.0,
            "spread": {"added_pct": [-1.0, 1.0]}, **more}


@pytest.mark.parametrize("of, pct", [
    (row(), 6), (row(size=256, layer="mpi"), 6), (row(network="veth-10g"), 5), (row(network="veth-40g", layer="mpi", size=16), 5),
    (row(size=16 * KB), 20), (row(size=16 * KB, layer="mpi"), 35), (row(size=16 * KB, cipher="AEGIS-128X"), 10),
    (row(size=16 * KB, cipher="AEGIS-128X2", layer="mpi"), 15), (row(size=64 * KB, layer="mpi", cipher="AEGIS-128X4"), 20),
    (row(size=64 * KB, network="veth-10g"), 10), (row(size=MB), 28), (row(size=MB, layer="mpi"), 60), (row(size=MB, network="veth-40g"), 15),
    (row(size=4 * MB), 20), (row(size=4 * MB, layer="mpi"), 45), (row(size=4 * MB, cipher="AEGIS-128X"), 12),
    (row(size=4 * MB, network="veth-10g"), 2),
    (row("streaming", size=4 * MB), 25), (row("streaming", "mpi", size=4 * MB), 45), (row("streaming", network="veth-10g", size=4 * MB), 1),
    (row("pairs", "mpi", "veth-40g", 2 * MB), 5), (row("message-rate", "mpi", "veth-40g"), 15), (row("bcast", size=MB), 30),
    (row("hpcc", size=None), 5), (row("lammps", "mpi", "veth-10g", None), 3),
])
def test_percentages(of, pct):
    assert target_of(of).pct == pct


@pytest.mark.parametrize("of", [row(size=1 * KB), row(network="loopback"), row(size=1 * MB, cipher="AES-128-GCM"), row("streaming", size=MB),
                                row(size=16 * KB, network="veth-10g", cipher="AEGIS-128X"), row("bcast", network="veth-10g", size=MB)])
def test_no_target(of):
    assert target_of(of) is None


def test_no_row_has_two_targets():
    sizes = [None, 1, 2, 256, 16 * KB, 64 * KB, MB, 2 * MB, 4 * MB]
    for benchmark in {target.benchmark for target in TARGETS}:
        for layer in ("channel", "mpi"):
            for network in ("loopback", "veth", "veth-10g", "veth-40g"):
                for size in sizes:
                    for cipher in (GCM, "AEGIS-128X", "off"):
                        assert len([target for target in TARGETS if target.fits(row(benchmark, layer, network, size, cipher))]) <= 1


def test_both_limits_of_small_messages_have_to_hold():
    target = target_of(row())
    assert target.missed(row(added_pct=6.0, added_us=0.25)) == []
    assert target.missed(row(added_pct=5.0, added_us=0.3)) == ["us"]
    assert target.missed(row(added_pct=6.1, added_us=0.2)) == ["pct"]
    assert target.missed(row(added_pct=7.0, added_us=0.3)) == ["pct", "us"]
    assert target.missed(row(added_pct=7.0, added_us=0.3), factor=2) == []


def test_other_quantities():
    cpu = row("allreduce", size=MB, added_pct=500.0, added_cpu_pct=29.0)
    assert target_of(cpu).missed(cpu) == [] and target_of(cpu).missed({**cpu, "added_cpu_pct": 31.0}) == ["pct"]
    init = row("init", "mpi", size=None, ranks=32, added_us=25000)
    assert target_of(init).missed(init) == [] and target_of(init).missed({**init, "ranks": 8}) == ["us"]
    memory = row("connections", size=1000, added_bytes=256_000 * KB)
    assert target_of(memory).missed(memory) == [] and target_of(memory).missed({**memory, "added_bytes": 256_000 * KB + 1}) == ["bytes"]
    nothing = row("security-off", cipher="off", added_pct=3.0)
    assert target_of(nothing).missed(nothing) == []
    assert target_of(nothing).missed({**nothing, "spread": {"added_pct": [0.5, 4.0]}}) == ["noise"]


def test_what_was_not_measured_is_no_pass():
    of = row("bcast", size=MB)
    assert target_of(of).missed(of) == ["pct"]
