"""The command `cryptmpi`: every bad input gives one clear line, and exec passes everything through."""

import hashlib
import json
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import BUILD
from conftest import CHANNEL as LIBRARY

COMMAND = BUILD / "bin" / "cryptmpi"
NOT_SEALED, REFUSED, NOT_EXECUTABLE, NOT_FOUND = 123, 125, 126, 127


@pytest.fixture
def home(tmp_path):
    """A user's home with a job key, open to other users' reading as /home usually is."""
    tmp_path.chmod(0o755)
    cryptmpi(tmp_path, "keygen", check=True)
    return tmp_path


def environment(home, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CRYPTMPI_", "XDG_", "LD_PRELOAD"))}
    return {**kept, "HOME": str(home), **{name: str(value) for name, value in variables.items()}}


def cryptmpi(home, *arguments, check=False, **variables):
    done = subprocess.run([COMMAND, *map(str, arguments)], env=environment(home, **variables), text=True,
                          capture_output=True, timeout=120)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def assert_refused(done, *pieces, status=REFUSED):
    assert done.returncode == status, done
    assert done.stdout == ""
    assert done.stderr.startswith("cryptmpi: ") and done.stderr.count("\n") == 1, done.stderr
    for piece in pieces:
        assert piece in done.stderr


def key_file(home):
    return home / ".config" / "cryptmpi" / "job.key"


def compiled(folder, source, *options):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (folder / "program.c").write_text(source)
    done = subprocess.run(["cc", "-o", folder / "program", folder / "program.c", *options], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("cannot compile: " + done.stderr.splitlines()[0])
    return folder / "program"


# Help and version


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["exec", "--help"], ["keygen", "--help"],
                                       ["doctor", "--help"], ["report", "--help"]])
def test_help(home, arguments):
    assert "cryptmpi" in cryptmpi(home, *arguments, check=True).stdout


def test_help_of_a_subcommand_is_its_own(home):
    assert "Examples:" in cryptmpi(home, "--help").stdout
    assert "Examples:" not in cryptmpi(home, "keygen", "--help").stdout


def test_version(home):
    assert cryptmpi(home, "--version", check=True).stdout.startswith("cryptmpi ")


def test_usage_errors(home):
    assert_refused(cryptmpi(home), "a subcommand is required", status=2)
    assert_refused(cryptmpi(home, "exce"), "no subcommand exce; did you mean exec?", status=2)
    assert_refused(cryptmpi(home, "runn", "-n", "2", "./p"), "no subcommand runn; did you mean run?", status=2)
    assert_refused(cryptmpi(home, "nonsense"), "no subcommand nonsense; see cryptmpi --help", status=2)
    assert_refused(cryptmpi(home, "keygen", "job.key"), "job.key; see cryptmpi keygen --help", status=2)
    assert_refused(cryptmpi(home, "exec"), "no program")
    assert_refused(cryptmpi(home, "run", "-n", "x", "true"), "-n")
    assert_refused(cryptmpi(home, "run", "-n", "0", "true"), "np", "0 not in range 1 to 2147483647")
    assert_refused(cryptmpi(home, "exec", "--nonsense", "true"), "--nonsense")


# The key file


def test_keygen_writes_once(home):
    assert stat.S_IMODE(key_file(home).stat().st_mode) == 0o600
    before = key_file(home).read_text()
    assert_refused(cryptmpi(home, "keygen"), str(key_file(home)), status=1)
    assert key_file(home).read_text() == before
    assert "cryptmpi key install" in cryptmpi(home, "keygen", "--force", check=True).stdout
    assert key_file(home).read_text() != before


def test_keygen_elsewhere(home):
    cryptmpi(home, "keygen", "--key-file", home / "other" / "key", check=True)
    assert (home / "other" / "key").read_text().startswith("cryptmpi-job-key-1 ")


def test_key_missing(home):
    key_file(home).unlink()
    assert_refused(cryptmpi(home, "exec", "true"), str(key_file(home)), "cryptmpi keygen")


def test_key_world_readable(home):
    key_file(home).chmod(0o644)
    assert_refused(cryptmpi(home, "exec", "true"), str(key_file(home)), "chmod 600")


@pytest.mark.parametrize("text", ["", "secret\n", "cryptmpi-job-key-1 12\n", "cryptmpi-job-key-1 " + "g" * 64 + "\n"])
def test_key_malformed(home, text):
    key_file(home).write_text(text)
    assert_refused(cryptmpi(home, "exec", "true"), str(key_file(home)))


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root to become somebody else")
def test_key_unreadable(home, tmp_path):
    # Root reads everything, so another user tries, with a copy that it can reach.
    install = Path("/tmp") / f"cryptmpi-test-{os.getpid()}"
    try:
        shutil.copytree(BUILD / "lib" / "cryptmpi", install / "lib" / "cryptmpi", symlinks=True)
        (install / "bin").mkdir()
        shutil.copy(COMMAND, install / "bin")
        key = install / "job.key"
        shutil.copy(key_file(home), key)
        key.chmod(0o600)
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", install / "bin" / "cryptmpi", "exec", "true"],
                              env=environment("/nonexistent", CRYPTMPI_KEY_FILE=key), capture_output=True, text=True, cwd="/")
        assert_refused(done, str(key))
    finally:
        shutil.rmtree(install, ignore_errors=True)


# Settings


@pytest.mark.parametrize("variables, pieces", [
    ({"CRYPTMPI_CIPHER": "ROT13"}, ["CRYPTMPI_CIPHER", "ROT13", "AES-256-GCM", "AEGIS-128X4"]),
    ({"CRYPTMPI_CIPHER": "AEGIS-128X4", "CRYPTMPI_MODULE": "openssl"}, ["openssl", "AEGIS-128X4", "module=auto"]),
    ({"CRYPTMPI_MODULE": "aegis"}, ["aegis", "AES-256-GCM", "another cipher"]),
    ({"CRYPTMPI_MODULE": "nonesuch"}, ["nonesuch", "openssl"]),
    ({"CRYPTMPI_CYPHER": "AES-256-GCM"}, ["CRYPTMPI_CYPHER", "CRYPTMPI_CIPHER"]),
    ({"CRYPTMPI_CONFIG": "/nowhere.toml"}, ["/nowhere.toml", "CRYPTMPI_CONFIG"]),
])
@pytest.mark.parametrize("start", [["exec"], ["run", "-n", "1"]])
def test_bad_variable(home, start, variables, pieces):
    assert_refused(cryptmpi(home, *start, "true", **variables), *pieces)


@pytest.fixture
def broken_module(home):
    """Settings of a module that is there, and cannot be loaded."""
    folder = home / "modules"
    folder.mkdir()
    for file in LIBRARY.parent.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "cryptmpi-module-broken.so").write_text("not a library")
    return {"CRYPTMPI_MODULE": "broken", "CRYPTMPI_MODULE_FOLDER": folder}


