"""The one-dimensional transforms against the definition of a filter, and the expressions against the matrices."""

import numpy as np
import pytest

from autosched import te
from autosched.templates.winograd_transform import (
    filter_of,
    make_filter,
    pick,
    transform_inputs,
    transform_outputs,
    transform_taps,
)
from autosched.tir.evaluate import evaluate


@pytest.mark.parametrize(("m", "taps"), [(2, 3), (4, 3), (3, 2), (5, 2)])
def test_matrices_make_a_filter(m, taps):
    f = filter_of(m, 1, taps)
    rng = np.random.default_rng(0)
    d, g = rng.standard_normal(f.inputs), rng.standard_normal(taps)
    y = f.output_matrix() @ ((f.weight_matrix() @ g) * (f.input_matrix() @ d))
    np.testing.assert_allclose(y, [d[i : i + taps] @ g for i in range(m)], atol=1e-12)


@pytest.mark.parametrize("m", [2, 4])
def test_even_inputs_of_stride_2_are_a_filter_and_odd_ones_share_a_tap(m):
    f = filter_of(m, 2)
    assert (f.inputs, f.rows) == (2 * m + 1, m + 2)
    d, y = te.placeholder((f.inputs,), "float64", name="d"), te.placeholder((f.inputs,), "float64", name="y")
    inputs = transform_inputs(f, [d[i].as_expr() for i in range(f.inputs)])
    outputs = transform_outputs(f, [y[i].as_expr() for i in range(f.inputs)])
    before = te.compute((f.inputs,), lambda i: pick(i, inputs), name="before")
    behind = te.compute((m,), lambda i: pick(i, outputs), name="behind")
    rng = np.random.default_rng(0)
    given, g = rng.standard_normal(f.inputs), rng.standard_normal(3)
    (v,) = evaluate(te.create_prim_func([d, before]), [given])
    u = f.weight_matrix() @ g
    products = v * u[np.minimum(np.arange(f.inputs), f.rows - 1)]
    (found,) = evaluate(te.create_prim_func([y, behind]), [products])
    np.testing.assert_allclose(found, [given[2 * i : 2 * i + 3] @ g for i in range(m)], atol=1e-12)


@pytest.mark.parametrize("transform", [transform_inputs, transform_outputs])
@pytest.mark.parametrize("m", [2, 4])
def test_expressions_are_the_matrices(m, transform):
    f = make_filter(m)
    matrix = f.input_matrix() if transform is transform_inputs else f.output_matrix()
    x = te.placeholder((f.inputs,), "float64", name="x")
    values = transform(f, [x[i].as_expr() for i in range(f.inputs)])
    y = te.compute((len(values),), lambda i: pick(i, values), name="y")
    given = np.random.default_rng(0).standard_normal(f.inputs)
    np.testing.assert_allclose(evaluate(te.create_prim_func([x, y]), [given])[0], matrix @ given, atol=1e-12)


def test_points_come_in_pairs():
    assert make_filter(4).points == (0.0, *(s * p for p in make_filter(4).pairs for s in (1, -1)))
    assert make_filter(2).inputs == 4


@pytest.mark.parametrize("by_sums", [False, True])
@pytest.mark.parametrize(("f", "n"), [(make_filter(2), 3), (make_filter(4), 3), (filter_of(2, 2).even, 2)])
def test_inputs_take_over_what_rows_of_weights_have_in_common(f, n, by_sums):
    d, g = te.placeholder((f.inputs,), "float64", name="d"), te.placeholder((n,), "float64", name="g")
    inputs = transform_inputs(f, [d[i].as_expr() for i in range(f.inputs)], is_scaled=True)
    taps = transform_taps(f, [g[i].as_expr() for i in range(n)], by_sums)
    products = te.compute((f.inputs,), lambda i: pick(i, inputs) * pick(i, taps), name="products")
    rng = np.random.default_rng(0)
    given, weights = rng.standard_normal(f.inputs), rng.standard_normal(n)
    (found,) = evaluate(te.create_prim_func([d, g, products]), [given, weights * f.tap_scale()[:n]])
    np.testing.assert_allclose(found, (f.input_matrix() @ given) * (f.weight_matrix() @ weights), atol=1e-12)
