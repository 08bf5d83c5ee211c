"""Relay's own text form, read into functions: `def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from autosched.errors import AutoschedError, ScriptError
from autosched.ir import GlobalVar, IRModule
from autosched.relax import Expr, ObjectStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, Var
from autosched.relay import expr as E
from autosched.relay import op as operators
from autosched.relay.types import If

TOKEN = re.compile(
    r"""\s*(?:(?P<comment>/\*.*?\*/|//[^\n]*|\#\[[^\]]*\])
    |(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?:f16|f32|f64|i8|i16|i32|i64|u8|f|h)?)
    |(?P<text>"[^"]*")|(?P<name>[%@]?[A-Za-z_][\w.]*|%\d+(?:\.\d+)?)|(?P<arrow>->)|(?P<sign>==|!=|<=|>=|[-+*/<>=(){}\[\],;:.?]))""",
    re.VERBOSE | re.DOTALL,
)
SUFFIX = {
    "f": "float32", "f32": "float32", "f64": "float64", "f16": "float16", "h": "float16", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
}  # fmt: skip
INFIX: tuple[dict[str, str], ...] = (
    {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"},
    {"+": "add", "-": "subtract"}, {"*": "multiply", "/": "divide"},
)  # fmt: skip

T = TypeVar("T")
Parsed: TypeAlias = Any  # an expression, or a TupleWrapper of one


class _Reader:
    """Reads tokens one by one."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.tokens = list(self._split(text))
        self.scope: dict[str, Parsed] = {}
        self.functions: dict[str, GlobalVar] = {}

    def _split(self, text: str) -> Iterator[tuple[str, str, int]]:
        position = 0
        while position < len(text):
            found = TOKEN.match(text, position)
            if found is None:
                if not text[position:].strip():
                    return
                self.position = position + len(text[position:]) - len(text[position:].lstrip())
                raise self.error(f"unexpected character '{text[self.position]}'", self.position)
            position = found.end()
            kind = found.lastgroup or ""
            if kind != "comment":
                yield kind, found.group(kind), found.start(kind)

    def error(self, message: str, position: int | None = None) -> ScriptError:
        """The error that shows the place with a caret."""
        if position is None:
            position = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        line = self.text.count("\n", 0, position) + 1
        column = position - (self.text.rfind("\n", 0, position) + 1)
        shown = self.text.splitlines()[line - 1] if self.text.splitlines() else ""
        width = len(str(line))
        pad = " " * width
        return ScriptError(
            f"{message}\n --> <relay>:{line}:{column + 1}\n{pad} |\n{line} | {shown}\n{pad} | {' ' * column}^"
        )

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        found = self.peek()
        if not found or (wanted and found != wanted):
            raise self.error(f"expected '{wanted or 'more text'}', found '{found or 'the end'}'")
        self.at += 1
        return found

    def accept(self, wanted: str) -> bool:
        if self.peek() == wanted:
            self.at += 1
            return True
        return False

    def list_of(self, read: Callable[[], T], end: str) -> list[T]:
        items = []
        while not self.accept(end):
            items.append(read())
            if not self.accept(","):
                self.take(end)
                break
        return items

    # --- modules and functions

    def module(self) -> IRModule:
        module = IRModule()
        if self.peek() != "def":
            if self.peek() in ("fn", "free_var"):
                while self.accept("free_var"):
                    var = self.param()
                    self.take(";")
                    self.scope[f"%{var.name}"] = var
                return IRModule({"main": self.function() if self.accept("fn") else self.free_expression()})
            return IRModule({"main": self.free_expression()})
        for i, token in enumerate(self.tokens[:-1]):
            if token[1] == "def":
                name = self.tokens[i + 1][1].removeprefix("@")
                self.functions[name] = GlobalVar(name)
        while self.accept("def"):
            name = self.take().removeprefix("@")
            module[self.functions[name]] = self.function(name)
        if self.peek():
            raise self.error(f"expected 'def', found '{self.peek()}'")
        return module

    def free_expression(self) -> E.GraphFunction:
        body = self.body("")
        return E.Function(E.free_vars(body), body)

    def function(self, name: str = "main") -> E.GraphFunction:
        outer, self.scope = self.scope, dict(self.scope)
        self.take("(")
        params = self.list_of(self.param, ")")
        for p in params:
            self.scope[f"%{p.name}"] = p
        result = self.type() if self.accept("->") else None
        self.take("{")
        body = self.body("}")
        self.scope = outer
        made = E.Function(params, body, attrs={"global_symbol": name})
        if result is not None and isinstance(made.ret_struct_info, ObjectStructInfo):
            return dataclasses.replace(made, ret_struct_info=result)  # what a call gives is known afterwards
        if result is not None and str(result) != str(made.ret_struct_info):
            raise self.error(f"function @{name} says {result}, its body gives {made.ret_struct_info}")
        return made

    def param(self) -> Var:
        name = self.take().removeprefix("%")
        return E.var(name, self.type() if self.accept(":") else None)

    def type(self) -> StructInfo:
        name = self.take()
        if name == "Tensor":
            self.take("[")
            self.take("(")
            dims = self.list_of(self.dim, ")")
            self.take(",")
            dtype = self.take()
            self.take("]")
            return TensorStructInfo(tuple(dims), dtype)
        if name == "(":
            return TupleStructInfo(tuple(self.list_of(self.type, ")")))
        return E.scalar_type(name)

    def dim(self) -> int:
        text = self.take()
        if not text.isdigit():
            raise self.error(f"a dimension is a number here, not '{text}'")
        return int(text)

    # --- expressions

    def body(self, end: str) -> Parsed:
        """Bindings, then a value."""
        while True:
            if self.accept("let"):
                var = self.take()
                if self.accept(":"):
                    self.type()
                self.take("=")
                self.scope[var] = self.expression()
                self.take(";")
            elif self.peek().startswith("%") and self.peek(1) == "=":
                var = self.take()
                self.take("=")
                self.scope[var] = self.expression()
                self.take(";")
            else:
                value = self.expression()
                if end:
                    self.take(end)
                return value

    def expression(self, level: int = 0) -> Parsed:
        if level == len(INFIX):
            return self.item()
        left = self.expression(level + 1)
        while self.peek() in INFIX[level] and self.kind() == "sign":
            name = INFIX[level][self.take()]
            left = getattr(operators, name)(left, self.expression(level + 1))
        return left

    def item(self) -> Parsed:
        value = self.primary()
        while self.peek() == "." and self.peek(1).isdigit():
            self.take(".")
            value = value[int(self.take())] if isinstance(value, E.TupleWrapper) else E.TupleGetItem(
                E.unwrap(value), int(self.tokens[self.at - 1][1])
            )  # fmt: skip
        return value

    def primary(self) -> Parsed:
        kind, text = self.kind(), self.peek()
        if text == "(":
            self.take()
            items = self.list_of(self.expression, ")")
            closed_after_comma = self.tokens[self.at - 2][1] == ","
            return items[0] if len(items) == 1 and not closed_after_comma else E.unwrap(tuple(items))
        if text == "[":
            self.take()
            return E.unwrap(tuple(self.list_of(self.expression, "]")))
        if text == "if":
            return self.branch()
        if kind == "number":
            return self.number()
        if kind != "name":
            raise self.error(f"expected an expression, found '{text or 'the end'}'")
        if text.startswith("%"):
            return self.variable()
        return self.call()

    def variable(self) -> Parsed:
        text = self.take()
        whole, _, index = text.partition(".")
        if text not in self.scope and whole in self.scope and index.isdigit():
            value = self.scope[whole]
            return value[int(index)] if isinstance(value, E.TupleWrapper) else E.TupleGetItem(value, int(index))
        if text not in self.scope:
            self.at -= 1
            raise self.error(f"undefined variable {text}")
        return self.scope[text]

    def branch(self) -> Expr:
        self.take("if")
        self.take("(")
        condition = self.expression()
        self.take(")")
        self.take("{")
        yes = self.body("}")
        self.take("else")
        self.take("{")
        return If(condition, yes, self.body("}"))

    def number(self) -> Expr:
        text = self.take()
        found = re.fullmatch(r"(-?[\d.]+(?:[eE][+-]?\d+)?)([fiuh]\d*)?", text)
        assert found is not None, "the token has this form"
        dtype = SUFFIX.get(found[2] or "", "float32" if "." in found[1] or "e" in found[1].lower() else "int32")
        return E.const(float(found[1]) if dtype.startswith("float") else int(found[1]), dtype)

    def call(self) -> Parsed:
        start, name = self.at, self.take()
        if name in ("True", "False"):
            return E.const(name == "True", "bool")
        if name == "meta":
            raise self.error("constants of meta data are not available", self.tokens[start][2])
        self.take("(")
        args, attrs = [], {}
        while not self.accept(")"):
            if self.kind() == "name" and self.peek(1) == "=":
                key = self.take()
                self.take("=")
                attrs[key] = self.attribute()
            else:
                args.append(self.expression())
            if not self.accept(","):
                self.take(")")
                break
        if name.startswith("@"):
            if name[1:] not in self.functions:
                raise self.error(f"undefined function {name}", self.tokens[start][2])
            return E.call(self.functions[name[1:]], args)
        function: object = operators
        for part in name.split("."):
            function = getattr(function, part, None)
        if not callable(function):
            raise self.error(f"unknown operator {name}", self.tokens[start][2])
        try:
            return function(*args, **attrs)
        except (AutoschedError, TypeError, ValueError) as error:
            raise self.error(f"{name}: {error}", self.tokens[start][2]) from error

    def attribute(self) -> object:
        text = self.take()
        if text == "[" or text == "(":
            return self.list_of(self.attribute, "]" if text == "[" else ")")
        if text.startswith('"'):
            return text[1:-1]
        words = {"True": True, "False": False, "None": None}
        if text in words:
            return words[text]
        found = re.fullmatch(r"(-?[\d.]+(?:[eE][+-]?\d+)?)([fiuh]\d*)?", text)
        if found is None:
            return text
        return float(found[1]) if "." in found[1] or "e" in found[1].lower() or found[2] == "f" else int(found[1])


def parse(text: str, source_name: str = "from_string", *_: object, **__: object) -> IRModule:
    """A module from Relay's text. Raises ScriptError with line and caret."""
    return _Reader(text).module()


fromtext = parse


def parse_expr(text: str) -> E.GraphFunction:
    """A function, or a nested expression of variables that the text defines, from Relay's text."""
    main: E.GraphFunction = parse(text)["main"]
    return main
