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

__all__ = ["reads_of", "schedule", "schedule_in_place"]


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
        for v in reads_of(a, t.all_eqns):
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
    needs = [{maker[v] for v in reads_of(a, t.all_eqns) if v in maker} - {n} for n, t in enumerate(tasks)]
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
