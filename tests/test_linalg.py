"""Linear algebra beyond the laws of the table: NumPy's values, dtypes and errors; repeated values; singular matrices; PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised
from tests.laws import central_difference

F = Callable[..., Any]
L, S = fnp.linalg, fx.scipy.linalg
DTYPES = ["float32", "float64", "complex64", "complex128", "int64"]


def draw(*shape: int, seed: int = 0, dtype: Any = "float64") -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.normal(size=shape) * (4 if np.dtype(dtype).kind in "iu" else 1)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x).astype(dtype)


def positive(*shape: int, seed: int = 0, dtype: Any = "float64") -> np.ndarray:
    x = draw(*shape, seed=seed, dtype=dtype)
    return (x @ np.swapaxes(x.conj(), -1, -2) + 2 * np.eye(shape[-1])).astype(dtype)


def eps_of(x: Any) -> float:
    return float(np.finfo(np.asarray(x).dtype).eps) if np.asarray(x).dtype.kind in "fc" else 0.0


# ---- values ------------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[F, F, list[tuple[int, ...]]]] = {
    "cholesky": (L.cholesky, np.linalg.cholesky, [(3, 3), (2, 4, 4), (0, 0), (0, 3, 3)]),
    "cholesky_upper": (lambda a: L.cholesky(a, upper=True), lambda a: np.linalg.cholesky(a, upper=True), [(3, 3), (2, 4, 4)]),
    "qr": (L.qr, np.linalg.qr, [(3, 3), (4, 2), (2, 4), (2, 3, 2), (0, 2), (2, 0)]),
    "qr_complete": (lambda a: L.qr(a, "complete"), lambda a: np.linalg.qr(a, "complete"), [(3, 3), (4, 2), (2, 2, 4), (3, 0)]),
    "qr_r": (lambda a: L.qr(a, "r"), lambda a: np.linalg.qr(a, "r"), [(3, 3), (4, 2), (2, 2, 4)]),
    "svd": (L.svd, np.linalg.svd, [(3, 3), (4, 2), (2, 2, 4), (0, 0), (0, 3)]),
    "svd_thin": (lambda a: L.svd(a, full_matrices=False), lambda a: np.linalg.svd(a, full_matrices=False), [(4, 2), (2, 2, 4)]),
    "svd_values": (lambda a: L.svd(a, compute_uv=False), lambda a: np.linalg.svd(a, compute_uv=False), [(4, 2), (2, 2, 4)]),
    "svdvals": (L.svdvals, np.linalg.svdvals, [(4, 2), (2, 2, 4), (3, 0)]),
    "eigh": (L.eigh, np.linalg.eigh, [(3, 3), (2, 4, 4), (0, 0)]),
    "eigh_upper": (lambda a: L.eigh(a, "U"), lambda a: np.linalg.eigh(a, "U"), [(3, 3), (2, 4, 4)]),
    "eigvalsh": (L.eigvalsh, np.linalg.eigvalsh, [(3, 3), (2, 4, 4), (0, 0)]),
    "solve": (lambda a: L.solve(a, a[..., :2] + 1), lambda a: np.linalg.solve(a, a[..., :2] + 1), [(3, 3), (2, 4, 4)]),
    "inv": (L.inv, np.linalg.inv, [(3, 3), (2, 4, 4), (0, 0), (1, 1)]),
    "pinv": (L.pinv, np.linalg.pinv, [(3, 3), (4, 2), (2, 2, 4), (0, 3)]),
    "pinv_rcond": (lambda a: L.pinv(a, 0.5), lambda a: np.linalg.pinv(a, 0.5), [(3, 3), (4, 2)]),
    "pinv_rtol": (lambda a: L.pinv(a, rtol=0.5), lambda a: np.linalg.pinv(a, rtol=0.5), [(3, 3), (4, 2)]),
    "det": (L.det, np.linalg.det, [(3, 3), (2, 4, 4), (0, 0)]),
    "slogdet": (L.slogdet, np.linalg.slogdet, [(3, 3), (2, 4, 4), (0, 0)]),
    "lstsq": (lambda a: L.lstsq(a, a[:, 0]), lambda a: np.linalg.lstsq(a, a[:, 0]), [(3, 3), (4, 2), (2, 4)]),
    "lstsq_many": (lambda a: L.lstsq(a, a), lambda a: np.linalg.lstsq(a, a), [(3, 3), (4, 2), (2, 4)]),
    "tensorinv": (lambda a: L.tensorinv(a, 1), lambda a: np.linalg.tensorinv(a, 1), [(4, 2, 2), (3, 3)]),
    "tensorsolve": (lambda a: L.tensorsolve(a, a[..., 0, 0]), lambda a: np.linalg.tensorsolve(a, a[..., 0, 0]), [(2, 2, 2, 2)]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_numpys(name: str, dtype: str) -> None:
    f, oracle, shapes = VALUES[name]
    for shape in shapes:
        make = positive if name.startswith(("chol", "eig")) else draw
        a = make(*shape, dtype=dtype)
        expected = oracle(a)
        for actual in (f(a), fx.jit(f)(a)):
            assert type(actual).__name__ == type(expected).__name__ or not isinstance(expected, tuple) or name.startswith("lstsq")
            for x, y in zip(fx.tree.leaves(actual), expected if isinstance(expected, tuple) else [expected], strict=True):
                assert np.asarray(x).dtype == np.asarray(y).dtype or np.asarray(y).dtype.kind == "i"
                assert np.shape(x) == np.shape(y)
                scale = max(1.0, float(np.max(np.abs(y), initial=0)))
                np.testing.assert_allclose(x, y, rtol=0, atol=2000 * eps_of(y) * scale)
        assert_same_bits(fx.tree.leaves(fx.jit(f)(a)), fx.tree.leaves(f(a)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues_are_complex_whatever_they_are(dtype: str) -> None:
    for a in (draw(3, 3, dtype=dtype), draw(2, 4, 4, dtype=dtype), positive(3, 3, dtype=dtype)):
        w, v = np.linalg.eig(a)
        want = np.result_type(w.dtype, np.complex64)
        for found in (L.eig(a), fx.jit(L.eig)(a)):
            assert_same_bits(list(found), [w.astype(want), v.astype(want)])
        assert_same_bits(fx.jit(L.eigvals)(a), w.astype(want))


ORDERS = [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]


@pytest.mark.parametrize("order", [*ORDERS, 0, 3, 0.5, -3], ids=str)
def test_norms(order: Any) -> None:
    vector, matrix = draw(5), draw(2, 3, 4)
    if not isinstance(order, str):
        np.testing.assert_allclose(L.norm(vector, order), np.linalg.norm(vector, order), rtol=1e-14)
        np.testing.assert_allclose(
            L.norm(matrix, order, axis=1, keepdims=True), np.linalg.norm(matrix, order, 1, True), rtol=1e-14
        )
    if order in ORDERS:
        for axes in ((0, 2), (-1, 1), (1, 2)):
            for keepdims in (False, True):
                expected = np.linalg.norm(matrix, order, axes, keepdims)
                found = fx.jit(lambda x, axes=axes, keepdims=keepdims: L.norm(x, order, axes, keepdims))(matrix)
                assert np.shape(found) == np.shape(expected)
                np.testing.assert_allclose(found, expected, rtol=1e-13)
        if order is not None:
            np.testing.assert_allclose(L.matrix_norm(matrix, ord=order), np.linalg.matrix_norm(matrix, ord=order), rtol=1e-13)
    else:
        with pytest.raises(ValueError, match="Invalid norm order"):
            L.norm(matrix, order, (0, 1))


def test_condition_numbers() -> None:
    a, singular = draw(2, 3, 3), np.array([[1.0, 2.0], [2.0, 4.0]])
    for order in ORDERS:
        np.testing.assert_allclose(L.cond(a, order), np.linalg.cond(a, order), rtol=1e-12)
        if order not in (None, 2, -2, "nuc"):
            assert fx.jit(lambda x, order=order: L.cond(x, order))(np.zeros((2, 2))) == np.inf
    assert L.cond(singular) > 1e15
    assert np.isnan(L.cond(np.full((2, 2), np.nan), 1))
    np.testing.assert_allclose(L.cond(draw(4, 2)), np.linalg.cond(draw(4, 2)), rtol=1e-12)


def test_ranks() -> None:
    for a in (draw(4, 2) @ draw(2, 4), np.zeros((3, 3)), np.eye(3), draw(2, 3, 3), np.zeros(3), np.ones(3), np.zeros((0, 3))):
        expected = np.linalg.matrix_rank(a)
        for found in (L.matrix_rank(a), fx.jit(L.matrix_rank)(a)):
            assert np.array_equal(found, expected) and np.asarray(found).dtype.kind == "i"
    assert L.matrix_rank(np.diag([3.0, 1.0, 0.1]), 0.5) == 2
    assert L.matrix_rank(np.diag([3.0, 1.0, 0.1]), rtol=0.5) == 1
    assert L.matrix_rank(np.diag([-3.0, 1.0, 0.0]), hermitian=True) == 2


def test_powers() -> None:
    a = draw(2, 3, 3) + 3 * np.eye(3)
    for n in (-3, -1, 0, 1, 2, 5, 8):
        np.testing.assert_allclose(L.matrix_power(a, n), np.linalg.matrix_power(a, n), rtol=1e-12)
    assert_same_bits(fx.jit(lambda x: L.matrix_power(x, -2))(a), L.matrix_power(a, -2))
    with pytest.raises(TypeError):
        L.matrix_power(a, 1.5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(3, 3), (70, 70), (150, 40), (40, 150), (1, 1), (0, 0)], ids=str)
def test_lu_is_scipys(dtype: str, shape: tuple[int, int]) -> None:
    a = draw(*shape, dtype=dtype)
    p, low, up = fx.jit(S.lu)(a)
    assert_same_bits([p, low, up], list(S.lu(a)))
    assert low.dtype == up.dtype == a.dtype
    scale = 100 * max(1, *shape) * eps_of(a)
    np.testing.assert_allclose(p @ low @ up, a, atol=scale)
    if a.size:
        expected = scipy.linalg.lu(a)
        np.testing.assert_array_equal(p, expected[0])
        np.testing.assert_allclose(low, expected[1], atol=20 * scale)
        indices, low2, up2 = S.lu(a, p_indices=True)
        np.testing.assert_allclose(low2[indices] @ up2, a, atol=scale)
        np.testing.assert_allclose(S.lu(a, permute_l=True)[0], p @ low, atol=scale)
        packed, pivots, perm = fx.lax.linalg.lu(a)
        np.testing.assert_array_equal(fx.lax.linalg.lu_pivots_to_permutation(pivots, shape[0]), perm)
        np.testing.assert_array_equal(pivots, scipy.linalg.lapack.get_lapack_funcs("getrf", (a,))(a)[1])
        assert packed.shape == a.shape
    stack = np.stack([a, 2 * a, a[::-1]])
    for whole, parts in zip(S.lu(stack), zip(*[S.lu(x) for x in stack], strict=True), strict=True):
        assert_same_bits(whole, np.stack(parts))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_factored_solvers(dtype: str) -> None:
    a, b = draw(90, 90, dtype=dtype) + 9 * np.eye(90, dtype=dtype), draw(90, 3, dtype=dtype)
    exact = 2e5 * eps_of(a)
    for trans, m in ((0, a), (1, a.T), (2, a.conj().T)):
        x = S.lu_solve(S.lu_factor(a), b, trans)
        assert x.dtype == a.dtype
        np.testing.assert_allclose(m @ x, b, atol=exact)
        np.testing.assert_allclose(m @ S.lu_solve(S.lu_factor(a), b[:, 0], trans), b[:, 0], atol=exact)
    for trans, lower, unit in itertools.product("NTC", (False, True), (False, True)):
        t = (np.tril(a, -1) if lower else np.triu(a, 1)) / 90 + np.eye(90, dtype=dtype) * (1 if unit else 2)
        t = t.astype(dtype)
        x = S.solve_triangular(a * 0 + t, b, trans, lower=lower, unit_diagonal=unit)
        np.testing.assert_allclose({"N": t, "T": t.T, "C": t.conj().T}[trans] @ x, b, atol=exact)
    spd = positive(90, 90, dtype=dtype) / 90
    for lower in (False, True):
        np.testing.assert_allclose(spd @ S.cho_solve(S.cho_factor(spd, lower), b), b, atol=exact)
        np.testing.assert_allclose(S.cholesky(spd, lower), scipy.linalg.cholesky(spd, lower), atol=exact)


def test_dtypes() -> None:
    a = positive(3, 3, dtype=np.float32)
    for f in (
        L.cholesky,
        L.inv,
        L.det,
        L.svdvals,
        L.eigvalsh,
        L.pinv,
        S.expm,
        lambda x: L.solve(x, x),
        lambda x: L.slogdet(x)[1],
    ):
        assert f(a).dtype == np.float32
        assert fx.grad(lambda x, f=f: fnp.sum(f(x)))(a).dtype == np.float32
        assert fx.jvp(f, (a,), (a,))[1].dtype == np.float32
    assert L.solve(a, np.ones(3)).dtype == np.float64
    assert L.inv(np.array([[True, False], [False, True]])).dtype == np.float64


# ---- derivatives where a formula may fail ----------------------------------------------------------------------------------


def check(f: F, a: np.ndarray, want: Any, atol: float = 1e-12) -> None:
    """The gradient, both modes, compiled and batched."""
    g = fx.grad(f)(a)
    np.testing.assert_allclose(g, want, atol=atol)
    assert_same_bits(fx.jit(fx.grad(f))(a), g)
    assert_same_bits(fx.vmap(fx.grad(f))(np.stack([a, a]))[1], g)
    np.testing.assert_allclose(fx.jacfwd(f)(a), want, atol=atol)


def rotated(*values: float, seed: int = 3) -> np.ndarray:
    """A symmetric matrix with these eigenvalues (to rounding)."""
    q = np.linalg.qr(draw(len(values), len(values), seed=seed))[0]
    a = q @ np.diag(values) @ q.T
    return (a + a.T) / 2


REPEATED = [np.eye(3), np.zeros((3, 3)), np.diag([2.0, 1.0, 2.0]), rotated(1, 1, 2), rotated(3, 3, 3), rotated(0, 0, 1, 1)]


@pytest.mark.parametrize("a", REPEATED, ids=range(len(REPEATED)))
def test_functions_of_repeated_eigenvalues(a: np.ndarray) -> None:
    n = len(a)
    lower = np.tril(np.ones((n, n))) + np.tril(np.ones((n, n)), -1)  # both places count in the one that is read
    for w in (L.eigvalsh, lambda a: L.eigh(a)[0]):
        check(lambda a, w=w: fnp.sum(w(a)), a, np.eye(n))
        check(lambda a, w=w: fnp.sum(w(a) ** 3), a, 3 * (a @ a) * lower, 1e-11)
        check(lambda a, w=w: fnp.sum(fnp.exp(w(a))), a, scipy.linalg.expm(a) * lower, 1e-11)
        np.testing.assert_allclose(fx.hessian(lambda a, w=w: fnp.sum(w(a)))(a), 0, atol=1e-11)


def test_projector_on_a_repeated_eigenspace() -> None:
    """The basis of the space is LAPACK's choice, the projector is not: its derivative is finite, and that of differences."""
    a = rotated(1, 1, 3, 4)

    def projector(a: Any) -> Any:
        v = L.eigh((a + fnp.matrix_transpose(a)) / 2)[1][:, :2]
        return v @ v.T

    for seed in range(3):
        t = draw(4, 4, seed=seed)
        np.testing.assert_allclose(fx.jvp(projector, (a,), (t,))[1], central_difference(projector, (a,), (t,)), atol=1e-9)
    weights = draw(4, 4, seed=9)
    g = fx.grad(lambda a: fnp.sum(projector(a) * weights))(a)
    slope = np.sum(central_difference(projector, (a,), (t,)) * weights)
    np.testing.assert_allclose(np.sum(g * t), slope, atol=1e-9)


