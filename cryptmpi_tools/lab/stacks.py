"""The MPIs that everything is tried on, and how each starts a job across the nodes of a lab.

What was learnt about starting them over nodes that are namespaces:
- Hydra (MPICH, Intel MPI) forks on the node it runs on and calls `-launcher-exec SCRIPT` for the others.
- UCX finds shared memory across namespaces of one machine unless UCX_TLS=tcp,self.
- libfabric picks its provider by itself, shared memory among them; FI_PROVIDER=tcp settles it. Which netmod PyPI's
  mpich loads is MPIR_CVAR_CH4_NETMOD.
- Open MPI must be told the interfaces by network, for btl and oob: by default it may offer addresses that lead nowhere.
  Ranks that spin on fewer cores than ranks need mpi_yield_when_idle (HPCC: 2 s with, 35 s without).
- Open MPI binds ranks to cores, counting from the first on each node: ours share their cores, so that both of two
  ranks would be on one.
- Open MPI 5 with --map-by :oversubscribe alone puts all ranks on the first node: `ppr` says how many go where.
- Debian's MPICH 4 with more ranks than cores now and then prints its result and does not exit: each run has a timeout.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptmpi_tools.lab.nodes import BUILD

MPIS = BUILD / "mpis"
NETWORK = "10.77.0.0/24"


@dataclass(frozen=True)
class Stack:
    name: str
    family: str  # "hydra", "openmpi4", "openmpi5"
    mpiexec: Path
    mpicc: Path | None  # None: the MPI has none; what another MPI of the same ABI compiled is run
    title: str
    transport: str
    prefix: Path  # where it is installed, if it is not the system's
    environment: dict = field(default_factory=dict)  # always
    loopback: dict = field(default_factory=dict)     # added where the "nodes" are one loopback interface
    options: tuple = ()
    btl: str = ""            # Open MPI: the transports between ranks
    built_with: str = ""  # the stack whose compiler builds for this one, if not its own
    variant_of: str = ""  # the stack that this one is by another road: what runs on that runs on this

    def present(self):
        return self.mpiexec.exists()

    @property
    def base(self):
        return self.variant_of or self.name

    def launcher_options(self, lab):
        """What an MPI's own launcher needs to be told on the nodes of this lab, ranks and hosts excepted."""
        if self.family == "hydra":
            return list(self.options)
        network, btl = (NETWORK, self.btl) if lab.isolated else ("127.0.0.0/8", "tcp,self")
        oob = ["--mca", "oob_tcp_if_include", network] if self.family == "openmpi4" else []
        return ["--allow-run-as-root", "--bind-to", "none", *self.options, "--mca", "btl", btl, "--mca", "btl_tcp_if_include", network, *oob]

    def command(self, lab, ranks, program, per_node=None, slots=None):
        """The launcher line for `program` (a list). With so many `slots` a node, for jobs that spawn, Open MPI's ranks
        go to the nodes in turn: where nodes are too full, its daemons do not agree where the next ones are."""
        hosts = lab.hosts()
        per_node = per_node or -(-ranks // len(hosts))
        if self.family == "hydra":
            where = ["-launcher", "ssh", "-launcher-exec", lab.rsh, "-hosts", ",".join(hosts), "-ppn", per_node] if lab.isolated else []
            if self.base.startswith("impi") and lab.isolated:
                where = ["-bootstrap", "ssh", "-bootstrap-exec", lab.rsh, "-hosts", ",".join(hosts), "-ppn", per_node]
            line = [self.mpiexec, *where, *self.launcher_options(lab), "-n", ranks, *program]
        else:
            agent = "plm_rsh_agent" if self.family == "openmpi4" else "plm_ssh_agent"
            where = ["--host", ",".join(f"{h}:{slots or per_node}" for h in hosts),
                     "--map-by", "node" if slots else f"ppr:{per_node}:node:oversubscribe"]
            tree = ["--mca" if self.family == "openmpi4" else "--prtemca", agent, lab.rsh]
            line = [self.mpiexec, *where, *tree, *self.launcher_options(lab), "-n", ranks, *program]
        return [str(word) for word in line]

    def env(self, lab):
        more = dict(self.environment)
        if not lab.isolated:
            more.update(self.loopback)
        return more


def _pypi(name):
    return MPIS / name


_NO_LOCAL = {"MPIR_CVAR_NOLOCAL": "1"}
_YIELD = ("--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1")

STACKS = [
    Stack("mpich-4.0.2-ucx", "hydra", Path("/usr/bin/mpiexec.mpich"), Path("/usr/bin/mpicc.mpich"), "MPICH 4.0.2", "UCX tcp",
          _pypi("mpich-4.0.2"), {"UCX_TLS": "tcp,self"}, _NO_LOCAL),
    Stack("mpich-5.0.2-ucx", "hydra", _pypi("mpich-5.0.2/bin/mpiexec"), _pypi("mpich-5.0.2/bin/mpicc"), "MPICH 5.0.2", "UCX tcp",
          _pypi("mpich-5.0.2"), {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self"}, _NO_LOCAL),
    Stack("mpich-5.0.2-ofi", "hydra", _pypi("mpich-5.0.2/bin/mpiexec"), _pypi("mpich-5.0.2/bin/mpicc"), "MPICH 5.0.2", "libfabric tcp",
          _pypi("mpich-5.0.2"), {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}, _NO_LOCAL),
    Stack("openmpi-4.1.4", "openmpi4", Path("/usr/bin/mpiexec.openmpi"), Path("/usr/bin/mpicc.openmpi"), "Open MPI 4.1.4", "btl tcp",
          _pypi("openmpi-4.1.4"), {"OMPI_MCA_osc": "pt2pt"},  # osc/rdma over btl tcp: MPI_Win_allocate fails between nodes, plain
          options=_YIELD, btl="tcp,vader,self"),
    Stack("openmpi-5.0.11", "openmpi5", _pypi("openmpi-5.0.11/bin/mpiexec"), _pypi("openmpi-5.0.11/bin/mpicc"), "Open MPI 5.0.11", "btl tcp",
          _pypi("openmpi-5.0.11"), options=_YIELD, btl="tcp,sm,self"),
    Stack("impi-2021.19-ofi", "hydra", _pypi("impi-2021.19/bin/mpiexec"), None, "Intel MPI 2021.19", "libfabric tcp",
          _pypi("impi-2021.19"), {"I_MPI_FABRICS": "shm:ofi", "I_MPI_OFI_PROVIDER": "tcp", "FI_PROVIDER": "tcp",
                                  "I_MPI_ROOT": str(_pypi("impi-2021.19")), "I_MPI_PIN": "0",
                                  "FI_PROVIDER_PATH": str(_pypi("impi-2021.19/libfabric")),
                                  "LD_LIBRARY_PATH": f"{_pypi('impi-2021.19/lib')}:{_pypi('impi-2021.19/libfabric')}"},
          {"I_MPI_FABRICS": "ofi"}, built_with="mpich-5.0.2-ofi"),
]


# The same MPIs through their libraries of the MPI-5 standard ABI: one program runs on both.
STANDARD_ABI = [
    replace(one, name=name, title=f"{one.title}, standard ABI", mpicc=mpicc, built_with=built_with)
    for one, name, mpicc, built_with in (
        (STACKS[2], "mpich-5.0.2-abi", _pypi("mpich-5.0.2/bin/mpicc_abi"), ""),
        (STACKS[5], "impi-2021.19-abi", None, "mpich-5.0.2-abi"))
]


def _by(base, road, transport, environment, options=None):
    """The same MPI by another road between nodes."""
    return replace(base, name=f"{base.name.removesuffix('-ofi')}-{road}", transport=transport, variant_of=base.name,
                   environment={**base.environment, **environment}, options=base.options if options is None else options)


def _pml(*words):
    return (*words, "--mca", "mpi_yield_when_idle", "1")


# Where MPI hands its messages to UCX or to libfabric, on what these offer over sockets. `UDP` has no TCP between ranks
# at all.
UDP = _by(STACKS[2], "ofi-udp", "libfabric udp;ofi_rxd", {"FI_PROVIDER": "udp;ofi_rxd"})
# Open MPI takes UCX for networks of its list only, which tcp is not on, unless it is told to take any.
ANY_UCX = {"UCX_TLS": "tcp,self", "OMPI_MCA_opal_common_ucx_tls": "any", "OMPI_MCA_opal_common_ucx_devices": "any"}
OPENMPI4_UCX = _by(STACKS[3], "pml-ucx", "UCX tcp", {**ANY_UCX, "OMPI_MCA_osc": "ucx"}, _pml("--mca", "pml", "ucx"))
OPENMPI4_OFI = _by(STACKS[3], "mtl-ofi", "libfabric tcp;ofi_rxm", {"OMPI_MCA_mtl_ofi_provider_include": "tcp;ofi_rxm"},
                   _pml("--mca", "pml", "cm", "--mca", "mtl", "ofi"))
OPENMPI5_UCX = _by(STACKS[4], "pml-ucx", "UCX tcp", {**ANY_UCX, "OMPI_MCA_osc": "ucx"}, _pml("--mca", "pml", "ucx"))
OPENMPI5_OFI = _by(STACKS[4], "mtl-ofi", "libfabric tcp;ofi_rxm", {"OMPI_MCA_mtl_ofi_provider_include": "tcp;ofi_rxm"},
                   _pml("--mca", "pml", "cm", "--mca", "mtl", "ofi"))
FABRIC = [STACKS[0], STACKS[1], STACKS[2], UDP, OPENMPI4_UCX, OPENMPI4_OFI, OPENMPI5_UCX, OPENMPI5_OFI, STACKS[5]]

# MPICH's device before release 4, and MVAPICH's: its packets carry memory that was never written.
CH3 = Stack("mpich-3.4.3-ch3", "hydra", _pypi("mpich-3.4.3/bin/mpiexec"), _pypi("mpich-3.4.3/bin/mpicc"), "MPICH 3.4.3", "nemesis tcp",
            _pypi("mpich-3.4.3"), {}, _NO_LOCAL)

EVERY = [*STACKS, *STANDARD_ABI, CH3, *(one for one in FABRIC if one.variant_of)]


def stack(name):
    for one in EVERY:
        if one.name == name:
            return one
    raise SystemExit(f"no MPI stack called {name}; there are: {', '.join(s.name for s in EVERY)}")


def abi_environment(mpi):
    """Lets a program that somebody compiled against another MPI of the same ABI find this one."""
    if mpi.family == "openmpi4":
        return {}
    own = mpi.prefix / "lib"
    if mpi.family == "openmpi5":
        return {"LD_LIBRARY_PATH": str(own)}
    # Debian's MPICH calls the library libmpich.so.12, everybody else's libmpi.so.12. A library loaded by the other name
    # finds those it needs only where it is told to look: PyPI's has them in lib/mpich.
    names = mpi.prefix / "abi"
    names.mkdir(parents=True, exist_ok=True)
    library, other = ("/usr/lib/x86_64-linux-gnu/libmpich.so.12", "libmpi.so.12") if mpi.name.startswith("mpich-4") else \
        (own / "libmpi.so.12", "libmpich.so.12")
    if not (names / other).is_symlink():
        (names / other).symlink_to(library)
    folders = [mpi.environment.get("LD_LIBRARY_PATH"), *(str(f) for f in (own, own / "mpich", names) if f.is_dir())]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}
