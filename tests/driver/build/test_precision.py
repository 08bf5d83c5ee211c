"""Products on bfloat16: what is converted, how near the results are, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.driver.build.graph import prepare
from autosched.driver.build.precision import precision_of, with_precision
from autosched.errors import TargetError, UsageError
from autosched.relax import BlockBuilder, op
from autosched.relax.evaluate import evaluate
from autosched.relax.expr import Constant, Expr, Var
from autosched.relax.struct_info import TensorStructInfo
from autosched.runtime.bfloat16 import know_dtype
from autosched.target import Target, host_cpu

pytestmark = pytest.mark.host(runs=True)

CPU, GPU = Target("cpu"), Target("cuda -arch=sm_90a")
RNG = np.random.default_rng(0)
DEPTH, WIDE = 64, 96
WEIGHTS = [(RNG.standard_normal(s) / 8).astype("f4") for s in ((DEPTH, WIDE), (WIDE, DEPTH))]


def model(dtype: str = "float32", rows: int = 5) -> autosched.IRModule:
    """A norm, two products with weights, one of two computed values, a softmax."""
    x = Var("x", TensorStructInfo((2, rows, DEPTH), dtype))
    builder = BlockBuilder()

    def whole(array: np.ndarray) -> Constant:
        return Constant(array.astype(dtype))

    with builder.function("main", [x]):
        with builder.dataflow():
            ones, zeros = whole(np.ones(DEPTH)), whole(np.zeros(DEPTH))
            value: Expr = builder.emit(op.nn.layer_norm(x, ones, zeros, axes=(2,)))
            value = builder.emit(op.nn.gelu(builder.emit(op.matmul(value, whole(WEIGHTS[0])))))
            value = builder.emit(op.add(builder.emit(op.matmul(value, whole(WEIGHTS[1]))), x))
            turned = builder.emit(op.permute_dims(value, axes=[0, 2, 1]))
            out = builder.emit_output(op.nn.softmax(builder.emit(op.matmul(value, turned))))
        builder.emit_func_output(out)
    return builder.get()


def types(module: autosched.IRModule) -> dict[str, list[str]]:
    """The types of the arguments of a prepared model's kernels."""
    return {gv.name: [b.dtype for b in f.buffers] for gv, f in module.functions_items() if gv.name != "main"}


def test_products_with_weights_are_converted_and_nothing_else() -> None:
    found = types(prepare(with_precision(model(), "bf16", CPU), CPU, {}))
    narrow = {name: t for name, t in found.items() if "bfloat16" in t}
    products = [t for name, t in found.items() if "matmul" in name and t[:2] == ["bfloat16", "bfloat16"]]
    assert len(products) == 2 and all(t[-1] in ("float32", "bfloat16") for t in products)
    assert all("matmul" in name or "cast" in name for name in narrow), found
    assert not any("bfloat16" in t for t in types(prepare(model(), CPU, {})).values())


def test_results_are_as_near_as_bfloat16_lets_them_be() -> None:
    x = RNG.standard_normal((2, 5, DEPTH)).astype("f4")
    wanted = autosched.build(model(), records=[])(x).numpy()
    got = autosched.build(model(), records=[], precision="bf16")(x).numpy()
    assert 0 < np.abs(got - wanted).max() < 0.02


