"""Makes knobs constants: the text of a function with the values of its knobs written in, and that function."""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.errors import CodegenError

_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


def read_source(func: Callable[..., object]) -> str | None:
    """The text of a function's definition from its first column on; None where there is none to be had.

    None too where its file has changed since it was imported: the text there is of another function.
    """
    try:
        text = textwrap.dedent(inspect.getsource(func))
        definition(text)
        code = func.__code__
        whole = "".join(inspect.findsource(code)[0])
        place = (code.co_name, code.co_firstlineno)
        return text if code_form(code) in _codes(whole, code.co_flags & _FUTURE).get(place, ()) else None
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=8)
def _codes(text: str, flags: int) -> Mapping[tuple[str, int], list[str]]:
    """The functions of a file by name and line, as `code_form` has them. Imports around a function are a part of it."""
    found: dict[tuple[str, int], list[str]] = {}

    def visit(code: types.CodeType) -> None:
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code_form(code))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                visit(constant)

    visit(compile(text, "<file>", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True))
    return found


def code_form(code: types.CodeType) -> str:
    """What code does; how far the lines of texts in it are indented does not count."""
    constants = [
        code_form(c) if isinstance(c, types.CodeType) else repr(c.split() if isinstance(c, str) else c)
        for c in code.co_consts
    ]
    return f"{code.co_varnames} {code.co_names} {code.co_code.hex()} {constants}"


def definition(text: str) -> ast.FunctionDef:
    """The one function that a text defines. Raises ValueError for anything else, a lambda for instance."""
    body = ast.parse(text).body
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise ValueError("not the text of one function")
    return body[0]


def specialise_text(text: str, knobs: Mapping[str, object], note: str = "") -> str:
    """The function with its knobs as constants, without decorators and annotations.

    A knob that the body only reads is replaced where it is read; one that it also sets is set at the beginning.
    note  becomes a comment in front
    """
    node = definition(text)
    changed = _Constants({name: value for name, value in knobs.items() if name not in _set_names(node)})
    lines = [
        ast.unparse(ast.Assign([ast.Name(n)], _literal(v), lineno=1))
        for n, v in knobs.items()
        if n not in changed.values
    ]
    head = f"def {node.name}({ast.unparse(_without(node.args, knobs))}):"
    body = _edited(text, node, changed)
    if body is None:  # positions that cannot be trusted: the tree says it all, comments apart
        whole = [ast.unparse(changed.visit(statement)) for statement in node.body]
        body = textwrap.indent("\n".join(whole), "    ")
        indent = "    "
    else:
        indent = body[: len(body) - len(body.lstrip())]
    start = "".join(f"{indent}{line}\n" for line in lines)
    return (f"# {note}\n" if note else "") + f"{head}\n{start}{body.rstrip()}\n"


def specialise(
    func: Callable[..., object], text: str | None, knobs: Mapping[str, object], arguments: Sequence[str]
) -> Any:
    """A Python function of the arguments alone, with the globals, closure and defaults of `func`.

    text       what `specialise_text` made of its source; None: there is no source, and the function is called through
    arguments  their names, in order
    Raises     CodegenError if the text does not compile.
    """
    if text is None:
        return _calling(func, knobs, arguments)
    free = func.__code__.co_freevars
    inner = textwrap.indent(text, "    ")
    whole = f"def _around({', '.join(free)}):\n{inner}\n    return {func.__name__}\n" if free else text
    name = f"<own {func.__module__}.{func.__qualname__} {' '.join(f'{n}={v}' for n, v in knobs.items())}>"
    linecache.cache[name] = (len(whole), None, whole.splitlines(keepends=True), name)
    try:
        code = _code_of(compile(whole, name, "exec"), func.__name__)
    except SyntaxError as error:
        raise CodegenError(f"the specialised text of {func.__qualname__} does not compile: {error}") from error
    cells = dict(zip(free, func.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, func.__globals__, func.__name__, None, closure)
    made.__qualname__, made.__module__ = func.__qualname__, func.__module__
    return made


def _calling(func: Callable[..., object], knobs: Mapping[str, object], arguments: Sequence[str]) -> object:
    """A function that calls a compiled `func` with the knobs; LLVM sees their values where it inlines the call."""
    import numba

    names = ", ".join(f"*{n}" if n == "" else n for n in arguments)
    given = "".join(f", {n}={ast.unparse(_literal(v))}" for n, v in knobs.items())
    scope: dict[str, object] = {
        "_callee": numba.njit(func),
        "__name__": func.__module__,
    }  # the name: stored code asks it
    name = "function" if func.__name__ == "<lambda>" else func.__name__
    exec(f"def {name}({names}):\n    return _callee({names}{given})\n", scope)
    return scope[name]


def _code_of(code: types.CodeType, name: str) -> types.CodeType:
    """The code of the function `name` inside compiled text, one or two levels deep."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    for candidate in inner:
        if candidate.co_name == name:
            return candidate
    return _code_of(inner[0], name)


def _literal(value: object) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body


def _without(arguments: ast.arguments, knobs: Mapping[str, object]) -> ast.arguments:
    """A list of parameters without knobs, defaults and annotations: defaults are given by the caller."""

    def kept(params: Sequence[ast.arg]) -> list[ast.arg]:
        return [ast.arg(p.arg) for p in params if p.arg not in knobs]

    rest = ast.arg(arguments.vararg.arg) if arguments.vararg else None
    only = kept(arguments.posonlyargs)
    return ast.arguments(only, kept(arguments.args), rest, [], [], None, [])


def _set_names(node: ast.FunctionDef) -> set[str]:
    """Names that the body sets in any way: by assignment, as a loop's variable, as a parameter of an inner function."""
    found = set()
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                found.add(inner.id)
            elif isinstance(inner, ast.arg):
                found.add(inner.arg)
    return found


class _Constants(ast.NodeTransformer):
    """Replaces names by constants."""

    def __init__(self, values: Mapping[str, object]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _literal(self.values[node.id]) if node.id in self.values else node


def _edited(text: str, node: ast.FunctionDef, changed: _Constants) -> str | None:
    """The lines of the body as they were written, comments included, with the constants in place; None if they cannot.

    The edited text has to have the tree that the transformer makes, or it is not taken.
    """
    lines = text.encode().split(b"\n")
    first = node.body[0].lineno
    if first <= node.lineno or any(p.lineno >= first for p in ast.walk(node.args) if isinstance(p, ast.arg)):
        return None
    places = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in changed.values]
    for place in sorted(places, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        line, start, end = lines[place.lineno - 1], place.col_offset, place.end_col_offset or 0
        if line[start:end].decode() != place.id:
            return None
        constant = ast.unparse(_literal(changed.values[place.id])).encode()
        lines[place.lineno - 1] = line[:start] + constant + line[end:]
    body = b"\n".join(lines[first - 1 : node.end_lineno]).decode()
    try:
        again = ast.parse("def f():\n" + body).body[0]
        wanted = ast.Module([_Constants(changed.values).visit(s) for s in definition(text).body], [])
    except SyntaxError:
        return None
    assert isinstance(again, ast.FunctionDef), "a definition was written"
    same = ast.dump(ast.Module(again.body, [])) == ast.dump(wanted)
    return body if same else None
