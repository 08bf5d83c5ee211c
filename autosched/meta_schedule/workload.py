"""What is tuned: a module of one PrimFunc, known by its form."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from autosched.errors import InvalidTypeError, RecordError
from autosched.ir import IRModule
from autosched.ir.structural import structural_key
from autosched.json_types import Json
from autosched.script import from_source
from autosched.tir import PrimFunc

IGNORED = ("global_symbol", "op_pattern", "tir.noalias")  # attributes that do not change what is computed


def module_of(mod: object) -> IRModule:
    """An IRModule with the one function `main`. Raises TypeError for what is neither a PrimFunc nor a module of one."""
    if isinstance(mod, PrimFunc):
        return IRModule({"main": mod})
    if isinstance(mod, IRModule):
        functions = [f for _, f in mod.functions_items() if isinstance(f, PrimFunc)]
        if len(functions) == 1 and len(mod) == 1:
            return IRModule({"main": functions[0]})
        raise InvalidTypeError(f"expected a module of one PrimFunc, it has {len(mod)} functions")
    raise InvalidTypeError(f"expected a PrimFunc or an IRModule, got {type(mod).__name__}")


def form_of(mod: IRModule) -> str:
    """The key of a module's function; equal for equal computations."""
    func = mod["main"]
    for name in IGNORED:
        func = func.without_attr(name)
    return structural_key(func)


@dataclass(frozen=True, eq=False)
class Workload:
    """A module of one PrimFunc."""

    mod: IRModule

    @property
    def form(self) -> str:
        """The key of its form."""
        return form_of(self.mod)

    def as_json(self) -> list[str]:
        """[hash, the module's text in base64]."""
        text = self.mod.script(show_meta=True)
        return [str(int(self.form[:15], 16)), base64.b64encode(text.encode()).decode()]

    @staticmethod
    def from_json(obj: Json) -> Workload:
        """Read what `as_json` gave. Raises RecordError for anything else."""
        try:
            module = from_source(base64.b64decode(obj[1]).decode())
        except (TypeError, ValueError, IndexError) as error:
            raise RecordError(f"no workload: {error}") from error
        return Workload(module_of(module))
