"""The text being read, and errors that show where in it."""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from autosched.errors import AutoschedError, ScriptError
from autosched.ir.node import Span

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """Script text; `file` and `first_line` say where it comes from, for messages."""

    text: str
    file: str = "<script>"
    first_line: int = 1
    places: dict[int, tuple[object, ast.AST]] = field(default_factory=dict, compare=False, repr=False)

    def note(self, made: T, node: ast.AST) -> T:
        """Remember where a node of the IR stands, for what is found out about it later; gives the node back."""
        self.places[id(made)] = (made, node)
        return made

    def place_of(self, made: object) -> ast.AST | None:
        """Where a node of the IR stands."""
        found = self.places.get(id(made))
        return found[1] if found is not None and found[0] is made else None

    @staticmethod
    def of(text: str, file: str = "<script>", first_line: int = 1) -> Source:
        """A source from text that may be indented as a whole."""
        first = next((line for line in text.splitlines() if line.strip()), "")
        return Source(textwrap.dedent(text) if first[:1].isspace() else text, file, first_line)

    def tree(self) -> ast.Module:
        """The syntax tree. Raises ScriptError where the text is not Python's grammar."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                return ast.parse(self.text)
        except SyntaxError as error:
            raise ScriptError(self._message(error.msg, error.lineno or 1, (error.offset or 1) - 1, 1)) from None
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nesting beyond what Python reads
            raise ScriptError(f"{self.file}: the text cannot be read: {error}") from None

    def starting_at(self, span: Span | None) -> ast.AST | None:
        """The widest piece of the text that starts at a place."""
        if span is None or span.file != self.file:
            return None
        place = (span.line - self.first_line + 1, span.column - 1)
        found = (n for n in ast.walk(self.tree()) if (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)) == place)
        return next(found, None)

    def function(self, name: str) -> ast.AST | None:
        """Where a function of that name is defined; the only one where there is one."""
        found = [n for n in self.tree().body if isinstance(n, ast.FunctionDef)]
        found += [n for c in self.tree().body for n in getattr(c, "body", ()) if isinstance(n, ast.FunctionDef)]
        return next((n for n in found if n.name == name or len(found) == 1), None)

    def error(self, node: ast.AST | None, message: str) -> ScriptError:
        """An error at a node of the tree."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", line) == line else None
        shown = self._line(line)
        start = len(shown.encode()[:column].decode(errors="ignore"))  # the tree counts bytes
        stop = len(shown.encode()[:end].decode(errors="ignore")) if end is not None else len(shown)
        return ScriptError(self._message(message, line, start, max(1, stop - start)))

    def span(self, node: ast.AST) -> Span:
        """The place of a node, for the nodes made from it."""
        return Span(self.file, getattr(node, "lineno", 1) + self.first_line - 1, getattr(node, "col_offset", 0) + 1)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors of the IR's constructors inside become errors at this node."""
        try:
            yield
        except ScriptError:
            raise
        except AutoschedError as error:
            raise self.error(node, str(error)) from error

    def _line(self, line: int) -> str:
        lines = self.text.splitlines()
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def _message(self, message: str, line: int, column: int, width: int) -> str:
        number = str(line + self.first_line - 1)
        gap = " " * len(number)
        return (
            f"{message}\n{gap}--> {self.file}:{number}:{column + 1}\n{gap} |\n{number} | {self._line(line)}\n"
            f"{gap} | {' ' * column}{'^' * width}"
        )
