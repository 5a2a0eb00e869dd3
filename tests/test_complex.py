"""Complex numbers: NumPy's values, special values of C99, one answer in every mode, JAX's convention for derivatives.

The laws of tests/laws.py run over complex operations too (tests/complex_cases.py); here is what real tables cannot say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.testing.bits import assert_same_bits
from tests import works
from tests.four_parts import assert_four_parts, raised

F = Callable[..., Any]
DTYPES = ["complex64", "complex128"]
MPMATH = {
    "exp": mpmath.exp, "expm1": mpmath.expm1, "log": mpmath.log, "log1p": mpmath.log1p, "sqrt": mpmath.sqrt, "sin": mpmath.sin,
    "cos": mpmath.cos, "tan": mpmath.tan, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "arcsin": mpmath.asin,
    "arccos": mpmath.acos, "arctan": mpmath.atan, "arcsinh": mpmath.asinh, "arccosh": mpmath.acosh, "arctanh": mpmath.atanh,
    "square": lambda z: z * z, "reciprocal": lambda z: 1 / z, "absolute": abs,
}  # fmt: skip


def draw(shape: Any, dtype: str = "complex128", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def points(dtype: str) -> np.ndarray:
    """Of all sizes and angles, near the unit circle, near the branch points."""
    rng = np.random.default_rng(3)
    turn = np.exp(1j * rng.uniform(-np.pi, np.pi, 80))
    special = [1 + 1e-4j, 1 - 1e-4j, -1 + 1e-5j, 1e-3 + 1j, -1e-3 - 1j, 1 + 1e-3 + 1e-3j, 0.5, -0.5, 0.5j, -2j]
    return np.concatenate([turn * np.exp(rng.uniform(-6, 3, 80)), turn * (1 + 1e-6 * rng.normal(size=80)), special]).astype(dtype)


# ---- values ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_are_within_a_few_ulp(dtype: str) -> None:
    """The error by the size of the exact result; NumPy's is up to 2.6 here, and 300 of log1p."""
    z = points(dtype)
    names = list(MPMATH)
    found = fx.jit(lambda z: [getattr(fnp, n)(z) for n in names])(z)
    eps = float(np.finfo(dtype).eps)
    with mpmath.workprec(160):
        for name, y in zip(names, found, strict=True):
            assert y.dtype == getattr(np, name)(z).dtype
            for at, got in zip(z.tolist(), y.tolist(), strict=True):
                want = mpmath.mpc(MPMATH[name](mpmath.mpmathify(complex(at))))
                error = float(abs(mpmath.mpc(got) - want) / abs(want)) / eps
                assert error <= 3, f"{name}({at}): {got}, off by {error:.1f} ulp"


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: str) -> None:
    z, w = draw(50, dtype), draw(50, dtype, 1)
    rtol = 40 * float(np.finfo(dtype).eps)
    for f in (
        lambda z, w: z**w,
        lambda z, w: z**3,
        lambda z, w: z**-2,
        lambda z, w: z**0,
        lambda z, w: z**0.5,
        lambda z, w: 2.0**z,
    ):
        np.testing.assert_allclose(fx.jit(f)(z, w), f(z, w), rtol=rtol)
        assert fx.jit(f)(z, w).dtype == f(z, w).dtype
    zero = np.zeros(3, dtype)
    got = fx.jit(lambda z, w: fnp.power(z, w))(zero, np.array([0, 2 + 1j, -1], dtype))
    assert_same_bits(got, np.array([1, 0, complex(math.nan, math.nan)], dtype))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, math.inf, -math.inf, math.nan]
GRID = np.array([complex(a, b) for a in SPECIAL for b in SPECIAL])
# NumPy leaves to the sign of a zero or infinity what C99 does not specify, and its expm1 and reciprocal forget infinities
AS_NUMPY = [
    "exp", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan",
    "arcsinh", "arccosh", "arctanh", "absolute", "angle", "sign", "square", "conjugate", "rint", "isnan", "isinf", "isfinite",
]  # fmt: skip
UNSPECIFIED = {"exp", "sin", "cos", "tan", "sinh", "tanh"}


