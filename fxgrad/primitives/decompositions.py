"""Decompositions of matrices: triangular factors, eigenvalues, singular values.

The derivative of eigenvectors divides by differences of eigenvalues. Where two agree to rounding, the vectors are any basis of
their common space, and the derivative within it is taken to be 0: so functions that do not depend on the basis come out right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives import complex as cx
from fxgrad.primitives.base import Doc, Primitive, register, type_error, zeros
from fxgrad.primitives.complex import real_dtype
from fxgrad.primitives.elementwise import add, div, eq, gt, lin_div, lin_mul, mul, select, sqrt, sub
from fxgrad.primitives.index import gather
from fxgrad.primitives.linalg import library, solve, triangular_solve
from fxgrad.primitives.matrices import (
    BELOW,
    DIAGONAL,
    UPPER,
    adjoint,
    as_kind,
    batch_stack,
    column_sums,
    columns,
    conj,
    diagonal_of,
    from_triangle,
    imaginary_half,
    lower_half,
    matrix_types,
    minus,
    mm,
    negligible,
    on_columns,
    on_rows,
    part,
    real_half,
    real_part,
    reciprocal,
    rows,
    scaled,
    turn,
)  # fmt: skip
from fxgrad.primitives.reduce import argmax
from fxgrad.primitives.shape import concatenate, iota
from fxgrad.runtime import dense

_INT32 = np.dtype(np.int32)


def _solve_left(r: Any, x: Any, *, lower: bool, op: str = "n", unit: bool = False) -> Any:
    return triangular_solve(r, x, lower=lower, op=op, unit=unit, checked=False)


def _solve_right(x: Any, r: Any) -> Any:
    """x r^-1 of an upper triangular r."""
    return turn(_solve_left(r, turn(x), lower=False, op="t"))


def _zeros_like(x: Any, m: int, n: int) -> Any:
    """A stack of zeros of m rows and n columns, as many as in x."""
    aval = aval_of(x)
    return zeros(aval.with_shape((*aval.shape[:-2], m, n)))


# ---- cholesky ------------------------------------------------------------------------------------------------------------


def _cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, upper: bool) -> tuple[list, list]:
    y = cholesky(primals[0], upper=upper)
    f = adjoint(y) if upper else y
    moved = _solve_left(f, from_triangle(tangents[0], lower=not upper), lower=True)
    moved = adjoint(_solve_left(f, adjoint(moved), lower=True))
    tangent = mm(f, lower_half(moved), strong=1)
    return [y], [adjoint(tangent) if upper else tangent]


cholesky = register(
    Primitive(
        "cholesky",
        "host",
        lambda a, *, upper: [a.with_shape(matrix_types("cholesky", (a,), square=True))],
        Doc(
            "L with L L^H the Hermitian matrix whose lower triangle is read; or (upper) L^H, the upper triangle being read",
            "in the triangle that is read: L^-T (the lower triangle of L^T g, its diagonal halved) L^-1",
            "Murray (2016)",
        ),
        jvp=_cholesky_jvp,
        batch=batch_stack(lambda: cholesky),
        numpy=lambda a, *, upper: library(np.linalg.cholesky, a, upper=upper),
        cheap=False,
    )
)

# ---- lu ------------------------------------------------------------------------------------------------------------------


def _lu_typ(a: Aval) -> list[Aval]:
    *lead, m, n = matrix_types("lu", (a,))
    return [a, Aval((*lead, min(m, n)), _INT32), Aval((*lead, m), _INT32)]


def permuted_rows(x: Any, perm: Any) -> Any:
    """x[perm] for every matrix of a stack."""
    shape = aval_of(perm).shape
    lead = len(shape) - 1
    indices = [iota(shape=shape, dtype=np.dtype(np.int64), axis=i) for i in range(lead)]
    return gather(x, *indices, perm, axes=tuple(range(lead + 1)))


def _lu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    packed, pivots, perm = lu(primals[0])
    m, n = aval_of(packed).shape[-2:]
    k = min(m, n)
    t = permuted_rows(tangents[0], perm)
    square, top = columns(rows(packed, 0, k), 0, k), rows(packed, 0, k)
    x = _solve_left(square, rows(t, 0, k), lower=True, unit=True)
    strict = part(_solve_right(columns(x, 0, k), square), BELOW)
    upper = part(top, UPPER)
    du = part(minus(x, mm(strict, upper, strong=0)), UPPER)
    # L is the strict part of `square` and ones on the diagonal
    dl = add(mm(part(square, BELOW), strict, strong=1), strict)
    if n > k:
        dl = concatenate(dl, _zeros_like(du, k, n - k), axis=aval_of(dl).ndim - 1)
    out = add(du, dl)
    if m > k:
        rest = minus(rows(t, k, m), mm(rows(packed, k, m), du, strong=1))
        out = concatenate(out, _solve_right(rest, square), axis=aval_of(out).ndim - 2)
    return [packed, pivots, perm], [out, None, None]


lu = register(
    Primitive(
        "lu",
        "host",
        _lu_typ,
        Doc(
            "L (below a diagonal of ones) and U in one matrix; the row exchanged with each; the permutation p: a[p] = L U",
            "through the triangles of L^-1 t[p] U^-1",
            "de Hoog, Anderssen, Lukas (2011)",
        ),
        jvp=_lu_jvp,
        batch=batch_stack(lambda: lu),
        numpy=lambda a: list(dense.lu(a)),
        cheap=False,
    )
)


def _permutation_typ(pivots: Aval, *, rows: int) -> list[Aval]:
    if pivots.dtype.kind not in "iu" or not pivots.ndim or pivots.shape[-1] > rows:
        raise type_error("pivots_to_permutation", (pivots,), f"It takes integers, at most {rows} of them.")
    return [Aval((*pivots.shape[:-1], rows), _INT32)]


pivots_to_permutation = register(
    Primitive(
        "pivots_to_permutation",
        "host",
        _permutation_typ,
        Doc("0, 1, 2, ... after element i was exchanged with element pivots[i], for i in order", "0"),
        jvp=lambda primals, tangents, **params: ([pivots_to_permutation(*primals, **params)], [None]),
        batch=batch_stack(lambda: pivots_to_permutation),
        numpy=lambda pivots, *, rows: dense.permutation(pivots, rows),
    )
)

# ---- qr ------------------------------------------------------------------------------------------------------------------


def _qr_typ(a: Aval, *, full: bool) -> list[Aval]:
    *lead, m, n = matrix_types("qr", (a,))
    k = m if full else min(m, n)
    return [a.with_shape((*lead, m, k)), a.with_shape((*lead, k, n))]


def _qr_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, full: bool) -> tuple[list, list]:
    """The first k columns fix Q's. In full mode the others turn with them, and not among themselves."""
    t = tangents[0]
    q, r = qr(primals[0], full=full)
    (m, n), width = aval_of(t).shape[-2:], aval_of(q).shape[-1]
    k = min(m, n)
    q1, r1 = columns(q, 0, k), rows(r, 0, k)
    moved = _solve_right(columns(t, 0, k), columns(r1, 0, k))
    inside = mm(adjoint(q1), moved, strong=1)
    strict = part(inside, BELOW)
    turning = minus(strict, adjoint(strict))
    if aval_of(q).dtype.kind == "c":  # the diagonal of R is real, as LAPACK chooses it
        turning = add(turning, imaginary_half(part(inside, DIAGONAL)))
    dr = part(minus(mm(adjoint(q1), t, strong=1), mm(turning, r1, strong=0)), UPPER)
    dq = add(mm(q1, minus(turning, inside), strong=1), moved)
    if width > k:
        q2 = columns(q, k, width)
        away = mm(adjoint(q2), moved, strong=1)
        axis = aval_of(q).ndim
        dq = concatenate(dq, mm(q1, minus(None, adjoint(away)), strong=1), axis=axis - 1)
        dr = concatenate(dr, _zeros_like(dr, width - k, n), axis=axis - 2)
    return [q, r], [dq, dr]


