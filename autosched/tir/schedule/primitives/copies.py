"""Copies of what blocks read and write, in their own blocks. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.tir.buffer import Buffer
from autosched.tir.index_map import IndexMap
from autosched.tir.schedule import buffers, cache, compute_at, layout, reindex
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.notes import annotate
from autosched.tir.schedule.rv import BlockRV, LoopRV
from autosched.tir.schedule.tree import Tree

Which = int | str | Buffer
Map = IndexMap | Callable[..., object] | str


class Copies(ScheduleBase):
    """See `Schedule`."""

    def cache_read(
        self, block: BlockRV | str, read_buffer_index: int | str | Buffer, storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:  # fmt: skip
        """A copy of what is read, in its own block `A_global` (buffer and scope); returns that block."""
        return self._cache("CacheRead", cache.cache_read, block, read_buffer_index, storage_scope, consumer_blocks)

    def cache_write(
        self, block: BlockRV | str, write_buffer_index: int | str | Buffer, storage_scope: str,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:  # fmt: skip
        """A buffer of its own for what is written, and a block `C_local` that copies it back; returns that block."""
        return self._cache("CacheWrite", cache.cache_write, block, write_buffer_index, storage_scope, consumer_blocks)

    def _cache(
        self, kind: str, primitive: Callable[..., tuple[Tree, str]], block: BlockRV | str,
        which: int | str | Buffer, scope: str, consumers: Sequence[BlockRV | str] | None,
    ) -> BlockRV:  # fmt: skip
        block, readers = self._rv_of(block), [self._rv_of(c) for c in consumers or ()]
        fn, name = self._block(block)
        before = self._tree(fn)
        action = "cache_read" if kind == "CacheRead" else "cache_write"
        position = cache.position_of(before, name, which, written=kind == "CacheWrite", action=action)
        tree, copy = primitive(before, name, position, scope, [self._block(r)[1] for r in readers])
        self._trees[fn] = tree
        rv = self._new_block(fn, copy)
        key = "read_buffer_index" if kind == "CacheRead" else "write_buffer_index"
        self._record(kind, (block, *readers), {key: position, "storage_scope": scope}, (rv,))
        return rv

    def cache_inplace(self, block: BlockRV | str, read_buffer_index: Which, storage_scope: str) -> list[BlockRV]:
        """Copies before and after a block that changes a buffer in place; returns both copying blocks."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        position = cache.position_of(tree, name, read_buffer_index, written=False, action="cache_inplace")
        found = cache.buffer_at(tree, name, position, written=False, action="cache_inplace")
        self._trees[fn], first, second = buffers.cache_inplace(tree, name, found, storage_scope)
        rvs = [self._new_block(fn, first), self._new_block(fn, second)]
        self._record("CacheInplace", (block,), {"read_buffer_index": position, "storage_scope": storage_scope}, rvs)
        return rvs

    def cache_index(self, block: BlockRV | str, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Compute the indices of a block's reads ahead of it; returns the blocks that do."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn], made = reindex.cache_index(self._tree(fn), name, storage_scope, int(cse_thresh))
        rvs = [self._new_block(fn, n) for n in made]
        self._record("CacheIndex", (block,), {"storage_scope": storage_scope, "cse_thresh": cse_thresh}, rvs)
        return rvs

    def reindex(self, block: BlockRV | str, buffer: tuple[str, int] | str | Buffer) -> BlockRV:
        """A copy of a buffer indexed by the block's own variables, for what it reads or writes; returns its block."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        kind, index = cache.read_or_write(tree, name, buffer)
        found = cache.buffer_at(tree, name, index, written=kind == "write", action="reindex")
        self._trees[fn], copy = reindex.reindex(tree, name, found, written=kind == "write")
        rv = self._new_block(fn, copy)
        self._record("ReIndex", (block,), {"buffer_index": index, "buffer_index_type": kind}, (rv,))
        return rv

    def reindex_cache_read(
        self, block: BlockRV | str, read_buffer_index: Which, storage_scope: str, index_map: Map
    ) -> BlockRV:
        """A copy of what is read, laid out by a map of the block's variables; returns its block."""
        return self._reindexed("ReindexCacheRead", block, read_buffer_index, storage_scope, index_map)

    def reindex_cache_write(
        self, block: BlockRV | str, write_buffer_index: Which, storage_scope: str, index_map: Map
    ) -> BlockRV:
        """A buffer of its own for what is written, laid out by a map of the block's variables; returns its block."""
        return self._reindexed("ReindexCacheWrite", block, write_buffer_index, storage_scope, index_map)

    def _reindexed(self, kind: str, block: BlockRV | str, which: Which, scope: str, index_map: Map) -> BlockRV:
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree, written = self._tree(fn), kind == "ReindexCacheWrite"
        action = "reindex_cache_write" if written else "reindex_cache_read"
        position = cache.position_of(tree, name, which, written=written, action=action)
        found = cache.buffer_at(tree, name, position, written=written, action=action)
        iter_vars = tree.block(name).iter_vars
        mapping = layout.to_index_map(index_map, len(iter_vars), iter_vars[0].var.dtype if iter_vars else "int32")
        target = mapping.map_indices([iv.var for iv in iter_vars])
        make = reindex.reindexed_write if written else reindex.reindexed_read
        self._trees[fn], copy = make(tree, name, found, target, scope, f"{found.name}_{scope}", action)
        rv = self._new_block(fn, copy)
        key = "write_buffer_index" if written else "read_buffer_index"
        self._record(kind, (block,), {key: position, "storage_scope": scope, "index_map": str(mapping)}, (rv,))
        return rv

    def read_at(self, loop: LoopRV, block: BlockRV | str, read_buffer_index: Which, storage_scope: str) -> BlockRV:
        """A copy of what a block reads, made inside of a loop around it; returns its block."""
        return self._at("ReadAt", loop, block, read_buffer_index, storage_scope)

    def write_at(self, loop: LoopRV, block: BlockRV | str, write_buffer_index: Which, storage_scope: str) -> BlockRV:
        """A buffer of its own for what a block writes, copied back inside of a loop around it; returns its block."""
        return self._at("WriteAt", loop, block, write_buffer_index, storage_scope)

    def _at(self, kind: str, loop: LoopRV, block: BlockRV | str, which: Which, scope: str) -> BlockRV:
        block = self._rv_of(block)
        (fn, name), (loop_fn, var) = self._block(block), self._loop(loop)
        self._same_function(fn, loop_fn)
        tree, written = self._tree(fn), kind == "WriteAt"
        action = "write_at" if written else "read_at"
        position = cache.position_of(tree, name, which, written=written, action=action)
        tree, copy = (cache.cache_write if written else cache.cache_read)(tree, name, position, scope)
        move = compute_at.reverse_compute_at if written else compute_at.compute_at
        tree = annotate(move(tree, copy, var, False, -1), copy, "auto_copy", 1)
        self._trees[fn] = tree
        rv = self._new_block(fn, copy)
        key = "write_buffer_index" if written else "read_buffer_index"
        self._record(kind, (loop, block), {key: position, "storage_scope": scope}, (rv,))
        return rv
