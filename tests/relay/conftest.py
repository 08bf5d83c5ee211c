"""Nothing is fetched from the network while tests run."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_tophub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
