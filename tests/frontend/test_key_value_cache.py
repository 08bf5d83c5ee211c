"""Decoders that keep keys and values between calls, built once for all lengths, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.errors import ImportModelError, IndexOutOfRangeError, ShapeError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable

HEADS, GROUPS, WIDTH, ROOM = 4, 2, 16, 8


def grouped(packed: bool = False, extra: tuple[str, ...] = (), bits: int = 0, **attrs: Any) -> onnx.ModelProto:
    """A GroupQueryAttention whose sizes are all open, with the mask that says the lengths, as exporters write it."""
    wide, narrow = HEADS * WIDTH, GROUPS * WIDTH
    query = ["q", "", ""] if packed else ["q", "k", "v"]
    kept, stored = ["batch", GROUPS, "past", WIDTH * (bits or 8) // 8], {0: 1, 8: 3, 4: 2}[bits]
    shapes: dict[str, tuple[int, list[Any]]] = {
        "q": (1, ["batch", "new", wide + 2 * narrow if packed else wide]), "k": (1, ["batch", "new", narrow]),
        "v": (1, ["batch", "new", narrow]), "past_k": (stored, kept), "past_v": (stored, kept),
        "mask": (7, ["batch", "total"]), "positions": (7, ["batch", "new"]),
        "bias": (1, [1, HEADS, "new", "total"]), "sink": (1, [HEADS]),
    }  # fmt: skip
    more = [name if name in extra else "" for name in ("positions", "bias", "sink")]
    names = [name for name in (*query, "past_k", "past_v", "mask", *more) if name]
    table = np.arange(64)[:, None] * np.float32(10) ** (-np.arange(WIDTH // 2) / WIDTH)
    constants = {
        "one": np.array([1], "i8"), "axis": np.array(1, "i8"), "cos": np.cos(table).astype("f4"),
        "sin": np.sin(table).astype("f4"),
    }  # fmt: skip
    if bits:
        attrs["kv_cache_bit_width"], least = bits, 3 / 2 ** (bits - 1)
        for side in "kv":
            per_head = attrs.setdefault(f"{side}_quant_type", "PER_TENSOR") == "PER_CHANNEL"
            count = (1, GROUPS, 1, WIDTH) if per_head else (1,)
            constants[f"{side}_scale"] = np.linspace(least, 2 * least, np.prod(count), dtype="f4").reshape(count)
        more += ["k_scale", "v_scale"]
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sums"], keepdims=0),
        helper.make_node("Sub", ["sums", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=6),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["total"], to=6),
        helper.make_node(
            "GroupQueryAttention", [*query, "past_k", "past_v", "lengths", "total", "cos", "sin", *more],
            ["y", "present_k", "present_v"], domain="com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS, **attrs,
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, *shapes[n]) for n in names],
        [helper.make_tensor_value_info(n, 1 if n == "y" else stored, ["b", *"xyz"[: 2 if n == "y" else 3]])
         for n in nodes[-1].output],
        [numpy_helper.from_array(x, n) for n, x in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def feeds(model: onnx.ModelProto, batch: int, new: int, past: int, used: int, lengths: Any = None) -> dict[str, Any]:
    """Inputs for so many new keys behind `used` ones, in a past of room for so many."""
    rng = np.random.default_rng(100 * batch + 10 * new + past)
    sizes = {"batch": batch, "new": new, "past": past, "total": used + new}
    result: dict[str, Any] = {}
    for value in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        x = rng.standard_normal(shape)
        stored = {2: "u1", 3: "i1"}.get(value.type.tensor_type.elem_type)
        result[value.name] = (100 * x).astype("i8").astype(stored) if stored else x.astype("f4")
    mask = np.arange(used + new) < np.array(lengths or [used + new] * batch)[:, None]
    positions = np.tile(np.arange(used, used + new) + 3, (batch, 1))
    for name, x in (("mask", mask), ("positions", positions)):
        if name in result:
            result[name] = x.astype("i8")
    return result


def expected(model: onnx.ModelProto, given: dict[str, Any]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, given)  # type: ignore[no-any-return]


def evaluated(model: onnx.ModelProto, given: dict[str, Any]) -> Any:
    """What the operators give by their definitions."""
    return relax.evaluate(from_onnx(model, {name: x.shape for name, x in given.items()}), given)


def compare(found: Any, wanted: list[np.ndarray], used: int, new: int) -> None:
    """Outputs, and of what is kept the part that is used."""
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        got = np.asarray(a.numpy() if hasattr(a, "numpy") else a)
        assert got.shape == b.shape and got.dtype == b.dtype
        end = None if place == 0 else used + new
        np.testing.assert_allclose(got[..., :end, :], b[..., :end, :], rtol=1e-4, atol=1e-5)


OPTIONS: tuple[dict[str, Any], ...] = (
    {"packed": True, "do_rotary": 1},
    {"do_rotary": 1, "rotary_interleaved": 1, "scale": 0.3},
    {"local_window_size": 3},
    {"softcap": 2.0, "extra": ("bias",)},
    {"smooth_softmax": 1},
    {"extra": ("sink",), "local_window_size": 4},
    {"do_rotary": 1, "extra": ("positions", "bias", "sink")},
    {"bits": 8, "do_rotary": 1},
    {"bits": 4, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "local_window_size": 3},
    {"causal": 0, "extra": ("bias",)},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options: dict[str, Any]) -> None:
    model = grouped(**options)
    for past, used, new in ((5, 5, 1), (4, 4, 3), (ROOM, 3, 1), (ROOM, 0, 4)):
        given = feeds(model, 1, new, past, used)
        wanted = expected(model, given)
        compare(evaluated(model, given), wanted, used, new)


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[5], OPTIONS[8]], ids=str)
def test_one_build_for_all_lengths(options: dict[str, Any], tmp_path: Path) -> None:
    model = grouped(**options)
    onnx.save(model, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx")
    assert isinstance(built, DynamicExecutable)
    before = counters.COMPILES.value
    for batch, past, used, new in ((1, 7, 7, 1), (1, 20, 20, 5), (2, 3, 3, 1), (1, ROOM, 3, 2), (2, ROOM, 0, 5)):
        given = feeds(model, batch, new, past, used)
        compare(built(**given), expected(model, given), used, new)
    for batch, new in ((2, 5), (1, 1)):  # nothing is kept before the first call
        given = feeds(model, batch, new, 0, 0)
        compare(built(**given), expected(model, given), 0, new)
    assert counters.COMPILES.value == before


def resident(total: int, room: int, window: int) -> int:
    """How many positions ONNX Runtime keeps of a sequence of so many."""
    step = room - window + 1
    return total - step * max(0, -(-(total - room) // step))


@pytest.mark.parametrize(
    ("room", "window", "steps", "batch"),
    [(8, 5, (3, 1, 1, 4, 1, 1, 1, 6, 12, 1), 1), (4, 4, (1, 1, 1, 1, 1, 1), 2), (6, 3, (20, 1, 1, 1, 1, 1, 5), 1)],
)
def test_a_cache_that_slides(room: int, window: int, steps: tuple[int, ...], batch: int, tmp_path: Path) -> None:
    model = grouped(do_rotary=1, sliding_window_cache=1, local_window_size=window, extra=("sink",), packed=True)
    onnx.save(model, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx") if room == 8 else None
    before, used = counters.COMPILES.value, 0
    kept: dict[str, np.ndarray] = {}
    for new in steps:
        given = {**feeds(model, batch, new, room, used), **kept}
        wanted = expected(model, given)
        used += new
        compare(built(**given) if built else evaluated(model, given), wanted, 0, resident(used, room, window))
        kept = {"past_k": wanted[1], "past_v": wanted[2]}
    assert counters.COMPILES.value == before
    if built:
        with pytest.raises(ShapeError, match=f"at least {window}"):
            built(**feeds(model, 1, 1, window - 1, 4))


def test_a_sliding_cache_of_different_lengths() -> None:
    model = grouped(do_rotary=1, sliding_window_cache=1, local_window_size=3)
    given = feeds(model, 2, 1, 6, 10, lengths=[5, 9])
    found, wanted = evaluated(model, given), expected(model, given)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        for row, length in enumerate((5, 9)):
            rows = resident(length, 6, 3)
            np.testing.assert_allclose(a[row, :, :rows], b[row, :, :rows], rtol=1e-4, atol=1e-5)


def joined(with_length: bool = False) -> onnx.ModelProto:
    """Attention of plain operators with keys and values that are joined to those of earlier calls."""
    kept = ["batch", 2, "past", 8]
    nodes = [
        helper.make_node("Concat", ["past_k", "k"], ["present_k"], axis=2),
        helper.make_node("Concat", ["past_v", "k"], ["present_v"], axis=-2),
        helper.make_node("Transpose", ["present_k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["k", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "present_v"], ["y"]),
    ]
    if with_length:  # what depends on whether there is a past
        nodes += [
            helper.make_node("Shape", ["past_k"], ["shape"]),
            helper.make_node("Gather", ["shape", "two"], ["length"]),
            helper.make_node("Greater", ["length", "zero"], ["is_later"]),
            helper.make_node("Where", ["is_later", "one", "half"], ["factor"]),
        ]
    names = ["y", "present_k", "present_v", *(["factor"] if with_length else [])]
    constants = {"two": np.array(2, "i8"), "zero": np.array(0, "i8"), "one": np.float32(1), "half": np.float32(0.5)}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, 1, s) for n, s in
         (("k", ["batch", 2, "new", 8]), ("past_k", kept), ("past_v", kept))],
        [helper.make_tensor_value_info(n, 1, None) for n in names],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in constants.items()] if with_length else [],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("with_length", [False, True])
def test_keys_joined_to_none(with_length: bool, tmp_path: Path) -> None:
    model = joined(with_length)
    onnx.save(model, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx")
    assert isinstance(built, DynamicExecutable)
    built.save(tmp_path / "m.asx")
    before = counters.COMPILES.value
    for run in (built, autosched.load(tmp_path / "m.asx")):
        for batch, past, new in ((1, 3, 1), (2, 0, 4), (1, 0, 1), (2, 0, 4), (2, 4, 2), (3, 0, 9)):
            given = feeds(model, batch, new, past, past)
            for found, wanted in zip(run(**given), expected(model, given), strict=True):
                np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert counters.COMPILES.value == before


def test_positions_in_what_is_not_kept_yet_are_refused(tmp_path: Path) -> None:
    model = joined()
    model.graph.node.append(helper.make_node("GatherElements", ["past_k", "places"], ["first"], axis=2))
    model.graph.output.append(helper.make_tensor_value_info("first", 1, None))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 2, 1, 8), "i8"), "places"))
    onnx.save(model, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx")
    built(**feeds(model, 1, 1, 2, 2))
    with pytest.raises(IndexOutOfRangeError, match="along axis 2 of size past: index 0 is out of range"):
        built(**feeds(model, 1, 1, 0, 0))


def test_sequences_of_different_lengths() -> None:
    model = grouped(packed=True, do_rotary=1)
    given = feeds(model, 2, 1, ROOM, 5, lengths=[4, 6])
    found, wanted = evaluated(model, given), expected(model, given)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        for row, length in enumerate((4, 6)):
            np.testing.assert_allclose(a[row, :, :length], b[row, :, :length], rtol=1e-4, atol=1e-5)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ImportModelError, match="causal=0"):
        from_onnx(grouped(causal=0, softcap=1.0))
    with pytest.raises(ImportModelError, match="input 12 is missing"):
        from_onnx(grouped(k_quant_type="PER_TENSOR"))
    with pytest.raises(ImportModelError, match="k_quant_type=PER_ROW"):
        from_onnx(grouped(bits=8, k_quant_type="PER_ROW"))
    with pytest.raises(ImportModelError, match="a past of int8 where uint8 is kept"):
        model = grouped(bits=8)
        next(a for a in model.graph.node[-1].attribute if a.name == "kv_cache_bit_width").i = 4
        from_onnx(model)
    with pytest.raises(ImportModelError, match="sliding_window_cache"):
        from_onnx(grouped(sliding_window_cache=1, local_window_size=2, extra=("bias",)))


def test_a_position_in_one_row_is_looked_at() -> None:
    """A table of one row is a number, but a position that is not in it is reported."""
    nodes = [
        helper.make_node("ReduceSum", ["m", "axis"], ["s"], keepdims=0),
        helper.make_node("Gather", ["table", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("m", 7, [2, 5])], [helper.make_tensor_value_info("y", 7, None)],
        [numpy_helper.from_array(np.array([x], "i8"), n) for n, x in (("axis", 1), ("table", 7))],
    )  # fmt: skip
    built = autosched.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert built(m=np.zeros((2, 5), "i8")).numpy().tolist() == [7, 7]
    with pytest.raises(IndexOutOfRangeError, match="take along axis 0"):
        built(m=np.ones((2, 5), "i8"))


def fused(op: str) -> onnx.ModelProto:
    """Fused attention of all sizes open, with a past."""
    wide = HEADS * WIDTH
    shapes: dict[str, list[Any]] = {"q": ["batch", "new", wide]}
    kept = ["batch", HEADS, "past", WIDTH]
    if op == "Attention":
        shapes["past_kv"] = [2, *kept]
        inputs, outputs = ["q", "w", "b", "", "past_kv"], ["y", "present"]
    else:
        shapes |= {"k": ["batch", "new", wide], "v": ["batch", "new", wide], "past_k": kept, "past_v": kept}
        shapes["bias"] = [1, 1, "new", "total"]
        inputs, outputs = ["q", "k", "v", "", "", "bias", "past_k", "past_v"], ["y", "present_k", "present_v"]
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((wide, 3 * wide)).astype("f4") / 8, "b": np.ones(3 * wide, "f4")}
    node = helper.make_node(op, inputs, outputs, domain="com.microsoft", num_heads=HEADS)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, 1, ["?"] * (3 if n == "y" else 4 + (n == "present"))) for n in outputs],
        [numpy_helper.from_array(x, n) for n, x in constants.items() if n in inputs],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_fused_attention_of_open_sizes(op: str, tmp_path: Path) -> None:
    model = fused(op)
    onnx.save(model, tmp_path / "m.onnx")
    built = autosched.build(tmp_path / "m.onnx")
    assert isinstance(built, DynamicExecutable)
    for batch, past, new in ((1, 4, 1), (2, 3, 5), (1, 20, 2), (2, 0, 4)):
        given = feeds(model, batch, new, past, past)
        wanted = expected(model, given)
        for found, w in zip(built(**given), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), w, rtol=1e-4, atol=1e-4)
