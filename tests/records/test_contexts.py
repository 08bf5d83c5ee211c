from pathlib import Path

import pytest

from autosched.errors import InvalidTypeError, RecordError
from autosched.records import ApplyConfig, ApplyHistoryBest, DispatchContext, FallbackContext, open_store, write_lines
from autosched.space import Config
from autosched.testing.tasks import matmul_task, record


def test_the_root_is_the_fallback() -> None:
    assert isinstance(DispatchContext.current, FallbackContext)
    assert not DispatchContext.current.best(matmul_task())


def test_history_from_database_log_and_list(tmp_path: Path) -> None:
    task = matmul_task()
    with open_store(tmp_path / "r.db") as store:
        store.add([record(4, winner=True)])
    write_lines(tmp_path / "r.jsonl", [record(2, winner=True)])
    with ApplyHistoryBest(tmp_path / "r.db") as context:
        assert DispatchContext.current is context
        assert DispatchContext.current.best(task).config == record(4).config
    with ApplyHistoryBest(str(tmp_path / "r.jsonl")):
        assert DispatchContext.current.best(task).config == record(2).config
    with ApplyHistoryBest([str(tmp_path / "r.jsonl"), tmp_path / "r.db"]) as context:
        assert context.best(task).config == record(2).config
        context.update(task, Config("matmul", {"rows": 7}))
        assert context.best(task).config == Config("matmul", {"rows": 7})
    assert isinstance(DispatchContext.current, FallbackContext)


def test_nesting_asks_the_block_around(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [record(2, winner=True)])
    write_lines(tmp_path / "b.jsonl", [record(4, task=matmul_task(k=8), winner=True)])
    with ApplyHistoryBest(tmp_path / "a.jsonl"), ApplyHistoryBest(tmp_path / "b.jsonl"):
        assert DispatchContext.current.best(matmul_task()).config == record(2).config
        assert DispatchContext.current.best(matmul_task(k=8)).config == record(4).config
        assert DispatchContext.current.best(matmul_task(k=9)).reason == "no record"
        with FallbackContext():
            assert not DispatchContext.current.best(matmul_task())


def test_apply_config() -> None:
    config = Config("matmul", {"rows": 3})
    with ApplyConfig(config):
        assert DispatchContext.current.best(matmul_task()).config == config
        refused = DispatchContext.current.best(matmul_task(), lambda c: "not in the space")
        assert not refused and "not in the space" in refused.reason
    with ApplyConfig({matmul_task().key: config}):
        assert DispatchContext.current.best(matmul_task()).config == config
        assert not DispatchContext.current.best(matmul_task(k=8))


def test_an_exception_leaves_the_stack_clean() -> None:
    with pytest.raises(ValueError), ApplyConfig(Config("t")):
        raise ValueError
    assert isinstance(DispatchContext.current, FallbackContext)


def test_bad_sources_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no tuning database"):
        ApplyHistoryBest(tmp_path / "none.db")
    with pytest.raises(InvalidTypeError):
        ApplyHistoryBest(3)  # type: ignore[arg-type]
