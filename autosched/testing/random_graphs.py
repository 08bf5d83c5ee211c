"""Random graphs of operators with their inputs and what NumPy, in float64, says that they compute."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autosched.ir import IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Constant, Tuple, Var
from autosched.relax.op.registry import definition_of, get_op, python_argument
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import shape_of

Array: TypeAlias = Any  # np.ndarray: its stubs type most results as Any
MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class RandomGraph:
    """A model, its inputs by name, its result in float64, and a position out of range among the inputs, if any."""

    seed: int
    module: IRModule
    inputs: dict[str, Array]
    expected: Array
    bad_index: int | None


class _Maker:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.builder = BlockBuilder()
        self.params: list[Var] = []
        self.inputs: dict[str, Array] = {}
        self.values: list[tuple[Var, Array]] = []  # of floats: the variable, and its value in float64
        self.truth: dict[object, Array] = {}
        self.bad_index: int | None = None

    def param(self, array: Array) -> Var:
        """A new input of the model."""
        var = Var(f"x{len(self.params)}", TensorStructInfo(array.shape, str(array.dtype)))
        self.params.append(var)
        self.inputs[var.name] = array
        self.truth[var] = array.astype(np.float64) if array.dtype.kind == "f" else array
        return var

    def floats(self, shape: tuple[int, ...]) -> Var | Constant:
        """A tensor of random floats: an input, or a constant."""
        array = self.numbers.standard_normal(shape).astype("float32")
        if self.random.random() < 0.5:
            return self.param(array)
        constant = Constant(array)
        self.truth[constant] = array.astype(np.float64)
        return constant

    def positions(self, shape: tuple[int, ...], size: int, mode: str) -> Var:
        """Positions along a dimension; seldom one of them is out of range."""
        array = self.numbers.integers(-size, size, shape)
        if mode in ("clip", "wrap", "nearest"):
            array = self.numbers.integers(-3 * size, 3 * size, shape)
        elif array.size and self.bad_index is None and self.random.random() < 0.15:
            self.bad_index = self.random.choice([size, -size - 1, size + 1000, 2**40, -(2**62)])
            array.flat[self.random.randrange(array.size)] = self.bad_index
        return self.param(array)

    def emit(self, call: Call) -> None:
        """Bind a call and keep what it computes."""
        definition = definition_of(call)
        assert definition is not None, "graphs are made of operators"
        with np.errstate(all="ignore"):
            if self.bad_index is None:
                args = [python_argument(a, lambda c: self.truth[c]) for a in call.args]
                value = definition.run_reference(args, call.attrs)
            else:  # it raises, so nobody looks
                assert isinstance(call.struct_info, TensorStructInfo), "one result"
                value = np.zeros(call.struct_info.static_shape)
        var = self.builder.emit(call)
        self.truth[var] = value
        self.values.append((var, value))

    def is_spread(self, x: object) -> bool:
        """Whether each innermost row has numbers apart: what divides by their deviation magnifies no rounding."""
        value = self.truth[x]
        with np.errstate(all="ignore"):
            return bool(value.shape and np.all(value.std(-1) > 1e-2 * max(1.0, np.abs(value).max(initial=0))))

    def pick(self, fits: Callable[[tuple[int, ...]], bool] = lambda shape: True) -> Var | None:
        """A value made before whose shape fits; None where there is none."""
        found = [v for v, value in self.values if fits(value.shape)]
        return self.random.choice(found[-6:]) if found else None

    def step(self) -> None:
        """One more operator, if it fits."""
        kind = self.random.choice(_STEPS)
        x = self.pick()
        assert x is not None, "there is a value from the start"
        call = kind(self, x, self.truth[x].shape)
        if call is not None and math.prod(shape_of(call)) <= MOST_ELEMENTS:
            self.emit(call)
        else:
            self.bad_index = None  # the positions are not used


_UNARY = (
    *("nn.relu", "tanh", "sigmoid", "abs", "negative", "erf", "sin", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.relu6"),
    *("nn.leakyrelu", "nn.hard_sigmoid", "nn.selu", "nn.softplus", "atan", "asinh"),
)


def _unary(m: _Maker, x: object, shape: tuple[int, ...]) -> Call:
    return get_op(m.random.choice(_UNARY))(x)


def _binary(m: _Maker, x: object, shape: tuple[int, ...]) -> Call:
    other: Var | Constant | None = m.pick(lambda s: s == shape) if m.random.random() < 0.5 else None
    if other is None:
        narrow = tuple(n if m.random.random() < 0.6 else 1 for n in shape)[m.random.randint(0, len(shape)) :]
        other = m.floats(narrow)
    name = m.random.choice(["add", "subtract", "multiply", "maximum", "minimum"])
    return get_op(name)(x, other) if m.random.random() < 0.5 else get_op(name)(other, x)


def _reduce(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape:
        return None
    axes = tuple(sorted(m.random.sample(range(len(shape)), m.random.randint(1, len(shape)))))
    return get_op(m.random.choice(["sum", "max", "min", "mean"]))(x, axis=axes, keepdims=m.random.random() < 0.5)


def _softmax(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape:
        return None
    name = m.random.choice(["nn.softmax", "nn.softmax", "nn.log_softmax"])
    return get_op(name)(x, axis=m.random.choice([-1, m.random.randrange(len(shape))]))


def _matmul(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    return get_op("matmul")(x, m.floats((shape[-1], m.random.randint(1, 19)))) if len(shape) >= 2 else None


def _reshape(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    size = int(np.prod(shape))
    first = m.random.choice([d for d in range(1, size + 1) if size % d == 0]) if size else 1
    return get_op("reshape")(x, (first, size // first)) if size else None


def _permute(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    return get_op("permute_dims")(x, m.random.sample(range(len(shape)), len(shape))) if len(shape) > 1 else None


def _slice(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    axis = m.random.randrange(len(shape)) if shape else 0
    if not shape or shape[axis] < 2:
        return None
    begin = m.random.randrange(shape[axis])
    end = m.random.randint(begin + 1, shape[axis])
    return get_op("strided_slice")(x, [axis], [begin], [end], [m.random.randint(1, 3)])


def _concat(m: _Maker, x: Var, shape: tuple[int, ...]) -> Call | None:
    if not shape:
        return None
    axis = m.random.randrange(len(shape))
    other = m.floats((*shape[:axis], m.random.randint(1, 5), *shape[axis + 1 :]))
    return get_op("concat")(Tuple((x, other)), axis=axis)


def _take(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape or 0 in shape:
        return None
    axis, mode = m.random.randrange(len(shape)), m.random.choice(["raise", "raise", "clip", "wrap", "nearest"])
    places = tuple(m.random.randint(1, 6) for _ in range(m.random.randint(0, 2)))
    return get_op("take")(x, m.positions(places, shape[axis], mode), axis=axis, mode=mode)


def _gather(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape or 0 in shape:
        return None
    axis = m.random.randrange(len(shape))
    places = tuple(m.random.randint(1, 20) if d == axis else m.random.randint(1, n) for d, n in enumerate(shape))
    return get_op("gather_elements")(x, m.positions(places, shape[axis], "raise"), axis=axis)


def _scatter(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape or 0 in shape:
        return None
    axis = m.random.randrange(len(shape))
    places = tuple(m.random.randint(1, 3) if d == axis else m.random.randint(1, n) for d, n in enumerate(shape))
    return get_op("scatter_elements")(x, m.positions(places, shape[axis], "raise"), m.floats(places), axis=axis)


_IMAGES = ("nn.conv2d_transpose", "image.resize2d", "nn.adaptive_avg_pool2d")


def _image(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    """A convolution or pooling of what is made an image first."""
    size = int(np.prod(shape))
    if size < 16 or size % 4:
        return None
    height = m.random.choice([d for d in range(2, size // 2 + 1) if size % (2 * d) == 0] or [1])
    m.emit(get_op("reshape")(x, (1, 2, height, size // 2 // height)))
    image = m.values[-1][0]
    width = size // 2 // height
    kernel, stride, pad = m.random.randint(1, 3), m.random.randint(1, 2), m.random.randint(0, 1)
    if min(height, width) + 2 * pad < kernel or pad >= kernel:
        return None
    name = m.random.choice(["nn.conv2d", "nn.conv2d", "nn.max_pool2d", "nn.avg_pool2d", *_IMAGES])
    if name == "nn.conv2d_transpose":
        weight = m.floats((2, m.random.randint(1, 7), kernel, kernel))
        return get_op(name)(image, weight, strides=stride) if kernel >= stride else None
    if name == "image.resize2d":
        return get_op(name)(image, (m.random.randint(1, 9), m.random.randint(1, 9)))
    if name == "nn.adaptive_avg_pool2d":
        return get_op(name)(image, output_size=(m.random.randint(1, height), m.random.randint(1, width)))
    if name == "nn.conv2d":
        weight = m.floats((m.random.randint(1, 17), 2, kernel, kernel))
        return get_op(name)(image, weight, strides=stride, padding=pad)
    return get_op(name)(image, (kernel, kernel), strides=stride, padding=pad)


def _rows(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    """What looks at the whole innermost row."""
    if not shape or shape[-1] < 2 or not m.is_spread(x):
        return None
    name = m.random.choice(["nn.layer_norm", "nn.rms_norm", "variance", "std"])
    if name == "nn.layer_norm":
        return get_op(name)(x, m.floats(shape[-1:]), m.floats(shape[-1:]), axes=-1)
    if name == "nn.rms_norm":
        return get_op(name)(x, m.floats(shape[-1:]))
    return get_op(name)(x, axis=-1, keepdims=m.random.random() < 0.5)


def _arrange(m: _Maker, x: Var, shape: tuple[int, ...]) -> Call | None:
    """Elements elsewhere, or more often."""
    if not shape:
        return None
    name = m.random.choice(["flip", "tile", "repeat", "nn.pad", "stack", "broadcast_to", "tril", "triu"])
    axis = m.random.randrange(len(shape))
    if name == "flip":
        return get_op(name)(x, axis=axis)
    if name == "tile":
        return get_op(name)(x, repeats=[m.random.randint(1, 3) for _ in shape])
    if name == "repeat":
        return get_op(name)(x, repeats=m.random.randint(1, 3), axis=axis)
    if name == "nn.pad":
        return get_op(name)(x, pad_width=[m.random.randint(0, 3) for _ in range(2 * len(shape))], pad_value=0.5)
    if name == "stack":
        return get_op(name)(Tuple((x, m.floats(shape))), axis=axis)
    if name == "broadcast_to":
        return get_op(name)(x, (m.random.randint(1, 4), *shape))
    return get_op(name)(x, k=m.random.randint(-2, 2)) if len(shape) > 1 else None


def _cumulative(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    return (
        get_op("cumsum")(x, axis=m.random.randrange(len(shape)), exclusive=m.random.random() < 0.3) if shape else None
    )


def _choice(m: _Maker, x: object, shape: tuple[int, ...]) -> Call:
    """Elements chosen by a condition on inputs alone, whose values are exact."""
    mask = m.numbers.random(shape) < 0.5
    if m.random.random() < 0.5:
        return get_op("masked_fill")(x, m.param(mask), value=-1.5)
    return get_op("where")(m.param(mask), x, m.floats(shape))


def _gather_nd(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape or 0 in shape:
        return None
    return get_op("gather_nd")(x, m.positions((m.random.randint(1, 7), 1), shape[0], "raise"))


def _scatter_nd(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape or 0 in shape:
        return None
    n, reduction = m.random.randint(1, 7), m.random.choice(["add", "max", "min"])
    return get_op("scatter_nd")(
        x, m.positions((n, 1), shape[0], "raise"), m.floats((n, *shape[1:])), reduction=reduction
    )


def _topk(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    if not shape or not 1 <= shape[-1] <= 64:
        return None
    return get_op("topk")(x, k=m.random.randint(1, shape[-1]), ret_type="values", largest=m.random.random() < 0.5)


def _sequence(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    """A convolution along one dimension, or its transpose, of what is made a sequence of two channels first."""
    size = int(np.prod(shape))
    if size < 8 or size % 2:
        return None
    m.emit(get_op("reshape")(x, (1, 2, size // 2)))
    signal = m.values[-1][0]
    kernel, stride, pad = m.random.randint(1, 4), m.random.randint(1, 3), m.random.randint(0, 1)
    if m.random.random() < 0.5:
        weight = m.floats((m.random.randint(1, 9), 2, kernel))
        return (
            get_op("nn.conv1d")(signal, weight, strides=stride, padding=pad) if size // 2 + 2 * pad >= kernel else None
        )
    weight = m.floats((2, m.random.randint(1, 5), kernel))
    return get_op("nn.conv1d_transpose")(signal, weight, strides=stride) if kernel >= stride else None


def _attention(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    size = int(np.prod(shape))
    if not size or np.abs(m.truth[x]).max() > 50:  # large scores round to others
        return None
    width = m.random.choice([d for d in range(1, min(size, 32) + 1) if size % d == 0])
    m.emit(get_op("reshape")(x, (1, size // width, 1, width)))
    keys = m.random.randint(1, 12)
    return get_op("nn.attention")(m.values[-1][0], m.floats((1, keys, 1, width)), m.floats((1, keys, 1, 5)))


def _sort(m: _Maker, x: object, shape: tuple[int, ...]) -> Call | None:
    return get_op("sort")(x, axis=-1, descending=m.random.random() < 0.5) if shape and shape[-1] <= 64 else None


_STEPS = (
    *(_unary, _unary, _unary, _binary, _binary, _binary, _reduce, _softmax, _matmul, _matmul, _reshape, _permute),
    *(_slice, _concat, _take, _take, _gather, _scatter, _image, _image, _sort, _rows, _arrange, _arrange, _cumulative),
    *(_choice, _gather_nd, _scatter_nd, _topk, _sequence, _attention),
)


def random_graph(seed: int, most_steps: int = 8) -> RandomGraph:
    """A graph of one to `most_steps` operators; equal seeds give equal graphs."""
    m = _Maker(seed)
    with m.builder.function("main"):
        with m.builder.dataflow():
            first = m.param(
                m.numbers.standard_normal([m.random.randint(1, 13) for _ in range(m.random.randint(1, 4))]).astype(
                    "float32"
                )
            )
            m.values.append((first, m.truth[first]))
            for _ in range(m.random.randint(1, most_steps)):
                m.step()
                if m.bad_index is not None:  # the last operator, so that the result depends on it
                    break
            if len(m.values) == 1:
                m.emit(get_op("negative")(first))
            last, expected = m.values[-1]
            result = m.builder.emit_output(last)
        m.builder.emit_func_output(result, m.params)
    return RandomGraph(seed, m.builder.get(), m.inputs, expected, m.bad_index)
