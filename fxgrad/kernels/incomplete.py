"""Incomplete gamma and beta functions, and their slopes by the shape: series and continued fractions, lane by lane.

What stands before them is written with the deviance a log(a/x) + x - a and Stirling's error (C. Loader, "Fast and accurate
computation of binomial probabilities", 2000), so that nothing large cancels. All in float64; float32 is rounded from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.kernels import doubleword as dw
from fxgrad.kernels import math as m
from fxgrad.kernels import vector as v
from fxgrad.kernels.gamma import digamma, gamma, in_double, lgamma, lgamma1p, stirling
from fxgrad.kernels.iterate import repeat_while

__all__ = ["beta_density", "betainc", "betaln", "gamma_density", "gamma_draw_slope", "gammainc", "gammainc_slope", "gammaincc"]

_F64 = np.dtype(np.float64)
_INF, _NAN = float("inf"), float("nan")
_EPS, _TINY = 2.0**-53, 1e-300
_MOST = 1e6  # turns, reached by no argument below 10^10


def _stirling_error(a: Any) -> Any:
    """log gamma(a + 1) - (a + 1/2) log(a) + a - log(2 pi)/2 for a > 0."""
    small = a < 8.0
    b = v.select(small, a, v.constant(a, 1.0))
    near = (lgamma(b + 1.0) - (b + 0.5) * m.log(b)) + (b - 0.9189385332046728)
    return v.select(small, near, stirling(v.select(small, v.constant(a, 8.0), a)))


def _deviance(a: Any, x: Any) -> Any:
    """a log(a/x) + x - a for a > 0, x >= 0."""
    mu = (x - a) / a
    near = (mu > -0.29) & (mu < 0.41)
    f = v.select(near, mu, v.constant(a, 0.0))
    s = f / (f + 2.0)
    z = s * s
    close = a * s * (f - z * dw.horner(z, m._LOG[_F64]))  # -a (log(1 + f) - f), log(1 + f) = 2 s + s z p(z)
    return v.select(near, close, (x - a) - a * m.log(v.select(near, v.constant(a, 1.0), x / a)))


def _factorial(a: Any) -> Any:
    """gamma(a + 1) without rounding a + 1 where that would tell."""
    below = a < 1.0
    return gamma(v.select(below, a + 1.0, a)) * v.select(below, 1.0, a)


def _gamma_factor(a: Any, x: Any) -> Any:
    """x^a exp(-x) / gamma(a + 1)."""
    small = a < 100.0  # where pow is more precise than the exponential of a large number
    b, y = v.select(small, a, v.constant(a, 1.0)), v.select(small, x, v.constant(a, 1.0))
    near = m.pow(v.select(y > 800.0, 800.0, y), b) * m.exp(-y) / _factorial(b)
    b = v.select(small, v.constant(a, 100.0), a)
    far = m.exp(-stirling(b) - _deviance(b, x)) / v.sqrt(b * (2 * math.pi))
    return v.select(small, near, far)


def _series(a: Any, x: Any, wanted: Any) -> tuple[Any, Any]:
    """S = 1 + x/(a+1) + x^2/((a+1)(a+2)) + ..., so that P(a, x) is x^a exp(-x)/gamma(a+1) S, and its derivative by a."""
    one, zero = v.constant(a, 1.0), v.constant(a, 0.0)

    def step(n: Any, term: Any, slope: Any, total: Any, total_slope: Any) -> tuple[Any, ...]:
        n = n + 1.0
        r = 1.0 / (a + n)
        term, slope = term * x * r, (slope * x - term * x * r) * r
        return n, term, slope, total + term, total_slope + slope

    def going(n: Any, term: Any, slope: Any, total: Any, total_slope: Any) -> Any:
        more = (term > total * _EPS) | (v.absolute(slope) > v.absolute(total_slope) * _EPS)
        return wanted & more & (n < _MOST)

    _, _, _, total, total_slope = repeat_while(going, step, (zero, one, zero, one, zero))
    return total, total_slope


def _fraction(a: Any, x: Any, wanted: Any) -> tuple[Any, Any]:
    """C with Q(a, x) = x^a exp(-x)/gamma(a) C, by Lentz's method on Legendre's fraction (DLMF 8.9.2), and its derivative by a."""
    one, zero = v.constant(a, 1.0), v.constant(a, 0.0)
    b = x + 1.0 - a
    b = v.select(b == 0.0, v.constant(a, _TINY), b)
    d = one / b
    start = (zero, b, v.constant(a, 1 / _TINY), zero, d, d * d, d, d * d, zero, zero)

    def step(i: Any, b: Any, c: Any, dc: Any, d: Any, dd: Any, h: Any, dh: Any, last: Any, slope: Any) -> tuple[Any, ...]:
        i = i + 1.0
        t, b = i * (a - i), b + 2.0  # the numerator, whose derivative is i; b has -1
        e = v.fma(t, d, b)
        e = v.select(e == 0.0, v.constant(a, _TINY), e)
        de = v.fma(i, d, v.fma(t, dd, -1.0))
        f = b + t / c
        f = v.select(f == 0.0, v.constant(a, _TINY), f)
        df = (i - t * dc / c) / c - 1.0
        d = 1.0 / e
        dd = -de * d * d
        ratio, dratio = d * f, dd * f + d * df
        return i, b, f, df, d, dd, h * ratio, dh * ratio + h * dratio, ratio - 1.0, dratio

    def going(i: Any, b: Any, c: Any, dc: Any, d: Any, dd: Any, h: Any, dh: Any, last: Any, slope: Any) -> Any:
        more = (v.absolute(last) > 4 * _EPS) | (v.absolute(slope) > 16 * _EPS) | (i < 2.0)
        return wanted & more & (i < _MOST)

    state = repeat_while(going, step, start)
    return state[6], state[7]


def _parts(a: Any, x: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """a and x made harmless where the answer is known; whether it is not; whether the series is used; and both sums."""
    ordinary = (a > 0.0) & (a < _INF) & (x > 0.0) & (x < _INF)
    a, x = v.select(ordinary, a, v.constant(a, 1.0)), v.select(ordinary, x, v.constant(a, 1.0))
    low = x < v.select(a > 1.0, a, 1.0)  # so that neither P nor Q is 1 minus nearly 1
    return a, x, ordinary, low, _series(a, x, ordinary & low), _fraction(a, x, ordinary & ~low)


def _small_upper(a: Any, x: Any, wanted: Any) -> Any:
    """Q(a, x) for a <= 1/2, x < 1: 1 - x^a/gamma(1+a) (1 + a sum (-x)^n/(n! (a+n))), without the cancellation."""
    zero = v.constant(a, 0.0)

    def step(n: Any, power: Any, term: Any, total: Any) -> tuple[Any, ...]:
        n = n + 1.0
        power = -power * x / n
        term = power / (a + n)
        return n, power, term, total + term

    def going(n: Any, power: Any, term: Any, total: Any) -> Any:
        return wanted & ((v.absolute(term) > v.absolute(total) * _EPS) | (n < 1.0)) & (n < 200.0)

    total = repeat_while(going, step, (zero, v.constant(a, 1.0), zero, zero))[3]
    u = a * m.log(x) - lgamma1p(a)
    return -m.expm1(u) - m.exp(u) * a * total


def _ends(a: Any, x: Any, value: Any, ordinary: Any, upper: bool) -> Any:
    """Limits: x = 0, x = inf, a = 0, a = inf; NaN outside."""
    none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
    at_end = v.select((x == 0.0) | (a == _INF), v.constant(a, none), v.constant(a, all_))
    valid = (a >= 0.0) & (x >= 0.0) & ~((a == 0.0) & (x == 0.0)) & ~((a == _INF) & (x == _INF))
    return v.select(ordinary, value, v.select(valid, at_end, v.constant(a, _NAN)))


def _regularised(upper: bool) -> Callable[..., Any]:
    @in_double
    def body(a: Any, x: Any) -> Any:
        b, y, ordinary, low, (total, _), (fraction, _) = _parts(a, x)
        factor = _gamma_factor(b, y)
        direct = factor * v.select(low, total, b * fraction)  # P where low, else Q
        value = v.select(low, 1.0 - direct, direct) if upper else v.select(low, direct, 1.0 - direct)
        if upper:
            small = ordinary & (b <= 0.5) & (y < 1.0)
            c, z = v.select(small, b, v.constant(a, 0.5)), v.select(small, y, v.constant(a, 0.5))
            value = v.select(small, _small_upper(c, z, small), value)
        return _ends(a, x, value, ordinary, upper)

    return body


_lower, _upper = _regularised(False), _regularised(True)


def gammainc(a: Any, x: Any) -> Any:
    """P(a, x), the regularised lower incomplete gamma function."""
    return _lower(a, x)


def gammaincc(a: Any, x: Any) -> Any:
    """Q(a, x) = 1 - P(a, x)."""
    return _upper(a, x)


def _slopes(a: Any, x: Any, low: Any, series: tuple[Any, Any], fraction: tuple[Any, Any]) -> Any:
    """dP/da over the density x^(a-1) exp(-x)/gamma(a)."""
    logarithm, shape = m.log(x), v.select(low, a + 1.0, a)
    centred = logarithm - digamma(shape)
    return v.select(low, (x / a) * v.fma(series[0], centred, series[1]), -x * v.fma(fraction[0], centred, fraction[1]))


@in_double
def gamma_density(a: Any, x: Any) -> Any:
    """x^(a-1) exp(-x) / gamma(a), the density of the gamma distribution; 0 for x < 0."""
    ordinary = (a > 0.0) & (a < _INF) & (x > 0.0) & (x < _INF)
    b, y = v.select(ordinary, a, v.constant(a, 1.0)), v.select(ordinary, x, v.constant(a, 1.0))
    at_zero = v.select(a < 1.0, v.constant(a, _INF), v.select(a == 1.0, v.constant(a, 1.0), 0.0))
    ends = v.select(x == 0.0, at_zero, v.constant(a, 0.0))
    return v.select(ordinary, _gamma_factor(b, y) * b / y, v.select((a > 0.0) & (a < _INF) & (x == x), ends, _NAN))


@in_double
def gammainc_slope(a: Any, x: Any) -> Any:
    """dP/da."""
    b, y, ordinary, low, series, fraction = _parts(a, x)
    density = _gamma_factor(b, y) * b / y
    value = _slopes(b, y, low, series, fraction) * density
    valid = (a >= 0.0) & (x >= 0.0)
    return v.select(ordinary, value, v.select(valid, v.constant(a, 0.0), v.constant(a, _NAN)))


@in_double
def gamma_draw_slope(a: Any, x: Any) -> Any:
    """dx/da of a draw x of the gamma distribution with shape a: -(dP/da)/density (Figurnov, Mohamed and Mnih, 2018)."""
    b, y, ordinary, low, series, fraction = _parts(a, x)
    return v.select(ordinary, -_slopes(b, y, low, series, fraction), v.constant(a, 0.0))


# ---- beta --------------------------------------------------------------------------------------------------------------


def _beta_factor(a: Any, b: Any, x: Any, y: Any, y_low: Any) -> Any:
    """x^a y^b gamma(a + b)/(gamma(a) gamma(b)) with y + y_low = 1 - x."""
    n = a + b
    exponent = _stirling_error(n) - _stirling_error(a) - _stirling_error(b) - _deviance(a, n * x) - _deviance(b, n * y)
    return m.exp(exponent + b * (y_low / y)) * v.sqrt(a / n * b / (2 * math.pi))


def _beta_fraction(a: Any, b: Any, x: Any, wanted: Any) -> Any:
    """The continued fraction DLMF 8.17.22, two steps a turn, by Lentz's method."""
    one, zero = v.constant(a, 1.0), v.constant(a, 0.0)
    total, above, below = a + b, a + 1.0, a - 1.0

    def nonzero(t: Any) -> Any:
        return v.select(v.absolute(t) < _TINY, v.constant(a, _TINY), t)

    d = one / nonzero(1.0 - total * x / above)

    def step(i: Any, c: Any, d: Any, h: Any, last: Any) -> tuple[Any, ...]:
        i = i + 1.0
        twice = i + i
        t = i * (b - i) * x / ((below + twice) * (a + twice))
        d, c = one / nonzero(v.fma(t, d, 1.0)), nonzero(1.0 + t / c)
        h = h * d * c
        t = -(a + i) * (total + i) * x / ((a + twice) * (above + twice))
        d, c = one / nonzero(v.fma(t, d, 1.0)), nonzero(1.0 + t / c)
        return i, c, d, h * d * c, d * c - 1.0

    def going(i: Any, c: Any, d: Any, h: Any, last: Any) -> Any:
        return wanted & ((v.absolute(last) > 4 * _EPS) | (i < 1.0)) & (i < _MOST)

    return repeat_while(going, step, (zero, one, d, d, zero))[3]


