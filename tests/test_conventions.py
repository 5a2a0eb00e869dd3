"""Where the formula has no derivative, or the naive one a NaN: what docs/numerics.md says is answered, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as ss

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.scipy import special as sp
from fxgrad.testing.bits import assert_same_bits

INF, NAN = np.inf, np.nan
F = Callable[..., Any]


def every_gradient(f: F, *args: Any) -> tuple[np.ndarray, ...]:
    """The gradients by all operands, the same bits from eager, jit(grad), grad(jit), grad(checkpoint) and vmap(grad)."""
    numbers = tuple(range(len(args)))
    eager = fx.grad(f, numbers)(*args)
    assert_same_bits(fx.jit(fx.grad(f, numbers))(*args), eager, "jit(grad)")
    assert_same_bits(fx.grad(fx.jit(f), numbers)(*args), eager, "grad(jit)")
    assert_same_bits(fx.grad(fx.checkpoint(f), numbers)(*args), eager, "grad(checkpoint)")
    stacked = [np.stack([a, a]) for a in args]
    assert_same_bits([g[1] for g in fx.vmap(fx.grad(f, numbers))(*stacked)], list(eager), "vmap(grad)")
    return eager


def forward_agrees(f: F, args: tuple[Any, ...], gradients: tuple[np.ndarray, ...]) -> None:
    """Forward mode adds in another order, so its gradients are only close."""
    for a, b in zip(fx.jacfwd(f, tuple(range(len(args))))(*args), gradients, strict=True):
        eps = float(np.finfo(b.dtype).eps)
        np.testing.assert_allclose(a, b, rtol=16 * eps, atol=16 * eps)


# name: function, operands, gradients by each
POINTS: dict[str, tuple[F, tuple[float, ...], tuple[float, ...]]] = {
    "abs at 0": (np.abs, (0.0,), (0.0,)),
    "abs at -0": (np.abs, (-0.0,), (0.0,)),
    "sign": (np.sign, (0.0,), (0.0,)),
    "maximum tie": (np.maximum, (2.0, 2.0), (0.5, 0.5)),
    "minimum tie": (np.minimum, (2.0, 2.0), (0.5, 0.5)),
    "maximum tie of infinities": (np.maximum, (INF, INF), (0.5, 0.5)),
    "maximum of zeros of two signs": (np.maximum, (-0.0, 0.0), (0.5, 0.5)),
    "maximum with 0 at 0": (lambda x: np.maximum(x, 0.0), (0.0,), (0.5,)),
    "relu at 0": (nn.relu, (0.0,), (0.0,)),
    "clip at the lower bound": (lambda x: np.clip(x, 0.0, 1.0), (0.0,), (1.0,)),
    "clip at the upper bound": (lambda x: np.clip(x, 0.0, 1.0), (1.0,), (1.0,)),
    "clip below": (lambda x: np.clip(x, 0.0, 1.0), (-1e-30,), (0.0,)),
    "clip by bounds, inside": (np.clip, (0.5, 0.0, 1.0), (1.0, 0.0, 0.0)),
    "clip by bounds, at the lower": (np.clip, (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)),
    "clip by bounds, at the upper": (np.clip, (1.0, 0.0, 1.0), (1.0, 0.0, 0.0)),
    "clip by bounds, below": (np.clip, (-1.0, 0.0, 1.0), (0.0, 1.0, 0.0)),
    "clip by bounds, above": (np.clip, (2.0, 0.0, 1.0), (0.0, 0.0, 1.0)),
    "pow(x, 0)": (np.power, (3.0, 0.0), (0.0, np.log(3.0))),
    "pow(0, 0)": (np.power, (0.0, 0.0), (0.0, 0.0)),
    "pow(0, 2)": (np.power, (0.0, 2.0), (0.0, 0.0)),
    "pow(0, 1)": (np.power, (0.0, 1.0), (1.0, 0.0)),
    "pow(-2, 0)": (lambda x: np.power(x, 0.0), (-2.0,), (0.0,)),
    "pow(-2, 3)": (lambda x: np.power(x, 3.0), (-2.0,), (12.0,)),
    "pow(0, 1/2)": (lambda x: np.power(x, 0.5), (0.0,), (INF,)),
    "x ** 0 at 0": (lambda x: x**0, (0.0,), (0.0,)),
    "x ** 1 at 0": (lambda x: x**1, (0.0,), (1.0,)),
    "x ** 2 at 0": (lambda x: x**2, (0.0,), (0.0,)),
    "sqrt at 0": (np.sqrt, (0.0,), (INF,)),
    "cbrt at 0": (np.cbrt, (0.0,), (INF,)),
    "sqrt at 0, not taken": (lambda x: np.where(x < 0, np.sqrt(x), 3.0 * x), (0.0,), (3.0,)),
    "log at 0": (np.log, (0.0,), (INF,)),
    "arctan2 at the origin": (np.arctan2, (0.0, 0.0), (0.0, 0.0)),
    "arctan2 at infinity": (np.arctan2, (INF, 1.0), (0.0, 0.0)),
    "fmod at 0": (np.fmod, (0.0, 2.0), (1.0, 0.0)),
    "hypot of inf": (np.hypot, (-INF, 1.0), (-1.0, 0.0)),
    "hypot at the origin": (np.hypot, (0.0, 0.0), (0.0, 0.0)),
    "floor": (np.floor, (1.0,), (0.0,)),
    "rint": (np.rint, (0.5,), (0.0,)),
    "where not taken": (lambda x: np.where(x > 0, np.log(x), x), (-1.0,), (1.0,)),
    "where not taken, infinite": (lambda x: np.where(x > 1, 1 / x, x), (0.0,), (1.0,)),
    "logistic far down": (lax.logistic, (-800.0,), (0.0,)),
    "tanh far out": (np.tanh, (1e4,), (0.0,)),
    "logaddexp of -inf": (np.logaddexp, (-INF, -INF), (0.5, 0.5)),
    "logaddexp of one -inf": (np.logaddexp, (0.0, -INF), (1.0, 0.0)),
    "logaddexp of inf": (np.logaddexp, (INF, 0.0), (1.0, 0.0)),
}


@pytest.mark.parametrize("name", POINTS)
def test_scalar_conventions(name: str) -> None:
    f, args, want = POINTS[name]
    for dtype in (np.float64, np.float32):
        operands = tuple(dtype(a) for a in args)
        got = every_gradient(f, *operands)
        forward_agrees(f, operands, got)
        np.testing.assert_allclose(got, np.asarray(want, dtype), rtol=1e-6, atol=0)
        assert all(g.dtype == dtype for g in got)


ARRAYS: dict[str, tuple[F, list[float], list[float]]] = {
    "max ties": (np.max, [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
    "min ties": (np.min, [1.0, 1.0, 1.0, 1.0], [0.25] * 4),
    "max of infinities": (np.max, [INF, 0.0, INF], [0.5, 0.0, 0.5]),
    "max of zeros of two signs": (np.max, [0.0, -0.0], [0.5, 0.5]),
    "argmax ties: the first": (lambda x: x[np.argmax(x)], [3.0, 1.0, 3.0], [1.0, 0.0, 0.0]),
    "argmin ties: the first": (lambda x: x[np.argmin(x)], [3.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
    "sort ties: stable": (lambda x: np.sum(np.sort(x) * np.arange(1, 4).astype(x.dtype)), [1.0, 1.0, 0.0], [2.0, 3.0, 1.0]),
    "norm at 0": (np.linalg.norm, [0.0, 0.0], [0.0, 0.0]),
    "std of equals": (np.std, [2.0, 2.0, 2.0, 2.0], [0.0] * 4),
    "prod with a zero": (np.prod, [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    "prod with two zeros": (np.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    "cumprod with zeros": (lambda x: np.sum(np.cumprod(x)), [2.0, 0.0, 0.0, 5.0], [1.0, 2.0, 0.0, 0.0]),
    "sum of none": (np.sum, [], []),
    "prod of none": (np.prod, [], []),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_array_conventions(name: str) -> None:
    f, x, want = ARRAYS[name]
    for dtype in (np.float64, np.float32):
        (got,) = every_gradient(f, np.array(x, dtype))
        forward_agrees(f, (np.array(x, dtype),), (got,))
        np.testing.assert_allclose(got, np.asarray(want, dtype), rtol=1e-6, atol=0)
        assert got.dtype == dtype


@pytest.mark.parametrize("x", [1, True, np.int32(2)])
def test_integers_have_no_gradient(x: Any) -> None:
    with pytest.raises(TypeError, match="x"):
        fx.grad(lambda x: x * 1.0)(x)


# ---- extreme logits ----------------------------------------------------------------------------------------------------

LOGITS = {
    "far apart": [1e4, -1e4, 0.0],
    "large and equal": [1e4, 1e4, 1e4, 1e4],
    "small and equal": [-1e4, -1e4],
    "large and close": [1e4, 1e4 - 1.0, 1e4 - 2.0],
    "one is -inf": [0.0, 1.0, -INF],
    "all but one are -inf": [-INF, 3.0, -INF],
    "-inf and large": [1e4, -INF, -1e4],
}


def exact_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def agree(got: Any, want: np.ndarray, eps: float) -> None:
    """Finite numbers close, infinities the same, no NaN."""
    assert not np.any(np.isnan(got))
    np.testing.assert_allclose(got, want, rtol=16 * eps, atol=16 * eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOGITS)
def test_extreme_logits(name: str, dtype: type) -> None:
    """softmax, log_softmax, logsumexp: values and gradients, eager and compiled, along a row and along each of two."""
    x = np.array(LOGITS[name], dtype)
    wide = x.astype(np.float64)
    p, eps = exact_softmax(wide), float(np.finfo(dtype).eps)
    weights = np.cos(np.arange(x.size)).astype(dtype)
    w = weights.astype(np.float64)
    values = {
        "softmax": (sp.softmax, p, p * (w - p @ w)),
        "logsumexp": (sp.logsumexp, ss.logsumexp(wide), p * float(np.sum(w[:1]))),
        "nn.softmax": (nn.softmax, p, p * (w - p @ w)),
    }
    with np.errstate(all="ignore"):
        log_p = (wide - np.max(wide)) - np.log(np.sum(np.exp(wide - np.max(wide))))  # SciPy's loses the digits of the maximum
    values["log_softmax"] = (sp.log_softmax, log_p, w - p * np.sum(w))
    values["nn.log_softmax"] = (nn.log_softmax, log_p, w - p * np.sum(w))
    for label, (f, value, gradient) in values.items():
        result = f(x)
        assert_same_bits(fx.jit(f)(x), result, label)
        agree(np.asarray(result, np.float64), value, eps)
        finite = np.isfinite(np.atleast_1d(value))  # the loss leaves out results that are -inf, as cross entropy does

        def loss(x: Any, f: F = f, finite: np.ndarray = finite) -> Any:
            y = f(x)
            return np.sum(np.where(finite, y, 0) * weights[: finite.size]) if y.ndim else y * weights[0]

        (g,) = every_gradient(loss, x)
        if "log_softmax" in label:
            gradient = np.where(finite, w, 0) - p * np.sum(w[finite])
        agree(g, gradient, eps * x.size)
        forward_agrees(loss, (x,), (g,))


@pytest.mark.parametrize("axis", [0, 1])
def test_extreme_logits_by_rows(axis: int) -> None:
    rows = np.array([[1e4, -1e4, 0.0], [-INF, 0.0, 1.0], [5.0, 5.0, 5.0]])
    x = rows if axis == 1 else np.ascontiguousarray(rows.T)
    for f in (sp.softmax, sp.log_softmax, sp.logsumexp):
        got = np.asarray(f(x, axis=axis))
        assert_same_bits(fx.jit(lambda x, f=f: f(x, axis=axis))(x), got)
        each = np.stack([np.asarray(f(row)) for row in rows])
        assert_same_bits(got, each if got.ndim == 1 or axis == 1 else np.ascontiguousarray(each.T))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_that_are_all_minus_infinity(dtype: type) -> None:
    """logsumexp is -inf, its gradient shared evenly; a softmax of nothing but -inf has no value."""
    x = np.full(4, -INF, dtype)
    assert sp.logsumexp(x) == -INF and fx.jit(sp.logsumexp)(x) == -INF
    (g,) = every_gradient(sp.logsumexp, x)
    np.testing.assert_array_equal(g, np.full(4, 0.25, dtype))
    assert sp.logsumexp(np.array([INF, 0.0, INF], dtype)) == INF
    (g,) = every_gradient(sp.logsumexp, np.array([INF, 0.0, INF], dtype))
    np.testing.assert_array_equal(g, np.array([0.5, 0.0, 0.5], dtype))


def test_cross_entropy_of_extreme_logits() -> None:
    """-log p of the right class, the way it is written: finite where the class is likely, its gradient p - 1 everywhere."""

    def cross_entropy(x: Any) -> Any:
        return -sp.log_softmax(x)[0]

    for x in ([1e4, -1e4], [-1e4, 1e4], [0.0, -INF], [1e4, 1e4]):
        x = np.array(x)
        value, g = fx.value_and_grad(cross_entropy)(x)
        np.testing.assert_allclose(value, np.logaddexp(0.0, x[1] - x[0]), rtol=1e-14)
        np.testing.assert_allclose(g, exact_softmax(x) - np.array([1.0, 0.0]), rtol=1e-14)
        assert_same_bits(fx.jit(fx.grad(cross_entropy))(x), g)
        assert np.all(np.isfinite(fnp.asarray(g)))
