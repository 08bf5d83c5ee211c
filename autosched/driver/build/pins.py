"""Configurations that the caller pins: kernels by name or by a part of their workload, knobs as reports write them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.driver.task_space import default_of, space_of
from autosched.errors import SpaceError, UsageError
from autosched.records import DispatchContext, Found, RecordReader, Trust
from autosched.records.found import Validator
from autosched.space import Config
from autosched.space.union_space import UnionSpace
from autosched.task import Task

BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class Pinned(DispatchContext):
    """Another reader's answers, but for the kernels whose configuration the caller has named.

    reader  asked for all others
    pins    (a kernel's name or a part of its workload's text, configuration): the first one that fits a kernel counts
    used    those of them that a kernel was found for
    """

    def __init__(self, reader: RecordReader, pins: Sequence[tuple[str, str]]):
        self.reader, self.pins = reader, tuple(pins)
        self.readers = (reader,)
        self.used: set[str] = set()

    @property
    def is_last(self) -> bool:
        """Always: what the databases say comes from `reader`."""
        return True

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """The pinned configuration, else the reader's answer. Raises UsageError for one that cannot be used."""
        for part, text in self.pins:
            if part == task.name or part in str(task.workload) or part in task.key:
                self.used.add(part)
                config = parse_config(text, task)
                if objection := valid(config) if valid is not None else "":
                    raise UsageError(f"what is pinned for {task.workload} cannot be used: {objection}")
                return Found(config, "pinned", Trust.PINNED, "named by the user, not measured")
        return self.reader.best(task, valid)

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        return self.own(task, valid)

    def check_used(self) -> None:
        """Refuse a pin that no kernel was found for. Raises UsageError."""
        if unused := [part for part, _ in self.pins if part not in self.used]:
            raise UsageError(
                f"no kernel's workload holds '{unused[0]}', and none has that name", hint="see `autosched tune --list`"
            )


def parse_config(text: str, task: Task) -> Config:
    """Read `[template:] knob=value …` for a task; knobs that are not named have the template's default.

    Raises  UsageError for a template or knob that the task has not, or a value of another kind.
    """
    head, colon, rest = text.partition(":")
    config = _start(head.strip(), task) if colon else default_of(task)
    changes = {}
    for word in (rest if colon else text).split():
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UsageError(f"cannot read '{word}' of a pinned configuration", hint="write knob=value")
        if name not in config.knobs:
            raise UsageError(
                f"no knob '{name}' in template '{config.template}'", hint=f"there are {', '.join(config.knobs)}"
            )
        changes[name] = _read(name, config[name], value)
    return config.with_knobs(**changes)


def _start(template: str, task: Task) -> Config:
    """The default of one of the task's templates."""
    space, default = space_of(task), default_of(task)
    if template == default.template:
        return default
    members = space.members if isinstance(space, UnionSpace) else (space,)
    found = {member.name: member for member in members}
    if template not in found:
        raise UsageError(f"no template '{template}' for {task.workload}", hint=f"there are {', '.join(found)}")
    try:
        return found[template].default
    except SpaceError as error:
        raise UsageError(f"template '{template}' for {task.workload}: {error.line}") from None


def _read(name: str, like: object, text: str) -> int | tuple[int, ...] | str:
    """A value of the same kind as another one of its knob."""
    try:
        match like:
            case bool():
                return BOOLEANS[text.lower()]
            case int():
                return int(text)
            case tuple():
                return tuple(int(part) for part in text.split("x"))
        return text
    except (ValueError, KeyError):
        raise UsageError(f"{name}='{text}' is another kind of value than {like}") from None
