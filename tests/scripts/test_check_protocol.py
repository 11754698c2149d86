"""scripts/check-protocol on pages, code and tests that a test makes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-protocol"
PAGE = "# Protocol\n\nA side refuses what does not open. [H1]\nIt must wipe its state. [H2]\n\n## Why it holds\n\nNobody must guess.\n"
CODE = "// protocol: H1\nint open();\n    // protocol: H2\n    wipe();\n"
TEST = "// What fails without it.\n// protocol: H1\nTEST(Hello, IsRefused) {}\n"
PYTHON = '# protocol: H2\n@pytest.mark.parametrize("one", [\n    1,\n])\ndef test_wiped(one):\n    pass\n'


@pytest.fixture
def checked(tmp_path):
    def run(page=PAGE, code=CODE, test=TEST, python=PYTHON):
        for name, text in (("docs/protocol.md", page), ("src/keys/hello.cpp", code), ("tests/hello_test.cpp", test), ("tests/test_hello.py", python)):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True)
        lines = done.stdout.splitlines()
        assert done.returncode == (0 if lines == ["check-protocol: 2 requirements, each with code and a test"] else 1), done
        return lines
    return run


def test_a_page_that_is_kept(checked):
    assert checked() == ["check-protocol: 2 requirements, each with code and a test"]


@pytest.mark.parametrize("change, line", [
    ({"code": "// protocol: H1\n"}, "docs/protocol.md: H2 is without code"),
    ({"test": "TEST(Hello, IsRefused) {}\n"}, "docs/protocol.md: H1 is without a test"),
    ({"python": ""}, "docs/protocol.md: H2 is without a test"),
    ({"code": CODE + "// protocol: H2, R9\n"}, "src/keys/hello.cpp:5: docs/protocol.md has no R9"),
    ({"test": "// protocol: H1, R9\nTEST(Hello, IsRefused) {}\n"}, "tests/hello_test.cpp:1: docs/protocol.md has no R9"),
    ({"page": PAGE.replace("state. [H2]", "state. [H2] Again. [H2]")}, "docs/protocol.md: H2 stands there 2 times"),
    ({"page": PAGE + "\n## Records\n\nA record must\nbe whole.\n"},
     "docs/protocol.md: requires something and has no number: A record must be whole. ..."),
    ({"page": PAGE + "\n## Records\n\n- it is refused\n"}, "docs/protocol.md: requires something and has no number: - it is refused ..."),
    ({"code": CODE + "// protocol: H1 and H2\n"}, "src/keys/hello.cpp:5: not understood: expected such as 'protocol: H3, R7'"),
    ({"test": TEST + "// protocol: H1\nint helper();\n"}, "tests/hello_test.cpp:4: stands at no test"),
    ({"test": TEST + "TEST(Hello, Other) {\n    // protocol: H1\n    refuse();\n}\n"}, "tests/hello_test.cpp:5: stands at no test"),
    ({"python": PYTHON + "# protocol: H2\nHELLO = 1\n"}, "tests/test_hello.py:7: stands at no test"),
])
def test_what_is_listed(checked, change, line):
    assert checked(**change) == [line]


def test_the_repositorys_own_page():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
