"""fxgrad.kernels.math: special values, accuracy, and that the emitted form computes the bits of the NumPy form."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from functools import cache

import llvmlite.binding as llvm
import mpmath as mp
import numpy as np
import pytest
from kernel_harness import compute_numpy, run_kernel, same_bits

from fxgrad.kernels import math as m
from fxgrad.kernels import vector as v
from fxgrad.testing.ulp import ulp_difference

inf, nan = np.inf, np.nan
DTYPES = [np.float32, np.float64]

# Largest error allowed, in ulp, float32 and float64: the promise is 1, or 2 for cosh and sinh; these hold what is achieved.
LIMITS = {
    "exp": (0.92, 0.92),
    "expm1": (0.88, 0.90),
    "log": (0.88, 0.86),
    "log1p": (0.91, 0.91),
    "tanh": (0.79, 0.99),
    "sinh": (1.00, 1.30),
    "cosh": (1.40, 1.40),
    "logistic": (0.92, 0.92),
    "cbrt": (0.57, 0.51),
    "rsqrt": (0.51, 0.51),
    "pow": (0.77, 0.72),
}

WIDE = {  # in float64, accurate enough to measure float32
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}

EXACT = {
    "exp": mp.exp,
    "expm1": mp.expm1,
    "log": mp.log,
    "log1p": mp.log1p,
    "tanh": mp.tanh,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
}


@cache
def all_float32() -> np.ndarray:
    """2^20 bit patterns spread evenly over all, plus the ones most programs use."""
    spread = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = np.random.default_rng(0).normal(scale=3, size=2**17).astype(np.float32)
    return np.concatenate([spread, usual])


@cache
def float64_points() -> np.ndarray:
    rng = np.random.default_rng(1)
    anywhere = rng.integers(0, 2**64, 500, dtype=np.uint64).view(np.float64)
    small = np.exp(rng.uniform(-40, 1, 500)) * rng.choice([-1, 1], 500)
    x = np.concatenate([anywhere, small, rng.normal(scale=2, size=1000), rng.uniform(-746, 712, 500)])
    return x[np.isfinite(x)]


def two_words(exact: list) -> tuple[np.ndarray, np.ndarray]:
    """mpmath numbers as pairs of float64, overflow as infinity."""
    hi = np.array([float(e) if abs(e) < mp.mpf(2) ** 1024 else float(mp.sign(e)) * inf for e in exact])
    lo = [float(e - mp.mpf(float(h))) if np.isfinite(h) else 0.0 for e, h in zip(exact, hi, strict=True)]
    return hi, np.array(lo)


def subnormal(value: np.ndarray) -> np.ndarray:
    """Where the low word of a float64 pair cannot hold the exact value, so that an error is only known to half an ulp."""
    return np.abs(value) < 2.0**-1020


@pytest.mark.parametrize("name", WIDE)
def test_float32_accuracy(name):
    x = all_float32()
    with np.errstate(all="ignore"):
        exact = WIDE[name](x.astype(np.float64))
    assert ulp_difference(run_kernel(getattr(m, name), x), exact).max() <= LIMITS[name][0]


@pytest.mark.parametrize("name", EXACT)
def test_float64_accuracy(name):
    x = float64_points()
    x = x[{"log": x > 0, "rsqrt": x > 0, "log1p": x > -1}.get(name, np.abs(x) < inf)]
    if name not in ("log", "log1p", "cbrt", "rsqrt"):
        x = x[np.abs(x) < 800]
    with mp.workprec(130):
        # 1 + x and differences of exponentials need the digits that mpmath does not add by itself.
        exact = two_words([EXACT[name](mp.mpf(float(t))) for t in x])
    error = ulp_difference(run_kernel(getattr(m, name), x), exact)
    assert error[~subnormal(exact[0])].max() <= LIMITS[name][1]
    assert error.max() <= max(1.0, LIMITS[name][1])


def pow_points(dtype: type, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers over the whole range of results: bases near 1 with large exponents, any base, and ordinary pairs."""
    rng = np.random.default_rng(2)
    reach = 87 if dtype == np.float32 else 708
    log_x = np.concatenate([rng.uniform(-reach, reach, n), rng.normal(scale=0.01, size=n), rng.normal(size=n)])
    x = np.exp(log_x).astype(dtype)
    y = rng.uniform(-reach, reach, 3 * n) / np.log(x.astype(np.float64))
    y[::2] = rng.normal(scale=3, size=y[::2].size)
    return x, y.astype(dtype)


