"""Runs mpi4py's own test/main.py (first argument) and writes one line a finished test into results.RANK: the outcome
and its name.

Ranks print into one another's lines, so what they print cannot be counted.
"""

import os
import runpy
import sys
import unittest

RANK = next((os.environ[name] for name in ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ), "0")
results = open(f"results.{RANK}", "w", buffering=1)


def is_refusal(details):
    """Did the test end in the error of a procedure that CryptMPI refuses?"""
    error = next((detail[1] for detail in details if isinstance(detail, tuple)), None)
    if type(error).__name__ != "Exception" or not hasattr(error, "Get_error_class"):
        return False
    return "a procedure is refused" in error.Get_error_string()


def record(method, outcome):
    original = getattr(unittest.TestResult, method)

    def recording(self, test, *details):
        results.write(f"{'refused' if is_refusal(details) else outcome} {test.id()}\n")
        return original(self, test, *details)

    setattr(unittest.TestResult, method, recording)


def record_parts():
    """A test made of subtests fails by them, and is not told of itself."""
    original = unittest.TestResult.addSubTest

    def recording(self, test, subtest, error):
        if error is not None:
            results.write(f"{'refused' if is_refusal([error]) else 'failed'} {test.id()}\n")
        return original(self, test, subtest, error)

    unittest.TestResult.addSubTest = recording


record_parts()
for method, outcome in (("addSuccess", "passed"), ("addExpectedFailure", "passed"), ("addSkip", "skipped"), ("addFailure", "failed"),
                        ("addError", "failed"), ("addUnexpectedSuccess", "failed")):
    record(method, outcome)

sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    results.write("ended\n")
