"""Operators that write over their argument: which of them are the plain operator under a new name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import fx

# Composite operators of which is known that their result is memory of its own. What PyTorch notes of composite
# operators is no proof: `dropout` may return its argument.
_FRESH = frozenset((
    "batch_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cat",
    "group_norm", "layer_norm", "linear", "matmul", "max_pool1d", "max_pool2d", "max_pool3d", "rms_norm",
    "scaled_dot_product_attention", "softmax", "log_softmax", "silu", "mish", "hardswish", "hardsigmoid", "relu6",
))  # fmt: skip


def writes(node: fx.Node) -> bool:
    """Whether a node changes a tensor in place."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def updates_statistics(node: fx.Node) -> bool:
    """Whether a node is a batch norm in training mode, which writes although its schema does not say so."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    args = dict(zip(("running_mean", "running_var", "training"), node.args[3:6])) | dict(node.kwargs)
    return name == "aten::batch_norm" and args.get("running_mean") is not None and args.get("training") is not False


def is_plain_write(node: fx.Node) -> bool:
    """Whether nobody but the node's argument is changed, so that its later readers may take the result instead.

    The argument has memory of its own, and no other value shows that memory.
    """
    schema = node.target._schema
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if len(written) != 1 or written[0] is not schema.arguments[0] or len(schema.returns) != 1:
        return False
    source: fx.Node = node.args[0] if node.args else None
    while _is_write_of_first(source):
        source = source.args[0]
    return _is_fresh(source) and all(_is_fresh(u) or is_write_of(u, source) for u in source.users if u.op != "output")


def is_write_of(node: fx.Node, source: fx.Node) -> bool:
    """Whether a node writes over this value, and over nothing else."""
    return bool(writes(node) and node.args and node.args[0] is source)


def _is_write_of_first(node: fx.Node) -> bool:
    return getattr(node, "op", "") == "call_function" and writes(node) and bool(node.args)


def _is_fresh(node: fx.Node) -> bool:
    """Whether a node's result shares memory with none of its arguments."""
    import torch

    if getattr(node, "op", "") != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    if schema.is_mutable or any(r.alias_info is not None for r in schema.returns):
        return False
    if schema.name.rpartition("::")[2] in _FRESH:
        return True
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), "CompositeImplicitAutograd")
    return not composite
