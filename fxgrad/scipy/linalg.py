"""Linear algebra under SciPy's names: LU, triangular and Cholesky solvers, the matrix exponential.

Matrices are in the last two axes; axes before them are stacks. `check_finite` and the `overwrite_` arguments are accepted and
change nothing: inputs are never written, and NaN gives NaN or LAPACK's error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import broadcast_to_shape, iota, tensor
from fxgrad.numpy.decompositions import eigvalsh, svdvals
from fxgrad.numpy.linalg import det, inv, norm, pinv
from fxgrad.numpy.operands import matrices, square, together
from fxgrad.numpy.prepared import prepared
from fxgrad.numpy.sorting import argsort
from fxgrad.numpy.systems import solve, stacked
from fxgrad.primitives import decompositions as d
from fxgrad.primitives import linalg as p
from fxgrad.primitives import matrices as m

__all__ = [
    "cho_factor", "cho_solve", "cholesky", "det", "eigh", "eigvalsh", "expm", "inv", "lu", "lu_factor", "lu_solve", "norm",
    "pinv", "solve", "solve_triangular", "svd", "svdvals",
]  # fmt: skip

_OPS = {0: "n", 1: "t", 2: "c", "N": "n", "T": "t", "C": "c"}


def _op(trans: Any) -> str:
    if trans not in _OPS:
        raise ValueError(f"trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}")
    return _OPS[trans]


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False) -> tuple:
    """P, L, U with a == P @ L @ U, as scipy.linalg.lu; P is piecewise constant, L and U are differentiable.

    Args:
        a: (..., m, n).
        permute_l: return (P @ L, U).
        p_indices: return P as indices p: a == L[p] @ U.

    >>> import numpy as np, fxgrad as fx
    >>> P, L, U = fx.scipy.linalg.lu(np.array([[1.0, 2.0], [4.0, 6.0]]))
    >>> P @ L @ U
    array([[1., 2.],
           [4., 6.]])
    """
    x = matrices("lu", a)
    packed, _, perm = d.lu(x)
    k, rows = min(x.shape[-2:]), x.shape[-2]
    low = m.part(m.columns(packed, 0, k), m.BELOW)
    shape = low.shape
    low = ew.where(_eye(shape), x.dtype.type(1), low)
    upper = m.part(m.rows(packed, 0, k), m.UPPER)
    place = ew.UFUNCS["equal"](perm[..., None, :], iota((rows, 1), dtype=np.int32))  # row i of a is row j of L U
    if p_indices and not permute_l:
        return argsort(perm, -1).astype(np.int32), low, upper
    full = ew.where(place, x.dtype.type(1), x.dtype.type(0))
    return (m.mm(full, low), upper) if permute_l else (full, low, upper)


def _eye(shape: tuple[int, ...]) -> Any:
    n = len(shape)
    return ew.UFUNCS["equal"](iota(shape, n - 2), iota(shape, n - 1))


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """(lu, piv) as scipy.linalg.lu_factor: L and U in one matrix, and the row exchanged with each.

    >>> import numpy as np, fxgrad as fx
    >>> fx.scipy.linalg.lu_solve(fx.scipy.linalg.lu_factor(np.array([[2.0, 0.0], [0.0, 4.0]])), np.ones(2))
    array([0.5 , 0.25])
    """
    packed, pivots, _ = d.lu(square("lu_factor", matrices("lu_factor", a)))
    return packed, pivots


def lu_solve(lu_and_piv: tuple, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of a system from the factors of `lu_factor`, as scipy.linalg.lu_solve.

    trans=1 solves with the transposed matrix, 2 with the adjoint.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> factors = fx.scipy.linalg.lu_factor(np.array([[2.0, 0.0], [0.0, 4.0]]))
        >>> fx.scipy.linalg.lu_solve(factors, np.ones(2))
        array([0.5 , 0.25])
    """
    packed, pivots = lu_and_piv
    op = _op(trans)
    x, y = together("lu_solve", packed, b)
    square("lu_solve", x)
    vector, y = _columns("lu_solve", x, y)
    x, y = stacked(x, y)
    perm = broadcast_to_shape(d.pivots_to_permutation(tensor(pivots), rows=y.shape[-2]), y.shape[:-1])
    steps = [(True, True), (False, False)]  # (lower, unit): L, then U
    z = d.permuted_rows(y, perm) if op == "n" else y
    for lower, unit in steps if op == "n" else steps[::-1]:
        z = p.triangular_solve(x, z, lower=lower, op=op, unit=unit, checked=False)
    z = z if op == "n" else d.permuted_rows(z, argsort(perm, -1))
    return z[..., 0] if vector else z


