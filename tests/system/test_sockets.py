"""The socket conformance suite: every case plain and sealed, and what they note must be the same."""

import errno
import os
import socket
import subprocess
import sys
import time

import pytest
from conftest import BUILD, SOCKETS, error_lines


def listed(kind):
    if not SOCKETS.exists():
        return []
    lines = subprocess.run([SOCKETS, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name, of_kind in map(str.split, lines) if of_kind == kind]


def run(arguments, environment=None, timeout=130):
    done = subprocess.run([SOCKETS, *map(str, arguments)], env={**os.environ, **(environment or {})}, capture_output=True,
                          timeout=timeout)
    return done.returncode, done.stdout.decode(errors="replace").splitlines(), done.stderr.decode(errors="replace")


UNSEALED = {"close_while_it_is_refused", "connect_refused", "connect_unusual", "udp_inside_the_node"}  # cases without a connection


def seeds(name):
    return (1, 2, 3) if "mixed" in name else (1,)


SENDS_BEFORE_THE_CONNECTION = """
import os, socket, sys, time
client = socket.socket()
if os.fork() == 0:
    time.sleep(0.3)  # the parent's connect is on its way: its SYN finds no room
    client.setblocking(True)
    try:
        print("child:", client.send(b"PLAINTEXT") if sys.argv[1] == "send" else client.recv(100))
    except OSError as error:
        print("child:", error.strerror)
    sys.stdout.flush()
    os._exit(0)
client.setblocking(False)
client.connect_ex(("127.0.0.1", int(sys.argv[2])))
os.wait()
"""


@pytest.mark.parametrize("how", ["send", "recv"])
def test_bytes_on_a_connection_that_another_process_makes(how, sealing):
    """A call that waits in the kernel for a connection would pass the bytes of it by us, in clear."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        full = socket.create_connection(listener.getsockname())
        line = [sys.executable, "-c", SENDS_BEFORE_THE_CONNECTION, how, str(listener.getsockname()[1])]
        program = subprocess.Popen(line, env={**os.environ, **sealing.environment(scope="all")}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)
        listener.accept()[0].close()
        full.close()
        listener.settimeout(10)
        peer = listener.accept()[0]
        peer.settimeout(3)
        if how == "recv":
            peer.sendall(b"FORGED")
        seen = b""
        try:
            while more := peer.recv(4096):
                seen += more
        except OSError:  # the program holds it, or it was reset
            pass
        program.kill()
        said, complaints = program.communicate()
    assert b"PLAINTEXT" not in seen and b"FORGED" not in said
    assert said == b"child: Transport endpoint is not connected\n", (said, complaints)
    assert b"was made by another process" in complaints


def test_the_suite_is_built():
    assert SOCKETS.exists()
    assert len(listed("one-process")) > 80


def skip_what_a_sanitizer_cannot(name):
    if BUILD.name == "tsan" and "vfork" in name:
        pytest.skip("ThreadSanitizer makes a vfork a fork, whose parent does not wait for the exec")
    if BUILD.name in ("asan", "tsan") and name == "threads_with_little_stack":
        pytest.skip("code with a sanitizer's checks takes more of the stack")
    if BUILD.name in ("asan", "tsan") and name in ("refused_after_vfork", "vfork_and_pipes"):
        pytest.skip("a sanitizer's runtime has a vfork of its own")
    if BUILD.name == "tsan" and name in ("long_messages_and_forks", "long_messages_while_others_fork"):
        pytest.skip("ThreadSanitizer does not support new threads in the child of a process with several")
    if BUILD.name == "asan" and name == "long_messages_while_others_fork":
        pytest.skip("AddressSanitizer of GCC 12 forks while other threads hold locks of its allocator, which the child then waits for")
    if BUILD.name == "asan" and "cancelled" in name:
        pytest.skip("AddressSanitizer of GCC 12 ends a thread that is cancelled: frames that the unwinder leaves stay poisoned")


@pytest.mark.parametrize("name", listed("one-process"))
def test_same_as_plain(name, sealing):
    skip_what_a_sanitizer_cannot(name)
    sealed = 0
    for seed in seeds(name):
        plain = run(["--case", name, "--seed", seed])
        assert plain[0] == 0 and plain[1][-1] == "end", plain
        report = sealing.report_file()
        status, noted, said = run(["--case", name, "--seed", seed], sealing.environment(report, scope="all"))
        assert noted == plain[1], said
        assert status == 0
        assert error_lines(said) == []
        parts = sealing.parts(report)
        assert sum(part["failed_opens"] for part in parts) == 0
        sealed += sum(part["sealed_records_received"] for part in parts)
    assert sealed > 0 or name in UNSEALED


LONG = ["transfer_8_mb", "partial_write_then_other_bytes", "partial_write_then_shutdown", "send_timeout", "epoll_edge_big", "epoll_edge_writable",
        "readiness_is_true_when_records_arrive_in_parts", "full_duplex", "a_writer_that_waits_does_not_stop_a_reader",
        *(name for name in listed("one-process") if name.startswith("long_messages"))]


@pytest.mark.parametrize("name", LONG)
def test_same_as_plain_with_workers(name, sealing):
    """However many cores there are."""
    skip_what_a_sanitizer_cannot(name)
    plain = run(["--case", name])
    report = sealing.report_file()
    status, noted, said = run(["--case", name], sealing.environment(report, scope="all", threads=4))
    assert noted == plain[1], said
    assert (status, error_lines(said)) == (0, [])
    assert sum(part["failed_opens"] for part in sealing.parts(report)) == 0


def test_workers_do_records(sealing):
    """Which ones, is chance."""
    by_workers = {}
    for threads in (1, 4, "auto"):
        report = sealing.report_file()
        assert run(["--case", "long_messages"], sealing.environment(report, scope="all", threads=threads))[0] == 0
        (part,) = sealing.parts(report)
        by_workers[threads] = part["records_by_workers"]
    assert by_workers[4] > 0
    assert by_workers[1] == by_workers["auto"] == 0  # by itself it is no rank


class Two:
    """A server and a client of one case; on two nodes, or (lab is None) on loopback."""

    def __init__(self, lab, folder):
        self.lab = lab
        self.folder = folder
        self.count = 0

    def _start(self, node, arguments, environment):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        line = [SOCKETS, *map(str, arguments)]
        if self.lab is None:
            return subprocess.Popen(line, env={**os.environ, **environment}, **pipes)
        return self.lab.start(line, node=node, env=environment, **pipes)

    def run(self, name, seed, server_environment, client_environment):
        self.count += 1
        port_file = self.folder / f"port-{self.count}"
        address = self.lab.nodes[1].address if self.lab else "127.0.0.1"
        server = self._start(1, ["--case", name, "--seed", seed, "--role", "server", "--listen", address, "--port-file", port_file],
                             server_environment)
        deadline = time.monotonic() + 20
        while not port_file.exists() and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        client = self._start(0, ["--case", name, "--seed", seed, "--connect", address, port_file.read_text().strip()],
                             client_environment)
        ends = []
        for process in (client, server):
            try:
                out, err = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += b"\ntimed out"
            ends.append((process.returncode, out.decode().splitlines(), err.decode()))
        return ends


def compare(two, name, sealing, **settings):
    for seed in seeds(name):
        plain = two.run(name, seed, {}, {})
        assert all(status == 0 and noted[-1] == "end" for status, noted, _ in plain), plain
        report = sealing.report_file()
        environment = sealing.environment(report, **settings)
        sealed = two.run(name, seed, environment, environment)
        for end, as_plain in zip(sealed, plain):
            assert end[:2] == as_plain[:2], end[2]
            assert error_lines(end[2]) == []
        parts = sealing.parts(report)
        assert sum(part["sealed_connections"] for part in parts) >= 2
        assert sum(part["failed_opens"] for part in parts) == 0


@pytest.mark.parametrize("name", listed("two-roles"))
def test_two_processes(name, sealing, tmp_path):
    compare(Two(None, tmp_path), name, sealing, scope="all")


@pytest.mark.parametrize("name", listed("two-roles"))
def test_two_nodes(name, nodes, sealing, tmp_path):
    compare(Two(nodes, tmp_path), name, sealing)


AFTER_VFORK = ["dup2 = 400", *(f"{call} = -1 EOPNOTSUPP" for call in ("write", "write", "send", "number", "read", "shutdown", "accept")),
               "dup2 = 2", "stderr = -1 EBADF", "open = -1 EACCES", *(f"{call} = -1 EOPNOTSUPP" for call in ("socket", "connect", "fork")),
               "the parent's stderr = 0", "received 12"]

REFUSED = {
    "refused_zerocopy": (["SO_ZEROCOPY = -1 EOPNOTSUPP", "send MSG_ZEROCOPY = -1 EOPNOTSUPP"], "ZEROCOPY"),
    "refused_timestamping": (["SO_TIMESTAMPING = -1 EOPNOTSUPP"], "SO_TIMESTAMPING"),
    "refused_out_of_band": (["send MSG_OOB = -1 EOPNOTSUPP", "recv MSG_OOB = -1 EOPNOTSUPP"], "MSG_OOB"),
    "refused_io_uring": (["io_uring_setup = -1 ENOSYS"], "io_uring"),
    "refused_io_submit": (["io_setup = 0", "io_submit = -1 ENOSYS"], "io_submit"),
    "refused_aio": ([f"{call} = -1 ENOSYS" for call in ("aio_write", "lio_listio", "aio_read")], "aio_write on a socket"),
    "refused_other_abi": (["write = -1 ENOSYS"], "x32"),
    "refused_clone": (["clone = -1 EINVAL"] * 3 + ["number = -1 EINVAL"], "clone with"),
    "refused_unshare": (["thread = -1 EINVAL", "number = -1 EINVAL", "unshare = -1 EINVAL", "number = -1 EINVAL", "close_range = -1 EINVAL",
                         "other spaces = 0", "received 12"], "several threads"),
    "refused_after_vfork": ([*AFTER_VFORK, *AFTER_VFORK, *["clone = -1 EINVAL"] * 2], "in a child of vfork, which"),
    "refused_verbs": ([f"{call} = -1 EACCES" for call in ("open", "creat", "stream", "stream")], "/dev/infiniband/uverbs0"),
    "refused_passing_of_a_sealed_socket": ([f"{call} SCM_RIGHTS = -1 EOPNOTSUPP" for call in ("sendmsg", "sendmmsg")], "SCM_RIGHTS"),
    "refused_stream_over_a_number": (["fflush = -1 EBADF", "fflush of a forgotten one = -1 EBADF", *["readable: none"] * 2], "a stream (FILE)"),
    "refused_pairs": (["socketpair = -1 EAFNOSUPPORT"], "family 30"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, sealing):
    skip_what_a_sanitizer_cannot(name)
    status, noted, said = run(["--case", name], sealing.environment(scope="all"))
    expected, word = REFUSED[name]
    assert noted == [*expected, "end"]
    assert status == 0
    lines = [line for line in error_lines(said) if word in line]
    assert lines, said
    assert len(set(lines)) == len(lines), "the same line twice"


@pytest.mark.parametrize("scope, alone", [("between-nodes", "0"), ("all", "-1 EOPNOTSUPP")])
def test_a_connection_that_two_processes_have_or_that_is_sealed_stays_what_it_is(scope, alone, sealing):
    """One of them would go on in clear where the other one has led it to another node."""
    status, noted, said = run(["--case", "refused_dissolving"], sealing.environment(scope=scope))
    assert (status, noted) == (0, [f"alone = {alone}", "accepted = -1 EOPNOTSUPP", "child 8", "parent = -1 EOPNOTSUPP", "received 5", "end"]), said
    assert any("AF_UNSPEC" in line for line in error_lines(said)), said


LATE = ["connect = -1 EINPROGRESS"]


@pytest.mark.parametrize("name, noted", [
    ("refused_dissolving_of_a_late_one", [*LATE, "pipe = 0", "OUT", "child 8", "send = 5", "received 5", "end"]),
    *((f"refused_connect_after_a_reset{how}", [*LATE, "pipe = 0", "OUT", "child 8", "end"]) for how in ("", "_and_so_error")),
])
def test_a_connection_that_is_made_late_stays_what_it_is(name, noted, sealing):
    status, said_by_case, said = run(["--case", name], sealing.environment(scope="between-nodes"))
    assert (status, said_by_case) == (0, noted), said
    assert any("AF_UNSPEC" in line for line in error_lines(said)), said


EARLY = """
#include <unistd.h>
__attribute__((constructor)) static void early(void) { (void)!write(1, "early ", 6); }
int late(void) { return (int)write(1, "and late", 8); }
"""

STARTS_EARLY = """
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as listener:
    stream = socket.create_connection(listener.getsockname())
    heard = listener.accept()[0]
if os.fork() == 0:
    os.dup2(stream.fileno(), 1)
    os.execv(sys.argv[1], sys.argv[1:])
stream.close()
heard.settimeout(10)
said = b""
while more := heard.recv(100):
    said += more
print(said.decode(), os.wait()[1])
"""


def test_what_a_library_writes_before_we_begin(sealing, tmp_path):
    """Its constructor runs before ours, and its standard output is a connection that the program before it sealed."""
    library, program = tmp_path / "libearly.so", tmp_path / "program"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=EARLY, text=True, check=True)
    subprocess.run(["cc", "-x", "c", "-", "-o", program, "-x", "none", library, f"-Wl,-rpath,{tmp_path}"],
                   input="int late(void); int main(void) { return late() != 8; }", text=True, check=True)
    for env in ({}, sealing.environment(report := sealing.report_file(), scope="all")):
        done = subprocess.run([sys.executable, "-c", STARTS_EARLY, program], env={**os.environ, **env}, capture_output=True, text=True, timeout=30)
        assert (done.stdout, error_lines(done.stderr)) == ("early and late 0\n", []), done
    parts = sealing.parts(report)
    assert sum(part["failed_opens"] for part in parts) == 0 and sum(part["sealed_records_received"] for part in parts) > 0


@pytest.mark.parametrize("name, expected", [
    ("refused_receive_by_mapping", ["TCP_ZEROCOPY_RECEIVE = -1 EOPNOTSUPP"]),
    ("lines_do_not_go_into_a_stream", ["send MSG_OOB = -1 EOPNOTSUPP", "who: Unknown host", "", "end"]),
])
def test_nothing_past_the_records(name, expected, sealing):
    report = sealing.report_file()
    status, noted, said = run(["--case", name], sealing.environment(report, scope="all"))
    assert (status, noted, error_lines(said)) == (0, [*expected, *([] if expected[-1] == "end" else ["end"])], []), said
    assert sum(part["failed_opens"] for part in sealing.parts(report)) == 0


def test_cpp_streams_never_write_to_a_socket_in_clear(sealing):
    status, noted, said = run(["--case", "cpp_streams_never_in_clear"], sealing.environment(scope="all"))
    assert (status, noted) == (0, ["good 0", "received 5", "more: none", "end"]), said
    assert error_lines(said) == []


PASS = """
import os, socket, sys
how, command = sys.argv[1], sys.argv[2:]
listener = socket.create_server(("127.0.0.1", 0))
stream = socket.create_connection(listener.getsockname())
heard = listener.accept()[0]
near, far = socket.socketpair()
far.set_inheritable(True)
if os.fork() == 0:
    number = stream.fileno()
    near.close()
    stream.close()
    os.environ.update(line.split("=", 1) for line in sys.stdin.read().splitlines())
    os.execvp(command[0], [*command, how, str(far.fileno()), str(number), str(os.getppid())])
far.close()
socket.send_fds(near, [b"x"], [stream.fileno()])
near.recv(1)
os.wait()
stream.close()
heard.settimeout(5)
print(heard.recv(100))
"""

TAKE = """
import ctypes, errno, os, socket, sys
how, near, number, parent = sys.argv[1], *map(int, sys.argv[2:])
near = socket.socket(fileno=near)
fds = socket.recv_fds(near, 1, 1)[1]
if how == "pidfd":
    libc = ctypes.CDLL(None, use_errno=True)
    fds = [libc.pidfd_getfd(os.pidfd_open(parent), number, 0)]
    assert fds[0] >= 0, errno.errorcode[ctypes.get_errno()]
try:
    os.write(fds[0], b"secret")
    print("written")
except OSError as error:
    print(errno.errorcode[error.errno])
near.send(b"x")
"""


@pytest.mark.parametrize("how", ["message", "pidfd"])
def test_connection_that_another_process_passes(how, sealing):
    """It was made without us, so nothing may go out on it."""
    variables = "\n".join(f"{name}={value}" for name, value in sealing.environment(scope="all").items())
    done = subprocess.run([sys.executable, "-c", PASS, how, sys.executable, "-c", TAKE], input=variables, capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == ["EPERM", "b''"], done
    (line,) = error_lines(done.stderr)
    assert "opened before cryptmpi was there" in line


def test_udp_to_another_node_is_refused(nodes, sealing):
    report = sealing.report_file()
    process = nodes.start([SOCKETS, "--case", "refused_udp", "--connect", nodes.nodes[1].address, "4242"],
                          env=sealing.environment(report), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    noted, said = (text.decode() for text in process.communicate(timeout=30))
    assert "sendto = -1" in noted, noted
    assert all("= -1" in line for line in noted.splitlines()[:-1]), noted
    assert any("UDP" in line for line in error_lines(said)), said
    assert any("UDP" in road for part in sealing.parts(report) for road in part["refused_roads"])


RING = """
#include <dlfcn.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
    struct io_uring ring;
    struct io_uring_params parameters = {0};
    int (*found)(unsigned, struct io_uring *, unsigned) = dlsym(dlopen("liburing.so.2", RTLD_NOW), "io_uring_queue_init");
    int answers[] = {io_uring_queue_init(8, &ring, 0), io_uring_queue_init_params(8, &ring, &parameters),
                     io_uring_setup(8, &parameters), found(8, &ring, 0)};
    for (int i = 0; i < 4; i++) puts(answers[i] < 0 ? strerror(-answers[i]) : "a ring");
}
"""


def test_rings_of_liburing_are_refused(sealing, tmp_path):
    """It makes system calls by itself, which do not come to us."""
    subprocess.run(["gcc", "-x", "c", "-", "-o", tmp_path / "ring", "-luring"], input=RING, text=True, check=True)
    plain = subprocess.run([tmp_path / "ring"], capture_output=True, text=True, check=True).stdout.splitlines()
    if plain != ["a ring"] * 4:
        pytest.skip(f"the kernel gives nobody a ring: {plain[0]}")
    done = subprocess.run([tmp_path / "ring"], env={**os.environ, **sealing.environment()}, capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == ["Function not implemented"] * 4, done
    assert all("io_uring is refused" in line for line in error_lines(done.stderr)) and error_lines(done.stderr)


SHARE = """
import os, socket, sys, time
one = socket.socket()
one.set_inheritable(True)
ready, tell = os.pipe()
wait, began = os.pipe()
os.set_inheritable(ready, True)
os.set_inheritable(began, True)
if os.fork() == 0:
    os.read(wait, 1)
    one.setblocking(False)
    one.connect_ex((sys.argv[1], 4242))
    time.sleep(0.5)
    os.write(tell, b"x")
    time.sleep(1.5)
    os._exit(0)