@pytest.mark.parametrize("name", AS_NUMPY)
def test_special_values_are_numpys(name: str) -> None:
    with np.errstate(all="ignore"):
        want = getattr(np, name)(GRID)
    got = fx.jit(getattr(fnp, name))(GRID)
    assert got.dtype == want.dtype
    if want.dtype.kind != "c":
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-14)
        return
    for part in ("real", "imag"):
        x, y = getattr(got, part), getattr(want, part)
        free = np.zeros(x.shape, bool) if name not in UNSPECIFIED else ~(np.isfinite(GRID.real) & np.isfinite(GRID.imag))
        np.testing.assert_allclose(np.where(free, np.abs(x), x), np.where(free, np.abs(y), y), rtol=1e-14, err_msg=part)
        np.testing.assert_array_equal(np.signbit(x) | free | np.isnan(y), np.signbit(y) | free | np.isnan(y), err_msg=part)


def test_arithmetic_of_special_values_is_numpys() -> None:
    z, w = (v.ravel() for v in np.meshgrid(GRID, GRID))
    names = ["add", "subtract", "multiply", "divide", "equal", "not_equal", "less", "less_equal", "greater", "maximum", "minimum"]
    found = fx.jit(lambda z, w: [getattr(fnp, n)(z, w) for n in names])(z, w)
    for name, got in zip(names, found, strict=True):
        with np.errstate(all="ignore"):
            assert_same_bits(got, getattr(np, name)(z, w), name)


