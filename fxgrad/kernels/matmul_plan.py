"""Which product kernel for which operands, and its plan. No code is generated here."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fxgrad.kernels.matmul import MATVEC_ROWS, PLAN, DotKernel, MatmulKernel, MatvecKernel, ProductKernel, block_length

__all__ = ["SUPPORTED", "Matrix", "Product", "Run", "plan_product"]

SUPPORTED = frozenset(np.dtype(n) for n in ("float32", "float64", "int32", "int64", "uint32", "uint64"))
_ROWS, _COLUMNS = 48, 64  # in a unit of work: multiples of every register block
_THIN = 64  # rows from which on packing b pays
_IN_PLACE = 128 * 1024  # bytes of a block of b that need no packing: they stay in the first two levels of the cache


class Matrix(NamedTuple):
    """How a batch of matrices lies in memory: bytes to its start, and from one batch, row and column to the next."""

    offset: int
    outer: int
    inner: int
    row: int
    column: int

    @property
    def transposed(self) -> Matrix:
        return self._replace(row=self.column, column=self.row)


class Product(NamedTuple):
    """c[g] = a[g] @ b[g], m by k by n, for outer * inner batches; in c the rows or the columns lie without gaps.

    `strong` names the operand whose zeros annihilate: 1 for a, 2 for b, 0 for neither.
    """

    dtype: np.dtype
    outer: int
    inner: int
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    strong: int = 0

    @property
    def transposed(self) -> Product:
        """The same numbers as b' @ a'."""
        a, b, c = self.b.transposed, self.a.transposed, self.c.transposed
        return self._replace(m=self.n, n=self.m, a=a, b=b, c=c, strong=(0, 2, 1)[self.strong])


class Run(NamedTuple):
    """One run of a kernel: its plan and its pointers, each "a", "b" or "c"."""

    kernel: ProductKernel
    plan: np.ndarray
    pointers: str


def plan_product(product: Product) -> Run:
    """The kernel that computes a product; no size is zero."""
    size = product.dtype.itemsize
    swapped = product.n > 1 and product.c.column != size
    p = _normal(product.transposed if swapped else product)
    if p.c.column != size:
        raise ValueError("neither the rows nor the columns of the result lie without gaps")
    if p.m == 1 < p.n:
        turned = p.transposed
        if _suits_matvec(turned):
            p, swapped = turned, not swapped
    kernel: ProductKernel
    if p.m == p.n == 1 and p.k > block_length(p.dtype) and p.a.column == p.b.row == size:
        kernel, values = DotKernel(p.dtype), {"extent": p.outer * p.inner, "units": 1, "unit": 1}
    elif p.n == 1 < p.m and _suits_matvec(p):
        units = -(-p.m // MATVEC_ROWS)
        kernel, values = MatvecKernel(p.dtype), {"extent": p.outer * p.inner * units, "units": units, "unit": MATVEC_ROWS}
    else:
        kernel, values = MatmulKernel(p.dtype), _matmul(p)
    return Run(kernel, _fields(p, values), "bac" if swapped else "abc")


def _normal(p: Product) -> Product:
    """Strides of axes of length 1 made those of the usual layout; batches that share b made rows."""
    size = p.dtype.itemsize
    if p.inner == 1 and p.outer > 1:
        p = p._replace(outer=1, inner=p.outer, **{x: getattr(p, x)._replace(inner=getattr(p, x).outer) for x in "abc"})
    a, b, c = p.a, p.b, p.c
    if p.outer == 1 < p.inner and b.inner == 0 and (p.m == 1 or (a.inner == p.m * a.row and c.inner == p.m * c.row)):
        if p.m == 1:
            a, c = a._replace(row=a.inner), c._replace(row=c.inner)
        p = p._replace(inner=1, m=p.inner * p.m)
    if p.k == 1:
        a, b = a._replace(column=size), b._replace(row=b.row if p.n > 1 else size)
    if p.n == 1:
        b, c = b._replace(column=size), c._replace(column=size)
    if p.m == 1:
        a, c = a._replace(row=size), c._replace(row=size if p.n == 1 else c.row)
    return p._replace(a=a, b=b, c=c)


def _suits_matvec(p: Product) -> bool:
    """A matrix with a contiguous axis times a vector, giving a contiguous one."""
    size = p.dtype.itemsize
    return p.c.row == size and (p.a.row == size or (p.a.column == size and p.m >= MATVEC_ROWS))


def _matmul(p: Product) -> dict[str, int]:
    size, block = p.dtype.itemsize, min(p.k, block_length(p.dtype))
    by_columns = p.n > p.m and p.m <= 2 * _ROWS
    unit = _COLUMNS if by_columns else _ROWS
    units = -(-(p.n if by_columns else p.m) // unit)
    pack_b = p.b.column != size or (p.m > _THIN and block * p.n * size > _IN_PLACE)
    pack_a = p.a.column != size and p.n > (128 if p.a.row == size else 32)
    stretch = _packed_bytes() // (block_length(p.dtype) * size) if pack_b else p.n
    extent = p.outer * p.inner * units
    return {
        "extent": extent, "units": units, "unit": unit, "by_columns": by_columns, "pack_a": pack_a, "pack_b": pack_b,
        "stretch": min(p.n, stretch),
    }  # fmt: skip


def _fields(p: Product, values: dict[str, int]) -> np.ndarray:
    known = {"grain": 1, "m": p.m, "n": p.n, "k": p.k, "strong": p.strong if p.dtype.kind == "f" else 0, "inner": p.inner}
    for name, matrix in zip("abc", (p.a, p.b, p.c), strict=True):
        known |= {f"{name}_{f}": v for f, v in matrix._asdict().items()}
    known |= values
    return np.array([int(known.get(f, 0)) for f in PLAN], np.int64)


@functools.cache
def _packed_bytes() -> int:
    """How much of b is packed at a time: half the second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        cache = int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
    except (OSError, ValueError):
        cache = 1 << 20
    return min(max(cache // 2, 1 << 18), 1 << 20)
