"""A module compiled at once, for trying it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autosched.errors import InvalidValueError
from autosched.frontend.nn.export import export_tvm
from autosched.ir.module import IRModule
from autosched.lazy_names import hook
from autosched.relax.transform import BindParams

FORMATS = ("torch", "tvm")


def jit(module: Any, spec: Mapping[str, Any], device: Any, pipeline: Any, out_format: str, debug: bool) -> JitModule:
    """Compile a module's methods with its weights bound. Raises ValueError for weights without data."""
    if out_format not in FORMATS:
        raise InvalidValueError(f"out_format '{out_format}'", hint=f"one of {FORMATS}")
    exported, parameters = export_tvm(module, spec, debug)
    without = [name for name, p in parameters if p.data is None]
    if without:
        raise InvalidValueError(f"parameters without data: {', '.join(without[:5])}", hint="call load_state_dict first")
    values = {name: p.data.numpy() for name, p in parameters}
    build = hook("build")
    methods = {}
    for method in spec:
        one = IRModule({"main": exported[method].with_attr("global_symbol", "main")})
        one = IRModule({**{gv: f for gv, f in exported.functions.items() if gv.name not in spec}, **one.functions})
        methods[method] = build(BindParams("main", values)(one), target=str(device))
    return JitModule(methods, out_format)


class JitModule:
    """Methods by name: mod["forward"](x); torch tensors in and out with out_format "torch", else arrays."""

    def __init__(self, methods: Mapping[str, Any], out_format: str):
        self._methods, self._format = methods, out_format

    def __getitem__(self, name: str) -> Any:
        if name not in self._methods:
            raise InvalidValueError(f"no method '{name}'", hint=f"there are {sorted(self._methods)}")
        return lambda *args: self._run(self._methods[name], args)

    def _run(self, method: Any, args: tuple[Any, ...]) -> Any:
        result = method(*(a.detach().cpu().numpy() if hasattr(a, "detach") else a for a in args))
        return _converted(result, self._format)


def _converted(value: Any, out_format: str) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_converted(v, out_format) for v in value)
    if out_format == "tvm":
        return value
    import torch

    return torch.from_numpy(np.array(value.numpy() if hasattr(value, "numpy") else value))
