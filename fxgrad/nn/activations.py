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

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "leaky_relu",
    "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
    "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
]  # fmt: skip

# ---- with corners ------------------------------------------------------------------------------------------------------


def identity(x: Any) -> Any:
    """x, as an array.

    Example:
        >>> import fxgrad as fx
        >>> fx.nn.identity([1.0, 2.0])
        array([1., 2.])
    """
    return fnp.asarray(x)


def relu(x: Any) -> Any:
    """max(x, 0), with slope 0 at 0; NaN stays NaN.

    Arguments:
        x: any shape; integers become float64, as in every function here.

    Returns:
        The shape of x, its floating dtype.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.relu(np.array([-1.0, 2.0]))
        array([0., 2.])
    """
    x = as_float(x)
    return e.select(e.le(x, constant(x, 0)), constant(x, 0), x)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6), with slope 0 at both corners (Krizhevsky, 2010).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.relu6(np.array([-1.0, 2.0, 8.0]))
        array([0., 2., 6.])
    """
    x = relu(x)
    return e.select(e.ge(x, constant(x, 6)), constant(x, 6), x)


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x where positive or zero, else negative_slope * x (Maas, Hannun and Ng, 2013).

    Arguments:
        x: any shape.
        negative_slope: a number, or an array that broadcasts with x: then it is PyTorch's `prelu`.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.leaky_relu(np.array([-1.0, 2.0]))
        array([-0.01,  2.  ])
    """
    x = as_float(x)
    return fnp.where(fnp.greater_equal(x, 0), x, fnp.multiply(negative_slope, x))


def hard_tanh(x: Any) -> Any:
    """x limited to [-1, 1], with slope 1 on all of it.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.hard_tanh(np.array([-3.0, 0.5]))
        array([-1. ,  0.5])
    """
    return fnp.clip(x, -1, 1)


def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.hard_sigmoid(np.array([-4.0, 0.0, 4.0]))
        array([0. , 0.5, 1. ])
    """
    x = as_float(x)
    return e.div(relu6(e.add(x, constant(x, 3))), constant(x, 6))


def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x), also called hard_swish (Howard et al., 2019); 0 below -3, at -inf too.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.hard_silu(np.array([-4.0, 3.0]))
        array([0., 3.])
    """
    x = as_float(x)
    low = e.le(x, constant(x, -3))
    safe = e.select(low, constant(x, 0), x)
    return e.select(low, constant(x, 0), e.mul(safe, hard_sigmoid(safe)))


hard_swish = hard_silu


def sparse_plus(x: Any) -> Any:
    """0 below -1, x above 1, and (x + 1)**2 / 4 between: the counterpart of softplus (Gerosa, 2023).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.sparse_plus(np.array([-2.0, 0.0, 2.0]))
        array([0.  , 0.25, 2.  ])
    """
    x = as_float(x)
    one = constant(x, 1)
    low, high = e.le(x, constant(x, -1)), e.ge(x, one)
    middle = e.add(e.select(e.or_(low, high), constant(x, 0), x), one)
    curve = e.mul(constant(x, 0.25), e.mul(middle, middle))
    return e.select(low, constant(x, 0), e.select(high, x, curve))


def sparse_sigmoid(x: Any) -> Any:
    """The derivative of sparse_plus: (x + 1) / 2 limited to [0, 1], with slope 0 at both corners.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.sparse_sigmoid(np.array([-2.0, 0.0, 2.0]))
        array([0. , 0.5, 1. ])
    """
    x = as_float(x)
    one, zero = constant(x, 1), constant(x, 0)
    line = e.mul(constant(x, 0.5), e.add(x, one))
    return e.select(e.le(x, constant(x, -1)), zero, e.select(e.ge(x, one), one, line))