if sys.argv[2] == "exec":
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[3], str(one.fileno()), str(ready), str(began)])
exec(sys.argv[3])
"""

WRITE_ON_IT = """
import os, socket, sys
if sys.argv[1].isdigit():
    one, ready, began = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
os.write(began, b"x")
os.read(ready, 1)
for call in (lambda: one.send(b"secret"), lambda: os.write(one.fileno(), b"secret"), lambda: one.recv(10, socket.MSG_DONTWAIT)):
    try:
        print("done", call())
    except OSError as error:
        print(error.errno)
"""

HEAR_STREAM = """
import socket, sys
listener = socket.create_server((sys.argv[1], 4242))
print("ready", flush=True)
stream = listener.accept()[0]
stream.settimeout(1.5)
heard = b""
try:
    while True:
        more = stream.recv(10000)
        heard += more
        if not more:
            break
except OSError:
    pass
print(b"secret" in heard)
"""


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_a_socket_that_another_process_connects(how, nodes, sealing):
    """They share it from before it had a connection. Only who connected it has what seals it: nothing of the other one
    goes out, or comes in."""
    address = nodes.nodes[1].address
    noted = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        heard = nodes.start([sys.executable, "-c", HEAR_STREAM, address], node=1, stdout=subprocess.PIPE, text=True)
        assert heard.stdout.readline() == "ready\n"
        process = nodes.start([sys.executable, "-c", SHARE, address, how, WRITE_ON_IT], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        out, said = process.communicate(timeout=30)
        noted[way] = (out.split("\n"), heard.communicate(timeout=30)[0].strip())
    assert noted["plain"][0][:2] == ["done 6", "done 6"] and noted["plain"][1] == "True", "there is nothing to see"
    assert noted["sealed"] == ([str(errno.ENOTCONN)] * 3 + [""], "False"), said
    assert sum("another process" in line for line in error_lines(said)) == 1, said


CONNECT_AND_EXEC = """
import os, socket, sys
one = socket.socket()
one.set_inheritable(True)
one.setblocking(False)
one.connect_ex(("127.0.0.1", int(sys.argv[1])))
os.execv(sys.executable, [sys.executable, "-c", sys.argv[2], str(one.fileno())])
"""

WRITE_WHEN_IT_IS_THERE = """
import select, socket, sys
one = socket.socket(fileno=int(sys.argv[1]))
try:
    one.getpeername()
    print("too late", flush=True)
