"""The builder's side of tuning an own function: compiles a configuration and hands its machine code on."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.own.transfer import SentFunction
from autosched.space import Config
from autosched.target import Target
from autosched.task import ConfigLike

if TYPE_CHECKING:
    from autosched.tuner.measure.base import Packs

COMPILER = f"{__name__}:OwnCompiler"


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """A configuration's machine code, as Numba's own cache would store it.

    code  empty where Numba cannot store it, as of ufuncs: the runner compiles once more, as it does where the code
          cannot be loaded
    """

    config: Config
    code: bytes = field(repr=False)

    def open(self, sent: SentFunction) -> Any:
        """A dispatcher that holds the machine code."""
        dispatcher = sent.dispatcher(self.config)
        if not (self.code and self._was_loaded(dispatcher)):
            dispatcher.compile(pickle.loads(sent.types))
        return dispatcher

    def _was_loaded(self, dispatcher: Any) -> bool:
        """Whether the dispatcher has taken the code: not where it names a module that this process cannot import."""
        from numba.core.compiler import CompileResult

        context = dispatcher.targetdescr.target_context
        context.refresh()
        try:
            dispatcher.add_overload(CompileResult._rebuild(context, *pickle.loads(self.code)))
        except ImportError:
            return False
        return True


class OwnCompiler:
    """See `tuner.measure.builder.Compiler`."""

    def warm_up(self, target: Target) -> None:
        """See `warm_up`."""
        warm_up()

    def compile(self, func: SentFunction, config: ConfigLike, target: Target) -> tuple[OwnKernel, Packs]:
        """Compile a configuration for the types of the caller's arguments."""
        from numba.core import serialize

        chosen = Config(config.template, config.knobs)
        dispatcher = func.dispatcher(chosen)
        types = pickle.loads(func.types)
        dispatcher.compile(types)
        if func.form is not None:
            return OwnKernel(chosen, b""), ()
        (result,) = dispatcher.overloads.values()
        can_store = not result.lifted and not result.library.has_dynamic_globals
        return OwnKernel(chosen, serialize.dumps(result._reduce()) if can_store else b""), ()

    def keep(self) -> None:
        """Nothing is kept on disk."""

    def native_loop(self) -> bytes:
        """Own functions are called from Python."""
        return b""


def warm_up() -> None:
    """Compile a small function: the first compilation in a process is slower by a second."""
    import numba

    numba.njit([(numba.float32[::1],)])(_small)


def _small(x: np.ndarray) -> None:
    for i in range(x.size):
        x[i] += 1
