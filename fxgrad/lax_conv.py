"""Convolutions under the names of `jax.lax`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import as_dtype, tensor
from fxgrad.primitives.conv import conv as _conv
from fxgrad.primitives.dot import dot as _dot
from fxgrad.primitives.shape import reshape, reverse, transpose

__all__ = [
    "ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated", "conv_transpose",
    "conv_with_general_padding", "convolution", "window_padding",
]  # fmt: skip

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
MOST_WINDOWS = 3


class ConvDimensionNumbers(NamedTuple):
    """Which axis is which, as jax.lax.ConvDimensionNumbers.

    (batch, feature, spatial...) of the input and of the result, (out feature, in feature, spatial...) of the kernel.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC"))
        ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """

    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints


# ---- arguments -------------------------------------------------------------------------------------------------------------


def _wrong(what: str, why: str, fix: str) -> errors.FxValueError:
    return errors.FxValueError(what, why=why, fix=fix)


def whole_numbers(name: str, values: Any, count: int, least: int = 1) -> Ints:
    """One integer, or one for each of `count` dimensions, as a tuple; none below `least`."""
    try:
        found = (values,) * count if np.ndim(values) == 0 else tuple(values)
        exact = tuple(int(v) for v in found)
    except (TypeError, ValueError):
        exact, found = (), (None,)
    if len(exact) != count or any(e != f for e, f in zip(exact, found, strict=True)) or any(v < least for v in exact):
        raise _wrong(
            f"{name}={values!r} does not fit {count} spatial dimensions",
            f"It is one integer >= {least}, or one for each spatial dimension.",
            f"Pass {name}={(1,) * count}, for example.",
        )
    return exact


def window_padding(padding: Any, sizes: Ints, window: Ints, strides: Ints) -> Pairs:
    """Padding as pairs (low, high): "SAME" (out = ceil(size / stride), the odd one high), "SAME_LOWER", "VALID", or as given.

    It may be given as one number, or as a number or a pair for each dimension. `window` are sizes with dilation.
    """
    if isinstance(padding, str):
        name = padding.upper()
        if name == "VALID":
            return ((0, 0),) * len(sizes)
        if name in ("SAME", "SAME_LOWER"):
            total = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(sizes, window, strides, strict=True)]
            low = [t // 2 if name == "SAME" else t - t // 2 for t in total]
            return tuple((lo, t - lo) for lo, t in zip(low, total, strict=True))
    elif isinstance(padding, (int, np.integer)):
        return ((int(padding), int(padding)),) * len(sizes)
    else:
        try:
            pairs = [(p, p) if np.ndim(p) == 0 else tuple(p) for p in padding]
            found = tuple((int(lo), int(hi)) for lo, hi in pairs)
            if len(found) == len(sizes) and all(f == tuple(p) for f, p in zip(found, pairs, strict=True)):
                return found
        except (TypeError, ValueError):
            pass
    raise _wrong(
        f"padding={padding!r} does not fit {len(sizes)} spatial dimensions",
        "It is 'SAME', 'SAME_LOWER', 'VALID', a number, or for each spatial dimension a pair (low, high) of integers.",
        f"Pass padding={[(0, 0)] * len(sizes)}, for example.",
    )


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any) -> ConvDimensionNumbers:
    """The axes by number: from None (NCHW, OIHW, NCHW), or from three strings such as ("NHWC", "HWIO", "NHWC"); as in jax.lax.

    >>> from fxgrad import lax
    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    ndim = len(lhs_shape)
    if len(rhs_shape) != ndim or ndim < 2:
        raise _wrong(
            f"a convolution got an input of shape {tuple(lhs_shape)} and a kernel of shape {tuple(rhs_shape)}",
            "Both have one axis for each spatial dimension, and two more: batch and features, features in and out.",
            "Add axes of length 1 with np.expand_dims, or call vmap for further batch axes.",
        )
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if dimension_numbers is None:
        usual = tuple(range(ndim))
        return ConvDimensionNumbers(usual, usual, usual)
    specs = dimension_numbers
    letters = len(specs) == 3 and all(isinstance(s, str) and len(s) == ndim == len(set(s)) for s in specs)
    if not letters or any({*s} != {*specs[0]} for s in specs[2:]) or not {*"NC"} <= {*specs[0]} or not {*"OI"} <= {*specs[1]}:
        raise _wrong(
            f"dimension_numbers={dimension_numbers!r} does not fit arrays of rank {ndim}",
            "It is three strings with a letter for each axis: N, C and spatial letters; O, I and the same; N, C and the same.",
            'Pass ("NHWC", "HWIO", "NHWC") or ("NCHW", "OIHW", "NCHW"), for example.',
        )
    spatial = [c for c in specs[1] if c not in "OI"]
    if {*spatial} != {*specs[0]} - {*"NC"}:
        raise _wrong(
            f"dimension_numbers={dimension_numbers!r} names other spatial dimensions for the input than for the kernel",
            "What slides over a dimension has the same letter.",
            'Pass ("NHWC", "HWIO", "NHWC"), for example.',
        )
    by_name = [tuple(s.index(c) for c in (*first, *spatial)) for s, first in zip(specs, ("NC", "OI", "NC"), strict=True)]
    return ConvDimensionNumbers(*by_name)


