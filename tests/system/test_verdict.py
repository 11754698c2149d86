"""The verdict of a job: SEALED only if every rank initialised MPI under us and nothing left in clear; what ran without
us fails the job."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY, expect_unseen, needs

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count
from cryptmpi_tools.lab.programs import CANARY
from cryptmpi_tools.lab.sealing import Sealing

COMMAND = BUILD / "bin" / "cryptmpi"
LIBRARIES = BUILD / "lib" / "cryptmpi"
NOT_SEALED, REFUSED = 123, 125
MPIS = pytest.mark.parametrize("mpi", [stacks.stack("openmpi-4.1.4"), stacks.stack("mpich-5.0.2-ofi")], ids=lambda mpi: mpi.name)
LAYERS = pytest.mark.parametrize("layer", ["channel", "mpi"])


class Job:
    """A program that sends a canary between two nodes, under `cryptmpi run`, and what came of it."""

    def __init__(self, mpi, nodes, folder, layer="channel"):
        if not mpi.present():
            pytest.skip(f"{mpi.title} is not installed (make mpis)")
        self.mpi, self.nodes, self.folder = mpi, nodes, folder
        self.sealing = Sealing(folder / "config", nodes, COMMAND, {"layer": layer, "handshake_timeout_s": 20, "agreement_timeout_s": 5})
        self.report_file = folder / "report.json"
        self.canary = secrets.token_bytes(32)
        (folder / "canary.bin").write_bytes(self.canary)
        self.program = [str(self.compiled(CANARY)), str(folder / "canary.bin"), "messages"]

    def compiled(self, source, *options):
        program = self.folder / source.stem
        done = subprocess.run([self.mpi.mpicc, "-O1", "-o", program, source, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return program

    def script(self, text, name="wrapper"):
        file = self.folder / name
        file.write_text("#!/bin/sh\n" + text + "\n")
        file.chmod(0o755)
        return str(file)

    def line(self, program, ranks=2, more=()):
        line = self.sealing.run_line(self.mpi, self.nodes, ranks, program, self.report_file)
        line[2:2] = ["--mpi", str(self.mpi.mpiexec), *more]
        return line

    def run(self, program, ranks=2, more=(), timeout=60, **settings):
        """Returns what the command did; its verdict is in `verdict`, and how often the canary passed in `seen`."""
        environment = {**self.mpi.env(self.nodes), **stacks.abi_environment(self.mpi), **self.sealing.env(),
                       **{f"CRYPTMPI_{name.upper()}": str(value) for name, value in settings.items()}}
        with self.nodes.capture(self.folder / "wire.pcap"):
            done = self.nodes.run(self.line(program, ranks, more), env=environment, timeout=timeout, cwd=self.folder)
        assert not done.timed_out, done.output
        self.seen = count(self.folder / "wire.pcap", [self.canary])[0][self.canary]
        self.verdict = next((line for line in done.output.splitlines() if "Report: " in line), "").removeprefix("cryptmpi: ")
        return done

    def report(self, *options, file=None):
        return subprocess.run([COMMAND, "report", *options, file or self.report_file], env=self.sealing.env(), capture_output=True, text=True)


@pytest.fixture
def job(mpi, nodes, tmp_path):
    return Job(mpi, nodes, tmp_path)


@MPIS
@LAYERS
def test_a_sealed_job_ends_well(mpi, layer, nodes, tmp_path):
    job = Job(mpi, nodes, tmp_path, layer)
    done = job.run(job.program)
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0 and job.verdict.startswith("SEALED"), done.output
    facts = json.loads(job.report_file.read_text())
    assert facts["complete"] and facts["ranks_reported"] == facts["ranks"] == 2


COMPUTES = """
#include <mpi.h>
#include <time.h>
int main(int argc, char** argv) {
    int rank, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct timespec long_enough = {15, 0};
    if (rank == 1) nanosleep(&long_enough, NULL);
    if (rank == 0) MPI_Send(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.parametrize("mpi", [stacks.stack(name) for name in ("openmpi-4.1.4", "openmpi-5.0.11")], ids=lambda mpi: mpi.name)
def test_a_rank_that_computes_before_it_answers_is_no_error(mpi, job):
    """Who waits for its handshake for more than 10 s prints a note. (Open MPI connects at the first message.)"""
    source = job.folder / "computes.c"
    source.write_text(COMPUTES)
    done = job.run([str(job.compiled(source))])
    assert re.search(": note: still waiting for the handshake of ", done.output), done.output
    assert done.returncode == 0 and job.verdict.startswith("SEALED"), done.output
    facts = json.loads(job.report_file.read_text())
    assert facts["complete"] and facts["errors"] == [], facts


USES_OPENSSL = """
#include <mpi.h>
#include <openssl/evp.h>
int main(int argc, char** argv) {
    unsigned char digest[32];
    EVP_Digest("x", 1, digest, NULL, EVP_sha256(), NULL);
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.parametrize(("name", "layer"), [("openmpi-4.1.4", "channel"), ("openmpi-4.1.4", "mpi"), ("mpich-5.0.2-ofi", "channel"),
                                             ("mpich-5.0.2-ofi", "mpi"), ("mpich-5.0.2-ofi", "fabric"), ("openmpi-4.1.4-pml-ucx", "fabric")])
def test_a_program_that_uses_openssl_itself(name, layer, nodes, tmp_path):
    """At its exit OpenSSL is torn down, and then this rank's part is written: the program crashed."""
    job = Job(stacks.stack(name), nodes, tmp_path, layer)
    source = job.folder / "uses-openssl.c"
    source.write_text(USES_OPENSSL)
    program = job.compiled(source, "-lcrypto")
    done = job.run([str(program)])
    assert done.returncode == 0 and job.verdict.startswith("SEALED"), done.output
    facts = json.loads(job.report_file.read_text())
    assert [one["sha256"] for one in facts["programs"]] == [hashlib.sha256(program.read_bytes()).hexdigest()], facts


@MPIS
@LAYERS
def test_a_job_without_mpi(mpi, layer, nodes, tmp_path):
    """Its part, and those of the tools that it starts, are no rank's."""
    job = Job(mpi, nodes, tmp_path, layer)
    done = job.run([job.script('hostname >/dev/null\nexec "$@"'), "true"])
    assert done.returncode == NOT_SEALED and job.verdict.startswith("INCOMPLETE: 0 of 2 ranks"), done.output
    assert job.report("--check").returncode == NOT_SEALED


@MPIS
def test_a_job_that_is_killed_in_the_middle(mpi, job):
    done = job.run([job.script('hostname >/dev/null; [ "${PMIX_RANK:-$PMI_RANK}" = 1 ] && { sleep 0.1; kill -9 $$; }\nexec "$@"'), *job.program])
    assert done.returncode not in (0, NOT_SEALED), done.output
    assert job.verdict.startswith("INCOMPLETE:") and f"ended with status {done.returncode}" in job.verdict, done.output
    assert "share" not in job.verdict
    assert job.report("--check").returncode == NOT_SEALED


ABORTS = """
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char** argv) {
    int rank, words[1000] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(words, 1000, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(argv[1], "exit") == 0) exit(3);
    if (strcmp(argv[1], "all") == 0 || rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


@MPIS
@LAYERS
@pytest.mark.parametrize("how", ["one", "all", "exit"])
def test_a_job_that_its_program_aborts(mpi, layer, how, nodes, tmp_path):
    """Whoever calls MPI_Abort says so before. Ranks that the launcher kills then say nothing more. Where all have come
    to speak, the verdict names those that never came to MPI_Finalize, too. (MPICH's MPI_Abort now and then returns, and
    they come there.) Who still reads when the launcher kills the other rank reports a connection that was cut, as it
    would one that an attacker cuts."""
    job = Job(mpi, nodes, tmp_path, layer)
    (tmp_path / "aborts.c").write_text(ABORTS)
    done = job.run([str(job.compiled(tmp_path / "aborts.c")), how])
    assert done.returncode not in (0, NOT_SEALED, REFUSED), done.output
    ended = f"The job ended with status {done.returncode}."
    called = "rank(s) 1 called MPI_Abort"
    if how != "exit":
        assert called in job.verdict or (how == "all" and re.search(r"rank\(s\) 0(?: 1)? called MPI_Abort", job.verdict)), job.verdict
        assert called in job.report().stdout or how == "all", job.report().stdout
    else:
        assert "MPI_Abort" not in job.verdict, job.verdict
    if job.verdict.startswith("INCOMPLETE:"):
        return
    parts = json.loads(job.report_file.read_text())["processes"]
    aborted = [part["rank"] for part in parts if part["mpi_initialized"] and part["library"] == part["layer"] and not part["mpi_finalized"]]
    callers = sorted({str(part["rank"]) for part in parts if part["mpi_aborted"]})
    reasons = [f" rank(s) {' '.join(callers)} called MPI_Abort"] if callers else []
    reasons += [f" rank(s) {' '.join(map(str, sorted(aborted)))} ended without MPI_Finalize"] if aborted else []
    assert reasons, parts
    why = f" The program aborted the job:{','.join(reasons)}."
    errors = [line for part in parts for line in part["errors"]]
    assert all(how != "exit" and "the connection was lost without the authenticated close" in line for line in errors), errors
    judged = "FAILED: there were errors (below)." if errors else "SEALED: all traffic between the nodes was encrypted and authenticated."
    assert job.verdict.startswith(f"{judged}{why} {ended} Report:"), job.verdict


PROBES = """
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int argc, char** argv) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};
    int rank, ranks, sum = 0, refused;
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    MPI_Init(&argc, &argv);
    refused = sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (struct sockaddr*)&to, sizeof to) == -1 && errno == EPERM;
    refused += socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) == -1 && errno == EAFNOSUPPORT;
    refused += open("/dev/infiniband/uverbs0", O_RDWR) == -1 && errno == EACCES;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(&refused, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && sum == 3 * ranks) printf("all refused\\n");
    MPI_Finalize();
    return 0;
}
"""


@MPIS
@LAYERS
def test_roads_that_were_tried_and_refused_leave_a_job_sealed(mpi, layer, nodes, tmp_path):
    """As of an MPI that looks for devices, and goes on by TCP. Nothing went in clear; who reads the report finds what
    was tried."""
    job = Job(mpi, nodes, tmp_path, layer)
    (tmp_path / "probes.c").write_text(PROBES)
    done = job.run([str(job.compiled(tmp_path / "probes.c")), "10.77.0.99"])
    assert done.returncode == 0 and "all refused" in done.output, done.output
    assert job.verdict.startswith("SEALED: all traffic between the nodes was encrypted and authenticated. Report:"), done.output
    told = job.report().stdout
    for road in ("UDP to 10.77.0.99:7777", "socket family 2 type 3 protocol 1", "device /dev/infiniband/uverbs0"):
        assert f"closed road       {road}" in told, told
    assert "  error" not in told, told
    assert len([line for line in done.output.splitlines() if line.startswith("cryptmpi") and "is refused" in line]) >= 2, done.output


@MPIS
@pytest.mark.parametrize("how", ["deepbind", "namespace"])
def test_an_mpi_that_a_plugin_brings(mpi, how, nodes, tmp_path):
    """Loaded so that it would find libc's calls before ours: all of its messages were in clear, and the job SEALED for
    its launcher's sake."""
    job = Job(mpi, nodes, tmp_path)
    plugin = job.compiled(REPOSITORY / "tests" / "system" / "whisper.c", "-shared", "-fPIC", "-DPLUGIN")
    opened = tmp_path / "opened"
    subprocess.run(["cc", "-o", opened, REPOSITORY / "tests" / "system" / "opened.c"], check=True)
    done = job.run([str(opened), how, str(plugin), str(tmp_path / "canary.bin")])
    expect_unseen(job.seen, done.output)
    if how == "deepbind":
        assert done.returncode == 0 and job.verdict.startswith("SEALED") and "all as sent" in done.output, done.output
    else:
        assert done.returncode != 0 and job.verdict.startswith("INCOMPLETE") and "namespace of its own" in done.output, done.output


