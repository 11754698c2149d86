"""The study's headline table, from a study that is made up."""

import json
import sys

import pytest

from cryptmpi_tools.study import headline


def study(**times):
    rows = [{"benchmark": "ping-pong", "network": "veth-10g", "ranks": 2, "size": 1 << 20, "way": way, "us": us} for way, us in times.items()]
    figures = {(paper, figure) for paper, figure, *_ in headline.CASES}
    return {"figures": [{"paper": paper, "figure": figure, "rows": rows if (paper, figure) == ("N20", "3") else []} for paper, figure in figures]}


def test_ways_stand_beside_plain():
    table = headline.table(study(**{"plain": 100.0, "naive": 250.0, "mpi AES-256-GCM": 110.0}))
    assert table[2:] == ["| ping-pong | veth-10g | 2 | 1 MB | 100.0 us | x2.50 | x1.10 | – | – | – | `--only ping-pong` |"]


def test_plans_have_a_table_of_their_own():
    content = study(**{"plain": 100.0, "direct": 120.0, "pipelined": 105.0, "tuned": 101.0})
    figure = next(figure for figure in content["figures"] if figure["figure"] == "3")
    content["figures"].append({**figure, "paper": "C20", "figure": "plans"})
    table = headline.table(content, headline.PLAN_CASES, headline.PLANS)
    assert table[0] == "| measured | network | ranks | size | plain | naive | direct | pipelined | threaded | tuned | again |"
    assert table[2:] == ["| ping-pong | veth-10g | 2 | 1 MB | 100.0 us | – | x1.20 | x1.05 | – | x1.01 | `--only plans` |"]


def test_without_plain_there_is_no_line():
    assert len(headline.table(study(naive=250.0))) == 2


def test_a_folder_without_a_study_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["headline", str(tmp_path)])
    with pytest.raises(SystemExit, match="make study"):
        headline.main()
    (tmp_path / "study.json").write_text(json.dumps(study(plain=1.0)))
    headline.main()
    assert "1 MB" in capsys.readouterr().out
