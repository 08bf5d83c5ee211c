"""`DynamicExecutable`: a model built once that runs for all sizes that it is called with, without compiling."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, NameNotFoundError, OutOfMemoryError, ShapeError
from autosched.runtime.array import NDArray, as_numpy, from_dlpack
from autosched.runtime.artifact import Contents, export_path, load_contents, save_contents
from autosched.runtime.artifact_check import check_tensor
from autosched.runtime.backends import backend_of
from autosched.runtime.block_cover import cover_cost
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.runtime.description import to_html
from autosched.runtime.dynamic_device import DeviceSizesExecutor
from autosched.runtime.executor_pool import ExecutorPool
from autosched.runtime.form_plan import Blocks, FormPlan
from autosched.runtime.graph import NOP, Graph, Value
from autosched.runtime.graph_form import GraphForm
from autosched.runtime.kernel import Kernel, check_count
from autosched.runtime.lender import Lender
from autosched.runtime.memory import aligned_copy, as_aligned, dtype_name, empty_aligned, is_readable
from autosched.runtime.names import given_by_name
from autosched.runtime.program import Memory, Program, naming_the_largest
from autosched.runtime.size_expr import Shape, shape_at, size_at, symbols_of
from autosched.runtime.sizes_executor import SizesGraphExecutor
from autosched.runtime.team import DEFAULT_LANES
from autosched.target import choose_threads

if TYPE_CHECKING:
    from autosched.json_types import Json
    from autosched.runtime.device import Device

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
            name: Blocks.of([as_cpu(self.kernels[key]) for key in blocks], blocks)
            for name, blocks in self.forms.items()
        }
        lanes = int(self.manifest.get("lanes", DEFAULT_LANES))
        self.form_plan = FormPlan(form, self.kernels, self._forms, lanes)
        least = form.least()
        if form.takes(least):  # else each call is checked for its own sizes
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
        return self.form_plan.graph_at(sizes, self.constants)

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
        graph = self.graph_at(sizes)
        calls = self.form_plan.calls_at(sizes)
        kernels = {call.name: call.kernel for kind in calls for call in kind}
        return replace(graph, nodes=tuple(self.form_plan.nodes(calls))), kernels

    def sizes_at(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """The sizes that shapes of inputs say, by the inputs' names; inputs whose sizes follow may be left out.

        Raises InvalidTypeError (TypeError) for a name that is no input, ShapeError (ValueError) for a shape that does
        not fit, a size that does not follow, and one that is out of its bounds.
        """
        numbers = {self.form.values[number].name: number for number in self.form.inputs}
        listed = ", ".join(f"{name}: {shape}" for name, shape in self.input_shapes.items())
        if unknown := [name for name in shapes if name not in numbers]:
            raise InvalidTypeError(f"the model has no input '{unknown[0]}'", hint=f"inputs are {listed}")
        given = {numbers[name]: tuple(shape) for name, shape in shapes.items()}
        said = {name for number in given for extent in self.form.shapes[number] for name in symbols_of(extent)}
        asked = {name for number in self.form.inputs for size in self.form.shapes[number] for name in symbols_of(size)}
        if missing := [name for name in self.form.names if name in asked - said]:
            raise ShapeError(f"no shape says how large '{missing[0]}' is", hint=f"inputs are {listed}")
        return self.form.sizes_of(given)

    def least_shapes(self) -> dict[str, tuple[int, ...]]:
        """Small shapes of the inputs that the model takes, by name."""
        sizes = self.form.least()
        return {self.form.values[n].name: shape_at(self.form.shapes[n], sizes) for n in self.form.inputs}

    def at(self, shapes: Mapping[str, Sequence[int]]) -> ModelAtSizes:
        """The model for inputs of some shapes, as executors run it. Raises as `sizes_at`."""
        graph, kernels = self.plan(self.sizes_at(shapes))
        forms = {block: form for form, blocks in self.forms.items() for block in blocks}
        rows = {row["kernel"]: row for row in self.manifest.get("report", ())}
        report = []
        for name in kernels:
            block = name.partition("@")[0]
            if row := rows.get(forms.get(block, block)):
                report.append({**row, "kernel": name, "flops": 0})  # its kernel knows them for these sizes
        manifest = {**self.manifest, "report": report}
        return ModelAtSizes(graph, kernels, self.constants, self.native, manifest)

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

    def create_executor(
        self, threads: int | None = None, device: Device | None = None
    ) -> DynamicExecutor | DeviceSizesExecutor:
        """Make an executor with memory of its own: on a CPU, or on a device that the kernels are for, the first one."""
        if self.backend != "cpu":
            return DeviceSizesExecutor(self.form, self.plan, self.constants, self.backend, device)
        return DynamicExecutor(self, choose_threads(threads))

    def __getitem__(self, name: str) -> Callable[..., SizesGraphExecutor]:
        """Give TVM's factory: `lib["default"](device)` makes a graph executor, whose inputs may be of any size."""
        if name != "default":
            raise NameNotFoundError(f"a model over open sizes has no function '{name}'", hint="it has default")
        return lambda device=None: SizesGraphExecutor(self, device)

    get_function = __getitem__

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


