"""A man in the middle of datagrams: passes on those from one node to another, which its own kernel drops, and attacks
one of them.

    datagrams.py --attack none|flip|drop|replay|truncate --from ADDRESS --to ADDRESS [--smallest BYTES] [--datagram N]

The attack is done once, on the N-th datagram whose payload has at least --smallest bytes; "done" on standard output
says that it was. Every datagram goes on with a checksum of 0, which is none: what he altered is not lost for that.
"""

import argparse
import contextlib
import signal
import socket
import struct
import subprocess
import sys

TABLE = "datagrams"
IP_HEADER, UDP_HEADER, UDP = 20, 8, 17
ETH_P_IP = 0x0800
PACKET_OUTGOING = 4


def rules(source, target):
    return f"""
table ip {TABLE} {{
    chain forward {{
        type filter hook forward priority 0
        ip saddr {source} ip daddr {target} meta l4proto udp drop
    }}
}}
"""


@contextlib.contextmanager
def only_by_us(source, target):
    subprocess.run(["nft", "-f", "-"], input=rules(source, target), text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "ip", TABLE], check=True)


def with_payload(packet, payload):
    head = bytearray(packet[:IP_HEADER + UDP_HEADER])
    struct.pack_into(">H", head, 2, IP_HEADER + UDP_HEADER + len(payload))
    struct.pack_into(">HH", head, IP_HEADER + 4, UDP_HEADER + len(payload), 0)
    return bytes(head) + payload


def attacked(attack, packet):
    """What goes on instead of the packet."""
    payload = packet[IP_HEADER + UDP_HEADER:]
    if attack == "drop":
        return []
    if attack == "replay":
        return [with_payload(packet, payload)] * 2
    if attack == "truncate":
        return [with_payload(packet, payload[:-100])]
    middle = len(payload) // 2
    return [with_payload(packet, payload[:middle] + bytes([payload[middle] ^ 1]) + payload[middle + 1:])]


def pass_on(options):
    taken = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    given = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    addresses = socket.inet_aton(options.source) + socket.inet_aton(options.target)
    print("ready", flush=True)
    count, done = 0, options.attack == "none"
    while True:
        packet, (_, _, kind, *_) = taken.recvfrom(1 << 16)
        if kind == PACKET_OUTGOING or packet[9] != UDP or packet[12:20] != addresses:
            continue
        packet = packet[:struct.unpack_from(">H", packet, 2)[0]]
        payload = packet[IP_HEADER + UDP_HEADER:]
        go_on = [with_payload(packet, payload)]
        if not done and len(payload) >= options.smallest:
            count += 1
            if count == options.datagram:
                go_on, done = attacked(options.attack, packet), True
                print("done", flush=True)
        for one in go_on:
            given.sendto(one, (options.target, 0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attack", choices=("none", "flip", "drop", "replay", "truncate"), required=True)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--to", dest="target", required=True)
    parser.add_argument("--smallest", type=int, default=1000)
    parser.add_argument("--datagram", type=int, default=3)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with only_by_us(options.source, options.target):
        pass_on(options)


if __name__ == "__main__":
    main()
