"""The VM over symbolic sizes: built once, saved and loaded as machine code, run at every size."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.driver.rebuild import rebuild
from autosched.driver.vm.build_vm import build_vm
from autosched.errors import ArtifactError, ShapeError, TVMError
from autosched.runtime.artifact import load_contents
from autosched.runtime.library import module_of_contents
from autosched.runtime.relax_vm import VirtualMachine, VMExecutable
from autosched.runtime.vm_program import Program
from autosched.script import ir as I
from autosched.script import relax as R
from autosched.script import tir as T

SIZES = (1, 2, 0, 7, 33)


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n", 4), "float32"):
        cls = Open
        if c:
            y = R.add(x, R.const(1.0, "float32"))
        else:
            y = cls.twice(x)
        z = R.cumsum(R.multiply(y, y), axis=0)
        return z

    @R.function(private=True)
    def twice(x: R.Tensor(("m", 4), "float32")) -> R.Tensor(("m", 4), "float32"):
        gv = R.add(x, x)
        return gv

    @R.function
    def padded(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["m"])) -> R.Tensor(("n + m", 4), "float32"):
        m = T.int64()
        rest = R.broadcast_to(R.const(2.0, "float32"), R.shape([m, 4]))
        gv = R.concat((x, rest), axis=0)
        return gv

    @R.function(pure=False)
    def places(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(ndim=2, dtype="int64"):
        m = T.int64()
        found = R.nonzero(R.nn.relu(x))
        known = R.match_cast(found, R.Tensor((2, m), "int64"))
        gv = R.add(known, known)
        return gv

    @R.function
    def grown(x: R.Tensor(("n",), "float32"), bound: R.Tensor((), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        cls = Open
        if R.less(R.sum(x), bound):
            last = R.concat((x, R.sum(x, keepdims=True)), axis=0)
            result = cls.grown(last, bound)
        else:
            result = R.multiply(x, R.const(2.0, "float32"))
        return result

    @R.function(pure=False)
    def step(x: R.Tensor((1, 8), "float32"), cache: R.Object, s: R.Shape(["past"])) -> R.Tuple(
        R.Tensor((1, 8), "float32"), R.Object
    ):
        past = T.int64()
        cache1 = R.call_packed("vm.builtin.attention_kv_cache_append", cache, x, sinfo_args=R.Object)
        rows = R.call_packed(
            "vm.builtin.attention_kv_cache_view", cache1, R.shape([past + 1, 8]),
            sinfo_args=R.Tensor((past + 1, 8), "float32"),
        )  # fmt: skip
        scores = R.matmul(x, R.permute_dims(rows))
        y = R.matmul(R.nn.softmax(scores, axis=-1), rows)
        return (y, cache1)


def padded(x: np.ndarray, m: int) -> np.ndarray:
    return np.concatenate([x, np.full((m, 4), 2, x.dtype)])


def grown(x: np.ndarray, bound: float) -> np.ndarray:
    while x.sum() < bound:
        x = np.append(x, x.sum())
    return 2 * x


def check_all(call: Callable[..., object]) -> None:
    """Compare all functions with NumPy, at sizes in no order."""
    rng = np.random.default_rng(0)
    for n in SIZES:
        x = rng.integers(-4, 5, (n, 4)).astype("float32")
        for taken in (True, False):
            y = x + 1 if taken else 2 * x
            np.testing.assert_allclose(call("main", x, np.array(taken)).numpy(), np.cumsum(y * y, 0), rtol=1e-6)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(call("padded", x, (n + 1,)).numpy(), padded(x, n + 1))  # type: ignore[attr-defined]
        np.testing.assert_array_equal(call("places", x).numpy(), 2 * np.stack(np.nonzero(x > 0)))  # type: ignore[attr-defined]
    for n in (1, 3, 9):
        x, bound = np.ones(n, "float32"), np.float32(100)
        np.testing.assert_allclose(call("grown", x, np.array(bound)).numpy(), grown(x, bound))  # type: ignore[attr-defined]
    first = autosched.nd.array(np.zeros((2, 8), "float32"))
    cache: object = autosched.get_global_func("vm.builtin.attention_kv_cache_create")(first, (2, 8), 0)
    rows = rng.standard_normal((9, 8)).astype("float32")
    for past in range(9):
        x = rows[past : past + 1]
        y, cache = call("step", x, cache, (past,))  # type: ignore[misc]
        weights = np.exp(x @ rows[: past + 1].T)
        np.testing.assert_allclose(y.numpy(), weights / weights.sum() @ rows[: past + 1], rtol=1e-5)


@pytest.fixture(scope="module")
def built() -> VMExecutable:
    return relax.build(Open, "llvm")


def test_built_once_for_all_sizes(built: VMExecutable) -> None:
    assert not built.symbolic
    machine, before = VirtualMachine(built), counters.COMPILES.value
    check_all(lambda name, *args: machine[name](*args))
    assert counters.COMPILES.value == before


def test_files_hold_machine_code(built: VMExecutable, tmp_path: Path) -> None:
    path = tmp_path / "open.so"
    built.export_library(path)
    before = counters.COMPILES.value
    loaded = autosched.load(path)
    check_all(lambda name, *args: loaded[name](*args))
    assert counters.COMPILES.value == before
    script = f"""
import sys, numpy as np, autosched
x = np.ones((5, 4), "float32")
assert autosched.load({str(path)!r})["padded"](x, (3,)).shape == (8, 4)
assert not [m for m in sys.modules if m.startswith(("numba", "autosched.codegen", "autosched.relax", "autosched.tir"))]
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    again = rebuild(load_contents(path))  # as on a machine that the code is not for
    check_all(lambda name, *args: again[name](*args))


