"""In which layouts a call can work: blocks of channels that fit it, and what its arguments have to be for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autosched.ir.node import FrozenDict
from autosched.relax.expr import Call, Constant, Expr, Tuple, Var
from autosched.relax.op.registry import OpDef, definition_of
from autosched.relax.op.types import axis_index, broadcast, compare, float_same, same
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import shape_of

IN_WORD = {"uint8": 4, "int16": 2, "bfloat16": 2}  # elements of a word
FEW_CHANNELS = 4  # data of so few channels stay plain: a first layer's, and results of a last one may
NO_TILES: Mapping[str, int] = FrozenDict()  # blocks of a CPU without tile registers
PLAIN = 0  # in place of a number of channels

POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
REDUCTIONS = ("sum", "sum_abs", "sum_squares", "mean", "max", "min", "variance")
UNSAFE_PADDED = ("divide", "floor_divide", "power")  # 0 / 0 in a padded channel is no number, and stays none


def is_elementwise(definition: OpDef) -> bool:
    """Whether the operator computes every element from the same element of its one argument."""
    return definition.infer_type in (same, float_same) or definition.name == "astype"


def is_broadcast(definition: OpDef) -> bool:
    """Whether the operator computes every element from the same element of its operands, which are broadcast."""
    return definition.infer_type in (broadcast, compare) or definition.name == "where"


def finite_at_zero(definition: OpDef, call: Call) -> bool:
    """Whether a channel of zeros stays finite, so that a zero weight can hide it."""
    zero = np.zeros(1, call.args[0].struct_info.dtype)
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(definition.run_reference([zero], call.attrs))))


def shape_of_result(call: Call) -> tuple[int, ...]:
    info = call.struct_info
    return info.static_shape if isinstance(info, TensorStructInfo) and info.is_static else ()


def is_convolution(call: Call) -> bool:
    """Whether the call is a plain 2-D convolution, which may be given blocks."""
    definition = definition_of(call)
    if definition is None or definition.name != "nn.conv2d" or len(shape_of(call.args[1])) != 4:
        return False
    return bool(call.attrs["data_layout"] == "NCHW" and call.attrs["out_layout"] == "NCHW")


def is_depthwise(call: Call) -> bool:
    """Whether the call convolves each channel on its own, into one output or several."""
    return is_convolution(call) and shape_of(call.args[1])[1] == 1 and call.attrs["groups"] > 1


def is_dense(call: Call) -> bool:
    """Whether the call convolves all channels together."""
    return is_convolution(call) and call.attrs["groups"] == 1


def words_of(call: Call) -> str:
    """The dtype of what a convolution multiplies in words of several elements, a key of IN_WORD; "" of others."""
    info = call.args[0].struct_info if call.args else None
    if not is_convolution(call) or is_depthwise(call) or not isinstance(info, TensorStructInfo):
        return ""
    return info.dtype if info.dtype in IN_WORD else ""


def is_pool(call: Call) -> bool:
    definition = definition_of(call)
    return definition is not None and definition.name in POOLS and call.attrs["layout"] == "NCHW"


def is_resize(call: Call) -> bool:
    definition = definition_of(call)
    return definition is not None and definition.name == "image.resize2d" and call.attrs["layout"] == "NCHW"


def is_shuffle(call: Call) -> bool:
    """Whether the call makes larger images of phases that are channels."""
    definition = definition_of(call)
    return definition is not None and definition.name == "nn.depth_to_space" and call.attrs["layout"] == "NCHW"


def has_blocks_of_its_own(call: Call) -> bool:
    """Whether the call asks how many channels a block has: a convolution, a pool, or a change of size."""
    return is_convolution(call) or is_pool(call) or is_resize(call)


def data_arguments(call: Call) -> tuple[Expr, ...]:
    """The arguments that come in the layout of the call."""
    if is_convolution(call):
        return (call.args[0],)
    first = call.args[0] if call.args else None
    return first.fields if isinstance(first, Tuple) else tuple(call.args)


def forms_of(call: Call, blocks: Sequence[int]) -> tuple[int, ...]:
    """The layouts in which a call's result can be: PLAIN, or a number of channels in a block."""
    definition, shape = definition_of(call), shape_of_result(call)
    if definition is None or len(shape) != 4:
        return (PLAIN,)
    if is_dense(call):
        return (PLAIN, *blocks) if _may_stay_plain(call) else tuple(blocks)
    if is_depthwise(call):
        return (PLAIN, *(b for b in blocks if _reads_whole_blocks(call, b)))
    if is_convolution(call):
        fitting = (b if holds_groups(call, b) else group_block(call, b) for b in blocks)
        return (PLAIN, *dict.fromkeys(b for b in fitting if b))
    if definition.name == "concat":
        fitting = (concat_block(call, b) for b in blocks)
        return (PLAIN, *dict.fromkeys(b for b in fitting if b))
    return (PLAIN, *(b for b in blocks if _works_in(definition, call, b)))


