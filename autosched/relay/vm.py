"""TVM's `relay.vm`: compile a module for the VM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autosched.driver.build.pipeline import graph_passes, run_passes
from autosched.driver.settings import resolve_target
from autosched.driver.vm.build_vm import build_vm
from autosched.errors import InvalidTypeError, TVMError
from autosched.ir import IRModule
from autosched.relay.arguments import Evaluated, apply_params, as_module, evaluated, one_target, tuning_context
from autosched.relay.expr import GraphFunction
from autosched.runtime import Device, NDArray, array
from autosched.runtime.vm import Executable, VirtualMachine
from autosched.target import Target


def compile(
    mod: IRModule | GraphFunction,
    target: object = None,
    target_host: object = None,
    params: Mapping[str, object] | None = None,
) -> Executable:
    """Compile a module for the VM.

    target  a target, a list of them or a dictionary from devices to them
    params  arrays bound to `main`'s parameters of these names
    """
    compiler = VMCompiler()
    if params:
        compiler.set_params(params)
    compiler.lower(mod, target, target_host)
    compiler.codegen()
    return compiler.get_exec()


class VMCompiler:
    """The VM's compiler, step by step: `set_params`, `lower`, `codegen`, `get_exec`."""

    def __init__(self) -> None:
        self._params: dict[str, NDArray] = {}
        self._lowered: tuple[IRModule, Target | None] | None = None
        self._executable: Executable | None = None

    def set_params(self, params: Mapping[str, object]) -> None:
        """Bind arrays to `main`'s parameters of these names."""
        if not isinstance(params, Mapping):
            raise InvalidTypeError(f"set_params takes a mapping from names to arrays, not {type(params).__name__}")
        self._params = {
            name: value if isinstance(value, NDArray) else array(np.asarray(value)) for name, value in params.items()
        }

    def get_params(self) -> dict[str, NDArray]:
        """The arrays that are bound."""
        return dict(self._params)

    def lower(self, mod: IRModule | GraphFunction, target: object = None, target_host: object = None) -> None:
        """Take a module and what it is built for."""
        chosen = one_target(target, target_host)
        with tuning_context(chosen):
            self._lowered = apply_params(as_module(mod), self._params), chosen
        self._executable = None

    def codegen(self) -> None:
        """Generate the program. Raises TVMError before `lower`."""
        if self._lowered is None:
            raise TVMError("nothing is lowered yet", hint="call lower(mod, target) first")
        mod, target = self._lowered
        with tuning_context(target):
            self._executable = Executable(build_vm(mod, target))

    def optimize(
        self,
        mod: IRModule | GraphFunction,
        target: object = None,
        target_host: object = None,
        params: Mapping[str, object] | None = None,
    ) -> tuple[IRModule, dict[str, NDArray]]:
        """Run the graph passes alone: (the module, the parameters)."""
        chosen = one_target(target, target_host)
        if params:
            self.set_params(params)
        bound = apply_params(as_module(mod), self._params)
        return run_passes(bound, graph_passes(resolve_target(chosen))), self.get_params()

    def get_exec(self) -> Executable:
        """The program. Raises TVMError before `codegen`."""
        if self._executable is None:
            raise TVMError("nothing is generated yet", hint="call lower and codegen first")
        return self._executable


class VMExecutor:
    """Runs expressions of a module in the VM."""

    def __init__(self, mod: IRModule, device: Device, target: object, params: Mapping[str, object] | None = None):
        if mod is None:
            raise TVMError("Must provide module to get VM executor.")
        if not isinstance(device, Device):
            raise InvalidTypeError(f"an executor runs on a Device, not on a {type(device).__name__}")
        self.mod, self.device, self.target = as_module(mod), device, target
        self.executable = compile(self.mod, target, params=params)
        self.vm = VirtualMachine(self.executable, device)

    def evaluate(self, expr: object = None, binds: Mapping[object, object] | None = None) -> Evaluated:
        """A function of `main`'s arguments; of an expression's free variables where one is given.

        binds  values of variables of the expression
        """
        return evaluated(self.mod, expr, binds, self._make)

    def _make(self, mod: IRModule) -> Callable[..., object]:
        if mod is self.mod:
            return self.vm.run
        return VirtualMachine(compile(mod, self.target), self.device).run


__all__ = ["Executable", "VMCompiler", "VMExecutor", "compile"]
