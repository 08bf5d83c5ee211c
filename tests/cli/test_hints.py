"""Every command that a message, a help text or a document names is there, with the options that it is shown with."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from autosched.cli.app import COMMANDS, app

ROOT = Path(__file__).parents[2]


def texts() -> Iterator[tuple[str, str]]:
    """Every string in the package that is no docstring's prose, and every code block of the documents."""
    for path in sorted((ROOT / "autosched").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"autosched[\s\"'\\]+[a-z]", source):  # most have no command, and parsing all takes seconds
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(ROOT)), node.value
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield path.name, path.read_text(encoding="utf-8")


def commands() -> list[tuple[str, str]]:
    """(where, words after `autosched`) of everything that is written as a command line."""
    found = []
    for where, text in texts():
        quoted = re.findall(r"`(autosched [a-z][^`]*)`", text)
        lines = [line.strip() for line in text.splitlines()]
        for line in (*quoted, *(line.removeprefix("$ ") for line in lines)):
            if re.match(r"autosched [a-z]+( |$)", line) and "…" not in line and "|" not in line:
                words = line.split("#")[0].split(">")[0].removeprefix("autosched ").strip()
                if words.split()[0] in COMMANDS or line in quoted:
                    found.append((where, words))
    return sorted(set(found))


FOUND = commands()


def find(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the rest of the words."""
    command: click.Command = app
    context = click.Context(app)
    while words and isinstance(command, click.Group):
        inner = command.get_command(context, words[0])
        assert inner is not None, f"there is no command '{words[0]}'"
        command, words = inner, words[1:]
    return command, words


def test_there_are_examples() -> None:
    assert len(FOUND) > 20


@pytest.mark.parametrize(("where", "words"), FOUND)
def test_a_command_that_is_named_exists(where: str, words: str) -> None:
    command, rest = find(shlex.split(words))
    known = {name for param in command.params for name in param.opts} | {"--help", "-h"}
    for word in rest:
        if re.match(r"--?[a-z]", word):
            word = re.sub(r"^-([a-z])\1+$", r"-\1", word)  # a flag given several times
            assert word.split("=")[0] in known, f"{where}: '{command.name}' has no option {word}"


def examples(command: click.Command) -> Iterator[str]:
    """The lines of a command's help that show how it is used, and those of its own commands."""
    for line in (command.epilog or "").splitlines():
        if line.strip().startswith("autosched "):
            yield line.strip().removeprefix("autosched ")
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from examples(inner)


@pytest.mark.parametrize("words", sorted(set(examples(app))))
def test_an_example_can_be_typed_as_it_stands(words: str) -> None:
    command, rest = find(shlex.split(words.split(">")[0]))
    assert not isinstance(command, click.Group)
    command.make_context(words, rest)  # reads every argument and value, and starts nothing
