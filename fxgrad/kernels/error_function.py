"""erf and erfc, written once in the kernel language for float32 and float64.

Polynomials are minimax fits from bench/coefficients.py; accuracies are measured by tests/test_math_trig.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels import doubleword as dw
from fxgrad.kernels import math as m
from fxgrad.kernels import vector as v

__all__ = ["erf", "erfc", "erfcx", "log_ndtr", "ndtr", "scaled_erfc"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

# erf(x) = x + x * p(x^2 - 1/2) up to 1
_ERF_MIDDLE = 0.5
_ERF = {
    _F32: (-0.03453126, -0.2810722, 0.07940998, -0.018283358, 0.0034802991, -0.0005654035, 7.853862e-05),
    _F64: (
        -0.0345312613301327, -0.2810721780454343, 0.07940998675593686, -0.01828388448915131, 0.0034802744965707413,
        -0.0005611894221517839, 7.82964968772722e-05, -9.6148083592277e-06, 1.0536324139044166e-06, -1.0420500606390287e-07,
        9.432272440450396e-09, -7.779449587825871e-10,
    ),
}  # fmt: skip
# erfc(x)^(1/4) = first + t * p(t), t = x - middle, from 1 to the x beyond which erf(x) rounds to 1; expanded near 1, where the
# rounding errors of erfc are the largest part of erf
_ROOT_LIMIT, _ROOT_MIDDLE = {_F32: 4.0, _F64: 6.0}, {_F32: 1.25, _F64: 1.5}
_ROOT_FIRST = {  # (high, low part)
    _F32: (0.5269427299499512, -3.8534384572130875e-09),
    _F64: (0.42907522645363616, 8.835624300687905e-18),
}
_ROOT = {
    _F32: (
        -0.40412873, 0.04025262, 0.04405739, -0.009325441, -0.0034504395, 0.0011664673, 0.0001353608, -9.678803e-05,
        1.1345324e-05,
    ),
    _F64: (
        -0.37638487465106246, 0.06932998074409534, 0.03295383740837819, -0.012495818307344144, -0.0016049134734961367,
        0.0012489422949787125, -2.6722587713336354e-05, -7.434491102597117e-05, 8.353304632715833e-06, 2.7798788414241992e-06,
        -5.169118047097768e-07, -8.502703537529505e-08, 2.3213483324616532e-08, 2.421217687247478e-09, -1.0214708834013931e-09,
        -4.4442031127076197e-11, 5.4844793210620136e-11, -9.574617460606726e-12, 7.514585369596834e-13, -2.3452073221987967e-14,
    ),
}  # fmt: skip
# erfc(x) = exp(-x^2) * r * (first + (r - middle) * p(r - middle)), r = 1 / (x + shift), once from 1/2 to 2.25 and once from there
# to the x beyond which it underflows; r - middle is exact.
_ERFC_SPLIT, _ERFC_LIMIT = 2.25, {_F32: 10.5, _F64: 28.0}
_ERFC_SHIFT, _ERFC_MIDDLE = 2.5, (0.265625, 0.0625)
_ERFC_FIRST = {  # (high, low part) near and far
    _F32: ((1.3732703924179077, -1.5939901842898507e-08), (0.6668495535850525, -5.3596420634960396e-09)),
    _F64: ((1.3732703764780063, 7.476085508122072e-17), (0.6668495482254104, -3.9202084277979774e-17)),
}
_ERFC_NEAR = {
    _F32: (5.806321, 15.926653, 24.543901, 4.9178147, -48.973106, -32.516003, 129.06319, 45.44822),
    _F64: (
        5.8063209093080665, 15.92665244031755, 24.543909297176143, 4.918028067445506, -48.98128280740734, -32.63538994951708,
        132.3386968799212, 65.02222978870988, -454.9952113743677, 116.97950178843433, 1504.913146889332, -2137.664450691352,
        -3022.8382445615352, 12920.52542311514, -8029.193539423488, -40882.8823433568, 98498.47844551566,
    ),
}  # fmt: skip
_ERFC_FAR = {
    _F32: (1.9073981, 4.820592, 10.342595, 17.40053, 15.966731, 3.0120354, -165.77023, 142.38399),
    _F64: (
        1.9073983175763378, 4.8205577762309595, 10.344709229365229, 17.332560958864626, 17.219169287463675, -10.628587384323545,
        -80.60003840928975, -119.334688206972, 133.57177219597585, 828.4641217301139, 637.9689873833912, -4051.10436131807,
        -8196.015314018636, -4945.027347413699, 236851.1001795771, -660842.3780343583, 599485.015682144,
    ),
}  # fmt: skip
# exp(r) = 1 + r + r^2 * p(r) for |r| <= log(2) / 2
_EXP = {
    _F32: (0.49999994, 0.16666521, 0.04166839, 0.00836871, 0.0013814612),
    _F64: (
        0.5000000000000011, 0.16666666666666413, 0.04166666666653027, 0.008333333333494355, 0.0013888888943595409,
        0.00019841269506735352, 2.4801493138106473e-05, 2.755758630178363e-06, 2.76302333630135e-07, 2.5000062648951297e-08,
    ),
}  # fmt: skip
# log(2) in two parts, the first short enough that its product with the binary exponent is exact
_LN2 = {_F32: (0.693145751953125, 1.428606765330187e-06), _F64: (0.6931471806019545, -4.2009150726810846e-11)}


def _erf_small(a: Any) -> Any:
    return v.fma(a, dw.horner(v.fma(a, a, -_ERF_MIDDLE), _ERF[a.dtype]), a)


def erf(x: Any) -> Any:
    """Error function within 1 ulp: an odd polynomial up to 1, beyond it 1 - p^4, which needs no exponential."""
    a = v.absolute(x)
    high = _ROOT_LIMIT[x.dtype]
    t = v.select(a > high, high, a) - _ROOT_MIDDLE[x.dtype]
    first, first_lo = _ROOT_FIRST[x.dtype]
    root, root_lo = dw.fast_two_sum(v.constant(x, first), v.fma(t, dw.horner(t, _ROOT[x.dtype]), first_lo))
    square = v.fma(root, root, (root + root) * root_lo)
    return v.copysign(v.select(a > 1.0, v.fma(-square, square, 1.0), _erf_small(a)), x)


def scaled_erfc(a: Any) -> tuple[Any, Any, Any]:
    """For 1/2 < a up to where erfc underflows: m and k with erfc(a) = m 2^k, and exp(a^2) erfc(a)."""
    shift = _ERFC_SHIFT
    # exp(-x^2) = 2^k (1 + p), with x^2 exact as a sum of two
    h, h_lo = dw.two_prod(a, a)
    k, k_int = dw.round_to_integer(h, -1.4426950408889634)
    ln2, ln2_lo = _LN2[a.dtype]
    r, r_lo = dw.fast_two_sum(v.fma(k, -ln2, -h), v.fma(k, -ln2_lo, -h_lo))
    p, p_lo = dw.fast_two_sum(r, v.fma(r * r, dw.horner(r, _EXP[a.dtype]), r_lo))
    # w = exp(x^2) erfc(x) in two parts; w' = 2 x w - 2 / sqrt(pi) carries the error of r over to w
    y = a + shift
    y_lo = a - (y - shift)
    r = 1.0 / y
    is_far = a > _ERFC_SPLIT

    def choose(near: float, far: float) -> Any:
        return v.select(is_far, v.constant(a, far), near)

    t = r - choose(*_ERFC_MIDDLE)
    (near_hi, near_lo), (far_hi, far_lo) = _ERFC_FIRST[a.dtype]
    *lower, tail = (choose(*pair) for pair in zip(_ERFC_NEAR[a.dtype], _ERFC_FAR[a.dtype], strict=True))
    for c in reversed(lower):
        tail = v.fma(tail, t, c)
    q, q_lo = dw.fast_two_sum(choose(near_hi, far_hi), v.fma(t, tail, choose(near_lo, far_lo)))
    w = q * r
    r_error = y * (v.fma(-y, r, 1.0) - y_lo * r)  # over r^2
    w_lo = v.fma(r_error, v.fma(-2.0 * a, w, 1.1283791670955126), v.fma(q, r, -w) + q_lo * r)
    return w + v.fma(w, p, v.fma(w, p_lo, v.fma(w_lo, p, w_lo))), k_int, w


def erfc(x: Any) -> Any:
    """Complementary error function within 2 ulp down to the smallest subnormal: exp(-x^2) in parts times a polynomial."""
    a = v.absolute(x)
    near = _erf_small(a)
    top = _ERFC_LIMIT[x.dtype]
    mantissa, k, _ = scaled_erfc(v.select(a > top, top, a))
    far = dw.scale_by_power(mantissa, k)
    sign = x < 0.0
    beyond = a > 0.5
    near = v.select(sign, near, -near)
    return v.select(beyond, v.select(sign, 2.0 - far, far), 1.0 + near)


# ---- scaled, and of the normal distribution ----------------------------------------------------------------------------------

_TWO_OVER_ROOT_PI = 1.1283791670955126
_HALF = {  # sqrt(1/2) in two parts
    _F32: (0.70710677, 1.2101617e-08),
    _F64: (0.7071067811865476, -4.83554168928535e-17),
}
_FAR = {_F32: 10.0, _F64: 27.0}


def _erfcx_positive(a: Any) -> Any:
    """exp(a^2) erfc(a) for a > 1/2; the asymptotic series (DLMF 7.12.1) from where erfc itself would vanish."""
    limit = _FAR[a.dtype]
    _, _, near = scaled_erfc(v.select(a > limit, limit, a))
    r = 1.0 / v.select(a > limit, a, limit)
    far = (r * (_TWO_OVER_ROOT_PI / 2)) * dw.horner(r * r, (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875))
    return v.select(a > limit, far, near)


def erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x), which falls as 1/x."""
    a = v.absolute(x)
    square, low = dw.two_prod(a, a)
    big = v.select(square > 800.0, 800.0, square)
    grown = m.exp(big)
    grown = v.select(grown < float("inf"), v.fma(grown, v.select(a < _FAR[x.dtype], low, 0.0), grown), grown)
    small = a <= 0.5
    near = grown * (1.0 - v.copysign(_erf_small(v.select(small, a, v.constant(x, 0.0))), x))
    far = _erfcx_positive(v.select(small, v.constant(x, 1.0), a))
    return v.select(small, near, v.select(x > 0.0, far, v.select(x == x, 2.0 * grown - far, x)))


