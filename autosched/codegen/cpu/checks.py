"""Checks in kernels: positions and accesses that are seen to be in range while the kernel runs.

Accesses that are proved to stay inside of their buffers need none; those of a build with `checks=True` all have one.
A kernel with checks gets one more address after its scratch block: two words for each of its checks, of which the
first becomes 1 and the second the number that was out of range. Nothing is written while all is well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Emitter, Guard
from autosched.codegen.cpu.text import show
from autosched.codegen.cpu.types import I64, constant, lanes_of, splat
from autosched.codegen.lower.asserts import ASSERT
from autosched.codegen.lower.phases import LoweredPhase
from autosched.codegen.lower.prove import Indices, unproved
from autosched.errors import CodegenError
from autosched.ir.node import Node, children, preorder
from autosched.runtime.kernel import OPEN, Check
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.checked_index import CHECK_INDEX
from autosched.tir.expr import Var, as_int, const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.simplify import form_key
from autosched.tir.stmt import BufferStore, For, IfThenElse, LetStmt, Stmt, While

SELDOM = (1, 1 << 20)  # branch weights: a check that fails, and one that holds


@dataclass(slots=True)
class Checks:
    """The checks of one kernel, numbered in the order in which they are found.

    guards  of accesses, by the id of their tuple of indices, with the tuple, so that the id stays its own
    """

    numbers: dict[Check, int] = field(default_factory=dict)
    guards: dict[int, tuple[Indices, tuple[Guard, ...]]] = field(default_factory=dict)

    def add(self, check: Check) -> int:
        """The check's number."""
        return self.numbers.setdefault(check, len(self.numbers))

    def guard(self, buffer: Buffer, indices: Indices, axis: int, is_store: bool) -> None:
        """See that an access stays inside of one of its buffer's dimensions."""
        place = f"{buffer.name}[{', '.join(map(show, indices))}]"
        what = f"{'store to' if is_store else 'load of'} {place}, dimension {axis}"
        extent = buffer.shape[axis]
        high = const_int(extent)
        if high is None:
            what, high = f"{what} of size {show(extent)}", OPEN
        check = Check(what, 0, high, is_access=True)
        kept = self.guards.get(id(indices), (indices, ()))[1]
        if axis not in (guard.axis for guard in kept):
            self.guards[id(indices)] = (indices, (*kept, Guard(axis, check, extent)))

    def guards_of(self, node: BufferLoad | BufferStore) -> tuple[Guard, ...]:
        """The guards of a load or store."""
        return self.guards[id(node.indices)][1] if id(node.indices) in self.guards else ()

    def of(self, stmt: Stmt) -> dict[Check, int]:
        """The checks in a statement, with their numbers."""
        found: list[Check] = []
        for node in preorder(stmt):
            if isinstance(node, E.Call) and node.op in (CHECK_INDEX, ASSERT):
                found.append(check_of(node))
            elif self.guards and isinstance(node, BufferLoad | BufferStore):
                found += [guard.check for guard in self.guards_of(node)]
        return {check: self.add(check) for check in found}

    @staticmethod
    def every(phases: Iterable[LoweredPhase]) -> Checks:
        """Guards for all dimensions of all accesses."""
        checks = Checks()
        for node in (n for phase in phases for n in preorder(phase.body)):
            if isinstance(node, BufferLoad | BufferStore):
                for axis in range(len(node.indices)):
                    checks.guard(node.buffer, node.indices, axis, isinstance(node, BufferStore))
        return checks

    @staticmethod
    def needed(phases: Sequence[LoweredPhase]) -> Checks:
        """Guards for what cannot be proved to stay inside. Raises CodegenError for what surely does not."""
        checks = Checks()
        for access in unproved(phases):
            as_int(access.buffer.shape[access.axis])  # one that is open is to be proved
            checks.guard(access.buffer, access.indices, access.axis, access.is_store)
            if access.is_certain:
                (*_, last) = checks.guards[id(access.indices)][1]
                values = access.low if access.low == access.high else f"from {access.low} to {access.high}"
                raise CodegenError(
                    f"{last.check.what}: the index is {values}, out of range [0, {last.check.high})",
                    hint="make the loop shorter, the buffer larger, or put the access under a condition",
                )
        return checks