except OSError:
    print("on its way", flush=True)
select.select([], [one], [], 10)
try:
    one.send(b"secret")
except OSError:
    pass
"""


def test_a_connection_that_is_on_its_way_at_an_exec(sealing):
    """The next program knows of it as of one that is there."""
    heard = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment(scope="all", handshake_timeout_s=5))):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
            listener.settimeout(20)
            before = socket.create_connection(listener.getsockname())  # the kernel drops who comes while it waits
            line = [sys.executable, "-c", CONNECT_AND_EXEC, str(listener.getsockname()[1]), WRITE_WHEN_IT_IS_THERE]
            process = subprocess.Popen(line, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stdout.readline() == "on its way\n"
            listener.accept()[0].close()
            before.close()
            stream = listener.accept()[0]
            stream.settimeout(20)
            heard[way] = b"".join(iter(lambda: stream.recv(1000), b""))
            process.communicate(timeout=30)
    assert heard["plain"] == b"secret"
    assert heard["sealed"] and b"secret" not in heard["sealed"]


OPEN = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
folder = os.open("/dev/infiniband", os.O_PATH)
how = (ctypes.c_uint64 * 3)(os.O_RDWR)
os.chdir("/dev")
for fd in (libc.open(b"/dev/char/231:192", os.O_RDWR), libc.openat(folder, b"uverbs0", os.O_RDWR), libc.open(b"infiniband/uverbs0", os.O_RDWR),
           libc.syscall(437, folder, b"uverbs0", how, 24), libc.open(b"/dev/null", os.O_RDWR)):
    print(errno.errorcode[ctypes.get_errno()] if fd < 0 else "open")
"""


