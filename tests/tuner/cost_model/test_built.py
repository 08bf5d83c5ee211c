"""What is known of compiled kernels, and what a model makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen.cpu.instructions import COUNTS
from autosched.tuner.cost_model.built import BuiltModel, built_features, per_step
from autosched.tuner.cost_model.loop_features import FEATURES

TILE = dict.fromkeys(COUNTS, 0) | {"hot_fmas": 12, "hot_loads": 8, "hot_scalars": 3, "instructions": 100}


def columns(**changed: int) -> np.ndarray:
    counts = TILE | changed
    return per_step(np.array([counts[name] for name in COUNTS], dtype=float))


def test_features_need_both_loops_and_instructions() -> None:
    loops, counts = [1.0] * len(FEATURES), [1] * len(COUNTS)
    found = built_features({"loops": loops, "instructions": counts, "build_s": 0.3})
    assert found is not None and found.ndim == 1 and np.isfinite(found).all()
    assert built_features({"loops": loops}) is None and built_features({"instructions": counts}) is None
    assert built_features({"loops": loops[1:], "instructions": counts}) is None
    assert built_features({"loops": loops, "instructions": 3}) is None


def test_a_loop_that_is_unrolled_twice_does_the_same_for_each_vector() -> None:
    once, twice = columns(), columns(hot_fmas=24, hot_loads=16, hot_scalars=6)
    assert np.allclose(once[1:], twice[1:]) and twice[0] == once[0] + 1


def test_spills_take_cycles() -> None:
    once, spilled = columns(), columns(hot_spills=30)
    cycles = 6
    assert once[cycles] == pytest.approx(np.log2(1 + 6 / 12))  # 12 multiply-adds, two a cycle
    assert spilled[cycles] == pytest.approx(np.log2(1 + 19 / 12))  # 38 loads, two a cycle
    assert (spilled > once)[5]


def test_a_kernel_without_vectors_has_features() -> None:
    assert np.isfinite(columns(**dict.fromkeys(COUNTS, 0))).all()


def test_the_model_learns_what_matters_and_knows_how_well() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(120, 6)) * [1, 10, 0.1, 1, 1, 0]
    values = 0.5 * points[:, 0] - 0.03 * points[:, 1] + rng.normal(size=120) * 0.05
    model = BuiltModel()
    model.fit(points[:80], values[:80])
    mean, deviation = model.predict(points[80:])
    error = mean - values[80:]
    assert np.corrcoef(mean, values[80:])[0, 1] > 0.95
    assert 0.5 < np.mean((error / deviation) ** 2) < 2.0


def test_the_model_is_not_sure_far_from_what_it_has_seen() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 4))
    model = BuiltModel()
    model.fit(points, points[:, 0])
    (_, near), (_, far) = model.predict(points[:5]), model.predict(points[:5] + 30)
    assert far.min() > 3 * near.max() and far.min() > 0.8


def test_noise_is_not_taken_for_knowledge() -> None:
    rng = np.random.default_rng(0)
    model = BuiltModel()
    model.fit(rng.normal(size=(60, 4)), rng.normal(size=60))
    _, deviation = model.predict(rng.normal(size=(40, 4)))
    assert deviation.mean() > 0.8