def test_pow_accuracy():
    x, y = pow_points(np.float32, 100_000)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulp_difference(run_kernel(m.pow, x, y), exact).max() <= LIMITS["pow"][0]
    x, y = pow_points(np.float64, 1000)
    with mp.workprec(130):
        exact = two_words([mp.mpf(float(a)) ** mp.mpf(float(b)) for a, b in zip(x, y, strict=True)])
    error = ulp_difference(run_kernel(m.pow, x, y), exact)
    assert error[~subnormal(exact[0])].max() <= LIMITS["pow"][1] and error.max() <= 1.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LIMITS)
def test_numpy_form_computes_the_same_bits(name, dtype):
    if name == "pow":
        inputs = pow_points(dtype, 1000)
    else:
        x = all_float32()[::31] if dtype == np.float32 else float64_points()
        inputs = (x[(np.abs(x) < 1e250) & (np.abs(x) > 1e-250)] if dtype == np.float64 else x,)
    body = getattr(m, name)
    assert same_bits(run_kernel(body, *inputs), compute_numpy(body, *inputs)).all()


SPECIAL = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (1e30, inf), (-1e30, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -1.0), (1e30, inf), (-1e30, -1.0)],
    "log": [(0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf), (-1.0, nan), (-inf, nan), (-1e-40, nan)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -inf), (inf, inf), (-1.5, nan), (-inf, nan)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (1e30, 1.0), (-1e30, -1.0)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (1e30, inf), (-1e30, -inf)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf), (1e30, inf), (-1e30, inf)],
    "logistic": [(0.0, 0.5), (-0.0, 0.5), (inf, 1.0), (-inf, 0.0), (1e30, 1.0), (-1e30, 0.0)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-inf, -inf), (27.0, 3.0), (-8.0, -2.0)],
    "rsqrt": [(0.0, inf), (-0.0, -inf), (inf, 0.0), (-1.0, nan), (-inf, nan), (0.25, 2.0)],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, dtype):
    x, expected = np.array([*SPECIAL[name], (nan, nan)]).astype(dtype).T.copy()
    for result in (run_kernel(getattr(m, name), x), compute_numpy(getattr(m, name), x)):
        assert same_bits(result, expected).all(), [*zip(x, result, expected, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_cube_roots_of_cubes_are_exact(dtype):
    n = np.concatenate([np.arange(-255, 256), 2.0 ** np.arange(-49, 40)]).astype(dtype)
    assert same_bits(run_kernel(m.cbrt, n**3), n).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "sinh"])
def test_smallest_numbers_are_fixed_points(name, dtype):
    x = np.array([1, 2, 3, 1001, -1, -3]).astype(dtype) * np.finfo(dtype).smallest_subnormal
    assert same_bits(run_kernel(getattr(m, name), x), x).all()


def pow_special() -> list[tuple[float, float, float]]:
    """Every special case of C99's annex F, with whole (odd, even, huge), fractional and infinite exponents."""
    cases = [(x, y, 1.0) for x in (0.0, -0.0, 1.0, -1.0, -2.5, inf, -inf, nan) for y in (0.0, -0.0)]
    cases += [(1.0, y, 1.0) for y in (nan, inf, -inf, 0.5, -1e30)]
    cases += [(-1.0, inf, 1.0), (-1.0, -inf, 1.0), (-1.0, 3.0, -1.0), (-1.0, 2.0, 1.0), (-1.0, 1e30, 1.0)]
    cases += [(-1.0, 0.5, nan), (-2.0, 1.5, nan), (-1e-40, -0.5, nan), (-1.0, nan, nan), (2.0, nan, nan), (nan, 1.0, nan)]
    cases += [(nan, inf, nan), (0.0, nan, nan), (inf, nan, nan)]
    for y in (1.0, 3.0, 8388607.0):
        cases += [(0.0, -y, inf), (-0.0, -y, -inf), (0.0, y, 0.0), (-0.0, y, -0.0)]
        cases += [(-inf, -y, -0.0), (-inf, y, -inf), (inf, -y, 0.0), (inf, y, inf)]
    for y in (2.0, 0.5, 1.5, 1e30, inf):
        cases += [(0.0, -y, inf), (-0.0, -y, inf), (0.0, y, 0.0), (-0.0, y, 0.0)]
        cases += [(-inf, -y, 0.0), (-inf, y, inf), (inf, -y, 0.0), (inf, y, inf)]
    for x in (0.5, -0.5, 1e-40):
        cases += [(x, inf, 0.0), (x, -inf, inf)]
    for x in (2.0, -2.0, 1.5):
        cases += [(x, inf, inf), (x, -inf, 0.0)]
    cases += [(-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -1.0, -0.5), (2.0, 0.5, 2**0.5), (10.0, 1e30, inf), (10.0, -1e30, 0.0)]
    return cases


