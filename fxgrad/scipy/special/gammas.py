"""Gamma, beta, zeta and Bessel functions, and what is counted with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, operand, static_int
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import special as p
from fxgrad.primitives import transcendental as tr
from fxgrad.primitives.call import stop_gradient
from fxgrad.scipy.special.operands import constant, floats, of_floats, special
from fxgrad.trace.tracer import Tracer

__all__ = [
    "beta", "betainc", "betaln", "comb", "digamma", "factorial", "gamma", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1",
    "i1e", "multigammaln", "poch", "polygamma", "psi", "zeta",
]  # fmt: skip

_F64 = np.dtype(np.float64)

gammaln = special("gammaln", p.lgamma, "log|gamma(x)|; inf at the poles.", "10.0", "np.float64(12.80182748008147)")
gamma = special("gamma", p.gamma, "The gamma function; NaN at negative integers.", "5.0", "np.float64(24.0)")
digamma = special("digamma", p.digamma, "The logarithmic derivative of gamma.", "1.0", "np.float64(-0.5772156649015329)")
psi = special("psi", p.digamma, "The logarithmic derivative of gamma.", "1.0", "np.float64(-0.5772156649015329)")
betaln = special("betaln", p.betaln, "log|beta(a, b)|.", "2.0, 3.0", "np.float64(-2.4849066497880004)", 2)
gammainc = special(
    "gammainc",
    p.gammainc,
    "P(a, x), the regularised lower incomplete gamma function, differentiable in both arguments.",
    "1.0, 2.0",
    "np.float64(0.8646647167633875)",
    2,
)
gammaincc = special(
    "gammaincc", p.gammaincc, "Q(a, x) = 1 - P(a, x), without cancellation.", "1.0, 2.0", "np.float64(0.13533528323661245)", 2
)
betainc = special(
    "betainc",
    p.betainc,
    "I_x(a, b), the regularised incomplete beta function, differentiable in x.",
    "2.0, 3.0, 0.5",
    "np.float64(0.6875)",
    3,
)
i0 = special("i0", p.i0, "The modified Bessel function of the first kind, order 0.", "1.0", "np.float64(1.2660658777520084)")
i0e = special("i0e", p.i0e, "exp(-|x|)*i0(x).", "1.0", "np.float64(0.4657596075936405)")
i1 = special("i1", p.i1, "The modified Bessel function of the first kind, order 1.", "1.0", "np.float64(0.565159103992485)")
i1e = special("i1e", p.i1e, "exp(-|x|)*i1(x).", "1.0", "np.float64(0.20791041534970847)")


def _in_double(impl: Callable[..., Any]) -> Callable[..., Any]:
    """`impl` in float64, its result rounded to the dtype of the operands."""
    return lambda *xs: as_dtype(impl(*[as_dtype(x, _F64) for x in xs]), xs[0].dtype)


def _beta(a: Any, b: Any) -> Any:
    """Of gamma functions while none of them overflows, else from the logarithm."""
    limit = constant(a, 170)
    n = e.add(a, b)
    small = e.and_(e.and_(e.lt(e.abs_(a), limit), e.lt(e.abs_(b), limit)), e.lt(e.abs_(n), limit))
    one = constant(a, 1)
    u, w = e.select(small, a, one), e.select(small, b, one)
    total = e.add(u, w)
    rest = e.sub(total, u)  # what was rounded off the sum moves its gamma function
    rest = stop_gradient(e.add(e.sub(u, e.sub(total, rest)), e.sub(w, rest)))
    below = e.mul(p.gamma(total), e.add(one, e.mul(rest, stop_gradient(p.digamma(total)))))
    product = e.mul(e.div(p.gamma(u), below), p.gamma(w))
    return e.select(small, product, tr.exp(p.betaln(e.select(small, one, a), e.select(small, one, b))))


beta = special("beta", _in_double(_beta), "gamma(a)*gamma(b)/gamma(a + b).", "2.0, 3.0", "np.float64(0.08333333333333333)", 2)


def _poch(z: Any, m: Any) -> Any:
    """A quotient of gamma functions while they do not overflow, else from their logarithms."""
    limit = constant(z, 170)
    n = e.add(z, m)
    small = e.and_(e.lt(e.abs_(z), limit), e.lt(e.abs_(n), limit))
    one = constant(z, 1)
    u, w = e.select(small, z, one), e.select(small, n, one)
    s, t = e.select(small, one, z), e.select(small, one, n)
    return e.select(small, e.div(p.gamma(w), p.gamma(u)), tr.exp(e.sub(p.lgamma(t), p.lgamma(s))))


poch = special(
    "poch",
    _in_double(_poch),
    "gamma(z + m)/gamma(z), the rising factorial; for large arguments of one sign.",
    "3.0, 2.0",
    "np.float64(12.0)",
    2,
)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma, as scipy.special.polygamma.

    Arguments:
        n: an int >= 0, fixed; it may not be traced.
        x: array of floats.

    Example:
        >>> from fxgrad.scipy import special
        >>> float(special.polygamma(1, 1.0))
        1.6449340668482264
    """
    if isinstance(n, Tracer) or np.ndim(n) or np.asarray(n) != np.floor(n) or n < 0:
        raise errors.FxValueError(
            f"polygamma takes a fixed integer n >= 0, got {n!r}" if not isinstance(n, Tracer) else "polygamma got a traced n",
            why="The order of a derivative is part of the program.",
            fix="Pass a Python int; for an array of orders and x > 0 write (-1)**(n + 1) * gamma(n + 1) * zeta(n + 1, x).",
        )
    order = static_int(int(n))
    if order == 0:
        return digamma(x)
    return of_floats("polygamma", lambda t: p.polygamma(t, n=order))(x)


