"""Arrays in pieces: `pad` and `concatenate` without copies.

Such an array is not one affine view, but it is one in every piece. A map kernel that makes or reads some is therefore run once
for each box of the space in which all of them are whole: there each is a view of an operand, or a scalar, and the kernel writes
its results straight into their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxgrad.compile.layout import Layout
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Lit, Var
from fxgrad.primitives.base import kernel_dtypes

if TYPE_CHECKING:
    from fxgrad.compile.analysis import Analysis

__all__ = ["Box", "Chosen", "boxes", "in_pieces", "only_part", "settled", "within"]

Box = tuple[tuple[int, int], ...]  # from, to, for each axis
Chosen = dict[Var, tuple[Atom, Layout | None]]  # what stands for a result in a box: a view of a stored value, or a scalar
_MAX_PARTS = 32  # beyond, one library call is cheaper than so many kernels


def in_pieces(eqn: Eqn) -> bool:
    """Whether an equation's result is taken from its operands piece by piece."""
    if not kernel_dtypes([x.aval for x in eqn.inputs]) or eqn.outputs[0].aval.size == 0:
        return False
    if eqn.prim.name == "concatenate":
        return len(eqn.inputs) <= _MAX_PARTS
    return eqn.prim.name == "pad" and not any(eqn.params["interior"]) and eqn.inputs[0].aval.size > 0


def only_part(eqn: Eqn) -> Atom | None:
    """The operand that is the whole result, if the other ones are empty."""
    return next((x for x in eqn.inputs if x.aval.shape == eqn.outputs[0].aval.shape), None)


def _places(eqn: Eqn) -> list[tuple[Atom, Box]]:
    """The operands that lie in the result, and where; elsewhere is the value of a pad."""
    if eqn.prim.name == "pad":
        x = eqn.inputs[0]
        return [(x, tuple((lo, lo + n) for lo, n in zip(eqn.params["low"], x.aval.shape, strict=True)))]
    axis, start, out = eqn.params["axis"], 0, []
    for x in eqn.inputs:
        stop = start + x.aval.shape[axis]
        out.append((x, tuple((start, stop) if d == axis else (0, n) for d, n in enumerate(x.aval.shape))))
        start = stop
    return out


def within(layout: Layout, box: Box, origin: Sequence[int]) -> Layout:
    """The part of a view that lies in a box, the view itself beginning at `origin`."""
    offset = layout.offset + sum((lo - o) * s for (lo, _), o, s in zip(box, origin, layout.strides, strict=True))
    return Layout(tuple(hi - lo for lo, hi in box), layout.strides, offset)


def boxes(a: Analysis, eqns: Sequence[Eqn], shape: Sequence[int]) -> list[tuple[Box, Chosen]]:
    """The boxes of a space in which every result in pieces is one view or scalar, and which."""
    found = [(e, _places(e)) for e in eqns]
    out: list[tuple[Box, Chosen]] = []
    stack: list[Box] = [tuple((0, n) for n in shape)]
    while stack:
        box = stack.pop()
        cut = next((c for _, places in found for _, place in places if (c := _cut(box, place))), None)
        if cut is not None:
            axis, at = cut
            lo, hi = box[axis]
            stack += [(*box[:axis], part, *box[axis + 1 :]) for part in ((at, hi), (lo, at))]
            continue
        chosen: Chosen = {}
        for e, places in found:
            chosen[e.outputs[0]] = e.inputs[1], None
            for x, place in places:
                if _inside(box, place):
                    root, layout = a.access(x)
                    chosen[e.outputs[0]] = root, within(layout, box, [lo for lo, _ in place])
        out.append((box, chosen))
    return out


def settled(eqns: Sequence[Eqn], results: Sequence[Atom], chosen: Chosen) -> list[Eqn]:
    """The equations whose values a box needs; a choice between two that is known there is added to `chosen`."""
    for e in eqns:
        if e.prim.name == "select" and type(e.inputs[0]) is Var and e.inputs[0] in chosen:
            mask = chosen[e.inputs[0]][0]
            if type(mask) is Lit:
                taken = e.inputs[1] if mask.value else e.inputs[2]
                chosen[e.outputs[0]] = chosen.get(taken, (taken, None)) if type(taken) is Var else (taken, None)
    needed: set[Atom] = {chosen[v][0] if type(v) is Var and v in chosen else v for v in results}
    out = []
    for e in reversed(eqns):
        if e.outputs[0] in needed and e.outputs[0] not in chosen:
            out.append(e)
            needed.update(chosen[v][0] if type(v) is Var and v in chosen else v for v in e.inputs)
    return out[::-1]


def _cut(box: Box, place: Box) -> tuple[int, int] | None:
    """Where a box that an operand's place partly covers is to be cut."""
    if any(lo >= stop or hi <= start for (lo, hi), (start, stop) in zip(box, place, strict=True)):
        return None
    for axis, ((lo, hi), (start, stop)) in enumerate(zip(box, place, strict=True)):
        for at in (start, stop):
            if lo < at < hi:
                return axis, at
    return None


def _inside(box: Box, place: Box) -> bool:
    return all(start <= lo and hi <= stop for (lo, hi), (start, stop) in zip(box, place, strict=True))
