"""The runner's files: references are kept for tasks that come again."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.tuner.measure import runner
from autosched.tuner.measure.base import MeasureOptions
from autosched.tuner.measure.runner import LocalRunner
from tests.tuner.measure.kernels import evaluate, matmul_task


def test_references_are_kept_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LocalRunner(MeasureOptions(), lambda: b"", tmp_path, references=runner.FuncReferences(evaluate))
    try:
        tasks = [matmul_task() for _ in range(20)]
        keys = [made.prepare(task) for task in tasks]
        assert [made.prepare(task) for task in tasks] == keys  # a tuning comes back to its tasks
        size = sum(path.stat().st_size for path in tmp_path.iterdir()) // len(tasks)
        monkeypatch.setattr(runner, "_MOST_STORED_BYTES", 18 * size)
        made.prepare(matmul_task())
        assert len(list(tmp_path.glob("*_out0.npy"))) == 18
        assert made.prepare(tasks[-1]) == keys[-1] and made.prepare(tasks[0]) != keys[0]
        monkeypatch.setattr(runner, "_MOST_STORED_BYTES", 1)  # a few are kept, whatever their size
        made.prepare(matmul_task())
        assert len(list(tmp_path.glob("*_out0.npy"))) == 16
    finally:
        made.close()
