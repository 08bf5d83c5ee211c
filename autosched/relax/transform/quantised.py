"""What a function says of quantised values, (q - zero) * scale, while it is rewritten."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Var, const
from autosched.relax.op.registry import definition_of, is_constant, python_argument
from autosched.relax.rewrite import CallTracker
from autosched.relax.struct_info import TensorStructInfo

Array = np.ndarray


BYTES = ("uint8", "int8")


@dataclass(frozen=True)
class Scale:
    """One scale and zero point for all values, in float32, of a dtype."""

    scale: float
    zero: int
    dtype: str


def dtype_of(x: Expr) -> str:
    """The dtype of a tensor; "" for anything else."""
    info = x.struct_info
    return info.dtype or "" if isinstance(info, TensorStructInfo) else ""


def is_one(x: Expr) -> bool:
    """Whether a tensor is known to have one element."""
    info = x.struct_info
    return isinstance(info, TensorStructInfo) and info.is_static and math.prod(info.static_shape) == 1


class QuantisedRewriter(CallTracker):
    """A rewriter that knows the calls of variables, emitted ones too, and the values of those that are constant."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: dict[Var, Array | None] = {}

    def emit(self, value: Expr, name: str = "lv") -> Expr:
        var = super().emit(value, name)
        if var is not value and isinstance(var, Var) and isinstance(bound := self._bindings[-1].value, Call):
            self.calls[var] = bound
        return var

    def floats(self, q: Expr, by: Scale) -> Call:
        """(q - zero) * scale."""
        whole = self.emit(op.astype(q, "int32"))
        centred = self.emit(op.subtract(whole, const(by.zero, "int32"))) if by.zero else whole
        call: Call = op.multiply(self.emit(op.astype(centred, "float32")), const(by.scale, "float32"))
        return call

    def shift(self, x: Expr) -> int | Expr | None:
        """A zero point for all values."""
        array = self.array(x)
        if array is not None:
            return int(array.reshape(-1)[0]) if array.size and np.all(array == array.reshape(-1)[0]) else None
        return x if dtype_of(x) == "int32" and is_one(x) else None

    def scaled(self, x: Expr) -> tuple[Expr | None, Expr | None]:
        """(an int32 value, its scale) for floats that are the product of both; (the value, None) for int32."""
        info = x.struct_info
        if not isinstance(info, TensorStructInfo):
            return None, None
        if info.dtype == "int32":
            return x, None
        call = self.call_of(x)
        if call is None or info.dtype != "float32" or call.op_name != "relax.multiply":
            return None, None
        cast = self.call_of(call.args[0])
        if cast is None or cast.op_name != "relax.astype" or cast.args[0].struct_info.dtype != "int32":
            return None, None
        return cast.args[0], call.args[1]

    def array(self, x: object) -> Array | None:
        """The value of an expression of constants; None for any other."""
        if isinstance(x, Constant):
            return x.data
        call = self.call_of(x)
        if call is None or not isinstance(x, Var):
            return None
        if x not in self.arrays:
            self.arrays[x] = self._computed(call)
        return self.arrays[x]

    def _computed(self, call: Call) -> Array | None:
        definition = definition_of(call)
        if definition is None or definition.reference is None or not isinstance(call.struct_info, TensorStructInfo):
            return None
        known = [Constant(a) if (a := self.array(x)) is not None else x for x in call.args]
        if not all(map(is_constant, known)):
            return None
        with np.errstate(all="ignore"):
            result = definition.run_reference([python_argument(a, lambda c: c.data) for a in known], call.attrs)
        return np.asarray(result, call.struct_info.dtype)

    def dequantised(self, x: Expr) -> tuple[Var, Scale] | None:
        """(q, its scale) for floats that stand for bytes."""
        found, scale = self.scaled(x)
        number = None if scale is None else self.number(scale)
        if number is None or not 0 < number < np.inf:
            return None
        cast, zero = self.call_of(found), 0
        if cast is not None and cast.op_name == "relax.subtract":
            shift = self.number(cast.args[1])
            if shift is None:
                return None
            cast, zero = self.call_of(cast.args[0]), int(shift)
        if cast is None or cast.op_name != "relax.astype" or not isinstance(cast.args[0], Var):
            return None
        info = cast.args[0].struct_info
        if not isinstance(info, TensorStructInfo) or info.dtype not in BYTES:
            return None
        return cast.args[0], Scale(number, zero, info.dtype)

    def quantiser(self, call: Call) -> tuple[Var, Scale] | None:
        """(floats, the scale by which they become bytes) of clip(round(x / scale) + zero)."""
        info, clip = call.struct_info, self.call_of(call.args[0])
        if clip is None or clip.op_name != "relax.clip" or not isinstance(info, TensorStructInfo):
            return None
        limits = np.iinfo(info.dtype)
        if (clip.attrs["min"], clip.attrs["max"]) != (limits.min, limits.max):
            return None
        rounded, zero = self.call_of(clip.args[0]), 0.0
        if rounded is not None and rounded.op_name == "relax.add":
            shift = self.number(rounded.args[1])
            if shift is None:
                return None
            rounded, zero = self.call_of(rounded.args[0]), shift
        if rounded is None or rounded.op_name != "relax.round":
            return None
        divided = self.call_of(rounded.args[0])
        if divided is None or divided.op_name != "relax.divide" or not isinstance(divided.args[0], Var):
            return None
        scale, kind = self.number(divided.args[1]), divided.args[0].struct_info
        if scale is None or not 0 < scale < np.inf or not isinstance(kind, TensorStructInfo) or kind.dtype != "float32":
            return None
        return divided.args[0], Scale(scale, int(zero), info.dtype)

    def number(self, x: object) -> float | None:
        """The one number that a constant holds."""
        value = getattr(x, "value", None)
        if isinstance(value, int | float):
            return value
        array = self.array(x)
        return None if array is None or array.size != 1 else array.reshape(-1)[0].item()
