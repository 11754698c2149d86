"""From repeats to the page, on made-up repeats of every part: each figure has rows, a paragraph and a picture, and a
browser shows it."""

import base64
import html
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from cryptmpi_tools import literature
from cryptmpi_tools.study import __main__ as main
from cryptmpi_tools.study import drawing, figures, models, page, parts, profiles, rows
from cryptmpi_tools.study.parts import BARE, ETHERNET, INFINIBAND, IPSEC, WIREGUARD, Part, Setting, ways_of
from cryptmpi_tools.study.taking import Taken
from cryptmpi_tools.tune.plans import Plan, Plans, Row

SETTING = Setting(False, "openmpi-4.1.4", ("openmpi-4.1.4",), 2, (("openssl", ("AES-128-GCM", "AES-256-GCM")), ("aegis", ("AEGIS-128X4",))),
                  (WIREGUARD, IPSEC))
TUNED = {(ETHERNET, "openmpi-4.1.4"): Plans(64 << 10, (Row(None, Plan(16 << 10, 128 << 10, 2)),))}
SLOWER = {"plain": 1, "naive": 3, "mpi AES-256-GCM": 1.5, "channel AES-256-GCM": 2, "wireguard": 4, "ipsec": 20,
          "direct": 1.4, "pipelined": 1.3, "threaded": 1.2, "tuned": 1.1}
MORE = dict.fromkeys(("stencil", "nbody"), ("computing_us", "communicating_us")) | {"cipher": ("seal_us", "open_us")}
# Not measured by the quick study unless it is told of them, or not the study's own.
ELSEWHERE = {("N20", "table IV"), ("N20", "table VIII"), *((None, name) for name in ("OSU", "IMB", "NetPIPE", "applications"))}


def made_up(part, folder, seed):
    """A part with a start of each way; times grow with the size, and with what the way does."""
    draw = random.Random(seed)
    turn = {}
    for way in part.variants:
        keys = [f"{label}{suffix} {size}" for label, size in part.tests
                for suffix in (("-base_t", "-iter_t", "-work_t", "-overhead_t") if part.program == "overhead" else ("",))]
        turn[way.name] = {}
        for key in keys:
            us = [SLOWER.get(way.name, 1) * (10 + int(key.split()[1]) / 1000) * draw.uniform(0.99, 1.01) for _ in range(20)]
            more = {name: us for name in MORE.get(part.program, ())}
            turn[way.name][key] = {"us": us, "cpu_us": us, **more}
    taken = Taken(folder, part, {}, False)
    taken.samples.add(turn)
    return taken


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    every = [row for seed, part in enumerate(parts.quick(SETTING)) for row in rows.rows_of(made_up(part, folder, seed))]
    return profiles.described(every, TUNED, parts.threads_of_plans(SETTING))


@pytest.fixture(scope="module")
def study(found):
    """(study.json's content, pictures)."""
    built = [figures.built(figure, found) for figure in figures.FIGURES]
    pictures = main.draw(built)
    machine = {"cpu": "a processor", "cores": 2, "flags": ["aes"], "memory_gib": 8, "kernel": "6", "cryptmpi": "cryptmpi 0", "commit": "0",
               "busy": True, "load_at_start": 1, "load_at_end": 1, "busy_cores_at_start": 1, "others_running": 1, "stolen_pct": 0}
    method = {**{name: rows.rule_text(name) for name in ("mpi", "crypto")}, "repeats": ""}
    content = {"figures": sorted(built, key=main.place_of), "papers": literature.TITLES, "machine": machine,
               "mpis": {"openmpi-4.1.4": "An MPI"}, "modules": ["module openssl 3"], "profiles": profiles.facts(TUNED),
               "settings": {"full": False}, "method": method, "not_measured": ["<something> that was not"], "seconds": 60}
    return content, pictures


def test_every_figure_of_the_papers_has_rows_a_paragraph_and_a_picture(study):
    content, pictures = study
    for figure in content["figures"]:
        if (figure["paper"], figure["figure"]) in ELSEWHERE:
            continue
        assert figure["rows"], figure["title"]
        assert len(figure["text"]) > 100 and "Not measured" not in figure["text"], figure["title"]
        assert pictures[figure["image"]].startswith(b"\x89PNG"), figure["title"]
    json.dumps(content, allow_nan=False)


