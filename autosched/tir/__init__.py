"""The loop level: expressions, statements, PrimFunc."""

from autosched.tir.expr import (
    EQ, GE, GT, LE, LT, NE, OPAQUE, REDUCE, SCAN, SPATIAL, Add, And, BinaryOp, Buffer, BufferLoad, Call, Cast, CmpOp,
    CommReducer, Div, FloatImm, FloorDiv, FloorMod, IntImm, IterVar, Let, Max, Min, Mod, Mul, Not, Or, PrimExpr,
    ProducerLoad, Range, Reduce, Select, SizeVar, StringImm, Sub, Var, all_of, any_of, as_int, call, cast, const,
    const_int, floordiv, floormod, if_then_else, indexdiv, indexmod, is_float, is_int, logical_and, logical_not,
    logical_or, maximum, minimum, select, to_expr, truncdiv, truncmod,
)
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.stmt import (
    Allocate, AssertStmt, Block, BlockRealize, BufferRegion, BufferStore, Evaluate, For, IfThenElse, LetStmt, LoopKind,
    MatchBufferRegion, SeqStmt, Stmt, While, seq,
)  # fmt: skip
from autosched.tir.index_map import IndexMap
from autosched.tir.interpret import interpret
from autosched.tir.schedule import BlockRV, ExprRV, LoopRV, Schedule, Trace
