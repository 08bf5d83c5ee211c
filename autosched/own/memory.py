"""The worker's copy of a call's arguments: blocks between guards, and the bytes that they begin with."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.own.arguments import StoredArguments, View, replace_arrays
from autosched.tuner.measure.memory import GuardedArray


class Memory:
    """Blocks of memory, and the arguments as views of them.

    stored  the arguments in files, which are mapped
    """

    def __init__(self, stored: StoredArguments):
        self.names = stored.names
        self._tree = pickle.loads(stored.values)
        self.contents = [np.load(path, mmap_mode="r") for path in stored.blocks]
        self._shifts = stored.shifts
        self.views, self.labels = _views(self._tree, stored.names)
        self.first = ArgumentSet(self, [self.new_block(i) for i in range(len(self.contents))])

    def new_block(self, number: int) -> GuardedArray:
        """Another copy of a block, aligned as the caller's is."""
        shift = self._shifts[number]
        block = GuardedArray((shift + len(self.contents[number]),), "uint8")
        block.poison()
        block.array[shift:] = self.contents[number]
        return block

    def bytes_of(self, block: GuardedArray, number: int) -> np.ndarray:
        """The part of a copy that is the block."""
        return block.array[self._shifts[number] :]

    def arguments(self, blocks: Sequence[np.ndarray]) -> tuple[object, ...]:
        """The arguments as views of blocks."""
        return self.arguments_by(lambda view: view.of(list(blocks)))

    def arguments_by(self, place: Callable[[Any], object]) -> tuple[object, ...]:
        """The arguments with what a function makes of each view in the place of arrays."""
        return tuple(replace_arrays(value, place) for value in self._tree)

    @property
    def originals(self) -> list[np.ndarray]:
        """The arrays as the caller has them, to be read only."""
        return [view.of([np.array(block) for block in self.contents]) for view in self.views]


class ArgumentSet:
    """One set of arguments in memory of their own."""

    def __init__(self, memory: Memory, blocks: Sequence[GuardedArray]):
        self._memory, self.blocks = memory, tuple(blocks)
        self.bytes = [memory.bytes_of(block, number) for number, block in enumerate(blocks)]
        self.values = memory.arguments(self.bytes)
        self.arrays = [view.of(self.bytes) for view in memory.views]

    def fill(self, contents: Sequence[np.ndarray], numbers: Sequence[int] | None = None) -> None:
        """Set the bytes of blocks, of all if no numbers are given."""
        for number in range(len(self.bytes)) if numbers is None else numbers:
            self.bytes[number][:] = contents[number]

    def guards_hold(self) -> bool:
        """Whether nothing was written beside the blocks."""
        return all([block.guards_hold() for block in self.blocks])


def _views(tree: Sequence[object], names: Sequence[str]) -> tuple[list[View], list[str]]:
    """The arrays of the arguments, each once, and what they are called."""
    found: dict[View, str] = {}

    def visit(value: object, name: str) -> None:
        if isinstance(value, View):
            found.setdefault(value, name)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                visit(part, f"{name}[{i}]")

    for value, name in zip(tree, names, strict=True):
        visit(value, name)
    return list(found), list(found.values())
