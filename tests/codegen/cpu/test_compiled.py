from autosched.codegen.cpu.compiled import read_assembly

LOOP = """
kernel:
	vmovaps	%ymm1, (%rsp)
.LBB0_1:
	vmovaps	{spilled}, %ymm2
	vfmadd231ps	(%rdi), %ymm2, %ymm3
	addq	$32, %rdi
	jne	.LBB0_1
	vmovaps	(%rsp), %ymm1
	retq
"""


def test_stack_moves_count_inside_loops_with_multiply_adds_only():
    clean, spilling = LOOP.format(spilled="(%rsi)"), LOOP.format(spilled="32(%rsp)")
    assert read_assembly(clean).spills == 0
    assert read_assembly(spilling).spills == 1
    assert read_assembly(spilling).loops == read_assembly(spilling).fmas == 1
    assert read_assembly(clean).vector_bits == 256


def test_an_outer_loop_may_move_registers():
    nest = """
.LBB0_0:
	vmovaps	%zmm1, 64(%rsp)
.LBB0_1:
	vfmadd231ps	(%rdi), %zmm2, %zmm3
	jne	.LBB0_1
	jne	.LBB0_0
"""
    report = read_assembly(nest)
    assert (report.spills, report.loops, report.vector_bits) == (0, 1, 512)


def test_a_loop_whose_multiply_adds_are_all_scalar_is_told_from_one_with_vectors():
    vectors = LOOP.format(spilled="(%rsi)")
    scalar = vectors.replace("vfmadd231ps", "vfmadd231ss")
    both = vectors.replace("addq", "vfmadd231ss (%rdi), %xmm2, %xmm3\n\taddq")
    assert read_assembly(vectors).scalar_loops == 0
    assert read_assembly(scalar).scalar_loops == 1
    assert read_assembly(both).scalar_loops == 0


def test_spills_of_sums_are_told_from_those_of_loops_that_store():
    sums = LOOP.format(spilled="32(%rsp)")
    stores = sums.replace("addq", "vmovups %ymm3, (%rdx,%rdi)\n\taddq")
    assert (read_assembly(sums).sum_spills, read_assembly(sums).spills) == (1, 1)
    assert (read_assembly(stores).sum_spills, read_assembly(stores).spills) == (0, 1)
