"""`autosched tune`: how it ends, what it says, and the options that are its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.records import open_store
from tests.cli.models import dense_file, refuse

pytestmark = pytest.mark.alone  # processes that are killed or timed

Capture = pytest.CaptureFixture[str]
SPACE = """
[space]
template = "matmul"
values = ["batch", "M", "N", "K", "lanes", "registers"]
[knobs.rows]
values = [1, 2, 4]
[knobs.vectors]
values = [1]
[knobs.order]
values = ["nm"]
[knobs.chunk]
values = [1]
[knobs.unroll_k]
values = [1, 2]
{more}
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A command line that tunes a small model."""
    return ["tune", str(dense_file(tmp_path / "m.onnx")), "--db", str(tmp_path / "r.db"), "--threads", "1"]


def test_json_is_lines_while_it_runs_and_one_document_at_the_end(words: list[str], capsys: Capture) -> None:
    assert main([*words, "--trials", "4", "-f", "json"]) == 0
    captured = capsys.readouterr()
    events = [json.loads(line) for line in captured.err.splitlines() if line.startswith("{")]
    assert [e["event"] for e in events if e["event"] != "progress"] == ["begin", "task"]
    document = json.loads(captured.out)
    assert document["n_trials"] == 4 and document["reason"].startswith("the trial budget is used up: ")
    assert document["model"]["before_s"] > 0 and document["model"]["text"].startswith("checked in the model: ")
    assert document["rows"][0]["config"].startswith("matmul: ") and document["rows"][0]["border"] is not None


def test_quiet_says_nothing_but_the_result(words: list[str], capsys: Capture) -> None:
    assert main([*words, "--trials", "2", "-q", "--verify", "task"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and captured.out.splitlines()[1].startswith("fused_matmul")


def test_the_end_says_why_and_what_more_would_buy(words: list[str], capsys: Capture) -> None:
    assert main([*words, "--until", "90%", "--trials", "400"]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("done: the expected further gain of the model is below 90 %: 32 more trials, about ")
    assert "would buy about" in last and "checked in the model: " in last and "saved to" in last


def test_spaces_of_one_s_own_are_searched_and_their_winners_are_used(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """`rows` 3 is no candidate there, and a value that the project's own list lacks is no reason to refuse a record."""
    (tmp_path / "spaces" / "cpu").mkdir(parents=True)
    has_prefetch = "prefetch" in (Path(__file__).parents[2] / "search_spaces/cpu/matmul.toml").read_text()
    more = "[knobs.prefetch]\nbool = true\n" if has_prefetch else ""
    (tmp_path / "spaces" / "cpu" / "matmul.toml").write_text(SPACE.format(more=more))
    assert main([*words, "--spaces", str(tmp_path / "spaces"), "--trials", "60", "--until", "0"]) == 0
    assert "done: every configuration of every task was tried" in capsys.readouterr().err
    with open_store(tmp_path / "r.db") as store:
        rows = {record.config["rows"] for record in store.records()}
        chunks = {record.config["chunk"] for record in store.records() if not record.is_default}
    assert rows <= {1, 2, 4} and chunks <= {1}
    refuse(capsys, [*words, "--spaces", str(tmp_path / "none")], "no such folder of search spaces")


@pytest.mark.parametrize(("option", "value"), [("--until", "half"), ("--cache", "hot"), ("--verify", "off")])
def test_refused_values(words: list[str], capsys: Capture, option: str, value: str) -> None:
    refuse(capsys, [*words, option, value], value)


def test_list_of_an_untuned_model_measures_defaults_and_stores_nothing(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert main([*words, "--list", "-f", "json"]) == 0
    (task,) = json.loads(capsys.readouterr().out)
    assert task["record"] == "none" and task["default_s"] > 0 and task["best_s"] is None
    assert task["share"] == 1.0 and 0 <= task["expected_gain"] <= 1
    assert not (tmp_path / "r.db").exists()
