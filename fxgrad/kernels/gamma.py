"""gamma, log|gamma|, digamma and polygamma. Computed in float64; float32 operands are converted and the result rounded once.

Small arguments are moved to an interval of length 1 by the recurrence, large ones take Stirling's series, negative ones the
reflection formula (DLMF 5.5, 5.11, 5.15). Coefficients of the polynomials: bench/coefficients.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import Any

import numpy as np

from fxgrad.kernels import doubleword as dw
from fxgrad.kernels import math as m
from fxgrad.kernels import trig
from fxgrad.kernels import vector as v

__all__ = ["digamma", "gamma", "in_double", "lgamma", "lgamma1p", "polygamma", "stirling"]

_F64 = np.dtype(np.float64)
_INF, _NAN = float("inf"), float("nan")

# log gamma(2 + t) = t p(t) and gamma(2 + t) = 1 + t p(t), |t| <= 1/2
_LGAMMA = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319416,
    0.02058080842779068,
    -0.007385551029191725,
    0.0028905103300937724,
    -0.0011927538852647178,
    0.0005096695543393983,
    -0.00022315544427832333,
    9.945679492762877e-05,
    -4.4916015700695465e-05,
    2.051744137758569e-05,
    -9.532242887349308e-06,
    4.28497556734402e-06,
    -1.5181408285869142e-06,
    1.448099954728402e-06,
    -2.218660962741176e-06,
    -1.4305402136764117e-06,
    3.2273481651091734e-06,
    3.089366243951826e-06,
    -2.6856710063973063e-06,
    -2.388397172905336e-06,
)
_GAMMA = (
    0.42278433509846713,
    0.4118403304264397,
    0.08157691924708772,
    0.07424901075351438,
    -0.000266982068871336,
    0.011154045718082234,
    -0.002852645816134489,
    0.0021039333428413062,
    -0.0009195739485795021,
    0.0004903884003899599,
    -0.00024093999109907663,
    0.0001216745075948093,
    -6.0804853335322125e-05,
    3.0447529108921968e-05,
    -1.5171984029371543e-05,
    7.654083227667356e-06,
    -4.017868930461542e-06,
    1.8021774287732421e-06,
    -5.656542873642981e-07,
    6.588728461125e-07,
    -5.83926421667132e-07,
)
# digamma(1 + t) = (1 + t - root) p(t - 1/2), 0 <= t <= 1
_DIGAMMA = (
    0.9510558760318328,
    -0.42362742128146047,
    0.2405424842408277,
    -0.1484049230539351,
    0.09498872444656895,
    -0.06192213326949245,
    0.04076083432346758,
    -0.02697579694647075,
    0.01790723644425877,
    -0.011908212853797081,
    0.00792723669734855,
    -0.005280044638198947,
    0.003515681651102973,
    -0.0023445174277770494,
    0.0015809443591891092,
    -0.0010419917756274522,
    0.0006090838136216619,
    -0.0004669665384836316,
    0.0005606822052897551,
    -0.0001809166307454908,
    -0.00029053672597932064,
    -0.00014900755225626583,
    0.00039222900042351546,
)
_ROOT, _ROOT_LOW = 1.4616321449683622, 9.549995429965697e-17
_BERNOULLI = [
    Fraction(s) for s in ("1/6", "-1/30", "1/42", "-1/30", "5/66", "-691/2730", "7/6", "-3617/510", "43867/798", "-174611/330")
]
_STIRLING = tuple(float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(_BERNOULLI[:8], 1))
_DIGAMMA_SERIES = tuple(float(b / (2 * k)) for k, b in enumerate(_BERNOULLI[:8], 1))
_HALF_LOG_2PI = 0.9189385332046728


def in_double(f: Callable[..., Any]) -> Callable[..., Any]:
    """The body that converts float32 operands, and rounds the result once."""

    @wraps(f)
    def body(*xs: Any) -> Any:
        if xs[0].dtype == _F64:
            return f(*xs)
        return v.convert(f(*[v.convert(x, _F64) for x in xs]), np.float32)

    return body


def _sin_pi(a: Any) -> tuple[Any, Any]:
    """sin(pi r) for the distance r of a from the nearest integer, and that integer."""
    n = v.rint(a)
    return trig.sin((a - n) * math.pi), n


def stirling(a: Any) -> Any:
    """log gamma(a) - (a - 1/2) log(a) + a - log(2 pi)/2 for a >= 8."""
    r = 1.0 / a
    return r * dw.horner(r * r, _STIRLING)


def _shifted(a: Any, most: int) -> tuple[Any, Any, Any]:
    """(k, t, factor) with a = k + t, |t| <= 1/2: gamma(a) is gamma(2 + t) over the factor if k < 2, else times it."""
    k = v.rint(a)
    t = a - k
    factor = v.constant(a, 1.0)
    for j in range(2, most):
        factor = v.select(k > float(j), factor * (t + float(j)), factor)
    below = v.select(k < 1.0, a * (a + 1.0), a)
    return k, t, v.select(k < 2.0, below, factor)


def _lgamma_positive(a: Any) -> Any:
    """log|gamma(a)| for a > -1/2."""
    small = a < 8.0
    k, t, factor = _shifted(v.select(small, a, v.constant(a, 2.0)), 8)
    logarithm = m.log(v.select(small, v.absolute(factor), a))
    logarithm = v.select(k == 2.0, v.select(small, v.constant(a, 0.0), logarithm), v.select(k < 2.0, -logarithm, logarithm))
    near = v.fma(t, dw.horner(t, _LGAMMA), logarithm)
    large = v.select(small, v.constant(a, 8.0), a)
    far = v.fma(large - 0.5, logarithm - 1.0, stirling(large) + (_HALF_LOG_2PI - 0.5))
    return v.select(small, near, v.select(a == _INF, a, far))


@in_double
def lgamma(x: Any) -> Any:
    """log|gamma(x)|; inf at the poles and at both infinities."""
    reflected = x < -0.5
    a = v.select(reflected, -x, x)
    y = _lgamma_positive(a)
    s, _ = _sin_pi(v.select(reflected & (a < _INF), a, v.constant(x, 0.25)))
    mirror = m.log(math.pi / (v.absolute(s) * v.select(reflected, a, v.constant(x, 1.0)))) - y
    mirror = v.select(s == 0.0, v.constant(x, _INF), mirror)
    return v.select(a == _INF, a, v.select(reflected, mirror, v.select(x == 0.0, v.constant(x, _INF), y)))


def lgamma1p(a: Any) -> Any:
    """log gamma(1 + a) for -1/2 <= a <= 1/2, with full relative accuracy at 0 (float64)."""
    return v.fma(a, dw.horner(a, _LGAMMA), -m.log1p(a))


@in_double
def gamma(x: Any) -> Any:
    """The gamma function; NaN at negative integers and -inf, +-inf at +-0."""
    reflected = x < -0.5
    a = v.select(reflected, -x, x)
    a = v.select(a > 200.0, 200.0, a)
    small = a < 10.0
    k, t, factor = _shifted(v.select(small, a, v.constant(x, 2.0)), 10)
    value = v.fma(t, dw.horner(t, _GAMMA), 1.0)
    near = v.select(k < 2.0, value / factor, value * factor)
    large = v.select(small, v.constant(x, 10.0), a)
    root = m.pow(large, v.fma(large, 0.5, -0.25))  # gamma(a) may overflow where 1/gamma(a) does not vanish: two factors
    s = stirling(large)
    series = dw.horner(s, (1.0, 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120))
    rest = root * m.exp(-large) * (math.sqrt(2 * math.pi) * series)
    first, second = v.select(small, near, rest), v.select(small, v.constant(x, 1.0), root)
    sine, n = _sin_pi(v.select(reflected, a, v.constant(x, 0.25)))
    half = v.rint(n * 0.5) * 2.0
    sine = v.select(half == n, sine, -sine)
    mirror = ((-math.pi / (v.select(reflected, a, v.constant(x, 1.0)) * sine)) / first) / second
    mirror = v.select((sine == 0.0) | (x == -_INF) | (v.rint(x) == x), v.constant(x, _NAN), mirror)
    value = v.select(reflected, mirror, first * second)
    return v.select(x > 172.0, v.constant(x, _INF), v.select(x == 0.0, v.copysign(v.constant(x, _INF), x), value))


def _digamma_positive(a: Any) -> Any:
    """digamma(a) for a > 0."""
    small = a < 10.0
    b = v.select(small, a, v.constant(a, 1.5))
    k = v.floor(b)
    t = b - k
    value = ((t - (_ROOT - 1.0)) - _ROOT_LOW) * dw.horner(t - 0.5, _DIGAMMA)
    numerator, denominator = v.constant(a, 0.0), v.constant(a, 1.0)
    for j in range(8):  # digamma(1 + t + n) = digamma(1 + t) + the sum of 1/(1 + t + j), j < n = k - 1
        used, y = k > float(j + 1), t + float(j + 1)
        numerator = v.select(used, v.fma(numerator, y, denominator), numerator)
        denominator = v.select(used, denominator * y, denominator)
    below = k < 1.0
    value = value + v.select(below, v.constant(a, -1.0), numerator) / v.select(below, b, denominator)
    large = v.select(small, v.constant(a, 10.0), a)
    r = 1.0 / large
    z = r * r
    far = m.log(large) - v.fma(z, dw.horner(z, _DIGAMMA_SERIES), 0.5 * r)
    return v.select(small, value, far)


def _cot_pi(a: Any) -> Any:
    return 1.0 / trig.tan((a - v.rint(a)) * math.pi)


@in_double
def digamma(x: Any) -> Any:
    """The logarithmic derivative of gamma; NaN at negative integers, -+inf at +-0."""
    negative = x < 0.0
    a = v.absolute(x)
    inside = negative & (a < _INF) & (v.rint(a) != a)
    b = v.select(inside, a, v.constant(x, 0.25))
    y = _digamma_positive(v.select(a > 0.0, a, v.constant(x, 1.0)))
    mirror = v.fma(_cot_pi(b), math.pi, y + 1.0 / b)
    y = v.select(negative, v.select(inside, mirror, v.constant(x, _NAN)), y)
    return v.select(x == 0.0, v.copysign(v.constant(x, _INF), -x), v.select(x == x, y, x))


def _cot_derivative(n: int) -> list[int]:
    """Coefficients of the polynomial p with d^n/dx^n cot(x) = p(cot(x))."""
    p = [0, 1]
    for _ in range(n):
        slope = [i * c for i, c in enumerate(p)][1:]
        p = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return p


def _power(x: Any, n: int) -> Any:
    y = None
    while n:
        if n & 1:
            y = x if y is None else y * x
        n >>= 1
        x = x * x if n else x
    return y


def _polygamma_positive(a: Any, n: int) -> Any:
    """|psi^(n)(a)| for a > 0: the recurrence up to where the asymptotic series holds (DLMF 5.15.8)."""
    start = 12 + n
    total, b = v.constant(a, 0.0), a
    for j in range(start):
        moved = a + float(j)
        used = moved < float(start)
        total = v.select(used, total + 1.0 / _power(moved, n + 1), total)
        b = v.select(used, moved + 1.0, b)
    factorial = float(math.factorial(n))
    r = 1.0 / b
    terms = [float(Fraction(c * math.factorial(2 * k + n - 1), math.factorial(2 * k))) for k, c in enumerate(_BERNOULLI, 1)]
    series = v.fma(r * r, dw.horner(r * r, terms), v.fma(r, factorial / 2, v.constant(a, float(math.factorial(n - 1)))))
    return v.fma(total, factorial, series * _power(r, n))


def polygamma(x: Any, n: int) -> Any:
    """The n-th derivative of digamma, n >= 1."""

    @in_double
    def body(x: Any) -> Any:
        negative = x < 0.0
        a = v.absolute(x)
        sign = 1.0 if n % 2 else -1.0
        y = _polygamma_positive(v.select(negative, a + 1.0, a), n) * sign
        b = v.select(negative & (a < _INF), a, v.constant(x, 0.25))
        cot = -_cot_pi(b)  # of pi x
        mirror = -(math.pi ** (n + 1)) * dw.horner(cot, [float(c) for c in _cot_derivative(n)]) - sign * y
        pole = v.constant(x, _INF if n % 2 else _NAN)
        mirror = v.select(v.rint(a) == a, pole, mirror)
        at_zero = v.constant(x, _INF) if n % 2 else v.copysign(v.constant(x, _INF), -x)
        y = v.select(negative, v.select(a < _INF, mirror, v.constant(x, _NAN)), y)
        return v.select(x == 0.0, at_zero, v.select(x == _INF, v.constant(x, sign * 0.0), y))

    return body(x)