@in_double
def beta_density(a: Any, b: Any, x: Any) -> Any:
    """x^(a-1) (1-x)^(b-1) / B(a, b), the density of the beta distribution; 0 outside 0 to 1."""
    shapes = (a > 0.0) & (b > 0.0) & (a < _INF) & (b < _INF)
    ordinary = shapes & (x > 0.0) & (x < 1.0)
    p, q, t = (v.select(ordinary, z, v.constant(a, c)) for z, c in ((a, 1.0), (b, 1.0), (x, 0.5)))
    u = 1.0 - t
    value = _beta_factor(p, q, t, u, (1.0 - u) - t) / (t * u)

    def end(near: Any, other: Any) -> Any:
        return v.select(near < 1.0, v.constant(a, _INF), v.select(near == 1.0, other, v.constant(a, 0.0)))

    ends = v.select(x == 0.0, end(a, b), v.select(x == 1.0, end(b, a), v.constant(a, 0.0)))
    return v.select(ordinary, value, v.select(shapes & (x == x), ends, _NAN))


@in_double
def betainc(a: Any, b: Any, x: Any) -> Any:
    """I_x(a, b), the regularised incomplete beta function."""
    ordinary = (a > 0.0) & (b > 0.0) & (a < _INF) & (b < _INF) & (x > 0.0) & (x < 1.0)
    half, one = v.constant(a, 0.5), v.constant(a, 1.0)
    p, q, t = v.select(ordinary, a, one), v.select(ordinary, b, one), v.select(ordinary, x, half)
    u = 1.0 - t
    u_low = (1.0 - u) - t
    swapped = t > (p + 1.0) / (p + q + 2.0)
    factor = _beta_factor(p, q, t, u, u_low)
    first, second = v.select(swapped, q, p), v.select(swapped, p, q)
    value = factor * _beta_fraction(first, second, v.select(swapped, u, t), ordinary) / first
    value = v.select(swapped, 1.0 - value, value)
    valid = (a > 0.0) & (b > 0.0) & (a < _INF) & (b < _INF) & (x >= 0.0) & (x <= 1.0)
    return v.select(ordinary, value, v.select(valid, x, v.constant(a, _NAN)))


