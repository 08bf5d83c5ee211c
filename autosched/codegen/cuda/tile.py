"""Emits the statements that one thread runs as LLVM IR for NVVM: the CPU's emitter with a GPU's memory and lanes.

A vectorised loop becomes vectors of at most 128 bits, which are loaded and stored by one instruction where the address
is proven to be aligned. Arithmetic of vectors is arithmetic of their lanes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Place
from autosched.codegen.cpu.index import Index, strides_of
from autosched.codegen.cpu.tile import Tile, TileEmitter
from autosched.codegen.cpu.types import (
    BYTES,
    I8,
    I32,
    I64,
    VOID,
    Isa,
    call_intrinsic,
    constant,
    is_signed,
    lanes_of,
    memory_type,
    splat,
    value_type,
)  # fmt: skip
from autosched.codegen.cuda.functions import device_function
from autosched.codegen.cuda.instructions import (
    ATOMIC_ADDS,
    atomic_add,
    bulk_copy,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    ldmatrix,
    mma,
    mma_words,
    to_tf32,
)
from autosched.codegen.cuda.nvvm_builder import NvvmBuilder
from autosched.codegen.cuda.warpgroup import emit_warpgroup
from autosched.codegen.cuda.warpgroup_chain import emit_chain
from autosched.codegen.lower.barriers import SYNC
from autosched.codegen.lower.cross_thread import COMBINE, WARP, is_lane_reduction
from autosched.codegen.lower.fragments import TO_TF32
from autosched.codegen.lower.instructions import (
    BULK,
    COMMIT,
    COPY,
    LDMATRIX,
    MMA,
    SHUFFLE,
    TURN_WORDS,
    WAIT,
    WARP_SYNC,
)
from autosched.codegen.lower.loops import ADDRESS_FIRST
from autosched.codegen.lower.software_pipeline import ROLLED
from autosched.codegen.lower.warpgroup_chain import CHAIN_OPERATIONS
from autosched.codegen.lower.warpgroups import OPERATIONS
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_float, is_int, item_bytes
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.simplify import form_key
from autosched.tir.stmt import Allocate, BufferStore, For, IfThenElse

T = TypeVar("T")
VECTOR_BYTES = 16  # the most that one instruction loads or stores
SHARED_SPACE = 3  # the address space of a block's memory
GLOBAL_SPACE = 1
SHARED_ALIGNMENT = 1024  # of a block's memory: copies of boxes permute pieces by addresses
_UP, _XOR = 1, 3  # modes of `shfl.sync`
MOST_OFFSET = (1 << 23) - 1  # bytes that an instruction adds to an address
ISA = Isa(8 * VECTOR_BYTES, has_fma=True, num_registers=255)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTile(Tile):
    """A tile of a launch: shared buffers are no arguments, but places in the block's memory.

    shared   offsets in bytes of the shared buffers
    memory   the symbol of the block's memory; `memory_bytes` 0 where its size is given at the launch
    block    threads of a block along x, y and z
    """

    shared: Mapping[Buffer, int] = field(default_factory=dict)
    memory: str = ""
    memory_bytes: int = 0
    block: tuple[int, int, int] = (1, 1, 1)


class _TooWide(Exception):
    """An index may not fit into 32 bits."""


def define_device_tile(module: ir.Module, tile: DeviceTile) -> ir.Function:
    """The LLVM function of a tile, (buffers…, variables…) -> nothing, added to `module` unless it is there."""
    found = module.globals.get(tile.name)
    if found is not None:
        return found
    status = [BYTES] if tile.checks else []
    kinds = [BYTES] * len(tile.buffers) + [I32] * len(tile.variables) + status
    function = ir.Function(module, ir.FunctionType(VOID, kinds), tile.name)
    function.linkage = "internal"
    for attribute in ("alwaysinline", "nounwind"):
        function.attributes.add(attribute)
    names = [f"{b.name}.p" for b in tile.buffers] + [v.name for v in tile.variables] + ["status"] * len(status)
    for i, (argument, name) in enumerate(zip(function.args, names, strict=True)):
        argument.name = name
        if tile.no_alias and i < len(tile.buffers) and i not in tile.aliased:
            argument.add_attribute("noalias")
    large = any(_elements(n.buffer) >= 1 << 31 for n in preorder(tile.stmt) if isinstance(n, BufferLoad | BufferStore))
    try:
        _emit_body(function, tile, I64 if large else I32)
    except _TooWide:
        _emit_body(function, tile, I64)
    return function


def _elements(buffer: Buffer) -> int:
    return math.prod(const_int(s) or 1 for s in buffer.shape)


def _emit_body(function: ir.Function, tile: DeviceTile, index_type: ir.Type) -> None:
    function.blocks.clear()
    entry = function.append_basic_block("entry")
    body = function.append_basic_block("body")
    emitter = DeviceEmitter(NvvmBuilder(body), ISA, tile.analyzer)
    emitter.index_type, emitter.block = index_type, tile.block
    emitter.begin(frozenset())
    emitter.entry = NvvmBuilder(entry)
    written = {n.buffer for n in preorder(tile.stmt) if isinstance(n, BufferStore)}
    arguments = list(function.args)
    emitter.checks, emitter.guards = tile.checks, tile.guards
    emitter.status = emitter.builder.bitcast(arguments.pop(), I64.as_pointer()) if tile.checks else None
    for var, argument in zip(tile.variables, arguments[len(tile.buffers) :], strict=True):
        emitter.env[var] = emitter.atom(emitter.resize(argument, index_type))  # strides may be made of them
    for i, (buffer, argument) in enumerate(zip(tile.buffers, arguments)):
        read_only = buffer not in written and i not in tile.aliased
        emitter.declare(buffer, argument, read_only)
    for buffer, at in tile.shared.items():
        emitter.declare_shared(buffer, tile, at)
    emitter.emit(tile.stmt)
    emitter.builder.ret_void()
    emitter.entry.branch(body)


def shared_symbol(module: ir.Module, symbol: str, size: int) -> ir.GlobalVariable:
    """The block's shared memory: `size` bytes, or with 0 as many as the launch asks for."""
    found = module.globals.get(symbol)
    if found is None:
        kind = ir.ArrayType(I8, size)
        found = ir.GlobalVariable(module, kind, symbol, addrspace=SHARED_SPACE)
        found.align = SHARED_ALIGNMENT
        if size:
            found.linkage = "internal"
            found.initializer = ir.Constant(kind, ir.Undefined)
        else:
            found.linkage = "external"
    return found


