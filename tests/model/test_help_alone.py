"""--help of the packages says what they do where no package but Python's own is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# As if they were not there: an import of them fails.
WITHOUT = ("import sys, runpy; sys.path.insert(0, sys.argv.pop(1)); "
           "sys.modules.update({'numpy': None, 'scipy': None, 'matplotlib': None, 'rich': None, 'jinja2': None}); "
           "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)")


def run_without(module, *words):
    return subprocess.run([sys.executable, "-c", WITHOUT, str(REPOSITORY), f"cryptmpi_tools.{module}", *words], capture_output=True, text=True,
                          timeout=60)


@pytest.mark.parametrize("module, words", [("model", ["--help"]), ("model", ["fit", "--help"]), ("model", ["plan", "--help"]),
                                           ("tune", ["--help"])])
def test_help_needs_nothing_else(module, words):
    done = run_without(module, *words)
    assert done.returncode == 0 and done.stdout.startswith(f"usage: cryptmpi {module}") and not done.stderr, done.stderr


def test_they_are_really_not_there():
    done = run_without("study.method")
    assert done.returncode != 0 and "numpy" in done.stderr, done.stderr
