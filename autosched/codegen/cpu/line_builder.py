"""`LineBuilder`: llvmlite's builder, where what unrolled code is made of becomes text at once.

llvmlite makes an object with a name of its own for each instruction and prints all of them afterwards, which is a
third of the time that a register tile takes before LLVM sees it. Here the frequent instructions are a line of text
each; all others are llvmlite's. A pointer that is only to have another type is no instruction: LLVM's have none.
What depends on nothing but its operands is in a block once: unrolled code asks for many indices and conditions again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir


class Line(ir.Value):  # type: ignore[misc]  # llvmlite has no types
    """What an instruction gives: its type, its name, both as an operand of others, and the instruction's text."""

    __slots__ = ("name", "operand", "text", "type")

    def __init__(self, kind: ir.Type, name: str, operand: str, text: str):
        self.type, self.name, self.operand, self.text = kind, name, operand, text

    def get_reference(self) -> str:
        """The name, as llvmlite asks for it."""
        return self.name

    def __str__(self) -> str:
        return self.text


def operand(value: ir.Value) -> str:
    """A value with its type."""
    if type(value) is Line:
        return value.operand
    if isinstance(value, ir.Constant):
        return str(value)  # which it keeps
    return f"{_type_text(value.type)} {value.get_reference()}"


def _type_text(kind: ir.Type) -> str:
    return "ptr" if _is_pointer(kind) else str(kind)


def _is_pointer(kind: ir.Type) -> bool:
    return isinstance(kind, ir.PointerType) and not kind.addrspace


@functools.cache
def _shuffled(element: ir.Type, lanes: int) -> ir.Type:
    return ir.VectorType(element, lanes)


def _truth(kind: ir.Type) -> ir.Type:
    """The type of a comparison of two values of a type."""
    return _shuffled(_BIT, kind.count) if isinstance(kind, ir.VectorType) else _BIT


def _binary(operation: str) -> Callable[..., ir.Value]:
    def build(self: LineBuilder, lhs: ir.Value, rhs: ir.Value, name: str = "", flags: Sequence[str] = ()) -> ir.Value:
        kind = lhs.type
        if name or flags or (kind is not rhs.type and kind != rhs.type):
            return getattr(super(LineBuilder, self), _METHODS.get(operation, operation))(lhs, rhs, name, flags)
        return self._pure(kind, f"{operation} {operand(lhs)}, {rhs.get_reference()}")

    return build


_METHODS = {"and": "and_", "or": "or_"}
_COMPARISONS = {">": "gt", "<": "lt", "==": "eq", "!=": "ne", ">=": "ge", "<=": "le"}


