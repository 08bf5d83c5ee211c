"""Buffers: scopes, strides, layouts, dtypes, declared regions. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer
from autosched.tir.functor import substitute
from autosched.tir.index_map import IndexMap
from autosched.tir.schedule import buffers, cache, layout, notes
from autosched.tir.schedule.notes import annotate
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.primitives.annotations import Annotations
from autosched.tir.schedule.rv import BlockRV

Which = int | str | Buffer
Map = IndexMap | Callable[..., object] | str


class Buffers(Annotations):
    """See `Schedule`."""

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
