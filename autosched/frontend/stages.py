"""Stages of a model whose course is known only when it runs, as all importers make them.

An input that says sizes or axes, an operator that a library computes, a dimension that follows from data: each ends a
stage. A stage is a module of what can be compiled with what is known so far; it says which values' contents the next
one needs, and which nodes a library computes in between.

Sizes and integers that differ from call to call can be symbols (`OpenSizes`): one stage serves all of them then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from autosched.errors import ImportModelError
from autosched.ir import preorder
from autosched.ir.module import IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, Function, Tuple, Var
from autosched.relax.rewrite import used_vars
from autosched.relax.struct_info import Dim, TensorStructInfo, tensor_infos
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.runtime.size_expr import Size
from autosched.tir.expr import PrimExpr, SizeVar


@dataclass(frozen=True)
class Made:
    """The output of that number of the stage's module."""

    index: int


@dataclass(frozen=True)
class Kept:
    """A value that was there before the stage, or an item of such a sequence ("name", "name.3")."""

    name: str


@dataclass(frozen=True, eq=False)
class Fixed:
    """A value that is known at import."""

    value: Any


@dataclass(frozen=True, eq=False)
class Number:
    """A number of Python's that follows from open sizes."""

    size: PrimExpr


Form = Made | Kept | Fixed | Number | tuple["Form", ...] | None


class OutsideCall(Protocol):
    """What a library computes between stages.

    inputs        the values that it reads, by name
    outputs       those that it gives; "" for one that nobody reads
    name          of the graph's node, for messages
    op_name       the operator
    library_name  who computes it, for reports
    """

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def name(self) -> str: ...
    @property
    def op_name(self) -> str: ...
    @property
    def library_name(self) -> str: ...

    def check(self, inputs: Sequence[object]) -> None:
        """Refuse what no library computes, by arrays of the inputs' dtypes. Raises ImportModelError."""

    def run(self, inputs: Sequence[object]) -> tuple[object, ...]:
        """The outputs. Raises WrongInputError for values that the operator does not take."""


@dataclass(frozen=True)
class OpenSizes:
    """What a stage takes for any size: symbols, which are 1 at least, in values that are there before it.

    shapes    the dimensions of tensors, by name
    contents  the integers in a vector or a scalar, by name
    numbers   numbers that follow from them, by name
    symbols   all symbols
    """

    shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    contents: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    numbers: Mapping[str, PrimExpr] = field(default_factory=dict)
    symbols: tuple[SizeVar, ...] = ()


class DataNeededError(ImportModelError):
    """Sizes or numbers follow from what the model computes: it can be imported in stages."""


class LibraryNeededError(DataNeededError):
    """An operator that has no kernel: a library can compute it between two stages."""


class ContentsNeededError(ImportModelError):
    """Integers that were to be open have to be known.

    name  of the value
    """

    name = ""


@dataclass(frozen=True, eq=False)
class Check:
    """What the model says of open sizes: this one is at least `low`, and exactly that where `is_exact`."""

    size: Size
    low: int
    is_exact: bool
    message: str


@dataclass(frozen=True)
class Stage:
    """One step of a model.

    module   what is compiled; None where nothing is
    inputs   the values that the module takes, in order
    gives    values that are there afterwards, by name
    needs    those whose contents the next stage is imported with
    calls    what libraries compute afterwards, with where their inputs come from
    results  the model's outputs, of the last stage; None of others
    sizes    symbols that no input's shape says: the module takes an array of so many elements for each, behind `inputs`
    shapes   of those of `gives` whose dimensions are symbols
    numbers  those of `gives` that follow from symbols
    checks   of symbols, before it runs
    """

    module: IRModule | None
    inputs: tuple[str, ...]
    gives: Mapping[str, Form]
    needs: tuple[str, ...]
    calls: tuple[tuple[OutsideCall, tuple[Form, ...]], ...]
    results: tuple[Form, ...] | None
    sizes: tuple[SizeVar, ...] = ()
    shapes: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    numbers: Mapping[str, PrimExpr] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()


