import numpy as np
import pytest

from autosched.tuner.cost_model import clip_log_times, expected_improvement


def test_clipping_keeps_the_order_of_the_fast_ones() -> None:
    clipped = clip_log_times(np.log([1.0, 2.0, 3.0, 100.0, 1000.0]))
    assert clipped[0] < clipped[1] < clipped[2] <= clipped[3] == clipped[4]
    assert np.isfinite(clip_log_times(np.zeros(5))).all()


def test_expected_improvement() -> None:
    gain = expected_improvement(np.array([0.0, 0.0, 2.0, -1.0]), np.array([1.0, 0.0, 1.0, 0.0]), 0.0)
    assert gain[0] == pytest.approx(1 / np.sqrt(2 * np.pi))
    assert gain[1] == pytest.approx(0.0, abs=1e-8) and 0 < gain[2] < gain[0]
    assert gain[3] == pytest.approx(1.0)
