"""Differences, integrals, interpolation, convolution, polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, canonical_axes, canonical_axis, operand, promote, refuse_complex, result_type, tensor
from fxgrad.numpy.creation import asarray, astype, zeros_like
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
    "array_equiv",
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
    """True where the imaginary part is not 0, as numpy.iscomplex."""
    x = tensor(x)
    return ew.not_equal(imag(x), 0) if x.dtype.kind == "c" else zeros_like(x, dtype=bool)


def real_if_close(a: Any, tol: float = 100) -> Any:
    """The real part if all imaginary parts are within `tol` epsilons (or, below 2, `tol`) of 0, as numpy.real_if_close.

    Of complex numbers the values must be known: they decide on the dtype of the result.
    """
    x = tensor(a)
    if x.dtype.kind != "c":
        return x
    known = x
    if hasattr(x, "_known"):
        known = x._known("complex numbers whose values fix the dtype of the result", "Write np.real(x), or keep x complex.")
    plain: Any = np.real_if_close
    return real(x) if plain(known, tol).dtype.kind != "c" else x


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


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether shapes broadcast to each other and all elements are equal, as numpy.array_equiv; a traced bool inside a trace."""
    from fxgrad.numpy.reductions import all

    x, y = tensor(a1), tensor(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    out = all(ew.equal(x, y))
    return out if hasattr(out, "aval") else bool(out)


def isposinf(x: Any) -> Any:
    """True where x is +inf, as numpy.isposinf."""
    x = operand(x)
    refuse_complex("np.isposinf: x", x)
    return ew.equal(x, np.inf)


def isneginf(x: Any) -> Any:
    """True where x is -inf, as numpy.isneginf."""
    x = operand(x)
    refuse_complex("np.isneginf: x", x)
    return ew.equal(x, -np.inf)


# ---- elementwise, not ufuncs in NumPy ----------------------------------------------------------------------------------------


def fix(x: Any) -> Any:
    """x without its fraction, as numpy.fix."""
    return ew.trunc(x)


def as_float(x: Any) -> Any:
    """x in a floating-point dtype."""
    x = tensor(x)
    return x if x.dtype.kind in "fc" else e.convert(x, dtype=np.dtype(float))


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
    """Jumps of more than half a period taken out, as numpy.unwrap; integers stay integers if the period is one."""
    x = tensor(p)
    whole = x.dtype.kind in "iu" and isinstance(period, (int, np.integer))
    x = x if whole else as_float(x)
    axis = canonical_axis(axis, x.ndim)
    step = diff(x, axis=axis)
    if whole:
        high, odd = divmod(period, 2)
        low, ambiguous = -high, not odd
    else:
        high, low, ambiguous = period / 2, -period / 2, True
    turned = ew.add(ew.remainder(ew.subtract(step, low), period), low)
    if ambiguous:
        turned = ew.where(ew.logical_and(ew.equal(turned, low), ew.greater(step, 0)), high, turned)
    fixed = ew.subtract(turned, step)
    fixed = ew.where(ew.less(ew.absolute(step), period / 2 if discont is None else discont), 0, fixed)
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
    flat = ravel(ary)
    x = ew.subtract(r.cut(flat, 0, min(1, flat.size), flat.size), r.cut(flat, 0, 0, max(0, flat.size - 1)))
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
    if isinstance(edge_order, bool) or edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    spacing = list(varargs) if varargs else [1.0]
    if len(spacing) == 1 and np.ndim(operand(spacing[0])) == 0:
        spacing *= len(axes)
    if len(spacing) != len(axes):
        raise TypeError("invalid number of arguments")
    out = [as_dtype(_gradient_along(x, h, i, edge_order), x.dtype) for h, i in zip(spacing, axes, strict=True)]
    return out[0] if len(out) == 1 else tuple(out)


def _gradient_along(x: Any, h: Any, axis: int, edge_order: int) -> Any:
    n = x.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required."
        )
    h = operand(h)
    if np.ndim(h) > 1:
        raise ValueError("distances must be either scalars or 1d")
    part = lambda start, stop: r.cut(x, axis, start, stop)  # noqa: E731
    if np.ndim(h) == 0:
        twice = 2.0 * h if isinstance(h, (int, float)) else ew.multiply(2.0, h)  # Python numbers stay weak
        inner = ew.divide(ew.subtract(part(2, n), part(0, max(n - 2, 0))), twice)
        d = None
    else:
        if h.shape[0] != n:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        d = reshape(diff(as_float(h)), tuple(-1 if i == axis else 1 for i in range(x.ndim)))
        inner = _weighted(_between(d, axis, n), [part(0, n - 2), part(1, n - 1), part(2, n)])
    first, last = (_edge(part, d, h, axis, n, edge_order, end) for end in (False, True))
    return concatenate([first, inner, last], axis)


def _weighted(weights: list[Any], values: list[Any]) -> Any:
    total: Any = None
    for w, v in zip(weights, values, strict=True):
        total = ew.multiply(w, v) if total is None else ew.add(total, ew.multiply(w, v))
    return total


def _between(d: Any, axis: int, n: int) -> list[Any]:
    """The weights of three neighbours at unequal distances d in the slope at the middle one."""
    left, right = r.cut(d, axis, 0, n - 2), r.cut(d, axis, 1, n - 1)
    return [
        ew.divide(ew.negative(right), ew.multiply(left, ew.add(left, right))),
        ew.divide(ew.subtract(right, left), ew.multiply(left, right)),
        ew.divide(left, ew.multiply(right, ew.add(left, right))),
    ]


