"""The papers' ways of key distribution under the MPI layer: jobs are sealed, say everywhere that it is against passive
attackers only, and end with one line where something is wrong."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, expect_unseen
from jobs import sealing_of
from test_verdict import MPIS, Job

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.sealing import ALONE

COMMAND = BUILD / "bin" / "cryptmpi"
HERE = Path(__file__).parent
NOT_SEALED, REFUSED = 123, 125
WAYS = ("rsa-oaep", "interchange")
BY_WAY = pytest.mark.parametrize("way", WAYS)
KEY = "/dev/shm/interchange.key"  # which no two nodes share
PASSIVE = "safe against passive attackers only"


def keygen(nodes, node, home):
    """Makes that node's pair; returns its line for the list."""
    made = nodes.run([COMMAND, "keygen", "--interchange"], node=node, env={"HOME": home, "CRYPTMPI_INTERCHANGE_KEY_FILE": KEY})
    assert made.ok and PASSIVE in made.output, made.output
    return made.output.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def keys(two_nodes, tmp_path_factory):
    """Both nodes have a pair; returns the lines of the list."""
    home = tmp_path_factory.mktemp("home")
    for node in range(2):
        two_nodes.run(["rm", "-f", KEY], node=node)
    yield [keygen(two_nodes, node, home) for node in range(2)]
    for node in range(2):
        two_nodes.run(["rm", "-f", KEY], node=node)


def settings_of(way, keys, folder):
    file = folder / "interchange.keys"
    file.write_text("\n".join(keys) + "\n")
    file.chmod(0o644)
    return {"key_distribution": way, "interchange_key_file": KEY, "interchange_keys": file}


def lines_with(output, words):
    return [line for line in output.splitlines() if words in line]


@MPIS
@BY_WAY
@pytest.mark.parametrize("sockets", [{}, ALONE], ids=["sealed-sockets", "alone"])
# protocol: W8, W9
def test_a_job_is_sealed_and_says_what_it_is_worth(mpi, way, sockets, nodes, keys, tmp_path):
    job = Job(mpi, nodes, tmp_path, "mpi")
    done = job.run(job.program, 4, **settings_of(way, keys, tmp_path), **sockets, scope="between-nodes")
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0, done.output
    exception = f"SEALED WITH EXCEPTIONS: key_distribution = {way}: the keys are {PASSIVE}"
    assert job.verdict.startswith(exception), done.output
    assert len(lines_with(done.output, f"note: key_distribution = {way}: the keys are {PASSIVE}")) == 1, done.output
    facts = json.loads(job.report_file.read_text())
    assert facts["complete"] and not facts["errors"] and facts["totals"]["sealed_bytes_sent"] > 0
    assert facts["scope"] == ("all" if sockets else "between-nodes"), "where strangers can speak to MPI nothing is left in clear"
    assert job.report("--check").returncode == NOT_SEALED
    assert job.report("--check", "--allow-exceptions").returncode == 0
    assert exception in job.report().stdout and PASSIVE in job.report("--html").stdout
    assert PASSIVE in json.dumps(json.loads(job.report("--json").stdout))


def test_the_layer_is_chosen_by_it(nodes, keys, tmp_path):
    job = Job(stacks.stack("openmpi-4.1.4"), nodes, tmp_path, "auto")
    done = job.run(job.program, **settings_of("rsa-oaep", keys, tmp_path))
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0, done.output
    assert json.loads(job.report_file.read_text())["layer"] == "mpi"


