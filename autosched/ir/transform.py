"""Passes: functions from module to module, and TVM's names over them: `Sequential`, `PassContext`, `module_pass`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, TypeAlias

from autosched.errors import InvalidTypeError, NameNotFoundError, UnknownOptionError, VerifyError, WrongOptionError
from autosched.ir.module import IRModule
from autosched.ir.node import Attrs

# TVM's options of passes and the types of their values; flags may be 0 and 1.
HONOURED: Mapping[str, tuple[type, ...]] = {"tir.add_lower_pass": (list, tuple), "tir.disable_vectorize": (bool,)}
# They say how TVM makes code and not what the code computes; a build here decides these by itself.
WITHOUT_EFFECT: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys((
        "tir.disable_assert", "tir.disable_cse_tir", "tir.enable_equiv_terms_in_cse_tir", "tir.noalias",
        "tir.disable_storage_rewrite", "tir.enable_debug", "tir.merge_static_smem", "tir.is_entry_func",
        "tir.debug_keep_trivial_loop", "relay.backend.use_auto_scheduler", "relay.backend.use_meta_schedule",
        "relay.backend.use_meta_schedule_dispatch", "relay.backend.disable_compile_engine_cache",
        "relay.FuseOps.link_params", "relay.collage.enable_collage", "relax.transform.apply_legalize_ops",
    ), (bool,)),
    **dict.fromkeys(("relax.FuseOps.max_depth", "relay.FuseOps.max_depth", "relay.fallback_device_type"), (int,)),
    **dict.fromkeys((
        "tir.UnrollLoop", "tir.LoopPartition", "tir.HoistIfThenElse", "tir.HoistExpression", "tir.InjectDoubleBuffer",
        "tir.ReduceBranchingThroughOvercompute", "tir.RemoveNoOp", "tir.Simplify",
    ), (Mapping,)),
}  # fmt: skip
# They change what runs: refused where they are set, with what to do instead.
REFUSED: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tir.instrument_bound_checkers": ((bool,), "build with checks=True"),
    "tir.instrument_lwp": ((bool,), "autosched bench --profile shows where the time goes"),
    "tir.detect_global_barrier": ((bool,), "it is for GPUs"), "tir.use_async_copy": ((bool,), "it is for GPUs"),
    "tir.ptx_ldg32": ((bool,), "it is for GPUs"), "tir.vtcm_capacity": ((int,), "it is for Hexagon"),
    "tir.usmp.enable": ((bool,), "the build plans memory by itself"),
    "relax.backend.use_cuda_graph": ((bool,), "it is for GPUs"),
}  # fmt: skip


def absent(package: str, name: str, reasons: Mapping[str, str]) -> NameNotFoundError:
    """The error for a pass that a package does not have; `reasons` say of TVM's what to do instead."""
    return NameNotFoundError(f"there is no pass {package}.{name} here", hint=reasons.get(name))


ModuleFunction = Callable[..., IRModule]


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What is known of a pass without running it."""

    opt_level: int
    name: str
    required: tuple[str, ...] = ()

    def __str__(self) -> str:
        start = f"The meta data of the pass - pass name: {self.name}, opt_level: {self.opt_level}"
        return f"{start}, required passes: {list(self.required)}"


class PassContext:
    """Which passes run and who watches; entered with `with`, read by `Pass.__call__` only.

    opt_level      passes of a higher level are left out by `Sequential`
    required_pass  names that run whatever their level; disabled_pass: names that never run
    instruments    objects with any of run_before_pass(mod, info), run_after_pass(mod, info), should_run(mod, info)
    """

    _current: ContextVar[PassContext | None] = ContextVar("pass_context", default=None)

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[object] | None = None,
        config: Attrs | None = None,
    ):
        if not isinstance(opt_level, int):
            raise InvalidTypeError(f"PassContext: opt_level is a {type(opt_level).__name__}, not an int")
        for name, given in (("required_pass", required_pass), ("disabled_pass", disabled_pass)):
            if isinstance(given, str) or not all(isinstance(item, str) for item in given or ()):
                raise InvalidTypeError(f"PassContext: {name} is a list of names, got {given!r}")
        _check_instruments(instruments)
        self.opt_level = opt_level
        self.required_pass = tuple(required_pass or ())
        self.disabled_pass = tuple(disabled_pass or ())
        self.instruments = tuple(instruments or ())
        self.config = dict(config or {})
        for key, value in self.config.items():
            _check_option(key, value)
        self._tokens: list[Token[PassContext | None]] = []

    def __enter__(self) -> PassContext:
        self._tokens.append(PassContext._current.set(self))
        self._tell("enter_pass_ctx")
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("exit_pass_ctx")
        PassContext._current.reset(self._tokens.pop())

    def _tell(self, event: str) -> None:
        for instrument in self.instruments:
            getattr(instrument, event, lambda: None)()

    def override_instruments(self, instruments: Sequence[object] | None) -> None:
        """Let others watch from now on."""
        self._tell("exit_pass_ctx")
        self.instruments = tuple(instruments or ())
        self._tell("enter_pass_ctx")

    @staticmethod
    def current() -> PassContext:
        """The innermost context; a default one outside of any."""
        return PassContext._current.get() or PassContext()

    def enabled(self, info: PassInfo) -> bool:
        """Whether a sequence runs the pass."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or info.opt_level <= self.opt_level


