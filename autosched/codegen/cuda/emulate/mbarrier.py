"""mbarriers, and the copies of rows and of boxes of tensors that complete them. In the language of words.py.

The eight bytes of an mbarrier in shared memory hold, from the lowest bit: 20 bits of arrivals still expected in this
phase, 20 bits of arrivals of every phase, 1 bit the phase's parity, 23 bits of bytes still expected, biased by half.
Beside, a table has two rows of clocks for each: what those know who have arrived in this phase, and in the last one.
"""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.clocks import know_row, pass_time, take_row
from autosched.codegen.cuda.emulate.memory import CELL_BYTES, end_copies, fail, find, put, word
from autosched.codegen.cuda.emulate.words import (
    copy_bytes,
    load8,
    load32,
    load64,
    sign_extend,
    store8,
    store32,
    store64,
)

N_MBARRIERS = 128  # of a block
_COUNT = (1 << 20) - 1
_BIAS = 1 << 22
_PHASE = 1 << 40


def _owner_of(thread: int, address: int) -> int:
    """The record of the block whose shared memory holds an address."""
    block = word(thread, at.BLOCK)
    rank = address // at.SHARED_WINDOW
    if rank > 0:
        return load64(word(block, at.PEERS) + (rank - 1) * 8)
    return block


def mbarrier_rows(owner: int, offset: int) -> int:
    """The first of an mbarrier's two rows of clocks, or 0 where the table is full."""
    table, count = word(owner, at.MBARRIERS), word(owner, at.N_CLOCKS)
    for k in range(N_MBARRIERS):
        if load64(table + k * 8) == offset + 1 or load64(table + k * 8) == 0:
            store64(table + k * 8, offset + 1)
            return table + N_MBARRIERS * 8 + k * count * 8
    return 0


def _host_of(thread: int, address: int, flags: int, site: int) -> int:
    return find(thread, address, 8, 8, at.IN_SHARED | flags, site)


def mbarrier_init(thread: int, address: int, count: int, site: int) -> int:
    host = _host_of(thread, address, at.WRITE, site)
    if host == 0:
        return 0
    if count < 1 or count > _COUNT:
        return fail(thread, at.F_MBARRIER, address, 8, site, count)
    store64(host, count | count << 20 | _BIAS << 41)
    owner = _owner_of(thread, address)
    rows = mbarrier_rows(owner, host - word(owner, at.SHARED))
    if rows == 0:
        return fail(thread, at.F_MANY_MBARRIERS, address, 8, site, N_MBARRIERS)
    for k in range(word(owner, at.N_CLOCKS) * 2):
        store32(rows + k * 4, 0)
    return 1


def mbarrier_inval(thread: int, address: int, site: int) -> int:
    """Make an mbarrier plain memory. Returns 1, or 0 after a fault."""
    host = _host_of(thread, address, at.WRITE, site)
    if host == 0:
        return 0
    if load64(host) >> 20 & _COUNT == 0:
        return fail(thread, at.F_MBARRIER, address, 8, site, 0)
    store64(host, 0)
    return 1


def _advance(owner: int, host: int, rows: int, state: int) -> int:
    """Store a state; if nothing is expected any more, the next phase begins."""
    if state & _COUNT == 0 and state >> 41 == _BIAS:
        count = state >> 20 & _COUNT
        state = (state ^ _PHASE) | count
        size = word(owner, at.N_CLOCKS)
        for k in range(size):
            store32(rows + (size + k) * 4, load32(rows + k * 4))
            store32(rows + k * 4, 0)
    store64(host, state)
    return 0