def test_devices_of_networks_have_other_names_too(nodes, sealing):
    """Where libibverbs may not open one by its name, it takes that of /dev/char."""
    devices = ("mount -t tmpfs none /dev && mkdir /dev/infiniband /dev/char && mknod -m 666 /dev/null c 1 3 && "
               "mknod /dev/infiniband/uverbs0 c 1 3 && ln -s ../infiniband/uverbs0 /dev/char/231:192 && ")
    noted = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        line = ["unshare", "--mount", "sh", "-c", devices + 'exec env "$@"', "sh", *(f"{name}={value}" for name, value in env.items()),
                sys.executable, "-c", OPEN]
        process = nodes.start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        noted[way], said = process.communicate(timeout=30)
    assert noted["plain"].split() == ["open"] * 5
    assert noted["sealed"].split() == ["EACCES"] * 4 + ["open"], said
    (line,) = error_lines(said)
    assert "/dev/infiniband/uverbs0 is refused" in line


HEAR = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], 4242))
print("ready", flush=True)
one.settimeout(20)
print(one.recv(100), flush=True)
"""


def test_libc_sends_no_udp_to_another_node_by_itself(nodes, sealing):
    """Its streams and its asynchronous output write by calls of their own; so did `echo secret >/dev/udp/HOST/PORT` of
    bash."""
    address = nodes.nodes[1].address
    heard = nodes.start([sys.executable, "-c", HEAR, address], node=1, stdout=subprocess.PIPE)
    assert heard.stdout.readline() == b"ready\n"
    noted = {}
    for way, env in (("sealed", sealing.environment()), ("plain", {})):
        process = nodes.start([SOCKETS, "--case", "refused_udp_by_libc", "--connect", address, "4242"], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        noted[way] = process.communicate(timeout=30)[0].decode().splitlines()
        if way == "sealed":
            bash = nodes.start(["bash", "-c", f"echo secret >/dev/udp/{address}/4242"], env=env, stderr=subprocess.PIPE)
            assert "UDP to" in bash.communicate(timeout=30)[1].decode()
            nodes.run([sys.executable, "-c", f"import socket; socket.socket(2, 2).sendto(b'nothing before', ('{address}', 4242))"])
            assert heard.communicate(timeout=30)[0] == b"b'nothing before'\n"
    assert noted["sealed"] == ["fdopen = -1 EPERM", "stdout = -1 EPERM", "aio_write = -1 ENOSYS", "end"]
    assert noted["plain"][0] == "fdopen = 0", "there is nothing to see"


PLUGIN = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#ifdef __x86_64__
static const char gnu[] = "GLIBC_2.2.5";
#else
static const char gnu[] = "GLIBC_2.17";
#endif
int whisper(const char* to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(4242)};
    inet_pton(AF_INET, to, &address.sin_addr);
    return sendto(socket(AF_INET, SOCK_DGRAM, 0), "secret", 6, 0, (struct sockaddr*)&address, sizeof address);
}
int whisper_by(const char* how, const char* to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(4242)};
    inet_pton(AF_INET, to, &address.sin_addr);
    ssize_t (*found)(int, const void*, size_t, int, const struct sockaddr*, socklen_t) =
        how[0] == 'n' ? dlsym(RTLD_NEXT, "sendto") : dlvsym(how[0] == 'v' ? RTLD_NEXT : RTLD_DEFAULT, "sendto", gnu);
    return found(socket(AF_INET, SOCK_DGRAM, 0), "secret", 6, 0, (struct sockaddr*)&address, sizeof address);
}
"""

