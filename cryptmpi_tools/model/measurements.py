"""Reads measurements: the report of `make bench`, or files of the simple format that docs/models.md describes."""

import math
import statistics
from dataclasses import dataclass, field

from cryptmpi_tools.model.command import ModelError, read_json

US = 1e-6
SIMPLE = {"ping_pong", "sealed", "pairs", "sealed_pairs", "cipher"}
OF_PAIRS = ("pairs", "streaming", "message-rate")  # benchmarks of one program: 64 messages in flight between each of some pairs, or of one


def lower_quarter(times):
    """The mean of the lower quarter, at least of one: starts on virtual machines come in two kinds, and the slow kind
    says nothing of what was measured."""
    ordered = sorted(times)
    return statistics.mean(ordered[:max(1, len(ordered) // 4)])


@dataclass
class Measurements:
    """Times in seconds, sizes in bytes. Keys name what was measured; "" where a file does not say."""

    ping_pong: dict = field(default_factory=dict)  # (network, MPI): {size: s one way}
    sealed: dict = field(default_factory=dict)     # (network, MPI, layer, cipher): {size: s one way}
    pairs: dict = field(default_factory=dict)      # (network, MPI): {(size, pairs): s a message of each pair}
    sealed_pairs: dict = field(default_factory=dict)  # (network, MPI, layer, cipher): {(size, pairs): s a message of each pair}
    ciphers: dict = field(default_factory=dict)    # (cipher, module): {(size, threads): s of sealing, or of opening, the mean of both}
    busy: bool = False                             # some file says that the machine had other things to do
    switch: dict = field(default_factory=dict)     # (network, MPI): eager limit, where a file says it


def read(paths):
    """Measurements of all files together. Raises ModelError for what is none."""
    found = Measurements()
    for path in paths:
        content = read_json(path)
        try:
            if "rows" in content and "bounds" in content:
                _read_report(content, found)
            elif content.keys() & SIMPLE:
                _read_simple(content, found)
            else:
                raise ModelError(f"{path} holds no measurements: neither a report of `make bench` (rows, bounds) nor ping_pong, sealed, "
                                 "pairs, sealed_pairs or cipher")
        except KeyError as error:
            raise ModelError(f"{path}: an entry lacks {error}; docs/models.md describes the format") from error
        except (TypeError, AttributeError, ValueError) as error:
            raise ModelError(f"{path}: an entry has not the form that docs/models.md describes ({error})") from error
    return found


def _read_report(report, found):
    """build/bench/report.json, as docs/performance.md describes it: ping-pong and pairs, plain and sealed, and each
    cipher's speed."""
    found.busy |= bool(report.get("machine", {}).get("busy"))
    for row in report["rows"]:
        network = (row["network"], row["mpi"] or "")
        if row["benchmark"] == "ping-pong":
            _set(found.ping_pong, network, row["size"], row["plain_us"])
            _set(found.sealed, (*network, row["layer"], row["cipher"]), row["size"], row["sealed_us"])
        elif row["benchmark"] in OF_PAIRS:
            place = (row["size"], row["ranks"] // 2)
            _set(found.pairs, network, place, row["plain_us"])
            _set(found.sealed_pairs, (*network, row["layer"], row["cipher"]), place, row["sealed_us"])
    for name, speed in report["bounds"].get("ciphers", {}).items():
        for size, seal, unseal in zip(speed["sizes"], speed["seal_us"], speed["open_us"]):
            _set(found.ciphers, (name, speed.get("module") or ""), (size, 1), (seal + unseal) / 2)


def _read_simple(content, found):
    network = (content.get("network", ""), content.get("mpi", ""))
    cipher = content.get("cipher_name", "")
    found.busy |= bool(content.get("busy"))
    if "switch" in content:
        found.switch[network] = int(content["switch"])
    for row in content.get("ping_pong", ()):
        _set(found.ping_pong, network, row["size"], row["us"])
    for row in content.get("sealed", ()):
        _set(found.sealed, (*network, row.get("layer", content.get("layer", "")), row.get("cipher", cipher)), row["size"], row["us"])
    for row in content.get("pairs", ()):
        _set(found.pairs, network, (row["size"], row["pairs"]), row["us"])
    for row in content.get("sealed_pairs", ()):
        name = (*network, row.get("layer", content.get("layer", "")), row.get("cipher", cipher))
        _set(found.sealed_pairs, name, (row["size"], row["pairs"]), row["us"])
    for row in content.get("cipher", ()):
        _set(found.ciphers, (cipher, content.get("module", "")), (row["size"], row.get("threads", 1)), (row["seal_us"] + row["open_us"]) / 2)


def _set(where, key, place, us):
    """Sizes and times have to be finite and above 0 (a size of 0 says nothing about bytes)."""
    numbers = (us, *(place if isinstance(place, tuple) else (place,)))
    if not all(isinstance(number, (int, float)) and math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError(f"size {place}, {us} us: both must be numbers above 0")
    where.setdefault(key, {})[place] = us * US
