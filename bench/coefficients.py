"""Derives the polynomial coefficients and tables of fxgrad.kernels (math, trig): `python bench/coefficients.py [name ...]`.

Each entry of FITS is one polynomial in use, each of TABLES one table; the tuple printed for it is what the kernel module holds.
To add one, add an entry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from scipy.optimize import linprog

mp.mp.dps = 50


@dataclass(frozen=True)
class Fit:
    """Polynomial p of `degree` that minimises max |weight(x) * (p(x) - function(x))| on `interval`, in `dtype` coefficients."""

    function: Callable
    interval: tuple
    degree: int
    weight: Callable
    dtype: type = np.float64
    refit: bool = False  # round the coefficients one by one and fit the later ones again around each


def remez(values: list, weights: list, grid: list, degree: int) -> tuple[list, mp.mpf]:
    """Coefficients of the polynomial with the least weighted maximum error on the grid (exchange algorithm), and that error."""
    n = degree + 2
    last = len(grid) - 1
    chosen = [round(last * (1 - mp.cos(mp.pi * i / (n - 1))) / 2) for i in range(n)]
    coefficients: list = []
    for _ in range(30):
        matrix = mp.matrix(n, n)
        for row, g in enumerate(chosen):
            for power in range(degree + 1):
                matrix[row, power] = grid[g] ** power
            matrix[row, n - 1] = (-1) ** row / weights[g]
        solution = mp.lu_solve(matrix, mp.matrix([values[g] for g in chosen]))
        coefficients = list(solution[: n - 1])
        errors = [w * (mp.polyval(coefficients[::-1], x) - f) for x, f, w in zip(grid, values, weights, strict=True)]
        # The largest error of every run of equal signs; of those, n neighbours with the largest ends.
        extrema: list[int] = []
        for i, e in enumerate(errors):
            if extrema and (errors[extrema[-1]] > 0) == (e > 0):
                extrema[-1] = max(extrema[-1], i, key=lambda j: abs(errors[j]))
            else:
                extrema.append(i)
        while len(extrema) > n:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        if len(extrema) < n or extrema == chosen:
            break
        chosen = extrema
    return coefficients, max(abs(e) for e in errors)


def correct(errors: list, weights: list, grid: list, low: int, degree: int) -> list:
    """Changes of the coefficients from `low` on that minimise the largest of the weighted errors (a linear program).

    Small changes to a nearly right polynomial: float64 is enough for them once everything is scaled.
    """
    unit, reach = max(w * abs(e) for w, e in zip(weights, errors, strict=True)), max(abs(x) for x in grid)
    basis = np.array([[float(w * (x / reach) ** p) for p in range(low, degree + 1)] for w, x in zip(weights, grid, strict=True)])
    size = np.abs(basis).max(axis=0)
    target = np.array([float(w * e / unit) for w, e in zip(weights, errors, strict=True)])
    bound = np.ones((len(grid), 1))
    matrix = np.vstack([np.hstack([basis / size, -bound]), np.hstack([-basis / size, -bound])])
    cost = np.append(np.zeros(basis.shape[1]), 1.0)
    found = linprog(cost, A_ub=matrix, b_ub=np.concatenate([-target, target]), bounds=(None, None), method="highs").x
    changes = zip(found[:-1], size, range(low, degree + 1), strict=True)  # the last unknown is the bound
    return [mp.mpf(float(x)) * unit / mp.mpf(float(s)) / reach**p for x, s, p in changes]


def solve(fit: Fit, points: int = 500) -> tuple[list[float], float]:
    """Coefficients rounded to the dtype of the fit, and the maximum weighted error they leave (as a power of two)."""
    a, b = (mp.mpf(t) for t in fit.interval)
    grid = [a + (b - a) * (1 - mp.cos(mp.pi * (i + mp.mpf(1) / 2) / points)) / 2 for i in range(points)]
    values, weights = [mp.mpf(fit.function(x)) for x in grid], [abs(mp.mpf(fit.weight(x))) for x in grid]
    coefficients, _ = remez(values, weights, grid, fit.degree)

    def errors() -> list:
        return [mp.polyval(coefficients[::-1], x) - f for x, f in zip(grid, values, strict=True)]

    for i in range(fit.degree + 1):
        coefficients[i] = mp.mpf(float(fit.dtype(mp.nstr(coefficients[i], 25))))
        if fit.refit and i < fit.degree:
            changes = correct(errors(), weights, grid, i + 1, fit.degree)
            coefficients[i + 1 :] = [c + change for c, change in zip(coefficients[i + 1 :], changes, strict=True)]
    largest = max(w * abs(e) for w, e in zip(weights, errors(), strict=True))
    return [float(c) for c in coefficients], float(mp.log(largest, 2))


_HALF_LN2 = mp.log(2) / 2 * (1 + mp.mpf(2) ** -18)
_LOG = (mp.sqrt(0.5) - 1, mp.sqrt(2) - 1)
_LOG_S = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)  # f / (2 + f) at both ends


def _exp_tail(r):  # exp(r) = 1 + r + r^2 * tail
    return (mp.expm1(r) - r) / r**2


def _log_tail(f):  # log(1 + f) = f + f^2 * (-1/2 + f * tail)
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def _atanh_tail(z):  # log((1 + s) / (1 - s)) = 2 s + s * z * tail, z = s^2
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / (s * z)


def _near_one(function: Callable, limit: Callable) -> Callable:
    """`function`, with its power series `limit` where it would lose all digits."""
    return lambda x: limit(x) if abs(x) < mp.mpf(2) ** -30 else function(x)


def _pow_log_fit(degree: int, dtype: type) -> Fit:  # log(1 + r) = r - r^2/2 + r^3 p(r), |r| the largest of POW_INVERSES
    tail = _near_one(_log_tail, lambda r: mp.mpf(1) / 3 - r / 4 + r * r / 5)
    return Fit(tail, (-POW_REACH, POW_REACH), degree, lambda r: r**2, dtype, True)


def _pow_exp2_fit(degree: int, dtype: type) -> Fit:  # 2^r = 1 + r p(r), |r| <= 1/32
    half = mp.mpf(1) / 32 + mp.mpf(2) ** -18
    tail = _near_one(lambda r: (mp.mpf(2) ** r - 1) / r, lambda r: mp.log(2) + r * mp.log(2) ** 2 / 2)
    return Fit(tail, (-half, half), degree, lambda r: r, dtype, True)


def _tanh_tail(z):  # tanh(x) = x + x * z * tail, z = x^2
    x = mp.sqrt(z)
    return (mp.tanh(x) - x) / (x * z)


def _cosh_tail(z):  # cosh(x) = 1 + z * tail
    return (mp.cosh(mp.sqrt(z)) - 1) / z


def _sinh_tail(z):  # sinh(x) = x + x * z * tail
    x = mp.sqrt(z)
    return (mp.sinh(x) - x) / (x * z)


def _exp_fit(degree: int, dtype: type) -> Fit:
    return Fit(_exp_tail, (-_HALF_LN2, _HALF_LN2), degree, lambda r: r**2 / mp.exp(r), dtype, True)


def _exp_doubled_fit(degree: int, dtype: type) -> Fit:
    half = _HALF_LN2 / 2
    return Fit(lambda r: (mp.expm1(2 * r) - 2 * r) / r**2, (-half, half), degree, lambda r: r**2 / mp.exp(2 * r), dtype, True)


def _expm1_fit(degree: int, dtype: type) -> Fit:
    return Fit(_exp_tail, (-_HALF_LN2, _HALF_LN2), degree, lambda r: r**2 / mp.expm1(r), dtype, True)


def _log_fit(degree: int, dtype: type) -> Fit:
    return Fit(_log_tail, _LOG, degree, lambda f: f**3 / mp.log1p(f), dtype, True)


def _tanh_fit(limit: float, degree: int, dtype: type) -> Fit:
    return Fit(_tanh_tail, (mp.mpf(2) ** -60, limit**2), degree, lambda z: z**1.5 / mp.tanh(mp.sqrt(z)), dtype, True)


def _cosh_fit(degree: int, dtype: type) -> Fit:
    return Fit(_cosh_tail, (mp.mpf(2) ** -60, _HALF_LN2**2), degree, lambda z: z, dtype, True)


def _sinh_fit(degree: int, dtype: type) -> Fit:
    return Fit(_sinh_tail, (mp.mpf(2) ** -60, _HALF_LN2**2), degree, lambda z: z, dtype, True)


def _sin_tail(z):  # sin(x) = x + x * z * tail
    x = mp.sqrt(z)
    return (mp.sin(x) / x - 1) / z


def _cos_tail(z):  # cos(x) = 1 - z / 2 + z^2 * tail
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _atan_tail(z):  # atan(x) = x + x * z * tail
    x = mp.sqrt(z)
    return (mp.atan(x) / x - 1) / z


def _asin_tail(z):  # asin(x) = x + x * z * tail
    x = mp.sqrt(z)
    return (mp.asin(x) / x - 1) / z


# The next three are expanded about a point where their rounding errors matter most, given as `middle`.


def _erf_fit(limit: float, middle: float, degree: int, dtype: type) -> Fit:  # erf(x) = x + x * tail, t = x^2 - middle
    def tail(t):
        x = mp.sqrt(t + middle)
        return mp.erf(x) / x - 1

    return Fit(tail, (mp.mpf(2) ** -60 - middle, mp.mpf(limit) ** 2 - middle), degree, lambda t: 1 / (1 + tail(t)), dtype)


def _erf_root_fit(high: float, middle: float, degree: int, dtype: type) -> Fit:
    def root(t):  # erfc(x)^(1/4) = value at t=0 (two constants) + t * tail, t = x - middle
        return mp.erfc(t + middle) ** (mp.mpf(1) / 4)

    first = root(mp.mpf(0))
    ends = (mp.mpf(1) - middle, mp.mpf(high) - middle)
    return Fit(lambda t: (root(t) - first) / t, ends, degree, lambda t: 4 * root(t) ** 3 * t, dtype)


def _erfc_fit(low: float, high: float, middle: float, degree: int, dtype: type) -> Fit:
    shift = 2.5

    def scaled(t):  # exp(x^2) erfc(x) (x + shift) = value at t=0 (two constants) + t * tail, t = 1 / (x + shift) - middle
        r = mp.mpf(t) + middle
        x = 1 / r - shift
        return mp.exp(x * x) * mp.erfc(x) / r

    first = scaled(0)
    ends = (1 / (mp.mpf(high) + shift) - middle, 1 / (mp.mpf(low) + shift) - middle)
    return Fit(lambda t: (scaled(t) - first) / t, ends, degree, lambda t: t / scaled(t), dtype)


# --- tables ---------------------------------------------------------------------------------------------------------------


def _pow_inverse(j: int) -> tuple[float, float]:
    """For m within 1/64 of 1 + j/32 a multiple of 1/64 near 1/m, and how far its product with m gets from 1.

    Beside 1 and 2 it is 1 and 1/2, so that nothing cancels in log2(m) for m near 1 and log2(m) - 1 for m near 2.
    """
    ends = (1 + (2 * j - 1) / 64, 1 + (2 * j + 1) / 64)
    far = {q: max(abs(m * q / 64 - 1) for m in ends) for q in range(32, 65)}
    far[64] = far[64] if j else 1 / 64
    q = 32 if j == 31 else min(far, key=far.__getitem__)
    return q / 64, far[q]


POW_INVERSES = [_pow_inverse(j) for j in range(32)]
POW_REACH = mp.mpf(max(far for _, far in POW_INVERSES))


def pow_log2_table() -> list[tuple]:
    """(q, -log2(q) to 42 bits after the point, the rest) for q of POW_INVERSES."""
    rows = []
    for q, _ in POW_INVERSES:
        exact = -mp.log(mp.mpf(q), 2)
        high = mp.nint(exact * 2**42) / 2**42
        rows.append((q, float(high), float(mp.nstr(exact - high, 25))))
    return rows


def pow_exp2_table() -> list[tuple]:
    """2^(j/16) in two words."""
    return [tuple(float(w) for w in two_words(mp.mpf(2) ** (mp.mpf(j) / 16), np.float64)) for j in range(16)]


def _tanh_row(j: int) -> tuple:
    """(c, s, p0, ... p4) for tanh(a) = s + (a - c) p(a - c), a + 1 in [1 + j/8, 1 + (j+1)/8) 2^k for j + 8 k.

    c is a float32 for which tanh(c) is nearly the float32 s, and tanh(c) is below the whole interval, so that s = min(s, a). In
    the first interval c = 0 and s stands for a. From 9 on the result is 1.
    """
    low, high = (mp.mpf(2) ** (i // 8) * (1 + mp.mpf(i % 8) / 8) - 1 for i in (j, j + 1))
    if low >= 9:
        return (9.0, 1.0, *[0.0] * 5)
    if j == 0:
        first = Fit(lambda d: mp.tanh(d) / d - 1, (mp.mpf(2) ** -30, high), 4, lambda d: d / mp.tanh(d), np.float32, True)
        return (0.0, np.inf, *solve(first, 200)[0])
    start, stop = (1, 3) if mp.tanh((low + high) / 2) < low * (1 - mp.mpf(2) ** -12) else (0, 1)
    candidates = np.linspace(float(low + (high - low) * start / 4), float(low + (high - low) * stop / 4), 4001).astype(np.float32)
    values = np.tanh(candidates.astype(np.float64))
    best = np.argmin(np.where(values < float(low), np.abs(values.astype(np.float32) - values) / values, 1.0))
    c, s = mp.mpf(float(candidates[best])), mp.tanh(mp.mpf(float(candidates[best])))
    tail = _near_one(lambda d: (mp.tanh(c + d) - s) / d, lambda d: (1 - s * s) * (1 - s * d))
    ends = (low - c - mp.mpf(2) ** -22, high - c)
    fit = Fit(tail, ends, 4, lambda d: d / mp.tanh(c + d), np.float32, True)
    return (float(c), float(np.float32(values[best])), *solve(fit, 200)[0])


def _cbrt_row(j: int) -> tuple:
    """(q, s0, s1, s2), float32: q near 1/(1 + j/8), for which the cube roots of 1/(2 q), 1/q and 2/q are nearly numbers s."""
    candidates = np.unique((1 / (1 + j / 8) * (1 + np.linspace(-0.004, 0.004, 2**18))).astype(np.float32))
    roots = np.cbrt(np.float64([[0.5], [1.0], [2.0]]) / candidates)
    best = np.argmin(np.max(np.abs(roots.astype(np.float32) / roots - 1), axis=0))
    return (float(candidates[best]), *roots[:, best].astype(np.float32).tolist())


def _cbrt_root_fit(reach: float, degree: int, dtype: type) -> Fit:  # cbrt(1 + r) = 1 + r p(r)
    tail = _near_one(lambda r: (mp.cbrt(1 + r) - 1) / r, lambda r: mp.mpf(1) / 3 - r / 9)
    return Fit(tail, (-mp.mpf(reach), mp.mpf(reach)), degree, lambda r: r, dtype, True)


TABLES = {
    "cbrt_table_f32": lambda: [_cbrt_row(j) for j in range(8)],
    "pow_log2_table_f64": pow_log2_table,
    "pow_exp2_table_f64": pow_exp2_table,
    "tanh_table_f32": lambda: [_tanh_row(j) for j in range(27)],
}

_QUADRANT = (mp.mpf(2) ** -60, mp.mpf("0.8") ** 2)  # a little beyond pi/4: the multiple of pi/2 is only nearly the nearest
_OCTANT = (mp.mpf(2) ** -60, (mp.tan(mp.pi / 8) + mp.mpf(2) ** -20) ** 2)


FITS = {
    "exp_f32": _exp_fit(4, np.float32),
    "exp_f64": _exp_fit(9, np.float64),
    "expm1_f32": _expm1_fit(5, np.float32),
    "expm1_f64": _expm1_fit(10, np.float64),
    "log_f32": _log_fit(7, np.float32),
    "log_f64": Fit(_atanh_tail, (mp.mpf(2) ** -60, _LOG_S**2), 6, lambda z: z, np.float64, True),
    "exp_doubled_f64": _exp_doubled_fit(9, np.float64),
    "tanh_f64": _tanh_fit(0.89, 13, np.float64),
    "cosh_f32": _cosh_fit(2, np.float32),
    "cosh_f64": _cosh_fit(4, np.float64),
    "sinh_f32": _sinh_fit(2, np.float32),
    "sinh_f64": _sinh_fit(4, np.float64),
    "pow_log_f32": _pow_log_fit(3, np.float32),
    "pow_log_f64": _pow_log_fit(7, np.float64),
    "pow_exp2_f32": _pow_exp2_fit(3, np.float32),
    "pow_exp2_f64": _pow_exp2_fit(6, np.float64),
    # cbrt, float64: the first guess of m^(-1/3) on [1, 2); Newton steps follow, so the coefficients need no care.
    "cbrt_f64": Fit(lambda m: mp.mpf(m) ** (mp.mpf(-1) / 3), (1, 2), 5, lambda m: m ** (mp.mpf(1) / 3), np.float64),
}


FITS |= {
    "cbrt_f32": _cbrt_root_fit(0.061, 3, np.float32),
    "sin_f32": Fit(_sin_tail, _QUADRANT, 2, lambda z: z / (1 + z * _sin_tail(z)), np.float32),
    "sin_f64": Fit(_sin_tail, _QUADRANT, 5, lambda z: z / (1 + z * _sin_tail(z)), np.float64),
    "cos_f32": Fit(_cos_tail, _QUADRANT, 2, lambda z: z**2, np.float32),
    "cos_f64": Fit(_cos_tail, _QUADRANT, 5, lambda z: z**2, np.float64),
    "atan_f32": Fit(_atan_tail, _OCTANT, 4, lambda z: z / (1 + z * _atan_tail(z)), np.float32),
    "atan_f64": Fit(_atan_tail, _OCTANT, 10, lambda z: z / (1 + z * _atan_tail(z)), np.float64),
    "asin_f32": Fit(_asin_tail, (mp.mpf(2) ** -60, 0.25), 4, lambda z: z / (1 + z * _asin_tail(z)), np.float32),
    "asin_f64": Fit(_asin_tail, (mp.mpf(2) ** -60, 0.25), 12, lambda z: z / (1 + z * _asin_tail(z)), np.float64),
    "erf_f32": _erf_fit(1.0, 0.5, 6, np.float32),
    "erf_f64": _erf_fit(1.0, 0.5, 11, np.float64),
    "erf_root_f32": _erf_root_fit(4.0, 1.25, 8, np.float32),
    "erf_root_f64": _erf_root_fit(6.0, 1.5, 19, np.float64),
    "erfc_near_f32": _erfc_fit(0.5, 2.25, 0.265625, 7, np.float32),
    "erfc_near_f64": _erfc_fit(0.5, 2.25, 0.265625, 16, np.float64),
    "erfc_far_f32": _erfc_fit(2.25, 10.5, 0.0625, 7, np.float32),
    "erfc_far_f64": _erfc_fit(2.25, 28.0, 0.0625, 16, np.float64),
    "erfc_exp_f32": _exp_fit(4, np.float32),
    "erfc_exp_f64": _exp_fit(9, np.float64),
}


# --- special functions ----------------------------------------------------------------------------------------------------

DIGAMMA_ROOT = mp.findroot(mp.digamma, 1.46)
_NORMAL_EDGE = mp.sqrt(-mp.log(mp.mpf("0.505")))  # the tail of erfcinv begins a little before 1/2


def erfcinv_of_root(s):
    """The y with erfc(y) = exp(-s^2), by Newton's method on the logarithm."""
    s = mp.mpf(s)
    y = s * mp.mpf("0.9")
    for _ in range(100):
        tail = mp.erfc(y)
        step = (mp.log(tail) + s * s) * tail * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < y * mp.eps * 1024:
            break
    return y


