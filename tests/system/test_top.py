"""cryptmpi top: what it shows of whole jobs across two nodes, in each layer, while they run and after they ended."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BUILD, error_lines
from jobs import SealingUnderTest

from cryptmpi_tools.lab import stacks

COMMAND = BUILD / "bin" / "cryptmpi"
PROGRAM = Path(__file__).parent / "live.c"
FOLDER = Path(f"/dev/shm/cryptmpi-{os.geteuid()}")  # of each node, which has a /dev/shm of its own
PATIENCE = 60
LAYERS = pytest.mark.parametrize("layer, name", [("channel", "openmpi-4.1.4"), ("channel", "mpich-5.0.2-ofi"), ("mpi", "openmpi-4.1.4"),
                                                 ("mpi", "mpich-5.0.2-abi"), ("mpi", "mpich-4.0.2-ucx"), ("fabric", "mpich-5.0.2-ucx"),
                                                 ("fabric", "openmpi-5.0.11-pml-ucx")])
WITHOUT_SESSION = {"XDG_RUNTIME_DIR": ""}  # as in processes that a remote shell starts


class Job:
    """A job of four ranks on two nodes, which runs until it is told to end."""

    def __init__(self, nodes, mpi, sealing, program, folder):
        self.nodes, self.stop, self.log = nodes, folder / "stop", folder / "log"
        self.report = folder / "report.json"
        line = sealing.run_line(mpi, nodes, 4, [program, self.stop], self.report)
        line[2:2] = ["--mpi", str(mpi.mpiexec)]
        environment = {**mpi.env(nodes), **stacks.abi_environment(mpi), **sealing.env(), **WITHOUT_SESSION}
        with open(self.log, "wb") as log:
            self.process = nodes.start(line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)

    def end(self):
        self.stop.touch()
        self.process.wait(PATIENCE)
        return self.process.returncode, self.log.read_text()

    def wait_until_begun(self):
        """Until every rank has heard from all others."""
        until = time.monotonic() + PATIENCE
        while self.log.read_text().count("live: begun") < 4 and time.monotonic() < until:
            time.sleep(0.1)
        assert self.log.read_text().count("live: begun") == 4 and self.process.poll() is None, self.log.read_text()


def look(nodes, node, *options):
    """One document of `cryptmpi top` in a node."""
    process = nodes.start([COMMAND, "top", "--once", "--json", "--interval", "0.3", *options], node=node, env=WITHOUT_SESSION,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and not errors, errors
    return json.loads(out)


def ranks_of(document, layer):
    return {process["rank"]: process for process in document["processes"] if process["library"] == layer and process["role"] == "rank"}


def running(nodes, job, layer):
    """What top shows of the ranks of each node once all of them have sealed something: [{rank: process}, {rank:
    process}]."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert job.process.poll() is None, job.log.read_text()
        shown = [ranks_of(look(nodes, node), layer) for node in (0, 1)]
        if sum(map(len, shown)) == 4 and all(one["sealed_bytes_sent"] > 100_000 for of_node in shown for one in of_node.values()):
            return shown
    raise AssertionError(f"{shown}\n{job.log.read_text()}")


