"""fit, predict, error, plan and scale from files: what made the measurements is found, and every bad input gives one
line."""

import json

import pytest

from cryptmpi_tools.model import __main__ as command_line
from cryptmpi_tools.model import chopping, enhanced, measurements, parameters, system
from cryptmpi_tools.model import pairs as of_pairs
from cryptmpi_tools.model.hockney import Hockney, Network
from cryptmpi_tools.model.max_rate import Levels, MaxRate

KB, MB = 1 << 10, 1 << 20
NETWORK = Network(Hockney(5e-6, 2e-10), Hockney(20e-6, 2.5e-10), 64 * KB)
CIPHER = Levels((("small", 32 * KB, MaxRate(1e-7, 5e9, 5e9)), ("moderate", MB, MaxRate(2e-7, 5e9, 5e9)),
                 ("large", float("inf"), MaxRate(3e-7, 4e9, 4e9))))
SIZES = [1, 256, 4 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, MB, 2 * MB, 4 * MB]
BY_HAND = ["--alpha", "5.75", "--beta", "0.0786", "--cipher-speed", "5.9", "--cores", "32"]


def us(seconds):
    return 1e6 * seconds


def bench_report(path, busy=False):
    """As `make bench` writes it: a network and a cipher whose models are known, sealed messages 10 % slower than the
    enhanced Hockney model."""
    def row(benchmark, size, plain, sealed, ranks=2):
        return {"layer": "mpi", "mpi": "openmpi", "network": "veth", "benchmark": benchmark, "size": size, "ranks": ranks, "cipher": "AES-256-GCM",
                "plain_us": us(plain), "sealed_us": us(sealed)}

    rows = [row("ping-pong", size, NETWORK.time(size), 1.1 * enhanced.time(size, NETWORK, CIPHER)) for size in SIZES]
    rows += [row("pairs", 2 * MB, 1e-3, 2e-3, 4), row("bcast", KB, 1e-3, 2e-3, 4)]
    # Sealing and opening that differ, with the mean that the model is of.
    seal, unseal = ([us(share * CIPHER.time(size)) for size in SIZES] for share in (1.05, 0.95))
    report = {"rows": rows, "machine": {"busy": busy},
              "bounds": {"ciphers": {"AES-256-GCM": {"module": "ipsec-mb", "sizes": SIZES, "seal_us": seal, "open_us": unseal}}}}
    path.write_text(json.dumps(report))
    return path


def simple(path, **content):
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def fitted(tmp_path):
    bench_report(tmp_path / "report.json")
    assert command_line.main(["fit", str(tmp_path / "report.json"), "--output", str(tmp_path / "parameters.json"), "--l1", "32K", "--l2", "1M"]) == 0
    return tmp_path / "parameters.json"


@pytest.fixture
def says(capsys):
    """Runs a subcommand: (its status, stdout, stderr)."""
    def run(*words):
        capsys.readouterr()
        try:
            status = command_line.main([str(word) for word in words])
        except SystemExit as ended:
            status = ended.code
        return (status, *capsys.readouterr())
    return run


def as_json(says, *words):
    status, output, complaint = says(*words, "--json")
    assert status == 0, complaint
    return json.loads(output)


@pytest.mark.parametrize("name", [module.NAME for module in command_line.SUBCOMMANDS])
def test_help(says, name):
    status, output, _ = says(name, "--help")
    assert status == 0 and f"cryptmpi model {name}" in output and "--json" in output


# fit


def test_fit_finds_what_made_the_report(fitted):
    known = parameters.read(fitted)
    network, cipher = known.networks["veth", "openmpi"], known.ciphers["AES-256-GCM", "ipsec-mb"]
    assert network.switch == 64 * KB
    for size in (100, 100 * KB, 3 * MB):
        assert network.time(size) == pytest.approx(NETWORK.time(size), rel=1e-4)
        assert cipher.levels.time(size) == pytest.approx(CIPHER.time(size), rel=1e-3)
        assert cipher.levels.time(size, 4) == pytest.approx(CIPHER.time(size, 4), rel=1e-3)  # B = A is what made them
    entry = json.loads(fitted.read_text())["networks"][0]["rendezvous"]
    low, high = entry["alpha_s_interval"]
    assert low <= entry["alpha_s"] <= high and entry["n"] == 6 and entry["rms_s"] < 1e-9


