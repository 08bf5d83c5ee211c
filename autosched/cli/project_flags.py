"""Flags that stand in the project's `autosched.toml`: a table for each command, a key for each flag.

`[tune] budget = "10m"` is `tune --budget 10m`, `[logs.list] since = "3d"` is `logs list --since 3d`.
What the command line says wins; a flag that the file sets is unset by `--no-FLAG`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from autosched.errors import UsageError
from autosched.project import find_project_file, read_project_file

if TYPE_CHECKING:
    from click.parser import _OptionParser

    from autosched.json_types import Json, JsonObject

# What stands in the file and is no flag
OTHER_KEYS: Mapping[tuple[str, ...], tuple[str, ...]] = {("records",): ("db",), ("tune",): ("models", "kernels")}


class ProjectCommand(click.Command):
    """A command whose flags have the values that the project's file gives them."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Read the command line on top of the project's file."""
        file = find_project_file()
        if file is None or extra.get("default_map") is not None:
            return super().make_context(info_name, args, parent, **extra)
        try:
            extra["default_map"] = read_flags(self, _section(self, parent), file)
        except UsageError:
            if not {"-h", "--help"} & set(args):  # help is shown whatever stands in the file
                raise
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.BadParameter as error:
            name = error.param.name if error.param is not None else None
            if name and error.ctx and error.ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                text = f"{error.message} (it stands in {file})"
                raise click.BadParameter(text, error.ctx, error.param, error.param_hint) from None
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Errors say what an option takes, and which arguments the command has."""
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            options = [p for p in self.params if isinstance(p, click.Option) and error.option_name in p.opts]
            values = [p.metavar or f"a {p.type.name}" for p in options if not p.is_flag]
            message = f"Option '{error.option_name}' takes {values[0]}." if values else error.message
            raise click.BadOptionUsage(error.option_name, message, ctx) from None
        except click.UsageError as error:
            if type(error) is click.UsageError and error.message.startswith("Got unexpected extra argument"):
                taken = " ".join(p.metavar or str(p.name).upper() for p in self.params if isinstance(p, click.Argument))
                message = f"{error.message}; {self.name} takes {taken or 'options alone'}"
                raise click.UsageError(message, ctx) from None
            raise

    def make_parser(self, ctx: click.Context) -> _OptionParser:
        """Accept `--no-FLAG` too, so that the command line can unset what the file sets; help does not name it."""
        parser = super().make_parser(ctx)
        taken = {text for param in self.params for text in param.opts}
        for param in self.params:
            if isinstance(param, click.Option) and param.is_flag and (no := f"--no-{_flag(param)}") not in taken:
                parser.add_option(obj=param, opts=[no], dest=param.name, action="store_const", const=False)
        return parser


def _section(command: click.Command, parent: click.Context | None) -> tuple[str, ...]:
    """The names of the tables that a command's flags stand in: ("tune",), ("logs", "list")."""
    names = [str(command.name)]
    while parent is not None and parent.parent is not None:  # the last one is `autosched` itself
        names.append(str(parent.command.name))
        parent = parent.parent
    return tuple(reversed(names))


def read_flags(command: click.Command, section: tuple[str, ...], file: Path) -> JsonObject:
    """The values that a project's file gives to a command's flags, by the names of its parameters.

    Paths are relative to the file.
    Raises  UsageError that names file and key for a table or key that does not exist, or a value of another kind.
    """
    document = read_project_file(file)
    _check_tables(document, file)
    table = document
    for name in section:
        table = table.get(name, {})
    options = {_flag(param): param for param in command.params if isinstance(param, click.Option)}
    others = OTHER_KEYS.get(section, ())
    _refuse_unknown(table, (*options, *others), f"[{'.'.join(section)}]", file)
    found = {}
    for key, value in table.items():
        if key not in others:
            option = options[key]
            assert option.name is not None
            found[option.name] = _value(option, value, file, f"{'.'.join(section)}.{key}")
    return found


def _check_tables(document: Mapping[str, Json], file: Path) -> None:
    """Refuse tables that belong to no command."""
    from autosched.cli.app import COMMANDS, commands_of

    _refuse_unknown(document, (*COMMANDS, "records"), "", file)
    _check_are_tables(document, "", file)
    for name, table in document.items():
        if name == "records":
            _refuse_unknown(table, OTHER_KEYS["records",], "[records]", file)
        elif inner := commands_of(name):
            _refuse_unknown(table, inner, f"[{name}]", file)
            _check_are_tables(table, f"{name}.", file)


def _check_are_tables(document: Mapping[str, object], before: str, file: Path) -> None:
    for name, table in document.items():
        if not isinstance(table, dict):
            raise UsageError(f"'{before}{name}' is a table", where=str(file), hint=f"write [{before}{name}]")


def _refuse_unknown(table: Mapping[str, object], known: Iterable[str], title: str, file: Path) -> None:
    known = tuple(known)
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
            what = f"{title} has no key '{key}'" if title else f"no table [{key}]"
            raise UsageError(what, where=str(file), hint=hint)


def _flag(option: click.Option) -> str:
    """The long name of an option, without its dashes."""
    return max(option.opts, key=len).lstrip("-")


def _value(option: click.Option, value: object, file: Path, key: str) -> object:
    """A value of the file in the form in which the command line would give it. Raises UsageError."""

    def refuse(wanted: str) -> UsageError:
        return UsageError(f"{key} is {wanted}, not {value!r:.60}", where=str(file))

    if option.is_flag:
        if not isinstance(value, bool):
            raise refuse("true or false")
        return value
    if option.count:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse("a whole number")
        return value

    def one(item: object) -> str:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise refuse("text or a number")
        return _from_file(option, str(item), file)

    def group(item: object) -> object:
        if option.nargs == 1:
            return one(item)
        if not isinstance(item, list) or len(item) != option.nargs:
            raise refuse(f"a list of {option.nargs} texts" + (" each" if option.multiple else ""))
        return tuple(one(part) for part in item)

    if not option.multiple:
        return group(value)
    many = value if isinstance(value, list) else [value]
    return tuple(group(item) for item in many)


def _from_file(option: click.Option, text: str, file: Path) -> str:
    """A path as seen from the file's folder; anything else as it is."""
    is_path = isinstance(option.type, click.Path) or (option.name == "db" and "://" not in text)
    return str(file.parent / Path(text).expanduser()) if is_path else text
