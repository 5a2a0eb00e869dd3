"""Row kernels found: tasks over one space of rows that feed each other become one, which reads a row once.

A task takes part if it maps over whole rows, reduces them, or maps over what a row has one value of. Two that feed each other, or
that reduce the same array, are merged when all that one reads of the other lies in the row (or is the row's value) it is at, and
when no other task would have to run between them. Rows too long for the cache are merged only if that needs no second pass.
Of what is left, maps that feed each other are merged as well, if that spares reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.fuse import MAX_OPS, Task
from fxgrad.compile.gathers import gather_in_rows
from fxgrad.compile.layout import Layout
from fxgrad.compile.passes import Rows, RowSpace
from fxgrad.ir.types import Var

__all__ = ["merge_rows"]

Ints = tuple[int, ...]

MAX_ROW_OPS = 160
MAX_ROW_READS = 24
_SHORTEST = 16  # elements of a row: shorter ones leave vectors empty, and do better apart
_KEPT = 192 * 1024  # bytes of kept values of a row, which are on the stack
_CACHED = 1024 * 1024  # bytes of a row, all arrays together: in a second-level cache, or the passes go to memory
_CACHED_COLUMNS = 32 * 1024  # elements of an array whose columns are walked more than once, or stored on the way
_SEARCH = 256  # tasks looked at for a path between two


class _Merger:
    """Clusters of tasks, by union-find over their positions: first over rows, then, of what is left, over columns."""

    def __init__(self, a: Analysis, tasks: Sequence[Task], long: set[tuple[bool, int]]):
        self.a, self.tasks, self.long = a, tasks, long
        self.parent = list(range(len(tasks)))
        self.members: list[list[int]] = [[n] for n in range(len(tasks))]
        self.merged: set[int] = set()  # clusters of several
        self.spaces: list[RowSpace | None] = [None] * len(tasks)  # of each cluster with a reduction
        self.reads = [t.reads(a) for t in tasks]
        self.maker = {v: n for n, t in enumerate(tasks) for v in t.stored}
        self.before = [{self.maker[v] for v in r if v in self.maker} for r in self.reads]
        # of each cluster: the clusters it needs (some by an older name), its operations, what it reads
        self.needs = list(self.before)
        self.merges, self.known = 0, [0] * len(tasks)  # how many there were, now and when `needs` was last brought up to date
        self.ops = [len(t.all_eqns) for t in tasks]
        self.epochs = [max([a.epochs[a.producer[v]] for v in t.stored], default=0) for t in tasks]
        self.arrays = [set(r) for r in self.reads]
        self.refused: set[tuple[int, int]] = set()
        self.fits: dict[Any, bool] = {}  # of a task and a space
        self.meets: dict[Any, bool] = {}  # of a task, one that it reads, and a space
        self.views = [self._views_of(t) for t in tasks]

    def _views_of(self, t: Task) -> dict[int, list[tuple[Var, Layout, Ints]]]:
        """What a task reads of each other one: arrays, how they lie, and the shape of the operation."""
        found: dict[int, list[tuple[Var, Layout, Ints]]] = {}
        for e in t.all_eqns:
            for x in e.inputs:
                root = self.a.root(x)
                if type(root) is Var and (q := self.maker.get(root)) is not None:
                    shape = (e.inputs if e.prim.kind == "reduce" else e.outputs)[0].aval.shape
                    found.setdefault(q, []).append((root, self.a.access(x)[1], shape))
        return found

    def find(self, n: int) -> int:
        while self.parent[n] != n:
            self.parent[n] = self.parent[self.parent[n]]
            n = self.parent[n]
        return n

    def run(self) -> list[list[int]]:
        """The members of every cluster, merged until nothing changes."""
        able = [t.kind in ("map", "reduce") and not (t.pieces or t.updates or t.joins) for t in self.tasks]
        spaces = [_space_of(self.a, t) for t in self.tasks]
        for columns in (False, True):
            for n, s in enumerate(spaces):
                if able[n] and s is not None and s.columns == columns:
                    self.spaces[n] = s
            while self._sweep(able):
                pass
            able = [x and len(self.members[self.find(n)]) == 1 for n, x in enumerate(able)]
        self._join_maps([able[n] and t.kind == "map" and bool(t.shape) and not t.gathers for n, t in enumerate(self.tasks)])
        return [m for n, m in enumerate(self.members) if self.parent[n] == n]

    def _join_maps(self, able: Sequence[bool]) -> None:
        """Merge each map with those it continues, if it reads all that they read: then they read it for nothing.

        So what a backward pass computes again of an activation is computed where the cotangent arrives.
        """
        for n in range(len(self.tasks)):
            for m in sorted(self.before[n]) if able[n] else ():
                p, c = self.find(m), self.find(n)
                if able[m] and p != c and self._continues(p, c) and not self._path(p, c) and not self._path(c, p):
                    self._unite(p, c)

    def _continues(self, p: int, n: int) -> bool:
        """Whether maps can be one kernel of which the second part takes from registers what the first makes."""
        shape = self.tasks[n].shape
        if self.tasks[p].shape != shape or self.epochs[p] != self.epochs[n] or self.ops[p] + self.ops[n] > MAX_OPS:
            return False
        made = {v for m in self.members[p] for v in self.tasks[m].stored}
        operands = [x for m in self.members[n] for e in self.tasks[m].eqns for x in e.inputs if type(x) is Var]
        taken = [x for x in operands if x in made or self.a.root(x) in made]
        return self.arrays[p] <= self.arrays[n] and all([x in made and x.aval.shape == shape for x in taken])

    def _sweep(self, able: Sequence[bool]) -> bool:
        """Try each task with those whose results it reads, and each reduction with one that reads the same array."""
        changed = False
        readers: dict[tuple[Var, int, int], int] = {}
        for n in range(len(self.tasks)):
            if not able[n]:
                continue
            partners = [p for p in sorted(self.before[n]) if able[p]]
            space = self.spaces[n] if self.tasks[n].kind == "reduce" else None
            if space is not None:
                shared = [v for v in self.reads[n] if v.aval.size > space.count]
                partners += [readers.setdefault((v, space.count, space.n), n) for v in shared]
            for p in partners:
                changed |= self._merge(self.find(p), self.find(n))
        return changed

    def _merge(self, p: int, n: int) -> bool:
        space = self.spaces[p] or self.spaces[n]
        if p == n or space is None or self.epochs[p] != self.epochs[n] or not self._same(space, self.spaces[n]):
            return False
        if (p, n) in self.refused:
            return False
        if not self._together(p, n, space):
            self.refused.add((p, n))  # what does not go together now never will; a path may vanish
            return False
        if self._path(p, n) or self._path(n, p):
            return False
        self._unite(p, n)
        self.spaces[p] = space
        return True

    def _unite(self, p: int, n: int) -> None:
        self.parent[n] = p
        self.merged.discard(n)
        self.merged.add(p)
        self.members[p] = sorted([*self.members[p], *self.members[n]])
        self.ops[p] += self.ops[n]
        self.needs[p] = self.needs[p] | self.needs[n]
        self.merges += 1
        self.arrays[p] |= self.arrays[n]

    def _together(self, p: int, n: int, space: RowSpace) -> bool:
        """Whether two clusters can be one kernel over the space, as far as they themselves are concerned."""
        if self.ops[p] + self.ops[n] > MAX_ROW_OPS or len(self.arrays[p] | self.arrays[n]) > MAX_ROW_READS:
            return False
        mine, other = self.members[p], self.members[n]
        for m in (*mine, *other):
            if not self._fits(m, space):
                return False
        for x, y in ((mine, other), (other, mine)):
            for m in x:
                views = self.views[m]
                for q in y:
                    if q in views and not self._meets(m, q, space):
                        return False
        return True

    def _fits(self, m: int, space: RowSpace) -> bool:
        key = (m, space.shape, space.axes)
        if key not in self.fits:
            self.fits[key] = _fits(self.a, self.tasks[m], space)
        return self.fits[key]

    def _same(self, x: RowSpace, y: RowSpace | None) -> bool:
        return y is None or (x.count, x.n) == (y.count, y.n)

    def _meets(self, m: int, q: int, space: RowSpace) -> bool:
        """Whether what task m reads of task q is in the row it is at."""
        key = (m, q, space.shape, space.axes)
        if key not in self.meets:
            self.meets[key] = self._meet(m, q, space)
        return self.meets[key]

    def _meet(self, m: int, q: int, space: RowSpace) -> bool:
        for root, layout, shape in self.views[m][q]:
            kind, of = space.kind(shape), space.kind(root.aval.shape)
            if of == "row" and kind == "full" and (space.columns, space.n) in self.long:
                return False
            if not space.aligned(layout, kind, root.aval.dtype.itemsize, of):
                return False
        return True

    def _needed(self, n: int) -> set[int]:
        """The clusters that a cluster needs."""
        if self.known[n] != self.merges:
            self.needs[n] = {self.find(m) for m in self.needs[n]} - {n}
            self.known[n] = self.merges
        return self.needs[n]

    def _path(self, start: int, end: int) -> bool:
        """Whether `end` needs a third task that needs `start` (or the search is too long to tell)."""
        floor = self._floor(self.members[start][0])
        stack = [q for q in self._needed(end) if q != start]
        seen = {end, *stack}
        while stack:
            needed = self._needed(stack.pop())
            if start in needed or len(seen) > _SEARCH:
                return True
            new = {q for q in needed - seen if self.members[q][-1] >= floor}
            seen |= new
            stack += new
        return False

    def _floor(self, n: int) -> int:
        """A position such that clusters before it need nothing from n on: tasks are in order, and no cluster lies across it."""
        while (lower := min([self.members[c][0] for c in self.merged if self.members[c][-1] >= n], default=n)) < n:
            n = lower
        return n


def _space_of(a: Analysis, t: Task) -> RowSpace | None:
    """The space of a reduction's rows, if they are long enough to gain from being one kernel with others."""
    if t.kind != "reduce" or t.reduce is None or t.reduce.inputs[0].aval.size == 0:
        return None
    space = a.row_space(t.shape, t.reduce.params["axes"])
    if not space.columns:
        return space if space.n >= _SHORTEST else None
    return space if space.shape[-1] >= _SHORTEST and space.n > 1 else None