@pytest.mark.parametrize("words, status", [
    (["keygen", "--force"], 1),
    (["keygen", "--member", "alice"], 1),
    (["key", "list"], 1),
    (["report", "job.json"], 1),
    (["report", "--check", "job.json"], NOT_SEALED),
    (["attest", "job.json"], 1),
    (["exec", "true"], REFUSED),
])
def test_no_other_module_in_the_place_of_the_one_that_is_named(home, broken_module, words, status):
    key = key_file(home).read_bytes()
    assert_refused(cryptmpi(home, *words, **broken_module), "module 'broken' cannot be used here", "module=auto", status=status)
    assert key_file(home).read_bytes() == key and not (key_file(home).parent / "member.key").exists()


def test_doctor_of_a_module_that_makes_no_handshakes(home, broken_module):
    done = cryptmpi(home, "doctor", "--json", **broken_module)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["handshake_module"] == ""
    assert len([line for line in found["problems"] if "module 'broken' cannot be used here" in line]) == 1, found["problems"]


def test_bad_key_in_file(home):
    (home / ".config" / "cryptmpi" / "config.toml").write_text("# ours\nmodul = 'auto'\n")
    assert_refused(cryptmpi(home, "exec", "true"), "config.toml:2", "modul", '"module"')


@pytest.mark.parametrize("name, pieces", [("MPI_Putt", ['"MPI_Put"', "cryptmpi coverage"]), ("MPI_Send", ["sealed", "leave it out"]),
                                          ("mpi_put", ["MPI_Put"])])
def test_allow_of_what_is_not_refused(home, name, pieces):
    program = compiled(home, "int MPI_Init(int *, char ***); int main(void) { return MPI_Init(0, 0); }", "-l:libmpi.so.40")
    for start in (["exec"], ["run", "-n", "1"]):
        assert_refused(cryptmpi(home, *start, program, CRYPTMPI_ALLOW=f"MPI_Get,{name}"), "CRYPTMPI_ALLOW", f'"{name}"', *pieces)
    (home / ".config" / "cryptmpi" / "config.toml").write_text(f'allow = ["{name}"]\n')
    assert_refused(cryptmpi(home, "exec", program), "config.toml:1: allow", f'"{name}"', *pieces)


# Programs


@pytest.mark.parametrize("start", [["exec"], ["run", "-n", "1"]])
def test_program_missing(home, start):
    assert_refused(cryptmpi(home, *start, "no-such-program"), "no-such-program", "PATH", status=NOT_FOUND)
    assert_refused(cryptmpi(home, *start, "./no-such-program"), "No such file", status=NOT_FOUND)


def test_program_not_executable(home):
    (home / "data").write_text("x")
    assert_refused(cryptmpi(home, "exec", home / "data"), "not executable", status=NOT_EXECUTABLE)
    assert_refused(cryptmpi(home, "exec", home), "not a file", status=NOT_EXECUTABLE)
    (home / "data").chmod(0o755)
    assert_refused(cryptmpi(home, "exec", home / "data"), "neither", status=NOT_EXECUTABLE)


def test_program_static(home):
    program = compiled(home, "int main(void) { return 0; }", "-static")
    assert_refused(cryptmpi(home, "exec", program), str(program), "statically linked")


def test_program_setuid(home):
    program = compiled(home, "int main(void) { return 0; }")
    program.chmod(0o4755)
    assert_refused(cryptmpi(home, "exec", program), str(program), "set-user-ID")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to hide /proc")
@pytest.mark.parametrize("arguments", [("doctor",), ("exec", "/bin/true")], ids=" ".join)
def test_nothing_is_loaded_from_the_current_folder_where_proc_is_not_there(home, arguments):
    line = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", COMMAND, *arguments]
    done = subprocess.run(line, env=environment(home), cwd=home, text=True, capture_output=True, timeout=120)
    assert_refused(done, "/proc is not mounted here")


def test_program_of_another_machine(home):
    header = bytearray(Path(sys.executable).resolve().read_bytes()[:64])
    header[18:20] = (243).to_bytes(2, "little")  # RISC-V
    (home / "program").write_bytes(bytes(header) + bytes(4096))
    (home / "program").chmod(0o755)
    done = cryptmpi(home, "exec", home / "program")
    assert_refused(done, "another kind of machine", status=NOT_EXECUTABLE)


def test_program_of_go(home):
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go compiler")
    (home / "program.go").write_text("package main\nfunc main() {}\n")
    subprocess.run([go, "build", "-o", home / "program", home / "program.go"], check=True, cwd=home,
                   env={**os.environ, "GO111MODULE": "off"}, capture_output=True)
    assert_refused(cryptmpi(home, "exec", home / "program"), "Go program")


def test_script_is_judged_by_its_interpreter(home):
    static = compiled(home, "int main(void) { return 0; }", "-static")
    script = home / "script"
    script.write_text(f"#!{static}\n")
    script.chmod(0o755)
    assert_refused(cryptmpi(home, "exec", script), "statically linked", str(script))
    script.write_text("#!/usr/bin/env no-such-interpreter\n")
    assert_refused(cryptmpi(home, "exec", script), "no-such-interpreter", status=NOT_FOUND)
    script.write_text("#!/bin/sh\nexit 7\n")
    assert cryptmpi(home, "exec", script).returncode == 7


@pytest.mark.parametrize("program", ["true", "script"])
def test_run_program_without_mpi(home, program):
    script = home / "script"
    script.write_text("#!/usr/bin/env python3\n")
    script.chmod(0o755)
    done = cryptmpi(home, "run", "-n", "2", script if program == "script" else program)
    assert_refused(done, program, "not linked with an MPI library", "--mpi")


def test_run_bad_launcher(home):
    assert_refused(cryptmpi(home, "run", "-n", "1", "--mpi", "/no/mpiexec", "true"), "/no/mpiexec", "--mpi")
    assert_refused(cryptmpi(home, "run", "-n", "1", "--mpi", "true", "true"), "none that cryptmpi run knows")


# What exec passes on


def test_exec_arguments_and_status(home):
    done = cryptmpi(home, "exec", "sh", "-c", 'printf "%s|" "$@"; exit 3', "-n", "--job", "a b", "", "--", "'")
    assert (done.returncode, done.stdout) == (3, "--job|a b||--|'|")
    done = cryptmpi(home, "exec", "--job", "j7", "--", "sh", "-c", "echo $CRYPTMPI_JOB_ID")
    assert done.stdout == "j7\n"


