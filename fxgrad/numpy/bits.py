"""Integers and floats down to their bits: divisors, bit counts and packing, neighbours, mantissa and exponent."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, canonical_axis, key_of, operand, resolve, tensor, ufunc
from fxgrad.primitives import bits as b
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import reduce as r
from fxgrad.primitives import shape as s

__all__ = [
    "bitwise_count",
    "frexp",
    "gcd",
    "lcm",
    "ldexp",
    "modf",
    "nextafter",
    "packbits",
    "spacing",
    "unpackbits",
]

_UINT8 = np.dtype(np.uint8)

gcd = ufunc(np.gcd, b.gcd, "The greatest common divisor, not negative.")
lcm = ufunc(np.lcm, b.lcm, "The least common multiple, not negative.")
nextafter = ufunc(np.nextafter, b.nextafter, "The float next to x1 on the way to x2; its slope by x1 is 1.")
spacing = ufunc(np.spacing, b.spacing, "The distance of x to the next float beyond it.")
ldexp = ufunc(np.ldexp, b.ldexp, "x1 * 2**x2, rounded once.")


def _bitwise_count(x: Any) -> Any:
    """Bits of |x|, added up in pairs, in fours, and so on within every word."""
    if x.dtype.kind == "i":
        x = e.convert(e.abs_(x), dtype=np.dtype(f"u{x.dtype.itemsize}"))
    word, size = x.dtype.type, 8 * x.dtype.itemsize
    for width in (1, 2, 4, 8, 16, 32):
        if width >= size:
            break
        mask = word(((1 << size) - 1) // ((1 << width) + 1))  # every other group of `width` bits
        x = e.add(e.and_(x, mask), e.and_(e.shift_right(x, word(width)), mask))
    return e.convert(x, dtype=_UINT8)


bitwise_count = ufunc(np.bitwise_count, _bitwise_count, "The number of ones among the bits of |x|, as uint8.")


def _as_loop(fn: np.ufunc, x: Any) -> Any:
    """x in the dtype of the loop that a ufunc of one operand takes for it."""
    x = operand(x)
    return tensor(as_dtype(x, resolve(fn, (key_of(x),))[0][0]))


def frexp(x: Any, /) -> tuple[Any, Any]:
    """(m, n) with x = m * 2**n and 1/2 <= |m| < 1, as numpy.frexp; n is int32 and constant, so the slope of m is 2**-n."""
    x = _as_loop(np.frexp, x)
    return b.mantissa(x), b.exponent(x)


def modf(x: Any, /) -> tuple[Any, Any]:
    """(fraction, whole part), both with the sign of x, as numpy.modf."""
    from fxgrad.numpy import elementwise as ew

    x = _as_loop(np.modf, x)
    whole = ew.trunc(x)
    zero = x.dtype.type(0)
    return ew.copysign(ew.where(ew.isinf(x), zero, ew.subtract(x, whole)), x), whole


# ---- packing -----------------------------------------------------------------------------------------------------------------


def _shifts(bitorder: str) -> np.ndarray:
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1].copy()


def _along(a: Any, axis: int | None) -> tuple[Any, int]:
    x = tensor(a)
    if axis is None or not x.ndim:
        return s.reshape(x, shape=(x.size,)), 0
    return x, canonical_axis(axis, x.ndim)


def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    """Eight elements (true where not 0) to a uint8 along an axis, zeros filling the last, as numpy.packbits."""
    x, shifts = tensor(a), _shifts(bitorder)
    if x.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    x, axis = _along(x, axis)
    n = -(-x.shape[axis] // 8)
    ones = x if x.dtype.kind == "b" else e.ne(x, x.dtype.type(0))
    ones = r.pad_axis(ones, np.bool_(False), axis, 0, 8 * n - x.shape[axis])
    groups = s.reshape(e.convert(ones, dtype=_UINT8), shape=(*x.shape[:axis], n, 8, *x.shape[axis + 1 :]))
    weights = s.broadcast(np.left_shift(np.uint8(1), shifts), shape=groups.shape, dims=(axis + 1,))
    return r.sum_(e.mul(groups, weights), axes=(axis + 1,))


def unpackbits(a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The bits of uint8 numbers, eight for each along an axis (the first `count` of them), as numpy.unpackbits."""
    x, shifts = tensor(a), _shifts(bitorder)
    if x.dtype != _UINT8:
        raise TypeError("Expected an input array of unsigned byte data type")
    x, axis = _along(x, axis)
    shape = (*x.shape[: axis + 1], 8, *x.shape[axis + 1 :])
    wide = s.broadcast(x, shape=shape, dims=tuple(i for i in range(len(shape)) if i != axis + 1))
    bits = e.and_(e.shift_right(wide, s.broadcast(shifts, shape=shape, dims=(axis + 1,))), np.uint8(1))
    total = 8 * x.shape[axis]
    bits = s.reshape(bits, shape=(*x.shape[:axis], total, *x.shape[axis + 1 :]))
    if count is None:
        return bits
    wanted = total + count if count < 0 else count
    if wanted < 0:
        raise errors.FxValueError(
            f"unpackbits: count={count} takes more bits away than there are",
            why=f"The axis holds {total} bits.",
            fix=f"Give a count of {-total} or more.",
        )
    return r.pad_axis(r.cut(bits, axis, 0, min(wanted, total)), np.uint8(0), axis, 0, max(0, wanted - total))