PAST = """
import ctypes, os, socket, sys
how, plugin, address = sys.argv[1:]
if how == "deepbind":
    print(ctypes.CDLL(plugin, mode=os.RTLD_NOW | os.RTLD_DEEPBIND).whisper(address.encode()))
elif how == "namespace":
    libc = ctypes.CDLL(None)
    libc.dlmopen.restype = libc.dlsym.restype = ctypes.c_void_p
    handle = libc.dlmopen(ctypes.c_long(-1), plugin.encode(), os.RTLD_NOW)
    whisper = handle and libc.dlsym(ctypes.c_void_p(handle), b"whisper")
    print(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(whisper)(address.encode()) if whisper else "not loaded")
elif how in ("next", "version", "default"):
    print(ctypes.CDLL(plugin).whisper_by({"next": b"n", "version": b"v", "default": b"d"}[how], address.encode()))
else:
    libc = ctypes.CDLL("libc.so.6")
    to = (2).to_bytes(2, "little") + (4242).to_bytes(2, "big") + socket.inet_aton(address) + bytes(8)
    print(libc.sendto(libc.socket(socket.AF_INET, socket.SOCK_DGRAM, 0), b"secret", 6, 0, to, 16))
"""


@pytest.mark.parametrize("how, said", [("deepbind", "-1"), ("namespace", "not loaded"),
                                       *((how, "-1") for how in ("lookup", "next", "version", "default"))])
