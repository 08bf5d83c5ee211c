"""What a schedule finds: blocks, loops, producers, consumers. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Callable

from autosched.errors import InvalidTypeError, ScheduleError
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.rv import BlockRV, LoopRV
from autosched.tir.schedule.tree import Tree


class Looking(ScheduleBase):
    """See `Schedule`."""

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block called `name`; "root" is the root block. Raises ScheduleError where there is none."""
        if not isinstance(name, str):
            raise InvalidTypeError(f"get_block: expected a block's name, got {type(name).__name__}")
        fn = func_name or self._working()
        tree = self._tree(fn)
        if name not in tree.realizes:
            raise ScheduleError(
                f"get_block: no block '{name}' in function '{fn}'", hint=f"its blocks are {', '.join(tree.realizes)}"
            )
        rv = self._new_block(fn, name)
        self._record("GetBlock", (), {"name": name, "func_name": fn}, (rv,))
        return rv

    get_sblock = get_block  # the name of TVM 0.27

    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        """The loops around a block, outer to inner."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        rvs = [self._new_loop(fn, x.loop_var) for x in self._tree(fn).loops_of(name)]
        self._record("GetLoops", (block,), {}, rvs)
        return rvs

    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV | str) -> list[BlockRV]:
        """The blocks directly inside of a block or loop, in program order."""
        from autosched.tir.schedule.tree import realizes_below

        place = self._rv_of(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        if isinstance(place, LoopRV):
            fn, var = self._loop(place)
            body = self._tree(fn).loops[var].body
        else:
            fn, name = self._block(place)
            body = self._tree(fn).block(name).body
        rvs = [self._new_block(fn, r.block.name_hint) for r in realizes_below(body)]
        self._record("GetChildBlocks", (place,), {}, rvs)
        return rvs

    def get_producers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks that write what a block reads."""
        return self._related("GetProducers", block, lambda fn, name: self._beside(fn, name).producers(name))

    def get_consumers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks that read what a block writes."""
        return self._related("GetConsumers", block, lambda fn, name: self._beside(fn, name).consumers(name))

    def _beside(self, fn: str, name: str) -> Tree:
        """The tree in which what stands beside a block counts as one block, whatever is in it."""
        tree = self._tree(fn)
        return tree.seen_from(tree.scope_of(tree.realizes[name]))

    def get_output_blocks(self, scope_block: BlockRV | str = "root") -> list[BlockRV]:
        """The blocks that write buffers of the function's interface."""

        def outputs(fn: str, name: str) -> list[str]:
            tree = self._tree(fn)
            return [n for n in tree.leaf_names if any(w.buffer in tree.interface for w in tree.block(n).writes)]

        return self._related("GetOutputBlocks", scope_block, outputs)

    def _related(self, kind: str, block: BlockRV | str, find: Callable[[str, str], list[str]]) -> list[BlockRV]:
        block = self._rv_of(block)
        fn, name = self._block(block)
        rvs = [self._new_block(fn, n) for n in find(fn, name)]
        self._record(kind, (block,), {}, rvs)
        return rvs
