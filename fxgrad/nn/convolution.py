"""Convolution and pooling, channels last as in flax.linen: arrays of shape (..., *spatial, channels)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.lax_conv import ConvDimensionNumbers, convolution, whole_numbers, window_padding
from fxgrad.lax_conv import conv_transpose as _conv_transpose
from fxgrad.lax_windows import pooled
from fxgrad.nn.common import as_float
from fxgrad.numpy.core import as_dtype, result_type, tensor
from fxgrad.numpy.prepared import prepared
from fxgrad.primitives.shape import Ints, broadcast, reshape
from fxgrad.primitives.windows import Windows

Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]


def _operands(name: str, x: Any, w: Any) -> tuple[Any, Any, Any, int]:
    """Both operands in their common dtype, x with one batch axis; the leading axes it had, and the spatial dimensions."""
    x, w = tensor(x), tensor(w)
    count = w.ndim - 2
    if count < 1 or x.ndim < count + 1:
        raise errors.FxValueError(
            f"nn.{name} got x of shape {x.shape} and w of shape {w.shape}",
            why="x is (..., *spatial, channels in), w is (*window, channels in, channels out), of one window axis at least.",
            fix="Reshape w to (*window, channels in, channels out); for channels first there is lax.conv_general_dilated.",
        )
    dtype = result_type(x, w)
    lead = x.shape[: x.ndim - count - 1]
    x, w = as_dtype(x, dtype), as_dtype(w, dtype)
    if len(lead) != 1:
        x = reshape(x, shape=(math.prod(lead), *x.shape[len(lead) :]))
    return x, w, lead, count


def _numbers(count: int) -> ConvDimensionNumbers:
    """Channels last, kernels (*window, in, out)."""
    last = (0, count + 1, *range(1, count + 1))
    return ConvDimensionNumbers(last, (count + 1, count, *range(count)), last)


def _led(y: Any, lead: Ints) -> Any:
    """The leading axes put back."""
    return y if len(lead) == 1 else reshape(y, shape=(*lead, *y.shape[1:]))


def conv(
    x: Any, w: Any, b: Any = None, stride: int | Sequence[int] = 1, padding: Padding = "SAME",
    dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Any:  # fmt: skip
    """The convolution of x with the kernel w plus b, over 1 to 3 spatial dimensions, channels last as flax.linen.Conv.

    x: (..., *spatial, C_in). w: (*window, C_in / groups, C_out). b: (C_out,). stride, dilation: a number, or one for each spatial
    dimension. padding: "SAME" (result of size ceil(size / stride)), "SAME_LOWER", "VALID", a number, or pairs (low, high).
    Returns (..., *spatial out, C_out). PyTorch's conv2d has channels first and a kernel (C_out, C_in / groups, *window).

    Every element is the fixed sum of a matrix product, k running over the window in row-major order and in each place over the
    channels; see docs/numerics.md. No matrix of patches is made.

    >>> import numpy as np
    >>> from fxgrad import nn
    >>> nn.conv(np.ones((2, 8, 8, 3)), np.ones((3, 3, 3, 16)), np.zeros(16), stride=2).shape
    (2, 4, 4, 16)
    """
    y = _convolved(x, w, stride, padding, dilation, groups)
    return y if b is None else fnp.add(y, b)


@prepared(2)
def _convolved(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Any:
    x, w, lead, count = _operands("conv", x, w)
    strides, steps = whole_numbers("stride", stride, count), whole_numbers("dilation", dilation, count)
    window = tuple((k - 1) * s + 1 for k, s in zip(w.shape[:count], steps, strict=True))
    pairs = window_padding(padding, x.shape[1:-1], window, strides)
    return _led(convolution(x, w, _numbers(count), strides, pairs, (1,) * count, steps, feature_groups=groups), lead)


def conv_transpose(
    x: Any, w: Any, b: Any = None, stride: int | Sequence[int] = 1, padding: Padding = "SAME",
    dilation: int | Sequence[int] = 1, transpose_kernel: bool = False,
) -> Any:  # fmt: skip
    """The transposed convolution, channels last as flax.linen.ConvTranspose: `stride` times as large with padding "SAME".

    x: (..., *spatial, C_in). w: (*window, C_in, C_out); with transpose_kernel (*window, C_out, C_in), turned around: the
    derivative of `conv` by its input. padding in pairs is that of the dilated input: PyTorch's ConvTranspose2d(padding=p) is
    transpose_kernel=True and pairs (k - 1 - p, k - 1 - p). See `conv` for the rest.

    >>> import numpy as np
    >>> from fxgrad import nn
    >>> nn.conv_transpose(np.ones((2, 8, 8, 3)), np.ones((2, 2, 3, 16)), stride=2).shape
    (2, 16, 16, 16)
    """
    x, w, lead, count = _operands("conv_transpose", x, w)
    strides = whole_numbers("stride", stride, count)
    if not isinstance(padding, str):
        padding = window_padding(padding, x.shape[1:-1], x.shape[1:-1], strides)
    y = _conv_transpose(x, w, strides, padding, whole_numbers("dilation", dilation, count), _numbers(count), transpose_kernel)
    y = _led(y, lead)
    return y if b is None else fnp.add(y, b)


def _windows(name: str, x: Any, window_shape: int | Sequence[int], strides: Any, padding: Padding) -> Windows:
    """The windows along the spatial axes, those before the last one."""
    count = 1 if np.ndim(window_shape) == 0 else len(tuple(window_shape))  # type: ignore[arg-type]
    if not 1 <= count < x.ndim:
        raise errors.FxValueError(
            f"nn.{name} got a window {window_shape!r} for an array of shape {x.shape}",
            why="The array is (..., *spatial, channels); the window has a size for each spatial dimension.",
            fix=f"Pass window_shape={(2,) * max(1, x.ndim - 2)}, for example.",
        )
    window = whole_numbers("window_shape", window_shape, count)
    steps = whole_numbers("strides", 1 if strides is None else strides, count)
    pairs = window_padding(padding, x.shape[-1 - count : -1], window, steps)
    if any(v < 0 for p in pairs for v in p):
        raise errors.FxValueError(
            f"nn.{name} got padding={padding!r}",
            why="A pool takes padding away from nothing: widths are not negative.",
            fix="Slice the array first: x[:, 1:-1].",
        )
    before = x.ndim - 1 - count
    full = (
        (1, window, 1),
        (1, steps, 1),
        (1, (1,) * count, 1),
        (0, tuple(p[0] for p in pairs), 0),
        (0, tuple(p[1] for p in pairs), 0),
    )
    return Windows(*((first,) * before + middle + (last,) for first, middle, last in full))


@prepared(1)
def max_pool(
    inputs: Any, window_shape: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "VALID"
) -> Any:  # fmt: skip
    """The largest element of each window, as flax.linen.max_pool: inputs (..., *spatial, channels).

    window_shape: a size for each spatial dimension. strides: likewise; None is 1, as in flax (PyTorch: the window). padding: as
    in `conv`; padded places are never the largest. Of equal elements the first, in row-major order, gets the derivative, as in
    PyTorch and JAX. NaN if the window has one.

    >>> import numpy as np
    >>> from fxgrad import nn
    >>> nn.max_pool(np.arange(16.0).reshape(1, 4, 4, 1), (2, 2), (2, 2))[0, :, :, 0]
    array([[ 5.,  7.],
           [13., 15.]])
    """
    x = tensor(inputs)
    return pooled(x, "max", _windows("max_pool", x, window_shape, strides, padding))


@prepared(1)
def min_pool(
    inputs: Any, window_shape: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "VALID"
) -> Any:  # fmt: skip
    """The smallest element of each window, as flax.linen.min_pool; see `max_pool`.

    >>> import numpy as np
    >>> from fxgrad import nn
    >>> nn.min_pool(np.arange(4.0).reshape(1, 4, 1), (2,), (2,))[0, :, 0]
    array([0., 2.])
    """
    x = tensor(inputs)
    return pooled(x, "min", _windows("min_pool", x, window_shape, strides, padding))


@prepared(1)
def avg_pool(
    inputs: Any, window_shape: int | Sequence[int], strides: int | Sequence[int] | None = None, padding: Padding = "VALID",
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """The mean of each window, as flax.linen.avg_pool: inputs (..., *spatial, channels); see `max_pool`.

    count_include_pad: divide by the size of the window, padded places being zeros; else by the number of elements in it.

    >>> import numpy as np
    >>> from fxgrad import nn
    >>> nn.avg_pool(np.arange(4.0).reshape(1, 4, 1), (2,), (2,))[0, :, 0]
    array([0.5, 2.5])
    """
    x = as_float(inputs)
    w = _windows("avg_pool", x, window_shape, strides, padding)
    total = pooled(x, "add", w)
    if count_include_pad or not any((*w.low, *w.high)):
        return fnp.divide(total, x.dtype.type(w.positions))
    still = [values == (1, 1, 1, 0, 0) for values in zip(*w, strict=True)]
    ones = broadcast(x.dtype.type(1), shape=tuple(1 if s else n for n, s in zip(x.shape, still, strict=True)), dims=())
    return fnp.divide(total, pooled(ones, "add", w))
