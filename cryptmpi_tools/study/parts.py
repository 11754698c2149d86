"""What is measured: the parts of the quick and of the full study. A part is one program on one network under one MPI,
started in each of its ways in turn; the figures find it by its experiment."""

from dataclasses import dataclass

from cryptmpi_tools.bench import parts as bench_parts
from cryptmpi_tools.bench.parts import GCM, KB, MB, OPEN_MPI, PLAIN, SIZES, Variant, has_room, sealed
from cryptmpi_tools.bench.networks import SHAPES
from cryptmpi_tools.lab.stacks import STACKS, stack

NAIVE = Variant("naive", "", GCM)                 # the papers' construction, in the program itself
WIREGUARD = Variant("wireguard", "", "ChaCha20-Poly1305")  # the plain program through a tunnel, called as the tunnel is
IPSEC = Variant("ipsec", "", GCM)
LAYERS = (sealed("mpi", GCM), sealed("channel", GCM))
WAYS = (PLAIN, NAIVE, *LAYERS)


def plan_of_ours(name, profile, threads="auto"):
    """The MPI layer under one plan; study.profiles has the files of the profiles that are called as the way."""
    return Variant(name, "mpi", GCM, (*sealed("mpi", GCM).settings, ("profile", profile), ("threads", threads)))


DIRECT = plan_of_ours("direct", "direct", "1")       # whole, as far as a profile can say so
PIPELINED = plan_of_ours("pipelined", "none", "1")   # the built-in plan
THREADED = plan_of_ours("threaded", "none", "2")     # the built-in plan, sealed by several threads
TUNED = plan_of_ours("tuned", "tuned")               # what `cryptmpi tune` finds
PLANS = (DIRECT, PIPELINED, THREADED, TUNED)
ETHERNET, INFINIBAND, BARE = "veth-10g", "veth-40g", "veth"  # what stands for the papers' networks here
PAPER_SIZES = (1, 16 * KB, 4 * MB)                # N20's tables of collective operations
PLAN_SIZES = (64 * KB, 256 * KB, 512 * KB, 1 * MB, 4 * MB)  # of the quick study
STREAM_SIZES = (64 * KB, 1 * MB, 4 * MB)
PAIR_SIZES = (1, 16 * KB, 64 * KB, 2 * MB, 4 * MB)
THREAD_SIZES = tuple(size for size in SIZES if size >= 16 * KB)
COLLECTIVES = ("bcast", "alltoall", "allgather", "alltoallv", "allreduce", "reduce", "reduce_scatter", "gather", "scatter", "allgatherv",
               "gatherv", "scatterv")
REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")  # the naive construction has none
IN_FLIGHT = 64                                    # messages of a pair (cryptmpi_tools/bench/window.c)
MOST_THREADS = 8                                  # that the library takes by itself
LOADS = {"quick": (25, 75), "full": (25, 30, 50, 60, 75, 80)}  # % of computing


@dataclass(frozen=True)
class Part(bench_parts.Part):
    experiment: str = ""
    rule: str = "mpi"    # of study.method.RULES
    repeats: int = 5     # of each case in a start
    rounds: int = 200    # of the small messages in a repeat
    options: tuple = ()  # words for an outside program
    most_seconds: float = 0  # of all its turns; 0: as long as any other part

    @property
    def name(self):
        return "-".join(filter(None, [self.experiment, self.network, self.mpi, str(self.ranks) if self.mpi else "", *map(str, self.options)]))

    def title(self):
        return " ".join(filter(None, [self.network, self.mpi, self.experiment, *map(str, self.options), f"{self.ranks} ranks" if self.mpi else ""]))


@dataclass(frozen=True)
class Setting:
    """What this machine has: what the parts are made from."""

    full: bool
    mpi: str            # the one for everything; its ranks yield
    mpis: tuple         # all, for the ping-pong of the full study
    cores: int
    modules: tuple      # ((name, (cipher, ...)), ...)
    tunnels: tuple      # of WIREGUARD and IPSEC
    most_pairs: int = 16
    memory: int = 0     # bytes; 0: enough


def the_mpi():
    """An Open MPI that is installed, or None: its ranks yield, where there are more of them than cores."""
    return next((name for name in OPEN_MPI[::-1] if stack(name).present()), None)


def ways_of(setting, program_has_naive=True, tunnels=()):
    ways = WAYS if program_has_naive else tuple(way for way in WAYS if way != NAIVE)
    return (*ways, *(tunnel for tunnel in tunnels if tunnel in setting.tunnels))


def network_of(part, way):
    """The one that a way runs on."""
    return f"{part.network}-{way.name}" if way in (WIREGUARD, IPSEC) else part.network


