"""An own CUDA kernel in one configuration: compiled once for each kind of arguments, and launched."""

from __future__ import annotations

import ctypes
import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autosched.codegen.cuda.user_kernel import UserKernel, UserOptions, compile_user_kernel
from autosched.errors import CodegenError, UsageError
from autosched.own.arguments import View, arrays_in, merge_spans, replace_arrays, span_of, view_of
from autosched.own.gpu.launching import LaunchRule
from autosched.own.gpu.values import Placed, flatten, numba_types
from autosched.own.jit import Parts
from autosched.own.specialise import specialise, specialise_text
from autosched.own.transfer import SentFunction
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.cuda.driver import Driver
from autosched.runtime.cuda.kernel import Launch
from autosched.space import Config
from autosched.target import Target

CUDA_KNOBS: Mapping[str, bool | int] = {
    "fastmath": False,
    "max_registers": 0,
}  # options of numba.cuda.jit that may be tuned


@dataclass(frozen=True, eq=False)
class SentKernel(SentFunction):
    """A kernel with all that compiling and launching one of its configurations takes.

    rule_blob  its `LaunchRule`, pickled by value
    target     JSON of what to compile for
    """

    rule_blob: bytes = field(default=b"", repr=False)
    target: str = ""

    @cached_property
    def rule(self) -> LaunchRule:
        """How it is launched."""
        found: LaunchRule = pickle.loads(self.rule_blob)
        return found

    def parts(self, config: Config) -> Parts:
        """The configuration's knobs as constants of the code and as options; the launch's alone are in neither."""
        constants = {name: value for name, value in config.knobs.items() if name in self.knobs}
        options = {name: value for name, value in config.knobs.items() if name in CUDA_KNOBS and name not in constants}
        return Parts(constants, {**self.options, **options}, None)

    def specialised(self, config: Config) -> tuple[Callable[..., object], str]:
        parts = self.parts(config)
        if self.text is None:
            raise CodegenError(f"the source of {self.name} is not to be had, into which knobs are written")
        rest = " ".join(f"{name}={value}" for name, value in self.options.items() if name not in config.knobs)
        text = specialise_text(self.text, parts.constants, f"{config} | {rest}".rstrip(" |"))
        return specialise(self.func, text, parts.constants, self.arguments), text

    def compiled(self, config: Config, types: Sequence[object]) -> UserKernel:
        """Compile a configuration. Raises CodegenError."""
        func, text = self.specialised(config)
        return compile_user_kernel(func, types, Target(self.target), UserOptions.of(self.parts(config).options), text)

    def named(self, values: Sequence[object]) -> dict[str, Any]:
        """Arguments by name."""
        return dict(zip(self.arguments, values, strict=True))

    def launch_of(self, kernel: UserKernel, config: Config, values: Sequence[object]) -> Launch:
        """The launch for a call's arguments. Raises UsageError, CodegenError where no block fits the device."""
        grid, block, shared = self.rule.of({**self.named(values), **config.knobs})
        threads = block[0] * block[1] * block[2]
        if not kernel.occupancy(Target(self.target).gpu, threads, shared):
            used = kernel.kernel.resources
            raise CodegenError(
                f"no block of {threads} threads fits a multiprocessor: {used.registers} registers a thread, "
                f"{used.shared_bytes + shared} bytes of shared memory",
                hint="use fewer threads, or the option max_registers",
            )
        (plain,) = kernel.kernel.launches
        return dataclasses.replace(plain, grid=grid, block=block, shared_bytes=shared)

    def dispatcher(self, config: Config) -> GpuCall:
        """What calls a configuration, nothing compiled yet."""
        return GpuCall(self, config)


class GpuCall:
    """One configuration of a kernel; called, it launches. Arrays of the host are copied there and back, as Numba does.

    ready  a kernel that is compiled already, for the arguments that it is called with
    """

    def __init__(self, sent: SentKernel, config: Config, ready: UserKernel | None = None):
        self.sent, self.config, self._ready = sent, config, ready
        self._kernels: dict[tuple[object, ...], UserKernel] = {}
        self._entries: dict[tuple[str, int], object] = {}

    def kernel_for(self, values: Sequence[object]) -> UserKernel:
        """The compiled kernel for arguments of these types."""
        if self._ready is not None:
            return self._ready
        types = numba_types(values)
        if types not in self._kernels:
            self._kernels[types] = self.sent.compiled(self.config, types)
        return self._kernels[types]

    def __call__(self, *values: object) -> None:
        kernel, driver = self.kernel_for(values), driver_of(0)
        launch = self.sent.launch_of(kernel, self.config, values)
        if not any(isinstance(array, np.ndarray) for value in values for array in arrays_in(value)):
            return self.launch(driver, kernel, launch, values)
        memory = HostArrays(driver, values)
        self.launch(driver, kernel, launch, memory.placed)
        memory.copy_back()

    def launch(self, driver: Driver, kernel: UserKernel, launch: Launch, placed: Sequence[object]) -> None:
        """Put one launch on the device's stream; arrays are there."""
        key = launch.symbol, launch.shared_bytes
        if key not in self._entries:
            self._entries[key] = driver.load(dataclasses.replace(kernel.kernel, launches=(launch,)))[0]
        words = [word for plan, value in zip(kernel.plan, placed, strict=True) for word in flatten(plan, value)]
        driver.launch(self._entries[key], launch, words)


class HostArrays:
    """The arrays of a call that lie on the host, copied to the device; views of one array stay views of one copy."""

    def __init__(self, driver: Driver, values: Sequence[object]):
        self._driver = driver
        self._arrays = {id(a): a for value in values for a in arrays_in(value)}
        for array in self._arrays.values():
            if min(array.strides, default=0) < 0:
                raise UsageError("an array with negative strides cannot be given to a GPU", hint="give a copy of it")
        spans = merge_spans([span_of(array) for array in self._arrays.values()])
        self._views: dict[int, View] = {key: view_of(array, spans) for key, array in self._arrays.items()}
        self._sizes = [high - low for low, high in spans]
        self._blocks = [driver.allocate(size) for size in self._sizes]
        for (low, high), block in zip(spans, self._blocks, strict=True):
            driver.copy_in(block.address, np.ctypeslib.as_array((ctypes.c_ubyte * (high - low)).from_address(low)))
        self.placed = tuple(replace_arrays(value, self._place) for value in values)

    def _place(self, array: object) -> Placed:
        view = self._views[id(array)]
        return Placed(self._blocks[view.block].address + view.offset, view.shape, view.strides, view.dtype)

    def copy_back(self) -> None:
        """Bring what may have been written back."""
        copies: dict[int, np.ndarray] = {}
        for key, array in self._arrays.items():
            view = self._views[key]
            if not view.is_writeable:
                continue
            if view.block not in copies:
                copies[view.block] = np.empty(self._sizes[view.block], np.uint8)
                self._driver.copy_out(copies[view.block], self._blocks[view.block].address)
            array[...] = view.of([copies.get(n, np.empty(0, np.uint8)) for n in range(len(self._blocks))])