def check_of(call: E.Call) -> Check:
    """What a call of `check_index` or `assert_holds` checks."""
    what = call.args[-1]
    assert isinstance(what, E.StringImm), "they end with a message"
    if call.op == ASSERT:
        return Check(what.value, 0, 0, is_assert=True)
    low, high = const_int(call.args[1]), const_int(call.args[2])
    if low is None or high is None:  # sizes that come with the call
        return Check(f"{what.value} of size {show(call.args[2])}", 0 if low == 0 else -1, OPEN)
    return Check(what.value, low, high)


def emit_guards(emitter: Emitter, indices: Indices) -> None:
    """Leave the tile, and report it, where an access would leave its buffer."""
    for guard in emitter.guards[id(indices)][1]:
        at = emitter.index(indices[guard.axis])
        numbers = emitter.table(at)
        lanes = emitter.mask if isinstance(emitter.mask, int) else None
        if numbers is not None and all(0 <= n < guard.check.high for n in numbers[:lanes]):
            continue
        value = emitter.vector(at) if not isinstance(at, Affine) or at.lane else emitter.scalar(at)
        if guard.check.high == OPEN:
            value = _wide(emitter, value)
            high: ir.Value = splat(emitter.builder, _size(emitter, guard.extent), lanes_of(value))
        else:
            high = constant(value.type, guard.check.high)
        bad = emitter.builder.icmp_unsigned(">=", value, high)
        report(emitter, bad, value, emitter.checks[guard.check])


def emit_check_index(emitter: Emitter, call: E.Call) -> ir.Value:
    """The position, from the front; 0 where it is out of range, which is reported.

    Along a dimension of an open size that is 0 in a call the tile ends instead: there is no position 0.
    """
    check, b = check_of(call), emitter.builder
    key = _key(emitter, call)
    known = None if key is None else emitter.known(key)
    if known is not None:
        return known
    value = _wide(emitter, emitter.value(call.args[0]), call.args[0].dtype)
    kind = value.type
    index, extent = value, None
    if check.high == OPEN:
        extent = _size(emitter, call.args[2])
        size = splat(b, extent, lanes_of(value))
    else:
        size = constant(kind, check.high)
    if check.low < 0:
        from_end = b.icmp_signed("<", value, constant(kind, 0))
        index = b.select(from_end, b.add(value, size), value)
    bad = b.icmp_unsigned(">=", index, size)
    safe = report(emitter, bad, value, emitter.checks[check], index, extent)
    return safe if key is None else emitter.remember(key, safe)


def emit_assert(emitter: Emitter, call: E.Call) -> None:
    """Leave the tile, and report it, where a condition does not hold."""
    truth = emitter.value(call.args[0])
    if isinstance(truth, ir.Constant) and lanes_of(truth) == 1 and truth.constant:
        return
    report(emitter, emitter.builder.not_(truth), I64(0), emitter.checks[check_of(call)])


def _wide(emitter: Emitter, value: ir.Value, dtype: str = "int64") -> ir.Value:
    """An integer in 64 bits, whatever the type of indices is: no number out of range becomes one in range."""
    if isinstance(value, ir.Constant) and lanes_of(value) == 1:
        return I64(int(value.constant))
    return emitter.resize(value, I64, dtype.startswith("int"))


def _size(emitter: Emitter, size: E.PrimExpr) -> ir.Value:
    """A size that comes with the call, which is the same in all lanes."""
    value = _wide(emitter, emitter.value(size))
    return value if lanes_of(value) == 1 else emitter.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