def _fits(a: Analysis, t: Task, space: RowSpace) -> bool:
    """Whether every equation of a task is one of the space, and what it reads walks with the rows."""
    if t.reduce is not None:
        own = a.row_space(t.shape, t.reduce.params["axes"])
        if own.trailing != space.trailing or (own.count, own.n) != (space.count, space.n):
            return False
        if not own.trailing and (own.shape, own.axes) != (space.shape, space.axes):
            return False
    # where columns leave the cache, storing what they reduce costs more than to read it again
    kinds = ("full", "row") if not space.columns or space.count * space.n <= _CACHED_COLUMNS else ("row",)
    if any(space.kind(v.aval.shape) not in kinds for v in t.stored):
        return False
    made = {v for e in t.all_eqns for v in e.outputs}
    for e in t.all_eqns:
        kind = space.kind(e.inputs[0].aval.shape if e is t.reduce else e.outputs[0].aval.shape)
        if not kind:
            return False
        if e in t.gathers:
            if gather_in_rows(a, e, space, made.__contains__) is None:
                return False
            continue
        for x in e.inputs:
            if type(x) is Var and x not in made:
                root, layout = a.access(x)
                if type(root) is Var and space.walk(layout, kind if layout.shape else "scalar") is None:
                    return False
    return True


def _join(a: Analysis, tasks: Sequence[Task], space: RowSpace, needed: set[Var]) -> Task:
    """The tasks as one; `needed` are the values others read."""
    eqns = {e.outputs[0]: e for t in tasks for e in t.all_eqns}
    out = Task("row", space.shape, max(t.order for t in tasks))
    out.eqns = sorted(eqns.values(), key=lambda e: a.producer[e.outputs[0]])
    why = {v: w for t in tasks for v, w in zip(t.stored, t.why, strict=False)}
    stored = [v for v in why if v in needed]
    out.rows = Rows(a, out.eqns, stored, space, keep=not space.columns)
    out.stored = [*out.rows.full, *out.rows.ends]
    out.why = [why[v] for v in out.stored]
    return out


