"""Numbers that say how a loop nest uses the machine, the same for all operators and shapes.

A nest is seen as its stores, each under its loops. For each cache level, the reuse distance decides: the outermost loop
whose whole run touches no more bytes than the level holds is loaded once and then hit, so the bytes that come from
beyond the level are the bytes that this loop touches times how often it starts.

Source: Zheng et al. 2020, Ansor, appendix B (which quantities); Wolf, Lam 1991 (footprints of affine accesses).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.ir.node import children, preorder
from autosched.target import Target
from autosched.tir import BufferLoad, BufferStore, For, IfThenElse, LoopKind, PrimFunc, Stmt, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr
from autosched.tir.simplify import Analyzer, form_key

FEATURES = (
    "flops",  # all of them as log2(1 + value), summed over the nests of a function
    "loads_bytes",
    "stores_bytes",
    "footprint_bytes",
    "l1_miss_bytes",
    "l2_miss_bytes",
    "l3_miss_bytes",
    "local_bytes",
    "vector_extent",
    "parallel_extent",
    "unrolled_extent",
    "serial_extent",
    "innermost_trips",
    "loop_starts",
    "branches",
    "intensity",
)
_VOLUMES = (
    "loads_bytes",
    "stores_bytes",
    "l1_miss_bytes",
    "l2_miss_bytes",
    "l3_miss_bytes",
    "serial_extent",
    "loop_starts",
)
_OF_SIZE = ("flops", "footprint_bytes", "branches")  # what tells the size of the workload rather than the schedule
DRAWS = 256  # iterations that are drawn to see how often a branch is taken
_ARITHMETIC: Mapping[type, Callable[..., np.ndarray]] = {
    E.Add: np.add,
    E.Sub: np.subtract,
    E.Mul: np.multiply,
    E.FloorDiv: np.floor_divide,
    E.FloorMod: np.mod,
    E.Min: np.minimum,
    E.Max: np.maximum,
    E.LT: np.less,
    E.LE: np.less_equal,
    E.GT: np.greater,
    E.GE: np.greater_equal,
    E.EQ: np.equal,
    E.NE: np.not_equal,
    E.And: np.logical_and,
    E.Or: np.logical_or,
}
_FLOPS = (E.Add, E.Sub, E.Mul, E.Div, E.Max, E.Min)


Reach = list[
    tuple[int, tuple[Hashable, ...]]
]  # of an index: factors, and the form keys of the variables that they apply to


@dataclass(frozen=True)
class Access:
    """One buffer with the indices of one load or store."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    is_store: bool

    @property
    def item_bytes(self) -> int:
        """Size of an element."""
        return item_bytes(self.buffer.dtype)


def loop_features(func: PrimFunc, target: Target) -> np.ndarray:
    """Features of a lowered function (loops, no blocks), in the order of `FEATURES` [len(FEATURES)] float64.

    Extents that are known only at run time count as 1.
    """
    total = dict.fromkeys(FEATURES, 0.0)
    for loops, share, store in _nests(func.body, (), 1.0):
        for name, value in _of_nest(loops, store, target).items():
            total[name] = max(total[name], value) if name.endswith("_extent") else total[name] + share * value
    total["branches"] = float(sum(_is_branch(node) for node in preorder(func.body)))
    total["intensity"] = total["flops"] / max(total["l2_miss_bytes"], 1.0)
    return np.asarray(np.log2(1 + np.array([total[name] for name in FEATURES])))


def per_operation(loops: np.ndarray) -> np.ndarray:
    """Features [n, len(FEATURES)] as shapes have them in common: volumes by operation, none that is a size itself.

    A model that has seen few shapes takes a size for the name of a shape; bytes by operation are the same in all.
    """
    apart = loops.astype(np.float64)
    apart[:, [FEATURES.index(name) for name in _VOLUMES]] -= loops[:, [FEATURES.index("flops")]]
    return np.delete(apart, [FEATURES.index(name) for name in _OF_SIZE], axis=1)


def _is_branch(node: object) -> bool:
    return isinstance(node, E.Select | IfThenElse) or (isinstance(node, E.Call) and "if_then_else" in str(node.op))


def _nests(stmt: Stmt, loops: tuple[For, ...], share: float) -> Iterator[tuple[tuple[For, ...], float, BufferStore]]:
    """Every store with the loops around it, outermost first, and the share of their iterations in which it runs."""
    if isinstance(stmt, For):
        yield from _nests(stmt.body, (*loops, stmt), share)
    elif isinstance(stmt, BufferStore):
        yield loops, share, stmt
    elif isinstance(stmt, IfThenElse):
        taken = _how_often(stmt.condition, loops)
        yield from _nests(stmt.then_case, loops, share * taken)
        if stmt.else_case is not None:
            yield from _nests(stmt.else_case, loops, share * (1 - taken))
    else:
        for child in children(stmt):
            if isinstance(child, Stmt):
                yield from _nests(child, loops, share)


def _how_often(condition: PrimExpr, loops: Sequence[For]) -> float:
    """The share of iterations in which a condition on loop variables holds, of some drawn at random."""
    rng = np.random.default_rng(0)
    values = {loop.loop_var: rng.integers(0, _extent(loop), DRAWS) for loop in loops}
    held = _evaluate(condition, values)
    return 1.0 if held is None else float(np.mean(np.broadcast_to(held, DRAWS)))


