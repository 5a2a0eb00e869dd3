"""Which operations share a kernel: a deterministic partition of a flat program into tasks.

Every map operation gets a *level*: how many trips to memory (reductions, host calls, views of computed values) lie before it.
Map operations of one level, shape and epoch (see `late.py`) that feed each other or read the same arrays form a group, which is
free of cycles by construction. Then, from the last operation to the first, each value's place is chosen: computed where it is
needed, if only one kernel needs it; computed again in each, if that moves fewer bytes than storing it; else stored by its group.
A reduction is a kernel of its own that computes what it reduces, when nobody else needs it. Scalars (rank 0) join any kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxgrad.compile.analysis import KERNELS, MAX_READS, Analysis
from fxgrad.compile.gathers import gather_in_rows
from fxgrad.compile.late import late
from fxgrad.compile.schedule import reads_of, schedule, schedule_in_place
from fxgrad.compile.updates import Update, chains
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Var

if TYPE_CHECKING:
    from fxgrad.compile.passes import Rows

__all__ = ["Task", "partition"]

MAX_OPS = 64
_MAX_CONE = 8
_MAX_EPILOGUE = 12
_WHY_ALONE = {
    "dot": "the result of a product",
    "control": "what a loop or branch computes",
    "indexed": "where it is, only the run tells",
}


class Task:
    """One step: a kernel (`map`, `reduce`, `row`, `scatter`), a product (`dot`, also of windows) or a `host` call.

    `eqns` are the operations in order, `stored` the variables written, `why` the reasons for storing them. A reduction has
    `reduce`, and `epilogue` operations on its result; a row kernel has its passes in `rows`.
    """

    def __init__(self, kind: str, shape: tuple[int, ...], order: int):
        self.kind, self.shape, self.order = kind, shape, order
        self.eqns: list[Eqn] = []
        self.stored: list[Var] = []
        self.reduce: Eqn | None = None
        self.epilogue: list[Eqn] = []
        self.rows: Rows | None = None
        self.updates: list[Update] = []  # those of the equations that write a region of an array
        self.gathers: list[Eqn] = []  # those that read at computed places
        self.pieces: list[Eqn] = []  # those of the equations whose results are taken from operands piece by piece
        self.why: list[str] = []
        self._reads: dict[Var, None] | None = None

    def reads(self, a: Analysis) -> dict[Var, None]:
        """Stored arrays it reads; to be asked for when its equations are settled."""
        if self._reads is None:
            self._reads = reads_of(a, self.all_eqns)
        return self._reads

    @property
    def joins(self) -> bool:
        """Whether it stores complex values, which takes two results of a kernel each."""
        return any(v.aval.dtype.kind == "c" for v in self.stored)

    @property
    def all_eqns(self) -> list[Eqn]:
        return [*self.eqns, *([self.reduce] if self.reduce else []), *self.epilogue]


def _groups(a: Analysis) -> dict[int, Any]:
    """A group key for each map equation: connected by direct use or by reading one array, at one level, shape and epoch."""
    parent: dict[int, int] = {}

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(i: int, j: int) -> None:
        i, j = find(i), find(j)
        parent[max(i, j)] = min(i, j)

    first: dict[Any, int] = {}
    parent.update({i: i for i, kind in enumerate(a.kinds) if kind in ("map", "update")})
    for i in parent:
        shape = a.space(i)
        place = (a.levels[i], shape, a.epochs[i])
        if shape == () and a.eqns[i].prim.name == "complex":  # two results: none of a list of scalar operations
            continue
        if shape == ():
            join(i, first.setdefault(place, i))
        if i in a.updates and (p := a.chained(i)) is not None and a.levels[p] == a.levels[i]:
            join(i, p)
        for p, leaf in a.operands(i):
            if p is not None:
                if (a.levels[p], a.space(p), a.epochs[p]) == place:
                    join(i, p)
            elif leaf is not None and leaf.aval.size > 1:
                join(i, first.setdefault((*place, leaf), i))
    roots = {i: find(i) for i in parent}
    sizes = Counter(roots.values())
    tapes = {r for i, r in roots.items() if i in a.updates and not a.space(i) and a.chained(i) is not None}
    tapes |= {r for r, n in sizes.items() if n > MAX_OPS and a.space(r) == ()}
    found = _chunked(a, {i: r for i, r in roots.items() if r not in tapes})
    return {i: found.get(i, ("tape", r, 0)) for i, r in roots.items()}


def _chunked(a: Analysis, root: dict[int, int]) -> dict[int, Any]:
    """Groups cut, in program order, where they grow too large for one kernel."""
    chunk: dict[int, int] = {}
    ops: dict[int, int] = {}
    leaves: dict[int, set[Var]] = {}
    out = {}
    for i, r in root.items():
        mine = {leaf for _, leaf in a.operands(i) if leaf is not None}
        if i in a.updates:
            mine.add(a.updates[i].home)
        if ops.setdefault(r, 0) >= MAX_OPS or len(leaves.setdefault(r, set()) | mine) > MAX_READS:
            chunk[r] = chunk.get(r, 0) + 1
            ops[r], leaves[r] = 0, set()
        ops[r] += 1
        leaves[r] |= mine
        out[i] = ("map", r, chunk.get(r, 0))
    return out


class Placement:
    """Chooses, from the last equation to the first, in which kernels each map value is computed and whether it is stored."""

    def __init__(self, a: Analysis, fusion: bool):
        self.a, self.fusion = a, fusion
        self.home = _groups(a) if fusion else {i: ("map", i, 0) for i, k in enumerate(a.kinds) if k in ("map", "update")}
        self.computed: dict[int, dict[Any, None]] = {}  # equation -> kernels, in order
        self.why: dict[int, str] = {}  # stored equations, and the reason
        self.ops: dict[Any, int] = {}
        self.reads: dict[Any, set[Var]] = {}
        self.outputs = {o for o in a.program.outputs if type(o) is Var}
        self.viewed = {root for o in self.outputs if type(root := self.a.root(o)) is Var}
        for i in range(len(a.eqns) - 1, -1, -1):
            if a.kinds[i] == "map":
                self._place(i)
            elif a.kinds[i] == "update":
                self._store(i, "updated in place")
            elif a.kinds[i] in ("reduce", "scatter"):
                self._note_reads(i, (a.kinds[i], i, 0))

    def _note_reads(self, i: int, kernel: Any) -> None:
        self.ops[kernel] = self.ops.get(kernel, 0) + 1
        known = self.reads.setdefault(kernel, set())
        known.update([leaf for _, leaf in self.a.operands(i) if leaf is not None])

    def _uses(self, i: int) -> tuple[dict[Any, None], str]:
        """Kernels that can take the value from a register, and why it must be stored, if it must."""
        a, v = self.a, self.a.eqns[i].outputs[0]
        needs: dict[Any, None] = {}
        why = "fusion is off" if not self.fusion else "output of the program" if v in self.viewed else ""
        for c in a.consumers[i]:
            kind = a.kinds[c]
            if kind in KERNELS and a.direct(v, c) is not None:
                needs.update({(kind, c, 0): None} if kind in ("reduce", "scatter") else self.computed[c])
            elif kind in KERNELS:
                why = why or f"'{a.eqns[c].prim.name}' reads it in another shape"
            elif a.eqns[c].prim is late:
                why = why or "it is kept for later"
            else:
                why = why or f"'{a.eqns[c].prim.name}' needs it in memory"
        if i in a.pieces and any(k[0] in ("reduce", "scatter") for k in needs):
            why = why or "it is read in pieces"
        if i in a.gathers and not all(self._reads_at(i, k[1]) for k in needs if k[0] == "reduce"):
            why = why or "the reduction does not read at these places"
        return needs, why

    def _reads_at(self, i: int, reduce: int) -> bool:
        """Whether a reduction's kernel can hold a gather."""
        a, e = self.a, self.a.eqns[reduce]
        space = a.row_space(a.space(reduce), e.params["axes"])
        return gather_in_rows(a, a.eqns[i], space, lambda x: a.direct(x, i) is not None) is not None

    def _place(self, i: int) -> None:
        needs, why = self._uses(i)
        home = self.home[i]
        if home[0] == "tape" and not why and any(k != home for k in needs):
            why = f"{len(needs)} kernels need it"
        if not why and len(needs) == 1:
            (only,) = needs
            why = "" if only == home or self._room(only) else "the kernel that needs it is full"
        elif not why and needs and not self._constant(i):
            worth = all(k == home or self._room(k) for k in needs) and self._recompute(i, needs, home)
            why = "" if worth else f"{len(needs)} kernels need it"
        if why:
            self.why[i] = why
            for k in needs:
                self.reads.setdefault(k, set()).add(self.a.eqns[i].outputs[0])
            needs = {home: None}
        self.computed[i] = needs
        for k in needs:
            self._note_reads(i, k)

    def _constant(self, i: int) -> bool:
        """Whether a value in pieces is a known scalar in each of them (a mask): nothing to store or to read."""
        return i in self.a.pieces and all(self.a.leaf(x) is None for x in self.a.eqns[i].inputs)

    def _store(self, i: int, why: str) -> None:
        """Computed by its own kernel, which stores it."""
        self.why[i] = why
        self.computed[i] = {self.home[i]: None}
        self._note_reads(i, self.home[i])

    def _room(self, kernel: Any) -> bool:
        return self.ops.get(kernel, 0) < MAX_OPS and len(self.reads.get(kernel, ())) < MAX_READS

    def _recompute(self, i: int, needs: dict[Any, None], home: Any) -> bool:
        """Whether computing the value in every kernel moves no more bytes than storing and reading it.

        Its home would read what it is computed from in any case.
        """
        leaves = self._cone(i)
        if leaves is None:
            return False
        extra = sum(v.aval.nbytes for k in needs if k != home for v in leaves if v not in self.reads.get(k, ()))
        stored = self.a.eqns[i].outputs[0].aval.nbytes
        return extra <= stored * (1 + sum(k != home for k in needs))

    def _cone(self, i: int) -> set[Var] | None:
        """The stored arrays a value is computed from by cheap operations; None when it is not cheap."""
        a, leaves, stack, seen = self.a, set(), [i], set()
        while stack:
            j = stack.pop()
            if j in seen:
                continue
            seen.add(j)
            if not a.eqns[j].prim.cheap or j in a.gathers or len(seen) > _MAX_CONE:
                return None
            for x, (p, leaf) in zip(a.eqns[j].inputs, a.operands(j), strict=True):
                if p is None:
                    if leaf is not None:
                        leaves.add(leaf)
                elif a.eqns[p].prim.cheap or x.aval.size == 1:
                    stack.append(p)
                elif len(a.consumers[p]) == 1:
                    return None  # it would have to be stored for this alone
                else:
                    leaves.add(a.eqns[p].outputs[0])
        return leaves


