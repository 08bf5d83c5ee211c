"""Where things stand in the memory that compiled kernels, the scheduler and Python share, and which addresses exist.

Every record is an array of 64-bit words; the constants here are word numbers. A kernel only sees virtual addresses:
each access asks `access` (memory.py) for the place in the host's memory, so that no address of another object, of
another address space or of nothing can be used unnoticed.
"""

from __future__ import annotations

# A thread's record.
SP = 0  # the saved stack pointer while the thread does not run
OP = 1  # what it waits for: one of the numbers below or of `operations`
SITE = 2  # the instruction that it waits at, an index into the program's sites
TID_X, TID_Y, TID_Z = 3, 4, 5
LANE, WARP, INDEX = 6, 7, 8  # INDEX counts through all blocks of the cluster, each padded to whole warps
LOCAL = 9  # host address of its local memory
BLOCK = 10  # host address of its block's record
CLOCK = 11  # its logical time, which passes at synchronisations
KNOWS = 12  # generation of its row of clocks (see memory.py)
QUEUE_FIRST, QUEUE_LAST = 13, 14  # asynchronous copies not yet done, positions in its ring
GROUP = 15  # the group that the next asynchronous copy joins
FAULT, FAULT_ADDRESS, FAULT_SIZE, FAULT_SITE, FAULT_OTHER = 16, 17, 18, 19, 20
LINEAR = 21  # threadIdx as one number
FENCED = 22  # whether a memory fence came since the last access
CLUSTER_PHASE = 23  # how often it arrived at the cluster's barrier
SAME_BYTES, SAME_HOST, SAME_LOW, SAME_HIGH = 24, 25, 26, 27  # a store that has to leave bytes as they are: see `same`
ARGS = 28  # operands of the instruction that it waits at; the results come back in the same place

# A block's record.
MAIN_SP = 0
THREADS, STRIDE, N_THREADS, N_PADDED = 1, 2, 3, 4  # host address of the records, bytes of one, threads, whole warps
NTID_X, NTID_Y, NTID_Z = 5, 6, 7
NCTAID_X, NCTAID_Y, NCTAID_Z = 8, 9, 10
CTAID_X, CTAID_Y, CTAID_Z = 11, 12, 13
SHARED, SHARED_BYTES, SHADOW, PENDING = 14, 15, 16, 17  # host addresses of shared memory and what is known of its bytes
BASE, GENERATION, CLOCKS, N_CLOCKS = 18, 19, 20, 21
LATE = 22  # 1: asynchronous copies are done as late as allowed, 0: at once
ARRAYS, N_ARRAYS = 23, 24
PARAMS = 25
LOCAL_SLOTS, N_LOCAL_SLOTS = 26, 27
TRACE, TRACE_COUNT, TRACE_CAPACITY = 28, 29, 30
CHECK_RACES, CHECK_UNSET = 31, 32
QUEUES, QUEUE_CAPACITY = 33, 34
DYNAMIC_BYTES = 35
BARRIERS = 36  # host address of 16 records: arrived, expected
RANK, N_CTAS = 37, 38  # in the cluster
CLUSTER_X, CLUSTER_Y, CLUSTER_Z = 39, 40, 41
PEERS = 42  # host address of the addresses of the records of the cluster's blocks
BLOCK_LINEAR = 43  # blockIdx as one number
SINGLE = 44  # 1 if the cluster is one block
SEEN, SEEN_STRIDE = 45, 46  # for each block of the grid, a bit for each block whose writes it has seen
SCRATCH = 47  # host address of memory for a matrix instruction's operands
ARRIVAL_CLOCKS = 48  # host address: when each thread last arrived at the cluster's barrier
MBARRIERS = 49  # host address of the table of mbarriers, see mbarrier.py
BULK, BULK_FIRST, BULK_LAST = 50, 51, 52  # bulk copies in flight, a ring
BULK_ASKED = 53  # bytes of device memory that the block's bulk copies have asked for
BLOCK_WORDS = 56

# A barrier's record, 16 a block; behind them, a row of clocks for each.
ARRIVED, EXPECTED, COUNTED, REDUCED = 0, 1, 2, 3
BARRIER_WORDS = 4
N_BARRIERS = 16

# A cluster's record: blocks that run at the same time.
GROUP_BLOCKS, GROUP_PEERS, SWITCH, FAULT_THREAD, SPINS, CLUSTER_BARRIER = 0, 1, 2, 3, 4, 5
GROUP_WORDS = 8

