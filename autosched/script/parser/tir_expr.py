"""Scalar expressions from text. Nothing is folded: what was printed comes back as it was."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence

import numpy as np

from autosched.errors import AutoschedError
from autosched.script.intrinsics import DTYPES, RESULT_LIKE
from autosched.script.parser import values
from autosched.script.parser.state import Meaning, State, arguments
from autosched.tir import calls, ptx
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import check_dtype, is_float, is_int
from autosched.tir.expr import PrimExpr

BINARY: dict[type[ast.AST], type[E.BinaryOp]] = {
    ast.Add: E.Add, ast.Sub: E.Sub, ast.Mult: E.Mul, ast.Div: E.Div, ast.FloorDiv: E.FloorDiv, ast.Mod: E.FloorMod,
    ast.Eq: E.EQ, ast.NotEq: E.NE, ast.Lt: E.LT, ast.LtE: E.LE, ast.Gt: E.GT, ast.GtE: E.GE,
}  # fmt: skip
PYTHON: dict[type[E.BinaryOp], Callable[[float, float], float]] = {
    E.Add: operator.add, E.Sub: operator.sub, E.Mul: operator.mul, E.Div: operator.truediv,
    E.FloorDiv: operator.floordiv, E.FloorMod: operator.mod, E.EQ: operator.eq, E.NE: operator.ne, E.LT: operator.lt,
    E.LE: operator.le, E.GT: operator.gt, E.GE: operator.ge,
}  # fmt: skip
FUNCTIONS: dict[str, type[E.BinaryOp]] = {
    **{k.__name__: k for k in BINARY.values()}, "And": E.And, "Or": E.Or, "Min": E.Min, "Max": E.Max, "Mod": E.Mod,
    "min": E.Min, "max": E.Max, "truncdiv": E.Div, "truncmod": E.Mod, "floordiv": E.FloorDiv, "floormod": E.FloorMod,
}  # fmt: skip
BITS: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.BitAnd: ("bitwise_and", operator.and_), ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor), ast.LShift: ("shift_left", operator.lshift),
    ast.RShift: ("shift_right", operator.rshift),
}  # fmt: skip
PREFIXES = ("ptx_", "mma_", "tvm_")  # of names that are instructions of a GPU
MOST_POWER = 64  # exponents of Python's numbers: what is larger is no size
_BUILTINS: dict[str, Callable[..., Meaning]] = {
    "abs": abs,
    "int": int,
    "float": float,
    "len": len,
    "min": min,
    "max": max,
    "sum": sum,
}


def _limit(kind: str) -> Callable[[str], PrimExpr]:
    def limit(dtype: str) -> PrimExpr:
        info = np.finfo(dtype) if is_float(check_dtype(dtype, kind)) else np.iinfo(dtype)
        return E.const(float(getattr(info, kind)) if is_float(dtype) else int(getattr(info, kind)), dtype)

    return limit


_MORE: dict[str, Callable[..., PrimExpr]] = {
    "ceildiv": lambda a, b: E.floordiv(E.add(a, E.sub(b, 1)), b), "all": E.all_of, "any": E.any_of,
    "min_value": _limit("min"), "max_value": _limit("max"), "const": E.const, "FloatImm": lambda t, v: E.const(v, t),
    "power": lambda a, b: E.call("pow", *E.match_types(a, b)),
}  # fmt: skip


class ExprReader:
    """Reads expressions in a State."""

    def __init__(self, state: State):
        self.state = state
        state.evaluate = self.value

    def expr(self, node: ast.AST, dtype: str | None = None) -> PrimExpr:
        """An expression; a bare number takes `dtype` (else int32, float32 or bool). Raises ScriptError."""
        return self.as_expr(node, self.value(node), dtype)

    def as_expr(self, node: ast.AST, value: object, dtype: str | None = None) -> PrimExpr:
        """What `value` has read at a node as an expression: no node is read twice, nested ones would be 2**n times."""
        if isinstance(value, Buffer):
            raise self.state.error(node, f"buffer '{value.name}' must be indexed")
        if isinstance(value, str):
            return E.StringImm(value)
        with self.state.source.at(node):
            return E.to_expr(value, dtype)

    def exprs(self, nodes: Sequence[ast.AST], dtype: str | None = None) -> tuple[PrimExpr, ...]:
        """Several expressions; `*shape` gives those of a tuple."""
        found: list[PrimExpr] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                with self.state.source.at(node):
                    found += [E.to_expr(v, dtype) for v in self.sequence(node.value)]
            else:
                found.append(self.expr(node, dtype))
        return tuple(found)

    def sequence(self, node: ast.AST) -> tuple[Meaning, ...]:
        """The values of a tuple or list. Raises ScriptError for anything else."""
        value = self.value(node)
        if not isinstance(value, tuple | list):
            raise self.state.error(node, "expected a tuple or list")
        return tuple(value)

    def value(self, node: ast.AST) -> Meaning:
        """An expression, a buffer, or a bare number or string that still has no dtype."""
        if (number := values.number(node)) is not None:
            return number
        with self.state.source.at(node):
            match node:
                case ast.Name():
                    return self.state.find(node)
                case ast.Constant(value=str(text)):
                    return text
                case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                    return self._binary(node, BINARY[type(op)], left, right)
                case ast.BinOp(left=left, op=ast.Pow(), right=right):
                    return self._power(node, self.value(left), self.value(right))
                case ast.BinOp(left=left, op=op, right=right) if type(op) in BITS:
                    return self._bits(node, type(op), left, right)
                case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in BINARY:
                    return self._binary(node, BINARY[type(op)], left, right)
                case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(op) in BINARY for op in ops):
                    return self._chain([left, *rest], ops)
                case ast.BoolOp(op=op, values=items):
                    return self._bool_op(E.And if isinstance(op, ast.And) else E.Or, items)
                case ast.UnaryOp(op=ast.Not(), operand=operand):
                    return E.Not(self.expr(operand, "bool"))
                case ast.UnaryOp(op=ast.USub(), operand=operand):
                    value = self.value(operand)
                    return -value if isinstance(value, int | float) else -self.as_expr(operand, value)
                case ast.UnaryOp(op=ast.Invert(), operand=operand):
                    return ~self.expr(operand)
                case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                    return self.value(operand)
                case ast.IfExp(test=test, body=body, orelse=orelse):
                    return self._if_expression(test, body, orelse)
                case ast.Tuple(elts=items) | ast.List(elts=items):
                    return tuple(self.value(item) for item in items)
                case ast.JoinedStr():
                    return "".join(self._text_part(part) for part in node.values)
                case ast.Attribute(value=base, attr=name) if self.state.dialect_name(node) is None:
                    return self._attribute(node, base, name)
                case ast.Subscript(value=base, slice=index):
                    return self._load(base, index)
                case ast.Call():
                    return self._call(node)
        raise self.state.error(node, "this is not an expression of the T dialect")

    # --- operators

    def pair(self, left: ast.AST, right: ast.AST) -> tuple[PrimExpr, PrimExpr]:
        """Two operands of one dtype: a bare number takes the other's."""
        return self._pair(left, self.value(left), right, self.value(right))

    def _pair(self, left: ast.AST, a: Meaning, right: ast.AST, b: Meaning) -> tuple[PrimExpr, PrimExpr]:
        for value, node in ((a, left), (b, right)):
            if isinstance(value, Buffer | str) or getattr(value, "dtype", "") in ("handle", "void"):
                raise self.state.error(node, "expected a scalar expression")
        return E.match_types(a, b)

    def _binary(self, node: ast.AST, kind: type[E.BinaryOp], left: ast.AST, right: ast.AST) -> PrimExpr | float:
        x, y = self.value(left), self.value(right)
        if isinstance(x, int | float) and isinstance(y, int | float):
            return self._python(node, kind, x, y)
        a, b = self._pair(left, x, right, y)
        if kind is E.Div and isinstance(node, ast.BinOp) and is_int(a.dtype):
            raise self.state.error(node, "/ of integers: write // or T.truncdiv")
        return kind(a, b)

    def _python(self, node: ast.AST, kind: type[E.BinaryOp], x: float, y: float) -> float:
        """Two bare numbers give a bare number, as in Python."""
        try:
            return PYTHON[kind](x, y)
        except ZeroDivisionError:
            raise self.state.error(node, "division by zero") from None

    def _bool_op(self, kind: type[E.BinaryOp], items: Sequence[ast.AST]) -> PrimExpr:
        result = self.expr(items[0], "bool")
        for item in items[1:]:
            result = kind(result, self.expr(item, "bool"))
        return result

    def _bits(self, node: ast.AST, op: type[ast.operator], left: ast.AST, right: ast.AST) -> int | PrimExpr:
        x, y = self.value(left), self.value(right)
        if isinstance(x, int) and isinstance(y, int):
            return BITS[op][1](x, y)
        a, b = self._pair(left, x, right, y)
        return E.bitwise(BITS[op][0], a, b)

    def _chain(self, items: Sequence[ast.AST], ops: Sequence[ast.cmpop]) -> PrimExpr:
        """`0 <= i < 8`."""
        result: PrimExpr | None = None
        found = [self.value(item) for item in items]
        for n, op in enumerate(ops):
            part = BINARY[type(op)](*self._pair(items[n], found[n], items[n + 1], found[n + 1]))
            result = part if result is None else E.And(result, part)
        assert result is not None
        return result

    def _power(self, node: ast.AST, base: Meaning, exponent: Meaning) -> Meaning:
        """`a ** b` of Python's numbers."""
        if not isinstance(base, int | float) or not isinstance(exponent, int | float):
            raise self.state.error(node, "** is for Python's numbers; write T.pow(a, b) or products")
        if abs(exponent) > MOST_POWER:
            raise self.state.error(node, f"the exponent {exponent} is above {MOST_POWER}")
        try:
            return base**exponent
        except (ArithmeticError, ValueError) as error:
            raise self.state.error(node, f"{base} ** {exponent}: {error}") from None

    def _if_expression(self, test: ast.AST, body: ast.AST, orelse: ast.AST) -> Meaning:
        """`a if c else b`: chosen now where `c` is a Python value."""
        condition = self.value(test)
        if not isinstance(condition, PrimExpr):
            return self.value(body if condition else orelse)
        a, b = self.pair(body, orelse)
        return E.Call("if_then_else", (self.as_expr(test, condition, "bool"), a, b), a.dtype)

    def _text_part(self, part: ast.AST) -> str:
        return str(self.value(part.value) if isinstance(part, ast.FormattedValue) else ast.literal_eval(part))

    def _attribute(self, node: ast.AST, base: ast.AST, name: str) -> Meaning:
        """An attribute of a buffer (`A.shape`, `A.data`) or of a Python value that the text names."""
        owner = self.state.find(base) if isinstance(base, ast.Name) else self.value(base)
        if name.startswith("_") or not hasattr(owner, name):
            raise self.state.error(node, f"a {type(owner).__name__} has no attribute '{name}'")
        return getattr(owner, name)

    # --- memory

    def buffer(self, node: ast.AST) -> Buffer:
        """A buffer by name. Raises ScriptError for anything else."""
        value = self.state.find(node) if isinstance(node, ast.Name) else None
        if not isinstance(value, Buffer):
            raise self.state.error(node, "expected the name of a buffer")
        return value

    def indices(self, buffer: Buffer, index: ast.AST) -> tuple[PrimExpr, ...]:
        """Indices of one element. Raises ScriptError where their number is wrong."""
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        if len(items) != buffer.ndim:
            message = f"buffer '{buffer.name}' has {buffer.ndim} dimensions, got {len(items)} indices"
            raise self.state.error(index, message)
        for item in items:
            if isinstance(item, ast.Slice):
                raise self.state.error(item, "a region cannot stand here, an element is needed")
        return self.exprs(items)

    def _load(self, base: ast.AST, index: ast.AST) -> Meaning:
        owner = self.value(base)
        if isinstance(owner, tuple | list | dict | str):
            at = self.value(index)
            try:
                return owner[at.value if isinstance(at, E.IntImm) else at]
            except (LookupError, TypeError) as error:
                raise self.state.error(index, f"no such element: {error}") from None
        if isinstance(owner, PrimExpr):
            raise self.state.error(base, "expected the name of a buffer")
        buffer = owner if isinstance(owner, Buffer) else self.buffer(base)
        return BufferLoad(buffer, self.indices(buffer, index))

    # --- calls

    def _call(self, node: ast.Call) -> Meaning:
        name = self.state.called(node, "T")
        if not name:
            return self._python_call(node)
        if (constant := values.dtype_constant(self.state, node)) is not None:
            return constant
        if name in FUNCTIONS:
            args = arguments(self.state, node, "a", "b", required=2)
            return FUNCTIONS[name](*self.pair(args["a"], args["b"]))
        if name in DTYPES and len(node.args) == 1:
            value = self.value(node.args[0])
            if isinstance(value, int | float):
                return E.const(value, name)
            return E.Cast(self.as_expr(node.args[0], value), name)
        special = getattr(self, f"_call_{name}", None)
        if special is not None:
            return special(node)
        if name in RESULT_LIKE:
            return self._intrinsic(node, name)
        if name in ptx.FUNCTIONS:
            return self._instruction(node, name)
        if name in calls.__all__ or name in _MORE:
            return self._apply(node, getattr(calls, name) if name in calls.__all__ else _MORE[name])
        known = f"; known are {', '.join(f'T.{n}' for n in ptx.__all__)}" if name.startswith(PREFIXES) else ""
        raise self.state.error(node.func, f"unknown function T.{name}{known}")

    def _python_call(self, node: ast.Call) -> Meaning:
        """A function of Python that the text names, with what its arguments are."""
        if isinstance(node.func, ast.Name) and not self.state.knows(node.func.id):
            if node.func.id not in _BUILTINS:
                raise self.state.error(node.func, f"undefined function '{node.func.id}'")
            function = _BUILTINS[node.func.id]
        else:
            function = self.value(node.func)
        if not callable(function) or isinstance(function, Buffer | PrimExpr):
            raise self.state.error(node.func, "only functions can be called")
        return self._apply(node, function)

    def _apply(self, node: ast.Call, function: Callable[..., object]) -> Meaning:
        args: list[Meaning] = []
        for a in node.args:
            args += self.sequence(a.value) if isinstance(a, ast.Starred) else [self.value(a)]
        words = {str(w.arg): self.value(w.value) for w in node.keywords}
        try:
            return function(*args, **words)
        except AutoschedError:
            raise
        except Exception as error:  # whatever the user's function raises belongs to this line
            raise self.state.error(node, f"{type(error).__name__}: {error}") from error

    def _instruction(self, node: ast.Call, name: str) -> PrimExpr:
        """`T.ptx_…(…)`: the dtype of the result comes first, or by its name; what gives no value has none."""
        function = ptx.FUNCTIONS[name]
        words = [w for w in node.keywords if w.arg == "dtype"]
        rest = [w for w in node.keywords if w not in words]
        first = [w.value for w in words] if name in ptx.TYPED else []
        whole = ast.copy_location(ast.Call(node.func, [*first, *node.args], rest), node)
        return self.as_expr(node, self._apply(whole, function))

    def _choice(self, node: ast.Call) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        args = arguments(self.state, node, "condition", "true_value", "false_value", "dtype", required=3)
        return self.expr(args["condition"], "bool"), *self.pair(args["true_value"], args["false_value"])

    def _call_Select(self, node: ast.Call) -> PrimExpr:  # noqa: N802  (the dialect's name)
        return E.Select(*self._choice(node))

    def _call_if_then_else(self, node: ast.Call) -> PrimExpr:
        choice = self._choice(node)
        return E.Call("if_then_else", choice, choice[1].dtype)

    def _call_Cast(self, node: ast.Call) -> PrimExpr:  # noqa: N802
        args = arguments(self.state, node, "dtype", "value", required=2)
        return E.Cast(self.expr(args["value"]), values.dtype(self.state, args["dtype"]))

    def _call_cast(self, node: ast.Call) -> PrimExpr:
        args = arguments(self.state, node, "value", "dtype", required=2)
        return E.cast(values.dtype(self.state, args["dtype"]), self.expr(args["value"]))

    def _call_meta_var(self, node: ast.Call) -> Meaning:
        return self.value(arguments(self.state, node, "value", required=1)["value"])

    def _call_Not(self, node: ast.Call) -> PrimExpr:  # noqa: N802
        return E.Not(self.expr(arguments(self.state, node, "a", required=1)["a"], "bool"))

    def _call_Let(self, node: ast.Call) -> PrimExpr:  # noqa: N802
        args = arguments(self.state, node, "body", "where", required=2)
        where = args["where"]
        if not (isinstance(where, ast.Dict) and len(where.keys) == 1 and isinstance(where.keys[0], ast.Name)):
            raise self.state.error(where, "expected {name: value}")
        value = self.expr(where.values[0])
        var = E.Var(where.keys[0].id, value.dtype)
        with self.state.scope():
            self.state.define(var.name, var)
            return E.Let(var, value, self.expr(args["body"]))

    def _call_call_intrin(self, node: ast.Call) -> PrimExpr:
        if len(node.args) < 2 or node.keywords:
            raise self.state.error(node, 'expected T.call_intrin("dtype", "tir.name", …)')
        dtype = values.dtype(self.state, node.args[0], "handle", "void")
        name = values.string(self.state, node.args[1])
        return E.Call(name.removeprefix("tir."), self.exprs(node.args[2:]), dtype)

    def _call_call_extern(self, node: ast.Call) -> PrimExpr:
        if not node.args or node.keywords:
            raise self.state.error(node, 'expected T.call_extern("dtype", "name", …)')
        op = self.state.called(node, "T")
        return E.Call(op, self.exprs(node.args[1:]), values.dtype(self.state, node.args[0], "handle", "void"))

    _call_call_pure_extern = _call_call_extern

    def _intrinsic(self, node: ast.Call, name: str) -> PrimExpr:
        if not node.args or node.keywords:
            raise self.state.error(node, f"T.{name} takes positional arguments")
        found = [self.value(a) for a in node.args]
        typed = [v.dtype for v in found if isinstance(v, PrimExpr)]
        args = tuple(E.to_expr(v, typed[0] if typed else None) for v in found)
        like = RESULT_LIKE[name]
        return E.Call(name, args, "bool" if like < 0 else args[like].dtype)