def partition(program: Program, fusion: bool = True, donated: Sequence[int] = ()) -> tuple[Analysis, list[Task]]:
    """The tasks of a flat program, in an order in which they can run. `donated`: numbers of inputs whose memory it may use."""
    from fxgrad.compile.rows import merge_rows

    a = Analysis(program, fusion)
    placed = Placement(a, fusion)
    tasks = _tasks(a, placed)
    given = [program.inputs[i] for i in donated]
    if not fusion:
        return a, schedule_in_place(a, tasks, placed.viewed, given)
    tasks = schedule(a, _absorb_epilogues(a, tasks, placed))
    return a, schedule_in_place(a, merge_rows(a, tasks, placed.viewed), placed.viewed, given)


def _tasks(a: Analysis, placed: Placement) -> list[Task]:
    kernels: dict[Any, Task] = {}
    tasks: list[Task] = []
    written: dict[Any, list[int]] = {}
    for i, eqn in enumerate(a.eqns):
        if a.kinds[i] in ("host", "dot", "control", "indexed", "iota"):
            task = Task(a.kinds[i], (), i)
            task.eqns, task.stored = [eqn], [a.stored(v) if a.kinds[i] == "dot" else v for v in eqn.outputs]
            task.why = [_WHY_ALONE.get(a.kinds[i]) or f"'{eqn.prim.name}' runs as a library call"]
            tasks.append(task)
        elif a.kinds[i] == "scatter":
            task = kernels.setdefault(("scatter", i, 0), Task("scatter", a.space(i), i))
            task.eqns.append(eqn)
            task.stored, task.order, task.why = list(eqn.outputs), i, [_WHY_ALONE["indexed"]]
        elif a.kinds[i] == "reduce":
            task = kernels.setdefault(("reduce", i, 0), Task("reduce", a.space(i), i))
            task.reduce, task.stored, task.order = eqn, list(eqn.outputs), i
            task.why = ["the result of a reduction"]
        elif a.kinds[i] in ("map", "update"):
            for k in placed.computed[i]:
                shape = a.space(k[1])
                task = kernels.setdefault(k, Task(k[0], shape, i))
                task.eqns.append(eqn)
                task.pieces += [eqn] if i in a.pieces else []
                task.gathers += [eqn] if i in a.gathers else []
                if k == placed.home[i] and i in placed.why:
                    if i in a.updates:
                        written.setdefault(k, []).append(i)
                    else:
                        task.stored.append(eqn.outputs[0])
                    task.why.append(placed.why[i])
                    task.order = i
    for k, numbers in written.items():
        kernels[k].updates = chains(a, numbers)
        kernels[k].stored += [u.home for u in kernels[k].updates]
    return tasks + [t for t in kernels.values() if t.stored]


def _absorb_epilogues(a: Analysis, tasks: list[Task], placed: Placement) -> list[Task]:
    """A small map kernel over a reduction's result, its only reader, is done before the result is stored."""
    readers: dict[Var, list[Task]] = {}
    for t in tasks:
        for v in t.reads(a):
            readers.setdefault(v, []).append(t)
    gone: set[int] = set()
    for t in tasks:
        if t.kind != "reduce" or t.reduce is None or t.reduce.inputs[0].aval.size == 0:
            continue
        v = t.reduce.outputs[0]
        users = readers.get(v, [])
        if len(users) != 1 or v in placed.viewed or users[0].kind != "map":
            continue
        m = users[0]
        if m.pieces or m.updates or m.gathers or m.joins:
            continue
        plain = all(x is v or a.root(x) is not v for e in m.eqns for x in e.inputs)
        if m.shape == v.aval.shape and len(m.stored) == 1 and len(m.eqns) <= _MAX_EPILOGUE and plain and id(m) not in gone:
            t.epilogue, t.stored, t.why, t.order, t._reads = m.eqns, m.stored, m.why, m.order, None
            gone.add(id(m))
    return [t for t in tasks if id(t) not in gone]