def test_no_library_is_led_past_us(how, said, nodes, sealing, tmp_path):
    """By its flags (RTLD_DEEPBIND, Julia's own way), by a namespace with a C library of its own, by what dlsym and
    dlvsym find in libc."""
    (tmp_path / "plugin.c").write_text(PLUGIN)
    plugin = tmp_path / "plugin.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", plugin, tmp_path / "plugin.c"], check=True)

    def tried(env):
        process = nodes.start([sys.executable, "-c", PAST, how, plugin, nodes.nodes[1].address], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=30)
        return out.strip(), error_lines(err)

    assert tried({}) == ("6", []), "it does not get this far plain: there is nothing to see"
    report = sealing.report_file()
    out, lines = tried(sealing.environment(report))
    assert out == said and len(lines) == 1, (out, lines)
    assert ("dlmopen" if how == "namespace" else "UDP to") in lines[0], lines
    assert [len(part["refused_roads"]) for part in sealing.parts(report)] == [1]
    if how == "namespace":
        allowed = sealing.report_file()
        assert tried(sealing.environment(allowed, allow_programs=plugin)) == ("6", [])
        (part,) = sealing.parts(allowed)
        assert [(one["reason"], one["allowed"]) for one in part["not_sealed"]] == [(f"allow_programs: {plugin} ran without CryptMPI", True)]


GO_LIBRARY = """
__asm__(".pushsection .note.go.buildid, \\"a\\", %note\\n.long 4, 4, 4\\n.ascii \\"Go\\\\0\\\\0test\\"\\n.popsection");
int speak(void) { return 7; }
"""

