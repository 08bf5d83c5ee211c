"""Tuning for a GPU, on the emulator's device: candidates are built, checked, timed and recorded under its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.cli import main
from autosched.driver import TuneOptions
from autosched.errors import DeviceError
from autosched.records import open_store
from autosched.script import from_source
from autosched.target import Target
from autosched.target.cuda_host import has_cuda_driver
from autosched.tuner.measure.local import LocalMeasurer
from autosched.tuner.measure.make_reference import FuncReferences

SCRIPT = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((6, 12), "float32"), w: R.Tensor((12, 7), "float32")) -> R.Tensor((6, 7), "float32"):
        with R.dataflow():
            out = R.nn.relu(R.matmul(x, w))
            R.output(out)
        return out
"""
TARGET = "nvidia/nvidia-h200"


class Emulated(FuncReferences):
    role = "tests.tuner.measure.emulated_role:EmulatedRole"


@pytest.mark.skipif(has_cuda_driver(), reason="a CUDA driver is here")
def test_without_a_device_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cuda:0 does not exist"):
        autosched.tune(from_source(SCRIPT), target=TARGET, records=str(tmp_path / "t.db"))


@pytest.mark.slow
def test_a_tuning_from_candidates_to_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    where, w = str(tmp_path / "t.db"), np.random.default_rng(0).normal(size=(12, 7)).astype("float32")

    def measurer(target: Any, options: Any) -> LocalMeasurer:
        return LocalMeasurer(target, options, references=Emulated())

    report = autosched.tune(
        from_source(SCRIPT), target=TARGET, params={"w": w}, records=where, measurer=measurer,
        options=TuneOptions(trials=3, seed=0),
    )  # fmt: skip
    assert report.n_trials == 3 and report.n_failed == 0
    with open_store(where) as store:
        records = list(store.records())
    assert {r.device for r in records} == {Target(TARGET).fingerprint()} and any(r.is_winner for r in records)
    assert all("resources" in r.measurement.how for r in records if not r.is_winner)
    built = autosched.build(from_source(SCRIPT), target=TARGET, params={"w": w}, records=where)
    assert "1 from records" in autosched.driver.build_report(built).summary
    assert main(["logs", "export", str(tmp_path / "logs"), "--package", "--db", where]) == 0
    assert [path.parent.name for path in tmp_path.glob("logs/*/*.jsonl")] == ["sm_90"]
    monkeypatch.setenv("TOPHUB_LOCATION", str(tmp_path / "logs"))
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "none.db"))
    for target in (TARGET, "nvidia/nvidia-h100"):
        report = autosched.driver.build_report(autosched.build(from_source(SCRIPT), target=target, params={"w": w}))
        assert [row["origin"] for row in report.rows] == ["shipped sm_90"], target
