"""What a connection costs in memory: a process with many of them, plain and under the channel layer."""

import random
import re
import subprocess
import time

from cryptmpi_tools.lab.nodes import LabError


class Connections:
    def __init__(self, starter):
        self.starter = starter

    def start(self, part, variant):
        lab, sealing = self.starter.networks.lab(part.network), self.starter.sealing(part.network, variant)
        program, (label, count) = self.starter.program("connections", "cc"), part.tests[0]
        port, server_log = random.randrange(20000, 30000), self.starter.folder / "connections.txt"

        def line(*words):
            words = [str(word) for word in (program, *words, count)]
            return sealing.exec_line(words, job="connections") if sealing else words

        env = sealing.env() if sealing else {}
        with open(server_log, "wb") as log:
            server = lab.start(line("serve", port), node=len(lab.nodes) - 1, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            until = time.monotonic() + 10
            while "ready" not in server_log.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            done = lab.run(line("use", lab.nodes[-1].address, port), env=env, timeout=self.starter.timeout)
            server.wait()
        sizes = [int(size) for size in re.findall(r"^resident (\d+)$", done.output + server_log.read_text(), re.M)]
        if not done.ok or len(sizes) != 2:
            raise LabError(f"{done.why()}: {done.output.strip()[-200:]} {server_log.read_text().strip()[-200:]}")
        return {f"{label} {count}": {"bytes": max(sizes)}}
