"""TVM's `relay.build` and executors, over `driver.build` and the VM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched import driver
from autosched.driver.build.pipeline import graph_passes, run_passes
from autosched.driver.settings import resolve_target
from autosched.errors import InvalidValueError, refuse
from autosched.ir import IRModule
from autosched.relay.arguments import Evaluated, apply_params, as_module, evaluated, one_target, plain, tuning_context
from autosched.relay.expr import GraphFunction
from autosched.relay.vm import VMExecutor
from autosched.runtime import Device, Executable, GraphModule, NDArray, array, cpu


def build(
    ir_mod: IRModule | GraphFunction,
    target: object = None,
    target_host: object = None,
    executor: object = None,
    runtime: object = None,
    workspace_memory_pools: object = None,
    constant_memory_pools: object = None,
    params: Mapping[str, object] | None = None,
    mod_name: str = "default",
) -> Executable:
    """Build a model: what it gives makes graph executors (`lib["default"](device)`), and can be saved.

    params  arrays bound to `main`'s parameters of these names
    """
    refuse(
        "relay.build", executor=str(getattr(executor, "name", executor or "graph")) != "graph",
        runtime=str(getattr(runtime, "name", runtime or "cpp")) != "cpp", workspace_memory_pools=workspace_memory_pools,
        constant_memory_pools=constant_memory_pools, mod_name=mod_name != "default",
    )  # fmt: skip
    mod, chosen = apply_params(as_module(ir_mod), params), one_target(target, target_host)
    with tuning_context(chosen):
        built: Executable = driver.build(mod, target=chosen)
    return built


def optimize(
    mod: IRModule | GraphFunction, target: object = None, params: Mapping[str, object] | None = None
) -> tuple[IRModule, dict[str, NDArray]]:
    """Run the graph passes alone: (the module, the parameters)."""
    bound = apply_params(as_module(mod), params)
    passed = run_passes(bound, graph_passes(resolve_target(one_target(target))))
    return passed, {name: array(plain(value)) for name, value in (params or {}).items()}


def bind_params_by_name(func: GraphFunction, params: Mapping[str, object]) -> GraphFunction:
    """A function with parameters replaced by constants."""
    bound: GraphFunction = apply_params(IRModule({"main": func}), params)["main"]
    return bound


class Executor:
    """Compiles on `evaluate`; what that gives is called with `main`'s arguments."""

    def __init__(
        self, mod: IRModule, device: Device, target: object, make: Callable[[IRModule], Callable[..., object]]
    ):
        self.mod, self.device, self.target, self._make = mod, device, target, make

    def evaluate(self, expr: object = None, binds: Mapping[object, object] | None = None) -> Evaluated:
        """A function of `main`'s arguments; of an expression's free variables where one is given."""
        return evaluated(self.mod, expr, binds, self._make)


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | None = None,
    target: object = "llvm",
    params: Mapping[str, object] | None = None,
) -> Executor | VMExecutor:
    """An executor: "graph", "vm", "aot" or "debug" (the last two run in the VM too).

    Raises RuntimeError for another kind.
    """
    if kind not in ("graph", "vm", "aot", "debug"):
        raise InvalidValueError(f"unknown execution strategy: {kind}", hint='use "graph" or "vm"')
    device = device or cpu()
    module = apply_params(as_module(mod) if mod is not None else IRModule(), params)
    if kind == "graph":
        return Executor(module, device, target, lambda m: _graph_function(m, device, target))
    if len(module) == 0:
        return Executor(module, device, target, lambda m: VMExecutor(m, device, target).vm.run)
    return VMExecutor(module, device, target)


def _graph_function(mod: IRModule, device: Device, target: object) -> Callable[..., object]:
    executor = GraphModule(build(mod, target)["default"](device))

    def run(*args: object) -> object:
        for index, value in enumerate(args):
            executor.set_input(index, value)
        executor.run()
        results = tuple(array(executor.get_output(i)) for i in range(executor.get_num_outputs()))
        return results[0] if len(results) == 1 else results

    return run
