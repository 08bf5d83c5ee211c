"""AutoTVM's templates and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from autosched import records
from autosched.autotvm.task.context import ApplyConfig, DispatchContext
from autosched.autotvm.task.flop import compute_flop
from autosched.autotvm.task.space import ConfigSpace, FallbackConfigEntity
from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.target import Target
from autosched.te import Tensor, placeholder
from autosched.tir.expr import FloatImm, IntImm, StringImm, const_int

if TYPE_CHECKING:
    from autosched.te import Schedule


def serialize_args(args: Sequence[object]) -> tuple[object, ...]:
    """Tensors become ("TENSOR", shape, dtype), sequences tuples. Raises TVMError for what is no plain value."""
    return tuple(_serialize(arg) for arg in args)


def _serialize(arg: object) -> object:
    match arg:
        case Tensor():
            return ("TENSOR", tuple(const_int(d) if const_int(d) is not None else str(d) for d in arg.shape), arg.dtype)
        case list() | tuple():
            return tuple(_serialize(x) for x in arg)
        case str() | int() | float() | bool() | None:
            return arg
        case IntImm() | FloatImm() | StringImm():
            return arg.value
    raise InvalidTypeError(
        f'Do not support type "{type(arg).__name__}" in argument. Consider to use primitive types or tvm.tir.Var only'
    )


def deserialize_args(args: Sequence[object]) -> tuple[object, ...]:
    """The other way: ("TENSOR", shape, dtype) becomes a placeholder."""
    return tuple(
        placeholder(a[1], a[2]) if isinstance(a, tuple | list) and len(a) == 3 and a[0] == "TENSOR" else a for a in args
    )


def args_to_workload(args: Sequence[object], task_name: str | None = None) -> tuple[object, ...]:
    """The key of a template's arguments: (name, *values)."""
    return ((task_name,) if task_name is not None else ()) + serialize_args(args)


Template: TypeAlias = Callable[..., Any]  # of a template's arguments -> (schedule, tensors)
TASK_TABLE: dict[str, Template] = {}


def _query(target: Target | None, workload: object) -> object:
    context = records.DispatchContext.current
    if isinstance(context, DispatchContext):
        return context.query(target, workload)
    root = records.DispatchContext.root
    return root.query(target, workload) if isinstance(root, DispatchContext) else FallbackConfigEntity()


def get_config() -> Any:
    """The configuration of the template that runs now."""
    return _query(Target.current(allow_none=True), None)


def template(task_name: str, func: Callable[..., object] | None = None) -> Any:
    """Decorator: a function of plain arguments that gives (schedule, tensors) becomes a template.

    Calling it asks the dispatch context for the configuration of its arguments. Raises TVMError on keyword arguments.
    """
    if not isinstance(task_name, str):
        raise InvalidTypeError(f"template: the name is a {type(task_name).__name__}, not a text")

    def decorate(subject: Callable[..., object]) -> Callable[..., object]:
        if task_name in TASK_TABLE and TASK_TABLE[task_name] is not subject:
            pass  # a template that is defined again replaces the first, as in a notebook
        TASK_TABLE[task_name] = subject

        @wraps(subject)
        def call(*args: object, **kwargs: object) -> object:
            assert not kwargs, "Do not support keyword arguments in tunable function calls"
            workload = args_to_workload(args, task_name)
            config = _query(Target.current(allow_none=True), workload)
            with ApplyConfig(config):
                return subject(*args)

        return call

    return decorate if func is None else decorate(func)


class Task:
    """A template with arguments, for a target; `config_space` is what can be tuned."""

    def __init__(self, name: str, args: Sequence[object]):
        self.name, self.args = name, tuple(args)
        self.kwargs: dict[str, object] = {}
        self.config_space: ConfigSpace | None = None
        self.flop: float | None = None
        self.target: Target | None = None
        self.target_host: Target | None = None

    @property
    def func(self) -> Template:
        """The template's function. Raises TVMError where none of that name is registered."""
        if self.name not in TASK_TABLE:
            raise InvalidValueError(
                f"Attempting to invoke a missing task {self.name}", hint="import the module that registers it"
            )
        return TASK_TABLE[self.name]

    @property
    def workload(self) -> tuple[object, ...]:
        """The key: (name, *arguments as values)."""
        return (self.name, *serialize_args(self.args))

    def instantiate(self, config: object) -> tuple[Schedule, list[Tensor]]:
        """(schedule, tensors) of a configuration.

        Raises InvalidTypeError (a TypeError) for what is none.
        """
        if not isinstance(config, ConfigSpace):
            raise InvalidTypeError(
                f"instantiate: config is a {type(config).__name__}, expected a ConfigEntity",
                hint="take one from task.config_space.get(index)",
            )
        config.flop = 0.0
        with ApplyConfig(config), self.target or Target("llvm"):
            sch, arg_bufs = self.func(*deserialize_args(self.args))
        if not self.flop:
            self.flop = config.flop or compute_flop(sch)
        return sch, arg_bufs

    def __getstate__(self) -> Mapping[str, object]:
        return self.__dict__

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


def create(task_name: str, args: Sequence[object], target: object, target_host: object = None) -> Task:
    """Make a task; the template runs once to define its space.

    Raises TVMError for an unknown template, and where its operations can neither be counted nor were given.
    """
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise InvalidTypeError(f"create: args is a {type(args).__name__}, expected a tuple of the template's arguments")
    task = Task(task_name, serialize_args(args))
    task.target, task.target_host = Target.canon_target_and_host(target, target_host)
    space = ConfigSpace()
    with ApplyConfig(space), task.target or Target("llvm"):
        result = task.func(*deserialize_args(task.args))
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise InvalidTypeError(
            f"template '{task_name}' gave a {type(result).__name__}", hint="it returns (schedule, [tensors])"
        )
    sch, _ = result
    space.code_hash = getattr(sch, "code_hash", None)
    task.config_space = space
    task.flop = space.flop or compute_flop(sch)
    return task