@MPIS
def test_plaintext_peers_stand_in_the_first_line(mpi, job):
    done = job.run(job.program, plaintext_peers="10.77.0.0/24")
    assert job.seen > 0 and done.returncode == 0, done.output
    assert job.verdict.startswith("SEALED WITH EXCEPTIONS: plaintext_peers allows 10.77.0."), done.output
    assert "all" not in job.verdict.split(" Report:")[0].replace("allows", "")
    assert job.report("--check").returncode == NOT_SEALED
    assert job.report("--check", "--allow-exceptions").returncode == 0


@MPIS
def test_forged_and_repeated_parts(mpi, job, nodes):
    """Whoever writes into the report's folder makes no rank."""
    forger = job.script("sleep 1; mkdir -p report.json.parts\n"
                        "printf '%s' \"$FORGED\" >report.json.parts/node9.1.json; exec \"$@\"")
    part = {"job_id": "j", "layer": "channel", "node": "n1", "pid": 1, "role": "rank", "rank": 1, "ranks": 2, "mpi_initialized": True,
            "ended": True, "sealed_connections": 1}
    done = job.run(["env", f"FORGED={json.dumps(part)}", forger, *job.program])
    assert done.returncode == NOT_SEALED and job.verdict.startswith("FAILED"), done.output
    assert "not signed with this job key" in job.report().stdout


