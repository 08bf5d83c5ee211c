"""Which values of a function are best kept in blocks of channels, seen from those who read them."""

from __future__ import annotations

from autosched.relax.expr import Call, Function, Var
from autosched.relax.op.registry import definition_of
from autosched.relax.op.types import broadcast, compare, float_same, same
from autosched.relax.rewrite import users
from autosched.relax.transform.blocked import shape_of

TRANSPARENT = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "nn.pad", "concat", "astype")


class LayoutWishes:
    """Looks ahead from each value to the convolutions that read it, through what works in either layout."""

    def __init__(self, function: Function):
        readers = users(function)
        self.blocks_wanted: set[Var] = set()
        wishing: set[Var] = set()  # the variables whose bindings want blocked data
        for b in reversed(tuple(function.bindings())):
            if any(v in wishing for v in readers.get(b.var, ()) if v is not None):
                self.blocks_wanted.add(b.var)
            if isinstance(b.value, Call) and (_prefers_blocks(b.value) or self._passes_on(b.var, b.value)):
                wishing.add(b.var)

    def wants_blocks(self, var: Var) -> bool:
        """Whether somebody who reads the value would have to bring it into blocks."""
        return var in self.blocks_wanted

    def _passes_on(self, var: Var, call: Call) -> bool:
        definition = definition_of(call)
        if definition is None or var not in self.blocks_wanted:
            return False
        rules = (same, float_same, broadcast, compare)
        return definition.name in TRANSPARENT or definition.infer_type in rules


def is_depthwise(call: Call) -> bool:
    """Whether the call convolves each channel on its own."""
    definition = definition_of(call)
    if definition is None or definition.name != "nn.conv2d":
        return False
    shape = shape_of(call.args[1])
    return len(shape) == 4 and shape[1] == 1 and shape[0] == call.attrs["groups"] > 1


def _prefers_blocks(call: Call) -> bool:
    """Convolutions that mix all channels, or none: a chain of those is worth the way into blocks and back."""
    definition = definition_of(call)
    if definition is None or definition.name != "nn.conv2d":
        return False
    return call.attrs["groups"] == 1 or is_depthwise(call)
