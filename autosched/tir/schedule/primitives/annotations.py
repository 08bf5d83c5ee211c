"""Notes at blocks and loops. Part of `Schedule`."""

from __future__ import annotations

from autosched.errors import InvalidTypeError
from autosched.tir.schedule import notes
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.rv import BlockRV, ExprRV, LoopRV


class Annotations(ScheduleBase):
    """See `Schedule`."""

    def annotate(self, block_or_loop: BlockRV | LoopRV | str, ann_key: str, ann_val: object) -> None:
        """Add an annotation to a block or loop."""
        if not isinstance(ann_key, str):
            raise InvalidTypeError(f"annotate: ann_key is a {type(ann_key).__name__}, expected a string")
        place = self._rv_of(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        fn, key = self._loop(place) if isinstance(place, LoopRV) else self._block(place)
        value = self._values[ann_val] if isinstance(ann_val, ExprRV) else ann_val
        self._trees[fn] = notes.annotate(self._tree(fn), key, ann_key, value)
        self._record("Annotate", (place, ann_val), {"ann_key": ann_key})

    def unannotate(self, block_or_loop: BlockRV | LoopRV | str, ann_key: str) -> None:
        """Take an annotation away."""
        place = self._rv_of(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        fn, key = self._loop(place) if isinstance(place, LoopRV) else self._block(place)
        self._trees[fn] = notes.unannotate(self._tree(fn), key, ann_key)
        self._record("Unannotate", (place,), {"ann_key": ann_key})

    def enter_postproc(self) -> None:
        """Note that what follows is no search any more: traces leave it out with `remove_postproc`."""
        self._record("EnterPostproc")
