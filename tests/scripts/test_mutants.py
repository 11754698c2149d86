"""Does each mutant find the text that it breaks? Nobody runs all of them whenever a line moves."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANTS = runpy.run_path(str(ROOT / "tests/mutants/table.py"))["MUTANTS"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_finds_what_it_breaks(mutant):
    for file, before, after in mutant.edits:
        assert (ROOT / file).read_text().count(before) == 1, f"{file}: {before}"
        assert after != before
