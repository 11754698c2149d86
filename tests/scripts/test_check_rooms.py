"""scripts/check-rooms on two rooms that a test makes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-rooms"
FILES = {
    "src/CMakeLists.txt": "cryptmpi_room_sees(high low)\ncryptmpi_room_sees(low)\n",
    "src/low/bytes.hpp": "",
    "src/high/data.hpp": '#include "low/bytes.hpp"\n',
    "src/high/door.hpp": '#include "high/data.hpp"\n',
    "src/high/door.cpp": '#include "high/door.hpp"\n#include "high/ways/way.hpp"\n',
    "src/high/ways/way.hpp": '#include "high/data.hpp"\n',
    "src/high/ways/way.cpp": '#include "high/ways/way.hpp"\n',
    "docs/architecture.md": "# Rooms\n\n```rooms\n```\n",
}


@pytest.fixture
def checked(tmp_path):
    """Of the files above but for these: the status, and what is said."""
    def run(**changed):
        for name, text in (FILES | {f"src/{name}": text for name, text in changed.items()}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        script = tmp_path / "scripts" / "check-rooms"
        script.parent.mkdir(exist_ok=True)
        shutil.copy(SCRIPT, script)
        done = [subprocess.run([sys.executable, script, *more], capture_output=True, text=True) for more in (["--draw"], [])][-1]
        return done.returncode, (done.stdout + done.stderr).splitlines()
    return run


def test_files_that_see_each_other_one_way(checked):
    assert checked() == (0, ["check-rooms: 2 rooms, 1 arrows, no circle"])


@pytest.mark.parametrize("file, included, circle", [
    ("high/data.hpp", "high/door.hpp", "src/high/data, src/high/door, src/high/ways/way: include each other in a circle"),
    ("high/ways/way.cpp", "high/door.hpp", "src/high/door, src/high/ways/way: include each other in a circle"),
])
def test_files_of_a_room_that_include_each_other_in_a_circle(checked, file, included, circle):
    assert checked(**{file: FILES[f"src/{file}"] + f'#include "{included}"\n'}) == (1, [circle])


def test_a_room_that_includes_what_it_may_not(checked):
    status, lines = checked(**{"low/bytes.hpp": "", "low/more.hpp": '#include "high/data.hpp"\n'})
    assert status == 1 and lines == ["check-rooms: rooms see each other in a circle: high and low"]


def test_a_header_whose_room_is_not_named(checked):
    assert checked(**{"high/door.cpp": '#include "bytes.hpp"\n'}) == (1, ["src/high/door.cpp: includes bytes.hpp: name its room, too"])


def test_files_that_include_each_other_beside_them_in_a_circle(checked):
    status, lines = checked(**{"high/data.hpp": '#include "low/bytes.hpp"\n#include "door.hpp"\n'})
    assert (status, lines) == (1, ["src/high/data, src/high/door, src/high/ways/way: include each other in a circle"])


def test_the_repositorys_own_rooms():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
