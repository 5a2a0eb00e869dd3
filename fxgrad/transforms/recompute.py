"""What to keep and what to compute again: equations whose results are needed long after, within a number of bytes, at least cost.

The equations are cut into *segments*, at places that few values cross; those are kept. In a segment, keeping a value costs its
bytes times a price, computing it again costs the work of its equation and needs its operands, kept or computed again in turn:
the cheapest way is a minimum cut (a closure problem: Picard, 1976; as in Lagrangian relaxation, every price gives a best way for
the bytes it uses). Of each segment's ways one is chosen, by the most work saved for a byte. How long segments are decides what is
alive at one time while they are computed again, one after the other, backwards (Chen et al., 2016); many lengths are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Var
from fxgrad.transforms.cut import Network

__all__ = ["Choice", "Graph"]

_PRICES = 24  # powers of two, from 1 / _UNIT
_UNIT = 32
_NEVER = 1 << 80
_LONGEST = 1500  # equations of a segment, where there are shorter ones: what a cut costs grows faster than its segment
_LENGTHS = 24  # of segments, each 1 / sqrt(2) of the one before


class _Way(NamedTuple):
    """One way to treat a segment: equations that are run again (by position), bytes kept, work, bytes that come again at once."""

    again: tuple[int, ...]
    kept: int
    cost: int
    transient: int


class Choice(NamedTuple):
    """What is computed again: positions of equations; the ends of the segments; those where it takes work (views take none).

    And its work; bytes at one time, estimated.
    """

    again: frozenset[int]
    ends: tuple[int, ...]
    working: frozenset[int]
    cost: int
    bytes: int


class Graph:
    """Equations in order and the values of theirs that are `needed` later.

    Args:
        eqns: the equations.
        needed: values they make that are read later.
        free: values that are kept in any case.
        cost: the work of each equation; None: it cannot be run again.
        size: bytes of a value.
        root: what a view is a view of; other values are not in it.
    """

    def __init__(
        self, eqns: Sequence[Eqn], needed: Sequence[Var], free: set[Var], cost: Sequence[int | None],
        size: Callable[[Var], int], root: dict[Var, Var],
    ):  # fmt: skip
        self.eqns, self.cost, self.size, self.root = eqns, cost, size, root
        self.maker = {v: i for i, e in enumerate(eqns) for v in e.outputs}
        self.needed = list(dict.fromkeys(v for v in needed if v in self.maker))
        self.free, self.wanted = free, set(self.needed)
        self.reads = [[a for a in dict.fromkeys(e.inputs) if type(a) is Var and a in self.maker] for e in eqns]
        self.last = {v: i for i, reads in enumerate(self.reads) for v in map(self.whole, reads)}  # where a value is read last
        self.stored = list(dict.fromkeys(v for v in map(self.whole, self.needed) if v in self.maker and v not in free))
        self.bytes = sum(map(size, self.stored))
        self._ways: dict[Any, list[_Way]] = {}
        self._divisions: list[tuple[int, ...]] | None = None
        self._options: dict[tuple[int, ...], _Segments] = {}

    def whole(self, v: Var) -> Var:
        """The value that has the memory."""
        return self.root.get(v, v)

    # -- segments

    def divisions(self) -> list[tuple[int, ...]]:
        """Ends of segments, from one segment to many."""
        if self._divisions is None:
            crossing = self._crossing()
            made = np.zeros(len(self.eqns), np.int64)
            for v in self.stored:
                made[self.maker[v]] += self.size(v)
            found: dict[tuple[int, ...], None] = {(len(self.eqns),): None}
            for k in range(4, _LENGTHS):  # two or three segments are dear to solve, and seldom chosen
                ends = self._division(self.bytes / 2 ** (k / 2), crossing, made)
                found[ends] = None
                if len(ends) > len(self.eqns) // 4:
                    break
            longest = {ends: max(b - a for a, b in pairwise((0, *ends))) for ends in found}
            least = min(longest.values())
            self._divisions = [ends for ends in found if longest[ends] <= max(least, _LONGEST)]
        return self._divisions

    def _crossing(self) -> np.ndarray:
        """For each position, bytes of values made up to there and read after it, by these equations."""
        change = np.zeros(len(self.eqns) + 1, np.int64)
        for v, last in self.last.items():
            if v in self.maker and v not in self.free and last > self.maker[v]:
                change[self.maker[v]] += self.size(v)
                change[last] -= self.size(v)
        return np.cumsum(change)[:-1]

    def _division(self, length: float, crossing: np.ndarray, made: np.ndarray) -> tuple[int, ...]:
        """Segments with about so many needed bytes each, cut where little crosses."""
        total, first = np.cumsum(made), 0
        ends: list[int] = []
        while True:
            start = int(total[first - 1]) if first else 0
            low, high = (int(np.searchsorted(total, start + part * length)) for part in (0.5, 1.0))
            if high >= len(total) - 1:
                return (*ends, len(self.eqns))
            low = max(low, first)
            window = crossing[low : max(high, low) + 1]
            least = np.flatnonzero(window == window.min())[-1]
            first = low + int(least) + 1
            ends.append(first)

    # -- choosing

    def choice(self, most: int, transient: bool = True) -> Choice | None:
        """The cheapest way within so many bytes; None if there is none. `transient`: whether what comes again counts as well."""
        found = [c for ends in self.divisions() if (c := self._segments(ends).choice(most, transient)) is not None]
        return min(found, key=lambda c: (c.cost, c.bytes, len(c.ends)), default=None)

    def least(self) -> list[Choice]:
        """For every division the way that takes the fewest bytes, in order of the bytes."""
        return sorted((self._segments(ends).least() for ends in self.divisions()), key=lambda c: (c.bytes, c.cost))

    def within(self, work: int) -> list[Choice]:
        """For every division the way that takes the fewest bytes for so much work, in order of the bytes."""
        return sorted((self._segments(ends).within(work) for ends in self.divisions()), key=lambda c: (c.bytes, c.cost))

    def _segments(self, ends: tuple[int, ...]) -> _Segments:
        if ends not in self._options:
            self._options[ends] = _Segments(self, ends)
        return self._options[ends]

    def kept(self, again: set[int] | frozenset[int]) -> list[Var]:
        """The values that must be there later if these equations are run again."""
        read = [*self.needed, *(v for i in sorted(again) for v in self.reads[i])]
        return [v for v in dict.fromkeys(read) if self.maker[v] not in again]

    # -- one segment

    def ways(self, first: int, last: int, crossing: set[Var]) -> list[_Way]:
        """The ways to treat the equations from first to last - 1, the fewest bytes first, each more work saved for a byte."""
        signature = self._signature(first, last, crossing)
        found = self._ways.get(signature)
        if found is None:
            found = self._ways[signature] = self._all_ways(first, last, crossing)
        return [w._replace(again=tuple(i + first for i in w.again)) for w in found]

    def _signature(self, first: int, last: int, crossing: set[Var]) -> tuple:
        number = {v: k for k, v in enumerate(v for e in self.eqns[first:last] for v in e.outputs)}
        row: list[Any] = []
        for i in range(first, last):
            row += [self.cost[i], *[number.get(v, -1) for v in self.reads[i]], None]
            for v in self.eqns[i].outputs:
                row += [self.size(v), number.get(self.whole(v), -1), v in self.wanted, self.whole(v) in crossing]
        return tuple(row)

    def _needed_in(self, first: int, last: int) -> list[Var]:
        return [v for i in range(first, last) for v in self.eqns[i].outputs if v in self.wanted]

    def _all_ways(self, first: int, last: int, crossing: set[Var]) -> list[_Way]:
        needed = self._needed_in(first, last)
        found: dict[int, _Way] = {}

        def at(price: int) -> _Way:
            if price not in found:
                found[price] = self._way(first, last, needed, crossing, price)
            return found[price]

        def between(low: int, high: int) -> None:
            if at(low) != at(high) and high - low > 1:
                middle = (low + high) // 2
                between(low, middle)
                between(middle, high)

        between(0, _PRICES)
        return _hull([at(p) for p in sorted(found, reverse=True)])

    def _way(self, first: int, last: int, needed: Sequence[Var], crossing: set[Var], price: int) -> _Way:
        """The cheapest way at 2**price / _UNIT of work a byte (nothing at the lowest price)."""
        nodes: dict[Any, int] = {}

        def node(x: Any) -> int:
            return nodes.setdefault(x, len(nodes) + 2)

        edges = [(0, node(v), _NEVER) for v in needed]
        stack = list(needed)
        seen: set[Any] = set(stack)
        while stack:
            v = stack.pop()
            i = self.maker[v]
            free = self.whole(v) in crossing
            keep = 0 if free else _NEVER if v in self.root else self.size(v) << price if price else 0
            edges.append((node(v), node(i), keep))
            if i in seen:
                continue
            seen.add(i)
            cost = self.cost[i]
            edges.append((node(i), 1, _NEVER if cost is None else cost * _UNIT))
            for u in self.reads[i]:
                if self.maker[u] >= first:
                    edges.append((node(i), node(u), _NEVER))
                    if u not in seen:
                        seen.add(u)
                        stack.append(u)
        network = Network(len(nodes) + 2)
        for a, b, capacity in edges:
            network.add(a, b, capacity)
        side = network.cut(0, 1)
        again = {i for i in range(first, last) if i in nodes and side[nodes[i]]}
        return self._measured(first, needed, crossing, again)

    def _measured(self, first: int, needed: Sequence[Var], crossing: set[Var], again: set[int]) -> _Way:
        read = [*needed, *(v for i in again for v in self.reads[i] if self.maker[v] >= first)]
        kept = {self.whole(v) for v in read if self.maker[v] not in again}
        kept = {v for v in kept if v not in crossing and v in self.maker and v not in self.free}
        back = {w for v in needed if self.maker.get(w := self.whole(v), -1) in again}
        cost = sum(self.cost[i] or 0 for i in again)
        return _Way(tuple(sorted(i - first for i in again)), sum(map(self.size, kept)), cost, sum(map(self.size, back)))


def _hull(ways: Sequence[_Way]) -> list[_Way]:
    """Those no mixture of others beats: with more bytes less work, and less and less of it for a byte."""
    out: list[_Way] = []
    for w in sorted(set(ways), key=lambda w: (w.kept, w.cost, w.transient)):
        if out and w.cost >= out[-1].cost:
            continue
        while len(out) > 1:
            a, b = out[-2:]
            if (a.cost - b.cost) * (w.kept - b.kept) > (b.cost - w.cost) * (b.kept - a.kept):
                break
            out.pop()
        out.append(w)
    return out


class _Segments:
    """A division of a graph, with the ways to treat each segment."""

    def __init__(self, graph: Graph, ends: tuple[int, ...]):
        self.graph, self.ends = graph, ends
        starts = [0, *ends[:-1]]
        segment = np.repeat(np.arange(len(ends)), np.diff([0, *ends]))
        crossing = set(graph.free)
        base = [0] * len(ends)  # bytes of each segment that later ones read
        for v, last in graph.last.items():
            i = graph.maker.get(v)
            if i is not None and segment[last] > segment[i] and v not in graph.free:
                crossing.add(v)
                base[segment[i]] += graph.size(v)
        self.ways = [graph.ways(a, b, crossing) for a, b in zip(starts, ends, strict=True)]
        self.base = np.cumsum(base)

    def least(self) -> Choice:
        """The fewest bytes: of every segment the way with the fewest, what comes again counted or not."""
        lowest = [min(ways, key=lambda w: (w.kept, w.transient)) for ways in self.ways]
        return self._made(lowest, True)

    def choice(self, most: int, transient: bool) -> Choice | None:
        ways = self.ways
        chosen = [0] * len(ways)
        kept = np.array([w[0].kept for w in ways], np.int64)
        back = np.array([w[0].transient * transient for w in ways], np.int64)
        if self._bytes(kept, back) > most:
            return None
        moves = [(-_worth(w, 0), -s, 0) for s, w in enumerate(ways) if len(w) > 1]
        heapify(moves)
        while moves:
            _, s, k = heappop(moves)
            s, new = -s, ways[-s][k + 1]
            old = kept[s], back[s]
            kept[s], back[s] = new.kept, new.transient * transient
            if self._bytes(kept, back) > most:
                kept[s], back[s] = old
                continue
            chosen[s] = k + 1
            if k + 2 < len(ways[s]):
                heappush(moves, (-_worth(ways[s], k + 1), -s, k + 1))
        return self._made([w[k] for w, k in zip(ways, chosen, strict=True)], transient)

    def within(self, work: int) -> Choice:
        """The fewest bytes for so much work, what comes again not counted: what saves most work for a byte is kept first."""
        chosen, cost = [0] * len(self.ways), sum(w[0].cost for w in self.ways)
        moves = sorted((-_worth(w, k), s, k) for s, w in enumerate(self.ways) for k in range(len(w) - 1))
        for _, s, k in moves:
            if cost <= work:
                break
            cost += self.ways[s][k + 1].cost - self.ways[s][k].cost
            chosen[s] = k + 1
        return self._made([w[k] for w, k in zip(self.ways, chosen, strict=True)], False)

    def _bytes(self, kept: np.ndarray, back: np.ndarray) -> int:
        """The most at one time: all that is kept, or what is kept up to a segment while that comes again."""
        return int((np.cumsum(kept) + self.base + back).max(initial=int(kept.sum() + self.base[-1])))

    def _made(self, ways: Sequence[_Way], transient: bool) -> Choice:
        kept = np.array([w.kept for w in ways], np.int64)
        back = np.array([w.transient * transient for w in ways], np.int64)
        again = frozenset(i for w in ways for i in w.again)
        working = frozenset(s for s, w in enumerate(ways) if w.cost)
        return Choice(again, self.ends, working, sum(w.cost for w in ways), self._bytes(kept, back))


def _worth(ways: Sequence[_Way], k: int) -> float:
    """Work saved for a byte by the next way."""
    return (ways[k].cost - ways[k + 1].cost) / max(1, ways[k + 1].kept - ways[k].kept)
