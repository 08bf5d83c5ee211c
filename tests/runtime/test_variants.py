"""One artifact for several instruction sets: which one is loaded, what is shared, and what is said where none runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched.errors import ArtifactError
from autosched.runtime import Executable, NeedsRebuildError, artifact, variants
from autosched.runtime.artifact import load_contents
from autosched.runtime.variants import Variants
from autosched.target.cpus import features_of
from tests.runtime.kernels import chain

V2, V3, V4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"


def needing(name: str, executable: Executable) -> Executable:
    """The executable as if its kernels needed a CPU."""
    needs = tuple(sorted(features_of(name)))
    kernels = {key: dataclasses.replace(kernel, features=needs) for key, kernel in executable.kernels.items()}
    graph, native = executable.graph, executable.native
    return Executable(kernels, graph, executable.constants, native, {"for": name}, executable.param_names)


@pytest.fixture
def several() -> Variants:
    executable = chain(3, 2, constant=True)
    return Variants({name: needing(name, executable) for name in (V2, V4, V3)})


@pytest.fixture
def saved(several: Variants, tmp_path: Path) -> Path:
    several.save(tmp_path / "m.asx")
    return tmp_path / "m.asx"


def be(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let this machine be another CPU."""
    other = dataclasses.replace(artifact.host_cpu(), features=frozenset(features_of(name) if name else ()))
    for module in (artifact, variants):
        monkeypatch.setattr(module, "host_cpu", lambda: other)


@pytest.mark.parametrize(("here", "loaded"), [(V2, V2), (V3, V3), (V4, V4), ("znver3", V3), ("znver4", V4)])
def test_the_best_that_runs_here_is_loaded(
    several: Variants, saved: Path, monkeypatch: pytest.MonkeyPatch, here: str, loaded: str
) -> None:
    be(monkeypatch, here)
    found = Executable.load(saved)
    assert (found.variant, found.variants, found.manifest) == (loaded, (V2, V4, V3), {"for": loaded})
    assert several.here is several.executables[loaded]


def test_where_none_runs_the_error_names_them_and_what_the_nearest_lacks(
    several: Variants, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, "")
    with pytest.raises(NeedsRebuildError, match=f"built for {V2}, {V4}, {V3}; even {V2} needs .*sse4.2") as raised:
        Executable.load(saved)
    assert raised.value.contents.variant == V2 and raised.value.reason == "features"
    with pytest.raises(ArtifactError, match="none of"):
        _ = several.here


def test_code_of_another_architecture_is_not_chosen(
    several: Variants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulator may tell the instruction sets of the machine below it."""
    write = artifact._write

    def changed(path: Path, document: dict[str, Any], *rest: Any) -> None:
        document["variants"][2]["machine"] = "riscv64"
        write(path, document, *rest)

    monkeypatch.setattr(artifact, "_write", changed)
    several.save(tmp_path / "m.asx")
    be(monkeypatch, V3)
    assert Executable.load(tmp_path / "m.asx").variant == V2


def test_equal_contents_are_stored_once_and_constants_are_aligned(
    several: Variants, saved: Path, tmp_path: Path
) -> None:
    several.executables[V3].save(tmp_path / "one.asx")
    n_bytes = sum(constant.nbytes for constant in several.executables[V3].constants)
    one, three = (tmp_path / "one.asx").stat().st_size, saved.stat().st_size
    assert n_bytes > 0 and three < 3 * one - 2 * n_bytes  # manifests are left, and the native loop with their seals
    contents = load_contents(saved)
    assert contents.constants[0].ctypes.data % 64 == 0 and not contents.constants[0].flags.writeable
    np.testing.assert_array_equal(contents.constants[0], several.executables[V3].constants[0])


def test_it_runs_and_is_saved_again_as_one(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = chain(3, 2, constant=True)
    Variants({V4: needing(V4, executable), "any": executable}).save(tmp_path / "two.asx")
    be(monkeypatch, V3)
    loaded = Executable.load(tmp_path / "two.asx")
    assert loaded.variant == "any"
    x = np.random.default_rng(0).random((3, 64), "float32")
    np.testing.assert_array_equal(loaded(x).numpy(), executable(x).numpy())
    loaded.save(tmp_path / "again.asx")
    assert Executable.load(tmp_path / "again.asx").variants == ()


def test_damage_is_noticed(saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[100] ^= 1
    (tmp_path / "bad.asx").write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        Executable.load(tmp_path / "bad.asx")


@pytest.mark.parametrize("change", [{"variants": []}, {"variants": 3}, {"variants": [{}]}, {"sections": []}])
def test_a_manifest_that_does_not_fit_is_refused(
    several: Variants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    write = artifact._write

    def changed(path: Path, document: dict[str, object], *rest: object) -> None:
        write(path, document | change, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(artifact, "_write", changed)
    several.save(tmp_path / "bad.asx")
    with pytest.raises(ArtifactError, match="manifest does not fit"):
        Executable.load(tmp_path / "bad.asx")
