"""Reading the source of decorated Python functions and classes."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Mapping
from types import FrameType

from autosched.errors import ScriptError
from autosched.script.parser.module import ModuleOrFunction, check, read
from autosched.script.parser.source import Source


def read_object(
    what: type | Callable[..., object],
    names: Mapping[str, object],
    check_well_formed: bool = True,
    frame: FrameType | None = None,
) -> ModuleOrFunction:
    """The module or function that a Python class or function spells out.

    names    what its text may name, besides its own globals and closure
    Raises ScriptError where the text is no legal script, or cannot be had (typed into an interactive Python).
    """
    if inspect.isclass(what) and frame is not None and (found := _class_source(what.__name__, frame)) is not None:
        source = found
    else:
        try:
            lines, first = inspect.getsourcelines(what)
        except (OSError, TypeError) as error:
            raise ScriptError(
                f"the source of {what!r} cannot be read: {error}", hint="use from_source(text)"
            ) from error
        source = Source.of("".join(lines), inspect.getsourcefile(what) or "<script>", first)
    result = read(source, {**names, **_closure(what)})
    if check_well_formed:
        check(result, source)
    return result


def _class_source(name: str, frame: FrameType) -> Source | None:
    """The text of a class at the line that a frame is in: right also where several classes have one name."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name and node.end_lineno is not None:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first <= frame.f_lineno <= node.end_lineno:
                return Source.of("".join(lines[first - 1 : node.end_lineno]), frame.f_code.co_filename, first)
    return None


def _closure(what: object) -> dict[str, object]:
    if not inspect.isfunction(what):
        return {}
    cells = zip(what.__code__.co_freevars, what.__closure__ or (), strict=True)
    found = dict(what.__globals__)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def visible_names(frame: FrameType | None) -> dict[str, object]:
    """Globals and locals of a frame and of the functions around it, as far as they are still running."""
    found: dict[str, object] = {}
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back if frame.f_code.co_name != "<module>" else None
    for f in reversed(frames):
        if f.f_globals is frames[0].f_globals:
            found |= f.f_globals | f.f_locals
    return found


def in_class_body(frame: FrameType | None) -> bool:
    """Whether a frame is the body of a class, whose functions are read with it."""
    return frame is not None and "__qualname__" in frame.f_locals and "__module__" in frame.f_locals


def function_decorator(func: Callable[..., object] | None, check_well_formed: bool) -> ModuleOrFunction:
    """`@T.prim_func` and `@R.function`, with or without keywords, which the reader takes from the text itself."""
    caller = inspect.currentframe()
    caller = caller.f_back.f_back if caller is not None and caller.f_back is not None else None
    names = {} if in_class_body(caller) else visible_names(caller)

    def decorate(f: Callable[..., object]) -> ModuleOrFunction:
        return f if in_class_body(caller) else read_object(f, names, check_well_formed)

    return decorate if func is None else decorate(func)
