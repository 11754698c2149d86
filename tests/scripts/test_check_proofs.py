"""scripts/check-proofs, with something in Verifpal's place that prints as it does: what fails though it should hold,
and what has no verdict."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-proofs"
MODEL = "attacker[active]\nqueries[\n\tconfidentiality? plain\n\tauthentication? Sender -> Receiver: message\n]\n"
TWO_HOLD = """ Verifpal * Verification completed for 'a.vp' at 05:44:21 PM in 671ms.

     PASS + confidentiality? plain  [search exhausted at 2 sessions]
     PASS + authentication? Sender -> Receiver: message  [search exhausted at 2 sessions]
     PASS + All 2 queries pass.
"""
ONE_FAILS = TWO_HOLD.replace("PASS + auth", "FAIL x auth").replace("PASS + All 2 queries pass", "FAIL x 1 of 2 queries failed")


@pytest.mark.parametrize("name, printed, complaints", [
    ("a.vp", TWO_HOLD, []),
    ("a.vp", ONE_FAILS, ["a.vp: fails, but should not: authentication? Sender -> Receiver: message"]),
    ("a.vp", TWO_HOLD.replace("     PASS + conf", "     Info . conf"), ["a.vp: no verdict on: confidentiality? plain"]),
    ("replayed_a.vp", ONE_FAILS, ["replayed_a.vp: holds, but should not: confidentiality? plain"]),
    ("replayed_a.vp", ONE_FAILS.replace("PASS + conf", "FAIL x conf"), []),
])
def test_verdicts_that_are_not_as_expected(name, printed, complaints, tmp_path):
    (tmp_path / name).write_text(MODEL)
    (tmp_path / "printed").write_text(printed)
    verifpal = tmp_path / "verifpal"
    verifpal.write_text(f"#!/bin/sh\ncat {tmp_path}/printed\n")
    verifpal.chmod(0o755)
    done = subprocess.run([sys.executable, SCRIPT, verifpal, tmp_path / name], capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == complaints and done.returncode == (1 if complaints else 0), done
