"""Kernels for NVIDIA GPUs: source, PTX, machine code and what it uses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.errors import CodegenError
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, schedule_sizes
from tests.codegen.gpu_programs import elementwise, tensor_core_product, tiled_product
from tests.codegen.lower.test_launches import bind, two_blocks

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

from autosched.codegen.cuda import launch_code
from autosched.testing.numba_front_end import launches_by_numba

ARCHS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]


def compiled(func, arch="sm_90a", name="main"):
    return compile_func(func, f"cuda -arch={arch}", name=name, use_cache=False)


def test_a_product_becomes_machine_code_without_stack():
    made = compiled(tiled_product(70, 67, 9, per_thread=(4, 4)).func, "sm_75", "dense")
    kernel, used = made.kernel, made.report()
    assert (used.stack_bytes, used.spill_bytes) == (0, 0)
    assert 32 <= used.registers <= 128
    assert 4096 <= used.shared_bytes < 8192
    assert 0 < used.occupancy <= 1
    assert kernel.launches[0].grid == (2, 2, 1)
    assert kernel.launches[0].shared_bytes == 0
    assert f".entry {kernel.launches[0].symbol}" in kernel.ptx
    images = add_images(kernel, ARCHS).images  # which refuses stack and spills
    assert list(images) == ARCHS
    assert all(image.startswith(b"\x7fELF") for image in images.values())


def test_memory_is_moved_by_128_bits():
    ptx = compiled(tiled_product(128, 128, 64).func).kernel.ptx
    for text in ("ld.global.nc.v4", "st.shared.v4", "ld.shared.v4", "st.global.v4"):
        assert text in ptx
    assert not re.search(r"(ld|st)\.local", ptx)


@pytest.mark.parametrize("dtype, compute", [("float16", topi.exp), ("bfloat16", topi.exp), ("int8", topi.relu)])
def test_vectors_of_small_elements_are_one_access(dtype, compute):
    """Compilers see through the words that they are moved by, and moved them by twos and fours."""
    x = te.placeholder((64, 4096), dtype=dtype, name="x")
    func = create_prim_func([x, compute(x)])
    config = Config("elementwise", {"block_size": 256, "vector": 16 if dtype == "int8" else 8})
    kernel = compiled(apply_config(func, config, Target("cuda -arch=sm_90a")).func).kernel
    assert len(re.findall(r"\bld\.global", kernel.ptx)) == len(re.findall(r"\bst\.global", kernel.ptx)) == 1
    assert re.search(r"ld\.global(\.nc)?\.v4\.[bu]32", kernel.ptx) and re.search(r"st\.global\.v4\.[bu]32", kernel.ptx)


def test_addresses_that_are_not_aligned_are_loaded_one_by_one():
    assert ".v4" not in compiled(tiled_product(64, 67, 8).func).kernel.ptx.split("st.global")[-1]


def test_source_is_readable_python():
    made = compiled(tiled_product(128, 128, 64).func, name="dense")
    assert "def dense_l0(A, B, bias, D, scratch):  # 2 x 2 blocks of 16 x 8 threads, 4096 bytes" in made.source
    assert "tx = cuda.threadIdx.x" in made.source
    assert "# for ax2_0 in range(8):" in made.source.replace("#     for", "# for")
    assert "syncthreads()" in made.source
    assert "D_8x4(A, B, " in made.source
    compile(made.source, "source", "exec")


@pytest.mark.parametrize("made_of", ["two launches", "open sizes"])
def test_numba_compiles_the_same_source_to_the_same_results(
    made_of: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("cuda -arch=sm_90a")
    if made_of == "two launches":
        s = two_blocks()
        bind(s, "B", 16)
        bind(s, "C", 32)
        func, shapes = s.func, [tuple(map(int, b.shape)) for b in s.func.buffers]
    else:
        x = te.placeholder((te.var("n"), 40), name="x")
        func, shapes = schedule_sizes(create_prim_func([x, topi.softmax(x, -1)]), target).func, [(7, 40), (7, 40)]
    inputs = [rng.standard_normal(shape).astype("f4") for shape in shapes[:-1]]
    results = []
    for lower in (launch_code.lower_launches, launches_by_numba):
        monkeypatch.setattr(launch_code, "lower_launches", lower)
        kernel = compile_func(func, target, name="main", use_cache=False).kernel
        results.append(np.zeros(shapes[-1], "f4"))
        run_kernel(kernel if made_of == "two launches" else kernel.at((7,)), [*inputs, results[-1]])
    assert results[0].any() and results[0].tobytes() == results[1].tobytes()


def test_equal_input_gives_equal_bytes():
    first, second = (compiled(tiled_product(70, 65, 9).func).kernel for _ in range(2))
    assert first.images == second.images
    assert first.source == second.source


def test_launches_with_memory_between():
    s = two_blocks()
    bind(s, "B", 16)
    bind(s, "C", 32)
    kernel = compiled(s.func).kernel
    assert len(kernel.launches) == len(kernel.resources.launches) == 2
    assert kernel.scratch_bytes == 256
    assert kernel.ptx.count(".entry") == 2


def test_dynamic_shared_memory():
    kernel = compiled(tiled_product(128, 128, 256, (128, 128, 64), (4, 4), unroll=False).func).kernel
    assert kernel.launches[0].shared_bytes == kernel.resources.shared_bytes == 65536


def test_more_shared_memory_than_there_is_is_refused_before_assembling():
    func = tiled_product(128, 128, 256, (128, 128, 64), (4, 4), unroll=False).func
    with pytest.raises(CodegenError, match="65536 bytes of shared memory"):
        compile_func(func, Target("cuda -arch=sm_75 -max_shared_memory_per_block=49152"), use_cache=False)


def test_too_many_threads_are_refused():
    with pytest.raises(CodegenError, match="2048 threads"):
        compiled(tiled_product(64, 64, 8, (64, 64, 8), (1, 2)).func)


def test_registers_that_do_not_suffice_are_refused():
    s = tiled_product(128, 128, 4, (128, 128, 2), (16, 16))
    with pytest.raises(CodegenError, match="registers do not suffice"):
        compiled(s.func)


def test_further_architectures():
    kernel = add_images(compiled(elementwise((1000,)).func).kernel, ["sm_80", "sm_90a", "compute_75"])
    assert list(kernel.images) == ["sm_90a", "sm_80", "compute_75"]
    assert b".target sm_75" in kernel.images["compute_75"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int8", "int64"])
def test_elementwise(dtype):
    made = compiled(elementwise((1024,), 4, dtype).func)
    assert made.report().stack_bytes == 0


def test_the_cache_gives_a_kernel_back():
    func = elementwise((77,)).func
    first, second = (compile_func(func, "cuda -arch=sm_80", name="twice") for _ in range(2))
    assert second.from_cache
    assert first.kernel == second.kernel


@pytest.mark.parametrize("dtype, text", [("float16", "f32.f16.f16.f32"), ("int8", "s32.s8.s8.s32")])
def test_tensor_cores(dtype, text):
    step, pad = {"float16": (16, 8), "int8": (32, 16)}[dtype]
    func = tensor_core_product(64, 64, 64, dtype, (32, 32, 32), step=step, pad=pad, transposed=True).func
    kernel = compiled(func, "sm_80").kernel
    assert text in kernel.ptx
    assert "ldmatrix.sync.aligned.m8n8.x4" in kernel.ptx
    assert kernel.resources.stack_bytes == 0


def test_tensor_cores_that_the_architecture_lacks_are_refused():
    func = tensor_core_product(64, 64, 64, "bfloat16", (32, 32, 32)).func
    with pytest.raises(CodegenError, match="sm_75 lacks what the kernel uses"):
        compiled(func, "sm_75")


WITHOUT_PACKAGE = """
import sys, types
sys.modules["numba.cuda.compiler"] = types.ModuleType("numba.cuda.compiler")
import autosched
from autosched import te, topi
from autosched.errors import AutoschedError
x = te.placeholder((64,), name="x")
try:
    autosched.build(te.create_prim_func([x, topi.exp(x)]), target="cuda -arch=sm_80")
except AutoschedError as error:
    print(type(error).__name__, error.exit_code, error)
"""


def test_a_build_without_numba_cuda_says_what_to_install(tmp_path: Path) -> None:
    env = {**os.environ, "AUTOSCHED_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGE], env=env, capture_output=True, text=True, timeout=120)
    assert ran.stdout.startswith("DeviceError 2 the package numba-cuda is missing"), ran.stdout + ran.stderr
    assert "pip install 'autosched[cuda]'" in ran.stdout
