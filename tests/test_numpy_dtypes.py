"""Functions of arrays of every dtype against NumPy: no part of a complex number is lost on the way, dtypes are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing import check_grads
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts

INF, NAN = np.inf, np.nan
DTYPES = [np.bool_, np.int32, np.int64, np.float32, np.float64, np.complex64, np.complex128]
rng = np.random.default_rng(11)
Z = rng.normal(size=6) + 1j * rng.normal(size=6)
W = rng.normal(size=4) + 1j * rng.normal(size=4)
M = rng.normal(size=(2, 6)) + 1j * rng.normal(size=(2, 6))
TIES = np.array([1 + 2j, 1 - 1j, 2 - 3j, 1 + 2j, 2 - 3j])
SPECIAL = np.array([complex(NAN, 1), complex(1, NAN), complex(INF, -INF), complex(-INF, NAN), 2 - 1j])


def agree(f: Callable[..., Any], *args: Any) -> None:
    """f(m, *args) of NumPy and of fxgrad: values, dtypes, shapes; eagerly and under jit the same bits."""
    expected, got = np.asarray(f(np, *args)), f(fnp, *args)
    assert_same_bits(got, fx.jit(lambda *xs: f(fnp, *xs))(*args), "jit")
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    tolerance = 64 * np.finfo(expected.dtype).eps if expected.dtype.kind in "fc" else 0
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * 4)


COMPLEX: dict[str, tuple[Callable[..., Any], tuple]] = {
    "cov": (lambda m, z: m.cov(z), (M,)),
    "cov of two": (lambda m, z, w: m.cov(z, w), (Z, M[0])),
    "cov with weights": (lambda m, z: m.cov(z, fweights=[1, 2, 1, 1, 3, 1], aweights=[1.0, 2, 1, 0.5, 1, 1]), (M,)),
    "corrcoef": (lambda m, z: m.corrcoef(z), (M,)),
    "correlate": (lambda m, z, w: m.correlate(z, w, "full"), (Z, W)),
    "correlate, the longer last": (lambda m, z, w: m.correlate(w, z, "same"), (Z, W)),
    "interp": (lambda m, w: m.interp([-1.0, 0.5, 2.25, 3, 9], [0, 1, 2, 3], w, left=1j, right=2), (W,)),
    "interp, periodic": (lambda m, w: m.interp([-1.0, 0.5, 7.25], [0, 1, 2, 3], w, period=4), (W,)),
    "median": (lambda m, z: m.median(z, axis=1), (M,)),
    "median of an odd number": (lambda m, z: m.median(z), (TIES,)),
    "nanmedian": (lambda m, z: m.nanmedian(z), (TIES,)),
    "clip": (lambda m, z: m.clip(z, 0.5, 1 + 1j), (Z,)),
    "clip from below": (lambda m, z: m.clip(z, 0.5j, None), (Z,)),
    "float_power": (lambda m, z: m.float_power(z, 2), (Z.astype(np.complex64),)),
    "float_power of reals": (lambda m, w: m.float_power(2.0, w), (W,)),
    "vander": (lambda m, z: m.vander(z, 3), (Z,)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_values(name: str) -> None:
    f, args = COMPLEX[name]
    agree(f, *args)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients(name: str) -> None:
    f, args = COMPLEX[name]
    args = tuple(z.astype(np.complex128) for z in args)
    args = tuple(z + 1e-2 * np.arange(z.size).reshape(z.shape) for z in args)  # without ties
    weights = fnp.asarray(rng.normal(size=(2, *np.shape(f(np, *args)))))

    def loss(*parts: Any) -> Any:
        y = f(fnp, *[re + 1j * im for re, im in zip(parts[::2], parts[1::2], strict=True)])
        return fnp.sum(weights[0] * fnp.real(y) + weights[1] * fnp.imag(y))

    check_grads(loss, [part for z in args for part in (z.real, z.imag)], order=1)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_nan_to_num_of_either_part(dtype: Any) -> None:
    z = SPECIAL.astype(dtype)
    for given in ({}, {"nan": 3.0, "posinf": 7.0, "neginf": -8.0}):
        assert_same_bits(fnp.nan_to_num(z, **given), np.nan_to_num(z, **given))
        assert_same_bits(fx.jit(lambda z, given=given: fnp.nan_to_num(z, **given))(z), np.nan_to_num(z, **given))
    assert fnp.nan_to_num(NAN) == 0 and fnp.nan_to_num(complex(NAN, 1)) == 1j
    gradient = fx.grad(lambda x: fnp.sum(fnp.imag(fnp.nan_to_num(z + 1j * x))))(np.ones(5, z.real.dtype))
    np.testing.assert_array_equal(gradient, [1, 0, 0, 0, 1])


@pytest.mark.parametrize("name", ["argmax", "argmin", "nanargmax", "nanargmin"])
def test_places_of_complex_extremes(name: str) -> None:
    for z in (TIES, SPECIAL, np.stack([TIES, TIES[::-1]])):
        agree(lambda m, z: getattr(m, name)(z), z)
    np.testing.assert_array_equal(fx.vmap(getattr(fnp, name))(M), [getattr(np, name)(row) for row in M])


NO_COMPLEX: dict[str, Callable[..., Any]] = {
    "bincount": lambda m, z: m.bincount([0, 1, 2, 1, 0], weights=z),
    "digitize": lambda m, z: m.digitize(z, [1, 2]),
    "interp": lambda m, z: m.interp(z, [1, 2], [3, 4]),
    "logaddexp": lambda m, z: m.logaddexp(z, z),
    "logaddexp.reduce": lambda m, z: m.logaddexp.reduce(z),
    "isposinf": lambda m, z: m.isposinf(z),
    "isneginf": lambda m, z: m.isneginf(z),
    "quantile": lambda m, z: m.quantile(z, 0.5),
    "histogramdd": lambda m, z: m.histogramdd(np.ones((5, 2)), 2, weights=z),
}
ANSWERED_BY_NUMPY: dict[str, Callable[..., Any]] = {  # by the lexicographic order, or by the real part with a warning
    "interp, left": lambda m, z: m.interp([0.5], [1, 2], [3, 4], left=z[0]),
    "nanmax": lambda m, z: m.nanmax(z),
    "nanmin": lambda m, z: m.nanmin(z),
    "histogram": lambda m, z: m.histogram(z),
    "histogram2d": lambda m, z: m.histogram2d(z, z),
}


@pytest.mark.parametrize("name", NO_COMPLEX | ANSWERED_BY_NUMPY)
def test_where_complex_numbers_are_refused(name: str) -> None:
    f = (NO_COMPLEX | ANSWERED_BY_NUMPY)[name]
    if name in NO_COMPLEX:
        with pytest.raises(TypeError):
            f(np, TIES)
    for run in (lambda: f(fnp, TIES), lambda: fx.jit(lambda z: f(fnp, z))(TIES)):
        with pytest.raises(fx.errors.FxTypeError) as caught:
            run()
        assert_four_parts(caught.value, what="complex", line="lambda m, z: m.", why=".", fix="np.real(z)")


def _values(dtype: Any, *shape: int) -> np.ndarray:
    return (
        (np.random.default_rng(3).normal(size=shape) * 3 - 1).astype(dtype)
        if dtype is not np.bool_
        else np.random.default_rng(4).normal(size=shape) > 0
    )


DTYPE_CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "cov": (lambda m, x: m.cov(x), (3, 7)),
    "cov of two": (lambda m, x: m.cov(x[0], x[1]), (2, 7)),
    "cov with dtype": (lambda m, x: m.cov(x, dtype=np.complex64), (2, 7)),
    "corrcoef": (lambda m, x: m.corrcoef(x), (2, 9)),
    "vander": (lambda m, x: m.vander(x, 3), (5,)),
    "vander, increasing": (lambda m, x: m.vander(x, increasing=True), (3,)),
    "polyfit": (lambda m, x: m.polyfit(m.arange(9).astype(x.dtype) if x.dtype.kind != "b" else m.arange(9), x, 2), (9,)),
    "float_power": (lambda m, x: m.float_power(x, 2), (5,)),
    "round": (lambda m, x: m.round(x), (5,)),
    "correlate": (lambda m, x: m.correlate(x, x[:3]), (9,)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DTYPE_CASES)
def test_dtypes_of_numpy(name: str, dtype: Any) -> None:
    f, shape = DTYPE_CASES[name]
    agree(f, _values(dtype, *shape))


def test_histogram2d_has_one_dtype() -> None:
    x, i = _values(np.float32, 11), _values(np.int64, 11)
    for got, wanted in zip(fnp.histogram2d(i, x, 3), np.histogram2d(i, x, 3), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_ties_with_falling_edges() -> None:
    edges = np.array([3.0, 2.0, 2.0, 1.0])
    for right in (False, True):
        agree(lambda m, x, e, right=right: m.digitize(x, e, right), np.array([0.0, 1, 1.5, 2, 3, 4]), edges)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_geometric_progressions_of_negative_numbers(dtype: Any) -> None:
    agree(lambda m, a, b: m.geomspace(a, b, 5), dtype(-16), dtype(-1))
    agree(lambda m, a, b: m.geomspace(a, b, 4, axis=-1), np.array([1, -2], dtype), np.array([8, -16], dtype))
    check_grads(lambda a, b: fnp.sum(fnp.geomspace(a, b, 4) ** 2), (-8.0, -1.5), order=1)


def test_what_numpy_refuses_of_booleans_and_of_ranks() -> None:
    with pytest.raises(TypeError):
        fnp.ediff1d(np.array([True, False]))
    for x, y in [(np.ones((2, 2)), np.ones(2)), (1.0, [1.0]), ([], [1.0]), ([1.0], [])]:
        for m in (np, fnp):
            with pytest.raises(ValueError, match="depth|empty|deep"):
                m.correlate(x, y)


@pytest.mark.parametrize("scalar", [np.int64(2), np.float32(2), np.int8(-3)])
def test_where_with_a_scalar_of_another_dtype(scalar: Any) -> None:
    """The scalar is converted on the way, and is not to become part of what is remembered for its dtype."""
    x = np.array([4.0, 6.0])
    for other in (scalar, type(scalar)(7), scalar):
        for _ in range(4):
            assert_same_bits(fnp.where(np.array([True, False]), other, x), np.where([True, False], other, x))
        agree(lambda m, x, other=other: m.where(x > 5, other, m.where(x > 4.5, other, m.where(x < 5, x, other))), x)
