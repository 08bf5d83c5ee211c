"""Emits calls of functions: LLVM's own where the CPU has an instruction, ours for vectors, libm's lane by lane."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from llvmlite import ir

from autosched.codegen.cpu import math as vector_math
from autosched.codegen.cpu import math64
from autosched.codegen.cpu.byte_dot import DOT_BYTES, emit_dot_bytes
from autosched.codegen.cpu.checks import emit_check_index
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.literals import emit_literal
from autosched.codegen.cpu.quantise import LITERAL, QUOTIENT, ZERO_POINT, emit_by_parts
from autosched.codegen.cpu.types import I32, BFloat, call_intrinsic, constant, element_of, lanes_of, suffix, value_type
from autosched.errors import CodegenError
from autosched.tir import expr as E
from autosched.tir.checked_index import CHECK_INDEX
from autosched.tir.dtypes import is_float, is_int

_LLVM = {
    "sqrt": "sqrt", "fabs": "fabs", "abs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "round": "nearbyint", "nearbyint": "nearbyint", "rint": "rint", "copysign": "copysign",
}  # fmt: skip
_LIBM = (
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp", "exp2", "log"),
    *("log2", "log10", "log1p", "tanh", "erf", "erfc", "pow", "atan2", "fmod", "hypot", "ldexp", "expm1", "lgamma"),
)


def emit_call(emitter: Emitter, e: E.Call) -> ir.Value:
    """The value of a call. Raises CodegenError for a function that is not known."""
    if is_int(e.dtype) and e.op in (*_LIBM, "sqrt", "rsqrt", "sigmoid"):
        raise CodegenError(f"'{e.op}' is a function of floats, not of {e.dtype}", hint="cast its argument")
    handler = _SPECIAL.get(e.op)
    if handler is not None:
        return handler(emitter, e)
    args = [emitter.value(a) for a in e.args]
    if e.dtype == "float16":
        return _through_float32(emitter, e.op, args)
    return emitter.apply(e.op, args)


def apply_function(emitter: Emitter, op: str, args: list[ir.Value]) -> ir.Value:
    """A function of LLVM values of one float type."""
    lanes = max(map(lanes_of, args))
    args = [emitter.both(a, args[max(range(len(args)), key=lambda i: lanes_of(args[i]))])[0] for a in args]
    kind = args[0].type
    if op in _LLVM:
        return call_intrinsic(emitter.builder, f"llvm.{_LLVM[op]}.{suffix(kind)}", kind, args)
    functions = _functions(emitter, kind)
    if op in vector_math.CIRCULAR and op in functions and emitter.isa.has_fma:
        return _circular(emitter, op, args, lanes)
    if op in functions and op not in vector_math.CIRCULAR:
        return _of_our_own(emitter, op, args[0])
    if op == "rsqrt":
        root = call_intrinsic(emitter.builder, f"llvm.sqrt.{suffix(kind)}", kind, args)
        return emitter.builder.fdiv(constant(kind, 1.0), root)
    if op == "sigmoid":
        power = emitter.apply("exp", [emitter.builder.fneg(args[0])])
        one = constant(kind, 1.0)
        return emitter.builder.fdiv(one, emitter.builder.fadd(one, power))
    if op == "round_odd":
        return _round_odd(emitter, args)
    if op == "normcdf":  # float64 alone: float32 has a function of its own
        x = emitter.builder.fmul(args[0], constant(kind, -math.sqrt(0.5)))
        return emitter.builder.fmul(constant(kind, 0.5), emitter.apply("erfc", [x]))
    if op == "exp10":
        return emitter.apply("pow", [constant(kind, 10.0), args[0]])
    if op == "fmod" and emitter.isa.has_fma and isinstance(element_of(kind), ir.FloatType | ir.DoubleType):
        return _remainder(emitter, args, lanes)
    if op in _LIBM:
        return _lane_by_lane(emitter, op, args, lanes)
    raise CodegenError(f"no code for the function '{op}'")


def _functions(emitter: Emitter, kind: ir.Type) -> Mapping[str, vector_math.Function]:
    """Our own functions of values of a type."""
    if isinstance(element_of(kind), ir.FloatType):
        return vector_math.FUNCTIONS
    return math64.FUNCTIONS if isinstance(element_of(kind), ir.DoubleType) and emitter.isa.has_fma else {}


def _of_our_own(emitter: Emitter, op: str, x: ir.Value) -> ir.Value:
    """op(x) by a function of our own, which is defined once in the module."""
    builder, name = emitter.builder, f"autosched_{op}_{suffix(x.type)}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(x.type, [x.type]), name)
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        maker = vector_math.Maker(inner, x.type, emitter.isa.has_fma, emitter.isa.estimates)
        inner.ret(_functions(emitter, x.type)[op](maker, function.args[0]))
    return builder.call(function, [x])


def _through_float32(emitter: Emitter, op: str, args: list[ir.Value]) -> ir.Value:
    wide = [emitter.cast(a, "float16", "float32") for a in args]
    return emitter.cast(emitter.apply(op, wide), "float32", "float16")


_MOST_INLINE = 16  # places of a tile where libm is called lane by lane; those after them share a function


def _lane_by_lane(emitter: Emitter, op: str, args: list[ir.Value], lanes: int) -> ir.Value:
    """A function of libm.

    For each lane the registers of all that is alive are saved around a call: where there are very many, that is most
    of the code and of the time to compile it, and vectors have a function of their own.
    """
    b, vector = emitter.builder, args[0].type
    kind = element_of(vector)
    name = op + ("f" if isinstance(kind, ir.FloatType) else "")
    if lanes == 1:
        return call_intrinsic(b, name, kind, args)
    emitter.calls_by_lane += 1
    if emitter.calls_by_lane <= _MOST_INLINE:
        return _each_lane(b, name, args, lanes)
    label = f"autosched_lanes_{name}_{suffix(vector)}"
    function = b.module.globals.get(label)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(vector, [vector] * len(args)), label)
        function.linkage = "internal"
        for attribute in ("noinline", "nounwind"):
            function.attributes.add(attribute)
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        inner.ret(_each_lane(inner, name, list(function.args), lanes))
    return b.call(function, args)


def _each_lane(b: ir.IRBuilder, name: str, args: list[ir.Value], lanes: int) -> ir.Value:
    result = ir.Constant(args[0].type, ir.Undefined)
    for lane in range(lanes):
        value = call_intrinsic(b, name, element_of(result.type), [b.extract_element(a, I32(lane)) for a in args])
        result = b.insert_element(result, value, I32(lane))
    return result


def _circular(emitter: Emitter, op: str, args: list[ir.Value], lanes: int) -> ir.Value:
    """The sine or cosine; libm is called where a lane is large, infinite or NaN, and counts there alone."""
    b, kind = emitter.builder, args[0].type
    size = call_intrinsic(b, f"llvm.fabs.{suffix(kind)}", kind, args)
    limit = (vector_math if isinstance(element_of(kind), ir.FloatType) else math64).CIRCULAR_LIMIT
    is_near = b.fcmp_ordered("<", size, constant(kind, limit))
    near = _of_our_own(emitter, op, args[0])
    slow, after = (b.function.append_basic_block(f"{op}.{n}") for n in ("libm", "end"))
    quick_end = b.block
    b.cbranch(_in_all_lanes(b, is_near, lanes), after, slow)
    b.position_at_end(slow)
    far = b.select(is_near, near, _lane_by_lane(emitter, op, args, lanes))
    slow_end = b.block
    b.branch(after)
    b.position_at_end(after)
    result = b.phi(kind)
    result.add_incoming(near, quick_end)
    result.add_incoming(far, slow_end)
    return result


def _in_all_lanes(b: ir.IRBuilder, holds: ir.Value, lanes: int) -> ir.Value:
    if lanes == 1:
        return holds
    bits = ir.IntType(lanes)
    return b.icmp_unsigned("==", b.bitcast(holds, bits), bits((1 << lanes) - 1))


def _remainder(emitter: Emitter, args: list[ir.Value], lanes: int) -> ir.Value:
    """The exact remainder, with the dividend's sign, as C's fmod has it.

    A quotient that is exact as a number takes a division and a fused multiply-add; libm is called where one is larger,
    or a divisor infinite: no multiple of it may be subtracted, not even none.
    """
    b, kind = emitter.builder, args[0].type
    x, y = (emitter.apply("fabs", [a]) for a in args)
    quotient = b.fdiv(x, y)
    exact = constant(kind, float(2**23 if isinstance(element_of(kind), ir.FloatType) else 2**52))
    plain = b.and_(b.fcmp_ordered("<", quotient, exact), b.fcmp_ordered("<", y, constant(kind, math.inf)))
    small = _in_all_lanes(b, plain, lanes)
    quick, slow, after = (b.function.append_basic_block(f"remainder.{n}") for n in ("quick", "libm", "end"))
    b.cbranch(small, quick, slow)
    b.position_at_end(quick)
    emitter.scopes.append({})  # what is made here is not there after it
    whole = emitter.apply("trunc", [quotient])
    rest = emitter.fused(b.fneg(whole), y, x)
    below = b.fcmp_ordered("<", rest, constant(kind, 0.0))  # the quotient was rounded up to a whole number
    rest = b.select(below, b.fadd(rest, y), rest)
    near = emitter.apply("copysign", [rest, args[0]])
    emitter.scopes.pop()
    b.branch(after)
    b.position_at_end(slow)
    far = _lane_by_lane(emitter, "fmod", args, lanes)
    b.branch(after)
    slow_end = b.block
    b.position_at_end(after)
    result = b.phi(kind)
    result.add_incoming(near, quick)
    result.add_incoming(far, slow_end)
    return result


def _power(emitter: Emitter, e: E.Call) -> ir.Value:
    """pow; small constant exponents without a call."""
    exponent = e.args[1].value if isinstance(e.args[1], E.FloatImm | E.IntImm) else None
    if exponent is None or exponent not in (-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 4.0):
        args = [emitter.value(a) for a in e.args]
        return _through_float32(emitter, "pow", args) if e.dtype == "float16" else emitter.apply("pow", args)
    x, b = emitter.value(e.args[0]), emitter.builder
    if abs(exponent) == 0.5:  # pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0.0, unlike sqrt
        infinite = b.fcmp_ordered("==", x, constant(x.type, float("-inf")))
        root = b.select(
            infinite, constant(x.type, float("inf")), emitter.apply("sqrt", [b.fadd(x, constant(x.type, 0.0))])
        )
        return root if exponent > 0 else b.fdiv(constant(x.type, 1.0), root)
    if exponent == -1.0:
        return b.fdiv(constant(x.type, 1.0), x)
    square = b.fmul(x, x)
    return {1.0: lambda: x, 2.0: lambda: square, 3.0: lambda: b.fmul(square, x), 4.0: lambda: b.fmul(square, square)}[
        exponent
    ]()


def _fma(emitter: Emitter, e: E.Call) -> ir.Value:
    return emitter.fused(*(emitter.value(a) for a in e.args))


def _is(emitter: Emitter, e: E.Call) -> ir.Value:
    """isnan, isinf, isfinite."""
    b, x = emitter.builder, emitter.value(e.args[0])
    if not is_float(e.args[0].dtype):
        return constant(ir.IntType(1), int(e.op == "isfinite"))
    if e.op == "isnan":
        return b.fcmp_unordered("uno", x, x)
    size = emitter.apply("fabs", [x])
    infinity = constant(x.type, float("inf"))
    return b.fcmp_ordered("==" if e.op == "isinf" else "<", size, infinity)


def _bits(emitter: Emitter, e: E.Call) -> ir.Value:
    """Shifts and bitwise operations of integers."""
    b = emitter.builder
    if e.op == "bitwise_not":
        return b.not_(emitter.value(e.args[0]))
    x, y = emitter.both(emitter.value(e.args[0]), emitter.value(e.args[1]))
    table: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
        "bitwise_and": b.and_, "bitwise_or": b.or_, "bitwise_xor": b.xor,
    }  # fmt: skip
    return table[e.op](x, y) if e.op in table else _shift(emitter, e, x, y)


def _shift(emitter: Emitter, e: E.Call, x: ir.Value, y: ir.Value) -> ir.Value:
    """Shifts; by as many bits as there are, or more (or less than 0), all bits leave, as in NumPy."""
    b, width = emitter.builder, element_of(x.type).width
    keeps_sign = e.op == "shift_right" and e.dtype.startswith("int")
    shift = b.shl if e.op == "shift_left" else b.ashr if keeps_sign else b.lshr
    amount = e.args[1]
    if isinstance(amount, E.IntImm) and 0 <= amount.value < width:
        return shift(x, y)
    inside = b.icmp_unsigned("<", y, constant(y.type, width))
    if keeps_sign:
        return shift(x, b.select(inside, y, constant(y.type, width - 1)))
    return b.select(inside, shift(x, b.select(inside, y, constant(y.type, 0))), constant(x.type, 0))


def _reinterpret(emitter: Emitter, e: E.Call) -> ir.Value:
    """The bits of a value as another type of the same size."""
    x = emitter.value(e.args[0])
    return emitter.builder.bitcast(x, value_type(e.dtype, lanes_of(x)))


def _round_bfloat16(emitter: Emitter, e: E.Call) -> ir.Value:
    """A float32 to the 16 bits of the nearest bfloat16, of two the even one, as a uint32; a NaN stays one."""
    b, x = emitter.builder, emitter.value(e.args[0])
    bits = b.bitcast(x, value_type("uint32", lanes_of(x)))
    if emitter.isa.has_bfloat_dot and lanes_of(x) > 1 and _is_normal(e.args[0]):
        halves = b.fptrunc(x, ir.VectorType(BFloat(), lanes_of(x)))
        return b.zext(b.bitcast(halves, value_type("uint16", lanes_of(x))), bits.type)
    upper = b.lshr(bits, constant(bits.type, 16))
    odd = b.and_(upper, constant(bits.type, 1))
    rounded = b.lshr(b.add(bits, b.add(odd, constant(bits.type, 0x7FFF))), constant(bits.type, 16))
    silent = b.or_(upper, constant(bits.type, 0x40))
    return b.select(b.fcmp_unordered("uno", x, x), silent, rounded)


def _is_normal(e: E.PrimExpr) -> bool:
    """Whether a float32 is never denormal, which the CPUs' instruction would take for 0."""
    return isinstance(e, E.Call) and e.op in ("exp", vector_math.EXP_BELOW) and e.dtype == "float32"


