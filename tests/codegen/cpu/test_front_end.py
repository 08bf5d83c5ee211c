"""The front end for generated source: against Python, and against Numba's."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from llvmlite import ir

import autosched
from autosched.codegen.cpu import machine
from autosched.codegen.cpu.front_end import Compiler, Intrinsic, Signature
from autosched.codegen.cpu.machine import Machine, optimise
from autosched.codegen.cpu.types import I64
from autosched.errors import CodegenError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.loader import load_object_code
from autosched.target import Target, host_cpu
from autosched.testing.numba_front_end import lower_by_numba
from tests.frontend.onnx_models import make, node, small_conv_net

ARITHMETIC = """
LIMIT = 7

def clipped(x) -> int:
    if x > LIMIT:
        return LIMIT
    elif x < -LIMIT and not x == -100:
        return -LIMIT
    return x

def f(a, b, c) -> int:
    total, n = clipped(a), 0
    for i in range(b):
        if i % 3 == 1:
            continue
        if i > 20:
            break
        total += i * (a if c > 0 else -a) // max(c, 2, i)
    for i in range(-2, 3):
        total -= i
    while n < 5 or (n < 9 and a > b):
        n += 1
        for _ in range(2):
            pass
    return total + (n << 2 | 1) - (a >> 1) + (b % c) + (a // c) + (a & 12)
"""


def python_function(text: str):
    scope: dict[str, object] = {}
    exec(text, scope)
    return scope["f"]


def compiled_function(text: str, n_arguments: int = 3, numbers=None):
    module = ir.Module("test")
    Compiler(text, module, {}, numbers or {}).compile("f", Signature("f_here", (I64,) * n_arguments, I64))
    host = Machine.of(Target("cpu"))
    code = host.llvm.emit_object(optimise([str(module)], host))
    (table,) = load_object_code([("f", code)])
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * n_arguments)(table["f_here"])
    function.kept = table
    return function


@pytest.mark.skipif(host_cpu().architecture != "x86_64", reason="loads code of this machine")
def test_whole_numbers_are_those_of_python():
    expected, found = python_function(ARITHMETIC), compiled_function(ARITHMETIC, numbers={"LIMIT": 7})
    values = (-100, -9, -1, 1, 2, 8, 25)
    for a, b, c in itertools.product(values, values, values):
        assert found(a, b, c) == expected(a, b, c), (a, b, c)


def test_what_has_no_quotient_is_0():
    divide = compiled_function("def f(a, b) -> int:\n    return a // b + 1000 * (a % b)", 2)
    assert divide(5, 0) == 0
    assert divide(-(2**63), -1) == -(2**63)


@pytest.mark.parametrize(
    "body",
    ["return a / 2", "return [a]", "return a @ 2", "return later", "return g(a)", "a: int = 3", "return one(True)"],
)
def test_other_code_is_refused(body: str) -> None:
    module, one = ir.Module("test"), Intrinsic((I64,), I64, lambda builder, x: x)
    compiler = Compiler(f"def f(a) -> int:\n    {body}", module, {"one": one})
    with pytest.raises(CodegenError, match="generated source"):
        compiler.compile("f", Signature("f_here", (I64,), I64))


def test_an_intrinsic_is_compiled_and_never_called():
    with pytest.raises(CodegenError, match="only compiled code"):
        Intrinsic((), I64, lambda builder: None)()


@pytest.mark.parametrize("dims", [None, "tokens"])
def test_numba_compiles_the_same_source_to_the_same_results(dims, monkeypatch, tmp_path):
    """A network of fixed sizes, and one whose sizes come with the call."""
    rng = np.random.default_rng(0)
    if dims is None:
        model, x = small_conv_net(), rng.standard_normal((2, 3, 8, 8)).astype("f4")
    else:
        weights = {"w": rng.standard_normal((40, 24)).astype("f4"), "b": rng.standard_normal(24).astype("f4")}
        nodes = [node("Gemm", "x w b", "m"), node("Tanh", "m", "y")]
        model, x = make(nodes, {"x": (dims, 40)}, ["y"], weights), rng.standard_normal((13, 40)).astype("f4")
    results = []
    for lower in (machine.lower_source, lower_by_numba):
        monkeypatch.setattr(machine, "lower_source", lower)
        monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / lower.__name__))
        results.append(autosched.build(from_onnx(model), threads=2)(x=x).numpy())
    assert results[0].tobytes() == results[1].tobytes()
