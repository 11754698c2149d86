"""From what the programs print to the rows of the report and its table."""

import json

import pytest

from cryptmpi_tools.bench import parts, table
from cryptmpi_tools.bench.__main__ import parse
from cryptmpi_tools.bench.applications import hpcc_input, lammps_input, sealed_bytes
from cryptmpi_tools.bench.bounds import Bounds
from cryptmpi_tools.bench.parts import PLAIN, Part, Wanted, sealed
from cryptmpi_tools.bench.programs import is_whole, read_results
from cryptmpi_tools.bench.rows import rows_of
from cryptmpi_tools.bench.samples import Samples
from cryptmpi_tools.bench.speeds import read_copying, read_speeds
from cryptmpi_tools.bench.targets import GCM

SEALED = sealed("channel", GCM)
ISSUE = {"layer", "mpi", "network", "benchmark", "size", "ranks", "cipher", "plain_us", "sealed_us", "added_pct", "target_pct", "bound_us"}
SETTINGS = {"rounds": 10, "library": "one"}


def part(benchmark="ping-pong", program="pingpong", sizes=(1, 16384), **more):
    return Part(program, "veth", (PLAIN, SEALED), "openmpi-4.1.4", tests=tuple((benchmark, size) for size in sizes), **more)


def taken(folder, of, turns, **quantities):
    """Samples of turns given as (plain, sealed)."""
    samples = Samples(folder, of, SETTINGS, False)
    for plain, sealed_us in turns:
        samples.add({name: {f"{label} {size}": {"us": us, **quantities.get(name, {})} for label, size in of.tests}
                     for name, us in ((PLAIN.name, plain), (SEALED.name, sealed_us)) if us is not None})
    return samples


def speeds(folder):
    cipher = Samples(folder, Part("cipher", "core", (parts.Variant(GCM, "", GCM, ()),)), SETTINGS, False)
    cipher.add({GCM: read_speeds("module ipsec-mb 1.3.0\n1 0.02 0.03 0.05 0.03\n16384 2.0 2.1 8.2 7.8\n")})
    copying = Samples(folder, Part("copying", "veth", (PLAIN,)), SETTINGS, False)
    copying.add({PLAIN.name: {"copying 0": {"gbit_s": 40.0, "send_us": 0.0002, "receive_us": 0.0001}}})
    return [cipher, copying]


def test_what_programs_print():
    output = "noise\nresult ping-pong 1 5.250 10.5\nresult ping-pong 16384 12.000 24.125\nmemory 1000\n"
    assert read_results(output) == {"ping-pong 1": {"us": 5.25, "cpu_us": 10.5}, "ping-pong 16384": {"us": 12.0, "cpu_us": 24.125}}
    assert is_whole(output) and not is_whole(output[:-14])
    assert read_results("result streaming 4194304 900.0 1800.0\nmemory 5000\n")["rank-memory 0"] == {"bytes": 5000}


def test_one_sided_operations_are_compared_with_mpis_own_way_by_messages_too(tmp_path):
    fabric = sealed("fabric", GCM)
    of = Part("onesided", "veth", (PLAIN, fabric, parts.BY_MESSAGES), "mpich-5.0.2-ucx", tests=(("put", 1 << 20),))
    samples = Samples(tmp_path, of, SETTINGS, False)
    samples.add({variant.name: {f"put {1 << 20}": {"us": us}} for variant, us in ((PLAIN, 200), (fabric, 480), (parts.BY_MESSAGES, 400))})
    with_remote_memory, by_messages = rows_of(samples, "UCX tcp", Bounds([*speeds(tmp_path), samples], 2))
    assert (with_remote_memory["benchmark"], with_remote_memory["ratio"], with_remote_memory["target_pct"]) == ("put", 2.4, None)
    assert (by_messages["benchmark"], by_messages["plain_us"], by_messages["ratio"]) == ("put by messages", 400, 1.2)
    assert (by_messages["target_pct"], by_messages["verdict"]) == (70, "pass")


def test_what_tools_print():
    speeds = read_speeds("module openssl 3.0\n16 0.5 0.6 0.1 0.1\n")
    assert speeds == {"module": {"name": "openssl 3.0"}, "seal 16": {"us": 0.5}, "open 16": {"us": 0.6}}
    copying = read_copying({"sum_received": {"bits_per_second": 40e9}, "cpu_utilization_percent": {"host_total": 50, "remote_total": 100}})
    assert copying == pytest.approx({"gbit_s": 40, "send_us": 0.0001, "receive_us": 0.0002})


def test_rows_have_medians_targets_and_bounds(tmp_path):
    samples = taken(tmp_path, part(), [(10, 11), (12, 12), (11, 15)], plain={"cpu_us": 20.0})
    rows = rows_of(samples, "btl tcp", Bounds([*speeds(tmp_path), samples], 2))
    assert [(row["size"], row["plain_us"], row["sealed_us"], row["turns"]) for row in rows] == [(1, 11, 12, 3), (16384, 11, 12, 3)]
    for row in rows:
        assert ISSUE <= row.keys()
        assert (row["layer"], row["mpi"], row["network"], row["benchmark"], row["ranks"], row["cipher"]) == \
            ("channel", "openmpi-4.1.4", "veth", "ping-pong", 2, GCM)
        assert row["added_pct"] == pytest.approx(9.09)
        assert row["spread"]["plain_us"] == [10.5, 11.5] and row["spread"]["added_pct"] == [5.0, pytest.approx(23.1818)]
        assert row["plain_us"] < row["bound_us"] < row["sealed_us"] + 5
    small, large = rows
    assert (small["target_pct"], small["target_us"], small["missed"], small["verdict"]) == (6, 0.25, ["pct", "us"], "MISSED")
    assert (large["target_pct"], large["missed"], large["verdict"], large["within_twice"]) == (20, [], "pass", True)
    assert small["bound_us"] == pytest.approx(11.05, abs=0.02)  # sealed and opened in one piece


