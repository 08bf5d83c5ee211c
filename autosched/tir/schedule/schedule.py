"""Schedule: TVM's primitives on a function of the loop level."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidTypeError, ScheduleError
from autosched.tir.buffer import Buffer
from autosched.tir.index_map import IndexMap
from autosched.tir.schedule import cache, compute_at, inline, layout, loops, notes, reduction, sampling
from autosched.tir.schedule.extras import INLINE
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.rv import BlockRV, ExprRV, LoopRV
from autosched.tir.schedule.special import ScheduleSpecial
from autosched.tir.schedule.tree import Tree
from autosched.tir.stmt import LoopKind

Factor = int | ExprRV | None


class Schedule(ScheduleSpecial):
    """Rewrites a function step by step and records a trace. Blocks may be given by name wherever a BlockRV is taken.

    Each primitive checks that it keeps the result; it raises ScheduleError (leaving everything as it was) if it would
    not, and ValueError for a reference that is dead.

        sch = Schedule(func)
        i, j, k = sch.get_loops("C")
        i_0, i_1 = sch.split(i, [None, 4])
        sch.parallel(i_0)
    """

    # --- looking --------------------------------------------------------------------------------------------------

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

    # --- sampling -------------------------------------------------------------------------------------------------

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """n factors whose product is the loop's extent, drawn evenly (or those decided)."""
        fn, var = self._loop(loop)
        extent = sampling.constant_extent(self._tree(fn).loops[var])
        factors = sampling.perfect_tile(self._random, extent, n, max_innermost_factor, decision)
        rvs = [self._new_value(f) for f in factors]
        attrs = {"n": n, "max_innermost_factor": max_innermost_factor}
        self._record("SamplePerfectTile", (loop,), attrs, rvs, decision=factors)
        return rvs

    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """One of the candidates with the given probabilities; the decision is its position."""
        index = sampling.categorical(self._random, candidates, probs, decision)
        rv = self._new_value(candidates[index])
        attrs = {"candidates": list(candidates), "probs": list(probs)}
        self._record("SampleCategorical", (), attrs, (rv,), decision=index)
        return rv

    # --- loops ----------------------------------------------------------------------------------------------------

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Factor],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Divide a loop into one per factor; one may be None. A surplus is kept out by the blocks' predicates.

           for i in range(7): s(i)   with [None, 4]
        -> for i_0 in range(2):
               for i_1 in range(4):
                   if i_0 * 4 + i_1 < 7: s(i_0 * 4 + i_1)
        """
        fn, var = self._loop(loop)
        if isinstance(factors, str) or not isinstance(factors, Sequence):
            raise InvalidTypeError(f"split: factors is a {type(factors).__name__}, expected a list of integers or None")
        sizes = [None if f is None else self._int(f) for f in factors]
        tree, new = loops.split(self._tree(fn), var, sizes, preserve_unit_iters, not disable_predication)
        self._trees[fn] = tree
        rvs = [self._new_loop(fn, v) for v in new]
        attrs = {"preserve_unit_iters": preserve_unit_iters, "disable_predication": disable_predication}
        self._record("Split", (loop, *factors), attrs, rvs)
        return rvs

    def fuse(self, *loop_rvs: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """One loop of several, outer to inner, each the only child of the one before; named `i_j_fused`."""
        found = [self._loop(x) for x in loop_rvs]
        fn = self._same_function(*(f for f, _ in found))
        tree, var = loops.fuse(self._tree(fn), [v for _, v in found], preserve_unit_iters)
        self._trees[fn] = tree
        rv = self._new_loop(fn, var)
        self._record("Fuse", loop_rvs, {"preserve_unit_iters": preserve_unit_iters}, (rv,))
        return rv

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Put loops of one chain into the given order."""
        found = [self._loop(x) for x in ordered_loops]
        fn = self._same_function(*(f for f, _ in found))
        self._trees[fn] = loops.reorder(self._tree(fn), [v for _, v in found])
        self._record("Reorder", ordered_loops)

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV | str) -> LoopRV:
        """A loop of extent 1 around a block or loop."""
        place = self._rv_of(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        fn, key = self._loop(place) if isinstance(place, LoopRV) else self._block(place)
        tree = self._tree(fn)
        tree, var = loops.add_unit_loop(tree, tree.realizes[key] if isinstance(key, str) else tree.loops[key])
        self._trees[fn] = tree
        rv = self._new_loop(fn, var)
        self._record("AddUnitLoop", (place,), {}, (rv,))
        return rv

    def parallel(self, loop: LoopRV) -> None:
        """Let threads share the iterations: data-parallel loops over complete or reduction blocks only."""
        self._set_kind("Parallel", loop, LoopKind.PARALLEL)

    def vectorize(self, loop: LoopRV) -> None:
        """Let vector lanes share the iterations; preconditions as `parallel`."""
        self._set_kind("Vectorize", loop, LoopKind.VECTORIZED)

    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations out."""
        self._set_kind("Unroll", loop, LoopKind.UNROLLED)

    def _set_kind(self, name: str, loop: LoopRV, kind: LoopKind) -> None:
        fn, var = self._loop(loop)
        self._trees[fn] = loops.set_kind(self._tree(fn), var, kind)
        self._record(name, (loop,))

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind a loop to a GPU thread axis such as "blockIdx.x".

        A loop bound to "clusterCtaIdx.x" runs in blocks of one cluster; one bound to "blockIdx.x" then counts clusters.
        """
        fn, var = self._loop(loop)
        if not isinstance(thread_axis, str):
            raise InvalidTypeError(f"bind: thread_axis is a {type(thread_axis).__name__}, expected a string")
        self._trees[fn] = loops.bind(self._tree(fn), var, thread_axis)
        self._record("Bind", (loop,), {"thread_axis": thread_axis})

    # --- moving blocks --------------------------------------------------------------------------------------------

    def compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a producer under a loop of its consumers; it computes what they read there.

        index  place in the loop's body; -1 the last possible, -2 the first
        """
        self._move("ComputeAt", compute_at.compute_at, block, loop, preserve_unit_loops, index)

    def reverse_compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under a loop of its producers; it works on what they have just written."""
        self._move("ReverseComputeAt", compute_at.reverse_compute_at, block, loop, preserve_unit_loops, index)

    def _move(
        self,
        kind: str,
        primitive: Callable[..., Tree],
        block: BlockRV | str,
        loop: LoopRV,
        unit_loops: bool,
        index: int,
    ) -> None:
        block = self._rv_of(block)
        fn, name = self._block(block)
        if loop in self._places:  # a sampled place that is no loop
            if self._places[loop] == INLINE:
                self._trees[fn] = inline.compute_inline(self._tree(fn), name)
        else:
            loop_fn, var = self._loop(loop)
            self._same_function(fn, loop_fn)
            self._trees[fn] = primitive(self._tree(fn), name, var, unit_loops, index)
        self._record(kind, (block, loop), {"preserve_unit_loops": unit_loops, "index": index})

    def compute_inline(self, block: BlockRV | str) -> None:
        """Put what a block computes into its consumers."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn] = inline.compute_inline(self._tree(fn), name)
        self._record("ComputeInline", (block,))

    def reverse_compute_inline(self, block: BlockRV | str) -> None:
        """Put an element-wise block into its only producer."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn] = inline.reverse_compute_inline(self._tree(fn), name)
        self._record("ReverseComputeInline", (block,))

    # --- buffers --------------------------------------------------------------------------------------------------

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

    def set_scope(self, block: BlockRV | str, buffer_index: int | str | Buffer, storage_scope: str) -> None:
        """Say where a buffer that the block writes lives: "global", "local" …"""
        block = self._rv_of(block)
        fn, name = self._block(block)
        position = cache.position_of(self._tree(fn), name, buffer_index, written=True, action="set_scope")
        self._trees[fn] = cache.set_scope(self._tree(fn), name, position, storage_scope)
        self._record("SetScope", (block,), {"buffer_index": position, "storage_scope": storage_scope})

    def storage_align(
        self, block: BlockRV | str, buffer_index: int | str | Buffer, axis: int, factor: int, offset: int
    ) -> None:
        """Ask for a buffer that the block writes to have a stride of k * factor + offset elements in one dimension."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        position = cache.position_of(self._tree(fn), name, buffer_index, written=True, action="storage_align")
        target = cache.buffer_at(self._tree(fn), name, position, written=True, action="storage_align")
        if not -target.ndim <= axis < target.ndim or factor < 1:
            raise ScheduleError(
                f"storage_align: axis {axis} with factor {factor} of '{target.name}' in {target.ndim} dimensions",
                where=where_block(self._tree(fn), name),
            )  # fmt: skip
        noted = self._tree(fn).block(name).annotations.get("buffer_dim_align", ())
        note = [position, axis % target.ndim, factor, offset]
        self._trees[fn] = notes.annotate(self._tree(fn), name, "buffer_dim_align", [*map(list, noted), note])
        self._record(
            "StorageAlign", (block,), {"buffer_index": position, "axis": axis, "factor": factor, "offset": offset}
        )

    def storage_swizzle(self, block: BlockRV | str, buffer_index: int | str | Buffer) -> None:
        """Ask for the 16-byte pieces of a shared buffer's rows to be permuted, so that columns lie in different banks.

        The buffer is one that the block writes; its rows are a power of two of such pieces. Recorded as an annotation.
        """
        block = self._rv_of(block)
        fn, name = self._block(block)
        position = cache.position_of(self._tree(fn), name, buffer_index, written=True, action="storage_swizzle")
        noted = self._tree(fn).block(name).annotations.get("buffer_swizzle", ())
        self.annotate(block, "buffer_swizzle", [*map(int, noted), position])

    # --- reductions -----------------------------------------------------------------------------------------------

    def decompose_reduction(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Initialise in front of `loop`; the block is renamed `X_update`, the new `X_init` is returned."""
        block = self._rv_of(block)
        (fn, name), (loop_fn, var) = self._block(block), self._loop(loop)
        self._same_function(fn, loop_fn)
        tree, init, update = reduction.decompose_reduction(self._tree(fn), name, var)
        self._trees[fn] = tree
        self._rename(fn, name, update)
        rv = self._new_block(fn, init)
        self._record("DecomposeReduction", (block, loop), {}, (rv,))
        return rv

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Partial results per iteration of `loop` (block `X_rf`, returned), then their combination (block `X`)."""
        return self._factor("RFactor", loop, factor_axis)

    def rfactor_inside(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """As `rfactor`, but the combination stays under the loops around that are not reduced: each of their
        iterations is finished before the next begins. TVM has no such primitive."""
        return self._factor("RFactorInside", loop, factor_axis)

    def _factor(self, kind: str, loop: LoopRV, factor_axis: int) -> BlockRV:
        fn, var = self._loop(loop)
        tree, partial, _ = reduction.rfactor(self._tree(fn), var, factor_axis, behind_all=kind == "RFactor")
        self._trees[fn] = tree
        rv = self._new_block(fn, partial)
        self._record(kind, (loop,), {"factor_axis": factor_axis}, (rv,))
        return rv

    # --- layouts and notes ----------------------------------------------------------------------------------------

    def transform_layout(
        self, block: BlockRV | str, buffer: tuple[str, int] | str | Buffer,
        index_map: IndexMap | Callable[..., object] | str,
        pad_value: float | int | Callable[..., object] | None = None, *, assume_injective_transform: bool = False,
    ) -> None:  # fmt: skip
        """Store a buffer in another layout: `index_map` gives new indices for old ones.

        buffer     ("read" or "write", position), or a buffer or name that the block uses
        pad_value  what fills new elements where sizes do not divide; without it padding is refused
        """
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        kind, index = cache.read_or_write(tree, name, buffer)
        target = cache.buffer_at(tree, name, index, written=kind == "write", action="transform_layout")
        dtype = target.shape[0].dtype if target.shape else "int32"
        mapping, separators = layout.to_separated_map(index_map, target.ndim, dtype)
        self._trees[fn] = layout.transform_layout(tree, name, target, mapping, pad_value, assume_injective_transform)
        attrs = {
            "buffer_index": index, "buffer_index_type": kind, "index_map": str(mapping), "pad_value": pad_value,
            "assume_injective_transform": assume_injective_transform,
        }  # fmt: skip
        self._record("TransformLayout", (block,), attrs)
        if separators:
            self.set_axis_separator(block, (kind, index), separators)

    def transform_block_layout(self, block: BlockRV | str, index_map: IndexMap | Callable[..., object] | str) -> None:
        """Let a block iterate over other variables: a bijection of the old ones; its loops are made anew."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        iter_vars = self._tree(fn).block(name).iter_vars
        mapping = layout.to_index_map(index_map, len(iter_vars), iter_vars[0].var.dtype if iter_vars else "int32")
        self._trees[fn] = layout.transform_block_layout(self._tree(fn), name, mapping)
        self._record("TransformBlockLayout", (block,), {"index_map": str(mapping)})

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
