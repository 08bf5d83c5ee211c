"""`doctor` shows what holds, and says so when something is wrong."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import pytest

from autosched.cli import main, traps
from autosched.cli.doctor import PACKAGES
from autosched.target import threads

pytestmark = pytest.mark.host


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, object]]:
    assert main(["doctor", "-f", "json", *words]) == 0
    result: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out)
    return result


def test_report_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys)
    assert set(found) == {
        "autosched", "target", "cuda", "threads", "folders", "databases", "environment", "versions", "traps"
    }  # fmt: skip
    assert found["target"]["vector bits"] in (128, 256, 512)
    assert found["folders"]["kernel cache"] == os.environ["AUTOSCHED_CACHE_DIR"]
    assert str(found["folders"]["kernel cache size"]).endswith("of 1.0 GiB")
    assert set(found["versions"]) == set(PACKAGES)
    assert found["versions"]["numba"]
    assert "AUTOSCHED_CACHE_DIR" in found["environment"]


def test_a_gpu_as_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--target", "nvidia/nvidia-h200", "-f", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["target"]["architecture"] == "sm_90a" and report["target"]["SMs"] == 132
    assert "driver" in report["cuda"] and {"numba-cuda", "cuda-core"} <= report["cuda"].keys()


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


def test_what_is_shipped_for_other_machines_alone_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not any("come with the package" in text for text in traps.find_traps("llvm -mcpu=x86-64-v4"))  # turned off
    for family in ("x86-64-v3", "x86-64-v2"):
        (tmp_path / family).mkdir()
        (tmp_path / family / "matmul.jsonl").touch()
    monkeypatch.setenv("TOPHUB_LOCATION", str(tmp_path))
    found = report(capsys, "--target", "llvm -mcpu=x86-64-v4")
    assert found["folders"]["shipped for"] == "x86-64-v2, x86-64-v3"
    assert any("for x86-64-v2, x86-64-v3 alone, not for x86-64-v4" in text for text in found["traps"])
    assert not any("come with the package" in text for text in traps.find_traps("llvm -mcpu=haswell"))


def test_a_machine_that_is_taken_for_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTOSCHED_HOST_CPU", "AUTOSCHED_HOST_CORES", "AUTOSCHED_HOST_CACHES"):
        monkeypatch.delenv(name, raising=False)
    plain = report(capsys)
    assert not any("taken for another" in text for text in plain["traps"])
    monkeypatch.setenv("AUTOSCHED_HOST_CORES", "77")
    found = report(capsys)
    assert found["environment"]["AUTOSCHED_HOST_CORES"] == found["target"]["cores"] == 77
    assert found["target"]["detected"] == plain["target"]["detected"] != ""
    assert any("taken for another" in text for text in found["traps"])
    monkeypatch.setenv("AUTOSCHED_HOST_CPU", "x86-64-v9")
    assert "names no known CPU" in str(report(capsys)["target"]["error"])


def test_every_limit_on_threads_is_shown_and_the_least_decides(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = tmp_path / "cgroup"
    group.mkdir()
    (group / "cpu.max").write_text("150000 100000\n")
    own = tmp_path / "own"
    own.write_text("0::/\n")
    monkeypatch.setattr(threads, "cpu_quota", functools.partial(threads.cpu_quota, group, own))
    monkeypatch.setattr(threads, "count_affinity", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("AUTOSCHED_NUM_THREADS", "2")
    found = report(capsys)
    limits = {"affinity": 4, "container quota": 1.5, "OMP_NUM_THREADS": 3, "AUTOSCHED_NUM_THREADS": 2}
    assert {name: found["threads"][name] for name in limits} == limits
    assert (found["threads"]["used"], found["threads"]["decided by"]) == (1, "container quota")
    assert any("may use 1.5 CPUs" in text for text in found["traps"])
    (group / "cpu.max").write_text("max 100000\n")
    found = report(capsys)["threads"]
    assert (found["used"], found["decided by"], found["container quota"]) == (2, "AUTOSCHED_NUM_THREADS", None)
    found = report(capsys, "--threads", "8")["threads"]
    assert (found["used"], found["decided by"]) == (3, "OMP_NUM_THREADS")


def test_a_cache_that_cannot_be_written_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "file" / "cache"))
    found = report(capsys)
    assert found["folders"]["kernel cache"] == "memory"
    assert any("no folder for the kernel cache" in text for text in found["traps"])


def test_csv_and_a_wrong_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-f", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "section,name,value"
    assert any(line.startswith("threads,layer,") for line in lines)
    found = report(capsys, "--target", "bogus")
    assert "unknown target 'bogus'" in str(found["target"]["error"])
    assert not any("bogus" in text for text in found["traps"])