def _check_option(key: str, value: object) -> None:
    """Raises UnknownOptionError for an option without meaning here, WrongOptionError for a value of another type."""
    types = {**HONOURED, **WITHOUT_EFFECT}.get(key) or REFUSED.get(key, ((), ""))[0]
    if not types:
        known = ", ".join(sorted([*HONOURED, *WITHOUT_EFFECT]))
        raise UnknownOptionError(f"Invalid config option '{key}'", hint=f"there are {known}")
    if types in ((bool,), (int,)):
        value = getattr(value, "value", value)  # T.bool(True)
    right = isinstance(value, types) and not (types == (int,) and isinstance(value, bool))
    if not right and not (types == (bool,) and isinstance(value, int) and value in (0, 1)):
        expected = " or ".join(t.__name__.lower() for t in types)
        raise WrongOptionError(f"PassContext: expect config {key} to have type {expected}, got {value!r}")
    if key in REFUSED and value:
        raise UnknownOptionError(f"PassContext: config {key} is not available", hint=REFUSED[key][1])


EVENTS = ("enter_pass_ctx", "exit_pass_ctx", "should_run", "run_before_pass", "run_after_pass")


def _check_instruments(instruments: Sequence[object] | None) -> None:
    if instruments is not None and (isinstance(instruments, str) or not isinstance(instruments, Sequence)):
        raise InvalidTypeError(f"PassContext: instruments is a {type(instruments).__name__}, not a list")
    for i, instrument in enumerate(instruments or ()):
        if not any(hasattr(instrument, event) for event in EVENTS):
            raise InvalidTypeError(
                f"PassContext: instruments[{i}] is a {type(instrument).__name__}",
                hint=f"an instrument has any of {', '.join(EVENTS)}",
            )


class Pass:
    """A named function from module to module; calling it returns a new module and leaves its input as it is."""

    def __init__(self, function: ModuleFunction, info: PassInfo):
        self._function, self.info = function, info
        self._takes_context = len(inspect.signature(function).parameters) > 1
        self.__doc__ = function.__doc__

    @property
    def name(self) -> str:
        return self.info.name

    def __call__(self, mod: IRModule) -> IRModule:
        if not isinstance(mod, IRModule):
            raise InvalidTypeError(f"pass '{self.name}' takes an IRModule, got {type(mod).__name__}")
        context = PassContext.current()
        if not all(_ask(i, "should_run", mod, self.info) for i in context.instruments):
            return mod
        for instrument in context.instruments:
            _ask(instrument, "run_before_pass", mod, self.info)
        result = self._function(mod, context) if self._takes_context else self._function(mod)
        if not isinstance(result, IRModule):
            raise InvalidTypeError(f"pass '{self.name}' returned {type(result).__name__}, not an IRModule")
        for instrument in context.instruments:
            _ask(instrument, "run_after_pass", result, self.info)
        return result

    def __repr__(self) -> str:
        return f"Pass({self.name!r})"


ModulePass = Pass  # TVM's names of kinds of passes; here all rewrite modules


def _ask(instrument: object, method: str, mod: IRModule, info: PassInfo) -> object:
    f = getattr(instrument, method, None)
    return True if f is None else f(mod, info)


class Sequential(Pass):
    """Passes one after the other; those that the PassContext disables are left out."""

    def __init__(
        self,
        passes: Sequence[Pass] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
    ):
        if not isinstance(passes, Sequence) or not all(isinstance(p, Pass) for p in passes):
            raise InvalidTypeError("Sequential takes a list of passes")
        self.passes = tuple(passes)
        super().__init__(self._run, PassInfo(opt_level, name, tuple(required or ())))

    def _run(self, mod: IRModule) -> IRModule:
        context = PassContext.current()
        for p in self.passes:
            if context.enabled(p.info):
                mod = p(mod)
        return mod


