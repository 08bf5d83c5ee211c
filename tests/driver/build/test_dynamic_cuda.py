"""Models for all sizes on a GPU: built once, run on the emulator at sizes that were not known, equal to the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

import autosched
from autosched import te
from autosched.cli import main
from autosched.codegen import counters
from autosched.codegen.cuda.emulate.driver import EmulatorDriver
from autosched.driver.build.sized import SizedModel
from autosched.errors import ShapeError
from autosched.ir import IRModule
from autosched.runtime.cuda.devices import use_driver
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.dynamic_device import MOST_PROGRAMS
from autosched.tir.expr import Var
from tests.cli.models import refuse
from tests.driver.build.test_dynamic import NN, OP, dense, mlp, model, n, weight
from tests.frontend.onnx_models import make, node
from tests.spread import spread

pytestmark = pytest.mark.usefixtures("helper")

TARGET = "cuda -arch=sm_90a"
RNG = np.random.default_rng(0)


def normed(builder: Any, x: Any) -> Any:
    hidden = builder.emit(NN.layer_norm(dense(builder, x, 50, 24), weight(24), weight(24), [-1]))
    hidden = builder.emit(NN.rms_norm(builder.emit(NN.gelu(hidden)), weight(24), [-1]))  # of two launches
    return builder.emit(NN.softmax(dense(builder, hidden, 24, 10), -1))


def images(builder: Any, x: Any) -> Any:
    hidden = builder.emit(NN.relu(builder.emit(NN.conv2d(x, weight(8, 3, 3, 3), padding=(1, 1)))))
    return builder.emit(NN.adaptive_avg_pool2d(builder.emit(NN.max_pool2d(hidden, (2, 2), (2, 2))), (1, 1)))


def attention(builder: Any, x: Any) -> Any:
    scores = builder.emit(OP.matmul(dense(builder, x, 16, 16), builder.emit(OP.permute_dims(x, (0, 2, 1)))))
    return builder.emit(OP.matmul(builder.emit(NN.softmax(scores, -1)), x))


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with use_driver(EmulatorDriver):
        yield


def built(module: IRModule) -> DynamicExecutable:
    made = autosched.build(module, target=TARGET)
    assert isinstance(made, DynamicExecutable)
    return made


@spread(
    2,
    "module, shapes",
    [
        (model((n(), 50), mlp), [(1, 50), (37, 50), (130, 50)]),
        (model((n(), Var("s", "int64"), 50), normed), [(2, 3, 50), (3, 19, 50)]),
        (model((n(), 3, 8, 8), images), [(1, 3, 8, 8), (5, 3, 8, 8)]),
        (model((n(), 7, 16), attention), [(1, 7, 16), (5, 7, 16)]),
    ],
    ids=["rows", "tokens", "images", "attention"],
)
def test_every_size_equals_the_build_for_cpus(module: IRModule, shapes: Any, tmp_path: Path) -> None:
    expected, made = autosched.build(module, target="cpu"), built(module)
    path = tmp_path / "model.asx"
    made.save(path)
    again = autosched.load(path)
    before = counters.COMPILES.value
    for shape in shapes:
        x = RNG.standard_normal(shape).astype("float32")
        for run in (made, again):
            np.testing.assert_allclose(run(x).numpy(), expected(x).numpy(), rtol=2e-5, atol=1e-6)
    assert counters.COMPILES.value == before


def test_inputs_and_outputs_lie_on_the_device() -> None:
    made = built(model((n(), 50), mlp))
    x = RNG.standard_normal((7, 50)).astype("float32")
    on_device = autosched.nd.array(x, autosched.cuda(0))
    y = made(on_device)
    assert y.device == autosched.cuda(0)
    np.testing.assert_array_equal(y.numpy(), made(x).numpy())


def test_constants_are_uploaded_once_and_few_sizes_are_kept() -> None:
    made = built(model((n(), 50), mlp))
    executor = made.create_executor()
    number = made.form.inputs[0]
    for size in range(1, MOST_PROGRAMS + 4):
        executor.run({number: np.ones((size, 50), "float32")})
    programs = list(executor._programs.values())
    assert len(programs) == MOST_PROGRAMS
    constants = [v for v, value in enumerate(made.form.values) if value.storage.kind == "const"]
    assert constants
    for v in constants:
        assert len({p._addresses[v] for p in programs}) == 1


def test_attention_over_any_length_is_built_once() -> None:
    module = model((n(), Var("s", "int64"), 16), attention)
    made, expected = built(module), autosched.build(module)
    before = counters.COMPILES.value
    for shape in [(1, 1, 16), (3, 7, 16), (2, 70, 16)]:
        x = RNG.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(made(x).numpy(), expected(x).numpy(), rtol=2e-5, atol=1e-6)
    assert counters.COMPILES.value == before


def test_a_decoder_that_computes_with_sizes_is_built_once() -> None:
    """Positions from the number of tokens before: a size that is no dimension of what is computed with it."""
    torch = pytest.importorskip("torch")
    from tests.driver.build.test_torch_programs import Decoder, words

    model, size = Decoder().eval(), torch.export.Dim
    b, p, n = size("b", max=8), size("p", max=30), size("n", max=16)
    shapes = ({0: b, 1: n}, {0: b, 1: p}, {0: b, 1: size.AUTO})
    made = autosched.build(torch.export.export(model, words(2, 3, 5), dynamic_shapes=shapes), target=TARGET)
    assert isinstance(made, DynamicExecutable)
    before = counters.COMPILES.value
    for sizes in ((2, 3, 5), (1, 1, 1), (3, 1, 20)):
        given = words(*sizes)
        found = made(*(x.numpy() for x in given))
        with torch.no_grad():
            for ours, theirs in zip(found, model(*given), strict=True):
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
    assert counters.COMPILES.value == before


def turned() -> Any:
    """Of five sizes, one more than kernels for GPUs take."""
    return make([node("Transpose", "x", "y", perm=[4, 3, 2, 1, 0])], {"x": ("a", "b", "c", "d", "e")}, ["y"], {})


def test_a_model_without_such_a_kernel_is_compiled_when_called() -> None:
    made = autosched.build(turned(), target=TARGET)
    assert isinstance(made, SizedModel) and "4 sizes" in made.reason
    x = RNG.standard_normal((3, 1, 6, 2, 2)).astype("float32")
    np.testing.assert_array_equal(made(x).numpy(), x.T)


def test_an_onnx_model_with_an_open_batch(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    weights = RNG.standard_normal((20, 8)).astype("float32")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("x", 20), ("y", 8)))
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = autosched.build(onnx_model, target=TARGET, shapes={"x": (range(1, 9), 20)})
    path = tmp_path / "model.asx"
    made.save(path)
    again = autosched.load(path)
    for size in (1, 8):
        given = RNG.standard_normal((size, 20)).astype("float32")
        np.testing.assert_allclose(again(given).numpy(), np.maximum(given @ weights, 0), rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="1 to 8"):
        again(np.ones((9, 20), "float32"))


def test_an_onnx_model_without_such_a_kernel_is_compiled_for_each_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(turned().SerializeToString())
    made = autosched.build(str(path), target=TARGET)
    assert isinstance(made, SizedModel) and made.reason
    for size in (3, 5):
        x = RNG.standard_normal((size, 1, 6, 2, 2)).astype("float32")
        np.testing.assert_array_equal(made(x).numpy(), x.T)
    asx, arrays = str(tmp_path / "m.asx"), str(tmp_path / "in.npz")
    assert main(["build", str(path), "--target", TARGET, "-o", asx]) == 0
    assert f"compiled when it is called, for each size: {made.reason}" in capsys.readouterr().err
    np.savez(arrays, x=x)
    for words in (["run", asx], ["run", str(path), "--target", TARGET]):
        assert main([*words, "-i", arrays, "-o", str(tmp_path / "out.npz")]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], x.T)
    refuse(capsys, ["run", asx], "the sizes of input 'x' are not known", "-i")


SEVERAL = ["cpu", "cuda -arch=sm_80", TARGET]
CHIPS = (((9, 0), "sm_90a"), ((8, 6), "sm_80"), ((7, 5), ""))  # "": the CPU's


@spread(2, "capability, variant", CHIPS)
def test_one_artifact_for_several_targets_and_all_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], capability: tuple[int, int], variant: str
) -> None:
    """A machine loads the best that runs there; what it loads runs at any size."""
    module = model((n(), 50), mlp)
    path = str(tmp_path / "m.asx")
    built_once = autosched.build(module, target=SEVERAL)
    built_once.save(path)
    with use_driver(lambda index: EmulatorDriver(index, compute_capability=capability)):
        loaded = autosched.load(path)
        assert isinstance(loaded, DynamicExecutable)
        assert loaded.variant == (variant or loaded.variants[0]) and len(loaded.variants) == 3
        assert {kernel.backend for kernel in loaded.kernels.values()} == ({"cuda"} if variant else {"cpu"})
        assert built_once.here is built_once.executables[loaded.variant]
        for size in (1, 37):
            x = RNG.standard_normal((size, 50)).astype("float32")
            expected = autosched.build(module)(x).numpy()
            for run in (loaded, built_once):
                np.testing.assert_allclose(run(x).numpy(), expected, rtol=2e-5, atol=1e-6)
        assert main(["inspect", path]) == 0
        assert f"{loaded.variant} is what this machine runs" in capsys.readouterr().out


@spread(2, "capability, variant", CHIPS)
def test_one_artifact_where_some_targets_compile_for_each_size(
    tmp_path: Path, capability: tuple[int, int], variant: str
) -> None:
    """Five sizes: once for all of them on CPUs, for each on GPUs."""
    module = autosched.build(turned(), target=TARGET).module
    made = autosched.build(module, target=SEVERAL)
    assert isinstance(made.executables["sm_80"], SizedModel)
    made.save(tmp_path / "m.asx")
    x = RNG.standard_normal((5, 1, 6, 2, 1)).astype("float32")
    with use_driver(lambda index: EmulatorDriver(index, compute_capability=capability)):
        loaded = autosched.load(tmp_path / "m.asx")
        assert type(loaded) is type(made.here) is (SizedModel if variant else DynamicExecutable)
        assert not variant or loaded.target.gpu.arch == variant
        np.testing.assert_allclose(loaded(x).numpy(), autosched.build(module)(x).numpy(), rtol=2e-5, atol=1e-6)


def test_the_command_line_builds_open_sizes_for_several_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, asx, arrays = tmp_path / "m.onnx", str(tmp_path / "m.asx"), str(tmp_path / "in.npz")
    path.write_bytes(make([node("Relu", "x", "y")], {"x": ("n", 6)}, ["y"], {}).SerializeToString())
    targets = [word for target in SEVERAL for word in ("--target", target)]
    assert main(["build", str(path), *targets, "-o", asx]) == 0
    said = capsys.readouterr().err
    assert all(f"{name}: compiled once for every size of 'n'" in said for name in ("sm_80", "sm_90a"))
    x = RNG.standard_normal((3, 6)).astype("float32")
    np.savez(arrays, x=x)
    assert main(["run", asx, "-i", arrays, "-o", str(tmp_path / "out.npz"), "-v"]) == 0
    assert "kernels for sm_90a, of" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], np.maximum(x, 0))
    words = ["build", str(path), "--pin", "relu", "x=1", "--shapes", "x:1..8x6"]
    refuse(capsys, words, "--pin takes a model of fixed sizes", "give numbers in --shapes")


@pytest.mark.parametrize("rows", [5, n()], ids=["known", "open"])
def test_one_artifact_of_a_function_for_several_targets(tmp_path: Path, rows: Any) -> None:
    a = te.placeholder((rows, 3), name="a")
    b = te.compute((rows, 3), lambda i, j: a[i, j] * 2.0, name="b")
    made = autosched.build(te.create_prim_func([a, b]), target=SEVERAL)
    made.save(tmp_path / "f.asx")
    x = np.arange(15, dtype="float32").reshape(5, 3)
    for run in (made, autosched.load(tmp_path / "f.asx")):
        on_device = autosched.nd.array(x, autosched.cuda(0)), autosched.nd.array(x, autosched.cuda(0))
        run(*on_device)
        np.testing.assert_array_equal(on_device[1].numpy(), x * 2)


def test_an_empty_batch_gives_an_empty_result() -> None:
    found = built(model((n(), 50), mlp))(np.ones((0, 50), "float32"))
    assert found.shape == (0, 10) and found.device.device_type == 2
    assert found.numpy().shape == (0, 10)


def test_nothing_is_kept_before_the_first_call(tmp_path: Path) -> None:
    """Attention over what is kept and what is new, which a first call alone has; and the largest of no values."""
    nodes = [
        node("Concat", "past x", "both", axis=1), node("Transpose", "both", "keys", perm=[0, 2, 1]),
        node("MatMul", "x keys", "scores"), node("Softmax", "scores", "weights"), node("MatMul", "weights both", "y"),
    ]  # fmt: skip
    proto = make(nodes, {"x": ("b", "s", 16), "past": ("b", "p", 16)}, ["y", "both"], {})
    expected, made = autosched.build(proto, target="cpu"), autosched.build(proto, target=TARGET)
    assert isinstance(made, DynamicExecutable) and [s.low for s in made.form.sizes] == [1, 1, 0]
    made.save(tmp_path / "m.asx")
    for run in (made, autosched.load(tmp_path / "m.asx")):
        for s, p in ((5, 0), (1, 0), (1, 7)):
            given = {name: RNG.standard_normal((2, t, 16)).astype("f4") for name, t in (("x", s), ("past", p))}
            for found, wanted in zip(run(**given), expected(**given), strict=True):
                np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-5, atol=1e-6)
    largest = make([nodes[0], node("ReduceMax", "past", "z", keepdims=0)], {"x": ("b", "s"), "past": ("b", "p")},
                   ["both", "z"], {})  # fmt: skip
    given = {"x": np.ones((2, 1), "f4"), "past": np.ones((2, 0), "f4")}
    for target in (TARGET, "cpu"):
        assert autosched.build(largest, target=target)(**given)[1].numpy() == -np.inf
