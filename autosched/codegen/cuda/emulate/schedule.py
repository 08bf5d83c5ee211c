"""The order in which emulated threads run, and barriers. In the language of words.py.

`run` lets the threads of a cluster's blocks go on until all have ended, one has failed, or none can move without help
of Python. A thread runs on its own stack until an instruction has to wait for others; its record says for what.
"""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.clocks import know_row, pass_time, take_row
from autosched.codegen.cuda.emulate.collective import collect
from autosched.codegen.cuda.emulate.mbarrier import end_bulk_copy
from autosched.codegen.cuda.emulate.memory import fail, put, word
from autosched.codegen.cuda.emulate.warpgroup import multiply_group
from autosched.codegen.cuda.emulate.words import call2, load32, load64, store32

MOVED, STOOD, FAULTED, PAUSED = 1, 0, 2, 3
ALL_DONE, FAULT, STUCK, SPINNING = 0, 1, 2, 3
_MAX_SPINS = 2000


def _barrier_row(block: int, number: int) -> int:
    return word(block, at.BARRIERS) + at.N_BARRIERS * at.BARRIER_WORDS * 8 + number * word(block, at.N_CLOCKS) * 4


def _is_whole(block: int, expected: int) -> int:
    return expected == word(block, at.N_THREADS) and word(block, at.SINGLE) != 0


def _arrive(block: int, first: int, thread: int) -> int:
    """Count a thread at its barrier. Operands: number, threads (0: all), 0 wait 1 go on, predicate, kind, aligned."""
    number, expected = word(thread, at.ARGS), word(thread, at.ARGS + 1)
    if expected == 0:
        expected = word(block, at.N_THREADS)
    record = word(block, at.BARRIERS) + number * at.BARRIER_WORDS * 8
    if word(record, at.ARRIVED) == 0:
        put(record, at.EXPECTED, expected)
    elif word(record, at.EXPECTED) != expected:
        fail(thread, at.F_COUNT, number, expected, word(thread, at.SITE), word(record, at.EXPECTED))
        return FAULTED
    stride = word(block, at.STRIDE)
    if word(thread, at.ARGS + 5):
        for lane in range(32):
            other = first + lane * stride
            if word(other, at.OP) == at.AT_BARRIER and word(other, at.ARGS) == number:
                if word(other, at.SITE) != word(thread, at.SITE):
                    fail(thread, at.F_DIVERGED, number, 0, word(thread, at.SITE), word(other, at.INDEX))
                    return FAULTED
    put(record, at.ARRIVED, word(record, at.ARRIVED) + 1)
    if word(thread, at.ARGS + 3) != 0:
        put(record, at.COUNTED, word(record, at.COUNTED) + 1)
    races = word(block, at.CHECK_RACES)
    if races != 0 and _is_whole(block, expected) == 0:
        take_row(_barrier_row(block, number), know_row(thread, block), word(block, at.N_CLOCKS))
    waits = word(thread, at.ARGS + 2) == 0
    if waits:
        put(thread, at.OP, at.AT_BARRIER)
    else:
        pass_time(thread)
        put(thread, at.OP, at.READY)
    if word(record, at.ARRIVED) == expected:
        _release(block, number, expected, word(record, at.COUNTED))
    return MOVED


