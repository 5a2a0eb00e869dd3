"""Rearranging arrays: shapes, axes, joining, splitting, repeating, padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
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
    result_type,
    static_int,
    tensor,
)
from fxgrad.primitives import shape as s
from fxgrad.trace.tracer import Tracer

__all__ = [
    "append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "block", "broadcast_arrays", "broadcast_to",
    "column_stack", "concat", "concatenate", "delete", "dsplit", "dstack", "expand_dims", "flip", "fliplr", "flipud",
    "hsplit", "hstack", "insert", "matrix_transpose", "moveaxis", "pad", "permute_dims", "ravel", "repeat", "reshape",
    "resize", "roll", "rollaxis", "rot90", "row_stack", "split", "squeeze", "stack", "swapaxes", "tile", "transpose",
    "unstack", "vsplit", "vstack",
]  # fmt: skip

# ---- shapes and axes -------------------------------------------------------------------------------------------------


def _refuse_order(name: str, order: str | None) -> None:
    if order not in ("C", "K", "A", None):
        raise errors.UnsupportedError(
            f"np.{name}(..., order={order!r}) is not supported",
            why="fxgrad's arrays have no memory order; elements are read in C order.",
            fix="Transpose first: np.reshape(x.T, shape[::-1]).T is order='F'.",
        )


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
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
    return _reshaped(x, tuple(x.size // known if n == -1 else n for n in lengths))


def ravel(a: Any, order: str = "C") -> Any:
    """`a` as a vector, in C order, as numpy.ravel."""
    _refuse_order("ravel", order)
    x = tensor(a)
    return _reshaped(x, (x.size,))


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
    return _reshaped(x, tuple(1 if i in new else next(lengths) for i in range(ndim)))


def squeeze(a: Any, axis: Any = None) -> Any:
    """Axes of length 1 (all, or those named) removed, as numpy.squeeze."""
    x = tensor(a)
    axes = tuple(i for i, n in enumerate(x.shape) if n == 1) if axis is None else canonical_axes(axis, x.ndim)
    if any(x.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return _reshaped(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


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
            return _reshaped(x, (*x.shape, 1) if x.ndim == 2 else (1, *x.shape, 1))
        return _reshaped(x, (1,) * (rank - x.ndim) + x.shape)

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
    items = [operand(x) for x in _items(arrays)]
    if not items:
        raise ValueError("need at least one array to concatenate")
    target = np.dtype(dtype) if dtype is not None else result_type(*items)
    xs = [tensor(as_dtype(x, target)) for x in items]
    if axis is None:
        xs, axis = [_reshaped(x, (x.size,)) for x in xs], 0
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
    return s.concatenate(*xs, axis=axis) if len(xs) > 1 else xs[0]


concat = concatenate


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays of one shape joined along a new axis, as numpy.stack."""
    refuse_out("stack", out)
    items = [operand(x) for x in _items(arrays)]
    if not items:
        raise ValueError("need at least one array to stack")
    target = np.dtype(dtype) if dtype is not None else result_type(*items)
    xs = [tensor(as_dtype(x, target)) for x in items]
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
    return concatenate([x if x.ndim > 1 else _reshaped(x, (x.size, 1)) for x in xs], 1)


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
            return _reshaped(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([join(part, level - 1) for part in x], axis=-level)

    return join(arrays, levels)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`values` joined to the end of `arr`, as numpy.append."""
    return concatenate([arr, values], axis)


# ---- splitting -------------------------------------------------------------------------------------------------------


def _cut(x: Any, axis: int, start: int, stop: int) -> Any:
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
    return [_cut(x, axis, a, b) for a, b in itertools.pairwise(points)]


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


# ---- flipping, rolling, repeating --------------------------------------------------------------------------------------


def flip(m: Any, axis: Any = None) -> Any:
    """The elements backwards along axes (all by default), as numpy.flip."""
    x = tensor(m)
    axes = canonical_axes(axis, x.ndim)
    return s.reverse(x, axes=axes) if axes else x


def flipud(m: Any) -> Any:
    """The first axis backwards, as numpy.flipud."""
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    """The second axis backwards, as numpy.fliplr."""
    return flip(m, 1)


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """A rotation by k quarter turns in the plane of two axes, as numpy.rot90."""
    x = tensor(m)
    i, j = (canonical_axis(a, x.ndim) for a in axes)
    if i == j:
        raise ValueError("Axes must be different.")
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return flip(x, (i, j))
    return swapaxes(flip(x, j), i, j) if k == 1 else flip(swapaxes(x, i, j), j)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved around along axes, those pushed out coming in again, as numpy.roll; a traced shift of an axis is fine."""
    x = tensor(a)
    if axis is None:
        return _reshaped(roll(_reshaped(x, (x.size,)), shift, 0), x.shape)
    axes = [canonical_axis(i, x.ndim) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    if len(shifts) == 1:
        shifts *= len(axes)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    for n, i in zip(shifts, axes, strict=True):
        x = _roll_one(x, n, i)
    return x


def _roll_one(x: Any, shift: Any, axis: int) -> Any:
    n = x.shape[axis]
    if n == 0:
        return x
    if type(operand(shift)) is Tracer:
        from fxgrad.numpy.core import iota
        from fxgrad.numpy.elementwise import remainder, subtract
        from fxgrad.numpy.selection import take

        return take(x, remainder(subtract(iota((n,)), shift), n), axis=axis)
    k = static_int(shift) % n
    return x if k == 0 else s.concatenate(_cut(x, axis, n - k, n), _cut(x, axis, 0, n - k), axis=axis)


def tile(A: Any, reps: Any) -> Any:
    """`A` repeated whole along each axis, as numpy.tile."""
    x = tensor(A)
    counts = [static_int(r) for r in reps] if isinstance(reps, (tuple, list)) or np.ndim(reps) else [static_int(reps)]
    ndim = max(x.ndim, len(counts))
    counts = [1] * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    wide = s.broadcast(
        x,
        shape=tuple(n for pair in zip(counts, shape, strict=True) for n in pair),
        dims=tuple(2 * (ndim - x.ndim + i) + 1 for i in range(x.ndim)),
    )
    return _reshaped(wide, tuple(c * n for c, n in zip(counts, shape, strict=True)))


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated along an axis (of the flattened array by default), as numpy.repeat; counts must be known."""
    x = tensor(a)
    if axis is None:
        x, axis = _reshaped(x, (x.size,)), 0
    axis = canonical_axis(axis, x.ndim)
    n = x.shape[axis]
    counts = _known_counts(repeats)
    if counts.ndim == 0 or counts.size == 1:
        c = int(counts.reshape(()))
        if c < 0:
            raise ValueError("repeats may not contain negative values.")
        shape = (*x.shape[: axis + 1], c, *x.shape[axis + 1 :])
        wide = s.broadcast(x, shape=shape, dims=tuple(i for i in range(len(shape)) if i != axis + 1))
        return _reshaped(wide, (*x.shape[:axis], n * c, *x.shape[axis + 1 :]))
    if counts.shape != (n,):
        raise ValueError(f"operands could not be broadcast together with shape ({n},) {counts.shape}")
    from fxgrad.numpy.selection import take

    return take(x, np.repeat(np.arange(n), counts), axis=axis)


def _known_counts(repeats: Any) -> np.ndarray:
    r = operand(repeats)
    if type(r) is Tracer:
        r = r._known("repetition counts, which fix a shape", "Give the counts as Python ints or a plain array.")
    out = np.asarray(r)
    if out.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {out.dtype!r} to dtype('int64') according to the rule 'safe'")
    return out


def resize(a: Any, new_shape: Any) -> Any:
    """`a` repeated or cut to fill a new shape, as numpy.resize."""
    from fxgrad.numpy.core import static_shape
    from fxgrad.numpy.creation import zeros

    x, shape = ravel(a), static_shape(new_shape)
    size = math.prod(shape)
    if not x.size:
        return zeros(shape, x.dtype)
    times = -(-size // x.size)
    return reshape(_cut(tile(x, times), 0, 0, size), shape)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """`arr` without the entries at known positions, as numpy.delete."""
    from fxgrad.numpy.selection import take

    x = tensor(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    kept = np.delete(np.arange(x.shape[axis]), [static_int(i) for i in obj] if isinstance(obj, (list, tuple)) else obj)
    return take(x, kept, axis=axis)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """`values` inserted before one known position, as numpy.insert."""
    x = tensor(arr)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonical_axis(axis, x.ndim)
    if not isinstance(obj, (int, np.integer)):
        raise errors.UnsupportedError(
            "np.insert at several positions is not supported", fix="Concatenate the parts: np.concatenate([x[:i], v, x[i:]])."
        )
    n = x.shape[axis]
    if not -n <= obj <= n:
        raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {n}")
    i = int(obj) + (n if obj < 0 else 0)
    v = tensor(as_dtype(operand(values), x.dtype))
    v = moveaxis(_reshaped(v, (1,) * (x.ndim - v.ndim) + v.shape), 0, axis)
    shape = list(x.shape)
    shape[axis] = v.shape[axis]
    return concatenate([_cut(x, axis, 0, i), broadcast_to(v, tuple(shape)), _cut(x, axis, i, n)], axis)


# ---- padding ---------------------------------------------------------------------------------------------------------


def _pairs(width: Any, ndim: int, what: str) -> list[tuple[Any, Any]]:
    """((before, after), ...) for each axis from NumPy's short forms; entries may be traced."""
    if isinstance(width, dict):
        named = {canonical_axis(k, ndim): v for k, v in width.items()}
        return [tuple(v) if isinstance(v := named.get(i, 0), (tuple, list)) else (v, v) for i in range(ndim)]  # type: ignore[misc]
    if isinstance(width, np.ndarray):
        width = width.tolist()
    if not isinstance(width, (tuple, list)):
        return [(width, width)] * ndim
    rows = [tuple(w) if isinstance(w, (tuple, list, np.ndarray)) else w for w in width]
    if all(not isinstance(w, tuple) for w in rows):
        pair = (rows[0], rows[0]) if len(rows) == 1 else tuple(rows)
        if len(pair) != 2:
            raise ValueError(f"operands could not be broadcast together with remapped shapes: {what} {width} for rank {ndim}")
        return [pair] * ndim  # type: ignore[list-item]
    pairs = [(w[0], w[0]) if len(w) == 1 else w for w in rows]  # type: ignore[arg-type]
    pairs = pairs * ndim if len(pairs) == 1 else pairs
    if len(pairs) != ndim:
        raise ValueError(f"{what} has {len(pairs)} entries, the array has rank {ndim}")
    return pairs  # type: ignore[return-value]


def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0, **kwargs: Any) -> Any:
    """`array` with borders, as numpy.pad. mode: constant, edge, reflect, symmetric, wrap; constants may be traced."""
    x = tensor(array)
    widths = [(static_int(a), static_int(b)) for a, b in _pairs(pad_width, x.ndim, "pad_width")]
    if any(min(pair) < 0 for pair in widths):
        raise ValueError("index can't contain negative values")
    if (
        kwargs.pop("reflect_type", "even") != "even"
        or kwargs
        or mode not in ("constant", "edge", "reflect", "symmetric", "wrap", "empty")
    ):
        raise errors.UnsupportedError(
            f"np.pad(..., mode={mode!r}{''.join(f', {k}=...' for k in kwargs)}) is not supported",
            why="The modes are constant, edge, reflect (even), symmetric (even) and wrap.",
            fix="Build the border yourself and join it with np.concatenate.",
        )
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, constant_values)
    from fxgrad.numpy.selection import take

    for axis, (before, after) in enumerate(widths):
        if before or after:
            if not x.shape[axis]:
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
            x = take(x, np.pad(np.arange(x.shape[axis]), (before, after), mode=mode), axis=axis)  # type: ignore[call-overload]
    return x


def _pad_constant(x: Any, widths: list[tuple[int, int]], constant: Any) -> Any:
    values = _pairs(constant, x.ndim, "constant_values")
    first = values[0][0] if values else 0
    if all(v is first for pair in values for v in pair):
        value = tensor(as_dtype(operand(first), x.dtype)) if type(operand(first)) is Tracer else x.dtype.type(first)
        return (
            s.pad(x, value, low=tuple(a for a, _ in widths), high=tuple(b for _, b in widths), interior=(0,) * x.ndim)
            if x.ndim
            else x
        )
    for axis, ((before, after), pair) in enumerate(zip(widths, values, strict=True)):
        for count, value, front in ((before, pair[0], True), (after, pair[1], False)):
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            border = broadcast_to_shape(tensor(as_dtype(operand(value), x.dtype)), shape)
            x = s.concatenate(*((border, x) if front else (x, border)), axis=axis)
    return x