qr = register(
    Primitive(
        "qr",
        "host",
        _qr_typ,
        Doc(
            "orthogonal Q and upper triangular R with a = Q R (full: Q square)",
            "through the triangles of Q^T t R^-1",
            "Walter, Lehmann (2018)",
        ),
        jvp=_qr_jvp,
        batch=batch_stack(lambda: qr),
        numpy=lambda a, *, full: list(library(np.linalg.qr, a, "complete" if full else "reduced")),
        cheap=False,
    )
)

# ---- eigenvalues of Hermitian matrices -----------------------------------------------------------------------------------


def _eigh_typ(a: Aval, *, lower: bool) -> list[Aval]:
    shape = matrix_types("eigh", (a,), square=True)
    return [Aval(shape[:-1], real_dtype(a.dtype)), a]


def _differences(v: Any, shape: tuple[int, ...]) -> Any:
    """v[j] - v[i] at (i, j)."""
    return sub(on_columns(v, shape), on_rows(v, shape))


def _eigh_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, lower: bool) -> tuple[list, list]:
    w, v = eigh(primals[0], lower=lower)
    shape = aval_of(v).shape
    if 0 in shape:
        return [w, v], [None, None]
    inside = mm(mm(adjoint(v), from_triangle(tangents[0], lower), strong=1), v, strong=0)
    gaps = reciprocal(_differences(w, shape), negligible(w, shape[-1], shape))
    return [w, v], [real_part(diagonal_of(inside)), mm(v, scaled(inside, gaps), strong=1)]


