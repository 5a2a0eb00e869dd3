"""What the partition needs to know of a flat program: kinds of equations, producers and readers, where views lead, levels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fxgrad.compile.conv_layout import ConvLayout
from fxgrad.compile.gathers import computes_update, scatters_rows
from fxgrad.compile.late import epochs, late
from fxgrad.compile.layout import Layout, apply_view, contiguous
from fxgrad.compile.pieces import in_pieces, only_part
from fxgrad.compile.product_layout import ProductLayout
from fxgrad.compile.updates import Region, Update, apart, covers, is_update, made_update, region_of, region_shape
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import Atom, Var
from fxgrad.primitives.base import kernel_dtypes
from fxgrad.primitives.conv import has_window_kernel
from fxgrad.primitives.dot import has_product_kernel
from fxgrad.runtime.eager import has_kernel

if TYPE_CHECKING:
    from fxgrad.compile.passes import RowSpace

__all__ = ["KERNELS", "MAX_READS", "Analysis"]

KERNELS = ("map", "reduce", "update", "scatter")  # kinds that can take operands from registers
MAX_READS = 20  # arrays that a kernel reads


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
            for a in dict.fromkeys(e.inputs) if len(e.inputs) > 1 else e.inputs:
                if type(a) is Var and a in self.producer:
                    self.consumers[self.producer[a]].append(i)
        self.spaces = [self._space(i) for i in range(len(self.eqns))]
        self._operands: dict[int, list[tuple[int | None, Var | None]]] = {}
        self.levels: list[int] = []
        for i in range(len(self.eqns)):
            self.levels.append(self._level(i))

    def _meeting_scalars(self, eqn: Eqn) -> Eqn:
        """A map equation meets scalars as they are: those broadcast to its shape are taken from before the broadcast."""
        views = self.views
        if eqn.prim.kind != "map" or not any([type(x) is Var and x in views for x in eqn.inputs]):
            return eqn
        roots = [self.root(x) for x in eqn.inputs]
        if all([x is root or root.aval.shape for x, root in zip(eqn.inputs, roots, strict=True)]):
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
        products = [v for e in self.eqns if e.prim.name in ("dot", "conv") for v in e.outputs]
        users: dict[Any, list[int]] = {v: [] for v in products}
        for i, e in enumerate(self.eqns):
            if e.prim.name == "transpose":  # a chain of these may follow a product
                users[e.outputs[0]] = []
            for x in e.inputs:
                if x in users:
                    users[x].append(i)
        kept, found = set(self.program.outputs), {}
        for i, e in enumerate(self.eqns):
            perms: list[tuple[int, ...]] = []
            v = e.outputs[0]
            while e.prim.name in ("dot", "conv") and v not in kept and len(readers := users[v]) == 1:
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
        if _is_indexed(eqn):
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
        readers = self.readers(out)
        if len(readers) == 1 and readers[0].prim.name == "scatter" and out is readers[0].inputs[1]:
            return scatters_rows(self, readers[0])
        goes_on = {"map": lambda e: e.outputs[0].aval.shape, "reduce": lambda e: out.aval.shape}
        return any(goes_on[e.prim.kind](e) == out.aval.shape for e in readers if e.prim.kind in goes_on)

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
        if self.kinds[i] not in KERNELS:
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


_INDEXED = ("gather", "scatter", "dynamic_slice", "dynamic_update_slice")


def _is_indexed(eqn: Eqn) -> bool:
    """Whether an equation reads or writes at positions known at run time only, and may do so natively."""
    return eqn.prim.name in _INDEXED and kernel_dtypes([x.aval for x in eqn.inputs]) and all(x.aval.size for x in eqn.inputs)
