"""The RPM, as it is built on Debian: rpmlint, what is in it, what it requires, and a sealed job in a bare root that rpm
installed it into."""

import gzip
import shutil

import pytest
from roots import PACKAGES, REPOSITORY, InRoot, bare_root, built_canary, check_sealed_job, install, only, run

from cryptmpi_tools.lab.nodes import Lab

LIBRARIES = {"ld-linux-x86-64.so.2", "libc.so.6", "libcrypto.so.3", "libgcc_s.so.1", "libm.so.6", "libstdc++.so.6"}
COMMANDS = ("cryptmpi", "cryptmpi-bench-cipher", "cryptmpi-bench-threads")

pytestmark = pytest.mark.skipif(not list(PACKAGES.glob("*.rpm")), reason="no RPM: packaging/build-rpm build/packages makes it")


def rpm(root, *line):
    """Debian's rpm works on another root's packages when it is forced."""
    return run("rpm", "--force-debian", "--root", root, "--dbpath", "/var/lib/rpm", *line)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = bare_root(tmp_path_factory.mktemp("rpm") / "root")
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def installed(root):
    """What it requires is there as Debian's packages, which rpm does not know."""
    install(root, "openmpi-bin", "libssl3", "libstdc++6")
    rpm(root, "--install", "--nodeps", only("*.rpm"))
    return root


def test_rpmlint_finds_nothing():
    packaging = REPOSITORY / "packaging" / "rpm"
    said = run("rpmlint", "--config", packaging / "rpmlint.toml", packaging / "cryptmpi.spec", only("*.rpm"))
    assert " 0 errors, 0 warnings" in said, said


def test_it_requires_no_mpi_and_no_crypto_library_but_openssl():
    required = {line.split("(")[0] for line in run("rpm", "--query", "--package", "--requires", only("*.rpm")).splitlines()}
    assert required - {"rpmlib", "rtld"} == LIBRARIES


def test_it_has_the_licences_of_all_that_is_in_it():
    files = run("rpm", "--query", "--package", "--licensefiles", only("*.rpm")).split()
    assert {path.rsplit("/", 1)[1] for path in files} == {"LICENSE", "LICENSE.libaegis", "LICENSE.mlkem-native", "LICENSE.mpi-abi"}


def test_what_lies_where_a_user_looks_for_it(installed):
    usr = installed / "usr"
    for command in COMMANDS:
        assert gzip.decompress((usr / "share" / "man" / "man1" / f"{command}.1.gz").read_bytes()).startswith(b".TH"), command
    assert (usr / "lib64" / "cryptmpi" / "cryptmpi-agent").samefile(usr / "bin" / "cryptmpi")
    for file in ("lib64/cryptmpi/libcryptmpi-mpi.so", "lib64/pkgconfig/cryptmpi.pc", "include/cryptmpi/module.h", "share/doc/cryptmpi/README.md",
                 "share/bash-completion/completions/cryptmpi", "share/zsh/site-functions/_cryptmpi"):
        assert (usr / file).is_file(), file


def test_no_folder_of_this_machine_is_named_in_it(installed):
    for path in rpm(installed, "--query", "--list", "cryptmpi").split():
        file = installed / path[1:]
        if file.is_file():
            content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            assert str(REPOSITORY).encode() not in content and b"/BUILD" not in content, path


def test_a_sealed_job_on_two_nodes(installed):
    canary = built_canary(installed)
    with Lab() as lab:
        nodes = InRoot(lab, installed)
        facts = check_sealed_job(lab, installed, canary, nodes.run_job)
        assert facts["layer"] == "channel"
        said = nodes.run("cryptmpi", "report", "--check", "/report.json")
        assert said.ok, said.output


def test_removing_it_leaves_nothing(installed):
    rpm(installed, "--erase", "cryptmpi")
    assert not list((installed / "usr").rglob("*cryptmpi*"))
