"""A monotonic clock that stands still unless a test moves it."""

from __future__ import annotations

from types import ModuleType

import pytest


class StillClock:
    """The clock of the modules for which it was made."""

    now = 1000.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now
