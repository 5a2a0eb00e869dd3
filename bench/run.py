"""One run of a case in its process: settings, peers, and the way from contenders to a row of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.limits import Limits, measured_limits
from bench.peers import Peers, difference
from bench.timing import Group, Row, Target, exact, interleave

__all__ = ["BANDWIDTH", "MATMUL", "Run", "WrongResult"]

# Columns that are no contender but the time the machine itself would need.
BANDWIDTH, MATMUL = "limit of bandwidth", "limit of matmul"


class WrongResult(AssertionError):
    """Contenders of one row do not compute the same."""


@dataclass
class Run:
    """Blocks of each contender, threads of all of them, and whether sizes are cut down to see that everything runs."""

    repeat: int
    threads: int
    tiny: bool = False
    peers: Peers = field(init=False)

    def __post_init__(self) -> None:
        self.peers = Peers(self.threads)

    def size(self, full: Any, tiny: Any) -> Any:
        return tiny if self.tiny else full

    def group(self, name: str, title: str, base: str, **more: Any) -> Group:
        return Group(name, title, base, self.threads, **more)

    def limits(self, group: Group) -> Limits:
        """The machine's limits, measured now and kept with the table."""
        found = measured_limits(self.threads)
        group.limits = {"triad": found.triad, "read": found.read, **{f"matmul {k}": v for k, v in found.matmul.items()}}
        return found

    def row(
        self,
        group: Group,
        label: str,
        contenders: Mapping[str, Callable[[], Any]],
        tolerance: float,
        targets: Sequence[Target] = (),
        *,
        limits: Mapping[str, float] | None = None,
        moved: int | None = None,
        work: int | None = None,
        block: float = 0.02,
    ) -> Row:
        """Compare the results, time, and append to the table; `limits` are columns of seconds that were not sampled."""
        times = interleave(self.agreed(label, contenders, tolerance), self.repeat, block, *self.size((), (0.0,)))
        times |= {name: exact(seconds) for name, seconds in (limits or {}).items()}
        row = Row(label, times, list(targets), moved, work)
        self.add(group, row)
        return row

    def add(self, group: Group, row: Row) -> None:
        """Append to the table and tell."""
        group.rows.append(row)
        base = row.times.get(group.base)
        others = [] if base is None else [f"{k} {base.median / t.median:.2f}" for k, t in row.times.items() if k != group.base]
        ratios = f": {group.base} / {', '.join(others)}" if others else ""
        print(f"  {time.strftime('%H:%M:%S')} {row.label}{ratios}", flush=True)

    def agreed(self, label: str, contenders: Mapping[str, Callable[[], Any]], tolerance: float) -> dict[str, Callable[[], Any]]:
        """Those that run; WrongResult if their results differ by more than the tolerance, relative to the largest element."""
        results: dict[str, Any] = {}
        for name, f in contenders.items():
            try:
                results[name] = f()
            except RuntimeError as error:  # what torch.compile raises when its compiler fails
                if name.startswith("fxgrad"):
                    raise
                self.peers.notes.append(f"{label}: {name} is left out, it raised {type(error).__name__}.")
        first, reference = next(iter(results.items()))
        for name, result in results.items():
            off = difference(result, reference)
            if not off <= tolerance:
                raise WrongResult(f"{label}: {name} and {first} differ by {off:.1e}, more than {tolerance:g}")
        return {name: contenders[name] for name in results}
