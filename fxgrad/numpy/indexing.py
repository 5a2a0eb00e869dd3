"""Reading x[index] as NumPy has it: basic, advanced and mixed indices.

An index is taken apart into items, one or more for each axis. Slices and new axes become slices, reversals and reshapes;
integer and boolean arrays become one gather. A boolean mask fixes a shape, so its values must be known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import broadcast_to_shape, is_traced, operand, tensor
from fxgrad.primitives import index as ix
from fxgrad.primitives import shape as s
from fxgrad.trace.mutation import copied, note_view
from fxgrad.trace.tracer import Tracer

__all__ = ["Item", "getitem", "parse"]

_INVALID = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"


class Item:
    """One part of an index: kind is "slice", "new", "int" or "array" (an integer array)."""

    __slots__ = ("axis", "kind", "position", "value")

    def __init__(self, kind: str, value: Any, axis: int, position: int):
        self.kind, self.value, self.axis, self.position = kind, value, axis, position


# ---- taking an index apart ---------------------------------------------------------------------------------------------


def known_mask(mask: Any) -> np.ndarray:
    """The values of a boolean mask; under jit an error that names the spellings with a fixed shape."""
    if type(mask) is not Tracer:
        return np.asarray(mask)
    return np.asarray(
        mask._known(
            "a boolean mask, whose values fix the shape of the result",
            "Keep the shape: np.where(mask, x, 0), np.sum(x, where=mask); or compute the mask outside the transformed function.",
        )
    )


def known_values(x: Any, what: str, sized: str) -> np.ndarray:
    """The values of x; where they are not known, an error that says to give `sized` a size."""
    if type(x) is not Tracer:
        return np.asarray(x)
    return np.asarray(x._known(what, f"Write {sized}(..., size=n) to fix the size, or call it outside the transformed function."))


def within(i: Any, n: int, what: str) -> Any:
    """Integers i, all of them in 0..n-1; a ValueError if not, at once or (of traced ones) when their values are there."""
    if type(i) is Tracer:
        return ix.within(i, n=n, what=what)
    check: Any = ix.within.numpy
    check(i, n=n, what=what)
    return i


def canonical_entry(i: Any) -> Any:
    """One entry of an index in canonical form: None, Ellipsis, a slice, an int, or a (traced) integer or boolean array."""
    if i is None or i is Ellipsis or isinstance(i, slice):
        return i
    if isinstance(i, (bool, np.bool_)):
        return np.asarray(i)
    if isinstance(i, (int, np.integer)):
        return int(i)
    if isinstance(i, (list, tuple)) and not is_traced(i):
        i = np.asarray(i)
        i = i.astype(np.int64) if i.size == 0 else i
    if isinstance(i, (float, complex, str, bytes, dict, set)):
        raise IndexError(_INVALID)
    i = i if type(i) is Tracer else operand(i)
    if getattr(i, "dtype", np.dtype(float)).kind not in "iub":
        if hasattr(i, "__index__") and not hasattr(i, "dtype"):
            return i.__index__()
        raise IndexError("arrays used as indices must be of integer (or boolean) type" if np.ndim(i) else _INVALID)
    return int(i) if type(i) is not Tracer and i.dtype.kind in "iu" and not i.ndim else i


def consumed(entry: Any) -> int:
    """How many axes an entry uses up."""
    if entry is None:
        return 0
    return entry.ndim if hasattr(entry, "dtype") and entry.dtype.kind == "b" else 1


def parse(shape: tuple[int, ...], index: Any) -> list[Item]:
    """The items of an index into an array of `shape`, one or more for each axis in order."""
    entries = [canonical_entry(i) for i in (index if isinstance(index, tuple) else (index,))]
    if sum(x is Ellipsis for x in entries) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(consumed(x) for x in entries if x is not Ellipsis)
    ndim = len(shape)
    if used > ndim:
        raise errors.FxIndexError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed",
            why=f"The array has shape {shape}.",
            fix="Index with at most one entry for each axis; np.newaxis adds one.",
        )
    fill = [slice(None)] * (ndim - used)
    where = next((i for i, x in enumerate(entries) if x is Ellipsis), None)
    entries = [*entries, *fill] if where is None else [*entries[:where], *fill, *entries[where + 1 :]]
    # a position counts the places in the index as written; an ellipsis that stands for no axis still separates
    items, axis = [], 0
    for position, x in enumerate(entries):
        gap = position + (1 if where is not None and not fill and position >= where else 0)
        items += _items_of(x, shape, axis, gap)
        axis += consumed(x)
    return items


def _items_of(x: Any, shape: tuple[int, ...], axis: int, position: int) -> list[Item]:
    if x is None:
        return [Item("new", None, axis, position)]
    if isinstance(x, slice):
        return [Item("slice", _slice_indices(x, shape[axis]), axis, position)]
    if isinstance(x, int):
        if not -shape[axis] <= x < shape[axis]:
            raise errors.FxIndexError(
                f"index {x} is out of bounds for axis {axis} with size {shape[axis]}",
                why=f"The array has shape {shape}.",
                fix=f"Its positions are {-shape[axis]} to {shape[axis] - 1}; a slice may reach beyond the end.",
            )
        return [Item("int", x % shape[axis], axis, position)]
    if x.dtype.kind == "b":
        return _mask_items(x, shape, axis, position)
    if type(x) is not Tracer:
        check_bounds(x, shape[axis], axis, shape)
    return [Item("array", x, axis, position)]


def _slice_indices(x: slice, n: int) -> tuple[int, int, int]:
    """(start, length, step); bounds may be tracers of known value."""
    for part in (x.start, x.stop, x.step):
        if part is not None and not hasattr(part, "__index__"):
            raise TypeError("slice indices must be integers or None or have an __index__ method")
    if type(x.start) is Tracer or type(x.stop) is Tracer:
        x = slice(*(None if p is None else _known_bound(p) for p in (x.start, x.stop, x.step)))
    start, stop, step = x.indices(n)
    return start, len(range(start, stop, step)), step


def _known_bound(p: Any) -> int:
    if type(p) is not Tracer:
        return p.__index__()
    return int(
        p._known(
            "the bound of a slice, which fixes a shape",
            "Use fx.lax.dynamic_slice(x, starts, sizes), whose sizes are fixed and whose starts are not.",
        )
    )


def _mask_items(mask: Any, shape: tuple[int, ...], axis: int, position: int) -> list[Item]:
    for i, n in enumerate(mask.shape):
        if n != shape[axis + i]:
            raise errors.FxIndexError(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis is {shape[axis + i]} "
                f"but size of corresponding boolean axis is {n}",
                why=f"The array has shape {shape}, the mask {mask.shape}.",
                fix="Make the mask from the array it indexes: x[x > 0].",
            )
    values = known_mask(mask)
    if values.ndim == 0:  # a scalar mask adds an axis of length 0 or 1
        return [Item("bool", np.zeros(int(bool(values)), np.int64), axis, position)]
    return [Item("array", i, axis + k, position) for k, i in enumerate(values.nonzero())]


def check_bounds(i: np.ndarray, n: int, axis: int, shape: tuple[int, ...]) -> None:
    if not i.size:
        return
    low, high = int(i.min()), int(i.max())
    if low < -n or high >= n:
        raise ix.beyond(high if high >= n else low, n, axis, shape)


# ---- reading -----------------------------------------------------------------------------------------------------------


def getitem(x: Any, index: Any, view: bool = False) -> Any:
    """x[index], with all of NumPy's indexing; index arrays may be traced, boolean masks and slice bounds must be known.

    With `view`, the result is noted as a view of x where it is one: where no arrays are in the index, and it is no scalar.
    """
    base, x = x, tensor(x)
    items = parse(x.shape, index)
    advanced = [i for i in items if i.kind in ("array", "bool")]
    y, places = take_basic(x, items, keep_ints=bool(advanced))
    if not advanced:
        scalar = not y.shape and not (index is Ellipsis or (isinstance(index, tuple) and any(i is Ellipsis for i in index)))
        if not view:
            return y
        return note_view(y, base) if not scalar else y if y is not x else copied(y)
    chosen = [i for i in items if i.kind in ("array", "bool", "int")]
    arrays, shape = broadcast_indices([i.value if i.kind != "int" else np.asarray(i.value) for i in chosen])
    axes = tuple(places[id(i)] for i in chosen)
    z = ix.gather(y, *arrays, axes=axes)
    return place_axes(z, len(shape), destination_of(chosen, axes))


def broadcast_indices(arrays: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Index arrays in one shape."""
    shapes = [i.shape for i in arrays]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise errors.FxIndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {' '.join(map(str, shapes))}",
            why="Index arrays are combined element by element.",
            fix="Use np.ix_(i, j) or i[:, None] to take every combination.",
        ) from None
    return [broadcast_to_shape(i, shape) for i in arrays], shape


