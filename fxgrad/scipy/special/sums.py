"""Softmax and sums of exponentials over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, broadcast_to_shape, canonical_axes, result_type, tensor
from fxgrad.numpy.reductions import keep
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r
from fxgrad.primitives import transcendental as tr
from fxgrad.primitives.call import stop_gradient
from fxgrad.scipy.special.operands import constant, floats

__all__ = ["log_softmax", "logsumexp", "softmax"]

_F16, _F32 = np.dtype(np.float16), np.dtype(np.float32)


def _rows(x: Any) -> tuple[Any, np.dtype]:
    """x as floats to compute with (float16 in float32), and the dtype of the result."""
    x = tensor(x)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(float)
    return as_dtype(x, _F32 if dtype == _F16 else dtype), dtype


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """log(sum(b*exp(a))) over axes without overflow, as scipy.special.logsumexp; of -inf alone it is -inf.

    With `return_sign`, (log|sum|, sign). Where b is 0 nothing of a reaches the result or a gradient.

    Example:
        >>> from fxgrad.scipy import special
        >>> special.logsumexp([1000.0, 1000.0])
        np.float64(1000.6931471805599)
    """
    x, dtype = _rows(a)
    if b is None and not return_sign:
        axes = canonical_axes(axis, x.ndim)
        empty = math.prod(x.shape[i] for i in axes) == 0
        y = ew.log(_sum(x, axes)) if empty else as_dtype(r.logsumexp(x, axes=axes), dtype)
        return keep(y, x.shape, axes, keepdims)
    y, sign, shape, axes = _signed_logsumexp(x, b, axis)
    dtype = result_type(dtype, y)
    if not return_sign:
        y = e.select(e.lt(sign, constant(sign, 0)), constant(y, math.nan), y)
        return keep(as_dtype(y, dtype), shape, axes, keepdims)
    return keep(as_dtype(y, dtype), shape, axes, keepdims), keep(as_dtype(sign, dtype), shape, axes, keepdims)


def _signed_logsumexp(x: Any, b: Any, axis: Any) -> tuple[Any, Any, tuple[int, ...], tuple[int, ...]]:
    """(log|sum|, sign) of the weighted sum, the shape that was reduced, and its axes."""
    x, w = floats(x, 1.0 if b is None else tensor(b))
    shape = np.broadcast_shapes(x.shape, w.shape)
    x, w = broadcast_to_shape(x, shape), broadcast_to_shape(tensor(w), shape)
    axes = canonical_axes(axis, len(shape))
    if math.prod(shape[i] for i in axes) == 0:
        total = _sum(x, axes)
        return ew.log(total), total, shape, axes
    used = e.ne(w, constant(w, 0))
    x = e.select(used, x, constant(x, -math.inf))
    peak = r.max_(x, axes=axes)
    shift = stop_gradient(e.select(e.isfinite(peak), peak, constant(peak, 0)))
    terms = tr.exp(e.sub(x, r.spread(shift, shape, axes)))
    total = r.sum_(e.select(used, e.mul(w, terms), constant(x, 0)), axes=axes)
    return e.add(tr.log(e.abs_(total)), shift), e.sign(total), shape, axes


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    from fxgrad.numpy.reductions import sum

    return sum(x, axes)


def log_softmax(x: Any, axis: Any = None) -> Any:
    """log(softmax(x)) over axes, as scipy.special.log_softmax; entries of -inf stay -inf and move no other entry.

    Example:
        >>> from fxgrad.scipy import special
        >>> special.log_softmax([0.0, 1000.0])
        array([-1000.,     0.])
    """
    x, dtype = _rows(x)
    axes = canonical_axes(axis, x.ndim)
    if not x.size:
        return x
    return as_dtype(_log_softmax(x, axes), dtype)


def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    """(x - max) - log(sum(exp(x - max))): the maximum is never added back, it would cost large logits their digits."""
    low = e.eq(x, constant(x, -math.inf))
    peak = stop_gradient(r.max_(x, axes=axes))
    shift = e.select(e.isfinite(peak), peak, constant(x, 0))
    shifted = e.sub(e.select(low, constant(x, 0), x), r.spread(shift, x.shape, axes))
    total = r.sum_(e.select(low, constant(x, 0), tr.exp(shifted)), axes=axes)
    return e.sub(e.select(low, x, shifted), r.spread(tr.log(total), x.shape, axes))


def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x)/sum(exp(x)) over axes, as scipy.special.softmax; entries of -inf are 0 and get no gradient.

    Example:
        >>> from fxgrad.scipy import special
        >>> special.softmax([1.0, 1.0, 1.0, 1.0])
        array([0.25, 0.25, 0.25, 0.25])
    """
    x, dtype = _rows(x)
    axes = canonical_axes(axis, x.ndim)
    if not x.size:
        return x
    return as_dtype(r.softmax(x, axes=axes), dtype)
