"""Operators of `com.microsoft`, against ONNX Runtime, whose they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched import relax
from autosched.errors import ImportModelError, WrongInputError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable
from tests.spread import cover

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def model(op: str, inputs: list[Any], outputs: int, **attrs: Any) -> onnx.ModelProto:
    """Floats are inputs, all other arrays initialisers, None left out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = {n: x for n, x in zip(names, inputs) if n}
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{i}" for i in range(outputs)], domain="com.microsoft", name="n", **attrs)],
        "g",
        [helper.make_tensor_value_info(n, 1, x.shape) for n, x in given.items() if x.dtype == np.float32],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
        [numpy_helper.from_array(x, n) for n, x in given.items() if x.dtype != np.float32],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(op: str, inputs: list[Any], outputs: int = 1, tolerance: float = 1e-4, **attrs: Any) -> None:
    import onnxruntime

    made = model(op, inputs, outputs, **attrs)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and x.dtype == np.float32}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, feeds)
    got = relax.evaluate(from_onnx(made), feeds)
    for g, w in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), rtol=tolerance, atol=tolerance)


def constant(op: str, inputs: list[Any], **attrs: Any) -> onnx.ModelProto:
    """A model of inputs that are all known."""
    made = model(op, inputs, 1, **attrs)
    names = {t.name for t in made.graph.initializer}
    floats = [v.name for v in made.graph.input]
    made.graph.initializer.extend(numpy_helper.from_array(inputs[int(n[1:])], n) for n in floats if n not in names)
    del made.graph.input[:]
    return made


def check_constant(op: str, inputs: list[Any], tolerance: float = 1e-4, **attrs: Any) -> None:
    """As `check`, for inputs that are all known: what the importer computes of them."""
    import onnxruntime

    made = constant(op, inputs, **attrs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, {})
    found = relax.evaluate(from_onnx(made), {})
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=tolerance, atol=tolerance)


def refuse(part: str, op: str, inputs: list[Any], outputs: int = 1, **attrs: Any) -> None:
    with pytest.raises(ImportModelError, match=part):
        from_onnx(model(op, inputs, outputs, **attrs))


def test_activations() -> None:
    x, bias = draw(2, 3, 8), draw(8)
    check("Gelu", [x])
    check("FastGelu", [x])
    check("FastGelu", [x, bias])
    check("BiasGelu", [x, bias])
    check("QuickGelu", [x], alpha=1.5)


