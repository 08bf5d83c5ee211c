import ctypes
import dataclasses
import struct
from pathlib import Path
from random import Random

import llvmlite.binding as llvm
import pytest

from autosched.errors import ArtifactError
from autosched.runtime import elf, load_objects, loader, unload_objects
from autosched.runtime.cpu.kernel import CpuKernel, Phase
from autosched.runtime.elf import read_object, read_symbols
from autosched.runtime.link import link
from autosched.runtime.loader import check_object, load_object_code, unload_with
from tests.runtime.kernels import add_kernel, double_kernel


def _object(text):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="default")
    return machine.emit_object(llvm.parse_assembly(text))


def _constant(name, value):
    return _object(f"define i32 @{name}() {{ ret i32 {value} }}")


def _call(address):
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def test_symbols_of_an_object():
    text = """
        @data = global i32 1
        declare float @expf(float)
        define internal float @hidden(float %x) noinline { ret float %x }
        define float @seen(float %x) { %y = call float @expf(float %x) %z = call float @hidden(float %y) ret float %z }
    """
    symbols = read_symbols(_object(text))
    assert symbols.defined == {"seen"}
    assert "expf" in symbols.undefined
    assert "hidden" not in symbols.undefined


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 100, b"MZ" * 100])
def test_what_is_no_object(data):
    with pytest.raises(ArtifactError):
        read_symbols(data)


@pytest.mark.parametrize("name", ["numba_gil_ensure", "NRT_Free", "PyErr_Clear", "system", "fopen"])
def test_forbidden_symbols_are_refused_before_loading(name):
    code = _object(f"declare void @{name}() define void @body() {{ call void @{name}() ret void }}")
    with pytest.raises(ArtifactError, match=f"kernel 'bad' .*{name}"):
        check_object(code, "bad")
    with pytest.raises(ArtifactError, match=name):
        load_objects([CpuKernel(name="bad", phases=(Phase("body", 1),), args=(), object_code=code)])


def test_libm_is_found():
    text = "declare double @cbrt(double) define double @root() { %y = call double @cbrt(double 27.0) ret double %y }"
    (table,) = load_object_code([("libm", _object(text))])
    assert ctypes.CFUNCTYPE(ctypes.c_double)(table["root"])() == pytest.approx(3)


def test_equal_names_in_different_objects_stay_apart():
    first, second = load_object_code([("a", _constant("same", 1)), ("b", _constant("same", 2))])
    assert (_call(first["same"]), _call(second["same"])) == (1, 2)


def test_equal_objects_are_loaded_once():
    code = _constant("once", 3)
    assert load_object_code([("a", code)]) == load_object_code([("b", bytes(bytearray(code)))])


def test_phases_are_found_and_missed():
    kernels = [add_kernel(), double_kernel()]
    assert set(load_objects(kernels)) == {"add_p0", "double_p0"}
    with pytest.raises(ArtifactError, match="defines no function 'other'"):
        load_objects([dataclasses.replace(kernels[0], phases=(Phase("other", 1),))])


def test_code_stays_until_its_last_user_unloads_it():
    code = _constant("transient", 5)
    kernel = CpuKernel(name="k", phases=(Phase("transient", 1),), args=(), object_code=code)
    before = len(loader._loaded)
    addresses = load_objects([kernel])
    assert load_objects([kernel]) == addresses
    unload_objects([kernel])
    assert _call(addresses["transient"]) == 5
    unload_objects([kernel])
    assert len(loader._loaded) == before
    unload_objects([kernel])
    assert _call(load_objects([kernel])["transient"]) == 5


def test_code_for_another_cpu_is_not_loaded():
    """An instruction that the CPU lacks would end the process."""
    kernel = dataclasses.replace(double_kernel(3), features=("sse2", "imaginary"))
    with pytest.raises(ArtifactError, match="compiled for a CPU with imaginary, which this machine lacks"):
        load_objects([kernel])


def test_code_is_unloaded_with_its_owner():
    class Owner:
        pass

    code = _constant("owned", 6)
    kernel = CpuKernel(name="k", phases=(Phase("owned", 1),), args=(), object_code=code)
    before = len(loader._loaded)
    first, second = Owner(), Owner()
    for owner in (first, second):
        addresses = load_objects([kernel, kernel])
        unload_with(owner, [kernel, kernel])
    del first, owner
    assert _call(addresses["owned"]) == 6
    with loader._lock:  # as in the middle of a loading: the next one does it
        del second
        assert len(loader._loaded) == before + 1
    load_object_code([])
    assert len(loader._loaded) == before


