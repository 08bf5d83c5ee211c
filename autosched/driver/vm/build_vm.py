"""Builds a module for the VM: straight parts become built graphs, branches and calls become the VM's code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.dynamic import build_dynamic, said_sizes
from autosched.driver.build.graph import build_graph
from autosched.driver.build.sized import Bounds
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.errors import AutoschedError, InvalidTypeError, InvalidValueError, UsageError
from autosched.ir import GlobalVar, IRModule, preorder
from autosched.ir.node import Node
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import (
    Binding,
    Call,
    Constant,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)  # fmt: skip
from autosched.relax.names import UniqueNames
from autosched.relax.op.call import CALL_DPS_PACKED, is_packed
from autosched.relax.rewrite import bindings_of, used_vars
from autosched.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    tensor_infos,
)  # fmt: skip
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.relax.transform.infer_types import infer_types
from autosched.relax.transform.inplace_calls import separate_inplace_calls
from autosched.runtime.graph_form import SizeRange
from autosched.runtime.size_expr import Size
from autosched.runtime.vm_code import OUTPUT_NAMES, SHAPE, Instruction, Param, Segment, VMFunction
from autosched.runtime.vm_program import Program
from autosched.target import Target
from autosched.tir import PrimFunc
from autosched.tir.expr import PrimExpr, as_int
from autosched.tir.expr import Var as TirVar
from autosched.tir.separable import NotSeparableError
from autosched.tir.size_expr import MAY_BE_EMPTY, to_size

if TYPE_CHECKING:
    from autosched.driver.settings import Records
    from autosched.json_types import Json


@dataclass(frozen=True)
class BuildOptions:
    """How functions are built; `accuracy` and `checks` as in `autosched.build`."""

    records: Records | None = None
    threads: int | None = None
    accuracy: str = "fast"
    checks: bool = False


def build_vm(
    mod: IRModule, target: object = None, how: BuildOptions = BuildOptions(), wanted: Collection[str] | None = None
) -> Program:
    """Build relax functions of a module for the VM, those with symbolic sizes once for all of them.

    wanted  their names; None for all
    Raises  TargetError, RecordError; InvalidTypeError for what the VM has no instruction for; NotSeparableError where
            a kernel has to be compiled for each size
    """
    program, errors = build_parts(mod, target, how, wanted=wanted)
    for error in errors.values():
        raise error
    return program


def build_parts(
    mod: IRModule,
    target: object = None,
    how: BuildOptions = BuildOptions(),
    bounds: Bounds | None = None,
    wanted: Collection[str] | None = None,
) -> tuple[Program, dict[str, AutoschedError]]:
    """(what `build_vm` gives, for the functions that can be built once, what is wrong with the others).

    What is not built can still be called: it is `symbolic` in the program.

    bounds  the least and the largest size of symbols of `main`, by name
    """
    if not isinstance(mod, IRModule):
        raise InvalidTypeError(f"the VM runs an IRModule, not a {type(mod).__name__}")
    mod = separate_inplace_calls(infer_types(mod))
    relax_functions = ((gv.name, f) for gv, f in mod.functions_items() if isinstance(f, Function))
    functions = dict(relax_functions)
    if not functions:
        raise UsageError("the module has no relax function", hint="build PrimFuncs with autosched.build")
    chosen = resolve_target(target)
    maker = _Maker(mod, chosen, how, bounds or {})
    made: dict[str, VMFunction] = {}
    errors: dict[str, AutoschedError] = {}
    for name, function in functions.items():
        if wanted is not None and name not in wanted:
            continue
        try:
            made[name] = maker.function(name, function)
        except AutoschedError as error:
            if not is_symbolic(function):
                raise
            errors[name] = error
    manifest = {"target": maker.target.to_json(), "functions": maker.stored_functions()}
    if "main" in made and (names := functions["main"].attrs.get(OUTPUT_NAMES)):
        manifest[OUTPUT_NAMES] = [*names]
    late = {name: tuple(Param(p.name) for p in f.params) for name, f in functions.items() if name not in made}
    return Program(made, tuple(maker.segments), tuple(maker.constants), late, manifest=manifest), errors


def is_symbolic(function: object) -> bool:
    """Whether a function of the graph level has sizes that a call knows."""
    return isinstance(function, Function) and not function.attrs.get("Primitive") and bool(_symbols(function))


def _symbols(function: Function) -> list[TirVar]:
    """The symbols of a function: those in types of parameters and in what match_cast says."""
    cast = [b.struct_info for b in bindings_of(function.body) if isinstance(b, MatchCast)]
    return list(dict.fromkeys([*symbolic_dims(function), *_symbols_in(*cast)]))


def _symbols_in(*nodes: object) -> list[TirVar]:
    found = (x for node in nodes if isinstance(node, Node) for x in preorder(node))
    return list(dict.fromkeys(x for x in found if isinstance(x, TirVar)))


class _Maker:
    """Collects what functions share."""

    def __init__(self, module: IRModule, target: Target, how: BuildOptions, bounds: Bounds):
        self.module, self.target, self.how, self.bounds = module, target, how, bounds
        self.records, self.threads = resolve_records(how.records), resolve_threads(how.threads, target)
        self.segments: list[Segment] = []
        self.constants: list[np.ndarray] = []

    def stored_functions(self) -> dict[str, str]:
        """What to build the kernels again from, by the names that `Program.kernels` gives them."""
        parts = [(number, segment.manifest["functions"]) for number, segment in enumerate(self.segments)]
        return {f"{number}.{key}": text for number, functions in parts for key, text in functions.items()}

    def function(self, name: str, function: Function) -> VMFunction:
        """A function's code. Raises NotSeparableError where it cannot be built for all its sizes."""
        before = len(self.segments), len(self.constants)
        try:
            body = _Body(self, function, self.bounds if name == "main" else {})
            result = body.register(body.sequence(function.body, body.code), body.code)
        except AutoschedError:
            del self.segments[before[0] :], self.constants[before[1] :]
            raise
        _end_in_calls(body.code, result)
        params = tuple(_param(p.name, p.struct_info) for p in function.params)
        given = {symbol for param in params for symbol in param.symbols}
        ranges = tuple(SizeRange(symbol, *bounds) for symbol, bounds in body.bounds.items() if symbol in given)
        return VMFunction(name, params, body.n_registers, tuple(body.code), result, tuple(body.names), ranges)

    def build(
        self, params: Sequence[Var], bindings: Sequence[Binding], outputs: Sequence[Var], bounds: Bounds
    ) -> tuple[int, list[TirVar]]:
        """Build a straight part; gives the segment's number, and the sizes that follow its parameters' values."""
        symbols = _symbols_in(*(p.struct_info for p in params), *(n for b in bindings for n in (b.value, b.var)))
        said = said_sizes(params)
        hidden = [v for v in symbols if v.name not in said]  # each is an array of so many bytes that nobody reads
        builder = BlockBuilder()
        names = UniqueNames()
        known: dict[Var, Expr] = {p: Var(names(p.name), p.struct_info) for p in params}
        blanks = [Var(names(f"size_{v.name}"), TensorStructInfo((v,), "bool")) for v in hidden]
        with builder.function("main", [*(known[p] for p in params), *blanks]):  # type: ignore[list-item]
            with builder.dataflow():
                for b in bindings:
                    known[b.var] = builder.emit(_renamed(b.value, known), b.var.name)
                shown = [builder.emit_output(known[v]) for v in outputs]
            builder.emit_func_output(shown[0] if len(shown) == 1 else shown)
        module = builder.get()
        called = {x for b in bindings for x in preorder(b.value) if isinstance(x, GlobalVar)}
        for gv, f in self.module.functions_items():
            if isinstance(f, PrimFunc) and gv in called:
                module[gv] = f
        how = (self.target, self.records, self.threads, dict[str, object](), self.how.accuracy, self.how.checks)
        built: Segment
        if symbols:
            module["main"] = module["main"].with_attr(MAY_BE_EMPTY, tuple(v.name for v in symbols))
            built = build_dynamic(module, *how, bounds)
        else:
            built = build_graph(module, *how)
        self.segments.append(built)
        return len(self.segments) - 1, hidden


