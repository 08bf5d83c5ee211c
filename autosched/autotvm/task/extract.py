"""AutoTVM's tasks of a model: its convolutions and dense layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autosched.autotvm.task.operators import CONV2D, DENSE, DEPTHWISE
from autosched.autotvm.task.task import Task, create
from autosched.errors import InvalidTypeError
from autosched.ir import IRModule
from autosched.relax import Call, Function
from autosched.relax.struct_info import TensorStructInfo
from autosched.target import Target

Named = tuple[str, tuple[object, ...]]


def extract_from_program(
    mod: object, params: object, target: object, target_host: object = None, ops: Sequence[object] | None = None
) -> list[Task]:
    """The tasks of a model's convolutions (NCHW) and dense layers, each once.

    params  of the model; tasks name the weights' shapes only
    ops     operators (`relay.op.get("nn.conv2d")`) or their names; by default all that there are templates for
    Builds of a model take their schedules from `autosched.tune`; a template that is called takes AutoTVM's.
    Raises  InvalidTypeError for what is no model.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[object],
    params: Sequence[object],
    target: object,
    target_host: object = None,
    ops: Sequence[object] | None = None,
) -> list[Task]:
    """The tasks of several models, each once; see `extract_from_program`."""
    if len(mods) != len(params):
        raise InvalidTypeError(f"extract_from_multiple_program: {len(mods)} models and {len(params)} of their params")
    chosen, host = Target.canon_target_and_host(target, target_host)
    wanted = None if ops is None else {_short(str(getattr(op, "name", op))) for op in ops}
    found: dict[Named, None] = {}
    for mod in mods:
        for function in _functions(mod):
            found |= dict.fromkeys(_tasks(function, wanted))
    return [create(name, args, chosen, host) for name, args in found]


def _short(name: str) -> str:
    """An operator's name without its dialect."""
    return str(name).removeprefix("relax.").removeprefix("relay.")


def _functions(mod: object) -> Iterable[Function]:
    if isinstance(mod, Function):
        return [mod]
    if not isinstance(mod, IRModule):
        raise InvalidTypeError(f"extract_from_program takes an IRModule or its function, not {type(mod).__name__}")
    return [f for _, f in mod.functions_items() if isinstance(f, Function)]


def _tasks(function: Function, wanted: set[str] | None) -> Iterator[Named]:
    """(template, arguments) of each operator that there is a template for."""
    for b in function.bindings():
        call = b.value
        if not isinstance(call, Call) or not all(_is_static(a) for a in call.args):
            continue
        if call.op_name == "relax.nn.conv2d" and (wanted is None or "nn.conv2d" in wanted):
            yield from _conv2d(call)
        elif call.op_name == "relax.matmul" and (wanted is None or wanted & {"nn.dense", "matmul"}):
            yield from _dense(call)


def _is_static(x: object) -> bool:
    info = getattr(x, "struct_info", None)
    return isinstance(info, TensorStructInfo) and info.is_static


def _tensor(shape: Sequence[int], dtype: str) -> object:
    return ("TENSOR", tuple(shape), dtype)


def _conv2d(call: Call) -> Iterator[Named]:
    data, weight = (a.struct_info for a in call.args)
    attrs, groups = call.attrs, int(call.attrs["groups"])
    if (attrs["data_layout"], attrs["kernel_layout"]) != ("NCHW", "OIHW"):
        return
    tensors = _tensor(data.static_shape, data.dtype), _tensor(weight.static_shape, weight.dtype)
    window = tuple(attrs["strides"]), tuple(attrs["padding"]), tuple(attrs["dilation"])
    dtype = attrs["out_dtype"] or data.dtype
    if groups == 1:
        yield CONV2D, (*tensors, *window, "NCHW", "NCHW", dtype)
    elif groups == data.static_shape[1] == weight.static_shape[0]:
        yield DEPTHWISE, (*tensors, *window, dtype)


def _dense(call: Call) -> Iterator[Named]:
    data, weight = (a.struct_info for a in call.args)
    if data.ndim == weight.ndim == 2:
        k, n = weight.static_shape
        tensors = _tensor(data.static_shape, data.dtype), _tensor((n, k), weight.dtype)
        yield DENSE, (*tensors, None, call.attrs["out_dtype"] or data.dtype)
