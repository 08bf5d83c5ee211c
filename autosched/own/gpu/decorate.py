"""What `autotune` does with a kernel of `numba.cuda`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.errors import UsageError
from autosched.own.gpu.function import AutotunedKernel, cuda_options
from autosched.own.gpu.kernel import CUDA_KNOBS
from autosched.own.gpu.launching import THREAD_CANDIDATES, THREADS, LaunchRule
from autosched.own.propose import propose
from autosched.own.signature import Signature, check_key
from autosched.own.space import make_space
from autosched.own.workload import op_name
from autosched.space import ConfigSpace, Constraint


def make_kernel(
    inner: Callable[..., object],
    options: Mapping[str, object],
    space: Mapping[str, Sequence[object]] | ConfigSpace | str,
    constraints: Sequence[str | Constraint],
    rule: LaunchRule,
    target: str | None,
    *,
    key: Sequence[str] | None,
    **more: object,
) -> AutotunedKernel:
    """The tuned kernel; arguments as of `autotune`. Raises UsageError for what cannot be tuned."""
    name = op_name(inner)
    options = cuda_options(options, name)
    knobs = _knobs(inner, options, space, rule)
    names = [knob.name for knob in knobs.knobs] if isinstance(knobs, ConfigSpace) else list(knobs)
    signature = Signature.of(inner, names, name)
    check_key(key, signature, name)
    rule.check((*names, *signature.arguments), name)
    launching = [n for n in rule.names() if n in names and n not in signature.knobs]
    made = make_space(
        name, knobs, constraints, signature, options, known=CUDA_KNOBS, others=launching, host_knobs=()
    )  # fmt: skip
    of_threads = [n for n in rule.names("threads") if n in names]
    unset = [] if isinstance(knobs, ConfigSpace) else [n for n in of_threads if n not in signature.knob_defaults]
    return AutotunedKernel(inner, options, made, signature, key=key, rule=rule, unset=unset, target=target, **more)


def _knobs(inner: Callable[..., object], options: Mapping[str, object], space: Any, rule: LaunchRule) -> Any:
    """The candidates by knob, with those of threads where nothing says how many there are."""
    if isinstance(space, str):
        try:
            space = propose(inner, {**options, "error_model": "numpy"}, space)
        except UsageError:
            if space != "auto" or rule.threads is not None:
                raise
            space = {}
    has_threads = THREADS in ([k.name for k in space.knobs] if isinstance(space, ConfigSpace) else space)
    if rule.threads is not None or has_threads:
        return space
    if isinstance(space, ConfigSpace):
        raise UsageError("threads= is missing", hint="give threads=, or a knob of that name")
    return {**space, THREADS: THREAD_CANDIDATES}
