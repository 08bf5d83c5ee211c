"""Models changed in place: a mutator gives each part, or what stands in its stead."""

from __future__ import annotations

from typing import Any

from autosched.frontend.nn.core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
)  # fmt: skip


class Mutator:
    """Override `visit_module`, `visit_param` …; each takes a part's dotted name and the part, and gives a part.

    What it does not override goes on below the part.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        return self.visit(name, node)

    def visit_param(self, name: str, node: Parameter) -> Any:
        return self.visit(name, node)

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Visit all parts of a node; gives the node."""
        if isinstance(node, ModuleList | ParameterList):
            items = node.modules if isinstance(node, ModuleList) else node.params
            for i, part in enumerate(items):
                items[i] = self._part(name, str(i), part)  # type: ignore[call-overload]
            return node
        named = vars(node)
        if isinstance(node, ModuleDict | ParameterDict):
            named = node.modules if isinstance(node, ModuleDict) else node.params
        for key, part in list(named.items()):
            named[key] = self._part(name, key, part)
        return node

    def _part(self, owner: str, key: str, part: Any) -> Any:
        name = f"{owner}.{key}" if owner else key
        for kind, method in _METHODS.items():
            if isinstance(part, kind):
                return getattr(self, method)(name, part)
        return part


_METHODS = {
    ModuleList: "visit_modulelist", ModuleDict: "visit_moduledict", Module: "visit_module", Effect: "visit_effect",
    Parameter: "visit_param", ParameterList: "visit_parameterlist", ParameterDict: "visit_parameterdict",
}  # fmt: skip
