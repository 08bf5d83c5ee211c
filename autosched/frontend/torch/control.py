"""Control flow of PyTorch's graphs: cond, while_loop and scan, whose bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from autosched.frontend.loops import add_loop, variables
from autosched.frontend.torch.emitter import Emitter, Value, constant, info_of
from autosched.ir import GlobalVar
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, Tuple, TupleGetItem
from autosched.relax.struct_info import ShapeExpr, StructInfo, same_dims

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

    from autosched.tir.expr import SizeVar

MOST_STEPS = 1024  # of a loop that is written out
GROUP = 16  # tensors that are joined at once
TEST, STEP = "test", "step"  # what the functions of a loop are called behind its name


class Importer(Protocol):
    """What writes a graph's nodes; `symbols` are the program's open sizes."""

    emitter: Emitter
    symbols: dict[str, SizeVar]

    def at(self, value: object) -> Value:
        """What became of nodes: expressions, numbers, the graphs of control flow."""

    def subgraph(self, graph_module: object, args: Sequence[object]) -> tuple[Value, ...]:
        """What such a graph gives for these values."""


def is_control(target: object) -> bool:
    """Whether a node's operator is one of those here."""
    import torch

    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() in CONTROL


def all_nodes(program: ExportedProgram) -> Iterator[fx.Node]:
    """The nodes of a program's graph, and of the graphs inside of it."""
    yield from program.graph.nodes
    module = getattr(program, "graph_module", program)
    for inner in module.modules():
        if inner is not module and hasattr(inner, "graph"):
            yield from inner.graph.nodes


def import_control(importer: Importer, node: Any) -> Any:
    """What a node gives: a tuple of expressions."""
    return CONTROL[node.target.name()](importer, *node.args, **node.kwargs)


def _cond(importer: Importer, pred: object, yes: object, no: object, operands: Sequence[object] = ()) -> object:
    """The branch of a condition that is known; else both are computed, and each result chosen."""
    t, condition, args = importer.emitter, importer.at(pred), importer.at(tuple(operands))
    if not isinstance(condition, Expr) or isinstance(condition, Constant):
        taken = bool(condition.data.reshape(-1)[0]) if isinstance(condition, Constant) else bool(condition)
        return importer.subgraph(importer.at(yes if taken else no), args)
    name = t.node
    both = [importer.subgraph(importer.at(branch), args) for branch in (yes, no)]
    t.node = name
    scalar = t.reshape(condition, ())
    return tuple(_chosen(t, scalar, a, b) for a, b in zip(*both, strict=True))


def _chosen(t: Emitter, condition: Expr, a: object, b: object) -> object:
    if not isinstance(a, Expr) or not isinstance(b, Expr):
        if a is b or (not isinstance(a, Expr) and not isinstance(b, Expr) and a == b):
            return a
        raise t.fail(f"the branches give {a} and {b}, and which is taken is known only when the model runs")
    first, second = info_of(a), info_of(b)
    if first.dtype != second.dtype or not same_dims(first.dims, second.dims):
        raise t.fail(f"the branches give {first} and {second}, and which is taken is known only when the model runs")
    return t(op.where(condition, a, b))


def _while(
    importer: Importer, going: object, body: object, carried: Sequence[object], more: Sequence[object] = ()
) -> object:
    """Steps written out, as long as a condition holds that follows from constants; else a function that loops."""
    t, test, step = importer.emitter, importer.at(going), importer.at(body)
    state, extra = list(importer.at(tuple(carried))), tuple(importer.at(tuple(more)))
    known = [_known(x) for x in (*state, *extra)]
    name, n = t.node, len(state)
    for _ in range(MOST_STEPS + 1):
        (goes_on,) = _evaluated(test, known)
        t.node = name
        if goes_on is None:
            return _loop(importer, test, step, state, extra)
        if not bool(goes_on):
            return tuple(state)
        found = importer.subgraph(step, (*state, *extra))
        known[:n] = _evaluated(step, known)
        state = [x if k is None else _constant(k) for x, k in zip(found, known, strict=False)]
    raise t.fail(f"the loop has more than {MOST_STEPS} steps")


