"""Names of the calls that are one instruction of a GPU."""

COPY, COMMIT, WAIT = "cp_async", "cp_async_commit", "cp_async_wait"
COPY_BYTES = (4, 8, 16)  # of one copy
MMA, LDMATRIX = "mma_sync", "ldmatrix"
SHUFFLE, WARP_SYNC = "warp_shuffle", "warp_sync"
TURN_WORDS = "turn_words"  # word w of lane t becomes word t of lane w, of four words and four neighbouring lanes

BULK = "bulk_copy"
MBARRIER_INIT, MBARRIER_INVAL, MBARRIER_FENCE = "mbarrier_init", "mbarrier_inval", "mbarrier_fence"
MBARRIER_ARRIVE, MBARRIER_EXPECT, MBARRIER_COPIES = "mbarrier_arrive", "mbarrier_expect", "mbarrier_copies"
MBARRIER_WAIT, MBARRIER_TEST = "mbarrier_wait", "mbarrier_test"  # TEST: by an instruction that sm_80 has
MBARRIERS = (  # whose first argument is the mbarrier
    MBARRIER_INIT, MBARRIER_INVAL, MBARRIER_ARRIVE, MBARRIER_EXPECT, MBARRIER_COPIES, MBARRIER_WAIT, MBARRIER_TEST,
)  # fmt: skip
PLACES = (COPY, LDMATRIX, MMA, TURN_WORDS, BULK, *MBARRIERS)  # their arguments are places, not values
