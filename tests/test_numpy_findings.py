"""Corners of the ufuncs that a newcomer's NumPy code ran into: values as NumPy has them, the same bits eagerly and under jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.scipy import special
from fxgrad.testing.bits import assert_same_bits

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own, of the reference values
INF, NAN = np.inf, np.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 6.0, 0.1, 1e-7, -3e4, INF, -INF, NAN]
FLOATS = [np.float16, np.float32, np.float64]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def modes(f: Callable[..., Any], *args: Any) -> Any:
    """f(*args), after having checked that jit gives the same bits."""
    eager = f(*args)
    assert_same_bits(eager, fx.jit(f)(*args), getattr(f, "__name__", "f"))
    return eager


def gradients(f: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """Gradients of the sum by every operand, the same in both modes."""
    gradient = fx.grad(lambda *xs: fnp.sum(f(*xs)), argnums=tuple(range(len(args))))
    eager = gradient(*args)
    assert_same_bits(list(eager), list(fx.jit(gradient)(*args)), "gradient")
    return eager


def pairs(dtype: Any, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special values, and random ones of many magnitudes."""
    rng = np.random.default_rng(0)
    x, y = (a.ravel() for a in np.meshgrid(np.array(SPECIAL).astype(dtype), np.array(SPECIAL).astype(dtype)))
    a, b = (rng.normal(size=count) * 10.0 ** rng.integers(-4, 4, count) for _ in range(2))
    return np.concatenate([x, a.astype(dtype)]), np.concatenate([y, b.astype(dtype)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["floor_divide", "fmod", "remainder"])
def test_quotients_and_remainders_have_the_bits_of_numpy(name: str, dtype: Any) -> None:
    x, y = pairs(dtype)
    assert_same_bits(modes(getattr(fnp, name), x, y), getattr(np, name)(x, y))


@pytest.mark.parametrize("dtype", FLOATS)
def test_divmod(dtype: Any) -> None:
    x, y = pairs(dtype)
    for got, want in zip(modes(lambda x, y: list(divmod(fx.asarray(x), y)), x, y), np.divmod(x, y), strict=True):
        assert_same_bits(got, want)
    assert gradients(fnp.floor_divide, dtype(7), dtype(2)) == (0, 0)


def test_floor_divide_of_scalars() -> None:
    for x, y, want in [(1.0, -INF, -1.0), (INF, 2.0, NAN), (-0.0, -1.0, 0.0), (1.0, 0.0, INF), (6.0, 0.1, 59.0)]:
        assert_same_bits(modes(fnp.floor_divide, np.float64(x), np.float64(y)), np.float64(want))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fmod_gradient(dtype: Any) -> None:
    x = np.array([0.0, -0.0, 5.0, -5.0], dtype)
    by_x, by_y = gradients(fnp.fmod, x, np.full(4, 3, dtype))
    np.testing.assert_array_equal(by_x, [1, 1, 1, 1])
    np.testing.assert_array_equal(by_y, [0, 0, -1, 1])


@pytest.mark.parametrize("dtype", INTS)
def test_integer_remainders_and_reciprocals(dtype: Any) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 2, 3, 100, *((-1, -2, -100) if info.min else ())], dtype)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    for name in ("fmod", "floor_divide", "remainder"):
        assert_same_bits(modes(getattr(fnp, name), x, y), getattr(np, name)(x, y), name)
    got, want = modes(fnp.reciprocal, values), np.reciprocal(values)
    assert_same_bits(got[values != 0], want[values != 0])
    assert np.all(got[values == 0] == (info.min if values.itemsize >= 4 else 0))
    assert_same_bits(modes(fnp.fabs, values), np.fabs(values))


UNARY = ["arcsinh", "arccosh", "arctanh", "exp2", "log2", "log10", "deg2rad", "rad2deg"]


@pytest.mark.parametrize("name", UNARY)
def test_float16_is_rounded_once(name: str) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with_rounding(modes(getattr(fnp, name), x), getattr(np, name)(x.astype(np.float64)))


@pytest.mark.parametrize("name", ["hypot", "logaddexp", "logaddexp2", "arctan2"])
def test_float16_is_rounded_once_of_two(name: str) -> None:
    x, y = pairs(np.float16, 3000)
    with_rounding(modes(getattr(fnp, name), x, y), getattr(np, name)(x.astype(np.float64), y.astype(np.float64)))


