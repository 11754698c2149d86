"""A fresh key for each job of `cryptmpi run`, on nodes that share no home: carried by the remote shell, kept in memory,
gone with the job."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster, await_that
from conftest import BUILD, expect_unseen

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.capture import count

COMMAND = BUILD / "bin" / "cryptmpi"
HERE = Path(__file__).parent
NOT_SEALED, REFUSED = 123, 125
FAMILIES = [stacks.stack(name) for name in ("openmpi-4.1.4", "mpich-5.0.2-ofi")]
MPIS = pytest.mark.parametrize("mpi", FAMILIES, ids=lambda mpi: mpi.name)
EVERY = pytest.mark.parametrize("mpi", stacks.STACKS, ids=lambda mpi: mpi.name)
LAUNCHER_NODE, OTHER_NODE = 0, 1


@contextlib.contextmanager
def spied(folder):
    """A program that looks for the key on its node before it becomes the real one."""
    (folder / "spied").mkdir(exist_ok=True)
    script = folder / "wrapper"
    script.write_text(f'#!/bin/sh\n{sys.executable} {HERE / "spying.py"} {folder / "spied"} && exec "$@"\n')
    script.chmod(0o755)
    yield [str(script)]


def facts(folder):
    return [json.loads(file.read_text()) for file in sorted((folder / "spied").glob("*.json"))]


def key_of(fact):
    return bytes(255 - byte for byte in bytes.fromhex(fact["complement"]))


@EVERY
def test_a_newcomer_on_nodes_that_share_no_home(mpi, cluster, canary, tmp_path):
    """No keygen, no settings: sealed, proven, and nothing of the key is left or was to be seen."""
    with spied(tmp_path) as wrapper, cluster.lab.capture(tmp_path / "wire.pcap"):
        done = cluster.run(mpi, [*wrapper, *canary(mpi)])
    assert done.returncode == 0, done.output
    assert f"made the key file {cluster.homes[0]}/.config/cryptmpi/job.key" in done.output
    (report,) = cluster.reports()
    facts_of_job = json.loads(report.read_text())
    assert facts_of_job["complete"] and facts_of_job["ranks_reported"] == 2 and len(facts_of_job["nodes"]) == 2, facts_of_job
    checked = cluster.check("--check", report)
    assert checked.returncode == 0 and checked.stdout.startswith("SEALED:"), checked

    seen = facts(tmp_path)
    assert len(seen) == 2
    key = key_of(seen[0])
    for fact in seen:
        assert key_of(fact) == key and fact["mode"] == 0o600 and fact["device"] and fact["seen"] == [], fact
    forms = [key, key.hex().encode(), (tmp_path / "canary.bin").read_bytes()]
    expect_unseen(sum(count(tmp_path / "wire.pcap", forms)[0].values()))
    for file in tmp_path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            assert key not in content and key.hex().encode() not in content, file
    assert await_that(lambda: not cluster.keys()), cluster.keys()
    assert not any(name.startswith("cryptmpi-parts-") for node in (0, 1) for name in cluster.memory(node))


@MPIS
@pytest.mark.parametrize("there", ["none", "another"])
def test_the_settings_file_holds_on_every_node(mpi, there, cluster, canary, tmp_path):
    """As its user wrote it where the job was started; what another node's file says, and its login shell, is not
    asked."""
    folders = [home / ".config" / "cryptmpi" for home in cluster.homes]
    for folder in folders:
        folder.mkdir(parents=True)
    (folders[0] / "config.toml").write_text('cipher = "AES-128-GCM"\nscope = "all"\nabort_after_s = 7\ncheck_addresses = false\n'
                                            'allow_programs = ["/sbin/one", "/sbin/two"]\nkey_file = "~/mine.key"\njob_key = "fresh"\n')
    # The others' homes are to be seen on their own nodes alone.
    theirs = 'enabled = false\nplaintext_peers = ["10.77.0.0/24"]\ncheck_addresses = true\n'
    if there == "another":
        cluster.within(cluster.lab.nodes[1], "sh", "-c", f"mkdir -p {folders[1]}; printf '%s' '{theirs}' >{folders[1]}/config.toml")
        rsh = cluster.rsh.read_text()
        cluster.rsh.write_text(rsh.replace("exec env -i ", "exec env -i CRYPTMPI_PLAINTEXT_PEERS=10.77.0.0/24 "))
    names = "CIPHER SCOPE ABORT_AFTER_S CHECK_ADDRESSES ALLOW_PROGRAMS JOB_KEY PLAINTEXT_PEERS CONFIG"
    script = tmp_path / "tells"
    script.write_text(f'#!/bin/sh\nfor name in {names}; do eval "value=\\$CRYPTMPI_$name"; told="$told$name=$value "; done\n'
                      f'echo "$told" >{tmp_path}/told.$(hostname)\nexec "$@"\n')
    script.chmod(0o755)
    with cluster.lab.capture(tmp_path / "wire.pcap"):
        done = cluster.run(mpi, [str(script), *canary(mpi)])
    assert done.returncode == 0, done.output
    told = {file.read_text() for file in tmp_path.glob("told.*")}
    assert len(list(tmp_path.glob("told.*"))) == 2
    assert told == {"CIPHER=AES-128-GCM SCOPE=all ABORT_AFTER_S=7 CHECK_ADDRESSES=false ALLOW_PROGRAMS=/sbin/one,/sbin/two JOB_KEY=fresh "
                    "PLAINTEXT_PEERS= CONFIG= \n"}, told
    form = (tmp_path / "canary.bin").read_bytes()
    expect_unseen(count(tmp_path / "wire.pcap", [form])[0][form])
    checked = cluster.check("--check", *cluster.reports())
    assert checked.returncode == 0 and checked.stdout.startswith("SEALED:"), checked


def test_a_setting_that_cannot_be_passed_on_is_refused(cluster, canary):
    folder = cluster.homes[0] / ".config" / "cryptmpi"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('allow_programs = ["/sbin/one,/sbin/two"]\n')
    mpi = FAMILIES[0]
    done = cluster.run(mpi, canary(mpi))
    assert done.returncode == REFUSED and "config.toml:1: allow_programs: cannot be passed on" in done.output, done.output


@MPIS
def test_two_jobs_have_two_keys_and_one_lasting_one(mpi, cluster, canary, tmp_path):
    keys = []
    for _ in range(2):
        with spied(tmp_path) as wrapper:
            done = cluster.run(mpi, [*wrapper, *canary(mpi)], more=["--layer", "mpi"])
        assert done.returncode == 0, done.output
        keys.append(key_of(facts(tmp_path)[0]))
    lasting = bytes.fromhex((cluster.homes[0] / ".config/cryptmpi/job.key").read_text().split()[1])
    assert len({*keys, lasting}) == 3
    assert [cluster.check("--check", report).returncode for report in cluster.reports()] == [0, 0]


def test_three_nodes_by_a_tree(three_nodes, canary, tmp_path):
    """Open MPI's daemon on the second node starts that of the third."""
    mpi = stacks.stack("openmpi-4.1.4")
    cluster = Cluster(three_nodes, tmp_path)
    try:
        with spied(tmp_path) as wrapper:
            done = cluster.run(mpi, [*wrapper, *canary(mpi)], ranks=6, hosts="node1:2,node2:2,node3:2",
                               options=["--mca", "routed", "radix", "--mca", "routed_radix", "1"])
        assert done.returncode == 0, done.output
        assert len({key_of(fact) for fact in facts(tmp_path)}) == 1 and len(facts(tmp_path)) == 3
        (report,) = cluster.reports()
        assert len(json.loads(report.read_text())["nodes"]) == 3
        assert await_that(lambda: not cluster.keys()), cluster.keys()
    finally:
        cluster.close()


