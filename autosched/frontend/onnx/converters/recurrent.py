"""Recurrent layers: one product for the inputs of all steps, a small one for each step's state.

So many steps as are known are unrolled; where their number is open, one kernel loops over them (`topi.recurrent`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autosched.frontend.onnx.converters.elementwise import softsign
from autosched.frontend.onnx.converters.quantize import check_scale
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem
from autosched.relax.struct_info import Dim
from autosched.topi.recurrent import recurrent as te_recurrent

PANEL = 128  # columns of a weight that lie side by side
MOST_STEPS = 4096  # of all directions together: each adds a dozen calls to the graph
Activation = tuple[str, tuple[float, ...]]
# name -> (function of an expression, alpha and beta; alpha and beta where the node does not say)
ACTIVATIONS: dict[str, tuple[Callable[..., Expr], tuple[float, ...]]] = {
    "relu": (op.nn.relu, ()),
    "tanh": (op.tanh, ()),
    "sigmoid": (op.sigmoid, ()),
    "leakyrelu": (lambda x, alpha: op.nn.leakyrelu(x, alpha=alpha), (0.01,)),
    "affine": (lambda x, alpha, beta: _affine(x, alpha, beta), (1.0, 0.0)),
    "scaledtanh": (lambda x, alpha, beta: _affine(op.tanh(_affine(x, beta, 0.0)), alpha, 0.0), (1.0, 1.0)),
    "softsign": (softsign, ()),
    "softplus": (op.nn.softplus, ()),
    "hardsigmoid": (lambda x, alpha, beta: op.clip(_affine(x, alpha, beta), min=0.0, max=1.0), (0.2, 0.5)),
    "elu": (lambda x, alpha: _or(op.greater, x, 0.0, _affine(op.exp(x), alpha, -alpha)), (1.0,)),
    "thresholdedrelu": (lambda x, alpha: _or(op.greater_equal, x, alpha, constant(0, info_of(x).dtype)), (1.0,)),
}


def _affine(x: Expr, alpha: float, beta: float) -> Expr:
    dtype = info_of(x).dtype
    return op.add(op.multiply(x, constant(alpha, dtype)), constant(beta, dtype))


def _or(compare: Callable[[Expr, Expr], Expr], x: Expr, limit: float, other: Expr) -> Expr:
    """x where the comparison with a limit holds."""
    return op.where(compare(x, constant(limit, info_of(x).dtype)), x, other)


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: its weights transposed for products from the right, and its activations.

    activations  names of ACTIVATIONS with alpha and beta
    inputs  [steps, batch, gates * hidden], what the layer's input adds to the gates at each step
    state   [hidden, gates * hidden]
    """

    node: Node
    hidden: int
    inputs: Expr
    state: Expr
    state_bias: Expr
    peepholes: Expr | None
    activations: tuple[Activation, ...]

    def activate(self, which: int, x: Expr) -> Expr:
        limit = self.node.attr("clip")
        if limit is not None and which < 2:  # the cell itself is not limited, as in ONNX Runtime
            x = self.node.emit(op.clip(x, min=-float(limit), max=float(limit)))
        name, values = self.activations[which]
        return self.node.emit(ACTIVATIONS[name][0](x, *values))

    def gate(self, x: Expr, n: int) -> Expr:
        """Gate n of [batch, gates * hidden]."""
        return self.node.emit(
            op.strided_slice(x, axes=[1], begin=[n * self.hidden], end=[(n + 1) * self.hidden], strides=[1])
        )

    def peep(self, x: Expr, cell: Expr, n: int) -> Expr:
        """A gate that also sees the cell."""
        if self.peepholes is None:
            return x
        begin = n * self.hidden
        seen = self.node.emit(
            op.strided_slice(self.peepholes, axes=[0], begin=[begin], end=[begin + self.hidden], strides=[1])
        )
        return self._add(x, self._multiply(seen, cell))

    def product(self, h: Expr, weight: Expr) -> Expr:
        return self.node.emit(op.matmul(h, weight))

    def _add(self, a: Expr, b: Expr) -> Expr:
        return self.node.emit(op.add(a, b))

    def _multiply(self, a: Expr, b: Expr) -> Expr:
        return self.node.emit(op.multiply(a, b))

    def rnn(self, x: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """h = f(W x + R h + b)."""
        return (self.activate(0, self._add(self.product(state[0], self.state), x)),)

    def lstm(self, x: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Gates i, o, f, c: cell = f * cell + i * c; h = o * tanh(cell)."""
        h, cell = state
        gates = self._add(self.product(h, self.state), x)
        i = self.activate(0, self.peep(self.gate(gates, 0), cell, 0))
        one = constant(1, info_of(x).dtype)
        f = (
            self.node.emit(op.subtract(one, i))
            if self.node.attr("input_forget", 0)
            else self.activate(0, self.peep(self.gate(gates, 2), cell, 2))
        )
        new = self._add(self._multiply(f, cell), self._multiply(i, self.activate(1, self.gate(gates, 3))))
        o = self.activate(0, self.peep(self.gate(gates, 1), new, 1))
        return self._multiply(o, self.activate(2, new)), new

    def gru(self, x: Expr, state: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Gates z, r, h: h = (1 - z) * tanh(…) + z * h."""
        (h,), size = state, self.hidden
        if self.node.attr("linear_before_reset", 0):
            inner = self._add(self.product(h, self.state), self.state_bias)
            z, r = (self.activate(0, self._add(self.gate(inner, n), self.gate(x, n))) for n in (0, 1))
            reset = self._multiply(r, self.gate(inner, 2))
        else:
            both, last = (
                self.node.emit(op.strided_slice(self.state, axes=[1], begin=[b], end=[e], strides=[1]))
                for b, e in ((0, 2 * size), (2 * size, 3 * size))
            )
            inner = self.product(h, both)
            z, r = (self.activate(0, self._add(self.gate(inner, n), self.gate(x, n))) for n in (0, 1))
            reset = self.product(self._multiply(r, h), last)
        new = self.activate(1, self._add(reset, self.gate(x, 2)))
        # new + z * (h - new) is (1 - z) * new + z * h with one product less
        difference = self.node.emit(op.subtract(h, new))
        return (self._add(new, self._multiply(z, difference)),)


CELLS = {"RNN": (1, Direction.rnn, ("Tanh",)), "GRU": (3, Direction.gru, ("Sigmoid", "Tanh")),
         "LSTM": (4, Direction.lstm, ("Sigmoid", "Tanh", "Tanh"))}  # fmt: skip


@converter("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> tuple[Expr, ...]:
    """Outputs: all states [steps, directions, batch, hidden], the last [directions, batch, hidden], the last cells."""
    x = node.input(0)
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        x = node.emit(op.permute_dims(x, axes=(1, 0, 2)))
    count = node.shape(1)[0]
    is_open = not isinstance(info_of(x).dims[0], int)
    if not is_open and steps_of(node, x) * count > MOST_STEPS:
        raise node.fail(f"more than {MOST_STEPS} steps", hint="give the model a shorter sequence")
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[
        node.attr("direction", "forward")
    ]
    convert = _open_direction if is_open else _direction
    results = [convert(node, x, n, back) for n, back in enumerate(backward)]
    every = node.emit(op.concat(Tuple(tuple(r[0] for r in results)), axis=1)) if count > 1 else results[0][0]
    order = (2, 0, 1, 3) if batch_first else None  # [batch, steps, directions, hidden]
    outputs = [node.emit(op.permute_dims(every, axes=order)) if order else every]
    for n in range(1, len(results[0])):
        last = node.emit(op.concat(Tuple(tuple(r[n] for r in results)), axis=0)) if count > 1 else results[0][n]
        outputs.append(node.emit(op.permute_dims(last, axes=(1, 0, 2))) if batch_first else last)
    return tuple(outputs)


@converter("com.microsoft.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(node: Node) -> tuple[Expr, ...]:
    """An LSTM with weights of eight bits [directions, rows, 4 * hidden], one scale a direction or a column.

    The weights are what they stand for. Inputs and states stay as they are: ONNX Runtime rounds these to eight bits in
    each product, which makes its results coarser.
    """
    weights = [_dequantized_weight(node, index, 8 + 2 * n) for n, index in enumerate((1, 2))]
    inputs = [node.inputs[0], *weights, *list(node.inputs[3:8])]
    return recurrent(dataclasses.replace(node, op_type="LSTM", inputs=inputs))


def _dequantized_weight(node: Node, index: int, scale_index: int) -> Expr:
    """[directions, 4 * hidden, rows] of a quantised weight, the scale and the zero point behind it."""
    count, _, columns = node.shape(index)
    check_scale(node, node.input(scale_index), node.input(scale_index + 1), node.info(index).dtype)
    weight, scale, zero = (node.array(i).astype("float32") for i in (index, scale_index, scale_index + 1))
    if not {scale.shape, zero.shape} <= {(count,), (count, columns)}:
        raise node.fail(f"scales of shape {scale.shape}, zero points of shape {zero.shape}")
    factor, offset = (x.reshape(count, 1, -1) for x in (scale, zero))
    return Constant(np.ascontiguousarray(((weight - offset) * factor).transpose(0, 2, 1)))


def steps_of(node: Node, x: Expr) -> int:
    """How many steps there are, each of which becomes a part of the graph."""
    steps = info_of(x).dims[0]
    if not isinstance(steps, int):
        raise node.fail(f"'{steps}' steps, a number that is not known")
    return steps


def _direction(node: Node, x: Expr, n: int, backward: bool) -> tuple[Expr, ...]:
    """(states [steps, 1, batch, hidden], last state [1, batch, hidden], last cell) of direction n."""
    steps, batch = steps_of(node, x), info_of(x).dims[1]
    _, cell, _ = CELLS[node.op_type]
    direction = _weights(node, x, n)
    states = 2 if node.op_type == "LSTM" else 1
    state = tuple(_initial(node, 5 + i, n, batch, direction.hidden) for i in range(states))
    every: list[Expr] = []
    for t in reversed(range(steps)) if backward else range(steps):
        now = node.emit(op.strided_slice(direction.inputs, axes=[0], begin=[t], end=[t + 1], strides=[1]))
        new = cell(direction, node.emit(op.squeeze(now, axis=[0])), state)
        out = new[0]
        if node.has(4):
            new, out = _within(node, t, new, state)
        state = new
        every.append(node.emit(op.reshape(out, ShapeExpr((1, 1, batch, direction.hidden)))))
    joined = node.emit(op.concat(Tuple(tuple(reversed(every) if backward else every)), axis=0))
    return (joined, *(node.emit(op.expand_dims(s, axis=[0])) for s in state))


def _open_direction(node: Node, x: Expr, n: int, backward: bool) -> tuple[Expr, ...]:
    """The same over a number of steps that is open. Raises ImportModelError for what that kernel does not compute."""
    if node.attr("input_forget", 0) or node.has(4) or node.has(7):
        raise node.fail(f"'{info_of(x).dims[0]}' steps, and lengths, peepholes or coupled gates")
    direction, batch = _weights(node, x, n), info_of(x).dims[1]
    states = 2 if node.op_type == "LSTM" else 1
    initial = [_initial(node, 5 + i, n, batch, direction.hidden) for i in range(states)]
    whole, reset_after = info_of(direction.state).static_shape[1], bool(node.attr("linear_before_reset", 0))
    ends = [2 * direction.hidden, whole] if node.op_type == "GRU" and not reset_after else [whole]
    weights = [_panels(node, direction.state, b, e) for b, e in zip([0, *ends], ends)]
    call = node.call_te(
        te_recurrent, direction.inputs, weights, direction.state_bias, initial, kind=node.op_type,
        activations=direction.activations, backward=backward, reset_after=reset_after, limit=node.attr("clip"),
        primfunc_name_hint=node.op_type.lower(),
    )  # fmt: skip
    result = node.bind(call)
    every, *last = (node.bind(TupleGetItem(result, i)) for i in range(1 + states))
    return node.emit(op.expand_dims(every, axis=[1])), *(node.emit(op.expand_dims(s, axis=[0])) for s in last)


def _panels(node: Node, weight: Expr, begin: int, end: int) -> Expr:
    """Columns of a weight [hidden, …] in panels [panels, hidden, PANEL], the last one filled up; few as one panel."""
    hidden, width = info_of(weight).static_shape[0], min(PANEL, end - begin)
    part = node.emit(op.strided_slice(weight, axes=[1], begin=[begin], end=[end], strides=[1]))
    if missing := (begin - end) % width:
        part = node.emit(op.nn.pad(part, pad_width=(0, 0, 0, missing)))
    split = node.emit(op.reshape(part, ShapeExpr((hidden, -(-(end - begin) // width), width))))
    return node.emit(op.permute_dims(split, axes=(1, 0, 2)))


def _within(node: Node, t: int, new: tuple[Expr, ...], old: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], Expr]:
    """(states, output) of step t where sequences end on their own: behind their ends states stay, outputs are 0."""
    lengths = node.input(4)
    inside = node.emit(op.expand_dims(node.emit(op.greater(lengths, constant(t, info_of(lengths).dtype))), axis=[1]))
    kept = tuple(node.emit(op.where(inside, a, b)) for a, b in zip(new, old, strict=True))
    zero = constant(0, info_of(new[0]).dtype)
    return kept, node.emit(op.where(inside, new[0], zero))


def _part(node: Node, index: int, n: int) -> Expr:
    """An input's slice n along its first axis, without that axis."""
    cut = node.emit(op.strided_slice(node.input(index), axes=[0], begin=[n], end=[n + 1], strides=[1]))
    return node.emit(op.squeeze(cut, axis=[0]))


def _initial(node: Node, index: int, n: int, batch: Dim, hidden: int) -> Expr:
    if not node.has(index):
        zeros = constant(np.zeros((batch if isinstance(batch, int) else 1, hidden)), node.info(0).dtype)
        return zeros if isinstance(batch, int) else node.emit(op.broadcast_to(zeros, ShapeExpr((batch, hidden))))
    if not node.attr("layout", 0):
        return _part(node, index, n)
    cut = node.emit(op.strided_slice(node.input(index), axes=[1], begin=[n], end=[n + 1], strides=[1]))
    return node.emit(op.squeeze(cut, axis=[1]))


def _weights(node: Node, x: Expr, n: int) -> Direction:
    gates, _, names = CELLS[node.op_type]
    hidden = node.shape(2)[2]
    weight, state = (node.emit(op.permute_dims(_part(node, index, n))) for index in (1, 2))
    inputs = node.emit(op.matmul(x, weight))
    state_bias: Expr = constant(np.zeros(gates * hidden), info_of(x).dtype)
    if node.has(3):
        both = _part(node, 3, n)
        half = gates * hidden
        own, state_bias = (
            node.emit(op.strided_slice(both, axes=[0], begin=[b], end=[b + half], strides=[1])) for b in (0, half)
        )
        if node.op_type != "GRU" or not node.attr("linear_before_reset", 0):
            own = node.emit(op.add(own, state_bias))
        inputs = node.emit(op.add(inputs, own))
    peepholes = _part(node, 7, n) if node.op_type == "LSTM" and node.has(7) else None
    return Direction(node, hidden, inputs, state, state_bias, peepholes, _activations(node, n, names))


def _activations(node: Node, n: int, defaults: tuple[str, ...]) -> tuple[Activation, ...]:
    """The functions of direction n. Alphas and betas are listed for those functions only that take them."""
    names = [_text(a) for a in node.attr("activations", defaults * node.shape(1)[0])]
    alphas, betas = list(node.attr("activation_alpha", ())), list(node.attr("activation_beta", ()))
    found: list[Activation] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise node.fail(f"activation {name} is not supported")
        _, values = ACTIVATIONS[name.lower()]
        given = [rest.pop(0) if rest else value for rest, value in zip((alphas, betas), values, strict=False)]
        found.append((name.lower(), tuple(map(float, given))))
    return tuple(found[n * len(defaults) : (n + 1) * len(defaults)])


def _text(x: object) -> str:
    return x.decode() if isinstance(x, bytes) else str(x)
