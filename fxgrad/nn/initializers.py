"""Initial values of parameters: `init(key, shape, dtype)`, with the names and definitions of jax.nn.initializers.

    w = fx.nn.initializers.he_normal()(fx.random.key(0), (784, 512))

`zeros` and `ones` are initializers themselves, the others are functions that make one. For those that look at the number of
inputs of a unit (fan in) and of its outputs (fan out), a shape is (*receptive field, inputs, outputs), as weights of `dense` and
`conv` are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors, random
from fxgrad.numpy.core import canonical_axis

__all__ = [
    "Initializer", "constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal",
    "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal", "truncated_normal", "uniform",
    "variance_scaling", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip

Initializer = Callable[..., Any]  # (key, shape, dtype=np.float32) -> array
Axes = int | Sequence[int]

_TRUNCATED_STD = 0.87962566103423978  # of a standard normal number between -2 and 2


def zeros(key: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """Zeros.

    Arguments:
        key: is not used, and may be None.
        shape, dtype: of the result.

    Example:
        >>> import fxgrad as fx
        >>> fx.nn.initializers.zeros(None, (2,))
        array([0., 0.], dtype=float32)
    """
    return fnp.zeros(shape, dtype)


def ones(key: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
    """Ones; arguments as for zeros.

    Example:
        >>> import fxgrad as fx
        >>> fx.nn.initializers.ones(None, (2,))
        array([1., 1.], dtype=float32)
    """
    return fnp.ones(shape, dtype)


def constant(value: Any) -> Initializer:
    """Makes an initializer that fills with `value`, a number or an array that broadcasts to the shape.

    Example:
        >>> import fxgrad as fx
        >>> fx.nn.initializers.constant(0.5)(None, (2,))
        array([0.5, 0.5], dtype=float32)
    """
    return lambda key, shape, dtype=np.float32: fnp.full(shape, value, dtype)


def normal(stddev: float = 1e-2) -> Initializer:
    """Makes an initializer of normal numbers with mean 0 and this standard deviation.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.nn.initializers.normal(0.02)(fx.random.key(0), (100, 100))
        >>> bool(abs(x.std() - 0.02) < 0.001)
        True
    """
    return lambda key, shape, dtype=np.float32: _scaled(random.normal(key, shape, dtype), stddev)


def uniform(scale: float = 1e-2) -> Initializer:
    """Makes an initializer of numbers as likely anywhere from 0 to `scale`.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.nn.initializers.uniform(2.0)(fx.random.key(0), (1000,))
        >>> bool(0 <= x.min() and 1.9 < x.max() < 2)
        True
    """
    return lambda key, shape, dtype=np.float32: _scaled(random.uniform(key, shape, dtype), scale)


def truncated_normal(stddev: float = 1e-2, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """Makes an initializer of normal numbers between bounds, given in units of `stddev`, that of the normal before it is cut.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.nn.initializers.truncated_normal(0.5)(fx.random.key(0), (1000,))
        >>> bool(0.9 < abs(x).max() <= 1)
        True
    """
    return lambda key, shape, dtype=np.float32: _scaled(random.truncated_normal(key, lower, upper, shape, dtype), stddev)


def _scaled(x: Any, scale: float) -> Any:
    """x times a number, in x's dtype."""
    return fnp.multiply(x, float(scale))


# ---- by fan in and fan out -------------------------------------------------------------------------------------------------


