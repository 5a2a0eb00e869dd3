"""Derivatives and transforms of NumPy's further functions: differences, vmap against a loop, jit against eager; sizes; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests import laws
from tests.four_parts import assert_four_parts, raised

rng = np.random.default_rng(11)
x, y, w = rng.normal(size=9), rng.normal(size=9), rng.uniform(0.5, 2, 9)
A, B = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
nan = np.where(np.arange(12) % 5 == 1, np.nan, rng.normal(size=12)).reshape(3, 4)
i, table = np.array([3, 1, 3, 0, 2, 1, 1, 0, 3]), np.array([-2.0, -0.4, 0.3, 0.9, 2.2])
p, q = np.array([2.0, -3.0, 1.0, 0.5]), np.array([1.0, 0.5, -2.0])
counts = np.array([1, 2, 1, 3])
METHODS = (
    "inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf hazen weibull linear median_unbiased "
    "normal_unbiased lower higher midpoint nearest"
)
F = Callable[..., Any]
SMOOTH: dict[str, tuple[F, tuple[Any, ...]]] = {
    "sort": (lambda x: fnp.sort(x), (x,)),
    "partition": (lambda x: fnp.partition(x, 4)[:5], (x,)),
    "argpartition": (lambda x: fnp.take(x, fnp.argpartition(x, 3)), (x,)),
    "lexsort": (lambda x: x[fnp.lexsort((x, i))], (x,)),
    "unique of a size": (lambda x: fnp.unique(x, size=6), (x,)),
    "union1d of a size": (lambda x, y: fnp.union1d(x, y, size=7, fill_value=0), (x, y)),
    "setxor1d of a size": (lambda x: fnp.setxor1d(x, [x[0], 1.0], size=5), (x,)),
    "nanquantile": (lambda a: fnp.nanquantile(a, [0.2, 0.55], axis=1), (nan,)),
    "nanpercentile": (lambda a: fnp.nanpercentile(a, 40), (nan,)),
    "nanmedian": (lambda a: fnp.nanmedian(a, axis=0), (nan,)),
    "quantile by its fraction": (lambda x, q: fnp.quantile(x, q), (x, np.array([0.21, 0.64]))),
    "quantile weights": (lambda x: fnp.quantile(x, 0.4, method="inverted_cdf", weights=w), (x,)),
    "interp": (lambda x, u, v: fnp.interp(x, fnp.sort(u), v), (x, table, rng.normal(size=5))),
    "interp period": (lambda x, v: fnp.interp(x, table, v, period=6.0), (x, rng.normal(size=5))),
    "polyfit": (lambda x, y: fnp.polyfit(x, y, 2), (x, y)),
    "polyfit weights": (lambda x, y, w: fnp.polyfit(x, y, 1, w=w), (x, y, w)),
    "polyfit columns": (lambda x, y: fnp.polyfit(x, y, 1), (x, rng.normal(size=(9, 2)))),
    "polyval": (lambda p, x: fnp.polyval(p, x), (p, x)),
    "polymul": (lambda p, q: fnp.polymul(p, q, trim_leading_zeros=False), (p, q)),
    "polydiv": (lambda p, q: fnp.concatenate(fnp.polydiv(p, q, trim_leading_zeros=False)), (p, q)),
    "polyder": (lambda p: fnp.polyder(p, 2), (p,)),
    "polyint": (lambda p, k: fnp.polyint(p, 2, k), (p, q[:2])),
    "polyadd": (lambda p, q: fnp.polyadd(p, q) * fnp.polysub(q, p), (p, q)),
    "poly": (lambda p: fnp.poly(p), (p,)),
    "histogram weights": (lambda w: fnp.histogram(x, table, weights=w)[0], (w,)),
    "histogram density": (lambda w: fnp.histogram(x, 3, density=True, weights=w)[0], (w,)),
    "histogram edges": (lambda x: fnp.histogram(x, 4)[1], (x,)),
    "histogramdd weights": (lambda w: fnp.histogramdd((x, y), 2, weights=w)[0], (w,)),
    "bincount weights": (lambda w: fnp.bincount(i, w), (w,)),
    "gradient": (lambda x, d: fnp.gradient(x, fnp.cumsum(d), edge_order=2), (x, w)),
    "gradient step": (lambda a, h: fnp.gradient(a, h, axis=1), (A, np.float64(0.7))),
    "cov weights": (lambda a, v: fnp.cov(a, fweights=counts, aweights=v), (A, w[:4])),
    "corrcoef": (lambda a: fnp.corrcoef(a), (A,)),
    "pad ramp": (lambda x, e: fnp.pad(x, 3, "linear_ramp", end_values=e), (x, np.float64(0.4))),
    "pad statistics": (lambda a: fnp.pad(fnp.pad(a, 1, "mean"), 2, "maximum", stat_length=2), (A,)),
    "pad median": (lambda a: fnp.pad(a, ((0, 1), (2, 0)), "median"), (A,)),
    "pad odd": (lambda x: fnp.pad(x[:3], 7, "reflect", reflect_type="odd"), (x,)),
    "pad by a function": (lambda x: fnp.pad(x, 2, lambda v, pair, axis, kw: v * 2.0 + v[3]), (x,)),
    "mantissa": (lambda x: fnp.frexp(x)[0], (w * 3,)),
    "ldexp": (lambda x: fnp.ldexp(x, i), (x,)),
    "nextafter": (lambda x, y: fnp.nextafter(x, y), (x, y)),
    "modf": (lambda x: fnp.modf(x)[0], (x * 3,)),
    "i0": (lambda x: fnp.i0(x), (np.array([-12.0, -7.9, -0.3, 0.0, 0.2, 3.0, 8.1, 30.0]),)),
    "kaiser": (lambda b: fnp.kaiser(7, b), (np.float64(3.0),)),
    "apply_along_axis": (lambda a: fnp.apply_along_axis(lambda v: fnp.outer(v, v[:2]), 1, a), (A,)),
    "apply_over_axes": (lambda a: fnp.apply_over_axes(fnp.sum, a * a, [0, 1]), (A,)),
    "vectorize": (lambda a, b: fnp.vectorize(lambda u, v: u @ v * u, signature="(n),(n)->(n)")(a, b), (A, B[0])),
    "vectorize of numbers": (lambda a, b: fnp.vectorize(lambda u, v: u * v + 1)(a, b), (A, B[0])),
    "fromfunction": (lambda x: fnp.fromfunction(lambda k: k * x, (9,)), (x,)),
    "fromiter": (lambda x: fnp.fromiter((v * v for v in x), float, 5), (x,)),
    "piecewise": (lambda x: fnp.piecewise(x, [x < 0, x > 1], [lambda v: v * v, 3.0, fnp.exp]), (x,)),
    "insert": (lambda x, y: fnp.insert(x, [1, 4], y[:2]), (x, y)),
    "delete": (lambda x: fnp.delete(x, [0, -2]), (x,)),
    "unwrap": (lambda x: fnp.unwrap(x * 5), (x,)),
    "trapezoid": (lambda y, d: fnp.trapezoid(y, fnp.cumsum(d)), (y, w)),
    "r_": (lambda x, y: fnp.r_[x, 1.0, y], (x, y)),
    "c_": (lambda x, y: fnp.c_[x, y * y], (x, y)),
    "diagflat": (lambda a: fnp.diagflat(a, -1), (A,)),
    "einsum": (lambda a, b: fnp.einsum("ij,jk,il->lk", a, b, a, optimize="optimal"), (A, B)),
    "convolve": (lambda x, p: fnp.convolve(x, p, "same"), (x, p)),
    "correlate": (lambda x, p: fnp.correlate(p, x, "full"), (x, p)),
    "choose": (lambda a, b: fnp.choose(np.array([[0, 1, 1, 0]]), [a, b[:3]]), (A, B)),
    **{f"quantile {m}": (lambda x, m=m: fnp.quantile(x, [0.23, 0.71], method=m), (x,)) for m in METHODS.split()},
}
KNOWN: dict[str, tuple[F, tuple[Any, ...]]] = {  # sizes depend on values
    "unique": (lambda x: fnp.unique(fnp.concatenate([x, x])), (x,)),
    "unique rows": (lambda a: fnp.unique(a, axis=0), (A,)),
    "intersect1d": (lambda x: fnp.intersect1d(x, x[2:5]), (x,)),
    "setdiff1d": (lambda x: fnp.setdiff1d(x, x[:4]), (x,)),
    "polymul": (lambda p, q: fnp.polymul(p, q), (p, q)),
    "polydiv": (lambda p, q: fnp.concatenate(fnp.polydiv(p, q)), (p, q)),
    "trim_zeros": (lambda x: fnp.trim_zeros(fnp.where(np.arange(9) < 2, 0.0, x)), (x,)),
    "histogram": (lambda x: fnp.histogram(x, "sturges")[1], (x,)),
    "branches": (lambda x: fnp.vectorize(lambda v: v * v if v > 0 else -v)(x), (x,)),
    "branches along an axis": (lambda a: fnp.apply_along_axis(lambda v: v if v[0] > 0 else v * v, 1, a), (A,)),
    "mask": (lambda x: x[x > 0] ** 2, (x,)),
}


def _difference(f: F, args: tuple[Any, ...], tangents: list[Any]) -> np.ndarray:
    """Central difference by NumPy's shortest path: NaN among the arguments stay where they are."""
    with np.errstate(invalid="ignore"):
        return laws.central_difference(f, args, tangents)


