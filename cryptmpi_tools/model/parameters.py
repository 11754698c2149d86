"""Parameters of the models: what `cryptmpi model fit` writes, and what the others read."""

import math
from dataclasses import dataclass

from cryptmpi_tools.model import hockney, max_rate
from cryptmpi_tools.model.command import ModelError, read_json

FORMAT = "cryptmpi-model-1"
NAMES = {"hockney": ("alpha_s", "beta_s_per_byte"), "max_rate": ("alpha_s", "a_bytes_per_s", "b_bytes_per_s")}


@dataclass(frozen=True)
class Cipher:
    """One cipher of one module."""

    name: str
    module: str
    levels: max_rate.Levels          # of one direction: sealing takes as long as opening
    both: hockney.Hockney            # of encrypting and then decrypting with one thread (N20 table X)
    threads: tuple = (1,)            # the numbers of threads that were measured


@dataclass(frozen=True)
class Parameters:
    """By the names under which they were measured."""

    networks: dict  # (network, MPI): hockney.Network
    pairs: dict     # (network, MPI): hockney.Network, of messages of several pairs
    ciphers: dict   # (cipher, module): Cipher


def described(kind, fit):
    """A Fit as JSON: {name: value, name + _interval: [low, high] or null, ...}."""
    found = {"n": fit.n, "rms_s": fit.rms_s, "median_error_pct": round(100 * fit.median_error, 2), "worst_error_pct": round(100 * fit.worst_error, 2)}
    values = {}
    for name, value, interval in zip(NAMES[kind], fit.values, fit.intervals):
        values[name], values[f"{name}_interval"] = value, None if interval is None else list(interval)
    return {**values, **found}


def read(path):
    """Parameters from a file of `cryptmpi model fit`. Raises ModelError."""
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise ModelError(f"{path} holds no parameters of version {FORMAT}; make them with: cryptmpi model fit FILE... --output {path}")
    try:
        return of(content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ModelError(f"{path} is not whole: {error!r}; fit it again") from error


def of(content):
    """Parameters from what such a file holds. Raises KeyError, TypeError, AttributeError or ValueError where it is not
    whole."""
    return Parameters({_network_of(entry): _network(entry) for entry in content["networks"]},
                      {_network_of(entry): _network(entry) for entry in content["pairs"]},
                      {(entry["cipher"], entry["module"]): _cipher(entry) for entry in content["ciphers"]})


def _network_of(entry):
    return entry["network"], entry["mpi"]


def _line(entry):
    return hockney.Hockney(*(float(entry[name]) for name in NAMES["hockney"]))


def _network(entry):
    return hockney.Network(_line(entry["eager"]), _line(entry["rendezvous"]), int(entry["switch"]))


def _cipher(entry):
    levels = tuple((level["level"], math.inf if level["below"] is None else float(level["below"]),
                    max_rate.MaxRate(*(float(level[name]) for name in NAMES["max_rate"]))) for level in entry["levels"])
    return Cipher(entry["cipher"], entry["module"], max_rate.Levels(levels), _line(entry["both"]), tuple(entry["threads"]))
