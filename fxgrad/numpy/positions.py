"""Index arrays: of diagonals, triangles and grids; flat positions and back; the index notations r_, c_, mgrid, ogrid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fxgrad.numpy.core import as_dtype, iota, operand, static_int, static_shape, tensor
from fxgrad.numpy.creation import arange, asarray, diag, linspace
from fxgrad.numpy.indexing import within
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import shape as s

__all__ = [
    "c_",
    "diag_indices",
    "diag_indices_from",
    "diagflat",
    "indices",
    "mask_indices",
    "mgrid",
    "ndenumerate",
    "ogrid",
    "r_",
    "ravel_multi_index",
    "tril_indices_from",
    "triu_indices_from",
    "unravel_index",
]

_INT64 = np.dtype(np.int64)


def diag_indices(n: int, ndim: int = 2) -> tuple[np.ndarray, ...]:
    """Plain index arrays of the diagonal of an array of shape (n, n, ...), as numpy.diag_indices."""
    return np.diag_indices(static_int(n), ndim)


def diag_indices_from(arr: Any) -> tuple[np.ndarray, ...]:
    """Plain index arrays of the diagonal of `arr`, as numpy.diag_indices_from."""
    x = tensor(arr)
    if x.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    return np.diag_indices(x.shape[0], x.ndim)


def _rows_and_columns(arr: Any) -> tuple[int, ...]:
    x = tensor(arr)
    if x.ndim != 2:
        raise ValueError("input array must be 2-d")
    return x.shape


def tril_indices_from(arr: Any, k: int = 0) -> tuple[np.ndarray, ...]:
    """Plain index arrays of the lower triangle of a matrix, as numpy.tril_indices_from."""
    n, m = _rows_and_columns(arr)
    return np.tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[np.ndarray, ...]:
    """Plain index arrays of the upper triangle of a matrix, as numpy.triu_indices_from."""
    n, m = _rows_and_columns(arr)
    return np.triu_indices(n, k, m)


def mask_indices(n: int, mask_func: Any, k: Any = 0) -> tuple:
    """Index arrays of what mask_func(ones((n, n)), k) leaves, as numpy.mask_indices."""
    from fxgrad.numpy.selection import nonzero

    return nonzero(mask_func(np.ones((static_int(n), static_int(n)), int), k))


def diagflat(v: Any, k: Any = 0) -> Any:
    """A matrix with the flattened `v` on its k-th diagonal, as numpy.diagflat."""
    x = tensor(v)
    return diag(s.reshape(x, shape=(x.size,)), k)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """The index of every place of a grid, one array for each axis, as numpy.indices (sparse: a tuple of open arrays)."""
    shape, dtype = static_shape(dimensions) if len(dimensions) else (), np.dtype(dtype)
    rank = len(shape)
    if sparse:
        open_shape = lambda i: tuple(n if k == i else 1 for k, n in enumerate(shape))  # noqa: E731
        return tuple(iota(open_shape(i), i, dtype) for i in range(rank))
    if not rank:
        return asarray(np.empty((0,), dtype))
    return s.concatenate(*[iota((1, *shape), i + 1, dtype) for i in range(rank)], axis=0)


def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Pairs of an index and the element there, as numpy.ndenumerate."""
    x = tensor(arr)
    return ((i, x[i] if i else x) for i in np.ndindex(x.shape))


# ---- flat positions ------------------------------------------------------------------------------------------------------------


def _integers(i: Any) -> Any:
    """Positions as int64, traced or plain; an empty list has no integers to tell its dtype."""
    x = operand(i)
    x = x if hasattr(x, "dtype") else np.asarray(x)[()]
    if not x.size and isinstance(i, (list, tuple)):
        x = as_dtype(x, _INT64)
    if x.dtype.kind not in "iu":
        raise TypeError("only int indices permitted")
    return as_dtype(x, _INT64)


