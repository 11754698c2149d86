"""What goes wrong when two ends do not agree: one error at the call, one line that says how to mend it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from conftest import error_lines
from run_talk import talk


def refused(ends, words):
    """No byte was delivered, both ends got an error, and one line (of either end, or of each) has each of the words."""
    for seen, said in ends:
        assert seen["received"] == 0, (seen, said)
        assert seen["connect_error"] or seen["read_error"], (seen, said)
    lines = [line for _, said in ends for line in error_lines(said)]
    assert lines, ends
    for word in words:
        assert any(word in line for line in lines), lines
    return lines


def errors_of(end):
    seen = end[0]
    return {seen["connect_error"], seen["read_error"], seen["write_error"]}


@pytest.mark.parametrize("cipher", ["AES-256-GCM", "AEGIS-128X4"])
def test_both_sealed(cipher, nodes, sealing):
    report = sealing.report_file()
    environment = sealing.environment(report, **({} if cipher == "AES-256-GCM" else {"cipher": cipher}))
    ends = talk(nodes, environment, environment)
    for seen, said in ends:
        assert seen["complete"] and not seen["read_error"], (seen, said)
        assert error_lines(said) == []
    parts = sealing.parts(report)
    assert sum(part["sealed_bytes_sent"] for part in parts) == sum(part["sealed_bytes_received"] for part in parts) == 20 * 5500
    assert all(part["suite"] == cipher and part["not_sealed"] == [] for part in parts)


def test_wrong_key(nodes, sealing):
    report = sealing.report_file()
    ends = talk(nodes, sealing.environment(report), sealing.environment(report, key_file=sealing.new_key("other.key")))
    refused(ends, ["job key"])
    assert "EKEYREJECTED" in errors_of(ends[0]) | errors_of(ends[1]), ends
    parts = sealing.parts(report)
    assert sum(part["refused_handshakes"] for part in parts) >= 1
    assert sum(part["sealed_bytes_sent"] for part in parts) == 0


@pytest.mark.parametrize("ciphers", [("AES-256-GCM", "AES-128-GCM"), ("AES-256-GCM", "AEGIS-256"), ("AEGIS-128X2", "AEGIS-128X4")], ids="-".join)
def test_other_cipher(ciphers, nodes, sealing):
    ends = talk(nodes, *(sealing.environment(cipher=cipher) for cipher in ciphers))
    refused(ends, ciphers)
    assert "EPROTO" in errors_of(ends[0]) | errors_of(ends[1]), ends


def test_other_job(nodes, sealing):
    ends = talk(nodes, sealing.environment(job_id="one"), sealing.environment(job_id="another"))
    refused(ends, ["job"])
    assert "EPROTO" in errors_of(ends[0]) | errors_of(ends[1]), ends


@pytest.mark.parametrize("sealed", ["client", "server"])
def test_plain_peer(nodes, sealing, sealed):
    """The peer that runs without us speaks, or waits for us to speak: it never gets a plain byte from the sealed end,
    nor the other way."""
    environment = sealing.environment(handshake_timeout_s=3)
    server, client = ({}, environment) if sealed == "client" else (environment, {})
    ends = talk(nodes, server, client)
    seen, said = ends[0 if sealed == "client" else 1]
    assert seen["received"] == 0
    assert errors_of((seen, said)) & {"EPROTO", "ETIMEDOUT", "ECONNABORTED"}, (seen, said)
    lines = error_lines(said)
    assert len(lines) == 1, said
    assert "plaintext_peers" in lines[0]
    assert nodes.nodes[1 if sealed == "client" else 0].address in lines[0]


@pytest.mark.parametrize("sealed", ["client", "server"])
def test_plaintext_peers(nodes, sealing, sealed):
    report = sealing.report_file()
    peer = nodes.nodes[1 if sealed == "client" else 0].address
    environment = sealing.environment(report, plaintext_peers=f"{peer}/32")
    server, client = ({}, environment) if sealed == "client" else (environment, {})
    ends = talk(nodes, server, client)
    for seen, said in ends:
        assert seen["complete"] and not seen["read_error"], (seen, said)
        assert error_lines(said) == []
    (part,) = sealing.parts(report)
    assert part["sealed_connections"] == 0
    (entry,) = part["not_sealed"]
    assert peer in entry["reason"] and entry["connections"] == 1


CONNECT = """
import errno, socket, sys
s = socket.socket()
try:
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.sendall(b"secret")
    print(s.recv(10))
except OSError as error:
    print(errno.errorcode[error.errno])
