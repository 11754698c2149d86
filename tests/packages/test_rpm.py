"""The RPM, as it is built on Debian: rpmlint, what it requires, its licences, and a sealed job in a bare root that it was unpacked into."""

import shutil
import subprocess

import pytest
from roots import PACKAGES, REPOSITORY, InRoot, bare_root, built_canary, check_sealed_job, install, only, run

from cryptmpi_tools.lab.nodes import Lab


pytestmark = pytest.mark.skipif(not list(PACKAGES.glob("*.rpm")), reason="no RPM: packaging/build-rpm build/packages makes it")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = bare_root(tmp_path_factory.mktemp("rpm") / "root")
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def unpacked(root):
    """What it requires has other names in Debian, whose rpm installs nothing into a root of dpkg's."""
    install(root, "openmpi-bin", "libssl3", "libstdc++6")
    with subprocess.Popen(["rpm2cpio", only("*.rpm")], stdout=subprocess.PIPE) as archive:
        subprocess.run(["cpio", "--extract", "--make-directories", "--quiet"], stdin=archive.stdout, cwd=root, check=True)
    assert archive.returncode == 0
    return root


def test_rpmlint_finds_no_error():
    said = run("rpmlint", REPOSITORY / "packaging" / "rpm" / "cryptmpi.spec")
    assert " 0 errors" in said, said


def test_it_requires_no_mpi_and_no_crypto_library_but_openssl():
    required = run("rpm", "--query", "--package", "--requires", only("*.rpm"))
    assert "libcrypto.so.3" in required
    for library in ("libmpi", "libIPSec_MB", "libcrypto++", "libcryptopp", "libsodium", "libmbedcrypto", "libcrypto.so.0"):
        assert library not in required, required


def test_it_has_the_licences_of_all_that_is_in_it():
    files = run("rpm", "--query", "--package", "--licensefiles", only("*.rpm")).split()
    assert {path.rsplit("/", 1)[1] for path in files} == {"LICENSE", "LICENSE.libaegis", "LICENSE.mlkem-native"}


def test_a_sealed_job_on_two_nodes(unpacked):
    canary = built_canary(unpacked)
    with Lab() as lab:
        nodes = InRoot(lab, unpacked)
        facts = check_sealed_job(lab, unpacked, canary, nodes.run_job)
        assert facts["layer"] == "channel"
        said = nodes.run("cryptmpi", "report", "--check", "/report.json")
        assert said.ok, said.output
