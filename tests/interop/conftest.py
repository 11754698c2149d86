"""Without the packages of requirements.txt there is nothing to compare with: ctest then shows the test as skipped."""

import importlib.util

import pytest


def pytest_configure(config):
    missing = [name for name in ("noise", "cryptography") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.exit(f"not installed: {', '.join(missing)} (tests/interop/requirements.txt)", returncode=77)