@MPIS
def test_an_altered_report(mpi, job):
    assert job.run(job.program).returncode == 0
    assert job.report("--check").returncode == 0
    text = job.report_file.read_text()
    job.report_file.write_text(text.replace('"ranks": 2', '"ranks": 3'))
    done = job.report("--check")
    assert done.returncode == NOT_SEALED and done.stdout.startswith("FAILED: the report is not signed"), done
    job.report_file.write_text(text)
    shutil.move(job.sealing.config / "cryptmpi" / "job.key", job.folder / "away")
    done = job.report("--check")
    assert done.returncode == NOT_SEALED and done.stdout.startswith("NOT VERIFIED"), done


@MPIS
def test_a_report_that_cannot_be_written(mpi, job):
    job.report_file = job.folder / "canary.bin" / "report.json"
    done = job.run([job.script(f"touch {job.folder}/started")])
    assert done.returncode == REFUSED and "canary.bin" in done.output, done.output
    assert not (job.folder / "started").exists()


# What is started by processes of the job


STRIPPED = {
    "unset": 'unset LD_PRELOAD CRYPTMPI_LAYER\nexec "$@"',
    "another library": 'export LD_PRELOAD=libm.so.6\nexec "$@"',
    "env -u": 'exec env -u LD_PRELOAD "$@"',
    "disabled": 'CRYPTMPI_ENABLED=no exec "$@"',
}


@MPIS
@pytest.mark.parametrize("how", STRIPPED)
def test_what_a_wrapper_strips_is_put_back(mpi, job, how):
    done = job.run([job.script(STRIPPED[how]), *job.program])
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0 and job.verdict.startswith("SEALED:"), done.output


@MPIS
@pytest.mark.parametrize("how", STRIPPED)
def test_under_the_mpi_layer_a_stripped_rank_fails_the_job(mpi, nodes, tmp_path, how):
    """Where nothing of ours is in the wrapper that could put the library back."""
    job = Job(mpi, nodes, tmp_path, "mpi")
    done = job.run([job.script(STRIPPED[how]), *job.program])
    sealed = job.seen == 0 and job.verdict.startswith("SEALED")
    assert sealed or (done.returncode == NOT_SEALED and job.verdict.startswith("INCOMPLETE")), done.output


SENDS = """
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char** words) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};
    char canary[32];
    FILE* file = fopen(words[1], "rb");
    if (count < 3 || file == NULL || fread(canary, 1, sizeof canary, file) != sizeof canary) return 2;
    inet_pton(AF_INET, words[2], &to.sin_addr);
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket_, (struct sockaddr*)&to, sizeof to) != 0) return 3;
    return write(socket_, canary, sizeof canary) == sizeof canary ? 0 : 4;
}
"""
LISTENS = "import socket\nl = socket.create_server(('', 7777))\nprint('up', flush=True)\nwhile c := l.accept()[0]:\n    while c.recv(100): pass\n"


