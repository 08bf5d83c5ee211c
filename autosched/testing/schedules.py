"""TVM's `tir.schedule.testing`: a schedule's trace does the same again, from JSON and from Python."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import tir
from autosched.errors import InvalidValueError
from autosched.ir import IRModule, assert_structural_equal
from autosched.script import tir as T
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule, Trace


def assert_structural_equal_ignore_global_symbol(
    func1: PrimFunc | IRModule, func2: PrimFunc | IRModule, *args: bool, **kwargs: bool
) -> None:
    """Equality by form of functions, whatever they are called. Raises ValueError naming the first difference."""
    assert_structural_equal(
        func1.with_attr("global_symbol", "main"), func2.with_attr("global_symbol", "main"), *args, **kwargs
    )


def verify_trace_roundtrip(
    sch: Schedule, mod: PrimFunc | IRModule, *, debug_mask: str | int = "all",
    text_format: str | Sequence[str] = ("python", "json"),
) -> Schedule:  # fmt: skip
    """Do a schedule's trace again on `mod`, from each of the forms, and compare module and trace; the last schedule.

    Raises ValueError where a module differs, and AssertionError where a trace does.
    """
    formats = [text_format] if isinstance(text_format, str) else list(text_format)
    lines = sch.trace.as_python()
    for form in formats:
        again = Schedule(mod, debug_mask=debug_mask)
        if form == "json":
            Trace.apply_json_to_schedule(sch.trace.as_json(), again)
        elif form == "python":
            exec("\n".join(lines), {"T": T, **{name: getattr(tir, name) for name in dir(tir)}}, {"sch": again})
        else:
            raise InvalidValueError(f"verify_trace_roundtrip: text_format {form!r}; use 'python' or 'json'")
        assert_structural_equal(again.mod, sch.mod)
        assert again.trace.as_python() == lines, "the trace of the new schedule differs"
    return again
