"""`fx.lax.linalg`: decompositions and triangular systems under the names of `jax.lax.linalg`."""

from __future__ import annotations

from typing import Any

from fxgrad.numpy.decompositions import eig
from fxgrad.numpy.operands import matrices, square, together
from fxgrad.primitives import decompositions as d
from fxgrad.primitives import linalg as p
from fxgrad.primitives import matrices as m
from fxgrad.primitives.elementwise import add

__all__ = ["cholesky", "eig", "eigh", "lu", "lu_pivots_to_permutation", "qr", "svd", "triangular_solve"]


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """L with L @ L^H == (x + x^H) / 2, or of the lower triangle of x, as jax.lax.linalg.cholesky.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]])
        array([[2., 0.],
               [1., 2.]])
    """
    x = square("cholesky", matrices("cholesky", x))
    return d.cholesky(m.half(add(x, m.adjoint(x))) if symmetrize_input else x, upper=False)


def eigh(x: Any, *, lower: bool = True, symmetrize_input: bool = True) -> tuple:
    """(eigenvectors, eigenvalues), in this order, as jax.lax.linalg.eigh.

    Example:
        >>> import fxgrad as fx
        >>> vectors, values = fx.lax.linalg.eigh([[2.0, 0.0], [0.0, 3.0]])
        >>> values
        array([2., 3.])
    """
    x = square("eigh", matrices("eigh", x))
    w, v = d.eigh(m.half(add(x, m.adjoint(x))) if symmetrize_input else x, lower=bool(lower))
    return v, w


def lu(x: Any) -> tuple:
    """(lu, pivots, permutation), as jax.lax.linalg.lu: L (below a diagonal of ones) and U in one matrix, x[permutation] == L @ U.

    `fx.scipy.linalg.lu` gives P, L and U as matrices.

    >>> import numpy as np, fxgrad as fx
    >>> fx.lax.linalg.lu(np.array([[1.0, 2.0], [4.0, 6.0]]))
    (array([[4.  , 6.  ],
           [0.25, 0.5 ]]), array([1, 1], dtype=int32), array([1, 0], dtype=int32))
    """
    return tuple(d.lu(matrices("lu", x)))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The permutation that the row exchanges of `lu` make, as jax.lax.linalg.lu_pivots_to_permutation.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.linalg.lu_pivots_to_permutation(np.array([1, 1], np.int32), 2)
        array([1, 0], dtype=int32)
    """
    return d.pivots_to_permutation(pivots, rows=permutation_size)


def qr(x: Any, *, full_matrices: bool = True) -> tuple:
    """(Q, R), as jax.lax.linalg.qr.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> q, r = fx.lax.linalg.qr([[3.0, 0.0], [4.0, 5.0]])
        >>> np.round(q @ r, 6)
        array([[3., 0.],
               [4., 5.]])
    """
    return tuple(d.qr(matrices("qr", x), full=bool(full_matrices)))


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """(U, S, Vh), or S, as jax.lax.linalg.svd.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.linalg.svd([[3.0, 0.0], [0.0, 2.0]], compute_uv=False)
        array([3., 2.])
    """
    x = matrices("svd", x)
    return tuple(d.svd(x, full=bool(full_matrices))) if compute_uv else d.svdvals(x)


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """x with op(a) x == b, or (left_side=False, the default) x op(a) == b, as jax.lax.linalg.triangular_solve.

    A zero on the diagonal is a division by zero, no error.

    Example:
        >>> import fxgrad as fx
        >>> fx.lax.linalg.triangular_solve([[2.0, 0.0], [1.0, 1.0]], [[2.0], [3.0]], left_side=True, lower=True)
        array([[1.],
               [2.]])
    """
    a, b = together("triangular_solve", a, b)
    square("triangular_solve", a)
    if conjugate_a and a.dtype.kind == "c":
        a = m.conj(a)
    params = {"lower": bool(lower), "unit": bool(unit_diagonal), "checked": False}
    if left_side:
        return p.triangular_solve(a, b, op="t" if transpose_a else "n", **params)
    return m.turn(p.triangular_solve(a, m.turn(b), op="n" if transpose_a else "t", **params))
