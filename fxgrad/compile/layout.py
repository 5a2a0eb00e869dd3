"""Where operands lie in memory: strides of views, and the plans kernels walk by. No code is generated here.

A plan is what `kernels/loops.py` describes; the modes found here are part of the kernel's text, the numbers are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Layout", "MapPlan", "Place", "ReducePlan", "apply_view", "collapse", "contiguous", "map_plan", "reduce_plan"]

Ints = tuple[int, ...]
_GRAIN = 8192  # elements: some microseconds of work, against the 0.3 of waking a thread that spins
_GATHER, _FAR_GATHER, _ROW, _SCRATCH_TURN = 8.0, 16.0, 20.0, 1.5  # costs in vector loads, to choose between rows and cols


class Layout(NamedTuple):
    """An affine view of a C-contiguous buffer: byte offset and byte strides."""

    shape: Ints
    strides: Ints
    offset: int = 0

    def transposed(self, perm: Ints) -> Layout:
        return Layout(tuple(self.shape[p] for p in perm), tuple(self.strides[p] for p in perm), self.offset)


class Place(NamedTuple):
    """How a kernel's operand lies over the iteration space: byte strides, byte offset, bytes of an element."""

    strides: Ints
    offset: int
    itemsize: int


class MapPlan(NamedTuple):
    modes: tuple[str, ...]
    plan: np.ndarray


class ReducePlan(NamedTuple):
    form: str
    modes: tuple[str, ...]
    after: tuple[str, ...]
    out: str
    plan: np.ndarray


