"""Without the packages of requirements.txt there is nothing to compare with: that is said, not passed over."""

import importlib.util

import pytest

missing = [name for name in ("noise", "cryptography") if importlib.util.find_spec(name) is None]
if missing:
    pytest.exit(f"not installed: {', '.join(missing)} (tests/interop/requirements.txt; `make test` installs them)", returncode=2)
