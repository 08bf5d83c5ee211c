"""TVM's passes of the loop level by name: `tir.transform.Simplify()(mod)`; `absent_passes` says which are not here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from autosched.codegen.lower.absent_passes import ABSENT
from autosched.codegen.lower.common_subexpr_pass import share_expressions
from autosched.codegen.lower.device_passes import (
    binds_threads,
    cross_thread_reductions_lowered,
    lower_threads,
    pipelines_made,
    virtual_threads_unrolled,
    with_barriers,
)  # fmt: skip
from autosched.codegen.lower.flops import count_flops
from autosched.codegen.lower.hoist_pass import hoist_conditions, hoist_expressions
from autosched.codegen.lower.inits import lower_inits
from autosched.codegen.lower.narrow_pass import narrow_indices
from autosched.codegen.lower.partition import partition_loops
from autosched.codegen.lower.pipeline import lower_func
from autosched.codegen.lower.simplify_pass import simplify_function
from autosched.codegen.lower.tidy import tidy
from autosched.errors import CodegenError, UsageError, VerifyError
from autosched.ir.module import IRModule
from autosched.ir.node import preorder
from autosched.ir.transform import Pass, PassInfo, absent
from autosched.lazy_names import hook
from autosched.target import Target
from autosched.tir import expr as E
from autosched.tir.analysis import verify_memory, verify_ssa
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.custom import lower_custom_intrinsics
from autosched.tir.expr import IntImm
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite, substitute
from autosched.tir.match import inline_matches
from autosched.tir.stmt import (
    Allocate,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LoopKind,
    SeqStmt,
    Stmt,
    seq,
)  # fmt: skip

if TYPE_CHECKING:
    from autosched.ir.module import GlobalVar

Change = Callable[[PrimFunc], PrimFunc]


def _nothing(stmt: Stmt) -> bool:
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


def _remove_no_op(func: PrimFunc) -> PrimFunc:
    """Take away statements that do nothing, loops that never run, and conditions that are known."""

    def step(x: object) -> object:
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
    """Make loops of a kind serial, or write them out."""

    def step(x: object) -> object:
        if not isinstance(x, For) or x.kind is not old:
            return x
        n, start = E.const_int(x.extent), E.const_int(x.start)
        if write_out and _has_block(x.body):
            raise CodegenError(f"UnrollLoop: there are blocks in loop '{x.loop_var.name}'", hint=_LOWER_FIRST)
        if not write_out or n is None or start is None:
            return x if write_out else For(x.loop_var, x.start, x.extent, LoopKind.SERIAL, x.body, "", x.annotations)
        return seq(*(substitute(x.body, {x.loop_var: E.const(start + i, x.loop_var.dtype)}) for i in range(n)))

    def change(func: PrimFunc) -> PrimFunc:
        return func.with_body(rewrite(func.body, step))

    change.__doc__ = f"{'Write out' if write_out else 'Make serial'} the loops that are {old}."
    return change


_LOWER_FIRST = "tvm.lower or LowerOpaqueBlock comes first"


def _has_block(stmt: Stmt) -> bool:
    return any(isinstance(x, BlockRealize) for x in preorder(stmt))


def _lower_inits(func: PrimFunc) -> PrimFunc:
    """Make conditions of the blocks' inits."""
    return func.with_body(lower_inits(func.body)) if isinstance(func.body, BlockRealize) else func


def _all_serial(func: PrimFunc) -> PrimFunc:
    """Make all loops serial but those that are bound to threads."""
    for kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED):
        func = _with_kinds(kind, write_out=False)(func)
    return func


def lowered(func: PrimFunc, *, partition: bool = False) -> PrimFunc:
    """Replace blocks by what they compute, and allocate buffers where they are used.

    partition   split loops whose last iteration is ragged into full tiles and the rest, in functions for CPUs
    """
    return lower_threads(func) if binds_threads(func) else lower_func(func, partition=partition)


def _partitioned(func: PrimFunc) -> PrimFunc:
    """Cut loops whose last iteration is ragged into full tiles, without conditions, and the rest."""
    _require_lowered(func, "LoopPartition")
    return func.with_body(partition_loops(tidy(func.body)))


def _of_lowered(name: str, change: Change) -> Change:
    """A change of functions without blocks, under the name of its pass."""

    def checked(func: PrimFunc) -> PrimFunc:
        _require_lowered(func, name)
        return change(func)

    checked.__doc__ = change.__doc__
    return checked