@contextlib.contextmanager
def listener(nodes):
    """A stranger on the other node."""
    process = nodes.start([sys.executable, "-c", LISTENS], node=1, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def sender(nodes, tmp_path):
    """Makes programs that connect to a stranger on the other node, and says whether the canary got there in clear."""
    canary = secrets.token_bytes(32)
    (tmp_path / "canary.bin").write_bytes(canary)
    (tmp_path / "sends.c").write_text(SENDS)
    command = {}
    for name, options in (("static", ["-static"]), ("dynamic", [])):
        subprocess.run(["cc", "-o", tmp_path / name, tmp_path / "sends.c", *options], check=True)
        command[name] = [str(tmp_path / name), str(tmp_path / "canary.bin"), nodes.nodes[1].address]
    sealing = Sealing(tmp_path / "config", nodes, COMMAND, {"layer": "channel", "handshake_timeout_s": 2})

    def run(words, env=None, start=(COMMAND, "exec")):
        with listener(nodes), nodes.capture(tmp_path / "wire.pcap"):
            done = nodes.run([*start, *words], env={**sealing.env(), **(env or {})}, timeout=60, cwd=tmp_path)
        return done, count(tmp_path / "wire.pcap", [canary])[0][canary]

    run.command = command
    return run


def test_the_sender_is_heard(sender):
    """Else the tests below could not fail."""
    for program in ("static", "dynamic"):
        done, seen = sender(sender.command[program], start=())
        assert done.ok and seen == 1, done.output


PIDFD_SPAWN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
int pidfd_spawn(int* pidfd, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                char* const* arguments, char* const* environment) {
    int (*libcs)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*) =
        dlsym(RTLD_NEXT, "posix_spawn");
    return libcs(pidfd, path, actions, attributes, arguments, environment);
}
"""


def by_shell(command, options=""):
    return ["sh", "-c", f"{options}{' '.join(command)}; exit $?"]


SPAWNING = """
#include <mpi.h>
#include <stddef.h>
int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm parent, child;
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
        MPI_Barrier(child);
        MPI_Comm_disconnect(&child);
    } else {
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
    }
    MPI_Finalize();
    return 0;
}
"""


@MPIS
def test_spawned_ranks_that_run_without_us_are_missed(mpi, nodes, tmp_path):
    """By a launcher that was started by hand, which starts them past us; all on one node, where nothing is sealed."""
    job = Job(mpi, nodes, tmp_path)
    (tmp_path / "spawning.c").write_text(SPAWNING)
    program = [str(job.compiled(tmp_path / "spawning.c"))]
    options = ["--oversubscribe"] if mpi.family.startswith("openmpi") else []
    line = [mpi.mpiexec, *mpi.launcher_options(nodes), *options, "-n", "1", *job.sealing.exec_line(program, job.report_file)]
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **job.sealing.env()}
    done = nodes.run([str(word) for word in line], env=environment, timeout=60, cwd=tmp_path)
    assert done.ok, done.output
    checked = job.report("--check")
    assert checked.returncode == NOT_SEALED and "2 rank(s) that MPI_Comm_spawn started did not report" in checked.stdout, checked


@MPIS
@pytest.mark.parametrize("taken", [False, True], ids=["left", "taken"])
def test_parts_that_a_refused_line_takes_from_a_running_job_are_missed(mpi, taken, nodes, tmp_path):
    """What it took may have told of what went in clear. The job was started by hand, so that nobody else knows."""
    job = Job(mpi, nodes, tmp_path)
    waiting = job.script(f': >{tmp_path}/begun.$$; until [ -e {tmp_path}/go ]; do sleep 0.1; done; exec "$@"')
    options = ["--oversubscribe"] if mpi.family.startswith("openmpi") else []
    line = [mpi.mpiexec, *mpi.launcher_options(nodes), *options, "-n", "2", *job.sealing.exec_line([waiting, *job.program], job.report_file)]
    environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **job.sealing.env()}
    running = nodes.start(line, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while len(list(tmp_path.glob("begun.*"))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    if taken:
        refused = subprocess.run([COMMAND, "run", "--nonsense", "true"], env={**os.environ, "CRYPTMPI_REPORT_FILE": str(job.report_file)}, timeout=60)
        assert refused.returncode == REFUSED and not Path(f"{job.report_file}.parts").exists()
    (tmp_path / "go").touch()
    assert running.wait(timeout=60) == 0
    checked = job.report("--check")
    assert checked.returncode == (NOT_SEALED if taken else 0), checked
    assert ("was removed or taken by another job" in checked.stdout) == taken, checked


# A tool that starts fewer ranks than the program asks for, as an MPI may under the info `soft`.
SPARING = """
#include <mpi.h>
int MPI_Comm_spawn(const char* command, char* argv[], int most, MPI_Info info, int root, MPI_Comm comm, MPI_Comm* made, int codes[]) {
    return PMPI_Comm_spawn(command, argv, most - 1, info, root, comm, made, codes);
}
"""


@MPIS
def test_ranks_that_were_not_spawned_after_all_are_not_missed(mpi, job, tmp_path):
    for name, text in (("spawning.c", SPAWNING), ("sparing.c", SPARING)):
        (tmp_path / name).write_text(text)
    tool = job.compiled(tmp_path / "sparing.c", "-shared", "-fPIC")
    program = [job.script(f'export LD_PRELOAD="$LD_PRELOAD:{tool}"\nexec "$@"'), str(job.compiled(tmp_path / "spawning.c"))]
    done = job.run(program, 1)
    assert done.returncode == 0 and job.verdict.startswith("SEALED"), done.output
    assert [part["spawned"] for part in json.loads(job.report_file.read_text())["processes"] if part["spawned"]] == [1]


SWITCHED_OFF = {
    "a variable": "os.environ['CRYPTMPI_ENABLED'] = 'no'",
    "a file": "os.environ['CRYPTMPI_CONFIG'] = {off!r}",
    "another home": "os.environ['HOME'] = os.path.dirname({off!r}); os.environ['XDG_CONFIG_HOME'] = os.environ['HOME']",
}


@pytest.mark.parametrize("started", ["system", "subprocess"])
@pytest.mark.parametrize("how", SWITCHED_OFF)
def test_a_process_cannot_switch_off_those_that_it_starts(sender, tmp_path, how, started):
    off = tmp_path / "off"
    (off / "cryptmpi").mkdir(parents=True)
    for file in (off / "off.toml", off / "cryptmpi" / "config.toml"):
        file.write_text("enabled = false\n")
    command = sender.command["dynamic"]
    start = {"system": f"os.system({' '.join(command)!r})", "subprocess": f"import subprocess; subprocess.run({command})"}[started]
    done, seen = sender([sys.executable, "-c", f"import os; {SWITCHED_OFF[how].format(off=str(off / 'off.toml'))}; {start}"])
    expect_unseen(seen, done.output)


LED_AWAY = {
    "a variable": "os.environ['CRYPTMPI_REPORT_FILE'] = {away!r}",
    "a file": "os.environ['CRYPTMPI_CONFIG'] = {file!r}",
}


@pytest.mark.parametrize("how", LED_AWAY)
def test_a_process_cannot_lead_the_reports_of_others_away(sender, tmp_path, how):
    """What one that it starts leaves in clear is in the job's report, not in another one that nobody reads."""
    static, away, file = sender.command["static"], str(tmp_path / "away.json"), str(tmp_path / "away.toml")
    (tmp_path / "away.toml").write_text(f'report_file = "{away}"\n')
    with (tmp_path / "config" / "cryptmpi" / "config.toml").open("a") as settings:
        settings.write(f'\nreport_file = "{tmp_path}/report.json"\n')
    start = f"os.environ['CRYPTMPI_ALLOW_PROGRAMS'] = {static[0]!r}; subprocess.run(['sh', '-c', {' '.join(static) + '; exit 0'!r}])"
    words = [sys.executable, "-c", f"import os, subprocess; {LED_AWAY[how].format(away=away, file=file)}; {start}"]
    done, seen = sender(words)
    assert done.ok and seen == 1, done.output
    parts = [json.loads(part.read_text()) for part in (tmp_path / "report.json.parts").glob("*.json")]
    reasons = [entry["reason"] for part in parts for entry in part["not_sealed"]]
    assert reasons == [f"allow_programs: {static[0]} ran without CryptMPI"], parts
    assert not list(tmp_path.glob("away.json*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")
@pytest.mark.parametrize("ids", ["os.seteuid(1000)", "os.setegid(1000)"])
def test_a_child_whose_ids_differ_is_not_started(sender, ids):
    """The loader takes no preloaded library there."""
    done, _ = sender([sys.executable, "-c", f"import os, subprocess; {ids}; subprocess.run(['/bin/echo', 'STARTED'])"])
    assert "STARTED" not in done.output and "another effective user or group" in done.output, done.output


@pytest.mark.parametrize("how", ["sh", "env -i", "python", "python spawn", "system", "popen", "script", "fexecve", "execveat",
                                 "spawn elsewhere", "spawn by a copy", "spawn by a number", "pidfd_spawn"])
def test_a_static_child_is_not_started(sender, tmp_path, how):
    command = sender.command["static"]
    (tmp_path / "script").write_text(f"#!{command[0]}\n")
    (tmp_path / "script").chmod(0o755)
    python = {"python": f"import subprocess; subprocess.run({command})",
              "python spawn": f"import os; os.posix_spawn({command[0]!r}, {command}, os.environ)",
              "fexecve": f"import os; os.execve(os.open({command[0]!r}, os.O_RDONLY), {command}, os.environ)",
              "execveat": f"import ctypes, os; C = ctypes.CDLL(None); w = (ctypes.c_char_p * 4)(*[x.encode() for x in {command}], None); "
                          f"C.execveat(-100, w[0], w, (ctypes.c_char_p * 1)(None), 0)"}
    # Its name is another program's here; and a C library that has pidfd_spawn, of whatever age this one is.
    (tmp_path / "here").mkdir()
    shutil.copy(sender.command["dynamic"][0], tmp_path / "here" / "static")
    (tmp_path / "libc.c").write_text(PIDFD_SPAWN)
    if how == "pidfd_spawn":
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libc.so", tmp_path / "libc.c"], check=True)
    start = (f"import ctypes, os; C = ctypes.CDLL(None); w = (ctypes.c_char_p * 4)(*[x.encode() for x in {command}], None); "
             f"e = (ctypes.c_char_p * 1)(None); a = ctypes.create_string_buffer(512); p = ctypes.c_int(); os.chdir({str(tmp_path / 'here')!r}); "
             "C.posix_spawn_file_actions_init(a); C.posix_spawn_file_actions_addchdir_np(a, b'..'); ")
    copied = "b = ctypes.create_string_buffer(512); C.posix_spawn_file_actions_init(b); b.raw = a.raw; "
    number = ("C.posix_spawn_file_actions_init(a); C.posix_spawn_file_actions_addopen(a, 90, b'..', os.O_RDONLY, 0); "
              "C.posix_spawn_file_actions_adddup2(a, 90, 91); C.posix_spawn_file_actions_addfchdir_np(a, 91); ")
    python |= {"spawn elsewhere": start + "C.posix_spawn(ctypes.byref(p), b'./static', a, None, w, e) or os.wait()",
               "spawn by a copy": start + copied + "C.posix_spawn(ctypes.byref(p), b'./static', b, None, w, e) or os.wait()",
               "spawn by a number": start + number + "C.posix_spawn(ctypes.byref(p), b'./static', a, None, w, e) or os.wait()",
               "pidfd_spawn": start + "C.pidfd_spawn(ctypes.byref(p), w[0], None, None, w, e) or os.wait()"}
    words = {"sh": by_shell(command), "env -i": ["env", "-i", *command], "script": ["sh", "-c", f"exec ./script {' '.join(command[1:])}"],
             "system": [sys.executable, "-c", f"import os; os.system({' '.join(command)!r})"],
             "popen": [sys.executable, "-c", f"import ctypes; C = ctypes.CDLL(None); C.popen.restype = ctypes.c_void_p; "
                                             f"C.pclose(ctypes.c_void_p(C.popen({' '.join(command)!r}.encode(), b'r')))"]}
    env = {"LD_PRELOAD": str(tmp_path / "libc.so")} if how == "pidfd_spawn" else {}
    done, seen = sender(words[how] if how in words else [sys.executable, "-c", python[how]], env)
    expect_unseen(seen, done.output)
    lines = [line for line in done.output.splitlines() if line.startswith("cryptmpi") and "statically linked" in line]
    assert len(lines) == 1 and "allow_programs" in lines[0], done.output


@pytest.mark.parametrize("how", ["env -i", "env -u", "unset", "another library", "python", "system", "popen"])
def test_a_dynamic_child_is_covered(sender, how):
    """What is stripped from the environment is put back: the stranger hears no byte of it."""
    command = sender.command["dynamic"]
    strip = "import os; os.unsetenv('LD_PRELOAD'); "
    words = {"env -i": ["env", "-i", *command], "env -u": ["env", "-u", "LD_PRELOAD", *command], "unset": by_shell(command, "unset LD_PRELOAD; "),
             "another library": by_shell(command, "LD_PRELOAD=libm.so.6 "),
             "python": [sys.executable, "-c", f"import subprocess; subprocess.run({command}, env={{}})"],
             "system": [sys.executable, "-c", f"{strip}os.system({' '.join(command)!r})"],
             "popen": [sys.executable, "-c", f"{strip}import ctypes; C = ctypes.CDLL(None); C.popen.restype = ctypes.c_void_p; "
                                             f"C.pclose(ctypes.c_void_p(C.popen({' '.join(command)!r}.encode(), b'r')))"]}
    done, seen = sender(words[how])
    expect_unseen(seen, done.output)
    assert "connection to 10.77.0.2:7777 refused" in done.output, done.output


@MPIS
def test_a_program_that_was_not_started_leaves_the_job_sealed(mpi, job, tmp_path):
    """What tries ldconfig, as Python's ctypes does, goes on without; the report names it."""
    (tmp_path / "nothing.c").write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "-static", "-o", tmp_path / "static", tmp_path / "nothing.c"], check=True)
    done = job.run([job.script(f'{tmp_path}/static || exec "$@"'), *job.program])
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0 and job.verdict.startswith("SEALED:"), done.output
    assert f"closed road       program {tmp_path}/static" in job.report().stdout