# ---- convolutions ----------------------------------------------------------------------------------------------------------


def _split(x: Any, axis: int, groups: int) -> Any:
    """An axis as two: groups, and what is in each."""
    return reshape(x, shape=(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :]))


def _checked_groups(name: str, count: Any, **sizes: int) -> int:
    if not isinstance(count, (int, np.integer)) or count < 1 or any(n % count for n in sizes.values()):
        have = ", ".join(f"{what.replace('_', ' ')} is {n}" for what, n in sizes.items())
        raise _wrong(
            f"{name}={count!r} does not divide what it groups: {have}",
            "Each group of input features has its own, equally many output features.",
            f"Pass {name}=1, or sizes that it divides.",
        )
    return int(count)


def convolution(
    x: Any, w: Any, numbers: ConvDimensionNumbers, strides: Ints, padding: Pairs, lhs_dilation: Ints, rhs_dilation: Ints,
    feature_groups: int = 1, batch_groups: int = 1,
) -> Any:  # fmt: skip
    """The convolution of two arrays of one dtype with everything given as numbers; sizes are checked here."""
    (xn, xc, *xs), (wo, wi, *ws), out_spec = numbers
    if len(xs) > MOST_WINDOWS:
        raise errors.UnsupportedError(
            f"a convolution over {len(xs)} spatial dimensions",
            why=f"The kernels slide windows along at most {MOST_WINDOWS} dimensions.",
            fix="Write it as a sum over the positions of the kernel in one of the dimensions.",
        )
    g = _checked_groups("feature_group_count", feature_groups, input_features=x.shape[xc], output_features=w.shape[wo])
    bg = _checked_groups("batch_group_count", batch_groups, batch=x.shape[xn], output_features=w.shape[wo])
    if g > 1 and bg > 1:
        raise _wrong(
            f"feature_group_count={g} and batch_group_count={bg}",
            "Either features or batches are grouped, as in JAX.",
            "Leave one of them at 1.",
        )
    if w.shape[wi] * g != x.shape[xc]:
        raise _wrong(
            f"a convolution got {x.shape[xc]} input features in {g} groups, and a kernel for {w.shape[wi]}",
            "The kernel's input features are those of one group.",
            f"Give the kernel shape {tuple(x.shape[xc] // g if d == wi else n for d, n in enumerate(w.shape))}.",
        )
    sizes, taps = [x.shape[d] for d in xs], [w.shape[d] for d in ws]
    low = tuple(lo for lo, _ in padding)
    out = []
    for n, t, s, (lo, hi), xd, wd in zip(sizes, taps, strides, padding, lhs_dilation, rhs_dilation, strict=True):
        room = (n - 1) * xd + 1 if n else 0
        out.append(max(0, (room + lo + hi - ((t - 1) * wd + 1 if t else 0)) // s + 1))
    groups = g if g > 1 else bg
    if groups > 1:
        at, of = (xc if g > 1 else xn), wo
        x, w = _split(x, at, groups), _split(w, of, groups)
        xn, xc, *xs = (d + (d >= at) for d in (xn, xc, *xs))  # the axes that are in the groups
        wo, wi, *ws = (d + (d >= of) for d in (wo, wi, *ws))
        batch: Any = ((at,), (of,))
    else:
        batch = ((), ())
    roles = {"batch": batch, "contract": ((xc,), (wi,)), "windows": (tuple(xs), tuple(ws))}
    if _is_product(taps, sizes, out, strides, low, lhs_dilation):
        z = _product(x, w, xn, **roles)
    else:
        z = _conv(
            x, w, **roles, out=tuple(out), stride=strides, low=low, x_dilation=lhs_dilation, w_dilation=rhs_dilation,
            windows_first=True, strong=None,
        )  # fmt: skip
    return _arranged(z, groups, out_spec)


def _is_product(taps: Sequence[int], sizes: Sequence[int], out: Sequence[int], strides: Ints, low: Ints, dilation: Ints) -> bool:
    """Whether the kernel has one position and meets every element: the sum is that of a product."""
    plain = all(v == 1 for v in (*taps, *strides, *dilation))
    return plain and not any(low) and list(sizes) == list(out)


def _product(x: Any, w: Any, xn: int, batch: Any, contract: Any, windows: Any) -> Any:
    """A convolution with a kernel of one position, its axes in the order of `conv`."""
    xs, ws = windows
    keep = [d for d in range(w.ndim) if d not in ws]
    w = reshape(w, shape=tuple(w.shape[d] for d in keep))
    batch, contract = ((x_axes, tuple(keep.index(d) for d in w_axes)) for x_axes, w_axes in (batch, contract))
    z = _dot(x, w, contract=contract, batch=batch, strong=None)
    nb, free = len(batch[0]), sorted((xn, *xs))
    order = (*range(nb), *(nb + free.index(d) for d in (xn, *xs)), *range(nb + len(free), z.ndim))
    return z if order == tuple(range(z.ndim)) else transpose(z, perm=order)


def _arranged(z: Any, groups: int, out_spec: Ints) -> Any:
    """The axes (groups,) batch, spatial..., features in the order wanted, groups joined with the features."""
    grouped = groups > 1
    ndim = z.ndim - grouped
    axes = {out_spec[0]: (grouped,), out_spec[1]: (0, z.ndim - 1) if grouped else (z.ndim - 1,)}
    axes |= {d: (grouped + 1 + i,) for i, d in enumerate(out_spec[2:])}
    order = tuple(int(i) for d in range(ndim) for i in axes[d])
    z = z if order == tuple(range(z.ndim)) else transpose(z, perm=order)
    if not grouped:
        return z
    f = out_spec[1]
    return reshape(z, shape=(*z.shape[:f], z.shape[f] * z.shape[f + 1], *z.shape[f + 2 :]))


def conv_general_dilated(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, feature_group_count: int = 1,
    batch_group_count: int = 1, precision: Any = None, preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """The convolution (cross-correlation) of an input and a kernel, as jax.lax.conv_general_dilated, over 1 to 3 dimensions.

    lhs: the input, by default (N, C, *spatial). rhs: the kernel, by default (C_out, C_in / groups, *window). padding: "SAME",
    "SAME_LOWER", "VALID", or pairs (low, high), which may be negative. lhs_dilation, rhs_dilation: steps from one element to the
    next of the input and of the kernel. dimension_numbers: see `conv_dimension_numbers`. precision is accepted and ignored.
    Returns an array of the operands' dtype.

    Reference: Dumoulin, Visin (2016), A guide to convolution arithmetic for deep learning.

    >>> import numpy as np
    >>> from fxgrad import lax
    >>> x, w = np.arange(5.0).reshape(1, 1, 5), np.array([[[1.0, 0.0, -1.0]]])
    >>> lax.conv_general_dilated(x, w, (1,), "VALID")
    array([[[-2., -2., -2.]]])
    """
    x, w = tensor(lhs), tensor(rhs)
    if preferred_element_type is not None:
        x, w = as_dtype(x, np.dtype(preferred_element_type)), as_dtype(w, np.dtype(preferred_element_type))
    if x.dtype != w.dtype:
        raise errors.FxTypeError(
            f"conv_general_dilated got dtypes {x.dtype} and {w.dtype}",
            why="fx.lax does not promote.",
            fix="Use fx.nn.conv, or x.astype(...).",
        )
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    count = x.ndim - 2
    strides = whole_numbers("window_strides", window_strides, count)
    lhs_steps = whole_numbers("lhs_dilation", 1 if lhs_dilation is None else lhs_dilation, count)
    rhs_steps = whole_numbers("rhs_dilation", 1 if rhs_dilation is None else rhs_dilation, count)
    if isinstance(padding, str) and any(d != 1 for d in lhs_steps) and padding.upper() != "VALID":
        raise _wrong(
            f"conv_general_dilated got padding={padding!r} and lhs_dilation={lhs_steps}",
            "Of a dilated input it is not clear what the same size is.",
            "Use lax.conv_transpose, or give the padding in pairs.",
        )
    window = tuple((w.shape[d] - 1) * s + 1 for d, s in zip(numbers.rhs_spec[2:], rhs_steps, strict=True))
    pairs = window_padding(padding, tuple(x.shape[d] for d in numbers.lhs_spec[2:]), window, strides)
    return convolution(x, w, numbers, strides, pairs, lhs_steps, rhs_steps, feature_group_count, batch_group_count)


def conv(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str, precision: Any = None) -> Any:
    """The convolution of (N, C, *spatial) and (C_out, C_in, *window), as jax.lax.conv.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.conv(np.arange(5.0).reshape(1, 1, 5), np.array([[[1.0, 0.0, -1.0]]]), (1,), "VALID")
        array([[[-2., -2., -2.]]])
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding)


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Any, rhs_dilation: Any, precision: Any = None
) -> Any:
    """The same with dilations and padding in pairs, as jax.lax.conv_with_general_padding.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.conv_with_general_padding(np.ones((1, 1, 3)), np.ones((1, 1, 2)), (1,), [(1, 1)], (1,), (1,))
        array([[[1., 2., 2., 1.]]])
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)


def conv_transpose(
    lhs: Any, rhs: Any, strides: Sequence[int], padding: Any, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None, transpose_kernel: bool = False, precision: Any = None,
) -> Any:  # fmt: skip
    """The transposed ("fractionally strided") convolution, as jax.lax.conv_transpose: the result is `strides` times as large.

    dimension_numbers: by default channels last, e.g. ("NHWC", "HWIO", "NHWC"). transpose_kernel: turn the kernel around and
    exchange its
    features, which makes it the derivative of a convolution by its input (what PyTorch's ConvTranspose computes). padding in
    pairs is that of the dilated input.

    >>> import numpy as np
    >>> from fxgrad import lax
    >>> lax.conv_transpose(np.ones((1, 3, 1)), np.ones((2, 1, 1)), (2,), "SAME")[0, :, 0]
    array([1., 1., 1., 1., 1., 1.])
    """
    x, w = tensor(lhs), tensor(rhs)
    count = x.ndim - 2
    if dimension_numbers is None:
        middle = "HWD"[:count] if count < MOST_WINDOWS else "DHW"
        dimension_numbers = (f"N{middle}C", f"{middle}IO", f"N{middle}C")
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    steps = whole_numbers("strides", strides, count)
    dilation = whole_numbers("rhs_dilation", 1 if rhs_dilation is None else rhs_dilation, count)
    window = [(w.shape[d] - 1) * s + 1 for d, s in zip(numbers.rhs_spec[2:], dilation, strict=True)]
    if isinstance(padding, str) and padding.upper() in ("SAME", "VALID"):
        padding = [_transposed_padding(k, s, padding.upper()) for k, s in zip(window, steps, strict=True)]
    if transpose_kernel:
        w = reverse(w, axes=tuple(sorted(numbers.rhs_spec[2:])))
        o, i, *rest = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(i, o, *rest))
    return conv_general_dilated(x, w, (1,) * count, padding, steps, dilation, numbers)


def _transposed_padding(k: int, s: int, name: str) -> tuple[int, int]:
    """JAX's: the result has s times the size ("SAME"), or all that the kernel reaches ("VALID")."""
    if name == "SAME":
        total, low = k + s - 2, k - 1 if s > k - 1 else math.ceil((k + s - 2) / 2)
    else:
        total, low = k + s - 2 + max(k - s, 0), k - 1
    return low, total - low
