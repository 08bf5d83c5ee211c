"""The record of a schedule: what was done, with which decisions; as JSON, as Python text, and done again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

from autosched.errors import InvalidValueError, ScheduleError
from autosched.ir.node import Attrs, FrozenDict
from autosched.json_types import Json
from autosched.tir.schedule.rv import RV, BlockRV, ExprRV, LoopRV

Schedule: TypeAlias = Any  # a `tir.Schedule`, whose methods are called by the names of instructions

Decision: TypeAlias = Any  # a number, a list of them or None, as the sampling instruction says
DecisionProvider = Callable[["Instruction", Sequence[object], Attrs, Decision], Decision]


@dataclass(frozen=True, eq=False)
class Instruction:
    """One primitive: its kind ("Split"), the references and numbers given, its options, the references made."""

    kind: str
    inputs: tuple[object, ...] = ()
    attrs: Attrs = field(default_factory=FrozenDict)
    outputs: tuple[RV, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """How an instruction is written and done: the method, and the names of its options in their order."""

    method: str
    attrs: tuple[str, ...] = ()
    many: bool = False  # the inputs are one list (fuse, reorder)
    rest: str = ""  # inputs after the first form this argument (split's factors, cache_read's consumers)
    samples: bool = False


KINDS: dict[str, Kind] = {
    "GetBlock": Kind("get_block", ("name", "func_name")),
    "GetLoops": Kind("get_loops"),
    "GetChildBlocks": Kind("get_child_blocks"),
    "GetProducers": Kind("get_producers"),
    "GetConsumers": Kind("get_consumers"),
    "GetOutputBlocks": Kind("get_output_blocks"),
    "SamplePerfectTile": Kind("sample_perfect_tile", ("n", "max_innermost_factor"), samples=True),
    "SampleCategorical": Kind("sample_categorical", ("candidates", "probs"), samples=True),
    "Split": Kind("split", ("preserve_unit_iters", "disable_predication"), rest="factors"),
    "SamplePartitionedTile": Kind("sample_partitioned_tile", ("n", "partition_pos", "innerpart_factor"), samples=True),
    "SampleComputeLocation": Kind("sample_compute_location", samples=True),
    "LoopPartition": Kind("loop_partition", ("preserve_unit_iters",), rest="factors"),
    "Merge": Kind("merge", many=True),
    "ReorderBlockIterVar": Kind("reorder_block_iter_var", ("new_order",)),
    "EnterPostproc": Kind("enter_postproc"),
    "Fuse": Kind("fuse", ("preserve_unit_iters",), many=True),
    "Reorder": Kind("reorder", many=True),
    "AddUnitLoop": Kind("add_unit_loop"),
    "Parallel": Kind("parallel"),
    "Vectorize": Kind("vectorize"),
    "Unroll": Kind("unroll"),
    "Bind": Kind("bind", ("thread_axis",)),
    "Annotate": Kind("annotate", ("ann_key",), rest="ann_val"),
    "Unannotate": Kind("unannotate", ("ann_key",)),
    "ComputeInline": Kind("compute_inline"),
    "ReverseComputeInline": Kind("reverse_compute_inline"),
    "CacheRead": Kind("cache_read", ("read_buffer_index", "storage_scope"), rest="consumer_blocks"),
    "CacheWrite": Kind("cache_write", ("write_buffer_index", "storage_scope"), rest="consumer_blocks"),
    "SetScope": Kind("set_scope", ("buffer_index", "storage_scope")),
    "StorageAlign": Kind("storage_align", ("buffer_index", "axis", "factor", "offset")),
    "ComputeAt": Kind("compute_at", ("preserve_unit_loops", "index")),
    "ReverseComputeAt": Kind("reverse_compute_at", ("preserve_unit_loops", "index")),
    "DecomposeReduction": Kind("decompose_reduction"),
    "RFactor": Kind("rfactor", ("factor_axis",)),
    "RFactorInside": Kind("rfactor_inside", ("factor_axis",)),
    "TransformLayout": Kind(
        "transform_layout",
        ("buffer_index", "buffer_index_type", "index_map", "pad_value", "assume_injective_transform"),
    ),
    "TransformBlockLayout": Kind("transform_block_layout", ("index_map",)),
    "Blockize": Kind("blockize", ("preserve_unit_iters",)),
    "Tensorize": Kind("tensorize", ("tensor_intrin", "preserve_unit_iters")),
    "PadEinsum": Kind("pad_einsum", ("padding",)),
    "DecomposePadding": Kind("decompose_padding"),
    "ReIndex": Kind("reindex", ("buffer_index", "buffer_index_type")),
    "ReindexCacheRead": Kind("reindex_cache_read", ("read_buffer_index", "storage_scope", "index_map")),
    "ReindexCacheWrite": Kind("reindex_cache_write", ("write_buffer_index", "storage_scope", "index_map")),
    "CacheInplace": Kind("cache_inplace", ("read_buffer_index", "storage_scope")),
    "CacheIndex": Kind("cache_index", ("storage_scope", "cse_thresh")),
    "ReadAt": Kind("read_at", ("read_buffer_index", "storage_scope")),
    "WriteAt": Kind("write_at", ("write_buffer_index", "storage_scope")),
    "RollingBuffer": Kind("rolling_buffer", ("write_buffer_index",)),
    "FuseReductionEpilogue": Kind("fuse_reduction_epilogue"),
    "UnsafeSetDType": Kind("unsafe_set_dtype", ("buffer_index", "dtype")),
    "SetAxisSeparator": Kind("set_axis_separator", ("buffer_index", "buffer_index_type", "axis_separators")),
    "AnnotateBufferAccess": Kind("annotate_buffer_access", ("buffer_index", "buf_type", "gen_new_ranges")),
    "UnsafeHideBufferAccess": Kind("unsafe_hide_buffer_access", ("buf_type", "buf_index_array")),
}

_LISTS = (  # what gives a list
    "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers", "GetOutputBlocks", "SamplePerfectTile",
    "SamplePartitionedTile", "Split", "LoopPartition", "CacheInplace", "CacheIndex",
)  # fmt: skip
_RANGES = ("Split", "LoopPartition")  # their factors stand behind the loop, before the options
_VALUE_INPUTS = ("Annotate",)  # the second input is any value, not a list
_INPUTS: dict[str, tuple[str, ...]] = {  # the methods' names of their references, where these are no single `block`
    **dict.fromkeys(("Split", "LoopPartition", "SamplePerfectTile", "SamplePartitionedTile", "RFactor"), ("loop",)),
    "RFactorInside": ("loop",),
    **dict.fromkeys(("Parallel", "Vectorize", "Unroll", "Bind"), ("loop",)),
    **dict.fromkeys(("ComputeAt", "ReverseComputeAt", "DecomposeReduction", "DecomposePadding"), ("block", "loop")),
    **dict.fromkeys(("ReadAt", "WriteAt"), ("loop", "block")),
    **dict.fromkeys(("GetChildBlocks", "AddUnitLoop", "Annotate", "Unannotate", "Tensorize"), ("block_or_loop",)),
    "GetOutputBlocks": ("scope_block",),
    "Blockize": ("target",),
    "FuseReductionEpilogue": ("reduction_block", "epilogue_block"),
}


class Trace:
    """Instructions in order, and the decisions of those that sample.

    insts      the instructions
    decisions  sampling instruction -> what it chose
    """

    def __init__(self, insts: Sequence[Instruction] = (), decisions: Mapping[Instruction, Decision] | None = None):
        self.insts: list[Instruction] = list(insts)
        self.decisions: dict[Instruction, Decision] = dict(decisions or {})

    def append(self, inst: Instruction, decision: Decision = None) -> None:
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Take the last instruction away; None where there is none."""
        if not self.insts:
            return None
        inst = self.insts.pop()
        self.decisions.pop(inst, None)
        return inst

    def get_decision(self, inst: Instruction) -> Decision:
        return self.decisions.get(inst)

    def with_decision(self, inst: Instruction, decision: Decision, remove_postproc: bool = True) -> Trace:
        """A trace in which one sampling instruction decides otherwise."""
        changed = Trace(self.insts, {**self.decisions, inst: decision})
        return changed.without_postproc() if remove_postproc else changed

    def copy(self) -> Trace:
        return Trace(self.insts, self.decisions)

    def without_postproc(self) -> Trace:
        """Up to the instruction EnterPostproc, if there is one."""
        kinds = [i.kind for i in self.insts]
        end = kinds.index("EnterPostproc") if "EnterPostproc" in kinds else len(kinds)
        kept = self.insts[:end]
        return Trace(kept, {i: d for i, d in self.decisions.items() if any(i is k for k in kept)})

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """Without queries whose results nobody uses."""
        trace = self.without_postproc() if remove_postproc else self
        needed: set[int] = set()
        kept: list[Instruction] = []
        for inst in reversed(trace.insts):
            pure = inst.kind.startswith(("Get", "Sample"))
            if pure and not any(id(o) in needed for o in inst.outputs):
                continue
            needed |= {id(i) for i in _flat(inst.inputs)}
            kept.append(inst)
        kept.reverse()
        return Trace(kept, {i: d for i, d in trace.decisions.items() if any(i is k for k in kept)})

    # --- text -----------------------------------------------------------------------------------------------------

    def as_json(self, remove_postproc: bool = False) -> list[object]:
        """[[[kind, inputs, attrs, outputs], …], [[position, decision], …]], references as "b0", "l1", "v2"."""
        trace = self.without_postproc() if remove_postproc else self
        names: dict[int, str] = {}
        insts = []
        for inst in trace.insts:
            inputs = [_input_json(x, names) for x in inst.inputs]
            attrs = [_plain(v) for v in inst.attrs.values()]
            for o in inst.outputs:
                names[id(o)] = f"{_letter(o)}{len(names)}"
            insts.append([inst.kind, inputs, attrs, [names[id(o)] for o in inst.outputs]])
        decisions = [[n, _plain(trace.decisions[i])] for n, i in enumerate(trace.insts) if i in trace.decisions]
        return [insts, decisions]

    def to_json_text(self) -> str:
        """`as_json` as a compact string: what records and kernels keep."""
        return json.dumps(self.as_json(), separators=(",", ":"))

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """One line of Python per instruction, on a schedule called `sch`."""
        trace = self.without_postproc() if remove_postproc else self
        names: dict[int, str] = {}
        lines = []
        for inst in trace.insts:
            kind = KINDS[inst.kind]
            args = _python_inputs(inst, names)
            args += [f"{k}={_attr_python(k, v)}" for k, v in _python_attrs(inst)]
            if kind.rest and inst.kind not in _RANGES and len(inst.inputs) > 1:
                rest = inst.inputs[1] if inst.kind in _VALUE_INPUTS else list(inst.inputs[1:])
                args.append(f"{kind.rest}={_python(rest, names)}")
            if kind.samples:
                args.append(f"decision={_literal(trace.decisions.get(inst))}")
            for o in inst.outputs:
                names[id(o)] = f"{_letter(o)}{len(names)}"
            made = ", ".join(names[id(o)] for o in inst.outputs)
            if inst.kind in _LISTS and len(inst.outputs) == 1:
                made += ","
            lines.append(f"{made + ' = ' if made else ''}sch.{kind.method}({', '.join(args)})")
        return lines

    def show(self) -> None:
        """Print the Python text, a function that does the same to a schedule."""
        print(self)

    def __str__(self) -> str:
        lines = ["# from autosched import tir", "def apply_trace(sch: tir.Schedule) -> None:"]
        return "\n".join([*lines, *(f"  {line}" for line in self.as_python() or ["pass"])])

    # --- doing it again -------------------------------------------------------------------------------------------

    def apply_to_schedule(
        self, sch: Schedule, remove_postproc: bool = False, decision_provider: DecisionProvider | None = None
    ) -> None:
        """Do all instructions on another schedule. Raises ScheduleError where one does not apply there."""
        trace = self.without_postproc() if remove_postproc else self
        made: dict[int, object] = {}
        for inst in trace.insts:
            inputs = tuple(_mapped(x, made) for x in inst.inputs)
            decision = trace.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            outputs = run_instruction(sch, inst.kind, inputs, inst.attrs, decision)
            made |= {id(old): new for old, new in zip(inst.outputs, outputs, strict=True)}

    @staticmethod
    def apply_json_to_schedule(json_obj: Json, sch: Schedule) -> None:
        """Do what `as_json` (or its text) says. Raises InvalidValueError for anything malformed; nothing is
        evaluated."""
        if isinstance(json_obj, str):
            try:
                json_obj = json.loads(json_obj)
            except (ValueError, RecursionError) as e:
                raise InvalidValueError(f"trace is not JSON: {e}") from e
        try:
            insts, decisions = json_obj
            chosen = {int(n): d for n, d in decisions}
            rows = [(str(kind), tuple(inputs), list(attrs), tuple(outputs)) for kind, inputs, attrs, outputs in insts]
        except (TypeError, ValueError) as e:
            raise InvalidValueError(f"malformed trace: {e}") from e
        made: dict[str, object] = {}
        for n, (kind, inputs, attrs, outputs) in enumerate(rows):
            kind = kind.replace("SBlock", "Block")  # the names of TVM 0.27
            if kind not in KINDS:
                raise InvalidValueError(f"unknown instruction '{kind}' in a trace", hint=f"known: {', '.join(KINDS)}")
            if len(attrs) != len(KINDS[kind].attrs):
                raise InvalidValueError(
                    f"instruction '{kind}' takes {len(KINDS[kind].attrs)} attributes, the trace has {len(attrs)}"
                )
            options = dict(zip(KINDS[kind].attrs, attrs, strict=True))
            results = run_instruction(sch, kind, tuple(_parsed(x, made) for x in inputs), options, chosen.get(n))
            if len(results) != len(outputs):
                raise ScheduleError(
                    f"replay of a trace: {kind} gave {len(results)} results where {len(outputs)} were recorded"
                )
            made |= dict(zip(outputs, results, strict=True))