def _evaluate(expr: PrimExpr, values: Mapping[Var, np.ndarray]) -> np.ndarray | int | None:
    """The values of an integer expression; None where it holds something that is not arithmetic on `values`."""
    if isinstance(expr, Var):
        return values.get(expr)
    if isinstance(expr, E.IntImm):
        return expr.value
    if type(expr) in _ARITHMETIC:
        a, b = (_evaluate(part, values) for part in (expr.a, expr.b))  # type: ignore[attr-defined]
        return None if a is None or b is None else _ARITHMETIC[type(expr)](a, b)
    return None


def _of_nest(loops: Sequence[For], store: BufferStore, target: Target) -> dict[str, float]:
    trips = math.prod(map(_extent, loops))
    accesses = [Access(store.buffer, store.indices, True)]
    accesses += [Access(x.buffer, x.indices, False) for x in preorder(store.value) if isinstance(x, BufferLoad)]
    memory = [a for a in accesses if a.buffer.scope not in ("local", "shared", "shared.dyn")]
    reaches = _reaches(memory)
    touched = [_footprint(reaches, loops[depth:]) for depth in range(len(loops) + 1)]  # bytes of one run of these loops
    starts = np.cumprod([1, *map(_extent, loops)])
    flops = sum(isinstance(x, _FLOPS) and x.dtype.startswith("float") for x in preorder(store.value))
    misses = [_misses(touched, starts, size) for size in _levels(target)]
    local = [a for a in accesses if a.buffer.scope == "local"]
    return {
        "flops": float(flops * trips),
        "loads_bytes": float(trips * sum(a.item_bytes for a in memory if not a.is_store)),
        "stores_bytes": float(trips * sum(a.item_bytes for a in memory if a.is_store)),
        "footprint_bytes": float(touched[0]),
        "l1_miss_bytes": float(misses[0]),
        "l2_miss_bytes": float(misses[1]),
        "l3_miss_bytes": float(misses[2]),
        "local_bytes": float(max((_size(a.buffer) * a.item_bytes for a in local), default=0)),
        "vector_extent": float(_product(loops, LoopKind.VECTORIZED)),
        "parallel_extent": float(_product(loops, LoopKind.PARALLEL) * _product(loops, LoopKind.THREAD_BINDING)),
        "unrolled_extent": float(_product(loops, LoopKind.UNROLLED)),
        "serial_extent": float(_product(loops, LoopKind.SERIAL)),
        "innermost_trips": float(_innermost(loops)),
        "loop_starts": float(sum(starts[d] for d, loop in enumerate(loops) if loop.kind is LoopKind.SERIAL)),
    }


def _levels(target: Target) -> tuple[int, int, int]:
    """Bytes of the caches: a GPU's shared memory of an SM stands for the first level, its L2 for the others."""
    if target.is_cpu:
        return target.cache.l1_bytes, target.cache.l2_bytes, target.cache.l3_bytes
    return target.gpu.shared_per_sm, target.gpu.l2_bytes, target.gpu.l2_bytes


def _misses(touched: Sequence[float], starts: np.ndarray, size: int) -> float:
    """Bytes from beyond a cache of `size` bytes: by the outermost loops whose run fits in, else by every iteration."""
    depth = next((d for d, touches in enumerate(touched) if touches <= size), len(touched) - 1)
    return float(touched[depth] * starts[depth])


def _extent(loop: For) -> int:
    return loop.extent.value if isinstance(loop.extent, E.IntImm) else 1


def _product(loops: Sequence[For], kind: LoopKind) -> int:
    return math.prod(_extent(loop) for loop in loops if loop.kind is kind)


def _innermost(loops: Sequence[For]) -> int:
    """Trips of the innermost loop that stays a loop in the machine code."""
    return next((_extent(loop) for loop in reversed(loops) if loop.kind is LoopKind.SERIAL), 1)


def _size(buffer: Buffer) -> int:
    return math.prod(buffer.const_shape())


def _reaches(accesses: Sequence[Access]) -> list[tuple[Access, list[Reach]]]:
    """What moves each index of each access: found once, and used for the loops of every depth."""
    analyzer = Analyzer()
    return [(access, [_reach(index, analyzer) for index in access.indices]) for access in accesses]


def _reach(index: PrimExpr, analyzer: Analyzer) -> Reach:
    return [
        (abs(coefficient), tuple({form_key(x): None for x in preorder(atom) if isinstance(x, Var)}))
        for coefficient, atom in analyzer.linear(index).terms.values()
    ]


def _footprint(reaches: Sequence[tuple[Access, list[Reach]]], loops: Sequence[For]) -> float:
    """Bytes that one run of the loops touches: per buffer the box around all its accesses, never more than it has."""
    own = {form_key(loop.loop_var): _extent(loop) for loop in loops}
    spans: dict[Buffer, list[float]] = {}
    for access, indices in reaches:
        box = [_span(index, own) for index in indices]
        known = spans.setdefault(access.buffer, box)
        spans[access.buffer] = [max(a, b) for a, b in zip(known, box, strict=True)]
    sizes = {access.buffer: access.item_bytes for access, _ in reaches}
    return float(sum(min(math.prod(box), _size(buffer)) * sizes[buffer] for buffer, box in spans.items()))


def _span(index: Reach, own: Mapping[object, int]) -> float:
    """How many values an index runs through; one that is not affine counts every trip of the loops that it names."""
    return 1.0 + sum(coefficient * (math.prod(own.get(name, 1) for name in names) - 1) for coefficient, names in index)