def _with_singular_values(*values: float, m: int | None = None) -> np.ndarray:
    n = len(values)
    u = np.linalg.qr(draw(m or n, n, seed=1))[0]
    return u @ np.diag(values) @ np.linalg.qr(draw(n, n, seed=2))[0]


SINGULAR_VALUES = [np.eye(3), np.ones((1, 1)), _with_singular_values(2, 2, 1), _with_singular_values(2, 2, 2, m=5)]


@pytest.mark.parametrize("a", SINGULAR_VALUES, ids=range(len(SINGULAR_VALUES)))
def test_functions_of_repeated_singular_values(a: np.ndarray) -> None:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    for s in (L.svdvals, lambda a: L.svd(a)[1], lambda a: L.svd(a, full_matrices=False)[1]):
        check(lambda a, s=s: fnp.sum(s(a)), a, u @ vh)
        check(lambda a, s=s: fnp.sum(s(a) ** 4), a, 4 * a @ a.T @ a, 1e-11)
    check(lambda a: L.norm(a, "nuc"), a, u @ vh)

    def polar(a: Any) -> Any:  # the nearest orthogonal matrix: smooth wherever no singular value is 0
        u, _, vh = L.svd(a, full_matrices=False)
        return u @ vh

    t = draw(*a.shape, seed=5)
    np.testing.assert_allclose(fx.jvp(polar, (a,), (t,))[1], central_difference(polar, (a,), (t,)), atol=1e-9)
    hessian = fx.jvp(fx.grad(lambda a: L.norm(a, "nuc")), (a,), (t,))[1]  # its gradient is the polar factor
    if min(a.shape) == 1 or not np.allclose(np.linalg.svdvals(a), 2):
        return
    assert np.all(np.isfinite(hessian))


