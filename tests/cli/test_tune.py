"""`autosched tune`: how it ends, what it says, and the options that are its own."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.cli.tune_end import report_table, say_end
from autosched.driver.options import TuneOptions
from autosched.driver.tune import several
from autosched.driver.tune.report import TaskReport, TuneReport
from autosched.driver.tune.several import Part, Run
from autosched.records import open_store
from tests.cli.models import dense_file, refuse

pytestmark = pytest.mark.early

Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


SPACE = """
[space]
template = "matmul"
values = ["batch", "M", "N", "K", "lanes", "registers"]
[knobs.rows]
values = [1, 2, 4]
[knobs.vectors]
values = [1]
[knobs.streams]
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
    first, *others = [e["event"] for e in events if e["event"] != "progress"]
    assert first == "begin" and set(others) == {"task"}, "once, and again where the model's check says otherwise"
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


def test_flags_become_options(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[TuneOptions] = []

    def tune(module: object, *, options: TuneOptions, **rest: object) -> TuneReport:
        given.append(options)
        return TuneReport()

    monkeypatch.setattr("autosched.driver.tune.entry.tune", tune)
    assert main([*words, "--cold", "--fresh", "--until", "2%", "--cache", "warm", "--budget", "10m"]) == 0
    assert main([*words, "--tasks", "0", "--seed", "7", "--strategy", "gp", "--precision", "bf16"]) == 0
    first, second = given
    assert (first.hints, first.fresh, first.until, first.cache, first.budget_s) == (False, True, 0.02, "warm", 600.0)
    assert (second.hints, second.fresh, second.until, second.cache, second.budget_s) == (
        True,
        False,
        0.01,
        "auto",
        None,
    )
    assert (first.precision, second.precision) == (None, "bf16")
    assert (second.tasks, second.seed, second.strategy, second.threads) == ((0,), 7, "gp", 1)


def test_borders_are_told_at_the_end(capsys: Capture) -> None:
    border = ("matmul: chunk=64 is the largest candidate",)
    report = TuneReport([TaskReport("a", 1, border=border), TaskReport("b", 1, border=border)], reason="time is up")
    say_end(report, quiet=False)
    said = capsys.readouterr().err
    assert "on the border of its space: matmul: chunk=64 is the largest candidate of 2 tasks; a longer list" in said


def test_an_end_before_the_first_measurement_promises_nothing(capsys: Capture) -> None:
    report = TuneReport([TaskReport("a", 1)], reason="the time budget is used up", database="r.db")
    say_end(report, quiet=False)
    said = capsys.readouterr().err
    assert "the time budget is used up; it ended before anything was measured" in said and "saved" not in said


def test_all_models_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """One command for a new machine: the budget is shared, and one database has it all."""
    dense_file(tmp_path / "a.onnx")
    dense_file(tmp_path / "d.onnx", batch="batch", op="Sigmoid")
    models = '["a.onnx", {model = "d.onnx", shapes = "x:3x16"}]'
    (tmp_path / "autosched.toml").write_text(f"[tune]\nmodels = {models}\n")
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    monkeypatch.delenv("AUTOSCHED_DB")
    words = ["tune", "--all", "--threads", "1", "--verify", "task"]
    assert main([*words, "--trials", "5", "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [m["n_trials"] for m in document["models"]] == [3, 2]
    assert [Path(row["model"]).name for row in document["rows"]] == ["a.onnx", "d.onnx x:3x16"]
    with open_store(tmp_path / "autosched.db") as store:
        assert {record.workload.shapes[0][0] for record in store.records() if record.is_winner} == {4, 3}
    for more in (["x.onnx"], ["--list"], ["--tasks", "0"], ["--shapes", "x:3x16"]):
        refuse(capsys, [*words, *more], "--all exclude each other")
    refuse(capsys, ["tune"], "Missing argument 'MODEL'", "--all")
    for text, said in (
        ("", "names no models"),
        ("[tune]\nmodels = [3]", "a model is a text"),
        ("[tune", "cannot read"),
        ('[tune]\nmodels = ["none.onnx"]', "none.onnx"),
        ('[tune]\nmodels = [{model = "d.onnx", shapes = "x"}]', "shapes of d.onnx"),
    ):
        (tmp_path / "autosched.toml").write_text(text)
        refuse(capsys, words, said)


def test_a_model_that_fails_stops_the_others_only_where_nobody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    dense_file(tmp_path / "a.onnx")
    (tmp_path / "bad.onnx").write_text("no model")
    (tmp_path / "autosched.toml").write_text('[tune]\nmodels = ["bad.onnx", "none.onnx", "a.onnx"]\n')
    monkeypatch.chdir(tmp_path)
    tuned: list[int | None] = []

    def tune(module: object, *, options: TuneOptions, **rest: object) -> TuneReport:
        tuned.append(options.trials)
        return TuneReport(n_trials=3)

    monkeypatch.setattr("autosched.driver.tune.entry.tune", tune)
    words = ["tune", "--all", "--trials", "9", "-q"]
    refuse(capsys, words, "none.onnx")  # told before hours are spent on the others
    assert not tuned and main([*words, "--keep-going"]) == 1
    said = capsys.readouterr().err
    assert tuned == [9] and "bad.onnx is left out: " in said and "none.onnx is left out: " in said
    (tmp_path / "autosched.toml").write_text('[tune]\nmodels = ["a.onnx", "bad.onnx"]\n')
    assert main(words) == 2 and tuned == [9, 5]
    refuse(capsys, ["tune", "a.onnx", "--keep-going"], "--keep-going does nothing without --all")


def test_a_run_over_models_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """What had come to its end is left out and has used its part of the budget; --fresh begins anew."""
    for name in "abc":
        dense_file(tmp_path / f"{name}.onnx")
    (tmp_path / "autosched.toml").write_text('[tune]\nmodels = ["a.onnx", "b.onnx", "c.onnx"]\n')
    monkeypatch.chdir(tmp_path)
    parts = {str(tmp_path / "a.onnx"): Part(3.0, 4, True), str(tmp_path / "b.onnx"): Part(1.0, 2)}
    monkeypatch.setattr(several, "killed_run", lambda where, models: Run("all-abcdef", parts))
    tuned: list[TuneOptions] = []

    def tune(module: object, *, options: TuneOptions, **rest: object) -> TuneReport:
        tuned.append(options)
        return TuneReport(n_trials=1)

    monkeypatch.setattr("autosched.driver.tune.entry.tune", tune)
    words = ["tune", "--all", "--trials", "12", "--budget", "60s"]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert f"{tmp_path / 'a.onnx'} had come to its end and is left out, 2 to go; --fresh tunes all" in said
    assert [part.trials for part in tuned] == [4, 5]  # of 12 - 4, half; then 12 - 4 - (2 + 1)
    assert [round(part.budget_s or 0) for part in tuned] == [28, 56]  # of 60 s - 3 s, half; then without b's second
    assert all(part.session.startswith("all-abcdef-") for part in tuned)
    assert main([*words, "--fresh"]) == 0 and [part.trials for part in tuned[2:]] == [4, 6, 10]


@pytest.mark.parametrize(
    ("option", "value"), [("--until", "half"), ("--cache", "hot"), ("--verify", "off"), ("--precision", "bf17")]
)
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


def test_the_table_at_the_end_begins_with_the_heaviest_task() -> None:
    report = TuneReport([TaskReport(name, 1) for name in "abc"])
    for task, share in zip(report.tasks, (0.2, 0.5, 0.3), strict=True):
        task.share = share
    assert [row["name"] for row in report_table(report, "table").rows] == ["b", "c", "a"]
    assert [row["name"] for row in report_table(report, "json").rows] == ["a", "b", "c"], "as --tasks counts them"


def test_a_terminal_has_the_table_once_and_no_line_breaks_a_word(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setenv("COLUMNS", "60")
    assert main([*words, "--trials", "2", "--verify", "task"]) == 0
    assert out.getvalue() == "", "the live display has left it"
    end = err.getvalue().rpartition("\x1b[J")[2].replace("\x1b[?25h", "")
    assert end.count("best ms") == 1 and end.count("gain to come") == 1 and "done: " in end
    assert not [line for line in end.splitlines() if len(line) > 60 and " " in line]
