"""Element by element."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.frontend.random_onnx.kinds.base import ALL, NUMBERS, kind
from tests.frontend.random_onnx.maker import FLOATS, INTEGERS, Maker, Value

# fmt: off
UNARY = (
    "Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "Floor", "Ceil", "Round", "Erf", "Sqrt", "Sign", "Reciprocal",
    "LeakyRelu", "Elu", "HardSwish", "Sin", "Cos", "ThresholdedRelu",
)
IN_FLOAT32 = (
    "Softplus", "Celu", "Mish", "Gelu", "Log", "Tan", "Atan", "Asinh", "Sinh", "Cosh", "Shrink", "Selu", "HardSigmoid",
    "Softsign",
)
# fmt: on


@kind(FLOATS, weight=3)
def unary(m: Maker, x: Value) -> None:
    m.node(m.choose(*UNARY, *(IN_FLOAT32 if x.dtype == "float32" else ())), x)


@kind(("int8", "int32", "int64", "uint8", "bool"))
def unary_of_integers(m: Maker, x: Value) -> None:
    if x.dtype == "bool":
        m.node("Not", x)
    else:
        m.node(m.choose("Abs", "Sign", *(() if x.dtype == "uint8" else ("Neg",))), x)


@kind(ALL, weight=4)
def binary(m: Maker, x: Value) -> None:
    same = [v for v in m.values if v.shape == x.shape and v.dtype == x.dtype]
    other = m.random.choice(same) if same and m.chance(0.4) else m.broadcast(x)
    pair = (x, other) if m.chance(0.7) else (other, x)
    ops = ("And", "Or", "Xor") if x.dtype == "bool" else ("Add", "Sub", "Mul", "Max", "Min")
    m.node(m.choose(*ops), *pair, shape=x.shape)


@kind(FLOATS)
def divide(m: Maker, x: Value) -> None:
    m.node("Div", x, m.broadcast(x))


@kind(("int32", "int64"))
def divide_integers(m: Maker, x: Value) -> None:
    op = m.choose("Div", "Mod")
    m.node(op, x, m.scalar(m.choose(1, 2, 3, 5, 7, *((-3,) if op == "Mod" else ())), x))


@kind(("float32", "float64"))
def power(m: Maker, x: Value) -> None:
    base = m.node("Abs", x)
    m.node("Pow", base, m.scalar(m.choose(2, 3, 0.5, -1), x))


@kind(NUMBERS, weight=2)
def compare(m: Maker, x: Value) -> None:
    m.node(m.choose("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"), x, m.broadcast(x), dtype="bool")


@kind(("float32", "float64"))
def tests_of_floats(m: Maker, x: Value) -> None:
    m.node(m.choose("IsNaN", "IsInf"), m.node(m.choose("Log", "Sqrt"), x), dtype="bool")


@kind(NUMBERS, weight=2)
def where(m: Maker, x: Value) -> None:
    conditions = [v for v in m.values if v.dtype == "bool" and v.shape == x.shape]
    condition = m.random.choice(conditions) if conditions else m.broadcast(x, "bool")
    pair = (x, m.broadcast(x)) if m.chance(0.7) else (m.broadcast(x), x)
    m.node("Where", condition, *pair, shape=x.shape, dtype=x.dtype)


@kind(ALL, weight=2)
def cast(m: Maker, x: Value) -> None:
    """Floats out of range have no defined integer, so those of 8 bits get no floats."""
    wide = ("float16", "float32", "float64", "int32", "int64", "bool")
    to = m.choose(*wide, *(() if x.is_float else ("int8", "uint8")))
    m.node("Cast", x, dtype=to, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@kind(("float32",))
def narrow_floats(m: Maker, x: Value) -> None:
    """To few bits and back."""
    to = m.choose("BFLOAT16", "FLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ")
    code = getattr(TensorProto, to)
    small = m.node("Clip", x, m.scalar(-50, x), m.scalar(50, x))
    narrow = m.node("Cast", small, dtype=str(helper.tensor_dtype_to_np_dtype(code)), to=code)
    m.node("Cast", narrow, dtype="float32", to=TensorProto.FLOAT)


@kind(NUMBERS)
def clip(m: Maker, x: Value) -> None:
    low, high = m.scalar(0 if x.dtype == "uint8" else -1, x), m.scalar(3, x)
    m.node("Clip", x, *m.choose((low, high), (low, None), (None, high)))


@kind(("float32", "float64", "int32", "int64"))
def several(m: Maker, x: Value) -> None:
    """Operators of any number of operands."""
    if x.dtype.startswith("int"):
        m.node(m.choose("Max", "Min"), x, m.broadcast(x), m.broadcast(x), shape=x.shape)
    else:
        m.node(
            m.choose("Sum", "Max", "Min", *(("Mean",) if x.dtype == "float32" else ())),
            x,
            m.broadcast(x),
            m.broadcast(x),
            shape=x.shape,
        )


@kind(("float32",), least_rank=2)
def prelu(m: Maker, x: Value) -> None:
    m.node("PRelu", x, m.other((x.shape[1], *(1 for _ in x.shape[2:])), x.dtype))


@kind(("uint8", "int32", "int64"))
def bits(m: Maker, x: Value) -> None:
    m.node(m.choose("BitwiseAnd", "BitwiseOr", "BitwiseXor"), x, m.broadcast(x), shape=x.shape)


@kind(INTEGERS, weight=0.3)
def texts(m: Maker, x: Value) -> None:
    """Strings are refused."""
    text = m.node("Cast", x, dtype="object", to=TensorProto.STRING)
    m.node("Cast", text, dtype="int64", to=TensorProto.INT64)
