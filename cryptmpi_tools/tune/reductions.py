"""What the messages of a reduction cost, and which algorithm that makes the best: src/engine/collectives.hpp, seen from
here."""

import statistics
import time
from dataclasses import asdict, dataclass

from cryptmpi_tools.tune.plans import KB, MB

SIZES = tuple(4 ** power * KB for power in range(6))  # 1 KB to 1 MB: what ranks send each other in a reduction
COMBINED = MB                                          # bytes of each of the two vectors that are timed
NODES = (2, 3, 4, 8, 16, 64)                           # --explain shows these
LARGEST = 64 * MB
MOST_OF_MESSAGE, MOST_OF_KIB = 100_000_000, 1_000_000  # ReductionCosts' bounds


@dataclass(frozen=True)
class ReductionCosts:
    """Whole nanoseconds; the defaults are the library's. kib: of 1,024 bytes."""

    message_ns: int = 8000
    kib_ns: int = 500
    combine_kib_ns: int = 50

    def as_json(self):
        return asdict(self)

    def time(self, messages, sent, combined):
        """In 1/1,024 ns."""
        return 1024 * messages * self.message_ns + sent * self.kib_ns + combined * self.combine_kib_ns


def costs_of(system, costs, combine_s):
    """ReductionCosts by the models of a profile (pipeline.System, pipeline.Costs): the line through what messages that
    go whole take, with the least relative errors. `combine_s`: seconds that adding up a byte takes."""
    import numpy

    times = numpy.array([system.time(size, None, costs) for size in SIZES])
    lines = numpy.column_stack([numpy.ones(len(SIZES)), SIZES]) / times[:, None]
    (message_s, byte_s), *_ = numpy.linalg.lstsq(lines, numpy.ones(len(SIZES)), rcond=None)
    return ReductionCosts(_ns(message_s, MOST_OF_MESSAGE), _ns(byte_s * KB, MOST_OF_KIB), _ns(combine_s * KB, MOST_OF_KIB))


def _ns(seconds, most):
    return min(max(round(seconds * 1e9), 0), most)


def combine_s():
    """Seconds a byte that adding two vectors of doubles takes this machine."""
    import numpy

    one, other, times = numpy.ones(COMBINED // 8), numpy.ones(COMBINED // 8), []
    for _ in range(50):
        began = time.perf_counter()
        numpy.add(one, other, out=other)
        times.append(time.perf_counter() - began)
    return statistics.median(times) / COMBINED


def allreduce_way(costs, size, nodes):
    """"doubling", "halves" or "parts" (engine::allreduce_way)."""
    steps = nodes.bit_length() - 1
    power = 1 << steps
    but_one, but_part = size - size // power, size - size // nodes
    pairs = (0, 0, 0) if power == nodes else (2, 2 * size, size)

    def with_pairs(*work):
        return costs.time(*(one + other for one, other in zip(pairs, work)))

    times = {"doubling": with_pairs(steps, steps * size, steps * size), "halves": with_pairs(2 * steps, 2 * but_one, but_one),
             "parts": costs.time(2 * (nodes - 1), 2 * but_part, but_part)}
    return min(times, key=times.get)  # the first of equals


def ways(costs, nodes):
    """[(most bytes, way)] of Allreduce by size, ascending; None in the last. Between powers of 2 as at the greater
    one."""
    found = []
    for size in (2 ** power for power in range(3, LARGEST.bit_length())):
        way = allreduce_way(costs, size, nodes)
        if found and found[-1][1] == way:
            found.pop()
        found.append((size, way))
    return [*found[:-1], (None, found[-1][1])]
