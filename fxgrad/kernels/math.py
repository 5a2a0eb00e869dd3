"""Exponential, logarithm and their relatives as kernel bodies: branch-free, in float32 and float64, the same bits on every CPU.

Every body reduces its argument to a small interval, evaluates a polynomial whose coefficients bench/coefficients.py derives, and
undoes the reduction; special values are selected at the end. float32 bodies compute in float32. The accuracy stated for
each function is the largest error seen, in ulp of the exact result, as "float32 / float64": of every float32 in the critical
ranges, and of millions of float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels import vector as v
from fxgrad.kernels.doubleword import (
    bits,
    exponent_bias,
    fast_two_sum,
    horner,
    mantissa_bits,
    nearest_power,
    nearest_power_halves,
    power_of_two,
    round_to_integer,
    scale_by_power,
    to_float,
    two_prod,
)
from fxgrad.kernels.math_pow import pow, split_positive

__all__ = ["cbrt", "cosh", "exp", "expm1", "log", "log1p", "logistic", "pow", "rsqrt", "sinh", "tanh"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_INF, _NAN = float("inf"), float("nan")

_LOG2E = 1.4426950408889634
# ln(2) = hi + lo to twice the precision; k * hi is subtracted by fma, exactly, so that hi needs no trailing zeros.
_LN2 = {_F32: (0.6931472, -1.9046542e-09), _F64: (0.6931471805599453, 2.3190468138462996e-17)}
# Arguments outside give the same results as the ends: 0 or the largest finite number overflowed.
_EXP_LIMITS = {_F32: (-104.0, 89.0), _F64: (-746.0, 710.0)}

_EXP_DOUBLED = {  # exp(2 r) = 1 + 2 r + r^2 * p(r), |r| <= ln(2)/4
    _F32: (
        1.9999998,
        1.3333218,
        0.6666927,
        0.26779303,
        0.088437125,
    ),
    _F64: (
        2.0000000000000044,
        1.3333333333333173,
        0.666666666664461,
        0.26666666667104594,
        0.0888888892396623,
        0.025396825019279586,
        0.0063491822526891084,
        0.0014109469910021893,
        0.0002829331810183864,
        5.1214819366821626e-05,
    ),
}
_EXP = {  # exp(r) = 1 + r + r^2 * p(r), |r| <= ln(2)/2
    _F32: (
        0.49999994,
        0.16666523,
        0.041668292,
        0.008368532,
        0.0013818301,
    ),
    _F64: (
        0.5000000000000011,
        0.16666666666666466,
        0.04166666666652881,
        0.008333333333470186,
        0.0013888888943697235,
        0.00019841269546312177,
        2.480149317456683e-05,
        2.755755841801151e-06,
        2.7630193458826796e-07,
        2.5007236018955872e-08,
    ),
}
_EXPM1 = {  # the same, its error relative to exp(r) - 1
    _F32: (
        0.5,
        0.16666666,
        0.041666493,
        0.008333548,
        0.0013932309,
        0.00019760191,
    ),
    _F64: (
        0.5,
        0.16666666666666677,
        0.04166666666666669,
        0.008333333333321773,
        0.0013888888888886478,
        0.0001984126988534729,
        2.4801587295714883e-05,
        2.755724521081194e-06,
        2.7557315014422204e-07,
        2.5108646935401115e-08,
        2.0898228583696713e-09,
    ),
}
_LOG = {  # 1 + f in [sqrt(1/2), sqrt(2)]; float32: log(1 + f) = f + f^2 * (-1/2 + f p(f)); float64: 2 s + s z p(z), s = f/(2+f)
    _F32: (
        0.3333333,
        -0.2500082,
        0.20001242,
        -0.1662341,
        0.14201586,
        -0.13159598,
        0.12762141,
        -0.07636359,
    ),
    _F64: (
        0.6666666666666734,
        0.39999999999416647,
        0.2857142874202617,
        0.22222198605319748,
        0.18183562834883704,
        0.15314085322883894,
        0.14795627942558348,
    ),
}
_TANH = {  # tanh(x) = x + x z p(z), z = x^2, |x| <= 0.89
    _F32: (
        -0.33333322,
        0.13332982,
        -0.053929694,
        0.021665264,
        -0.008268338,
        0.0025867494,
        -0.00045716405,
    ),
    _F64: (
        -0.33333333333333076,
        0.13333333333303657,
        -0.05396825395623035,
        0.02186948828922857,
        -0.008863232512578985,
        0.0035921040649350726,
        -0.0014557036951237136,
        0.000589521636583589,
        -0.00023771070304959798,
        9.400249910862353e-05,
        -3.488523423572078e-05,
        1.1067518322170709e-05,
        -2.545281424451431e-06,
        3.0333703312738417e-07,
    ),
}
_COSH = {  # cosh(r) = 1 + z p(z), z = r^2, |r| <= ln(2)/2
    _F32: (
        0.5,
        0.04166646,
        0.0013935426,
    ),
    _F64: (
        0.5000000000000013,
        0.04166666666651047,
        0.0013888888948355416,
        2.4801488506761618e-05,
        2.763180990442679e-07,
    ),
}
_SINH = {  # sinh(r) = r + r z p(z)
    _F32: (
        0.16666667,
        0.008333175,
        0.00019974125,
    ),
    _F64: (
        0.16666666666666677,
        0.008333333333321386,
        0.0001984126988681451,
        2.7557243455710673e-06,
        2.5109318320798425e-08,
    ),
}
_CBRT = {  # m^(-1/3) on [1, 2), roughly
    _F32: (
        1.6700059,
        -1.1728779,
        0.6954803,
        -0.22123681,
        0.028590856,
    ),
    _F64: (
        1.7810577159470915,
        -1.5660287968541116,
        1.2437856267023382,
        -0.5978728085719707,
        0.15607153909351687,
        -0.017019025724479737,
    ),
}


def _clamp(x: Any, low: float, high: float) -> Any:
    """x within [low, high]; a NaN stays (and the operand order makes each select one instruction on x86)."""
    x = v.select(x > high, high, x)
    return v.select(x < low, low, x)


def _exp_remainder(kf: Any, x: Any) -> tuple[Any, Any]:
    """r = x - kf ln(2), |r| <= ln(2)/2, and what was rounded off r."""
    hi, lo = _LN2[v.dtype_of(x)]
    exact = v.fma(kf, -hi, x)
    r = v.fma(kf, -lo, exact)
    return r, v.fma(kf, -lo, exact - r)


def exp(x: Any) -> Any:
    """e^x; 0.91 / 0.91 ulp. Reduction by ln(2), polynomial, scaling in two steps so that underflow is gradual."""
    x = _clamp(x, *_EXP_LIMITS[v.dtype_of(x)])
    kf, first, second = nearest_power_halves(x, _LOG2E)
    r, _ = _exp_remainder(kf, x)
    return horner(r, (1.0, 1.0, *_EXP[v.dtype_of(x)])) * first * second


def expm1(x: Any) -> Any:
    """e^x - 1; 0.87 / 0.88 ulp. As exp, with 2^k - 1 + 2^k r summed exactly because it cancels for small k."""
    dtype = v.dtype_of(x)
    a = _clamp(x, -1.5 * mantissa_bits(x), _EXP_LIMITS[dtype][1])
    kf, k = round_to_integer(a, _LOG2E)
    r, rest = _exp_remainder(kf, a)
    tail = v.fma(r * r, horner(r, _EXPM1[dtype]), v.fma(r, rest, rest))
    half = power_of_two(k - 1, x)  # half of 2^k: the largest k is out of range
    offset = half - 0.5
    hi = v.fma(half, r, offset)
    lo = v.fma(half, r, offset - hi) + ((half - offset) - 0.5)
    scaled = (hi + v.fma(half, tail, lo)) * 2.0
    return v.copysign(v.select(k == 0, r + tail, scaled), x)


def _log_sum(kf: Any, f: Any, rest: Any) -> Any:
    """kf ln(2) + log(1 + f) + rest, for a small rest (or None).

    In float64 a division that shortens the polynomial from 19 to 7 coefficients is worth its price; in float32 it is not.
    """
    dtype = v.dtype_of(f)
    hi, lo = _LN2[dtype]
    if dtype == _F32:
        rest = kf * lo if rest is None else v.fma(kf, lo, rest)
        return v.fma(kf, hi, f + v.fma(f * f, v.fma(f, horner(f, _LOG[dtype]), -0.5), rest))
    s = f / (f + 2.0)
    z = s * s
    square = f * 0.5 * f  # log(1 + f) = f - square + s (square + z p(z))
    rest = v.fma(kf, lo, -square if rest is None else rest - square)
    return v.fma(kf, hi, f + v.fma(s, v.fma(z, horner(z, _LOG[dtype]), square), rest))


def log(x: Any) -> Any:
    """Natural logarithm; 0.88 / 0.82 ulp. x = m 2^k, log(m) by polynomial, k ln(2) added by fma."""
    k, m = split_positive(x)
    result = _log_sum(to_float(k, x), m - 1.0, None)
    result = v.select(x > 0.0, result, v.select(x == 0.0, v.constant(x, -_INF), _NAN))
    return v.select(x < _INF, result, x)


def log1p(x: Any) -> Any:
    """log(1 + x); 0.90 / 0.89 ulp. log of the rounded 1 + x, what was rounded off entering to first order."""
    dtype = v.dtype_of(x)
    n = mantissa_bits(x)
    u = x + 1.0
    rounded_off = v.select(v.absolute(x) < 1.0, x - (u - 1.0), 1.0 - (u - x))
    i = bits(u)
    k = (i - int(bits(np.asarray(np.sqrt(0.5), dtype)))) >> n
    m = v.bitcast(i - (k << n), dtype)
    # For k = 0 log1p is that of x itself; beyond 2^(n+2) nothing was rounded off that matters.
    rest = rounded_off * power_of_two(-v.select(k > n + 2, v.constant(k, n + 2), k), x)
    zero = k == 0
    f = v.select(zero, x, m - 1.0)
    rest = v.select(zero, 0.0, rest)
    rest = v.fma(f * v.fma(f, 0.8, -1.0), rest, rest)  # rest / (1 + f), closely enough
    result = v.copysign(_log_sum(to_float(k, x), f, rest), x)
    result = v.select(x > -1.0, result, v.select(x == -1.0, v.constant(x, -_INF), _NAN))
    return v.select(x < _INF, result, x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent; 0.99 / 0.97 ulp. An odd polynomial near 0, else 1 - 2 / (e^(2|x|) + 1)."""
    dtype = v.dtype_of(x)
    a = v.absolute(x)
    c = v.select(a > (10.0 if dtype == _F32 else 20.0), 10.0 if dtype == _F32 else 20.0, a)
    kf, scale = nearest_power(c, 2 * _LOG2E)
    hi, lo = _LN2[dtype]
    r = v.fma(kf, -0.5 * hi, c)
    if dtype == _F64:  # the float32 ln(2) is good to 29 bits by luck, which is enough
        r = v.fma(kf, -0.5 * lo, r)
    # r * scale is exact, so that e^(2a) + 1 is rounded once.
    far = 1.0 - 2.0 / v.fma(r * scale, horner(r, (2.0, *_EXP_DOUBLED[dtype])), scale + 1.0)
    z = x * x
    near = v.fma(z * horner(z, _TANH[dtype]), a, a)
    return v.copysign(v.select(a < 0.89, near, far), x)