def test_norms_at_zero_have_derivative_zero() -> None:
    for order in (None, "fro", "nuc", 2, -2, 1, np.inf):
        check(lambda x, order=order: L.norm(x, order), np.zeros((2, 3)), np.zeros((2, 3)))
    for order in (None, 2, 3, 1, np.inf):
        check(lambda x, order=order: L.vector_norm(x, ord=2 if order is None else order), np.zeros(3), np.zeros(3))


def _leibniz(x: Any) -> Any:
    """The determinant by its definition."""
    n, total = x.shape[0], 0.0
    for p in itertools.permutations(range(n)):
        term = float(round(np.linalg.det(np.eye(n)[list(p)])))
        for i in range(n):
            term = term * x[i, p[i]]
        total = total + term
    return total


@pytest.mark.parametrize("rank", range(5))
def test_determinant_of_any_rank(rank: int) -> None:
    """Derivatives up to the third, by every mode, against those of the definition."""
    a = draw(4, rank, seed=rank) @ draw(rank, 4, seed=7)
    for derivative in (fx.grad, fx.hessian, lambda f: fx.jacrev(fx.jacrev(f)), lambda f: fx.jacfwd(fx.jacfwd(f))):
        np.testing.assert_allclose(derivative(L.det)(a), derivative(_leibniz)(a), atol=1e-11)
    if rank in (0, 2, 4):
        for third in (lambda f: fx.jacfwd(fx.hessian(f)), lambda f: fx.jacrev(fx.jacrev(fx.grad(f)))):
            np.testing.assert_allclose(third(L.det)(a), third(_leibniz)(a), atol=1e-10)


