"""Mathematical functions on a GPU: NVVM's own, and those of NVIDIA's libdevice, for each lane by itself."""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.math import GELU, SILU
from autosched.codegen.cpu.types import I32, call_intrinsic, constant, element_of, lanes_of, suffix
from autosched.codegen.cuda import normal
from autosched.codegen.lower.fragments import EXP2_APPROX
from autosched.errors import CodegenError

_NVVM = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil"}
_LIBDEVICE = {
    "round": "rint", "nearbyint": "nearbyint", "rint": "rint", "copysign": "copysign", "normcdf": "normcdf",
    "trunc": "trunc", "rsqrt": "rsqrt", "lgamma": "lgamma", "exp10": "exp10",
    **{name: name for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp", "exp2", "log",
        "log2", "log10", "log1p", "tanh", "erf", "erfc", "pow", "atan2", "fmod", "hypot", "expm1",
    )},
}  # fmt: skip
_OWN = {"erf": normal.erf, "normcdf": normal.normcdf}  # of float32: libdevice's have branches, or are longer
# libdevice's reduction of large float32 arguments keeps a table on the stack, which costs all arguments
_THROUGH_DOUBLE = ("sin", "cos", "tan")


def device_function(emitter: Emitter, op: str, args: list[ir.Value]) -> ir.Value:
    """op(*args) of float32 or float64 values. Raises CodegenError for a function that is not known."""
    lanes = max(map(lanes_of, args))
    args = [a if lanes_of(a) == lanes else emitter.both(a, _like(args, lanes))[0] for a in args]
    if lanes == 1:
        return _scalar(emitter, op, args)
    b = emitter.builder
    result = ir.Constant(args[0].type, ir.Undefined)
    for lane in range(lanes):
        value = _scalar(emitter, op, [b.extract_element(a, I32(lane)) for a in args])
        result = b.insert_element(result, value, I32(lane))
    return result


def _like(args: list[ir.Value], lanes: int) -> ir.Value:
    return next(a for a in args if lanes_of(a) == lanes)


def _scalar(emitter: Emitter, op: str, args: list[ir.Value]) -> ir.Value:
    b, kind = emitter.builder, args[0].type
    if isinstance(kind, ir.IntType):
        raise CodegenError(f"'{op}' of integers", hint="cast the argument to float32")
    if op in ("fabs", "abs"):
        bits = ir.IntType({"half": 16, "float": 32, "double": 64}[str(kind)])
        return b.bitcast(b.and_(b.bitcast(args[0], bits), bits((1 << bits.width - 1) - 1)), kind)
    if op == EXP2_APPROX:
        return call_intrinsic(b, "llvm.nvvm.ex2.approx.ftz.f", kind, args)
    if op in _NVVM:
        return call_intrinsic(b, f"llvm.{_NVVM[op]}.{suffix(kind)}", kind, args)
    if op == "sigmoid":
        return _sigmoid(emitter, args[0])
    if op == SILU:
        return b.fmul(args[0], _sigmoid(emitter, args[0]))
    if op == GELU:
        return b.fmul(args[0], _scalar(emitter, "normcdf", args))
    if op in _THROUGH_DOUBLE and isinstance(kind, ir.FloatType):
        return b.fptrunc(_scalar(emitter, op, [b.fpext(args[0], ir.DoubleType())]), kind)
    if op in _OWN and isinstance(kind, ir.FloatType):
        return _OWN[op](b, args[0])
    if op in _LIBDEVICE:
        name = f"__nv_{_LIBDEVICE[op]}" + ("f" if isinstance(element_of(kind), ir.FloatType) else "")
        return call_intrinsic(b, name, kind, args)
    raise CodegenError(f"no CUDA code for the function '{op}'")


def _sigmoid(emitter: Emitter, x: ir.Value) -> ir.Value:
    """1 / (1 + exp(-x)) of -|x|, so that small results are not lost in an overflow."""
    b, one = emitter.builder, constant(x.type, 1.0)
    power = _scalar(emitter, "exp", [b.fneg(_scalar(emitter, "fabs", [x]))])
    above = b.select(b.fcmp_ordered("<", x, constant(x.type, 0.0)), power, one)
    return b.fdiv(above, b.fadd(one, power))
