"""What `relay.build` takes for its `executor` and `runtime`: names and options, of which there is one of each here."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.errors import InvalidValueError


class _Named:
    known: tuple[str, ...] = ()

    def __init__(self, name: str, options: Mapping[str, object] | None = None):
        if name not in self.known:
            raise InvalidValueError(f"no {type(self).__name__} '{name}'", hint=f"there are {', '.join(self.known)}")
        self.name, self.options = name, dict(options or {})

    def __getitem__(self, option: str) -> object:
        return self.options[option]

    def __contains__(self, option: str) -> bool:
        return option in self.options

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.name))


class Executor(_Named):
    """The graph executor; "aot" is accepted and means the same."""

    known = ("graph", "aot")


class Runtime(_Named):
    """The runtime; "crt" is accepted and means the same."""

    known = ("cpp", "crt")
