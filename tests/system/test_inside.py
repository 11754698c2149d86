"""What counts as inside the node, and so may be native: strangers who say that they are there, and neighbours who
are."""

import os
import platform
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import error_lines
from two_networks import LOCAL, OTHER, OWN, OWN6, start, within

# Newer kernels say whose a socket was that has been closed.
NAMES_OWNERS = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 18)

LISTEN = """
import errno, json, socket, sys, time
family, device, wait = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, sys.argv[2], float(sys.argv[3])
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if device:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
listener.bind((sys.argv[1], 4567))
listener.listen(16)
listener.settimeout(20)
print("ready", flush=True)
sys.stdin.readline()
try:
    connection, _ = listener.accept()
    connection.settimeout(5)
    print(json.dumps(connection.recv(100).decode(errors="replace")), flush=True)
except OSError as error:
    print(json.dumps(errno.errorcode.get(error.errno, "timeout")), flush=True)
"""

CONNECT = """
import errno, json, os, socket, struct, sys, time
source, target, words, how = sys.argv[1:5]
how, *user = how.split()
if user:
    os.setuid(int(user[0]))
device = sys.argv[5] if len(sys.argv) > 5 else ""
stream = socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET)
if device:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
stream.settimeout(5)
try:
    if source:
        stream.bind(socket.getaddrinfo(source, 0, type=socket.SOCK_STREAM)[0][4])
    stream.connect(socket.getaddrinfo(target, 4567, type=socket.SOCK_STREAM)[0][4])
    stream.sendall(words.encode())
    if how == "reset":
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "linger":
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 120)
    if how == "stay" and os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(6)
        os._exit(0)
    stream.close()
    print(json.dumps("connected"))
except OSError as error:
    print(json.dumps(errno.errorcode.get(error.errno, "timeout")))
"""

HEAR = """
import socket, sys
listener = socket.create_server((sys.argv[1], 4567), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
listener.settimeout(20)
print("ready", flush=True)
connection, _ = listener.accept()
connection.settimeout(5)
heard = b""
try:
    while part := connection.recv(1000):
        heard += part
        if len(heard) >= 6:
            break
except OSError:
    pass
print(heard[:6] == b"secret", len(heard), flush=True)
"""


def listen(lab, env, address="0.0.0.0", device=""):
    victim = start(lab, 0, LISTEN, address, device, "0", env=env)
    assert victim.stdout.readline() == "ready\n", victim.communicate(timeout=20)
    return victim


def connect(lab, node, source, target, words="evil", how="close", device="", env=None):
    out, said = start(lab, node, CONNECT, source, target, words, how, device, env=env).communicate(timeout=30)
    return out.strip().strip('"'), said


def read_by(victim):
    out, said = victim.communicate("go\n", timeout=40)
    return out.strip().strip('"'), said


