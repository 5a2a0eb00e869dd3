"""Bits, and the distributions without parameters of an array's shape: uniform, normal, integers, permutations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, broadcast_shapes, broadcast_to_shape, operand, static_shape, tensor
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import random as p
from fxgrad.random.compiled import compiled
from fxgrad.random.counters import counters, elementwise_draw
from fxgrad.random.keys import as_key, words
from fxgrad.trace.tracer import Tracer

__all__ = ["bits", "float_dtype", "normal", "open_unit", "param", "rademacher", "randint", "raw", "shape_for", "uniform", "unit"]

_U32, _U64, _I64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
_F16, _F32, _F64 = (np.dtype(d) for d in (np.float16, np.float32, np.float64))
_DRAW = np.uint32(0)


def float_dtype(dtype: Any, name: str) -> np.dtype:
    """dtype, if it is a real floating-point one."""
    d = np.dtype(dtype)
    if d not in (_F16, _F32, _F64):
        raise errors.FxTypeError(
            f"fx.random.{name} draws float16, float32 or float64, got dtype {d}",
            why="Its numbers are real.",
            fix="For integers use fx.random.randint or fx.random.bits; for complex numbers draw two parts.",
        )
    return d


def shape_for(name: str, shape: Any, *params: Any) -> tuple[int, ...]:
    """The shape of a draw: as asked, which parameters must broadcast to, or that of the parameters together."""
    need = broadcast_shapes(*[np.shape(x) for x in params]) if params else ()
    if shape is None:
        return need
    out = static_shape(shape)
    if len(need) > len(out) or any(n not in (1, m) for n, m in zip(need[::-1], out[::-1], strict=False)):
        raise errors.FxValueError(
            f"fx.random.{name}: parameters of shape {need} do not broadcast to shape {out}",
            why="Each element of the result has its parameters.",
            fix="Leave shape out, or give one that ends in the shape of the parameters.",
        )
    return out


def param(x: Any, dtype: np.dtype) -> Any:
    """A parameter in the dtype of a draw (float32 for float16)."""
    return as_dtype(operand(x), _F32 if dtype == _F16 else dtype)


def block(key: Any, c1: Any, dtype: np.dtype) -> Any:
    """The random bits of the elements counted by c1, for numbers of `dtype`."""
    k0, k1 = words(key, np.shape(c1))
    return p.threefry2x32(k0, k1, _DRAW, c1, take="both" if dtype.itemsize == 8 else "xor")


def raw(key: Any, shape: tuple[int, ...], dtype: np.dtype, then: Any) -> Any:
    """`then` of the random bits for a draw of `dtype`: uint64 for float64, else uint32."""
    y = elementwise_draw(lambda c1: then(block(key, c1, dtype)), shape)
    return e.convert(y, dtype=dtype) if dtype == _F16 else y


def unit(bits: Any) -> Any:
    """Multiples of 2**-24 (2**-53) in [0, 1), every one as likely."""
    if bits.dtype == _U32:
        return e.mul(e.convert(e.floordiv(bits, np.uint32(1 << 8)), dtype=_F32), np.float32(2.0**-24))
    return e.mul(e.convert(e.floordiv(bits, np.uint64(1 << 11)), dtype=_F64), np.float64(2.0**-53))


def open_unit(bits: Any) -> Any:
    """Numbers in (0, 1), as fine near 0 as floats are."""
    u = p.unit_of_bits(bits)
    return e.minimum(u, u.dtype.type(1 - np.finfo(u.dtype).epsneg))


# ---- bits ----------------------------------------------------------------------------------------------------------------


def _bits_impl(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return elementwise_draw(lambda c1: as_dtype(block(key, c1, dtype), dtype), shape)


def bits(key: Any, shape: Any = (), dtype: Any = np.uint32) -> Any:
    """Unsigned integers whose bits are all random.

    Arguments:
        key: a key; the same key gives the same bits.
        shape: of the result.
        dtype: uint8, uint16, uint32 or uint64.

    Example:
        >>> import fxgrad as fx
        >>> fx.random.bits(fx.random.key(0), (2,)).dtype
        dtype('uint32')
    """
    d = np.dtype(dtype)
    if d.kind != "u":
        raise errors.FxTypeError(
            f"fx.random.bits draws unsigned integers, got dtype {d}",
            why="Bits are counted without a sign.",
            fix="Pass dtype=np.uint32, or use fx.random.randint for signed integers.",
        )
    return compiled(_bits_impl, static_shape(shape), d)(as_key(key))


# ---- uniform and normal --------------------------------------------------------------------------------------------------


def _unit_impl(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return raw(key, shape, dtype, unit)


def _uniform_impl(key: Any, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    u = raw(key, shape, _F32 if dtype == _F16 else dtype, unit)
    low, high = (broadcast_to_shape(tensor(x), shape) for x in (low, high))
    y = e.add(low, e.mul(u, e.sub(high, low)))
    # rounding may reach `high`, or pass it
    y = e.select(e.and_(e.ge(y, high), e.gt(high, low)), low, y)
    return as_dtype(y, dtype)


def uniform(key: Any, shape: Any = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Numbers between minval and maxval, all as likely; never maxval.

    In the unit interval they are multiples of 2**-24 (float32) or 2**-53 (float64). Differentiable in minval and maxval, which
    may be arrays that broadcast to shape.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.uniform(fx.random.key(0), (1000,))
        >>> bool((x >= 0).all() and (x < 1).all())
        True
    """
    d = float_dtype(dtype, "uniform")
    shape = shape_for("uniform", shape, minval, maxval)
    plain = all(type(v) in (int, float) and v == w for v, w in ((minval, 0), (maxval, 1)))
    if plain and d != _F16:
        return compiled(_unit_impl, shape, d)(as_key(key))
    return compiled(_uniform_impl, shape, d)(as_key(key), param(minval, d), param(maxval, d))


