"""HPCC's and LAMMPS's predicted overhead beside the measured one: from made-up rows and a made-up report, and what is
said where one is missing."""

import json
from types import SimpleNamespace

import pytest

from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.study import models, outside, planned
from cryptmpi_tools.study.parts import BARE, ETHERNET, LAYERS, PLAIN, Setting

MPI = "openmpi-4.1.4"
SETTING = Setting(False, MPI, (MPI,), 2, (), ())
SIZES = (1, 256, 4096, 16384, 65536, 262144, 1048576, 4194304)
CIPHER_US_PER_BYTE = 1e-4  # of one direction
MESSAGES, BYTES = 1000, 1 << 20  # that each rank sends, and receives


def row(experiment, benchmark, size, way, us, **more):
    return {"experiment": experiment, "benchmark": benchmark, "size": size, "network": ETHERNET, "mpi": MPI, "ranks": 2, "way": way,
            "cipher": None if way == "plain" else "AES-256-GCM", "us": us, "repeats": 20, "rule_met": "deviation", **more}


def of_models():
    yield from (row("ping-pong", "ping-pong", size, "plain", 5 + size * 1e-3) for size in SIZES)
    for size in SIZES:
        yield {**row("cipher", "cipher", size, "openssl AES-256-GCM", 2 * size * CIPHER_US_PER_BYTE + 0.2), "network": "core", "mpi": None,
               "seal_us": size * CIPHER_US_PER_BYTE + 0.1, "open_us": size * CIPHER_US_PER_BYTE + 0.1}


def application(name="hpcc", repeats=20):
    return [row("applications", name, 0, "plain", 4e6),
            row("applications", name, 0, "mpi AES-256-GCM", 4.2e6, added_pct=5.0, ratio_interval=[1.04, 1.06], repeats=repeats)]


def write_report(folder, name="hpcc", complete=True):
    sizes = [{"up_to": BYTES, "messages": MESSAGES, "bytes": MESSAGES * BYTES}]
    processes = [{"node": f"node{rank}", "rank": rank, "role": "rank", "sizes_sent": sizes, "sizes_received": sizes} for rank in range(2)]
    path = planned.report_path(folder, name, ETHERNET, MPI, "mpi")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"complete": complete, "layer": "mpi", "processes": processes}))


def test_predicted_stands_beside_measured(tmp_path):
    write_report(tmp_path)
    figure = planned.built([*of_models(), *application()], tmp_path, cores=2)
    predicted = {row["way"]: row["added_pct"] for row in figure["rows"]}
    whole = 100 * 2 * MESSAGES * BYTES * CIPHER_US_PER_BYTE / 4e6  # sealed and opened, as many of both
    assert predicted["measured, mpi layer"] == 5.0
    assert predicted["predicted, each message whole, mpi layer"] == pytest.approx(whole, rel=0.02)
    assert 0 < predicted["predicted, large ones in chunks, mpi layer"] < whole
    (line,) = figure["table"]["rows"]
    assert line[:6] == ["HPCC", ETHERNET, "mpi", 4.0, 5.0, "+4.0 to +6.0"] and line[6] == pytest.approx(whole, rel=0.02)
    text = figure["text"]
    assert "HPCC under the MPI layer on veth-10g: sealing added +5.0 % to 4 s (99 % interval +4.0 % to +6.0 %)" in text
    assert f"predicted +{line[6]:.1f} % with each message whole, +{line[7]:.1f} % with large ones" in text
    assert "for 2,000 messages of 2,097 MB" in text
    assert f"by {line[7] - 5:+.1f} points of a percent; {int(4 <= line[7] <= 6)} of 1 lie in its interval" in text


def test_few_repeats_have_no_interval(tmp_path):
    write_report(tmp_path)
    figure = planned.built([*of_models(), *application(repeats=2)], tmp_path, cores=2)
    assert "(2 repeats, too few for an interval)" in figure["text"] and "lie in its interval" not in figure["text"]
    assert figure["table"]["rows"][0][5] == ""


@pytest.mark.parametrize(("rows", "complete", "why"), [
    (list(of_models()), None, "cannot read "), (list(of_models()), False, "is not complete"),
    ([], True, "neither ping-pong nor ciphers were measured"),
    ([row for row in of_models() if row["experiment"] == "cipher"], True, "no PARAMETERS file")])
