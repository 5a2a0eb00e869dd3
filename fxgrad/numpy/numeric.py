"""Differences, integrals, interpolation, convolution, polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axes, canonical_axis, operand, promote, result_type, tensor
from fxgrad.numpy.creation import asarray, zeros_like
from fxgrad.numpy.manipulation import concatenate, moveaxis, ravel, reshape
from fxgrad.numpy.reductions import sum
from fxgrad.numpy.repetition import flip
from fxgrad.numpy.selection import take
from fxgrad.primitives import complex as cx
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r

__all__ = [
    "allclose",
    "angle",
    "array_equal",
    "convolve",
    "corrcoef",
    "correlate",
    "cov",
    "diff",
    "ediff1d",
    "fix",
    "gradient",
    "imag",
    "interp",
    "isclose",
    "iscomplex",
    "isneginf",
    "isposinf",
    "isreal",
    "ldexp",
    "modf",
    "polyval",
    "real",
    "real_if_close",
    "sinc",
    "trapezoid",
    "unwrap",
]

# ---- complex numbers -----------------------------------------------------------------------------------------------------


def real(val: Any) -> Any:
    """The real part, as numpy.real."""
    x = tensor(val)
    return cx.real(x) if x.dtype.kind == "c" else x


def imag(val: Any) -> Any:
    """The imaginary part, as numpy.imag: 0 of real numbers."""
    x = tensor(val)
    return cx.imag(x) if x.dtype.kind == "c" else zeros_like(x)


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a number in the complex plane, as numpy.angle."""
    x = tensor(z)
    y = ew.arctan2(cx.imag(x), cx.real(x)) if x.dtype.kind == "c" else ew.arctan2(0.0, x)
    return ew.rad2deg(y) if deg else y


def isreal(x: Any) -> Any:
    """True where x has no imaginary part, as numpy.isreal."""
    return ew.equal(imag(x), 0)


def iscomplex(x: Any) -> Any:
    """True where x has an imaginary part, as numpy.iscomplex."""
    return ew.not_equal(imag(x), 0)


def real_if_close(a: Any, tol: Any = 100) -> Any:
    """The real parts, if the values are known and no imaginary part counts, as numpy.real_if_close."""
    from fxgrad.numpy.reductions import all

    x = tensor(a)
    if x.dtype.kind != "c":
        return x
    limit = tol * np.finfo(x.dtype).eps if tol > 1 else tol
    return cx.real(x) if all(ew.less(ew.absolute(cx.imag(x)), limit)) else x


# ---- comparison ----------------------------------------------------------------------------------------------------------


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """|a - b| <= atol + rtol*|b|, elementwise, as numpy.isclose."""
    x, y = promote(a, b)
    if x.dtype.kind not in "fc":
        x, y = (as_dtype(v, np.dtype(float)) for v in (x, y))
    near = ew.less_equal(ew.absolute(ew.subtract(x, y)), ew.add(atol, ew.multiply(rtol, ew.absolute(y))))
    out = ew.logical_or(ew.logical_and(near, ew.isfinite(y)), ew.equal(x, y))
    return ew.logical_or(out, ew.logical_and(ew.isnan(x), ew.isnan(y))) if equal_nan else out


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all elements are close, as numpy.allclose; a traced bool inside a trace."""
    from fxgrad.numpy.reductions import all

    out = all(isclose(a, b, rtol, atol, equal_nan))
    return out if hasattr(out, "aval") else bool(out)


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether shapes and all elements are equal, as numpy.array_equal; a traced bool inside a trace."""
    from fxgrad.numpy.reductions import all

    x, y = tensor(a1), tensor(a2)
    if x.shape != y.shape:
        return False
    same = ew.equal(x, y)
    if equal_nan:
        same = ew.logical_or(same, ew.logical_and(ew.isnan(x), ew.isnan(y)))
    out = all(same)
    return out if hasattr(out, "aval") else bool(out)