# Cores alone


def ciphers(setting):
    ways = tuple(Variant(f"{module} {cipher}", "", cipher, (("module", module),)) for module, own in setting.modules for cipher in own)
    return Part("cipher", "core", ways, tests=tuple(("cipher", size) for size in SIZES), experiment="cipher", rule="crypto", repeats=1)


def threads(setting):
    wanted = ("AES-128-GCM", GCM, "AEGIS-128X4")
    ways = tuple(Variant(cipher, "", cipher, (("module", "auto"),)) for cipher in wanted if any(cipher in own for _, own in setting.modules))
    counts = thread_counts(setting)
    tests = tuple((f"threads-{count}", size) for count in counts for size in THREAD_SIZES)
    return Part("threads", "core", ways, tests=tests, experiment="threads", rule="crypto", repeats=1)


def thread_counts(setting):
    """1 to all: each up to 8, then powers of two, and all of them."""
    counts = {count for count in range(1, setting.cores + 1) if count <= 8 or count & (count - 1) == 0}
    return sorted(counts | {setting.cores})


# Messages


def ping_pong(setting, network, mpi, tunnels=()):
    tests = tuple(("ping-pong", size) for size in SIZES)
    return Part("pingpong", network, ways_of(setting, tunnels=tunnels), mpi, tests=tests, experiment="ping-pong", repeats=8)


def fits(setting, count, size):
    """Whether the windows of all receivers take no more than a sixth of the memory: sealed, they are there twice."""
    return not setting.memory or count * IN_FLIGHT * size <= setting.memory / 6


def pairs(setting, network, count, sizes, tunnels=(), experiment="pairs"):
    tests = tuple((experiment, size) for size in sizes if fits(setting, count, size))
    return Part("window", network, ways_of(setting, tunnels=tunnels), setting.mpi, 2 * count, count, tests, experiment=experiment,
                rounds=100 if setting.full else 10)


