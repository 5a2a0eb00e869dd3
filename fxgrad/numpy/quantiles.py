"""Quantiles and medians. They are elements of the sorted array, so derivatives go to the elements they were read from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axes, operand, refuse_complex, refuse_out, tensor
from fxgrad.numpy.reductions import NONE, keep
from fxgrad.numpy.selection import take, take_along_axis
from fxgrad.numpy.sorting import argsort, sort
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

_FLOAT = np.dtype(np.float64)
_INT = np.dtype(np.int64)


def _rows(a: Any, axis: Any, keep_integers: bool = False) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """a with the reduced axes merged into a last one; its shape, and the axes."""
    x = tensor(a)
    if x.dtype.kind in "biu" and not keep_integers:
        x = e.convert(x, dtype=_FLOAT)
    axes = canonical_axes(axis, x.ndim)
    return s.merge_axes_last(x, axes) if x.ndim else s.reshape(x, shape=(1,)), x.shape, axes


def _any_nan(x: Any) -> Any:
    """Whether a row has a NaN."""
    return r.any_(e.ne(x, x), axes=(x.ndim - 1,))


# ---- where a quantile lies: positions in n sorted elements, counted from 0, as Hyndman and Fan (1996) number the methods -----
# `m` is numpy where all is known, so that positions are constants of the program, and fxgrad's functions where it is not.


def _continuous(alpha: float, beta: float) -> Callable[[Any, Any, Any], Any]:
    def place(m: Any, n: Any, q: Any) -> Any:
        return m.subtract(m.add(m.multiply(n, q), m.add(alpha, m.multiply(q, 1 - alpha - beta))), 1)

    return place


def _last_times(m: Any, n: Any, q: Any) -> Any:
    return m.multiply(m.subtract(n, 1), q)


def _step(shift: float, back: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """The next position after n*q - 1 - shift, or that itself where `back` says so."""

    def place(m: Any, n: Any, q: Any) -> Any:
        at = m.subtract(m.subtract(m.multiply(n, q), 1), shift)
        low = m.floor(at)
        return m.maximum(m.where(back(m, m.subtract(at, low), low), low, m.add(low, 1)), 0)

    return place


def _even(m: Any, rest: Any, low: Any) -> Any:
    return m.logical_and(m.equal(rest, 0), m.equal(m.remainder(low, 2), 1))


_DISCRETE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "inverted_cdf": _step(0.0, lambda m, rest, low: m.equal(rest, 0)),
    "closest_observation": _step(0.5, _even),
    "lower": lambda m, n, q: m.floor(_last_times(m, n, q)),
    "higher": lambda m, n, q: m.ceil(_last_times(m, n, q)),
    "nearest": lambda m, n, q: m.rint(_last_times(m, n, q)),
}
_BETWEEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": _last_times,
    "averaged_inverted_cdf": lambda m, n, q: m.subtract(m.multiply(n, q), 1),
    "interpolated_inverted_cdf": _continuous(0, 1),
    "hazen": _continuous(0.5, 0.5),
    "weibull": _continuous(0, 0),
    "median_unbiased": _continuous(1 / 3, 1 / 3),
    "normal_unbiased": _continuous(3 / 8, 3 / 8),
    "midpoint": lambda m, n, q: m.multiply(0.5, m.add(m.floor(_last_times(m, n, q)), m.ceil(_last_times(m, n, q)))),
}
_FRACTION: dict[str, Callable[[Any, Any], Any]] = {
    "averaged_inverted_cdf": lambda m, t: m.where(m.equal(t, 0), 0.5, 1.0),
    "midpoint": lambda m, t: m.where(m.equal(t, 0.5), 0.5, 0.0),
}


def _pick(ordered: Any, i: Any) -> Any:
    """Elements of sorted rows at positions of every row (its shape and one more axis), or of all (a vector)."""
    i = as_dtype(i, _INT)
    return take(ordered, i, axis=-1) if i.ndim == 1 else take_along_axis(ordered, i, -1)


def _read(ordered: Any, n: Any, q: Any, method: str, weak: bool) -> Any:
    """Quantiles (a vector q) of sorted rows that hold n numbers each, NaN behind them, as a new last axis."""
    m: Any = np if isinstance(n, int) and type(q) is not Tracer else ew
    last = m.maximum(m.subtract(n, 1), 0)
    if method in _DISCRETE:
        return _pick(ordered, m.clip(_DISCRETE[method](m, n, q), 0, last))
    at = _BETWEEN[method](m, n, q)
    low = m.floor(at)
    inside = m.logical_and(m.less(at, last), m.greater_equal(at, 0))
    edge = m.where(m.less(at, 0), 0, last)
    below = _pick(ordered, m.where(inside, low, edge))
    above = _pick(ordered, m.where(inside, m.add(low, 1), edge))
    fraction = m.subtract(at, low)
    fraction = _FRACTION[method](m, fraction) if method in _FRACTION else fraction
    return _between(below, above, as_dtype(fraction, ordered.dtype) if weak else fraction)


def _between(below: Any, above: Any, t: Any) -> Any:
    """below + t*(above - below), from the nearer end; equal infinities stay."""
    gap = ew.subtract(above, below)
    near = ew.where(ew.less(t, 0.5), ew.add(below, ew.multiply(gap, t)), ew.subtract(above, ew.multiply(gap, ew.subtract(1, t))))
    return ew.where(ew.logical_and(ew.not_equal(gap, gap), ew.equal(above, below)), below, near)


def _points(q: Any) -> Any:
    """q as float64 of any rank, traced or not; its values are checked where they are known."""
    points = as_dtype(operand(q), _FLOAT)
    if type(points) is Tracer:
        return ew.where(ew.logical_and(ew.greater_equal(points, 0), ew.less_equal(points, 1)), points, math.nan)
    points = np.asarray(points)
    if points.size and not (points.min() >= 0 and points.max() <= 1):
        raise ValueError("Quantiles must be in the range [0, 1]")
    return points


def _leading(y: Any, q_shape: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...], keepdims: Any) -> Any:
    """The last axis of y, that of the quantiles, brought to the front in the shape of q; reduced axes kept if asked for."""
    from fxgrad.numpy.manipulation import moveaxis, reshape

    y = moveaxis(y, -1, 0)
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape)) if keepdims is True else y.shape[1:]
    y = reshape(y, (*q_shape, *kept))
    return y[()] if isinstance(y, np.ndarray) and not y.ndim else y


def _quantiles(name: str, a: Any, q: Any, weak: bool, axis: Any, method: str, keepdims: Any, weights: Any, skip: bool) -> Any:
    if method not in _DISCRETE and method not in _BETWEEN:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join([*_DISCRETE, *_BETWEEN])}")
    refuse_complex(f"np.{name}: a", tensor(a))
    if tensor(a).dtype.kind == "b" and method not in _DISCRETE:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, so booleans have no quantiles")
    points = _points(q)
    flat = points.reshape(-1)
    if weights is not None:
        if method != "inverted_cdf":
            raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
        return _weighted(a, points, flat, axis, keepdims, weights, skip)
    x, shape, axes = _rows(a, axis, method in _DISCRETE)
    n: Any = x.shape[-1]
    if not n and not skip:
        raise IndexError(f"index -1 is out of bounds for axis 0 with size {n}")
    if not n:
        y = s.broadcast(x.dtype.type(math.nan), shape=(*x.shape[:-1], flat.size), dims=())
        return _leading(y, points.shape, shape, axes, keepdims)
    ordered = sort(x, -1)
    if x.dtype.kind != "f":
        return _leading(_read(ordered, n, flat, method, weak), points.shape, shape, axes, keepdims)
    if skip:
        n = r.sum_(e.convert(e.eq(x, x), dtype=_INT), axes=(x.ndim - 1,))
        y = _read(ordered, n[..., None], flat, method, weak)  # the NaN are last, so rows of them only answer NaN
    else:
        y = _read(ordered, n, flat, method, weak)
        y = ew.where(_any_nan(x)[..., None], y.dtype.type(math.nan), y)
    return _leading(y, points.shape, shape, axes, keepdims)


def _weighted(a: Any, points: Any, flat: Any, axis: Any, keepdims: Any, weights: Any, skip: bool) -> Any:
    """The first element at which the sum of the sorted elements' weights reaches its q-th part."""
    x, shape, axes = _rows(a, axis, True)
    w = _fitting_weights(weights, tensor(a), axis)
    if type(w) is not Tracer and np.any(w < 0):
        raise ValueError("Weights must be non-negative.")
    w, _, _ = _rows(w, axis)
    if x.dtype.kind == "f":
        w = ew.where(e.ne(x, x), 0.0, w) if skip else w
    order = argsort(x, -1)
    ordered = take_along_axis(x, order, -1)
    total = r.cumsum(as_dtype(take_along_axis(w, order, -1), _FLOAT), axis=x.ndim - 1, reverse=False)
    part = ew.divide(total, total[..., -1:])
    part = ew.where(ew.equal(part, 0), -1.0, part)
    ahead = r.sum_(e.convert(ew.less(part[..., None, :], flat[:, None]), dtype=_INT), axes=(x.ndim,))
    y = take_along_axis(ordered, ew.minimum(ahead, x.shape[-1] - 1), -1)
    if x.dtype.kind == "f":
        none = r.all_(e.ne(x, x), axes=(x.ndim - 1,)) if skip else _any_nan(x)
        y = ew.where(none[..., None], y.dtype.type(math.nan), y)
    return _leading(y, points.shape, shape, axes, keepdims)


