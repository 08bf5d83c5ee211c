"""`Emitter`: what the parts of a tile's emitter use of each other, so that each part is a file that knows no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.amx_nest import TileSizes
from autosched.codegen.cpu.index import Index, IndexEmitter
from autosched.runtime.kernel import Check
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.stmt import For, Stmt


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer is: a pointer to its first element, its strides in elements, whether it is the tile's own."""

    pointer: ir.Value
    strides: tuple[int | Index, ...]  # numbers, or index values where they are known at run time
    is_local: bool
    read_only: bool
    extents: tuple[int | None, ...] = ()  # of its dimensions, where these lie one after the other; None: symbols
    row: int = 0  # elements of its last dimension, which follow each other; 0 where they do not, or are not known


@dataclass(frozen=True, slots=True)
class Guard:
    """A dimension of an access that is seen to be in range while the kernel runs.

    extent  of the dimension, which may come with the call
    """

    axis: int
    check: Check
    extent: PrimExpr


Guards = Mapping[int, tuple[tuple[PrimExpr, ...], tuple[Guard, ...]]]  # by the id of an access's indices


class Emitter(IndexEmitter):
    """Index arithmetic, and the memory and values that `MemoryEmitter` and `ValueEmitter` implement."""

    places: dict[Buffer, Place]
    status: ir.Value  # a pointer to the words of the kernel's checks, where the tile has some
    checks: Mapping[Check, int]  # their numbers
    guards: Guards  # accesses to check
    entry: ir.IRBuilder  # a builder at the end of the entry block's allocations
    configured: TileSizes | None  # the sizes that tile registers have when the code begins; None: none
    calls_by_lane = 0  # of libm with vectors, so far

    def mask_key(self) -> int | None:
        """What a value under the present mask is remembered by."""
        raise NotImplementedError

    def any_of(self, truths: ir.Value) -> ir.Value:
        """Whether one of a vector's lanes is true."""
        raise NotImplementedError

    def first_of(self, truths: ir.Value, values: ir.Value) -> ir.Value:
        """The value in the first lane that is true."""
        raise NotImplementedError

    def note(self, word: int, content: ir.Value) -> None:
        """Write one of the words of the kernel's checks; others may write it at once."""
        raise NotImplementedError

    def any_lane(self) -> ir.Value:
        """Whether a lane takes part: an address may be valid only then."""
        raise NotImplementedError

    def offset(self, place: Place, indices: tuple[PrimExpr, ...]) -> Index:
        """The distance in elements from the buffer's start."""
        raise NotImplementedError

    def joined(self, place: Place, indices: tuple[PrimExpr, ...]) -> tuple[Place, tuple[PrimExpr, ...]]:
        """A place and indices that `offset` was given: as one what is quotient and remainder."""
        raise NotImplementedError

    def distance(
        self, buffer: Buffer, indices: tuple[PrimExpr, ...], along: Var, lanes: int, fixed: Iterable[Var] = ()
    ) -> int | None:
        """Elements from the place in one iteration of a loop to that in the next; None where that is no constant.

        along  the loop's variable;  lanes: its iterations;  fixed: variables that are 0 meanwhile
        """
        place = self.places.get(buffer)
        if place is None:
            return None
        before = self.lanes
        with self.assigned({**dict.fromkeys(fixed, Affine()), along: Affine(0, (), 1)}):
            self.lanes = lanes
            at = self.offset(place, indices)
        self.lanes = before
        return at.lane if isinstance(at, Affine) else None

    def emit(self, stmt: Stmt) -> None:
        """The code of a statement."""
        raise NotImplementedError

    def over(self, loop: For, body: Callable[[], None]) -> None:
        """A loop, one iteration after the other, around code that `body` emits."""
        raise NotImplementedError

    def note_anywhere(self, buffer: Buffer) -> None:
        """Keep account of that any element of a local buffer may be used."""
        raise NotImplementedError

    def load(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> ir.Value:
        """The element, or a vector with one per lane."""
        raise NotImplementedError

    def address(self, place: Place, at: Affine) -> ir.Value:
        """A pointer to the element, which does not depend on the lane."""
        raise NotImplementedError

    def store(self, buffer: Buffer, value: ir.Value, indices: tuple[PrimExpr, ...]) -> None:
        """Store the element, or one per lane."""
        raise NotImplementedError

    def store_row(self, buffer: Buffer, value: ir.Value, at: Affine, align: int) -> None:
        """Store a vector whose elements lie next to each other."""
        raise NotImplementedError

    def prefetch(self, place: Place, at: Affine, level: int = 1, writes: bool = False) -> None:
        """Ask for the cache line of an element, to read or write it, in this level of the caches and those behind."""
        raise NotImplementedError

    def own(self, place: Place, at: Affine, size: int) -> None:
        """Store what an element of so many bytes holds, so that this core alone has its line."""
        raise NotImplementedError

    def apply(self, op: str, args: list[ir.Value]) -> ir.Value:
        """A function of LLVM values of one float type."""
        raise NotImplementedError

    def both(self, a: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Two values with equal lanes."""
        raise NotImplementedError

    def fused(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, rounded once where the CPU can."""
        raise NotImplementedError

    def lasting(self, x: ir.Value, y: ir.Value, op: str) -> ir.Value:
        """The larger (op ">") or the smaller one; NaN where one is a NaN."""
        raise NotImplementedError

    def cast(self, x: ir.Value, source: str, target: str) -> ir.Value:
        """A value of one dtype as another."""
        raise NotImplementedError
