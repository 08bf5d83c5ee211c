"""Every access of an emulated thread: from a virtual address to the host's memory, with the checks on the way.

`find` refuses what lies outside every variable, what is not aligned, and what two threads do without a synchronisation
between them. The functions are written in the
language of words.py, compiled once per process, and called by every compiled kernel.

Order between threads is known by vector clocks: a thread's time passes at every synchronisation, and its row of clocks
says up to which time of each other thread it has waited. A barrier of the whole block raises the time `BASE` before
which everything is known to all, so that rows are only written by synchronisations of fewer threads. For each byte of
shared memory stand the last write and three reads: the last one, one by another thread of the same warp, and one by
another warp. For global memory, cells as wide as an element stand for the last write and one read, by thread and block.

Threads may store the same without an order between them, where no other accesses meet theirs: what such a store finds
is compared with what it leaves (`same`), and the write counts as that of several threads from then on, which is known
after a barrier of the whole block, or when the launch has ended. Reads stay noted until such a barrier, for those who
store the same as one who waited for them.
"""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.words import copy_bytes, load8, load32, load64, store8, store32, store64

_CLOCK = (1 << at.CLOCK_BITS) - 1
CELL_BYTES = at.CELL_WORDS * 4

# What is noted of a byte of shared memory beside the times of its accesses.
_IN_FLIGHT, _BY_ATOMIC = 1, 2
# A cell of global memory: two words, the last write and the last read: flags, block + 1, time and thread in the block.
_ATOMIC_BIT, _RELEASED_BIT, _MANY_BIT = 1 << 62, 1 << 61, 1 << 60
_MOST_COMPARED = 16  # bytes of a store
_BLOCK_MASK = (1 << 28) - 1


def word(record: int, number: int) -> int:
    return load64(record + number * 8)


def put(record: int, number: int, value: int) -> int:
    store64(record + number * 8, value)
    return 0


def fail(thread: int, code: int, address: int, size: int, site: int, other: int) -> int:
    put(thread, at.FAULT, code)
    put(thread, at.FAULT_ADDRESS, address)
    put(thread, at.FAULT_SIZE, size)
    put(thread, at.FAULT_SITE, site)
    put(thread, at.FAULT_OTHER, other)
    return 0


def is_known(thread: int, block: int, epoch: int) -> int:
    """Whether `thread` waited, since another thread's action at `epoch`, for that thread."""
    other, clock = epoch >> at.CLOCK_BITS, epoch & _CLOCK
    if clock <= word(block, at.BASE):
        return 1
    me = word(thread, at.INDEX)
    if other == me:
        return 1
    if other == at.SEVERAL:
        return 0
    if word(thread, at.KNOWS) != word(block, at.GENERATION):
        return 0
    return clock <= load32(word(block, at.CLOCKS) + (me * word(block, at.N_CLOCKS) + other) * 4)


def _of_several(epoch: int, other: int) -> int:
    """What is noted of a write where two threads store the same: the later time of the two."""
    clock, before = epoch & _CLOCK, other & _CLOCK
    return at.SEVERAL << at.CLOCK_BITS | (clock if clock > before else before)


def _check_shared(
    thread: int, block: int, owner: int, offset: int, size: int, flags: int, site: int, address: int
) -> int:
    """Compare an access with what is known of its bytes, and note it. Returns whether it is all right."""
    me = word(thread, at.INDEX)
    epoch = (me << at.CLOCK_BITS) | word(thread, at.CLOCK)
    shadow = word(owner, at.SHADOW) + offset * CELL_BYTES
    states = word(owner, at.PENDING) + offset
    races = word(block, at.CHECK_RACES) != 0
    atomic = flags & at.ATOMIC != 0
    for k in range(size):
        cell = shadow + k * CELL_BYTES
        state = load8(states + k)
        written = load32(cell)
        if state == _IN_FLIGHT:
            fail(thread, at.F_PENDING, address + k, size, site, written >> at.CLOCK_BITS)
            return 0
        both_atomic = atomic and state == _BY_ATOMIC
        noted = epoch
        if written == 0:
            if (flags & at.WRITE == 0 or atomic) and word(block, at.CHECK_UNSET) != 0:
                fail(thread, at.F_UNSET, address + k, size, site, 0)
                return 0
        elif races and written != epoch and not both_atomic and not is_known(thread, block, written):
            code = at.F_RACE_WW if flags & at.WRITE else at.F_RACE_WR
            fail(thread, code, address + k, size, site, written >> at.CLOCK_BITS)
            if flags & at.COMPARED == 0 or state != 0 or size > _MOST_COMPARED:
                return 0
            put(thread, at.SAME_BYTES, word(thread, at.SAME_BYTES) | 1 << k)
            noted = _of_several(epoch, written)
        if flags & at.WRITE:
            if races:
                for slot in range(1, 4):
                    read = load32(cell + slot * 4)
                    if read != 0:
                        if not is_known(thread, block, read):
                            fail(thread, at.F_RACE_RW, address + k, size, site, read >> at.CLOCK_BITS)
                            return 0
                        if read & _CLOCK <= word(block, at.BASE):
                            store32(cell + slot * 4, 0)
            store32(cell, noted)
            store8(states + k, _IN_FLIGHT if flags & at.ASYNC else _BY_ATOMIC if atomic else 0)
        elif races and not atomic:
            last = load32(cell + 4)
            if last == epoch:
                continue
            store32(cell + 4, epoch)
            if last != 0 and last >> at.CLOCK_BITS != me:
                if (last >> at.CLOCK_BITS) >> 5 == me >> 5:
                    store32(cell + 8, last)
                else:
                    store32(cell + 12, last)
                    store32(cell + 8, 0)
    return 1


