"""Own functions compiled ahead of time: the same results without Numba, and refusals in one line."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import autosched
from autosched.cli import main
from autosched.errors import ArtifactError, InvalidTypeError, InvalidValueError, UsageError
from autosched.runtime.artifact import _HEADER, Contents, load_contents, save_contents
from tests.own.test_function import win
from tests.runtime.test_artifact_check import write


@numba.njit
def half(value):
    return value / 2


@autosched.autotune({"block": [1, 16, 64]})
@numba.njit
def halves(x, a, out, block=16):
    """Allocates, calls another function, raises, returns a number."""
    rest = np.empty(x.shape[0], x.dtype)
    if a == 7:
        raise ValueError("seven")
    for i in range(x.shape[0]):
        rest[i] = 0
        for j in range(x.shape[1]):
            out[i, j] = half(x[i, j]) / a
            rest[i] += np.sin(x[i, j])
    return rest.sum() + block


@autosched.autotune({"part": [2, 4]}, constraints=["x_size % part == 0"])
@numba.njit
def in_parts(x, part=2):
    for start in range(0, x.size, part):
        for i in range(part):
            x[start + i] += 1


@autosched.autotune({"fastmath": [False, True]}, key=["n"])
@numba.njit
def first(x, n):
    total = 0.0
    for i in range(n):
        total += x[i]
    return total


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "usual.db"))
    for function in (halves, in_parts, first):
        function.forget()


SCRIPT = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import json, numpy as np, autosched
call = autosched.load(sys.argv[1])
found = []
for dtype in ("float32", "float64"):
    for shape in ((3, 5), (0, 5), (2, 0), (65, 17)):
        x = np.linspace(-2, 2, shape[0] * shape[1], dtype=dtype).reshape(shape)
        out = np.empty_like(x)
        found.append([call(x, 2, out=out), float(out.sum())])
for a in (7.0, 0.0):
    try:
        call(x, a, out)
    except (ValueError, ZeroDivisionError) as error:
        found.append([type(error).__name__, str(error)])
print(json.dumps(found))
"""


def test_an_artifact_runs_without_numba(tmp_path: Path) -> None:
    path = tmp_path / "halves.asx"
    halves.save(path, signatures=["float32[:,:], float64, float32[:,:]", "(float64[:, :], float64, float64[:, :])"])
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found[-2:] == [["ValueError", "seven"], ["ZeroDivisionError", "division by zero"]]
    at = 0
    for dtype in ("float32", "float64"):
        for shape in ((3, 5), (0, 5), (2, 0), (65, 17)):
            x = np.linspace(-2, 2, shape[0] * shape[1], dtype=dtype).reshape(shape)
            out = np.empty_like(x)
            wanted = halves(x, 2.0, out)
            assert found[at] == pytest.approx([wanted, float(out.sum())], rel=1e-5)
            at += 1


def test_arguments_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    x = np.ones((4, 6))
    halves.save(tmp_path / "k", x, 2.0, np.empty_like(x))
    call = autosched.load(tmp_path / "k")
    assert call.signatures == ("float64[:,:], float64, float64[:,:]",) and call.parameters == ("x", "a", "out")
    locked = np.empty_like(x)
    locked.flags.writeable = False
    for values, text in (
        ((x.T, 1.0, x), "C layout"),
        ((x[0], 1.0, x), "2 dimensions, not float64 with 1"),
        ((x.astype(">f8"), 1.0, x), "takes an array of float64"),
        ((x, 1j, x), "not a complex"),
        ((x, x, x), "takes a number"),
        ((x, 1.0, locked), "read-only"),
        ((x, 1.0), "'out' is missing"),
        ((x, 1.0, x, 2), "takes 3 arguments"),
    ):
        with pytest.raises(InvalidTypeError, match=text):
            call(*values)


def test_records_choose_the_code_of_each_size(tmp_path: Path) -> None:
    small, large = np.ones((4, 6)), np.ones((400, 6))
    win(halves, (small, 2.0, small), block=1)
    win(halves, (large, 2.0, large), block=64)
    halves.save(tmp_path / "k.asx")
    call = autosched.load(tmp_path / "k.asx")
    assert len(call.kernels) == 2
    for x, block in ((small, 1), (np.ones((5, 6)), 1), (large, 64), (np.ones((300, 7)), 64)):
        assert call(x, 2.0, np.empty_like(x)) - np.sin(x).sum() == pytest.approx(block)


def test_records_by_key_are_compiled_too(tmp_path: Path) -> None:
    x = np.arange(100.0)
    win(first, (x, 60), fastmath=True)
    first.save(tmp_path / "k.asx")
    call = autosched.load(tmp_path / "k.asx")
    assert call(x, 50) == x[:50].sum() and call.signatures == ("float64[:], int64",)