# ---- smooth ------------------------------------------------------------------------------------------------------------


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x where positive, else alpha * (exp(x) - 1) (Clevert, Unterthiner and Hochreiter, 2016).

    Arguments:
        x: any shape.
        alpha: a number, or an array that broadcasts with x.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.elu(np.array([-np.inf, 2.0]))
        array([-1.,  2.])
    """
    x = as_float(x)
    positive = e.gt(x, constant(x, 0))
    return fnp.where(positive, x, fnp.multiply(alpha, tr.expm1(e.select(positive, constant(x, 0), x))))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x where positive, else alpha * (exp(x / alpha) - 1): an elu with slope 1 at 0 for every alpha (Barron, 2017).

    Arguments:
        x: any shape.
        alpha: a number other than 0, or an array that broadcasts with x.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.celu(np.array([-np.inf, 2.0]), alpha=2.0)
        array([-2.,  2.])
    """
    x = as_float(x)
    positive = e.gt(x, constant(x, 0))
    below = fnp.expm1(fnp.divide(e.select(positive, constant(x, 0), x), alpha))
    return fnp.where(positive, x, fnp.multiply(alpha, below))


def selu(x: Any) -> Any:
    """The self-normalising elu: 1.0507... * elu(x, 1.6732...) (Klambauer et al., 2017).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.selu(np.array([0.0, 1.0])).round(4)
        array([0.    , 1.0507])
    """
    return fnp.multiply(1.0507009873554804934193349852946, elu(x, 1.6732632423543772848170429916717))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.sigmoid(np.array([-np.inf, 0.0]))
        array([0. , 0.5])
    """
    return tr.logistic(as_float(x))


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), without overflow.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.log_sigmoid(np.array([-1000.0, 1000.0]))
        array([-1000.,    -0.])
    """
    return special.log_expit(x)


def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish (Elfwing, Uchibe and Doya, 2018); -inf gives 0.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.silu(np.array([-np.inf, 0.0, 1.0])).round(4)
        array([0.    , 0.    , 0.7311])
    """
    x = as_float(x)
    low = e.eq(x, constant(x, -math.inf))
    safe = e.select(low, constant(x, 0), x)
    return e.select(low, constant(x, 0), e.mul(safe, tr.logistic(safe)))


swish = silu


def mish(x: Any) -> Any:
    """x * tanh(softplus(x)) (Misra, 2020); -inf gives 0.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.mish(np.array([-np.inf, 0.0, 1.0])).round(4)
        array([0.    , 0.    , 0.8651])
    """
    x = as_float(x)
    low = e.eq(x, constant(x, -math.inf))
    safe = e.select(low, constant(x, 0), x)
    return e.select(low, constant(x, 0), e.mul(safe, tr.tanh(special.softplus_of(safe))))


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.softplus(np.array([0.0, 1000.0])).round(4)
        array([6.931e-01, 1.000e+03])
    """
    x = as_float(x)
    return special.softplus_of(x)


def squareplus(x: Any, b: Any = 4.0) -> Any:
    """(x + sqrt(x**2 + b)) / 2: a softplus of roots (Barron, 2021).

    Arguments:
        x: any shape.
        b: a positive number, how round the corner is, or an array that broadcasts with x.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.squareplus(np.array([0.0, 1.5]))
        array([1., 2.])
    """
    x = as_float(x)
    return fnp.divide(fnp.add(x, fnp.sqrt(fnp.add(fnp.square(x), b))), 2)


