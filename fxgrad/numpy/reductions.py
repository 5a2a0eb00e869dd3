"""Reductions: over axes, with NumPy's accumulator dtypes, `where=`, `initial=` and `keepdims=`.

Masked elements are replaced by the identity through a selection, so nothing of them reaches a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import (
    as_dtype,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    operand,
    refuse_out,
    result_type,
    tensor,
)
from fxgrad.numpy.creation import astype
from fxgrad.numpy.prepared import prepared
from fxgrad.primitives import complex as cx
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]

NONE: Any = np._NoValue
_F16, _F32 = np.dtype(np.float16), np.dtype(np.float32)


def keep(y: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: Any) -> Any:
    """y with the reduced axes put back as length 1, if asked for."""
    if not keepdims or keepdims is NONE or not axes:
        return y
    return s.reshape(y, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


def mask_like(where: Any, shape: tuple[int, ...]) -> Any:
    """The mask of `where=` in the shape of the operand, or NumPy's ValueError."""
    mask = ew.truth(tensor(where))
    if mask.ndim > len(shape) or broadcast_shapes(mask.shape, shape) != shape:
        raise errors.FxValueError(
            f"where= of shape {mask.shape} does not broadcast to the operand of shape {shape}",
            why="The mask says of every element whether it takes part.",
            fix="Pass a mask of the operand's shape, or one that broadcasts to it.",
        )
    return broadcast_to_shape(mask, shape)


def masked(x: Any, where: Any, identity: Any) -> Any:
    """x with `identity` where the mask does not hold."""
    if where is True or where is NONE or where is None:
        return x
    return e.select(mask_like(where, x.shape), x, identity)


def accumulator(dtype: np.dtype) -> np.dtype:
    """NumPy's: integers and booleans are summed in (u)int64."""
    if dtype.kind == "b" or (dtype.kind == "i" and dtype.itemsize < 8):
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def _wide(reduce: Callable[[Any], Any], x: Any) -> Any:
    """float16 is accumulated in float32 and rounded once."""
    return e.convert(reduce(e.convert(x, dtype=_F32)), dtype=_F16) if x.dtype == _F16 else reduce(x)


def _reduction(name: str, a: Any, axis: Any, dtype: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    """sum and prod."""
    x = tensor(a)
    x = astype(x, np.dtype(dtype) if dtype is not None else accumulator(x.dtype), copy=False)
    one = x.dtype.type(0 if name == "sum" else 1)
    axes = canonical_axes(axis, x.ndim)
    shape = x.shape
    x = masked(x, where, one)
    if math.prod(shape[i] for i in axes) == 0:
        y = s.broadcast(one, shape=tuple(n for i, n in enumerate(shape) if i not in axes), dims=())
        y = y[()] if isinstance(y, np.ndarray) and not y.shape else y
    elif x.dtype.kind == "b":
        y = (r.any_ if name == "sum" else r.all_)(x, axes=axes)
    else:
        y = _wide(lambda v: (r.sum_ if name == "sum" else r.prod)(v, axes=axes), x)
    if initial is not NONE and initial is not None:
        y = (e.add if name == "sum" else e.mul)(y, _scalar(initial, y))
    return keep(y, shape, axes, keepdims)


def _scalar(value: Any, like: Any) -> Any:
    v = as_dtype(operand(value), like.dtype)
    return v if isinstance(v, np.generic) else broadcast_to_shape(v, like.shape)


@prepared(1)
def sum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE
) -> Any:
    """Sum over axes, as numpy.sum; small integers are summed in int64, float16 in float32."""
    refuse_out("sum", out)
    return _reduction("sum", a, axis, dtype, keepdims, initial, where)


@prepared(1)
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE
) -> Any:
    """Product over axes, as numpy.prod; its derivative needs no division."""
    refuse_out("prod", out)
    return _reduction("prod", a, axis, dtype, keepdims, initial, where)


# ---- extrema ---------------------------------------------------------------------------------------------------------


def _refuse_complex(name: str, x: Any) -> None:
    if x.dtype.kind == "c":
        raise errors.FxTypeError(
            f"np.{name} of complex numbers ({x.dtype}) is not supported",
            why="They have no order; NumPy compares real parts first, which has no use as a derivative.",
            fix=f"Write np.{name}(np.abs(z)) or np.{name}(np.real(z)).",
        )