def with_rounding(got: np.ndarray, exact: np.ndarray) -> None:
    """Each element is `exact` rounded to float16, but for near ties, which float32 may turn."""
    want = exact.astype(np.float16)
    assert got.dtype == np.float16
    wrong = ~((got == want) | (np.isnan(got) & np.isnan(want)))
    finite = wrong & np.isfinite(want)
    assert not np.any(wrong & ~finite)
    slack = np.abs(np.abs(got[finite].astype(float) - exact[finite]) / np.spacing(np.abs(want[finite])).astype(float) - 0.5)
    assert np.all(slack < 1e-3), (got[finite], want[finite])


def test_arcsinh_of_float16() -> None:
    assert modes(fnp.arcsinh, np.float16(300)) == np.arcsinh(np.float16(300))
    (slope,) = gradients(fnp.arcsinh, np.float16(300))
    assert slope.dtype == np.float16 and slope == np.float16(1 / np.hypot(1, 300))


# ---- log_softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [special.log_softmax, nn.log_softmax])
def test_log_softmax_with_minus_infinity(f: Any) -> None:
    x = np.array([-INF, 0.0, 1.0])
    assert_same_bits(modes(f, x)[0], np.float64(-INF))
    np.testing.assert_allclose(f(x), scipy.special.log_softmax(x), rtol=1e-15)
    (g,) = gradients(lambda x: f(x)[0], x)
    np.testing.assert_allclose(g, [1, -1 / (1 + np.e), -np.e / (1 + np.e)], rtol=1e-14)
    (g,) = gradients(lambda x: f(x)[2], x)
    np.testing.assert_allclose(g, [0, -1 / (1 + np.e), 1 / (1 + np.e)], rtol=1e-14)


def test_log_softmax_of_a_row_of_minus_infinity() -> None:
    x = np.array([[-INF, -INF], [0.0, 1.0]])
    got = modes(nn.log_softmax, x)
    assert np.all(np.isnan(got[0]))
    np.testing.assert_allclose(got[1], scipy.special.log_softmax(x[1]), rtol=1e-15)
    (g,) = gradients(lambda x: nn.log_softmax(x)[1], x)
    np.testing.assert_array_equal(g[0], [0, 0])
    assert np.all(np.isfinite(g[1]))


