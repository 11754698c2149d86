"""What a process under the channel library hears of what it cannot start; tests/sockets/starting.cpp has the calls."""

import os
import subprocess
import sys

import pytest
from conftest import error_lines


def run(words, environment=None, **options):
    return subprocess.run(list(map(str, words)), env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=60, **options)


BY_PYTHON = """
import os, subprocess, sys
for call in (lambda: subprocess.run(sys.argv[1:]), lambda: os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)):
    try: print(call())
    except OSError as error: print(type(error).__name__)
"""

STARTERS = {"bash": ["bash", "-c", '"$0"; echo $?'], "sh": ["sh", "-c", '"$0"; echo $?'], "env": ["env"],
            "perl": ["perl", "-e", 'exec $ARGV[0] or print "$!\n"'],
            "python": [sys.executable, "-c", BY_PYTHON]}


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("kind", ["text", "script", "folder", "fifo"])
def test_a_file_that_may_not_be_run(starter, kind, sealing, tmp_path):
    """No shell reads it instead, and nobody waits for a writer of a FIFO."""
    file = tmp_path / "file"
    if kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file, 0o755)
    else:
        file.write_text({"text": "", "script": "#!/bin/sh\n"}[kind] + "echo IT RAN\n")
    line = ["timeout", "20", *STARTERS[starter], file]
    plain = run(line)
    sealed = run(line, sealing.environment(scope="all"))
    assert "IT RAN" not in plain.stdout
    assert (sealed.returncode, sealed.stdout, sealed.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_a_program_without_the_memory_that_we_write_to(sealing):
    """It ended in the middle, by an exception of ours."""
    for limit in (2000, 8000):
        done = run(["sh", "-c", f"ulimit -d {limit}; exec /bin/echo STARTED"], sealing.environment(scope="all"))
        assert done.returncode == 126 and "STARTED" not in done.stdout and "terminate" not in done.stderr, done
        assert any("/bin/echo" in line and "raise the limit (ulimit -d) to" in line for line in error_lines(done.stderr)), done
    done = run(["sh", "-c", "ulimit -d 64000; exec /bin/echo STARTED"], sealing.environment(scope="all"))
    assert (done.returncode, done.stdout, error_lines(done.stderr)) == (0, "STARTED\n", []), done


# In a user namespace of its own, whose list of kinds nobody else sees.
REGISTERS = """
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc || exit 77
echo ':kind-by-name:E::kind::/bin/echo:' > /proc/sys/fs/binfmt_misc/register || exit 77
echo ':kind-by-bytes:M:2:KIND::/bin/echo:' > /proc/sys/fs/binfmt_misc/register || exit 77
exec "$@"
"""


@pytest.mark.parametrize("name, text", [("file.kind", "echo BY SHELL\n"), ("file", "# KIND\necho BY SHELL\n"),
                                        ("file.kind", "#!/bin/sh\necho BY SHELL\n"), ("other", "echo BY SHELL\n")])
def test_a_kind_of_file_that_the_system_hands_to_an_interpreter(name, text, sealing, tmp_path):
    """The kernel would start a program that nobody has judged, and a shell would read what is not for it."""
    file = tmp_path / name
    file.write_text(text)
    file.chmod(0o755)
    line = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", REGISTERS, "sh", "env", "--"]
    plain = run([*line, "sh", "-c", '"$0"', file])
    if plain.returncode != 0:
        pytest.skip(f"no list of kinds of its own: {plain.stderr}")
    assert plain.stdout == ("BY SHELL\n" if name == "other" else f"{file}\n"), plain
    variables = [f"{variable}={value}" for variable, value in sealing.environment(scope="all").items()]
    sealed = run([*line, *variables, "sh", "-c", '"$0"', file])
    if name == "other":
        assert (sealed.stdout, error_lines(sealed.stderr)) == (plain.stdout, []), sealed
        return
    assert sealed.returncode == 126 and sealed.stdout == "", sealed
    assert [line for line in error_lines(sealed.stderr) if "the system runs /bin/echo (binfmt_misc)" in line], sealed
