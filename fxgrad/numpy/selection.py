"""Picking elements: take and its kin, diagonals, and choices between arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import (
    as_dtype,
    broadcast_to_shape,
    canonical_axis,
    iota,
    is_traced,
    operand,
    refuse_out,
    result_type,
    static_int,
    tensor,
)
from fxgrad.numpy.indexing import check_bounds, known_mask, place_axes, within
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import index as ix
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer

__all__ = [
    "argwhere",
    "choose",
    "compress",
    "diagonal",
    "extract",
    "flatnonzero",
    "ix_",
    "nonzero",
    "piecewise",
    "select",
    "take",
    "take_along_axis",
    "trace",
]


def ix_(*args: Any) -> tuple[Any, ...]:
    """Index arrays, each along an axis of its own, that together take every combination, as numpy.ix_; they may be traced."""
    if not any(map(is_traced, args)):
        return np.ix_(*args)
    out = []
    for k, i in enumerate(map(tensor, args)):
        if i.ndim != 1:
            raise errors.FxValueError(
                f"ix_: argument {k} has shape {i.shape}",
                why="Each argument indexes one axis (Cross index must be 1 dimensional).",
                fix="Pass index arrays of rank 1.",
            )
        if i.dtype.kind == "b":
            (i,) = known_mask(i).nonzero()
        elif not i.size:  # an empty list has no integers to tell its dtype
            i = as_dtype(i, np.dtype(np.intp))
        out.append(s.reshape(i, shape=(1,) * k + (i.shape[0],) + (1,) * (len(args) - k - 1)))
    return tuple(out)


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    """Elements of `a` at `indices` along an axis (of the flattened array by default), as numpy.take.

    mode: "raise" (out of bounds is an IndexError), "wrap", or "clip". Both operands may be traced.
    """
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
        check_bounds(np.asarray(i), n, axis, x.shape)
    i = np.asarray(i) if isinstance(i, np.generic) else i
    return place_axes(ix.gather(x, i, axes=(axis,)), i.ndim, axis)


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
        check_bounds(np.asarray(i), x.shape[axis], axis, x.shape)
    rest = np.broadcast_shapes(*[(*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, i)])
    x = broadcast_to_shape(x, (*rest[:axis], x.shape[axis], *rest[axis + 1 :]))
    i = broadcast_to_shape(i, (*rest[:axis], i.shape[axis], *rest[axis + 1 :]))
    grid = [i if k == axis else iota(i.shape, k) for k in range(x.ndim)]
    return ix.gather(x, *grid, axes=tuple(range(x.ndim)))


def first_places(mask: Any, size: int) -> tuple[Any, Any]:
    """The first `size` positions at which a vector is true, its length where there are no more; and how many there are.

    The values need not be known.
    """
    from fxgrad.numpy.sorting import argsort

    n = mask.shape[0]
    count = r.sum_(e.convert(mask, dtype=np.dtype(np.int64)), axes=(0,))
    order = argsort(e.not_(mask))  # stable, so the true ones come first in order
    held = min(size, n)
    places = r.cut(order, 0, 0, held)
    places = ew.where(ew.less(iota((held,)), count), places, n)
    return r.pad_axis(places, np.int64(n), 0, 0, size - held), count


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple:
    """Index arrays of the elements that are not zero, as numpy.nonzero; the values must be known, so not under jit.

    With `size`, as in JAX, they need not be: the first `size` indices are answered, then `fill_value` (default 0), one for all
    axes or a tuple.
    """
    x = operand(a)
    if np.ndim(x) == 0 and type(x) is not Tracer:
        return np.nonzero(x)  # NumPy's error
    if size is None:
        return np.nonzero(known_mask(x))
    x = tensor(x)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    places, count = first_places(ew.truth(s.reshape(x, shape=(x.size,))), size)
    there = ew.less(iota((size,)), count)
    fills = fill_value if isinstance(fill_value, tuple) else (0 if fill_value is None else fill_value,) * x.ndim
    out: list[Any] = []
    rest = ew.where(there, places, 0)
    for n, fill in zip(x.shape[::-1], fills[::-1], strict=True):
        out.append(ew.where(there, ew.remainder(rest, max(n, 1)), as_dtype(operand(fill), np.dtype(np.int64))))
        rest = ew.floor_divide(rest, max(n, 1))
    return tuple(out[::-1])


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Indices of the elements of the flattened array that are not zero, as numpy.flatnonzero; `size` as in nonzero."""
    x = operand(a)
    if size is None:
        return np.flatnonzero(known_mask(x))
    x = tensor(x)
    return nonzero(s.reshape(x, shape=(x.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Indices of the elements that are not zero, one a row, as numpy.argwhere; `size` as in nonzero."""
    from fxgrad.numpy.manipulation import stack

    x = operand(a)
    return np.argwhere(known_mask(x)) if size is None else stack(nonzero(x, size=size, fill_value=fill_value), axis=1)


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """The entries along an axis where a known condition holds, as numpy.compress. The method is x.compress(condition, axis)."""
    refuse_out("compress", out)
    mask = known_mask(operand(condition))
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
    return place_axes(ix.gather(x, row, column, axes=(i, j)), 1, x.ndim - 2)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """The sum of a diagonal, as numpy.trace."""
    from fxgrad.numpy.reductions import sum

    return sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Of several choices the first whose condition holds, as numpy.select."""
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
        y = ew.where(c, v, y)
    return y


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Element by element, the choice that `a` numbers, as numpy.choose."""
    from fxgrad.numpy.manipulation import broadcast_arrays, stack

    refuse_out("choose", out)
    i = operand(a)
    i = i if hasattr(i, "dtype") else np.asarray(i)
    if i.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {i.dtype!r} to dtype('int64') according to the rule 'safe'")
    i, n = as_dtype(i, np.dtype(np.int64)), len(choices)
    if mode == "wrap":
        i = ew.remainder(i, n)
    elif mode == "clip":
        i = ew.clip(i, 0, n - 1)
    elif mode == "raise":
        i = within(i, n, "invalid entry in choice array: {i}, of {n} choices")
    else:
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{mode}')")
    i, *options = broadcast_arrays(i, *choices)
    return take_along_axis(stack(options), i[None], axis=0)[0]


def _is_one_condition(condlist: Any, x: Any) -> bool:
    """Whether a list of conditions is one condition instead, by NumPy's rule."""
    if np.ndim(condlist) == 0 if hasattr(condlist, "ndim") else not isinstance(condlist, (list, tuple)):
        return True
    first = condlist[0]
    arrays = isinstance(first, (list, np.ndarray)) or (type(first) is Tracer and first.ndim > 0)
    return x.ndim > 0 and not arrays


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """A function defined piece by piece, as numpy.piecewise; every piece is evaluated everywhere and selected from."""
    x = tensor(x)
    if _is_one_condition(condlist, x):
        condlist = [condlist]
    conditions = [ew.truth(tensor(c)) for c in condlist]
    pieces = list(funclist)
    if len(pieces) == len(conditions) + 1:
        default = pieces.pop()
    elif len(pieces) == len(conditions):
        default = 0
    else:
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected"
        )

    def value(piece: Any) -> Any:
        return as_dtype(operand(piece(x, *args, **kw) if callable(piece) else piece), x.dtype)

    y = broadcast_to_shape(tensor(value(default)), x.shape)
    for c, piece in zip(conditions, pieces, strict=True):
        y = ew.where(c, value(piece), y)
    return y
