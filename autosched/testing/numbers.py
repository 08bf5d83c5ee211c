"""TVM's checks of expressions and of gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosched.errors import InvalidTypeError
from autosched.runtime.bfloat16 import know_dtype
from autosched.tir import IntImm, Range, Var, all_of, any_of, as_int, const_int, logical_not
from autosched.tir.arith import Analyzer
from autosched.tir.functor import substitute

SAMPLES = 100  # of positions that `check_numerical_grads` tries of one input


def assert_prim_expr_equal(lhs: Any, rhs: Any) -> None:
    """Raises AssertionError where two expressions are not known to be equal."""
    difference = Analyzer().simplify(lhs - rhs)
    assert const_int(difference) == 0, f"{lhs} and {rhs} differ by {difference}"


def check_bool_expr_is_true(bool_expr: Any, vranges: Mapping[Var, Range], cond: Any = None) -> None:
    """Try a condition for all values of its variables, those where `cond` holds. Raises AssertionError naming values
    for which it is false."""
    claim = bool_expr if cond is None else any_of(logical_not(cond), all_of(bool_expr))
    analyzer = Analyzer()
    bounds = [(as_int(r.min), as_int(r.min) + as_int(r.extent)) for r in vranges.values()]
    for values in itertools.product(*(range(*bound) for bound in bounds)):
        given = {var: IntImm(value, var.dtype) for var, value in zip(vranges, values, strict=True)}
        result = analyzer.simplify(substitute(claim, given))
        named = ", ".join(f"{var} = {value}" for var, value in zip(vranges, values, strict=True))
        assert const_int(result), f"{bool_expr} is not true where {named}: {result}"


def check_numerical_grads(
    function: Callable[..., Any], input_values: Sequence[Any] | Mapping[str, Any],
    grad_values: Sequence[Any] | Mapping[str, Any], function_value: Any = None, delta: float = 1e-3,
    atol: float = 1e-2, rtol: float = 0.1,
) -> None:  # fmt: skip
    """Compare gradients of a function of arrays (its result is summed) with quotients of differences, at some places.

    Raises AssertionError where more than 1 in 10 of an input's places differ.
    """
    named = isinstance(input_values, Mapping)
    names = list(input_values) if named else list(range(len(input_values)))
    inputs = {name: np.array(input_values[name]) for name in names}  # type: ignore[index]
    rng = np.random.default_rng(0)

    def total() -> float:
        result = function(**inputs) if named else function(*inputs.values())  # type: ignore[arg-type, misc]
        return float(np.sum(result, dtype="float64"))

    if function_value is not None:
        assert np.isclose(total(), np.sum(function_value), rtol=rtol, atol=atol), "function_value is another value"
    for name, values in inputs.items():
        grads = np.asarray(grad_values[name])  # type: ignore[index]
        if grads.shape != values.shape:
            raise InvalidTypeError(f"the gradient of input {name} has shape {grads.shape}, the input {values.shape}")
        places = rng.permutation(values.size)[:SAMPLES]
        wrong = []
        for place in places:
            at = np.unravel_index(place, values.shape)
            kept = values[at]
            ends = []
            for step in (delta, -delta):
                values[at] = kept + step
                ends.append(total())
            values[at] = kept
            expected = (ends[0] - ends[1]) / (2 * delta)
            if abs(expected - grads[at]) > atol + rtol * abs(expected):
                wrong.append((at, expected, grads[at]))
        assert len(wrong) <= len(places) // 10, f"gradient of input {name}: (place, measured, given) {wrong[:5]}"


def np_dtype_from_str(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of a name."""
    know_dtype(dtype)
    return np.dtype(dtype)


def generate_random_array(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Random values of a dtype: small integers, or floats of [0, 1)."""
    kind = np_dtype_from_str(dtype)
    if dtype.startswith(("int", "uint")):
        return np.random.randint(0, 16, size=shape).astype(kind)
    return np.random.rand(*shape).astype(kind)
