"""Packages that add templates, strategies, operators and converters: found by entry points, in workers too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from autosched.env import child_environment
from autosched.errors import InvalidTypeError, InvalidValueError, UsageError
from autosched.extensions import load_extension
from autosched.frontend.onnx.registry import converter
from autosched.templates.registry import register_template
from autosched.tuner.search.registry import register_strategy

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "extension"
SCRIPT = """
import numpy as np
import autosched
from autosched.records import open_store

x = np.linspace(-1, 2, 4096, dtype="float32").reshape(64, 64)
t = np.clip(x, 0, 1)
expected = t * t * (3 - 2 * t)
report = autosched.tune(
    "m.onnx", records="t.db", options=autosched.TuneOptions(trials=3, strategy="small-first", threads=1)
)
assert report.n_trials == 3 and report.n_failed == 0, (report.n_trials, report.failures)
executable = autosched.build("m.onnx", records="t.db", threads=1)
np.testing.assert_allclose(executable(x).numpy(), expected, rtol=1e-6, atol=1e-6)
(row,) = executable.manifest["report"]
assert row["template"] == "wide_elementwise", row
assert "smoothstep" in str(autosched.relax.op.registry.get_op("example.smoothstep").name)
"""
TORCH_OPERATOR = """
import numpy as np
import torch
import autosched

@torch.library.custom_op("example::smoothstep", mutates_args=())
def smoothstep(x: torch.Tensor) -> torch.Tensor:
    t = x.clamp(0, 1)
    return t * t * (3 - 2 * t)

@smoothstep.register_fake
def _(x):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.example.smoothstep(2 * x)
"""
# The three ways from PyTorch, each in a process of its own: the first that looks for a converter loads the extension.
# All are forks of one that has imported PyTorch, which takes two seconds.
WAYS = {
    "exported": "executable = autosched.build(torch.export.export(Model(), (x,)), threads=1)",
    "traced": """
module = autosched.frontend.torch.from_fx(torch.fx.symbolic_trace(Model()), [((64, 64), "float32")])
executable = autosched.build(module, threads=1)
""",
    "compiled": """
from autosched.contrib.torch_compile import autosched_backend
with torch.no_grad():
    found = torch.compile(Model(), backend=autosched_backend, options={"strict": True})(x)
executable = lambda x: found
""",
}
TRIED = """
import os, sys, traceback

def attempt(way, *path):
    sys.stderr.flush()
    if (child := os.fork()) == 0:
        sys.path += path
        try:
            names = dict(globals())
            names["x"] = x = torch.linspace(-1, 2, 4096).reshape(64, 64)
            exec(way, names)
            found = names["executable"](x.numpy()).numpy()
            np.testing.assert_allclose(found, Model()(x).numpy(), rtol=1e-6, atol=1e-6)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def install(folder: Path, *modules: str) -> None:
    """What pip leaves of a package that has entry points only."""
    info = folder / "autosched_smoothstep-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: autosched-smoothstep\nVersion: 0.1\n")
    points = "".join(f"{module} = {module}\n" for module in modules)
    (info / "entry_points.txt").write_text(f"[autosched.extensions]\n{points}")


def run(code: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = child_environment({"PYTHONPATH": ":".join(map(str, (ROOT, *path)))})
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


def test_the_example_is_found_by_its_entry_point_and_tuned_in_workers(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("SmoothStep", ["x"], ["y"], domain="example")], "g", *[[v] for v in values]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")
    done = run(SCRIPT, tmp_path, EXAMPLE)
    assert done.returncode != 0, "nothing names the extension yet"
    assert "SmoothStep" in done.stderr
    install(tmp_path / "site", "autosched_smoothstep")
    done = run(SCRIPT, tmp_path, EXAMPLE, tmp_path / "site")
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_example_converts_an_operator_of_torch_library(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    install(tmp_path / "site", "autosched_smoothstep")
    tried = [f"assert attempt({WAYS['traced']!r}) == 1; print('nothing names the extension yet', file=sys.stderr)"]
    tried += [f"assert attempt({code!r}, {str(tmp_path / 'site')!r}) == 0, {way!r}" for way, code in WAYS.items()]
    done = run("\n".join((TORCH_OPERATOR, TRIED, *tried)), tmp_path, EXAMPLE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "smoothstep" in done.stderr.partition("nothing names the extension yet")[0]


def test_an_extension_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_extension.py").write_text("1 / 0\n")
    install(tmp_path / "site", "broken_extension")
    code = "import autosched; autosched.relax.op.registry.get_op('nothing')"
    done = run(code, tmp_path, tmp_path, tmp_path / "site")
    assert "extension 'broken_extension': ZeroDivisionError" in done.stderr
    monkeypatch.setenv("AUTOSCHED_EXTENSIONS", "")
    with pytest.raises(UsageError, match="extension 'no_such_module': ModuleNotFoundError"):
        load_extension("no_such_module")


def test_what_is_no_extension_is_refused() -> None:
    class Half:
        name = "half"

        def match(self, func: object, target: object) -> None: ...

    with pytest.raises(InvalidTypeError, match="needs a method space"):
        register_template(Half())  # type: ignore[arg-type]
    from autosched.templates.cpu.elementwise import Elementwise

    with pytest.raises(InvalidValueError, match="there is a template 'elementwise' for cpu already"):
        register_template(Elementwise())
    with pytest.raises(InvalidTypeError, match="no subclass of BaseSearch"):
        register_strategy("mine", dict)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="'gp' already"):
        from autosched.tuner.search.random import RandomSearch

        register_strategy("gp", RandomSearch)
    import autosched.frontend.onnx.converters  # noqa: F401

    with pytest.raises(InvalidValueError, match="converter for Relu already"):
        converter("Relu")(lambda node: None)
