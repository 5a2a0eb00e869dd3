"""Counting: histograms and bincount. Counts are constant in the data; sums of weights are linear in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, operand, promote, refuse_complex, static_int, tensor
from fxgrad.numpy.creation import linspace
from fxgrad.numpy.indexing import known_values
from fxgrad.numpy.manipulation import reshape
from fxgrad.numpy.reductions import max as max_
from fxgrad.numpy.reductions import min as min_
from fxgrad.numpy.reductions import sum as sum_
from fxgrad.numpy.sorting import searchsorted
from fxgrad.primitives import index as ix
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)


def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often each number 0, 1, ... comes in a vector (or the sum of its weights), as numpy.bincount.

    The result reaches to the largest number, so the values must be known. With `length`, as in JAX, they need not be: larger
    numbers are left out then. Negative ones raise, in compiled code as well.
    """
    i = tensor(x)
    if i.ndim != 1:
        raise ValueError("object too deep for desired array" if i.ndim else "object of too small depth for desired array")
    if not i.size and i.dtype.kind == "f" and isinstance(x, (list, tuple)):
        i = as_dtype(i, _INT64)
    if i.dtype.kind not in "iub" or i.dtype == np.uint64:
        raise TypeError(f"Cannot cast array data from {i.dtype!r} to dtype('int64') according to the rule 'safe'")
    i, least = as_dtype(i, _INT64), static_int(minlength)
    if least < 0:
        raise ValueError("'minlength' must not be negative")
    if length is None:
        values = _known_numbers(i)
        if values.size and values.min() < 0:
            raise ValueError("'list' argument must have no negative elements")
        size = max(least, int(values.max()) + 1 if values.size else 0)
    else:
        size = max(least, static_int(length))
        i = ix.within(i, n=np.iinfo(_INT64).max, what="bincount of a negative number: {i}")
        i = ew.minimum(i, size)  # one place more, for what is left out
    given = s.broadcast(np.int64(1), shape=i.shape, dims=()) if weights is None else tensor(weights)
    refuse_complex("np.bincount: weights", given)
    w = given if weights is None else as_dtype(given, _FLOAT64)
    if w.shape != i.shape:
        raise ValueError("The weights and list don't have the same length.")
    return _added_up(i, w, size) if length is None else r.cut(_added_up(i, w, size + 1), 0, 0, size)


def _known_numbers(i: Any) -> np.ndarray:
    if type(i) is not Tracer:
        return np.asarray(i)
    return np.asarray(
        i._known(
            "the operand of np.bincount, whose values fix the shape of the result",
            "Write fxgrad.numpy.bincount(x, length=n) to fix the length, or call it outside the transformed function.",
        )
    )


def _added_up(i: Any, w: Any, size: int) -> Any:
    """The sum of the weights of each number below size, in order."""
    zero = s.broadcast(w.dtype.type(0), shape=(size,), dims=())
    return ix.scatter(zero, w, i, axes=(0,), mode="add")


# ---- edges -----------------------------------------------------------------------------------------------------------------


def _data(a: Any) -> Any:
    """The data, traced or a plain array, whose extremes are known then."""
    x = operand(a)
    refuse_complex("the data of a histogram", x)
    return x if type(x) is Tracer else np.asarray(x)


def _limits(x: Any, range: Any) -> tuple[Any, Any]:
    """The outer edges: as given, or the extremes of the data; half a unit around them if they are equal."""
    if range is not None:
        low, high = range
        if not isinstance(low, Tracer) and not isinstance(high, Tracer):
            if low > high:
                raise ValueError("max must be larger than min in range parameter.")
            if not (np.isfinite(low) and np.isfinite(high)):
                raise ValueError(f"supplied range of [{low}, {high}] is not finite")
    elif not x.size:
        low, high = 0, 1
    else:
        low, high = (min_(x), max_(x)) if type(x) is Tracer else (np.min(x), np.max(x))
        if isinstance(low, np.generic) and not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    same = ew.equal(low, high)
    if not isinstance(same, Tracer):
        return (low - 0.5, high + 0.5) if same else (low, high)
    return ew.where(same, ew.subtract(low, 0.5), low), ew.where(same, ew.add(high, 0.5), high)


