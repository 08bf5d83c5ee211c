"""From a module whose `main` calls kernels, over sizes that are known when it is called, to the form of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosched.errors import ShapeError
from autosched.ir.module import IRModule
from autosched.relax.expr import Call, Function, Var
from autosched.relax.op.call import tir_inputs, tir_target
from autosched.relax.struct_info import TensorStructInfo, same_dims, tensor_infos
from autosched.relax.to_graph import GraphBuilder
from autosched.runtime.graph import Storage, Value
from autosched.runtime.graph_form import GraphForm, SizeLimit, SizeRange
from autosched.runtime.size_expr import Shape, shape_at, size_at, symbols_of
from autosched.tir import PrimFunc
from autosched.tir.expr import PrimExpr
from autosched.tir.in_place import overwritable
from autosched.tir.size_expr import to_shape

MOST_NEEDED = 4096
Numbers = Callable[[str, Sequence[Sequence[Any]]], Sequence[Any]]


class _FormBuilder(GraphBuilder):
    """Collects values with their shapes over the symbols, and what each node's kernel is given."""

    def __init__(
        self, main: Function, kernels: Mapping[str, Sequence[PrimFunc]], sizes: Sequence[SizeRange], numbers: Numbers,
        limits: Sequence[SizeLimit],
    ):  # fmt: skip
        pairs = {name: frozenset.intersection(*map(overwritable, funcs)) for name, funcs in kernels.items()}
        super().__init__(main, pairs)
        self.dims: list[tuple[int | PrimExpr, ...]] = []
        self.given: list[Shape] = []
        self.numbers_of = numbers
        self.ones = {size.name: 1 for size in sizes}
        self.sizes, self.limits = tuple(sizes), tuple(limits)

    def add(self, name: str, info: TensorStructInfo, storage: Storage) -> int:
        self.dims.append(info.dims)
        shape = tuple(max(extent, 0) for extent in shape_at(to_shape(info.dims), self.ones))  # windows may not fit yet
        self.values.append(Value(name, shape, info.dtype, storage))
        return len(self.values) - 1

    def kernel(self, var: Var, call: Call) -> tuple[int, ...] | int:
        made = super().kernel(var, call)
        infos = [x.struct_info for x in tir_inputs(call)] + list(tensor_infos(call.struct_info))
        shapes = [info.dims for info in infos if isinstance(info, TensorStructInfo)]
        self.given.append(to_shape(self.numbers_of(tir_target(call).name, shapes)))
        return made

    def view(self, var: Var, call: Call) -> int:
        number = super().view(var, call)
        self.given.append(())
        return number

    def same_size(self, a: int, b: int) -> bool:
        return same_dims(self.dims[a], self.dims[b]) and super().same_size(a, b)

    def form(self) -> GraphForm:
        inputs, outputs = self.collect()
        lives = tuple((number, first, last) for number, (first, last) in self.lives().items())
        inside = tuple((number, *self.owner(number)) for number in self.inside)
        shapes = tuple(map(to_shape, self.dims))
        sizes = tuple(replace(size, low=_least(size, shapes)) for size in self.sizes)
        return GraphForm(
            sizes, tuple(self.values), shapes, tuple(self.given), lives, inside, tuple(self.nodes), inputs,
            outputs, self.limits,
        )  # fmt: skip


def _least(size: SizeRange, shapes: Iterable[Shape]) -> int:
    """The least size from its lower bound on for which no extent that depends on it alone is below one.

    Its bound where that is 0, or where none of some thousand sizes will do. Raises ShapeError where no size fits.
    """
    low = size.low
    for extent in dict.fromkeys(e for shape in shapes for e in shape if symbols_of(e) == {size.name}):
        while size_at(extent, {size.name: low}) < 1 <= low < MOST_NEEDED:
            low += 1
    if size.high is not None and size.high < low < MOST_NEEDED:
        raise ShapeError(f"no size fits: '{size.name}' has to be at least {low}, and it is {size.low} to {size.high}")
    return low if low < MOST_NEEDED else size.low


def to_graph_form(
    module: IRModule,
    kernels: Mapping[str, Sequence[PrimFunc]],
    sizes: Sequence[SizeRange],
    numbers: Numbers,
    limits: Sequence[SizeLimit] = (),
) -> tuple[GraphForm, tuple[np.ndarray, ...], tuple[str, ...]]:
    """(form, constants, names of inputs that are parameters) of a module's `main`.

    kernels  per name that a node may call the functions that are called for it: one, or one for each size of blocks
    sizes    the symbols in the shapes of `main`, with their bounds
    limits   what these must be together
    numbers  gives what a kernel is given, by its name and the shapes of a call's arguments
    Raises   InvalidTypeError for a call that is no kernel, InvalidValueError for a shape that is no sum or product,
             ShapeError where a value has no elements for any of the sizes.
    """
    main = module["main"]
    builder = _FormBuilder(main, kernels, sizes, numbers, limits)
    form = builder.form()
    count = main.attrs.get("num_input", len(main.params))
    return form, tuple(builder.constants), tuple(p.name for p in main.params[count:])
