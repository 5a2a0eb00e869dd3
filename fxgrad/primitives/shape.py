"""Rearranging primitives: no arithmetic, linear, and mostly views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Primitive, batch_together, linear_map, register, type_error, zeros
from fxgrad.primitives.base import Linear as _Linear

Ints = tuple[int, ...]


def add_batch_axis(x: Any, size: int) -> Any:
    """x repeated `size` times along a new leading axis (a view)."""
    shape = aval_of(x).shape
    return broadcast(x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))


def inverse(perm: Ints) -> Ints:
    out = [0] * len(perm)
    for i, p in enumerate(perm):
        out[p] = i
    return tuple(out)


def merge_axes_last(x: Any, axes: Ints) -> Any:
    """The given axes moved to the end, in order, and merged into one."""
    shape = aval_of(x).shape
    kept = tuple(i for i in range(len(shape)) if i not in axes)
    n = math.prod(shape[i] for i in axes)
    moved = transpose(x, perm=(*kept, *axes))
    return reshape(moved, shape=(*(shape[i] for i in kept), n))


def split_axis_last(x: Any, shape: Ints, axes: Ints) -> Any:
    """Undo merge_axes_last; `shape` is the original shape."""
    kept = tuple(i for i in range(len(shape)) if i not in axes)
    full = reshape(x, shape=(*(shape[i] for i in kept), *(shape[i] for i in axes)))
    return transpose(full, perm=inverse((*kept, *axes)))


# ---- broadcast, reshape, transpose, reverse ----------------------------------------------------------------------------


def _broadcast_typ(x: Aval, *, shape: Ints, dims: Ints) -> list[Aval]:
    if len(dims) != x.ndim or any(x.shape[i] not in (1, shape[d]) for i, d in enumerate(dims)) or list(dims) != sorted(set(dims)):
        raise type_error("broadcast", (x,), f"Axes {dims} of shape {shape} do not hold it.")
    return [x.with_shape(shape)]


def _broadcast_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, shape: Ints, dims: Ints) -> list:
    from fxgrad.primitives.reduce import sum_

    x = inputs[0].aval
    new = tuple(i for i in range(len(shape)) if i not in dims)
    stretched = tuple(d for i, d in enumerate(dims) if x.shape[i] == 1 and shape[d] != 1)
    axes = tuple(sorted(new + stretched))
    g = sum_(cts[0], axes=axes) if axes else cts[0]
    return [g if aval_of(g).shape == x.shape else reshape(g, shape=x.shape)]


def _broadcast_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, shape: Ints, dims: Ints
) -> tuple[list, list[bool]]:
    return [broadcast(args[0], shape=(size, *shape), dims=(0, *(d + 1 for d in dims)))], [True]


def _broadcast_numpy(x: Any, *, shape: Ints, dims: Ints) -> Any:
    x = np.asarray(x)
    if len(dims) != len(shape):
        slots = [1] * len(shape)
        for n, d in zip(x.shape, dims, strict=True):
            slots[d] = n
        x = x.reshape(slots)
    return np.broadcast_to(x, shape)


broadcast = linear_map(
    "broadcast",
    "view",
    _broadcast_typ,
    Doc("x repeated to `shape`, its axes at `dims`", "g summed over the repeated axes"),
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    numpy=_broadcast_numpy,
)


def _reshape_typ(x: Aval, *, shape: Ints) -> list[Aval]:
    if math.prod(shape) != x.size:
        raise type_error("reshape", (x,), f"It has {x.size} elements, shape {shape} has {math.prod(shape)}.")
    return [x.with_shape(shape)]


reshape = linear_map(
    "reshape",
    "view",
    _reshape_typ,
    Doc("the elements in row-major order in another shape", "g reshaped back"),
    transpose=lambda cts, inputs, *, shape: [reshape(cts[0], shape=inputs[0].aval.shape)],
    batch=lambda size, args, batched, *, shape: ([reshape(args[0], shape=(size, *shape))], [True]),
    numpy=lambda x, *, shape: np.reshape(x, shape),
)


def _transpose_typ(x: Aval, *, perm: Ints) -> list[Aval]:
    if sorted(perm) != list(range(x.ndim)):
        raise type_error("transpose", (x,), f"perm={perm} is not a permutation of its axes.")
    return [x.with_shape(tuple(x.shape[p] for p in perm))]


transpose = linear_map(
    "transpose",
    "view",
    _transpose_typ,
    Doc("axes in the order `perm`", "g with the axes put back"),
    transpose=lambda cts, inputs, *, perm: [transpose(cts[0], perm=inverse(perm))],
    batch=lambda size, args, batched, *, perm: ([transpose(args[0], perm=(0, *(p + 1 for p in perm)))], [True]),
    numpy=lambda x, *, perm: np.transpose(x, perm),
)


def _reverse_typ(x: Aval, *, axes: Ints) -> list[Aval]:
    if any(not 0 <= i < x.ndim for i in axes):
        raise type_error("reverse", (x,), f"axes={axes} must be within rank {x.ndim}.")
    return [x]


reverse = linear_map(
    "reverse",
    "view",
    _reverse_typ,
    Doc("the elements backwards along axes", "g backwards along axes"),
    transpose=lambda cts, inputs, *, axes: [reverse(cts[0], axes=axes)],
    batch=lambda size, args, batched, *, axes: ([reverse(args[0], axes=tuple(i + 1 for i in axes))], [True]),
    numpy=lambda x, *, axes: np.flip(x, axes),
)

# ---- slice, pad, concatenate -------------------------------------------------------------------------------------------


def slice_length(start: int, stop: int, step: int) -> int:
    return max(0, -(-(stop - start) // step))


def _slice_typ(x: Aval, *, start: Ints, stop: Ints, step: Ints) -> list[Aval]:
    for n, lo, hi, s in zip(x.shape, start, stop, step, strict=True):
        if not (0 <= lo <= hi <= n and s >= 1):
            raise type_error("slice", (x,), f"start={start}, stop={stop}, step={step} do not lie within the shape.")
    return [x.with_shape(tuple(slice_length(*t) for t in zip(start, stop, step, strict=True)))]


def _slice_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, start: Ints, stop: Ints, step: Ints) -> list:
    g, shape = cts[0], inputs[0].aval.shape
    high, interior = [], []
    for n, lo, m, s in zip(shape, start, aval_of(g).shape, step, strict=True):
        high.append(n - lo - (m + (m - 1) * (s - 1) if m else 0))
        interior.append(s - 1)
    return [pad(g, aval_of(g).dtype.type(0), low=start, high=tuple(high), interior=tuple(interior))]


def _slice_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, start: Ints, stop: Ints, step: Ints
) -> tuple[list, list[bool]]:
    return [slice_(args[0], start=(0, *start), stop=(size, *stop), step=(1, *step))], [True]


slice_ = linear_map(
    "slice",
    "view",
    _slice_typ,
    Doc("x[start:stop:step] in every axis", "g written into zeros"),
    transpose=_slice_transpose,
    batch=_slice_batch,
    numpy=lambda x, *, start, stop, step: x[tuple(map(slice, start, stop, step))],
)


def _pad_typ(x: Aval, value: Aval, *, low: Ints, high: Ints, interior: Ints) -> list[Aval]:
    if value.shape != () or value.dtype != x.dtype or min((*low, *high, *interior, 0)) < 0:
        raise type_error(
            "pad", (x, value), f"low={low}, high={high}, interior={interior} must be >= 0 and the value a scalar of its dtype."
        )
    shape = (lo + (n + (n - 1) * i if n else 0) + hi for n, lo, hi, i in zip(x.shape, low, high, interior, strict=True))
    return [x.with_shape(tuple(shape))]


def _interior(low: Ints, interior: Ints, shape: Ints) -> tuple[Ints, Ints, Ints]:
    """Where the padded operand's own elements stand in the result."""
    stop = tuple(lo + (n + (n - 1) * i if n else 0) for lo, n, i in zip(low, shape, interior, strict=True))
    return low, stop, tuple(i + 1 for i in interior)


