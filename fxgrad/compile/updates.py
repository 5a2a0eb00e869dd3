"""Updates in place: `update_slice` writes its region into the memory of an operand that nobody needs any more.

An updated array lies where its operand lay, if that is an intermediate value and all who read the old one can run before; the
schedule sees to that (`schedule.py`). Otherwise what is outside the region is copied first. A kernel that reads other places
of the array it updates keeps the new region aside, if that is small, else it writes a fresh array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fxgrad.compile.layout import Layout, apply_view, contiguous
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Var

if TYPE_CHECKING:
    from fxgrad.compile.analysis import Analysis
    from fxgrad.compile.fuse import Task

__all__ = [
    "Region",
    "Update",
    "apart",
    "conflict",
    "covers",
    "is_update",
    "made_update",
    "outside",
    "padded_region",
    "region_of",
    "region_shape",
    "settle",
]

Ints = tuple[int, ...]
_BOXES = 1 << 16  # bytes from which on only what is outside the region is copied, box by box


class Region(NamedTuple):
    """x[start:stop:step] in every axis."""

    start: Ints
    stop: Ints
    step: Ints


class Update:
    """An array with a region written: it lies in `home`, as `target` says, after having been `base`, which lay as `source` says.

    `over`: it takes the memory of its base. `aside`: the new region is computed before any of it is written.
    """

    def __init__(self, eqn: Eqn, base: Atom, source: Layout, home: Var, target: Layout, shape: Ints):
        self.eqn, self.base, self.source, self.home, self.target = eqn, base, source, home, target
        self.region: Region | None = region_of(eqn)  # None: several
        place = apply_view("reshape", _part(target, self.region), {"shape": shape})
        assert place is not None
        self.parts = [(eqn.inputs[1], place)]  # what is written where in the memory of `home`
        self.over = self.aside = False
        self.whole = type(base) is Var and base.aval.dtype == home.aval.dtype and _is_all_of(source, base)

    @property
    def place(self) -> Layout:
        """Where what the equation writes goes, in the memory of `home`."""
        return self.parts[0][1]

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""
        return sum(math.prod(place.shape) for _, place in self.parts) * self.home.aval.dtype.itemsize


def is_update(eqn: Eqn) -> bool:
    return eqn.prim.name == "update_slice"


def region_of(eqn: Eqn) -> Region:
    """What a slice reads or an update writes."""
    return Region(eqn.params["start"], eqn.params["stop"], eqn.params["step"])


def padded_region(pad: Eqn) -> Region:
    """Where the operand of a pad stands in its result."""
    low, shape = pad.params["low"], pad.inputs[0].aval.shape
    step = tuple(i + 1 for i in pad.params["interior"])
    stop = tuple(lo + (n - 1) * s + 1 if n else lo for lo, n, s in zip(low, shape, step, strict=True))
    return Region(low, stop, step)


def region_shape(eqn: Eqn) -> Ints:
    return tuple(max(0, -(-(hi - lo) // s)) for lo, hi, s in zip(*region_of(eqn), strict=True))


def covers(eqn: Eqn) -> bool:
    """Whether an update writes every element."""
    return region_shape(eqn) == eqn.outputs[0].aval.shape


def _part(layout: Layout, region: Region) -> Layout:
    found = apply_view("slice", layout, region._asdict())
    assert found is not None
    return found


def _is_all_of(layout: Layout, root: Var) -> bool:
    """Whether a view has each element of the stored array once, in whatever order."""
    step, begin = root.aval.dtype.itemsize, layout.offset
    for n, s in sorted(zip(layout.shape, layout.strides, strict=True), key=lambda axis: abs(axis[1])):
        if n == 1:
            continue
        if abs(s) != step:
            return False
        begin += min(s, 0) * (n - 1)
        step *= n
    return begin == 0 and step == root.aval.nbytes


def made_update(a: Analysis, eqn: Eqn) -> Update:
    """The update an equation asks for; a view tells where its result lies, if that is not in the order of its axes."""
    x, y = eqn.inputs[0], eqn.outputs[0]
    base, source = a.access(x)
    home, target = y, contiguous(y.aval.shape, y.aval.dtype.itemsize)
    all_of = type(base) is Var and base.aval.dtype == y.aval.dtype and _is_all_of(source, base)
    if all_of and (source != target or base.aval.shape != y.aval.shape):
        home, target = Var(base.aval), source
        a.views[y] = home, source
    value, shape = _as_computed(a, eqn.inputs[1], _part(target, region_of(eqn)))
    return Update(Eqn(eqn.prim, [x, value], eqn.params, eqn.outputs, eqn.source), base, source, home, target, shape)


def _as_computed(a: Analysis, value: Atom, region: Layout) -> tuple[Atom, Ints]:
    """What is written, before it was reshaped just for that, and the shape in which it is written."""
    shape, u = region.shape, value
    while type(u) is Var and (p := a.producer.get(u)) is not None and a.kinds[p] == "view":
        made = a.eqns[p]
        if made.prim.name not in ("reshape", "broadcast") or made.inputs[0].aval.size != u.aval.size:
            break
        u = made.inputs[0]
        if apply_view("reshape", region, {"shape": u.aval.shape}) is not None:
            value, shape = u, u.aval.shape
    root = a.root(value)
    if root.aval.shape:
        return value, shape
    return root, () if value.aval.size == 1 else shape


def chains(a: Analysis, numbers: Sequence[int]) -> list[Update]:
    """Updates one after the other of the same array as one update each array."""
    found: dict[Var, list[Update]] = {}  # by the variable that is the array now
    for i in numbers:
        u = a.updates[i]
        before = found.pop(u.base, []) if isinstance(u.base, Var) and a.chained(i) is not None else []
        before.append(u)
        found[u.home] = before
    return [us[0] if len(us) == 1 else _together(us) for us in found.values()]


def _together(us: Sequence[Update]) -> Update:
    first, last = us[0], us[-1]
    out = Update(first.eqn, first.base, first.source, last.home, first.target, first.place.shape)
    out.region, out.parts = None, [part for u in us for part in u.parts]
    return out


def outside(u: Update) -> list[tuple[Layout, Layout]]:
    """What has to be copied from the base to make an array of its own: (where it lies, where it goes)."""
    shape, region = u.target.shape, u.region
    if region is None or u.home.aval.nbytes < _BOXES or any(s != 1 for s in region.step):
        return [(u.source, u.target)]
    out: list[tuple[Layout, Layout]] = []
    lo, hi, ones = [0] * len(shape), list(shape), (1,) * len(shape)
    for d, n in enumerate(shape):
        for begin, end in ((0, region.start[d]), (region.stop[d], n)):
            if begin < end:
                box = Region((*lo[:d], begin, *lo[d + 1 :]), (*hi[:d], end, *hi[d + 1 :]), ones)
                out.append((_part(u.source, box), _part(u.target, box)))
        lo[d], hi[d] = region.start[d], region.stop[d]
    return out


# ---- what a kernel may read of the array it updates ---------------------------------------------------------------------------


def conflict(read: Layout, written: Layout, root: Var) -> bool:
    """Whether a kernel that reads a view of an array, and writes another one in the same turn, may find what it wrote before."""
    together = read.shape == written.shape and read.offset == written.offset
    if together and all(n == 1 or r == w for n, r, w in zip(read.shape, read.strides, written.strides, strict=True)):
        return False
    size = root.aval.dtype.itemsize
    (first, last), (low, high) = _extent(read), _extent(written)
    if last + size <= low or high + size <= first:
        return False
    one, other = _axes(read, root), _axes(written, root)
    if one is None or other is None:
        return True
    return all(_meet(x, y) for x, y in zip(one, other, strict=True))


def _extent(x: Layout) -> tuple[int, int]:
    """The lowest and the highest offset of an element."""
    ways = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    return x.offset + sum(w for w in ways if w < 0), x.offset + sum(w for w in ways if w > 0)


def _axes(x: Layout, root: Var) -> list[tuple[int, int, int]] | None:
    """(first, count, step) along each axis of the stored array, where a view is such a grid of it."""
    strides = contiguous(root.aval.shape, root.aval.dtype.itemsize).strides
    rest, found = _extent(x)[0], []
    for n, s in zip(root.aval.shape, strides, strict=True):
        first, rest = divmod(rest, s)
        found.append((first, 1, 1, n))
    for n, s in zip(x.shape, x.strides, strict=True):
        if n == 1 or s == 0:
            continue
        d = next((d for d, t in enumerate(strides) if abs(s) % t == 0 and root.aval.shape[d] > 1), None)
        if d is None or found[d][1] != 1 or found[d][0] + (n - 1) * (abs(s) // strides[d]) >= found[d][3]:
            return None
        found[d] = (found[d][0], n, abs(s) // strides[d], found[d][3])
    return [(first, count, step) for first, count, step, _ in found]


def _meet(x: tuple[int, int, int], y: tuple[int, int, int]) -> bool:
    """Whether two arithmetic progressions may have a number in common."""
    (a, m, s), (b, n, t) = x, y
    if a + (m - 1) * s < b or b + (n - 1) * t < a:
        return False
    return (a - b) % math.gcd(s if m > 1 else 0, t if n > 1 else 0) == 0 if m > 1 or n > 1 else a == b


def apart(x: Region, y: Region) -> bool:
    """Whether two regions of one array have no element in common."""
    return not all(
        _meet((a, max(1, -(-(b - a) // s)), s), (c, max(1, -(-(d - c) // t)), t)) for a, b, s, c, d, t in zip(*x, *y, strict=True)
    )


def reads_elsewhere(a: Analysis, task: Task, u: Update) -> bool:
    """Whether a task's kernel reads, of the array it updates, what it may have written already."""
    eqns = {e.outputs[0] for e in task.eqns}
    read: list[Layout] = []
    for e in task.eqns:
        for x in e.inputs[1:] if is_update(e) else e.inputs:
            if x in eqns or a.root(x) is not u.base:
                continue
            layout = a.access(x)[1]
            if e in task.gathers and x is e.inputs[0]:
                return True
            if e in task.pieces:  # boxes run one after the other, a view of an operand in each
                return True
            if layout not in read:
                read.append(layout)
    assert isinstance(u.base, Var)
    return any(conflict(_spread(layout, place), place, u.base) for layout in read for _, place in u.parts)


def _spread(layout: Layout, place: Layout) -> Layout:
    return layout if layout.shape else Layout(place.shape, (0,) * len(place.shape), layout.offset)


def settle(a: Analysis, task: Task) -> None:
    """Keep aside what a task in place could read too late; where that is most of the array, it gets memory of its own."""
    for u in task.updates:
        if u.over and reads_elsewhere(a, task, u):
            if 2 * u.nbytes <= u.home.aval.nbytes and len(u.parts) == len(task.updates) == len(task.stored) == 1:
                u.aside = True
            else:
                u.over = False
