"""The reference: runs a PrimFunc one scalar at a time.

Every statement of the loop level runs, scheduled or not, before or after lowering. Floats are NumPy scalars of their
own dtype, so each operation rounds as written; integers are Python's and wrap where they are stored or cast.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError, VerifyError
from autosched.tir import expr as E
from autosched.tir.atomic import ATOMIC_ADD, store_atomics
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.checked_index import CHECK_INDEX, evaluate_check
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.intrinsics import NUMPY
from autosched.tir.match import inline_matches
from autosched.tir.ptx import FUNCTIONS
from autosched.tir.share import bind_shared_values
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip

Number: TypeAlias = Any  # a Python or NumPy number, as its dtype says
Frame = list[Number]  # values of variables and arrays of buffers, by slot
Value = Callable[[Frame], Number]
Action = Callable[[Frame], None]


def interpret(func: PrimFunc, arrays: Mapping[str, object] | Sequence[object], *, backward: bool = False) -> None:
    """Run a function on arrays, in place.

    arrays    one per parameter, in order or by name (of the buffer, or of a scalar parameter)
    backward  run parallel and vectorized loops from their end: a result that changes shows a race
    Raises    ShapeError or TypeError where an array does not fit its buffer; IndexError for an access out of bounds;
              VerifyError for a block variable outside of its domain.
    """
    compiler = _Compiler(backward)
    given = _in_order(func, arrays)
    frame_values: dict[int, object] = {}
    for param, array in zip(func.params, given, strict=True):
        if param in func.buffer_map:
            buffer = func.buffer_map[param]
            _check_array(buffer, array, frame_values)
            frame_values[id(buffer)] = array
        else:
            frame_values[id(param)] = array
    run = compiler.stmt(bind_shared_values(store_atomics(func).body))
    frame: Frame = [None] * len(compiler.slots)
    for key, value in frame_values.items():
        if key in compiler.slots:
            frame[compiler.slots[key]] = value
    with np.errstate(all="ignore"):
        run(frame)


def _in_order(func: PrimFunc, arrays: Mapping[str, object] | Sequence[object]) -> list[object]:
    names = [func.buffer_map[p].name if p in func.buffer_map else p.name for p in func.params]
    if isinstance(arrays, Mapping):
        if set(arrays) != set(names):
            raise InvalidValueError(f"expected arrays {names}, got {sorted(arrays)}")
        return [arrays[n] for n in names]
    if len(arrays) != len(names):
        raise InvalidValueError(f"expected {len(names)} arrays ({', '.join(names)}), got {len(arrays)}")
    return list(arrays)


def _check_array(buffer: Buffer, array: object, bound: dict[int, object]) -> None:
    if not isinstance(array, np.ndarray):
        raise InvalidTypeError(f"'{buffer.name}' must be a NumPy array, got {type(array).__name__}")
    if array.dtype != np.dtype(buffer.dtype):
        raise InvalidTypeError(f"'{buffer.name}' must be {buffer.dtype}, got {array.dtype}")
    fits = array.ndim == buffer.ndim
    for n, size in zip(array.shape, buffer.shape):
        if isinstance(size, Var):
            fits &= bound.setdefault(id(size), n) == n
        elif E.const_int(size) is not None:
            fits &= E.const_int(size) == n
    if not fits:
        raise ShapeError(
            f"'{buffer.name}' must have shape {[str(E.const_int(s) or s) for s in buffer.shape]}, got "
            f"{list(array.shape)}"
        )


def _poison(buffer: Buffer, shape: tuple[int, ...]) -> np.ndarray:
    """Memory that nothing has written: a value that shows."""
    if is_float(buffer.dtype):
        return np.full(shape, np.nan, buffer.dtype)
    if buffer.dtype == "bool":
        return np.ones(shape, bool)
    return np.full(shape, np.iinfo(buffer.dtype).max, buffer.dtype)


def _wrap(value: Number, dtype: str) -> Number:
    """A number as a dtype: integers wrap, floats round (to integers: towards zero)."""
    if dtype == "bool":
        return bool(value)
    if is_int(dtype):
        bits, n = np.dtype(dtype).itemsize * 8, int(value)
        n &= (1 << bits) - 1
        return n - (1 << bits) if dtype.startswith("int") and n >> (bits - 1) else n
    return np.dtype(dtype).type(value)


def _floordiv(a: Number, b: Number) -> Number:
    """a // b rounding down; by 0 it is 0, as in kernels."""
    return a // b if b else 0 * b


def _floormod(a: Number, b: Number) -> Number:
    return a % b if b else 0 * b


_BINARY: dict[type, Callable[[Number, Number], Number]] = {
    E.Add: operator.add, E.Sub: operator.sub, E.Mul: operator.mul, E.FloorDiv: _floordiv,
    E.FloorMod: _floormod, E.EQ: operator.eq, E.NE: operator.ne, E.LT: operator.lt, E.LE: operator.le,
    E.GT: operator.gt, E.GE: operator.ge,
}  # fmt: skip


