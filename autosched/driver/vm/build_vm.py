"""Builds a module for the VM: straight parts become built graphs, branches and calls become the VM's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.driver.build.graph import build_graph
from autosched.driver.settings import resolve_records, resolve_target, resolve_threads
from autosched.errors import InvalidTypeError, InvalidValueError, UsageError
from autosched.ir import GlobalVar, IRModule
from autosched.records import RecordReader
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
from autosched.relax.op.call import CALL_DPS_PACKED, is_packed
from autosched.relax.rewrite import used_vars
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, tensor_infos
from autosched.relax.transform import BindParams
from autosched.relax.transform.infer_types import infer_types
from autosched.relax.transform.inplace_calls import separate_inplace_calls
from autosched.runtime.executable import Executable
from autosched.runtime.relax_vm import VMExecutable
from autosched.runtime.vm_program import Instruction, Param, Program, VMFunction
from autosched.target import Target
from autosched.tir import PrimFunc
from autosched.tir.expr import as_int

if TYPE_CHECKING:
    from autosched.driver.settings import Records
    from autosched.json_types import Json


def build_vm(
    mod: IRModule,
    target: object = None,
    *,
    params: Mapping[str, object] | None = None,
    records: Records | None = None,
    threads: int | None = None,
    accuracy: str = "fast",
    checks: bool = False,
) -> Program:
    """Build every relax function of a module for the VM.

    params  arrays bound to parameters of `main`
    accuracy, checks  as in `autosched.build`
    Raises  TargetError, RecordError; InvalidTypeError for what the VM has no instruction for
    """
    if not isinstance(mod, IRModule):
        raise InvalidTypeError(f"the VM runs an IRModule, not a {type(mod).__name__}")
    mod = separate_inplace_calls(infer_types(mod))
    if params:
        mod = BindParams("main", {name: np.asarray(value) for name, value in params.items()})(mod)
    relax_functions = ((gv.name, f) for gv, f in mod.functions_items() if isinstance(f, Function))
    functions = dict(relax_functions)
    if not functions:
        raise UsageError("the module has no relax function", hint="build PrimFuncs with autosched.build")
    chosen = resolve_target(target)
    maker = _Maker(mod, chosen, resolve_records(records), resolve_threads(threads, chosen), accuracy, checks)
    made = {name: maker.function(name, function) for name, function in functions.items()}
    manifest = {"target": maker.target.to_json()}
    return Program(made, tuple(maker.segments), tuple(maker.constants), manifest)


def build_executable(
    mod: IRModule, target: Target, records: RecordReader, threads: int, params: Mapping[str, object], accuracy: str,
    checks: bool,
) -> VMExecutable:  # fmt: skip
    """A model with branches or loops as what is called: `autosched.build` of it."""
    program = build_vm(mod, target, params=params, records=records, threads=threads, accuracy=accuracy, checks=checks)
    return VMExecutable(program)


class _Maker:
    """Collects what functions share."""

    def __init__(
        self, module: IRModule, target: Target, records: RecordReader | None, threads: int, accuracy: str, checks: bool
    ):
        self.module, self.target, self.records, self.threads = module, target, records, threads
        self.accuracy, self.checks = accuracy, checks
        self.segments: list[Executable] = []
        self.constants: list[np.ndarray] = []

    def function(self, name: str, function: Function) -> VMFunction:
        body = _Body(self, function)
        result = body.register(body.sequence(function.body, body.code), body.code)
        _end_in_calls(body.code, result)
        params = tuple(_param(p.name, p.struct_info) for p in function.params)
        return VMFunction(name, params, body.n_registers, tuple(body.code), result)

    def build(self, params: Sequence[Var], bindings: Sequence[Binding], outputs: Sequence[Var]) -> int:
        """Build a straight part; gives the segment's number."""
        builder = BlockBuilder()
        known: dict[Var, Expr] = {p: Var(f"{p.name}", p.struct_info) for p in params}
        with builder.function("main", [known[p] for p in params]):  # type: ignore[misc]
            with builder.dataflow():
                for b in bindings:
                    known[b.var] = builder.emit(_renamed(b.value, known), b.var.name)
                shown = [builder.emit_output(known[v]) for v in outputs]
            builder.emit_func_output(shown[0] if len(shown) == 1 else shown)
        module = builder.get()
        for gv, f in self.module.functions_items():
            if isinstance(f, PrimFunc):
                module[gv] = f
        built = build_graph(module, self.target, self.records, self.threads, {}, self.accuracy, self.checks)
        self.segments.append(built)
        return len(self.segments) - 1


