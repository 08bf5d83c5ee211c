"""A compiler for small Python functions whose every value is a 64-bit word: the machine part of the emulator.

The functions of memory.py, schedule.py and collective.py are written in this subset and become LLVM IR in a few
milliseconds: integers, `+ - * // % << >> & | ^ ~`, comparisons, `and or not`, `x if c else y`, `if`, `while`,
`for … in range(…)`, `break`, `continue`, `return`, calls of each other and of the operations below, and constants of
the module. Comparisons, `//` and `%` are signed and round to zero; `>>` shifts in zeros. Nothing checks for
overflow.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TypeAlias

from llvmlite import ir

from autosched.errors import CodegenError

WORD = ir.IntType(64)
_BIT = ir.IntType(1)
_FLOAT = ir.FloatType()

Function: TypeAlias = FunctionType

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",
    ast.Mod: "srem",
    ast.LShift: "shl",
    ast.RShift: "lshr",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def _only_compiled(*_: int) -> int:
    raise CodegenError("an operation on memory runs in compiled code only")


# What a function of words can call beside its like. The names are for readers; `_Writer` compiles the calls.
load8 = load16 = load32 = load64 = store8 = store16 = store32 = store64 = copy_bytes = _only_compiled
call2 = _only_compiled  # call2(function, a, b): the C function `void f(int64, int64)` at that address
add_f32 = mul_f32 = fma_f32 = _only_compiled  # of bits of float32
add_f64 = mul_f64 = f64_of_f32 = f32_of_f64 = f64_of_i64 = f32_of_f16 = _only_compiled
count_ones = trailing_zeros = _only_compiled


class _Writer:
    """Writes one function."""

    def __init__(self, source: Function, functions: dict[str, ir.Function]):
        self.functions = functions
        self.globals = source.__globals__
        text = inspect.getsource(source)
        (node,) = ast.parse(text).body
        assert isinstance(node, ast.FunctionDef)
        self.node = node
        self.function = functions[node.name]
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.variables: dict[str, ir.Value] = {}
        self.loops: list[tuple[ir.Block, ir.Block]] = []
        entry = self.builder.block
        self.allocas = ir.IRBuilder(entry)
        body = self.function.append_basic_block("body")
        self.builder = ir.IRBuilder(body)
        for argument, value in zip(node.args.args, self.function.args, strict=True):
            self.builder.store(value, self.variable(argument.arg))
        self.statements(node.body)
        if not self.builder.block.is_terminated:
            self.builder.ret(WORD(0))
        self.allocas.branch(body)

    def variable(self, name: str) -> ir.Value:
        if name not in self.variables:
            self.variables[name] = self.allocas.alloca(WORD, name=name)
        return self.variables[name]

    def refuse(self, node: ast.AST) -> CodegenError:
        return CodegenError(f"{self.node.name}: `{ast.unparse(node)}` is outside the language of words")

    def statements(self, nodes: Iterable[ast.stmt]) -> None:
        for node in nodes:
            if self.builder.block.is_terminated:
                return
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                result = self.value(value)
                self.builder.store(result, self.variable(name))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                made = [self.value(value) for value in values]
                for target, result in zip(names, made, strict=True):
                    assert isinstance(target, ast.Name)
                    self.builder.store(result, self.variable(target.id))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                right = self.value(value)
                result = self.binary(op, self.builder.load(self.variable(name)), right)
                self.builder.store(result, self.variable(name))
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=value):
                self.value(value)
            case ast.Return(value=None):
                self.builder.ret(WORD(0))
            case ast.Return(value=ast.expr() as value):
                result = self.value(value)
                self.builder.ret(result)
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(self.truth(test), body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self.loop(lambda: self.truth(test), body, None)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args), body=body):
                bounds = [self.value(arg) for arg in args]
                if len(bounds) == 1:
                    bounds.insert(0, WORD(0))
                step = bounds[2] if len(bounds) == 3 else WORD(1)
                place = self.variable(name)
                self.builder.store(bounds[0], place)

                def more() -> ir.Value:
                    return self.builder.icmp_signed("<", self.builder.load(place), bounds[1])

                def advance() -> None:
                    self.builder.store(self.builder.add(self.builder.load(place), step), place)

                self.loop(more, body, advance)
            case ast.Break():
                self.builder.branch(self.loops[-1][1])
            case ast.Continue():
                self.builder.branch(self.loops[-1][0])
            case ast.Pass():
                pass
            case _:
                raise self.refuse(node)

    def branch(self, condition: ir.Value, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        then, other, after = (self.function.append_basic_block(name) for name in ("then", "else", "after"))
        self.builder.cbranch(condition, then, other)
        for block, nodes in ((then, body), (other, orelse)):
            self.builder = ir.IRBuilder(block)
            self.statements(nodes)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder = ir.IRBuilder(after)

    def loop(self, test: Callable[[], ir.Value], body: list[ast.stmt], advance: Callable[[], None] | None) -> None:
        head, inside, following, after = (
            self.function.append_basic_block(name) for name in ("head", "inside", "next", "after")
        )
        self.builder.branch(head)
        self.builder = ir.IRBuilder(head)
        condition = test()
        self.builder.cbranch(condition, inside, after)
        self.builder = ir.IRBuilder(inside)
        self.loops.append((following, after))
        self.statements(body)
        self.loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(following)
        self.builder = ir.IRBuilder(following)
        if advance:
            advance()
        self.builder.branch(head)
        self.builder = ir.IRBuilder(after)

    def binary(self, op: ast.operator, left: ir.Value, right: ir.Value) -> ir.Value:
        return getattr(self.builder, _BINARY[type(op)])(left, right)

    def truth(self, node: ast.expr) -> ir.Value:
        """The value of a condition as one bit."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                first, second = self.value(left), self.value(right)
                return self.builder.icmp_signed(_COMPARE[type(op)], first, second)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                bit = self.truth(operand)  # which may go on in another block
                return self.builder.not_(bit)
            case ast.BoolOp(op=op, values=values):
                stop = isinstance(op, ast.Or)
                end = self.function.append_basic_block("decided")
                incoming = []
                for k, value in enumerate(values):
                    bit = self.truth(value)
                    incoming.append((bit if k == len(values) - 1 else _BIT(int(stop)), self.builder.block))
                    if k == len(values) - 1:
                        self.builder.branch(end)
                    else:
                        following = self.function.append_basic_block("also")
                        self.builder.cbranch(bit, *((end, following) if stop else (following, end)))
                        self.builder = ir.IRBuilder(following)
                self.builder = ir.IRBuilder(end)
                result = self.builder.phi(_BIT)
                for value, block in incoming:
                    result.add_incoming(value, block)
                return result
        word = self.value(node)
        return self.builder.icmp_unsigned("!=", word, WORD(0))

    def value(self, node: ast.expr) -> ir.Value:
        match node:
            case ast.Constant(value=int(number)):
                return WORD(int(number))
            case ast.Name(id=name) if name in self.variables:
                return self.builder.load(self.variables[name])
            case ast.Name(id=name) if isinstance(self.globals.get(name), int):
                return WORD(self.globals[name])
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if inspect.ismodule(self.globals.get(name)):
                return WORD(getattr(self.globals[name], attribute))
            case ast.BinOp(left=left, op=op, right=right):
                first = self.value(left)
                return self.binary(op, first, self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                negated = self.value(operand)
                return self.builder.neg(negated)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                inverted = self.value(operand)
                return self.builder.not_(inverted)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                bit = self.truth(node)
                return self.builder.zext(bit, WORD)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.truth(test)
                first = self.value(body)
                second = self.value(orelse)
                return self.builder.select(condition, first, second)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                values = [self.value(arg) for arg in args]
                if name in self.functions:
                    return self.builder.call(self.functions[name], values)
                operation = getattr(self, "do_" + name, None)
                if operation is not None:
                    return operation(*values)
        raise self.refuse(node)

    def _load(self, address: ir.Value, bits: int) -> ir.Value:
        value = self.builder.load(self.builder.inttoptr(address, ir.IntType(bits).as_pointer()), align=1)
        return value if bits == 64 else self.builder.zext(value, WORD)

    def _store(self, address: ir.Value, value: ir.Value, bits: int) -> ir.Value:
        kind = ir.IntType(bits)
        self.builder.store(
            value if bits == 64 else self.builder.trunc(value, kind),
            self.builder.inttoptr(address, kind.as_pointer()),
            align=1,
        )
        return WORD(0)

    def do_load8(self, address: ir.Value) -> ir.Value:
        return self._load(address, 8)

    def do_load16(self, address: ir.Value) -> ir.Value:
        return self._load(address, 16)

    def do_load32(self, address: ir.Value) -> ir.Value:
        return self._load(address, 32)

    def do_load64(self, address: ir.Value) -> ir.Value:
        return self._load(address, 64)

    def do_store8(self, address: ir.Value, value: ir.Value) -> ir.Value:
        return self._store(address, value, 8)

    def do_store16(self, address: ir.Value, value: ir.Value) -> ir.Value:
        return self._store(address, value, 16)

    def do_store32(self, address: ir.Value, value: ir.Value) -> ir.Value:
        return self._store(address, value, 32)

    def do_store64(self, address: ir.Value, value: ir.Value) -> ir.Value:
        return self._store(address, value, 64)

    def do_call2(self, function: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
        kind = ir.FunctionType(ir.VoidType(), [WORD, WORD])
        self.builder.call(self.builder.inttoptr(function, kind.as_pointer()), [first, second])
        return WORD(0)

    def do_copy_bytes(self, target: ir.Value, source: ir.Value, count: ir.Value) -> ir.Value:
        byte = ir.IntType(8).as_pointer()
        name = "llvm.memcpy.p0.p0.i64"
        module = self.function.module
        function = module.globals.get(name) or ir.Function(
            module, ir.FunctionType(ir.VoidType(), [byte, byte, WORD, _BIT]), name
        )
        pointers = [self.builder.inttoptr(place, byte) for place in (target, source)]
        self.builder.call(function, [*pointers, count, _BIT(0)])
        return WORD(0)

    def _as_float(self, value: ir.Value) -> ir.Value:
        return self.builder.bitcast(self.builder.trunc(value, ir.IntType(32)), _FLOAT)

    def _as_double(self, value: ir.Value) -> ir.Value:
        return self.builder.bitcast(value, ir.DoubleType())

    def _as_word(self, value: ir.Value) -> ir.Value:
        if value.type == _FLOAT:
            return self.builder.zext(self.builder.bitcast(value, ir.IntType(32)), WORD)
        return self.builder.bitcast(value, WORD)

    def do_add_f32(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._as_word(self.builder.fadd(self._as_float(left), self._as_float(right)))

    def do_mul_f32(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._as_word(self.builder.fmul(self._as_float(left), self._as_float(right)))

    def do_add_f64(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._as_word(self.builder.fadd(self._as_double(left), self._as_double(right)))

    def do_mul_f64(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self._as_word(self.builder.fmul(self._as_double(left), self._as_double(right)))

    def do_f64_of_f32(self, value: ir.Value) -> ir.Value:
        return self._as_word(self.builder.fpext(self._as_float(value), ir.DoubleType()))

    def do_f32_of_f64(self, value: ir.Value) -> ir.Value:
        return self._as_word(self.builder.fptrunc(self._as_double(value), _FLOAT))

    def do_f64_of_i64(self, value: ir.Value) -> ir.Value:
        return self._as_word(self.builder.sitofp(value, ir.DoubleType()))

    def do_sign_extend(self, value: ir.Value, bits: ir.Value) -> ir.Value:
        shift = self.builder.sub(WORD(64), bits)
        return self.builder.ashr(self.builder.shl(value, shift), shift)

    def do_count_ones(self, value: ir.Value) -> ir.Value:
        return self.builder.ctpop(value)

    def do_trailing_zeros(self, value: ir.Value) -> ir.Value:
        return self.builder.cttz(value, _BIT(0))


def sign_extend(value: int, bits: int) -> int:
    """`value` with its lowest `bits` read as a signed number; here for readers, compiled as an operation."""
    return _only_compiled(value, bits)


def to_module(functions: Iterable[Function], name: str) -> ir.Module:
    """Compile functions of words, which may call each other, to a module; arguments and results are int64."""
    module = ir.Module(name=name)
    listed = list(functions)
    made = {}
    for function in listed:
        count = len(inspect.signature(function).parameters)
        made[function.__name__] = ir.Function(module, ir.FunctionType(WORD, [WORD] * count), function.__name__)
    for function in listed:
        _Writer(function, made)
    return module