def test_fit_prints_parameters_intervals_and_what_it_assumed(tmp_path, says):
    status, output, _ = says("fit", bench_report(tmp_path / "report.json", busy=True))
    assert status == 0
    for piece in ("THE MACHINE WAS BUSY", "rendezvous", "AES-256-GCM", "ipsec-mb", " .. ", "B = A", "NOT FITTED: pairs veth openmpi"):
        assert piece in output


def test_simple_format_with_threads_and_pairs(tmp_path, says):
    threads = [{"size": size, "threads": t, "seal_us": us(1e-6 + size / (4e9 + 3e9 * (t - 1))), "open_us": us(1e-6 + size / (4e9 + 3e9 * (t - 1)))}
               for size in (KB, 16 * KB, 256 * KB, MB, 4 * MB) for t in (1, 2, 4)]
    file = simple(tmp_path / "m.json", network="ib", mpi="mvapich", cipher_name="AES-128-GCM", module="boringssl", cipher=threads, switch=16 * KB,
                  ping_pong=[{"size": size, "us": us(NETWORK.rendezvous.time(size))} for size in SIZES],
                  pairs=[{"size": size, "pairs": p, "us": us(1e-6 + 1e-10 * size * p)} for size in (KB, 16 * KB, MB) for p in (1, 2, 8)])
    found = as_json(says, "fit", file, "--l1", "1M", "--l2", "64M")
    assert found["networks"][0]["switch"] == 16 * KB
    assert found["pairs"][0]["rendezvous"]["beta_s_per_byte"] == pytest.approx(1e-10, rel=1e-6)
    level = found["ciphers"][0]["levels"][0]
    assert (level["a_bytes_per_s"], level["b_bytes_per_s"]) == (pytest.approx(4e9, rel=1e-3), pytest.approx(3e9, rel=1e-3))
    assert level["b_bytes_per_s_interval"] is not None and found["ciphers"][0]["threads"] == [1, 2, 4]


def test_fit_of_relative_errors_heeds_small_messages(tmp_path, says):
    rows = [{"size": 1, "us": 5.0}, {"size": 1000, "us": 6.0}, {"size": MB, "us": 1000.0}, {"size": 4 * MB, "us": 3000.0}]
    file = simple(tmp_path / "m.json", ping_pong=rows)
    alphas = [as_json(says, "fit", file, *words)["networks"][0]["eager"]["alpha_s"] for words in ([], ["--relative"])]
    assert alphas[1] == pytest.approx(5.5e-6, abs=1e-6) and alphas[0] > 10 * alphas[1]


@pytest.mark.parametrize("text, piece", [
    ("", "not JSON"), ("[]", "no JSON object"), ("{}", "holds no measurements"), ('{"ping_pong": [{"size": 1}]}', "'us'"),
    ('{"ping_pong": [{"size": 1, "us": -1}]}', "above 0"), ('{"ping_pong": [{"size": "x", "us": 1}]}', "above 0"), ('{"ping_pong": 3}', "form"),
    ('{"ping_pong": [{"size": 1, "us": 5}]}', "two points"), ('{"cipher": [{"size": 1, "seal_us": 1, "open_us": NaN}]}', "above 0")])
def test_fit_refuses_what_is_no_measurement(tmp_path, says, text, piece):
    (tmp_path / "m.json").write_text(text)
    status, output, complaint = says("fit", tmp_path / "m.json")
    assert (status, output, complaint.count("\n")) == (1, "", 1) and complaint.startswith("cryptmpi: model fit: ")
    assert piece in complaint


