"""Compiles functions over whole numbers and addresses, in the part of Python that generated source uses, to LLVM.

Numbers are int64, truth values bool, addresses `void*`; `//` and `%` round down and give 0 for a divisor of 0, as with
Numba's `error_model="numpy"`. Numba compiles the same text (`numba_front_end`), and takes longer over it: it infers
types that are known here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from autosched.codegen.cpu.division import signed_division
from autosched.codegen.cpu.line_builder import LineBuilder
from autosched.codegen.cpu.types import I1, I32, I64, VOID
from autosched.errors import CodegenError

_ORDER: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function is called from outside, and its types."""

    symbol: str
    arguments: tuple[ir.Type, ...]
    result: ir.Type = VOID


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function that source may call: its types, and what adds its code: (builder, argument…) -> value or None."""

    arguments: tuple[ir.Type, ...]
    result: ir.Type
    emit: Callable[..., ir.Value | None]

    def __call__(self, *arguments: int) -> int:
        """What source that is a Python module too says when it calls this one. Raises CodegenError: it is compiled."""
        raise CodegenError("only compiled code calls this function")


@dataclass(slots=True)
class _Loop:
    next: ir.Block
    after: ir.Block


@dataclass(slots=True)
class Compiler:
    """Adds functions of one source to an LLVM module.

    intrinsics    what source may call, by name; it reads one with dots and without arguments as an attribute
    numbers       the constants that it may read
    make_builder  what adds instructions at the end of a block
    """

    source: str
    module: ir.Module
    intrinsics: Mapping[str, Intrinsic]
    numbers: Mapping[str, int] = field(default_factory=dict)
    definitions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    inlined: dict[str, ir.Function] = field(default_factory=dict)
    make_builder: Callable[[ir.Block], ir.IRBuilder] = LineBuilder

    def __post_init__(self) -> None:
        for node in ast.parse(self.source).body:
            if isinstance(node, ast.FunctionDef):
                self.definitions[node.name] = node

    def compile(self, name: str, signature: Signature) -> ir.Function:
        """A function that others may call by its symbol. Raises CodegenError for what this part of Python lacks."""
        function = ir.Function(self.module, ir.FunctionType(signature.result, signature.arguments), signature.symbol)
        function.attributes.add("nounwind")
        _Body(self, function, self.definitions[name]).emit()
        return function

    def helper(self, name: str, arguments: Sequence[ir.Value]) -> ir.Function:
        """A function of the source that another one calls, and that becomes a part of it."""
        if name not in self.inlined:
            definition = self.definitions[name]
            kind = ir.FunctionType(_result_type(definition), [a.type for a in arguments])
            function = self.inlined[name] = ir.Function(self.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("alwaysinline")
            _Body(self, function, definition).emit()
        return self.inlined[name]


def _result_type(definition: ast.FunctionDef) -> ir.Type:
    """What a function's annotation says that it gives."""
    result = definition.returns
    return {"int": I64, "bool": I1}[result.id] if isinstance(result, ast.Name) else VOID