def _check_derivative(f: F, args: tuple[Any, ...], rtol: float = 3e-6) -> None:
    tangents = [laws.random_like(a, k) for k, a in enumerate(args)]
    value, t = fx.jvp(f, args, tuple(tangents))
    wanted = _difference(f, args, tangents)
    laws.close(t, wanted, rtol, "jvp")
    assert_same_bits(np.asarray(value), np.asarray(f(*args)))
    weights = laws.random_like(value, 5)
    gradients = fx.grad(lambda *xs: fnp.sum(f(*xs) * weights), tuple(range(len(args))))(*args)
    total = sum(float(np.sum(np.asarray(g) * v)) for g, v in zip(gradients, tangents, strict=True))
    laws.close(total, np.sum(wanted * weights), rtol * 10, "gradient")


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives(name: str) -> None:
    f, args = SMOOTH[name]
    _check_derivative(f, args)


@pytest.mark.parametrize("name", KNOWN)
def test_derivatives_where_values_fix_the_size(name: str) -> None:
    f, args = KNOWN[name]
    _check_derivative(f, args)
    with pytest.raises(fx.ConcretizationError):
        fx.jit(f)(*args)


@pytest.mark.parametrize("name", SMOOTH)
def test_modes(name: str) -> None:
    """jit == eager, jit(grad) == grad, checkpointed == plain, vmap == loop, to the bit."""
    f, args = SMOOTH[name]
    numbers = tuple(range(len(args)))
    eager = f(*args)
    assert_same_bits(fx.jit(f)(*args), eager)
    with fx.disable_jit():
        assert_same_bits(fx.jit(f)(*args), eager)
    weights = laws.random_like(eager, 3)
    loss = lambda *xs: fnp.sum(f(*xs) * weights)  # noqa: E731
    gradients = fx.grad(loss, numbers)(*args)
    assert_same_bits(fx.jit(fx.grad(loss, numbers))(*args), gradients)
    assert_same_bits(fx.grad(fx.checkpoint(loss), numbers)(*args), gradients)
    many = [np.stack([a, a[::-1] if np.ndim(a) else a * 0.9, a * 1.1]) for a in args]
    rows = [tuple(m[k] for m in many) for k in range(3)]
    batched = fx.vmap(f)(*many)
    for k, row in enumerate(rows):
        assert_same_bits(np.asarray(batched[k]), np.asarray(f(*row)))
    batched_gradients = fx.jit(fx.vmap(fx.grad(loss, numbers)))(*many)
    for k, row in enumerate(rows):
        for g, wanted in zip(batched_gradients, fx.grad(loss, numbers)(*row), strict=True):
            assert_same_bits(np.asarray(g[k]), np.asarray(wanted))