def _one_map(a: Analysis, tasks: Sequence[Task], needed: set[Var]) -> Task:
    """Map tasks over one shape as one."""
    out = Task("map", tasks[0].shape, max(t.order for t in tasks))
    eqns = {e.outputs[0]: e for t in tasks for e in t.eqns}
    out.eqns = sorted(eqns.values(), key=lambda e: a.producer[e.outputs[0]])
    why = {v: w for t in tasks for v, w in zip(t.stored, t.why, strict=False) if v in needed}
    out.stored, out.why = list(why), list(why.values())
    return out


def _leaves_cache(rows: Rows) -> bool:
    """Whether a second pass would find a row, or any of the columns, gone from cache: few columns at a time are slower still."""
    if not rows.space.columns:
        return rows.kept_bytes > _KEPT or rows.row_bytes > _CACHED
    return rows.space.count * rows.space.n > _CACHED_COLUMNS


def merge_rows(a: Analysis, tasks: list[Task], outputs: set[Var]) -> list[Task]:
    """The tasks, in an order in which they can run, with those merged that can share passes over rows."""
    long: set[tuple[bool, int]] = set()  # (whether columns, length)
    while True:
        found = _merged(a, tasks, outputs, long)
        too_long = {
            (t.rows.space.columns, t.rows.space.n)
            for t in found
            if t.rows is not None and t.rows.needs_cache and _leaves_cache(t.rows)
        }
        if too_long <= long:  # what needs two passes even so reduces dtypes of different lanes
            return found
        long |= too_long


def _merged(a: Analysis, tasks: list[Task], outputs: set[Var], long: set[tuple[bool, int]]) -> list[Task]:
    merger = _Merger(a, tasks, long)
    readers: dict[Var, set[int]] = {}
    clusters = merger.run()
    place = {m: c for c, members in enumerate(clusters) for m in members}
    for m, reads in enumerate(merger.reads):
        for v in reads:
            readers.setdefault(v, set()).add(place[m])
    out = []
    for c, members in enumerate(clusters):
        if len(members) == 1:
            out.append(tasks[members[0]])
            continue
        mine = [v for m in members for v in tasks[m].stored]
        needed = {v for v in mine if v in outputs or readers.get(v, set()) - {c}}
        joined = [tasks[m] for m in members]
        space = merger.spaces[members[0]]
        out.append(_one_map(a, joined, needed) if space is None else _join(a, joined, space, needed))
    return out
