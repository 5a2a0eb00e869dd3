"""Rearranging arrays: shapes, axes, joining, splitting."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.core import (
    as_dtype,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    operand,
    refuse_out,
    static_int,
    tensor,
)
from fxgrad.primitives import shape as s
from fxgrad.trace.mutation import copied
from fxgrad.trace.tracer import Tracer

__all__ = [
    "append",
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block",
    "broadcast_arrays",
    "broadcast_to",
    "column_stack",
    "concat",
    "concatenate",
    "dsplit",
    "dstack",
    "expand_dims",
    "hsplit",
    "hstack",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "rollaxis",
    "row_stack",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
    "unstack",
    "vsplit",
    "vstack",
]

# ---- shapes and axes -------------------------------------------------------------------------------------------------


def _refuse_order(name: str, order: str | None) -> None:
    if order not in ("C", "K", "A", None):
        raise errors.UnsupportedError(
            f"np.{name}(..., order={order!r}) is not supported",
            why="fxgrad's arrays have no memory order; elements are read in C order.",
            fix="Transpose first: np.reshape(x.T, shape[::-1]).T is order='F'.",
        )


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else s.reshape(x, shape=shape)


def reshape(a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: bool | None = None) -> Any:
    """The elements of `a` in another shape, in which one length may be -1, as numpy.reshape."""
    _refuse_order("reshape", order)
    shape = newshape if shape is None else shape
    x = tensor(a)
    lengths = [static_int(n) for n in shape] if isinstance(shape, (tuple, list)) or np.ndim(shape) else [static_int(shape)]
    if lengths.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    known = math.prod(n for n in lengths if n != -1)
    fits = (known and x.size % known == 0) if -1 in lengths else known == x.size
    if not fits or any(n < -1 for n in lengths):
        raise errors.FxValueError(
            f"cannot reshape array of size {x.size} into shape {tuple(lengths)}",
            why=f"The shape {x.shape} has {x.size} elements.",
            fix="Write -1 for one length to have it computed.",
        )
    return reshaped(x, tuple(x.size // known if n == -1 else n for n in lengths))


def ravel(a: Any, order: str = "C") -> Any:
    """`a` as a vector, in C order, as numpy.ravel."""
    _refuse_order("ravel", order)
    x = tensor(a)
    return reshaped(x, (x.size,))


def transpose(a: Any, axes: Any = None) -> Any:
    """The axes in the order `axes`, reversed by default, as numpy.transpose."""
    x = tensor(a)
    if axes is None:
        perm = tuple(range(x.ndim))[::-1]
    else:
        if len(axes) != x.ndim:
            raise ValueError("axes don't match array")
        perm = tuple(canonical_axis(i, x.ndim) for i in axes)
        if len(set(perm)) != x.ndim:
            raise ValueError("repeated axis in transpose")
    return x if perm == tuple(range(x.ndim)) else s.transpose(x, perm=perm)


def permute_dims(a: Any, axes: Any) -> Any:
    """The axes in the order `axes`, as numpy.permute_dims."""
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged, as numpy.matrix_transpose."""
    x = tensor(x)
    if x.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x.ndim}")
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged, as numpy.swapaxes."""
    x = tensor(a)
    i, j = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    perm = list(range(x.ndim))
    perm[i], perm[j] = j, i
    return transpose(x, perm)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Axes moved to new places, the others in their order, as numpy.moveaxis."""
    x = tensor(a)
    src = [canonical_axis(i, x.ndim) for i in (source if isinstance(source, (tuple, list)) else (source,))]
    dst = [canonical_axis(i, x.ndim) for i in (destination if isinstance(destination, (tuple, list)) else (destination,))]
    if len(src) != len(dst):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    if len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ValueError("repeated axis in `source` or `destination` argument")
    perm = [i for i in range(x.ndim) if i not in src]
    for d, i in sorted(zip(dst, src, strict=True)):
        perm.insert(d, i)
    return transpose(x, perm)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """`axis` moved before position `start`, as numpy.rollaxis."""
    x = tensor(a)
    axis = canonical_axis(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if axis < start else start)