def _order(order: str) -> None:
    if order not in ("C", "F"):
        raise ValueError(f"order must be 'C' or 'F' (got '{order}')")


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple:
    """The index on every axis of an array of `shape` from positions in the flattened one, as numpy.unravel_index.

    A position out of bounds is a ValueError, in compiled code as well.
    """
    shape = static_shape(shape)
    _order(order)
    size = int(np.prod(shape, dtype=object))
    i = within(_integers(indices), n=size, what="index {i} is out of bounds for array with size {n}")
    out: list[Any] = []
    for n in shape[::-1] if order == "C" else shape:
        length = np.int64(max(n, 1))  # nothing is left to divide where an axis is empty
        out.append(e.rem(i, length))
        i = e.floordiv(i, length)
    return tuple(out[::-1] if order == "C" else out)


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """Positions in the flattened array from one index array for each axis, as numpy.ravel_multi_index.

    mode: "raise" (out of bounds is a ValueError, in compiled code as well), "wrap", or "clip"; or one for each axis.
    """
    from fxgrad.numpy import elementwise as ew
    from fxgrad.numpy.manipulation import broadcast_arrays

    dims = static_shape(dims)
    _order(order)
    modes = mode if isinstance(mode, (tuple, list)) else (mode,) * len(dims)
    parts = [_integers(i) for i in multi_index]
    if len(parts) != len(dims):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(dims)}")
    steps = np.cumprod([1, *(dims[:0:-1] if order == "C" else dims[:-1])])
    steps = steps[::-1] if order == "C" else steps
    total: Any = None
    for i, n, how, step in zip(broadcast_arrays(*parts), dims, modes, steps, strict=True):
        if how == "wrap":
            i = ew.remainder(i, n)
        elif how == "clip":
            i = ew.clip(i, 0, n - 1)
        elif how == "raise":
            i = within(i, n=n, what="invalid entry in coordinates array: {i} on an axis of length {n}")
        else:
            raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{how}')")
        part = e.mul(i, np.int64(step))
        total = part if total is None else e.add(total, part)
    return total


# ---- index notations -------------------------------------------------------------------------------------------------------


class _Grid:
    """mgrid and ogrid: a grid written as slices, whose bounds must be known."""

    def __init__(self, plain: Any):
        self._plain = plain

    def __getitem__(self, key: Any) -> Any:
        out = self._plain[key]
        return tuple(map(asarray, out)) if isinstance(out, tuple) else asarray(out)


mgrid = _Grid(np.mgrid)
ogrid = _Grid(np.ogrid)


class _Joined:
    """r_ and c_: arrays, numbers and ranges joined along an axis; they may be traced, ranges must be known."""

    def __init__(self, axis: int, ndmin: int, trans1d: int):
        self._start = axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Any:
        entries = key if isinstance(key, tuple) else (key,)
        axis, ndmin, trans1d = self._start
        if isinstance(entries[0], str):
            word, entries = entries[0], entries[1:]
            if word in ("r", "c"):
                raise ValueError("r_ and c_ make no matrices; use two-dimensional arrays and @")
            try:
                given = [int(n) for n in word.split(",")]
            except ValueError:
                raise ValueError(f"unknown special directive {word!r}") from None
            axis, ndmin, trans1d = (*given, *(axis, ndmin, trans1d)[len(given) :])[:3]
        parts = [self._part(x, ndmin, trans1d) for x in entries]
        weak = [x for x in entries if type(x) in (bool, int, float, complex)]
        strong = [p.dtype for x, p in zip(entries, parts, strict=True) if type(x) not in (bool, int, float, complex)]
        dtype = np.result_type(*strong, *weak)
        return s.concatenate(*[as_dtype(p, dtype) for p in parts], axis=axis % parts[0].ndim) if parts else asarray([])

    def _part(self, x: Any, ndmin: int, trans1d: int) -> Any:
        if isinstance(x, slice):
            x = self._range(x)
            return self._raised(x, 1, ndmin, trans1d)
        if isinstance(x, str):
            raise ValueError("special directives must be the first entry.")
        x = tensor(x)
        return self._raised(x, x.ndim, ndmin, trans1d) if x.ndim else s.reshape(x, shape=(1,) * max(ndmin, 1))

    def _range(self, x: slice) -> Any:
        start = 0 if x.start is None else x.start
        if isinstance(x.step, complex):
            return linspace(start, x.stop, int(abs(x.step)))
        return arange(start, x.stop, 1 if x.step is None else x.step)

    def _raised(self, x: Any, rank: int, ndmin: int, trans1d: int) -> Any:
        """x with at least ndmin axes, its own starting at trans1d among them."""
        extra = ndmin - rank
        if extra <= 0:
            return x
        place = trans1d + extra + 1 if trans1d < 0 else trans1d
        return s.reshape(x, shape=(*(1,) * place, *x.shape, *(1,) * (extra - place)))


r_ = _Joined(0, 1, -1)
c_ = _Joined(-1, 2, 0)
