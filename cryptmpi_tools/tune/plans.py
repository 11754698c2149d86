"""How messages travel, as src/engine/plan.hpp has it, and the plans that are worth a thought."""

import itertools
from dataclasses import asdict, dataclass

KB, MB = 1 << 10, 1 << 20
ALWAYS_WHOLE, MOST_WHOLE = 64 * KB, 256 * KB  # between them the sender chooses
WHOLE_OVERHEAD, SEGMENT_OVERHEAD = 24, 16     # bytes that sealing adds
ROUNDED = 64                                  # segments are multiples of so many bytes, but for the first and the last

EDGES = (16 * KB, 32 * KB, 60 * KB)
SEGMENTS = (60 * KB, 128 * KB, 256 * KB, 512 * KB, MB)
IN_FLIGHT = (2, 4, 8)
WHOLES = (64 * KB, 128 * KB, 256 * KB)


def _divided_up(number, by):
    return -(-number // by)


@dataclass(frozen=True)
class Plan:
    """Of messages that go in segments: the first and about the last, the most between them, and how many are with MPI
    at a time."""

    edge: int = 60 * KB
    segment: int = 256 * KB
    in_flight: int = 4

    def pieces(self, size):
        """Bytes of each segment (Plan::segments_of; messages of more than 65,535 segments are not thought of)."""
        ends = 0 if size < 3 * self.edge else 1 if self.segment <= self.edge else 2
        middle = size - ends * self.edge
        count = _divided_up(middle, self.segment)
        others = _divided_up(_divided_up(middle, count), ROUNDED) * ROUNDED
        first = min(self.edge, size)
        whole, rest = divmod(size - first, others)
        return (first, *[others] * whole, *([rest] if rest else []))


@dataclass(frozen=True)
class Row:
    up_to: int | None  # bytes of the longest message; None: no limit
    plan: Plan


@dataclass(frozen=True)
class Plans:
    """Messages up to `largest_whole` go in one piece, others by the first row that they fit in."""

    largest_whole: int = MOST_WHOLE
    rows: tuple = (Row(None, Plan()),)

    def of(self, size):
        """The Plan of a message of `size` bytes; None: whole."""
        if size <= self.largest_whole:
            return None
        return next(row.plan for row in self.rows if row.up_to is None or size <= row.up_to)

    def as_json(self):
        return {"largest_whole": self.largest_whole, "rows": [{"up_to": row.up_to, **asdict(row.plan)} for row in self.rows]}


DEFAULT = Plans()
SHORT = Plans(rows=(Row(None, Plan(segment=60 * KB, in_flight=16)),))  # Plan::of_short_segments, of a message alone


def default_of(abi):
    """What the library does without a profile, under the MPI of this ABI."""
    return SHORT if abi == "openmpi" else DEFAULT


def plans_of(content):
    """Plans from what as_json made. Raises KeyError, TypeError."""
    names = ("edge", "segment", "in_flight")
    return Plans(content["largest_whole"], tuple(Row(row["up_to"], Plan(*(row[name] for name in names))) for row in content["rows"]))


def joined(rows, largest_whole):
    """Plans of [(up_to, Plan)], of which neighbours that are alike become one; rows for what goes whole are left
    out."""
    kept = []
    for up_to, plan in rows:
        if up_to is not None and up_to <= largest_whole:
            continue
        if kept and kept[-1].plan == plan:
            kept.pop()
        kept.append(Row(up_to, plan))
    return Plans(largest_whole, tuple(kept))


def every():
    """The plans of the search."""
    return [Plan(*choice) for choice in itertools.product(EDGES, SEGMENTS, IN_FLIGHT)]
