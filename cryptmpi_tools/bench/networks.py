"""The networks between the nodes, each made when it is first used."""

import contextlib

from cryptmpi_tools.lab.nodes import Lab

# (rate, burst) as tc's tbf takes them. A burst is what passes at once after a pause, so the smaller it is, the smaller
# the messages that see the rate; but it has to hold a packet of 64 KB, and what comes due while a timer is late.
SHAPES = {"veth": (None, None), "veth-10g": ("10gbit", "96kb"), "veth-40g": ("40gbit", "192kb")}


class Networks(contextlib.ExitStack):
    def __init__(self):
        super().__init__()
        self._labs = {}

    def lab(self, name):
        if name not in self._labs:
            if name == "loopback":
                made = Lab(isolated=False)
            else:
                rate, burst = SHAPES[name]
                made = Lab(rate=rate, **({"burst": burst} if burst else {}))
            self._labs[name] = self.enter_context(made)
        return self._labs[name]
