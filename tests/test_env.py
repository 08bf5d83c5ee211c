"""The table of environment variables: types, defaults, messages, and the page that lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched import env
from autosched.env import SWITCHES, Kind, switch
from autosched.errors import InvalidValueError


def test_default_where_unset_or_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOSCHED_VERIFY", raising=False)
    assert env.AUTOSCHED_VERIFY.get() is True
    assert not env.AUTOSCHED_VERIFY.is_set()
    monkeypatch.setenv("AUTOSCHED_VERIFY", " ")
    assert env.AUTOSCHED_VERIFY.get() is True


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("AUTOSCHED_VERIFY", "off", False),
        ("AUTOSCHED_STRICT", "1", True),
        ("AUTOSCHED_CACHE_LIMIT_MB", "0", 0),
        ("AUTOSCHED_NUM_THREADS", "2", 2),
        ("AUTOSCHED_TUNE", "OFF", "off"),
        ("AUTOSCHED_HOST_CACHES", "32K, 1M,8388608", (32 << 10, 1 << 20, 8 << 20)),
        ("OMP_NUM_THREADS", "4,2", 4),
        ("AUTOSCHED_DB", "postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_text_becomes_a_value_when_asked(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(name, text)
    assert SWITCHES[name].get() == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AUTOSCHED_VERIFY", "maybe"),
        ("AUTOSCHED_NUM_THREADS", "-1"),
        ("AUTOSCHED_TUNE", "always"),
        ("AUTOSCHED_HOST_CACHES", "32K,0,8M"),
    ],
)
def test_nonsense_is_refused_with_the_name(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidValueError, match=name):
        SWITCHES[name].get()


def test_nonsense_in_a_foreign_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert env.OMP_NUM_THREADS.get() == 0


def test_a_name_is_declared_once() -> None:
    with pytest.raises(InvalidValueError, match="declared twice"):
        switch("AUTOSCHED_DB", "", "again", Kind.SETTING, parse=str, allowed="anything")


def test_child_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_DB", "here")
    child = env.child_environment({"AUTOSCHED_DB": None, "OMP_NUM_THREADS": "1"})
    assert "AUTOSCHED_DB" not in child
    assert child["OMP_NUM_THREADS"] == "1"
    assert "PATH" in child


def test_the_page_lists_every_variable_as_it_is_and_no_other() -> None:
    page = (Path(__file__).parents[1] / "docs" / "environment.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{entry.name}` | {entry.kind.value} | {entry.help} | {entry.allowed} | {entry.default!r} |"
        for entry in SWITCHES.values()
    ]


def test_every_variable_is_used_and_nothing_else_reads_the_environment() -> None:
    package = Path(env.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "env.py"}
    readers = [str(path) for path, text in texts.items() if "os.environ" in text or "getenv" in text]
    assert not readers
    unused = [name for name in SWITCHES if not any(f"{name}.get()" in text for text in texts.values())]
    assert unused == []
