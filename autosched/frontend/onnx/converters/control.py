"""Control flow whose course is known at import: If, Loop and Scan are written out, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.onnx.node import Node, RunTimeError, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import is_same
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, Tuple
from autosched.relax.struct_info import TensorStructInfo

GROUP = 16  # parts that are joined at once
MOST_STEPS = 1024  # of a loop that is written out


@converter("If")
def if_(node: Node) -> tuple[Expr, ...]:
    """The branch that a constant condition takes; else both are computed, and each result chosen element by element."""
    condition = node.input(0)
    if isinstance(condition, Constant):
        taken = "then_branch" if bool(condition.data.reshape(-1)[0]) else "else_branch"
        return tuple(node.subgraph(taken))
    try:
        branches = node.subgraph("then_branch"), node.subgraph("else_branch")
    except RunTimeError:
        raise
    except ImportModelError as error:  # a branch that is not taken need not fit the inputs
        raise node.needs(condition, f"a branch cannot be computed: {error.line}") from error
    results = []
    for yes, no in zip(*branches, strict=True):
        a, b = yes.struct_info, no.struct_info
        if not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo):
            raise node.needs(condition, "branches that give other things than tensors need a known condition")
        alike = a.ndim == b.ndim and all(map(is_same, a.dims, b.dims))
        if not alike or a.dtype != b.dtype:
            raise node.needs(condition, f"its branches give {a} and {b}, and the condition is not known at import")
        scalar = node.emit(op.reshape(condition, ())) if info_of(condition).ndim else condition
        results.append(op.where(scalar, yes, no))
    return tuple(results)


@converter("Loop")
def loop(node: Node) -> tuple[Expr, ...]:
    """Steps written out where their number and the condition are known at import; else a function that calls itself."""
    going: Expr = node.input(1) if node.has(1) else Constant(np.asarray(True))
    state = [node.input(i) for i in range(2, len(node.inputs))]
    most = node.input(0) if node.has(0) else None
    started, collects = (going, most, state), len(node.attrs["body"].output) - 1 > len(state)
    if node.loop is not None and not collects and most is not None and not isinstance(most, Constant):
        return node.loop(node, *started)
    trips = int(node.integers(0)[0]) if node.has(0) else None
    scanned: list[list[Expr]] = [[] for _ in range(len(node.attrs["body"].output) - 1 - len(state))]
    step = 0
    while trips is None or step < trips:
        if not isinstance(going, Constant):
            if node.loop is not None and not collects:
                return node.loop(node, *started)
            raise node.needs(going, "whether it goes on must be known when the model is imported")
        if not bool(going.data.reshape(-1)[0]):
            break
        if step >= MOST_STEPS:
            raise node.fail(f"it has more than {MOST_STEPS} steps")
        going, *results = node.subgraph("body", [Constant(np.asarray(step, np.int64)), going, *state], step)
        state = results[: len(state)]
        for parts, result in zip(scanned, results[len(state) :], strict=True):
            parts.append(result)
        step += 1
    if not step and scanned:
        return (*state, *_of_no_step(node, [Constant(np.asarray(0, np.int64)), going, *state]))
    return (*state, *(_stacked(node, parts, 0) for parts in scanned))


def _of_no_step(node: Node, arguments: Sequence[Expr]) -> list[Expr]:
    """What a loop without steps collects: nothing, of the shapes that its body would give."""
    results = node.subgraph("body", arguments, 0)[len(arguments) - 1 :]
    infos = [r.struct_info for r in results]
    if not all(isinstance(info, TensorStructInfo) and info.is_static for info in infos):
        raise node.no_kernel("it has no step, and the shapes of what it collects are not known")
    return [Constant(np.zeros((0, *info.static_shape), info.dtype)) for info in map(info_of, results)]


@converter("Scan")
def scan(node: Node) -> tuple[Expr, ...]:
    """Steps written out, one for each slice along the scanned axis."""
    if node.opset < 9:
        raise node.no_kernel("Scan of opset 8")
    n_scanned, body = node.attr("num_scan_inputs"), node.attrs["body"]
    n_state = len(node.inputs) - n_scanned
    state = [node.input(i) for i in range(n_state)]
    sources = [node.input(n_state + i) for i in range(n_scanned)]
    axes = node.attr("scan_input_axes", [0] * n_scanned)
    backwards = node.attr("scan_input_directions", [0] * n_scanned)
    n_outputs = len(body.output) - n_state
    steps, *others = (node.shape(n_state + i)[axis] for i, axis in enumerate(axes))
    if any(n != steps for n in others):
        raise node.fail(f"its inputs have {', '.join(map(str, (steps, *others)))} slices")
    if steps > MOST_STEPS:
        raise node.fail(f"it has more than {MOST_STEPS} steps")
    scanned: list[list[Expr]] = [[] for _ in range(n_outputs)]
    for step in range(steps):
        slices = []
        for source, axis, backward in zip(sources, axes, backwards, strict=True):
            at = Constant(np.asarray(steps - 1 - step if backward else step, np.int64))
            slices.append(node.emit(op.take(source, at, axis=axis)))
        results = node.subgraph("body", [*state, *slices], step)
        state = results[:n_state]
        for parts, result in zip(scanned, results[n_state:], strict=True):
            parts.append(result)
    out_axes = node.attr("scan_output_axes", [0] * n_outputs)
    reverse = node.attr("scan_output_directions", [0] * n_outputs)
    outputs = [
        _stacked(node, parts[::-1] if backward else parts, axis)
        for parts, axis, backward in zip(scanned, out_axes, reverse, strict=True)
    ]
    return (*state, *outputs)


def _stacked(node: Node, parts: Sequence[Expr], axis: int) -> Expr:
    """The parts along a new axis; many of them in groups, as each of a group makes its kernel's expressions deeper."""
    groups = [parts[i : i + GROUP] for i in range(0, len(parts), GROUP)]
    joined = [node.emit(op.stack(Tuple(tuple(group)), axis=axis)) for group in groups]
    while len(joined) > 1:
        groups = [joined[i : i + GROUP] for i in range(0, len(joined), GROUP)]
        joined = [node.emit(op.concat(Tuple(tuple(g)), axis=axis)) if len(g) > 1 else g[0] for g in groups]
    return joined[0]
