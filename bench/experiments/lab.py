"""How experiments time things: one object that knows the size of the run, the peers, and what this machine can do."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.experiments.constants import Constants
from bench.peers import Peers
from bench.timing import Timing, interleave

__all__ = ["Lab", "best"]


def best(f: Callable[[], Any], tries: int = 15, before: Callable[[], Any] = lambda: None) -> float:
    """Least seconds of a call of f, each after an untimed `before`."""
    least = float("inf")
    for _ in range(tries):
        before()
        start = time.perf_counter()
        f()
        least = min(least, time.perf_counter() - start)
    return least


class Lab:
    """`quick`: sizes are cut down to see that everything runs; `threads` of every contender."""

    def __init__(self, quick: bool, threads: int):
        self.quick, self.threads = quick, threads
        self.peers = Peers(threads)
        self.constants = Constants(quick, threads)
        self.notes: list[str] = []
        self.spread = 1.0  # of all that was timed: the largest median over its least

    def size(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full

    def timings(self, contenders: Mapping[str, Callable[[], Any]], repeat: int = 21, block: float = 0.003) -> dict[str, Timing]:
        """Contenders in turns; see bench.timing."""
        if self.quick:
            return interleave(contenders, 3, 0.002, 0.0)
        return interleave(contenders, repeat, block, 0.05)

    def times(self, contenders: Mapping[str, Callable[[], Any]], repeat: int = 21, block: float = 0.003) -> dict[str, float]:
        """Seconds of a call in the fastest block of each contender: what disturbs a call makes it slower, never faster.

        Many short blocks, some of which slip through between what others do.
        """
        found = self.timings(contenders, repeat, block)
        self.spread = max([self.spread, *(t.median / t.least for t in found.values())])
        gc.collect(1)
        return {name: t.least for name, t in found.items()}

    def peer(self, name: str) -> Any:
        """A library to compare with, None and a note if it is not installed."""
        return self.peers.module(name)

    def all_notes(self) -> list[str]:
        notes = [*self.notes, *self.peers.notes]
        if self.spread > 1.0:
            notes.append(
                f"Times are those of the fastest of several interleaved blocks; the largest median was {self.spread:.2f} times "
                "its least."
            )
        return list(dict.fromkeys(notes))


def module(name: str) -> Any:
    """An experiment by its name."""
    return importlib.import_module(f"bench.experiments.{name}")
