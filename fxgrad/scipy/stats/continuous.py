"""Continuous distributions of a number: log densities that are right at the ends of the support, with finite gradients."""

from __future__ import annotations

import math
from typing import Any

from fxgrad.primitives import elementwise as e
from fxgrad.primitives import special as p
from fxgrad.primitives import transcendental as tr
from fxgrad.scipy.special.elementwise import softplus_of
from fxgrad.scipy.special.operands import constant as _c
from fxgrad.scipy.stats.base import Continuous, inside, outside

__all__ = ["beta", "cauchy", "expon", "gamma", "laplace", "logistic", "norm", "t", "truncnorm", "uniform"]

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_HALF = math.sqrt(0.5)


def _positive(*shapes: Any) -> Any:
    ok = e.gt(shapes[0], _c(shapes[0], 0))
    for x in shapes[1:]:
        ok = e.and_(ok, e.gt(x, _c(x, 0)))
    return ok


def _clip01(x: Any) -> Any:
    return e.clip(x, _c(x, 0), _c(x, 1))


def _probability(q: Any, y: Any) -> Any:
    """y where q is a probability, else NaN."""
    return outside(e.and_(e.ge(q, _c(q, 0)), e.le(q, _c(q, 1))), y, math.nan)


# ---- normal ----------------------------------------------------------------------------------------------------------------


def _square(x: Any) -> Any:
    return e.mul(x, x)


def _norm_logpdf(x: Any) -> Any:
    return e.sub(e.mul(_c(x, -0.5), _square(x)), _c(x, _LOG_ROOT_2PI))


def _norm_sf(x: Any) -> Any:
    return e.mul(_c(x, 0.5), tr.erfc(e.mul(x, _c(x, _HALF))))


def _norm_cdf(x: Any) -> Any:
    return _norm_sf(e.neg(x))


class _Normal(Continuous):
    """The normal distribution; its logarithms of probabilities keep their digits in the tails."""

    def logcdf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of cdf, also far in the lower tail."""
        from fxgrad.scipy.special import log_ndtr

        return self._standard("logcdf", args, kwargs, lambda x, _, loc, scale: log_ndtr(e.div(e.sub(x, loc), scale)))

    def logsf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of sf, also far in the upper tail."""
        from fxgrad.scipy.special import log_ndtr

        return self._standard("logsf", args, kwargs, lambda x, _, loc, scale: log_ndtr(e.div(e.sub(loc, x), scale)))


norm = _Normal(
    "norm",
    (),
    _norm_logpdf,
    "cdf(1.96)",
    "np.float64(0.9750021048517795)",
    cdf=_norm_cdf,
    sf=_norm_sf,
    ppf=lambda q: p.ndtri(q),
    isf=lambda q: e.neg(p.ndtri(q)),
)


