import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

import pytest

import autosched
from autosched import te, tir
from autosched.codegen import cache, compile_func, compile_funcs, counters
from autosched.codegen.compile import Request
from autosched.codegen.compiled import code_name
from autosched.errors import ArtifactError
from autosched.runtime import load_objects
from tests.layers import find_imports, modules

PACKAGE = Path(autosched.__file__).parent


@functools.cache
def _imports() -> Mapping[str, set[str]]:
    """Which packages each package imports, found by parsing."""
    graph: dict[str, set[str]] = {}
    for name, is_package, source in modules(PACKAGE):
        for found in find_imports(source, name, is_package=is_package):
            if found.is_string:
                continue
            graph.setdefault(name.split(".")[1:2][0] if "." in name else "", set()).add(found.imported.split(".")[1])
    return graph


def _packages_below(package: str) -> set[str]:
    """What a package imports by way of others."""
    seen, todo = set(), [package]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _imports().get(name, ())
    return {name for name in seen if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}


@pytest.mark.parametrize("package", ["codegen", "templates"])
def test_the_key_covers_every_file_below(package):
    files = cache.sources_below(package)
    assert {file.split("/")[0].removesuffix(".py") for file in files} == _packages_below(package)
    assert {"tir/simplify.py", "codegen/cpu/build.py", "codegen/native/loop.py", "target/target.py"} <= files.keys()
    assert any(file.startswith("tir/schedule/") for file in files)
    for file, text in files.items():
        assert (PACKAGE / file).read_bytes() == text


def test_another_proof_is_another_key(monkeypatch):
    first = cache.toolchain("cpu")
    files = cache.sources_below("codegen")
    files["tir/simplify.py"] += b"\n# mended\n"
    monkeypatch.setattr(cache, "sources_below", lambda package: files)
    assert cache.toolchain.__wrapped__("cpu") != first


def test_another_back_ends_code_is_the_same_key(monkeypatch):
    first = cache.toolchain("cpu")
    files = {**cache.sources_below("codegen"), "codegen/cuda/more.py": b"x = 1\n"}
    monkeypatch.setattr(cache, "sources_below", lambda package: files)
    assert cache.toolchain.__wrapped__("cpu") == first


def scaled(name: str) -> tir.PrimFunc:
    a = te.placeholder((32, 16), name="a")
    return te.create_prim_func([a, te.compute((32, 16), lambda i, j: a[i, j] * 2.5, name=name)])


def test_numbers_of_names_do_not_matter(tmp_path, monkeypatch):
    """The kernels of a model are numbered: those of another one have the same code under other numbers."""
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    before = counters.COMPILES.value
    first, again = (compile_func(scaled("b"), name=name) for name in ("fused_conv2d3_add1", "fused_conv2d12_add"))
    assert counters.COMPILES.value == before + 1
    assert (first.kernel.name, again.kernel.name) == ("fused_conv2d3_add1", "fused_conv2d12_add")
    assert first.kernel.object_code == again.kernel.object_code
    assert again.kernel.source.startswith("# fused_conv2d12_add(") and "def fused_conv2d_add_p0(" in again.kernel.source
    assert first.source.splitlines()[1:] == again.kernel.source.splitlines()[1:]


def test_requests_with_the_same_code_keep_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    made = compile_funcs([Request(scaled("b"), "relu1"), Request(scaled("b"), "relu2"), Request(scaled("c"), "relu3")])
    assert [compiled.kernel.name for compiled in made] == ["relu1", "relu2", "relu3"]
    assert len({compiled.kernel.object_code for compiled in made[:2]}) == 1


@pytest.mark.parametrize(
    ("name", "code"),
    [("fused_conv2d10_add5_relu4", "fused_conv2d_add_relu"), ("max_pool2d", "max_pool2d"), ("a.b-3", "a_b_3")],
)
def test_code_names(name, code):
    assert code_name(name) == code


def test_code_that_reads_the_same_has_other_symbols():
    """Three kernels of one model, numbered alike, whose bodies differ in types alone: each keeps its own code."""

    def copy_of(dtype: str) -> tir.PrimFunc:
        a = te.placeholder((50,), dtype, name="a")
        return te.create_prim_func([a, te.compute((50,), lambda i: a[i], name="b")])

    dtypes = ("int32", "float32", "bool", "int64")
    made = [compile_func(copy_of(dtype), name=f"take{i}", use_cache=False) for i, dtype in enumerate(dtypes)]
    symbols = [phase.symbol for compiled in made for phase in compiled.kernel.phases]
    assert len(set(symbols)) == len(dtypes)
    assert len(load_objects([compiled.kernel for compiled in made])) == len(dtypes)


def test_a_symbol_of_two_codes_is_refused():
    first, second = (compile_func(scaled("b"), name="f", use_cache=False).kernel for _ in range(2))
    other = compile_func(scaled("c"), name="f", use_cache=False).kernel
    code = other.object_code.replace(other.phases[0].symbol.encode(), first.phases[0].symbol.encode())
    assert code != first.object_code
    load_objects([first, second])
    with pytest.raises(ArtifactError, match="the name of other code too"):
        load_objects([first, dataclasses.replace(second, object_code=code)])