def isposinf(x: Any) -> Any:
    """True where x is +inf, as numpy.isposinf."""
    return ew.equal(x, np.inf)


def isneginf(x: Any) -> Any:
    """True where x is -inf, as numpy.isneginf."""
    return ew.equal(x, -np.inf)


# ---- elementwise, not ufuncs in NumPy ----------------------------------------------------------------------------------------


def fix(x: Any) -> Any:
    """x without its fraction, as numpy.fix."""
    return ew.trunc(x)


def modf(x: Any) -> tuple[Any, Any]:
    """(fraction, whole part), both with the sign of x, as numpy.modf."""
    whole = ew.trunc(as_float(x))
    return ew.copysign(ew.where(ew.isinf(x), 0.0, ew.subtract(x, whole)), x), whole


def as_float(x: Any) -> Any:
    """x in a floating-point dtype."""
    x = tensor(x)
    return x if x.dtype.kind in "fc" else e.convert(x, dtype=np.dtype(float))


def ldexp(x1: Any, x2: Any) -> Any:
    """x1 * 2**x2, as numpy.ldexp."""
    return ew.multiply(
        as_float(x1), ew.power(as_dtype(np.float64(2), as_float(x1).dtype), as_dtype(tensor(x2), as_float(x1).dtype))
    )


def sinc(x: Any) -> Any:
    """sin(pi*x)/(pi*x), 1 at 0, as numpy.sinc; at 0 the first five derivatives are right."""
    t = ew.multiply(np.pi, as_float(x))
    zero = ew.equal(t, 0)
    safe = ew.where(zero, 1.0, t)
    square = ew.multiply(t, t)
    near = ew.add(
        ew.subtract(1, ew.divide(square, 6)), ew.divide(ew.multiply(square, square), 120)
    )  # carries the derivatives at 0
    return ew.where(zero, near, ew.divide(ew.sin(safe), safe))


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """Jumps of more than half a period taken out, as numpy.unwrap."""
    x = as_float(p)
    axis = canonical_axis(axis, x.ndim)
    step = diff(x, axis=axis)
    half = period / 2
    turned = ew.subtract(ew.remainder(ew.add(step, half), period), half)
    turned = ew.where(ew.logical_and(ew.equal(turned, -half), ew.greater(step, 0)), half, turned)
    fixed = ew.subtract(turned, step)
    limit = half if discont is None else max(discont, half)
    fixed = ew.where(ew.less(ew.absolute(step), limit), 0.0, fixed)
    from fxgrad.numpy.reductions import cumsum

    n = x.shape[axis]
    return concatenate([r.cut(x, axis, 0, 1), ew.add(r.cut(x, axis, 1, n), cumsum(fixed, axis))], axis)