def test_determinants_nearly_singular() -> None:
    """The switch from the inverse to singular values does not show."""
    q, r = (np.linalg.qr(draw(4, 4, seed=i))[0] for i in (1, 2))
    for small in 10.0 ** -np.arange(12):
        a = q @ np.diag([2.0, 1.0, 0.5, small]) @ r
        np.testing.assert_allclose(fx.grad(L.det)(a), fx.grad(_leibniz)(a), atol=1e-11)
        t = draw(4, 4, seed=4)
        exact = fx.jvp(fx.grad(_leibniz), (a,), (t,))[1]
        np.testing.assert_allclose(fx.jvp(fx.grad(L.det), (a,), (t,))[1], exact, atol=1e-10)


def test_slogdet_of_a_singular_matrix() -> None:
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    assert L.slogdet(a)[1] == -np.inf and L.slogdet(a)[0] == 0
    assert np.all(np.isnan(fx.grad(lambda a: L.slogdet(a)[1])(a)))

    def guarded(a: Any) -> Any:
        sign, log = L.slogdet(a)
        return fnp.where(sign != 0, log, 0.0)

    check(guarded, a, np.zeros((2, 2)))
    both = np.stack([a, np.eye(2)])
    assert_same_bits(fx.vmap(fx.grad(guarded))(both), np.stack([np.zeros((2, 2)), np.eye(2)]))


