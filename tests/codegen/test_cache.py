from pathlib import Path

import autosched
from autosched.codegen import cache
from tests.layers import find_imports, modules

PACKAGE = Path(autosched.__file__).parent


def _packages_below(package: str) -> set[str]:
    """What a package imports by way of others, found by parsing."""
    graph: dict[str, set[str]] = {}
    for name, is_package, source in modules(PACKAGE):
        for found in find_imports(source, name, is_package=is_package):
            if found.is_string:
                continue
            graph.setdefault(name.split(".")[1:2][0] if "." in name else "", set()).add(found.imported.split(".")[1])
    seen, todo = set(), [package]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph.get(name, ())
    return {name for name in seen if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()}


def test_the_key_covers_every_file_below_the_code_generator():
    files = cache.sources_below("codegen")
    assert {file.split("/")[0].removesuffix(".py") for file in files} == _packages_below("codegen")
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
