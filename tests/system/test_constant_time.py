"""No branch and no index of our own code depends on a secret: the comparison of tags, the reading and writing of key
lines, the legacy module's partial blocks. In the style of "ctgrind": memcheck takes the secrets to be undefined."""

import subprocess

import pytest
from conftest import BUILD, REPOSITORY, needs

PROGRAM = BUILD / "bin" / "constant_time"
SUPPRESSED = REPOSITORY / "tests" / "constant_time" / "mbedcrypto.supp"
FOUND = 99

pytestmark = [needs("valgrind"),
              pytest.mark.skipif(not PROGRAM.exists(), reason="constant_time is not built: valgrind's headers or Mbed TLS 2.28 are missing")]


def memcheck(*arguments, program=PROGRAM):
    line = ["valgrind", "-q", f"--error-exitcode={FOUND}", f"--suppressions={SUPPRESSED}", program, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("leak, words", [("branch", "Conditional jump"), ("index", "Use of uninitialised value")])
def test_memcheck_finds_what_depends_on_a_secret(leak, words):
    done = memcheck(leak)
    assert done.returncode == FOUND and words in done.stderr, done


@pytest.mark.parametrize("case", ["tag", "key line"])
def test_nothing_depends_on_a_secret(case):
    done = memcheck(case)
    assert done.returncode == 0 and f"{case}: right" in done.stdout, done


# protocol: L3
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 4095, 4096, 4097, 4105])
def test_nothing_in_the_legacy_module_depends_on_a_secret(size):
    """Whole blocks, partial ones, and what is shorter than a block."""
    done = memcheck("legacy", size)
    assert done.returncode == 0 and "legacy: right" in done.stdout, done


def test_nothing_in_ml_kem_depends_on_a_secret():
    """The module mlkem-native as our compiler has built it: a key, an encapsulation, a decapsulation, an implicit
    rejection."""
    done = memcheck(program=PROGRAM.with_name("constant_time_kem"))
    assert done.returncode == 0 and "kem: right" in done.stdout, done