# ---- sizes that are given ------------------------------------------------------------------------------------------------------

SETS = rng.integers(0, 6, 12)
SIZED: dict[str, tuple[F, F]] = {
    "unique": (lambda v, n: fnp.unique(v, True, True, True, size=n), lambda v: np.unique(v, True, True, True)),
    "rows": (
        lambda v, n: fnp.unique(v.reshape(6, 2) % 2, True, True, True, axis=0, size=n),
        lambda v: np.unique(v.reshape(6, 2) % 2, True, True, True, axis=0),
    ),
    "columns": (
        lambda v, n: fnp.unique(v.reshape(2, 6) % 2, return_counts=True, axis=1, size=n),
        lambda v: np.unique(v.reshape(2, 6) % 2, return_counts=True, axis=1),
    ),
    "union1d": (lambda v, n: fnp.union1d(v, [1, 9], size=n), lambda v: np.union1d(v, [1, 9])),
    "intersect1d": (
        lambda v, n: fnp.intersect1d(v, [1, 9, 2, 0], return_indices=True, size=n),
        lambda v: np.intersect1d(v, [1, 9, 2, 0], return_indices=True),
    ),
    "setdiff1d": (lambda v, n: fnp.setdiff1d(v, [1, 9], size=n), lambda v: np.setdiff1d(v, [1, 9])),
    "setxor1d": (lambda v, n: fnp.setxor1d(v, [1, 9], size=n), lambda v: np.setxor1d(v, [1, 9])),
    "nonzero": (lambda v, n: fnp.nonzero(v.reshape(3, 4) > 2, size=n), lambda v: np.nonzero(v.reshape(3, 4) > 2)),
    "flatnonzero": (lambda v, n: fnp.flatnonzero(v, size=n), np.flatnonzero),
    "argwhere": (lambda v, n: fnp.argwhere(v.reshape(2, 6), size=n), lambda v: np.argwhere(v.reshape(2, 6))),
    "bincount": (lambda v, n: fnp.bincount(v, length=n), np.bincount),
}