def test_exec_environment(home):
    done = cryptmpi(home, "exec", "env", USERS_OWN="x y", CRYPTMPI_SCOPE="all", CRYPTMPI_INTERNAL_ROLE="launcher")
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert seen["USERS_OWN"] == "x y"
    assert seen["CRYPTMPI_SCOPE"] == "all"
    assert seen["LD_PRELOAD"] == str(LIBRARY)
    assert "CRYPTMPI_INTERNAL_ROLE" not in seen
    assert key_file(home).read_text().split()[1] not in done.stdout


@pytest.mark.parametrize("layer, users, held", [("mpi", {}, "65536"), ("mpi", {"FI_TCP_MAX_SAVED": "100"}, "100"), ("channel", {}, "")])
def test_exec_lets_libfabric_hold_messages(home, layer, users, held):
    assert cryptmpi(home, "exec", "--layer", layer, "printenv", "FI_TCP_MAX_SAVED", **users).stdout.strip() == held


def test_exec_keeps_the_users_preload(home):
    first = cryptmpi(home, "exec", COMMAND, "exec", "printenv", "LD_PRELOAD", LD_PRELOAD="libm.so.6")
    assert first.stdout == f"{LIBRARY}:libm.so.6\n"


def test_exec_within_a_sealed_job_reports_where_that_does(home):
    inner = f"{COMMAND} exec --report {home}/inner.json -- true"
    done = cryptmpi(home, "exec", "--report", home / "outer.json", "--", "sh", "-c", inner)
    assert_refused(done, "a sealed job has started this", f"{home}/outer.json")
    assert not list(home.glob("inner.json*"))


def test_exec_disabled_is_native(home):
    key_file(home).unlink()
    done = cryptmpi(home, "exec", "env", CRYPTMPI_ENABLED="false")
    assert done.returncode == 0 and "LD_PRELOAD" not in done.stdout


def test_exec_passes_signals(home):
    process = subprocess.Popen([COMMAND, "exec", "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"],
                               env=environment(home), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 9


# run, with a launcher of our own that is Hydra by its word only


@pytest.fixture
def launcher(home):
    script = home / "mpiexec"
    script.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo "HYDRA build details:"; exit; fi\n'
                      'printf "%s\\n" "$@" >"$HOME/line"\n'
                      'while [ "$1" != "$COMMAND" ]; do shift; done\nexec "$@"\n')
    script.chmod(0o755)
    return script


def test_run_bad_hosts(home, launcher):
    assert_refused(cryptmpi(home, "run", "-n", "1", "--hosts", "a:x", "--mpi", launcher, "true"), "a:x")
    assert_refused(cryptmpi(home, "run", "--mpi", launcher, "true"), "-n")


def test_run_passes_all_through(home, launcher):
    run = ["run", "-n", "3", "--hosts", "a,b", "--env", "X=y z", "--launcher-args", "-l -iface 'v w'", "--mpi", launcher]
    done = cryptmpi(home, *run, "sh", "-c", 'cat; echo "$1"; exit 5', "-", "a b", COMMAND=COMMAND)
    assert done.returncode == 5, done
    assert done.stdout.endswith("a b\n")
    (verdict,) = done.stderr.splitlines()
    assert verdict.startswith("cryptmpi: INCOMPLETE: 0 of 3 ranks") and "ended with status 5" in verdict
    line = (home / "line").read_text().splitlines()
    assert line[:2] == ["-n", "3"]
    assert line[line.index("-hosts") + 1] == "a:2,b:2"
    assert line[line.index("-launcher-exec") + 1] == str(LIBRARY.parent / "cryptmpi-agent")
    assert line[line.index("X") + 1] == "y z"
    assert "-l" in line and "v w" in line
    assert line[line.index(str(COMMAND)):] == [str(COMMAND), "exec", "--", "sh", "-c", 'cat; echo "$1"; exit 5', "-", "a b"]


def test_run_tells_a_terminal_what_it_starts(home, launcher):
    """And nobody else."""
    run = [COMMAND, "run", "-n", "1", "--mpi", launcher, "true"]
    assert "starting" not in cryptmpi(home, *run[1:], COMMAND=COMMAND).stderr
    master, terminal = pty.openpty()
    done = subprocess.run(run, env=environment(home, COMMAND=COMMAND), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal,
                          timeout=60)
    os.close(terminal)
    said = os.read(master, 4096).decode()
    os.close(master)
    assert done.returncode == NOT_SEALED and said.startswith("cryptmpi: starting true with MPICH (HYDRA build details:), layer "), said


REASON = "CRYPTMPI_INTERNAL_LAYER_REASON"


def preloads(layer, sockets=True):
    """Sockets are sealed whatever seals MPI's data."""
    above = str(LIBRARY.parent / f"libcryptmpi-{layer}.so")
    return str(LIBRARY) if layer == "channel" else f"{LIBRARY}:{above}" if sockets else above


@pytest.mark.parametrize("options, variables, layer, network, reason", [
    ([], {"FI_PROVIDER": "psm3"}, "fabric", "fabric", "FI_PROVIDER=psm3"),
    ([], {"MPIR_CVAR_NEMESIS_NETMOD": "mxm"}, "mpi", "any", "MPIR_CVAR_NEMESIS_NETMOD=mxm"),
    ([], {"CRYPTMPI_NETWORK": "fabric"}, "fabric", "fabric", "network is fabric"),
    ([], {"FI_PROVIDER": "tcp"}, "channel", "tcp", "FI_PROVIDER=tcp"),
    ([], {"CRYPTMPI_NETWORK": "any"}, "mpi", "any", "network is any"),
    ([], {"FI_PROVIDER": "psm3", "CRYPTMPI_NETWORK": "tcp"}, "channel", "tcp", "network is tcp"),
    (["--env", "UCX_TLS=rc"], {}, "fabric", "fabric", "UCX_TLS=rc"),
    (["--layer", "fabric"], {"UCX_TLS": "tcp"}, "fabric", "fabric", "--layer"),
    (["--layer", "fabric"], {"CRYPTMPI_NETWORK": "tcp"}, "fabric", "tcp", "--layer"),
    (["--launcher-args", "-genv UCX_TLS tcp"], {"UCX_TLS": "rc"}, "channel", "tcp", "UCX_TLS"),
    (["--layer", "mpi"], {"UCX_TLS": "tcp"}, "mpi", "tcp", "--layer"),
    (["--layer", "mpi"], {"UCX_TLS": "rc"}, "mpi", "any", "--layer"),
    (["--layer", "mpi"], {"UCX_TLS": "tcp", "CRYPTMPI_NETWORK": "any"}, "mpi", "any", "--layer"),
    (["--layer", "channel"], {"CRYPTMPI_NETWORK": "any"}, "channel", "tcp", "--layer"),
    (["--layer", "auto"], {"CRYPTMPI_LAYER": "mpi", "UCX_TLS": "tcp"}, "channel", "tcp", "UCX_TLS=tcp"),
])
def test_run_chooses_the_layer_for_all(home, launcher, options, variables, layer, network, reason):
    """Also for the ranks: exec, which could choose otherwise on its node, keeps to it and to the reason."""
    program = ["printenv", "CRYPTMPI_LAYER", "CRYPTMPI_NETWORK", REASON, "LD_PRELOAD"]
    done = cryptmpi(home, "run", "-n", "1", "--verbose", "--mpi", launcher, *options, *program, COMMAND=COMMAND, **variables)
    assert done.returncode == NOT_SEALED, done  # printenv is no MPI program
    chosen, carrier, why, preload = done.stdout.splitlines()
    assert chosen == layer and carrier == network and why.startswith(f"{layer}: ") and reason in why
    assert preload == preloads(layer)
    assert f"layer {why}" in done.stderr
    assert "-launcher-exec" in (home / "line").read_text()


