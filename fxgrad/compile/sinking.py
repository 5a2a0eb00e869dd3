"""Views moved in front of cheap operations, so that what they are views of need not go through memory.

A slice of what only the slice needs is computed of slices. `pad(f(x), v)` is `f(pad(x))` inside and v outside, which a `select`
tells apart: in pieces of a kernel it costs nothing (`pieces.settled`), and f is computed where it is read. Bits stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxgrad.compile.updates import Region, padded_region, region_of
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Lit, Var
from fxgrad.primitives.base import kernel_dtypes

if TYPE_CHECKING:
    from fxgrad.compile.simplify import Found, Walk

__all__ = ["pad", "replaced", "slice_", "uses_of"]

Ints = tuple[int, ...]
_CONE = 8  # operations that are computed where they are read
_LEAVES = 4  # views they may read


def _operation(w: Walk, x: Atom) -> Eqn | None:
    """The cheap operation that makes x of arrays of its shape and scalars."""
    made = w.maker.get(x) if type(x) is Var else None
    if made is None or made.prim.kind != "map" or not made.prim.cheap or len(made.outputs) != 1:
        return None
    if not kernel_dtypes([a.aval for a in (*made.inputs, x)]):
        return None
    return made if all(a.aval.shape in (x.aval.shape, ()) for a in made.inputs) else None


def _cone(w: Walk, x: Atom) -> tuple[list[Eqn], list[Atom]] | None:
    """Cheap operations that make x, in order, and the arrays they read; None if they are not few."""
    eqns: dict[Atom, Eqn] = {}
    leaves: dict[Atom, None] = {}
    stack = [(x, False)]
    while stack:
        v, ready = stack.pop()
        if v in eqns or v in leaves:
            continue
        made = _operation(w, v)
        if made is None:
            leaves[v] = None
        elif ready:
            eqns[v] = made
        else:
            stack += [(v, True), *((a, False) for a in made.inputs if a.aval.shape)]
        if len(eqns) > _CONE or len(leaves) > _LEAVES or len(stack) > 4 * _CONE:
            return None
    return list(eqns.values()), list(leaves)


def pad(w: Walk, x: Atom, value: Atom, *, low: Ints, high: Ints, interior: Ints) -> Found:
    if not any((*low, *high, *interior)):
        return x
    if not x.aval.size:
        shape = tuple(lo + hi + n + max(0, n - 1) * i for lo, hi, n, i in zip(low, high, x.aval.shape, interior, strict=True))
        return "broadcast", [value], {"shape": shape, "dims": ()}
    if any(interior) or min(*low, *high, 0) < 0 or w.constant(value) is None:
        return None
    found = _cone(w, x)
    if found is None or not found[0] or not found[1]:
        return None
    eqns, leaves = found
    makers = [w.maker[v].prim for v in leaves if type(v) is Var and v in w.maker]
    if any(p.name in ("pad", "concatenate") for p in makers) or sum(p.kind == "map" for p in makers) > 1:
        return None  # more arrays would be stored than before
    params = {"low": low, "high": high, "interior": interior}
    env: dict[Atom, Atom] = {v: w.emit("pad", [v, Lit(v.aval.dtype.type(0))], params) for v in leaves}
    for e in eqns:
        env[e.outputs[0]] = w.emit(e.prim.name, [env.get(a, a) if a.aval.shape else a for a in e.inputs], e.params)
    return "select", [_inside(w, x.aval.shape, params), env[x], value], {}


def _inside(w: Walk, shape: Ints, params: dict[str, Ints]) -> Atom:
    true = w.emit("broadcast", [Lit(np.bool_(True))], {"shape": shape, "dims": ()})
    return w.emit("pad", [true, Lit(np.bool_(False))], params)


def slice_(w: Walk, x: Atom, region: Region, shape: Ints) -> Found:
    """A slice of an array in pieces, of its pieces; a slice of what nobody else needs, computed of slices."""
    made = w.maker.get(x) if type(x) is Var else None
    if made is None:
        return None
    if made.prim.name == "pad":
        return _slice_of_pad(w, made, region, shape)
    if made.prim.name == "concatenate":
        return _slice_of_parts(w, made, region, shape)
    if w.uses.get(x, 1) > 1 or _operation(w, x) is None:
        return None
    arrays = [a for a in made.inputs if a.aval.shape]
    fresh = {a for a in arrays if w.uses.get(a, 0) > 1 and _operation(w, a) is not None}
    if not arrays or len(fresh) > 1:
        return None  # more arrays would be stored than before
    return made.prim.name, [w.emit("slice", [a], region._asdict()) if a.aval.shape else a for a in made.inputs], made.params


def _slice_of_pad(w: Walk, made: Eqn, region: Region, shape: Ints) -> Found:
    x, value = made.inputs
    place = padded_region(made)
    if any(made.params["interior"]) or any(s != 1 for s in region.step) or not x.aval.size or 0 in shape:
        return None
    pairs = list(zip(region.start, region.stop, place.start, place.stop, strict=True))
    if any(hi <= start or lo >= stop for lo, hi, start, stop in pairs):
        return "broadcast", [value], {"shape": shape, "dims": ()}
    first = tuple(max(lo, start) - start for lo, _, start, _ in pairs)
    last = tuple(min(hi, stop) - start for _, hi, start, stop in pairs)
    inner = w.emit("slice", [x], {"start": first, "stop": last, "step": region.step})
    low = tuple(max(start - lo, 0) for lo, _, start, _ in pairs)
    high = tuple(max(hi - stop, 0) for _, hi, _, stop in pairs)
    return "pad", [inner, value], {"low": low, "high": high, "interior": (0,) * len(low)}


def _slice_of_parts(w: Walk, made: Eqn, region: Region, shape: Ints) -> Found:
    axis, at, parts = made.params["axis"], 0, []
    if any(s != 1 for s in region.step) or 0 in shape:
        return None
    for x in made.inputs:
        n = x.aval.shape[axis]
        lo, hi = max(region.start[axis] - at, 0), min(region.stop[axis] - at, n)
        at += n
        if lo < hi:
            start, stop = list(region.start), list(region.stop)
            start[axis], stop[axis] = lo, hi
            parts.append(w.emit("slice", [x], {"start": tuple(start), "stop": tuple(stop), "step": region.step}))
    return parts[0] if len(parts) == 1 else ("concatenate", parts, {"axis": axis})


def replaced(w: Walk, x: Atom, y: Atom) -> Found:
    """x + y where x is an array of which a large region was replaced, and y is zero beside the same region."""
    for g, other in ((x, y), (y, x)):
        update = w.maker.get(g) if type(g) is Var else None
        made = w.maker.get(other) if type(other) is Var else None
        if update is None or made is None or update.prim.name != "update_slice" or made.prim.name != "pad":
            continue
        region, (c, zero) = padded_region(made), made.inputs
        if any(made.params["interior"]) or region != region_of(update) or not w.is_(zero, 0) or g.aval.dtype.kind != "f":
            continue
        inner = [update.inputs[1], c] if g is x else [c, update.inputs[1]]
        if inner[0].aval.shape != inner[1].aval.shape:
            continue
        within = w.emit("pad", [w.emit("add", inner, {}), zero], made.params)
        beside = w.emit("add", [update.inputs[0], Lit(g.aval.dtype.type(0))], {})
        return "select", [_inside(w, c.aval.shape, made.params), within, beside], {}
    return None


def uses_of(eqns: Sequence[Eqn], outputs: Sequence[Atom]) -> dict[Atom, int]:
    """How often each variable is read, or returned."""
    uses: dict[Atom, int] = {}
    for a in (*(a for e in eqns for a in e.inputs), *outputs):
        if type(a) is Var:
            uses[a] = uses.get(a, 0) + 1
    return uses
