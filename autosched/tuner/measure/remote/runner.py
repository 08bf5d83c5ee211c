"""`RemoteRunner`: has candidates checked and timed in a session of a server, as `LocalRunner` does in a process here.

A session that says why it ended has been ended by the candidate that it ran. One that is silent after the time for a
candidate has hung. Otherwise the connection was lost, which says nothing of the candidate: the same is asked again in a
new session, and where no server answers the device is gone.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError, RPCError, UsageError
from autosched.rpc.client import RPCSession
from autosched.rpc.frames import ConnectionLost, SessionEnded
from autosched.rpc.session import host_id
from autosched.task import Measurement, Status
from autosched.tuner.measure.base import Built, MeasureOptions
from autosched.tuner.measure.reference import CHECKED_AGAINST, Reference
from autosched.tuner.measure.remote.messages import (
    kernel_entry,
    options_entry,
    pack_entries,
    read_measurement,
    reference_facts,
)
from autosched.tuner.measure.runner import threads_of

if TYPE_CHECKING:
    from autosched.json_types import Json
    from autosched.rpc.client import RemoteArray
    from autosched.runtime.kernel import Kernel

OpenSession = Callable[[], RPCSession]
_MOST_REFERENCES = 8  # that a session keeps
_TRIES = 2  # of what a lost connection has cost
_RECONNECT_S = (0.1, 0.5, 1.5)  # waits before a device counts as gone
_START_S = 60.0  # what a session may take to load what measures


class DeviceGone(AutoschedError):
    """No session can be opened on a device any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A task's inputs and expected results; the key is no other's."""

    key: str
    reference: Reference


class RemoteRunner:
    """One device; one thread at a time may use it.

    open_session  opens a session there, and another when that has ended
    native        gives the object code of the native loop
    """

    def __init__(self, open_session: OpenSession, options: MeasureOptions, native: Callable[[], bytes]):
        self._open, self._options, self._native = open_session, options, native
        self._session: RPCSession | None = None
        self._was_reached = False
        self._sent: dict[str, list[RemoteArray]] = {}  # the arrays of each reference there
        self._kernels: dict[int, tuple[Kernel, int]] = {}  # by identity: the kernel and its number there

    @property
    def is_here(self) -> bool:
        """Whether the device is this machine, whose other work then stops while something is timed."""
        return bool(self._connected().info.get("host") == host_id())

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._sent.clear()
        self._kernels.clear()

    def ask(self, what: str, **request: Json) -> Json:
        """A request that runs no candidate. Raises DeviceGone."""
        return self._again(lambda: self._connected().ask("measure", what=what, within_s=_START_S, **request))

    def check(self, built: Built, reference: Prepared) -> Measurement | None:
        """Check a candidate; gives the failure, or None where the result is right. Raises DeviceGone."""
        found = self._run([built], reference, "run", best_s=None, is_timed=False, is_checked=False)
        return found if isinstance(found, Measurement) else None

    def time(self, built: Built, reference: Prepared, best_s: float | None, *, is_checked: bool) -> Measurement:
        """Check a candidate, unless it has just been, and time it. Raises DeviceGone."""
        more = {"best_s": best_s, "is_timed": True, "is_checked": is_checked}
        found = self._run([built], reference, "run", **more)
        if not isinstance(found, Measurement):
            found = read_measurement(found["measurement"])
            known = {name: list(values) for name, values in built.features.items()}
            found = dataclasses.replace(found, how={**found.how, "build_s": round(built.build_s, 4), **known})
        return found

    def interleave(self, built: Sequence[Built], reference: Prepared, rounds: int) -> list[list[float]] | Measurement:
        """Time candidates in turn; gives per candidate the seconds of each round, or the failure of all."""
        found = self._run(built, reference, "interleave", rounds=rounds)
        return found if isinstance(found, Measurement) else [[float(t) for t in times] for times in found["value"]]

    def _run(self, built: Sequence[Built], reference: Prepared, what: str, **request: Json) -> Json:
        """The answer to a request that runs candidates, or the Measurement that says how they failed."""
        within_s = self._options.run_timeout_s * len(built)

        def once() -> object:
            session = self._connected()
            key = self._send_reference(session, reference)
            entries = [self._entry(session, one) for one in built]
            options = options_entry(self._options)
            start = time.monotonic()
            try:
                return session.ask(
                    "measure", what=what, entries=entries, reference=key, options=options, within_s=within_s, **request
                )
            except SessionEnded as error:
                self.close()
                return self._failure(_status_of(error.message), error.message)
            except ConnectionLost as error:
                if time.monotonic() - start < within_s:
                    raise
                self.close()
                return self._failure(Status.TIMEOUT, f"no result after {within_s:g} s: {error.message}")

        try:
            answer = self._again(once)
        except _LostAgain as error:
            return self._failure(Status.LOST, str(error))
        except (DeviceGone, UsageError):
            raise
        except AutoschedError as error:  # the session cannot do what it was asked for
            return self._failure(Status.RUN_ERROR, str(error))
        if isinstance(answer, Measurement):
            return answer
        if answer["status"] != Status.OK.value:
            if answer.get("is_spoilt"):
                self.close()
            return self._failure(Status(answer["status"]), str(answer["error"]))
        return answer

    def _failure(self, status: Status, error: str) -> Measurement:
        was_checked = status in (Status.WRONG_RESULT, Status.NON_FINITE)
        how = {"threads": self._options.threads, "cache": self._options.cache}
        return Measurement(status, checked_against=CHECKED_AGAINST if was_checked else "", error=error, how=how)

    def _again(self, once: Callable[[], Any]) -> Any:
        """What `once` gives; it is tried again in a new session where the connection was lost."""
        for attempt in range(_TRIES):
            try:
                return once()
            except ConnectionLost as error:
                self.close()
                if attempt + 1 == _TRIES:
                    raise _LostAgain(f"the connection was lost {_TRIES} times: {error.message}") from None
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> RPCSession:
        """The session, or a new one. Raises DeviceGone."""
        if self._session is not None:
            return self._session
        waits = _RECONNECT_S if self._was_reached else ()
        self._was_reached = False
        for wait_s in (*waits, None):
            try:
                session = self._open()
                session.ask("measure", what="native", raw=self._native(), within_s=_START_S)
            except RPCError as error:
                if wait_s is None:
                    raise DeviceGone(error.message, hint=error.hint) from None
                time.sleep(wait_s)
                continue
            self._session, self._was_reached = session, True
            return session
        raise AssertionError("the last attempt returns or raises")

    def _send_reference(self, session: RPCSession, reference: Prepared) -> str:
        if reference.key not in self._sent:
            while len(self._sent) >= _MOST_REFERENCES:
                del self._sent[next(iter(self._sent))]
            given = reference.reference
            arrays = [[session.array_of(x) for x in part] for part in (given.inputs, given.outputs)]
            numbers = dict(zip(("inputs", "outputs"), ([x.number for x in part] for part in arrays), strict=True))
            facts = {"key": reference.key, **numbers, **reference_facts(given)}
            session.ask("measure", what="reference", within_s=_START_S, **facts)
            self._sent[reference.key] = [x for part in arrays for x in part]
        return reference.key

    def _entry(self, session: RPCSession, built: Built) -> Mapping[str, object]:
        kernel = built.kernel
        known = self._kernels.get(id(kernel))
        if known is None:
            number = session.ask(
                "measure", what="kernel", manifest=kernel_entry(kernel), raw=kernel.code, within_s=_START_S
            )
            self._kernels = {id(kernel): (kernel, number), **dict(list(self._kernels.items())[:_MOST_REFERENCES])}
            known = kernel, number
        return {"kernel": known[1], "packs": pack_entries(built.packs), "threads": threads_of(built, self._options)}


class _LostAgain(RPCError):
    """The connection was lost as often as it is tried."""


def _status_of(text: str) -> Status:
    """What ended a session, by the server's words."""
    if "SIGILL" in text:
        return Status.ILLEGAL_INSTRUCTION
    if "MemoryError" in text or "SIGKILL" in text or "code 3" in text:
        return Status.OUT_OF_MEMORY
    return Status.CRASH