@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_launcher_is_sealed_in_any_case(home, launcher, layer):
    """Whether its ranks' sockets are, or not."""
    launcher.write_text(launcher.read_text().replace("printf", 'echo "$LD_PRELOAD" "$CRYPTMPI_INTERNAL_ROLE" >"$HOME/preload"\nprintf', 1))
    run = ["run", "-n", "1", "--mpi", launcher, "--layer", layer, "printenv", "LD_PRELOAD"]
    done = cryptmpi(home, *run, COMMAND=COMMAND, CRYPTMPI_SEAL_SOCKETS="false")
    assert (home / "preload").read_text() == f"{LIBRARY} launcher\n"
    assert done.stdout == preloads(layer, sockets=False) + "\n", done


# Hydra and Open MPI tell each rank how many there are, and how many on its node.
@pytest.mark.parametrize("names", [("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
                                   ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")])
def test_launcher_started_by_hand_is_named_once(home, names):
    # One that runs on this node: its processes are its children. It is known by its file, so it is no script.
    shutil.copy(os.path.realpath("/bin/sh"), home / "mpiexec")
    (home / "line").write_text('"$@"\nexit $?\n')
    launcher = (home / "mpiexec", home / "line")

    def said(rank, ranks, of_node, below=launcher, **more):
        variables = dict(zip(names, (str(rank), str(ranks), str(of_node))))
        line = [*below, COMMAND, "exec", COMMAND, "exec", "true"]
        done = subprocess.run(line, env=environment(home, **variables, **more), text=True, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stderr

    line = said(0, 4, 2)
    assert line.count("\n") == 1 and "launcher's own connections are in clear" in line and "cryptmpi run" in line
    assert said(0, 2, 2, below=()) == line, "it runs on another node"
    assert said(1, 4, 2) == said(0, 2, 2) == said(0, 4, 2, CRYPTMPI_INTERNAL_SEALED_LAUNCHER="1") == ""


# A file system that says of itself what the test wants.
ON_NETWORK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/vfs.h>
int fstatfs(int fd, struct statfs *out) {
    int (*real)(int, struct statfs *) = (int (*)(int, struct statfs *))dlsym(RTLD_NEXT, "fstatfs");
    int status = real(fd, out);
    out->f_type = strtol(getenv("MAGIC"), NULL, 16);
    return status;
}
"""
OF_RANK_1 = {"PMI_RANK": "1", "PMI_SIZE": "2"}


def on_network(home, launcher, command, magic, **variables):
    stub = compiled(home, ON_NETWORK, "-shared", "-fPIC", "-ldl")
    run = ["run", "-n", "1", "--mpi", launcher] if command == "run" else ["exec"]
    # What says so of each file system says so of the memory that a fresh key would be in, too.
    variables = {"CRYPTMPI_JOB_KEY": "file", **variables}
    done = cryptmpi(home, *run, "echo", "started", COMMAND=COMMAND, LD_PRELOAD=stub, MAGIC=magic, **variables)
    # echo is no MPI program, as the verdict of its run says.
    done.stderr = "".join(line for line in done.stderr.splitlines(True) if "INCOMPLETE" not in line)
    return done


@pytest.mark.parametrize("command", ["run", "exec"])
@pytest.mark.parametrize("magic, name", [("6969", "NFS"), ("ff534d42", "CIFS"), ("fe534d42", "SMB2"), ("01021997", "9p"), ("0bd00bd0", "Lustre"),
                                         ("47504653", "GPFS"), ("19830326", "BeeGFS"), ("5346414f", "AFS"), ("00c36400", "Ceph"),
                                         ("65735546", "FUSE")])
def test_key_on_a_network_file_system(home, launcher, command, magic, name):
    warned = on_network(home, launcher, command, magic)
    assert warned.returncode == (NOT_SEALED if command == "run" else 0) and warned.stdout == "started\n", warned
    assert warned.stderr.count("\n") == 1 and str(key_file(home)) in warned.stderr and f"({name})" in warned.stderr, warned.stderr
    assert_refused(on_network(home, launcher, command, magic, CRYPTMPI_KEY_ON_NETWORK="refuse"), str(key_file(home)), f"({name})")
    assert on_network(home, launcher, command, magic, CRYPTMPI_KEY_ON_NETWORK="allow").stderr == ""


def test_under_a_fresh_key_only_reports_are_at_stake(home, launcher):
    """The user's own key on a network file system; the job's data have another. Here the memory that this one is in
    says that it is NFS, too: that would be named by who looks at it."""
    warned = on_network(home, launcher, "run", "6969", CRYPTMPI_JOB_KEY="fresh")
    lines = [line for line in warned.stderr.splitlines() if str(key_file(home)) in line]
    assert len(lines) == 1 and "(NFS)" in lines[0] and "forge reports" in lines[0] and "not read this job" in lines[0], warned.stderr
    assert "job key file" not in lines[0]
    refused = on_network(home, launcher, "run", "6969", CRYPTMPI_JOB_KEY="fresh", CRYPTMPI_KEY_ON_NETWORK="refuse")
    assert_refused(refused, str(key_file(home)), "forge reports", "refuse")
    assert "forge" not in on_network(home, launcher, "run", "6969").stderr  # job_key = "file"


def test_key_on_a_network_file_system_is_named_by_one_rank_and_refused_by_all(home, launcher):
    assert on_network(home, launcher, "exec", "6969", **OF_RANK_1).stderr == ""
    assert_refused(on_network(home, launcher, "exec", "6969", CRYPTMPI_KEY_ON_NETWORK="refuse", **OF_RANK_1), "NFS")
    assert on_network(home, launcher, "run", "ef53", CRYPTMPI_KEY_ON_NETWORK="refuse").stderr == ""  # ext4


@pytest.mark.parametrize("variables, layer, reason", [
    ({}, "channel", "no network but TCP's"),
    ({"CRYPTMPI_NETWORK": "any"}, "mpi", "network is any"),
    ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "psm2"}, "mpi", "OMPI_MCA_mtl=psm2"),
    ({"CRYPTMPI_LAYER": "mpi"}, "mpi", "--layer or the setting layer"),
    ({"CRYPTMPI_LAYER": "mpi", REASON: "mpi: as run said"}, "mpi", "as run said"),
    ({"CRYPTMPI_LAYER": "mpi", REASON: "channel: of another job"}, "mpi", "--layer or the setting layer"),
])
def test_exec_chooses_the_layer(home, variables, layer, reason):
    if os.path.exists("/dev/infiniband"):
        pytest.skip("this machine has a network beside TCP")
    why, preload = cryptmpi(home, "exec", "printenv", REASON, "LD_PRELOAD", check=True, **variables).stdout.splitlines()
    assert why.startswith(f"{layer}: ") and reason in why
    assert preload == preloads(layer)


def test_run_forwards_signals(home, launcher):
    process = subprocess.Popen([COMMAND, "run", "-n", "1", "--mpi", launcher, "sh", "-c",
                                "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"],
                               env=environment(home, COMMAND=COMMAND), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 9


def test_a_run_within_a_job_has_a_key_of_its_own(home, launcher):
    """And a report that is signed with the user's own, as the outer one's."""
    names = "CRYPTMPI_KEY_FILE CRYPTMPI_INTERNAL_LASTING_KEY"
    inner = f'{COMMAND} run -n 1 --report {home}/inner.json --mpi {launcher} printenv {names}'
    done = cryptmpi(home, "run", "-n", "1", "--report", home / "outer.json", "--mpi", launcher, "sh", "-c", f"printenv {names}; {inner}",
                    COMMAND=COMMAND)
    outer_key, outer_lasting, inner_key, inner_lasting = done.stdout.splitlines()
    assert outer_key != inner_key and outer_key.startswith("/dev/shm/cryptmpi-key-") and inner_key.startswith("/dev/shm/cryptmpi-key-")
    assert outer_lasting == inner_lasting == str(key_file(home))
    assert not os.path.exists(outer_key) and not os.path.exists(inner_key)
    for name in ("outer", "inner"):
        assert "not signed" not in cryptmpi(home, "report", "--check", home / f"{name}.json").stdout


@pytest.mark.parametrize("setting, file, fresh", [("auto", "", True), ("auto", "named", False), ("fresh", "named", True), ("file", "", False)])
def test_which_key_a_job_gets(home, launcher, setting, file, fresh):
    named = home / "named.key"
    cryptmpi(home, "keygen", "--key-file", named, check=True)
    variables = {"CRYPTMPI_JOB_KEY": setting, **({"CRYPTMPI_KEY_FILE": named} if file else {})}
    done = cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "sh", "-c", 'echo "$CRYPTMPI_KEY_FILE"', COMMAND=COMMAND, **variables)
    assert done.stdout.startswith("/dev/shm/cryptmpi-key-") if fresh else done.stdout.strip() == (str(named) if file else ""), done
    assert_refused(cryptmpi(home, "run", "-n", "1", "true", CRYPTMPI_JOB_KEY="new"), "CRYPTMPI_JOB_KEY", "auto, fresh, file")


def test_a_missing_key_file_is_made_by_run_only(home, launcher):
    key_file(home).unlink()
    assert_refused(cryptmpi(home, "exec", "true"), "cryptmpi keygen")
    assert json.loads(cryptmpi(home, "doctor", "--json").stdout)["job_key"] == "fresh"
    done = cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "true", COMMAND=COMMAND)
    assert done.stderr.splitlines()[0] == f"cryptmpi: made the key file {key_file(home)}, with which the reports of your jobs are signed"
    assert stat.S_IMODE(key_file(home).stat().st_mode) == 0o600
    assert "made the key file" not in cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "true", COMMAND=COMMAND).stderr


def test_a_fresh_key_that_did_not_come(home):
    done = cryptmpi(home, "exec", "true", CRYPTMPI_KEY_FILE="/dev/shm/cryptmpi-key-none", CRYPTMPI_INTERNAL_LASTING_KEY=key_file(home))
    assert_refused(done, "fresh key", "another way", 'job_key = "file"')


def test_run_disabled_is_native(home, launcher):
    done = cryptmpi(home, "run", "-n", "1", "--mpi", launcher, COMMAND, "--version", CRYPTMPI_ENABLED="no", COMMAND=COMMAND)
    assert done.stdout.startswith("cryptmpi ") and "-launcher" not in (home / "line").read_text()
    assert done.stderr == "cryptmpi: note: enabled = false: the job runs in clear, without CryptMPI\n"


def left_by_an_earlier_job(report):
    """What must not pass for a later job's."""
    report.write_text('{"job_id": "x", "totals": {}, "not_sealed": [], "processes": [], "signature": "0"}')
    parts = Path(f"{report}.parts")
    parts.mkdir()
    (parts / "n1.1.json").write_text('{"job_id": "x", "library": "channel", "signature": "0"}')
    (parts / "n1.2.json.77.new").write_text('{"jo')
    (parts / "n1.host").write_text('{"job_id": "x", "host": "n1", "signature": "0"}')
    (parts / "token").write_text("0" * 32 + "\n\n")
    (parts / "trial").touch()


def disabled_with_a_report(home, launcher, *options, **settings):
    left_by_an_earlier_job(home / "job.json")
    done = cryptmpi(home, "run", "-n", "1", "--mpi", launcher, *options, COMMAND, "--version", COMMAND=COMMAND, **settings)
    assert not list(home.glob("job.json*"))
    return done


def test_run_disabled_has_no_report(home, launcher):
    report = home / "job.json"
    done = disabled_with_a_report(home, launcher, "--report", report, CRYPTMPI_ENABLED="no")
    assert_refused(done, "enabled = false", "in clear", "--report")
    done = disabled_with_a_report(home, launcher, CRYPTMPI_REPORT_FILE=report, CRYPTMPI_ENABLED="no")
    assert done.returncode == 0 and "in clear" in done.stderr


def test_run_refused_has_no_report(home, launcher):
    done = disabled_with_a_report(home, launcher, "--report", home / "job.json", CRYPTMPI_CIPHER="nonsense")
    assert_refused(done, "nonsense")


@pytest.mark.parametrize("words", [["--nosuchopt"], ["-n", "0"], ["--ppn", "x"]], ids="".join)
@pytest.mark.parametrize("where", ["option", "behind", "variable", "file"])
def test_a_line_that_is_refused_has_no_report(home, words, where):
    """Nor where it cannot be read: the report's name was read before, or is none of the line's."""
    report = home / "job.json"
    left_by_an_earlier_job(report)
    if where == "file":
        (home / ".config/cryptmpi/config.toml").write_text(f'report_file = "{report}"\n')
    option = ["--report", report] if where == "option" else []
    variables = {"CRYPTMPI_REPORT_FILE": report} if where == "variable" else {}
    behind = ["--report", report] if where == "behind" else []
    assert_refused(cryptmpi(home, "run", *option, *words, *behind, "true", **variables))
    assert not list(home.glob("job.json*"))


@pytest.mark.parametrize("words, status", [(["./nosuch"], NOT_FOUND), (["-genv", "LD_PRELOAD", "x", "true"], REFUSED)], ids=lambda value: str(value))
def test_run_refused_has_no_report_of_the_settings_file(home, launcher, words, status):
    report = home / "job.json"
    left_by_an_earlier_job(report)
    (home / ".config/cryptmpi/config.toml").write_text(f'report_file = "{report}"\n')
    assert_refused(cryptmpi(home, "run", "-n", "2", "--mpi", launcher, *words), status=status)
    assert not list(home.glob("job.json*"))


def test_a_job_within_another_leaves_that_ones_report(home):
    report = home / "job.json"
    left_by_an_earlier_job(report)
    of_job = {"CRYPTMPI_REPORT_FILE": report, "CRYPTMPI_INTERNAL_REPORT_FILE": report}
    assert_refused(cryptmpi(home, "run", "--nosuchopt", "true", **of_job))
    assert cryptmpi(home, "exec", "true", CRYPTMPI_ENABLED="no", **of_job).stderr == ""
    assert report.exists() and (home / "job.json.parts" / "n1.1.json").exists()


def test_exec_disabled_has_no_report(home):
    report = home / "job.json"
    left_by_an_earlier_job(report)
    assert_refused(cryptmpi(home, "exec", "--report", report, "true", CRYPTMPI_ENABLED="no"), "exec: enabled = false", "in clear", "--report")
    assert not list(home.glob("job.json*"))
    left_by_an_earlier_job(report)
    settings = {"CRYPTMPI_REPORT_FILE": report, "CRYPTMPI_ENABLED": "no"}
    assert cryptmpi(home, "exec", "true", PMI_RANK="1", PMI_SIZE="2", **settings).stderr == ""
    done = cryptmpi(home, "exec", "true", PMI_RANK="0", PMI_SIZE="2", **settings)
    assert done.returncode == 0 and "note: enabled = false" in done.stderr and done.stderr.count("\n") == 1
    assert not list(home.glob("job.json*"))


def test_what_is_no_report_stays(home, launcher):
    """The report's name was forgotten, and the program's stands in its place."""
    victim = home / "victim"
    for text in ("#!/bin/sh\n", '{"totals": {}, "processes": [', '{"totals": {}}', '{"totals": {}, "processes": []}', "[]"):
        victim.write_text(text)
        run = ["run", "-n", "2", "--mpi", launcher, "--report", victim, "true"]
        assert_refused(cryptmpi(home, *run), str(victim), "no whole report", "remove")
        assert_refused(cryptmpi(home, *run, CRYPTMPI_ENABLED="no"), str(victim), "no whole report")
        done = cryptmpi(home, "exec", "true", CRYPTMPI_ENABLED="no", CRYPTMPI_REPORT_FILE=victim)
        assert_refused(done, str(victim), "no whole report")
        assert victim.read_text() == text
    victim.unlink()
    left_by_an_earlier_job(victim)
    for name, text in (("input.txt", "mine"), ("model.json", '{"mine": 1}'), ("list.json", "[1]"), ("token", "mine"), ("trial", "mine"),
                       ("step.json", '{"job_id": 4711, "energy": 1}'), ("notes.json.12.new", "mine")):
        file = home / "victim.parts" / name
        file.write_text(text)
        assert_refused(cryptmpi(home, *run), f"{name} is nothing that CryptMPI writes there")
        assert file.read_text() == text and victim.exists() and (home / "victim.parts" / "n1.1.json").exists()
        file.unlink()
    (home / "victim.parts" / "folder").mkdir()
    assert_refused(cryptmpi(home, *run), "folder is nothing that CryptMPI writes there")
    (home / "victim.parts" / "folder").rmdir()
    assert "INCOMPLETE" in cryptmpi(home, *run, COMMAND=COMMAND).stderr  # of ranks that are none of MPI's
    assert "INCOMPLETE" in json.loads(victim.read_text()).get("verdict", "INCOMPLETE") and not (home / "victim.parts").exists()


def test_a_file_of_no_bytes_is_a_place_for_a_report(home, launcher):
    report = home / "made-by-mktemp"
    report.touch()
    cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "--report", report, "true", COMMAND=COMMAND)
    assert "processes" in json.loads(report.read_text())


def test_what_lies_beside_a_report_stays(home, launcher):
    """The report's place is tried before the job starts."""
    report = home / "job.json"
    (home / "job.json.trial").write_text("mine")
    cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "--report", report, "true", COMMAND=COMMAND)
    assert "processes" in json.loads(report.read_text()) and (home / "job.json.trial").read_text() == "mine"


def test_a_line_that_is_refused_takes_nothing_from_a_job_that_runs(home, launcher):
    """It removes the parts of that job's report: the verdict says so."""
    report = home / "job.json"
    typo = f"test -d {report}.parts && CRYPTMPI_REPORT_FILE={report} CRYPTMPI_INTERNAL_REPORT_FILE= {COMMAND} run --nosuchopt true"
    done = cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "--report", report, "sh", "-c", typo, COMMAND=COMMAND)
    assert "was removed or taken by another job" in json.dumps(json.loads(report.read_text())), done
    assert "FAILED" in done.stderr or "INCOMPLETE" in done.stderr, done


@pytest.mark.parametrize("job, name", [("job-1.x", "job-1.x"), ("../../../x", None), (".x", None), ("a/b", None), ("x" * 300, None), ("a b", None)])
def test_an_id_is_no_path(home, launcher, job, name):
    mode = stat.S_IMODE(home.stat().st_mode)
    cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "true", COMMAND=COMMAND, CRYPTMPI_JOB_ID=job)
    (report,) = home.rglob("*.json")
    assert report.parent == home / ".cache" / "cryptmpi" / "jobs" and json.loads(report.read_text())["job_id"] == job
    assert report.stem == (name or hashlib.sha256(job.encode()).hexdigest())
    assert stat.S_IMODE(home.stat().st_mode) == mode


