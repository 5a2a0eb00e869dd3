"""Where operands lie in memory: strides of views, and the plans kernels walk by. No code is generated here.

A plan is what `kernels/loops.py` describes; the modes found here are part of the kernel's text, the numbers are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fxgrad.kernels.spec import PACK_DIMS

__all__ = [
    "Along", "Layout", "MapPlan", "Place", "RowPlan", "across", "apply_view", "collapse", "cols_plan", "contiguous",
    "element_dtype", "map_plan", "row_place", "row_plan", "split_plans",
]  # fmt: skip

Ints = tuple[int, ...]
_GRAIN = 24576  # elements that a thread is worth waking for: 5 to 10 microseconds of light work
_STREAM = 32 * 1024 * 1024  # bytes of an output beyond which it is not kept in cache: who reads it next finds it gone in any case
_TILE, _APART = 64, 256  # elements of a tile along the vectors; bytes from one to the next that are far
_GATHER, _FAR_GATHER, _ROW, _SCRATCH_TURN = 8.0, 16.0, 20.0, 1.5  # costs in vector loads, to choose between rows and cols


class Layout(NamedTuple):
    """An affine view of a C-contiguous buffer: byte offset and byte strides."""

    shape: Ints
    strides: Ints
    offset: int = 0

    def transposed(self, perm: Ints) -> Layout:
        return Layout(tuple([self.shape[p] for p in perm]), tuple([self.strides[p] for p in perm]), self.offset)


class Along(NamedTuple):
    """A walk along a row that no single stride leads: sizes and strides, the outermost dimension first."""

    sizes: Ints
    strides: Ints


class Place(NamedTuple):
    """How a kernel's operand lies over the iteration space: byte strides, byte offset, bytes of an element.

    `along` is the walk along a row where no stride leads, the last of `strides` then being 0; one that `leads` is an index.
    """

    strides: Ints
    offset: int
    itemsize: int
    along: Along | None = None
    leads: bool = False

    @property
    def mode(self) -> str:
        """How it lies along a row."""
        if self.along is not None:
            return "packed"
        return "index" if self.leads else mode_of(self.strides[-1], self.itemsize)


def row_place(walk: Sequence[Any], offset: int, itemsize: int, leads: bool = False) -> Place:
    """The place of an operand whose strides go over rows, and whose walk along them is a stride or none."""
    *rows, along = walk
    if isinstance(along, Along):
        return Place((*rows, 0), offset, itemsize, along, leads)
    return Place((*rows, along), offset, itemsize, None, leads)


class MapPlan(NamedTuple):
    modes: tuple[str, ...]
    plan: np.ndarray


class RowPlan(NamedTuple):
    modes: tuple[str, ...]
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


def element_dtype(dtype: np.dtype) -> np.dtype:
    """What kernels read and write of arrays of this dtype: of complex ones the parts."""
    return dtype if dtype.kind != "c" else _PART_DTYPES[dtype.itemsize]


_PART_DTYPES: dict[int, np.dtype] = {8: np.dtype(np.float32), 16: np.dtype(np.float64)}


def apply_view(name: str, layout: Layout, params: dict[str, Any], itemsize: int = 0) -> Layout | None:
    """The layout after a view primitive of elements of so many bytes; None when it is not affine (or not one known here)."""
    if name in _ALIASES:
        return layout
    if name == "imag":
        return layout._replace(offset=layout.offset + itemsize // 2)
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
_ALIASES = ("stop_gradient", "name", "real")  # views that begin where their operand does, with its strides

# ---- plans ---------------------------------------------------------------------------------------------------------------


def collapse(shape: Ints, strides: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Drop axes of length 1 and merge neighbours that every operand walks as one."""
    sizes: list[int] = []
    last: list[int] = []  # of each run of merged axes, the innermost
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if last:
            before = last[-1]
            for s in strides:
                if s[before] != s[d] * n:
                    break
            else:
                sizes[-1] *= n
                last[-1] = d
                continue
        sizes.append(n)
        last.append(d)
    return tuple(sizes), [tuple([s[d] for d in last]) for s in strides]


def mode_of(stride: int, itemsize: int) -> str:
    return "unit" if stride == itemsize else "splat" if stride == 0 else "strided"


