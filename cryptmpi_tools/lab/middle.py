"""A third node through which the first two reach each other: where a man in the middle stands."""

import subprocess

from cryptmpi_tools.lab.nodes import LabError, enter

PORT = 15000  # where he gets the connections of others
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


class OnlyTwo:
    """The lab without the man's node, for what asks it where to run."""

    def __init__(self, lab):
        self._lab = lab

    def __getattr__(self, name):
        return getattr(self._lab, name)

    def hosts(self):
        return self._lab.hosts()[:2]
