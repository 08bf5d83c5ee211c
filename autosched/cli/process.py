"""The process around a command: its exit code, its last words on errors, its logs.

0 good, 1 failed, 2 wrong use or input, 4 verification failed, 130 interrupted but saved.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import click

from autosched.errors import AutoschedError, UsageError
from autosched.lazy_names import missing
from autosched.printable import printable

EXIT_FAILED, EXIT_WRONG_USE, EXIT_INTERRUPTED = 1, 2, 130


@dataclass(slots=True)
class Process:
    """What the process needs to know of the command that runs in it; the command's options fill it in."""

    debug: bool = False


def run_process(arguments: Sequence[str] | None = None) -> int:
    """Run a command line to its exit code; errors become one or two lines on stderr.

    With --debug the traceback comes before them.
    """
    process = Process()
    try:
        _interrupt_on_terminate()
        from autosched.cli.app import app

        words = None if arguments is None else list(arguments)
        result = app.main(words, prog_name="autosched", standalone_mode=False, obj=process)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        forget_interrupt()
        return _report("interrupted", EXIT_INTERRUPTED, process)
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2; before, exit 0
            print(error.format_message(), file=sys.stderr)
            return EXIT_WRONG_USE
        return _report(_usage_text(error), EXIT_WRONG_USE, process)
    except AutoschedError as error:
        return _report(f"error: {error}", error.exit_code, process)
    except BrokenPipeError:  # `autosched logs list | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _report(f"error: {_os_text(error)}", EXIT_WRONG_USE, process)
    except MemoryError as error:
        return _report(f"error: not enough memory{f': {error}' if str(error) else ''}", EXIT_FAILED, process)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        return _report(f"error: {missing(package) if package else error}", EXIT_WRONG_USE, process)
    except Exception as error:  # the boundary: whatever was not foreseen ends here, with its whole name
        text = f"internal error: {type(error).__name__}: {error}"
        hint = (
            ""
            if process.debug
            else "\n--debug shows the traceback; please report it with the output of `autosched doctor`"
        )
        return _report(text + hint, EXIT_FAILED, process)


class _Formatter(logging.Formatter):
    """Log lines in which names and paths steer no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), "\n\t")


def _report(text: str, code: int, process: Process) -> int:
    if process.debug:
        traceback.print_exc(file=sys.stderr)
    print(printable(f"autosched: {text}", "\n\t"), file=sys.stderr)
    return code


def _usage_text(error: click.ClickException) -> str:
    command = getattr(getattr(error, "ctx", None), "command_path", "autosched")
    return f"error: {error.format_message()}\nsee '{command} --help'"


def _os_text(error: OSError) -> str:
    words = error.strerror or str(error)
    return f"{words}: {error.filename}" if error.filename else words


def forget_interrupt() -> None:
    """Let the process end by its exit code.

    An interrupt that arrives while Python executes a text (`exec`, as in a module of Numba or in a dataclass) is noted
    by the interpreter, caught or not, and at the end it kills itself by the signal; executing another text clears it.
    """
    exec("")


def _interrupt_on_terminate() -> None:
    """End on SIGTERM as on Ctrl-C, so that a stopped tuning saves what it has."""
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not in the main thread: whoever embeds the command handles its signals
        return


def set_up_logging(verbosity: int, levels: str) -> None:
    """Send autosched's log to stderr: warnings, with -v more, with -q errors only.

    levels  the text of AUTOSCHED_LOG, "info,autosched.tuner=debug"
    Raises  UsageError for a level that does not exist.
    """
    root = logging.getLogger("autosched")
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel({-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}.get(max(verbosity, -1), logging.DEBUG))
    for part in filter(None, (part.strip() for part in levels.split(","))):
        name, _, level = part.rpartition("=")
        number = logging.getLevelNamesMapping().get(level.upper())
        if number is None:
            raise UsageError(f"AUTOSCHED_LOG: no log level '{level}'", hint="use debug, info, warning or error")
        logging.getLogger(name or "autosched").setLevel(number)
