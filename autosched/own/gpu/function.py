"""`AutotunedKernel`: an own CUDA kernel that is launched with the best configuration known for its arguments."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from autosched.errors import AutoschedError, InvalidValueError, UsageError
from autosched.own.digest import digest
from autosched.own.function import AutotunedFunction
from autosched.own.gpu.compiler import COMPILER
from autosched.own.gpu.kernel import SentKernel
from autosched.own.gpu.launching import LaunchRule
from autosched.own.gpu.occupancy import occupancy_choice
from autosched.own.gpu.role import ROLE
from autosched.own.gpu.values import host_copies, numba_types, stand_in
from autosched.own.specialise import read_source
from autosched.own.transfer import pack_function, place_of
from autosched.own.workload import describe
from autosched.runtime.cuda.devices import driver_of, first_capability, is_replaced
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import usual_arch
from autosched.task import Task

_REMEMBERED = 256


class AutotunedKernel(AutotunedFunction):
    """What `autotune` makes of a kernel of `numba.cuda`: called, it is launched, without a grid in brackets.

    rule  how it is launched;  unset  knobs of its threads that nobody has set: the occupancy chooses
    """

    compiler, role = COMPILER, ROLE

    def __init__(self, *given: Any, rule: LaunchRule, unset: Sequence[str], target: str | None = None, **more: Any):
        super().__init__(*given, **more)
        self.rule, self.unset, self._wanted = rule, tuple(unset), target
        self._choices: dict[Hashable, Config | None] = {}

    def resources(self, *args: object, config: Config | None = None, **kwargs: object) -> Any:
        """Registers, shared memory, stack and spills of the code for a call, as the assembler reports them."""
        return self._kernel(config, args, kwargs).resources

    def ptx(self, *args: object, config: Config | None = None, **kwargs: object) -> str:
        """The PTX of the code for a call."""
        return str(self._kernel(config, args, kwargs).ptx)

    def _kernel(self, config: Config | None, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        values, _ = self.signature.bind(args, kwargs)
        return self._callable(config or self._config_for(values)).kernel_for(values).kernel  # type: ignore[attr-defined]

    # ---- for the tuner

    @property
    def target(self) -> Target:
        """What it is compiled for: as the decorator or the `with` block says, else the first device here."""
        if self._wanted is not None:
            chosen = Target(self._wanted)
        else:
            current = Target.current(allow_none=True)
            chosen = current if current is not None and not current.is_cpu else _device_target()
        if chosen.backend != "cuda":
            raise UsageError(f"{self.__name__} is a CUDA kernel, and the target is '{chosen}'", hint='target="cuda"')
        return chosen

    @cached_property
    def version(self) -> str:
        return digest(self.py_func, self.options, {**vars(self.rule)})

    @property
    def is_parallel(self) -> bool:
        return False

    def space_for(self, values: tuple[Any, ...], threads: int | None = None) -> ConfigSpace:
        space = super().space_for(tuple(stand_in(value) for value in values))
        if not self.unset:
            return space
        key: Hashable = tuple((value.shape, value.dtype) if hasattr(value, "shape") else value for value in values)
        try:
            found = self._choices.get(key)
        except TypeError:  # a value that cannot be hashed
            key, found = None, None
        if found is None:
            found = self._occupancy_choice(space, values)
            if len(self._choices) < _REMEMBERED and key is not None:
                self._choices[key] = found
        try:
            return space if found is None else space.with_default(found)
        except AutoschedError:
            return space

    def _occupancy_choice(self, space: ConfigSpace, values: tuple[object, ...]) -> Config | None:
        if space.count() == 0:
            return None
        return occupancy_choice(self._sent(()), space, self.unset, numba_types(values), values)

    def task_for(self, values: tuple[object, ...], threads: int | None = None, *, sent: object = None) -> Task:
        named = self.signature.named(tuple(stand_in(value) for value in values))
        workload = describe(self.space.name, named, self.key)
        name = str(workload).removeprefix("own/")
        return Task(workload, self.target, func=sent, threads=1, name=name, cache="warm")

    def host_values(self, values: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(host_copies(dict(enumerate(values))).values())  # type: ignore[arg-type]

    def _sent(self, values: tuple[object, ...], *, is_sent: bool = False) -> SentKernel:
        if self.signature.rest:
            raise UsageError(f"{self.__name__} takes '*{self.signature.rest}', which no kernel can")
        place = place_of(self.py_func)
        sent = SentKernel(
            pack_function(self.py_func, place) if is_sent else b"",
            place,
            self.__name__,
            read_source(self.py_func),
            self.signature.arguments,
            self.signature.knobs,
            self.options,
            pickle.dumps(numba_types(values)) if is_sent else b"",
            _pack_rule(self.rule, self.__name__) if is_sent else b"",
            self.target.to_json(),
        )
        if not is_sent:
            sent.__dict__["func"] = self.py_func  # they never leave this process
            sent.__dict__["rule"] = self.rule
        return sent

    def _slow(self, values: tuple[object, ...], knobs: dict[str, object]) -> object:
        driver_of(0)  # where there is none, that is all there is to say
        return super()._slow(values, knobs)

    def _callable(self, config: Config) -> Callable[..., object]:
        if config.key not in self._compiled:
            self._compiled[config.key] = self._sent(()).dispatcher(config)
        return self._compiled[config.key]

    def __getitem__(self, launch: object) -> Any:
        """Raises InvalidValueError: the launch is a matter of `grid=` and `threads=`."""
        raise InvalidValueError(f"{self.__name__} launches itself", hint=f"call {self.__name__}(…): its grid is known")


def _device_target() -> Target:
    """The first device; where there is none, the kind alone."""
    if is_replaced() and (capability := first_capability()) is not None:
        return Target(f"cuda -arch={usual_arch(capability)}")
    return Target("cuda")


def _pack_rule(rule: LaunchRule, name: str) -> bytes:
    from numba.core import serialize

    try:
        return bytes(serialize.dumps(rule))
    except Exception as error:  # what a global can raise when it is pickled has no common type
        raise UsageError(f"grid= or threads= of {name} cannot be sent to a worker process: {error}") from error


def cuda_options(options: Mapping[str, object], where: str) -> dict[str, object]:
    """The options of `numba.cuda.jit` that count here. Raises UsageError for those that cannot be honoured."""
    for name in ("link", "extensions", "debug", "device", "cooperative"):
        if options.get(name):
            raise UsageError(f"a kernel with the option {name} cannot be tuned", where=where)
    kept = {name: options[name] for name in ("fastmath", "max_registers", "launch_bounds") if options.get(name)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in kept.items()}
