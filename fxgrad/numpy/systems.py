"""Systems of equations, inverses and determinants under NumPy's names, over stacks of matrices in the last two axes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import broadcast_shapes, broadcast_to_shape, canonical_axis, static_int, tensor
from fxgrad.numpy.manipulation import reshape, transpose
from fxgrad.numpy.operands import inexact, linalg_error, matrices, square, together
from fxgrad.numpy.prepared import prepared
from fxgrad.numpy.reductions import sum as _sum
from fxgrad.primitives import linalg as p
from fxgrad.primitives.matrices import mm

__all__ = [
    "SlogdetResult",
    "det",
    "inv",
    "inverse_or_nan",
    "lstsq",
    "pinv",
    "slogdet",
    "solve",
    "stacked",
    "tensorinv",
    "tensorsolve",
]


class SlogdetResult(NamedTuple):
    """What `slogdet` answers."""

    sign: Any
    logabsdet: Any


def stacked(a: Any, b: Any) -> tuple[Any, Any]:
    """Matrices whose leading axes are broadcast against each other."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return broadcast_to_shape(a, (*lead, *a.shape[-2:])), broadcast_to_shape(b, (*lead, *b.shape[-2:]))


@prepared(2)
def solve(a: Any, b: Any) -> Any:
    """The solution x of a @ x == b, as numpy.linalg.solve.

    Args:
        a: (..., n, n).
        b: (n,), one right-hand side, or (..., n, k).

    Returns:
        x in the shape of b (the stacks of a and b broadcast).

    Raises:
        LinAlgError: a is not square, or singular.

    >>> import numpy as np, fxgrad as fx
    >>> a, b, c = np.array([[1.0, -1.0], [-1.0, 2.0]]), np.ones(2), np.array([[0.0, 1.0], [0.0, 0.0]])
    >>> fx.jvp(lambda m: np.linalg.solve(m, b), (a,), (c,))
    (array([3., 2.]), array([-4., -2.]))
    """
    x, y = together("solve", a, b)
    x = square("solve", matrices("solve", x))
    vector = y.ndim == 1
    y = y[:, None] if vector else matrices("solve", y)
    if y.shape[-2] != x.shape[-1]:
        raise errors.FxValueError(
            f"solve: a right-hand side of shape {np.shape(b)} does not fit a matrix of shape {np.shape(a)}",
            why="It must have as many rows as the matrix.",
            fix="A stack of vectors is a stack of columns: np.linalg.solve(a, b[..., None])[..., 0].",
        )
    z = p.solve(*stacked(x, y), trans=False)
    return z[..., 0] if vector else z


@prepared(1)
def inv(a: Any) -> Any:
    """The inverse, as numpy.linalg.inv; LinAlgError if a matrix is singular.

    >>> import numpy as np, fxgrad as fx
    >>> fx.grad(lambda a: np.linalg.inv(a).sum())(2 * np.eye(2))
    array([[-0.25, -0.25],
           [-0.25, -0.25]])
    """
    return p.inv(square("inv", matrices("inv", a)), checked=True)


