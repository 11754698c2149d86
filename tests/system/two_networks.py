"""A victim with a second network of his own, and a stranger beside him on the first: kernels that take and send
whatever comes."""

import contextlib
import subprocess
import sys

from cryptmpi_tools.lab.nodes import Lab, enter

OWN = "10.88.0.1"      # of the victim's second network, which nobody else is on
OWN6 = "fd00:88::1"
LOCAL = "fe80::d"      # its link-local address there
OTHER = "127.0.0.2"


def within(node, script):
    subprocess.run([*enter(node.pid), "sh", "-ec", script], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_networks():
    """The victim is node1, the stranger node2. The victim's kernel is told to take whatever comes, and the stranger's
    to send it."""
    with Lab(nodes=2) as made:
        loose = "; ".join(f"echo {value} > /proc/sys/net/ipv4/conf/{where}/{name}" for where in ("all", "eth0")
                          for name, value in (("accept_local", 1), ("rp_filter", 0), ("route_localnet", 1)))
        victim, stranger = made.nodes
        within(victim, f"mount -t proc proc /proc; {loose}; echo 0 > /proc/sys/net/ipv4/tcp_syncookies;"
                       f"ip link add second type bridge; ip link set second up;"
                       f"ip addr add {OWN}/24 dev second; ip addr add {OWN6}/64 dev second nodad;"
                       f"ip addr add {LOCAL}/64 dev second nodad; ip addr add fd00:77::1/64 dev eth0 nodad;"
                       f"ip addr add fe80::1/64 dev eth0 nodad;"
                       f"ip route add {OWN6}/128 dev eth0")
        within(stranger, f"mount -t proc proc /proc; {loose}; ip addr add {OWN}/32 dev eth0; ip addr add {OTHER}/32 dev eth0;"
                         f"ip addr add {LOCAL}/64 dev eth0 nodad; ip addr add fd00:77::2/64 dev eth0 nodad;"
                         f"ip addr add {OWN6}/128 dev eth0 nodad")
        yield made


def start(lab, node, script, *arguments, env=None):
    return lab.start([sys.executable, "-c", script, *arguments], node=node, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True)
