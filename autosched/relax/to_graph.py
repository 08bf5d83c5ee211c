"""From a module whose `main` calls kernels to the static graph that the runtime executes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import InvalidTypeError
from autosched.ir.module import IRModule
from autosched.relax.branches import find_sections
from autosched.relax.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.relax.transform.views import is_concat, is_slice, is_view, part_offsets, slice_offset
from autosched.runtime.graph import NOP, Graph, Node, Storage, Value, sections_of
from autosched.runtime.memory_plan import Lifetime, plan_by_maker, plan_memory
from autosched.tir import PrimFunc
from autosched.tir.in_place import overwritable

UNPLACED = Storage("arena", -1)

Numbers: TypeAlias = Any  # the number of a value; of a tuple, those of its fields


class GraphBuilder:
    """Collects values and nodes of `main` in order; `build` places them."""

    def __init__(self, main: Function, pairs: Mapping[str, Collection[tuple[int, int]]]):
        self.main = main
        self.pairs = pairs
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.numbers: dict[object, Numbers] = {}  # Var -> its number or numbers; id(array) -> number of a constant
        self.constants: list[np.ndarray] = []
        self.inside: dict[int, tuple[int, int]] = {}  # part -> the value in whose memory it lies, and where

    def add(self, name: str, info: TensorStructInfo, storage: Storage) -> int:
        self.values.append(Value(name, info.static_shape, info.dtype, storage))
        return len(self.values) - 1

    def number(self, x: Expr) -> Numbers:
        """The value (or tuple of values) of an expression."""
        match x:
            case Var():
                return self.numbers[x]
            case Constant():
                return self.constant(x)
            case Tuple():
                return tuple(self.number(f) for f in x.fields)
            case TupleGetItem():
                return self.number(x.tuple_value)[x.index]
        raise InvalidTypeError(f"a graph holds no {type(x).__name__}")

    def constant(self, x: Constant) -> int:
        key = x.identity
        if key not in self.numbers:
            self.constants.append(np.asarray(x.data))
            self.numbers[key] = self.add(
                f"const_{len(self.constants) - 1}", x.struct_info, Storage("const", len(self.constants) - 1)
            )
        return self.numbers[key]  # type: ignore[no-any-return]

    def bind(self, var: Var, value: Expr) -> None:
        if is_call_tir(value):
            assert isinstance(value, Call)
            self.numbers[var] = self.kernel(var, value)
        elif is_view(value):
            assert isinstance(value, Call)
            self.numbers[var] = self.view(var, value)
        elif is_concat(value):
            assert isinstance(value, Call)
            self.numbers[var] = self.join(var, value)
        elif is_slice(value):
            assert isinstance(value, Call)
            self.numbers[var] = self.cut(var, value)
        elif isinstance(value, Call):
            raise self.no_kernel(var, value)
        else:
            self.numbers[var] = self.number(value)

    @staticmethod
    def no_kernel(var: Var, call: Call) -> InvalidTypeError:
        return InvalidTypeError(
            f"'{var.name}' is computed by {call.op}, which is no kernel", hint="run LegalizeOps first"
        )

    def kernel(self, var: Var, call: Call) -> tuple[int, ...] | int:
        inputs = tuple(self.number(a) for a in tir_inputs(call))
        infos = tensor_infos(call.struct_info)
        several = not isinstance(call.struct_info, TensorStructInfo)
        names = [f"{var.name}_{i}" for i in range(len(infos))] if several else [var.name]
        outputs = tuple(self.add(n, i, UNPLACED) for n, i in zip(names, infos, strict=True))
        origin = call.span.file if call.span is not None and not call.span.line else ""
        self.nodes.append(Node(var.name, tir_target(call).name, inputs, outputs, origin=origin))
        return outputs if several else outputs[0]

    def view(self, var: Var, call: Call) -> int:
        source = self.number(call.args[0])
        assert isinstance(var.struct_info, TensorStructInfo)
        number = self.add(var.name, var.struct_info, Storage("alias", source))
        self.nodes.append(Node(var.name, NOP, (source,), (number,)))
        return number

    def join(self, var: Var, call: Call) -> int:
        """A concatenation whose parts are written into its memory at once."""
        offsets = part_offsets(call)
        if offsets is None:
            raise self.no_kernel(var, call)
        assert isinstance(var.struct_info, TensorStructInfo), "a concatenation is a tensor"
        whole = self.add(var.name, var.struct_info, UNPLACED)
        for part, offset in zip(self.number(call.args[0]), offsets, strict=True):
            assert self.values[part].storage is UNPLACED and part not in self.inside, (
                "a part lies where its kernel writes it"
            )
            self.inside[part] = (whole, offset)
        return whole

    def cut(self, var: Var, call: Call) -> int:
        """A slice that is a part of its argument's memory."""
        offset = slice_offset(call)
        if offset is None:
            raise self.no_kernel(var, call)
        assert isinstance(var.struct_info, TensorStructInfo), "a slice is a tensor"
        number = self.add(var.name, var.struct_info, UNPLACED)
        self.inside[number] = (self.number(call.args[0]), offset)
        return number

    def root(self, number: int) -> int:
        """The value whose storage it shares, aliases followed."""
        while self.values[number].storage.kind == "alias":
            number = self.values[number].storage.index
        return number

    def owner(self, number: int) -> tuple[int, int]:
        """The value that has memory of its own, and where in it `number` lies."""
        number, offset = self.root(number), 0
        while number in self.inside:
            number, more = self.inside[number]
            number, offset = self.root(number), offset + more
        return number, offset

    def place(self, number: int, storage: Storage) -> None:
        old = self.values[number]
        self.values[number] = Value(old.name, old.shape, old.dtype, storage)

    def build(self, seconds: Mapping[str, float], threads: int = 1, least_s: float = 0.0, most_apart: int = 0) -> Graph:
        """The graph, with every value in its place; see `to_graph`."""
        inputs, outputs = self.collect()
        if threads > 1:
            self.branch(seconds, threads, least_s)
        arena_bytes = self.plan(most_apart)
        return Graph(tuple(self.values), tuple(self.nodes), inputs, outputs, arena_bytes)

    def collect(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Number all values; gives the inputs and the outputs."""
        inputs = []
        for position, p in enumerate(self.main.params):
            if not isinstance(p.struct_info, TensorStructInfo):
                text = f"parameter '{p.name}' of 'main' is no tensor; a graph's parameters are tensors"
                raise InvalidTypeError(text, hint="build with relax.build and run by relax.VirtualMachine")
            self.numbers[p] = self.add(p.name, p.struct_info, Storage("input", position))
            inputs.append(self.numbers[p])
        for b in self.main.bindings():
            self.bind(b.var, b.value)
        result = self.number(self.main.body.body)
        outputs = _flat(result)
        for position, number in enumerate(outputs):
            if self.values[self.root(number)].storage is UNPLACED:
                self.place(self.root(number), Storage("output", position))
        return tuple(inputs), outputs

    def branch(self, seconds: Mapping[str, float], threads: int, least_s: float) -> None:
        """Say which nodes run side by side, and let those of a branch follow each other."""
        written: dict[int, int] = {}  # value, a view followed -> the node that writes it
        parts: dict[int, list[int]] = {}  # value -> those that lie inside it
        for part, (whole, _) in self.inside.items():
            parts.setdefault(self.root(whole), []).append(self.root(part))
        needs = []
        for step, node in enumerate(self.nodes):
            read = [self.root(n) for n in node.inputs]
            for number in read:  # what is inside it, too; the list grows
                read += parts.get(number, ())
            for number in map(self.root, node.inputs):
                while number in self.inside:
                    number = self.root(self.inside[number][0])
                    read.append(number)
            needs.append({written[n] for n in read if n in written})
            if node.kernel != NOP:
                written |= {self.root(n): step for n in node.outputs}
        costs = [seconds.get(node.kernel, 0.0) for node in self.nodes]
        for section in find_sections(needs, costs, threads, least_s):
            first = min(map(min, section))
            nodes = [
                dataclasses.replace(self.nodes[n], branch=i) for i, branch in enumerate(section, 1) for n in branch
            ]
            self.nodes[first : first + len(nodes)] = nodes

    def lives(self) -> dict[int, tuple[int, int]]:
        """The values that want memory of their own in the arena, with the first and last node that use each."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        spans = {step: (s[0], s[-1]) for s in sections_of(self.nodes) for step in s}
        for step, node in enumerate(self.nodes):
            if node.kernel != NOP:
                begin, end = spans.get(step, (step, step))
                for number in (*node.inputs, *node.outputs):
                    owner, _ = self.owner(number)
                    first.setdefault(owner, begin)
                    last[owner] = end
        for step, node in enumerate(self.nodes):
            if not node.branch:
                self.overwrite(step, node, last)
        owners = [n for n, v in enumerate(self.values) if v.storage is UNPLACED and n not in self.inside]
        return {n: (first[n], last[n]) for n in owners}

    def makers(self) -> dict[int, tuple[str, int]]:
        """For values with memory of their own the kernel that writes each first, and which of its arguments it is."""
        found: dict[int, tuple[str, int]] = {}
        for node in self.nodes:
            if node.kernel != NOP:
                for position, number in enumerate(node.outputs):
                    found.setdefault(self.owner(number)[0], (node.kernel, position))
        return found

    def plan(self, most_apart: int) -> int:
        """Give every value without a place one in the arena; the arena's size. See `to_graph` for `most_apart`."""
        lives = self.lives()
        values = [Lifetime(self.values[n].size_bytes, *life) for n, life in lives.items()]
        makers = self.makers()
        offsets, size = plan_by_maker(values, [makers.get(n, n) for n in lives])
        if size > most_apart:
            offsets, size = plan_memory(values)
        begin = dict(zip(lives, offsets, strict=True))
        for n in [n for n, v in enumerate(self.values) if v.storage is UNPLACED]:
            owner, offset = self.owner(n)
            self.place(n, Storage("arena", begin[owner] + offset))
        return size

    def same_size(self, a: int, b: int) -> bool:
        """Whether two values take equally many bytes."""
        return self.values[a].size_bytes == self.values[b].size_bytes

    def overwrite(self, step: int, node: Node, last: dict[int, int]) -> None:
        """Let a kernel write over an input that nobody reads afterwards, where its loops allow that."""
        for i, o in sorted(self.pairs.get(node.kernel, ())):
            new = node.outputs[o - len(node.inputs)]
            old, offset = self.owner(node.inputs[i])
            if any(self.values[n].storage is not UNPLACED for n in (new, old)) or new in self.inside or offset:
                continue
            if not self.same_size(old, new) or last[old] != step:
                continue
            readers = [j for j, number in enumerate(node.inputs) if self.owner(number)[0] == old]
            if all((j, o) in self.pairs[node.kernel] for j in readers):
                self.inside[new] = (old, 0)
                last[old] = last[new]
                return


def _flat(x: Numbers) -> tuple[int, ...]:
    return tuple(n for f in x for n in _flat(f)) if isinstance(x, tuple) else (x,)


def to_graph(
    module: IRModule, in_place: Mapping[str, Collection[tuple[int, int]]] | None = None,
    seconds: Mapping[str, float] | None = None, threads: int = 1, least_s: float = 0.0, most_apart: int = 0,
) -> tuple[Graph, tuple[np.ndarray, ...], tuple[str, ...]]:  # fmt: skip
    """(graph, constants, names of inputs that are parameters) of a module's `main`.

    in_place  what `overwritable` says of the kernels' functions, by name, where it is known
    threads   above 1: parts that do not depend on each other become branches, if they keep so many threads busy
    seconds   what each kernel takes on one thread, by name, for that
    least_s   what the branches of a section take together at least
    most_apart
              of how many bytes an arena may be in which values share memory with those of the same kernel alone

    Nodes call kernels named after the module's PrimFuncs. Views share the storage of what they show,
    and a kernel that allows it writes over an input that is not read again. Raises TypeError
    for a call that is no kernel.
    """
    main = module["main"]
    pairs: dict[str, Collection[tuple[int, int]]] = dict(in_place or {})
    for gv, f in module.functions_items():
        if isinstance(f, PrimFunc) and gv.name not in pairs:
            pairs[gv.name] = overwritable(f)
    builder = GraphBuilder(main, pairs)
    graph = builder.build(seconds or {}, threads, least_s, most_apart)
    count = main.attrs.get("num_input", len(main.params))
    return graph, tuple(builder.constants), tuple(p.name for p in main.params[count:])