def _pad_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
    (x, value), (tx, tv) = primals, tangents
    y = pad(x, value, **params)
    if tx is None and tv is None:
        return [y], [None]
    return [y], [pad(zeros(aval_of(x)) if tx is None else tx, aval_of(x).dtype.type(0) if tv is None else tv, **params)]


def _pad_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, low: Ints, high: Ints, interior: Ints) -> list:
    from fxgrad.primitives.reduce import sum_

    g, x, value = cts[0], inputs[0], inputs[1]
    shape = aval_of(x).shape
    start, stop, step = _interior(low, interior, shape)
    to_x = slice_(g, start=start, stop=stop, step=step) if isinstance(x, _Linear) else None
    to_value = None
    if isinstance(value, _Linear):
        zero = aval_of(g).dtype.type(0)
        hole = broadcast(np.bool_(True), shape=shape, dims=())
        inside = pad(hole, np.bool_(False), low=low, high=high, interior=interior)
        from fxgrad.primitives.elementwise import select

        to_value = sum_(select(inside, zero, g), axes=tuple(range(len(low))))
    return [to_x, to_value]


def _pad_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, low: Ints, high: Ints, interior: Ints
) -> tuple[list, list[bool]]:
    x, value = args
    if not batched[0]:
        x = add_batch_axis(x, size)
    params = {"low": (0, *low), "high": (0, *high), "interior": (0, *interior)}
    if not batched[1]:
        return [pad(x, value, **params)], [True]
    from fxgrad.primitives.elementwise import select

    hole = pad(broadcast(np.bool_(True), shape=aval_of(x).shape, dims=()), np.bool_(False), **params)
    padded = pad(x, aval_of(x).dtype.type(0), **params)
    return [select(hole, padded, broadcast(value, shape=aval_of(padded).shape, dims=(0,)))], [True]