def test_code_is_for_the_numbers_that_its_constraints_read(tmp_path: Path) -> None:
    x = np.zeros(8)
    win(in_parts, (x,), part=4)
    in_parts.save(tmp_path / "k.asx")
    call = autosched.load(tmp_path / "k.asx")
    call(x)
    assert (x == 1).all()
    with pytest.raises(InvalidValueError, match="x_size=8 alone"):
        call(np.zeros(6))
    with pytest.raises(UsageError, match="constraints of in_parts read x_size"):
        in_parts.save(tmp_path / "k.asx", signatures=["float32[:]"])


def test_what_cannot_be_compiled_ahead_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.asx"

    def refused(text: str, function: Any, *values: Any, **options: Any) -> None:
        with pytest.raises(UsageError, match=text):
            function.save(path, *values, **options)
        assert not path.exists()

    def tuned(func: Any, **options: Any) -> Any:
        return autosched.autotune({"fastmath": [False, True]})(numba.njit(**options)(func))

    x = np.ones(4)
    refused("nothing says for which arguments", halves)
    refused("names 1 types", halves, signatures=["float64[:]"])
    refused("is no list of types", halves, signatures=["real, float64, float64"])
    refused("no C layout", tuned(lambda x: x[0]), np.ones((4, 4))[:, 1])
    refused("is an array of complex128", tuned(lambda x: x[0]), np.ones(3, complex))
    refused("is a tuple", tuned(lambda x: x[0]), (1.0, 2.0))
    refused("which is no number", tuned(lambda x: x + 1), x)
    refused("which is no number", tuned(lambda x: (x[0], 1)), x)
    refused("needs what only Numba has", tuned(lambda x: np.random.rand()), x)
    refused("parallel=True", tuned(lambda x: x.sum(), parallel=True), x)
    refused("does not compile", tuned(lambda x: x.nothing), x)
    refused("is a ufunc", autosched.autotune({"fastmath": [True]})(numba.vectorize(lambda x: x + 1)), x)
    refused("no fixed number", tuned(lambda *x: x[0]), x)


def test_a_manifest_that_does_not_fit_its_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.asx"
    halves.save(path, signatures=["float64[:,:], float64, float64[:,:]"])
    whole = load_contents(path)
    for shapes in ([[1], [], [1, 1]], [[1, 1], []], [[-1, 1], [], [1, 1]]):
        manifest = json.loads(json.dumps(whole.info["manifest"]))
        manifest["variants"][0][1] = shapes
        changed = Contents("function", whole.kernels, b"", {}, (), {"entry": "", "manifest": manifest})
        save_contents(changed, tmp_path / "changed.asx")
        with pytest.raises(ArtifactError, match="damaged"):
            autosched.load(tmp_path / "changed.asx")
    for decides in ({}, {"decides": 7}, {"decides": [7]}):
        manifest = {key: value for key, value in whole.info["manifest"].items() if key != "decides"} | decides
        changed = Contents("function", whole.kernels, b"", {}, (), {"entry": "", "manifest": manifest})
        save_contents(changed, tmp_path / "changed.asx")
        with pytest.raises(ArtifactError, match="'decides' is missing|is no list of arguments"):
            autosched.load(tmp_path / "changed.asx")


def test_for_which_calls_a_kernel_is_cannot_be_changed(tmp_path: Path) -> None:
    """A kernel in parts of two would write behind an array of odd size."""
    path = tmp_path / "k.asx"
    in_parts.save(path, np.zeros(8))
    data = path.read_bytes()
    size, start = struct.unpack_from("<QQ", data, 16)
    manifest = json.loads(data[_HEADER.size : _HEADER.size + size])
    manifest["info"]["manifest"]["variants"][0][2] = {}
    write(path, json.dumps(manifest).encode(), data[start:])
    with pytest.raises(ArtifactError, match="is not the one that it describes"):
        autosched.load(path)


def test_the_command_builds_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scale.asx"
    scale = "tests.own.kernels:scale"
    assert main(["build", scale, "-o", str(path)]) == 0
    assert f"1 configuration; written to {path}" in capsys.readouterr().err
    x = np.arange(5.0)
    autosched.load(path)(x, 2.0)
    assert (x == 2 * np.arange(5.0)).all()
    for words in (["inspect"], ["run"], ["bench"], ["bench", "--profile"]):
        assert main([words[0], str(path), *words[1:]]) == 2
        said = capsys.readouterr().err
        assert f"{path} holds functions and no model; " in said and said.count("\n") == 1
    flags = (["--shapes", "x:3"], "--shapes is for models"), (["--signature", "f8"], "is no list of types")
    for given, text in (*flags, (["--target", "cuda"], "compiled for this CPU")):
        assert main(["build", scale, "-o", str(path), *given]) == 2
        assert text in capsys.readouterr().err
