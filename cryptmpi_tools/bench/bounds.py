"""The bound of each row, from what this run measured of its network, its cipher and the machine.

What software cannot do without is taken at its best turn, what it is compared with at the middle one.
"""

import statistics
from dataclasses import asdict

from cryptmpi_tools.bench import model
from cryptmpi_tools.bench.parts import PLAIN
from cryptmpi_tools.bench.targets import KB


class Bounds:
    def __init__(self, all_samples, cores):
        self.cores = cores
        self.ciphers, self.modules = {}, {}
        self.copying = {}   # by network
        self.networks = {}  # by network and MPI
        for samples in all_samples:
            if samples.part.program == "cipher":
                self._read_ciphers(samples)
            elif samples.part.program == "copying":
                self._read_copying(samples)
            elif samples.part.program == "pingpong":
                self._fit(samples)

    def _read_ciphers(self, samples):
        for variant in samples.part.variants:
            seal, unseal = ({int(key.split()[1]): least(samples, variant.name, key) for key in samples.keys() if key.startswith(way)}
                            for way in ("seal ", "open "))
            sizes = tuple(sorted(size for size in seal if seal[size] is not None and unseal.get(size) is not None))
            if sizes:
                self.ciphers[variant.cipher] = model.Cipher(sizes, tuple(map(seal.get, sizes)), tuple(map(unseal.get, sizes)))
                self.modules[variant.cipher] = next((name for name in samples.values(variant.name, "module", "name") if name), None)

    def _read_copying(self, samples):
        found = {quantity: least(samples, PLAIN.name, "copying 0", quantity) for quantity in ("send_us", "receive_us")}
        if found["send_us"] is not None:
            self.copying[samples.part.network] = {"gbit_s": middle(samples, PLAIN.name, "copying 0", "gbit_s"), **found}

    def _fit(self, samples):
        times = {key: middle(samples, PLAIN.name, key) for key in samples.keys() if key.startswith("ping-pong ")}
        points = [(int(key.split()[1]), time) for key, time in times.items() if time]
        if len(points) > 1:
            self.networks[samples.part.network, samples.part.mpi] = model.fit_network(points)

    def facts(self):
        """For the report."""
        return {"ciphers": {name: {"module": self.modules[name], **asdict(cipher)} for name, cipher in self.ciphers.items()},
                "copying": self.copying,
                "networks": [{"network": network, "mpi": mpi, **asdict(fit)} for (network, mpi), fit in self.networks.items()]}

    def machine(self, network):
        copying = self.copying.get(network, {})
        return model.Machine(self.cores, copying.get("send_us", 0.0), copying.get("receive_us", 0.0))

    def add(self, row, per_node):
        """The row with its bounds, how much they add to plain, and how much of them is reached."""
        found = {"bound_us": None, **self._bound(row, per_node)}
        for quantity, short in (("us", ""), ("cpu_us", "cpu_")):
            bound = found.get(f"bound_{quantity}")
            if bound is not None:
                found[f"bound_{quantity}"] = round(bound, 4)
                found[f"bound_{short}pct"] = round(100 * (bound / row[f"plain_{quantity}"] - 1), 2)
                found[f"reached_{short}pct"] = round(100 * bound / row[f"sealed_{quantity}"], 1)
        return {**row, **found}

    def _bound(self, row, per_node):
        benchmark, size, plain = row["benchmark"], row["size"], row.get("plain_us")
        if benchmark in ("security-off", "one-node") and plain:
            return {"bound_us": plain}
        cipher = self.ciphers.get(row["cipher"])
        if cipher is None or not plain:
            return {}
        machine = self.machine(row["network"])
        copying_us = (machine.send_us + machine.receive_us) * (size or 0)
        if benchmark == "ping-pong":
            network = self.networks.get((row["network"], row["mpi"]))
            if network is None:
                return {}
            best = model.best(size, network, cipher, machine)
            return {"bound_us": plain + best.us - network.time(size), "bound_k": best.k, "bound_t": best.t}
        if benchmark in ("streaming", "pairs"):
            return {"bound_us": model.least_window(plain, size, row["ranks"] // 2, copying_us, cipher, machine)}
        if benchmark == "message-rate":  # each end is busy with each message all the time
            return {"bound_us": model.least_window(plain, size, row["ranks"] // 2, 2 * plain, cipher, machine)}
        if benchmark in ("bcast", "allgather", "alltoall", "allreduce"):
            work = model.least_work(benchmark, size, per_node, cipher)
            return {"bound_us": plain + work / self.cores, "bound_cpu_us": row["plain_cpu_us"] + work}
        if "sealed_between_nodes" in row:  # an application: as if in records of 64 KB
            work = row["sealed_between_nodes"] * cipher.both(64 * KB) / (64 * KB)
            return {"bound_us": plain + work / self.cores, "bound_cpu_us": row["plain_cpu_us"] + work}
        return {}


def middle(samples, variant, key, quantity="us"):
    values = [value for value in samples.values(variant, key, quantity) if value is not None]
    return statistics.median(values) if values else None


def least(samples, variant, key, quantity="us"):
    return min((value for value in samples.values(variant, key, quantity) if value is not None), default=None)