class LineBuilder(ir.IRBuilder):  # type: ignore[misc]
    """A builder at the end of a block. All builders of one function are to be of this class, or none of them."""

    def __init__(self, block: ir.Block):
        super().__init__(block)
        function = block.function
        if not hasattr(function, "line_numbers"):
            function.line_numbers = itertools.count()
        self._numbers: Iterator[int] = function.line_numbers
        self._made: dict[str, Line] = {}  # by their texts
        self._made_in = block

    def _line(self, kind: ir.Type, text: str) -> Line:
        """An instruction with a result."""
        name = f"%$.{next(self._numbers)}"  # no name that llvmlite gives begins so
        made = Line(kind, name, f"{_type_text(kind)} {name}", f"{name} = {text}")
        self._block.instructions.insert(self._anchor, made)
        self._anchor += 1
        return made

    def _pure(self, kind: ir.Type, text: str) -> Line:
        """An instruction whose result depends on its operands alone: the one that the block has already."""
        if self._made_in is not self._block:
            self._made_in, self._made = self._block, {}
        if (found := self._made.get(text)) is None:
            found = self._made[text] = self._line(kind, text)
        return found

    def _effect(self, text: str) -> Line:
        """An instruction without a result."""
        made = Line(_VOID, "", "", text)
        self._block.instructions.insert(self._anchor, made)
        self._anchor += 1
        return made

    def load(self, ptr: ir.Value, name: str = "", align: int | None = None, typ: ir.Type | None = None) -> ir.Value:
        kind = ptr.type
        if name or typ is not None or not _is_pointer(kind) or kind.is_opaque:
            return super().load(ptr, name, align, typ)
        aligned = "" if align is None else f", align {align}"
        return self._line(kind.pointee, f"load {_type_text(kind.pointee)}, ptr {ptr.get_reference()}{aligned}")

    def store(self, value: ir.Value, ptr: ir.Value, align: int | None = None) -> ir.Value:
        kind = ptr.type
        if not _is_pointer(kind) or kind.is_opaque or (kind.pointee is not value.type and kind.pointee != value.type):
            return super().store(value, ptr, align)
        aligned = "" if align is None else f", align {align}"
        return self._effect(f"store {operand(value)}, ptr {ptr.get_reference()}{aligned}")

    def gep(
        self, ptr: ir.Value, indices: Sequence[ir.Value], inbounds: bool = False, name: str = "",
        source_etype: ir.Type | None = None,
    ) -> ir.Value:  # fmt: skip
        kind = ptr.type
        if name or source_etype is not None or len(indices) != 1 or not _is_pointer(kind) or kind.is_opaque:
            return super().gep(ptr, indices, inbounds, name, source_etype)
        operation = "getelementptr inbounds" if inbounds else "getelementptr"
        text = f"{operation} {_type_text(kind.pointee)}, ptr {ptr.get_reference()}, {operand(indices[0])}"
        return self._pure(kind, text)

    def bitcast(self, value: ir.Value, typ: ir.Type, name: str = "") -> ir.Value:
        if not _is_pointer(value.type) or not _is_pointer(typ):
            return super().bitcast(value, typ, name)
        reference = value.get_reference()
        return Line(typ, reference, f"ptr {reference}", "")

    def call(self, fn: ir.Value, args: Sequence[ir.Value], *options: Any, **named: Any) -> ir.Value:
        kind = fn.function_type
        is_plain = isinstance(fn, ir.Function) and not kind.var_arg and not fn.calling_convention
        if options or named or not is_plain or not _fits(kind.args, args):
            return super().call(fn, args, *options, **named)
        result = kind.return_type
        text = f"call {_type_text(result)} {fn.get_reference()}({', '.join(map(operand, args))})"
        return self._effect(text) if isinstance(result, ir.VoidType) else self._line(result, text)

    def insert_element(self, vector: ir.Value, value: ir.Value, idx: ir.Value, name: str = "") -> ir.Value:
        if name or vector.type.element != value.type:
            return super().insert_element(vector, value, idx, name)
        return self._pure(vector.type, f"insertelement {operand(vector)}, {operand(value)}, {operand(idx)}")

    def shuffle_vector(self, vector1: ir.Value, vector2: ir.Value, mask: ir.Value, name: str = "") -> ir.Value:
        if name or vector2 is ir.Undefined or vector1.type != vector2.type:
            return super().shuffle_vector(vector1, vector2, mask, name)
        kind = _shuffled(vector1.type.element, mask.type.count)
        return self._pure(kind, f"shufflevector {operand(vector1)}, {operand(vector2)}, {operand(mask)}")

    def _icmp(self, prefix: str, cmpop: str, lhs: ir.Value, rhs: ir.Value, name: str) -> ir.Value:
        if name or lhs.type != rhs.type or cmpop not in _COMPARISONS:
            return super()._icmp(prefix, cmpop, lhs, rhs, name)
        relation = ("" if cmpop in ("==", "!=") else prefix) + _COMPARISONS[cmpop]
        return self._pure(_truth(lhs.type), f"icmp {relation} {operand(lhs)}, {rhs.get_reference()}")

    def select(
        self, cond: ir.Value, lhs: ir.Value, rhs: ir.Value, name: str = "", flags: Sequence[str] = ()
    ) -> ir.Value:
        if name or flags or lhs.type != rhs.type:
            return super().select(cond, lhs, rhs, name, flags)
        return self._pure(lhs.type, f"select {operand(cond)}, {operand(lhs)}, {operand(rhs)}")

    add, sub, mul, and_, or_ = (_binary(name) for name in ("add", "sub", "mul", "and", "or"))
    udiv, urem, lshr = (_binary(name) for name in ("udiv", "urem", "lshr"))
    fadd, fsub, fmul, fdiv = (_binary(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


def _fits(wanted: Sequence[ir.Type], given: Sequence[ir.Value]) -> bool:
    """Whether arguments have the types that a function takes, none of which is metadata."""
    return len(wanted) == len(given) and all(
        (kind is value.type or kind == value.type) and not isinstance(kind, ir.MetaDataType)
        for kind, value in zip(wanted, given, strict=True)
    )


_VOID, _BIT = ir.VoidType(), ir.IntType(1)
