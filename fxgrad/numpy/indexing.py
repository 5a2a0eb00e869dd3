"""Indexing as NumPy has it: basic, advanced and mixed; `x.at[...]`; take and its kin.

An index is taken apart into items, one or more for each axis. Slices and new axes become slices, reversals and reshapes; integer and
boolean arrays become one gather. A boolean mask fixes a shape, so its values must be known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import (
    as_dtype, broadcast_to_shape, canonical_axis, iota, is_traced, operand, result_type, static_int, tensor,
)  # fmt: skip
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import index as ix
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer

__all__ = [
    "At", "argwhere", "choose", "compress", "diagonal", "extract", "flatnonzero", "getitem", "nonzero", "piecewise", "select", "take", "take_along_axis",
    "trace",
]  # fmt: skip

_INVALID = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"


class Item:
    """One part of an index: kind is "slice", "new", "int" or "array" (an integer array)."""

    __slots__ = ("axis", "kind", "position", "value")

    def __init__(self, kind: str, value: Any, axis: int, position: int):
        self.kind, self.value, self.axis, self.position = kind, value, axis, position


# ---- taking an index apart ---------------------------------------------------------------------------------------------


def _known_mask(mask: Any) -> np.ndarray:
    """The values of a boolean mask; under jit an error that names the spellings with a fixed shape."""
    if type(mask) is not Tracer:
        return np.asarray(mask)
    return np.asarray(
        mask._known(
            "a boolean mask, whose values fix the shape of the result",
            "Keep the shape: np.where(mask, x, 0), np.sum(x, where=mask); or compute the mask outside the transformed function.",
        )
    )


def _entry(i: Any) -> Any:
    """One entry of an index in canonical form: None, Ellipsis, a slice, an int, or an integer or boolean array (traced or not)."""
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


def _consumed(entry: Any) -> int:
    """How many axes an entry uses up."""
    if entry is None:
        return 0
    return entry.ndim if hasattr(entry, "dtype") and entry.dtype.kind == "b" else 1


def parse(shape: tuple[int, ...], index: Any) -> list[Item]:
    """The items of an index into an array of `shape`, one or more for each axis in order."""
    entries = [_entry(i) for i in (index if isinstance(index, tuple) else (index,))]
    if sum(x is Ellipsis for x in entries) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(_consumed(x) for x in entries if x is not Ellipsis)
    ndim = len(shape)
    if used > ndim:
        raise errors.FxIndexError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed", why=f"The array has shape {shape}."
        )
    fill = [slice(None)] * (ndim - used)
    where = next((i for i, x in enumerate(entries) if x is Ellipsis), None)
    entries = [*entries, *fill] if where is None else [*entries[:where], *fill, *entries[where + 1 :]]
    # a position counts the places in the index as written; an ellipsis that stands for no axis still separates
    items, axis = [], 0
    for position, x in enumerate(entries):
        gap = position + (1 if where is not None and not fill and position >= where else 0)
        items += _items_of(x, shape, axis, gap)
        axis += _consumed(x)
    return items


def _items_of(x: Any, shape: tuple[int, ...], axis: int, position: int) -> list[Item]:
    if x is None:
        return [Item("new", None, axis, position)]
    if isinstance(x, slice):
        return [Item("slice", _slice_indices(x, shape[axis]), axis, position)]
    if isinstance(x, int):
        if not -shape[axis] <= x < shape[axis]:
            raise errors.FxIndexError(f"index {x} is out of bounds for axis {axis} with size {shape[axis]}", why=f"The array has shape {shape}.")
        return [Item("int", x % shape[axis], axis, position)]
    if x.dtype.kind == "b":
        return _mask_items(x, shape, axis, position)
    if type(x) is not Tracer:
        _check_bounds(x, shape[axis], axis, shape)
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
    return int(p._known("the bound of a slice, which fixes a shape", "Use fx.lax.dynamic_slice(x, starts, sizes), whose sizes are fixed and whose starts are not."))


def _mask_items(mask: Any, shape: tuple[int, ...], axis: int, position: int) -> list[Item]:
    for i, n in enumerate(mask.shape):
        if n != shape[axis + i]:
            raise errors.FxIndexError(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis is {shape[axis + i]} but size of corresponding boolean axis is {n}",
                why=f"The array has shape {shape}, the mask {mask.shape}.",
            )
    values = _known_mask(mask)
    if values.ndim == 0:  # a scalar mask adds an axis of length 0 or 1
        return [Item("bool", np.zeros(int(bool(values)), np.int64), axis, position)]
    return [Item("array", i, axis + k, position) for k, i in enumerate(values.nonzero())]


def _check_bounds(i: np.ndarray, n: int, axis: int, shape: tuple[int, ...]) -> None:
    if not i.size:
        return
    low, high = int(i.min()), int(i.max())
    if low < -n or high >= n:
        bad = high if high >= n else low
        raise errors.FxIndexError(f"index {bad} is out of bounds for axis {axis} with size {n}", why=f"The array has shape {shape}.")


# ---- reading -----------------------------------------------------------------------------------------------------------


def getitem(x: Any, index: Any) -> Any:
    """x[index], with all of NumPy's indexing; index arrays may be traced, boolean masks and slice bounds must be known."""
    x = tensor(x)
    items = parse(x.shape, index)
    advanced = [i for i in items if i.kind in ("array", "bool")]
    y, places = _basic(x, items, keep_ints=bool(advanced))
    if not advanced:
        return y
    chosen = [i for i in items if i.kind in ("array", "bool", "int")]
    arrays, shape = _broadcast_indices([i.value if i.kind != "int" else np.asarray(i.value) for i in chosen])
    axes = tuple(places[id(i)] for i in chosen)
    z = ix.gather(y, *arrays, axes=axes)
    return _place(z, len(shape), _destination(chosen, axes))


