import ctypes
import dataclasses

import llvmlite.binding as llvm
import pytest

from autosched.errors import ArtifactError
from autosched.runtime import load_objects, loader, unload_objects
from autosched.runtime.cpu.kernel import CpuKernel, Phase
from autosched.runtime.elf import read_symbols
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
