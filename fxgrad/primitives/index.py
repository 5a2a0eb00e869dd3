"""Gather and scatter: NumPy's integer-array indexing as two primitives.

`gather(x, i0, ..., ik)[axes]` takes x at index arrays of one common shape S along `axes`; the result has shape S followed by the
other axes. `scatter` writes such values back, replacing (the last of equal indices wins, as in NumPy) or adding (all count).
Negative indices count from the end; out of bounds raises an IndexError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Linear, Primitive, register, type_error, zeros
from fxgrad.primitives.elementwise import eq, select
from fxgrad.primitives.shape import add_batch_axis, iota, reshape, transpose

Axes = tuple[int, ...]


def _check(name: str, x: Aval, indices: Sequence[Aval], axes: Axes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not indices or len(indices) != len(axes) or any(i.dtype.kind not in "iu" or i.shape != indices[0].shape for i in indices):
        raise type_error(name, (x, *indices), "It takes one integer index array for each of its axes, all of one shape.")
    return indices[0].shape, tuple(n for i, n in enumerate(x.shape) if i not in axes)


def _key(indices: Sequence[Any]) -> tuple:
    return tuple(np.asarray(i) for i in indices)


def _front(x: Any, axes: Axes) -> Any:
    """A view with the indexed axes first."""
    ndim = np.ndim(x)
    return np.transpose(x, (*axes, *(i for i in range(ndim) if i not in axes)))


def beyond(index: int, n: int, axis: int, shape: tuple[int, ...]) -> errors.FxIndexError:
    """The error for an index that is no position of an axis of length n."""
    return errors.FxIndexError(
        f"index {index} is out of bounds for axis {axis} with size {n}",
        why=f"The array has shape {shape}.",
        fix=f'Its positions are {-n} to {n - 1}; np.take(x, i, axis, mode="clip") limits what is beyond.',
    )


def out_of_bounds(x: Any, indices: Sequence[Any], axes: Axes) -> errors.FxIndexError:
    """The error for indices of which some are not positions of their axis."""
    shape = np.shape(x)
    found = [(axis, i[(i < -shape[axis]) | (i >= shape[axis])]) for axis, i in zip(axes, _key(indices), strict=True)]
    axis, wrong = next((axis, wrong) for axis, wrong in found if wrong.size)
    return beyond(int(wrong[0]), shape[axis], axis, shape)


def _gather_numpy(x: Any, *indices: Any, axes: Axes) -> Any:
    try:
        return _front(x, axes)[_key(indices)]
    except IndexError:
        raise out_of_bounds(x, indices, axes) from None


def _gather_typ(x: Aval, *indices: Aval, axes: Axes) -> list[Aval]:
    where, rest = _check("gather", x, indices, axes)
    return [x.with_shape(where + rest)]


def _gather_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axes: Axes) -> list:
    x, *indices = inputs
    return [scatter(zeros(x.aval), cts[0], *indices, axes=axes, mode="add"), *[None] * len(indices)]


def _batch_indices(size: int, indices: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Index arrays with a batch axis, led by one that picks the batch entry itself."""
    full = [i if b else add_batch_axis(i, size) for i, b in zip(indices, batched, strict=True)]
    return [iota(shape=aval_of(full[0]).shape, dtype=np.dtype(np.int64), axis=0), *full]


def _move_axis_first(x: Any, axis: int) -> Any:
    ndim = aval_of(x).ndim
    return transpose(x, perm=(axis, *(i for i in range(ndim) if i != axis)))


def _gather_batch(size: int, args: Sequence[Any], batched: Sequence[bool], *, axes: Axes) -> tuple[list, list[bool]]:
    x, *indices = args
    shifted = tuple(a + 1 for a in axes)
    if not any(batched[1:]):
        y = gather(x, *indices, axes=shifted)  # shape S + (batch, ...)
        return [_move_axis_first(y, aval_of(indices[0]).ndim)], [True]
    if not batched[0]:
        full = [i if b else add_batch_axis(i, size) for i, b in zip(indices, batched[1:], strict=True)]
        return [gather(x, *full, axes=axes)], [True]
    return [gather(x, *_batch_indices(size, indices, batched[1:]), axes=(0, *shifted))], [True]


def _gather_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes) -> tuple[list, list]:
    t = tangents[0]
    return [gather(*primals, axes=axes)], [None if t is None else gather(t, *primals[1:], axes=axes)]


gather = register(
    Primitive(
        "gather",
        "host",
        _gather_typ,
        Doc("x at index arrays along axes", "g added into zeros at the indices"),
        jvp=_gather_jvp,
        transpose=_gather_transpose,
        batch=_gather_batch,
        numpy=_gather_numpy,
        raises=True,
    )
)


def _scatter_typ(x: Aval, updates: Aval, *indices: Aval, axes: Axes, mode: str) -> list[Aval]:
    where, rest = _check("scatter", x, indices, axes)
    if updates.shape != where + rest or updates.dtype != x.dtype or mode not in ("set", "add"):
        raise type_error(
            "scatter",
            (x, updates, *indices),
            f"Updates have shape {where + rest} and the array's dtype; mode is 'set' or 'add', got {mode!r}.",
        )
    return [x]


