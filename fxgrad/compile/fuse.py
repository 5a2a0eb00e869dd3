"""Which operations share a kernel: a deterministic partition of a flat program into tasks.

Every map operation gets a *level*: how many trips to memory (reductions, host calls, views of computed values) lie before it.
Map operations of one level, shape and epoch (see `late.py`) that feed each other or read the same arrays form a group, which is
free of cycles by construction. Then, from the last operation to the first, each value's place is chosen: computed where it is
needed, if only one kernel needs it; computed again in each, if that moves fewer bytes than storing it; else stored by its group.
A reduction is a kernel of its own that computes what it reduces, when nobody else needs it. Scalars (rank 0) join any kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad.compile.conv_layout import ConvLayout
from fxgrad.compile.gathers import computes_update, gather_in_rows, scatters_rows
from fxgrad.compile.late import epochs, late
from fxgrad.compile.layout import Layout, apply_view, contiguous
from fxgrad.compile.pieces import in_pieces, only_part
from fxgrad.compile.product_layout import ProductLayout
from fxgrad.compile.schedule import reads_of, schedule, schedule_in_place
from fxgrad.compile.updates import Region, Update, apart, chains, covers, is_update, made_update, region_of, region_shape
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Atom, Var
from fxgrad.primitives.base import kernel_dtypes
from fxgrad.primitives.conv import has_window_kernel
from fxgrad.primitives.dot import has_product_kernel
from fxgrad.runtime.eager import has_kernel

if TYPE_CHECKING:
    from fxgrad.compile.passes import Rows, RowSpace

__all__ = ["Analysis", "Task", "partition"]

MAX_OPS = 64
MAX_READS = 20
_MAX_CONE = 8
_KERNELS = ("map", "reduce", "update", "scatter")
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

    @property
    def joins(self) -> bool:
        """Whether it stores complex values, which takes two results of a kernel each."""
        return any(v.aval.dtype.kind == "c" for v in self.stored)

    @property
    def all_eqns(self) -> list[Eqn]:
        return [*self.eqns, *([self.reduce] if self.reduce else []), *self.epilogue]


class Analysis:
    """What the partition needs to know of a program: kinds, producers, where views lead, levels."""

    def __init__(self, program: Program, fusion: bool = True):
        self.program, self.fusion = program, fusion
        self.eqns = list(program.eqns)
        self.producer: dict[Var, int] = {v: i for i, e in enumerate(self.eqns) for v in e.outputs}
        self.views: dict[Var, tuple[Atom, Layout]] = {}
        self.pieces: set[int] = set()  # map equations that take their result from their operands piece by piece
        self.updates: dict[int, Update] = {}
        self.gathers: set[int] = set()  # those that are part of map kernels
        self.computing: set[int] = set()  # scatters that compute what they write
        self._readers: dict[Var, list[Eqn]] | None = None
        self.links: dict[int, int | None] = {}  # for updates, the one before that is one kernel with it
        self.apart: dict[int, list[Region]] = {}  # the regions of such a chain
        self.kept = set(program.outputs)
        self._products: dict[tuple[Var, Layout], ProductLayout | ConvLayout] = {}
        self._row_spaces: dict[Any, RowSpace] = {}
        self.turned = self._turned()
        self.epochs = epochs(self.eqns)
        self.kinds: list[str] = []
        for i, e in enumerate(self.eqns):
            self.eqns[i] = self._meeting_scalars(e)
            self.kinds.append(self._kind(i))
            if self.kinds[i] == "host":
                self.eqns[i] = e  # a library call takes the shape of its result from its operands
        self.consumers: list[list[int]] = [[] for _ in self.eqns]
        passed = self._passed() if self.updates else ()
        for i, e in enumerate(self.eqns):
            if i in passed:
                continue
            for a in dict.fromkeys(a for a in e.inputs if type(a) is Var):
                if a in self.producer:
                    self.consumers[self.producer[a]].append(i)
        self.spaces = [self._space(i) for i in range(len(self.eqns))]
        self._operands: dict[int, list[tuple[int | None, Var | None]]] = {}
        self.levels: list[int] = []
        for i in range(len(self.eqns)):
            self.levels.append(self._level(i))

    def _meeting_scalars(self, eqn: Eqn) -> Eqn:
        """A map equation meets scalars as they are: those broadcast to its shape are taken from before the broadcast."""
        if eqn.prim.kind != "map" or not any(type(x) is Var and x in self.views for x in eqn.inputs):
            return eqn
        roots = [self.root(x) for x in eqn.inputs]
        if all([root.aval.shape or x is root for x, root in zip(eqn.inputs, roots, strict=True)]):
            return eqn
        inputs = [x if root.aval.shape else root for x, root in zip(eqn.inputs, roots, strict=True)]
        return Eqn(eqn.prim, inputs, eqn.params, eqn.outputs, eqn.source)

    def _passed(self) -> set[int]:
        """Views that nobody reads: an update takes what they are of."""
        read, out = set(self.kept), set()
        for i in range(len(self.eqns) - 1, -1, -1):
            if self.kinds[i] == "view" and read.isdisjoint(self.eqns[i].outputs):
                out.add(i)
            else:
                read.update(self.eqns[i].inputs)
        return out

    def _turned(self) -> dict[int, tuple[Var, Layout]]:
        """For each product that only transposes read: the result of the last of them, and the product as a view of it."""
        users: dict[Var, list[int]] = {}
        for i, e in enumerate(self.eqns):
            for x in e.inputs:
                if type(x) is Var:
                    users.setdefault(x, []).append(i)
        kept, found = set(self.program.outputs), {}
        for i, e in enumerate(self.eqns):
            perms: list[tuple[int, ...]] = []
            v = e.outputs[0]
            while e.prim.name in ("dot", "conv") and v not in kept and len(readers := users.get(v, [])) == 1:
                if self.eqns[readers[0]].prim.name != "transpose":
                    break
                perms.append(self.eqns[readers[0]].params["perm"])
                v = self.eqns[readers[0]].outputs[0]
            if perms:
                layout = contiguous(v.aval.shape, v.aval.dtype.itemsize)
                for perm in reversed(perms):
                    layout = layout.transposed(tuple(perm.index(d) for d in range(len(perm))))
                found[i] = v, layout
        return found

    def row_space(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> RowSpace:
        """The rows of an array with these reduced axes; it remembers how arrays lie in it."""
        from fxgrad.compile.passes import RowSpace

        key = shape, axes
        if key not in self._row_spaces:
            self._row_spaces[key] = RowSpace(shape, axes)
        return self._row_spaces[key]

    def product_layout(self, eqn: Eqn, c: Layout) -> Any:
        """How a product's operands lie, if its result lies like `c`."""
        key = eqn.outputs[0], c
        if key not in self._products:
            self._products[key] = self._product_layout(eqn, c)
        return self._products[key]

    def _product_layout(self, eqn: Eqn, c: Layout) -> ProductLayout | ConvLayout:
        found = [self.access(x) for x in eqn.inputs]
        unread = [i for i, (root, _) in enumerate(found) if type(root) is not Var]
        kind = ConvLayout if eqn.prim.name == "conv" else ProductLayout
        return kind(eqn.params, eqn.outputs[0].aval.dtype, [layout for _, layout in found], c, unread)

    def _product(self, i: int) -> str:
        """A product by our own kernels; its result is stored as the transpose that follows it wants it, if that can be."""
        eqn = self.eqns[i]
        if i in self.turned:
            result, c = self.turned[i]
            if self.product_layout(eqn, c).copied is not None:
                self.views[eqn.outputs[0]] = (result, c)
                self.producer[result] = i
        return "dot"

    def _kind(self, i: int) -> str:
        eqn = self.eqns[i]
        prim = eqn.prim
        if prim.kind == "control":
            return "control"
        if prim is late:
            self.views.update((v, self.access(x)) for x, v in zip(eqn.inputs, eqn.outputs, strict=True))
            return "view"
        if self.producer.get(eqn.outputs[0]) != i:
            return "view"
        avals = [a.aval for a in eqn.inputs]
        if prim.kind in ("map", "reduce"):
            return prim.kind if has_kernel(prim, avals, [eqn.outputs[0].aval]) else "host"
        if (prim.name == "dot" and has_product_kernel(avals[0].dtype)) or (
            prim.name == "conv" and has_window_kernel(avals[0].dtype)
        ):
            return self._product(i)
        if is_update(eqn) and kernel_dtypes(avals) and avals[0].size:
            return self._update(i)
        if is_indexed(eqn):
            return self._scattered(i) if scatters_rows(self, eqn) else self._indexed(i)
        if prim.name == "iota" and eqn.outputs[0].aval.ndim == 1 and eqn.outputs[0].aval.dtype == np.int64:
            return "iota"
        if in_pieces(eqn):
            return self._in_pieces(i)
        if prim.kind == "view" and len(eqn.inputs) == 1:
            root, layout = self.access(eqn.inputs[0])
            found = apply_view(prim.name, layout, eqn.params, eqn.inputs[0].aval.dtype.itemsize)
            if found is not None:
                self.views[eqn.outputs[0]] = (root, found)
                return "view"
        return "host"

    def _in_pieces(self, i: int) -> str:
        whole = only_part(self.eqns[i])
        if whole is not None:
            self.views[self.eqns[i].outputs[0]] = self.access(whole)
            return "view"
        self.pieces.add(i)
        return "map"

    def _scattered(self, i: int) -> str:
        """One that replaces what is stored is a copy of memory, row by row."""
        computes = computes_update(self, self.eqns[i])
        if computes:
            self.computing.add(i)
        return "scatter" if computes or self.eqns[i].params.get("mode") == "add" else "indexed"

    def _indexed(self, i: int) -> str:
        if not self._gathers_along(self.eqns[i]):
            return "indexed"
        self.gathers.add(i)
        return "map"

    def _update(self, i: int) -> str:
        """An update of a part is written in place; others are what they write, or nothing."""
        eqn = self.eqns[i]
        if covers(eqn) or not math.prod(region_shape(eqn)):
            self.views[eqn.outputs[0]] = self.access(eqn.inputs[covers(eqn)])
            return "view"
        self.updates[i] = made_update(self, eqn)
        self.eqns[i] = self.updates[i].eqn
        self.producer[self.updates[i].home] = i
        return "update"

    def _gathers_along(self, eqn: Eqn) -> bool:
        """Whether a gather is to be part of a kernel: of one that computes its indices, or goes on with what it reads."""
        if not self.fusion or eqn.prim.name != "gather":
            return False
        x, *indices = eqn.inputs
        out = eqn.outputs[0]
        if type(self.access(x)[0]) is not Var or x in indices or not out.aval.ndim:
            return False
        computed = [self.producer.get(i) for i in indices if type(i) is Var and i.aval.shape == out.aval.shape]
        if any(p is not None and self.kinds[p] == "map" for p in computed):
            return True
        goes_on = {"map": lambda e: e.outputs[0].aval.shape, "reduce": lambda e: out.aval.shape}
        return any(goes_on[e.prim.kind](e) == out.aval.shape for e in self.readers(out) if e.prim.kind in goes_on)

    def readers(self, v: Var) -> list[Eqn]:
        """The equations that read a value, once for each operand that it is."""
        if self._readers is None:
            self._readers = {}
            for e in self.eqns:
                for x in e.inputs:
                    if type(x) is Var:
                        self._readers.setdefault(x, []).append(e)
        return self._readers.get(v, [])

    def access(self, atom: Atom) -> tuple[Atom, Layout]:
        """The stored value behind an atom, and the atom's layout in it."""
        if type(atom) is Var and atom in self.views:
            return self.views[atom]
        return atom, contiguous(atom.aval.shape, atom.aval.dtype.itemsize)

    def root(self, atom: Atom) -> Atom:
        """The stored value behind an atom."""
        return self.views[atom][0] if type(atom) is Var and atom in self.views else atom

    def stored(self, v: Var) -> Var:
        """The variable in whose memory an equation's result lies."""
        root = self.root(v)
        assert isinstance(root, Var)
        return root

    def direct(self, atom: Atom, c: int) -> int | None:
        """The map equation whose value equation c, a map, a reduction, an update or a scatter, can take from a register."""
        if type(atom) is not Var or (c in self.gathers and atom is self.eqns[c].inputs[0]):
            return None
        if self.kinds[c] == "scatter" and (c not in self.computing or atom is not self.eqns[c].inputs[1]):
            return None
        p = self.producer.get(atom)
        return p if p is not None and self.kinds[p] == "map" and atom.aval.shape in (self.spaces[c], ()) else None

    def operands(self, i: int) -> list[tuple[int | None, Var | None]]:
        """For each operand of a map, reduce or update equation: what it is directly taken from; else the stored array read."""
        found = self._operands.get(i)
        if found is None:
            found = []
            for x in self.eqns[i].inputs:
                p = self.direct(x, i)
                found.append((p, None if p is not None else self.leaf(x)))
            self._operands[i] = found
        return found

    def space(self, i: int) -> tuple[int, ...]:
        """The iteration space of a map, reduce or update equation."""
        return self.spaces[i]

    def _space(self, i: int) -> tuple[int, ...]:
        e, kind = self.eqns[i], self.kinds[i]
        if kind == "update":
            return self.updates[i].place.shape
        if kind == "scatter":
            return e.inputs[1].aval.shape
        x = e.outputs[0] if kind == "map" else e.inputs[0] if kind == "reduce" else None
        return () if x is None else x.aval.shape

    def _level(self, i: int) -> int:
        level = 0
        if self.kinds[i] not in _KERNELS:
            pairs: Any = [(None, root) for x in self.eqns[i].inputs if type(root := self.root(x)) is Var]
        else:
            pairs = self.operands(i)
        before = self.chained(i) if i in self.updates else None
        for p, leaf in pairs:
            if p is not None:
                level = max(level, self.levels[p])
            elif leaf is not None and before is not None:
                level = max(level, self.levels[before])
            elif leaf in self.producer:
                level = max(level, self.levels[self.producer[leaf]] + 1)
        return level

    def chained(self, i: int) -> int | None:
        """The update whose result i updates, if nobody else reads that and both can be one kernel's.

        Single elements can be written one after the other; regions must lie apart, since all of a kernel's run together.
        """
        if i in self.links:
            return self.links[i]
        u, found = self.updates[i], None
        p = self.producer.get(u.base) if type(u.base) is Var else None
        alone = p is not None and p in self.updates and self.consumers[p] == [i] and u.base not in self.kept
        if p is not None and alone and u.whole and self.space(i) == self.space(p) and self.epochs[i] == self.epochs[p]:
            before = self.apart.get(p) or [region_of(self.eqns[p])]
            if not self.space(i) or (len(before) < MAX_READS and all(apart(region_of(self.eqns[i]), r) for r in before)):
                found = p
                if self.space(i):
                    self.apart[i] = [*before, region_of(self.eqns[i])]
        self.links[i] = found
        return found

    def leaf(self, atom: Atom) -> Var | None:
        """The stored array a map or reduce operation would read for this operand; None for literals."""
        root = self.root(atom)
        return root if type(root) is Var else None


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
            if kind in _KERNELS and a.direct(v, c) is not None:
                needs.update({(kind, c, 0): None} if kind in ("reduce", "scatter") else self.computed[c])
            elif kind in _KERNELS:
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


_INDEXED = ("gather", "scatter", "dynamic_slice", "dynamic_update_slice")


def is_indexed(eqn: Eqn) -> bool:
    """Whether an equation reads or writes at positions known at run time only, and may do so natively."""
    return eqn.prim.name in _INDEXED and kernel_dtypes([x.aval for x in eqn.inputs]) and all(x.aval.size for x in eqn.inputs)


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
        for v in reads_of(a, t.all_eqns):
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
            t.epilogue, t.stored, t.why, t.order = m.eqns, m.stored, m.why, m.order
            gone.add(id(m))
    return [t for t in tasks if id(t) not in gone]
