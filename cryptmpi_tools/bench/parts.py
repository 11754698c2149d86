"""What is measured: the parts of the quick and of the full benchmark.

A part is one program on one network under one MPI, started plain and sealed in turn. The programs and what a start of
each gives stand in `bench.programs`.
"""

from dataclasses import dataclass, replace

from cryptmpi_tools.bench.targets import GCM
from cryptmpi_tools.lab.sealing import alone
from cryptmpi_tools.lab.stacks import FABRIC, STACKS, UDP, stack

KB, MB = 1 << 10, 1 << 20
LAYERS = ("channel", "mpi", "fabric")
CIPHERS = (GCM, "AEGIS-128X4")
UNSHAPED, SHAPED = ("loopback", "veth"), ("veth-10g", "veth-40g")
NETWORKS = (*UNSHAPED, *SHAPED)
QUICK_NETWORKS = ("veth", *SHAPED)  # unless told otherwise
SIZES = (1, 16, 256, 1 * KB, 4 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, 512 * KB, 1 * MB, 2 * MB, 4 * MB)
FEW_SIZES = (1, 16 * KB, 1 * MB)
ONE_SIDED = (("put", 8), ("put", 64 * KB), ("put", 1 * MB), ("get", 8), ("get", 64 * KB), ("get", 1 * MB), ("fetch-and-add", 8))
COLLECTIVES = ("bcast", "allgather", "alltoall", "allreduce")
CONNECTIONS = 1000
OPEN_MPI = ("openmpi-4.1.4", "openmpi-5.0.11")  # the MPIs that HPCC and LAMMPS run on as Debian ships them

# The MPI of each layer that the quick benchmark takes for what it does not do on all of them: the first that is
# installed. Its ranks yield while they wait: some of it has more ranks than a machine may have cores.
ONE = {"channel": OPEN_MPI[::-1], "mpi": OPEN_MPI[::-1], "fabric": ("mpich-5.0.2-ucx", "mpich-5.0.2-ofi")}
# MPIs that can be told to do without remote memory (bench.programs).
CAN_DO_BY_MESSAGES = ("mpich-4.0.2-ucx", "mpich-5.0.2-ucx", "mpich-5.0.2-ofi", "mpich-5.0.2-ofi-udp")
EVERY = (*STACKS, *(mpi for mpi in FABRIC if mpi not in STACKS))


@dataclass(frozen=True)
class Variant:
    """One way of starting a program."""

    name: str
    layer: str = ""
    cipher: str = ""
    settings: tuple | None = None  # of CryptMPI, as (name, value); None: plain

    @property
    def is_plain(self):
        return self.settings is None


PLAIN = Variant("plain")
# MPI's own way to reach a window without remote memory, which is what it has to take when sealed.
BY_MESSAGES = Variant("plain, by messages")


def sealed(layer, cipher):
    return Variant(f"{layer} {cipher}", layer, cipher, (("layer", layer), ("cipher", cipher), *alone(layer).items()))


def switched_off(layer):
    return Variant(f"{layer} off", layer, "off", (("layer", layer), ("enabled", "off")))


@dataclass(frozen=True)
class Part:
    program: str
    network: str
    variants: tuple
    mpi: str = ""  # "": no MPI program
    ranks: int = 2
    per_node: int = 1
    tests: tuple = ()  # (benchmark, size)
    most_turns: int | None = None

    @property
    def name(self):
        words = [self.network, self.mpi, self.tests[0][0] if self.tests else self.program, str(self.ranks) if self.mpi else ""]
        return "-".join(filter(None, words))

    def title(self):
        what = ", ".join(dict.fromkeys(label for label, _ in self.tests)) or self.program
        return " ".join(filter(None, [self.network, self.mpi, what]))


@dataclass(frozen=True)
class Wanted:
    """What the options leave of it all."""

    stacks: tuple = ()  # names; (): all
    layers: tuple = LAYERS
    networks: tuple = NETWORKS
    benchmarks: tuple = ()  # (): all
    ciphers: tuple = CIPHERS
    sizes: tuple = ()  # of the ping-pong; (): all

    def of(self, part):
        """What is left of a part, or None."""
        tests = tuple(test for test in part.tests if not self.benchmarks or test[0] in self.benchmarks)
        if self.sizes and part.program == "pingpong":
            tests = tuple((label, size) for label, size in tests if size in self.sizes)
        variants = tuple(v for v in part.variants if v.is_plain or (v.layer in self.layers and v.cipher in (*self.ciphers, "off")))
        other_mpi = self.stacks and part.mpi and part.mpi not in self.stacks
        if not tests or all(v.is_plain for v in variants) or part.network not in self.networks or other_mpi:
            return None
        return replace(part, tests=tests, variants=variants)


def has_room(mpi, ranks, cores):
    """Ranks that spin while they wait get a core each."""
    return ranks <= cores or mpi.family.startswith("openmpi")


def variants_of(layers, ciphers):
    return (PLAIN, *(sealed(layer, cipher) for layer in layers for cipher in ciphers))


def layers_on(mpi):
    """Those that are measured on this MPI, plain among them for all."""
    if mpi in STACKS:
        return LAYERS if mpi in FABRIC else ("channel", "mpi")
    return ("fabric",) if mpi == UDP else ("channel", "fabric")


def ping_pong(network, mpi, variants):
    return Part("pingpong", network, variants, mpi, tests=tuple(("ping-pong", size) for size in SIZES))


def window(network, mpi, variants):
    return Part("window", network, variants, mpi, tests=(("streaming", 4 * MB), ("message-rate", 1)))