def _round_float16(emitter: Emitter, e: E.Call) -> ir.Value:
    """A float32 to the 16 bits of the nearest float16, of two the even one, as a uint32; a NaN stays one.

    What is too small for a whole mantissa is added to 0.5, whose last place is the smallest float16: that rounds it.
    """
    b, x = emitter.builder, emitter.value(e.args[0])
    bits = b.bitcast(x, value_type("uint32", lanes_of(x)))

    def word(value: int) -> ir.Value:
        return constant(bits.type, value)

    size = b.and_(bits, word(0x7FFFFFFF))
    odd = b.and_(b.lshr(size, word(13)), word(1))
    normal = b.lshr(b.add(size, b.add(odd, word(0xFFF - (112 << 23) & 0xFFFFFFFF))), word(13))
    small = b.fadd(b.bitcast(size, x.type), constant(x.type, 0.5))
    tiny = b.sub(b.bitcast(small, bits.type), word(0x3F000000))
    silent = b.or_(b.and_(b.lshr(size, word(13)), word(0x3FF)), word(0x7E00))
    rounded = b.select(b.icmp_unsigned("<", size, word(113 << 23)), tiny, normal)
    rounded = b.select(b.icmp_unsigned(">=", size, word(143 << 23)), word(0x7C00), rounded)
    rounded = b.select(b.icmp_unsigned(">", size, word(0x7F800000)), silent, rounded)
    return b.or_(rounded, b.and_(b.lshr(bits, word(16)), word(0x8000)))


