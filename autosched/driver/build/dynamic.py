"""Building a model for all its sizes: kernels that compute blocks of a batch, or whose sizes come with the call.

A kernel that computes each part of a batch by itself (or each token of each sequence) is compiled for blocks of parts,
as fast as static ones. Others, such as attention over a sequence, are compiled over symbols; on GPUs all are, whose
number of blocks of threads comes with the launch.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from autosched.codegen.backends import codegen_backend
from autosched.codegen.compile import patient_collector
from autosched.codegen.lower.flops import count_work, symbolic_work
from autosched.codegen.native import native_for
from autosched.codegen.pool import close_spares
from autosched.driver.build.choose import Choice, choose_all, is_scheduled
from autosched.driver.build.graph import call_counts, prepare
from autosched.driver.build.input_ranges import input_ranges
from autosched.driver.build.schedules import (
    apply_schedules,
    compile_functions,
    prim_funcs,
    stored_functions,
    with_checks,
)
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.errors import CodegenError, InvalidTypeError, InvalidValueError, ScheduleError, ShapeError, SpaceError
from autosched.ir import IRModule
from autosched.ir.node import FrozenDict
from autosched.records import RecordReader, Trust
from autosched.records.found import miss
from autosched.relax.expr import Call, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.op.registry import MOST
from autosched.relax.size_limits import size_limits
from autosched.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    tensor_infos,
    to_dim,
)  # fmt: skip
from autosched.relax.to_graph_form import to_graph_form
from autosched.relax.transform.bind_symbolic import BindSymbolicVars, symbolic_dims
from autosched.relax.transform.name_extents import name_kernel_extents
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.graph_form import SizeLimit, SizeRange
from autosched.runtime.memory import gathered
from autosched.runtime.size_expr import Size, solved
from autosched.space import Config
from autosched.target import Target
from autosched.templates import Applied, apply_config, default_config, schedule_attrs, schedule_sizes, space_for
from autosched.templates.accuracy import with_accuracy
from autosched.templates.classify import find_contraction
from autosched.tir import PrimFunc
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, const, const_int, floordiv, mul
from autosched.tir.expr import Var as TirVar
from autosched.tir.function import size_vars, specialize
from autosched.tir.functor import free_vars, substitute
from autosched.tir.merge_parts import leading, merged_parts
from autosched.tir.separable import BLOCKS, PIECES_FIRST, NotSeparableError, Share, batch_size, part_extent, shares
from autosched.tir.simplify import Analyzer
from autosched.tir.size_expr import MAY_BE_EMPTY, SIZES, WORK, call_sizes, named_sizes, to_size, with_named_sizes
from autosched.version import __version__

MOST_PARTS = 64  # in a block of a product: its rows meet a weight's panel while that is in the cache
BLOCK_BYTES = 1 << 20  # a block of larger parts has fewer of them
SMALL_BLOCKS = range(1, 15)  # of what is left of a product's batch, beside one by its tile's rows
# Rows whose default tile all blocks of a product have: 14 rows of two vectors, on CPUs with 32 registers, hold each
# small block whole. The default of 64 rows, 8 of three vectors, is as fast for these and leaves 10 to 14 rows to two
# tiles, which take 1.15 to 1.2 times as long (an MLP on Zen 5).
TALL_BLOCK = 28


def build_dynamic(
    module: IRModule, target: Target, records: RecordReader | None, threads: int, params: Mapping[str, object],
    accuracy: str = "fast", checks: bool = False, bounds: Mapping[str, tuple[int, int | None]] | None = None,
) -> DynamicExecutable:  # fmt: skip
    """Build a model whose inputs have symbolic sizes.

    bounds  the least and the largest size, by name
    Raises  NotSeparableError, which says why, where a kernel has to be compiled for each size; ShapeError where the
            operators take none of the sizes in bounds.
    """
    symbols = symbolic_dims(module["main"])
    names = [v.name for v in symbols]
    if not symbols:
        raise NotSeparableError("inputs depend on nothing")
    if len(set(names)) < len(names):
        raise NotSeparableError(f"two sizes have the name '{next(n for n in names if names.count(n) > 1)}'")
    _refuse_unsaid(module, symbols)
    empty = module["main"].attrs.get(MAY_BE_EMPTY, ())
    within, together = size_limits(module["main"], {**{name: (0, None) for name in empty}, **(bounds or {})})
    ranges = {name: within.get(name, (1, None)) for name in names}
    settled = {name: low for name, (low, high) in ranges.items() if low == high}
    if 0 < len(settled) < len(names):  # no kernel need be for more than the one value
        module = BindSymbolicVars(settled, "main")(module)
        return build_dynamic(module, target, records, threads, params, accuracy, checks, bounds)
    try:
        limits = [SizeLimit(to_size(x.size), x.low, x.high, x.what) for x in together]
    except InvalidValueError as error:
        raise NotSeparableError(error.message) from None
    sizes = [SizeRange(name, *ranges[name]) for name in names]
    try:
        with patient_collector():
            prepared = with_accuracy(
                _prepared(module, target, params, TunedLayouts(records, target, threads)), accuracy
            )
            maker = _Maker(prepared, target, records, threads)
            made = maker.build([maker.with_least(s) if s.name in empty else s for s in sizes], limits, checks)
    finally:
        close_spares()
    made.manifest["input_ranges"] = input_ranges(module)
    return made


def _refuse_unsaid(module: IRModule, symbols: Sequence[TirVar]) -> None:
    """Raises NotSeparableError naming a symbol that the shapes of inputs do not say."""
    said = said_sizes(module["main"].params)
    if missing := [v.name for v in symbols if v.name not in said]:
        raise NotSeparableError(f"the size '{missing[0]}' does not follow from the shapes of inputs")


def said_sizes(params: Sequence[Var]) -> Set[str]:
    """The names of the symbols that follow from the sizes of parameters."""
    said: dict[str, int] = {}
    sizes = [size for p in params for size in _sizes_of(p.struct_info)]
    while found := next((one for size in sizes if (one := solved(size, 1, said)) is not None), None):
        said[found[0]] = 1
    return said.keys()


def _sizes_of(info: StructInfo | None) -> list[Size]:
    match info:
        case TupleStructInfo():
            return [size for field in info.fields for size in _sizes_of(field)]
        case TensorStructInfo() if info.shape is not None:
            return [to_size(d) for d in info.dims]
        case ShapeStructInfo() if info.values is not None:
            return [to_size(d) for d in info.values]
        case PrimStructInfo() if info.value is not None:
            return [to_size(info.value)]
    return []


def _prepared(module: IRModule, target: Target, params: Mapping[str, object], layouts: TunedLayouts) -> IRModule:
    """The module of kernels. Raises NotSeparableError where a pass wants sizes that are not known."""
    try:
        return name_kernel_extents(prepare(module, target, params, layouts))
    except (ShapeError, InvalidValueError, InvalidTypeError) as error:
        raise NotSeparableError(error.message) from None


def _sized(name: str, func: PrimFunc, target: Target) -> Applied:
    """A function over symbols, scheduled, or as its author did. Raises NotSeparableError where that cannot be."""
    try:
        if is_scheduled(func, recurrences=False):
            work = json.dumps(to_size(symbolic_work(func)))
            return Applied(with_named_sizes(func).with_attr(WORK, work), (None,) * len(func.params))
        config = Config("sized", {})
        applied = schedule_sizes(func, target)
        return replace(applied, func=applied.func.with_attr(schedule_attrs(config, applied)))
    except (ScheduleError, InvalidValueError) as error:
        raise NotSeparableError(f"kernel '{name}': {error.message}") from None


@dataclass(frozen=True)
class _Form:
    """One function over a batch: which buffers hold something of each part, and a function for each size of blocks.

    original  the function as it is called, whose leading dimensions `func` may have as one
    """

    original: PrimFunc
    func: PrimFunc
    size: TirVar
    shares: Mapping[Buffer, Share | None]

    @staticmethod
    def of(name: str, func: PrimFunc) -> _Form:
        """Raises NotSeparableError naming the kernel."""
        is_product, merged = find_contraction(func) is not None, func
        try:
            try:
                found = shares(func)
            except NotSeparableError:
                if len(size_vars(func)) == 1 and not is_product:
                    raise
                merged = merged_parts(func, expressions=is_product)
                found = shares(merged)
            return _Form(func, merged, batch_size(merged), found)
        except NotSeparableError as error:
            raise NotSeparableError(f"kernel '{name}': {error.message}") from None

    def count(self, shapes: Sequence[Sequence[PrimExpr | int]]) -> PrimExpr:
        """How many parts there are in a call with arguments of these shapes."""
        for buffer, shape in zip(self.original.buffers, shapes, strict=True):
            if (found := leading(buffer.shape)) is not None:
                parts: PrimExpr = const(1, "int64")
                for extent in shape[: found[0]]:
                    parts = mul(parts, extent)
                return Analyzer().simplify(floordiv(parts, found[1]))
        raise NotSeparableError("no argument says how many parts there are")

    def block(self, n_parts: int) -> PrimFunc:
        """The function for a block."""
        return specialize(self.func, {self.size: n_parts})

    def marked(self, applied: Applied, config: Config, n_parts: int, is_largest: bool) -> PrimFunc:
        """A block's scheduled function, as it is compiled: small ones take turns at each panel of a packed weight."""
        positions = [i for i, buffer in enumerate(self.func.buffers) if self.shares[buffer] is not None]
        turns = {PIECES_FIRST: True} if any(applied.packs) and not is_largest else {}
        return applied.func.with_attr({**schedule_attrs(config, applied), BLOCKS: (n_parts, *positions), **turns})

    def largest(self, target: Target) -> int:
        """How many parts a block has at most: a whole number of register tiles in a product."""
        one = self.block(1)
        parts = [b for old, b in zip(self.func.buffers, one.buffers, strict=True) if self.shares[old] is not None]
        size_bytes = sum(4 * _elements(b) for b in parts)
        most = MOST_PARTS
        while most > 1 and most * size_bytes > BLOCK_BYTES:
            most //= 2
        tile = self.tall(target, most) or default_config(self.block(most), target)
        rows = int(tile.get("rows", 1)) if part_extent(self.shares) == 1 else 1
        return most // rows * rows if rows <= most else most

    def tall(self, target: Target, most: int) -> Config | None:
        """The tile of a product's blocks of `most` parts at most; None for what keeps the default of the largest.

        That is what has no rows of its own for a part, and what goes through tile registers.
        """
        if find_contraction(self.block(1)) is None or part_extent(self.shares) != 1:
            return None
        own = default_config(self.block(most), target)
        config = default_config(self.block(min(TALL_BLOCK, most)), target)
        if (
            not own.knobs.keys() >= {"rows", "chunk", "order"}
            or own.get("tiles", False)
            or config.template != own.template
        ):
            return None
        tiles = 1 << max(most // int(config["rows"]), 1).bit_length() - 1
        return Config(config.template, {**config.knobs, "chunk": tiles if config["order"] == "nm" else 1})

    def packed_alike(self, target: Target, most: int) -> Config | None:
        """A configuration of blocks of `most` parts that read weights packed as those of one part do.

        None where both have the same template, or there is no such configuration.
        """
        one, large = self.block(1), self.block(most)
        few, own = default_config(one, target), default_config(large, target)
        if few.template == own.template:
            return None
        packs = apply_config(one, few, target).packs
        return _packed_as(large, own, packs, target) if any(packs) else None

    def smaller(self, largest: int, config: Config) -> tuple[int, ...]:
        """The sizes of blocks for what the largest ones leave."""
        if find_contraction(self.block(1)) is None:
            return (1,) if largest > 1 else ()
        rows = int(config.get("rows", 1)) if part_extent(self.shares) == 1 else 1
        return tuple(sorted((n for n in {rows, *SMALL_BLOCKS} if n < largest), reverse=True))


def over_blocks(choice: Choice, default: Config | None) -> Choice:
    """What is chosen for a kernel's largest block, where blocks of all sizes together have a default of their own."""
    if default is None or (not choice.is_default and default == default_config(choice.task.func, choice.task.target)):
        return choice
    found = choice.found
    if not choice.is_default:
        found = miss(
            found.origin, f"it was compared with a kernel of one size: over open sizes the default is {default}"
        )
    threads = choice.threads if choice.is_default else None
    return replace(choice, config=default, applied=None, found=found, is_default=True, threads=threads)


def _packed_as(func: PrimFunc, config: Config, packs: Sequence[object], target: Target) -> Config | None:
    """A configuration, or one with other tiles, for which weights are packed in one way; None where there is none."""
    if not config.knobs.keys() >= {"rows", "vectors"}:
        return None
    space = space_for(func, target)
    for vectors in dict.fromkeys((config["vectors"], 4, 2, 1)):
        tried = (Config(config.template, {**config.knobs, "vectors": vectors, "rows": n}) for n in range(16, 0, -1))
        found = next((c for c in (config, *tried) if c["vectors"] == vectors and c in space), None)
        if found is not None and tuple(apply_config(func, found, target).packs) == tuple(packs):
            return found
    return None


def _at_zero(dims: Sequence[PrimExpr | int], symbol: TirVar) -> list[PrimExpr | int]:
    """Sizes as they are where one of the symbols in them is 0."""
    values = {symbol: const(0, symbol.dtype)}
    found = [d if isinstance(d, int) else Analyzer().simplify(substitute(d, values)) for d in dims]
    return [d if (known := const_int(d)) is None else known for d in found]


def _elements(buffer: Buffer) -> int:
    count = 1
    for extent in buffer.const_shape():
        count *= extent
    return count


class _Maker:
    """One build.

    forms    functions that are compiled for blocks
    sized    functions whose sizes come with the call, with their schedules, and why they are no forms
    counted  those of them, on devices, that are given how many parts there are: images, tokens of all sequences
    """

    def __init__(self, prepared: IRModule, target: Target, records: RecordReader | None, threads: int):
        self.prepared, self.target, self.records, self.threads = prepared, target, records, threads
        self.functions = {name: f for name, f in prim_funcs(prepared).items() if size_vars(f)}
        self.forms: dict[str, _Form] = {}
        self.sized: dict[str, Applied] = {}
        self.reasons: dict[str, str] = {}
        self.counted: dict[str, _Form] = {}
        self.empty: set[str] = set()  # names of sizes that may be 0
        for name, func in self.functions.items():
            if not target.is_cpu:
                self.sized[name], self.reasons[name] = self._on_device(name, func), "the grid is an expression of them"
                continue
            try:
                if is_scheduled(func):
                    raise NotSeparableError("it has a schedule of its own")
                self.forms[name] = _Form.of(name, func)
            except NotSeparableError as error:
                self.sized[name], self.reasons[name] = _sized(name, func, target), error.message
        self.blocks = {name: [form.largest(target)] for name, form in self.forms.items()}

    def _on_device(self, name: str, func: PrimFunc) -> Applied:
        """A function over symbols for a device whose number of blocks comes with a launch."""
        if is_scheduled(func, recurrences=False):
            return _sized(name, func, self.target)
        with contextlib.suppress(NotSeparableError):
            self.counted[name] = _Form.of(name, func)
            func = self.counted[name].func
        return _sized(name, func, self.target)

    def numbers_of(self, name: str, shapes: Sequence[Sequence[PrimExpr | int]]) -> tuple[PrimExpr, ...]:
        """What a kernel is given in a call with arguments of these shapes."""
        form = self.forms.get(name) or self.counted.get(name)
        if form is not None:
            return (form.count(shapes),)
        if name not in self.sized:
            return ()
        given = self._given(name)
        sizes = dict(zip((v.name for v in size_vars(given)), call_sizes(given, shapes), strict=True))
        names = self.sized[name].func.attrs.get(SIZES, ())  # scheduling may use fewer
        return tuple(sizes[name] for name in names)

    def _given(self, name: str) -> PrimFunc:
        """A function over symbols with its arguments as they are given: some are packed, some have more symbols."""
        func, applied = self.functions[name], self.sized[name]
        given = {
            p: own
            for p, own, pack in zip(func.params, applied.func.buffers, applied.packs, strict=True)
            if pack is not None or own.ndim == func.buffer_map[p].ndim
        }
        return replace(func, buffer_map=FrozenDict({**func.buffer_map, **given}))

    def with_least(self, size: SizeRange) -> SizeRange:
        """A size that may be 0, if all kernels' code is for that; else it is 1 at least."""
        if size.low > 0:
            return size
        found, backend = self._empty(size.name), codegen_backend(self.target.backend)
        if not all(backend.may_be_empty(self.sized[name].func, v) for name, v in found):
            return replace(size, low=1)
        for name, v in found:
            func = self.sized[name].func
            names = tuple(dict.fromkeys((*func.attrs.get(MAY_BE_EMPTY, ()), v.name)))
            self.sized[name] = replace(self.sized[name], func=func.with_attr(MAY_BE_EMPTY, names))
        self.empty.add(size.name)
        return size

    def _empty(self, name: str) -> set[tuple[str, TirVar]]:
        """The kernels over symbols, with these symbols, that may be 0 where a size of the model is."""
        symbol = next(v for v in symbolic_dims(self.prepared["main"]) if v.name == name)
        found = set()
        for binding in self.prepared["main"].bindings():
            call = binding.value
            if not is_call_tir(call):
                continue
            assert isinstance(call, Call), "that was asked"
            kernel, outputs = tir_target(call).name, [_at_zero(i.dims, symbol) for i in tensor_infos(call.struct_info)]
            if kernel not in self.sized or all(0 in shape for shape in outputs):
                continue
            inputs = [i.dims for x in tir_inputs(call) for i in tensor_infos(x.struct_info)]
            numbers = self.numbers_of(kernel, [*inputs, *(i.dims for i in tensor_infos(call.struct_info))])
            for v, number in zip(named_sizes(self.sized[kernel].func), _at_zero(numbers, symbol), strict=True):
                known = Analyzer({x: (1, MOST) for x in free_vars(to_dim(number))})
                low = known.bound(to_dim(number))[0]
                if low is None or low < 1:
                    found.add((kernel, v))
        return found

    def build(self, sizes: Sequence[SizeRange], limits: Sequence[SizeLimit], checks: bool) -> DynamicExecutable:
        target = self.target
        empty = next((size.name for size in sizes if size.low < 1 and size.name not in self.empty), None)
        if self.sized and empty is not None:
            raise NotSeparableError(f"'{empty}' may be 0, and kernels over symbols have one element at least")
        largest = {name: form.block(self.blocks[name][0]) for name, form in self.forms.items()}
        module = self._with(self.prepared, {**largest, **{name: a.func for name, a in self.sized.items()}})
        weights = call_counts(self.prepared)
        choices = choose_all(module, target, self.records, threads=self.threads, weights=weights, cache="cold")
        for name, form in self.forms.items():
            most = self.blocks[name][0]
            if choices[name].is_default or choices[name].found.record is not None:
                choices[name] = over_blocks(choices[name], form.tall(target, most) or form.packed_alike(target, most))
        packs = {name: applied.packs for name, applied in self.sized.items()}
        scheduled = apply_schedules(module, choices, target, packs)
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
        try:
            kernels = compile_functions(compiled, target)
        except (CodegenError, InvalidValueError) as error:
            if not self.sized:
                raise
            raise NotSeparableError(f"there is no code for all sizes: {error.message}") from None
        compile_s = time.perf_counter() - start
        alternatives = {name: [functions[key] for key in called.get(name, [name])] for name in prim_funcs(scheduled)}
        try:
            form_graph, constants, params = to_graph_form(scheduled, alternatives, sizes, self.numbers_of, limits)
        except ShapeError:  # no size fits
            raise
        except (InvalidTypeError, InvalidValueError) as error:
            raise NotSeparableError(error.message) from None
        rows = [self._row(choice) for choice in choices.values()]
        manifest = {
            "autosched": __version__, "target": target.to_json(), "threads": self.threads,
            **({"lanes": target.lanes("float32")} if target.is_cpu else {}),
            "report": [*rows, *map(self._sized_row, self.sized)],
            "functions": stored_functions(compiled),
        }  # fmt: skip
        constants = gathered(constants)
        made = DynamicExecutable(kernels, called, form_graph, constants, native_for(target), manifest, params)
        made.compile_s = compile_s
        return made

    def _sized_row(self, name: str) -> dict[str, object]:
        """The line of the build report for a kernel whose sizes come with the call."""
        func = self.functions[name]
        shapes = " ".join(f"[{', '.join(map(str, b.shape))}]" for b in func.buffers)
        dtypes = " ".join(dict.fromkeys(b.dtype for b in func.buffers))
        return {
            "kernel": name, "workload": f"{name} {shapes}", "types": dtypes, "template": "sized", "config": "",
            "origin": "template default", "trust": str(Trust.DEFAULT), "expected_s": None, "flops": 0,
            "reason": f"sizes come with the call: {self.reasons[name]}",
        }  # fmt: skip

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
        found = [
            (f"{name}_{parts}", form.marked(Applied(main, applied.packs, applied.trace), choice.config, parts, True))
        ]
        for fewer in form.smaller(parts, choice.config):
            config, small = self._small(name, form.block(fewer), fewer, choice.config, applied.packs)
            found.append((f"{name}_{fewer}", form.marked(small, config, fewer, False)))
            self.blocks[name].append(fewer)
        return found

    def _small(
        self, name: str, func: PrimFunc, parts: int, largest: Config, packs: Sequence[object]
    ) -> tuple[Config, Applied]:
        """A configuration for a smaller block, which reads the weights as the largest one wants them packed."""
        default = default_config(func, self.target)
        own: list[Config] = []
        if (
            default.template == largest.template and "rows" in largest.knobs
        ):  # one tile where registers hold it, else some of equal rows, which share a panel
            space = space_for(func, self.target)
            for tiles in (1, -(-parts // int(largest["rows"]))):
                few = {"rows": -(-parts // tiles), "chunk": tiles if largest.get("order", "") == "nm" else 1}
                few["prefetch"] = default.get("prefetch", False)
                knobs = {**largest.knobs, **{name: value for name, value in few.items() if name in largest.knobs}}
                own.append(Config(largest.template, knobs))
            own = [config for config in own if config in space] or own[-1:]
        elif default.template == largest.template:
            own.append(largest)
        elif any(packs) and (alike := _packed_as(func, default, packs, self.target)) is not None:
            own.append(alike)
        for config in [*own, default, largest] if any(packs) else [default]:
            try:
                applied = apply_config(func, config, self.target)
            except (ScheduleError, SpaceError):
                continue
            if tuple(applied.packs) == tuple(packs):
                return config, applied
        raise NotSeparableError(f"kernel '{name}': blocks of {parts} would take its weights packed in another way")
