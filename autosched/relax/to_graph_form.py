"""From a module whose `main` calls kernels, over a batch of unknown size, to the form of its static graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.relax.expr import Function
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.to_graph import GraphBuilder
from autosched.runtime.graph import Storage, Value
from autosched.runtime.graph_form import GraphForm, SizeRange
from autosched.tir import PrimFunc
from autosched.tir.expr import Var as TirVar
from autosched.tir.expr import as_int
from autosched.tir.in_place import overwritable
from autosched.tir.separable import share_of


class _FormBuilder(GraphBuilder):
    """Collects values as they are for one part of the batch, and which of their dimensions counts parts."""

    def __init__(self, main: Function, kernels: Mapping[str, Sequence[PrimFunc]], size: TirVar):
        super().__init__(main, {})
        self.size, self.axes = size, []  # type: tuple[TirVar, list[int]]  # type: ignore[assignment]
        self.pairs = {name: frozenset.intersection(*map(overwritable, funcs)) for name, funcs in kernels.items()}

    def add(self, name: str, info: TensorStructInfo, storage: Storage) -> int:
        shape = tuple(info.shape)
        share = share_of(shape, self.size)
        self.axes.append(-1 if share is None else share.axis)
        one = tuple(share.per_part if share and d == share.axis else as_int(n) for d, n in enumerate(shape))
        self.values.append(Value(name, one, info.dtype, storage))
        return len(self.values) - 1

    def same_size(self, a: int, b: int) -> bool:
        return (self.axes[a] < 0) == (self.axes[b] < 0) and super().same_size(a, b)

    def form(self, bounds: SizeRange) -> GraphForm:
        inputs, outputs = self.collect()
        lives = tuple((number, first, last) for number, (first, last) in self.lives().items())
        inside = tuple((number, self.owner(number)[0]) for number in self.inside)
        assert not any(self.owner(number)[1] for number in self.inside), "parts of concatenations are kernels here"
        return GraphForm(
            bounds, tuple(self.values), tuple(self.axes), lives, inside, tuple(self.nodes), inputs, outputs
        )  # fmt: skip


def to_graph_form(
    module: IRModule, kernels: Mapping[str, Sequence[PrimFunc]], size: TirVar, bounds: SizeRange
) -> tuple[GraphForm, tuple[np.ndarray[Any, Any], ...], tuple[str, ...]]:
    """(form, constants, names of inputs that are parameters) of a module's `main`.

    kernels  per name that a node may call the functions that are called for it: one, or one for each size of blocks
    size     the symbol in the shapes of `main`
    Raises   NotSeparableError for a value that has not the batch in its first dimension; TypeError for a call that is
             no kernel.
    """
    main = module["main"]
    builder = _FormBuilder(main, kernels, size)
    form = builder.form(bounds)
    count = main.attrs.get("num_input", len(main.params))
    return form, tuple(builder.constants), tuple(p.name for p in main.params[count:])
