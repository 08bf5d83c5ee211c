"""Functions that return a number (`T.ret`): the kernel stores it in an array of shape (), which the call reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, preorder
from autosched.tir import PrimFunc
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Call, PrimExpr, Var
from autosched.tir.stmt import BlockRealize, BufferStore, Evaluate, IfThenElse, LetStmt, SeqStmt, Stmt

if TYPE_CHECKING:
    from autosched.driver.build.symbolic import Runs

RET = "ret"


def returns_value(func: PrimFunc) -> bool:
    """Whether a function has a `T.ret`."""
    return any(isinstance(x, Call) and x.op == RET for x in preorder(func.body))


def with_result_buffer(func: PrimFunc) -> PrimFunc:
    """The function with a last parameter, a buffer of shape (), that what it returns is stored in.

    Raises CodegenError where something follows a `T.ret`, where a path has none, and where their dtypes differ.
    """
    dtypes = {x.args[0].dtype for x in preorder(func.body) if isinstance(x, Call) and x.op == RET}
    if len(dtypes) > 1:
        raise CodegenError(f"a function returns values of {' and '.join(sorted(dtypes))}", hint="cast one of them")
    result = Buffer("result", (), dtypes.pop())
    param = Var("var_result", "handle")
    body = _stored(func.body, result)
    if any(isinstance(x, Call) and x.op == RET for x in preorder(body)):
        raise _misplaced()
    mapped = FrozenDict({**func.buffer_map, param: result})
    return dataclasses.replace(func, params=(*func.params, param), buffer_map=mapped, body=body, ret_type=None)


def _stored(stmt: Stmt | None, result: Buffer) -> Stmt:
    """A statement that ends with returning as one that ends with storing."""
    match stmt:
        case Evaluate(value=Call(op="ret", args=(value,))):
            return BufferStore(result, _checked(value), ())
        case SeqStmt(seq=(*before, last)):
            return SeqStmt((*before, _stored(last, result)))
        case IfThenElse():
            then, other = _stored(stmt.then_case, result), _stored(stmt.else_case, result)
            return dataclasses.replace(stmt, then_case=then, else_case=other)
        case LetStmt():
            return dataclasses.replace(stmt, body=_stored(stmt.body, result))
        case BlockRealize(block=block) if not block.iter_vars:
            return dataclasses.replace(stmt, block=dataclasses.replace(block, body=_stored(block.body, result)))
        case _:
            raise _misplaced()


def _checked(value: PrimExpr) -> PrimExpr:
    if value.dtype in ("handle", "void"):
        raise CodegenError(f"T.ret of a {value.dtype}", hint="numbers can be returned")
    return value


def _misplaced() -> CodegenError:
    return CodegenError(
        "T.ret stands where other statements may follow",
        hint="let the function, or both branches of its last condition, end with it",
    )


class ReturningFunction:
    """A function that gives a number; called with the arguments that the source declares."""

    def __init__(self, name: str, func: PrimFunc, function: Runs):
        """Make it of the function as written and the built one, which takes an array for the result as well."""
        self.name, self.func, self._function = name, func, function
        self._dtype = next(x.args[0].dtype for x in preorder(func.body) if isinstance(x, Call) and x.op == RET)

    @property
    def source(self) -> str:
        """The function as text."""
        return self.func.script()

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        names = [self.func.buffer_map[p].name if p in self.func.buffer_map else p.name for p in self.func.params]
        return f"{self.name}({', '.join(names)}) -> {self._dtype}"

    def __call__(self, *args: object) -> float:
        """Run on the arguments; give a Python number."""
        return self.run(args, 1)

    def run(self, args: Sequence[object], number: int) -> float:
        """Run `number` times; gives what the last one returned."""
        result = np.zeros((), self._dtype)
        self._function.run([*args, result], number)
        value: float = result.item()
        return value

    def __repr__(self) -> str:
        return f"<autosched.driver.ReturningFunction {self.signature}>"
