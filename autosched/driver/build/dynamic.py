"""Building a model for a batch of any size: its kernels compute blocks of it, and are compiled once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.codegen.compile import patient_collector
from autosched.codegen.lower.flops import count_work
from autosched.codegen.native import native_for
from autosched.codegen.pool import close_spares
from autosched.driver.build.choose import Choice, choose_all
from autosched.driver.build.graph import call_counts, prepare
from autosched.driver.build.input_ranges import input_ranges
from autosched.driver.build.schedules import apply_schedules, compile_functions, prim_funcs, stored_functions, with_checks
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError, ShapeError, SpaceError
from autosched.ir import IRModule
from autosched.records import RecordReader
from autosched.relax.to_graph_form import to_graph_form
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.graph_form import SizeRange
from autosched.space import Config
from autosched.target import Target
from autosched.templates import Applied, apply_config, default_config, schedule_attrs
from autosched.templates.accuracy import with_accuracy
from autosched.templates.classify import find_contraction
from autosched.tir import PrimFunc
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Var as TirVar
from autosched.tir.function import shape_vars, specialize
from autosched.tir.separable import BLOCKS, NotSeparableError, Share, batch_size, part_extent, shares
from autosched.version import __version__

MOST_PARTS = 64  # in a block of a product: its rows meet a weight's panel while that is in the cache
BLOCK_BYTES = 1 << 20  # a block of larger parts has fewer of them
SMALL_BLOCKS = (4, 2, 1)  # what is left of a product's batch: few passes over its weights


def build_dynamic(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, Any],
    accuracy: str = "fast", checks: bool = False, bounds: tuple[int, int | None] = (1, None),
) -> DynamicExecutable:  # fmt: skip
    """Build a model whose inputs have one symbolic size, that of a batch.

    bounds  the least and the largest size
    Raises  NotSeparableError, which says why, where a kernel is not the same for every part of the batch, or shapes
            have several symbols.
    """
    symbols = symbolic_dims(module["main"])
    if len(symbols) != 1 or not target.is_cpu:
        names = ", ".join(v.name for v in symbols) or "nothing"
        raise NotSeparableError(f"inputs depend on {names}" if target.is_cpu else "kernels of blocks are for CPUs")
    try:
        with patient_collector():
            prepared = with_accuracy(_prepared(module, target, params, TunedLayouts(records, target, threads)), accuracy)
            made = _Maker(prepared, target, records, threads).build(symbols[0], SizeRange(symbols[0].name, *bounds), checks)
    finally:
        close_spares()
    made.manifest["input_ranges"] = input_ranges(module)
    return made


def _prepared(module: IRModule, target: Target, params: Mapping[str, Any], layouts: TunedLayouts) -> IRModule:
    """The module of kernels. Raises NotSeparableError where a pass wants sizes that are not known."""
    try:
        return prepare(module, target, params, layouts)
    except (ShapeError, InvalidValueError, InvalidTypeError) as error:
        raise NotSeparableError(error.message) from None


@dataclass(frozen=True)
class _Form:
    """One function over a batch: which buffers hold something of each part, and a function for each size of blocks."""

    func: PrimFunc
    size: TirVar
    shares: Mapping[Buffer, Share | None]

    @staticmethod
    def of(name: str, func: PrimFunc) -> _Form:
        """Raises NotSeparableError naming the kernel."""
        try:
            return _Form(func, batch_size(func), shares(func))
        except NotSeparableError as error:
            raise NotSeparableError(f"kernel '{name}': {error.message}") from None

    def block(self, n_parts: int) -> PrimFunc:
        """The function for a block."""
        return specialize(self.func, {self.size: n_parts})

    def marked(self, applied: Applied, config: Config, n_parts: int) -> PrimFunc:
        """A block's scheduled function, as it is compiled."""
        positions = [i for i, buffer in enumerate(self.func.buffers) if self.shares[buffer] is not None]
        return applied.func.with_attr({**schedule_attrs(config, applied), BLOCKS: (n_parts, *positions)})

    def largest(self, target: Target) -> int:
        """How many parts a block has at most: a whole number of register tiles in a product."""
        one = self.block(1)
        parts = [b for old, b in zip(self.func.buffers, one.buffers, strict=True) if self.shares[old] is not None]
        size_bytes = sum(4 * _elements(b) for b in parts)
        most = MOST_PARTS
        while most > 1 and most * size_bytes > BLOCK_BYTES:
            most //= 2
        rows = int(default_config(self.block(most), target).get("rows", 1)) if part_extent(self.shares) == 1 else 1
        return most // rows * rows if rows <= most else most

    def smaller(self, largest: int, config: Config) -> tuple[int, ...]:
        """The sizes of blocks for what the largest ones leave."""
        if find_contraction(self.block(1)) is None:
            return (1,) if largest > 1 else ()
        sizes = {int(config.get("rows", 1)) if part_extent(self.shares) == 1 else 1, *SMALL_BLOCKS}
        return tuple(sorted((n for n in sizes if n < largest), reverse=True))


