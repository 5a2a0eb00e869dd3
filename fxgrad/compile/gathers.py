"""Gathers and scatters inside kernels: how what they read lies over the space of a kernel, and which of them a kernel can hold.

Where a whole row is read at one place (an embedding, the logit of a label) the operand is *moved*: its start in a row depends on
indices that the row has one value of. So it is where vectors run across the rows and the index changes from element to element
of the reduction. Other gathers are operations on the elements of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fxgrad.compile.layout import Layout
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Lit, Var

if TYPE_CHECKING:
    from fxgrad.compile.analysis import Analysis
    from fxgrad.compile.passes import RowSpace

__all__ = [
    "GatherViews",
    "Index",
    "RowGather",
    "computes_update",
    "gather_in_rows",
    "gather_views",
    "known_position",
    "scatters_rows",
]

_SHORTEST = 16  # elements of a row that is scattered by the kernel that computes it
_MOST = 24  # operations of that kernel


class Index(NamedTuple):
    """An index array, how it lies over the gather's result, the positions it may lead to and the bytes from one to the next."""

    atom: Atom
    layout: Layout
    length: int
    stride: int


class GatherViews(NamedTuple):
    """The array a gather reads, how its result lies there if all indices are 0, and the indices."""

    root: Var
    layout: Layout
    indices: list[Index]


class RowGather(NamedTuple):
    """A gather over rows: its walk of the array (`strides` over rows and along them), and whether it only moves that."""

    views: GatherViews
    strides: tuple
    moves: bool


def gather_views(a: Analysis, eqn: Eqn) -> GatherViews:
    """How what a gather reads lies over its result."""
    x, *indices = eqn.inputs
    root, layout = a.access(x)
    assert type(root) is Var
    axes, count, shape = eqn.params["axes"], indices[0].aval.ndim, eqn.outputs[0].aval.shape
    inside = tuple(s for d, s in enumerate(layout.strides) if d not in axes)
    found = []
    for i, axis in zip(indices, axes, strict=True):
        _, lying = a.access(i)
        wide = Layout(shape, (*lying.strides, *(0,) * (len(shape) - count)), lying.offset)
        found.append(Index(i, wide, layout.shape[axis], layout.strides[axis]))
    return GatherViews(root, Layout(shape, (0,) * count + inside, layout.offset), found)


def gather_in_rows(a: Analysis, eqn: Eqn, space: RowSpace, made: Callable[[Atom], bool]) -> RowGather | None:
    """A gather as part of a kernel over rows, or columns, that space has; None if that cannot hold it.

    `made` tells whether the kernel computes an index itself.
    """
    views, out = gather_views(a, eqn), eqn.outputs[0]
    kind = space.kind(out.aval.shape)
    strides = space.walk(views.layout, kind) if kind in ("full", "row") else None
    if strides is None or any(type(a.root(i.atom)) is not Var for i in views.indices):
        return None
    walks = [None if made(i.atom) else space.walk(i.layout, kind) for i in views.indices]
    stored = [w for w in walks if w is not None]
    if space.columns:
        last = space.kept.index(space.last) if space.last in space.kept else 0
        plain = all(isinstance(w[-1], int) for w in (strides, *stored))
        fine = kind == "full" and plain and len(stored) == len(walks) and all(w[last] == 0 for w in stored)
        return RowGather(views, strides, True) if fine else None
    if len(stored) == len(walks) and all(w[-1] == 0 for w in stored):
        return RowGather(views, strides, True)
    whole = all(made(i.atom) or w is not None for i, w in zip(views.indices, walks, strict=True))
    if kind != "full" or not whole or not isinstance(strides[-1], int):
        return None
    same = all(i.atom.aval.shape == out.aval.shape for i in views.indices if made(i.atom))
    return RowGather(views, strides, False) if same else None


def scatters_rows(a: Analysis, eqn: Eqn) -> bool:
    """Whether a scatter writes rows of some length, to places that are stored or known."""
    x, update, *indices = eqn.inputs
    if eqn.prim.name not in ("scatter", "dynamic_update_slice") or update in (x, *indices):
        return False
    return bool(update.aval.ndim) and update.aval.shape[-1] >= _SHORTEST and _leads_to_rows(a, eqn)


def computes_update(a: Analysis, eqn: Eqn) -> bool:
    """Whether a scatter of rows is to compute what it writes: by a few cheap operations that nobody else needs.

    Others are better off when all threads compute, as the rows of a scatter keep an order.
    """
    update = eqn.inputs[1]
    return a.fusion and isinstance(update, Var) and _is_cheap(a, update)


def _leads_to_rows(a: Analysis, eqn: Eqn) -> bool:
    """Whether indices that are stored, or known, lead a scatter to rows, and not to single elements."""
    x, update, *indices = eqn.inputs
    window = eqn.prim.name != "scatter"
    axes = tuple(range(x.aval.ndim)) if window else eqn.params["axes"]
    if not window and (indices[0].aval.ndim == update.aval.ndim or x.aval.ndim - 1 in axes):
        return False
    roots = [a.root(i) for i in indices]
    known = [known_position(r, x.aval.shape[d], window) for r, d in zip(roots, axes, strict=True)]
    stored = [type(r) is Var for r in roots]
    return any(stored) and all(s or p is not None for s, p in zip(stored, known, strict=True))


def _is_cheap(a: Analysis, update: Var) -> bool:
    stack, seen = [update], set()
    while stack:
        v = stack.pop()
        p = a.producer.get(v)
        if v in seen or p is None or a.kinds[p] != "map" or v.aval.shape != update.aval.shape:
            continue
        seen.add(v)
        e = a.eqns[p]
        if len(a.readers(v)) != 1 or p in a.pieces or len(seen) > _MOST or not (e.prim.cheap or p in a.gathers):
            return False
        stack += [y for y in e.inputs if type(y) is Var]
    return bool(seen)


def known_position(index: Atom, length: int, clamps: bool) -> int | None:
    """The place along its axis to which an index leads that is a number, if it is one."""
    if not isinstance(index, Lit):
        return None
    i = int(index.value)
    if clamps:
        return min(max(i, 0), length - 1)
    i += length if i < 0 else 0
    return i if 0 <= i < length else None
