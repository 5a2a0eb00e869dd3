"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad.nn.common import as_float, constant
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import transcendental as tr
from fxgrad.scipy import special


def relu(x: Any) -> Any:
    """max(x, 0) with slope 0 at 0; NaN stays NaN."""
    x = as_float(x)
    return e.select(e.le(x, constant(x, 0)), constant(x, 0), x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6) with slope 0 at both corners."""
    x = relu(x)
    return e.select(e.ge(x, constant(x, 6)), constant(x, 6), x)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x where positive, else negative_slope*x."""
    x = as_float(x)
    return fnp.where(fnp.greater_equal(x, 0), x, fnp.multiply(negative_slope, x))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x where positive, else alpha*(exp(x) - 1)."""
    x = as_float(x)
    positive = e.gt(x, constant(x, 0))
    return fnp.where(positive, x, fnp.multiply(alpha, tr.expm1(e.select(positive, constant(x, 0), x))))


def selu(x: Any) -> Any:
    """The self-normalising elu of Klambauer et al. (2017)."""
    return fnp.multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def sigmoid(x: Any) -> Any:
    """1/(1 + exp(-x))."""
    return tr.logistic(as_float(x))


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)) without overflow."""
    return special.log_expit(x)


def silu(x: Any) -> Any:
    """x*sigmoid(x), also called swish; -inf gives 0."""
    x = as_float(x)
    low = e.eq(x, constant(x, -math.inf))
    safe = e.select(low, constant(x, 0), x)
    return e.select(low, constant(x, 0), e.mul(safe, tr.logistic(safe)))


swish = silu


def softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    x = as_float(x)
    return special.softplus_of(x)


def soft_sign(x: Any) -> Any:
    """x/(1 + |x|)."""
    x = as_float(x)
    return e.div(x, e.add(e.abs_(x), constant(x, 1)))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return fnp.tanh(x)


def hard_tanh(x: Any) -> Any:
    """x limited to [-1, 1]."""
    return fnp.clip(x, -1, 1)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function; by tanh if `approximate` (the default, as in jax.nn), else by erfc."""
    x = as_float(x)
    half = constant(x, 0.5)
    if not approximate:
        return e.mul(e.mul(half, x), tr.erfc(e.mul(x, constant(x, -math.sqrt(0.5)))))
    cube = e.integer_pow(x, n=3)
    inner = e.mul(constant(x, math.sqrt(2 / math.pi)), e.add(x, e.mul(constant(x, 0.044715), cube)))
    return e.mul(e.mul(half, x), e.add(constant(x, 1), tr.tanh(inner)))


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
