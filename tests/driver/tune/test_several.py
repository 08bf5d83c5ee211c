"""A run over several models that was killed: which models had come to their end, and what was spent on each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched.driver.options import TuneOptions
from autosched.driver.tune.session import begin_session
from autosched.driver.tune.several import Part, Run, killed_run
from autosched.records import Record, open_store
from autosched.records.record import host_id
from autosched.testing.records import record

MODELS = ("a.onnx", "b.onnx", "c.onnx")
GONE = 4_190_000  # more than a process's number can be


def of(run: Run, model: str, number: int, spent_s: float, *, pid: int = GONE, **how: object) -> Record:
    """A record of a run's session for a model."""
    made = record(number)
    measurement = dataclasses.replace(made.measurement, how={"session_s": spent_s, **how})
    session = f"{run.session(model)}.{host_id()}.{pid}"
    return dataclasses.replace(made, measurement=measurement, session=session, time=float(number), is_winner=False)


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "r.db"


def store(where: Path, *records: Record) -> None:
    with open_store(where) as opened:
        opened.add(records)


def test_a_killed_run_says_what_it_was_at(where: Path) -> None:
    run = Run()
    store(
        where,
        of(run, "a.onnx", 1, 2.0),
        of(run, "a.onnx", 2, 3.5, interleaved=True, complete=True),
        of(run, "b.onnx", 3, 1.25),
        of(run, "b.onnx", 4, 1.5),
    )
    found = killed_run(where, MODELS)
    assert found is not None and found.name == run.name
    assert found.parts == {"a.onnx": Part(3.5, 1, True), "b.onnx": Part(1.5, 2)}
    assert found.part("c.onnx") == Part() and found.session("b.onnx") == run.session("b.onnx")


def test_a_run_that_ended_or_still_runs_or_is_none_is_not_gone_on_with(where: Path) -> None:
    import os

    assert killed_run(where, MODELS) is None and not where.exists()
    run = Run()
    store(where, *(of(run, model, i, 1.0, complete=True) for i, model in enumerate(MODELS, 1)))
    assert killed_run(where, MODELS) is None
    assert killed_run(where, (*MODELS, "d.onnx")) is not None  # a fourth one that it has not come to
    other = Run()
    store(where, of(other, "a.onnx", 5, 1.0, pid=os.getppid()))
    assert killed_run(where, MODELS) is None  # that process lives
    store(where, dataclasses.replace(of(run, "a.onnx", 6, 1.0), session=f"0123456789ab.{host_id()}.{GONE}"))
    assert killed_run(where, MODELS) is None  # a model was tuned alone since


def test_sessions_are_named_for_their_run() -> None:
    run = Run()
    session = begin_session([], TuneOptions(session=run.session("a.onnx")))
    assert session.name.startswith(f"{run.name}-") and run.session("a.onnx") != run.session("b.onnx")
    assert len(session.name) <= 64  # what a database's column holds
