"""`build` of PyTorch's exported programs: at once, or for each set of sizes where dimensions are dynamic."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.by_data import build_by_data
from autosched.driver.build.staged import StagedModel, Value
from autosched.driver.model_files import is_program as is_exported
from autosched.errors import AutoschedError, ImportModelError, InvalidTypeError, ShapeError
from autosched.frontend.stages import DataNeededError, LibraryNeededError, OpenSizes, Stage
from autosched.runtime import Executable
from autosched.runtime.array import NDArray, as_numpy
from autosched.runtime.artifact import Contents, from_contents, save_contents
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.memory import dtype_name
from autosched.runtime.stateful import StatefulProgram
from autosched.target import Target

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Build = Callable[..., Any]  # (module, shapes=…) -> what is built
Shapes = Mapping[str, tuple[int, ...]]
_log = logging.getLogger(__name__)


def is_program(what: object) -> bool:
    """Whether something is an exported program, or the path of one's file."""
    if isinstance(what, str | Path):
        return str(what).lower().endswith(".pt2")
    return is_exported(what)


def build_program(what: Any, build: Build, shapes: Shapes | None = None, target: str = "") -> object:
    """A program, built; one with dynamic dimensions that `shapes` leaves open for all sizes, or when it is called.

    For all sizes, as `build` does it, where the import knows what to do with symbols; else a SizedProgram. One whose
    sizes follow from data is compiled once for the VM where that can be; else it is a LateProgram, as is one that has
    operators without kernels. A program that changes buffers is a
    StatefulProgram of one of these.
    """
    from autosched.frontend.torch.exported import with_own_weights
    from autosched.frontend.torch.files import read_program_file

    program = read_program_file(what) if isinstance(what, str | Path) else with_own_weights(what)
    built, states = _built(program, build, shapes or {}, target)
    return StatefulProgram(built, states) if states else built


def _built(program: ExportedProgram, build: Build, shapes: Shapes, target: str) -> tuple[Any, dict[str, np.ndarray]]:
    """(what is built, the first values of buffers that the program changes, which are its last inputs and outputs)."""
    from autosched.frontend.torch.exported import import_for_vm, import_with_states
    from autosched.frontend.torch.program_sizes import has_empty_values, has_sizes_of_data, is_bound

    is_open = not is_bound(program, shapes)
    try:
        try:
            module, states = import_with_states(program, None if is_open else shapes)
        except DataNeededError:
            raise
        except ImportModelError as error:
            if not is_open:
                raise
            if has_sizes_of_data(program):
                raise DataNeededError("sizes follow from data") from None
            return _with_states(SizedProgram(program, build, shapes, target, error.message))
        if is_open and shapes:
            return _with_states(SizedProgram(program, build, shapes, target, "only some of its sizes are given"))
        try:
            return build(module), states
        except AutoschedError:
            if not has_empty_values(program):
                raise
            raise DataNeededError("there are values without elements") from None
    except DataNeededError as error:
        imported = partial(import_for_vm, program, shapes)
        if Target.from_json(target).is_cpu and (whole := build_by_data(imported, build)) is not None:
            return whole, {}
        late = LateProgram(program, build, shapes, target)
        if isinstance(error, LibraryNeededError):
            _log.warning("PyTorch computes what has no kernel, and the rest is compiled in stages: %s", error.message)
        late.prepare()
        return _with_states(late)


def _with_states(held: _HeldProgram) -> tuple[_HeldProgram, dict[str, np.ndarray]]:
    return held, dict(held.states)


