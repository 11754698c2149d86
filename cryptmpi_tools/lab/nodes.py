"""Nodes made of Linux namespaces, joined by a switch; or, where namespaces cannot be had, the loopback interface.

A node is a process that holds a network, UTS, IPC and mount namespace; the switch is one more, with a bridge in it and
a veth to each node. Nothing is made in the machine's own network namespace: labs never meet, and all of it is gone when
the holders are.
"""

import atexit
import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IN_SOURCES = (REPOSITORY / "CMakeLists.txt").exists()
# What is made goes here; that of an installation below the folder that one is in.
BUILD = REPOSITORY / "build" if IN_SOURCES else Path.cwd() / "cryptmpi-measurements"
_NAMESPACES = ["--net", "--uts", "--ipc", "--mount"]
_MARK = "LAB_OF"  # environment variable that marks the processes of a lab; not CRYPTMPI_*: those are settings
_PR_SET_PDEATHSIG = 1
CONGESTION_CONTROL = "cubic"


class LabError(RuntimeError):
    pass


@dataclass(frozen=True)
class Finished:
    """What came of a command in a node."""

    returncode: int
    output: str
    seconds: float
    timed_out: bool

    @property
    def ok(self):
        return self.returncode == 0 and not self.timed_out

    def why(self):
        if self.timed_out:
            return f"no end after {self.seconds:.0f} s"
        return "ok" if self.returncode == 0 else f"exit status {self.returncode}"


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    pid: int | None  # of the process that holds the namespaces; None: this machine itself


def _missing_tools():
    return [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]


