import dataclasses
import json

import pytest

from autosched.errors import RecordError
from autosched.records import Record, from_document
from autosched.task import Status
from autosched.testing.tasks import record, trial


def test_round_trip_keeps_every_field() -> None:
    one = record(3, winner=True, default=True)
    again = from_document(json.loads(one.line))
    assert again.line == one.line and again.uid == one.uid and again.workload == one.workload
    assert one.versions["numba"] and one.host and one.device == again.device


def test_a_winner_needs_a_time() -> None:
    one = record(1)
    with pytest.raises(RecordError, match="winner"):
        Record(one.workload, one.config, trial(1, status=Status.CRASH).measurement, one.device, is_winner=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 2}, "schema version 2"),
        ({"schema": None}, "no schema version"),
        ({"status": "fine"}, "fine"),
        ({"status": "crash"}, "has no time"),
        ({"times_s": ["1e-3"]}, "else than numbers"),
        ({"times_s": [-1.0]}, "positive"),
        ({"threads": "2"}, "'threads' is a str"),
        ({"threads": True}, "'threads' is a bool"),
        ({"threads": 0}, "0 threads"),
        ({"workload": {"op": "x"}}, "workload needs"),
        ({"config": {"template": "x"}}, "needs 'template'"),
        ({"device": {}}, "device"),
        ({"device": []}, "'device' is a list"),
        ({"is_winner": 1}, "'is_winner' is a int"),
        ({"versions": None}, "'versions' is a NoneType"),
    ],
)
def test_refuses_malformed_documents(change: dict[str, object], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        from_document({**record(1).to_document(), **change})


@pytest.mark.parametrize("missing", ["workload", "config", "status", "device"])
def test_refuses_missing_fields(missing: str) -> None:
    document = record(1).to_document()
    del document[missing]
    with pytest.raises(RecordError, match=missing):
        from_document(document)
    with pytest.raises(RecordError, match="not a JSON object"):
        from_document([document])


def test_unknown_fields_are_ignored() -> None:
    assert from_document({**record(1).to_document(), "energy_j": 3}).config == record(1).config


def test_a_line_is_that_of_the_fields_even_where_the_document_says_more() -> None:
    """Parts with fields that are not kept, while their short forms stand elsewhere in the text."""
    document = record(1).to_document()
    copies = {name: document[name] for name in ("device", "config", "workload")}
    longer = {name: {**part, "more": 1} for name, part in copies.items()}
    for change in (longer, {"time": 3}, {"extra": copies}, {"how": copies}):
        found = from_document({**document, "how": copies, **change})
        assert found.line == dataclasses.replace(found).line
        assert from_document(json.loads(found.line)).uid == found.uid
