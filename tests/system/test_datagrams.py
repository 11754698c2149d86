"""Datagrams that come in: a stranger on the wire, who sends from whatever address he likes to a kernel that takes them
all, reaches no socket of a sealed process; neighbours on the node do."""

import json
import subprocess
import sys

import pytest
from conftest import BUILD, error_lines, needs
from two_networks import LOCAL, OTHER, OWN, start, within

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import FirstNodes, enter
from cryptmpi_tools.lab.sealing import Sealing

COMMAND = BUILD / "bin" / "cryptmpi"
GROUP = "224.0.0.99"
NEAR, FAR = "10.77.0.1", "10.77.0.2"

# What it is told on its standard input: "go" when all was sent.
RECEIVE = """
import ctypes, errno, json, os, socket, struct, sys
how, address, group = sys.argv[1:4]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
if how == "syscall":
    one = socket.socket(fileno=ctypes.CDLL(None).syscall(41, family, socket.SOCK_DGRAM, 0))
elif how == "inherited":
    one = socket.socket(fileno=int(sys.argv[4]))
elif how == "passed":
    fds = socket.recv_fds(socket.socket(fileno=int(sys.argv[4])), 1, 1)[1]
    one = socket.socket(fileno=fds[0])
else:
    one = socket.socket(family, socket.SOCK_DGRAM, {"udplite": 136, "icmp": 1}.get(how, 0))
if how not in ("inherited", "passed"):
    one.bind((address, 4567))
if how == "connected":
    one.connect((sys.argv[4], 5000))
if group:
    index = socket.if_nametoindex("eth0")
    one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + struct.pack("=4xI", index))
print("ready", flush=True)
sys.stdin.readline()
one.setblocking(False)
heard = []
try:
    while True:
        heard.append(one.recv(1000)[-4:].decode())
except BlockingIOError:
    print(json.dumps(heard))
except OSError as error:
    print(json.dumps(errno.errorcode[error.errno]))
"""

SEND = """
import socket, struct, sys
how, source, target, words = sys.argv[1:5]
family = socket.AF_INET6 if ":" in target else socket.AF_INET
words = words.encode()
if how == "icmp":  # an answer that nobody has asked for; the victim's number is its port
    one = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    words = struct.pack(">BBHHH", 0, 0, 0, 4567, 1) + words
    total = sum(struct.unpack(f">{len(words) // 2}H", words))
    total = (total & 0xffff) + (total >> 16)
    words = words[:2] + struct.pack(">H", ~total & 0xffff) + words[4:]
else:
    one = socket.socket(family, socket.SOCK_DGRAM, 136 if how == "udplite" else 0)
if source:
    one.bind(socket.getaddrinfo(source, 0 if how == "icmp" else 5000, type=socket.SOCK_DGRAM)[0][4])
one.sendto(words, socket.getaddrinfo(target, 4567, type=socket.SOCK_DGRAM)[0][4])
"""

INHERIT = """
import json, os, socket, sys
how, address, environment, command = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:]
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((address, 4567))
print("bound", flush=True)
sys.stdin.readline()
os.environ.update(environment)
given = one
if how == "passed":
    near, given = socket.socketpair()
    socket.send_fds(near, [b"x"], [one.fileno()])
given.set_inheritable(True)
os.execv(command[0], [*command, str(given.fileno())])
"""


def send(lab, node, how, source, target, words):
    out, said = start(lab, node, SEND, how, source, target, words).communicate(timeout=30)
    assert said == "", (out, said)


def receive(lab, env, how, address, *more, group=""):
    victim = start(lab, 0, RECEIVE, how, address, group, *more, env=env)
    line = victim.stdout.readline()
    if line != "ready\n":
        out, said = victim.communicate(timeout=20)
        if "Protocol not supported" in said:
            pytest.skip("this kernel has no such protocol")
        raise AssertionError((line, out, said))
    return victim


