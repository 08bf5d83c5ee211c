"""Calls by name: intrinsics, functions of C, registered Python functions."""

from __future__ import annotations

from enum import IntEnum

from autosched.errors import InvalidTypeError
from autosched.tir.atomic import atomic_add
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import check_dtype, is_float
from autosched.tir.expr import Call, ExprLike, IntImm, PrimExpr, StringImm, bitwise, call, match_types, to_expr

__all__ = [
    "CallEffectKind", "address_of", "atan2", "atomic_add", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "call_cpacked", "call_extern", "call_intrin", "call_llvm_intrin", "call_llvm_pure_intrin",
    "call_packed", "call_pure_extern", "clz", "copysign", "hypot", "infinity", "ldexp", "likely", "nextafter",
    "popcount", "reinterpret", "ret", "shift_left", "shift_right",
]  # fmt: skip


class CallEffectKind(IntEnum):
    """What a call may do besides giving a value."""

    ExprAnnotation = 0
    Pure = 1
    ReadState = 2
    UpdateState = 3
    SpecialCallArg = 4
    EmbedInfo = 5
    ControlJump = 6
    Opaque = 3


def _args(what: str, args: tuple[object, ...]) -> tuple[PrimExpr, ...]:
    return tuple(_arg(what, i, a) for i, a in enumerate(args))


def _arg(what: str, index: int, a: object) -> PrimExpr:
    if isinstance(a, str):
        return StringImm(a)
    if isinstance(a, Buffer):
        return a.access_ptr("rw")
    try:
        return to_expr(a)
    except InvalidTypeError:
        raise InvalidTypeError(
            f"{what}: argument {index} is a {type(a).__name__}, expected an expression, number, string or buffer"
        ) from None


def _name(what: str, name: object) -> str:
    name = getattr(name, "name", name)
    if not isinstance(name, str):
        raise InvalidTypeError(f"{what}: the function's name is a {type(name).__name__}, expected a string")
    return name


def call_intrin(dtype: str, func_name: object, *args: object, span: object = None) -> PrimExpr:
    """The intrinsic "tir.<name>" with a result of `dtype`."""
    name = _name("call_intrin", func_name).removeprefix("tir.")
    return Call(name, _args(f"call_intrin '{name}'", args), check_dtype(dtype, "call_intrin", "handle", "void"))


def call_extern(dtype: str, func_name: str, *args: object, span: object = None) -> PrimExpr:
    """A function of C that may have effects."""
    name = _name("call_extern", func_name)
    kind = check_dtype(dtype, "call_extern", "handle", "void")
    return Call("call_extern", (StringImm(name), *_args(f"call_extern '{name}'", args)), kind)


def call_pure_extern(dtype: str, func_name: str, *args: object, span: object = None) -> PrimExpr:
    """A function of C without effects, such as "expf"."""
    name = _name("call_pure_extern", func_name)
    kind = check_dtype(dtype, "call_pure_extern", "handle", "void")
    return Call("call_pure_extern", (StringImm(name), *_args(f"call_pure_extern '{name}'", args)), kind)


def call_packed(*args: object, span: object = None) -> PrimExpr:
    """A registered Python function: its name, then buffers (whole arrays, as `ins[0]`), numbers and strings."""
    if not args:
        raise InvalidTypeError("call_packed: the function's name is missing")
    return Call("tvm_call_packed", (StringImm(_name("call_packed", args[0])), *_packed(args[1:])), "int32")


call_cpacked = call_packed


def _packed(args: tuple[object, ...]) -> tuple[PrimExpr, ...]:
    whole = (whole_array(a) if isinstance(a, Buffer) else a for a in args)
    return _args("call_packed", tuple(whole))


def whole_array(buffer: Buffer) -> PrimExpr:
    """A buffer as an argument of a packed call: an array with its shape and dtype."""
    return Call("tvm_stack_make_array", (buffer.data, *buffer.shape), "handle")


