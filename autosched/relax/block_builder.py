"""BlockBuilder: write graph functions binding by binding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from autosched.errors import InvalidTypeError, InvalidValueError, TVMError
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Attrs, FrozenDict, Node, preorder
from autosched.ir.structural import structural_equal, structural_key
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    as_expr,
)  # fmt: skip
from autosched.relax.names import UniqueNames
from autosched.relax.op.call import call_tir
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, tensor_infos
from autosched.relax.te_call import make_te_call
from autosched.tir.expr import const_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import blocks
from autosched.tir.size_expr import SaidSizes, has_own_sizes

LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, GlobalVar, ExternFunc)


def _has_own_sizes(func: object) -> bool:
    """Whether a function uses sizes of its caller that its arguments do not say: then it has one caller."""
    if isinstance(func, PrimFunc):
        return has_own_sizes(func)
    if not isinstance(func, Function):
        return False
    infos = [t for info in (*(p.struct_info for p in func.params), func.ret_struct_info) for t in tensor_infos(info)]
    said = SaidSizes(d for info in infos if info.shape is not None for d in info.dims)
    used = (value for x in preorder(func) if isinstance(x, ShapeExpr) for value in x.values)
    return any(not said.says(value) for value in used)


def _sketch(func: object) -> Hashable:
    """What is quickly seen of a function's form; equal for equal forms."""
    if isinstance(func, Function):
        infos = [t for p in func.params for t in tensor_infos(p.struct_info) if t.shape is not None]
        return tuple((t.dtype, *map(const_int, t.shape.values)) for t in infos), sum(1 for _ in func.bindings())
    if not isinstance(func, PrimFunc):
        return None
    buffers = tuple((b.dtype, *map(const_int, b.shape)) for b in func.buffers)
    return buffers, tuple(block.name_hint for block in blocks(func.body))


@dataclass(eq=False)
class _Known:
    """A function of the module, and the key of its form, made where another function looks alike."""

    gvar: GlobalVar
    func: Node

    @cached_property
    def key(self) -> str:
        return structural_key(self.func, valued=False)


@dataclass
class FunctionScope:
    """A function being written."""

    name: str
    params: tuple[Var, ...] | None
    attrs: Attrs
    pure: bool
    private: bool
    names: UniqueNames = field(default_factory=UniqueNames)
    blocks: list[BindingBlock] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    in_dataflow: bool = False
    output: Expr | None = None
    function: GlobalVar = field(init=False)

    def __post_init__(self) -> None:
        self.function = GlobalVar(self.name)


