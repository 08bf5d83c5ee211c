"""One convolution by itself in given layouts: what is measured, or looked up, of a layout."""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Var
from autosched.relax.op.registry import remake
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.choose_layouts import apply_layouts
from autosched.relax.transform.layout_rules import FEW_CHANNELS, PLAIN, is_dense, is_depthwise, shape_of_result


def stored_shapes(call: Call, has: int, result: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of data, weight and result of a convolution, data in layout `has`, its result in `result`.

    Layouts are PLAIN or the number of channels in a block.
    """
    data, weight = (shape_of(a) for a in call.args)
    has = data_layout(call, has, result)
    stored_in, stored_out = _stored(data, has), _stored(shape_of_result(call), result)
    if is_depthwise(call):
        weight = (_channels(stored_out), *weight[1:])
    elif is_dense(call):
        weight = (_channels(stored_out), _channels(stored_in), *weight[2:])
    return stored_in, weight, stored_out


def data_layout(call: Call, has: int, result: int) -> int:
    """The layout in which a convolution reads data that are there in layout `has`."""
    if not is_dense(call):
        return result
    few = shape_of(call.args[0])[1] <= FEW_CHANNELS
    return has or (PLAIN if few else result)


def layout_example(call: Call, has: int, result: int) -> IRModule:
    """A module whose `main` does nothing but the convolution, in the layouts of `stored_shapes`."""
    builder = BlockBuilder()
    params = [Var(name, TensorStructInfo(shape_of(a), a.struct_info.dtype)) for name, a in
              zip(("data", "weight"), call.args, strict=True)]  # fmt: skip
    with builder.function("main", params):
        with builder.dataflow():
            data = builder.emit(op.nn.relu(params[0]))
            made = builder.emit(remake(call, [data, params[1]]))
            out = builder.emit_output(op.nn.relu(made))
        builder.emit_func_output(out)
    plan = {data: data_layout(call, has, result), made: result}
    return apply_layouts(builder.get(), plan)


def _stored(shape: tuple[int, ...], block: int) -> tuple[int, ...]:
    if block == PLAIN:
        return shape
    n, c, h, w = shape
    return n, -(-c // block), h, w, block


def _channels(stored: tuple[int, ...]) -> int:
    return stored[1] * (stored[4] if len(stored) == 5 else 1)


__all__ = ["data_layout", "layout_example", "stored_shapes"]
