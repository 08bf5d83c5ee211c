"""`AutotunedFunction`: an own function that runs with the best configuration that is known for its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autosched.driver.build.choose import TRUSTED
from autosched.driver.options import TuneOptions
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.driver.tune.report import TuneReport
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import UsageError
from autosched.own.compiler import COMPILER
from autosched.own.digest import digest
from autosched.own.dispatch import UNSET, QuickCall, quick_call
from autosched.own.jit import divide
from autosched.own.keep import KeptCode
from autosched.own.metric import Metrics
from autosched.own.peak import Work
from autosched.own.references import OwnCheck
from autosched.own.role import ROLE
from autosched.own.signature import Knobs, Signature
from autosched.own.space import OwnSpace, Usable, expected_gain
from autosched.own.specialise import read_source
from autosched.own.transfer import SentFunction, pack_function, pack_types, place_of
from autosched.own.ufunc import Ufunc, UfuncForm
from autosched.own.workload import describe
from autosched.records import DispatchContext, Found, Record, RecordReader, database_to_write, open_store
from autosched.records.contexts import blocks, current_stack
from autosched.records.metrics import pareto
from autosched.records.places import is_there
from autosched.space import Config, ConfigSpace
from autosched.task import Task
from autosched.tuner.measure.base import THREAD_KNOBS

MOST_ENTRIES = 4096  # calls of so many kinds are remembered; then all are forgotten


class AutotunedFunction:
    """What `autotune` makes of a function; called, it is the function, with the knobs chosen.

    form     of a ufunc, how it was made
    work     what the user says of a call's arithmetic and data
    metrics  what it is tuned for; none: for time
    space    knobs and constraints
    py_func  the Python function as it was written, knobs included
    """

    compiler, role = COMPILER, ROLE  # what a builder and a runner do with it, as "module:class"

    def __init__(
        self,
        func: Callable[..., object],
        options: Mapping[str, object],
        space: OwnSpace,
        signature: Signature,
        *,
        key: Sequence[str] | None,
        check: OwnCheck,
        example: object = None,
        records: object = None,
        form: UfuncForm | None = None,
        work: Work | None = None,
        metrics: Metrics | None = None,
    ):
        functools.update_wrapper(self, func)
        self.__name__: str = func.__name__
        self.__qualname__: str = func.__qualname__
        self.py_func, self.options, self.space, self.signature = func, dict(options), space, signature
        self.form, self.work, self.metrics = form, work or Work(), metrics or Metrics()
        self.key, self.check = None if key is None else tuple(key), check
        self._example, self._sources = example, [] if records is None else [records]
        self._table: dict[Hashable, Callable[..., object]] = {}
        self._compiled: dict[str, Callable[..., object]] = {}
        self._dispatchers: dict[str, object] = {}
        self._chosen: dict[str, Config] = {}  # per workload and facts that constraints read
        self._reader: RecordReader | None = None
        self._quick: QuickCall | None = None

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The first call: the quick way is made for arguments of its kinds, and is the only code of calls to come."""
        values, knobs = self.signature.bind(args, kwargs)
        self._quick = quick_call(self.signature, values, self.key, self.space.reads, self._table, blocks, self._slow)
        kind = type(self)
        parts = {"__call__": self._quick.method, "__module__": kind.__module__}
        self.__class__ = type(kind.__name__, (kind,), parts)
        return self._slow(values, knobs)

    def __repr__(self) -> str:
        return f"<autotuned {self.space.name.removeprefix('own/')}: {', '.join(k.name for k in self.space.knobs)}>"

    def __reduce__(self) -> str:
        return self.__qualname__

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else functools.partial(self, instance)

    # ---- for users

    def tune(
        self,
        *args: object,
        budget: float | str | None = None,
        trials: int | None = None,
        until: float = 0.01,
        strategy: str = "auto",
        seed: int = 0,
        records: str | Path | None = None,
        threads: int | None = None,
        timeout: float = 20.0,
        fresh: bool = False,
        hints: bool = True,
        progress: Callable[[TuneReport], None] | None = None,
        **kwargs: object,
    ) -> TuneReport:
        """Search for the fastest configuration for these arguments, which stay as they are, and remember it.

        budget   seconds in all, or a text such as "30s" or "2m";  trials  measurements in all
        until    stop when less than this share of the time is expected to be gained; 0: never for that reason
        records  database to write to, and to look up in from now on; None: the project's or the user's
        threads  that parallel loops may use at most
        timeout  seconds that a candidate may take to be checked and timed; for compiling, at least 20
        fresh    begin a new budget, even if an earlier tuning was killed before its own was spent
        hints    learn from the records of other sizes, devices and versions of the function
        Raises   UsageError for arguments that cannot be sent to a worker, or a default that fails on them.
        """
        from autosched.own.tune import seconds_of, tune_call

        if records is not None and str(records) not in map(str, self._sources):
            self._sources.insert(0, str(records))
        values, _ = self.signature.bind(args, kwargs)
        return tune_call(
            self,
            values,
            options=TuneOptions(
                seconds_of(budget), trials, until, threads, strategy, seed, cache="warm", hints=hints, fresh=fresh,
                verify="task",
            ),
            records=records,
            timeout=timeout,
            progress=progress,
        )  # fmt: skip

    def best_config(self, *args: object, **kwargs: object) -> Config:
        """The configuration that a call with these arguments runs with."""
        values, _ = self.signature.bind(args, kwargs)
        return self._config_for(values)

    def explain(self, *args: object, **kwargs: object) -> Found:
        """What the look-up for these arguments finds: configuration, origin, trust, and for a miss the reason."""
        values, _ = self.signature.bind(args, kwargs)
        return self._look_up(self.task_for(values), self.space_for(values))

    def records(self, *args: object, **kwargs: object) -> tuple[Record, ...]:
        """All records of the function in the database that tuning writes to; with arguments, of such calls alone."""
        from autosched.records import RecordFilter

        key = self.task_for(self.signature.bind(args, kwargs)[0]).key if args or kwargs else ""
        where = database_to_write(self.database)
        if not is_there(where.where):
            return ()
        with open_store(where, write=False) as store:
            return tuple(store.records(RecordFilter(op=self.space.name, workload=key)))

    def pareto(self, *args: object, **kwargs: object) -> tuple[Record, ...]:
        """Of the trials with these arguments, those that no other beats in time and in all metrics; fastest first."""
        current = (r for r in self.records(*args, **kwargs) if r.versions.get("template") == self.version)
        return tuple(pareto(current))

    def source(self, *args: object, config: Config | None = None, **kwargs: object) -> str:
        """The text that is compiled for these arguments, with the knobs as constants; "" where there is no source."""
        chosen = config or self.best_config(*args, **kwargs)
        return self._sent(()).specialised(chosen)[1]

    def save(self, path: str | Path, *args: object, signatures: Sequence[str] = (), **kwargs: object) -> None:
        """Compile it ahead of time: `autosched.load(path)` gives a callable that needs no Numba.

        args, kwargs  arguments of a call that it is compiled for, besides those that records are there for
        signatures    types that it is compiled for, such as "float64[:], float64"
        Raises        UsageError for what cannot be compiled ahead of time.
        """
        from autosched.own.ahead import save_function

        calls = [self.signature.bind(args, kwargs)[0]] if args or kwargs else []
        save_function(self, Path(path), calls, signatures)

    def example(self, func: Callable[[], tuple[object, ...]]) -> Callable[[], tuple[object, ...]]:
        """Decorator for a function that gives the arguments which the command line tunes with."""
        self._example = func
        return func

    @property
    def has_example(self) -> bool:
        """Whether there are arguments that the command line takes by itself."""
        return self._example is not None

    def example_arguments(self) -> tuple[object, ...]:
        """The arguments that the command line tunes with. Raises UsageError where there are none."""
        name = self.space.name.removeprefix("own/")
        try:
            given = self._example() if callable(self._example) else self._example
        except Exception as error:  # the user's function may raise anything
            raise UsageError(f"the example of {name} raises {type(error).__name__}: {error}") from error
        if given is None:
            hint = f"@{self.__name__}.example above a function that returns them, or --inputs x.npz"
            raise UsageError(f"{name} has no example arguments", hint=hint)
        values = tuple(given) if isinstance(given, tuple | list) else (given,)
        try:
            return self.signature.bind(values, {})[0]
        except TypeError as error:
            names = ", ".join(self.signature.arguments)
            raise UsageError(f"the example of {name} does not fit it: {error}", hint=f"it takes {names}") from None

    def jitted(self, *args: object, **kwargs: object) -> Any:
        """Numba's function with the best known configuration for these arguments, to be called in jitted functions.

        Jitted code may also call the autotuned function itself. As it knows no shapes, it gets the configuration for
        the example's arguments; without an example, the default.
        """
        values, _ = self.signature.bind(args, kwargs)
        made = self._dispatcher(self._config_for(values))
        return made.inner if isinstance(made, Ufunc) else made

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks a value of jitted code for: its type."""
        if self.form is not None:
            raise AttributeError("a ufunc is called in jitted code as function.jitted(…)")
        if self._example is None:
            return self._dispatcher(self.space.default)._numba_type_
        return self.jitted(*self.example_arguments())._numba_type_

    def forget(self) -> None:
        """Look configurations up again at the next call: another process may have tuned."""
        self._forget_calls()
        self._reader = None

    # ---- for the tuner

    @property
    def database(self) -> str | Path | None:
        """The database that was named for it; None: the usual one."""
        return next((source for source in self._sources if isinstance(source, str | Path)), None)

    @property
    def sources(self) -> list[Any]:
        """The databases and records that were named for it and are there; none: the usual ones."""
        return [source for source in self._sources if is_there(source)]

    @functools.cached_property
    def version(self) -> str:
        """The digest of what it computes: records of another one are misses."""
        return self._version_now()

    def _version_now(self) -> str:
        """The digest with the values that globals have at this moment."""
        more = {} if self.form is None else {"ufunc": str(self.form)}
        return digest(self.py_func, self.options, {**more, **self.metrics.functions})

    @property
    def _written(self) -> tuple[str, ...]:
        """The arguments that the function itself has: a ufunc's may be one fewer."""
        names = self.py_func.__code__.co_varnames
        return tuple(name for name in self.signature.arguments if name in names)

    @property
    def is_parallel(self) -> bool:
        """Whether a configuration may use several threads."""
        names = {knob.name for knob in self.space.knobs}
        return bool(self.options.get("parallel")) or "parallel" in names or bool(names & set(THREAD_KNOBS))

    def threads(self, wanted: int | None = None) -> int:
        """The threads that a call may use."""
        return resolve_threads(wanted) if self.is_parallel else 1

    def space_for(self, values: tuple[object, ...], threads: int | None = None) -> ConfigSpace:
        """The configurations for a call."""
        return self.space.for_call(self.signature.named(values), self.threads(threads))

    def task_for(self, values: tuple[object, ...], threads: int | None = None, *, sent: object = None) -> Task:
        """The tuning task of a call."""
        named = self.signature.named(values)
        workload = describe(self.space.name, named, self.key)
        name = str(workload).removeprefix("own/")
        return Task(workload, resolve_target(), func=sent, threads=self.threads(threads), name=name, cache="warm")

    def host_values(self, values: tuple[object, ...]) -> tuple[object, ...]:
        """A call's arguments as they can be written to files."""
        return values

    def sent_function(self, values: tuple[object, ...]) -> SentFunction:
        """The function as it is sent to workers. Raises UsageError where it cannot be."""
        return self._sent(values, is_sent=True)

    def sent_here(self) -> SentFunction:
        """The function as this process compiles it."""
        return self._sent(())

    def _sent(self, values: tuple[object, ...], *, is_sent: bool = False) -> SentFunction:
        place = place_of(self.py_func)
        sent = SentFunction(
            pack_function(self.py_func, place) if is_sent else b"",
            place,
            self.__name__,
            read_source(self.py_func),
            self._written,
            self.signature.knobs,
            self.options,
            pack_types(values) if is_sent else b"",
            form=self.form,
        )
        if not is_sent:
            sent.__dict__["func"] = self.py_func  # it never leaves this process
        return sent

    # ---- calls

    def _slow(self, values: tuple[object, ...], knobs: Knobs) -> object:
        """A call of a kind that was not seen before, with knobs given, or inside a block that says what is used."""
        given = {name: value for name, value in knobs.items() if value is not UNSET}
        config = self._config_for(values)
        if given:
            return self._callable(config.with_knobs(**given))(*values)
        call = self._callable(config)
        if not current_stack():
            self._remember(values, call)
        return call(*values)

    def _remember(self, values: tuple[object, ...], call: Callable[..., object]) -> None:
        if len(self._table) >= MOST_ENTRIES:
            self._forget_calls()
        try:
            assert self._quick is not None, "made with the first call"
            self._table[self._quick.token(*values)] = call
            self._quick.put_first(call, *values)
        except (AttributeError, TypeError):  # arguments of other kinds than the first call's
            return

    def _forget_calls(self) -> None:
        self._table.clear()
        self._chosen.clear()
        if self._quick is not None:
            self._quick.put_first(None)

    def _config_for(self, values: tuple[object, ...]) -> Config:
        """The configuration for a call: looked up once for each kind of call, tuned first where the settings say so."""
        task = self.task_for(values)
        space = self.space_for(values)
        if current_stack():
            return self._look_up(task, space).config or self.space.default_for(space)
        key = f"{task.key} {space.values}" if self.space.reads else task.key
        if key not in self._chosen:
            found = self._look_up(task, space)
            mode = AUTOSCHED_TUNE.get()
            if mode == "force" or (mode == "tune" and found.trust not in TRUSTED):
                self.tune(*values)
                found = self._look_up(task, space)
            self._chosen[key] = found.config or self.space.default_for(space)
        return self._chosen[key]

    def _look_up(self, task: Task, space: ConfigSpace) -> Found:
        valid = Usable(space, {self.space.name: self.version})
        if DispatchContext.current is not DispatchContext.root:
            return resolve_records(None, predict=expected_gain).best(task, valid)
        if self._reader is None:
            self._reader = resolve_records(self.sources or None, predict=expected_gain)
        return self._reader.best(task, valid)

    def _callable(self, config: Config) -> Callable[..., object]:
        """The compiled function of a configuration, made once."""
        if config.key not in self._compiled:
            threads = divide(config.knobs, self.signature.knobs, self.options).threads
            dispatcher = self._dispatcher(config)
            self._compiled[config.key] = dispatcher if threads is None else _on_threads(dispatcher, threads)
        return self._compiled[config.key]

    def _dispatcher(self, config: Config) -> Any:
        """Numba's function of a configuration, made once, whose machine code later processes find."""
        if config.key not in self._dispatchers:
            made = self._sent(()).dispatcher(config)
            if self.form is None:
                made._cache = KeptCode(lambda: f"{self.space.name} {self._version_now()} {config.key}")
            self._dispatchers[config.key] = made
        return self._dispatchers[config.key]


def _on_threads(call: Callable[..., object], threads: int) -> Callable[..., object]:
    """A function whose parallel loops use at most so many threads; the caller's setting is left as it was."""
    import numba

    get, put = numba.get_num_threads, numba.set_num_threads
    wanted = max(1, min(threads, numba.config.NUMBA_NUM_THREADS))

    def run(*values: object) -> object:
        before = get()
        if before == wanted:
            return call(*values)
        put(wanted)
        try:
            return call(*values)
        finally:
            put(before)

    return run
