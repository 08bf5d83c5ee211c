"""Every kernel of every benchmark model, as it is and as its template schedules it: printed, read, the same again."""

from __future__ import annotations

import pytest

from autosched.driver.build.graph import prepare
from autosched.frontend.onnx import from_onnx
from autosched.target import Target
from autosched.templates import templates_for
from autosched.tir import PrimFunc
from benchmarks.models import NAMES, get_model
from tests.script.parser.test_round_trip import assert_round_trip

QUICK = ("mlp",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NAMES])
def test_kernels(name: str) -> None:
    target = Target("cpu")
    module = prepare(from_onnx(get_model(name)), target, {})
    functions = [f for _, f in module.functions_items() if isinstance(f, PrimFunc)]
    assert functions
    for func in functions:
        assert_round_trip(func)
        for template, anchor in templates_for(func, target):
            assert_round_trip(template.apply(func, template.default(anchor, target), target).func)