def test_the_issue_s_figures_are_all_there(study):
    have = {(figure["paper"], figure["figure"]) for figure in study[0]["figures"]}
    wanted = [("N20", range(2, 10)), ("C20", (1, 2, *range(4, 11))), ("E12", range(9, 13))]
    assert {(paper, str(number)) for paper, numbers in wanted for number in numbers} | {("C20", "table III")} <= have


def test_rows_say_how_often_and_how_far_apart(found):
    for row in found:
        assert (row["repeats"], row["starts"], row["rule_met"]) == (20, 1, "deviation")
        assert 0 < row["deviation_pct"] < 1 and 0 < row["interval_pct"] < 1


def test_overheads_are_ratios_of_medians_and_found_again_in_the_paragraph(found):
    naive = [row for row in found if row["way"] == "naive" and row["experiment"] == "ping-pong"]
    assert naive and all(190 < row["added_pct"] < 210 and row["ratio_interval"][0] < 3.02 and row["ratio_interval"][1] > 2.98 for row in naive)
    figure = next(figure for figure in figures.FIGURES if (figure.paper, figure.figure) == ("N20", "3"))
    text = figures.built(figure, found)["text"]
    most = max(row["added_pct"] for row in naive if row["network"] == ETHERNET and row["size"] >= 4096)
    assert "the naive construction adds" in text.lower() and f"+{most:.1f} %" in text
    assert re.search(r"the MPI layer adds \+(?:4|5)\d\.\d %", text)


def test_our_plans_stand_side_by_side_after_the_figure_about_the_papers_plans(found, study):
    figure = next(figure for figure in figures.FIGURES if (figure.paper, figure.figure) == ("C20", "plans"))
    built = figures.built(figure, found)
    assert [line[0] for line in built["table"]["rows"]] == ["plain", "naive", "direct", "pipelined", "threaded", "tuned"]
    assert built["table"]["columns"][1:] == ["64 KB", "256 KB", "512 KB", "1 MB", "4 MB"]
    plans = {(row["way"], row["size"]): row.get("plan") for row in built["rows"]}
    assert plans["direct", 1 << 20] == "in 3: 1,024 + 1 x 1,046,528 + 1,024 B" and plans["direct", 1 << 18] == "whole"
    assert plans["pipelined", 1 << 20] == "in 18: 61,440 + 16 x 58,112 + 57,344 B" and plans["threaded", 1 << 20].endswith("B, 2 threads")
    assert plans["tuned", 1 << 18] == "in 4: 16,384 + 2 x 114,688 + 16,384 B" and plans["plain", 1 << 18] is None
    assert "the fastest is tuned in 4 (256 KB, 512 KB, 1 MB, 4 MB); in 4 it can be told from the next one" in built["text"]
    assert "In 1 of 5 cases (64 KB) tuned and pipelined are the same thing" in built["text"]
    most = max(row["added_pct"] for row in built["rows"] if row["way"] == "direct")
    assert f"+{most:.1f} %" in built["text"]
    c20 = [one["figure"] for one in study[0]["figures"] if one["paper"] == "C20"]
    assert c20.index("2") < c20.index("plans") < c20.index("4")


def test_models_are_fed_from_the_rows_or_said_to_be_missing(found, tmp_path, monkeypatch):
    files = models.measurements(found, tmp_path)
    contents = [json.loads(path.read_text()) for path in files]
    networks = [content for content in contents if "network" in content]
    assert [content["network"] for content in networks] == [ETHERNET, INFINIBAND, BARE]
    assert {row["layer"] for row in networks[0]["sealed"]} == {"naive", "mpi", "channel"}
    assert {(row["size"], row["pairs"]) for row in networks[0]["pairs"]} == {(size, count) for size in (1, 1 << 14, 1 << 21) for count in (1, 2, 4)}
    assert {row["layer"] for row in networks[0]["sealed_pairs"]} == {"naive", "mpi", "channel"} and len(networks[0]["sealed_pairs"]) == 27
    gcm = next(content for content in contents if content["cipher_name"] == "AES-256-GCM" and "cipher" in content)
    assert gcm["module"] == "openssl" and {row.get("threads", 1) for row in gcm["cipher"]} == {1, 2}
    figure = next(figure for figure in models.built(found, tmp_path) if (figure["paper"], figure["figure"]) == ("N20", "11"))
    assert "multiple pairs veth-10g naive AES-256-GCM: half of 9 predictions are within " in figure["text"]
    assert {row["panel"] for row in figure["rows"]} == {f"veth-10g, {way}" for way in ("plain", "naive", "mpi", "channel")}
    assert {row["series"] for row in figure["rows"]} == {f"{pairs} {what}" for pairs in ("1 pair", "2 pairs", "4 pairs")
                                                         for what in ("measured", "predicted")}
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    missing = models.built(found, tmp_path)
    assert {(figure["paper"], figure["figure"]) for figure in missing} == {("N20", "10"), ("N20", "11"), ("N20", "12"), ("N20", "13"), ("C20", "3"),
                                                                           ("C20", "table II")}
    assert all(not figure["rows"] and ("missing" in figure["text"].lower() or figure["figure"] == "13") for figure in missing)


