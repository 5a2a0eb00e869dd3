"""Exact rewrites of programs that write and read regions of arrays: what in-place code, and its gradient, comes down to.

A slice of exactly what an update wrote is what was written, so that what follows need not wait for memory. A slice that lies
beside all that was written is one of the array that was there before. Adding to a region (the cotangent of a slice) changes the
region only: elsewhere +0 is added, which changes nothing but -0, so it is known of each array where that may stand.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxgrad.compile import sinking
from fxgrad.compile.updates import Region, apart, padded_region, region_of
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Lit, Var

if TYPE_CHECKING:
    from fxgrad.compile.simplify import Found, Walk

__all__ = ["RULES", "Written", "added"]

Ints = tuple[int, ...]
_LOOK_BACK = 32  # updates looked at one by one
_SMALL, _TINY = 4, 16  # a region is worth its own operations if the array is so many times as large; and another pass over it


class _Chain:
    """Updates of an array, one after the other."""

    def __init__(self, base: Atom):
        self.base = base
        self.eqns: list[Eqn] = []
        self.sizes: Ints | None = None  # of the regions, if they are tiles of one size
        self.at: dict[Ints, list[int]] = {}  # where a tile was written

    def append(self, eqn: Eqn) -> None:
        region = region_of(eqn)
        sizes = _tile(region)
        if not self.eqns:
            self.sizes = sizes
        elif self.sizes != sizes:
            self.sizes = None
        if self.sizes is not None:
            self.at.setdefault(region.start, []).append(len(self.eqns))
        self.eqns.append(eqn)


def _tile(r: Region) -> Ints | None:
    """The sizes of a region that is one of the tiles of its size; two such regions are the same or lie apart."""
    sizes = tuple(hi - lo for lo, hi in zip(r.start, r.stop, strict=True))
    plain = all(s == 1 or n == 1 for s, n in zip(r.step, sizes, strict=True))
    return sizes if plain and all(n and lo % n == 0 for lo, n in zip(r.start, sizes, strict=True)) else None


class Written:
    """What is known of arrays of which regions were written."""

    def __init__(self) -> None:
        self.place: dict[Var, tuple[_Chain, int]] = {}
        self.signed: dict[Var, tuple[Region, ...]] = {}  # where -0 may stand, if not anywhere

    def note(self, w: Walk, eqn: Eqn) -> None:
        if eqn.prim.name == "update_slice":
            x, y, region = eqn.inputs[0], eqn.outputs[0], region_of(eqn)
            chain, k = self.place.get(x, (None, 0)) if type(x) is Var else (None, 0)
            if chain is None or k != len(chain.eqns) - 1:
                chain = _Chain(x)
            chain.append(eqn)
            self.place[y] = chain, len(chain.eqns) - 1
            signed = self.minus_zeros(w, x)
            if signed is not None:
                rest = tuple(r for r in signed if not _same(r, region))
                self.signed[y] = rest if _unsigned(w, eqn.inputs[1]) else (*rest, region)

    def minus_zeros(self, w: Walk, x: Atom) -> tuple[Region, ...] | None:
        """Regions outside of which x has no -0; None if it may have some anywhere."""
        if type(x) is Var and x in self.signed:
            return self.signed[x]
        return () if _unsigned(w, x) else None

    def look(self, x: Atom, wanted: Region) -> tuple[Atom, bool]:
        """The value of a region of x, and True; or the earliest known array that has the same there, and False."""
        while type(x) is Var and x in self.place:
            chain, k = self.place[x]
            if chain.sizes is not None and _tile(wanted) == chain.sizes:
                found = chain.at.get(wanted.start, [])
                i = bisect_right(found, k)
                if i:
                    return chain.eqns[found[i - 1]].inputs[1], True
            else:
                for j in range(k, max(k - _LOOK_BACK, -1), -1):
                    written = region_of(chain.eqns[j])
                    if _same(written, wanted):
                        return chain.eqns[j].inputs[1], True
                    if not apart(written, wanted):
                        return chain.eqns[j].outputs[0], False
                if k >= _LOOK_BACK:
                    return chain.eqns[k - _LOOK_BACK].outputs[0], False
            x = chain.base
        return x, False


def _unsigned(w: Walk, x: Atom) -> bool:
    """Whether x is known to have no -0."""
    if x.aval.dtype.kind in "iub":
        return True
    value = w.constant(x)
    if value is not None:
        return x.aval.dtype.kind == "f" and not (value == 0 and math.copysign(1.0, float(value)) < 0)
    made = w.maker.get(x) if type(x) is Var else None
    if made is not None and made.prim.name == "reshape":
        return _unsigned(w, made.inputs[0])
    return made is not None and made.prim.name == "add" and any(w.is_(y, 0.0) for y in made.inputs)


def _same(x: Region, y: Region) -> bool:
    """Whether two regions have the same elements in the same order."""
    return x.start == y.start and all(
        -(-(b - a) // s) == -(-(d - c) // t) and (s == t or b - a <= s) for a, b, s, c, d, t in zip(*x, *y, strict=True)
    )


def _slice(w: Walk, x: Atom, *, start: Ints, stop: Ints, step: Ints) -> Found:
    wanted = Region(start, stop, step)
    shape = tuple(max(0, -(-(hi - lo) // s)) for lo, hi, s in zip(*wanted, strict=True))
    if shape == x.aval.shape:
        return x
    value = w.constant(x)
    if value is not None:
        return "broadcast", [Lit(x.aval.dtype.type(value))], {"shape": shape, "dims": ()}
    found, is_value = w.written.look(x, wanted)
    if is_value:
        return found
    value = w.constant(found)
    if value is not None:
        return "broadcast", [Lit(x.aval.dtype.type(value))], {"shape": shape, "dims": ()}
    early = found is not x and (found not in w.maker or (math.prod(shape) == 1 and found not in w.written.place))
    if early:
        return "slice", [found], {"start": start, "stop": stop, "step": step}
    return sinking.slice_(w, x, wanted, shape)


def _update_slice(w: Walk, x: Atom, u: Atom, *, start: Ints, stop: Ints, step: Ints) -> Found:
    if u.aval.shape == x.aval.shape:
        return u
    return x if not u.aval.size else None


def _starts(w: Walk, starts: Sequence[Atom], shape: Ints, sizes: Ints) -> dict[str, Ints] | None:
    """The region of a window whose starts are known: clamped, so that it lies inside."""
    values = [w.constant(s) for s in starts]
    if any(v is None for v in values):
        return None
    low = tuple(max(0, min(int(v), n - m)) for v, n, m in zip(values, shape, sizes, strict=True))
    return {"start": low, "stop": tuple(lo + m for lo, m in zip(low, sizes, strict=True)), "step": (1,) * len(low)}


def _dynamic_slice(w: Walk, x: Atom, *starts: Atom, sizes: Ints) -> Found:
    region = _starts(w, starts, x.aval.shape, sizes)
    return None if region is None else ("slice", [x], region)


def _dynamic_update_slice(w: Walk, x: Atom, u: Atom, *starts: Atom) -> Found:
    region = _starts(w, starts, x.aval.shape, u.aval.shape)
    return None if region is None else ("update_slice", [x, u], region)


def added(w: Walk, x: Atom, y: Atom) -> Found:
    """x + y, where one of them is a small array within zeros, as an update of the other one."""
    for g, other in ((x, y), (y, x)):
        made = w.maker.get(other) if type(other) is Var else None
        if made is None or made.prim.name != "pad" or not w.is_(made.inputs[1], 0):
            continue
        region = padded_region(made)
        c = made.inputs[0]
        if not c.aval.size or c.aval.size * _SMALL > g.aval.size:
            continue
        array = _within_zeros(w, g)
        signed, zero = w.written.minus_zeros(w, array), Lit(g.aval.dtype.type(0))
        rest = sum(map(_size, signed or ()))
        if rest * _SMALL > g.aval.size or (signed is None and c.aval.size * _TINY > g.aval.size):
            continue
        old = _number(w, w.emit("slice", [array], region._asdict()))
        if signed is None:
            array = w.emit("add", [array, zero], {})
            w.uses[array] = 2  # it is updated, and read again
        for r in signed or ():
            if not _same(r, region):
                part = _number(w, w.emit("slice", [array], r._asdict()))
                array = _update(w, array, w.emit("add", [part, zero], {}), r)
        c = _number(w, c)
        new = w.emit("add", [old, c] if g is x else [c, old], {})
        return "update_slice", [array, _shaped(w, new, region)], region._asdict()
    return sinking.replaced(w, x, y)


def _number(w: Walk, x: Atom) -> Atom:
    """An array of one element as a scalar, which scalars can be computed with."""
    return w.emit("reshape", [x], {"shape": ()}) if x.aval.size == 1 and x.aval.shape else x


def _shaped(w: Walk, x: Atom, region: Region) -> Atom:
    shape = tuple(max(0, -(-(hi - lo) // s)) for lo, hi, s in zip(*region, strict=True))
    return x if x.aval.shape == shape else w.emit("reshape", [x], {"shape": shape})


def _update(w: Walk, x: Atom, u: Atom, region: Region) -> Atom:
    return w.emit("update_slice", [x, _shaped(w, u, region)], region._asdict())


def _size(r: Region) -> int:
    return math.prod(max(0, -(-(hi - lo) // s)) for lo, hi, s in zip(*r, strict=True))


def _within_zeros(w: Walk, g: Atom) -> Atom:
    """g; if it is a small array within zeros, as zeros of which a region was written."""
    made = w.maker.get(g) if type(g) is Var else None
    if made is None or made.prim.name != "pad" or not w.is_(made.inputs[1], 0):
        return g
    if made.inputs[0].aval.size * _SMALL > g.aval.size:
        return g
    zeros = w.emit("broadcast", [Lit(g.aval.dtype.type(0))], {"shape": g.aval.shape, "dims": ()})
    return _update(w, zeros, made.inputs[0], padded_region(made))


RULES: dict[str, Any] = {
    "slice": _slice, "update_slice": _update_slice, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice, "pad": sinking.pad,
}  # fmt: skip