def test_products() -> None:
    check("FusedMatMul", [draw(2, 4, 3), draw(2, 5, 4)], transA=1, transB=1, alpha=0.5)
    check("FusedMatMul", [draw(4, 2, 3), draw(4, 2, 5)], transA=1, transBatchA=1, transBatchB=1)
    check("FusedMatMul", [draw(2, 3, 5, 4), draw(5, 2, 3, 7)], transBatchB=1, transA=1)
    x, w = draw(1, 3, 6, 6), draw(4, 3, 3, 3)
    check("FusedConv", [x, w, draw(4)], activation="Relu", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    check("FusedConv", [x, w], activation="LeakyRelu", activation_params=[0.2], kernel_shape=[3, 3])
    a, b = draw(3, 4), draw(5, 4)
    check("FusedGemm", [a, b, draw(5)], activation="Relu", transB=1, alpha=0.5, beta=2.0)
    check("FusedGemm", [a, b], activation="LeakyRelu", activation_alpha=0.2, transB=1)
    for kind, own in {
        "Elu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "Selu": {"alpha": 1.5, "gamma": 1.1},
        "ThresholdedRelu": {"alpha": 0.3}, "Softplus": {}, "Softsign": {},
    }.items():  # fmt: skip
        check("FusedGemm", [a, b], transB=1, activation=kind, **{f"activation_{n}": v for n, v in own.items()})
    check("FusedConv", [x, w], activation="HardSigmoid", activation_params=[0.3, 0.4], kernel_shape=[3, 3])
    refuse("'Erf'", "FusedGemm", [a, b], activation="Erf", transB=1)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_weights_in_blocks(bits: int, zeros: bool) -> None:
    k, n, block = 48, 5, 16
    packed = RNG.integers(0, 256, (n, k // block, block * bits // 8)).astype("u1")
    points = RNG.integers(0, 256, (n * -(-(k // block) * bits // 8),)).astype("u1") if zeros else None
    made = model("MatMulNBits", [draw(3, k), packed, None, points], 1, K=k, N=n, bits=bits, block_size=block)
    scales = (RNG.random((n * (k // block),)) * 0.1).astype("f4")
    made.graph.initializer.append(numpy_helper.from_array(scales, "x2"))
    made.graph.node[0].input[2] = "x2"
    import onnxruntime

    x = draw(3, k)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_allclose(relax.evaluate(from_onnx(made), {"x0": x}), wanted, rtol=1e-3, atol=1e-3)


def packed_product(k: int, n: int, block: int, scale: float = 0.1, bits: int = 4) -> onnx.ModelProto:
    blocks = -(-k // block)
    packed = RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype("u1")
    made = model("MatMulNBits", [draw(3, k), packed], 1, K=k, N=n, bits=bits, block_size=block)
    made.graph.initializer.append(numpy_helper.from_array(np.full(n * blocks, scale, "f4"), "x2"))
    made.graph.node[0].input.append("x2")
    return made


def test_packed_weights_stay_packed() -> None:
    made = from_onnx(packed_product(64, 5, 32))
    (call,) = (b.value for b in made["main"].bindings() if isinstance(b.value, relax.Call))
    assert call.op_name == "relax.nn.matmul_nbits" and call.args[1].data.nbytes == 5 * 64 // 2


@pytest.mark.parametrize(("level", "bits"), [(None, 32), (0, 32), (1, 32), (3, 32), (4, 8)])
def test_what_activations_may_be_rounded_to(level: int | None, bits: int) -> None:
    made = packed_product(64, 5, 32)
    if level is not None:
        made.graph.node[0].attribute.append(onnx.helper.make_attribute("accuracy_level", level))
    (call,) = (b.value for b in from_onnx(made)["main"].bindings() if isinstance(b.value, relax.Call))
    assert call.attrs["activation_bits"] == bits


def test_blocks_that_do_not_divide_the_depth_become_floats() -> None:
    import onnxruntime

    made, x = packed_product(40, 5, 32), draw(3, 40)
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_allclose(relax.evaluate(from_onnx(made), {"x0": x}), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_that_is_no_number_is_refused(scale: float) -> None:
    with pytest.raises(ImportModelError, match=r"a scale is not finite.*node 'n'"):
        from_onnx(packed_product(64, 5, 32, scale))


def test_packed_weights_of_another_size_are_refused() -> None:
    made = packed_product(64, 5, 32)
    next(a for a in made.graph.node[0].attribute if a.name == "N").i = 6
    with pytest.raises(ImportModelError, match=r"160 weights where the attributes ask for 192"):
        from_onnx(made)


def test_norms() -> None:
    x, skip, gamma, beta, bias = draw(2, 3, 8), draw(2, 3, 8), draw(8), draw(8), draw(8)
    check("SkipLayerNormalization", [x, skip, gamma, beta, bias], epsilon=1e-5)
    check("SkipLayerNormalization", [x, skip, gamma], epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-5)
    ids, kinds = RNG.integers(0, 11, (2, 4)).astype("i4"), RNG.integers(0, 2, (2, 4)).astype("i4")
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], "i4")
    tables = [draw(11, 8), draw(6, 8), draw(2, 8)]
    check("EmbedLayerNormalization", [ids, kinds, *tables, gamma, beta, mask], 2, epsilon=1e-5)


def test_a_sum_as_the_fourth_output() -> None:
    refuse("output 1", "SkipLayerNormalization", [draw(2, 3, 8), draw(2, 3, 8), draw(8)], 4)
    made = model("SkipLayerNormalization", [draw(2, 3, 8), draw(2, 3, 8), draw(8)], 4)
    made.graph.node[0].output[1] = made.graph.node[0].output[2] = ""
    del made.graph.output[1:3]
    x = {f"x{i}": draw(*s) for i, s in enumerate([(2, 3, 8), (2, 3, 8), (8,)])}
    np.testing.assert_allclose(relax.evaluate(from_onnx(made), x)[1], x["x0"] + x["x1"])


def test_attention() -> None:
    x, weights, bias = draw(2, 5, 8), draw(8, 24), draw(24)
    check("Attention", [x, weights, bias], num_heads=2)
    check("Attention", [x, weights, bias], num_heads=2, unidirectional=1, scale=0.3)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")
    check("Attention", [x, weights, bias, mask], num_heads=4)
    check("Attention", [x, weights, bias, np.array([3, 5], "i4")], num_heads=4)
    check("Attention", [x, weights, bias, None, None, draw(1, 2, 5, 5)], num_heads=2)
    past = draw(2, 2, 2, 3, 4)
    check("Attention", [x, weights, bias, None, past], 2, num_heads=2, unidirectional=1)
    long = np.array([[1, 1, 1, 1, 1, 1, 0, 0], [1] * 8], "i4")
    check("Attention", [x, weights, bias, long, past], 2, num_heads=2)
    refuse("a mask of", "Attention", [x, weights, bias, mask, past], 2, num_heads=2)
    check("Attention", [x, draw(8, 28), draw(28)], num_heads=2, qkv_hidden_sizes=[8, 8, 12])
    refuse("of 24 columns", "Attention", [x, weights, bias], num_heads=2, qkv_hidden_sizes=[8, 8, 12])


def test_quantised_attention() -> None:
    x, weights = RNG.integers(0, 256, (2, 5, 8)).astype("u1"), RNG.integers(0, 256, (8, 24)).astype("u1")
    scales, zeros = [np.array(v, "f4") for v in (0.01, 0.02)], [np.array(v, "u1") for v in (128, 120)]
    for mask, more in ((None, {}), (np.array([3, 5], "i4"), {}), (None, {"unidirectional": 1})):
        inputs = [x, weights, draw(24), *scales, mask, *zeros]
        check_constant("QAttention", inputs, tolerance=1e-3, num_heads=2, **more)


def test_multi_head_attention() -> None:
    q, k, v, bias = draw(2, 3, 8), draw(2, 5, 8), draw(2, 5, 8), draw(24)
    check("MultiHeadAttention", [q, k, v], num_heads=2)
    check("MultiHeadAttention", [q, k, v, bias, None, draw(1, 1, 3, 5)], num_heads=4, scale=0.2)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1]], "i4")
    check("MultiHeadAttention", [q, k, v, None, mask], num_heads=2)
    past = [draw(2, 2, 4, 4), draw(2, 2, 4, 4)]
    check("MultiHeadAttention", [q, k[:, :3], v[:, :3], None, None, None, *past], 3, num_heads=2)


def check_buffer(op: str, inputs: list[Any], first: int, outputs: int = 3, **attrs: Any) -> None:
    """As `check`, where ONNX Runtime writes keys and values to the inputs at `first` and behind it."""
    import onnxruntime

    made = model(op, inputs, outputs, **attrs)
    if outputs > 3:
        made.graph.output[3].CopyFrom(helper.make_tensor_value_info("y3", 1, None))
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and x.dtype == np.float32}
    found = relax.evaluate(from_onnx(made), feeds)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    bound, values = session.io_binding(), {n: onnxruntime.OrtValue.ortvalue_from_numpy(x) for n, x in feeds.items()}
    for name, value in values.items():
        bound.bind_ortvalue_input(name, value)
    for i in range(outputs):
        if i in (1, 2):
            bound.bind_ortvalue_output(f"y{i}", values[f"x{first + i - 1}"])
        else:
            bound.bind_output(f"y{i}")
    session.run_with_iobinding(bound)
    for g, w in zip(found, bound.get_outputs(), strict=True):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-4, atol=1e-5)


def test_attention_in_a_buffer() -> None:
    """Keys and values that are written behind the first five of nine, of one new token and of three."""
    one, buffer, length = [draw(4, 1, 16) for _ in range(3)], [draw(4, 2, 9, 8), draw(4, 2, 9, 8)], np.array([5], "i4")
    mask = (RNG.random((4, 6)) < 0.7).astype("i4")
    mask[:, 0] = 1
    beams, bias, projected = RNG.integers(0, 2, (2, 2, 9)).astype("i4"), draw(1, 2, 1, 6), draw(48)
    attrs, op = {"num_heads": 2, "past_present_share_buffer": 1}, "DecoderMaskedMultiHeadAttention"
    check_buffer(op, [*one, None, None, *buffer, length], 5, **attrs)
    check_buffer(op, [*one, mask, bias, *buffer, length, np.array([2], "i4"), beams, projected], 5, **attrs)
    check_buffer(op, [*one, mask, bias, *buffer, length], 5, 4, output_qk=1, **attrs)
    check(op, [one[0], draw(4, 2, 7, 8), draw(4, 2, 7, 8), np.eye(4, 7, dtype="i4")], num_heads=2)
    three = [draw(4, 3, 16) for _ in range(3)]
    for causal in (0, 1):
        inputs = [*three, None, None, None, *buffer, length]
        check_buffer("MultiHeadAttention", inputs, 6, num_heads=2, unidirectional=causal)
    refuse("without a past_sequence_length", op, [*one, None, None, *buffer], 3, **attrs)
    wrong = [*one, None, None, *buffer, length, None, beams[:, :1]]
    refuse("beams of", op, wrong, 3, **attrs)


def test_attention_without_padding() -> None:
    """Of tokens alone, what attention of the padded sequences gives for these."""
    import onnxruntime

    counts, x, weights, bias = np.array([1, 4, 2], "i4"), draw(3, 4, 8), draw(8, 24), draw(24)
    inside = np.arange(4) < counts[:, None]
    offsets = np.concatenate([np.flatnonzero(inside), np.flatnonzero(~inside)]).astype("i4").reshape(3, 4)
    ends, scores = np.array([0, 1, 5, 7], "i4"), draw(1, 2, 4, 4)
    padded = model("Attention", [x, weights, bias, inside.astype("i4"), None, scores], 1, num_heads=2)
    session = onnxruntime.InferenceSession(padded.SerializeToString())
    (wanted,) = session.run(None, {"x0": x, "x1": weights, "x2": bias, "x5": scores})
    agrees("PackedAttention", [x[inside], weights, bias, offsets, ends, scores], wanted[inside], num_heads=2)
    product = (x @ weights)[inside]
    apart, attrs = [*np.split(product, 3, axis=1), bias, offsets, ends, scores], {"num_heads": 2}
    agrees("PackedMultiHeadAttention", apart, wanted[inside], **attrs)
    packed = (product + bias).reshape(7, 3, 2, 4).transpose(0, 2, 1, 3).copy()
    agrees("PackedMultiHeadAttention", [packed, None, None, None, *apart[4:]], wanted[inside], **attrs)
    agrees("RestorePadding", [x[inside], offsets], np.where(inside[..., None], x, 0))
    made = model("RemovePadding", [x, counts], 4)
    found = autosched.build(made)(x0=x)
    for g, w in zip(found, (x[inside], offsets, ends, np.array([4], "i4")), strict=True):
        np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention(past: int, rotary: int) -> None:
    new = 4 if not past else 1
    q, k, v = draw(1, new, 64), draw(1, new, 32), draw(1, new, 32)
    caches = [draw(1, 2, past, 16), draw(1, 2, past, 16)]
    total = np.array(past + new, "i4")
    tables = [draw(16, 8), draw(16, 8)] if rotary else []
    inputs = [q, k, v, *caches, np.array([past + new - 1], "i4"), total, *tables]
    if past:
        check("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, do_rotary=rotary)
    else:
        inputs[3] = inputs[4] = None
        check("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, do_rotary=rotary, local_window_size=2)


def test_heads_brought_to_one_length() -> None:
    """ONNX Runtime has it for GPUs alone: against what it gives for normal heads."""
    import onnxruntime

    q, k, v, scales = draw(1, 4, 64), draw(1, 4, 32), draw(1, 4, 32), [draw(16), draw(16)]
    rest = [None, None, np.array([3], "i4"), np.array(4, "i4"), draw(9, 8), draw(9, 8)]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    inputs = [q, k, v, *rest, None, None, None, None, None, *scales]
    made = model("GroupQueryAttention", inputs, 3, q_norm_epsilon=1e-3, **attrs)
    found = relax.evaluate(from_onnx(made), {f"x{i}": inputs[i] for i in (0, 1, 2, 7, 8, 14, 15)})
    normal = []
    for x, scale, epsilon in ((q, scales[0], 1e-3), (k, scales[1], 1e-6)):
        apart = x.reshape(1, 4, -1, 16)
        length = np.sqrt((apart**2).mean(-1, keepdims=True) + epsilon)
        normal.append((apart / length * scale).reshape(x.shape).astype("f4"))
    inputs = [*normal, v, *rest]
    session = onnxruntime.InferenceSession(model("GroupQueryAttention", inputs, 3, **attrs).SerializeToString())
    wanted = session.run(None, {f"x{i}": inputs[i] for i in (0, 1, 2, 7, 8)})
    for g, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("layouts", "past", "new"), [(1, 0, 40), (2, 37, 1), (4, 0, 70)])
def test_attention_of_blocks(layouts: int, past: int, new: int) -> None:
    seen = np.tril(RNG.random((layouts, 5, 5)) < 0.4) | np.eye(5, dtype=np.bool_)
    ends = np.cumsum(seen.sum(2), axis=1)
    columns = np.full((layouts, ends.max()), -1, "i4")
    for own, mask in zip(columns, seen, strict=True):
        own[: mask.sum()] = np.nonzero(mask)[1]
    rows, total = np.pad(ends, ((0, 0), (1, 0))).astype("i4"), np.array([past + new], "i4")
    inputs = [draw(1, new, 128), draw(1, new, 64), draw(1, new, 64), draw(1, 2, 80, 32), draw(1, 2, 80, 32)]
    inputs += [rows, columns, total, total, draw(80, 16), draw(80, 16)]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": 1}
    check_buffer("SparseAttention", inputs, 3, **attrs)
    columns[0, 0] = 5
    refuse("columns", "SparseAttention", inputs, 3, **attrs)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    tables, at = [draw(9, 4), draw(9, 4)], RNG.integers(0, 9, (2, 3))
    check("RotaryEmbedding", [draw(2, 3, 16), at, *tables], interleaved=interleaved)
    check("RotaryEmbedding", [draw(2, 2, 3, 8), np.array([2]), *tables], interleaved=interleaved)


def test_quantised_arithmetic() -> None:
    a, b = (RNG.integers(0, 256, (2, 3, 4, 4)).astype("u1") for _ in range(2))
    scale = [numpy_helper.to_array(helper.make_tensor("s", 1, [], [x])) for x in (0.02, 0.03, 0.05)]
    zero = [np.array(z, "u1") for z in (120, 130, 128)]
    both = [a, scale[0], zero[0], b, scale[1], zero[1], scale[2], zero[2]]
    check("QLinearAdd", both)
    check("QLinearMul", both, tolerance=1)
    check("QLinearSigmoid", [a, scale[0], zero[0], scale[1], zero[1]], tolerance=1)
    softmax = [a, scale[0], zero[0], np.array(1 / 256, "f4"), np.array(0, "u1")]
    check_constant("QLinearSoftmax", softmax, tolerance=1, axis=-1, opset=13)
    check_constant("QLinearSoftmax", softmax, tolerance=1, axis=1, opset=12)
    check_constant("QLinearWhere", [np.arange(4) % 2 == 0, *both], tolerance=1)
    check("QLinearGlobalAveragePool", [a, scale[0], zero[0], scale[1], zero[1]], tolerance=1)
    check("QLinearConcat", [scale[2], zero[2], a, scale[0], zero[0], b, scale[1], zero[1]], axis=1)
    x, w = draw(3, 6), RNG.integers(0, 256, (6, 5)).astype("u1")
    check("DynamicQuantizeMatMul", [x, w, scale[0], zero[0], draw(5)], tolerance=1e-3)
    whole = RNG.integers(0, 256, (3, 6)).astype("u1")
    check("MatMulIntegerToFloat", [whole, w, scale[0], scale[1], zero[0], zero[1]])


def test_quantised_products_and_means() -> None:
    scale = [np.array(x, "f4") for x in (0.02, 0.03, 0.5)]
    a, b = RNG.integers(0, 256, (3, 6)).astype("u1"), RNG.integers(0, 256, (5, 6)).astype("u1")
    zero = [np.array(z, "u1") for z in (120, 130, 128)]
    c = RNG.integers(-1000, 1000, (5,)).astype("i4")
    first = [a, scale[0], zero[0], b, scale[1], zero[1]]
    check_constant("QGemm", [*first, c], transB=1, alpha=0.5)
    check_constant("QGemm", [*first, c, scale[2], zero[2]], transB=1)
    columns = [np.array([0.01, 0.02, 0.03, 0.04, 0.05], "f4"), RNG.integers(100, 140, (5,)).astype("u1")]
    check_constant("QGemm", [*first[:3], b.T.copy(), *columns], alpha=1.0)
    x = RNG.integers(0, 256, (1, 3, 7, 7)).astype("u1")
    window = {"kernel_shape": [3, 3], "strides": [2, 2]}
    pool = [x, scale[0], zero[0], scale[1], zero[1]]
    check_constant("QLinearAveragePool", pool, tolerance=1, **window)
    check_constant("QLinearAveragePool", pool, tolerance=1, pads=[1, 1, 1, 1], **window)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_packed_table(bits: int, zeros: bool) -> None:
    table = RNG.integers(0, 256, (7, 48 * bits // 8)).astype("u1")
    points = RNG.integers(0, 256, (7, -(-3 * bits // 8))).astype("u1") if zeros else None
    at = np.array([[3, 0, 6], [2, 2, 5]], "i8")
    inputs = [table, at, (RNG.random((7, 3)) * 0.1).astype("f4"), points]
    check_constant("GatherBlockQuantized", inputs, bits=bits, block_size=16, quantize_axis=1, gather_axis=0)


def test_experts() -> None:
    x, router = draw(2, 3, 8), draw(6, 4)
    first, second = draw(4, 16, 8), draw(4, 8, 16)
    biases = [draw(4, 16), draw(4, 8)]
    check("MoE", [x, router, first, biases[0], second, biases[1]], k=2, activation_type="gelu", tolerance=1e-3)
    check("MoE", [x, router, first, None, second], k=1, activation_type="silu", normalize_routing_weights=1)
    gated = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 2.0}
    wide = [draw(4, 32, 8), draw(4, 32)]
    inputs = [x, router, *wide, second, biases[1]]
    check("MoE", inputs, k=2, normalize_routing_weights=1, swiglu_fusion=1, tolerance=1e-3, **gated)
    refuse("swiglu_fusion=0", "MoE", [x, router, first, None, second, None], k=1, activation_type="swiglu")


def test_gates_and_their_norms() -> None:
    for kind in ("silu", "sigmoid"):
        check("GatedRMSNorm", [draw(2, 3, 24), draw(8), draw(2, 3, 24)], activation=kind)
    for scale in (draw(8), draw(24), draw(3, 8), None):
        check("BranchwiseRMSNorm", [draw(2, 24), scale], num_branches=3)
    check("BranchwiseRMSNorm", [draw(2, 3, 8), draw(8)])
    check("GatedAdd", [draw(2, 3, 8), draw(2, 3, 8), draw(2, 3, 1)])
    check("ScaledSiLU", [draw(2, 3)], alpha=1.5)
    check("ScaledSiLU", [draw(2, 3), np.array(0.7, "f4")])
    check("LinearAttentionGate", [5 * draw(2, 3, 4), draw(4), draw(4), draw(2, 3, 4)], 2)
    check("LinearAttentionGate", [draw(2, 3, 4), draw(4), draw(4)])


@pytest.mark.parametrize("rule", ["linear", "gated_delta"])
def test_what_onnx_has_made_its_own(rule: str) -> None:
    decay, rate = (-abs(draw(2, 5, 2)), abs(draw(2, 5, 2))) if "delta" in rule else (None, None)
    inputs = [draw(2, 5, 16), 0.3 * draw(2, 5, 16), draw(2, 5, 12), draw(2, 2, 8, 6), decay, rate]
    check("LinearAttention", inputs, 2, q_num_heads=2, kv_num_heads=2, update_rule=rule, tolerance=1e-3)
    inputs = [draw(2, 6, 5), draw(6, 1, 4), draw(6), draw(2, 6, 3)]
    check("CausalConvWithState", inputs, 2, activation="silu", dilation=1)
    refuse("CausalConvWithState", "CausalConvWithState", inputs, 2, dilation=2)


@pytest.mark.parametrize(("layout", "interleaved"), [(0, 0), (0, 1), (1, 0)])
def test_rotary_embedding_of_three_positions(layout: int, interleaved: int) -> None:
    at, tables = RNG.integers(0, 9, (3, 2, 5)), [draw(9, 8), draw(9, 8)]
    attrs = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    check("MRotaryEmbedding", [draw(2, 5, 48), at, *tables], num_heads=2, rotary_embedding_dim=16, **attrs)
    check("MRotaryEmbedding", [draw(2, 3, 5, 16), at, *tables], **attrs)


@pytest.mark.parametrize("parts", [3, 2])
def test_attention_of_packed_inputs(parts: int) -> None:
    """ONNX Runtime packs them for GPUs alone: against what it gives for them apart."""
    q, *rest = draw(2, 5, 32), draw(2, 5, 32), draw(2, 5, 32)
    packed = np.stack([x.reshape(2, 5, 4, 8) for x in ([q] if parts == 3 else []) + rest], axis=3)
    inputs = [packed, None, None, draw(96)] if parts == 3 else [q, packed, None, draw(96)]
    made = model("MultiHeadAttention", inputs, 1, num_heads=4)
    found = relax.evaluate(from_onnx(made), {f"x{i}": x for i, x in enumerate(inputs) if x is not None})
    apart = model("MultiHeadAttention", [q, *rest, inputs[3]], 1, num_heads=4)
    import onnxruntime

    session = onnxruntime.InferenceSession(apart.SerializeToString())
    (wanted,) = session.run(None, {f"x{i}": x for i, x in enumerate((q, *rest, inputs[3]))})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    refuse("packed", "MultiHeadAttention", [q, None, None], num_heads=4)


@pytest.mark.parametrize(
    ("bits", "block", "zeros", "more"),
    [
        (4, 16, True, {}), (4, 32, False, {"swiglu_limit": 2.0, "weights_prepacked": 0}), (2, 16, True, {}),
        (8, 0, True, {}), (4, 0, True, {"normalize_routing_weights": 1}),
    ],
)  # fmt: skip
def test_quantised_experts(bits: int, block: int, zeros: bool, more: dict[str, Any]) -> None:
    def packed(out: int, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        values = RNG.integers(0, 256, (4, out, depth * bits // 8)).astype("u1")
        scales = (RNG.random((4, out, depth // block) if block else (4, out)) * 0.05).astype("f4")
        width = -(-scales.shape[-1] * bits // 8)
        return values, scales, RNG.integers(0, 256, (*scales.shape[:-1], width)).astype("u1") if zeros else None

    first, second = packed(64, 64), packed(64, 32)
    inputs = [draw(2, 3, 64), draw(6, 4), *first[:2], draw(4, 64), *second[:2], draw(4, 64), None, None, None]
    inputs += [first[2], second[2], None, abs(draw(6, 4))]
    attrs: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, **more}
    attrs |= {"block_size": block} if block else {}
    check_constant("QMoE", inputs, tolerance=1e-3, expert_weight_bits=bits, **attrs)


def test_quantised_experts_that_are_refused() -> None:
    weights, scales = np.zeros((4, 16, 8), "u1"), np.ones((4, 16), "f4")
    inputs = [draw(3, 16), draw(3, 4), weights, scales, None, weights, scales]
    for name, value in (("expert_weight_bits", 3), ("quant_type", "fp4"), ("weights_prepacked", 1), ("block_size", 5)):
        with pytest.raises(ImportModelError, match="3 bits" if value == 3 else name):
            from_onnx(constant("QMoE", inputs, **{name: value}))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_of_a_part_of_each_head(interleaved: int) -> None:
    at, cos, sin = np.array([[0, 1, 2], [4, 3, 1]], "i8"), draw(8, 4), draw(8, 4)
    attrs = {"interleaved": interleaved, "num_heads": 2, "rotary_embedding_dim": 8}
    check("RotaryEmbedding", [draw(2, 3, 24), at, cos, sin], **attrs)


@cover(("level", [0, 4]), ("zeros", [False, True]), ("target", ["llvm", "llvm -mcpu=x86-64-v3"]))
def test_packed_weights_of_an_open_number_of_rows(level: int, zeros: bool, target: str, tmp_path: Any) -> None:
    """One build, whose blocks of rows read the same packed weights."""
    k, n, block = 64, 96, 32
    packed = RNG.integers(0, 256, (n, k // block, block // 2)).astype("u1")
    points = RNG.integers(0, 256, (n * -(-(k // block) // 2),)).astype("u1") if zeros else None
    attrs = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": level}
    made = model("MatMulNBits", [draw(3, k), packed, None, points], 1, **attrs)
    scales = (RNG.random((n * (k // block),)) * 0.1).astype("f4")
    made.graph.initializer.append(numpy_helper.from_array(scales, "x2"))
    made.graph.node[0].input[2] = "x2"
    made.graph.node[0].output[0] = "p"
    made.graph.node.append(helper.make_node("Relu", ["p"], ["y0"]))
    shape = made.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_param = "batch"
    shape.dim.insert(1, onnx.TensorShapeProto.Dimension(dim_param="rows"))
    onnx.save(made, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx", target=target)
    assert isinstance(built, DynamicExecutable)
    for batch, rows in ((1, 1), (1, 2), (3, 5), (1, 11), (2, 70)):
        x = draw(batch, rows, k)
        wanted = relax.evaluate(from_onnx(made, {"x0": x.shape}), {"x0": x})
        tolerance = 0.02 * np.abs(wanted).max() if level == 4 else 1e-4
        np.testing.assert_allclose(built(x0=x).numpy(), wanted, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("dtype, directions, by_column", [("uint8", 1, False), ("int8", 2, True)])
def test_lstm_of_quantised_weights(dtype: str, directions: int, by_column: bool) -> None:
    """ONNX Runtime rounds inputs and states besides; with weights that are what they stand for it is the same."""
    import onnxruntime

    hidden, width, limits = 6, 5, np.iinfo(dtype)
    factor = (directions, 4 * hidden) if by_column else (directions,)
    w, r = (RNG.integers(limits.min, limits.max, (directions, n, 4 * hidden)).astype(dtype) for n in (width, hidden))
    scales = [RNG.uniform(0.002, 0.004, factor).astype("f4") for _ in (w, r)]
    zeros = [np.full(factor, 120 if dtype == "uint8" else 0, dtype) for _ in (w, r)]
    x, bias = draw(4, 3, width), draw(directions, 8 * hidden)
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}
    given = [x, w, r, bias, None, None, None, None, scales[0], zeros[0], scales[1], zeros[1]]
    made = model("DynamicQuantizeLSTM", given, 3, **attrs)
    made.graph.initializer.extend(numpy_helper.from_array(given[i], f"x{i}") for i in (8, 10))  # scales are no inputs
    kept = [made.graph.input[0], made.graph.input[1]]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    (got, *_) = relax.evaluate(from_onnx(made), {"x0": x, "x3": bias})
    plain = [
        ((a.astype("f4") - z.reshape(directions, 1, -1)) * s.reshape(directions, 1, -1)).transpose(0, 2, 1)
        for a, s, z in zip((w, r), scales, zeros, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], **attrs)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in zip("wrb", (*plain, bias), strict=True)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, want, atol=1e-5)
    coarse = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": x, "x3": bias})[0]
    np.testing.assert_allclose(got, coarse, atol=0.05)


def test_forms_of_operators_of_onnx() -> None:
    check("ExpandDims", [draw(2, 3), np.array(-1, "i4")])
    check("GatherND", [draw(2, 3, 4), np.array([[0, 1], [1, 2]])])
    check("GridSample", [draw(1, 2, 4, 5), draw(1, 3, 3, 2)], mode="bicubic", padding_mode="reflection")
    check("Pad", [draw(2, 3), np.array([[0, 1, 2, 0]])])
    check("Trilu", [draw(3, 4), np.array(1)])
    check_constant("Range", [np.array([1], "i8"), np.array([7])])
    check("UnfoldTensor", [draw(2, 9, 3)], dim=1, size=4, step=2)
    check("CDist", [draw(4, 3), draw(5, 3)], metric="euclidean")
    check_constant("MatMulInteger16", [RNG.integers(-999, 999, s).astype("i2") for s in ((3, 4), (4, 5))])
    transposed = [draw(1, 3, 5, 5), draw(3, 2, 3, 3), np.array([1, 0, 1, 1]), draw(2)]
    check("ConvTransposeWithDynamicPads", transposed, strides=[2, 2])


def test_channels_last() -> None:
    images, weights = (
        RNG.integers(0, 256, (1, 6, 6, 4)).astype("u1"),
        RNG.integers(-128, 128, (5, 4, 3, 3)).astype("i1"),
    )
    check_constant("NhwcMaxPool", [images.view("i1")], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0])
    numbers = [np.float32(0.05), np.int8(0), np.float32(0.9), np.uint8(100)]
    inputs = [images, np.float32(0.1), np.uint8(120), weights, *numbers]
    check_constant("QLinearConv", [*map(np.asarray, inputs)], 1, channels_last=1, pads=[1] * 4)
    x, w, bias = draw(1, 6, 6, 4), draw(5, 3, 3, 4), draw(5)
    found = relax.evaluate(from_onnx(model("NhwcConv", [x, w, bias], 1)), {"x0": x, "x1": w, "x2": bias})
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    np.testing.assert_allclose(found, np.einsum("nyxcij,oijc->nyxo", windows, w) + bias, rtol=1e-4, atol=1e-4)


def agrees(op: str, inputs: list[Any], wanted: np.ndarray, **attrs: Any) -> None:
    """Operators that ONNX Runtime has no kernel of for CPUs, against NumPy."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and x.dtype == np.float32}
    found = relax.evaluate(from_onnx(model(op, inputs, 1, **attrs)), feeds)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return (x / 2 * (1 + erf(x / np.sqrt(2)))).astype("f4")


def test_products_and_sums_without_a_kernel_in_onnx_runtime() -> None:
    x, bias, skip = draw(2, 3, 8), draw(8), draw(2, 3, 8)
    agrees("BiasAdd", [x, bias, skip], x + bias + skip)
    total = x + bias
    agrees("BiasSplitGelu", [x, bias], total[..., :4] * gelu(total[..., 4:]))
    w, b = draw(8, 5), draw(5)
    for more in ([], [b]):
        y = x @ w + (b if more else 0)
        tanh = np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))
        agrees("GemmFastGelu", [x, w, *more], (y / 2 * (1 + tanh)).astype("f4"))
    images, weights, start = draw(1, 6, 6, 4), draw(5, 3, 3, 4), draw(1, 4, 4, 5)
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    y = np.einsum("nyxcij,oijc->nyxo", windows, weights) + b
    agrees("NhwcFusedConv", [images, weights, b], np.maximum(y, 0), activation="Relu")
    agrees("NhwcFusedConv", [images, weights, b, start], np.maximum(y + start, 0), activation="Relu")


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def test_forms_without_a_kernel_in_onnx_runtime() -> None:
    x, bias, skip = draw(2, 3, 4, 8), draw(2, 1, 1, 8), draw(2, 3, 4, 8)
    agrees("BiasSoftmax", [x, bias], softmax(x + bias), axis=3, is_inner_broadcast=1)
    flat = softmax((x + bias).reshape(2, 3, 32)).reshape(x.shape)
    agrees("BiasSoftmax", [x, bias], flat, axis=2, is_inner_broadcast=1)
    agrees("BiasDropout", [x, bias[0, 0, 0], skip, np.array(0.7, "f4")], x + bias[0, 0, 0] + skip)
    made = model("BiasDropout", [x, bias[0, 0, 0]], 2)
    found = relax.evaluate(from_onnx(made), {"x0": x, "x1": bias[0, 0, 0]})
    np.testing.assert_array_equal(found[1], np.ones(x.shape, np.bool_))
    at = RNG.integers(0, 4, (2, 3))
    agrees("TorchEmbedding", [x[0, 0], at, np.array(1)], x[0, 0][at])
    for value, flags in ((np.inf, "isnan_only"), (np.nan, "isinf_only"), (1.0, "")):
        y = np.array([1, value], "f4")
        agrees("IsAllFinite", [x, y], np.array(np.isfinite(value)))
        if flags:
            agrees("IsAllFinite", [y, x], np.array(True), **{flags: 1})
    product = draw(3, 4), draw(5, 4)
    wanted = np.maximum(product[0] @ product[1].T * 2, 0)
    agrees("FusedMatMulActivation", [*product], wanted, transB=1, alpha=2.0, activation="Relu")
    wanted = np.clip((product[0] @ product[1].T) * 0.3 + 0.4, 0, 1).astype("f4")
    attrs = {"activation_alpha": 0.3, "activation_beta": 0.4}
    agrees("FusedMatMulActivation", [*product], wanted, transB=1, activation="HardSigmoid", **attrs)
    gate, up = np.minimum(3 * x, 1.5), np.clip(3 * skip, -1.5, 1.5)
    wanted = (gate / (1 + np.exp(-1.7 * gate)) * (up + 1)).astype("f4")
    attrs = {"activation_alpha": 1.7, "activation_beta": 1.0, "limit": 1.5}
    agrees("SwiGLU", [3 * x, 3 * skip], wanted, **attrs)
    agrees("SwiGLU", [np.concatenate([3 * x, 3 * skip], axis=-1)], wanted, **attrs)
    angles = draw(2, 4, 8)
    sin, cos = (f(angles)[:, None] for f in (np.sin, np.cos))
    made = model("GemmaRotaryEmbedding", [angles, x, skip, skip, x], 2)
    found = relax.evaluate(from_onnx(made), dict(zip([f"x{i}" for i in range(5)], (angles, x, skip, skip, x))))
    for g, w in zip(found, (x * cos + skip * sin, skip * cos + x * sin), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 9, 10])
def test_transforms_of_real_signals(size: int) -> None:
    x = draw(2, 3, size)
    parts = np.fft.rfft(x)
    wanted = np.stack([parts.real, parts.imag], axis=-1).astype("f4")
    agrees("Rfft", [x], wanted, signal_ndim=1)
    if size % 2 == 0:
        agrees("Irfft", [wanted], x, signal_ndim=1)
    a, b = draw(3, size, 2), draw(size, 2)
    whole = [v[..., 0] + 1j * v[..., 1] for v in (a, b)]
    for op, product in (("ComplexMul", whole[0] * whole[1]), ("ComplexMulConj", whole[0] * whole[1].conj())):
        agrees(op, [a, b], np.stack([product.real, product.imag], axis=-1).astype("f4"))
    refuse("signal_ndim=2", "Rfft", [x], signal_ndim=2)
    refuse("without two parts", "ComplexMul", [a, draw(2, 3)])
    refuse("frequencies of shape", "Irfft", [draw(3, 3)], signal_ndim=1)


def test_integers_without_a_kernel_in_onnx_runtime() -> None:
    a, b = RNG.integers(0, 256, (2, 3, 4)).astype("u1"), RNG.integers(0, 256, (3, 1)).astype("u1")
    agrees("ReduceSumInteger", [a], a.sum((0, 2), "i4"), axes=[0, 2], keepdims=0)
    zero = np.uint8(7), np.uint8(200)
    agrees("MulInteger", [a, np.asarray(zero[0]), b], (a.astype("i4") - 7) * b)
    agrees("MulInteger", [a, *map(np.asarray, (zero[0], b, zero[1]))], (a.astype("i4") - 7) * (b.astype("i4") - 200))
    scale, other = np.float32(0.5), np.float32(0.25)
    mean = ((a.astype("f8") - 7) * 0.5).mean(1, keepdims=True)
    wanted = np.clip(np.rint(mean / 0.25) + 100, 0, 255).astype("u1")
    made = constant(
        "QLinearReduceMean", [a, *map(np.asarray, (scale, zero[0], other, np.uint8(100)))], axes=[1], keepdims=1
    )
    np.testing.assert_array_equal(relax.evaluate(from_onnx(made), {}), wanted)


def test_a_gated_bias_of_positions() -> None:
    batch, length, heads, size = 2, 3, 2, 4
    x, bias, positions = draw(batch, length, heads * size), draw(heads * size), draw(1, heads, length, length)
    w, b, eco = draw(size, 8), draw(8), draw(1, heads, 1, 1)
    apart = (x + bias).reshape(batch, length, heads, size).transpose(0, 2, 1, 3) @ w + b
    u, r = np.moveaxis(1 / (1 + np.exp(-apart.reshape(batch, heads, length, 2, 4).sum(-1))), -1, 0)[..., None]
    agrees(
        "GatedRelativePositionBias", [x, bias, positions, w, b, eco], (u * (r * eco - 1) + 2) * positions, num_heads=2
    )


@pytest.mark.parametrize("skips", [False, True])
def test_group_norm_of_diffusion_models(skips: bool) -> None:
    x, scale, bias = draw(2, 3, 3, 8), draw(8), draw(8)
    inputs = [x, scale, bias, *([draw(2, 8), draw(8)] if skips else [])]
    made = model("SkipGroupNorm" if skips else "GroupNorm", inputs, 1 + skips, groups=2, activation=1, epsilon=1e-5)
    found = relax.evaluate(from_onnx(made), {f"x{i}": v for i, v in enumerate(inputs)})
    total = x + inputs[3][:, None, None] + inputs[4] if skips else x
    groups = total.reshape(2, 9, 2, 4)
    normal = (groups - groups.mean((1, 3), keepdims=True)) / np.sqrt(groups.var((1, 3), keepdims=True) + 1e-5)
    wanted = normal.reshape(x.shape) * scale + bias
    wanted /= 1 + np.exp(-wanted)
    for g, w in zip(found if skips else (found,), (wanted, total)):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


def test_norms_of_open_sizes() -> None:
    """Embeddings of any batch and length, images of any batch: one build, which gives what known sizes give."""
    weights = {"words": draw(11, 8), "places": draw(6, 8), "gamma": draw(8), "beta": draw(8)}
    nodes = [
        helper.make_node(
            "EmbedLayerNormalization", ["ids", "", "words", "places", "", "gamma", "beta"], ["y", "count"],
            domain="com.microsoft", epsilon=1e-5,
        ),
        helper.make_node(
            "SkipGroupNorm", ["x", "gamma", "beta", "skip"], ["z"], domain="com.microsoft", groups=2, epsilon=1e-5
        ),
    ]  # fmt: skip
    shapes = {"ids": ["b", "s"], "x": ["n", 3, 3, 8], "skip": ["n", 8]}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(k, 6 if k == "ids" else 1, v) for k, v in shapes.items()],
        [onnx.ValueInfoProto(name=n) for n in ("y", "count", "z")],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    built = autosched.build(made)
    assert isinstance(built, DynamicExecutable)
    for b, s, n in ((2, 4, 3), (1, 1, 1)):
        feeds = {"ids": RNG.integers(0, 11, (b, s)).astype("i4"), "x": draw(n, 3, 3, 8), "skip": draw(n, 8)}
        wanted = relax.evaluate(from_onnx(made, {k: v.shape for k, v in feeds.items()}), feeds)
        for found, w in zip(built(**feeds), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), w, rtol=1e-4, atol=1e-5)


def test_a_bias_of_positions_by_t5s_buckets() -> None:
    table, size = draw(32, 2), np.array([150])
    found = relax.evaluate(
        from_onnx(model("RelativePositionBias", [table, size, size], 1, max_distance=128)), {"x0": table}
    )
    by_head = table.reshape(2, 32)
    for distance, bucket in ((0, 0), (15, 15), (16, 16), (20, 17), (64, 26), (127, 31), (149, 31)):
        np.testing.assert_array_equal(found[0, :, 149, 149 - distance], by_head[:, bucket])
    np.testing.assert_array_equal(found[0, :, 3, 77], by_head[:, 0])


def test_weights_of_bitsandbytes() -> None:
    import onnxruntime

    for kind in (0, 1):
        x, packed = draw(3, 48), RNG.integers(0, 256, 120).astype("u1")
        made = model("MatMulBnb4", [x, packed], 1, K=48, N=5, block_size=32, quant_type=kind)
        made.graph.initializer.append(numpy_helper.from_array(RNG.random(8).astype("f4"), "x2"))
        made.graph.node[0].input.append("x2")
        (wanted,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x0": x})
        np.testing.assert_allclose(relax.evaluate(from_onnx(made), {"x0": x}), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("lead", "packed", "wide", "attrs"),
    [((2, 5), False, False, {}), ((10,), True, False, {"qk_l2_norm": 1}),
     ((2, 5), True, True, {"gate_activation": "sigmoid", "qk_l2_norm": 1, "scale": 0.5}),
     ((10,), False, False, {"gate_activation": "softplus", "beta_activation": "sigmoid", "qk_l2_norm": 1})],
)  # fmt: skip
def test_gated_delta_net(lead: tuple[int, ...], packed: bool, wide: bool, attrs: dict[str, Any]) -> None:
    q, k, v = draw(*lead, 2, 8), 0.3 * draw(*lead, 2, 8), draw(*lead, 4, 6)
    decay = -abs(draw(*lead, 4, *((8,) if wide else ())))
    inputs: list[Any] = [q, k, v, None, decay, abs(draw(*lead, 4)) / 2, draw(2, 4, 6, 8)]
    if packed:
        inputs[:3] = [np.concatenate([x.reshape(*lead, -1) for x in (q, k, v)], axis=-1), None, None]
    if "gate_activation" in attrs:
        inputs += [0.3 * draw(4), draw(4, 8) if wide else draw(4)]
    check("GatedDeltaNet", inputs, 2, tolerance=1e-3, **attrs)


CROPS = np.array([[0, 0, 1, 1], [0.1, 0.7, 0.9, 0.2], [-0.3, 0.2, 0.6, 1.4], [0.5, 0.5, 0.5, 0.5]], "f4")
TEXTS = np.array(["hello world", "a b  ccc", "", "été"], object)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs"),
    [("Inverse", [draw(2, 4, 4)], 1, {}), ("Unique", [np.array([3, 1, 3, 2, 1, 7], "f4")], 3, {}),
     ("NGramRepeatBlock", [np.array([[1, 2, 3, 1, 2], [5, 5, 5, 5, 5]]), draw(2, 8)], 1, {"ngram_size": 3}),
     *(("CropAndResize", [draw(2, 3, 7, 6), CROPS, np.array([0, 1, 1, 0], "i4"), np.array(size, "i4")], 1,
        {"mode": mode, "extrapolation_value": 0.5})
       for mode, size in (("bilinear", (4, 5)), ("bilinear", (1, 3)), ("nearest", (4, 5)))),
     ("DynamicTimeWarping", [draw(5, 7)], 1, {}), ("MurmurHash3", [TEXTS], 1, {"seed": 7}),
     ("MurmurHash3", [np.array([3, 1 << 40])], 1, {"positive": 0}), ("MurmurHash3", [TEXTS], 1, {"seed": -7}),
     ("Tokenizer", [TEXTS], 1, {"mark": 1, "pad_value": "#", "mincharnum": 2, "separators": [" ", "l"]}),
     ("Tokenizer", [TEXTS], 1, {"mark": 0, "pad_value": "", "mincharnum": 1, "tokenexp": "[a-z]+"}),
     ("Tokenizer", [TEXTS], 1, {"mark": 0, "pad_value": "", "mincharnum": 1, "tokenexp": "\\w|ab|b +?c"}),
     ("Tokenizer", [TEXTS], 1, {"mark": 0, "pad_value": "", "mincharnum": 1, "separators": ["x?y| w", "(l|ll)"]})],
)  # fmt: skip
def test_what_a_library_computes(op: str, inputs: list[Any], outputs: int, attrs: dict[str, Any]) -> None:
    import onnxruntime

    kinds = [TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    graph = helper.make_graph(
        [helper.make_node(op, [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)],
                          domain="com.microsoft", **attrs)],
        "g", [helper.make_tensor_value_info(f"x{i}", kinds[i], x.shape) for i, x in enumerate(inputs)],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made, feeds = (
        helper.make_model(graph, opset_imports=imports, ir_version=8),
        {f"x{i}": x for i, x in enumerate(inputs)},
    )
    wanted = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    found = autosched.build(made)(**feeds)
    for g, w in zip(found if outputs > 1 else (found,), wanted, strict=True):
        got = g.numpy() if hasattr(g, "numpy") else g
        assert got.shape == w.shape
        if w.dtype == object:
            np.testing.assert_array_equal(got, w)
        else:
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("token", [8, -1])
def test_tokens_that_no_score_is_for(token: int) -> None:
    made = model("NGramRepeatBlock", [draw(1, 3).astype("i8"), draw(1, 8)], 1, ngram_size=1)
    made.graph.initializer.pop()
    made.graph.input.append(helper.make_tensor_value_info("x0", TensorProto.INT64, (1, 3)))
    with pytest.raises(WrongInputError, match=f"token {token} of 8"):
        autosched.build(made)(x0=np.array([[1, token, 2]]), x1=draw(1, 8))


@pytest.mark.parametrize("expression", ["(a", "(?=a)", "((a{100}){100}){10}"])
def test_an_expression_that_is_none_of_re2s(expression: str) -> None:
    made = model("Tokenizer", [TEXTS], 1, mark=0, pad_value="", mincharnum=1, tokenexp=expression)
    with pytest.raises(WrongInputError, match="the expression"):
        autosched.build(made)(x0=TEXTS)