"""


# protocol: H12
def test_silent_peer(sealing):
    """It accepts, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heard = []

        def listen():
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(20)
                while part := connection.recv(1000):
                    heard.append(part)

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        done = subprocess.run([sys.executable, "-c", CONNECT, "127.0.0.1", str(listener.getsockname()[1])], text=True, timeout=30,
                              env={**os.environ, **sealing.environment(scope="all", handshake_timeout_s=2)},
                              capture_output=True)
        listening.join(20)
    assert done.stdout == "ETIMEDOUT\n", done
    (line,) = error_lines(done.stderr)
    assert "plaintext_peers" in line and "127.0.0.1" in line
    assert b"secret" not in b"".join(heard)


def _serve_with(reply):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection, listener:
            connection.settimeout(20)
            connection.sendall(reply)
            try:
                while connection.recv(1000):
                    pass
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


@pytest.mark.parametrize("reply", [b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n" * 10, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x", bytes(200),
                                   b"CMPI\x01\x02\x01\x00" + bytes(184)], ids=["ssh", "http", "short", "zeros", "other-version"])
def test_peer_that_says_something_else(sealing, reply):
    port = _serve_with(reply)
    done = subprocess.run([sys.executable, "-c", CONNECT, "127.0.0.1", str(port)], text=True, timeout=30, capture_output=True,
                          env={**os.environ, **sealing.environment(scope="all", handshake_timeout_s=2)})
    assert done.stdout in ("EPROTO\n", "ETIMEDOUT\n"), done
    assert len(error_lines(done.stderr)) == 1, done.stderr
    assert not reply.startswith(b"CMPI") or "speaks protocol version 1, we speak 2" in done.stderr


def test_peer_that_hangs_up(sealing):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        done = subprocess.run([sys.executable, "-c", CONNECT, "127.0.0.1", str(listener.getsockname()[1])], text=True, timeout=30,
                              env={**os.environ, **sealing.environment(scope="all")}, capture_output=True)
    assert done.stdout.startswith("E"), done
    assert len(error_lines(done.stderr)) <= 1


@pytest.mark.parametrize("problem", ["missing", "mode", "malformed"])
def test_bad_key_file(sealing, problem):
    """Nothing leaves the node in clear for want of a key."""
    if problem == "missing":
        sealing.key_file.unlink()
    elif problem == "mode":
        sealing.key_file.chmod(0o644)
    else:
        sealing.key_file.write_text("not a key\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        done = subprocess.run([sys.executable, "-c", CONNECT, "127.0.0.1", str(listener.getsockname()[1])], text=True, timeout=30,
                              env={**os.environ, **sealing.environment(scope="all")}, capture_output=True)
    assert "b'" not in done.stdout, done
    lines = error_lines(done.stderr)
    assert lines and any(str(sealing.key_file) in line for line in lines), done


def test_road_opened_before_us(sealing):
    """A device that carries messages around TCP, opened where we could not see it: the job stops at its first
    connection, and says why."""
    # /dev as a job with an InfiniBand adapter sees it.
    dev = ("mount -t tmpfs none /dev && mkdir /dev/infiniband && : >/dev/infiniband/uverbs0 && mknod -m 666 /dev/null c 1 3 && "
           'exec env "$0" "$@" 9</dev/infiniband/uverbs0')
    environment = sealing.environment(scope="all")
    settings = [f"{key}={value}" for key, value in environment.items()]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = subprocess.run(["unshare", "--mount", "sh", "-c", dev, *settings, sys.executable, "-c", CONNECT, "127.0.0.1",
                               str(listener.getsockname()[1])], text=True, timeout=30, capture_output=True)
    assert done.returncode == 125, done
    (line,) = error_lines(done.stderr)
    assert "/dev/infiniband/uverbs0" in line and "UCX_TLS=tcp" in line, line


RING_INSIDE = """
#include <liburing.h>
int inside(void)
{
    static struct io_uring ring;
    return io_uring_queue_init(8, &ring, 0);
}
"""


def test_ring_of_a_liburing_inside(sealing, tmp_path):
    """Where it is a part of a library, no call of ours takes the place of its own: the job stops at its first
    connection."""
    library = tmp_path / "inside.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-Wl,-Bstatic,--exclude-libs,ALL,-Bsymbolic",
                    "-luring", "-Wl,-Bdynamic"],
                   input=RING_INSIDE, text=True, check=True)
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).inside()); {CONNECT}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = [sys.executable, "-c", program, "127.0.0.1", str(listener.getsockname()[1])]
        done = subprocess.run(line, env={**os.environ, **sealing.environment(scope="all")}, text=True, timeout=30, capture_output=True)
    if done.stdout.startswith("-"):
        pytest.skip(f"the kernel gives nobody a ring: {done.stdout}")
    assert done.returncode == 125, done
    (said,) = error_lines(done.stderr)
    assert "io_uring" in said and "the job is stopped" in said, said