def ignoring_children(home, *words, **variables):
    """As a daemon's starter, or Perl's, may leave it."""
    return subprocess.run([COMMAND, *map(str, words)], env=environment(home, **variables), text=True, capture_output=True, timeout=60,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))


def test_a_starter_that_ignores_its_children(home, launcher):
    done = ignoring_children(home, "run", "-n", "1", "--mpi", launcher, "sh", "-c", "exit 5", COMMAND=COMMAND)
    assert done.returncode == 5 and "ended with status 5" in done.stderr, done
    ignored = ignoring_children(home, "exec", "grep", "SigIgn", "/proc/self/status").stdout
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGCHLD - 1)), "the program does not find what its starter left"
    kept = cryptmpi(home, "exec", "grep", "SigIgn", "/proc/self/status").stdout
    assert not int(kept.split()[1], 16) & (1 << (signal.SIGCHLD - 1))


def test_the_command_is_replaced_while_a_job_runs(home):
    """As in an upgrade: the other nodes are asked for their parts by the command's name, which stays."""
    command = home / "bin" / "cryptmpi"
    command.parent.mkdir()
    shutil.copy(COMMAND, command)
    (home / "lib").mkdir()
    (home / "lib" / "cryptmpi").symlink_to(LIBRARY.parent)
    rsh = home / "rsh"
    rsh.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >>"$HOME/asked"\n')
    rsh.chmod(0o755)
    launcher = home / "mpiexec"
    launcher.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo "HYDRA build details:"; exit; fi\n'
                        f'"{LIBRARY.parent}/cryptmpi-agent" node9 true\ncp "{command}" "$HOME/new"\nmv "$HOME/new" "{command}"\n')
    launcher.chmod(0o755)
    subprocess.run([command, "run", "-n", "1", "--mpi", launcher, "--rsh", rsh, "--report", home / "job.json", "true"], env=environment(home),
                   timeout=120)
    (asked,) = [line for line in (home / "asked").read_text().splitlines() if " collect " in line]
    assert asked.startswith(f"node9 {command} collect ")


