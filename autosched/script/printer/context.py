"""The state of one printing: options, names, the lines so far, and what the header has to mention."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autosched.ir.global_info import VDevice
from autosched.ir.node import Node
from autosched.script.printer import marks
from autosched.script.printer.names import Names
from autosched.script.printer.options import Options


class Context:
    """One printing. `used` collects the dialects ("I", "R", "T") that the text mentions."""

    def __init__(self, options: Options):
        self.options = options
        reserved = (options.ir_prefix, options.tir_prefix, options.relax_prefix, options.module_alias)
        self.names = Names((*reserved, "range", "metadata", "float"))
        self.lines: list[str] = []
        self.depth = 0
        self.used: set[str] = set()
        self.metadata: dict[str, list[object]] = {}  # arrays that the text refers to, by kind
        self.declared: set[int] = set()  # symbols that have been written as `n = T.int64()`
        self.vdevices: Sequence[VDevice] = ()  # of the module
        self.functions: dict[str, str] = {}  # how the module's functions are printed, where a name is not legal
        self.module_name = ""  # of the class around the function; "" outside a module
        self._marked = {id(node) for node in options.obj_to_underline}

    def t(self, name: str) -> str:
        """A name of the T dialect, prefixed."""
        self.used.add("T")
        return f"{self.options.tir_prefix}.{name}"

    def r(self, name: str) -> str:
        """A name of the R dialect, prefixed."""
        self.used.add("R")
        return f"{self.options.relax_prefix}.{name}"

    def i(self, name: str) -> str:
        """A name of the I dialect, prefixed."""
        self.used.add("I")
        return f"{self.options.ir_prefix}.{name}"

    def is_marked(self, node: Node) -> bool:
        """Whether the node's text is to be underlined."""
        return id(node) in self._marked

    def marked(self, node: Node, text: str) -> str:
        """`text`, with marks where the node is to be underlined."""
        return marks.around(text) if self._marked and id(node) in self._marked else text

    def line(self, text: str, *nodes: Node) -> None:
        """Write a line; it is marked where one of `nodes` is to be underlined."""
        if any(self.is_marked(node) for node in nodes):
            text = marks.around(text)
        self.lines.append(" " * (self.options.indent_spaces * self.depth) + text if text else "")

    def metadata_item(self, kind: str, array: object) -> str:
        """`metadata["kind"][i]`, a reference to data that is printed apart; each array has one place."""
        arrays = self.metadata.setdefault(kind, [])
        index = next((i for i, known in enumerate(arrays) if known is array), len(arrays))
        if index == len(arrays):
            arrays.append(array)
        return f'metadata["{kind}"][{index}]'

    @contextmanager
    def with_int_dtype(self, dtype: str) -> Iterator[None]:
        """Inside, integer constants of this dtype are printed bare."""
        options = self.options
        self.options = dataclasses.replace(options, int_dtype=dtype)
        try:
            yield
        finally:
            self.options = options

    @contextmanager
    def indented(self, *, frame: bool = True) -> Iterator[None]:
        """Lines inside stand one level deeper; with `frame`, names defined inside end there."""
        self.depth += 1
        try:
            if frame:
                with self.names.frame():
                    yield
            else:
                yield
        finally:
            self.depth -= 1
