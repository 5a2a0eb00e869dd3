"""Polynomials as vectors of coefficients from the highest power down, as in NumPy's `poly*` functions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, result_type, tensor
from fxgrad.numpy.creation import diag, vander, zeros
from fxgrad.numpy.manipulation import atleast_1d, concatenate, reshape, stack
from fxgrad.numpy.numeric import as_float, convolve
from fxgrad.numpy.reductions import sum as sum_
from fxgrad.primitives import reduce as r
from fxgrad.trace.tracer import Tracer

__all__ = ["poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots"]

_FLOAT = np.dtype(np.float64)


def polyval(p: Any, x: Any) -> Any:
    """The polynomial p at x by Horner's rule, as numpy.polyval."""
    p, x = tensor(p), tensor(x)
    y: Any = as_dtype(np.int64(0), result_type(p, x))
    for i in range(p.shape[0]):
        y = ew.add(ew.multiply(y, x), p[i])
    return y


def _combined(a1: Any, a2: Any, op: Any) -> Any:
    x, y = atleast_1d(a1), atleast_1d(a2)
    n = max(x.shape[0], y.shape[0])
    return op(*[r.pad_axis(t, t.dtype.type(0), 0, n - t.shape[0], 0) for t in (x, y)])


def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials, as numpy.polyadd."""
    return _combined(a1, a2, ew.add)


def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials, as numpy.polysub."""
    return _combined(a1, a2, ew.subtract)


def _values(x: Any, name: str, keyword: str) -> np.ndarray:
    """Coefficients whose zeros fix a size."""
    if type(x) is not Tracer:
        return np.asarray(x)
    return np.asarray(
        x._known(
            f"the coefficients of np.{name}, whose zeros fix the shape of the result",
            f"Write fxgrad.numpy.{name}(..., {keyword}=False) if there are none, or to keep them.",
        )
    )


def _without_leading_zeros(x: Any, name: str) -> Any:
    places = np.flatnonzero(_values(x, name, "trim_leading_zeros"))
    n = x.shape[0]
    return r.cut(x, 0, int(places[0]) if places.size else n - 1, n)


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = True) -> Any:
    """The product of two polynomials, as numpy.polymul.

    NumPy leaves out leading zeros of both, so their values must be known; `trim_leading_zeros=False` (JAX's default) keeps them.
    """
    x, y = atleast_1d(a1), atleast_1d(a2)
    if trim_leading_zeros:
        x, y = _without_leading_zeros(x, "polymul"), _without_leading_zeros(y, "polymul")
    return convolve(x, y)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = True) -> tuple[Any, Any]:
    """(quotient, remainder) of two polynomials, as numpy.polydiv.

    NumPy leaves out leading coefficients of the remainder near 0, so values must be known; `trim_leading_zeros=False` (JAX's
    default) keeps them.
    """
    u, v = atleast_1d(u), atleast_1d(v)
    dtype = result_type(u, v, 1.0)
    u, v = as_dtype(u, dtype), as_dtype(v, dtype)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    scale, rest, quotient = ew.divide(dtype.type(1), v[0]), u, []
    for k in range(m - n + 1):
        d = ew.multiply(scale, rest[k])
        quotient.append(d)
        taken = r.pad_axis(ew.multiply(d, v), dtype.type(0), 0, k, m - n - k)
        rest = ew.subtract(rest, taken)
    if trim_leading_zeros:
        known = _values(rest, "polydiv", "trim_leading_zeros")
        first = 0
        while first < m and np.allclose(known[first], 0, rtol=1e-14):
            first += 1
        rest = r.cut(rest, 0, first, m + 1)
    return (stack(quotient) if quotient else zeros(1, dtype)), rest


