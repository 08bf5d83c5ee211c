"""Blocks of tiles, and intrinsics that compute them. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.blockize import blockize
from autosched.tir.schedule.group import blockize_together
from autosched.tir.schedule.rv import BlockRV, LoopRV
from autosched.tir.schedule.tensorize import tensorize
from autosched.tir.tensor_intrin import TensorIntrin


class Tiles(ScheduleBase):
    """See `Schedule`."""

    def blockize(self, target: LoopRV | BlockRV | str | Sequence[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
        """Make one block of a loop (or block) and all below it: it computes a tile; returns that block `X_o`.

        A list of blocks, in neighbouring nests, becomes one block `outer_X_Y_` around those nests.
        """
        if isinstance(target, list | tuple):
            if not target:
                raise InvalidValueError("blockize: the list of blocks is empty")
            if len(target) > 1:
                return self._blockize_together([self._rv_of(t) for t in target], preserve_unit_iters)
            target = target[0]
        place = self._rv_of(target) if isinstance(target, str) else target
        fn, key = self._loop(place) if isinstance(place, LoopRV) else self._block(place)  # type: ignore[arg-type]
        self._trees[fn], name = blockize(self._tree(fn), key, preserve_unit_iters)
        rv = self._new_block(fn, name)
        self._record("Blockize", (place,), {"preserve_unit_iters": preserve_unit_iters}, (rv,))
        return rv

    def _blockize_together(self, targets: list[BlockRV], preserve_unit_iters: bool) -> BlockRV:
        keys = [self._block(t) for t in targets]
        fn = self._same_function(*(f for f, _ in keys))
        self._trees[fn], made = blockize_together(self._tree(fn), [name for _, name in keys])
        rv = self._new_block(fn, made)
        self._record("Blockize", (targets,), {"preserve_unit_iters": preserve_unit_iters}, (rv,))
        return rv

    def tensorize(
        self, block_or_loop: BlockRV | LoopRV | str, tensor_intrin: str, preserve_unit_iters: bool = True
    ) -> None:
        """Replace a loop (or block) and all below it by a registered TensorIntrin that computes the same."""
        if not isinstance(tensor_intrin, str):
            raise InvalidTypeError(
                f"tensorize: argument 'tensor_intrin' is a {type(tensor_intrin).__name__}, expected a registered name"
            )
        intrin = TensorIntrin.get(tensor_intrin)
        assert intrin is not None
        place = self._rv_of(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        fn, key = self._loop(place) if isinstance(place, LoopRV) else self._block(place)
        self._trees[fn], _ = tensorize(self._tree(fn), key, intrin, preserve_unit_iters)
        attrs = {"tensor_intrin": tensor_intrin, "preserve_unit_iters": preserve_unit_iters}
        self._record("Tensorize", (place,), attrs)

    def tensorize_by(self, loop: LoopRV, intrin: TensorIntrin) -> None:
        """`tensorize` with an intrinsic that has no name; the trace cannot replay it."""
        fn, key = self._loop(loop)
        self._trees[fn], _ = tensorize(self._tree(fn), key, intrin)