class DeviceEmitter(TileEmitter):
    """The CPU's emitter of tiles, for the memory, the lanes and the instructions of a GPU."""

    builder: ir.IRBuilder
    block: tuple[int, int, int]  # threads of a block

    # --- checks -------------------------------------------------------------------------------------------------

    def any_of(self, truths: ir.Value) -> ir.Value:
        lanes = [self.builder.extract_element(truths, I32(lane)) for lane in range(lanes_of(truths))]
        return functools.reduce(self.builder.or_, lanes)

    def first_of(self, truths: ir.Value, values: ir.Value) -> ir.Value:
        b, first = self.builder, None
        for lane in reversed(range(lanes_of(truths))):
            value = b.extract_element(values, I32(lane))
            first = value if first is None else b.select(b.extract_element(truths, I32(lane)), value, first)
        return first

    def note(self, word: int, content: ir.Value) -> None:
        place = self.builder.gep(self.status, [I64(word)], inbounds=True)
        self.builder.atomic_rmw("xchg", place, content, "monotonic")

    # --- memory -------------------------------------------------------------------------------------------------

    def declare_shared(self, buffer: Buffer, tile: DeviceTile, at: int) -> None:
        """A buffer in the block's memory."""
        memory = shared_symbol(self.builder.module, tile.memory, tile.memory_bytes)
        start = self.entry.gep(memory, [I32(0), I32(at)], inbounds=True)
        pointer = self.entry.bitcast(start, memory_type(buffer.dtype).as_pointer(SHARED_SPACE), name=buffer.name)
        self.places[buffer] = Place(pointer, tuple(strides_of(buffer)), False, False)

    def allocate(self, stmt: Allocate) -> None:
        """Registers of the thread: an array that LLVM splits up, since all its indices are constants."""
        found = self.slots.get(id(stmt))
        if found is not None:
            self.places[stmt.buffer] = found[1]
            return
        buffer = stmt.buffer
        strides = strides_of(buffer)
        size = _elements(buffer)
        slot = self.entry.alloca(ir.ArrayType(memory_type(buffer.dtype), size), name=buffer.name)
        slot.align = VECTOR_BYTES
        pointer = self.entry.bitcast(slot, memory_type(buffer.dtype).as_pointer())
        self.places[buffer] = Place(pointer, tuple(strides), True, False)
        self.slots[id(stmt)] = (stmt, self.places[buffer])

    def row_bytes(self, place: Place, at: Affine, item: int) -> int:
        """How well an address is proven to be aligned, at most to a whole vector."""
        return math.gcd(VECTOR_BYTES, item * math.gcd(at.const, *(c for _, c, _ in at.terms)))

    def raw_load(self, dtype: str, place: Place, at: Index) -> ir.Value:
        value = super().raw_load(dtype, place, at)
        return self.constant_load(value, place)

    def constant_load(self, value: ir.Value, place: Place) -> ir.Value:
        """Tell LLVM that nobody writes what is loaded: such loads go through the read-only cache."""
        if place.read_only and isinstance(value, ir.LoadInstr):
            value.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return value

    def load_row(self, dtype: str, place: Place, at: Affine, align: int) -> ir.Value:
        vector = memory_type(dtype, self.lanes)
        align = self.row_bytes(place, at, align)
        start = self.address(place, at.without_lane())
        if place.is_local:
            return self.local_row(place, at, vector)
        words = _words(vector, align)
        pointer = self.builder.bitcast(start, words.as_pointer(place.pointer.type.addrspace))
        loaded = self.constant_load(self.builder.load(pointer, align=align), place)
        return loaded if words is vector else self.builder.bitcast(self.whole(loaded), vector)

    def whole(self, words: ir.Value) -> ir.Value:
        """Words that libnvvm does not take for the elements in them: it would move these one by one, or by twos."""
        move = ir.InlineAsm(ir.FunctionType(I32, [I32]), "mov.b32 $0, $1;", "=r,r")
        if not isinstance(words.type, ir.VectorType):
            return words
        result = ir.Constant(words.type, ir.Undefined)
        for n in range(words.type.count):
            word = self.builder.extract_element(words, I32(n))
            word = self.builder.call(move, [word], attrs=("nounwind", "readnone"))
            result = self.builder.insert_element(result, word, I32(n))
        return result

    def local_row(self, place: Place, at: Affine, vector: ir.Type) -> ir.Value:
        """Registers side by side, as a vector."""
        result = ir.Constant(vector, ir.Undefined)
        for lane in range(self.lanes):
            element = self.builder.load(self.address(place, Affine(at.const + lane, at.terms)))
            result = self.builder.insert_element(result, element, I32(lane))
        return result

    def store_row(self, buffer: Buffer, value: ir.Value, at: Affine, align: int) -> None:
        place = self.places[buffer]
        if place.is_local:
            for lane in range(self.lanes):
                element = self.builder.extract_element(value, I32(lane))
                self.builder.store(element, self.address(place, Affine(at.const + lane, at.terms)))
            return
        align = self.row_bytes(place, at, align)
        words = _words(value.type, align)
        if words is not value.type:
            value = self.whole(self.builder.bitcast(value, words))
        pointer = self.builder.bitcast(
            self.address(place, at.without_lane()), words.as_pointer(place.pointer.type.addrspace)
        )
        self.builder.store(value, pointer, align=align)

    def load_or_zero(self, condition: ir.Value, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> ir.Value | None:
        """A branch is as cheap as a chosen address."""
        return None

    # --- indices ------------------------------------------------------------------------------------------------

    def require_narrow(self, *expressions: PrimExpr) -> None:
        """See that values fit into the index type, where the result depends on more than their lowest bits."""
        if self.index_type.width == 64:
            return
        for e in expressions:
            low, high = self.analyzer.bound(e)
            if low is None or high is None or low < -(1 << 30) or high >= 1 << 30:
                raise _TooWide

    def index(self, e: PrimExpr) -> Index:
        if self.index_type.width < 64 and not isinstance(e, E.IntImm) and not self.is_pure(e):
            if isinstance(e, E.FloorDiv | E.FloorMod | E.Div | E.Mod | E.Min | E.Max):
                return self.from_value(self.value(e), e.dtype)
        return super().index(e)

    def index_value(self, e: PrimExpr) -> ir.Value:
        if e.dtype in ("int64", "uint64", "uint32"):
            self.require_narrow(e)
        return super().index_value(e)

    def division(self, e: E.BinaryOp) -> Index:
        self.require_narrow(e.a, e.b)
        return super().division(e)

    def extremum(self, e: E.Min | E.Max) -> Index:
        self.require_narrow(e.a, e.b)
        a, b = self.index(e.a), self.index(e.b)
        left, right = self.table(a), self.table(b)
        if left is not None and right is not None:
            return super().extremum(e)
        plain = isinstance(a, Affine) and isinstance(b, Affine) and not a.lane and not b.lane
        x, y = (self.scalar(a), self.scalar(b)) if plain else (self.vector(a), self.vector(b))
        lower = self.builder.icmp_signed("<", x, y)
        return self.rewrap(self.builder.select(lower, *((x, y) if isinstance(e, E.Min) else (y, x))))

    def comparison(self, e: E.CmpOp) -> ir.Value:
        if is_int(e.a.dtype) and e.a.dtype != "bool" and self.is_pure(e.a) and self.is_pure(e.b):
            self.require_narrow(e.a, e.b)
        return super().comparison(e)

    def lane_limit(self, op: str, d: Affine) -> ir.Value:
        """`d op 0`: one truth where all lanes are on one side, else one for each lane."""
        base = d.without_lane() if d.lane == 1 else d.without_lane().times(-1)
        op = op if d.lane == 1 else {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
        shift = base.plus(Affine(-1)) if op in ("<=", ">") else base  # shift + lane < 0, or not
        if math.gcd(shift.const, *(c for _, c, _ in shift.terms)) % self.lanes == 0:
            below = op in ("<", "<=")
            return self.builder.icmp_signed("<" if below else ">=", self.scalar(shift), self.index_type(0))
        steps = self.iota(self.index_type)
        x = self.builder.add(splat(self.builder, self.scalar(base), self.lanes), steps)
        return self.builder.icmp_signed(op, x, constant(x.type, 0))

    # --- lanes --------------------------------------------------------------------------------------------------

    def emit_known(self, loop: For) -> bool:
        return False

    def over(self, loop: For, body: Callable[[], None]) -> ir.Instruction:
        back = super().over(loop, body)
        if loop.annotations.get(ROLLED):
            module = self.builder.module
            disable = module.add_metadata(["llvm.loop.unroll.disable"])
            note = ir.MDValue(module, [], name=str(len(module.metadata)))
            note.operands = (note, disable)  # a loop's note names itself
            back.set_metadata("llvm.loop", note)
        return back

    def vectorize(self, loop: For, count: int) -> None:
        """Whole vectors, then what is left in halves, quarters, …"""
        count, body = self.shortened(loop, count)
        start = self.index(loop.start)
        assert isinstance(start, Affine), "outside of a vectorised loop no value depends on the lane"
        at, lanes = 0, ISA.lanes(self.facts(loop).dtype)
        while at < count:
            while lanes > count - at:
                lanes //= 2
            self.vector_body(loop, body, start.plus(Affine(at)), lanes, None)
            at += lanes

    def each_lane(self, emit: Callable[[int], T]) -> list[T]:
        """What `emit` gives for each lane of the present vector, with everything that depends on it in that lane."""
        lanes, outer = self.lanes, self.env
        made = []
        for lane in range(lanes):
            self.lanes = 1
            self.env = {var: self.in_lane(value, lane) for var, value in outer.items()}
            self.scopes.append({})
            made.append(emit(lane))
            self.scopes.pop()
        self.lanes, self.env = lanes, outer
        return made

    def in_lane(self, value: Index, lane: int) -> Index:
        if isinstance(value, Affine):
            return Affine(value.const + lane * value.lane, value.terms) if value.lane else value
        if lanes_of(value) == 1:
            return value
        if isinstance(value, ir.Constant):
            return value.constant[lane]
        return self.builder.extract_element(value, I32(lane))

    def emit_branch(self, condition: ir.Value, stmt: IfThenElse) -> None:
        loop = stmt.then_case
        if not isinstance(loop, For) or not loop.annotations.get(ADDRESS_FIRST):
            super().emit_branch(condition, stmt)
            return
        store, count = loop.body, const_int(loop.extent) or 0
        assert isinstance(store, BufferStore) and isinstance(store.value, BufferLoad), "registers of a vector"
        self.env[loop.loop_var] = Affine(0)
        place, item = self.places[store.buffer], item_bytes(store.buffer.dtype)
        at = self.offset(place, store.indices)
        assert isinstance(at, Affine), "an element's place"
        words = self.words(BufferLoad(store.value.buffer, (E.IntImm(0),)), count * item // 4)
        kind = ir.VectorType(I32, len(words))
        b, value = self.builder, ir.Constant(kind, ir.Undefined)
        for n, word in enumerate(words):
            value = b.insert_element(value, word, I32(n))
        pointer = b.bitcast(self.address(place, at), kind.as_pointer(place.pointer.type.addrspace))
        with b.if_then(condition):
            b.store(value, pointer, align=self.row_bytes(place, at, item))

    def emit_masked(self, condition: ir.Value, stmt: IfThenElse) -> None:
        def emit(lane: int) -> None:
            c = self.in_lane(condition, lane)
            if not isinstance(c, ir.Constant):
                self.emit_branch(c, stmt)
            elif c.constant:
                self.emit(stmt.then_case)
            elif stmt.else_case is not None:
                self.emit(stmt.else_case)

        self.each_lane(emit)

    def guarded(self, condition: PrimExpr, a: PrimExpr, b: PrimExpr) -> ir.Value:
        c = self.value(condition)
        if self.may_run(condition, a) and self.may_run(condition, b):
            return self.choose(c, self.value(a), self.value(b))
        if lanes_of(c) == 1:
            return super().guarded(condition, a, b)

        def emit(lane: int) -> ir.Value:
            one = self.in_lane(c, lane)
            if isinstance(one, ir.Constant):
                return self.value(a if one.constant else b)
            return self.branch_value(one, a, b)

        values = self.each_lane(emit)
        result = ir.Constant(ir.VectorType(values[0].type, self.lanes), ir.Undefined)
        for lane, value in enumerate(values):
            result = self.builder.insert_element(result, value, I32(lane))
        return result

    def may_run(self, condition: PrimExpr, side: PrimExpr) -> bool:
        """Whether a side may be computed though it is not taken: it reads registers or what the condition has read."""
        known = {form_key(x) for x in preorder(condition) if isinstance(x, BufferLoad)}
        for x in preorder(side):
            if isinstance(x, E.Call):
                return False
            if isinstance(x, BufferLoad) and not self.places[x.buffer].is_local and form_key(x) not in known:
                return False
        return True

    # --- lanes of a warp ----------------------------------------------------------------------------------------

    def call(self, e: E.Call) -> ir.Value:
        if is_lane_reduction(e):
            op, width = e.args[0], e.args[2]
            assert isinstance(op, E.StringImm), "the name of the combination"
            return self.combine_lanes(op.value, self.value(e.args[1]), e.dtype, const_int(width) or 1)
        if e.op == TO_TF32:
            return to_tf32(self.builder, self.value(e.args[0]))
        if e.op == SHUFFLE:
            mode, value, lane, width = e.args
            return self.shuffle(const_int(mode) or 0, self.value(value), self.value(lane), const_int(width) or 1)
        return super().call(e)

    def combine_lanes(self, op: str, value: ir.Value, dtype: str, width: int) -> ir.Value:
        """The values of `width` neighbouring lanes, combined in all of them: a power of two, exchanged pairwise."""
        distance = width // 2
        left, right = E.Var("left", dtype), E.Var("right", dtype)
        while distance:
            self.env[left], self.env[right] = value, self.exchanged(value, distance)
            value = self.value(COMBINE[op](left, right))
            distance //= 2
        return value

    def exchanged(self, value: ir.Value, distance: int) -> ir.Value:
        """The value of the lane whose number differs in one bit; the warp's lanes that exist all come here."""
        return self.shuffle(_XOR, value, I32(distance), WARP)

    def shuffle(self, mode: int, value: ir.Value, lane: ir.Value, width: int) -> ir.Value:
        """The value of another lane by `shfl.sync`, among `width` neighbours."""
        b = self.builder
        clamp = I32((WARP - width) << 8 | (0 if mode == _UP else WARP - 1))
        kind = value.type
        bits = {"half": 16, "float": 32, "double": 64}.get(str(kind)) or kind.width
        integer = ir.IntType(bits)
        plain = value if isinstance(kind, ir.IntType) else b.bitcast(value, integer)
        if bits == 64:
            low = self.shuffled(mode, b.trunc(plain, I32), lane, clamp)
            high = self.shuffled(mode, b.trunc(b.lshr(plain, I64(32)), I32), lane, clamp)
            plain = b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), I64(32)))
        else:
            moved = self.shuffled(mode, plain if bits == 32 else b.zext(plain, I32), lane, clamp)
            plain = moved if bits == 32 else b.trunc(moved, integer)
        return plain if isinstance(kind, ir.IntType) else b.bitcast(plain, kind)

    def shuffled(self, mode: int, word: ir.Value, lane: ir.Value, clamp: ir.Value) -> ir.Value:
        """A 32-bit word of another lane."""
        kind = ir.LiteralStructType((I32, ir.IntType(1)))
        arguments = [self.members(), I32(mode), word, lane, clamp]
        return self.builder.extract_value(call_intrinsic(self.builder, "llvm.nvvm.shfl.sync.i32", kind, arguments), 0)

    def members(self) -> ir.Value:
        """The lanes of this thread's warp that exist: the last warp of a block may have fewer than 32."""
        x, y, z = self.block
        whole, rest = divmod(x * y * z, WARP)
        if not rest:
            return I32(-1)
        last = I32((1 << rest) - 1)
        if not whole:
            return last
        known = self.known("members")
        if known is not None:
            return known
        b = self.builder
        tid = [call_intrinsic(b, f"llvm.nvvm.read.ptx.sreg.tid.{axis}", I32, []) for axis in "xyz"]
        linear = b.add(tid[0], b.mul(I32(x), b.add(tid[1], b.mul(I32(y), tid[2]))))
        return self.remember("members", b.select(b.icmp_unsigned("<", linear, I32(whole * WARP)), I32(-1), last))

    # --- tensor cores -------------------------------------------------------------------------------------------

    def tensor_core(self, e: E.Call) -> None:
        if e.op == MMA:
            kind, target, a, b = e.args
            assert isinstance(kind, E.StringImm), "the name of the operands' types"
            values = [self.words(x, n) for x, n in zip((target, a, b), mma_words(kind.value), strict=True)]
            results = mma(self.builder, kind.value, *values)
        else:
            target, count, transposed, source = e.args
            n = const_int(count) or 0
            assert isinstance(source, BufferLoad), "the place of a row"
            results = ldmatrix(self.builder, n, bool(const_int(transposed)), self.shared_address(source, 16))
        self.set_words(target, results)

    def registers(self, first: PrimExpr, count: int) -> list[ir.Value]:
        """Pointers to registers that lie side by side from the first one."""
        assert isinstance(first, BufferLoad), "the first of them"
        place = self.places[first.buffer]
        at = self.offset(place, first.indices)
        if not isinstance(at, Affine):
            raise CodegenError(f"the place in the registers '{first.buffer.name}' is no constant")
        return [self.address(place, Affine(at.const + i, at.terms)) for i in range(count)]

    def words(self, first: PrimExpr, count: int) -> list[ir.Value]:
        """Words from the first register on: several smaller elements are one."""
        n = 4 // item_bytes(first.dtype)
        found = [self.builder.load(p) for p in self.registers(first, count * n)]
        return found if n == 1 else [self.packed(found[i : i + n]) for i in range(0, len(found), n)]

    def packed(self, parts: list[ir.Value]) -> ir.Value:
        """Values side by side in a word."""
        vector = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
        for i, part in enumerate(parts):
            vector = self.builder.insert_element(vector, part, I32(i))
        return self.builder.bitcast(vector, I32)

    def set_words(self, first: PrimExpr, words: list[ir.Value]) -> None:
        """Store words into registers from the first one."""
        n = 4 // item_bytes(first.dtype)
        pointers = self.registers(first, len(words) * n)
        b, element = self.builder, pointers[0].type.pointee
        for i, word in enumerate(words):
            if n == 1:
                b.store(word if word.type == element else b.bitcast(word, element), pointers[i])
                continue
            parts = b.bitcast(word, ir.VectorType(element, n))
            for k in range(n):
                b.store(b.extract_element(parts, I32(k)), pointers[i * n + k])

    def turn_words(self, first: PrimExpr, lane: PrimExpr) -> None:
        """Four words of each of four neighbouring lanes: lane t gets word t of each of them, in their order.

        lane   the lane's number among the four
        """
        b, words, at = self.builder, self.words(first, 4), self.value(lane)
        for bit in (1, 2):
            is_set = b.icmp_unsigned("!=", b.and_(at, at.type(bit)), at.type(0))
            for low in (n for n in range(4) if not n & bit):
                one, other = words[low], words[low | bit]
                kept, sent = b.select(is_set, other, one), b.select(is_set, one, other)
                found = self.exchanged(sent, bit)
                words[low], words[low | bit] = b.select(is_set, found, kept), b.select(is_set, kept, found)
        self.set_words(first, words)

    def shared_address(self, element: BufferLoad, align: int) -> ir.Value:
        """The address of an element within shared memory, as 32 bits."""
        place = self.places[element.buffer]
        at = self.offset(place, element.indices)
        if not isinstance(at, Affine) or self.row_bytes(place, at, item_bytes(element.buffer.dtype)) < align:
            raise CodegenError(
                f"an element of '{element.buffer.name}' is not proven to lie at a multiple of {align} bytes",
                hint="let rows of shared buffers be multiples of 16 bytes",
            )
        return self.shared_word(place, at)

    def shared_word(self, place: Place, at: Affine) -> ir.Value:
        """The address of a place in shared memory, as 32 bits."""
        return self.builder.trunc(self.builder.ptrtoint(self.address(place, at.without_lane()), I64), I32)

    def global_word(self, address: ir.Value) -> ir.Value:
        """An address of device memory as 64 bits."""
        space = ir.PointerType(address.type.pointee, GLOBAL_SPACE)
        return self.builder.ptrtoint(self.builder.addrspacecast(address, space), I64)

    # --- asynchronous copies ------------------------------------------------------------------------------------

    def asynchronous(self, e: E.Call) -> None:
        if e.op == COMMIT:
            cp_async_commit(self.builder)
        elif e.op == WAIT:
            cp_async_wait(self.builder, const_int(e.args[0]) or 0)
        elif e.op == BULK:
            self.bulk_copy(e)
        else:
            self.copy(e)

    def copy(self, e: E.Call) -> None:
        """Elements side by side from device to shared memory, or zeros; at once where addresses are not aligned."""
        target, source, count, condition = e.args
        assert isinstance(target, BufferLoad), "the first element that is written"
        assert isinstance(source, BufferLoad), "the first element that is read"
        item, n = item_bytes(target.buffer.dtype), const_int(count) or 1
        to, start = self.places[target.buffer], self.places[source.buffer]
        to_at, start_at = self.offset(to, target.indices), self.offset(start, source.indices)
        taken = self.value(condition)
        always = isinstance(taken, ir.Constant) and bool(taken.constant)
        b = self.builder
        if (
            isinstance(to_at, Affine)
            and isinstance(start_at, Affine)
            and min(self.row_bytes(to, to_at, item), self.row_bytes(start, start_at, item)) >= n * item
        ):
            to_at, to_bytes = _without_constant(to_at, item)
            start_at, start_bytes = _without_constant(start_at, item) if always else (start_at, 0)
            address = self.address(start, start_at)
            if not always:
                address = b.select(taken, address, start.pointer)
            words = self.global_word(address)
            part = None if always else b.select(taken, I32(n * item), I32(0))
            cp_async(b, n * item, self.shared_word(to, to_at), words, part, (to_bytes, start_bytes))
            return
        zero = constant(memory_type(source.buffer.dtype), 0)
        for i in range(n):
            at = self.sum(start_at, Affine(i))
            value = self.load_where(
                taken, functools.partial(self.raw_load, source.buffer.dtype, start, at), zero, always
            )
            b.store(value, self.address(to, self.sum(to_at, Affine(i))), align=item)

    def bulk_copy(self, e: E.Call) -> None:
        """Elements side by side from device to shared memory, whose bytes an mbarrier counts."""
        target, source, count, barrier = e.args
        assert isinstance(target, BufferLoad), "the first element that is written"
        assert isinstance(source, BufferLoad), "the first element that is read"
        assert isinstance(barrier, BufferLoad), "an mbarrier"
        item, start = item_bytes(source.buffer.dtype), self.places[source.buffer]
        at = self.offset(start, source.indices)
        if not isinstance(at, Affine) or self.row_bytes(start, at, item) < VECTOR_BYTES:
            raise CodegenError(
                f"a bulk copy from '{source.buffer.name}' is not proven to begin at a multiple of {VECTOR_BYTES} bytes",
                hint="let the offset be a multiple of so many elements",
            )
        size, address = item * (const_int(count) or 0), self.global_word(self.address(start, at))
        to = self.shared_address(target, VECTOR_BYTES)
        bulk_copy(self.builder, size, to, address, self.shared_address(barrier, 8))

    def load_where(self, condition: ir.Value, load: Callable[[], ir.Value], other: ir.Value, always: bool) -> ir.Value:
        """What is loaded where a condition holds, else another value."""
        if always:
            return load()
        b, function, before = self.builder, self.builder.function, self.builder.block
        taken, after = (function.append_basic_block(name) for name in ("taken", "after"))
        b.cbranch(condition, taken, after)
        b.position_at_end(taken)
        self.scopes.append({})
        value = load()
        self.scopes.pop()
        b.branch(after)
        b.position_at_end(after)
        phi = b.phi(value.type)
        phi.add_incoming(value, taken)
        phi.add_incoming(other, before)
        return phi

    # --- sums of several threads --------------------------------------------------------------------------------

    def add_at_once(self, store: BufferStore, value: PrimExpr) -> None:
        dtype, place = store.buffer.dtype, self.places[store.buffer]
        if dtype not in ATOMIC_ADDS or place.is_local:
            raise CodegenError(
                f"no thread adds at once to {dtype} in scope \"{store.buffer.scope}\" ('{store.buffer.name}')",
                hint=f"the types are {', '.join(ATOMIC_ADDS)}, the scopes global and shared",
            )

        def emit(lane: int) -> None:
            b, given = self.builder, self.value(value)
            if dtype == "float16":
                given = b.bitcast(given, ir.IntType(16))
            if place.pointer.type.addrspace == SHARED_SPACE:
                element = BufferLoad(store.buffer, store.indices)
                atomic_add(b, dtype, True, self.shared_address(element, item_bytes(dtype)), given)
                return
            at = self.offset(place, store.indices)
            assert isinstance(at, Affine), "outside of vectors an offset is one number"
            atomic_add(b, dtype, False, self.global_word(self.address(place, at)), given)

        if self.lanes > 1:
            self.each_lane(emit)
        else:
            emit(0)

    # --- effects and functions ----------------------------------------------------------------------------------

    def emit_effect(self, e: PrimExpr) -> None:
        if isinstance(e, E.Call) and e.op == SYNC:
            call_intrinsic(self.builder, "llvm.nvvm.barrier0", VOID, [])
            self.scopes = [{} for _ in self.scopes]
            return
        if isinstance(e, E.Call) and e.op == WARP_SYNC:
            call_intrinsic(self.builder, "llvm.nvvm.bar.warp.sync", VOID, [self.members()])
            self.scopes = [{} for _ in self.scopes]
            return
        if isinstance(e, E.Call) and e.op in (MMA, LDMATRIX):
            self.tensor_core(e)
            return
        if isinstance(e, E.Call) and e.op == TURN_WORDS:
            self.turn_words(*e.args)
            return
        if isinstance(e, E.Call) and e.op in OPERATIONS:
            emit_warpgroup(self, e)
            return
        if isinstance(e, E.Call) and e.op in CHAIN_OPERATIONS:
            emit_chain(self, e)
            return
        if isinstance(e, E.Call) and e.op in (COPY, COMMIT, WAIT, BULK):
            self.asynchronous(e)
            return
        super().emit_effect(e)

    def prefetch(self, place: Place, at: Affine, level: int = 1, writes: bool = False) -> None:
        """Other threads hide the latency of memory."""

    def apply(self, op: str, args: list[ir.Value]) -> ir.Value:
        return device_function(self, op, args)

    def cast(self, x: ir.Value, source: str, target: str) -> ir.Value:
        if is_float(source) and is_int(target) and target != "bool":
            return self.to_integer(x, source, target)
        if (source, target) == ("float64", "float16"):  # an instruction of its own
            return self.builder.fptrunc(x, value_type(target, lanes_of(x)))
        return super().cast(x, source, target)

    def to_integer(self, x: ir.Value, source: str, target: str) -> ir.Value:
        """A float as an integer, rounded to zero: the nearest there is where it is too large, 0 for NaN."""
        b, lanes = self.builder, lanes_of(x)
        if source == "float16":
            x, source = super().cast(x, "float16", "float32"), "float32"
        to = value_type(target, lanes)
        width = value_type(target).width
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed(target) else (0, (1 << width) - 1)
        first = -float(-low)
        beyond = float(high + 1)
        inside = b.and_(
            b.fcmp_ordered(">=", x, constant(x.type, first)), b.fcmp_ordered("<", x, constant(x.type, beyond))
        )
        safe = b.select(inside, x, constant(x.type, 0.0))
        value = b.fptosi(safe, to) if is_signed(target) else b.fptoui(safe, to)
        over = b.fcmp_ordered(">=", x, constant(x.type, beyond))
        under = b.fcmp_ordered("<", x, constant(x.type, first))
        value = b.select(over, constant(to, high), value)
        return b.select(under, constant(to, low), value)


def _without_constant(at: Affine, item: int) -> tuple[Affine, int]:
    """An index without the constant that an instruction adds by itself, and that constant in bytes."""
    if not 0 < at.const * item <= MOST_OFFSET:
        return at, 0
    return Affine(0, at.terms, at.lane), at.const * item


def _words(vector: ir.Type, align: int) -> ir.Type:
    """The type by which a vector is moved: whole 32-bit words where its elements are smaller."""
    element = vector.element
    bits = element.width if isinstance(element, ir.IntType) else 16 if isinstance(element, ir.HalfType) else 32
    size = bits * vector.count // 8
    if bits >= 32 or size % 4 or align < 4:
        return vector
    return ir.VectorType(I32, size // 4) if size > 4 else I32
