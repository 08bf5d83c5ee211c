"""What the threads of one block execute: instructions by kind, sectors of memory, passes over shared memory's banks.

The LLVM IR is counted as it comes, everything inlined: address arithmetic that libnvvm takes out of loops later is in
it, so integer instructions are an upper bound.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.launch import Checks, Launch
from autosched.codegen.cuda.emulate.program import Program, Translator
from autosched.codegen.cuda.emulate.text import call_of
from autosched.codegen.cuda.emulate.trace import SECTOR_BYTES, Trace, bank_passes, is_shared, memory_sectors
from autosched.runtime.cuda.kernel import TensorMap

SAMPLED = 64  # requests of an instruction whose addresses are looked at
CAPACITY = 1 << 21
_LABEL = re.compile(r'^("[^"]+"|[\w.$-]+):')
_FLOATS = {"half": "float16", "float": "float32", "double": "float64", "bfloat": "bfloat16"}
_INTEGERS = ("add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "select", "getelementptr")
_DIVISIONS = ("sdiv", "udiv", "srem", "urem")
_CONSTANT_INDEX = re.compile(r", i\d+ -?\d+$")  # part of the access
DIVISION, SPECIAL = 20, 12  # instructions of an integer division, of a function such as exp
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")


@dataclass(frozen=True)
class BlockCounts:
    """Of one block.

    threads     that ran
    kinds       executions by all threads: "float32", "float16", "float64" (multiply-adds or less), "integer", "special"
                (instructions of functions such as exp), "branch", "load", "store", "copy", "barrier", "shuffle"
    macs        multiply-adds on tensor cores
    sectors     of 32 bytes that requests to device memory took;  least_sectors  that their bytes need
    passes      over the banks of shared memory;  least_passes  that their words need
    depth       groups of copies that may be under way, and the one that is used
    bulk_sectors  of `sectors`, those of copies of the tensor memory accelerator: one for all blocks that get it
    """

    threads: int
    kinds: Mapping[str, int]
    macs: int
    sectors: int
    least_sectors: int
    passes: int
    least_passes: int
    depth: int
    bulk_sectors: int = 0

    @property
    def instructions(self) -> int:
        """Of all threads."""
        return sum(self.kinds.values())


class _Counted(Translator):
    """Rewrites a kernel so that each of its basic blocks counts how often a thread enters it."""

    def __init__(self, text: str, symbol: str):
        self.blocks: list[Counter[str]] = [Counter()]
        self.site_blocks: dict[int, int] = {}
        self.macs: list[int] = [0]
        self._is_new = True
        super().__init__(text, symbol)

    def _line(self, line: str) -> list[str]:
        if _LABEL.match(line):
            self.blocks.append(Counter())
            self.macs.append(0)
            self._is_new = True
            return super()._line(line)
        if not line.startswith("  ") or " = phi " in line:
            return super()._line(line)
        number, before, counting = len(self.blocks) - 1, len(self.sites), []
        if self._is_new:
            place = f"getelementptr (i64, ptr @emu.counts, i64 {number})"
            counting = [
                f"  %emu.c{number} = load i64, ptr {place}",
                f"  %emu.d{number} = add i64 %emu.c{number}, 1",
                f"  store i64 %emu.d{number}, ptr {place}",
            ]
            self._is_new = False
        self._classify(line.strip(), number)
        made = super()._line(line)
        self.site_blocks.update(dict.fromkeys(range(before, len(self.sites)), number))
        return [*counting, *made]

    def _module(self, lines: list[str]) -> str:
        return super()._module(lines) + f"\n@emu.counts = global [{len(self.blocks)} x i64] zeroinitializer\n"

    def _classify(self, line: str, number: int) -> None:
        text = line.split(" = ", 1)[-1]
        verb, _, rest = text.partition(" ")
        found = self.blocks[number]
        if verb in ("fadd", "fsub", "fmul", "fdiv", "fcmp", "fneg"):
            found[_float_of(rest)] += _lanes(rest) * (8 if verb == "fdiv" else 1)
        elif verb in _DIVISIONS:
            found["integer"] += DIVISION
        elif verb in _INTEGERS:
            found["integer"] += not (verb == "getelementptr" and _CONSTANT_INDEX.search(rest))
        elif verb == "br" and " label " in rest and rest.startswith("i1"):
            found["branch"] += 1
        elif verb in ("load", "store"):
            found[verb] += 1
        elif verb in ("call", "tail"):
            self._classify_call(line, number)

    def _classify_call(self, line: str, number: int) -> None:
        call = call_of("  " + line)
        assert call is not None, line
        found, name = self.blocks[number], call.callee
        if call.is_assembly:
            if shapes := _SHAPE.findall(name) if "mma" in name else []:
                warps = 4 if "wgmma" in name else 1  # that do it together
                self.macs[number] += sum(int(m) * int(n) * int(k) for m, n, k in shapes) // warps
                found["tensor"] += 1
            else:
                kind = "copy" if "cp.async" in name else "load" if "ldmatrix" in name else "other"
                found["barrier" if "bar" in name.split(".")[0] else kind] += 1
            return
        name = name.strip('@"')
        if "fma" in name or name.startswith(("llvm.fabs", "llvm.max", "llvm.min", "nvvm.add", "nvvm.mul")):
            found[_float_of(call.type)] += _lanes(call.type)
        elif "barrier" in name:
            found["barrier"] += 1
        elif "shfl" in name:
            found["shuffle"] += 1
        elif name.startswith(("__nv_", "nvvm.ex2", "nvvm.sqrt", "llvm.sqrt", "nvvm.rsqrt")):
            found["special"] += SPECIAL if name.startswith("__nv_") else 1


def _lanes(text: str) -> int:
    match = re.search(r"<(\d+) x ", text)
    return int(match[1]) if match else 1


def _float_of(text: str) -> str:
    return next((name for kind, name in _FLOATS.items() if re.search(rf"\b{kind}\b", text)), "float32")


def count_block(
    text: str,
    symbol: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    arrays: Sequence[np.ndarray | int | float],
    cluster: Sequence[int] = (1, 1, 1),
    tensor_maps: Sequence[TensorMap] = (),
) -> BlockCounts:
    """Run the cluster in the middle of a launch and count what its first block does; arguments as of `run_launch`.

    Raises EmulationError at the first fault, CodegenError for code that the emulator does not know.
    """
    translator = _Counted(text, symbol)
    program = translator.program()
    sizes = [*grid, 1, 1][:3]
    middle = [size // part // 2 for size, part in zip(sizes, [*cluster, 1, 1][:3])]
    first = tuple(m * part for m, part in zip(middle, [*cluster, 1, 1][:3]))
    trace = Trace(blocks=[(first[0], first[1], first[2])], capacity=CAPACITY)
    checks = Checks(races=False, unset=False)
    launch = Launch(program, grid, block, shared_bytes, arrays, "late", trace, cluster, checks, tensor_maps)
    launch._cluster((middle[0], middle[1], middle[2]))
    n_blocks = int(np.prod([*cluster, 1, 1][:3]))
    return _result(translator, program, trace, launch.n_threads, n_blocks, int(launch.blocks[:, at.BULK_ASKED].mean()))


def _result(
    translator: _Counted, program: Program, trace: Trace, threads: int, n_blocks: int, bulk_bytes: int
) -> BlockCounts:
    """The counts of one block; `bulk_bytes` is what its bulk copies ask of device memory."""
    address = program.engine.get_global_value_address("emu.counts")
    entered = np.array((ctypes.c_int64 * len(translator.blocks)).from_address(address)) // n_blocks
    kinds: Counter[str] = Counter()
    for times, found in zip(entered.tolist(), translator.blocks, strict=True):
        for kind, number in found.items():
            kinds[kind] += times * number
    macs = sum(times // 32 * number for times, number in zip(entered.tolist(), translator.macs, strict=True))
    memory = _memory(trace, {site: int(entered[b]) for site, b in translator.site_blocks.items()})
    boxes = bulk_bytes // SECTOR_BYTES
    memory = memory[0] + boxes, memory[1] + boxes, *memory[2:]
    return BlockCounts(threads, dict(kinds), macs, *memory, _depth(translator.function), boxes)


def _depth(function: str) -> int:
    """Copies that may be under way, and the one in use: by what waits for groups of them, or by mbarriers.

    A ring of stages has an mbarrier that the copies complete, and one that tells that a stage is free, for each.
    """
    waits = [int(n) for n in re.findall(r"cp\.async\.wait_group (\d+)", function)]
    rings = len(re.findall(r"mbarrier\.init", function)) // 2
    return rings or max(waits, default=0) + 1


def _memory(trace: Trace, executions: Mapping[int, int]) -> tuple[int, int, int, int]:
    """(sectors, least sectors, passes, least passes), from some requests of each instruction and its executions."""
    records = trace.records[: min(trace.count, len(trace.records))]
    totals = [0.0, 0.0, 0.0, 0.0]
    if not len(records):
        return 0, 0, 0, 0
    places = records[:, 0] << 1 | is_shared(records[:, 2])  # an asynchronous copy is in both spaces
    order = np.lexsort((np.arange(len(records)), records[:, 1], places))
    site, thread, address = places[order], records[order, 1], records[order, 2]
    size = records[order, 3] & 0xFFFFFFFF
    begins = np.concatenate(([True], (np.diff(site) != 0) | (np.diff(thread) != 0)))
    starts = np.flatnonzero(begins)
    turn = np.arange(len(records)) - np.repeat(starts, np.diff(np.append(starts, len(records))))
    warp = thread >> 32 >> 5
    for number in np.unique(site):
        chosen = np.flatnonzero(site == number)
        place = int(address[chosen[0]])
        if at.LOCAL_BASE <= place < at.GENERIC_SHARED:
            continue
        in_shared = bool(number & 1)
        keys = warp[chosen] << 40 | turn[chosen]
        known = np.unique(keys)
        picked = known[:: max(1, len(known) // SAMPLED)]
        part = chosen[np.isin(keys, picked)]
        _, request = np.unique(warp[part] << 40 | turn[part], return_inverse=True)
        if in_shared:
            lane = thread[part] >> 32 & 31
            cost, least = bank_passes(request.ravel(), lane, address[part], size[part])
        else:
            cost, least = memory_sectors(request.ravel(), address[part], size[part])
        seen = len(chosen) / max(len(known), 1)  # lanes of a request
        requests = executions.get(int(number >> 1), len(chosen)) / max(seen, 1.0)
        share = requests / len(picked)
        at_index = 2 if in_shared else 0
        totals[at_index] += cost * share
        totals[at_index + 1] += least * share
    a, b, c, d = (round(total) for total in totals)
    return a, b, c, d
