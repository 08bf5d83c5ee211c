"""The quick reader takes what the thorough one takes, with the same record, and nothing else."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.records import Record, from_document
from autosched.records.canonical import MARKS, read_canonical
from autosched.space import Config
from autosched.task import Measurement, Status
from autosched.testing.tasks import record, trial

HOW = {"threads": 2, "cache": "cold", "note": 'a "quoted", ,"device":{ part', "baseline_s": 2e-3}
ODD = {"rows": 8, "order": ',"error":', "tile": (1, 2), "fuse": True}


def samples() -> list[Record]:
    failed = dataclasses.replace(record(3), measurement=trial(3, status=Status.CRASH).measurement, host='h",é')
    winner = record(4, winner=True)
    measured = Measurement(Status.OK, (1e-3, 2.5e-7), "float64", how=HOW)
    return [record(1), failed, winner, dataclasses.replace(winner, measurement=measured, config=Config("t", ODD))]


SAMPLES = samples()


@pytest.mark.parametrize("one", SAMPLES)
def test_it_reads_what_was_written(one: Record) -> None:
    again = read_canonical(one.line)
    assert again is not None and again == one
    assert (again.line, again.uid, again.details) == (one.line, one.uid, dataclasses.replace(one).details)
    assert dataclasses.replace(again).line == one.line  # made anew from the fields


@pytest.mark.parametrize("one", SAMPLES)
def test_other_forms_are_left_to_the_thorough_reader(one: Record) -> None:
    document = json.loads(one.line)
    unsorted = json.dumps({"workload": document.pop("workload"), **document}, separators=(",", ":"))
    for text in (json.dumps(json.loads(one.line), indent=1), unsorted, one.line[:-1], one.line + " ", "", "{}"):
        assert read_canonical(text) is None


PIECES = st.sampled_from(
    [*MARKS, *'"{}[],:0-1.eE\\', "NaN", "Infinity", "null", "true", "1e999", '"\\ud800"', "\\u0000", '"":', "9" * 20]
)


@settings(max_examples=600, deadline=None)
@given(one=st.sampled_from(SAMPLES), data=st.data())
def test_it_takes_nothing_that_the_thorough_reader_refuses(one: Record, data: st.DataObject) -> None:
    text = one.line
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 6))
        text = text[:start] + data.draw(PIECES | st.just("")) + text[end:]
    quick = read_canonical(text)
    if quick is not None:
        assert quick == from_document(json.loads(text)) and dataclasses.replace(quick).line == text


def test_shared_parts_are_not_shared_objects() -> None:
    first, second = read_canonical(SAMPLES[3].line), read_canonical(SAMPLES[3].line)
    assert first is not None and second is not None
    assert first.measurement.how is not second.measurement.how
