"""Where a model's time goes: the parts against the whole, rates, peaks, the trace."""

from __future__ import annotations

import pytest

import autosched
from autosched.codegen import compile_func
from autosched.codegen.lower.flops import count_work
from autosched.driver.bench.peaks import Level, Peaks, load_function, measure_peaks
from autosched.driver.bench.profile import Profile, profile
from autosched.frontend.onnx import from_onnx
from autosched.records import FallbackContext
from autosched.target import Target
from autosched.templates.cpu.peaks import STEPS, fma_function, read_function
from benchmarks.models import get_model
from tests.templates.cases import conv, dense

HOST = Target("cpu")
PEAKS = Peaks(1, 1e11, (Level("L1", 1000, 2e11), Level("memory", 10**9, 2e10)))


@pytest.fixture(scope="module")
def mlp() -> Profile:
    executable = autosched.build(from_onnx(get_model("mlp", 128)), target="cpu", records=FallbackContext(), threads=1)
    return profile(executable, name="mlp", threads=1, time_s=0.3)


def test_the_parts_make_up_the_whole(mlp: Profile) -> None:
    assert sum(kernel.share for kernel in mlp.kernels) == pytest.approx(1)
    assert sum(kernel.seconds for kernel in mlp.kernels) == pytest.approx(sum(node.seconds for node in mlp.nodes))
    assert mlp.sum_s > 0 and mlp.end_to_end_s > 0
    assert "sum of kernels" in mlp.summary


def test_rates_come_from_the_operator_s_arithmetic(mlp: Profile) -> None:
    largest = mlp.kernels[0]
    assert largest.template == "matmul"
    assert largest.origin == "template default"
    products = 2 * 128 * 784 * 256
    assert products <= largest.flops <= 1.02 * products
    assert largest.gflops == pytest.approx(largest.flops / largest.seconds / 1e9)
    assert largest.size_bytes >= 4 * (128 * 784 + 784 * 256 + 128 * 256)
    assert largest.bound == "compute"
    assert largest.peak_share == pytest.approx(largest.flops / mlp.peaks.flops_per_s / largest.seconds)
    assert largest.bound == "compute"


def test_trace_has_every_call_in_order(mlp: Profile) -> None:
    events = [event for event in mlp.trace()["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == [node.name for node in mlp.nodes]
    starts = [event["ts"] for event in events]
    assert starts == sorted(starts)
    assert events[-1]["ts"] + events[-1]["dur"] == pytest.approx(1e6 * sum(node.seconds for node in mlp.nodes))


def test_roofline_takes_the_slower_of_both_and_the_memory_that_has_room() -> None:
    assert PEAKS.least_s(10**9, 100) == pytest.approx(1e-2)
    assert PEAKS.least_s(0, 1000) == pytest.approx(5e-9)
    assert PEAKS.least_s(0, 2000) == pytest.approx(1e-7)
    assert PEAKS.level(10**12).name == "memory"


def test_peak_kernels_compute_what_they_say_and_use_vectors() -> None:
    for func, expected in ((fma_function(3, 16, 2), 0.25 * STEPS), (read_function(2, 5, 16), 2.5)):
        program, buffers = load_function(func, HOST, 1)
        program.run()
        assert (buffers[max(buffers)] == expected).all()
    report = compile_func(fma_function(3, 2 * HOST.lanes("float32"), 4), HOST, name="peak").report()
    assert report.fmas == 6
    assert report.spills == 0
    assert report.vector_bits == HOST.vector_bits


def test_peaks_of_this_machine_are_plausible() -> None:
    peaks = measure_peaks(HOST, 1)
    assert 1e9 < peaks.flops_per_s < 1e12
    sizes = [level.size_bytes for level in peaks.levels]
    assert sizes == sorted(sizes)
    assert peaks.levels[0].bytes_per_s > peaks.levels[-1].bytes_per_s > 1e9
    assert measure_peaks(HOST, 1) is peaks


def test_work_is_the_natural_function_s() -> None:
    assert count_work(dense(8, 16, 24, epilogue=False)) == 2 * 8 * 16 * 24
    found = count_work(conv(1, 32, 7, 32, 3, 1, 1))
    assert 2 * 49 * 32 * 32 * 9 <= found <= 2 * 49 * 32 * (32 * 9 + 2)
