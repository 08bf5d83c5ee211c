"""The loop level: expressions, statements, PrimFunc."""

from typing import TYPE_CHECKING

from autosched.lazy_names import lazy_names
from autosched.tir.axis import OPAQUE, REDUCE, SCAN, SPATIAL, CommReducer, IterVar, Range, Reduce
from autosched.tir.buffer import Buffer, BufferLoad, ProducerLoad
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Call,
    Cast,
    CmpOp,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    SizeVar,
    StringImm,
    Sub,
    Var,
    all_of,
    any_of,
    as_int,
    call,
    cast,
    const,
    const_int,
    floordiv,
    floormod,
    if_then_else,
    indexdiv,
    indexmod,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
    to_expr,
    truncdiv,
    truncmod,
)
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.stmt import (
    Allocate, AssertStmt, Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, IfThenElse, LetStmt, LoopKind,
    MatchBufferRegion, SeqStmt, Stmt, While, seq,
)  # fmt: skip
from autosched.tir.index_map import IndexMap
from autosched.tir.interpret import interpret
from autosched.tir.schedule import BlockRV, ExprRV, LoopRV, Schedule, Trace

from autosched.tir.buffer import decl_buffer
from autosched.tir.calls import *  # noqa: F403
from autosched.tir.ptx import (
    mma_fill, mma_store, ptx_commit_group, ptx_cp_async, ptx_ldmatrix, ptx_mma, ptx_wait_group, tvm_storage_sync,
    tvm_warp_activemask, tvm_warp_shuffle, tvm_warp_shuffle_down, tvm_warp_shuffle_up, tvm_warp_shuffle_xor,
)  # fmt: skip

ForKind = LoopKind  # TVM's name

if not TYPE_CHECKING:  # to a reader of types the names are the classes; called, they are TVM's constructors
    from autosched.tir.construct import CONSTRUCTORS as _CONSTRUCTORS

    globals().update(_CONSTRUCTORS)

__getattr__, __dir__ = lazy_names(__name__)
