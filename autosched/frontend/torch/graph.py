"""What the importers of both kinds of PyTorch graph share: dtypes, arrays, the dispatch of one node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import AutoschedError, ImportModelError, InvalidTypeError
from autosched.extensions import load_extensions
from autosched.frontend.torch.complex_values import Complex, complex_constant, complex_result, has_complex
from autosched.frontend.torch.emitter import Emitter, Value
from autosched.frontend.torch.registry import CONVERTERS
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr
from autosched.runtime.bfloat16 import know_dtype
from autosched.tir.expr import PrimExpr

if TYPE_CHECKING:
    import torch

CustomConverters = Mapping[object, Callable[[Any, Any], Value]]
# What converters raise for arguments that no exporter writes: a number where a tensor belongs, no such axis.
UNFIT = (
    *(TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(MemoryError, RecursionError),
)
NAMESPACES = ("", "aten", "prims", "prim", "quantized_decomposed")  # whose operators the converters here are for
OWN_CONVERTERS = "autosched.frontend.torch."
SUPPORTED_DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


def fill_table() -> None:
    """Import all converters, those of extensions too."""
    import autosched.frontend.torch.converters  # noqa: F401

    load_extensions()


def make_emitter() -> Emitter:
    """An emitter into a new module, which knows PyTorch's dtypes."""
    import torch

    fill_table()
    names = (*SUPPORTED_DTYPES, "bfloat16") if find_spec("ml_dtypes") else SUPPORTED_DTYPES
    for name in names:
        know_dtype(name)
    return Emitter(BlockBuilder(), {getattr(torch, name): name for name in names})


def array_of(tensor: torch.Tensor, name: str) -> np.ndarray:
    """A tensor's values. Raises ImportModelError for a dtype that NumPy lacks, and for a size that no memory has."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

    if is_traceable_wrapper_subclass(tensor) or tensor.layout is not torch.strided:
        kind = type(tensor).__name__ if tensor.layout is torch.strided else str(tensor.layout)
        hint = "give tensors of numbers: torchao's unwrap_tensor_subclass(model) before the export, or to_dense()"
        raise ImportModelError(f"tensor '{name}' is a {kind}, which is not supported", hint=hint)
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # a class of the user's own, which modes do not know
        with _disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
            tensor = tensor.as_subclass(torch.Tensor)
    try:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if plain.dtype is torch.bfloat16:  # NumPy takes its bits
            know_dtype("bfloat16")
            bits = plain.contiguous().view(torch.int16).numpy()
            halves: np.ndarray = bits.view(np.dtype("bfloat16")).reshape(tuple(tensor.shape))
            return halves
        return np.ascontiguousarray(plain.numpy()).reshape(tuple(tensor.shape))
    except TypeError:
        raise ImportModelError(f"tensor '{name}' is {tensor.dtype}, which is not supported") from None
    except (ValueError, MemoryError) as error:
        raise ImportModelError(f"tensor '{name}' of shape {list(tensor.shape)} cannot be read: {error}") from None


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor of PyTorch's, in the same memory."""
    import torch

    if array.dtype.kind == "V":  # bfloat16
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def constant_of(array: np.ndarray) -> Constant | Complex:
    """Values that are known, as the graph's operators take them."""
    return complex_constant(array) if array.dtype.kind == "c" else Constant(array)


def refuse_complex(emitter: Emitter, value: object) -> None:
    """Raise ImportModelError for a complex result of a model: these exist inside of models only."""
    if isinstance(value, Complex):
        raise emitter.fail("the model gives complex numbers", hint="let it give torch.view_as_real(...) of them")


def map_arguments(value: object, lookup: Callable[[Any], object]) -> Value:
    """Graph nodes inside arguments, replaced by what they became."""
    import torch

    if isinstance(value, torch.fx.Node):
        return lookup(value)
    if isinstance(value, tuple | list):
        mapped = [map_arguments(v, lookup) for v in value]
        return mapped if isinstance(value, list) else tuple(mapped)
    if isinstance(value, slice):
        return slice(*(map_arguments(v, lookup) for v in (value.start, value.stop, value.step)))
    return value


