"""Random ONNX models with open sizes, built once and run at several sizes, against ONNX Runtime.

    python -m benchmarks.fuzz_sizes --models 1000 --first 0 [--workers 2]

Prints each seed whose result is wrong at some size, that crashes the compiler or the process, or that takes longer than
a minute; the last line counts models, those that were built once for all sizes, and those that were refused. The exit
code is 1 where there is a seed with a fault.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched.errors import AutoschedError
from autosched.target import host_cpu
from benchmarks.fuzz import Outcome, outcomes

OPSET = 18
SIZES = (1, 2, 3, 5, 7, 8, 12, 16, 17, 31, 33)
MOST_ELEMENTS = 20_000
Shape = tuple[int | str, ...]  # known sizes, names of sizes, and "?" for those that are computed


@dataclass
class RandomModel:
    """A model with named sizes, and inputs for any values of them."""

    seed: int
    model: onnx.ModelProto
    inputs: dict[str, Shape]

    @property
    def names(self) -> list[str]:
        """The open sizes."""
        return sorted({d for shape in self.inputs.values() for d in shape if isinstance(d, str)})

    def feeds(self, sizes: dict[str, int]) -> dict[str, Any]:
        """Random inputs of these sizes."""
        numbers = np.random.default_rng([self.seed, *sizes.values()])
        shapes = {k: [sizes[d] if isinstance(d, str) else d for d in v] for k, v in self.inputs.items()}
        return {k: numbers.standard_normal(shape).astype("float32") for k, shape in shapes.items()}


@dataclass
class _Maker:
    """A model in the making: its inputs, values, nodes and constants."""

    random: random.Random
    numbers: Any
    inputs: dict[str, Shape] = field(default_factory=dict)
    values: list[tuple[str, Shape]] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def input(self, shape: Shape) -> str:
        """A new input of the model."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def constant(self, array: Any) -> str:
        """A constant: its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape: int) -> str:
        """A constant of random floats."""
        return self.constant(self.numbers.standard_normal(shape).astype("float32"))

    def ints(self, *values: int) -> str:
        """A constant list of integers."""
        return self.constant(np.array(values, "int64"))

    def node(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """A node; the name of its first result."""
        names = [f"v{len(self.nodes)}_{n}" for n in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def size_of(self, x: str, axis: int) -> str:
        """A dimension of a value as a list of one integer, computed when the model runs."""
        return self.node("Gather", self.node("Shape", x), self.ints(axis), axis=0)

    def broadcast(self, shape: Shape) -> str:
        """Something that a value of this shape can be combined with: an input or a constant."""
        if self.random.random() < 0.3 and "?" not in shape:
            return self.input(shape)
        return self.floats(*(d if isinstance(d, int) and self.random.random() < 0.7 else 1 for d in shape))

    def axis(self, shape: Shape, fixed: bool = False) -> int | None:
        """An axis; with `fixed` one whose size is known."""
        found = [n for n, d in enumerate(shape) if not fixed or isinstance(d, int)]
        return self.random.choice(found) if found else None


Made = tuple[str, Shape] | None
_UNARY = ("Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Erf", "Softplus", "HardSigmoid", "LeakyRelu", "Elu")


def _unary(m: _Maker, x: str, shape: Shape) -> Made:
    return m.node(m.random.choice(_UNARY), x), shape


def _binary(m: _Maker, x: str, shape: Shape) -> Made:
    same = [name for name, s in m.values if s == shape and name != x and "?" not in s]
    other = m.random.choice(same) if same and m.random.random() < 0.5 else m.broadcast(shape)
    pair = (x, other) if m.random.random() < 0.5 else (other, x)
    return m.node(m.random.choice(["Add", "Sub", "Mul", "Max", "Min"]), *pair), shape


def _matmul(m: _Maker, x: str, shape: Shape) -> Made:
    if len(shape) < 2 or not isinstance(shape[-1], int):
        return None
    columns = m.random.choice([1, 3, 8, 16, 17, 40, 64])
    return m.node("MatMul", x, m.floats(shape[-1], columns)), (*shape[:-1], columns)


def _scores(m: _Maker, x: str, shape: Shape) -> Made:
    """Products of rows with each other, and of those with the rows: attention without its scale."""
    if len(shape) != 3 or not isinstance(shape[2], int):
        return None
    scores = m.node("MatMul", x, m.node("Transpose", x, perm=[0, 2, 1]))
    if m.random.random() < 0.4:
        return scores, (*shape[:2], shape[1])
    weights = m.node("Softmax", m.node("Mul", scores, m.constant(np.float32(0.1))), axis=-1)
    return m.node("MatMul", weights, x), shape


def _gemm(m: _Maker, x: str, shape: Shape) -> Made:
    if len(shape) != 2 or not isinstance(shape[1], int):
        return None
    columns = m.random.choice([1, 5, 16, 33])
    return m.node("Gemm", x, m.floats(columns, shape[1]), m.floats(columns), transB=1), (shape[0], columns)


def _softmax(m: _Maker, x: str, shape: Shape) -> Made:
    return m.node(m.random.choice(["Softmax", "LogSoftmax"]), x, axis=m.random.randrange(len(shape))), shape


def _norm(m: _Maker, x: str, shape: Shape) -> Made:
    if not isinstance(shape[-1], int) or shape[-1] < 3:
        return None
    return m.node("LayerNormalization", x, m.floats(shape[-1]), m.floats(shape[-1]), axis=-1), shape


def _reduce(m: _Maker, x: str, shape: Shape) -> Made:
    axes = sorted(m.random.sample(range(len(shape)), m.random.randint(1, len(shape))))
    keep = m.random.random() < 0.6 or len(axes) == len(shape)
    kind = m.random.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
    made = m.node(kind, x, m.ints(*axes), keepdims=int(keep))
    left = tuple(1 if n in axes else d for n, d in enumerate(shape))
    return made, left if keep else tuple(d for n, d in enumerate(shape) if n not in axes)


def _arg_max(m: _Maker, x: str, shape: Shape) -> Made:
    axis = m.random.randrange(len(shape))
    best = m.node("ArgMax", x, axis=axis, keepdims=1)
    return m.node("Cast", best, to=TensorProto.FLOAT), tuple(1 if n == axis else d for n, d in enumerate(shape))


def _transpose(m: _Maker, x: str, shape: Shape) -> Made:
    order = m.random.sample(range(len(shape)), len(shape))
    return m.node("Transpose", x, perm=order), tuple(shape[n] for n in order)


def _heads(m: _Maker, x: str, shape: Shape) -> Made:
    """An even dimension cut in two, as heads of attention are."""
    known = [n for n, d in enumerate(shape) if isinstance(d, int) and d % 2 == 0]
    if not known or len(shape) > 4:
        return None
    n = m.random.choice(known)
    size = shape[n]
    assert isinstance(size, int), "chosen so"
    shown = m.ints(*(0 if k < n else d for k, d in enumerate(shape[:n])), 2, size // 2, *(-1,) * (n + 1 < len(shape)))
    if len(shape) > n + 2:
        return None
    return m.node("Reshape", x, shown), (*shape[:n], 2, size // 2, *shape[n + 1 :])


def _computed_reshape(m: _Maker, x: str, shape: Shape) -> Made:
    """Flat, and back to its shape by a first size that is computed when the model runs."""
    if len(shape) < 2:
        return None
    first = m.size_of(x, 0)
    return m.node("Reshape", m.node("Flatten", x, axis=1), m.node("Concat", first, m.ints(*_rest(shape)), axis=0)), (
        shape if sum(isinstance(d, str) for d in shape[1:]) <= 1 else (shape[0], "?")
    )


def _rest(shape: Shape) -> list[int]:
    if sum(isinstance(d, str) for d in shape[1:]) > 1:
        return [-1]
    return [d if isinstance(d, int) else -1 for d in shape[1:]]


def _slice(m: _Maker, x: str, shape: Shape) -> Made:
    axis = m.random.randrange(len(shape))
    size = shape[axis]
    if isinstance(size, int):
        if size < 2:
            return None
        begin = m.random.randrange(size)
        end = m.random.randint(begin + 1, size)
        return m.node("Slice", x, m.ints(begin), m.ints(end), m.ints(axis)), _with(shape, axis, end - begin)
    step = m.random.choice([1, 1, 2, -1])
    begin, end = (-1, -(2**40)) if step < 0 else (0, m.random.choice([2**40, -1]) if size != "?" else 2**40)
    if end == -1:
        return None  # a size of 1 would become 0
    sized = size if step in (1, -1) else "?"
    return m.node("Slice", x, m.ints(begin), m.ints(end), m.ints(axis), m.ints(step)), _with(shape, axis, sized)


def _with(shape: Shape, axis: int, size: int | str) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _concat(m: _Maker, x: str, shape: Shape) -> Made:
    if "?" in shape:
        return None
    axis = m.random.randrange(len(shape))
    size = shape[axis]
    if m.random.random() < 0.5:
        return m.node("Concat", x, x, axis=axis), _with(shape, axis, size * 2 if isinstance(size, int) else "?")
    more = m.random.randint(1, 5)
    other = m.input(_with(shape, axis, more))
    return m.node("Concat", x, other, axis=axis), _with(shape, axis, size + more if isinstance(size, int) else "?")


def _gather(m: _Maker, x: str, shape: Shape) -> Made:
    axis = m.random.randrange(len(shape))
    size = shape[axis]
    places = [m.random.randrange(-1, size if isinstance(size, int) else 1) for _ in range(m.random.randint(1, 4))]
    return m.node("Gather", x, m.ints(*places), axis=axis), _with(shape, axis, len(places))


def _split(m: _Maker, x: str, shape: Shape) -> Made:
    axis = m.axis(shape, fixed=True)
    if axis is None or not isinstance(size := shape[axis], int) or size < 2:
        return None
    first = m.random.randint(1, size - 1)
    name = m.node("Split", x, m.ints(first, size - first), results=2, axis=axis)
    return (name, _with(shape, axis, first)) if m.random.random() < 0.5 else (
        name[:-1] + "1", _with(shape, axis, size - first))  # fmt: skip


def _pad(m: _Maker, x: str, shape: Shape) -> Made:
    pads = [m.random.randint(0, 2) for _ in range(2 * len(shape))]
    grown: Shape = tuple(
        d + pads[n] + pads[n + len(shape)] if isinstance(d, int) else d if pads[n] == pads[n + len(shape)] == 0 else "?"
        for n, d in enumerate(shape)
    )
    return m.node("Pad", x, m.ints(*pads), m.constant(np.float32(0.5))), grown


def _tile(m: _Maker, x: str, shape: Shape) -> Made:
    times = [m.random.choice([1, 1, 2, 3]) for _ in shape]
    grown: Shape = tuple(
        d * t if isinstance(d, int) else d if t == 1 else "?" for d, t in zip(shape, times, strict=True)
    )
    return m.node("Tile", x, m.ints(*times)), grown


def _expand(m: _Maker, x: str, shape: Shape) -> Made:
    """One row of a value along the value's own first dimension."""
    row = m.node("Slice", x, m.ints(0), m.ints(1), m.ints(0))
    return m.node("Expand", row, m.node("Shape", x)), shape