def test_least_squares_of_constant_rank() -> None:
    """Along directions that keep the rank, also of solutions that are not unique."""
    left, right, b = draw(4, 2), draw(2, 3), draw(4)

    def x(left: Any, right: Any, b: Any) -> Any:
        return L.lstsq(left @ right, b, 1e-9)[0]

    def y(left: Any, right: Any, b: Any) -> Any:
        return L.pinv(left @ right, 1e-9) @ b

    tangents = tuple(draw(*v.shape, seed=3) for v in (left, right, b))
    for f in (x, y):
        np.testing.assert_allclose(
            fx.jvp(f, (left, right, b), tangents)[1], central_difference(f, (left, right, b), tangents), atol=1e-8
        )
    assert_same_bits(fx.jit(x)(left, right, b), x(left, right, b))
    assert L.lstsq(left @ right, b, 1e-9)[2] == 2


def test_gradients_go_where_numpy_reads() -> None:
    """Only the triangle that is read has a gradient; what stands in the other may be NaN."""
    a = positive(3, 3)
    for name, f, upper in (
        ("cholesky", L.cholesky, False),
        ("cholesky upper", lambda a: L.cholesky(a, upper=True), True),
        ("eigh", lambda a: L.eigh(a)[0] * [1.0, 2.0, 3.0], False),
        ("eigh U", lambda a: L.eigvalsh(a, "U") ** 2, True),
        ("pinv", lambda a: L.pinv(a, hermitian=True), False),
    ):
        keep = np.triu if upper else np.tril
        g = fx.grad(lambda a, f=f: fnp.sum(f(a) * [1.0, 2.0, 4.0]))(a)
        assert np.all(g[keep(np.ones((3, 3))) == 0] == 0) and np.all(g[keep(np.ones((3, 3))) != 0] != 0), name
        hidden = np.where(keep(np.ones((3, 3))) != 0, a, np.nan)
        assert_same_bits(fx.grad(lambda a, f=f: fnp.sum(f(a) * [1.0, 2.0, 4.0]))(hidden), g)


def test_higher_orders_of_the_exponential() -> None:
    a, t = draw(3, 3), draw(3, 3, seed=2)

    def along(h: Any) -> Any:
        return fnp.sum(S.expm(a + h * t) * np.arange(9.0).reshape(3, 3))

    third = fx.grad(fx.grad(fx.grad(along)))(0.3)
    np.testing.assert_allclose(third, central_difference(fx.grad(fx.grad(along)), (np.array(0.3),), (np.array(1.0),)), rtol=1e-8)
    np.testing.assert_allclose(fx.grad(lambda x: S.expm(x)[0, 0])(np.zeros((2, 2))), [[1, 0], [0, 0]], atol=1e-15)


