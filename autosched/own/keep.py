"""Compiled code of own functions, kept in the kernel cache for later processes."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from autosched.runtime.cache import kernel_cache

_log = logging.getLogger("autosched.own")


class KeptCode:
    """What a Numba dispatcher asks for compiled code, and gives it to: Numba's own cache needs a file of the source.

    of  says all that the code depends on at this moment, as globals may change between two compilations, but for the
        types of the arguments, the CPU and Numba's version
    """

    cache_path = None

    def __init__(self, of: Callable[[], str]):
        self._of = of

    def load_overload(self, signature: object, target_context: Any) -> Any:
        """The code for a signature; None where none is kept."""
        from numba.core.compiler import CompileResult

        payload = kernel_cache().get(self._key(signature, target_context))
        if payload is None:
            return None
        target_context.refresh()
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(payload))
        except (pickle.PickleError, ImportError, AttributeError, TypeError) as error:  # what it names has moved
            _log.debug("kept code of %s is not used: %s", self._of(), error)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the code for a signature, unless it holds addresses of this process."""
        from numba.core import serialize

        if result.library.has_dynamic_globals or any(not lifted.can_cache for lifted in result.lifted):
            return
        cache = kernel_cache()
        if cache.folder is None or not cache.writable:
            return
        try:
            cache.put(self._key(signature, result.target_context), bytes(serialize.dumps(result._reduce())))
        except (pickle.PickleError, TypeError, AttributeError) as error:
            _log.debug("the code of %s cannot be kept: %s", self._of(), error)

    def enable(self) -> None:
        """Nothing is to be switched."""

    def disable(self) -> None:
        """See `enable`."""

    def flush(self) -> None:
        """What is kept stays: its key says all that it depends on."""

    def _key(self, signature: object, target_context: Any) -> str:
        cpu = target_context.codegen().magic_tuple()
        return f"own {self._of()} {signature} {cpu} {version('numba')} {version('llvmlite')}"