def _number_by_rule(x: Any, rule: str, range: Any, weights: Any) -> int:
    """How many bins a rule such as "auto" takes, which depends on the values."""
    plain: Any = np.histogram_bin_edges
    if weights is not None:
        raise TypeError("Automated estimation of the number of bins is not supported for weighted data")
    values = known_values(x, f"the data for bins={rule!r}, which fix the number of bins", "fxgrad.numpy.histogram").ravel()
    return len(plain(values, rule, range)) - 1


def _edges(x: Any, bins: Any, range: Any, weights: Any = None) -> Any:
    """The edges of the bins of a vector."""
    if isinstance(bins, str):
        if bins not in ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt"):
            raise ValueError(f"{bins!r} is not a valid estimator for `bins`")
        bins = _number_by_rule(x, bins, range, weights) if type(x) is not Tracer else _known_rule(x, bins, range, weights)
    edges = operand(bins)
    if np.ndim(edges) == 1:
        edges = tensor(edges)
        if type(edges) is not Tracer and np.any(edges[:-1] > edges[1:]):
            raise ValueError("`bins` must increase monotonically, when an array")
        return edges
    if np.ndim(edges) or getattr(edges, "dtype", np.dtype(type(edges))).kind not in "iu":
        if np.ndim(edges) > 1:
            raise ValueError("`bins` must be 1d, when an array")
        raise TypeError("`bins` must be an integer, a string, or an array")
    n = static_int(edges)
    if n < 1:
        raise ValueError("`bins` must be positive, when an integer")
    low, high = _limits(x, range)
    dtype = np.result_type(*[v.dtype if hasattr(v, "dtype") else v for v in (low, high)], x.dtype)
    return linspace(low, high, n + 1, dtype=np.result_type(dtype, float) if dtype.kind in "iub" else dtype)


