"""The numbers 0, 1, 2, ... of the elements of an array, in uint32: the counters of their random bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import shape as s

__all__ = ["counters", "elementwise_draw"]

Shape = tuple[int, ...]
_LONG = 1 << 20  # elements along an axis that are counted by one array
_WIDEST = 1 << 15


@lru_cache(maxsize=64)
def _multiples(n: int, step: int) -> np.ndarray:
    """0, step, 2*step, ..., which a program captures: made once, read-only."""
    out = np.arange(n, dtype=np.uint32) * np.uint32(step)
    out.flags.writeable = False
    return out


def _width(n: int) -> int:
    """The largest divisor of n that is no wider than a row should be; a fixed width if all are small."""
    best = max((d for d in range(1, _WIDEST + 1) if n % d == 0), default=1)
    return best if best >= 128 else _WIDEST


def counters(shape: Shape) -> Any:
    """The number of each element in C order: a sum along the axes, made where it is used."""
    n = math.prod(shape)
    if n > 1 << 32:
        raise errors.FxValueError(
            f"one draw has at most 2**32 elements, shape {shape} has {n}",
            why="Elements are counted in 32 bits.",
            fix="Split the key and draw in parts: [f(k) for k in fx.random.split(key, parts)].",
        )
    work, finish = _plan(shape)
    return finish(_count(work))


def _count(shape: Shape) -> Any:
    if not shape:
        return np.uint32(0)
    if math.prod(shape) <= 4096:
        return np.reshape(_multiples(math.prod(shape), 1), shape)
    total, step = None, math.prod(shape)
    for axis, n in enumerate(shape):
        step //= n
        if n > 1:
            along = s.broadcast(_multiples(n, step), shape=shape, dims=(axis,))
            total = along if total is None else e.add(total, along)
    return total


def _plan(shape: Shape) -> tuple[Shape, Callable[[Any], Any]]:
    """(shape to count in, what makes it the shape asked for): long axes are cut into rows."""
    if all(n <= _LONG for n in shape):
        return shape, lambda x: x
    n = math.prod(shape)
    width = _width(n)
    rows = -(-n // width)

    def finish(x: Any) -> Any:
        flat = s.reshape(x, shape=(rows * width,))
        if rows * width > n:
            flat = s.slice_(flat, start=(0,), stop=(n,), step=(1,))
        return flat if shape == (n,) else s.reshape(flat, shape=shape)

    return (rows, width), finish


def elementwise_draw(draw: Callable[[Any], Any], shape: Shape) -> Any:
    """`draw` of the counters, in an array of `shape`; what it computes is one kernel with the counting."""
    if math.prod(shape) > 1 << 32:
        return draw(counters(shape))
    work, finish = _plan(shape)
    return finish(draw(_count(work)))