class _Body:
    """One function's registers and code. A value is a register, or a tuple of values that no instruction made.

    bounds  of symbols, by name
    names   of the symbols, which have values of their own in each call
    known   those that have them where code is made
    Raises  NotSeparableError for two symbols of one name, and one that does not follow from parameters.
    """

    def __init__(self, maker: _Maker, function: Function, bounds: Bounds):
        self.maker, self.bounds = maker, bounds
        self.names: dict[str, TirVar] = {}
        self.known: set[TirVar] = set()
        self.name_symbols(*(p.struct_info for p in function.params))
        said = said_sizes(function.params)
        if unsaid := [name for name in self.names if name not in said]:
            raise NotSeparableError(f"the size '{unsaid[0]}' does not follow from the arguments")
        self.known |= {*self.names.values()}
        self.code: list[Instruction] = []
        self.values: dict[Var, Json] = {p: i for i, p in enumerate(function.params)}
        self.n_registers = len(function.params)

    def name_symbols(self, *nodes: object) -> list[TirVar]:
        """The symbols of nodes. Raises NotSeparableError for one whose name another one has."""
        found = _symbols_in(*nodes)
        for v in found:
            if self.names.setdefault(v.name, v) is not v:
                raise NotSeparableError(f"two sizes have the name '{v.name}'")
        return found

    def size(self, x: object) -> Size:
        """An extent as instructions have it. Raises NotSeparableError where a call does not know it."""
        for v in self.name_symbols(x):
            if v not in self.known:
                raise NotSeparableError(f"nothing says how large '{v.name}' is")
        return to_size(x)

    def shape(self, dims: Iterable[object]) -> list[Json]:
        return [self.size(d) for d in dims]

    def new(self) -> int:
        self.n_registers += 1
        return self.n_registers - 1

    def sequence(self, body: SeqExpr, code: list[Instruction]) -> Json:
        """Make the code of a sequence; gives the value of its result."""
        bindings = [b for block in body.blocks for b in block.bindings]
        straight: list[Binding] = []
        for position, b in enumerate(bindings):
            if self.is_straight(b, straight):
                straight.append(b)
                continue
            self.flush(straight, bindings[position:], body.body, code)
            straight = []
            if isinstance(b, MatchCast):
                self.values[b.var] = self.cast(b, code)
                continue
            self.values[b.var] = self.value(b.value, code)
            if any(v not in self.known for v in self.name_symbols(b.var.struct_info)):  # its annotation says them
                self.values[b.var] = self.check(self.values[b.var], b.var.name, b.var.struct_info, code)
        self.flush(straight, [], body.body, code)
        return self.value(body.body, code)

    def cast(self, b: MatchCast, code: list[Instruction]) -> Json:
        """A value that is compared with what it is said to be."""
        return self.check(self.value(b.value, code), b.var.name, b.struct_info, code)

    def check(self, value: Json, name: str, info: StructInfo | None, code: list[Instruction]) -> Json:
        """Compare a value with its annotation, whose symbols get their values; gives it in registers."""
        dims, dtype = None, SHAPE
        match info:
            case TensorStructInfo() if info.shape is not None:
                dims, dtype = info.dims, info.dtype
            case ShapeStructInfo() if info.values is not None:
                dims = info.values
            case PrimStructInfo() if info.value is not None:
                dims = (info.value,)
            case TupleStructInfo() if _symbols_in(info):
                fields = [self.item(value, i, code) for i in range(len(info.fields))]
                return tuple(self.check(v, f"{name}_{i}", f, code) for i, (v, f) in enumerate(zip(fields, info.fields)))
        if dims is not None:
            self.known |= {*self.name_symbols(info)}
            value = self.register(value, code)
            code.append(["check", value, name, self.shape(dims), dtype])
        return value

    def is_straight(self, b: Binding, straight: Sequence[Binding]) -> bool:
        """Whether a binding can be part of a built graph: an operator, or glue between operators of the same part."""
        value = b.value
        if isinstance(b, MatchCast) or is_size(b.var):
            return False
        if isinstance(value, Call):
            return not isinstance(value.op, GlobalVar | Var | Function) and not is_packed(value)
        inside = {s.var for s in straight}
        return isinstance(value, Tuple | TupleGetItem | Var) and any(v in inside for v in used_vars(value))

    def flush(
        self, straight: Sequence[Binding], rest: Sequence[Binding], result: Expr, code: list[Instruction]
    ) -> None:
        """Build a straight part and run it; what is read later comes out of it."""
        if not straight:
            return
        inside = {b.var for b in straight}
        wanted = {v for b in rest for v in used_vars(b.value)} | set(used_vars(result))
        outputs: list[Var] = []
        shapes: list[tuple[Var, Expr]] = []
        extra: list[Binding] = []
        for b in straight:
            if b.var in wanted:
                shapes.append((b.var, self.outputs_of(b.var, b.var.struct_info, outputs, extra)))
        used = dict.fromkeys(v for b in straight for v in used_vars(b.value) if v not in inside)
        params = [v for v in used if not is_size(v)]
        args = [self.tensor_registers(p, code) for p in params]
        flat_params, renames = self.flatten(params)
        bindings = [*renames, *straight, *extra]
        if not outputs:
            return
        self.name_symbols(*(b.var for b in bindings))
        segment, hidden = self.maker.build(flat_params, bindings, outputs, self.bounds)
        blanks = []
        for size in hidden:
            blanks.append(self.new())
            code.append(["blank", blanks[-1], self.size(size)])
        registers = {v: self.new() for v in outputs}
        taken = [*(r for group in args for r in group), *blanks]
        code.append(["run", segment, taken, [registers[v] for v in outputs]])
        for v, form in shapes:
            self.values[v] = _filled(form, registers)

    def outputs_of(self, var: Var, info: StructInfo | None, outputs: list[Var], extra: list[Binding]) -> Json:
        """Let a variable's tensors come out; a tuple's fields one by one."""
        if isinstance(info, TupleStructInfo):
            fields = []
            for index, field in enumerate(info.fields):
                item = Var(f"{var.name}_{index}", field)
                extra.append(_binding(item, TupleGetItem(var, index)))
                fields.append(self.outputs_of(item, field, outputs, extra))
            return tuple(fields)
        outputs.append(var)
        return var

    def tensor_registers(self, param: Var, code: list[Instruction]) -> list[int]:
        """The registers of a variable's tensors, tuples taken apart."""

        def flat(value: object, info: StructInfo | None) -> list[int]:
            if not isinstance(info, TupleStructInfo):
                return [self.register(value, code)]
            fields = value if isinstance(value, tuple) else [self.item(value, i, code) for i in range(len(info.fields))]
            return [r for v, f in zip(fields, info.fields, strict=True) for r in flat(v, f)]

        if param not in self.values:
            raise InvalidValueError(f"variable '{getattr(param, 'name', param)}' is neither a parameter nor bound")
        return flat(self.values[param], param.struct_info)

    def flatten(self, params: Sequence[Var]) -> tuple[list[Var], list[Binding]]:
        """Parameters of a part that are tensors, and bindings that put tuples together again."""
        flat: list[Var] = []
        renames: list[Binding] = []

        def parts(name: str, info: StructInfo | None) -> Expr:
            if isinstance(info, TupleStructInfo):
                return Tuple(tuple(parts(f"{name}_{i}", f) for i, f in enumerate(info.fields)))
            flat.append(Var(name, info))
            return flat[-1]

        for p in params:
            if isinstance(p.struct_info, TupleStructInfo):
                renames.append(_binding(p, parts(p.name, p.struct_info)))
            else:
                flat.append(p)
        return flat, renames

    def item(self, value: object, index: int, code: list[Instruction]) -> Json:
        if isinstance(value, tuple):
            return value[index]
        result = self.new()
        code.append(["item", result, value, index])
        return result

    def register(self, value: Json, code: list[Instruction]) -> int:
        """The register that holds a value; a tuple is made."""
        if not isinstance(value, tuple):
            return int(value)
        fields = [self.register(field, code) for field in value]
        result = self.new()
        code.append(["tuple", result, fields])
        return result

    def value(self, x: Expr, code: list[Instruction]) -> Json:
        """The value of an expression outside of straight parts."""
        match x:
            case Var():
                if x not in self.values and (found := size_of(x)) is not None:
                    self.values[x] = self.value(found, code)
                return self.values[x]
            case Constant():
                self.maker.constants.append(x.data)
                result = self.new()
                code.append(["const", result, len(self.maker.constants) - 1])
                return result
            case Tuple():
                return tuple(self.value(f, code) for f in x.fields)
            case TupleGetItem():
                return self.item(self.value(x.tuple_value, code), x.index, code)
            case If():
                return self.branch(x, code)
            case Call() if isinstance(x.op, GlobalVar):
                args = [self.register(self.value(a, code), code) for a in x.args]
                result = self.new()
                code.append(["call", result, x.op.name, args])
                return result
            case Call() if is_packed(x):
                return self.packed(x, code)
            case ShapeExpr() | PrimValue() | StringImm():
                result = self.new()
                code.append(self.constant(x, result))
                return result
        raise InvalidTypeError(f"the VM has no instruction for {type(x).__name__}")

    def constant(self, x: ShapeExpr | PrimValue | StringImm, result: int) -> Instruction:
        """The instruction that gives a shape, number or text."""
        if isinstance(x, ShapeExpr):
            return ["value", result, self.shape(x.values)]
        if isinstance(x, PrimValue) and _symbols_in(x.value):
            return ["number", result, self.size(x.value)]
        return ["value", result, x.value if isinstance(x, StringImm) else as_int(x.value)]

    def packed(self, x: Call, code: list[Instruction]) -> int | tuple[int, ...]:
        """A call of a registered function: the caller allocates the results where it says what they are."""
        if x.op is not CALL_DPS_PACKED:
            callee, args = (x.op, x.args) if isinstance(x.op, ExternFunc) else (x.args[0], x.args[1:])
            registers = [self.register(self.value(a, code), code) for a in args]
            result = self.new()
            code.append(["packed", result, callee.global_symbol, registers])
            return result
        registers = [self.register(self.value(a, code), code) for a in x.args[1].fields]
        outs = [[self.shape(t.dims), t.dtype] for t in tensor_infos(x.struct_info)]
        results = [self.new() for _ in outs]
        code.append(["packed_dps", results, outs, x.args[0].global_symbol, registers])
        return tuple(results) if isinstance(x.struct_info, TupleStructInfo) else results[0]

    def branch(self, x: If, code: list[Instruction]) -> int:
        condition, result = self.register(self.value(x.cond, code), code), self.new()
        cases: list[list[Instruction]] = []
        known, values = self.known, self.values
        for side in (x.true_branch, x.false_branch):
            inner: list[Instruction] = []
            self.known, self.values = {*known}, {**values}
            value = self.register(self.sequence(side, inner), inner)
            inner.append(["move", result, value])
            cases.append(inner)
        self.known, self.values = known, values
        code.append(["if", condition, *cases])
        return result