def _columns(name: str, a: Any, b: Any) -> tuple[bool, Any]:
    vector = b.ndim == 1
    b = b[:, None] if vector else matrices(name, b)
    if b.shape[-2] != a.shape[-1]:
        raise errors.FxValueError(
            f"{name}: shapes of a {a.shape} and b {b.shape} are incompatible",
            why="The right-hand side must have as many rows as the matrix.",
            fix="A stack of vectors is a stack of columns: b[..., None].",
        )
    return vector, b


def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """The solution of a triangular system, as scipy.linalg.solve_triangular.

    Args:
        a: (..., n, n), of which one triangle is read.
        b: (n,) or (..., n, k).
        trans: 0 or "N", 1 or "T" (of the transposed matrix), 2 or "C" (of its conjugate too).
        lower: which triangle.
        unit_diagonal: take the diagonal to be ones, unread.

    Raises:
        LinAlgError: an element of the diagonal is 0.

    >>> import numpy as np, fxgrad as fx
    >>> fx.scipy.linalg.solve_triangular(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]), lower=True)
    array([1., 2.])
    """
    x, y = together("solve_triangular", a, b)
    x = square("solve_triangular", matrices("solve_triangular", x))
    vector, y = _columns("solve_triangular", x, y)
    z = p.triangular_solve(*stacked(x, y), lower=bool(lower), op=_op(trans), unit=bool(unit_diagonal), checked=True)
    return z[..., 0] if vector else z


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Cholesky factor, as scipy.linalg.cholesky: upper by default, from the triangle of the same side.

    Example:
        >>> import fxgrad as fx
        >>> fx.scipy.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]], lower=True)
        array([[2., 0.],
               [1., 2.]])
    """
    return d.cholesky(square("cholesky", matrices("cholesky", a)), upper=not lower)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple:
    """(c, lower) for cho_solve, as scipy.linalg.cho_factor; the other triangle of c holds zeros.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.scipy.linalg.cho_factor([[4.0, 2.0], [2.0, 5.0]])
        (array([[2., 1.],
               [0., 2.]]), False)
    """
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: tuple, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Any:
    """The solution of a system from a Cholesky factor, as scipy.linalg.cho_solve.

    >>> import numpy as np, fxgrad as fx
    >>> fx.scipy.linalg.cho_solve(fx.scipy.linalg.cho_factor(np.diag([4.0, 2.0])), np.ones(2))
    array([0.25, 0.5 ])
    """
    c, lower = c_and_lower
    x, y = together("cho_solve", c, b)
    square("cho_solve", x)
    vector, y = _columns("cho_solve", x, y)
    x, y = stacked(x, y)
    for op in ("n", "c") if lower else ("c", "n"):
        y = p.triangular_solve(x, y, lower=bool(lower), op=op, unit=False, checked=False)
    return y[..., 0] if vector else y


@prepared(1)
def expm(A: Any) -> Any:
    """The matrix exponential, as scipy.linalg.expm, by scaling and squaring; derivatives of every order.

    >>> import numpy as np, fxgrad as fx
    >>> fx.scipy.linalg.expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    return p.expm(square("expm", matrices("expm", A)))


def eigh(a: Any, *, lower: bool = True, eigvals_only: bool = False) -> Any:
    """Eigenvalues and eigenvectors of symmetric matrices, as scipy.linalg.eigh of one matrix argument.

    Example:
        >>> import fxgrad as fx
        >>> fx.scipy.linalg.eigh([[2.0, 0.0], [0.0, 3.0]], eigvals_only=True)
        array([2., 3.])
    """
    x = square("eigh", matrices("eigh", a))
    return d.eigvalsh(x, lower=bool(lower)) if eigvals_only else d.eigh(x, lower=bool(lower))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition, as scipy.linalg.svd.

    Example:
        >>> import fxgrad as fx
        >>> fx.scipy.linalg.svd([[3.0, 0.0], [0.0, 2.0]], compute_uv=False)
        array([3., 2.])
    """
    x = matrices("svd", a)
    return d.svd(x, full=bool(full_matrices)) if compute_uv else d.svdvals(x)