@pytest.mark.parametrize("dtype", DTYPES)
def test_pow_special_values(dtype):
    x, y, expected = np.array(pow_special()).astype(dtype).T.copy()
    for result in (run_kernel(m.pow, x, y), compute_numpy(m.pow, x, y)):
        wrong = ~same_bits(result, expected)
        assert not wrong.any(), [*zip(x[wrong], y[wrong], result[wrong], expected[wrong], strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_pow_of_a_lane_does_not_depend_on_the_others(dtype):
    # The special cases are computed in a block of their own, for whole vectors.
    x, y = (a.astype(dtype) for a in pow_points(dtype, 1000))
    special = np.arange(x.size) % 5 == 0
    result = run_kernel(m.pow, np.where(special, -x, x), y)
    assert same_bits(result, run_kernel(m.pow, x, y))[~special].all()
    assert same_bits(
        run_kernel(m.pow, -x, np.rint(y)), np.copysign(run_kernel(m.pow, x, np.rint(y)), 1 - 2 * (np.rint(y) % 2))
    ).all()


TABLES = [(np.int32, 16), (np.int32, 32), (np.int32, 64), (np.int64, 8), (np.int64, 16), (np.int64, 32), (np.int32, 4)]


@pytest.mark.parametrize("index_from", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("index, size", TABLES)
def test_lookup_takes_the_index_modulo_the_size(index, size, index_from):
    table = tuple(np.random.default_rng(size).normal(size=size).tolist())
    i = np.arange(-128, 128).astype(index_from)

    def body(i):
        return v.lookup(table, v.convert(i, index))

    out = np.dtype(f"f{np.dtype(index).itemsize}")
    expected = np.array(table, out)[np.arange(-128, 128) % size]
    assert same_bits(run_kernel(body, i, out=out), expected).all() and same_bits(compute_numpy(body, i), expected).all()


# CPUs by the features their code may use: with gathers, and without even an fma.
CPUS = {
    "haswell": "+64bit,+cx8,+cmov,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt,+movbe",
    "x86-64": "+64bit,+cx8,+cmov,+sse,+sse2",
}


def digest_of_table_kernels() -> str:
    """Hash of results of every body that looks something up, special cases among them."""
    rng, digest = np.random.default_rng(0), hashlib.sha256()
    for dtype in DTYPES:
        x = np.concatenate([rng.normal(scale=4, size=4000), [0, -0.0, 1, -1, inf, -inf, 9, 30]]).astype(dtype)
        y = rng.permutation(x)
        for result in (run_kernel(m.tanh, x), run_kernel(m.cbrt, x), run_kernel(m.pow, x, y), run_kernel(m.pow, np.abs(x), y)):
            digest.update(np.where(np.isnan(result), dtype(nan), result).tobytes())
    return digest.hexdigest()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 CPUs")
def test_tables_give_the_same_bits_on_other_cpus():
    """Only compiled for the other CPU: it runs here, if this one has those features."""
    have, here = llvm.get_host_cpu_features(), os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-c", "import test_math_exp; print(test_math_exp.digest_of_table_kernels())"]
    running = {}
    for name, features in CPUS.items():
        if all(have.get(feature[1:]) for feature in features.split(",")):
            path = os.pathsep.join([here, os.path.dirname(here)])
            environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
            running[name] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running
    for name, process in running.items():
        output, errors = process.communicate()
        assert output.strip() == digest_of_table_kernels(), (name, errors)


def test_ulp_difference_counts_spacings():
    result = np.float32([1, inf, nan, 3e38, 2, inf])
    exact = np.array([1 + 2.0**-23, 3.5e38, 1, 3e38, nan, inf])
    found = ulp_difference(result, exact)
    assert found[0] == 1 and found[1] == 0 and found[2] == inf and found[3] < 0.5 and found[4] == inf and found[5] == 0
    largest = np.finfo(np.float64).max
    exact = np.array([1.0, 0.0, largest, largest]), np.array([2.0**-53, 0.0, 0.0, 0.0])
    found = ulp_difference(np.array([1.0, 5e-324, largest, inf]), exact)
    assert found.tolist() == [0.5, 1.0, 0.0, 1.0]
