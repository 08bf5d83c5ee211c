"""The sizes of an exported program: which are symbols, what inputs' shapes make of them, and their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import ImportModelError, ShapeError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def dynamic_inputs(program: ExportedProgram) -> dict[str, tuple[int | torch.SymInt, ...]]:
    """The user's tensors by name, with their dimensions: numbers, and what PyTorch has for symbolic ones."""
    wanted = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in wanted]
    return {n.name: tuple(n.meta["val"].shape) for n in nodes if hasattr(n.meta["val"], "shape")}


def size_value(size: torch.SymInt, sizes: Mapping[str, int]) -> int | None:
    """The number that a symbolic size is when its symbols are; None where one of them is not known."""
    expression = size.node.expr
    names = [str(s) for s in expression.free_symbols]
    if any(n not in sizes for n in names):
        return None
    return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))


def sizes_of(program: ExportedProgram, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of a program's symbols from the shapes of inputs.

    Raises  ShapeError for shapes that do not fit the program, each other, or the bounds it was exported with.
    """
    inputs, sizes = dynamic_inputs(program), dict[str, int]()
    for name, shape in shapes.items():
        if name not in inputs:
            raise ImportModelError(f"the program has no input '{name}'", hint=f"it has {', '.join(inputs)}")
        if len(shape) != len(inputs[name]):
            raise ShapeError(f"input '{name}' has {len(inputs[name])} dimensions, not {len(shape)}")
        for size, given in zip(inputs[name], shape, strict=True):
            if not isinstance(size, int) and size.node.expr.is_symbol:
                sizes.setdefault(str(size), given)
    for name, shape in shapes.items():
        for size, given in zip(inputs[name], shape, strict=True):
            known = size if isinstance(size, int) else size_value(size, sizes)
            if known is not None and known != given:
                raise ShapeError(f"input '{name}' is of shape {list(inputs[name])}, not {list(shape)}")
    for symbol, bounds in program.range_constraints.items():
        low, high = _limits(bounds)
        if (value := sizes.get(str(symbol))) is not None and not (low <= value and (high is None or value <= high)):
            reach = f"{low} and more" if high is None else f"{low} to {high}"
            raise ShapeError(f"the size {symbol} is {value}; the program was exported for {reach}")
    return sizes


def is_bound(program: object, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether all sizes of a program's inputs are known once these shapes are."""
    symbols: set[str] = set()
    for dims in dynamic_inputs(program).values():
        symbols |= {str(s) for d in dims if not isinstance(d, int) for s in d.node.expr.free_symbols}
    return symbols <= set(sizes_of(program, shapes))


def has_sizes_of_data(program: ExportedProgram) -> bool:
    """Whether sizes or numbers in a program follow from data, by what PyTorch noted of them."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(free_unbacked_symbols(node.meta.get("val")) for node in program.graph.nodes)


def has_empty_values(program: ExportedProgram) -> bool:
    """Whether a tensor in a program has no elements, by what PyTorch noted of them."""
    notes = [x for n in program.graph.nodes if (x := n.meta.get("val")) is not None]
    tensors = [t for x in notes for t in (x if isinstance(x, tuple | list) else (x,)) if hasattr(t, "shape")]
    return any(isinstance(d, int) and d == 0 for t in tensors for d in t.shape)


def size_bounds(program: ExportedProgram, names: Iterable[str]) -> dict[str, tuple[int, int | None]]:
    """The least and the most that symbols may be, by name; each at least 1."""
    known = {str(symbol): _limits(r) for symbol, r in program.range_constraints.items()}
    found = {name: (max(known[name][0], 1), known[name][1]) for name in names if name in known}
    return {name: bounds for name, bounds in found.items() if bounds != (1, None)}


def _limits(bounds: Any) -> tuple[int, int | None]:
    """The least and the most of one of PyTorch's ranges.

    PyTorch notes 2 as the least of sizes that it took for neither 0 nor 1, and runs its programs for 1 too.
    """
    low, high = number_or_none(bounds.lower), number_or_none(bounds.upper)
    return (0 if low is None else 1 if low == 2 else low), high


def number_or_none(bound: object) -> int | None:
    """A bound as an integer; None for infinity."""
    is_number = isinstance(bound, int) or getattr(bound, "is_Integer", False)
    return int(bound) if is_number else None  # type: ignore[call-overload]
