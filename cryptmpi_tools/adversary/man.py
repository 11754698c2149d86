"""The man in the middle of a job: in a node through which the two others reach each other, he ends their TCP
connections and opens his own.

    man.py PLAN     a file of JSON: {"framing", "begun", "record", "recorded", "strikes": [{...}]}

Each strike is done once, on the frame that it names:

    id        what he says when he has done it
    attack    one of the do_* below; flip:N flips a bit of byte N, counted from the end where N is negative
    toward    "responder", "initiator", or "any"
    kinds     of frames
    least, most    bytes of the frame's body
    nth       which of those frames, from 0
    phase     "start": before both ranks have begun, "run": after that
    connection     its number, where that matters

`record` is a folder for all streams that pass; `recorded` one of an earlier job. What he does not strike passes as it
is. He knows the formats in framings.py, and no key.
"""

import json
import os
import select
import socket
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

from cryptmpi_tools.adversary.framings import FRAMINGS
from cryptmpi_tools.lab.formats import VERSION
from cryptmpi_tools.lab.middle import Stop, between, flipped, read_up_to, reset, sealed_record

DELAY_S = 0.5
SWAP_S = 3  # for the frame that goes first


class Man:
    """What all connections share."""

    def __init__(self, plan):
        self.lock = threading.Lock()
        self.framing = FRAMINGS[plan["framing"]]
        self.begun = plan.get("begun")
        self.record = plan.get("record") and Path(plan["record"])
        self.recorded = plan.get("recorded") and Path(plan["recorded"])
        self.strikes = plan["strikes"]
        for strike in self.strikes:
            strike["seen"] = 0
            strike["done"] = False
        self.last = defaultdict(dict)  # toward -> connection -> the last frame that passed there
        self.running = False

    def phase(self):
        if not self.running and self.begun:
            self.running = all(os.path.exists(f"{self.begun}-rank-{rank}") for rank in range(2))
        return "run" if self.running else "start"

    def strike_for(self, direction, frame):
        """The strike that this frame is due for, and how many like it came before."""
        phase = self.phase()
        with self.lock:
            for strike in self.strikes:
                if strike["done"] or strike["toward"] not in (direction.toward, "any") or frame.kind not in strike["kinds"]:
                    continue
                if not strike["least"] <= len(frame.body) <= strike["most"] or strike.get("phase", phase) != phase:
                    continue
                if strike.get("connection", direction.number) != direction.number:
                    continue
                strike["seen"] += 1
                if strike["seen"] > strike["nth"]:
                    return strike
        return None

    def done(self, strike):
        with self.lock:
            if not strike["done"]:
                strike["done"] = True
                print("done", strike["id"], flush=True)