def call_llvm_intrin(dtype: str, name: str, *args: object, span: object = None) -> PrimExpr:
    """An intrinsic of LLVM, such as "llvm.sqrt.f32"; the number of its signature's arguments may come first."""
    given = args[1:] if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32" else args
    short = _name("call_llvm_intrin", name).removeprefix("llvm.").split(".")[0]
    return Call(short, _args(name, given), check_dtype(dtype, "call_llvm_intrin"))


call_llvm_pure_intrin = call_llvm_intrin


def _binary(name: str, x1: ExprLike, x2: ExprLike) -> PrimExpr:
    a, b = match_types(x1, x2)
    return Call(name, (a, b), a.dtype)


def bitwise_and(x: ExprLike, y: ExprLike, span: object = None) -> PrimExpr:
    """x & y."""
    return bitwise("bitwise_and", x, y)


def bitwise_or(x: ExprLike, y: ExprLike, span: object = None) -> PrimExpr:
    """x | y."""
    return bitwise("bitwise_or", x, y)


def bitwise_xor(x: ExprLike, y: ExprLike, span: object = None) -> PrimExpr:
    """x ^ y."""
    return bitwise("bitwise_xor", x, y)


def bitwise_not(x: object, span: object = None) -> PrimExpr:
    """~x."""
    return ~to_expr(x)


def shift_left(x: ExprLike, y: ExprLike, span: object = None) -> PrimExpr:
    """x << y."""
    return bitwise("shift_left", x, y)


def shift_right(x: ExprLike, y: ExprLike, span: object = None) -> PrimExpr:
    """x >> y, keeping the sign."""
    return bitwise("shift_right", x, y)


def popcount(x: ExprLike) -> PrimExpr:
    """The number of ones among the bits of x."""
    return call("popcount", x)


def clz(x: ExprLike) -> PrimExpr:
    """The number of zeros above the highest one among the bits of x."""
    return call("clz", x, dtype="int32")


def likely(cond: ExprLike, span: object = None) -> PrimExpr:
    """The condition itself, marked as nearly always true."""
    return call("likely", cond)


def reinterpret(dtype: str, value: ExprLike, span: object = None) -> PrimExpr:
    """The bits of a value as another dtype of the same size."""
    return call("reinterpret", value, dtype=check_dtype(dtype, "reinterpret"))


def address_of(buffer_load: ExprLike, span: object = None) -> PrimExpr:
    """The address of an element."""
    return call("address_of", buffer_load, dtype="handle")


def copysign(x1: ExprLike, x2: ExprLike) -> PrimExpr:
    """x1 with the sign of x2."""
    return _binary("copysign", x1, x2)


def hypot(x1: ExprLike, x2: ExprLike) -> PrimExpr:
    """sqrt(x1² + x2²)."""
    return _binary("hypot", x1, x2)


def atan2(x1: ExprLike, x2: ExprLike) -> PrimExpr:
    """The angle of the point (x2, x1)."""
    return _binary("atan2", x1, x2)


def nextafter(x1: ExprLike, x2: ExprLike) -> PrimExpr:
    """The number after x1 towards x2."""
    return _binary("nextafter", x1, x2)


def ldexp(x1: ExprLike, x2: ExprLike) -> PrimExpr:
    """x1 * 2**x2."""
    x = to_expr(x1)
    return x * call("exp2", to_expr(x2).astype(x.dtype))


def infinity(dtype: str, span: object = None) -> PrimExpr:
    """Positive infinity. Raises InvalidTypeError for integers."""
    from autosched.tir.expr import FloatImm

    if not is_float(check_dtype(dtype, "infinity")):
        raise InvalidTypeError(f"infinity: {dtype} has none")
    return FloatImm(float("inf"), dtype)


def ret(value: ExprLike, span: object = None) -> PrimExpr:
    """The function's result."""
    return call("ret", value)
