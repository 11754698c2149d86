"""Key agreement when MPI starts: ours along a binomial tree (docs/protocol.md), and C20's by RSA (C20 IV, key
distribution)."""

from dataclasses import dataclass
from functools import lru_cache

HELLO = 200         # bytes
ENTRY = 68          # bytes of a rank in a table
SECRET = 32
TERMS = 16          # bytes that the root sends with the secret
RECORD = 131072     # most bytes of a record
RECORD_EXTRA = 20   # header and tag
RSA_KEY, RSA_BLOCK = 270, 256  # bytes of a public key of 2048 bits, encoded, and of what is encrypted with it


@dataclass(frozen=True)
class Costs:
    """Seconds of what a rank computes. No measurement of this package gives them: assumptions that the caller
    prints."""

    x25519: float = 50e-6        # a scalar multiplication
    rsa_generate: float = 80e-3  # a key of 2048 bits
    rsa_encrypt: float = 20e-6
    rsa_decrypt: float = 600e-6


@dataclass(frozen=True)
class Agreement:
    """Seconds until the last rank is done, and what the busiest rank has to hold and send."""

    join: float
    gather: float
    spread: float
    confirm: float
    go: float
    table_bytes: int      # of one table, which every rank holds
    root_sends_bytes: int

    @property
    def seconds(self):
        return self.join + self.gather + self.spread + self.confirm + self.go


def children(ranks):
    """Sizes of the subtrees below a rank whose own has `ranks` ranks, the smallest distance first
    (docs/protocol.md)."""
    return [min(step, ranks - step) for step in (1 << bit for bit in range((ranks - 1).bit_length()))]


def on_wire(plain):
    """Bytes of the records that carry `plain` bytes."""
    return plain + RECORD_EXTRA * max(1, -(-plain // RECORD))


def _down(ranks, busy, travel, after=0.0):
    """Seconds until the last rank has heard from the root: a rank tells its children one after the other, the largest
    subtree first.

    `busy`: of the sender for each child; `travel`: from then to the child; `after`: what a child does before it goes
    on.
    """
    @lru_cache(maxsize=None)
    def reach(size):
        return max((place * busy + travel + after + reach(child) for place, child in enumerate(reversed(children(size)), 1)), default=0.0)
    return reach(ranks)


def _up(ranks, plain_of, network, cipher):
    """Seconds until the root has heard of all: a rank hears its children, the smallest subtree first, before it speaks.

    `plain_of(subtree)`: bytes that the root of so many ranks sends up.
    """
    @lru_cache(maxsize=None)
    def ready(size):
        at = 0.0
        for child in children(size):
            plain = plain_of(child)
            at = max(at, ready(child) + cipher.time(plain) + network.time(on_wire(plain))) + cipher.time(plain)
        return at
    return ready(ranks)


def tree(ranks, network, cipher, costs=Costs()):
    """The Agreement of `ranks` ranks, one a node. The passes follow each other; a rank that gets ahead in the next one
    is not counted."""
    table = ENTRY * ranks
    line = network.line(on_wire(table))
    sealing = cipher.time(SECRET + TERMS) + cipher.time(table)
    edges = len(children(ranks))
    # hello 1: a share of one's own, sent at once. hello 2: the parent's share and what both make; the child makes it,
    # too.
    join = costs.x25519 + network.time(HELLO) + _down(ranks, 2 * costs.x25519, network.time(HELLO), costs.x25519)
    spread = _down(ranks, sealing + line.beta * on_wire(table), network.time(on_wire(SECRET + TERMS)) + line.alpha, sealing)
    go = _down(ranks, cipher.time(0), network.time(on_wire(0)), cipher.time(0))
    return Agreement(join, _up(ranks, lambda subtree: ENTRY * subtree, network, cipher), spread, _up(ranks, lambda _: SECRET, network, cipher), go,
                     table, edges * (HELLO + on_wire(SECRET + TERMS) + on_wire(table) + on_wire(0)))


def rsa(ranks, network, costs=Costs()):
    """Seconds of C20's distribution: all generate keys, MPI_Gather of the public ones, the root encrypts for each,
    MPI_Scatter, all decrypt.

    Gather and Scatter by binomial trees: log2(p) alpha, and (p - 1) blocks pass the root's link (Thakur05).
    """
    rounds = (ranks - 1).bit_length()

    def tree_time(block):
        line = network.line(block * ranks)
        return rounds * line.alpha + line.beta * block * (ranks - 1)

    return costs.rsa_generate + tree_time(RSA_KEY) + (ranks - 1) * costs.rsa_encrypt + tree_time(RSA_BLOCK) + costs.rsa_decrypt
