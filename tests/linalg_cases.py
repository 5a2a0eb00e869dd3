"""Cases of linear algebra for the table in tests/cases.py; matrices are made well-conditioned on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import scipy.linalg

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.primitives.linalg import minors
from tests.cases import Case, Shape

SQUARE: list[tuple[Shape, ...]] = [((3, 3),), ((1, 1),), ((2, 4, 4),), ((0, 0),), ((0, 2, 2),)]
ANY: list[tuple[Shape, ...]] = [((3, 3),), ((4, 2),), ((2, 4),), ((2, 3, 2),), ((2, 1, 3),)]
L, S = fnp.linalg, fx.scipy.linalg


def regular(x: Any) -> Any:
    """x with a heavy, uneven diagonal (ones beyond the square part)."""
    return x + np.eye(*x.shape[-2:], dtype=x.dtype) * np.arange(2, 2 + x.shape[-1], dtype=x.dtype)


def positive(x: Any) -> Any:
    """x x^T with an uneven diagonal added."""
    y = x @ (np.swapaxes(x, -1, -2) if isinstance(x, np.ndarray) else fnp.matrix_transpose(x))
    return regular(y)


def _case(name: str, f: Callable, oracle: Callable, shapes: list = SQUARE, make: Callable = regular, **more: Any) -> Case:
    domains = [(-1.0, 1.0)] * len(shapes[0])
    return Case(
        name, lambda x, *rest: f(make(x), *rest), lambda x, *rest: oracle(make(x), *rest), shapes, domains, rtol=512, **more
    )


def _each(f: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """SciPy's functions of one matrix, for a stack."""

    def stacked(x: np.ndarray) -> np.ndarray:
        flat = x.reshape(-1, *x.shape[-2:]) if x.size else np.ones((1, *x.shape[-2:]), x.dtype)
        out = np.stack([f(y) for y in flat])
        return out.reshape(*x.shape[:-2], *out.shape[1:]) if x.size else np.empty((*x.shape[:-2], *out.shape[1:]), out.dtype)

    return stacked


def _exact_expm(x: np.ndarray) -> np.ndarray:
    with mpmath.workdps(40):
        exact = mpmath.expm(mpmath.matrix(x.tolist())) if x.size else x
        return np.array(exact.tolist(), dtype=x.dtype).reshape(x.shape)


def _packed(x: np.ndarray) -> np.ndarray:
    _, low, up = scipy.linalg.lu(x)
    k = min(x.shape)
    out = np.zeros_like(x)
    out[:, :k] += np.tril(low, -1)
    out[:k] += up
    return out


def _projector(x: Any) -> Any:
    """Onto what is not in the range of x: the columns that the factorisation adds."""
    k = min(x.shape[-2:])
    q = L.qr(x, "complete").Q[..., k:]
    u = L.svd(x).U[..., k:]
    return q @ fnp.matrix_transpose(q) - 2.0 * (u @ fnp.matrix_transpose(u))


