"""Linear algebra of complex matrices: derivatives in both modes, to second order, against differences in complex directions.

Gradients follow JAX's convention: the slope of a real function along t is Re(sum(grad * t)). Factors that are fixed only up to
a phase (eigenvectors, singular vectors) are tested through functions that do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.laws import central_difference

F = Callable[..., Any]
L, S = fnp.linalg, fx.scipy.linalg


def draw(*shape: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def adjoint(x: Any) -> Any:
    return fnp.conj(fnp.matrix_transpose(x))


def times(*factors: Any) -> Any:
    out = factors[0]
    for x in factors[1:]:
        out = fnp.matmul(out, x)
    return out


def positive(x: Any) -> Any:
    return times(x, adjoint(x)) + 2 * np.eye(x.shape[-1])


def by_eigh(a: Any, UPLO: str = "L") -> Any:
    w, v = L.eigh(a, UPLO)
    return times(v * fnp.sin(w)[..., None, :], adjoint(v))


def by_svd(a: Any) -> Any:
    u, s, vh = L.svd(a, full_matrices=False)
    return times(u * fnp.exp(-s)[..., None, :], vh)


def first_range(a: Any) -> Any:
    u = L.svd(a)[0][..., :1]
    return times(u, adjoint(u))


def added_columns(a: Any) -> Any:
    q = L.qr(a, "complete")[0][..., a.shape[-1] :]
    return times(q, adjoint(q))


SQUARE, STACK, TALL, WIDE = draw(3, 3), draw(2, 4, 4), draw(5, 3), draw(3, 5)
EVERY = [SQUARE, STACK, TALL, WIDE]
FUNCTIONS: dict[str, tuple[F, list[np.ndarray]]] = {
    "cholesky": (lambda a: L.cholesky(positive(a)), [SQUARE, STACK]),
    "cholesky_upper": (lambda a: L.cholesky(positive(a), upper=True), [SQUARE]),
    "cholesky_triangle": (lambda a: L.cholesky(a + 6 * np.eye(3)), [SQUARE]),
    "qr_q": (lambda a: L.qr(a)[0], EVERY),
    "qr_r": (lambda a: L.qr(a, "r"), EVERY),
    "qr_complete": (added_columns, [TALL]),
    "lu": (lambda a: fx.lax.linalg.lu(a)[0], EVERY),
    "svdvals": (L.svdvals, EVERY),
    "svd": (by_svd, EVERY),
    "svd_range": (first_range, EVERY),
    "eigh": (by_eigh, [SQUARE, STACK]),
    "eigh_upper": (lambda a: by_eigh(a, "U"), [SQUARE]),
    "eigvalsh": (L.eigvalsh, [SQUARE, STACK]),
    "eig_values": (lambda a: L.eig(a)[0], [SQUARE, STACK, SQUARE.real]),
    "eig_vectors": (lambda a: L.eig(a)[1], [SQUARE, STACK, SQUARE.real, draw(4, 4).imag]),
    "eigvals": (L.eigvals, [STACK]),
    "inv": (L.inv, [STACK]),
    "pinv": (L.pinv, [TALL, WIDE]),
    "pinv_hermitian": (lambda a: L.pinv(a, hermitian=True), [SQUARE]),
    "det": (L.det, [SQUARE, STACK]),
    "slogdet": (lambda a: L.slogdet(a)[1], [STACK]),
    "slogdet_sign": (lambda a: L.slogdet(a)[0], [STACK]),
    "solve": (lambda a: L.solve(a, times(a, a)), [SQUARE]),
    "lstsq": (lambda a: L.lstsq(a, fnp.multiply(a[:, 0], a[:, 1]))[0], [TALL, WIDE]),
    "lstsq_residuals": (lambda a: L.lstsq(a, fnp.multiply(a[:, 0], a[:, 1]))[1], [TALL]),
    "lu_solve": (lambda a: S.lu_solve(S.lu_factor(a), times(a, a), 2), [SQUARE]),
    "cho_solve": (lambda a: S.cho_solve(S.cho_factor(positive(a)), a[0]), [SQUARE]),
    "solve_triangular": (lambda a: S.solve_triangular(a, S.solve_triangular(a, a, "C", lower=True), "T"), [SQUARE]),
    "expm": (S.expm, [SQUARE, STACK]),
    "matrix_power": (lambda a: L.matrix_power(a, -2), [SQUARE]),
    "cond": (lambda a: L.cond(a) + L.cond(a, 1), [SQUARE]),
    "norms": (lambda a: sum(L.norm(a, o, (-2, -1)) for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)), EVERY),
    "vector_norms": (lambda a: sum(L.norm(a, o, -1) for o in (None, 1, 2, 3, 0.5, -1, np.inf, -np.inf)), [SQUARE]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str) -> None:
    f, points = FUNCTIONS[name]
    for a in points:
        weights, t = draw(*np.shape(f(a)), seed=2), draw(*a.shape, seed=3)
        t = t if a.dtype.kind == "c" else t.real

        def loss(a: Any, weights: Any = weights) -> Any:
            return fnp.sum(fnp.real(f(a) * weights))

        y, moved = fx.jvp(f, (a,), (t,))
        assert_same_bits(y, f(a))
        h = 1e-4
        slope = (8 * (f(a + h * t) - f(a - h * t)) - (f(a + 2 * h * t) - f(a - 2 * h * t))) / (12 * h)
        np.testing.assert_allclose(moved, slope, atol=1e-7 * max(1, np.abs(slope).max()))
        g = fx.grad(loss)(a)
        assert g.dtype == a.dtype and g.shape == a.shape
        expected = float(central_difference(loss, (a,), (t,)))
        assert np.real(np.sum(g * t)) == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert_same_bits(fx.jit(fx.grad(loss))(a), g)
        assert_same_bits(fx.vmap(fx.grad(loss))(np.stack([a, a * 0.9]))[1], fx.grad(loss)(a * 0.9))
        second = fx.jvp(fx.grad(loss), (a,), (t,))[1]
        gradient = fx.grad(loss)
        slope = (8 * (gradient(a + h * t) - gradient(a - h * t)) - (gradient(a + 2 * h * t) - gradient(a - 2 * h * t))) / (12 * h)
        np.testing.assert_allclose(second, slope, atol=1e-6 * max(1, np.abs(slope).max()))
        again = fx.grad(lambda a, t=t, loss=loss: fnp.sum(fnp.real(fx.grad(loss)(a) * t)))(a)
        np.testing.assert_allclose(again, second, atol=1e-10 * max(1, np.abs(second).max()))


def test_norms_of_complex_arrays_are_numpys() -> None:
    a = STACK
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        np.testing.assert_allclose(L.norm(a, order, (0, 2)), np.linalg.norm(a, order, (0, 2)), rtol=1e-13)
        assert L.norm(a.astype(np.complex64), order, (0, 2)).dtype == np.float32
    for order in (None, 0, 1, 2, 3, 0.5, -1, np.inf, -np.inf):
        np.testing.assert_allclose(L.norm(a, order, 1), np.linalg.norm(a, order, 1), rtol=1e-13)
        assert L.norm(a.astype(np.complex64), order, 1).dtype == np.float32
    assert_same_bits(fx.grad(L.norm)(np.zeros(3, complex)), np.zeros(3, complex))


def test_only_the_triangle_that_is_read_has_a_gradient() -> None:
    a = np.asarray(positive(SQUARE))
    for f in (L.cholesky, L.eigvalsh, by_eigh):
        g = fx.grad(lambda a, f=f: fnp.sum(fnp.real(f(a))))(a)
        assert np.all(g[np.triu_indices(3, 1)] == 0) and np.all(np.diagonal(g).imag == 0)
    for f in (L.cholesky, L.eigvalsh):
        plain = fx.grad(lambda a, f=f: fnp.sum(fnp.real(f(a))))
        assert_same_bits(plain(np.where(np.tri(3, dtype=bool), a, np.nan)), plain(a))


def test_complex_cholesky_solvers() -> None:
    a, b = np.asarray(positive(draw(90, 90))) / 90, draw(90, 3)
    for lower in (False, True):
        np.testing.assert_allclose(a @ S.cho_solve(S.cho_factor(a, lower), b), b, atol=1e-10)
    np.testing.assert_allclose(a.conj().T @ S.lu_solve(S.lu_factor(a), b, 2), b, atol=1e-10)
