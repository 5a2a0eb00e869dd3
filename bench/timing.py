"""Interleaved timing: contenders take turns in short blocks, so that a slow minute of the machine hits all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Group", "Row", "Target", "Timing", "interleave"]

WARM_SECONDS = 0.2  # long enough for thread pools, allocators and background compilation to settle
PARK_SECONDS = 0.005  # idle time before a block: worker threads of the peer that ran last stop spinning


@dataclass(frozen=True)
class Timing:
    """Seconds a call: median, least and most over the blocks, how many blocks, and calls in each."""

    median: float
    least: float
    most: float
    blocks: int
    calls: int


@dataclass(frozen=True)
class Target:
    """What was asked for: `contender` under `limit` seconds, or under `limit` times `against`."""

    contender: str
    limit: float
    against: str | None = None

    def verdict(self, times: Mapping[str, Timing]) -> str | None:
        """A sentence that says whether it was met, or None if something it needs was not measured."""
        if self.contender not in times or (self.against and self.against not in times):
            return None
        measured = times[self.contender].median
        if self.against is None:
            met = "met" if measured < self.limit else "MISSED"
            return f"{self.contender} under {self.limit * 1e6:g} us: {met} ({measured * 1e6:.2f} us)"
        ratio = measured / times[self.against].median
        met = "met" if ratio <= self.limit else "MISSED"
        return f"{self.contender} at most {self.limit:g} times {self.against}: {met} ({ratio:.2f})"


@dataclass
class Row:
    """One line of a table: what was measured, by whom, and how fast; `moved` is the bytes it must move, `work` its flops."""

    label: str
    times: dict[str, Timing]
    moved: int | None = None
    target: Target | None = None


@dataclass
class Group:
    """A table: its rows, the contender that ratios refer to, and remarks to print below."""

    name: str
    title: str
    base: str
    threads: int
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Group:
        rows = [
            Row(
                r["label"],
                {k: Timing(**t) for k, t in r["times"].items()},
                r["moved"],
                Target(**r["target"]) if r["target"] else None,
            )
            for r in data["rows"]
        ]
        return Group(**{**data, "rows": rows})


def _block(f: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - start) / calls


def _warm(f: Callable[[], Any], block: float) -> int:
    """Call f until it is warm; how many calls make a block of about that many seconds."""
    f()
    calls, start, single = 0, time.perf_counter(), 0.0
    while calls < 2 or time.perf_counter() - start < WARM_SECONDS:
        single = _block(f, 1)
        calls += 1
    single = min(single, _block(f, 3))
    return max(1, round(block / single))


def interleave(contenders: Mapping[str, Callable[[], Any]], repeat: int = 9, block: float = 0.02) -> dict[str, Timing]:
    """Time each contender in `repeat` blocks of about `block` seconds, taking turns.

    Each block follows a short sleep and one call that is not timed. The order rotates: nobody always follows the same peer.
    Contenders return only when their result is there (peers with asynchronous dispatch must block on it).
    """
    names = list(contenders)
    calls = {name: _warm(contenders[name], block) for name in names}
    samples: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(repeat):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                f = contenders[name]
                time.sleep(PARK_SECONDS)
                f()
                samples[name].append(_block(f, calls[name]))
            gc.collect(1)
    finally:
        if enabled:
            gc.enable()
    return {name: Timing(statistics.median(s), min(s), max(s), len(s), calls[name]) for name, s in samples.items()}
