"""Somebody who owns a node of the network and has no key: he speaks to whatever listens on the nodes of a job while it
runs.

    stranger.py HOW PARENT PID:ADDRESS PID:ADDRESS CHANNEL FOLDER

HOW he speaks: see the functions with these names. He looks for listeners as the nodes' kernels know them, which spares
him to try all ports. "done stranger" says that he has been let into some listener's queue.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

from cryptmpi_tools.lab.formats import IDENTITY, KEY_ID, PREFIX, SHARE, TAG, VERSION
from cryptmpi_tools.lab.middle import IP_TRANSPARENT

HALF_OPEN = 1500  # connections to each listener, in "flood"
AT_ONCE = 4       # to each listener, otherwise
LISTENING = "0A"


def hello(share=None):
    """One whose key id, share, identity and tag are made up."""
    start = b"CMPI" + bytes([VERSION, 1, 2, 0]) + os.urandom(KEY_ID)
    return start + (share or os.urandom(SHARE)) + os.urandom(IDENTITY + TAG)


class Stranger:
    def __init__(self, how, nodes, channel, folder):
        self.how = how
        self.nodes = nodes
        self.channel = channel
        self.folder = folder
        self.open = []

    def listeners(self):
        """(address, port) where somebody from another node can connect to."""
        found = set()
        for pid, address in self.nodes:
            for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:] + Path(f"/proc/{pid}/net/tcp6").read_text().splitlines()[1:]:
                words = line.split()
                host, port = words[1].split(":")
                if words[3] == LISTENING and host not in ("0100007F", "00000000000000000000000001000000"):
                    found.add((address, int(port, 16)))
        return found

    def connect(self, where, source=None):
        one = socket.socket(socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
        one.settimeout(1)
        if source:
            one.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
            one.bind((source, 0))
        one.connect(where)
        one.setblocking(False)
        self.open.append(one)
        return one

    def say(self, where, words=b"", source=None):
        one = self.connect(where, source)
        if words:
            one.send(words)

    def other(self, where):
        return next(address for _, address in self.nodes if address != where[0])

    def attack(self, where):
        getattr(self, self.how.replace("-", "_"))(where)

    def silent(self, where):
        self.say(where)

    def random(self, where):
        self.say(where, os.urandom(300))

    def hello(self, where):
        """A whole hello of somebody without the key."""
        self.say(where, hello())

    def half_hello(self, where):
        self.say(where, hello()[:PREFIX + 50])

    def zero_share(self, where):
        self.say(where, hello(bytes(SHARE)))

    def plain_text(self, where):
        self.say(where, b"cmd=initack pmiid=0\nGET / HTTP/1.0\r\n\r\n" * 5)

    def flood(self, where):
        for number in range(HALF_OPEN):
            self.say(where, hello()[:PREFIX + 50] if number % 2 else b"")

    def spoofed(self, where):
        self.say(where, os.urandom(300), self.other(where))

    def spoofed_hello(self, where):
        self.say(where, hello(), self.other(where))

    def link_local(self, where):
        """From an address of the wire that no node has given out."""
        mac = Path(f"/proc/{next(pid for pid, address in self.nodes if address == where[0])}/net/if_inet6").read_text().split("\n")
        local = next(line.split()[0] for line in mac if line.startswith("fe80") and line.endswith("eth0"))
        groups = ":".join(local[at:at + 4] for at in range(0, 32, 4))
        one = socket.socket(socket.AF_INET6)
        one.settimeout(1)
        one.connect((groups, where[1], 0, socket.if_nametoindex("eth0")))
        one.send(hello())
        self.open.append(one)

    def wrong_key(self, where):
        """CryptMPI itself, with another key."""
        key = self.folder / "stranger.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_text(f"cryptmpi-job-key-1 {secrets.token_hex(32)}\n")
        program = f"import socket; one = socket.create_connection(({where[0]!r}, {where[1]}), 2); one.sendall(b'cmd=initack pmiid=0\\n' * 20)"
        environment = {**os.environ, "LD_PRELOAD": self.channel, "CRYPTMPI_KEY_FILE": str(key), "CRYPTMPI_HANDSHAKE_TIMEOUT_S": "3"}
        self.open.append(subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL))


def main():
    how, parent, *nodes, channel, folder = sys.argv[1:]
    stranger = Stranger(how, [(int(pid), address) for pid, address in (node.split(":") for node in nodes)], channel, Path(folder))
    print("ready", flush=True)
    times, said = {}, False
    while os.path.exists(f"/proc/{parent}"):
        for where in sorted(stranger.listeners()):
            if times.get(where, 0) >= (1 if how == "flood" else AT_ONCE):
                continue
            times[where] = times.get(where, 0) + 1
            try:
                stranger.attack(where)
            except OSError:
                continue
            if not said:
                print("done stranger", flush=True)
                said = True
        time.sleep(0.02)


if __name__ == "__main__":
    main()
