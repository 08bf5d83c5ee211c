import pytest

from autosched.codegen.cpu.assembly import Assembly
from benchmarks import static_loops
from benchmarks.static_cases import KERNELS
from benchmarks.static_loops import ARM_CPUS, CPUS, Loop, find_mca, hot_loops, rows_of, simulate

TEXT = """
.LBB0_1:
	vbroadcastss	(%rax), %zmm2
	vmovups	64(%rcx), %zmm3
	vfmadd231ps	%zmm2, %zmm3, %zmm0
	vfmadd231ps	4(%rax){1to16}, %zmm3, %zmm1
	addq	$4, %rax
	jne	.LBB0_1
"""


def loop() -> Loop:
    read = Assembly.read(TEXT)
    return Loop("matmul", read.body(read.innermost[0]))


def test_a_loop_is_counted():
    counts = loop().counts
    assert (counts["fmas"], counts["loads"], counts["stores"], counts["spills"]) == (2, 3, 0, 0)
    assert loop().accumulators == 2


def test_pure_loads_take_no_execution_port():
    lines = loop().text.splitlines()
    assert lines[0].split() == ["vmovntdqa", "(%rax),", "%zmm2"]
    assert lines[1].split() == ["vmovntdqa", "64(%rcx),", "%zmm3"]
    assert lines[3].split()[0] == "vfmadd231ps"


def test_every_kernel_is_a_function():
    for name, make in KERNELS.items():
        assert make().buffers, name


@pytest.mark.parametrize("cpu", [CPUS[0], CPUS[-1], ARM_CPUS[0]], ids=lambda c: c.name)
def test_the_hot_loop_of_a_product_fills_the_registers(cpu):
    first = hot_loops("dense 128x768x3072", cpu)[0]
    assert first.template == "matmul"
    assert first.accumulators >= 20
    assert first.counts["spills"] == 0


def test_without_llvm_mca_cycles_are_left_out():
    rows = rows_of("dense 16x768x3072", CPUS[0], None)
    assert rows
    assert all(row[-2:] == ("–", "–") for row in rows)


def test_what_multiply_adds_of_aarch64_write():
    read = Assembly.read("\tfmla\tv3.4s, v1.4s, v0.s[2]\n\tfmla\tv3.4s, v1.4s, v0.s[1]\n\tfmla\tv4.4s, v1.4s, v2.4s\n")
    assert Loop("matmul", read.instructions).accumulators == 2


def test_llvm_mca_predicts_cycles():
    mca = find_mca()
    if mca is None:
        pytest.skip("llvm-mca is not installed")
    (cycles,) = simulate([loop()], CPUS[0], mca)
    assert 4 <= cycles < 6  # each accumulator waits for itself


def test_an_older_llvm_mca_is_taken_last(monkeypatch):
    monkeypatch.setattr(static_loops.shutil, "which", {"llvm-mca": "/a", "llvm-mca-19": "/b"}.get)
    assert find_mca() == "/b"
