"""Encryption below MPI: tunnels between the nodes of a lab, under programs that know nothing of them (CryptMPI 2020,
figure 1, took IPsec).

The addresses that programs know move from the veth into the tunnel, and the veth gets others: every byte that the nodes
send each other goes through it, and neither the programs nor their launchers are told anything else.
"""

import base64
import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from cryptmpi_tools.bench.networks import SHAPES, Networks
from cryptmpi_tools.bench.programs import last_lines
from cryptmpi_tools.lab.nodes import Lab, LabError, _die_with_parent, enter

PORT = 51820
OVERHEAD = 80  # bytes that WireGuard adds to a packet, at most (IPv6 outside)
SOCKETS = Path("/var/run/wireguard")
CHARON = Path("/usr/lib/ipsec/charon")
PLUGINS = [Path("/usr/lib/ipsec/plugins") / f"libstrongswan-{name}.so" for name in ("kernel-libipsec", "openssl")]
LATE_S = 10


def why_no_tun():
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun: let this machine or container have the device (modprobe tun; docker run --device /dev/net/tun)"
    try:
        with open("/dev/net/tun", "r+b", buffering=0):
            return None
    except OSError as error:
        return f"/dev/net/tun cannot be opened: {error.strerror}"


def why_no_wireguard():
    """None, or in one line why there can be none here."""
    missing = [tool for tool in ("wireguard-go", "wg") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not installed (make deps-study; packages wireguard-go, wireguard-tools)" if missing else why_no_tun()


def why_no_ipsec():
    """None, or in one line why there can be none here."""
    missing = [str(path) for path in (CHARON, *PLUGINS) if not path.exists()] + ([] if shutil.which("swanctl") else ["swanctl"])
    if missing:
        return (f"{' and '.join(missing)} not installed (make deps-study; packages strongswan-charon, strongswan-swanctl, libcharon-extra-plugins, "
                "libstrongswan-standard-plugins)")
    return why_no_tun()


class TunnelNetworks(Networks):
    """Networks as the benchmark has them, and each with a tunnel inside as NAME-wireguard and NAME-ipsec."""

    def lab(self, name):
        plain, _, kind = name.rpartition("-")
        if kind in TUNNELS and name not in self._labs:
            rate, burst = SHAPES[plain]
            lab = self.enter_context(Lab(rate=rate, **({"burst": burst} if burst else {})))
            self.enter_context(TUNNELS[kind](lab))
            self._labs[name] = lab
        return super().lab(name)


class WireGuard(contextlib.ExitStack):
    """wireguard-go on each node, in user space over TUN, until it is closed. LabError where it does not come up."""

    def __init__(self, lab):
        super().__init__()
        _refuse_without(why_no_wireguard())
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
        _move_address(node, number)
        mtu = int(_in(node, ["cat", "/sys/class/net/eth0/mtu"]))
        process = self.enter_context(_running(node, ["wireguard-go", "-f", name], {"WG_PROCESS_FOREGROUND": "1", "LOG_LEVEL": "error"}))
        self.callback((SOCKETS / f"{name}.sock").unlink, missing_ok=True)
        _await(lambda: (SOCKETS / f"{name}.sock").exists() or process.poll() is not None, "wireguard-go does not start")
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


class Ipsec(contextlib.ExitStack):
    """IPsec between two nodes: strongSwan, whose ESP (AES-256-GCM, in UDP) is its own, in user space over TUN
    (kernel-libipsec), until it is closed.

    LabError where it does not come up. The TUN interface keeps its 1,400 bytes: this ESP loses larger packets.
    """

    def __init__(self, lab):
        super().__init__()
        _refuse_without(why_no_ipsec())
        try:
            folder = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="cryptmpi-ipsec-")))
            secret = secrets.token_hex(32)
            for number, node in enumerate(lab.nodes, 1):
                self._raise(node, number, folder)
            for number, node in enumerate(lab.nodes, 1):
                (folder / f"{number}.swanctl").write_text(_connection(number, 3 - number, secret))
                _in(node, ["swanctl", "--load-all", "--file", str(folder / f"{number}.swanctl")])
            _in(lab.nodes[0], ["swanctl", "--initiate", "--child", "nodes", "--timeout", str(LATE_S)])
        except BaseException:
            self.close()
            raise

    def _raise(self, node, number, folder):
        _in(node, ["mount", "-t", "tmpfs", "tmpfs", "/run"])  # charon's socket has one name on all nodes
        _move_address(node, number)
        settings = folder / f"{number}.conf"
        settings.write_text("""charon {
            load = random nonce openssl aes sha1 sha2 hmac gcm kdf drbg kernel-libipsec kernel-netlink socket-default vici updown
            plugins { kernel-libipsec { load = yes } }
        }""")
        process = self.enter_context(_running(node, [CHARON], {"STRONGSWAN_CONF": str(settings)}))
        _await(lambda: process.poll() is not None or subprocess.run([*enter(node.pid), "test", "-S", "/run/charon.vici"]).returncode == 0,
               "charon does not start")
        _in(node, ["ip", "addr", "add", f"{node.address}/24", "dev", "ipsec0"])  # charon looks for it when it makes its routes


def _connection(number, peer, secret):
    return f"""connections {{ nodes {{
        local_addrs = {_outside(number)}
        remote_addrs = {_outside(peer)}
        version = 2
        proposals = aes256gcm16-prfsha256-ecp256
        local {{
            auth = psk
            id = {_outside(number)}
        }}
        remote {{
            auth = psk
            id = {_outside(peer)}
        }}
        children {{ nodes {{
            local_ts = 10.77.0.{number}/32
            remote_ts = 10.77.0.{peer}/32
            esp_proposals = aes256gcm16
        }} }}
    }} }}
    secrets {{ ike-nodes {{
        id-1 = {_outside(number)}
        id-2 = {_outside(peer)}
        secret = 0x{secret}
    }} }}
    """


TUNNELS = {"wireguard": WireGuard, "ipsec": Ipsec}  # by what the name of such a network ends with


def _refuse_without(why):
    if why:
        raise LabError(why)


def _outside(number):
    return f"10.78.0.{number}"


def _move_address(node, number):
    """The veth's address makes room for the tunnel's."""
    _in(node, ["sh", "-c", f"ip addr del {node.address}/24 dev eth0 && ip addr add {_outside(number)}/24 dev eth0"])


def _wg(command, private=None):
    done = subprocess.run(["wg", command], input=private, capture_output=True, text=True)
    key = done.stdout.strip()
    if done.returncode or len(base64.b64decode(key)) != 32:
        raise LabError(f"wg {command}: {done.stderr.strip()}")
    return key


def _in(node, command, text=None):
    done = subprocess.run([*enter(node.pid), *command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{node.name}: {' '.join(command)}: {last_lines(done.stderr or done.stdout)}")
    return done.stdout


def _await(condition, complaint):
    end = time.monotonic() + LATE_S
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"{complaint} within {LATE_S} s")
        time.sleep(0.05)


@contextlib.contextmanager
def _running(node, command, environment):
    """A process on the node; not as the lab's own: those end with each run."""
    process = subprocess.Popen([*enter(node.pid), *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, **environment}, start_new_session=True, preexec_fn=_die_with_parent)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