def _loop(importer: Importer, test: object, step: object, state: Sequence[object], extra: Sequence[object]) -> object:
    """A function that calls itself while the condition holds: the condition and the step are functions of their own."""
    t, name = importer.emitter, importer.emitter.node
    tensors = [x for x in state if isinstance(x, Expr)]
    n, forms = len(state), [_form(x) for x in tensors]
    if len(tensors) < n:
        raise t.fail("how often the loop runs is known only when the model runs, and numbers are open")
    moving = [x for x in extra if isinstance(x, Expr) and not isinstance(x, Constant)]
    types: list[StructInfo] = [info_of(x) for x in (*tensors, *moving)]
    if importer.symbols:  # functions know those that they are given
        sizes = ShapeExpr(tuple(importer.symbols.values()))
        moving, types = [*moving, sizes], [*types, sizes.struct_info]

    def written(kind: str, graph: object) -> GlobalVar:
        params = variables(types)
        given = dict(zip(map(id, moving), params[n:], strict=True))
        found = t.builder.get_unique_function_name(f"{name}_{kind}")
        with t.builder.function(found, params, private=True):
            results = importer.subgraph(graph, (*params[:n], *(given.get(id(x), x) for x in extra)))
            t.node = name
            if kind == STEP and [_form(x) for x in results] != forms:
                raise t.fail("a step of the loop gives other shapes or dtypes than it takes")
            t.builder.emit_func_output(t.reshape(results[0], ()) if kind == TEST else Tuple(results))
        return GlobalVar(found)

    going, taken = written(TEST, test), written(STEP, step)
    result = t(add_loop(t.builder, name, going, taken, tensors, moving, types))
    return tuple(t(TupleGetItem(result, i)) for i in range(n))


def _form(x: Expr) -> object:
    return info_of(x).dims, info_of(x).dtype


def _known(x: object) -> object:
    """The value as PyTorch computes with it; None where it is known only when the model runs."""
    import torch

    return torch.from_numpy(np.array(x.data)) if isinstance(x, Constant) else None if isinstance(x, Expr) else x


def _constant(x: object) -> object:
    return constant(x.numpy(), str(x.numpy().dtype)) if hasattr(x, "numpy") else x


def _evaluated(graph_module: fx.GraphModule, given: Sequence[object]) -> list[Value]:
    """What a graph gives, where that follows from what is known; None elsewhere."""
    import torch

    values: dict[fx.Node, Value] = {}

    def lookup(node: object) -> Value:
        if values.get(node) is None:
            raise LookupError
        return values[node]

    places = iter(given)
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(places)
        elif node.op == "output":
            results = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
            return [values.get(r) if isinstance(r, torch.fx.Node) else r for r in results]
        elif node.op == "call_function":
            try:
                args, kwargs = (torch.fx.node.map_arg(a, lookup) for a in (node.args, node.kwargs))
            except LookupError:
                continue
            values[node] = node.target(*args, **kwargs)
    return []


def _scan(
    importer: Importer, combine: object, init: Sequence[object], xs: Sequence[object], more: Sequence[object] = ()
) -> object:
    """Steps written out, one for each slice along the first dimension."""
    t, step = importer.emitter, importer.at(combine)
    state, sources, extra = (tuple(importer.at(tuple(x))) for x in (init, xs, more))
    steps, n = t.shape(sources[0])[0], len(state)
    if steps > MOST_STEPS:
        raise t.fail(f"the scan has more than {MOST_STEPS} steps")
    scanned: list[list[Expr]] = []
    for number in range(steps):
        slices = [t(op.take(x, constant(number, "int64"), axis=0)) for x in sources]
        results = importer.subgraph(step, (*state, *slices, *extra))
        state = tuple(results[:n])
        scanned.append(list(results[n:]))
    return (*state, *(_stacked(t, parts) for parts in zip(*scanned, strict=True)))


def _stacked(t: Emitter, parts: Sequence[Expr]) -> object:
    """The parts along a new first dimension, in groups, as each part makes its kernel's expressions deeper."""
    joined = [t(op.stack(Tuple(tuple(parts[i : i + GROUP])), axis=0)) for i in range(0, len(parts), GROUP)]
    while len(joined) > 1:
        groups = [joined[i : i + GROUP] for i in range(0, len(joined), GROUP)]
        joined = [t(op.concat(Tuple(tuple(g)), axis=0)) if len(g) > 1 else g[0] for g in groups]
    return joined[0]


CONTROL: Mapping[str, Callable[..., Value]] = {"cond": _cond, "while_loop": _while, "scan": _scan}
