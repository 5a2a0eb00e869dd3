"""Turning, rolling, repeating, padding; taking entries out and putting some in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import errors
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


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """`arr` without the entries at known positions, as numpy.delete."""
    from fxgrad.numpy.selection import take

    x = tensor(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    kept = np.delete(np.arange(x.shape[axis]), [static_int(i) for i in obj] if isinstance(obj, (list, tuple)) else obj)
    return take(x, kept, axis=axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """`values` inserted before one known position, as numpy.insert."""
    x = tensor(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    if not isinstance(obj, (int, np.integer)):
        raise errors.UnsupportedError(
            "np.insert at several positions is not supported",
            fix="Concatenate the parts: np.concatenate([x[:i], v, x[i:]]).",
            why="Only one position is implemented.",
        )
    n = x.shape[axis]
    if not -n <= obj <= n:
        raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {n}")
    i = int(obj) + (n if obj < 0 else 0)
    v = tensor(as_dtype(operand(values), x.dtype))
    v = moveaxis(reshaped(v, (1,) * (x.ndim - v.ndim) + v.shape), 0, axis)
    shape = list(x.shape)
    shape[axis] = v.shape[axis]
    return concatenate([cut_along(x, axis, 0, i), broadcast_to(v, tuple(shape)), cut_along(x, axis, i, n)], axis)


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


def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0, **kwargs: Any) -> Any:
    """`array` with borders, as numpy.pad. mode: constant, edge, reflect, symmetric, wrap; constants may be traced."""
    x = tensor(array)
    widths = [(static_int(a), static_int(b)) for a, b in _pairs(pad_width, x.ndim, "pad_width")]
    if any(min(pair) < 0 for pair in widths):
        raise ValueError("index can't contain negative values")
    if (
        kwargs.pop("reflect_type", "even") != "even"
        or kwargs
        or mode not in ("constant", "edge", "reflect", "symmetric", "wrap", "empty")
    ):
        raise errors.UnsupportedError(
            f"np.pad(..., mode={mode!r}{''.join(f', {k}=...' for k in kwargs)}) is not supported",
            why="The modes are constant, edge, reflect (even), symmetric (even) and wrap.",
            fix="Build the border yourself and join it with np.concatenate.",
        )
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, constant_values)
    from fxgrad.numpy.selection import take

    for axis, (before, after) in enumerate(widths):
        if before or after:
            if not x.shape[axis]:
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
            plain: Any = np.pad
            x = take(x, plain(np.arange(x.shape[axis]), (before, after), mode=mode), axis=axis)
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
