"""What templates found, and what scheduling and compiling gave, is kept under keys of all that it was made from."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from autosched import te
from autosched.codegen import cache, counters
from autosched.codegen.compile import Compilation, Request, compile_func
from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.lower.flops import count_work
from autosched.errors import CodegenError
from autosched.runtime.cache import kernel_cache
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, kernel
from autosched.templates.base import schedule_attrs
from autosched.templates.kernel import Facts, KernelRequest, Made
from autosched.templates.registry import template_named
from autosched.templates.workload import describe
from autosched.tir import PrimFunc
from autosched.tir.in_place import overwritable
from autosched.tir.serialize import from_json, to_json
from autosched.tir.size_expr import SIZES
from tests.codegen.programs import run

HOST = Target("cpu")


def product(rows: int = 16, name: str = "out") -> PrimFunc:
    a, b = te.placeholder((rows, 32), name="a"), te.placeholder((32, 48), name="b")
    k = te.reduce_axis((0, 32), "k")
    return te.create_prim_func(
        [a, b, te.compute((rows, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)]
    )


def request(func: PrimFunc | None = None, name: str = "dense", checks: bool = False, **knobs: object) -> KernelRequest:
    func = func or product()
    config = default_config(func, HOST)
    return KernelRequest(func, name, Config(config.template, {**config.knobs, **knobs}), checks=checks)


def made(asked: KernelRequest) -> Made:
    with Compilation[Made](HOST) as compilation:
        return compilation.finish([asked])[0]


def refuse(*_: object) -> object:
    raise AssertionError("nothing is scheduled or compiled")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))


def test_the_second_time_nothing_is_scheduled(empty_cache, monkeypatch):
    first = made(request(name="dense3"))
    assert not first.from_cache
    applied = apply_config(product(), request().config, HOST)
    assert first.scheduled.packs == applied.packs and any(first.scheduled.packs)
    func = from_json(first.scheduled.text)
    assert to_json(func) == first.scheduled.text and func.attrs["autosched.trace"] == applied.trace
    assert first.scheduled.in_place == overwritable(applied.func)
    monkeypatch.setattr(kernel, "apply_config", refuse)
    compiled = counters.COMPILES.value
    again = made(request(name="dense12"))
    assert again.from_cache and again.scheduled == first.scheduled
    assert again.compiled.kernel.object_code == first.compiled.kernel.object_code
    assert again.compiled.kernel.name == "dense12" and counters.COMPILES.value == compiled


def other_knobs() -> KernelRequest:
    rows = request().config["rows"]
    return request(rows=rows - 1 if rows > 1 else 2)


@pytest.mark.parametrize(
    "other",
    [
        other_knobs,
        lambda: request(product(17)),
        lambda: request(product(name="product")),
        lambda: request(product().with_attr("autosched.accuracy", "strict")),
        lambda: request(checks=True),
        lambda: request(name="matmul"),
    ],
    ids=["knobs", "sizes", "block", "attribute", "checks", "name"],
)
def test_another_kernel_is_another_key(other: Callable[[], KernelRequest]):
    assert other().key(HOST) != request().key(HOST)


@pytest.mark.parametrize(
    "option", ["-mcpu=haswell", "-mattr=-avx512f", "-l2-bytes=4096", "-num-cores=77", "-vector-width=128"]
)
def test_another_machine_is_another_key(option):
    assert request().key(Target(f"llvm {option}")) != request().key(HOST)


@pytest.mark.parametrize("variable", ["AUTOSCHED_HOST_CACHES", "AUTOSCHED_HOST_CORES"])
def test_what_this_machine_is_taken_for_is_in_the_key(monkeypatch, variable):
    before = request().key(Target("cpu"))
    monkeypatch.setenv(variable, "32K,1M,8M" if variable.endswith("CACHES") else "77")
    assert request().key(Target("cpu")) != before


@pytest.mark.parametrize(
    "file", ["templates/cpu/matmul.py", "templates/kernel.py", "tir/schedule/loops.py", "tir/in_place.py",
             "codegen/cpu/tile.py", "te/prim_func.py", "space/config.py"]
)  # fmt: skip
def test_another_source_is_another_key(monkeypatch, file):
    key = request().key(HOST)
    before = cache.toolchain.__wrapped__("cpu", "templates")
    files = cache.sources_below("templates")
    files[file] += b"\n# mended\n"
    monkeypatch.setattr(cache, "sources_below", lambda package: files)
    after = cache.toolchain.__wrapped__("cpu", "templates")
    assert after != before
    monkeypatch.setattr(kernel, "toolchain", lambda *_: after)
    assert request().key(HOST) != key


def test_a_kernel_that_the_cache_has_lost_is_made_again(empty_cache):
    first = made(request())
    cached = kernel_cache()
    cached._path(cached_name(first.scheduled.kernel)).unlink()
    again = made(request())
    assert not again.from_cache and again.scheduled == first.scheduled


def cached_name(key: str) -> str:
    from autosched.runtime.cache import _name

    return _name(key)


def test_the_second_time_no_template_is_asked(empty_cache, monkeypatch):
    first = Facts.of(product(), HOST)
    assert first == Facts(describe(product(), HOST), default_config(product(), HOST), count_work(product()))
    for name in ("describe", "default_config", "count_work"):
        monkeypatch.setattr(kernel, name, refuse)
    assert Facts.of(product(), HOST) == first
    with pytest.raises(AssertionError, match="nothing is"):
        Facts.of(product(), Target("llvm -l2-bytes=4096"))


def test_defaults_among_templates_of_others_are_not_kept(empty_cache, monkeypatch):
    Facts.of(product(), HOST)
    monkeypatch.setattr(kernel, "has_foreign", lambda backend: True)
    monkeypatch.setattr(kernel, "default_config", lambda *_: Config("matmul", {"rows": 3}))
    assert Facts.of(product(), HOST).default == Config("matmul", {"rows": 3})


def test_an_entry_of_others_is_not_read(empty_cache, monkeypatch):
    """A pickle can do anything: what was not stored by the holder of the secret is never unpickled."""
    asked = request()
    made(asked)
    cached = kernel_cache()
    path = cached._path(cached_name(asked.key(HOST)))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(pickle, "loads", refuse)
    assert asked.load(asked.key(HOST)) is None


def test_templates_of_others_are_not_kept(empty_cache, monkeypatch):
    """Their sources are in no key."""

    class Foreign(type(template_named("matmul", HOST))):  # type: ignore[misc]
        pass

    monkeypatch.setattr(kernel, "template_named", lambda *_: Foreign())
    asked = request()
    assert not made(asked).from_cache
    assert asked.load(asked.key(HOST)) is None


def test_a_request_can_be_sent():
    asked = request(checks=True)
    read = pickle.loads(pickle.dumps(asked))
    assert read.key(HOST) == asked.key(HOST)
    assert dataclasses.fields(read) == dataclasses.fields(asked)


def scaled(channels: int) -> PrimFunc:
    x = te.placeholder((1, channels, 7, 7, 16), name="x")
    scale = te.placeholder((1, channels, 1, 1, 16), name="scale")
    out = te.compute(x.shape, lambda n, c, y, x_, b: x[n, c, y, x_, b] * scale[0, c, 0, 0, b], name="out")
    return te.create_prim_func([x, scale, out], "int64")


def test_functions_that_differ_in_outer_numbers_have_one_kernel(empty_cache):
    first = made(request(scaled(20)))
    second = made(request(scaled(25)))
    assert first.scheduled.kernel == second.scheduled.kernel and second.compiled.from_cache
    assert [m.scheduled.numbers for m in (first, second)] == [(20,), (25,)]
    for channels, one in ((20, first), (25, second)):
        shape = (1, channels, 7, 7, 16)
        assert [arg.shape for arg in one.compiled.kernel.args] == [shape, (1, channels, 1, 1, 16), shape]
        x, scale, out = (np.random.default_rng(0).random(arg.shape, "float32") for arg in one.compiled.kernel.args)
        run(one.compiled, [x, scale, out])
        np.testing.assert_array_equal(out, x * scale)
        assert one.compiled.source.startswith("# dense(x: float32[1, n0, 7, 7, 16], scale: float32[1, n0, 1, 1, 16], ")
    again = made(request(scaled(25)))
    assert again.from_cache and again.compiled.kernel == second.compiled.kernel


def test_a_kernel_of_its_own_numbers_that_is_there_is_taken(empty_cache):
    asked = request(scaled(20))
    applied = apply_config(asked.func, asked.config, HOST)
    func = applied.func.with_attr(schedule_attrs(asked.config, applied))
    own = compile_func(func, HOST, name=asked.name, trace=applied.trace, config=asked.config.to_json())
    found = made(asked)
    assert found.from_cache and found.scheduled.numbers == () and found.compiled.kernel == own.kernel


def test_a_form_that_cannot_be_compiled(empty_cache, monkeypatch):
    def refuse_symbols(self: Request, target: Target, key: str) -> CompiledKernel:
        if SIZES in self.func.attrs:
            raise CodegenError("symbols")
        return make(self, target, key)

    make = Request.make
    monkeypatch.setattr(Request, "make", refuse_symbols)
    asked = request(scaled(20))
    assert asked.make(HOST, asked.key(HOST)).scheduled.numbers == ()


def test_checked_kernels_have_numbers(empty_cache):
    assert made(request(scaled(20), checks=True)).scheduled.numbers == ()


def test_numbers_of_a_form_in_a_manifest(empty_cache):
    kernel = as_cpu(made(request(scaled(20))).compiled.kernel)
    entry = json.loads(json.dumps(kernel.to_manifest()))
    CpuKernel.check_manifest("it", entry)
    assert CpuKernel.read_manifest(entry, kernel.code) == kernel
    for wrong in (
        {"numbers": [21]},
        {"numbers": [20, 1]},
        {"numbers": [0]},
        {"numbers": [-20]},
        {"numbers": [2.5]},
        {"phases": [[symbol, n + 1] for symbol, n in entry["phases"]]},
        {"args": [[*arg[:3], [2, *arg[3][1:]]] for arg in entry["args"]]},
        {"scratch_bytes": 64 + entry["scratch_bytes"]},
    ):
        with pytest.raises(ValueError, match="of it|it has"):
            CpuKernel.check_manifest("it", {**entry, **wrong})
