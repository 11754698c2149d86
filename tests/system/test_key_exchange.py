"""Jobs whose keys are exchanged by X25519 and ML-KEM-768 (`key_exchange`)."""

import json
import os
import subprocess

import pytest
from conftest import BUILD, error_lines

from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
HYBRID = "x25519-mlkem768"
JOBS = pytest.mark.parametrize("layer, name", [("channel", "openmpi-4.1.4"), ("channel", "mpich-5.0.2-ofi"), ("mpi", "openmpi-4.1.4"),
                                               ("mpi", "mpich-5.0.2-ofi")])


# protocol: H19, A25
@JOBS
def test_the_report_names_the_key_exchange(layer, name, cluster, canary):
    mpi = stacks.stack(name)
    done = cluster.run(mpi, canary(mpi), more=["--layer", layer], key_exchange=HYBRID)
    assert done.returncode == 0, done.output
    (file,) = cluster.reports()
    report = json.loads(file.read_text())
    assert report["complete"] and report["key_exchange"] == HYBRID, report
    assert all(part["key_exchange"] == HYBRID for part in report["processes"])
    assert report["kem_modules"] and all(name.startswith(("mlkem-native ", "openssl ")) for name in report["kem_modules"]), report["kem_modules"]
    checked = cluster.check(file)
    assert checked.returncode == 0 and HYBRID in checked.stdout, checked.stdout


def test_the_fabric_layer_refuses(cluster, canary):
    mpi = stacks.stack("mpich-5.0.2-ucx")
    done = cluster.run(mpi, canary(mpi), more=["--layer", "fabric"], key_exchange=HYBRID)
    assert done.returncode != 0
    lines = [line for line in error_lines(done.output) if "is for the channel and the MPI layer" in line]
    assert len(lines) == 1 and "key_exchange" in lines[0] and "--layer mpi" in lines[0], done.output


def command(folder, *words, **settings):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **{f"CRYPTMPI_{name.upper()}": str(value) for name, value in settings.items()}}
    return subprocess.run([COMMAND, *words], env=environment, capture_output=True, text=True, timeout=100)


def modules_without_ml_kem(folder):
    """As of an installation from whose modules somebody has taken mlkem-native, on a system whose OpenSSL has no
    ML-KEM."""
    found = folder / "modules"
    found.mkdir()
    for path in (BUILD / "lib" / "cryptmpi").iterdir():
        if path.name != "cryptmpi-module-mlkem-native.so":
            (found / path.name).symlink_to(path)
    return found


def test_without_a_module_one_line_says_so_before_the_job(tmp_path):
    folder = modules_without_ml_kem(tmp_path)
    if json.loads(command(tmp_path, "doctor", "--json", module_folder=folder).stdout)["ml_kem"]:
        pytest.skip("this system's OpenSSL has ML-KEM")
    done = command(tmp_path, "run", "--mpi", "/usr/bin/mpiexec.mpich", "-n", "1", "true", key_exchange=HYBRID, module_folder=folder, layer="channel")
    assert done.returncode != 0
    line = error_lines(done.stdout + done.stderr)[-1]
    assert "KEY_EXCHANGE" in line and "offers ML-KEM-768" in line and "set key_exchange = x25519" in line, line


def test_doctor_says_what_there_is(tmp_path):
    found = json.loads(command(tmp_path, "doctor", "--json", key_exchange=HYBRID).stdout)
    assert found["settings"]["key_exchange"] == HYBRID and found["ml_kem"].startswith(("mlkem-native ", "openssl "))
    assert not any("key_exchange" in problem for problem in found["problems"]), found["problems"]


@pytest.mark.parametrize("settings, said", [
    ({"key_exchange": "mlkem768"}, "is not allowed; allowed: x25519, x25519-mlkem768"),
    ({"key_exchange": HYBRID, "layer": "fabric"}, "is for the channel and the MPI layer"),
    ({"key_exchange": HYBRID, "layer": "mpi", "key_distribution": "rsa-oaep"}, "is for key_distribution = agreement"),
])
def test_what_does_not_go_together(settings, said, tmp_path):
    (line,) = error_lines(command(tmp_path, "run", "-n", "1", "true", **settings).stderr)
    assert line.startswith("cryptmpi") and "CRYPTMPI_KEY_EXCHANGE" in line and said in line, line
