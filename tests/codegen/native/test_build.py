from autosched.codegen.native import native_object
from autosched.codegen.native.build import compile_native
from autosched.runtime.cache import kernel_cache
from autosched.runtime.elf import read_symbols
from autosched.runtime.native_abi import RUN_SYMBOL, WORKER_SYMBOL


def test_the_object_needs_nothing_and_offers_two_functions():
    symbols = read_symbols(native_object())
    assert symbols.defined == {RUN_SYMBOL, WORKER_SYMBOL}
    assert symbols.undefined <= {"_GLOBAL_OFFSET_TABLE_"}


def test_equal_input_gives_equal_bytes():
    assert compile_native() == compile_native()


def test_it_is_compiled_once_and_then_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    native_object.cache_clear()
    first = native_object()
    assert len(kernel_cache().entries()) == 1
    native_object.cache_clear()
    monkeypatch.setattr("autosched.codegen.native.build.compile_native", None)
    assert native_object() == first
