"""(k,t)-chopping: a message in k chunks, each encrypted by t threads while the one before travels. C20 IV."""

from dataclasses import dataclass

KB = 1 << 10
SMALLEST = 64 * KB         # bytes; smaller messages are encrypted whole by one thread (C20 IV)
CHUNK = 512 * KB           # bytes of a chunk in the rule for k
LEAST_CHUNK = 64 * KB      # in the search for the best k: below it the model's free chunks would not be, MPI sends each as a message
MOST_OUTSTANDING = 64      # sends on their way, past which k falls to 1
COMMUNICATING_THREADS = 2  # T1: hardware threads of a rank that are kept for communication
NOLELAND = ((64 * KB, 2), (128 * KB, 4), (512 * KB, 8))   # (from bytes on, t): InfiniBand, 32 hardware threads a node
BRIDGES = ((64 * KB, 4), (256 * KB, 8), (512 * KB, 16))   # Omni-Path, 28 hardware threads a node


@dataclass(frozen=True)
class Plan:
    """How a message goes: k chunks, t threads, and the seconds that the model expects."""

    seconds: float
    k: int
    t: int


def time(size, k, t, network, cipher):
    """Seconds of a message of `size` bytes: 2 T_enc(s, t) + (k - 1) max(T_enc(s, t), beta s) + T_comm(s), s = size / k
    (C20 IV).

    The protocol (eager or rendezvous) is the whole message's. `cipher`: Levels of one direction, encrypting as fast as
    decrypting.
    """
    chunk = size / k
    line = network.line(size)
    sealing = cipher.time(chunk, t)
    return 2 * sealing + (k - 1) * max(sealing, line.beta * chunk) + line.time(chunk)


def best(size, network, cipher, most_threads=1):
    """The Plan of the least time, with k in powers of two, at most 64 and no chunk below 64 KB, and t up to
    `most_threads`.

    Of plans that take as long, the one with fewer chunks, then with fewer threads.
    """
    chunks = [k for k in (1, 2, 4, 8, 16, 32, MOST_OUTSTANDING) if k == 1 or size / k >= LEAST_CHUNK]
    return Plan(*min((time(size, k, t, network, cipher), k, t) for t in range(1, most_threads + 1) for k in chunks))


def hardware_threads(of_node, ranks_per_node):
    """T0: hardware threads of a rank, where a node's are shared out alike (C20 IV, footnote 3)."""
    return of_node // ranks_per_node


def chosen_threads(size, table, available, communicating=COMMUNICATING_THREADS):
    """min(T0 - T1, t), at least 1: t from the system's table, `available` is T0 (C20 IV)."""
    wanted = max((t for least, t in table if size >= least), default=1)
    return max(min(available - communicating, wanted), 1)


def chosen_chunks(size, outstanding=0):
    """k = max(1, m / 512 KB) rounded down; 1 where more than 64 sends of the rank would be on their way (C20 IV).

    `outstanding`: sends on their way already. The 8th message of 8 chunks brings C20's 64; the one after it goes in one
    piece (C20 V).
    """
    return 1 if outstanding >= MOST_OUTSTANDING else max(1, size // CHUNK)


def chosen(size, table, available, outstanding=0):
    """(k, t) as CryptMPI chooses them; (1, 1) below 64 KB."""
    if size < SMALLEST:
        return 1, 1
    return chosen_chunks(size, outstanding), chosen_threads(size, table, available)
