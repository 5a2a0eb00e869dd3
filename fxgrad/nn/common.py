"""What the functions of this package share: floating operands and constants of their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad.numpy.core import as_dtype, operand


def as_float(x: Any) -> Any:
    """An operand of a floating dtype: others become float64."""
    x = operand(x)
    dtype = getattr(x, "dtype", None)
    return x if dtype is not None and dtype.kind == "f" else as_dtype(x, np.dtype(float))


def constant(x: Any, value: float) -> Any:
    """A scalar of the dtype of x."""
    return x.dtype.type(value)


def wide(x: Any) -> Any:
    """float16 as float32, to compute in."""
    return as_dtype(x, np.dtype(np.float32)) if x.dtype == np.float16 else x
