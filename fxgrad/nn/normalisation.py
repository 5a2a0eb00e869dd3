"""Normalisation over features, groups of channels, and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.nn.common import as_float, wide
from fxgrad.numpy.core import as_dtype, canonical_axis, result_type, tensor
from fxgrad.primitives import transcendental as tr

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "standardize"]


def _affine(x: Any, y: Any, scale: Any, bias: Any = None) -> Any:
    """y times scale plus bias, those given, rounded once to the dtype that x has with them."""
    y = y if scale is None else fnp.multiply(y, scale)
    y = y if bias is None else fnp.add(y, bias)
    return as_dtype(y, result_type(*[v for v in (x, scale, bias) if v is not None]))


def _standardized(x: Any, axis: Any, epsilon: float) -> Any:
    centered = fnp.subtract(x, fnp.mean(x, axis, keepdims=True))
    variance = fnp.mean(fnp.square(centered), axis, keepdims=True)
    return fnp.multiply(centered, tr.rsqrt(fnp.add(variance, epsilon)))


def standardize(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """x minus its mean over axes, over the root of its variance plus epsilon.

    Arguments:
        x: any shape; float16 is computed in float32, as in every function here.
        axis: an int or a tuple of them.
        epsilon: keeps rows of equal numbers finite.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.standardize(np.array([1.0, 3.0]), epsilon=0.0)
        array([-1.,  1.])
    """
    x = as_float(x)
    return as_dtype(_standardized(wide(x), axis, epsilon), x.dtype)


def layer_norm(x: Any, scale: Any = None, bias: Any = None, eps: float = 1e-5, axis: Any = -1) -> Any:
    """Layer normalisation (Ba, Kiros and Hinton, 2016): each row has mean 0 and variance 1, then times scale, plus bias.

    Arguments:
        x: (..., n).
        scale, bias: (n,), each optional; any shape that broadcasts with x.
        eps: added to the variance; the default is PyTorch's (flax has 1e-6).
        axis: what a row is: an int or a tuple of them.

    Returns:
        The shape of x.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.layer_norm(np.array([[1.0, 3.0], [5.0, 5.0]]), scale=np.array([1.0, 2.0]), eps=0.25).round(4)
        array([[-0.8944,  1.7889],
               [ 0.    ,  0.    ]])
    """
    x = as_float(x)
    return _affine(x, _standardized(wide(x), axis, eps), scale, bias)


def rms_norm(x: Any, scale: Any = None, eps: float = 1e-6, axis: Any = -1) -> Any:
    """x over the root of its mean square plus eps, times scale (Zhang and Sennrich, 2019).

    Arguments:
        x: (..., n).
        scale: (n,), optional.
        eps: added to the mean square; the default is flax's.
        axis: what a row is: an int or a tuple of them.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.rms_norm(np.array([3.0, 4.0, 0.0, 0.0]), eps=0.0)
        array([1.2, 1.6, 0. , 0. ])
    """
    x = as_float(x)
    full = wide(x)
    return _affine(x, fnp.multiply(full, tr.rsqrt(fnp.add(fnp.mean(fnp.square(full), axis, keepdims=True), eps))), scale)


# ---- channels ------------------------------------------------------------------------------------------------------------


def _spatial(name: str, x: Any, fewest: int) -> Any:
    """A floating x of at least `fewest` axes; a scalar or a vector has no channels to speak of."""
    x = as_float(tensor(x))
    if x.ndim < fewest:
        raise errors.FxValueError(
            f"{name} got x of shape {x.shape}",
            why=f"It takes (N, {'..., ' if fewest == 2 else '*spatial, '}C): a batch in front, channels last.",
            fix="Add the missing axes: x[None] for a batch of one; move channels from axis 1 with np.moveaxis(x, 1, -1).",
        )
    return x


def _along(v: Any, ndim: int, axis: int) -> Any:
    """A vector of channels that lines up with `axis` of ndim axes."""
    return v if v is None or axis == ndim - 1 else fnp.reshape(v, (-1,) + (1,) * (ndim - 1 - axis))


def batch_norm(
    x: Any,
    mean: Any,
    var: Any,
    scale: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    axis: int = -1,
) -> tuple[Any, tuple[Any, Any]]:
    """Batch normalisation (Ioffe and Szegedy, 2015), with the running statistics as values that go in and come out.

    Arguments are PyTorch's functional batch_norm, channels are last as in flax.

    Arguments:
        x: (N, ..., C).
        mean, var: (C,), the running statistics; zeros and ones to start with.
        scale, bias: (C,), each optional.
        training: whether to normalise by the mean and variance of this batch, else by the running ones.
        momentum: the weight of this batch in the new running statistics (flax's momentum is one minus it).
        eps: added to the variance.
        axis: the axis of channels.

    Returns:
        (y, (mean, var)): y of the shape of x; the new running statistics, or, unless training, those given. As in PyTorch, the
        running variance is made of unbiased ones (divided by n - 1), while y is normalised by the biased one.

    Raises:
        FxValueError: x has fewer than two axes, or training on one value a channel, whose variance is 0.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> x = np.array([[1.0, 10.0], [3.0, 30.0]])
        >>> y, (mean, var) = fx.nn.batch_norm(x, np.zeros(2), np.ones(2), training=True, momentum=0.5, eps=0.0)
        >>> y, mean, var
        (array([[-1., -1.],
               [ 1.,  1.]]), array([ 1., 10.]), array([  1.5, 100.5]))
    """
    x = _spatial("batch_norm", x, 2)
    axis = canonical_axis(axis, x.ndim)
    scale, bias = _along(scale, x.ndim, axis), _along(bias, x.ndim, axis)
    full = wide(x)
    if not training:
        centered = fnp.subtract(full, _along(mean, x.ndim, axis))
        return _affine(x, fnp.multiply(centered, tr.rsqrt(as_float(fnp.add(_along(var, x.ndim, axis), eps)))), scale, bias), (
            mean,
            var,
        )
    others = tuple(i for i in range(x.ndim) if i != axis)
    n = x.size // x.shape[axis] if x.shape[axis] else 0
    if n < 2:
        raise errors.FxValueError(
            f"batch_norm with training=True got x of shape {x.shape}: {n} values a channel",
            why="It divides by their standard deviation, which one value does not have.",
            fix="Train on larger batches, pass training=False, or use layer_norm or group_norm, which look at one example.",
        )
    center = fnp.mean(full, others, keepdims=True)
    centered = fnp.subtract(full, center)
    spread = fnp.mean(fnp.square(centered), others, keepdims=True)
    y = _affine(x, fnp.multiply(centered, tr.rsqrt(fnp.add(spread, eps))), scale, bias)
    new = [fnp.reshape(center, (-1,)), fnp.multiply(fnp.reshape(spread, (-1,)), n / (n - 1))]
    kept = [fnp.add(fnp.multiply(1 - momentum, old), fnp.multiply(momentum, v)) for old, v in zip((mean, var), new, strict=True)]
    return y, (kept[0], kept[1])


def group_norm(x: Any, num_groups: int, scale: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Group normalisation (Wu and He, 2018): each example's groups of channels have mean 0 and variance 1.

    Arguments:
        x: (N, *spatial, C), channels last as in flax.
        num_groups: a divisor of C; neighbouring channels share a group.
        scale, bias: (C,), each optional.
        eps: added to the variance; the default is PyTorch's.

    Returns:
        The shape of x.

    Raises:
        FxValueError: the groups do not divide the channels; x has fewer than two axes.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0)
        array([[-1.,  1., -1.,  1.]])
    """
    x = _spatial("group_norm", x, 2)
    channels = x.shape[-1]
    if not isinstance(num_groups, (int, np.integer)) or num_groups < 1 or channels % num_groups:
        raise errors.FxValueError(
            f"group_norm got num_groups={num_groups!r} for {channels} channels",
            why="Every group has as many channels, so their number divides C, the length of the last axis.",
            fix=f"Pass a divisor of {channels}; is the channel axis the last one?",
        )
    grouped = (*x.shape[:-1], num_groups, channels // num_groups)
    axes = (*range(1, x.ndim - 1), x.ndim)
    y = fnp.reshape(_standardized(fnp.reshape(wide(x), grouped), axes, eps), x.shape)
    return _affine(x, y, scale, bias)


def instance_norm(x: Any, scale: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Instance normalisation (Ulyanov, Vedaldi and Lempitsky, 2016): each channel of each example has mean 0 and variance 1.

    Arguments:
        x: (N, *spatial, C), channels last as in flax.
        scale, bias: (C,), each optional.
        eps: added to the variance; the default is PyTorch's.

    Returns:
        The shape of x.

    Raises:
        FxValueError: x has no spatial axis.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.instance_norm(np.array([[[1.0], [3.0]]]), eps=0.0)[0, :, 0]
        array([-1.,  1.])
    """
    x = _spatial("instance_norm", x, 3)
    spatial: Sequence[int] = range(1, x.ndim - 1)
    return _affine(x, _standardized(wide(x), tuple(spatial), eps), scale, bias)
