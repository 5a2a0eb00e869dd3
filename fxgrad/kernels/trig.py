"""sin, cos, tan, asin, acos, atan and atan2, written once in the kernel language for float32 and float64.

erf and erfc, from error_function.py, are exported here too. Polynomials are minimax fits from bench/coefficients.py, each the
tail of a series whose first terms are kept exact. Accuracies are measured by tests/test_math_trig.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels import doubleword as dw
from fxgrad.kernels import vector as v
from fxgrad.kernels.error_function import erf, erfc

__all__ = ["acos", "asin", "atan", "atan2", "cos", "erf", "erfc", "sin", "tan"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

# --- constants -------------------------------------------------------------------------------------------------------------

# x times a quarter of pi, as leading and trailing part in each precision.
_PI = {
    _F32: {
        1: (0.7853981852531433, -2.1855694143368964e-08),
        2: (1.5707963705062866, -4.371138828673793e-08),
        3: (2.356194496154785, -5.962440319251527e-09),
        4: (3.1415927410125732, -8.742277657347586e-08),
    },
    _F64: {
        1: (0.7853981633974483, 3.061616997868383e-17),
        2: (1.5707963267948966, 6.123233995736766e-17),
        3: (2.356194490192345, 9.184850993605148e-17),
        4: (3.141592653589793, 1.2246467991473532e-16),
    },
}
_TWO_OVER_PI = 0.6366197723675814

# pi/2 in three parts. In float64 the second has 33 bits, so that its product with an integer below 2**20 is exact.
_PI_2_PARTS = {
    _F32: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    _F64: (1.5707963267948966, 6.12323399538461e-17, 3.5215598651832e-27),
}
# Up to here the three parts suffice; the number of quarter turns is below 2**16 and 2**20.
_SMALL_ANGLE = {_F32: 1e5, _F64: 1e6}

_SIN = {
    _F32: (-0.16666654, 0.008332071, -0.0001950307),
    _F64: (
        -0.1666666666666662, 0.00833333333331984, -0.0001984126982772912, 2.755731296528924e-06, -2.5050643641496133e-08,
        1.589012759207471e-10,
    ),
}  # fmt: skip
_COS = {
    _F32: (0.041666646, -0.0013887251, 2.4424924e-05),
    _F64: (
        0.04166666666666658, -0.001388888888887116, 2.4801587287575544e-05, -2.7557313787758407e-07, 2.087564493934227e-09,
        -1.1355521775698432e-11,
    ),
}  # fmt: skip
_ATAN = {
    _F32: (-0.33333316, 0.19998471, -0.14243533, 0.10593809, -0.06078209),
    _F64: (
        -0.333333333333332, 0.19999999999953244, -0.14285714280166187, 0.11111110782136563, -0.090908977247258,
        0.07692059708208906, -0.06663099101270689, 0.058478585487113426, -0.050391872680885255, 0.03806206251651334,
        -0.01790495789560958,
    ),
}  # fmt: skip
_ASIN = {
    _F32: (0.16666752, 0.074952975, 0.04547036, 0.024179583, 0.0421662),
    _F64: (
        0.1666666666666676, 0.074999999999708, 0.044642857174611666, 0.030381942707820117, 0.022372214986095134,
        0.0173516120484843, 0.013980820066718386, 0.011398916533607584, 0.010780227177405594, 0.003706509303832066,
        0.021707195606587196, -0.020998699235012123, 0.03262839289603919,
    ),
}  # fmt: skip

# The first bits of 2/pi after 48 zeros, in words of 64: enough for the largest float64.
_TWO_OVER_PI_WORDS = (
    0x000000000000A2F9, 0x836E4E441529FC27, 0x57D1F534DDC0DB62, 0x95993C439041FE51, 0x63ABDEBBC561B724, 0x6E3A424DD2E00649,
    0x2EEA09D1921CFE1D, 0xEB1CB129A73EE882, 0x35F52EBB4484E99C, 0x7026B45F7E413991, 0xD639835339F49C84, 0x5F8BBDF9283B1FF8,
    0x97FFDE05980FEF2F, 0x118B5A0A6D1F6D36, 0x7ECF27CB09B74F46, 0x3F669E5FEA2D7527, 0xBAC7EBE5F17B3D07, 0x39F78A5292EA6BFB,
    0x5FB11F8D5D085603,
)  # fmt: skip
_LOW32 = 0xFFFFFFFF


# --- reduction to [-pi/4, pi/4] --------------------------------------------------------------------------------------------


def _reduce_small(a: Any) -> tuple[Any, Any, Any]:
    """Cody-Waite reduction of 0 <= a <= _SMALL_ANGLE: remainder (hi, lo) and quarter turns (an integer)."""
    p1, p2, p3 = _PI_2_PARTS[a.dtype]
    k, quarters = dw.round_to_integer(a, _TWO_OVER_PI)
    r = v.fma(k, -p1, a)  # exact: a multiple of the last place of a or p1, and below 1
    p = k * p2
    hi = r - p
    lo = (r - hi) - p  # exact although r may be the smaller one, since r is a multiple of the last place of p
    if a.dtype == _F32:
        lo = lo - v.fma(k, p2, -p)  # in float64 k * p2 is exact
    return hi, v.fma(k, -p3, lo), quarters


def _two_over_pi_window(position: Any) -> list[Any]:
    """Bits position ... position + 191 of _TWO_OVER_PI_WORDS as six 32-bit limbs, the lowest first: a barrel shifter."""
    words = [v.constant(position, w, np.uint64) for w in _TWO_OVER_PI_WORDS]
    for step in (8, 4, 2, 1):
        far = (position & (64 * step)) != 0
        words = [v.select(far, words[i + step], words[i]) for i in range(step + 3)]
    shift = v.bitcast(position & 63, np.uint64)
    limbs = []
    for i in (2, 1, 0):
        word = (words[i] << shift) | ((words[i + 1] >> 1) >> (63 - shift))
        limbs += [word & _LOW32, word >> 32]
    return limbs


def _reduce_large(a: Any) -> tuple[Any, Any, Any]:
    """Payne-Hanek reduction of any finite float64 a >= 2**16, in integers: only the bits of 2/pi that matter are multiplied.

    a = m * 2**e, and a * 2/pi modulo 4 is m times bits e-1 ... e+190 of 2/pi: two integer bits, 190 of fraction, of which the
    53 bits of m spoil the last. A float64 comes no closer than about 2**-61 to a multiple of pi/2, so over 60 bits remain.
    """
    bits = v.bitcast(a, np.uint64)
    limbs = _two_over_pi_window(v.bitcast(bits >> 52, np.int64) - (1075 + 2 - 48))
    m_low, m_high = bits & _LOW32, ((bits >> 32) & 0xFFFFF) | 0x100000
    product, carry_low, carry_high, previous = [], None, None, None
    for limb in limbs:
        low = m_low * limb if carry_low is None else m_low * limb + carry_low
        carry_low = low >> 32
        if previous is not None:
            high = m_high * previous + (low & _LOW32)
            high = high if carry_high is None else high + carry_high
            low, carry_high = high, high >> 32
        product.append(low & _LOW32)
        previous = limb
    top, bottom = (product[5] << 32) | product[4], (product[3] << 32) | product[2]
    quarters = v.bitcast(((top >> 61) + 1) >> 1, np.int64)
    # The fraction as a signed number of units 2**-128, in four exact floats of falling size.
    signed = v.bitcast((top << 2) | (bottom >> 62), np.int64)
    bottom = v.bitcast(bottom << 2, np.int64)
    pieces = (signed >> 32, signed & _LOW32, (bottom >> 32) & _LOW32, bottom & _LOW32)
    d1, d2, d3, d4 = (v.convert(piece, _F64) * 2.0 ** (-32 * (i + 1)) for i, piece in enumerate(pieces))
    f, e1 = dw.fast_two_sum(d1, d2)
    f, e2 = dw.fast_two_sum(f, d3)
    f, e = dw.fast_two_sum(f, e1 + (e2 + d4))
    p_hi, p_lo = _PI[_F64][2]
    hi, lo = dw.two_prod(f, v.constant(f, p_hi))
    lo = v.fma(e, p_hi, v.fma(f, p_lo, lo))
    return v.select(a == np.inf, np.nan, hi), lo, quarters


def _reduce(a: Any) -> tuple[Any, Any, Any]:
    """a >= 0 modulo pi/2 as (hi, lo) with |hi + lo| <= pi/4 and a little, and the quarter turns (right modulo 4)."""

    def large() -> tuple[Any, Any, Any]:
        hi, lo, quarters = _reduce_large(v.convert(a, _F64))
        if a.dtype == _F64:
            return hi, lo, quarters
        narrow = v.convert(hi, _F32)
        lo = v.convert((hi - v.convert(narrow, _F64)) + lo, _F32)
        return narrow, lo, v.convert(quarters, np.int32)

    return v.cond_block(a > _SMALL_ANGLE[a.dtype], large, _reduce_small(a))


def _sin_cos(r: Any, lo: Any) -> tuple[Any, Any, Any, Any]:
    """sin and cos of r + lo, |r| <= 0.8, within about 0.6 ulp, and the smaller part of each sum (rounded where it is added)."""
    r2 = r * r
    half = -0.5 * r
    w = v.fma(half, r, 1.0)
    rest = v.fma(half, r, 1.0 - w)  # what rounding 1 - r^2/2 lost
    s_lo = v.fma(r * r2, dw.horner(r2, _SIN[r.dtype]), lo * w)
    c_lo = v.fma(r2 * r2, dw.horner(r2, _COS[r.dtype]), v.fma(-r, lo, rest))
    return r, s_lo, w, c_lo


def _flip(x: Any, sign: Any) -> Any:
    """x with its sign bit flipped where that of the integer `sign` is set."""
    return v.bitcast(dw.bits(x) ^ sign, x.dtype)


def _all_signs(x: Any) -> Any:
    """An integer of the width of x with the sign bit set in every lane."""
    return v.constant(x, int(np.iinfo(dw.integer_dtype(x)).min), dw.integer_dtype(x))


def _sign_bit(x: Any) -> Any:
    """The sign bit of a float alone, as an integer."""
    return dw.bits(x) & _all_signs(x)


def _bit_to_sign(quarters: Any, bit: int) -> Any:
    """Bit number `bit` of an integer moved to its sign bit, the others cleared."""
    return (quarters & (1 << bit)) << (8 * quarters.dtype.itemsize - 1 - bit)


# --- sin, cos, tan ---------------------------------------------------------------------------------------------------------


def sin(x: Any) -> Any:
    """Sine within 1 ulp for every x: reduction modulo pi/2 to a double word, then one of two minimax polynomials."""
    hi, lo, quarters = _reduce(v.absolute(x))
    s, s_lo, c, c_lo = _sin_cos(hi, lo)
    odd = (quarters & 1) != 0
    return _flip(v.select(odd, c + c_lo, s + s_lo), _sign_bit(x) ^ _bit_to_sign(quarters, 1))


def cos(x: Any) -> Any:
    """Cosine within 1 ulp for every x: reduction modulo pi/2 to a double word, then one of two minimax polynomials."""
    hi, lo, quarters = _reduce(v.absolute(x))
    s, s_lo, c, c_lo = _sin_cos(hi, lo)
    odd = (quarters & 1) != 0
    return _flip(v.select(odd, s + s_lo, c + c_lo), _bit_to_sign(quarters + 1, 1))


def tan(x: Any) -> Any:
    """Tangent within 1 ulp for every x: the sine over the cosine of the reduced angle, both as double words."""
    hi, lo, quarters = _reduce(v.absolute(x))
    s, s_lo, c, c_lo = _sin_cos(hi, lo)
    (s, s_lo), (c, c_lo) = dw.fast_two_sum(s, s_lo), dw.fast_two_sum(c, c_lo)
    odd = (quarters & 1) != 0
    q, _ = dw.divide(v.select(odd, c, s), v.select(odd, c_lo, s_lo), v.select(odd, s, c), v.select(odd, s_lo, c_lo))
    return _flip(q, _sign_bit(x) ^ _bit_to_sign(quarters, 0))


# --- asin, acos ------------------------------------------------------------------------------------------------------------


def _minus_asin(base: Any, base_lo: Any, y: Any, z: Any) -> Any:
    """(base + base_lo) - y * asin(sqrt(z)) / sqrt(z) for z <= 1/4; base is 0 or at least |y|."""
    h = base - y
    e = (base - h) - y
    return h + v.fma(-(y * z), dw.horner(z, _ASIN[z.dtype]), e + base_lo)


def asin(x: Any) -> Any:
    """Arc sine within 2 ulp: a polynomial up to 1/2, beyond it pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    a = v.absolute(x)
    beyond = a > 0.5
    half = v.fma(a, -0.5, 0.5)
    p_hi, p_lo = _PI[x.dtype][2]
    zero = v.constant(x, 0.0)
    base, base_lo = v.select(beyond, p_hi, zero), v.select(beyond, p_lo, zero)
    y = v.select(beyond, 2.0 * v.sqrt(half), -a)
    return v.copysign(_minus_asin(base, base_lo, y, v.select(beyond, half, a * a)), x)


