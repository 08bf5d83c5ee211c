"""TVM's instruments: objects that watch passes, given to `PassContext(instruments=[…])`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TypeVar

from autosched.ir.module import IRModule
from autosched.ir.transform import PassInfo

EVENTS = ("enter_pass_ctx", "exit_pass_ctx", "should_run", "run_before_pass", "run_after_pass")

T = TypeVar("T")


class PassInstrument:
    """Base of instruments; every method may be overridden."""

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether the pass runs."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the module that goes in."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with the module that comes out."""


def pass_instrument(pi_cls: T | None = None) -> T | Callable[[T], T]:
    """TVM's decorator of instrument classes: gives the class, whose objects have the methods that it defines."""
    return (lambda cls: cls) if pi_cls is None else pi_cls


@dataclass
class _Timed:
    name: str
    seconds: float = 0.0
    inner: list[_Timed] = field(default_factory=list)
    start: float = 0.0


class PassTimingInstrument(PassInstrument):
    """Times passes; `render` gives the tree of them, inside the context or after it."""

    def __init__(self) -> None:
        self._top = _Timed("")
        self._open = [self._top]

    def enter_pass_ctx(self) -> None:
        """Start anew."""
        self._top = _Timed("")
        self._open = [self._top]

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Start a pass's clock."""
        timed = _Timed(info.name, start=time.perf_counter())
        self._open[-1].inner.append(timed)
        self._open.append(timed)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Stop a pass's clock."""
        timed = self._open.pop()
        timed.seconds = time.perf_counter() - timed.start

    def render(self) -> str:
        """A line per pass: its time in µs, that time without the passes inside of it, and their shares."""
        total = sum(t.seconds for t in self._top.inner)
        lines: list[str] = []

        def show(timed: _Timed, depth: int, whole: float) -> None:
            own = timed.seconds - sum(t.seconds for t in timed.inner)
            share = 100 * timed.seconds / total if total else 0.0
            part = 100 * timed.seconds / whole if whole else 0.0
            lines.append(
                f"{'  ' * depth}{timed.name}: {timed.seconds * 1e6:.0f}us [{own * 1e6:.0f}us] "
                f"({share:.2f}%; {part:.2f}%)"
            )
            for t in timed.inner:
                show(t, depth + 1, timed.seconds)

        for t in self._top.inner:
            show(t, 0, total)
        return "\n".join([*lines, ""])


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module that goes in."""
        print(f"Before Running Pass: {info}\n{mod.script()}")


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module that comes out."""
        print(f"After Running Pass: {info}\n{mod.script()}")


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes that are named."""

    def __init__(self, print_before_pass_names: Sequence[str] = (), print_after_pass_names: Sequence[str] = ()):
        self._before, self._after = set(print_before_pass_names), set(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module that goes in."""
        if info.name in self._before:
            print(f"Print IR before: {info.name}\n{mod.script()}\n")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Print the module that comes out."""
        if info.name in self._after:
            print(f"Print IR after: {info.name}\n{mod.script()}\n")


class DumpIR(PassInstrument):
    """Writes the module after each pass to a folder, numbered."""

    def __init__(self, dump_dir: str | PathLike[str], refresh: bool = False):
        from pathlib import Path

        self._folder, self._count = Path(dump_dir), 0
        self._folder.mkdir(parents=True, exist_ok=True)
        if refresh:
            for path in self._folder.glob("[0-9][0-9][0-9]_*.py"):
                path.unlink()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Write the module that comes out."""
        name = f"{self._count:03d}_{info.name.replace('/', '_')}.py"
        (self._folder / name).write_text(mod.script(), encoding="utf-8")
        self._count += 1
