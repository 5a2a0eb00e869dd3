"""Fixtures that several test files use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import fxgrad as fx
from fxgrad.runtime import eager
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
