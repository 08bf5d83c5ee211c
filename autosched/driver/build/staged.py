"""Models that are compiled stage by stage when they are called: for the sizes at hand, and for values that decide.

What is known of a call, the shapes of its inputs first, picks a stage (`frontend.stages`) that was compiled for it, or
compiles it now; what the stage gives, and the contents of what it asks for, pick the next one (`following`).
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from autosched.driver.build.following import Following, Past, Step, is_array, may_be_open, places_of, sizes_at
from autosched.driver.build.sized import SizedModel
from autosched.driver.build.symbolic import refuse_to_compile
from autosched.env import AUTOSCHED_SYMBOLIC_SIZES
from autosched.errors import ImportModelError, ShapeError, WrongInputError
from autosched.frontend.stages import Check, Fixed, Form, Kept, Made, Number, OpenSizes, OutsideCall, Stage
from autosched.ir import IRModule
from autosched.runtime import Executable
from autosched.runtime.array import NDArray, array
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.memory import dtype_name
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.size_expr import size_at
from autosched.tir.expr import SizeVar
from autosched.tir.size_expr import to_size

Build = Callable[[IRModule], "Executable | DynamicExecutable | SizedModel | VMExecutable"]
# Of a tensor, a sequence, a map, a number.
Value: TypeAlias = "np.ndarray | NDArray | list[Value] | dict[object, object] | int | float | None"
MOST_STAGES = 10_000  # of one call: a loop whose condition stays true
PLAIN = "biuf"  # kinds of types whose arrays are the same for users as for kernels
SHORT_BYTES = 256  # contents up to this size are part of a key as they are, longer ones by their hash


class StagedModel(ABC):
    """A model that runs in stages; several threads may call it.

    model_name   for messages
    input_names  in order
    build        compiles a module
    is_open      whether one stage may serve all sizes of inputs
    """

    reason = ""  # why one build does not serve all sizes, where those of inputs are open
    open_dims: tuple[str, ...] = ()  # the inputs' sizes that are open, by their names
    output_names: tuple[str, ...]

    def __init__(self, model_name: str, input_names: Sequence[str], build: Build, is_open: bool = True):
        self.model_name, self.input_names, self._build, self._is_open = model_name, tuple(input_names), build, is_open
        self._past = Past()
        self._start = Step(Stage(None, (), {}, (), (), None), None)
        self._direct: dict[
            Hashable, Callable[[Sequence[np.ndarray]], tuple[NDArray, ...]]
        ] = {}  # by `_forms_of` inputs
        self.steps: list[Step] = []  # all that were made, for reports

    @abstractmethod
    def check_inputs(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Value]:
        """Inputs by name, as arrays of the model's types and sizes; see `__call__`."""

    @abstractmethod
    def example(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray | None:
        """Zeros of an input's type and of a shape; None where none is given and the model has open sizes."""

    @abstractmethod
    def import_stage(self, there: Mapping[str, Value], known: tuple[str, ...], opened: OpenSizes | None) -> Stage:
        """The next stage for what is there, the names of what may be used of it, and what is open in it.

        Raises ImportModelError where it cannot be imported so.
        """

    def __call__(self, *args: Any, **named: object) -> Any:
        """Run the model on inputs by position or name; gives arrays (texts as NumPy's objects), a tuple where there are
        several outputs, lists for sequences.

        Raises InvalidTypeError (TypeError) on a missing or unknown input or a wrong dtype, ShapeError on sizes that do
        not fit each other; ImportModelError for what cannot be compiled for them.
        """
        key = None if named else _forms_of(args)
        if key is not None and (direct := self._direct.get(key)) is not None:
            found = direct(args)
            return found[0] if len(found) == 1 else found
        results = self.results(self.check_inputs(args, named))
        if key is not None:
            self._remember(key, args)
        return results[0] if len(results) == 1 else results

    def _remember(self, key: Hashable, args: Sequence[np.ndarray]) -> None:
        """Where inputs of these forms, which fit, need one stage and nothing else, go there at once the next time."""
        there = dict(zip(self.input_names, args))
        step = self._next(self._start, there, list(there), {})
        forms, executable = step.stage.results, step.executable
        if forms is None or executable is None or len(args) != len(self.input_names) or step.stage.sizes:
            return
        if isinstance(executable, VMExecutable):
            return
        run: Callable[[Sequence[Any]], tuple[NDArray, ...]]
        if isinstance(executable, DynamicExecutable):
            graph, run = executable.form, _of_arguments(executable)
            inputs, outputs = (tuple(graph.values[n] for n in side) for side in (graph.inputs, graph.outputs))
        else:
            inputs, outputs, run = executable.inputs, executable.outputs, executable.run
        numbers = [form.index for form in forms if isinstance(form, Made)]
        if numbers != [*range(len(outputs))] or len(numbers) != len(forms):
            return
        if not set(step.stage.inputs) <= there.keys() or any(math.prod(v.shape) == 0 for v in outputs):
            return
        if any(np.dtype(v.dtype).kind not in PLAIN for v in (*inputs, *outputs)):
            return
        positions = [list(there).index(name) for name in step.stage.inputs]
        if len(self._direct) >= AUTOSCHED_SYMBOLIC_SIZES.get():
            self._direct.clear()
        in_order = positions == [*range(len(args))]
        self._direct[key] = run if in_order else lambda args: run([args[i] for i in positions])

    def results(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        """The outputs for inputs by name, as users get them."""
        return tuple(map(_shown, self._run(values)))

    def run(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        """The outputs for inputs by name, as NumPy has them."""
        return tuple(value.view() if isinstance(value, NDArray) else value for value in self._run(values))

    def _run(self, values: Mapping[str, Value]) -> list[Value]:
        """The outputs; what a stage computed and nobody else has is an NDArray."""
        symbols: dict[SizeVar, int] = {}
        try:
            return self._run_stages(values, symbols)
        except ShapeError:  # no stage for many sizes takes these
            if not symbols:
                raise
        return self._run_stages(values, None)

    def _run_stages(self, values: Mapping[str, Value], symbols: dict[SizeVar, int] | None) -> list[Value]:
        """The same. The open sizes of the call are added to `symbols`; where that is None, none are open."""
        there = dict(values)
        step = self._next(self._start, there, list(there), symbols)
        for _ in range(MOST_STAGES):
            stage = step.stage
            _check(stage.checks, symbols or {})
            arrays = self._outputs(step, there, symbols)
            made = [x.view() for x in arrays]
            if stage.results is not None:
                return _results(stage.results, arrays, made, there, symbols)
            given = {name: _filled(form, made, there, symbols) for name, form in stage.gives.items()}
            computed: dict[str, Any] = {}
            for call, forms in stage.calls:
                results = call.run([_filled(form, made, there, symbols) for form in forms])
                computed |= dict(zip(call.outputs, results))
            there |= given
            there |= {name: value for name, value in computed.items() if name}
            step = self._next(step, there, [name for name in computed if name], symbols)
        raise WrongInputError(f"the model has more than {MOST_STAGES} stages for these inputs")

    def _next(
        self, step: Step, there: Mapping[str, Value], computed: Sequence[str], symbols: dict[SizeVar, int] | None
    ) -> Step:
        """The stage after one, for the values that are new and for the contents that it needs."""
        needs = step.stage.needs
        forms = tuple((name, _type_of(there[name])) for name in computed)
        contents = tuple(_form_of(there[n]) if may_be_open(there[n]) else _contents(there[n]) for n in needs)

        def begin() -> Following:
            is_closed = step is self._start and not self._is_open
            return Following(places_of(there, computed, needs), step, needs, self._past, is_closed)

        following = step.following.get((forms, contents), begin)
        sizes = sizes_at(there, following.places)
        return following.step(sizes, symbols, lambda known, opened: self._make(there, known, opened))

    def _outputs(
        self, step: Step, there: Mapping[str, Value], symbols: Mapping[SizeVar, int] | None
    ) -> tuple[NDArray, ...]:
        given = [_item(there, name) for name in step.stage.inputs]
        match step.executable:
            case Executable() as executable:
                return executable.run(given)
            case DynamicExecutable() | VMExecutable() as executable:
                hidden = (np.empty((symbols or {})[s], np.bool_) for s in step.stage.sizes)
                return _as_tuple(executable(*given, *hidden))
        return ()

    def _make(self, there: Mapping[str, Value], known: tuple[str, ...], opened: OpenSizes | None) -> Step:
        """Import and compile the next stage for what is there, and for all that is open in it.

        Raises ImportModelError where it cannot be imported or compiled so.
        """
        stage = self.import_stage(there, known, opened)
        if stage.module is not None and self.steps:
            refuse_to_compile(self.model_name, {})
        built = None if stage.module is None else self._build(stage.module)
        if isinstance(built, SizedModel):
            raise ImportModelError(built.reason)
        behind = (
            replace(opened, shapes={**opened.shapes, **stage.shapes}, numbers={**opened.numbers, **stage.numbers})
            if opened
            else OpenSizes()
        )
        step = Step(stage, built, known, behind)
        self.steps.append(step)
        return step

    @property
    def calls(self) -> tuple[OutsideCall, ...]:
        """The nodes that libraries compute, as far as they were met."""
        return tuple({(c.name, c.op_name): c for step in self.steps for c, _ in step.stage.calls}.values())

    @property
    def executables(self) -> tuple[Executable | DynamicExecutable | VMExecutable, ...]:
        """What was compiled, in order."""
        return tuple(step.executable for step in self.steps if step.executable is not None)


def _of_arguments(executable: DynamicExecutable) -> Callable[[Sequence[Any]], tuple[NDArray, ...]]:
    return lambda args: _as_tuple(executable(*args))


def _as_tuple(found: NDArray | tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    return found if isinstance(found, tuple) else (found,)


def _check(checks: Sequence[Check], symbols: Mapping[SizeVar, int]) -> None:
    """Raises WrongInputError where a size is not as the model says."""
    values = {s.name: value for s, value in symbols.items()} if checks else {}
    for check in checks:
        size = size_at(check.size, values)
        if size < check.low or (check.is_exact and size > check.low):
            raise WrongInputError(check.message)


def _item(there: Mapping[str, Any], name: str) -> Any:
    """A value, or an item of a sequence ("name.3")."""
    if name in there:
        return there[name]
    own, _, index = name.rpartition(".")
    return there[own][int(index)]


def _filled(
    form: Form, made: Sequence[np.ndarray], there: Mapping[str, Value], symbols: Mapping[SizeVar, int] | None
) -> Value:
    match form:
        case None:
            return None
        case Made(index):
            return made[index]
        case Kept(name):
            item: Value = _item(there, name)
            return item
        case Fixed(value):
            known: Value = value
            return known
        case Number(size):
            found = size_at(to_size(size), {s.name: value for s, value in (symbols or {}).items()})
            return found
        case fields:
            return [_filled(f, made, there, symbols) for f in fields]


def _results(
    forms: Sequence[Form],
    arrays: Sequence[NDArray],
    made: Sequence[np.ndarray],
    there: Mapping[str, Value],
    symbols: Mapping[SizeVar, int] | None,
) -> list[Value]:
    """The outputs; a value that is one of them only once need not be copied for it."""
    found: list[Value] = []
    for form in forms:
        if isinstance(form, Made) and _is_plain(made[form.index]) and forms.count(form) == 1:
            found.append(arrays[form.index])
        else:
            found.append(_filled(form, made, there, symbols))
    return found


def _forms_of(args: Sequence[Any]) -> Hashable:
    """Shapes and types of NumPy's arrays; None where there is anything else."""
    forms = tuple([(value.shape, value.dtype) for value in args if type(value) is np.ndarray])
    return forms if len(forms) == len(args) else None


def _type_of(value: Any) -> Hashable:
    """What a stage is compiled for beside sizes: dtype and rank; of what is no array `_form_of`."""
    return (value.ndim, dtype_name(value.dtype)) if is_array(value) else _form_of(value)


def _form_of(value: Any) -> Hashable:
    """Shape and dtype, of each item of a sequence."""
    if isinstance(value, list):
        return tuple(map(_form_of, value))
    if isinstance(value, dict):
        return "map"
    return None if value is None else (value.shape, dtype_name(value.dtype))


def _contents(value: Any) -> Hashable:
    """A value's contents, to find what was compiled for them."""
    if isinstance(value, list):
        return tuple(map(_contents, value))
    if value is None or value.dtype == object:
        return None if value is None else (value.shape, tuple(value.reshape(-1).tolist()))
    data = np.ascontiguousarray(value).tobytes()
    return (value.shape, dtype_name(value.dtype), data if len(data) <= SHORT_BYTES else hashlib.sha256(data).digest())


def _shown(value: Value) -> Value:
    """An output as users get it."""
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype == object or not _is_plain(value):
        return value
    return array(value)


def _is_plain(value: np.ndarray) -> bool:
    return value.dtype.kind in PLAIN and value.size > 0
