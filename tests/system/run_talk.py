"""Runs talk.py on two nodes of a lab and gathers what both ends say."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

TALK = Path(__file__).with_name("talk.py")
PORTS = count(20000)


class Talk:
    def __init__(self, lab, server_environment, client_environment, *size):
        port = str(next(PORTS))
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        address = lab.nodes[1].address
        self.server = lab.start([sys.executable, TALK, "server", address, port, *size], node=1, env=server_environment, **pipes)
        assert self.server.stdout.readline() == "listening\n", self.server.stderr.read()
        self.client = lab.start([sys.executable, TALK, "client", address, port, *size], node=0, env=client_environment, **pipes)

    def finish(self, timeout=60):
        """[(what it saw, its standard error) of the client, of the server]."""
        ends = []
        for process in (self.client, self.server):
            out, err = process.communicate(timeout=timeout)
            assert process.returncode == 0, err
            ends.append((json.loads(out.splitlines()[-1]), err))
        return ends


def talk(lab, server_environment, client_environment, *size, timeout=60):
    return Talk(lab, server_environment, client_environment, *map(str, size)).finish(timeout)