@dataclass(frozen=True)
class ModelAtSizes:
    """A model for all sizes at some of them. Fields as of an Executable; nodes call kernels for some blocks each."""

    graph: Graph
    kernels: Mapping[str, Kernel]
    constants: tuple[np.ndarray, ...]
    native: bytes
    manifest: Mapping[str, Json]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What each run is given, in order."""
        return tuple(self.graph.values[number] for number in self.graph.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What each run gives, in order."""
        return tuple(self.graph.values[number] for number in self.graph.outputs)


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
    if form.takes(least):
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


def _counts_rows(shape: Shape, name: str) -> bool:
    """Whether a shape is that of so many rows per part of a batch, or says nothing of the batch."""
    if any(symbols_of(size) for size in shape[1:]):
        return False
    return (
        not shape
        or not symbols_of(shape[0])
        or all(size_at(shape[0], {name: n}) == n * size_at(shape[0], {name: 1}) for n in (0, 2, 3, 1000))
    )


def _signature(kernel: CpuKernel) -> tuple[object, ...]:
    """What the kernels of a form have in common: arguments, those of a block by their bytes for one part."""
    n_parts, *positions = kernel.block
    return tuple(
        (a.role, a.dtype, a.size_bytes // n_parts if i in positions else a.shape) for i, a in enumerate(kernel.args)
    )


class DynamicExecutor:
    """The memory of a model, and its programs for the latest sizes. One caller has it at a time.

    Arena and scratch serve all sizes: they grow to what the largest needs, and stay.
    """

    def __init__(self, executable: DynamicExecutable, threads: int):
        self.executable, self.threads = executable, threads
        self._memory = Memory()
        self._programs: OrderedDict[tuple[tuple[int, ...], bool], _Ready] = OrderedDict()
        self._bases: OrderedDict[tuple[tuple[str, ...], ...], Program] = OrderedDict()  # the latest, by structure
        self._known: dict[tuple[tuple[int, ...], ...], _Asked] = {}
        self._lenders: defaultdict[int, Lender] = defaultdict(Lender)  # of each output's memory
        self._lock = threading.RLock()

    def ready(self, asked: _Asked) -> _Ready:
        """The program for the sizes that a call asks for, or for a few rows more."""
        found = self._programs.get(asked.program)
        if found is not None and self._memory.is_current(found.program):
            self._programs.move_to_end(asked.program)
            return found
        owner, (sizes, is_rounded) = self.executable, asked.program
        made = self._made(dict(zip(owner.form.names, sizes, strict=True)), is_rounded)
        for key, ready in list(self._programs.items()):
            if not self._memory.is_current(ready.program):
                del self._programs[key]
        for base in self._bases.values():
            if not self._memory.is_current(base):
                base.let_go()
        self._programs[asked.program] = made
        while len(self._programs) > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return made

    def _made(self, sizes: Mapping[str, int], is_rounded: bool) -> _Ready:
        """A program for some sizes: of a program that calls the same code, where there is one."""
        owner = self.executable
        if not owner.form_plan.is_checked:
            owner.graph_at(sizes)
        sized = owner.form_plan.at(sizes)
        if sized is None:
            graph, kernels = owner.plan(sizes)
        else:
            base = self._bases.get(sized.structure)
            if base is not None:
                program = self._bases[sized.structure] = base.resized(sized, self._memory)
                self._bases.move_to_end(sized.structure)
                return _Ready.of(program, owner.form, is_rounded)
            graph, kernels = sized.graph, {call.name: call.kernel for kind in sized.calls for call in kind}
        program = Program(graph, kernels, owner.constants, owner.native, self.threads, self._memory)
        if sized is not None:
            self._bases[sized.structure] = program
            if len(self._bases) > MOST_PROGRAMS:
                self._bases.popitem(last=False)
        return _Ready.of(program, owner.form, is_rounded)

    def asked(self, arrays: Mapping[int, np.ndarray]) -> _Asked:
        """What inputs say of sizes. Raises ShapeError as `GraphForm.sizes_of`."""
        shapes = tuple([array.shape for array in arrays.values()])
        found = self._known.get(shapes)
        if found is None:
            found = self._asked({number: array.shape for number, array in arrays.items()})
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            self._known[shapes] = found
        return found

    def _asked(self, shapes: Mapping[int, tuple[int, ...]]) -> _Asked:
        form = self.executable.form
        if (empty := form.empty_outputs(shapes)) is not None:
            return _Asked({}, ((), False), empty)
        sizes = form.sizes_of(shapes)
        rounded = self.executable.rounded(sizes)
        return _Asked(sizes, (tuple(rounded.values()), rounded != sizes))

    def _nothing(self, shapes: Sequence[tuple[int, ...]]) -> tuple[NDArray, ...]:
        """Outputs without elements."""
        form = self.executable.form
        pairs = zip(form.outputs, shapes, strict=True)
        return tuple(NDArray(empty_aligned(shape, form.values[number].dtype)) for number, shape in pairs)

    def run(self, arrays: Mapping[int, np.ndarray]) -> tuple[NDArray, ...]:
        """Run on arrays by value, in the order of inputs; gives new ones. Raises ShapeError as `GraphForm.sizes_of`."""
        with self._lock:
            asked = self.asked(arrays)
            if asked.empty is not None:
                return self._nothing(asked.empty)
            ready = self.ready(asked)
            program = ready.program
            if ready.copies:
                return tuple([NDArray(x) for x in program.call(list(arrays.values()))])
            for number, array in arrays.items():
                program.place(number, ready.input(number, array))
            try:
                made = {n: self._lenders[n].empty(shape, dtype) for n, shape, dtype in ready.outputs}
            except OutOfMemoryError:
                with naming_the_largest(program.graph, "output"):
                    raise
            for number, array in made.items():
                program.place(number, array)
            try:
                program.run()
                views = [made[n] if n in made else program.view(n) for n in self.executable.form.outputs]
            finally:
                program.forget([*arrays, *made])
        if ready.is_rounded:
            shapes, sizes = self.executable.form.shapes, asked.sizes
            cut = zip(self.executable.form.outputs, views, strict=True)
            views = [view[: size_at(shapes[n][0], sizes)] if view.ndim else view for n, view in cut]
        return tuple([NDArray(view if new else view.copy()) for view, new in zip(views, ready.is_new, strict=True)])


@dataclass(frozen=True, slots=True)
class _Asked:
    """The sizes of a call, and the key of its program: sizes as they are computed, whether rows were added.

    empty   the shapes of the outputs where none of them has elements: no program runs
    """

    sizes: Mapping[str, int]
    program: tuple[tuple[int, ...], bool]
    empty: tuple[tuple[int, ...], ...] | None = None


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
    def of(program: Program, form: GraphForm, is_rounded: bool) -> _Ready:
        ends = {number: program.value(number) for number in {*form.inputs, *form.output_roots}}
        new = {n: ends[n] for n in form.output_roots if ends[n].storage.kind == "output"}
        outputs = tuple((n, spec.shape, spec.dtype) for n, spec in new.items())
        kept = {*form.inputs, *new}
        copies = not is_rounded and sum(ends[n].size_bytes for n in kept) <= MOST_COPIED * len(kept)
        for number in kept if copies else ():
            program.allocate(number)
        is_new = tuple(n in new for n in form.output_roots)
        return _Ready(program, outputs, is_new, form.written, is_rounded, copies)

    def input(self, number: int, array: np.ndarray) -> np.ndarray:
        """An input as kernels take it, with as many rows as the program has; what is in the others does not matter."""
        spec = self.program.value(number)
        if array.shape == spec.shape:
            return array if is_readable(array) and number not in self.written else aligned_copy(array)
        if number not in self.inputs:
            self.inputs[number] = empty_aligned(spec.shape, spec.dtype)
            self.inputs[number].fill(0)
        self.inputs[number][: len(array)] = array
        return self.inputs[number]