def _broadcast_indices(arrays: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
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


def _destination(chosen: list[Item], axes: tuple[int, ...]) -> int:
    """Where the axes of the index arrays go: to the place of the first if the arrays are next to each other, else to the front."""
    positions = sorted({i.position for i in chosen})
    adjacent = positions[-1] - positions[0] == len(positions) - 1
    return min(axes) if adjacent else 0


def _place(z: Any, rank: int, destination: int) -> Any:
    """Move the leading `rank` axes of z to `destination`."""
    if destination == 0 or rank == 0:
        return z
    rest = list(range(rank, z.ndim))
    return s.transpose(z, perm=(*rest[:destination], *range(rank), *rest[destination:]))


def _basic(x: Any, items: list[Item], keep_ints: bool) -> tuple[Any, dict[int, int]]:
    """Slices, new axes and (unless they join index arrays) integers; and the axis of the result at which each item stands."""
    start, stop, step, backward, shape = [], [], [], [], []
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


# ---- writing -----------------------------------------------------------------------------------------------------------


class At:
    """`x.at[index]`: changed copies of x, as in JAX; the index is any that reading takes.

    Of several `set` writes to one place the last stays; `add` and the other operations count every one. With traced index arrays the
    others (multiply, divide, power, min, max, apply) need `unique_indices=True`, a promise that no place occurs twice.
    """

    __slots__ = ("_x",)

    def __init__(self, x: Any):
        self._x = tensor(x)

    def __getitem__(self, index: Any) -> _Place:
        return _Place(self._x, index)


class _Place:
    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any):
        self._x, self._index = x, index

    def get(self) -> Any:
        """x[index]."""
        return getitem(self._x, self._index)

    def set(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with value written at the index."""
        return _write(self._x, self._index, value, "set")

    def add(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with value added at the index; an index that occurs twice gets both."""
        return _write(self._x, self._index, _castable(self._x, value, "add"), "add")

    def subtract(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with value subtracted at the index."""
        return _write(self._x, self._index, e.neg(_castable(self._x, value, "subtract")), "add")

    def multiply(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with the elements at the index multiplied by value."""
        from fxgrad.numpy.elementwise import multiply

        return _modify(self._x, self._index, value, multiply, "multiply", unique_indices)

    def divide(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with the elements at the index divided by value."""
        from fxgrad.numpy.elementwise import divide

        return _modify(self._x, self._index, value, divide, "divide", unique_indices)

    def power(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with the elements at the index raised to value."""
        from fxgrad.numpy.elementwise import power

        return _modify(self._x, self._index, value, power, "power", unique_indices)

    def min(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with the smaller of element and value at the index."""
        from fxgrad.numpy.elementwise import minimum

        return _modify(self._x, self._index, value, minimum, "min", unique_indices)

    def max(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with the larger of element and value at the index."""
        from fxgrad.numpy.elementwise import maximum

        return _modify(self._x, self._index, value, maximum, "max", unique_indices)

    def apply(self, function: Callable[[Any], Any], *, unique_indices: bool = False) -> Any:
        """x with function applied to the elements at the index."""
        return _modify(self._x, self._index, None, lambda old, _: function(old), "apply", unique_indices)


def _castable(x: Any, value: Any, name: str) -> Any:
    """value in the dtype of x, if NumPy's in-place operation would take it."""
    value = operand(value)
    if not np.can_cast(result_type(x, value), x.dtype, "same_kind"):
        raise errors.FxTypeError(
            f"x.at[...].{name}: a value of dtype {result_type(value)} does not fit into {x.dtype}",
            why="The result has the dtype of x, as x[...] += v in NumPy.",
            fix=f"Convert one of them: x.astype({result_type(x, value).name}) or value.astype({x.dtype.name}).",
        )
    return as_dtype(value, x.dtype)


def _fitted(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """value in the dtype and shape of what the index selects; leading axes of length 1 may go, as in NumPy."""
    v = tensor(as_dtype(operand(value), dtype))
    extra = v.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in v.shape[:extra]):
        v = s.reshape(v, shape=v.shape[extra:])
    try:
        fits = np.broadcast_shapes(v.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise errors.FxValueError(
            f"shape mismatch: value array of shape {v.shape} could not be broadcast to indexing result of shape {shape}",
            why="The value must broadcast to what the index selects.",
        )
    return broadcast_to_shape(v, shape)


def _write(x: Any, index: Any, value: Any, mode: str) -> Any:
    """The one way to write: a window update for plain slices, a scatter for the rest."""
    items = parse(x.shape, index)
    chosen = [i for i in items if i.kind in ("array", "bool")]
    if not chosen and mode == "set" and all(i.kind != "slice" or i.value[2] == 1 or i.value[1] <= 1 for i in items):
        return _write_window(x, items, value)
    if any(type(i.value) is Tracer for i in chosen):
        return _write_traced(x, items, value, mode)
    positions = np.arange(x.size).reshape(x.shape)[_concrete(items)]
    updates = _fitted(value, x.dtype, positions.shape)
    if not positions.size:
        return x
    flat = ix.scatter(s.reshape(x, shape=(x.size,)), updates, np.asarray(positions), axes=(0,), mode=mode)
    return s.reshape(flat, shape=x.shape)


def _concrete(items: list[Item]) -> tuple:
    """The items as a NumPy index again; the parts of one mask become index arrays, which select the same."""
    out: list[Any] = []
    last = None
    for i in items:
        if last is not None and i.position > last + 1:
            out.append(Ellipsis)  # it stood for no axis, but keeps index arrays apart
        last = i.position
        if i.kind == "slice":
            start, length, step = i.value
            stop = start + length * step
            out.append(slice(start, stop if stop >= 0 else None, step) if length else slice(0, 0))
        elif i.kind == "bool":
            out.append(np.bool_(i.value.size))
        else:
            out.append(i.value)
    return tuple(out)


def _write_window(x: Any, items: list[Item], value: Any) -> Any:
    window, result, starts = [], [], []
    for i in items:
        if i.kind == "new":
            result.append(1)
            continue
        start, length = (i.value, 1) if i.kind == "int" else i.value[:2]
        starts.append(np.int64(start))
        window.append(length)
        result += [length] if i.kind == "slice" else []
    updates = _fitted(value, x.dtype, tuple(result))
    if 0 in window:
        return x
    updates = updates if updates.shape == tuple(window) else s.reshape(updates, shape=tuple(window))
    return updates if tuple(window) == x.shape and x.ndim else s.dynamic_update_slice(x, updates, *starts)


def _write_traced(x: Any, items: list[Item], value: Any, mode: str) -> Any:
    """Index arrays are traced: slices that do not take a whole axis become index arrays too, and all go into one scatter."""
    items = [i for i in items if i.kind not in ("new", "bool")] if not any(i.kind in ("new", "bool") for i in items) else _refuse_new(items)
    chosen = [i for i in items if i.kind in ("array", "int")]
    partial = [i for i in items if i.kind == "slice" and i.value != (0, x.shape[i.axis], 1)]
    whole = [i for i in items if i.kind == "slice" and i not in partial]
    arrays, lead = _broadcast_indices([i.value if i.kind == "array" else np.asarray(i.value) for i in chosen])
    lengths = tuple(i.value[1] for i in partial)
    # the shape of x[index], and from it the order (index arrays, partial slices, whole slices)
    kept = [i for i in items if i.kind == "slice"]
    places = _basic_places(items)
    destination = _destination(chosen, tuple(places[id(i)] for i in chosen))
    before, after = kept[:destination], kept[destination:]
    shape = (*(i.value[1] for i in before), *lead, *(i.value[1] for i in after))
    updates = _fitted(value, x.dtype, shape)
    axis_of = {id(i): k if k < len(before) else k + len(lead) for k, i in enumerate(kept)}
    perm = (*range(len(before), len(before) + len(lead)), *(axis_of[id(i)] for i in partial), *(axis_of[id(i)] for i in whole))
    updates = s.transpose(updates, perm=perm) if perm != tuple(range(len(perm))) else updates
    full = (*lead, *lengths)
    grid = [s.broadcast(a, shape=full, dims=tuple(range(len(lead)))) if lengths else a for a in arrays]
    for k, i in enumerate(partial):
        start, length, step = i.value
        count = e.add(e.mul(iota((length,)), np.int64(step)), np.int64(start))
        grid.append(s.broadcast(count, shape=full, dims=(len(lead) + k,)))
    grid = [as_dtype(g, np.dtype(np.int64)) if g.dtype.kind == "u" else g for g in grid]
    return ix.scatter(x, updates, *grid, axes=tuple(i.axis for i in (*chosen, *partial)), mode=mode)


def _basic_places(items: list[Item]) -> dict[int, int]:
    """The axis of each item when integers keep theirs."""
    return {id(i): k for k, i in enumerate(items)}


def _refuse_new(items: list[Item]) -> list[Item]:
    raise errors.UnsupportedError(
        "x.at[...] with None or a scalar mask next to traced index arrays is not supported",
        why="New axes add nothing to where a value is written.",
        fix="Leave None out of the index and reshape the value instead.",
    )


def _modify(x: Any, index: Any, value: Any, op: Callable[..., Any], name: str, unique: bool) -> Any:
    items = parse(x.shape, index)
    arrays = [i.value for i in items if i.kind == "array"]
    traced = any(type(a) is Tracer for a in arrays)
    if traced and not unique and any(np.prod(a.shape) > 1 for a in arrays):
        raise errors.UnsupportedError(
            f"x.at[i].{name} with traced indices i needs unique_indices=True",
            why="If an index occurs twice, every occurrence should count, and whether one does is not known while tracing.",
            fix=f"Write x.at[i].{name}(v, unique_indices=True) if no index occurs twice.",
        )
    old = getitem(x, index)
    if value is not None:
        value = _castable(x, value, name)
    if not traced and arrays and not unique:
        positions = np.arange(x.size).reshape(x.shape)[_concrete(items)]
        if np.unique(positions).size < positions.size:
            return _modify_repeated(x, positions, value, op)
    return _write(x, index, as_dtype(op(old, value), x.dtype), "set")


def _modify_repeated(x: Any, positions: np.ndarray, value: Any, op: Callable[..., Any]) -> Any:
    """Places that occur several times are visited as often: in rounds, each of which has every place at most once."""
    flat = s.reshape(x, shape=(x.size,))
    values = None if value is None else s.reshape(_fitted(value, x.dtype, positions.shape), shape=(positions.size,))
    order = np.argsort(positions.ravel(), kind="stable")
    ordered = positions.ravel()[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(first)
    turn = np.empty(positions.size, int)
    turn[order] = np.arange(positions.size) - np.repeat(starts, np.diff(np.append(starts, positions.size)))
    for k in range(turn.max() + 1):
        chosen = np.flatnonzero(turn == k)
        place = positions.ravel()[chosen]
        v = None if values is None else ix.gather(values, chosen, axes=(0,))
        new = op(ix.gather(flat, place, axes=(0,)), v)
        flat = ix.scatter(flat, as_dtype(new, x.dtype), place, axes=(0,), mode="set")
    return s.reshape(flat, shape=x.shape)


# ---- functions -----------------------------------------------------------------------------------------------------------


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    """Elements of `a` at `indices` along an axis (of the flattened array by default), as numpy.take.

    mode: "raise" (out of bounds is an IndexError), "wrap", or "clip". Both operands may be traced.
    """
    from fxgrad.numpy import elementwise as ew
    from fxgrad.numpy.core import refuse_out

    refuse_out("take", out)
    x, i = tensor(a), tensor(indices)
    if isinstance(i, np.ndarray) and not i.size and i.dtype.kind == "f" and isinstance(indices, list):
        i = i.astype(np.int64)
    if i.dtype.kind == "b":
        i = e.convert(i, dtype=np.dtype(np.int64))
    if i.dtype.kind not in "iu":
        raise TypeError(f"Cannot cast array data from {i.dtype!r} to dtype('int64') according to the rule 'safe'")
    if axis is None:
        x, axis = (x if x.ndim == 1 else s.reshape(x, shape=(x.size,))), 0
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    if not n and i.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if mode == "wrap":
        i = ew.remainder(i, n)
    elif mode == "clip":
        i = ew.clip(i, 0, n - 1)
    elif mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{mode}')")
    elif type(i) is not Tracer:
        _check_bounds(np.asarray(i), n, axis, x.shape)
    i = np.asarray(i) if isinstance(i, np.generic) else i
    return _place(ix.gather(x, i, axes=(axis,)), i.ndim, axis)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """Elements of `arr` picked along one axis by an index array of the same rank, as numpy.take_along_axis."""
    x, i = tensor(arr), tensor(indices)
    if i.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if axis is None:
        if i.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        x, axis = (x if x.ndim == 1 else s.reshape(x, shape=(x.size,))), 0
    axis = canonical_axis(axis, x.ndim)
    if i.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    if type(i) is not Tracer:
        _check_bounds(np.asarray(i), x.shape[axis], axis, x.shape)
    rest = np.broadcast_shapes(*[(*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, i)])
    x = broadcast_to_shape(x, (*rest[:axis], x.shape[axis], *rest[axis + 1 :]))
    i = broadcast_to_shape(i, (*rest[:axis], i.shape[axis], *rest[axis + 1 :]))
    grid = [i if k == axis else iota(i.shape, k) for k in range(x.ndim)]
    return ix.gather(x, *grid, axes=tuple(range(x.ndim)))


def nonzero(a: Any) -> tuple:
    """Plain index arrays of the elements that are not zero, as numpy.nonzero; the values must be known (not under jit)."""
    x = operand(a)
    if np.ndim(x) == 0 and type(x) is not Tracer:
        return np.nonzero(x)  # NumPy's error
    return np.nonzero(_known_mask(x))


def flatnonzero(a: Any) -> Any:
    """Plain indices of the elements of the flattened array that are not zero, as numpy.flatnonzero; values must be known."""
    return np.flatnonzero(_known_mask(operand(a)))


def argwhere(a: Any) -> Any:
    """Plain indices of the elements that are not zero, one a row, as numpy.argwhere; values must be known."""
    return np.argwhere(_known_mask(operand(a)))


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """The entries along an axis where a known condition holds, as numpy.compress. The method is x.compress(condition, axis)."""
    from fxgrad.numpy.core import refuse_out

    refuse_out("compress", out)
    mask = _known_mask(operand(condition))
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return take(a, np.flatnonzero(mask), axis)


def extract(condition: Any, arr: Any) -> Any:
    """The elements where a known condition holds, flattened, as numpy.extract."""
    return take(arr, flatnonzero(condition))


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of two axes as a new last axis, as numpy.diagonal."""
    x, k = tensor(a), static_int(offset)
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    i, j = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    n = max(0, min(x.shape[i] + min(k, 0), x.shape[j] - max(k, 0)))
    count = iota((n,))
    row = e.add(count, np.int64(-k)) if k < 0 else count
    column = e.add(count, np.int64(k)) if k > 0 else count
    return _place(ix.gather(x, row, column, axes=(i, j)), 1, x.ndim - 2)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """The sum of a diagonal, as numpy.trace."""
    from fxgrad.numpy.reductions import sum

    return sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Of several choices the first whose condition holds, as numpy.select."""
    from fxgrad.numpy.elementwise import where

    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    conditions = [operand(c) for c in condlist]
    for k, c in enumerate(conditions):
        if getattr(c, "dtype", np.dtype(type(c))).kind != "b":
            raise TypeError(f"invalid entry {k} in condlist: should be boolean ndarray")
    choices = [operand(c) for c in (*choicelist, default)]
    dtype = result_type(*choices)
    *choices, y = [as_dtype(c, dtype) for c in choices]
    for c, v in zip(conditions[::-1], choices[::-1], strict=True):
        y = where(c, v, y)
    return y


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Element by element, the choice that `a` numbers, as numpy.choose."""
    from fxgrad.numpy.manipulation import broadcast_arrays, stack

    i = tensor(a)
    i, *options = broadcast_arrays(i, *choices)
    if mode != "raise":
        from fxgrad.numpy import elementwise as ew

        i = ew.remainder(i, len(options)) if mode == "wrap" else ew.clip(i, 0, len(options) - 1)
    y = take_along_axis(stack(options), i[None], axis=0)
    return y[0]


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """A function defined piece by piece, as numpy.piecewise; every piece is evaluated everywhere and selected from."""
    from fxgrad.numpy.elementwise import where

    x = tensor(x)
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    pieces = list(funclist)
    if len(pieces) == len(conditions) + 1:
        default = pieces.pop()
    elif len(pieces) == len(conditions):
        default = 0
    else:
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected")

    def value(piece: Any) -> Any:
        return as_dtype(operand(piece(x, *args, **kw) if callable(piece) else piece), x.dtype)

    y = broadcast_to_shape(tensor(value(default)), x.shape)
    for c, piece in zip(conditions, pieces, strict=True):
        y = where(c, value(piece), y)
    return y
