"""A third node through which the first two reach each other: where a man in the middle stands."""

import itertools
import os
import socket
import struct
import subprocess
import threading

from cryptmpi_tools.lab.formats import TAG
from cryptmpi_tools.lab.nodes import LabError, enter

PORT = 15000  # where he gets the connections of others
IP_TRANSPARENT = 19
_RULES = f"""
table ip mitm {{
    chain prerouting {{
        type filter hook prerouting priority mangle;
        iifname "eth0" meta l4proto tcp tproxy to :{PORT} meta mark set 1 accept
    }}
}}
"""


def lead_through_third(lab):
    """TCP between node1 and node2 goes to whoever listens on PORT of node3, everything else through node3."""
    one, two, three = lab.nodes
    _within(one, f"ip route add {two.address}/32 via {three.address}")
    _within(two, f"ip route add {one.address}/32 via {three.address}")
    # A namespace has its own /proc/sys/net, whatever mount it is seen through.
    _within(three, "sysctl -q net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0"
                   " && ip rule add fwmark 1 lookup 100 && ip route add local default dev lo table 100"
                   f" && echo '{_RULES}' | nft -f -")


def _within(node, script):
    done = subprocess.run([*enter(node.pid), "sh", "-c", script], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"cannot lead {node.name}'s traffic through another node: {script}: {done.stderr.strip()}")


# What he does there

class Stop(Exception):
    """This direction ends here."""


def sealed_record(kind, size):
    """Looks like a record, and is none."""
    return struct.pack("<I", kind << 24 | size) + os.urandom(size + TAG)


def flipped(record, at):
    changed = bytearray(record)
    changed[at] ^= 1 << (at % 8)
    return bytes(changed)


def read_up_to(source, size):
    """`size` bytes; what there was if the stream ends before."""
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def reset(end):
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)  # lets the other thread, if it reads here, go on
        end.close()
    except OSError:
        pass


def meet(near, own_address=False):
    """The other half of a connection that was led to us, as if its initiator had opened it; None: there is nobody."""
    target, source = near.getsockname(), near.getpeername()
    far = socket.socket()
    try:
        if not own_address:
            far.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            far.bind(source)
        far.connect(target)
    except OSError:
        reset(near)
        return None
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return far


def both_ways(near, number, directions, own_address):
    far = meet(near, own_address)
    if far is None:
        return
    threads = [threading.Thread(target=direction, daemon=True) for direction in directions(near, far, number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    near.close()
    far.close()


def between(directions, own_address=False):
    """For ever between the ends of all connections that are led to us: `directions(near, far, number)` gives two
    functions, which pass on what comes from the initiator and from the responder of the connection with that number
    until it ends."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", PORT))
    listener.listen(128)
    print("ready", flush=True)
    for number in itertools.count(1):
        near, _ = listener.accept()
        threading.Thread(target=both_ways, args=(near, number, directions, own_address), daemon=True).start()
