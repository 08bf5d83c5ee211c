import pytest

from autosched.errors import InvalidValueError
from autosched.relax.pipeline import get_pipeline
from tests.relax.transform.graphs import assert_same_results, calls, small_network


def test_zero():
    module = small_network()
    result = get_pipeline()(module)
    assert_same_results(module, result)
    assert calls(result)[-1].startswith("fused_matmul")


def test_unknown_names():
    with pytest.raises(InvalidValueError, match=r"unknown pipeline 'one'; there are .*'zero'"):
        get_pipeline("one")
