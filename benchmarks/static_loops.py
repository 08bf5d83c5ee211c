"""The hot loops of default kernels, predicted from their machine code: for AVX-512, or AArch64, on any machine.

    python -m benchmarks.static_loops [--arch aarch64] [--only conv] [--cpus znver4,skylake-avx512] [--print]

Each kernel is compiled for a CPU's name and caches; llvm-mca (where it is installed) simulates its loops with all data
in the first-level cache. These are predictions, not timings. The table is written to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.codegen import compile_func
from autosched.codegen.cpu.assembly import ArmInstruction, Assembly, Instruction
from autosched.codegen.cpu.instructions import KINDS, count_kinds
from autosched.target import Target
from autosched.templates import templates_for
from benchmarks.machine import RESULTS, Table, commit
from benchmarks.static_cases import KERNELS

KIB, ITERATIONS = 1024, 200
MCA_NAMES = (*(f"llvm-mca-{version}" for version in range(29, 17, -1)), "llvm-mca")  # znver4 is known since 17
_RESULT = re.compile(r"%[xyz]mm(\d+)$")
PURE_LOADS = ("vmovups", "vmovaps", "vbroadcastss")
NOTES = (
    "predictions of llvm-mca from the machine code, not timings: all data in the first-level cache, no branch missed, "
    "no clock that falls",
    "bound: the cycles that the loop's multiply-adds take alone, two of 512 bits a cycle on Intel's server CPUs, one "
    "on Zen 4; share: bound / cycles. Zen 5 runs two a cycle; LLVM 19 has no model of its own for it",
    "LLVM 19's models of icelake-server and sapphirerapids know one port for multiply-adds of 512 bits, as client "
    "CPUs have; both are simulated on the ports of skylake-avx512, which has two like them",
    "loads that do nothing else (vmovups, vbroadcastss) are handed to llvm-mca as vmovntdqa: that its models let some "
    "of them take an execution port as well is taken for their error; with it the share of a tile of 14 x 2 vectors "
    "were 0.93 on skylake-avx512 and 0.67 on znver4",
    "transforms, softmax and element-wise loops have more to do than multiply-adds: `work` is all vector arithmetic "
    "and shuffles on the ports of multiply-adds, in cycles; Zen 4 adds on further ports",
)
ARM_NOTES = (
    "predictions of llvm-mca from the machine code, not timings: all data in the first-level cache, no branch missed; "
    "no speed on such machines is claimed",
    "bound: the cycles that the loop's multiply-adds take alone, two of 128 bits a cycle on Neoverse N1 and N2, four "
    "on V2; share: bound / cycles",
    NOTES[-1].partition("; Zen 4")[0],
)


@dataclass(frozen=True)
class Cpu:
    """A CPU by LLVM's name: the model that simulates it, its multiply-adds of whole vectors a cycle, and its caches."""

    name: str
    model: str
    fmas: int
    l1_kib: int
    l2_kib: int
    l3_kib: int
    triple: str = "x86_64-linux-gnu"

    @property
    def target(self) -> Target:
        sizes = f"-l1-bytes={self.l1_kib * KIB} -l2-bytes={self.l2_kib * KIB} -l3-bytes={self.l3_kib * KIB}"
        return Target(f"llvm -mtriple={self.triple} -mcpu={self.name} -num-cores=2 {sizes}")


CPUS = (
    Cpu("skylake-avx512", "skylake-avx512", 2, 32, 1024, 24 * KIB),
    Cpu("icelake-server", "skylake-avx512", 2, 48, 1280, 36 * KIB),
    Cpu("sapphirerapids", "skylake-avx512", 2, 48, 2048, 64 * KIB),
    Cpu("znver4", "znver4", 1, 32, 1024, 32 * KIB),
)
ARM = "aarch64-linux-gnu"
ARM_CPUS = (
    Cpu("neoverse-n1", "neoverse-n1", 2, 64, 1024, 32 * KIB, ARM),
    Cpu("neoverse-n2", "neoverse-n2", 2, 64, 1024, 32 * KIB, ARM),
    Cpu("neoverse-v2", "neoverse-v2", 4, 64, 1024, 32 * KIB, ARM),
)
ARCHITECTURES = {  # the CPUs, what the table is called, its file, its notes
    "x86_64": (CPUS, "AVX-512", "avx512-static.md", NOTES),
    "aarch64": (ARM_CPUS, "AArch64", "aarch64-static.md", ARM_NOTES),
}


@dataclass(frozen=True)
class Loop:
    """A loop of a kernel's template, as its instructions."""

    template: str
    body: Sequence[Instruction]

    @property
    def counts(self) -> dict[str, int]:
        """Instructions by kind."""
        return dict(zip(KINDS, count_kinds(self.body), strict=True))

    @property
    def accumulators(self) -> int:
        """Registers that multiply-adds write."""
        return len({_written(one) for one in self.body if one.is_fma})

    @property
    def text(self) -> str:
        """As llvm-mca reads it: pure loads by a name whose model is a load alone."""
        return "\n".join(_line(one) for one in self.body)


def _written(one: Instruction) -> str:
    """The register that an instruction writes: the first one of AArch64's, the last one of AT&T's syntax."""
    if isinstance(one, ArmInstruction):
        return one.operands.partition(".")[0].partition(",")[0]
    return one.operands.rpartition("%")[2]


