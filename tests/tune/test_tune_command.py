"""`cryptmpi tune` without jobs: what it says of mistakes and of what is missing, and what it explains."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cryptmpi_tools.model import fit, measurements  # noqa: E402
from cryptmpi_tools import user_jobs  # noqa: E402
from cryptmpi_tools.tune import __main__ as tune  # noqa: E402
from cryptmpi_tools.tune import explain, jobs, profile  # noqa: E402
from cryptmpi_tools.tune.error import TuneError  # noqa: E402
from cryptmpi_tools.tune.plans import KB, MB, Plan, Plans, Row  # noqa: E402

US = 1e-6
CHOSEN = Plans(128 * KB, (Row(768 * KB, Plan(16 * KB, 128 * KB, 2)), Row(None, Plan())))


def content():
    found = measurements.Measurements()
    found.ping_pong["", "I 2"] = {4 ** power: (8 + 0.0003 * 4 ** power) * US for power in range(12)}
    found.ciphers["C", "M 1"] = {(4 ** power, 1): (0.1 + 0.0002 * 4 ** power) * US for power in range(12)}
    made = {"format": profile.FORMAT, "made": "2024-05-06T07:08:09Z", "where": "between a and b", "busy": False,
            "fingerprint": {"processor": "P", "processors": 8, "cipher": "C", "module": "M 1", "mpi": "I 2", "abi": "A"},
            "plan": CHOSEN.as_json(), "model": fit.fitted(found, (32 * KB, MB), relative=True),
            "costs": {"message_s": 1 * US, "segment_s": 2 * US, "slower": 1.0, "busy": 0.5, "as_whole": 0.5},
            "measurements": {"plain": [{"size": 1, "us": 8.0}], "sealed": []}}
    as_if = profile.of(made)
    made["measurements"]["sealed"] = [{"size": size, "us": as_if.time(size) / US / (1.1 if size == MB else 1.0)} for size in (1, 512 * KB, MB)]
    return made


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "profile.json"
    profile.write(path, content())
    return path


def run(capsys, *words):
    """(status, stdout, stderr)"""
    try:
        status = tune.main([str(word) for word in words])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    return status, said.out, said.err


def test_explain_has_every_size_and_both_sides_of_every_limit(file, capsys):
    status, out, err = run(capsys, "--explain", "--profile", file, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    rows = {row["size"]: row for row in found["rows"]}
    assert {4 ** power for power in range(12)} <= rows.keys()
    assert {128 * KB, 128 * KB + 1, 768 * KB, 768 * KB + 1} <= rows.keys()
    assert rows[128 * KB]["segments"] is None and sum(rows[128 * KB + 1]["segments"]) == 128 * KB + 1
    assert rows[MB]["error_pct"] == pytest.approx(10) and rows[1]["error_pct"] == pytest.approx(0, abs=1e-6)
    assert rows[4 * MB]["measured_us"] is None and rows[4 * MB]["predicted_us"] > rows[MB]["predicted_us"]
    assert found["median_error_pct"] == pytest.approx(0, abs=1e-6)


def test_explain_prints_a_table(file, capsys):
    status, out, err = run(capsys, "--explain", "--profile", file)
    assert (status, err) == (0, "")
    assert "between a and b" in out and "I 2, C by M 1, 8 x P" in out and "BUSY" not in out
    rows = dict(re.findall(r"^ *(\S+ (?:B|KB|MB))  (whole|in .* in flight) ", out, re.M))
    assert rows["128 KB"] == "whole" and rows["1 MB"] == "in 6: 61,440 + 4 x 231,424 + 61,440 B, 4 in flight"
    assert rows["512 KB"] == "in 6: 16,384 + 4 x 122,880 + 16,384 B, 2 in flight"
    assert "Predicted against measured: 0 % off, by the median" in out


def test_explain_says_that_the_machine_was_busy(tmp_path, capsys):
    profile.write(tmp_path / "p", {**content(), "busy": True})
    assert "THE MACHINE WAS BUSY" in run(capsys, "--explain", "--profile", tmp_path / "p")[1]


def test_median_error_of_nothing_is_none():
    assert explain.median_error_pct([{"error_pct": None}]) is None


@pytest.mark.parametrize("spoil", ["", "{", "[]", '{"format": "cryptmpi-profile-2"}', '{"format": "cryptmpi-profile-1"}'])
def test_no_profile_is_one_line(tmp_path, capsys, spoil):
    path = tmp_path / "profile.json"
    path.write_text(spoil)
    status, out, err = run(capsys, "--explain", "--profile", path)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("cryptmpi: tune: ") and str(path) in err and "cryptmpi tune" in err


def test_missing_profile_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    status, _, err = run(capsys, "--explain")
    assert status == 1 and err.count("\n") == 1
    assert str(tmp_path / "cryptmpi" / "profile.json") in err


@pytest.mark.parametrize("words", [("--hosts", "a"), ("--hosts", "a,a"), ("--hosts", "a,b,c"), ("--hosts", "a,"), ("--profile", "x"),
                                   ("--timeout", "0"), ("what",)])
def test_mistakes_are_one_line(words, capsys):
    status, out, err = run(capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1) and err.startswith("cryptmpi: tune: ")


def test_without_a_compiler_one_line_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    command = tmp_path / "cryptmpi"
    command.touch()
    output = tmp_path / "profile.json"
    status, _, err = run(capsys, "--cryptmpi", command, "--folder", tmp_path, "-o", output)
    assert status == 1 and err.count("\n") == 1
    assert "there is no mpicc: install the MPI's compiler" in err and not output.exists()


@pytest.mark.parametrize(("launcher", "there", "found"), [
    ("mpiexec", "mpicc", "mpicc"), ("mpiexec.openmpi", "mpicc.openmpi", "mpicc.openmpi"), ("mpiexec.hydra", "mpicc", "mpicc"),
    ("mpirun", None, None)])
def test_the_compiler_is_the_one_beside_the_launcher(tmp_path, launcher, there, found):
    for name in filter(None, (launcher, there)):
        (tmp_path / name).touch(mode=0o755)
    if found:
        assert user_jobs.compiler(None, str(tmp_path / launcher)) == str(tmp_path / found)
    else:
        with pytest.raises(user_jobs.JobError, match="there is no"):
            user_jobs.compiler(None, str(tmp_path / launcher))


def part(rank, **other):
    return {"rank": rank, "node": f"node{rank}", "suite": "C", "module": "M 1", "processor": "P", "processors": 8, "mpi": "I 2", "abi": "A",
            "profile": {"file": "p", "digest": "d", "unused": ""}, **other}


def checked(tmp_path, parts, sent=1, has_profile=True):
    options = tune.parse(["--cryptmpi", "/bin/sh", "--folder", str(tmp_path)])
    made = jobs.Jobs(options, 1)
    made._check({"processes": parts, "totals": {"sealed_bytes_sent": sent}}, has_profile)
    return made


def test_the_jobs_report_is_the_fingerprint(tmp_path):
    made = checked(tmp_path, [part(1), part(0), part(-1)])
    assert made.nodes == ["node0", "node1"]
    assert made.fingerprint == content()["fingerprint"]


@pytest.mark.parametrize(("parts", "sent", "why"), [
    ([part(0)], 1, "1 of 2 ranks reported"),
    ([part(0), part(1)], 0, "nothing was sealed"),
    ([part(0), part(1, mpi="I 3")], 1, r"not alike \(mpi: I 2, I 3\)"),
    ([part(0), part(1, profile={"file": "p", "unused": "it is cut off"})], 1, "it is cut off"),
    ([part(0), part(1, profile={"file": "", "unused": ""})], 1, "saw no profile"),
])
def test_a_job_that_tells_nothing_is_an_error(tmp_path, parts, sent, why):
    with pytest.raises(TuneError, match=why):
        checked(tmp_path, parts, sent)
