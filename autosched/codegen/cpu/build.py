"""`compile_func`: a scheduled PrimFunc to a kernel for a CPU."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.codegen import cache
from autosched.codegen.backends import GENERATOR
from autosched.codegen.compiled import code_digest, code_name
from autosched.codegen.cpu.checks import Checks
from autosched.codegen.cpu.compiled import CompiledCpuKernel
from autosched.codegen.cpu.join import join_objects
from autosched.codegen.cpu.literals import open_literals, table_text, with_literals
from autosched.codegen.cpu.order import order_unrolled
from autosched.codegen.cpu.source import Bytes, Scratch, Writer, align_bytes, exact_bytes
from autosched.codegen.cpu.types import Isa
from autosched.codegen.lower import lower_func, split_phases
from autosched.codegen.lower.asserts import lower_asserts
from autosched.codegen.lower.flops import count_flops
from autosched.codegen.lower.half import lower_halves
from autosched.codegen.lower.phases import LoweredPhase
from autosched.codegen.lower.prove import leaves_empty_alone
from autosched.errors import AutoschedError, CodegenError
from autosched.ir.node import FrozenDict
from autosched.runtime.cpu.kernel import CpuKernel, Phase, Sized, as_cpu
from autosched.runtime.kernel import ArgSpec, pack_text
from autosched.runtime.loader import check_object
from autosched.runtime.size_expr import read_size
from autosched.target import Target
from autosched.tir.buffer import Buffer
from autosched.tir.checked_index import CHECKED
from autosched.tir.expr import Var, as_int, const_int
from autosched.tir.function import PrimFunc, specialize
from autosched.tir.functor import statements
from autosched.tir.in_place import overwritable
from autosched.tir.separable import BLOCKS, PIECES_FIRST
from autosched.tir.size_expr import MAY_BE_EMPTY, WORK, named_sizes, to_shape, to_size
from autosched.tir.stmt import BufferStore


def outputs_of(func: PrimFunc, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Those of the lowered function's arguments that it writes."""
    return [b for b, arg in zip(buffers, arg_specs(func), strict=True) if arg.role == "output"]


def may_be_empty(func: PrimFunc, size: Var) -> bool:
    """See `CodegenBackend.may_be_empty`."""
    try:
        lowered = lower_func(specialize(func, {size: 0}))
        phases, outputs = split_phases(lowered)[0], outputs_of(func, lowered.buffers)
        return leaves_empty_alone(phases, outputs, lowered.buffers, checks_leave=True)
    except AutoschedError:
        return False


def compile_uncached(func: PrimFunc, target: Target, name: str, trace: str, config: str) -> CompiledCpuKernel:
    """Compile without looking into the cache for the kernel, but for one that differs in its literals alone.

    Raises CodegenError for what no CPU code exists for.
    """
    opened = open_literals(func, Isa.of(target))
    if opened is None:
        return _compile(func, target, name, trace, config)
    key = cache.kernel_key(opened.func, target, name, trace, config)
    made = cache.load(key)
    if made is None:
        made = _compile(opened.func, target, name, trace, config, opened.words)
        if cache.keeps():
            cache.store(key, made.kernel)
    return CompiledCpuKernel(replace(with_literals(as_cpu(made.kernel), opened.words), name=name), made.from_cache)


