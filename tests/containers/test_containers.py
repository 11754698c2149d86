"""The image of containers/Containerfile, built and run by Podman as docs/containers.md says, word for word: one
container on each of two nodes.

Each node has images and containers of its own, as on two machines; the built image is shared. No registry is asked:
`debian:12` is what debootstrap makes."""

import json
import os
import re
import resource
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "packages")]

from roots import BARE, OPENMPI, PACKAGES, bare_root, run  # noqa: E402

from cryptmpi_tools.lab import capture  # noqa: E402
from cryptmpi_tools.lab.nodes import Lab, acquire_namespaces, enter  # noqa: E402
from cryptmpi_tools.lab.programs import CANARY  # noqa: E402

PAGE = (REPOSITORY / "docs" / "containers.md").read_text()
LINES = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
BUILD, KEYS, START, JOB = LINES
[BACK] = re.findall(r"`(podman unshare [^`]*)`", PAGE)
LIBRARIES = "/opt/cryptmpi/lib/cryptmpi"
USER = 1000
MINUTES = 60


class Host:
    """Podman's folders of one machine, which go with the tests."""

    def __init__(self, folder, images=()):
        folder.mkdir()
        shared = "".join(f'[storage.options]\nadditionalimagestores = ["{one}"]\n' for one in images)
        (folder / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n{shared}')
        # Podman asks for more than a machine without CAP_SYS_RESOURCE gives.
        files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)
        (folder / "containers.conf").write_text(
            f'[containers]\ncgroups = "disabled"\ndefault_ulimits = ["nofile=1024:{files}", "nproc=4096:4096"]\n'
            f'[engine]\nruntime = "crun"\nevents_logger = "file"\ncgroup_manager = "cgroupfs"\ntmp_dir = "{folder}/tmp"\n')
        self.images = folder / "images"
        self.environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"), "CONTAINERS_CONF": str(folder / "containers.conf"),
                            "BUILDAH_ISOLATION": "chroot"}


