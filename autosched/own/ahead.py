"""Compiles own functions ahead of time: object code that loads as a callable without Numba.

A function becomes a kernel of one phase and one piece. Its slots are described in `runtime.compiled_function`, which
calls it. The code is the one that Numba optimised for the tuned function; around it is a C function that takes the
slots apart. Memory that the function allocates is the C library's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from autosched.driver.settings import resolve_records, resolve_target
from autosched.errors import AutoschedError, SpaceError, UsageError
from autosched.own.compiler import COMPILER
from autosched.own.jit import divide
from autosched.own.signature import Signature
from autosched.own.space import OwnSpace, Usable, expected_gain, facts_of
from autosched.own.transfer import SentFunction
from autosched.own.ufunc import UfuncForm
from autosched.own.workload import values_of
from autosched.records import database_to_write, open_store
from autosched.records.places import is_there
from autosched.runtime.artifact import Contents, save_contents
from autosched.runtime.compiled_function import Described
from autosched.runtime.cpu.kernel import CpuKernel, Phase
from autosched.runtime.kernel import ArgSpec, pack_text
from autosched.runtime.loader import check_object
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.task import Task

if TYPE_CHECKING:
    from autosched.json_types import Json
    from autosched.task.workload import Workload

_DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64")
_TYPE = re.compile(r"\s*(\w+)\s*(\[[\s:,]*\])?\s*(,|$)")

# Numba's allocator, as far as arrays need it. A block begins with its count of owners, the function that destroys it
# with an argument, the address and size of its data, and an allocator of its own: numba/core/runtime/nrt.cpp.
_ALLOCATOR = """
declare ptr @malloc(i64)
declare void @free(ptr)
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %wide = zext i32 %align to i64
  %more = add i64 %wide, 48
  %whole = add i64 %size, %more
  %wraps = icmp ult i64 %whole, %size
  br i1 %wraps, label %none, label %take
take:
  %block = call ptr @malloc(i64 %whole)
  %fails = icmp eq ptr %block, null
  br i1 %fails, label %none, label %fill
fill:
  %begin = ptrtoint ptr %block to i64
  %least = add i64 %begin, 47
  %most = add i64 %least, %wide
  %mask = sub i64 0, %wide
  %place = and i64 %most, %mask
  %data = inttoptr i64 %place to ptr
  %dtor = getelementptr i64, ptr %block, i64 1
  %info = getelementptr i64, ptr %block, i64 2
  %where = getelementptr i64, ptr %block, i64 3
  %length = getelementptr i64, ptr %block, i64 4
  %other = getelementptr i64, ptr %block, i64 5
  store i64 1, ptr %block
  store ptr null, ptr %dtor
  store ptr null, ptr %info
  store ptr %data, ptr %where
  store i64 %size, ptr %length
  store ptr null, ptr %other
  ret ptr %block
