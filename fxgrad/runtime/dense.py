"""Dense linear algebra on NumPy arrays that `numpy.linalg` lacks: triangular systems, LU, minors, the matrix exponential.

All take stacks of matrices (leading axes) and treat each matrix as if it were alone, to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["expm", "inverse_or_nan", "lstsq", "lu", "minors", "permutation", "solve_triangular", "transposed"]

BLOCK = 64  # rows of a triangle that LAPACK solves at once; what is left of them is a matrix product
PANEL = 32  # columns of an LU factorisation between products


def transposed(a: np.ndarray) -> np.ndarray:
    """The last two axes exchanged (a view)."""
    return np.swapaxes(a, -1, -2)


def _stack(a: np.ndarray) -> np.ndarray:
    """The leading axes as one."""
    return a.reshape(int(np.prod(a.shape[:-2])), *a.shape[-2:])


# ---- triangular systems ------------------------------------------------------------------------------------------------


def solve_triangular(
    a: np.ndarray, b: np.ndarray, *, lower: bool, op: str = "n", unit: bool = False, checked: bool = True
) -> np.ndarray:
    """x with op(a) x = b, of which one triangle of a is read; op is "n", "t" or "c" (as it is, transposed, also conjugated).

    A zero on the diagonal is an error if `checked`, else a division by zero.
    """
    if op != "n":
        a, lower = transposed(a), not lower
        a = a.conj() if op == "c" else a
    if lower:  # backwards it is an upper one
        return _solve_upper(a[..., ::-1, ::-1], b[..., ::-1, :], unit, checked, backwards=True)[..., ::-1, :]
    return _solve_upper(a, b, unit, checked)


def _solve_upper(a: np.ndarray, b: np.ndarray, unit: bool, checked: bool, backwards: bool = False) -> np.ndarray:
    n = a.shape[-1]
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    singular = not unit and bool((diagonal == 0).any())
    if singular and checked:
        at = int(np.argwhere(diagonal == 0)[0][-1])
        raise errors.FxLinAlgError(
            f"singular matrix: the diagonal is 0 at {n - 1 - at if backwards else at}",
            why="A triangular system has a solution for every right-hand side only if no diagonal element is 0.",
            fix="Use np.linalg.lstsq, or np.linalg.pinv(a) @ b, for the least-squares solution.",
        )
    x = np.array(b, order="C")
    for stop in range(n, 0, -BLOCK):
        start = max(0, stop - BLOCK)
        if stop < n:
            x[..., start:stop, :] -= np.matmul(np.ascontiguousarray(a[..., start:stop, stop:]), x[..., stop:, :])
        block = np.triu(a[..., start:stop, start:stop])
        if unit:
            i = np.arange(stop - start)
            block[..., i, i] = 1
        x[..., start:stop, :] = (
            _substituted(block, x[..., start:stop, :]) if singular else np.linalg.solve(block, x[..., start:stop, :])
        )  # its LU factorisation finds nothing to eliminate, so this is back substitution
    return x


def _substituted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Back substitution that divides by zeros too."""
    x = b.copy()
    for i in range(a.shape[-1] - 1, -1, -1):
        x[..., i, :] = (x[..., i, :] - (a[..., i, i + 1 :, None] * x[..., i + 1 :, :]).sum(-2)) / a[..., i, i, None]
    return x


# ---- least squares ---------------------------------------------------------------------------------------------------


