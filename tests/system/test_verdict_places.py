"""Where parts of a report are kept: nothing goes in clear of which the only part lies where nobody reads it, and no
other user can take a part away, or spoil a verdict, by a folder that he puts there first."""

import contextlib
import mmap
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import expect_unseen
from test_verdict import COMMAND, MPIS, NOT_SEALED, REFUSED, Job

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.sealing import Sealing

STRANGER = 65534

# Statically linked, so that no library can be preloaded into it.
SENDS = """
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int n, char** words) {
    char bytes[32];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7777)};
    FILE* file = fopen(words[1], "rb");
    if (n != 3 || file == NULL || fread(bytes, 1, sizeof bytes, file) != sizeof bytes) return 1;
    inet_pton(AF_INET, words[2], &to.sin_addr);
    return sendto(socket(AF_INET, SOCK_DGRAM, 0), bytes, sizeof bytes, 0, (struct sockaddr*)&to, sizeof to) != sizeof bytes;
}
"""

# A helper of a rank, in another view of the files.
HELPER = """
import ctypes, os, sys, time
reports, how, awaited = {reports!r}, {how!r}, {awaited!r}
until = time.monotonic() + 60
while awaited and not os.path.exists(awaited) and time.monotonic() < until:
    time.sleep(0.05)
libc = ctypes.CDLL(None)
NEWNS, REC, PRIVATE = 0x20000, 1 << 14, 1 << 18
def mount(kind, place, options=None):
    assert libc.mount(kind, place.encode(), kind, ctypes.c_ulong(0), options) == 0, (kind, place)
assert libc.unshare(NEWNS) == 0 and libc.mount(b"none", b"/", None, ctypes.c_ulong(REC | PRIVATE), None) == 0
if how == "overlay":
    mount(b"tmpfs", "/mnt")
    os.mkdir("/mnt/upper"), os.mkdir("/mnt/work")
    mount(b"overlay", reports, f"lowerdir={{reports}},upperdir=/mnt/upper,workdir=/mnt/work".encode())
elif how == "copy":
    mount(b"tmpfs", "/mnt")
    os.system(f"cp -a {{reports}}/. /mnt/")
    assert libc.mount(b"/mnt", reports.encode(), None, ctypes.c_ulong(1 << 12), None) == 0
else:
    mount(b"tmpfs", reports)
if how == "own memory":
    mount(b"tmpfs", "/dev/shm")
os.chdir("/")
os.system({command!r})
open({done!r}, "w").close()
"""


