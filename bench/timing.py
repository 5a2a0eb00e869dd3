"""Interleaved timing: contenders take turns in short blocks, so that a slow minute of the machine hits all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Group", "Row", "Target", "Timing", "exact", "interleave", "park", "summary"]

WARM_SECONDS = 0.2  # long enough for thread pools, allocators and background compilation to settle
PARK_SECONDS = 0.005
LONG_CALL = 0.1  # seconds: what the first call after a pause costs more than the next does not show in it
PARK_LIMIT = 0.5  # threads that still spin after this never stop


@dataclass(frozen=True)
class Timing:
    """Seconds a call (or another quantity): median, least and most over the blocks, how many blocks, and calls in each."""

    median: float
    least: float
    most: float
    blocks: int
    calls: int


@dataclass(frozen=True)
class Target:
    """What was asked for of `contender`, in comparison with the best of `against`.

    kind "ratio": at most `limit` times as much; "share": `against`, a limit of the machine, is at least `limit` of it; "most": at
    most `limit` seconds, with nothing to compare. `work` names it in the summary, where rows of one name share a line.
    """

    work: str
    contender: str
    limit: float
    against: tuple[str, ...] = ()
    kind: str = "ratio"

    def measured(self, times: Mapping[str, Timing]) -> float | None:
        """The ratio, difference or share, or None if something it needs was not measured."""
        found = [times[name].median for name in self.against if name in times]
        if self.contender not in times or (self.against and not found):
            return None
        mine = times[self.contender].median
        if self.kind == "most":
            return mine
        return min(found) / mine if self.kind == "share" else mine / min(found)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.kind == "share" else value <= self.limit

    def excess(self, value: float) -> float:
        """How far on the wrong side of the limit, in units of the limit; negative if met with something to spare."""
        return 1 - value / self.limit if self.kind == "share" else value / self.limit - 1

    def shown(self, value: float) -> str:
        return f"{value * 1e3:.3g} ms" if self.kind == "most" else f"{value:.2f}"

    def asked(self) -> str:
        """`<= 0.6 of the best of jax jit, torch compiled`."""
        if self.kind == "most":
            return f"<= {self.shown(self.limit)}"
        best = self.against[0] if len(self.against) == 1 else f"the best of {', '.join(self.against)}"
        return f"{'>=' if self.kind == 'share' else '<='} {self.limit:g} of {best}"

    def verdict(self, times: Mapping[str, Timing]) -> str | None:
        """`fxgrad jit <= 0.4 of jax jit: met (0.31)`, or None if something it needs was not measured."""
        value = self.measured(times)
        if value is None:
            return None
        outcome = "met" if self.met(value) else f"MISSED by {self.excess(value):.0%}"
        return f"{self.contender} {self.asked()}: {outcome} ({self.shown(value)})"


@dataclass
class Row:
    """One line of a table: what was measured and by whom; `moved` is the bytes it must move, `work` its flops."""

    label: str
    times: dict[str, Timing]
    targets: list[Target] = field(default_factory=list)
    moved: int | None = None
    work: int | None = None


@dataclass
class Group:
    """A table: its rows, the contender that ratios refer to, and remarks to print below.

    `unit` is of all figures in it ("s", "B", "B/s", "flop/s"); `limits` are the machine's, in B/s ("triad", "read") and flop/s
    ("matmul float32"), measured in the same process. `order` is its place on the page.
    """

    name: str
    title: str
    base: str
    threads: int
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    unit: str = "s"
    sampled: str = "interleaved blocks"
    order: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Group:
        rows = []
        for r in data["rows"]:
            targets = [Target(**{**t, "against": tuple(t["against"])}) for t in r["targets"]]
            times = {name: Timing(**t) for name, t in r["times"].items()}
            rows.append(Row(**{**r, "times": times, "targets": targets}))
        return Group(**{**data, "rows": rows})


def summary(samples: Sequence[float], calls: int = 1) -> Timing:
    return Timing(statistics.median(samples), min(samples), max(samples), len(samples), calls)


def exact(value: float) -> Timing:
    """A figure that was derived, not sampled."""
    return Timing(value, value, value, 0, 0)


def park() -> None:
    """Sleep until no thread of the process runs any more.

    Teams of OpenMP and OpenBLAS spin after their last work (measured: 20 and 100 ms) and would take a core from whoever is timed
    next.
    """
    end = time.perf_counter() + PARK_LIMIT
    while time.perf_counter() < end:
        start = time.process_time()
        time.sleep(PARK_SECONDS)
        if time.process_time() - start < PARK_SECONDS / 10:
            return


def _block(f: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - start) / calls


def _warm(f: Callable[[], Any], block: float, warm: float) -> tuple[int, bool]:
    """Call f until it is warm; how many calls make a block of about that many seconds, and whether one call is long."""
    park()
    f()
    calls, start, single = 0, time.perf_counter(), 0.0
    while calls < 2 or time.perf_counter() - start < warm:
        single = _block(f, 1)
        calls += 1
    if single < block:
        single = min(single, _block(f, 3))
    return max(1, round(block / single)), single > LONG_CALL


def interleave(
    contenders: Mapping[str, Callable[[], Any]], repeat: int = 9, block: float = 0.02, warm: float = WARM_SECONDS
) -> dict[str, Timing]:
    """Time each contender in `repeat` blocks of about `block` seconds, taking turns.

    Each block follows a pause, until nobody's threads spin any more, and one call that is not timed (unless it is long). The
    order rotates: nobody always follows the same peer. Contenders return only when their result is there (asynchronous ones
    must block on it).
    """
    names = list(contenders)
    warmed = {name: _warm(contenders[name], block, warm) for name in names}
    samples: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(repeat):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                f = contenders[name]
                calls, long = warmed[name]
                park()
                if not long:
                    f()
                samples[name].append(_block(f, calls))
            gc.collect(1)
    finally:
        if enabled:
            gc.enable()
    return {name: summary(s, warmed[name][0]) for name, s in samples.items()}
