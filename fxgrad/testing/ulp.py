"""Errors in units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np


def ulp_difference(result: Any, exact: Any) -> np.ndarray:
    """|result - exact| in units of the spacing, in the dtype of `result`, at the exact value rounded to that dtype.

    `exact` is more precise than `result`: float64 for float32 results, a pair (hi, lo) of float64 with value hi + lo for
    float64 ones. Where both are NaN, or an infinity where the exact value is or rounds to one, the difference is 0. An
    infinity in place of a finite value counts as the first power of two that overflows; every other disagreement about
    NaN or infinity is inf. Subnormals count in their own (constant) spacing.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.testing.ulp_difference(np.float32(0.1), 0.1)
        array(0.2)
    """
    result = np.asarray(result)
    info = np.finfo(result.dtype)
    hi, lo = exact if isinstance(exact, tuple) else (exact, 0.0)
    hi, lo = np.broadcast_arrays(np.asarray(hi, np.float64), np.asarray(lo, np.float64))
    with np.errstate(all="ignore"):
        rounded = hi.astype(result.dtype)
        limit = 2.0 ** (info.maxexp - 1)  # half the first power of two that overflows
        finite = np.isfinite(hi)
        size = np.abs(np.where(np.isfinite(rounded) & finite, rounded, info.max)).astype(np.float64)
        # The spacing from the exponent: frexp gives size in [1/2, 1) * 2**e; zero and subnormals share the smallest spacing.
        exponent = np.frexp(np.maximum(size, float(info.tiny)))[1] - info.nmant - 1
        # Halves keep the value that stands for infinity representable.
        half = np.where(np.isinf(result), np.copysign(limit, result), result.astype(np.float64) / 2)
        tiny = np.abs(hi) < 2.0**-900  # where halving would round
        apart = np.where(tiny, (result.astype(np.float64) - hi) - lo, ((half - hi / 2) - lo / 2) * 2)
        error = np.abs(np.ldexp(apart, -exponent))
        agree = (np.isnan(result) & np.isnan(hi)) | (np.isinf(rounded) & (result == rounded))
        wild = np.isnan(result) | ~finite
    return np.where(agree, 0.0, np.where(wild, np.inf, error))