def _compile(
    func: PrimFunc, target: Target, name: str, trace: str, config: str, words: Sequence[int] = ()
) -> CompiledCpuKernel:
    """Compile a function. `words`: what is in the table that it reads literals from."""
    if len(func.buffers) != len(func.params):
        raise CodegenError(f"'{name}' has scalar parameters", hint="pass scalars as buffers of shape ()")
    isa = Isa.of(target)
    lowered, stored_as = without_halves(lower_func(func), target)
    lowered = lowered.with_body(order_unrolled(lower_asserts(lowered.body), isa))
    phases, shared = split_phases(lowered)
    check_strides(lowered)
    checks = Checks.every(phases) if func.attrs.get(CHECKED) else Checks.needed(phases)
    scratch = Scratch()
    for buffer in shared:
        scratch.share(buffer)
    python_name = code_name(name)
    args = tuple(replace(a, dtype=b.dtype) for a, b in zip(arg_specs(lowered), func.buffers, strict=True))
    in_place = frozenset((stored_as[func.buffers[i]], stored_as[func.buffers[o]]) for i, o in overwritable(func))
    blocks = block_arguments(lowered)
    is_noalias = bool(func.attrs.get("tir.noalias", True))
    sizes = named_sizes(lowered)
    writer = Writer(
        python_name, lowered.buffers, scratch, is_noalias, in_place, checks, blocks, PIECES_FIRST in func.attrs,
        sizes=sizes, empty=frozenset(func.attrs.get(MAY_BE_EMPTY, ())), isa=isa,
    )  # fmt: skip
    symbols = [f"{python_name}_p{i}" for i in range(len(phases))]
    for phase, symbol in zip(phases, symbols, strict=True):
        writer.phase(phase, symbol)
    machine_text = f"{target.kind.name} -mcpu={target.mcpu}, vectors of {target.vector_bits} bits"
    shared_bytes, own_bytes = align_bytes(scratch.shared_bytes), align_bytes(scratch.own_bytes)
    shared_text, own_text = (f"({writer.show(x)})" if sizes else str(x) for x in (shared_bytes, own_bytes))
    body = "\n".join(writer.lines).replace("SHARED + worker * OWN", f"{shared_text} + worker * {own_text}")
    body = body.replace("block * SHARED +", f"block * {shared_bytes} +")
    shapes = [[writer.show(extent) for extent in buffer.shape] for buffer in lowered.buffers] if sizes else ()
    source = source_header(name, args, machine_text, trace, config, shapes) + "\n" + body.rstrip() + "\n"
    digest = code_digest(func, body, target.to_json(), GENERATOR)
    unique = [f"{python_name}_{digest}_p{i}" for i in range(len(phases))]
    object_code, text = _machine_code(source, dict(zip(symbols, unique, strict=True)), writer, isa, target, words)
    if object_code:
        check_object(object_code, name)
    sized = None
    if sizes:
        sized = sized_of(func, sizes, phases, shared_bytes, own_bytes)
        phases, shared_bytes, own_bytes = [LoweredPhase(phase.body) for phase in phases], 0, 0
    kernel = CpuKernel(
        name=name,
        phases=tuple(Phase(symbol, phase.n_tasks) for symbol, phase in zip(unique, phases, strict=True)),
        sized=sized,
        args=args,
        scratch_bytes=as_int(shared_bytes),
        scratch_bytes_per_worker=as_int(own_bytes),
        object_code=object_code,
        source=source,
        trace=trace,
        config=config,
        target=target.to_json(),
        features=tuple(sorted(target.features)),
        checks=tuple(writer.checks.numbers),
        block=tuple(func.attrs.get(BLOCKS, ())),
        numbers=() if blocks is None else (0, 1),
        flops=0 if sizes else int(func.attrs.get("flops", 0)) or count_flops(lowered.body),
        generator=GENERATOR,
        llvm_packed=pack_text(text),
    )
    return CompiledCpuKernel(kernel)


def _machine_code(
    source: str, symbols: Mapping[str, str], writer: Writer, isa: Isa, target: Target, words: Sequence[int]
) -> tuple[bytes, str]:
    """An object of the phases and the tiles that they call, and its optimised LLVM text; nothing without phases.

    symbols   what each phase's function in the source is called from outside
    words     of the table of literals
    """
    import llvmlite.binding as llvm

    from autosched.codegen.cpu.intrinsics import intrinsics
    from autosched.codegen.cpu.machine import Machine, lower_source, optimise
    from autosched.codegen.cpu.tile_object import compile_tile

    if not symbols:
        return b"", ""
    machine, unique = Machine.of(target), [*symbols.values()]
    apart = {n: compile_tile(tile, isa, machine) for n, tile in writer.tiles.items() if tile.is_apart}
    callees = intrinsics(writer.tiles, writer.palettes, isa, apart)
    texts = lower_source(source, [*symbols], unique, callees)
    module = optimise([*texts, table_text(words)] if words else texts, machine)
    object_code = machine.llvm.emit_object(module)
    if apart:
        object_code = join_objects([object_code, *(tile.object_code for tile in apart.values())], unique)
        for tile in apart.values():
            module.link_in(llvm.parse_bitcode(tile.bitcode))
    return object_code, str(module)


def sized_of(func: PrimFunc, sizes: Sequence[Var], phases: Sequence[LoweredPhase], shared: Bytes, own: Bytes) -> Sized:
    """What follows from the symbols of a function: pieces of its phases, bytes of scratch, shapes, work."""
    names = tuple(v.name for v in sizes)
    pieces = tuple(to_size(phase.pieces) for phase in phases)
    shapes = tuple(to_shape(buffer.shape) for buffer in func.buffers)
    work = read_size(json.loads(str(func.attrs.get(WORK, 0))), names)
    return Sized(names, pieces, to_size(shared), to_size(own), shapes, work, tuple(func.attrs.get(MAY_BE_EMPTY, ())))


