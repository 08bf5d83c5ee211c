import multiprocessing
import os

import pytest

from autosched.errors import InvalidValueError
from autosched.runtime import affinity
from autosched.runtime.affinity import Claims, candidates

EIGHT = frozenset(range(8))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("AUTOSCHED_AFFINITY", raising=False)
    monkeypatch.setattr(affinity, "ALLOWED", EIGHT)
    return tmp_path / "cpus"


def test_workers_get_cpus_of_their_own_away_from_the_caller():
    assert candidates({0, 1, 2}, {0, 1, 2}, 1) == [0, 2]
    assert candidates({0}, {0}, 0) == []
    assert candidates({4, 5, 6, 7}, {4, 5}, 4) == [6, 7, 5]  # the caller keeps to 4 and 5


def test_no_two_claim_one_cpu(folder):
    one, other = Claims(folder), Claims(folder)
    assert [one.choose(worker, EIGHT, 0) for worker in (1, 2)] == [1, 2]
    assert [other.choose(worker, EIGHT, 1) for worker in (1, 2, 3)] == [0, 3, 4]
    one.release()
    assert other.choose(4, EIGHT, 5) == 1


def test_who_finds_none_left_floats(folder, monkeypatch):
    monkeypatch.setattr(affinity, "ALLOWED", frozenset({0, 1}))
    one, other = Claims(folder), Claims(folder)
    assert one.choose(1, {0, 1}, 0) == 1
    assert other.choose(1, {0, 1}, 0) is None


def _choose(folder, caller, here, answers, done):
    affinity.ALLOWED = EIGHT
    claims = Claims(folder)
    answers.put([claims.choose(worker, caller, here) for worker in (1, 2)])
    done.wait(30)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_side_by_side_share_no_cpu(folder, method):
    context = multiprocessing.get_context(method)
    answers, done = context.Queue(), context.Event()
    children = [context.Process(target=_choose, args=(folder, EIGHT, 0, answers, done)) for _ in range(3)]
    for child in children:
        child.start()
    chosen = [answers.get(timeout=60) for _ in children]
    done.set()
    for child in children:
        child.join(30)
    assert sorted(cpu for pair in chosen for cpu in pair) == [1, 2, 3, 4, 5, 6]
    assert Claims(folder).choose(1, EIGHT, 0) == 1  # a process that has ended has no claims


def test_a_child_may_use_its_parents_cpus_where_there_are_no_others(folder, monkeypatch):
    monkeypatch.setattr(affinity, "ALLOWED", frozenset({0, 1}))
    parent = Claims(folder)
    assert parent.choose(1, {0, 1}, 0) == 1
    monkeypatch.setattr(os, "getppid", os.getpid)
    first, second = Claims(folder), Claims(folder)
    assert (first.choose(1, {0, 1}, 0), second.choose(1, {0, 1}, 0)) == (1, None)


def test_policies(folder, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_AFFINITY", "off")
    assert Claims(folder).choose(1, EIGHT, 0) is None
    monkeypatch.setenv("AUTOSCHED_AFFINITY", "7,2-3")
    assert [Claims(folder).choose(worker, EIGHT, 0) for worker in (1, 2, 3, 4)] == [7, 2, 3, None]
    assert not folder.exists()
    for wrong in ("some", "3-1", "-1", "1,,2", "8", "0,1,99"):
        monkeypatch.setenv("AUTOSCHED_AFFINITY", wrong)
        with pytest.raises(InvalidValueError, match="AUTOSCHED_AFFINITY"):
            Claims(folder).choose(1, EIGHT, 0)


def test_a_folder_that_others_can_write_is_not_used(folder):
    folder.mkdir()
    folder.chmod(0o777)
    assert Claims(folder).choose(1, EIGHT, 0) == 1
    assert not list(folder.iterdir())