# Who he says that he is, where he connects to, and what the victim listens on.
STRANGERS = {
    "link-local": (f"{LOCAL}%eth0", "fe80::1%eth0", "::", ""),
    "own-address": (OWN, "10.77.0.1", "0.0.0.0", "eth0"),
    "own-address-mapped": (OWN, "10.77.0.1", "::", "eth0"),
    "own-address-ipv6": (OWN6, "fd00:77::1", "::", "eth0"),
    "loopback": (OTHER, "10.77.0.1", "0.0.0.0", "eth0"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_stranger_who_says_that_he_is_inside(name, lab, sealing):
    source, target, address, device = STRANGERS[name]
    plain = listen(lab, {}, address, device)
    assert connect(lab, 1, source, target)[0] == "connected"
    assert read_by(plain)[0] == "evil", "the attack does not get this far plain: there is nothing to see"
    report = sealing.report_file()
    victim = listen(lab, sealing.environment(report, handshake_timeout_s=3), address, device)
    assert connect(lab, 1, source, target)[0] == "connected"
    got, said = read_by(victim)
    assert got.startswith("E"), (got, said)
    (part,) = sealing.parts(report)
    assert part["native_connections"] == 0
    assert part["sealed_bytes_received"] == 0


def test_bytes_of_a_connection_that_was_reset_before_it_was_accepted(lab, sealing):
    plain = listen(lab, {})
    assert connect(lab, 1, "", "10.77.0.1", how="reset")[0] == "connected"
    assert read_by(plain)[0] == "evil"
    report = sealing.report_file()
    victim = listen(lab, sealing.environment(report))
    assert connect(lab, 1, "", "10.77.0.1", how="reset")[0] == "connected"
    got, said = read_by(victim)
    assert got == "ECONNRESET", (got, said)
    assert error_lines(said) == []


# Where the victim connects to, by which device, and where the stranger listens.
ELSEWHERE = {
    "link-local": (f"{LOCAL}%eth0", "", "::", ""),
    "own-address-by-device": (OWN, "eth0", "0.0.0.0", ""),
    "own-address-by-rule": (OWN, "", "0.0.0.0",
                            f"ip rule add pref 100 lookup local; ip rule del pref 0; ip rule add pref 50 to {OWN} lookup 99;"
                            f"ip route add {OWN} dev eth0 src 10.77.0.1 table 99"),
}
_BACK = "ip rule add pref 0 lookup local; ip rule del pref 100; ip rule del pref 50; ip route flush table 99"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_own_address_that_leads_elsewhere(name, lab, sealing):
    target, device, address, rules = ELSEWHERE[name]
    victim = lab.nodes[0]
    heard = {}
    if rules:
        within(victim, rules)
    try:
        for how, env in (("plain", {}), ("sealed", sealing.environment(handshake_timeout_s=3))):
            stranger = start(lab, 1, HEAR, address)
            assert stranger.stdout.readline() == "ready\n"
            seen = connect(lab, 0, "", target, "secret", device=device, env=env)
            heard[how] = stranger.communicate(timeout=30)[0].split()
            assert how == "sealed" or seen[0] == "connected", seen
    finally:
        if rules:
            within(victim, _BACK)
    assert heard["plain"] == ["True", "6"]
    assert heard["sealed"][0] == "False" and int(heard["sealed"][1]) > 0, heard


# Opens connections of his own between two addresses, bound to lo, from each port that the kernel gives away.
BOTH_ENDS = """
import os, socket, sys
os.setuid(12345)
source, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
listener.bind((target, 4567))
listener.listen(count)
held = []
for _ in range(count):
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    stream.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    stream.bind((source, 0))
    stream.connect((target, 4567))
    held += [stream, listener.accept()[0]]
print("ready", flush=True)
sys.stdin.readline()
"""


def test_another_user_who_has_both_ends_of_such_a_connection(lab, sealing):
    """The kernel knows both ends of a connection with the addresses of ours, which leaves the node."""
    *_, rules = ELSEWHERE["own-address-by-rule"]
    victim = lab.nodes[0]
    report = sealing.report_file()
    within(victim, f"echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range; {rules}")
    try:
        other = start(lab, 0, BOTH_ENDS, "10.77.0.1", OWN, "100")
        assert other.stdout.readline() == "ready\n", other.communicate(timeout=20)
        stranger = start(lab, 1, HEAR, "0.0.0.0")
        assert stranger.stdout.readline() == "ready\n"
        connect(lab, 0, "", OWN, "secret", env=sealing.environment(report, handshake_timeout_s=3))
        heard = stranger.communicate(timeout=30)[0].split()
        other.communicate("go\n", timeout=20)
    finally:
        within(victim, f"echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range; {_BACK}")
    assert heard[0] == "False" and int(heard[1]) > 0, heard
    assert sum(part["native_connections"] for part in sealing.parts(report)) == 0


NEIGHBOURS = {
    "loopback": ("127.0.0.1", "127.0.0.1"),
    "loopback-ipv6": ("::1", "::1"),
    "own-address": (OWN, OWN),
    "from-another-own-address": (OWN, "10.77.0.1"),
    "mapped": ("10.77.0.1", "::"),
    "ipv6": ("fd00:77::1", "::"),
    "link-local": ("fe80::1%eth0", "::"),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
@pytest.mark.parametrize("device", ["", "lo"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_neighbours_are_native(name, device, how, lab, sealing):
    """Also when one of them has closed before he was heard; not when he has reset it, since whose he was nobody knows
    then."""
    target, address = NEIGHBOURS[name]
    if device and name in ("link-local", "ipv6", "from-another-own-address"):
        pytest.skip("not to be reached by way of lo, plain")
    report = sealing.report_file()
    source = OWN if name == "from-another-own-address" else ""
    gone = how == "reset"
    environment = sealing.environment(report, handshake_timeout_s=3)
    victim = listen(lab, environment, address if address in ("::", "::1", "127.0.0.1") else "0.0.0.0")
    seen = connect(lab, 0, source, target, "hello", how, device, env=environment)
    assert seen == ("connected", ""), seen
    # What can be from this node only, and is of an unknown user, is left out; the kernel of this lab takes 127/8 from
    # everywhere.
    left_out = name == "loopback-ipv6" if gone else not NAMES_OWNERS
    if left_out:
        assert connect(lab, 0, source, target, "again", "stay", device, env=environment) == ("connected", "")
    got, said = read_by(victim)
    expected = ("again", 3) if left_out else ("ECONNRESET", 1) if gone else ("hello", 2)
    parts = sealing.parts(report)
    assert (got, sum(part["native_connections"] for part in parts)) == expected, (got, said)
    assert error_lines(said) == []
    assert ("had been closed before it was accepted" in said) == left_out, said


def test_neighbour_who_has_gone(sealing):
    """On this machine, whose kernel takes no packets of 127/8 from elsewhere."""
    settings = [path.read_text().strip() for path in Path("/proc/sys/net/ipv4/conf").glob("*/route_localnet")]
    if "1" in settings:
        pytest.skip("route_localnet is set on this machine")
    environment = {**os.environ, **sealing.environment()}
    line = [sys.executable, "-c", LISTEN, "127.0.0.1", "", "0"]
    with socket.create_server(("127.0.0.1", 4567)):
        pass  # the port is free
    with subprocess.Popen(line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as victim:
        assert victim.stdout.readline() == "ready\n"
        subprocess.run([sys.executable, "-c", CONNECT, "", "127.0.0.1", "hello", "reset"], env=environment, check=True, capture_output=True)
        subprocess.run([sys.executable, "-c", CONNECT, "", "127.0.0.1", "again", "stay"], env=environment, check=True, capture_output=True)
        got, said = read_by(victim)
        assert got == "again" and "had been closed before it was accepted" in said, (got, said)


@pytest.mark.parametrize("how", ["stay", "close", "reset", "linger"])
def test_another_user_of_the_node(how, lab, sealing):
    """He connects to a port of ours, and writes; nothing of it is read, however early he closes."""
    plain = listen(lab, {}, "127.0.0.1")
    assert connect(lab, 0, "", "127.0.0.1", "evil", f"{how} 12345")[0] == "connected"
    assert read_by(plain)[0] == "evil"
    environment = sealing.environment(handshake_timeout_s=3)
    victim = listen(lab, environment, "127.0.0.1")
    assert connect(lab, 0, "", "127.0.0.1", "evil", f"{how} 12345")[0] == "connected"
    time.sleep(0.3)
    assert connect(lab, 0, "", "127.0.0.1", "hello", "stay", env=environment) == ("connected", "")
    got, said = read_by(victim)
    # He is refused as a stranger is where the kernel names him, and where it takes 127/8 from everywhere. Else he is
    # left out, and the next is heard.
    left_out = how == "close" or (how == "linger" and not NAMES_OWNERS)
    assert got == "hello" if left_out else got.startswith("E"), (got, said)
    assert ("had been closed before it was accepted" in said) == left_out, said


ACCEPT = """
import errno, json, select, socket, time
listener = socket.create_server(("127.0.0.1", 4567))
print("ready", flush=True)
select.select([listener], [], [])
time.sleep(1)  # he has closed
try:
    print(json.dumps(listener.accept()[0].recv(100).decode(errors="replace")), flush=True)
except OSError as error:
    print(json.dumps(errno.errorcode.get(error.errno, "timeout")), flush=True)
"""


def test_another_user_does_not_stop_who_accepts_what_select_showed(lab, sealing):
    """Plain, accept() would not wait there."""
    victim = start(lab, 0, ACCEPT, env=sealing.environment())
    assert victim.stdout.readline() == "ready\n", victim.communicate(timeout=20)
    assert connect(lab, 0, "", "127.0.0.1", "evil", "close 12345")[0] == "connected"
    out, said = victim.communicate(timeout=20)
    assert out.strip() == '"ECONNABORTED"' and "had been closed before it was accepted" in said, (out, said)


ACCEPT_EDGES = """
import errno, select, socket, sys
listener = socket.create_server(("127.0.0.1", 4567), backlog=500)
listener.setblocking(sys.argv[1] == "waits")
edges = select.epoll()
edges.register(listener, select.EPOLLIN | select.EPOLLET)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    if not edges.poll(5):
        sys.exit("no edge")
    try:
        print(listener.accept()[0].recv(100).decode(), flush=True)
        break
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""

FLOOD = """
import os, socket
os.setuid(12345)
for _ in range(100):
    with socket.create_connection(("127.0.0.1", 4567)) as stream:
        stream.sendall(b"evil")
"""


@pytest.mark.parametrize("how, errors", [("returns", ["EAGAIN"]), ("waits", ["ECONNABORTED"])])
def test_another_user_does_not_hold_up_who_accepts(how, errors, lab, sealing):
    """However many connections of his came before: a call that accepts ends, and there is an edge for the others."""
    environment = sealing.environment()
    victim = start(lab, 0, ACCEPT_EDGES, how, env=environment)
    assert victim.stdout.readline() == "ready\n", victim.communicate(timeout=20)
    flood = start(lab, 0, FLOOD)
    assert flood.communicate(timeout=20)[1] == "" and flood.returncode == 0
    time.sleep(0.3)  # for the kernel to forget whose they were
    assert connect(lab, 0, "", "127.0.0.1", "hello", "stay", env=environment) == ("connected", "")
    out, said = victim.communicate("\n", timeout=20)
    assert out.split() == [*errors, "hello"], (out, said)


LATER = """
import select, socket, sys
full = socket.socket()
full.bind(("10.77.0.1", 0))
full.listen(0)
first = socket.create_connection(full.getsockname())
late = [socket.socket() for _ in range(3)]
for one in late:
    one.setblocking(False)
    one.connect_ex(full.getsockname())
full.setblocking(True)
accepted = [full.accept()[0] for _ in range(4)]
for one in late:
    poll = select.poll()
    poll.register(one, select.POLLOUT)
    assert poll.poll(20000)
    one.setblocking(True)
    one.sendall(b"hello")
first.sendall(b"hello")
for one in accepted:
    one.settimeout(20)
    print(one.recv(100).decode())
"""


def test_neighbours_who_find_a_full_listener(lab, sealing):
    """Their connects are on their way for a second: whether they stay inside is known only then."""
    report = sealing.report_file()
    out, said = start(lab, 0, LATER, env=sealing.environment(report)).communicate(timeout=60)
    assert out.split() == ["hello"] * 4, (out, said)
    (part,) = sealing.parts(report)
    assert part["native_connections"] == 8 and part["sealed_connections"] == 0, part


AGAIN = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as inside:
    stream = socket.create_connection(inside.getsockname())
    accepted = inside.accept()[0]
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.connect(stream.fileno(), bytes(16), 16) == 0  # AF_UNSPEC: connected no more
stream.settimeout(5)
stream.connect((sys.argv[1], 4567))
stream.sendall(b"secret")
"""


def test_socket_that_was_inside_and_connects_elsewhere(lab, sealing):
    heard = {}
    for how, env in (("plain", {}), ("sealed", sealing.environment(handshake_timeout_s=3))):
        stranger = start(lab, 1, HEAR, "0.0.0.0")
        assert stranger.stdout.readline() == "ready\n"
        start(lab, 0, AGAIN, "10.77.0.2", env=env).communicate(timeout=30)
        heard[how] = stranger.communicate(timeout=30)[0].split()
    assert heard["plain"] == ["True", "6"]
    assert heard["sealed"][0] == "False" and int(heard["sealed"][1]) > 0, heard
