"""The wheel: what it needs of a system, and sealed jobs from a fresh environment that pip installed it into."""

import json
import subprocess
import sys

import pytest
from roots import OPENMPI, REPOSITORY, built_canary, check_sealed_job, only, run

from cryptmpi_tools.lab.nodes import Lab
from cryptmpi_tools.lab.sealing import Sealing


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel") / "environment"
    run("/usr/bin/python3", "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", "--no-index", only("*.whl"))
    return folder


def test_it_needs_no_newer_glibc_than_its_name_says():
    wheel = only("*.whl")
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    assert "nothing newer than glibc 2.28" in run(sys.executable, REPOSITORY / "packaging" / "portable" / "check-symbols", wheel, "2.28")


def test_the_check_finds_newer_symbols():
    """What is built for this machine fails it."""
    with pytest.raises(AssertionError, match="needs arc4random@GLIBC_2.36"):
        run(sys.executable, REPOSITORY / "packaging" / "portable" / "check-symbols", REPOSITORY / "build" / "release" / "lib")


def test_command_modules_and_python_parts_are_there(environment):
    command = environment / "bin" / "cryptmpi"
    assert run(command, "--version").startswith("cryptmpi ")
    said = json.loads(subprocess.run([command, "doctor", "--json"], capture_output=True, text=True).stdout)
    usable = {module["name"] for module in said["modules"] if module["usable"]}
    assert usable == {"aegis", "ipsec-mb", "libsodium", "mlkem-native", "openssl"}, said["modules"]
    assert (environment / "share" / "cryptmpi" / "cryptmpi_tools" / "model" / "__init__.py").exists()
    licences = {path.name for path in (environment / "share" / "doc" / "cryptmpi").glob("LICENSE*")}
    of_packages = ("libaegis", "mlkem-native", "libssl-dev", "libipsec-mb-dev", "libsodium-dev", "libcli11-dev")
    assert {"LICENSE", *(f"LICENSE.{name}" for name in of_packages)} <= licences
    # The agent is a script here: it has to find the command, which refuses a line without a host.
    agent = environment / "lib" / "cryptmpi" / "cryptmpi-agent"
    assert not agent.is_symlink()
    with pytest.raises(AssertionError, match=r"agent: expected \[ssh options\] HOST COMMAND"):
        run(agent)


@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_a_sealed_job_on_two_nodes(layer, environment, tmp_path):
    canary = built_canary(tmp_path)
    program = [str(tmp_path / "canary"), str(tmp_path / "canary.bin"), *(["messages"] if layer == "mpi" else [])]
    with Lab() as lab:
        sealing = Sealing(tmp_path / "config", lab, environment / "bin" / "cryptmpi", {"layer": layer})
        line = sealing.run_line(OPENMPI, lab, 2, program, tmp_path / "report.json")
        line[2:2] = ["--mpi", str(OPENMPI.mpiexec)]

        def start():
            return lab.run(line, env={**OPENMPI.env(lab), **sealing.env()}, cwd=tmp_path, timeout=120)

        assert check_sealed_job(lab, tmp_path, canary, start)["layer"] == layer


def test_removing_it_leaves_nothing(environment):
    run(environment / "bin" / "pip", "uninstall", "--quiet", "--yes", "cryptmpi")
    assert not [path for path in environment.rglob("*cryptmpi*") if not path.is_dir()]
