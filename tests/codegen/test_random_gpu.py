"""Random schedules for a GPU compute what the program says: threads one by one, and on the emulator in both orders."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.errors import CodegenError, InvalidValueError, ScheduleError
from autosched.target import Target
from autosched.task import Status
from autosched.templates import apply_config, space_for
from autosched.testing.gpu import run_serially
from autosched.tir.interpret import interpret
from autosched.tuner.measure.check import check_output
from autosched.tuner.measure.make_reference import make_reference
from tests.codegen.random_gpu import random_gpu_schedule
from tests.codegen.random_programs import PROGRAMS
from tests.codegen.test_random import QUICK, assert_close, settings

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")


def scheduled(seed):
    """(function scheduled for a GPU, its arguments, what the program computes); None where the schedule is refused."""
    r = random.Random(seed)
    program = r.choice(PROGRAMS)(r)
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in program.buffers]
    expected = [a.copy() for a in arrays]
    interpret(program, expected)
    try:
        return random_gpu_schedule(program, r), arrays, expected
    except (ScheduleError, InvalidValueError):
        return None


def check(seed, on_emulator):
    """Whether the schedule of a seed became a kernel."""
    found = scheduled(seed)
    if found is None:
        return False
    func, arrays, expected = found
    serial = [a.copy() for a in arrays]
    try:
        run_serially(func, *serial)
    except CodegenError:
        return False
    assert_close(serial, expected)
    if on_emulator:
        try:
            kernel = compile_func(func, "cuda -arch=sm_80", use_cache=False).kernel
        except CodegenError:
            return False
        for order in ("late", "ahead"):
            memory = [a.copy() for a in arrays]
            emulate.run_kernel(kernel, memory, order=order)
            assert_close(memory, expected)
    return True


@settings(QUICK, max_examples=6)
@given(st.integers(0, 10**6))
def test_on_the_emulator(seed):
    check(seed, True)


def test_most_schedules_become_kernels():
    assert sum(check(seed, False) for seed in range(6)) >= 3


# Templates: random shapes, dtypes and configurations of their spaces

TARGET = Target("cuda -arch=sm_90a")


def placeholders(dtype, **shapes):
    return [te.placeholder(shape, dtype=dtype, name=name) for name, shape in shapes.items()]


def a_product(r, dtype):
    m, k, n = (r.randint(1, 40) for _ in range(3))
    a, b = placeholders(dtype, a=(m, k), b=(k, n))
    return [a, b, topi.relu(topi.matmul(a, b)) if r.random() < 0.5 else topi.matmul(a, b)]


def an_even_product(r, dtype):
    m, k, n = (r.choice((16, 32, 64, 128)) for _ in range(3))
    a, b = placeholders(dtype, a=(m, k), b=(k, n))
    return [a, b, topi.matmul(a, b)]


def a_batched_product(r, dtype):
    batch, m, k, n = r.randint(2, 4), *(r.randint(1, 20) for _ in range(3))
    a, b = placeholders(dtype, a=(batch, m, k), b=(batch, k, n))
    return [a, b, topi.matmul(a, b)]


def a_convolution(r, dtype):
    batch, channels, out = r.randint(1, 2), r.randint(2, 9), r.randint(1, 9)
    kernel, stride = r.choice((1, 3)), r.randint(1, 2)
    data, weight = placeholders(
        dtype, d=(batch, channels, r.randint(kernel, 11), r.randint(kernel, 11)), w=(out, channels, kernel, kernel)
    )
    return [data, weight, topi.nn.conv2d(data, weight, stride, kernel // 2, 1, "NCHW")]


def a_depthwise_convolution(r, dtype):
    channels = r.randint(2, 9)
    data, weight = placeholders(dtype, d=(1, channels, r.randint(3, 11), r.randint(3, 11)), w=(channels, 1, 3, 3))
    return [data, weight, topi.nn.depthwise_conv2d_nchw(data, weight, r.randint(1, 2), 1, 1)]


def rows(r, dtype):
    (x,) = placeholders(dtype, x=(r.randint(1, 9), r.randint(1, 70)))
    return [x, r.choice((topi.softmax, lambda y, axis: topi.sum(y, axis), lambda y, axis: topi.max(y, axis)))(x, -1)]


def a_reduction(r, dtype):
    (x,) = placeholders(dtype, x=tuple(r.randint(1, 12) for _ in range(3)))
    return [x, topi.sum(x, r.choice((0, 1, (0, 2), (0, 1))))]


def a_permutation(r, dtype):
    (x,) = placeholders(dtype, x=tuple(r.randint(1, 40) for _ in range(3)))
    return [x, topi.transpose(x, r.choice(((0, 2, 1), (2, 0, 1), (1, 0, 2), (2, 1, 0))))]


def elements(r, dtype):
    (x,) = placeholders(dtype, x=tuple(r.randint(1, 20) for _ in range(r.randint(1, 3))))
    return [x, topi.add(topi.exp(topi.minimum(x, x)), x)]


def attention(r, dtype):
    length, width = r.randint(1, 40), r.choice((8, 16, 32))
    q, k, v = placeholders(dtype, q=(1, 2, length, width), k=(1, 2, length, width), v=(1, 2, length, width))
    causal = r.choice((None, "TopLeft"))
    return [q, k, v, topi.attention(q, k, v, None, width**-0.5, causal, layouts=("BHSD",) * 4)]


FORMS = (
    a_product, an_even_product, a_batched_product, a_convolution, a_depthwise_convolution, rows, a_reduction,
    a_permutation, elements, attention,
)  # fmt: skip


def check_template(seed):
    """What is wrong with a random configuration of a random function's template; "" where nothing is.

    A configuration whose registers do not suffice is refused before it is measured, which is right.
    """
    r = random.Random(seed)
    form, dtype = r.choice(FORMS), r.choice(("float32", "float16"))
    func = te.create_prim_func(form(r, dtype))
    (config,) = space_for(func, TARGET).sample(seed, 1)
    about = f"seed {seed}, {form.__name__} {dtype}, {config}"
    applied = apply_config(func, config, TARGET)
    try:
        made = compile_func(applied.func, TARGET, name="kernel", use_cache=False).kernel
    except CodegenError as error:
        refusals = ("registers do not suffice", "split its loops further over threads")
        return "" if any(said in str(error) for said in refusals) else f"{about}: {error}"
    reference = make_reference(func, seed % 1000)
    for order in ("late", "ahead"):
        out = np.full(reference.outputs[0].shape, np.nan, func.buffers[-1].dtype)
        packs = zip(reference.inputs, applied.packs, strict=False)
        given = [np.array(a) if pack is None else pack.pack(a) for a, pack in packs]
        emulate.run_kernel(made, [*given, out], order=order)
        verdict = check_output("out", out, reference.outputs[0], reference.rounding[0])
        if verdict.status is not Status.OK:
            return f"{about}, {order}: {verdict.text}"
    return ""


@settings(QUICK, max_examples=4)
@given(st.integers(0, 10**6))
def test_templates_with_random_configurations(seed):
    assert not check_template(seed)


@pytest.mark.parametrize("seed", [660080, 660311, 661251, 661191, 661312])
def test_more_threads_than_elements(seed):
    """Tiles that are far larger than the function: a condition leaves few of the threads."""
    assert not check_template(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 40))
def test_templates_with_many_configurations(first):
    assert not [found for seed in range(first, first + 40) if (found := check_template(seed))]
