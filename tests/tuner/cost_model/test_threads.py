import numpy as np
from threadpoolctl import threadpool_info

from autosched.tuner.cost_model import one_thread


def blas_threads() -> list[int]:
    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


def test_one_thread_inside_and_as_before_outside() -> None:
    np.ones((4, 4)) @ np.ones((4, 4))
    with one_thread():
        before = blas_threads()
        assert before and set(before) == {1}
    again = blas_threads()
    with one_thread():
        pass
    assert blas_threads() == again
