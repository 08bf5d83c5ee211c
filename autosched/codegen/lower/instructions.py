"""Names of the calls that are one instruction of a GPU."""

COPY, COMMIT, WAIT = "cp_async", "cp_async_commit", "cp_async_wait"
COPY_BYTES = (4, 8, 16)  # of one copy
MMA, LDMATRIX = "mma_sync", "ldmatrix"
SHUFFLE, WARP_SYNC = "warp_shuffle", "warp_sync"
PLACES = (COPY, LDMATRIX, MMA)  # their arguments are places, not values
