"""Executors of one model for callers on several threads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autosched.errors import TVMError
from autosched.runtime.graph_executor import GraphExecutor
from autosched.runtime.locks import renew_after_fork

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc

E = TypeVar("E")


class ExecutorPool(Generic[E]):
    """Executors that are lent to one caller at a time; as many as callers came at once, at most `most`."""

    def __init__(self, most: int):
        self._most = most
        self._idle: list[E] = []  # the one that was used last is lent first: its memory is in the caches
        self._made = self._waiting = 0
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a forked child nobody waits; executors of threads that are not there stay lent."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting, self._made = 0, len(self._idle)

    def take(self, make: Callable[[], E]) -> E:
        """Lend an executor, a new one where none is idle; waits where all are lent. Raises what `make` raises."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._wait_or_make(make)

    def _wait_or_make(self, make: Callable[[], E]) -> E:
        with self._changed:
            self._waiting += 1
            try:
                while self._made >= self._most or self._idle:
                    if self._idle:
                        return self._idle.pop()
                    self._changed.wait()
                self._made += 1
            finally:
                self._waiting -= 1
        try:
            return make()
        except BaseException:
            with self._changed:
                self._made -= 1
                self._changed.notify()
            raise

    def give_back(self, executor: E) -> None:
        """Take a lent executor back."""
        self._idle.append(executor)
        if self._waiting:
            with self._changed:
                self._changed.notify()


class Seat:
    """An executor and its functions by name, while a thread holds it."""

    __slots__ = ("__weakref__", "executor", "functions")

    def __init__(self, executor: Any, names: tuple[str, ...]):
        self.executor = executor
        self.functions: Mapping[str, PackedFunc] = {name: executor[name] for name in names}


class ThreadExecutors:
    """The executors of a stateful module: one for each thread that sets inputs.

    The first such thread has the module's own. Another one gets one for itself when it first sets an input; inputs that
    it does not set are those of the module's own, in the same memory. A thread that sets none runs and reads the one
    executor for which inputs were set. When a thread ends, its executor serves the next one.
    """

    def __init__(self, own: GraphExecutor, names: tuple[str, ...]):
        self.own, self._names = Seat(own, names), names
        self._local = threading.local()
        self._held: weakref.WeakSet[_Hold] = weakref.WeakSet()
        self._owner: weakref.ref[_Hold] | None = None
        self._free: list[Seat] = []
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a forked child nobody holds the lock."""
        self._lock = threading.Lock()

    def to_set(self) -> Seat:
        """The executor of this thread, which is about to set something."""
        hold: _Hold | None = getattr(self._local, "hold", None)
        return self._open() if hold is None else hold.seat

    def to_use(self) -> Seat:
        """The executor of this thread, or of the only one that sets inputs.

        Raises TVMError where several do: which one is meant cannot be known.
        """
        hold: _Hold | None = getattr(self._local, "hold", None)
        if hold is not None:
            return hold.seat
        held = list(self._held)
        if len(held) > 1:
            raise TVMError(
                f"{len(held)} threads set inputs of this module, and this one, which wants to run or read, did not",
                hint="set inputs, run and read outputs in one thread, or call the executable itself",
            )
        return held[0].seat if held else self.own

    def _open(self) -> Seat:
        with self._lock:
            if self._owner is None or self._owner() is None:
                hold = _Hold(self.own, None)
                self._owner = weakref.ref(hold)
            else:
                hold = _Hold(self._free.pop() if self._free else self._sibling(), self._free)
            self._held.add(hold)
        self._local.hold = hold
        return hold.seat

    def _sibling(self) -> Seat:
        return Seat(self.own.executor.sibling(), self._names)


class _Hold:
    """A thread's claim on an executor; it ends with the thread."""

    __slots__ = ("__weakref__", "_free", "seat")

    def __init__(self, seat: Seat, free: list[Seat] | None):
        self.seat, self._free = seat, free
        if free is not None:
            seat.executor.forget_inputs()

    def __del__(self) -> None:
        if self._free is not None:
            self._free.append(self.seat)
