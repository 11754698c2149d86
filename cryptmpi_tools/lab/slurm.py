"""Slurm from Debian's packages on the nodes of a lab: slurmctld on the first, and munged and slurmd on each.

What was learnt about nodes that are namespaces of one machine:
- Each needs its own /run, /etc/slurm, spool and logs: tmpfs in its mount namespace. Daemons of one machine else meet
  by their files.
- slurmd asks which cgroups there are, and ends where /sys/fs/cgroup is empty, even if it is told to use none.
- PMIx servers of two nodes meet in /tmp, unless PMIxCliTmpDirBase says otherwise.
- The daemons carry no mark of the lab: `Lab.run` ends all marked processes when its command has ended. What they
  start for a job inherits the mark from the environment of srun or sbatch.
"""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from cryptmpi_tools.lab.nodes import LabError, _die_with_parent, _processes, enter

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol")
_SECONDS = 30  # for all daemons to be up


def missing():
    """The programs that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None]


class Slurm:
    """`with Slurm(lab) as slurm:` runs until its end; `lab.run(["srun", ...])` uses it. Each node has so many CPUs.

    `more` is added to slurm.conf, `files` are put beside it, each {name: text}.
    """

    def __init__(self, lab, cpus=4, more="", files=None):
        self._lab = lab
        self._daemons = []
        self._folder = Path(tempfile.mkdtemp(prefix="slurm-", dir=lab.rsh.parent))  # goes with the lab
        self.logs = self._folder / "logs"
        self.logs.mkdir()
        self._files = {
            "slurm.conf": _CONFIGURATION.format(controller=lab.nodes[0].name, address=lab.nodes[0].address, cpus=cpus, logs=self.logs,
                                                nodes=",".join(node.name for node in lab.nodes)) + more,
            "mpi.conf": "PMIxCliTmpDirBase=/run/pmix\n",
            "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n",
            **(files or {}),
        }
        self._key = self._folder / "munge.key"
        self._key.touch(mode=0o400)
        self._key.write_bytes(secrets.token_bytes(128))

    def __enter__(self):
        try:
            for node in self._lab.nodes:
                self._prepare(node)
                self._start(node, "munged", ["munged", "--foreground", "--force", "--key-file", self._key, "--num-threads", "2",
                                             "--seed-file", "/run/munge/seed"])
            self._await("munged", lambda: all(self._in(node, ["munge", "-n"]).returncode == 0 for node in self._lab.nodes))
            self._start(self._lab.nodes[0], "slurmctld", ["slurmctld", "-D", "-i"])
            for node in self._lab.nodes:
                self._start(node, "slurmd", ["slurmd", "-D"])
            self._await("slurmd", lambda: self._states() == {"idle"})
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the daemons, and what they have started in the nodes."""
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        self._daemons = []
        holders = {node.pid for node in self._lab.nodes}
        namespaces = {_mounts_of(pid) for pid in holders}
        for pid in _processes():
            if pid not in holders and _mounts_of(pid) in namespaces:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def end_jobs(self):
        """Ends what is left of a user whose srun or sbatch was killed, and waits until the nodes are free."""
        end = time.monotonic() + _SECONDS
        while self._states() != {"idle"}:
            self._in(self._lab.nodes[0], ["scancel", "--me", "--full", "--signal=KILL"])
            if time.monotonic() > end:
                raise LabError("a job of Slurm does not end")
            time.sleep(0.2)

    def _prepare(self, node):
        files = " && ".join(f"cp {self._folder}/{name} /etc/slurm/" for name in self._files)
        for name, text in self._files.items():
            (self._folder / name).write_text(text)
            (self._folder / name).chmod(0o755 if text.startswith("#!") else 0o644)
        script = (
            "for folder in /run /etc/slurm /var/spool /sys/fs/cgroup; do mount -t tmpfs tmpfs $folder || exit 1; done"
            " && mkdir -m 755 /run/munge /run/pmix /var/spool/slurmd /var/spool/slurmctld"
            f" && {files}"
            " && for kind in freezer memory cpuset cpu cpuacct devices; do"
            " mkdir /sys/fs/cgroup/$kind && { mount -t cgroup -o $kind cgroup /sys/fs/cgroup/$kind || :; }; done")
        done = self._in(node, ["sh", "-c", script])
        if done.returncode:
            raise LabError(f"cannot prepare {node.name} for Slurm: {done.stderr.strip()}")

    def _start(self, node, name, command):
        with open(self.logs / f"{name}-{node.name}", "wb") as out:
            self._daemons.append(subprocess.Popen([*enter(node.pid), *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                                                  stderr=subprocess.STDOUT, start_new_session=True, env=_environment(),
                                                  preexec_fn=_die_with_parent))

    def _in(self, node, command):
        return subprocess.run([*enter(node.pid), *command], capture_output=True, text=True, timeout=_SECONDS, env=_environment())

    def _states(self):
        return set(self._in(self._lab.nodes[0], ["sinfo", "-h", "-N", "-o", "%T"]).stdout.split())

    def _await(self, name, up):
        end = time.monotonic() + _SECONDS
        while not up():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self._daemons):
                said = "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in sorted(self.logs.iterdir()))
                raise LabError(f"Slurm does not start ({name}):\n{said}")
            time.sleep(0.2)


def _environment():
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": os.environ.get("HOME", "/")}


def _mounts_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,sched_max_job_start=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
PropagateResourceLimits=NONE
KillWait=5
NodeName={nodes} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={nodes} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
