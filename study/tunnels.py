"""Encryption below MPI: tunnels between the nodes of a lab, under programs that know nothing of them (CryptMPI 2020, figure 1, took IPsec).

The addresses that programs know move from the veth into the tunnel, and the veth gets others: every byte that the nodes send each other goes
through it, and neither the programs nor their launchers are told anything else.
"""

import base64
import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from bench.networks import SHAPES, Networks
from lab.nodes import Lab, LabError, _die_with_parent, enter

WIREGUARD = "-wireguard"  # what the name of such a network ends with
PORT = 51820
OVERHEAD = 80  # bytes that WireGuard adds to a packet, at most (IPv6 outside)
SOCKETS = Path("/var/run/wireguard")
LATE_S = 10


def why_no_wireguard():
    """None, or in one line why there can be none here."""
    missing = [tool for tool in ("wireguard-go", "wg") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (make deps-study; packages wireguard-go, wireguard-tools)"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun: let this machine or container have the device (modprobe tun; docker run --device /dev/net/tun)"
    try:
        with open("/dev/net/tun", "r+b", buffering=0):
            return None
    except OSError as error:
        return f"/dev/net/tun cannot be opened: {error.strerror}"


class TunnelNetworks(Networks):
    """Networks as the benchmark has them, and each with WireGuard inside as NAME-wireguard."""

    def lab(self, name):
        if name.endswith(WIREGUARD) and name not in self._labs:
            rate, burst = SHAPES[name.removesuffix(WIREGUARD)]
            lab = self.enter_context(Lab(rate=rate, **({"burst": burst} if burst else {})))
            self.enter_context(Tunnel(lab))
            self._labs[name] = lab
        return super().lab(name)


class Tunnel(contextlib.ExitStack):
    """wireguard-go on each node, in user space over TUN, until it is closed. LabError where it does not come up."""

    def __init__(self, lab):
        super().__init__()
        why = why_no_wireguard()
        if why:
            raise LabError(why)
        try:
            keys = [(_wg("genkey"), number) for number in range(1, len(lab.nodes) + 1)]
            for node, (private, number) in zip(lab.nodes, keys):
                self._raise(node, number, private, [(_wg("pubkey", private=other), peer) for other, peer in keys if peer != number])
            self._await_answer(lab)
        except BaseException:
            self.close()
            raise

    def _raise(self, node, number, private, peers):
        name = f"wg{node.pid}"  # no other process of this machine has one of that name: they share a folder of sockets
        _in(node, ["sh", "-c", f"ip addr del {node.address}/24 dev eth0 && ip addr add {_outside(number)}/24 dev eth0"])
        mtu = int(_in(node, ["cat", "/sys/class/net/eth0/mtu"]))
        # Not as the lab's own processes: those end with each run.
        process = subprocess.Popen([*enter(node.pid), "wireguard-go", "-f", name], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env={**os.environ, "WG_PROCESS_FOREGROUND": "1", "LOG_LEVEL": "error"},
                                   start_new_session=True, preexec_fn=_die_with_parent)
        self.callback(_end, process, SOCKETS / f"{name}.sock")
        _await(lambda: (SOCKETS / f"{name}.sock").exists() or process.poll() is not None, "wireguard-go does not start")
        if process.poll() is not None:
            raise LabError(f"wireguard-go: {process.stderr.read().decode().strip()[-200:]}")
        lines = ["[Interface]", f"PrivateKey = {private}", f"ListenPort = {PORT}"]
        for public, peer in peers:
            lines += ["[Peer]", f"PublicKey = {public}", f"Endpoint = {_outside(peer)}:{PORT}", f"AllowedIPs = 10.77.0.{peer}/32"]
        _in(node, ["wg", "setconf", name, "/dev/stdin"], "\n".join(lines) + "\n")
        _in(node, ["sh", "-c", f"ip link set {name} mtu {mtu - OVERHEAD} up && ip addr add {node.address}/24 dev {name}"])

    @staticmethod
    def _await_answer(lab):
        first = lab.nodes[0]
        for node in lab.nodes[1:]:
            _in(first, ["bash", "-c", f"echo hello > /dev/udp/{node.address}/9"])  # any packet makes the two shake hands
            _await(lambda: all(int(line.split()[1]) for line in _in(first, ["wg", "show", f"wg{first.pid}", "latest-handshakes"]).splitlines()),
                   f"no handshake with {node.name} through the tunnel")


def _outside(number):
    return f"10.78.0.{number}"


def _wg(command, private=None):
    done = subprocess.run(["wg", command], input=private, capture_output=True, text=True)
    key = done.stdout.strip()
    if done.returncode or len(base64.b64decode(key)) != 32:
        raise LabError(f"wg {command}: {done.stderr.strip()}")
    return key


def _in(node, command, text=None):
    done = subprocess.run([*enter(node.pid), *command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{node.name}: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _await(condition, complaint):
    end = time.monotonic() + LATE_S
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"{complaint} within {LATE_S} s")
        time.sleep(0.05)


def _end(process, socket):
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stderr.close()
    socket.unlink(missing_ok=True)