def _known_rule(x: Tracer, rule: str, range: Any, weights: Any) -> int:
    values = x._known(
        f"the data for bins={rule!r}, which fix the number of bins",
        "Give the number of bins: np.histogram(x, bins=10); or compute the edges outside the transformed function.",
    )
    return _number_by_rule(values, rule, range, weights)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of a histogram, as numpy.histogram_bin_edges; rules such as "auto" need known values."""
    x = _data(a)
    return _edges(x.reshape(-1), bins, range, weights)


# ---- histograms ------------------------------------------------------------------------------------------------------------


def _bin_of(x: Any, edges: Any) -> Any:
    """The number of the bin of every element, the last one closed; one more than the last where it is in none."""
    n = edges.shape[0] - 1
    dtype = np.result_type(x.dtype, edges.dtype)
    x, edges = as_dtype(x, dtype), as_dtype(edges, dtype)
    i = ew.subtract(searchsorted(edges, x, "right"), 1)
    i = ew.where(ew.equal(x, edges[n]), n - 1, i)
    inside = ew.logical_and(ew.greater_equal(x, edges[0]), ew.less_equal(x, edges[n]))
    return ew.where(inside, i, n)


def _weights_like(x: Any, weights: Any, counts: np.dtype) -> Any:
    return s.broadcast(counts.type(1), shape=x.shape, dims=()) if weights is None else tensor(weights)


def histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> tuple[Any, Any]:
    """(counts or sums of weights, edges of the bins), as numpy.histogram; differentiable in the weights, and edges in the data.

    Under jit `bins` is a number or an array of edges; rules such as "auto" need known values.
    """
    x = _data(a)
    w = None if weights is None else tensor(weights)
    if w is not None and w.shape != x.shape:
        raise ValueError("weights should have the same shape as a.")
    if x.dtype.kind == "b":
        x = as_dtype(x, np.dtype(np.uint8))
    x = x.reshape(-1)
    edges = _edges(x, bins, range, w)
    n = edges.shape[0] - 1
    w = _weights_like(x, None if w is None else s.reshape(w, shape=(w.size,)), _INT64)
    if w.dtype.kind == "b":
        w = as_dtype(w, _INT64)
    counts = r.cut(_added_up(_bin_of(x, edges), w, n + 1), 0, 0, n)
    if density:
        widths = as_dtype(ew.subtract(r.cut(edges, 0, 1, n + 1), r.cut(edges, 0, 0, n)), _FLOAT64)
        return ew.divide(ew.divide(counts, widths), sum_(counts)), edges
    return counts, edges


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Any, tuple]:
    """(the histogram of points in D dimensions, a tuple of edges for each), as numpy.histogramdd."""
    if isinstance(sample, (tuple, list)) and not hasattr(sample, "shape"):
        from fxgrad.numpy.manipulation import atleast_2d, transpose

        points = transpose(atleast_2d(tensor(sample)))
    else:
        points = tensor(sample)
        points = s.reshape(points, shape=(points.size, 1)) if points.ndim == 1 else points
    refuse_complex("the data of a histogram", points)
    if points.ndim != 2:
        raise ValueError(f"the sample has rank {points.ndim}, it should be a matrix with a point in each row")
    count, rank = points.shape
    per_axis = _each(bins, rank, "bins")
    ranges = list(range) if range is not None else [None] * rank
    if len(ranges) != rank:
        raise ValueError("range argument must have one entry per dimension")
    return _histogram_of(
        [r.cut(points, 1, k, k + 1) for k in np.arange(rank).tolist()], per_axis, ranges, density, weights, count
    )


def _each(bins: Any, rank: int, what: str) -> list[Any]:
    """One entry for each dimension."""
    if not isinstance(bins, (tuple, list)) and np.ndim(bins) == 0:
        return [bins] * rank
    if len(bins) != rank:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    return list(bins)


def _histogram_of(
    columns: Sequence[Any], bins: Sequence[Any], ranges: Sequence[Any], density: Any, weights: Any, count: int
) -> tuple[Any, tuple]:
    edges, flat, sizes = [], None, []
    for column, number, span in zip(columns, bins, ranges, strict=True):
        x = as_dtype(s.reshape(column, shape=(count,)), _FLOAT64) if column.dtype.kind != "f" else reshape(column, (count,))
        if np.ndim(operand(number)) == 0 and static_int(number) < 1:
            raise ValueError("`bins[0]` must be positive, when an integer")
        e_ = _edges(x, number, span)
        n = e_.shape[0] - 1
        i = _bin_of(x, e_)
        # n + 1 places on every axis: the last is for what is in no bin
        flat = i if flat is None else ew.add(ew.multiply(flat, n + 1), i)
        edges.append(e_)
        sizes.append(n)
    places = int(np.prod([n + 1 for n in sizes]))
    w = _weights_like(flat, weights, _FLOAT64)
    refuse_complex("the weights of a histogram in several dimensions", w)
    w = as_dtype(w, _FLOAT64)
    full = reshape(_added_up(flat, w, places), tuple(n + 1 for n in sizes))
    counts = s.slice_(full, start=(0,) * len(sizes), stop=tuple(sizes), step=(1,) * len(sizes))
    if density:
        total = sum_(counts)
        for k, (e_, n) in enumerate(zip(edges, sizes, strict=True)):
            widths = ew.subtract(r.cut(e_, 0, 1, n + 1), r.cut(e_, 0, 0, n))
            counts = ew.divide(counts, reshape(widths, tuple(n if i == k else 1 for i in np.arange(len(sizes)))))
        counts = ew.divide(counts, total)
    return counts, tuple(edges)


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Any, Any, Any]:
    """(the histogram of points in the plane, edges along x, edges along y), as numpy.histogram2d."""
    a, b = tensor(x), tensor(y)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError("x and y must have the same length.")
    refuse_complex("the data of a histogram", a, b)
    a, b = promote(a, b)
    per_axis = [bins, bins] if isinstance(bins, (tuple, list, np.ndarray)) and len(bins) not in (1, 2) else _each(bins, 2, "bins")
    ranges = list(range) if range is not None else [None, None]
    counts, (along_x, along_y) = _histogram_of([a, b], per_axis, ranges, density, weights, a.size)
    return counts, along_x, along_y