# An array's record: device memory of one allocation.
ARRAY_BASE, ARRAY_BYTES, ARRAY_HOST, ARRAY_SHADOW, ARRAY_CELL, ARRAY_FLAGS = 0, 1, 2, 3, 4, 5
ARRAY_WORDS = 6

# A local variable's record.
SLOT_OFFSET, SLOT_BYTES = 0, 1
SLOT_WORDS = 2

# An asynchronous copy in a thread's ring.
COPY_TARGET, COPY_SOURCE, COPY_BYTES, COPY_TAKEN, COPY_GROUP, COPY_SITE = 0, 1, 2, 3, 4, 5
COPY_WORDS = 6

# A bulk copy in flight: places in shared memory by offset, the mbarrier that it tells, who began it and when.
# One of a box of a tensor has the map's address, else 0, and the coordinates of its first element, the innermost first.
# Copies of a thread that arrive at an mbarrier when they have ended: the thread's record, and their end in its ring.
BULK_TARGET, BULK_SOURCE, BULK_BYTES, BULK_BARRIER, BULK_EPOCH, BULK_MAP, BULK_AT, BULK_THREAD = 0, 1, 2, 3, 4, 5, 6, 11
BULK_WORDS = 12
BULK_CAPACITY = 1024

# A tensor map, as the emulator writes it into its 128 bytes; dimensions from the innermost on.
MAP_MAGIC, MAP_RANK, MAP_ITEM, MAP_BASE, MAP_HOST, MAP_BYTES = 0, 1, 2, 3, 4, 5  # BYTES of a box
MAP_SIZES, MAP_STRIDES, MAP_BOX = 6, 7, 8  # of the innermost dimension; those of the next are 3 words further
MAP_WORDS = 24
MAP_ROW_BYTES = 128  # of a box
TENSOR_MAP = 0x5445_4E53_4F52_0001

TRACE_WORDS = 4  # site, thread (index << 32 | block), address, bytes | kind << 32

# Values of OP that are no instruction.
READY, DONE, ABSENT, FAILED = 0, 1, 2, 3

# Instructions at which a thread waits. Those of a block:
BARRIER, AT_BARRIER = 8, 9  # came to one; was counted there
CLUSTER_ARRIVE, CLUSTER_WAIT = 10, 11
PAUSE = 12  # others go on before it does
# of lanes of a warp, whose mask is the first operand:
WARP_SYNC, SHUFFLE, VOTE, MATCH_ANY, MATCH_ALL, REDUCE, ELECT, MMA, LDMATRIX, STMATRIX = range(16, 26)
FIRST_WARP, LAST_WARP = WARP_SYNC, STMATRIX
ACTIVE = 30  # the lanes that are here
WGMMA = 31  # of a warpgroup: four warps

# Virtual addresses. Those of shared memory (address space 3) fit 32 bits; the generic ones do not have the same lower
# half, so a pointer that was cut to 32 bits without a conversion hits nothing.
SHARED_WINDOW = 0x0100_0000  # distance of the windows of a cluster's blocks; the first window is the block's own
SHARED_START = 0x400  # offset of the first variable, aligned as TMA wants it
GENERIC_SHARED = 0x7E00_5000_0000  # generic = this + shared address
LOCAL_BASE = 0x7D00_0000_0000
LOCAL_SPACING = 0x0010_0000  # between two variables of a thread
ARRAY_SPACING = 0x0010_0000_0000
ARRAY_START = 0x0020_0000_0000

# Flags of an access.
WRITE, ATOMIC, IN_SHARED, IN_GLOBAL, IN_LOCAL, ASYNC = 1, 2, 4, 8, 16, 32
COMPARED = 64  # a store that calls `same` afterwards

# Faults.
F_OUTSIDE, F_MISALIGNED, F_RACE_WW, F_RACE_RW, F_RACE_WR, F_UNSET, F_PENDING, F_QUEUE = 1, 2, 3, 4, 5, 6, 7, 8
F_EXITED, F_DIVERGED, F_READ_ONLY, F_TRAP, F_LOCAL, F_MASK, F_COUNT, F_PARTIAL = 9, 10, 11, 12, 13, 14, 15, 16
F_MBARRIER, F_MANY_MBARRIERS, F_OVERFLOW, F_DESCRIPTOR, F_TENSOR_MAP, F_ENDED = 17, 18, 19, 20, 21, 22

CELL_WORDS = 4  # 32-bit words known of each shared byte: who wrote it, and three of those who read it
CLOCK_BITS = 18
SEVERAL = (1 << 32 - CLOCK_BITS) - 1  # in place of a thread's number: threads that stored the same
