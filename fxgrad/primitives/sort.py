"""Order: the sorting permutation and binary search. Sorting itself is a gather with the permutation, so gradients follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Primitive, register, type_error

_INT64 = np.dtype(np.int64)


def _argsort_typ(x: Aval, *, axis: int) -> list[Aval]:
    if not 0 <= axis < x.ndim or x.dtype.kind not in "fciub":
        raise type_error("argsort", (x,), f"It takes numbers and an axis within rank {x.ndim}, got axis={axis}.")
    return [x.with_dtype(_INT64)]


argsort = register(
    Primitive(
        "argsort",
        "host",
        _argsort_typ,
        Doc("the stable permutation that sorts along an axis, NaN last", "0"),
        jvp=lambda primals, tangents, **params: ([argsort(*primals, **params)], [None]),
        batch=lambda size, args, batched, *, axis: ([argsort(args[0], axis=axis + 1)], [True]),
        numpy=lambda x, *, axis: np.argsort(x, axis=axis, kind="stable"),
    )
)


def _searchsorted_typ(a: Aval, v: Aval, *, right: bool) -> list[Aval]:
    if a.ndim != 1 or a.dtype != v.dtype or a.dtype.kind not in "fciub":
        raise type_error("searchsorted", (a, v), "It takes a sorted vector and values of its dtype.")
    return [v.with_dtype(_INT64)]


def _searchsorted_batch(size: int, args: Sequence[Any], batched: Sequence[bool], *, right: bool) -> tuple[list, list[bool]]:
    if not batched[0]:
        return [searchsorted(*args, right=right)], [True]
    return [_count_below(size, args[0], args[1], batched[1], right)], [True]


def _count_below(size: int, a: Any, v: Any, batched: bool, right: bool) -> Any:
    """For tables that differ between batch entries: how many of its entries stand before each value."""
    from fxgrad.primitives.elementwise import convert, le, lt
    from fxgrad.primitives.reduce import sum_
    from fxgrad.primitives.shape import broadcast

    rank = len(aval_of(v).shape) - (1 if batched else 0)
    shape = (size, *aval_of(v).shape[1 if batched else 0 :], aval_of(a).shape[1])
    values = broadcast(v, shape=shape, dims=tuple(range(rank + 1)) if batched else tuple(range(1, rank + 1)))
    table = broadcast(a, shape=shape, dims=(0, rank + 1))
    return sum_(convert((le if right else lt)(table, values), dtype=_INT64), axes=(rank + 1,))


def _searchsorted_numpy(a: Any, v: Any, *, right: bool) -> Any:
    return np.asarray(np.searchsorted(a, v, "right" if right else "left"), dtype=_INT64)


searchsorted = register(
    Primitive(
        "searchsorted",
        "host",
        _searchsorted_typ,
        Doc("the first place (right: the last) for values in a sorted vector", "0"),
        jvp=lambda primals, tangents, **params: ([searchsorted(*primals, **params)], [None]),
        batch=_searchsorted_batch,
        numpy=_searchsorted_numpy,
    )
)