def mbarrier_arrive(thread: int, address: int, arrivals: int, more_bytes: int, site: int) -> int:
    """Arrive, and expect more bytes before. Gives the state before with its lowest bit set, or 0 after a fault."""
    host = _host_of(thread, address, at.WRITE | at.ATOMIC, site)
    if host == 0:
        return 0
    owner = _owner_of(thread, address)
    state = load64(host)
    if state & _COUNT < arrivals or state >> 20 & _COUNT == 0:
        return fail(thread, at.F_MBARRIER, address, 8, site, 0)
    if arrivals > 0 and word(owner, at.CHECK_RACES) != 0:
        rows = mbarrier_rows(owner, host - word(owner, at.SHARED))
        take_row(rows, know_row(thread, owner), word(owner, at.N_CLOCKS))
        pass_time(thread)
    rows = mbarrier_rows(owner, host - word(owner, at.SHARED))
    _advance(owner, host, rows, state + (more_bytes << 41) - arrivals)
    return state | 1


def mbarrier_test(thread: int, address: int, parity: int, site: int) -> int:
    """Whether the phase of this parity has ended: 2 yes, 1 no, 0 a fault. Who learns so knows what was done in it."""
    host = _host_of(thread, address, at.ATOMIC, site)
    if host == 0:
        return 0
    state = load64(host)
    if state >> 20 & _COUNT == 0:
        return fail(thread, at.F_MBARRIER, address, 8, site, 0)
    if state >> 40 & 1 == parity & 1:
        return 1
    owner = _owner_of(thread, address)
    if word(owner, at.CHECK_RACES) != 0:
        size = word(owner, at.N_CLOCKS)
        rows = mbarrier_rows(owner, host - word(owner, at.SHARED))
        take_row(know_row(thread, owner), rows + size * 4, size)
    return 2


def bulk_copy(thread: int, target: int, source: int, count: int, barrier: int, site: int) -> int:
    """Begin a copy from global to shared memory that tells an mbarrier of its bytes. Returns 1, or 0 after a fault."""
    from_host = find(thread, source, count, 16, at.IN_GLOBAL, site)
    if from_host == 0:
        return 0
    if count & 15:
        return fail(thread, at.F_MISALIGNED, target, count, site, 16)
    block = word(thread, at.BLOCK)
    put(block, at.BULK_ASKED, word(block, at.BULK_ASKED) + count)
    return _begin(thread, target, from_host, count, 16, barrier, site, 0)


def _begin(
    thread: int, target: int, source: int, count: int, align: int, barrier: int, site: int, tensor_map: int
) -> int:
    """Put a copy into the ring of the block that gets it; the first element of a box is in the scratch memory.

    Returns 1, or 0 after a fault.
    """
    block = word(thread, at.BLOCK)
    first = word(block, at.SCRATCH)
    host = find(thread, target, count, align, at.IN_SHARED | at.WRITE | at.ASYNC, site)
    if host == 0:
        return 0
    barrier_host = _host_of(thread, barrier, at.WRITE | at.ATOMIC, site)
    if barrier_host == 0:
        return 0
    if load64(barrier_host) >> 20 & _COUNT == 0:
        return fail(thread, at.F_MBARRIER, barrier, 8, site, 0)
    owner = _owner_of(thread, target)
    copy = _entry(owner)
    if copy == 0:
        return fail(thread, at.F_QUEUE, target, count, site, at.BULK_CAPACITY)
    put(copy, at.BULK_TARGET, host - word(owner, at.SHARED))
    put(copy, at.BULK_SOURCE, source)
    put(copy, at.BULK_MAP, tensor_map)
    put(copy, at.BULK_THREAD, 0)
    for k in range(5):
        put(copy, at.BULK_AT + k, word(first, k))
    put(copy, at.BULK_BYTES, count)
    return _entered(thread, owner, copy, barrier_host)


def _entry(owner: int) -> int:
    """The next place of a block's ring, or 0 where it is full."""
    last = word(owner, at.BULK_LAST)
    if last - word(owner, at.BULK_FIRST) >= at.BULK_CAPACITY:
        return 0
    return word(owner, at.BULK) + last % at.BULK_CAPACITY * at.BULK_WORDS * 8