def _knows_block(block: int, other: int) -> int:
    """Whether this block has seen, by atomic operations after fences, what block number `other` did."""
    table = word(block, at.SEEN)
    if table == 0:
        return 1
    row = table + word(block, at.BLOCK_LINEAR) * word(block, at.SEEN_STRIDE)
    return load8(row + (other >> 3)) >> (other & 7) & 1 != 0


def _see_block(block: int, other: int) -> int:
    """Note that this block has seen what `other` did, and what that one had seen."""
    table, stride = word(block, at.SEEN), word(block, at.SEEN_STRIDE)
    if table == 0:
        return 0
    row, theirs = table + word(block, at.BLOCK_LINEAR) * stride, table + other * stride
    for k in range(0, stride, 8):
        store64(row + k, load64(row + k) | load64(theirs + k))
    store8(row + (other >> 3), load8(row + (other >> 3)) | 1 << (other & 7))
    return 0


def _is_ordered(thread: int, block: int, entry: int) -> int:
    """Whether the write or read that a cell of global memory notes comes before what `thread` does now."""
    other = (entry >> 32 & _BLOCK_MASK) - 1
    if other == _BLOCK_MASK - 1:
        return 0
    if other == word(block, at.BLOCK_LINEAR):
        return is_known(thread, block, entry & 0xFFFFFFFF)
    return _knows_block(block, other)


def _check_global(
    thread: int, block: int, record: int, offset: int, size: int, flags: int, site: int, address: int
) -> int:
    """As `_check_shared`, for an array of device memory. Reading what nobody wrote is no fault: inputs."""
    number = word(block, at.BLOCK_LINEAR)
    entry = (number + 1) << 32 | word(thread, at.INDEX) << at.CLOCK_BITS | word(thread, at.CLOCK)
    atomic = flags & at.ATOMIC != 0
    shift = word(record, at.ARRAY_CELL)
    cells = word(record, at.ARRAY_SHADOW)
    for k in range(offset >> shift, (offset + size - 1 >> shift) + 1):
        cell = cells + k * 16
        written, read = load64(cell), load64(cell + 8)
        noted = entry | (_ATOMIC_BIT | word(thread, at.FENCED) * _RELEASED_BIT if atomic else 0)
        if written != 0 and written != entry:
            if atomic and written & _ATOMIC_BIT:
                other = (written >> 32 & _BLOCK_MASK) - 1
                if written & _RELEASED_BIT and other != number:
                    _see_block(block, other)
            elif not _is_ordered(thread, block, written):
                code = at.F_RACE_WW if flags & at.WRITE else at.F_RACE_WR
                fail(thread, code, address, size, site, written)
                if flags & at.COMPARED == 0 or written & _ATOMIC_BIT or size > _MOST_COMPARED:
                    return 0
                first, end = (k << shift) - offset, (k + 1 << shift) - offset
                for byte in range(0 if first < 0 else first, size if end > size else end):
                    put(thread, at.SAME_BYTES, word(thread, at.SAME_BYTES) | 1 << byte)
                noted = _of_several(entry & 0xFFFFFFFF, written & 0xFFFFFFFF)
                blocks = number + 1 if written >> 32 & _BLOCK_MASK == number + 1 else _BLOCK_MASK
                noted = noted | blocks << 32
        if flags & at.WRITE:
            if read != 0 and ((read & _MANY_BIT and word(block, at.SEEN) != 0) or not _is_ordered(thread, block, read)):
                fail(thread, at.F_RACE_RW, address, size, site, read)
                return 0
            store64(cell, noted)
            if read >> 32 & _BLOCK_MASK == number + 1 and read & _CLOCK <= word(block, at.BASE):
                store64(cell + 8, 0)
        elif not atomic and read != entry:
            many = read & _MANY_BIT
            if read != 0 and (read >> 32 & _BLOCK_MASK) - 1 != number:
                many = _MANY_BIT
            store64(cell + 8, entry | many)
    return 1