class BlockBuilder:
    """Builds an IRModule.

    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            lv = bb.emit(relax.op.matmul(x, w))
            gv = bb.emit_output(relax.op.nn.relu(lv))
        bb.emit_func_output(gv)
    mod = bb.get()
    """

    _stack: ClassVar[list[BlockBuilder]] = []

    def __init__(self, mod: IRModule | None = None):
        if mod is not None and not isinstance(mod, IRModule):
            raise InvalidTypeError(f"BlockBuilder takes an IRModule, got {type(mod).__name__}")
        self._module = IRModule() if mod is None else mod.clone()
        self._function_names = UniqueNames(gv.name for gv in self._module.get_global_vars())
        self._by_form: dict[type, dict[Hashable, list[_Known]]] = {}  # by the kind of function, and its sketch
        self._scopes: list[FunctionScope] = []
        self._values: dict[Var, Expr] = {}
        self._free_names = UniqueNames()  # of variables outside of functions

    # --- scopes ----------------------------------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function is being written, if any."""
        return BlockBuilder._stack[-1] if BlockBuilder._stack else None

    @property
    def _scope(self) -> FunctionScope:
        if not self._scopes:
            raise TVMError("nothing can be emitted outside of a function", hint="use `with bb.function(name, params):`")
        return self._scopes[-1]

    @contextmanager
    def function(
        self,
        name: str,
        params: Var | Sequence[Var] | None = None,
        attrs: Attrs | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> Iterator[None]:
        """Write the function `name`. Leaving it without an output is an error."""
        if not isinstance(name, str):
            raise InvalidTypeError(f"BlockBuilder.function: the name is a text, not {type(name).__name__}")
        given = None if params is None else _params(params)
        scope = FunctionScope(name, given, FrozenDict(attrs or {}), pure, private)
        for p in given or ():
            scope.names(p.name)
        self._scopes.append(scope)
        BlockBuilder._stack.append(self)
        try:
            yield
            self._finish(scope)
        finally:
            self._scopes.remove(scope)
            BlockBuilder._stack.pop()

    @contextmanager
    def testing_scope(self, def_vars: Sequence[object]) -> Iterator[None]:
        """Emit bindings outside of a function, as tests do: they are not kept."""
        del def_vars  # every symbol is known
        scope = FunctionScope("testing", (), FrozenDict(), True, True)
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.remove(scope)

    def _finish(self, scope: FunctionScope) -> None:
        if scope.output is None:
            raise TVMError(f"function '{scope.name}' has no output", hint="call emit_func_output before leaving it")
        self._end_block(scope)
        attrs = scope.attrs if scope.private else FrozenDict({"global_symbol": scope.name, **scope.attrs})
        body = SeqExpr(tuple(scope.blocks), scope.output)
        function = Function(scope.params or (), body, scope.output.struct_info, scope.pure, attrs)
        if scope.name in self._module:
            raise InvalidValueError(f"the module has a function '{scope.name}' already")
        self._function_names.taken.add(scope.name)
        self._module[scope.function] = function

    def _end_block(self, scope: FunctionScope) -> None:
        if scope.bindings:
            kind = DataflowBlock if scope.in_dataflow else BindingBlock
            scope.blocks.append(kind(tuple(scope.bindings)))
            scope.bindings = []

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """Write a dataflow block: its variables end with it, but for those of `emit_output`."""
        if not self._scopes:
            raise TVMError("dataflow belongs into a function", hint="use `with bb.function(name, params):`")
        scope = self._scope
        self._end_block(scope)
        scope.in_dataflow = True
        try:
            yield
            self._end_block(scope)
        finally:
            scope.in_dataflow = False

    def current_block_is_dataflow(self) -> bool:
        """Whether what is emitted now joins a dataflow block."""
        return self._scope.in_dataflow

    # --- emission --------------------------------------------------------------------------------------------------

    def _bind(self, value: Expr, name: str, dataflow: bool) -> Var:
        scope = self._scope
        kind = DataflowVar if dataflow else Var
        var = kind(scope.names(name), value.struct_info)
        scope.bindings.append(VarBinding(var, value))
        self._values[var] = value
        return var

    def emit(self, expr: object, name_hint: str = "") -> Var:
        """Bind an expression to a new variable, lv… inside dataflow blocks and gv… outside."""
        return self._emit(self.normalize(_value(expr, "emit")), name_hint)

    def _emit(self, value: Expr, name_hint: str) -> Var:
        scope = self._scope
        return self._bind(value, name_hint or ("lv" if scope.in_dataflow else "gv"), scope.in_dataflow)

    def emit_output(self, output: object, name_hint: str = "") -> Var:
        """Bind an expression to a variable that is seen after the dataflow block."""
        scope = self._scope
        if not scope.in_dataflow:
            raise TVMError("emit_output belongs into a dataflow block", hint="use `with bb.dataflow():`")
        return self._bind(self.normalize(_value(output, "emit_output")), name_hint or "gv", False)

    def emit_func_output(self, output: object, params: Var | Sequence[Var] | None = None) -> GlobalVar:
        """Say what the function returns (a sequence becomes a tuple), and its parameters where not said before.

        The function joins the module, under what this gives, where its scope ends.
        """
        scope = self._scope
        if scope.in_dataflow:
            raise TVMError("emit_func_output belongs behind the dataflow block")
        if scope.output is not None:
            raise TVMError(f"emit_func_output: function '{scope.name}' has its output already")
        if params is not None:
            scope.params = _params(params)
        value = self.normalize(_value(output, "emit_func_output"))
        scope.output = value if isinstance(value, LEAVES) or _is_leaf_tuple(value) else self._bind(value, "gv", False)
        return scope.function

    def match_cast(self, value: object, struct_info: StructInfo, name_hint: str = "") -> Var:
        """Bind a value under a more exact annotation, checked at run time."""
        scope = self._scope
        value = _value(value, "match_cast")
        _check_cast(value.struct_info, struct_info)
        kind = DataflowVar if scope.in_dataflow else Var
        var = kind(scope.names(name_hint or ("lv" if scope.in_dataflow else "gv")), struct_info)
        scope.bindings.append(MatchCast(var, self.normalize(value), struct_info))
        return var

    def normalize(self, expr: Expr) -> Expr:
        """The expression with every nested call bound to a variable of its own, one that is used twice to one."""
        return self._normal(expr, {})

    def _normal(self, expr: Expr, bound: dict[int, Var]) -> Expr:
        if isinstance(expr, Call):
            if expr.struct_info is None and isinstance(expr.op, GlobalVar) and expr.op in self._module:
                result = getattr(self._module[expr.op], "ret_struct_info", None)
                expr = dataclasses.replace(expr, struct_info=result)
            args = tuple(self._argument(a, bound) for a in expr.args)
            if all(a is b for a, b in zip(args, expr.args, strict=True)):
                return expr
            return Call(expr.op, args, expr.attrs, expr.sinfo_args, expr.struct_info, expr.span)
        if isinstance(expr, Tuple):
            fields = tuple(self._argument(f, bound) for f in expr.fields)
            return expr if all(a is b for a, b in zip(fields, expr.fields, strict=True)) else Tuple(fields)
        if isinstance(expr, TupleGetItem):
            source = self._argument(expr.tuple_value, bound)
            if isinstance(source, Tuple):
                return source.fields[expr.index]
            return expr if source is expr.tuple_value else TupleGetItem(source, expr.index)
        return expr

    def _argument(self, x: object, bound: dict[int, Var]) -> Any:
        if isinstance(x, LEAVES):
            return x
        if isinstance(x, Tuple) or (isinstance(x, TupleGetItem) and not self._scopes):
            return self._normal(x, bound)  # type: ignore[arg-type]
        if id(x) not in bound:  # whoever called `normalize` holds x
            bound[id(x)] = self._emit(self._normal(_value(x, "emit"), bound), "")
        return bound[id(x)]

    # --- tensor expressions and functions ----------------------------------------------------------------------------

    def call_te(
        self, func: Callable[..., object], *args: object, primfunc_name_hint: str = "", **kwargs: object
    ) -> Call:
        """A call_tir of the PrimFunc that a te function makes on the arguments; the PrimFunc joins the module."""
        if not callable(func):
            raise InvalidTypeError(f"call_te, emit_te: func is a {type(func).__name__}, expected a function of tensors")
        args = tuple(self._te_argument(a) for a in args)
        call = make_te_call(func, args, kwargs)
        gvar = self.add_func(call.func, primfunc_name_hint or func.__name__)
        out = call.out
        return call_tir(gvar, Tuple(call.args), list(out.fields) if isinstance(out, TupleStructInfo) else out)

    def _te_argument(self, x: object) -> object:
        if isinstance(x, list | tuple):
            return type(x)(self._te_argument(v) for v in x)
        return self._argument(x, {}) if isinstance(x, Expr) else x

    def emit_te(
        self,
        func: Callable[..., object],
        *args: object,
        primfunc_name_hint: str = "",
        name_hint: str = "",
        **kwargs: object,
    ) -> Var:
        """Bind the result of `call_te`."""
        return self.emit(self.call_te(func, *args, primfunc_name_hint=primfunc_name_hint, **kwargs), name_hint)

    def add_func(self, func: object, func_name: str) -> GlobalVar:
        """Put a function into the module and give its name; one of equal form that is there already is used again."""
        if not isinstance(func, Node):
            raise InvalidTypeError(f"add_func: expected a function, got {type(func).__name__}")
        if type(func) not in self._by_form:
            by_sketch = self._by_form[type(func)] = {}
            for gv, f in self._module.functions_items():
                if type(f) is type(func):
                    by_sketch.setdefault(_sketch(f), []).append(_Known(gv, f))
        new = _Known(GlobalVar(func_name), func)
        alike = self._by_form[type(func)].setdefault(_sketch(func), [])
        for known in alike:  # the key knows no names and no weights: functions that differ in them may share it
            if known.key == new.key and structural_equal(known.func, func) and not _has_own_sizes(func):
                return known.gvar
        new.gvar = GlobalVar(self._function_names(func_name))
        self._module[new.gvar] = func
        alike.append(new)
        return new.gvar

    def update_func(self, gvar: GlobalVar, func: object) -> None:
        """Put a function in the place of the one with this name, or beside the others where there is none."""
        if not isinstance(gvar, GlobalVar):
            raise InvalidTypeError(f"update_func: expected a GlobalVar, got {type(gvar).__name__}")
        if not isinstance(func, Node):
            raise InvalidTypeError(f"update_func: expected a function, got {type(func).__name__}")
        self._module.update_func(gvar, func)
        self._by_form = {}

    def get_unique_function_name(self, name_prefix: str) -> str:
        """A name that no function of the module has yet."""
        return self._function_names(name_prefix)

    def get_unique_name(self, name_prefix: str) -> str:
        """A variable name that the function does not have yet."""
        return (self._scopes[-1].names if self._scopes else self._free_names)(name_prefix)

    def lookup_binding(self, var: Var) -> Expr | None:
        """What a variable was bound to."""
        if not isinstance(var, Var):
            raise InvalidTypeError(f"lookup_binding takes a Var, got {type(var).__name__}")
        return self._values.get(var)

    def get(self) -> IRModule:
        """The module as it is now."""
        return self._module.clone()

    finalize = get


def _params(params: Var | Sequence[Var]) -> tuple[Var, ...]:
    given = (params,) if isinstance(params, Var) else tuple(params)
    for i, param in enumerate(given):
        if not isinstance(param, Var):
            raise InvalidTypeError(f"BlockBuilder.function: parameter {i} is a {type(param).__name__}, not a relax.Var")
    return given


def _value(x: object, action: str) -> Expr:
    try:
        found: Expr = as_expr(x)
    except InvalidTypeError as error:
        raise InvalidTypeError(f"{action}: {error.message}") from None
    return found


def _check_cast(found: StructInfo | None, wanted: object) -> None:
    """Refuse what can never hold at run time: another dtype or another number of dimensions."""
    if not isinstance(wanted, StructInfo):
        raise InvalidTypeError(f"match_cast: expected a StructInfo, got {type(wanted).__name__}")
    if not isinstance(found, TensorStructInfo) or not isinstance(wanted, TensorStructInfo):
        return
    if -1 not in (found.ndim, wanted.ndim) and found.ndim != wanted.ndim:
        raise InvalidValueError(f"match_cast: a tensor of {found.ndim} dimensions cannot be {wanted!r}")


def _is_leaf_tuple(x: Expr) -> bool:
    return isinstance(x, Tuple) and all(isinstance(f, LEAVES) or _is_leaf_tuple(f) for f in x.fields)
