"""Decompositions of matrices under NumPy's names, over stacks of matrices in the last two axes.

Where a factor is not unique (eigenvectors of equal eigenvalues, signs of singular vectors), LAPACK chooses, and derivatives are
right for functions of it that do not depend on the choice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.manipulation import matrix_transpose
from fxgrad.numpy.operands import matrices, square
from fxgrad.numpy.prepared import prepared
from fxgrad.primitives import decompositions as d
from fxgrad.primitives import matrices as m

__all__ = [
    "EigResult", "EighResult", "QRResult", "SVDResult", "cholesky", "eig", "eigh", "eigvals", "eigvalsh", "qr", "svd", "svdvals",
]  # fmt: skip


class EigResult(NamedTuple):
    """What `eig` answers."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """What `eigh` answers."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What `qr` answers."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """What `svd` answers."""

    U: Any
    S: Any
    Vh: Any


@prepared(1)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The Cholesky factor of positive definite matrices, as numpy.linalg.cholesky.

    Args:
        a: (..., n, n); its lower triangle is read (with `upper` the upper one), and gets the gradient.
        upper: return L^H instead of L.

    Returns:
        L with L @ L.T == a.

    Raises:
        LinAlgError: a matrix is not square, or not positive definite.

    >>> import numpy as np, fxgrad as fx
    >>> fx.grad(lambda a: np.linalg.cholesky(a).sum())(np.array([[4.0, 0.0], [2.0, 5.0]]))
    array([[0.1875, 0.    ],
           [0.25  , 0.25  ]])
    """
    return d.cholesky(square("cholesky", matrices("cholesky", a)), upper=bool(upper))


def qr(a: Any, mode: str = "reduced") -> Any:
    """Orthogonal times upper triangular, as numpy.linalg.qr.

    Args:
        a: (..., m, n).
        mode: "reduced" (Q of shape (..., m, k), k = min(m, n)), "complete" (Q square) or "r" (R alone).

    Returns:
        (Q, R), or R.

    Raises:
        UnsupportedError: mode is "raw", LAPACK's Householder vectors, which mean nothing to other functions.

    >>> import numpy as np, fxgrad as fx
    >>> q, r = fx.numpy.linalg.qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> np.allclose(q @ r, [[3, 1], [4, 2]])
    True
    """
    if mode == "raw":
        raise errors.UnsupportedError(
            'qr(mode="raw") is not supported',
            why="It returns LAPACK's Householder vectors, transposed, which no other function takes.",
            fix='Use mode="reduced", "complete" or "r".',
        )
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    q, r = d.qr(matrices("qr", a), full=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def _lower(UPLO: str) -> bool:
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return UPLO.upper() == "L"


def eigh(a: Any, UPLO: str = "L") -> EighResult:
    """Eigenvalues (ascending) and eigenvectors of symmetric or Hermitian matrices, as numpy.linalg.eigh.

    Args:
        a: (..., n, n), of which one triangle is read, and gets the gradient.
        UPLO: which: "L" or "U".

    Returns:
        (eigenvalues, eigenvectors): eigenvectors[..., :, i] belongs to eigenvalues[..., i].

    Derivatives within the space of a repeated eigenvalue are taken to be 0: right for functions that do not depend on the basis
    LAPACK chose there, such as the projector on that space. Second derivatives of other than linear functions of repeated
    eigenvalues lack a term that no formula in the vectors has.

    >>> import numpy as np, fxgrad as fx
    >>> fx.grad(lambda a: np.linalg.eigh(a).eigenvalues.sum())(np.eye(2))
    array([[1., 0.],
           [0., 1.]])
    """
    lower = _lower(UPLO)
    return EighResult(*d.eigh(square("eigh", matrices("eigh", a)), lower=lower))


@prepared(1)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues, ascending, of symmetric or Hermitian matrices, as numpy.linalg.eigvalsh; see `eigh`."""
    lower = _lower(UPLO)
    return d.eigvalsh(square("eigvalsh", matrices("eigvalsh", a)), lower=lower)


def eig(a: Any) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, as numpy.linalg.eig, but complex always.

    NumPy answers real arrays where all eigenvalues happen to be real; a type that depends on values cannot be traced.
    """
    return EigResult(*d.eig(square("eig", matrices("eig", a))))


@prepared(1)
def eigvals(a: Any) -> Any:
    """The eigenvalues of square matrices, as numpy.linalg.eigvals, but complex always: those of `eig`, in its order."""
    return d.eig(square("eigvals", matrices("eigvals", a)))[0]


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """The singular value decomposition, as numpy.linalg.svd.

    Args:
        a: (..., m, n).
        full_matrices: U and Vh square; else of min(m, n) columns and rows.
        compute_uv: False for the singular values alone.
        hermitian: a is symmetric, which is used to compute it by `eigh`.

    Returns:
        (U, S, Vh) with a == (U[..., :k] * S[..., None, :]) @ Vh[..., :k, :], S descending; or S.

    Derivatives at equal singular values, and of vectors to singular values that are 0, follow the rule of `eigh`.

    >>> import numpy as np, fxgrad as fx
    >>> fx.grad(lambda a: np.linalg.svd(a, compute_uv=False).sum())(np.eye(2))
    array([[1., 0.],
           [0., 1.]])
    """
    x = matrices("svd", a)
    if hermitian:
        return _svd_by_eigh(square("svd", x), compute_uv)
    if not compute_uv:
        return d.svdvals(x)
    return SVDResult(*d.svd(x, full=bool(full_matrices)))


def _svd_by_eigh(x: Any, compute_uv: bool) -> Any:
    from fxgrad.numpy.repetition import flip
    from fxgrad.numpy.selection import take_along_axis
    from fxgrad.numpy.sorting import argsort, sort

    if not compute_uv:
        return flip(sort(ew.absolute(eigvalsh(x)), -1), -1)
    w, u = eigh(x)
    order = flip(argsort(ew.absolute(w), -1), -1)
    w, u = take_along_axis(w, order, -1), take_along_axis(u, order[..., None, :], -1)
    return SVDResult(u, ew.absolute(w), matrix_transpose(m.conj(ew.multiply(u, ew.sign(w)[..., None, :]))))


@prepared(1)
def svdvals(x: Any, /) -> Any:
    """The singular values, descending, as numpy.linalg.svdvals; see `svd`."""
    return d.svdvals(matrices("svdvals", x))