def _extremum(name: str, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    x = tensor(a)
    ufunc = "maximum" if name == "max" else "minimum"
    axes, given = canonical_axes(axis, x.ndim), initial is not NONE and initial is not None
    _refuse_complex(name, x)
    lowest = r._lowest(x.dtype, name == "min")
    if where is not NONE and where is not True and not given:
        raise errors.FxValueError(
            f"reduction operation '{ufunc}' does not have an identity, so to use a where mask one has to specify 'initial'",
            why="Where the mask is false everywhere there would be no result.",
            fix=f"Pass initial=, the result for no elements (for example initial={'-' if name == 'max' else ''}np.inf).",
        )
    shape = x.shape
    kept = tuple(n for i, n in enumerate(shape) if i not in axes)
    if math.prod(shape[i] for i in axes) == 0:
        if not given and math.prod(kept):
            raise errors.FxValueError(
                f"zero-size array to reduction operation {ufunc} which has no identity",
                why=f"The shape is {shape}: there is no element to choose.",
                fix="Pass initial=, the result for no elements.",
            )
        y = s.broadcast(lowest, shape=kept, dims=())
        y = y[()] if isinstance(y, np.ndarray) and not y.shape else y
    else:
        y = (r.max_ if name == "max" else r.min_)(masked(x, where, lowest), axes=axes)
    if given:
        y = (e.maximum if name == "max" else e.minimum)(y, _scalar(initial, y))
    return keep(y, shape, axes, keepdims)


@prepared(1)
def max(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE) -> Any:
    """Largest element over axes, as numpy.max; NaN if there is one. Ties share the derivative."""
    refuse_out("max", out)
    return _extremum("max", a, axis, keepdims, initial, where)


@prepared(1)
def min(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE) -> Any:
    """Smallest element over axes, as numpy.min; NaN if there is one. Ties share the derivative."""
    refuse_out("min", out)
    return _extremum("min", a, axis, keepdims, initial, where)


amax, amin = max, min


@prepared(1)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE) -> Any:
    """Largest minus smallest, as numpy.ptp."""
    return ew.subtract(max(a, axis, out, keepdims), min(a, axis, None, keepdims))


def _arg(name: str, a: Any, axis: Any, keepdims: Any) -> Any:
    x = tensor(a)
    if isinstance(axis, (tuple, list)):
        raise TypeError(f"'{type(axis).__name__}' object cannot be interpreted as an integer")
    shape, axes = x.shape, canonical_axes(axis, x.ndim)
    axis = axis if shape else None
    if axis is None:
        x = s.reshape(x, shape=(x.size,)) if x.ndim != 1 else x
    where = 0 if axis is None else axes[0]
    if x.shape[where] == 0:
        raise errors.FxValueError(
            f"attempt to get {name} of an empty sequence",
            why=f"Axis {axis} of shape {shape} has no element.",
            fix="Reduce along an axis that has elements, or test x.size first.",
        )
    return keep((r.argmax if name == "argmax" else r.argmin)(x, axes=(where,)), shape, axes, keepdims)


@prepared(1)
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NONE) -> Any:
    """Index of the first largest element along an axis (None: of the flattened array), as numpy.argmax."""
    refuse_out("argmax", out)
    return _arg("argmax", a, axis, keepdims)


@prepared(1)
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NONE) -> Any:
    """Index of the first smallest element along an axis (None: of the flattened array), as numpy.argmin."""
    refuse_out("argmin", out)
    return _arg("argmin", a, axis, keepdims)


# ---- truth -----------------------------------------------------------------------------------------------------------


@prepared(1)
def any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE, *, where: Any = NONE) -> Any:
    """True if any element is true, over axes, as numpy.any."""
    refuse_out("any", out)
    x = ew.truth(tensor(a))
    axes = canonical_axes(axis, x.ndim)
    return keep(r.any_(masked(x, where, np.bool_(False)), axes=axes), x.shape, axes, keepdims)