def _end_in_calls(code: list[Instruction], result: int) -> None:
    """Let calls that give the function's own result take its place: recursion at the end needs no stack."""
    match code[-1:]:
        case [["call", register, name, args]] if register == result:
            code[-1] = ["tail", name, args]
        case [["move", register, source]] if register == result:
            moved = code.pop()
            _end_in_calls(code, source)
            if not code or code[-1][0] != "tail":
                code.append(moved)
        case [["if", _, then, otherwise]]:
            _end_in_calls(then, result)
            _end_in_calls(otherwise, result)


def _binding(var: Var, value: Expr) -> Binding:
    return VarBinding(var, value)


def _filled(form: Json, registers: Mapping[Var, int]) -> Json:
    return tuple(_filled(f, registers) for f in form) if isinstance(form, tuple) else registers[form]


def is_size(x: Var) -> bool:
    """Whether a variable holds a shape, or a number that is a size: parts have these in their types."""
    return isinstance(x.struct_info, ShapeStructInfo | PrimStructInfo)


def size_of(x: Var) -> Expr | None:
    """The shape or number that a variable is by its annotation."""
    match x.struct_info:
        case ShapeStructInfo(values=tuple() as values):
            return ShapeExpr(values)
        case PrimStructInfo(value=PrimExpr() as value):
            return PrimValue(value)
    return None


