"""Measures the error of every math function and writes docs/numerics.json: `python -m bench.accuracy [NAME ...]`.

float32 is measured over all 2^32 bit patterns, of which every 251st is taken, and over every number in critical ranges (around
0, 1, overflow, underflow, the seams of the approximations, multiples of pi/2); float64 at 10^6 points. Answers in float32 are
compared with float64 functions of NumPy and SciPy, and the worst of them with mpmath; answers in float64 all with mpmath.

The references in float64 take most of the time. They depend on the points alone and are kept in `--references` (build/accuracy),
so that measuring a changed kernel again takes a minute. tests/test_docs.py measures a part of the same points.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import scipy.special

import fxgrad as fx
import fxgrad.numpy as fnp
from bench import accuracy_special
from fxgrad.primitives.base import REGISTRY
from fxgrad.runtime.eager import evaluate
from fxgrad.testing.ulp import ulp_difference

__all__ = ["FUNCTIONS", "Function", "Measured", "measure32", "measure64"]

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "numerics.json"
STRIDE = 251  # of float32 bit patterns
POINTS = 1_000_000  # in float64
CHUNK = 2**19
PRECISION = 140  # bits of mpmath's numbers
TINY = 2.0**-960  # below, references are kept times 2**SCALE, or their low words would underflow
SCALE = 200
RECHECKED = 200  # of the worst float32 points with mpmath

Array = np.ndarray
Ranges = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Function:
    """What is measured: `f` of arrays, a float64 function to judge float32 by, mpmath's, and where to look.

    ranges: where float64 points are drawn from, for each operand. critical: arguments whose neighbours are all looked at.
    bound: what docs/numerics.md promises, in ulp; None for functions made of others, and special ones. count: float64 points.
    """

    name: str
    f: Callable[..., Any]
    wide: Callable[..., Any]
    exact: Callable[..., Any]
    ranges: Sequence[Ranges]
    critical: Sequence[float] = ()
    bound: int | None = None
    log: Sequence[bool] = field(default=(False,))  # operands drawn evenly in the exponent
    count: int = POINTS

    @property
    def operands(self) -> int:
        return len(self.ranges)

    @cached_property
    def seed(self) -> list[int]:
        return [ord(c) for c in self.name]

    def points32(self, part: int = 1) -> Iterator[list[Array]]:
        """Chunks of arguments; with `part` > 1 only every so many of the same points."""
        if self.operands == 1:
            for start in range(0, 2**32, STRIDE * part * CHUNK):
                yield [_float32(np.arange(start, min(2**32, start + STRIDE * part * CHUNK), STRIDE * part, np.uint64))]
            yield [self._critical32()[::part]]
            return
        for i in range(-(-(2**32 // STRIDE) // CHUNK)):
            if i % part == 0:
                rng = np.random.default_rng([*self.seed, i])
                yield [x.astype(np.float32) for x in self._pairs(rng, CHUNK // min(part, 8), np.float32)]

    def _critical32(self) -> Array:
        """All neighbours of the critical points, of both signs, and all special values."""
        parts = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)]
        reach = np.arange(-8192, 8192)
        for c in (*self.critical, 1.0, 2.0**-126):
            bits = np.float32(min(c, float(np.finfo(np.float32).max))).view(np.int32).astype(np.int64) + reach
            near = _float32(bits[bits >= 0].astype(np.uint64))
            parts += [near, -near]
        parts.append(_float32(np.arange(16384, dtype=np.uint64)))
        return np.concatenate(parts)

    def points64(self, count: int = POINTS) -> list[Array]:
        """Half drawn evenly from the ranges, a quarter any bit pattern, a quarter neighbours of critical points."""
        rng = np.random.default_rng(self.seed)
        if self.operands > 1:
            return self._pairs(rng, count, np.float64)
        even = np.concatenate([rng.uniform(lo, hi, count // 2 // len(self.ranges[0]) + 1) for lo, hi in self.ranges[0]])
        even = rng.permutation(even)[: count // 2]
        # Patterns without those of a magnitude no answer tells anything about: subnormals down to the last, and up to overflow.
        anywhere = rng.integers(0, 2**64, count // 4, np.uint64).view(np.float64)
        centres = np.array([*self.critical, 1.0, 2.0**-1022])
        near = rng.choice(centres, count - even.size - anywhere.size)
        near = (
            near * (1 + rng.choice([-1, 1], near.size) * 2.0 ** rng.uniform(-53, -3, near.size)) * rng.choice([-1, 1], near.size)
        )
        return [rng.permutation(np.concatenate([even, anywhere, near]))]

    def _pairs(self, rng: np.random.Generator, count: int, dtype: Any) -> list[Array]:
        """Operands of functions of two: from their ranges, and a quarter near each other."""
        if self.name == "pow":
            return _powers(rng, count, dtype)
        out = []
        for ranges, by_exponent in zip(self.ranges, self.log, strict=True):
            x = np.concatenate([rng.uniform(lo, hi, count // len(ranges) + 1) for lo, hi in ranges])[:count]
            x = rng.permutation(x)
            if by_exponent:
                limit = 1.0 if dtype == np.float64 else 126 / 1022
                x = rng.choice([-1.0, 1.0], count) * 2.0 ** (x * limit)
            out.append(x)
        return out


def _float32(bits: Array) -> Array:
    return bits.astype(np.uint32).view(np.float32)


def _powers(rng: np.random.Generator, count: int, dtype: Any) -> list[Array]:
    """Powers over the whole range of results: any base, bases near 1 with large exponents, and ordinary pairs."""
    third = -(-count // 3)
    reach = 103 if dtype == np.float32 else 745
    log_x = np.concatenate(
        [rng.uniform(-reach, min(reach, 709), third), rng.normal(scale=0.01, size=third), rng.normal(size=third)]
    )[:count]
    with np.errstate(all="ignore"):
        x = np.exp(log_x).astype(dtype)
        x[(x == 0) | ~np.isfinite(x)] = 1
        y = rng.uniform(-reach, reach, count) / np.log(x.astype(np.float64))
    y[~np.isfinite(y)] = 2.0
    y[::2] = rng.normal(scale=3, size=y[::2].size)
    return [x, y.astype(dtype)]


@dataclass
class Measured:
    """The largest error in ulp, the arguments it was found at, and the number of points looked at."""

    max_ulp: float = -1.0
    at: tuple[float, ...] = ()
    points: int = 0

    def take(self, errors: Array, arguments: Sequence[Array]) -> None:
        self.points += errors.size
        worst = int(np.argmax(errors)) if errors.size else -1
        if worst >= 0 and errors[worst] > self.max_ulp:
            self.max_ulp, self.at = float(errors[worst]), tuple(float(x[worst]) for x in arguments)

    def as_json(self) -> dict[str, Any]:
        return {"max_ulp": self.max_ulp, "at": list(self.at), "points": self.points}


# ---- references --------------------------------------------------------------------------------------------------------


def _pair(value: Any) -> tuple[float, float, bool]:
    """(hi, lo, scaled): the mpmath number as two floats; a tiny one times 2**SCALE."""
    if not mp.isfinite(value):
        return float(value), 0.0, False
    scaled = abs(value) < TINY
    if scaled:
        value = mp.ldexp(value, SCALE)
    hi = float(value)
    return hi, float(value - mp.mpf(hi)) if math.isfinite(hi) else 0.0, scaled


def exact_values(name: str, arguments: Sequence[Array]) -> tuple[Array, Array, Array]:
    """mpmath's values at finite arguments; NaN where the function has no real one."""
    exact = FUNCTIONS[name].exact
    hi, lo, scaled = np.empty(arguments[0].size), np.empty(arguments[0].size), np.zeros(arguments[0].size, bool)
    with mp.workprec(PRECISION):
        for i, xs in enumerate(zip(*[a.tolist() for a in arguments], strict=True)):
            try:
                value = exact(*map(mp.mpf, xs))
                value = mp.nan if isinstance(value, mp.mpc) else value
            except (ValueError, ZeroDivisionError):
                value = mp.nan
            hi[i], lo[i], scaled[i] = _pair(value)
    return hi, lo, scaled


