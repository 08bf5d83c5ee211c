"""Operators become calls of PrimFuncs."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Hashable, Mapping

from autosched.errors import AutoschedError, InvalidTypeError
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import preorder
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Constant, Expr, Function, PrimValue, ShapeExpr, StringImm, Tuple, Var
from autosched.relax.op.call import call_tir
from autosched.relax.op.registry import OpDef, definition_of
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo, TupleStructInfo, tensor_infos
from autosched.relax.te_call import TECall, make_te_call
from autosched.relax.transform.annotate_patterns import OpPattern
from autosched.relax.transform.views import without_kernel
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.checked_index import CHECK_INDEX, end_position
from autosched.tir.expr import Call as TirCall
from autosched.tir.expr import Var as SymbolicSize
from autosched.tir.expr import const, const_int
from autosched.tir.function import PrimFunc, size_vars
from autosched.tir.functor import rewrite
from autosched.tir.stmt import Block

_log = logging.getLogger("autosched.relax")
# operators of one argument whose functions TVM calls tir_abs …
PREFIXED = frozenset({
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "clip", "cos", "cosh", "exp"),
    *("floor", "isfinite", "isinf", "isnan", "log", "logical_not", "negative", "round", "rsqrt", "sigmoid", "sign"),
    *("sin", "sinh", "sqrt", "square", "tan", "tanh"),
})  # fmt: skip
LegalizeRule = Callable[[BlockBuilder, Call], Expr]


def bind_number(func: PrimFunc, buffer: Buffer, value: float) -> PrimFunc:
    """The function without the parameter `buffer`, which has one element, its value written into the code."""
    number = const(value, buffer.dtype)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            return number
        if isinstance(x, TirCall) and x.op == CHECK_INDEX:
            return end_position(x)
        if isinstance(x, Block):
            reads = tuple(r for r in x.reads if r.buffer is not buffer)
            return x if len(reads) == len(x.reads) else dataclasses.replace(x, reads=reads)
        return x

    params = tuple(p for p in func.params if func.buffer_map.get(p) is not buffer)
    buffers = {p: b for p, b in func.buffer_map.items() if b is not buffer}
    return dataclasses.replace(func, params=params, buffer_map=buffers, body=rewrite(func.body, step))


def _is_number(x: Expr) -> bool:
    return isinstance(x, Constant) and x.data.size == 1 and x.data.dtype.kind in "fiu"


def _is_checked(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether a position in the buffer is looked at while the kernel runs: one out of range is to be reported."""
    places = (i for x in preorder(func.body) if isinstance(x, BufferLoad) and x.buffer is buffer for i in x.indices)
    return any(isinstance(x, TirCall) and x.op == CHECK_INDEX for i in places for x in preorder(i))


def bind_numbers(call: TECall) -> TECall:
    """The call with constants of one element written into the function."""
    func, args = call.func, []
    for arg, buffer in zip(call.args, call.func.buffers, strict=False):
        if _is_number(arg) and len(call.args) > 1 and not _is_checked(func, buffer):
            assert isinstance(arg, Constant)
            func = bind_number(func, buffer, arg.data.reshape(-1)[0].item())
        else:
            args.append(arg)
    return call if func is call.func else TECall(func, tuple(args), call.out)


class _NoForm(Exception):
    """A call has an argument that no key is known for."""


@dataclasses.dataclass
class _CallForm:
    """What the PrimFunc of a call depends on, besides the operator, and the tensors that the call takes."""

    tensors: list[Expr] = dataclasses.field(default_factory=list)

    def key(self, x: object) -> Hashable:
        """A hashable key of an argument or attribute. Raises _NoForm."""
        if x is None or isinstance(x, bool | int | float | str):
            return type(x).__name__, repr(x)
        if isinstance(x, list | tuple):
            return type(x).__name__, *map(self.key, x)
        if isinstance(x, Tuple):
            return "Tuple", *map(self.key, x.fields)
        if isinstance(x, ShapeExpr):
            sizes = [const_int(v) for v in x.values]
            if None in sizes:
                raise _NoForm
            return "shape", *map(self.key, sizes)
        if isinstance(x, PrimValue | StringImm):
            return "value", self.key(getattr(x.value, "value", x.value))
        if isinstance(x, Expr) and isinstance(x.struct_info, TensorStructInfo) and x.struct_info.is_static:
            return self.tensor(x, x.struct_info)
        raise _NoForm

    def tensor(self, x: Expr, info: TensorStructInfo) -> Hashable:
        for i, known in enumerate(self.tensors):
            if known is x:
                return "again", i
        self.tensors.append(x)
        number = x.data.tobytes() if isinstance(x, Constant) and _is_number(x) else None
        return "tensor", info.dtype, info.static_shape, number


