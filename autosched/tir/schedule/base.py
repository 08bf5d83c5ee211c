"""The state of a schedule: its module, what the user's references mean, and the trace."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, overload

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Attrs
from autosched.tir.access import full_region
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Var
from autosched.tir.function import PrimFunc
from autosched.tir.schedule.rv import RV, BlockRV, ExprRV, LoopRV
from autosched.tir.schedule.trace import Decision, Instruction, Trace
from autosched.tir.schedule.tree import Tree, all_realizes, unique_names
from autosched.tir.stmt import Block, BufferRegion, For

INLINE, ROOT = -2, -1  # sampled places that are no loop: into the consumers; where the block stands


class Trees(dict[str, Tree]):
    """The functions by name; blocks around others declare what these use, whatever a primitive has made of them."""

    def __setitem__(self, fn: str, tree: Tree) -> None:
        super().__setitem__(fn, with_outer_regions(tree))


S = TypeVar("S", bound="ScheduleBase")


class ScheduleBase:
    """What all primitives share. A primitive computes a new tree first and stores it last: one that fails
    changes nothing."""

    def __init__(
        self, mod: IRModule | PrimFunc, *, seed: int | None = None, debug_mask: str | int = "none",
        error_render_level: str = "detail", enable_check: bool = True,
    ):  # fmt: skip
        """A schedule of a function or module, which is not changed.

        mod                 a PrimFunc (becomes "main") or an IRModule
        seed                for the sampling primitives
        error_render_level  "detail": the text of a ScheduleError shows the function with the loop or block marked,
                            drawn when the text is asked for; "fast" and "none": its text is one line
        Raises              TypeError for another kind of `mod`, ValueError for an unknown level
        """
        if isinstance(mod, PrimFunc):
            mod = IRModule({"main": mod})
        if not isinstance(mod, IRModule):
            raise InvalidTypeError(f"Schedule takes a PrimFunc or an IRModule, got {type(mod).__name__}")
        if error_render_level not in ("detail", "fast", "none"):
            raise InvalidValueError(
                f"error_render_level must be 'detail', 'fast' or 'none', got {error_render_level!r}"
            )
        if not isinstance(debug_mask, int) and debug_mask not in ("none", "all"):
            raise InvalidValueError(f"debug_mask must be 'none', 'all' or an integer, got {debug_mask!r}")
        del debug_mask, enable_check  # accepted for TVM's sake: our checks are always on
        self._draws_errors = error_render_level == "detail"
        self._mod = mod.clone()
        self._trees: dict[str, Tree] = Trees()
        self._blocks: dict[BlockRV, tuple[str, str]] = {}  # reference -> (function, block name)
        self._loops: dict[LoopRV, tuple[str, Var]] = {}
        self._values: dict[ExprRV, int] = {}
        self._places: dict[LoopRV, int] = {}  # sampled places that are no loops
        self._trace = Trace()
        self._recording = True
        names = [gv.name for gv, f in mod.functions_items() if isinstance(f, PrimFunc)]
        self._working_on: str | None = "main" if "main" in names else names[0] if len(names) == 1 else None
        self._random = random.Random(seed)

    # --- the state ------------------------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """The module as it is now; a new one after each primitive."""
        changed: dict[str | GlobalVar, BaseFunc] = {gv: self._function(gv) for gv in self._mod.functions}
        return IRModule(changed, self._mod.attrs, self._mod.global_infos)

    def _function(self, gv: GlobalVar) -> BaseFunc:
        return self._trees[gv.name].func if gv.name in self._trees else self._mod[gv]

    @property
    def func(self) -> PrimFunc:
        """The function that the schedule works on, as it is now."""
        return self._tree(self._working()).func

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def func_working_on(self) -> GlobalVar | None:
        return None if self._working_on is None else self._mod.get_global_var(self._working_on)

    def work_on(self, func_name: str) -> None:
        """Let `get_block` without a function name look in this function."""
        if not isinstance(self._mod[func_name], PrimFunc):
            raise InvalidTypeError(f"'{func_name}' is not a PrimFunc")
        self._working_on = func_name

    def copy(self: S) -> S:
        """A schedule in the same state that goes its own way; references of this one are valid in it."""
        other = object.__new__(type(self))
        other._mod, other._trees = self._mod, Trees(self._trees)
        other._blocks, other._loops, other._values = dict(self._blocks), dict(self._loops), dict(self._values)
        other._places = dict(self._places)
        other._trace, other._recording, other._working_on = self._trace.copy(), True, self._working_on
        other._random = random.Random(self._random.random())
        other._draws_errors = self._draws_errors
        return other

    def seed(self, seed: int) -> None:
        """Start the sampling anew."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise InvalidTypeError(f"seed: expected an integer, got {type(seed).__name__}")
        self._random.seed(int(seed))

    def fork_seed(self) -> int:
        """A seed for another schedule."""
        return self._random.randrange(1, 2**30)

    def show(self, style: str | None = None, black_format: bool | None = None, **options: object) -> None:
        """Print the module and the trace."""
        self.mod.show(style, black_format, **options)
        self._trace.show()

    # --- references -----------------------------------------------------------------------------------------------

    @overload
    def get(self, rv: BlockRV) -> Block: ...
    @overload
    def get(self, rv: LoopRV) -> For: ...
    @overload
    def get(self, rv: ExprRV) -> int: ...
    def get(self, rv: RV) -> Block | For | int:
        """BlockRV -> Block, LoopRV -> For, ExprRV -> int. Raises ValueError for a reference that is dead."""
        if isinstance(rv, ExprRV):
            return self._int(rv)
        if isinstance(rv, LoopRV):
            fn, var = self._loop(rv)
            return self._tree(fn).loops[var]
        fn, name = self._block(rv)
        return self._tree(fn).block(name)

    def get_sref(self, rv: Block | For | RV) -> Block | For | int:
        """The node a reference stands for: nodes need no further handle here."""
        return self.get(rv) if isinstance(rv, BlockRV | LoopRV | ExprRV) else rv

    def remove_rv(self, rv: RV) -> None:
        """Forget a reference."""
        if isinstance(rv, BlockRV):
            self._blocks.pop(rv, None)
        elif isinstance(rv, LoopRV):
            self._loops.pop(rv, None)
        else:
            self._values.pop(rv, None)

    def _working(self) -> str:
        if self._working_on is None:
            raise InvalidValueError("the module has several functions", hint="name one with work_on or func_name=")
        return self._working_on

    def _tree(self, fn: str) -> Tree:
        if fn not in self._trees:
            func = self._mod[fn]
            if not isinstance(func, PrimFunc):
                raise InvalidTypeError(f"'{fn}' is not a PrimFunc")
            self._trees[fn] = Tree(unique_names(func), draws_errors=self._draws_errors)
        return self._trees[fn]

    def _primitive(self) -> str:
        """The public method that was called, for messages: the outermost frame that belongs to this schedule."""
        found, frame = "Schedule", sys._getframe(1)
        while frame is not None and frame.f_locals.get("self") is self:
            if not frame.f_code.co_name.startswith(("_", "<")):
                found = frame.f_code.co_name
            frame = frame.f_back  # type: ignore[assignment]
        return found

    def _block(self, block: BlockRV | str) -> tuple[str, str]:
        """(function, block name) of a reference or a name."""
        if isinstance(block, str):
            block = self.get_block(block)  # type: ignore[attr-defined]
        if not isinstance(block, BlockRV):
            raise InvalidTypeError(f"{self._primitive()}: expected a block or its name, got {type(block).__name__}")
        if block not in self._blocks or self._blocks[block][1] not in self._tree(self._blocks[block][0]).realizes:
            raise InvalidValueError(
                f"{self._primitive()}: this BlockRV no longer stands for a block",
                hint="the block was inlined or replaced",
            )
        return self._blocks[block]

    def _rv_of(self, block: BlockRV | str) -> BlockRV:
        """The reference itself, or one made (and recorded) for a name."""
        return self.get_block(block) if isinstance(block, str) else block  # type: ignore[attr-defined]

    def _loop(self, loop: LoopRV) -> tuple[str, Var]:
        if not isinstance(loop, LoopRV):
            raise InvalidTypeError(f"{self._primitive()}: expected a LoopRV, got {type(loop).__name__}")
        if loop not in self._loops or self._loops[loop][1] not in self._tree(self._loops[loop][0]).loops:
            raise InvalidValueError(
                f"{self._primitive()}: this LoopRV no longer stands for a loop",
                hint="split, fuse or compute_at has consumed it",
            )
        return self._loops[loop]

    def _int(self, value: object) -> int:
        if isinstance(value, ExprRV):
            if value not in self._values:
                raise InvalidValueError("this ExprRV has no value in this schedule")
            return self._values[value]
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise InvalidTypeError(f"{self._primitive()}: expected an integer, got {type(value).__name__}")
        return int(value.__index__())

    def _same_function(self, *functions: str) -> str:
        if not functions:
            raise InvalidValueError(f"{self._primitive()} needs at least one loop")
        if len(set(functions)) != 1:
            raise ScheduleError(f"blocks and loops of different functions: {sorted(set(functions))}")
        return functions[0]

    def _new_block(self, fn: str, name: str) -> BlockRV:
        rv = BlockRV()
        self._blocks[rv] = (fn, name)
        return rv

    def _new_loop(self, fn: str, var: Var) -> LoopRV:
        rv = LoopRV()
        self._loops[rv] = (fn, var)
        return rv

    def _new_value(self, value: int) -> ExprRV:
        rv = ExprRV()
        self._values[rv] = value
        return rv

    def _rename(self, fn: str, old: str, new: str) -> None:
        """Let references to a block follow its new name."""
        for rv, entry in self._blocks.items():
            if entry == (fn, old):
                self._blocks[rv] = (fn, new)

    def _record(
        self, kind: str, inputs: Sequence[object] = (), attrs: Attrs | None = None, outputs: Sequence[RV] = (),
        decision: Decision = None,
    ) -> None:  # fmt: skip
        self._trace.append(Instruction(kind, tuple(inputs), attrs or {}, tuple(outputs)), decision)


