"""Where the generated native loop and the Python side keep their shared numbers, counted in 64-bit words.

`autosched.codegen.native` generates code for this layout and `autosched.runtime.pool` fills it in. Words that
different threads write lie 128 bytes apart: x86 prefetches cache lines in pairs.
"""

from __future__ import annotations

NATIVE_ABI_VERSION = 2
NATIVE_ABI_VERSIONS = (1, 2)  # loops that still run: of the first one the pool's words 1 to 15 and 64 to 67
RUN_SYMBOL = "autosched_run_graph"
WORKER_SYMBOL = "autosched_worker"

# One row of the table for each phase that is run, in order.
ROW_BODY = 0  # address of the phase's function; 0: the row's pieces are branches, which run side by side
ROW_SLOTS = 1  # address of its slots, or of what describes the branches
ROW_TASKS = 2  # number of pieces, below 2**31
ROW_THREADS = 3  # most threads that it may be split over
ROW_WORDS = 4

# What describes a branch.
BRANCH_TABLE = 0  # address of its rows, whose phases all run on the thread that runs the branch
BRANCH_ROWS = 1
BRANCH_WORDS = 2

# The pool. One cache line tells workers all of the phase that is being run.
POOL_TICKET = 0  # epoch << 32 | the most threads of the phase; workers sleep on the epoch
POOL_BODY = 1  # as in the phase's row
POOL_SLOTS = 2
POOL_TASKS = 3
POOL_DONE = 16  # pieces that were finished since the pool began
POOL_SLEEPERS = 32  # workers that went to sleep since the last wake-up
POOL_LOCK = 48  # 1 while a caller uses the pool
POOL_STOP = 80  # 1: workers return
POOL_SCHED_YIELD = 81  # addresses of the C library's functions; passed as values so that objects need no symbols
POOL_SYSCALL = 82  # 0 where there is no futex: then workers nap with nanosleep
POOL_FUTEX = 83  # the number of the futex system call
POOL_NANOSLEEP = 84
POOL_NAP = 85  # two words, a struct timespec
POOL_SPINS = 87  # pauses before an idle thread begins to yield
POOL_YIELDS = 88  # yields before an idle worker sleeps
POOL_CLOCK = 89  # address of clock_gettime
POOL_RANGES = 96  # for each range of pieces: epoch << 32 | pieces that nobody has taken; of an older epoch: all of them
RANGE_WORDS = 16
MOST_RANGES = 15
POOL_WORDS = POOL_RANGES + RANGE_WORDS * MOST_RANGES

# What a worker is given: the pool's address and its own number, 1 or more.
WORKER_POOL = 0
WORKER_INDEX = 1
WORKER_WORDS = 2

# Times in nanoseconds, a word for each row, after two words that clock_gettime writes.
TIMES_FIRST_ROW = 2
