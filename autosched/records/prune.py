"""Which records nobody needs: those that are neither winner nor default, the slowest first."""

from __future__ import annotations

import math

from autosched.records.query import RecordFilter
from autosched.records.sql import SqlStore
from autosched.records.where import parse_where


def losers(store: SqlStore, keep: int) -> list[str]:
    """The uids of all but the `keep` fastest of each task, failures and the slowest first, across all tasks by rank.

    Winners and defaults are never among them.
    """
    candidates = RecordFilter(where=parse_where("not (winner=yes or default=yes)"))
    by_task: dict[tuple[str, str, int], list[tuple[float, str]]] = {}
    for record in store.records(candidates):
        time_s = record.measurement.median_s  # infinite for a failure
        by_task.setdefault((record.workload.key, record.device.key, record.threads), []).append((time_s, record.uid))
    ranked = [
        (math.inf if time_s == math.inf else rank, uid)
        for group in by_task.values()
        for rank, (time_s, uid) in enumerate(sorted(group))
        if rank >= keep or time_s == math.inf
    ]
    return [uid for _, uid in sorted(ranked, reverse=True)]


def prune_to_size(store: SqlStore, cap_bytes: int) -> int:
    """Delete losers until the database's file is no larger than the cap, or none is left; gives how many."""
    uids, deleted = losers(store, 0), 0
    while uids and (now := store.size_bytes()) is not None and now > cap_bytes:
        share = min(1.0, 1.1 * (now - cap_bytes) / now)  # of the file; a little more, as tables and indices stay
        n = max(1, math.ceil(share * max(1, store.count())))
        deleted += store.delete(uids[:n])
        uids = uids[n:]
        store.vacuum()
    return deleted