def expand_dims(a: Any, axis: Any) -> Any:
    """New axes of length 1 at the positions `axis` of the result, as numpy.expand_dims."""
    x = tensor(a)
    axis = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(axis)
    new = canonical_axes(tuple(axis), ndim)
    lengths = iter(x.shape)
    return reshaped(x, tuple(1 if i in new else next(lengths) for i in range(ndim)))


def squeeze(a: Any, axis: Any = None) -> Any:
    """Axes of length 1 (all, or those named) removed, as numpy.squeeze."""
    x = tensor(a)
    axes = tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else canonical_axes(axis, x.ndim)
    if any(x.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshaped(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """`array` repeated to `shape`, as numpy.broadcast_to."""
    x = tensor(array)
    shape = tuple(static_int(n) for n in shape) if isinstance(shape, (tuple, list)) else (static_int(shape),)
    try:
        fits = np.broadcast_shapes(x.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise errors.FxValueError(
            f"cannot broadcast shape {x.shape} to {shape}",
            why="Aligned from the right, each length must be equal or 1.",
            fix="Add axes where they belong: x[:, None] lines a vector up with rows.",
        )
    return broadcast_to_shape(x, shape)


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple:
    """All arguments in their common shape, as numpy.broadcast_arrays."""
    xs = [tensor(x) for x in args]
    shape = broadcast_shapes(*[x.shape for x in xs])
    return tuple(broadcast_to_shape(x, shape) for x in xs)


def _at_least(name: str, rank: int) -> Any:
    def raised(a: Any) -> Any:
        x = tensor(a)
        if x.ndim >= rank:
            return x
        if rank == 3 and x.ndim:
            return reshaped(x, (*x.shape, 1) if x.ndim == 2 else (1, *x.shape, 1))
        return reshaped(x, (1,) * (rank - x.ndim) + x.shape)

    def function(*arys: Any) -> Any:
        return raised(arys[0]) if len(arys) == 1 else tuple(raised(a) for a in arys)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The arguments with rank {rank} or more, as numpy.{name}."
    return function


atleast_1d = _at_least("atleast_1d", 1)
atleast_2d = _at_least("atleast_2d", 2)
atleast_3d = _at_least("atleast_3d", 3)

# ---- joining ---------------------------------------------------------------------------------------------------------


def _items(arrays: Any) -> list[Any]:
    """The members of a sequence of arrays; an array is the sequence of its rows."""
    if isinstance(arrays, (list, tuple)):
        return list(arrays)
    x = operand(arrays)
    return [x[i] for i in range(len(x))]


def concatenate(arrays: Any, /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays joined along an axis (None: flattened first), as numpy.concatenate."""
    refuse_out("concatenate", out)
    items = [tensor(x) for x in _items(arrays)]
    if not items:
        raise ValueError("need at least one array to concatenate")
    target = np.dtype(dtype) if dtype is not None else np.result_type(*[x.dtype for x in items])
    xs = [as_dtype(x, target) for x in items]
    if axis is None:
        xs, axis = [reshaped(x, (x.size,)) for x in xs], 0
    if not xs[0].ndim:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = canonical_axis(axis, xs[0].ndim)
    for i, x in enumerate(xs):
        if x.ndim != xs[0].ndim or any(a != b for j, (a, b) in enumerate(zip(x.shape, xs[0].shape, strict=True)) if j != axis):
            raise errors.FxValueError(
                f"cannot concatenate shapes {xs[0].shape} and {x.shape} along axis {axis}",
                why=f"All dimensions but that of the concatenation axis must match exactly; arrays 0 and {i} differ.",
                fix="Reshape or transpose first; np.stack joins arrays of one shape along a new axis.",
            )
    if len(xs) > 1:
        return s.concatenate(*xs, axis=axis)
    return copied(xs[0]) if type(xs[0]) is Tracer else np.array(xs[0])


concat = concatenate


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays of one shape joined along a new axis, as numpy.stack."""
    refuse_out("stack", out)
    items = [tensor(x) for x in _items(arrays)]
    if not items:
        raise ValueError("need at least one array to stack")
    target = np.dtype(dtype) if dtype is not None else np.result_type(*[x.dtype for x in items])
    xs = [as_dtype(x, target) for x in items]
    if any(x.shape != xs[0].shape for x in xs):
        raise errors.FxValueError(
            f"all input arrays must have the same shape, got {', '.join(str(x.shape) for x in xs)}",
            why="np.stack puts arrays side by side along a new axis.",
            fix="Use np.concatenate for arrays of different lengths, or np.broadcast_arrays first.",
        )
    axis = canonical_axis(axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, axis) for x in xs], axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple:
    """The slices along an axis, as numpy.unstack."""
    x = moveaxis(x, axis, 0) if tensor(x).ndim else tensor(x)
    if not x.ndim:
        raise ValueError("Input array must be at least 1-d.")
    return tuple(x[i] for i in range(x.shape[0]))


def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays on top of each other, as numpy.vstack."""
    return concatenate([atleast_2d(x) for x in _items(tup)], 0, dtype=dtype)


row_stack = vstack


def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays beside each other, as numpy.hstack."""
    xs = [atleast_1d(x) for x in _items(tup)]
    return concatenate(xs, 0 if xs and xs[0].ndim == 1 else 1, dtype=dtype)


def dstack(tup: Any) -> Any:
    """Arrays behind each other, as numpy.dstack."""
    return concatenate([atleast_3d(x) for x in _items(tup)], 2)


def column_stack(tup: Any) -> Any:
    """Vectors as columns of a matrix, as numpy.column_stack."""
    xs = [tensor(x) for x in _items(tup)]
    return concatenate([x if x.ndim > 1 else reshaped(x, (x.size, 1)) for x in xs], 1)


def block(arrays: Any) -> Any:
    """An array from nested lists of blocks, as numpy.block."""

    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, list) else 0

    levels = depth(arrays)

    def leaves(x: Any) -> list[Any]:
        return [leaf for part in x for leaf in leaves(part)] if isinstance(x, list) else [tensor(x)]

    rank = max([levels, *(x.ndim for x in leaves(arrays))])

    def join(x: Any, level: int) -> Any:
        if not isinstance(x, list):
            x = tensor(x)
            return reshaped(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([join(part, level - 1) for part in x], axis=-level)

    return join(arrays, levels)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`values` joined to the end of `arr`, as numpy.append."""
    return concatenate([arr, values], axis)


# ---- splitting -------------------------------------------------------------------------------------------------------


def cut_along(x: Any, axis: int, start: int, stop: int) -> Any:
    from fxgrad.primitives.reduce import cut

    return cut(x, axis, start, max(start, stop))


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Parts along an axis, of nearly equal length or between given positions, as numpy.array_split."""
    x = tensor(ary)
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(indices_or_sections, (list, tuple)) or np.ndim(indices_or_sections):
        marks = [slice(static_int(i)).indices(n)[1] for i in indices_or_sections]
        points = [0, *marks, n]
    else:
        sections = static_int(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = builtins_divmod(n, sections)
        points = [0]
        for i in range(sections):
            points.append(points[-1] + each + (i < extra))
    return [cut_along(x, axis, a, b) for a, b in itertools.pairwise(points)]


builtins_divmod = divmod


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Equal parts along an axis, or parts between given positions, as numpy.split."""
    x = tensor(ary)
    if not (isinstance(indices_or_sections, (list, tuple)) or np.ndim(indices_or_sections)):
        n, sections = x.shape[canonical_axis(axis, x.ndim)], static_int(indices_or_sections)
        if n % sections:
            raise errors.FxValueError(
                f"array split does not result in an equal division: length {n} into {sections}",
                why="np.split makes parts of one length.",
                fix="Use np.array_split for parts of nearly equal length.",
            )
    return array_split(x, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list:
    """Parts along the second axis (the first of a vector), as numpy.hsplit."""
    x = tensor(ary)
    return split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> list:
    """Parts along the first axis, as numpy.vsplit."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list:
    """Parts along the third axis, as numpy.dsplit."""
    return split(ary, indices_or_sections, 2)