def variance_scaling(
    scale: float, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = ()
) -> Initializer:
    """Makes an initializer whose numbers have mean 0 and variance scale / fan.

    Arguments:
        scale: a positive number.
        mode: which fan: "fan_in", "fan_out", or "fan_avg", their mean.
        distribution: "normal", "truncated_normal" (between two standard deviations, widened to the variance asked for), or
            "uniform".
        in_axis, out_axis: the axes of inputs and outputs, an int or several.
        batch_axis: axes that count for neither, such as one of stacked layers.

    Raises:
        FxValueError: an unknown mode or distribution; when it is called, a shape without these axes.

    Example:
        >>> import fxgrad as fx
        >>> init = fx.nn.initializers.variance_scaling(2.0, "fan_in", "normal")
        >>> bool(abs(init(fx.random.key(0), (200, 100)).std() - 0.1) < 0.005)
        True
    """
    _one_of("mode", mode, ("fan_in", "fan_out", "fan_avg"))
    _one_of("distribution", distribution, ("normal", "truncated_normal", "uniform"))

    def init(key: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        fan_in, fan_out = _fans(tuple(shape), in_axis, out_axis, batch_axis)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        std = math.sqrt(scale / max(fan, 1))
        if distribution == "normal":
            return normal(std)(key, shape, dtype)
        if distribution == "truncated_normal":
            return truncated_normal(std / _TRUNCATED_STD)(key, shape, dtype)
        bound = math.sqrt(3) * std
        return random.uniform(key, shape, dtype, -bound, bound)

    return init


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise errors.FxValueError(
            f"variance_scaling got {name}={value!r}", why="It must be a name it knows.", fix=f"Pass one of {', '.join(known)}."
        )


def _fans(shape: tuple[int, ...], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """(fan in, fan out): the lengths of their axes times the receptive field, all axes that are neither nor batch."""
    groups = [(a,) if isinstance(a, int) else tuple(a) for a in (in_axis, out_axis, batch_axis)]
    ndim = len(shape)
    if any(not -ndim <= axis < ndim for group in groups for axis in group):
        raise errors.FxValueError(
            f"an initializer by fan got shape {shape}, with in_axis={in_axis} and out_axis={out_axis}",
            why="Its numbers depend on how many inputs and outputs a unit has, so the shape needs an axis of each.",
            fix="For vectors, such as biases, use zeros, ones, constant or normal.",
        )
    axes = [{canonical_axis(axis, ndim) for axis in group} for group in groups]
    inputs, outputs = (math.prod(shape[i] for i in group) for group in axes[:2])
    field = math.prod(n for i, n in enumerate(shape) if not any(i in group for group in axes))
    return inputs * field, outputs * field


def _named(name: str, scale: float, mode: str, distribution: str, summary: str) -> Callable[..., Initializer]:
    """variance_scaling under the name of a paper."""

    def make(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = ()) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis)

    make.__name__ = make.__qualname__ = name
    shown = "truncated normal" if distribution == "truncated_normal" else distribution
    make.__doc__ = f"""Makes an initializer of {shown} numbers with variance {scale:g} / {mode} {summary}.

    Arguments:
        in_axis, out_axis, batch_axis: as for variance_scaling.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.nn.initializers.{name}()(fx.random.key(0), (200, 200))
        >>> bool(abs(x.var() * 200 - {scale:g}) < 0.1)
        True
    """
    return make


_GLOROT, _HE, _LECUN = "(Glorot and Bengio, 2010)", "(He et al., 2015)", "(LeCun et al., 1998)"
glorot_uniform = xavier_uniform = _named("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
glorot_normal = xavier_normal = _named("glorot_normal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
he_uniform = kaiming_uniform = _named("he_uniform", 2.0, "fan_in", "uniform", _HE)
he_normal = kaiming_normal = _named("he_normal", 2.0, "fan_in", "truncated_normal", _HE)
lecun_uniform = _named("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)
lecun_normal = _named("lecun_normal", 1.0, "fan_in", "truncated_normal", _LECUN)


def orthogonal(scale: float = 1.0, column_axis: int = -1) -> Initializer:
    """Makes an initializer of matrices with orthonormal rows or columns, whichever are fewer, times scale (Saxe et al., 2014).

    Arguments:
        scale: a number.
        column_axis: the axis of columns; all others together are the rows.

    Returns:
        An initializer for float32 and float64 and shapes of at least two axes.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> q = fx.nn.initializers.orthogonal()(fx.random.key(0), (5, 3))
        >>> bool(np.allclose(q.T @ q, np.eye(3), atol=1e-5))
        True
    """

    def init(key: Any, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        shape = tuple(shape)
        if len(shape) < 2:
            raise errors.FxValueError(
                f"orthogonal got shape {shape}",
                why="Rows or columns are made orthogonal, so there must be both.",
                fix="For vectors use zeros, ones, constant or normal.",
            )
        axis = canonical_axis(column_axis, len(shape))
        columns = shape[axis]
        rows = math.prod(shape) // columns if columns else 0
        tall = (max(rows, columns), min(rows, columns))
        q, r = fnp.linalg.qr(random.normal(key, tall, dtype))
        q = fnp.multiply(q, fnp.sign(fnp.diagonal(r)))  # the sign qr chooses is not random
        q = fnp.swapaxes(q, 0, 1) if rows < columns else q
        return _scaled(fnp.moveaxis(fnp.reshape(q, (*shape[:axis], *shape[axis + 1 :], columns)), -1, axis), scale)

    return init
