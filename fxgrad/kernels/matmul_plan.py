"""Which product kernel for which operands, and its plan. No code is generated here."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fxgrad.kernels.matmul import (
    ALONG,
    APART,
    DOT_BLOCKS,
    IN_PLACE,
    MATVEC_ROWS,
    PLAN,
    DotKernel,
    MatmulKernel,
    MatvecKernel,
    PackKernel,
    ProductKernel,
    SumKernel,
    block_length,
)
from fxgrad.kernels.matvec_small import SmallMatvecKernel

__all__ = [
    "SUPPORTED", "Matrix", "Product", "Run", "is_small_matvec", "packing_apart", "plan_product", "product_fields",
    "units_of_work", "ways_of_packing",
]  # fmt: skip

SUPPORTED = frozenset(np.dtype(n) for n in ("float32", "float64", "int32", "int64", "uint32", "uint64"))
_ROWS, _COLUMNS = 12, 32  # in a unit of work: few enough to share evenly, and whole register blocks nearly everywhere
_COMPUTED, _STREAMED = 1 << 21, 1 << 14  # bytes multiplied in registers, elements read from memory that are worth a thread
_WHOLE = 1 << 21  # those of a batch that is one unit of work
_FEW, _LONG = 4096, 8192  # results; from which k on blocks of k are shared, since so few results are not
_THIN, _SHORT = 64, 96  # rows from which on packing b pays; from which on there is enough to share in rows
_OWN = 256  # rows up to which threads pack b each for itself: what another core has just written takes long to read
_STRIP, _NARROW = 1024, 1 << 16  # bytes of rows that are read one below the other: at least; too few to be shared in strips
_LARGE, _PARTS = 1 << 21, 8  # bytes of a matrix that is read from afar; blocks of k that are enough to share
_SMALL = 1 << 14  # elements of a matrix that is multiplied by a vector in a microsecond
_SHARES = 8  # of the columns, in which threads take them
_IN_PLACE_BYTES = 128 * 1024  # bytes of a block of b that need no packing: they stay in the first two levels of the cache


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
    """One run of a kernel: its plan, its pointers, each a, b, c or p: memory that the first run writes, of `passed` bytes.

    `rows` = (units, unit, rows of a batch), if its units of work are rows: unit u is, of batch
    u // units, the rows from (u % units) * unit on.
    """

    kernel: ProductKernel
    plan: np.ndarray
    pointers: str
    passed: int = 0
    rows: tuple[int, int, int] | None = None


def plan_product(product: Product) -> list[Run]:
    """The kernels that compute a product, in order; no size is zero."""
    size = product.dtype.itemsize
    swapped = product.n > 1 and product.c.column != size
    p = _normal(product.transposed if swapped else product)
    if p.c.column != size:
        raise ValueError("neither the rows nor the columns of the result lie without gaps")
    if p.m == 1 < p.n and _suits_matvec(p.transposed):
        p, swapped = p.transposed, not swapped
    pointers = "bac" if swapped else "abc"
    if p.m == p.n == 1 and p.a.column == p.b.row == size:
        return _dot(p, pointers)
    whole = p.m == 1 or p.c.row == p.n * size
    few = p.m * p.n <= _FEW and p.k >= _LONG
    if p.outer * p.inner == 1 and whole and (few or _is_narrow(p)):
        return _cut(p, pointers)
    if _is_small(p):
        return [_small(p, pointers)]
    if p.n == 1 < p.m and _suits_matvec(p):
        count = -(-p.m // MATVEC_ROWS)
        grain = _grain(MATVEC_ROWS * p.k, _STREAMED)
        if p.a.row == size:
            grain = max(grain, _STRIP // (MATVEC_ROWS * size))
        units = {"extent": p.outer * p.inner * count, "units": count, "unit": MATVEC_ROWS, "grain": grain}
        return [Run(MatvecKernel(p.dtype), product_fields(p, units), pointers, rows=_rows(p, units, swapped))]
    return _matmul(p, swapped)


def _is_narrow(p: Product) -> bool:
    """Whether strips of a large matrix, whose columns lie side by side, would be short of what memory is read in with ease."""
    size = p.dtype.itemsize
    streams = p.n == 1 and p.a.row == size and _suits_matvec(p)
    return streams and p.m * size < _NARROW and p.m * p.k * size >= _LARGE and p.k >= _PARTS * block_length(p.dtype)


def _is_small(p: Product) -> bool:
    """Whether a matrix times a vector is over before a larger kernel has found out what to do."""
    size = p.dtype.itemsize
    alone = p.outer * p.inner == 1 and p.n == 1 and p.a.row == size and p.c.row == size
    return alone and is_small_matvec(p.m, p.k, p.dtype)


def is_small_matvec(m: int, k: int, dtype: np.dtype) -> bool:
    """Whether there is a kernel for a vector's product with a matrix of m rows and k columns, if its columns are contiguous."""
    return m > 1 and k <= block_length(dtype) and m * k <= _SMALL and dtype.kind == "f" and dtype in SUPPORTED