def _normal_impl(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return raw(key, shape, dtype, p.normal_of_bits)


def normal(key: Any, shape: Any = (), dtype: Any = float) -> Any:
    """Standard normal numbers, by inversion of random bits: 32 a number in float32, 64 in float64.

    Write loc + scale * normal(...) for others; that is differentiable in both.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.normal(fx.random.key(0), (10000,))
        >>> bool(abs(x.mean()) < 0.05 and abs(x.std() - 1) < 0.05)
        True
    """
    return compiled(_normal_impl, static_shape(shape), float_dtype(dtype, "normal"))(as_key(key))


# ---- integers ------------------------------------------------------------------------------------------------------------


def _randint_impl(key: Any, low: Any, high: Any, shape: tuple[int, ...], wide: bool) -> Any:
    """In int64 or uint64; the number of integers to choose from wraps to 0 where it is the whole range."""
    k0, k1 = words(key, shape)
    low, high = (broadcast_to_shape(tensor(x), shape) for x in (low, high))
    span = e.convert(e.sub(high, low), dtype=_U64 if wide else _U32)
    drawn = p.bounded_draw(k0, k1, counters(shape), span)
    return e.add(low, e.convert(drawn, dtype=low.dtype))


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = np.int64) -> Any:
    """Integers from minval up to, not including, maxval, all exactly as likely.

    Arguments:
        key: a key.
        shape: of the result; minval and maxval broadcast to it.
        minval, maxval: integers; where maxval <= minval is known, an error, else minval.
        dtype: an integer dtype.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.randint(fx.random.key(0), (1000,), 1, 7)
        >>> int(x.min()), int(x.max())
        (1, 6)
    """
    d = np.dtype(dtype)
    low, high = operand(minval), operand(maxval)
    if d.kind not in "iu" or any(np.dtype(getattr(v, "dtype", type(v))).kind not in "iu" for v in (low, high)):
        raise errors.FxTypeError(
            f"fx.random.randint takes and gives integers, got {minval!r}, {maxval!r} and dtype {d}",
            why="Between two floats there is no number of integers to choose from.",
            fix="Pass ints; or use fx.random.uniform for floats.",
        )
    shape = shape_for("randint", shape, low, high)
    known = not isinstance(low, Tracer) and not isinstance(high, Tracer)
    if known and math.prod(shape) and np.any(np.asarray(low) >= np.asarray(high)):
        raise errors.FxValueError(
            f"fx.random.randint: no integers from {minval!r} up to {maxval!r}",
            why="maxval itself is not drawn, so it must be larger than minval.",
            fix="Pass minval < maxval.",
        )
    info = np.iinfo(d)
    if known and (np.any(np.asarray(low) < info.min) or np.any(np.asarray(high) > int(info.max) + 1)):
        raise errors.FxValueError(
            f"fx.random.randint: {minval!r} to {maxval!r} is not within {d}",
            why=f"{d} holds {info.min} to {info.max}.",
            fix="Choose a wider dtype.",
        )
    work = _U64 if d == _U64 else _I64
    low, high = (_wrapped(v, work) for v in (low, high))
    if known:
        with np.errstate(over="ignore"):
            span = np.asarray(high - low).astype(_U64)
        wide = bool(np.any((span > np.uint64(1 << 32)) | (span == 0)))  # 2**32 itself wraps to 0, which stands for it
    else:
        wide = d.itemsize == 8
    return as_dtype(compiled(_randint_impl, shape, wide)(as_key(key), low, high), d)


def _wrapped(x: Any, dtype: np.dtype) -> Any:
    """An integer operand in 64 bits; one past the largest wraps around, as the difference of the two does."""
    if isinstance(x, int):
        return np.array(x & ((1 << 64) - 1), np.uint64).view(dtype)[()]
    return as_dtype(x, dtype)


def _rademacher_impl(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    one = dtype.type(1)
    return raw(key, shape, _F32, lambda n: e.select(e.lt(n, np.uint32(1 << 31)), one, -one))


def rademacher(key: Any, shape: Any = (), dtype: Any = np.int64) -> Any:
    """1 or -1, as likely.

    Example:
        >>> import fxgrad as fx
        >>> sorted({int(x) for x in fx.random.rademacher(fx.random.key(0), (100,))})
        [-1, 1]
    """
    d = np.dtype(dtype)
    if d.kind not in "if":
        raise errors.FxTypeError(
            f"fx.random.rademacher draws 1 and -1, which {d} does not hold",
            why="It needs a sign.",
            fix="Pass a signed integer or floating-point dtype.",
        )
    return compiled(_rademacher_impl, static_shape(shape), d)(as_key(key))
