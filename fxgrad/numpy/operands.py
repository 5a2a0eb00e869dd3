"""What functions of linear algebra take: matrices in the last two axes, float32 or float64 or complex; and NumPy's errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, result_type, tensor

__all__ = ["inexact", "linalg_error", "matrices", "square", "together"]


def linalg_error(what: str, why: str, fix: str) -> errors.FxLinAlgError:
    return errors.FxLinAlgError(what, why=why, fix=fix)


def _target(name: str, dtype: np.dtype) -> np.dtype:
    if dtype == np.float16 or dtype.kind not in "biufc":
        raise errors.FxTypeError(
            f"{name}: array type {dtype.name} is unsupported in linalg",
            why="LAPACK computes in float32, float64 and their complex kinds.",
            fix="Convert first: x.astype(np.float32).",
        )
    return dtype if dtype.kind in "fc" else np.dtype(float)


def inexact(name: str, a: Any) -> Any:
    """a as a tensor of a dtype that LAPACK knows; integers become float64."""
    x = tensor(a)
    return as_dtype(x, _target(name, x.dtype))


def together(name: str, *arrays: Any) -> list[Any]:
    """Operands in one dtype that LAPACK knows."""
    xs = [tensor(a) for a in arrays]
    dtype = _target(name, result_type(*xs))
    return [as_dtype(x, dtype) for x in xs]


def matrices(name: str, a: Any) -> Any:
    """a as a stack of matrices."""
    x = inexact(name, a)
    if x.ndim < 2:
        raise linalg_error(
            f"{name}: {x.ndim}-dimensional array given. Array must be at least two-dimensional",
            "The last two axes hold the matrix, axes before them a stack of matrices.",
            "Reshape it: x[:, None] is a column, x[None, :] a row.",
        )
    return x


def square(name: str, a: Any) -> Any:
    """a, whose last two axes must have one length."""
    if a.ndim < 2:
        matrices(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise linalg_error(
            f"{name}: Last 2 dimensions of the array must be square, got shape {a.shape}",
            "The operation is defined for square matrices.",
            "Use np.linalg.lstsq, pinv, qr or svd for matrices of other shapes.",
        )
    return a
