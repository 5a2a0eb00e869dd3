"""Reductions over sliding windows (pooling), each defined by strided slices of the padded operand.

Parameters, one number for each axis: `window` sizes, `stride` and `dilation` (steps from window to window, and inside one), `low`
and `high` padding. Positions of a window count in row-major order; of equal elements the first is the largest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives.base import Doc, Primitive, batch_together, linear_map, register, type_error, zeros
from fxgrad.primitives.elementwise import add, eq, gt, lt, ne, or_, select
from fxgrad.primitives.shape import Ints, broadcast, slice_
from fxgrad.primitives.update import update_slice

__all__ = ["extreme", "window_extreme", "window_places", "window_put", "window_spread", "window_sum", "window_take"]


class Windows(NamedTuple):
    """The parameters of windows over an array."""

    window: Ints
    stride: Ints
    dilation: Ints
    low: Ints
    high: Ints

    def out(self, shape: Ints) -> Ints:
        """How many windows there are along each axis."""
        found = []
        for n, k, s, d, lo, hi in zip(shape, *self, strict=True):
            found.append(max(0, (n + lo + hi - ((k - 1) * d + 1)) // s + 1))
        return tuple(found)

    def deeper(self) -> Windows:
        """The same with a leading axis over which nothing slides."""
        return Windows(*((first, *values) for first, values in zip((1, 1, 1, 0, 0), self, strict=True)))

    @property
    def positions(self) -> int:
        return math.prod(self.window)

    def slices(self, x: Any, fill: Any) -> Iterator[Any]:
        """For each position, its element in every window."""
        out = self.out(aval_of(x).shape)
        if any((*self.low, *self.high)):
            x = _padded(x, fill, self.low, self.high)
        for place in itertools.product(*map(range, self.window)):
            start = tuple(t * d if n else 0 for t, d, n in zip(place, self.dilation, out, strict=True))
            stop = tuple(a + (n - 1) * s + 1 if n else a for a, n, s in zip(start, out, self.stride, strict=True))
            yield slice_(x, start=start, stop=stop, step=self.stride)


def _padded(x: Any, value: Any, low: Ints, high: Ints) -> Any:
    """x within `value`, in memory: in pieces, each of its many slices would want kernels of its own."""
    shape = tuple(lo + n + hi for lo, n, hi in zip(low, aval_of(x).shape, high, strict=True))
    stop = tuple(n - hi for n, hi in zip(shape, high, strict=True))
    return update_slice(broadcast(value, shape=shape, dims=()), x, start=low, stop=stop, step=(1,) * len(low))


def extreme(dtype: np.dtype, largest: bool) -> Any:
    """What no element is larger than (or, `largest`, smaller than)."""
    if dtype.kind == "f":
        return dtype.type(-np.inf if largest else np.inf)
    if dtype.kind == "b":
        return np.bool_(not largest)
    return dtype.type(np.iinfo(dtype).min if largest else np.iinfo(dtype).max)


def _checked(name: str, x: Aval, w: Windows) -> None:
    plain = all(len(v) == x.ndim for v in w) and min((*w.window, *w.stride, *w.dilation, 1)) >= 1
    if not plain or min((*w.low, *w.high, 0)) < 0:
        raise type_error(name, (x,), "Window, stride and dilation are >= 1, padding >= 0, one number for each axis.")


# ---- sums ------------------------------------------------------------------------------------------------------------------


def _sum_typ(x: Aval, *, window: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints) -> list[Aval]:
    w = Windows(window, stride, dilation, low, high)
    _checked("window_sum", x, w)
    if x.dtype.kind not in "fciu":
        raise type_error("window_sum", (x,), "It adds numbers.")
    return [x.with_shape(w.out(x.shape))]


def _sum_expand(x: Any, **params: Ints) -> list:
    parts = Windows(**params).slices(x, x.dtype.type(0))
    total = next(parts)
    for part in parts:
        total = add(total, part)
    return [total]


window_sum = linear_map(
    "window_sum",
    "expand",
    _sum_typ,
    Doc("the sum of each window, its elements in order", "g added to every element of its window"),
    transpose=lambda cts, inputs, **params: [window_spread(cts[0], shape=inputs[0].aval.shape, **params)],
    batch=lambda size, args, batched, **params: ([window_sum(args[0], **Windows(**params).deeper()._asdict())], [True]),
    expand=_sum_expand,
)


def _spread_typ(g: Aval, *, shape: Ints, window: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints) -> list[Aval]:
    w = Windows(window, stride, dilation, low, high)
    whole = g.with_shape(shape)
    _checked("window_spread", whole, w)
    if w.out(shape) != g.shape:
        raise type_error("window_spread", (g,), f"It has one element for each window over shape {shape}: {w.out(shape)}.")
    return [whole]


def _spread_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, shape: Ints, **params: Ints
) -> tuple[list, list[bool]]:
    return [window_spread(args[0], shape=(size, *shape), **Windows(**params).deeper()._asdict())], [True]


window_spread = linear_map(
    "window_spread",
    "expand",
    _spread_typ,
    Doc("each element added to all places of its window", "the sum of each window"),
    transpose=lambda cts, inputs, *, shape, **params: [window_sum(cts[0], **params)],
    batch=_spread_batch,
    expand=lambda g, *, shape, **params: [_spread(Windows(**params), shape, g, None)],
)


def _spread(w: Windows, shape: Ints, g: Any, places: Any) -> Any:
    """Every place of x gets the sum, over the windows it is in, of their g (where `places` names it, if given).

    Places of one remainder by the stride meet the same positions of windows, so they are computed together, of slices of g.
    """
    along = [_Phases(*v) for v in zip(shape, *w, aval_of(g).shape, strict=True)]
    widths = tuple(a.low for a in along), tuple(a.high for a in along)
    wider = any((*widths[0], *widths[1]))
    g_padded = _padded(g, g.dtype.type(0), *widths) if wider else g
    if places is not None and wider:
        places = _padded(places, places.dtype.type(w.positions), *widths)
    parts = {}
    for phase in itertools.product(*(range(len(a.counts)) for a in along)):
        value = _meeting(w, along, phase, g_padded, places)
        if value is not None:
            parts[phase] = value
    if all(len(a.counts) == 1 for a in along) and parts:
        return parts[(0,) * len(along)]
    out = zeros(aval_of(g).with_shape(shape))
    if type(out) is np.ndarray:
        out = broadcast(g.dtype.type(0), shape=shape, dims=())
    for phase, value in parts.items():
        out = update_slice(out, value, start=phase, stop=shape, step=w.stride)
    return out


class _Phases:
    """Of one axis: for places r, r + stride, ... how many there are, and the positions that meet them in which windows.

    `meets[r]` has pairs (position, window of the first of these places, counted from `low` before the first window).
    """

    def __init__(self, n: int, k: int, s: int, d: int, lo: int, hi: int, out: int):
        self.counts = [-(-(n - r) // s) for r in range(min(s, n))]
        met = [[(t, (r + lo - t * d) // s) for t in range(k) if (r + lo - t * d) % s == 0] for r in range(len(self.counts))]
        pairs = [(q, m) for m, found in zip(self.counts, met, strict=True) for _, q in found]
        self.low = max((-q for q, _ in pairs), default=0)
        self.low = max(self.low, 0)
        self.high = max(max((q + m - out for q, m in pairs), default=0), 0)
        self.meets = [[(t, q + self.low) for t, q in found] for found in met]


def _meeting(w: Windows, along: Sequence[_Phases], phase: Ints, g: Any, places: Any) -> Any:
    """The sum over positions for places of one phase; None if no window has any."""
    counts = [a.counts[r] for a, r in zip(along, phase, strict=True)]
    total = None
    for chosen in itertools.product(*(a.meets[r] for a, r in zip(along, phase, strict=True))):
        start = tuple(q for _, q in chosen)
        region = {"start": start, "stop": tuple(q + m for q, m in zip(start, counts, strict=True)), "step": (1,) * len(start)}
        term = slice_(g, **region)
        if places is not None:
            number = 0
            for (t, _), k in zip(chosen, w.window, strict=True):
                number = number * k + t
            named = eq(slice_(places, **region), places.dtype.type(number))
            term = select(named, term, term.dtype.type(0))
        total = term if total is None else add(total, term)
    return total


# ---- maxima and minima -----------------------------------------------------------------------------------------------------


def _extreme_typ(
    x: Aval, *, largest: bool, window: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints
) -> list[Aval]:  # fmt: skip
    w = Windows(window, stride, dilation, low, high)
    _checked("window_extreme", x, w)
    if x.dtype.kind not in "fiub":
        raise type_error("window_extreme", (x,), "Its elements are ordered; complex numbers are not.")
    return [x.with_shape(w.out(x.shape))]


def _chosen(x: Any, w: Windows, largest: bool) -> tuple[Any, Any]:
    """The extreme of each window and its position: the first of equals; the first NaN, if there is one."""
    parts = w.slices(x, extreme(x.dtype, largest))
    best = next(parts)
    dtype = _place_dtype(w)
    place: Any = broadcast(dtype.type(0), shape=aval_of(best).shape, dims=())
    for i, part in enumerate(parts, 1):
        better = (gt if largest else lt)(part, best)
        if x.dtype.kind == "f":
            better = or_(better, ne(part, part))
        best, place = select(better, part, best), select(better, dtype.type(i), place)
    return best, place


def _place_dtype(w: Windows) -> np.dtype:
    return np.dtype(np.uint8 if w.positions < 256 else np.int32)


def _extreme_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, largest: bool, **params: Ints) -> tuple[list, list]:
    (x,), (t,) = primals, tangents
    y = window_extreme(x, largest=largest, **params)
    return [y], [window_take(t, window_places(x, largest=largest, **params), **params)]


def _extreme_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, largest: bool, **params: Ints
) -> tuple[list, list[bool]]:
    return [window_extreme(args[0], largest=largest, **Windows(**params).deeper()._asdict())], [True]


window_extreme = register(
    Primitive(
        "window_extreme",
        "expand",
        _extreme_typ,
        Doc(
            "the largest (or smallest) element of each window; NaN if there is one",
            "g to the first of them",
            "a choice of elements",
        ),
        jvp=_extreme_jvp,
        batch=_extreme_batch,
        expand=lambda x, *, largest, **params: [_chosen(x, Windows(**params), largest)[0]],
    )
)


def _places_typ(
    x: Aval, *, largest: bool, window: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints
) -> list[Aval]:  # fmt: skip
    w = Windows(window, stride, dilation, low, high)
    (y,) = _extreme_typ(x, largest=largest, **w._asdict())
    return [y.with_dtype(_place_dtype(w))]


def _places_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, largest: bool, **params: Ints
) -> tuple[list, list[bool]]:
    return [window_places(args[0], largest=largest, **Windows(**params).deeper()._asdict())], [True]


window_places = register(
    Primitive(
        "window_places",
        "expand",
        _places_typ,
        Doc("where in its window the extreme is, the first of equals", "none (not differentiable)"),
        jvp=lambda primals, tangents, **params: ([window_places(primals[0], **params)], [None]),
        batch=_places_batch,
        expand=lambda x, *, largest, **params: [_chosen(x, Windows(**params), largest)[1]],
    )
)


def _take_typ(x: Aval, indices: Aval, *, window: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints) -> list[Aval]:
    w = Windows(window, stride, dilation, low, high)
    _checked("window_take", x, w)
    if indices.shape != w.out(x.shape) or indices.dtype.kind not in "iu":
        raise type_error("window_take", (x, indices), f"There is one position for each window, an integer: {w.out(x.shape)}.")
    return [x.with_shape(indices.shape)]


def _take_expand(x: Any, places: Any, **params: Ints) -> list:
    parts = Windows(**params).slices(x, x.dtype.type(0))
    found = next(parts)
    for i, part in enumerate(parts, 1):
        found = select(eq(places, places.dtype.type(i)), part, found)
    return [found]


def _take_batch(size: int, args: Sequence[Any], batched: Sequence[bool], **params: Ints) -> tuple[list, list[bool]]:
    return [window_take(*batch_together(size, args, batched), **Windows(**params).deeper()._asdict())], [True]


window_take = linear_map(
    "window_take",
    "expand",
    _take_typ,
    Doc("of each window the element at a position", "g at that position"),
    transpose=lambda cts, inputs, **params: [window_put(cts[0], inputs[1], shape=inputs[0].aval.shape, **params), None],
    batch=_take_batch,
    expand=_take_expand,
)


def _put_typ(
    g: Aval, indices: Aval, *, shape: Ints, window: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints
) -> list[Aval]:  # fmt: skip
    if indices.shape != g.shape or indices.dtype.kind not in "iu":
        raise type_error("window_put", (g, indices), "There is one position for each window, an integer.")
    return _spread_typ(g, shape=shape, **Windows(window, stride, dilation, low, high)._asdict())


def _put_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, shape: Ints, **params: Ints
) -> tuple[list, list[bool]]:
    g, places = batch_together(size, args, batched)
    return [window_put(g, places, shape=(size, *shape), **Windows(**params).deeper()._asdict())], [True]


window_put = linear_map(
    "window_put",
    "expand",
    _put_typ,
    Doc("each element added at a position of its window", "g at that position of each window"),
    transpose=lambda cts, inputs, *, shape, **params: [window_take(cts[0], inputs[1], **params), None],
    batch=_put_batch,
    expand=lambda g, places, *, shape, **params: [_spread(Windows(**params), shape, g, places)],
)
