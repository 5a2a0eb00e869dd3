"""x^y as a kernel body: log2 in two words, so that the error survives the multiplication by y."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.kernels import vector as v
from fxgrad.kernels.doubleword import (
    bits,
    fast_two_sum,
    horner,
    mantissa_bits,
    nearest_power_halves,
    to_float,
    two_prod,
)

__all__ = ["pow", "split_positive"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_INF, _NAN = float("inf"), float("nan")

# log2((1 + s) / (1 - s)) = s (c1 + c3 z + z^2 p(z)), z = s^2; c1 = 2 / ln(2) and c3 = c1 / 3 in two words.
_C1 = {_F32: (2.88539, 3.851926e-08), _F64: (2.8853900817779268, 4.0710547481862066e-17)}
_C3 = {_F32: (0.9617967, -7.028462e-09), _F64: (0.9617966939259756, 5.0577616648125907e-17)}
_LOG2 = {
    _F32: (0.5770802, 0.41184992, 0.3378208),
    _F64: (
        0.577078016355618,
        0.4121985830919389,
        0.3205989022739511,
        0.2623077010754469,
        0.22198400075035787,
        0.19125507647650447,
        0.1903863393391668,
    ),
}
_EXP2 = {  # 2^r = 1 + ln(2) r + r^2 p(r), |r| <= 1/2
    _F32: (0.24022648, 0.055503625, 0.0096185105, 0.0013390033, 0.00015324379),
    _F64: (
        0.24022650695910122,
        0.05550410866482074,
        0.009618129107597026,
        0.0013333558146685618,
        0.0001540353045401705,
        1.525273354721981e-05,
        1.3215436632016022e-06,
        1.0178184556128835e-07,
        7.073575639932712e-09,
        4.4363123878520533e-10,
    ),
}
_LN2 = {_F32: (0.6931472, -1.9046542e-09), _F64: (0.6931471805599453, 2.3190468138462996e-17)}
# Exponents of 2 outside give 0 or overflow, as the ends do.
_EXP2_LIMITS = {_F32: (-151.0, 129.0), _F64: (-1076.0, 1025.0)}


def split_positive(x: Any) -> tuple[Any, Any]:
    """(k, m) with x = m 2^k and m in [sqrt(1/2), sqrt(2)), for positive finite x including subnormals."""
    n = mantissa_bits(x)
    small = x < float(np.finfo(v.dtype_of(x)).tiny)
    i = bits(v.select(small, x * 2.0**n, x))
    k = (i - int(bits(np.asarray(np.sqrt(0.5), v.dtype_of(x))))) >> n
    m = v.bitcast(i - (k << n), v.dtype_of(x))
    return v.select(small, k - n, k), m


def _log2(x: Any) -> tuple[Any, Any]:
    """log2(x) as hi + lo for positive finite x, to a relative 2^-36 / 2^-65."""
    dtype = v.dtype_of(x)
    k, m = split_positive(x)
    # s = (m - 1) / (m + 1) in two words.
    f = m - 1.0
    d = m + 1.0
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_lo = v.fma(-s, m - (d - 1.0), v.fma(-s, d, f)) * reciprocal
    z, z_lo = two_prod(s, s)
    z_lo = v.fma(s + s, s_lo, z_lo)
    # The series in two words up to the z term; what follows is small enough for one.
    c3, c3_lo = _C3[dtype]
    tail = z * horner(z, _LOG2[dtype])
    q, q_lo = fast_two_sum(v.constant(x, c3), tail)
    w, w_lo = two_prod(z, q)
    w_lo = v.fma(z, q_lo + c3_lo, v.fma(z_lo, q, w_lo))
    c1, c1_lo = _C1[dtype]
    p, p_lo = fast_two_sum(v.constant(x, c1), w)
    p_lo = p_lo + (w_lo + c1_lo)
    hi, lo = two_prod(s, p)
    lo = v.fma(s, p_lo, v.fma(s_lo, p, lo))
    total, rest = fast_two_sum(to_float(k, x), hi)
    return total, rest + lo


def _exp2(hi: Any, lo: Any) -> Any:
    """2^(hi + lo) with gradual underflow; hi may be infinite or NaN, lo counts where hi is in range.

    Summed in two words, so that a power that is representable (10^2) comes out exactly.
    """
    low, high = _EXP2_LIMITS[v.dtype_of(hi)]
    lo = v.select((hi > low) & (hi < high), lo, 0.0)
    hi = v.select(hi > high, high, hi)
    hi = v.select(hi < low, low, hi)
    k, first, second = nearest_power_halves(hi, 1.0)
    ln2, ln2_lo = _LN2[v.dtype_of(hi)]
    r, r_lo = fast_two_sum(hi - k, lo)
    a, a_lo = two_prod(r, v.constant(r, ln2))
    a_lo = v.fma(r, ln2_lo, v.fma(r_lo, ln2, a_lo))
    p, p_lo = fast_two_sum(v.constant(r, 1.0), a)
    return (p + (p_lo + v.fma(r * r, horner(r, _EXP2[v.dtype_of(hi)]), a_lo))) * first * second


def pow(x: Any, y: Any) -> Any:
    """x^y as C99 and NumPy define it; 0.9 / 0.9 ulp. 2^(y log2|x|) in two words, then the sign and the special cases."""
    a = v.absolute(x)
    hi, lo = _log2(a)
    hi = v.select(a < _INF, hi, a)  # infinity, or NaN
    hi = v.select(a == 0.0, -_INF, hi)
    t, t_lo = two_prod(y, hi)
    result = v.select(a == 1.0, 1.0, _exp2(t, v.fma(y, lo, t_lo)))  # also for infinite y
    # Infinite and huge y count as even integers, a NaN as no integer.
    half = y * 0.5
    whole = v.rint(y) == y
    odd = whole & (v.rint(half) != half)
    result = v.select(odd, v.copysign(result, x), result)
    result = v.select((x < 0.0) & (a < _INF) & ~whole, _NAN, result)
    return v.select((y == 0.0) | (x == 1.0), 1.0, result)
