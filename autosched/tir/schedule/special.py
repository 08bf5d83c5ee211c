"""Primitives for special occasions: tensor intrinsics, padding, other indices, rings; parts of `Schedule`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer
from autosched.tir.functor import substitute
from autosched.tir.index_map import IndexMap
from autosched.tir.schedule import buffers, cache, compute_at, epilogue, layout, reindex, rolling
from autosched.tir.schedule.blockize import blockize
from autosched.tir.schedule.extras import ScheduleExtras
from autosched.tir.schedule.group import blockize_together
from autosched.tir.schedule.notes import annotate
from autosched.tir.schedule.padding import decompose_padding, pad_einsum
from autosched.tir.schedule.rv import BlockRV, LoopRV
from autosched.tir.schedule.tensorize import tensorize
from autosched.tir.tensor_intrin import TensorIntrin

Which = int | str | Buffer
Map = IndexMap | Callable[..., object] | str


class ScheduleSpecial(ScheduleExtras):
    """See `Schedule`."""

    # --- blocks of tiles ------------------------------------------------------------------------------------------

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

    # --- padding --------------------------------------------------------------------------------------------------

    def pad_einsum(self, block: BlockRV | str, padding: Sequence[int]) -> None:
        """Let each variable of a sum of products run to a multiple of a number; what is added is zero."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        numbers = [self._int(p) for p in padding]
        self._trees[fn] = pad_einsum(self._tree(fn), name, numbers)
        self._record("PadEinsum", (block,), {"padding": numbers})

    def decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Fill with the padding value in front of `loop`, then copy the part inside; returns the filling block."""
        block = self._rv_of(block)
        (fn, name), (loop_fn, var) = self._block(block), self._loop(loop)
        self._same_function(fn, loop_fn)
        self._trees[fn], fill = decompose_padding(self._tree(fn), name, var)
        rv = self._new_block(fn, fill)
        self._record("DecomposePadding", (block, loop), {}, (rv,))
        return rv

    def can_decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> bool:
        """Whether `decompose_padding` would do it."""
        (fn, name), (_, var) = self._block(block), self._loop(loop)
        try:
            decompose_padding(self._tree(fn), name, var)
        except ScheduleError:
            return False
        return True

    # --- copies with other indices --------------------------------------------------------------------------------

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

    def rolling_buffer(self, block: BlockRV | str, write_buffer_index: Which) -> None:
        """Keep what a producer computed in the iteration before, in a ring, and compute only what is new."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        position = cache.position_of(tree, name, write_buffer_index, written=True, action="rolling_buffer")
        found = cache.buffer_at(tree, name, position, written=True, action="rolling_buffer")
        self._trees[fn] = rolling.rolling_buffer(tree, name, found)
        self._record("RollingBuffer", (block,), {"write_buffer_index": position})

    def fuse_reduction_epilogue(self, reduction_block: BlockRV | str, epilogue_block: BlockRV | str) -> None:
        """Start a sum from what an element-wise block adds to it, and take that block away."""
        first, second = self._rv_of(reduction_block), self._rv_of(epilogue_block)
        (fn, name), (other, tail) = self._block(first), self._block(second)
        self._same_function(fn, other)
        self._trees[fn] = epilogue.fuse_reduction_epilogue(self._tree(fn), name, tail)
        self._record("FuseReductionEpilogue", (first, second))

    # --- buffers --------------------------------------------------------------------------------------------------

    def unsafe_set_dtype(self, block: BlockRV | str, buffer_index: Which, dtype: str) -> None:
        """Store a buffer that the block writes in another dtype; results may lose digits."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        position = cache.position_of(tree, name, buffer_index, written=True, action="unsafe_set_dtype")
        found = cache.buffer_at(tree, name, position, written=True, action="unsafe_set_dtype")
        self._trees[fn] = buffers.unsafe_set_dtype(tree, name, found, dtype)
        self._record("UnsafeSetDType", (block,), {"buffer_index": position, "dtype": dtype})

    def set_axis_separator(
        self, block: BlockRV | str, buffer: tuple[str, int] | str | Buffer, axis_separators: Sequence[int] | None
    ) -> None:
        """Note between which dimensions a buffer may not be flattened."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        kind, index = cache.read_or_write(tree, name, buffer)
        found = cache.buffer_at(tree, name, index, written=kind == "write", action="set_axis_separator")
        separators = [self._int(s) for s in axis_separators or ()]
        self._trees[fn] = buffers.set_axis_separator(tree, name, found, separators)
        attrs = {"buffer_index": index, "buffer_index_type": kind, "axis_separators": separators}
        self._record("SetAxisSeparator", (block,), attrs)

    def annotate_buffer_access(
        self, block: BlockRV | str, buffer_index: int, buf_type: str, gen_new_ranges: Map
    ) -> None:
        """Declare the region that a block reads or writes: (start, end) or an index for each dimension."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree, written = self._tree(fn), buf_type == "write"
        if buf_type not in ("read", "write"):
            raise ScheduleError(f"annotate_buffer_access: '{buf_type}' is neither 'read' nor 'write'")
        found = cache.buffer_at(tree, name, buffer_index, written=written, action="annotate_buffer_access")
        iter_vars = tree.block(name).iter_vars
        if isinstance(gen_new_ranges, str | IndexMap):
            mapping = layout.to_index_map(gen_new_ranges, len(iter_vars), "int32")
            ends = mapping.map_indices([iv.var for iv in iter_vars])
            ranges = tuple(Range(a, E.sub(b, a)) for a, b in zip(ends[::2], ends[1::2], strict=True))
        else:
            ranges = buffers.ranges_of(tree, name, found, gen_new_ranges)
        tree = buffers.set_access(tree, name, found, buf_type, ranges)
        key = f"explicit_{buf_type}_region"
        known = list(tree.block(name).annotations.get(key, ()))
        self._trees[fn] = annotate(tree, name, key, [*known, buffer_index])
        variables = tuple(E.Var(iv.var.name, iv.var.dtype) for iv in iter_vars)
        own = {iv.var: v for iv, v in zip(iter_vars, variables, strict=True)}
        flat = tuple(substitute(x, own) for r in ranges for x in (r.min, E.add(r.min, r.extent)))
        attrs = {
            "buffer_index": buffer_index,
            "buf_type": buf_type,
            "gen_new_ranges": str(IndexMap(variables, flat)),
        }
        self._record("AnnotateBufferAccess", (block,), attrs)

    def unsafe_hide_buffer_access(self, block: BlockRV | str, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Leave regions out of what a block declares to read or write: nothing watches over them any more."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        numbers = [self._int(i) for i in buf_index_array]
        self._trees[fn] = buffers.hide_access(self._tree(fn), name, buf_type, numbers)
        self._record("UnsafeHideBufferAccess", (block,), {"buf_type": buf_type, "buf_index_array": numbers})
