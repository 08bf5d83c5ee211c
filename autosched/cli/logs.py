"""`autosched logs`: what tuning has found, and how it moves between machines."""

from __future__ import annotations

import importlib

import click

from autosched.cli.groups import SuggestingGroup

# name -> (module, its function, one line for `autosched logs --help`): listing the commands loads none of them
COMMANDS = {
    "list": ("look", "list_tasks", "List the workloads that have been measured."),
    "best": ("look", "best", "Show the configuration that a build would use."),
    "show": ("look", "show_records", "Show records one by one, or all of one."),
    "stats": ("look", "stats", "Show trials, failures, time spent and convergence."),
    "export": ("move", "export", "Write records as JSON lines, or for other tools."),
    "import": ("move", "import_files", "Add JSON lines, AutoTVM's logs, Kernel Tuner's caches, T4."),
    "merge": ("move", "merge", "Add all records of other databases and logs."),
    "upgrade": ("keep", "upgrade", "Bring an old database to this version, after a copy."),
    "verify": ("keep", "verify", "Check a database, and whether its winners still hold."),
    "prune": ("keep", "prune", "Delete records that nobody needs."),
    "diff": ("diff", "diff", "Show what got faster or slower between two databases."),
    "explain": ("explain", "explain", "Show which record each kernel would use, and why."),
    "watch": ("watch", "watch", "Follow a tuning that runs elsewhere."),
    "plot": ("plot", "plot", "Draw convergence and knob importance in the terminal."),
    "report": ("report", "report", "Write one page of HTML with everything."),
    "lock": ("lock", "lock", "Write down which configuration each kernel of a model uses."),
}
ALIASES = {"ls": "list"}


class LogsGroup(SuggestingGroup):
    """A group whose commands are in `logs_*.py` beside this file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[name]
        found = getattr(importlib.import_module(f"autosched.cli.logs_{module}"), function)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(
    "logs",
    cls=LogsGroup,
    epilog="\b\nExample:\n  autosched logs list\n  autosched logs export best.jsonl --winners",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Look at, compare, move and look after what tuning has found.

    Without --db the database is AUTOSCHED_DB, else the project's, else the user's.
    """