# ---- differences and integrals ---------------------------------------------------------------------------------------------


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, n times, as numpy.diff."""
    if n == 0:
        return tensor(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    x = tensor(a)
    if not x.ndim:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = canonical_axis(axis, x.ndim)
    parts = []
    for part in (prepend, x, append):
        if part is None or part is np._NoValue:
            continue
        v = tensor(part)
        if not v.ndim:
            from fxgrad.numpy.manipulation import broadcast_to

            v = broadcast_to(v, tuple(1 if i == axis else m for i, m in enumerate(x.shape)))
        parts.append(v)
    x = concatenate(parts, axis) if len(parts) > 1 else x
    for _ in range(n):
        m = x.shape[axis]
        high, low = r.cut(x, axis, min(1, m), m), r.cut(x, axis, 0, max(0, m - 1))
        x = ew.not_equal(high, low) if x.dtype.kind == "b" else ew.subtract(high, low)
    return x


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours of the flattened array, as numpy.ediff1d."""
    x = diff(ravel(ary))
    parts = (
        ([] if to_begin is None else [as_dtype(ravel(to_begin), x.dtype)])
        + [x]
        + ([] if to_end is None else [as_dtype(ravel(to_end), x.dtype)])
    )
    return concatenate(parts)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences along axes, one-sided at the ends, as numpy.gradient (spacing: numbers or coordinate vectors)."""
    x = as_float(f)
    axes = (
        canonical_axes(axis, x.ndim)
        if axis is None
        else tuple(canonical_axis(i, x.ndim) for i in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    )
    spacing = list(varargs) if varargs else [1.0]
    if len(spacing) == 1:
        spacing *= len(axes)
    if len(spacing) != len(axes):
        raise TypeError("invalid number of arguments")
    if edge_order != 1:
        raise errors.UnsupportedError(
            "np.gradient(..., edge_order=2) is not supported",
            fix="Use edge_order=1.",
            why="Only first-order differences at the boundaries are implemented.",
        )
    out = [_gradient_along(x, h, i) for h, i in zip(spacing, axes, strict=True)]
    return out[0] if len(out) == 1 else tuple(out)


def _gradient_along(x: Any, h: Any, axis: int) -> Any:
    n = x.shape[axis]
    if n < 2:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required."
        )
    h = operand(h)
    step = diff(x, axis=axis)
    if np.ndim(h) == 0:
        slope = ew.divide(step, h)
        inner = ew.divide(ew.subtract(r.cut(x, axis, 2, n), r.cut(x, axis, 0, n - 2)), 2.0 * h)
    else:
        d = reshape(diff(h), tuple(-1 if i == axis else 1 for i in range(x.ndim)))
        slope = ew.divide(step, d)
        left, right = (r.cut(d, axis, 0, n - 2), r.cut(d, axis, 1, n - 1))
        a = ew.divide(ew.negative(right), ew.multiply(left, ew.add(left, right)))
        b = ew.divide(ew.subtract(right, left), ew.multiply(left, right))
        c = ew.divide(left, ew.multiply(right, ew.add(left, right)))
        inner = ew.add(
            ew.add(ew.multiply(a, r.cut(x, axis, 0, n - 2)), ew.multiply(b, r.cut(x, axis, 1, n - 1))),
            ew.multiply(c, r.cut(x, axis, 2, n)),
        )
    return concatenate([r.cut(slope, axis, 0, 1), inner, r.cut(slope, axis, n - 2, n - 1)], axis)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral by the trapezoidal rule, as numpy.trapezoid."""
    y = tensor(y)
    axis = canonical_axis(axis, y.ndim)
    n = y.shape[axis]
    d = dx
    if x is not None:
        x = tensor(x)
        d = reshape(diff(x), tuple(-1 if i == axis else 1 for i in range(y.ndim))) if x.ndim == 1 else diff(x, axis=axis)
    pairs = ew.add(r.cut(y, axis, min(1, n), n), r.cut(y, axis, 0, max(0, n - 1)))
    return sum(ew.divide(ew.multiply(d, pairs), 2.0), axis)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Piecewise linear interpolation through the points (xp, fp), xp increasing, as numpy.interp; differentiable in all three."""
    from fxgrad.numpy.sorting import argsort, searchsorted

    x, xp, fp = (as_dtype(tensor(v), np.dtype(float)) if tensor(v).dtype.kind != "f" else tensor(v) for v in (x, xp, fp))
    dtype = np.dtype(np.float64)
    x, xp, fp = (as_dtype(v, dtype) for v in (x, xp, fp))
    if xp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    if not xp.size:
        raise ValueError("array of sample points is empty")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        period = abs(period)
        x, xp = ew.remainder(x, period), ew.remainder(xp, period)
        order = argsort(xp)
        xp, fp = take(xp, order), take(fp, order)
        n = xp.shape[0]
        xp = concatenate([ew.subtract(r.cut(xp, 0, n - 1, n), period), xp, ew.add(r.cut(xp, 0, 0, 1), period)])
        fp = concatenate([r.cut(fp, 0, n - 1, n), fp, r.cut(fp, 0, 0, 1)])
        left = right = None
    n = xp.shape[0]
    first, last = fp[0], fp[n - 1]
    if n == 1:
        y = ew.add(ew.multiply(x, 0.0), first)
    else:
        high = ew.clip(searchsorted(xp, x, "right"), 1, n - 1)
        low = ew.subtract(high, 1)
        x0, y0 = take(xp, low), take(fp, low)
        slope = ew.divide(ew.subtract(take(fp, high), y0), ew.subtract(take(xp, high), x0))
        y = ew.add(ew.multiply(slope, ew.subtract(x, x0)), y0)
    y = ew.where(ew.less(x, xp[0]), first if left is None else left, y)
    y = ew.where(ew.greater(x, xp[n - 1]), last if right is None else right, y)
    return ew.where(ew.equal(x, xp[n - 1]), last, y)


# ---- convolution, polynomials, covariance ------------------------------------------------------------------------------------


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """The convolution of two vectors, as numpy.convolve (mode full, same or valid)."""
    x, y = (reshape(tensor(t), -1) if not tensor(t).ndim else tensor(t) for t in (a, v))
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError("object too deep for desired array")
    if not x.size or not y.size:
        raise ValueError(f"{'a' if not x.size else 'v'} cannot be empty")
    if y.size > x.size:
        x, y = y, x
    return _slide(x, flip(y), mode)


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """The cross-correlation of two vectors, as numpy.correlate (mode full, same or valid)."""
    x, y = tensor(a), tensor(v)
    if y.size > x.size:
        return flip(_slide(y, x, mode))
    return _slide(x, y, mode)


def _slide(x: Any, y: Any, mode: str) -> Any:
    """sum_k x[i + k] * y[k], with x padded as the mode asks."""
    from fxgrad.numpy.linalg import matmul
    from fxgrad.primitives.index import gather

    dtype = result_type(x, y)
    x, y, m = as_dtype(x, dtype), as_dtype(y, dtype), y.shape[0]
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got '{mode}')")
    low, high = {"full": (m - 1, m - 1), "same": (m // 2, m - 1 - m // 2), "valid": (0, 0)}[mode]
    x = r.pad_axis(x, dtype.type(0), 0, low, high)
    n = x.shape[0] - m + 1
    windows = gather(x, asarray(np.arange(n)[:, None] + np.arange(m)), axes=(0,))
    return matmul(windows, y)


def polyval(p: Any, x: Any) -> Any:
    """A polynomial with coefficients from the highest power down, by Horner's rule, as numpy.polyval."""
    p, x = tensor(p), tensor(x)
    y: Any = as_dtype(np.int64(0), result_type(p, x))
    for i in range(p.shape[0]):
        y = ew.add(ew.multiply(y, x), p[i])
    return y


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """The covariance matrix of variables in rows, as numpy.cov (without weights)."""
    from fxgrad.numpy.linalg import matmul
    from fxgrad.numpy.manipulation import atleast_2d, squeeze
    from fxgrad.numpy.reductions import mean

    if fweights is not None or aweights is not None:
        raise errors.UnsupportedError(
            "np.cov with weights is not supported",
            fix="Center and weight the data yourself: (w*x) @ x.T / w.sum().",
            why="fweights and aweights are not implemented.",
        )
    x = as_float(m) if dtype is None else as_dtype(tensor(m), np.dtype(dtype))
    x = atleast_2d(x)
    x = x.T if not rowvar and x.shape[0] != 1 else x
    if y is not None:
        other = atleast_2d(as_float(y))
        x = concatenate([x, other.T if not rowvar and other.shape[0] != 1 else other], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    centered = ew.subtract(x, mean(x, axis=1, keepdims=True))
    return squeeze(ew.divide(matmul(centered, moveaxis(centered, 0, 1)), max(x.shape[1] - ddof, 0)))


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlation matrix of variables in rows, as numpy.corrcoef."""
    from fxgrad.numpy.selection import diagonal

    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return ew.divide(c, c)
    spread = ew.sqrt(diagonal(c))
    return ew.clip(ew.divide(ew.divide(c, spread[:, None]), spread[None, :]), -1, 1)