# ---- PyTorch ---------------------------------------------------------------------------------------------------------------

TORCH: dict[str, tuple[F, F]] = {
    "cholesky": (lambda a: L.cholesky(a @ a.T + np.eye(4)), lambda a: torch.linalg.cholesky(a @ a.T + torch.eye(4))),
    "qr": (lambda a: L.qr(a)[0] + L.qr(a)[1], lambda a: sum(torch.linalg.qr(a))),
    "eigh": (lambda a: L.eigh(a + a.T)[1] ** 2, lambda a: torch.linalg.eigh(a + a.T)[1] ** 2),
    "svd": (lambda a: L.svd(a)[0] ** 2 * L.svd(a)[1], lambda a: torch.linalg.svd(a)[0] ** 2 * torch.linalg.svd(a)[1]),
    "solve": (lambda a: L.solve(a, a @ a), lambda a: torch.linalg.solve(a, a @ a)),
    "inv": (L.inv, torch.linalg.inv),
    "pinv": (lambda a: L.pinv(a[:, :2]), lambda a: torch.linalg.pinv(a[:, :2])),
    "det": (L.det, torch.linalg.det),
    "slogdet": (lambda a: L.slogdet(a)[1], lambda a: torch.linalg.slogdet(a)[1]),
    "lstsq": (lambda a: L.lstsq(a[:, :2], a[:, 3:])[0], lambda a: torch.linalg.lstsq(a[:, :2], a[:, 3:])[0]),
    "lu": (lambda a: S.lu(a)[1] + S.lu(a)[2], lambda a: sum(torch.linalg.lu(a)[1:])),
    "triangular": (
        lambda a: S.solve_triangular(a, a @ a, lower=True),
        lambda a: torch.linalg.solve_triangular(a.tril(), a @ a, upper=False),
    ),
    "matrix_power": (lambda a: L.matrix_power(a, -2), lambda a: torch.linalg.matrix_power(a, -2)),
    "expm": (S.expm, torch.linalg.matrix_exp),
    "nuclear": (lambda a: L.norm(a, "nuc"), lambda a: torch.linalg.matrix_norm(a, "nuc")),
    "spectral": (lambda a: L.norm(a, 2), lambda a: torch.linalg.matrix_norm(a, 2)),
    "cond": (L.cond, torch.linalg.cond),
}


@pytest.mark.parametrize("name", TORCH)
def test_gradients_are_pytorchs(name: str) -> None:
    ours, theirs = TORCH[name]
    a = draw(4, 4, seed=11)
    weights = draw(*np.shape(ours(a)), seed=12)
    x = torch.tensor(a, requires_grad=True)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        (theirs(x) * torch.tensor(weights)).sum().backward()
    finally:
        torch.set_default_dtype(previous)
    g = fx.grad(lambda a: fnp.sum(ours(a) * weights))(a)
    np.testing.assert_allclose(g, x.grad.numpy(), rtol=1e-9, atol=1e-9 * np.abs(g).max())


# ---- under transforms --------------------------------------------------------------------------------------------------------


def test_numpys_own_functions_on_tracers() -> None:
    a, b = positive(3, 3), draw(3)
    n = np.linalg

    def f(a: Any) -> Any:
        q, r = n.qr(a)
        w, v = n.eigh(a)
        u, s, vh = n.svd(a)
        total = n.det(a) + n.slogdet(a).logabsdet + n.norm(a, 2) + n.cond(a) + w[0] + s[0] + n.svdvals(a)[1]
        total = total + (n.inv(a) + n.pinv(a) + n.cholesky(a) + q + r + v + u + vh + n.matrix_power(a, -2)).sum()
        return total + n.solve(a, b).sum() + n.lstsq(a, b)[0].sum() + n.eigvalsh(a).sum() + 0 * n.matrix_rank(a)

    t = draw(3, 3, seed=4)
    np.testing.assert_allclose(np.sum(fx.grad(f)(a) * t), central_difference(f, (a,), (t,)), rtol=1e-7)
    assert_same_bits(fx.jit(fx.grad(f))(a), fx.grad(f)(a))


def test_results_have_numpys_names() -> None:
    a = positive(3, 3)
    assert fx.jit(L.eigh)(a).eigenvalues.shape == (3,)
    assert L.svd(a).Vh.shape == L.qr(a).Q.shape == L.eig(a).eigenvectors.shape == (3, 3)
    assert fx.vmap(L.slogdet)(np.stack([a, a])).logabsdet.shape == (2,)


