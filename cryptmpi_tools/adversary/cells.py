"""The matrix: which attack on which operation, for each layer and MPI."""

from dataclasses import dataclass, field

from cryptmpi_tools.lab.formats import HELLO, PREFIX, SHARE, TAG

EAGER = 3000  # bytes of the first round's messages (checking.c)
ANY = 1 << 30
BOTH = ("responder", "initiator")

# What tells a layer's own bytes from MPI's: the framing of the wire, and what is added to the program's message.
CHANNEL_MPIS = ["mpich-5.0.2-ofi", "openmpi-4.1.4"]
MPIS = {"channel": CHANNEL_MPIS, "mpi": CHANNEL_MPIS, "fabric": ["mpich-5.0.2-ofi", "mpich-4.0.2-ucx"]}
ONE_SIDED_MPI = "openmpi-4.1.4-pml-ucx"  # whose one-sided operations are those of UCX
FRAMING = {"mpich-5.0.2-ofi": "xnet", "openmpi-4.1.4": "btl", "mpich-4.0.2-ucx": "uct", ONE_SIDED_MPI: "uct"}
MESSAGE = {"mpi": 24, "fabric": 56}  # bytes more than the plaintext
MPI_LAYER = ["eager", "large", "outstanding", "bcast", "alltoall", "allreduce"]
OPERATIONS = {"channel": [*MPI_LAYER, "put", "file", "spawn"], "mpi": MPI_LAYER, "fabric": [*MPI_LAYER, "put", "file"]}


@dataclass(frozen=True)
class Cell:
    layer: str
    mpi: str
    operation: str
    attack: str
    toward: str = "any"
    origin: str = "wire"
    strike: dict = field(default_factory=dict, compare=False, hash=False)
    needs_recording: bool = False

    @property
    def key(self):
        return f"{self.layer} {self.mpi} {self.operation} {self.attack} {self.toward} {self.origin}"


def _strike(attack, toward, kinds, least=0, most=ANY, nth=0, **more):
    return {"attack": attack, "toward": toward, "kinds": kinds, "least": least, "most": most, "nth": nth, **more}


# Of a record, or of a message with its envelope in clear.
FRAME_ATTACKS = ["drop", "withhold", "duplicate", "swap", "delay", "replay", "replay-more", "truncate", "end", "reset", "shorten", "extend",
                 "garbage", "reflect", "splice", "splice-size", "other-job", "zeros", "random"]
RECORD_ATTACKS = [*FRAME_ATTACKS, "forged-data", "forged-close"]
HELLO_ATTACKS = ["drop", "withhold", "duplicate", "delay", "truncate", "end", "reset", "garbage", "reflect", "splice", "other-job", "zeros",
                 "random", "zero-share", "unknown-share", "older-version", "newer-version", "weaker-suite", "plain-text"]
# Header: lowest and highest byte of the length, type; ciphertext: first, second, middle ones, last; tag: first, last.
RECORD_FLIPS = [0, 2, 3, 4, 5, 1000, -17, -16, -1]
# Magic, version, message number, suite, reserved byte; first and last byte of the key's id, of the share, of the
# identity and of the tag.
HELLO_FLIPS = [0, 4, 5, 6, 7, 8, PREFIX - 1, PREFIX, PREFIX + SHARE - 1, PREFIX + SHARE, HELLO - TAG - 1, HELLO - TAG, HELLO - 1]
STRANGERS = ["silent", "random", "hello", "half-hello", "zero-share", "plain-text", "wrong-key", "flood", "spoofed", "spoofed-hello",
             "link-local"]


def _needs_recording(attack):
    return attack in ("other-job", "job")


# Where each frame is the answer to one before it there is nothing to swap.
ONE_AT_A_TIME = ("eager", "bcast", "alltoall", "allreduce", "put", "file", "spawn", "hello", "confirm", "close", "begin")


def _of(layer, mpi, operation, attacks, kinds, toward, origin="wire", **where):
    for attack in attacks:
        if attack == "swap" and operation.startswith(ONE_AT_A_TIME):
            continue
        yield Cell(layer, mpi, operation, attack, toward, origin, _strike(attack, toward, kinds, **where), _needs_recording(attack))