GO_PROGRAM = """
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef LINKED
int speak(void);
int main(void) { return speak() - 7; }
#else
int main(int argc, char** argv) {
    void* library = strcmp(argv[1], "in a child") == 0 && fork() != 0 ? NULL : dlopen(argv[2], RTLD_NOW);
    if (strcmp(argv[1], "used") == 0 && dlsym(library, "speak") != NULL) raise(SIGKILL);
    if (strcmp(argv[1], "before a fork") == 0) fork();
    wait(NULL);
    return 0;
}
#endif
"""


@pytest.mark.parametrize("how", ["linked", "loaded", "used", "in a child", "before a fork"])
def test_libraries_of_go_are_in_the_report(how, sealing, tmp_path):
    """They make system calls of their own. The rank that uses one may be killed, as launchers do at the end."""
    library, program = tmp_path / "libgo.so", tmp_path / "program"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=GO_LIBRARY, text=True, check=True)
    linked = ["-DLINKED", f"-Wl,--no-as-needed,-rpath,{tmp_path}", f"-L{tmp_path}", "-lgo"] if how == "linked" else []
    subprocess.run(["cc", "-x", "c", "-", "-o", program, *linked, "-ldl"], input=GO_PROGRAM, text=True, check=True)

    def told(**settings):
        report = sealing.report_file()
        done = subprocess.run([program, how, library], env={**os.environ, **sealing.environment(report, **settings)}, timeout=30)
        assert done.returncode == (-9 if how == "used" else 0)
        return [[(one["reason"], one["allowed"]) for one in part["not_sealed"]] for part in sealing.parts(report)]

    count, why = 2 if how == "before a fork" else 1, f"what the Go library {library} may have sent by system calls of its own"
    assert told() == [[(why, False)]] * count
    assert told(allow_programs=library) == told(allow_programs=program) == [[(f"allow_programs: {why}", True)]] * count
    assert told(allow_programs="/bin/true") == [[(why, False)]] * count


AUDITOR = """
#include <link.h>
#include <stdio.h>
unsigned la_version(unsigned version) { return version; }
void la_preinit(uintptr_t* cookie) { printf("audited "); fflush(stdout); }
"""


def test_a_library_that_audits_the_loader(sealing, tmp_path):
    """LD_AUDIT's have a C library of their own, too."""
    auditor = tmp_path / "auditor.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", auditor], input=AUDITOR, text=True, check=True)

    def tried(env):
        done = subprocess.run(["echo", "done"], env={**os.environ, "LD_AUDIT": str(auditor), **env}, capture_output=True, text=True, timeout=30)
        return done.returncode, done.stdout, error_lines(done.stderr)

    assert tried({}) == (0, "audited done\n", []), "there is nothing to see"
    status, _, lines = tried(sealing.environment())
    assert status == 125 and len(lines) == 1 and f"{auditor} in LD_AUDIT is refused" in lines[0]
    report = sealing.report_file()
    assert tried(sealing.environment(report, allow_programs=auditor))[::2] == (0, [])
    (part,) = sealing.parts(report)
    assert [(one["reason"], one["allowed"]) for one in part["not_sealed"]] == [(f"allow_programs: {auditor} ran without CryptMPI", True)]


LIBAIO = """
#include <sys/syscall.h>
#define CALL(name, number) \\
    long name(long a, long b, long c) { \\
        long answer; \\
        __asm__ volatile("syscall" : "=a"(answer) : "0"((long)number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory"); \\
        return answer; \\
    }
CALL(io_setup, SYS_io_setup)
CALL(io_submit, SYS_io_submit)
"""

SUBMIT = """
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
long io_setup(long, long*, long);
int io_submit(void*, long, struct iocb**);
int main(int count, char** words)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(4242)};
    inet_pton(AF_INET, words[1], &address.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr*)&address, sizeof address);
    long context = 0;
    struct iocb one = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)"secret", .aio_nbytes = 6}, *all = &one;
    io_setup(8, &context, 0);
    int done = io_submit((void*)context, 1, &all);
    puts(done < 0 ? strerror(-done) : "submitted");
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the library of the test makes x86-64's system calls")
def test_what_libaio_submits(nodes, sealing, tmp_path):
    """It makes system calls by itself, which do not come to us."""
    library, program = tmp_path / "libaio.so.1", tmp_path / "submit"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=LIBAIO, text=True, check=True)
    subprocess.run(["cc", "-x", "c", "-", "-o", program, "-x", "none", library, f"-Wl,-rpath,{tmp_path}"], input=SUBMIT, text=True, check=True)
    noted = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        process = nodes.start([program, nodes.nodes[1].address], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        noted[way], said = process.communicate(timeout=30)
    assert noted["plain"] == "submitted\n", "there is nothing to see"
    assert noted["sealed"] == "Function not implemented\n"
    assert ["io_submit on a socket is refused" in line for line in error_lines(said)] == [True]


WORDS = """
import ctypes
class Words(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("all", ctypes.POINTER(ctypes.c_char_p)), ("offset", ctypes.c_size_t)]
libc, words = ctypes.CDLL(None), Words()
libc.clearenv()
assert libc.wordexp(b"$(echo $LD_PRELOAD)", ctypes.byref(words), 0) == 0
print([words.all[i].decode() for i in range(words.count)])
"""


def test_the_shell_of_wordexp(sealing):
    """libc starts it by itself, with the environment as it is; here the program has thrown all of it away."""
    done = subprocess.run([sys.executable, "-c", WORDS], env={**os.environ, **sealing.environment()}, capture_output=True, text=True, timeout=30)
    assert "libcryptmpi-channel.so" in done.stdout, done


HIGH = """
import errno, fcntl, os, resource, socket
LIMIT = int(os.environ.get("TEST_DESCRIPTORS", 1 << 20))
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT + 100, max(LIMIT + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
except (OSError, ValueError):
    raise SystemExit("the limit stays")
one, file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), os.open("/dev/null", os.O_RDWR)
def tried(call):
    try:
        call()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