def test_fit_refuses_files_that_are_not_there(tmp_path, says):
    assert says("fit", tmp_path / "none")[::2] == (1, f"cryptmpi: model fit: cannot read {tmp_path / 'none'}: No such file or directory\n")
    status, _, complaint = says("fit", bench_report(tmp_path / "r.json"), "--output", tmp_path / "no" / "file")
    assert status == 1 and "cannot write" in complaint


# predict


def test_predict_from_parameters(fitted, says, tmp_path):
    rows = as_json(says, "predict", fitted, "--size", "256", "--size", "1M", "--cores", "6", "--plot", tmp_path / "p.png")["rows"]
    assert [row["size"] for row in rows] == [256, MB] and (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    small, large = rows
    assert small["direct_s"] == pytest.approx(enhanced.time(256, NETWORK, CIPHER), rel=1e-3) and small["chopped_s"] is None
    assert large["plain_s"] < large["chopped_s"] <= min(large["pipelined_s"], large["threaded_s"]) <= large["direct_s"] and large["t"] <= 4


def test_predict_by_hand_is_the_model(says):
    row, = as_json(says, "predict", *BY_HAND, "--size", "4M", "--ranks-per-node", "8")["rows"]
    network, cipher = Network(Hockney(5.75e-6, 7.86e-11), Hockney(5.75e-6, 7.86e-11), 0), Levels((("all", float("inf"), MaxRate(0, 5.9e9, 5.9e9)),))
    assert row["chopped_s"] == pytest.approx(chopping.time(4 * MB, row["k"], row["t"], network, cipher)) and row["t"] <= 2
    assert "4 MB" in says("predict", *BY_HAND)[1]


@pytest.mark.parametrize("words, piece", [([], "--alpha and --beta"), (["--alpha", "1"], "go together"),
                                          (["--alpha", "1", "--beta", "1"], "--cipher-speed")])
def test_predict_says_what_it_lacks(says, words, piece):
    status, output, complaint = says("predict", *words)
    assert (status, output, complaint.count("\n")) == (1, "", 1) and piece in complaint


@pytest.mark.parametrize("words, piece", [(["--mpi", "mpich"], "none of PARAMETERS fits; say one of: --network veth --mpi openmpi"),
                                          (["--cipher", "rot13"], "--cipher AES-256-GCM --module ipsec-mb")])
def test_predict_names_what_there_is(fitted, says, words, piece):
    assert piece in says("predict", fitted, *words)[2]


@pytest.mark.parametrize("change, piece", [({"format": "other"}, "cryptmpi model fit"), ({"networks": [{}]}, "not whole")])
def test_parameters_of_another_kind_are_refused(fitted, says, change, piece):
    fitted.write_text(json.dumps({**json.loads(fitted.read_text()), **change}))
    status, _, complaint = says("predict", fitted)
    assert status == 1 and piece in complaint


@pytest.mark.parametrize("words", [["--size", "x"], ["--size", "0"], ["--cores", "0"], ["--alpha", "-1"], ["--beta", "nan"], ["--sise", "1"]])
def test_usage_is_one_line(says, words):
    status, output, complaint = says("predict", *BY_HAND, *words)
    assert (status, output, complaint.count("\n")) == (2, "", 1) and words[0] in complaint


# error


def test_error_is_what_was_put_in(fitted, says, tmp_path):
    found = as_json(says, "error", fitted, tmp_path / "report.json", "--plot", tmp_path / "e.png")
    summary = {entry["model"]: entry for entry in found["summary"]}
    assert summary["Hockney"]["n"] == len(SIZES) and summary["Hockney"]["worst"] < 1e-4
    assert summary["max-rate"]["worst"] < 1e-3 and summary["max-rate"]["module"] == "ipsec-mb"
    sealed = summary["enhanced Hockney"]
    assert (sealed["layer"], sealed["cipher"]) == ("mpi", "AES-256-GCM")
    assert sealed["median"] == pytest.approx(1 - 1 / 1.1, abs=1e-3) and sealed["bias"] < 0
    assert summary["(k,t)-chopping"]["n"] == sum(size >= 64 * KB for size in SIZES)
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")
    assert "enhanced Hockney" in says("error", fitted, tmp_path / "report.json")[1]


def test_error_of_other_things_is_refused(fitted, says, tmp_path):
    other = simple(tmp_path / "m.json", network="other", ping_pong=[{"size": 1, "us": 5.0}])
    assert says("error", fitted, other)[0] == 1


# several pairs

PAIRS = Network(Hockney(4e-6, 8e-10), Hockney(4e-6, 8e-10), 0)
FLIGHTS = [("message-rate", 1, 1), ("streaming", 4 * MB, 1), ("pairs", 16 * KB, 2), ("pairs", 2 * MB, 2)]


def report_of_pairs(path, slower=1.25):
    """A bench report whose sealed messages of several pairs take so many times as long as the model says."""
    bench_report(path)
    report = json.loads(path.read_text())
    rows = [row for row in report["rows"] if row["benchmark"] == "ping-pong"]
    for benchmark, size, number in FLIGHTS:
        rows.append({**rows[0], "benchmark": benchmark, "size": size, "ranks": 2 * number, "plain_us": us(of_pairs.plain(size, number, PAIRS)),
                     "sealed_us": us(slower * of_pairs.encrypted(size, number, PAIRS, CIPHER))})
    path.write_text(json.dumps({**report, "rows": rows}))
    return path


@pytest.fixture
def fitted_pairs(tmp_path, says):
    report = report_of_pairs(tmp_path / "report.json")
    assert says("fit", report, "--output", tmp_path / "parameters.json", "--l1", "32K", "--l2", "1M")[0] == 0
    return tmp_path / "parameters.json", report


def test_error_of_several_pairs_is_what_was_put_in(fitted_pairs, says, tmp_path):
    found = as_json(says, "error", *fitted_pairs, "--plot", tmp_path / "e.png")
    summary = {entry["model"]: entry for entry in found["summary"]}
    assert summary["Hockney of pairs"]["worst"] < 1e-6
    sealed = summary["multiple pairs"]
    assert [sealed[name] for name in ("network", "mpi", "layer", "cipher", "module", "n")] == ["veth", "openmpi", "mpi", "AES-256-GCM", "ipsec-mb", 4]
    assert sealed["median"] == pytest.approx(1 - 1 / 1.25, abs=1e-3) and sealed["bias"] < 0
    assert {(row["size"], row["pairs"]) for row in found["rows"] if row["model"] == "multiple pairs"} == {flight[1:] for flight in FLIGHTS}
    assert all(row["pairs"] is None for row in found["rows"] if row["model"] in ("Hockney", "enhanced Hockney", "(k,t)-chopping", "max-rate"))
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")
    line = next(line for line in says("error", *fitted_pairs)[1].splitlines() if line.startswith("multiple pairs"))
    assert " 20.0 % " in line and " pair" in line


def test_sealed_pairs_of_the_simple_format(tmp_path, says):
    threads = [{"size": size, "seal_us": us(CIPHER.time(size)), "open_us": us(CIPHER.time(size))} for size in SIZES]
    flights = [{"size": size, "pairs": number} for _, size, number in FLIGHTS]
    file = simple(tmp_path / "m.json", network="ib", cipher_name="AES-256-GCM", layer="naive", cipher=threads,
                  pairs=[{**one, "us": us(of_pairs.plain(one["size"], one["pairs"], PAIRS))} for one in flights],
                  sealed_pairs=[{**one, "us": us(of_pairs.encrypted(one["size"], one["pairs"], PAIRS, CIPHER))} for one in flights])
    assert says("fit", file, "--output", tmp_path / "p.json", "--l1", "32K", "--l2", "1M")[0] == 0
    entry = next(entry for entry in as_json(says, "error", tmp_path / "p.json", file)["summary"] if entry["model"] == "multiple pairs")
    assert (entry["layer"], entry["n"]) == ("naive", 4) and entry["worst"] < 1e-3
    broken = simple(tmp_path / "b.json", sealed_pairs=[{"size": 1, "us": 2}])
    assert "an entry lacks 'pairs'" in says("fit", broken)[2]


def test_predict_of_several_pairs(fitted_pairs, says, tmp_path):
    path, _ = fitted_pairs
    found = as_json(says, "predict", path, "--pairs", "1", "--pairs", "8", "--size", "2M", "--plot", tmp_path / "p.png")
    assert [(row["size"], row["pairs"]) for row in found["rows"]] == [(2 * MB, 1), (2 * MB, 8)]
    for row in found["rows"]:
        assert row["plain_s"] == pytest.approx(of_pairs.plain(2 * MB, row["pairs"], PAIRS), rel=1e-3)
        assert row["encrypted_s"] == pytest.approx(of_pairs.encrypted(2 * MB, row["pairs"], PAIRS, CIPHER), rel=1e-2)
    assert any("64 messages in flight" in line for line in found["assumptions"]) and (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "overhead" in says("predict", path, "--pairs", "2")[1]


def test_predict_of_several_pairs_by_hand_or_not_at_all(fitted, says):
    row, = as_json(says, "predict", *BY_HAND, "--pairs", "4", "--size", "1M")["rows"]
    assert row["plain_s"] == pytest.approx(5.75e-6 + 7.86e-11 * 4 * MB)
    status, output, complaint = says("predict", fitted, "--pairs", "4")  # where no pairs were measured
    assert (status, output, complaint.count("\n")) == (1, "", 1) and "--alpha and --beta" in complaint
    assert says("predict", fitted, "--pairs", "0")[0] == 2


# plan


def job_report(path, complete=True, records=1000):
    """As `cryptmpi run --report` writes it: four ranks on two nodes, each with messages of 1 MB mean size."""
    processes = [{"node": f"node{1 + rank // 2}", "role": "rank", "rank": rank, "ranks": 4,
                  "sealed_bytes_sent": records * MB, "sealed_records_sent": records,
                  "sealed_bytes_received": records * MB, "sealed_records_received": records} for rank in range(4)]
    processes.append({**processes[0], "role": "launcher", "rank": -1})
    path.write_text(json.dumps({"complete": complete, "layer": "channel", "ranks": 4, "totals": {}, "processes": processes}))
    return path


def test_plan_from_a_job_report(says, tmp_path):
    found = as_json(says, "plan", *BY_HAND, "--report", job_report(tmp_path / "job.json"), "--seconds", "10")
    assert (found["ranks"], found["ranks_per_node"], found["messages_sent"], found["bytes_sent"]) == (4, 2, 4000, 4000 * MB)
    assert found["added_direct_s"] == pytest.approx(1000 * 2 * MB / 5.9e9)  # sealed and opened, as many of both
    assert found["overhead_direct_pct"] == pytest.approx(10 * found["added_direct_s"])
    assert 0 < found["overhead_chopped_pct"] < found["overhead_direct_pct"]
    assert any("mean size" in line for line in found["assumptions"])


def test_plan_from_the_sizes_in_a_job_report(says, tmp_path):
    """Few large messages and many small ones are not many of a middle size."""
    report = json.loads(job_report(tmp_path / "job.json").read_text())
    sizes = [{"up_to": KB, "messages": 2000, "bytes": 1000 * KB}, {"up_to": 4 * MB, "messages": 10, "bytes": 40 * MB}]
    for process in report["processes"]:
        process["sizes_sent"] = process["sizes_received"] = sizes
    (tmp_path / "sizes.json").write_text(json.dumps({**report, "layer": "mpi"}))
    found, by_hand = (as_json(says, "plan", *BY_HAND, *words, "--seconds", "10")
                      for words in (["--report", tmp_path / "sizes.json"],
                                    ["--messages", "512:2000", "--messages", "4M:10", "--ranks-per-node", "2"]))
    assert found["messages_sent"] == 4 * 2010
    assert found["added_chopped_s"] == pytest.approx(by_hand["added_chopped_s"])
    assert any("powers of two" in line for line in found["assumptions"])


def test_plan_shares_cores_that_are_too_few(says, tmp_path):
    few, enough = (as_json(says, "plan", *BY_HAND[:-1], cores, "--messages", "1M:100", "--ranks-per-node", "8")["added_direct_s"]
                   for cores in ("2", "8"))
    assert few == pytest.approx(4 * enough)


def test_plan_without_a_run_time_is_of_the_communication(says):
    found = as_json(says, "plan", *BY_HAND, "--messages", "4M:10", "--messages", "1K:1000")
    plain = 10 * (5.75e-6 + 7.86e-11 * 4 * MB) + 1000 * (5.75e-6 + 7.86e-11 * KB)
    assert found["communication_s"] == pytest.approx(plain)
    assert found["overhead_direct_pct"] == pytest.approx(100 * 2 * (10 * 4 * MB + 1000 * KB) / 5.9e9 / plain)


@pytest.mark.parametrize("words, piece", [([], "either --report"), (["--messages", "1K:5", "--report", "x"], "either --report"),
                                          (["--report", "/none"], "cannot read")])
def test_plan_says_what_it_lacks(says, words, piece):
    status, output, complaint = says("plan", *BY_HAND, *words)
    assert (status, output) == (1, "") and piece in complaint


def test_plan_refuses_reports_that_do_not_tell(says, tmp_path):
    for report, piece in ((simple(tmp_path / "a", rows=[]), "not a job report"), (job_report(tmp_path / "b", complete=False), "not complete"),
                          (job_report(tmp_path / "c", records=0), "no rank sealed anything")):
        assert piece in says("plan", *BY_HAND, "--report", report)[2]


# scale


def test_scale(says, tmp_path):
    found = as_json(says, "scale", *BY_HAND, "--plot", tmp_path / "s.png")
    assert {row["ranks"] for row in found["operations"]} == {64, 1024, 16384, 10 ** 6} and len(found["operations"]) == 4 * 4 * 2
    assert [row["ranks"] for row in found["agreements"]] == [64, 1024, 16384, 10 ** 6]
    for row in found["agreements"]:
        assert row["table_bytes"] == 68 * row["ranks"]
        assert row["seconds"] == pytest.approx(sum(row[name] for name in ("join", "gather", "spread", "confirm", "go")))
        assert row["seconds"] < row["rsa_s"]
    times = [row["join"] for row in found["agreements"][:3]]  # grows with log2(ranks): by as much for 16 times the ranks
    assert times[1] - times[0] == pytest.approx(times[2] - times[1])
    assert found["assumptions"] and (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    assert "1,000,000" in says("scale", *BY_HAND)[1]
    assert says("scale", *BY_HAND, "--ranks", "1")[0] == 1


def test_system_knows_how_many_threads_are_left():
    of = system.System("", NETWORK, CIPHER, 32, 8, ())
    assert of.threads == 2
    assert system.System("", NETWORK, CIPHER, 2, 2, ()).threads == 1


def test_measurements_of_several_files_come_together(tmp_path):
    first = simple(tmp_path / "1", network="a", ping_pong=[{"size": 1, "us": 5}])
    second = simple(tmp_path / "2", network="a", ping_pong=[{"size": 2, "us": 6}], busy=True)
    found = measurements.read([first, second])
    assert found.ping_pong == {("a", ""): {1: pytest.approx(5e-6), 2: pytest.approx(6e-6)}} and found.busy