def _where(m: _Maker, x: str, shape: Shape) -> Made:
    condition = m.node("Greater", x, m.constant(np.float32(0.1)))
    return m.node("Where", condition, x, m.broadcast(shape)), shape


def _cumsum(m: _Maker, x: str, shape: Shape) -> Made:
    axis = m.constant(np.array(m.random.randrange(len(shape)), "int64"))
    return m.node("CumSum", x, axis, exclusive=m.random.randint(0, 1), reverse=m.random.randint(0, 1)), shape


def _positions(m: _Maker, x: str, shape: Shape) -> Made:
    """Positions 0, 1, … along a dimension, added to it."""
    axis = m.random.randrange(len(shape))
    zero, one = m.constant(np.array(0, "int64")), m.constant(np.array(1, "int64"))
    size = m.node("Squeeze", m.size_of(x, axis), m.ints(0))
    places = m.node("Cast", m.node("Range", zero, size, one), to=TensorProto.FLOAT)
    if axis < len(shape) - 1:
        places = m.node("Unsqueeze", places, m.ints(*range(1, len(shape) - axis)))
    return m.node("Add", x, m.node("Mul", places, m.constant(np.float32(0.01)))), shape


def _trilu(m: _Maker, x: str, shape: Shape) -> Made:
    if len(shape) < 2:
        return None
    k = m.constant(np.array(m.random.randint(-2, 2), "int64"))
    return m.node("Trilu", x, k, upper=m.random.randint(0, 1)), shape


