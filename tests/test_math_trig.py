"""Accuracy, special values and reproducibility of fxgrad.kernels.trig and fxgrad.kernels.error_function."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from kernel_harness import compute_numpy, run_kernel, same_bits
from scipy import special

from fxgrad.kernels import error_function as ef
from fxgrad.kernels import trig
from fxgrad.kernels import vector as v
from fxgrad.testing.ulp import ulp_difference

INF, NAN, PI = np.inf, np.nan, np.pi
TINY = 5e-324
# name: (body, float64 reference, mpmath reference, bound in ulp for float32, for float64)
FUNCTIONS = {
    "sin": (trig.sin, np.sin, mpmath.sin, 0.8, 0.8),
    "cos": (trig.cos, np.cos, mpmath.cos, 0.8, 0.8),
    "tan": (trig.tan, np.tan, mpmath.tan, 0.95, 0.95),
    "asin": (trig.asin, np.arcsin, mpmath.asin, 1.2, 1.2),
    "acos": (trig.acos, np.arccos, mpmath.acos, 1.2, 1.2),
    "atan": (trig.atan, np.arctan, mpmath.atan, 0.95, 0.95),
    "erf": (ef.erf, special.erf, mpmath.erf, 1.0, 1.0),
    "erfc": (ef.erfc, special.erfc, mpmath.erfc, 1.4, 1.4),
}
# The double whose distance from a multiple of pi/2 is smallest of all, and other hard arguments of the reduction.
HARD_ANGLES = [
    6381956970095103 * 2.0**797, 5.319372648326541e255, 1.7976931348623157e308, 1e22, 2.0**1023, 1e6, np.nextafter(1e6, 0),
    np.nextafter(1e6, 2e6), 1e5, 1.633123935319537e16,
]  # fmt: skip


def exact_pair(function, *arguments) -> tuple[np.ndarray, np.ndarray]:
    """The mpmath value of each element as hi + lo."""
    hi, lo = np.empty(len(arguments[0])), np.empty(len(arguments[0]))
    with mpmath.workprec(120):
        for i, xs in enumerate(zip(*(a.tolist() for a in arguments), strict=True)):
            value = function(*map(mpmath.mpf, xs))
            hi[i] = value
            lo[i] = value - mpmath.mpf(hi[i])
    return hi, lo


def float64_points(name: str) -> np.ndarray:
    """About 20,000 arguments: dense where the function bends, over the whole exponent range, and its hard cases."""
    rng = np.random.default_rng(7)
    signs = rng.choice([-1.0, 1.0], 2000)
    spread = signs * 2.0 ** rng.uniform(-1000, 0, 2000)
    if name in ("asin", "acos"):
        near_one = 1 - 2.0 ** rng.uniform(-53, -1, 2000)
        return np.concatenate([rng.uniform(-1, 1, 14000), spread, near_one, -near_one, [0.5, np.nextafter(0.5, 1)]])
    if name in ("erf", "erfc"):
        tail = rng.uniform(5, 28, 5000) if name == "erfc" else rng.uniform(3, 6.2, 5000)
        return np.concatenate([rng.uniform(-1.3, 1.3, 8000), rng.uniform(-6.2, 6.2, 5000), tail, spread])
    wide = np.concatenate([rng.uniform(-10, 10, 8000), spread, signs * 2.0 ** rng.uniform(0, 1023.9, 2000)])
    if name == "atan":
        return np.concatenate([wide, rng.uniform(-3, 3, 6000)])
    with mpmath.workprec(1200):  # the doubles next to multiples of pi/2
        multiples = [float(mpmath.pi / 2 * int(k)) for k in rng.integers(1, 10**6, 2000)]
        scales = [mpmath.mpf(2) ** int(e) for e in rng.integers(0, 960, 500)]
        multiples += [float(mpmath.pi / 2 * scale * k) for k, scale in enumerate(scales, 1)]
    return np.concatenate([wide, rng.uniform(-1e6, 1e6, 4000), multiples, HARD_ANGLES])


def float32_grid() -> np.ndarray:
    return np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_accuracy(name):
    body, reference, _, bound, _ = FUNCTIONS[name]
    x = float32_grid()
    result = run_kernel(body, x)
    with np.errstate(all="ignore"):
        error = ulp_difference(result, reference(x.astype(np.float64)))
    worst = np.argmax(error)
    assert error[worst] <= bound, (x[worst], result[worst], error[worst])
    assert same_bits(result[::8], compute_numpy(body, x[::8])).all()


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_float32_huge_angles(name):
    body, _, reference, bound, _ = FUNCTIONS[name]
    x = np.arange(np.float32(1e5).view(np.int32), 0x7F800000, 400009, dtype=np.int32).view(np.float32)
    hi, lo = exact_pair(reference, x.astype(np.float64))
    assert ulp_difference(run_kernel(body, x), hi + lo).max() <= bound


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_accuracy(name):
    body, _, reference, _, bound = FUNCTIONS[name]
    x = float64_points(name)
    result = run_kernel(body, x)
    error = ulp_difference(result, exact_pair(reference, x))
    worst = np.argmax(error)
    assert error[worst] <= bound, (x[worst], result[worst], error[worst])
    ordinary = (np.abs(x) > 1e-280) & (np.abs(x) < 1e280)  # where fma has a NumPy form
    assert same_bits(result[ordinary], compute_numpy(body, x[ordinary])).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2_accuracy(dtype):
    rng = np.random.default_rng(3)
    limit = 85 if dtype == np.float32 else 700
    y, x = (
        np.concatenate([rng.uniform(-1, 1, 4000), np.exp(rng.uniform(-3, 3, 2000)), np.exp(rng.uniform(-limit, limit, 2000))])
        for _ in range(2)
    )
    edges = np.array([1.0, 0.41421356, 0.4142136, 1e-30, 1e30, np.finfo(dtype).max, np.finfo(dtype).tiny])
    y, x = (np.concatenate(pair).astype(dtype) for pair in ((y, np.repeat(edges, 7)), (x, np.tile(edges, 7))))
    result = run_kernel(trig.atan2, y, x)
    hi, lo = exact_pair(mpmath.atan2, y.astype(np.float64), x.astype(np.float64))
    error = ulp_difference(result, (hi, lo) if dtype == np.float64 else hi)
    worst = np.argmax(error)
    assert error[worst] <= 1.0, (y[worst], x[worst], result[worst], error[worst])
    assert same_bits(result[:6000], compute_numpy(trig.atan2, y[:6000], x[:6000])).all()


SPECIAL = {  # pairs of argument and result
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, 1.0)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)],
    "asin": [
        (0.0, 0.0), (-0.0, -0.0), (1.0, PI / 2), (-1.0, -PI / 2), (1.0001, NAN), (-2.0, NAN),
        (INF, NAN), (-INF, NAN), (NAN, NAN), (-TINY, -TINY),
    ],
    "acos": [
        (1.0, 0.0), (-1.0, PI), (0.0, PI / 2), (-0.0, PI / 2), (1.0001, NAN), (-2.0, NAN),
        (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, PI / 2),
    ],
    "atan": [
        (0.0, 0.0), (-0.0, -0.0), (INF, PI / 2), (-INF, -PI / 2), (NAN, NAN),
        (1.0, PI / 4), (-TINY, -TINY), (3e38, PI / 2),
    ],
    "erf": [
        (0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN),
        (6.0, 1.0), (-7.0, -1.0), (1e30, 1.0), (-TINY, -TINY),
    ],
    "erfc": [
        (0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (30.0, 0.0),
        (1e30, 0.0), (-7.0, 2.0), (-1e30, 2.0), (TINY, 1.0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    table = [pair for pair in SPECIAL[name] if dtype == np.float64 or abs(pair[0]) != TINY]
    x, expected = (np.array(column, dtype) for column in zip(*table, strict=True))
    body = FUNCTIONS[name][0]
    for result in (run_kernel(body, x), compute_numpy(body, x)):
        wrong = [(row, r) for row, r, ok in zip(table, result, same_bits(result, expected), strict=True) if not ok]
        assert not wrong


@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan"])
def test_subnormals_are_kept(name):
    for dtype in (np.float32, np.float64):
        x = np.array([1, 2, 3, 1000], f"i{np.dtype(dtype).itemsize}").view(dtype)
        assert same_bits(run_kernel(FUNCTIONS[name][0], x), x).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2_special_values(dtype):
    table = [
        (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (0.0, -0.0, PI), (-0.0, -0.0, -PI), (0.0, 1.0, 0.0), (-0.0, 1.0, -0.0),
        (0.0, -1.0, PI), (-0.0, -1.0, -PI), (1.0, 0.0, PI / 2), (1.0, -0.0, PI / 2), (-1.0, 0.0, -PI / 2), (-1.0, -0.0, -PI / 2),
        (INF, INF, PI / 4), (-INF, INF, -PI / 4), (INF, -INF, 3 * PI / 4), (-INF, -INF, -3 * PI / 4), (INF, 1.0, PI / 2),
        (-INF, 1.0, -PI / 2), (INF, -0.0, PI / 2), (1.0, INF, 0.0), (-1.0, INF, -0.0), (1.0, -INF, PI), (-1.0, -INF, -PI),
        (0.0, INF, 0.0), (-0.0, INF, -0.0), (0.0, -INF, PI), (-0.0, -INF, -PI), (NAN, 1.0, NAN), (1.0, NAN, NAN), (NAN, NAN, NAN),
        (INF, NAN, NAN), (NAN, INF, NAN), (NAN, 0.0, NAN), (0.0, NAN, NAN), (NAN, -INF, NAN), (1.0, 1.0, PI / 4),
        (1.0, -1.0, 3 * PI / 4), (-1.0, 1.0, -PI / 4),
    ]  # fmt: skip
    y, x, expected = (np.array(column, dtype) for column in zip(*table, strict=True))
    for result in (run_kernel(trig.atan2, y, x), compute_numpy(trig.atan2, y, x)):
        wrong = [(row, r) for row, r, ok in zip(table, result, same_bits(result, expected), strict=True) if not ok]
        assert not wrong


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erfc_reaches_subnormals(dtype):
    low, high = (9.0, 10.1) if dtype == np.float32 else (26.0, 27.3)
    x = np.linspace(low, high, 500).astype(dtype)
    result = run_kernel(ef.erfc, x)
    spacing = mpmath.mpf(float(np.finfo(dtype).smallest_subnormal))
    subnormal = 0
    for a, r in zip(x.tolist(), result.tolist(), strict=True):
        exact = mpmath.erfc(mpmath.mpf(a))
        step = max(spacing, mpmath.mpf(float(np.spacing(dtype(r)))))
        assert abs(mpmath.mpf(r) - exact) <= 1.2 * step
        subnormal += 0 < r < np.finfo(dtype).tiny
    assert subnormal > 50


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes_do_not_influence_each_other(dtype):
    rng = np.random.default_rng(5)
    small = rng.uniform(-1e4, 1e4, 1024).astype(dtype)
    mixed = small.copy()
    mixed[::5] = rng.uniform(1e8, 1e30, mixed[::5].size)
    mixed[3::7] = INF
    kept = mixed == small
    for body in (trig.sin, trig.cos, trig.tan):
        alone, together = run_kernel(body, small), run_kernel(body, mixed)
        assert same_bits(alone[kept], together[kept]).all()
        assert same_bits(together, compute_numpy(body, mixed)).all()
        one_by_one = np.concatenate([run_kernel(body, mixed[i : i + 1]) for i in range(64)])
        assert same_bits(one_by_one, together[:64]).all()


def _halve_large(x):
    """A body with nested conditional blocks."""

    def compute():
        half = x * 0.5
        return v.cond_block(half > 8.0, lambda: (v.sqrt(half), half), (half, -half))

    a, b = v.cond_block(x > 4.0, compute, (x, v.constant(x, 1.0)))
    return a + 3.0 * b


def test_cond_block():
    x = np.concatenate([np.linspace(-3, 3, 64), np.linspace(0, 40, 256), [NAN, INF]]).astype(np.float32)
    result = run_kernel(_halve_large, x)
    with np.errstate(all="ignore"):
        half = x * np.float32(0.5)
        a = np.where(x > 4, np.where(half > 8, np.sqrt(half), half), x)
        b = np.where(x > 4, np.where(half > 8, half, -half), np.float32(1))
        expected = a + np.float32(3) * b
    assert same_bits(result, expected).all()
    assert same_bits(result, compute_numpy(_halve_large, x)).all()
