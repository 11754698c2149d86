"""What the bound is made of, besides the plain ping-pong: a cipher's bare speed, and the processor time of a network's
copying."""

import json
import random
import re
import subprocess
import time

from cryptmpi_tools.bench.parts import SIZES
from cryptmpi_tools.lab.nodes import LabError


class CipherSpeed:
    """{"seal SIZE": ..., "open SIZE": ..., "module": {"name": ...}} of a start."""

    def __init__(self, starter):
        self.tool = starter.command.resolve().parent / "cryptmpi-bench-cipher"
        self.modules = starter.command.resolve().parent.parent / "lib" / "cryptmpi"
        if not self.tool.exists():
            raise LabError(f"{self.tool} is not built: run `cmake --build --preset release`")

    def start(self, _part, variant):
        done = subprocess.run([self.tool, self.modules, "auto", variant.cipher, *map(str, SIZES)], capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise LabError(done.stderr.strip() or f"exit status {done.returncode}")
        return read_speeds(done.stdout)


def read_speeds(output):
    module = re.search(r"^module (.*)$", output, re.M)
    results = {"module": {"name": module.group(1) if module else "?"}}
    for size, seal_us, open_us in re.findall(r"^(\d+) (\S+) (\S+) \S+ \S+$", output, re.M):
        results[f"seal {size}"] = {"us": float(seal_us)}
        results[f"open {size}"] = {"us": float(open_us)}
    return results


class CopyingCost:
    """iperf3's throughput between the nodes, and how much of a core each end's process used for it."""

    def __init__(self, starter):
        self.starter = starter

    def start(self, part, _variant):
        lab = self.starter.networks.lab(part.network)
        port = str(random.randrange(20000, 30000))
        server = lab.start(["iperf3", "-s", "-1", "-p", port], node=len(lab.nodes) - 1, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            for _ in range(20):  # until the server listens
                time.sleep(0.1)
                done = lab.start(["iperf3", "-c", lab.nodes[-1].address, "-p", port, "-t", "1", "-J"], stdout=subprocess.PIPE, text=True)
                output = done.communicate(timeout=30)[0]
                if done.returncode == 0:
                    return {"copying 0": read_copying(json.loads(output)["end"])}
        finally:
            lab.end_processes()
            server.wait()
        raise LabError(f"iperf3: {output.strip()[-200:]}")


def read_copying(end):
    bytes_a_us = end["sum_received"]["bits_per_second"] / 8e6
    used = end["cpu_utilization_percent"]
    return {"gbit_s": bytes_a_us * 8e-3, "send_us": used["host_total"] / 100 / bytes_a_us, "receive_us": used["remote_total"] / 100 / bytes_a_us}
