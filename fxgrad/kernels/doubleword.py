"""Exact sums and products as unevaluated pairs, powers of two, and polynomial schemes for the kernel bodies.

A pair `(hi, lo)` stands for hi + lo with |lo| at most half an ulp of hi (or a little more where a docstring says so). All of it
is IEEE arithmetic and explicit fma, hence the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.kernels import vector as v

_INTEGER: dict[np.dtype, np.dtype] = {np.dtype(np.float32): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.int64)}


def integer_dtype(x: Any) -> np.dtype:
    """The signed integer dtype as wide as the float `x`."""
    return _INTEGER[v.dtype_of(x)]


def mantissa_bits(x: Any) -> int:
    """Stored bits of the significand of `x`: 23 or 52."""
    return np.finfo(v.dtype_of(x)).nmant


def exponent_bias(x: Any) -> int:
    """Bias of the exponent field of `x`: 127 or 1023."""
    return np.finfo(v.dtype_of(x)).maxexp - 1


def bits(x: Any) -> Any:
    """The float `x` read as a signed integer."""
    return v.bitcast(x, integer_dtype(x))


# --- exact sums and products -----------------------------------------------------------------------------------------------


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b exactly, for any finite a and b (6 operations)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b exactly, if |a| >= |b| or a = 0 (3 operations)."""
    s = a + b
    return s, b - (s - a)


def two_prod(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b exactly, unless the low part underflows."""
    p = a * b
    return p, v.fma(a, b, -p)


def multiply(ah: Any, al: Any, bh: Any, bl: Any) -> tuple[Any, Any]:
    """(ah + al) * (bh + bl) as a normalised pair (relative error about 5 u^2)."""
    p, e = two_prod(ah, bh)
    return fast_two_sum(p, v.fma(al, bh, v.fma(ah, bl, e)))


def divide(ah: Any, al: Any, bh: Any, bl: Any) -> tuple[Any, Any]:
    """(ah + al) / (bh + bl) as a normalised pair from one division (relative error a few u^2)."""
    r = 1.0 / bh
    q = ah * r
    rest = v.fma(-q, bh, ah) + v.fma(-q, bl, al)
    return fast_two_sum(q, rest * r)


# --- powers of two ---------------------------------------------------------------------------------------------------------


def round_to_integer(x: Any, scale: Any = None) -> tuple[Any, Any]:
    """x (or x * scale, in one rounding) to the nearest integer, as a float and as an integer; |result| < 2**22 (2**51).

    Adding 1.5 * 2**nmant leaves the integer in the low bits of the sum, which saves the conversion instructions.
    """
    magic = 1.5 * 2.0 ** mantissa_bits(x)
    shifted = x + magic if scale is None else v.fma(x, scale, v.constant(x, magic))
    return shifted - magic, bits(shifted) - int(bits(np.asarray(magic, v.dtype_of(x))))


def power_of_two(k: Any, like: Any) -> Any:
    """2**k for integers k within the normal exponents of `like`'s dtype."""
    return v.bitcast((k + exponent_bias(like)) << mantissa_bits(like), v.dtype_of(like))


def scale_by_power(x: Any, k: Any) -> Any:
    """x * 2**k with one rounding (gradual underflow), for |k| up to about twice the largest exponent.

    2**k itself may leave the range, so it is applied in two halves; only the second can round when x is near 1.
    """
    half = k >> 1
    return x * power_of_two(half, x) * power_of_two(k - half, x)


def nearest_power(x: Any, scale: float) -> tuple[Any, Any]:
    """k = x * scale rounded to an integer, as a float, and 2**k; k within the normal exponents.

    The number added to round to an integer carries the exponent bias, so that a shift of the sum is the power.
    """
    n = mantissa_bits(x)
    magic = 1.5 * 2.0**n + exponent_bias(x)
    shifted = v.fma(x, scale, v.constant(x, magic))
    return shifted - magic, v.bitcast(bits(shifted) << n, v.dtype_of(x))


def nearest_scaling(x: Any, scale: float) -> tuple[Any, Callable[[Any], Any]]:
    """The same for |k| up to about twice the largest exponent: k, and what multiplies a y near 1 by 2**k with one rounding.

    Two factors near the square root of 2**k round once, because only the second product can underflow; AVX-512 has an
    instruction.
    """
    n = mantissa_bits(x)
    magic = 1.5 * 2.0**n + 2 * exponent_bias(x)
    shifted = v.fma(x, scale, v.constant(x, magic))
    kf, both = shifted - magic, bits(shifted)

    def scaled(y: Any) -> Any:
        if v.scales_at_once(y):
            return v.scale(y, kf)
        first = both >> 1
        return y * v.bitcast(first << n, v.dtype_of(x)) * v.bitcast((both - first) << n, v.dtype_of(x))

    return kf, scaled


def to_float(k: Any, like: Any) -> Any:
    """The integer k, |k| < 2**22 (2**51), in `like`'s dtype, by an operation or two that every CPU has."""
    if v.dtype_of(like) == np.float32:
        return v.convert(k, np.float32)
    magic = 1.5 * 2.0 ** mantissa_bits(like)
    return v.bitcast(k + int(bits(np.asarray(magic, v.dtype_of(like)))), v.dtype_of(like)) - magic


# --- polynomials -----------------------------------------------------------------------------------------------------------


def horner(x: Any, coefficients: Sequence[Any]) -> Any:
    """c[0] + c[1] x + c[2] x**2 + ... with the fewest operations and the longest chain; numbers or values, two or more."""
    *lower, result = coefficients
    for c in reversed(lower):
        result = v.fma(result, x, c)
    return result
