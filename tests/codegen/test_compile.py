"""The kernel cache and compiling many kernels."""

import gc
import subprocess
import sys
import time

import numpy as np
import pytest

from autosched import te
from autosched.codegen import cache, compile_func, compile_funcs, counters
from autosched.codegen.compile import PATIENT, Compilation, Request, patient_collector
from autosched.env import child_environment
from autosched.errors import CodegenError, TargetError
from autosched.runtime.cache import kernel_cache
from autosched.target import Target
from tests.codegen.programs import aligned, run, with_kinds

pytestmark = pytest.mark.usefixtures("helper")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr("autosched.codegen.compile.WORTH_A_POOL", 4)  # few kernels are enough for a test
    return tmp_path / "kernels"


def scale(factor, extent=20):
    a = te.placeholder((extent,), name="A")
    return with_kinds(
        te.create_prim_func([a, te.compute((extent,), lambda i: a[i] * factor, name="C")]), i="vectorized"
    )


def check(compiled, factor):
    x, y = np.arange(20, dtype="f"), aligned((20,))
    run(compiled, [x, y])
    np.testing.assert_array_equal(y, x * factor)


def test_a_second_build_of_equal_input_reads_the_cache(empty_cache):
    before = counters.COMPILES.value
    first = compile_func(scale(2.0), "cpu", name="scale")
    second = compile_func(scale(2.0), "cpu", name="scale")
    assert (first.from_cache, second.from_cache) == (False, True)
    assert counters.COMPILES.value == before + 1
    assert second.kernel == first.kernel
    assert second.source == first.source
    assert second.asm == first.asm
    check(second, 2)


def test_the_key_of_a_kernel_is_computed_once(empty_cache, monkeypatch):
    asked = []
    key = cache.kernel_key
    monkeypatch.setattr(cache, "kernel_key", lambda *args: asked.append(args[2]) or key(*args))
    compile_funcs([Request(scale(2.0), "twice"), Request(scale(3.0), "thrice")], "cpu", jobs=1)
    assert asked == ["twice", "thrice"]


def test_what_differs_is_compiled_again(empty_cache):
    compile_func(scale(2.0), "cpu", name="scale")
    for other in (
        compile_func(scale(3.0), "cpu", name="scale"),
        compile_func(scale(2.0), "llvm -mcpu=x86-64", name="scale"),
        compile_func(scale(2.0), "cpu", name="double"),
        compile_func(scale(2.0), "cpu", name="scale", config='{"x": 1}'),
    ):
        assert not other.from_cache


def test_a_damaged_entry_is_a_miss(empty_cache):
    compile_func(scale(2.0), "cpu", name="scale")
    for path, size, _ in kernel_cache().entries():
        data = path.read_bytes()
        path.write_bytes(data[: size // 2])
    again = compile_func(scale(2.0), "cpu", name="scale")
    assert not again.from_cache
    check(again, 2)


PROGRAM = """
import sys
sys.path.insert(0, ".")
from tests.codegen.test_compile import scale
from autosched.codegen import compile_func
for factor in (1.5, 2.5, 3.5):
    compile_func(scale(factor), "cpu", name="scale")
"""


def test_two_processes_may_build_the_same_kernels_at_once(empty_cache):
    both = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=child_environment()) for _ in range(2)]
    assert [p.wait(120) for p in both] == [0, 0]
    for factor in (1.5, 2.5, 3.5):
        compiled = compile_func(scale(factor), "cpu", name="scale")
        assert compiled.from_cache
        check(compiled, factor)


def test_many_kernels_in_a_pool_come_back_in_order(empty_cache):
    factors = [1.0, 2.0, 3.0, 4.0, 5.0, 2.0]
    before = counters.COMPILES.value
    compiled = compile_funcs([Request(scale(f), "scale") for f in factors], "cpu", jobs=2)
    assert counters.COMPILES.value == before + 5
    for kernel, factor in zip(compiled, factors, strict=True):
        check(kernel, factor)
    assert all(k.from_cache for k in compile_funcs([Request(scale(f), "scale") for f in factors], "cpu"))


def test_a_schedule_for_a_cpu_is_refused_for_a_gpu():
    with pytest.raises(CodegenError, match="bound to no threads"):
        compile_func(scale(2.0), "cuda")


def test_a_target_without_a_back_end_is_refused():
    with pytest.raises(TargetError, match="vulkan"):
        compile_func(scale(2.0), "vulkan")


