"""TVM's passes of the loop level by name: `tir.transform.Simplify()(mod)`.

Lowering is done here by fewer and larger steps. A name whose work belongs to a later step, or to another kind of
machine, keeps the module as it is; each returns a module that computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.codegen.lower.flops import count_flops
from autosched.codegen.lower.inits import lower_inits
from autosched.codegen.lower.partition import partition_loops
from autosched.codegen.lower.pipeline import lower_func
from autosched.codegen.lower.tidy import tidy
from autosched.ir.module import IRModule
from autosched.ir.node import map_children, walk
from autosched.ir.transform import Pass, PassInfo
from autosched.target import Target
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite, substitute
from autosched.tir.schedule.tree import bind_loop
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, BufferStore, Evaluate, For, IfThenElse, LoopKind, SeqStmt, Stmt, seq

Change = Callable[[PrimFunc], PrimFunc]


def _same(func: PrimFunc) -> PrimFunc:
    return func


def _simplify(func: PrimFunc) -> PrimFunc:
    """Simplify expressions, knowing the ranges of loops and blocks around them."""
    return func.with_body(_simplified(func.body, Analyzer(keep_units=True)))


def _simplified(stmt: Any, analyzer: Analyzer) -> Any:
    if isinstance(stmt, E.PrimExpr):
        return analyzer.simplify(stmt)
    if isinstance(stmt, For):
        analyzer = analyzer.copy()
        bind_loop(analyzer, stmt)
    if isinstance(stmt, Block):
        analyzer = analyzer.copy()
        for iv in stmt.iter_vars:
            analyzer.bind(iv.var, iv.dom)
    if isinstance(stmt, Buffer | IterVar | E.Var):
        return stmt
    return map_children(stmt, lambda child: _simplified(child, analyzer))


def _nothing(stmt: Stmt) -> bool:
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


def _remove_no_op(func: PrimFunc) -> PrimFunc:
    """Take away statements that do nothing, loops that never run, and conditions that are known."""

    def step(x: Any) -> Any:
        if isinstance(x, For) and (_nothing(x.body) or E.const_int(x.extent) == 0):
            return Evaluate(IntImm(0))
        if isinstance(x, IfThenElse) and isinstance(x.condition, IntImm):
            return x.then_case if x.condition.value else x.else_case or Evaluate(IntImm(0))
        if isinstance(x, BufferStore) and isinstance(x.value, BufferLoad) and x.value.buffer is x.buffer:
            same = all(E._same(a, b) for a, b in zip(x.value.indices, x.indices, strict=True))
            return Evaluate(IntImm(0)) if same else x
        if isinstance(x, SeqStmt):
            kept = [s for s in x.seq if not _nothing(s)]
            return x if len(kept) == len(x.seq) else seq(*kept) if kept else Evaluate(IntImm(0))
        return x

    return func.with_body(rewrite(func.body, step))


def _with_kinds(old: LoopKind, write_out: bool) -> Change:
    """Loops of a kind made serial, or written out."""

    def step(x: Any) -> Any:
        if not isinstance(x, For) or x.kind is not old:
            return x
        n, start = E.const_int(x.extent), E.const_int(x.start)
        if not write_out or n is None or start is None or _has_block(x.body):
            return x if write_out else For(x.loop_var, x.start, x.extent, LoopKind.SERIAL, x.body, "", x.annotations)
        return seq(*(substitute(x.body, {x.loop_var: E.const(start + i, x.loop_var.dtype)}) for i in range(n)))

    return lambda func: func.with_body(rewrite(func.body, step))


def _has_block(stmt: Stmt) -> bool:
    return any(isinstance(x, BlockRealize) for x in walk(stmt))


def _lower_inits(func: PrimFunc) -> PrimFunc:
    return func.with_body(lower_inits(func.body)) if isinstance(func.body, BlockRealize) else func


def _all_serial(func: PrimFunc) -> PrimFunc:
    for kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED):
        func = _with_kinds(kind, write_out=False)(func)
    return func


def _lowered(func: PrimFunc) -> PrimFunc:
    return lower_func(func, partition=False)


def _partitioned(func: PrimFunc) -> PrimFunc:
    return func if isinstance(func.body, BlockRealize) else func.with_body(partition_loops(tidy(func.body)))


PASSES: dict[str, Change] = {
    "Simplify": _simplify, "RemoveNoOp": _remove_no_op, "UnrollLoop": _with_kinds(LoopKind.UNROLLED, write_out=True),
    "SkipVectorize": _with_kinds(LoopKind.VECTORIZED, write_out=False), "ConvertForLoopsToSerial": _all_serial,
    "LowerInitBlock": _lower_inits, "LowerOpaqueBlock": _lowered, "FlattenBuffer": _lowered,
    "StorageFlatten": _lowered, "LoopPartition": _partitioned, "RewriteUnsafeSelect": _same,
    **dict.fromkeys((
        "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "CompactBufferAllocation", "LowerMatchBuffer",
        "UnifyThreadBinding", "InjectSoftwarePipeline", "InjectVirtualThread", "InjectDoubleBuffer", "VectorizeLoop",
        "StorageRewrite", "NarrowDataType", "BF16Legalize", "BF16StorageLegalize", "BF16ComputeLegalize",
        "FP8ComputeLegalize", "FP8StorageLegalize", "HoistIfThenElse", "HoistExpression", "CommonSubexprElimTIR",
        "MergeDynamicSharedMemoryAllocations", "MergeSharedMemoryAllocations", "ThreadSync", "InferFragment",
        "LowerThreadAllreduce", "AnnotateDeviceRegions", "SplitHostDevice", "MakePackedAPI", "MakeUnpackedAPI",
        "LowerWarpMemory", "LowerTVMBuiltin", "LowerIntrin", "LowerCustomDatatypes", "LowerDeviceStorageAccessInfo",
        "LowerDeviceKernelLaunch", "CombineContextCall", "DecorateDeviceScope", "InstrumentBoundCheckers",
        "LowerCrossThreadReduction", "LowerAutoCopy", "TransformMmaBufferLayout", "ManifestSharedMemoryLocalStage",
        "ForceNarrowIndexToInt32", "RenormalizeSplitPattern", "LiftThreadBinding", "ReduceBranchingThroughOvercompute",
        "UnifiedStaticMemoryPlanner", "RemoveStoreUndef", "RemoveAssume", "VerifyMemory", "VerifySSA", "CoProcSync",
        "LiftAttrScope", "TextureFlatten", "InjectPrefetch", "LowerVtcmAlloc", "InjectPTXAsyncCopy",
        "DefaultGPUSchedule",
        "ApplyLayoutTransforms", "FlattenStorage", "LowerAsyncDMA", "InjectRollingBuffer", "AnnotateIrregularLoop",
        "RemoveWeightLayoutRewriteBlock", "TensorCoreStorage", "InlinePrivateFunctions", "VerifyVTCMLimit",
    ), _same),
}  # fmt: skip


def make(name: str) -> Callable[..., Pass]:
    """TVM's constructor of a pass: it takes TVM's arguments, which choose nothing here."""
    change = PASSES[name]

    def construct(*args: Any, **kwargs: Any) -> Pass:
        del args, kwargs

        def run(mod: IRModule) -> IRModule:
            new = {gv: change(f) if isinstance(f, PrimFunc) else f for gv, f in mod.functions_items()}
            return mod.with_functions(new)

        return Pass(run, PassInfo(0, f"tir.{name}"))

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = change.__doc__ or "Keeps the module as it is; the work belongs to another step here."
    return construct


def BindTarget(target: Any) -> Pass:  # noqa: N802  (TVM's name)
    """Note a target on every function."""
    chosen = Target(target)
    return _changing("BindTarget", lambda func: func.with_attr("target", chosen))


def Apply(ftransform: Change) -> Pass:  # noqa: N802
    """A function from PrimFunc to PrimFunc as a pass."""
    return _changing("Apply", ftransform)


def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:  # noqa: N802
    """Keep the functions that a condition holds for."""

    def run(mod: IRModule) -> IRModule:
        kept: dict[Any, Any] = {gv: f for gv, f in mod.functions_items() if not isinstance(f, PrimFunc) or fcond(f)}
        return IRModule(kept, mod.attrs, mod.global_infos)

    return Pass(run, PassInfo(0, "tir.Filter"))


def AnnotateEntryFunc() -> Pass:  # noqa: N802
    """Mark the only function as the entry."""

    def run(mod: IRModule) -> IRModule:
        funcs = [gv for gv, f in mod.functions_items() if isinstance(f, PrimFunc)]
        if len(funcs) != 1:
            return mod
        return mod.with_functions({funcs[0]: mod[funcs[0]].with_attr("tir.is_entry_func", True)})

    return Pass(run, PassInfo(0, "tir.AnnotateEntryFunc"))


def _changing(name: str, change: Change) -> Pass:
    def run(mod: IRModule) -> IRModule:
        new = {gv: change(f) if isinstance(f, PrimFunc) else f for gv, f in mod.functions_items()}
        return mod.with_functions(new)

    return Pass(run, PassInfo(0, f"tir.{name}"))


def estimate_tir_flops(stmt_or_mod: Any) -> float:
    """The floating-point operations of a module, function or statement."""
    if isinstance(stmt_or_mod, IRModule):
        funcs = [f for _, f in stmt_or_mod.functions_items() if isinstance(f, PrimFunc)]
        return float(sum(estimate_tir_flops(f) for f in funcs))
    if isinstance(stmt_or_mod, PrimFunc):
        return float(count_flops(lower_func(stmt_or_mod, partition=False).body))
    return float(count_flops(stmt_or_mod))


NAMES = (*PASSES, "BindTarget", "Apply", "Filter", "AnnotateEntryFunc")


def __getattr__(name: str) -> Any:
    if name in PASSES:
        return make(name)
    raise AttributeError(name)