def _dotted(node: ast.expr) -> str:
    """A name, or names with dots between; "" for another expression."""
    if isinstance(node, ast.Attribute):
        return f"{owner}.{node.attr}" if (owner := _dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def _is_free(node: ast.AST) -> bool:
    """Whether a node does nothing that shows where its value is not used."""
    return not isinstance(node, ast.Call) or _dotted(node.func) in ("min", "max", "int64")


class _Body:
    """The code of one function. A variable is a slot on the stack, which LLVM's first pass turns into values."""

    def __init__(self, owner: Compiler, function: ir.Function, definition: ast.FunctionDef):
        self.owner, self.function, self.definition = owner, function, definition
        self.entry = owner.make_builder(function.append_basic_block("entry"))
        self.builder = owner.make_builder(function.append_basic_block("body"))
        self.slots: dict[str, ir.Value] = {}
        self.loops: list[_Loop] = []

    def emit(self) -> None:
        for parameter, value in zip(self.definition.args.args, self.function.args, strict=True):
            self.assign(parameter.arg, self.builder.sext(value, I64) if value.type == I32 else value)
        self.statements(self.definition.body)
        if not self.builder.block.is_terminated:
            if isinstance(self.function.function_type.return_type, ir.VoidType):
                self.builder.ret_void()
            else:
                self.builder.unreachable()
        self.entry.branch(self.function.basic_blocks[1])

    # --- statements ---------------------------------------------------------------------------------------------

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            if self.builder.block.is_terminated:
                return
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.assign(name, self.value(value))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                made = [self.value(v) for v in values]
                for target, v in zip(names, made, strict=True):
                    assert isinstance(target, ast.Name), "generated source has no other targets"
                    self.assign(target.id, v)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self.assign(name, self.operation(op, self.read(name), self.value(value)))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.call(value)
            case ast.If():
                self.branch(node)
            case ast.For():
                self.loop_over_range(node)
            case ast.While():
                self.loop_while(node)
            case ast.Return(value=value):
                self.builder.ret_void() if value is None else self.builder.ret(self.value(value))
            case ast.Continue():
                self.builder.branch(self.loops[-1].next)
            case ast.Break():
                self.builder.branch(self.loops[-1].after)
            case _:
                raise self.unknown(node)

    def unknown(self, node: ast.AST) -> CodegenError:
        return CodegenError(f"generated source has code that it should not have: {ast.unparse(node)}")

    def block(self, name: str) -> ir.Block:
        return self.function.append_basic_block(name)

    def go_to(self, block: ir.Block) -> None:
        """End the present block, unless it has ended, and go on in another one."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)
        self.builder.position_at_end(block)

    def branch(self, node: ast.If) -> None:
        then, after = self.block("then"), self.block("endif")
        other = self.block("else") if node.orelse else after
        self.builder.cbranch(self.truth(node.test), then, other)
        self.builder.position_at_end(then)
        self.statements(node.body)
        if node.orelse:
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
            self.builder.position_at_end(other)
            self.statements(node.orelse)
        self.go_to(after)

    def loop_over_range(self, node: ast.For) -> None:
        """`for i in range(first, end)`: the variable is assigned in each iteration, and not the count."""
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=bounds), orelse=[]):
                first, end = (self.value(b) for b in (bounds if len(bounds) == 2 else (ast.Constant(0), *bounds)))
            case _:
                raise self.unknown(node)
        test, body, following, after = (self.block(f"{name}.{part}") for part in ("test", "loop", "next", "end"))
        before = self.builder.block
        self.go_to(test)
        i = self.builder.phi(I64, name=name)
        i.add_incoming(first, before)
        self.builder.cbranch(self.builder.icmp_signed("<", i, end), body, after)
        self.builder.position_at_end(body)
        self.assign(name, i)
        self.loops.append(_Loop(following, after))
        self.statements(node.body)
        self.loops.pop()
        self.go_to(following)
        i.add_incoming(self.builder.add(i, I64(1), flags=("nsw",)), following)
        self.builder.branch(test)
        self.builder.position_at_end(after)

    def loop_while(self, node: ast.While) -> None:
        test, body, after = (self.block(f"while.{part}") for part in ("test", "loop", "end"))
        self.go_to(test)
        self.builder.cbranch(self.truth(node.test), body, after)
        self.builder.position_at_end(body)
        self.loops.append(_Loop(test, after))
        self.statements(node.body)
        self.loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(test)
        self.builder.position_at_end(after)

    # --- values -------------------------------------------------------------------------------------------------

    def assign(self, name: str, value: ir.Value) -> None:
        slot = self.slots.get(name)
        if slot is None:
            slot = self.slots[name] = self.entry.alloca(value.type, name=name)
        if slot.type.pointee != value.type:
            raise CodegenError(f"'{name}' has two types in generated source")
        self.builder.store(value, slot)

    def read(self, name: str) -> ir.Value:
        if name in self.slots:
            return self.builder.load(self.slots[name])
        if name in self.owner.numbers:
            return I64(self.owner.numbers[name])
        raise CodegenError(f"generated source reads '{name}', which it does not define")

    def value(self, node: ast.expr) -> ir.Value:
        match node:
            case ast.Constant(value=bool() as truth):
                return I1(int(truth))
            case ast.Constant(value=int() as number):
                return I64(number)
            case ast.Name(id=name):
                return self.read(name)
            case ast.Attribute(value=ast.Name(), attr=name) if name in self.owner.numbers:
                return I64(self.owner.numbers[name])
            case ast.BinOp(left=a, op=op, right=b):
                return self.operation(op, self.value(a), self.value(b))
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return self.builder.neg(self.value(a))
            case ast.UnaryOp(op=ast.Not(), operand=a):
                return self.builder.not_(self.truth(a))
            case ast.Compare(left=a, ops=[op], comparators=[b]):
                return self.builder.icmp_signed(_ORDER[type(op)], self.value(a), self.value(b))
            case ast.BoolOp(op=op, values=values):
                return self.logical(isinstance(op, ast.Or), values)
            case ast.Attribute() if (intrinsic := self.owner.intrinsics.get(_dotted(node))) is not None:
                return intrinsic.emit(self.builder)
            case ast.IfExp(test=test, body=a, orelse=b) if all(map(_is_free, ast.walk(node))):
                return self.builder.select(self.truth(test), self.value(a), self.value(b))
            case ast.Subscript(value=array, slice=at):
                return self.builder.load(self.builder.gep(self.value(array), [self.value(at)], inbounds=True))
            case ast.Call():
                found = self.call(node)
                if found is not None:
                    return found
        raise self.unknown(node)

    def truth(self, node: ast.expr) -> ir.Value:
        value = self.value(node)
        return value if value.type == I1 else self.builder.icmp_signed("!=", value, I64(0))

    def operation(self, op: ast.operator, a: ir.Value, b: ir.Value) -> ir.Value:
        build = self.builder
        match op:
            case ast.FloorDiv() | ast.Mod():
                return signed_division(build, a, b, floor=True, modulo=isinstance(op, ast.Mod))
            case ast.Add():
                return build.add(a, b)
            case ast.Sub():
                return build.sub(a, b)
            case ast.Mult():
                return build.mul(a, b)
            case ast.BitAnd():
                return build.and_(a, b)
            case ast.BitOr():
                return build.or_(a, b)
            case ast.LShift():
                return build.shl(a, b)
            case ast.RShift():
                return build.ashr(a, b)
        raise CodegenError(f"generated source has the operator {type(op).__name__}, which it should not have")

    def logical(self, is_or: bool, values: Sequence[ast.expr]) -> ir.Value:
        """`and` and `or`: what comes after the value that decides is not run."""
        first = self.truth(values[0])
        for node in values[1:]:
            before, more, after = self.builder.block, self.block("more"), self.block("decided")
            self.builder.cbranch(first, *((after, more) if is_or else (more, after)))
            self.builder.position_at_end(more)
            second = self.truth(node)
            end = self.builder.block
            self.go_to(after)
            both = self.builder.phi(I1)
            both.add_incoming(I1(int(is_or)), before)
            both.add_incoming(second, end)
            first = both
        return first

    def call(self, node: ast.expr) -> ir.Value | None:
        """The value of a call; None for a function that has none."""
        if not isinstance(node, ast.Call) or node.keywords or not (name := _dotted(node.func)):
            raise self.unknown(node)
        arguments = [self.value(a) for a in node.args]
        if name in ("min", "max"):
            found = arguments[0]
            for other in arguments[1:]:
                is_other = self.builder.icmp_signed("<" if name == "min" else ">", other, found)
                found = self.builder.select(is_other, other, found)
            return found
        if name in self.owner.intrinsics:
            intrinsic = self.owner.intrinsics[name]
            if tuple(a.type for a in arguments) != intrinsic.arguments:
                raise self.unknown(node)
            return intrinsic.emit(self.builder, *arguments)
        if name in self.owner.definitions:
            helper = self.owner.helper(name, arguments)
            result = self.builder.call(helper, arguments)
            return None if isinstance(result.type, ir.VoidType) else result
        raise self.unknown(node)
