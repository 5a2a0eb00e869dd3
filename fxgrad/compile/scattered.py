"""Sums with what was scattered into zeros, as the gradient of `x[i, labels]` is: added where it goes instead.

`a + scatter_add(0, u, i)` becomes `scatter_add(a + 0, u, i)` if every place is met at most once: a + (0 + u) and (a + 0) + u are
the same number then, also for zeros of either sign. So no array of zeros is made, and none is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxgrad.ir.types import Atom, Lit, Var

if TYPE_CHECKING:
    from fxgrad.compile.simplify import Found, Walk

__all__ = ["added"]


def added(w: Walk, x: Atom, y: Atom) -> Found:
    """x + y, one of which is a scatter into zeros that nobody else reads, as a scatter into the other one."""
    for g, other in ((x, y), (y, x)):
        made = w.maker.get(other) if type(other) is Var else None
        if made is None or made.prim.name != "scatter" or made.params["mode"] != "add" or w.uses.get(other, 0) != 1:
            continue
        base, u, *indices = made.inputs
        if g.aval == base.aval and w.is_(base, 0) and _apart(w, indices):
            array = w.emit("add", [g, Lit(g.aval.dtype.type(0))], {})
            return "scatter", [array, u, *indices], made.params
    return None


def _apart(w: Walk, indices: Sequence[Atom]) -> bool:
    """Whether no two index tuples are equal: along every axis of their shape one of the indices counts."""
    counted = {axis for i in indices for axis in _counted(w, i)}
    return all(n == 1 or d in counted for d, n in enumerate(indices[0].aval.shape))


def _counted(w: Walk, index: Atom) -> list[int]:
    """The axis along which an index counts, if that is known."""
    made = w.maker.get(index) if type(index) is Var else None
    if made is None:
        return []
    if made.prim.name == "iota":
        return [made.params["axis"]]
    if made.prim.name == "broadcast":
        dims, shape = made.params["dims"], made.inputs[0].aval.shape
        return [dims[d] for d in _counted(w, made.inputs[0]) if shape[d] == index.aval.shape[dims[d]]]
    return []
