"""`FormPlan`: what a graph over open sizes is for some of them. What its nodes have in common is worked out once.

A decoder calls a model at another size each time, and its layers are equal: a dozen kinds of nodes are evaluated, and
only those whose numbers are others than in the call before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autosched.errors import ArtifactError
from autosched.runtime.block_cover import cover, pass_cost
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.runtime.graph import NOP, Graph, Node, Storage, Value, check_graph
from autosched.runtime.graph_form import GraphForm
from autosched.runtime.kernel import ArgSpec, Kernel
from autosched.runtime.memory_plan import Lifetime, plan_memory
from autosched.runtime.size_expr import Shape, compiled, shape_at, symbols_of
from autosched.runtime.team import most_threads

SPARE = 8  # memory is planned for values an eighth larger once sizes change, so that the plan holds for more of them
MOST_ARRANGEMENTS = 16


@dataclass(frozen=True, slots=True)
class NodeCall:
    """One call of a kernel by a node: the name of this call, the kernel as it is for the sizes, the most threads."""

    name: str
    kernel: Kernel
    threads: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The kernels of a form.

    sizes    the parts of their blocks, the largest first
    kernels  their names, by these sizes
    cost     of a block beside that of its parts, in parts
    work     of one part: operations, or bytes where there are more of them
    """

    sizes: tuple[int, ...]
    kernels: Mapping[int, str]
    cost: int
    work: int

    @staticmethod
    def of(kernels: Sequence[CpuKernel], names: Sequence[str]) -> Blocks:
        sizes = tuple(kernel.block[0] for kernel in kernels)
        parts = kernels[-1].block[1:]
        one = kernels[-1]
        whole = sum(arg.size_bytes for i, arg in enumerate(one.args) if i not in parts)
        work = max(one.flops, sum(one.args[i].size_bytes for i in parts))
        return Blocks(sizes, dict(zip(sizes, names, strict=True)), pass_cost(whole), work)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Places of values in the arena.

    sizes    bytes of each kind of value that it was planned for
    offsets  of each value, 0 for those that are not there
    """

    sizes: np.ndarray
    offsets: np.ndarray
    arena_bytes: int


@dataclass(frozen=True)
class SizedGraph:
    """The graph for some sizes, without what is the same for all of them.

    calls  by the kinds of nodes
    """

    plan: FormPlan
    sizes: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    calls: tuple[tuple[NodeCall, ...], ...]
    arrangement: Arrangement

    @property
    def structure(self) -> tuple[tuple[str, ...], ...]:
        """Which calls there are: graphs of one structure differ in numbers alone."""
        divided = [tuple([call.name for call in self.calls[kind]]) for kind in self.plan.divided]
        idle = [str(kind) for kind, calls in enumerate(self.calls) if not calls]  # where a size is 0
        return (*divided, tuple(idle))

    def shape(self, value: int) -> tuple[int, ...]:
        return self.shapes[self.plan.type_of[value]]

    def value(self, value: int) -> Value:
        """A value with its shape and its place."""
        return self.plan.placed(value, self.shape(value), self.arrangement)

    @cached_property
    def graph(self) -> Graph:
        """The whole graph; its nodes call kernels by the names of the calls."""
        values = tuple([self.value(number) for number in range(len(self.plan.form.values))])
        nodes = tuple(self.plan.nodes(self.calls))
        form = self.plan.form
        return Graph(values, nodes, form.inputs, form.outputs, self.arrangement.arena_bytes)


class FormPlan:
    """A graph over open sizes, its kernels, and the graphs that it is for sizes.

    kernels  by name, those of blocks without the number of blocks
    blocks   of the forms, by their names
    lanes    of the target's float32 vectors
    Raises   ArtifactError where a node calls a kernel that is not there.
    """

    def __init__(self, form: GraphForm, kernels: Mapping[str, Kernel], blocks: Mapping[str, Blocks], lanes: int):
        self.form, self.kernels, self.blocks, self.lanes = form, kernels, blocks, lanes
        types: dict[tuple[Shape, str], int] = {}
        self.type_of = [
            types.setdefault((shape, value.dtype), len(types))
            for shape, value in zip(form.shapes, form.values, strict=True)
        ]
        self._shapes = [shape for shape, _ in types]
        self._itemsizes = [Value("", (1,), dtype, Storage("arena", 0)).size_bytes for _, dtype in types]
        kinds: dict[_Kind, int] = {}
        self.kind_of: list[int | None] = []
        for node, numbers in zip(form.nodes, form.numbers, strict=True):
            if node.kernel == NOP:
                self.kind_of.append(None)
                continue
            if node.kernel not in blocks and node.kernel not in kernels:
                raise ArtifactError(f"graph: node '{node.name}' calls kernel '{node.kernel}', which is missing")
            args = tuple(self.type_of[value] for value in (*node.inputs, *node.outputs))
            overlap = node.kernel in blocks and _may_overlap(form, node)
            kind = _Kind(node.kernel, numbers, args, node.threads, overlap, len(node.outputs))
            self.kind_of.append(kinds.setdefault(kind, len(kinds)))
        self._kinds = tuple(kinds)
        self._evaluate = compiled([*self._shapes, *(kind.numbers for kind in kinds)], form.names)
        self._expressions = {
            name: compiled(kernel.sized.expressions, kernel.sized.names)
            for name in {kind.kernel for kind in kinds}
            if isinstance(kernel := kernels.get(name), CpuKernel) and kernel.sized is not None
        }
        self.divided = tuple(number for kind, number in kinds.items() if kind.kernel in blocks)
        self._last: list[_Made | None] = [None] * len(kinds)
        graph = Graph(form.values, form.nodes, form.inputs, form.outputs, 0)
        roots = [graph.root(number) for number in range(len(form.values))]
        self._shares = {(self.type_of[n], self.type_of[root]) for n, root in enumerate(roots) if n != root}
        self._lives = [self.type_of[number] for number, *_ in form.lives]
        constants = [s for v, s in zip(form.values, form.shapes, strict=True) if v.storage.kind == "const"]
        self._is_plain = not any(node.branch for node in form.nodes) and not any(
            symbols_of(size) for shape in constants for size in shape
        )
        self._arrangements: tuple[Arrangement, ...] = ()
        self.is_checked = False  # whether a graph was looked at as a whole: all but sizes is the same in others

    def nodes(self, calls: Sequence[Sequence[NodeCall]]) -> Iterator[Node]:
        """The nodes of a graph, of which one stands for each call."""
        for node, kind in zip(self.form.nodes, self.kind_of, strict=True):
            if kind is None:
                yield node
            else:
                yield from (replace(node, kernel=call.name, threads=call.threads) for call in calls[kind])

    def placed(self, value: int, shape: tuple[int, ...], arrangement: Arrangement) -> Value:
        """A value of the form with its shape and its place in the arena."""
        spec = self.form.values[value]
        storage = spec.storage
        if storage.kind == "arena":
            storage = Storage("arena", int(arrangement.offsets[value]))
        return Value(spec.name, shape, spec.dtype, storage)

    def graph_at(self, sizes: Mapping[str, int], constants: tuple[np.ndarray, ...]) -> Graph:
        """The graph for some sizes, its nodes calling forms, checked as a static graph is.

        Raises ArtifactError where a node does not fit its kernel, ShapeError as `GraphForm.at`.
        """
        graph = self.form.at(sizes)
        wholes = [self._whole(kind, *self._asked(kind, sizes)) for kind in self._kinds]
        nodes = [
            node if kind is None else replace(node, kernel=str(kind))
            for node, kind in zip(graph.nodes, self.kind_of, strict=True)
        ]
        named = {str(kind): kernel for kind, kernel in enumerate(wholes)}
        check_graph(replace(graph, nodes=tuple(nodes)), named, constants)
        self.is_checked = True
        return graph

    def calls_at(self, sizes: Mapping[str, int]) -> tuple[tuple[NodeCall, ...], ...]:
        """The calls of each kind of node for some sizes."""
        return tuple(
            tuple(self._calls(number, kind, *self._asked(kind, sizes))) for number, kind in enumerate(self._kinds)
        )

    def at(self, sizes: Mapping[str, int]) -> SizedGraph | None:
        """The graph for some sizes, checked; None where a node or value does not fit: `graph_at` says which."""
        try:
            found = self._evaluate([sizes[name] for name in self.form.names])
        except (KeyError, ZeroDivisionError):
            return None
        shapes, numbers = found[: len(self._shapes)], found[len(self._shapes) :]
        least = min(min(sizes.values(), default=1), 1)
        if not self._is_plain or any(min(shape, default=1) < least for shape in shapes):
            return None
        sizes_bytes = [math.prod(shape) * itemsize for shape, itemsize in zip(shapes, self._itemsizes, strict=True)]
        if any(sizes_bytes[one] > sizes_bytes[root] for one, root in self._shares):
            return None
        calls = []
        for number, kind in enumerate(self._kinds):
            asked = numbers[number], tuple([shapes[arg] for arg in kind.args])
            made = self._last[number]
            if made is None or made.asked != asked:
                made = self._last[number] = _Made(asked, self._checked(number, kind, *asked))
            if made.calls is None:
                return None
            calls.append(made.calls)
        arrangement = self._arranged(sizes_bytes)
        return None if arrangement is None else SizedGraph(self, sizes, shapes, tuple(calls), arrangement)

    def _arranged(self, sizes: Sequence[int]) -> Arrangement | None:
        """Places for values of so many bytes by kind: of an earlier plan that wastes little, or of a new one."""
        wanted = np.array(sizes, np.int64)
        need = wanted[self._lives]
        for found in self._arrangements:
            planned = found.sizes[self._lives]
            if (need <= planned).all() and planned.sum() <= 1.5 * need.sum():
                return found if self._fit(found, sizes) else None
        if self._arrangements:
            wanted += wanted // SPARE
        lives = [
            Lifetime(int(size), first, last)
            for size, (_, first, last) in zip(wanted[self._lives], self.form.lives, strict=True)
        ]
        found_offsets, arena_bytes = plan_memory(lives)
        offsets = np.zeros(len(self.form.values), np.int64)
        offsets[[number for number, *_ in self.form.lives]] = found_offsets
        for number, other, behind in self.form.inside:
            offsets[number] = offsets[other] + behind
        made = Arrangement(wanted, offsets, arena_bytes)
        self._arrangements = (made, *self._arrangements)[:MOST_ARRANGEMENTS]
        return made if self._fit(made, sizes) else None

    def _fit(self, found: Arrangement, sizes: Sequence[int]) -> bool:
        """Whether values within others end in the arena."""
        return all(
            found.offsets[number] + sizes[self.type_of[number]] <= found.arena_bytes for number, *_ in self.form.inside
        )

    def _asked(self, kind: _Kind, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """(the numbers of a kind of node, the shapes of its values)."""
        return shape_at(kind.numbers, sizes), tuple([shape_at(self._shapes[arg], sizes) for arg in kind.args])

    def _whole(self, kind: _Kind, numbers: tuple[int, ...], shapes: Sequence[tuple[int, ...]]) -> Kernel:
        """The kernel of a kind of node: of a form as it is for the whole batch."""
        blocks = self.blocks.get(kind.kernel)
        if blocks is not None:
            return _at(as_cpu(self.kernels[blocks.kernels[blocks.sizes[-1]]]), numbers[0], shapes)
        kernel = self.kernels[kind.kernel]
        evaluate = self._expressions.get(kind.kernel)
        if evaluate is not None:
            return _shaped(as_cpu(kernel).with_sizes(numbers, *evaluate(numbers)), shapes)
        return _shaped(kernel.at(numbers), shapes) if kernel.takes_sizes else kernel

    def _checked(
        self, number: int, kind: _Kind, numbers: tuple[int, ...], shapes: Sequence[tuple[int, ...]]
    ) -> tuple[NodeCall, ...] | None:
        """The calls of a kind of node; None where its values are not what its kernel takes."""
        if self._is_idle(kind, shapes):
            return ()
        if min(numbers, default=1) < 1 and not self._takes(kind, numbers):
            return None
        whole = self._whole(kind, numbers, shapes)
        if whole.lacks_sizes or [arg.shape for arg in whole.args] != list(shapes):
            return None
        return tuple(self._calls(number, kind, numbers, shapes, whole))

    def _is_idle(self, kind: _Kind, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether a kind of node gives nothing that has elements."""
        return all(0 in shape for shape in shapes[len(shapes) - kind.n_outputs :])

    def _takes(self, kind: _Kind, numbers: tuple[int, ...]) -> bool:
        """Whether a kind's kernel is for sizes of which some are 0."""
        kernel = self.kernels.get(kind.kernel)
        return isinstance(kernel, CpuKernel) and kernel.takes_numbers(numbers)

    def _calls(
        self,
        number: int,
        kind: _Kind,
        numbers: tuple[int, ...],
        shapes: Sequence[tuple[int, ...]],
        whole: Kernel | None = None,
    ) -> Iterator[NodeCall]:
        blocks = self.blocks.get(kind.kernel)
        if self._is_idle(kind, shapes):
            return
        if blocks is None:
            kernel = self._whole(kind, numbers, shapes) if whole is None else whole
            if kernel.takes_sizes:
                yield NodeCall(f"{kind.kernel}@{number}", kernel, threads_of(kernel, 1, self.lanes))
            else:
                yield NodeCall(kind.kernel, kernel, kind.threads)
            return
        runs = cover(blocks.sizes, numbers[0], blocks.cost, kind.may_overlap)
        for index, (size, first, count) in enumerate(runs):
            key = blocks.kernels[size]
            kernel = as_cpu(self.kernels[key])
            threads = threads_of(kernel, count, self.lanes)
            yield NodeCall(f"{key}@{number}.{index}", kernel.blocks(first, count), threads)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What nodes have in common: kernel, numbers, kinds of values, threads, whether parts may be computed twice.

    args       kinds of values that it reads, and of the `n_outputs` last ones, which it writes
    """

    kernel: str
    numbers: Shape
    args: tuple[int, ...]
    threads: int
    may_overlap: bool
    n_outputs: int


@dataclass(frozen=True, slots=True)
class _Made:
    """The calls of a kind of node for its numbers and shapes."""

    asked: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
    calls: tuple[NodeCall, ...] | None


def _may_overlap(form: GraphForm, node: Node) -> bool:
    """Whether a node's outputs leave its inputs as they are, so that parts of them may be computed twice."""
    graph = Graph(form.values, form.nodes, form.inputs, form.outputs, 0)
    inside = {number: (other, behind) for number, other, behind in form.inside}
    roots = [{graph.root(value) for value in values} for values in (node.inputs, node.outputs)]
    places = [{inside.get(root, (root, 0)) for root in found} for found in roots]
    return not places[0] & places[1]


