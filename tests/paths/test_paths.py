"""A newcomer's five ways to a first sealed job: the lines of the pages, each timed. -s shows the table of
docs/index.md.

What is not there is stood in for: kubectl and the MPI Operator by what tests/kubernetes does in their place."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY)]

from cryptmpi_tools.lab.nodes import Lab, acquire_namespaces, enter  # noqa: E402
from cryptmpi_tools.lab.programs import CANARY  # noqa: E402
from cryptmpi_tools.lab.slurm import Slurm, missing  # noqa: E402
from cryptmpi_tools.lab.stacks import stack  # noqa: E402

BIN = REPOSITORY / "build" / "release" / "bin"
DOCS = REPOSITORY / "docs"
MOST_LINES = 3
OPENMPI = stack("openmpi-4.1.4")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def module(suite, name):
    """The code of another suite's tests."""
    described = importlib.util.spec_from_file_location(name, REPOSITORY / "tests" / suite / f"{name}.py")
    loaded = importlib.util.module_from_spec(described)
    described.loader.exec_module(loaded)
    return loaded


containers = module("containers", "test_containers")
kubernetes = module("kubernetes", "test_operator")
folder, built, nodes, job, files = containers.folder, containers.built, containers.nodes, containers.job, kubernetes.files


def lines_of(page, after):
    """The first block of lines below these words of a page."""
    return re.search(r"^```sh\n(.*?)^```$", (DOCS / page).read_text().split(after, 1)[1], flags=re.MULTILINE | re.DOTALL)[1].splitlines()


@pytest.fixture(scope="module")
def table():
    rows = []
    yield rows
    loads = " ".join(f"{load:.0f}" for load in os.getloadavg())
    print(f"\n\nload {loads} on {os.cpu_count()} cores\n| way | lines | seconds each |\n|---|---|---|")
    for way, seconds in rows:
        print(f"| {way} | {len(seconds)} | {', '.join(f'{one:.1f}' for one in seconds)} |")


def timed(table, way, steps):
    """What each step says, and a row of the table."""
    assert 0 < len(steps) <= MOST_LINES, f"{way} takes {len(steps)} lines"
    said, seconds = [], []
    for step in steps:
        began = time.monotonic()
        said.append(step())
        seconds.append(time.monotonic() - began)
    table.append((way, seconds))
    return "".join(said)


@pytest.fixture(scope="module", autouse=True)
def may_make_nodes():
    if reason := acquire_namespaces() if os.geteuid() == 0 else "only root can make nodes in these tests":
        pytest.skip(reason)


class Shell:
    """A user's shell in the first node of a lab, in a folder with ./program."""

    def __init__(self, lab, path):
        self.lab, self.path = lab, path
        subprocess.run([OPENMPI.mpicc, "-o", path / "program", CANARY], check=True)
        (path / "canary.bin").write_bytes(os.urandom(32))
        self.environment = {**AS_ROOT, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(path / "config")}

    def step(self, line):
        def run():
            done = self.lab.run(["sh", "-c", line.replace("./program", "./program canary.bin messages")], env=self.environment, cwd=self.path)
            assert done.ok, f"{line}: {done.output}"
            return done.output

        return run


def test_one_machine(table, tmp_path):
    with Lab(nodes=1) as lab:
        shell = Shell(lab, tmp_path)
        said = timed(table, "one machine", [shell.step(line) for line in lines_of("index.md", "On one machine,")])
    assert "all as sent" in said and "SEALED" in said, said


def start_ssh(lab, path):
    """root's own folder of ssh on each node, and a daemon on the second that takes its key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path / "id_ed25519"], check=True)
    public = (path / "id_ed25519.pub").read_text()
    (path / "authorized_keys").write_text(public)
    (path / "known_hosts").write_text(f"node2 {public}")
    for node in lab.nodes:
        place = f"mkdir -p /root/.ssh /run/sshd && mount -t tmpfs -o mode=700 tmpfs /root/.ssh && cp {path}/* /root/.ssh"
        subprocess.run([*enter(node.pid), "sh", "-c", f"{place} && chmod 600 /root/.ssh/*"], check=True)
    options = ["HostKey=/root/.ssh/id_ed25519", "PidFile=none", "UsePAM=no", "PermitRootLogin=prohibit-password"]
    return subprocess.Popen([*enter(lab.nodes[1].pid), "/usr/sbin/sshd", "-D", "-f", "/dev/null", *(word for one in options for word in ("-o", one))])


def test_nodes_by_ssh(table, tmp_path):
    (tmp_path / "ssh").mkdir()
    with Lab() as lab, contextlib.ExitStack() as until_end:
        daemon = start_ssh(lab, tmp_path / "ssh")
        until_end.callback(daemon.wait)
        until_end.callback(daemon.terminate)
        shell = Shell(lab, tmp_path)
        said = timed(table, "nodes by ssh", [shell.step(line) for line in lines_of("index.md", "that you reach by ssh:")])
    assert "all as sent" in said and "cryptmpi: SEALED" in said, said


def test_slurm(table, tmp_path):
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    with Lab() as lab, Slurm(lab):
        shell = Shell(lab, tmp_path)
        steps = ["cryptmpi keygen", *lines_of("slurm.md", "Open MPI, by PMIx:"), "cryptmpi report job.json"]
        said = timed(table, "Slurm", [shell.step(line) for line in steps])
    assert "all as sent" in said and "SEALED" in said, said


def test_kubernetes(table, files, tmp_path):
    keygen, secret, apply = lines_of("kubernetes.md", "# Kubernetes")
    assert secret.startswith("kubectl create secret ") and apply == "kubectl apply -f containers/mpijob.yaml"
    began = []

    def make():
        (files / "job.key").unlink(missing_ok=True)
        done = subprocess.run(["sh", "-c", keygen], env={**os.environ, "PATH": f"{BIN}:/usr/bin:/bin"}, cwd=files, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hand_out():
        pods = kubernetes.pods(files)
        began.append((pods, pods.__enter__()))
        return ""

    def run():
        done = kubernetes.run_job(began[0][1])
        assert done.ok, done.output
        return done.output

    try:
        said = timed(table, "Kubernetes", [make, hand_out, run])
    finally:
        for pods, _ in began:
            pods.__exit__(None, None, None)
    assert "right" in said and "cryptmpi: SEALED" in said, said


def test_containers(table, nodes, job):
    def start():
        return "".join(nodes.on(node, containers.START, job.path) for node in (0, 1))

    steps = [lambda: nodes.on(0, containers.KEYS, job.path), start, lambda: nodes.on(0, f"{containers.JOB.strip()} canary.bin messages", job.path)]
    said = timed(table, "containers", steps)
    assert "all as sent" in said and "cryptmpi: SEALED" in said, said