def _log_ratio(b: Any, a: Any) -> Any:
    """log gamma(b) - log gamma(a + b) for a > 0 and b >= 8."""
    return (stirling(b) - stirling(a + b)) - (a + b - 0.5) * m.log1p(a / b) - a * (m.log(b) - 1.0)


@in_double
def betaln(a: Any, b: Any) -> Any:
    """log|B(a, b)|, without the cancellation that log gamma has for large arguments."""
    low, high = v.minimum(a, b), v.maximum(a, b)
    ordinary = (low > 0.0) & (high < _INF)
    large = ordinary & (high >= 8.0)
    both = large & (low >= 8.0)
    p, q = v.select(large, low, v.constant(a, 1.0)), v.select(large, high, v.constant(a, 8.0))
    one_large = lgamma(p) + _log_ratio(q, p)
    p8 = v.select(both, p, v.constant(a, 8.0))
    t = p8 / q
    shapes = (p8 - 0.5) * m.log(t / (1.0 + t)) - q * m.log1p(t)
    two_large = (0.9189385332046728 - 0.5 * m.log(q)) + (stirling(p8) + stirling(q) - stirling(p8 + q)) + shapes
    small = lgamma(low) + lgamma(high) - lgamma(low + high)
    value = v.select(both, two_large, v.select(large, one_large, small))
    return v.select((low > 0.0) & (high == _INF), v.constant(a, -_INF), value)
