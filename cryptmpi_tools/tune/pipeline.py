"""What a sealed message takes: the network and the cipher of the papers' models, in the pipeline that a plan makes of
them.

A message that goes whole costs what N20's enhanced Hockney model says, and a constant: network(m) + 2 c T_enc(m) +
message. In segments it is C20's (k,t)-chopping with segments that are not all alike, and with what that model has no
term for: only so many segments are with MPI at a time; each of them costs both ends some time of MPI's and of ours
(`segment`); and an end that copies bytes to or from the network, as TCP's do, cannot seal or open meanwhile (`busy`,
the share of beta that each end's processor is kept by). c (`slower`) is how much longer the cipher takes in a job than
alone. C20 lets a segment travel as a part of the whole message, by its alpha and beta; but to MPI it is a message of
its own size: `as_whole` says where between the two it is, 1 for the first.
"""

from dataclasses import asdict, dataclass

from cryptmpi_tools.tune.plans import SEGMENT_OVERHEAD, WHOLE_OVERHEAD

START = (2e-6, 3e-6, 1.0, 0.5, 0.5)
BOUNDS = ((0.0, 0.0, 0.2, 0.0, 0.0), (1e-3, 1e-3, 10.0, 1.0, 1.0))
OUTLYING = 0.1  # relative errors beyond it count linearly, not squared: a size at which MPI changes its ways should not decide


@dataclass(frozen=True)
class Costs:
    """Fitted to sealed messages of this machine; docs/tuning.md."""

    message_s: float = START[0]
    segment_s: float = START[1]
    slower: float = START[2]
    busy: float = START[3]
    as_whole: float = START[4]

    def as_json(self):
        return asdict(self)


@dataclass(frozen=True)
class System:
    """A network (model.hockney.Network) and a cipher of one direction (model.max_rate.Levels)."""

    network: object
    cipher: object

    def time(self, size, plan, costs):
        """Seconds one way of a message of `size` bytes; `plan` None: whole."""
        if plan is None:
            return self.network.time(size + WHOLE_OVERHEAD) + 2 * costs.slower * self.cipher.time(size) + costs.message_s
        return self._in_segments(self.network.line(size), plan.pieces(size), plan.in_flight, costs)

    def _in_segments(self, of_whole, pieces, in_flight, costs):
        """`of_whole` is the line of a plain message of the whole size."""
        lines = [self.network.line(piece + SEGMENT_OVERHEAD) for piece in pieces]
        alphas, betas = ([costs.as_whole * getattr(of_whole, name) + (1 - costs.as_whole) * getattr(line, name) for line in lines]
                         for name in ("alpha", "beta"))
        wires = [beta * (piece + SEGMENT_OVERHEAD) for beta, piece in zip(betas, pieces)]
        carrying = [costs.busy * wire for wire in wires] + [0.0]
        sender, link, receiver, arrivals = costs.segment_s, 0.0, 0.0, []  # the announcement goes first
        for at, piece in enumerate(pieces):
            cipher = costs.slower * self.cipher.time(piece)
            if at >= in_flight:
                sender = max(sender, arrivals[at - in_flight])
            sender += cipher + costs.segment_s
            link = max(sender, link) + wires[at]
            arrivals.append(link + alphas[at])
            sender += carrying[at]
            receiver = max(receiver, arrivals[at]) + cipher + costs.segment_s + carrying[at + 1]
        return receiver + costs.message_s


def fit(points, system):
    """Costs by least squares of the relative errors of [(bytes, Plan or None, s)]."""
    import numpy
    from scipy import optimize

    times = numpy.array([time for _, _, time in points])

    def errors(values):
        costs = Costs(*(values * scale))
        return numpy.array([system.time(size, plan, costs) for size, plan, _ in points]) / times - 1

    scale = numpy.array(START)
    low, high = (numpy.array(bound) / scale for bound in BOUNDS)
    found = optimize.least_squares(errors, numpy.ones(len(START)), bounds=(low, high), loss="soft_l1", f_scale=OUTLYING)
    return Costs(*map(float, found.x * scale))
