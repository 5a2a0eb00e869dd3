"""Normalisation over features, groups and batches."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad.nn.common import as_float
from fxgrad.numpy.core import as_dtype, result_type
from fxgrad.primitives import transcendental as tr


def _wide(x: Any) -> Any:
    """float16 as float32, to compute in."""
    return as_dtype(x, np.dtype(np.float32)) if x.dtype == np.float16 else x


def _affine(x: Any, y: Any, scale: Any, bias: Any = None) -> Any:
    """y times scale plus bias, those given, rounded once to the dtype that x has with them."""
    y = y if scale is None else fnp.multiply(y, scale)
    y = y if bias is None else fnp.add(y, bias)
    return as_dtype(y, result_type(*[v for v in (x, scale, bias) if v is not None]))


def standardize(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """x minus its mean over axes, over the root of its variance plus epsilon; float16 is computed in float32."""
    x = as_float(x)
    return as_dtype(_standardized(_wide(x), axis, epsilon), x.dtype)


def _standardized(x: Any, axis: Any, epsilon: float) -> Any:
    centered = fnp.subtract(x, fnp.mean(x, axis, keepdims=True))
    variance = fnp.mean(fnp.square(centered), axis, keepdims=True)
    return fnp.multiply(centered, tr.rsqrt(fnp.add(variance, epsilon)))


def layer_norm(x: Any, scale: Any = None, bias: Any = None, eps: float = 1e-5, axis: Any = -1) -> Any:
    """Layer normalisation over `axis` with an optional scale and bias of that axis's length; eps as PyTorch's default."""
    x = as_float(x)
    return _affine(x, _standardized(_wide(x), axis, eps), scale, bias)


def rms_norm(x: Any, scale: Any = None, eps: float = 1e-6, axis: Any = -1) -> Any:
    """x over the root of its mean square plus eps, times an optional scale."""
    x = as_float(x)
    wide = _wide(x)
    return _affine(x, fnp.multiply(wide, tr.rsqrt(fnp.add(fnp.mean(fnp.square(wide), axis, keepdims=True), eps))), scale)