def _length(case: str, found: Any) -> int:
    first = found[0] if isinstance(found, tuple) else found
    return first.shape[1] if case == "columns" else first.shape[0]


@pytest.mark.parametrize("case", SIZED)
def test_a_given_size_is_that_of_the_result(case: str) -> None:
    """With the size it has, the result is NumPy's; with a smaller one its beginning; compiled and batched to the same bits."""
    f, numpys = SIZED[case]
    wanted = numpys(SETS)
    n = _length(case, wanted)
    exact = f(SETS, n)
    for got, want in zip(fx.tree.leaves(exact), fx.tree.leaves(wanted), strict=True):
        assert_same_bits(np.asarray(got), np.asarray(want))
    for size in (n, n - 2, n + 3):
        plain = fx.tree.leaves(f(SETS, size))
        assert _length(case, f(SETS, size)) == size
        for got, want in zip(fx.tree.leaves(fx.jit(lambda v, size=size: f(v, size))(SETS)), plain, strict=True):
            assert_same_bits(np.asarray(got), np.asarray(want))
        both = fx.tree.leaves(fx.vmap(lambda v, size=size: f(v, size))(np.stack([SETS[::-1], SETS])))
        for got, want in zip(both, plain, strict=True):
            assert_same_bits(np.asarray(got)[1], np.asarray(want))


