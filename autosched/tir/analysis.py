"""TVM's questions about functions of the loop level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autosched.errors import InvalidTypeError, VerifyError
from autosched.ir.module import IRModule
from autosched.ir.node import Node, children, preorder
from autosched.lazy_names import lazy_names
from autosched.tir import expr as E
from autosched.tir.access import infer_regions
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Var
from autosched.tir.function import PrimFunc
from autosched.tir.simplify import form_key
from autosched.tir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    For,
    LetStmt,
    LoopKind,
    Stmt,
)  # fmt: skip
from autosched.tir.verify import verify


def _funcs(what: str, obj: object) -> list[PrimFunc]:
    if isinstance(obj, PrimFunc):
        return [obj]
    if isinstance(obj, IRModule):
        return [f for _, f in obj.functions_items() if isinstance(f, PrimFunc)]
    raise InvalidTypeError(f"{what}: argument 'func' is a {type(obj).__name__}, expected a PrimFunc or an IRModule")


def verify_well_formed(obj: object, assert_mode: bool = True) -> bool:
    """Whether functions keep the rules of the loop level. Raises VerifyError where not, unless `assert_mode` is off."""
    for func in _funcs("verify_well_formed", obj):
        try:
            verify(func)
        except VerifyError:
            if assert_mode:
                raise
            return False
    return True


def verify_ssa(func: object) -> bool:
    """Whether each variable is introduced once."""
    return all(len(set(found)) == len(found) for found in map(_introduced, _funcs("verify_ssa", func)))


def _introduced(func: PrimFunc) -> list[Var | Buffer]:
    """The variables and buffers that a function introduces, each as often as it does."""
    found: list[Var | Buffer] = [*func.params]
    for x in preorder(func.body):
        match x:
            case For():
                found.append(x.loop_var)
            case LetStmt() | E.Let():
                found.append(x.var)
            case Allocate():
                found.append(x.buffer)
            case Block():
                found += [*(iv.var for iv in x.iter_vars), *x.alloc_buffers, *(m.buffer for m in x.match_buffers)]
    return found


def verify_memory(func: object) -> bool:
    """Whether memory is reached only from where it can be: always so on a CPU, on a GPU inside of bound loops."""
    for f in _funcs("verify_memory", func):
        target = f.attrs.get("target")
        if target is not None and "gpu" in getattr(target, "keys", ()) and _reaches_memory_unbound(f.body):
            return False
    return True


def _reaches_memory_unbound(node: Node) -> bool:
    """Whether a buffer is read or written outside of loops that are bound to threads."""
    if isinstance(node, BufferLoad | BufferStore):
        return True
    if isinstance(node, For) and node.kind is LoopKind.THREAD_BINDING:
        return False
    if isinstance(node, Block):  # the regions that it declares are no accesses
        return _reaches_memory_unbound(node.body) or (node.init is not None and _reaches_memory_unbound(node.init))
    return any(_reaches_memory_unbound(child) for child in children(node) if not isinstance(child, Buffer))


def expr_deep_equal(lhs: object, rhs: object) -> bool:
    """Whether two expressions have one form over the same variables."""
    return bool(form_key(E.to_expr(lhs)) == form_key(E.to_expr(rhs)))


def undefined_vars(node: object, defs: Sequence[Var] | None = None) -> list[Var]:
    """The variables that a statement or expression uses and does not introduce, in order of first use."""
    found: dict[Var, None] = {}

    def visit(x: Node, known: frozenset[Var]) -> None:
        if isinstance(x, Var) and x not in known:
            found[x] = None
        if isinstance(x, For):
            visit(x.start, known)
            visit(x.extent, known)
            return visit(x.body, known | {x.loop_var})
        if isinstance(x, LetStmt | E.Let):
            visit(x.value, known)
            return visit(x.body, known | {x.var})
        if isinstance(x, Block):
            known |= {iv.var for iv in x.iter_vars}
        for child in children(x):
            visit(child, known)
        return None

    if not isinstance(node, Node):
        raise InvalidTypeError(f"undefined_vars: a {type(node).__name__}, expected a statement or expression")
    visit(node, frozenset(defs or ()))
    return list(found)


def get_block_access_region(
    block: Block, buffer_var_map: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """[reads, writes, what cannot be determined] of a block, from its body."""
    if not isinstance(block, Block):
        raise InvalidTypeError(f"get_block_access_region: argument 'block' is a {type(block).__name__}")
    reads, writes = infer_regions(block.body, block.init, block.alloc_buffers)
    return [list(reads), list(writes), []]


def get_block_read_write_region(
    block: Block, buffer_var_map: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """[reads, writes] of a block, from its body."""
    return get_block_access_region(block, buffer_var_map)[:2]


get_sblock_access_region, get_sblock_read_write_region = get_block_access_region, get_block_read_write_region


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """The innermost loop or block around all accesses of each buffer; None where it is the whole function."""
    paths: dict[Buffer, list[Stmt]] = {}

    def visit(x: Node, path: list[Stmt]) -> None:
        if isinstance(x, BufferStore | BufferLoad):
            old = paths.get(x.buffer)
            same = path if old is None else [a for a, b in zip(old, path) if a is b]
            paths[x.buffer] = same
        if isinstance(x, For | Block):
            path = [*path, x]
        for child in children(x):
            if not isinstance(child, BufferRegion):
                visit(child, path)

    (only,) = _funcs("detect_buffer_access_lca", func)
    visit(only.body, [])
    return {b: path[-1] if path else None for b, path in paths.items()}


def calculate_allocated_bytes(func: object) -> dict[str, dict[str, int]]:
    """Bytes of the buffers that each function allocates, by memory scope."""
    result: dict[str, dict[str, int]] = {}
    for f in _funcs("calculate_allocated_bytes", func):
        sizes: dict[str, int] = {}
        for x in preorder(f.body):
            own = x.alloc_buffers if isinstance(x, Block) else (x.buffer,) if isinstance(x, Allocate) else ()
            for b in own:
                n_bytes = int(np.prod(b.const_shape(), dtype=np.int64)) * _size_of(b.dtype)
                sizes[str(b.scope)] = sizes.get(str(b.scope), 0) + n_bytes
        result[str(f.attrs.get("global_symbol", "main"))] = sizes
    return result


def _size_of(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def has_if_then_else(stmt: Node) -> bool:
    """Whether a condition stands somewhere in it."""
    return any(type(x).__name__ == "IfThenElse" or getattr(x, "op", "") == "if_then_else" for x in preorder(stmt))


def is_pure_function(func: PrimFunc, assert_on_error: bool = False) -> bool:
    """Whether a function writes none of its arguments. Raises VerifyError where it does, with `assert_on_error`."""
    (only,) = _funcs("is_pure_function", func)
    own = set(only.buffers)
    pure = not any(isinstance(x, BufferStore) and x.buffer in own for x in preorder(only.body))
    if assert_on_error and not pure:
        raise VerifyError("the function writes its arguments", where=str(only.attrs.get("global_symbol", "")))
    return pure


def find_anchor_block(mod: IRModule) -> Block | None:
    """The reduction block of a module's functions with the most work; None where nothing reduces."""
    blocks = [b for f in _funcs("find_anchor_block", mod) for b in preorder(f.body) if isinstance(b, Block) and b.init]

    def work(block: Block) -> int:
        return int(np.prod([E.const_int(iv.dom.extent) or 1 for iv in block.iter_vars], dtype=np.int64))

    return max(blocks, key=work) if blocks else None


find_anchor_sblock = find_anchor_block


__getattr__, __dir__ = lazy_names(__name__)