def inverse_or_nan(a: Any) -> Any:
    """The inverse, NaN where a matrix is singular."""
    return p.inv(a, checked=False)


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The pseudo-inverse, as numpy.linalg.pinv, differentiable along directions that keep the rank.

    Args:
        a: (..., m, n).
        rcond, rtol: singular values up to this number times the largest count as 0 (NumPy's default).
        hermitian: a is symmetric; its lower triangle is read.

    >>> import numpy as np, fxgrad as fx
    >>> fx.numpy.linalg.pinv(np.array([[2.0, 0.0], [0.0, 0.0]]))
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    x = matrices("pinv", a)
    if rcond is not None and rtol is not None:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if rtol is not None and rcond is None:
        rcond = rtol
    if hermitian:
        square("pinv", x)
    return p.pinv(x, rcond=_cutoff("pinv", rcond), hermitian=bool(hermitian))


def _cutoff(name: str, rcond: Any) -> float | None:
    if rcond is None or isinstance(rcond, (int, float, np.floating, np.integer)):
        return None if rcond is None else float(rcond)
    raise errors.UnsupportedError(
        f"{name} takes one number as the cut-off of singular values, got {type(rcond).__name__}",
        why="The rank must not change with what is differentiated.",
        fix="Pass a Python float; for different ones in a stack, call it for each.",
    )


class LstsqResult(NamedTuple):
    """What `lstsq` answers."""

    x: Any
    residuals: Any
    rank: Any
    s: Any


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """The least-squares solution of smallest norm, as numpy.linalg.lstsq.

    Args:
        a: (m, n).
        b: (m,) or (m, k).
        rcond: singular values up to this number times the largest count as 0; None: eps * max(m, n).

    Returns:
        (x, residuals, rank, singular values). Residuals are there whenever m > n, since their number cannot depend on the rank,
        which is known only when the program runs; NumPy leaves them out where the rank is less than n.

    >>> import numpy as np, fxgrad as fx
    >>> x, *_ = fx.numpy.linalg.lstsq(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> np.round(x, 12)
    array([1., 2.])
    """
    x, y = together("lstsq", a, b)
    vector = y.ndim == 1
    y = y[:, None] if vector else y
    for t in (x, y):
        if t.ndim != 2:
            raise linalg_error(
                f"lstsq: {t.ndim}-dimensional array given. Array must be two-dimensional",
                "NumPy's lstsq takes one matrix.",
                "Use fx.vmap(np.linalg.lstsq) for a stack, or np.linalg.pinv(a) @ b.",
            )
    if x.shape[0] != y.shape[0]:
        raise linalg_error(
            f"lstsq: Incompatible dimensions, {x.shape} and {y.shape}",
            "The right-hand side must have as many rows as the matrix.",
            "Transpose the matrix or the right-hand side.",
        )
    z, rank, s = p.lstsq(x, y, rcond=_cutoff("lstsq", rcond))
    m, n = x.shape
    if m > n:
        residuals = _sum(ew.square(ew.absolute(ew.subtract(y, mm(x, z)))), 0)
    else:
        residuals = tensor(np.zeros(0, s.dtype))
    return LstsqResult(z[:, 0] if vector else z, residuals, rank, s)


@prepared(1)
def det(a: Any) -> Any:
    """The determinant, as numpy.linalg.det; its derivative, the adjugate, divides by nothing, so it holds at singular matrices.

    >>> import numpy as np, fxgrad as fx
    >>> np.round(fx.grad(np.linalg.det)(np.array([[1.0, 2.0], [2.0, 4.0]])), 12)
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    return p.det(square("det", matrices("det", a)))


def slogdet(a: Any) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value, as numpy.linalg.slogdet.

    >>> import numpy as np, fxgrad as fx
    >>> fx.grad(lambda a: np.linalg.slogdet(a).logabsdet)(np.diag([1.0, 4.0]))
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    return SlogdetResult(*p.slogdet(square("slogdet", matrices("slogdet", a))))


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of an array seen as a matrix from its last axes to its first `ind`, as numpy.linalg.tensorinv."""
    x, ind = inexact("tensorinv", a), static_int(ind)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    n = math.prod(x.shape[ind:])
    return reshape(inv(reshape(x, (n, -1) if x.size else (n, n))), (*x.shape[ind:], *x.shape[:ind]))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The solution x of tensordot(a, x, x.ndim) == b, as numpy.linalg.tensorsolve."""
    x, y = together("tensorsolve", a, b)
    if axes is not None:
        moved = [canonical_axis(i, x.ndim) for i in axes]
        x = transpose(x, (*(i for i in range(x.ndim) if i not in moved), *moved))
    shape = x.shape[y.ndim - x.ndim :] if y.ndim else x.shape
    n = math.prod(shape)
    if x.size != n**2:
        raise linalg_error(
            f"tensorsolve: shapes {x.shape} and {y.shape} do not make a square matrix",
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim]).",
            "Pass axes= to move the axes of a that belong to the solution to its end.",
        )
    return reshape(solve(reshape(x, (n, n)), reshape(y, (-1,))), shape)
