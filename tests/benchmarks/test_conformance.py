"""`make conformance`: a sample of the onnx package's cases, as a user would run them, and the table made of them."""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.conformance import PASS, _compare, load_cases, run_case
from benchmarks.onnx_table import page

SAMPLE = (
    *("test_relu", "test_reduce_sum_empty_set", "test_nonzero_example", "test_sequence_map_identity_1_sequence"),
    *("test_string_concat", "test_cast_FLOAT_to_INT4", "test_loop16_seq_none", "test_mod_int64_fmod"),
    *("test_ai_onnx_ml_array_feature_extractor", "test_resize_upsample_sizes_nearest"),
    "test_optional_has_element_empty_optional_input",
)  # fmt: skip


# The package's modules that have them: it makes all cases of those that it imports, of all in five seconds.
MODULES = {
    *("relu", "reducesum", "nonzero", "sequence_map", "string_concat", "cast", "loop", "mod", "resize"),
    *("ai_onnx_ml", "array_feature_extractor", "optionalhaselement"),
}


@cache
def sample() -> list[Any]:
    listed = pkgutil.iter_modules
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pkgutil, "iter_modules", lambda *args: [m for m in listed(*args) if m.name in MODULES])
        return [case for case in load_cases("node") if case.name in SAMPLE]


def test_a_sample_of_the_cases() -> None:
    cases = sample()
    assert {case.name for case in cases} == set(SAMPLE)
    outcomes = [run_case(case) for case in cases]
    assert [(o.name, o.reason) for o in outcomes if o.status != PASS] == []
    text = page([o.__dict__ for o in outcomes], "0")
    assert f"Of the {len(SAMPLE)} cases of onnx 0" in text and "| Relu | 1, 6, 13, 14 | kernel | 1 of 1 |  |" in text


def test_what_differs_is_told() -> None:
    (case,) = [case for case in sample() if case.name == "test_relu"]
    x = np.array([1.0, 2.0], "f4")
    assert _compare([x], [x], case) == ""
    assert "differs by up to 1" in _compare([x], [x + 1], case)
    assert "instead of float64" in _compare([x], [x.astype("f8")], case)
    assert "outputs instead of" in _compare([x, x], [x], case)
