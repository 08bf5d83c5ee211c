"""Devices of values: an annotation that operators carry on. A program is computed on the one device it is built for."""

from __future__ import annotations

from autosched import topi
from autosched.errors import InvalidTypeError
from autosched.ir.global_info import VDevice
from autosched.relax.op.registry import define_op, sample
from autosched.relax.struct_info import StructInfo, TensorStructInfo, placed


def _infer(x: StructInfo, dst_vdevice: VDevice) -> StructInfo:
    if not isinstance(dst_vdevice, VDevice) or not isinstance(x, TensorStructInfo):
        raise InvalidTypeError(f"takes a tensor and a VDevice, got {x} and {dst_vdevice!r}")
    return placed(x, dst_vdevice)


to_vdevice = define_op(
    "to_vdevice",
    infer_type=_infer,
    compute=lambda x, dst_vdevice: topi.identity(x),
    reference=lambda x, dst_vdevice: x,
    attributes={"dst_vdevice": None},
    samples=[sample((2, 3), dst_vdevice=VDevice("llvm"))],  # type: ignore[arg-type]
)