def without_halves(func: PrimFunc, target: Target) -> tuple[PrimFunc, dict[Buffer, Buffer]]:
    """(the lowered function with bfloat16 as its bits, what each of its arguments' buffers became).

    So is float16 where the CPU does not convert it: LLVM would call functions that not every process has.
    """
    lacks_float16 = target.architecture == "x86_64" and "f16c" not in target.features
    types = ("bfloat16", "float16") if lacks_float16 else ("bfloat16",)
    body, bits = lower_halves(func.body, func.buffers, types)
    became = {b: bits.get(b, b) for b in func.buffers}
    if body is func.body:
        return func, became
    buffers = FrozenDict({p: became[b] for p, b in func.buffer_map.items()})
    return replace(func, buffer_map=buffers, body=body), became


def block_arguments(func: PrimFunc) -> dict[Buffer, int] | None:
    """For a function that computes one block of a batch: the arguments that hold something of each part, and how much.

    Bytes a part; None for other functions. Raises CodegenError for an argument with strides of its own.
    """
    if (given := func.attrs.get(BLOCKS)) is None:
        return None
    n_parts, *positions = given
    found = {func.buffers[i]: exact_bytes(func.buffers[i]) // n_parts for i in positions}
    if strided := [buffer.name for buffer in found if buffer.strides]:
        raise CodegenError(f"argument '{strided[0]}' of a kernel of blocks has strides of its own")
    return found


def check_strides(func: PrimFunc) -> None:
    """See that arguments with strides of their own lie inside of the arrays, which are row-major.

    Raises CodegenError.
    """
    for buffer in func.buffers:
        if buffer.strides:
            sizes, strides = buffer.const_shape(), [const_int(s) for s in buffer.strides]
            if None not in strides and 0 not in sizes:
                last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if s is not None)
                if not 0 <= last < math.prod(sizes) or min(s for s in strides if s is not None) < 0:
                    raise CodegenError(
                        f"argument '{buffer.name}' of shape {list(sizes)} has strides {strides}: its last element is "
                        f"number {last}, and the array has {math.prod(sizes)}",
                        hint="declare the shape of the whole array",
                    )


def arg_specs(func: PrimFunc) -> tuple[ArgSpec, ...]:
    """The arguments of a lowered function; those that are stored to are outputs."""
    written = {n.buffer for n in statements(func.body) if isinstance(n, BufferStore)}
    specs = []
    for i, buffer in enumerate(func.buffers):
        role = "output" if buffer in written else "input"
        shape = tuple(const_int(extent) or 1 for extent in buffer.shape)  # symbols: what it is for ones
        specs.append(ArgSpec(buffer.name or f"arg{i}", role, buffer.dtype, shape))
    return tuple(specs)


def source_header(
    name: str, args: tuple[ArgSpec, ...], machine: str, trace: str, config: str, shapes: Sequence[Sequence[str]] = (),
) -> str:  # fmt: skip
    """The comment lines at the top of the source; `machine` says what the code is for.

    shapes  of the arguments as the source writes them, where symbols are in them
    """
    extents = shapes or [[*map(str, a.shape)] for a in args]
    given = ", ".join(f"{a.name}: {a.dtype}[{', '.join(shape)}]" for a, shape in zip(args, extents, strict=True))
    lines = [
        f"# {name}({given})",
        f"# {machine} | autosched {GENERATOR}",
        f"# configuration: {config or 'default'}",
    ]
    lines += [f"# schedule: {step}" for step in schedule_steps(trace)]
    return "\n".join(lines) + "\n"


def schedule_steps(trace: str) -> list[str]:
    """A line for each instruction of a schedule's trace, as far as its JSON has the usual form."""
    try:
        steps = json.loads(trace) if trace else []
    except ValueError:
        return []
    if isinstance(steps, list) and len(steps) == 2 and isinstance(steps[0], list):
        steps = steps[0]
    found = []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, list) and step and isinstance(step[0], str):
            found.append(f"{step[0]}({', '.join(_brief(x) for x in step[1:3])})")
        elif isinstance(step, dict):
            found.append(json.dumps(step, sort_keys=True)[:160])
    return found


def _brief(x: object) -> str:
    text = ", ".join(map(str, x)) if isinstance(x, list) else str(x)
    return text if len(text) < 120 else text[:117] + "..."
