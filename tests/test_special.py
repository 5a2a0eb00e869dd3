"""Special functions: values where it is hard, limits, every way to call them, derivatives."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.kernels.iterate import repeat_while
from fxgrad.primitives.base import REGISTRY
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

S = fx.scipy.special
INF, NAN = np.inf, np.nan
UNARY = [
    "erfinv",
    "erfcinv",
    "erfcx",
    "ndtr",
    "ndtri",
    "log_ndtr",
    "gammaln",
    "gamma",
    "digamma",
    "psi",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "exprel",
    "entr",
    "logit",
    "expit",
]
BINARY = ["beta", "betaln", "gammainc", "gammaincc", "zeta", "poch", "xlogy", "xlog1py", "rel_entr", "kl_div", "comb"]
UFUNCS = ["erfinv", "ndtri", "gammaln", "digamma", "i0", "expit", "psi", "log_ndtr", "gammaincc", "betaln", "betainc", "zeta"]
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 171.0, 180.0, -170.5, 1e-310, 1e300, -1e300, INF, -INF, NAN])
# Where SciPy answers otherwise: at infinities.
OTHERS = {"gammaln": [-INF], "gamma": [-INF], "digamma": [-INF, INF], "psi": [-INF, INF], "i0": [INF, -INF], "i1": [INF, -INF]}


def agree(found: Any, expected: Any, rtol: float, what: str) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    with np.errstate(all="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        near = np.abs(found - expected) <= rtol * np.abs(expected)
    bad = ~(same | near)
    assert not bad.any(), f"{what}: {found[bad][:4]} for {expected[bad][:4]} at {np.argwhere(bad)[:4].ravel()}"


@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str) -> None:
    """Zeros, poles, infinities and NaN as SciPy has them."""
    x = EDGES[~np.isin(EDGES, OTHERS.get(name, []))]
    with np.errstate(all="ignore"):
        expected = getattr(sp, name)(x)
    found = getattr(S, name)(x)
    agree(found, expected, 1e-13, name)


def test_limits_of_our_own() -> None:
    for f in (S.erfinv, S.i1, S.i1e, S.gamma):
        assert np.signbit(f(-0.0)) and not np.signbit(f(0.0))
    assert not np.signbit(S.ndtri(0.5)) and not np.signbit(S.entr(0.0)) and not np.signbit(S.erfcinv(1.0))
    assert S.i0(INF) == INF and S.i1(-INF) == -INF
    assert S.gammaln(-INF) == INF and np.isnan(S.gamma(-INF)) and np.isnan(S.digamma(-INF)) and S.digamma(INF) == INF
    assert np.isnan(S.gamma(-3.0)) and S.gamma(-0.0) == -INF and S.gammaln(-3.0) == INF
    assert S.zeta(1.0) == INF and np.isnan(S.zeta(0.5)) and S.zeta(200.0) == 1
    assert S.polygamma(1, -2.0) == INF and S.polygamma(1, 0.0) == INF and S.polygamma(2, 0.0) == -INF
    assert S.polygamma(0, 2.5) == S.digamma(2.5) and S.polygamma(3, INF) == 0
    assert S.betainc(2.0, 3.0, 0.0) == 0 and S.betainc(2.0, 3.0, 1.0) == 1 and np.isnan(S.betainc(2.0, 3.0, 1.5))
    a = np.array([0.0, 2.0, 2.0, INF, 2.0, -1.0, 0.0, NAN])
    x = np.array([1.0, 0.0, INF, 2.0, -1.0, 2.0, 0.0, 1.0])
    assert_same_bits(S.gammainc(a, x), np.array([1.0, 0.0, 1.0, 0.0, NAN, NAN, NAN, NAN]))
    assert_same_bits(S.gammaincc(a, x), np.array([0.0, 1.0, 0.0, 1.0, NAN, NAN, NAN, NAN]))
    assert S.factorial(-1) == 0 and S.comb(3, 5) == 0 and S.comb(5, 2, repetition=True) == pytest.approx(15, rel=1e-14)


def test_far_tails() -> None:
    """Where a naive formula vanishes or cancels."""
    with mp.workdps(60):
        for x in (-30.0, -37.5, -1e3, -1e6, 8.0):
            exact = (
                mp.log(mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2)
                if x > -100
                else -(mp.mpf(x) ** 2) / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) - 1 / mp.mpf(x) ** 2
            )
            assert float(S.log_ndtr(x)) == pytest.approx(float(exact), rel=1e-15)
        for q in (1e-320, 1e-200, 1e-20):
            assert float(mp.erfc(mp.mpf(float(S.erfcinv(q)))) / mp.mpf(q)) == pytest.approx(1, rel=1e-11)
        for a, x in ((1e-8, 0.5), (1e-3, 1e-5), (50.0, 200.0), (1e4, 1.02e4), (0.3, 40.0)):
            exact = mp.gammainc(a, x, regularized=True)
            assert float(S.gammaincc(a, x)) == pytest.approx(float(exact), rel=2e-13)
        for a, b, x in ((500.0, 700.0, 0.4), (0.1, 0.1, 1e-9), (3000.0, 2.0, 0.999)):
            assert float(S.betainc(a, b, x)) == pytest.approx(float(mp.betainc(a, b, 0, x, regularized=True)), rel=1e-12)
        assert float(S.betaln(1e8, 1e-3)) == pytest.approx(float(mp.log(mp.beta(1e8, 1e-3))), rel=1e-14)


def test_large_shapes_of_gammainc() -> None:
    """Near the median of large shapes the loops still end, and the answer is near that of the normal distribution."""
    for a in (1e5, 1e7):
        x = a + np.sqrt(a) * np.array([-3.0, -0.5, 0.5, 3.0])
        agree(S.gammainc(a, x), sp.gammainc(a, x), 1e-10, f"gammainc({a})")


@pytest.mark.parametrize("name", BINARY)
def test_values_of_two(name: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.uniform(1.1, 30, 300), rng.uniform(0.1, 30, 300)
    agree(
        getattr(S, name)(a, b), getattr(sp, name)(a, b), 1e-9 if name == "kl_div" else 3e-12, name
    )  # which cancels, in SciPy too
    c, d = (np.minimum(x, 6).astype(np.float32) for x in (a, b))
    single = getattr(S, name)(c, d)
    assert single.dtype == np.float32
    if name != "kl_div":  # whose sum cancels
        agree(single, getattr(sp, name)(c.astype(float), d.astype(float)), 1e-6, name)


def test_negative_arguments() -> None:
    x = np.random.default_rng(0).uniform(-19.5, 0, 500)
    x = x[np.abs(x - np.rint(x)) > 1e-3]
    agree(S.gamma(x), sp.gamma(x), 1e-13, "gamma")
    for f, g in ((S.gammaln, sp.gammaln), (S.digamma, sp.digamma)):
        assert np.abs(f(x) - g(x)).max() < 2e-12 * np.abs(g(x)).max()
    for n in (1, 2, 3):
        exact = np.array([float(mp.polygamma(n, t)) for t in x[:60]])
        assert np.abs(S.polygamma(n, x[:60]) / exact - 1).max() < 1e-11


@pytest.mark.parametrize("name", UFUNCS)
def test_scipys_own_ufuncs_on_tracers(name: str) -> None:
    """scipy.special's ufunc of a traced value is ours, under jit and grad."""
    count = {"gammaincc": 2, "betaln": 2, "zeta": 2, "betainc": 3}.get(name, 1)
    args = [np.array([1.5, 2.5]), np.array([0.7, 3.0])][: min(count, 2)] + [np.array([0.3, 0.6])] * (count == 3)
    args = [np.array([0.3, 0.6])] if count == 1 else args
    f, g = getattr(sp, name), getattr(S, name)
    assert_same_bits(fx.jit(lambda *xs: f(*xs))(*args), g(*args))
    if count == 1:
        assert_same_bits(fx.grad(lambda t: fnp.sum(f(t)))(*args), fx.grad(lambda t: fnp.sum(g(t)))(*args))