def run_instruction(
    sch: Schedule, kind: str, inputs: tuple[object, ...], attrs: Mapping[str, object], decision: Decision = None
) -> tuple[RV, ...]:
    """Call the method that an instruction stands for; its results as a tuple."""
    spec = KINDS[kind]
    options = dict(attrs)
    if kind == "TransformLayout":
        options = {
            "buffer": (options["buffer_index_type"], options["buffer_index"]), "index_map": options["index_map"],
            "pad_value": options["pad_value"], "assume_injective_transform": options["assume_injective_transform"],
        }  # fmt: skip
    if kind in ("ReIndex", "SetAxisSeparator"):
        options["buffer"] = (options.pop("buffer_index_type"), options.pop("buffer_index"))
    if spec.samples:
        options["decision"] = decision
    if kind in _VALUE_INPUTS:
        options[spec.rest] = inputs[1]
        inputs = inputs[:1]
    elif spec.rest:
        options[spec.rest] = list(inputs[1:])
        inputs = inputs[:1]
    result = getattr(sch, spec.method)(*inputs, **options)
    return () if result is None else tuple(result) if isinstance(result, list | tuple) else (result,)


def _letter(rv: RV) -> str:
    return "b" if isinstance(rv, BlockRV) else "l" if isinstance(rv, LoopRV) else "v"