def _projector_oracle(x: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(np.swapaxes(x, -1, -2)) @ np.swapaxes(x, -1, -2) - np.eye(x.shape[-2])


def _triangular(x: Any) -> Any:
    """Each of the ways to read a triangle."""
    y = x
    for trans in "NTC":
        for lower in (False, True):
            y = S.solve_triangular(x, y, trans, lower=lower, unit_diagonal=lower and trans == "N")
    return y


def _triangular_oracle(x: np.ndarray) -> np.ndarray:
    y = x
    for trans in "NTC":
        for lower in (False, True):
            a = np.tril(x) if lower else np.triu(x)
            if lower and trans == "N":
                a = np.tril(x, -1) + np.eye(x.shape[-1], dtype=x.dtype)
            y = np.linalg.solve(a if trans == "N" else np.swapaxes(a, -1, -2), y)
    return y


def _complex(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """NumPy's eigenvalues, complex also where all are real."""
    return y.astype(np.result_type(x.dtype, np.complex64))


def _rest(result: Any) -> Any:
    """The residuals and singular values of a least-squares solution."""
    _, residuals, _, s = result
    return fnp.multiply(residuals[0], s)


def _solve_stack(a: Any, b: Any) -> Any:
    return L.solve(regular(a), b)


LINALG = [
    _case("cholesky", L.cholesky, np.linalg.cholesky, make=positive),
    _case("cholesky_upper", lambda x: L.cholesky(x, upper=True), lambda x: np.linalg.cholesky(x, upper=True), make=positive),
    _case("cholesky_triangle", L.cholesky, np.linalg.cholesky),
    _case("lu", lambda x: fx.lax.linalg.lu(x)[0], _each(_packed), ANY),
    _case(
        "pivots_to_permutation",
        lambda x: fx.lax.linalg.lu_pivots_to_permutation(fx.lax.linalg.lu(x)[1], x.shape[-2]),
        _each(lambda x: scipy.linalg.lu(x)[0].argmax(0).astype(np.int32)),
        ANY,
        make=lambda x: x,
        differentiable=False,
    ),
    _case("qr_q", lambda x: L.qr(x).Q, lambda x: np.linalg.qr(x).Q, ANY),
    _case("qr_r", lambda x: L.qr(x, "r"), lambda x: np.linalg.qr(x, "r"), [*ANY, ((0, 0),), ((0, 2),)]),
    _case("qr_complete", lambda x: L.qr(x, "complete").R, lambda x: np.linalg.qr(x, "complete").R, ANY),
    _case("new_columns", _projector, _projector_oracle, [((4, 2),), ((2, 3, 1),)]),
    _case("eigh_w", lambda x: L.eigh(x)[0], lambda x: np.linalg.eigh(x)[0]),
    _case("eigh_v", lambda x: L.eigh(x, "U")[1], lambda x: np.linalg.eigh(x, "U")[1]),
    _case("eigvalsh", L.eigvalsh, np.linalg.eigvalsh),
    _case("svd_u", lambda x: L.svd(x)[0], lambda x: np.linalg.svd(x)[0], [((3, 3),), ((2, 4),), ((2, 2, 3),)]),
    _case("svd_s", lambda x: L.svd(x)[1], lambda x: np.linalg.svd(x)[1], ANY),
    _case("svd_vh", lambda x: L.svd(x, False)[2], lambda x: np.linalg.svd(x, False)[2], ANY),
    _case("svdvals", L.svdvals, np.linalg.svdvals, [*ANY, ((0, 0),), ((3, 0),)]),
    _case("eig", lambda x: L.eig(x)[0], lambda x: _complex(np.linalg.eig(x)[0], x), make=lambda x: x, differentiable=False),
    _case("eig_v", lambda x: L.eig(x)[1], lambda x: _complex(np.linalg.eig(x)[1], x), make=lambda x: x, differentiable=False),
    _case("eigvals", L.eigvals, lambda x: _complex(np.linalg.eig(x)[0], x), make=lambda x: x, differentiable=False),
    Case(
        "solve",
        _solve_stack,
        lambda a, b: np.linalg.solve(regular(a), b),
        [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (3, 2)), ((2, 2), (4, 2, 1)), ((0, 0), (0,)), ((2, 2), (2, 0))],
        [(-1, 1), (-1, 1)],
        rtol=512,
    ),
    _case("triangular_solve", _triangular, _triangular_oracle),
    _case("inv", L.inv, np.linalg.inv),
    _case("pinv", L.pinv, np.linalg.pinv, ANY),
    _case("pinv_hermitian", lambda x: L.pinv(x, hermitian=True), lambda x: np.linalg.pinv(x, hermitian=True)),
    Case(
        "lstsq",
        lambda a, b: L.lstsq(regular(a), b)[0],
        lambda a, b: np.linalg.lstsq(regular(a), b)[0],
        [((4, 2), (4,)), ((2, 4), (2, 3)), ((3, 3), (3,))],
        [(-1, 1), (-1, 1)],
        rtol=512,
    ),
    _case("lstsq_rest", lambda x: _rest(L.lstsq(x, x[:, 0] * x[:, 1])), lambda x: _rest(np.linalg.lstsq(x, x[:, 0] * x[:, 1])),
          [((4, 2),), ((5, 3),)]),
    _case("det", L.det, np.linalg.det),
    _case("minors", minors, lambda x: np.linalg.det(x)[..., None, None] * np.linalg.inv(x)),
    _case("slogdet", lambda x: L.slogdet(x)[1], lambda x: np.linalg.slogdet(x)[1]),
    _case("expm", S.expm, _each(_exact_expm), make=lambda x: x),
    _case("expm_large", lambda x: S.expm(x * 8), lambda x: _each(_exact_expm)(x * 8), [((3, 3),)], make=lambda x: x),
    _case("matrix_power", lambda x: L.matrix_power(x, -3), lambda x: np.linalg.matrix_power(x, -3)),
]  # fmt: skip