def network(bb: BlockBuilder, x: Expr) -> Expr:
    """A first layer, a pool, two convolutions with a shortcut, one in groups, one of each channel, a dense layer."""

    def conv(x: Expr, out: int, channels: int, size: int, **how: int) -> Expr:
        weight = Constant((RNG.standard_normal((out, channels, size, size)) / size / channels**0.5).astype("f4"))
        return bb.emit(op.nn.relu(bb.emit(op.nn.conv2d(x, weight, padding=size // 2, **how))))

    first = bb.emit(op.nn.max_pool2d(conv(x, 64, 3, 5, strides=2), pool_size=2, strides=2))
    second = conv(conv(first, 64, 64, 3), 64, 64, 1)
    grouped = conv(bb.emit(op.add(second, first)), 128, 32, 3, groups=2, strides=2)
    mean = bb.emit(op.mean(conv(conv(grouped, 128, 1, 3, groups=128), 48, 128, 1), axis=(2, 3)))
    return op.matmul(mean, Constant((RNG.standard_normal((48, 10)) / 7).astype("f4")))


def images() -> tuple[autosched.IRModule, np.ndarray]:
    x, builder = Var("x", TensorStructInfo((2, 3, 22, 22), "float32")), BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(network(builder, x))
        builder.emit_func_output(out)
    return builder.get(), RNG.standard_normal((2, 3, 22, 22)).astype("f4")


@pytest.mark.parametrize("mcpu", ["", "sapphirerapids", "znver4"])
def test_convolutions_are_as_near(mcpu: str) -> None:
    target = Target(f"llvm -mcpu={mcpu}") if mcpu else CPU
    if not target.features <= host_cpu().runnable:
        pytest.skip("this machine lacks its instructions")
    module, x = images()
    wanted = evaluate(module, {"x": x})
    built = autosched.build(module, target=target, records=[], precision="bf16")
    error = np.abs(built(x).numpy() - wanted).max() / np.abs(wanted).max()
    assert 0 < error < 0.02
    rows = autosched.driver.build_report(built).rows
    convolutions = [r for r in rows if r["template"] in ("conv2d", "conv2d_amx", "depthwise")]
    narrow = sum(str(r["types"]).startswith("bfloat16") for r in convolutions)
    tiles = sum(r["template"] == "conv2d_amx" for r in convolutions)
    wanted_counts = {"sapphirerapids": (6, 5), "znver4": (4, 0)}
    assert not mcpu or (narrow, tiles) == wanted_counts[mcpu], [(r["template"], r["types"]) for r in rows]


def test_the_report_says_what_was_converted() -> None:
    report = autosched.driver.build_report(autosched.build(model(), records=[], precision="bf16"))
    assert "2 on bfloat16 with sums of float32" in report.summary
    products = [str(r["types"]) for r in report.rows if r["template"] == "matmul"]
    assert sorted(t.split()[0] for t in products) == ["bfloat16", "bfloat16", "float32"]


def test_an_artifact_keeps_its_weights(tmp_path) -> None:
    x = RNG.standard_normal((2, 5, DEPTH)).astype("f4")
    built = autosched.build(model(), records=[], precision="bf16")
    built.save(tmp_path / "m.asx")
    np.testing.assert_array_equal(autosched.load(tmp_path / "m.asx")(x).numpy(), built(x).numpy())
    plain = autosched.build(model(), records=[])
    plain.save(tmp_path / "p.asx")
    assert (tmp_path / "m.asx").stat().st_size < (tmp_path / "p.asx").stat().st_size


def test_models_of_bfloat16_run_their_products_on_it() -> None:
    narrow = model("bfloat16")
    assert precision_of(narrow, CPU) == "bfloat16" and precision_of(model(), CPU) == "float32"
    assert precision_of(with_precision(narrow, "float32", CPU), CPU) == "float32"
    assert precision_of(narrow, GPU) == "float32", "there they are computed in their own types"
    x = RNG.standard_normal((2, 5, DEPTH)).astype("bfloat16")
    got = autosched.build(narrow, records=[])(x).numpy()
    wanted = autosched.build(narrow, records=[], precision="float32")(x).numpy()
    assert got.dtype == wanted.dtype == "bfloat16"
    np.testing.assert_allclose(got.astype("f4"), wanted.astype("f4"), atol=0.03)


@pytest.mark.parametrize("width", [1, DEPTH])
def test_a_value_of_bfloat16_leaves_float32_products_as_they_are(width: int) -> None:
    """Gemma's relatives keep a scale in bfloat16."""
    know_dtype("bfloat16")
    x = Var("x", TensorStructInfo((5, width), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            scale = builder.emit(op.astype(Constant(np.array(8.0).astype("bfloat16")), "float32"))
            value = builder.emit(op.multiply(x, scale))
            out = builder.emit_output(op.matmul(value, Constant(WEIGHTS[0][:width])))
        builder.emit_func_output(out)
    module = builder.get()
    assert precision_of(module, CPU) == "float32"
    data = RNG.standard_normal((5, width)).astype("f4")
    got = autosched.build(module, records=[])(data).numpy()
    expected = 8 * data.astype("f8") @ WEIGHTS[0][:width]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="precision 'int3'"):
        autosched.build(model(), precision="int3")
    with pytest.raises(TargetError, match="precision='tf32' for llvm"):
        autosched.build(model(), target="cpu", precision="tf32")
    with pytest.raises(TargetError, match="precision='bf16' for cuda"):
        with_precision(model(), "bf16", GPU)