def _line(one: Instruction) -> str:
    if isinstance(one, ArmInstruction):
        return f"\t{one.name}\t{one.operands}"
    if one.loads and one.name in PURE_LOADS and "{" not in one.operands:
        operands = _RESULT.sub(r"%zmm\1", one.operands)
        return f"\tvmovntdqa\t{operands}"
    return f"\t{one.name}\t{one.operands}"


def hot_loops(kernel: str, cpu: Cpu) -> list[Loop]:
    """The loops that a kernel's defaults spend their time in, of each template that takes it."""
    func, found = KERNELS[kernel](), []
    for template, anchor in templates_for(func, cpu.target):
        applied = template.apply(func, template.default(anchor, cpu.target), cpu.target)
        read = Assembly.read(compile_func(applied.func, cpu.target, name="kernel").asm)
        bodies = [read.body(loop) for loop in read.innermost]
        found += [Loop(template.name, body) for body in _hottest([b for b in bodies if any(i.is_vector for i in b)])]
    return found


def _hottest(bodies: Sequence[Sequence[Instruction]]) -> list[Sequence[Instruction]]:
    """The two largest loops that add products up, or all else if there are none; the two largest that store as well."""
    sums = [b for b in bodies if any(i.is_fma for i in b) and not any(i.stores and not i.on_stack for i in b)]
    others = [b for b in bodies if b not in sums and sum(i.is_fma for i in b) > len(b) / 8] if sums else list(bodies)

    def largest(some: Sequence[Sequence[Instruction]]) -> list[Sequence[Instruction]]:
        ordered = sorted(some, key=lambda b: (sum(i.is_fma for i in b), sum(i.is_vector for i in b)), reverse=True)
        kinds = {tuple(sorted(i.name for i in b)): b for b in reversed(ordered)}
        return [b for b in ordered if b is kinds[tuple(sorted(i.name for i in b))]][:2]

    return [*largest(sums), *largest(others)]


def simulate(loops: Sequence[Loop], cpu: Cpu, mca: str) -> list[float]:
    """Cycles of one iteration of each loop."""
    regions = [f"# LLVM-MCA-BEGIN {i}\n{loop.text}\n# LLVM-MCA-END" for i, loop in enumerate(loops)]
    command = [mca, f"-mtriple={cpu.triple}", f"-mcpu={cpu.model}", f"-iterations={ITERATIONS}"]
    command += ["-instruction-info=0", "-resource-pressure=0"]
    done = subprocess.run(command, input="\n".join(regions) + "\n", capture_output=True, text=True, check=True)
    return [int(cycles) / ITERATIONS for cycles in re.findall(r"Total Cycles:\s+(\d+)", done.stdout)]


def rows_of(kernel: str, cpu: Cpu, mca: str | None) -> list[tuple[str, ...]]:
    """The table's rows of one kernel on one CPU."""
    loops = hot_loops(kernel, cpu)
    cycles: Sequence[float | None] = simulate(loops, cpu, mca) if mca and loops else [None] * len(loops)
    found = []
    for loop, taken in zip(loops, cycles, strict=True):
        c = loop.counts
        bound, work = c["fmas"] / cpu.fmas, (c["fmas"] + c["arithmetic"] + c["shuffles"]) / cpu.fmas
        counted = (len(loop.body), c["fmas"], loop.accumulators, c["loads"], c["stores"], c["spills"])
        share = f"{bound / taken:.2f}" if taken and bound else "–"
        timed = (f"{taken:.1f}" if taken else "–", share)
        found.append((kernel, loop.template, cpu.name, *map(str, counted), f"{bound:g}", f"{work:g}", *timed))
    return found


def find_mca() -> str | None:
    """The llvm-mca that is installed, under any version's name."""
    return next((path for name in MCA_NAMES if (path := shutil.which(name))), None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.static_loops", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="x86_64")
    parser.add_argument("--cpus", default="", help="names, all where none is given")
    parser.add_argument("--print", action="store_true", help="print the table only")
    args = parser.parse_args()
    mca = find_mca()
    cpus, what, file, notes = ARCHITECTURES[args.arch]
    chosen = [cpu for cpu in cpus if not args.cpus or cpu.name in args.cpus.split(",")]
    columns = ("kernel", "template", "CPU", "instructions", "multiply-adds", "accumulators", "loads", "stores")
    table = Table(
        f"Hot loops of the default kernels for {what}: predictions, not timings",
        (*columns, "on the stack", "bound", "work", "cycles", "share"),
        notes=list(notes),
    )
    for kernel in (name for name in KERNELS if args.only in name):
        for cpu in chosen:
            table.rows += rows_of(kernel, cpu, mca)
    version = subprocess.run([mca, "--version"], capture_output=True, text=True).stdout.split("\n")[0] if mca else ""
    made_by = (
        version.strip() if mca else "llvm-mca is not installed: instructions are counted, cycles are not predicted"
    )
    arch = "" if args.arch == "x86_64" else f" --arch {args.arch}"
    command = f"`python -m benchmarks.static_loops{arch}`"
    text = f"{made_by}; commit {commit() or 'unknown'}\n\n{command}\n\n{table.markdown()}\n"
    print(text)
    if not args.print and not args.only:
        (RESULTS / file).write_text(text)


if __name__ == "__main__":
    main()
