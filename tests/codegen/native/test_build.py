import subprocess
import sys

import pytest

from autosched.codegen import pool
from autosched.codegen.native import native_object, start_helper_of_first_build
from autosched.codegen.native.build import compile_native
from autosched.env import child_environment
from autosched.errors import ArtifactError
from autosched.runtime.cache import kernel_cache
from autosched.runtime.elf import read_symbols
from autosched.runtime.loader import load_object_code
from autosched.runtime.native_abi import RUN_SYMBOL, WORKER_SYMBOL
from autosched.target import host_cpu


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


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    native_object.cache_clear()
    yield
    native_object.cache_clear()


def test_a_helper_is_started_only_where_nobody_has_it(empty_cache):
    start_helper_of_first_build()
    assert len(pool._spares) == 1
    pool.close_spares()
    native_object()
    start_helper_of_first_build()
    assert not pool._spares


def test_numba_is_not_imported(empty_cache):
    code = (
        "import sys\nfrom autosched.codegen.native import native_object\nnative_object()\nprint('numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_native_loop_of_another_architecture() -> None:
    """Its object code is of that architecture, and loading it here is refused instead of ending the process."""
    other = "aarch64" if host_cpu().architecture == "x86_64" else "x86_64"
    code = native_object(f"{other}-linux-gnu")
    assert read_symbols(code).architecture == other
    with pytest.raises(ArtifactError, match=f"is for {other}, and this machine is {host_cpu().architecture}"):
        load_object_code([("native loop", code)])