def test_a_program_that_a_setting_allows(sender, tmp_path):
    static = sender.command["static"]
    allowed = {"CRYPTMPI_ALLOW_PROGRAMS": static[0], "CRYPTMPI_REPORT_FILE": str(tmp_path / "report.json")}
    done, seen = sender(by_shell(static), env=allowed)
    assert done.ok and seen == 1, done.output
    parts = [json.loads(part.read_text()) for part in (tmp_path / "report.json.parts").glob("*.json")]
    reasons = [entry["reason"] for part in parts for entry in part["not_sealed"]]
    assert reasons == [f"allow_programs: {static[0]} ran without CryptMPI"], parts


@needs("bwrap")
def test_another_root_without_our_library(sender, tmp_path):
    """The loader would only say that it cannot preload us, and go on."""
    root = ["bwrap", "--unshare-user", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
            "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev", "--bind", str(tmp_path), str(tmp_path)]
    done, seen = sender([*root, *sender.command["dynamic"]])
    expect_unseen(seen, done.output)
    assert not done.ok and "is not to be seen from where it would run" in done.output, done.output
    done, seen = sender([*root, "--ro-bind", str(LIBRARIES), str(LIBRARIES), *sender.command["dynamic"]])
    expect_unseen(seen, done.output)
    assert "is not to be seen" not in done.output, done.output


