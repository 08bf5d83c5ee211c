"""TVM's graph tuners by name: they are refused, as the build chooses the layouts between kernels by itself."""

from __future__ import annotations

from typing import Any

from autosched.errors import UsageError


class BaseGraphTuner:
    """A search for layouts. Raises UsageError when it is made."""

    def __init__(self, *_: object, **__: object):
        raise UsageError(
            f"{type(self).__name__} is not available: relay.build chooses layouts between kernels by itself",
            hint="build under apply_history_best(records)",
        )


class DPTuner(BaseGraphTuner):
    """TVM's search by dynamic programming."""


class PBQPTuner(BaseGraphTuner):
    """TVM's search by quadratic programming."""
