"""`compile_uncached`: a scheduled PrimFunc to a kernel for NVIDIA GPUs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.codegen.backends import GENERATOR
from autosched.codegen.compiled import code_digest, code_name
from autosched.codegen.cpu.build import arg_specs, outputs_of, source_header
from autosched.codegen.cpu.checks import Checks
from autosched.codegen.cpu.source import Bytes, Scratch, align_bytes, buffer_bytes, total
from autosched.codegen.cuda.assembler import Assembled, assemble
from autosched.codegen.cuda.compiled import CompiledCudaKernel
from autosched.codegen.cuda.source import LaunchWriter
from autosched.codegen.lower.device import LoweredDevice, lower_device
from autosched.codegen.lower.flops import count_flops
from autosched.codegen.lower.launches import MIN_BLOCKS, LoweredLaunch
from autosched.codegen.lower.phases import LoweredPhase
from autosched.codegen.lower.prove import leaves_empty_alone
from autosched.errors import AutoschedError, CodegenError
from autosched.runtime.cuda.kernel import (
    MOST_BLOCKS,
    CudaKernel,
    Launch,
    LaunchResources,
    Repeat,
    Resources,
    Sized,
    TensorMap,
)
from autosched.runtime.kernel import ArgSpec, Check, pack_text
from autosched.runtime.size_expr import read_size
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.tir import expr as E
from autosched.tir.atomic import store_atomics
from autosched.tir.buffer import Buffer
from autosched.tir.checked_index import CHECKED
from autosched.tir.expr import Var, as_int
from autosched.tir.function import PrimFunc, specialize
from autosched.tir.functor import substitute
from autosched.tir.in_place import overwritable
from autosched.tir.simplify import Analyzer
from autosched.tir.size_expr import MAY_BE_EMPTY, WORK, to_shape, to_size
from autosched.tir.stmt import For, LoopKind, Stmt

NEXT_MODULE = "\n; ---- the next launch ----\n"  # between the NVVM IR texts of a kernel's launches
LEAST = {  # compute capability of instructions
    "mma.sync": (8, 0), "cp.async": (8, 0), "cvt.rna.tf32": (8, 0), "mbarrier.init": (8, 0), "cp.async.bulk": (9, 0),
    "mbarrier.arrive.expect_tx": (9, 0), "mbarrier.try_wait": (9, 0),
}  # fmt: skip
ONLY_SM_90A = ("wgmma.",)
_WISHED_BLOCKS = re.compile(r"\.minnctapersm (?!1\b)\d+")  # in PTX: MIN_BLOCKS
CLUSTERS = (9, 0)  # the first compute capability with clusters of blocks


@dataclass(frozen=True, slots=True)
class Generated:
    """Readable source, NVVM IR texts (one for each launch), symbols of the entries, bytes of device memory between.

    sized   what follows from sizes that come with the call
    """

    lowered: LoweredDevice
    source: str
    texts: tuple[str, ...]
    symbols: tuple[str, ...]
    scratch_bytes: int
    checks: tuple[Check, ...] = ()
    sized: Sized | None = None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """How many threads run each entry; those of sizes that come with the call as for the least."""
        return tuple(
            Launch(
                symbol,
                launch.grid if self.sized is None else self.sized.least_grid(i),
                launch.block,
                launch.cluster,
                launch.shared_bytes if launch.wants_dynamic else 0,
                tuple(launch.tensor_maps.values()),
            )
            for i, (symbol, launch) in enumerate(zip(self.symbols, self.lowered.launches, strict=True))
        )


def generate(func: PrimFunc, name: str, header: str = "", check: GpuFacts | None = None) -> Generated:
    """Source and NVVM IR of a scheduled function, the same for all architectures.

    check   a device that the launches have to fit
    Raises  CodegenError for what no CUDA code exists for
    """
    from autosched.codegen.cuda.launch_code import lower_launches

    if len(func.buffers) != len(func.params):
        raise CodegenError(f"'{name}' has scalar parameters", hint="pass scalars as buffers of shape ()")
    lowered = lower_device(func)
    for launch in lowered.launches if check is not None else ():
        _check_launch(launch, check)  # type: ignore[arg-type]
    python_name = code_name(name)
    slots = lowered.arguments
    in_place = frozenset((slots[i], slots[o]) for i, o in overwritable(func))
    left: dict[Buffer, Bytes] = {}
    scratch_bytes: Bytes = 0
    for buffer in lowered.scratch:
        left[buffer] = scratch_bytes
        scratch_bytes = total(scratch_bytes, align_bytes(buffer_bytes(buffer)))
    for launch in lowered.launches:
        launch.tensor_maps = {b: _placed(m, lowered, left) for b, m in launch.tensor_maps.items()}
    no_alias = bool(func.attrs.get("tir.noalias", True))
    checks = _guards(lowered) if func.attrs.get(CHECKED) else Checks()
    writer = LaunchWriter(python_name, slots, Scratch(), no_alias, in_place, checks)
    writer.reports = bool(checks.guards) or any(checks.of(launch.body) for launch in lowered.launches)
    functions = [f"{python_name}_l{i}" for i in range(len(lowered.launches))]
    for launch, function in zip(lowered.launches, functions, strict=True):
        writer.write(launch, function, f"{function}_shared", left)
    body = "\n".join(writer.lines).rstrip() + "\n"
    source = header + "\n" + body
    digest = code_digest(func, body, GENERATOR)
    symbols = [f"{python_name}_{digest}_l{i}" for i in range(len(functions))]
    bounds = [(launch.threads, int(func.attrs.get(MIN_BLOCKS, 0))) for launch in lowered.launches]
    pointers = [len(slots) + 1 + writer.reports + len(launch.tensor_maps) for launch in lowered.launches]
    texts = lower_launches(source, functions, symbols, pointers, bounds, writer.device_tiles, lowered.n_numbers)
    sized = _sized(func, lowered, scratch_bytes) if lowered.sizes else None
    known_bytes = as_int(scratch_bytes) if sized is None else 0
    return Generated(lowered, source, tuple(texts), tuple(symbols), known_bytes, tuple(checks.numbers), sized)


def _placed(wanted: TensorMap, lowered: LoweredDevice, left: Mapping[Buffer, Bytes]) -> TensorMap:
    """The tensor map of an argument, or of a part of the scratch block, which lowering counts behind the arguments."""
    count = len(lowered.arguments)
    if wanted.argument < count:
        return wanted
    at = left[lowered.scratch[wanted.argument - count]]
    return dataclasses.replace(wanted, argument=count, offset_bytes=as_int(at))


def _sized(func: PrimFunc, lowered: LoweredDevice, scratch_bytes: Bytes) -> Sized:
    """What follows from the symbols of a function: grids, bytes between launches, shapes of its arguments, work."""
    names = tuple(v.name for v in lowered.sizes)
    if maps := [b.name for launch in lowered.launches for b in launch.tensor_maps]:
        raise CodegenError(f"'{maps[0]}' is copied in boxes, and its size comes with the call")
    grids = tuple(to_shape(launch.grid_sizes) for launch in lowered.launches)
    shapes = tuple(to_shape(buffer.shape) for buffer in func.buffers)
    work = read_size(json.loads(str(func.attrs.get(WORK, 0))), names)
    most = tuple(least + count - 1 for least, count in lowered.sizes.values())
    empty = tuple(func.attrs.get(MAY_BE_EMPTY, ()))
    return Sized(names, most, grids, to_size(scratch_bytes), shapes, work, empty)


def _guards(lowered: LoweredDevice) -> Checks:
    """Guards for the accesses that are not proved to stay inside. Raises CodegenError for what surely leaves."""
    return Checks.needed(_phases(lowered))


def _phases(lowered: LoweredDevice) -> list[LoweredPhase]:
    return [LoweredPhase(launch.body, *_axes(launch)) for launch in lowered.launches]


def may_be_empty(func: PrimFunc, size: Var) -> bool:
    """See `CodegenBackend.may_be_empty`. Every launch has blocks then."""
    try:
        lowered = lower_device(func.with_attr({MAY_BE_EMPTY: (size.name,)}))
        is_zero = {v: E.const(0, v.dtype) for v in lowered.sizes if v.name == size.name}
        known = Analyzer(lowered.sizes)
        least = [known.bound(substitute(E.to_expr(n), is_zero))[0] for x in lowered.launches for n in x.grid_sizes]
        if any(blocks is None or blocks < 1 for blocks in least):
            return False
        lowered = lower_device(specialize(func, {size: 0}))
        outputs = outputs_of(func, lowered.arguments)
        return leaves_empty_alone(_phases(lowered), outputs, lowered.arguments, checks_leave=False)
    except AutoschedError:
        return False


def _axes(launch: LoweredLaunch) -> tuple[tuple[Var, ...], tuple[int, ...], tuple[int, ...]]:
    """The variables of the threads, how many values each takes, and its first one."""
    axes = launch.axes
    return tuple(a.var for a in axes), tuple(a.extent for a in axes), (0,) * len(axes)


def _check_launch(launch: LoweredLaunch, gpu: GpuFacts) -> None:
    """Refuse a launch that the device cannot run."""
    if launch.threads > gpu.max_threads_per_block:
        raise CodegenError(f"a block has {launch.threads} threads, {gpu.arch} runs {gpu.max_threads_per_block} at most")
    if launch.shared_bytes > gpu.max_shared_memory_per_block:
        raise CodegenError(
            f"a block needs {launch.shared_bytes} bytes of shared memory, {gpu.arch} has "
            f"{gpu.max_shared_memory_per_block}",
            hint="use smaller tiles or fewer stages",
        )
    for blocks, most, axis in zip(launch.grid_sizes, MOST_BLOCKS, "xyz", strict=True):
        if isinstance(blocks, int) and blocks > most:
            raise CodegenError(f"the launch has {blocks} blocks along {axis}, {most} is the most")


def compile_uncached(func: PrimFunc, target: Target, name: str, trace: str, config: str) -> CompiledCudaKernel:
    """Compile without looking into the cache. Raises CodegenError for what no CUDA code exists for."""
    gpu, func = target.gpu, store_atomics(func)
    args = arg_specs(func)
    made = generate(func, name, source_header(name, args, f"{target.kind.name} -arch={gpu.arch}", trace, config), gpu)
    ptx, image, resources = _machine_code(made.texts, made.launches, _pointers(args, made.checks), gpu)
    kernel = CudaKernel(
        name=name,
        args=args,
        scratch_bytes=made.scratch_bytes,
        source=made.source,
        trace=trace,
        config=config,
        target=target.to_json(),
        sized=made.sized,
        numbers=() if made.sized is None else (1,) * len(made.sized.names),
        flops=0 if made.sized else int(func.attrs.get("flops", 0)) or sum(map(_count_flops, made.lowered.launches)),
        generator=GENERATOR,
        llvm_packed=pack_text(NEXT_MODULE.join(made.texts)),
        checks=made.checks,
        launches=made.launches,
        images={gpu.arch: image},
        resources=resources,
        ptx_packed=pack_text(ptx),
        repeats=tuple(Repeat(r.first, r.end, to_size(r.times)) for r in made.lowered.repeats),
    )
    return CompiledCudaKernel(kernel)


def add_images(kernel: CudaKernel, archs: Sequence[str]) -> CudaKernel:
    """The kernel with machine code for further architectures ("sm_80"), or PTX for all later ones ("compute_80").

    Raises CodegenError where the code does not fit an architecture.
    """
    from autosched.codegen.cuda.numba_cuda import to_ptx
    from autosched.target.gpus import gpu_facts

    texts = kernel.llvm.split(NEXT_MODULE) if kernel.launches else []
    images = dict(kernel.images)
    for arch in archs:
        if arch in images:
            continue
        if arch.startswith("compute_"):
            _require(texts, gpu_facts(arch.replace("compute_", "sm_")), kernel.launches)
            maps = _tensor_maps(kernel.launches, _pointers(kernel.args, kernel.checks))
            images[arch] = to_ptx(texts, arch, maps).encode() if texts else b""
        else:
            pointers = _pointers(kernel.args, kernel.checks)
            images[arch] = _machine_code(texts, kernel.launches, pointers, gpu_facts(arch))[1]
    return dataclasses.replace(kernel, images=images)


def _pointers(args: Sequence[ArgSpec], checks: Sequence[Check]) -> int:
    """How many addresses each entry takes: arguments, the scratch block, the words of the checks."""
    return len(args) + 1 + bool(checks)


def _tensor_maps(launches: Sequence[Launch], pointers: int) -> dict[str, range]:
    """Which parameters of each entry are tensor maps: those behind the addresses."""
    return {x.symbol: range(pointers, pointers + len(x.tensor_maps)) for x in launches}


def _require(texts: Sequence[str], gpu: GpuFacts, launches: Sequence[Launch]) -> None:
    """Refuse what an architecture lacks: instructions, clusters."""
    used = [name for name in LEAST if any(name in t for t in texts)]
    missing = [name for name in used if gpu.compute_capability < LEAST[name]]
    if any(name in t for t in texts for name in ONLY_SM_90A) and gpu.arch != "sm_90a":
        missing += ["wgmma"]
    if gpu.compute_capability < CLUSTERS and any(launch.cluster != (1, 1, 1) for launch in launches):
        missing += ["clusters of blocks"]
    if missing:
        raise CodegenError(f"{gpu.arch} lacks what the kernel uses: {', '.join(missing)}")


def _machine_code(
    texts: Sequence[str], launches: Sequence[Launch], pointers: int, gpu: GpuFacts
) -> tuple[str, bytes, Resources]:
    """(PTX, cubin, what the launches use).

    As many blocks as MIN_BLOCKS fit a multiprocessor where that needs no spills.
    Raises CodegenError for registers that do not suffice.
    """
    from autosched.codegen.cuda.numba_cuda import to_ptx

    if not texts:
        return "", b"", Resources(())
    _require(texts, gpu, launches)
    ptx = to_ptx(texts, gpu.arch.replace("sm_", "compute_"), _tensor_maps(launches, pointers))
    found = assemble(ptx, gpu.arch)
    if any(found.spill_bytes.values()) and (freed := _WISHED_BLOCKS.sub(".minnctapersm 1", ptx)) != ptx:
        ptx, found = freed, assemble(freed, gpu.arch)
    return ptx, found.cubin, Resources(tuple(_resources(launch, found, gpu) for launch in launches))


def _resources(launch: Launch, found: Assembled, gpu: GpuFacts) -> LaunchResources:
    symbol = launch.symbol
    if symbol not in found.registers:
        raise CodegenError(f"the assembler's log does not name {symbol}", hint="another version of nvJitLink is there")
    stack, spills = found.stack_bytes.get(symbol, 0), found.spill_bytes.get(symbol, 0)
    if stack or spills:
        raise CodegenError(
            f"a thread's registers do not suffice on {gpu.arch}: {stack} bytes on the stack, {spills} of spills",
            hint="use smaller register tiles, or unroll the loops that index them",
        )
    shared = found.shared_bytes.get(symbol, 0) + launch.shared_bytes
    if gpu.compute_capability[0] == 9:  # here alone the log counts what is reserved for the system
        shared = max(0, shared - gpu.reserved_shared)
    occupancy = gpu.occupancy(launch.threads, found.registers[symbol], shared)
    return LaunchResources(found.registers[symbol], shared, stack, spills, occupancy)


def _count_flops(launch: LoweredLaunch) -> int:
    if launch.tensor_flops:
        return launch.tensor_flops
    body: Stmt = launch.body
    for axis in launch.axes:
        dtype = axis.var.dtype
        body = For(axis.var, E.const(0, dtype), E.const(axis.extent, dtype), LoopKind.SERIAL, body)
    return count_flops(body)


__all__ = ["Generated", "add_images", "compile_uncached", "generate"]