def _may_stay_plain(call: Call) -> bool:
    """Whether a dense convolution with stride 1 has so few channels that blocks of them would be mostly padding."""
    infos = call.struct_info, call.args[0].struct_info
    is_float = all(isinstance(info, TensorStructInfo) and info.dtype == "float32" for info in infos)
    return is_float and shape_of(call.args[1])[0] <= FEW_CHANNELS and tuple(call.attrs["strides"]) == (1, 1)


def outputs_of_each(call: Call) -> int:
    """How many outputs a depthwise convolution makes of each channel."""
    return shape_of(call.args[1])[0] // int(call.attrs["groups"])


def _reads_whole_blocks(call: Call, block: int) -> bool:
    """Whether blocks of a depthwise convolution's outputs are those of equal parts of blocks that its data fill."""
    each, channels = outputs_of_each(call), int(call.attrs["groups"])
    return each == 1 or (block % each == 0 and channels % block == 0)


def holds_groups(call: Call, block: int) -> bool:
    """Whether blocks of a grouped convolution's data and result are those of several whole groups."""
    out, each = shape_of(call.args[1])[:2]
    info = call.args[0].struct_info
    is_float = isinstance(info, TensorStructInfo) and info.dtype == "float32"
    return is_float and out == each * call.attrs["groups"] and block > each and block % each == 0 == out % block


def group_block(call: Call, block: int) -> int:
    """Channels in a block of a grouped convolution: blocks lie within groups; 0 where they cannot."""
    out, per_group_in = shape_of(call.args[1])[:2]
    per_group_out, strided = out // call.attrs["groups"], call.attrs["strides"] != (1, 1)
    while block >= FEW_CHANNELS and (per_group_in % block or per_group_out % block):
        block = block // 2 if strided else 0
    return block if block >= FEW_CHANNELS else 0


def concat_block(call: Call, block: int) -> int:
    """Channels in a block that all parts but the last fill; 0 where there are none."""
    parts = data_arguments(call)
    if any(not isinstance(p, Var) or len(shape_of(p)) != 4 for p in parts):
        return 0
    if axis_index(call.attrs["axis"], 4) == 1:
        while block >= FEW_CHANNELS and any(shape_of(p)[1] % block for p in parts[:-1]):
            block //= 2
    return block if block >= FEW_CHANNELS else 0


def _works_in(definition: OpDef, call: Call, block: int) -> bool:
    """Whether a pool, element-wise call, pad or reduction can work on blocks."""
    data = call.args[0]
    if is_pool(call):
        return isinstance(data, Var)
    padded = bool(shape_of_result(call)[1] % block)
    if is_elementwise(definition):
        return not padded or finite_at_zero(definition, call)
    if is_broadcast(definition):
        return _binary_works(definition, call, padded)
    if definition.name == "nn.pad":
        return not any(tuple(call.attrs["pad_width"])[:4])
    if definition.name == "take":
        is_image = isinstance(data, Var) and len(shape_of(data)) == 4
        return is_image and axis_index(call.attrs["axis"], 4) in (2, 3)
    if is_resize(call):
        return isinstance(data, Var)
    if is_shuffle(call):
        return isinstance(data, Var) and not padded
    if definition.name == "reshape":  # it says that sizes which are open are equal
        return isinstance(data, Var) and shape_of(data) == shape_of_result(call)
    return definition.name in REDUCTIONS and image_axes(call) is not None and len(shape_of(data)) == 4


def image_axes(call: Call) -> tuple[int, ...] | None:
    """The axes of a reduction that leaves channels alone and keeps its dimensions; None for any other."""
    axes = call.attrs["axis"]
    if axes is None or not call.attrs["keepdims"]:
        return None
    found = tuple(axis_index(a, 4) for a in ((axes,) if isinstance(axes, int) else tuple(axes)))
    return found if set(found) <= {2, 3} else None


def _binary_works(definition: OpDef, call: Call, padded: bool) -> bool:
    if padded and definition.name in UNSAFE_PADDED and not isinstance(call.args[1], Constant):
        return False
    channels = shape_of_result(call)[1]
    return all(_broadcasts(a, channels) for a in call.args)


def _broadcasts(x: Expr, channels: int) -> bool:
    """Whether an operand can be brought beside blocks of so many channels."""
    if isinstance(x, Constant):
        wide = (1,) * (4 - x.data.ndim) + x.data.shape
        return x.data.size == 1 or (len(wide) == 4 and wide[1] in (1, channels))
    info, shape = x.struct_info, shape_of(x)
    if len(shape) == 4:
        return isinstance(x, Var) and shape[1] in (1, channels)
    return isinstance(info, TensorStructInfo) and info.ndim == 0


def needed(call: Call, argument: Expr, has: int, result: int) -> int:
    """The layout in which a call that gives `result` takes an argument that is there in layout `has`."""
    if result == PLAIN:
        return PLAIN
    shape = shape_of(argument)
    if is_dense(call):
        return has if has or shape[1] <= FEW_CHANNELS else result
    definition = definition_of(call)
    if definition is not None and is_broadcast(definition):
        beside = len(shape) == 4 and shape[1] == shape_of_result(call)[1]
        return result if beside else PLAIN
    return result