SANDBOX = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The program argv[2], which may read and run what lies in these folders only, and in argv[1]. */
int main(int argc, char** argv) {
    struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE};
    const char* allowed[] = {"/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev", argv[1]};
    int set = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (set < 0 && (errno == ENOSYS || errno == EOPNOTSUPP)) return 77;
    for (unsigned i = 0; i < sizeof allowed / sizeof *allowed; ++i) {
        struct landlock_path_beneath_attr one = {.allowed_access = rules.handled_access_fs, .parent_fd = open(allowed[i], O_PATH)};
        syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &one, 0);
        close(one.parent_fd);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_landlock_restrict_self, set, 0) != 0) return 1;
    execv(argv[2], argv + 2);
    perror("execv");
    return 1;
}
"""


def test_a_sandbox_that_denies_our_library(sender, tmp_path):
    """access() does not see what Landlock denies, and the loader would go on without us."""
    sandbox = tmp_path / "sandbox"
    subprocess.run(["cc", "-O1", "-o", sandbox, "-x", "c", "-"], input=SANDBOX, text=True, check=True)
    if subprocess.run([sandbox, tmp_path, "/bin/true"]).returncode == 77:
        pytest.skip("the kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, lsm=landlock)")
    done, seen = sender([str(sandbox), str(tmp_path), *sender.command["dynamic"]])
    expect_unseen(seen, done.output)
    assert not done.ok and "cannot be loaded where it would run (Permission denied)" in done.output, done.output
    done, seen = sender([str(sandbox), "/", *sender.command["dynamic"]])
    expect_unseen(seen, done.output)
    assert "cannot be loaded" not in done.output, done.output


def test_a_program_without_the_memory_for_our_library(sender):
    """A small program fits beside the C library where ours does not, and the loader would go on without us."""
    done, seen = sender(["sh", "-c", 'ulimit -v 3000; exec "$@"', "sh", *sender.command["dynamic"]])
    expect_unseen(seen, done.output)
    assert not done.ok and "raise the limit (ulimit -v)" in done.output, done.output


@needs("bwrap")
@MPIS
@LAYERS
def test_ranks_in_a_container_that_hides_our_library(mpi, layer, nodes, tmp_path):
    job = Job(mpi, nodes, tmp_path, layer)
    container = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--tmpfs", str(LIBRARIES)]
    done = job.run([*container, *job.program])
    assert done.returncode != 0 and job.verdict.startswith("INCOMPLETE: 0 of 2 ranks"), done.output
    # Sockets are under the channel library in either layer, which looks.
    expect_unseen(job.seen, done.output)
    assert "is not to be seen from where it would run" in done.output, done.output


def test_a_process_that_is_killed_has_told_of_its_exceptions(nodes, tmp_path):
    address = nodes.nodes[1].address
    script = f"import os, socket; s = socket.create_connection(({address!r}, 7777)); s.sendall(b'x'); os.kill(os.getpid(), 9)"
    sealing = Sealing(tmp_path / "config", nodes, COMMAND, {"layer": "channel", "plaintext_peers": address, "report_file": tmp_path / "report.json"})
    with listener(nodes):
        assert nodes.run([COMMAND, "exec", sys.executable, "-c", script], env=sealing.env(), timeout=60).returncode != 0
    (part,) = (tmp_path / "report.json.parts").glob("*.json")
    facts = json.loads(part.read_text())
    assert not facts["ended"] and [entry["reason"] for entry in facts["not_sealed"]] == [f"plaintext_peers allows {address}"]


# What its library does when ours has come to its end, and a program that has such a library.
LATE = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char** environ;
static void connects(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};
    inet_pton(AF_INET, getenv("PEER"), &to.sin_addr);
    connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr*)&to, sizeof to);
}
void touch(void) {}
__attribute__((destructor)) static void late(void) {
    char* words[] = {getenv("ALLOWED"), NULL};
    const char* how = getenv("HOW");
    pid_t child = 0;
    if (strcmp(how, "connect") == 0) connects();
    if (strcmp(how, "spawn") == 0) posix_spawn(&child, words[0], NULL, NULL, words, environ);
    if (strcmp(how, "fork") == 0 && (child = fork()) == 0) {
        connects();
        _exit(0);
    }
    if (strcmp(how, "fork and exec") == 0 && (child = fork()) == 0) execve(words[0], words, environ);
    if (child != 0) waitpid(child, NULL, 0);
}
"""