def grain(elements: int, weight: float = 1.0) -> int:
    """Units of so many elements each that are worth a thread; whole vectors, where a unit is an element.

    `weight` is the work on an element, in that of a kernel that does little more than read and write.
    """
    work = max(elements, 1) * weight
    return -int(-_GRAIN // (64 * work)) * 64 if elements < 64 else max(1, -int(-_GRAIN // work))


def _pack(rows: Ints, n: int, m: int, records: Sequence[Sequence[int]], by_columns: bool, weight: float) -> np.ndarray:
    count = math.prod(rows)
    columns = by_columns and count <= 1
    elements = max(m, 1) if columns else n * (max(m, 1) if by_columns else 1)
    least = grain(elements, weight)
    if columns and m:  # a part of a row, read again and again, is worth its start only if it is long
        least = max(-(-least // 64), min(8, -(-n // 512))) * 64
    flat = [n if columns else count, least, count, len(rows), n, m, *rows]
    for record in records:
        flat.extend(record)
    return np.array(flat, np.int64)


def map_plan(shape: Ints, places: Sequence[Place], outputs: int, weight: float = 1.0) -> MapPlan:
    """Plan of a map kernel over `shape`; the last `outputs` places are written. `weight`: see `grain`."""
    sizes, strides = collapse(shape, [p.strides for p in places])
    if not sizes:  # one element: every operand counts as contiguous, so that the kernel is the usual one
        plan = _pack((), 1, 0, [(p.offset, p.itemsize, 0) for p in places], True, weight)
        return MapPlan(("unit",) * len(places), plan)
    sizes, strides = _tiled(sizes, strides, places)
    large = [k >= len(places) - outputs and math.prod(sizes) * p.itemsize >= _STREAM for k, p in enumerate(places)]
    records = [(p.offset, s[-1], past, *s[:-1]) for p, s, past in zip(places, strides, large, strict=True)]
    modes = [mode_of(s[-1], p.itemsize) for p, s in zip(places, strides, strict=True)]
    return MapPlan(tuple(modes), _pack(sizes[:-1], sizes[-1], 0, records, True, weight))


def _tiled(sizes: Ints, strides: list[Ints], places: Sequence[Place]) -> tuple[Ints, list[Ints]]:
    """The walk in tiles, where an operand lies along another axis than the vectors: its cache lines are needed again soon.

    The last axis is cut, and its parts are walked outside of the axis along which that operand lies.
    """
    n = sizes[-1]
    along = [
        d
        for s, p in zip(strides, places, strict=True)
        if abs(s[-1]) >= _APART
        for d in range(len(sizes) - 1)
        if abs(s[d]) == p.itemsize and sizes[d] >= _TILE
    ]
    width = _width(n) if along and n >= 8 * _TILE else n
    if width == n:
        return sizes, strides
    d = min(along)
    cut = [(*s[:d], width * s[-1], *s[d:]) for s in strides]
    return (*sizes[:d], n // width, *sizes[d:-1], width), cut


@lru_cache(maxsize=1024)
def _width(n: int) -> int:
    """The largest divisor of n up to the width of a tile, whole vectors before others; n if there is none worth it."""
    found = [m for m in range(_TILE // 4, _TILE + 1) if n % m == 0]
    return max(found, key=lambda m: (m % 16 == 0, m), default=n)


def row_plan(rows: Ints, n: int, places: Sequence[Place], weight: float = 1.0) -> RowPlan:
    """Plan of a row kernel: the places' strides go over rows and then along them."""
    sizes, strides = collapse(rows, [p.strides[:-1] for p in places])
    modes = tuple(p.mode for p in places)
    records = [(p.offset, p.strides[-1], 0, *s) for p, s in zip(places, strides, strict=True)]
    return RowPlan(modes, _pack(sizes, n, 0, [*records, *_walks(places)], False, weight))


def _walks(places: Sequence[Place]) -> list[Sequence[int]]:
    """The words of packed operands."""
    found: list[Sequence[int]] = []
    for p in places:
        if p.along is not None:
            pad = PACK_DIMS - len(p.along.sizes)
            found.append((*(1,) * pad, *p.along.sizes, *(0,) * pad, *p.along.strides))
    return found


def split_plans(rows: Ints, n: int, places: Sequence[Place], block: int, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Plans of a row kernel run in two parts: blocks of rows, then rows from the results of their blocks."""
    sizes, strides = collapse(rows, [p.strides[:-1] for p in places])
    blocks = -(-n // block)
    records = [(p.offset, p.strides[-1], 0, *s, p.strides[-1] * block) for p, s in zip(places, strides, strict=True)]
    first = _pack((*sizes, blocks), block, n, [*records, *_walks(places)], False, weight)
    records = [(p.offset, 0, 0, *s) for p, s in zip(places, strides, strict=True)]
    last = _pack(sizes, blocks, -1, [*records, *_walks(places)], False, weight)
    return first, last


def cols_plan(rows: Ints, n: int, places: Sequence[Place], weight: float = 1.0) -> RowPlan:
    """Plan of a column kernel, its vectors along the last of the `rows`; the places as those of `row_plan`."""
    sizes, strides = collapse(rows, [p.strides[:-1] for p in places])
    records = [(p.offset, s[-1], p.strides[-1], *s[:-1]) for p, s in zip(places, strides, strict=True)]
    modes = tuple("index" if p.leads else mode_of(s[-1], p.itemsize) for p, s in zip(places, strides, strict=True))
    walks = [f" walked {len(p.along.sizes)}" if p.along is not None else "" for p in places]
    modes = tuple(m + w for m, w in zip(modes, walks, strict=True))
    return RowPlan(modes, _pack(sizes[:-1], sizes[-1], n, [*records, *_walks(places)], True, weight))


def across(rows: Ints, n: int, places: Sequence[Place], lanes: int) -> bool:
    """Whether reading these places is cheaper with the vectors across the rows than along them."""
    sizes, strides = collapse(rows, [p.strides[:-1] for p in places])
    if not sizes:
        return False
    steps = [p.strides[-1] for p in places]
    return _cols_cost(n, sizes, steps, strides, places, lanes) < _rows_cost(n, sizes, steps, places, lanes)


def _read_cost(stride: int, itemsize: int) -> float:
    return 1.0 if stride == itemsize else 0.1 if stride == 0 else _GATHER if abs(stride) <= 64 else _FAR_GATHER


def _rows_cost(n: int, sizes: Ints, steps: Sequence[int], reads: Sequence[Place], lanes: int) -> float:
    turn = sum([_read_cost(step, p.itemsize) for step, p in zip(steps, reads, strict=True)])
    return math.prod(sizes) * (-(-n // lanes) * turn + _ROW)


def _cols_cost(n: int, sizes: Ints, steps: Sequence[int], strides: Sequence[Ints], reads: Sequence[Place], lanes: int) -> float:
    columns = -(-sizes[-1] // lanes)
    turn = sum([_read_cost(s[-1], p.itemsize) for s, p in zip(strides, reads, strict=False)]) + _SCRATCH_TURN
    return math.prod(sizes[:-1]) * (n * (columns * turn + 3) + min(n, 32) * columns)
