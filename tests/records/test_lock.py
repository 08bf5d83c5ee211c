"""Lock files: the same configurations, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records.lock import read_lock, write_lock
from autosched.space import Config
from autosched.testing.tasks import matmul_task

TASK = matmul_task()
CHOSEN = {TASK.key: (Config("matmul", {"rows": 6, "tiles": (2, 3)}), "user database")}


def test_a_lock_answers_and_nothing_else_does(tmp_path: Path) -> None:
    path = tmp_path / "m.lock"
    write_lock(path, CHOSEN, {"threads": 2})
    lock = read_lock(path)
    assert lock.best(TASK).config == CHOSEN[TASK.key][0] and lock.is_last
    with pytest.raises(RecordError, match="no configuration for matmul 3x.*logs lock"):
        lock.best(matmul_task(3))
    with pytest.raises(RecordError, match="rows=6 is no candidate"):
        lock.best(TASK, lambda config: "rows=6 is no candidate")


def test_equal_choices_are_equal_bytes(tmp_path: Path) -> None:
    other = {matmul_task(3).key: (Config("matmul", {"rows": 1}), "")}
    write_lock(tmp_path / "a", {**CHOSEN, **other}, {})
    write_lock(tmp_path / "b", {**other, **CHOSEN}, {})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "[" * 9999,
        '{"autosched_lock": 2}',
        '{"autosched_lock": 1}',
        '{"autosched_lock": 1, "kernels": 3}',
        '{"autosched_lock": 1, "kernels": [{}]}',
        '{"autosched_lock": 1, "kernels": [{"workload": {"op": "x"}, "config": {}}]}',
        '{"autosched_lock": 1, "kernels": [], "x": 1e999}',
    ],
)
def test_what_is_no_lock(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.lock"
    path.write_text(text)
    with pytest.raises(RecordError, match="lock"):
        read_lock(path)


def test_a_lock_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read"):
        read_lock(tmp_path / "none.lock")
    with pytest.raises(RecordError, match="cannot write"):
        write_lock(tmp_path / "no folder" / "m.lock", CHOSEN, {})


def test_a_template_of_another_version_is_an_error(tmp_path: Path) -> None:
    class Valid:
        versions = {"matmul": "2"}  # noqa: RUF012

        def __call__(self, config: Config) -> str:
            return ""

    for made, fits in (({"templates": {"matmul": "2"}}, True), ({"templates": {"matmul": "1"}}, False), ({}, False)):
        write_lock(tmp_path / "m.lock", CHOSEN, made)
        lock = read_lock(tmp_path / "m.lock")
        if fits:
            assert lock.best(TASK, Valid())
            continue
        with pytest.raises(RecordError, match="template 'matmul' was at version 1, now 2"):
            lock.best(TASK, Valid())
