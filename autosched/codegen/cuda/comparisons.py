"""The kernels that compare results on a device: they count in how many places two arrays differ."""

from __future__ import annotations

import hashlib

from autosched.codegen.backends import GENERATOR
from autosched.codegen.cache import load, store, toolchain
from autosched.codegen.cuda.assembler import assemble
from autosched.codegen.cuda.build import NEXT_MODULE
from autosched.runtime.cuda.comparisons import KINDS, THREADS, WORD
from autosched.runtime.cuda.kernel import CudaKernel, Launch, LaunchResources, Resources
from autosched.runtime.kernel import pack_text
from autosched.target import Target

_WORDS = """
def differing_word(found, expected, limits, total, scratch, size, step):
    thread = cuda.blockIdx.x * {threads} + cuda.threadIdx.x
    count = 0
    i = thread
    while i < size:
        if int32_at(found, i) != int32_at(expected, i):
            count += 1
        i += step
    if count:
        add_int32(total, count)
"""

# A difference that is NaN is not within the bound. Infinities are equal or not: their difference is NaN or infinite.
_FLOATS = """
def differing_{kind}(found, expected, limits, total, scratch, size, step):
    thread = cuda.blockIdx.x * {threads} + cuda.threadIdx.x
    bound, is_part = float64_at(limits, 0), float64_at(limits, 1)
    count = 0
    i = thread
    while i < size:
        x, y = {kind}_at(found, i), float64_at(expected, i)
        if y != y:
            is_right = x - x == 0.0 if is_part > 0.0 else x != x
        else:
            is_right = x == y or abs(x - y) <= bound
        if not is_right:
            count += 1
        i += step
    if count:
        add_int32(total, count)
"""


def comparison_source() -> str:
    """All kernels, in the order of `KINDS`."""
    texts = [_WORDS if kind == WORD else _FLOATS for kind in KINDS]
    return "".join(text.format(kind=kind, threads=THREADS) for text, kind in zip(texts, KINDS, strict=True))


def compile_comparisons(target: Target) -> CudaKernel:
    """A kernel whose launches compare values of each of `KINDS`, from the kernel cache where it has it.

    Raises CodegenError for a device that they cannot be compiled for.
    """
    arch, source = target.gpu.arch, comparison_source()
    digest = hashlib.sha256("\x1f".join((source, arch, toolchain("cuda"))).encode()).hexdigest()
    key = f"comparisons {digest}"
    if (known := load(key)) is not None and isinstance(known.kernel, CudaKernel):
        return known.kernel
    from autosched.codegen.cuda import numba_cuda

    functions = [f"differing_{kind}" for kind in KINDS]
    symbols = [f"{function}_{digest[:12]}" for function in functions]
    texts = numba_cuda.lower_kernels(
        source, functions, symbols, [5] * len(KINDS), [(THREADS, 0)] * len(KINDS), numba_cuda.ACCESSES,
        f"<autosched comparisons {digest[:12]}>", 2,
    )  # fmt: skip
    ptx = numba_cuda.to_ptx(texts, arch.replace("sm_", "compute_"))
    found = assemble(ptx, arch)
    used = [LaunchResources(found.registers[symbol], 0, 0, 0, 1.0) for symbol in symbols]
    made = CudaKernel(
        name="comparisons",
        args=(),
        source=source,
        target=target.to_json(),
        generator=GENERATOR,
        llvm_packed=pack_text(NEXT_MODULE.join(texts)),
        launches=tuple(Launch(symbol, (1, 1, 1), (THREADS, 1, 1)) for symbol in symbols),
        images={arch: found.cubin},
        resources=Resources(tuple(used)),
        ptx_packed=pack_text(ptx),
    )
    store(key, made)
    return made