class _HeldProgram:
    """A program that is compiled when it is called.

    inputs  by name their dimensions: numbers, or what PyTorch calls them; buffers that the program changes come last
    shapes  sizes of some inputs that are fixed
    target  as JSON, for what is saved
    states  the first values of these buffers
    """

    def __init__(self, program: ExportedProgram, shapes: Shapes, target: str, states: Mapping[str, np.ndarray]):
        from autosched.frontend.torch.program_sizes import dynamic_inputs

        self.program, self.shapes, self.manifest = program, dict(shapes), {"target": target}
        self.states = dict(states)
        self.inputs = {**dynamic_inputs(program), **{name: array.shape for name, array in states.items()}}

    def values_of(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, np.ndarray]:
        """The inputs by name. Raises InvalidTypeError for missing or unknown ones."""
        if len(args) > len(self.inputs):
            raise InvalidTypeError(f"{len(args)} inputs instead of {len(self.inputs)}")
        if twice := named.keys() & [*self.inputs][: len(args)]:
            raise InvalidTypeError(f"input '{min(twice)}' is given twice")
        given = {**dict(zip(self.inputs, args)), **named}
        if wrong := [n for n in self.inputs if n not in given] or [n for n in given if n not in self.inputs]:
            raise InvalidTypeError(
                f"input '{wrong[0]}' is missing or unknown", hint=f"there are {', '.join(self.inputs)}"
            )
        return {name: as_numpy(given[name], f"input '{name}'") for name in self.inputs}

    def sizes_of(self, shapes: Shapes) -> dict[str, int]:
        """The sizes of the program's symbols for inputs of these shapes. Raises ShapeError for what does not fit."""
        from autosched.frontend.torch.program_sizes import sizes_of

        for name, shape in self.shapes.items():
            if tuple(shapes[name]) != tuple(shape):
                raise ShapeError(f"input '{name}' was fixed as {list(shape)}, not {list(shapes[name])}")
        for name, array in self.states.items():
            if tuple(shapes[name]) != array.shape:
                raise ShapeError(f"input '{name}' is of shape {list(array.shape)}, not {list(shapes[name])}")
        return sizes_of(self.program, self.without_states(shapes))

    def without_states(self, shapes: Shapes) -> Shapes:
        """The shapes of the program's own inputs."""
        return {name: shape for name, shape in shapes.items() if name not in self.states}

    def save(self, path: str | Path) -> None:
        """Write the program itself: where it is loaded, which takes PyTorch, it is compiled when it is called.

        Raises ArtifactError if the file cannot be written.
        """
        save_contents(self.contents(), Path(path))

    def contents(self) -> Contents:
        """What an artifact of it holds."""
        import torch

        data = io.BytesIO()
        torch.export.save(self.program, data)
        shapes = {name: list(map(int, shape)) for name, shape in self.shapes.items()}
        manifest = {"source": "", **self.manifest, "runs": "torch", "shapes": shapes}
        held = (np.frombuffer(data.getvalue(), np.uint8),)
        return Contents("source", {}, b"", {}, held, {"entry": "", "manifest": manifest})

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the program itself."""
        return from_contents, (self.contents(),)

    def __repr__(self) -> str:
        dims = ", ".join(f"{name}{list(dims)}" for name, dims in self.inputs.items())
        return f"<autosched {type(self).__name__} of {dims}>"


class SizedProgram(_HeldProgram):
    """A program with dynamic dimensions: built at the first call with each set of sizes. Several threads may call it.

    shapes, target  as of `_HeldProgram`
    reason          why it is not compiled once for all sizes
    """

    def __init__(self, program: ExportedProgram, build: Build, shapes: Shapes, target: str = "", reason: str = ""):
        from autosched.frontend.torch.exported import states_of

        super().__init__(program, shapes, target, states_of(program))
        self.reason = reason
        self._build = build
        self._built: BuiltSizes[Executable | LateProgram] = BuiltSizes()
        self._target = target

    def __call__(self, *args: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run on inputs by position or name; gives what the built program gives.

        Raises InvalidTypeError for missing or unknown inputs, ShapeError for sizes that do not fit each other or the
        bounds that the program was exported with.
        """
        values = self.values_of(args, named)
        found: NDArray | tuple[NDArray, ...] = self.built_for({n: tuple(v.shape) for n, v in values.items()})(**values)
        return found

    def built_for(self, shapes: Shapes) -> Executable | LateProgram:
        """The program for inputs of these shapes, built now where it is not yet."""
        from autosched.frontend.torch.exported import import_with_states

        sizes, own = self.sizes_of(shapes), self.without_states(shapes)

        def make() -> Executable | LateProgram:
            start = time.perf_counter()
            try:
                module, _ = import_with_states(self.program, own)
            except LibraryNeededError:
                return LateProgram(self.program, self._build, own, self._target)
            made: Executable = self._build(module)
            text = ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))
            _log.info("built for %s in %.1f s", text, time.perf_counter() - start)
            return made

        return self._built.get(tuple(sorted(sizes.items())), make)


class LateProgram(_HeldProgram, StagedModel):
    """A program that is compiled stage by stage when it is called. Several threads may call it.

    Sizes in it follow from data, or PyTorch computes operators that have no kernel here.

    shapes, target  as of `_HeldProgram`
    """

    def __init__(self, program: ExportedProgram, build: Build, shapes: Shapes, target: str = ""):
        from autosched.frontend.torch.program_sizes import size_value, sizes_of
        from autosched.frontend.torch.stages import StagedProgram

        self._stages, self._fitting = StagedProgram(program), BuiltSizes[dict[str, int]]()
        self._dtypes = self._stages.input_dtypes
        _HeldProgram.__init__(self, program, shapes, target, self._stages.states)
        StagedModel.__init__(self, "main", list(self.inputs), build)
        known = sizes_of(program, shapes)
        self._dims = {
            name: tuple(d if isinstance(d, int) else size_value(d, known) or str(d) for d in dims)
            for name, dims in self.inputs.items()
        }
        self.open_dims = tuple(dict.fromkeys(d for x in self._dims.values() for d in x if isinstance(d, str)))
        self.output_names = tuple(f"output{n}" for n in range(self._stages.n_outputs))

    def example(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray | None:
        if shape is not None:
            return np.zeros(shape, self._dtypes[name])
        dims = [d for d in self._dims[name] if isinstance(d, int)]
        return np.zeros(dims, self._dtypes[name]) if len(dims) == len(self._dims[name]) else None

    def check_inputs(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Value]:
        values = self.values_of(args, named)
        for name, value in values.items():
            if dtype_name(value.dtype) != self._dtypes[name]:
                raise InvalidTypeError(f"input '{name}' has dtype {value.dtype} instead of {self._dtypes[name]}")
        shapes = {name: value.shape for name, value in values.items()}
        self._fitting.get(tuple(shapes.values()), lambda: self.sizes_of(shapes))
        return {**values}

    def import_stage(self, there: Mapping[str, Value], known: tuple[str, ...], opened: OpenSizes | None) -> Stage:
        return self._stages.stage(there, known, opened)

    def prepare(self) -> None:
        """Compile the first stages where all sizes are known, so that what is wrong is said before a call."""
        if not self.open_dims:
            there: dict[str, Value] = {name: self.example(name) for name in self.inputs}
            self._next(self._start, there, list(there), {})
