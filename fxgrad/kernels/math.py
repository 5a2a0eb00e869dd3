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
    nearest_scaling,
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

_EXP_DOUBLED = (  # float64: exp(2 r) = 1 + 2 r + r^2 * p(r), |r| <= ln(2)/4
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
)
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
_TANH = (  # float64: tanh(x) = x + x z p(z), z = x^2, |x| <= 0.89
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
)
# float32: tanh(a) = min(a, s) + (a - c) p(a - c), for eight intervals of 1 + a from each power of two to the next: c, s, p.
# s is tanh(c), except in the first interval, where it stands for a; from 9 on it is 1.
_TANH_TABLE = (
    (0.0, _INF, -1.1947755e-09, 4.443251e-07, -0.33335948, 0.00051387615, 0.12983996),
    (0.12523438, 0.12458375, 0.98447883, -0.12264371, -0.3131009, 0.0831415, 0.09504265),
    (0.2545547, 0.24919534, 0.9379017, -0.23371805, -0.25453332, 0.14410257, 0.046875384),
    (0.37901562, 0.3618523, 0.8690629, -0.31446946, -0.17602967, 0.17104365, -0.0047844746),
    (0.5300703, 0.48543483, 0.76435304, -0.37104377, -0.07467273, 0.16031826, -0.043038372),
    (0.66121876, 0.5791739, 0.6645576, -0.38489446, 0.001397414, 0.12758116, -0.0613695),
    (0.7962969, 0.66196144, 0.56180704, -0.3718946, 0.058923762, 0.08494129, -0.06420712),
    (0.9213125, 0.72651774, 0.472172, -0.34304133, 0.0918218, 0.047680575, -0.05222815),
    (1.1826563, 0.82828736, 0.31394002, -0.26003024, 0.11076039, -0.0054983404, -0.03185724),
    (1.3378125, 0.87114584, 0.24110498, -0.21003743, 0.10257902, -0.01931541, -0.00959576),
    (1.6050937, 0.9224317, 0.14911976, -0.13755302, 0.07716968, -0.02526904, 0.0014173051),
    (1.8237188, 0.9492079, 0.09900436, -0.09397568, 0.05620002, -0.022027677, 0.0045839553),
    (2.1020312, 0.97056997, 0.057993934, -0.056287155, 0.035300504, -0.01550476, 0.0044743745),
    (2.3740313, 0.98281205, 0.03408048, -0.033494633, 0.021559026, -0.010039551, 0.0034135953),
    (2.6604376, 0.9902706, 0.019364113, -0.019175718, 0.012532989, -0.006023151, 0.0023476686),
    (2.8452814, 0.99326736, 0.013419954, -0.013329598, 0.00876758, -0.0042688283, 0.0015298434),
    (3.1728125, 0.99649733, 0.006993023, -0.0069686533, 0.0046178717, -0.0022776837, 0.0007732878),
    (3.8121874, 0.9990237, 0.001951713, -0.0019497809, 0.001295547, -0.0006487577, 0.00029303698),
    (4.3268123, 0.9996511, 0.00069773523, -0.00069750583, 0.00046400467, -0.0002319822, 0.000108693836),
    (4.7334375, 0.99984527, 0.00030944275, -0.00030937395, 0.0002062612, -0.000104179766, 4.0278905e-05),
    (5.2964373, 0.9999498, 0.00010037245, -0.00010036308, 6.682838e-05, -3.3698278e-05, 1.4846952e-05),
    (5.7425623, 0.99997944, 4.1126765e-05, -4.11229e-05, 2.741868e-05, -1.3865152e-05, 5.463438e-06),
    (6.142625, 0.99999076, 1.8477294e-05, -1.8478284e-05, 1.2328434e-05, -6.116809e-06, 2.0264854e-06),
    (6.6428127, 0.9999966, 6.7949027e-06, -6.795305e-06, 4.5337915e-06, -2.2496272e-06, 7.455174e-07),
    (7.624625, 0.9999995, 9.539918e-07, -9.537041e-07, 6.275274e-07, -3.2220254e-07, 1.7079563e-07),
    (8.31775, 0.9999999, 2.383895e-07, -2.3853087e-07, 1.6015346e-07, -7.924021e-08, 2.336067e-08),
    (9.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
)
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
_CBRT = (  # float64: m^(-1/3) on [1, 2), roughly
    1.7810577159470915,
    -1.5660287968541116,
    1.2437856267023382,
    -0.5978728085719707,
    0.15607153909351687,
    -0.017019025724479737,
)
_CBRT_ROOT = (0.3333332, -0.11111109, 0.061873354, -0.041219868)  # float32: cbrt(1 + r) = 1 + r p(r), |r| <= 0.061
_CBRT_TABLE = (  # float32, for m near 1 + j/8: q near 1/m, and the cube roots of 1/(2 q), 1/q, 2/q, which are nearly float32
    (0.99839026, 0.79412687, 1.0005372, 1.2605978),
    (0.8861138, 0.82634264, 1.0411265, 1.3117372),
    (0.7998688, 0.8550347, 1.0772762, 1.357283),
    (0.7279455, 0.8823151, 1.1116474, 1.4005879),
    (0.6685905, 0.907688, 1.1436152, 1.4408649),
    (0.6136333, 0.9340147, 1.1767848, 1.4826559),
    (0.57306993, 0.95555156, 1.2039195, 1.5168436),
    (0.5331427, 0.97883356, 1.233253, 1.5538014),
)


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
    """e^x; 0.91 / 0.91 ulp. Reduction by ln(2), polynomial, scaling in two steps so that underflow is gradual.

    What underflows to 0 is not computed: a product too small for a number stops x86 for 150 cycles, and masked softmax is
    full of exp(-inf).
    """
    low, high = _EXP_LIMITS[v.dtype_of(x)]
    vanishes = x < low
    x = v.select(vanishes, v.constant(x, 0), v.select(x > high, high, x))
    kf, scaled = nearest_scaling(x, _LOG2E)
    r, _ = _exp_remainder(kf, x)
    return v.select(vanishes, v.constant(x, 0), scaled(horner(r, (1.0, 1.0, *_EXP[v.dtype_of(x)]))))


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


# The exponent of 1.0 ends in the bits 11, so the first eight intervals come last.
_TANH_COLUMNS = tuple(zip(*_TANH_TABLE[8:], *5 * _TANH_TABLE[-1:], *_TANH_TABLE[:8], strict=True))


def _tanh_f32(x: Any) -> Any:
    """A polynomial of degree 5 whose coefficients are looked up."""
    a = v.absolute(x)
    a = v.select(a > 9.0, 9.0, a)
    index = bits(a + 1.0) >> (mantissa_bits(x) - 3)
    centre, value, *coefficients = (v.lookup(column, index) for column in _TANH_COLUMNS)
    t = a - centre
    return v.copysign(v.fma(t, horner(t, coefficients), v.select(a < value, a, value)), x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent; 0.78 / 0.97 ulp. float32 by table; float64 an odd polynomial near 0, else 1 - 2 / (e^(2|x|) + 1)."""
    if v.dtype_of(x) == _F32:
        return _tanh_f32(x)
    a = v.absolute(x)
    c = v.select(a > 20.0, 20.0, a)
    kf, scale = nearest_power(c, 2 * _LOG2E)
    hi, lo = _LN2[_F64]
    r = v.fma(kf, -0.5 * lo, v.fma(kf, -0.5 * hi, c))
    # r * scale is exact, so that e^(2a) + 1 is rounded once.
    far = 1.0 - 2.0 / v.fma(r * scale, horner(r, (2.0, *_EXP_DOUBLED)), scale + 1.0)
    z = x * x
    near = v.fma(z * horner(z, _TANH), a, a)
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


# The column of q, and the roots at 8 phase + j modulo 32, the phase being -1, 0 or 1.
_CBRT_Q, _CBRT_LOW, _CBRT_MIDDLE, _CBRT_HIGH = zip(*_CBRT_TABLE, strict=True)
_CBRT_ROOTS = (*_CBRT_MIDDLE, *_CBRT_HIGH, *8 * (1.0,), *_CBRT_LOW)


def _cbrt_f32(x: Any) -> Any:
    """|x| = m 2^(3 e + phase), m near 1 + j/8: the root of 2^phase / q from a table, times that of m q = 1 + r."""
    n = mantissa_bits(x)
    a = v.absolute(x)
    small = a < float(np.finfo(_F32).tiny)
    i = bits(v.select(small, a * 2.0**24, a))
    moved = i + ((1 << (n - 4)) - (exponent_bias(x) << n))  # rounds m to the middle of an interval of the table
    exponent = moved & (-1 << n)
    r = v.fma(v.bitcast(i - exponent, _F32), v.lookup(_CBRT_Q, moved >> (n - 3)), -1.0)
    third = bits(v.fma(to_float(exponent, x), 2.0**-n / 3, 1.5 * 2.0**n))  # e in the low bits
    root = v.lookup(_CBRT_ROOTS, (moved >> (n - 3)) + (third << 3))  # 8 (3 e + phase) + j + 8 e
    s = v.bitcast(bits(root) + (third << n), _F32)
    result = v.fma(s, r * horner(r, _CBRT_ROOT), s)
    result = v.select(small, result * 2.0**-8, result)
    positive = v.bitcast(bits(a) - 1, np.uint32) < int(bits(np.float32(_INF))) - 1  # and finite
    return v.select(positive, v.copysign(result, x), x)


def cbrt(x: Any) -> Any:
    """Cube root; 0.57 / 0.51 ulp. float64: a polynomial for m^(-1/3), then the binomial series of the error it left."""
    if v.dtype_of(x) == _F32:
        return _cbrt_f32(x)
    n = mantissa_bits(x)
    a = v.absolute(x)
    small = a < float(np.finfo(_F64).tiny)
    i = bits(v.select(small, a * 8.0**n, a))
    e = (i >> n) - exponent_bias(x)
    _, q = round_to_integer(to_float(e, x), 1.0 / 3.0)
    thrice = q + q + q
    phase = e - thrice
    m = v.bitcast(i - (thrice << n), _F64)  # [1/2, 4)
    mantissa = v.bitcast((i & ((1 << n) - 1)) | (exponent_bias(x) << n), _F64)  # [1, 2), m = mantissa * 2^phase
    root = v.select(phase > 0, v.constant(x, 2.0 ** (-1 / 3)), v.select(phase < 0, v.constant(x, 2.0 ** (1 / 3)), 1.0))
    z = horner(mantissa, _CBRT) * root  # near m^(-1/3)
    w, wl = two_prod(z, z)
    u, ul = two_prod(m, w)
    ul = v.fma(m, wl, ul)  # u + ul = m z^2
    h = v.fma(-ul, z, v.fma(-u, z, 1.0))  # 1 - m z^3, so that cbrt(m) = m z^2 (1 - h)^(-2/3)
    series = (2 / 3, 5 / 9, 40 / 81, 110 / 243)
    result = (u + v.fma(u * h, horner(h, series), ul)) * power_of_two(v.select(small, q - n, q), x)
    return v.select((a > 0.0) & (a < _INF), v.copysign(result, x), x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x); 0.51 / 0.51 ulp. The quotient of the rounded root, corrected by one Newton step on its exact residual."""
    y = 1.0 / v.sqrt(x)
    t, tl = two_prod(x, y)
    h = v.fma(-tl, y, v.fma(-t, y, 1.0))
    return v.select(h == h, v.fma(y * 0.5, h, y), y)  # h is NaN at 0 and infinity, where y is exact
