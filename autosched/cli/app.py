"""The group of commands; a command's file is loaded when the command is used."""

from __future__ import annotations

import importlib

import click

from autosched.cli.groups import SuggestingGroup
from autosched.version import __version__

# name -> one line for `autosched --help`, so that listing the commands loads none of them
COMMANDS = {
    "tune": "Search for the fastest kernels of a model and remember them.",
    "build": "Compile a model into one file that runs without a compiler.",
    "run": "Run a model on given or made-up inputs.",
    "inspect": "Show what a built model is made of, and the code of each kernel.",
    "quantize": "Make a model of bytes from a model of floats.",
    "warm": "Compile the kernels of models ahead, for later builds.",
    "cache": "Show, write to a file and read the kernels that are kept compiled.",
    "bench": "Compare models, and other runtimes, side by side.",
    "logs": "Look at, export and import what tuning has found.",
    "worker": "Lend this machine to a cluster for tuning.",
    "rpc": "Lend this machine's devices to others, and hand out those of several.",
    "spaces": "Show what a search may choose from, and check search spaces.",
    "doctor": "Show what autosched sees of this machine; for bug reports.",
}


GROUPS = ("logs", "rpc", "spaces", "cache")  # commands that have commands


class LazyGroup(SuggestingGroup):
    """A group whose commands are modules of this package with the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"autosched.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def commands_of(name: str) -> tuple[str, ...]:
    """The commands of a group; () of a command."""
    if name not in GROUPS:
        return ()
    group = importlib.import_module(f"autosched.cli.{name}").command
    assert isinstance(group, click.Group)
    return tuple(group.list_commands(click.Context(group)))


EPILOG = """\b
Example:
  autosched tune model.onnx --budget 10m
  autosched build model.onnx -o model.asx
  autosched run model.asx --fill random --print-top 5
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autosched")
def app() -> None:
    """Compile models to fast CPU kernels, tune them on this machine, and run them."""
