"""Which nodes run side by side."""

from __future__ import annotations

from autosched.relax.branches import find_sections

# 0 -> (1 -> 2), 3, (4 -> 5) -> 6: a module of Inception
NEEDS = [(), {0}, {1}, {0}, {0}, {4}, {2, 3, 5}]


def test_branches_end_where_they_meet() -> None:
    assert find_sections(NEEDS, [1.0] * 7, 2, 0.0) == [[[1, 2], [4, 5], [3]]]


def test_the_longest_branch_is_the_first() -> None:
    assert find_sections(NEEDS, [1, 1, 1, 5, 1, 2, 1], 2, 0.0) == [[[3], [4, 5], [1, 2]]]


def test_one_long_branch_is_split_over_threads_instead() -> None:
    assert find_sections(NEEDS, [1, 1, 1, 50, 1, 2, 1], 2, 0.0) == []


def test_more_threads_than_branches_are_better_used_by_splitting() -> None:
    assert find_sections(NEEDS, [1.0] * 7, 8, 0.0) == []


def test_what_is_over_at_once_is_not_shared() -> None:
    assert find_sections(NEEDS, [1e-7] * 7, 2, 1e-6) == []


def test_a_chain_has_no_branches() -> None:
    assert find_sections([(), {0}, {1}, {2}], [1.0] * 4, 2, 0.0) == []