def heard_by(victim):
    out, said = victim.communicate("go\n", timeout=40)
    assert error_lines(said) == [], said
    return json.loads(out)


# How the victim receives, where, what the stranger says that he is, and where he and a neighbour send to.
STRANGERS = {
    "any": ("udp", "0.0.0.0", "", NEAR, NEAR),
    "neighbour by loopback": ("udp", "0.0.0.0", "", NEAR, "127.0.0.1"),
    "neighbour by another address": ("udp", "0.0.0.0", "", NEAR, OWN),
    "own address": ("udp", "0.0.0.0", OWN, NEAR, NEAR),
    "loopback": ("udp", "0.0.0.0", OTHER, NEAR, NEAR),
    "connected": ("connected", NEAR, OWN, NEAR, NEAR),
    "by number": ("syscall", "0.0.0.0", "", NEAR, NEAR),
    "ipv6": ("udp", "::", "", "fd00:77::1", "fd00:77::1"),
    "ipv6, mapped": ("udp", "::", OWN, NEAR, NEAR),
    "ipv6, loopback": ("udp", "::", "", "fd00:77::1", "::1"),
    "link-local": ("udp", "::", f"{LOCAL}%eth0", "fe80::1%eth0", "fe80::1%eth0"),
    "multicast": ("udp", "0.0.0.0", FAR, GROUP, NEAR),
    "udplite": ("udplite", "0.0.0.0", "", NEAR, NEAR),
    "icmp": ("icmp", "0.0.0.0", "", NEAR, NEAR),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_nothing_comes_from_a_stranger(name, lab, sealing):
    how, address, source, target, neighbours = STRANGERS[name]
    by = how if how in ("udplite", "icmp") else "udp"
    within(lab.nodes[0], "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range")
    group = GROUP if target == GROUP else ""
    near = OWN if how == "connected" else ""
    heard = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        victim = receive(lab, env, how, address, *([OWN] if how == "connected" else []), group=group)
        send(lab, 1, by, source, target, "evil")
        send(lab, 0, by, near, neighbours, "good")
        heard[way] = heard_by(victim)
    assert heard["plain"] == ["evil", "good"], "the attack does not get this far plain: there is nothing to see"
    assert heard["sealed"] == ["good"]


@pytest.mark.parametrize("how", ["inherited", "passed"])
def test_a_socket_that_was_there_before(how, lab, sealing):
    """It was open to strangers: what it has from them by then is thrown away, too."""
    heard = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        victim = start(lab, 0, INHERIT, how, "0.0.0.0", json.dumps(env), sys.executable, "-c", RECEIVE, how, "0.0.0.0", "")
        assert victim.stdout.readline() == "bound\n"
        send(lab, 1, "udp", "", NEAR, "evil")
        victim.stdin.write("go\n")
        victim.stdin.flush()
        assert victim.stdout.readline() == "ready\n", victim.communicate(timeout=20)
        send(lab, 1, "udp", "", NEAR, "EVIL")
        send(lab, 0, "udp", "", NEAR, "good")
        heard[way] = heard_by(victim)
    assert heard == {"plain": ["evil", "EVIL", "good"], "sealed": ["good"]}


def test_a_socket_that_goes_on_after_exec(lab, sealing):
    """Nothing of it is thrown away: the program before has kept strangers out."""
    env = sealing.environment()
    victim = start(lab, 0, INHERIT, "inherited", "0.0.0.0", "{}", sys.executable, "-c", RECEIVE, "inherited", "0.0.0.0", "", env=env)
    assert victim.stdout.readline() == "bound\n"
    send(lab, 1, "udp", "", NEAR, "evil")
    send(lab, 0, "udp", "", NEAR, "good")
    victim.stdin.write("go\n")
    victim.stdin.flush()
    assert victim.stdout.readline() == "ready\n", victim.communicate(timeout=20)
    assert heard_by(victim) == ["good"]


# A datagram for an own address, which leaves the node all the same: how, and what it is sent to.
LED_AWAY = {
    "translated": "10.96.0.10",
    "interface": "127.0.0.1",
    "interface of one message": "127.0.0.1",
    "source route": NEAR,
    "routing header": "fd00:77::1",
    "another namespace": FAR,
}

AWAY = """
import ctypes, errno, socket, struct, subprocess, sys
how, target = sys.argv[1:3]
family = socket.AF_INET6 if ":" in target else socket.AF_INET
one = socket.socket(family, socket.SOCK_DGRAM)
index = socket.if_nametoindex("eth0")
more = [(socket.IPPROTO_IP, 8, struct.pack("i8x", index))] if how == "interface of one message" else []
try:
    if how == "interface":  # IP_UNICAST_IF
        one.setsockopt(socket.IPPROTO_IP, 50, struct.pack("!I", index))
    if how == "source route":
        one.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([131, 7, 4]) + socket.inet_aton("10.77.0.2") + bytes(1))
    if how == "routing header":
        ends = [socket.inet_pton(family, f"fd00:77::{number}") for number in (1, 2)]
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RTHDR, bytes([0, 4, 4, 1, 1, 0, 0, 0]) + b"".join(ends))
except OSError as error:
    print(errno.errorcode[error.errno])
if how == "another namespace":
    assert ctypes.CDLL(None).unshare(0x40000000) == 0
    subprocess.run(["sh", "-ec", f"ip link set lo up; ip addr add {target}/32 dev lo"], check=True)
try:
    one.sendmsg([b"canary of UDP"], more, 0, (target, 4567))
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@needs("nft")
@pytest.mark.parametrize("how", LED_AWAY)
def test_what_is_for_an_own_address_does_not_leave(how, lab, sealing, tmp_path):
    victim, stranger = lab.nodes
    link = json.loads(subprocess.run([*enter(stranger.pid), "ip", "-json", "link", "show", "eth0"], capture_output=True, check=True).stdout)
    within(victim, f"ip neigh replace 127.0.0.1 lladdr {link[0]['address']} dev eth0")
    if how == "translated":
        within(victim, f"ip addr add 10.96.0.10/32 dev lo; nft add table ip away; nft 'add chain ip away output {{ type nat hook output "
                       f"priority -100; }}'; nft add rule ip away output ip daddr 10.96.0.10 dnat to {FAR}")
    seen = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        with lab.capture(tmp_path / way):
            out, said = start(lab, 0, AWAY, how, LED_AWAY[how], env=env).communicate(timeout=30)
        assert "Traceback" not in said, said
        seen[way] = b"canary of UDP" in (tmp_path / way).read_bytes()
    assert seen == {"plain": True, "sealed": False}, out


# A datagram without an address, for a peer that the kernel does not name: the protocol, and whom it is sent to.
UNNAMED = {"udp": FAR, "udplite": FAR, "icmp": FAR, "ipv6": "fd00:77::2", "without a family": "fd00:77::2"}

TO_PORT_0 = """
import ctypes, errno, socket, sys
how, target = sys.argv[1:3]
family = socket.AF_INET6 if ":" in target else socket.AF_INET
one = socket.socket(family, socket.SOCK_DGRAM, {"udplite": 136, "icmp": socket.IPPROTO_ICMP}.get(how, 0))
one.connect((target, 0))
words = (bytes([8, 0, 0, 0, 0, 0, 0, 1]) if how == "icmp" else b"") + b"canary of UDP"
if how == "without a family":
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sendto(one.fileno(), words, len(words), 0, bytes(16), 16) < 0:
        print(errno.errorcode[ctypes.get_errno()])
    sys.exit()
try:
    one.send(words)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@pytest.mark.parametrize("how", UNNAMED)
def test_nothing_leaves_for_a_peer_without_a_port(how, lab, sealing, tmp_path):
    within(lab.nodes[0], "sysctl -q net.ipv4.ping_group_range='0 0'")
    seen, told = {}, {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        with lab.capture(tmp_path / way):
            out, said = start(lab, 0, TO_PORT_0, how, UNNAMED[how], env=env).communicate(timeout=30)
        if "Protocol not supported" in said:
            pytest.skip("this kernel has no such protocol")
        assert "Traceback" not in said, said
        seen[way], told[way] = b"canary of UDP" in (tmp_path / way).read_bytes(), (out.strip(), error_lines(said))
    assert seen == {"plain": True, "sealed": False}, told
    assert told["plain"] == ("", []) and told["sealed"][0] == "EDESTADDRREQ", told
    assert "one with port 0" in told["sealed"][1][0], told


def test_own_addresses_are_reached_all_the_same(lab, sealing):
    """By who is bound to the loopback interface, and, where he has sent something himself, from such a one."""
    answers = ("import socket, sys\none = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\none.bind(('0.0.0.0', 4567))\n"
               "one.sendto(b'own', ('127.0.0.1', 4568))\nprint('ready', flush=True)\none.settimeout(20)\n"
               "for _ in range(3):\n    words, peer = one.recvfrom(100)\n    one.sendto(words[::-1], peer)\n")
    asks = ("import socket\nfor target in ('127.0.0.1', '10.77.0.1', '10.88.0.1'):\n"
            "    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    one.settimeout(5)\n"
            "    one.sendto(target.encode(), (target, 4567))\n    print(one.recv(100)[::-1].decode())\n")
    env = sealing.environment()
    other = start(lab, 0, answers, env=env)
    assert other.stdout.readline() == "ready\n"
    out, said = start(lab, 0, asks, env=env).communicate(timeout=30)
    assert (out.split(), error_lines(said)) == (["127.0.0.1", NEAR, OWN], []), (out, said)
    assert other.wait(timeout=20) == 0


UNBOUND = """
import ctypes, errno, socket, struct
# Of setsockopt (54) with SO_BINDTODEVICE (25) or SO_BINDTOIFINDEX (62): EPERM.
code = [(0x20, 0, 0, 0), (0x15, 0, 4, 54), (0x20, 0, 0, 32), (0x15, 1, 0, 25), (0x15, 0, 1, 62), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
for target in ("127.0.0.1", "::1", "10.77.0.1"):
    try:
        print(socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (target, 4567)))
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def test_where_a_socket_cannot_be_bound_loopback_addresses_are_left(lab, sealing):
    """As before Linux 5.7."""
    out, said = start(lab, 0, UNBOUND, env=sealing.environment()).communicate(timeout=30)
    assert out.split() == ["1", "1", "EPERM"], (out, said)
    (line,) = error_lines(said)
    assert f"UDP to {NEAR}:4567 is refused" in line and "does not let its socket be bound to the loopback interface" in line, line


CHOICES = """
import errno, socket, struct, sys
def said(call, *values):
    try:
        print("done" if call(*values) is None else "sent")
    except OSError as error:
        print(errno.errorcode[error.errno])
how, target = sys.argv[1:3]
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if how == "bound":
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    said(one.sendto, b"x", (target, 4567))
else:
    said(one.setsockopt, socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([131, 7, 4]) + socket.inet_aton("10.77.0.2") + bytes(1))
    ipv6, header = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), bytes([0, 2, 4, 0, 0, 0, 0, 0] + [0] * 16)
    said(ipv6.setsockopt, socket.IPPROTO_IPV6, socket.IPV6_RTHDR, header)
    said(one.setsockopt, socket.IPPROTO_IP, socket.IP_OPTIONS, b"")
"""


def test_a_socket_that_is_bound_elsewhere_is_for_no_own_address(lab, sealing):
    for target in (NEAR, OWN, "127.0.0.1"):
        out, said = start(lab, 0, CHOICES, "bound", target, env=sealing.environment()).communicate(timeout=30)
        assert out == "EPERM\n", (target, out, said)
        (line,) = error_lines(said)
        assert "bound to another interface" in line, line


@pytest.mark.parametrize("peers", ["", FAR])
def test_sockets_give_datagrams_no_routes_of_their_own(peers, lab, sealing):
    out, said = start(lab, 0, CHOICES, "routes", NEAR, env=sealing.environment(plaintext_peers=peers)).communicate(timeout=30)
    assert out.split() == ["ENOTSUP", "ENOTSUP", "done"], (out, said)
    assert len(error_lines(said)) == 1, said


# plaintext_peers, and what comes in by it; who sends is FAR from port 5000, unless it is named.
ALLOWED = {
    FAR: ["far", "port"],
    f"{FAR}:5000": ["port"],
    "10.77.0.0/24": ["far", "port"],
    f"10.99.0.0/16,{OWN}": ["own"],
    "[fd00:77::]/64": ["ipv6"],
    "[fd00:77::2]:5000": ["ipv6"],
    "[fd00:77::3]": [],
    "[::]/0": ["far", "port", "own", "ipv6"],
    "10.77.0.3": [],
}


@pytest.mark.parametrize("peers", ALLOWED)
def test_peers_that_may_speak_in_clear(peers, lab, sealing):
    victim = receive(lab, sealing.environment(plaintext_peers=peers), "udp", "::")
    for words, source, target in (("far", "", NEAR), ("port", FAR, NEAR), ("own", OWN, NEAR), ("ipv6", "fd00:77::2", "fd00:77::1")):
        send(lab, 1, "udp", source, target, words)
    assert heard_by(victim) == ALLOWED[peers]


PROBE = """
import ctypes, errno, socket, struct, sys
if sys.argv[1:] == ["no filter"]:  # a kernel, or a sandbox, that does not know SO_ATTACH_FILTER
    # Of setsockopt (54) with the option 26: ENOPROTOOPT (92).
    code = [(0x20, 0, 0, 0), (0x15, 0, 3, 54), (0x20, 0, 0, 32), (0x15, 0, 1, 26), (0x06, 0, 0, 0x50000 | 92), (0x06, 0, 0, 0x7fff0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()

def said(what, call, *values):
    try:
        print(what, "done" if call(*values) is None else "made")
    except OSError as error:
        print(what, errno.errorcode[error.errno])

for number in range(2):
    said("socket", socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1:] != ["no filter"]:
    one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffffffff))
    said("attach", one.setsockopt, socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))
    said("detach", one.setsockopt, socket.SOL_SOCKET, 27, 0)
    said("unlock", one.setsockopt, socket.SOL_SOCKET, 44, 0)
    said("errors", one.setsockopt, socket.IPPROTO_IP, 11, 1)
    said("errors, ipv6", one.setsockopt, socket.IPPROTO_IPV6, 25, 1)