TEXT = """
    @table = private constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
    @count = global i64 40
    @names = constant [2 x ptr] [ptr @first, ptr @second]
    @zeros = internal global [3000 x i64] zeroinitializer
    declare double @cbrt(double)
    declare double @fma(double, double, double)
    define internal i64 @first() noinline { ret i64 3 }
    define internal i64 @second() noinline { ret i64 4 }
    define i64 @counted() { %a = load i64, ptr @count %b = add i64 %a, 1 store i64 %b, ptr @count ret i64 %b }
    define i64 @through(i64 %i) {
        %p = getelementptr ptr, ptr @names, i64 %i
        %f = load ptr, ptr %p
        %y = call i64 %f()
        %q = getelementptr i64, ptr @zeros, i64 %i
        store i64 %y, ptr %q
        %z = load i64, ptr @zeros
        %s = add i64 %z, %y
        ret i64 %s }
    define double @looked_up(i64 %i) {
        %p = getelementptr double, ptr @table, i64 %i
        %x = load double, ptr %p
        %y = call double @cbrt(double %x)
        ret double %y }
    define ptr @address() { ret ptr @fma }
    define i64 @chosen(i64 %i) {
        switch i64 %i, label %z [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e ]
      a: %fa = call i64 @first() ret i64 %fa
      b: %fb = call i64 @second() ret i64 %fb
      c: %fc = call i64 @counted() ret i64 %fc
      d: ret i64 77
      e: %fe = call i64 @counted() %fe2 = mul i64 %fe, %fe ret i64 %fe2
      z: ret i64 -1 }
"""


def test_every_kind_of_address():
    """Constants, variables, tables of functions and of jumps, the table of addresses, far functions."""
    (table,) = load_object_code([("all", _object(TEXT))])
    integer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert [integer(table["counted"])(0) for _ in range(2)] == [41, 42]
    assert integer(table["through"])(0) == 6
    assert integer(table["through"])(1) == 7
    looked_up = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(table["looked_up"])
    assert [looked_up(i) for i in (0, 3)] == pytest.approx([1, 2])
    assert [integer(table["chosen"])(i) for i in (0, 1, 2, 3, 9)] == [3, 4, 43, 77, -1]
    fma = ctypes.CFUNCTYPE(ctypes.c_void_p)(table["address"])()
    assert ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * 3)(fma)(2.0, 3.0, 4.0) == 10


def test_code_cannot_be_written_and_data_cannot_be_run():
    (table,) = load_object_code([("rights", _object(TEXT.replace("i64 40", "i64 50")))])
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [(*(int(end, 16) for end in line[0].split("-")), line[1]) for line in lines]
    code = next(i for i, (start, end, _) in enumerate(spans) if start <= table["counted"] < end)
    assert [rights for _, _, rights in spans[code : code + 3]] == ["r-xp", "r--p", "rw-p"]  # code, constants, variables


def test_what_kernels_do_not_have_is_refused():
    for text, said in (
        ("@x = thread_local global i32 1 define void @f() { ret void }", "variables of a thread"),
        ("@x = external global i32 define i32 @f() { %y = load i32, ptr @x ret i32 %y }", "needs symbols"),
    ):
        with pytest.raises(ArtifactError, match=said):
            load_object_code([("strange", _object(text))])
    code = bytearray(_object(TEXT))
    found = read_object(bytes(code))
    section = next(s for s in found.sections if s.kind == elf.RELOCATIONS)
    code[section.offset + 8] = 200
    with pytest.raises(ArtifactError, match=r"relocation \d+ of (x86_64|aarch64) is none"):
        load_object_code([("strange", bytes(code))])


def test_damaged_objects_are_refused_or_linked_but_never_end_the_process():
    code, random = _object(TEXT), Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(code[: random.choice((len(code), random.randrange(len(code))))])
        for _ in range(random.randrange(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            check_object(bytes(damaged), "damaged")
            link(read_object(bytes(damaged)), dict.fromkeys(("cbrt", "fma"), 4096))
        except ArtifactError:
            refused += 1
    assert refused > 50


def test_addresses_of_aarch64():
    """What is linked for AArch64 is written as its instructions want it; tests.emulated runs it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("aarch64-linux-gnu").create_target_machine(reloc="pic", codemodel="default")
    found = read_object(machine.emit_object(llvm.parse_assembly(TEXT)))
    kinds = {
        relocation.kind for s in found.sections if s.kind == elf.RELOCATIONS for relocation in found.relocations(s)
    }
    assert {257, 275, 277, 283} <= kinds  # words, pages and what is in them, calls
    image = link(found, {"cbrt": 0x1122334455667788, "fma": 0x0102030405060708})
    start = image.address_of["looked_up"]
    words = struct.unpack("<8I", ctypes.string_at(start, 32))
    calls = [word for word in words if word >> 26 in (0b100101, 0b000101)]  # bl, b
    at = start + 4 * words.index(calls[0])
    distance = (calls[0] & 0x3FFFFFF) << 2
    to = at + (distance - (1 << 28) if distance >> 27 else distance)
    assert struct.unpack("<IIQ", ctypes.string_at(to, 16)) == (0x58000050, 0xD61F0200, 0x1122334455667788)
    i, adrp = next((i, word) for i, word in enumerate(words) if word >> 31 and word >> 24 & 31 == 0b10000)
    pages = (adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3
    add = next(word for word in words if word >> 22 == 0b1001000100)
    low = add >> 10 & 0xFFF
    base = ((start + 4 * i) & ~0xFFF) + ((pages - (1 << 21) if pages >> 20 else pages) << 12)
    assert struct.unpack("<4d", ctypes.string_at(base + low, 32)) == (1.0, 2.0, 4.0, 8.0)
