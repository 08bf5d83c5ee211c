"""Nodes that no kernel computes, computed by NumPy: rare ones, texts, sequences, sizes that follow from data.

Own functions are registered by `library`; for all others the implementation in `onnx.reference` is asked. What models
spend their time in (`KERNELS_ONLY`) is never computed this way on numbers that kernels take.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autosched.errors import ImportModelError, WrongInputError
from autosched.frontend.onnx.contents import attributes_of, first_line, schema_of
from autosched.frontend.onnx.functions import DIVIDED, inputs_of

if TYPE_CHECKING:
    import onnx
    from onnx.reference.op_run import OpRun

Function: TypeAlias = Callable[..., Any]
LIBRARY: dict[str, Function] = {}
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview")
KERNELS_ONLY = frozenset(("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "Softmax", "ConvInteger"))
RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)
TEXT = 8  # TensorProto.STRING
NUMBERS = ("float16", "float32", "float64")


def library(*names: str) -> Callable[[Function], Function]:
    """Register a function (call, *inputs) -> output or tuple of them; operators outside of ai.onnx by "domain.name"."""

    def register(function: Function) -> Function:
        for name in names:
            assert name not in LIBRARY, f"two functions for {name}"
            LIBRARY[name] = function
        return function

    return register


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """A node to be computed by a library.

    inputs   the values that it reads, those of its subgraphs too
    checked  the dtypes of inputs that were found to be computed
    """

    node: onnx.NodeProto
    opset: int
    name: str
    inputs: tuple[str, ...]
    checked: set[tuple[object, ...]] = field(default_factory=set)

    @staticmethod
    def of(node: onnx.NodeProto, opset: int, name: str) -> LibraryCall:
        """The call of a node."""
        return LibraryCall(node, opset, name, tuple(dict.fromkeys(inputs_of(node))))

    @property
    def op_name(self) -> str:
        """The operator, with its domain where that is not ONNX's own."""
        own = self.node.domain in ("", "ai.onnx")
        return self.node.op_type if own else f"{self.node.domain}.{self.node.op_type}"

    @property
    def library_name(self) -> str:
        """Who computes it, for reports."""
        return "NumPy" if self.op_name in LIBRARY else "onnx.reference"

    @property
    def is_random(self) -> bool:
        """Whether each call of a model gives other values: numbers are drawn, and no seed says which."""
        seed = self.attributes.get("seed") if self.op_name in RANDOM else 0
        return seed is None or bool(np.isnan(seed))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The values that it gives."""
        return tuple(self.node.output)

    def check(self, inputs: Sequence[object]) -> None:
        """Refuse what no library computes. Raises ImportModelError."""
        check_library(self, inputs)

    def run(self, inputs: Sequence[object]) -> tuple[object, ...]:
        """The outputs, as `run_library` gives them."""
        return run_library(self, inputs)

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes."""
        return attributes_of(self.node, self.opset, self.name)

    @cached_property
    def reference(self) -> OpRun:
        """The implementation in `onnx.reference`. Raises ImportModelError where it has none."""
        from onnx import TensorProto, helper
        from onnx.reference import ReferenceEvaluator

        given = [helper.make_tensor_value_info(i, TensorProto.UNDEFINED, None) for i in self.inputs]
        made = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in self.node.output if o]
        imports = [helper.make_opsetid("", self.opset)]
        if self.node.domain not in ("", "ai.onnx"):
            imports.append(helper.make_opsetid(self.node.domain, 5 if self.node.domain == "ai.onnx.ml" else 1))
        graph = helper.make_graph([self.node], "node", given, made)
        try:
            return ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
        except Exception as error:  # of many types
            text = f"operators that are not supported: {self.op_name} ({self.name})"
            raise ImportModelError(text, hint=first_line(error)) from error


def has_library(node: onnx.NodeProto, opset: int) -> bool:
    """Whether a library may compute an operator."""
    name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    if name in LIBRARY or name in DIVIDED:
        return True
    if node.domain not in DOMAINS:
        return False
    try:
        folder = {"ai.onnx.ml": ".aionnxml._op_list", "ai.onnx.preview": ".aionnx_preview._op_list"}.get(
            node.domain, ""
        )
        load_op = import_module(f"onnx.reference.ops{folder}").load_op
        return load_op(node.domain if folder else "", node.op_type, None if folder else opset) is not None
    except Exception:  # of many types
        return False


def check_types(call: LibraryCall, inputs: Mapping[str, object]) -> None:
    """Refuse dtypes that the operator's specification has not, or not together. Raises ImportModelError."""
    from onnx import defs, helper

    schema = schema_of(call.node.op_type, call.opset) if call.node.domain in ("", "ai.onnx") else None
    if schema is None:
        return
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    seen: dict[str, str] = {}
    for i, name in enumerate(call.node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        value = inputs.get(name)
        if not isinstance(value, np.ndarray):
            continue
        kind = helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else TEXT
        dtype = (
            "tensor(string)" if kind == TEXT else f"tensor({helper.tensor_dtype_to_string(kind).split('.')[1].lower()})"
        )
        same = formal.option != defs.OpSchema.FormalParameterOption.Variadic or formal.is_homogeneous
        known = seen.setdefault(formal.type_str, dtype) if same and formal.type_str in allowed else dtype
        types = allowed.get(formal.type_str, {formal.type_str})
        if dtype not in types or known != dtype:
            text = f"input {i} is {dtype}" + (f" and another {known}" if known != dtype else "")
            hint = f"it takes {', '.join(sorted(types))}" if dtype not in types else None
            raise ImportModelError(f"{call.op_name}: {text}", where=f"node '{call.name}'", hint=hint)


def check_library(call: LibraryCall, inputs: Sequence[object]) -> None:
    """Refuse what no library computes. Raises ImportModelError."""
    dtypes = tuple(x.dtype if isinstance(x, np.ndarray) else type(x) for x in inputs)
    if dtypes in call.checked:
        return
    check_types(call, dict(zip(call.inputs, inputs)))
    if call.op_name not in LIBRARY:
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        if call.op_name in KERNELS_ONLY and all(str(x.dtype) in NUMBERS for x in arrays):
            raise ImportModelError(f"{call.op_name}: there is no kernel for it", where=f"node '{call.name}'")
        _ = call.reference
    call.checked.add(dtypes)


def run_library(call: LibraryCall, inputs: Sequence[object]) -> tuple[object, ...]:
    """The outputs of a node for the values that it reads, as arrays, lists (sequences) or None.

    Raises ImportModelError where no library computes it, WrongInputError for values that it does not take.
    """
    check_library(call, inputs)
    own = LIBRARY.get(call.op_name)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if own is None:
                given = iter(call.reference.run(None, dict(zip(call.inputs, inputs, strict=True))))
                results = tuple(next(given) if output else None for output in call.node.output)
            else:
                values = dict(zip(call.inputs, inputs, strict=True))
                found = own(call, *(values[i] if i else None for i in call.node.input))
                results = found if isinstance(found, tuple) else (found,)
    except WrongInputError:
        raise
    except Exception as error:  # a library's own errors, of any type
        where = f"node '{call.name}'"
        raise WrongInputError(f"{call.op_name}: {type(error).__name__}: {first_line(error)}", where=where) from error
    return tuple(map(_plain, results))


def _plain(value: object) -> object:
    """A value as this package holds it: texts as objects, arrays without gaps, lists of arrays."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return array.astype(object)
    return array if array.ndim == 0 else np.ascontiguousarray(array)