_ZETA_TERMS = 10
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def _zeta(s: Any, q: Any) -> Any:
    """Ten terms, then Euler and Maclaurin's formula (DLMF 25.11.5)."""
    one, zero = constant(s, 1), constant(s, 0)
    ordinary = e.and_(e.gt(s, one), e.gt(q, zero))
    s, given = e.select(ordinary, s, constant(s, 2)), s
    q, where = e.select(ordinary, q, one), q
    total = tr.pow(q, e.neg(s))
    for k in range(1, _ZETA_TERMS):
        total = e.add(total, tr.pow(e.add(q, constant(q, k)), e.neg(s)))
    w = e.add(q, constant(q, _ZETA_TERMS))
    last = tr.pow(w, e.neg(s))
    r = e.div(one, w)
    factor, tail = e.mul(s, r), constant(s, 0.5)
    for k, b in enumerate(_BERNOULLI, 1):
        tail = e.add(tail, e.mul(factor, constant(s, b / math.factorial(2 * k))))
        for j in (2 * k - 1, 2 * k):
            factor = e.mul(factor, e.mul(e.add(s, constant(s, j)), r))
    value = e.add(total, e.mul(last, e.add(e.div(w, e.sub(s, one)), tail)))
    pole = e.and_(e.ge(given, one), e.eq(where, zero))
    outside = e.select(e.or_(pole, e.eq(given, one)), constant(s, math.inf), constant(s, math.nan))
    return e.select(ordinary, value, outside)


_zeta_function = of_floats("zeta", _in_double(_zeta), 2)


def zeta(x: Any, q: Any = None) -> Any:
    """Hurwitz' zeta function, the sum of (q + k)**-x over k >= 0, as scipy.special.zeta; Riemann's without q.

    Arguments:
        x: array, above 1 (inf at 1, NaN below).
        q: array, above 0; differentiable in both.

    Example:
        >>> from fxgrad.scipy import special
        >>> round(float(special.zeta(2.0)), 12)
        1.644934066848
    """
    return _zeta_function(x, 1.0 if q is None else q)


def multigammaln(a: Any, d: Any) -> Any:
    """log of the multivariate gamma function of dimension d, as scipy.special.multigammaln; a above (d - 1)/2.

    Example:
        >>> from fxgrad.scipy import special
        >>> round(float(special.multigammaln(3.0, 2)), 6)
        1.550195
    """
    d = static_int(d)
    (a,) = floats(a)
    total: Any = constant(a, d * (d - 1) / 4 * math.log(math.pi))
    for j in range(d):
        total = e.add(total, gammaln(e.sub(a, constant(a, j / 2))))
    return total


def _inexact(name: str, exact: Any) -> None:
    if exact:
        raise errors.UnsupportedError(
            f"{name}(..., exact=True) is not supported",
            why="Python's unbounded integers do not fit into arrays.",
            fix=f"Leave exact out for floats; or use math.{name} on Python ints.",
        )


def factorial(n: Any, exact: bool = False) -> Any:
    """gamma(n + 1), 0 for n < 0, as scipy.special.factorial.

    Example:
        >>> from fxgrad.scipy import special
        >>> special.factorial(4)
        np.float64(24.0)
    """
    _inexact("factorial", exact)
    (x,) = floats(operand(n))
    below = e.lt(x, constant(x, 0))
    return e.select(below, constant(x, 0), gamma(e.add(e.select(below, constant(x, 0), x), constant(x, 1))))


def comb(N: Any, k: Any, exact: bool = False, repetition: bool = False) -> Any:
    """The number of ways to choose k of N, as scipy.special.comb; 0 where k < 0 or k > N.

    Example:
        >>> from fxgrad.scipy import special
        >>> round(float(special.comb(5, 2)), 10)
        10.0
    """
    _inexact("comb", exact)
    n, m = floats(N, k)
    if repetition:
        n = e.sub(e.add(n, m), constant(n, 1))
    zero, one = constant(n, 0), constant(n, 1)
    inside = e.and_(e.and_(e.ge(m, zero), e.ge(n, m)), e.ge(n, zero))
    n, m = e.select(inside, n, one), e.select(inside, m, zero)
    n1 = e.add(n, one)
    ways = e.div(one, e.mul(n1, beta(e.sub(n1, m), e.add(m, one))))
    return e.select(inside, ways, zero)
