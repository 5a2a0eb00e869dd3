"""Kernels of one primitive, as eager evaluation uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.compile.cache import kernel_addresses
from fxgrad.compile.layout import Layout, Place, across, cols_plan, contiguous, map_plan, row_place, row_plan
from fxgrad.compile.passes import RowSpace
from fxgrad.ir.types import Aval
from fxgrad.kernels.spec import Fold, Kernel, Op, Operand, Stage, weight
from fxgrad.primitives.base import Primitive

__all__ = ["map_variant", "reduce_variant", "usual_kernels"]

Ints = tuple[int, ...]


def _place(aval: Aval, strides: Ints, ndim: int) -> Place:
    return Place(strides if aval.shape or not ndim else (0,) * ndim, 0, aval.dtype.itemsize)


def _map(
    prim: Primitive, avals: Sequence[Aval], params: dict[str, Any], out: Aval, strides: Sequence[Ints]
) -> tuple[Kernel, Any]:
    ndim = out.ndim
    places = [_place(a, s, ndim) for a, s in zip(avals, strides, strict=True)]
    places.append(Place(contiguous(out.shape, out.dtype.itemsize).strides, 0, out.dtype.itemsize))
    modes, plan = map_plan(out.shape, places, 1, weight([prim]))
    n = len(avals)
    op = Op(prim, tuple(sorted(params.items())), tuple(range(n)), out.dtype)
    operands = [Operand(a.dtype, m) for a, m in zip((*avals, out), modes, strict=True)]
    return Kernel("map", operands[:n], [op], [n], operands[n:]), plan


def _reduce(prim: Primitive, x: Aval, axes: Ints, out: Aval, strides: Ints) -> tuple[Kernel, Any] | None:
    space = RowSpace(x.shape, axes)
    walk = space.walk(Layout(x.shape, strides), "full")
    if walk is None:
        return None
    places = [row_place(walk, 0, x.dtype.itemsize)]
    columns = space.columns
    if places[0].along is None:
        columns = across(space.rows, space.n, places, 16 if x.dtype.itemsize <= 4 else 8)
    if columns:
        places.append(Place((*contiguous(space.rows, out.dtype.itemsize).strides, 0), 0, out.dtype.itemsize))
    modes, plan = (cols_plan if columns else row_plan)(space.rows, space.n, places)
    operands = [Operand(x.dtype, modes[0]), Operand(out.dtype, modes[1] if columns else "splat")]
    stage = Stage(folds=(Fold(prim, 0, x.dtype),))
    return Kernel("cols" if columns else "row", operands[:1], [], [1], operands[1:], [stage]), plan


def _ready(kernel: Kernel, plan: Any) -> tuple[int, int]:
    from fxgrad.runtime.launch import address_of

    return kernel_addresses([kernel])[0], address_of(plan)


def map_variant(
    prim: Primitive, avals: Sequence[Aval], params: dict[str, Any], out: Aval, strides: Sequence[Ints]
) -> tuple[int, int]:  # fmt: skip
    """Addresses of kernel and plan for operands of these strides."""
    return _ready(*_map(prim, avals, params, out, strides))


def reduce_variant(prim: Primitive, x: Aval, axes: Ints, out: Aval, strides: Ints) -> tuple[int, int] | None:
    """The same for a reduction; None when kernels cannot walk the reduced axes."""
    found = _reduce(prim, x, axes, out, strides)
    return None if found is None else _ready(*found)


def usual_kernels(wanted: Sequence[tuple[Primitive, Sequence[Aval], dict[str, Any], Aval]]) -> list[Kernel]:
    """The kernels of these operations on C-contiguous operands."""
    kernels = []
    for prim, avals, params, out in wanted:
        strides = [contiguous(a.shape, a.dtype.itemsize).strides for a in avals]
        if prim.kind == "map":
            kernels.append(_map(prim, avals, params, out, strides)[0])
        elif found := _reduce(prim, avals[0], params["axes"], out, strides[0]):
            kernels.append(found[0])
    return kernels
