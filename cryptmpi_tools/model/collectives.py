"""Collective operations of p ranks, plain and encrypted, from the cost of a message. Thakur05 (sections 4 and 5), N20
5.1.

Each algorithm is a list of steps that follow each other: (how often, bytes of the message). One rank a node: every
message is encrypted. Reduction's arithmetic is left out, plain and encrypted.
"""

from dataclasses import dataclass

EXPANSION = 24  # bytes of a block's header and tag in the MPI layer (docs/protocol.md)


@dataclass(frozen=True)
class Collective:
    """Seconds of an operation, by the algorithm that is the fastest plain."""

    algorithm: str
    plain: float
    each_hop: float  # sealed and opened at every step, as the channel layer does
    end_to_end: float  # each block sealed once and opened by whom it is for, as the MPI layer does


def _doublings(ranks):
    """log2(p), rounded up."""
    return (ranks - 1).bit_length()


def _halves(size, ranks):
    """m/2, m/4, ...: a step each, until every rank has its p-th part."""
    return [(1, size / 2 ** step) for step in range(1, _doublings(ranks) + 1)]


def _doubled(size, ranks):
    """m, 2m, 4m, ...: in all (p - 1) m."""
    steps, have = [], 1
    while have < ranks:
        sent = min(have, ranks - have)
        steps.append((1, size * sent))
        have += sent
    return steps


def bcast(size, ranks):
    """`size` bytes from one rank to all: {algorithm: steps} (Thakur05, 4.2)."""
    scatter = _halves(size, ranks)
    return {"binomial tree": [(_doublings(ranks), size)],
            "scatter, recursive doubling": scatter + _doubled(size / ranks, ranks),
            "scatter, ring": scatter + [(ranks - 1, size / ranks)]}


def allgather(size, ranks):
    """`size` bytes of each rank to all (Thakur05, 4.1)."""
    return {"recursive doubling": _doubled(size, ranks), "ring": [(ranks - 1, size)]}


def alltoall(size, ranks):
    """`size` bytes from each rank to each other one (Thakur05, 4.3: Bruck's algorithm, pairwise exchange)."""
    return {"Bruck": [(_doublings(ranks), size * ranks / 2)], "pairwise": [(ranks - 1, size)]}


def allreduce(size, ranks):
    """A reduction of `size` bytes whose result all ranks have (Thakur05, 4.5: recursive doubling, Rabenseifner's
    algorithm)."""
    halves = _halves(size, ranks)
    return {"recursive doubling": [(_doublings(ranks), size)], "reduce-scatter, allgather": halves + halves[::-1]}


def steps_time(steps, network):
    """Seconds of the steps over a plain network."""
    return sum(times * network.time(size) for times, size in steps)


def hops_time(steps, network, cipher):
    """Seconds where every message is sealed and opened on its way."""
    return sum(times * (network.time(size) + 2 * cipher.time(size)) for times, size in steps)


def _fastest(algorithms, network):
    return min(algorithms.items(), key=lambda item: steps_time(item[1], network))


def _moved(algorithms, sealed_algorithms, network, cipher, blocks, size):
    """An operation that moves blocks: `blocks` of `size` bytes are sealed and opened by the busiest rank."""
    name, steps = _fastest(algorithms, network)
    _, sealed = _fastest(sealed_algorithms, network)
    return Collective(name, steps_time(steps, network), hops_time(steps, network, cipher), steps_time(sealed, network) + blocks * cipher.time(size))


def of_bcast(size, ranks, network, cipher):
    """Sealed once by the root, opened once by each rank."""
    return _moved(bcast(size, ranks), bcast(size + EXPANSION, ranks), network, cipher, 2, size)


def of_allgather(size, ranks, network, cipher):
    """Each rank seals its block, and opens those of the others."""
    return _moved(allgather(size, ranks), allgather(size + EXPANSION, ranks), network, cipher, ranks, size)


def of_alltoall(size, ranks, network, cipher):
    """Each rank seals and opens a block for each other one (N20 5.1, algorithm 1)."""
    return _moved(alltoall(size, ranks), alltoall(size + EXPANSION, ranks), network, cipher, 2 * (ranks - 1), size)


def of_allreduce(size, ranks, network, cipher):
    """End to end it is what the MPI layer does: partial results, sealed at each step up a binomial tree, then a
    Bcast."""
    name, steps = _fastest(allreduce(size, ranks), network)
    up = hops_time([(_doublings(ranks), size + EXPANSION)], network, cipher)
    return Collective(name, steps_time(steps, network), hops_time(steps, network, cipher), up + of_bcast(size, ranks, network, cipher).end_to_end)


OPERATIONS = {"bcast": of_bcast, "allreduce": of_allreduce, "allgather": of_allgather, "alltoall": of_alltoall}