def _truncated_mass(a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """(whether the bounds were mirrored, the bounds in the lower half, the probability between them)."""
    flip = e.gt(e.add(a, b), _c(a, 0))
    low, high = e.select(flip, e.neg(b), a), e.select(flip, e.neg(a), b)
    return flip, low, high, e.sub(_norm_cdf(high), _norm_cdf(low))


def _truncnorm_logpdf(x: Any, a: Any, b: Any) -> Any:
    within = e.and_(e.ge(x, a), e.le(x, b))
    *_, mass = _truncated_mass(a, b)
    within = e.or_(within, e.ne(x, x))
    return outside(within, e.sub(_norm_logpdf(inside(within, x, 0.0)), tr.log(mass)), -math.inf)


def _truncnorm_between(x: Any, a: Any, b: Any, upper: bool) -> Any:
    """cdf or sf: a difference of probabilities taken in the lower half."""
    flip, low, high, mass = _truncated_mass(a, b)
    y = e.clip(x, a, b)
    y = e.select(flip, e.neg(y), y)
    below, above = e.sub(_norm_cdf(y), _norm_cdf(low)), e.sub(_norm_cdf(high), _norm_cdf(y))
    part = e.select(flip, below, above) if upper else e.select(flip, above, below)
    return _clip01(e.div(part, mass))


def _truncnorm_ppf(q: Any, a: Any, b: Any) -> Any:
    flip, low, _, mass = _truncated_mass(a, b)
    share = e.select(flip, e.sub(_c(q, 1), q), q)
    y = p.ndtri(e.add(_norm_cdf(low), e.mul(share, mass)))
    return _probability(q, e.clip(e.select(flip, e.neg(y), y), a, b))


truncnorm = Continuous(
    "truncnorm",
    ("a", "b"),
    _truncnorm_logpdf,
    "cdf(0.0, -1.0, 1.0)",
    "np.float64(0.5)",
    cdf=lambda x, a, b: _truncnorm_between(x, a, b, False),
    sf=lambda x, a, b: _truncnorm_between(x, a, b, True),
    ppf=_truncnorm_ppf,
    valid=lambda a, b: e.lt(a, b),
)

# ---- by elementary functions -----------------------------------------------------------------------------------------------


def _uniform_logpdf(x: Any) -> Any:
    within = e.and_(e.ge(x, _c(x, 0)), e.le(x, _c(x, 1)))
    return e.select(within, _c(x, 0), e.select(e.eq(x, x), _c(x, -math.inf), x))


uniform = Continuous(
    "uniform",
    (),
    _uniform_logpdf,
    "logpdf(0.5)",
    "np.float64(0.0)",
    cdf=_clip01,
    sf=lambda x: _clip01(e.sub(_c(x, 1), x)),
    ppf=lambda q: _probability(q, q),
    isf=lambda q: _probability(q, e.sub(_c(q, 1), q)),
)


def _expon_logpdf(x: Any) -> Any:
    return outside(e.or_(e.ge(x, _c(x, 0)), e.ne(x, x)), e.neg(x), -math.inf)


def _nonnegative(x: Any) -> Any:
    return e.select(e.lt(x, _c(x, 0)), _c(x, 0), x)


expon = Continuous(
    "expon",
    (),
    _expon_logpdf,
    "sf(2.0)",
    "np.float64(0.1353352832366127)",
    cdf=lambda x: e.neg(tr.expm1(e.neg(_nonnegative(x)))),
    sf=lambda x: tr.exp(e.neg(_nonnegative(x))),
    ppf=lambda q: _probability(q, e.neg(tr.log1p(e.neg(q)))),
    isf=lambda q: _probability(q, e.neg(tr.log(q))),
)


def _laplace_logpdf(x: Any) -> Any:
    return e.sub(e.neg(e.abs_(x)), _c(x, math.log(2)))


def _laplace_cdf(x: Any) -> Any:
    tail = e.mul(_c(x, 0.5), tr.exp(e.neg(e.abs_(x))))
    return e.select(e.lt(x, _c(x, 0)), tail, e.sub(_c(x, 1), tail))


def _laplace_ppf(q: Any) -> Any:
    low = e.lt(q, _c(q, 0.5))
    tail = e.select(low, q, e.sub(_c(q, 1), q))
    size = tr.log(e.mul(_c(q, 2), tail))
    return e.select(low, size, e.neg(size))


laplace = Continuous(
    "laplace",
    (),
    _laplace_logpdf,
    "ppf(0.5)",
    "np.float64(0.0)",
    cdf=_laplace_cdf,
    sf=lambda x: _laplace_cdf(e.neg(x)),
    ppf=_laplace_ppf,
    isf=lambda q: e.neg(_laplace_ppf(q)),
)


def _logistic_logpdf(x: Any) -> Any:
    a = e.abs_(x)
    return e.neg(e.add(a, e.mul(_c(x, 2), tr.log1p(tr.exp(e.neg(a))))))


def _logit(q: Any) -> Any:
    return e.sub(tr.log(q), tr.log1p(e.neg(q)))


class _Logistic(Continuous):
    """The logistic distribution; logcdf and logsf keep their digits in the tails."""

    def logcdf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of cdf, also far in the lower tail."""
        return self._standard("logcdf", args, kwargs, lambda x, _, loc, s: e.neg(softplus_of(e.div(e.sub(loc, x), s))))

    def logsf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of sf, also far in the upper tail."""
        return self._standard("logsf", args, kwargs, lambda x, _, loc, s: e.neg(softplus_of(e.div(e.sub(x, loc), s))))


logistic = _Logistic(
    "logistic",
    (),
    _logistic_logpdf,
    "cdf(0.0)",
    "np.float64(0.5)",
    cdf=lambda x: tr.logistic(x),
    sf=lambda x: tr.logistic(e.neg(x)),
    ppf=_logit,
    isf=lambda q: e.neg(_logit(q)),
)


def _cauchy_tail(x: Any) -> Any:
    """Probability of more than x: arctan2(1, x)/pi."""
    return e.div(tr.atan2(e.select(e.eq(x, x), _c(x, 1), x), x), _c(x, math.pi))


def _cauchy_ppf(q: Any) -> Any:
    """-cot(pi q), from the nearer end; infinite at 0 and 1."""
    low = e.le(q, _c(q, 0.5))
    tail = e.select(low, q, e.sub(_c(q, 1), q))
    size = e.div(_c(q, 1), tr.tan(e.mul(_c(q, math.pi), tail)))
    return _probability(q, e.select(low, e.neg(size), size))


cauchy = Continuous(
    "cauchy",
    (),
    lambda x: e.neg(e.add(tr.log1p(_square(x)), _c(x, math.log(math.pi)))),
    "sf(1.0)",
    "np.float64(0.25)",
    cdf=lambda x: _cauchy_tail(e.neg(x)),
    sf=_cauchy_tail,
    ppf=_cauchy_ppf,
    isf=lambda q: e.neg(_cauchy_ppf(q)),
)

# ---- by gamma and beta functions -------------------------------------------------------------------------------------------


def _gamma_logpdf(x: Any, a: Any) -> Any:
    """-inf below 0; at 0 the limit, infinite for a < 1."""
    zero, one = _c(x, 0), _c(x, 1)
    within = e.gt(x, zero)
    y = inside(within, x, 1.0)
    power = e.sub(a, one)
    density = e.sub(e.sub(p.xlogy(power, y), y), p.lgamma(a))
    at_zero = e.select(e.lt(a, one), _c(x, math.inf), e.select(e.eq(a, one), zero, _c(x, -math.inf)))
    rest = e.select(e.eq(x, zero), at_zero, e.select(e.eq(x, x), _c(x, -math.inf), x))
    return e.select(within, density, rest)


gamma = Continuous(
    "gamma",
    ("a",),
    _gamma_logpdf,
    "logpdf(1.0, 2.0)",
    "np.float64(-1.0)",
    cdf=lambda x, a: p.gammainc(a, _nonnegative(x)),
    sf=lambda x, a: p.gammaincc(a, _nonnegative(x)),
    valid=_positive,
)


def _end(power: Any, log_density: Any) -> Any:
    """log density at an end of the support where it goes as a distance to this power."""
    zero = _c(power, 0)
    inf = _c(power, math.inf)
    return e.select(e.lt(power, zero), inf, e.select(e.eq(power, zero), log_density, e.neg(inf)))


def _beta_logpdf(x: Any, a: Any, b: Any) -> Any:
    """-inf outside 0 to 1, limits at the ends."""
    zero, one = _c(x, 0), _c(x, 1)
    within = e.and_(e.gt(x, zero), e.lt(x, one))
    y = inside(within, x, 0.5)
    u, v = e.sub(a, one), e.sub(b, one)
    constant = e.neg(p.betaln(a, b))
    density = e.add(e.add(p.xlogy(u, y), p.xlog1py(v, e.neg(y))), constant)
    rest = e.select(e.eq(x, x), _c(x, -math.inf), x)
    rest = e.select(e.eq(x, zero), _end(u, constant), e.select(e.eq(x, one), _end(v, constant), rest))
    return e.select(within, density, rest)


beta = Continuous(
    "beta",
    ("a", "b"),
    _beta_logpdf,
    "pdf(0.5, 2.0, 2.0)",
    "np.float64(1.5)",
    cdf=lambda x, a, b: p.betainc(a, b, _clip01(x)),
    sf=lambda x, a, b: p.betainc(b, a, _clip01(e.sub(_c(x, 1), x))),
    valid=_positive,
)


def _t_logpdf(x: Any, df: Any) -> Any:
    half, n = e.mul(_c(x, 0.5), df), e.mul(_c(x, 0.5), e.add(df, _c(x, 1)))
    scale = e.add(_log_beta_half(half), e.mul(_c(x, 0.5), tr.log(df)))
    return e.neg(e.add(scale, e.mul(n, tr.log1p(e.div(_square(x), df)))))


def _log_beta_half(half: Any) -> Any:
    """log B(1/2, df/2)."""
    return p.betaln(e.select(e.eq(half, half), _c(half, 0.5), half), half)


def _t_tail(x: Any, df: Any) -> Any:
    """Probability of more than |x|."""
    s = _square(x)
    near = e.lt(s, df)
    total = e.add(df, s)
    one, half = _c(x, 1), e.mul(_c(x, 0.5), df)
    fifty = e.select(e.eq(half, half), _c(x, 0.5), half)
    share = e.div(e.select(near, s, df), total)
    inner = e.sub(one, p.betainc(fifty, half, e.select(near, share, _c(x, 0.5))))
    outer = p.betainc(half, fifty, e.select(near, _c(x, 0.5), share))
    return e.mul(_c(x, 0.5), e.select(near, inner, outer))


def _t_sf(x: Any, df: Any) -> Any:
    tail = _t_tail(x, df)
    return e.select(e.lt(x, _c(x, 0)), e.sub(_c(x, 1), tail), tail)


t = Continuous(
    "t", ("df",), _t_logpdf, "cdf(0.0, 3.0)", "np.float64(0.5)", cdf=lambda x, df: _t_sf(e.neg(x), df), sf=_t_sf, valid=_positive
)