def _edge(part: Any, d: Any, h: Any, axis: int, n: int, order: int, end: bool) -> Any:
    """The slope at the first or last place, of first or second order."""
    if order == 1:
        a, b = (part(n - 2, n - 1), part(n - 1, n)) if end else (part(0, 1), part(1, 2))
        step = h if d is None else r.cut(d, axis, n - 2, n - 1) if end else r.cut(d, axis, 0, 1)
        return ew.divide(ew.subtract(b, a), step)
    values = [part(n - 3, n - 2), part(n - 2, n - 1), part(n - 1, n)] if end else [part(0, 1), part(1, 2), part(2, 3)]
    if d is None:
        weights = [
            w / h if isinstance(h, (int, float)) else ew.divide(w, h) for w in ((0.5, -2.0, 1.5) if end else (-1.5, 2.0, -0.5))
        ]
        return _weighted(weights, values)
    k = n - 3 if end else 0
    near, far = r.cut(d, axis, k, k + 1), r.cut(d, axis, k + 1, k + 2)
    both = ew.add(near, far)
    if end:
        outer = ew.divide(ew.add(ew.multiply(2.0, far), near), ew.multiply(far, both))
        weights = [ew.divide(far, ew.multiply(near, both)), ew.divide(ew.negative(both), ew.multiply(near, far)), outer]
    else:
        outer = ew.divide(ew.negative(ew.add(ew.multiply(2.0, near), far)), ew.multiply(near, both))
        weights = [outer, ew.divide(both, ew.multiply(near, far)), ew.divide(ew.negative(near), ew.multiply(far, both))]
    return _weighted(weights, values)


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

    x, xp, fp = (tensor(v) for v in (x, xp, fp))
    refuse_complex("np.interp: x and xp", x, xp)
    if fp.dtype.kind == "c":  # either part by itself
        low, high = (None if v is None else tensor(v) for v in (left, right))
        parts = []
        for part in (real, imag):
            ends = {"left": None if low is None else part(low), "right": None if high is None else part(high)}
            parts.append(interp(x, xp, part(fp), **ends, period=period))
        return cx.complex_(*parts)
    refuse_complex("np.interp: left and right of real fp", *[operand(v) for v in (left, right) if v is not None])
    x, xp, fp = (as_dtype(v, np.dtype(np.float64)) for v in (x, xp, fp))
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
    """The cross-correlation of two vectors, v conjugated, as numpy.correlate (mode full, same or valid)."""
    from fxgrad.numpy.linalg import conjugated

    x, y = tensor(a), conjugated(tensor(v))
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"object {'of too small depth' if x.ndim * y.ndim == 0 else 'too deep'} for desired array")
    if not x.size or not y.size:
        raise ValueError(f"{'first' if not x.size else 'second'} array argument cannot be empty")
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
    """The covariance matrix of variables in rows, as numpy.cov, with counts `fweights` and weights `aweights` of observations."""
    from fxgrad.numpy.linalg import matmul
    from fxgrad.numpy.manipulation import atleast_2d, squeeze

    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    if np.ndim(operand(m)) > 2:
        raise ValueError("m has more than 2 dimensions")
    dtype = result_type(m, *([] if y is None else [y]), np.dtype(np.float64)) if dtype is None else np.dtype(dtype)
    x = atleast_2d(astype(m, dtype, copy=False))
    x = x.T if not rowvar and np.ndim(operand(m)) != 1 else x
    if y is not None:
        if np.ndim(operand(y)) > 2:
            raise ValueError("y has more than 2 dimensions")
        other = atleast_2d(astype(y, dtype, copy=False))
        x = concatenate([x, other.T if not rowvar and other.shape[0] != 1 else other], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    n = x.shape[1]
    w = _observation_weights(fweights, aweights, n)
    total = n if w is None else sum(w)
    average = ew.divide(sum(x if w is None else ew.multiply(x, w), axis=1, keepdims=True), total)
    centered = ew.subtract(x, average)
    weighted = centered if w is None else ew.multiply(centered, w)
    if w is None:
        factor: Any = max(n - ddof, 0)
    elif ddof == 0 or aweights is None:
        factor = ew.subtract(total, ddof)
    else:
        factor = ew.subtract(total, ew.divide(ew.multiply(ddof, sum(ew.multiply(w, tensor(aweights)))), total))
    return squeeze(ew.divide(matmul(centered, ew.conjugate(moveaxis(weighted, 0, 1))), factor))


def _observation_weights(fweights: Any, aweights: Any, n: int) -> Any:
    """The product of both kinds of weights, None without any."""
    w: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        v = tensor(given)
        if name == "fweights" and v.dtype.kind not in "iu":
            raise TypeError("fweights must be integer")
        if v.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if v.shape[0] != n:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if not hasattr(v, "_known") and np.any(v < 0):
            raise ValueError(f"{name} cannot be negative")
        v = as_float(v)
        w = v if w is None else ew.multiply(w, v)
    return w


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlation matrix of variables in rows, as numpy.corrcoef."""
    from fxgrad.numpy.selection import diagonal

    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return ew.divide(c, c)
    spread = ew.sqrt(real(diagonal(c)))
    parts = [part(c) for part in ((real, imag) if c.dtype.kind == "c" else (real,))]
    scaled = [ew.clip(ew.divide(ew.divide(p, spread[:, None]), spread[None, :]), -1, 1) for p in parts]
    return cx.complex_(*scaled) if len(scaled) == 2 else scaled[0]
