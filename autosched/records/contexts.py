"""Dispatch contexts: which configurations a build uses inside a `with` block.

They exist for users (TVM's names); `driver` alone reads `DispatchContext.current` and hands it on as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from autosched.errors import InvalidTypeError
from autosched.records.choose import choose
from autosched.records.found import Found, RecordReader, Trust, Validator, miss
from autosched.records.record import Record
from autosched.space import Config
from autosched.task import Task

if TYPE_CHECKING:
    from typing import Self

    from autosched.records.layers import Source

blocks: ContextVar[tuple[DispatchContext, ...]] = ContextVar("autosched_dispatch", default=())  # innermost last


class _CurrentContext(type):
    """Makes `DispatchContext.current` an attribute of the class that follows the innermost `with` block."""

    @property
    def current(cls) -> DispatchContext:
        """The innermost context, the `FallbackContext` outside of all blocks."""
        stack = blocks.get()
        return stack[-1] if stack else _ROOT

    @property
    def root(cls) -> DispatchContext:
        """What is current outside of all blocks."""
        return _ROOT


class DispatchContext(metaclass=_CurrentContext):
    """A reader that is asked first inside its `with` block; what it does not know goes to the enclosing block's."""

    def __enter__(self) -> Self:
        blocks.set((*blocks.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        blocks.set(blocks.get()[:-1])

    @property
    def is_last(self) -> bool:
        """Whether nothing else is asked for what this context does not know: a `FallbackContext` is around it."""
        stack = blocks.get()
        return self in stack and any(context.is_last for context in stack[: stack.index(self)])

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """What this context itself knows."""
        raise NotImplementedError

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """Its own answer, else that of the block around it; a miss keeps all reasons."""
        found = self.own(task, valid)
        if found:
            return found
        stack = blocks.get()
        below = stack.index(self) - 1 if self in stack else -1
        outer = stack[below].best(task, valid) if below >= 0 else miss("", "no record")
        if outer or not found.reason or found.reason == "no record":
            return outer
        return miss(outer.origin, "; ".join(r for r in (found.reason, outer.reason) if r != "no record"))


class ApplyHistoryBest(DispatchContext):
    """Use the winners of databases, JSON-lines logs or readers; in a list, the first one that knows a task answers.

    records  path or URL of a database, path of a log, a `RecordReader`, a `Record`, or several of those
    Raises   RecordError at once for a source that is missing or cannot be used.
    """

    def __init__(self, records: Source | Record | Iterable[Source | Record] | None):
        self.readers: list[RecordReader] = []
        self._updates: dict[str, Config] = {}
        if records is not None:
            self.load(records)

    def load(self, records: Source | Record | Iterable[Source | Record]) -> None:
        """Add more sources, asked after those that are there."""
        from autosched.records.layers import open_reader

        given = records if isinstance(records, Iterable) and not isinstance(records, str) else [records]
        loose: list[Record] = []
        for source in given:
            if isinstance(source, Record):
                if not loose:
                    self.readers.append(RecordList(loose))
                loose.append(source)
            elif isinstance(source, str) or hasattr(source, "best") or hasattr(source, "__fspath__"):
                self.readers.append(open_reader(source))
            else:
                raise InvalidTypeError(f"records must be paths, readers or records, not {type(source).__name__}")

    def update(self, task: Task, config: Config) -> None:
        """Use `config` for the task from now on, whatever the logs say."""
        self._updates[task.key] = config

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """The updated configuration, else the first reader's that has one."""
        from autosched.records.layers import LayeredReader

        if (config := self._updates.get(task.key)) is not None:
            return _given(config, valid)
        return LayeredReader(self.readers).best(task, valid)


class RecordList:
    """Look-ups in records that are in memory."""

    def __init__(self, records: Sequence[Record]):
        self.records = records

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        return choose(self.records, task, f"{len(self.records)} given records", valid=valid)


class ApplyConfig(DispatchContext):
    """Use one configuration for every task, or one per workload key.

    config  a `Config`, or a mapping from workload keys to them
    """

    def __init__(self, config: Config | Mapping[str, Config]):
        self.config = config

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """The given configuration, if it fits the task."""
        config = self.config.get(task.key) if isinstance(self.config, Mapping) else self.config
        return miss("given", "no record") if config is None else _given(config, valid)


class FallbackContext(DispatchContext):
    """Use templates' defaults and look nothing up: inside its block, outer contexts are not asked."""

    @property
    def is_last(self) -> bool:
        """Always."""
        return True

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """Always a miss."""
        return miss("", "no record")

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """Always a miss."""
        return self.own(task, valid)


def _given(config: Config, valid: Validator | None) -> Found:
    objection = valid(config) if valid is not None else ""
    if objection:
        return miss("given", f"invalid configuration: {objection}")
    return Found(config, "given", Trust.PINNED, "given by the user, not measured")


_ROOT = FallbackContext()


def set_root(context: FallbackContext) -> None:
    """Let another FallbackContext, one that answers AutoTVM's queries too, be current outside of all blocks."""
    global _ROOT
    _ROOT = context


current_stack: Callable[[], tuple[DispatchContext, ...]] = blocks.get
