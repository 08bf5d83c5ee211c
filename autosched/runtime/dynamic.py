"""`DynamicExecutable`: a model built once that runs for all sizes that it is called with, without compiling."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, OutOfMemoryError, ShapeError
from autosched.runtime.array import NDArray, as_numpy, from_dlpack
from autosched.runtime.artifact import Contents, export_path, load_contents, save_contents
from autosched.runtime.artifact_check import check_tensor
from autosched.runtime.backends import backend_of
from autosched.runtime.block_cover import cover, cover_cost, pass_cost
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.runtime.description import to_html
from autosched.runtime.dynamic_device import DeviceSizesExecutor
from autosched.runtime.executor_pool import ExecutorPool
from autosched.runtime.graph import NOP, Graph, Node, check_graph
from autosched.runtime.graph_form import GraphForm
from autosched.runtime.kernel import ArgSpec, Kernel, check_count
from autosched.runtime.memory import as_aligned, dtype_name, empty_aligned
from autosched.runtime.names import given_by_name
from autosched.runtime.program import Memory, Program, naming_the_largest
from autosched.runtime.size_expr import Shape, shape_at, size_at, symbols_of
from autosched.runtime.team import DEFAULT_LANES, most_threads
from autosched.target import choose_threads

if TYPE_CHECKING:
    from autosched.json_types import Json

MOST_ROUNDED = 64  # rows: a batch of more gets an eighth more at most
MOST_SHAPES = 4096  # of inputs whose sizes an executor keeps
LEAST_GAIN = 0.98  # of the estimated time, for which rows are added to a batch
MOST_COPIED = 16384  # bytes of an input or output, up to which copying it takes less than finding its address
MOST_PROGRAMS = 32  # sizes whose tables of addresses an executor keeps: some 50 KB each for a model of 100 kernels


class DynamicExecutable:
    """A built model whose sizes are known when it is called; immutable.

    kernels    by name: kernels of blocks, kernels whose sizes come with the call, and others
    forms      by the names that nodes call them by: names of kernels of blocks, those of the largest blocks first
    form       the graph
    constants, native, manifest, params  as of an Executable
    Raises     ArtifactError if these do not fit together.

    A batch is divided into blocks: as many of the largest as it holds, of what is left as many of the next, and so on.
    """

    compile_s = 0.0
    variant = ""  # of several in the artifact that it was loaded from, what this one was built for
    variants: tuple[str, ...] = ()  # all of them

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        forms: Mapping[str, Sequence[str]],
        form: GraphForm,
        constants: tuple[np.ndarray, ...],
        native: bytes,
        manifest: Mapping[str, Json] | None = None,
        params: tuple[str, ...] = (),
    ):
        self.backend = backend_of(kernels.values())
        self.kernels = dict(kernels)
        self.forms = {name: tuple(blocks) for name, blocks in forms.items()}
        self.form, self.native, self.constants = form, native, tuple(map(as_aligned, constants))
        self.manifest, self.param_names = dict(manifest or {}), params
        self._check_forms()
        self._forms = {
            name: _Blocks.of([as_cpu(self.kernels[key]) for key in blocks], blocks)
            for name, blocks in self.forms.items()
        }
        least = form.least()
        with contextlib.suppress(ShapeError):  # not for so small ones: each call is checked for its own sizes
            if all(limit.holds(least) for limit in form.limits):
                self.graph_at(least)
        self._rows = self._are_rows()
        self._executors: ExecutorPool[DynamicExecutor | DeviceSizesExecutor] = ExecutorPool(os.cpu_count() or 1)

    def _check_forms(self) -> None:
        for name, blocks in self.forms.items():
            kernels = [as_cpu(self.kernels[key]) for key in blocks]
            sizes = [kernel.block[0] if kernel.block else 0 for kernel in kernels]
            if not sizes or sizes != sorted(sizes, reverse=True) or sizes[-1] != 1:
                raise ArtifactError(f"form '{name}' has blocks of {sizes} parts: the last ones have one part")
            if len(set(map(_signature, kernels))) > 1:
                raise ArtifactError(f"the kernels of form '{name}' take different arguments")

    @property
    def input_shapes(self) -> dict[str, str]:
        """What each run is given: shapes with the size by its name."""
        return {self.form.values[number].name: self.form.describe(number) for number in self.form.inputs}

    def graph_at(self, sizes: Mapping[str, int]) -> Graph:
        """The static graph for some sizes, its nodes calling forms. Raises ArtifactError where one does not fit."""
        return self._graph_and_kernels(sizes)[0]

    def _graph_and_kernels(self, sizes: Mapping[str, int]) -> tuple[Graph, list[Kernel | None]]:
        """(the static graph, each node's kernel for these sizes: of a form as it is for the whole batch)."""
        graph = self.form.at(sizes)
        checked: list[Node] = []
        kernels: list[Kernel | None] = []
        for node, numbers in zip(graph.nodes, self.form.numbers, strict=True):
            kernel = None if node.kernel == NOP else self._kernel_at(graph, node, shape_at(numbers, sizes))
            kernels.append(kernel)
            checked.append(node if kernel is None else replace(node, kernel=str(len(checked))))
        known = {str(n): kernel for n, kernel in enumerate(kernels) if kernel is not None}
        check_graph(replace(graph, nodes=tuple(checked)), known, self.constants)
        return graph, kernels

    def _kernel_at(self, graph: Graph, node: Node, numbers: tuple[int, ...]) -> Kernel:
        if node.kernel in self.forms:
            given = [graph.values[v].shape for v in (*node.inputs, *node.outputs)]
            return _at(as_cpu(self.kernels[self.forms[node.kernel][-1]]), numbers[0], given)
        kernel = self.kernels.get(node.kernel)
        if kernel is None:
            raise ArtifactError(f"graph: node '{node.name}' calls kernel '{node.kernel}', which is missing")
        if not kernel.takes_sizes:
            return kernel
        return _shaped(kernel.at(numbers), [graph.values[v].shape for v in (*node.inputs, *node.outputs)])

    def _are_rows(self) -> bool:
        """Whether the model computes rows of a batch, each by itself, and may be given some more of them."""
        calls = [node for node in self.form.nodes if node.kernel != NOP]
        blocks = [key for node in calls for key in self.forms.get(node.kernel, ())]
        kernels = [self.kernels[key] for key in blocks] + [
            self.kernels[n.kernel] for n in calls if n.kernel in self.kernels
        ]
        return (
            len(self.form.sizes) == 1
            and bool(blocks)
            and not any(kernel.checks or kernel.takes_sizes for kernel in kernels)
            and all(_counts_rows(shape, self.form.names[0]) for shape in self.form.shapes)
        )

    def rounded(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes that a program for some sizes has: a few rows more where that takes fewer calls of kernels."""
        found = dict(sizes)
        if self._rows:
            (size,) = self.form.sizes
            n = sizes[size.name]
            most = min(n + n // 2, max(MOST_ROUNDED, n + n // 8), size.high or MOST_SHAPES)
            best = min(range(n, max(n, most) + 1), key=lambda rows: (self._cost(size.name, rows), rows))
            if self._cost(size.name, best) < LEAST_GAIN * self._cost(size.name, n):
                found[size.name] = best
        return found

    def _cost(self, name: str, rows: int) -> float:
        """An estimate of the time of all blocks for so many rows."""
        total = 0.0
        for node, numbers in zip(self.form.nodes, self.form.numbers, strict=True):
            if node.kernel in self._forms:
                form, n_parts = self._forms[node.kernel], size_at(numbers[0], {name: rows})
                total += form.work * cover_cost(form.sizes, n_parts, form.cost, True)
        return total

    def plan(self, sizes: Mapping[str, int]) -> tuple[Graph, dict[str, Kernel]]:
        """(the static graph for some sizes, whose nodes call kernels for some blocks each; these kernels)."""
        graph, found = self._graph_and_kernels(sizes)
        kernels: dict[str, Kernel] = {}
        nodes: list[Node] = []
        lanes = int(self.manifest.get("lanes", DEFAULT_LANES))
        for node, kernel, numbers in zip(graph.nodes, found, self.form.numbers, strict=True):
            if kernel is None:
                nodes.append(node)
            elif node.kernel not in self.forms:
                name = f"{node.kernel}@{len(nodes)}" if kernel.takes_sizes else node.kernel
                kernels[name] = kernel
                threads = _threads(kernel, 1, lanes) if kernel.takes_sizes else node.threads
                nodes.append(replace(node, kernel=name, threads=threads))
            else:
                for name, block, count in self._blocks(node, size_at(numbers[0], sizes), _may_overlap(graph, node)):
                    kernels[name] = block
                    whole = self.kernels[name.partition("@")[0]]
                    nodes.append(replace(node, kernel=name, threads=_threads(whole, count, lanes)))
        return replace(graph, nodes=tuple(nodes)), kernels

    def _blocks(self, node: Node, n_parts: int, may_overlap: bool) -> Iterator[tuple[str, CpuKernel, int]]:
        """(name, kernel, number of blocks) of the calls that the batch of a form's node is divided into."""
        form = self._forms[node.kernel]
        for size, first, count in cover(form.sizes, n_parts, form.cost, may_overlap):
            key = form.kernels[size]
            yield f"{key}@{first}+{count}", as_cpu(self.kernels[key]).blocks(first, count), count

    def __call__(self, *args: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run the model on inputs by position or name; gives new arrays, a tuple where there are several outputs.

        Several threads may call it at once: each call has memory of its own.
        Raises InvalidTypeError (TypeError) on a missing, unknown or doubled input or a wrong dtype, ShapeError
        (ValueError) on a wrong shape or a size out of its bounds.
        """
        arrays = self.check_inputs(args, named)
        executor = self._executors.take(self.create_executor)
        try:
            results = executor.run(arrays)
        finally:
            self._executors.give_back(executor)
        return results[0] if len(results) == 1 else results

    def _given(self, value: object) -> NDArray | np.ndarray:
        """An input as an array: of the host, or of the device where the model runs on one."""
        if self.backend != "cpu" and hasattr(value, "__cuda_array_interface__") and not isinstance(value, NDArray):
            value = from_dlpack(value)
        if isinstance(value, NDArray):
            return value.view() if self.backend == "cpu" else value
        return as_numpy(value)

    def check_inputs(self, args: tuple[object, ...], named: Mapping[str, object]) -> dict[int, Any]:
        """The arrays of the inputs by value, whose names and dtypes are the model's; see `__call__`."""
        if named or len(args) != len(self.form.inputs):
            wanted = [self.form.values[number].name for number in self.form.inputs]
            hint = f"inputs are {', '.join(f'{name}: {shape}' for name, shape in self.input_shapes.items())}"
            given = given_by_name(args, named, wanted, hint)
            if missing := [name for name in wanted if name not in given]:
                raise InvalidTypeError(f"input '{missing[0]}' is missing", hint=hint)
            args = tuple(given[name] for name in wanted)
        arrays: dict[int, object] = {}
        for number, value in zip(self.form.inputs, args, strict=True):
            data, spec = self._given(value), self.form.values[number]
            if (data.dtype if isinstance(data, NDArray) else dtype_name(data.dtype)) != spec.dtype:
                raise InvalidTypeError(f"input '{spec.name}' has dtype {data.dtype} instead of {spec.dtype}")
            arrays[number] = data
        return arrays

    def create_executor(self, threads: int | None = None) -> DynamicExecutor | DeviceSizesExecutor:
        """Make an executor with memory of its own: on a CPU, or on the first device that the kernels are for."""
        if self.backend != "cpu":
            return DeviceSizesExecutor(self.form, self.plan, self.constants, self.backend)
        return DynamicExecutor(self, choose_threads(threads))

    @property
    def source(self) -> str:
        """The generated Numba source of all kernels."""
        return "\n".join(kernel.source for kernel in self.kernels.values())

    def save(self, path: str | Path) -> None:
        """Write the artifact; `autosched.load` reads it.

        Raises ArtifactError if the file cannot be written; then nothing is left of it.
        """
        save_contents(self.contents(), Path(path))

    def export_library(self, path: str | Path) -> None:
        """Write the artifact, whatever the extension. Raises as `export_path`."""
        self.save(export_path(path))

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        forms = {name: list(blocks) for name, blocks in self.forms.items()}
        info = {"manifest": self.manifest, "params": list(self.param_names), "forms": forms}
        info["form"] = self.form.to_manifest()
        return Contents("dynamic", self.kernels, self.native, {}, self.constants, info)

    @staticmethod
    def load(path: str | Path) -> DynamicExecutable:
        """Read an artifact. Raises as `artifact.load_contents`, and ArtifactError if it holds no such model."""
        contents = load_contents(Path(path))
        if contents.kind != "dynamic":
            raise ArtifactError(f"{path} holds no model for a batch of any size", hint="read it with autosched.load")
        return DynamicExecutable.from_contents(contents)

    @staticmethod
    def from_contents(contents: Contents) -> DynamicExecutable:
        """Make it of what an artifact holds. Raises ArtifactError where its parts do not fit."""
        info = contents.info
        try:
            form = GraphForm.from_manifest(info["form"])
            forms = {str(name): tuple(map(str, blocks)) for name, blocks in info["forms"].items()}
            check_form(form)
            made = DynamicExecutable(
                contents.kernels, forms, form, contents.constants, contents.native, info["manifest"],
                tuple(map(str, info["params"])),
            )  # fmt: skip
            made.variant, made.variants = contents.variant, contents.variants
            return made
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ArtifactError(f"the artifact is damaged: its form does not fit ({error})") from error

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it is made of."""
        return DynamicExecutable.from_contents, (self.contents(),)

    def _repr_html_(self) -> str:
        """What notebooks show: inputs, outputs, memory and kernels."""
        return to_html(self)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {shape}" for name, shape in self.input_shapes.items())
        return f"<autosched.runtime.DynamicExecutable({inputs}): {len(self.kernels)} kernels>"


def check_form(form: GraphForm) -> None:
    """See that what a file says of a form can be: its memory is planned by that. Raises ValueError."""
    for size in form.sizes:
        check_count(f"the least '{size.name}'", size.low)
        check_count(f"the largest '{size.name}'", size.high or 0)
    for value in form.values:
        check_tensor(f"value '{value.name}'", value.dtype, value.shape)
    if len(set(form.names)) < len(form.names):
        raise ValueError(f"two sizes have one name: {', '.join(form.names)}")
    least = form.least()
    if all(limit.holds(least) for limit in form.limits):
        for shape in form.shapes:
            for extent in shape_at(shape, least):
                check_count("an extent", extent)
    named = [v for life in form.lives for v in life[:1]] + [v for place in form.inside for v in place[:2]]
    for number in (*named, *form.inputs, *form.outputs):
        check_count("number of a value", number, len(form.values) - 1)
    lies = {number for number, *_ in form.lives}
    owners = {number: owner for number, owner, _ in form.inside}
    for number, owner, behind in form.inside:
        check_count("a distance in memory", behind)
        if owner not in lies:
            raise ValueError(f"value '{form.values[number].name}' lies in '{form.values[owner].name}'")
    for number, value in enumerate(form.values):
        if value.storage.kind == "alias":
            check_count("number of a value", value.storage.index, number - 1)
        if value.storage.kind == "arena" and number not in lies and number not in owners:
            raise ValueError(f"value '{value.name}' has no memory")
    lives = {number: (first, last) for number, first, last in form.lives}
    graph = Graph(form.values, form.nodes, form.inputs, form.outputs, 0)
    written = {n for n, value in enumerate(form.values) if value.storage.kind in ("input", "const")}
    for index, node in enumerate(form.nodes):
        for number in (*node.inputs, *node.outputs) if node.kernel != NOP else ():
            check_count("number of a value", number, len(form.values) - 1)
            owner = owners.get(graph.root(number), graph.root(number))
            first, last = lives.get(owner, (index, index))
            if not first <= index <= last:
                raise ValueError(f"value '{form.values[owner].name}' is used by nodes outside of {first} to {last}")
        roots = [[owners.get(root, root) for root in map(graph.root, side)] for side in (node.inputs, node.outputs)]
        if early := [owner for owner in roots[0] if owner not in written]:
            raise ValueError(f"node '{node.name}' reads '{form.values[early[0]].name}', which nothing has written")
        written.update(roots[1] if node.kernel != NOP else ())


@dataclass(frozen=True, slots=True)
class _Blocks:
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
    def of(kernels: Sequence[CpuKernel], names: Sequence[str]) -> _Blocks:
        sizes = tuple(kernel.block[0] for kernel in kernels)
        parts = kernels[-1].block[1:]
        one = kernels[-1]
        whole = sum(arg.size_bytes for i, arg in enumerate(one.args) if i not in parts)
        work = max(one.flops, sum(one.args[i].size_bytes for i in parts))
        return _Blocks(sizes, dict(zip(sizes, names, strict=True)), pass_cost(whole), work)


def _counts_rows(shape: Shape, name: str) -> bool:
    """Whether a shape is that of so many rows per part of a batch, or says nothing of the batch."""
    if any(symbols_of(size) for size in shape[1:]):
        return False
    return (
        not shape
        or not symbols_of(shape[0])
        or all(size_at(shape[0], {name: n}) == n * size_at(shape[0], {name: 1}) for n in (0, 2, 3, 1000))
    )


def _may_overlap(graph: Graph, node: Node) -> bool:
    """Whether a node's outputs leave its inputs as they are, so that parts of them may be computed twice."""
    places = [
        {(at.kind, at.index) for n in values for at in (graph.values[graph.root(n)].storage,)}
        for values in (node.inputs, node.outputs)
    ]
    return not places[0] & places[1]


def _signature(kernel: CpuKernel) -> tuple[object, ...]:
    """What the kernels of a form have in common: arguments, those of a block by their bytes for one part."""
    n_parts, *positions = kernel.block
    return tuple(
        (a.role, a.dtype, a.size_bytes // n_parts if i in positions else a.shape) for i, a in enumerate(kernel.args)
    )


def _threads(kernel: Kernel, count: int, lanes: int) -> int:
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
    if len(shapes) != len(kernel.args):
        return kernel
    wanted = [replace(arg, shape=shape) for arg, shape in zip(kernel.args, shapes)]
    fits = [new if new.size_bytes == arg.size_bytes else arg for new, arg in zip(wanted, kernel.args)]
    return replace(kernel, args=tuple(fits))


class DynamicExecutor:
    """The memory of a model, and its programs for the latest sizes. One caller has it at a time.

    Arena and scratch serve all sizes: they grow to what the largest needs, and stay.
    """

    def __init__(self, executable: DynamicExecutable, threads: int):
        self.executable, self.threads = executable, threads
        self._memory = Memory()
        self._programs: OrderedDict[tuple[tuple[int, ...], bool], _Ready] = OrderedDict()
        self._known: dict[tuple[tuple[int, ...], ...], _Asked] = {}
        self._lock = threading.RLock()

    def ready(self, asked: _Asked) -> _Ready:
        """The program for the sizes that a call asks for, or for a few rows more."""
        found = self._programs.get(asked.program)
        if found is not None and self._memory.is_current(found.program):
            self._programs.move_to_end(asked.program)
            return found
        owner, (sizes, is_rounded) = self.executable, asked.program
        graph, kernels = owner.plan(dict(zip(owner.form.names, sizes, strict=True)))
        program = Program(graph, kernels, owner.constants, owner.native, self.threads, self._memory)
        made = _Ready.of(program, is_rounded)
        kept = {key: ready for key, ready in self._programs.items() if self._memory.is_current(ready.program)}
        self._programs = OrderedDict([*kept.items(), (asked.program, made)][-MOST_PROGRAMS:])
        return made

    def asked(self, arrays: Mapping[int, np.ndarray]) -> _Asked:
        """What inputs say of sizes. Raises ShapeError as `GraphForm.sizes_of`."""
        shapes = tuple([array.shape for array in arrays.values()])
        found = self._known.get(shapes)
        if found is None:
            sizes = self.executable.form.sizes_of({number: array.shape for number, array in arrays.items()})
            rounded = self.executable.rounded(sizes)
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            found = self._known[shapes] = _Asked(sizes, (tuple(rounded.values()), rounded != sizes))
        return found

    def run(self, arrays: Mapping[int, np.ndarray]) -> tuple[NDArray, ...]:
        """Run on arrays by value, in the order of inputs; gives new ones. Raises ShapeError as `GraphForm.sizes_of`."""
        with self._lock:
            asked = self.asked(arrays)
            ready = self.ready(asked)
            program = ready.program
            if ready.copies:
                return tuple([NDArray(x) for x in program.call(list(arrays.values()))])
            for number, array in arrays.items():
                program.place(number, ready.input(number, array))
            try:
                made = {number: empty_aligned(shape, dtype) for number, shape, dtype in ready.outputs}
            except OutOfMemoryError:
                with naming_the_largest(program.graph, "output"):
                    raise
            for number, array in made.items():
                program.place(number, array)
            try:
                program.run()
                views = [made[n] if n in made else program.view(n) for n in program.graph.outputs]
            finally:
                program.forget([*arrays, *made])
        if ready.is_rounded:
            shapes, sizes = self.executable.form.shapes, asked.sizes
            cut = zip(program.graph.outputs, views, strict=True)
            views = [view[: size_at(shapes[n][0], sizes)] if view.ndim else view for n, view in cut]
        return tuple([NDArray(view if new else view.copy()) for view, new in zip(views, ready.is_new, strict=True)])


@dataclass(frozen=True, slots=True)
class _Asked:
    """The sizes of a call, and the key of its program: sizes as they are computed, whether rows were added."""

    sizes: Mapping[str, int]
    program: tuple[tuple[int, ...], bool]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A program, and what its runs need to know of its values.

    outputs     (value, shape, dtype) of those with new memory for each run
    is_new      for each output of the graph, whether it lies there
    written     values that kernels write
    is_rounded  whether it has more rows than are asked for, so that inputs are copied into `inputs`
    copies      whether inputs and outputs are so small that the program has them in memory of its own
    """

    program: Program
    outputs: tuple[tuple[int, tuple[int, ...], str], ...]
    is_new: tuple[bool, ...]
    written: frozenset[int]
    is_rounded: bool
    copies: bool
    inputs: dict[int, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of(program: Program, is_rounded: bool) -> _Ready:
        graph = program.graph
        roots = tuple(map(graph.root, graph.outputs))
        new = {n: graph.values[n] for n in roots if graph.values[n].storage.kind == "output"}
        outputs = tuple((n, spec.shape, spec.dtype) for n, spec in new.items())
        written = frozenset(graph.root(v) for node in graph.nodes for v in node.outputs)
        ends = {*graph.inputs, *new}
        copies = not is_rounded and sum(graph.values[n].size_bytes for n in ends) <= MOST_COPIED * len(ends)
        for number in ends if copies else ():
            program.allocate(number)
        return _Ready(program, outputs, tuple(n in new for n in roots), written, is_rounded, copies)

    def input(self, number: int, array: np.ndarray) -> np.ndarray:
        """An input as kernels take it, with as many rows as the program has; what is in the others does not matter."""
        spec = self.program.graph.values[number]
        if array.shape == spec.shape:
            return as_aligned(array.copy() if number in self.written else array)
        if number not in self.inputs:
            self.inputs[number] = empty_aligned(spec.shape, spec.dtype)
            self.inputs[number].fill(0)
        self.inputs[number][: len(array)] = array
        return self.inputs[number]
