"""Attention: the keys of a head are turned in squares of vectors."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.ir.node import preorder
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir.expr import const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.stmt import BlockRealize, For
from tests.templates.cases import attention

TARGET, HOST = Target("llvm -mcpu=x86-64-v4"), Target("cpu")


@pytest.mark.parametrize("keys", [64, 65])  # panels that are whole, and a last one that is filled up
@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_keys_are_turned_in_squares(keys, layout):
    func = attention(32, keys, 32, False, (layout,) * 4)
    nodes = list(preorder(apply_config(func, default_config(func, TARGET), TARGET).func.body))
    place = next(n for n, x in enumerate(nodes) if isinstance(x, BlockRealize) and x.block.name_hint == "k_global")
    across, along = [x for x in nodes[:place] if isinstance(x, For)][-2:]
    assert [(x.kind.name, const_int(x.extent)) for x in (across, along)] == [("UNROLLED", 16), ("VECTORIZED", 16)]
    realize = nodes[place]
    assert const_int(realize.predicate) == 1
    values = {iv.var: x for iv, x in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    column = substitute(realize.block.body.indices[-1], values)
    assert across.loop_var in free_vars(column) and along.loop_var not in free_vars(column)


@pytest.mark.parametrize(
    ("queries", "size", "layout", "causal", "copied"),
    [
        (160, 20, "BSHD", None, True),
        (160, 32, "BSHD", "TopLeft", True),
        (160, 20, "BHSD", None, False),
        (64, 20, "BSHD", None, False),
    ],
)
def test_values_whose_rows_lie_apart_are_copied_for_many_queries(queries, size, layout, causal, copied):
    func = attention(queries, 33, size, False, (layout,) * 4, causal)
    config = default_config(func, HOST)
    scheduled = apply_config(func, Config(config.template, {**config.knobs, "parts": 1}), HOST).func
    assert ("v_global" in str(scheduled)) is copied
    rng = np.random.default_rng(0)
    q, k, v, out = (rng.standard_normal(b.const_shape(), np.float32) for b in func.buffers)
    kernel = compile_func(scheduled, HOST, name="k").kernel
    Module({"k": kernel}, native_object(), threads=2)(q, k, v, out)
    q, k, v, found = (x if layout == "BHSD" else x.swapaxes(1, 2) for x in (q, k, v, out))
    scores = np.exp(q @ k.swapaxes(2, 3) * np.float32(size**-0.5))
    scores = scores if causal is None else np.tril(scores)
    np.testing.assert_allclose(found, scores / scores.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "cores", "expected"),
    [(3, 197, 197, 2, 2), (1, 3136, 49, 2, 2), (2, 784, 49, 2, 1), (12, 197, 197, 2, 1), (2, 784, 49, 16, 8)],
)
def test_heads_are_divided_so_that_threads_end_together(heads, queries, keys, cores, expected):
    q, k = (te.placeholder((1, heads, n, 64), name=name) for n, name in ((queries, "q"), (keys, "k")))
    v = te.placeholder((1, heads, keys, 64), name="v")
    func = te.create_prim_func([q, k, v, topi.attention(q, k, v, None, 0.125, layouts=("BHSD",) * 4)])
    target = Target(f"llvm -mcpu=emeraldrapids -num-cores={cores}")
    assert default_config(func, target)["parts"] == expected


@pytest.mark.parametrize(("mcpu", "size", "expected"), [("znver4", 64, 4), ("znver4", 24, 2), ("emeraldrapids", 64, 2)])
def test_whole_values_are_read_at_once_where_vectors_go_in_halves(mcpu, size, expected):
    func = attention(128, 128, size, False, ("BHSD",) * 4)
    config = default_config(func, Target(f"llvm -mcpu={mcpu} -num-cores=2"))
    assert config["value_vectors"] == expected
    assert (config["rows"] <= 6) is (expected == 4)