def test_batches_of_one_operand() -> None:
    """A matrix for all right-hand sides, or one right-hand side for all matrices."""
    a, b = draw(4, 4) + 4 * np.eye(4), draw(5, 4)
    for solver in (L.solve, S.solve_triangular, lambda a, b: S.lu_solve(S.lu_factor(a), b)):
        assert_same_bits(fx.vmap(solver, (None, 0))(a, b), np.stack([solver(a, x) for x in b]))
        stack = np.stack([a, 2 * a, a.T])
        assert_same_bits(fx.vmap(solver, (0, None))(stack, b[0]), np.stack([solver(x, b[0]) for x in stack]))
    wide = fx.vmap(fx.vmap(L.solve, (None, 0)), (0, None))(stack, b)
    assert_same_bits(wide, np.stack([[L.solve(x, y) for y in b] for x in stack]))
    with pytest.raises(ValueError, match="does not fit"):
        L.solve(a, draw(3))


def test_jacobians_of_solve() -> None:
    a, b = draw(3, 3) + 3 * np.eye(3), draw(3)
    np.testing.assert_allclose(fx.jacrev(lambda b: L.solve(a, b))(b), np.linalg.inv(a), atol=1e-14)
    np.testing.assert_allclose(fx.jacfwd(lambda b: L.solve(a, b))(b), np.linalg.inv(a), atol=1e-14)
    np.testing.assert_allclose(
        fx.jacrev(lambda a: L.solve(a, b))(a), -np.einsum("ij,k->ijk", np.linalg.inv(a), np.linalg.solve(a, b)), atol=1e-14
    )


def test_large_triangles_are_solved_in_blocks() -> None:
    n = 300
    a, b = draw(n, n) / n + np.eye(n), draw(n, 4)
    for lower in (False, True):
        t = np.tril(a) if lower else np.triu(a)
        np.testing.assert_allclose(
            S.solve_triangular(a, b, lower=lower), scipy.linalg.solve_triangular(t, b, lower=lower), atol=1e-12
        )


def test_a_scalar_met_under_vmap_gets_its_whole_gradient() -> None:
    """A captured scalar is summed over the batch: its cotangent has its own shape."""
    v = np.arange(3.0)
    assert_same_bits(fx.grad(lambda s: fnp.sum(fx.vmap(lambda x: x * s)(v)))(2.0), np.float64(3))
    x = np.array([2.0, 3.0, 5.0])
    third = fx.jacrev(fx.jacrev(fx.grad(lambda x: x[0] * x[1] * x[2])))(x)
    expected = np.array([[[float(len({i, j, k}) == 3) for k in range(3)] for j in range(3)] for i in range(3)])
    assert_same_bits(third, expected)


def test_flops_are_estimated() -> None:
    a = np.stack([np.eye(30), np.eye(30)])

    def flops(f: F, *args: Any) -> float:
        return fx.jit(f).lower(*args).compile().cost_analysis()["flops"]

    assert flops(L.cholesky, a) == 2 * 30**3 / 3
    assert flops(L.solve, a, np.ones((30, 4))) == 2 * (2 * 30**3 / 3 + 2 * 30**2 * 4)
    assert flops(lambda a: S.solve_triangular(a, np.ones(30)), a) == 2 * 30**2
    assert flops(L.svdvals, a.astype(complex)) == 8 * 8 * 30**3 / 3


# ---- errors --------------------------------------------------------------------------------------------------------------------

SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])


@pytest.mark.parametrize(
    "how", [lambda f: f, fx.jit, lambda f: fx.grad(lambda a: fnp.sum(f(a))), fx.vmap], ids=["eager", "jit", "grad", "vmap"]
)
def test_singular_matrices_raise(how: F) -> None:
    a = np.stack([SINGULAR, SINGULAR]) if how is fx.vmap else SINGULAR
    for f in (L.inv, lambda a: L.solve(a, np.ones(2)), lambda a: L.matrix_power(a, -1)):
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            how(f)(a)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        how(L.cholesky)(-a)
    with pytest.raises(np.linalg.LinAlgError, match="diagonal is 0 at 1"):
        how(lambda a: S.solve_triangular(a - np.diag([0.0, 4.0]), np.ones(2)))(a)
    with pytest.raises(np.linalg.LinAlgError, match="diagonal is 0 at 1"):
        how(lambda a: S.solve_triangular(a - np.diag([0.0, 4.0]), np.ones(2), lower=True))(a)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_as_in_numpy(value: float) -> None:
    a = np.array([[1.0, 2.0], [2.0, value]])
    for name in ("svd", "svdvals", "eig", "eigvals", "eigh", "eigvalsh", "inv", "det", "qr", "cholesky", "pinv", "slogdet"):
        outcomes = []
        for f in (getattr(np.linalg, name), getattr(L, name), fx.jit(getattr(L, name))):
            try:
                with np.errstate(all="ignore"):
                    outcomes.append([np.isfinite(x) for x in fx.tree.leaves(f(a))])
            except np.linalg.LinAlgError as problem:
                outcomes.append(str(problem).splitlines()[0])
        for other in outcomes[1:]:
            assert type(other) is type(outcomes[0]), (name, outcomes)
            assert other == outcomes[0] if isinstance(other, str) else all(map(np.array_equal, other, outcomes[0])), (
                name,
                outcomes,
            )