def test_dtypes() -> None:
    half = np.array([0.25, 0.5], np.float16)
    for f in (S.erfinv, S.gammaln, S.ndtri, S.i0, S.beta, S.zeta):
        args = (half + np.float16(1.25),) * 2 if f in (S.beta, S.zeta) else (half,)
        assert f(*args).dtype == np.float16
    assert S.gammaln(3).dtype == np.float64 and S.gammaln(np.array([3])).dtype == np.float64
    assert S.betaln(np.float32(2), 3.0).dtype == np.float32


def test_derivatives_at_ends() -> None:
    """Slopes exist where the function does: exprel and sinc at 0, i1e at 0, erfcx and log_ndtr far out."""
    assert fx.grad(S.exprel)(0.0) == 0.5 and fx.grad(fx.grad(S.exprel))(0.0) == pytest.approx(1 / 3, rel=1e-15)
    assert fx.grad(fx.grad(S.sinc))(0.0) == pytest.approx(-(np.pi**2) / 3, rel=1e-14)
    assert fx.grad(S.i1)(0.0) == 0.5 and fx.grad(S.i1e)(0.0) == 0.5
    assert fx.grad(S.log_ndtr)(-1e4) == pytest.approx(1e4, rel=1e-7) and fx.grad(S.log_ndtr)(50.0) == 0
    assert fx.grad(S.ndtri)(0.5) == pytest.approx(np.sqrt(2 * np.pi), rel=1e-15)