ENDLESS = ["sh", "-c", "echo here; exec sleep 100"]


@MPIS
def test_a_job_that_is_ended_leaves_no_key(mpi, cluster, canary):
    canary(mpi)  # skips where the MPI is not installed
    process = cluster.start(mpi, ENDLESS)
    assert "here\n" in process.stdout, "no rank"
    assert await_that(lambda: len(cluster.keys()) == 2)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode != 0, output
    assert await_that(lambda: not cluster.keys()), cluster.keys()


@MPIS
def test_a_job_that_aborts_leaves_no_key(mpi, cluster, tmp_path, build):
    source = tmp_path / "aborting.c"
    source.write_text("#include <mpi.h>\nint main(int c, char** v) { int r; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r);\n"
                      "if (r == 1) MPI_Abort(MPI_COMM_WORLD, 7); MPI_Barrier(MPI_COMM_WORLD); MPI_Finalize(); }\n")
    done = cluster.run(mpi, [build(mpi, source)])
    assert done.returncode not in (0, NOT_SEALED), done.output
    assert await_that(lambda: not cluster.keys()), cluster.keys()


def processes_that_hold(key):
    """Those that have a lock on the file."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(key in os.readlink(fd) for fd in (process / "fd").iterdir()):
                yield int(process.name)


@MPIS
def test_the_next_job_removes_what_killed_holders_left(mpi, cluster, canary):
    program = canary(mpi)
    process = cluster.start(mpi, ENDLESS)
    assert "here\n" in process.stdout, "no rank"
    assert await_that(lambda: len(cluster.keys()) == 2)
    (key,) = set(cluster.keys())
    holders = list(processes_that_hold(key))
    for how in (signal.SIGSTOP, signal.SIGKILL):  # the end of one would be seen by the next
        for holder in holders:
            os.kill(holder, how)
    process.kill()
    process.wait()
    cluster.lab.end_processes()
    assert cluster.keys() == [key, key]
    assert cluster.run(mpi, program).returncode == 0
    assert await_that(lambda: not cluster.keys()), cluster.keys()


def test_a_node_whose_daemon_is_left_alone_keeps_the_key(cluster):
    """A daemon that leaves its shell is still one of the job's: as Open MPI's do."""
    key, name = "11" * 32, f"/dev/shm/cryptmpi-key-{'ab' * 16}"
    script = f"setsid sh -c 'sleep 3; test -s {name} && echo there > {cluster.folder}/late' </dev/null >/dev/null 2>&1 & exit 6"
    done = exec_on_stdin(cluster, f"cryptmpi-job-key-1 {key}\n", name, ["sh", "-c", script])
    assert done.returncode == 6, done
    assert cluster.memory(LAUNCHER_NODE), "it went with the shell"
    assert await_that(lambda: not cluster.memory(LAUNCHER_NODE))
    assert (cluster.folder / "late").exists()


def exec_on_stdin(cluster, text, name, program, **popen):
    line = [COMMAND, "exec", "--role", "launcher", "--job", "j", "--key-on-stdin", "--set", f"KEY_FILE={name}", "--", *program]
    process = cluster.lab.start(line, env={"HOME": cluster.homes[0]}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **popen)
    output, errors = process.communicate(text, timeout=30)
    return subprocess.CompletedProcess(line, process.returncode, output, errors)


NAME = f"/dev/shm/cryptmpi-key-{'cd' * 16}"
LINE = f"cryptmpi-job-key-1 {'5a' * 32}\n"


def test_the_rest_of_the_input_is_the_programs(cluster):
    done = exec_on_stdin(cluster, LINE + "what follows\n", NAME, ["sh", "-c", "cat; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "what follows\n", "")
    assert await_that(lambda: not cluster.memory(LAUNCHER_NODE))


@pytest.mark.parametrize("text, piece", [("", "is empty"), ("hello\n", "does not begin"), (LINE[:40], "hexadecimal"),
                                         (LINE.replace("5a5a", "5x5x"), "no hexadecimal digit")])
def test_what_is_no_key_is_refused(cluster, text, piece):
    done = exec_on_stdin(cluster, text, NAME, ["echo", "started"])
    assert done.returncode == REFUSED and done.stdout == "" and done.stderr.count("\n") == 1, done
    assert piece in done.stderr and "ssh without -n" in done.stderr and "5a5a" not in done.stderr
    assert not cluster.memory(LAUNCHER_NODE)


@pytest.mark.parametrize("place", ["/tmp/key", "/dev/shm/../etc/passwd", "/dev/shm/cryptmpi-key-1", "/dev/shm/other"])
def test_it_goes_nowhere_else(cluster, place):
    done = exec_on_stdin(cluster, LINE, place, ["echo", "started"])
    assert done.returncode == REFUSED and "no place of a job's fresh key" in done.stderr and done.stdout == "", done


@pytest.mark.parametrize("make, piece", [
    (f"ln -s {NAME}x {NAME}", "symbolic links"),
    (f"echo cryptmpi-job-key-1 {'5a' * 32} > {NAME} && chmod 600 {NAME} && chown 65534 {NAME}", "belongs to user 65534"),
    (f"(umask 077; echo cryptmpi-job-key-1 {'5a' * 32} > {NAME}); chmod 644 {NAME}", "open to other users"),
    (f"mkdir {NAME}", "directory"),
], ids=["symlink", "another-user", "open", "folder"])
def test_a_file_that_is_there_already_is_not_believed(cluster, make, piece):
    cluster.within(cluster.lab.nodes[0], "sh", "-c", make)
    done = exec_on_stdin(cluster, LINE, NAME, ["echo", "started"])
    assert done.returncode == REFUSED and done.stdout == "" and piece in done.stderr, done
    assert done.stderr.count("\n") == 1


def test_another_key_that_somebody_holds_is_not_replaced(cluster):
    """Two jobs never have one name; whoever leads them to one gets neither of them to take the other's key."""
    holding = cluster.lab.start([COMMAND, "exec", "--role", "launcher", "--job", "j", "--key-on-stdin", "--set", f"KEY_FILE={NAME}", "--",
                                 "sh", "-c", "echo ready; cat"], env={"HOME": cluster.homes[0]}, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
    holding.stdin.write(LINE)
    holding.stdin.flush()
    assert holding.stdout.readline() == "ready\n"
    other = exec_on_stdin(cluster, LINE.replace("5a5a", "a5a5"), NAME, ["echo", "started"])
    assert other.returncode == REFUSED and "another key" in other.stderr and other.stdout == "", other
    same = exec_on_stdin(cluster, LINE, NAME, ["echo", "started"])
    assert same.returncode == 0 and same.stdout == "started\n", same
    assert cluster.memory(LAUNCHER_NODE), "the second one took it away from the first"
    holding.stdin.close()
    assert holding.wait(timeout=20) == 0
    assert await_that(lambda: not cluster.memory(LAUNCHER_NODE))


def test_a_full_memory_is_said(cluster):
    cluster.within(cluster.lab.nodes[0], "sh", "-c", "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full")
    try:
        done = exec_on_stdin(cluster, LINE, NAME, ["echo", "started"])
        assert done.returncode == REFUSED and done.stdout == "" and done.stderr.count("\n") == 1 and "no room" in done.stderr, done
    finally:
        cluster.within(cluster.lab.nodes[0], "umount", "/dev/shm")


def test_signals_reach_the_program(cluster):
    process = cluster.lab.start([COMMAND, "exec", "--role", "launcher", "--job", "j", "--key-on-stdin", "--set", f"KEY_FILE={NAME}", "--",
                                 "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"], env={"HOME": cluster.homes[0]},
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(LINE)
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(timeout=20) == 9
    assert await_that(lambda: not cluster.memory(LAUNCHER_NODE))


def test_a_killed_holder_ends_the_program(cluster):
    """It would go on under a key that the next job removes."""
    line = [COMMAND, "exec", "--role", "launcher", "--job", "j", "--key-on-stdin", "--set", f"KEY_FILE={NAME}", "--", "sh", "-c",
            "trap 'echo ended; exit 9' TERM; echo ready; while :; do sleep 0.1; done"]
    process = cluster.lab.start(line, env={"HOME": cluster.homes[0]}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)
    process.stdin.write(LINE)
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n"
    (holder,) = processes_that_hold(Path(NAME).name)
    os.kill(holder, signal.SIGKILL)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == REFUSED and output == "ended\n" and "kept the job's key on this node was killed" in errors
    assert cluster.memory(LAUNCHER_NODE) == [Path(NAME).name]
    assert exec_on_stdin(cluster, LINE, NAME.replace("cd", "ce"), ["true"]).returncode == 0
    assert await_that(lambda: not cluster.memory(LAUNCHER_NODE))


def test_a_key_that_is_removed_comes_back(cluster):
    """As where systemd-logind removes what a user has in /dev/shm when their last session ends (RemoveIPC)."""
    script = f"rm {NAME}; for i in $(seq 100); do [ -s {NAME} ] && exit 0; sleep 0.2; done; exit 1"
    assert exec_on_stdin(cluster, LINE, NAME, ["sh", "-c", script]).returncode == 0
    assert await_that(lambda: not cluster.memory(LAUNCHER_NODE))


SPAWNING = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
    MPI_Comm parent, child;
    int number = 17;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "host", "node2");
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_SELF, &child, MPI_ERRCODES_IGNORE);
        MPI_Send(&number, 1, MPI_INT, 0, 0, child);
        MPI_Comm_disconnect(&child);
    } else {
        MPI_Recv(&number, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE);
        printf("child got %d\\n", number);
        fflush(stdout);
        MPI_Comm_disconnect(&parent);
    }
    MPI_Finalize();
}
"""


@MPIS
def test_spawned_ranks_have_the_key_too(mpi, cluster, tmp_path, build):
    (tmp_path / "spawning.c").write_text(SPAWNING)
    done = cluster.run(mpi, [build(mpi, tmp_path / "spawning.c")], ranks=1, hosts="node1:1,node2:1", more=["--layer", "channel"])
    assert done.returncode == 0 and "child got 17" in done.output, done.output
    (report,) = cluster.reports()
    assert json.loads(report.read_text())["ranks_reported"] == 2
    assert await_that(lambda: not cluster.keys()), cluster.keys()


@MPIS
def test_a_named_key_file_is_used(mpi, cluster, canary, tmp_path):
    """As before: all nodes need it, and no key is drawn."""
    shared = tmp_path / "shared.key"
    subprocess.run([COMMAND, "keygen", "--key-file", shared], check=True, capture_output=True)
    with spied(tmp_path) as wrapper:
        done = cluster.run(mpi, [*wrapper, *canary(mpi)], key_file=shared)
    assert done.returncode == 0, done.output
    assert [fact["file"] for fact in facts(tmp_path)] == [str(shared)] * 2
    (report,) = cluster.reports()  # its parts were fetched all the same
    assert json.loads(report.read_text())["ranks_reported"] == 2


@MPIS
def test_by_job_key_file_a_node_without_it_is_refused(mpi, cluster, canary):
    done = cluster.run(mpi, canary(mpi), job_key="file")
    assert done.returncode == REFUSED and "cryptmpi keygen" in done.output, done.output  # the launcher's node has none, either
    subprocess.run([COMMAND, "keygen"], check=True, capture_output=True, env={"PATH": os.environ["PATH"], "HOME": str(cluster.homes[0])})
    done = cluster.run(mpi, canary(mpi), job_key="file")
    assert done.returncode not in (0, NOT_SEALED) and "job.key is missing" in done.output, done.output


def test_parts_of_a_fresh_key_cannot_be_checked_later(cluster, tmp_path, canary):
    """Those that a run left when it was killed."""
    mpi = FAMILIES[0]
    canary(mpi)
    report = cluster.homes[0] / "report.json"
    process = cluster.start(mpi, ["sh", "-c", "echo here; sleep 100"], more=["--report", report])
    assert "here\n" in process.stdout
    process.kill()
    process.wait()
    cluster.lab.end_processes()
    (Path(f"{report}.parts") / "node1.1.channel.1.json").write_text(json.dumps({"job_id": "x", "signature": "00"}))
    subprocess.run([COMMAND, "keygen"], capture_output=True, env={"PATH": os.environ["PATH"], "HOME": str(cluster.homes[0])})
    done = cluster.check("--check", report)
    assert done.returncode == NOT_SEALED and "FAILED" in done.stdout and "it cannot be checked any more" in done.stdout, done


def test_parts_that_cannot_be_fetched(cluster, canary, tmp_path):
    """The verdict is never good without them, though all ranks that the launcher started were heard."""
    mpi = FAMILIES[0]
    broken = tmp_path / "broken-rsh"
    broken.write_text(f'#!/bin/sh\ncase "$*" in *" collect "*) exit 1;; esac\nexec {cluster.rsh} "$@"\n')
    broken.chmod(0o755)
    done = cluster.run(mpi, canary(mpi), rsh=broken)
    assert done.returncode == NOT_SEALED and "INCOMPLETE" in done.output and "could not be fetched from node2" in done.output, done.output


def test_a_part_that_another_node_forges_is_not_believed(cluster, canary, tmp_path):
    """What a node sends at the end is looked at as any part is."""
    mpi = FAMILIES[0]
    forged = tmp_path / "forging-rsh"
    part = json.dumps({"cryptmpi_part": "node2.1.channel.1.json", "text": json.dumps({"job_id": "j", "rank": 1, "signature": "00" * 32})})
    escaping = json.dumps({"cryptmpi_part": "../../escaped.json", "text": "{}"})
    forged.write_text(f"#!/bin/sh\ncase \"$*\" in *\" collect \"*) echo '{part}'; echo '{escaping}'; echo '{{\"cryptmpi_parts\": 2}}'; exit ;; "
                      f"esac\nexec {cluster.rsh} \"$@\"\n")
    forged.chmod(0o755)
    done = cluster.run(mpi, canary(mpi), rsh=forged, job_id="j")
    assert done.returncode == NOT_SEALED and "FAILED" in done.output, done.output
    assert not list(tmp_path.rglob("escaped.json"))
