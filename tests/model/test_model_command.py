"""`cryptmpi model` from the build tree and installed: the package is found beside the command, and nothing else is
run."""

import json
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TEST_BUILD", REPOSITORY / "build" / "release")).resolve()
COMMAND = BUILD / "bin" / "cryptmpi"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


def run(command, *words, path=os.environ["PATH"], **more):
    environment = {**os.environ, "PATH": path}
    return subprocess.run([command, *map(str, words)], env=environment, capture_output=True, text=True, timeout=120, **more)


def installed(folder):
    """What src/command installs: the command, and the packages."""
    done = run("cmake", "--install", BUILD / "src" / "command", "--prefix", folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "cryptmpi"


def assert_one_line(done, *pieces, status=1):
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("cryptmpi: model") and done.stderr.count("\n") == 1, done.stderr
    for piece in pieces:
        assert piece in done.stderr


def test_build_tree():
    done = run(COMMAND, "model", "papers", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) > 70
    assert "model" in run(COMMAND, "--help").stdout
    assert "cryptmpi model" in run(COMMAND, "model", "--help").stdout
    assert "cryptmpi model papers" in run(COMMAND, "model", "papers", "--help").stdout


def test_installed_with_its_data_and_without_the_users_folder(tmp_path):
    """What lies in the folder from which the command is called is not run."""
    (tmp_path / "here").mkdir()
    for name in ("cryptmpi_tools", "model", "numpy", "runpy", "json", "argparse"):
        (tmp_path / "here" / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    command = installed(tmp_path / "prefix")
    assert not any(tmp_path.rglob("__pycache__"))
    done = run(command, "model", "papers", cwd=tmp_path / "here")
    assert done.returncode == 0, done.stderr
    assert "agree within their rounding" in done.stdout


def test_package_missing(tmp_path):
    command = installed(tmp_path)
    package = tmp_path / "share" / "cryptmpi" / "cryptmpi_tools"
    package.rename(tmp_path / "away")
    assert_one_line(run(command, "model", "papers"), str(package), "make install")


def test_python_that_lacks_packages(tmp_path):
    """The first python3 of PATH is judged; the system's takes its place where it has what is needed."""
    (tmp_path / "python3").write_text("#!/bin/sh\necho lacks: numpy scipy\n")
    (tmp_path / "python3").chmod(0o755)
    done = run(COMMAND, "model", "papers", path=f"{tmp_path}:/usr/bin:/bin")
    system = run("/usr/bin/python3", "-c", "import numpy, scipy, rich")
    if system.returncode == 0:
        assert done.returncode == 0, done.stderr
    else:
        assert_one_line(done, f"{tmp_path}/python3 lacks numpy scipy", "python3-numpy python3-scipy")


@pytest.mark.parametrize("words, piece", [([], "SUBCOMMAND"), (["papers", "--nonsense"], "--nonsense"), (["paper"], "paper"),
                                          (["papers", "--js"], "--js")])
def test_usage(words, piece):
    assert_one_line(run(COMMAND, "model", *words), piece, "--help", status=2)