def _flat(inputs: Sequence[object]) -> list[object]:
    return [y for x in inputs for y in (x if isinstance(x, list | tuple) else (x,))]


def _plain(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


def _input_json(x: object, names: Mapping[int, str]) -> object:
    if isinstance(x, BlockRV | LoopRV | ExprRV):
        return names[id(x)]
    if x is None:
        return "None"
    if _holds_references(x):
        return [names[id(y)] for y in x]
    return json.dumps(x) if isinstance(x, str) else _plain(x)  # TVM quotes strings, to tell them from references


def _parsed(x: object, made: Mapping[str, object]) -> object:
    if x == "None":
        return None
    if isinstance(x, str):
        if x.startswith('"'):
            return json.loads(x)
        if x not in made:
            raise InvalidValueError(f"a trace uses '{x}' before it is made")
        return made[x]
    if isinstance(x, list | tuple) and x and all(isinstance(y, str) and y in made for y in x):
        return [made[y] for y in x]
    return x


def _holds_references(x: object) -> TypeGuard[list[RV] | tuple[RV, ...]]:
    return isinstance(x, list | tuple) and any(isinstance(y, BlockRV | LoopRV | ExprRV) for y in x)


def _mapped(x: object, made: Mapping[int, object]) -> object:
    if _holds_references(x):
        return [_mapped(y, made) for y in x]
    if not isinstance(x, BlockRV | LoopRV | ExprRV):
        return x
    if id(x) not in made:
        raise InvalidValueError("a trace uses a reference that none of its instructions makes")
    return made[id(x)]


def _python_inputs(inst: Instruction, names: Mapping[int, str]) -> list[str]:
    """The references by their names in the method's signature; those of `fuse` and its kin by position."""
    kind = KINDS[inst.kind]
    if kind.many:
        return [_python(x, names) for x in inst.inputs]
    called = _INPUTS.get(inst.kind, ("block",))
    given = [f"{name}={_python(x, names)}" for name, x in zip(called, inst.inputs)]
    return [*given, f"factors={_python(list(inst.inputs[1:]), names)}"] if inst.kind in _RANGES else given


def _python(x: object, names: Mapping[int, str]) -> str:
    if isinstance(x, BlockRV | LoopRV | ExprRV):
        return names[id(x)]
    if isinstance(x, list | tuple):
        return f"[{', '.join(_python(y, names) for y in x)}]"
    return _literal(x)


def _literal(x: object) -> str:
    """A value as Python, with double quotes."""
    if isinstance(x, str):
        return json.dumps(x, ensure_ascii=False)
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(_literal, x))}]"
    return repr(x) if isinstance(x, dict) else _literal_of(_plain(x))


def _literal_of(x: object) -> str:
    return json.dumps(x, ensure_ascii=False) if isinstance(x, str) else repr(x)


def _python_attrs(inst: Instruction) -> list[tuple[str, object]]:
    """The options as the method takes them: two attributes of a trace are one argument `buffer`."""
    attrs = dict(inst.attrs)
    if "buffer_index_type" not in attrs:
        return list(attrs.items())
    place = (attrs.pop("buffer_index_type"), attrs.pop("buffer_index"))
    return [("buffer", place), *attrs.items()]


def _attr_python(key: str, value: object) -> str:
    if key == "buffer" and isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))})"
    return str(value) if key in ("index_map", "gen_new_ranges") else _literal(value)