def _elements(buffer: Buffer) -> int:
    count = 1
    for extent in buffer.const_shape():
        count *= extent
    return count


class _Maker:
    """One build."""

    def __init__(self, prepared: IRModule, target: Target, records: RecordReader | None, threads: int):
        self.prepared, self.target, self.records, self.threads = prepared, target, records, threads
        functions = prim_funcs(prepared)
        self.forms = {name: _Form.of(name, f) for name, f in functions.items() if shape_vars(f)}
        self.blocks = {name: [form.largest(target)] for name, form in self.forms.items()}

    def build(self, size: TirVar, bounds: SizeRange, checks: bool) -> DynamicExecutable:
        target = self.target
        largest = {name: form.block(self.blocks[name][0]) for name, form in self.forms.items()}
        module = self._with(self.prepared, largest)
        weights = call_counts(self.prepared)
        choices = choose_all(module, target, self.records, threads=self.threads, weights=weights, cache="cold")
        scheduled = apply_schedules(module, choices, target)
        functions: dict[str, PrimFunc] = {n: f for n, f in prim_funcs(scheduled).items() if n not in self.forms}
        called: dict[str, list[str]] = {}
        for name, form in self.forms.items():
            if name not in choices:
                raise NotSeparableError(f"kernel '{name}' has a schedule of its own")
            for key, func in self._kernels(name, form, choices[name], prim_funcs(scheduled)[name]):
                functions[key] = func
                called.setdefault(name, []).append(key)
        compiled = with_checks(IRModule(functions), checks)
        start = time.perf_counter()
        kernels = compile_functions(compiled, target)
        compile_s = time.perf_counter() - start
        alternatives = {name: [functions[key] for key in called.get(name, [name])] for name in prim_funcs(scheduled)}
        try:
            form_graph, constants, params = to_graph_form(scheduled, alternatives, size, bounds)
        except InvalidTypeError as error:
            raise NotSeparableError(error.message) from None
        manifest = {
            "autosched": __version__, "target": target.to_json(), "threads": self.threads,
            "lanes": target.lanes("float32"), "report": [self._row(choice) for choice in choices.values()],
            "functions": stored_functions(compiled),
        }  # fmt: skip
        made = DynamicExecutable(kernels, called, form_graph, constants, native_for(target), manifest, params)
        made.compile_s = compile_s
        return made

    def _with(self, module: IRModule, functions: Mapping[str, PrimFunc]) -> IRModule:
        return module.with_functions({gv: functions.get(gv.name, f) for gv, f in module.functions_items()})

    def _row(self, choice: Choice) -> dict[str, object]:
        blocks = self.blocks.get(choice.name)
        return {**choice.row, "flops": count_work(choice.task.func), **({"blocks": blocks} if blocks else {})}

    def _kernels(self, name: str, form: _Form, choice: Choice, main: PrimFunc) -> list[tuple[str, PrimFunc]]:
        """The functions for all sizes of blocks, the largest first, with names of their own."""
        applied = choice.applied or apply_config(choice.task.func, choice.config, self.target)
        for buffer, pack in zip(form.func.buffers, applied.packs, strict=True):
            if pack is not None and form.shares[buffer] is not None:
                raise NotSeparableError(f"kernel '{name}' wants '{buffer.name}' packed, which is part of the batch")
        parts = self.blocks[name][0]
        found = [(f"{name}_{parts}", form.marked(Applied(main, applied.packs, applied.trace), choice.config, parts))]
        for parts in form.smaller(parts, choice.config):
            config, small = self._small(name, form.block(parts), parts, choice.config, applied.packs)
            found.append((f"{name}_{parts}", form.marked(small, config, parts)))
            self.blocks[name].append(parts)
        return found

    def _small(
        self, name: str, func: PrimFunc, parts: int, largest: Config, packs: Sequence[Any]
    ) -> tuple[Config, Applied]:
        """A configuration for a smaller block, which reads the weights as the largest one wants them packed."""
        knobs = dict(largest.knobs)
        if "rows" in knobs:  # one tile: no chunk of them, and nothing to ask for ahead of it
            knobs |= {"rows": min(largest["rows"], parts)}
            knobs |= {name: value for name, value in (("chunk", 1), ("prefetch", False)) if name in knobs}
        default = default_config(func, self.target)
        own = [Config(largest.template, knobs)]
        for config in [*own, default] if any(packs) else [default]:
            try:
                applied = apply_config(func, config, self.target)
            except (ScheduleError, SpaceError):
                continue
            if tuple(applied.packs) == tuple(packs):
                return config, applied
        raise NotSeparableError(f"kernel '{name}': blocks of {parts} would take its weights packed in another way")
