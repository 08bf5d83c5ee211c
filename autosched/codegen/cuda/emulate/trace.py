"""What a kernel's accesses cost: sectors of global memory a request, conflicts of shared-memory banks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.faults import Allocation, site_words
from autosched.codegen.cuda.emulate.program import Program

SECTOR_BYTES = 32
N_BANKS, BANK_BYTES = 32, 4


@dataclass(frozen=True)
class Accesses:
    """One instruction's accesses.

    requests      how often a warp ran it
    transactions  sectors (global) or passes over the banks (shared) that all requests took
    ideal         the fewest that their bytes need
    """

    site: int
    where: str
    space: str  # "global" or "shared"
    writes: bool
    requests: int
    transactions: int
    ideal: int

    @property
    def per_request(self) -> float:
        return self.transactions / self.requests

    @property
    def efficiency(self) -> float:
        return self.ideal / self.transactions


class Trace:
    """Collects the accesses of some blocks of a launch (the first, if none are named)."""

    def __init__(self, blocks: Sequence[tuple[int, int, int]] = ((0, 0, 0),), capacity: int = 1 << 20):
        self.blocks = {tuple(block) for block in blocks}
        self.records = np.zeros((capacity, at.TRACE_WORDS), np.int64)
        self.count = 0

    def begin(self, program: Program, allocations: Sequence[Allocation], shared_bytes: int) -> None:
        """Forget what was collected; called by a launch."""
        self.program, self.allocations, self.shared_bytes, self.count = program, tuple(allocations), shared_bytes, 0

    def wants(self, block: tuple[int, int, int]) -> bool:
        return block in self.blocks

    @property
    def is_cut(self) -> bool:
        """Whether there were more accesses than it holds."""
        return self.count > len(self.records)

    def accesses(self) -> tuple[Accesses, ...]:
        """Each instruction's accesses, in the order of the program."""
        records = self.records[: min(self.count, len(self.records))]
        if not len(records):
            return ()
        site, thread, address = records[:, 0], records[:, 1], records[:, 2]
        size, flags = records[:, 3] & 0xFFFFFFFF, records[:, 3] >> 32
        site = site << 1 | is_shared(address)  # an asynchronous copy is in both spaces
        # The n-th time that a lane runs an instruction belongs to the n-th request of its warp.
        order = np.lexsort((np.arange(len(records)), thread, site))
        changed = (np.diff(site[order]) != 0) | (np.diff(thread[order]) != 0)
        begins = np.concatenate(([True], changed))
        starts = np.flatnonzero(begins)
        turn = np.arange(len(records)) - np.repeat(starts, np.diff(np.append(starts, len(records))))
        site, thread, address, size, flags = (v[order] for v in (site, thread, address, size, flags))
        warp = (thread >> 32 >> 5) << 32 | (thread & 0xFFFFFFFF)
        result = []
        for number in np.unique(site):
            chosen = site == number
            first = int(address[chosen][0])
            space = "shared" if number & 1 else "global"
            if at.LOCAL_BASE <= first < at.GENERIC_SHARED:
                continue
            keys = np.stack([warp[chosen], turn[chosen]])
            _, request = np.unique(keys, axis=1, return_inverse=True)
            lane = thread[chosen] >> 32 & 31
            if space == "global":
                transactions, ideal = memory_sectors(request.ravel(), address[chosen], size[chosen])
            else:
                transactions, ideal = bank_passes(request.ravel(), lane, address[chosen], size[chosen])
            writes = bool(flags[chosen][0] & at.WRITE)
            where = site_words(self.program, int(number >> 1))
            result.append(Accesses(int(number >> 1), where, space, writes, int(request.max()) + 1, transactions, ideal))
        return tuple(result)

    def report(self) -> str:
        """A table: each instruction, what its requests took, and what they would take at best."""
        lines = [f"{'space':7} {'does':6} {'requests':>8} {'each':>6} {'best':>6}  instruction"]
        for found in self.accesses():
            does = "writes" if found.writes else "reads"
            best = found.ideal / found.requests
            lines.append(
                f"{found.space:7} {does:6} {found.requests:8} {found.per_request:6.2f} {best:6.2f}  {found.where}"
            )
        if self.is_cut:
            lines.append(f"(the first {len(self.records)} of {self.count} accesses)")
        return "\n".join(lines)


Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def is_shared(address: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which addresses are of a block's shared memory."""
    generic = (address >= at.GENERIC_SHARED) & (address < at.GENERIC_SHARED + (1 << 30))
    return (address < 1 << 32) | generic


def memory_sectors(request: Ints, address: Ints, size: Ints) -> tuple[int, int]:
    """Sectors that the requests touch, and the fewest for as many different bytes."""
    touched: set[tuple[int, int]] = set()
    for r, a, n in zip(request.tolist(), address.tolist(), size.tolist()):
        touched.update((r, s) for s in range(a // SECTOR_BYTES, (a + n - 1) // SECTOR_BYTES + 1))
    distinct = np.unique(np.stack([request, address, size]), axis=1)
    ideal = np.zeros(int(request.max()) + 1, np.int64)
    np.add.at(ideal, distinct[0], distinct[2])
    return len(touched), int((-(-ideal // SECTOR_BYTES)).sum())


def bank_passes(request: Ints, lane: Ints, address: Ints, size: Ints) -> tuple[int, int]:
    """Passes over the banks: of 32 lanes for words, 16 for 8 bytes, 8 for 16; a bank gives one word a pass.

    Lanes that read the same word share it. Where every lane reads what its neighbour reads (the one whose number
    differs in the lowest bit, or everywhere the one that differs in the bit above), a pass gives twice as many lanes
    their words.
    Source  Greg Smith of NVIDIA, forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228
    """
    passes = ideal = 0
    order = np.lexsort((lane, request))
    for group in np.split(order, np.flatnonzero(np.diff(request[order])) + 1):
        width = max(int(size[group].max()), BANK_BYTES)
        lanes = max(N_BANKS * BANK_BYTES // width, 1)
        if lanes < N_BANKS and _pairs_agree(lane[group], address[group]):
            lanes *= 2
        for begin in range(0, len(group), lanes):
            part = group[begin : begin + lanes]
            words = {
                w
                for a, n in zip(address[part].tolist(), size[part].tolist())
                for w in range(a // BANK_BYTES, (a + n - 1) // BANK_BYTES + 1)
            }
            banks = np.bincount(np.array(sorted(words)) % N_BANKS, minlength=N_BANKS)
            passes += int(banks.max())
            ideal += -(-len(words) // N_BANKS)
    return passes, ideal


def _pairs_agree(lane: Ints, address: Ints) -> bool:
    """Whether all lanes read the address of their neighbour at distance 1, or all that of the one at distance 2."""
    read = np.full(N_BANKS, -1, np.int64)
    read[lane] = address
    here = np.arange(N_BANKS)
    return any(bool((read == read[here ^ distance]).all()) for distance in (1, 2))
