"""The best that any software could do: the plain network, plus what no software can hide of sealing and opening.

Units: bytes; microseconds; microseconds a byte. Sources:

- Hockney (1994): a message of m bytes takes alpha + beta m, with other parameters for eager and for rendezvous
  messages.
- (k,t)-chopping (CryptMPI, 2020, section IV): a message in k segments, t threads seal each; while one segment travels,
  the next is sealed and the last one opened. The period of the pipeline is what the slowest of them takes for a
  segment.
- Its max-rate model of threads, with no loss by more of them: this is a bound.

Ours is in which cores are free. Where both ends are on one machine, and the network is a copy of memory, the copying
takes processor time at both ends; over a period all of it, sealing and opening included, must fit into the machine's
cores. Software may place it as it likes.

Left out, since good software may have none of it: a message's own overhead, waiting for a receiver, copies of data,
another protocol of MPI's for segments than for the whole message.
"""

import bisect
import math
from dataclasses import dataclass

from cryptmpi_tools.model import hockney

TAG = 16  # bytes that each sealed segment has to be longer


@dataclass(frozen=True)
class Hockney:
    """The time of a plain message."""

    alpha_us: float
    beta_us: float  # a byte

    def time(self, size):
        return self.alpha_us + self.beta_us * size


@dataclass(frozen=True)
class Network:
    """A plain network under one MPI."""

    eager: Hockney
    rendezvous: Hockney
    switch: int  # bytes; messages from this size on go by rendezvous

    def protocol(self, size):
        return self.eager if size < self.switch else self.rendezvous

    def time(self, size):
        return self.protocol(size).time(size)


@dataclass(frozen=True)
class Cipher:
    """One core's time to seal and to open, as measured by size (ascending)."""

    sizes: tuple
    seal_us: tuple
    open_us: tuple

    def seal(self, size, threads=1):
        return _between(self.sizes, self.seal_us, size / threads)

    def open(self, size, threads=1):
        return _between(self.sizes, self.open_us, size / threads)

    def both(self, size):
        return self.seal(size) + self.open(size)


NO_CIPHER = Cipher((1,), (0.0,), (0.0,))


@dataclass(frozen=True)
class Machine:
    """The cores that both ends share, and what the network itself takes of them (0: it copies by itself)."""

    cores: int
    send_us: float = 0.0     # processor time of the sending end, a byte
    receive_us: float = 0.0  # of the receiving end


@dataclass(frozen=True)
class Best:
    """The best plan for a message."""

    us: float
    k: int  # segments
    t: int  # threads for each


def _between(sizes, times, size):
    """Linear between the measured sizes; the smallest one's time below them, the largest one's speed above."""
    if size <= sizes[0]:
        return times[0]
    if size >= sizes[-1]:
        return times[-1] * size / sizes[-1]
    at = bisect.bisect_right(sizes, size)
    share = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
    return times[at - 1] + share * (times[at] - times[at - 1])


def pipeline(size, k, t, network, cipher, machine):
    """The time of a message in k segments, t threads at each end.

    The first segment is sealed before anything travels, and the last one opened after all has; between them k - 1
    periods, and the last segment's own way.
    """
    line = network.protocol(size)
    segment = size / k
    wire = line.beta_us * (segment + TAG)
    seal, unseal = cipher.seal(segment, t), cipher.open(segment, t)
    # What was measured to travel at beta had time for its copying.
    send, receive = (min(copying, line.beta_us) * segment for copying in (machine.send_us, machine.receive_us))
    copying = min(send + receive, machine.cores * line.beta_us * segment)
    all_cores = (copying + t * (seal + unseal)) / machine.cores
    period = max(wire, seal, unseal, all_cores)
    return line.alpha_us + seal + (k - 1) * period + wire + unseal


def best(size, network, cipher, machine):
    """The fastest pipeline, with free choice of k and t."""
    plans = [(pipeline(size, k, t, network, cipher, machine), k, t) for t in range(1, machine.cores + 1) for k in _numbers_of_segments(size)]
    return Best(*min(plans))


def _numbers_of_segments(size):
    """1, 2, 3, 4, 6, 8, 12 ...: as long as a segment has a kilobyte."""
    most = max(1, size // 1024)
    powers = [2 ** n for n in range(int(math.log2(most)) + 1)]
    return sorted({k for power in powers for k in (power, power * 3 // 2) if k <= most})


def least_window(plain_us, size, pairs, busy_us, cipher, machine):
    """The time of a message with many in flight, where each of several pairs has one done in `plain_us`.

    Nothing has to wait for anything, so only the cores' time counts: for each message `busy_us` of them plain, at both
    ends together.
    """
    busy = min(pairs * busy_us, machine.cores * plain_us)
    return max(plain_us, (busy + pairs * cipher.both(size)) / machine.cores)


def crossing(operation, size, per_node):
    """(blocks, bytes of a block) that any software has to send between two nodes of `per_node` ranks: each piece of
    data once each way."""
    return {
        "bcast": (1, size),                      # from the root's node to the other one
        "allgather": (2 * per_node, size),       # each rank's block
        "alltoall": (2 * per_node ** 2, size),   # a block for each pair of ranks of different nodes
        "allreduce": (2, size),                  # each node's sum
    }[operation]


def least_work(operation, size, per_node, cipher):
    """Processor time that sealing and opening add to a collective operation."""
    blocks, bytes_each = crossing(operation, size, per_node)
    return blocks * cipher.both(bytes_each)


def fit_network(points):
    """Eager and rendezvous apart, at the switch between them that fits best; of fewer than six points one line is
    made."""
    found, _, _ = hockney.fit_network(points, relative=True)
    return Network(*(Hockney(line.alpha, line.beta) for line in (found.eager, found.rendezvous)), found.switch)
