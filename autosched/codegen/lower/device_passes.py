"""TVM's passes that lower for a GPU, as steps to look at; a build does the same on its way to launches."""

from __future__ import annotations

import dataclasses

from autosched.codegen.lower.align import buffer_alignments
from autosched.codegen.lower.barriers import place_barriers
from autosched.codegen.lower.compact import compact_buffers
from autosched.codegen.lower.cross_thread import lower_cross_thread
from autosched.codegen.lower.device import DeviceSharing, used_by_nests
from autosched.codegen.lower.dissolve import dissolve_blocks
from autosched.codegen.lower.guards import guard_reductions
from autosched.codegen.lower.inits import lower_inits
from autosched.codegen.lower.launches import LAUNCHED, ThreadAxis, bind_threads, nests
from autosched.codegen.lower.shared_memory import SCOPES, buffer_size
from autosched.codegen.lower.software_pipeline import pipeline_loops
from autosched.codegen.lower.tidy import tidy
from autosched.codegen.lower.vthreads import lower_vthreads
from autosched.errors import CodegenError, InvalidValueError
from autosched.ir.node import preorder
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import const
from autosched.tir.extrema import from_infinity, keep_nans
from autosched.tir.function import PrimFunc, shape_vars
from autosched.tir.functor import rewrite
from autosched.tir.share import bind_shared_values
from autosched.tir.stmt import Allocate, BlockRealize, For, LoopKind, Stmt, seq

MOST = 2**31 - 1  # of blocks along an axis whose number comes with the call


def cross_thread_reductions_lowered(func: PrimFunc) -> PrimFunc:
    """Let threads that share a reduction add up their parts: each its own, then by shuffles and shared memory."""
    if not isinstance(func.body, BlockRealize):
        raise CodegenError("LowerCrossThreadReduction takes functions with blocks", hint="it comes before tvm.lower")
    return func.with_body(lower_cross_thread(func.body, frozenset(func.buffers) | used_by_nests(func.body)))


def binds_threads(func: PrimFunc) -> bool:
    """Whether loops of a function are bound to blocks or threads."""
    return _is_bound(func.body)


def lower_threads(func: PrimFunc) -> PrimFunc:
    """A function that binds threads without blocks: each thread axis of a nest is one loop, the outermost ones.

    What fewer threads do is under a condition. Buffers are as large as those need who share them. A function without
    blocks stays as it is.
    """
    if not isinstance(func.body, BlockRealize):
        return func
    if any(isinstance(x, For) and LAUNCHED in x.annotations for x in preorder(func.body)):
        raise CodegenError(f"the annotation '{LAUNCHED}' makes launches of a loop's iterations", hint="use build")
    alignments, between = buffer_alignments(func.body), used_by_nests(func.body)
    outside = frozenset(func.buffers) | between
    root = lower_cross_thread(keep_nans(from_infinity(bind_shared_values(func.body))), outside)
    body, buffers = dissolve_blocks(lower_inits(root))
    made: list[Stmt] = []
    kept = [b for b in buffers if b in between]
    for nest in nests(body):
        if not _is_bound(nest):
            made.append(nest)
            continue
        launch = bind_threads(nest, outside, dict.fromkeys(shape_vars(func), (1, MOST)))
        sharing = DeviceSharing(launch)
        inner = tidy(guard_reductions(launch.body), launch.analyzer())
        inner = compact_buffers(inner, [b for b in buffers if b not in between], alignments, sharing)
        kept += sharing.left
        made.append(_around(tidy(inner, launch.analyzer()), launch.axes))
    whole = seq(*made)
    for buffer in reversed(kept):
        whole = Allocate(buffer, whole)
    return func.with_body(whole)


def virtual_threads_unrolled(func: PrimFunc) -> PrimFunc:
    """Make virtual threads unrolled loops around the statements that depend on them, each with its own registers."""
    buffers = _allocated(func)
    body, kept, _ = lower_vthreads(func.body, buffers, frozenset(b for b in buffers if b.scope == "local"))
    became = dict(zip(buffers, kept, strict=True))

    def step(x: object) -> object:
        return dataclasses.replace(x, buffer=became[x.buffer]) if isinstance(x, Allocate) else x

    return func.with_body(rewrite(body, step))


def pipelines_made(func: PrimFunc) -> PrimFunc:
    """Let loops with the annotation `software_pipeline_stage` copy ahead of what they compute."""
    return func.with_body(pipeline_loops(func.body, _item_bytes(func)))


def with_barriers(func: PrimFunc, scope: str) -> PrimFunc:
    """Put a barrier wherever a thread meets what another one wrote to memory of a scope, "shared" or "shared.dyn"."""
    if scope not in SCOPES:
        raise InvalidValueError(f"ThreadSync: scope '{scope}'", hint=f"threads of a block share {' and '.join(SCOPES)}")
    sizes = _item_bytes(func)
    ranges: dict[Buffer, tuple[object, int, int]] = {
        b: (b, 0, buffer_size(b, sizes[b.dtype])) for b in _allocated(func) if b.scope == scope
    }

    def synchronised(nest: Stmt) -> Stmt:
        axes, body = [], nest
        while isinstance(body, For) and body.kind == LoopKind.THREAD_BINDING:
            axes.append(body)
            body = body.body
        if _is_bound(body):
            raise CodegenError("ThreadSync: threads are bound inside of the nest", hint="tvm.lower it first")
        divergent = frozenset(loop.loop_var for loop in axes if loop.thread.startswith("threadIdx"))
        body = place_barriers(body, ranges, divergent)
        for loop in reversed(axes):
            body = dataclasses.replace(loop, body=body)
        return body

    return func.with_body(seq(*map(synchronised, nests(func.body))))


def _is_bound(stmt: Stmt) -> bool:
    """Whether loops are bound to blocks or threads; virtual threads are not."""
    return any(
        isinstance(x, For) and x.kind == LoopKind.THREAD_BINDING and "vthread" not in x.thread for x in preorder(stmt)
    )


def _around(body: Stmt, axes: tuple[ThreadAxis, ...]) -> Stmt:
    for axis in reversed(axes):
        dtype = axis.var.dtype
        extent = const(axis.extent, dtype) if axis.size is None else axis.size
        body = For(axis.var, const(0, dtype), extent, LoopKind.THREAD_BINDING, body, axis.tag)
    return body


def _allocated(func: PrimFunc) -> list[Buffer]:
    return [x.buffer for x in preorder(func.body) if isinstance(x, Allocate)]


def _item_bytes(func: PrimFunc) -> dict[str, int]:
    return {b.dtype: item_bytes(b.dtype) for b in (*func.buffers, *_allocated(func))}