# The launcher that is found by the program's library


@pytest.fixture
def linked(home):
    """A program with an MPI library in a folder that nobody else may write, and what may be a launcher near it."""
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        folder = Path(name)
        (folder / "mpi" / "lib").mkdir(parents=True)
        (folder / "bin").mkdir()
        folder.chmod(0o755)
        (home / "empty").mkdir()
        (folder / "mpi.c").write_text("int MPI_Init(void) { return 0; }\n")
        library = folder / "mpi" / "lib" / "libmpi.so.12"
        built = subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.12", "-o", library, folder / "mpi.c"], capture_output=True)
        if built.returncode != 0:
            pytest.skip("no C compiler that links")
        near = folder / "bin" / "mpiexec"
        near.write_text('#!/bin/sh\n: >"$HOME/planted"\nif [ "$1" = --version ]; then echo "HYDRA build details:"; fi\n')
        near.chmod(0o755)
        program = compiled(home, "int MPI_Init(void); int main(void) { return MPI_Init(); }", library, f"-Wl,-rpath,{library.parent}")
        yield folder, program


def start_linked(home, program, path):
    return cryptmpi(home, "run", "-n", "1", "--layer", "channel", program, PATH=path)


@pytest.mark.parametrize("mode", [0o755, 0o1777], ids=["own-folder", "like-tmp"])
def test_a_launcher_near_the_library(home, linked, mode):
    folder, program = linked
    folder.chmod(mode)
    start_linked(home, program, home / "empty")
    assert (home / "planted").exists()