def _fitting_weights(weights: Any, a: Any, axis: Any) -> Any:
    """Weights in the shape of a, from ones of that shape or of its reduced axes."""
    w = tensor(weights)
    if w.shape == a.shape:
        return w
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = canonical_axes(axis, a.ndim)
    if w.shape != tuple(a.shape[i] for i in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    return s.broadcast(w, shape=a.shape, dims=axes)


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
    """Quantiles over axes, as numpy.quantile, by any of NumPy's methods, with weights for "inverted_cdf"; NaN if there is one.

    The derivative goes to the elements between which the quantile lies. q may be traced too: NaN outside [0, 1], then.
    """
    refuse_out("quantile", out)
    return _quantiles("quantile", a, operand(q), type(q) in (int, float), axis, method, keepdims, weights, False)


def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = NONE,
    *,
    weights: Any = None,
) -> Any:
    """Quantiles over axes of the elements that are not NaN, as numpy.nanquantile; NaN (without a warning) if there are none."""
    refuse_out("nanquantile", out)
    return _quantiles("nanquantile", a, operand(q), type(q) in (int, float), axis, method, keepdims, weights, True)


def _part(q: Any) -> Any:
    """Percents as fractions."""
    q = operand(q)
    return ew.divide(q, 100) if type(q) is Tracer else np.asarray(q) / 100


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
    refuse_out("percentile", out)
    return _quantiles("percentile", a, _part(q), type(q) in (int, float), axis, method, keepdims, weights, False)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = NONE,
    *,
    weights: Any = None,
) -> Any:
    """Percentiles over axes of the elements that are not NaN, as numpy.nanpercentile; see nanquantile."""
    refuse_out("nanpercentile", out)
    return _quantiles("nanpercentile", a, _part(q), type(q) in (int, float), axis, method, keepdims, weights, True)


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
    # of complex numbers, which may have NaN in either part, the last in the order
    none = take(ordered, n - 1, axis=-1) if y.dtype.kind == "c" else y.dtype.type(math.nan)
    y = e.select(_any_nan(x), none, y)
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