def _erfinv_fit(degree: int, dtype: type) -> Fit:  # erfinv(x) = x + x * tail, z = x^2, |x| <= 0.521
    def tail(z):
        return mp.erfinv(mp.sqrt(z)) / mp.sqrt(z) - 1

    return Fit(tail, (mp.mpf(2) ** -60, mp.mpf("0.2720")), degree, lambda z: 1 / (1 + tail(z)), dtype, True)


def _erfcinv_fit(high: float, degree: int, dtype: type) -> Fit:  # erfcinv(exp(-s^2)) = s * p(t), t = 1 / (s + 1) - 5/16
    middle = mp.mpf("0.3125")

    def ratio(t):
        s = 1 / (mp.mpf(t) + middle) - 1
        return erfcinv_of_root(s) / s

    ends = (1 / (mp.mpf(high) + 1) - middle, 1 / (_NORMAL_EDGE + 1) - middle)
    return Fit(ratio, ends, degree, lambda t: 1, dtype, True)


def _large_bessel(order: int, degree: int) -> Fit:  # exp(-x) I(x) sqrt(x), t = 1/x - 1/16
    def scaled(t):
        t = mp.mpf(t) + mp.mpf(0.0625)
        if t < mp.mpf(2) ** -12:  # Hankel's expansion
            m, term, total = 4 * order**2, mp.mpf(1), mp.mpf(1)
            for k in range(1, 12):
                term *= -(m - (2 * k - 1) ** 2) * t / (8 * k)
                total += term
            return total / mp.sqrt(2 * mp.pi)
        x = 1 / t
        return mp.besseli(order, x) * mp.exp(-x) * mp.sqrt(x)

    return Fit(scaled, (-mp.mpf(0.0625), mp.mpf(0.0670)), degree, lambda t: 1, np.float64)


