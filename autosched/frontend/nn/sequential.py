"""Layers one after the other."""

from __future__ import annotations

from autosched.frontend.nn.core import Module, ModuleList


class Sequential(ModuleList):
    """The result of each is the argument of the next."""

    def __init__(self, *modules: Module):
        super().__init__(modules)
