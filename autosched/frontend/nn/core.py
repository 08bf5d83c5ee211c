"""Tensors, parameters and modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, MissingKeyError, TVMError
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, TupleGetItem, Var
from autosched.relax.struct_info import ObjectStructInfo, TensorStructInfo, TupleStructInfo
from autosched.runtime.array import array as make_array
from autosched.tir.expr import Var as Symbol

P = TypeVar("P")
_default_dtype = "float32"
METHODS: dict[str, Callable[..., Any]] = {}  # of tensors and modules; `op` and `export`, made of these, add them


def get_default_dtype() -> str:
    """The dtype of parameters for which none is given."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Set the dtype of parameters for which none is given."""
    global _default_dtype
    _default_dtype = dtype


class Tensor:
    """A value in a model while its method is written down: an expression with operators."""

    def __init__(self, *, _expr: Expr):
        info = _expr.struct_info
        if not isinstance(info, TensorStructInfo):
            raise InvalidTypeError(f"a Tensor stands for a tensor, not for {type(info).__name__}")
        self._expr = _expr

    @staticmethod
    def from_const(data: object) -> Tensor:
        """A tensor of known values."""
        return Tensor(_expr=Constant(np.asarray(data)))

    @staticmethod
    def from_scalar(data: float, dtype: str) -> Tensor:
        """A number as a tensor of no dimensions."""
        return Tensor(_expr=Constant(np.asarray(data, dtype=dtype)))

    @staticmethod
    def placeholder(shape: Sequence[object], dtype: str, name: str = "tensor") -> Tensor:
        """A free variable."""
        return Tensor(_expr=Var(name, TensorStructInfo(dims(shape, {}), dtype)))

    @property
    def struct_info(self) -> TensorStructInfo:
        info = self._expr.struct_info
        assert isinstance(info, TensorStructInfo), "checked when the tensor was made"
        return info

    @property
    def shape(self) -> list[Any]:
        """The dimensions: integers, and expressions where they are symbols."""
        return list(self.struct_info.dims)

    @property
    def ndim(self) -> int:
        return self.struct_info.ndim

    @property
    def dtype(self) -> str:
        return self.struct_info.dtype

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'

    def _op(self, name: str, *args: object, **kwargs: object) -> Any:
        return METHODS[name](self, *args, **kwargs)

    def __add__(self, other: object) -> Tensor:
        return self._op("add", other)  # type: ignore[no-any-return]

    __radd__ = __add__

    def __sub__(self, other: object) -> Tensor:
        return self._op("subtract", other)  # type: ignore[no-any-return]

    def __rsub__(self, other: object) -> Tensor:
        return METHODS["subtract"](other, self)  # type: ignore[no-any-return]

    def __mul__(self, other: object) -> Tensor:
        return self._op("multiply", other)  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Tensor:
        return self._op("divide", other)  # type: ignore[no-any-return]

    def __neg__(self) -> Tensor:
        return self._op("negative")  # type: ignore[no-any-return]

    def __matmul__(self, other: object) -> Tensor:
        return self._op("matmul", other)  # type: ignore[no-any-return]

    def __lt__(self, other: object) -> Tensor:
        return self._op("less", other)  # type: ignore[no-any-return]

    def __le__(self, other: object) -> Tensor:
        return self._op("less_equal", other)  # type: ignore[no-any-return]

    def __gt__(self, other: object) -> Tensor:
        return self._op("greater", other)  # type: ignore[no-any-return]

    def __ge__(self, other: object) -> Tensor:
        return self._op("greater_equal", other)  # type: ignore[no-any-return]

    def astype(self, dtype: str) -> Tensor:
        return self._op("astype", dtype)  # type: ignore[no-any-return]

    def maximum(self, other: object) -> Tensor:
        return self._op("maximum", other)  # type: ignore[no-any-return]

    def minimum(self, other: object) -> Tensor:
        return self._op("minimum", other)  # type: ignore[no-any-return]

    def reshape(self, *shape: object) -> Tensor:
        return self._op("reshape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else list(shape))  # type: ignore[no-any-return]

    def permute_dims(self, *axes: object) -> Tensor:
        flat = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else list(axes) or None
        return self._op("permute_dims", flat)  # type: ignore[no-any-return]

    permute = permute_dims


class Parameter(Tensor):
    """A weight: a tensor without value until `data` is set (load_state_dict does)."""

    def __init__(self, shape: Sequence[object], dtype: str | None = None):
        kind = dtype or get_default_dtype()
        super().__init__(_expr=Var("param", TensorStructInfo(dims(shape, {}), kind)))
        self._data: Any = None
        self.attrs: dict[str, object] = {}

    @property
    def data(self) -> Any:
        """The array, or None."""
        return self._data

    @data.setter
    def data(self, value: object) -> None:
        if value is None:
            self._data = None
            return
        array = _as_array(value)
        if array.shape != tuple(self.shape):
            raise InvalidValueError(f"a parameter of shape {self.shape} cannot take data of shape {list(array.shape)}")
        if str(array.dtype) != self.dtype:
            raise InvalidValueError(f"a parameter of dtype {self.dtype} cannot take data of dtype {array.dtype}")
        self._data = make_array(array)

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype; refused where there is data."""
        if dtype is None:
            return
        if self._data is not None:
            raise InvalidValueError("the dtype of a parameter that has data cannot be changed")
        self._expr = Var("param", TensorStructInfo(self.struct_info.shape, dtype))


def _as_array(value: object) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def dims(shape: Sequence[object], symbols: dict[str, object]) -> list[Any]:
    """Dimensions as a shape takes them: names become symbols, the same one for the same name in `symbols`."""
    return [symbols.setdefault(d, Symbol(d, "int64")) if isinstance(d, str) else d for d in shape]


class Object:
    """A value of a model that is no tensor."""

    def __init__(self, *, _expr: Expr, _name: str):
        builder = BlockBuilder.current()
        self._expr = builder.emit(_expr, _name) if not isinstance(_expr, Var) and builder is not None else _expr
        if not isinstance(self._expr.struct_info, ObjectStructInfo):
            raise InvalidTypeError(f"an Object stands for no {type(self._expr.struct_info).__name__}")


class Effect:
    """Base of states. A method's function takes what `create` gives and gives what `finalize` gives."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        """Bind the first values, in the function `_initialize_effect`."""
        raise NotImplementedError(f"{type(self).__name__} has no method 'emit_init'")

    def create(self, name_hint: str) -> list[Var]:
        """The parameters of a method's function that stand for the state."""
        raise NotImplementedError(f"{type(self).__name__} has no method 'create'")

    def set_state(self, state_vars: list[Any]) -> None:
        """Take the state that a method begins with."""
        raise NotImplementedError(f"{type(self).__name__} has no method 'set_state'")

    def finalize(self) -> list[Any]:
        """The state that a method ends with; it is forgotten."""
        raise NotImplementedError(f"{type(self).__name__} has no method 'finalize'")

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype; a state without one stays."""


def _as_subroutine(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which calls a function of the module instead where its class says `define_subroutine`."""

    @functools.wraps(forward)
    def dispatch(self: Module, *args: object, **kwargs: object) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        return METHODS["subroutine"](self, forward, args, kwargs)

    return dispatch


class Module:
    """Base of models: attributes that are parameters or modules belong to it, in the order of their assignment."""

    define_subroutine: bool = False  # whether `forward` becomes a function of its own, which methods call

    def __init_subclass__(cls) -> None:
        forward = cls.__dict__.get("forward")
        if forward is not None:
            cls.forward = _as_subroutine(forward)  # type: ignore[attr-defined]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if not hasattr(self, "forward"):
            raise NotImplementedError(f"{type(self).__name__} has no method 'forward'")
        return self.forward(*args, **kwargs)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names."""
        yield from named_parts(self, Parameter, prefix)

    def parameters(self) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(self, *, prefix: str = "", destination: dict[str, Parameter] | None = None) -> dict[str, Parameter]:
        """Parameters by dotted name."""
        result = {} if destination is None else destination
        result.update(self.named_parameters(prefix))
        return result

    def load_state_dict(self, state_dict: Mapping[str, object], strict: bool = True) -> tuple[list[str], list[str]]:
        """Set parameters from arrays or tensors. Returns the missing and the unexpected names; KeyError if strict."""
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        if strict and (missing or unexpected):
            raise MissingKeyError(f"load_state_dict: missing keys: {missing}, unexpected keys: {unexpected}")
        for name, value in state_dict.items():
            if name in own:
                try:
                    own[name].data = value.data if isinstance(value, Parameter) else value
                except (InvalidTypeError, InvalidValueError) as error:
                    raise type(error)(f"load_state_dict: '{name}': {error.message}") from None
        return missing, unexpected

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype of all parameters and parts."""
        for part in vars(self).values():
            if isinstance(part, Module | Parameter | Effect):
                part.to(dtype)
        if dtype is not None and isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype

    def export_tvm(
        self, spec: Mapping[str, object], debug: bool = False, allow_extern: bool = False
    ) -> tuple[Any, list[tuple[str, Parameter]]]:
        """An IRModule with a function for each method of `spec`, and the parameters behind its inputs."""
        return METHODS["export_tvm"](self, spec, debug, allow_extern)  # type: ignore[no-any-return]

    def jit(
        self,
        spec: Mapping[str, object],
        device: object = "cpu",
        pipeline: object = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> Any:
        """The compiled module: its methods by name, called with the inputs of `spec`; weights must have data."""
        return METHODS["jit"](self, spec, device, pipeline, out_format, debug)


class ModuleList(Module):
    """Modules in a list, named by their position."""

    def __init__(self, modules: Sequence[Module] = ()):
        self.modules = list(modules)
        for i, module in enumerate(self.modules):
            if not isinstance(module, Module):
                raise InvalidTypeError(f"ModuleList: item {i} is a {type(module).__name__}, not a Module")

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, index: int) -> Module:
        return self.modules[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self.modules[index] = module

    def __len__(self) -> int:
        return len(self.modules)

    def append(self, module: Module) -> None:
        self.modules.append(module)

    def to(self, dtype: str | None = None) -> None:
        for module in self.modules:
            module.to(dtype)

    def forward(self, x: object) -> Any:
        """One after the other."""
        for module in self.modules:
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None):
        self.modules = dict(modules or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __getitem__(self, key: str) -> Module:
        return self.modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.modules[key] = module

    def __len__(self) -> int:
        return len(self.modules)

    def items(self) -> Any:
        return self.modules.items()

    def keys(self) -> Any:
        return self.modules.keys()

    def values(self) -> Any:
        return self.modules.values()

    def to(self, dtype: str | None = None) -> None:
        for module in self.modules.values():
            module.to(dtype)


class ParameterList:
    """Parameters in a list, named by their position."""

    def __init__(self, params: Sequence[Parameter] = ()):
        self.params = list(params)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.params)

    def __getitem__(self, index: int) -> Parameter:
        return self.params[index]

    def __len__(self) -> int:
        return len(self.params)

    def append(self, param: Parameter) -> None:
        self.params.append(param)


class ParameterDict:
    """Parameters by name."""

    def __init__(self, params: Mapping[str, Parameter] | None = None):
        self.params = dict(params or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __getitem__(self, key: str) -> Parameter:
        return self.params[key]

    def __len__(self) -> int:
        return len(self.params)


def _children(owner: object) -> Iterator[tuple[str, object]]:
    if isinstance(owner, ModuleList | ParameterList):
        items = owner.modules if isinstance(owner, ModuleList) else owner.params
        yield from ((str(i), item) for i, item in enumerate(items))
    elif isinstance(owner, ModuleDict | ParameterDict):
        yield from (owner.modules if isinstance(owner, ModuleDict) else owner.params).items()
    else:
        yield from vars(owner).items()


def named_parts(owner: object, kind: type[P], prefix: str = "") -> Iterator[tuple[str, P]]:
    """What is of a kind below a module, each once, with dotted names."""
    yield from _below(owner, kind, prefix, set())


def _below(owner: object, kind: type[P], prefix: str, seen: set[int]) -> Iterator[tuple[str, P]]:
    for name, child in _children(owner):
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(child, kind):
            if id(child) not in seen:
                seen.add(id(child))
                yield path, child
        elif isinstance(child, Module | ParameterList | ParameterDict):
            yield from _below(child, kind, path, seen)


def wrap_nested(expr: Expr, name: str) -> Any:
    """Bind an expression in the method being written and wrap it: a Tensor, or a tuple of them.

    Raises  TVMError outside of `export_tvm`; TypeError for values that are no tensors.
    """
    builder = BlockBuilder.current()
    if builder is None:
        raise TVMError(f"'{name}' is called outside of a method that is being exported", hint="use export_tvm")
    bound = expr if isinstance(expr, Var) else builder.emit(expr, name)
    info = bound.struct_info
    if isinstance(info, TensorStructInfo):
        return Tensor(_expr=bound)
    if isinstance(info, TupleStructInfo):
        return tuple(wrap_nested(TupleGetItem(bound, i), f"{name}.{i}") for i in range(len(info.fields)))
    if isinstance(info, ObjectStructInfo):
        return Object(_expr=bound, _name=name)
    raise InvalidTypeError(f"'{name}' gives {type(info).__name__}, which is no tensor")


def unwrap(value: object) -> Any:
    """Tensors as expressions, in lists and tuples too."""
    if isinstance(value, Tensor | Object):
        return value._expr
    if isinstance(value, list | tuple):
        return type(value)(unwrap(v) for v in value)
    return value


Method = Callable[..., Any]


class Sequential(ModuleList):
    """The result of each is the argument of the next."""

    def __init__(self, *modules: Module):
        super().__init__(modules)