def lstsq(a: np.ndarray, b: np.ndarray, rcond: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The least-squares solution of smallest norm, the rank, the singular values.

    By the SVD, which numpy.linalg computes of a stack at once; its lstsq takes one matrix.
    """
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    cutoff = np.finfo(a.dtype).eps * max(a.shape[-2:]) if rcond is None else rcond
    kept = s > s.dtype.type(cutoff) * s[..., :1]
    c = np.matmul(np.ascontiguousarray(transposed(u).conj()), np.ascontiguousarray(b))
    c = np.where(kept[..., None], c / np.where(kept, s, 1)[..., None], 0).astype(a.dtype)
    x = np.matmul(np.ascontiguousarray(transposed(vh).conj()), c)
    return x, np.asarray(kept.sum(-1)), s


# ---- LU ------------------------------------------------------------------------------------------------------------------


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """L and U in one matrix, the row exchanged with each (int32), and the permutation: a[perm] == L @ U.

    Right-looking with partial pivoting; the first of equal pivots. A zero pivot stays (U is singular then).
    """
    out = np.array(a, order="C")
    work = _stack(out)
    (count, m, n), k = work.shape, min(out.shape[-2:])
    pivots = np.empty((count, k), np.int32)
    perm = np.broadcast_to(np.arange(m, dtype=np.int32), (count, m)).copy()
    every = np.arange(count)
    for start in range(0, k, PANEL):
        stop = min(k, start + PANEL)
        for j in range(start, stop):
            _eliminate(work, perm, pivots, every, j, stop)
        if stop < n:
            below = work[:, start:stop, start:stop], work[:, start:stop, stop:]
            work[:, start:stop, stop:] = solve_triangular(*below, lower=True, unit=True)
            work[:, stop:, stop:] -= np.matmul(
                np.ascontiguousarray(work[:, stop:, start:stop]), np.ascontiguousarray(work[:, start:stop, stop:])
            )
    lead = a.shape[:-2]
    return out, pivots.reshape(*lead, k), perm.reshape(*lead, m)


def _eliminate(work: np.ndarray, perm: np.ndarray, pivots: np.ndarray, every: np.ndarray, j: int, stop: int) -> None:
    """One column: the largest element becomes the pivot, and the rest of the panel is freed of it."""
    if work.shape[0] == 0:
        return
    column = work[:, j:, j]
    size = np.abs(column) if column.dtype.kind == "f" else np.abs(column.real) + np.abs(column.imag)  # as LAPACK has it
    p = j + np.argmax(size, axis=1)
    pivots[:, j] = p
    for rows in (work, perm):
        mine = rows[every, j].copy()
        rows[every, j] = rows[every, p]
        rows[every, p] = mine
    pivot = work[:, j, j]
    work[:, j + 1 :, j] /= np.where(pivot == 0, 1, pivot)[:, None]
    work[:, j + 1 :, j + 1 : stop] -= work[:, j + 1 :, j, None] * work[:, None, j, j + 1 : stop]


def permutation(pivots: np.ndarray, rows: int) -> np.ndarray:
    """0, 1, 2, ... after element i was exchanged with element pivots[i], for i in order."""
    lead, k = pivots.shape[:-1], pivots.shape[-1]
    flat = pivots.reshape(int(np.prod(lead)), k)
    perm = np.broadcast_to(np.arange(rows, dtype=np.int32), (flat.shape[0], rows)).copy()
    every = np.arange(flat.shape[0])
    for i in range(k):
        perm[every, i], perm[every, flat[:, i]] = perm[every, flat[:, i]], perm[every, i]
    return perm.reshape(*lead, rows)


# ---- minors ------------------------------------------------------------------------------------------------------------

TAME = 1e4  # condition number up to which minors come from the inverse


def inverse_or_nan(a: np.ndarray) -> np.ndarray:
    """The inverses, NaN where a matrix is singular."""
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        flat = _stack(a)
        out = np.full(flat.shape, np.nan, a.dtype)
        for i, x in enumerate(flat):
            try:
                out[i] = np.linalg.inv(x)
            except np.linalg.LinAlgError:
                continue  # it stays NaN
        return out.reshape(a.shape)


def minors(a: np.ndarray, *directions: np.ndarray) -> np.ndarray:
    """The matrix M of the linear form X -> tr(M X) that is the derivative of det along X and the (up to two) directions.

    Without directions it is the adjugate. Where the inverse is ill-conditioned, singular values give it without division:
    det is multiplicative, so a is a diagonal matrix up to rotations, and minors of that are products.
    """
    shape = a.shape
    flat = [_stack(x) for x in np.broadcast_arrays(a, *directions)]
    out = np.empty(flat[0].shape, a.dtype)
    inverse = inverse_or_nan(flat[0])
    norms = [np.abs(x).sum(-1).max(-1, initial=0) for x in (flat[0], inverse)]
    tame = norms[0] * norms[1] < TAME
    for chosen, formula in ((tame, _by_inverse), (~tame, _by_singular_values)):
        if chosen.any():
            out[chosen] = formula(*[x[chosen] for x in flat])
    return out.reshape(shape)


def _trace(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.diagonal(x, axis1=-2, axis2=-1)).sum(-1)[..., None, None]


def _by_inverse(a: np.ndarray, *directions: np.ndarray) -> np.ndarray:
    """Jacobi's formula, and its derivatives."""
    inverse, eye = np.linalg.inv(a), np.eye(a.shape[-1], dtype=a.dtype)
    scaled = np.linalg.det(a)[..., None, None] * inverse
    moved = [np.matmul(inverse, x) for x in directions]
    if not moved:
        return scaled
    b = moved[0]
    if len(moved) == 1:
        return np.matmul(_trace(b) * eye - b, scaled)
    c = moved[1]
    bc, cb = np.matmul(b, c), np.matmul(c, b)
    return np.matmul((_trace(b) * _trace(c) - _trace(bc)) * eye - _trace(c) * b - _trace(b) * c + bc + cb, scaled)


def _products_without(s: np.ndarray, count: int) -> np.ndarray:
    """Products of the elements of s but those of `count` different indices; 0 where two indices are equal."""
    n = s.shape[-1]
    grids = np.meshgrid(*[np.arange(n)] * count, indexing="ij")
    left_out = np.stack([g[..., None] == np.arange(n) for g in grids])
    kept = np.where(left_out.any(0), 1, s.reshape(*s.shape[:-1], *[1] * count, n)).astype(s.dtype)
    different = left_out.sum(0).max(-1, initial=0) <= 1
    return np.where(different, np.prod(kept, axis=-1), 0).astype(s.dtype)


def _by_singular_values(a: np.ndarray, *directions: np.ndarray) -> np.ndarray:
    u, s, vh = np.linalg.svd(a)
    uh, v = u.conj().swapaxes(-1, -2), vh.conj().swapaxes(-1, -2)
    sign = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    turned = [np.matmul(np.matmul(uh, x), v) for x in directions]
    if not turned:
        middle = _products_without(s, 1)[..., None] * eye
    elif len(turned) == 1:
        middle = _second_minors(_products_without(s, 2), turned[0], eye)
    else:
        middle = _third_minors(_products_without(s, 3), turned[0], turned[1], eye)
    return sign * np.matmul(np.matmul(v, middle.astype(a.dtype)), uh)


def _diagonals(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.diagonal(x, axis1=-2, axis2=-1))


def _second_minors(p: np.ndarray, x: np.ndarray, eye: np.ndarray) -> np.ndarray:
    """The derivative along x of the adjugate of a diagonal matrix; p[i, j] is the product of the others."""
    return (p * _diagonals(x)[..., None, :]).sum(-1)[..., None] * eye - p * x


def _third_minors(p: np.ndarray, x: np.ndarray, y: np.ndarray, eye: np.ndarray) -> np.ndarray:
    """The second derivative along x and y; p[i, j, k] is the product of the elements other than i, j, k."""
    dx, dy = _diagonals(x), _diagonals(y)
    pairs = dx[..., :, None] * dy[..., None, :] - x * y.swapaxes(-1, -2)
    diagonal = np.einsum("...ikl,...kl->...i", p, pairs)
    mixed = np.einsum("...ijk,...ik,...kj->...ij", p, x, y) + np.einsum("...ijk,...ik,...kj->...ij", p, y, x)
    crossed = x * np.einsum("...ijk,...k->...ij", p, dy) + y * np.einsum("...ijk,...k->...ij", p, dx)
    return diagonal[..., None] * eye + mixed - crossed


# ---- the matrix exponential ---------------------------------------------------------------------------------------------

# Coefficients of the [13/13] Pade approximant of exp, and the 1-norm up to which it and its derivative are accurate to the
# last digit of float64: Al-Mohy, Higham (2009), table 6.1.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_RADIUS = 4.74


def expm(a: np.ndarray, e: np.ndarray | None = None) -> np.ndarray:
    """exp(a) by scaling and squaring; with e, its derivative at a along e instead."""
    flat, along = _stack(a), None if e is None else _stack(e)
    out = np.empty(flat.shape, a.dtype)
    if flat.size == 0:
        return out.reshape(a.shape)
    norms = np.abs(flat).sum(-2).max(-1)
    with np.errstate(all="ignore"):
        halvings = np.where(np.isfinite(norms), np.ceil(np.log2(np.maximum(norms / _RADIUS, 1))), 0).astype(int)
    for s in np.unique(halvings):  # those that take the same steps go together
        chosen = halvings == s
        out[chosen] = _expm(flat[chosen], None if along is None else along[chosen], int(s))
    return out.reshape(a.shape)


class _Pair:
    """A matrix and its derivative (or None): what is computed of matrices is computed of both."""

    def __init__(self, x: np.ndarray, d: np.ndarray | None):
        self.x, self.d = x, d

    def __add__(self, other: Any) -> _Pair:
        return _Pair(self.x + other.x, None if self.d is None else self.d + other.d)

    def __sub__(self, other: Any) -> _Pair:
        return _Pair(self.x - other.x, None if self.d is None else self.d - other.d)

    def __rmul__(self, c: float) -> _Pair:
        c = self.x.dtype.type(c)
        return _Pair(c * self.x, None if self.d is None else c * self.d)

    def __matmul__(self, other: _Pair) -> _Pair:
        d = None if self.d is None or other.d is None else np.matmul(self.x, other.d) + np.matmul(self.d, other.x)
        return _Pair(np.matmul(self.x, other.x), d)

    def solve(self, other: _Pair) -> _Pair:
        x = np.linalg.solve(self.x, other.x)
        if self.d is None or other.d is None:
            return _Pair(x, None)
        return _Pair(x, np.linalg.solve(self.x, other.d - np.matmul(self.d, x)))


def _expm(a: np.ndarray, e: np.ndarray | None, halvings: int) -> np.ndarray:
    b = _PADE
    eye = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    one = _Pair(eye, None if e is None else np.zeros_like(a))
    m = 0.5**halvings * _Pair(a, e)
    m2 = m @ m
    m4 = m2 @ m2
    m6 = m4 @ m2
    high = m6 @ (b[13] * m6 + b[11] * m4 + b[9] * m2)
    odd = m @ (high + b[7] * m6 + b[5] * m4 + b[3] * m2 + b[1] * one)
    even = m6 @ (b[12] * m6 + b[10] * m4 + b[8] * m2) + b[6] * m6 + b[4] * m4 + b[2] * m2 + b[0] * one
    r = (even - odd).solve(even + odd)
    for _ in range(halvings):
        r = r @ r
    return r.x if r.d is None else r.d
