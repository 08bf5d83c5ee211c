"""TVM's helpers of tests under their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched import te, testing, tir
from autosched.testing.schedules import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip

FILE = """
from autosched import testing

shape, dtype = testing.parameters((4, "float32"), (8, "int8"), ids=["wide", "narrow"])
named = testing.parameter(by_dict={"small": 1, "large": 100})
seen = []


def test_rows(shape, dtype):
    seen.append((shape, dtype))
    assert (shape, dtype) in ((4, "float32"), (8, "int8"))


def test_one_column(dtype):
    assert dtype in ("float32", "int8")


def test_names(named, request):
    assert request.node.name == {1: "test_names[small]", 100: "test_names[large]"}[named]


calls = []


@testing.fixture(cache_return_value=True)
def data(shape):
    calls.append(shape)
    return [shape]


def test_cached(data):
    data.append(0)
    assert len(data) == 2


def test_cached_again(data):
    assert len(data) == 1 and len(calls) == len(set(calls))
"""


def run(folder: Path, text: str, conftest: str = "") -> tuple[int, str]:
    """Pytest's exit code and output for a file of tests."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def test_parameters_come_in_rows(tmp_path: Path) -> None:
    code, output = run(tmp_path, FILE, 'pytest_plugins = ["autosched.testing.plugin"]')
    assert code == 0 and "10 passed" in output, output


def test_without_the_plugin_they_say_so(tmp_path: Path) -> None:
    code, output = run(
        tmp_path, "from autosched import testing\na, b = testing.parameters((1, 2))\ndef test(a): pass\n"
    )
    assert code == 1 and "autosched.testing.plugin" in output


def test_rows_of_one_length() -> None:
    with pytest.raises(ValueError, match="rows"):
        testing.parameters((1, 2), (3,))


def test_features_mark_tests() -> None:
    assert testing.requires_llvm.marks()[0].args == (False,) and testing.requires_vulkan.marks()[0].args == (True,)
    assert testing.requires_package("numpy", "no_such_package").reason == "needs no_such_package"
    assert testing.env.has_cpu_feature("no-such") is False and testing.strtobool("Off") == 0


def test_numbers() -> None:
    x, five = tir.Var("x", "int32"), tir.Range(tir.IntImm(0, "int32"), tir.IntImm(5, "int32"))
    testing.assert_prim_expr_equal(x * 2 + x, x * 3)
    with pytest.raises(AssertionError, match="differ by"):
        testing.assert_prim_expr_equal(x, x + 1)
    testing.check_bool_expr_is_true(x * x < 17, {x: five})
    testing.check_bool_expr_is_true(x < 3, {x: five}, cond=x < 2)
    with pytest.raises(AssertionError, match="x = 4"):
        testing.check_bool_expr_is_true(x < 4, {x: five})
    a = np.linspace(-1, 1, 12).reshape(3, 4)
    testing.check_numerical_grads(lambda a: a**3, [a], [3 * a**2])
    with pytest.raises(AssertionError, match="gradient of input a"):
        testing.check_numerical_grads(lambda a: a**3, {"a": a}, {"a": 2 * a**2 + 1})


def test_traces_are_done_again() -> None:
    A = te.placeholder((8,), name="A")
    doubled = te.create_prim_func([A, te.compute((8,), lambda i: A[i] * 2.0, name="B")])
    sch = tir.Schedule(doubled)
    outer, _ = sch.split(sch.get_loops("B")[0], [2, None])
    sch.parallel(outer)
    again = verify_trace_roundtrip(sch, doubled)
    assert_structural_equal_ignore_global_symbol(again.mod["main"], sch.mod["main"].with_attr("global_symbol", "x"))
    with pytest.raises(ValueError, match="no_format"):
        verify_trace_roundtrip(sch, doubled, text_format="no_format")
