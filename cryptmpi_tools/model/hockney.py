"""The Hockney model of a plain message: alpha + beta m. N20 6.1 and table IX, C20 IV and table I."""

from dataclasses import dataclass

from cryptmpi_tools.model import least_squares

FEWEST_APART = 6  # points of which eager and rendezvous are told apart where nobody says where the switch is
FEWEST_EACH = 3


@dataclass(frozen=True)
class Hockney:
    """A line: latency alpha (s), and beta (s a byte), the inverse of the bandwidth."""

    alpha: float
    beta: float

    def time(self, size):
        """Seconds of a message of `size` bytes (N20 6.1; C20 IV, T_comm)."""
        return self.alpha + self.beta * size


@dataclass(frozen=True)
class Network:
    """A plain network under one MPI, which sends small messages eagerly and others by rendezvous (N20 table IX, C20
    table I)."""

    eager: Hockney
    rendezvous: Hockney
    switch: int  # bytes; messages from this size on go by rendezvous

    def line(self, size):
        return self.eager if size < self.switch else self.rendezvous

    def time(self, size):
        """Seconds of a message of `size` bytes."""
        return self.line(size).time(size)


def one_line(alpha, beta):
    """A network that treats all sizes alike."""
    return Network(Hockney(alpha, beta), Hockney(alpha, beta), 0)


def fit(points, relative=False, one_byte=None):
    """(Hockney, Fit) of [(bytes, s)] by least squares.

    Where that gives a negative alpha, alpha is the time of a one-byte message, and beta is fitted with it (N20 6.1,
    footnote 3). `one_byte` is that time; without it, the time of the smallest message of the points.
    """
    points = sorted(points)
    sizes, times = zip(*points)
    found = least_squares.line(sizes, times, relative)
    if found.values[0] < 0:
        found = least_squares.line(sizes, times, relative, alpha=points[0][1] if one_byte is None else one_byte)
    return Hockney(*found.values), found


def fit_network(points, switch=None, relative=False):
    """(Network, Fit of eager, Fit of rendezvous) of a plain ping-pong [(bytes, s)].

    `switch` is MPI's eager limit (bytes), which the papers take from the library. Without it, the switch is where both
    lines fit best, and of fewer than six points one line is made. Raises ValueError where a side of `switch` has fewer
    than two points.
    """
    points = sorted(points)
    smallest = points[0][1]
    if switch is not None:
        parts = [point for point in points if point[0] < switch], [point for point in points if point[0] >= switch]
        if min(map(len, parts)) < 2:
            raise ValueError(f"a switch at {switch} bytes leaves fewer than two sizes on one side of it")
        return _both(parts, switch, relative, smallest)
    if len(points) < FEWEST_APART:
        line, found = fit(points, relative)
        return Network(line, line, 0), found, found
    choices = [_both((points[:at], points[at:]), points[at][0], relative, smallest) for at in range(FEWEST_EACH, len(points) - FEWEST_EACH + 1)]
    return min(choices, key=lambda choice: (_misfit(choice[0], points), choice[0].switch))


def _both(parts, switch, relative, smallest):
    (eager, of_eager), (rendezvous, of_rendezvous) = (fit(part, relative, smallest) for part in parts)
    return Network(eager, rendezvous, switch), of_eager, of_rendezvous


def _misfit(network, points):
    """Relative, in every kind of fit: else the largest message alone would place the switch."""
    return sum((network.time(size) / time - 1) ** 2 for size, time in points)
