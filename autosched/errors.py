"""Every error that autosched raises on purpose.

All derive from `AutoschedError`; those that TVM's users expect are also `TVMError` (a `RuntimeError`) and the Python
builtin of the same meaning. Each can cross a process boundary by pickle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from autosched.printable import printable


class AutoschedError(Exception):
    """What went wrong, where, and what to do about it.

    message  one sentence; `where` names the place (a node, a file and line); `hint` says what would work.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None):
        super().__init__(message)
        self.message, self.where, self.hint = message, where, hint

    def __str__(self) -> str:
        return self.line

    @property
    def line(self) -> str:
        """Message, place and hint in one line; without the pictures that some errors show below."""
        text = self.message
        if self.where:
            text += f" (in {self.where})"
        return printable(f"{text}; {self.hint}" if self.hint else text)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.where, self.hint)


def _rebuild(kind: type[AutoschedError], message: str, where: str | None, hint: str | None) -> AutoschedError:
    return kind(message, where=where, hint=hint)


class TVMError(AutoschedError, RuntimeError):
    """The error type that TVM's documented API raises."""


class InvalidValueError(TVMError, ValueError):
    """An argument has the right type and an impossible value."""

    exit_code = 2


class InvalidTypeError(TVMError, TypeError):
    """An argument has the wrong type."""

    exit_code = 2


class WrongInputError(InvalidTypeError, ValueError):
    """Something that is no program: TVM says ValueError where Python says TypeError."""


class NameNotFoundError(TVMError, AttributeError):
    """A function or attribute of that name does not exist."""

    exit_code = 2


class UnknownOptionError(NameNotFoundError, ValueError):
    """An option that does not exist: TVM says AttributeError in one version and ValueError in another."""


class WrongOptionError(InvalidTypeError, AttributeError):
    """An option whose value has the wrong type: TVM says AttributeError where Python says TypeError."""


def refuse(call: str, *, hint: str = "leave it out", **options: object) -> None:
    """Refuse what a call is given and would otherwise ignore: the options that are true, by name.

    Raises InvalidValueError naming the first of them.
    """
    given = next((name for name, is_given in options.items() if is_given), None)
    if given is not None:
        raise InvalidValueError(f"{call}: '{given}' is not available", hint=hint)


@contextlib.contextmanager
def refuse_too_deep(call: str) -> Iterator[None]:
    """Refuse expressions that are nested deeper than Python's stack is. Raises InvalidValueError."""
    try:
        yield
    except RecursionError:
        hint = "give its parts names: more computes, or bindings of their own"
        raise InvalidValueError(f"{call}: an expression is nested too deeply", hint=hint) from None


class ArgumentCountError(InvalidValueError, AssertionError):
    """Arguments that are too many, too few or not the function's, where TVM only asserts their number."""


class ShapeError(InvalidValueError):
    """Shapes that do not fit each other or the operator."""


class SizeError(ShapeError):
    """Sizes that fit each other and what was built not: code that is compiled for them alone may take them."""


class IndexOutOfRangeError(TVMError, IndexError):
    """A position outside the range."""

    exit_code = 2


class OutOfMemoryError(TVMError, MemoryError):
    """More memory is needed than there is."""


class AssertionFailedError(TVMError, AssertionError):
    """A condition that a program asserts (`T.Assert`) does not hold."""

    exit_code = 2


class MissingKeyError(InvalidValueError, KeyError):
    """Names that are missing or unexpected in a mapping."""


class TargetError(InvalidValueError):
    """A target that is unknown or malformed."""


class VerifyError(TVMError):
    """The IR breaks one of its own rules; `node` is the statement at fault, in the process that found it."""

    node: object = None


class ScheduleError(TVMError):
    """A schedule primitive would change the result, or was given something it cannot apply to.

    Where `where` can draw the place (it has a method `picture`), the text shows that below the line. It is drawn when
    the error is shown, not when it is raised: schedules are tried by the thousand, and most errors are caught.
    """

    def __str__(self) -> str:
        picture = getattr(self.where, "picture", None)
        return self.line if picture is None else f"{self.line}\n{picture()}"


class CodegenError(TVMError):
    """A loop nest that the code generator cannot express."""


class ImportModelError(TVMError):
    """A model file that cannot be read or uses something unsupported."""

    exit_code = 2


class SpaceError(InvalidValueError):
    """A search space or a configuration that is malformed."""


class ScriptError(InvalidValueError):
    """Text that is no legal script; the message shows the line with a caret below its own first line."""

    def __str__(self) -> str:
        picture = self.message.partition("\n")[2]
        return f"{self.line}\n{printable(picture, chr(10))}" if picture else self.line

    @property
    def line(self) -> str:
        """The message without the picture."""
        return AutoschedError(self.message.partition("\n")[0], where=self.where, hint=self.hint).line


class RecordError(InvalidValueError):
    """A tuning database or log that cannot be used."""

    exit_code = 2


class UntrustedError(RecordError):
    """A strict build met kernels without a record that can be trusted."""

    exit_code = 1


class ArtifactError(InvalidValueError):
    """A saved artifact that cannot be loaded."""

    exit_code = 2


class DeviceError(TVMError):
    """A device that is missing, is another than the code was made for, or has not enough memory."""

    exit_code = 2


class RPCError(TVMError):
    """A remote device that cannot be reached, refuses, or has failed."""


class UsageError(InvalidValueError):
    """Wrong use of a command or function."""

    exit_code = 2


class VerificationFailed(AutoschedError):
    """A result that does not agree with its reference."""

    exit_code = 4


# TVM's names
InternalError = OpError = TVMError
DiagnosticError = ScriptError
OpNotImplemented = ImportModelError
