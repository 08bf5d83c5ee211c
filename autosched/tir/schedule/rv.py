"""The names by which a schedule's user refers to blocks, loops and sampled integers."""

from __future__ import annotations


class BlockRV:
    """Refers to a block of a schedule; follows it through renamings."""

    __slots__ = ("__weakref__",)


class LoopRV:
    """Refers to a loop of a schedule; dead once split or fuse has consumed the loop."""

    __slots__ = ("__weakref__",)


class ExprRV:
    """Refers to an integer that a sampling instruction chose."""

    __slots__ = ("__weakref__",)


RV = BlockRV | LoopRV | ExprRV
