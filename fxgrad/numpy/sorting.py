"""Sorting and what builds on it. Gradients follow the stable permutation: of equal elements the first comes first."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axis, refuse_complex, tensor
from fxgrad.numpy.selection import take, take_along_axis
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import shape as s
from fxgrad.primitives import sort as p
from fxgrad.trace.tracer import Tracer

__all__ = ["argpartition", "argsort", "digitize", "lexsort", "partition", "searchsorted", "sort", "sort_complex"]


def argsort(
    a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None, descending: bool = False
) -> Any:
    """The indices that sort along an axis, as numpy.argsort, always stable; `descending` as in the array API standard."""
    x, axis = _line(a, axis)
    if not x.ndim:
        x, axis = s.reshape(x, shape=(1,)), canonical_axis(axis, 1)
    if not descending:
        return p.argsort(x, axis=axis)
    # stable from the other end: sort the reversed array, then read it backwards
    n = x.shape[axis]
    backward = p.argsort(s.reverse(x, axes=(axis,)), axis=axis)
    return e.sub(np.int64(n - 1), s.reverse(backward, axes=(axis,)))


def _line(a: Any, axis: int | None) -> tuple[Any, int]:
    x = tensor(a)
    if axis is None:
        return (x if x.ndim == 1 else s.reshape(x, shape=(x.size,))), 0
    return x, canonical_axis(axis, x.ndim) if x.ndim else axis


def sort(
    a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None, descending: bool = False
) -> Any:
    """`a` sorted along an axis (None: flattened), NaN last, as numpy.sort."""
    x, axis = _line(a, axis)
    if not x.ndim:
        raise np.exceptions.AxisError(axis, 0)
    return take_along_axis(x, argsort(x, axis, descending=descending), axis)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The indices that sort by several keys, the last one first, as numpy.lexsort; keys are rows of an array or a sequence."""
    rows = list(keys) if isinstance(keys, (tuple, list)) else list(tensor(keys))
    if not rows:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    rows = [tensor(k) for k in rows]
    if any(k.shape != rows[0].shape for k in rows):
        raise ValueError("all keys need to be the same shape")
    if not rows[0].ndim:
        return np.int64(0) if type(rows[0]) is not Tracer else s.broadcast(np.int64(0), shape=(), dims=())
    axis = canonical_axis(axis, rows[0].ndim)
    order = argsort(rows[0], axis)
    for key in rows[1:]:
        order = take_along_axis(order, argsort(take_along_axis(key, order, axis), axis), axis)
    return order


def _kth(name: str, kth: Any, n: int) -> None:
    """Complain of a position that is not one."""
    for k in np.atleast_1d(np.asarray(kth)).ravel():
        if not isinstance(k, np.integer):
            raise TypeError("Partition index must be integer")
        if not -n <= k < n:
            raise ValueError(f"kth(={int(k) + n if k < 0 else int(k)}) out of bounds ({n})")


def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Indices that bring the elements at positions `kth` into sorted position, as numpy.argpartition.

    NumPy leaves open in which order the others come. Here it is that of argsort: one order, on every machine.
    """
    x, axis = _line(a, axis)
    if x.ndim:
        _kth("argpartition", kth, x.shape[axis])
    return argsort(x, axis)


def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """`a` with the elements at positions `kth` in sorted position, smaller ones in front of them, as numpy.partition.

    NumPy leaves open in which order the others come. Here they are sorted: one order, on every machine.
    """
    x, axis = _line(a, axis)
    if x.ndim:
        _kth("partition", kth, x.shape[axis])
    return sort(x, axis)


def sort_complex(a: Any) -> Any:
    """`a` as complex numbers, sorted along the last axis by real, then by imaginary part, as numpy.sort_complex."""
    x = sort(a, -1)
    if x.dtype.kind == "c":
        return x
    return as_dtype(x, np.dtype(np.complex64 if x.dtype.char in "bhBH" else np.complex128))


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where `v` would have to be inserted into the sorted vector `a`, as numpy.searchsorted."""
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right' (got '{side}')")
    table, values = tensor(a), tensor(v)
    if table.ndim != 1:
        raise ValueError("object too deep for desired array" if table.ndim else "object of too small depth for desired array")
    if sorter is not None:
        table = take(table, sorter)
    dtype = np.result_type(table.dtype, values.dtype)
    return p.searchsorted(as_dtype(table, dtype), as_dtype(values, dtype), right=side == "right")


def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The number of the bin (between increasing edges) each value falls into, as numpy.digitize."""
    x, edges = tensor(x), tensor(bins)
    refuse_complex("np.digitize: x and bins", x, edges)
    if edges.ndim != 1:
        raise ValueError("object of too small depth for desired array" if not edges.ndim else "object too deep for desired array")
    side = "left" if right else "right"
    rising = searchsorted(edges, x, side)
    n = edges.shape[0]
    if n < 2:
        return rising
    down = ew.greater(edges[0], edges[n - 1])
    if isinstance(down, np.generic) and not down:
        return rising
    return ew.where(down, ew.subtract(n, searchsorted(s.reverse(edges, axes=(0,)), x, side)), rising)
