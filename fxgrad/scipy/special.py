"""Special functions, as scipy.special; right at infinities, and free of NaN where the limits exist."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, broadcast_operands, broadcast_to_shape, canonical_axes, operand, result_type, tensor
from fxgrad.numpy.reductions import keep
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r
from fxgrad.primitives import special as p
from fxgrad.primitives import transcendental as tr
from fxgrad.primitives.call import stop_gradient

__all__ = [
    "entr", "erf", "erfc", "exp2", "expit", "expm1", "kl_div", "log1p", "log_expit", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "ndtr", "rel_entr", "softmax", "xlog1py", "xlogy",
]  # fmt: skip

_HALF = math.sqrt(0.5)
_F16, _F32 = np.dtype(np.float16), np.dtype(np.float32)


def _floats(*args: Any) -> list[Any]:
    """Operands in one floating-point dtype and shape."""
    xs = [operand(x) for x in args]
    dtype = result_type(*xs)
    dtype = dtype if dtype.kind == "f" else np.dtype(float)
    return broadcast_operands([as_dtype(x, dtype) for x in xs])


def _special(name: str, impl: Callable[..., Any], summary: str, nin: int = 1) -> Callable[..., Any]:
    single = ew.in_single(impl)

    def function(*args: Any) -> Any:
        if len(args) != nin:
            raise TypeError(f"{name}() takes {nin} positional arguments but {len(args)} were given")
        return single(*_floats(*args))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary} Elementwise, as scipy.special.{name}."
    return function


def _c(x: Any, value: float) -> Any:
    return x.dtype.type(value)


erf = _special("erf", tr.erf, "The error function.")
erfc = _special("erfc", tr.erfc, "1 - erf(x), without cancellation.")
expit = _special("expit", tr.logistic, "1/(1 + exp(-x)), the logistic function.")
expm1, log1p, exp2 = ew.expm1, ew.log1p, ew.exp2


def _logit(x: Any) -> Any:
    """log(x) - log1p(-x); near 1/2 the same through 2x - 1, which loses nothing there."""
    s = e.sub(e.mul(_c(x, 2), x), _c(x, 1))
    middle = e.lt(e.abs_(s), _c(x, 0.4))
    safe = e.select(middle, s, _c(x, 0))
    near = e.sub(tr.log1p(safe), tr.log1p(e.neg(safe)))
    far = e.select(middle, _c(x, 0.5), x)
    return e.select(middle, near, e.sub(tr.log(far), tr.log1p(e.neg(far))))


logit = _special("logit", _logit, "log(x/(1 - x)).")


def softplus_of(x: Any) -> Any:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); the slope at 0 is 1/2, at infinity 1."""
    return e.add(e.maximum(x, _c(x, 0)), tr.log1p(tr.exp(e.neg(e.abs_(x)))))


log_expit = _special("log_expit", lambda x: e.neg(softplus_of(e.neg(x))), "log(expit(x)), without overflow.")


xlogy = _special("xlogy", p.xlogy, "x*log(y), 0 where x = 0.", 2)
xlog1py = _special("xlog1py", p.xlog1py, "x*log1p(y), 0 where x = 0.", 2)
entr = _special(
    "entr", lambda x: e.select(e.lt(x, _c(x, 0)), _c(x, -math.inf), e.neg(p.xlogy(x, x))), "-x*log(x); 0 at 0, -inf below."
)


def _rel_entr(x: Any, y: Any) -> Any:
    zero = _c(x, 0)
    inside = e.or_(e.and_(e.ge(x, zero), e.gt(y, zero)), e.or_(e.ne(x, x), e.ne(y, y)))
    value = p.xlogy(x, e.div(x, e.select(inside, y, _c(y, 1))))
    return e.select(inside, value, e.select(e.and_(e.eq(x, zero), e.eq(y, zero)), zero, _c(x, math.inf)))


rel_entr = _special("rel_entr", _rel_entr, "x*log(x/y); 0 where x = 0 <= y, inf outside.", 2)


def _kl_div(x: Any, y: Any) -> Any:
    zero = _c(x, 0)
    finite = e.or_(e.and_(e.ge(x, zero), e.gt(y, zero)), e.and_(e.eq(x, zero), e.eq(y, zero)))
    return e.add(_rel_entr(x, y), e.select(finite, e.sub(y, x), _c(x, 0)))


kl_div = _special("kl_div", _kl_div, "x*log(x/y) - x + y.", 2)


def _ndtr(x: Any) -> Any:
    return e.mul(_c(x, 0.5), tr.erfc(e.mul(x, _c(x, -_HALF))))


ndtr = _special("ndtr", _ndtr, "The normal distribution function.")


