"""Equality of bits: what the library promises between its modes."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["assert_same_bits", "same_bits"]


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays of one dtype hold the same bits, any NaN counting as any other.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.testing.same_bits(np.array([0.0, np.nan, 1.0]), np.array([-0.0, np.nan, 1.0]))
        array([False,  True,  True])
    """
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) & same_bits(a.imag, b.imag)
    if a.dtype.kind != "f":
        return a == b
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return equal | (np.isnan(a) & np.isnan(b))


def assert_same_bits(a: Any, b: Any, what: str = "results") -> None:
    """Fail unless dtype, shape and bits are equal (any NaN equals any NaN); sequences are compared item by item.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.testing.assert_same_bits(fx.jit(np.sin)(1.0), fx.numpy.sin(1.0))
        >>> fx.testing.assert_same_bits(np.zeros(2), np.array([0.0, -0.0]))
        Traceback (most recent call last):
            ...
        AssertionError: results differ at 1 of 2 places, first at (1,): np.float64(0.0) against np.float64(-0.0)
    """
    if isinstance(a, (list, tuple)):
        assert isinstance(b, (list, tuple)) and len(a) == len(b), f"{what}: {len(a)} against {len(b)} items"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same_bits(x, y, f"{what}[{i}]")
        return
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{list(a.shape)} against {b.dtype}{list(b.shape)}"
    same = same_bits(a, b)
    if not np.all(same):
        where = tuple(int(i) for i in np.argwhere(~same)[0])
        first = f"first at {where}: {a[where]!r} against {b[where]!r}"
        raise AssertionError(f"{what} differ at {np.sum(~same)} of {same.size} places, {first}")
