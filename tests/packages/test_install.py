"""`make install`: into an empty folder, on a machine whose apt-get must not be called, and then moved to another
place."""

import gzip
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SUBCOMMANDS = ["attest", "bench", "canary", "coverage", "doctor", "exec", "key", "keygen", "model", "report", "run", "study", "top", "tune"]
PYTHON_ONES = {"bench", "canary", "model", "study", "tune"}  # each has a --help of its own
OPTIONAL = {"IPSEC_MB_LIBRARY": "ipsec-mb", "BORINGSSL_LIBRARY": "boringssl", "SODIUM_LIBRARY": "libsodium",
            "CRYPTOPP_LIBRARY": "cryptopp", "MBEDCRYPTO_LIBRARY": "mbedtls and legacy"}


def run(*line, status=0, **more):
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, **more)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("install")
    # What installs packages fails here, and says so.
    forbidden = folder / "forbidden"
    forbidden.mkdir()
    for name in ("apt-get", "sudo"):
        (forbidden / name).write_text(f"#!/bin/sh\necho {name} >>{folder}/called\nexit 1\n")
        (forbidden / name).chmod(0o755)
    run("make", "install", f"PREFIX={folder}/first", cwd=REPOSITORY, env={**os.environ, "PATH": f"{forbidden}:{os.environ['PATH']}"})
    assert not (folder / "called").exists()
    (folder / "first").rename(folder / "moved")
    return folder / "moved"


def binaries(prefix):
    files = [path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]


def page(prefix, name):
    return gzip.decompress((prefix / "share" / "man" / "man1" / f"{name}.1.gz").read_bytes()).decode()


def test_what_is_installed_is_stripped_and_small(prefix):
    found = binaries(prefix)
    assert {"cryptmpi", "libcryptmpi-channel.so", "libcryptmpi-mpi.so", "libcryptmpi-fabric.so",
            "cryptmpi-module-openssl.so", "cryptmpi-mpi-standard.so"} <= {path.name for path in found}
    for path in found:
        sections = run("readelf", "--sections", "--wide", path)
        assert ".symtab" not in sections and ".debug_info" not in sections, path
    assert sum(path.stat().st_size for path in found) < 40e6


def test_the_moved_tree_works(prefix):
    command = prefix / "bin" / "cryptmpi"
    assert run(command, "--version").startswith("cryptmpi ")
    done = subprocess.run([command, "doctor", "--json"], capture_output=True, text=True)
    assert "openssl" in json.dumps(json.loads(done.stdout)["modules"])
    assert (prefix / "lib" / "cryptmpi" / "cryptmpi-agent").samefile(command)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_subcommand_has_a_page_that_says_what_its_help_says(prefix, name):
    text = page(prefix, f"cryptmpi-{name}").replace("\\-", "-")
    if name in PYTHON_ONES:
        assert f"cryptmpi {name} --help" in text
        return
    said = run(prefix / "bin" / "cryptmpi", name, "--help")
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", said[:said.find("Example")] if "Example" in said else said))
    shown = set(re.findall(r"\\fB(--[a-z-]+)\\fR", text))
    assert shown and shown <= options
    assert {option for option in options if re.search(rf"^ +(-\w,)?{option}\b", said, re.MULTILINE)} == shown


def test_every_page_is_good_roff(prefix):
    pages = sorted((prefix / "share" / "man" / "man1").glob("*.gz"))
    assert [path.name for path in pages] == sorted(["cryptmpi.1.gz", *(f"cryptmpi-{name}.1.gz" for name in SUBCOMMANDS)])
    for path in pages:
        text = gzip.decompress(path.read_bytes())
        assert path.read_bytes()[4:8] == bytes(4), f"{path} says when it was made"
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), path


def completed(prefix, *words):
    script = (f"source {prefix}/share/bash-completion/completions/cryptmpi; COMP_WORDS=({' '.join(words)}); "
              f"COMP_CWORD={len(words) - 1}; _cryptmpi; echo \"${{COMPREPLY[@]}}\"")
    return run("bash", "--norc", "-c", script).split()


