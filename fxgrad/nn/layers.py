"""Layers as functions of arrays and parameters."""

from __future__ import annotations

from typing import Any

import fxgrad.numpy as fnp
from fxgrad.numpy.core import tensor


def dense(x: Any, w: Any, b: Any = None) -> Any:
    """x @ w + b: x of shape (..., n), w (n, m), b (m,)."""
    y = fnp.matmul(x, w)
    return y if b is None else fnp.add(y, b)


def one_hot(x: Any, num_classes: int, *, dtype: Any = float, axis: int = -1) -> Any:
    """Rows with a 1 at the place that `x` numbers (all zeros if out of range), the new axis at `axis`."""
    x = tensor(x)
    axis = axis % (x.ndim + 1)
    lengths = tuple(num_classes if i == axis else 1 for i in range(x.ndim + 1))
    classes = fnp.reshape(fnp.arange(num_classes, dtype=x.dtype), lengths)
    return fnp.astype(fnp.equal(fnp.expand_dims(x, axis), classes), dtype)