class Direction:
    """One direction of one connection."""

    def __init__(self, man, number, toward, source, target):
        self.man, self.number, self.toward, self.source, self.target = man, number, toward, source, target
        self.earlier = {}     # body's length -> a frame of that length that passed here
        self.other = None     # the opposite direction
        self.first = None
        self.withheld = False
        self.tape = open(man.record / f"{number}-{toward}", "wb") if man.record else None

    def run(self):
        try:
            if self.plays_recording():
                return
            for frame in self.man.framing(self.read, self.read_any):
                self.pass_on(frame)
            if self.withheld:
                threading.Event().wait()
            self.target.shutdown(socket.SHUT_WR)
        except Stop:
            pass
        except OSError:
            reset(self.source)
            reset(self.target)

    def read(self, size):
        return read_up_to(self.source, size)

    def read_any(self):
        return self.source.recv(1 << 16)

    def plays_recording(self):
        """All that came this way in an earlier job, in place of what comes now."""
        strike = next((one for one in self.man.strikes if one["attack"] == "job" and one["toward"] in (self.toward, "any")), None)
        tape = self.man.recorded and self.man.recorded / f"{self.number}-{self.toward}"
        if strike is None or not tape or not tape.exists():
            return False
        self.man.done(strike)
        self.target.sendall(tape.read_bytes())
        while self.source.recv(1 << 16):
            pass
        self.target.shutdown(socket.SHUT_WR)
        return True

    def pass_on(self, frame):
        if self.tape:
            self.tape.write(frame.raw)
            self.tape.flush()
        strike = self.man.strike_for(self, frame)
        out = None
        if strike is not None and not self.withheld:
            out = getattr(self, "do_" + strike["attack"].split(":")[0].replace("-", "_"))(frame, strike)
            if out is not None:
                self.man.done(strike)
        if out is None:
            out = frame.raw
        if not self.withheld and out:
            self.target.sendall(out)
        self.earlier.setdefault(len(frame.body), frame)
        self.first = self.first or frame
        self.man.last[self.toward][self.number] = frame

    # What goes on in place of the frame; None: this one is not fit for it.

    def do_flip(self, frame, strike):
        at = int(strike["attack"].split(":")[1])
        if not -len(frame.raw) <= at < len(frame.raw):
            return None
        return flipped(frame.raw, at % len(frame.raw))

    def do_drop(self, frame, strike):
        return b""

    def do_withhold(self, frame, strike):
        """This and all that would follow, while the connection stays."""
        self.withheld = True
        return b""

    def do_delay(self, frame, strike):
        time.sleep(DELAY_S)
        return frame.raw

    def do_duplicate(self, frame, strike):
        return frame.raw * 2

    def do_swap(self, frame, strike):
        """The next one goes first, if one comes without an answer to this."""
        if not select.select([self.source], [], [], SWAP_S)[0]:
            return None
        following = next(self.rest())
        return following.raw + frame.raw

    def rest(self):
        """Frames of a stream that has begun."""
        skip = {"begin": True}
        framing = self.man.framing
        start = self.first.raw if self.first.kind in ("hello", "begin") else b""
        buffered = bytearray(start)

        def read(size):
            taken = bytes(buffered[:size])
            del buffered[:size]
            return taken + self.read(size - len(taken))

        for frame in framing(read, self.read_any):
            if skip.pop("begin", False) and start:
                continue
            yield frame

    def do_replay(self, frame, strike):
        """One that passed here before, of the same length where there is one, in its place."""
        before = self.earlier.get(len(frame.body)) or next((one for one in self.earlier.values() if one.kind == frame.kind), None)
        return before.raw if before and before.raw != frame.raw else None

    def do_replay_more(self, frame, strike):
        before = next((one for one in self.earlier.values() if one.kind == frame.kind), None)
        return frame.raw + before.raw if before else None

    def do_truncate(self, frame, strike):
        """The end of the connection in the middle of it."""
        self.target.sendall(frame.raw[:len(frame.raw) // 2])
        return self.end(strike)

    def do_end(self, frame, strike):
        """The end of the connection behind it, as if its sender had said so."""
        self.target.sendall(frame.raw)
        return self.end(strike)

    def end(self, strike):
        self.man.done(strike)
        self.target.shutdown(socket.SHUT_WR)
        while self.source.recv(1 << 16):
            pass
        raise Stop

    def do_reset(self, frame, strike):
        self.man.done(strike)
        reset(self.target)
        reset(self.source)
        raise Stop

    def do_shorten(self, frame, strike):
        """A byte less, with a length that says so."""
        return frame.with_body(frame.body[:-1])

    def do_extend(self, frame, strike):
        return frame.with_body(frame.body + b"\0" * 16)

    def do_garbage(self, frame, strike):
        return frame.raw + os.urandom(3000)

    def do_reflect(self, frame, strike):
        """What its receiver has sent itself."""
        back = self.other.earlier.get(len(frame.body)) or self.man.last[self.other.toward].get(self.number)
        return back.raw if back and back.kind == frame.kind else None

    def do_splice(self, frame, strike):
        """One of another connection of the job."""
        others = [one for side in self.man.last.values() for number, one in side.items() if number != self.number and one.kind == frame.kind]
        return others[0].raw if others else None

    def do_splice_size(self, frame, strike):
        """One of the same direction with another length, that is another tag or round, fitted to this one's
        envelope."""
        other = next((one for size, one in self.earlier.items() if size >= 24 and size != len(frame.body) and one.kind == frame.kind), None)
        return frame.with_body(other.body) if other else None

    def do_other_job(self, frame, strike):
        """What passed here in an earlier job, as the frame of this kind."""
        tape = self.man.recorded / f"{self.number}-{self.toward}" if self.man.recorded else None
        if tape is None or not tape.exists():
            return None
        data = bytearray(tape.read_bytes())

        def read(size):
            taken = bytes(data[:size])
            del data[:size]
            return taken

        frames = [one for one in self.man.framing(read, lambda: read(1 << 16)) if one.kind == frame.kind]
        same = [one for one in frames if len(one.body) == len(frame.body)] or frames
        return same[0].raw if same and same[0].raw != frame.raw else None

    def do_zeros(self, frame, strike):
        return frame.head + bytes(len(frame.body))

    def do_random(self, frame, strike):
        return frame.head + os.urandom(len(frame.body))

    def do_forged_data(self, frame, strike):
        return frame.raw + sealed_record(1, 1000)

    def do_forged_close(self, frame, strike):
        self.target.sendall(frame.raw + sealed_record(4, 0))
        return self.end(strike)

    # Of hellos

    def do_zero_share(self, frame, strike):
        return frame.head + bytes(32) + frame.body[32:]

    def do_unknown_share(self, frame, strike):
        return frame.head + os.urandom(32) + frame.body[32:]

    def do_older_version(self, frame, strike):
        return frame.head[:4] + bytes([VERSION - 1]) + frame.head[5:] + frame.body

    def do_newer_version(self, frame, strike):
        return frame.head[:4] + bytes([VERSION + 1]) + frame.head[5:] + frame.body

    def do_weaker_suite(self, frame, strike):
        return frame.head[:6] + b"\x09" + frame.head[7:] + frame.body

    def do_plain_text(self, frame, strike):
        """As if the peer did not know of CryptMPI."""
        return b"cmd=initack pmiid=0\n" * 10


def main():
    man = Man(json.loads(Path(sys.argv[1]).read_text()))

    def directions(near, far, number):
        there = Direction(man, number, "responder", near, far)
        back = Direction(man, number, "initiator", far, near)
        there.other, back.other = back, there
        return there.run, back.run

    between(directions)


if __name__ == "__main__":
    main()