def destination_of(chosen: list[Item], axes: tuple[int, ...]) -> int:
    """Where the axes of the index arrays go: to the place of the first if the arrays are neighbours, else to the front."""
    positions = sorted({i.position for i in chosen})
    adjacent = positions[-1] - positions[0] == len(positions) - 1
    return min(axes) if adjacent else 0


def place_axes(z: Any, rank: int, destination: int) -> Any:
    """Move the leading `rank` axes of z to `destination`."""
    if destination == 0 or rank == 0:
        return z
    rest = list(range(rank, z.ndim))
    return s.transpose(z, perm=(*rest[:destination], *range(rank), *rest[destination:]))


def take_basic(x: Any, items: list[Item], keep_ints: bool) -> tuple[Any, dict[int, int]]:
    """Slices, new axes and (unless they join index arrays) integers; and the axis of the result at which each item stands."""
    start: list[int] = []
    stop: list[int] = []
    step: list[int] = []
    backward: list[int] = []
    shape: list[int] = []
    places: dict[int, int] = {}
    for item in items:
        places[id(item)] = len(shape)
        if item.kind in ("new", "bool"):
            shape.append(1)
            continue
        n = x.shape[item.axis]
        if item.kind == "slice":
            first, length, stride = item.value
            if stride < 0:
                backward.append(len(start))
                first, stride = first + (length - 1) * stride if length else 0, -stride
            first = first if length else 0
            start.append(first)
            stop.append(first + (length - 1) * stride + 1 if length else first)
            step.append(stride if length > 1 else 1)
            shape.append(length)
        elif item.kind == "int" and not keep_ints:
            start.append(item.value)
            stop.append(item.value + 1)
            step.append(1)
        else:
            start.append(0)
            stop.append(n)
            step.append(1)
            shape.append(n)
    if tuple(stop) != x.shape or any(start) or any(k != 1 for k in step):
        x = s.slice_(x, start=tuple(start), stop=tuple(stop), step=tuple(step))
    if backward:
        x = s.reverse(x, axes=tuple(backward))
    return (x if x.shape == tuple(shape) else s.reshape(x, shape=tuple(shape))), places