def _entered(thread: int, owner: int, copy: int, barrier_host: int) -> int:
    """Put what a thread has begun into its block's ring, with the mbarrier that is told of its end."""
    put(copy, at.BULK_BARRIER, barrier_host - word(owner, at.SHARED))
    put(copy, at.BULK_EPOCH, word(thread, at.INDEX) << at.CLOCK_BITS | word(thread, at.CLOCK))
    put(owner, at.BULK_LAST, word(owner, at.BULK_LAST) + 1)
    pass_time(thread)
    if word(word(thread, at.BLOCK), at.LATE) == 0:
        end_bulk_copy(owner)
    return 1


def copies_arrive(thread: int, address: int, is_counted: int, site: int) -> int:
    """Let the end of a thread's asynchronous copies be an arrival. Returns 1, or 0 after a fault.

    is_counted   the mbarrier's count has this arrival; else the phase expects one more
    """
    host = _host_of(thread, address, at.WRITE | at.ATOMIC, site)
    if host == 0:
        return 0
    state = load64(host)
    if state >> 20 & _COUNT == 0 or (is_counted == 0 and state & _COUNT == _COUNT):
        return fail(thread, at.F_MBARRIER, address, 8, site, 0)
    owner = _owner_of(thread, address)
    copy = _entry(owner)
    if copy == 0:
        return fail(thread, at.F_QUEUE, address, 8, site, at.BULK_CAPACITY)
    if is_counted == 0:
        store64(host, state + 1)
    put(copy, at.BULK_BYTES, 0)
    put(copy, at.BULK_MAP, 0)
    put(copy, at.BULK_THREAD, thread)
    put(copy, at.BULK_AT, word(thread, at.QUEUE_LAST))
    return _entered(thread, owner, copy, host)


def _row_offset(tensor_map: int, coordinates: int, row: int) -> int:
    """Where a row of a box begins, in bytes from where its tensor does, or -1 for one outside of the tensor."""
    offset, rest = 0, row
    for d in range(1, word(tensor_map, at.MAP_RANK)):
        box = word(tensor_map, at.MAP_BOX + 3 * d)
        place = word(coordinates, d) + rest % box
        rest = rest // box
        if place < 0 or place >= word(tensor_map, at.MAP_SIZES + 3 * d):
            return -1
        offset += place * word(tensor_map, at.MAP_STRIDES + 3 * d)
    return offset