def _hyperbolic(a: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """For a = k ln(2) + r, a >= 0: k, 2^(k-2), 2^(-k-2), cosh(r) - 1, r, sinh(r) - r."""
    dtype = v.dtype_of(a)
    limit = _EXP_LIMITS[dtype][1] + 0.6  # e^limit / 2 overflows, and 2^(k-2) does not
    a = v.select(a > limit, limit, a)
    kf, k = round_to_integer(a, _LOG2E)
    r, rest = _exp_remainder(kf, a)
    grow = power_of_two(k - 2, a)
    limit = exponent_bias(a) // 2  # beyond, e^-a is negligible
    shrink = power_of_two(-2 - v.select(k > limit, v.constant(k, limit), k), a)
    z = r * r
    cosh1 = z * horner(z, _COSH[dtype])
    sinh_tail = v.fma(z * r, horner(z, _SINH[dtype]), rest)
    return k, grow, shrink, cosh1, r, sinh_tail


def cosh(x: Any) -> Any:
    """Hyperbolic cosine; 1.4 / 1.4 ulp. cosh(k ln(2) + r) by the addition theorem: no division, nothing cancels."""
    _, grow, shrink, cosh1, r, tail = _hyperbolic(v.absolute(x))
    small = v.fma(grow + shrink, cosh1, v.fma(grow - shrink, r + tail, shrink))
    return (grow + small) * 2.0


def sinh(x: Any) -> Any:
    """Hyperbolic sine; 1.0 / 1.3 ulp. sinh(k ln(2) + r) by the addition theorem, the leading terms summed exactly."""
    k, grow, shrink, cosh1, r, tail = _hyperbolic(v.absolute(x))
    total, difference = grow + shrink, grow - shrink
    hi = v.fma(total, r, difference)
    lo = v.fma(total, r, difference - hi)
    scaled = (hi + v.fma(difference, cosh1, v.fma(total, tail, lo))) * 2.0
    return v.copysign(v.select(k == 0, r + tail, scaled), x)


def logistic(x: Any) -> Any:
    """1 / (1 + e^-x); 0.9 / 0.9 ulp. With e = e^-|x|, 1 / (1 + e) or e / (1 + e), the quotient corrected once."""
    dtype = v.dtype_of(x)
    a = v.absolute(x)
    c = v.select(a > -_EXP_LIMITS[dtype][0], -_EXP_LIMITS[dtype][0], a)
    kf, k = round_to_integer(c, -_LOG2E)
    r, rest = _exp_remainder(kf, -c)
    mh, ml = fast_two_sum(v.constant(x, 1.0), v.fma(r * r, horner(r, _EXP[dtype]), rest) + r)
    lowest = -2 * mantissa_bits(x)  # below, e is nothing beside 1
    scale = power_of_two(v.select(k < lowest, v.constant(k, lowest), k), x)
    e = mh * scale
    dh = e + 1.0
    dl = v.fma(ml, scale, e - (dh - 1.0))
    negative = x < 0.0
    reciprocal = 1.0 / dh
    numerator = v.select(negative, mh, 1.0)
    q = numerator * reciprocal
    rest = v.fma(-q, dh, numerator) + v.fma(-q, dl, v.select(negative, ml, 0.0))
    return scale_by_power(v.fma(rest, reciprocal, q), v.select(negative, k, v.constant(k, 0)))


def cbrt(x: Any) -> Any:
    """Cube root; 0.51 / 0.51 ulp. A polynomial for m^(-1/3), then the binomial series of the error it left."""
    dtype = v.dtype_of(x)
    n = mantissa_bits(x)
    a = v.absolute(x)
    small = a < float(np.finfo(dtype).tiny)
    i = bits(v.select(small, a * 8.0**n, a))
    e = (i >> n) - exponent_bias(x)
    _, q = round_to_integer(to_float(e, x), 1.0 / 3.0)
    thrice = q + q + q
    phase = e - thrice
    m = v.bitcast(i - (thrice << n), dtype)  # [1/2, 4)
    mantissa = v.bitcast((i & ((1 << n) - 1)) | (exponent_bias(x) << n), dtype)  # [1, 2), m = mantissa * 2^phase
    root = v.select(phase > 0, v.constant(x, 2.0 ** (-1 / 3)), v.select(phase < 0, v.constant(x, 2.0 ** (1 / 3)), 1.0))
    z = horner(mantissa, _CBRT[dtype]) * root  # near m^(-1/3)
    w, wl = two_prod(z, z)
    u, ul = two_prod(m, w)
    ul = v.fma(m, wl, ul)  # u + ul = m z^2
    h = v.fma(-ul, z, v.fma(-u, z, 1.0))  # 1 - m z^3, so that cbrt(m) = m z^2 (1 - h)^(-2/3)
    series = [2 / 3, 5 / 9] if dtype == _F32 else [2 / 3, 5 / 9, 40 / 81, 110 / 243]
    result = (u + v.fma(u * h, horner(h, series), ul)) * power_of_two(v.select(small, q - n, q), x)
    return v.select((a > 0.0) & (a < _INF), v.copysign(result, x), x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x); 0.51 / 0.51 ulp. The quotient of the rounded root, corrected by one Newton step on its exact residual."""
    y = 1.0 / v.sqrt(x)
    t, tl = two_prod(x, y)
    h = v.fma(-tl, y, v.fma(-t, y, 1.0))
    return v.select(h == h, v.fma(y * 0.5, h, y), y)  # h is NaN at 0 and infinity, where y is exact
