"""Products: any contraction and batch axes in one primitive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fxgrad.config import config
from fxgrad.ir.types import Aval, aval_of
from fxgrad.kernels.matmul_plan import SUPPORTED
from fxgrad.primitives.base import Doc, Primitive, add_tangents, register, type_error
from fxgrad.primitives.shape import inverse, transpose
from fxgrad.runtime.matmul import matmul

__all__ = ["as_matrices", "dot", "free_axes", "has_product_kernel"]

Pair = tuple[tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=4096)
def free_axes(ndim: int, *taken: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that are in none of the groups."""
    used = {i for group in taken for i in group}
    return tuple(i for i in range(ndim) if i not in used)


def _dot_typ(x: Aval, y: Aval, *, contract: Pair, batch: Pair, strong: int | None) -> list[Aval]:
    if x.dtype != y.dtype or x.dtype.kind not in "fciu":
        raise type_error("dot", (x, y), "Both operands are numbers of one dtype; convert first.")
    for a, b in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        if x.shape[a] != y.shape[b]:
            raise type_error("dot", (x, y), f"Axis {a} of the first and axis {b} of the second have different lengths.")
    shape = [x.shape[i] for i in batch[0]]
    shape += [x.shape[i] for i in free_axes(x.ndim, contract[0], batch[0])]
    shape += [y.shape[i] for i in free_axes(y.ndim, contract[1], batch[1])]
    return [Aval(tuple(shape), x.dtype)]


def _dot_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, contract: Pair, batch: Pair, strong: int | None
) -> tuple[list, list]:
    (x, y), (tx, ty) = primals, tangents
    terms = [
        None if tx is None else dot(tx, y, contract=contract, batch=batch, strong=0),
        None if ty is None else dot(x, ty, contract=contract, batch=batch, strong=1),
    ]
    return [dot(x, y, contract=contract, batch=batch, strong=strong)], [add_tangents(terms)]


def _dot_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, contract: Pair, batch: Pair, strong: int | None) -> list:
    """The cotangent contracted with the other operand over the axes that were free in it."""
    g, (x, y) = cts[0], inputs
    linear = 0 if not _is_value(x) else 1
    mine, other = (x, y) if linear == 0 else (y, x)
    m_contract, o_contract = contract[linear], contract[1 - linear]
    m_batch, o_batch = batch[linear], batch[1 - linear]
    m_ndim, o_ndim = aval_of(mine).ndim, aval_of(other).ndim
    m_free, o_free = free_axes(m_ndim, m_contract, m_batch), free_axes(o_ndim, o_contract, o_batch)
    nb, nx = len(m_batch), len(m_free if linear == 0 else o_free)
    first, second = tuple(range(nb, nb + nx)), tuple(range(nb + nx, aval_of(g).ndim))
    g_contract = second if linear == 0 else first
    z = dot(g, other, contract=(g_contract, o_free), batch=(tuple(range(nb)), o_batch), strong=0)
    # z has the axes: batch, my free axes, then my contracted axes in the order in which the other operand holds them
    partner = dict(zip(o_contract, m_contract, strict=True))
    order = (*m_batch, *m_free, *(partner[i] for i in sorted(o_contract)))
    z = transpose(z, perm=inverse(order))
    return [z, None] if linear == 0 else [None, z]


def _is_value(x: Any) -> bool:
    from fxgrad.primitives.base import Linear

    return not isinstance(x, Linear)


def _dot_batch(
    size: int, args: Sequence[Any], batched: Sequence[bool], *, contract: Pair, batch: Pair, strong: int | None
) -> tuple[list, list[bool]]:
    def up(axes: tuple[int, ...], moved: bool) -> tuple[int, ...]:
        return tuple(i + 1 for i in axes) if moved else axes

    bx, by = batched
    shifted: Pair = (up(contract[0], bx), up(contract[1], by))
    groups: Pair = (up(batch[0], bx), up(batch[1], by))
    if bx and by:
        return [dot(*args, contract=shifted, batch=((0, *groups[0]), (0, *groups[1])), strong=strong)], [True]
    z = dot(*args, contract=shifted, batch=groups, strong=strong)
    position = len(batch[0])  # where the batch axis landed: the first of its operand's free axes
    if by:
        position += len(free_axes(aval_of(args[0]).ndim, *(shifted[0], groups[0])))
    ndim = aval_of(z).ndim
    return [transpose(z, perm=(position, *(i for i in range(ndim) if i != position)))], [True]


def _dot_numpy(x: Any, y: Any, *, contract: Pair, batch: Pair, strong: int | None) -> np.ndarray:
    """The product of both operands seen as batches of matrices."""
    x, y = np.asarray(x), np.asarray(y)
    dtype = x.dtype
    if dtype == np.float16:
        x, y = x.astype(np.float32), y.astype(np.float32)
    x_order, a_shape, y_order, b_shape, shape = as_matrices(x.shape, y.shape, contract, batch)
    a = (x if x_order is None else x.transpose(x_order)).reshape(a_shape)
    b = (y if y_order is None else y.transpose(y_order)).reshape(b_shape)
    if has_product_kernel(a.dtype):
        z = matmul(a, b, 0 if strong is None else strong + 1)
    else:  # BLAS gets operands of one layout, so that it rounds alike each time
        z = np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))
        if strong is not None and z.dtype.kind in "fc":
            _annihilate(z, a, b, strong)
    z = z.reshape(shape)
    return z if z.dtype == dtype else z.astype(dtype)


@lru_cache(maxsize=4096)
def as_matrices(x: tuple[int, ...], y: tuple[int, ...], contract: Pair, batch: Pair) -> tuple:
    """How operands of these shapes are batches of matrices: the order of their axes (None: as it is), then their shapes."""
    x_free, y_free = free_axes(len(x), contract[0], batch[0]), free_axes(len(y), contract[1], batch[1])
    orders = (*batch[0], *x_free, *contract[0]), (*batch[1], *contract[1], *y_free)
    x_order, y_order = (None if order == tuple(range(len(order))) else order for order in orders)
    groups, m, k, n = (math.prod(s[i] for i in axes) for s, axes in ((x, batch[0]), (x, x_free), (x, contract[0]), (y, y_free)))
    shape = (*(x[i] for i in (*batch[0], *x_free)), *(y[i] for i in y_free))
    return x_order, (groups, m, k), y_order, (groups, k, n), shape


def has_product_kernel(dtype: np.dtype) -> bool:
    """Whether compiled programs multiply matrices of this dtype by kernels of their own."""
    return config.matmul == "own" and dtype in SUPPORTED


def _annihilate(z: np.ndarray, a: np.ndarray, b: np.ndarray, strong: int) -> None:
    """What our kernels do for BLAS's product: zeros of operand `strong` annihilate where 0 * inf or 0 * NaN has made a NaN."""
    for g, i, j in np.argwhere(np.isnan(z)):
        t, r = (a[g, i], b[g, :, j]) if strong == 0 else (b[g, :, j], a[g, i])
        z[g, i, j] = np.sum(np.where(t == 0, 0, t * r))


dot = register(
    Primitive(
        "dot",
        "host",
        _dot_typ,
        Doc(
            "sum of products over contracted axes, side by side over batch axes",
            "g contracted with the other operand over its free axes",
            "Giles (2008), 2.2",
        ),
        jvp=_dot_jvp,
        transpose=_dot_transpose,
        batch=_dot_batch,
        numpy=_dot_numpy,
        cheap=False,
    )
)