def with_outer_regions(tree: Tree) -> Tree:
    """The tree whose outer blocks declare exactly the buffers used inside; one that is new there as a whole."""
    root = tree.root.block.name_hint
    if len(tree.leaf_names) + 1 == len(tree.realizes):
        return tree
    leaves = set(tree.leaf_names)
    for name in [n for n in tree.realizes if n not in leaves and n != root]:
        realize = tree.realizes[name]
        block = realize.block
        inside = [r.block for r in all_realizes(block.body)]
        own = {b for x in (block, *inside) for b in x.alloc_buffers}
        writes = _following(block.writes, [w.buffer for x in inside for w in x.writes], own)
        read = [r.buffer for x in inside for r in x.reads]
        reads = _following(block.reads, read, own | (_own_sums(block, inside)))
        if reads is not block.reads or writes is not block.writes:
            tree = tree.replace(realize, replace(realize, block=replace(block, reads=reads, writes=writes)))
    return tree


def _own_sums(block: Block, inside: list[Block]) -> set[Buffer]:
    """What blocks read only to continue it: it is no input of the block around them."""
    declared = {r.buffer for r in block.reads}
    return {w.buffer for x in inside for w in x.writes} - declared


def _following(declared: tuple[BufferRegion, ...], used: list[Buffer], own: set[Buffer]) -> tuple[BufferRegion, ...]:
    wanted = [b for b in dict.fromkeys(used) if b not in own]
    known = {r.buffer for r in declared}
    if known == set(wanted):
        return declared
    kept = tuple(r for r in declared if r.buffer in wanted)
    return kept + tuple(full_region(b) for b in wanted if b not in known)