noted = [tried(call) for call in (lambda: os.dup2(file, LIMIT + 1), lambda: os.dup2(one.fileno(), LIMIT + 2),
                                  lambda: fcntl.fcntl(one, fcntl.F_DUPFD, LIMIT))]
while os.dup(file) < LIMIT:
    pass
print(*noted, tried(lambda: os.dup(one.fileno())), tried(socket.socket))
"""


def test_numbers_that_nobody_looks_after(sealing):
    """A socket with one goes nowhere."""
    env = {**os.environ, **sealing.environment()}
    done = subprocess.run([sys.executable, "-c", HIGH], env=env, capture_output=True, text=True, timeout=60)
    if "the limit stays" in done.stderr:
        pytest.skip("fs.nr_open, or the limit of descriptors, leaves no such numbers")
    assert done.stdout == "done EMFILE EMFILE EMFILE EMFILE\n", done
    (line,) = error_lines(done.stderr)
    assert "is refused: CryptMPI looks after descriptors below" in line


PASS_DEVICE = """
import os, socket, sys
near, far = socket.socketpair()
device = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
socket.send_fds(near, [b"x"], [device])
os.close(device)
far.set_inheritable(True)
os.environ.update(line.split("=", 1) for line in sys.argv[2].splitlines())
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], str(far.fileno())])
"""

TAKE_DEVICE = """
import os, socket, sys
print(os.readlink(f"/proc/self/fd/{socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1, 1)[1][0]}"))
"""


def test_a_device_that_another_process_passes(nodes, sealing):
    devices = "mount -t tmpfs none /dev && mkdir /dev/infiniband && mknod -m 666 /dev/null c 1 3 && mknod /dev/infiniband/uverbs0 c 1 3 && "
    noted = {}
    for way, env in (("plain", {}), ("sealed", sealing.environment())):
        variables = "\n".join(f"{name}={value}" for name, value in env.items())
        line = ["unshare", "--mount", "sh", "-c", devices + 'exec "$@"', "sh", sys.executable, "-c", PASS_DEVICE, TAKE_DEVICE, variables]
        process = nodes.start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        noted[way], said = process.communicate(timeout=30)
    assert noted == {"plain": "/dev/infiniband/uverbs0\n", "sealed": "/dev/null\n"}, said
    assert ["/dev/infiniband/uverbs0 is refused" in line for line in error_lines(said)] == [True]


def test_a_tool_before_libc_finds_it(sealing, tmp_path):
    """It has the call itself, and is called by us: what it looks up leads on to libc, and not back."""
    (tmp_path / "tool.c").write_text("""
#include <dlfcn.h>
#include <unistd.h>
ssize_t write(int fd, const void* from, size_t size) {
    ssize_t (*libcs)(int, const void*, size_t) = dlsym(dlopen("libc.so.6", RTLD_LAZY), "write");
    return libcs(fd, from, size);
}
""")
    tool = tmp_path / "tool.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tool, tmp_path / "tool.c"], check=True)
    env = sealing.environment(scope="all")
    env["LD_PRELOAD"] += f" {tool}"
    assert run(["--case", "scope_of_loopback"], env)[:2] == (0, ["received 5", "end"])


def test_data_with_the_syn_is_refused(nodes, sealing):
    process = nodes.start([SOCKETS, "--case", "refused_fast_open", "--connect", nodes.nodes[1].address, "4242"],
                          env=sealing.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    noted, said = (text.decode() for text in process.communicate(timeout=30))
    assert noted.splitlines() == [f"{call} = -1 EOPNOTSUPP" for call in ("sendto", "sendmsg", "sendmmsg", "TCP_FASTOPEN_CONNECT")] + ["end"]
    assert error_lines(said) == []


def test_loopback_is_native_by_default(sealing):
    report = sealing.report_file()
    status, noted, said = run(["--case", "scope_of_loopback"], sealing.environment(report))
    assert (status, noted) == (0, ["received 5", "end"]), said
    (part,) = sealing.parts(report)
    assert part["sealed_connections"] == 0
    assert part["native_connections"] > 0


def test_off_means_native_calls_only(sealing):
    report = sealing.report_file()
    status, noted, said = run(["--case", "scope_of_loopback"], sealing.environment(report, scope="all", enabled="false"))
    assert (status, noted, said) == (0, ["received 5", "end"], "")
    assert all(part["sealed_connections"] == 0 for part in sealing.parts(report))
