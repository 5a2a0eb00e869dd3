"""`update_slice`: an array with a strided region replaced, what `x[start:stop:step] = u` comes down to.

Start, stop and step are parameters, so the compiler knows which elements change and can write them in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Linear, Primitive, batch_together, register, type_error, zeros
from fxgrad.primitives.shape import Ints, pad, slice_, slice_length

__all__ = ["update_slice"]


def _typ(x: Aval, update: Aval, *, start: Ints, stop: Ints, step: Ints) -> list[Aval]:
    inside = len(start) == len(stop) == len(step) == x.ndim and all(
        0 <= lo <= hi <= n and s >= 1 for n, lo, hi, s in zip(x.shape, start, stop, step, strict=True)
    )
    if not inside or update.dtype != x.dtype or update.shape != tuple(map(slice_length, start, stop, step)):
        raise type_error(
            "update_slice",
            (x, update),
            f"The update has the dtype of the array and the shape of its part start={start}, stop={stop}, step={step}.",
        )
    return [x]


def _spread(u: Any, x: Aval, start: Ints, step: Ints) -> Any:
    """The update in zeros of the shape of x."""
    shape = aval_of(u).shape
    ends = [lo + ((n - 1) * s + 1 if n else 0) for lo, n, s in zip(start, shape, step, strict=True)]
    high = tuple(n - end for n, end in zip(x.shape, ends, strict=True))
    return pad(u, x.dtype.type(0), low=start, high=high, interior=tuple(s - 1 for s in step))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, start: Ints, stop: Ints, step: Ints) -> tuple[list, list]:
    (x, u), (tx, tu) = primals, tangents
    y = update_slice(x, u, start=start, stop=stop, step=step)
    if tx is None:
        return [y], [None if tu is None else _spread(tu, aval_of(x), start, step)]
    tu = zeros(aval_of(u)) if tu is None else tu
    return [y], [update_slice(tx, tu, start=start, stop=stop, step=step)]


def _transpose(cts: Sequence[Any], inputs: Sequence[Any], *, start: Ints, stop: Ints, step: Ints) -> list:
    x, u = inputs
    g = cts[0]
    to_x = to_update = None
    if isinstance(x, Linear):
        to_x = update_slice(g, zeros(aval_of(u)), start=start, stop=stop, step=step)
    if isinstance(u, Linear):
        to_update = slice_(g, start=start, stop=stop, step=step)
    return [to_x, to_update]


def _batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, start: Ints, stop: Ints, step: Ints
) -> tuple[list, list[bool]]:
    x, u = batch_together(size, args, batched)
    return [update_slice(x, u, start=(0, *start), stop=(size, *stop), step=(1, *step))], [True]


def _numpy(x: Any, u: Any, *, start: Ints, stop: Ints, step: Ints) -> Any:
    out = np.array(x, order="C")
    out[tuple(map(slice, start, stop, step))] = u
    return out


update_slice = register(
    Primitive(
        "update_slice",
        "host",
        _typ,
        Doc("x with x[start:stop:step] replaced by an update", "g with zeros there; that part of g"),
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        numpy=_numpy,
    )
)