def test_what_a_prediction_lacks_is_said(rows, complete, why, tmp_path):
    if complete is not None:
        write_report(tmp_path, complete=complete)
    figure = planned.built([*rows, *application()], tmp_path, cores=2)
    assert [row["way"] for row in figure["rows"]] == ["measured, mpi layer"]
    assert "Without a prediction: " in figure["text"] and why in figure["text"] and "\n" not in figure["text"]


def test_without_applications_there_is_no_figure(tmp_path):
    assert planned.built(list(of_models()), tmp_path, cores=2)["rows"] == []


# Starting them

class Applications:
    def __init__(self, folder):
        self.folder = folder
        self.in_the_demo = []

    def folder_of(self, _part):
        return self.folder

    def start(self, part, _way, as_in_the_demo):
        self.in_the_demo.append(as_in_the_demo)
        return {f"{part.program} 0": {"us": 5e6, "cpu_us": 7e6}}


def starter(folder, seconds=0.5, ok=True, status=0):
    """Whose job that does nothing takes so long, and whose `cryptmpi report` prints a report."""
    command = folder / "cryptmpi"
    command.write_text(f"#!/bin/sh\n[ \"$XDG_CONFIG_HOME\" = '{folder}/of the job' ] || exit 9\necho '{{\"of\": \"'$2'\"}}'\nexit {status}\n")
    command.chmod(0o755)
    done = SimpleNamespace(ok=ok, seconds=seconds, why=lambda: "exit status 1")
    return SimpleNamespace(command=command, timeout=1, program=lambda name, compiler: name, run=lambda *_, **__: done,
                           sealing=lambda *_: SimpleNamespace(env=lambda: {"XDG_CONFIG_HOME": str(folder / "of the job")}))


def test_starting_and_ending_is_taken_off_and_the_report_kept(tmp_path):
    part, applications = planned.part("lammps", SETTING, BARE), Applications(tmp_path)
    for way in (PLAIN, LAYERS[0]):
        found = planned.Planning(starter(tmp_path), tmp_path).start(part, way, applications)
        assert found == {"lammps 0": {"us": [4.5e6], "job_us": [5e6], "cpu_us": [7e6]}}
    assert list((tmp_path / "reports").iterdir()) == [planned.report_path(tmp_path, "lammps", BARE, MPI, "mpi")]
    assert applications.in_the_demo == [True, True]


@pytest.mark.parametrize(("more", "why"), [({"seconds": 9}, "no longer than a job that does nothing"), ({"ok": False}, "exit status 1"),
                                           ({"status": 1}, "cryptmpi report")])
def test_what_goes_wrong_is_said(more, why, tmp_path):
    with pytest.raises(LabError, match=why):
        planned.Planning(starter(tmp_path, **more), tmp_path).start(planned.part("hpcc", SETTING, BARE), LAYERS[0], Applications(tmp_path))


def test_which_parts_there_are(monkeypatch):
    monkeypatch.setattr(outside, "APPLICATIONS", {"hpcc": "/bin/sh", "lammps": "/nowhere/lmp"})
    found, missing = outside.planned_parts(SETTING, (ETHERNET,))
    assert [(part.program, part.ranks, part.per_node, [way.name for way in part.variants]) for part in found] == [
        ("hpcc", 2, 1, ["plain", "mpi AES-256-GCM"])]
    assert missing == ["LAMMPS, predicted: not installed (package lammps)"]
    found, missing = outside.planned_parts(Setting(True, MPI, (MPI,), 1, (), ()), (ETHERNET, BARE))
    assert not found and "a core each" in missing[0]
    found, _ = outside.planned_parts(Setting(True, MPI, (MPI,), 4, (), ()), (ETHERNET, BARE))
    assert [(part.network, part.most_seconds, len(part.variants)) for part in found] == [(ETHERNET, 0, 3), (BARE, 0, 3)]


def test_the_models_failures_are_one_line():
    with pytest.raises(models.FAILURES) as failed:
        models.run("plan", "--report", "/nowhere")
    assert "\n" not in models.why(failed.value) and models.why(failed.value).startswith("cryptmpi: model plan: ")
