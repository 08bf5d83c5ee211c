"""A back end is three folders and one line: a tiny third one, in `tests/abacus/`, is put beside the others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.codegen.backends import codegen_backend
from autosched.errors import TVMError
from autosched.script import from_source
from autosched.target import KINDS, Target, TargetKind
from autosched.templates.registry import all_templates, templates_for

ABACUS = Path(__file__).parent / "abacus"
PACKAGES = ("codegen", "templates", "runtime")
CACHES = (codegen_backend, all_templates, templates_for)
SCRIPT = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 2), "float32")) -> R.Tensor((3, 2), "float32"):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w))
            out = R.add(h, h)
            R.output(out)
        return out
"""


@pytest.fixture
def abacus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "kernels"))
    for name in PACKAGES:  # the three folders
        package = importlib.import_module(f"autosched.{name}")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(ABACUS / name)])
    monkeypatch.setitem(KINDS, "abacus", TargetKind("abacus", 12, ("abacus",), backend="abacus"))  # the one line
    yield
    for cached in CACHES:
        cached.cache_clear()  # type: ignore[attr-defined]
    for name in [name for name in sys.modules if "abacus" in name.split(".") and name.startswith("autosched.")]:
        del sys.modules[name]


@pytest.mark.usefixtures("abacus")
def test_a_third_back_end_builds_runs_and_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=(4, 2)).astype("float32")
    model = autosched.build(from_source(SCRIPT), target="abacus", params={"w": w}, records=[])
    assert {kernel.backend for kernel in model.kernels.values()} == {"abacus"} and model.native == b""
    expected = 2 * np.maximum(x @ w, 0)
    out = model(x)
    assert out.device.device_type == 12
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    again = autosched.build(from_source(SCRIPT), target="abacus", params={"w": w}, records=[])
    assert [k.code for k in again.kernels.values()] == [k.code for k in model.kernels.values()]
    model.save(tmp_path / "m.asx")
    np.testing.assert_allclose(autosched.load(tmp_path / "m.asx")(x).numpy(), expected, rtol=1e-6)
    with pytest.raises(TVMError, match="built for abacus devices"):
        model.create_executor(autosched.cpu(0))


def test_without_its_line_there_is_none() -> None:
    with pytest.raises(ValueError, match="unknown target 'abacus'"):
        Target("abacus")
