"""Writing at an index: `x[index] = v`, and `x.at[index]`, changed copies of x as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, broadcast_to_shape, iota, operand, result_type, tensor
from fxgrad.numpy.indexing import Item, broadcast_indices, canonical_entry, consumed, destination_of, getitem, parse, take_basic
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import index as ix
from fxgrad.primitives import shape as s
from fxgrad.trace.mutation import copied, is_array, renew, store, view_of
from fxgrad.trace.steps import Window
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace

__all__ = ["At", "fitted", "modify_at", "setitem", "write_at"]


def setitem(x: Tracer, index: Any, value: Any) -> None:
    """x[index] = value, in place: x and all views that share its memory show the change."""
    what = "x[...] = v"
    if not is_array(x) and x._place is None:
        raise errors.FxTypeError(
            f"a traced {x.aval} that is a scalar does not support item assignment",
            why="As in NumPy, what reductions and x[i] give is a scalar, not an array of rank 0.",
            fix="Write y = np.array(x) first, or rebind the name: x = v.",
        )
    value = operand(value)
    if not basic(index):
        store(x, write_at(x, index, value, "set"), what)
        return
    window = window_of(x.shape, parse(x.shape, index))
    if type(value) is Tracer and view_of(value, x, window):
        return  # the second half of x[i] += v: it is there already
    store(x, fitted(value, x.dtype, window.result), what, (window,))


def basic(index: Any) -> bool:
    """Whether an index has no arrays: what it selects is a box."""
    entries = index if isinstance(index, tuple) else (index,)
    return all(i is None or i is Ellipsis or isinstance(i, (slice, np.integer)) or type(i) is int for i in entries)


def window_of(shape: tuple[int, ...], items: list[Item]) -> Window:
    """The box that a basic index selects of an array of `shape`."""
    spans = tuple((i.value, 1, 1) if i.kind == "int" else i.value for i in items if i.kind != "new")
    order = tuple(None if i.kind == "new" else i.axis for i in items if i.kind != "int")
    return Window(shape, spans, order)


class At:
    """`x.at[index]`: changed copies of x, as in JAX; the index is any that reading takes.

    Of several `set` writes to one place the last stays; `add` and the other operations count every one. With traced index
    arrays the others (multiply, divide, power, min, max, apply) visit place after place, in a loop; `unique_indices=True`, a
    promise that none occurs twice, lets them visit all at once.
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
        return write_at(self._x, self._index, value, "set")

    def add(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with value added at the index; an index that occurs twice gets both."""
        return write_at(self._x, self._index, _castable(self._x, value, "add"), "add")

    def subtract(self, value: Any, *, unique_indices: bool = False) -> Any:
        """x with value subtracted at the index."""
        return write_at(self._x, self._index, e.neg(_castable(self._x, value, "subtract")), "add")

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


def modify_at(x: Any, index: Any, value: Any, function: Callable[..., Any], name: str) -> Any:
    """x after `ufunc.at(x, index, value)`; `function` is the ufunc's, and value None if it takes one operand."""
    if name in ("add", "subtract"):
        v = _castable(x, value, name)
        return write_at(x, index, v if name == "add" else e.neg(v), "add")
    op = (lambda old, _: function(old)) if value is None else function
    return _modify(x, index, value, op, name, False)


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


def fitted(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
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
            fix="Give a value of that shape, or one that broadcasts to it: v[:, None] lines its axis up with rows.",
        )
    return broadcast_to_shape(v, shape)


def _through_mask(x: Any, index: Any, value: Any, op: Callable[[Any, Any], Any]) -> Any:
    """Write where a traced mask holds, by selection: its values are not needed.

    None if the index is not of that kind, or the value is not the same for all places of the mask.
    """
    entries = [canonical_entry(i) for i in (index if isinstance(index, tuple) else (index,))]
    where = [k for k, i in enumerate(entries) if type(i) is Tracer and i.dtype.kind == "b" and i.ndim]
    if (
        len(where) != 1
        or any(hasattr(i, "dtype") for k, i in enumerate(entries) if k != where[0])
        or None in [i for i in entries if not hasattr(i, "dtype")]
    ):
        return None
    mask = entries[where[0]]
    basic = (*entries[: where[0]], *[slice(None)] * mask.ndim, *entries[where[0] + 1 :])
    items = parse(x.shape, basic)
    region, places = take_basic(x, items, keep_ints=False)
    first = _mask_axis(x.shape, entries, where[0])
    at = places[id(items[first])]
    if region.shape[at : at + mask.ndim] != mask.shape:
        return None
    ints = [k for k, i in enumerate(items) if i.kind == "int"]
    group = sorted([*ints, *range(first, first + mask.ndim)])
    front = bool(ints) and group[-1] - group[0] != len(group) - 1
    if value is not None:
        value = tensor(as_dtype(operand(value), x.dtype))
        rank = region.ndim - mask.ndim + 1
        shape = (1,) * (rank - value.ndim) + value.shape
        place = 0 if front else at
        if len(shape) != rank or shape[place] != 1:
            return None
        rest = [n for k, n in enumerate(shape) if k != place]
        value = fitted(s.reshape(value, shape=(*rest[:at], *[1] * mask.ndim, *rest[at:])), x.dtype, region.shape)
    wide = s.broadcast(mask, shape=region.shape, dims=tuple(range(at, at + mask.ndim)))
    new = e.select(wide, as_dtype(op(region, value), x.dtype), region)
    return new if new.shape == x.shape and region is x else write_at(x, basic, new, "set")


def _mask_axis(shape: tuple[int, ...], entries: list[Any], where: int) -> int:
    """The axis of an array of `shape` at which the entry number `where` starts."""
    used = sum(consumed(i) for i in entries if i is not Ellipsis)
    return sum(len(shape) - used if i is Ellipsis else consumed(i) for i in entries[:where])


def write_at(x: Any, index: Any, value: Any, mode: str) -> Any:
    """x with value written (mode "set") or added at the index.

    One strided update for ints and slices, a selection for traced masks, a scatter for the rest.
    """
    masked = _through_mask(x, index, value, (lambda old, v: v) if mode == "set" else e.add)
    if masked is not None:
        return masked
    items = parse(x.shape, index)
    chosen = [i for i in items if i.kind in ("array", "bool")]
    if not chosen:
        window = window_of(x.shape, items)
        u = fitted(value, x.dtype, window.result)
        if not u.size:
            return _fresh(x, x)
        return _fresh(window.write(lambda: x, u if mode == "set" else e.add(window.read(x), u)), x)
    if any(type(i.value) is Tracer for i in chosen) or _writes_rows(x, items):
        return _write_arrays(x, items, value, mode)
    positions = np.arange(x.size).reshape(x.shape)[_concrete(items)]
    updates = fitted(value, x.dtype, positions.shape)
    if not positions.size:
        return _fresh(x, x)
    flat = ix.scatter(s.reshape(x, shape=(x.size,)), updates, np.asarray(positions), axes=(0,), mode=mode)
    return s.reshape(flat, shape=x.shape)


def _fresh(y: Any, x: Any) -> Any:
    """A copy of y, which may be an operand, or a view of one; traced if x is."""
    if type(x) is Tracer:
        renew(x)  # raises if it has leaked
        trace = current_trace()
        return copied(y) if type(y) is Tracer or trace is None else Tracer(trace, trace.atom(y))  # type: ignore[arg-type]
    return np.array(y) if np.ndim(y) else np.array(y)[()]


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


def _writes_rows(x: Any, items: list[Item]) -> bool:
    """Whether known index arrays lead to whole rows, so that one index each is enough."""
    kinds, last = {i.kind for i in items}, items[-1]
    if not kinds <= {"array", "int", "slice"} or "array" not in kinds or last.kind != "slice":
        return False
    return x.shape[-1] > 1 and last.value == (0, x.shape[-1], 1) and all(i.value.size for i in items if i.kind == "array")


def _write_arrays(x: Any, items: list[Item], value: Any, mode: str) -> Any:
    """Slices that do not take a whole axis become index arrays too, traced or known ones, and all go into one scatter."""
    items = (
        [i for i in items if i.kind not in ("new", "bool")]
        if not any(i.kind in ("new", "bool") for i in items)
        else _refuse_new(items)
    )
    chosen = [i for i in items if i.kind in ("array", "int")]
    partial = [i for i in items if i.kind == "slice" and i.value != (0, x.shape[i.axis], 1)]
    whole = [i for i in items if i.kind == "slice" and i not in partial]
    arrays, lead = broadcast_indices([i.value if i.kind == "array" else np.asarray(i.value) for i in chosen])
    lengths = tuple(i.value[1] for i in partial)
    # the shape of x[index], and from it the order (index arrays, partial slices, whole slices)
    kept = [i for i in items if i.kind == "slice"]
    places = _basic_places(items)
    destination = destination_of(chosen, tuple(places[id(i)] for i in chosen))
    before, after = kept[:destination], kept[destination:]
    shape = (*(i.value[1] for i in before), *lead, *(i.value[1] for i in after))
    updates = fitted(value, x.dtype, shape)
    axis_of = {id(i): k if k < len(before) else k + len(lead) for k, i in enumerate(kept)}
    perm = (*range(len(before), len(before) + len(lead)), *(axis_of[id(i)] for i in partial), *(axis_of[id(i)] for i in whole))
    updates = s.transpose(updates, perm=perm) if perm != tuple(range(len(perm))) else updates
    full = (*lead, *lengths)
    grid = [s.broadcast(a, shape=full, dims=tuple(range(len(lead)))) if lengths else a for a in arrays]
    for k, i in enumerate(partial):
        start, length, step = i.value
        count = e.add(e.mul(iota((length,)), np.int64(step)), np.int64(start))
        grid.append(s.broadcast(count, shape=full, dims=(len(lead) + k,)))
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
    if value is not None:
        value = _castable(x, value, name)
    masked = _through_mask(x, index, value, op)
    if masked is not None:
        return masked
    items = parse(x.shape, index)
    arrays = [i.value for i in items if i.kind == "array"]
    traced = any(type(a) is Tracer for a in arrays)
    if traced and not unique and any(np.prod(a.shape) > 1 for a in arrays):
        return _modify_in_turn(x, index, value, op)
    old = getitem(x, index)
    if not traced and arrays and not unique:
        positions = np.arange(x.size).reshape(x.shape)[_concrete(items)]
        if np.unique(positions).size < positions.size:
            return _modify_repeated(x, positions, value, op)
    return write_at(x, index, as_dtype(op(old, value), x.dtype), "set")


def _modify_in_turn(x: Any, index: Any, value: Any, op: Callable[..., Any]) -> Any:
    """Traced places, of which one may occur several times, are visited one after the other."""
    from fxgrad.control import scan

    positions = getitem(s.reshape(iota((x.size,)), shape=x.shape), index)
    n = positions.size
    if not n:
        return _fresh(x, x)
    values = None if value is None else s.reshape(fitted(value, x.dtype, positions.shape), shape=(n,))

    def visit(flat: Any, turn: Any) -> tuple[Any, None]:
        place, v = turn
        new = op(ix.gather(flat, place, axes=(0,)), v)
        return ix.scatter(flat, as_dtype(new, x.dtype), place, axes=(0,), mode="set"), None

    flat, _ = scan(visit, s.reshape(x, shape=(x.size,)), (s.reshape(positions, shape=(n,)), values))
    return s.reshape(flat, shape=x.shape)


def _modify_repeated(x: Any, positions: np.ndarray, value: Any, op: Callable[..., Any]) -> Any:
    """Places that occur several times are visited as often: in rounds, each of which has every place at most once."""
    flat = s.reshape(x, shape=(x.size,))
    values = None if value is None else s.reshape(fitted(value, x.dtype, positions.shape), shape=(positions.size,))
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
