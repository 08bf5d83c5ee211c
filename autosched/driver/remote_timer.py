"""Times built modules on remote devices, for the tuners of the compatibility layer: TVM's `RPCRunner`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from autosched.driver.module_timer import random_arguments
from autosched.errors import AutoschedError
from autosched.rpc.client import RPCSession
from autosched.rpc.frames import ConnectionLost
from autosched.rpc.tracker import connect_tracker
from autosched.task import Measurement, Status

ENDED = "the session was ended after"  # a server's words of a session that took too long


class RemoteTimer:
    """Times one module after the other, each in a session of its own; several threads may use it.

    open_session  gives a session that ends after a time
    evaluator     arguments of `time_evaluator`: number, repeat, min_repeat_ms, f_preproc
    """

    def __init__(self, open_session: Callable[[], RPCSession], **evaluator: object):
        self._open, self._evaluator = open_session, evaluator

    def time(self, path: str | os.PathLike[str]) -> Measurement:
        """Time the entry function of a saved module; a failure is a measurement, so is a device that is not there."""
        try:
            with self._open() as session:
                session.upload(path)
                module = session.load_module(Path(path).name)
                specs = [(tuple(shape), dtype) for dtype, shape in module.facts["args"]]
                arguments = [session.array_of(x.numpy()) for x in random_arguments(specs)]
                timed = module.time_evaluator(module.entry_name, session.cpu(), **self._evaluator)
                return Measurement(Status.OK, timed(*arguments).results)
        except ConnectionLost as error:
            return Measurement(Status.TIMEOUT if ENDED in error.message else Status.CRASH, error=str(error))
        except AutoschedError as error:
            return Measurement(Status.RUN_ERROR, error=str(error))


def tracked(host: str, port: int, key: str, priority: int, timeout_s: float) -> Callable[[], RPCSession]:
    """What opens sessions of a tracker's devices, each ended after a time by its server."""

    def open_session() -> RPCSession:
        tracker = connect_tracker(host, port)
        return tracker.request(key, priority, session_timeout=timeout_s, timeout=None)

    return open_session
