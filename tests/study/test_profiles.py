"""The profiles of our plans: tuned once, kept, refused in one line; on a `cryptmpi tune` that is made up."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cryptmpi_tools.lab import stacks
from cryptmpi_tools.lab.nodes import LabError
from cryptmpi_tools.study import parts, profiles
from cryptmpi_tools.study.parts import DIRECT, ETHERNET, PIPELINED, PLANS, THREADED, TUNED, Setting
from cryptmpi_tools.study.profiles import Profiles, refuse_unused
from cryptmpi_tools.tune import plans

MPI = "openmpi-4.1.4"
SETTING = Setting(False, MPI, (MPI,), 2, (), ())
PART = parts.plans(SETTING, ETHERNET, MPI, (1 << 20,))
FINGERPRINT = {"processor": "Abacus", "processors": 2, "cipher": "AES-256-GCM", "module": "openssl 3", "mpi": "Open MPI", "abi": "openmpi"}
LINE = {"eager": {"alpha_s": 1e-6, "beta_s_per_byte": 1e-9}, "rendezvous": {"alpha_s": 1e-6, "beta_s_per_byte": 1e-9}, "switch": 0}
CIPHER = {"cipher": "AES-256-GCM", "module": "openssl", "threads": [1], "both": {"alpha_s": 1e-6, "beta_s_per_byte": 1e-9},
          "levels": [{"level": "all", "below": None, "alpha_s": 1e-6, "a_bytes_per_s": 1e9, "b_bytes_per_s": 1e9}]}
FOUND = plans.Plans(128 << 10, (plans.Row(None, plans.Plan(16 << 10, 128 << 10, 2)),))
PROFILE = {"format": "cryptmpi-profile-1", "fingerprint": FINGERPRINT, "plan": FOUND.as_json(),
           "model": {"networks": [{"network": "", "mpi": "", **LINE}], "pairs": [], "ciphers": [CIPHER]},
           "costs": {}, "measurements": {"plain": [], "sealed": []}}


class Lab:
    """Whose `cryptmpi tune` writes PROFILE, or fails with a line."""

    isolated, rsh = True, "/lab/rsh"

    def __init__(self, complaint=None):
        self.complaint = complaint
        self.lines = []

    def hosts(self):
        return ["node1", "node2"]

    def run(self, line, env, timeout):
        line = [str(word) for word in line]
        self.lines.append(line)
        if not self.complaint:
            Path(line[line.index("-o") + 1]).write_text(json.dumps(PROFILE))
        return SimpleNamespace(ok=not self.complaint, output=f"noise\ncryptmpi: tune: {self.complaint}\n", why=lambda: "exit status 1")


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "Sealing", lambda *_: SimpleNamespace(command="cryptmpi", env=lambda: {}))

    def make(lab, resume=False, full=False):
        starter = SimpleNamespace(networks=SimpleNamespace(lab=lambda name: lab), folder=tmp_path, command=Path("cryptmpi"))
        made = Profiles(starter, tmp_path, full, resume)
        made.make([PART, PART])
        return made

    return make


def file_of(made, way):
    return dict(made.applied(PART, way).settings)["profile"]


def test_ways_say_which_profile_and_how_many_threads():
    assert all(way.layer == "mpi" and way.cipher == "AES-256-GCM" for way in PLANS)
    settings = {way.name: {name: value for name, value in way.settings if name in ("profile", "threads")} for way in PLANS}
    assert settings == {"direct": {"profile": "direct", "threads": "1"}, "pipelined": {"profile": "none", "threads": "1"},
                        "threaded": {"profile": "none", "threads": "2"}, "tuned": {"profile": "tuned", "threads": "auto"}}
    many = Setting(False, MPI, (MPI,), 12, (), ())
    assert dict(next(way for way in parts.plan_ways(many) if way.name == "threaded").settings)["threads"] == "6"


def test_tuning_is_done_once_and_its_profile_used(make):
    lab = Lab()
    made = make(lab)
    (line,) = lab.lines
    assert "--quick" in line and line[line.index("--hosts") + 1] == "node1,node2" and line[line.index("--mpicc") + 1] == str(stacks.stack(MPI).mpicc)
    assert json.loads(Path(file_of(made, TUNED)).read_text()) == PROFILE
    assert made.plans() == {(ETHERNET, MPI): FOUND}
    assert "--quick" not in (make(lab, full=True), lab.lines)[1][-1]


def test_direct_is_as_whole_as_a_profile_can_say(make):
    content = json.loads(Path(file_of(make(Lab()), DIRECT)).read_text())
    assert content["format"] == PROFILE["format"] and content["fingerprint"] == FINGERPRINT
    (row,) = content["plan"]["rows"]
    # The bounds are those of src/engine/profile.hpp.
    assert content["plan"]["largest_whole"] == 256 << 10 and (row["edge"], row["segment"], row["in_flight"]) == (1 << 10, 1 << 20, 1)


def test_ways_without_a_profile_stay_as_they_are(make):
    made = make(Lab())
    assert made.applied(PART, PIPELINED) == PIPELINED and made.applied(PART, THREADED) == THREADED and made.applied(PART, parts.PLAIN) == parts.PLAIN


def test_resume_takes_the_profile_that_is_there(make):
    lab = Lab()
    made = make(lab)
    Path(file_of(made, DIRECT)).unlink()
    again = make(lab, resume=True)
    assert len(lab.lines) == 1 and Path(file_of(again, DIRECT)).exists()
    make(lab)
    assert len(lab.lines) == 2
    Path(file_of(again, TUNED)).write_text("{")
    make(lab, resume=True)
    assert len(lab.lines) == 3


def test_without_a_profile_a_way_fails_with_the_reason(make):
    made = make(Lab("no job key; make one with cryptmpi keygen"))
    for way in (DIRECT, TUNED):
        with pytest.raises(LabError, match="^no profile: tune: no job key; make one with cryptmpi keygen$"):
            made.applied(PART, way)
    assert made.plans() == {}


def test_a_profile_that_a_job_did_not_use_is_an_error():
    refuse_unused("result ping-pong 1 2 3\n")
    with pytest.raises(LabError, match="made for others"):
        refuse_unused("result ping-pong 1 2 3\ncryptmpi: rank 0 on node1: profile x: it was made for others; the default plans are used. Mend: ...\n")


def test_plans_in_words():
    assert profiles.in_words(plans.DEFAULT) == "nothing better than the built-in plan"
    assert profiles.in_words(FOUND) == ("messages up to 128 KB whole, longer ones in segments of up to 128 KB, the first and the last of 16 KB, "
                                        "2 with MPI")
    row = {"network": ETHERNET, "mpi": MPI, "size": 4 << 20}
    words = {way: profiles.cut({**row, "way": way}, {(ETHERNET, MPI): FOUND}, threads)
             for way, threads in (("threaded", 8), ("tuned", 4), ("pipelined", 1))}
    assert words["threaded"] == "in 65: 61,440 + 63 x 64,640 + 60,544 B, 8 threads"
    assert words["tuned"].endswith(", 4 threads") and not words["pipelined"].endswith("threads")
    assert profiles.cut({**row, "way": "tuned"}, {}, 1) is None
