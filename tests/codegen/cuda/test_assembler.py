"""The assembler in its own process: results, refusals, and what never ends."""

import pytest

from autosched.codegen.cuda import assembler
from autosched.codegen.cuda.assembler import assemble
from autosched.errors import CodegenError

pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def sums(count: int) -> str:
    """A kernel of so many sums, each of two before."""
    lines = [f"fma.rn.f32 %f{i}, %f{i * 7 % max(i, 1)}, %f{i - 1}, %f{i // 2};" for i in range(2, count)]
    body = "ld.param.u64 %rd1, [p];\nld.global.f32 %f0, [%rd1];\nld.global.f32 %f1, [%rd1+4];\n" + "\n".join(lines)
    head = f".visible .entry sums(.param .u64 p) {{\n.reg .f32 %f<{count}>;\n.reg .b64 %rd<2>;\n"
    return f"{HEAD}{head}{body}\nst.global.f32 [%rd1], %f{count - 1};\nret;\n}}\n"


def test_what_takes_too_long_is_given_up_and_the_next_one_is_not(monkeypatch):
    monkeypatch.setenv("AUTOSCHED_ASSEMBLER_SECONDS", "1")
    with pytest.raises(CodegenError, match="did not end within 1 seconds for sm_80"):
        assemble(sums(200_000), "sm_80")
    found = assemble(sums(10), "sm_80")
    assert found.cubin[:4] == b"\x7fELF" and found.registers["sums"] > 0


def test_a_refusal_has_the_log_and_the_process_stays():
    assemble(sums(10), "sm_80")
    process = assembler._server().process
    with pytest.raises(CodegenError, match="the assembler refuses the code for sm_80: .*nothing"):
        assemble(HEAD + ".visible .entry f() { nothing.f32; }", "sm_80")
    assert assembler._server().process is process


def test_an_end_without_an_answer_costs_one_kernel():
    assemble(sums(10), "sm_80")
    process = assembler._server().process
    process.kill()
    process.wait()
    assert assemble(sums(11), "sm_80").registers["sums"] > 0
