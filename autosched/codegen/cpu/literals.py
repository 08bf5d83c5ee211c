"""Scales and zero points as data of a kernel's object: kernels that differ in them alone are compiled once.

Before:  out[i] = uint8(max(min(nearbyint(x[i] / 0.0343) + 132, 255), 0))
After:   out[i] = uint8(max(min(nearbyint(quotient(x[i], literal(0), literal(1))) + zero_point(2), 255), 0))

The object has a table of words of 32 bits, which code reads as constants that it does not know. It is compiled once,
and each kernel gets a copy with its own numbers in the table and in the names of its functions. What is computed is the
same to the last bit. Numbers for which there is other code stay in it: 0, powers of two that are factors.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from llvmlite import ir

from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.quantise import LITERAL, QUOTIENT, ZERO_POINT, reciprocal, rounded, scaled
from autosched.codegen.cpu.types import I64, Isa, value_type
from autosched.ir.node import Node, map_children
from autosched.runtime.cpu.kernel import CpuKernel, Phase
from autosched.runtime.elf import read_object
from autosched.runtime.kernel import pack_text, unpack_text
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr
from autosched.tir.function import PrimFunc

TABLE = "autosched_literals"
MOST_WORDS = 64
N = TypeVar("N", bound=Node)
BYTES, WHOLE = ("uint8", "int8"), range(1, 256)
_LINE = re.compile(rf"^@{TABLE} = .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Opened:
    """A function that reads its literals from the table, and the words of the table."""

    func: PrimFunc
    words: tuple[int, ...]


def open_literals(func: PrimFunc, isa: Isa) -> Opened | None:
    """The function with a table for its scales and zero points; None for one without, or with too many of them."""
    opener = _Opener(isa)
    body = opener.of(func.body)
    is_good = opener.has_bytes and 0 < len(opener.words) <= MOST_WORDS
    return Opened(func.with_body(body), tuple(opener.words)) if is_good else None


class _Opener:
    """Rewrites expressions while it fills the table."""

    def __init__(self, isa: Isa):
        self.words: list[int] = []
        self.has_bytes = False  # whether there are quantised values
        self._isa = isa
        self._places: dict[Hashable, int] = {}
        self._made: dict[int, Node] = {}  # by the ids of expressions
        self._scale: float | None = None  # that the bytes at hand are multiplied by

    def of(self, x: N) -> N:
        """An expression or statement with calls in place of literals."""
        made = self._made.get(id(x)) if x.is_scalar else None
        if made is None:
            made = self._opened(x) if isinstance(x, PrimExpr) else None
            if made is None:
                made = x if isinstance(x, Buffer) else map_children(x, self.of)
            if x.is_scalar:
                self._made[id(x)] = made
        return made  # type: ignore[return-value]

    def _opened(self, x: PrimExpr) -> PrimExpr | None:
        self.has_bytes |= isinstance(x, E.Cast) and (x.dtype in BYTES or x.value.dtype in BYTES)
        match x:
            case E.Cast() if self._isa.rounds_bytes and (found := rounded(x)) is not None:
                return self._rounded(x, *found)
            case E.Add(a=E.Call(op="nearbyint") as near, b=E.FloatImm(dtype="float32") as zero) if zero.value:
                return E.Add(self.of(near), self._number(zero))
            case E.Call(op="nearbyint", args=(E.Div(b=E.FloatImm(dtype="float32") as scale) as ratio,)) if _is_open(
                scale
            ):
                return replace(x, args=(self._divided(ratio, scale),))
            case E.Mul(dtype="float32", a=whole, b=E.FloatImm() as scale) if _is_open(scale):
                self._scale, outer = scale.value, self._scale
                whole = self.of(whole)
                self._scale = outer
                return E.Mul(whole, self._number(scale))
            case E.Sub(dtype="int32", a=E.Cast() as byte, b=E.IntImm() as z) if byte.value.dtype in BYTES and z.value:
                return E.Sub(self.of(byte), self._shift(byte.value, z))
        return None

    def _rounded(self, x: E.Cast, value: PrimExpr, zero: int | E.Call) -> PrimExpr:
        """What `rounded` has found: uint8(max(min(nearbyint(value) + zero, 255), 0))."""
        assert isinstance(zero, int), "this function has no table yet"
        ratio, scale = scaled(value) if self._isa.has_fma else None, _scale_of(value)
        if ratio is not None and all(parts := reciprocal(ratio[1])):
            words = (self._word(float(part), "float32") for part in parts)
            value = E.Call(QUOTIENT, (self.of(ratio[0]), *words), "float32")
        elif isinstance(value, E.Div) and isinstance(value.b, E.FloatImm) and ratio is None and _is_open(value.b):
            value = self._divided(value, value.b)
        else:
            value = self.of(value)
        nearest: PrimExpr = E.Call("nearbyint", (value,), "float32")
        if zero in WHOLE:
            nearest = E.Add(nearest, E.Call(ZERO_POINT, (E.IntImm(self._zero(zero, scale)),), "float32"))
        elif zero:
            nearest = E.Add(nearest, E.FloatImm(float(zero), "float32"))
        least = x.value
        assert isinstance(least, E.Max) and isinstance(least.a, E.Min), "just seen"
        return replace(x, value=replace(least, a=replace(least.a, a=nearest)))

    def _divided(self, ratio: E.Div, scale: E.FloatImm) -> PrimExpr:
        return E.Div(self.of(ratio.a), self._number(scale))

    def _shift(self, byte: PrimExpr, z: E.IntImm) -> PrimExpr:
        """A zero point that is subtracted: that by which the byte was made, or one of its own."""
        found = rounded(byte) if self._isa.rounds_bytes and isinstance(byte, E.Cast) else None
        if found is not None and found[1] == z.value and z.value in WHOLE:
            return E.Call(ZERO_POINT, (E.IntImm(self._zero(z.value, _scale_of(found[0])) + 1),), "int32")
        return self._word(z.value, "int32", self._scale)

    def _zero(self, zero: int, scale: float | None) -> int:
        """Where the words of a zero point begin: as a float and an integer, less than 0, and less than 255."""
        words = _bits(zero, "float32"), zero, _bits(-zero, "float32"), _bits(255 - zero, "float32")
        return self._place(words, (ZERO_POINT, zero, scale))

    def _number(self, x: E.FloatImm) -> PrimExpr:
        return self._word(x.value, "float32")

    def _word(self, value: float, dtype: str, *more: Hashable) -> PrimExpr:
        place = self._place((_bits(value, dtype),), (value, dtype, *more))
        return E.Call(LITERAL, (E.IntImm(place),), dtype)

    def _place(self, words: Sequence[int], key: Hashable) -> int:
        """Where words are that one meaning has; two of them that are equal by chance have words of their own."""
        if key not in self._places:
            self._places[key] = len(self.words)
            self.words += words
        return self._places[key]


def _is_open(factor: E.FloatImm) -> bool:
    """Whether the code is the same whatever a factor or divisor is: LLVM has other code for powers of two."""
    return bool(factor.value) and abs(math.frexp(factor.value)[0]) != 0.5


def _bits(value: float, dtype: str) -> int:
    with np.errstate(over="ignore"):  # what float32 does not hold is infinite
        return int(np.array(value, dtype).view("uint32"))


def _scale_of(x: PrimExpr) -> float | None:
    """The literal that a value is divided or multiplied by."""
    return x.b.value if isinstance(x, E.Div | E.Mul) and isinstance(x.b, E.FloatImm) else None


def emit_literal(emitter: Emitter, e: E.Call) -> ir.Value:
    """A word of the table."""
    place = e.args[0]
    assert isinstance(place, E.IntImm), "that is how it is made"
    key = LITERAL, place.value, e.dtype
    if (known := emitter.known(key)) is not None:
        return known
    b, kind = emitter.builder, value_type(e.dtype)
    table = b.module.globals.get(TABLE)
    if table is None:
        table = ir.GlobalVariable(b.module, ir.ArrayType(ir.IntType(32), MOST_WORDS), TABLE)
        table.global_constant, table.linkage, table.storage_class = True, "external", "hidden"
    words = b.bitcast(table, kind.as_pointer())
    return emitter.remember(key, b.load(b.gep(words, [I64(place.value)], inbounds=True), align=4))


def table_text(words: Sequence[int]) -> str:
    """The table as a line of LLVM text; weak, so that what reads it does not know what is there."""
    padded = ", ".join(f"i32 {word}" for word in (*words, *[0] * (MOST_WORDS - len(words))))
    return f"@{TABLE} = weak hidden constant [{MOST_WORDS} x i32] [{padded}], align 4"


def with_literals(kernel: CpuKernel, words: Sequence[int]) -> CpuKernel:
    """A kernel of the same code with other words in its table."""
    data = bytearray(kernel.object_code)
    found = read_object(kernel.object_code)
    (table,) = (symbol for symbol in found.symbols if symbol.name == TABLE)
    struct.pack_into(f"<{len(words)}I", data, found.sections[table.section].offset + table.value, *words)
    renamed = {phase.symbol: _renamed(phase.symbol, words) for phase in kernel.phases}
    llvm, code = _LINE.sub(table_text(words), unpack_text(kernel.llvm_packed)), bytes(data)
    for old, new in renamed.items():
        llvm, code = llvm.replace(old, new), code.replace(old.encode(), new.encode())
    first, rest = kernel.source.split("\n", 1)
    return replace(
        kernel,
        object_code=code,
        llvm_packed=pack_text(llvm),
        phases=tuple(Phase(renamed[phase.symbol], phase.n_tasks) for phase in kernel.phases),
        source=f"{first}\n# words of the literals: {' '.join(f'{word:#x}' for word in words)}\n{rest}",
    )


def _renamed(symbol: str, words: Sequence[int]) -> str:
    """A phase's symbol, name_digest_p0, with the digest of code and words: as long as before."""
    name, digest, phase = symbol.rsplit("_", 2)
    own = hashlib.sha256(f"{digest} {words}".encode()).hexdigest()[: len(digest)]
    return f"{name}_{own}_{phase}"
