"""Activations, normalisation and layers as plain functions of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad.numpy.core import as_dtype, operand, result_type, tensor
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import transcendental as tr
from fxgrad.scipy import special

__all__ = [
    "dense", "elu", "gelu", "glu", "hard_tanh", "layer_norm", "leaky_relu", "log_sigmoid", "log_softmax", "logsumexp",
    "one_hot", "relu", "relu6", "rms_norm", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "standardize",
    "swish", "tanh",
]  # fmt: skip

# ---- activations -------------------------------------------------------------------------------------------------------


def _float(x: Any) -> Any:
    x = operand(x)
    dtype = getattr(x, "dtype", None)
    return x if dtype is not None and dtype.kind == "f" else as_dtype(x, np.dtype(float))


def _c(x: Any, value: float) -> Any:
    return x.dtype.type(value)


def relu(x: Any) -> Any:
    """max(x, 0) with slope 0 at 0; NaN stays NaN."""
    x = _float(x)
    return e.select(e.le(x, _c(x, 0)), _c(x, 0), x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6) with slope 0 at both corners."""
    x = relu(x)
    return e.select(e.ge(x, _c(x, 6)), _c(x, 6), x)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x where positive, else negative_slope*x."""
    x = _float(x)
    return fnp.where(fnp.greater_equal(x, 0), x, fnp.multiply(negative_slope, x))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x where positive, else alpha*(exp(x) - 1)."""
    x = _float(x)
    positive = e.gt(x, _c(x, 0))
    return fnp.where(positive, x, fnp.multiply(alpha, tr.expm1(e.select(positive, _c(x, 0), x))))


def selu(x: Any) -> Any:
    """The self-normalising elu of Klambauer et al. (2017)."""
    return fnp.multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def sigmoid(x: Any) -> Any:
    """1/(1 + exp(-x))."""
    return tr.logistic(_float(x))


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)) without overflow."""
    return special.log_expit(x)


def silu(x: Any) -> Any:
    """x*sigmoid(x), also called swish; -inf gives 0."""
    x = _float(x)
    low = e.eq(x, _c(x, -math.inf))
    safe = e.select(low, _c(x, 0), x)
    return e.select(low, _c(x, 0), e.mul(safe, tr.logistic(safe)))


swish = silu


def softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    x = _float(x)
    return special.softplus_of(x)


def soft_sign(x: Any) -> Any:
    """x/(1 + |x|)."""
    x = _float(x)
    return e.div(x, e.add(e.abs_(x), _c(x, 1)))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return fnp.tanh(x)


def hard_tanh(x: Any) -> Any:
    """x limited to [-1, 1]."""
    return fnp.clip(x, -1, 1)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function; by tanh if `approximate` (the default, as in jax.nn), else by erfc."""
    x = _float(x)
    half = _c(x, 0.5)
    if not approximate:
        return e.mul(e.mul(half, x), tr.erfc(e.mul(x, _c(x, -math.sqrt(0.5)))))
    cube = e.integer_pow(x, n=3)
    inner = e.mul(_c(x, math.sqrt(2 / math.pi)), e.add(x, e.mul(_c(x, 0.044715), cube)))
    return e.mul(e.mul(half, x), e.add(_c(x, 1), tr.tanh(inner)))


def glu(x: Any, axis: int = -1) -> Any:
    """The first half times the sigmoid of the second, along an axis of even length."""
    a, b = fnp.split(x, 2, axis)
    return fnp.multiply(a, sigmoid(b))


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x)/sum(exp(x)) along axes; entries where the mask `where` is false are 0."""
    return special.softmax(x if where is None else fnp.where(where, x, -np.inf), axis)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """log(softmax(x)) along axes; entries where the mask `where` is false are -inf."""
    return special.log_softmax(x if where is None else fnp.where(where, x, -np.inf), axis)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """log(sum(b*exp(a))) without overflow; see fxgrad.scipy.special.logsumexp."""
    return special.logsumexp(a, axis, b, keepdims, return_sign)


def one_hot(x: Any, num_classes: int, *, dtype: Any = float, axis: int = -1) -> Any:
    """Rows with a 1 at the place that `x` numbers (all zeros if out of range), the new axis at `axis`."""
    x = tensor(x)
    axis = axis % (x.ndim + 1)
    lengths = tuple(num_classes if i == axis else 1 for i in range(x.ndim + 1))
    classes = fnp.reshape(fnp.arange(num_classes, dtype=x.dtype), lengths)
    return fnp.astype(fnp.equal(fnp.expand_dims(x, axis), classes), dtype)


# ---- normalisation and layers ----------------------------------------------------------------------------------------------


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
    x = _float(x)
    return as_dtype(_standardized(_wide(x), axis, epsilon), x.dtype)


def _standardized(x: Any, axis: Any, epsilon: float) -> Any:
    centered = fnp.subtract(x, fnp.mean(x, axis, keepdims=True))
    variance = fnp.mean(fnp.square(centered), axis, keepdims=True)
    return fnp.multiply(centered, tr.rsqrt(fnp.add(variance, epsilon)))


def layer_norm(x: Any, scale: Any = None, bias: Any = None, eps: float = 1e-5, axis: Any = -1) -> Any:
    """Layer normalisation over `axis` with an optional scale and bias of that axis's length; eps as PyTorch's default."""
    x = _float(x)
    return _affine(x, _standardized(_wide(x), axis, eps), scale, bias)


def rms_norm(x: Any, scale: Any = None, eps: float = 1e-6, axis: Any = -1) -> Any:
    """x over the root of its mean square plus eps, times an optional scale."""
    x = _float(x)
    wide = _wide(x)
    return _affine(x, fnp.multiply(wide, tr.rsqrt(fnp.add(fnp.mean(fnp.square(wide), axis, keepdims=True), eps))), scale)


def dense(x: Any, w: Any, b: Any = None) -> Any:
    """x @ w + b: x of shape (..., n), w (n, m), b (m,)."""
    y = fnp.matmul(x, w)
    return y if b is None else fnp.add(y, b)