@pytest.mark.parametrize("layer", ["channel", "fabric"])
@BY_WAY
def test_other_layers_refuse_it(layer, way, tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CRYPTMPI_LAYER": layer, "CRYPTMPI_KEY_DISTRIBUTION": way}
    done = subprocess.run([COMMAND, "run", "-n", "2", "true"], env=env, capture_output=True, text=True)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "CRYPTMPI_KEY_DISTRIBUTION" in done.stderr and "for the MPI layer only" in done.stderr


@MPIS
def test_a_node_without_a_key_in_the_list(mpi, nodes, keys, tmp_path):
    job = Job(mpi, nodes, tmp_path, "mpi")
    done = job.run(job.program, **settings_of("interchange", keys[:1], tmp_path))
    expect_unseen(job.seen, done.output)
    assert done.returncode != 0, done.output
    assert len(lines_with(done.output, "rank 1 is on node node2, of which")) == 1, done.output


@MPIS
def test_a_node_whose_key_is_another(mpi, nodes, keys, tmp_path):
    job = Job(mpi, nodes, tmp_path, "mpi")
    first, second = (line.split()[2] for line in keys)
    done = job.run(job.program, **settings_of("interchange", [f"node1 rsa-3072 {second}", f"node2 rsa-3072 {first}"], tmp_path))
    expect_unseen(job.seen, done.output)
    assert done.returncode != 0, done.output
    assert len(lines_with(done.output, f"the public key of node node2 in rank 0's interchange_keys does not belong to {KEY}")) == 1, done.output


@MPIS
def test_a_private_key_that_others_may_read(mpi, nodes, keys, tmp_path):
    nodes.run(["chmod", "644", KEY], node=1)
    try:
        job = Job(mpi, nodes, tmp_path, "mpi")
        done = job.run(job.program, **settings_of("interchange", keys, tmp_path))
    finally:
        nodes.run(["chmod", "600", KEY], node=1)
    expect_unseen(job.seen, done.output)
    assert done.returncode != 0, done.output
    assert len(lines_with(done.output, f"interchange key file {KEY} is open to others (mode 0644)")) == 1, done.output


@MPIS
@pytest.mark.parametrize("ours, theirs", [("rsa-oaep", "agreement"), ("agreement", "rsa-oaep"), ("interchange", "rsa-oaep")])
def test_ranks_whose_ways_differ(mpi, ours, theirs, nodes, keys, tmp_path):
    job = Job(mpi, nodes, tmp_path, "mpi")
    other = job.script(f'[ "${{PMIX_RANK:-$PMI_RANK}}" = 1 ] && export CRYPTMPI_KEY_DISTRIBUTION={theirs}\nexec "$@"')
    done = job.run([other, *job.program], **settings_of(ours, keys, tmp_path))
    expect_unseen(job.seen, done.output)
    assert done.returncode != 0, done.output
    assert len(lines_with(done.output, "give all ranks the same setting key_distribution")) == 1, done.output


@MPIS
@BY_WAY
def test_a_wrapped_key_that_was_altered(mpi, way, build, nodes, keys, tmp_path):
    program = build(mpi, HERE / "messages.c")
    below = build(mpi, HERE / "key_rewritten.c", "-shared", "-fPIC")
    settings = {name: str(value) for name, value in settings_of(way, keys, tmp_path).items()}
    sealing = sealing_of(tmp_path, nodes, **settings)
    line = ["env", f"CRYPTMPI_INTERNAL_BELOW={below}", *sealing.exec_line([str(program), "wildcards"])]
    done = nodes.run(mpi.command(nodes, 2, line), env={**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env()}, timeout=60)
    assert not done.ok and not done.timed_out, done.output
    assert len(lines_with(done.output, "the wrapped key that came by rank 0 does not open")) == 1, done.output


def test_doctor_shows_it(tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CRYPTMPI_KEY_DISTRIBUTION": "interchange"}
    done = subprocess.run([COMMAND, "doctor"], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and f"interchange ({PASSIVE})" in done.stdout, done.stdout
    assert "interchange key file" in done.stdout and "list of rank 0" in done.stdout and "for the MPI layer only" not in done.stdout
    made = subprocess.run([COMMAND, "keygen", "--interchange"], env=env, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (tmp_path / ".config" / "cryptmpi" / "interchange.keys").write_text(made.stdout.splitlines()[-1] + "\n")
    again = subprocess.run([COMMAND, "keygen", "--interchange"], env=env, capture_output=True, text=True)
    assert again.returncode == 1 and "exists" in again.stderr
    facts = json.loads(subprocess.run([COMMAND, "doctor", "--json"], env=env, capture_output=True, text=True).stdout)
    assert facts["interchange"] == {"key_usable": True, "list_usable": True} and facts["settings"]["passive_attackers_only"]