def errors_of(result: Array, reference: tuple[Array, Array, Array]) -> Array:
    """Errors in ulp of results against exact values as `exact_values` gives them."""
    hi, lo, scaled = reference
    plain = ulp_difference(result, (np.where(scaled, 0.0, hi), np.where(scaled, 0.0, lo)))
    if not scaled.any():
        return plain
    with np.errstate(all="ignore"):
        wide = np.ldexp(result.astype(np.float64), SCALE)
        rounded = np.abs(np.ldexp(hi, -SCALE)).astype(result.dtype)
        spacing = np.ldexp(np.spacing(rounded).astype(np.float64), SCALE)
        return np.where(scaled, np.abs((wide - hi) - lo) / spacing, plain)


# ---- measuring ---------------------------------------------------------------------------------------------------------


def compute(function: Function, arguments: Sequence[Array]) -> Array:
    """The function on fxgrad's kernels."""
    return np.asarray(function.f(*arguments))


def measure32(function: Function, part: int = 1) -> Measured:
    """The largest error in float32, the worst points judged by mpmath."""
    total = Measured()
    worst: list[Array] = [np.empty(0, np.float32) for _ in range(function.operands)]
    worst_errors = np.empty(0)
    for arguments in function.points32(part):
        with np.errstate(all="ignore"):
            wide = function.wide(*[x.astype(np.float64) for x in arguments])
            errors = ulp_difference(compute(function, arguments), wide)
        total.points += errors.size
        kept = min(RECHECKED, errors.size)
        chosen = np.argpartition(errors, errors.size - kept)[errors.size - kept :]
        merged = np.concatenate([worst_errors, errors[chosen]])
        order = np.argsort(-merged, kind="stable")[:RECHECKED]
        worst_errors = merged[order]
        worst = [np.concatenate([w, x[chosen]])[order] for w, x in zip(worst, arguments, strict=True)]
    finite = np.all([np.isfinite(w) for w in worst], axis=0)
    if not np.all(np.isfinite(worst_errors[~finite]) & (worst_errors[~finite] == 0)):
        raise AssertionError(f"{function.name} of a special value is wrong: {[w[~finite] for w in worst]}")
    worst, worst_errors = [w[finite] for w in worst], worst_errors[finite]
    checked = errors_of(compute(function, worst), exact_values(function.name, [w.astype(np.float64) for w in worst]))
    apart = np.where(checked == worst_errors, 0.0, np.abs(checked - worst_errors))
    if np.any(apart > 1e-3):
        i = int(np.argmax(apart))
        raise AssertionError(
            f"float64 {function.name} is no reference at {[float(w[i]) for w in worst]}: "
            f"{worst_errors[i]} ulp, by mpmath {checked[i]}"
        )
    points = total.points
    total.take(checked, worst)
    total.points = points
    return total