def test_errors_have_four_parts() -> None:
    error = raised(lambda: L.inv(np.ones((2, 3))), np.linalg.LinAlgError)
    assert_four_parts(error, what="must be square, got shape (2, 3)", line="L.inv(np.ones((2, 3)))", why="square", fix="lstsq")
    error = raised(lambda: L.svd(np.ones(3)), np.linalg.LinAlgError)
    assert_four_parts(error, what="1-dimensional array given", line="L.svd(np.ones(3))", why="last two axes", fix="x[:, None]")
    error = raised(lambda: L.inv(np.eye(2, dtype=np.float16)), TypeError)
    assert_four_parts(error, what="float16 is unsupported", line="np.float16", why="LAPACK", fix="astype")
    error = raised(lambda: L.qr(np.eye(2), "raw"), fx.UnsupportedError)
    assert_four_parts(error, what="raw", line='L.qr(np.eye(2), "raw")', why="Householder", fix="reduced")
    error = raised(lambda: L.pinv(np.eye(2), np.ones(2)), fx.UnsupportedError)
    assert_four_parts(error, what="one number", line="np.ones(2)", why="rank", fix="float")
    error = raised(lambda: L.lstsq(np.ones((2, 2, 2)), np.ones(2)), np.linalg.LinAlgError)
    assert_four_parts(error, what="must be two-dimensional", line="L.lstsq(np.ones((2, 2, 2))", why="one matrix", fix="fx.vmap")
    error = raised(lambda: L.lstsq(np.ones((2, 2)), np.ones(3)), np.linalg.LinAlgError)
    assert_four_parts(error, what="Incompatible dimensions", line="np.ones(3)", why="rows", fix="Transpose")
    error = raised(lambda: L.solve(np.eye(2), np.ones(3)), ValueError)
    assert_four_parts(error, what="does not fit", line="np.ones(3)", why="rows", fix="columns")
    error = raised(lambda: S.cho_solve((np.eye(2), True), np.ones(3)), ValueError)
    assert_four_parts(error, what="incompatible", line="np.ones(3)", why="rows", fix="columns")
    error = raised(lambda: L.tensorsolve(np.ones((2, 3)), np.ones(2)), np.linalg.LinAlgError)
    assert_four_parts(error, what="square matrix", line="L.tensorsolve", why="prod(a.shape", fix="axes=")
    error = raised(lambda: L.cond(np.ones((0, 0))), np.linalg.LinAlgError)
    assert_four_parts(error, what="empty", line="L.cond(np.ones((0, 0)))", why="singular values", fix="size")
    third = fx.grad(lambda h: fx.grad(fx.grad(lambda h: L.det(np.eye(4) * h)))(h))
    error = raised(lambda: fx.grad(third)(1.0), fx.UnsupportedError)
    assert_four_parts(
        error, what="fourth derivative of a determinant", line="fx.grad(third)(1.0)", why="three rows", fix="slogdet"
    )


def test_errors_at_run_time_name_the_line_of_the_function() -> None:
    def f(a: Any) -> Any:
        return L.inv(a) + 1  # this line

    for call in (fx.jit(f), f):
        error = raised(lambda call=call: call(SINGULAR), np.linalg.LinAlgError)
        assert_four_parts(error, what="Singular matrix", line="this line", why="no inverse", fix="lstsq")
    error = raised(lambda: fx.jit(L.cholesky)(-np.eye(2)), np.linalg.LinAlgError)
    assert "not positive definite" in str(error) and "np.eye(n)" in str(error)
    error = raised(lambda: S.solve_triangular(np.zeros((1, 1)), np.ones(1)), np.linalg.LinAlgError)
    assert_four_parts(error, what="diagonal is 0 at 0", line="S.solve_triangular", why="diagonal", fix="lstsq")
    error = raised(lambda: L.svd(np.full((2, 2), np.nan)), np.linalg.LinAlgError)
    assert_four_parts(error, what="SVD did not converge", line="np.nan", why="finite", fix="isfinite")


def test_wrong_arguments() -> None:
    for call in (
        lambda: L.eigh(np.eye(2), "X"),
        lambda: L.qr(np.eye(2), "economic"),
        lambda: L.norm(np.eye(2), "max"),
        lambda: S.solve_triangular(np.eye(2), np.ones(2), "X"),
        lambda: L.pinv(np.eye(2), 0.1, rtol=0.1),
        lambda: L.tensorinv(np.ones((2, 2)), 0),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()
