"""Draws that need a loop: each element tries, with blocks of random bits of its own, until a proposal is accepted.

The attempt is the first word of the counter and the element the second, so a draw depends on key, element and parameters alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad.kernels import math as m
from fxgrad.kernels import vector as v
from fxgrad.kernels.gamma import lgamma
from fxgrad.kernels.inverse_error import erfcinv
from fxgrad.kernels.iterate import repeat_while
from fxgrad.kernels.threefry import joined, threefry2x32

__all__ = ["binomial_draw", "bounded_draw", "gamma_draw", "normal_of_bits", "poisson_draw", "threefry2x32", "unit_of_bits"]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_U32, _U64, _I64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
_INF, _NAN = float("inf"), float("nan")
_MOST = 1 << 20  # attempts, of which one in two succeeds at worst


def unit_of_bits(bits: Any) -> Any:
    """(n + 1/2) / 2^32 (or 2^64): above 0, with full precision near it; may round to 1."""
    if bits.dtype == _U32:
        return (v.convert(bits, _F32) + 0.5) * 2.0**-32
    return (v.convert(bits, _F64) + 0.5) * 2.0**-64


def normal_of_bits(bits: Any) -> Any:
    """A standard normal number: the lowest bit is its sign, the others say how far out it is, by inversion."""
    narrow = bits.dtype == _U32
    u = v.convert(bits | 1, _F32 if narrow else _F64) * (2.0**-32 if narrow else 2.0**-64)  # (n + 1/2)/2^31 of the upper 31
    z = erfcinv(u) * math.sqrt(2)
    return v.select((bits & 1) == 0, z, -z)


def _bits(k0: Any, k1: Any, attempt: Any, c1: Any, dtype: np.dtype) -> Any:
    """One number as wide as the dtype from the block of an attempt."""
    x, y = threefry2x32(k0, k1, attempt, c1)
    return joined(x, y) if dtype.itemsize == 8 else x ^ y


def bounded_draw(k0: Any, k1: Any, c1: Any, span: Any) -> Any:
    """An integer below `span` (uint32 or uint64; 0 stands for 2^32 or 2^64), every one as likely."""
    draw = _bounded32 if span.dtype == _U32 else _bounded64
    return draw(k0, k1, c1, span)


def _bounded32(k0: Any, k1: Any, c1: Any, span: Any) -> Any:
    """The upper half of the product with a random word; rejected where the lower is below 2^32 mod span (Lemire, 2019)."""
    zero = v.constant(span, 0)
    wide = v.convert(span, _U64)

    def step(attempt: Any, result: Any, going: Any) -> tuple[Any, ...]:
        word = _bits(k0, k1, attempt, c1, _U32)
        product = v.convert(word, _U64) * wide
        low, high = v.convert(product, _U32), v.convert(product >> 32, _U32)
        (threshold,) = v.cond_block(low < span, lambda: (v.remainder_int(zero - span, span),), (zero,))
        return attempt + 1, v.select(span == 0, word, high), (low < threshold) & (span != 0)

    start = (zero, zero, span == span)
    return repeat_while(lambda attempt, result, going: going & (attempt < _MOST), step, start)[1]


def _bounded64(k0: Any, k1: Any, c1: Any, span: Any) -> Any:
    """As many bits as span - 1 has; rejected where they make a number that is not below it."""
    last = span - 1
    mask = last
    for shift in (1, 2, 4, 8, 16, 32):
        mask = mask | (mask >> shift)

    def step(attempt: Any, result: Any, going: Any) -> tuple[Any, ...]:
        drawn = _bits(k0, k1, attempt, c1, _U64) & mask
        return attempt + 1, drawn, drawn > last

    start = (v.constant(c1, 0), v.constant(span, 0), span == span)
    return repeat_while(lambda attempt, result, going: going & (attempt < _MOST), step, start)[1]


def gamma_draw(k0: Any, k1: Any, c1: Any, a: Any) -> Any:
    """A draw of the gamma distribution of shape a >= 1 (Marsaglia and Tsang, 2000); NaN for other a."""
    valid = (a >= 1.0) & (a < _INF)
    d = v.select(valid, a, v.constant(a, 1.0)) - 1 / 3
    c = 1.0 / v.sqrt(d * 9.0)

    def step(attempt: Any, result: Any, going: Any) -> tuple[Any, ...]:
        x = normal_of_bits(_bits(k0, k1, attempt, c1, a.dtype))
        u = unit_of_bits(_bits(k0, k1, attempt + 1, c1, a.dtype))
        t = v.fma(c, x, 1.0)
        inside = t > 0.0
        cube = v.select(inside, t * t * t, v.constant(a, 1.0))
        accepted = inside & (m.log(u) < v.fma(x * x, 0.5, d * ((1.0 - cube) + m.log(cube))))
        return attempt + 2, d * cube, ~accepted

    start = (v.constant(c1, 0), v.constant(a, _NAN), valid)
    result = repeat_while(lambda attempt, result, going: going & (attempt < _MOST), step, start)[1]
    return v.select(a == _INF, a, result)


def poisson_draw(k0: Any, k1: Any, c1: Any, rate: Any) -> Any:
    """A count (int64) of the Poisson distribution, rate a float64; -1 for a rate that is negative, infinite or NaN."""
    valid = (rate >= 0.0) & (rate < 2.0**62)
    few = valid & (rate < 10.0)
    small = _poisson_small(k0, k1, c1, v.select(few, rate, v.constant(rate, 1.0)), few)
    many = valid & (rate >= 10.0)
    large = _poisson_large(k0, k1, c1, v.select(many, rate, v.constant(rate, 16.0)), many)
    return v.convert(v.select(few, small, v.select(many, large, v.constant(rate, -1.0))), _I64)


def _poisson_small(k0: Any, k1: Any, c1: Any, rate: Any, wanted: Any) -> Any:
    """Inversion by adding up probabilities."""
    u = unit_of_bits(_bits(k0, k1, v.constant(c1, 0), c1, _F64))
    zero = v.constant(rate, 0.0)

    def step(left: Any, p: Any, n: Any) -> tuple[Any, ...]:
        n = n + 1.0
        return left - p, p * rate / n, n

    return repeat_while(lambda left, p, n: wanted & (left > p) & (n < 200.0), step, (u, m.exp(-rate), zero))[2]


def _poisson_large(k0: Any, k1: Any, c1: Any, rate: Any, wanted: Any) -> Any:
    """PTRS (Hoermann, "The transformed rejection method for generating Poisson random variables", 1993)."""
    root, log_rate = v.sqrt(rate), m.log(rate)
    b = v.fma(root, 2.53, 0.931)
    a = v.fma(b, 0.02483, -0.059)
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)

    def step(attempt: Any, n: Any, going: Any) -> tuple[Any, ...]:
        u = unit_of_bits(_bits(k0, k1, attempt, c1, _F64)) - 0.5
        w = unit_of_bits(_bits(k0, k1, attempt + 1, c1, _F64))
        us = 0.5 - v.absolute(u)
        n = v.floor(v.fma((a + a) / us + b, u, rate + 0.43))
        inside = (n >= 0.0) & ~((us < 0.013) & (w > us))
        count = v.select(inside, n, v.constant(n, 0.0))
        bound = v.fma(count, log_rate, -rate) - lgamma(count + 1.0)
        exact = m.log(w * inverse_alpha / (a / (us * us) + b)) <= bound
        return attempt + 2, n, ~(((us >= 0.07) & (w <= v_r)) | (inside & exact))

    start = (v.constant(c1, 0), v.constant(rate, 0.0), wanted)
    return repeat_while(lambda attempt, n, going: going & (attempt < _MOST), step, start)[1]


def binomial_draw(k0: Any, k1: Any, c1: Any, n: Any, p: Any) -> Any:
    """A count (int64) of successes among n trials, n and p float64; -1 for n < 0, or p outside 0 to 1."""
    valid = (n >= 0.0) & (n < 2.0**53) & (p >= 0.0) & (p <= 1.0)
    flipped = p > 0.5
    q = v.select(flipped, 1.0 - p, p)
    q, n = v.select(valid, q, v.constant(p, 0.0)), v.select(valid, v.floor(n), v.constant(p, 1.0))
    few = n * q < 10.0
    small = _binomial_small(k0, k1, c1, n, v.select(few, q, v.constant(p, 0.0)), few)
    many = ~few
    large = _binomial_large(k0, k1, c1, v.select(many, n, v.constant(n, 40.0)), v.select(many, q, v.constant(p, 0.5)), many)
    count = v.select(few, small, large)
    count = v.select(flipped, n - count, count)
    return v.convert(v.select(valid, count, v.constant(p, -1.0)), _I64)


def _binomial_small(k0: Any, k1: Any, c1: Any, n: Any, p: Any, wanted: Any) -> Any:
    """Inversion by adding up probabilities."""
    u = unit_of_bits(_bits(k0, k1, v.constant(c1, 0), c1, _F64))
    odds = p / (1.0 - p)
    first = m.exp(n * m.log1p(-p))

    def step(left: Any, weight: Any, count: Any) -> tuple[Any, ...]:
        return left - weight, weight * odds * (n - count) / (count + 1.0), count + 1.0

    going = lambda left, weight, count: wanted & (left > weight) & (count < n) & (count < 200.0)  # noqa: E731
    return repeat_while(going, step, (u, first, v.constant(n, 0.0)))[2]


def _binomial_large(k0: Any, k1: Any, c1: Any, n: Any, p: Any, wanted: Any) -> Any:
    """BTRS (Hoermann, "The generation of binomial random variates", 1993)."""
    spread = v.sqrt(n * p * (1.0 - p))
    b = v.fma(spread, 2.53, 1.15)
    a = v.fma(p, 0.01, v.fma(b, 0.0248, -0.0873))
    centre = v.fma(n, p, 0.5)
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    mode = v.floor((n + 1.0) * p)
    log_odds = m.log(p / (1.0 - p))
    peak = lgamma(mode + 1.0) + lgamma(n - mode + 1.0)

    def step(attempt: Any, count: Any, going: Any) -> tuple[Any, ...]:
        u = unit_of_bits(_bits(k0, k1, attempt, c1, _F64)) - 0.5
        w = unit_of_bits(_bits(k0, k1, attempt + 1, c1, _F64))
        us = 0.5 - v.absolute(u)
        count = v.floor(v.fma((a + a) / us + b, u, centre))
        inside = (count >= 0.0) & (count <= n)
        safe = v.select(inside, count, v.constant(n, 0.0))
        bound = v.fma(safe - mode, log_odds, peak) - lgamma(safe + 1.0) - lgamma(n - safe + 1.0)
        exact = m.log(w * alpha / (a / (us * us) + b)) <= bound
        return attempt + 2, count, ~(inside & (((us >= 0.07) & (w <= v_r)) | exact))

    start = (v.constant(c1, 0), v.constant(n, 0.0), wanted)
    return repeat_while(lambda attempt, count, going: going & (attempt < _MOST), step, start)[1]
