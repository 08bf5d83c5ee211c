"""`autotune`: the decorator that makes a user's function a tuned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import UsageError
from autosched.own.function import AutotunedFunction
from autosched.own.gpu.launching import LaunchRule
from autosched.own.jit import is_cuda, unwrap
from autosched.own.metric import Metric, Metrics
from autosched.own.peak import Rule, Work
from autosched.own.references import OwnCheck
from autosched.own.signature import Signature, check_key
from autosched.own.space import make_space
from autosched.own.ufunc import UFUNC_KNOBS, UfuncForm
from autosched.own.workload import op_name
from autosched.space import ConfigSpace, Constraint
from autosched.target import Target

if TYPE_CHECKING:
    from autosched.own.gpu.launching import Rule


def autotune(
    space: Mapping[str, Sequence[object]] | ConfigSpace | str = "auto",
    *,
    key: Sequence[str] | None = None,
    check: Callable[..., object] | None = None,
    constraints: Sequence[str | Constraint] = (),
    rtol: float | None = None,
    atol: float | None = None,
    example: Any = None,
    records: Any = None,
    target: str | None = None,
    grid: Any = None,
    threads: Any = None,
    shared: Any = None,
    metric: Metric | Mapping[str, Metric] | None = None,
    flops: Rule = None,
    bytes: Rule = None,  # noqa: A002  # the word that is said of it
) -> Callable[[Callable[..., object]], AutotunedFunction]:
    """Decorator for a plain function or one of Numba's (njit, vectorize, guvectorize, cuda.jit): tuning chooses knobs.

    space        candidates by the name of the knob: a parameter of the function, one of Numba's options (fastmath,
                 parallel, boundscheck, error_model), or threads; a `ConfigSpace`; "auto": what the source suggests
    key          arguments whose values decide, each in its bucket (powers of two); None: dtypes and shapes of all
    check        a NumPy function of the same arguments that returns what is expected or changes its arguments; None:
                 results are compared with the default's
    constraints  between knobs and arguments: "block <= n", "block * rows <= x_size"
    rtol, atol   error allowed, as a share of the largest value and in all; None: what rounding makes of the dtypes
    example      arguments, or a function that gives them, for the command line
    records      database of its own, to look up in before the usual ones and to write to
    target       "cuda" makes a plain function a kernel of `numba.cuda`; None: the CPU, or for a kernel the device here
    grid, threads, shared  of a kernel: blocks, threads of a block, bytes of dynamic shared memory; numbers, tuples, or
                 functions of knobs and arguments by their names. threads None: a knob `threads`
    metric       tune for this instead of time: a function of time_s, result, arguments and knobs by their names, which
                 gives a number from 0 on, the smaller the better; or several by name, of which the first one chooses
                 the winner. Records keep them all (`function.pareto`, `autosched logs best --pareto`)
    flops, bytes  arithmetic and data of a call, for the share of this machine's peak that tuning reports: numbers, or
                 functions of arguments and knobs by their names; None: counted, where the source and arguments say it
    The default of each knob is its parameter's default, else its first candidate. A call never tunes, unless
    AUTOSCHED_TUNE says so: `function.tune(arguments…)` does. Raises UsageError for what cannot be tuned.
    """
    if callable(space):
        raise UsageError("autotune is a decorator with arguments", hint='write @autosched.autotune("auto")')

    def decorate(func: Callable[..., object]) -> AutotunedFunction:
        inner, options = unwrap(func)
        name = op_name(inner)
        if is_cuda(func) or is_cuda_target(target):
            if metric is not None:
                raise UsageError("metric= is for functions on the CPU", where=name)
            from autosched.own.gpu.decorate import make_kernel

            options = {} if not is_cuda(func) else options
            return make_kernel(
                inner, options, space, constraints, LaunchRule(grid, threads, shared), target,
                key=key, check=OwnCheck(check, rtol, atol), example=example, records=records,
            )  # fmt: skip
        if given := [part for part, rule in (("grid", grid), ("threads", threads), ("shared", shared)) if rule]:
            raise UsageError(f"{given[0]}= is for CUDA kernels", where=name, hint='decorate one, or say target="cuda"')
        form = UfuncForm.of(func)
        knobs = _knobs(space, inner, options, form)
        names = [k.name for k in knobs.knobs] if isinstance(knobs, ConfigSpace) else list(knobs)
        whole = None if form is None else form.signature(inner, set(names))
        signature = Signature.of(inner, names, name, whole)
        check_key(key, signature, name)
        limits: dict[str, Any] = {} if form is None else {"known": UFUNC_KNOBS, "others": (), "host_knobs": ()}
        made = make_space(name, knobs, constraints, signature, options, **limits)
        return AutotunedFunction(
            inner, options, made, signature, key=key, check=OwnCheck(check, rtol, atol), example=example,
            records=records, form=form, work=Work(flops, bytes),
            metrics=Metrics.of(metric, (*signature.arguments, *names), name),
        )  # fmt: skip

    return decorate


def _knobs(
    space: Mapping[str, Sequence[object]] | ConfigSpace | str, inner: Callable[..., object],
    options: Mapping[str, object], form: UfuncForm | None,
) -> Any:  # fmt: skip
    """The candidates that the caller gave, or those that the function's source suggests."""
    if not isinstance(space, str):
        return space
    from autosched.own.propose import propose

    return propose(inner, options if form is None else {"error_model": "numpy", **options}, space)


def is_cuda_target(target: str | None) -> bool:
    """Whether a target given to the decorator is a GPU's. Raises UsageError for another CPU than this one."""
    if target is None:
        return False
    chosen = Target(target)
    if chosen.is_cpu and chosen != Target("cpu"):
        raise UsageError(f"your own functions are compiled for this CPU, not for '{target}'", hint='target="cuda"')
    return chosen.backend == "cuda"
