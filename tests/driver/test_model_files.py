"""What MODEL may be: files of TVMScript and PyTorch, and objects of Python modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autosched
from autosched.driver.model_files import load_model
from autosched.errors import ScriptError, UsageError, WrongInputError

MODULE = """
from autosched import te
from autosched.relax.frontend import nn
from autosched.script import ir as I, relax as R, tir as T

def dense():
    a, b = te.placeholder((8, 16), name="A"), te.placeholder((16, 4), name="B")
    k = te.reduce_axis((0, 16), name="k")
    return a, b, te.compute((8, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")

def needs(size):
    return te.placeholder((size,))

@T.prim_func
def add(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = A[v] + B[v]

@I.ir_module
class Symbolic:
    @R.function
    def run(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        y = R.nn.relu(x)
        return y

class Net(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)

net = Net(), {"forward": {"x": nn.spec.Tensor((2, 8), "float32")}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def inputs(name: str) -> list[tuple[str, tuple[int, ...]]]:
    main = load_model(f"own_models:{name}")["main"]
    return [(p.name, p.struct_info.static_shape) for p in main.params]


def test_objects(folder: Path) -> None:
    assert inputs("dense") == [("A", (8, 16)), ("B", (16, 4))]
    assert inputs("add") == [("A", (4,)), ("B", (4,))]
    assert inputs("net") == [("x", (2, 8)), ("fc.weight", (4, 8)), ("fc.bias", (4,))]
    symbolic = load_model("own_models:Symbolic", {"x": (5, 3)})
    assert symbolic["main"].ret_struct_info.static_shape == (5, 3)


def test_an_object_is_built_and_called(folder: Path) -> None:
    executable = autosched.build(load_model("own_models:dense"))
    a, b = np.ones((8, 16), "float32"), np.ones((16, 4), "float32")
    assert np.array_equal(executable(a, b).numpy(), a @ b)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own_models:nobody", "has no 'nobody'; it has .*dense"),
        ("no_such_module:x", "cannot import 'no_such_module'"),
        ("own_models:Symbolic", "the size of 'n' is not known"),
    ],
)
def test_wrong_names(folder: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        load_model(name)


def test_wrong_objects(folder: Path) -> None:
    with pytest.raises(TypeError, match="takes size"):
        load_model("own_models:needs")
    with pytest.raises(TypeError, match="cannot build a type"):
        load_model("own_models:Net")


def test_modules_of_pytorch_are_to_be_exported() -> None:
    torch = pytest.importorskip("torch")
    model, x = torch.nn.Linear(8, 4).eval(), torch.zeros(2, 8)
    for given in (model, torch.fx.symbolic_trace(model)):
        with pytest.raises(WrongInputError, match=r"torch\.export\.export\(model\.eval\(\), \(x,\)\)"):
            autosched.build(given, (x,))


def test_script_files(tmp_path: Path) -> None:
    path = tmp_path / "model.tvm"
    path.write_text(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        '    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):\n'
        "        y = R.nn.relu(x)\n        return y\n"
    )
    assert load_model(path)["main"].params[0].name == "x"
    path.write_text(path.read_text().replace("relu(x)", "relu(z)"))
    with pytest.raises(ScriptError, match=r"undefined name 'z'[\s\S]*model.tvm:5:\d+[\s\S]*\^"):
        load_model(path)


def test_exported_programs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    data = torch.randn(2, 8)
    torch.export.save(torch.export.export(model, (data,)), tmp_path / "m.pt2")
    result = autosched.build(load_model(tmp_path / "m.pt2"))(data.numpy())
    assert np.allclose(result.numpy(), model(data).detach().numpy(), rtol=1e-4, atol=1e-5)
    (tmp_path / "m.pt2").write_bytes(b"nothing")
    with pytest.raises(autosched.AutoschedError, match="no exported program"):
        load_model(tmp_path / "m.pt2")


def test_unknown_files(tmp_path: Path) -> None:
    (tmp_path / "m.xyz").write_text("")
    with pytest.raises(UsageError, match="models are .onnx and .pt2 files"):
        load_model(tmp_path / "m.xyz")


def test_build_and_tune_take_a_path_and_a_model(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
    model, path = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx"
    onnx.save(model, path)
    data = np.ones((3, 4), "float32")
    for what in (path, str(path), model):
        built = autosched.build(what, shapes={"x": (3, 4)})
        np.testing.assert_array_equal(built(data).numpy(), 2 * data)
    report = autosched.tune(
        str(path), shapes={"x": (3, 4)}, records=tmp_path / "t.db", options=autosched.TuneOptions(trials=1)
    )
    assert report.n_trials == 1
    with pytest.raises(UsageError, match="no duration"):
        autosched.tune(path, budget="soon")
    with pytest.raises(UsageError, match="another in the options"):
        autosched.tune(path, budget="1m", options=autosched.TuneOptions(budget=3))