def _over_root_two(x: Any) -> tuple[Any, Any]:
    high, low = _HALF[x.dtype]
    t = x * high
    return t, v.fma(x, low, v.fma(x, high, -t))


def ndtr(x: Any) -> Any:
    """erfc(-x/sqrt(2))/2, with what was rounded off the argument, which the tail would magnify."""
    t, rest = _over_root_two(v.absolute(x))
    top = _ERFC_LIMIT[x.dtype]
    beyond = t > 0.5
    c = v.select(t > top, top, v.select(beyond, t, 1.0))
    mantissa, k, w = scaled_erfc(c)
    rest = v.select(c == t, rest, 0.0)
    mantissa = v.fma(mantissa, -(_TWO_OVER_ROOT_PI / w) * rest, mantissa)
    tail = dw.scale_by_power(mantissa, k - 1)
    near = _erf_small(v.select(beyond, v.constant(x, 0.0), t)) * 0.5
    positive = x > 0.0
    y = v.select(beyond, v.select(positive, 1.0 - tail, tail), v.select(positive, 0.5 + near, 0.5 - near))
    return v.select(x == x, y, x)


def log_ndtr(x: Any) -> Any:
    """log1p(-ndtr(-x)) above -1; below, -x^2/2 + log(erfcx(-x/sqrt(2))/2), in which nothing vanishes."""
    high = x > -1.0
    upper = m.log1p(-ndtr(-v.select(high, x, v.constant(x, 0.0))))
    a = v.select(high, v.constant(x, 1.0), -x)
    t, rest = _over_root_two(a)
    w = _erfcx_positive(t)
    w = w + (2.0 * t * w - _TWO_OVER_ROOT_PI) * rest * v.select(t < _FAR[x.dtype], v.constant(x, 1.0), 0.0)
    square = (a * 0.5) * a
    lower = v.select(square < float("inf"), m.log(w * 0.5), v.constant(x, 0.0)) - square
    return v.select(high, upper, v.select(x == x, lower, x))
