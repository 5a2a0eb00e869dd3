"""x^y as a kernel body: log2 in two words, so that the error survives the multiplication by y."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels import vector as v
from fxgrad.kernels.doubleword import (
    bits,
    exponent_bias,
    horner,
    mantissa_bits,
    scale_by_power,
    to_float,
    two_prod,
)

__all__ = ["pow", "split_positive"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_INF, _NAN = float("inf"), float("nan")

# For m near 1 + j/32: q near 1/m with 6 bits after the point, and -log2(q) in two words, the first with 42 bits after the point.
_LOG2_TABLE = (
    (1.0, 0.0, 0.0),
    (0.96875, 0.045803689613194365, -6.957374407725013e-14),
    (0.9375, 0.09310940439149817, -1.6703260328550802e-14),
    (0.921875, 0.1173569506381682, -9.459192232399996e-15),
    (0.890625, 0.16710998583516812, 9.02069790225012e-14),
    (0.859375, 0.21864028647542, -7.960223862778872e-14),
    (0.84375, 0.2451124978365442, -1.275189131300513e-14),
    (0.828125, 0.2720795454367817, 1.912060077712148e-14),
    (0.796875, 0.3275746580284249, 7.951818330761124e-14),
    (0.78125, 0.356143810225376, -1.0069648492950886e-13),
    (0.765625, 0.3852901558848316, -3.983479855974919e-14),
    (0.75, 0.41503749927892386, -8.00418555854124e-14),
    (0.734375, 0.44541114832236417, -1.5420422453235895e-15),
    (0.71875, 0.47643804394306244, -7.531150579247643e-14),
    (0.703125, 0.508146903670422, -9.67451159139632e-14),
    (0.6875, 0.5405683813626183, 8.443284155858175e-14),
    (0.671875, 0.5737352452979394, -3.733907276649932e-14),
    (0.65625, 0.6076825772213397, -9.995925486528699e-14),
    (0.640625, 0.6424479953818718, 4.450095846656107e-14),
    (0.625, 0.6780719051125743, 6.33385952568616e-14),
    (0.609375, 0.7145977811378543, -1.02668366941445e-13),
    (0.609375, 0.7145977811378543, -1.02668366941445e-13),
    (0.59375, 0.7520724865564716, -5.712484083531846e-14),
    (0.578125, 0.7905466343711396, -8.937120568078598e-14),
    (0.578125, 0.7905466343711396, -8.937120568078598e-14),
    (0.5625, 0.8300749985576203, 6.728996427240727e-14),
    (0.546875, 0.8707169830549901, 4.3421195976986995e-14),
    (0.546875, 0.8707169830549901, 4.3421195976986995e-14),
    (0.53125, 0.9125371587497284, -6.781363655020842e-14),
    (0.53125, 0.9125371587497284, -6.781363655020842e-14),
    (0.515625, 0.9556058806415422, 4.390985973169353e-15),
    (0.5, 1.0, 0.0),
)
_EXP2_TABLE = (  # 2^(j/16) in two words
    (1.0, 0.0),
    (1.0442737824274138, 8.551889705537965e-17),
    (1.0905077326652577, -3.046782079812471e-17),
    (1.1387886347566916, 8.912812676025408e-17),
    (1.189207115002721, 3.982015231465646e-17),
    (1.241857812073484, 4.658027591836937e-17),
    (1.2968395546510096, 2.5382502794888315e-17),
    (1.3542555469368927, 7.70094837980299e-17),
    (1.4142135623730951, -9.667293313452913e-17),
    (1.4768261459394993, -3.483994556892796e-17),
    (1.5422108254079407, 7.949834809697621e-17),
    (1.6104903319492543, 2.4707192569797888e-17),
    (1.681792830507429, 8.199010020581497e-17),
    (1.7562521603732995, 2.960140695448873e-17),
    (1.8340080864093424, 3.283107224245627e-17),
    (1.9152065613971474, -1.0619946056195963e-16),
)
_LOG = {  # log(1 + r) = r - r^2 / 2 + r^3 p(r), |r| <= 0.0234
    _F32: (0.3333333, -0.25, 0.20011306, -0.16671869),
    _F64: (
        0.33333333333333276,
        -0.2499999999999987,
        0.20000000001018106,
        -0.16666666668340938,
        0.1428570867680861,
        -0.12499992745498616,
        0.11123278824762999,
        -0.10013024655111352,
    ),
}
_EXP2 = {  # 2^r = 1 + r p(r), |r| <= 1/32
    _F32: (0.6931472, 0.2402265, 0.055502687, 0.009618047),
    _F64: (
        0.6931471805599453,
        0.24022650695910072,
        0.055504108665001266,
        0.009618129107145944,
        0.001333355466009846,
        0.0001540369757034055,
        1.5446680479204327e-05,
    ),
}
_LOG2E = {_F32: (1.442695, 1.925963e-08), _F64: (1.4426950408889634, 2.0355273740931033e-17)}
_LOG_BITS, _EXP_BITS = 5, 4  # of the index into the tables
# Exponents of 2 outside give 0 or overflow, as the ends do.
_EXP2_LIMITS = {_F32: (-151.0, 129.0), _F64: (-1076.0, 1025.0)}
# Within, 2^t and the products on the way to it are normal numbers (also those of the NumPy form of fma).
_EXP2_USUAL = {_F32: 124.0, _F64: 900.0}


def _log2_columns(dtype: np.dtype) -> tuple[tuple, tuple, tuple]:
    """q, and -log2(q) as the sum of two; the first plus an exponent is exact in the dtype."""
    unit = 2.0**16 if dtype == _F32 else 2.0**42
    q, first, rest = zip(*_LOG2_TABLE, strict=True)
    high = tuple(round(x * unit) / unit for x in first)
    return q, high, tuple((x - h) + y for x, h, y in zip(first, high, rest, strict=True))


def _exp2_columns(dtype: np.dtype) -> tuple[tuple, tuple, tuple]:
    """2^(j/16) rounded to s; s with j subtracted from its bits where exp2 adds it; log2(2^(j/16) / s)."""
    exact = np.array(_EXP2_TABLE)
    s = exact[:, 0].astype(dtype)
    error = ((exact[:, 0] - s) + exact[:, 1]) / exact[:, 0] * _LOG2E[_F64][0]
    lowered = v.bitcast(bits(s) - (np.arange(len(s)) << (mantissa_bits(s) - _EXP_BITS)).astype(bits(s).dtype), dtype)
    return tuple(s.tolist()), tuple(lowered.tolist()), tuple(error.tolist())


_LOG2_COLUMNS = {dtype: _log2_columns(dtype) for dtype in (_F32, _F64)}
_EXP2_COLUMNS = {dtype: _exp2_columns(dtype) for dtype in (_F32, _F64)}


def split_positive(x: Any) -> tuple[Any, Any]:
    """(k, m) with x = m 2^k and m in [sqrt(1/2), sqrt(2)), for positive finite x including subnormals."""
    n = mantissa_bits(x)
    small = x < float(np.finfo(v.dtype_of(x)).tiny)
    i = bits(v.select(small, x * 2.0**n, x))
    k = (i - int(bits(np.asarray(np.sqrt(0.5), v.dtype_of(x))))) >> n
    m = v.bitcast(i - (k << n), v.dtype_of(x))
    return v.select(small, k - n, k), m


def _log2(x: Any) -> tuple[Any, Any]:
    """log2(x) as hi + lo for positive finite x, |lo| < 2^-11 |hi|, to a relative 2^-35 / 2^-64.

    x = m 2^k with m from 1 - 1/128 to 2 - 1/64, and log2(m) = log2(1 + r) - log2(q), where r = m q - 1 is exact.
    """
    dtype = v.dtype_of(x)
    n = mantissa_bits(x)
    small = x < float(np.finfo(dtype).tiny)
    i = bits(v.select(small, x * 2.0**n, x))
    moved = i + ((1 << (n - _LOG_BITS - 1)) - (exponent_bias(x) << n))  # rounds m to the middle of an interval of the table
    k = moved >> n
    m = v.bitcast(i - (moved & (-1 << n)), dtype)
    q, log_q, log_q_lo = (v.lookup(column, moved >> (n - _LOG_BITS)) for column in _LOG2_COLUMNS[dtype])
    whole = to_float(v.select(small, k - n, k), x) + log_q
    r = v.fma(m, q, -1.0)
    half = r * -0.5
    s = v.fma(half, r, r)  # log(1 + r) = s + s_lo, of which the first two terms are exact
    s_lo = v.fma(r * r * r, horner(r, _LOG[dtype]), v.fma(half, r, r - s))
    log2e, log2e_lo = _LOG2E[dtype]
    hi = v.fma(s, log2e, whole)
    lo = v.fma(s, log2e, whole - hi)
    return hi, v.fma(s_lo, log2e, v.fma(s, log2e_lo, lo)) + log_q_lo


def _magic(like: Any) -> float:
    """A number that leaves sixteenths in the low bits of what is added to it."""
    return 1.5 * 2.0 ** (mantissa_bits(like) - _EXP_BITS)


def _exp2_index(hi: Any, lo: Any) -> tuple[Any, Any]:
    """j whose low bits are hi + lo in sixteenths, and hi + lo - j / 16. The largest lo of float32 may be left out of j."""
    total = hi if v.dtype_of(hi) == _F32 else hi + lo
    shifted = total + _magic(hi)
    return bits(shifted), (hi - (shifted - _magic(hi))) + lo


def _exp2(hi: Any, lo: Any) -> Any:
    """2^(hi + lo) where it is a normal number: s 2^r, with s from a table and j added to its bits."""
    dtype = v.dtype_of(hi)
    _, lowered, error = _EXP2_COLUMNS[dtype]
    j, r = _exp2_index(hi, lo)
    r = r + v.lookup(error, j)
    s = v.bitcast(bits(v.lookup(lowered, j)) + (j << (mantissa_bits(hi) - _EXP_BITS)), dtype)
    return v.fma(s, r * horner(r, _EXP2[dtype]), s)


def _exp2_any(hi: Any, lo: Any) -> Any:
    """The same with overflow and gradual underflow; hi may be infinite or NaN, lo counts where hi is in range."""
    dtype = v.dtype_of(hi)
    low, high = _EXP2_LIMITS[dtype]
    lo = v.select((hi > low) & (hi < high), lo, 0.0)
    hi = v.select(hi > high, high, hi)
    hi = v.select(hi < low, low, hi)
    value, _, error = _EXP2_COLUMNS[dtype]
    j, r = _exp2_index(hi, lo)
    r = r + v.lookup(error, j)
    s = v.lookup(value, j)
    zero = int(bits(np.asarray(_magic(hi), dtype)))
    return scale_by_power(v.fma(s, r * horner(r, _EXP2[dtype]), s), (j - zero) >> _EXP_BITS)


def _pow_special(x: Any, y: Any, a: Any, hi: Any, lo: Any) -> Any:
    """x^y for any x and y, given a = |x| and y log2(a) = y hi + lo where a is positive and finite."""
    hi = v.select(a < _INF, hi, a)  # infinity, or NaN
    hi = v.select(a == 0.0, -_INF, hi)
    result = v.select(a == 1.0, 1.0, _exp2_any(y * hi, lo))  # also for infinite y
    # Infinite and huge y count as even integers, a NaN as no integer.
    half = y * 0.5
    whole = v.rint(y) == y
    odd = whole & (v.rint(half) != half)
    result = v.select(odd, v.copysign(result, x), result)
    result = v.select((x < 0.0) & (a < _INF) & ~whole, _NAN, result)
    return v.select((y == 0.0) | (x == 1.0), 1.0, result)


def pow(x: Any, y: Any) -> Any:
    """x^y as C99 and NumPy define it; 0.8 / 0.7 ulp. 2^(y log2|x|) in two words; the special cases are apart, being rare."""
    dtype = v.dtype_of(x)
    a = v.absolute(x)
    hi, lo = _log2(a)
    t, t_lo = two_prod(y, hi)
    t_lo = v.fma(y, lo, t_lo)
    infinity = int(bits(np.asarray(_INF, dtype)))
    positive = v.bitcast(bits(x) - 1, f"u{dtype.itemsize}") < infinity - 1  # and finite
    usual = positive & (v.absolute(t) < _EXP2_USUAL[dtype])
    (result,) = v.cond_block(~usual, lambda: (_pow_special(x, y, a, hi, t_lo),), (_exp2(t, t_lo),))
    return result
