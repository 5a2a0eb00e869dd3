"""Keys: two uint32 words from which every draw follows. `split` and `fold_in` make new ones.

The counter of a block of random bits is (what it is for, which element). Draws, `split` and `fold_in` have first words
of their own, so that keys made from a key are no part of the stream drawn from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, operand, static_shape
from fxgrad.numpy.manipulation import stack
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import shape as s
from fxgrad.primitives.random import threefry2x32
from fxgrad.random.compiled import compiled
from fxgrad.random.counters import counters
from fxgrad.trace.tracer import Tracer

__all__ = ["PRNGKey", "as_key", "fold_in", "key", "key_data", "split", "words", "wrap_key_data"]

_U32, _U64, _I64 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
_SPLIT, _FOLD = np.uint32(1 << 30), np.uint32(1 << 31)  # beyond every attempt of a draw (kernels/sampling.py)


def as_key(x: Any) -> Any:
    """x, if it is a key; else the error that says what a key is."""
    if isinstance(x, Tracer) or type(x) is np.ndarray:
        if x.dtype == _U32 and x.shape == (2,):
            return x
        got = f"{x.dtype}{list(x.shape)}"
    else:
        got = type(x).__name__
    kind = errors.FxValueError if getattr(x, "dtype", None) == _U32 else errors.FxTypeError
    batch = kind is errors.FxValueError and len(x.shape) > 1 and x.shape[-1] == 2
    raise kind(
        f"a key is a uint32 array of shape (2,), got {got}",
        why="Random numbers are a function of a key." + (" This is a batch of keys." if batch else ""),
        fix="Map over its leading axes: fx.vmap(f)(keys)." if batch else "Make one: key = fx.random.key(seed).",
    )


def words(key: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The two words of a key, each for all elements of an array."""

    def word(i: int) -> Any:
        x = s.reshape(s.slice_(key, start=(i,), stop=(i + 1,), step=(1,)), shape=())
        return s.broadcast(x, shape=shape, dims=()) if shape else x

    return word(0), word(1)


def _seed_error(seed: Any, got: str) -> errors.FxTypeError:
    return errors.FxTypeError(
        f"a seed is an integer, got {got}",
        why="Seeds that differ must give different keys, and rounding would merge some.",
        fix="Pass an int: fx.random.key(0).",
    )


def key(seed: Any) -> Any:
    """A key from a seed.

    Arguments:
        seed: an int (64 bits of it count, negative ones modulo 2**64), or an integer scalar, which may be traced.

    Returns:
        uint32 array of shape (2,): the upper and the lower half of the seed.

    Raises:
        TypeError: seed is no integer. ValueError: seed is no scalar. OverflowError: seed does not fit into 64 bits.

    Example:
        >>> import fxgrad as fx
        >>> fx.random.key(7)
        array([0, 7], dtype=uint32)
    """
    if isinstance(seed, (bool, np.bool_)) or not (isinstance(seed, (int, np.integer, np.ndarray, Tracer))):
        raise _seed_error(seed, type(seed).__name__)
    if isinstance(seed, (int, np.integer)):
        if not -(1 << 63) <= int(seed) < 1 << 64:
            raise errors.too_large("the seed", int(seed))
        n = int(seed) & ((1 << 64) - 1)
        return np.array([n >> 32, n & 0xFFFFFFFF], _U32)
    if seed.dtype.kind not in "iu":
        raise _seed_error(seed, f"an array of {seed.dtype}")
    if seed.shape:
        raise errors.FxValueError(
            f"a seed is a scalar, got shape {seed.shape}",
            why="One seed makes one key.",
            fix="Map over the seeds, fx.vmap(fx.random.key)(seeds), or use fx.random.split(key, n).",
        )
    if not isinstance(seed, Tracer):
        return key(seed[()])
    wide = e.convert(e.convert(as_dtype(seed, seed.dtype), dtype=_I64 if seed.dtype.kind == "i" else _U64), dtype=_U64)
    high = e.convert(e.floordiv(wide, np.uint64(1 << 32)), dtype=_U32)
    return stack([high, e.convert(wide, dtype=_U32)])


PRNGKey = key


def key_data(key: Any) -> Any:
    """The words of a key: keys are plain arrays here, so the key itself.

    Example:
        >>> import fxgrad as fx
        >>> fx.random.key_data(fx.random.key(3))
        array([0, 3], dtype=uint32)
    """
    return as_key(key)


def wrap_key_data(data: Any) -> Any:
    """A key from its words, the inverse of `key_data`.

    Example:
        >>> import fxgrad as fx, numpy as np
        >>> fx.random.wrap_key_data(np.array([0, 3], np.uint32))
        array([0, 3], dtype=uint32)
    """
    return as_key(data)


def _pair(key: Any, c0: Any, c1: Any) -> Any:
    """The two words of blocks along a new last axis."""
    k0, k1 = words(key, np.shape(c1))
    return stack([threefry2x32(k0, k1, c0, c1, take=take) for take in ("first", "second")], axis=-1)


def _split_impl(key: Any, shape: tuple[int, ...]) -> Any:
    return _pair(key, _SPLIT, counters(shape))


def _fold_impl(key: Any, data: Any) -> Any:
    return _pair(key, _FOLD, data)


def split(key: Any, num: Any = 2) -> Any:
    """New keys, independent of each other and of everything drawn from the old one.

    Arguments:
        key: a key.
        num: how many, an int; or a tuple, the shape of an array of keys.

    Returns:
        uint32 array of shape (num, 2), or (*num, 2).

    Example:
        >>> import fxgrad as fx
        >>> key = fx.random.key(0)
        >>> key, sub = fx.random.split(key)
        >>> key.dtype, sub.shape
        (dtype('uint32'), (2,))
    """
    return compiled(_split_impl, static_shape(num))(as_key(key))


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and a number, a step counter say.

    Arguments:
        key: a key.
        data: an integer scalar, which may be traced; its low 32 bits count.

    Example:
        >>> import fxgrad as fx
        >>> key = fx.random.key(0)
        >>> bool((fx.random.fold_in(key, 1) == fx.random.fold_in(key, 2)).all())
        False
    """
    data = operand(data)
    dtype = np.dtype(type(data)) if isinstance(data, (bool, int, float, complex)) else data.dtype
    if dtype.kind not in "iu" or np.shape(data):
        raise errors.FxTypeError(
            f"fold_in takes an integer scalar, got {dtype}{list(np.shape(data))}",
            why="Numbers that differ must give different keys.",
            fix="Pass an int: fx.random.fold_in(key, step).",
        )
    if isinstance(data, int):
        data = np.uint32(data & 0xFFFFFFFF)
    return compiled(_fold_impl)(as_key(key), e.convert(data, dtype=_U32))
