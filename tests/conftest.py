"""Fixtures that several test files use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import fxgrad as fx


@pytest.fixture
def use_threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads for one test."""
    before = fx.get_num_threads()
    yield fx.set_num_threads
    fx.set_num_threads(before)
