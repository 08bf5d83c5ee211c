"""Random te programs beside NumPy code that says what they compute, driven by a stream of choices.

All values are small whole numbers, so that float32 sums are exact in any order and results compare bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autosched import te, tir
from autosched.tir import PrimFunc

Choose = Callable[[int], int]  # n -> a number in [0, n)
Array = np.ndarray

DTYPES = ("float32", "int32", "int64", "float64")
INDEX_DTYPES = ("int32", "int64")
MAX_POINTS = 4000  # iterations of one stage: the interpreter runs each


@dataclass(frozen=True)
class Value:
    """A tensor of the program, what it holds, and how large its elements can be."""

    tensor: te.Tensor
    array: Array
    bound: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(frozen=True)
class RandomProgram:
    """A function with its arguments (outputs full of a value that shows) and the same after it has run."""

    func: PrimFunc
    arguments: list[Array]
    expected: list[Array]


class _Maker:
    """Grows a program stage by stage. A stage returns None where its operand does not suit it."""

    def __init__(self, choose: Choose):
        self.choose = choose
        self.dtype = DTYPES[choose(len(DTYPES))]
        self.index_dtype = INDEX_DTYPES[choose(2)]
        self.values: list[Value] = []

    def size(self, limit: int = 11) -> int:
        return 1 + self.choose(limit)

    def shape(self, sizes: Sequence[int]) -> tuple[object, ...]:
        return tuple(tir.IntImm(n, self.index_dtype) for n in sizes)

    def constant(self, x: int) -> tir.PrimExpr:
        return te.const(x, self.dtype)

    def placeholder(self, shape: tuple[int, ...]) -> Value:
        n = sum(isinstance(v.tensor.op, te.PlaceholderOp) for v in self.values)
        count = int(np.prod(shape))
        array = np.array([self.choose(7) - 3 for _ in range(count)]).reshape(shape).astype(self.dtype)
        self.values.append(Value(te.placeholder(self.shape(shape), self.dtype, name=f"P{n}"), array, 3))
        return self.values[-1]

    def stage(self, array: Array, bound: int, f: Callable[..., object]) -> Value:
        tensor = te.compute(self.shape(array.shape), f, name=f"S{len(self.values)}")
        return Value(tensor, array.astype(self.dtype), bound)

    def axis(self, n: int, name: str) -> tir.IterVar:
        return te.reduce_axis((tir.IntImm(0, self.index_dtype), tir.IntImm(n, self.index_dtype)), name)

    # --- stages ---------------------------------------------------------------------------------------------------

    def scale(self, x: Value) -> Value:
        a, b = self.choose(3) - 1, self.choose(5) - 2
        return self.stage(x.array * a + b, x.bound + 2, lambda *i: x.tensor[i] * self.constant(a) + self.constant(b))

    def clamp(self, x: Value) -> Value:
        zero = self.constant(0)
        return self.stage(np.maximum(x.array, 0), x.bound, lambda *i: tir.maximum(x.tensor[i], zero))

    def combine(self, x: Value) -> Value | None:
        others = [v for v in self.values if v.shape == x.shape]
        y = others[self.choose(len(others))]
        kind = self.choose(3)
        if kind == 0:
            return self.stage(x.array + y.array, x.bound + y.bound, lambda *i: x.tensor[i] + y.tensor[i])
        if kind == 1:
            return self.stage(x.array * y.array, x.bound * y.bound, lambda *i: x.tensor[i] * y.tensor[i])
        low = np.minimum(x.array, y.array)
        return self.stage(low, max(x.bound, y.bound), lambda *i: tir.minimum(x.tensor[i], y.tensor[i]))

    def broadcast(self, x: Value) -> Value | None:
        """Subtract a vector along one dimension."""
        d = self.choose(len(x.shape))
        vectors = [v for v in self.values if v.shape == (x.shape[d],)]
        y = vectors[self.choose(len(vectors))] if vectors else self.placeholder((x.shape[d],))
        along = y.array.reshape([-1 if e == d else 1 for e in range(len(x.shape))])
        return self.stage(x.array - along, x.bound + y.bound, lambda *i: x.tensor[i] - y.tensor[i[d]])

    def repeat(self, x: Value) -> Value:
        """A new dimension that the operand does not have."""
        n = self.size(4)
        return self.stage(np.broadcast_to(x.array, (n, *x.shape)), x.bound, lambda r, *i: x.tensor[tuple(i)] + 0)

    def transpose(self, x: Value) -> Value:
        order = list(range(len(x.shape)))
        for i in range(len(order) - 1, 0, -1):
            j = self.choose(i + 1)
            order[i], order[j] = order[j], order[i]
        back = [order.index(d) for d in range(len(order))]
        return self.stage(x.array.transpose(order), x.bound, lambda *i: x.tensor[tuple(i[b] for b in back)])

    def reverse(self, x: Value) -> Value:
        d = self.choose(len(x.shape))
        last = x.shape[d] - 1
        flipped = np.flip(x.array, d)
        return self.stage(flipped, x.bound, lambda *i: x.tensor[(*i[:d], last - i[d], *i[d + 1 :])])

    def pad(self, x: Value) -> Value:
        d, before, after = self.choose(len(x.shape)), self.choose(3), self.choose(3)
        widths = [(before, after) if e == d else (0, 0) for e in range(len(x.shape))]
        end = before + x.shape[d]

        def element(*i: tir.Var) -> tir.PrimExpr:
            inside = te.all(i[d] >= before, i[d] < end)
            return te.if_then_else(inside, x.tensor[(*i[:d], i[d] - before, *i[d + 1 :])], self.constant(0))

        return self.stage(np.pad(x.array, widths), x.bound, element)

    def stride(self, x: Value) -> Value:
        """Every second or third element from somewhere on."""
        d, step = self.choose(len(x.shape)), 1 + self.choose(3)
        start = self.choose(x.shape[d])
        picked = x.array[tuple(slice(start, None, step) if e == d else slice(None) for e in range(len(x.shape)))]
        return self.stage(picked, x.bound, lambda *i: x.tensor[(*i[:d], i[d] * step + start, *i[d + 1 :])])

    def flatten(self, x: Value) -> Value | None:
        if len(x.shape) < 2:
            return None
        m, n = x.shape[0], x.shape[1]
        joined = x.array.reshape(m * n, *x.shape[2:])
        return self.stage(joined, x.bound, lambda f, *i: x.tensor[(f // n, f % n, *i)])

    def unflatten(self, x: Value) -> Value | None:
        n = x.shape[0]
        factors = [f for f in range(2, n) if n % f == 0]
        if not factors or len(x.shape) > 3:
            return None
        f = factors[self.choose(len(factors))]
        parts = x.array.reshape(n // f, f, *x.shape[1:])
        return self.stage(parts, x.bound, lambda a, b, *i: x.tensor[(a * f + b, *i)])

    def concatenate(self, x: Value) -> Value | None:
        others = [v for v in self.values if v.shape[1:] == x.shape[1:]]
        y = others[self.choose(len(others))]
        n = x.shape[0]

        def element(f: tir.Var, *i: tir.Var) -> tir.PrimExpr:
            return te.if_then_else(f < n, x.tensor[(f, *i)], y.tensor[(f - n, *i)])

        return self.stage(np.concatenate([x.array, y.array]), max(x.bound, y.bound), element)

    def reduce(self, x: Value) -> Value:
        d, kind = self.choose(len(x.shape)), self.choose(3)
        n = x.shape[d]
        k = self.axis(n, f"k{len(self.values)}")
        keep = len(x.shape) == 1  # a result of one element has one dimension
        reducer = (te.sum, te.max, te.min)[kind]
        array = (np.sum, np.max, np.min)[kind](x.array, axis=d, keepdims=keep)

        def element(*i: tir.Var) -> tir.PrimExpr:
            at = (k.var,) if keep else (*i[:d], k.var, *i[d:])
            return reducer(x.tensor[at], axis=k)

        return self.stage(array, x.bound * n if kind == 0 else x.bound, element)

    def matmul(self, x: Value) -> Value | None:
        if len(x.shape) != 2:
            return None
        m, n = x.shape
        others = [v for v in self.values if len(v.shape) == 2 and v.shape[0] == n]
        y = others[self.choose(len(others))] if others else self.placeholder((n, self.size()))
        k = self.axis(n, f"k{len(self.values)}")
        bound = x.bound * y.bound * n
        return self.stage(
            x.array @ y.array, bound, lambda i, j: te.sum(x.tensor[i, k] * y.tensor[k, j], axis=k)
        )  # fmt: skip

    def window(self, x: Value) -> Value | None:
        """Weighted sums, or maxima, over a window that slides along one dimension."""
        d, step, n = self.choose(len(x.shape)), 1 + self.choose(2), 1 + self.choose(3)
        if x.shape[d] < n:
            return None
        k = self.axis(n, f"k{len(self.values)}")
        shown = np.lib.stride_tricks.sliding_window_view(x.array, n, axis=d)
        shown = shown[tuple(slice(None, None, step if e == d else 1) for e in range(len(x.shape)))]

        def at(i: tuple[tir.Var, ...]) -> tuple[object, ...]:
            return (*i[:d], i[d] * step + k, *i[d + 1 :])

        if self.choose(2):
            return self.stage(shown.max(-1), x.bound, lambda *i: te.max(x.tensor[at(i)], axis=k))
        w = self.placeholder((n,))
        bound = x.bound * w.bound * n
        return self.stage(shown @ w.array, bound, lambda *i: te.sum(x.tensor[at(i)] * w.tensor[k], axis=k))

    def normalise(self, x: Value) -> Value | None:
        """Rows less their maximum: the form of softmax, two stages that read one operand at different depths."""
        if len(x.shape) != 2:
            return None
        k = self.axis(x.shape[1], f"k{len(self.values)}")
        top = self.stage(x.array.max(1), x.bound, lambda i: te.max(x.tensor[i, k], axis=k))
        self.values.append(top)
        return self.stage(x.array - top.array[:, None], 2 * x.bound, lambda i, j: x.tensor[i, j] - top.tensor[i])


STAGES = (
    "scale", "clamp", "combine", "combine", "broadcast", "repeat", "transpose", "reverse", "pad", "stride", "flatten",
    "unflatten", "concatenate", "reduce", "reduce", "matmul", "matmul", "window", "window", "normalise",
)  # fmt: skip


def random_program(choose: Choose, max_stages: int = 5) -> RandomProgram:
    """A program of 1 to `max_stages` stages on inputs of 1 to 3 dimensions of 1 to 11."""
    maker = _Maker(choose)
    rank = 1 + choose(3)
    maker.placeholder(tuple(maker.size(11 if rank < 3 else 5) for _ in range(rank)))
    wanted = 1 + choose(max_stages)
    stages: list[Value] = []
    while len(stages) < wanted:
        # mostly the newest value, so that chains grow
        operand = maker.values[-1] if choose(3) else maker.values[choose(len(maker.values))]
        value = getattr(maker, STAGES[choose(len(STAGES))])(operand)
        if value is None or value.bound > 2**20 or value.array.size > 600 or len(value.shape) > 4:
            continue
        maker.values.append(value)
        stages.append(value)
    return _finish(maker, stages)


def _finish(maker: _Maker, stages: list[Value]) -> RandomProgram:
    """The last stage is an output, and so is every other that nothing reads."""
    inputs = [v for v in maker.values if isinstance(v.tensor.op, te.PlaceholderOp)]
    read = {t for v in maker.values for t in v.tensor.op.input_tensors}
    outputs = [v for v in stages if v.tensor not in read]
    used = [v for v in inputs if v.tensor in read]
    func = te.create_prim_func([v.tensor for v in (*used, *outputs)])
    arguments = [v.array.copy() for v in used] + [np.full_like(v.array, 77) for v in outputs]
    return RandomProgram(func, arguments, [np.ascontiguousarray(v.array) for v in (*used, *outputs)])
