"""The native loop that runs a graph's phases in order, and the loop of the pool's workers.

The functions are compiled by `codegen.cpu.front_end`, never run by Python.

One caller at a time uses the pool; another that comes meanwhile runs its graph on its own thread alone. The pieces of
a phase are divided into ranges, one for each thread, in their order: so a thread has the same part of an image, or the
same channels, from phase to phase, and finds in its cache what it wrote. A range is a word with the epoch of the last
phase that took from it, and the number of pieces that were left then: of a later phase nobody has taken any. A thread
takes some of its own by a compare-and-swap of that word, then those of threads that are behind. This succeeds only
while the phase is running, so a worker that comes late (asleep, or its core busy with another program) finds nothing
left and nobody waits for it: sharing a core with other programs costs little, where waiting at a barrier for a sleeping
thread costs the scheduler's time slice of some milliseconds.

What one core writes takes 30 to 200 ns to another one, a line at a time. So one line tells of a phase, and a thread's
range is a line of its own that nobody else writes while the thread keeps up.

A worker without work pauses, then yields, then sleeps on a futex, all within a millisecond, so that an idle process
uses no CPU time.
"""

from __future__ import annotations

from autosched.codegen.native.intrinsics import (
    call_0,
    call_2,
    call_7,
    call_body,
    compare_and_swap,
    exchange,
    fetch_add,
    load_acquire,
    load_word,
    pause,
    store_release,
    store_word,
)
from autosched.runtime import native_abi as abi

_TICKET, _DONE, _SLEEPERS, _LOCK = 8 * abi.POOL_TICKET, 8 * abi.POOL_DONE, 8 * abi.POOL_SLEEPERS, 8 * abi.POOL_LOCK
_RANGES, _RANGE_BYTES, _MOST_RANGES = 8 * abi.POOL_RANGES, 8 * abi.RANGE_WORDS, abi.MOST_RANGES
_BODY, _SLOTS, _TASKS = 8 * abi.POOL_BODY, 8 * abi.POOL_SLOTS, 8 * abi.POOL_TASKS
_STOP, _SPINS, _YIELDS = 8 * abi.POOL_STOP, 8 * abi.POOL_SPINS, 8 * abi.POOL_YIELDS
_SCHED_YIELD, _SYSCALL, _FUTEX = 8 * abi.POOL_SCHED_YIELD, 8 * abi.POOL_SYSCALL, 8 * abi.POOL_FUTEX
_NANOSLEEP, _NAP, _CLOCK = 8 * abi.POOL_NANOSLEEP, 8 * abi.POOL_NAP, 8 * abi.POOL_CLOCK
_EPOCH_HALF = _TICKET + 4  # little endian: the upper half of the ticket
_LOWER_HALF, _HALF_OF_EPOCHS = 0xFFFFFFFF, 0x7FFFFFFF
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
_EVERYBODY = 0x7FFFFFFF
_CLOCK_MONOTONIC = 1


