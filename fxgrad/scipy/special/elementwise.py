"""Error functions, logistic functions and entropies."""

from __future__ import annotations

import math
from typing import Any

from fxgrad.numpy import elementwise as ew
from fxgrad.numpy import numeric
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import special as p
from fxgrad.primitives import transcendental as tr
from fxgrad.scipy.special.operands import constant, special

__all__ = [
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "exprel",
    "kl_div",
    "log1p",
    "log_expit",
    "log_ndtr",
    "logit",
    "ndtr",
    "ndtri",
    "rel_entr",
    "sinc",
    "xlog1py",
    "xlogy",
]  # fmt: skip


erf = special("erf", tr.erf, "The error function.", "0.5", "np.float64(0.5204998778130465)")
erfc = special("erfc", tr.erfc, "1 - erf(x), without cancellation.", "0.5", "np.float64(0.4795001221869535)")
expit = special("expit", tr.logistic, "1/(1 + exp(-x)), the logistic function.", "0.0", "np.float64(0.5)")
expm1, log1p, exp2 = ew.expm1, ew.log1p, ew.exp2


def _logit(x: Any) -> Any:
    """log(x) - log1p(-x); near 1/2 the same through 2x - 1, which loses nothing there."""
    s = e.sub(e.mul(constant(x, 2), x), constant(x, 1))
    middle = e.lt(e.abs_(s), constant(x, 0.4))
    safe = e.select(middle, s, constant(x, 0))
    near = e.sub(tr.log1p(safe), tr.log1p(e.neg(safe)))
    far = e.select(middle, constant(x, 0.5), x)
    return e.select(middle, near, e.sub(tr.log(far), tr.log1p(e.neg(far))))


logit = special("logit", _logit, "log(x/(1 - x)).", "0.75", "np.float64(1.0986122886681096)")


def softplus_of(x: Any) -> Any:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); the slope at 0 is 1/2, at infinity 1."""
    return e.add(e.maximum(x, constant(x, 0)), tr.log1p(tr.exp(e.neg(e.abs_(x)))))


log_expit = special(
    "log_expit", lambda x: e.neg(softplus_of(e.neg(x))), "log(expit(x)), without overflow.", "-1000.0", "np.float64(-1000.0)"
)


xlogy = special("xlogy", p.xlogy, "x*log(y), 0 where x = 0.", "0.0, 0.0", "np.float64(0.0)", 2)
xlog1py = special("xlog1py", p.xlog1py, "x*log1p(y), 0 where x = 0.", "0.0, -1.0", "np.float64(0.0)", 2)


def _entr(x: Any) -> Any:
    zero = constant(x, 0)
    return e.select(e.lt(x, zero), constant(x, -math.inf), e.sub(zero, p.xlogy(x, x)))


entr = special("entr", _entr, "-x*log(x); 0 at 0, -inf below.", "0.5", "np.float64(0.34657359027997264)")


def _rel_entr(x: Any, y: Any) -> Any:
    zero = constant(x, 0)
    inside = e.or_(e.and_(e.ge(x, zero), e.gt(y, zero)), e.or_(e.ne(x, x), e.ne(y, y)))
    below = e.select(inside, y, constant(x, 1))
    apart = e.div(e.sub(x, below), below)  # log(x/y) is log1p of it, which is precise where x is near y
    near = e.lt(e.abs_(apart), constant(x, 0.5))
    far = p.xlogy(x, e.div(x, e.select(near, constant(x, 1), below)))
    value = e.select(near, e.mul(x, tr.log1p(e.select(near, apart, zero))), far)
    return e.select(inside, value, e.select(e.and_(e.eq(x, zero), e.eq(y, zero)), zero, constant(x, math.inf)))


rel_entr = special(
    "rel_entr", _rel_entr, "x*log(x/y); 0 where x = 0 <= y, inf outside.", "0.5, 0.25", "np.float64(0.34657359027997264)", 2
)


def _kl_div(x: Any, y: Any) -> Any:
    zero = constant(x, 0)
    finite = e.or_(e.and_(e.ge(x, zero), e.gt(y, zero)), e.and_(e.eq(x, zero), e.eq(y, zero)))
    return e.add(_rel_entr(x, y), e.select(finite, e.sub(y, x), constant(x, 0)))


kl_div = special("kl_div", _kl_div, "x*log(x/y) - x + y.", "0.5, 0.25", "np.float64(0.09657359027997264)", 2)


erfcx = special(
    "erfcx", p.erfcx, "exp(x*x)*erfc(x), which does not vanish for large x.", "100.0", "np.float64(0.005641613782989433)"
)
ndtr = special(
    "ndtr", p.ndtr, "The normal distribution function, precise in its lower tail.", "1.96", "np.float64(0.9750021048517795)"
)
log_ndtr = special("log_ndtr", p.log_ndtr, "log(ndtr(x)), also far in the lower tail.", "-40.0", "np.float64(-804.6084420137538)")
erfinv = special(
    "erfinv", p.erfinv, "The y with erf(y) = x; infinite at -1 and 1, NaN outside.", "0.5", "np.float64(0.4769362762044699)"
)
erfcinv = special(
    "erfcinv",
    p.erfcinv,
    "The y with erfc(y) = x, down to the smallest numbers; infinite at 0 and 2.",
    "0.5",
    "np.float64(0.4769362762044699)",
)
ndtri = special("ndtri", p.ndtri, "The normal quantile function, inverse of ndtr.", "0.975", "np.float64(1.959963984540054)")


def _exprel(x: Any) -> Any:
    """Near 0 its power series, whose derivatives do not cancel."""
    near = e.lt(e.abs_(x), constant(x, 0.5))
    t = e.select(near, x, constant(x, 0))
    series: Any = constant(x, 1 / math.factorial(15))
    for k in range(14, 0, -1):
        series = e.add(e.mul(series, t), constant(x, 1 / math.factorial(k)))
    far = e.select(near, constant(x, 1), x)
    large = e.gt(far, constant(x, 80))  # exp(x) overflows before the quotient does
    root = tr.exp(e.mul(constant(x, 0.5), e.select(large, far, constant(x, 0))))
    small = e.select(large, constant(x, 1), far)
    quotient = e.select(large, e.mul(e.div(root, far), root), e.div(tr.expm1(small), small))
    return e.select(near, series, e.select(e.eq(x, constant(x, math.inf)), x, quotient))


exprel = special("exprel", _exprel, "(exp(x) - 1)/x; 1 at 0.", "0.0", "np.float64(1.0)")

sinc = numeric.sinc
