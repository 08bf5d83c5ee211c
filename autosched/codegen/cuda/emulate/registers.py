"""Special registers: where each stands in the thread's or block's record."""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.emit import Body
from autosched.errors import CodegenError

_THREAD = {"tid.x": at.TID_X, "tid.y": at.TID_Y, "tid.z": at.TID_Z, "laneid": at.LANE, "warpid": at.WARP}
_BLOCK = {
    "ntid.x": at.NTID_X,
    "ntid.y": at.NTID_Y,
    "ntid.z": at.NTID_Z,
    "ctaid.x": at.CTAID_X,
    "ctaid.y": at.CTAID_Y,
    "ctaid.z": at.CTAID_Z,
    "nctaid.x": at.NCTAID_X,
    "nctaid.y": at.NCTAID_Y,
    "nctaid.z": at.NCTAID_Z,
    "dynamic_smem_size": at.DYNAMIC_BYTES,
    "cluster_ctarank": at.RANK,
    "cluster_nctarank": at.N_CTAS,
    "cluster_nctaid.x": at.CLUSTER_X,
    "cluster_nctaid.y": at.CLUSTER_Y,
    "cluster_nctaid.z": at.CLUSTER_Z,
}
_PLACE_IN_CLUSTER = {
    "x": (at.CTAID_X, at.CLUSTER_X, at.NCTAID_X),
    "y": (at.CTAID_Y, at.CLUSTER_Y, at.NCTAID_Y),
    "z": (at.CTAID_Z, at.CLUSTER_Z, at.NCTAID_Z),
}
_LANE_MASKS = ("lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge")


def special_register(body: Body, name: str, where: str) -> str:
    """The 32-bit value of `%name` as an i64.

    Raises CodegenError for one that the emulator does not know (clocks, for instance, which would be invented).
    """
    if name in ("warpsize", "WARP_SZ"):
        return "32"
    if name in _THREAD:
        return body.load(_THREAD[name])
    if name in _BLOCK:
        return _of_block(body, _BLOCK[name])
    if name in _LANE_MASKS:
        lane = body.load(at.LANE)
        bit = body.new(f"shl i64 1, {lane}")
        below = body.new(f"sub i64 {bit}, 1")
        up_to = body.new(f"or i64 {bit}, {below}")
        if name.endswith("_eq"):
            return bit
        if name.endswith("_lt"):
            return below
        if name.endswith("_le"):
            return up_to
        return body.new(f"xor i64 {up_to if name.endswith('_gt') else below}, 4294967295")
    kind, _, axis = name.partition(".")
    if axis in _PLACE_IN_CLUSTER and kind in ("cluster_ctaid", "clusterid", "nclusterid"):
        block, size, count = (_of_block(body, number) for number in _PLACE_IN_CLUSTER[axis])
        operation, left = {
            "cluster_ctaid": ("urem", block),
            "clusterid": ("udiv", block),
            "nclusterid": ("udiv", count),
        }[kind]
        return body.new(f"{operation} i64 {left}, {size}")
    if name == "nwarpid":
        threads = _of_block(body, at.N_PADDED)
        return body.new(f"udiv i64 {threads}, 32")
    raise CodegenError(f"the emulator has no special register %{name}", where=where)


def _of_block(body: Body, number: int) -> str:
    record = body.load(at.BLOCK)
    place = body.new(f"add i64 {record}, {number * 8}")
    pointer = body.new(f"inttoptr i64 {place} to ptr")
    return body.new(f"load i64, ptr {pointer}")