def take_count(remaining: int, threads: int, ranges: int) -> int:
    """Choose how many pieces to take: half of a thread's share, so that the last ones even out differences in speed."""
    return max(remaining * ranges // (2 * threads), 1)


def range_start(index: int, ranges: int, n_tasks: int) -> int:
    """The first piece of a range."""
    return n_tasks * index // ranges


def run_pieces(body: int, slots: int, first: int, last: int, worker: int) -> None:
    """Run pieces [first, last) of a row: of a phase, or branches, each with a table of its own."""
    if body != 0:
        call_body(body, slots, first, last, worker)
        return
    for branch in range(first, last):
        at = slots + branch * (8 * abi.BRANCH_WORDS)
        table = load_word(at + 8 * abi.BRANCH_TABLE)
        for index in range(load_word(at + 8 * abi.BRANCH_ROWS)):
            row = table + index * (8 * abi.ROW_WORDS)
            body_of_row, slots_of_row = load_word(row + 8 * abi.ROW_BODY), load_word(row + 8 * abi.ROW_SLOTS)
            call_body(body_of_row, slots_of_row, 0, load_word(row + 8 * abi.ROW_TASKS), worker)


def work(pool: int, worker: int, ticket: int) -> bool:
    """Take pieces of a phase once and run them, its own before others'; False if none are left for this worker."""
    threads, epoch = ticket & _LOWER_HALF, ticket >> 32
    if worker >= threads:
        return False
    ranges = min(threads, _MOST_RANGES)
    index = worker % ranges
    for _ in range(ranges):
        at = pool + _RANGES + _RANGE_BYTES * index
        word = load_acquire(at)
        body, slots, n_tasks = load_word(pool + _BODY), load_word(pool + _SLOTS), load_word(pool + _TASKS)
        if load_acquire(pool + _TICKET) != ticket:  # so the word is of this phase or of an older one
            return False
        end = range_start(index + 1, ranges, n_tasks)
        remaining = end - range_start(index, ranges, n_tasks)  # of each range at least one
        if word >> 32 == epoch:
            remaining = word & _LOWER_HALF
        if remaining != 0:
            count = take_count(remaining, threads, ranges)
            if compare_and_swap(at, word, epoch << 32 | remaining - count):  # so all that was read is of this phase
                run_pieces(body, slots, end - remaining, end - remaining + count, worker)
                fetch_add(pool + _DONE, count)
            return True
        index += 1
        if index >= ranges:
            index = 0
    return False


def wake_workers(pool: int) -> None:
    """Wake the workers that sleep, at most once for each time that one went to sleep."""
    if load_word(pool + _SLEEPERS) > 0 and exchange(pool + _SLEEPERS, 0) > 0:
        syscall = load_word(pool + _SYSCALL)
        if syscall != 0:
            number = load_word(pool + _FUTEX)
            call_7(syscall, number, pool + _EPOCH_HALF, _FUTEX_WAKE_PRIVATE, _EVERYBODY, 0, 0, 0)


def sleep_worker(pool: int, epoch: int) -> None:
    """Sleep until the epoch is another one; without a futex, nap."""
    syscall = load_word(pool + _SYSCALL)
    if syscall == 0:
        call_2(load_word(pool + _NANOSLEEP), pool + _NAP, 0)
        return
    fetch_add(pool + _SLEEPERS, 1)  # before the kernel compares the epoch, which a caller changes before it reads this
    number = load_word(pool + _FUTEX)
    call_7(syscall, number, pool + _EPOCH_HALF, _FUTEX_WAIT_PRIVATE, epoch & _LOWER_HALF, 0, 0, 0)


def run_phase_in_pool(pool: int, body: int, slots: int, n_tasks: int, threads: int) -> None:
    """Run a phase on the caller and the pool's workers; returns when all pieces are finished."""
    finished = load_word(pool + _DONE) + n_tasks
    store_word(pool + _BODY, body)
    store_word(pool + _SLOTS, slots)
    store_word(pool + _TASKS, n_tasks)
    epoch = (load_word(pool + _TICKET) >> 32) + 1
    if epoch & _HALF_OF_EPOCHS == 0:  # of a range that was not used since, the epoch would come again
        for index in range(_MOST_RANGES):
            store_word(pool + _RANGES + _RANGE_BYTES * index, (epoch - 1) << 32)
    ticket = epoch << 32 | threads
    exchange(pool + _TICKET, ticket)
    wake_workers(pool)
    while work(pool, 0, ticket):
        pass
    idle, spins = 0, load_word(pool + _SPINS)
    while load_acquire(pool + _DONE) != finished:  # only pieces that somebody is running now
        idle += 1
        if idle < spins:
            pause()
        else:
            call_0(load_word(pool + _SCHED_YIELD))


def now_ns(pool: int, buffer: int) -> int:
    """Read the monotonic clock in nanoseconds; `buffer` is memory for a struct timespec."""
    call_2(load_word(pool + _CLOCK), _CLOCK_MONOTONIC, buffer)
    return load_word(buffer) * 1_000_000_000 + load_word(buffer + 8)


def run_row(row: int, pool: int, threads: int) -> None:
    """Run one phase, split where more than one thread and piece are there."""
    body, slots = load_word(row + 8 * abi.ROW_BODY), load_word(row + 8 * abi.ROW_SLOTS)
    n_tasks = load_word(row + 8 * abi.ROW_TASKS)
    team = min(min(threads, load_word(row + 8 * abi.ROW_THREADS)), n_tasks)
    if team > 1:
        run_phase_in_pool(pool, body, slots, n_tasks, team)
    else:
        run_pieces(body, slots, 0, n_tasks, 0)


def run_graph(table: int, n_rows: int, pool: int, threads: int, number: int, times: int) -> int:
    """Run all rows of a table `number` times; add each row's nanoseconds to `times` unless that is 0.

    Gives the number of threads that it ran on: 1 where another caller uses the pool.
    """
    locked = threads > 1 and compare_and_swap(pool + _LOCK, 0, 1)
    team = threads if locked else 1
    for _ in range(number):
        for index in range(n_rows):
            row = table + index * (8 * abi.ROW_WORDS)
            if times == 0:
                run_row(row, pool, team)
            else:
                start = now_ns(pool, times)
                run_row(row, pool, team)
                at = times + 8 * (abi.TIMES_FIRST_ROW + index)
                store_word(at, load_word(at) + now_ns(pool, times) - start)
    if locked:
        store_release(pool + _LOCK, 0)
    return team


def worker(block: int) -> int:
    """Serve a pool until it stops; `block` holds the pool's address and the worker's number."""
    pool, index = load_word(block + 8 * abi.WORKER_POOL), load_word(block + 8 * abi.WORKER_INDEX)
    spins, yields = load_word(pool + _SPINS), load_word(pool + _YIELDS)
    idle, finished = 0, -1  # the ticket of the last phase that had nothing left
    while True:
        ticket = load_acquire(pool + _TICKET)
        if ticket != finished:
            if work(pool, index, ticket):
                idle = 0
                continue
            finished = ticket
        if load_word(pool + _STOP) != 0:
            return 0
        idle += 1
        if idle < spins:
            pause()
        elif idle < spins + yields:
            call_0(load_word(pool + _SCHED_YIELD))
        else:
            sleep_worker(pool, ticket >> 32)
            idle = 0