def _read_float16(emitter: Emitter, e: E.Call) -> ir.Value:
    """The bits of a float16 as a float32: its exponent moved by an exact product, which also takes in the smallest."""
    b, x = emitter.builder, emitter.value(e.args[0])
    real = value_type("float32", lanes_of(x))

    def word(value: int) -> ir.Value:
        return constant(x.type, value)

    size = b.and_(x, word(0x7FFF))
    moved = b.fmul(b.bitcast(b.shl(size, word(13)), real), constant(real, 2.0**112))
    found = b.bitcast(moved, x.type)
    found = b.select(b.icmp_unsigned(">=", size, word(0x7C00)), b.or_(found, word(0x7F800000)), found)
    return b.bitcast(b.or_(found, b.shl(b.and_(x, word(0x8000)), word(16))), real)


def _round_odd(emitter: Emitter, args: list[ir.Value]) -> ir.Value:
    """A float64 to float32: of the two neighbours of what float32 cannot hold, the one whose last bit is set."""
    b, x = emitter.builder, args[0]
    near = b.fptrunc(x, value_type("float32", lanes_of(x)))
    bits, back = b.bitcast(near, value_type("uint32", lanes_of(x))), b.fpext(near, x.type)
    size = f"llvm.fabs.{suffix(x.type)}"
    is_farther = b.fcmp_ordered(">", *(call_intrinsic(b, size, x.type, [v]) for v in (back, x)))
    cut = b.or_(b.sub(bits, b.zext(is_farther, bits.type)), constant(bits.type, 1))
    return b.bitcast(b.select(b.fcmp_unordered("!=", back, x), cut, bits), near.type)


_SPECIAL: dict[str, Callable[[Emitter, E.Call], ir.Value]] = {
    "pow": _power, "fma": _fma, "reinterpret": _reinterpret, "round_bfloat16": _round_bfloat16,
    "round_float16": _round_float16, "read_float16": _read_float16,
    LITERAL: emit_literal, ZERO_POINT: emit_literal, QUOTIENT: emit_by_parts,
    CHECK_INDEX: emit_check_index, DOT_BYTES: emit_dot_bytes, **dict.fromkeys(("isnan", "isinf", "isfinite"), _is),
    **dict.fromkeys(("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), _bits),
}  # fmt: skip
