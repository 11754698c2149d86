"""Jobs whose nodes are members: each has a key of its own, and takes whom its list has (`require_members`)."""

import json
import os
import subprocess

import pytest
from conftest import BUILD, error_lines

from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
NAMES = ["one", "other"]
JOBS = pytest.mark.parametrize("layer, name", [("channel", "openmpi-4.1.4"), ("channel", "mpich-5.0.2-ofi"), ("mpi", "openmpi-4.1.4"),
                                               ("mpi", "mpich-5.0.2-ofi")])


class Site:
    """Nodes that are members of each other's lists."""

    def __init__(self, made):
        self.cluster = made
        self.folders = [home / ".config" / "cryptmpi" for home in made.homes]
        self.lines = [self.keygen(node, name) for node, name in enumerate(NAMES)]
        for node in range(len(NAMES)):
            self.list_on(node, *self.lines)

    def keygen(self, node, name):
        done = self.cluster.within(self.cluster.lab.nodes[node], "env", f"HOME={self.cluster.homes[node]}", COMMAND, "keygen", "--member", name)
        return done.splitlines()[-1]

    def list_on(self, node, *lines):
        text = "".join(f"{line}\\n" for line in lines)
        script = f"umask 022; printf '{text}' >{self.folders[node]}/members"
        self.cluster.within(self.cluster.lab.nodes[node], "sh", "-c", script)

    def take_key_from(self, node):
        self.cluster.within(self.cluster.lab.nodes[node], "rm", self.folders[node] / "member.key")

    def run(self, layer, name, canary):
        mpi = stacks.stack(name)
        return self.cluster.run(mpi, canary(mpi), more=["--layer", layer], require_members="true")


@pytest.fixture
def site(cluster):
    return Site(cluster)


# protocol: H15
@JOBS
def test_the_report_names_the_members(layer, name, site, canary):
    done = site.run(layer, name, canary)
    assert done.returncode == 0, done.output
    (file,) = site.cluster.reports()
    report = json.loads(file.read_text())
    assert report["complete"] and report["members"] == NAMES, report
    ranks = {part["rank"]: part for part in report["processes"] if part.get("rank", -1) >= 0 and part["library"] == layer}
    assert {rank: part["member"] for rank, part in ranks.items()} == dict(enumerate(NAMES))
    assert all(set(part["peer_members"]) <= set(NAMES) for part in ranks.values())
    assert "one, other" in site.cluster.check(file).stdout


# protocol: H17
@JOBS
def test_a_member_that_was_taken_out_of_the_list_is_refused(layer, name, site, canary):
    """It has the job's key, as every process of the job."""
    site.list_on(0, site.lines[0])
    done = site.run(layer, name, canary)
    assert done.returncode != 0, done.output
    digits = site.lines[1].split()[-1]
    assert any("is no member that we take" in line and digits in line for line in error_lines(done.output)), done.output
    assert "canary" not in done.output or "arrived" not in done.output


@JOBS
def test_a_node_without_its_key_says_so(layer, name, site, canary):
    site.take_key_from(1)
    done = site.run(layer, name, canary)
    assert done.returncode != 0, done.output
    missing = str(site.folders[1] / "member.key")
    assert any("require_members is on" in line and missing in line for line in error_lines(done.output)), done.output


def test_the_fabric_layer_refuses(site, canary):
    """Before the job starts, and not each rank by itself."""
    done = site.run("fabric", "mpich-5.0.2-ucx", canary)
    assert done.returncode != 0
    lines = [line for line in error_lines(done.output) if "made the key file" not in line]
    assert len(lines) == 1 and "the fabric layer has no handshake" in lines[0] and "--layer mpi" in lines[0], done.output


@pytest.mark.parametrize("name", ["openmpi-4.1.4"])
def test_by_rsa_oaep_a_member_that_is_not_listed_is_told_as_such(name, site, canary):
    """And not as a wrapped key that somebody has altered."""
    site.list_on(0, site.lines[0])
    mpi = stacks.stack(name)
    done = site.cluster.run(mpi, canary(mpi), more=["--layer", "mpi"], require_members="true", key_distribution="rsa-oaep")
    assert done.returncode != 0, done.output
    lines = [line for line in error_lines(done.output) if "is no member that we take" in line]
    assert lines and not any("altered" in line for line in lines), done.output


def test_doctor_says_who_this_side_is(tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CRYPTMPI_REQUIRE_MEMBERS": "true"}

    def command(*words):
        return subprocess.run([COMMAND, *words], env=environment, capture_output=True, text=True, timeout=100)

    line = command("keygen", "--member", "me").stdout.splitlines()[-1]
    found = json.loads(command("doctor", "--json").stdout)
    assert found["member"] == "" and any("require_members is on" in problem for problem in found["problems"]), found["problems"]
    members = tmp_path / ".config" / "cryptmpi" / "members"
    members.write_text(line + "\n")
    members.chmod(0o644)
    found = json.loads(command("doctor", "--json").stdout)
    assert found["member"] == "me" and not any("require_members" in problem for problem in found["problems"]), found["problems"]
