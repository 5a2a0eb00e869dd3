"""Distributions of integers."""

from __future__ import annotations

import math
from typing import Any

from fxgrad.primitives import elementwise as e
from fxgrad.primitives import special as p
from fxgrad.scipy.special.operands import constant as _c
from fxgrad.scipy.stats.base import Discrete, inside, outside

__all__ = ["bernoulli", "binom", "poisson"]


def _share(x: Any) -> Any:
    return e.and_(e.ge(x, _c(x, 0)), e.le(x, _c(x, 1)))


def _bernoulli_logpmf(k: Any, q: Any) -> Any:
    """log(q) of 1, log1p(-q) of 0; the entry not chosen has no gradient."""
    zero, one = _c(k, 0), _c(k, 1)
    is_one, is_zero = e.eq(k, one), e.eq(k, zero)
    y = p.xlogy(e.select(is_one, one, zero), inside(is_one, q, 1.0))
    y = e.add(y, p.xlog1py(e.select(is_zero, one, zero), e.neg(inside(is_zero, q, 0.0))))
    return outside(e.or_(is_one, is_zero), y, -math.inf)


def _step(k: Any, low: Any, middle: Any, high: Any) -> Any:
    """By k < 0, 0 <= k < 1, k >= 1."""
    return e.select(e.lt(k, _c(k, 0)), low, e.select(e.lt(k, _c(k, 1)), middle, high))


bernoulli = Discrete(
    "bernoulli",
    ("p",),
    _bernoulli_logpmf,
    "pmf(1, 0.25)",
    "np.float64(0.25)",
    cdf=lambda k, q: _step(k, _c(k, 0), e.sub(_c(k, 1), q), _c(k, 1)),
    sf=lambda k, q: _step(k, _c(k, 1), q, _c(k, 0)),
    valid=_share,
)


def _poisson_logpmf(k: Any, mu: Any) -> Any:
    within = e.ge(k, _c(k, 0))
    n = inside(within, k, 0.0)
    return outside(within, e.sub(e.sub(p.xlogy(n, mu), mu), p.lgamma(e.add(n, _c(k, 1)))), -math.inf)


def _poisson_tail(upper: bool) -> Any:
    def tail(k: Any, mu: Any) -> Any:
        within = e.ge(k, _c(k, 0))
        n = e.add(inside(within, k, 0.0), _c(k, 1))
        return outside(within, p.gammainc(n, mu) if upper else p.gammaincc(n, mu), 1.0 if upper else 0.0)

    return tail


poisson = Discrete(
    "poisson",
    ("mu",),
    _poisson_logpmf,
    "pmf(0, 2.0)",
    "np.float64(0.1353352832366127)",
    cdf=_poisson_tail(False),
    sf=_poisson_tail(True),
    valid=lambda mu: e.ge(mu, _c(mu, 0)),
)


def _binom_logpmf(k: Any, n: Any, q: Any) -> Any:
    zero, one = _c(k, 0), _c(k, 1)
    within = e.and_(e.ge(k, zero), e.le(k, n))
    j = e.select(within, k, zero)
    rest = e.sub(n, j)
    ways = e.neg(e.add(p.betaln(e.add(rest, one), e.add(j, one)), p.xlogy(one, e.add(n, one))))
    return outside(within, e.add(e.add(ways, p.xlogy(j, q)), p.xlog1py(rest, e.neg(q))), -math.inf)


def _binom_tail(upper: bool) -> Any:
    def tail(k: Any, n: Any, q: Any) -> Any:
        """sf(k) = I_q(k + 1, n - k), cdf(k) = I_(1-q)(n - k, k + 1)."""
        zero, one = _c(k, 0), _c(k, 1)
        within = e.and_(e.ge(k, zero), e.lt(k, n))
        a, b = e.add(e.select(within, k, zero), one), e.select(within, e.sub(n, k), one)
        value = p.betainc(a, b, q) if upper else p.betainc(b, a, e.sub(one, q))
        before = e.lt(k, zero)
        ends = e.select(before, one, zero) if upper else e.select(before, zero, one)
        return e.select(within, value, ends)

    return tail


binom = Discrete(
    "binom",
    ("n", "p"),
    _binom_logpmf,
    "cdf(1, 2, 0.5)",
    "np.float64(0.75)",
    cdf=_binom_tail(False),
    sf=_binom_tail(True),
    valid=lambda n, q: e.and_(_share(q), e.and_(e.ge(n, _c(n, 0)), e.eq(e.floor(n), n))),
)
