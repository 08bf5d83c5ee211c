"""Takes an exported program apart until there is a converter for all of it, and finds the calls that it needs."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from autosched.errors import ImportModelError
from autosched.frontend.torch.calls import can_call, is_ordered
from autosched.frontend.torch.control import all_nodes, is_control
from autosched.frontend.torch.graph import UNFIT, CustomConverters, operator_name
from autosched.frontend.torch.in_place import is_plain_write, updates_statistics, writes
from autosched.frontend.torch.registry import CONVERTERS
from autosched.frontend.torch.rules import all_rules, core_rules

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

KEPT_WHOLE = (  # operators for which we have something better than their decomposition
    "linear", "conv1d", "conv2d", "scaled_dot_product_attention", "layer_norm", "group_norm", "batch_norm", "gelu",
    "silu", "hardswish", "hardsigmoid", "relu6", "softmax", "log_softmax", "matmul", "einsum", "rms_norm", "embedding",
    "adaptive_avg_pool2d", "max_pool2d", "avg_pool2d", "dropout", "split", "chunk", "pad", "channel_shuffle",
    "pixel_shuffle", "elu", "leaky_relu", "softplus", "mish", "addmm", "stack", "unbind", "one_hot", "bucketize",
    "bilinear",
)  # fmt: skip
MAY_BE_VIEWS = (
    "dropout",
    "einsum",
    "pad",
    "channel_shuffle",
)  # of what they take: kept whole they hide writes through them
NUMBER_MODULES = ("_operator", "math", "torch", "builtins")  # whose functions compute with sizes
SAID = "_assert_scalar"
CHECKS = (SAID, "sym_constrain_range_for_size", "_assert_async", "_assert_tensor_metadata")


def decomposed(program: ExportedProgram, without_writes: bool = False) -> ExportedProgram:
    """The program with what we have no converter for taken apart, as far as PyTorch knows how.

    without_writes  also where tensors are changed in place and nobody else shows their memory
    """

    def is_fine(node: fx.Node) -> bool:
        is_kept = not writes(node) or (is_plain_write(node) and not without_writes)
        return is_known(node, {}) and is_kept and not updates_statistics(node)

    if all(map(is_fine, all_nodes(program))):
        return program
    table = core_rules()
    shares_memory = any(writes(n) and not is_plain_write(n) for n in all_nodes(program))
    for op in list(table.keys()):
        name = operator_name(op)
        if name in KEPT_WHOLE and name in CONVERTERS and not (shares_memory and name in MAY_BE_VIEWS):
            del table[op]
    for op, rule in all_rules().items():  # all at once: each pass takes PyTorch as long as the export itself
        if op not in table and operator_name(op) not in CONVERTERS:
            table[op] = rule
    found = _further_decomposed(_taken_apart(program, table), frozenset())
    if not (whole := _to_be_called(program, found)):
        return found
    kept = {op: rule for op, rule in table.items() if op not in whole}
    return _further_decomposed(_taken_apart(program, kept), whole)


def _taken_apart(program: ExportedProgram, rules: Mapping[Any, Callable[..., object]]) -> ExportedProgram:
    """A program with operators replaced by rules. Raises ImportModelError where PyTorch cannot do that."""
    try:
        return program.run_decompositions(dict(rules))
    except (RuntimeError, *UNFIT) as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        hint = "tensors that the program writes to have to be buffers (register_buffer); export it with strict=True"
        raise ImportModelError(f"PyTorch cannot take the program apart: {text}", hint=hint) from error


def _further_decomposed(program: ExportedProgram, whole: Container[object]) -> ExportedProgram:
    """With what is left and unknown here taken apart by all rules that PyTorch has, but for some operators."""
    rules = all_rules()
    lacking = {n.target for n in all_nodes(program) if not is_known(n, {})}
    table = {op: rules[op] for op in lacking if op in rules and op not in whole}
    return _taken_apart(program, table) if table else program


def _to_be_called(program: ExportedProgram, parts: ExportedProgram) -> frozenset[object]:
    """Operators of a program that PyTorch can compute, of whose parts it cannot compute one that has no converter.

    Nor one whose place in order is given by a token, which is no value of a stage.
    """
    names = {
        n.meta["from_node"][0].name
        for n in parts.graph.nodes
        if not is_known(n, {}) and n.meta.get("from_node") and (is_ordered(n) or not can_call(n))
    }
    return frozenset(n.target for n in program.graph.nodes if n.name in names and can_call(n))


def needed_calls(graph: fx.Graph, ready: Container[fx.Node] = (), also: Container[str] = ()) -> list[fx.Node]:
    """The calls that outputs and writes need, in order; numbers that PyTorch's checks alone read are left out.

    ready  nodes that are computed already, with what these alone need
    also   names of operators that are needed as well
    """
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in ready:
            continue
        is_end = node.op == "output" or (
            node.op == "call_function" and (writes(node) or operator_name(node.target) in also)
        )
        if is_end or not needed.isdisjoint(node.users):
            needed.add(node)
    return [n for n in graph.nodes if n.op == "call_function" and n in needed]


def is_known(node: fx.Node, custom: CustomConverters) -> bool:
    """Whether there is a way to import a node, or nothing to import."""
    if node.op != "call_function" or is_control(node.target):
        return True
    name = operator_name(node.target)
    if name in ("sym_size", "sym_size.int") or name.startswith("sym_"):
        return True
    if not hasattr(node.target, "_schema") and name_of_module(node.target) in NUMBER_MODULES:
        return True
    names = (name, name.rpartition("::")[2])
    return name in CONVERTERS or any(n in custom for n in (*names, node.target)) or name in CHECKS


def name_of_module(function: object) -> str:
    return getattr(function, "__module__", None) or ""