@lru_cache(maxsize=4096)
def contiguous(shape: Ints, itemsize: int) -> Layout:
    """Row-major order without gaps."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return Layout(tuple(shape), tuple(reversed(strides)))


# ---- views ---------------------------------------------------------------------------------------------------------------


def apply_view(name: str, layout: Layout, params: dict[str, Any]) -> Layout | None:
    """The layout after a view primitive; None when it is not affine (or not one known here)."""
    if name in _ALIASES:
        return layout
    rule = _VIEWS.get(name)
    return rule(layout, **params) if rule else None


def _broadcast(x: Layout, *, shape: Ints, dims: Ints) -> Layout:
    strides = [0] * len(shape)
    for n, stride, d in zip(x.shape, x.strides, dims, strict=True):
        strides[d] = stride if n == shape[d] else 0
    return Layout(tuple(shape), tuple(strides), x.offset)


def _transpose(x: Layout, *, perm: Ints) -> Layout:
    return x.transposed(perm)


def _reverse(x: Layout, *, axes: Ints) -> Layout:
    strides, offset = list(x.strides), x.offset
    for i in axes:
        offset += max(x.shape[i] - 1, 0) * strides[i]
        strides[i] = -strides[i]
    return Layout(x.shape, tuple(strides), offset)


def _slice(x: Layout, *, start: Ints, stop: Ints, step: Ints) -> Layout:
    shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(start, stop, step, strict=True))
    offset = x.offset + sum(a * stride for a, stride in zip(start, x.strides, strict=True))
    return Layout(shape, tuple(stride * s for stride, s in zip(x.strides, step, strict=True)), offset)


def _reshape(x: Layout, *, shape: Ints) -> Layout | None:
    """Split each merged run of old axes into the new ones; None if a new axis spans a gap."""
    shape = tuple(shape)
    if 0 in shape:
        return Layout(shape, (0,) * len(shape), x.offset)
    sizes, (strides,) = collapse(x.shape, [x.strides])
    runs = list(zip(sizes, strides, strict=True))
    out: list[int] = []
    n, stride = runs.pop() if runs else (1, 0)
    for m in reversed(shape):
        if n == 1 and m != 1 and runs:
            n, stride = runs.pop()
        if n % m:
            return None
        out.append(stride)
        n, stride = n // m, stride * m
    return Layout(shape, tuple(reversed(out)), x.offset)


_VIEWS: dict[str, Any] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "reshape": _reshape,
}
_ALIASES = ("stop_gradient", "name")  # views that change nothing

# ---- plans ---------------------------------------------------------------------------------------------------------------


def collapse(shape: Ints, strides: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Drop axes of length 1 and merge neighbours that every operand walks as one."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if sizes and all(m[-1] == s[d] * n for m, s in zip(merged, strides, strict=True)):
            sizes[-1] *= n
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[d]
        else:
            sizes.append(n)
            for m, s in zip(merged, strides, strict=True):
                m.append(s[d])
    return tuple(sizes), [tuple(m) for m in merged]


def mode_of(stride: int, itemsize: int) -> str:
    return "unit" if stride == itemsize else "splat" if stride == 0 else "strided"


def grain(elements: int) -> int:
    """Units of so many elements each that are worth a thread; whole vectors, where a unit is an element."""
    return -(-_GRAIN // (64 * max(elements, 1))) * 64 if elements < 64 else -(-_GRAIN // elements)


def _pack(rows: Ints, n: int, m: int, records: Sequence[Sequence[int]], by_columns: bool) -> np.ndarray:
    count = math.prod(rows)
    columns = by_columns and count <= 1
    flat = [n if columns else count, grain(max(m, 1) if columns else n * max(m, 1)), count, len(rows), n, m, *rows]
    for record in records:
        flat.extend(record)
    return np.array(flat, np.int64)


def map_plan(shape: Ints, places: Sequence[Place], outputs: int) -> MapPlan:
    """Plan of a map kernel over `shape`; the last `outputs` places are written."""
    sizes, strides = collapse(shape, [p.strides for p in places])
    if not sizes:  # one element: every operand counts as contiguous, so that the kernel is the usual one
        plan = _pack((), 1, 0, [(p.offset, p.itemsize, 0) for p in places], True)
        return MapPlan(("unit",) * len(places), plan)
    records = [(p.offset, s[-1], 0, *s[:-1]) for p, s in zip(places, strides, strict=True)]
    modes = [mode_of(s[-1], p.itemsize) for p, s in zip(places, strides, strict=True)]
    return MapPlan(tuple(modes), _pack(sizes[:-1], sizes[-1], 0, records, True))


def reduce_plan(
    shape: Ints, axes: Ints, reads: Sequence[Place], after: Sequence[Place], out: Place, lanes: int
) -> ReducePlan | None:
    """Plan of a reduction over `axes`; None when some operand does not walk the reduced axes as one."""
    kept = [d for d in range(len(shape)) if d not in axes]
    length, along = collapse(tuple(shape[d] for d in axes), [tuple(p.strides[d] for d in axes) for p in reads])
    if len(length) > 1:
        return None
    n, steps = (length[0], [s[0] for s in along]) if length else (1, [0] * len(reads))
    over = [tuple(p.strides[d] for d in kept) for p in reads] + [p.strides for p in (*after, out)]
    sizes, strides = collapse(tuple(shape[d] for d in kept), over)
    places = [*reads, *after, out]
    still = [0] * (len(after) + 1)
    if not sizes or _rows_cost(n, sizes, steps, reads, lanes) <= _cols_cost(n, sizes, steps, strides, reads, lanes):
        records = [(p.offset, step, 0, *s) for p, step, s in zip(places, steps + still, strides, strict=True)]
        modes = tuple(mode_of(step, p.itemsize) for step, p in zip(steps, reads, strict=True))
        return ReducePlan("rows", modes, ("splat",) * len(after), "splat", _pack(sizes, n, 0, records, False))
    records = [(p.offset, s[-1], step, *s[:-1]) for p, step, s in zip(places, steps + still, strides, strict=True)]
    modes = tuple(mode_of(s[-1], p.itemsize) for s, p in zip(strides, places, strict=True))
    k = len(reads)
    return ReducePlan("cols", modes[:k], modes[k:-1], modes[-1], _pack(sizes[:-1], sizes[-1], n, records, True))


def _read_cost(stride: int, itemsize: int) -> float:
    mode = mode_of(stride, itemsize)
    return 1.0 if mode == "unit" else 0.1 if mode == "splat" else _GATHER if abs(stride) <= 64 else _FAR_GATHER


def _rows_cost(n: int, sizes: Ints, steps: Sequence[int], reads: Sequence[Place], lanes: int) -> float:
    turn = sum(_read_cost(step, p.itemsize) for step, p in zip(steps, reads, strict=True))
    return math.prod(sizes) * (-(-n // lanes) * turn + _ROW)


def _cols_cost(n: int, sizes: Ints, steps: Sequence[int], strides: Sequence[Ints], reads: Sequence[Place], lanes: int) -> float:
    columns = -(-sizes[-1] // lanes)
    turn = sum(_read_cost(s[-1], p.itemsize) for s, p in zip(strides, reads, strict=False)) + _SCRATCH_TURN
    return math.prod(sizes[:-1]) * (n * (columns * turn + 3) + min(n, 32) * columns)