@pytest.mark.parametrize("how", ["connect", "spawn", "fork", "fork and exec"])
def test_what_comes_after_our_end_is_told(how, nodes, tmp_path):
    address = nodes.nodes[1].address
    (tmp_path / "late.c").write_text(LATE)
    (tmp_path / "main.c").write_text("void touch(void);\nint main(void) { touch(); return 0; }")
    (tmp_path / "nothing.c").write_text("int main(void) { return 0; }")
    for words in (["-shared", "-fPIC", "-o", "liblate.so", "late.c"], ["-static", "-o", "allowed", "nothing.c"],
                  ["-o", "program", "main.c", "-L.", "-llate", f"-Wl,-rpath,{tmp_path}"]):
        subprocess.run(["cc", *words], cwd=tmp_path, check=True)
    allowed = str(tmp_path / "allowed")
    sealing = Sealing(tmp_path / "config", nodes, COMMAND, {"layer": "channel", "plaintext_peers": address, "allow_programs": allowed,
                                                            "report_file": tmp_path / "report.json"})
    with listener(nodes):
        done = nodes.run([COMMAND, "exec", tmp_path / "program"], env={**sealing.env(), "PEER": address, "ALLOWED": allowed, "HOW": how}, timeout=60)
    assert done.ok, done.output
    facts = [json.loads(part.read_text()) for part in (tmp_path / "report.json.parts").glob("*.json")]
    reason = f"plaintext_peers allows {address}" if how in ("connect", "fork") else f"allow_programs: {allowed} ran without CryptMPI"
    assert [entry["reason"] for part in facts for entry in part["not_sealed"]] == [reason], facts
    # The child that is replaced by a program has no end of its own.
    assert [part["ended"] for part in facts] == [how != "fork and exec"], facts


BEHIND_A_MOUNT = """
import ctypes, socket, sys
libc = ctypes.CDLL(None)
NEWNS, REC, PRIVATE = 0x20000, 1 << 14, 1 << 18
assert libc.unshare(NEWNS) == 0 and libc.mount(b"none", b"/", None, ctypes.c_ulong(REC | PRIVATE), None) == 0
canary = open(sys.argv[2], "rb").read()
assert libc.mount(b"none", sys.argv[1].encode(), b"tmpfs", ctypes.c_ulong(0), None) == 0
socket.create_connection((sys.argv[3], 7777)).sendall(canary)
"""


SENDS_A_DATAGRAM = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(open(sys.argv[1], "rb").read(), (sys.argv[2], 7777))
"""
ACCEPTS = """
import socket
listening = socket.create_server(("", 7778))
print("up", flush=True)
try: print("accepted", listening.accept()[0].recv(100))
except ConnectionAbortedError: print("refused")
"""


@pytest.mark.parametrize("how", ["connect", "datagram", "exec", "mount"])
def test_nothing_goes_in_clear_of_which_no_part_can_tell(sender, how, tmp_path):
    """As of a process of another user, in another root, or with a limit on its files."""
    if how == "mount" and os.geteuid() != 0:
        pytest.skip("only root can mount")
    (tmp_path / "reports").mkdir()
    program = sender.command["static" if how == "exec" else "dynamic"]
    sends = [sys.executable, "-c", SENDS_A_DATAGRAM, *program[1:]] if how == "datagram" else program
    words = ["sh", "-c", '(ulimit -f 0; exec "$@") 2>&1 | cat', "sh", *sends]  # what is printed goes into a file
    if how == "mount":
        words = [sys.executable, "-c", BEHIND_A_MOUNT, str(tmp_path / "reports"), *program[1:]]
    env = {"CRYPTMPI_REPORT_FILE": str(tmp_path / "reports" / "report.json"),
           **({"CRYPTMPI_ALLOW_PROGRAMS": program[0]} if how == "exec" else {"CRYPTMPI_PLAINTEXT_PEERS": program[2]})}
    done, seen = sender(words, env)
    expect_unseen(seen, done.output)
    why = "is not the job's folder, or is not to be seen from here" if how == "mount" else "File too large"
    assert re.search(f"refused, because the job's report has to name it and cannot: .*{why}", done.output), done.output


def test_nothing_comes_in_clear_of_which_no_part_can_tell(nodes, tmp_path):
    address = nodes.nodes[1].address
    sealing = Sealing(tmp_path / "config", nodes, COMMAND, {"layer": "channel", "plaintext_peers": address, "report_file": tmp_path / "report.json"})
    line = [COMMAND, "exec", "sh", "-c", '(ulimit -f 0; exec "$@") 2>&1 | cat', "sh", sys.executable, "-c", ACCEPTS]
    accepting = nodes.start(line, env=sealing.env(), stdout=subprocess.PIPE, text=True)
    try:
        assert accepting.stdout.readline() == "up\n"
        connects = f"import socket; s = socket.create_connection(({nodes.nodes[0].address!r}, 7778)); s.sendall(b'x'); s.recv(1)"
        nodes.run([sys.executable, "-c", connects], node=1, timeout=60)
        said = accepting.communicate(timeout=60)[0]
    finally:
        accepting.kill()
    assert "refused, because the job's report has to name it and cannot: cannot write" in said and "\nrefused\n" in said, said


TWICE_ONE_NUMBER = """
import ctypes, os, socket, sys
how, peer = sys.argv[1:]

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def refused(port):
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.77.0.99", port))
    except PermissionError: pass

