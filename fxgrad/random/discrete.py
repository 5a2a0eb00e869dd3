"""Draws from finite sets and counts: Bernoulli, categorical, permutations, choices, Poisson and binomial."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.numpy.core import (
    as_dtype,
    broadcast_to_shape,
    canonical_axis,
    operand,
    static_int,
    static_shape,
    tensor,
)
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import random as p
from fxgrad.random.compiled import compiled
from fxgrad.random.continuous import gumbel
from fxgrad.random.counters import counters
from fxgrad.random.draws import bits, param, randint, raw, shape_for, uniform, unit
from fxgrad.random.keys import as_key, words
from fxgrad.trace.tracer import Tracer

__all__ = ["bernoulli", "binomial", "categorical", "choice", "permutation", "poisson"]

_F32, _F64, _I64 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
Shape = tuple[int, ...]


def _known(*xs: Any) -> bool:
    return not any(isinstance(x, Tracer) for x in xs)


def _float_of(x: Any) -> np.dtype:
    """The dtype to draw in for a parameter."""
    return _F32 if getattr(x, "dtype", _F64) == _F32 else _F64


def _probabilities(name: str, p_: Any) -> None:
    """Error for probabilities outside 0 to 1, where they are known."""
    if _known(p_) and not np.all((np.asarray(p_) >= 0) & (np.asarray(p_) <= 1)):
        raise errors.FxValueError(
            f"fx.random.{name}: a probability is not between 0 and 1",
            why="NaN counts as outside too.",
            fix="Pass np.clip(p, 0, 1), or fxgrad.scipy.special.expit(logits).",
        )


# ---- Bernoulli, categorical ------------------------------------------------------------------------------------------------


def _bernoulli_impl(key: Any, p_: Any, shape: Shape) -> Any:
    return e.lt(raw(key, shape, p_.dtype, unit), broadcast_to_shape(tensor(p_), shape))


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """True with probability p.

    Arguments:
        key: a key.
        p: probabilities.
        shape: of the result; by default that of p.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.bernoulli(fx.random.key(0), 0.3, (4000,))
        >>> bool(abs(x.mean() - 0.3) < 0.03)
        True
    """
    p = operand(p)
    _probabilities("bernoulli", p)
    p = as_dtype(p, _float_of(p))
    return compiled(_bernoulli_impl, shape_for("bernoulli", shape, p))(as_key(key), p)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None) -> Any:
    """Indices drawn with probabilities softmax(logits), by the Gumbel-max method.

    Arguments:
        key: a key.
        logits: unnormalised logarithms of the probabilities, -inf for none.
        axis: of logits, that is drawn from.
        shape: of the result: it ends in the shape of logits without `axis`, which is the default.

    Returns:
        int64 array.

    Example:
        >>> import fxgrad as fx, numpy as np
        >>> x = fx.random.categorical(fx.random.key(0), np.log(np.array([0.2, 0.8])), shape=(4000,))
        >>> bool(abs(x.mean() - 0.8) < 0.03)
        True
    """
    logits = tensor(logits)
    if not logits.ndim:
        raise errors.FxValueError(
            "fx.random.categorical takes an array of logits, got a scalar",
            why="There must be an axis to choose along.",
            fix="For one probability use fx.random.bernoulli.",
        )
    dtype = _float_of(logits)
    logits = as_dtype(logits, dtype)
    axis = canonical_axis(axis, logits.ndim)
    rows = logits.shape[:axis] + logits.shape[axis + 1 :]
    shape = rows if shape is None else static_shape(shape)
    if shape[len(shape) - len(rows) :] != rows or len(shape) < len(rows):
        raise errors.FxValueError(
            f"fx.random.categorical: shape {shape} does not end in {rows}",
            why="Each row of logits has its draws.",
            fix=f"Pass shape=(n, *{rows}).",
        )
    front = shape[: len(shape) - len(rows)]
    noise = gumbel(key, (*front, *logits.shape), dtype)
    return fnp.argmax(fnp.add(noise, logits), axis=axis + len(front))


# ---- permutations and choices ----------------------------------------------------------------------------------------------


def _order(key: Any, shape: Shape, axis: int) -> Any:
    """Orders along an axis by sorting 64 random bits an element: two are equal once in 2**65/n**2 times."""
    return fnp.argsort(bits(key, shape, np.uint64), axis=axis)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """A random order of range(x), or of an array along an axis.

    Arguments:
        key: a key.
        x: an int, or an array.
        axis: of the array.
        independent: whether each line along the axis gets an order of its own.

    Example:
        >>> import fxgrad as fx
        >>> sorted(int(i) for i in fx.random.permutation(fx.random.key(0), 5))
        [0, 1, 2, 3, 4]
    """
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        (n,) = static_shape(int(x))
        return _order(key, (n,), 0)
    x = tensor(x)
    if not x.ndim:
        raise errors.FxTypeError(
            f"fx.random.permutation takes an int or an array, got a scalar of {x.dtype}",
            why="A traced number or a float is no length.",
            fix="Pass a Python int.",
        )
    axis = canonical_axis(axis, x.ndim)
    if independent:
        return fnp.take_along_axis(x, _order(key, x.shape, axis), axis=axis)
    return fnp.take(x, _order(key, (x.shape[axis],), 0), axis=axis)


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Elements of range(a), or of an array along an axis, as numpy.random.Generator.choice.

    Arguments:
        key: a key.
        a: an int, or an array.
        shape: how many, in which shape.
        replace: whether an element may come twice.
        p: probabilities, as many as there are elements; they must sum to 1. Under jit that is not checked: they are scaled.
        axis: of the array.

    Example:
        >>> import fxgrad as fx, numpy as np
        >>> fx.random.choice(fx.random.key(0), np.array([3.0, 4.0, 5.0]), (2,), replace=False).shape
        (2,)
    """
    shape = static_shape(shape)
    number = isinstance(a, (int, np.integer)) and not isinstance(a, bool)
    x = None if number else tensor(a)
    if x is not None:
        axis = canonical_axis(axis, x.ndim)
    n = static_int(a) if x is None else x.shape[axis]
    count = math.prod(shape)
    if (n <= 0 and count) or (not replace and count > n):
        raise errors.FxValueError(
            f"fx.random.choice cannot take {count} of {n} elements{'' if replace else ' without replacement'}",
            why="There are not as many.",
            fix="Pass replace=True, or a smaller shape." if n > 0 else "Pass at least one element.",
        )
    index = _chosen(key, n, shape, replace) if p is None else _weighted(key, n, shape, replace, p)
    return index if x is None else fnp.take(x, index, axis=axis)