def test_turns_without_a_pair_do_not_count(tmp_path):
    samples = taken(tmp_path, part(), [(10, None), (None, 99), (10, 11)])
    assert [row["turns"] for row in rows_of(samples, "", Bounds([], 2))] == [1, 1]
    assert rows_of(taken(tmp_path, part(), [(10, None)]), "", Bounds([], 2)) == []


def test_rows_of_collectives_are_judged_by_processor_time(tmp_path):
    of = part("bcast", "collectives", ranks=4, per_node=2)
    samples = taken(tmp_path, of, [(100, 300)], plain={"cpu_us": 200.0}, **{SEALED.name: {"cpu_us": 250.0}})
    row = rows_of(samples, "", Bounds(speeds(tmp_path), 2))[1]
    assert (row["added_pct"], row["added_cpu_pct"], row["verdict"]) == (200, 25, "pass")
    assert row["bound_cpu_us"] == pytest.approx(204.1) and row["bound_us"] == pytest.approx(102.05)


def test_table_has_every_target_once_with_the_best_and_the_worst_mpi(tmp_path):
    rows = rows_of(taken(tmp_path, part(), [(10, 10.1)]), "", Bounds([], 2))
    rows += [{**row, "mpi": "other", "added_pct": 50.0, "missed": ["pct"], "within_twice": False} for row in rows]
    lines, met, count = table.against_targets(rows)
    assert (met, count, len(lines)) == (0, 2, 3)
    assert "openmpi-4.1.4" in lines[1] and "other" in lines[1] and "pass" in lines[1] and "MISSED x2" in lines[1]
    assert len(table.ping_pongs(rows)) == 3
    assert table.readable(1 << 20) == "1 MB" and table.readable(1500) == "1500 B"


def test_samples_are_taken_up_again_unless_something_changed(tmp_path):
    taken(tmp_path, part(), [(10, 11), (12, 12)])
    assert len(Samples(tmp_path, part(), SETTINGS, True).turns) == 2
    assert Samples(tmp_path, part(), SETTINGS, False).turns == []
    assert Samples(tmp_path, part(), {**SETTINGS, "library": "another"}, True).turns == []
    assert Samples(tmp_path, part(sizes=(1,)), SETTINGS, True).turns == []


def test_quick_has_every_mpi_and_layer_and_ranks_that_spin_have_cores():
    found = parts.quick(Wanted(networks=parts.QUICK_NETWORKS), 2)
    names = {part.mpi for part in found if part.program == "pingpong" and part.network == "veth"}
    assert names >= {mpi.name for mpi in parts.STACKS}
    assert {part.network for part in found} == {"veth", "veth-10g", "veth-40g"}
    timed = [part for part in [*found, *parts.full(Wanted(), 2)] if part.program != "startup"]
    assert all(part.ranks <= 2 or part.mpi.startswith("openmpi") for part in timed)
    layers = {name: {variant.layer for part in found if part.mpi == name for variant in part.variants} - {""} for name in names}
    assert layers["openmpi-4.1.4"] == {"channel", "mpi"} and layers["mpich-5.0.2-ofi-udp"] == {"fabric"}
    assert layers["mpich-5.0.2-ucx"] == layers["mpich-5.0.2-ofi"] == {"channel", "mpi", "fabric"}


def test_names_of_all_parts_differ():
    for found in (parts.quick(Wanted(), 2), parts.full(Wanted(), 32)):
        names = [part.name for part in [*parts.speeds(found), *found]]
        assert len(set(names)) == len(names)


def test_options_leave_out():
    wanted = Wanted(stacks=("openmpi-4.1.4",), layers=("mpi",), networks=("veth-10g",), benchmarks=("message-rate",), ciphers=(GCM,))
    found = parts.quick(wanted, 2)
    assert [(part.program, part.network, part.tests) for part in found] == [("window", "veth-10g", (("message-rate", 1),))]
    assert [variant.name for variant in found[0].variants] == ["plain", "mpi AES-256-GCM"]
    assert parts.quick(Wanted(sizes=(1,), benchmarks=("ping-pong",)), 2)[0].tests == (("ping-pong", 1),)
    assert {part.network for part in parts.quick(Wanted(networks=("loopback",)), 2)} == {"loopback"}


def test_options_have_defaults_of_their_kind():
    quick, full = parse([]), parse(["--full", "--turns", "3"])
    assert (quick.turns, full.turns, full.minutes) == (7, 3, 0)
    assert 0 < quick.minutes < 10


def test_applications_are_made_longer():
    assert "1400 " in hpcc_input(4) and "\n700 " not in hpcc_input(4)
    for ranks, rows, columns in ((2, 1, 2), (4, 2, 2), (6, 2, 3)):
        assert f"\n{rows}            Ps\n{columns}            Qs\n" in hpcc_input(1, ranks)
    assert "\nrun 2500" in lammps_input(2.5)


def test_what_ranks_sealed(tmp_path):
    (tmp_path / "1.json").write_text(json.dumps({"sealed_bytes_sent": 5}))
    (tmp_path / "2.json").write_text(json.dumps({"sealed_bytes_sent": 7}))
    assert sealed_bytes(tmp_path) == {"sealed_bytes": 12}
    assert sealed_bytes(tmp_path / "none") == {}