none:
  ret ptr null
}
define ptr @NRT_MemInfo_alloc_safe_aligned(i64 %size, i32 %align) {
  %block = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align)
  ret ptr %block
}
define void @NRT_MemInfo_call_dtor(ptr %block) {
  call void @free(ptr %block)
  ret void
}
"""


class Buildable(Protocol):
    """What compiling ahead of time asks of an `AutotunedFunction`."""

    __name__: str
    space: OwnSpace
    signature: Signature
    compiler: str
    form: UfuncForm | None
    key: tuple[str, ...] | None

    @property
    def version(self) -> str: ...

    @property
    def database(self) -> Any: ...

    @property
    def sources(self) -> list[Any]: ...

    def space_for(self, values: tuple[object, ...]) -> ConfigSpace: ...

    def task_for(self, values: tuple[object, ...]) -> Task: ...

    def sent_here(self) -> SentFunction: ...


@dataclass(frozen=True, eq=False)
class Variant:
    """A configuration for calls with arguments like these.

    facts  of the arguments that the constraints read: the code is for calls of these alone
    """

    values: tuple[Any, ...]
    config: Config
    facts: Mapping[str, Json]


def save_function(
    function: Buildable,
    path: Path,
    calls: Iterable[tuple[object, ...]] = (),
    signatures: Sequence[str] = (),
    sources: Sequence[object] | None = None,
) -> tuple[Variant, ...]:
    """Write an artifact with a function's code for these calls, for types such as "float64[:], float64", and for what
    is recorded; gives what was compiled.

    sources  databases; None: the function's own, else the usual ones
    Raises   UsageError in one line for what cannot be compiled ahead of time.
    """
    check_function(function)
    variants = _variants(function, calls, signatures, sources)
    if not variants:
        hint = f'--signature "float64[:], float64", --inputs, or @{function.__name__}.example'
        raise UsageError(f"nothing says for which arguments {function.__name__} is to be compiled", hint=hint)
    target = resolve_target()
    kernels: dict[str, CpuKernel] = {}
    described = []
    made: dict[Hashable, str] = {}
    for variant in variants:
        same = (variant.config.key, _kinds(variant.values))
        if same not in made:
            kernel = compile_ahead(function, variant.config, variant.values, target)
            made[same] = kernel.phases[0].symbol
            kernels[made[same]] = kernel
        key = made[same]
        described.append(Described(key, tuple(map(np.shape, variant.values)), dict(variant.facts)))
    defaults = {n: v for n, v in function.signature.defaults.items() if isinstance(v, bool | int | float)}
    manifest = {
        "function": function.space.name.removeprefix("own/"),
        "defaults": defaults,
        "decides": None if function.key is None else list(function.key),
        "variants": [one.to_manifest() for one in described],
    }
    save_contents(Contents("function", kernels, b"", {}, (), {"entry": "", "manifest": manifest}), path)
    return variants


def check_function(function: Buildable) -> None:
    """Raises UsageError for a function that cannot be compiled ahead of time whatever its arguments are."""
    name = function.__name__
    if function.form is not None:
        raise UsageError(f"{name} is a ufunc, whose loop is NumPy's", hint="build one of numba.njit")
    if function.compiler != COMPILER:
        raise UsageError(f"{name} is a CUDA kernel", hint="functions for CPUs are compiled ahead of time")
    if function.signature.rest:
        raise UsageError(f"{name} takes '*{function.signature.rest}': its arguments have no fixed number")


def _variants(
    function: Buildable, calls: Iterable[tuple[object, ...]], signatures: Sequence[str], sources: Any
) -> tuple[Variant, ...]:
    named = [source for source in sources or () if is_there(source)]
    reader = resolve_records(named or function.sources or None, predict=expected_gain)
    found: dict[Hashable, Variant] = {}
    wanted = {_kinds(values_of_types(function, text)) for text in signatures}

    def add(values: tuple[object, ...]) -> None:
        space = function.space_for(values)
        task = function.task_for(values)
        config = reader.best(task, Usable(space, {space.name: function.version})).config
        known = facts_of(function.signature.named(values))
        facts = {name: known[name] for name in sorted(function.space.reads)}
        variant = Variant(values, config or function.space.default_for(space), facts)
        found.setdefault((task.key, str(facts)), variant)

    for values in calls:
        add(values)
    for workload in _recorded(function, named):
        recorded = values_of(workload, function.signature.arguments)
        try:
            if recorded is not None and (not wanted or _kinds(recorded) in wanted):
                add(recorded)
        except SpaceError:  # its constraints read numbers that a record does not hold
            continue
    covered = {_kinds(variant.values) for variant in found.values()}
    for text in signatures:
        values = values_of_types(function, text)
        if _kinds(values) in covered:
            continue
        if function.space.reads:
            names = ", ".join(sorted(function.space.reads))
            raise UsageError(f"constraints of {function.__name__} read {names}", hint="give arguments by --inputs")
        add(values)
    return tuple(found.values())


def _recorded(function: Buildable, named: Sequence[object]) -> list[Workload]:
    """The workloads that this version of the function has records of, the latest last."""
    from autosched.records import RecordFilter

    workloads: dict[str, Workload] = {}
    for source in named or [database_to_write(function.database).where]:
        if isinstance(source, str | Path) and Path(source).exists():
            with open_store(source, write=False) as store:
                for record in store.records(RecordFilter(op=function.space.name)):
                    if record.is_winner and record.versions.get("template") == function.version:
                        workloads[record.workload.key] = record.workload
    return list(workloads.values())


def _kinds(values: Sequence[Any]) -> tuple[object, ...]:
    return tuple((str(np.asarray(value).dtype), np.ndim(value), isinstance(value, np.ndarray)) for value in values)


def values_of_types(function: Buildable, text: str) -> tuple[object, ...]:
    """Arguments of the types that a text such as "float64[:,:], int64" names; arrays are empty. Raises UsageError."""
    hint = 'write "float64[:,:], int64": ' + ", ".join(_DTYPES)
    body = re.sub(r"^\s*(void|none)?\s*\((.*)\)\s*$", r"\2", text)
    values: list[object] = []
    at = 0
    while at < len(body):
        found = _TYPE.match(body, at)
        if found is None or found[1] not in _DTYPES:
            raise UsageError(f"'{body[at:].strip()}' is no list of types", hint=hint)
        dtype = np.dtype(found[1])
        values.append(dtype.type(1) if found[2] is None else np.empty((0,) * (found[2].count(",") + 1), dtype))
        at = found.end()
    if len(values) != len(function.signature.arguments):
        names = ", ".join(function.signature.arguments)
        raise UsageError(f"'{text}' names {len(values)} types", hint=f"{function.__name__} takes {names}")
    return tuple(values)


def compile_ahead(function: Buildable, config: Config, values: tuple[object, ...], target: Target) -> CpuKernel:
    """The object code of a configuration for arguments of these types. Raises UsageError for what cannot be."""
    import numba

    name, names = function.__name__, function.signature.arguments
    specs = [_spec(arg, value) for arg, value in zip(names, values, strict=True)]
    sent = function.sent_here()
    parts = divide(config.knobs, sent.knobs, sent.options)
    if parts.options.get("parallel"):
        raise UsageError(f"{name} is compiled with parallel=True, which needs Numba's threads", hint="parallel=False")
    types = tuple(numba.typeof(value) for value in values)
    result = _compiled(sent, config, types)
    returned = result.signature.return_type
    if not isinstance(returned, numba.types.NoneType):
        if str(returned) not in _DTYPES:
            hint = "let it fill an array that it is given, or return one number"
            raise UsageError(f"{name} returns {returned}, which is no number", hint=hint)
        specs.append(ArgSpec("return", "output", str(returned), ()))
    text = result.library.get_llvm_str()
    about = json.dumps([text, [str(spec) for spec in specs], [spec.role for spec in specs], str(config)])
    symbol = f"autosched_own_{hashlib.sha256(about.encode()).hexdigest()[:24]}"
    code, llvm_text = _object_code(text, _entry(result, symbol, len(specs)), target)
    try:
        check_object(code, name)
    except AutoschedError as error:
        needed = error.message.rpartition(": ")[2]
        hint = "random numbers, printing, linear algebra and containers of Numba are part of its runtime"
        raise UsageError(f"{name} needs what only Numba has: {needed}", hint=hint) from None
    return CpuKernel(
        name=name,
        args=tuple(specs),
        source=sent.specialised(config)[1],
        config=json.dumps({"template": config.template, "knobs": dict(config.knobs)}, sort_keys=True),
        target=target.to_json(),
        llvm_packed=pack_text(llvm_text),
        phases=(Phase(symbol, 1),),
        object_code=code,
        features=tuple(sorted(target.features)),
    )


def _spec(name: str, value: Any) -> ArgSpec:
    """What the artifact says of an argument; its code takes arrays of all sizes."""
    is_array = isinstance(value, np.ndarray)
    dtype = str(np.asarray(value).dtype) if isinstance(value, bool | int | float | np.generic) or is_array else ""
    if dtype not in _DTYPES:
        kind = f"an array of {value.dtype}" if is_array else f"a {type(value).__name__}"
        raise UsageError(
            f"argument '{name}' is {kind}", hint="artifacts take arrays and numbers of " + ", ".join(_DTYPES)
        )
    if is_array and (value.ndim == 0 or not value.flags.c_contiguous or not value.flags.aligned):
        hint = "artifacts take arrays of C layout: numpy.ascontiguousarray"
        raise UsageError(
            f"argument '{name}' has no C layout" if value.ndim else f"'{name}' has no dimension", hint=hint
        )
    writes = is_array and value.flags.writeable
    return ArgSpec(name, "output" if writes else "input", dtype, (0,) * np.ndim(value))


def _compiled(sent: SentFunction, config: Config, types: tuple[object, ...]) -> Any:
    """Numba's result, without the parts that need Python."""
    import numba

    parts = divide(config.knobs, sent.knobs, sent.options)
    func, _ = sent.specialised(config)
    options = {**parts.options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(**options)(func)
    try:
        dispatcher.compile(types)
    except numba.core.errors.NumbaError as error:
        text = " ".join(str(error).split())
        raise UsageError(
            f"Numba does not compile {sent.name} for ({', '.join(map(str, types))}): {text[:300]}"
        ) from None
    (result,) = dispatcher.overloads.values()
    if result.lifted or result.library.has_dynamic_globals:
        raise UsageError(f"{sent.name} holds addresses of this process", hint="give it arrays as arguments")
    return result


def _entry(result: Any, symbol: str, n_slots: int) -> str:
    """LLVM text of the C function that calls it with what the slots hold; see `runtime.compiled_function`."""
    from llvmlite import ir
    from numba import types
    from numba.np.arrayobj import make_array, populate_array

    context = result.target_context
    module = ir.Module(symbol)
    word, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer.as_pointer(), word, word, word]), symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))

    def slot(number: int, kind: ir.Type) -> ir.Value:
        place = builder.gep(entry.args[0], [ir.Constant(word, number)])
        return builder.bitcast(builder.load(place), kind.as_pointer())

    def extent(number: int) -> ir.Value:
        return builder.load(builder.gep(slot(n_slots + 1, word), [ir.Constant(word, number)]))

    arguments, n_extents = [], 0
    for number, kind in enumerate(result.signature.args):
        if not isinstance(kind, types.Array):
            arguments.append(context.unpack_value(builder, kind, slot(number, context.get_data_type(kind))))
            continue
        array = make_array(kind)(context, builder)
        shape = [extent(n_extents + axis) for axis in range(kind.ndim)]
        n_extents += kind.ndim
        item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        strides = [ir.Constant(word, item)]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = slot(number, context.get_data_type(kind.dtype))
        populate_array(array, data, shape, strides, ir.Constant(word, item), None)
        arguments.append(array._getvalue())
    inner = context.declare_function(module, result.fndesc)
    returned = result.signature.return_type
    status, value = context.call_conv.call_function(builder, inner, returned, result.signature.args, arguments)
    report = slot(n_slots, word)
    none = ir.Constant(status.code.type, 0)
    builder.store(builder.zext(builder.select(status.is_error, status.code, none), word), report)
    error = builder.ptrtoint(status.excinfoptr, word)
    builder.store(error, builder.gep(report, [ir.Constant(word, 1)]))
    with builder.if_then(status.is_ok):
        if not isinstance(returned, types.NoneType):
            last = len(result.signature.args)
            context.pack_value(builder, returned, value, slot(last, context.get_data_type(returned)))
    builder.ret_void()
    return str(module)


def _object_code(text: str, entry: str, target: Target) -> tuple[bytes, str]:
    """(the object code, its LLVM text) of a function, its entry and what they need of the allocator."""
    import llvmlite.binding as llvm

    from autosched.runtime.cpu.machine import target_machine

    machine = target_machine(target.triple, target.mcpu, target.llvm_features)
    whole = llvm.parse_assembly(re.sub(r"= common (?=[\w ]*global ptr null)", "= internal ", text))
    for part in (entry, _ALLOCATOR if "@NRT_MemInfo_" in text else ""):
        if part:
            other = llvm.parse_assembly(part)
            other.triple, other.data_layout = whole.triple, whole.data_layout
            whole.link_in(other)
    whole.verify()
    return machine.emit_object(whole), str(whole)
