"""Recurrent layers over any number of steps: RNN, GRU and LSTM, one row of states after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.topi.shapes import dims, extent_of, open_shape

Scalar = Callable[[PrimExpr], PrimExpr]
Activation = str | tuple[str, tuple[float, ...]]  # a name of FUNCTIONS, with its alpha and beta where it has them


def _affine(v: PrimExpr, alpha: float, beta: float) -> PrimExpr:
    return v * E.const(alpha, v.dtype) + E.const(beta, v.dtype)


def _over(v: PrimExpr, low: PrimExpr) -> PrimExpr:
    return te.if_then_else(v > E.const(0, v.dtype), v, low)


FUNCTIONS: dict[str, Callable[..., PrimExpr]] = {
    "tanh": te.tanh,
    "sigmoid": te.sigmoid,
    "relu": lambda v: E.maximum(v, E.const(0, v.dtype)),
    "leakyrelu": lambda v, alpha: _over(v, v * E.const(alpha, v.dtype)),
    "thresholdedrelu": lambda v, alpha: te.if_then_else(v >= E.const(alpha, v.dtype), v, E.const(0, v.dtype)),
    "elu": lambda v, alpha: _over(v, _affine(te.exp(v), alpha, -alpha)),
    "affine": _affine,
    "scaledtanh": lambda v, alpha, beta: te.tanh(v * E.const(beta, v.dtype)) * E.const(alpha, v.dtype),
    "softsign": lambda v: v / (E.const(1, v.dtype) + te.abs(v)),
    "softplus": lambda v: FUNCTIONS["relu"](v) + te.log(E.const(1, v.dtype) + te.exp(-te.abs(v))),
    "hardsigmoid": lambda v, alpha, beta: _clipped(_affine(v, alpha, beta), 0.0, 1.0),
}


def _clipped(v: PrimExpr, low: float, high: float) -> PrimExpr:
    return E.minimum(E.maximum(v, E.const(low, v.dtype)), E.const(high, v.dtype))


def _function(activation: Activation, limit: float | None) -> Scalar:
    """An activation of what was brought to [-limit, limit] where there is one."""
    name, values = (activation, ()) if isinstance(activation, str) else activation
    function = partial(_called, FUNCTIONS[name], values)
    return function if limit is None else lambda v: function(_clipped(v, -limit, limit))


def _called(function: Callable[..., PrimExpr], values: Sequence[float], v: PrimExpr) -> PrimExpr:
    return function(v, *values)


class _Layer:
    """One direction of a layer.

    inputs       [steps, batch, gates * hidden], what each step's input adds to its gates
    weights      [panels, hidden, width] each: columns in panels, the last one filled up
    """

    def __init__(
        self, inputs: Tensor, weights: Sequence[Tensor], bias: Tensor, functions: Sequence[Scalar], backward: bool
    ):  # fmt: skip
        self.inputs, self.weights, self.bias, self.backward = inputs, weights, bias, backward
        self.functions = functions
        self.steps, self.batch, _ = open_shape(inputs)
        self.hidden = extent_of(weights[0], 1)
        self.gates, self.dtype = extent_of(inputs, 2), inputs.dtype
        self.shape = dims((self.steps + 1, self.batch, self.hidden))

    def product(self, state: Tensor, weight: Tensor, back: int, count: int, name: str) -> Tensor:
        """A state, of so many steps before, times a weight in panels, which has `count` columns."""
        k, width = te.reduce_axis((0, dims((self.hidden,))[0]), "k"), extent_of(weight, 2)

        def sums(t: PrimExpr, b: PrimExpr, g: PrimExpr) -> PrimExpr:
            return te.sum(state[t - back, b, k] * weight[g // width, k, g % width], axis=k)

        return te.compute(dims((self.steps + 1, self.batch, count)), sums, name=name)

    def given(self, t: PrimExpr, b: PrimExpr, column: PrimExpr) -> PrimExpr:
        """What the input of the step that gives row t adds."""
        return self.inputs[self.steps - t if self.backward else t - 1, b, column].as_expr()

    def column(self, i: PrimExpr, gate: int) -> PrimExpr:
        return i + gate * self.hidden

    def run(self, initial: Sequence[Tensor], states: Sequence[Tensor], updates: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """(states of all steps, then the last ones)."""
        starts = [self.start(h) for h in initial]
        found = te.scan(starts, updates, states, inputs=[self.inputs, *self.weights, self.bias])
        rows = list(found) if isinstance(found, list) else [found]

        def shown(t: PrimExpr, b: PrimExpr, i: PrimExpr) -> PrimExpr:
            return rows[0][self.steps - t if self.backward else t + 1, b, i].as_expr()

        every = te.compute(dims((self.steps, self.batch, self.hidden)), shown, name="states")
        return every, *map(self.last, rows)

    def start(self, initial: Tensor) -> Tensor:
        """A state as the row before the first step's."""
        return te.compute(dims((1, self.batch, self.hidden)), lambda _, b, i: initial[b, i], name="start")

    def last(self, rows: Tensor) -> Tensor:
        """The last step's row."""
        return te.compute(dims((self.batch, self.hidden)), lambda b, i: rows[self.steps, b, i], name="last")

    def state(self, name: str) -> Tensor:
        return te.placeholder(self.shape, self.dtype, name)

    def update(self, body: Callable[[PrimExpr, PrimExpr, PrimExpr], ExprLike], name: str) -> Tensor:
        """A row of a state: what reads the row before has a nest of its own, whose elements come side by side."""
        value = te.compute(self.shape, body, name=name)
        return te.compute(self.shape, lambda t, b, i: value[t, b, i], name=f"{name}_row")

    def rnn(self, h: Tensor) -> tuple[Tensor, ...]:
        """h = f(W x + R h + b)."""
        (f,), state = self.functions, self.state("h")
        product = self.product(state, self.weights[0], 1, self.gates, "product")
        new = self.update(lambda t, b, i: f(product[t, b, i] + self.given(t, b, i)), "new")
        return self.run([h], [state], [new])

    def lstm(self, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """Gates i, o, f, c: cell = f * cell + i * c; h = o * tanh(cell)."""
        (f, g, last), state, cell = self.functions, self.state("h"), self.state("c")
        product = self.product(state, self.weights[0], 1, self.gates, "product")

        def gate(t: PrimExpr, b: PrimExpr, i: PrimExpr, n: int) -> PrimExpr:
            at = self.column(i, n)
            return product[t, b, at] + self.given(t, b, at)

        new_cell = self.update(
            lambda t, b, i: f(gate(t, b, i, 2)) * cell[t - 1, b, i] + f(gate(t, b, i, 0)) * g(gate(t, b, i, 3)), "cell"
        )
        new = self.update(lambda t, b, i: f(gate(t, b, i, 1)) * last(new_cell[t, b, i].as_expr()), "new")
        return self.run([h, c], [state, cell], [new, new_cell])

    def gru(self, h: Tensor, reset_after: bool) -> tuple[Tensor, ...]:
        """Gates z, r, h: h = (1 - z) * tanh(…) + z * h; `reset_after` the product with the state, or before it."""
        (f, g), state, size = self.functions, self.state("h"), self.hidden
        product = self.product(state, self.weights[0], 1, self.gates if reset_after else 2 * size, "product")

        def inner(t: PrimExpr, b: PrimExpr, i: PrimExpr, n: int) -> PrimExpr:
            at = self.column(i, n)
            value = product[t, b, at].as_expr()
            return value + self.bias[at] if reset_after else value

        def gate(t: PrimExpr, b: PrimExpr, i: PrimExpr, n: int) -> PrimExpr:
            return f(inner(t, b, i, n) + self.given(t, b, self.column(i, n)))

        if reset_after:
            reset: Callable[..., PrimExpr] = lambda t, b, i: gate(t, b, i, 1) * inner(t, b, i, 2)  # noqa: E731
        else:
            kept = te.compute(self.shape, lambda t, b, i: gate(t, b, i, 1) * state[t - 1, b, i], name="kept")
            after = self.product(kept, self.weights[1], 0, size, "after")
            reset = lambda t, b, i: after[t, b, i].as_expr()  # noqa: E731

        def new(t: PrimExpr, b: PrimExpr, i: PrimExpr) -> PrimExpr:
            value = g(reset(t, b, i) + self.given(t, b, self.column(i, 2)))
            return value + gate(t, b, i, 0) * (state[t - 1, b, i] - value)

        return self.run([h], [state], [self.update(new, "new")])


def recurrent(
    inputs: Tensor, weights: Sequence[Tensor], bias: Tensor, initial: Sequence[Tensor], kind: str,
    activations: Sequence[Activation], backward: bool = False, reset_after: bool = False, limit: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(states of all steps [steps, batch, hidden], the last state [batch, hidden], of an LSTM the last cell).

    inputs   [steps, batch, gates * hidden]: inputs times their weights, with all biases
    weights  of the state, in panels [panels, hidden, width]: [hidden, gates * hidden], of a GRU without `reset_after`
             the columns of its first two gates and those of the third
    bias     [gates * hidden]: of a GRU with `reset_after` what is added to that product, which `inputs` then lacks
    initial  the first state, of an LSTM the first cell as well
    kind     "RNN", "GRU" or "LSTM", whose gates come in ONNX's order
    limit    of what activations of gates take, to both sides
    """
    functions = [_function(a, limit if n < 2 else None) for n, a in enumerate(activations)]
    layer = _Layer(inputs, weights, bias, functions, backward)
    if kind == "GRU":
        return layer.gru(initial[0], reset_after)
    return layer.lstm(*initial) if kind == "LSTM" else layer.rnn(*initial)