def in_namespace(work):
    assert ctypes.CDLL(None).unshare(0x20000000) == 0
    child(work)

def by_number(work):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write("99")
    child(lambda: os.getpid() == 100 and work())

def both(one_by_one):
    one_by_one(lambda: socket.create_connection((peer, 7777)))
    one_by_one(lambda: refused(2))

refused(1)
if how == "namespaces": both(lambda work: child(lambda: in_namespace(work)))
else: in_namespace(lambda: both(by_number))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes PID namespaces, and chooses the number of a process")
@pytest.mark.parametrize("how", ["namespaces", "number again"])
def test_processes_that_have_one_number_write_a_part_each(how, nodes, tmp_path):
    address = nodes.nodes[1].address
    sealing = Sealing(tmp_path / "config", nodes, COMMAND, {"layer": "channel", "plaintext_peers": address, "report_file": tmp_path / "report.json"})
    with listener(nodes):
        done = nodes.run([COMMAND, "exec", sys.executable, "-c", TWICE_ONE_NUMBER, how, address], env=sealing.env(), timeout=60)
    if "ns_last_pid" in done.output:
        pytest.skip("the number of a process cannot be chosen here")
    assert done.ok, done.output
    facts = [json.loads(part.read_text()) for part in (tmp_path / "report.json.parts").glob("*.json")]
    numbered = [part for part in facts if part["pid"] == (1 if how == "namespaces" else 100)]
    assert sorted(len(part["not_sealed"]) for part in numbered) == [0, 1], facts
    assert sorted(part["refused_roads"] for part in numbered) == [[], ["UDP to 10.77.0.99:2"]], facts


TELLS_MEANWHILE = """
#include <arpa/inet.h>
#include <pthread.h>
#include <unistd.h>
static void* tells(void* nothing) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    inet_pton(AF_INET, "10.77.0.99", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (int port = 1; port < 1000; ++port) {
        to.sin_port = htons(port);
        sendto(fd, "x", 1, 0, (struct sockaddr*)&to, sizeof to);
    }
    return nothing;
}
int main(int count, char** words) {
    pthread_t thread;
    pthread_create(&thread, NULL, tells, NULL);
    usleep(30000);
    return execv(words[1], words + 1);
}
"""


def test_a_program_that_is_started_while_another_thread_writes_the_part(sender, tmp_path):
    subprocess.run(["cc", "-o", tmp_path / "tells", "-x", "c", "-", "-lpthread"], input=TELLS_MEANWHILE, text=True, check=True)
    static = sender.command["static"]
    for attempt in range(5):
        report = tmp_path / f"report{attempt}.json"
        done, seen = sender([str(tmp_path / "tells"), *static], env={"CRYPTMPI_ALLOW_PROGRAMS": static[0], "CRYPTMPI_REPORT_FILE": str(report)})
        assert done.ok and seen == 1, done.output
        parts = [json.loads(part.read_text()) for part in Path(f"{report}.parts").glob("*.json")]
        assert [entry["reason"] for part in parts for entry in part["not_sealed"]] == [f"allow_programs: {static[0]} ran without CryptMPI"], attempt


@MPIS
def test_datagrams_of_a_helper_are_named_where_any_network_will_do(mpi, nodes, tmp_path):
    """What is said of MPI's own packets says nothing of what a process sends that is no rank."""
    job = Job(mpi, nodes, tmp_path, "mpi")
    sends = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ({nodes.nodes[1].address!r}, 7777))"
    helped = job.script(f'[ "$(hostname)" = {nodes.nodes[0].name} ] && CRYPTMPI_NETWORK=any {sys.executable} -c "{sends}"\nexec "$@"')
    done = job.run([helped, *job.program])
    assert f"network = any lets UDP to {nodes.nodes[1].address}" in job.verdict, done.output


HIDES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
NEWNS, REC, PRIVATE = 0x20000, 1 << 14, 1 << 18
assert libc.unshare(NEWNS) == 0 and libc.mount(b"none", b"/", None, ctypes.c_ulong(REC | PRIVATE), None) == 0
assert libc.mount(b"none", {folder}, b"tmpfs", ctypes.c_ulong(0), None) == 0
os.chdir("/")
connects = "import socket; socket.create_connection(({peer!r}, 7777)).sendall(b'x')"
os.execv(sys.executable, [sys.executable, "-c", connects])
"""


@MPIS
@pytest.mark.parametrize("node", [0, 1])
def test_a_part_that_waits_on_a_node_beside_others_is_fetched(mpi, node, nodes, tmp_path):
    """Of a process that does not see the report's folder, as in a container, while the ranks of its node do."""
    job = Job(mpi, nodes, tmp_path)
    peer = nodes.nodes[1 - node].address
    (tmp_path / "connects.py").write_text(HIDES.format(folder=str(tmp_path).encode(), peer=peer))
    helped = job.script(f'[ "$(hostname)" = {nodes.nodes[node].name} ] && {sys.executable} connects.py\nexec "$@"')
    with nodes.start([sys.executable, "-c", LISTENS], node=1 - node, stdout=subprocess.PIPE, text=True) as listening:
        try:
            assert listening.stdout.readline() == "up\n"
            done = job.run([helped, *job.program], plaintext_peers=f"{peer}:7777")
        finally:
            listening.kill()
    assert "SEALED WITH EXCEPTIONS" in job.verdict and f"plaintext_peers allows {peer}" in job.verdict, done.output


# Several programs in one job


@MPIS
@LAYERS
def test_every_program_of_a_job_is_sealed(mpi, layer, nodes, tmp_path):
    job = Job(mpi, nodes, tmp_path, layer)
    other = shutil.copy(job.program[0], tmp_path / "other")
    done = job.run([*job.program, ":", "-n", "1", str(other), *job.program[1:]], ranks=1)
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0 and job.verdict.startswith("SEALED"), done.output
    facts = json.loads(job.report_file.read_text())
    assert facts["ranks"] == facts["ranks_reported"] == 2
    assert {part["program"] for part in facts["processes"] if part["rank"] >= 0} == {job.program[0], str(other)}