def channel(mpi, full):
    """Records and hellos of every kind of connection: the launcher's, those of the wire-up, MPI's."""
    flips = [f"flip:{at}" for at in (range(0, HELLO) if full else HELLO_FLIPS)]
    # The launcher's first connection, and MPI's: the last that begins before the program does.
    for name, connection in (("hello-launcher", 1), ("hello-mpi", 3)):
        for toward in BOTH:
            yield from _of("channel", mpi, name, [*flips, *HELLO_ATTACKS], ["hello"], toward, connection=connection)
    record_flips = [f"flip:{at}" for at in ([*range(0, 64), *range(-64, 0), *range(64, 3000, 97)] if full else RECORD_FLIPS)]
    for toward in BOTH:
        # The program that the node is to run, its settings; PMI's and PMIx's exchange of business cards; the end of the
        # job.
        for nth in (0, 2, 4) if not full else range(0, 12):
            all_of_it = nth == 2 or full
            attacks = [*record_flips, *RECORD_ATTACKS] if all_of_it else ["flip:4", "drop", "swap", "withhold", "replay", "other-job"]
            yield from _of("channel", mpi, f"launch-record-{nth}", attacks, ["data"], toward, connection=1, nth=nth)
        if toward == "responder":  # the initiator's alone
            attacks = ["flip:3", "flip:4", "flip:-1", *RECORD_ATTACKS]
            yield from _of("channel", mpi, "confirm", attacks, ["confirm"], toward, connection=3)
        attacks = ["flip:3", "flip:-1", "drop", "withhold", "duplicate", "random", "truncate", "reset"]
        yield from _of("channel", mpi, "close", attacks, ["close"], toward)
        yield from _of("channel", mpi, "all", ["job"], [], toward)
    for operation in OPERATIONS["channel"]:
        few = not full and operation not in ("eager", "large", "put")
        for toward in BOTH if not few else ("any",):
            attacks = ["flip:4", "flip:-1", "drop", "duplicate", "swap", "replay", "withhold", "splice"] if few else [*record_flips, *RECORD_ATTACKS]
            yield from _of("channel", mpi, operation, attacks, ["data"], toward, least=0 if operation == "spawn" else 2000, nth=3, phase="run")
    for who in STRANGERS:
        yield Cell("channel", mpi, "listeners", who, "any", "stranger")


def messages(layer, mpi, full):
    """Messages of the layer in MPI's own packets, which are in clear here."""
    more = MESSAGE[layer]
    size = {"least": EAGER + more, "most": EAGER + 1000 + more}
    flips = [f"flip:{at}" for at in (range(0, EAGER + more) if full else (0, 4, 10, 20, 40, 60, 100, 1500))] \
        + [f"flip:{at}" for at in ([] if full else (-40, -17, -16, -8, -1))]
    for operation in OPERATIONS[layer]:
        few = not full and operation not in ("eager", "large")
        attacks = ["flip:100", "flip:-1", "drop", "duplicate", "swap", "replay", "withhold", "splice"] if few else [*flips, *FRAME_ATTACKS]
        where = {**size, "nth": 3} if operation in ("eager", "outstanding", "bcast", "alltoall", "allreduce") else {"least": 2000, "nth": 3}
        for toward in BOTH if not few else ("any",):
            yield from _of(layer, mpi, operation, attacks, ["frame", "chunk"], toward, phase="run", **where)
    # What agrees on keys, and MPI's own packets of the wire-up.
    for toward in BOTH:
        attacks = ["flip:0", "flip:20", "flip:-1", "drop", "withhold", "truncate", "random"]
        yield from _of(layer, mpi, "begin", attacks, ["begin"], toward, phase="start")
        for nth in range(0, 30 if full else 8, 1 if full else 2):
            yield from _of(layer, mpi, f"wire-up-{nth}", ["flip:-1", "flip:50", "drop", "duplicate", "withhold", "replay", "zeros", "other-job"],
                           ["frame", "chunk"], toward, phase="start", nth=nth)
        yield from _of(layer, mpi, "all", ["job"], [], toward)
    for who in STRANGERS:
        yield Cell(layer, mpi, "listeners", who, "any", "stranger")


def one_sided(full):
    """Requests for a peer's memory, and their answers."""
    attacks = [f"flip:{at}" for at in (range(0, 3000) if full else (20, 60, 100, 1500, -40, -17, -1))]
    for toward in BOTH:
        yield from _of("fabric", ONE_SIDED_MPI, "put", [*attacks, *FRAME_ATTACKS], ["frame"], toward, phase="run", least=2000, nth=3)


def cells(full):
    for layer, mpis in MPIS.items():
        for mpi in mpis:
            yield from channel(mpi, full) if layer == "channel" else messages(layer, mpi, full)
    yield from one_sided(full)