def test_sizes_that_do_not_fit(built: VMExecutable) -> None:
    x, yes = np.ones((3, 4), "float32"), np.array(True)
    with pytest.raises(ShapeError, match=r"argument 'x' has shape \[3, 3\] instead of \[n, 4\] \(in main\(x: Tensor"):
        built["main"](x[:, :3], yes)
    with pytest.raises(TypeError, match="argument 's' is a str, no shape or size"):
        built["padded"](x, "much")
    with pytest.raises(ShapeError, match=r"argument 's' has shape \[1, 2\] instead of \[m\]"):
        VirtualMachine(built).set_input("padded", x, (1, 2))
    with pytest.raises(ShapeError, match=r"\[m\] is \[-1\], no shape"):
        built["padded"](x, (-1,))


def test_sizes_for_which_code_of_all_sizes_is_not(built: VMExecutable) -> None:
    x = np.ones((3, 4), "float32")
    assert np.array_equal(VMExecutable(built.program)["padded"](x, (0,)).numpy(), x)  # as it is loaded
    module = autosched.script.from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["m"])) -> R.Tensor(("m", 4), "float32"):
        m = T.int64()
        y = R.broadcast_to(x, R.shape([m, 4]))
        return y

    @R.function
    def total(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
        z = R.add(R.sum(x), y)
        return z
""")
    broadcast = relax.build(module, "llvm")
    assert np.array_equal(broadcast["main"](x, (3,)).numpy(), x)
    assert np.array_equal(broadcast["main"](x[:1], (2,)).numpy(), x[:2])
    assert broadcast["total"](x, np.float32(5)).numpy() == 17
    assert broadcast["total"](x[:0], np.float32(5)).numpy() == 5
    with pytest.raises(ShapeError, match="needs n == m, and gets m 2, n 3"):
        broadcast["main"](x, (2,))


def test_damaged_code_is_refused() -> None:
    program = build_vm(Open, "llvm")
    data = program.to_bytes()
    for wrong in (b'["blank", 2, "q"]', b'["blank", 2, ["^", "m", 1]]', b'["blank", 9, "m"]'):
        with pytest.raises(TVMError, match="damaged"):
            damaged = data.replace(b'["blank", 2, "m"]', wrong)
            size = len(damaged) - len(data)
            head = int.from_bytes(data[8:16], "little") + size
            Program.from_bytes(damaged[:8] + head.to_bytes(8, "little") + damaged[16:], program.library())


def test_a_run_is_profiled_at_its_sizes(built: VMExecutable) -> None:
    report = VirtualMachine(built).profile("main", np.ones((3, 4), "float32"), np.array(True))
    assert report.calls and not any("relu" in call["Name"] for call in report.calls)  # of other functions


@I.ir_module
class Mixed:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        y = R.add(x, x)
        return y

    @R.function
    def doubled(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("2 * n", 4), "float32"):
        cls = Mixed
        z = cls.main(x)
        y = R.repeat(z, 2, 0)
        return y

    @R.function
    def caller(x: R.Tensor((3, 4), "float32")) -> R.Tensor((6, 4), "float32"):
        cls = Mixed
        y = cls.doubled(x)
        return y

    @R.function
    def chosen(x: R.Tensor(("m", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("2 * m", 4), "float32"):
        cls = Mixed
        h = R.nn.relu(x)
        if c:
            z = cls.doubled(h)
        else:
            y = cls.doubled(x)
            z = R.add(y, R.const(1.0, "float32"))
        return z


def check_mixed(built: VMExecutable, symbolic: list[str]) -> None:
    assert sorted(built.symbolic) == symbolic
    for n in (3, 2, 3):
        x = np.arange(4 * n, dtype="float32").reshape(n, 4) - 5
        assert np.array_equal(built["doubled"](x).numpy(), (2 * x).repeat(2, 0))
        assert np.array_equal(built["chosen"](x, np.array(True)).numpy(), 2 * np.maximum(x, 0).repeat(2, 0))
        assert np.array_equal(built["chosen"](x, np.array(False)).numpy(), 2 * x.repeat(2, 0) + 1)
    assert np.array_equal(built["caller"](np.ones((3, 4), "float32")).numpy(), np.full((6, 4), 2))


@pytest.mark.parametrize("at_once", [True, False])
def test_one_function_that_cannot_be_built_once(at_once: bool, tmp_path: Path) -> None:
    built = relax.build(Mixed, "llvm", at_once=at_once)
    symbolic = ["doubled"] if at_once else ["chosen", "doubled", "main"]
    check_mixed(built, symbolic)
    built.export_library(tmp_path / "mixed.so")
    before = counters.COMPILES.value
    loaded = autosched.load(tmp_path / "mixed.so")
    if at_once:
        assert np.array_equal(loaded["main"](np.ones((5, 4), "float32")).numpy(), np.full((5, 4), 2))
    assert counters.COMPILES.value == before
    check_mixed(loaded, symbolic)
    check_mixed(pickle.loads(pickle.dumps(built)), symbolic)


def test_text_of_a_function_is_checked(tmp_path: Path) -> None:
    relax.build(Mixed, "llvm").export_library(tmp_path / "mixed.so")
    contents = load_contents(tmp_path / "mixed.so")
    contents.info["manifest"]["symbolic"]["source"] = 3
    with pytest.raises(ArtifactError, match="is damaged"):
        module_of_contents(contents)
