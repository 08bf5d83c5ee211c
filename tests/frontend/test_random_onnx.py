"""A sample of what `python -m tests.frontend.random_onnx` builds, and that it sees what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import autosched
from autosched.errors import ImportModelError

pytest.importorskip("onnxruntime")

from tests.frontend.random_onnx.__main__ import main
from tests.frontend.random_onnx.check import Options, check, model_of, outcome, plan_of
from tests.frontend.random_onnx.kinds import KINDS
from tests.frontend.random_onnx.maker import Size
from tests.frontend.random_onnx.models import random_model
from tests.frontend.random_onnx.noise import Reference, Undefined, spread_of

SHORT = Options(most_steps=3)


@pytest.mark.parametrize("seed", range(12))
def test_models_agree(seed: int) -> None:
    assert outcome(seed, SHORT)[2] == ""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 20))
def test_many_models_agree(first: int) -> None:
    problems = [outcome(seed, Options()) for seed in range(first, first + 20)]
    assert [p for p in problems if p[2]] == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"])
def test_other_cpus_agree(target: str) -> None:
    problems = [outcome(seed, Options(target=target, most_steps=5)) for seed in range(1000, 1020)]
    assert [p for p in problems if p[2]] == []


@pytest.mark.slow
@pytest.mark.emulated
def test_launches_agree() -> None:
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
    problems = [outcome(seed, Options(target="cuda -arch=sm_80", most_steps=3)) for seed in range(2000, 2010)]
    assert [p for p in problems if p[2]] == []


def test_every_kind_is_drawn() -> None:
    """Within some hundred models, and most models are ones that ONNX Runtime takes."""
    made = [random_model(seed, is_open=seed % 3 == 0) for seed in range(1500)]
    assert {kind for model in made for kind in model.kinds} == {*KINDS}
    assert {len(model.names) for model in made} >= {0, 1, 2, 3}


def test_equal_seeds_give_equal_models() -> None:
    first, second = (model_of(plan_of(7, SHORT), SHORT) for _ in range(2))
    assert first.model == second.model
    feeds, again = (model.feeds(0, {}) for model in (first, second))
    assert all(np.array_equal(feeds[name], again[name], equal_nan=True) for name in feeds)


def test_older_versions_and_odd_numbers() -> None:
    """Some sums have their axes as attributes, and half of the inputs with edges have a NaN or so."""
    options = Options(share_open=0, share_old=1, share_edges=1)
    made = [model_of(plan_of(seed, options), options) for seed in range(60)]
    versions = [next(i.version for i in m.model.opset_import if not i.domain) for m in made]
    assert len({*versions}) > 6 and min(versions) in (7, 8)
    axes = [n for m in made for n in m.model.graph.node if n.op_type.startswith("Reduce") and len(n.input) == 1]
    assert any(a.name == "axes" for n in axes for a in n.attribute)
    floats = [a for m in made for a in m.feeds(0, {}).values() if a.dtype.kind == "f" and a.size > 50]
    assert sum(not np.isfinite(a).all() for a in floats) > len(floats) / 2


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    build = autosched.build

    def negated(model: onnx.ModelProto, **options: Any) -> Any:
        last = model.graph.output[0].name
        model.graph.node.append(helper.make_node("Neg", [last], ["negated"]))
        model.graph.output[0].name = "negated"
        return build(model, **options)

    monkeypatch.setattr(autosched, "build", negated)
    options = Options(share_open=0, only=("matmul",))
    plan = plan_of(3, options)
    assert "elements differ" in check(model_of(plan, options), plan)[1]


def test_refusals_are_wrong_where_all_sizes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: onnx.ModelProto, **options: Any) -> Any:
        raise ImportModelError("no 7 things")

    monkeypatch.setattr(autosched, "build", refuse)
    assert outcome(3, Options(share_open=0, only=("matmul",)))[1:2] == ("refused: no N things",)
    assert outcome(3, Options(share_open=0, only=("matmul",)))[2].startswith("refused: no 7 things")
    assert outcome(3, Options(share_open=1, only=("unary",)))[2] == ""


def reference_of(*nodes: onnx.NodeProto, size: int | str = 2, result: int = onnx.TensorProto.FLOAT) -> Reference:
    """A model from x, a vector, to z, with a scale s."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [size])
    z = helper.make_tensor_value_info("z", result, None)
    scale = helper.make_tensor("s", onnx.TensorProto.FLOAT, [], [0.1])
    graph = helper.make_graph(nodes, "g", [x], [z], [scale])
    return Reference(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def test_noise_shows_what_rounding_decides() -> None:
    """Of two elements, one lies on the edge that a floor makes."""
    reference = reference_of(helper.make_node("Mul", ["x", "x"], ["y"]), helper.make_node("Floor", ["y"], ["z"]))
    feeds = {"x": np.array([2.0, 2.2], "float32")}
    (expected,) = reference.run(feeds)
    assert expected.tolist() == [4, 4]
    spread = spread_of(expected, [reference.run(feeds, 1.0, salt)[0] for salt in range(9)])
    assert spread.round(4).tolist() == [1, 0]


def test_a_value_less_itself_has_the_roundings_of_both() -> None:
    reference = reference_of(helper.make_node("Sub", ["x", "x"], ["z"]))
    feeds = {"x": np.array([0.0, 3.0], "float32")}
    (expected,) = reference.run(feeds)
    assert expected.tolist() == [0, 0]
    nothing, little = spread_of(expected, [reference.run(feeds, 1.0, salt)[0] for salt in range(9)])
    assert nothing == 0 and 3e-7 < little < 1e-5


def test_bytes_of_no_numbers_are_undefined() -> None:
    reference = reference_of(helper.make_node("QuantizeLinear", ["x", "s"], ["z"]), result=onnx.TensorProto.UINT8)
    assert reference.run({"x": np.array([1, np.inf], "float32")})[0].tolist() == [10, 255]
    with pytest.raises(Undefined):
        reference.run({"x": np.array([1, np.nan], "float32")})


@pytest.mark.parametrize(
    ("node", "good", "bad"),
    [(helper.make_node("Cast", ["x"], ["z"], to=onnx.TensorProto.INT8), [127, -128.9], [1, 300]),
     (helper.make_node("ReduceMax", ["x"], ["z"]), [1, np.inf], [1, np.nan]),
     (helper.make_node("Gelu", ["x"], ["z"]), [1, 2], [1, -np.inf])],
)  # fmt: skip
def test_what_onnx_leaves_open_is_undefined(node: onnx.NodeProto, good: list[float], bad: list[float]) -> None:
    kind = onnx.TensorProto.INT8 if node.op_type == "Cast" else onnx.TensorProto.FLOAT
    reference = reference_of(node, result=kind)
    reference.run({"x": np.array(good, "float32")})
    with pytest.raises(Undefined):
        reference.run({"x": np.array(bad, "float32")})


def test_means_of_nothing_are_undefined() -> None:
    reference = reference_of(helper.make_node("ReduceMean", ["x"], ["z"]), size="n")
    assert reference.run({"x": np.array([1, 2], "float32")})[0] == 1.5
    with pytest.raises(Undefined):
        reference.run({"x": np.zeros(0, "float32")})


def test_normalisation_without_variance_is_undefined() -> None:
    reference = reference_of(helper.make_node("MeanVarianceNormalization", ["x"], ["z"], axes=[0]))
    assert reference.run({"x": np.array([1, 3], "float32")})[0].round(3).tolist() == [-1, 1]
    with pytest.raises(Undefined):
        reference.run({"x": np.zeros(2, "float32")})


def test_open_sizes_equal_no_known_ones() -> None:
    n, m, k = Size(4, "n"), Size(4, "m"), Size(4)
    assert n == Size(5, "n") and n not in (4, m, k) and k not in (4, Size(4)) and k == k
    assert isinstance(n + 1, Size) and isinstance(3 - n, Size) and isinstance(2 * n, Size) and isinstance(-n, Size)
    assert n + 0 is n and n * 1 is n and n // 1 is n and n % 2 != 0


def test_the_command_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "1", "--only", "matmul", "--workers", "0", "--open", "0", "--show"]) == 0
    printed = capsys.readouterr().out
    assert "MatMul" in printed and "1 known sizes" in printed and "1 models, 0 wrong, " in printed
