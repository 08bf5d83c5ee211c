"""TVM's names of what the threads of a GPU do together: instructions of PTX, shuffles, barriers.

A pointer is `A.data` with an offset in elements: a place in the buffer as if it had one dimension. What each call does,
and what is refused of it, is in `codegen/lower/ptx.py`, for mbarriers in `codegen/lower/mbarriers.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from autosched.errors import InvalidTypeError
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import check_dtype
from autosched.tir.expr import Call, ExprLike, PrimExpr, StringImm, to_expr

__all__ = [
    "create_barriers", "mma_fill", "mma_store", "ptx_arrive_barrier", "ptx_arrive_barrier_expect_tx",
    "ptx_commit_group", "ptx_cp_async", "ptx_cp_async_barrier", "ptx_cp_async_bulk", "ptx_init_barrier_thread_count",
    "ptx_ldmatrix", "ptx_mma", "ptx_wait_barrier", "ptx_wait_group", "tvm_storage_sync", "tvm_warp_activemask",
    "tvm_warp_shuffle", "tvm_warp_shuffle_down", "tvm_warp_shuffle_up", "tvm_warp_shuffle_xor",
]  # fmt: skip
SHUFFLES = {
    "tvm_warp_shuffle": 0, "tvm_warp_shuffle_up": 1, "tvm_warp_shuffle_down": 2, "tvm_warp_shuffle_xor": 3,
}  # fmt: skip  # the mode of `shfl.sync`


def _call(name: str, dtype: str, *args: object) -> PrimExpr:
    return Call(name, tuple(_arg(name, i, a) for i, a in enumerate(args)), check_dtype(dtype, name, "handle", "void"))


def _arg(name: str, index: int, a: object) -> PrimExpr:
    if isinstance(a, str):
        return StringImm(a)
    if isinstance(a, Buffer):
        raise InvalidTypeError(f"{name}: argument {index} is the buffer '{a.name}'", hint=f"pass {a.name}.data")
    return to_expr(a)


def ptx_mma(
    dtype: str, shape: str, A_layout: str, B_layout: str, A_dtype: str, B_dtype: str, C_dtype: str,  # noqa: N803
    multiplicand_a: PrimExpr, a_index: ExprLike, multiplicand_b: PrimExpr, b_index: ExprLike,
    accumulator: PrimExpr, c_index: ExprLike, saturate: object, operator: str | None = None,
) -> PrimExpr:  # fmt: skip
    """C += A * B of one tile, by the 32 lanes of a warp: each lane's elements lie side by side in registers.

    shape    "m16n8k16", …;  layouts "row" and "col";  types "fp16", "bf16", "tf32", "int8", "uint8", "fp32", "int32"
    """
    more = () if operator is None else (operator,)
    operands = (multiplicand_a, a_index, multiplicand_b, b_index, accumulator, c_index, to_expr(saturate, "bool"))
    return _call("ptx_mma", dtype, shape, A_layout, B_layout, A_dtype, B_dtype, C_dtype, *operands, *more)


def ptx_ldmatrix(
    dtype: str, trans: object, num: ExprLike, type: str, local_ptr: PrimExpr, local_offset: ExprLike,
    smem_ptr: PrimExpr, smem_offset: ExprLike,
) -> PrimExpr:  # fmt: skip
    """Load `num` matrices of 8 x 8 elements of 16 bits (`type` is ".b16") from shared memory into a warp's registers.

    smem_offset  where a row of 16 bytes begins: lane i gives row i % 8 of matrix i // 8
    """
    place = (local_ptr, local_offset, smem_ptr, smem_offset)
    return _call("ptx_ldmatrix", dtype, to_expr(trans, "bool"), num, type, *place)


def ptx_cp_async(
    dtype: str, shared_ptr: PrimExpr, shared_offset: ExprLike, global_ptr: PrimExpr, global_offset: ExprLike,
    bytes: ExprLike,
) -> PrimExpr:  # fmt: skip
    """Begin a copy of 4, 8 or 16 bytes from device to shared memory."""
    return _call("ptx_cp_async", dtype, shared_ptr, shared_offset, global_ptr, global_offset, bytes)


def ptx_commit_group() -> PrimExpr:
    """Make a group of the copies begun since the last one."""
    return _call("ptx_commit_group", "void")


def ptx_wait_group(num: ExprLike) -> PrimExpr:
    """Wait until at most the last `num` groups of this thread's copies are under way."""
    return _call("ptx_wait_group", "void", num)


def create_barriers(barrier_count: ExprLike) -> PrimExpr:
    """Place `barrier_count` mbarriers, numbered from 0, in the shared memory of each block."""
    return _call("create_barriers", "void", barrier_count)