def _eigh_numpy(a: Any, *, lower: bool) -> list:
    return list(library(np.linalg.eigh, a, "L" if lower else "U"))


eigh = register(
    Primitive(
        "eigh",
        "host",
        _eigh_typ,
        Doc(
            "eigenvalues, ascending, and eigenvectors of the Hermitian matrix of which one triangle is read",
            "in that triangle: V (diag(g) + (V^T h) / (w[j] - w[i])) V^T; pairs of equal eigenvalues count 0",
            "Giles (2008), 3.1",
        ),
        jvp=_eigh_jvp,
        batch=batch_stack(lambda: eigh),
        numpy=_eigh_numpy,
        cheap=False,
    )
)


def _eigvalsh_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, lower: bool) -> tuple[list, list]:
    _, v = eigh(primals[0], lower=lower)
    moved = mm(from_triangle(tangents[0], lower), v, strong=0)
    return [eigvalsh(primals[0], lower=lower)], [real_part(column_sums(lin_mul(moved, conj(v))))]


eigvalsh = register(
    Primitive(
        "eigvalsh",
        "host",
        lambda a, *, lower: _eigh_typ(a, lower=lower)[:1],
        Doc(
            "the eigenvalues, ascending, of the Hermitian matrix of which one triangle is read",
            "V diag(g) V^T, in that triangle",
            "Giles (2008), 3.1",
        ),
        jvp=_eigvalsh_jvp,
        batch=batch_stack(lambda: eigvalsh),
        numpy=lambda a, *, lower: library(np.linalg.eigvalsh, a, "L" if lower else "U"),
        cheap=False,
    )
)

# ---- singular values -----------------------------------------------------------------------------------------------------


def _svd_typ(a: Aval, *, full: bool) -> list[Aval]:
    *lead, m, n = matrix_types("svd", (a,))
    k = min(m, n)
    u, vh = (m, m if full else k), (n if full else k, n)
    return [a.with_shape((*lead, *u)), Aval((*lead, k), real_dtype(a.dtype)), a.with_shape((*lead, *vh))]


def _svd_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, full: bool) -> tuple[list, list]:
    """With x = U^H t V: its Hermitian part is divided by differences of singular values, the other part by sums."""
    t = tangents[0]
    u, s, vh = svd(primals[0], full=full)
    (m, n), k = aval_of(t).shape[-2:], aval_of(s).shape[-1]
    if not aval_of(t).size:
        return [u, s, vh], [None, None, None]
    u1, v1 = columns(u, 0, k), adjoint(rows(vh, 0, k))
    tv = mm(t, v1, strong=0)
    inside = mm(adjoint(u1), tv, strong=1)
    shape = aval_of(inside).shape
    tiny = negligible(s, max(m, n), shape)
    even = scaled(real_half(inside), reciprocal(_differences(s, shape), tiny))
    odd = scaled(imaginary_half(inside), reciprocal(add(on_columns(s, shape), on_rows(s, shape)), tiny))
    du = _turned(u, k, add(even, odd), tv, s, m > n)
    tu = mm(adjoint(t), u1, strong=0)
    dv = _turned(adjoint(vh), k, sub(even, odd), tu, s, n > m)
    return [u, s, vh], [du, real_part(diagonal_of(inside)), adjoint(dv)]


