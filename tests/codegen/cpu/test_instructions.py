"""What is counted of a kernel's machine code: of texts, and of kernels that do and do not fit the registers."""

from __future__ import annotations

import pytest

from autosched.codegen import compile_func
from autosched.codegen.cpu.instructions import COUNTS, count_instructions, product_instruction
from tests.codegen.programs import matmul

LOOPS = """
kernel:
	pushq	%rbp
	vmovaps	%ymm1, (%rsp)                   # 32-byte Spill
.LBB0_1:
	{inside}
	addq	$32, %rdi
	jne	.LBB0_1
.LBB0_2:
	vfmadd231ps	(%rdi), %ymm2, %ymm3
	vfmadd231ps	%ymm1, %ymm2, %ymm4
	jne	.LBB0_2
	retq
"""


def count(asm: str) -> dict[str, int]:
    return dict(zip(COUNTS, count_instructions(asm), strict=True))


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("vfmadd231ps	%ymm1, %ymm2, %ymm3", {"fmas"}),
        ("vfmadd231ps	32(%rsi,%rax,4), %ymm2, %ymm3", {"fmas", "loads"}),
        ("vfmadd231ps	32(%rsp), %ymm2, %ymm3", {"fmas", "spills"}),
        ("vmulps	%ymm1, %ymm2, %ymm3", {"arithmetic"}),
        ("vmovups	(%rsi), %ymm2", {"loads"}),
        ("vbroadcastss	(%rsi), %ymm2", {"loads"}),
        ("vbroadcastss	%xmm1, %ymm2", {"shuffles"}),
        ("vmovups	%ymm2, (%rsi)", {"stores"}),
        ("vmaskmovps	%ymm2, %ymm1, (%rsi)", {"stores"}),
        ("vmovaps	%ymm2, 64(%rsp)", {"spills"}),
        ("vmovaps	64(%rsp), %ymm2", {"spills"}),
        ("vmovaps	%ymm2, %ymm3", set()),
        ("vunpcklps	%ymm1, %ymm2, %ymm3", {"shuffles"}),
        ("vperm2f128	$49, %ymm1, %ymm2, %ymm3", {"shuffles"}),
        ("prefetcht0	(%rsi)", {"scalars"}),
    ],
)
def test_an_instruction_counts_as_what_it_does(line: str, kinds: set[str]) -> None:
    without, found = count(LOOPS.format(inside="")), count(LOOPS.format(inside=line))
    more = {kind for kind in ("fmas", "arithmetic", "loads", "stores", "shuffles", "scalars", "spills")
            if found[kind] > without[kind]}  # fmt: skip
    assert more == kinds and found["instructions"] == without["instructions"] + 1


def test_the_hot_loop_is_the_one_with_the_most_multiply_adds() -> None:
    found = count(LOOPS.format(inside="vfmadd231ps	32(%rsp), %ymm2, %ymm3"))
    assert (found["hot_fmas"], found["hot_loads"], found["hot_spills"], found["hot_scalars"]) == (2, 1, 0, 1)
    assert (found["fmas"], found["spills"]) == (3, 2)


def test_a_text_without_loops_is_hot_as_a_whole() -> None:
    found = count("kernel:\n\tvaddps\t(%rdi), %ymm1, %ymm2\n\tvmovups\t%ymm2, (%rsi)\n\tretq\n")
    assert (found["hot_arithmetic"], found["hot_loads"], found["hot_stores"], found["hot_scalars"]) == (1, 1, 1, 1)


def test_the_text_of_aarch64_is_counted_too() -> None:
    found = count("kernel:\n.LBB0_1:\n\tfmla\tv0.4s, v1.4s, v2.s[0]\n\tb.ne\t.LBB0_1\n\tret\n")
    assert (found["hot_fmas"], found["hot_scalars"], found["loads"], found["spills"]) == (1, 1, 0, 0)


def test_a_tile_that_spills_is_told_from_one_that_fits() -> None:
    """AVX2 has 16 registers: 12 accumulators of a 6 x 16 tile fit, the 24 of an 8 x 24 tile do not."""

    def tile(rows: int, vectors: int) -> dict[str, int]:
        func = matmul(2 * rows, 16 * vectors, 64, rows, vectors, 8)
        return count(compile_func(func, "llvm -mcpu=x86-64-v3", name="dense").asm)

    fits, spills = tile(6, 2), tile(8, 3)
    assert (fits["hot_fmas"], fits["hot_spills"], fits["spills"]) == (12, 0, 0)
    assert fits["hot_loads"] == 2 + 6 and fits["hot_stores"] == fits["hot_shuffles"] == 0
    assert spills["hot_fmas"] == 24 and spills["hot_spills"] >= 24 - 16
    assert spills["instructions"] > fits["instructions"]


def test_the_same_tile_fits_wider_registers_of_which_there_are_more() -> None:
    func = matmul(16, 96, 64, 8, 3, 16)
    found = count(compile_func(func, "llvm -mcpu=x86-64-v4", name="dense").asm)
    assert (found["hot_fmas"], found["hot_spills"]) == (24, 0)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("\tvfmadd231ps\t%ymm1, %ymm2, %ymm3\n\tvfmadd213ps\t%ymm1, %ymm2, %ymm3\n", "vfmadd…ps"),
        ("\tvfmadd231ps\t%zmm1, %zmm2, %zmm3\n\ttdpbusd\t%tmm6, %tmm4, %tmm0\n", "tdpbusd"),
        ("\tvpdpbusd\t%zmm1, %zmm2, %zmm3\n\tvmulps\t%zmm1, %zmm2, %zmm3\n", "vpdpbusd"),
        ("\tmulps\t%xmm1, %xmm2\n", "mulps"),
        ("\tfmla\tv0.4s, v1.4s, v2.s[0]\n", "fmla"),
        ("\tvaddps\t%ymm1, %ymm2, %ymm3\n", ""),
    ],
)
def test_the_instruction_that_multiplies_most_is_named(lines: str, name: str) -> None:
    assert product_instruction(f"kernel:\n{lines}\tret\n") == name