def _can(*unshare):
    try:
        return subprocess.run(["unshare", *unshare, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def acquire_namespaces():
    """Makes sure that this process may make namespaces. Returns None, or in one line why it may not.

    A user who is not root makes a user namespace of their own, if the system lets them: the program is started again
    there. The user id stays: tcpdump, as root, would try to change users, which such a namespace does not allow.
    """
    missing = _missing_tools()
    if missing:
        return f"{', '.join(missing)} not installed (packages util-linux, iproute2)"
    if _can(*_NAMESPACES):
        return None
    if os.geteuid() != 0 and _can("--user", "--map-current-user", "--keep-caps", *_NAMESPACES):
        os.execvp("unshare", ["unshare", "--user", "--map-current-user", "--keep-caps", sys.executable, *sys.orig_argv[1:]])
    return "this user may make no network namespaces (not root, or a container without CAP_SYS_ADMIN)"


def end_on_signals():
    """Lets SIGTERM and SIGHUP unwind the program as SIGINT does, so that every lab is taken down."""

    def leave(number, _frame):
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def let_root_start_jobs():
    """Open MPI's mpirun starts none as root unless it is told twice that it may."""
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run_program(name, main, *arguments, goes_on=""):
    """Ends this program with what `main` returns, or in one line with why it did not come to an end."""
    try:
        sys.exit(main(*arguments))
    except LabError as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted; the nodes are gone{goes_on}")


def _die_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Lab:
    """`with Lab() as lab: lab.run([...])`. Nodes are called node1, node2, ...; a command runs in node1 unless told
    otherwise.

    With a rate (as tc takes it) that is all that each node can send.
    """

    def __init__(self, nodes=2, mtu=9000, rate=None, burst="512kb", isolated=True):
        self.isolated = isolated
        self._holders = []
        self._captures = []
        self._folder = Path(tempfile.mkdtemp(prefix="cryptmpi-lab-"))
        self.mark = self._folder.name
        self.nodes = []
        self.rsh = self._folder / "rsh"
        atexit.register(self.close)
        try:
            if isolated:
                self._make_nodes(nodes, mtu, rate, burst)
            else:
                self.nodes = [Node("localhost", "127.0.0.1", None)]
            self._write_rsh()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Making

    def _make_nodes(self, count, mtu, rate, burst):
        hosts = self._folder / "hosts"
        names = [f"node{i + 1}" for i in range(count)]
        addresses = [f"10.77.0.{i + 1}" for i in range(count)]
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for a, n in zip(addresses, names)))

        self.switch = self._hold("switch", hosts)
        self._in(self.switch, "ip link add br0 type bridge && ip link set br0 up")
        for number, (name, address) in enumerate(zip(names, addresses), 1):
            pid = self._hold(name, hosts)
            self._in(self.switch, f"ip link add port{number} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}"
                                  f" && ip link set port{number} master br0 up")
            self._in(pid, f"ip addr add {address}/24 dev eth0 && ip link set eth0 up && ip link set lo up")
            # As Linux itself would have it: BBR, which some machines set, paces a network of one machine down to a
            # third of its speed.
            self._in(pid, f"ip route change 10.77.0.0/24 dev eth0 proto kernel scope link src {address} congctl {CONGESTION_CONTROL}"
                          f" || ! grep -qw {CONGESTION_CONTROL} /proc/sys/net/ipv4/tcp_available_congestion_control")
            if rate:
                self._in(pid, f"tc qdisc replace dev eth0 root tbf rate {rate} burst {burst} latency 50ms")
            self.nodes.append(Node(name, address, pid))

    def _hold(self, name, hosts):
        # /sys shows the interfaces of the network namespace it was mounted in; /dev/shm must not join two nodes.
        prepare = (f"hostname {name} && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm"
                   f" && mount --bind {shlex.quote(str(hosts))} /etc/hosts && echo ready && exec sleep infinity")
        holder = subprocess.Popen(["unshare", *_NAMESPACES, "sh", "-c", prepare], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_die_with_parent)
        self._holders.append(holder)
        if holder.stdout.readline() != b"ready\n":
            raise LabError(f"cannot make node {name}: {holder.stderr.read().decode().strip()}")
        return holder.pid

    @staticmethod
    def _in(pid, script):
        done = subprocess.run([*enter(pid), "sh", "-c", script], capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"cannot join the nodes: {script}: {done.stderr.strip()}")

    def _write_rsh(self):
        """The script that stands in for ssh: `rsh [options] NODE COMMAND...`."""
        lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "node=$1; shift", 'case "$node" in']
        for node in self.nodes:
            prefix = shlex.join(enter(node.pid)).replace("--wd=/", '--wd="$PWD"') if node.pid else ""
            lines.append(f'{node.name}|{node.address}) exec {prefix} sh -c "$*" ;;')
        lines += ["esac", 'echo "rsh: no node $node" >&2', "exit 255", ""]
        self.rsh.write_text("\n".join(lines))
        self.rsh.chmod(0o755)

    # Using

    def hosts(self):
        return [node.name for node in self.nodes]

    def start(self, argv, node=0, env=None, cwd=None, **popen):
        """A process in a node, as subprocess.Popen gives it."""
        pid = self.nodes[node].pid
        command = [*(enter(pid, cwd or os.getcwd()) if pid else []), *map(str, argv)]
        environment = {**os.environ, **{k: str(v) for k, v in (env or {}).items()}, _MARK: self.mark}
        return subprocess.Popen(command, env=environment, cwd=cwd, start_new_session=True, **popen)

    def run(self, argv, node=0, env=None, timeout=120, cwd=None, log=None, enough=None):
        """Runs to the end, the timeout, or about a second after `enough(output)`; then nothing of it is left. The
        output goes to `log` as it comes, if one is given."""
        path = Path(log) if log else self._folder / "output"
        began = time.monotonic()
        timed_out = False
        with open(path, "wb") as out:
            process = self.start(argv, node, env, cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            try:
                while True:
                    left = timeout - (time.monotonic() - began)
                    try:
                        process.wait(min(left, 1.0) if enough else left)
                        break
                    except subprocess.TimeoutExpired:
                        timed_out = time.monotonic() - began >= timeout
                        if timed_out or (enough and enough(path.read_text(errors="replace"))):
                            break
                seconds = time.monotonic() - began
            finally:
                self.end_processes()
                process.wait()
        return Finished(process.returncode, path.read_text(errors="replace"), seconds, timed_out)

    def capture(self, path, **how):
        from cryptmpi_tools.lab.capture import Capture

        capture = Capture(self, path, **how)
        self._captures.append(capture)
        return capture

    # Ending

    def processes(self):
        """The numbers of what runs in the nodes, the holders and captures excepted."""
        keep = {holder.pid for holder in self._holders} | {os.getpid()} | {c.pid for c in self._captures if c.pid}
        mark = f"{_MARK}={self.mark}\0".encode()
        return [pid for pid in _processes() if pid not in keep and mark in _environment(pid)]

    def end_processes(self):
        """Kills whatever runs in the nodes (the holders excepted): ranks outlive their launcher now and then."""
        for _ in range(50):
            left = self.processes()
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def close(self):
        atexit.unregister(self.close)
        for capture in self._captures:
            capture.abandon()
        self.end_processes()
        for holder in self._holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()
        self._holders = []
        shutil.rmtree(self._folder, ignore_errors=True)


class FirstNodes:
    """The first nodes of a lab, for what asks it where to run."""

    def __init__(self, lab, count):
        self._lab, self._count = lab, count

    def __getattr__(self, name):
        return getattr(self._lab, name)

    def hosts(self):
        return self._lab.hosts()[:self._count]


def enter(pid, folder="/"):
    return ["nsenter", "-t", str(pid), "-n", "-u", "-i", "-m", f"--wd={folder}", "--"]


def _processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
        if status.rsplit(b")", 1)[-1].split()[0] == b"Z":
            return b""
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""
