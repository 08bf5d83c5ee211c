"""IRModule: named functions of both levels, relax functions and PrimFuncs, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import Attrs, FrozenDict, Node
from autosched.ir.printing import Scripted
from autosched.lazy_names import hook

AnyFunction: TypeAlias = Any  # a relax Function or a PrimFunc, as the caller knows; both lie in packages above


@dataclass(frozen=True, slots=True, eq=False)
class GlobalVar(Node):
    """The name of a function in a module. Within one module there is one GlobalVar per name."""

    is_variable: ClassVar[bool] = True
    name: str

    @property
    def name_hint(self) -> str:
        return self.name

    def __call__(self, *args: object) -> Any:
        """A call of the function in a graph."""
        return hook("call")(self, args)

    def __repr__(self) -> str:
        return f'I.GlobalVar("{self.name}")'

    __str__ = __repr__


class IRModule(Scripted, Node):
    """Functions by name. Passes return new modules and never change their input.

    functions  a mapping from name or GlobalVar to a relax Function or PrimFunc
    attrs      module attributes
    """

    __slots__ = ("_functions", "attrs", "global_infos")

    def __init__(
        self,
        functions: Mapping[str, AnyFunction]
        | Mapping[GlobalVar, AnyFunction]
        | Mapping[str | GlobalVar, AnyFunction]
        | None = None,
        attrs: Attrs | None = None,
        global_infos: Attrs | None = None,
    ):
        if functions is not None and not isinstance(functions, Mapping):
            raise InvalidTypeError(f"IRModule takes a mapping from names to functions, got {type(functions).__name__}")
        self._functions: dict[GlobalVar, AnyFunction] = {}
        for key, function in (functions or {}).items():
            if not isinstance(key, str | GlobalVar) or not isinstance(function, Node):
                raise InvalidTypeError(f"IRModule: '{key}' is a {type(function).__name__}, no function")
            self._functions[key if isinstance(key, GlobalVar) else GlobalVar(key)] = function
        self.attrs: Attrs = FrozenDict(attrs or {})
        self.global_infos: Attrs = FrozenDict(global_infos or {})

    @property
    def functions(self) -> Mapping[GlobalVar, AnyFunction]:
        return dict(self._functions)

    def functions_items(self) -> list[tuple[GlobalVar, AnyFunction]]:
        """(GlobalVar, function) sorted by name."""
        return sorted(self._functions.items(), key=lambda item: item[0].name)

    def get_global_vars(self) -> list[GlobalVar]:
        """All names, sorted."""
        return [gv for gv, _ in self.functions_items()]

    def _named(self, name: str) -> GlobalVar | None:
        return next((gv for gv in self._functions if gv.name == name), None)

    def get_global_var(self, name: str) -> GlobalVar:
        """The GlobalVar called `name`. Raises ValueError naming the candidates."""
        if (found := self._named(name)) is not None:
            return found
        raise InvalidValueError(
            f"no function '{name}' in the module", hint=f"it has {sorted(g.name for g in self._functions)}"
        )

    def _key(self, key: str | GlobalVar) -> GlobalVar:
        if isinstance(key, GlobalVar):
            if key in self._functions:
                return key
            return self.get_global_var(key.name)
        if not isinstance(key, str):
            raise InvalidTypeError(f"expected a function's name or GlobalVar, got {type(key).__name__}")
        return self.get_global_var(key)

    def __getitem__(self, key: str | GlobalVar) -> AnyFunction:
        return self._functions[self._key(key)]

    def __setitem__(self, key: str | GlobalVar, function: object) -> None:
        if isinstance(key, GlobalVar):
            known = key if key in self._functions else self._named(key.name)
        elif isinstance(key, str):
            known = self._named(key)
        else:
            raise InvalidTypeError(f"expected a function's name or GlobalVar, got {type(key).__name__}")
        if known is None:
            known = key if isinstance(key, GlobalVar) else GlobalVar(key)
        self._functions[known] = function

    def __contains__(self, key: str | GlobalVar) -> bool:
        name = key.name if isinstance(key, GlobalVar) else key
        return any(gv.name == name for gv in self._functions)

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def update_func(self, key: GlobalVar, function: object) -> None:
        self[key] = function

    def update(self, other: IRModule | Mapping[str | GlobalVar, AnyFunction]) -> None:
        """Take over (and replace by name) the functions of `other`."""
        if not isinstance(other, IRModule | Mapping):
            raise InvalidTypeError(f"update takes an IRModule or a mapping of functions, got {type(other).__name__}")
        items = other.functions.items() if isinstance(other, IRModule) else other.items()
        for key, function in items:
            self[key] = function

    def remove(self, key: str | GlobalVar) -> None:
        del self._functions[self._key(key)]

    __delitem__ = remove

    def clone(self) -> IRModule:
        """A module with the same functions that can be changed on its own."""
        return IRModule(self._functions, self.attrs, self.global_infos)

    def with_functions(self, functions: Mapping[GlobalVar, object]) -> IRModule:
        """A module with these functions and this one's attributes."""
        return IRModule(functions, self.attrs, self.global_infos)

    def with_attr(self, key: str, value: object) -> IRModule:
        if not isinstance(key, str):
            raise InvalidTypeError(f"with_attr: the key is a {type(key).__name__}, expected a string")
        return IRModule(self._functions, {**self.attrs, key: value}, self.global_infos)

    def with_attrs(self, attr_map: Mapping[str, object]) -> IRModule:
        """The module with the attributes of a mapping, besides its own."""
        return IRModule(self._functions, {**self.attrs, **attr_map}, self.global_infos)

    def update_global_info(self, name: str, global_info: object) -> None:
        """Set what the module says under `name` beside its functions."""
        self.global_infos = FrozenDict({**self.global_infos, name: global_info})

    def without_attr(self, key: str) -> IRModule:
        return IRModule(self._functions, {k: v for k, v in self.attrs.items() if k != key}, self.global_infos)

    def get_attr(self, key: str) -> Any:
        return self.attrs.get(key)

    @staticmethod
    def from_expr(function: object) -> IRModule:
        """A module of one function, called by its `global_symbol`, else "main"."""
        if not hasattr(function, "attrs"):
            raise InvalidTypeError(f"from_expr takes a function, got {type(function).__name__}")
        return IRModule({str(function.attrs.get("global_symbol") or "main"): function})


def check_symbols(mod: IRModule, unnamed: str | None = None) -> None:
    """See that public functions have names of their own. Raises ValueError naming two that share one.

    unnamed  a symbol that only says that nobody chose one, as `create_prim_func` gives: the module's key counts
    """
    seen: dict[str, str] = {}
    for gv, f in mod.functions_items():
        symbol = getattr(f, "attrs", {}).get("global_symbol")
        if symbol is None or (symbol == unnamed and gv.name != unnamed):
            continue
        if symbol in seen:
            raise InvalidValueError(f"functions '{seen[symbol]}' and '{gv.name}' share the global symbol '{symbol}'")
        seen[symbol] = gv.name