def _release(block: int, number: int, expected: int, counted: int) -> int:
    record = word(block, at.BARRIERS) + number * at.BARRIER_WORDS * 8
    put(record, at.ARRIVED, 0)
    put(record, at.COUNTED, 0)
    whole = _is_whole(block, expected)
    stride, count = word(block, at.STRIDE), word(block, at.N_CLOCKS)
    row = _barrier_row(block, number)
    latest = 0
    for k in range(word(block, at.N_PADDED)):
        thread = word(block, at.THREADS) + k * stride
        if word(thread, at.CLOCK) > latest:
            latest = word(thread, at.CLOCK)
        if word(thread, at.OP) == at.AT_BARRIER and word(thread, at.ARGS) == number:
            kind = word(thread, at.ARGS + 4)
            result = counted
            if kind == 1:
                result = counted == expected
            elif kind == 2:
                result = counted != 0
            put(thread, at.ARGS, result)
            put(thread, at.OP, at.READY)
            if whole == 0 and word(block, at.CHECK_RACES) != 0:
                take_row(know_row(thread, block), row, count)
            pass_time(thread)
    if whole:
        put(block, at.BASE, latest)
        put(block, at.GENERATION, word(block, at.GENERATION) + 1)
        for k in range(word(block, at.N_PADDED)):
            put(word(block, at.THREADS) + k * stride, at.CLOCK, latest + 1)
    else:
        for k in range(count):
            store32(row + k * 4, 0)
    return 0


def _cluster_barrier(group: int) -> int:
    """Let threads at `barrier.cluster.wait` go on once all threads that live have arrived as often."""
    arrived, living = 0, 0
    for b in range(word(group, at.GROUP_BLOCKS)):
        block = load64(word(group, at.GROUP_PEERS) + b * 8)
        for k in range(word(block, at.N_PADDED)):
            thread = word(block, at.THREADS) + k * word(block, at.STRIDE)
            op = word(thread, at.OP)
            if op != at.DONE and op != at.ABSENT:
                living += 1
                if word(thread, at.CLUSTER_PHASE) > word(group, at.CLUSTER_BARRIER):
                    arrived += 1
    if living == 0 or arrived < living:
        return 0
    first = load64(word(group, at.GROUP_PEERS))
    latest = 0
    for b in range(word(group, at.GROUP_BLOCKS)):
        block = load64(word(group, at.GROUP_PEERS) + b * 8)
        for k in range(word(block, at.N_PADDED)):
            thread = word(block, at.THREADS) + k * word(block, at.STRIDE)
            if word(thread, at.CLOCK) > latest:
                latest = word(thread, at.CLOCK)
    put(group, at.CLUSTER_BARRIER, word(group, at.CLUSTER_BARRIER) + 1)
    for b in range(word(group, at.GROUP_BLOCKS)):
        block = load64(word(group, at.GROUP_PEERS) + b * 8)
        for k in range(word(block, at.N_PADDED)):
            thread = word(block, at.THREADS) + k * word(block, at.STRIDE)
            # What a thread did between arriving and waiting is not ordered; its time after arriving is newer.
            row = know_row(thread, block)
            for other in range(word(first, at.N_CLOCKS)):
                seen = load32(word(first, at.ARRIVAL_CLOCKS) + other * 4)
                if seen > load32(row + other * 4):
                    store32(row + other * 4, seen)
    return 1


def _step(group: int, block: int, first: int) -> int:
    """Let a warp's threads that can go on run to their next stop; then do what the warp does together."""
    stride = word(block, at.STRIDE)
    result = STOOD
    for lane in range(32):
        thread = first + lane * stride
        if word(thread, at.OP) == at.READY:
            call2(word(group, at.SWITCH), block, thread)
            op = word(thread, at.OP)
            if op == at.FAILED:
                put(group, at.FAULT_THREAD, thread)
                return FAULTED
            if op == at.PAUSE:
                put(thread, at.OP, at.READY)
                if result == STOOD:
                    result = PAUSED
            else:
                result = MOVED
    for lane in range(32):
        thread = first + lane * stride
        op = word(thread, at.OP)
        if op == at.BARRIER:
            if _arrive(block, first, thread) == FAULTED:
                put(group, at.FAULT_THREAD, thread)
                return FAULTED
            result = MOVED
        elif op == at.CLUSTER_ARRIVE:
            pass_arrival(block, thread)
            put(thread, at.OP, at.READY)
            result = MOVED
        elif op == at.CLUSTER_WAIT:
            if word(thread, at.CLUSTER_PHASE) <= word(group, at.CLUSTER_BARRIER) or _cluster_barrier(group) != 0:
                pass_time(thread)
                put(thread, at.OP, at.READY)
                result = MOVED
    if word(first, at.OP) == at.WGMMA:
        outcome = _warpgroup(block, first)
        if outcome < 0:
            put(group, at.FAULT_THREAD, first)
            return FAULTED
        if outcome > 0:
            result = MOVED
    joined = collect(block, first)
    if joined < 0:
        put(group, at.FAULT_THREAD, first + (-1 - joined) * stride)
        return FAULTED
    if joined > 0:
        result = MOVED
    return result