def pages(nodes, node):
    process = nodes.start(["ls", FOLDER], node=node, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return process.communicate(timeout=PATIENCE)[0].decode().split()


def expect_nothing(nodes):
    """Each process has taken its page away; nobody has looked since. Daemons of the launcher end a moment after it."""
    until = time.monotonic() + 10
    while time.monotonic() < until and any(pages(nodes, node) for node in (0, 1)):
        time.sleep(0.1)
    for node in (0, 1):
        assert pages(nodes, node) == [] and look(nodes, node)["processes"] == []


def sealing_of(tmp_path, nodes, layer, **settings):
    # Round trips between ranks of one node count, too, so that each rank has some.
    return SealingUnderTest(tmp_path / "config", nodes, COMMAND, {"layer": layer, "scope": "all", "handshake_timeout_s": 20, **settings})


def started(nodes, tmp_path, build, layer, name, **settings):
    mpi = stacks.stack(name)
    return Job(nodes, mpi, sealing_of(tmp_path, nodes, layer, **settings), build(mpi, PROGRAM), tmp_path)


@LAYERS
def test_ranks_are_shown_while_they_run(nodes, tmp_path, build, layer, name):
    job = started(nodes, tmp_path, build, layer, name)
    first = running(nodes, job, layer)
    assert sorted([*first[0], *first[1]]) == [0, 1, 2, 3] and all(len(shown) == 2 for shown in first), first
    for node, before in enumerate(first):
        document = look(nodes, node)
        for rank, now in ranks_of(document, layer).items():
            was = before[rank]
            assert now["pid"] == was["pid"] and now["node"] == f"node{node + 1}" and now["layer"] == layer, now
            assert now["program"].endswith("/live") and now["suite"] == "AES-256-GCM" and now["module"] and now["job_id"], now
            assert now["sealed_bytes_sent"] > was["sealed_bytes_sent"], (was, now)
            assert now["sealed_bytes_received"] > was["sealed_bytes_received"], (was, now)
            assert now["sealed_records_sent"] > was["sealed_records_sent"], (was, now)
            assert now["per_second"]["sealed_bytes_sent"] > 10_000 and now["per_second"]["sealed_bytes_received"] > 10_000, now
            assert now["sealed_connections"] > 0 and now["failed_opens"] == now["errors"] == 0, now
        assert (layer != "mpi") or all(now["mpi"] for now in ranks_of(document, layer).values()), document
    last = {rank: shown for node in (0, 1) for rank, shown in ranks_of(look(nodes, node), layer).items()}
    status, said = job.end()
    assert status == 0 and "live: done" in said, said
    # What was shown is what the report says, as far as it had come.
    parts = {part["rank"]: part for part in json.loads(job.report.read_text())["processes"] if part["library"] == layer and part["rank"] >= 0}
    for rank, shown in last.items():
        assert shown["sealed_bytes_sent"] <= parts[rank]["sealed_bytes_sent"]
        assert shown["sealed_records_received"] <= parts[rank]["sealed_records_received"]
    expect_nothing(nodes)


@pytest.mark.parametrize("layer, name", [("channel", "openmpi-4.1.4"), ("mpi", "openmpi-4.1.4"), ("fabric", "mpich-5.0.2-ucx")])
def test_a_killed_rank_is_not_shown(nodes, tmp_path, build, layer, name):
    job = started(nodes, tmp_path, build, layer, name)
    victim = running(nodes, job, layer)[1].popitem()[1]
    os.kill(victim["pid"], signal.SIGKILL)
    status, said = job.end()
    assert status != 0, said
    assert any(page.startswith(f"{victim['pid']}.") for page in pages(nodes, 1)), "else this shows nothing"
    shown = look(nodes, 1)["processes"]
    assert victim["pid"] not in [one["pid"] for one in shown], shown
    assert not any(page.startswith(f"{victim['pid']}.") for page in pages(nodes, 1)), "it is removed"


def test_the_next_job_removes_pages_of_killed_ranks_and_no_others(nodes, tmp_path, build):
    job = started(nodes, tmp_path, build, "channel", "openmpi-4.1.4")
    victims = [shown.popitem()[1]["pid"] for shown in running(nodes, job, "channel")]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    assert job.end()[0] != 0
    for node, victim in enumerate(victims):
        assert any(page.startswith(f"{victim}.") for page in pages(nodes, node)), "else this shows nothing"
    (tmp_path / "stop").unlink()
    other = started(nodes, tmp_path, build, "channel", "openmpi-4.1.4")
    until = time.monotonic() + PATIENCE
    left = victims
    while left and time.monotonic() < until:
        left = [page for node in (0, 1) for page in pages(nodes, node) if int(page.split(".")[0]) in victims]
    assert not left
    # A job that begins now leaves the pages of the one that runs.
    shown = running(nodes, other, "channel")
    begun = nodes.start([COMMAND, "exec", "true"], env={**sealing_of(tmp_path, nodes, "channel").env(), **WITHOUT_SESSION})
    assert begun.wait(PATIENCE) == 0
    assert set(ranks_of(look(nodes, 0), "channel")) == set(shown[0])
    status, said = other.end()
    assert status == 0, said


@pytest.mark.parametrize("layer, name", [("channel", "openmpi-4.1.4"), ("mpi", "openmpi-4.1.4"), ("fabric", "mpich-5.0.2-ucx")])
def test_a_job_may_be_hidden(nodes, tmp_path, build, layer, name):
    job = started(nodes, tmp_path, build, layer, name, live="false")
    job.wait_until_begun()
    for node in (0, 1):
        assert look(nodes, node)["processes"] == [] and pages(nodes, node) == []
    status, said = job.end()
    assert status == 0 and "live: done" in said, said


def test_a_folder_of_somebody_else_costs_the_page_and_nothing_more(nodes, tmp_path, build):
    nodes.run(["sh", "-c", f"rm -rf {FOLDER}; mkdir -m 700 {FOLDER}; chown 54321 {FOLDER}"], node=0)
    try:
        job = started(nodes, tmp_path, build, "channel", "openmpi-4.1.4")
        job.wait_until_begun()
        assert look(nodes, 0)["processes"] == [] and pages(nodes, 0) == []
        status, said = job.end()
        assert status == 0 and "live: done" in said and not [line for line in error_lines(said) if "top" in line], said
    finally:
        nodes.run(["rm", "-rf", FOLDER], node=0)


def test_table_and_numbers_for_prometheus(nodes, tmp_path, build):
    job = started(nodes, tmp_path, build, "channel", "openmpi-4.1.4")
    running(nodes, job, "channel")
    file = tmp_path / "cryptmpi.prom"
    done = subprocess_of(nodes, ["top", "--once", "--interval", "0.2"])
    assert "layer channel, AES-256-GCM" in done and "RANK" in done and "/s" in done and "live" in done, done
    assert "\x1b" not in done
    subprocess_of(nodes, ["top", "--once", "--interval", "0.2", "--prometheus", file])
    text = file.read_text()
    assert 'cryptmpi_live_sealed_sent_bytes_total{job="' in text and 'rank="0"' in text, text
    assert [path.name for path in tmp_path.glob("cryptmpi.prom*")] == ["cryptmpi.prom"]
    assert file.stat().st_mode & 0o777 == 0o644
    on = nodes.start([COMMAND, "top", "--interval", "0.2", "--prometheus", file], env=WITHOUT_SESSION, stdout=subprocess.PIPE)
    file.unlink()
    until = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.1)
    on.terminate()
    assert on.communicate(timeout=PATIENCE)[0] == b"" and on.returncode == 0
    assert file.exists()
    job.end()


