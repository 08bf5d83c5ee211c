"""`autosched tune` for a range of shapes: how it is written, and that each shape has its share of the budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.cli.shape_options import points_of
from autosched.driver.options import TuneOptions
from autosched.driver.tune import shapes as tune_shapes
from autosched.driver.tune.report import TaskReport, TuneReport
from autosched.driver.tune.shapes import Rule
from autosched.errors import UsageError
from autosched.ir import IRModule
from tests.cli.models import dense_file, refuse
from tests.driver.programs import TUNED_HERE

Capture = pytest.CaptureFixture[str]


def test_one_shape_a_range_or_trtexec_s_three() -> None:
    assert points_of(None, None, None, None) == ()
    assert points_of({"x": (4, 16)}, None, None, None) == ({"x": (4, 16)},)
    three = points_of(None, {"x": (1, 16)}, {"x": (7, 16)}, {"x": (16, 16)})
    assert [point["x"][0] for point in three] == [1, 4, 7, 16]
    assert points_of({"x": (range(1, 17), 16)}, None, None, None) == tuple(p for p in three if p["x"][0] != 7)
    for wrong in (
        (None, {"x": (1,)}, None, None),
        (None, None, {"x": (1,)}, None),
        ({"x": (1,)}, {"x": (1,)}, None, {"x": (2,)}),
        (None, {"x": (1,)}, {"x": (3,)}, {"x": (2,)}),
    ):
        with pytest.raises(UsageError):
            points_of(*wrong)


def test_a_range_is_tuned_shape_by_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    model = dense_file(tmp_path / "m.onnx", batch="batch")
    tuned: list[int | None] = []
    settled: list[object] = []

    def tune(module: object, *, options: TuneOptions, **rest: object) -> TuneReport:
        tuned.append(options.trials)
        return TuneReport([TaskReport("dense", 1)], n_trials=2)

    def settle(load: object, points: object, **rest: object) -> tuple[Rule, ...]:
        settled.append(points)
        return (Rule("dense", (("dense 1x16", "rows=2", 0.5), ("dense 8x16", "rows=2", 0.6))),)

    monkeypatch.setattr("autosched.driver.tune.entry.tune", tune)
    monkeypatch.setattr(tune_shapes, "settle", settle)
    words = ["tune", str(model), "--db", str(tmp_path / "r.db")]
    assert main([*words, "--shapes", "x:1..8x16", "--trials", "6", "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert tuned == [2, 2, 2] and settled == [({"x": (1, 16)}, {"x": (4, 16)}, {"x": (8, 16)})]
    assert [row["model"] for row in json.loads(captured.out)["rows"]] == [f"{model} x:{n}x16" for n in (1, 4, 8)]
    assert "dense: 1 configuration for 2 shapes" in captured.err
    refuse(capsys, [*words, "--shapes", "x:1..8x16", "--tasks", "0"], "--tasks takes one shape")
    refuse(capsys, [*words, "--shapes", "x:8..1x16"], "counts backwards")
    refuse(capsys, [*words, "--min-shapes", "x:1x16"], "--min-shapes and --max-shapes belong together")
    refuse(capsys, ["run", str(model), "--shapes", "x:1..8x16"], "`autosched tune` and `build` take one")
    tuned.clear()
    fixed = dense_file(tmp_path / "fixed.onnx", batch=1)
    refuse(capsys, ["tune", str(fixed), "--db", str(tmp_path / "r.db"), "--shapes", "x:1..8x16"], "8x16 does not fit")
    assert not tuned  # not even at the shape that fits


def test_the_list_of_a_range_has_the_tasks_at_each_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    model = dense_file(tmp_path / "m.onnx", batch="batch")

    def list_tasks(module: IRModule, **rest: object) -> list[dict[str, object]]:
        size = int(module["main"].params[0].struct_info.shape[0])
        return [{"index": 0, "name": f"dense {size}", "templates": ["matmul"]}]

    monkeypatch.setattr("autosched.driver.list_tasks", list_tasks)
    words = ["tune", str(model), "--list", "-f", "json", "--shapes"]
    assert main([*words, "x:1..8x16"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["shapes"], row["name"]) for row in rows] == [(f"x:{n}x16", f"dense {n}") for n in (1, 4, 8)]
    assert main([*words, "x:3x16"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert "shapes" not in row and row["name"] == "dense 3"


@pytest.mark.slow
def test_a_range_from_end_to_end(tmp_path: Path, capsys: Capture) -> None:
    model, database = dense_file(tmp_path / "m.onnx", batch="batch"), str(tmp_path / "r.db")
    words = ["tune", str(model), "--db", database, "--threads", "1", "--verify", "task", "--trials", "9"]
    assert main([*words, "--min-shapes", "x:1x16", "--max-shapes", "x:16x16"]) == 0
    capsys.readouterr()
    for size, trust in ((4, TUNED_HERE), (9, ("near shape",))):
        line = ["build", str(model), "--db", database, "--threads", "1", "--shapes", f"x:{size}x16", "-f", "json"]
        assert main([*line, "-o", str(tmp_path / "m.asx")]) == 0
        (row,) = json.loads(capsys.readouterr().out)["kernels"]
        assert row["trust"] in trust