def test_numbers_that_the_papers_print_have_ours_beside_them(study):
    beside = {(quote["paper"], quote["figure"], quote["what"]): quote["ours"] for figure in study[0]["figures"] for quote in figure["paper_quotes"]}
    assert beside["C20", "6", "added by naive, 4 MB"] == pytest.approx(200, abs=5)
    assert beside["C20", "6", "added by CryptMPI, 4 MB"] == pytest.approx(50, abs=5)
    assert beside["N20", "3", "plain, 2 MB"] == pytest.approx(995, rel=0.02)  # made up: 10 us, and 1 us for 1,000 bytes
    assert beside["C20", "2", "plain, 1 MB"] == pytest.approx(0.99, rel=0.02)
    assert beside["N20", "2", "CryptoPP, 2 MB"] is None
    # Every quote that names a row of ours finds one, where the quick study has such sizes, loads and pairs.
    lacking = {key for key, ours in beside.items() if ours is None}
    named = {(quote["paper"], quote["figure"], quote["what"]) for quote in literature.PRINTED["quoted"] if "ours" in quote}
    assert all("8 pairs" in what or "% computing" in what for _, _, what in lacking & named), lacking & named


def test_each_way_is_predicted_by_the_module_that_seals_it(found, tmp_path):
    faster = [{**row, "way": f"ipsec-mb {row['cipher']}", "us": row["us"] / 2} for row in found
              if row["experiment"] == "cipher" and row["way"].startswith("openssl")]
    rows_of_two = [*found, *faster]
    assert models.modules(rows_of_two) == {"AES-128-GCM": "ipsec-mb", "AES-256-GCM": "ipsec-mb", "AEGIS-128X4": "aegis"}
    compared, why = models.errors(rows_of_two, tmp_path)
    assert why is None
    assert {(row["layer"], row["module"]) for row in compared if row["layer"]} == {("naive", "openssl"), ("mpi", "ipsec-mb"), ("channel", "ipsec-mb")}
    assert {row["module"] for row in compared if row["model"] == "max-rate"} == {"ipsec-mb", "aegis"}


def test_throughput_of_pairs_is_that_of_all_pairs(found):
    row = next(row for row in figures.of("pairs", INFINIBAND, sizes=(1 << 14,), ways=("plain",))(found) if row["pairs"] == 4)
    assert row["mb_s"] == pytest.approx(4 * (1 << 14) / row["us"], rel=1e-4)


def test_nas_is_compared_by_sums(tmp_path):
    ways = tuple(way for way in ways_of(SETTING) if way.name != "naive")
    taken = []
    for name, seconds in (("cg", 10.0), ("ep", 1.0)):
        part = Part("nas", ETHERNET, ways, "openmpi-4.1.4", 4, 2, (("nas", 0),), experiment="nas", options=(name,))
        one = Taken(tmp_path, part, {}, False)
        slower = {"plain": 1.0, "mpi AES-256-GCM": 1.1 if name == "cg" else 2.0, "channel AES-256-GCM": 1.0}
        one.samples.add({way.name: {f"nas-{name} 0": {"us": [seconds * slower[way.name] * 1e6] * 20}} for way in ways})
        taken.append(one)
    figure = next(figure for figure in figures.FIGURES if figure.figure == "table IV")
    built = figures.built(figure, [row for one in taken for row in rows.rows_of(one)])
    assert "+18.2 %" in built["text"] and "CG and EP" in built["text"]  # (11 + 2) / 11
    assert built["table"]["rows"][0] == ["plain", 10.0, 1.0]