@pytest.fixture(scope="session")
def folder():
    """Not among pytest's own, which are kept: an image is large."""
    made = Path(tempfile.mkdtemp(prefix="cryptmpi-containers-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def built(folder):
    """A machine that has the image."""
    if reason := acquire_namespaces() if os.geteuid() == 0 else "only root can make nodes in these tests":
        pytest.skip(reason)
    if missing := [tool for tool in ("podman", "crun", "debootstrap") if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not BARE.exists():
        PACKAGES.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(bare_root(folder / "root"))
    machine = Host(folder / "building")
    run("podman", "import", BARE, "debian:12", env=machine.environment)
    run("sh", "-c", BUILD, env=machine.environment, cwd=REPOSITORY, timeout=MINUTES * 60)
    yield machine


class Nodes:
    """Two nodes with Podman; `on` runs a line in one of them."""

    def __init__(self, lab, folder, built):
        self.lab = lab
        self.hosts = self.make_hosts(folder, built)
        for node in lab.nodes:
            # Of both kinds of cgroups at once, as some machines have them, crun makes nothing.
            run(*enter(node.pid), "mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")

    def make_hosts(self, folder, built):
        return [Host(folder / node.name, [built.images]) for node in self.lab.nodes]

    def starting(self, node, cwd):
        """The words before a line's."""
        return enter(self.lab.nodes[node].pid, cwd)

    def on(self, node, line, cwd="/", status=0):
        line = line if isinstance(line, str) else shlex.join(map(str, line))
        # To a file: a container that stays keeps the pipe.
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.run([*self.starting(node, cwd), "sh", "-c", line], env=self.hosts[node].environment, cwd=cwd,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=180)
            out.seek(0)
            said = out.read()
        assert status is None or done.returncode == status, f"{line}: {done.returncode}\n{said}"
        return said

    def end(self):
        for node in range(len(self.hosts)):
            self.on(node, "podman rm --all --force --time 0", status=None)


class NodesOfAnOrdinaryUser(Nodes):
    """Whom the nodes alone know. The user loads the image from a file: root's images are root's."""

    NAME, NUMBER = "somebody", 4321
    FILES = {"passwd": f"root:x:0:0::/root:/bin/sh\n{NAME}:x:{NUMBER}:{NUMBER}::/:/bin/sh\n", "group": f"root:x:0:\n{NAME}:x:{NUMBER}:\n",
             "subuid": f"{NAME}:1000000:65536\n", "subgid": f"{NAME}:1000000:65536\n"}

    def __init__(self, lab, folder, built):
        super().__init__(lab, folder, built)
        for name, text in self.FILES.items():
            (folder / name).write_text(text)
            for node in lab.nodes:
                run(*enter(node.pid), "mount", "--bind", folder / name, f"/etc/{name}")
        run("podman", "save", "--quiet", "--format", "oci-archive", "-o", folder / "cryptmpi.tar", "cryptmpi", env=built.environment)
        (folder / "cryptmpi.tar").chmod(0o644)
        for node in range(len(lab.nodes)):
            self.on(node, ["podman", "load", "--quiet", "--input", folder / "cryptmpi.tar"])

    def make_hosts(self, folder, built):
        hosts = [Host(folder / node.name) for node in self.lab.nodes]
        for host, node in zip(hosts, self.lab.nodes):
            home = folder / f"home-of-{node.name}"
            settings = home / ".config" / "containers"
            settings.mkdir(parents=True)
            # Without it, Debian's Podman copies the image for each container.
            (settings / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')
            home.chmod(0o700)
            run("chown", "-R", f"{self.NUMBER}:{self.NUMBER}", home)
            # Podman's settings and folders are those of such a user, and the two nodes share none.
            host.environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home), "USER": self.NAME}
            del host.environment["CONTAINERS_CONF"], host.environment["CONTAINERS_STORAGE_CONF"]
        return hosts

    def starting(self, node, cwd):
        return [*super().starting(node, cwd), "setpriv", f"--reuid={self.NUMBER}", f"--regid={self.NUMBER}", "--clear-groups"]

    def end(self):
        super().end()
        for node in range(len(self.hosts)):
            self.on(node, "podman system migrate", status=None)  # ends the process that holds the user's namespace


def made_nodes(kind, built):
    with tempfile.TemporaryDirectory(prefix="cryptmpi-nodes-", dir="/var/tmp") as made, Lab(nodes=2) as lab:
        os.chmod(made, 0o755)
        of_containers = kind(lab, Path(made), built)
        try:
            yield of_containers
        finally:
            of_containers.end()


@pytest.fixture
def nodes(built):
    yield from made_nodes(Nodes, built)


@pytest.fixture
def nodes_of_an_ordinary_user(built):
    if shutil.which("newuidmap") is None:
        pytest.skip("not installed: newuidmap")
    yield from made_nodes(NodesOfAnOrdinaryUser, built)


class Folder:
    """The job's folder, with ./program, which sends a canary."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        path.chmod(0o755)
        run(OPENMPI.mpicc, "-O1", "-o", path / "program", CANARY)
        self.canary = secrets.token_bytes(32)
        (path / "canary.bin").write_bytes(self.canary)

    def on_the_wire(self):
        return capture.count(self.path.parent / "wire.pcap", [self.canary])[0][self.canary]


@pytest.fixture
def job():
    with tempfile.TemporaryDirectory(prefix="cryptmpi-job-", dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        yield Folder(Path(made) / "job")


def started(nodes, job, more=""):
    """The page's lines but the last; `more` are options of each container's."""
    nodes.on(0, KEYS, job.path)
    for node in (0, 1):
        nodes.on(node, START.replace("podman run", f"podman run {more}"), job.path)


def run_job(nodes, job, settings="", status=0):
    line = JOB.strip().replace("podman exec", f"podman exec {settings}") + " canary.bin messages"
    with nodes.lab.capture(job.path.parent / "wire.pcap"):
        return nodes.on(0, line, job.path, status)


def check_sealed(job, said):
    assert "all as sent" in said and "cryptmpi: SEALED" in said, said
    assert job.on_the_wire() == 0
    facts = json.loads((job.path / "job.json").read_text())
    assert facts["complete"] and facts["ranks_reported"] == facts["ranks"] == 2 and not facts["errors"], facts
    assert {node["name"] for node in facts["nodes"]} == {"node1", "node2"}, facts
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000 and facts["totals"]["failed_opens"] == 0, facts


def test_the_pages_lines_seal_a_job_of_two_containers(nodes, job):
    started(nodes, job)
    said = run_job(nodes, job, "--env CRYPTMPI_ENABLED=false")
    assert "all as sent" in said and job.on_the_wire() > 0, "else the capture shows nothing"
    check_sealed(job, run_job(nodes, job))
    # ssh takes no other host's key.
    assert "Host key verification failed" in nodes.on(1, "podman exec job sh -c 'echo > .ssh/known_hosts; ssh node1 true'", status=255)


def test_an_ordinary_user_needs_no_root(nodes_of_an_ordinary_user, job):
    nodes, number = nodes_of_an_ordinary_user, NodesOfAnOrdinaryUser.NUMBER
    for path in (job.path, *job.path.iterdir()):
        os.chown(path, number, number)
    started(nodes, job)
    check_sealed(job, run_job(nodes, job))
    assert (job.path / "job.json").stat().st_uid != number
    nodes.on(0, BACK, job.path)
    assert {path.stat().st_uid for path in (job.path, *job.path.rglob("*"))} == {number}


def test_a_key_that_a_group_may_read_is_mounted(nodes, job):
    """Root's, mode 0440, as a Secret is; the containers have a /dev/shm each."""
    key = job.path.parent / "job.key"
    as_root = ["podman", "run", "--rm", "--user", "0", "--volume", f"{key.parent}:/made", "cryptmpi"]
    nodes.on(0, [*as_root, "cryptmpi", "keygen", "--key-file", "/made/job.key"])
    os.chown(key, 0, USER)
    key.chmod(0o440)
    started(nodes, job, f"--volume {key}:/etc/cryptmpi/job.key:ro")
    assert len({nodes.on(node, "podman exec job stat --format %d /dev/shm") for node in (0, 1)}) == 2
    settings = "--env CRYPTMPI_KEY_FILE=/etc/cryptmpi/job.key"
    said = run_job(nodes, job, settings, status=125)
    assert "/etc/cryptmpi/job.key" in said and job.on_the_wire() == 0, said
    check_sealed(job, run_job(nodes, job, f"{settings} --env CRYPTMPI_ALLOW_GROUP_KEY=true"))
    key.chmod(0o444)
    assert "/etc/cryptmpi/job.key" in run_job(nodes, job, f"{settings} --env CRYPTMPI_ALLOW_GROUP_KEY=true", status=125)


def test_an_image_that_lacks_our_library_is_refused(nodes):
    """The command is there, and what it would preload is not."""
    def tried(before, status):
        line = f"cryptmpi keygen >/dev/null && {before} && exec cryptmpi exec echo it runs"
        run_it = ["podman", "run", "--rm", "--network", "host", "--user", "0", "--env", "CRYPTMPI_JOB_KEY=file", "cryptmpi"]
        return nodes.on(0, [*run_it, "sh", "-c", line], status=status)

    assert "it runs" in tried("true", 0)
    said = tried(f"rm {LIBRARIES}/libcryptmpi-channel.so", 125)
    assert "it runs" not in said and "libcryptmpi-channel.so" in said, said


def sections(text):
    parts = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
    return parts[0], dict(zip(parts[1::2], parts[2::2]))


def test_what_apptainer_would_do(nodes, job):
    """There is no Apptainer here: its file's image is made, and its sections' commands are run in it, as a user whom
    the host chose."""
    head, parts = sections((REPOSITORY / "containers" / "cryptmpi.def").read_text())
    [save] = re.findall(r"podman save .*", head)
    source = re.search(r"^From: (\S+)$", head, flags=re.MULTILINE)[1]
    nodes.on(0, save, job.path)
    assert "index.json" in run("tar", "-tf", job.path / source)
    assert set(parts) == {"environment", "runscript", "test"}
    asked = ["podman", "run", "--rm", "--user", "4321:4321", "cryptmpi", "sh", "-ec"]
    said = nodes.on(0, [*asked, f"PATH=/usr/bin:/bin\n{parts['environment']}\n{parts['test']}"])
    assert said.startswith("cryptmpi "), said
    shown = nodes.on(0, [*asked, f"{parts['environment']}\n{parts['runscript']}", "runscript", "coverage"])
    assert "MPI_Send" in shown, shown
