"""Sorting and what builds on it. Gradients follow the stable permutation: of equal elements the first comes first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axes, canonical_axis, operand, refuse_out, tensor
from fxgrad.numpy.reductions import NONE, keep
from fxgrad.numpy.selection import take, take_along_axis
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s
from fxgrad.primitives import sort as p

__all__ = ["argsort", "digitize", "median", "nanmedian", "percentile", "quantile", "searchsorted", "sort"]


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
    edges = tensor(bins)
    if edges.ndim != 1:
        raise ValueError("object of too small depth for desired array" if not edges.ndim else "object too deep for desired array")
    rising = searchsorted(edges, x, "left" if right else "right")
    n = edges.shape[0]
    if n < 2:
        return rising
    down = ew.greater(edges[0], edges[n - 1])
    if isinstance(down, np.generic) and not down:
        return rising
    return ew.where(down, ew.subtract(n, searchsorted(s.reverse(edges, axes=(0,)), x, "right" if right else "left")), rising)


def _rows(a: Any, axis: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """a with the reduced axes merged into a last one; its shape, and the axes."""
    x = tensor(a)
    if x.dtype.kind in "biu":
        x = e.convert(x, dtype=np.dtype(float))
    axes = canonical_axes(axis, x.ndim)
    return s.merge_axes_last(x, axes) if x.ndim else s.reshape(x, shape=(1,)), x.shape, axes


def _any_nan(x: Any) -> Any:
    """Whether a row has a NaN."""
    return r.any_(e.ne(x, x), axes=(x.ndim - 1,))


_LINEAR = ("linear", "lower", "higher", "midpoint", "nearest")


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    """Quantiles over axes, as numpy.quantile, with method linear, lower, higher, midpoint or nearest; NaN if there is one.

    `q` is known (a number or a plain array); the derivative goes to the elements between which the quantile lies.
    """
    refuse_out("quantile", out)
    if method not in _LINEAR or weights is not None:
        raise errors.UnsupportedError(
            f"np.quantile(..., method={method!r}{', weights=...' if weights is not None else ''}) is not supported",
            why=f"The methods are {', '.join(_LINEAR)}, without weights.",
            fix='Use a method that is there, such as the default "linear", without weights.',
        )
    q = operand(q)
    points = np.asarray(
        q._known("the fraction of a quantile", "Give q as a plain number or array.") if hasattr(q, "_known") else q, dtype=float
    )
    if points.size and not (points.min() >= 0 and points.max() <= 1):
        raise ValueError("Quantiles must be in the range [0, 1]")
    if tensor(a).dtype.kind == "b":
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, so booleans have no quantiles")
    x, shape, axes = _rows(a, axis)
    n = x.shape[-1]
    if not n:
        raise IndexError(f"index -1 is out of bounds for axis 0 with size {n}")
    ordered = sort(x, -1)
    parts = [_quantile_at(ordered, n, float(t), method) for t in points.ravel()]
    bad = _any_nan(x)
    parts = [e.select(bad, y.dtype.type(math.nan), y) for y in parts]
    parts = [keep(y, shape, axes, keepdims) for y in parts]
    if not points.ndim:
        return parts[0]
    from fxgrad.numpy.manipulation import reshape, stack

    y = stack(parts)
    return reshape(y, (*points.shape, *y.shape[1:]))


def _quantile_at(ordered: Any, n: int, q: float, method: str) -> Any:
    at = (n - 1) * q
    low = math.floor(at)
    high, fraction = min(low + 1, n - 1), at - low
    if method == "nearest":
        low = high = int(np.rint(at))
    elif method in ("lower", "higher"):
        low = high = low if method == "lower" or fraction == 0 else high
    elif method == "midpoint":
        fraction = 0.5 if fraction else 0.0
    below = take(ordered, low, axis=-1)
    if low == high or fraction == 0:
        return below
    above = take(ordered, high, axis=-1)
    # weighted, not below + t*(above - below): infinities next to each other stay
    t = below.dtype.type(fraction)
    gap = e.sub(above, below)
    near = e.add(below, e.mul(gap, t)) if fraction < 0.5 else e.sub(above, e.mul(gap, below.dtype.type(1 - fraction)))
    return e.select(e.eq(above, below), e.add(e.mul(below, below.dtype.type(0.5)), e.mul(above, below.dtype.type(0.5))), near)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    """Percentiles over axes, as numpy.percentile; see quantile."""
    points = operand(q)
    return quantile(
        a,
        ew.divide(points, 100) if hasattr(points, "_known") else np.asarray(points) / 100,
        axis,
        out,
        overwrite_input,
        method,
        keepdims,
        weights=weights,
    )


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """Median over axes, as numpy.median; the derivative goes to the middle element, or half to each of the two."""
    refuse_out("median", out)
    x, shape, axes = _rows(a, axis)
    n = x.shape[-1]
    if not n:
        from fxgrad.numpy.reductions import mean

        return keep(mean(x, -1), shape, axes, keepdims)
    ordered = sort(x, -1)
    y = take(ordered, n // 2, axis=-1)
    if n % 2 == 0:
        half = y.dtype.type(0.5)
        y = e.add(e.mul(take(ordered, n // 2 - 1, axis=-1), half), e.mul(y, half))
    y = e.select(_any_nan(x), y.dtype.type(math.nan), y)
    return keep(y, shape, axes, keepdims)


def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = NONE) -> Any:
    """Median over axes of the elements that are not NaN, as numpy.nanmedian."""
    from fxgrad.numpy.reductions import sum

    refuse_out("nanmedian", out)
    x, shape, axes = _rows(a, axis)
    if not x.shape[-1]:
        return median(a, axis, keepdims=keepdims is True)
    ordered = sort(x, -1)  # NaN last
    count = sum(e.eq(x, x), -1)
    low, high = ew.floor_divide(ew.subtract(count, 1), 2), ew.floor_divide(count, 2)
    n = x.shape[-1]
    pick = lambda i: take_along_axis(ordered, ew.clip(i, 0, n - 1)[..., None], -1)[..., 0]  # noqa: E731
    half = x.dtype.type(0.5)
    y = e.add(e.mul(pick(low), half), e.mul(pick(high), half))
    return keep(y, shape, axes, keepdims)