def _log_ndtr(x: Any) -> Any:
    """log1p(-ndtr(-x)) above -1, the logarithm down to -10, an asymptotic series below, where ndtr would vanish."""
    limit = -10.0 if x.dtype != _F32 else -5.0
    high, low = e.gt(x, _c(x, -1)), e.lt(x, _c(x, limit))
    upper = tr.log1p(e.neg(_ndtr(e.neg(e.select(high, x, _c(x, 0))))))
    middle = tr.log(_ndtr(e.select(e.or_(high, low), _c(x, -2), x)))
    t = e.select(low, x, _c(x, limit))
    z = e.div(_c(x, 1), e.mul(t, t))
    terms = 10
    coefficient, series = [1.0], _c(x, 0)
    for k in range(1, terms):
        coefficient.append(-coefficient[-1] * (2 * k - 1))
    for c in coefficient[:0:-1]:
        series = e.mul(z, e.add(_c(x, c), series)) if not isinstance(series, np.generic) or series else e.mul(z, _c(x, c))
    tail = e.sub(
        e.add(e.mul(_c(x, -0.5), e.mul(t, t)), tr.log1p(series)), e.add(tr.log(e.neg(t)), _c(x, 0.5 * math.log(2 * math.pi)))
    )
    return e.select(high, upper, e.select(low, tail, middle))


log_ndtr = _special("log_ndtr", _log_ndtr, "log(ndtr(x)), also far in the lower tail.")


# ---- over axes ---------------------------------------------------------------------------------------------------------


def _rows(x: Any) -> tuple[Any, np.dtype]:
    """x as floats to compute with (float16 in float32), and the dtype of the result."""
    x = tensor(x)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(float)
    return as_dtype(x, _F32 if dtype == _F16 else dtype), dtype


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """log(sum(b*exp(a))) over axes without overflow, as scipy.special.logsumexp; of -inf alone it is -inf.

    With `return_sign`, (log|sum|, sign). Where b is 0 nothing of a reaches the result or a gradient.
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
        y = e.select(e.lt(sign, _c(sign, 0)), _c(y, math.nan), y)
        return keep(as_dtype(y, dtype), shape, axes, keepdims)
    return keep(as_dtype(y, dtype), shape, axes, keepdims), keep(as_dtype(sign, dtype), shape, axes, keepdims)


def _signed_logsumexp(x: Any, b: Any, axis: Any) -> tuple[Any, Any, tuple[int, ...], tuple[int, ...]]:
    """(log|sum|, sign) of the weighted sum, the shape that was reduced, and its axes."""
    x, w = _floats(x, 1.0 if b is None else tensor(b))
    shape = np.broadcast_shapes(x.shape, w.shape)
    x, w = broadcast_to_shape(x, shape), broadcast_to_shape(tensor(w), shape)
    axes = canonical_axes(axis, len(shape))
    if math.prod(shape[i] for i in axes) == 0:
        total = _sum(x, axes)
        return ew.log(total), total, shape, axes
    used = e.ne(w, _c(w, 0))
    x = e.select(used, x, _c(x, -math.inf))
    peak = r.max_(x, axes=axes)
    shift = stop_gradient(e.select(e.isfinite(peak), peak, _c(peak, 0)))
    terms = tr.exp(e.sub(x, r.spread(shift, shape, axes)))
    total = r.sum_(e.select(used, e.mul(w, terms), _c(x, 0)), axes=axes)
    return e.add(tr.log(e.abs_(total)), shift), e.sign(total), shape, axes


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    from fxgrad.numpy.reductions import sum

    return sum(x, axes)


def log_softmax(x: Any, axis: Any = None) -> Any:
    """log(softmax(x)) over axes, as scipy.special.log_softmax; entries of -inf stay -inf and move no other entry."""
    x, dtype = _rows(x)
    axes = canonical_axes(axis, x.ndim)
    if not x.size:
        return x
    return as_dtype(_log_softmax(x, axes), dtype)


def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    """(x - max) - log(sum(exp(x - max))): the maximum is never added back, it would cost large logits their digits."""
    low = e.eq(x, _c(x, -math.inf))
    peak = stop_gradient(r.max_(x, axes=axes))
    shift = e.select(e.isfinite(peak), peak, _c(x, 0))
    shifted = e.sub(e.select(low, _c(x, 0), x), r.spread(shift, x.shape, axes))
    total = r.sum_(e.select(low, _c(x, 0), tr.exp(shifted)), axes=axes)
    return e.sub(e.select(low, x, shifted), r.spread(tr.log(total), x.shape, axes))


def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x)/sum(exp(x)) over axes, as scipy.special.softmax; entries of -inf are 0 and get no gradient."""
    x, dtype = _rows(x)
    axes = canonical_axes(axis, x.ndim)
    if not x.size:
        return x
    return as_dtype(r.softmax(x, axes=axes), dtype)
