"""Directed rounding, and the small language in which the emulator's machine part is written."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from llvmlite import binding as llvm

from autosched.codegen.cuda.emulate import words
from autosched.codegen.cuda.emulate.machine import machine, to_machine_code
from autosched.errors import CodegenError

from .kernels import F32, F64, launch

cuda = pytest.importorskip("numba.cuda")
from numba.cuda import libdevice  # noqa: E402


def single(a, out):
    i = cuda.threadIdx.x
    x, y, z = a[i], a[i + 64], a[i + 128]
    out[i], out[i + 64], out[i + 128] = (
        libdevice.fmaf_rz(x, y, z),
        libdevice.fmaf_rd(x, y, z),
        libdevice.fmaf_ru(x, y, z),
    )
    out[i + 192], out[i + 256] = libdevice.fadd_rd(x, y), libdevice.fmul_ru(x, y)


def double(a, out):
    i = cuda.threadIdx.x
    x, y, z = a[i], a[i + 64], a[i + 128]
    out[i], out[i + 64], out[i + 128] = libdevice.fma_rz(x, y, z), libdevice.fma_rd(x, y, z), libdevice.fma_ru(x, y, z)
    out[i + 192], out[i + 256] = libdevice.dadd_rd(x, y), libdevice.dmul_ru(x, y)


@pytest.mark.parametrize("kernel, kind, pointer", [(single, np.float32, F32), (double, np.float64, F64)])
def test_rounding_to_zero_down_and_up_is_exact(kernel, kind, pointer):
    a = (np.random.default_rng(0).standard_normal((3, 64)) * 10.0 ** np.arange(-8, 8).repeat(4)).astype(kind)
    out = np.zeros((5, 64), kind)
    launch(kernel, (pointer, pointer), (1,), (64,), [a, out])
    for k in range(64):
        x, y, z = (Fraction(float(v)) for v in a[:, k])
        exact = x * y + z
        down, up = (_bound(exact, kind, away) for away in (-np.inf, np.inf))
        assert list(out[:3, k]) == [down if exact > 0 else up, down, up]
        assert out[3, k] == _bound(x + y, kind, -np.inf) and out[4, k] == _bound(x * y, kind, np.inf)


def _bound(exact, kind, direction):
    """The largest number not above, or the smallest not below, an exact value."""
    near = kind(float(exact))
    while (Fraction(float(near)) > exact) if direction < 0 else (Fraction(float(near)) < exact):
        near = np.nextafter(near, kind(direction))
    while True:
        following = np.nextafter(near, kind(-direction))
        if (Fraction(float(following)) > exact) if direction < 0 else (Fraction(float(following)) < exact):
            return near
        near = following


def collatz(start: int, limit: int) -> int:
    steps = 0
    while start != 1 and steps < limit:
        start = start // 2 if start % 2 == 0 else 3 * start + 1
        steps += 1
        if steps == 1000:
            break
    return steps


def bits(value: int) -> int:
    total = 0
    for k in range(0, 64, 2):
        if value >> k & 1 == 0:
            continue
        total += 1
    return total if not (total > 20 or value == 5) else -total


def too_much(value: int) -> int:
    return len(str(value))


def test_functions_of_words():
    module = llvm.parse_assembly(str(words.to_module([collatz, bits], "test")))
    machine()  # which prepares LLVM
    engine = to_machine_code(module)
    call = type(machine())({name: engine.get_function_address(name) for name in ("collatz", "bits")}, engine).call
    assert [call("collatz", n, 500) for n in (1, 6, 27)] == [collatz(n, 500) for n in (1, 6, 27)] == [0, 8, 111]
    assert [call("bits", n) for n in (0, 5, 6, 85, -1)] == [0, -2, 1, 4, -32]
    with pytest.raises(CodegenError, match="outside the language"):
        words.to_module([too_much], "test")


def test_halves_are_converted_exactly():
    code = machine()
    halves = np.arange(0, 65536, 37, dtype=np.uint16)
    values = halves.view(np.float16).astype(np.float32)
    for half, value, pattern in zip(halves.tolist(), values, values.view(np.uint32).tolist()):
        if not np.isnan(value):
            assert code.call("f32_of_f16", half) == pattern and code.call("f16_of_f32", pattern) == half
    numbers = (np.random.default_rng(0).standard_normal(500) * 10.0 ** np.arange(-9, 6).repeat(34)[:500]).astype(
        np.float32
    )
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16).view(np.uint16)
    assert [code.call("f16_of_f32", n) for n in numbers.view(np.uint32).tolist()] == expected.tolist()
