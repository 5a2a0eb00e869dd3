"""NumPy's functions that write into an array they are given: copyto, put, place, putmask, put_along_axis, fill_diagonal, `.at`.

A traced array is written in place (`trace/mutation.py`); a plain one by NumPy, unless a traced value would go into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy.at import fitted, modify_at, setitem, write_at
from fxgrad.numpy.core import as_dtype, broadcast_to_shape, canonical_axis, iota, is_traced, operand, tensor
from fxgrad.numpy.indexing import check_bounds, getitem
from fxgrad.numpy.selection import take
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import index as ix
from fxgrad.primitives import shape as s
from fxgrad.trace.mutation import assign, copied, refuse_plain, store
from fxgrad.trace.steps import Reshape, Window
from fxgrad.trace.tracer import Tracer

__all__ = ["copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"]

_INSTEAD = {  # function -> how to write it for a plain array
    "copyto": "Write np.full_like(x, v) or np.full(shape, v) of fxgrad.numpy, np.broadcast_to(v, shape), np.where(mask, v, a).",
    "put": "Write a = fx.asarray(a).at[i].set(v).",
    "place": "Write a = np.where(mask, v, a).",
    "putmask": "Write a = np.where(mask, v, a).",
    "put_along_axis": "Write a = fx.asarray(a).at[...].set(v).",
    "fill_diagonal": "Write a = np.where(np.eye(n, dtype=bool), v, a).",
}


def _writer(f: Callable[..., None]) -> Callable[..., None]:
    """The function for traced and for plain arrays; only for traced ones is f itself called."""
    name = f.__name__
    plain = getattr(np, name)

    def function(a: Any, *args: Any, **kwargs: Any) -> None:
        if type(a) is Tracer:
            f(a, *args, **kwargs)
            return
        if any(is_traced(x) for x in (*args, *kwargs.values())):
            called = " (called by np.full, np.full_like and np.nan_to_num too)" if name == "copyto" else ""
            raise refuse_plain(f"np.{name}{called}", _INSTEAD[name])
        plain(a, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f.__doc__
    return function


def _flat(x: Tracer) -> Any:
    return s.reshape(x, shape=(x.size,)) if x.ndim != 1 else x


def _store_flat(x: Tracer, flat: Any, what: str) -> None:
    store(x, flat if x.ndim == 1 else s.reshape(flat, shape=x.shape), what)


def _repeated(values: Any, n: int, dtype: np.dtype) -> Any:
    """The elements of `values` in row-major order, again and again up to n of them."""
    v = tensor(as_dtype(operand(values), dtype))
    v = v if v.ndim == 1 else s.reshape(v, shape=(v.size,))
    if v.shape[0] == n:
        return v
    if v.shape[0] == 1:
        return s.broadcast(v, shape=(n,), dims=(0,))
    return take(v, np.arange(n) % v.shape[0])


@_writer
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """`src`, broadcast, written to `dst` (only where a mask holds), as numpy.copyto."""
    what = "np.copyto"
    if where is not True:
        mask = fitted(where, np.dtype(bool), dst.shape)
        value = operand(src)
        if hasattr(value, "dtype") and not np.can_cast(value.dtype, dst.dtype, casting):  # type: ignore[arg-type]
            raise TypeError(f"Cannot cast array data from {value.dtype!r} to {dst.dtype!r} according to the rule '{casting}'")
        src = e.select(mask, fitted(value, dst.dtype, dst.shape), tensor(dst))
    assign(dst, src, what, casting)


@_writer
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """The elements of the flattened array at `ind` replaced by those of `v`, repeated as needed, as numpy.put.

    mode: "raise" (out of bounds is an IndexError), "wrap", or "clip".
    """
    i = tensor(ind)
    if i.dtype.kind == "b":
        i = e.convert(i, dtype=np.dtype(np.int64))
    if i.dtype.kind not in "iu" and i.size:
        raise TypeError(f"Cannot cast array data from {i.dtype!r} to dtype('int64') according to the rule 'safe'")
    i = s.reshape(i, shape=(i.size,)) if i.ndim != 1 else i
    if not i.size or not np.size(v):
        return
    from fxgrad.numpy import elementwise as ew

    if mode == "wrap":
        i = ew.remainder(i, a.size)
    elif mode == "clip":
        i = ew.clip(i, 0, a.size - 1)
    elif mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{mode}')")
    elif type(i) is not Tracer:
        check_bounds(np.asarray(i), a.size, 0, (a.size,))
    _store_flat(a, write_at(_flat(a), i, _repeated(v, i.size, a.dtype), "set"), "np.put")


def _same_size(name: str, a: Any, mask: Any) -> Any:
    mask = tensor(mask)
    if mask.size != a.size:
        raise errors.FxValueError(
            f"{name}: mask and data must be the same size, got {mask.size} and {a.size}",
            why="The mask says of each element whether it is written.",
            fix="Make the mask from the array: np." + name + "(y, y < 0, v).",
        )
    mask = mask if mask.shape == a.shape else s.reshape(mask, shape=a.shape)
    return mask if mask.dtype.kind == "b" else e.ne(mask, mask.dtype.type(0))


@_writer
def putmask(a: Any, mask: Any, values: Any) -> None:
    """Where the mask holds, the element of `values` at the same place (values repeated as needed), as numpy.putmask."""
    mask = _same_size("putmask", a, mask)
    if not np.size(values):
        return
    v = _repeated(values, a.size, a.dtype)
    store(a, e.select(mask, s.reshape(v, shape=a.shape), tensor(a)), "np.putmask")


@_writer
def place(arr: Any, mask: Any, vals: Any) -> None:
    """Where the mask holds, one element of `vals` after the other (repeated as needed), as numpy.place."""
    mask = _same_size("place", arr, mask)
    v = tensor(as_dtype(operand(vals), arr.dtype))
    v = s.reshape(v, shape=(v.size,)) if v.ndim != 1 else v
    if not v.shape[0]:
        if mask.size and bool(np.any(mask)):
            raise ValueError("Cannot insert from an empty array!")
        return
    if v.shape[0] == 1:
        new = s.broadcast(s.reshape(v, shape=()), shape=arr.shape, dims=())
    else:
        from fxgrad.numpy import elementwise as ew
        from fxgrad.numpy.reductions import cumsum

        count = cumsum(s.reshape(e.convert(mask, dtype=np.dtype(np.int64)), shape=(arr.size,)))
        new = s.reshape(take(v, ew.remainder(ew.subtract(count, 1), v.shape[0])), shape=arr.shape)
    store(arr, e.select(mask, new, tensor(arr)), "np.place")


@_writer
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """`values` written at positions along one axis, given by an index array of the same rank, as numpy.put_along_axis."""
    what = "np.put_along_axis"
    if axis is None:
        flat = copied(_flat(arr))
        put_along_axis(flat, indices, values, 0)
        _store_flat(arr, flat, what)
        return
    grid = _along_axis(arr, indices, canonical_axis(axis, arr.ndim))
    updates = fitted(values, arr.dtype, grid[0].shape)
    store(arr, ix.scatter(tensor(arr), updates, *grid, axes=tuple(range(arr.ndim)), mode="set"), what)


def _along_axis(x: Tracer, indices: Any, axis: int) -> list[Any]:
    """One index array for each axis of x: `indices` along one, all positions along the others."""
    i = tensor(indices)
    if i.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if i.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    if type(i) is not Tracer:
        check_bounds(np.asarray(i), x.shape[axis], axis, x.shape)
    shape = np.broadcast_shapes((*x.shape[:axis], 1, *x.shape[axis + 1 :]), i.shape)
    return [broadcast_to_shape(i, shape) if k == axis else iota(shape, k) for k in range(x.ndim)]


@_writer
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """`val` (repeated as needed) written to the main diagonal, as numpy.fill_diagonal; `wrap` goes on below a tall matrix."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    end = a.size
    if a.ndim == 2:
        step = a.shape[1] + 1
        if not wrap:
            end = min(end, a.shape[1] * a.shape[1])
    else:
        if len(set(a.shape)) != 1:
            raise ValueError("All dimensions of input must be of equal length")
        step = 1 + sum(math.prod(a.shape[:k]) for k in range(1, a.ndim))
    n = len(range(0, end, step))
    if not n:
        return
    if not np.size(val):
        raise ValueError("attempt to assign an empty sequence")
    steps = (Reshape(a.shape, (a.size,)), Window((a.size,), ((0, n, step),), (0,)))
    store(a, _repeated(val, n, a.dtype), "np.fill_diagonal", steps)


