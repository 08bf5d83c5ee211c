"""`doctor` shows what holds, and says so when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosched.cli import main, traps
from autosched.cli.doctor import PACKAGES


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, object]]:
    assert main(["doctor", "-f", "json", *words]) == 0
    result: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return result


def test_report_has_every_section(capsys: pytest.CaptureFixture[str], private_folders: Path) -> None:
    found = report(capsys)
    assert set(found) == {
        "autosched", "target", "threads", "folders", "databases", "environment", "versions", "traps"
    }  # fmt: skip
    assert found["target"]["vector bits"] in (128, 256, 512)
    assert found["folders"]["kernel cache"] == str(private_folders / "cache")
    assert set(found["versions"]) == set(PACKAGES)
    assert found["versions"]["numba"]
    assert "AUTOSCHED_CACHE_DIR" in found["environment"]


def test_threads_name_their_source(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = report(capsys)["threads"]
    assert found["used"] == 1
    found = report(capsys, "--threads", "1")["threads"]
    assert found["used"] == 1
    assert found["--threads"] == 1


def test_a_bad_value_is_shown_and_ends_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_NUM_THREADS", "lots")
    found = report(capsys)
    assert "AUTOSCHED_NUM_THREADS" in str(found["threads"]["error"])
    assert "lots" in str(found["environment"]["AUTOSCHED_NUM_THREADS"])
    assert any("lots" in text for text in found["traps"])


def test_a_damaged_database_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.db"
    path.write_bytes(b"no database at all" * 100)
    assert str(path) in str(report(capsys, "--db", str(path))["databases"]["--db"])


def test_table_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "vector bits" in out
    assert "\x1b" not in out


def test_traps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "load 40.0" in traps._busy_machine(40.0)
    assert not traps._busy_machine(0.0)
    governor = tmp_path / "scaling_governor"
    governor.write_text("powersave\n")
    assert "powersave" in traps._power_saving(governor)
    assert not traps._power_saving(tmp_path / "none")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "512")
    monkeypatch.setenv("AUTOSCHED_TUNE", "off")
    text = "\n".join(traps.find_traps("llvm -mcpu=x86-64"))
    for part in ("no AVX2", "NUMBA_DISABLE_JIT", "OMP_NUM_THREADS=512", "AUTOSCHED_TUNE=off"):
        assert part in text
