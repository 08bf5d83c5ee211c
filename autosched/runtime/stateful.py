"""Programs with arrays that each call changes: running statistics, caches of keys and values."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autosched.errors import ArtifactError, UsageError
from autosched.runtime.array import NDArray
from autosched.runtime.artifact import Contents, save_contents

STATES = "states"  # in an artifact's info: names of the arrays, which are its last constants


class StatefulProgram:
    """A program with buffers that each call changes. Calls of several threads run one after the other.

    executable  takes the buffers behind the program's inputs, and gives their new values behind its outputs: an
                Executable, a DynamicExecutable, a SizedModel, a SizedProgram or a LateProgram
    states      the buffers as they are now, by the names of these inputs; they may be set
    """

    def __init__(self, executable: Any, states: Mapping[str, np.ndarray]):
        self.executable, self.states = executable, dict(states)
        self._lock = threading.Lock()

    def __call__(self, *args: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run on inputs by position or name; gives what the program gives, one output as it is."""
        with self._lock:
            found = self.executable(*args, **named, **self.states)
            results = found if isinstance(found, tuple) else (found,)
            n = len(results) - len(self.states)
            self.states = dict(zip(self.states, map(_copied, results[n:]), strict=True))
        return results[0] if n == 1 else results[:n]

    def save(self, path: str | Path) -> None:
        """Write the program with its buffers as they are now; `autosched.load` reads it.

        Raises ArtifactError if the file cannot be written, UsageError for a program that loops.
        """
        save_contents(self.contents(), Path(path))

    def contents(self) -> Contents:
        """What an artifact of it holds: that of its executable, and the buffers."""
        if not hasattr(self.executable, "contents"):
            raise UsageError("a program that loops and changes buffers is not saved", hint="save its `executable`")
        own: Contents = self.executable.contents()
        with self._lock:
            constants = (*own.constants, *map(np.asarray, self.states.values()))
            return replace(own, constants=constants, info={**own.info, STATES: list(self.states)})

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the program with its buffers as they are now."""
        with self._lock:
            return StatefulProgram, (self.executable, self.states)

    def __repr__(self) -> str:
        return f"<autosched StatefulProgram with {', '.join(self.states)}>"


def without_states(contents: Contents) -> tuple[Contents, dict[str, np.ndarray]]:
    """(what an artifact holds but for the buffers of a StatefulProgram, these; none where there are none).

    Raises ArtifactError if their names are not different texts, one for each of the last constants.
    """
    names = contents.info.get(STATES, [])
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(set(names)) < len(names) or len(names) > len(contents.constants):
        raise ArtifactError(f"the artifact's {STATES} are no names of its arrays", hint="copy or build it again")
    n = len(contents.constants) - len(names)
    info = {key: value for key, value in contents.info.items() if key != STATES}
    states = dict(zip(names, map(np.array, contents.constants[n:])))
    return replace(contents, constants=contents.constants[:n], info=info), states


def _copied(value: NDArray | np.ndarray) -> np.ndarray:
    return value.numpy() if isinstance(value, NDArray) else value.copy()