# ---- ufunc.at ------------------------------------------------------------------------------------------------------------------


def ufunc_at(ufunc: np.ufunc, function: Callable[..., Any], a: Any, indices: Any, b: Any = None) -> None:
    """`ufunc.at(a, indices, b)`: the operation in place at the indices; one that occurs several times counts as often."""
    what = f"np.{ufunc.__name__}.at"
    if type(a) is not Tracer:
        if is_traced(indices) or is_traced(b):
            raise refuse_plain(f"{what}(a, i, v)", "Write a = fx.asarray(a).at[i].add(v) (or .multiply, .min, .max).")
        ufunc.at(a, indices, *(() if b is None else (b,)))
        return
    store(a, modify_at(a, indices, b, function, ufunc.__name__), what)


# ---- x.flat --------------------------------------------------------------------------------------------------------------------


class Flat:
    """`x.flat`: the elements in row-major order; reading gives copies, writing changes x."""

    __slots__ = ("_at", "base")

    def __init__(self, base: Tracer):
        self.base, self._at = base, 0

    def __len__(self) -> int:
        return self.base.size

    @property
    def index(self) -> int:
        return self._at

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._at >= self.base.size:
            raise StopIteration
        self._at += 1
        return getitem(_flat(self.base), self._at - 1)

    def copy(self) -> Any:
        """A copy as a vector."""
        return self.base.flatten()

    def __getitem__(self, index: Any) -> Any:
        y = getitem(_flat(tensor(self.base)), index)
        return copied(y)

    def __setitem__(self, index: Any, value: Any) -> None:
        flat = copied(_flat(tensor(self.base)))
        if type(index) is Tracer and index.dtype.kind == "b":
            place(self.base, index, value)
            return
        wanted = getitem(np.broadcast_to(np.bool_(False), flat.shape), index) if not is_traced(index) else flat[index]
        n = int(np.size(wanted))
        if n and not np.size(value):
            raise ValueError("Error setting single item of array." if not np.shape(wanted) else "cannot assign an empty array")
        if not n:
            return
        setitem(flat, index, s.reshape(_repeated(value, n, flat.dtype), shape=np.shape(wanted)))
        _store_flat(self.base, flat, "x.flat[...] = v")
