"""What tuning has gained elsewhere is what is expected of kernels that nobody has tuned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched.records import LayeredReader, Record, open_reader, open_store
from autosched.records.gains import expected_gain, usual_gains
from autosched.target import Target
from autosched.task import Measurement, Status
from autosched.testing.tasks import AVX2, matmul_task, record


def won(gain: float, k: int, **device: object) -> Record:
    """A winner for another size, so many times faster than its default."""
    one = record(4, task=matmul_task(k=k), winner=True)
    measured = Measurement(Status.OK, (1e-3,), "a test", how={"baseline_s": gain * 1e-3})
    return dataclasses.replace(one, measurement=measured, device=dataclasses.replace(one.device, **device))


def test_the_median_of_an_operator_on_devices_like_this_one(tmp_path: Path) -> None:
    winners = [won(1.25, 8), won(2.0, 16), won(4.0, 24), won(100.0, 32, model_name="Foreign", l2_bytes=1)]
    with open_store(tmp_path / "r.db") as store:
        store.add([*winners, record(2)])
    reader = LayeredReader([open_reader(tmp_path / "r.db")])
    assert usual_gains(reader, Target(AVX2), ["matmul", "conv2d", "matmul"]) == {"matmul": pytest.approx(0.5)}
    assert usual_gains(LayeredReader([]), Target(AVX2), ["matmul"]) == {}


def test_what_a_model_may_gain_counts_kernels_by_their_arithmetic() -> None:
    rows = [
        {"workload": "matmul 8x8", "flops": 300, "trust": "default"},
        {"workload": "conv2d 1x8", "flops": 600, "trust": "verified here"},
        {"workload": "softmax 8", "flops": 100, "trust": "default"},
    ]
    assert expected_gain(rows, {"matmul": 0.5, "conv2d": 0.9}) == pytest.approx(0.15)
    assert expected_gain(rows, {"conv2d": 0.9}) is None and expected_gain([], {"matmul": 0.5}) is None
