"""What bench.accuracy measures of the special functions: where to look, and mpmath's values.

Functions with zeros on the negative axis are measured on the positive one: next to a zero that is no float no digit is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import scipy.special as sp

from bench.coefficients import erfcinv_of_root
from fxgrad.scipy import special

__all__ = ["BINARY", "TERNARY", "UNARY"]

Ranges = Sequence[tuple[float, float]]


def _positive(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: f(abs(x))


def _erfcinv(q: Any) -> Any:
    if q > 1:
        return -_erfcinv(2 - q)
    if q <= 0:
        return mp.inf if q == 0 else mp.nan
    return erfcinv_of_root(mp.sqrt(-mp.log(q))) if q < 0.3 else mp.erfinv(1 - q)


def _erfinv(x: Any) -> Any:
    if abs(x) >= 1:
        return mp.sign(x) * mp.inf if abs(x) == 1 else mp.nan
    return mp.erfinv(x) if abs(x) < 0.7 else mp.sign(x) * _erfcinv(1 - abs(x))


def _ndtri(p: Any) -> Any:
    return -mp.sqrt(2) * _erfcinv(2 * p) if p <= 0.5 else mp.sqrt(2) * _erfcinv(2 - 2 * p)


def _erfcx(x: Any) -> Any:
    if x < 200:
        return mp.exp(x * x) * mp.erfc(x) if x > -40 else mp.inf
    return (1 - 1 / (2 * x * x) + 3 / (4 * x**4) - 15 / (8 * x**6) + 105 / (16 * x**8)) / (x * mp.sqrt(mp.pi))


def _ndtr(x: Any) -> Any:
    return mp.ncdf(x) if abs(x) < 1000 else mp.mpf(x > 0)


def _log_ndtr(x: Any) -> Any:
    if x > 6:
        return mp.log1p(-_ndtr(-x))
    if x > -1000:
        return mp.log(mp.ncdf(x))
    return -x * x / 2 - mp.log(-x) - mp.log(2 * mp.pi) / 2 + mp.log1p(-1 / (x * x) + 3 / x**4)


def _bessel(order: int, scaled: bool) -> Callable[..., Any]:
    def value(x: Any) -> Any:
        a = abs(x)
        if a < 1000:
            y = mp.besseli(order, a) * (mp.exp(-a) if scaled else 1)
        else:  # Hankel's expansion
            m, term, total = 4 * order**2, mp.mpf(1), mp.mpf(1)
            for k in range(1, 16):
                term *= -(m - (2 * k - 1) ** 2) / (8 * k * a)
                total += term
            y = total / mp.sqrt(2 * mp.pi * a) * (1 if scaled else mp.exp(min(a, 2000)))
        return y * mp.sign(x) if order else y

    return value


def _gamma(x: Any) -> Any:
    return mp.gamma(x) if 0 < x < 200 else mp.inf


def _digamma(x: Any) -> Any:
    return mp.digamma(x) if x else -mp.inf


def _trigamma(x: Any) -> Any:
    return mp.polygamma(1, x) if x > mp.mpf(10) ** -30 else 1 / x**2 if x else mp.inf


def _lgamma(x: Any) -> Any:
    return mp.loggamma(x) if x else mp.inf


def _exprel(x: Any) -> Any:
    return mp.expm1(x) / x if x else mp.mpf(1)


def _wide_exprel(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.where(np.abs(x) < 1e-9, 1 + x / 2, np.where(x == np.inf, x, np.expm1(x) / np.where(x == 0, 1.0, x)))


def _entr(x: Any) -> Any:
    return -x * mp.log(x) if x > 0 else mp.mpf(0) if x == 0 else -mp.inf


def _logit(x: Any) -> Any:
    return mp.log(x / (1 - x)) if 0 < x < 1 else -mp.inf if x == 0 else mp.inf if x == 1 else mp.nan


def _wide_logit(x: Any) -> Any:
    with np.errstate(all="ignore"):
        s = 2 * x - 1
        return np.where(np.abs(s) < 0.5, np.log1p(s) - np.log1p(-s), np.log(x) - np.log1p(-x))


def _betainc(a: Any, b: Any, x: Any) -> Any:
    return mp.betainc(a, b, 0, x, regularized=True)


def _wide_trigamma(x: Any) -> Any:
    return sp.polygamma(1, x)


# name, fxgrad's, one in float64 to judge float32 by, mpmath's, where float64 points are drawn from, critical arguments, how many
UNARY: list[tuple[str, Callable, Callable, Callable, Ranges, Sequence[float], int]] = [
    ("erfinv", special.erfinv, sp.erfinv, _erfinv, [(-1, 1), (0.99, 1)], [0.521, 0.999999], 20_000),
    ("erfcinv", special.erfcinv, sp.erfcinv, _erfcinv, [(0, 2), (0, 0.01)], [0.479, 1.521, 1e-10], 20_000),
    ("erfcx", special.erfcx, sp.erfcx, _erfcx, [(-26, 60), (-3, 3)], [0.5, 27.0, 10.0], 20_000),
    ("ndtr", special.ndtr, sp.ndtr, _ndtr, [(-38, 9), (-3, 3)], [0.7071], 20_000),
    ("ndtri", special.ndtri, sp.ndtri, _ndtri, [(0, 1), (0, 0.01)], [0.2395, 0.7605, 1e-10], 20_000),
    ("log_ndtr", special.log_ndtr, sp.log_ndtr, _log_ndtr, [(-40, 9), (-3, 3)], [5.0, 10.0], 20_000),
    ("logit", special.logit, _wide_logit, _logit, [(0, 1), (0.4, 0.6)], [0.3, 0.7, 0.5], 20_000),
    ("exprel", special.exprel, _wide_exprel, _exprel, [(-40, 709), (-1, 1)], [0.5], 20_000),
    ("entr", special.entr, sp.entr, _entr, [(0, 4), (0, 1)], [2.0], 20_000),
    (
        "gammaln",
        _positive(special.gammaln),
        _positive(sp.gammaln),
        _positive(_lgamma),
        [(0, 20), (0, 3)],
        [2.0, 8.0, 2.5],
        20_000,
    ),
    ("gamma", _positive(special.gamma), _positive(sp.gamma), _positive(_gamma), [(0, 172), (0, 12)], [10.0, 171.6, 34.9], 20_000),
    (
        "digamma",
        _positive(special.digamma),
        _positive(sp.digamma),
        _positive(_digamma),
        [(0, 20), (0, 3)],
        [1.4616, 10.0],
        20_000,
    ),
    (
        "trigamma",
        _positive(lambda x: special.polygamma(1, x)),
        _positive(_wide_trigamma),
        _positive(_trigamma),
        [(0, 20), (0, 3)],
        [13.0],
        10_000,
    ),
    ("i0", special.i0, sp.i0, _bessel(0, False), [(-713, 713), (-9, 9)], [7.75, 713.0, 91.0], 10_000),
    ("i0e", special.i0e, sp.i0e, _bessel(0, True), [(-713, 713), (-9, 9)], [7.75], 10_000),
    ("i1", special.i1, sp.i1, _bessel(1, False), [(-713, 713), (-9, 9)], [7.75, 713.0, 91.0], 10_000),
    ("i1e", special.i1e, sp.i1e, _bessel(1, True), [(-713, 713), (-9, 9)], [7.75], 10_000),
]
_SHAPE = [(0.1, 40.0), (0.1, 4.0)]
BINARY: list[tuple[str, Callable, Callable, Callable, Sequence[Ranges], int]] = [
    ("xlogy", special.xlogy, sp.xlogy, lambda x, y: x * mp.log(y), [[(-9, 9)], [(0, 9)]], 20_000),
    ("xlog1py", special.xlog1py, sp.xlog1py, lambda x, y: x * mp.log1p(y), [[(-9, 9)], [(-1, 9)]], 20_000),
    ("rel_entr", special.rel_entr, sp.rel_entr, lambda x, y: x * mp.log(x / y), [[(0, 2)], [(3, 9)]], 20_000),
    ("betaln", special.betaln, sp.betaln, lambda a, b: mp.log(mp.beta(a, b)), [[(1.1, 90)], [(1.1, 90)]], 10_000),
    ("beta", special.beta, sp.beta, mp.beta, [[(0.1, 80)], [(0.1, 80)]], 10_000),
    ("zeta", special.zeta, sp.zeta, mp.zeta, [[(1.1, 20)], [(0.1, 20)]], 3_000),
    ("gammainc", special.gammainc, sp.gammainc, lambda a, x: mp.gammainc(a, 0, x, regularized=True), [_SHAPE, _SHAPE], 3_000),
    ("gammaincc", special.gammaincc, sp.gammaincc, lambda a, x: mp.gammainc(a, x, regularized=True), [_SHAPE, _SHAPE], 3_000),
]
TERNARY: list[tuple[str, Callable, Callable, Callable, Sequence[Ranges], int]] = [
    ("betainc", special.betainc, sp.betainc, _betainc, [[(0.5, 20)], [(0.5, 20)], [(0.05, 0.95)]], 3_000),
]
