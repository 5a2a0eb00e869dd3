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

    def pipeline(self: Table, runs: Any, rows: Any = (0, 0, 0), block: int = 0, lead: int = 0, *room: Any) -> None:
        plan = runs[lead].plan.copy()
        plan[1] = min(plan[1], 1)
        plain(self, [*runs[:lead], runs[lead]._replace(plan=plan), *runs[lead + 1 :]], rows, min(block, 1), lead, *room)

    monkeypatch.setattr(Table, "pipeline", pipeline)
