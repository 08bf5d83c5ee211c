"""How an own kernel is launched: its grid, its threads and its shared memory as functions of knobs and arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.errors import UsageError
from autosched.own.gpu.values import host_value
from autosched.runtime.cuda.kernel import MOST_BLOCKS, MOST_SHARED, MOST_THREADS, Extents

THREADS = "threads"  # the knob where no `threads=` is given
THREAD_CANDIDATES = (32, 64, 128, 256, 512, 1024)

Rule = Callable[..., object] | int | Sequence[int] | None


@dataclass(frozen=True)
class LaunchRule:
    """grid, threads and shared of a call: numbers, tuples of up to three, or functions that give them.

    A function's parameters are named for knobs and arguments: `lambda n, block: -(-n // block)`. threads None: the knob
    `threads`. shared: bytes of dynamic shared memory; None: none.
    """

    grid: Rule
    threads: Rule = None
    shared: Rule = None

    @property
    def functions(self) -> dict[str, Callable[..., object]]:
        """The parts that are functions."""
        parts = {"grid": self.grid, "threads": self.threads, "shared": self.shared}
        return {name: part for name, part in parts.items() if callable(part)}

    def names(self, part: str = "") -> tuple[str, ...]:
        """The knobs and arguments that the functions read, or one of them does."""
        if part == "threads" and self.threads is None:
            return (THREADS,)
        read = [f for name, f in self.functions.items() if part in ("", name)]
        found = [name for function in read for name in inspect.signature(function).parameters]
        if not part and self.threads is None:
            found.append(THREADS)
        return tuple(dict.fromkeys(found))

    def check(self, known: Sequence[str], where: str) -> None:
        """Raises UsageError for a function of what is no knob and no argument, or no grid."""
        if self.grid is None:
            raise UsageError("a CUDA kernel needs its grid", where=where, hint="grid=lambda n, block: -(-n // block)")
        for part, function in self.functions.items():
            for name, parameter in inspect.signature(function).parameters.items():
                if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name not in known:
                    raise UsageError(
                        f"{part}= reads '{name}', which is no knob and no argument", where=where, hint=", ".join(known)
                    )

    def block_of(self, values: Mapping[str, object]) -> Extents:
        """Threads of a block in x, y, z. Raises UsageError for what is no size."""
        given = values[THREADS] if self.threads is None else self._value("threads", self.threads, values)
        block = _extents("threads", given)
        if block[0] * block[1] * block[2] > MOST_THREADS:
            raise UsageError(f"threads= gives {given}, and a block has {MOST_THREADS} threads at most")
        return block

    def of(self, values: Mapping[str, object]) -> tuple[Extents, Extents, int]:
        """(grid, block, bytes of dynamic shared memory) for knobs and arguments by name.

        Raises UsageError for what is no size, or more than any device launches.
        """
        grid = _extents("grid", self._value("grid", self.grid, values))
        for extent, most, axis in zip(grid, MOST_BLOCKS, "xyz", strict=True):
            if extent > most:
                raise UsageError(f"grid= gives {extent} blocks in {axis}, {most} is the most")
        shared = 0 if self.shared is None else int(self._value("shared", self.shared, values))
        if not 0 <= shared < MOST_SHARED:
            raise UsageError(f"shared= gives {shared} bytes")
        return grid, self.block_of(values), shared

    def _value(self, part: str, rule: Rule, values: Mapping[str, object]) -> Any:
        if not callable(rule):
            return rule
        given = [host_value(values[name]) for name in inspect.signature(rule).parameters]
        try:
            return rule(*given)
        except Exception as error:  # the user's function may raise anything
            raise UsageError(f"{part}= raises {type(error).__name__}: {error}") from error


def _extents(part: str, value: object) -> Extents:
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    whole = all(hasattr(p, "__index__") and not isinstance(p, bool) for p in parts)
    if not 1 <= len(parts) <= 3 or not whole or min(map(int, parts)) < 1:
        raise UsageError(f"{part}= gives {value!r}", hint="give up to three whole numbers of at least 1")
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z
