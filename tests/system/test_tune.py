"""`cryptmpi tune` between two nodes: its profile is one that jobs then use, and name; a spoiled one, or one of another
machine, costs a line."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, error_lines
from jobs import run, sealing_of

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import REPOSITORY
from cryptmpi_tools.tune import plans

MPI = stacks.stack("openmpi-4.1.4")
COMMAND = BUILD / "bin" / "cryptmpi"
PINGPONG = REPOSITORY / "cryptmpi_tools" / "bench" / "pingpong.c"
MESSAGES = REPOSITORY / "tests" / "system" / "messages.c"
CASES = ["5", "ping-pong:1", "ping-pong:100000", "ping-pong:300000", "ping-pong:5000000"]


def cryptmpi(nodes, sealing, *words, status=0, **settings):
    """On the first node."""
    environment = {**sealing.env(), **{f"CRYPTMPI_{name.upper()}": str(value) for name, value in settings.items()}}
    process = nodes.start([COMMAND, *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=560)
    assert status in (process.returncode, None), out + err
    return subprocess.CompletedProcess(process.args, status, out, err)


@pytest.fixture(scope="module")
def tuned(two_nodes, tmp_path_factory):
    """A profile of these nodes."""
    if not MPI.present() or not MPI.mpicc.exists():
        pytest.skip(f"{MPI.title} is not installed")
    folder = tmp_path_factory.mktemp("tune")
    sealing = sealing_of(folder, two_nodes)
    variables = [word for name, value in MPI.env(two_nodes).items() for word in ("--env", f"{name}={value}")]
    try:
        done = cryptmpi(two_nodes, sealing, "tune", "--quick", "--hosts", ",".join(two_nodes.hosts()), "--mpi", MPI.mpiexec, "--rsh", two_nodes.rsh,
                        f"--launcher-args={shlex.join(MPI.launcher_options(two_nodes))}", *variables, "--folder", folder / "work",
                        "-o", folder / "profile.json")
    finally:
        two_nodes.end_processes()
    assert not any((folder / "work").iterdir())
    return folder / "profile.json", done


def job(nodes, tmp_path, build, **settings):
    """(what it printed, the MPI layer's parts of its ranks) of a ping-pong of sealed messages, whose bytes are looked
    at."""
    report = tmp_path / f"job-{len(list(tmp_path.glob('job-*')))}.json"
    done = run(MPI, nodes, sealing_of(tmp_path, nodes, **settings), [build(MPI, PINGPONG), *CASES], report=report)
    assert done.ok and done.output.count("result ping-pong") == 4, done.output
    parts = [json.loads(part.read_text()) for part in sorted(Path(f"{report}.parts").glob("*.mpi.*.json"))]
    assert len(parts) == 2 and all(part["sealed_bytes_sent"] > 0 and part["errors"] == [] for part in parts)
    return done.output, parts


def test_profile_is_whole(tuned):
    path, done = tuned
    made = json.loads(path.read_text())
    assert made["format"] == "cryptmpi-profile-1" and made["nodes"] == ["node1", "node2"]
    assert made["fingerprint"]["mpi"].startswith("Open MPI v4.1.4") and made["fingerprint"]["abi"] == "openmpi"
    assert made["fingerprint"]["cipher"] == "AES-256-GCM" and made["fingerprint"]["processors"] == os.cpu_count()
    assert 64 << 10 <= made["plan"]["largest_whole"] <= 256 << 10
    assert made["plan"]["rows"][-1]["up_to"] is None
    assert made["reductions"]["message_ns"] > 0 and made["reductions"]["kib_ns"] > 0 and made["reductions"]["combine_kib_ns"] > 0
    sizes = {row["size"] for row in made["measurements"]["plain"]}
    assert sizes == {row["size"] for row in made["measurements"]["sealed"]} and {1, 4 << 20} <= sizes
    assert made["model"]["networks"][0]["rendezvous"]["beta_s_per_byte"] > 0
    assert {row["threads"] for row in made["measurements"]["cipher"]} >= {1}
    assert "Predicted against measured" in done.stdout and "turn 3 of 3" in done.stderr


def test_explain_prints_what_the_profile_says(tuned, nodes, tmp_path):
    path, done = tuned
    again = cryptmpi(nodes, sealing_of(tmp_path, nodes), "tune", "--explain", "--profile", path)
    assert again.stdout == done.stdout and again.stderr == ""
    as_json = json.loads(cryptmpi(nodes, sealing_of(tmp_path, nodes), "tune", "--explain", "--profile", path, "--json").stdout)
    assert {row["size"] for row in as_json["rows"]} >= {4 ** power for power in range(12)}
    assert all(row["predicted_us"] > 0 for row in as_json["rows"]) and as_json["median_error_pct"] >= 0


def test_job_uses_the_profile_and_names_it(tuned, nodes, tmp_path, build):
    path, _ = tuned
    output, parts = job(nodes, tmp_path, build, profile=path)
    assert error_lines(output) == []
    for part in parts:
        assert part["profile"]["file"] == str(path) and part["profile"]["unused"] == "" and len(part["profile"]["digest"]) == 16
    assert parts[0]["profile"]["digest"] == parts[1]["profile"]["digest"]


def plan_of(largest_whole, *rows):
    return {"largest_whole": largest_whole, "rows": [dict(zip(("up_to", "edge", "segment", "in_flight"), row)) for row in rows]}


SMALLEST = plan_of(64 << 10, (200000, 1 << 10, 16 << 10, 1), (None, 16 << 10, 16 << 10, 16))
LARGEST = plan_of(256 << 10, (None, 64 << 10, 1 << 20, 16))
SENT = 6  # messages of each size by each rank: CASES' five rounds, and one that warms up


def messages_of_mpi(nodes, tmp_path, words, profile):
    """How many MPI sent from rank 0 to rank 1, by Open MPI's own count. In `profile` RANK stands for the rank."""
    of_rank = ["sh", "-c", 'CRYPTMPI_PROFILE=$(echo "$0" | sed s/RANK/$OMPI_COMM_WORLD_RANK/) exec "$@"', profile]
    line = MPI.command(nodes, 2, [*of_rank, *sealing_of(tmp_path, nodes).exec_line(words)])
    line[line.index("ob1")] = "ob1,monitoring"
    line[1:1] = ["--mca", "pml_monitoring_enable", "1", "--mca", "pml_monitoring_enable_output", "1"]
    done = nodes.run(line, env={**MPI.env(nodes), **sealing_of(tmp_path, nodes).env()}, timeout=60)
    assert done.ok and error_lines(done.output) == [], done.output
    return int(re.search(r"^E\t0\t1\t\d+ bytes\t(\d+) msgs sent", done.output, re.M).group(1))


def expected(plan):
    """Announcements and segments of CASES' messages, or whole ones."""
    found, sizes = plans.plans_of(plan), [int(case.split(":")[1]) for case in CASES[1:]]
    return SENT * sum(1 + (len(found.of(size).pieces(size)) if found.of(size) else 0) for size in sizes)


def test_jobs_cut_messages_as_the_profile_says(tuned, nodes, tmp_path, build):
    """The smallest segments that a profile may ask for, and the largest; each size by its row."""
    path, _ = tuned
    changed, counted = tmp_path / "changed.json", []
    for plan in (SMALLEST, LARGEST):
        changed.write_text(json.dumps({**json.loads(path.read_text()), "plan": plan}))
        counted.append(messages_of_mpi(nodes, tmp_path, [build(MPI, PINGPONG), *CASES], changed))
    # Beside them are those of starting and ending, as many in both.
    assert counted[0] - counted[1] == expected(SMALLEST) - expected(LARGEST) > 1000


def test_reductions_go_as_rank_0s_profile_says(tuned, nodes, tmp_path, build):
    """By costs of which one allows few messages only, and the other little adding up: whatever the other rank's profile
    says."""
    path, _ = tuned
    content, counted = json.loads(path.read_text()), {}
    costs = {"messages": {"message_ns": 10 ** 8, "kib_ns": 0, "combine_kib_ns": 0},
             "adding up": {"message_ns": 0, "kib_ns": 0, "combine_kib_ns": 1000}}
    for dear in (("messages", "messages"), ("adding up", "adding up"), ("messages", "adding up"), ("adding up", "messages")):
        for rank, what in enumerate(dear):
            (tmp_path / f"profile-{rank}.json").write_text(json.dumps({**content, "reductions": costs[what]}))
        counted[dear] = messages_of_mpi(nodes, tmp_path, [build(MPI, MESSAGES), "reductions"], tmp_path / "profile-RANK.json")
    assert counted["messages", "messages"] < counted["adding up", "adding up"], counted
    assert counted["messages", "adding up"] == counted["messages", "messages"], counted
    assert counted["adding up", "messages"] == counted["adding up", "adding up"], counted


def test_default_profile_is_the_one_beside_the_settings(tuned, nodes, tmp_path, build):
    path, _ = tuned
    place = tmp_path / "config" / "cryptmpi" / "profile.json"
    assert [part["profile"]["file"] for part in job(nodes, tmp_path, build)[1]] == ["", ""]
    place.write_text(path.read_text())
    assert [part["profile"]["file"] for part in job(nodes, tmp_path, build)[1]] == [str(place)] * 2
    assert [part["profile"]["file"] for part in job(nodes, tmp_path, build, profile="none")[1]] == ["", ""]


def spoiled(text):
    content = json.loads(text)
    yield text[:len(text) // 2], "was cut off"
    yield "", "was cut off"
    yield "{}", "no profile of cryptmpi tune"
    yield json.dumps({**content, "format": "cryptmpi-profile-99"}), "version cryptmpi-profile-99"
    yield json.dumps({**content, "plan": plan_of(1 << 30, (None, 1 << 10, 1 << 20, 4))}), "plan.largest_whole must be"
    yield json.dumps({**content, "plan": plan_of(64 << 10, (None, 1 << 10, 1 << 40, 4))}), "plan.rows[0].segment must be"
    yield json.dumps({**content, "reductions": {**content["reductions"], "kib_ns": -1}}), "reductions.kib_ns must be"
    yield json.dumps({**content, "fingerprint": {**content["fingerprint"], "processor": "Abacus"}}), "processor: Abacus there, "
    yield None, "there is no such file"


def test_job_runs_on_with_a_profile_that_cannot_be_used(tuned, nodes, tmp_path, build):
    path, _ = tuned
    bad = tmp_path / "bad.json"
    for text, why in spoiled(path.read_text()):
        bad.unlink(missing_ok=True)
        if text is not None:
            bad.write_text(text)
        output, parts = job(nodes, tmp_path, build, profile=bad)
        (line,) = error_lines(output)
        assert line.startswith("cryptmpi: rank 0 on node1: profile ") and str(bad) in line and why in line
        assert "the default plans are used" in line and "cryptmpi tune" in line
        assert all(part["profile"]["file"] == str(bad) and why in part["profile"]["unused"] for part in parts)


def test_doctor_says_whether_the_profile_is_good(tuned, nodes, tmp_path):
    path, _ = tuned
    mine, sealing = tmp_path / "profile.json", sealing_of(tmp_path, nodes)
    good = path.read_text()
    for text, state in ((good, "good"), (good.replace('"processors": ', '"processors": 9'), "stale"), ("{}", "unreadable")):
        mine.write_text(text)
        said = json.loads(cryptmpi(nodes, sealing, "doctor", "--json", status=None, profile=mine).stdout)
        assert said["profile"]["state"] == state
        assert any(str(mine) in problem for problem in said["problems"]) == (state != "good"), said["problems"]


def test_what_is_missing_is_one_line(tuned, nodes, tmp_path):
    output = tmp_path / "never.json"
    sealing = sealing_of(tmp_path, nodes)
    (tmp_path / "config" / "cryptmpi" / "job.key").unlink()
    done = cryptmpi(nodes, sealing, "tune", "--quick", "--hosts", "node1,node2", "--mpi", MPI.mpiexec, "--rsh", nodes.rsh,
                    "--folder", tmp_path / "work", "-o", output, status=1, job_key="file")
    assert "keygen" in done.stderr.splitlines()[-1] and done.stderr.splitlines()[-1].startswith("cryptmpi: tune: ")
    assert not output.exists()