def measure64(function: Function, part: int = 1, count: int = POINTS, kept: Path | None = None) -> Measured:
    """The largest error in float64 against mpmath."""
    arguments = function.points64(count)
    finite = np.all([np.isfinite(x) for x in arguments], axis=0)
    arguments = [np.ascontiguousarray(x[finite][::part]) for x in arguments]
    total = Measured()
    reference = _kept_reference(function, arguments, kept)
    total.take(errors_of(compute(function, arguments), reference), arguments)
    return total


def _kept_reference(function: Function, arguments: list[Array], directory: Path | None) -> tuple[Array, Array, Array]:
    path = None if directory is None else directory / f"{function.name}.npz"
    if path is not None and path.exists():
        with np.load(path) as held:
            if all(np.array_equal(held[f"x{i}"], x) for i, x in enumerate(arguments)):
                return held["hi"], held["lo"], held["scaled"]
    hi, lo, scaled = exact_values(function.name, arguments)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, hi=hi, lo=lo, scaled=scaled, **{f"x{i}": x for i, x in enumerate(arguments)})
    return hi, lo, scaled


# ---- the functions -----------------------------------------------------------------------------------------------------


def _primitive(name: str) -> Callable[..., Any]:
    return lambda *xs: evaluate(REGISTRY[name], xs, {})[0]


def _real_cbrt(x: Any) -> Any:
    return mp.sign(x) * mp.cbrt(abs(x))


def _logistic(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _erfc(x: Any) -> Any:
    """mpmath's, but where it is lost in exponents of thousands of digits."""
    return mp.erfc(x) if abs(x) < 1000 else mp.mpf(0 if x > 0 else 2)


def _wide_logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1 + e)