class _Legalizer(Rewriter):
    def __init__(
        self, builder: BlockBuilder, rules: Mapping[str, LegalizeRule], skip: Collection[str], leave: Collection[Var],
        open_sizes: bool = False, tvm_names: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.open_sizes, self.tvm_names = open_sizes, tvm_names
        self.builder, self.rules, self.skip, self.leave = builder, rules, skip, leave
        self.made: dict[object, tuple[GlobalVar, tuple[int, ...]]] = {}  # by form: function, positions of its tensors

    def call(self, call: Call, var: Var) -> Expr:
        name = call.op_name
        if not name or name in self.skip or var in self.leave:
            return call
        if name in self.rules:
            return self.rules[name](self.builder, call)
        definition = definition_of(call)
        if definition is None or definition.compute is None or not self.is_known(call):
            return call
        return self.legal(definition, call)

    @staticmethod
    def is_known(call: Call) -> bool:
        """Whether the result's shape is known, in symbols at least, so that loops can be written."""
        info = call.struct_info
        if not isinstance(info, TensorStructInfo | TupleStructInfo):
            return False
        return all(t.shape is not None for t in tensor_infos(info))

    def legal(self, definition: OpDef, call: Call) -> Expr:
        """The call of the operator's PrimFunc; calls of one form share it, and only the first one writes it."""
        assert definition.compute is not None, "the caller looked"
        info = call.struct_info
        out = list(info.fields) if isinstance(info, TupleStructInfo) else info
        form = _CallForm()
        try:
            key = (definition.op.name, form.key(list(call.args)), form.key(sorted(call.attrs.items())))
        except _NoForm:
            key = None
        if key in self.made:
            gvar, positions = self.made[key]
            return call_tir(gvar, Tuple(tuple(form.tensors[i] for i in positions)), out)
        given = [a.struct_info for x in call.args for a in (x.fields if isinstance(x, Tuple) else (x,))]
        infos = [*tensor_infos(call.struct_info), *(i for i in given if isinstance(i, TensorStructInfo))]
        static = all(t.is_static for t in infos)
        try:
            made = bind_numbers(make_te_call(definition.compute, call.args, call.attrs))
        except (AutoschedError, TypeError, ValueError, AttributeError):
            if static:
                raise
            return call  # its loops can only be written for sizes that are known
        if not static and not _follow_from_inputs(made, self.open_sizes):
            return call
        prefix = "tir_" if self.tvm_names and definition.legal_name in PREFIXED else ""
        func = made.func
        if definition.is_anchor:
            func = func.with_attr("op_pattern", int(OpPattern.OUT_FUSABLE))
        gvar = self.builder.add_func(func, prefix + definition.legal_name)
        if key is not None:
            self.made[key] = gvar, tuple(next(i for i, x in enumerate(form.tensors) if x is a) for a in made.args)
        return call_tir(gvar, Tuple(made.args), out)


def _follow_from_inputs(call: TECall, open_sizes: bool) -> bool:
    """Whether each symbol of a PrimFunc is the size of a dimension of an input; with `open_sizes` it need not be."""
    inputs = call.func.buffers[: len(call.args)]
    given = {d for buffer in inputs for d in buffer.shape if isinstance(d, SymbolicSize)}
    return open_sizes or set(size_vars(call.func)) <= given


def _full_name(name: str) -> str:
    return name if name.startswith("relax.") else f"relax.{name}"


def legalize_ops(
    module: IRModule,
    rules: Mapping[str, LegalizeRule] | None = None,
    skip_ops: Collection[str] = (),
    leave: Callable[[Function], Collection[Var]] = lambda _: (),
    open_sizes: bool = False,
    tvm_names: bool = False,
) -> IRModule:
    """Replace operators by `call_tir` of private PrimFuncs, equal ones shared.

    rules     by operator name: rule(builder, call) gives the new value
    skip_ops  operators that stay
    leave     gives the variables of a function whose calls stay
    open_sizes  whether symbols are taken that are no dimension of an input: such kernels are not called alone
    tvm_names   whether functions of one argument are called `tir_exp`, as in TVM, or `exp`
    """
    builder = BlockBuilder(module)
    if rules is not None and not isinstance(rules, Mapping):
        raise InvalidTypeError(f"LegalizeOps: customize_legalize_map is a {type(rules).__name__}, expected a mapping")
    own = {_full_name(name): rule for name, rule in (rules or {}).items()}
    skip = {_full_name(name) for name in skip_ops}
    legal: dict[GlobalVar, Function] = {}
    for gv, function in module.functions.items():
        if isinstance(function, Function):
            legal[gv] = _Legalizer(builder, own, skip, leave(function), open_sizes, tvm_names).rewrite(function)
    if all(module[gv] is f for gv, f in legal.items()):
        return module
    result = builder.get()
    for gv, function in legal.items():
        result.update_func(gv, function)
    return result


def LegalizeOps(  # noqa: N802
    customize_legalize_map: Mapping[str, LegalizeRule] | None = None,
    skip_ops: Collection[str] | None = None,
    enable_warning: bool = False,
) -> Pass:
    """See `legalize_ops`; with `enable_warning` operators that stay are logged."""

    def legalize(module: IRModule) -> IRModule:
        result = legalize_ops(module, customize_legalize_map, skip_ops or (), tvm_names=True)
        if enable_warning:
            _warn_of_operators(result)
        return result

    return graph_pass("LegalizeOps")(legalize)


def _warn_of_operators(module: IRModule) -> None:
    """Log the operators that have no loops yet."""
    for gv, function in module.functions.items():
        for b in function.bindings() if isinstance(function, Function) else ():
            if isinstance(b.value, Call) and definition_of(b.value) is not None:
                _log.warning("LegalizeOps: %s stays an operator in '%s'", b.value.op_name, gv.name)


def LegalizeKernels() -> Pass:  # noqa: N802
    """LegalizeOps for a static graph: calls that need no kernel stay operators, see `views`."""
    return graph_pass("LegalizeOps")(lambda module: legalize_ops(module, leave=without_kernel, open_sizes=True))