def _last_writers(x: Aval, updates: Aval, indices: Sequence[Any], axes: Axes) -> Any:
    """A mask over the updates: true where an update is the one that stays when several write one place."""
    where = aval_of(indices[0])
    int64 = np.dtype(np.int64)
    if where.size == 0:
        return select(
            reshape(iota(shape=(where.size,), dtype=int64, axis=0) == 0, shape=where.shape), np.bool_(True), np.bool_(False)
        )
    number = reshape(iota(shape=(where.size,), dtype=int64, axis=0), shape=where.shape)
    board = zeros(Aval(tuple(x.shape[a] for a in axes), int64))
    slots = tuple(range(len(axes)))
    winner = gather(scatter(board, number, *indices, axes=slots, mode="set"), *indices, axes=slots)
    return eq(winner, number)


def _keep_writers(updates: Any, x: Aval, indices: Sequence[Any], axes: Axes) -> Any:
    from fxgrad.primitives.shape import broadcast

    shape = aval_of(updates).shape
    mask = _last_writers(x, aval_of(updates), indices, axes)
    mask = broadcast(mask, shape=shape, dims=tuple(range(aval_of(indices[0]).ndim)))
    return select(mask, updates, aval_of(updates).dtype.type(0))


def _scatter_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Axes, mode: str) -> tuple[list, list]:
    x, updates, *indices = primals
    y = scatter(*primals, axes=axes, mode=mode)
    tx, tu = tangents[:2]
    if mode == "add" and tu is None:
        return [y], [tx]
    tx = zeros(aval_of(x)) if tx is None else tx
    tu = zeros(aval_of(updates)) if tu is None else tu
    return [y], [scatter(tx, tu, *indices, axes=axes, mode=mode)]


def _scatter_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, axes: Axes, mode: str) -> list:
    x, updates, *indices = inputs
    g = cts[0]
    to_x = to_updates = None
    if isinstance(x, Linear):
        to_x = g if mode == "add" else scatter(g, zeros(aval_of(updates)), *indices, axes=axes, mode="set")
    if isinstance(updates, Linear):
        to_updates = gather(g, *indices, axes=axes)
        if mode == "set":
            to_updates = _keep_writers(to_updates, aval_of(x), indices, axes)
    return [to_x, to_updates, *[None] * len(indices)]


def _scatter_batch(size: int, args: Sequence[Any], batched: Sequence[bool], *, axes: Axes, mode: str) -> tuple[list, list[bool]]:
    x, updates, *indices = args
    x = x if batched[0] else add_batch_axis(x, size)
    updates = updates if batched[1] else add_batch_axis(updates, size)
    shifted = (0, *(a + 1 for a in axes))
    return [scatter(x, updates, *_batch_indices(size, indices, batched[2:]), axes=shifted, mode=mode)], [True]


def _scatter_numpy(x: Any, updates: Any, *indices: Any, axes: Axes, mode: str) -> Any:
    try:
        return _scattered(x, updates, indices, axes, mode)
    except IndexError:
        raise out_of_bounds(x, indices, axes) from None


def _scattered(x: Any, updates: Any, indices: Sequence[Any], axes: Axes, mode: str) -> Any:
    out = np.array(x, order="C")
    view = _front(out, axes)
    if mode == "set":
        view[_key(indices)] = updates
    elif out.dtype == np.float16:  # every float16 sum is rounded once
        wide = view.astype(np.float32)
        np.add.at(wide, _key(indices), updates)
        view[...] = wide
    else:
        np.add.at(view, _key(indices), updates)
    return out


scatter = register(
    Primitive(
        "scatter",
        "host",
        _scatter_typ,
        Doc(
            "x with updates written (set: the last one wins) or added at index arrays along axes",
            "g (zeroed where written); g at the indices",
        ),
        jvp=_scatter_jvp,
        transpose=_scatter_transpose,
        batch=_scatter_batch,
        numpy=_scatter_numpy,
        raises=True,
    )
)


def _within_numpy(i: Any, *, n: int, what: str) -> Any:
    i = np.asarray(i)
    wrong = i[(i < 0) | (i >= n)]
    if wrong.size:
        raise errors.FxValueError(
            what.format(i=int(wrong[0]), n=n),
            why="Indices are 0 or more, and less than the size.",
            fix="Check them first, or bring them into range with np.clip(i, 0, n - 1).",
        )
    return i


def _within_typ(i: Aval, *, n: int, what: str) -> list[Aval]:
    if i.dtype.kind not in "iu":
        raise type_error("within", (i,), "It takes integers.")
    return [i]


within = register(
    Primitive(
        "within",
        "host",
        _within_typ,
        Doc("i itself; a ValueError if one is negative or reaches n", "none: integers"),
        jvp=lambda primals, tangents, **params: ([within(*primals, **params)], [None]),
        batch=lambda size, args, batched, **params: ([within(args[0], **params)], [True]),
        numpy=_within_numpy,
        raises=True,
    )
)