ONE = ("exp", "log", "tanh", "logistic", "sin", "cos", "sqrt", "rsqrt", "log1p", "expm1", "erf")  # within 1 ulp by promise
ANGLES = [k * math.pi / 2 for k in (1, 2, 3, 4, 5, 10, 101, 1000, 65536, 10**6, 10**9)] + [1e5, 1e22]
_UNARY: list[tuple[str, Callable, Callable, Ranges, Sequence[float]]] = [
    ("exp", np.exp, mp.exp, [(-746, 710), (-2, 2)], [709.78, 88.72, 745.13, 708.4, 103.97, 87.33, 0.34657, 1e-4]),
    ("expm1", np.expm1, mp.expm1, [(-40, 710), (-1, 1)], [709.78, 88.72, 0.34657, 17.3, 37.4, 1e-3]),
    ("log", np.log, mp.log, [(0, 4), (0.5, 2)], [0.70710678, 1.41421356, 2.0, 1e300, 1e-300, 1e38, 1e-38]),
    ("log1p", np.log1p, mp.log1p, [(-1, 3), (-0.5, 1)], [0.41421356, 0.29289322, 0.999999, 1e-3]),
    ("sqrt", np.sqrt, mp.sqrt, [(0, 4), (0, 1e6)], [4.0, 2.0]),
    ("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: 1 / mp.sqrt(x), [(0, 4), (0, 1e6)], [4.0, 2.0]),
    ("cbrt", np.cbrt, _real_cbrt, [(-8, 8), (-1e6, 1e6)], [8.0, 27.0, 2.0]),
    ("logistic", _wide_logistic, _logistic, [(-745, 40), (-4, 4)], [36.7, 16.6, 745.13, 103.97, 708.4, 87.33]),
    ("sin", np.sin, mp.sin, [(-10, 10), (-1e5, 1e5), (-1e9, 1e9)], ANGLES),
    ("cos", np.cos, mp.cos, [(-10, 10), (-1e5, 1e5), (-1e9, 1e9)], ANGLES),
    ("tan", np.tan, mp.tan, [(-10, 10), (-1e5, 1e5), (-1e9, 1e9)], ANGLES),
    ("asin", np.arcsin, mp.asin, [(-1, 1), (-0.6, 0.6)], [0.5, 0.70710678]),
    ("acos", np.arccos, mp.acos, [(-1, 1), (-0.6, 0.6)], [0.5, 0.70710678]),
    ("atan", np.arctan, mp.atan, [(-10, 10), (-2, 2)], [0.41421356, 2.41421356, 0.5, 16.0, 1e8]),
    ("sinh", np.sinh, mp.sinh, [(-711, 711), (-3, 3)], [710.4758, 89.4159, 0.34657, 22.0]),
    ("cosh", np.cosh, mp.cosh, [(-711, 711), (-3, 3)], [710.4758, 89.4159, 0.34657, 22.0]),
    ("tanh", np.tanh, mp.tanh, [(-20, 20), (-2, 2)], [0.25, 0.5, 0.55, 0.625, 9.01, 19.06, 1e-3]),
    ("erf", scipy.special.erf, mp.erf, [(-6.5, 6.5), (-1, 1)], [0.5, 0.84375, 1.25, 2.0, 3.0, 3.92, 5.92, 1e-3]),
    ("erfc", scipy.special.erfc, _erfc, [(-6, 27.3), (-1, 3)], [0.5, 0.84375, 1.25, 2.0, 4.0, 9.2, 10.05, 26.5, 27.2]),
]
_COMPOSED: list[tuple[str, Callable, Callable, Callable, Ranges, Sequence[float]]] = [
    ("log2", fnp.log2, np.log2, lambda x: mp.log(x, 2), [(0, 4), (0.5, 2)], [2.0]),
    ("log10", fnp.log10, np.log10, mp.log10, [(0, 4), (0.5, 2)], [10.0]),
    ("exp2", fnp.exp2, np.exp2, lambda x: mp.mpf(2) ** x, [(-1070, 1023), (-2, 2)], [1023.9]),
    ("arcsinh", fnp.arcsinh, np.arcsinh, mp.asinh, [(-10, 10), (-1, 1)], [0.5]),
    ("arccosh", fnp.arccosh, np.arccosh, lambda x: mp.acosh(x) if x >= 1 else mp.nan, [(1, 10), (1, 1.5)], [2.0]),
    ("arctanh", fnp.arctanh, np.arctanh, lambda x: mp.atanh(x) if abs(x) <= 1 else mp.nan, [(-1, 1), (-0.5, 0.5)], [0.5]),
]
_BOTH = [(-1000.0, 1000.0), (-3.0, 3.0)]
_BINARY: list[Function] = [
    Function(
        "pow", _primitive("pow"), np.power, lambda x, y: x**y, [[(0, 1)], [(0, 1)]], bound=2
    ),  # its points: _powers
    Function("atan2", _primitive("atan2"), np.arctan2, mp.atan2, [_BOTH, _BOTH], bound=2, log=(True, True)),
    Function("hypot", _primitive("hypot"), np.hypot, mp.hypot, [_BOTH, [(-3.0, 3.0)]], bound=1, log=(True, True)),
    Function("logaddexp", fnp.logaddexp, np.logaddexp, lambda x, y: mp.log(mp.exp(x) + mp.exp(y)), [[(-30, 30)], [(-30, 30)]],
             log=(False, False), count=POINTS // 10),
]  # fmt: skip
FUNCTIONS: dict[str, Function] = {
    **{
        n: Function(n, _primitive(n), wide, exact, [ranges], critical, 1 if n in ONE else 2)
        for n, wide, exact, ranges, critical in _UNARY
    },
    **{f.name: f for f in _BINARY if f.bound},
    **{
        n: Function(n, f, wide, exact, [ranges], critical, count=POINTS // 10)
        for n, f, wide, exact, ranges, critical in _COMPOSED
    },
    **{f.name: f for f in _BINARY if not f.bound},
    **{
        n: Function(n, f, wide, exact, [ranges], critical, count=count)
        for n, f, wide, exact, ranges, critical, count in accuracy_special.UNARY
    },
    **{
        n: Function(n, f, wide, exact, ranges, log=(False,) * len(ranges), count=count)
        for n, f, wide, exact, ranges, count in [*accuracy_special.BINARY, *accuracy_special.TERNARY]
    },
}


# ---- the file ----------------------------------------------------------------------------------------------------------


def measure(name: str, references: Path | None) -> dict[str, Any]:
    """One function in both dtypes; those made of others at a tenth of the points."""
    function = FUNCTIONS[name]
    part = 1 if function.bound else 10
    found = {
        "float32": measure32(function, part).as_json(),
        "float64": measure64(function, count=function.count, kept=references).as_json(),
    }
    return found if function.bound is None else {"bound": function.bound, **found}


def about() -> dict[str, str]:
    """Sentences on what was looked at, which docs/numerics.md repeats."""
    millions = 2**32 // STRIDE // 10**6
    return {
        "float32": f"one in {STRIDE} of all 2^32 bit patterns, and every number near 0, 1, overflow, underflow, multiples of "
        f"pi/2 and the seams of the approximations: more than {millions} million points a function (a tenth for those made of "
        "several operations; pairs for functions of two).",
        "float64": f"{POINTS:,} points a function (a tenth for those made of several operations, thousands for special "
        "functions): half spread over where the "
        "function bends, a quarter any bit pattern, a quarter close to the critical arguments.",
        "reference": f"mpmath {mp.__version__} with {PRECISION} bits for every float64 point; for float32 the float64 functions "
        f"of NumPy {np.__version__} and SciPy {scipy.__version__}, and mpmath for the {RECHECKED} worst points of each function, "
        "where the two agreed to a thousandth of an ulp.",
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these functions; the others' entries are kept")
    parser.add_argument("--processes", type=int, default=2, help="functions measured at a time (default 2)")
    parser.add_argument("--references", type=Path, default=ROOT / "build" / "accuracy", help="where float64 references are kept")
    args = parser.parse_args()
    names = args.names or list(FUNCTIONS)
    if unknown := set(names) - set(FUNCTIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(FUNCTIONS)}")
    held = json.loads(OUT.read_text())["functions"] if args.names and OUT.exists() else {}
    start = time.perf_counter()
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        running = {name: pool.submit(measure, name, args.references) for name in names}
        for name, future in running.items():
            held[name] = future.result()
            errors = "  ".join(f"{d} {held[name][d]['max_ulp']:.3f}" for d in ("float32", "float64"))
            print(f"{name:10} {errors}  {time.perf_counter() - start:5.0f} s", flush=True)
    functions = {name: held[name] for name in FUNCTIONS if name in held}
    machine = f"fxgrad {fx.__version__}, Python {platform.python_version()}, {platform.machine()}"
    data = {"date": date.today().isoformat(), "machine": machine, "about": about(), "functions": functions}
    OUT.write_text(json.dumps(data, indent=1) + "\n")
    exceeded = [
        n for n, e in functions.items() if "bound" in e and max(e[d]["max_ulp"] for d in ("float32", "float64")) > e["bound"]
    ]
    if exceeded:
        print(f"Above their bound: {', '.join(exceeded)}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