def tensor_copy(
    thread: int, target: int, tensor_map: int, rank: int, at_0: int, at_1: int, at_2: int, at_3: int, at_4: int,
    barrier: int, blocks: int, site: int,
) -> int:  # fmt: skip
    """Begin a copy of a box of a tensor; what is outside of the tensor becomes 0. Returns 1, or 0 after a fault.

    blocks  a bit for each block of the cluster that gets the box, at the same places as this one; 0: this one alone
    """
    place = find(thread, tensor_map, 128, 64, 0, site)
    if place == 0:
        return 0
    if word(place, at.MAP_MAGIC) != at.TENSOR_MAP or word(place, at.MAP_RANK) != rank:
        return fail(thread, at.F_TENSOR_MAP, tensor_map, rank, site, 0)
    block = word(thread, at.BLOCK)
    first = word(block, at.SCRATCH)
    put(first, 0, sign_extend(at_0, 32))
    put(first, 1, sign_extend(at_1, 32))
    put(first, 2, sign_extend(at_2, 32))
    put(first, 3, sign_extend(at_3, 32))
    put(first, 4, sign_extend(at_4, 32))
    count, item = word(place, at.MAP_BYTES), word(place, at.MAP_ITEM)
    row_bytes = word(place, at.MAP_BOX) * item
    start, end = word(first, 0), word(first, 0) + word(place, at.MAP_BOX)
    if start < 0:
        start = 0
    if end > word(place, at.MAP_SIZES):
        end = word(place, at.MAP_SIZES)
    for row in range(count // row_bytes):
        offset = _row_offset(place, first, row)
        if offset >= 0 and start < end:
            source = word(place, at.MAP_BASE) + offset + start * item
            if find(thread, source, (end - start) * item, item, at.IN_GLOBAL, site) == 0:
                return 0
    put(block, at.BULK_ASKED, word(block, at.BULK_ASKED) + count)
    if blocks == 0:
        return _begin(thread, target, 0, count, 128, barrier, site, place)
    target, barrier = target % at.SHARED_WINDOW, barrier % at.SHARED_WINDOW
    for rank in range(16):
        if blocks >> rank & 1:
            window = (rank + 1) * at.SHARED_WINDOW
            if _begin(thread, window + target, 0, count, 128, window + barrier, site, place) == 0:
                return 0
    return 1


def _copy_box(shared: int, target: int, tensor_map: int, coordinates: int) -> int:
    """Fill a box' place in shared memory, the 16-byte pieces of its rows permuted."""
    item = word(tensor_map, at.MAP_ITEM)
    row_bytes, size = word(tensor_map, at.MAP_BOX) * item, word(tensor_map, at.MAP_SIZES) * item
    start = word(coordinates, 0) * item
    for row in range(word(tensor_map, at.MAP_BYTES) // row_bytes):
        offset = _row_offset(tensor_map, coordinates, row)
        source = word(tensor_map, at.MAP_HOST) + offset + start
        for piece in range(0, row_bytes, 16):
            place = target + row * row_bytes + piece
            place = place ^ (place >> 7 & 7) << 4
            for k in range(piece, piece + 16):
                inside = offset >= 0 and start + k >= 0 and start + k < size
                store8(shared + place + k - piece, load8(source + k) if inside else 0)
    return 0


def end_bulk_copy(owner: int) -> int:
    """Carry out the oldest bulk copy, or copies of a thread that arrive, in flight. Returns whether there was one."""
    first = word(owner, at.BULK_FIRST)
    if first == word(owner, at.BULK_LAST):
        return 0
    copy = word(owner, at.BULK) + first % at.BULK_CAPACITY * at.BULK_WORDS * 8
    target, count, epoch = word(copy, at.BULK_TARGET), word(copy, at.BULK_BYTES), word(copy, at.BULK_EPOCH)
    arrivals = 0
    if word(copy, at.BULK_THREAD) != 0:
        arrivals = 1
        end_copies(word(copy, at.BULK_THREAD), -1, word(copy, at.BULK_AT), epoch)
    elif word(copy, at.BULK_MAP) != 0:
        _copy_box(word(owner, at.SHARED), target, word(copy, at.BULK_MAP), copy + at.BULK_AT * 8)
    else:
        copy_bytes(word(owner, at.SHARED) + target, word(copy, at.BULK_SOURCE), count)
    for k in range(count):
        store8(word(owner, at.PENDING) + target + k, 0)
        store32(word(owner, at.SHADOW) + (target + k) * CELL_BYTES, epoch)
    rows = mbarrier_rows(owner, word(copy, at.BULK_BARRIER))
    place = rows + (epoch >> at.CLOCK_BITS) * 4
    clock = epoch & ((1 << at.CLOCK_BITS) - 1)
    if clock > load32(place):
        store32(place, clock)
    host = word(owner, at.SHARED) + word(copy, at.BULK_BARRIER)
    _advance(owner, host, rows, load64(host) - (count << 41) - arrivals)
    put(owner, at.BULK_FIRST, first + 1)
    return 1


FUNCTIONS = (
    _owner_of, mbarrier_rows, _host_of, mbarrier_init, mbarrier_inval, _advance, mbarrier_arrive, mbarrier_test,
    bulk_copy, _begin, _entry, _entered, copies_arrive, _row_offset, tensor_copy, _copy_box, end_bulk_copy,
)  # fmt: skip
