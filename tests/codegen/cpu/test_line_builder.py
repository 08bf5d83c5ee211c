import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from autosched.codegen.cpu.line_builder import Line, LineBuilder
from autosched.codegen.cpu.machine import Machine, optimise
from autosched.codegen.cpu.types import BYTES, F32, I32, I64, VOID, call_intrinsic, constant, splat
from autosched.target import Target

VECTOR = ir.VectorType(F32, 8)


def build(builder_type):
    """out[v] = a[i] * b[v] + out[v] for a row of 8, `n` times, with a value on the stack and arithmetic of integers."""
    module = ir.Module("test")
    function = ir.Function(module, ir.FunctionType(VOID, [BYTES, BYTES, BYTES, I64]), "f")
    entry, loop, end = (function.append_basic_block(name) for name in ("entry", "loop", "end"))
    b = builder_type(entry)
    a, row, out = (b.bitcast(x, F32.as_pointer()) for x in function.args[:3])
    slot = b.alloca(F32, name="slot")
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(I64, name="i")
    i.add_incoming(I64(0), entry)
    b.store(b.load(b.gep(a, [i], inbounds=True), align=4), slot)
    at = b.and_(b.sub(b.mul(b.add(i, I64(3)), I64(8)), I64(24)), I64(255))
    place = b.bitcast(b.gep(row, [at]), VECTOR.as_pointer())
    target = b.bitcast(out, VECTOR.as_pointer())
    factor = splat(b, b.load(slot), 8)
    total = call_intrinsic(b, "llvm.fma.v8f32", VECTOR, [factor, b.load(place, align=4), b.load(target, align=4)])
    b.store(b.fadd(b.fmul(total, constant(VECTOR, 1.5)), b.fsub(total, total)), target, align=4)
    following = b.add(i, I64(1), flags=("nsw",))
    i.add_incoming(following, loop)
    b.cbranch(b.icmp_signed("<", following, function.args[3]), loop, end)
    b.position_at_end(end)
    b.ret_void()
    return module


def test_machine_code_is_that_of_the_usual_builder():
    machine = Machine.of(Target("cpu"))
    usual, lines = (
        machine.llvm.emit_object(optimise([str(build(kind))], machine)) for kind in (ir.IRBuilder, LineBuilder)
    )
    assert lines == usual


def test_frequent_instructions_are_lines_and_changed_pointers_are_none():
    block = build(LineBuilder).globals["f"].basic_blocks[1]
    assert sum(isinstance(x, Line) for x in block.instructions) > 15
    assert not any("bitcast" in str(x) for x in block.instructions)
    assert [str(x) for x in block.instructions if str(x).startswith("store")][0].startswith("store float %$.")


def test_names_are_those_of_one_function_for_all_its_builders():
    function = ir.Function(ir.Module("test"), ir.FunctionType(I64, [I64]), "f")
    first = LineBuilder(function.append_basic_block("first"))
    second = LineBuilder(function.append_basic_block("second"))
    names = [b.add(function.args[0], I64(n)).get_reference() for b, n in ((first, 1), (second, 1), (first, 2))]
    assert len(set(names)) == 3
    first.branch(second.block)
    second.ret(function.args[0])
    llvm.parse_assembly(str(function.module)).verify()


def test_what_depends_on_operands_alone_is_in_a_block_once():
    function = ir.Function(ir.Module("test"), ir.FunctionType(VOID, [I64, F32.as_pointer()]), "f")
    b = LineBuilder(function.append_basic_block("first"))
    number, place = function.args
    more = function.append_basic_block("second")

    def made():
        is_less = b.icmp_signed("<", b.urem(number, I64(8)), I64(3))
        return b.select(is_less, number, I64(0)), b.load(b.gep(place, [number]))

    (chosen, loaded), (again, after) = made(), made()
    assert chosen is again and loaded is not after, "a store may lie between loads"
    assert len(b.block.instructions) == 6
    b.branch(more)
    b.position_at_end(more)
    assert made()[0] is not chosen, "the other block may not be run"
    b.ret_void()
    llvm.parse_assembly(str(function.module)).verify()


def test_wrong_types_are_refused():
    function = ir.Function(ir.Module("test"), ir.FunctionType(VOID, [I64, BYTES]), "f")
    b = LineBuilder(function.append_basic_block("entry"))
    number, place = function.args
    with pytest.raises(ValueError, match="same type"):
        b.add(number, I32(1))
    with pytest.raises(TypeError, match="mismatching types"):
        b.store(number, place)
    with pytest.raises(TypeError, match="not a pointer"):
        b.load(number)
    with pytest.raises(TypeError, match="mismatch"):
        b.call(function, [number, number])