NOBODY = 65534
PLANTED = {
    "in a folder that all may write": lambda folder: folder.chmod(0o777),
    "of another user in a folder like tmp": lambda folder: (folder.chmod(0o1777), os.chown(folder / "bin", NOBODY, NOBODY)),
    "in a folder that a group may write": lambda folder: (folder / "bin").chmod(0o775),
    "that a group may write": lambda folder: (folder / "bin" / "mpiexec").chmod(0o775),
    "of another user": lambda folder: os.chown(folder / "bin" / "mpiexec", NOBODY, NOBODY),
    "in another user's folder": lambda folder: os.chown(folder / "bin", NOBODY, NOBODY),
    "behind another user's link": lambda folder: plant_link(folder / "bin"),
}


def plant_link(folder):
    folder.rename(folder.parent / "theirs")
    folder.symlink_to(folder.parent / "theirs")
    os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)


@pytest.mark.parametrize("how", PLANTED)
def test_a_launcher_that_others_could_plant_is_not_run(home, linked, how):
    folder, program = linked
    if "another user" in how and os.geteuid() != 0:
        pytest.skip("needs root to give files away")
    PLANTED[how](folder)
    done = start_linked(home, program, home / "empty")
    assert_refused(done, "no launcher of MPICH found", f"{folder}/bin/mpiexec is not run: ", "--mpi")
    assert not (home / "planted").exists()
    start_linked(home, program, folder / "bin")  # which the user has chosen
    assert (home / "planted").exists()


# The agent: a remote shell that runs its command here, through a shell, as ssh does


def test_agent_wraps_the_remote_command(home):
    rsh = home / "rsh"
    rsh.write_text('#!/bin/sh\necho "preload:$LD_PRELOAD" >"$HOME/seen"\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
                   'echo "host:$1" >>"$HOME/seen"; shift\nunset CRYPTMPI_SCOPE CRYPTMPI_JOB_ID LD_PRELOAD\nexec sh -c "$*"\n')
    rsh.chmod(0o755)
    variables = dict(CRYPTMPI_INTERNAL_AGENT_RSH=rsh, CRYPTMPI_SCOPE="all", CRYPTMPI_JOB_ID="it's one", LD_PRELOAD=LIBRARY)
    done = subprocess.run([LIBRARY.parent / "cryptmpi-agent", "-x", "node7", "printf", "'%s|'", '"$CRYPTMPI_JOB_ID"', "$CRYPTMPI_SCOPE",
                           '"$CRYPTMPI_INTERNAL_ROLE"', '"$LD_PRELOAD"', "'a  b'"],
                          env=environment(home, **variables), capture_output=True, text=True)
    assert done.stdout == f"it's one|all|launcher|{LIBRARY}|a  b|", done
    assert (home / "seen").read_text() == "preload:\nhost:node7\n"


@pytest.mark.parametrize("options, account", [(["-l", "me"], "me@node7"), (["-lme"], "me@node7"), (["-l", "me", "-x"], "me@node7"),
                                              (["-x"], "node7"), (["-o", "User=you"], "node7")])
def test_agent_notes_whose_account_it_went_to(home, options, account):
    """From there the parts of the report are fetched."""
    rsh = home / "rsh"
    rsh.write_text("#!/bin/sh\n")
    rsh.chmod(0o755)
    parts = home / "job.json.parts"
    parts.mkdir()
    (parts / "token").write_text("0" * 32 + "\n")
    variables = dict(CRYPTMPI_INTERNAL_AGENT_RSH=rsh, CRYPTMPI_INTERNAL_REPORT_TOKEN="0" * 32, CRYPTMPI_REPORT_FILE=home / "job.json")
    done = subprocess.run([LIBRARY.parent / "cryptmpi-agent", *options, "node7", "true"], env=environment(home, **variables),
                          capture_output=True, text=True)
    assert done.returncode == 0, done
    (note,) = parts.glob("*.host")
    assert json.loads(note.read_text())["host"] == account