class StageWriter:
    """Both ends of a stage that an importer writes: what it takes, and what it gives.

    there    the values before it, by name: arrays, lists of them, numbers, None
    known    names of those whose contents may be used
    open     what is open in them
    given    the module's parameters that stand for some of them
    blocked  values that a later stage gives
    needed   those whose contents the next stage needs
    called   what libraries compute behind it
    checks   of sizes
    """

    def __init__(self, there: Mapping[str, object], known: Sequence[str], open_sizes: OpenSizes):
        self.there, self.known, self.open = dict(there), set(known), open_sizes
        self.done = set(self.there)
        self.given: dict[Var, str] = {}
        self.blocked: set[str] = set()
        self.needed: dict[str, Expr] = {}
        self.called: list[OutsideCall] = []
        self.checks: list[Check] = []

    def write(
        self, builder: BlockBuilder, label: Callable[[str], str], finished: Callable[[list[Expr]], Stage]
    ) -> Stage:
        """The stage, with its module.

        label     makes a parameter's name
        finished  imports nodes, and gives the stage but for its module; what that has to give is added to its argument
        """
        outputs: list[Expr] = []
        with builder.function("main"):
            with builder.dataflow():
                stage = dataclasses.replace(finished(outputs), checks=tuple(self.checks))
                results = [builder.emit_output(x) for x in outputs or [Constant(np.zeros(1, np.float32))]]
            builder.emit_func_output(Tuple(tuple(results)) if len(results) > 1 else results[0], list(self.given))
        if not outputs:
            return stage
        module = builder.get()
        main = remove_unused_bindings(module["main"])
        used = {v for binding in main.bindings() for v in used_vars(binding.value)}
        main = dataclasses.replace(main, params=tuple(p for p in main.params if p in used))
        inputs = tuple(self.given[p] for p in main.params)
        module["main"], unsaid = with_sizes(main, self.open.symbols, label)
        return dataclasses.replace(stage, module=module, inputs=inputs, sizes=unsaid)

    def taken(self, name: str, label: str, value: np.ndarray) -> Constant | Var:
        """An array that is there, as the graph takes it. Raises ImportModelError for open sizes beside one of 0."""
        is_known = name in self.known
        if name in self.open.shapes and (is_known or not value.size):
            raise ImportModelError(f"'{name}' is of open sizes, and no kernel takes it so")
        if is_known or not value.size:
            return Constant(value)
        var = Var(label, TensorStructInfo(self.open.shapes.get(name, value.shape), str(value.dtype)))
        self.given[var] = name
        return var

    def last(self, results: Iterable[Any], outputs: list[Expr]) -> Stage:
        """The last stage, but for its module."""
        return Stage(None, (), {}, (), (), tuple(self.form(value, outputs) for value in results))

    def next(
        self, values: Mapping[str, Any], wanted: Iterable[str], ready_value: Callable[[Any], Any], outputs: list[Expr]
    ) -> Stage:
        """A stage after which others come, but for its module.

        values       all that is there now, by name
        wanted       of these what later stages read
        ready_value  makes of a value that later stages read one that has a form
        """
        for call in self.called:
            call.check([_like(values[name]) for name in call.inputs])
        needs = {name: self.given[value] for name, value in self.needed.items() if value in self.given}
        ready = [(call, forms) for call in self.called if (forms := self.inputs_of_call(call, values)) is not None]
        if needs or ready:  # what is there already decides first: nothing is compiled twice
            gives: dict[str, Form] = {name: Kept(own) for name, own in needs.items() if name != own}
            shapes = {name: self.open.shapes[needs[name]] for name in gives if needs[name] in self.open.shapes}
            return Stage(None, (), gives, tuple(needs), tuple(ready), None, shapes=shapes)
        if not self.needed and not self.called:
            raise ImportModelError("the model's nodes wait for each other")
        names = [n for n in dict.fromkeys((*self.needed, *wanted)) if n in values and n not in self.done]
        found = {n: ready_value(values[n]) for n in names if n not in self.blocked}
        gives = {n: self.form(v, outputs) for n, v in found.items() if not is_known(v)}
        calls = tuple((call, tuple(self.form(values[n], outputs) for n in call.inputs)) for call in self.called)
        numbers = {n: form.size for n, form in gives.items() if isinstance(form, Number)}
        shapes = self.open_shapes(found, gives)
        return Stage(None, (), gives, tuple(self.needed), calls, None, shapes=shapes, numbers=numbers)

    def open_shapes(self, found: Mapping[str, Any], gives: Mapping[str, Form]) -> dict[str, tuple[Dim, ...]]:
        """The shapes of given values that have symbols. Raises ImportModelError for those in a sequence."""
        shapes: dict[str, tuple[Dim, ...]] = {}
        for name in gives if self.open.symbols else ():
            infos = tensor_infos(found[name].struct_info) if isinstance(found[name], Expr) else ()
            is_open = [not all(isinstance(d, int) for d in info.dims) for info in infos]
            if any(is_open) and isinstance(found[name], Tuple):
                raise ImportModelError(f"the items of '{name}' are of open sizes")
            if any(is_open):
                shapes[name] = infos[0].dims
        return shapes

    def inputs_of_call(self, call: OutsideCall, values: Mapping[str, Any]) -> tuple[Form, ...] | None:
        """Where a library's inputs come from; None where one is computed by kernels."""
        computed: list[Expr] = []
        forms = tuple(self.form(values[name], computed) for name in call.inputs)
        return None if computed else forms

    def form(self, value: Any, outputs: list[Expr]) -> Form:
        """Where a value comes from; what kernels compute is added to `outputs`."""
        match value:
            case None:
                return None
            case PrimExpr():
                return Number(value)
            case Constant():
                return Fixed(value.data)
            case Tuple():
                return tuple(self.form(field, outputs) for field in value.fields)
            case tuple() | list():
                return tuple(self.form(field, outputs) for field in value)
            case Var() if value in self.given:
                return Kept(self.given[value])
            case Expr():
                at = next((i for i, known in enumerate(outputs) if known is value), len(outputs))
                if at == len(outputs):
                    outputs.append(value)
                return Made(at)
        return Fixed(value)