def _trace(thread: int, block: int, address: int, size: int, flags: int, site: int) -> int:
    count = word(block, at.TRACE_COUNT)
    if count < word(block, at.TRACE_CAPACITY):
        entry = word(block, at.TRACE) + count * at.TRACE_WORDS * 8
        store64(entry, site)
        store64(entry + 8, word(thread, at.INDEX) << 32 | word(block, at.BLOCK_LINEAR))
        store64(entry + 16, address)
        store64(entry + 24, size | flags << 32)
    put(block, at.TRACE_COUNT, count + 1)
    return 0


def _has_ended(block: int) -> int:
    """Whether all threads of a block have ended: its shared memory may be another block's."""
    for k in range(word(block, at.N_PADDED)):
        op = word(word(block, at.THREADS) + k * word(block, at.STRIDE), at.OP)
        if op != at.DONE and op != at.ABSENT:
            return 0
    return 1


def _compare_later(thread: int, host: int, size: int) -> int:
    """Keep what is at `host`, for `same`."""
    low, high = 0, 0
    for k in range(size):
        if k < 8:
            low = low | load8(host + k) << k * 8
        else:
            high = high | load8(host + k) << k * 8 - 64
    put(thread, at.SAME_HOST, host)
    put(thread, at.SAME_LOW, low)
    put(thread, at.SAME_HIGH, high)
    return host


def same(thread: int) -> int:
    """Whether a store left the bytes as they were that other threads may have stored at the same time."""
    wanted, host = word(thread, at.SAME_BYTES), word(thread, at.SAME_HOST)
    put(thread, at.SAME_BYTES, 0)
    for k in range(_MOST_COMPARED):
        if wanted >> k & 1:
            before = word(thread, at.SAME_LOW) >> k * 8 if k < 8 else word(thread, at.SAME_HIGH) >> k * 8 - 64
            if load8(host + k) != before & 255:
                return 0
    put(thread, at.FAULT, 0)
    return 1


def find(thread: int, address: int, size: int, align: int, flags: int, site: int) -> int:
    """The host address of `size` bytes at the virtual `address`, or 0 and a fault in the thread's record."""
    block = word(thread, at.BLOCK)
    if word(block, at.TRACE) != 0:
        _trace(thread, block, address, size, flags, site)
    if address & (align - 1):
        return fail(thread, at.F_MISALIGNED, address, size, site, align)
    shared = -1
    if flags & at.IN_SHARED:
        shared = address
    elif address >= at.GENERIC_SHARED and address < at.GENERIC_SHARED + (1 << 30) and flags & at.IN_GLOBAL == 0:
        shared = address - at.GENERIC_SHARED
    if shared >= 0:
        owner = block
        rank = shared // at.SHARED_WINDOW
        if rank > 0:
            if rank > word(block, at.N_CTAS):
                return fail(thread, at.F_OUTSIDE, address, size, site, 0)
            owner = load64(word(block, at.PEERS) + (rank - 1) * 8)
            if owner != block and _has_ended(owner):
                return fail(thread, at.F_ENDED, address, size, site, 0)
        offset = shared - rank * at.SHARED_WINDOW - at.SHARED_START
        if offset < 0 or offset + size > word(owner, at.SHARED_BYTES):
            return fail(thread, at.F_OUTSIDE, address, size, site, 0)
        if not _check_shared(thread, block, owner, offset, size, flags, site, address):
            return 0
        if word(thread, at.SAME_BYTES) != 0:
            _compare_later(thread, word(owner, at.SHARED) + offset, size)
        return word(owner, at.SHARED) + offset
    if address >= at.LOCAL_BASE and address < at.GENERIC_SHARED:
        slot = (address - at.LOCAL_BASE) // at.LOCAL_SPACING
        offset = (address - at.LOCAL_BASE) % at.LOCAL_SPACING
        if slot >= word(block, at.N_LOCAL_SLOTS):
            return fail(thread, at.F_LOCAL, address, size, site, 0)
        record = word(block, at.LOCAL_SLOTS) + slot * at.SLOT_WORDS * 8
        if offset + size > word(record, at.SLOT_BYTES):
            return fail(thread, at.F_LOCAL, address, size, site, slot)
        return word(thread, at.LOCAL) + word(record, at.SLOT_OFFSET) + offset
    for k in range(word(block, at.N_ARRAYS)):
        record = word(block, at.ARRAYS) + k * at.ARRAY_WORDS * 8
        offset = address - word(record, at.ARRAY_BASE)
        if offset >= 0 and offset + size <= word(record, at.ARRAY_BYTES):
            if flags & at.WRITE:
                if word(record, at.ARRAY_FLAGS) & at.WRITE == 0:
                    return fail(thread, at.F_READ_ONLY, address, size, site, 0)
                if flags & at.ATOMIC == 0:
                    put(thread, at.FENCED, 0)
            if word(block, at.CHECK_RACES) != 0 and word(record, at.ARRAY_SHADOW) != 0:
                if not _check_global(thread, block, record, offset, size, flags, site, address):
                    return 0
                if word(thread, at.SAME_BYTES) != 0:
                    _compare_later(thread, word(record, at.ARRAY_HOST) + offset, size)
            return word(record, at.ARRAY_HOST) + offset
    return fail(thread, at.F_OUTSIDE, address, size, site, 0)