# doctor and report


def coverage(home, *words):
    return json.loads(cryptmpi(home, "coverage", "--json", *words).stdout)


def test_coverage_of_the_layers(home):
    mpi, fabric = coverage(home), coverage(home, "--layer", "fabric")
    assert mpi["counts"]["refused"] > 200
    assert fabric["counts"]["refused"] == 0 and len(fabric["procedures"]) == len(mpi["procedures"])
    assert fabric["counts"]["local"] == mpi["counts"]["local"]
    functions = {row["name"]: row["class"] for door in fabric["doors"] for row in door["functions"]}
    assert functions["ucp_tag_send_nbx"] == functions["fi_ops_tagged.send"] == "sealed"
    assert functions["ucp_stream_send_nb"] == functions["fi_ops_atomic.write"] == "refused"
    assert [door["counts"]["unclassified"] for door in fabric["doors"]] == [0, 0]


def test_doctor(home):
    done = cryptmpi(home, "doctor", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    modules = {module["name"]: module for module in found["modules"]}
    assert modules["openssl"]["usable"] and modules["aegis"]["usable"]
    assert modules["aegis"]["gb_per_s"].keys() >= {"AEGIS-128L", "AEGIS-128X2", "AEGIS-128X4", "AEGIS-256"}
    assert found["chosen_module"] != "aegis"  # only where it is asked for
    assert found["handshake_module"].startswith(("libsodium ", "openssl "))
    assert found["key_file"]["mode"] == "0600" and found["key_file"]["usable"]
    assert found["layers"]["channel"]["usable"] and found["layers"]["mpi"]["usable"]
    assert set(found["layers"]["mpi"]["abis"]) == {"standard", "mpich", "openmpi"} and found["layers"]["mpi"]["abis"]["standard"]
    for mpi in found["mpis"]:
        if mpi["library"]:
            assert mpi["auto_layer"] in ("channel", "fabric", "mpi") and mpi["auto_reason"]
            assert not mpi["mpi_layer"] or mpi["procedures"]["sealed"] > 50, mpi
            needed = subprocess.run(["readelf", "-d", mpi["library"]], text=True, capture_output=True, check=True).stdout
            assert ("MPI_Finalize" in mpi["known_trouble"]) == (mpi["mpi"] == "MPICH" and "libucp." in needed), mpi
    key_file(home).chmod(0o644)
    done = cryptmpi(home, "doctor")
    assert done.returncode == 1 and "chmod 600" in done.stdout


def test_doctor_of_a_broken_layer(home, tmp_path):
    """Each library of the MPI layer missing or spoilt is a problem with its mend."""
    libraries = tmp_path / "cryptmpi"
    shutil.copytree(LIBRARY.parent, libraries, symlinks=True)
    (libraries / "libcryptmpi-channel.so").write_text("not a library")
    (libraries / "libcryptmpi-mpi.so").unlink()
    for abi in ("mpich", "openmpi"):
        (libraries / f"cryptmpi-mpi-{abi}.so").unlink(missing_ok=True)
    done = cryptmpi(home, "doctor", "--json", CRYPTMPI_MODULE_FOLDER=libraries, FI_PROVIDER="verbs", UCX_TLS="rc", OMPI_MCA_pml="ucx",
                    CRYPTMPI_LAYER="channel")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert any("libcryptmpi-channel.so cannot be loaded" in problem and "install" in problem for problem in found["problems"])
    assert any("libcryptmpi-mpi.so is missing" in problem for problem in found["problems"])
    assert not found["layers"]["channel"]["usable"] and not found["layers"]["mpi"]["usable"]
    for mpi in filter(lambda mpi: mpi["library"], found["mpis"]):
        assert not mpi["mpi_layer"] and any(f"cryptmpi-mpi-{mpi['abi']}.so is missing" in problem for problem in found["problems"])
        assert mpi["auto_layer"] == "fabric" and any(mpi["auto_reason"] in problem and "TCP" in problem for problem in found["problems"])


def test_report(home):
    assert_refused(cryptmpi(home, "report", home / "none.json"), "none.json", status=1)
    (home / "bad.json").write_text("{")
    assert_refused(cryptmpi(home, "report", home / "bad.json"), "bad.json", status=1)
    part = {"job_id": "j", "layer": "channel", "node": "n1", "pid": 1, "rank": 0, "ranks": 2, "sealed_connections": 1, "mpi_initialized": True,
            "ended": True}
    (home / "job.json.parts").mkdir()
    (home / "job.json.parts" / "n1.1.json").write_text(json.dumps(part))
    assert cryptmpi(home, "report", home / "job.json", check=True).stdout.startswith("FAILED")  # it is not signed
    done = cryptmpi(home, "report", "--check", home / "job.json")
    assert done.returncode == NOT_SEALED and "not signed with this job key" in done.stdout
    key_file(home).unlink()
    assert cryptmpi(home, "report", home / "job.json", check=True).stdout.startswith("NOT VERIFIED, for want of the job key: INCOMPLETE: 1 of 2")
    assert json.loads(cryptmpi(home, "report", "--json", home / "job.json", check=True).stdout)["ranks_reported"] == 1
    assert cryptmpi(home, "report", "--check", home / "job.json").returncode == NOT_SEALED


def test_run_of_several_programs(home, launcher):
    for words, pieces in ((["true", ":", "-n", "1", "--oversubscribe", "true"], ["--oversubscribe", "Open MPI's", "write --"]),
                          (["true", ":", "true"], ["how many ranks of true"]),
                          (["true", ":", "-n", "1"], ["no program"])):
        assert_refused(cryptmpi(home, "run", "-n", "1", "--mpi", launcher, *words, COMMAND=COMMAND), *pieces)
    assert_refused(cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "--launcher-args", ": -n 1 true", "true"), "--launcher-args")
    static = compiled(home, "int main(void) { return 0; }", "-static")
    assert_refused(cryptmpi(home, "run", "-n", "1", "--mpi", launcher, "true", ":", "-n", "1", static), "statically linked")
    programs = ["sh", "-c", "exit 5", ":", "-n", "3", "-env", "X", "y", "true", "z"]
    cryptmpi(home, "run", "-n", "1", "--hosts", "a,b", "--mpi", launcher, *programs, COMMAND=COMMAND)
    line = (home / "line").read_text().splitlines()
    assert line[line.index("-hosts") + 1] == "a:2,b:2"
    assert line[line.index(":"):] == [":", "-n", "3", "-env", "X", "y", str(COMMAND), "exec", "--", "true", "z"]