_HALF_STEP = (-mp.mpf("0.5001"), mp.mpf("0.5001"))
FITS |= {
    "erfinv_f32": _erfinv_fit(6, np.float32),
    "erfinv_f64": _erfinv_fit(14, np.float64),
    "erfcinv_f32": _erfcinv_fit(10.3, 9, np.float32),
    "erfcinv_f64": _erfcinv_fit(27.4, 12, np.float64),
    # log gamma(2 + t) = t * p(t); gamma(2 + t) = 1 + t * p(t)
    "lgamma_f64": Fit(lambda t: mp.loggamma(2 + t) / t, _HALF_STEP, 21, lambda t: t / mp.loggamma(2 + t), np.float64, True),
    "gamma_f64": Fit(lambda t: (mp.gamma(2 + t) - 1) / t, _HALF_STEP, 20, lambda t: t / mp.gamma(2 + t), np.float64, True),
    # digamma(3/2 + t) = (3/2 + t - root) * p(t)
    "digamma_f64": Fit(
        lambda t: mp.digamma(1.5 + t) / (1.5 + t - DIGAMMA_ROOT),
        _HALF_STEP,
        22,
        lambda t: (1.5 + t - DIGAMMA_ROOT) / mp.digamma(1.5 + t),
        np.float64,
        True,
    ),
    # I0(x) = 1 + z p(z), I1(x) = x/2 (1 + z p(z)), z = x^2/4, x <= 7.75
    "i0_near_f64": Fit(
        lambda z: (mp.besseli(0, 2 * mp.sqrt(z)) - 1) / z,
        (mp.mpf(2) ** -60, 15.1),
        16,
        lambda z: z / mp.besseli(0, 2 * mp.sqrt(z)),
        np.float64,
    ),
    "i1_near_f64": Fit(
        lambda z: (mp.besseli(1, 2 * mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        (mp.mpf(2) ** -60, 15.1),
        16,
        lambda z: z * mp.sqrt(z) / mp.besseli(1, 2 * mp.sqrt(z)),
        np.float64,
    ),
    "i0_far_f64": _large_bessel(0, 23),
    "i1_far_f64": _large_bessel(1, 23),
}


CONSTANTS = {
    "ln2": mp.log(2),
    "log2e": 1 / mp.log(2),
    "digamma_root": DIGAMMA_ROOT,
}  # printed in two words


def two_words(value: mp.mpf, dtype: type) -> tuple[float, float]:
    """The value as an unevaluated sum hi + lo of two numbers of the dtype."""
    hi = dtype(mp.nstr(value, 30))
    return hi, dtype(mp.nstr(value - mp.mpf(float(hi)), 30))


def main(names: list[str]) -> None:
    for name in names or CONSTANTS:
        if name in CONSTANTS:
            for dtype in (np.float32, np.float64):
                print(f"{name}_{np.dtype(dtype).name} = (%s, %s)" % two_words(CONSTANTS[name], dtype), flush=True)
    for name in names or TABLES:
        if name in TABLES:
            scalar = np.float32 if name.endswith("f32") else np.float64
            rows = [f"    ({', '.join(str(scalar(x)) for x in row)})," for row in TABLES[name]()]
            print(f"{name} = (", *rows, ")", sep="\n", flush=True)
    for name in names or FITS:
        if name in CONSTANTS or name in TABLES:
            continue
        coefficients, error = solve(FITS[name])
        shown = ", ".join(str(FITS[name].dtype(c)) for c in coefficients)
        print(f"{name} = ({shown})  # error 2^{error:.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
