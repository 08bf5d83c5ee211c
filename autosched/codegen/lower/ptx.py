"""TVM's calls of PTX instructions in a script, as the instructions that the emitter knows.

    T.ptx_cp_async("float16", S.data, i, A.data, j, 16)   cp_async(S[i], A[j], 8 elements)
    T.ptx_ldmatrix(…), T.ptx_mma(…)                       ldmatrix(…), mma_sync(…) on places of registers
    T.mma_fill(…), T.mma_store(…)                         stores
    V[0] = V[0] + T.tvm_warp_shuffle_down(…)              the same with shuffle(…)
    T.tvm_storage_sync("shared"), ("warp")                barrier of the block, of the warp
    T.create_barriers(…), T.ptx_cp_async_bulk(…), …       those of mbarriers: see mbarriers.py

`A.data` and an offset are a place in the flattened buffer. That all elements from there on lie inside of it is proved
from the loops and conditions around, else the call is refused. What a warp does together may not stand under
conditions, or in loops, that its lanes do not go through together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from autosched.codegen.lower.barriers import SYNC, barrier
from autosched.codegen.lower.instructions import (
    BULK,
    COMMIT,
    COPY,
    COPY_BYTES,
    LDMATRIX,
    MBARRIERS,
    MMA,
    PLACES,
    SHUFFLE,
    WAIT,
    WARP_SYNC,
)
from autosched.codegen.lower.loops import COPIED_STAGES, WARP_STAGES, enter
from autosched.codegen.lower.mbarriers import CREATE, NUMBERS, Around, Mbarriers, instruction, number, unroll_numbers
from autosched.codegen.lower.software_pipeline import STAGE
from autosched.errors import CodegenError
from autosched.ir.node import map_children, preorder
from autosched.tir import expr as E
from autosched.tir import ptx
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Call, FloatImm, IntImm, PrimExpr, StringImm, Var, as_int, const_int
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import BufferStore, Evaluate, For, IfThenElse, LetStmt, LoopKind, SeqStmt, Stmt, While, seq

LANES = 32
BULK_BYTES = 16  # a bulk copy has a multiple of them
ALL_LANES = (0xFFFFFFFF, -1)

# the names of types in a call: (that of PTX, dtype of the registers' buffer)
_TYPES = {
    "fp16": ("f16", "float16"), "float16": ("f16", "float16"), "bf16": ("bf16", "bfloat16"),
    "bfloat16": ("bf16", "bfloat16"), "tf32": ("tf32", "float32"), "int8": ("s8", "int8"), "uint8": ("u8", "uint8"),
    "fp32": ("f32", "float32"), "float32": ("f32", "float32"), "int32": ("s32", "int32"),
}  # fmt: skip
# types of A and B: (k of the instructions, types of C)
_PRODUCTS = {
    "f16": ((8, 16), ("f32", "f16")), "bf16": ((8, 16), ("f32",)), "tf32": ((4, 8), ("f32",)),
    "s8": ((16, 32), ("s32",)), "u8": ((16, 32), ("s32",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoweredPtx:
    """A statement without blocks whose calls are instructions.

    addressed   the buffers that they address
    mbarriers   those of them that hold mbarriers, which no function declares
    """

    body: Stmt
    addressed: frozenset[Buffer] = frozenset()
    mbarriers: tuple[Buffer, ...] = ()


def lower_ptx(body: Stmt) -> LoweredPtx:
    """The statement with these calls as instructions.

    Raises CodegenError for what no instruction does, and for places that are not proved to be inside of their buffer.
    """
    if not any(isinstance(x, Call) and (x.op in ptx.FUNCTIONS or x.op in PLACES) for x in preorder(body)):
        return LoweredPtx(body)
    lowering = _Lowering()
    new = lowering.launches(unroll_numbers(body))
    asked = (x for s in preorder(new) for x in _asked(s))
    if found := [x.buffer.name for x in asked if isinstance(x, BufferLoad) and x.buffer in lowering.written]:
        raise CodegenError(
            f"a condition or a loop reads '{found[0]}', which an instruction writes by its pointer",
            hint="copy the element to another buffer first",
        )
    for loop in (n for n in preorder(new) if isinstance(n, For)):
        moved = not loop.annotations.keys().isdisjoint((STAGE, WARP_STAGES, COPIED_STAGES))
        moved = moved or loop.thread.startswith(("vthread", "cthread"))
        if moved and any(_is_instruction(x, lowering.addressed) for x in preorder(loop)):
            raise CodegenError(
                f"the loop '{loop.loop_var.name}' is of virtual threads or a pipeline, and has calls of T.ptx_*",
                hint="write what each iteration does into the script",
            )
    return LoweredPtx(new, frozenset(lowering.addressed), tuple(lowering.made))


def _is_instruction(x: object, addressed: set[Buffer]) -> bool:
    """Whether something is, or works on, what a script orders by itself."""
    if isinstance(x, BufferLoad | BufferStore):
        return x.buffer in addressed
    return isinstance(x, Call) and x.op in (COMMIT, WAIT, SHUFFLE, WARP_SYNC, SYNC, BULK, *MBARRIERS)


def _asked(stmt: object) -> Iterable[object]:
    """What is in the conditions and extents of a statement itself."""
    match stmt:
        case IfThenElse() | While():
            return preorder(stmt.condition)
        case For():
            return (*preorder(stmt.start), *preorder(stmt.extent))
        case LetStmt():
            return preorder(stmt.value)
    return ()


@dataclass(slots=True)
class _Lowering:
    addressed: set[Buffer] = field(default_factory=set)
    written: set[Buffer] = field(default_factory=set)
    lane: For | None = None  # the loop bound to threadIdx.x around
    varying: set[Var] = field(default_factory=set)  # what differs between the lanes of a warp
    diverges: str = ""  # why the lanes of a warp may not be here together
    in_vector: bool = False
    mbarriers: Mbarriers | None = None  # of the launch
    made: list[Buffer] = field(default_factory=list)  # buffers of mbarriers
    threads: tuple[For, ...] = ()  # the loops around that are bound to threadIdx
    differing: set[Var] = field(default_factory=set)  # what differs between the threads of a block
    parted: tuple[Hashable, ...] = ()  # what they part at
    serial: bool = False  # a loop that is not bound, or a condition, is around

    def launches(self, body: Stmt) -> Stmt:
        """The statement, nest by nest: each has mbarriers of its own."""
        if isinstance(body, SeqStmt):
            return seq(*map(self.launches, body.seq))
        self.mbarriers = Mbarriers.of(body)
        new = self.mbarriers.finish(self.visit(body, Analyzer()))
        if self.mbarriers.buffer is not None:
            self.made.append(self.mbarriers.buffer)
            self.addressed.add(self.mbarriers.buffer)
        return new

    def visit(self, stmt: Stmt, a: Analyzer) -> Stmt:
        match stmt:
            case For():
                return self.loop(stmt, a)
            case IfThenElse() if (taken := const_int(a.simplify(stmt.condition))) is not None:
                chosen = stmt.then_case if taken else stmt.else_case
                return SeqStmt(()) if chosen is None else self.visit(chosen, a)
            case IfThenElse():
                inner = a.copy()
                for condition in split_conditions(stmt.condition):
                    inner.assume(condition)
                self.plain(stmt.condition)
                around = self.serial, self.parted
                kept = self.enter_condition(stmt.condition)
                then = self.visit(stmt.then_case, inner)
                other = None
                if stmt.else_case is not None:
                    self.serial, self.parted = around
                    self.part(stmt.condition, side="else")
                    other = self.visit(stmt.else_case, a)
                self.diverges = kept
                self.serial, self.parted = around
                return replace(stmt, then_case=then, else_case=other)
            case While():
                kept, self.diverges = self.diverges, self.diverges or "in a 'while' loop"
                around = self.serial, self.parted
                self.part(stmt.condition)
                new = replace(stmt, body=self.visit(stmt.body, a))
                self.diverges = kept
                self.serial, self.parted = around
                return new
            case LetStmt():
                inner = a.copy()
                inner.bind(stmt.var, stmt.value)
                if self.varies(stmt.value):
                    self.varying.add(stmt.var)
                if self.differs(stmt.value):
                    self.differing.add(stmt.var)
                self.plain(stmt.value)
                return replace(stmt, body=self.visit(stmt.body, inner))
            case Evaluate(value=Call() as e) if e.op in ptx.FUNCTIONS:
                return self.call(e, a)
            case BufferStore():
                return self.store(stmt)
            case Evaluate():
                self.plain(stmt.value)
        return map_children(stmt, lambda c: self.visit(c, a) if isinstance(c, Stmt) else c)

    def loop(self, loop: For, a: Analyzer) -> Stmt:
        kept = self.diverges, self.in_vector, self.lane
        around = self.threads, self.serial, self.parted
        if self.varies(loop.start) or self.varies(loop.extent):
            self.diverges = f"in the loop '{loop.loop_var.name}', whose bounds differ between them"
        self.in_vector |= loop.kind is LoopKind.VECTORIZED
        if self.differs(loop.start) or self.differs(loop.extent) or not loop.thread:
            self.part(loop.start, loop.extent)
        if loop.thread == "threadIdx.x":
            self.lane = loop
            self.varying.add(loop.loop_var)
        if loop.thread.startswith("threadIdx"):
            self.threads = (*self.threads, loop)
            self.differing.add(loop.loop_var)
        new = replace(loop, body=self.visit(loop.body, enter(a, loop)))
        self.diverges, self.in_vector, self.lane = kept
        self.threads, self.serial, self.parted = around
        return new

    def enter_condition(self, condition: PrimExpr) -> str:
        """Note whether lanes part at a condition; what was known before."""
        kept = self.diverges
        if self.varies(condition):
            self.diverges = "under a condition that differs between them"
        self.part(condition)
        return kept

    def part(self, *conditions: PrimExpr, side: str = "") -> None:
        """Note that not all statements around run as often, and what the threads of a block part at."""
        self.serial = True
        if any(map(self.differs, conditions)):
            self.parted = (*self.parted, (side, *map(form_key, conditions)))

    def differs(self, e: PrimExpr) -> bool:
        """Whether threads of a block may have different values."""
        return bool(free_vars(e) & self.differing) or any(isinstance(x, BufferLoad) for x in preorder(e))

    def varies(self, e: PrimExpr) -> bool:
        """Whether lanes of a warp may have different values."""
        return bool(free_vars(e) & self.varying) or any(isinstance(x, BufferLoad) for x in preorder(e))

    def plain(self, e: PrimExpr) -> None:
        """Refuse the calls where they cannot stand."""
        for x in preorder(e):
            if isinstance(x, Call) and x.op in ptx.FUNCTIONS:
                where = 'in the value of a store to a "local" buffer' if x.op in ptx.SHUFFLES else "alone"
                raise CodegenError(f"T.{x.op} stands within an expression", hint=f"it is to stand {where}")

    def together(self, name: str) -> For:
        """The loop over lanes. Refuses what a warp does together where its lanes may not be together."""
        if self.lane is None or (const_int(self.lane.extent) or 1) % LANES or const_int(self.lane.start) != 0:
            raise CodegenError(f"T.{name} needs whole warps: a loop of a multiple of {LANES} bound to threadIdx.x")
        if self.diverges:
            raise CodegenError(f"T.{name}, which the lanes of a warp do together, stands {self.diverges}")
        return self.lane

    # --- values -------------------------------------------------------------------------------------------------

    def store(self, stmt: BufferStore) -> Stmt:
        for i in stmt.indices:
            self.plain(i)
        shuffles = [x for x in preorder(stmt.value) if isinstance(x, Call) and x.op in ptx.SHUFFLES]
        if not shuffles:
            self.plain(stmt.value)
            return stmt
        self.together(shuffles[0].op)
        branches = [x for x in preorder(stmt.value) if isinstance(x, E.Select) or _is_choice(x)]
        if stmt.buffer.scope != "local" or self.in_vector or branches:
            raise CodegenError(
                f'T.{shuffles[0].op} is to stand in the value of a store to a "local" buffer, outside of choices',
                hint='store what it gives into a buffer of scope "local" first',
            )
        value = rewrite(stmt.value, self.shuffle)
        self.plain(value)
        return replace(stmt, value=value)

    def shuffle(self, x: object) -> object:
        if not isinstance(x, Call) or x.op not in ptx.SHUFFLES:
            return x
        mask, value, lane, width, warp_size = x.args
        is_all = isinstance(mask, Call) and mask.op == "tvm_warp_activemask" or const_int(mask) in ALL_LANES
        n = const_int(width) or 0
        if not is_all or const_int(warp_size) != LANES or not 1 <= n <= LANES or n & (n - 1):
            raise CodegenError(
                f"T.{x.op} with the mask {mask}, {width} of {warp_size} lanes",
                hint="the mask is T.tvm_warp_activemask(), the width a power of two up to 32, the warp's size 32",
            )
        return Call(SHUFFLE, (IntImm(ptx.SHUFFLES[x.op]), value, E.cast("int32", lane), IntImm(n)), x.dtype)

    # --- effects ------------------------------------------------------------------------------------------------

    def call(self, e: Call, a: Analyzer) -> Stmt:
        """The statement that a call is."""
        if self.in_vector:
            raise CodegenError(f"T.{e.op} stands in a vectorized loop")
        assert self.mbarriers is not None, "they are the launch's"
        around = Around(self.threads, self.parted, self.serial, a)
        match e.op:
            case _ if e.op == CREATE:
                return self.mbarriers.create(e, around)
            case "ptx_cp_async_bulk":
                return self.bulk_copy(e, a, self.mbarriers.used(e, around))
            case _ if e.op in NUMBERS:
                return self.mbarriers.call(e, around)
            case "tvm_storage_sync":
                return self.sync(e)
            case "ptx_commit_group":
                return Evaluate(Call(COMMIT, (), "handle"))
            case "ptx_wait_group":
                return Evaluate(Call(WAIT, (IntImm(number(e, 0, "the number of groups")),), "handle"))
            case "ptx_cp_async":
                return self.copy(e, a)
            case "ptx_ldmatrix":
                return self.load_matrices(e, a)
            case "ptx_mma":
                return self.multiply(e, a)
            case "mma_fill":
                return self.fill(e, a)
            case "mma_store":
                return self.store_tile(e, a)
        raise CodegenError(f"T.{e.op} gives a value that is not used")

    def sync(self, e: Call) -> Stmt:
        scope = _text(e, 0)
        if scope in ("shared", "shared.dyn"):
            return barrier()
        if scope != "warp":
            raise CodegenError(
                f'T.tvm_storage_sync("{scope}")', hint='the scopes are "shared", "shared.dyn" and "warp"'
            )
        self.together(e.op)
        return Evaluate(Call(WARP_SYNC, (), "handle"))

    def copy(self, e: Call, a: Analyzer) -> Stmt:
        size, item = number(e, 4, "the number of bytes"), item_bytes(e.dtype)
        if size not in COPY_BYTES or size % item:
            raise CodegenError(f"T.ptx_cp_async of {size} bytes of {e.dtype}", hint="4, 8 or 16 bytes, whole elements")
        target = self.place(e, 0, e.dtype, ("shared", "shared.dyn"), size // item, a, writes=True)
        source = self.place(e, 2, e.dtype, ("global",), size // item, a)
        return Evaluate(Call(COPY, (target, source, IntImm(size // item), IntImm(1, "bool")), "handle"))

    def bulk_copy(self, e: Call, a: Analyzer, barrier: BufferLoad) -> Stmt:
        size, item = number(e, 4, "the number of bytes"), item_bytes(e.dtype)
        if not size or size % BULK_BYTES or size % item:
            raise CodegenError(
                f"T.{e.op} of {size} bytes of {e.dtype}", hint=f"a multiple of {BULK_BYTES} bytes, whole elements"
            )
        target = self.place(e, 0, e.dtype, ("shared", "shared.dyn"), size // item, a, writes=True)
        source = self.place(e, 2, e.dtype, ("global",), size // item, a)
        return instruction(BULK, target, source, IntImm(size // item), barrier)

    def load_matrices(self, e: Call, a: Analyzer) -> Stmt:
        self.together(e.op)
        trans, count = const_int(e.args[0]), number(e, 1, "the number of matrices")
        dtype = e.dtype
        if count not in (1, 2, 4) or _text(e, 2) != ".b16" or trans is None or (trans and item_bytes(dtype) != 2):
            raise CodegenError(
                f"T.ptx_ldmatrix of {count} matrices of {_text(e, 2)} as {dtype}",
                hint='1, 2 or 4 of ".b16", transposed only where elements have 16 bits',
            )
        per_word = 4 // item_bytes(dtype)
        target = self.place(e, 3, dtype, ("local",), count * per_word, a, writes=True)
        source = self.place(e, 5, dtype, ("shared", "shared.dyn"), 4 * per_word, a)
        return Evaluate(Call(LDMATRIX, (target, IntImm(count), IntImm(trans, "bool"), source), "handle"))

    def multiply(self, e: Call, a: Analyzer) -> Stmt:
        self.together(e.op)
        shape, a_layout, b_layout, *names = (_text(e, i) for i in range(6))
        kinds = [_TYPES.get(n, (n, ""))[0] for n in names]
        depths, sums = _PRODUCTS.get(kinds[0], ((), ()))
        depth = next((k for k in depths if shape == f"m16n8k{k}"), 0)
        if not depth or kinds[1] != kinds[0] or kinds[2] not in sums or (a_layout, b_layout) != ("row", "col"):
            known = [f"m16n8k{k} {t}, {'/'.join(c)}" for t, (ks, c) in _PRODUCTS.items() for k in ks]
            raise CodegenError(
                f"T.ptx_mma {shape} {a_layout} {b_layout} of {', '.join(names)}",
                hint=f"row and col, with types of A and B, of C: {'; '.join(known)}",
            )
        if const_int(e.args[12]) != 0 or len(e.args) > 13:
            raise CodegenError("T.ptx_mma with saturate or an operator", hint="pass False, and no operator")
        operands = [
            self.place(e, at, _TYPES[name][1], ("local",), n // LANES, a, writes=at == 10)
            for at, name, n in ((6, names[0], 16 * depth), (8, names[1], 8 * depth), (10, names[2], 16 * 8))
        ]
        kind = StringImm(f"{shape}.row.col.{kinds[2]}.{kinds[0]}.{kinds[1]}.{kinds[2]}")
        return Evaluate(Call(MMA, (kind, operands[2], operands[0], operands[1]), "handle"))

    def fill(self, e: Call, a: Analyzer) -> Stmt:
        count = number(e, 0, "the number of registers")
        buffer = self.place(e, 1, e.dtype, ("local",), count, a, writes=True).buffer
        zero = FloatImm(0.0, e.dtype) if "float" in e.dtype else IntImm(0, e.dtype)
        places = [_element(e.args[2], buffer, IntImm(i), a) for i in range(count)]
        return seq(*(BufferStore(buffer, zero, at) for at in places))

    def store_tile(self, e: Call, a: Analyzer) -> Stmt:
        lane = E.floormod(self.together(e.op).loop_var, LANES)
        if (number(e, 0, "m"), number(e, 1, "n")) != (16, 16):
            raise CodegenError("T.mma_store of another tile than 16 x 16")
        pointer, stride = e.args[2], number(e, 5, "the stride")
        offset: PrimExpr = IntImm(0)
        if isinstance(pointer, Call) and pointer.op == "tvm_access_ptr":
            _, pointer, offset, *_ = pointer.args
        whole = Call(e.op, (pointer, offset, *e.args[3:5]), e.dtype)
        scopes = ("global", "shared", "shared.dyn")
        to = self.place(whole, 0, e.dtype, scopes, 15 * stride + 16, a, writes=True).buffer
        source = self.place(whole, 2, e.dtype, ("local",), 8, a).buffer
        stores = []
        for i in range(8):
            row = E.add(E.floordiv(lane, 4), i % 4 // 2 * 8)
            column = E.add(E.mul(E.floormod(lane, 4), 2), i % 2 + i // 4 * 8)
            at = _element(offset, to, E.add(E.mul(row, stride), column), a)
            own = BufferLoad(source, _element(e.args[4], source, IntImm(i), a))
            stores.append(BufferStore(to, own, at))
        return seq(*stores)

    def place(
        self, e: Call, at: int, dtype: str, scopes: tuple[str, ...], count: int, a: Analyzer, writes: bool = False
    ) -> BufferLoad:
        """The first of `count` elements side by side at a pointer. Refuses what is not proved to be inside."""
        data, offset = e.args[at], e.args[at + 1]
        if not isinstance(data, BufferData):
            raise CodegenError(f"T.{e.op}: argument {at} is no memory of a buffer", hint="pass X.data of a buffer X")
        buffer = data.buffer
        if buffer.scope not in scopes or buffer.dtype != dtype:
            raise CodegenError(
                f"T.{e.op} of {dtype} addresses the {buffer.dtype} buffer '{buffer.name}' of scope \"{buffer.scope}\"",
                hint=f"it is to be {dtype} of scope {' or '.join(scopes)}",
            )
        if buffer.strides or buffer.ndim == 0:
            raise CodegenError(f"T.{e.op} addresses '{buffer.name}', which has strides or no dimensions")
        self.plain(offset)
        size = 1
        for extent in buffer.shape:
            size *= const_int(extent) or 0
        low, high = a.bound(offset)
        if not size or low is None or high is None or low < 0 or high + count > size:
            raise CodegenError(
                f"T.{e.op} uses {count} elements of '{buffer.name}' from {offset} on, which is not proved to be inside "
                f"of its {size or 'unknown number of'} elements",
                hint="make the offset a sum of loop variables of known extents, or bound it by a condition around",
            )
        self.addressed.add(buffer)
        if writes:
            self.written.add(buffer)
        offset = a.simplify(E.cast(buffer.shape[-1].dtype, offset))
        return BufferLoad(buffer, _indices(buffer, offset, count, a) or _flat(buffer, offset))


def _flat(buffer: Buffer, offset: PrimExpr) -> tuple[PrimExpr, ...]:
    """Indices with the whole offset as the last one, which lead to the same address."""
    return (*(IntImm(0, s.dtype) for s in buffer.shape[:-1]), offset)


def _indices(buffer: Buffer, offset: PrimExpr, count: int, a: Analyzer) -> tuple[PrimExpr, ...] | None:
    """The indices of an offset; None where they take divisions of their own, or the elements are in several rows."""
    found: list[PrimExpr] = []
    rest = offset
    for extent in reversed(buffer.shape[1:]):
        found.insert(0, a.simplify(E.floormod(rest, E.cast(rest.dtype, extent))))
        rest = a.simplify(E.floordiv(rest, E.cast(rest.dtype, extent)))
    found.insert(0, rest)
    divisions = {form_key(x) for x in preorder(offset) if isinstance(x, E.FloorDiv | E.FloorMod)}
    new = (x for i in found for x in preorder(i) if isinstance(x, E.FloorDiv | E.FloorMod))
    _, high = a.bound(found[-1])
    if any(form_key(x) not in divisions for x in new) or high is None or high + count > as_int(buffer.shape[-1]):
        return None
    return tuple(found)


def _element(first: PrimExpr, buffer: Buffer, offset: PrimExpr, a: Analyzer) -> tuple[PrimExpr, ...]:
    """The indices of the element `offset` behind a place of the flattened buffer."""
    whole = a.simplify(E.add(first, E.cast(first.dtype, offset)))
    return _indices(buffer, whole, 1, a) or _flat(buffer, whole)


def _is_choice(x: object) -> bool:
    return isinstance(x, Call) and x.op == "if_then_else"


def _text(e: Call, at: int) -> str:
    value = e.args[at]
    if not isinstance(value, StringImm):
        raise CodegenError(f"T.{e.op}: argument {at} is {value}", hint="it is to be a string")
    return value.value