class Helped(Job):
    """A job of which one rank starts a helper before its program, on one of two nodes; what the helper starts, a
    setting allows."""

    def __init__(self, mpi, nodes, folder, node):
        super().__init__(mpi, nodes, folder)
        self.node = node
        self.reports = folder / "reports"
        self.reports.mkdir()
        self.report_file = self.reports / "report.json"
        self.done = folder / "done"
        subprocess.run(["cc", "-static", "-o", folder / "sends", "-x", "c", "-"], input=SENDS, text=True, check=True)

    def helper(self, how, awaited=""):
        peer = self.nodes.nodes[1 - self.node].address
        command = f"{self.folder}/sends {self.folder}/canary.bin {peer}; true"
        (self.folder / "helper.py").write_text(HELPER.format(reports=str(self.reports), how=how, awaited=str(awaited), command=command,
                                                             done=str(self.done)))
        return f"{sys.executable} {self.folder}/helper.py"

    def on_node(self, command):
        return [self.script(f'if [ "$(hostname)" = {self.nodes.nodes[self.node].name} ]; then\n{command}\nfi\nexec "$@"'), *self.program]

    def run_with(self, command, **settings):
        done = self.run(self.on_node(command), allow_programs=self.folder / "sends", **settings)
        self.seen = self.datagrams()
        return done

    def datagrams(self):
        """How often the canary passed, also outside of streams."""
        with open(self.folder / "wire.pcap", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as wire:
            return len(re.findall(re.escape(self.canary), wire))


def place_of_stranger(after=""):
    """Lines of a shell that put another user's folder where the job's parts wait on this node."""
    return ("place=/dev/shm/cryptmpi-parts-$CRYPTMPI_INTERNAL_REPORT_TOKEN\nrm -rf $place\nmkdir $place && chmod 777 $place && "
            f"chown {STRANGER} $place\n{after}")


@MPIS
@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("how", ["own memory", "overlay", "copy", "the node's memory"])
def test_what_a_helper_leaves_in_clear_is_named_or_refused(mpi, node, how, nodes, tmp_path):
    """In a container that has a memory of its own, or whose writes to the report's folder arrive nowhere."""
    job = Helped(mpi, nodes, tmp_path, node)
    done = job.run_with(job.helper(how), job_key="file")
    assert job.done.exists(), done.output
    if how == "own memory":
        expect_unseen(job.seen, done.output)
        assert done.returncode == 0 and job.verdict.startswith("SEALED:"), done.output
        assert "refused, because the job's report has to name it and cannot" in done.output, done.output
    else:
        assert job.seen > 0 and f"allow_programs: {tmp_path}/sends ran without CryptMPI" in job.verdict, done.output


@MPIS
@pytest.mark.parametrize("node", [0, 1])
def test_no_part_waits_in_a_folder_of_another_user(mpi, node, nodes, tmp_path):
    """He could take it away before the job ends."""
    job = Helped(mpi, nodes, tmp_path, node)
    done = job.run_with(place_of_stranger(f"{job.helper('hidden')}\nmv $place $place.away"))
    assert job.done.exists(), done.output
    expect_unseen(job.seen, done.output)
    assert done.returncode == 0 and job.verdict.startswith("SEALED:"), done.output
    assert f"it belongs to user {STRANGER}" in done.output, done.output


@MPIS
@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("exceptions", [False, True], ids=["sealed", "exceptions"])
def test_another_users_folder_does_not_spoil_a_job(mpi, node, exceptions, nodes, tmp_path):
    job = Helped(mpi, nodes, tmp_path, node)
    command = job.on_node(place_of_stranger())
    done = job.run(command, **({"allow_programs": "/nothing"} if exceptions else {}))
    assert done.returncode == 0 and job.verdict.startswith("SEALED:"), done.output
    if exceptions:
        assert f"it belongs to user {STRANGER}; what is in it is none of this job's" in done.output, done.output
    nodes.run(["sh", "-c", "rm -rf /dev/shm/cryptmpi-parts-*"], node=node, timeout=60)


@pytest.mark.parametrize("mpi", [stacks.stack("openmpi-4.1.4")], ids=lambda mpi: mpi.name)  # Hydra waits for helpers
@pytest.mark.parametrize("node", [0, 1])
def test_a_helper_that_outlives_its_job_leaves_nothing_in_clear(mpi, node, nodes, tmp_path):
    """Its part would wait on a node to which nobody comes any more."""
    job = Helped(mpi, nodes, tmp_path, node)
    command = f"setsid {job.helper('hidden', job.report_file)} >{tmp_path}/said 2>&1 </dev/null &"
    environment = {**mpi.env(nodes), **job.sealing.env(), "CRYPTMPI_JOB_KEY": "file", "CRYPTMPI_ALLOW_PROGRAMS": str(tmp_path / "sends")}
    with nodes.capture(tmp_path / "wire.pcap"):
        running = nodes.start(job.line(job.on_node(command)), env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True)
        verdict = running.communicate(timeout=60)[1]
        until = time.monotonic() + 30
        while not job.done.exists() and time.monotonic() < until:
            time.sleep(0.1)
    said = (tmp_path / "said").read_text()
    assert running.returncode == 0 and "SEALED:" in verdict and job.done.exists(), verdict + said
    expect_unseen(job.datagrams(), said)
    assert "nobody fetches from there any more" in said or "No such file" in said, said
    left = nodes.run(["sh", "-c", "ls /dev/shm/cryptmpi-parts-*/mark"], node=node, timeout=60)
    assert not left.ok, left.output
    nodes.run(["sh", "-c", "rm -rf /dev/shm/cryptmpi-parts-*"], node=node, timeout=60)


@contextlib.contextmanager
def folder_for_all(path):
    path.mkdir()
    path.chmod(0o1777)
    yield path / "report.json"


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_exec_takes_no_folder_of_another_user(kind, nodes, tmp_path):
    """In a folder like /tmp he may make it before the job."""
    with folder_for_all(tmp_path / "all") as report:
        parts = Path(f"{report}.parts")
        if kind == "folder":
            parts.mkdir()
            os.chown(parts, STRANGER, STRANGER)
        else:
            (tmp_path / "elsewhere").mkdir()
            parts.symlink_to(tmp_path / "elsewhere")
        sealing = Sealing(tmp_path / "config", nodes, COMMAND, {"layer": "channel"})
        done = nodes.run(sealing.exec_line(["true"], report), env=sealing.env(), timeout=60)
        assert done.returncode == REFUSED and "report folder" in done.output, done.output
        assert kind == "link" or f"belongs to user {STRANGER}" in done.output, done.output


@MPIS
def test_parts_in_a_folder_of_another_user_are_no_whole_job(mpi, nodes, tmp_path):
    with folder_for_all(tmp_path / "all") as report:
        job = Job(mpi, nodes, tmp_path)
        job.report_file = report
        line = mpi.command(nodes, 2, job.sealing.exec_line(job.program, report))
        done = nodes.run(line, env={**mpi.env(nodes), **job.sealing.env()}, timeout=60)
        assert done.ok, done.output
        assert job.report("--check").returncode in (0, NOT_SEALED)
        assert "none of this job's" not in job.report().stdout
        os.chown(f"{report}.parts", STRANGER, STRANGER)
        checked = job.report("--check")
        assert checked.returncode == NOT_SEALED and checked.stdout.startswith("FAILED"), checked
        assert f"belongs to user {STRANGER}, who is none of this job's" in checked.stdout, checked
