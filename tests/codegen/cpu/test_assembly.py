"""Assembly text as instructions and loops."""

from __future__ import annotations

from autosched.codegen.cpu.assembly import Assembly
from autosched.codegen.cpu.instructions import count_kinds

NEST = """
	.text
kernel:                                 # @kernel
	movq	%rsp, %rax
.LBB0_1:                                # =>This Loop Header: Depth=1
	xorl	%ecx, %ecx
.LBB0_2:                                #   Parent Loop BB0_1 Depth=1
	vaddps	(%rdi), %ymm1, %ymm2    # a comment with (%rsp)
	jne	.LBB0_2
	testq	%rax, %rax
	jne	.LBB0_1
	jmp	.LBB0_3
.LBB0_3:
	retq
	.size	kernel, 4
"""


def test_directives_labels_and_comments_are_no_instructions() -> None:
    names = [one.name for one in Assembly.read(NEST).instructions]
    assert names == ["movq", "xorl", "vaddps", "jne", "testq", "jne", "jmp", "retq"]
    assert not any(one.on_stack for one in Assembly.read(NEST).instructions)


def test_loops_are_jumps_back() -> None:
    read = Assembly.read(NEST)
    assert sorted((loop.start, loop.stop) for loop in read.loops) == [(1, 6), (2, 4)]
    assert [[one.name for one in read.body(loop)] for loop in read.innermost] == [["vaddps", "jne"]]


def test_the_frame_pointer_is_the_stack_where_it_is_one() -> None:
    line = "\tvmovaps\t%ymm1, -64(%rbp)\n"
    (plain,) = Assembly.read(line).instructions
    *_, framed = Assembly.read("\tmovq\t%rsp, %rbp\n" + line).instructions
    assert not plain.on_stack and framed.on_stack and framed.stores


def test_memory_is_read_or_written() -> None:
    text = "\tvmovups\t(%rax), %zmm0\n\tvmovups\t%zmm0, (%rax) {%k1}\n\tvaddps\t(%rax){1to16}, %zmm0, %zmm1\n"
    load, store, folded = Assembly.read(text).instructions
    assert (load.loads, load.stores) == (folded.loads, folded.stores) == (True, False)
    assert (store.loads, store.stores) == (False, True)
    assert Assembly.read(text).vector_bits == 512


ARM = """
	.text
f:
	stp	d13, d12, [sp, #16]
.LBB0_1:                                // a loop
	ldp	q9, q10, [x13]
	ldr	s14, [x14, #2048]
	fmla	v31.4s, v10.4s, v14.s[0]
	fadd	v1.4s, v1.4s, v2.4s
	str	q3, [sp, #32]
	add	x8, x8, #4
	b.ne	.LBB0_1
	ret
"""


def test_aarch64_is_read_too() -> None:
    read = Assembly.read(ARM)
    assert read.loops == [range(1, 8)] and read.vector_bits == 128
    load, scalar, fma, add, spill, count, jump = read.body(read.loops[0])
    assert load.loads and load.is_packed and scalar.loads and not scalar.is_packed
    assert fma.is_fma and fma.is_packed and not fma.loads
    assert add.is_vector and not add.is_fma
    assert spill.stores and spill.on_stack
    assert not count.is_vector and not jump.is_vector
    assert count_kinds(read.body(read.loops[0])) == (1, 1, 2, 0, 0, 2, 1)
