"""Turning, rolling, repeating, padding; taking entries out and putting some in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.numpy.core import as_dtype, broadcast_to_shape, canonical_axes, canonical_axis, operand, static_int, tensor
from fxgrad.numpy.manipulation import broadcast_to, concatenate, cut_along, moveaxis, ravel, reshape, reshaped, swapaxes
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer

__all__ = [
    "delete",
    "flip",
    "fliplr",
    "flipud",
    "insert",
    "pad",
    "repeat",
    "resize",
    "roll",
    "rot90",
    "tile",
]


def flip(m: Any, axis: Any = None) -> Any:
    """The elements backwards along axes (all by default), as numpy.flip."""
    x = tensor(m)
    axes = canonical_axes(axis, x.ndim)
    return s.reverse(x, axes=axes) if axes else x


def flipud(m: Any) -> Any:
    """The first axis backwards, as numpy.flipud."""
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    """The second axis backwards, as numpy.fliplr."""
    return flip(m, 1)


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """A rotation by k quarter turns in the plane of two axes, as numpy.rot90."""
    x = tensor(m)
    i, j = (canonical_axis(a, x.ndim) for a in axes)
    if i == j:
        raise ValueError("Axes must be different.")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(x, (i, j))
    return swapaxes(flip(x, j), i, j) if k == 1 else flip(swapaxes(x, i, j), j)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved around along axes, those pushed out coming in again, as numpy.roll; a traced shift of an axis is fine."""
    x = tensor(a)
    if axis is None:
        return reshaped(roll(reshaped(x, (x.size,)), shift, 0), x.shape)
    axes = [canonical_axis(i, x.ndim) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    if len(shifts) == 1:
        shifts *= len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    for n, i in zip(shifts, axes, strict=True):
        x = _roll_one(x, n, i)
    return x


def _roll_one(x: Any, shift: Any, axis: int) -> Any:
    n = x.shape[axis]
    if n == 0:
        return x
    if type(operand(shift)) is Tracer:
        from fxgrad.numpy.core import iota
        from fxgrad.numpy.elementwise import remainder, subtract
        from fxgrad.numpy.selection import take

        return take(x, remainder(subtract(iota((n,)), shift), n), axis=axis)
    k = static_int(shift) % n
    return x if k == 0 else s.concatenate(cut_along(x, axis, n - k, n), cut_along(x, axis, 0, n - k), axis=axis)


def tile(A: Any, reps: Any) -> Any:
    """`A` repeated whole along each axis, as numpy.tile."""
    x = tensor(A)
    counts = [static_int(r) for r in reps] if isinstance(reps, (tuple, list)) or np.ndim(reps) else [static_int(reps)]
    ndim = max(x.ndim, len(counts))
    counts = [1] * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    wide = s.broadcast(
        x,
        shape=tuple(n for pair in zip(counts, shape, strict=True) for n in pair),
        dims=tuple(2 * (ndim - x.ndim + i) + 1 for i in range(x.ndim)),
    )
    return reshaped(wide, tuple(c * n for c, n in zip(counts, shape, strict=True)))


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated along an axis (of the flattened array by default), as numpy.repeat; counts must be known."""
    x = tensor(a)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    counts = _known_counts(repeats)
    if counts.ndim == 0 or counts.size == 1:
        c = int(counts.reshape(()))
        if c < 0:
            raise ValueError("repeats may not contain negative values.")
        shape = (*x.shape[: axis + 1], c, *x.shape[axis + 1 :])
        wide = s.broadcast(x, shape=shape, dims=tuple(i for i in range(len(shape)) if i != axis + 1))
        return reshaped(wide, (*x.shape[:axis], n * c, *x.shape[axis + 1 :]))
    if counts.shape != (n,):
        raise ValueError(f"operands could not be broadcast together with shape ({n},) {counts.shape}")
    from fxgrad.numpy.selection import take

    return take(x, np.repeat(np.arange(n), counts), axis=axis)


def _known_counts(repeats: Any) -> np.ndarray:
    r = operand(repeats)
    if type(r) is Tracer:
        r = r._known("repetition counts, which fix a shape", "Give the counts as Python ints or a plain array.")
    out = np.asarray(r)
    if out.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {out.dtype!r} to dtype('int64') according to the rule 'safe'")
    return out


def resize(a: Any, new_shape: Any) -> Any:
    """`a` repeated or cut to fill a new shape, as numpy.resize."""
    from fxgrad.numpy.core import static_shape
    from fxgrad.numpy.creation import zeros

    x, shape = ravel(a), static_shape(new_shape)
    size = math.prod(shape)
    if not x.size:
        return zeros(shape, x.dtype)
    times = -(-size // x.size)
    return reshape(cut_along(tile(x, times), 0, 0, size), shape)


def _positions(obj: Any, n: int, axis: int) -> Any:
    """Known positions to delete or to insert before: an int, a slice, integers or a mask, as NumPy takes them."""
    if isinstance(obj, slice):
        return obj
    if isinstance(obj, (list, tuple)):
        obj = [static_int(i) if type(i) is Tracer else i for i in obj]
        return np.asarray(obj) if obj else np.asarray(obj, int)
    if type(obj) is Tracer:
        return np.asarray(obj._known("positions, whose number fixes a shape", "Give them as Python ints or a plain array."))
    return obj


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """`arr` without the entries at known positions, as numpy.delete."""
    from fxgrad.numpy.selection import take

    x = tensor(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    return take(x, np.delete(np.arange(n), _positions(obj, n, axis)), axis=axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """`values` inserted before known positions (an int, slice, integers or mask), as numpy.insert."""
    from fxgrad.numpy.selection import take

    x = tensor(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    n, where = x.shape[axis], _positions(obj, x.shape[axis], axis)
    v = tensor(as_dtype(operand(values), x.dtype))
    v = reshaped(v, (1,) * (x.ndim - v.ndim) + v.shape)
    if np.ndim(where) == 0 and not isinstance(where, (slice, np.bool_, bool)):
        v = moveaxis(v, 0, axis)  # NumPy's reading of values beside one position
        count = v.shape[axis]
        order = np.insert(np.arange(n), where, np.arange(n, n + count))
    else:
        where = np.arange(n)[where] if isinstance(where, slice) else np.asarray(where)
        where = np.flatnonzero(where) if where.dtype.kind == "b" else where
        count = where.size if where.size > 1 else v.shape[axis]
        order = np.insert(np.arange(n), where, np.arange(n, n + count))
    shape = list(x.shape)
    shape[axis] = count
    return take(concatenate([x, broadcast_to(v, tuple(shape))], axis), order, axis=axis)


# ---- padding ---------------------------------------------------------------------------------------------------------


def _pairs(width: Any, ndim: int, what: str) -> list[tuple[Any, Any]]:
    """((before, after), ...) for each axis from NumPy's short forms; entries may be traced."""
    if isinstance(width, dict):
        named = {canonical_axis(k, ndim): v for k, v in width.items()}
        return [tuple(v) if isinstance(v := named.get(i, 0), (tuple, list)) else (v, v) for i in range(ndim)]
    if isinstance(width, np.ndarray):
        width = width.tolist()
    if not isinstance(width, (tuple, list)):
        return [(width, width)] * ndim
    rows = [tuple(w) if isinstance(w, (tuple, list, np.ndarray)) else w for w in width]
    if all(not isinstance(w, tuple) for w in rows):
        pair = (rows[0], rows[0]) if len(rows) == 1 else tuple(rows)
        if len(pair) != 2:
            raise ValueError(f"operands could not be broadcast together with remapped shapes: {what} {width} for rank {ndim}")
        return [pair] * ndim
    pairs = [(w[0], w[0]) if len(w) == 1 else w for w in rows]
    pairs = pairs * ndim if len(pairs) == 1 else pairs
    if len(pairs) != ndim:
        raise ValueError(f"{what} has {len(pairs)} entries, the array has rank {ndim}")
    return pairs


_OPTIONS = {
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "edge": (),
    "wrap": (),
    "empty": (),
}


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """`array` with borders, as numpy.pad, in all modes; constants and end values may be traced.

    mode: a name, with the options constant_values, end_values, stat_length and reflect_type; or a function, which is called
    with (vector, widths, axis, options) for every vector along every axis and answers the vector with its border filled.
    """
    x = tensor(array)
    widths = [(static_int(a), static_int(b)) for a, b in _pairs(pad_width, x.ndim, "pad_width")]
    if any(min(pair) < 0 for pair in widths):
        raise ValueError("index can't contain negative values")
    if callable(mode):
        return _pad_by(x, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise ValueError(f"mode '{mode}' is not supported")
    if unknown := set(kwargs) - set(_OPTIONS[mode]):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, kwargs.get("constant_values", 0))
    options = {"reflect_type": kwargs.get("reflect_type", "even")}
    ends = _pairs(kwargs.get("end_values", 0), x.ndim, "end_values")
    lengths = _pairs(kwargs.get("stat_length"), x.ndim, "stat_length")
    for axis, pair in enumerate(widths):
        if not any(pair):
            continue
        if not x.shape[axis]:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        if mode == "linear_ramp":
            x = _pad_ramp(x, axis, pair, ends[axis])
        elif mode in ("maximum", "mean", "median", "minimum"):
            x = _pad_statistic(x, axis, pair, lengths[axis], mode)
        elif options["reflect_type"] == "odd" and mode in ("reflect", "symmetric"):
            x = _pad_odd(x, axis, pair, mode)
        else:
            x = _pad_taken(x, axis, pair, mode, options)
    return x


def _pad_taken(x: Any, axis: int, pair: tuple[int, int], mode: str, options: dict[str, Any]) -> Any:
    """Modes in which the border repeats elements."""
    from fxgrad.numpy.selection import take

    plain: Any = np.pad
    options = options if mode in ("reflect", "symmetric") else {}
    return take(x, plain(np.arange(x.shape[axis]), pair, mode=mode, **options), axis=axis)


def _pad_odd(x: Any, axis: int, pair: tuple[int, int], mode: str) -> Any:
    """The border reflected through the outermost element as well: 2*edge - mirrored, as often as it takes."""
    from fxgrad.numpy.elementwise import multiply, subtract

    before, after = pair
    skip = 1 if mode == "reflect" else 0
    if x.shape[axis] == 1 and skip:
        return _pad_taken(x, axis, pair, "edge", {})
    while before > 0 or after > 0:
        n = x.shape[axis]
        low, high = min(before, n - skip), min(after, n - skip)
        first, last = cut_along(x, axis, 0, 1), cut_along(x, axis, n - 1, n)
        left = subtract(multiply(2, first), flip(cut_along(x, axis, skip, skip + low), axis))
        right = subtract(multiply(2, last), flip(cut_along(x, axis, n - skip - high, n - skip), axis))
        x = concatenate([left, x, right], axis)
        before, after = before - low, after - high
    return x


def _pad_ramp(x: Any, axis: int, pair: tuple[int, int], ends: tuple[Any, Any]) -> Any:
    """Borders that go from an end value to the edge in equal steps."""
    from fxgrad.numpy.creation import astype, linspace

    n = x.shape[axis]
    parts = [x]
    for count, end, front in ((pair[0], ends[0], True), (pair[1], ends[1], False)):
        edge = cut_along(x, axis, 0, 1) if front else cut_along(x, axis, n - 1, n)
        edge = reshaped(edge, x.shape[:axis] + x.shape[axis + 1 :])
        ramp = linspace(end, edge, count, endpoint=False, axis=axis)
        if x.dtype.kind in "iu":
            from fxgrad.numpy.elementwise import floor

            ramp = floor(ramp)
        ramp = astype(ramp, x.dtype)
        parts = [ramp, *parts] if front else [*parts, flip(ramp, axis)]
    return concatenate(parts, axis)


def _pad_statistic(x: Any, axis: int, pair: tuple[int, int], lengths: tuple[Any, Any], mode: str) -> Any:
    """Borders of one value for each vector: a statistic of its first or last elements."""
    from fxgrad.numpy import elementwise, quantiles, reductions
    from fxgrad.numpy.creation import astype

    n = x.shape[axis]
    functions: dict[str, Any] = {
        "maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean, "median": quantiles.median
    }  # fmt: skip
    parts = [x]
    for count, length, front in ((pair[0], lengths[0], True), (pair[1], lengths[1], False)):
        m = n if length is None else min(static_int(length), n)
        if m < 0:
            raise ValueError("index can't contain negative values")
        if m == 0 and mode in ("maximum", "minimum"):
            raise ValueError("stat_length of 0 yields no value for padding")
        value = functions[mode](cut_along(x, axis, 0, m) if front else cut_along(x, axis, n - m, n), axis=axis, keepdims=True)
        if x.dtype.kind in "iu" and mode in ("mean", "median"):
            value = elementwise.rint(value)
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        border = broadcast_to(astype(tensor(value), x.dtype), shape)
        parts = [border, *parts] if front else [*parts, border]
    return concatenate(parts, axis)


def _pad_by(x: Any, widths: list[tuple[int, int]], function: Any, options: dict[str, Any]) -> Any:
    """Borders filled by a function of vectors, which NumPy has change them in place; here it may also answer the new one."""
    from fxgrad.numpy.functional import apply_along_axis

    x = _pad_constant(x, widths, 0)
    for axis, pair in enumerate(widths):

        def filled(vector: Any, pair: Any = pair, axis: int = axis) -> Any:
            vector = vector if type(vector) is Tracer else np.array(vector)
            answer = function(vector, pair, axis, options)
            return vector if answer is None else answer

        x = apply_along_axis(filled, axis, x)
    return x


def _pad_constant(x: Any, widths: list[tuple[int, int]], constant: Any) -> Any:
    values = _pairs(constant, x.ndim, "constant_values")
    first = values[0][0] if values else 0
    if all(v is first for pair in values for v in pair):
        value = tensor(as_dtype(operand(first), x.dtype)) if type(operand(first)) is Tracer else x.dtype.type(first)
        return (
            s.pad(x, value, low=tuple(a for a, _ in widths), high=tuple(b for _, b in widths), interior=(0,) * x.ndim)
            if x.ndim
            else x
        )
    for axis, ((before, after), pair) in enumerate(zip(widths, values, strict=True)):
        for count, value, front in ((before, pair[0], True), (after, pair[1], False)):
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            border = broadcast_to_shape(tensor(as_dtype(operand(value), x.dtype)), shape)
            x = s.concatenate(*((border, x) if front else (x, border)), axis=axis)
    return x