def soft_sign(x: Any) -> Any:
    """x / (1 + |x|).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.soft_sign(np.array([-1.0, 3.0]))
        array([-0.5 ,  0.75])
    """
    x = as_float(x)
    return e.div(x, e.add(e.abs_(x), constant(x, 1)))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.tanh(np.array([0.0, np.inf]))
        array([0., 1.])
    """
    return fnp.tanh(x)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function (Hendrycks and Gimpel, 2016).

    Arguments:
        x: any shape.
        approximate: by tanh (the default, as in jax.nn; `approximate="tanh"` of PyTorch), else exactly, by erfc.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.gelu(np.array([0.0, 1.0])).round(4), fx.nn.gelu(np.array([1.0]), approximate=False).round(4)
        (array([0.    , 0.8412]), array([0.8413]))
    """
    x = as_float(x)
    half = constant(x, 0.5)
    if not approximate:
        return e.mul(e.mul(half, x), tr.erfc(e.mul(x, constant(x, -math.sqrt(0.5)))))
    cube = e.integer_pow(x, n=3)
    inner = e.mul(constant(x, math.sqrt(2 / math.pi)), e.add(x, e.mul(constant(x, 0.044715), cube)))
    return e.mul(e.mul(half, x), e.add(constant(x, 1), tr.tanh(inner)))


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)) for x > 0, without loss of digits at either end (Mächler, 2012); -inf at 0, NaN below.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.log1mexp(np.array([1e-20, 1.0])).round(4)
        array([-46.0517,  -0.4587])
    """
    x = as_float(x)
    far = e.gt(x, constant(x, math.log(2)))
    near = tr.log(e.neg(tr.expm1(e.neg(e.select(far, constant(x, 1), x)))))
    return e.select(far, tr.log1p(e.neg(tr.exp(e.neg(x)))), near)


# ---- along axes --------------------------------------------------------------------------------------------------------


def glu(x: Any, axis: int = -1) -> Any:
    """The first half times the sigmoid of the second (Dauphin et al., 2017).

    Arguments:
        x: any shape with at least one axis.
        axis: an axis of even length, which is halved.

    Raises:
        ValueError: the axis has an odd length.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.glu(np.array([3.0, 4.0, 0.0, np.inf]))
        array([1.5, 4. ])
    """
    a, b = fnp.split(x, 2, axis)
    return fnp.multiply(a, sigmoid(b))


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along axes, without overflow.

    Arguments:
        x: any shape; entries of -inf give 0 and get no gradient, rows of nothing else give NaN.
        axis: an int or a tuple of them.
        where: a mask that broadcasts with x: entries where it is false are 0 in the result, as if they were not there.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.softmax(np.array([0.0, 0.0, 9.0]), where=np.array([True, True, False]))
        array([0.5, 0.5, 0. ])
    """
    return special.softmax(_only(x, where), axis)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """log(softmax(x)) along axes.

    Arguments:
        x, axis, where: as for softmax; entries where the mask is false are -inf in the result.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.log_softmax(np.array([1000.0, 1000.0])).round(4)
        array([-0.6931, -0.6931])
    """
    return special.log_softmax(_only(x, where), axis)


def _only(x: Any, where: Any) -> Any:
    return x if where is None else fnp.where(where, x, -np.inf)


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """log(sum(b * exp(a))) along axes, without overflow; as fxgrad.scipy.special.logsumexp.

    Arguments:
        a: any shape.
        axis: an int, a tuple of them, or None for all.
        b: weights that broadcast with a.
        keepdims: whether the axes stay, with length 1.
        return_sign: whether to return (log of the absolute value, sign), for weights of either sign.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.logsumexp(np.array([1000.0, 1000.0])).round(4)
        np.float64(1000.6931)
    """
    return special.logsumexp(a, axis, b, keepdims, return_sign)


def logmeanexp(a: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """log(mean(exp(a))) along axes, without overflow.

    Arguments:
        a: any shape.
        axis: an int, a tuple of them, or None for all.
        where: a mask that broadcasts with a: entries where it is false do not count.
        keepdims: whether the axes stay, with length 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.logmeanexp(np.array([1000.0, 1000.0]))
        np.float64(1000.0)
    """
    a = as_float(a)
    counted = True if where is None else where
    count = fnp.sum(fnp.broadcast_to(fnp.where(counted, constant(a, 1), constant(a, 0)), a.shape), axis, keepdims=keepdims)
    return fnp.subtract(special.logsumexp(_only(a, where), axis, None, keepdims), fnp.log(count))
