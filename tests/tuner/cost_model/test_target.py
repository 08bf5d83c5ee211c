import numpy as np
import pytest

from autosched.tuner.cost_model import Clipping, clip_log_times, expected_improvement


def test_clipping_keeps_the_order_of_the_fast_ones() -> None:
    clipped = clip_log_times(np.log([1.0, 2.0, 3.0, 100.0, 1000.0]))
    assert clipped[0] < clipped[1] < clipped[2] <= clipped[3] == clipped[4]
    assert np.isfinite(clip_log_times(np.zeros(5))).all()


def test_expected_improvement() -> None:
    gain = expected_improvement(np.array([0.0, 0.0, 2.0, -1.0]), np.array([1.0, 0.0, 1.0, 0.0]), 0.0)
    assert gain[0] == pytest.approx(1 / np.sqrt(2 * np.pi))
    assert gain[1] == pytest.approx(0.0, abs=1e-8) and 0 < gain[2] < gain[0]
    assert gain[3] == pytest.approx(1.0)


def test_a_clipping_treats_others_as_its_own_times() -> None:
    log_s = np.array([0.0, 1.0, 2.0, 3.0, 100.0])
    clipping = Clipping.of(log_s, 0.5)
    assert np.allclose(clipping(log_s), clip_log_times(log_s, 0.5))
    assert clipping(np.array([-5.0]))[0] < clipping(log_s).min() and clipping(np.array([1e9]))[0] == clipping(log_s)[-1]
    assert (Clipping.of(np.zeros(3))(np.zeros(3)) == 0).all()
