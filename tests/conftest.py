"""Fixtures that several test files use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fxgrad as fx
from fxgrad.runtime import eager
from fxgrad.runtime.table import Table
from fxgrad.trace import function


@pytest.fixture
def use_threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads for one test."""
    before = fx.get_num_threads()
    yield fx.set_num_threads
    fx.set_num_threads(before)


@pytest.fixture
def soon_hot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are hot at their second run, and none is known from other tests."""
    monkeypatch.setattr(eager, "HOT", 2)
    function.forget_programs()
    yield
    assert eager.wait_for_background()


@pytest.fixture
def cut_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit of work is worth a thread, and a block of a pipeline is one unit."""
    plain = Table.pipeline

    def pipeline(self: Table, runs: Any, rows: Any = (0, 0, 0), block: int = 0) -> None:
        lead = runs[0].plan.copy()
        lead[1] = min(lead[1], 1)
        plain(self, [runs[0]._replace(plan=lead), *runs[1:]], rows, min(block, 1))

    monkeypatch.setattr(Table, "pipeline", pipeline)