def _small(p: Product, pointers: str) -> Run:
    kernel = SmallMatvecKernel(p.dtype)
    plan = kernel.plan(
        extent=1, grain=0, m=p.m, k=p.k, strong=p.strong, a_offset=p.a.offset, a_column=p.a.column,
        b_offset=p.b.offset, b_row=p.b.row, c_offset=p.c.offset,
    )  # fmt: skip
    return Run(kernel, plan, pointers)


def _dot(p: Product, pointers: str) -> list[Run]:
    """A dot product: at once, or, if it is long, first the sums of its blocks, which any number of threads can compute."""
    batches, blocks, size = p.outer * p.inner, -(-p.k // block_length(p.dtype)), p.dtype.itemsize
    if blocks <= DOT_BLOCKS:
        units = {"extent": batches, "units": 1, "unit": 1, "grain": _grain(p.k, _STREAMED)}
        return [Run(DotKernel(p.dtype), product_fields(p, units), pointers)]
    parts = Matrix(0, p.inner * blocks * size, blocks * size, size, size)
    units = {"extent": batches * blocks, "units": blocks, "unit": 1, "grain": _grain(block_length(p.dtype), _STREAMED)}
    first = Run(
        DotKernel(p.dtype), product_fields(p._replace(c=parts), units | {"parts": 1}), pointers[:2] + "p", batches * blocks * size
    )
    units = {"extent": batches, "units": 1, "unit": 1, "grain": _grain(blocks, _STREAMED)}
    return [first, Run(SumKernel(p.dtype), product_fields(p._replace(k=blocks, a=parts), units), "pc")]


def _cut(p: Product, pointers: str) -> list[Run]:
    """Few results of a long k: the sums of its blocks, which any number of threads can compute, then the sums of these."""
    block, size, results = block_length(p.dtype), p.dtype.itemsize, p.m * p.n
    blocks = -(-p.k // block)
    a, b = p.a._replace(inner=block * p.a.column), p.b._replace(inner=block * p.b.row)
    parts = Matrix(0, 0, results * size, p.n * size, size)
    grain = min(_grain(block * results * size, _COMPUTED), _grain(block * (p.m + p.n), _STREAMED))
    one = p._replace(inner=blocks, k=block, a=a, b=b, c=parts)
    vector = p.n == 1 and _suits_matvec(one)
    values = (
        {"units": -(-p.m // MATVEC_ROWS), "unit": MATVEC_ROWS} if vector else {"units": 1, "unit": p.m} | ways_of_packing(one)
    )
    values |= {"extent": blocks * values["units"], "grain": grain * values["units"], "k": p.k, "cut": 1}
    first = Run(
        MatvecKernel(p.dtype) if vector else MatmulKernel(p.dtype),
        product_fields(one, values),
        pointers[:2] + "p",
        blocks * results * size,
    )
    units = {"extent": 1, "units": 1, "unit": results, "grain": 0}
    total = p._replace(m=1, n=results, k=blocks, a=Matrix(0, 0, 0, size, results * size))
    return [first, Run(SumKernel(p.dtype), product_fields(total, units), "pc")]


def _grain(multiply_adds: int, worth: int) -> int:
    """Units of so many multiply-adds that are worth a thread."""
    return -(-worth // multiply_adds)


def _rows(p: Product, units: dict[str, int], swapped: bool) -> tuple[int, int, int] | None:
    return None if swapped or units.get("by_columns") else (units["units"], units["unit"], p.m)


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
    return p if a is p.a and b is p.b and c is p.c else p._replace(a=a, b=b, c=c)


def _suits_matvec(p: Product) -> bool:
    """A matrix with a contiguous axis times a vector, giving a contiguous one."""
    size = p.dtype.itemsize
    return p.c.row == size and (p.a.row == size or (p.a.column == size and p.m >= MATVEC_ROWS))


def _matmul(p: Product, swapped: bool) -> list[Run]:
    units = units_of_work(p)
    values = units | ways_of_packing(p)
    if values["pack_b"] != APART:
        return [Run(MatmulKernel(p.dtype), product_fields(p, values), "bac" if swapped else "abc", rows=_rows(p, units, swapped))]
    packing, strides = packing_apart(p)
    order, rows = "bapc" if swapped else "abpc", _rows(p, units, swapped)
    product = Run(MatmulKernel(p.dtype), product_fields(p, values | strides), order, rows=rows)
    return [packing._replace(pointers="ap" if swapped else "bp"), product]


def ways_of_packing(p: Product, gathered: bool = False) -> dict[str, int]:
    """What is packed, and how much of b at a time; `gathered`: rows of a cost something for every range of columns."""
    way = _packing(p, gathered)
    stretch = p.n if way == IN_PLACE else min(p.n, _packed_bytes() // (block_length(p.dtype) * p.dtype.itemsize))
    columns = p.n // _SHARES if _shares_columns(p, gathered) else p.n
    pack_a = p.a.column != p.dtype.itemsize and columns > (128 if p.a.row == p.dtype.itemsize else 32)
    return {"pack_a": pack_a and not gathered, "pack_b": way, "stretch": stretch}


def units_of_work(p: Product, gathered: bool = False) -> dict[str, int]:
    """Units of work: rows or columns; small batches whole."""
    by_columns = _shares_columns(p, gathered)
    length, unit = (p.n, _COLUMNS) if by_columns else (p.m, _ROWS)
    if _is_whole(p):
        length, unit = p.m, p.m
    count = -(-length // unit)
    work = unit * p.k * (p.m if by_columns else p.n) * p.dtype.itemsize
    return {
        "extent": p.outer * p.inner * count,
        "units": count,
        "unit": unit,
        "by_columns": by_columns,
        "grain": _grain(work, _COMPUTED),
    }


def _is_whole(p: Product) -> bool:
    """Whether a batch is one unit of work."""
    return p.outer * p.inner > 1 and p.m * p.n * p.k <= _WHOLE


def _shares_columns(p: Product, gathered: bool) -> bool:
    """Whether threads take columns of the result.

    There are too few rows, or too few for panels of b that threads share, or b is the larger operand and every piece of rows
    would read it. That only where a lies turned (as in the gradient of a weight): what others compute by rows, a pipeline may
    go on with.
    """
    if _is_whole(p):
        return False
    if p.m <= _SHORT:
        return p.n > p.m
    if gathered or p.outer * p.inner > 1 or _is_read_in_place(p):
        return False
    turned = p.a.row == p.dtype.itemsize
    return p.m <= min(_OWN, p.n) or (turned and p.n >= 2 * p.m)


def _is_read_in_place(p: Product) -> bool:
    size, block = p.dtype.itemsize, min(p.k, block_length(p.dtype))
    return p.b.column == size and (p.m <= _THIN or block * p.n * size <= _IN_PLACE_BYTES)


def _packing(p: Product, gathered: bool) -> int:
    """Whether and where b is packed."""
    if _is_read_in_place(p):
        return IN_PLACE
    return ALONG if _is_whole(p) or p.m <= _SHORT or _shares_columns(p, gathered) else APART


def packing_apart(p: Product) -> tuple[Run, dict[str, int]]:
    """The packing of b apart, and how the panels lie."""
    size, padded = p.dtype.itemsize, -(-p.n // _COLUMNS) * _COLUMNS
    outer, inner = (n if s else 1 for n, s in ((p.outer, p.b.outer), (p.inner, p.b.inner)))
    one = padded * p.k * size
    strides = {"panels_block": padded * block_length(p.dtype) * size, "panels_inner": one * (inner > 1)}
    strides["panels_outer"] = one * inner * (outer > 1)
    unit = min(max(padded // 8 // _COLUMNS, 1), 8) * _COLUMNS
    count = -(-p.n // unit)
    units = {
        "extent": outer * inner * count,
        "units": count,
        "unit": unit,
        "inner": inner,
        "grain": _grain(unit * p.k, _STREAMED),
    }
    total = outer * inner * one + 64
    return Run(PackKernel(p.dtype), product_fields(p, strides | units), "bp", total), strides


def product_fields(p: Product, values: dict[str, int], fields: Sequence[str] = PLAN) -> np.ndarray:
    """The plan with these values."""
    known = {"m": p.m, "n": p.n, "k": p.k, "strong": p.strong if p.dtype.kind == "f" else 0, "inner": p.inner}
    known.update(zip(_PLACES, (*p.a, *p.b, *p.c), strict=True))
    known |= values
    return np.array([known.get(f, 0) for f in fields], np.int64)


_PLACES = [f"{name}_{f}" for name in "abc" for f in Matrix._fields]


@functools.cache
def _packed_bytes() -> int:
    """How much of b is packed at a time: half the second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        cache = int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
    except (OSError, ValueError):
        cache = 1 << 20
    return min(max(cache // 2, 1 << 18), 1 << 20)