def _warpgroup(block: int, first: int) -> int:
    """Multiply once all threads of the warpgroup of this warp are there. Returns whether, or -1 after a fault."""
    stride = word(block, at.STRIDE)
    warp, site = word(first, at.WARP), word(first, at.SITE)
    leader = first - (warp & 3) * 32 * stride
    if (warp | 3) * 32 + 31 >= word(block, at.N_THREADS):
        fail(first, at.F_PARTIAL, word(block, at.N_THREADS), 0, site, 0)
        return -1
    for k in range(128):
        thread = leader + k * stride
        if word(thread, at.OP) != at.WGMMA or word(thread, at.SITE) != site:
            return 0
    if multiply_group(block, leader, first) == 0:
        return -1
    for k in range(128):
        put(leader + k * stride, at.OP, at.READY)
    return 1


def pass_arrival(block: int, thread: int) -> int:
    """Note the arrival of a thread at the cluster's barrier."""
    put(thread, at.CLUSTER_PHASE, word(thread, at.CLUSTER_PHASE) + 1)
    store32(word(block, at.ARRIVAL_CLOCKS) + word(thread, at.INDEX) * 4, word(thread, at.CLOCK))
    pass_time(thread)
    return 0


def _is_over(group: int) -> int:
    for b in range(word(group, at.GROUP_BLOCKS)):
        block = load64(word(group, at.GROUP_PEERS) + b * 8)
        for k in range(word(block, at.N_PADDED)):
            op = word(word(block, at.THREADS) + k * word(block, at.STRIDE), at.OP)
            if op != at.DONE and op != at.ABSENT:
                return 0
    return 1


def run(group: int) -> int:
    """Run until the end, a fault, or a stop that this scheduler cannot resolve: one of ALL_DONE, FAULT, …"""
    while 1:
        moved, paused = 0, 0
        for b in range(word(group, at.GROUP_BLOCKS)):
            block = load64(word(group, at.GROUP_PEERS) + b * 8)
            for w in range(word(block, at.N_PADDED) // 32):
                first = word(block, at.THREADS) + w * 32 * word(block, at.STRIDE)
                result = MOVED
                while result == MOVED:
                    result = _step(group, block, first)
                    if result == FAULTED:
                        return FAULT
                    if result == MOVED:
                        moved = 1
                    elif result == PAUSED:
                        paused = 1
                    if word(block, at.LATE):
                        break
        if moved == 0:
            # Copies come as late as they can: when nobody goes on without them.
            for b in range(word(group, at.GROUP_BLOCKS)):
                if end_bulk_copy(load64(word(group, at.GROUP_PEERS) + b * 8)):
                    moved = 1
        if moved:
            put(group, at.SPINS, 0)
        elif paused:
            put(group, at.SPINS, word(group, at.SPINS) + 1)
            if word(group, at.SPINS) > _MAX_SPINS:
                return SPINNING
            if word(group, at.SPINS) % 16 == 0:
                return STUCK
        else:
            return ALL_DONE if _is_over(group) else STUCK
    return 0


FUNCTIONS = (
    _barrier_row, _is_whole, _arrive, _release, _cluster_barrier, _step,
    _warpgroup, pass_arrival, _is_over, run,
)  # fmt: skip