def _pad_numpy(x: Any, value: Any, *, low: Ints, high: Ints, interior: Ints) -> Any:
    x = np.asarray(x)
    start, stop, step = _interior(low, interior, x.shape)
    shape = tuple(s + h for s, h in zip(stop, high, strict=True))
    out = np.full(shape, value, x.dtype)
    out[tuple(map(slice, start, stop, step))] = x
    return out


pad = register(
    Primitive(
        "pad",
        "host",
        _pad_typ,
        Doc(
            "x with `value` around (low, high) and between (interior) its elements",
            "g at x's places; the sum of the rest to value",
        ),
        jvp=_pad_jvp,
        transpose=_pad_transpose,
        batch=_pad_batch,
        numpy=_pad_numpy,
    )
)


def _concatenate_typ(*xs: Aval, axis: int) -> list[Aval]:
    first = xs[0]
    if any(
        x.dtype != first.dtype
        or x.ndim != first.ndim
        or x.shape[:axis] + x.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]
        for x in xs
    ):
        raise type_error("concatenate", xs, f"All dimensions but axis {axis}, and the dtypes, must agree.")
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return [first.with_shape(tuple(shape))]


def _concatenate_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int) -> tuple[list, list]:
    full = [zeros(aval_of(p)) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    return [concatenate(*primals, axis=axis)], [concatenate(*full, axis=axis)]


def _concatenate_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axis: int) -> list:
    out, position = [], 0
    ndim = aval_of(cts[0]).ndim
    for x in inputs:
        shape = aval_of(x).shape
        if isinstance(x, _Linear):
            start, stop = [0] * ndim, list(aval_of(cts[0]).shape)
            start[axis], stop[axis] = position, position + shape[axis]
            out.append(slice_(cts[0], start=tuple(start), stop=tuple(stop), step=(1,) * ndim))
        else:
            out.append(None)
        position += shape[axis]
    return out


def _concatenate_batch(size: int, args: Sequence[Any], batched: Sequence[bool], *, axis: int) -> tuple[list, list[bool]]:
    return [concatenate(*batch_together(size, args, batched), axis=axis + 1)], [True]


concatenate = register(
    Primitive(
        "concatenate",
        "host",
        _concatenate_typ,
        Doc("arrays joined along an axis", "the parts of g"),
        jvp=_concatenate_jvp,
        transpose=_concatenate_transpose,
        batch=_concatenate_batch,
        numpy=lambda *xs, axis: np.concatenate(xs, axis),
    )
)

# ---- iota, dynamic slices ----------------------------------------------------------------------------------------------


def _iota_numpy(*, shape: Ints, dtype: np.dtype, axis: int) -> Any:
    slots = [1] * len(shape)
    slots[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis], dtype=dtype).reshape(slots), shape)


iota = register(
    Primitive(
        "iota",
        "host",
        lambda *, shape, dtype, axis: [Aval(shape, dtype)],
        Doc("0, 1, 2, ... along an axis", "none (no operands)"),
        jvp=lambda primals, tangents, **params: ([iota(**params)], [None]),
        numpy=_iota_numpy,
        batch=lambda size, args, batched, **params: ([iota(**params)], [False]),
    )
)


def _dynamic_slice_typ(x: Aval, *starts: Aval, sizes: Ints) -> list[Aval]:
    if len(starts) != x.ndim or len(sizes) != x.ndim or any(s.shape != () or s.dtype.kind not in "iu" for s in starts):
        raise type_error("dynamic_slice", (x, *starts), "It takes one integer scalar start and one size for each axis.")
    if any(m > n for m, n in zip(sizes, x.shape, strict=True)):
        raise type_error("dynamic_slice", (x,), f"sizes={sizes} are larger than the shape.")
    return [x.with_shape(sizes)]


def _window(shape: Ints, sizes: Ints, starts: Sequence[Any]) -> tuple[slice, ...]:
    """Starts are clamped so that the window lies inside, as in XLA's DynamicSlice."""
    lows = [max(0, min(int(s), n - m)) for s, n, m in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(lo, lo + m) for lo, m in zip(lows, sizes, strict=True))