def collectives(setting, network, names, sizes, ranks):
    def some(wanted, ways, experiment):
        tests = tuple((name, size) for name in wanted for size in sizes)
        return Part("collectives", network, ways, setting.mpi, ranks, ranks // 2, tests, experiment=experiment, rounds=50)

    others = tuple(name for name in names if name not in REDUCTIONS)
    sums = tuple(name for name in names if name in REDUCTIONS)
    made = [some(others, ways_of(setting), "collectives")] if others else []
    return made + ([some(sums, ways_of(setting, program_has_naive=False), "reductions")] if sums else [])


def stencil(setting, network, dimensions, sizes):
    """2^dimensions ranks: each has neighbours in every dimension."""
    ranks = 2 ** dimensions
    tests = tuple((f"{dimensions}d-{load}", size) for load in LOADS["full" if setting.full else "quick"] for size in sizes)
    return Part("stencil", network, ways_of(setting), setting.mpi, ranks, ranks // 2, tests, experiment=f"stencil-{dimensions}d", repeats=2,
                rounds=50)


def n_body(setting, network):
    return Part("nbody", network, ways_of(setting), setting.mpi, 4, 2, (("n-body", 4 * KB), ("n-body", 32 * KB)), experiment="n-body", repeats=2,
                rounds=20)


def overhead(setting, network, sizes):
    tests = tuple((side, size) for side in ("send", "receive") for size in sizes)
    return Part("overhead", network, ways_of(setting), setting.mpi, tests=tests, experiment="host-overhead", repeats=2,
                rounds=1000 if setting.full else 200)


def transfers(setting, network, sizes):
    single = Part("transfer", network, ways_of(setting), setting.mpi, tests=tuple(("pingping", size) for size in sizes), experiment="pingping",
                  repeats=3)
    chain = Part("transfer", network, ways_of(setting), setting.mpi, 4, 2, tuple((name, size) for name in ("sendrecv", "exchange") for size in sizes),
                 experiment="chain", repeats=3, rounds=50)
    window = Part("transfer", network, ways_of(setting, program_has_naive=False), setting.mpi, 4, 2, tuple(("window", size) for size in sizes),
                  experiment="window", repeats=3, rounds=20)
    return [single, chain, window]


def flows(setting, network):
    """1 to 4 flows of 1 MB, and the tunnels beside them; IPsec, which is slow, with the fewest and the most in the
    quick study."""
    return [pairs(setting, network, count, (1 * MB,), (WIREGUARD, IPSEC) if setting.full or count in (1, 4) else (WIREGUARD,), "flows")
            for count in (1, 2, 3, 4)]


def threads_of_plans(setting):
    """How many threads of a rank seal under each of our plans, where it has segments.

    Threaded: two, or on larger machines a rank's share. Tuned, by threads = "auto": all of the machine, which either
    node takes for its own, but two.
    """
    return {DIRECT.name: 1, PIPELINED.name: 1, THREADED.name: min(max(setting.cores // 2, 2), MOST_THREADS),
            TUNED.name: min(max(setting.cores - 2, 1), MOST_THREADS)}


def plan_ways(setting, tunnels=()):
    """Plain, the naive construction, and each of our plans."""
    threaded = plan_of_ours(THREADED.name, "none", str(threads_of_plans(setting)[THREADED.name]))
    ours = (threaded if way == THREADED else way for way in PLANS)
    return (PLAIN, NAIVE, *ours, *(tunnel for tunnel in tunnels if tunnel in setting.tunnels))


def plans(setting, network, mpi, sizes, tunnels=()):
    """One message at a time."""
    return Part("pingpong", network, plan_ways(setting, tunnels), mpi, tests=tuple(("ping-pong", size) for size in sizes), experiment="plans",
                repeats=8)


def plans_of_streams(setting, network, sizes, tunnels=()):
    """64 messages in flight."""
    tests = tuple(("streaming", size) for size in sizes if fits(setting, 1, size))
    return Part("window", network, plan_ways(setting, tunnels), setting.mpi, tests=tests, experiment="plans-streaming",
                rounds=100 if setting.full else 10)


# All of it


def quick(setting):
    """What each figure needs, with fewer sizes, ranks and networks; what matters most comes first."""
    return [
        ciphers(setting), threads(setting),
        ping_pong(setting, ETHERNET, setting.mpi), ping_pong(setting, INFINIBAND, setting.mpi), ping_pong(setting, BARE, setting.mpi),
        *flows(setting, ETHERNET),
        plans(setting, ETHERNET, setting.mpi, PLAN_SIZES), plans_of_streams(setting, ETHERNET, STREAM_SIZES),
        *(pairs(setting, ETHERNET, count, (1, 16 * KB, 2 * MB)) for count in (1, 2, 4)),
        *(pairs(setting, INFINIBAND, count, PAIR_SIZES) for count in (1, 2, 4)),
        *(part for network in (ETHERNET, INFINIBAND) for part in collectives(setting, network, ("bcast", "alltoall"), PAPER_SIZES, 4)),
        *(pairs(setting, BARE, count, (64 * KB, 4 * MB)) for count in (1, 2, 4)),
        stencil(setting, INFINIBAND, 2, (64 * KB, 256 * KB)),
        *collectives(setting, BARE, COLLECTIVES, (1, 16 * KB, 256 * KB), 4),
        *transfers(setting, BARE, (1, 16 * KB, 1 * MB)),
        overhead(setting, BARE, (2 * KB, 128 * KB, 1 * MB)),
        n_body(setting, BARE),
        stencil(setting, INFINIBAND, 3, (64 * KB,)), stencil(setting, INFINIBAND, 4, (16 * KB,)),
    ]


def full(setting):
    networks = tuple(name for name in ("loopback", *SHAPES))
    every = [ciphers(setting), threads(setting)]
    counts = [count for count in (1, 2, 4, 8, 16) if count <= setting.most_pairs]
    for network in networks:
        every += [ping_pong(setting, network, mpi, (WIREGUARD,) if network != "loopback" and mpi == setting.mpi else ()) for mpi in setting.mpis]
    for network in (ETHERNET, INFINIBAND, BARE):
        large = tuple(size for size in SIZES if size >= 64 * KB)
        every += [plans(setting, network, mpi, large, (WIREGUARD,) if mpi == setting.mpi else ()) for mpi in setting.mpis]
        every += [plans_of_streams(setting, network, large, (WIREGUARD,))]
        every += flows(setting, network)
        every += [pairs(setting, network, count, PAIR_SIZES) for count in counts]
        every += [part for ranks in (4, 16) for part in collectives(setting, network, COLLECTIVES, SIZES, ranks)]
        every += [stencil(setting, network, dimensions, (16 * KB, 64 * KB, 256 * KB, 2 * MB)) for dimensions in (2, 3, 4)]
        every += [*transfers(setting, network, SIZES), n_body(setting, network)]
        every += [overhead(setting, network, (2 * KB, 16 * KB, 128 * KB, 512 * KB, 1 * MB))]
    return every


def mpis_with_room(cores):
    """Those whose two ranks do not wait for a core."""
    return tuple(mpi.name for mpi in STACKS if mpi.present() and has_room(mpi, 2, cores))
