"""Distinct elements and set operations.

The size of most results depends on the values, so these must be known: outside jit and vmap. There `size` fixes it, as in JAX:
the first `size` elements are kept, and `fill_value` stands in the places that are left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axis, iota, operand, tensor
from fxgrad.numpy.indexing import known_mask, known_values
from fxgrad.numpy.manipulation import concatenate, moveaxis, ravel, reshape
from fxgrad.numpy.reductions import any as any_
from fxgrad.numpy.reductions import cumsum
from fxgrad.numpy.selection import first_places, take
from fxgrad.numpy.sorting import argsort, lexsort, searchsorted, sort
from fxgrad.primitives import index as ix
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s

__all__ = [
    "intersect1d",
    "isin",
    "setdiff1d",
    "setxor1d",
    "trim_zeros",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

_INT64 = np.dtype(np.int64)


class UniqueAllResult(NamedTuple):
    """What unique_all answers."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """What unique_counts answers."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """What unique_inverse answers."""

    values: Any
    inverse_indices: Any


def _known(x: Any, name: str) -> np.ndarray:
    """The values of an operand of a function whose result's size they fix."""
    return known_values(x, f"the operand of np.{name}, whose values fix the shape of the result", f"fxgrad.numpy.{name}")


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The distinct elements (or slices along `axis`), sorted, as numpy.unique; the derivative goes to the first of equals.

    Without `size` the values must be known. With it the first `size` of them are answered, and places that are left hold
    `fill_value` (by default the smallest), the index of the smallest, and the count 0.

    Args:
        ar: array, flattened unless `axis` is given.
        return_index, return_inverse, return_counts: also answer where each comes first, which each element is (in the shape
            of `ar`, or of its axis), and how often each comes; all int64.
        sorted: the result is sorted in any case.

    >>> import fxgrad as fx, fxgrad.numpy as np
    >>> fx.jit(lambda x: np.unique(x, size=4, fill_value=-1))(np.array([3, 1, 3, 2]))
    array([ 1,  2,  3, -1])
    """
    x = tensor(ar)
    line, rows, along = _rows(x, axis)
    wanted = (return_index, return_inverse, return_counts)
    if size is None:
        plain: Any = np.unique
        known = _known(x, "unique")
        _, index, inverse, counts = plain(known, True, True, True, axis, equal_nan=equal_nan)
        values = take(line, index, axis=0)
        index, inverse = np.asarray(index, _INT64), np.asarray(inverse, _INT64)
    else:
        values, index, inverse, counts = _sized(line, rows, along, size, fill_value, equal_nan)
    values = values if along is None else moveaxis(values, 0, along)
    inverse = reshape(inverse, x.shape if along is None else (x.shape[along],))
    extra = [y for y, asked in zip((index, inverse, counts), wanted, strict=True) if asked]
    return (values, *extra) if extra else values


def _rows(x: Any, axis: int | None) -> tuple[Any, Any, int | None]:
    """What is compared, along its first axis; the same as a matrix of rows; the axis, None if x was flattened."""
    if axis is None:
        line = s.reshape(x, shape=(x.size,))
        return line, s.reshape(line, shape=(x.size, 1)), None
    axis = canonical_axis(axis, x.ndim)
    line = moveaxis(x, axis, 0)
    return line, s.reshape(line, shape=(line.shape[0], x.size // max(line.shape[0], 1))), axis


def _sized(line: Any, rows: Any, along: int | None, size: int, fill_value: Any, equal_nan: bool) -> tuple[Any, Any, Any, Any]:
    """Values, first positions, inverse and counts of `size` distinct rows, found by sorting: nothing about values is asked."""
    n = rows.shape[0]
    if not n:
        blank = np.zeros(size, _INT64)
        fill = 0 if fill_value is None else fill_value
        empty = s.broadcast(as_dtype(operand(fill), line.dtype), shape=(size, *line.shape[1:]), dims=())
        return empty, blank, np.zeros(0, _INT64), blank
    order = argsort(rows[:, 0]) if rows.shape[1] == 1 else lexsort(moveaxis(rows, 1, 0)[::-1])
    ordered = take(rows, order, axis=0)
    before, after = r.cut(ordered, 0, 0, n - 1), r.cut(ordered, 0, 1, n)
    differ = ew.not_equal(before, after)
    if equal_nan and rows.dtype.kind in "fc" and along is None:
        differ = ew.logical_and(differ, ew.logical_not(ew.logical_and(ew.isnan(before), ew.isnan(after))))
    first = concatenate([np.ones(1, bool), any_(differ, axis=1)])
    places, count = first_places(first, size + 1)  # in the sorted rows; n where there are no more
    there = ew.less(iota((size,)), count)
    index = take(order, ew.where(there, r.cut(places, 0, 0, size), 0))
    values = take(line, index, axis=0)
    if fill_value is not None:
        values = ew.where(reshape(there, (size, *(1,) * (line.ndim - 1))), values, as_dtype(operand(fill_value), line.dtype))
    number = ew.subtract(cumsum(first), 1)
    inverse = ix.scatter(np.zeros(n, _INT64), number, order, axes=(0,), mode="set")
    counts = ew.where(there, ew.subtract(r.cut(places, 0, 1, size + 1), r.cut(places, 0, 0, size)), 0)
    return values, index, inverse, counts


def unique_all(x: Any, *, size: int | None = None, fill_value: Any = None) -> UniqueAllResult:
    """Distinct elements, where each comes first, which each element is, and counts, as numpy.unique_all; NaN are distinct."""
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, *, size: int | None = None, fill_value: Any = None) -> UniqueCountsResult:
    """Distinct elements and how often each comes, as numpy.unique_counts; NaN are distinct."""
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, *, size: int | None = None, fill_value: Any = None) -> UniqueInverseResult:
    """Distinct elements and which of them each element is, as numpy.unique_inverse; NaN are distinct."""
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Distinct elements, as numpy.unique_values, sorted; NaN are distinct."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# ---- membership ----------------------------------------------------------------------------------------------------------------


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: str | None = None) -> Any:
    """True where an element is among `test_elements`, as numpy.isin; NaN is nowhere. The values need not be known.

    `assume_unique` and `kind` change nothing: the test elements are sorted and searched.
    """
    if kind not in (None, "sort", "table"):
        raise ValueError(f"Invalid kind: '{kind}'. Please use None, 'sort' or 'table'.")
    x, test = tensor(element), ravel(test_elements)
    if not test.size:
        none = ew.not_equal(x, x) if x.dtype.kind != "f" else ew.less(x, -np.inf)
        return ew.logical_not(none) if invert else none
    x, test = _common(x, test)
    table = sort(test)
    place = ew.minimum(searchsorted(table, x), test.size - 1)
    found = ew.equal(take(table, place), x)
    return ew.logical_not(found) if invert else found


def _common(x: Any, y: Any) -> tuple[Any, Any]:
    """Both in the dtype that holds them."""
    dtype = np.result_type(x.dtype, y.dtype)
    return as_dtype(x, dtype), as_dtype(y, dtype)


# ---- set operations ------------------------------------------------------------------------------------------------------------


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements of both arrays, sorted, as numpy.union1d; `size` and `fill_value` as in unique."""
    x, y = _common(ravel(ar1), ravel(ar2))
    return unique(concatenate([x, y]), size=size, fill_value=fill_value)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The distinct elements that both arrays have, sorted, as numpy.intersect1d; with return_indices where each comes first.

    `size` and `fill_value` as in unique (indices that are left over are the length of their array).
    """
    x, y = _common(ravel(ar1), ravel(ar2))
    if size is None:
        plain: Any = np.intersect1d
        _, i, j = plain(_known(x, "intersect1d"), _known(y, "intersect1d"), assume_unique, True)
        values = take(x, i)
        return (values, i, j) if return_indices else values
    values, where = _sized_where(x, lambda v: isin(v, y), size, fill_value, (x, y) if return_indices else ())
    return (values, *where) if return_indices else values


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements of the first array that the second has not, sorted, as numpy.setdiff1d."""
    x, y = ravel(ar1), ravel(ar2)
    if size is None:
        plain, known = np.setdiff1d, (_known(x, "setdiff1d"), _known(y, "setdiff1d"))
        values = plain(*known, assume_unique)
        keep: Any = np.isin(known[0], values)
        if assume_unique:
            return take(x, np.flatnonzero(keep))
        _, index = np.unique(known[0], return_index=True)
        return take(x, index[keep[index]])
    return _sized_where(x, lambda v: isin(v, y, invert=True), size, fill_value, ())[0]


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The distinct elements that only one of the arrays has, sorted, as numpy.setxor1d."""
    x, y = _common(ravel(ar1), ravel(ar2))
    joined = concatenate([x, y])
    if size is None:
        plain: Any = np.setxor1d
        values = plain(_known(x, "setxor1d"), _known(y, "setxor1d"), assume_unique)
        known = _known(joined, "setxor1d")
        _, index = np.unique(known, return_index=True)
        return take(joined, index[np.isin(known[index], values)])
    return _sized_where(joined, lambda v: ew.not_equal(isin(v, x), isin(v, y)), size, fill_value, ())[0]


def _sized_where(x: Any, test: Any, size: int, fill_value: Any, sources: tuple) -> tuple[Any, tuple]:
    """Of the distinct elements of x the first `size` that pass a test, and where each comes first in other arrays."""
    n = x.size
    distinct, _, _, counts = _sized(x, s.reshape(x, shape=(n, 1)), None, n, None, True)
    places, count = first_places(ew.logical_and(test(distinct), ew.greater(counts, 0)), size)
    there = ew.less(iota((size,)), count)
    fill = as_dtype(operand(0 if fill_value is None else fill_value), x.dtype)
    if not n:
        return s.broadcast(fill, shape=(size,), dims=()), tuple(np.zeros(size, _INT64) for _ in sources)
    values = take(distinct, ew.where(there, places, 0))
    where = []
    for source in sources:
        if source.size:
            order = argsort(source)
            at = searchsorted(take(source, order), values)
            first = take(order, ew.minimum(at, source.size - 1))
        else:
            first = np.zeros(size, _INT64)
        where.append(ew.where(there, first, source.size))
    if fill_value is None and size:
        fill = values[0]
    return ew.where(there, values, fill), tuple(where)


# ---- zeros at the ends -----------------------------------------------------------------------------------------------------


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """`filt` without the zeros at the front ("f") and back ("b") of its axes, as numpy.trim_zeros; values must be known."""
    x = tensor(filt)
    trim = trim.lower()
    if trim not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    mask = known_mask(ew.not_equal(x, 0))
    chosen = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = {canonical_axis(i, x.ndim) for i in chosen}
    places = np.argwhere(mask)
    cut = []
    for i, n in enumerate(x.shape):
        if i not in axes:
            cut.append(slice(None))
        elif not len(places):
            cut.append(slice(0, 0))
        else:
            low, high = int(places[:, i].min()), int(places[:, i].max()) + 1
            cut.append(slice(low if "f" in trim else 0, high if "b" in trim else n))
    return x[tuple(cut)]