def check_pass_options(what: str, opt_level: object, name: object) -> None:
    """Refuse a level that is no integer and a name that is no text. Raises InvalidTypeError."""
    if opt_level is not None and (isinstance(opt_level, bool) or not isinstance(opt_level, int)):
        raise InvalidTypeError(f"{what}: opt_level is a {type(opt_level).__name__}, not an int")
    if name is not None and not isinstance(name, str):
        raise InvalidTypeError(f"{what}: name is a {type(name).__name__}, not a text")


# What a decorator of passes gives: a pass for a function, a maker of passes for a class, else a decorator.
PassDecorator: TypeAlias = Any


def module_pass(
    pass_func: Callable[..., object] | None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> PassDecorator:
    """TVM's decorator: a function `(mod, ctx) -> mod`, or a class with `transform_module(mod, ctx)`, becomes a pass.

    A decorated class is called with its own arguments and gives a pass.
    """
    check_pass_options("module_pass", opt_level, name)

    def decorate(subject: Any) -> Pass | Callable[..., Pass]:
        info = PassInfo(opt_level or 0, name or subject.__name__, tuple(required or ()))
        if inspect.isclass(subject):

            def make(*args: object, **kwargs: object) -> Pass:
                instance: Any = subject(*args, **kwargs)
                return Pass(lambda mod, ctx: instance.transform_module(mod, ctx), info)

            make.__name__, make.__doc__ = subject.__name__, subject.__doc__
            return make
        return Pass(lambda mod, ctx: subject(mod, ctx), info)

    return decorate if pass_func is None else decorate(pass_func)


def function_kind(
    kind: type, method: str, pass_func: object, opt_level: int | None, name: str | None, required: Sequence[str] | None
) -> PassDecorator:
    """Decorator of functions `(func, mod, ctx) -> func`, or classes with that method, over functions of one kind."""

    check_pass_options(method.removeprefix("transform_") + "_pass", opt_level, name)

    def whole(change: Callable[..., object], label: str) -> Callable[[IRModule, PassContext], IRModule]:
        def run(mod: IRModule, ctx: PassContext) -> IRModule:
            new = {gv: change(f, mod, ctx) if isinstance(f, kind) else f for gv, f in mod.functions.items()}
            for gv, f in new.items():
                if f is not mod[gv] and not isinstance(f, kind):
                    raise InvalidTypeError(f"pass '{label}' made a {type(f).__name__} of the function '{gv.name}'")
            return mod.with_functions(new)

        return run

    def decorate(subject: Any) -> Pass | Callable[..., Pass]:
        info = PassInfo(opt_level or 0, name or subject.__name__, tuple(required or ()))
        if not inspect.isclass(subject):
            return Pass(whole(subject, info.name), info)
        if not hasattr(subject, method):
            raise InvalidTypeError(f"class {subject.__name__} has no method {method}")

        def make(*args: object, **kwargs: object) -> Pass:
            return Pass(whole(getattr(subject(*args, **kwargs), method), info.name), info)

        make.__name__, make.__doc__ = subject.__name__, subject.__doc__
        return make

    return decorate if pass_func is None else decorate(pass_func)


def graph_pass(name: str, opt_level: int = 0) -> Callable[[Callable[[IRModule], IRModule]], Pass]:
    """Our own passes' decorator: a function from module to module becomes a named pass."""
    return lambda function: Pass(function, PassInfo(opt_level, name))


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:  # noqa: N802
    """A pass that prints the module and leaves it as it is."""

    def show(mod: IRModule) -> IRModule:
        print(f"PrintIR({header}):\n{mod.script(show_meta=show_meta_data)}")
        return mod

    return Pass(show, PassInfo(0, "PrintIR"))


Watcher = Callable[[str, IRModule, float], None]


def run_passes(
    module: IRModule,
    passes: Sequence[Pass],
    *,
    verify: Callable[[IRModule], None] | None = None,
    watch: Watcher | None = None,
) -> IRModule:
    """Run passes in order, verifying after each and telling `watch(name, module, seconds)`.

    Raises VerifyError naming the pass whose result is malformed.
    """
    for p in passes:
        start, before = time.perf_counter(), module
        module = p(module)
        elapsed = time.perf_counter() - start
        if verify is not None and (module is not before or p is passes[0]):
            try:
                verify(module)
            except VerifyError as error:
                raise VerifyError(error.message, where=f"the result of pass '{p.name}': {error.where}") from error
        if watch is not None:
            watch(p.name, module, elapsed)
    return module