for family, kind, protocol in ((2, 3, 1), (2, 6, 33), (2, 1, 132), (2, 10, 0x300), (2, 1, 256), (17, 3, 0), (31, 1, 3), (40, 1, 0)):
    said(f"{family} {kind} {protocol}", socket.socket, family, kind, protocol)
"""


def probe(lab, env, *arguments):
    out, said = start(lab, 0, PROBE, *arguments, env=env).communicate(timeout=30)
    return dict(line.rsplit(" ", 1) for line in out.splitlines()), error_lines(said)


def test_the_filter_stays(lab, sealing):
    noted, said = probe(lab, sealing.environment())
    assert {what: noted[what] for what in ("attach", "detach", "unlock", "errors", "errors, ipv6")} == {
        "attach": "EPERM", "detach": "EPERM", "unlock": "EPERM", "errors": "ENOTSUP", "errors, ipv6": "ENOTSUP"}
    assert noted["socket"] == "made"
    assert sum("IP_RECVERR" in line for line in said) == 1, said


def test_sockets_that_are_neither_sealed_nor_guarded(lab, sealing):
    """Raw, DCCP, SCTP, the old kind of packet sockets, SMC by its protocol; AF_PACKET, AF_BLUETOOTH, AF_VSOCK."""
    noted, said = probe(lab, sealing.environment())
    assert {what: how for what, how in noted.items() if what[0].isdigit()} == dict.fromkeys(
        ["2 3 1", "2 6 33", "2 1 132", "2 10 768", "2 1 256", "17 3 0", "31 1 3", "40 1 0"], "EAFNOSUPPORT")
    assert len([line for line in said if "are refused: they carry data past" in line]) == 8, said


def test_where_there_is_no_filter_there_are_no_datagrams(lab, sealing):
    noted, said = probe(lab, sealing.environment(), "no filter")
    assert noted["socket"] == "EAFNOSUPPORT", (noted, said)
    lines = [line for line in said if "datagram sockets are refused" in line]
    assert len(lines) == 1 and "Protocol not available" in lines[0], said
    assert probe(lab, {}, "no filter")[0]["socket"] == "made"


def test_names_are_still_looked_up(lab, sealing):
    """libc asks a name server by inner calls, which are not ours to see, and gets its answer off the wire."""
    server = ("import socket\none = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\none.bind(('0.0.0.0', 53))\nprint('ready', flush=True)\n"
              "while True:\n    words, peer = one.recvfrom(1000)\n    end = words.index(0, 12) + 5\n    four = words[end - 3] == 1\n"
              "    answer = words[:2] + b'\\x81\\x80\\0\\1' + (b'\\0\\1' if four else b'\\0\\0') + bytes(4) + words[12:end]\n"
              "    one.sendto(answer + (b'\\xc0\\x0c\\0\\1\\0\\1' + bytes(4) + b'\\0\\4\\x0a\\4\\3\\2' if four else b''), peer)\n")
    names = start(lab, 1, server)
    assert names.stdout.readline() == "ready\n"
    ask = ("import ctypes, os, socket\nlibc = ctypes.CDLL(None)\nassert libc.unshare(0x20000) == 0\n"
           "open('/tmp/cryptmpi-resolv', 'w').write('nameserver 10.77.0.2\\n')\n"
           "assert libc.mount(b'/tmp/cryptmpi-resolv', b'/etc/resolv.conf', None, 4096, None) == 0\n"
           "print(socket.gethostbyname('some.where.test'))\n")
    for env in ({}, sealing.environment()):
        out, said = start(lab, 0, ask, env=env).communicate(timeout=40)
        assert (out, error_lines(said)) == ("10.4.3.2\n", []), (out, said)


MESSAGES = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
    static int words[50000], sums[50000];
    int rank, right = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 50000; i++) words[i] = i + rank;
    MPI_Allreduce(words, sums, 50000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 50000; i++) right = right && sums[i] == 2 * i + 1;
    if (rank == 0) printf("%s\\n", right ? "right" : "wrong");
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.parametrize("layer", ["channel", "mpi"])
def test_a_job_inside_one_node_may_use_datagrams(layer, lab, build, tmp_path):
    """An MPI that is told to, and to use no shared memory."""
    mpi = stacks.stack("mpich-5.0.2-ofi")
    (tmp_path / "messages.c").write_text(MESSAGES)
    program = build(mpi, tmp_path / "messages.c")
    sealing = Sealing(tmp_path / "config", lab, COMMAND, {"layer": layer, "network": "tcp"})
    line = sealing.run_line(mpi, FirstNodes(lab, 1), 2, [str(program)], tmp_path / "report.json")
    line[2:2] = ["--mpi", str(mpi.mpiexec)]
    env = {**mpi.env(lab), **sealing.env(), "FI_PROVIDER": "udp", "MPIR_CVAR_NOLOCAL": "1", "FI_LOG_LEVEL": "info"}
    done = lab.run(line, env=env, timeout=90)
    assert done.ok and "right" in done.output, done.output[-3000:]
    assert "udp" in done.output.lower()
    facts = sealing.report(tmp_path / "report.json")
    assert facts["complete"] and facts["refused_roads"] == [] and facts["not_sealed"] == [], facts
