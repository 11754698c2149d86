"""A program that knows nothing of CryptMPI: two ends that talk, and say what they received and how it ended.

    talk.py server ADDRESS PORT [SIZE [IDLE BUSY [CHUNKS]]]    prints "listening", then what it saw, as JSON
    talk.py client ADDRESS PORT [SIZE [IDLE BUSY [CHUNKS]]]

The client sends CHUNKS chunks of SIZE bytes and closes its direction; the server answers each with a short one and
closes after the end. The client waits IDLE seconds after each chunk, the server BUSY seconds before each read.
"""

import errno
import json
import random
import socket
import sys
import threading
import time

ARGUMENTS = sys.argv if __name__ == "__main__" else []  # of whoever imports it, they are not ours
CHUNKS = int(ARGUMENTS[7]) if len(ARGUMENTS) > 7 else 20
IDLE, BUSY = (float(word) for word in ARGUMENTS[5:7]) if len(ARGUMENTS) > 6 else (0.005, 0.0)
CANARY = b"canary-of-the-talk-0123456789abcdef"


def chunks(seed, size):
    source = random.Random(seed)
    return [CANARY + source.randbytes(size - len(CANARY)) for _ in range(CHUNKS)]


REPLIES = chunks(2, 500)


def named(error):
    return errno.errorcode.get(error.errno, str(error))


class End:
    def __init__(self, expected):
        self.expected = b"".join(expected)
        self.received = bytearray()
        self.read_error = self.write_error = self.connect_error = None

    def send(self, connection, parts, pause=0.0):
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.write_error = named(error)

    def receive(self, connection, size, on_data=lambda: None):
        try:
            time.sleep(BUSY)
            while part := connection.recv(max(65536, size)):
                self.received += part
                time.sleep(BUSY)
                if size > 65536:
                    time.sleep(0.005)  # several records come together
                on_data()
        except OSError as error:
            self.read_error = named(error)

    def summary(self):
        return {"connect_error": self.connect_error, "read_error": self.read_error, "write_error": self.write_error,
                "received": len(self.received), "complete": bytes(self.received) == self.expected,
                "unaltered": self.expected.startswith(bytes(self.received))}


def serve(address, requests):
    listener = socket.create_server(address)
    print("listening", flush=True)
    listener.settimeout(30)
    end = End(requests)
    try:
        connection, _ = listener.accept()
    except OSError as error:
        end.connect_error = named(error)
        return end
    connection.settimeout(30)
    answered = 0

    def answer():
        nonlocal answered
        while (answered + 1) * len(requests[0]) <= len(end.received):
            try:
                connection.sendall(REPLIES[answered])
            except OSError as error:
                end.write_error = named(error)
            answered += 1

    end.receive(connection, len(requests[0]), answer)
    connection.close()
    return end


def ask(address, requests):
    end = End(REPLIES)
    connection = socket.socket()
    connection.settimeout(30)
    try:
        connection.connect(address)
    except OSError as error:
        end.connect_error = named(error)
        return end
    sending = threading.Thread(target=end.send, args=(connection, requests, IDLE))
    sending.start()
    end.receive(connection, len(requests[0]))
    sending.join()
    connection.close()
    return end


if __name__ == "__main__":
    where = (sys.argv[2], int(sys.argv[3]))
    requests = chunks(1, int(sys.argv[4]) if len(sys.argv) > 4 else 5000)
    print(json.dumps((serve if sys.argv[1] == "server" else ask)(where, requests).summary()))