class _Body:
    """One function's registers and code. A value is a register, or a tuple of values that no instruction made."""

    def __init__(self, maker: _Maker, function: Function):
        self.maker = maker
        self.code: list[Instruction] = []
        self.values: dict[Var, Json] = {p: i for i, p in enumerate(function.params)}
        self.n_registers = len(function.params)

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
            self.values[b.var] = self.value(b.value, code)
            if isinstance(b, MatchCast):
                self.check(b, code)
        self.flush(straight, [], body.body, code)
        return self.value(body.body, code)

    def check(self, b: MatchCast, code: list[Instruction]) -> None:
        """Compare a tensor with what it is said to be."""
        info = b.struct_info
        if isinstance(info, TensorStructInfo) and info.is_static:
            code.append(
                ["check", self.register(self.values[b.var], code), b.var.name, list(info.static_shape), info.dtype]
            )

    def is_straight(self, b: Binding, straight: Sequence[Binding]) -> bool:
        """Whether a binding can be part of a built graph: an operator, or glue between operators of the same part."""
        value = b.value
        if isinstance(b, MatchCast):
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
        params = list(dict.fromkeys(v for b in straight for v in used_vars(b.value) if v not in inside))
        args = [self.tensor_registers(p, code) for p in params]
        flat_params, renames = self.flatten(params)
        bindings = [*renames, *straight, *extra]
        if not outputs:
            return
        segment = self.maker.build(flat_params, bindings, outputs)
        registers = {v: self.new() for v in outputs}
        code.append(["run", segment, [r for group in args for r in group], [registers[v] for v in outputs]])
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
                code.append(["value", result, _python_value(x)])
                return result
        raise InvalidTypeError(f"the VM has no instruction for {type(x).__name__}")

    def packed(self, x: Call, code: list[Instruction]) -> int | tuple[int, ...]:
        """A call of a registered function: the caller allocates the results where it says what they are."""
        if x.op is not CALL_DPS_PACKED:
            callee, args = (x.op, x.args) if isinstance(x.op, ExternFunc) else (x.args[0], x.args[1:])
            registers = [self.register(self.value(a, code), code) for a in args]
            result = self.new()
            code.append(["packed", result, callee.global_symbol, registers])
            return result
        registers = [self.register(self.value(a, code), code) for a in x.args[1].fields]
        outs = [[list(t.static_shape), t.dtype] for t in tensor_infos(x.struct_info)]
        results = [self.new() for _ in outs]
        code.append(["packed_dps", results, outs, x.args[0].global_symbol, registers])
        return tuple(results) if isinstance(x.struct_info, TupleStructInfo) else results[0]

    def branch(self, x: If, code: list[Instruction]) -> int:
        condition, result = self.register(self.value(x.cond, code), code), self.new()
        cases: list[list[Instruction]] = []
        for side in (x.true_branch, x.false_branch):
            inner: list[Instruction] = []
            value = self.register(self.sequence(side, inner), inner)
            inner.append(["move", result, value])
            cases.append(inner)
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


def _renamed(x: object, known: Mapping[Var, Expr]) -> Any:
    match x:
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


def _python_value(x: ShapeExpr | PrimValue | StringImm) -> object:
    """A shape, number or text as the VM's code holds it."""
    if isinstance(x, ShapeExpr):
        return [as_int(v) for v in x.values]
    return x.value if isinstance(x, StringImm) else as_int(x.value)


def _param(name: str, info: StructInfo | None) -> Param:
    if isinstance(info, TensorStructInfo) and info.is_static:
        return Param(name, info.static_shape, info.dtype)
    if isinstance(info, TupleStructInfo):
        return Param(name, fields=tuple(_param(f"{name}[{i}]", f) for i, f in enumerate(info.fields)))
    return Param(name)