def more_windows(network, mpi, variants):
    """Sizes without a target."""
    tests = (("streaming", 64 * KB), ("streaming", 1 * MB), ("streaming", 4 * MB), ("message-rate", 1))
    return Part("window", network, variants, mpi, tests=tests)


def pairs(network, mpi, variants):
    """The smaller size has no target; the model of several pairs needs it (cryptmpi_tools/model/pairs.py)."""
    return Part("window", network, variants, mpi, 4, 2, (("pairs", 16 * KB), ("pairs", 2 * MB)))


def collectives(network, mpi, variants):
    return Part("collectives", network, variants, mpi, 4, 2, tuple((name, size) for name in COLLECTIVES for size in (16 * KB, 1 * MB)))


def one_sided(network, mpi, wanted):
    """Not under the MPI layer, which refuses them."""
    layers = [layer for layer in layers_on(mpi) if layer != "mpi"]
    variants = variants_of(layers, wanted.ciphers[:1])
    own_way = (BY_MESSAGES,) if "fabric" in layers and mpi.name in CAN_DO_BY_MESSAGES else ()
    return Part("onesided", network, (*variants, *own_way), mpi.name, tests=ONE_SIDED)


def security_off(network, mpi, layers):
    return Part("pingpong", network, (PLAIN, *map(switched_off, layers)), mpi, tests=tuple(("security-off", size) for size in FEW_SIZES))


def one_node(mpi, variants):
    """Not on loopback, where everything is sealed."""
    return Part("pingpong", "veth", variants, mpi, 2, 2, tuple(("one-node", size) for size in FEW_SIZES))


def start_up(mpi, variants, ranks):
    return Part("startup", "veth", variants, mpi, ranks, ranks // 2, (("init", 0), ("first-message", 0)))


def connections(network, ciphers):
    return Part("connections", network, variants_of(("channel",), ciphers), tests=(("connections", CONNECTIONS),), most_turns=3)


def application(name, network, mpi, variants):
    return Part(name, network, variants, mpi, 4, 2, ((name, 0),), most_turns=5)


def ones(wanted):
    """(MPI, layers) for what is done on one MPI a layer."""
    chosen = {}
    for layer in wanted.layers:
        names = wanted.stacks or ONE[layer]
        name = next((name for name in names if stack(name).present()), names[0])
        chosen.setdefault(name, []).append(layer)
    return [(name, tuple(layers)) for name, layers in chosen.items()]


def quick(wanted, cores):
    """Every MPI and all layers by ping-pong, the rest on one MPI a layer with the first cipher; what matters most comes
    first.

    The stacks that only the fabric layer is made for take a third of the time: of those it has one, unless others are
    named.
    """
    mpis = EVERY if wanted.stacks else (*STACKS, UDP)
    parts = [ping_pong(network, mpi.name, variants_of(layers_on(mpi), wanted.ciphers)) for network in UNSHAPED for mpi in mpis]
    first = wanted.ciphers[:1]
    for mpi, layers in ones(wanted):
        variants = variants_of(layers, first)
        parts += [ping_pong(network, mpi, variants) for network in SHAPED]
        parts += [window(network, mpi, variants) for network in NETWORKS]
        if has_room(stack(mpi), 4, cores):
            parts += [pairs(network, mpi, variants) for network in NETWORKS]
            parts += [collectives(network, mpi, variants) for network in UNSHAPED]
        parts += [security_off(network, mpi, layers) for network in UNSHAPED] + [one_node(mpi, variants)]
    if wanted.stacks:
        parts += [one_sided(network, stack(name), wanted) for network in UNSHAPED for name in wanted.stacks]
    return _chosen([*parts, *(connections(network, first) for network in UNSHAPED)], wanted)


def full(wanted, cores):
    """Everything, on every MPI that can do it."""
    parts = []
    for network in NETWORKS:
        parts += [ping_pong(network, mpi.name, variants_of(layers_on(mpi), wanted.ciphers)) for mpi in EVERY]
        parts += [more_windows(network, mpi.name, variants_of(layers_on(mpi), wanted.ciphers)) for mpi in EVERY]
        parts += [one_sided(network, mpi, wanted) for mpi in EVERY]
        for mpi in EVERY:
            if has_room(mpi, 4, cores):
                every = variants_of(layers_on(mpi), wanted.ciphers)
                parts += [pairs(network, mpi.name, every), collectives(network, mpi.name, every)]
    for mpi in EVERY:
        first = variants_of(layers_on(mpi), wanted.ciphers[:1])
        parts += [security_off("veth", mpi.name, layers_on(mpi)), one_node(mpi.name, first)]
        parts += [start_up(mpi.name, first, ranks) for ranks in (2, 8, 32)]
    for name in ("hpcc", "lammps"):
        for mpi in OPEN_MPI:
            first = variants_of(layers_on(stack(mpi)), wanted.ciphers[:1])
            parts += [application(name, network, mpi, first) for network in QUICK_NETWORKS]
    return _chosen([*parts, connections("veth", wanted.ciphers[:1])], wanted)


def _chosen(parts, wanted):
    return [part for part in map(wanted.of, parts) if part]


def speeds(parts):
    """What the bounds of these parts need: each network's cost of copying, each cipher's speed."""
    networks = dict.fromkeys(part.network for part in parts)
    ciphers = dict.fromkeys(v.cipher for part in parts for v in part.variants if v.cipher not in ("", "off"))
    for network in networks:
        yield Part("copying", network, (PLAIN,), most_turns=3)
    if ciphers:
        yield Part("cipher", "core", tuple(Variant(cipher, "", cipher, ()) for cipher in ciphers))
