"""The order of tasks: after what they need, and, where arrays are updated in place, after those who read the old ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxgrad.compile.updates import settle
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Var

if TYPE_CHECKING:
    from fxgrad.compile.analysis import Analysis
    from fxgrad.compile.fuse import Task
    from fxgrad.compile.lower import Step

__all__ = ["finished_early", "reads_of", "schedule", "schedule_in_place"]

SMALL = 1 << 12  # bytes that may wait from the beginning


def reads_of(a: Analysis, eqns: Sequence[Eqn]) -> dict[Var, None]:
    """Stored arrays the equations read."""
    made = {v for e in eqns for v in e.outputs}
    views = a.views
    roots: dict[Var, None] = {}
    for e in eqns:
        for x in e.inputs:
            if type(x) is Var and x not in made:
                root = views[x][0] if x in views else x
                if type(root) is Var and root not in made:
                    roots[root] = None
    return roots


def schedule(a: Analysis, tasks: list[Task]) -> list[Task]:
    """Dependencies first, otherwise in program order."""
    return _ordered(a, tasks, {})


def schedule_in_place(a: Analysis, tasks: list[Task], kept: set[Var], given: Sequence[Var] = ()) -> list[Task]:
    """The same; who reads an array that is then updated comes before, and an update for which that cannot be makes a copy.

    `kept` are arrays that last to the end, `given` inputs whose memory the program may use.
    """
    made = {*given, *(v for t in tasks if t.kind != "host" for v in t.stored)} - kept
    made -= {v for t in tasks if t.kind == "host" for v in reads_of(a, t.eqns) if v in given}
    readers: dict[Var, list[int]] = {}
    for n, t in enumerate(tasks):
        for v in t.reads(a):
            readers.setdefault(v, []).append(n)
    waits: dict[int, set[int]] = {}
    for n, t in enumerate(tasks):
        taken: set[Atom] = set()
        for u in reversed(t.updates):
            if u.whole and u.base in made and u.base not in taken:
                u.over = True
                taken.add(u.base)
        if t.kind != "tape":
            settle(a, t)
        for u in t.updates:
            if u.over:
                assert type(u.base) is Var
                waits.setdefault(n, set()).update(m for m in readers[u.base] if m != n)
    return _ordered(a, tasks, waits)


def _ordered(a: Analysis, tasks: list[Task], waits: dict[int, set[int]]) -> list[Task]:
    """Tasks after those they need, and after those they should wait for; if that would be a circle, one no longer does."""
    maker = {v: n for n, t in enumerate(tasks) for v in t.stored}
    needs = [{maker[v] for v in t.reads(a) if v in maker} - {n} for n, t in enumerate(tasks)]
    before = [needs[n] | waits[n] if n in waits else needs[n] for n in range(len(tasks))]
    waiting = [len(b) for b in before]
    followers: list[list[int]] = [[] for _ in tasks]
    for n, b in enumerate(before):
        for m in b:
            followers[m].append(n)
    ready = [(t.order, n) for n, t in enumerate(tasks) if not waiting[n]]
    heapq.heapify(ready)
    patient = sorted(waits, key=lambda n: (tasks[n].order, n))
    done: set[int] = set()
    out: list[Task] = []
    while len(out) < len(tasks):
        if not ready:
            stuck = next((n for n in patient if n not in done and needs[n] <= done), None)
            if stuck is None:
                raise AssertionError("fusion made a cycle")
            for u in tasks[stuck].updates:
                u.over = u.aside = False
            patient.remove(stuck)
            waiting[stuck] = 0
            ready.append((tasks[stuck].order, stuck))
        _, n = heapq.heappop(ready)
        done.add(n)
        out.append(tasks[n])
        for m in followers[n]:
            waiting[m] -= 1
            if not waiting[m]:
                heapq.heappush(ready, (tasks[m].order, m))
    return out


def finished_early(
    steps: Sequence[Step], results: set[Var], inputs: Sequence[Var], given: set[Var], pieces: set[Var]
) -> list[Step]:
    """The steps, with those that only make results moved to where they can first run: they need no work space, and end some.

    So an optimizer updates a parameter as soon as its gradient is there, which then need not wait for all others. A step that
    reads a `given` input runs after all else that does: its result can take that one's memory. What such steps need besides, and
    is small and known from the inputs (a learning rate), comes first. Whoever has to do with values that several steps write,
    in `pieces`, stays where it is.
    """

    def movable(s: Step) -> bool:
        fixed = s.in_place or s.scratch or s.checked or any(launch.over for launch in s.launches)
        return s.kind == "kernel" and not fixed and pieces.isdisjoint([*s.reads, *s.writes])

    def only_finishes(s: Step) -> bool:
        return movable(s) and bool(s.writes) and results.issuperset(s.writes) and not set(inputs).issuperset(s.reads)

    made = {v: i for i, s in enumerate(steps) for v in s.writes}
    ending = [only_finishes(s) for s in steps]
    known, ahead = set(inputs), [False] * len(steps)
    for i, s in enumerate(steps):
        ahead[i] = movable(s) and s.bytes_written <= SMALL and known.issuperset(s.reads)
        known.update(s.writes if ahead[i] else ())
    wanted: set[Var] = set()
    for i in reversed(range(len(steps))):
        ahead[i] = ahead[i] and not wanted.isdisjoint(steps[i].writes)
        wanted.update(steps[i].reads if ahead[i] or ending[i] else ())
    ending = [e and not first for e, first in zip(ending, ahead, strict=True)]
    last = {v: i for i, s in enumerate(steps) if not ending[i] for v in s.reads if v in given}
    place = [-1 if first else i for i, first in enumerate(ahead)]
    for i, s in enumerate(steps):
        if ending[i]:
            place[i] = min(i, max(max(place[made[v]] if v in made else -1, last.get(v, -1)) for v in s.reads))
    return [steps[i] for i in sorted(range(len(steps)), key=lambda i: (place[i], ending[i], i))]
