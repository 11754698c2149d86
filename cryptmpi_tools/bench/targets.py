"""The targets, as data: how much sealing may add to plain, and what a row of the report misses."""

import math
from dataclasses import dataclass

GCM = "AES-256-GCM"
AEGIS = "AEGIS-128X"  # of 2 or 4 lanes, whose number follows
KB, MB = 1 << 10, 1 << 20
OTHERS = 2  # the targets hold on the best MPI; no other one is worse than so many times them


@dataclass(frozen=True)
class Target:
    """Every limit that is set has to hold."""

    benchmark: str
    layers: tuple
    networks: tuple
    cipher: str | None = GCM       # None: whichever
    smallest: int = 0              # sizes from here ...
    largest: int | None = None     # ... to here
    quantity: str = "us"           # what the percentage is of: us, cpu_us
    pct: float | None = None
    us: float | None = None        # added microseconds
    us_a_round: float | None = None  # the same for each round of a binary tree of the ranks
    bytes: int | None = None       # added bytes of memory
    noise: bool = False            # nothing may be added that can be told from noise

    def fits(self, row):
        return (row["benchmark"] == self.benchmark and row["layer"] in self.layers and row["network"] in self.networks
                and _same_cipher(self.cipher, row["cipher"])
                and self.smallest <= (row["size"] or 0) <= (math.inf if self.largest is None else self.largest))

    def missed(self, row, factor=1):
        """Which of the limits a row misses, if each may be `factor` times as much."""
        wrong = []
        if self.noise and row["spread"]["added_pct"][0] > 0:
            wrong.append("noise")
        if self.pct is not None and _above(row.get("added_cpu_pct" if self.quantity == "cpu_us" else "added_pct"), factor * self.pct):
            wrong.append("pct")
        if self.us is not None and _above(row.get("added_us"), factor * self.us):
            wrong.append("us")
        if self.us_a_round is not None and _above(row.get("added_us"), factor * self.us_a_round * math.ceil(math.log2(row["ranks"]))):
            wrong.append("us")
        if self.bytes is not None and _above(row.get("added_bytes"), factor * self.bytes):
            wrong.append("bytes")
        return wrong

    def text(self):
        if self.noise:
            return "noise"
        parts = [f"{self.pct:g} %" if self.pct is not None else "", f"{self.us:g} us" if self.us is not None else "",
                 f"{self.us_a_round:g} us a round" if self.us_a_round is not None else "",
                 f"{self.bytes // KB} KiB" if self.bytes is not None else ""]
        return " and ".join(filter(None, parts)) + (" of CPU" if self.quantity == "cpu_us" else "")


def _same_cipher(wanted, cipher):
    return wanted is None or wanted == cipher or (wanted == AEGIS and str(cipher).upper().startswith(AEGIS))


def _above(value, limit):
    return value is None or value > limit


BOTH, CHANNEL, MPI, FABRIC = ("channel", "mpi"), ("channel",), ("mpi",), ("fabric",)
VETH, TEN, FORTY = ("veth",), ("veth-10g",), ("veth-40g",)


def _ping_pong(size, veth_channel, veth_mpi, ten, forty):
    """Targets in %, for veth as (AES-256-GCM, AEGIS-128X)."""
    exactly = {"smallest": size, "largest": size}
    for layers, pair in ((CHANNEL, veth_channel), (MPI, veth_mpi)):
        for cipher, pct in zip((GCM, AEGIS), pair):
            yield Target("ping-pong", layers, VETH, cipher, **exactly, pct=pct)
    yield Target("ping-pong", BOTH, TEN, **exactly, pct=ten)
    yield Target("ping-pong", BOTH, FORTY, **exactly, pct=forty)


def _streams(benchmark, size, veth_channel, veth_mpi, ten, forty):
    for layers, networks, pct in ((CHANNEL, VETH, veth_channel), (MPI, VETH, veth_mpi), (BOTH, TEN, ten), (BOTH, FORTY, forty)):
        yield Target(benchmark, layers, networks, smallest=size, largest=size, pct=pct)


TARGETS = [
    Target("ping-pong", BOTH, VETH, smallest=1, largest=256, pct=6, us=0.25),
    Target("ping-pong", BOTH, TEN, smallest=1, largest=256, pct=5),
    Target("ping-pong", BOTH, FORTY, smallest=1, largest=256, pct=5),
    *_ping_pong(16 * KB, (20, 10), (35, 15), 15, 20),
    *_ping_pong(64 * KB, (35, 20), (35, 20), 10, 20),
    *_ping_pong(1 * MB, (28, 18), (60, 40), 5, 15),
    *_ping_pong(4 * MB, (20, 12), (45, 30), 2, 10),
    Target("ping-pong", FABRIC, VETH, smallest=1, largest=256, pct=6, us=0.3),
    *(Target("ping-pong", FABRIC, VETH, smallest=size, largest=size, pct=pct)
      for size, pct in ((16 * KB, 30), (64 * KB, 35), (1 * MB, 106), (4 * MB, 83))),
    *(Target("ping-pong", FABRIC, TEN, smallest=size, largest=size, pct=2) for size in (1 * MB, 4 * MB)),
    *(Target(f"{operation} by messages", FABRIC, VETH, smallest=8, largest=8, pct=10) for operation in ("put", "get", "fetch-and-add")),
    *(Target(f"{operation} by messages", FABRIC, VETH, smallest=1 * MB, largest=1 * MB, pct=70) for operation in ("put", "get")),
    *_streams("streaming", 4 * MB, 25, 45, 1, 5),
    *_streams("pairs", 2 * MB, 25, 45, 1, 5),
    *_streams("message-rate", 1, 15, 15, 15, 15),
    *(Target(operation, BOTH, VETH, smallest=size, largest=size, quantity="cpu_us", pct=30)
      for operation in ("bcast", "allgather", "alltoall", "allreduce") for size in (16 * KB, 1 * MB)),
    *(Target(program, BOTH, networks, pct=pct) for program in ("hpcc", "lammps") for networks, pct in ((VETH, 5), (TEN + FORTY, 3))),
    Target("security-off", BOTH, VETH + TEN + FORTY, None, noise=True),
    Target("one-node", BOTH, VETH + TEN + FORTY, None, noise=True),
    Target("first-message", CHANNEL, VETH, us=1000),
    Target("init", MPI, VETH, us_a_round=5000),
    Target("init", FABRIC, VETH, us=5000),
    Target("connections", CHANNEL, VETH, bytes=1000 * 256 * KB),  # of 1,000 connections
    Target("rank-memory", MPI, VETH, bytes=64 * MB),
]


def target_of(row):
    """The target for a row of the report, or None."""
    return next((target for target in TARGETS if target.fits(row)), None)