def _chosen(key: Any, n: int, shape: Shape, replace: bool) -> Any:
    if replace:
        return randint(key, shape, 0, n)
    return fnp.reshape(_order(key, (n,), 0)[: math.prod(shape)], shape)


def _weighted(key: Any, n: int, shape: Shape, replace: bool, p: Any) -> Any:
    p = tensor(p)
    if p.shape != (n,):
        raise errors.FxValueError(
            f"fx.random.choice: {n} elements, but p has shape {p.shape}",
            why="Each element has one probability.",
            fix="Pass as many probabilities as there are elements.",
        )
    if _known(p):
        total = float(np.sum(p, dtype=float))
        tolerance = math.sqrt(float(np.finfo(p.dtype if p.dtype.kind == "f" else _F64).eps))
        if not (np.all(np.asarray(p) >= 0) and abs(total - 1) <= tolerance):
            raise errors.FxValueError(
                f"fx.random.choice: p is no distribution; it sums to {total:.6g}",
                why="Probabilities are not negative and sum to 1.",
                fix="Pass p / p.sum().",
            )
        if not replace and np.count_nonzero(p) < math.prod(shape):
            raise errors.FxValueError(
                f"fx.random.choice cannot take {math.prod(shape)} of {np.count_nonzero(p)} elements with a probability",
                why="Those of probability 0 never come.",
                fix="Pass replace=True, or a smaller shape.",
            )
    dtype = _float_of(p)
    p = as_dtype(p, dtype)
    if not replace:  # the largest log(p) + noise (Vieira, "Gumbel-max trick and weighted reservoir sampling", 2014)
        scores = fnp.add(gumbel(key, (n,), dtype), fnp.log(p))
        return fnp.reshape(fnp.argsort(fnp.negative(scores))[: math.prod(shape)], shape)
    sums = fnp.cumsum(p)
    u = fnp.multiply(uniform(key, shape, dtype), sums[-1])
    return fnp.minimum(fnp.searchsorted(sums, u, side="right"), n - 1)


# ---- counts ----------------------------------------------------------------------------------------------------------------


def _poisson_impl(key: Any, rate: Any, shape: Shape) -> Any:
    k0, k1 = words(key, shape)
    return p.poisson_draw(k0, k1, counters(shape), broadcast_to_shape(tensor(rate), shape))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """Counts of the Poisson distribution: by inversion below 10, by Hoermann's rejection method PTRS (1993) from there on.

    Arguments:
        key: a key.
        lam: the mean; where it is negative, NaN or beyond 2**62 the answer is -1.
        shape: of the result; by default that of lam.
        dtype: an integer dtype.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.poisson(fx.random.key(0), 4.0, (4000,))
        >>> bool(abs(x.mean() - 4) < 0.15)
        True
    """
    rate = param(lam, _F64)
    return as_dtype(compiled(_poisson_impl, shape_for("poisson", shape, rate))(as_key(key), rate), _counts("poisson", dtype))


def _binomial_impl(key: Any, n: Any, p_: Any, shape: Shape) -> Any:
    k0, k1 = words(key, shape)
    n, p_ = (broadcast_to_shape(tensor(x), shape) for x in (n, p_))
    return p.binomial_draw(k0, k1, counters(shape), n, p_)


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """Successes among n trials: by inversion for a mean below 10, else by Hoermann's rejection method BTRS (1993).

    Arguments:
        key: a key.
        n: numbers of trials, up to 2**53.
        p: probabilities of success; where n or p makes no sense the answer is -1.
        shape: of the result; by default that of n and p.
        dtype: an integer dtype.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.binomial(fx.random.key(0), 10, 0.3, (4000,))
        >>> bool(abs(x.mean() - 3) < 0.1)
        True
    """
    n, p = param(n, _F64), param(p, _F64)
    draw = compiled(_binomial_impl, shape_for("binomial", shape, n, p))
    return as_dtype(draw(as_key(key), n, p), _counts("binomial", dtype))


def _counts(name: str, dtype: Any) -> np.dtype:
    d = np.dtype(dtype)
    if d.kind not in "iuf":
        raise errors.FxTypeError(
            f"fx.random.{name} draws counts, got dtype {d}", why="Counts are numbers.", fix="Pass an integer dtype."
        )
    return d