def _key(emitter: Emitter, call: E.Call) -> Hashable:
    """What a check is remembered by; None where something that it reads may change."""
    if not all(emitter.places[load.buffer].read_only for load in loads(call)):
        return None
    used = dict.fromkeys(x for x in preorder(call) if isinstance(x, Var))
    known = tuple(emitter.env.get(v) for v in used)
    values = tuple((v.const, v.key, v.lane) if isinstance(v, Affine) else id(v) for v in known)
    key = "checked", form_key(call), values
    if all(isinstance(v, Affine) and not v.lane for v in known) and emitter.known(key) is not None:
        return key  # hoisted: the same in all lanes
    return key if emitter.lanes == 1 and emitter.mask is None else (*key, emitter.lanes, emitter.mask_key())


def hoist_checks(emitter: Emitter, loop: For) -> None:
    """Emit the checks before a loop that all of its iterations share, so that they run once."""
    if not emitter.checks or emitter.lanes != 1:
        return
    for call in _always_checked(loop):
        if _key(emitter, call) is not None:
            emit_check_index(emitter, call)


def _always_checked(stmt: Node, bound: frozenset[Var] = frozenset()) -> Iterator[E.Call]:
    """The `check_index` calls that are evaluated whenever the statement runs, with values known before it."""
    if isinstance(stmt, For):
        if (const_int(stmt.extent) or 0) > 0:
            yield from _always_checked(stmt.body, bound | {stmt.loop_var})
        return
    if isinstance(stmt, IfThenElse | While | LetStmt | E.Let | E.Select | E.And | E.Or):
        return
    if isinstance(stmt, E.Call) and stmt.op == "if_then_else":
        return
    if isinstance(stmt, E.Call) and stmt.op == CHECK_INDEX and not free_vars(stmt) & bound:
        yield stmt
        return
    for child in children(stmt):
        if not isinstance(child, Buffer):
            yield from _always_checked(child, bound)


def report(
    emitter: Emitter, bad: ir.Value, value: ir.Value, number: int, index: ir.Value | None = None,
    extent: ir.Value | None = None,
) -> ir.Value | None:  # fmt: skip
    """Note a value that is out of range in a lane that takes part.

    index    what is used where all is well; gives it with 0 in the lanes that are out of range
    None     the tile ends instead
    extent   so does it where this is 0
    """
    b = emitter.builder
    lanes = max(lanes_of(bad), lanes_of(value))
    if lanes > 1:
        bad, value = splat(b, bad, lanes), splat(b, value, lanes)
        mask = emitter.mask_vector()
        counts = bad if mask is None else b.and_(bad, mask)
        anything = emitter.any_of(counts)
    else:
        counts = bad
        anything = bad if emitter.mask is None or isinstance(emitter.mask, int) else b.and_(bad, emitter.any_lane())
    before, function = b.block, b.function
    wrong, fine = function.append_basic_block("out_of_range"), function.append_basic_block("in_range")
    b.cbranch(anything, wrong, fine).set_weights(SELDOM)
    b.position_at_end(wrong)
    if lanes > 1:
        value = emitter.first_of(counts, value)
    for word, content in ((2 * number, I64(1)), (2 * number + 1, _wide(emitter, value))):
        emitter.note(word, content)
    if index is None:
        b.ret_void()
        b.position_at_end(fine)
        return None
    if extent is not None:
        empty, wrong = function.append_basic_block("empty"), function.append_basic_block("not_empty")
        b.cbranch(b.icmp_unsigned("==", extent, I64(0)), empty, wrong)
        b.position_at_end(empty)
        b.ret_void()
        b.position_at_end(wrong)
    safe = b.select(bad, constant(index.type, 0), index)
    b.branch(fine)
    b.position_at_end(fine)
    result = b.phi(index.type)
    result.add_incoming(index, before)
    result.add_incoming(safe, wrong)
    return result