def with_sizes(
    main: Function, symbols: Sequence[SizeVar], label: Callable[[str], str]
) -> tuple[Function, tuple[SizeVar, ...]]:
    """A function over symbols, each 1 at least, and those that it uses and that are no dimension of an input.

    For each of the latter it takes an array of so many elements, behind its inputs.
    """
    if not symbols:
        return main, ()
    said = {d for p in main.params for d in getattr(p.struct_info, "dims", ()) if isinstance(d, SizeVar)}
    used = {x for node in (*main.params, *(v for b in main.bindings() for v in (b.var, b.value)))
            for part in (node, node.struct_info) if part is not None for x in preorder(part)
            if isinstance(x, SizeVar)}  # fmt: skip
    unsaid = tuple(s for s in symbols if s in used and s not in said)
    hidden = (Var(label(f"size of {s.name}"), TensorStructInfo((s,), "bool")) for s in unsaid)
    main = dataclasses.replace(main, params=(*main.params, *hidden))
    # rules about sizes know that none is 0
    return main.with_attr("size_bounds", {s.name: (1, None) for s in symbols}), unsaid


def is_known(x: object) -> bool:
    """Whether a value's contents may be used at import."""
    if isinstance(x, Tuple):
        return all(map(is_known, x.fields))
    return x is None or isinstance(x, Constant) or bool(getattr(x, "is_known", False))


def _like(value: object) -> object:
    """An array of the dtype of a value, to see whether a library takes such."""
    infos = tensor_infos(value.struct_info) if isinstance(value, Expr) else ()
    dtype = infos[0].dtype if infos else getattr(value, "dtype", None)
    return np.zeros(0, dtype) if isinstance(dtype, str) else getattr(value, "value", None)
