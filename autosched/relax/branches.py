"""Branches of a graph: parts that do not depend on each other, which threads run side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence

LONGEST = 64  # nodes of a section
BALANCE = 0.6  # of the time that all threads have, how much a section's branches fill at least


def find_sections(
    needs: Sequence[Collection[int]], seconds: Sequence[float], threads: int, least_s: float
) -> list[list[list[int]]]:
    """The sections of nodes that follow each other; each is a list of branches, the longest first.

    needs    for each node the earlier ones that it reads from or that have to be over
    seconds  that each takes on one thread
    least_s  what a section takes on one thread at least
    """
    sections, first = [], 0
    while first < len(needs):
        found: list[list[int]] = []
        branches: list[list[int]] = []
        most_s = 0.0
        for node in range(first, min(first + LONGEST, len(needs))):
            read = [b for b in branches if not set(needs[node]).isdisjoint(b)]
            branches = [b for b in branches if b not in read] + [[*sorted(n for b in read for n in b), node]]
            saved_s = _saved_s([sum(seconds[n] for n in b) for b in branches], threads, least_s)
            if 0.0 < saved_s >= most_s:
                found, most_s = branches, saved_s
        if found:
            sections.append(sorted(found, key=lambda b: -sum(seconds[n] for n in b)))
        first += max(1, sum(map(len, found)))
    return sections


def _saved_s(seconds: Sequence[float], threads: int, least_s: float) -> float:
    """What branches of these lengths save against one thread; 0 where they keep the threads busy for too short."""
    loads = [0.0] * threads
    for s in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += s
    total_s, longest_s = sum(loads), max(loads)
    return total_s - longest_s if total_s >= max(least_s, BALANCE * threads * longest_s) else 0.0


__all__ = ["find_sections"]