# ---- hypot, arctan2, logaddexp2 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hypot(dtype: Any) -> None:
    info = np.finfo(dtype)
    tiny, rng = info.smallest_subnormal, np.random.default_rng(1)
    x, y = pairs(dtype)
    edges = np.array([tiny, 3 * tiny, 5e5 * tiny, info.tiny, info.max, info.max / 2, 1], dtype)
    a, b = (v.ravel() for v in np.meshgrid(edges, edges))
    power = rng.integers(info.minexp - 5, info.maxexp - 1, 2000)
    c, d = (np.ldexp(rng.uniform(-1, 1, 2000), power).astype(dtype) for _ in range(2))
    x, y = np.concatenate([x, a, c]), np.concatenate([y, b, d])
    got, want = modes(fnp.hypot, x, y), np.hypot(x.astype(np.longdouble), y.astype(np.longdouble))
    finite = np.isfinite(want.astype(dtype))
    assert_same_bits(got[~finite], want[~finite].astype(dtype))
    error = np.abs(got[finite] - want[finite]) / np.spacing(got[finite]).astype(np.longdouble)
    normal = got[finite] >= info.tiny
    assert np.max(error[normal]) < 0.51 and np.max(error[~normal]) <= 0.75  # subnormal results are rounded twice


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hypot_gradient(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0, 3, NAN, 1, INF, 3 * tiny, -INF], dtype)
    y = np.array([0, -4, 1, NAN, 1, 4 * tiny, 0], dtype)
    by_x, by_y = gradients(fnp.hypot, x, y)
    np.testing.assert_allclose(by_x, [0, 0.6, NAN, NAN, 1, 0.6, -1], rtol=1e-6)
    np.testing.assert_allclose(by_y, [0, -0.8, NAN, NAN, 0, 0.8, 0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arctan2_gradient_at_infinity(dtype: Any) -> None:
    y, x = np.array([INF, 1, -INF, INF, 1], dtype), np.array([1, -INF, INF, INF, 2], dtype)
    by_y, by_x = gradients(fnp.arctan2, y, x)
    np.testing.assert_allclose(by_y, [0, 0, 0, 0, 0.4], rtol=1e-6)
    np.testing.assert_allclose(by_x, [0, 0, 0, 0, -0.2], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logaddexp2(dtype: Any) -> None:
    x = np.array([3, 1000, -INF, INF, -INF, 100000, 0.5, NAN], dtype)
    y = np.array([3, 1000, -INF, 1, 7, 99999, -0.25, 1], dtype)
    got, want = modes(fnp.logaddexp2, x, y), np.logaddexp2(x, y)
    np.testing.assert_array_equal(got[:5], want[:5])
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)
    by_x, by_y = gradients(fnp.logaddexp2, x[:-1], y[:-1])
    np.testing.assert_allclose(by_x + by_y, 1, rtol=1e-5)
    np.testing.assert_allclose(by_x[[0, 5]], [0.5, 2 / 3], rtol=1e-5)


# ---- comparisons -----------------------------------------------------------------------------------------------------------

COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_integers_out_of_range(name: str) -> None:
    f, want = getattr(fnp, name), getattr(np, name)

    def both_ways(compare: Callable[..., Any], x: Any) -> list[Any]:
        numbers = (-1, 300, -(2**40), 2**63, 2**64, -(10**30), np.iinfo(x.dtype).min)
        return [compare(x, n) for n in numbers] + [compare(n, x) for n in numbers]

    for dtype in INTS:
        x = np.array([0, 1, np.iinfo(dtype).max], dtype)
        for operand in (x, x[1]):
            assert_same_bits(modes(lambda x: both_ways(f, x), operand), both_ways(want, operand))
    assert_same_bits(fx.jit(lambda x: f(x, 300))(np.array([True])), want(np.array([True]), 300))
    assert f(3, 10**30) == want(3, 10**30)


def test_comparison_operators_of_tracers() -> None:
    x = np.array([3, 255], np.uint8)
    assert_same_bits(fx.jit(lambda x: x < 300)(x), x < 300)
    assert_same_bits(fx.jit(lambda x: x > 300)(x), x > 300)
    assert_same_bits(fx.jit(lambda x: x == -1)(x), x == -1)
    assert_same_bits(fx.jit(lambda x, n: x < n)(x, 300), x < 300)
    assert_same_bits(fx.jit(lambda x, n: n == x)(x, 259), x == 259)


@pytest.mark.parametrize("name", COMPARISONS)
def test_unsigned_against_signed(name: str) -> None:
    u = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    s = np.array([0, -1, 1, 2**63 - 1, -(2**63)], np.int64)
    u, s = (a.ravel() for a in np.meshgrid(u, s))
    f, want = getattr(fnp, name), getattr(np, name)
    assert_same_bits(modes(f, u, s), want(u, s))
    assert_same_bits(modes(f, s, u), want(s, u))
    assert_same_bits(modes(f, u, s.astype(np.int32)), want(u, s.astype(np.int32)))


# ---- round, pow, normalisation ---------------------------------------------------------------------------------------------


def test_round() -> None:
    assert fx.jit(round)(2.5) == 2 and fx.jit(lambda x: round(x, 1))(np.float64(2.26)) == round(np.float64(2.26), 1)
    assert_same_bits(fx.jit(lambda x: round(x, 1))(np.array([2.26, -0.31])), np.round([2.26, -0.31], 1))
    kinds = []

    def f(x: Any) -> Any:
        kinds.append(type(round(x)))
        return round(x) * x + round(x, 1)

    assert fx.grad(f)(2.6) == 3.0 and kinds == [int]
    assert fx.jit(fx.grad(f))(2.6) == 3.0


def test_pow_of_three() -> None:
    with pytest.raises(TypeError, match="three arguments"):
        fx.jit(lambda x: pow(x, 2, 3))(5)
    with pytest.raises(TypeError):
        fx.jit(lambda x: pow(2, x, 3))(5)


NORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "layer_norm": (
        lambda x, s: nn.layer_norm(x, s, s),
        lambda x, s: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * s + s,
    ),
    "rms_norm": (nn.rms_norm, lambda x, s: x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6) * s),
    "standardize": (
        lambda x, s: nn.standardize(x),
        lambda x, s: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_normalisation_in_float16(name: str) -> None:
    f, exact = NORMS[name]
    rng = np.random.default_rng(0)
    x, s = (rng.normal(size=(6, 50)) * 400).astype(np.float16), rng.normal(size=50).astype(np.float16)
    with_rounding(modes(f, x, s), exact(x.astype(np.float64), s.astype(np.float64)))
    (g, _) = gradients(f, x, s)
    assert g.dtype == np.float16 and np.all(np.isfinite(g))
    if name != "standardize":
        assert modes(f, x, s.astype(np.float32)).dtype == np.float32
