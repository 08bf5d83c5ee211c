"""Artifacts on machines with other instruction sets: more of them are fine, fewer mean that kernels are built again."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.driver.rebuild import rebuild
from autosched.errors import ArtifactError, UsageError
from autosched.frontend.onnx import from_onnx
from autosched.runtime import NeedsRebuildError, artifact
from autosched.target import host_cpu
from tests.cli.models import WEIGHT, dense_file
from tests.driver.programs import matmul
from tests.frontend.onnx_models import small_conv_net

NARROW = "llvm -mcpu=x86-64-v2"
WIDE = "llvm -mcpu=x86-64-v4"

pytestmark = pytest.mark.skipif("sse4.2" not in host_cpu().features, reason="targets of x86-64 machines")


def built(target: str, folder: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """An artifact of a small network for a target; an input and what ONNX Runtime makes of it."""
    ort = pytest.importorskip("onnxruntime")
    model = small_conv_net()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    shape = session.get_inputs()[0].shape
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    path = folder / "model.asx"
    autosched.build(from_onnx(model), target=target, records=autosched.FallbackContext()).save(path)
    return path, x, session.run(None, {session.get_inputs()[0].name: x})[0]


def agrees(executable: autosched.Executable, x: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(executable(x).numpy() - expected).max() <= 1e-4 * np.abs(expected).max() + 1e-5)


def fake_features(monkeypatch: pytest.MonkeyPatch, features: frozenset[str]) -> None:
    """Let the loader see a CPU with these instruction sets."""
    cpu = dataclasses.replace(host_cpu(), features=features)
    monkeypatch.setattr(artifact, "host_cpu", lambda: cpu)


def test_a_cpu_with_more_than_was_built_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, x, expected = built(NARROW, tmp_path)
    with caplog.at_level(logging.WARNING, "autosched"):
        executable = autosched.load(path)
    assert not caplog.records and "x86-64-v2" in executable.manifest["target"]
    assert not any("avx2" in kernel.features for kernel in executable.kernels.values())
    assert agrees(executable, x, expected)


def test_a_cpu_that_lacks_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x, expected = built("cpu", tmp_path)
    needed = {feature for kernel in autosched.load(path).kernels.values() for feature in kernel.features}
    if not needed:
        pytest.skip("this machine has no more than what every machine has")
    missing = sorted(needed)[0]
    fake_features(monkeypatch, host_cpu().features - {missing})
    with caplog.at_level(logging.WARNING, "autosched"):
        executable = autosched.load(path)
    (warning,) = caplog.messages
    assert missing in warning and "built again" in warning
    assert agrees(executable, x, expected)
    executable.save(tmp_path / "again.asx")
    monkeypatch.undo()
    assert agrees(autosched.load(tmp_path / "again.asx"), x, expected)


@pytest.mark.skipif("avx512f" in host_cpu().features, reason="this machine runs what is built for AVX-512")
def test_code_for_avx512_on_a_machine_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Packed constants and layouts stay as they were for 16 lanes; the code is made for this machine."""
    path, x, expected = built(WIDE, tmp_path)
    with caplog.at_level(logging.WARNING, "autosched"):
        executable = autosched.load(path)
    assert "avx512" in caplog.messages[0]
    assert not any("avx512f" in kernel.features for kernel in executable.kernels.values())
    assert agrees(executable, x, expected)


def test_a_module_is_built_again_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matmul.asx"
    autosched.build(matmul(), target="cpu").save(path)
    monkeypatch.setattr(
        artifact, "_requirement", lambda path, version, manifest, contents: NeedsRebuildError("no", "abi", contents)
    )
    module = autosched.load(path)
    out = np.zeros((32, 48), "float32")
    module["main"](np.ones((32, 64), "float32"), np.ones((64, 48), "float32"), out)
    np.testing.assert_array_equal(out, 64)


def test_an_artifact_without_functions_cannot_be_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.runtime.kernels import chain

    path = tmp_path / "chain.asx"
    chain(3, 2, constant=True).save(path)
    monkeypatch.setattr(
        artifact, "_requirement", lambda path, version, manifest, contents: NeedsRebuildError("no", "abi", contents)
    )
    with pytest.raises(ArtifactError, match="nothing to build kernel"):
        autosched.load(path)


def test_a_model_is_built_for_several_cpus_at_once(tmp_path: Path) -> None:
    """Each machine loads the best that it can run; a CPU with none of them gets kernels that are built again."""
    module = from_onnx(str(dense_file(tmp_path / "m.onnx")))
    built = autosched.build(module, target=["llvm -mcpu=x86-64", "llvm -mcpu=x86-64-v3"], threads=1)
    assert list(built.executables) == ["x86-64", "x86-64-v3"]
    built.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    assert loaded.variants == ("x86-64", "x86-64-v3")
    x = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
    np.testing.assert_allclose(loaded(x).numpy(), np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(built(x).numpy(), loaded(x).numpy(), rtol=1e-5, atol=1e-6)
    for targets in ([], ["cpu", "cpu"]):
        with pytest.raises(UsageError, match="name each CPU once"):
            autosched.build(module, target=targets)


@pytest.mark.parametrize("functions", [7, 0.5, None, {"main": 7}, [["main"]]])
def test_functions_that_are_none_are_refused(tmp_path: Path, functions: object) -> None:
    autosched.build(from_onnx(str(dense_file(tmp_path / "m.onnx")))).save(tmp_path / "model.asx")
    contents = artifact.load_contents(tmp_path / "model.asx")
    manifest = {**contents.info["manifest"], "functions": functions}
    with pytest.raises(ArtifactError, match="nothing to build kernel|is damaged"):
        rebuild(dataclasses.replace(contents, info={**contents.info, "manifest": manifest}))