def _dynamic_slice_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, sizes: Ints) -> list:
    return [dynamic_update_slice(zeros(inputs[0].aval), cts[0], *inputs[1:]), *[None] * len(sizes)]


def _dynamic_slice_batch(size: int, args: Sequence[Any], batched: Sequence[bool], *, sizes: Ints) -> tuple[list, list[bool]]:
    x, *starts = args
    if not any(batched[1:]):
        return [dynamic_slice(x, np.int64(0), *starts, sizes=(size, *sizes))], [True]
    x = x if batched[0] else add_batch_axis(x, size)
    from fxgrad.primitives.index import gather

    return [
        gather(x, *_window_indices(size, aval_of(x).shape[1:], sizes, starts, batched[1:]), axes=tuple(range(len(sizes) + 1)))
    ], [True]


def _window_indices(size: int, shape: Ints, sizes: Ints, starts: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Index arrays of shape (size, *sizes) that address a clamped window at its own start for each batch entry."""
    from fxgrad.primitives.elementwise import add, clip, convert

    int64 = np.dtype(np.int64)
    full = (size, *sizes)
    out = [iota(shape=full, dtype=int64, axis=0)]
    for i, (s, b) in enumerate(zip(starts, batched, strict=True)):
        s = convert(s, dtype=int64)
        s = clip(s, np.int64(0), np.int64(shape[i] - sizes[i]))
        s = broadcast(s, shape=full, dims=(0,) if b else ())
        out.append(add(s, iota(shape=full, dtype=int64, axis=i + 1)))
    return out


dynamic_slice = linear_map(
    "dynamic_slice",
    "host",
    _dynamic_slice_typ,
    Doc("a window of fixed sizes at starts given as values (clamped inside)", "g written into zeros at the window"),
    transpose=_dynamic_slice_transpose,
    batch=_dynamic_slice_batch,
    numpy=lambda x, *starts, sizes: np.asarray(x)[_window(np.shape(x), sizes, starts)].copy(),
)


def _dynamic_update_slice_typ(x: Aval, update: Aval, *starts: Aval) -> list[Aval]:
    if (
        len(starts) != x.ndim
        or update.dtype != x.dtype
        or update.ndim != x.ndim
        or any(m > n for m, n in zip(update.shape, x.shape, strict=True))
    ):
        raise type_error(
            "dynamic_update_slice",
            (x, update, *starts),
            "The update has the rank and dtype of the array, fits in it, and there is one start an axis.",
        )
    return [x]


def _dynamic_update_slice_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    x, update, *starts = primals
    y = dynamic_update_slice(*primals)
    tx = zeros(aval_of(x)) if tangents[0] is None else tangents[0]
    tu = zeros(aval_of(update)) if tangents[1] is None else tangents[1]
    return [y], [dynamic_update_slice(tx, tu, *starts)]


def _dynamic_update_slice_transpose(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
    x, update, *starts = inputs
    shape = aval_of(update).shape
    to_x = dynamic_update_slice(cts[0], zeros(aval_of(update)), *starts) if isinstance(x, _Linear) else None
    to_update = dynamic_slice(cts[0], *starts, sizes=shape) if isinstance(update, _Linear) else None
    return [to_x, to_update, *[None] * len(starts)]


def _dynamic_update_slice_batch(size: int, args: Sequence[Any], batched: Sequence[bool]) -> tuple[list, list[bool]]:
    x, update, *starts = args
    x, update = batch_together(size, (x, update), batched[:2])
    if not any(batched[2:]):
        return [dynamic_update_slice(x, update, np.int64(0), *starts)], [True]
    from fxgrad.primitives.index import scatter

    shape = aval_of(update).shape
    return [
        scatter(
            x,
            update,
            *_window_indices(size, aval_of(x).shape[1:], shape[1:], starts, batched[2:]),
            axes=tuple(range(len(shape))),
            mode="set",
        )
    ], [True]


def _dynamic_update_slice_numpy(x: Any, update: Any, *starts: Any) -> Any:
    out = np.array(x)
    out[_window(out.shape, np.shape(update), starts)] = update
    return out


dynamic_update_slice = register(
    Primitive(
        "dynamic_update_slice",
        "host",
        _dynamic_update_slice_typ,
        Doc("x with a window replaced", "g with zeros in the window; the window of g"),
        jvp=_dynamic_update_slice_jvp,
        transpose=_dynamic_update_slice_transpose,
        batch=_dynamic_update_slice_batch,
        numpy=_dynamic_update_slice_numpy,
    )
)