SERVE_TWICE = """
import errno, socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    listener.settimeout(20)
    print(listener.getsockname()[1], flush=True)
    for _ in range(2):
        connection, _ = listener.accept()
        with connection:
            try:
                print(connection.recv(100), flush=True)
            except OSError as error:
                print(errno.errorcode[error.errno], flush=True)
"""


# protocol: H1
def test_replayed_connection(sealing):
    """All that a client once sent, sent again by somebody without the keys. The addresses would give it away; they are
    not looked at here."""
    environment = {**os.environ, **sealing.environment(scope="all", check_addresses="false")}
    with subprocess.Popen([sys.executable, "-c", SERVE_TWICE], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as server, socket.create_server(("127.0.0.1", 0)) as proxy:
        port = int(server.stdout.readline())
        client = subprocess.Popen([sys.executable, "-c", CONNECT, "127.0.0.1", str(proxy.getsockname()[1])], env=environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        recorded = bytearray()
        with proxy.accept()[0] as near, socket.create_connection(("127.0.0.1", port)) as far:
            back = threading.Thread(target=lambda: _pump(far, near))
            back.start()
            _pump(near, far, recorded)
            back.join(20)
        client.wait(20)
        assert server.stdout.readline() == "b'secret'\n"
        with socket.create_connection(("127.0.0.1", port)) as replay:
            replay.sendall(recorded)
            replay.settimeout(20)
            while replay.recv(1000):
                pass
        delivered = server.stdout.readline()
        said = server.communicate(timeout=20)[1]
    assert delivered == "EKEYREJECTED\n", (delivered, said)
    (line,) = error_lines(said)
    assert "replayed handshake" in line, line


SERVE_ONE = """
import errno, socket, sys
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection = listener.accept()[0]
    connection.settimeout(20)
    if sys.argv[1] == "reads":
        try:
            print(connection.recv(100), flush=True)
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
    elif sys.stdin.readline():
        connection.close()
"""

CONNECT_ONE = """
import errno, socket, sys
stream = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
stream.settimeout(20)
try:
    if sys.argv[1] == "writes":
        stream.sendall(b"secret")
    if sys.argv[1] != "leaves":
        print(stream.recv(100), flush=True)
    else:
        sys.stdin.readline()
        stream.close()
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""


def _cut(near, far, after):
    """Lets so many bytes of the handshake through, by turns, then ends both connections as if the other end had closed
    them."""
    for source, target, size in ((near, far, 200), (far, near, 200), (near, far, 20)):
        size = min(size, after)
        after -= size
        while size > 0:
            part = source.recv(size)
            target.sendall(part)
            size -= len(part)
    for end in (near, far):
        end.shutdown(socket.SHUT_WR)


# protocol: R9
@pytest.mark.parametrize("after", [100, 200, 208, 400, 410])
@pytest.mark.parametrize("client", ["reads", "writes", "leaves"])
@pytest.mark.parametrize("server", ["reads", "leaves"])
def test_handshake_that_is_cut_off(after, client, server, sealing):
    """By somebody on the way. Who wrote or reads gets an error, never an end; who does neither has lost nothing, and is
    not bothered."""
    report = sealing.report_file()
    environment = {**os.environ, **sealing.environment(report, scope="all", check_addresses="false")}
    pipes = {"env": environment, "text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVE_ONE, server], **pipes) as serving, socket.create_server(("127.0.0.1", 0)) as proxy:
        port = int(serving.stdout.readline())
        with subprocess.Popen([sys.executable, "-c", CONNECT_ONE, client, str(proxy.getsockname()[1])], **pipes) as connecting:
            with proxy.accept()[0] as near, socket.create_connection(("127.0.0.1", port)) as far:
                _cut(near, far, after)
                for end in (near, far):  # until they have seen it
                    end.settimeout(0.5)
                    with contextlib.suppress(OSError):
                        while end.recv(1000):
                            pass
                got, said = connecting.communicate("go\n", timeout=30)
                got_there, said_there = serving.communicate("go\n", timeout=30)
    assert got == "" if client == "leaves" else got.startswith("E"), (got, said)
    assert got_there == "" if server == "leaves" else got_there.startswith("E"), (got_there, said_there)
    if client == "leaves":
        assert error_lines(said) == []
    if client == "writes":
        assert error_lines(said)
    if server == "leaves":
        assert error_lines(said_there) == []
    parts = sealing.parts(report)
    assert sum(part["refused_handshakes"] for part in parts) <= (client != "leaves") + (server != "leaves")


SERVE_SILENT = """
import errno, select, socket, sys
strangers = int(sys.argv[1])
with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
    print(listener.getsockname()[1], flush=True)
    accepted = [listener.accept()[0] for _ in range(strangers)]
    ends = []
    for stream in accepted:
        stream.setblocking(strangers == 1)
        try:
            ends.append(stream.recv(100))
        except BlockingIOError:
            pass
        except OSError as error:
            ends.append(errno.errorcode[error.errno])
    print(len(ends), *set(ends), flush=True)
    if strangers > 1:
        friend = listener.accept()[0]
        friend.settimeout(20)
        print(friend.recv(100), flush=True)
"""


WRITES_TO_A_LOST_PEER = """
import os, signal, socket, sys, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    peer = socket.create_connection(listener.getsockname())
    peer.recv(1)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)  # with a byte unread: the kernel sends a reset
end = listener.accept()[0]
end.sendall(b"ab")
os.wait()
for _ in range(2):  # the first write has the reset, the next one the broken pipe
    try:
        end.send(b"c")
    except ConnectionResetError:
        pass
"""


# protocol: R8
def test_who_dies_of_a_broken_pipe_says_so_first(sealing):
    done = subprocess.run([sys.executable, "-c", WRITES_TO_A_LOST_PEER], env={**os.environ, **sealing.environment(scope="all")},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGPIPE, done
    (line,) = error_lines(done.stderr)
    assert "the connection was lost without the authenticated close" in line


# protocol: H12
@pytest.mark.parametrize("words", [b"", b"CMPI\x02\x01\x02\x00 and no more"], ids=["silent", "halting"])
def test_stranger_who_does_not_go_on(words, sealing):
    """He is not kept for as long as a rank may compute, which is what handshake_timeout_s is for."""
    environment = {**os.environ, **sealing.environment(scope="all", handshake_timeout_s=600)}
    with subprocess.Popen([sys.executable, "-c", SERVE_SILENT, "1"], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as server:
        with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as stranger:
            stranger.sendall(words)
            try:
                got, said = server.communicate(timeout=60)
            finally:
                server.kill()
    assert got.splitlines() == ["1 ETIMEDOUT"], (got, said)
    (line,) = error_lines(said)
    assert "no handshake within" in line


def test_many_strangers_who_say_nothing(sealing):
    environment = {**os.environ, **sealing.environment(scope="all")}
    count = 300
    with subprocess.Popen([sys.executable, "-c", SERVE_SILENT, str(count)], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as server, contextlib.ExitStack() as strangers:
        port = int(server.stdout.readline())
        for _ in range(count):
            strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
        friend = subprocess.run([sys.executable, "-c", CONNECT_ONE, "writes", str(port)], env=environment, timeout=30, capture_output=True)
        got, said = server.communicate(timeout=60)
    assert got.splitlines() == [f"{count - 256} ECONNRESET", "b'secret'"], (got, said, friend)
    assert error_lines(said) == []


def _pump(source, target, kept=None):
    try:
        while part := source.recv(10000):
            if kept is not None:
                kept += part
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


LATE = """
#include <unistd.h>
__attribute__((destructor)) static void late(void) { if (write(700, "late secret", 11) < 0) return; }
"""

LEAVE_OPEN = """
import os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"secret")
s.recv(10)
os.dup2(s.fileno(), 700)
"""


def test_nothing_in_clear_after_the_end(sealing, tmp_path):
    """A library whose destructor runs after ours still writes to a socket that the program left open."""
    library = tmp_path / "late.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=LATE, text=True, check=True)
    environment = {**os.environ, **sealing.environment(scope="all", check_addresses="false")}
    # Constructors run from the last of the list to the first, destructors the other way round.
    late = {**environment, "LD_PRELOAD": f"{environment['LD_PRELOAD']} {library}"}
    with subprocess.Popen([sys.executable, "-c", SERVE_TWICE], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as server, socket.create_server(("127.0.0.1", 0)) as proxy:
        port = int(server.stdout.readline())
        client = subprocess.Popen([sys.executable, "-c", LEAVE_OPEN, "127.0.0.1", str(proxy.getsockname()[1])], env=late)
        recorded = bytearray()
        with proxy.accept()[0] as near, socket.create_connection(("127.0.0.1", port)) as far:
            threading.Thread(target=_pump, args=(far, near), daemon=True).start()
            _pump(near, far, recorded)
        assert client.wait(20) == 0
        assert server.stdout.readline() == "b'secret'\n"
        server.kill()
    assert len(recorded) > 200 and b"secret" not in recorded