def _do_copy(thread: int, block: int, copy: int) -> int:
    """Carry out one asynchronous copy."""
    target, taken, count = word(copy, at.COPY_TARGET), word(copy, at.COPY_TAKEN), word(copy, at.COPY_BYTES)
    host = word(block, at.SHARED) + target
    if taken > 0:
        copy_bytes(host, word(copy, at.COPY_SOURCE), taken)
    for k in range(taken, count):
        store8(host + k, 0)
    return 0


def _end_copy(block: int, copy: int, epoch: int) -> int:
    """From now on a copy's bytes count as written by its thread at `epoch`."""
    target = word(copy, at.COPY_TARGET)
    for k in range(word(copy, at.COPY_BYTES)):
        store8(word(block, at.PENDING) + target + k, 0)
        store32(word(block, at.SHADOW) + (target + k) * CELL_BYTES, epoch)
    return 0


def copy_async(thread: int, target: int, source: int, count: int, taken: int, site: int) -> int:
    """Begin a copy of `count` bytes from global to shared memory, of which all but the first `taken` become zero.

    Returns 1, or 0 and a fault in the thread's record.
    """
    block = word(thread, at.BLOCK)
    host = 0
    if taken > count:
        taken = count
    if taken > 0:
        host = find(thread, source, taken, count, at.IN_GLOBAL, site)
        if host == 0:
            return 0
    place = find(thread, target, count, count, at.IN_SHARED | at.WRITE | at.ASYNC, site)
    if place == 0:
        return 0
    last = word(thread, at.QUEUE_LAST)
    capacity = word(block, at.QUEUE_CAPACITY)
    if last - word(thread, at.QUEUE_FIRST) >= capacity:
        return fail(thread, at.F_QUEUE, target, count, site, capacity)
    ring = word(block, at.QUEUES) + word(thread, at.INDEX) % word(block, at.N_PADDED) * capacity * at.COPY_WORDS * 8
    copy = ring + last % capacity * at.COPY_WORDS * 8
    put(copy, at.COPY_TARGET, place - word(block, at.SHARED))
    put(copy, at.COPY_SOURCE, host)
    put(copy, at.COPY_BYTES, count)
    put(copy, at.COPY_TAKEN, taken)
    put(copy, at.COPY_GROUP, word(thread, at.GROUP))
    put(copy, at.COPY_SITE, site)
    put(thread, at.QUEUE_LAST, last + 1)
    if word(block, at.LATE) == 0:
        _do_copy(thread, block, copy)
    return 1


def end_copies(thread: int, groups: int, end: int, epoch: int) -> int:
    """Finish this thread's asynchronous copies before position `end` of its ring.

    groups   leave those of its last committed groups (-1: none)
    """
    block = word(thread, at.BLOCK)
    capacity = word(block, at.QUEUE_CAPACITY)
    ring = word(block, at.QUEUES) + word(thread, at.INDEX) % word(block, at.N_PADDED) * capacity * at.COPY_WORDS * 8
    first = word(thread, at.QUEUE_FIRST)
    while first < end:
        copy = ring + first % capacity * at.COPY_WORDS * 8
        if groups >= 0 and word(copy, at.COPY_GROUP) >= word(thread, at.GROUP) - groups:
            break
        if word(block, at.LATE) != 0:
            _do_copy(thread, block, copy)
        _end_copy(block, copy, epoch)
        first += 1
    put(thread, at.QUEUE_FIRST, first)
    return 1


def wait_copies(thread: int, groups: int) -> int:
    """Finish this thread's asynchronous copies but those of its last `groups` committed groups (-1: all)."""
    epoch = word(thread, at.INDEX) << at.CLOCK_BITS | word(thread, at.CLOCK)
    return end_copies(thread, groups, word(thread, at.QUEUE_LAST), epoch)


FUNCTIONS = (
    word, put, fail, is_known, _of_several, _check_shared, _knows_block, _see_block, _is_ordered, _check_global, _trace,
    _has_ended, _compare_later, same, find,
    _do_copy, _end_copy, copy_async, end_copies, wait_copies,
)  # fmt: skip
INLINED = (word, put, is_known, _check_shared, _is_ordered, _check_global)
