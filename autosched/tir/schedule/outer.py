"""Blocks around other blocks: what they declare to read and write follows what the blocks inside do."""

from __future__ import annotations

from dataclasses import replace

from autosched.tir.access import full_region
from autosched.tir.buffer import Buffer
from autosched.tir.schedule.tree import Tree, all_realizes
from autosched.tir.stmt import Block, BufferRegion


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