def _renamed(x: object, known: Mapping[Var, Expr]) -> Any:
    match x:
        case Var() if is_size(x):
            if (found := size_of(x)) is None:
                raise NotSeparableError(f"nothing says what '{x.name}' is")
            return found
        case Var():
            return known[x]
        case Tuple():
            return Tuple(tuple(_renamed(f, known) for f in x.fields))
        case TupleGetItem():
            source = _renamed(x.tuple_value, known)
            return source.fields[x.index] if isinstance(source, Tuple) else TupleGetItem(source, x.index)
        case Call():
            args = tuple(_renamed(a, known) for a in x.args)
            return Call(x.op, args, x.attrs, x.sinfo_args, x.struct_info, x.span)
    return x


def _param(name: str, info: StructInfo | None) -> Param:
    match info:
        case TensorStructInfo() if info.shape is not None:
            return Param(name, tuple(map(to_size, info.dims)), info.dtype)
        case TupleStructInfo():
            return Param(name, fields=tuple(_param(f"{name}[{i}]", f) for i, f in enumerate(info.fields)))
        case ShapeStructInfo() if info.values is not None:
            return Param(name, sizes=tuple(map(to_size, info.values)))
        case PrimStructInfo() if info.value is not None:
            return Param(name, sizes=(to_size(info.value),))
    return Param(name)
