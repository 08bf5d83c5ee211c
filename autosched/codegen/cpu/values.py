"""Emits the values of expressions, as scalars where all lanes agree and as vectors where they do not."""

from __future__ import annotations

from typing import TypeGuard

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.calls import apply_function, emit_call
from autosched.codegen.cpu.division import signed_division
from autosched.codegen.cpu.index import Index
from autosched.codegen.cpu.math import GATES
from autosched.codegen.cpu.memory import MemoryEmitter
from autosched.codegen.cpu.quantise import emit_quotient, emit_rounded, emit_whole, requantised, rounded, scaled
from autosched.codegen.cpu.types import (
    I1,
    I64,
    call_intrinsic,
    constant,
    is_signed,
    lanes_of,
    splat,
    suffix,
    value_type,
)  # fmt: skip
from autosched.codegen.cpu.unpack import emit_field
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.ir.structural import structural_equal
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import PrimExpr
from autosched.tir.extrema import LastingMax, LastingMin, NumberMax

WORD_BYTES = 8  # of a check's words
_COMPARE = {E.EQ: "==", E.NE: "!=", E.LT: "<", E.LE: "<=", E.GT: ">", E.GE: ">="}


class ValueEmitter(MemoryEmitter):
    """Adds values to addresses and memory."""

    def value(self, e: PrimExpr) -> ir.Value:
        """The LLVM value of an expression."""
        if is_int(e.dtype) and e.dtype != "bool" and not isinstance(e, BufferLoad) and self.is_pure(e):
            return self.index_value(e)
        match e:
            case E.IntImm() | E.FloatImm():
                return constant(value_type(e.dtype), e.value if e.dtype != "bool" else int(bool(e.value)))
            case BufferLoad():
                return self.load(e.buffer, e.indices)
            case E.Var():
                return self.env[e]
            case E.Add() | E.Sub() | E.Mul() if is_float(e.dtype):
                return self.float_arithmetic(e)
            case E.CmpOp() if not isinstance(e, E.And | E.Or):
                return self.comparison(e)
            case E.And() | E.Or():
                return self.logical(e)
            case E.Not():
                x = self.value(e.a)
                return (
                    I1(int(not x.constant)) if isinstance(x, ir.Constant) and lanes_of(x) == 1 else self.builder.not_(x)
                )
            case E.BinaryOp():
                return self.binary(e)
            case E.Select():
                return self.selected(e)
            case E.Cast() if (field := emit_field(self, e)) is not None:
                return field
            case E.Cast() if self.isa.rounds_bytes and (found := rounded(e)) is not None:
                return emit_rounded(self, self.quotient(found[0]), found[1])
            case E.Cast() if self.isa.rounds_bytes and (again := requantised(e)) is not None:
                return self.cast(emit_whole(self, self.quotient(again[0]), *again[1:]), "int32", "float32")
            case E.Cast():
                return self.cast(self.value(e.value), e.value.dtype, e.dtype)
            case E.Let():
                self.env[e.var] = self.bound(e.value)
                return self.value(e.body)
            case E.Call(op="if_then_else"):
                return self.guarded(*e.args)
            case E.Call(op="likely"):
                return self.value(e.args[0])
            case E.Call():
                return self.call(e)
        raise CodegenError(f"no code for {type(e).__name__} expressions")

    def call(self, e: E.Call) -> ir.Value:
        """The value of a function's call."""
        return emit_call(self, e)

    def apply(self, op: str, args: list[ir.Value]) -> ir.Value:
        """A function of LLVM values of one float type."""
        return apply_function(self, op, args)

    def bound(self, e: PrimExpr) -> Index:
        """What a let variable stands for: an index where it is exact, else a value."""
        return self.index(e) if is_int(e.dtype) and e.dtype != "bool" and self.is_pure(e) else self.value(e)

    def index_value(self, e: PrimExpr) -> ir.Value:
        """A pure integer expression in its own width."""
        at = self.index(e)
        to = value_type(e.dtype)
        if isinstance(at, Affine) and not at.lane:
            value = self.scalar(at)
            return to(value.constant) if isinstance(value, ir.Constant) else self.resize(value, to)
        return self.resize(self.vector(at), to)

    def both(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Two values with equal lanes."""
        lanes = max(lanes_of(a), lanes_of(b))
        return self.in_lanes(a, lanes), self.in_lanes(b, lanes)

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def float_arithmetic(self, e: E.BinaryOp) -> ir.Value:
        """+, - and * of floats, a product inside a sum as one fused operation where the CPU has it."""
        if isinstance(e, E.Sub) and (field := emit_field(self, e.a, e.b)) is not None:
            return field
        if (gated := _gated(e)) is not None:
            name, x = gated
            return self.apply(name, [self.value(x)])
        if self.isa.has_fma and e.dtype in ("float32", "float64"):
            if isinstance(e, E.Add):
                product, other = (e.a, e.b) if _is_product(e.a) else (e.b, e.a)
                if _is_product(product):
                    return self.fused(self.value(product.a), self.value(product.b), self.value(other))
            elif isinstance(e, E.Sub) and _is_product(e.b):
                a = self.builder.fneg(self.value(e.b.a))
                return self.fused(a, self.value(e.b.b), self.value(e.a))
            elif isinstance(e, E.Sub) and _is_product(e.a):
                return self.fused(self.value(e.a.a), self.value(e.a.b), self.builder.fneg(self.value(e.b)))
        x, y = self.both(self.value(e.a), self.value(e.b))
        op = {E.Add: self.builder.fadd, E.Sub: self.builder.fsub, E.Mul: self.builder.fmul}[type(e)]
        return op(x, y)

    def fused(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, rounded once where the CPU can."""
        lanes = max(map(lanes_of, (a, b, c)))
        a, b, c = (self.in_lanes(x, lanes) for x in (a, b, c))
        if not self.isa.has_fma:
            return self.builder.fadd(self.builder.fmul(a, b), c)
        return call_intrinsic(self.builder, f"llvm.fma.{suffix(a.type)}", a.type, [a, b, c])

    def binary(self, e: E.BinaryOp) -> ir.Value:
        b = self.builder
        x, y = self.both(self.value(e.a), self.value(e.b))
        if is_float(e.dtype):
            match e:
                case E.Div():
                    return b.fdiv(x, y)
                case LastingMax() | LastingMin():
                    return self.lasting(x, y, ">" if isinstance(e, E.Max) else "<")
                case NumberMax():
                    return call_intrinsic(b, f"llvm.maxnum.{suffix(x.type)}", x.type, [x, y])
                case E.Max():  # the first operand where one is no number
                    return b.select(b.fcmp_ordered(">", y, x), y, x)
                case E.Min():
                    return b.select(b.fcmp_ordered("<", y, x), y, x)
                case E.Mod():
                    return self.remainder(x, y, e.dtype)
                case E.FloorMod():
                    rest, zero = self.remainder(x, y, e.dtype), constant(x.type, 0.0)
                    flips = b.xor(b.fcmp_ordered("<", rest, zero), b.fcmp_ordered("<", y, zero))
                    moved = b.select(flips, b.fadd(rest, y), rest)
                    nothing = b.fcmp_ordered("==", rest, zero)
                    return b.select(nothing, self.apply("copysign", [rest, y]), moved)
            raise CodegenError(f"no code for {type(e).__name__} of floats")
        signed = is_signed(e.dtype)
        match e:
            case E.Add():
                return b.add(x, y)
            case E.Sub():
                return b.sub(x, y)
            case E.Mul():
                return b.mul(x, y)
            case E.Max() | E.Min():
                op = ">" if isinstance(e, E.Max) else "<"
                return b.select(b.icmp_signed(op, x, y) if signed else b.icmp_unsigned(op, x, y), x, y)
            case E.FloorDiv() | E.FloorMod() | E.Div() | E.Mod():
                modulo = isinstance(e, E.FloorMod | E.Mod)
                if not signed:
                    return self.divide_unsigned(x, y, modulo)
                return signed_division(b, x, y, isinstance(e, E.FloorDiv | E.FloorMod), modulo)
        raise CodegenError(f"no code for {type(e).__name__}")

    def lasting(self, x: ir.Value, y: ir.Value, op: str) -> ir.Value:
        """The larger (op ">") or the smaller one; NaN where one is a NaN.

        The CPUs' instruction gives `y` where one is a NaN, so it is `x` alone that needs a look.
        """
        b = self.builder
        return b.select(b.fcmp_unordered("uno", x, x), x, b.select(b.fcmp_ordered(op, x, y), x, y))

    def remainder(self, x: ir.Value, y: ir.Value, dtype: str) -> ir.Value:
        """The exact remainder of floats, with the sign of x."""
        if dtype != "float16":
            return self.apply("fmod", [x, y])
        wide = [self.cast(v, "float16", "float32") for v in (x, y)]
        return self.cast(self.apply("fmod", wide), "float32", "float16")

    def divide_unsigned(self, x: ir.Value, y: ir.Value, modulo: bool) -> ir.Value:
        """x / y or x % y; by 0 it is 0, as in NumPy."""
        b, zero = self.builder, constant(x.type, 0)
        none = b.icmp_unsigned("==", y, zero)
        divisor = b.select(none, constant(x.type, 1), y)
        return b.urem(x, divisor) if modulo else b.select(none, zero, b.udiv(x, divisor))

    # --- checks -------------------------------------------------------------------------------------------------

    def any_of(self, truths: ir.Value) -> ir.Value:
        return call_intrinsic(self.builder, f"llvm.vector.reduce.or.{suffix(truths.type)}", I1, [truths])

    def first_of(self, truths: ir.Value, values: ir.Value) -> ir.Value:
        b, lanes = self.builder, lanes_of(truths)
        bits = b.bitcast(truths, ir.IntType(lanes))
        first = call_intrinsic(b, f"llvm.cttz.i{lanes}", bits.type, [bits, I1(0)])
        return b.extract_element(values, b.zext(first, I64) if lanes < I64.width else first)

    def note(self, word: int, content: ir.Value) -> None:
        place = self.builder.gep(self.status, [I64(word)], inbounds=True)
        self.builder.store_atomic(content, place, "monotonic", WORD_BYTES)

    # --- truth --------------------------------------------------------------------------------------------------

    def comparison(self, e: E.CmpOp) -> ir.Value:
        dtype = e.a.dtype
        if is_int(dtype) and dtype != "bool" and self.is_pure(e.a) and self.is_pure(e.b):
            return self.compare_index(type(e), self.index(e.a), self.index(e.b))
        x, y = self.both(self.value(e.a), self.value(e.b))
        op = _COMPARE[type(e)]
        if is_float(dtype):
            return self.builder.fcmp_unordered(op, x, y) if op == "!=" else self.builder.fcmp_ordered(op, x, y)
        return self.builder.icmp_signed(op, x, y) if is_signed(dtype) else self.builder.icmp_unsigned(op, x, y)

    def logical(self, e: E.And | E.Or) -> ir.Value:
        x = self.value(e.a)
        if isinstance(x, ir.Constant) and lanes_of(x) == 1:
            decided = bool(x.constant) == isinstance(e, E.Or)
            return x if decided else self.value(e.b)
        x, y = self.both(x, self.value(e.b))
        if isinstance(y, ir.Constant) and lanes_of(y) == 1:
            return y if bool(y.constant) == isinstance(e, E.Or) else x
        key = (type(e), id(x), id(y))
        known = self.known(key)
        if known is None:
            made = self.builder.and_(x, y) if isinstance(e, E.And) else self.builder.or_(x, y)
            known = self.remember(key, (made, x, y))  # the operands are kept so that their ids stay their own
        return known[0]

    def selected(self, e: E.Select) -> ir.Value:
        """Both sides are evaluated, unless the condition is known: then the other one leaves no code."""
        condition = self.value(e.condition)
        if isinstance(condition, ir.Constant) and lanes_of(condition) == 1:
            return self.value(e.true_value if condition.constant else e.false_value)
        return self.choose(condition, self.value(e.true_value), self.value(e.false_value))

    def choose(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        if isinstance(condition, ir.Constant) and lanes_of(condition) == 1:
            return a if condition.constant else b
        lanes = max(map(lanes_of, (condition, a, b)))
        a, b = self.in_lanes(a, lanes), self.in_lanes(b, lanes)
        return self.builder.select(condition, a, b)

    def guarded(self, condition: PrimExpr, a: PrimExpr, b: PrimExpr) -> ir.Value:
        """if_then_else: loads of the side that is not taken do not happen."""
        c = self.value(condition)
        if isinstance(c, ir.Constant) and lanes_of(c) == 1:
            return self.value(a if c.constant else b)
        if lanes_of(c) > 1:
            return self.choose(c, self.masked_value(c, a), self.masked_value(self.builder.not_(c), b))
        if not (_touches_memory(a) or _touches_memory(b)):
            return self.choose(c, self.value(a), self.value(b))
        if isinstance(a, BufferLoad) and isinstance(b, E.FloatImm | E.IntImm) and b.value == 0:
            padded = self.load_or_zero(c, a.buffer, a.indices)
            if padded is not None:
                return padded
        return self.branch_value(c, a, b)

    def masked_value(self, condition: ir.Value, e: PrimExpr) -> ir.Value:
        if not _touches_memory(e):
            return self.value(e)
        outer, self.mask = self.mask, self.with_mask(condition)
        self.scopes.append({})
        value = self.value(e)
        self.scopes.pop()
        self.mask = outer
        return value

    def branch_value(self, condition: ir.Value, a: PrimExpr, b: PrimExpr) -> ir.Value:
        function = self.builder.function
        taken, other, after = (function.append_basic_block(n) for n in ("taken", "other", "after"))
        self.builder.cbranch(condition, taken, other)
        made = []
        for block, side in ((taken, a), (other, b)):
            self.builder.position_at_end(block)
            self.scopes.append({})
            made.append(self.value(side))
            self.scopes.pop()
            made.append(self.builder.block)
        lanes = max(lanes_of(made[0]), lanes_of(made[2]))
        for i in (0, 2):
            self.builder.position_at_end(made[i + 1])
            made[i] = splat(self.builder, made[i], lanes)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        phi = self.builder.phi(made[0].type)
        phi.add_incoming(made[0], made[1])
        phi.add_incoming(made[2], made[3])
        return phi

    # --- conversions --------------------------------------------------------------------------------------------

    def cast(self, x: ir.Value, source: str, target: str) -> ir.Value:
        if source == target:
            return x
        b, to = self.builder, value_type(target, lanes_of(x))
        if target == "bool":
            zero = constant(x.type, 0)
            return b.fcmp_unordered("!=", x, zero) if is_float(source) else b.icmp_unsigned("!=", x, zero)
        if (source, target) == ("float64", "float16"):  # LLVM calls a function that not every process has
            return self.cast(self.apply("round_odd", [x]), "float32", "float16")
        if is_float(source) and is_float(target):
            wider = value_type(target).intrinsic_name > value_type(source).intrinsic_name
            return b.fpext(x, to) if wider else b.fptrunc(x, to)
        if source in ("float32", "float64") and value_type(target).width <= 16:
            return self.narrowed(x, target)
        if is_float(source) and target in ("int32", "int64") and lanes_of(x) > 1 and self.isa.vector_bits == 512:
            return self.saturated(self.cast(x, source, "float32") if source == "float16" else x, target)
        if is_float(source):
            kind = "llvm.fptosi.sat" if is_signed(target) else "llvm.fptoui.sat"
            return call_intrinsic(b, f"{kind}.{suffix(to)}.{suffix(x.type)}", to, [x])
        if is_float(target):
            return b.sitofp(x, to) if is_signed(source) else b.uitofp(x, to)
        narrow, wide = value_type(target).width, value_type(source).width
        if narrow == wide:
            return x
        if narrow < wide:
            return b.trunc(x, to)
        return b.sext(x, to) if is_signed(source) else b.zext(x, to)

    def saturated(self, x: ir.Value, target: str) -> ir.Value:
        """Floats as int32 or int64: the nearest one out of range, 0 for no number.

        LLVM's own conversion goes through the lanes one by one where vectors have 512 bits.
        """
        b, to = self.builder, value_type(target, lanes_of(x))
        least = -(1 << to.element.width - 1)
        most, low = constant(x.type, -float(least)), constant(x.type, float(least))
        inside = b.select(b.fcmp_ordered("ord", x, x), x, constant(x.type, 0.0))
        inside = b.select(b.fcmp_ordered(">", inside, low), inside, low)
        return b.select(b.fcmp_ordered(">=", x, most), constant(to, -1 - least), b.fptosi(inside, to))

    def quotient(self, x: PrimExpr) -> ir.Value:
        """A value that is rounded to bytes."""
        found = scaled(x) if self.isa.has_fma else None
        if found is None:
            return self.value(x)
        return emit_quotient(self, self.value(found[0]), found[1])

    def narrowed(self, x: ir.Value, target: str) -> ir.Value:
        """A float as an integer of 8 or 16 bits: the nearest one out of range, 0 for no number.

        LLVM's own conversion goes through the lanes one by one; this one through integers of 32 bits. The lower bound
        comes last: LLVM leaves it out of what it knows to be 0 or more or no number, and the low bits of what that is
        converted to are 0.
        """
        b, to = self.builder, value_type(target, lanes_of(x))
        bits = to.element.width if lanes_of(x) > 1 else to.width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(target) else (0, (1 << bits) - 1)
        least, most = constant(x.type, float(low)), constant(x.type, float(high))
        if low:
            x = b.select(b.fcmp_ordered("ord", x, x), x, constant(x.type, 0.0))
        x = b.select(b.fcmp_ordered("<", most, x), most, x)
        x = b.select(b.fcmp_ordered(">", x, least), x, least)
        return b.trunc(b.fptosi(x, value_type("int32", lanes_of(x))), to)


def _touches_memory(e: PrimExpr) -> bool:
    return any(isinstance(x, BufferLoad | E.Call) for x in preorder(e))


def _gated(e: PrimExpr) -> tuple[str, PrimExpr] | None:
    """(name, x) of x * normcdf(x) or x * sigmoid(x) in float32, for which there is one function."""
    if not isinstance(e, E.Mul) or e.dtype != "float32":
        return None
    for x, other in ((e.a, e.b), (e.b, e.a)):
        if isinstance(other, E.Call) and other.op in GATES and structural_equal(other.args[0], x):
            return GATES[other.op], x
    return None


def _is_product(e: PrimExpr) -> TypeGuard[E.Mul]:
    """Whether a sum with this is one fused operation."""
    return isinstance(e, E.Mul) and _gated(e) is None
