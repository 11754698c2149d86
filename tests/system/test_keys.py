"""Keys of the key file: changed while jobs run, shown, and put on other nodes."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from cluster import await_that
from conftest import BUILD

from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
HERE = Path(__file__).parent
LAYERS = [("channel", "openmpi-4.1.4"), ("mpi", "openmpi-4.1.4"), ("fabric", "mpich-5.0.2-ucx")]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    cryptmpi(tmp_path / "home", "keygen")
    return tmp_path / "home"


def cryptmpi(home, *words, status=0, **more):
    done = subprocess.run([COMMAND, *map(str, words)], env={"PATH": os.environ["PATH"], "HOME": str(home), **more}, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == status, done
    return done


def key_file(home):
    return home / ".config" / "cryptmpi" / "job.key"


def ids(home, *words):
    return re.findall(r"^  ([0-9a-f]{16})  ", cryptmpi(home, "key", "list", *words).stdout, re.MULTILINE)


def test_a_key_comes_in_front_and_the_old_one_goes(home):
    (old,) = ids(home)
    cryptmpi(home, "keygen", "--rotate")
    new, kept = ids(home)
    assert kept == old != new and stat.S_IMODE(key_file(home).stat().st_mode) == 0o600
    cryptmpi(home, "keygen", "--revoke", old)
    assert ids(home) == [new]
    assert "the only one" in cryptmpi(home, "keygen", "--revoke", new, status=1).stderr
    assert f"no key {old} in {key_file(home)}" in cryptmpi(home, "keygen", "--revoke", old, status=1).stderr


def test_a_key_that_is_known_before_it_is_used(home):
    (old,) = ids(home)
    cryptmpi(home, "keygen", "--add")
    first, new = ids(home)
    assert first == old
    cryptmpi(home, "keygen", "--use", new)
    assert ids(home) == [new, old]


def test_a_file_has_eight_keys_at_most(home):
    for _ in range(7):
        cryptmpi(home, "keygen", "--add")
    before = key_file(home).read_bytes()
    assert "--revoke" in cryptmpi(home, "keygen", "--rotate", status=1).stderr
    assert key_file(home).read_bytes() == before


def test_a_link_stays_one(home):
    place = home / "elsewhere.key"
    key_file(home).rename(place)
    key_file(home).symlink_to(place)
    cryptmpi(home, "keygen", "--rotate")
    assert key_file(home).is_symlink() and len(ids(home, "--key-file", place)) == 2


@pytest.fixture
def shell(tmp_path):
    """In place of ssh: each node has a home of its own; what was on its command line is kept."""
    script = tmp_path / "shell"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\nnode=$1\nshift\nmkdir -p {tmp_path}/$node\n'
                      f'exec env -i PATH="$PATH" HOME={tmp_path}/$node sh -c "echo welcome; $*"\n')
    script.chmod(0o755)
    return script


def test_it_is_put_on_other_nodes(home, shell, tmp_path):
    cryptmpi(home, "keygen", "--rotate")
    done = cryptmpi(home, "key", "install", "--rsh", shell, "node1", "node2")
    assert re.findall(r"^(\w+): key file installed: .* \(2 keys\)$", done.stdout, re.MULTILINE) == ["node1", "node2"]
    for node in ("node1", "node2"):
        there = key_file(tmp_path / node)
        assert there.read_bytes() == key_file(home).read_bytes() and stat.S_IMODE(there.stat().st_mode) == 0o600
    assert not re.search("[0-9a-f]{64}", (tmp_path / "said").read_text())
    assert "up to date" in cryptmpi(home, "key", "install", "--rsh", shell, "node1").stdout
    # An older state of the same keys gives way, and so does one with a key that was revoked.
    cryptmpi(home, "keygen", "--revoke", ids(home)[1])
    cryptmpi(home, "key", "install", "--rsh", shell, "node1")
    assert key_file(tmp_path / "node1").read_bytes() == key_file(home).read_bytes()


def test_another_key_is_not_replaced(home, shell, tmp_path):
    cryptmpi(home, "key", "install", "--rsh", shell, "node1")
    theirs = key_file(tmp_path / "node1").read_bytes()
    cryptmpi(home, "keygen", "--force")
    done = cryptmpi(home, "key", "install", "--rsh", shell, "node1", "node2", status=1)
    assert re.search("^node1: .*none of them ours", done.stderr) and "node2: key file installed" in done.stdout
    assert key_file(tmp_path / "node1").read_bytes() == theirs
    cryptmpi(home, "key", "install", "--rsh", shell, "--force", "node1")
    assert key_file(tmp_path / "node1").read_bytes() == key_file(home).read_bytes()


def test_what_cannot_be_installed_is_said(home, shell, tmp_path):
    assert "which nodes" in cryptmpi(home, "key", "install", status=1).stderr
    assert "srun does not encrypt" in cryptmpi(home, "key", "install", "--rsh", "srun", "node1", status=1).stderr
    assert "no answer" in cryptmpi(home, "key", "install", "--rsh", tmp_path / "none", "node1", status=1).stderr
    shell.write_text(shell.read_text().replace("exec env", "exec < /dev/null env"))
    assert "pass its input on" in cryptmpi(home, "key", "install", "--rsh", shell, "node1", status=1).stderr
    assert "no node's name" in cryptmpi(home, "key", "install", "--rsh", shell, "--", "-oProxyCommand=x", status=1).stderr


@pytest.mark.parametrize("layer, mpi", LAYERS, ids=[layer for layer, _ in LAYERS])
def test_a_job_goes_on_while_its_key_is_changed_and_revoked(layer, mpi, cluster, tmp_path, build):
    mpi = stacks.stack(mpi)
    program, shared, home = build(mpi, HERE / "rotating.c"), tmp_path / "shared.key", cluster.homes[0]
    files = {"key_file": shared}
    cryptmpi(home, "keygen", "--key-file", shared)
    job = cluster.start(mpi, [program, tmp_path / "waits", tmp_path / "go"], ["--layer", layer, "--report", tmp_path / "first.json"], **files)
    try:
        assert await_that((tmp_path / "waits").exists, 60)
        cryptmpi(home, "keygen", "--rotate", "--key-file", shared)
        # One that begins now uses the new key, and the first one meets its ranks only after the old one was revoked.
        (tmp_path / "at-once").touch()
        more = ["--layer", layer, "--report", tmp_path / "second.json"]
        second = cluster.start(mpi, [program, tmp_path / "at-once", tmp_path / "at-once"], more, **files)
        said = second.communicate(timeout=100)[0]
        assert second.returncode == 0 and "rank 0 heard 18" in said, said
        _, old = ids(home, "--key-file", shared)
        before = tmp_path / "before.key"
        before.touch(mode=0o600)
        before.write_bytes(shared.read_bytes())
        cryptmpi(home, "keygen", "--revoke", old, "--key-file", shared)
        (tmp_path / "go").touch()
        said = job.communicate(timeout=100)[0]
        assert job.returncode == 0 and "rank 0 heard 18" in said, said
    finally:
        job.kill()
    reports = [tmp_path / "first.json", tmp_path / "second.json"]
    fingerprints = [re.search(r'"job_key": "(\w+)"', report.read_text())[1] for report in reports]
    assert fingerprints[0] != fingerprints[1]
    for report in reports:
        cryptmpi(home, "report", "--check", "--allow-exceptions", report, CRYPTMPI_KEY_FILE=str(before))
    assert "not signed with this job key" in cryptmpi(home, "report", "--check", reports[0], status=123, CRYPTMPI_KEY_FILE=str(shared)).stdout
