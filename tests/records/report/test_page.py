"""The report: one file, no request, nothing from a record becomes markup."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.records import Record, open_store
from autosched.records.report import make_document, make_page
from autosched.records.report.columns import fitted, plain_json, pooled
from autosched.records.report.page import as_json
from autosched.space import Config
from autosched.task import Measurement, Status, Workload
from autosched.testing.tasks import matmul_task, record

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&{data}{script}"


def evil_record() -> Record:
    workload = Workload(EVIL, ("float32",), ((2, 3),), {}, EVIL)
    config = Config(EVIL, {EVIL: EVIL})
    device = dataclasses.replace(record(1).device, model_name=EVIL)
    good = Measurement(Status.OK, (1e-3,), how={"baseline_s": 2e-3})
    return Record(workload, config, good, device, session=EVIL, is_winner=True)


class Scripts(HTMLParser):
    """Counts elements and collects attributes that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action")]


def page_of(tmp_path: Path, *records: Record) -> str:
    with open_store(tmp_path / "r.db") as store:
        store.add(records)
        return make_page(make_document(store))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, evil_record(), record(1, default=True))
    parsed = Scripts()
    parsed.feed(page)
    assert parsed.tags.count("script") == 4 and "img" not in parsed.tags
    assert parsed.links == ["data:,", "#tasks", "#task"]
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    names = [task["name"] for task in json.loads(found[1])["tasks"]]
    assert any(name.startswith(EVIL) for name in names)
    assert "innerHTML" not in (Path(__file__).parents[3] / "autosched/records/report/page.js").read_text()


def test_the_page_forbids_requests_and_is_small(tmp_path: Path) -> None:
    records = [record(1, default=True)]
    records += [dataclasses.replace(record(i % 50 + 1), time=float(i)) for i in range(2000)]
    page = page_of(tmp_path, *records)
    assert "default-src 'none'" in page and len(page.encode()) < 5_000_000


@pytest.mark.slow
def test_the_page_of_ten_thousand_records_is_small(tmp_path: Path) -> None:
    from benchmarks.record_speed import made_up

    with open_store(tmp_path / "r.db") as store:
        store.add(list(made_up(10_000)))
        page = make_page(make_document(store))
    assert len(page.encode()) < 6_000_000


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "r.db", tmp_path / "r.html"
    with open_store(path) as store:
        store.add([record(1, default=True), evil_record()])
    assert main(["logs", "report", "-o", str(out), "--db", str(path)]) == 0
    assert "2 tasks" in capsys.readouterr().err and out.read_text().startswith("<!DOCTYPE html>")
    assert main(["logs", "report", "-o", str(out), "--db", str(path), "--no-roofline", "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["n_tasks"] == 2 and row["size_bytes"] == out.stat().st_size
    assert main(["logs", "report", "-o", str(tmp_path / "no" / "r.html"), "--db", str(path)]) == 2
    assert main(["logs", "report", "-o", str(path), "--db", str(path)]) == 2


def test_columns_are_shared_and_the_lightest_tasks_lose_their_trials_first(tmp_path: Path) -> None:
    with open_store(tmp_path / "r.db") as store:
        for m in (16, 32, 64):
            store.add([record(i, task=matmul_task(m=m)) for i in range(1, 30)])
        facts = pooled(make_document(store))
    heavy, _, light = facts["tasks"]
    assert heavy["trials"]["knobs"] == light["trials"]["knobs"] and len(facts["columns"]) < 8
    size = len(plain_json(facts))
    assert fitted(facts, size) == facts
    smaller = fitted(facts, size - 100)
    assert [bool(task["trials"]) for task in smaller["tasks"]] == [True, True, False]
    assert len(plain_json(smaller)) <= size - 100 and smaller["tasks"][2]["n"] == 29
    assert len(fitted(facts, 0)["tasks"][0]["trials"]["ms"]) == 29


def test_texts_of_records_are_shown_as_they_are_written_in_literals() -> None:
    text = as_json({"name": "conv\x1b[2J\u202e", "source": "a\nb"})
    assert json.loads(text) == {"name": "conv\\x1b[2J\\u202e", "source": "a\nb"}