def _selects_guarded(func: PrimFunc) -> PrimFunc:
    """Let choices that read memory evaluate the taken side only: Select becomes if_then_else."""

    def step(x: object) -> object:
        if isinstance(x, E.Select) and any(isinstance(n, BufferLoad) for n in preorder(x)):
            return E.if_then_else(x.condition, x.true_value, x.false_value)
        return x

    return func.with_body(rewrite(func.body, step))


def _matches_inlined(func: PrimFunc) -> PrimFunc:
    """Access regions that have a second name (match_buffer) under the first one."""

    def step(x: object) -> object:
        if not isinstance(x, Block) or not x.match_buffers:
            return x
        init = None if x.init is None else inline_matches(x.init, x.match_buffers)
        return dataclasses.replace(x, body=inline_matches(x.body, x.match_buffers), init=init, match_buffers=())

    return func.with_body(rewrite(func.body, step))


def _opaque_blocks(func: PrimFunc) -> PrimFunc:
    """Let blocks use the loops' variables: their own are replaced by what they are bound to."""

    def step(x: object) -> object:
        if not isinstance(x, BlockRealize) or not x.iter_values:
            return x
        if x.block.init is not None:
            raise CodegenError(f"ConvertBlocksToOpaque: block '{x.block.name_hint}' has an init", hint=_INIT_FIRST)
        values = {iv.var: v for iv, v in zip(x.block.iter_vars, x.iter_values, strict=True)}
        return BlockRealize((), x.predicate, substitute(dataclasses.replace(x.block, iter_vars=()), values))

    return func.with_body(rewrite(func.body, step))


_INIT_FIRST = "LowerInitBlock comes first"


def _flattened(func: PrimFunc) -> PrimFunc:
    """Give the buffers that a lowered function allocates one dimension; its interface keeps its shapes."""
    _require_lowered(func, "FlattenBuffer")
    flat = {
        x.buffer: x.buffer.get_flattened_buffer()
        for x in preorder(func.body) if isinstance(x, Allocate) and x.buffer.ndim > 1 and not x.buffer.strides
    }  # fmt: skip

    def at(buffer: Buffer, indices: Sequence[E.PrimExpr]) -> tuple[E.PrimExpr, ...]:
        offset: E.PrimExpr = indices[0]
        for index, extent in zip(indices[1:], buffer.shape[1:], strict=True):
            offset = E.add(E.mul(offset, extent), index)
        return (offset,)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in flat:
            return BufferLoad(flat[x.buffer], at(x.buffer, x.indices))
        if isinstance(x, BufferStore) and x.buffer in flat:
            return BufferStore(flat[x.buffer], x.value, at(x.buffer, x.indices))
        return x

    def allocation(x: object) -> object:
        return dataclasses.replace(x, buffer=flat[x.buffer]) if isinstance(x, Allocate) and x.buffer in flat else x

    return func.with_body(rewrite(rewrite(func.body, step), allocation))


def _require_lowered(func: PrimFunc, name: str) -> None:
    if _has_block(func.body):
        raise CodegenError(f"{name} takes functions without blocks", hint=_LOWER_FIRST)


def _intrinsics_lowered(func: PrimFunc) -> PrimFunc:
    """Replace intrinsics as the rules for the function's target say (`register_intrin_lowering`)."""
    target = func.attrs.get("target")
    return lower_custom_intrinsics(func, target.kind.name if isinstance(target, Target) else "llvm")


def _without_calls(*names: str) -> Change:
    """Statements that are calls of some names, or store them, go."""

    def step(x: object) -> object:
        value = x.value if isinstance(x, Evaluate | BufferStore) else None
        return Evaluate(IntImm(0)) if isinstance(value, E.Call) and value.op in names else x

    def change(func: PrimFunc) -> PrimFunc:
        return _remove_no_op(func.with_body(rewrite(func.body, step)))

    change.__doc__ = f"Take away what is {' or '.join(names)}."
    return change


def _ssa_verified(func: PrimFunc) -> PrimFunc:
    """Raises VerifyError where a variable is introduced twice."""
    if not verify_ssa(func):
        raise VerifyError("VerifySSA: a variable is introduced twice", where=str(func.attrs.get("global_symbol", "")))
    return func


def _memory_verified(func: PrimFunc) -> PrimFunc:
    """Raises VerifyError where a function for a GPU reaches memory outside of its threads."""
    if not verify_memory(func):
        raise VerifyError(
            "VerifyMemory: a function for a GPU reaches memory outside of loops that are bound to threads",
            where=str(func.attrs.get("global_symbol", "")), hint="bind its loops",
        )  # fmt: skip
    return func


