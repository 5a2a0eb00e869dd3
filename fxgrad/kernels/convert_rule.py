"""Float to integer conversion, spelled out: C leaves its out-of-range cases undefined. NumPy only, no compiler needed."""

from __future__ import annotations

import numpy as np

__all__ = ["INT64_MIN", "float_to_int"]

INT64_MIN = -(2**63)


def float_to_int(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Truncate; NaN and what does not fit in int64 become the smallest int64, which then wraps to a narrower type.

    For uint64 the range from 2**63 up to 2**64 is taken too.
    """
    if dtype == np.uint64:
        high = x >= 2.0**63
        low = float_to_int(np.where(high, x - x.dtype.type(2.0**63), x), np.dtype(np.int64))
        return np.where(high & (x < 2.0**64), low ^ INT64_MIN, low).view(np.uint64)
    inside = (x >= -(2.0**63)) & (x < 2.0**63)
    wide = np.where(inside, np.where(inside, x, 0).astype(np.int64), np.int64(INT64_MIN))
    return wide.astype(dtype)
