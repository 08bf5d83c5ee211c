"""Rows that are made of lines without their records are those of the records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.errors import AutoschedError
from autosched.records import ReadReport, Record, from_document, open_store, write_lines
from autosched.records.canonical import MARKS, _config, _template, read_canonical, read_row
from autosched.records.jsonl import read_rows, row_of_line
from autosched.records.rows import to_row
from autosched.space import Config
from autosched.task import Measurement, Status
from autosched.testing.tasks import record, trial
from tests.records.test_canonical import PIECES, SAMPLES

TRIALS = [one for one in SAMPLES if not one.is_winner] + [
    dataclasses.replace(record(5), measurement=Measurement(Status.OK, (3e-3, 1e-3, 2e-3, 5e-3), "float64"), time=7.5),
    dataclasses.replace(record(6), is_default=True, config=Config("t", {"b": "x", "a": (1, -2), "c": True})),
    dataclasses.replace(record(7), measurement=trial(7, status=Status.TIMEOUT).measurement, config=Config("é", {})),
]


@pytest.mark.parametrize("one", TRIALS)
def test_a_trial_s_row(one: Record) -> None:
    row = read_row(one.line)
    assert row is not None and row == to_row(one) == row_of_line(one.line)
    assert row.columns(3, 4)[:4] == (one.uid, 3, 4, one.threads) and len(row.columns(3, 4)) == len(row) - 1


def test_winners_and_other_forms_are_left_to_the_thorough_way() -> None:
    winner = next(one for one in SAMPLES if one.is_winner)
    odd = json.dumps(json.loads(TRIALS[0].line), indent=None)
    for text in (winner.line, odd, "", "{}", TRIALS[0].line[:-1]):
        assert read_row(text) is None
    assert row_of_line(winner.line) == to_row(winner) and row_of_line(odd) == to_row(TRIALS[0])


WORDS = st.sampled_from(['"ok"', '"lost"', "[]", "[1.0]", "[0.0]", "[-1.0]", "true", "false", '"\\u0000"', "0", "1"])


@settings(max_examples=800, deadline=None)
@given(one=st.sampled_from(TRIALS), data=st.data())
def test_a_row_is_taken_where_the_quick_reader_takes_the_record(one: Record, data: st.DataObject) -> None:
    text = one.line
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):  # a whole part
            mark = data.draw(st.sampled_from(MARKS))
            start = text.find(mark) + len(mark)
            end = max(text.find(',"', start), start)
        else:
            start = data.draw(st.integers(0, len(text)))
            end = start + data.draw(st.integers(0, 6))
        text = text[:start] + data.draw(PIECES | WORDS | st.just("")) + text[end:]
    row, quick = read_row(text), read_canonical(text)
    if row is not None:
        assert row == to_row(from_document(json.loads(text)))
    if quick is not None and not quick.is_winner:
        assert row == to_row(quick)


VALUES = st.one_of(
    st.integers(), st.booleans(), st.text(max_size=5), st.lists(st.integers(-9, 99), max_size=3).map(tuple)
)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=8), st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.data())
def test_a_configuration_that_shows_at_once_is_canonical(template: str, knobs: dict[str, object], data: object) -> None:
    text = Config(template, knobs).key  # type: ignore[arg-type]
    for changed in (text, text.replace(",", ", ", 1), text.replace("1", "01", 1), text.replace("a", "b", 1)):
        try:
            wanted: str | None = _config(changed).template
        except (AutoschedError, ValueError):
            wanted = None
        try:
            found: str | None = _template(changed)
        except (AutoschedError, ValueError):
            found = None
        assert found == wanted


@pytest.mark.parametrize(
    "text",
    [
        '{"knobs":{"b":1,"a":2},"template":"t"}',  # not in order
        '{"knobs":{"a":1,"a":2},"template":"t"}',
        '{"knobs":{"a":-0},"template":"t"}',
        '{"knobs":{"a":1.0},"template":"t"}',
        '{"knobs":{"a":[1,true]},"template":"t"}',
        '{"knobs":{"a":null},"template":"t"}',
        '{"knobs":{"a":1},"template":"t","x":1}',
        '{"knobs":{"a":1,},"template":"t"}',
    ],
)
def test_no_canonical_configuration(text: str) -> None:
    with pytest.raises((AutoschedError, ValueError)):
        _template(text)


def test_an_import_makes_no_record_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "a.jsonl"
    write_lines(log, TRIALS)

    def refuse(text: str) -> Record:
        raise AssertionError(f"the thorough way for {text}")

    monkeypatch.setattr("autosched.records.jsonl.read_line", refuse)
    report = ReadReport("")
    assert [row.line for row in read_rows(log, report)] == [one.line for one in TRIALS] and report.read == len(TRIALS)
    with open_store(tmp_path / "a.db") as store:
        assert store.import_jsonl(log).added == len(TRIALS) and store.check() == []
        assert sorted(one.line for one in store.records()) == sorted(one.line for one in TRIALS)
