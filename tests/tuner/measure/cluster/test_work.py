"""Stations of a cluster's worker: those in use stay open."""

import contextlib

import pytest

from autosched.tuner.measure.base import MeasureOptions
from autosched.tuner.measure.cluster import work
from autosched.tuner.measure.cluster.work import Setup


class _Station:
    def __init__(self, setup):
        self.setup, self.users, self.is_open = setup, 0, True

    def close(self):
        assert self.users == 0, "it is in use"
        self.is_open = False


@pytest.fixture
def setups(monkeypatch):
    monkeypatch.setattr(work, "_STATIONS", {})
    monkeypatch.setattr(work, "Station", _Station)
    return [Setup(f"target {number}", MeasureOptions(), "module:class") for number in range(5)]


def test_a_station_in_use_is_not_closed(setups):
    with contextlib.ExitStack() as stack:
        used = [stack.enter_context(work._station(setup)) for setup in setups[:4]]
        assert all(station.is_open for station in used)
        with work._station(setups[0]) as again:
            assert again is used[0]
    with work._station(setups[4]) as new:
        assert new.is_open
    assert [station.is_open for station in used].count(True) == 1  # two are kept, and the new one is the other


def test_of_those_that_nobody_uses_the_one_used_longest_ago_goes(setups):
    opened = []
    for number in (0, 1, 0, 2):
        with work._station(setups[number]) as station:
            opened.append(station)
    assert [station.is_open for station in opened] == [True, False, True, True]