def test_large_and_small_numbers() -> None:
    far = [1e300, -1e300, 1e-300, -1e-300, 3.0, 1e200]
    z = np.array([complex(a, b) for a in far for b in far])
    for name in ("sqrt", "log", "absolute", "arcsinh", "arccos", "arctan", "arctanh", "tanh", "log1p"):
        got = fx.jit(getattr(fnp, name))(z)
        with mpmath.workprec(3000):
            for at, y in zip(z.tolist(), got.tolist(), strict=True):
                want = mpmath.mpc(MPMATH[name](mpmath.mpmathify(at)))
                assert abs(mpmath.mpc(y) - want) <= 1e-15 * abs(want), f"{name}({at}) = {y}, not {want}"
    assert np.isfinite(fx.jit(fnp.exp)(np.array([709.9 + 0.75j]))).all()  # e**709.9 is beyond float64, the product is not
    assert fx.jit(lambda z: z / 0.0)(np.array([1 + 2j])).tolist() == [complex(math.inf, math.inf)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_and_products(dtype: str) -> None:
    x, y, rtol = draw((7, 5), dtype), draw((5, 6), dtype, 1), 50 * float(np.finfo(dtype).eps)
    for f in (
        lambda np, x, y: np.sum(x, axis=0), lambda np, x, y: np.prod(x, axis=1), lambda np, x, y: np.prod(x),
        lambda np, x, y: np.mean(x), lambda np, x, y: np.var(x, axis=1, ddof=1), lambda np, x, y: np.std(x),
        lambda np, x, y: np.cumsum(x, axis=1), lambda np, x, y: np.cumprod(x, axis=0), lambda np, x, y: x @ y,
        lambda np, x, y: np.einsum("ij,jk->k", x, y), lambda np, x, y: np.vdot(x, x), lambda np, x, y: np.dot(x, y[:, 0]),
        lambda np, x, y: np.tensordot(x, y, 1), lambda np, x, y: np.vecdot(x, x), lambda np, x, y: np.inner(x, x),
        lambda np, x, y: np.round(x, 1), lambda np, x, y: np.where(np.real(x) > 0, x, 2), lambda np, x, y: np.sort(x, axis=0),
        lambda np, x, y: np.pad(x, 1, constant_values=1j), lambda np, x, y: np.outer(x[0], y[0]),
        lambda np, x, y: np.isclose(x, x + 1e-9),
        lambda np, x, y: np.any(x, axis=0), lambda np, x, y: np.count_nonzero(x), lambda np, x, y: np.linspace(x[0], x[1], 4),
        lambda np, x, y: np.full(3, 1j), lambda np, x, y: np.nansum(x), lambda np, x, y: np.average(x, axis=0, weights=np.abs(x)),
        lambda np, x, y: np.trace(x), lambda np, x, y: np.argsort(x, axis=1),
        lambda np, x, y: np.searchsorted(np.sort(x[0]), x[1]),
    ):  # fmt: skip
        want = np.asarray(f(np, x, y))
        for got in (f(fnp, x, y), fx.jit(lambda x, y, f=f: f(fnp, x, y))(x, y)):
            assert np.asarray(got).dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def test_promotion_is_numpys() -> None:
    single, double = draw(3, "complex64"), draw(3)
    operands = [
        1,
        1.5,
        2j,
        np.float32(1),
        np.float64(1),
        np.complex64(1j),
        np.int8(3),
        np.arange(3),
        np.ones(3, np.float32),
        True,
    ]
    for z in (single, double):
        for other in operands:
            want = (z * other).dtype
            assert fnp.multiply(z, other).dtype == fx.jit(lambda z, o: z * o)(z, other).dtype == want
            assert fx.jit(lambda z, o=other: o - z)(z).dtype == want
    assert fx.jit(lambda x: x * 1j)(np.ones(2, np.float32)).dtype == np.complex64  # Python's numbers are weak
    assert fx.jit(lambda x, c: x * c)(np.ones(2, np.float32), 1j).dtype == np.complex64
    assert fx.jit(lambda c: c * c)(1j) == -1


def test_conversions() -> None:
    z = draw(4)
    assert_same_bits(fx.jit(lambda z: z.astype(np.complex64))(z), z.astype(np.complex64))
    assert_same_bits(fx.jit(lambda x: x.astype(complex))(np.arange(3)), np.arange(3).astype(complex))
    assert fx.jit(lambda z: z.astype(bool))(np.array([0j, 1j, 2])).tolist() == [False, True, True]
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"):
        assert_same_bits(fx.jit(lambda z: z.astype(float))(z), z.real)
    assert complex(fx.jit(lambda z: z)(1 + 2j)) == 1 + 2j
    assert fx.vjp(lambda z: fx.stop_gradient(z).item() * 1.0, 1 + 2j)[0] == 1 + 2j


# ---- one answer ------------------------------------------------------------------------------------------------------------


def programs() -> dict[str, tuple[F, list[np.ndarray]]]:
    z, w = draw((6, 70)), draw((6, 70), seed=1)

    def normalised(z: Any) -> Any:
        return z / fnp.sqrt(fnp.sum(fnp.real(z) ** 2 + fnp.imag(z) ** 2, axis=1, keepdims=True))

    return {
        "arithmetic": (lambda z, w: (z * w + z / w, z - w, fnp.conj(z) * z), [z, w]),
        "views": (lambda z, w: (z.T[::-1, 1:] * 2j, fnp.reshape(z[:, ::2], (-1,)), fnp.concatenate([z, w], 0)[2:9] + 1), [z, w]),
        "rows": (lambda z: normalised(z) * fnp.exp(1j * fnp.angle(z)), [z]),
        "reductions": (lambda z, w: (fnp.sum(z * w, axis=0), fnp.prod(z, axis=1), fnp.mean(z), fnp.var(w)), [z, w]),
        "products": (lambda z, w: fnp.tanh(z @ fnp.conj(w).T) @ w, [z, w]),
        "scalars": (lambda z, w: fnp.sum(z) * 2 + fnp.exp(fnp.sum(w) / 100), [z, w]),
        "joined scalar": (lambda z: z.real + 1j * fnp.sum(z.imag), [z]),
        "indexing": (lambda z, w: z[fnp.argsort(w[:, 0].real)] * w, [z, w]),
        "updates": (lambda z, w: z.at[1:3, ::2].set(w[1:3, ::2] * 2), [z, w]),
        "a real part updated": (lambda z: z.real.at[0, 1].set(5.0) + z.imag, [z]),
        "outputs as they came": (lambda z, w: (z, z, w.real, w.imag), [z, w]),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_way_to_run_has_the_same_bits(dtype: str, use_threads: Any, cut_finely: Any) -> None:
    todo = [works.work(what, f, *[x.astype(dtype) for x in args]) for what, (f, args) in programs().items()]
    assert works.check(todo, use_threads) > 0


def test_eager_vmap_and_checkpoint_have_the_bits_of_jit() -> None:
    z, w = draw((4, 9)), draw((4, 9), seed=1)

    def f(z: Any, w: Any) -> Any:
        return fnp.cumprod(fnp.exp(fnp.multiply(z, w)) / fnp.sin(w)) + fnp.dot(z, fnp.conj(w)) - fnp.power(z, 3)

    rows = np.stack([np.asarray(fx.jit(f)(a, b)) for a, b in zip(z, w, strict=True)])
    assert_same_bits(fx.vmap(f)(z, w), rows)
    assert_same_bits(fx.jit(fx.vmap(f))(z, w), rows)
    assert_same_bits(fx.checkpoint(f)(z[0], w[0]), rows[0])
    assert_same_bits(f(z[0], w[0]), fx.jit(f)(z[0], w[0]))
    g = fx.grad(lambda z, w: fnp.sum(fnp.abs(f(z, w)) ** 2), (0, 1))
    assert_same_bits(fx.jit(g)(z[0], w[0]), g(z[0], w[0]))
    assert_same_bits(fx.grad(fx.checkpoint(lambda z, w: fnp.sum(fnp.abs(f(z, w)) ** 2)), (0, 1))(z[0], w[0]), g(z[0], w[0]))


def test_complex_arithmetic_is_one_kernel() -> None:
    z = draw(1000)
    compiled = fx.jit(lambda z, w: fnp.exp(z * w) + w * 1j - fnp.conj(z)).lower(z, z).compile()
    assert [s.kind for s in compiled.steps] == ["kernel"]
    assert compiled.memory_analysis().temp_bytes == 0


@pytest.mark.parametrize("n", [5, 1000, 70000])
def test_donated_arguments(n: int) -> None:
    z = draw(n)
    for f in (
        lambda z: z * (2 + 1j), lambda z: fnp.conj(z)[::-1] + z, lambda z: lax.complex(z.real, z.real),
        lambda z: lax.complex(fnp.flip(z.imag), z.real), lambda z: fnp.sqrt(z) * fnp.sum(z),
    ):  # fmt: skip
        assert_same_bits(fx.jit(f, donate_argnums=0)(z.copy()), fx.jit(f)(z))


def test_control_flow_and_code_in_place() -> None:
    z = draw(4)

    def step(c: Any, x: Any) -> Any:
        c = c * x + 1j
        return c, fnp.abs(c)

    def scanned(z: Any) -> Any:
        return fnp.sum(lax.scan(step, 1 + 0j, z)[1])

    want, c = 0.0, 1 + 0j
    for x in z:
        c = c * x + 1j
        want += abs(c)
    assert fx.jit(scanned)(z) == pytest.approx(want, rel=1e-14)
    assert_same_bits(fx.jit(fx.grad(scanned))(z), fx.grad(scanned)(z))

    def filled(z: Any) -> Any:
        y = fnp.zeros(4, complex)
        y[1:3] = z[1:3] * 2
        y[0] += 1j
        return y

    assert_same_bits(fx.jit(filled)(z), np.array([1j, 2 * z[1], 2 * z[2], 0]))
    np.testing.assert_allclose(fx.grad(lambda z: fnp.sum(fnp.abs(filled(z)) ** 2))(z), [0, *8 * np.conj(z[1:3]), 0], rtol=1e-14)
    chosen = fx.jit(lambda p, z: lax.cond(p, lambda z: z * 1j, lambda z: z / 2, z))
    assert_same_bits(chosen(True, z), fx.jit(lambda z: z * 1j)(z))
    found = fx.jit(lambda z: lax.while_loop(lambda z: fnp.abs(z) < 10, lambda z: z * z + 0.5, z))(1.1 + 0.2j)
    assert abs(found) >= 10


# ---- derivatives -----------------------------------------------------------------------------------------------------------


def test_the_convention_is_jaxs() -> None:
    z = 1.0 + 0.5j
    want = np.conj(z) / abs(z)
    np.testing.assert_allclose(fx.grad(np.abs)(z), want, rtol=1e-15)
    np.testing.assert_allclose(fx.grad(lambda z: np.sqrt(np.real(z) ** 2 + np.imag(z) ** 2))(z), want, rtol=1e-15)
    assert fx.grad(lambda z: np.real(z) ** 2 + np.imag(z) ** 2)(3 + 4j) == 6 - 8j
    assert fx.grad(np.abs)(0j) == 0
    assert fx.grad(lambda z: z.real)(z) == 1 and fx.grad(lambda z: z.imag)(z) == -1j
    assert fx.vjp(np.conj, z)[1](2 + 1j)[0] == 2 - 1j
    assert fx.grad(lambda x: np.abs(np.exp(1j * x) + 1) ** 2)(0.5).dtype == np.float64


@pytest.mark.parametrize("name", [n for n in MPMATH if n != "absolute"])
def test_holomorphic_derivatives(name: str) -> None:
    f, z = getattr(fnp, name), 0.4 + 0.3j
    g = fx.grad(f, holomorphic=True)
    h = 1e-4
    for around in (h, 1j * h):  # the same in every direction
        want = (8 * (f(z + around) - f(z - around)) - (f(z + 2 * around) - f(z - 2 * around))) / (12 * around)
        np.testing.assert_allclose(g(z), want, rtol=1e-9)
    second = fx.grad(fx.grad(f, holomorphic=True), holomorphic=True)(z)
    np.testing.assert_allclose(second, (g(z + h) - g(z - h)) / (2 * h), rtol=1e-6)
    assert fx.jvp(f, (z,), (1j,))[1] == pytest.approx(1j * g(z), rel=1e-14)


def test_jacobians() -> None:
    z, a = draw(3), draw((2, 3), seed=1)
    for transform in (fx.jacfwd, fx.jacrev):
        np.testing.assert_allclose(transform(lambda z: a @ z**2, holomorphic=True)(z), a * 2 * z, rtol=1e-13)
    np.testing.assert_allclose(fx.jacrev(lambda z: np.real(a @ z))(z), a, rtol=1e-13)
    np.testing.assert_allclose(fx.jacfwd(lambda x: a @ x)(np.ones(3)), a)
    np.testing.assert_allclose(fx.hessian(lambda z: np.sum(z**3), holomorphic=True)(z), np.diag(6 * z), rtol=1e-13)


def test_gradient_of_a_real_input_through_complex_numbers() -> None:
    x = np.linspace(0.1, 0.9, 5)

    def f(x: Any) -> Any:
        z = lax.complex(fnp.cos(x), fnp.sin(x)) * fnp.exp(2j * x)
        return fnp.sum(fnp.real(z) * x)

    np.testing.assert_allclose(fx.grad(f)(x), np.cos(3 * x) - 3 * x * np.sin(3 * x), rtol=1e-13)
    assert fx.grad(f)(x.astype(np.float32)).dtype == np.float32


def test_strong_zeros() -> None:
    z = np.array([0j, 1 + 1j])
    g = fx.grad(lambda z: fnp.sum(fnp.abs(fnp.where(z == 0, 0, fnp.log(z)))))(z)
    assert np.isfinite(g).all() and g[0] == 0


# ---- errors ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f, what, why, fix",
    [
        (
            lambda: fx.grad(lambda z: z * z)(1 + 1j),
            "needs a real floating-point output, got complex128", "of one real number", "holomorphic=True",
        ),
        (lambda: fx.grad(np.exp, holomorphic=True)(1.0), "needs complex inputs", "complex derivative", "astype(complex)"),
        (lambda: fx.grad(lambda z: abs(z), holomorphic=True)(1j), "needs a complex output", "is constant", "df/dx - i df/dy"),
        (lambda: fx.jacfwd(lambda z: z)(np.ones(2, complex)), "needs real inputs", "either part", "fx.jvp or fx.jacrev"),
        (lambda: fx.jacrev(lambda z: z)(np.ones(2, complex)), "needs real outputs", "only if", "holomorphic=True"),
        (
            lambda: fx.jacrev(lambda z: z.real, holomorphic=True)(np.ones(2, complex)),
            "needs complex outputs", "only if", "Return np.real(z)",
        ),
    ],
)  # fmt: skip
def test_errors(f: F, what: str, why: str, fix: str) -> None:
    assert_four_parts(raised(f, fx.errors.NonDifferentiableError), what=what, line="fx.", why=why, fix=fix)
