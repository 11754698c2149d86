"""The network, cipher and cores that a prediction is for: from a parameters file, or given one by one."""

import os
from dataclasses import dataclass
from pathlib import Path

from cryptmpi_tools.model import chopping, command, hockney, max_rate, parameters


@dataclass(frozen=True)
class System:
    title: str
    network: hockney.Network
    cipher: max_rate.Levels  # of one direction
    cores: int               # hardware threads of a node
    ranks_per_node: int
    assumptions: tuple

    @property
    def threads(self):
        """The most threads that a rank may use: T0 - T1, at least 1 (C20 IV)."""
        return max(chopping.hardware_threads(self.cores, self.ranks_per_node) - chopping.COMMUNICATING_THREADS, 1)


def add_options(parser):
    parser.add_argument("parameters", nargs="?", type=Path, metavar="PARAMETERS", help="file of `cryptmpi model fit --output`")
    parser.add_argument("--network", help="name in PARAMETERS")
    parser.add_argument("--mpi", help="name in PARAMETERS")
    parser.add_argument("--cipher", help="name in PARAMETERS")
    parser.add_argument("--module", help="crypto module, name in PARAMETERS")
    parser.add_argument("--alpha", type=command.positive(float), metavar="US", help="latency of a plain message; instead of a network of PARAMETERS")
    parser.add_argument("--beta", type=command.positive(float), metavar="NS", help="time of a byte, 0.08 for 100 Gb/s; with --alpha")
    parser.add_argument("--cipher-speed", type=command.positive(float), metavar="GB/S",
                        help="of one thread that encrypts, in 10^9 bytes a second; instead of a cipher of PARAMETERS")
    parser.add_argument("--cipher-alpha", type=command.positive(float), metavar="US", help="overhead of encrypting a message; default: none")
    parser.add_argument("--cores", type=command.positive(int), default=os.cpu_count(), help="hardware threads of a node; default: this machine's")
    parser.add_argument("--ranks-per-node", type=command.positive(int), default=1)


def read(options, of_pairs=False):
    """The System of the options, its network as one message at a time sees it, or messages of several pairs.

    Raises ModelError for what is missing, and where PARAMETERS has more than one to choose from.
    """
    known = parameters.read(options.parameters) if options.parameters else parameters.Parameters({}, {}, {})
    if (options.alpha is None) != (options.beta is None):
        raise command.ModelError("--alpha and --beta go together")
    assumptions = []
    if options.alpha is not None:
        network, network_name = hockney.one_line(options.alpha * 1e-6, options.beta * 1e-9), f"alpha {options.alpha:g} us, beta {options.beta:g} ns"
        assumptions.append("one alpha and beta for all sizes")
    else:
        networks = known.pairs if of_pairs else known.networks
        key = _only(networks, {"--network": options.network, "--mpi": options.mpi}, "--alpha and --beta")
        network, network_name = networks[key], " ".join(filter(None, key)) or "network"
    if options.cipher_speed is not None:
        cipher, cipher_name = max_rate.constant(options.cipher_speed * 1e9, (options.cipher_alpha or 0.0) * 1e-6), f"{options.cipher_speed:g} GB/s"
        assumptions.append("encryption as fast as decryption, at one speed for all sizes, and threads that do not slow each other")
    else:
        key = _only(known.ciphers, {"--cipher": options.cipher, "--module": options.module}, "--cipher-speed")
        cipher, cipher_name = known.ciphers[key].levels, " ".join(filter(None, key)) or "cipher"
        assumptions.append("encryption as fast as decryption")
        if len(known.ciphers[key].threads) == 1:
            assumptions.append("threads that do not slow each other (one number of threads was measured)")
    return System(f"{network_name}; {cipher_name}", network, cipher, options.cores, options.ranks_per_node, tuple(assumptions))


def _only(known, wanted, instead):
    """The one key of `known` that has the wanted names."""
    if not known:
        raise command.ModelError(f"no PARAMETERS file that has what is needed, and no {instead}")
    found = [key for key in known if all(name is None or name == part for name, part in zip(wanted.values(), key))]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(" ".join(f"{option} {part or repr(part)}" for option, part in zip(wanted, key)) for key in known)
    raise command.ModelError(f"{'none' if not found else 'more than one'} of PARAMETERS fits; say one of: {listed}")