def _truncmod(a: Number, b: Number) -> Number:
    return a - _truncdiv(a, b) * b if b else 0 * b


def _truncdiv(a: Number, b: Number) -> Number:
    if not b:
        return 0 * b
    return abs(a) // abs(b) * (1 if (a >= 0) == (b >= 0) else -1)


def _min(a: Number, b: Number) -> Number:
    return a if a < b or a != a else b


def _max(a: Number, b: Number) -> Number:
    return a if a > b or a != a else b


class _Compiler:
    """Turns nodes into closures over a frame."""

    def __init__(self, backward: bool):
        self.slots: dict[int, int] = {}
        self.keep: list[Var | Buffer] = []  # nodes whose id is a slot's key must stay alive
        self.backward = backward

    def slot(self, x: Var | Buffer) -> int:
        if id(x) not in self.slots:
            self.slots[id(x)] = len(self.slots)
            self.keep.append(x)
        return self.slots[id(x)]

    # --- expressions ----------------------------------------------------------------------------------------------

    def expr(self, x: PrimExpr) -> Value:
        match x:
            case E.IntImm(value=value, dtype=dtype):
                constant = bool(value) if dtype == "bool" else value
                return lambda f: constant
            case E.FloatImm(value=number, dtype=dtype):
                rounded = np.dtype(dtype).type(number)
                return lambda f: rounded
            case Var():
                s, name = self.slot(x), x.name

                def variable(f: Frame) -> Number:
                    if f[s] is None:
                        raise VerifyError(f"variable '{name}' is used where it has no value")
                    return f[s]

                return variable
            case BufferLoad():
                return self.load(x)
            case E.And():
                a, b = self.expr(x.a), self.expr(x.b)
                return lambda f: a(f) and b(f)
            case E.Or():
                a, b = self.expr(x.a), self.expr(x.b)
                return lambda f: a(f) or b(f)
            case E.BinaryOp():
                return self.binary(x)
            case E.Not():
                a = self.expr(x.a)
                return lambda f: not a(f)
            case E.Select():
                c, t, e = self.expr(x.condition), self.expr(x.true_value), self.expr(x.false_value)
                return lambda f: t(f) if c(f) else e(f)
            case E.Cast(value=inner, dtype=dtype):
                value_of = self.expr(inner)
                return lambda f: _wrap(value_of(f), dtype)
            case E.Let():
                s, value_of, body = self.slot(x.var), self.expr(x.value), self.expr(x.body)

                def let(f: Frame) -> Number:
                    f[s] = value_of(f)
                    return body(f)

                return let
            case E.Call():
                return self.call(x)
            case _:
                raise InvalidTypeError(f"the interpreter has no rule for {type(x).__name__}")

    def binary(self, x: E.BinaryOp) -> Value:
        a, b = self.expr(x.a), self.expr(x.b)
        kind = type(x)
        if kind is E.Div:
            if is_int(x.dtype):
                return lambda f: _truncdiv(a(f), b(f))
            return lambda f: np.divide(a(f), b(f))
        if kind is E.Mod:
            if is_float(x.dtype):
                return lambda f: np.fmod(a(f), b(f))
            return lambda f: _truncmod(a(f), b(f))
        if kind is E.Min:
            return lambda f: _min(a(f), b(f))
        if kind is E.Max:
            return lambda f: _max(a(f), b(f))
        op = _BINARY[kind]
        return lambda f: op(a(f), b(f))

    def call(self, x: E.Call) -> Value:
        if x.op in FUNCTIONS and x.op != "tvm_storage_sync":
            raise InvalidTypeError(
                f"the interpreter runs one thread after the other, and T.{x.op} is for several",
                hint="build it for a cuda target; autosched.codegen.cuda.emulate runs that without a GPU",
            )
        args = [self.expr(a) for a in x.args if not isinstance(a, E.StringImm)]
        if x.op == "if_then_else":
            c, t, e = args
            return lambda f: t(f) if c(f) else e(f)
        if x.op == CHECK_INDEX:
            return lambda f: int(evaluate_check(args[0](f), x))
        if x.op in ("tvm_storage_sync", "prefetch"):
            return lambda f: 0
        if x.op == ATOMIC_ADD:
            return lambda f: args[0](f) + args[1](f)
        if x.op not in NUMPY:
            raise InvalidTypeError(f"the interpreter has no function '{x.op}'")
        function = NUMPY[x.op]
        return lambda f: function(*(a(f) for a in args))

    def load(self, x: BufferLoad) -> Value:
        s, at = self.slot(x.buffer), self.place(x.buffer, x.indices)
        integer = is_int(x.buffer.dtype)

        def read(f: Frame) -> Number:
            value = f[s][at(f)]
            return value.item() if integer else value

        return read

    def place(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> Callable[[Frame], tuple[int, ...]]:
        """The checked position of an access."""
        s, parts = self.slot(buffer), [self.expr(i) for i in indices]

        def position(f: Frame) -> tuple[int, ...]:
            at = tuple([p(f) for p in parts])
            array = f[s]
            if array is None:
                raise VerifyError(f"buffer '{buffer.name}' is used where it is not allocated")
            if len(at) != array.ndim or any(not 0 <= i < n for i, n in zip(at, array.shape)):
                raise IndexError(
                    f"{buffer.name}{list(map(int, at))} is out of bounds: its shape is {list(array.shape)}"
                )
            return at

        return position

    # --- statements -----------------------------------------------------------------------------------------------

    def stmt(self, x: Stmt) -> Action:
        match x:
            case SeqStmt():
                return self.sequence(x)
            case For():
                return self.loop(x)
            case BlockRealize():
                return self.realize(x)
            case BufferStore():
                return self.store(x)
            case IfThenElse():
                return self.choice(x)
            case LetStmt():
                return self.let(x)
            case While():
                return self.repetition(x)
            case Allocate():
                return self.allocating([x.buffer], self.stmt(x.body))
            case Evaluate():
                return self.evaluation(x)
            case AssertStmt():
                return self.assertion(x)
            case _:
                raise InvalidTypeError(f"the interpreter has no rule for {type(x).__name__}")

    def sequence(self, x: SeqStmt) -> Action:
        parts = [self.stmt(s) for s in x.seq]

        def sequence(f: Frame) -> None:
            for p in parts:
                p(f)

        return sequence

    def store(self, x: BufferStore) -> Action:
        s, value, at = self.slot(x.buffer), self.expr(x.value), self.place(x.buffer, x.indices)
        dtype = x.buffer.dtype

        def store(f: Frame) -> None:
            v = value(f)
            f[s][at(f)] = _wrap(v, dtype)

        return store

    def choice(self, x: IfThenElse) -> Action:
        c, t = self.expr(x.condition), self.stmt(x.then_case)
        e = None if x.else_case is None else self.stmt(x.else_case)

        def choice(f: Frame) -> None:
            if c(f):
                t(f)
            elif e is not None:
                e(f)

        return choice

    def let(self, x: LetStmt) -> Action:
        s, value, body = self.slot(x.var), self.expr(x.value), self.stmt(x.body)

        def let(f: Frame) -> None:
            f[s] = value(f)
            body(f)

        return let

    def repetition(self, x: While) -> Action:
        c, body = self.expr(x.condition), self.stmt(x.body)

        def repeat(f: Frame) -> None:
            while c(f):
                body(f)

        return repeat

    def evaluation(self, x: Evaluate) -> Action:
        value = self.expr(x.value)

        def evaluate(f: Frame) -> None:
            value(f)

        return evaluate

    def assertion(self, x: AssertStmt) -> Action:
        c, body, message = self.expr(x.condition), self.stmt(x.body), x.message

        def check(f: Frame) -> None:
            if not c(f):
                raise AssertionError(message)
            body(f)

        return check

    def loop(self, x: For) -> Action:
        s, start, extent, body = self.slot(x.loop_var), self.expr(x.start), self.expr(x.extent), self.stmt(x.body)
        turned = self.backward and x.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED)

        def run(f: Frame) -> None:
            first = start(f)
            steps = range(first, first + extent(f))
            for i in reversed(steps) if turned else steps:
                f[s] = i
                body(f)

        return run

    def allocating(self, buffers: Sequence[Buffer], body: Action) -> Action:
        made = [(self.slot(b), b, [self.expr(n) for n in b.shape]) for b in buffers]

        def run(f: Frame) -> None:
            for s, b, shape in made:
                f[s] = _poison(b, tuple(n(f) for n in shape))
            body(f)

        return run

    def realize(self, x: BlockRealize) -> Action:
        block = x.block
        values = [self.expr(v) for v in x.iter_values]
        slots = [self.slot(iv.var) for iv in block.iter_vars]
        bounds = [(self.expr(iv.dom.min), self.expr(iv.dom.extent)) for iv in block.iter_vars]
        reducing = [i for i, iv in enumerate(block.iter_vars) if iv.kind == REDUCE]
        predicate = self.expr(x.predicate)
        init = None if block.init is None else self.stmt(block.init)
        body = self.block_body(block)

        def run(f: Frame) -> None:
            if not predicate(f):
                return
            starts = []
            for s, value, (low, extent) in zip(slots, values, bounds):
                v, n = value(f), low(f)
                starts.append(n)
                if not n <= v < n + extent(f):
                    raise VerifyError(f"block '{block.name_hint}': variable {v} is outside of [{n}, {n + extent(f)})")
                f[s] = v
            if init is not None and all(f[slots[i]] == starts[i] for i in reducing):
                init(f)
            body(f)

        return run

    def block_body(self, block: Block) -> Action:
        body = self.stmt(inline_matches(block.body, block.match_buffers))
        return self.allocating(block.alloc_buffers, body) if block.alloc_buffers else body