@prepared(1)
def all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE, *, where: Any = NONE) -> Any:
    """True if all elements are true, over axes, as numpy.all."""
    refuse_out("all", out)
    x = ew.truth(tensor(a))
    axes = canonical_axes(axis, x.ndim)
    return keep(r.all_(masked(x, where, np.bool_(True)), axes=axes), x.shape, axes, keepdims)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many elements are not zero, over axes, as numpy.count_nonzero."""
    return sum(ew.truth(tensor(a)), axis, keepdims=keepdims)


# ---- means and spreads -----------------------------------------------------------------------------------------------


def _count(x: Any, axes: tuple[int, ...], where: Any, keepdims: Any, dtype: np.dtype) -> Any:
    """How many elements each result is made of, as a number or (with a mask) an array."""
    if where is NONE or where is True or where is None:
        return dtype.type(math.prod(x.shape[i] for i in axes))
    return astype(sum(mask_like(where, x.shape), axes, keepdims=keepdims), dtype)


def _float_input(a: Any, dtype: Any) -> tuple[Any, np.dtype]:
    """a in the dtype the mean is computed in, and the dtype of the result."""
    x = tensor(a)
    result = np.dtype(dtype) if dtype is not None else x.dtype if x.dtype.kind in "fc" else np.dtype(float)
    return astype(x, _F32 if result == _F16 else result, copy=False), result


@prepared(1)
def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NONE, *, where: Any = NONE) -> Any:
    """Mean over axes, as numpy.mean; of no elements NaN."""
    refuse_out("mean", out)
    x, result = _float_input(a, dtype)
    axes = canonical_axes(axis, x.ndim)
    total = sum(x, axes, keepdims=keepdims, where=where)
    return astype(_over(total, _count(x, axes, where, keepdims, cx.real_dtype(x.dtype))), result, copy=False)


def _over(total: Any, count: Any) -> Any:
    """total / count; of complex totals each part, which is rounded once."""
    if total.dtype.kind != "c":
        return ew.divide(total, count)
    total = tensor(total)
    return cx.complex_(*[ew.divide(part(total), count) for part in (cx.real, cx.imag)])


@prepared(1)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NONE,
    *,
    where: Any = NONE,
    mean: Any = NONE,
    correction: Any = NONE,
) -> Any:
    """Variance over axes, as numpy.var: the mean of squared distances from the mean, over n - ddof; real, also of complex."""
    refuse_out("var", out)
    x, result = _float_input(a, dtype)
    axes = canonical_axes(axis, x.ndim)
    ddof = ddof if correction is NONE else correction
    part = cx.real_dtype(x.dtype)
    count = _count(x, axes, where, True, part)
    center = _over(sum(x, axes, keepdims=True, where=where), count) if mean is NONE else as_dtype(operand(mean), x.dtype)
    away = ew.subtract(x, center)
    if x.dtype.kind == "c":
        away = tensor(away)
        square = ew.add(ew.square(cx.real(away)), ew.square(cx.imag(away)))
    else:
        square = ew.square(away)
    count = _count(x, axes, where, keepdims, part)
    count = ew.maximum(ew.subtract(count, part.type(ddof)), part.type(0))
    return astype(ew.divide(sum(square, axes, keepdims=keepdims, where=where), count), cx.real_dtype(result), copy=False)


def root(x: Any) -> Any:
    """sqrt with the derivative 0 at 0, where norms and standard deviations have their corner."""
    zero = e.eq(x, x.dtype.type(0))
    return e.select(zero, x.dtype.type(0), e.sqrt(e.select(zero, x.dtype.type(1), x)))


@prepared(1)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NONE,
    *,
    where: Any = NONE,
    mean: Any = NONE,
    correction: Any = NONE,
) -> Any:
    """Standard deviation over axes, as numpy.std; where all elements are equal its derivative is 0."""
    x, result = _float_input(a, dtype)
    spread = var(x, axis, None, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    return astype(root(spread), cx.real_dtype(result), copy=False)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = NONE) -> Any:
    """Weighted mean over axes, as numpy.average."""
    x = tensor(a)
    if weights is None:
        y = mean(x, axis, keepdims=keepdims)
        total: Any = _count(x, canonical_axes(axis, x.ndim), True, False, y.dtype)
    else:
        w = tensor(weights)
        dtype = result_type(x, w, np.dtype(float)) if x.dtype.kind in "biu" else result_type(x, w)
        if w.shape != x.shape:
            if axis is None:
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            axes = axis if isinstance(axis, tuple) else (axis,)
            axes = tuple(canonical_axis(i, x.ndim) for i in axes)
            if w.shape != tuple(x.shape[i] for i in axes):
                raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
            order = tuple(int(i) for i in np.argsort(axes))
            w = s.transpose(w, perm=order) if order != tuple(range(w.ndim)) else w
            w = s.broadcast(w, shape=x.shape, dims=tuple(sorted(axes)))
        total = sum(w, axis, dtype=dtype, keepdims=keepdims)
        weighted = ew.multiply(as_dtype(x, dtype), as_dtype(w, dtype))
        y = ew.divide(sum(weighted, axis, dtype=dtype, keepdims=keepdims), total)
    return (y, broadcast_to_shape(tensor(total), y.shape)) if returned else y


# ---- ignoring NaN ----------------------------------------------------------------------------------------------------


def _not_nan(a: Any, filler: Callable[[np.dtype], Any]) -> tuple[Any, Any]:
    """a with its NaN replaced, and the mask of the others."""
    x = tensor(a)
    if x.dtype.kind not in "fc":
        return x, True
    fine = e.eq(x, x)
    return e.select(fine, x, filler(x.dtype)), fine


def _with(mask: Any, where: Any) -> Any:
    if mask is True:
        return where
    return mask if where is NONE or where is True else ew.logical_and(mask, where)


def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE
) -> Any:
    """Sum over axes with NaN counted as 0, as numpy.nansum."""
    return sum(_not_nan(a, lambda d: d.type(0))[0], axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE
) -> Any:
    """Product over axes with NaN counted as 1, as numpy.nanprod."""
    return prod(_not_nan(a, lambda d: d.type(1))[0], axis, dtype, out, keepdims, initial, where)


def _nan_extremum(name: str, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    refuse_out(f"nan{name}", out)
    _refuse_complex(f"nan{name}", tensor(a))
    x, fine = _not_nan(a, lambda d: r._lowest(d, name == "min"))
    y = _extremum(name, x, axis, keepdims, initial, where)
    if fine is True or (initial is not NONE and initial is not None):
        return y
    found = any(fine, axis, keepdims=keepdims)
    return e.select(found, y, y.dtype.type(math.nan))


def nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE) -> Any:
    """Largest element over axes, ignoring NaN (NaN if there is nothing else), as numpy.nanmax."""
    return _nan_extremum("max", a, axis, out, keepdims, initial, where)


def nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NONE, initial: Any = NONE, where: Any = NONE) -> Any:
    """Smallest element over axes, ignoring NaN (NaN if there is nothing else), as numpy.nanmin."""
    return _nan_extremum("min", a, axis, out, keepdims, initial, where)


def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NONE) -> Any:
    """Index of the largest element that is not NaN, as numpy.nanargmax; of NaN alone it is 0 (NumPy raises)."""
    return argmax(_not_nan(a, lambda d: r._lowest(d, False))[0], axis, out, keepdims=keepdims)


def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NONE) -> Any:
    """Index of the smallest element that is not NaN, as numpy.nanargmin; of NaN alone it is 0 (NumPy raises)."""
    return argmin(_not_nan(a, lambda d: r._lowest(d, True))[0], axis, out, keepdims=keepdims)


def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NONE, *, where: Any = NONE) -> Any:
    """Mean over axes of the elements that are not NaN, as numpy.nanmean."""
    return mean(a, axis, dtype, out, keepdims, where=_with(_not_nan(a, lambda d: d.type(0))[1], where))


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NONE,
    *,
    where: Any = NONE,
    mean: Any = NONE,
    correction: Any = NONE,
) -> Any:
    """Variance over axes of the elements that are not NaN, as numpy.nanvar."""
    mask = _with(_not_nan(a, lambda d: d.type(0))[1], where)
    return var(a, axis, dtype, out, ddof, keepdims, where=mask, mean=mean, correction=correction)


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NONE,
    *,
    where: Any = NONE,
    mean: Any = NONE,
    correction: Any = NONE,
) -> Any:
    """Standard deviation over axes of the elements that are not NaN, as numpy.nanstd."""
    mask = _with(_not_nan(a, lambda d: d.type(0))[1], where)
    return std(a, axis, dtype, out, ddof, keepdims, where=mask, mean=mean, correction=correction)


# ---- running -------------------------------------------------------------------------------------------------------


def _cumulative(name: str, a: Any, axis: Any, dtype: Any) -> Any:
    x = tensor(a)
    x = astype(x, np.dtype(dtype) if dtype is not None else accumulator(x.dtype), copy=False)
    if axis is None or (not x.ndim and axis in (0, -1)):
        x, axis = (x if x.ndim == 1 else s.reshape(x, shape=(x.size,))), 0
    axis = canonical_axis(axis, x.ndim)
    return (r.cumsum if name == "sum" else r.cumprod)(x, axis=axis, reverse=False)


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running sum along an axis (None: of the flattened array), as numpy.cumsum."""
    refuse_out("cumsum", out)
    return _cumulative("sum", a, axis, dtype)


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running product along an axis (None: of the flattened array), as numpy.cumprod; differentiated without division."""
    refuse_out("cumprod", out)
    return _cumulative("prod", a, axis, dtype)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running sum with NaN counted as 0, as numpy.nancumsum."""
    return cumsum(_not_nan(a, lambda d: d.type(0))[0], axis, dtype, out)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running product with NaN counted as 1, as numpy.nancumprod."""
    return cumprod(_not_nan(a, lambda d: d.type(1))[0], axis, dtype, out)


def _array_api(name: str, x: Any, axis: Any, dtype: Any, include_initial: bool) -> Any:
    x = tensor(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    axis = canonical_axis(axis, x.ndim)
    y = _cumulative(name, x, axis, dtype)
    return r.pad_axis(y, y.dtype.type(0 if name == "sum" else 1), axis, 1, 0) if include_initial else y


def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False) -> Any:
    """Running sum along an axis, as numpy.cumulative_sum."""
    refuse_out("cumulative_sum", out)
    return _array_api("sum", x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False) -> Any:
    """Running product along an axis, as numpy.cumulative_prod."""
    refuse_out("cumulative_prod", out)
    return _array_api("prod", x, axis, dtype, include_initial)