def subprocess_of(nodes, arguments, node=0):
    process = nodes.start([COMMAND, *arguments], node=node, env=WITHOUT_SESSION, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = process.communicate(timeout=PATIENCE)[0].decode()
    assert process.returncode == 0, out
    return out


def test_where_nothing_runs_one_line_says_so(nodes):
    assert "no process of a sealed job runs on this node" in subprocess_of(nodes, ["top"])
    document = json.loads(subprocess_of(nodes, ["top", "--once", "--json"]))
    assert document["processes"] == []


@pytest.mark.parametrize("arguments", [["--interval", "0"], ["--interval", "x"], ["--prometheus", "/nowhere/file", "--once"], ["more"]])
def test_mistakes_are_told(arguments):
    done = subprocess.run([COMMAND, "top", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (1, 2) and done.stderr.startswith("cryptmpi: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("end", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_on_a_terminal_it_draws_again_until_a_key(end):
    child, terminal = pty.fork()
    if child == 0:
        os.execve(COMMAND, [str(COMMAND), "top", "--interval", "0.2"], {**os.environ, **WITHOUT_SESSION})
    shown = b""
    until = time.monotonic() + PATIENCE
    while shown.count(b"\x1b[H") < 3 and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
    assert shown.startswith(b"\x1b[?1049h\x1b[?25l") and b"q ends it" in shown, shown
    os.write(terminal, end)
    while select.select([terminal], [], [], 5)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    assert os.waitpid(child, 0)[1] == 0
    assert shown.endswith(b"\x1b[?25h\x1b[?1049l"), shown[-100:]
    os.close(terminal)


FORKING = """
import os, socket, sys, threading, time
listening = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listening.getsockname())
far, _ = listening.accept()
threading.Thread(target=lambda: [None for _ in iter(lambda: far.recv(65536), b"")], daemon=True).start()
near.sendall(b"p" * 5000)
child = os.fork()
if child == 0:
    near.sendall(b"c" * 700)
    print("child", flush=True)
    sys.stdin.read(1)
    os._exit(0)
print("parent", flush=True)
sys.stdin.read(1)
os.waitpid(child, 0)
os.execvp("sleep", ["sleep", "60"])
"""


def test_a_child_counts_for_itself_and_a_program_that_takes_a_place_has_nothing(nodes, sealing):
    environment = {**sealing.environment(scope="all", job_id="forking"), **WITHOUT_SESSION}
    process = nodes.start(["/usr/bin/python3", "-c", FORKING], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        said = {process.stdout.readline().strip() for _ in range(2)}
        assert said == {b"child", b"parent"}
        shown = {one["pid"]: one["sealed_bytes_sent"] for one in look(nodes, 0)["processes"] if one["job_id"] == "forking"}
        assert shown.pop(process.pid) == 5000 and list(shown.values()) == [700], shown
        process.stdin.write(b"..")
        process.stdin.close()
        until = time.monotonic() + PATIENCE
        while pages(nodes, 0) and time.monotonic() < until:
            time.sleep(0.1)
        assert process.poll() is None and Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n" and pages(nodes, 0) == []
    finally:
        process.kill()
        process.wait()
