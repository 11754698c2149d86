"""A stranger on another node who opens a hundred thousand connections and says nothing on them, or not enough: whoever
listens keeps little for him, and a friend is heard all the same."""

import contextlib
import errno
import json
import subprocess
import sys

import pytest
from conftest import error_lines, needs

from cryptmpi_tools.lab.nodes import enter

STRANGERS = 8  # processes, each with an address of its own: a process has some thousand descriptors, an address some thousand ports
OF_EACH = 12_500
COUNT = STRANGERS * OF_EACH
WORDS = ["", "434d504902010200"]  # nothing, and the beginning of a hello
KEPT_SILENT = 256  # connections whose peers have not spoken yet (docs/threat-model.md)
PATIENCE_S = 240

# Accepts all, a few at a time so that it never has many open, closes those that have failed, and tells of the one on
# which something comes.
SERVE = """
import contextlib, json, select, socket
def memory_kb():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
listener = socket.create_server(("0.0.0.0", 0), backlog=1000)
listener.setblocking(False)
print(listener.getsockname()[1], flush=True)
ready = select.epoll()
ready.register(listener, select.EPOLLIN)
kept, accepted, most_open, ends, memory, heard = {}, 0, 0, {}, [], b""
while True:
    events = ready.poll(1)
    if heard and not events:
        break
    for fd, _ in events:
        if fd == listener.fileno():
            with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                for _ in range(16):
                    stream, _ = listener.accept()
                    stream.setblocking(False)
                    kept[stream.fileno()] = stream
                    ready.register(stream, select.EPOLLIN)
                    accepted += 1
                    most_open = max(most_open, len(kept))
                    if accepted % 10000 == 0:
                        memory.append(memory_kb())
            continue
        try:
            heard = kept[fd].recv(100)
            ready.unregister(fd)
            continue
        except BlockingIOError:
            continue
        except OSError as error:
            ends[error.errno] = ends.get(error.errno, 0) + 1
        ready.unregister(fd)
        kept.pop(fd).close()
print(json.dumps({"accepted": accepted, "most_open": most_open, "ends": ends, "memory_kb": memory, "heard": heard.decode()}), flush=True)
"""

STRANGER = """
import resource, socket, sys
host, port, count, words, source = sys.argv[1:]
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
streams = []
for _ in range(int(count)):
    stream = socket.create_connection((host, int(port)), source_address=(source, 0))
    try:
        stream.sendall(bytes.fromhex(words))
    except ConnectionError:
        pass
    streams.append(stream)
print("all", flush=True)
sys.stdin.readline()
"""

FRIEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stream:
    stream.sendall(b"secret")
    stream.shutdown(socket.SHUT_WR)
    stream.recv(1)
"""


def within(node, script):
    subprocess.run([*enter(node.pid), "sh", "-ec", script], check=True, capture_output=True, text=True)


@pytest.mark.long
@needs("ip")
def test_a_hundred_thousand_connections(nodes, sealing):
    listening, stranger = nodes.nodes
    sources = [f"10.77.{200 + number}.2" for number in range(STRANGERS)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = sealing.environment(handshake_timeout_s=600)
    with contextlib.ExitStack() as running:
        for source in sources:  # other tests have these nodes, too
            within(stranger, f"ip addr add {source}/32 dev eth0")
            running.callback(within, stranger, f"ip addr del {source}/32 dev eth0")
            within(listening, f"ip route add {source}/32 dev eth0")
            running.callback(within, listening, f"ip route del {source}/32 dev eth0")
        server = running.enter_context(nodes.start([sys.executable, "-c", SERVE], node=0, env=environment, **pipes))
        running.callback(server.kill)
        port = server.stdout.readline().strip()
        attacks = []
        for number, source in enumerate(sources):
            attacks.append(running.enter_context(nodes.start(
                [sys.executable, "-c", STRANGER, listening.address, port, OF_EACH, WORDS[number % len(WORDS)], source], node=1, **pipes)))
            running.callback(attacks[-1].kill)
        for attack in attacks:
            assert attack.stdout.readline() == "all\n", attack.communicate(timeout=10)
        friend = running.enter_context(nodes.start([sys.executable, "-c", FRIEND, listening.address, port], node=1, env=environment, **pipes))
        running.callback(friend.kill)
        got, said = server.communicate(timeout=PATIENCE_S)
    seen = json.loads(got)
    assert seen["heard"] == "secret" and seen["accepted"] > COUNT, (seen, said)
    assert seen["ends"].keys() == {str(errno.ECONNRESET)} and sum(seen["ends"].values()) >= COUNT - KEPT_SILENT, seen
    assert seen["memory_kb"][-1] - seen["memory_kb"][0] < 4096, seen
    assert error_lines(said) == []