def threads_of(kernel: Kernel, count: int, lanes: int) -> int:
    """Over how many threads `count` blocks of a kernel are worth splitting."""
    return most_threads(kernel.flops * count, sum(arg.size_bytes for arg in kernel.args) * count, lanes)


def _at(kernel: CpuKernel, n_parts: int, shapes: Sequence[tuple[int, ...]]) -> CpuKernel:
    """A kernel of blocks of one part with its arguments as for a batch: of the given shapes where bytes agree."""
    args = []
    for i, arg in enumerate(kernel.args):
        wanted = ArgSpec(arg.name, arg.role, arg.dtype, shapes[i] if i < len(shapes) else ())
        fits = i in kernel.block[1:] and wanted.size_bytes == arg.size_bytes * n_parts
        args.append(wanted if fits else arg)
    return replace(kernel, args=tuple(args))


def _shaped(kernel: Kernel, shapes: Sequence[tuple[int, ...]]) -> Kernel:
    """A kernel with its arguments in the shapes that a graph has them in, where bytes agree: tokens of sequences."""
    if len(shapes) != len(kernel.args) or all(arg.shape == shape for arg, shape in zip(kernel.args, shapes)):
        return kernel
    wanted = [replace(arg, shape=shape) for arg, shape in zip(kernel.args, shapes)]
    fits = [new if new.size_bytes == arg.size_bytes else arg for new, arg in zip(wanted, kernel.args)]
    return replace(kernel, args=tuple(fits))