def _turned(q: Any, k: int, turning: Any, moved: Any, s: Any, more: bool) -> Any:
    """The tangent of singular vectors that turn among themselves, and (more) out of their space."""
    q1 = columns(q, 0, k)
    out = mm(q1, turning, strong=1)
    if not more:
        return out
    shape = aval_of(moved).shape
    moved = scaled(moved, reciprocal(on_columns(s, shape), negligible(s, max(shape[-2:]), shape)))
    width = aval_of(q).shape[-1]
    if width == k:
        return add(out, minus(moved, mm(q1, mm(adjoint(q1), moved, strong=1), strong=1)))
    q2 = columns(q, k, width)
    away = mm(adjoint(q2), moved, strong=1)
    rest = mm(q1, minus(None, adjoint(away)), strong=1)
    return concatenate(add(out, mm(q2, away, strong=1)), rest, axis=aval_of(q).ndim - 1)


svd = register(
    Primitive(
        "svd",
        "host",
        _svd_typ,
        Doc(
            "U, the singular values, descending, and V^H (full: U and V square)",
            "through U^T t V over differences and sums of singular values; 0 where these vanish",
            "Townsend (2016)",
        ),
        jvp=_svd_jvp,
        batch=batch_stack(lambda: svd),
        numpy=lambda a, *, full: list(library(np.linalg.svd, a, full)),
        cheap=False,
    )
)


def svdvals_tangent(a: Any, t: Any) -> Any:
    """The tangent of the singular values: the diagonal of U^H t V."""
    u, _, vh = svd(a, full=False)
    return real_part(column_sums(lin_mul(mm(t, adjoint(vh), strong=0), conj(u))))


svdvals = register(
    Primitive(
        "svdvals",
        "host",
        lambda a: _svd_typ(a, full=False)[1:2],
        Doc("the singular values, descending", "U diag(g) V^H", "Giles (2008), 3.2"),
        jvp=lambda primals, tangents: ([svdvals(primals[0])], [svdvals_tangent(primals[0], tangents[0])]),
        batch=batch_stack(lambda: svdvals),
        numpy=lambda a: library(np.linalg.svd, a, compute_uv=False),
        cheap=False,
    )
)

# ---- eigenvalues of any square matrix ------------------------------------------------------------------------------------


def _complex(dtype: np.dtype) -> np.dtype:
    return np.result_type(dtype, np.complex64)


def _eig_typ(a: Aval) -> list[Aval]:
    shape = matrix_types("eig", (a,), square=True)
    return [Aval(shape[:-1], _complex(a.dtype)), Aval(shape, _complex(a.dtype))]


def _size(z: Any) -> Any:
    """|z|**2."""
    x, y = cx.real(z), cx.imag(z)
    return add(mul(x, x), mul(y, y))


def _eig_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    """The vectors have length 1, and their largest component is real: that fixes the part of their tangents along them."""
    w, v = eig(primals[0])
    shape = aval_of(v).shape
    if 0 in shape:
        return [w, v], [None, None]
    inside = solve(v, mm(as_kind(tangents[0], v), v, strong=0), trans=False)
    gap = _differences(w, shape)
    size = _size(gap)
    tiny = negligible(sqrt(_size(w)), shape[-1], shape)
    apart = gt(size, mul(tiny, tiny))
    inverse = div(conj(select(apart, gap, gap.dtype.type(1))), as_kind(select(apart, size, size.dtype.type(1)), v))
    moved = mm(v, select(apart, lin_mul(inside, inverse), v.dtype.type(0)), strong=1)
    longer = cx.real(column_sums(lin_mul(moved, conj(v))))
    largest = argmax(_size(v), axes=(len(shape) - 2,))
    place = eq(iota(shape=shape, dtype=np.dtype(np.int64), axis=len(shape) - 2), on_columns(largest, shape))
    turned, own = (column_sums(select(place, x, x.dtype.type(0))) for x in (cx.imag(moved), cx.real(v)))
    along = cx.complex_(longer, lin_div(turned, own))
    return [w, v], [diagonal_of(inside), sub(moved, lin_mul(on_columns(along, shape), v))]


def _eig_numpy(a: Any) -> list:
    w, v = library(np.linalg.eig, a)
    return [w.astype(_complex(a.dtype), copy=False), v.astype(_complex(a.dtype), copy=False)]


eig = register(
    Primitive(
        "eig",
        "host",
        _eig_typ,
        Doc(
            "eigenvalues and eigenvectors of length 1, complex",
            "through V^-1 t V over differences of eigenvalues; pairs of equal ones count 0",
            "Giles (2008), 3.1",
        ),
        jvp=_eig_jvp,
        batch=batch_stack(lambda: eig),
        numpy=_eig_numpy,
        cheap=False,
    )
)
