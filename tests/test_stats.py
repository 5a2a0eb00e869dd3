"""Distributions: values against SciPy on and beyond the support, finite gradients at its ends, arguments, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

D = fx.scipy.stats
rng = np.random.default_rng(5)
N = 200
CONTINUOUS: dict[str, tuple] = {
    "norm": (),
    "uniform": (),
    "expon": (),
    "laplace": (),
    "logistic": (),
    "cauchy": (),
    "gamma": (rng.uniform(0.2, 9, N),),
    "beta": (rng.uniform(0.3, 9, N), rng.uniform(0.3, 9, N)),
    "t": (rng.uniform(0.3, 30, N),),
    "truncnorm": (rng.uniform(-3, 0, N), rng.uniform(0.5, 4, N)),
}
DISCRETE: dict[str, tuple] = {
    "poisson": (rng.uniform(0, 9, N),),
    "bernoulli": (rng.uniform(0, 1, N),),
    "binom": (rng.integers(0, 20, N).astype(float), rng.uniform(0, 1, N)),
}
METHODS = ("logpdf", "pdf", "cdf", "sf", "ppf", "isf", "logcdf", "logsf")


def agree(found: Any, expected: Any, what: str, rtol: float = 1e-11) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    with np.errstate(all="ignore"):
        good = (
            (found == expected) | (np.isnan(found) & np.isnan(expected)) | (np.abs(found - expected) <= rtol * np.abs(expected))
        )
    assert good.all(), f"{what}: {found[~good][:3]} for {expected[~good][:3]}"


def arguments(method: str) -> np.ndarray:
    if method in ("ppf", "isf"):
        return np.concatenate([[0.0, 1.0, 1.5, -0.5, np.nan, 1e-12], np.random.default_rng(1).uniform(0, 1, N - 6)])
    ends = [0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-300, 40.0]
    return np.concatenate([ends, np.random.default_rng(2).normal(scale=1.5, size=N - 8)])


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("method", METHODS)
def test_continuous(name: str, method: str) -> None:
    family, shapes, x = getattr(D, name), CONTINUOUS[name], arguments(method)
    if method in ("ppf", "isf") and family._functions[method] is None:
        with pytest.raises(AttributeError, match=f"has no {method}"):
            getattr(family, method)(x, *shapes)
        return
    for loc, scale in ((0.0, 1.0), (0.3, 2.5)):
        with np.errstate(all="ignore"):
            expected = getattr(getattr(st, name), method)(x, *shapes, loc=loc, scale=scale)
        agree(getattr(family, method)(x, *shapes, loc=loc, scale=scale), expected, f"{name}.{method}")
    assert_same_bits(getattr(family, method)(x, *shapes, 0.3, 2.5), getattr(family, method)(x, *shapes, scale=2.5, loc=0.3))
    assert np.isnan(getattr(family, method)(x, *shapes, 0.0, -1.0)).all()


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("method", ["logpmf", "pmf", "cdf", "sf"])
def test_discrete(name: str, method: str) -> None:
    k = np.concatenate([[-1.0, 0.0, 1.0, 0.5, 30.0], np.random.default_rng(1).integers(-1, 14, N - 5).astype(float)])
    shapes = DISCRETE[name]
    with np.errstate(all="ignore"):
        expected = getattr(getattr(st, name), method)(k, *shapes, loc=1)
    agree(getattr(getattr(D, name), method)(k, *shapes, loc=1), expected, f"{name}.{method}")
    whole = k[k == np.floor(k)].astype(np.int64)
    cut = [s[: whole.size] for s in shapes]
    assert_same_bits(getattr(getattr(D, name), method)(whole, *cut), getattr(getattr(D, name), method)(whole.astype(float), *cut))


def test_wrong_shape_parameters_are_nan() -> None:
    assert np.isnan(D.gamma.logpdf(1.0, -1.0)) and np.isnan(D.beta.cdf(0.5, 0.0, 1.0)) and np.isnan(D.t.logpdf(0.0, -2.0))
    assert np.isnan(D.poisson.logpmf(1, -1.0)) and np.isnan(D.bernoulli.pmf(1, 1.5)) and np.isnan(D.binom.cdf(1, 2.5, 0.5))
    assert np.isnan(D.truncnorm.logpdf(0.0, 1.0, -1.0)) and np.isnan(D.poisson.logpmf(np.nan, 2.0))


@pytest.mark.parametrize("name", [*CONTINUOUS, *DISCRETE])
def test_gradients_are_finite_and_right(name: str) -> None:
    """By every argument, inside, outside and at the ends of the support; where x is inside they are those of differences."""
    density = getattr(D, name).logpdf if name in CONTINUOUS else getattr(D, name).logpmf
    shapes = {
        "gamma": (2.5,),
        "beta": (2.0, 3.0),
        "t": (4.0,),
        "truncnorm": (-1.0, 2.0),
        "poisson": (3.0,),
        "bernoulli": (0.3,),
        "binom": (9.0, 0.4),
    }.get(name, ())
    first = 1 if name in DISCRETE else 0
    first += name == "binom"  # k and n are whole
    numbers = tuple(range(first, 1 + len(shapes)))
    tail = (0.1, 1.3) if name in CONTINUOUS else ()
    numbers += tuple(range(1 + len(shapes), 1 + len(shapes) + len(tail)))
    if not numbers:
        return
    for x in (0.5, -0.7, 0.1, 1.4, -5.0, 50.0) if name in CONTINUOUS else (1.0, 0.0, -1.0, 5.0):
        args = (x, *shapes, *tail)
        value, slopes = fx.value_and_grad(density, numbers)(*args)
        assert np.isfinite(slopes).all(), (name, x, slopes)
        if np.isfinite(value) and abs(x) < 2 and x not in (0.1, 1.4):
            h = 1e-6
            for i, g in zip(numbers, slopes, strict=True):
                up, down = (density(*args[:i], args[i] + d, *args[i + 1 :]) for d in (h, -h))
                assert g == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-7), (name, x, i)


def test_under_transforms() -> None:
    x = np.random.default_rng(0).normal(size=7)
    for f in (
        lambda t: D.norm.logpdf(t, 0.5, 2.0),
        lambda t: D.t.logcdf(t, 3.0),
        lambda t: D.truncnorm.ppf(fx.scipy.special.ndtr(t), -1.0, 2.0),
    ):
        assert_same_bits(fx.jit(f)(x), f(x))
        assert_same_bits(fx.vmap(f)(x), np.array([f(t) for t in x]))
    assert D.norm.logpdf(x.astype(np.float32), 0.0, 1.0).dtype == np.float32
    loss = fx.jit(fx.grad(lambda m, s: -fnp.sum(D.norm.logpdf(x, m, s)), argnums=(0, 1)))
    assert np.allclose(loss(x.mean(), x.std()), 0, atol=1e-12)


def test_dirichlet() -> None:
    alpha, x = np.array([1.0, 2.0, 0.5, 3.0]), np.random.default_rng(0).dirichlet(np.ones(4), 5).T
    expected = [st.dirichlet.logpdf(x[:, i], alpha) for i in range(5)]
    agree(D.dirichlet.logpdf(x, alpha), expected, "dirichlet")
    agree(D.dirichlet.logpdf(x[:-1], alpha), expected, "dirichlet", 1e-9)
    assert D.dirichlet.pdf(np.array([1.5, -0.5]), np.ones(2)) == 0
    error = raised(lambda: D.dirichlet.logpdf(x.T, alpha), ValueError)
    assert_four_parts(error, what="got (5, 4) and (4,)", line="D.dirichlet.logpdf(x.T", why="first axis", fix="x.T")


def test_multivariate_normal_of_diagonals() -> None:
    x, mean, variances = np.random.default_rng(0).normal(size=(6, 3)), np.array([0.5, 0.0, -1.0]), np.array([1.0, 2.0, 0.5])
    agree(
        D.multivariate_normal.logpdf(x, mean, variances), st.multivariate_normal.logpdf(x, mean, np.diag(variances)), "diagonal"
    )
    agree(D.multivariate_normal.pdf(x[0]), st.multivariate_normal.pdf(x[0], np.zeros(3)), "standard")


def test_multivariate_normal() -> None:
    r = np.random.default_rng(1)
    x, mean, a = r.normal(size=(2, 4, 3)), r.normal(size=3), r.normal(size=(3, 3))
    cov = a @ a.T + np.eye(3)
    agree(D.multivariate_normal.logpdf(x, mean, cov), st.multivariate_normal.logpdf(x, mean, cov), "full")
    by_mean, by_cov = fx.grad(lambda m, c: fnp.sum(D.multivariate_normal.logpdf(x, m, c)), argnums=(0, 1))(mean, cov)
    solved = np.linalg.solve(cov, (x.reshape(-1, 3) - mean).T)
    assert np.allclose(by_mean, solved.sum(1))
    assert np.allclose(by_cov + by_cov.T, solved @ solved.T - 8 * np.linalg.inv(cov))


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="gamma.logpdf.. misses a"):
        D.gamma.logpdf(1.0)
    with pytest.raises(TypeError, match=r"norm.logpdf\(x, loc, scale\) got"):
        D.norm.logpdf(1.0, mean=2.0)
    with pytest.raises(TypeError, match=r"norm.cdf"):
        D.norm.cdf(1.0, 2.0, 3.0, 4.0)
    assert repr(D.norm) == "fxgrad.scipy.stats.norm"
