"""The study's programs: under the papers' naive construction they give results, and where a byte of what they receive
is wrong, they do not. Its tunnels carry what the nodes send each other. And `python -m cryptmpi_tools.study`, as short
as it goes."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import BUILD, REPOSITORY, needs

from cryptmpi_tools.bench.parts import OPEN_MPI
from cryptmpi_tools.bench.programs import is_whole
from cryptmpi_tools.lab import stacks
from cryptmpi_tools.study import tunnels
from cryptmpi_tools.study.starting import read_results

MPI = stacks.stack("openmpi-4.1.4")
BENCH, STUDY = REPOSITORY / "cryptmpi_tools" / "bench", REPOSITORY / "cryptmpi_tools" / "study" / "programs"
COLLECTIVES = ("bcast", "alltoall", "alltoallv", "allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv")
# (source, ranks, cases)
PROGRAMS = [
    (BENCH / "pingpong.c", 2, ["ping-pong:1", "ping-pong:65536"]),
    (BENCH / "window.c", 2, ["pairs:1", "pairs:16384"]),
    (BENCH / "collectives.c", 4, [f"{name}:24" for name in COLLECTIVES]),
    (STUDY / "stencil.c", 4, ["2d:1024:10", "3d:1024:10"]),
    (STUDY / "nbody.c", 4, ["n-body:640"]),
    (STUDY / "overhead.c", 2, ["send:2048", "receive:2048"]),
    (STUDY / "transfer.c", 4, ["pingping:100", "sendrecv:100", "exchange:100"]),
]
EACH = pytest.mark.parametrize(("source", "ranks", "cases"), PROGRAMS, ids=[source.stem for source, _, _ in PROGRAMS])


def run(nodes, program, ranks, cases, env=None):
    return nodes.run(MPI.command(nodes, ranks, [program, "5", *cases]), env={**MPI.env(nodes), **(env or {})}, timeout=60)


@pytest.fixture(scope="module")
def spoiling(tmp_path_factory):
    if not MPI.present():
        pytest.skip(f"{MPI.title} is not installed")
    library = tmp_path_factory.mktemp("spoil") / "spoil.so"
    subprocess.run([MPI.mpicc, "-shared", "-fPIC", "-o", library, Path(__file__).parent / "spoil.c"], check=True)
    return library


@EACH
def test_naive_programs_give_results(source, ranks, cases, nodes, build):
    done = run(nodes, build(MPI, source, STUDY / "naive.c", "-lcrypto", "-lm"), ranks, cases)
    assert done.ok and is_whole(done.output), done.output
    results = read_results(done.output)
    assert len(results) == len(cases) * (4 if source.stem == "overhead" else 1)
    assert all(us >= 0 for result in results.values() for us in result["us"])


@EACH
def test_programs_whose_data_is_wrong_fail(source, ranks, cases, nodes, build, spoiling):
    done = run(nodes, build(MPI, source, "-lm"), ranks, cases[:1], {"LD_PRELOAD": str(spoiling)})
    assert not done.ok and "is wrong" in done.output, done.output


@pytest.mark.parametrize("case", ["bcast:9", "alltoall:9", "allgather:9", "scatter:9", "allreduce:9"])
def test_collective_operations_whose_data_is_wrong_fail(case, nodes, build, spoiling):
    done = run(nodes, build(MPI, BENCH / "collectives.c", "-lm"), 2, [case], {"LD_PRELOAD": str(spoiling)})
    assert not done.ok and "is wrong" in done.output, done.output


SENT = 20_000_000  # bytes; iperf3's server does not count what is in the sockets' buffers when the client ends


@needs("iperf3")
@pytest.mark.parametrize(("kind", "why_not", "interface"),
                         [("wireguard", tunnels.why_no_wireguard(), "wg*"), ("ipsec", tunnels.why_no_ipsec(), "ipsec0")], ids=["wireguard", "ipsec"])
def test_all_that_the_nodes_send_goes_through_the_tunnel(kind, why_not, interface, two_nodes):
    if why_not:
        pytest.skip(why_not)
    with tunnels.TunnelNetworks() as networks:
        lab = networks.lab(f"veth-{kind}")
        addresses = lab.run(["ip", "-br", "addr", "show", "dev", "eth0"]).output
        assert lab.nodes[0].address not in addresses

        def carried():
            return int(lab.run(["sh", "-c", f"cat /sys/class/net/{interface}/statistics/tx_bytes"]).output)

        before = carried()
        server = lab.start(["iperf3", "-s", "-1"], node=1, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        client = lab.start(["iperf3", "-c", "node2", "-n", SENT, "-J"], stdout=subprocess.PIPE, text=True)
        output = client.communicate(timeout=60)[0]
        server.wait(10)
        assert client.returncode == 0, output
        received = json.loads(output)["end"]["sum_received"]["bytes"]
        assert received > SENT / 4 and carried() - before >= received


def test_the_study_of_a_ping_pong(two_nodes, tmp_path):
    if not MPI.present():
        pytest.skip(f"{MPI.title} is not installed")
    line = [sys.executable, "-m", "cryptmpi_tools.study", "--quick", "--only", "ping-pong", "--network", "veth",
            "--part-seconds", "0.001", "--folder", tmp_path, "--cryptmpi", BUILD / "bin" / "cryptmpi"]
    done = subprocess.run([str(word) for word in line], cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    study = json.loads((tmp_path / "study.json").read_text())
    figure = next(figure for figure in study["figures"] if (figure["paper"], figure["figure"]) == ("C20", "6"))
    ways = ["plain", "naive", "mpi AES-256-GCM", "channel AES-256-GCM"]
    assert list(dict.fromkeys(row["way"] for row in figure["rows"])) == ways
    for row in figure["rows"]:
        assert row["us"] > 0 and row["mb_s"] == pytest.approx(row["size"] / row["us"], rel=1e-3) and row["repeats"] == 8 and row["starts"] == 1
    assert (tmp_path / figure["image"]).read_bytes().startswith(b"\x89PNG")
    assert figure["title"] in (tmp_path / "index.html").read_text()


@pytest.mark.long
def test_the_study_of_our_plans(two_nodes, tmp_path):
    """It tunes first, and then each plan is really used: a job that does not take its profile is an error."""
    if not MPI.present():
        pytest.skip(f"{MPI.title} is not installed")
    line = [sys.executable, "-m", "cryptmpi_tools.study", "--quick", "--only", "plans", "--part-seconds", "0.001", "--folder", tmp_path,
            "--cryptmpi", BUILD / "bin" / "cryptmpi"]
    done = subprocess.run([str(word) for word in line], cwd=REPOSITORY, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    study = json.loads((tmp_path / "study.json").read_text())
    figure = next(figure for figure in study["figures"] if (figure["paper"], figure["figure"]) == ("C20", "plans"))
    assert list(dict.fromkeys(row["way"] for row in figure["rows"])) == ["plain", "naive", "direct", "pipelined", "threaded", "tuned"]
    assert not any("profile" in line for line in study["not_measured"])
    (tuned,) = study["profiles"]
    assert tuned["network"] == "veth-10g" and tuned["plan"]["rows"][-1]["up_to"] is None and tuned["words"] in (tmp_path / "index.html").read_text()
    cut = {row["way"]: row.get("plan") for row in figure["rows"] if row["size"] == 4 << 20}
    assert cut["direct"].startswith("in 6: ") and cut["pipelined"].startswith("in 69: ") and cut["tuned"] and cut["plain"] is None


@pytest.mark.long
@needs("hpcc", "lmp")
def test_applications_are_predicted_from_the_same_run(two_nodes, tmp_path):
    if not any(stacks.stack(name).present() for name in OPEN_MPI):
        pytest.skip("no Open MPI is installed")
    only = [word for name in ("cipher", "ping-pong", "applications") for word in ("--only", name)]
    line = [sys.executable, "-m", "cryptmpi_tools.study", "--quick", *only, "--network", "veth-10g", "--part-seconds", "0.001", "--timeout", "200",
            "--folder", tmp_path, "--cryptmpi", BUILD / "bin" / "cryptmpi"]
    done = subprocess.run([str(word) for word in line], cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    study = json.loads((tmp_path / "study.json").read_text())
    figure = next(figure for figure in study["figures"] if figure["figure"] == "applications planned")
    assert [line[0] for line in figure["table"]["rows"]] == ["HPCC", "LAMMPS"]
    for *_, whole, chunks in figure["table"]["rows"]:
        assert 0 < chunks <= whole
    assert "Without a prediction" not in figure["text"] and (tmp_path / figure["image"]).exists()
    for program in ("hpcc", "lammps"):
        (report,) = (tmp_path / "reports").glob(f"{program}-*.json")
        ranks = [part for part in json.loads(report.read_text())["processes"] if part["rank"] >= 0]
        assert len({part["node"] for part in ranks}) == 2 and all(part["sizes_sent"] for part in ranks)


def test_one_benchmark_by_its_name(two_nodes, tmp_path):
    if not MPI.present():
        pytest.skip(f"{MPI.title} is not installed")
    line = [BUILD / "bin" / "cryptmpi", "bench", "ping-pong", "--network", "veth", "--part-seconds", "0.001", "--folder", tmp_path,
            "--output", tmp_path / "rows.json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert {row["benchmark"] for row in rows} == {"ping-pong"}
    assert {"plain"} < {row["way"] for row in rows}
    assert all(row["us"] > 0 for row in rows)


def test_a_benchmark_that_there_is_not(tmp_path):
    done = subprocess.run([BUILD / "bin" / "cryptmpi", "bench", "pong"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no benchmark called pong; there are: cipher, " in done.stderr
