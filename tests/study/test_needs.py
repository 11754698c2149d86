"""Without the packages that it computes with, the study says which to install."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["study", "bench"])
def test_a_missing_package_is_named(module):
    # An isolated Python without site-packages has the standard library alone.
    line = f"import sys, runpy; sys.path.insert(0, {str(REPOSITORY)!r}); sys.argv = ['x', '--help']; " \
           f"runpy.run_module('cryptmpi_tools.{module}', run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", line], capture_output=True, text=True)
    assert done.returncode == 1
    assert "numpy" in done.stderr and "install" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
