"""The .deb: lintian, what it depends on, and a sealed job in a bare root that it was installed into."""

import shutil
import subprocess

import pytest
from roots import InRoot, bare_root, built_canary, check_sealed_job, inside, install, only

from cryptmpi_tools.lab.nodes import Lab


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = bare_root(tmp_path_factory.mktemp("deb") / "root")
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def installed(root):
    install(root, only("*.deb"), "openmpi-bin")
    return root


def test_lintian_finds_nothing():
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", only("*.changes")], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def test_it_depends_on_no_mpi_and_on_no_crypto_library_but_openssl():
    field = subprocess.run(["dpkg-deb", "--field", only("*.deb"), "Depends"], capture_output=True, text=True, check=True).stdout
    assert {word.split()[0] for word in field.split(",")} == {"libc6", "libgcc-s1", "libssl3", "libstdc++6"}


def test_a_sealed_job_on_two_nodes(installed):
    canary = built_canary(installed)
    with Lab() as lab:
        nodes = InRoot(lab, installed)
        facts = check_sealed_job(lab, installed, canary, nodes.run_job)
        assert facts["layer"] == "channel"
        said = nodes.run("cryptmpi", "report", "--check", "/report.json")
        assert said.ok, said.output


def test_removing_it_leaves_nothing(installed):
    inside(installed, "dpkg", "--purge", "cryptmpi")
    left = [path for path in (installed / "usr").rglob("*cryptmpi*")]
    assert not left