def ptx_init_barrier_thread_count(barrier_id: ExprLike, thread_count: ExprLike) -> PrimExpr:
    """Let the phase of an mbarrier end when `thread_count` arrivals, and the bytes expected there, have come.

    One thread does it where all threads of the block come here, and the others see it.
    """
    return _call("ptx_init_barrier_thread_count", "void", barrier_id, thread_count)


def ptx_arrive_barrier(barrier_id: ExprLike) -> PrimExpr:
    """Arrive at an mbarrier."""
    return _call("ptx_arrive_barrier", "void", barrier_id)


def ptx_arrive_barrier_expect_tx(barrier_id: ExprLike, byte_count: ExprLike) -> PrimExpr:
    """Arrive at an mbarrier, whose phase ends only when `byte_count` more bytes have come by bulk copies."""
    return _call("ptx_arrive_barrier_expect_tx", "void", barrier_id, byte_count)


def ptx_cp_async_barrier(barrier_id: ExprLike) -> PrimExpr:
    """Let the phase of an mbarrier end only when all copies that this thread has begun by `ptx_cp_async` have ended."""
    return _call("ptx_cp_async_barrier", "void", barrier_id)


def ptx_wait_barrier(barrier_id: ExprLike) -> PrimExpr:
    """Wait until the first phase of an mbarrier since its initialisation has ended."""
    return _call("ptx_wait_barrier", "void", barrier_id)


def ptx_cp_async_bulk(
    dtype: str, shared_ptr: PrimExpr, shared_offset: ExprLike, global_ptr: PrimExpr, global_offset: ExprLike,
    bytes: ExprLike, barrier_id: ExprLike,
) -> PrimExpr:  # fmt: skip
    """Begin a copy from device to shared memory whose bytes an mbarrier counts: a multiple of 16 at such addresses."""
    place = (shared_ptr, shared_offset, global_ptr, global_offset)
    return _call("ptx_cp_async_bulk", dtype, *place, bytes, barrier_id)


def mma_fill(dtype: str, local_size: ExprLike, local_ptr: PrimExpr, offset: ExprLike) -> PrimExpr:
    """Set `local_size` registers of each lane to 0."""
    return _call("mma_fill", dtype, local_size, local_ptr, offset)


def mma_store(
    dtype: str, m: ExprLike, n: ExprLike, dst_ptr: PrimExpr, src_ptr: PrimExpr, src_offset: ExprLike,
    dst_stride: ExprLike,
) -> PrimExpr:  # fmt: skip
    """Store a 16 x 16 tile of sums, eight in each lane, into a matrix whose rows are `dst_stride` elements apart.

    dst_ptr  where the tile begins: `C.data`, or `C.access_ptr("w", offset=…)`
    """
    return _call("mma_store", dtype, m, n, dst_ptr, src_ptr, src_offset, dst_stride)


def tvm_storage_sync(scope: str) -> PrimExpr:
    """The threads of a block ("shared"), or of a warp ("warp"), wait for each other."""
    return _call("tvm_storage_sync", "int32", scope)


def tvm_warp_activemask() -> PrimExpr:
    """The lanes of a warp that run: all of them, where what lanes do together may stand."""
    return _call("tvm_warp_activemask", "uint32")


def _shuffle(name: str, mask: ExprLike, value: ExprLike, lane: ExprLike, *sizes: ExprLike) -> PrimExpr:
    value = to_expr(value)
    return _call(name, value.dtype, mask, value, lane, *sizes)


def tvm_warp_shuffle(
    mask: ExprLike, value: ExprLike, warp_id: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value of lane `warp_id` among `width` neighbours."""
    return _shuffle("tvm_warp_shuffle", mask, value, warp_id, width, warp_size)


def tvm_warp_shuffle_up(
    mask: ExprLike, value: ExprLike, offset: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value of the lane `offset` below; its own where there is none among `width` neighbours."""
    return _shuffle("tvm_warp_shuffle_up", mask, value, offset, width, warp_size)


def tvm_warp_shuffle_down(
    mask: ExprLike, value: ExprLike, offset: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value of the lane `offset` above; its own where there is none among `width` neighbours."""
    return _shuffle("tvm_warp_shuffle_down", mask, value, offset, width, warp_size)


def tvm_warp_shuffle_xor(
    mask: ExprLike, value: ExprLike, lane_mask: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value of the lane whose number differs in the bits of `lane_mask`."""
    return _shuffle("tvm_warp_shuffle_xor", mask, value, lane_mask, width, warp_size)


FUNCTIONS: dict[str, Callable[..., PrimExpr]] = {name: globals()[name] for name in __all__}
TYPED = frozenset(n for n, f in FUNCTIONS.items() if "dtype" in inspect.signature(f).parameters)  # dtype comes first