def acos(x: Any) -> Any:
    """Arc cosine within 2 ulp: pi/2 - asin(x) up to 1/2, beyond it twice the asin of sqrt((1 - |x|) / 2), or pi minus that."""
    a = v.absolute(x)
    beyond, negative = a > 0.5, x < 0.0
    half = v.fma(a, -0.5, 0.5)
    root = 2.0 * v.sqrt(half)
    (q_hi, q_lo), (p_hi, p_lo) = _PI[x.dtype][2], _PI[x.dtype][4]
    zero = v.constant(x, 0.0)
    base = v.select(beyond, v.select(negative, p_hi, zero), q_hi)
    base_lo = v.select(beyond, v.select(negative, p_lo, zero), q_lo)
    y = v.select(beyond, v.select(negative, root, -root), x)
    return _minus_asin(base, base_lo, y, v.select(beyond, half, x * x))


# --- atan, atan2 -----------------------------------------------------------------------------------------------------------


def _octant_quotient(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """z + z_lo with atan(a/b) = atan(z), or pi/4 + atan(z) where the returned mask is true; 0 <= a <= b, b normal.

    The quotient (a-b)/(a+b) keeps |z| <= tan(pi/8). One division: z_lo restores what it, a-b and a+b lost.
    """
    beyond = a > float(np.sqrt(2.0) - 1.0) * b
    difference, total = a - b, a + b
    zero = v.constant(a, 0.0)
    num, den = v.select(beyond, difference, a), v.select(beyond, total, b)
    num_lo = v.select(beyond, a - (difference + b), zero)
    den_lo = v.select(beyond, a - (total - b), zero)
    inverse = 1.0 / den
    z = num * inverse
    rest = v.fma(-z, den, num) + v.fma(-z, den_lo, num_lo)
    return z, rest * inverse, beyond


def _add_atan(base: Any, base_lo: Any, z: Any, z_lo: Any) -> Any:
    """(base + base_lo) + atan(z + z_lo) for |z| <= tan(pi/8); base is 0 or larger than |z|."""
    z2 = z * z
    h = base + z
    e = z - (h - base)
    return h + (v.fma(z * z2, dw.horner(z2, _ATAN[z.dtype]), z_lo) + (e + base_lo))


def atan(x: Any) -> Any:
    """Arc tangent within 1 ulp: reduced to |z| <= tan(pi/8) by one corrected division, then a minimax polynomial."""
    a = v.absolute(x)
    a = v.select(a > 2.0**60, 2.0**60, a)  # the rest is pi/2
    swap = a > 1.0
    z, z_lo, beyond = _octant_quotient(v.select(swap, 1.0, a), v.select(swap, a, 1.0))
    (p1_hi, p1_lo), (p2_hi, p2_lo) = _PI[x.dtype][1], _PI[x.dtype][2]
    zero = v.constant(x, 0.0)
    base = v.select(beyond, p1_hi, v.select(swap, p2_hi, zero))
    base_lo = v.select(beyond, p1_lo, v.select(swap, p2_lo, zero))
    sign = v.select(swap, _all_signs(x), dw.bits(zero))
    return v.copysign(_add_atan(base, base_lo, _flip(z, sign), _flip(z_lo, sign)), x)


def atan2(y: Any, x: Any) -> Any:
    """Angle of the point (x, y) within 1 ulp (2 if a number is subnormal), all C99 cases: the method of atan, with symmetries."""
    ax, ay = v.absolute(x), v.absolute(y)
    swap = ay > ax
    a, b = v.select(swap, ax, ay), v.select(swap, ay, ax)
    # A pair of zeros or infinities has a direction too; 0 * a keeps a NaN.
    infinite = b == np.inf
    a = v.select(infinite, v.select(a == np.inf, 1.0, 0.0 * a), a)
    b = v.select(infinite | (b == 0.0), 1.0, b)
    # Sums and the inverse need room at both ends of the exponent range; what scaling down rounds is below any quotient.
    room = {_F32: 2.0**50, _F64: 2.0**200}[x.dtype]
    end = {_F32: 2.0**100, _F64: 2.0**900}[x.dtype]
    one = v.constant(x, 1.0)
    scale = v.select(b > end, 1.0 / room, v.select(b < 1.0 / end, room, one))
    z, z_lo, beyond = _octant_quotient(a * scale, b * scale)
    sign = _sign_bit(x)
    left = sign != 0
    zero = v.constant(x, 0.0)
    pi = _PI[x.dtype]
    base, base_lo = (
        v.select(
            beyond,
            v.select(left, v.constant(x, pi[3][part]), pi[1][part]),
            v.select(swap, v.constant(x, pi[2][part]), v.select(left, v.constant(x, pi[4][part]), zero)),
        )
        for part in (0, 1)
    )
    sign = v.select(swap, ~sign & _all_signs(x), sign)
    return v.copysign(_add_atan(base, base_lo, _flip(z, sign), _flip(z_lo, sign)), y)
