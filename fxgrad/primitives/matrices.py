"""Helpers of the rules of linear algebra: products, triangles and scalings of stacks of matrices (the last two axes)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives import complex as cx
from fxgrad.primitives.base import Primitive, batch_together, type_error, zeros
from fxgrad.primitives.dot import dot
from fxgrad.primitives.elementwise import abs_, add, div, eq, ge, gt, le, lin_mul, lt, mul, neg, select, sub
from fxgrad.primitives.reduce import max_, sum_
from fxgrad.primitives.shape import broadcast, iota, slice_, transpose

DTYPES = tuple(np.dtype(d) for d in ("float32", "float64", "complex64", "complex128"))
Test = Callable[[Any, Any], Any]
BELOW, LOWER, DIAGONAL, UPPER = gt, ge, eq, le  # of (row, column): which elements `part` keeps


def matrix_types(name: str, avals: Sequence[Aval], square: bool = False) -> tuple[int, ...]:
    """Checks that operands are stacks of matrices of one dtype and one stacking; the shape of the first."""
    first = avals[0]
    if first.dtype not in DTYPES or any(a.dtype != first.dtype for a in avals):
        raise type_error(name, avals, "It takes float32, float64, complex64 or complex128, all operands alike.")
    if first.ndim < 2 or any(a.shape[:-2] != first.shape[:-2] or a.ndim != first.ndim for a in avals):
        raise type_error(name, avals, "It takes matrices in the last two axes, stacked alike.")
    if square and first.shape[-1] != first.shape[-2]:
        raise type_error(name, avals, "The matrix must be square.")
    return first.shape


def batch_stack(prim: Callable[[], Primitive]) -> Callable:
    """Batching rule: one more leading axis, for all operands."""

    def rule(size: int, args: Sequence[Any], batched: Sequence[bool], **params: Any) -> tuple[list, list[bool]]:
        outs = prim()(*batch_together(size, args, batched), **params)
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        return outs, [True] * len(outs)

    return rule


def mm(x: Any, y: Any, strong: int | None = None) -> Any:
    """x @ y; `strong` names the operand that is a tangent."""
    lead = tuple(range(aval_of(x).ndim - 2))
    n = len(lead)
    return dot(x, y, contract=((n + 1,), (n,)), batch=(lead, lead), strong=strong)


def turn(x: Any) -> Any:
    """The transpose."""
    n = aval_of(x).ndim
    return transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def conj(x: Any) -> Any:
    """The complex conjugate."""
    return cx.conj(x) if aval_of(x).dtype.kind == "c" else x


def real_part(x: Any) -> Any:
    return cx.real(x) if aval_of(x).dtype.kind == "c" else x


def as_kind(x: Any, like: Any) -> Any:
    """x as complex numbers if `like` is of that kind."""
    aval = aval_of(x)
    return cx.complex_(x, zeros(aval)) if aval.dtype.kind == "f" and aval_of(like).dtype.kind == "c" else x


def scaled(t: Any, factors: Any) -> Any:
    """A tangent times real (or complex) numbers, element by element."""
    return lin_mul(t, as_kind(factors, t))


def imaginary_half(x: Any) -> Any:
    """(x - x^H) / 2."""
    return half(sub(x, adjoint(x)))


def real_half(x: Any) -> Any:
    """(x + x^H) / 2."""
    return half(add(x, adjoint(x)))


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(turn(x))


def columns(x: Any, start: int, stop: int) -> Any:
    shape = aval_of(x).shape
    low = (0,) * (len(shape) - 1)
    return slice_(x, start=(*low, start), stop=(*shape[:-1], stop), step=(1,) * len(shape))


def rows(x: Any, start: int, stop: int) -> Any:
    return turn(columns(turn(x), start, stop))


def _places(shape: tuple[int, ...], test: Test) -> Any:
    count = np.dtype(np.int64)
    return test(iota(shape=shape, dtype=count, axis=len(shape) - 2), iota(shape=shape, dtype=count, axis=len(shape) - 1))


def part(x: Any, test: Test) -> Any:
    """x where test(row, column) holds, else 0."""
    aval = aval_of(x)
    return select(_places(aval.shape, test), x, aval.dtype.type(0))


def half(x: Any) -> Any:
    return mul(x, aval_of(x).dtype.type(0.5))


def lower_half(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    return add(part(x, BELOW), half(part(x, DIAGONAL)))


def from_triangle(x: Any, lower: bool) -> Any:
    """The Hermitian matrix of which x holds the given triangle; what stands in the other is not looked at."""
    strict, diagonal = part(x, gt if lower else lt), part(x, DIAGONAL)
    if aval_of(x).dtype.kind == "c":  # its imaginary part is not looked at either
        diagonal = real_half(diagonal)
    return add(diagonal, add(strict, adjoint(strict)))


def on_columns(v: Any, shape: tuple[int, ...]) -> Any:
    """v[j] at every (i, j)."""
    return broadcast(v, shape=shape, dims=(*range(len(shape) - 2), len(shape) - 1))


def on_rows(v: Any, shape: tuple[int, ...]) -> Any:
    """v[i] at every (i, j)."""
    return broadcast(v, shape=shape, dims=tuple(range(len(shape) - 1)))


def column_sums(x: Any) -> Any:
    return sum_(x, axes=(aval_of(x).ndim - 2,))


def diagonal_of(x: Any) -> Any:
    return column_sums(part(x, DIAGONAL))


def inner_product(t: Any, x: Any) -> Any:
    """tr(x.T @ t) of the tangent t."""
    n = aval_of(t).ndim
    return sum_(lin_mul(t, x), axes=(n - 2, n - 1))


def negligible(values: Any, n: int, shape: tuple[int, ...]) -> Any:
    """How small a difference of values of this spectrum LAPACK's rounding makes of 0, at every place of `shape`."""
    aval = aval_of(values)
    largest = max_(abs_(values), axes=(aval.ndim - 1,))
    eps = 8 * n * np.finfo(aval.dtype).eps
    return broadcast(mul(largest, aval.dtype.type(eps)), shape=shape, dims=tuple(range(aval.ndim - 1)))


def reciprocal(x: Any, tiny: Any) -> Any:
    """1/x, and 0 where |x| <= tiny."""
    aval = aval_of(x)
    gone, one = le(abs_(x), tiny), aval.dtype.type(1)
    ones = broadcast(one, shape=aval.shape, dims=())
    return select(gone, aval.dtype.type(0), div(ones, select(gone, one, x)))


def minus(x: Any, y: Any) -> Any:
    """x - y of tangents, either of which may be None."""
    if y is None:
        return x
    return neg(y) if x is None else sub(x, y)