def test_bash_completes_subcommands_options_and_their_words(prefix):
    assert set(completed(prefix, "cryptmpi", "''")) >= set(SUBCOMMANDS)
    assert "collect" not in completed(prefix, "cryptmpi", "''")  # hidden from users
    assert completed(prefix, "cryptmpi", "keyg") == ["keygen"]
    assert "--hosts" in completed(prefix, "cryptmpi", "run", "--h")
    assert set(completed(prefix, "cryptmpi", "run", "--layer", "''")) == {"auto", "channel", "mpi", "fabric"}


def test_zsh_gets_the_same_words(prefix):
    text = (prefix / "share" / "zsh" / "site-functions" / "_cryptmpi").read_text()
    assert text.startswith("#compdef cryptmpi\n")
    assert all(f"\n    '{name}:" in text and f"\n{name})\n" in text for name in SUBCOMMANDS)
    assert ":value:(auto channel mpi fabric)'" in text


def test_a_module_is_built_by_cmake_and_by_pkg_config(prefix, tmp_path):
    (tmp_path / "uses.c").write_text("#include <cryptmpi/module.h>\nint abi(void) { return CRYPTMPI_MODULE_ABI; }\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(uses LANGUAGES C)\nfind_package(CryptMPI 0.9 REQUIRED)\n"
        "add_library(uses MODULE uses.c)\ntarget_link_libraries(uses PRIVATE CryptMPI::module)\n")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    flags = run("pkg-config", "--cflags", "cryptmpi", env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")})
    run("cc", "-c", "-o", tmp_path / "uses.o", tmp_path / "uses.c", *flags.split())
    folder = run("pkg-config", "--variable=moduledir", "cryptmpi", env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")})
    assert Path(folder.strip()).samefile(prefix / "lib" / "cryptmpi")


def test_the_modulefile_leads_to_the_tree(prefix):
    file, = (prefix / "share" / "modulefiles" / "cryptmpi").iterdir()
    text = file.read_text()
    assert text.startswith("#%Module1.0\n")
    up, = re.findall(r"file dirname \$ModulesCurrentModulefile\]/([./]+)\]", text)
    assert (file.parent / up).samefile(prefix)
    assert "prepend-path PATH $prefix/bin\n" in text and "prepend-path MANPATH $prefix/share/man\n" in text


def test_licences_and_pages_are_there(prefix):
    docs = prefix / "share" / "doc" / "cryptmpi"
    assert (docs / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()
    assert (docs / "LICENSE.libaegis").exists() and (docs / "LICENSE.mlkem-native").exists() and (docs / "LICENSE.mpi-abi").exists()
    assert {path.name for path in (REPOSITORY / "docs").iterdir()} == {path.name for path in (docs / "docs").iterdir()}


def test_python_parts_are_one_package(prefix):
    installed = prefix / "share" / "cryptmpi" / "cryptmpi_tools"
    tracked = run("git", "ls-files", "-co", "--exclude-standard", "cryptmpi_tools", cwd=REPOSITORY).split()
    assert {str(path.relative_to(installed.parent)) for path in installed.rglob("*") if path.is_file()} == set(tracked)


def test_a_crypto_library_that_is_missing_costs_its_module_and_a_line(tmp_path):
    line = ["cmake", "-S", REPOSITORY, "-B", tmp_path, "-G", "Ninja", "--log-level=NOTICE", "-DCRYPTMPI_TESTS=OFF"]
    done = subprocess.run([*map(str, line), *(f"-D{name}=OFF" for name in OPTIONAL)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = [text for text in done.stderr.splitlines() if text.strip()]
    assert len(said) == len(OPTIONAL), said
    for module in OPTIONAL.values():
        assert len([text for text in said if re.search(rf"modules? {module} (is|are) not built", text)]) == 1