def operator_name(target: object) -> str:
    """A node's operator under the table's name: ATen's without overload, a function's without trailing underscore.

    An operator of another library has its namespace before it ("torchvision::nms"), unless an extension has registered
    a converter without. One of PyTorch's has it where the table has (prims that differ from ATen's of that name).
    """
    if isinstance(target, str):
        name = target
    elif hasattr(target, "_schema"):
        namespace, _, name = target._schema.name.rpartition("::")
        if (whole := target._schema.name) in CONVERTERS:
            return str(whole)
        known = CONVERTERS.get(name)
        if namespace not in NAMESPACES and (known is None or known.__module__.startswith(OWN_CONVERTERS)):
            return f"{namespace}::{name}"
    else:
        name = getattr(target, "__name__", str(target))
    return name if name in CONVERTERS else name.rstrip("_")


def run_converter(emitter: Emitter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """The bound result of one node; tuples field by field. Raises ImportModelError naming the node."""
    try:
        if name == "getitem" and isinstance(args[0], tuple | list):
            return args[0][args[1]]
        is_complex = has_complex(args, kwargs)
        if name in SHAPE_ARITHMETIC and not is_complex and not any(isinstance(a, Expr) for a in args):
            if not any(isinstance(a, PrimExpr) for a in args):
                return SHAPE_ARITHMETIC[name](*args)
            if name == "pow":
                raise emitter.fail("a power of a size that is not known")
            if name != "truediv" and not any(isinstance(a, float) for a in args):
                return SHAPE_ARITHMETIC[name](*args)
            args = [emitter.as_dtype(a, "float64") for a in args]
        if is_complex:
            return bound(emitter, complex_result(emitter, name, args, kwargs))
        return bound(emitter, CONVERTERS[name](emitter, *args, **kwargs))
    except ImportModelError:
        raise
    except (AutoschedError, InvalidTypeError) as error:
        raise ImportModelError(f"{name}: {error.message}", where=f"node '{emitter.node}'") from error
    except UNFIT as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise ImportModelError(f"{name}: this use is not supported ({text})", where=f"node '{emitter.node}'") from error


def bound(emitter: Emitter, value: object) -> Value:
    """A converter's result with everything that is computed bound to a variable."""
    if isinstance(value, tuple):
        return tuple(bound(emitter, v) for v in value)
    if isinstance(value, Complex):
        return Complex(bound(emitter, value.real), bound(emitter, value.imag))
    return emitter(value) if isinstance(value, Expr) and not _is_leaf(value) else value


def _is_leaf(value: Expr) -> bool:
    from autosched.relax.block_builder import LEAVES

    return isinstance(value, LEAVES)


def _power(base: Value, exponent: Value) -> Value:
    """A power of sizes. Raises ValueError where it has more digits than any size."""
    if isinstance(exponent, int) and abs(exponent) > _MOST_EXPONENT:
        raise ValueError(f"a power of {exponent}")
    return base**exponent


_MOST_EXPONENT = 64
SHAPE_ARITHMETIC: Mapping[str, Callable[..., Value]] = {  # numbers that a traced program computes from shapes
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "truediv": operator.truediv, "mod": operator.mod, "neg": operator.neg, "pow": _power,
}  # fmt: skip


def refuse_unsupported(missing: Mapping[str, list[str]], kind: type[ImportModelError] = ImportModelError) -> None:
    """Raise an error that lists all operators without converter at once, with the nodes that use them."""
    if missing:
        parts = [f"{op} ({', '.join(names[:3])})" for op, names in sorted(missing.items())]
        raise kind(f"operators that are not supported: {'; '.join(parts)}")