PASSES: dict[str, Change] = {
    "Simplify": simplify_function, "RemoveNoOp": _remove_no_op,
    "UnrollLoop": _with_kinds(LoopKind.UNROLLED, write_out=True),
    "SkipVectorize": _with_kinds(LoopKind.VECTORIZED, write_out=False), "ConvertForLoopsToSerial": _all_serial,
    "LowerInitBlock": _lower_inits, "LowerOpaqueBlock": lowered, "FlattenBuffer": _flattened,
    "LoopPartition": _partitioned, "RewriteUnsafeSelect": _selects_guarded, "LowerMatchBuffer": _matches_inlined,
    "ConvertBlocksToOpaque": _opaque_blocks, "HoistIfThenElse": hoist_conditions, "HoistExpression": hoist_expressions,
    "ForceNarrowIndexToInt32": narrow_indices,
    "LowerIntrin": _intrinsics_lowered, "RemoveAssume": _without_calls("assume"),
    "RemoveStoreUndef": _without_calls("undef"), "VerifySSA": _ssa_verified, "VerifyMemory": _memory_verified,
    "LowerCrossThreadReduction": cross_thread_reductions_lowered,
    "InjectVirtualThread": _of_lowered("InjectVirtualThread", virtual_threads_unrolled),
    "InjectSoftwarePipeline": _of_lowered("InjectSoftwarePipeline", pipelines_made),
}  # fmt: skip


def make(name: str) -> Callable[..., Pass]:
    """The constructor of a pass."""
    change = PASSES[name]

    def construct() -> Pass:
        def run(mod: IRModule) -> IRModule:
            new = {gv: change(f) if isinstance(f, PrimFunc) else f for gv, f in mod.functions_items()}
            return mod.with_functions(new)

        return Pass(run, PassInfo(0, f"tir.{name}"))

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = change.__doc__
    return construct


def BindTarget(target: str | Mapping[str, object] | Target) -> Pass:  # noqa: N802  (TVM's name)
    """Note a target on every function."""
    chosen = Target(target)
    return _changing("BindTarget", lambda func: func.with_attr("target", chosen))


def Apply(ftransform: Change) -> Pass:  # noqa: N802
    """A function from PrimFunc to PrimFunc as a pass."""
    return _changing("Apply", ftransform)


def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:  # noqa: N802
    """Keep the functions that a condition holds for."""

    def run(mod: IRModule) -> IRModule:
        kept: dict[GlobalVar, object] = {
            gv: f for gv, f in mod.functions_items() if not isinstance(f, PrimFunc) or fcond(f)
        }
        return IRModule(kept, mod.attrs, mod.global_infos)

    return Pass(run, PassInfo(0, "tir.Filter"))


def CommonSubexprElimTIR(enable_cse_tir: bool = True, identify_equiv_terms: bool = False) -> Pass:  # noqa: N802
    """Bind integer arithmetic that stands several times to a variable. Raises UsageError for identify_equiv_terms."""
    if identify_equiv_terms:
        raise UsageError("CommonSubexprElimTIR: identify_equiv_terms", hint="Simplify gives equal terms one form")
    return _changing("CommonSubexprElimTIR", share_expressions if enable_cse_tir else lambda func: func)


def ThreadSync(storage_scope: str) -> Pass:  # noqa: N802
    """Put a barrier wherever a thread of a block meets what another one wrote to memory of a scope."""

    def change(func: PrimFunc) -> PrimFunc:
        _require_lowered(func, "ThreadSync")
        return with_barriers(func, storage_scope)

    return _changing("ThreadSync", change)


def DefaultGPUSchedule() -> Pass:  # noqa: N802
    """Bind the loops of functions that have no schedule to blocks and threads of the current target.

    Raises TVMError where there is no current target.
    """
    made: Pass = hook("default GPU schedule")()
    return made


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


def estimate_tir_flops(stmt_or_mod: IRModule | PrimFunc | Stmt) -> float:
    """The floating-point operations of a module, function or statement."""
    if isinstance(stmt_or_mod, IRModule):
        funcs = [f for _, f in stmt_or_mod.functions_items() if isinstance(f, PrimFunc)]
        return float(sum(estimate_tir_flops(f) for f in funcs))
    if isinstance(stmt_or_mod, PrimFunc):
        return float(count_flops(lowered(stmt_or_mod).body))
    return float(count_flops(stmt_or_mod))


NAMES = (
    *PASSES, "BindTarget", "Apply", "Filter", "AnnotateEntryFunc", "CommonSubexprElimTIR", "ThreadSync",
    "DefaultGPUSchedule",
)  # fmt: skip


def __getattr__(name: str) -> Callable[..., Pass]:
    if name in PASSES:
        return make(name)
    raise absent("tir.transform", name, ABSENT)