def test_gammainc_by_its_shape() -> None:
    """Against mpmath's differences."""
    slope = fx.grad(S.gammainc, argnums=0)
    with mp.workdps(40):
        for a, x in ((0.4, 0.1), (2.5, 1.0), (2.5, 9.0), (40.0, 35.0), (40.0, 60.0)):
            h = mp.mpf(10) ** -12
            exact = (mp.gammainc(a + h, 0, x, regularized=True) - mp.gammainc(a - h, 0, x, regularized=True)) / (2 * h)
            assert float(slope(a, x)) == pytest.approx(float(exact), rel=1e-12)
            assert float(fx.grad(S.gammaincc, argnums=0)(a, x)) == -float(slope(a, x))
    mixed = fx.grad(fx.grad(S.gammainc, argnums=0), argnums=1)(2.5, 1.0)
    h = 1e-5
    assert mixed == pytest.approx((slope(2.5, 1 + h) - slope(2.5, 1 - h)) / (2 * h), rel=1e-8)


def test_zeta_by_both() -> None:
    with mp.workdps(30):
        for s, q in ((2.0, 1.0), (3.5, 0.7)):
            by_s, by_q = fx.grad(S.zeta, argnums=(0, 1))(s, q)
            assert float(by_s) == pytest.approx(float(mp.diff(lambda t, q=q: mp.zeta(t, q), s)), rel=1e-12)
            assert float(by_q) == pytest.approx(float(-s * mp.zeta(s + 1, q)), rel=1e-13)


def test_missing_rules_raise() -> None:
    error = raised(lambda: fx.grad(S.betainc)(2.0, 3.0, 0.4), fx.NonDifferentiableError)
    assert_four_parts(
        error, what="betainc by a shape parameter", line="fx.grad(S.betainc)", why="pass for zero", fix="stop_gradient"
    )
    error = raised(lambda: fx.jit(S.polygamma)(2, 1.0), ValueError)
    assert_four_parts(error, what="traced n", line="fx.jit(S.polygamma)", why="order of a derivative", fix="Python int")
    error = raised(lambda: S.polygamma(-1, 1.0), ValueError)
    assert_four_parts(error, what="got -1", line="S.polygamma(-1", why="order of a derivative", fix="zeta(n + 1, x)")
    error = raised(lambda: S.gammaln(np.array([1 + 1j])), fx.UnsupportedError)
    assert_four_parts(error, what="complex", line="S.gammaln(np.array", why="imaginary", fix="x.real")
    error = raised(lambda: S.factorial(5, exact=True), fx.UnsupportedError)
    assert_four_parts(error, what="exact=True", line="S.factorial", why="unbounded", fix="math.factorial")


# ---- loops in kernels --------------------------------------------------------------------------------------------------------


def test_loops_stop_lane_by_lane() -> None:
    """repeat_while on arrays: Collatz steps of each number; one that is done is left alone."""

    def step(n: Any, steps: Any) -> tuple[Any, Any]:
        return np.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    n, steps = repeat_while(lambda n, steps: n > 1, step, (np.arange(1, 10), np.zeros(9, np.int64)))
    assert (n == 1).all() and steps.tolist() == [0, 1, 7, 2, 5, 8, 16, 3, 19]


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "gammainc_slope", "gamma_draw_slope"])
def test_loops_give_each_lane_its_own_bits(name: str) -> None:
    """A number's neighbours, some of which take a hundred turns more, and NaN, change nothing; NumPy's evaluation agrees."""
    from fxgrad.kernels import language

    a = np.array([0.5, 1e4, 3.0, NAN, 20.0, 1e-3, 0.0, 7.0, INF, 2.0, 5.0])
    x = np.array([0.1, 1e4, 9.0, 1.0, 19.0, 1e-3, 1.0, INF, 1.0, 0.0, -1.0])
    prim = REGISTRY[name]
    together = prim(a, x)
    assert_same_bits(together, np.array([prim(a[i : i + 1], x[i : i + 1])[0] for i in range(a.size)]))
    with np.errstate(all="ignore"):
        assert_same_bits(together, prim.body(language, a, x))  # type: ignore[misc]