def test_a_kernel_that_fails_in_another_process_raises_here(empty_cache):
    from autosched.tir import call
    from tests.codegen.programs import BufferStore, buffer, const, function, loop

    out = buffer("C", 4)
    bad = function([out], loop("i", 4, lambda i: BufferStore(out, call("zeta", const(1.0)), (i,))))
    requests = [Request(scale(float(f)), "scale") for f in range(5)] + [Request(bad, "bad")]
    with pytest.raises(CodegenError, match="zeta"):
        compile_funcs(requests, "cpu", jobs=2)


def test_a_helper_that_was_started_ahead_takes_its_share_and_ends(empty_cache, monkeypatch):
    from autosched.codegen import pool

    pool.start_spare()
    (helper,) = pool._spares
    monkeypatch.setattr(pool, "_start", lambda module: pytest.fail("the one that waits is taken"))
    compiled = compile_funcs([Request(scale(float(f)), "scale") for f in range(6)], "cpu", jobs=2)
    for factor, kernel in enumerate(compiled):
        check(kernel, factor)
    assert pool.take_spare() is None
    assert helper._process.returncode == 0


class Imported:
    """A request that says whether a module was there before it."""

    name, kin = "imported", None

    def __init__(self, module: str):
        self.module = module

    def make(self, target: object, key: str) -> bool:
        return self.module in sys.modules


def test_a_helper_that_was_started_ahead_has_imported_what_its_requests_need():
    from autosched.codegen import pool

    for module, there in (("colorsys", True), ("", False)):
        pool.start_spare(module)
        helper = pool.take_spare()
        helper.ask((Imported("colorsys"), Target("cpu").to_json(), "key"))
        assert helper.answer() == there
        helper.close()


class Large:
    """A request and an answer larger than a pipe holds."""

    name, kin = "large", None

    def __init__(self, letter: bytes):
        self.text = letter * (1 << 20)

    def make(self, target: object, key: str) -> bytes:
        return self.text


def test_a_helper_reads_what_it_is_asked_while_it_answers():
    from autosched.codegen import pool

    helper = pool.Helper()
    for letter in (b"a", b"b", b"c"):
        helper.ask((Large(letter), Target("cpu").to_json(), "key"))
    assert [helper.answer()[:1] for _ in range(3)] == [b"a", b"b", b"c"]
    helper.close()


def test_a_helper_that_nobody_takes_is_ended():
    from autosched.codegen import pool

    pool.start_spare()
    (helper,) = pool._spares
    pool.close_spares()
    assert helper._process.returncode is not None
    assert pool.take_spare() is None


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_waits_longer_inside_and_as_before_afterwards():
    before = gc.get_threshold()
    with patient_collector():
        assert gc.get_threshold() == PATIENT
        with patient_collector():
            assert gc.get_threshold() == PATIENT
        assert gc.get_threshold() == PATIENT
    assert gc.get_threshold() == before


def test_it_is_put_back_after_an_error():
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), patient_collector():
        1 / 0  # noqa: B018
    assert gc.get_threshold() == before


@pytest.mark.parametrize("chosen", [(0, 10, 10), (10**9, 10, 10)])
def test_a_collector_that_is_off_or_more_patient_stays_so(chosen):
    gc.set_threshold(*chosen)
    with patient_collector():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_compiling_lets_it_wait(monkeypatch):
    from autosched.codegen import compile_func
    from autosched.codegen.cpu import build
    from tests.codegen.test_compile import scale

    found = []
    compile_uncached = build.compile_uncached
    monkeypatch.setattr(
        build, "compile_uncached", lambda *args: (found.append(gc.get_threshold()), compile_uncached(*args))[1]
    )
    compile_func(scale(9.0), "cpu", name="scale", use_cache=False)
    assert found == [PATIENT]


def test_kernels_are_compiled_while_others_are_added(empty_cache, monkeypatch):
    """The helper has compiled one before the last request is there."""
    monkeypatch.setattr("autosched.codegen.compile.WORTH_A_POOL", 0)
    requests = [Request(scale(float(f)), "scale") for f in range(3)]
    finished = counters.FINISHED.value
    with Compilation("cpu", jobs=2) as compilation:
        key = compilation.add(requests[0])
        assert compilation.add(requests[0]) == key
        for _ in range(600):
            if counters.FINISHED.value > finished:
                break
            time.sleep(0.1)
        assert counters.FINISHED.value == finished + 1
        for factor, kernel in enumerate(compilation.finish(requests)):
            check(kernel, factor)
