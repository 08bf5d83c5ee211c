"""Objects are put together to one that runs as they would."""

import ctypes
import math

import llvmlite.binding as llvm
import pytest

from autosched.codegen.cpu.join import join_objects
from autosched.codegen.cpu.machine import Machine
from autosched.errors import ArtifactError
from autosched.runtime.elf import read_symbols
from autosched.runtime.loader import load_object_code
from autosched.target import Target

OUTER = """
declare double @inner(double)
declare double @other(double)
define double @outer(double %x) {
  %a = call double @inner(double %x)
  %b = call double @other(double %a)
  ret double %b
}
"""
# Each has a constant of its own, and functions of the same local name.
INNER = """
@table = internal constant [2 x double] [double 3.0, double 5.0]
define internal double @own(double %x) noinline {
  %i = fptoui double %x to i64
  %p = getelementptr [2 x double], [2 x double]* @table, i64 0, i64 %i
  %t = load double, double* %p
  ret double %t
}
define double @inner(double %x) {
  %y = call double @own(double %x)
  ret double %y
}
"""
OTHER = (
    INNER.replace("@inner", "@other")
    .replace("double 3.0, double 5.0", "double 0.0, double 0.0")
    .replace("%y = call double @own(double %x)", "%y = call double @sinh(double %x)\n")
    + "declare double @sinh(double)\n"
)


def object_of(text):
    machine = Machine.of(Target("cpu"))
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.llvm.target_data)
    return machine.llvm.emit_object(module)


def test_functions_call_each_other_and_the_library():
    joined = join_objects([object_of(text) for text in (OUTER, INNER, OTHER)], ["outer"])
    symbols = read_symbols(joined)
    assert symbols.defined == {"outer"}
    assert symbols.undefined <= {"sinh", "_GLOBAL_OFFSET_TABLE_"}
    (table,) = load_object_code([("joined", joined)])
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(table["outer"])
    assert [call(0.0), call(1.0)] == [math.sinh(3.0), math.sinh(5.0)]


def test_equal_objects_give_equal_bytes():
    objects = [object_of(text) for text in (OUTER, INNER, OTHER)]
    assert join_objects(objects, ["outer"]) == join_objects(objects, ["outer"])


def test_what_is_no_object_is_refused():
    with pytest.raises(ArtifactError, match="ELF"):
        join_objects([object_of(INNER), b"nothing"], [])
