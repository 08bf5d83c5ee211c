"""Assembly text as instructions and loops."""

from __future__ import annotations

from autosched.codegen.cpu.assembly import Assembly

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