def _top_k(m: _Maker, x: str, shape: Shape) -> Made:
    axis = m.axis(shape, fixed=True)
    if axis is None or not isinstance(size := shape[axis], int):
        return None
    k = m.random.randint(1, size)
    return m.node("TopK", x, m.ints(k), results=2, axis=axis), _with(shape, axis, k)


def _image(m: _Maker, x: str, shape: Shape) -> Made:
    """Convolutions, pools and resizing of images."""
    if len(shape) != 4 or not isinstance(shape[1], int) or "?" in shape:
        return None
    spatial = shape[2:]
    kind = m.random.choice(["Conv", "Conv", "Depthwise", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize"])
    if kind == "GlobalAveragePool":
        return m.node(kind, x), (*shape[:2], 1, 1)
    if kind == "Resize":
        how = m.random.choice(["nearest", "linear"])
        scales = m.constant(np.array([1, 1, 2, 2], "float32"))
        made = m.node("Resize", x, "", scales, mode=how, coordinate_transformation_mode="asymmetric")
        return made, (*shape[:2], *(2 * d if isinstance(d, int) else "?" for d in spatial))
    kernel, stride = m.random.choice([1, 3]), m.random.randint(1, 2)
    pads = [kernel // 2] * 4
    window = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": pads}
    after: Shape = tuple((d - 1) // stride + 1 if isinstance(d, int) else d if stride == 1 else "?" for d in spatial)
    if kind in ("MaxPool", "AveragePool"):
        more = {"count_include_pad": m.random.randint(0, 1)} if kind == "AveragePool" else {}
        return m.node(kind, x, **window, **more), (*shape[:2], *after)
    channels = shape[1] if kind == "Depthwise" else m.random.choice([1, 4, 16, 17, 32])
    groups = shape[1] if kind == "Depthwise" else 1
    weight = m.floats(channels, shape[1] // groups, kernel, kernel)
    return m.node("Conv", x, weight, m.floats(channels), group=groups, **window), (shape[0], channels, *after)


def _recurrent(m: _Maker, x: str, shape: Shape) -> Made:
    """An LSTM or GRU over the first dimension."""
    if len(shape) != 3 or not isinstance(shape[2], int) or "?" in shape:
        return None
    kind, width = m.random.choice(["LSTM", "GRU"]), m.random.choice([3, 8, 16])
    gates = 4 if kind == "LSTM" else 3
    weights = [m.floats(1, gates * width, shape[2]), m.floats(1, gates * width, width), m.floats(1, 2 * gates * width)]
    made = m.node(kind, x, *weights, hidden_size=width, direction=m.random.choice(["forward", "reverse"]))
    return m.node("Squeeze", made, m.ints(1)), (*shape[:2], width)


_STEPS: tuple[Callable[[_Maker, str, Shape], Made], ...] = (
    *(_unary, _unary, _binary, _binary, _binary, _matmul, _matmul, _scores, _gemm, _softmax, _norm, _reduce, _arg_max),
    *(_transpose, _heads, _computed_reshape, _slice, _slice, _concat, _concat, _gather, _split, _pad, _tile, _expand),
    *(_where, _cumsum, _positions, _trilu, _top_k, _image, _image, _image, _recurrent),
)
_FIRST: tuple[Shape, ...] = (
    *(("batch", 24), ("batch", "steps", 16), (2, "steps", 8), ("steps", "batch", 12), ("batch", "steps")),
    *(("batch", 3, "height", "width"), (1, 16, "height", "width"), ("batch", 8, 6, 6), ("batch", 4, "steps", 8)),
)


def random_model(seed: int, most_steps: int = 7) -> RandomModel:
    """A model of one to `most_steps` operators over open sizes; equal seeds give equal models."""
    m = _Maker(random.Random(seed), np.random.default_rng(seed))
    shape = m.random.choice(_FIRST)
    m.values.append((m.input(shape), shape))
    for _ in range(m.random.randint(1, most_steps)):
        x, shape = m.random.choice(m.values[-4:])
        made = m.random.choice(_STEPS)(m, x, shape) if shape else None
        if made:
            m.values.append(made)
    if len(m.values) == 1:
        m.values.append((m.node("Neg", m.values[0][0]), shape))
    last, shape = m.values[-1]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(s)) for name, s in m.inputs.items()]
    result = helper.make_tensor_value_info(last, TensorProto.FLOAT, [None if isinstance(d, str) else d for d in shape])
    graph = helper.make_graph(m.nodes, "random", given, [result], m.constants)
    opset = [helper.make_opsetid("", OPSET)]
    return RandomModel(seed, helper.make_model(graph, opset_imports=opset, ir_version=8), dict(m.inputs))


def check(random_one: RandomModel, runs: int = 4) -> tuple[str, str]:
    """(how it was built, what is wrong with it; an empty text where all is well)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    data = random_one.model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:
        return "not run by ONNX Runtime", ""
    try:
        module = autosched.build(random_one.model, threads=1, records=[])
    except AutoschedError as error:
        return "refused", f"refused: {error}"
    how = type(module).__name__
    choose = random.Random(random_one.seed)
    for _ in range(runs):
        sizes = {name: choose.choice(SIZES) for name in random_one.names}
        feeds = random_one.feeds(sizes)
        try:
            expected = session.run(None, feeds)[0]
        except Exception:  # sizes that this model does not take
            continue
        if expected.size > MOST_ELEMENTS:
            continue
        found = module(**feeds).numpy()
        if found.shape != expected.shape:
            return how, f"at {sizes}: shape {found.shape} instead of {expected.shape}"
        scale = max(1.0, float(np.nanmax(np.abs(expected), initial=0)))
        if not np.allclose(found, expected, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
            return how, f"at {sizes}: differs by {np.nanmax(np.abs(found - expected)):.3g} of {scale:.3g}"
    return how, ""


def outcome(seed: int) -> Outcome:
    """What becomes of a model; of its kind is said how it was built."""
    try:
        return seed, *check(random_model(seed))
    except Exception as error:
        return seed, "error", f"{type(error).__name__}: {error}"


def main(argv: list[str] | None = None) -> int:
    """Run the models and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=host_cpu().cores, help="processes; 0: in this one")
    options = parser.parse_args(argv)
    kinds: Counter[str] = Counter()
    wrong = 0
    for seed, kind, problem in outcomes(outcome, range(options.first, options.first + options.models), options.workers):
        kinds[kind] += 1
        if problem:
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in kinds.most_common()) + f"; {wrong} with a fault")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
