"""REBUILD=yes: the same source gives the same packages, byte by byte, in another folder and without a compiler
cache."""

import os
import subprocess

import pytest
from roots import REPOSITORY, only, run

pytestmark = pytest.mark.skipif(os.environ.get("REBUILD") != "yes", reason="builds everything twice more: set REBUILD=yes")
WITHOUT_CACHE = {**os.environ, "CCACHE_DISABLE": "1"}


@pytest.fixture
def sources(tmp_path):
    """The working tree's files elsewhere, with the portable build's tools."""
    copy = tmp_path / "a-folder-of-another-name" / "sources"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()]
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", REPOSITORY / name, copy / name)
    (copy / "build" / "portable").mkdir(parents=True)
    for name in ("venv", "glibc", "installed"):
        (copy / "build" / "portable" / name).symlink_to(REPOSITORY / "build" / "portable" / name)
    return copy


def test_the_debian_package(tmp_path):
    run(REPOSITORY / "packaging" / "build-deb", tmp_path / "again", env=WITHOUT_CACHE)
    made, = (tmp_path / "again").glob("*.deb")
    assert made.read_bytes() == only("*.deb").read_bytes()


def test_the_wheel(sources, tmp_path):
    epoch = run("git", "-C", REPOSITORY, "log", "-1", "--format=%ct").strip()
    run(sources / "packaging" / "build-wheel", tmp_path / "again", env={**WITHOUT_CACHE, "SOURCE_DATE_EPOCH": epoch})
    made, = (tmp_path / "again").glob("*.whl")
    assert made.name == only("*.whl").name
    assert made.read_bytes() == only("*.whl").read_bytes()


def test_the_rpm(tmp_path):
    run(REPOSITORY / "packaging" / "build-rpm", tmp_path / "again", env=WITHOUT_CACHE)
    made, = (tmp_path / "again").glob("*.rpm")
    assert made.name == only("*.rpm").name
    assert made.read_bytes() == only("*.rpm").read_bytes()