def polyder(p: Any, m: int = 1) -> Any:
    """The m-th derivative of a polynomial, as numpy.polyder."""
    m = int(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    y = tensor(p)
    for _ in range(m):
        n = max(y.shape[0] - 1, 0)
        y = ew.multiply(r.cut(y, 0, 0, n), np.arange(n, 0, -1))
    return y


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The m-th antiderivative of a polynomial, with the constants k (default 0), as numpy.polyint."""
    m = int(m)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    constants = np.zeros(m) if k is None else atleast_1d(k)
    if constants.shape[0] == 1 and m > 1:
        constants = ew.multiply(constants[0], np.ones(m))
    if constants.shape[0] < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    y = tensor(p)
    for i in range(m):
        n = y.shape[0]
        y = concatenate([ew.divide(y, np.arange(n, 0, -1)), reshape(constants[i], (1,))])
    return y


def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with these zeros, or the characteristic polynomial of a matrix, as numpy.poly."""
    z = atleast_1d(seq_of_zeros)
    if z.ndim == 2 and z.shape[0] == z.shape[1] and z.shape[0]:
        from fxgrad.numpy.linalg import eigvals

        z = eigvals(z)
    elif z.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if not z.shape[0]:
        return 1.0
    if z.dtype.char not in "fdFD":
        z = as_dtype(z, np.result_type(z.dtype, _FLOAT))
    one = np.ones(1, z.dtype)
    a: Any = one
    for i in range(z.shape[0]):
        a = convolve(a, concatenate([one, reshape(ew.negative(z[i]), (1,))]))
    if z.dtype.kind != "c":
        return a
    known = _values(z, "poly", "size")
    from fxgrad.numpy.numeric import real

    return real(a) if np.all(np.sort(known) == np.sort(known.conjugate())) else a


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """The roots of a polynomial, as numpy.roots, from the eigenvalues of its companion matrix.

    Zeros among the leading and trailing coefficients change the size of that matrix, so their values must be known;
    `strip_zeros=False`, as in JAX, promises that there are none.
    """
    from fxgrad.numpy.linalg import eigvals

    p = atleast_1d(p)
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    trailing = 0
    if strip_zeros:
        places = np.flatnonzero(_values(p, "roots", "strip_zeros"))
        if not places.size:
            return np.array([])
        trailing = p.shape[0] - int(places[-1]) - 1
        p = r.cut(p, 0, int(places[0]), int(places[-1]) + 1)
    p = as_float(p)
    n = p.shape[0]
    if n < 2:
        return np.zeros(trailing)
    below = concatenate([diag(np.ones(n - 2, p.dtype)), np.zeros((n - 2, 1), p.dtype)], axis=1)
    first = ew.divide(ew.negative(r.cut(p, 0, 1, n)), p[0])
    found = eigvals(concatenate([reshape(first, (1, n - 1)), below], axis=0))
    return concatenate([found, np.zeros(trailing, found.dtype)]) if trailing else found


# ---- least squares ---------------------------------------------------------------------------------------------------------


def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    """The polynomial of degree `deg` next to the points (x, y) in least squares, as numpy.polyfit; differentiable in x, y, w.

    `full=True` also answers residuals, rank, singular values and rcond, `cov=True` the covariance matrix (or "unscaled").
    """
    from fxgrad.numpy.linalg import lstsq

    order = int(deg) + 1
    x, y = ew.add(tensor(x), 0.0), ew.add(tensor(y), 0.0)
    _check_points(x, y, deg)
    rcond = x.shape[0] * np.finfo(x.dtype).eps if rcond is None else rcond
    lhs, rhs = vander(x, order), y
    if w is not None:
        w = ew.add(tensor(w), 0.0)
        _check_weights(w, y)
        lhs = ew.multiply(lhs, w[:, None])
        rhs = ew.multiply(rhs, w[:, None] if rhs.ndim == 2 else w)
    scale = ew.sqrt(sum_(ew.multiply(lhs, lhs), axis=0))
    lhs = ew.divide(lhs, scale)
    c, residuals, rank, s = lstsq(lhs, rhs, rcond)
    c = ew.divide(c, scale[:, None] if c.ndim == 2 else scale)
    if not full and type(rank) is not Tracer and rank != order:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=2)
    if full:
        return c, residuals, rank, s, rcond
    return (c, _covariance(lhs, scale, residuals, y.ndim, x.shape[0], cov)) if cov else c


def _check_points(x: Any, y: Any, deg: Any) -> None:
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not x.size:
        raise TypeError("expected non-empty vector for x")
    if y.ndim < 1 or y.ndim > 2:
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


def _check_weights(w: Any, y: Any) -> None:
    if w.ndim != 1:
        raise TypeError("expected a 1-d array for weights")
    if w.shape[0] != y.shape[0]:
        raise TypeError("expected w and y to have the same length")


def _covariance(lhs: Any, scale: Any, residuals: Any, rank: int, count: int, cov: Any) -> Any:
    """The covariance matrix of the coefficients, scaled by the residuals or not."""
    from fxgrad.numpy.linalg import inv, matmul, outer

    order = lhs.shape[1]
    base = ew.divide(inv(matmul(lhs.T, lhs)), outer(scale, scale))
    if isinstance(cov, str) and cov == "unscaled":
        factor: Any = 1
    else:
        if count <= order:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        factor = ew.divide(residuals, count - order)
    return ew.multiply(base, factor) if rank == 1 else ew.multiply(base[:, :, None], factor)