def test_the_page_is_one_file_and_escapes_what_it_shows(study):
    text = page.page(*study)
    assert "&lt;something&gt;" in text and "<something>" not in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert text.count("<img ") == len(study[1])
    assert "THE MACHINE WAS BUSY" in text
    assert "Tuning for veth-10g under An MPI found: messages up to 64 KB whole, longer ones" in text


# In a browser

CHROMIUM = shutil.which("chromium")
# What is wrong with each picture, as the browser has it: broken, or of one colour.
LOOK = """<script>addEventListener("load", () => {
  const wrong = [...document.images].filter(image => {
    if (!image.complete || !image.naturalWidth) return true;
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const data = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return data.every(pixel => pixel === data[0]);
  }).map(image => image.alt);
  document.body.setAttribute("data-looked", JSON.stringify([document.images.length, wrong]));
})</script>"""

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make deps-study)")


def chromium(folder, *words):
    line = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", *words]
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def wrong_pictures(text, folder):
    """(how many pictures the browser sees, the titles of those that are broken or blank)."""
    path = folder / "index.html"
    path.write_text(text.replace("</body>", LOOK + "</body>"))
    dom = chromium(folder, "--virtual-time-budget=10000", "--dump-dom", path.as_uri())
    return json.loads(html.unescape(re.search(r'data-looked="([^"]*)"', dom).group(1)))


@in_a_browser
def test_the_browser_shows_every_picture(study, tmp_path):
    assert wrong_pictures(page.page(*study), tmp_path) == [len(study[1]), []]
    shot = tmp_path / "shot.png"
    chromium(tmp_path, "--hide-scrollbars", "--window-size=1200,3000", f"--screenshot={shot}", (tmp_path / "index.html").as_uri())
    from matplotlib import image
    pixels = image.imread(shot)
    assert pixels.shape[:2] == (3000, 1200)
    # Text and curves all the way down: no part of the height is one colour.
    assert all(band.std() > 0.01 for band in (pixels[top:top + 500] for top in range(0, 3000, 500)))


@in_a_browser
def test_a_broken_and_a_blank_picture_are_seen(study, tmp_path):
    from matplotlib import pyplot
    content, pictures = study
    names = list(pictures)[:2]
    figure = pyplot.figure()
    figure.savefig(tmp_path / "blank.png")
    pyplot.close(figure)
    spoilt = {**pictures, names[0]: b"\x89PNG but not really", names[1]: (tmp_path / "blank.png").read_bytes()}
    titles = {one["image"]: one["title"] for one in content["figures"] if one.get("image")}
    assert base64.b64encode(spoilt[names[0]]).decode() in page.page(content, spoilt)
    assert wrong_pictures(page.page(content, spoilt), tmp_path) == [len(pictures), [titles[name] for name in titles if name in names]]


# Drawing


def test_a_figure_without_its_columns_is_not_drawn_blank():
    with pytest.raises(ValueError, match="no row has"):
        drawing.png(figures.Drawing(y="speed"), [{"size": 1, "network": BARE, "way": "plain"}])


def test_a_table_with_two_rows_in_a_cell_is_none():
    row = {"size": 1, "way": "plain", "mb_s": 1.0}
    assert figures.own_table(figures.Drawing(), [row, row]) is None
    assert figures.own_table(figures.Drawing(), [row, {**row, "size": 2}])["columns"] == ["way", "1 B", "2 B"]


def test_networks_mpis_and_ranks_are_kept_apart():
    """Else their points would be joined to one line, or share a cell."""
    rows_of_two = [{"size": 1, "way": "plain", "mb_s": 1.0, "network": BARE, "mpi": "a", "ranks": ranks} for ranks in (4, 16)]
    assert [line[0] for line in figures.own_table(figures.Drawing(), rows_of_two)["rows"]] == ["plain, 4 ranks", "plain, 16 ranks"]
    assert [figures.varying(figures.Drawing(x="pairs"), rows_of_two)(row) for row in rows_of_two] == [[], []]


def test_parts_have_names_of_their_own():
    """Samples are kept by name."""
    for made in (parts.quick(SETTING), parts.full(replace(SETTING, full=True))):
        names = [part.name for part in made]
        assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
