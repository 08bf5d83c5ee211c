"""Pages of the reference, made when the site is built: names of the public packages with signature and docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from html import escape
from typing import Any

from mkdocs.structure.files import File, Files

PACKAGES = {
    "autosched": "autosched",
    "te": "autosched.te",
    "tir": "autosched.tir",
    "relax": "autosched.relax",
    "onnx": "autosched.frontend.onnx",
    "torch": "autosched.frontend.torch",
    "runtime": "autosched.runtime",
    "records": "autosched.records",
    "target": "autosched.target",
}


def on_files(files: Files, *, config: Any) -> Files:
    """Add a page for each package, and one for the commands; mkdocs calls it."""
    for page, package in PACKAGES.items():
        files.append(File.generated(config, f"api/{page}.md", content=package_page(package)))
    files.append(File.generated(config, "api/commands.md", content=commands_page()))
    return files


def package_page(name: str) -> str:
    """Classes and functions of a package in alphabetical order."""
    package = importlib.import_module(name)
    lines = [f"# {name}", "", inspect.getdoc(package) or "", ""]
    for each in sorted(n for n in dir(package) if not n.startswith("_")):
        try:
            value = getattr(package, each)
        except ImportError:  # of an optional package
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            if value.__module__.startswith("autosched"):
                lines += entry(f"{name}.{each}", value)
    return "\n".join(lines)


def entry(name: str, value: Any) -> list[str]:
    """A heading, the signature, the docstring as it is written, and public methods of a class."""
    lines = [f"## {name.rpartition('.')[2]}", "", f"<pre>{escape(name + signature(value))}", ""]
    lines += [escape(inspect.getdoc(value) or ""), "</pre>", ""]
    for method, function in sorted(vars(value).items() if inspect.isclass(value) else ()):
        function = function.fget if isinstance(function, property) else function
        if inspect.isfunction(function) and not method.startswith("_") and function.__doc__:
            lines += [
                f"<pre>.{escape(method + signature(function))}",
                "",
                escape(inspect.getdoc(function) or ""),
                "</pre>",
                "",
            ]
    return lines


def signature(value: Any) -> str:
    """As Python writes it; nothing where there is none to be had."""
    try:
        return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))  # annotations are kept as texts
    except (TypeError, ValueError):
        return ""


def commands_page() -> str:
    """Each command's help."""
    import click

    from autosched.cli.app import COMMANDS, app, commands_of

    lines = ["# Command line", ""]
    for command in COMMANDS:
        names = [(command,), *((command, inner) for inner in commands_of(command))]
        for words in names:
            found: Any = app
            context = click.Context(app, info_name="autosched")
            for word in words:
                found = found.get_command(context, word)
                context = click.Context(found, info_name=word, parent=context)
            lines += [f"## autosched {' '.join(words)}", "", f"<pre>{escape(found.get_help(context))}</pre>", ""]
    return "\n".join(lines)
