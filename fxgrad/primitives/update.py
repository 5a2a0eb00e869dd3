"""`update_slice`: an array with a strided region replaced, which is what `y[2:9:3] = u` does. The compiler runs it in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Linear, Primitive, batch_together, register, type_error, zeros
from fxgrad.primitives.shape import slice_, slice_length

Ints = tuple[int, ...]

__all__ = ["update_slice"]


def _typ(x: Aval, update: Aval, *, start: Ints, stop: Ints, step: Ints) -> list[Aval]:
    inside = len(start) == len(stop) == len(step) == x.ndim and all(
        0 <= lo <= hi <= n and s >= 1 for n, lo, hi, s in zip(x.shape, start, stop, step, strict=True)
    )
    if not inside or update.dtype != x.dtype or update.shape != tuple(map(slice_length, start, stop, step)):
        raise type_error(
            "update_slice",
            (x, update),
            f"start={start}, stop={stop}, step={step} lie within the array, the update has the region's shape and its dtype.",
        )
    return [x]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
    tx, tu = (zeros(aval_of(p)) if t is None else t for p, t in zip(primals, tangents, strict=True))
    return [update_slice(*primals, **params)], [update_slice(tx, tu, **params)]


def _transpose(cts: Sequence[Any], inputs: Sequence[Any], **params: Any) -> list:
    x, update = inputs
    to_x = update_slice(cts[0], zeros(aval_of(update)), **params) if isinstance(x, Linear) else None
    return [to_x, slice_(cts[0], **params) if isinstance(update, Linear) else None]


def _batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, start: Ints, stop: Ints, step: Ints
) -> tuple[list, list[bool]]:
    x, update = batch_together(size, args, batched)
    return [update_slice(x, update, start=(0, *start), stop=(size, *stop), step=(1, *step))], [True]


def _numpy(x: Any, update: Any, *, start: Ints, stop: Ints, step: Ints) -> Any:
    out = np.array(x, order="C")
    out[tuple(map(slice, start, stop, step))] = update
    return out


update_slice = register(
    Primitive(
        "update_slice",
        "host",
        _typ,
        Doc("x with x[start:stop:step] replaced by the update", "g with zeros in the region; the region of g"),
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
        numpy=_numpy,
    )
)