def test_what_is_left_is_filled() -> None:
    assert fx.jit(lambda v: fnp.unique(v, size=5, fill_value=-1))(np.array([3, 1, 3])).tolist() == [1, 3, -1, -1, -1]
    assert fx.jit(lambda v: fnp.unique(v, size=3))(np.array([3, 1, 3])).tolist() == [1, 3, 1]
    assert fx.jit(lambda v: fnp.nonzero(v, size=4, fill_value=9))(np.array([0, 1, 0, 5]))[0].tolist() == [1, 3, 9, 9]
    assert fx.jit(lambda v: fnp.bincount(v, length=2))(np.array([0, 1, 1, 7])).tolist() == [1, 2]
    assert fx.jit(lambda v: fnp.unique(v, size=2, fill_value=7.0))(np.zeros(0)).tolist() == [7.0, 7.0]


# ---- errors --------------------------------------------------------------------------------------------------------------------

ints = np.array([0, 7, -1])
UNKNOWN: dict[str, tuple[F, str]] = {
    "unique": (lambda v: fnp.unique(v), "fxgrad.numpy.unique(..., size=n)"),
    "intersect1d": (lambda v: fnp.intersect1d(v, v), "fxgrad.numpy.intersect1d(..., size=n)"),
    "setdiff1d": (lambda v: fnp.setdiff1d(v, v), "fxgrad.numpy.setdiff1d(..., size=n)"),
    "bincount": (lambda v: fnp.bincount(v), "length=n"),
    "histogram": (lambda v: fnp.histogram(v, "auto"), "bins=10"),
    "polymul": (lambda v: fnp.polymul(v, v), "trim_leading_zeros=False"),
    "roots": (lambda v: fnp.roots(v), "strip_zeros=False"),
    "nonzero": (lambda v: fnp.nonzero(v), "np.where(mask, x, 0)"),
    "mask": (lambda v: v[v > 0], "np.where(mask, x, 0)"),
    "trim_zeros": (lambda v: fnp.trim_zeros(v), "outside the transformed function"),
    "asarray_chkfinite": (lambda v: fnp.asarray_chkfinite(v * 1.0), "debug_nans"),
    "delete": (lambda v: fnp.delete(np.arange(9), v), "Python ints or a plain array"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_sizes_that_are_not_known(case: str) -> None:
    f, fix = UNKNOWN[case]
    error = raised(lambda: fx.jit(f)(ints), fx.ConcretizationError)
    assert_four_parts(
        error, what="cannot use a traced", line=f'"{case}": (lambda v:', why="Under jit the value is not known", fix=fix
    )


COMPILED: dict[str, tuple[F, type[Exception], str]] = {  # errors that only values can tell
    "unravel_index": (lambda v: fnp.unravel_index(v, (2, 2)), ValueError, "index 7 is out of bounds for array with size 4"),
    "ravel_multi_index": (lambda v: fnp.ravel_multi_index((v, v), (2, 2)), ValueError, "invalid entry in coordinates array: 7"),
    "choose": (lambda v: fnp.choose(v, [1, 2]), ValueError, "invalid entry in choice array: 7"),
    "bincount": (lambda v: fnp.bincount(v, length=9), ValueError, "negative number: -1"),
    "take": (lambda v: fnp.take(x[:5] * 2, v), IndexError, "index 7 is out of bounds for axis 0 with size 5"),
    "index": (lambda v: fnp.asarray(x[:6])[v], IndexError, "index 7 is out of bounds for axis 0 with size 6"),
    "set": (lambda v: fnp.asarray(v * 1.0).at[v].set(0.0), IndexError, "index 7 is out of bounds for axis"),
}


@pytest.mark.parametrize("case", COMPILED)
def test_compiled_code_raises_what_numpy_raises(case: str) -> None:
    f, kind, words = COMPILED[case]
    for run in (fx.jit(f), fx.jit(lambda v: fx.vmap(f)(v[None]))):
        error = raised(lambda run=run: run(ints), kind)
        assert words in str(error) and f'"{case}": (lambda v:' in str(error)
    if case != "set":  # plain arrays have no .at
        with pytest.raises(kind):
            f(ints)


BAD: dict[str, F] = {  # NumPy and fxgrad raise the same type
    "diag_indices_from": lambda m: m.diag_indices_from(np.ones((2, 3))),
    "tril_indices_from": lambda m: m.tril_indices_from(np.ones(3)),
    "unravel_index": lambda m: m.unravel_index(9, (2, 3)),
    "unravel floats": lambda m: m.unravel_index(1.5, (2, 3)),
    "ravel_multi_index": lambda m: m.ravel_multi_index(([5], [0]), (2, 3)),
    "partition": lambda m: m.partition(x, 20),
    "lexsort": lambda m: m.lexsort((x, y[:3])),
    "gcd": lambda m: m.gcd(1.5, 2),
    "packbits": lambda m: m.packbits(x),
    "unpackbits": lambda m: m.unpackbits(i),
    "bitorder": lambda m: m.packbits(i, bitorder="middle"),
    "bincount": lambda m: m.bincount([-1]),
    "bincount floats": lambda m: m.bincount(x),
    "bincount weights": lambda m: m.bincount([1, 2], [1.0]),
    "histogram": lambda m: m.histogram(x, 0),
    "histogram edges": lambda m: m.histogram(x, [1, 0]),
    "histogram float": lambda m: m.histogram(x, 2.5),
    "histogram rule": lambda m: m.histogram(x, "best"),
    "histogram range": lambda m: m.histogram(x, 3, (2, 1)),
    "histogram nan": lambda m: m.histogram([np.nan, 1.0]),
    "histogram weights": lambda m: m.histogram(x, 3, weights=w[:2]),
    "quantile": lambda m: m.quantile(x, 1.5),
    "quantile method": lambda m: m.quantile(x, 0.5, method="best"),
    "quantile weights": lambda m: m.quantile(x, 0.5, weights=w),
    "quantile negative": lambda m: m.quantile(x, 0.5, method="inverted_cdf", weights=-w),
    "isin": lambda m: m.isin(x, x, kind="best"),
    "trim_zeros": lambda m: m.trim_zeros(x, "x"),
    "polyder": lambda m: m.polyder(p, -1),
    "polyint": lambda m: m.polyint(p, 3, [1, 2]),
    "polyfit": lambda m: m.polyfit(x, y[:3], 1),
    "polyfit degree": lambda m: m.polyfit(x, y, -1),
    "poly": lambda m: m.poly(np.ones((2, 3))),
    "vectorize": lambda m: m.vectorize(lambda u: u, signature="n->"),
    "core": lambda m: m.vectorize(lambda u, v: u, signature="(n),(n)->()")(np.ones(2), np.ones(3)),
    "apply_along_axis": lambda m: m.apply_along_axis(np.sum, 2, A),
    "fromiter": lambda m: m.fromiter(range(2), int, 5),
    "pad": lambda m: m.pad(x, 1, "best"),
    "pad keyword": lambda m: m.pad(x, 1, "edge", constant_values=3),
    "pad stat": lambda m: m.pad(x, 1, "maximum", stat_length=0),
    "gradient": lambda m: m.gradient(x, edge_order=3),
    "gradient spacing": lambda m: m.gradient(x, np.ones(3)),
    "cov": lambda m: m.cov(A, fweights=[1.5, 1, 1, 1]),
    "cov negative": lambda m: m.cov(A, aweights=[-1, 1, 1, 1]),
    "choose": lambda m: m.choose([5], [1, 2]),
    "piecewise": lambda m: m.piecewise(x, [x > 0], [1, 2, 3]),
    "asarray_chkfinite": lambda m: m.asarray_chkfinite([np.inf]),
    "i0": lambda m: m.i0(1j),
    "r_": lambda m: m.r_["best", x],
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_those_of_numpy(case: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        BAD[case](np)
    with pytest.raises(Exception) as ours:  # noqa: PT011
        BAD[case](fnp)
    assert issubclass(ours.type, theirs.type) or ours.type is theirs.type, f"{ours.value!r}, NumPy: {theirs.value!r}"
    with pytest.raises(theirs.type):
        fx.jvp(lambda t: (BAD[case](fnp), t)[1], (1.0,), (1.0,))
