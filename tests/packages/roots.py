"""Root folders of a Debian that has the packages it must have and nothing else; and jobs in such a root, on the nodes
of a lab."""

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY)]

from cryptmpi_tools.lab.capture import count  # noqa: E402
from cryptmpi_tools.lab.nodes import enter  # noqa: E402
from cryptmpi_tools.lab.programs import CANARY  # noqa: E402
from cryptmpi_tools.lab.sealing import Sealing  # noqa: E402
from cryptmpi_tools.lab.stacks import stack  # noqa: E402

PACKAGES = REPOSITORY / "build" / "packages"
BARE = PACKAGES / "bare-root.tar"
MIRROR = os.environ.get("DEBIAN_MIRROR")  # None: debootstrap's own
OPENMPI = stack("openmpi-4.1.4")


def run(*line, **more):
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def only(pattern):
    """The one file of this pattern that `make package` made."""
    found = sorted(PACKAGES.glob(pattern))
    assert len(found) == 1, f"{len(found)} files {PACKAGES / pattern}: run `make package`"
    return found[0]


def bare_root(folder):
    """A root in `folder`. What debootstrap made is kept for the next one."""
    folder.mkdir()
    if not BARE.exists():
        run("debootstrap", "--variant=minbase", "bookworm", folder, *filter(None, [MIRROR]))
        run("tar", "-C", folder, "-cf", f"{BARE}.new", ".")
        os.rename(f"{BARE}.new", BARE)
    else:
        run("tar", "-C", folder, "-xf", BARE)
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    return folder


def inside(root, *line):
    """Runs something in the root, with this machine's network."""
    return run("chroot", root, *line, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"})


def install(root, *packages):
    """With what these packages depend on, and without what they recommend. A package that is a file is copied into the
    root."""
    words = []
    for package in packages:
        if isinstance(package, Path):
            shutil.copy(package, root / "tmp")
            package = f"/tmp/{package.name}"
        words.append(package)
    inside(root, "apt-get", "update", "--quiet")
    inside(root, "apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *words)


def built_canary(folder):
    """cryptmpi_tools/lab/kinds_of_call.c by this machine's Open MPI, and the bytes that it sends."""
    run(OPENMPI.mpicc, "-O1", "-o", folder / "canary", CANARY)
    canary = secrets.token_bytes(32)
    (folder / "canary.bin").write_bytes(canary)
    return canary


class InRoot:
    """The nodes of a lab, with the root as their own root folder."""

    def __init__(self, lab, root):
        self.lab = lab
        self.root = root
        for node in lab.nodes:
            mounts = [f"mount --rbind /{name} {root}/{name}" for name in ("proc", "sys", "dev")]
            run(*enter(node.pid), "sh", "-ec", "\n".join([*mounts, f"touch {root}/etc/hosts && mount --bind /etc/hosts {root}/etc/hosts"]))
        # In the root, where the command calls it. The node's mount namespace gives it this machine's root folder again.
        cases = "\n".join(f"{node.name}) exec {' '.join(enter(node.pid))} chroot {root} sh -c \"$*\" ;;" for node in lab.nodes)
        script = root / "rsh"
        script.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nnode=$1; shift\ncase "$node" in\n{cases}\nesac\nexit 255\n')
        script.chmod(0o755)
        self.rsh = "/rsh"

    def run(self, *line, timeout=120):
        """In node1."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", **OPENMPI.environment}
        return self.lab.run(["env", "-i", *(f"{name}={value}" for name, value in environment.items()), "chroot", self.root, *line],
                            cwd=self.root, timeout=timeout)

    def run_job(self):
        """Of two ranks of the canary, by `cryptmpi run`, which takes all defaults; /report.json is its report."""
        options = " ".join(OPENMPI.launcher_options(self.lab))
        return self.run("cryptmpi", "run", "-n", "2", "--hosts", ",".join(self.lab.hosts()), "--rsh", self.rsh, "--launcher-args", options,
                        "--report", "/report.json", "/canary", "/canary.bin")


def check_sealed_job(lab, folder, canary, start):
    """start(): a job of two ranks, its report in folder/report.json. Nothing of the canary is on the wire between the
    nodes."""
    with lab.capture(folder / "sealed.pcap"):
        done = start()
    assert done.ok, done.output
    assert "all as sent" in done.output
    assert count(folder / "sealed.pcap", [canary])[0][canary] == 0
    facts = Sealing.report(None, folder / "report.json")
    assert facts["complete"] and not facts["errors"], facts
    assert facts["ranks_reported"] == facts["ranks"] == 2
    assert facts["totals"]["sealed_bytes_sent"] > 1_000_000
    assert facts["totals"]["failed_opens"] == 0
    return facts
