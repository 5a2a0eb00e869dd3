"""Whether a function drew random numbers while it was traced: its program would hold the same ones for every call."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

__all__ = ["watching_draws"]

T = TypeVar("T")
ATTEMPTS = 3  # how often other threads may draw from the same generators before the function is blamed


def watching_draws(trace: Callable[[], T], generators: Sequence[Any]) -> tuple[T, bool]:
    """What `trace` answers, and whether it drew from these generators, from numpy.random, or from random.

    Draws show in the states they change. Another thread may have drawn (as the loop of a dask worker does), so where there
    is one, `trace` runs again: calls of this thread to methods of `random` are seen one by one, other states must stay as they
    are once.
    """
    before = _states(generators)
    result = trace()
    drew = _states(generators) != before
    for _ in range(ATTEMPTS - 1):
        if not drew or threading.active_count() == 1:
            break
        before = _states(generators)
        with _calls_to_random() as calls:
            result = trace()
        drew = bool(calls) or _states(generators)[1:] != before[1:]
    return result, drew


def _states(generators: Sequence[Any]) -> list[Any]:
    """The states of random, of numpy.random and of the generators, comparable."""
    import random

    from numpy.random import mtrand

    states = [getattr(g, "bit_generator", g) for g in generators]
    version, words, normal = random.getstate()  # draws come in pairs from `gauss`, which keeps the second
    return [
        (version, words),
        normal,
        _frozen(mtrand._rand.get_state(legacy=False)),
        *[_frozen(g.state if hasattr(g, "state") else g.get_state()) for g in states],
    ]


def _frozen(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: _frozen(v) for k, v in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


@contextmanager
def _calls_to_random() -> Iterator[list[str]]:
    """The names of the methods of random's hidden generator that this thread calls; a profiler, if there is one, pauses."""
    import random

    generator, calls = random._inst, []

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and getattr(function, "__self__", None) is generator:
            calls.append(function.__name__)

    paused = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(paused)
