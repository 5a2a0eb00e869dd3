"""What users of other libraries tripped over; the numbers are those of the list of reported cases, the symptom is the docstring.

`gradient` asks for one derivative in every way there is: reverse and forward, eager and compiled, checkpointed and batched.
"""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.compile import cache
from fxgrad.runtime.buffers import forget_buffers
from fxgrad.testing.bits import assert_same_bits

F = Callable[..., Any]
ones, zeros, array = np.ones, np.zeros, np.array


def gradient(f: F, x: Any, want: Any, *, known: bool = False, rtol: float = 1e-12) -> None:
    """The derivative of a scalar function, each way; `known` for functions that look at values, which jit and vmap refuse."""
    eager = fx.grad(f)(x)
    assert np.shape(eager) == np.shape(x)
    np.testing.assert_allclose(eager, want, rtol=rtol, atol=1e-12)  # a NaN equals only a NaN
    reverse = [fx.grad(fx.checkpoint(f))(x), fx.value_and_grad(f)(x)[1], fx.vjp(f, x)[1](1.0)[0]]
    if not known:
        reverse += [fx.jit(fx.grad(f))(x), fx.grad(fx.jit(f))(x), fx.vmap(fx.grad(f))(np.stack([x, x]))[1]]
    for other in reverse:
        assert_same_bits(other, eager)
    forward = [fx.jit(f)] if not known else []
    for h in (f, *forward):
        columns = [fx.jvp(h, (x,), (unit,))[1] for unit in units(x)]
        np.testing.assert_allclose(np.reshape(columns, np.shape(x)), want, rtol=rtol, atol=1e-12)
        assert_same_bits([fx.linearize(h, x)[1](unit) for unit in units(x)], columns)


def units(x: Any) -> Iterator[Any]:
    """The unit vectors of x's space, in its dtype."""
    x = np.asarray(x)
    for i in range(x.size):
        unit = np.zeros(x.size, x.dtype)
        unit[i] = 1
        yield unit.reshape(x.shape) if x.ndim else unit[0]


def value(f: F, *args: Any) -> Any:
    """f's value, after making sure that eager evaluation, jit and jit op by op agree to the bit."""
    compiled = fx.jit(f)(*args)
    with fx.disable_jit():
        assert_same_bits(fx.jit(f)(*args), compiled)
    assert_same_bits(fx.vjp(f, *args)[0], compiled)
    return compiled


@contextmanager
def kernels_generated(at_most: int) -> Iterator[None]:
    """The block generates no more kernels than that."""
    before = len(cache.generated)
    yield
    assert len(cache.generated) - before <= at_most


# ---- 1 to 21: wrong or NaN gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [[-1.0, 4.0], [0.0, 4.0]])
def test_1_branch_not_taken(x: Any) -> None:
    """NaN from the branch `where` did not take poisons the gradient."""
    gradient(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)), array(x), [0, 0.25])
    _, t = fx.jvp(lambda x: np.where(x > 0, np.sqrt(x), 0.0), (array(x),), (ones(2),))
    assert_same_bits(t, array([0.0, 0.25]))


def test_2_norm_and_std_at_zero() -> None:
    """The norm and the standard deviation at a zero radicand give NaN, even where the composite is smooth."""
    gradient(lambda x: np.linalg.norm(x) ** 2, zeros(3), zeros(3))
    gradient(lambda x: np.std(x) ** 2, ones(4), zeros(4))
    gradient(lambda x: np.sum(np.linalg.norm(x, axis=-1) ** 2), zeros((1, 2)), zeros((1, 2)))
    gradient(np.linalg.norm, zeros(3), zeros(3))
    gradient(lambda x: np.linalg.norm(x, 3), zeros(3), zeros(3))
    gradient(np.std, ones(4), zeros(4))
    gradient(np.linalg.norm, array([3.0, 4.0]), [0.6, 0.8])
    gradient(np.std, array([1.0, 3.0]), [-0.5, 0.5])
    gradient(np.sqrt, 0.0, np.inf)


def test_3_ties() -> None:
    """Ties of max and maximum, and abs at 0, differ between equivalent spellings."""
    gradient(np.max, ones(4), [0.25] * 4)
    gradient(lambda x: x.max(), ones(4), [0.25] * 4)
    gradient(np.maximum.reduce, ones(4), [0.25] * 4)
    gradient(np.min, ones(3), [1 / 3] * 3)
    gradient(lambda x: x[np.argmax(x)], ones(4), [1, 0, 0, 0])
    gradient(lambda x: np.maximum(x, 0.0), 0.0, 0.5)
    gradient(lambda x: np.minimum(x, 0.0), 0.0, 0.5)
    for absolute in (np.abs, abs, np.fabs, lambda x: np.max(np.abs(x))):
        gradient(absolute, 0.0, 0.0)
    for n in (2, 3, 7, 49):
        assert np.sum(fx.grad(np.max)(ones(n))) == pytest.approx(1, abs=1e-15)


def test_5_powers_and_dropped_nans() -> None:
    """A power with a zero base or exponent gives NaN; NaNs that nan-reductions drop still leak through x**2."""
    gradient(lambda x: np.power(x, 0.0), 0.0, 0.0)
    gradient(lambda x: x**0, 0.0, 0.0)
    gradient(lambda y: np.power(0.0, y), 2.0, 0.0)
    gradient(lambda x: np.power(x, 2.0), 0.0, 0.0)
    gradient(lambda x: np.power(x, 1.0), 0.0, 1.0)
    gradient(lambda x: np.power(x, 3), -2.0, 12.0)
    gradient(lambda y: np.power(-2.0, y), 2.0, np.nan)  # not real on either side of 2
    gradient(lambda x: np.nanmean(x**2), array([np.nan, 1.0, 2.0, 3.0, 4.0]), [0, 0.5, 1, 1.5, 2])
    gradient(lambda x: np.nansum(np.log(x)), array([np.nan, 1.0, 2.0]), [0, 1, 0.5])


def test_6_log_space() -> None:
    """Log-space code with -inf, and masked reductions whose masked entry overflows, give NaN."""
    for f in (lambda x: np.logaddexp(-np.inf, x), lambda x: np.logaddexp(x, -np.inf)):
        assert value(f, 1.0) == 1.0 and value(f, -np.inf) == -np.inf
        gradient(f, 1.0, 1.0)
        assert np.isfinite(fx.grad(f)(-np.inf)) and np.isfinite(fx.jvp(f, (-np.inf,), (1.0,))[1])
        assert_same_bits(fx.jit(fx.grad(f))(-np.inf), fx.grad(f)(-np.inf))
    mask = array([True, False])
    gradient(lambda x: np.log(np.sum(np.exp(x), where=mask)), array([0.0, 1000.0]), [1, 0])
    gradient(lambda x: np.max(1 / x, where=mask, initial=-1.0), array([2.0, 0.0]), [-0.25, 0])
    gradient(lambda x: np.mean(np.exp(x), where=mask), array([0.0, 1000.0]), [1, 0])


def test_8_dead_store() -> None:
    """A value that is overwritten is not dead for the gradient."""
    gradient(lambda x: np.zeros_like(x).at[0].set(np.sqrt(x[0])).at[0].set(x[0] - 1.0)[0], zeros(1), [1])


def test_9_products_with_zeros() -> None:
    """The derivative of a product divides by its factors."""
    gradient(np.prod, array([0.0, 2.0, 3.0]), [6, 0, 0])
    gradient(np.prod, array([0.0, 0.0, 3.0]), [0, 0, 0])
    gradient(lambda x: np.cumprod(x).sum(), array([2.0, 0.0, 3.0, 4.0]), [1, 32, 0, 0])
    gradient(lambda x: (np.cumprod(x) ** 2).sum(), array([1.0, 0.0]), [2, 0])
    lanes = array([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]])
    gradient(lambda x: np.prod(x, axis=1).sum(), lanes, [[6, 0, 0], [0, 0, 0]])
    gradient(lambda x: np.prod(x.T, axis=0).sum(), lanes, [[6, 0, 0], [0, 0, 0]])
    lanes = array([[2.0, 0.0, 3.0, 4.0], [1.0, 2.0, 0.0, 5.0]])
    want = [[1, 32, 0, 0], [3, 1, 12, 0]]
    gradient(lambda x: np.cumprod(x, axis=1).sum(), lanes, want)
    gradient(lambda x: np.cumprod(x, axis=0).sum(), lanes.T, np.transpose(want))


def test_10_clip() -> None:
    """The gradient of clip differs at the bounds, or is squared where more than one flows in."""
    x = array([-1.0, 0.0, 0.5, 1.0, 2.0])
    for clip in (lambda x: np.clip(x, 0.0, 1.0), lambda x: x.clip(0.0, 1.0), lambda x: np.clip(x, a_min=0.0, a_max=1.0)):
        gradient(lambda x: np.sum(3.0 * clip(x)), x, [0, 3, 3, 3, 0])
    gradient(lambda x: np.sum(3.0 * np.clip(x, 0.0, None)), x, [0, 3, 3, 3, 3])


def test_11_order_statistics() -> None:
    """The median is missing, and ties of quantile and sort differ between eager and compiled."""
    gradient(np.median, array([3.0, 1.0, 2.0, 4.0]), [0.5, 0, 0.5, 0])
    gradient(np.median, array([3.0, 1.0, 2.0]), [0, 0, 1])
    gradient(lambda x: np.sort(x)[0], ones(3), [1, 0, 0])
    gradient(lambda x: np.sort(x)[1], ones(3), [0, 1, 0])
    gradient(lambda x: np.quantile(x, 0.25), array([3.0, 1.0, 2.0, 4.0]), [0, 0.25, 0.75, 0])
    gradient(lambda x: np.quantile(x, 0.5), ones(3), [0, 1, 0])
    gradient(lambda x: np.median(x, axis=0).sum(), np.arange(6.0).reshape(3, 2), [[0, 0], [1, 1], [0, 0]])


def test_12_singular_and_repeated() -> None:
    """det of a singular matrix gives NaN or an error, functions of eigenvalues NaN where these are repeated."""
    gradient(np.linalg.det, array([[1.0, 2.0], [2.0, 4.0]]), [[4, -2], [-2, 1]])
    gradient(np.linalg.det, zeros((4, 4)), zeros((4, 4)))
    gradient(lambda a: np.linalg.eigvalsh(a).sum(), np.eye(3), np.eye(3))
    gradient(lambda a: np.linalg.eigh(a)[0].sum(), np.eye(3), np.eye(3))
    gradient(lambda a: np.linalg.svd(a, compute_uv=False).sum(), np.eye(3), np.eye(3))


def test_14_what_numpy_reads() -> None:
    """cholesky's gradient has entries in the triangle NumPy never reads; the JVP of solve is wrong for asymmetric tangents."""
    b = array([[4.0, 1.0], [1.0, 3.0]])
    gradient(lambda a: np.linalg.cholesky(a, upper=True).sum(), b, [[0.20634446, 0.34924433], [0, 0.30151134]], rtol=1e-7)
    gradient(lambda a: np.linalg.cholesky(a).sum(), b, [[0.20634446, 0], [0.34924433, 0.30151134]], rtol=1e-7)
    a, c = array([[1.0, -1.0], [-1.0, 2.0]]), array([[0.0, 1.0], [0.0, 0.0]])
    for f in (np.linalg.solve, fx.jit(np.linalg.solve)):
        y, t = fx.jvp(lambda m, f=f: f(m, fnp.ones(2)), (a,), (c,))
        np.testing.assert_allclose((y, t), ([3, 2], [-4, -2]), rtol=1e-14)


def test_15_integer_inputs() -> None:
    """The gradient by an integer is silently 0, cut off, or an opaque crash."""
    for f, x, name in ((lambda x: x**2, 3, "'x'"), (np.sum, np.arange(4), "'a'")):
        for transform in (fx.grad, fx.value_and_grad, fx.jacrev, fx.jacfwd, lambda f: fx.jit(fx.grad(f))):
            with pytest.raises(TypeError, match=r"argument .*int64") as caught:
                transform(f)(x)
            assert name in str(caught.value) and ".astype(float)" in str(caught.value)
    index = array([0, 0])
    assert_same_bits(fx.grad(lambda x, i: x[i].sum())(ones(3), index), array([2.0, 0, 0]))
    assert_same_bits(fx.jit(fx.grad(lambda x, i: x[i].sum()))(ones(3), index), array([2.0, 0, 0]))
    y, t = fx.jvp(lambda x, i: x[i].sum(), (ones(3), index), (ones(3), None))
    assert y == 2 and t == 2
    assert fx.vjp(lambda x, i: x[i].sum(), ones(3), index)[1](1.0)[1] is None


def test_18_zero_sizes() -> None:
    """Arrays of no elements crash the transform although NumPy is happy."""
    none = array([], int)
    assert_same_bits(fx.value_and_grad(lambda p: np.prod(np.take(p, none)))(ones(6)), (np.float64(1), zeros(6)))
    gradient(lambda p: np.prod(np.take(p, none)), ones(6), zeros(6))
    for f in (np.sum, np.prod, lambda x: np.sum(np.sin(x) @ ones((0, 2)))):
        gradient(f, zeros(0), zeros(0))
    gradient(lambda x: np.sum(np.broadcast_to(x, (4, 3))), ones(3), [4, 4, 4])
    for double in (fx.vmap(lambda x: x * 2), fx.jit(fx.vmap(lambda x: x * 2))):
        assert double(zeros((0, 3))).shape == (0, 3)
    for transform in (fx.grad, fx.jit, fx.eval_shape):
        with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
            transform(np.max)(zeros(0)) if transform is not fx.eval_shape else fx.eval_shape(np.max, zeros(0))


def test_19_repeated_indices() -> None:
    """An index that is gathered twice is counted once."""
    gradient(lambda x: np.sum(x[[0, 0, 2, -3]]), ones(3), [3, 0, 1])
    gradient(lambda x: np.sum(np.take(x, [0, 0]) ** 2), array([3.0]), [12])
    gradient(lambda x: np.sum(x[np.array([[0, 1], [1, 1]])] ** 2), array([1.0, 2.0]), [2, 12])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_21_dtypes_of_derivatives(dtype: str) -> None:
    """float32 inputs come back with float64 gradients, or tangents drift to float64."""
    x = ones(3, dtype)
    for f in (lambda x: np.sum(x * np.float64(2)), np.max, np.mean, np.std, np.linalg.norm, np.prod, lambda x: x[[0, 0]].sum()):
        for wrap in (lambda g: g, fx.jit):
            assert wrap(fx.grad(f))(x).dtype == dtype
            assert wrap(lambda x: fx.jvp(f, (x,), (x,)))(x)[1].dtype == f(x).dtype
    for jacobian in (fx.jacfwd, fx.jacrev):
        assert jacobian(lambda x: x + 1.0)(x).dtype == dtype
    for f in (lambda x: x.sum(), fx.jit(lambda x: x.sum())):
        _, pullback = fx.vjp(f, x)
        assert_same_bits(pullback(1.0)[0], ones(3, dtype))


# ---- 22 to 33: tracing and jit -------------------------------------------------------------------------------------------


def test_24_escaped_value() -> None:
    """A value stashed in a list during tracing explodes later with no hint."""
    stash: list[Any] = []

    def keep(x: Any) -> Any:
        stash.append(x * 2)
        return x

    for transform, name in ((fx.jit, "jit"), (fx.grad, "grad"), (lambda f: lambda x: fx.vmap(f)(ones(2)), "vmap")):
        stash.clear()
        transform(keep)(1.0)
        for use in (
            lambda v: v + 1,
            lambda v: 1 - v,
            bool,
            float,
            np.sin,
            lambda v: v[None],
            lambda v: fx.grad(lambda x: x * v)(1.0),
        ):
            with pytest.raises(fx.LeakedTracerError) as caught:
                use(stash[0])
            text = str(caught.value)
            assert f"a traced f64[] escaped from {name} of 'keep'" in text, text
            assert "test_reported_cases.py:" in text and "stash.append(x * 2)" in text


SCALE = 10.0


def test_25_rebound_global() -> None:
    """A global or closure variable that is rebound is frozen at its first value, silently."""
    global SCALE
    f = fx.jit(lambda x: x * SCALE)
    assert f(1.0) == 10.0
    try:
        SCALE = 20.0
        assert f(1.0) == 20.0 and fx.grad(f)(1.0) == 20.0
    finally:
        SCALE = 10.0
    scale = 10.0
    g = fx.jit(lambda x: x * scale)
    assert g(1.0) == 10.0
    scale = 20.0
    assert g(1.0) == 20.0 and fx.grad(g)(1.0) == 20.0


def test_25_random_draws_under_jit() -> None:
    """NumPy's random numbers, drawn while jit traces, would be the same at every call."""
    rng = np.random.default_rng(0)
    for draw in (np.random.rand, lambda: rng.normal(), lambda: np.random.normal(size=3)):  # noqa: NPY002
        with pytest.raises(fx.FxError, match="random") as caught:
            fx.jit(lambda x: x * draw())(1.0)
        assert "test_reported_cases.py:" in str(caught.value) and "fx.jit(lambda x: x * draw())" in str(caught.value)
        assert "rng.normal(size=n)" in str(caught.value)
    assert fx.grad(lambda x: x * rng.normal())(1.0) != fx.grad(lambda x: x * rng.normal())(1.0)


def test_27_attributes_of_methods() -> None:
    """A jitted method keeps using the old attribute; with a `__hash__` of its own the result is even random."""

    class Plain:
        def __init__(self) -> None:
            self.k = 1.0

        def call(self, x: Any) -> Any:
            return x + self.k

    class Hashed(Plain):
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return True

    for kind in (Plain, Hashed):
        for _ in range(100):
            m = kind()
            f = fx.jit(m.call)
            assert f(1.0) == 2.0
            m.k = 2.0
            assert f(1.0) == 3.0


def test_29_masks_of_static_shape() -> None:
    """Selecting by a mask has a static shape where it fills, or where the mask is known; still it is rejected under jit."""

    def f(x: Any) -> Any:
        return x.at[x < 5].set(0.0)

    want = np.where(np.arange(10.0) < 5, 0.0, np.arange(10.0))
    assert_same_bits(fx.jit(f)(np.arange(10.0)), want)
    gradient(lambda x: f(x).sum(), np.arange(10.0), np.arange(10) >= 5)
    mask = array([[True, False, True], [False, True, False]])
    x = np.arange(6.0).reshape(2, 3)
    assert_same_bits(fx.jit(lambda x: x[np.newaxis, mask])(x), x[np.newaxis, mask])
    assert fx.jit(lambda x: x[np.newaxis, mask])(x).shape == (1, 3)


def test_30_data_dependent_shapes() -> None:
    """A shape or an `if` that depends on data gives an error that does not help; known masks should just work."""
    keep = array([True, False, True])
    assert fx.jit(lambda x: x[keep].sum())(np.arange(3.0)) == 2.0
    gradient(lambda x: x[x > 0].sum(), array([-1.0, 2.0]), [0, 1], known=True)
    gradient(lambda x: x.sum() if x.sum() > 0 else -x.sum(), array([-1.0, 0.5]), [-1, -1], known=True)
    for fails, words in (
        (lambda: fx.jit(lambda x: x[x > 0])(np.arange(3.0)), ["x[x > 0]", "np.where"]),
        (lambda: fx.vmap(lambda x: x if x.sum() > 0 else -x)(ones((2, 3))), ["if x.sum() > 0", "np.where", "fx.cond"]),
    ):
        with pytest.raises(fx.ConcretizationError, match=r"test_reported_cases.py:\d+") as caught:
            fails()
        assert all(w in str(caught.value) for w in words), str(caught.value)


def test_32_retraced_methods() -> None:
    """`jit(obj.f)`, or an argument given by keyword, traces and compiles again."""
    calls = 0

    class A:
        def f(self, x: Any, y: Any = 1.0) -> Any:
            nonlocal calls
            calls += 1
            return x * y

    a = A()
    f = fx.jit(a.f)
    assert f(1.0) == 1.0 and f(1.0, 1.0) == 1.0
    with kernels_generated(at_most=0):
        assert f(1.0) == 1.0 and f(1.0, 1.0) == 1.0 and f(1.0, y=1.0) == 1.0 and f(x=1.0, y=1.0) == 1.0
        assert calls == 2
        assert fx.jit(a.f)(1.0) == 1.0


def test_33_custom_rule_over_a_traced_value() -> None:
    """A custom_vjp function that closes over a traced value ends in an internal error, or in a gradient of 0."""

    def outer(a: Any, x: Any) -> Any:
        @fx.custom_vjp
        def h(x: Any) -> Any:
            return a * x

        h.defvjp(lambda x: (a * x, None), lambda res, g: (a * g,))
        return h(x)

    assert fx.jit(outer)(2.0, 3.0) == 6.0
    assert fx.grad(outer, argnums=1)(2.0, 3.0) == 2.0
    assert fx.grad(fx.jit(outer), argnums=1)(2.0, 3.0) == 2.0 and fx.jit(fx.grad(outer, argnums=1))(2.0, 3.0) == 2.0
    for g in (fx.grad(outer, argnums=0), fx.grad(fx.jit(outer), argnums=0), fx.jit(fx.grad(outer)), fx.grad(outer, (0, 1))):
        with pytest.raises(fx.NonDifferentiableError, match="closes over a differentiated value") as caught:
            g(2.0, 3.0)
        assert "as an argument" in str(caught.value)


# ---- 37 to 49: compile time, memory, threads, aliasing ---------------------------------------------------------------------


def test_37_unrolled_loops() -> None:
    """Compile time of an unrolled loop grows faster than the loop: here what is compiled grows as the loop does.

    The seconds are in `python -m bench --only startup`.
    """

    def size(n: int) -> int:
        def f(x: Any) -> Any:
            for _ in range(n):
                x = np.sin(x) * 1.01 + 0.1
            return x.sum()

        return len(fx.jit(fx.grad(f)).lower(ones(10)).compile().as_text())

    assert size(60) <= 2.5 * size(30)


def block(x: Any) -> Any:
    for _ in range(50):
        x = np.tanh(x) * 1.01
    return x


def peak(f: F, x: Any) -> int:
    """Bytes allocated at the worst moment of a call, after one that compiles."""
    f(x)
    gc.collect()
    forget_buffers()
    tracemalloc.start()
    f(x)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    planned = f.lower(x).compile().memory_analysis() if hasattr(f, "lower") else None  # large work space is no Python memory
    return found + planned.temp_bytes if planned is not None else found


@pytest.mark.slow
def test_41_checkpoint() -> None:
    """Merging equal expressions under jit undoes checkpointing; checkpoint changes the value, or draws random numbers again."""
    kept = fx.checkpoint(block)

    def f(x: Any) -> Any:
        return block(block(block(block(x)))).sum()

    def fc(x: Any) -> Any:
        return kept(kept(kept(kept(x)))).sum()

    x = np.linspace(-1, 1, 20_000)
    assert_same_bits(fx.jit(fc)(x), fx.jit(f)(x))
    for wrap in (lambda g: g, fx.jit):
        full, small = wrap(fx.grad(f)), wrap(fx.grad(fc))
        assert_same_bits(small(x), full(x))
        assert peak(small, x) < 0.5 * peak(full, x), wrap

    rng, drawn = np.random.default_rng(0), []

    def noisy(x: Any) -> Any:
        drawn.append(rng.normal(size=3))
        return np.sum(np.sin(x) * drawn[-1])

    g = fx.grad(fx.checkpoint(noisy))(zeros(3))
    assert_same_bits(g, drawn[-1] * 1.0)


def test_42_fresh_lambdas_share_kernels() -> None:
    """Jitting a fresh lambda compiles it again, and machine code is never freed."""
    x = np.linspace(0, 1, 10)
    first = fx.jit(lambda x: np.sin(x) * 2)(x)
    with kernels_generated(at_most=0):
        results = [fx.jit(lambda x: np.sin(x) * 2)(x) for _ in range(500)]
    assert all(np.array_equal(r, first) for r in results)


def test_45_threads() -> None:
    """The state of tracing is one for the process, so that threads mix their programs."""
    shared = fx.jit(lambda x: np.cumsum(np.cos(x) * 3.25))
    x, problems = np.linspace(0, 1, 7), []
    want = fx.vjp(lambda x: np.cumsum(np.cos(x) * 3.25), x)[0]
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        try:
            start.wait()
            assert_same_bits(shared(x), want)
            for i in range(200):
                k = float(seed * 1000 + i)
                assert_same_bits(fx.grad(lambda x: np.sum(x * k))(ones(3)), np.full(3, k))
                if i == 0:
                    assert_same_bits(fx.jit(fx.grad(lambda x: np.sum(x * k)))(ones(3)), np.full(3, k))
        except BaseException as e:  # noqa: BLE001
            problems.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems


def test_49_results_are_fresh() -> None:
    """A jitted function returns the caller's own array, or one array twice; editing it edits the other."""
    x = zeros(5)
    for f in (fx.jit(lambda x: (x, x)), lambda x: fx.vjp(lambda x: (x, x), x)[0]):
        a, b = f(x)
        a[0] = 9
        assert x[0] == 0 and b[0] == 0
    for transform in (fx.value_and_grad, lambda f: fx.jit(fx.value_and_grad(f))):
        _, g = transform(lambda x: x.sum())(x)
        assert g.flags.writeable and g.base is None and g.strides == (8,)
        g[0] = 5
        assert x[0] == 0
    constant = fx.jit(lambda: np.zeros(3))
    constant()[0] = 7
    assert_same_bits(constant(), zeros(3))
    table = np.arange(3.0)
    captured = fx.jit(lambda: (table, fnp.zeros(3), fnp.zeros(3)))
    for y in captured():
        y[0] = 7
    assert table[0] == 0 and captured()[1][0] == 0


# ---- 52 to 54: NumPy ---------------------------------------------------------------------------------------------------------


def test_52_filling_a_plain_array() -> None:
    """Filling a buffer of np.zeros ends in "float() argument must be a string or a real number"."""

    def f(b: Any) -> Any:
        c = np.zeros(2)
        c[0] = b[0] * b[0]
        return c

    for transform in (fx.jacrev, fx.jacfwd, fx.jit, fx.grad):
        with pytest.raises((TypeError, ValueError)) as caught:
            transform(f)(array([1.0, 2.0, 2.0]))
        error = caught.value if isinstance(caught.value, fx.FxError) else caught.value.__cause__
        assert isinstance(error, fx.FxError) and "c[0] = b[0] * b[0]" in str(error) and ".at[" in str(error), str(error)

    def working(b: Any) -> Any:
        c = np.zeros_like(b, shape=2)
        return c.at[0].set(b[0] * b[0]).at[1].set(b[1] * b[0] + b[2])

    for jacobian in (fx.jacrev, fx.jacfwd, lambda f: fx.jit(fx.jacrev(f))):
        np.testing.assert_array_equal(jacobian(working)(array([1.0, 2.0, 2.0])), [[2, 0, 0], [2, 1, 1]])


def add_to(b: Any, v: Any) -> None:
    b += v


def into_buffer(x: Any) -> Any:
    buffer = np.zeros(3)
    add_to(buffer, x)
    return np.sum(buffer)


@pytest.mark.parametrize("transform", [fx.grad, fx.value_and_grad, fx.jit, lambda f: lambda x: fx.jvp(f, (x,), (x,))])
def test_53_writes_into_plain_arrays(transform: Any) -> None:
    """`buffer += x` only rebinds a local name; np.full_like and others return memory that was never written."""
    plain, square, i = zeros(3), zeros((2, 2)), array([0, 1])
    with pytest.raises(fx.MutationError, match=r"b \+= v"):
        transform(into_buffer)(ones(3))
    for f in (
        lambda x: np.full_like(zeros(3), x).sum(),
        lambda x: np.full(3, x, dtype=float).sum(),
        lambda x: np.nan_to_num(plain, nan=x).sum(),
        lambda x: np.add(plain, x, out=plain).sum(),
        lambda x: np.sin(x, out=plain[0]),
        lambda x: np.add.at(plain, i, x),
        lambda x: np.put(plain, i, x),
        lambda x: np.place(plain, plain == 0, x),
        lambda x: np.putmask(plain, plain == 0, x),
        lambda x: np.copyto(plain, x),
        lambda x: np.put_along_axis(plain, i, x, 0),
        lambda x: np.sum(x, out=plain),
        lambda x: np.clip(x, 0, 1, out=plain),
        lambda x: np.cumsum(x, out=plain),
        lambda x: np.matmul(x, x, out=plain),
        lambda x: np.concatenate([x[None], x[None], x[None]], out=plain),
        lambda x: np.fill_diagonal(square, x),
        lambda x: plain.fill(x),
    ):
        with pytest.raises((fx.FxError, TypeError, ValueError)) as caught:
            transform(f)(2.0)
        error = caught.value if isinstance(caught.value, fx.FxError) else caught.value.__cause__
        assert isinstance(error, fx.FxError) and "test_reported_cases.py:" in str(error), repr(caught.value)
        assert not plain.any() and not square.any()


def test_54_where_dispatch_does_not_reach() -> None:
    """Lists of traced values, math.*, float() and indexing a plain table never reach NumPy's dispatch."""
    gradient(lambda x: fnp.mean([x, x + 2]), 0.0, 1.0)
    want = zeros((2, 2, 3))
    want[0, 0, 0] = want[0, 1, 1] = want[1, 0, 2] = want[1, 1, 0] = 1
    for build in (
        lambda t: fnp.array([[t[0], t[1]], [t[2], t[0]]]),
        lambda t: np.array([[t[0], t[1]], [t[2], t[0]]], like=t),
        lambda t: np.stack([np.stack([t[0], t[1]]), np.stack([t[2], t[0]])]),
    ):
        for jacobian in (fx.jacrev, fx.jacfwd, lambda f: fx.jit(fx.jacrev(f))):
            np.testing.assert_array_equal(jacobian(build)(ones(3)), want)
    table = np.arange(5.0)
    assert_same_bits(fx.jit(lambda i: fx.asarray(table)[i] * 2)(array([1, 3])), array([2.0, 6.0]))
    gradient(abs, -2.0, -1.0)
    for fails, words in (
        (lambda: fx.grad(lambda x: np.mean([x, x + 2]))(0.0), ["np.mean([x, x + 2])", "np.stack"]),
        (lambda: fx.jacrev(lambda t: np.array([[t[0], t[1]], [t[2], t[0]]]))(ones(3)), ["np.array([[t[0]", "fxgrad.numpy.array"]),
        (lambda: fx.jit(lambda i: table[i] * 2)(array([1, 3])), ["table[i] * 2", "fx.asarray(table)[i]"]),
        (lambda: fx.jit(lambda i: table[i] * 2)(1), ["table[i] * 2", "fx.asarray(table)[i]"]),
        (lambda: fx.grad(lambda x: math.exp(x))(1.0), ["math.exp(x)", "np.exp for math.exp"]),
        (lambda: fx.grad(lambda x: float(x) * x)(1.0), ["float(x) * x", "fx.stop_gradient(x)"]),
    ):
        with pytest.raises((TypeError, ValueError, IndexError)) as caught:
            fails()
        error = caught.value if isinstance(caught.value, fx.FxError) else caught.value.__cause__
        assert isinstance(error, fx.FxError), repr(caught.value)
        assert all(w in str(error) for w in words), str(error)


# ---- 55 to 59: reproducibility -------------------------------------------------------------------------------------------------


def test_55_compiled_is_eager() -> None:
    """Compiled results differ from eager ones in the last bits: contraction, algebraic rewrites."""
    value(lambda x: np.cos(x / 2) + 0 * np.sin(x / 2), np.linspace(-2, 2, 101))
    a, b, c = np.random.default_rng(0).normal(size=(3, 1_000_000))
    assert_same_bits(value(lambda a, b, c: a * b + c, a, b, c), a * b + c)
    special = array([np.nan, np.inf, -np.inf, -1.0, -0.0, 0.0])
    with np.errstate(invalid="ignore"):
        assert_same_bits(value(lambda x: x * 0, special), special * 0)
        assert_same_bits(value(lambda x: x - x, special), special - special)
    assert_same_bits(value(lambda x: (x + 0.0, x - 0.0, x * 1, x / 1), special), (special + 0.0, special, special, special))
    assert_same_bits(value(lambda x: (x + 1e16) - 1e16, special), (special + 1e16) - 1e16)


REPEAT = """
import numpy as np, fxgrad as fx
f = lambda x: np.sum(np.sin(x) ** 2) + np.sum(np.where(x > 0.3, x, 1.0))
x = np.random.default_rng(0).random(300_001)
import hashlib
compiled, eager = fx.jit(fx.value_and_grad(f)), fx.value_and_grad(f)
digest = lambda pair: hashlib.sha256(pair[0].tobytes() + pair[1].tobytes()).hexdigest()
print(*{digest(g(x)) for g in (compiled, eager) for _ in range(10)})
"""


@pytest.mark.slow
def test_57_one_result_whatever_the_threads() -> None:
    """Results vary with the number of threads or from call to call."""
    found = set()
    for threads in ("1", "2", "3", "8"):
        variables = dict.fromkeys(("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), threads)
        done = subprocess.run(
            [sys.executable, "-c", REPEAT],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        found.update(done.stdout.split())
    assert len(found) == 1, found


def test_58_layout_does_not_matter() -> None:
    """NumPy's sum depends on memory order and its vector loops are not libm's; compiled code then differs from eager."""
    a = np.random.default_rng(0).random((3, 20_001))
    for f in (lambda a: a.sum(1), lambda a: a.sum(0), lambda a: a.mean(), lambda a: np.exp(a).sum(1), lambda a: np.cumsum(a, 1)):
        want = value(f, a)
        for other in (np.asfortranarray(a), np.repeat(a, 2, axis=1)[:, ::2], np.ascontiguousarray(a[::-1])[::-1]):
            assert_same_bits(value(f, other), want)
    x = np.linspace(0.1, 3, 5_000)
    for ufunc in (np.exp, np.log, np.tanh, np.expm1, np.cbrt, np.sinh, np.arcsin, np.log1p):
        with np.errstate(invalid="ignore"):
            assert_same_bits(value(ufunc, x)[::7], np.array([fx.jit(ufunc)(v) for v in x[::7]]))
    b = np.arange(10) + 2**60
    assert fx.jit(lambda a: np.sum(a - np.sum(a / a.size)))(b) == 0.0


def test_59_division_by_zero_and_nan() -> None:
    """isnan is False under fast-math; division by zero raises."""
    assert_same_bits(value(np.isnan, array([np.nan, 1.0])), array([True, False]))
    with np.errstate(all="raise"):
        assert value(lambda x: 1.0 / x, np.float64(0)) == np.inf
        assert_same_bits(fx.jit(lambda a, b: a // b)(array([1]), array([0])), array([0]))
        assert_same_bits(fx.jit(lambda a, b: a % b)(array([1]), array([0])), array([0]))
        assert_same_bits(value(lambda x: np.log(x), array([0.0, -1.0])), array([-np.inf, np.nan]))
    with np.errstate(all="ignore"):
        a, b = array([-7, 7, -128, 0]), array([2, -2, -1, 0])
        assert_same_bits(fx.jit(lambda a, b: (a // b, a % b))(a, b), (a // b, a % b))


# ---- 60 and 62: features and messages ----------------------------------------------------------------------------------------


def test_60_hessian() -> None:
    """Users take elementwise derivatives twice for the diagonal of the Hessian."""
    x, want = array([1.0, 2.0, 3.0]), [[6, 1, 0], [1, 12, 1], [0, 1, 18]]

    def f(x: Any) -> Any:
        return np.sum(x[1:] * x[:-1]) + np.sum(x**3)

    for hessian in (fx.hessian(f), fx.jit(fx.hessian(f)), fx.hessian(fx.jit(f)), fx.jacrev(fx.grad(f)), fx.jacfwd(fx.grad(f))):
        np.testing.assert_allclose(hessian(x), want, rtol=1e-14)
    np.testing.assert_allclose([fx.hvp(f, (x,), (u,)) for u in np.eye(3)], want, rtol=1e-14)


def test_62_messages() -> None:
    """Opaque errors for outputs that are not scalar, and for custom rules that return the wrong thing."""
    with pytest.raises(TypeError, match=r"scalar output, got shape \(1,\)") as caught:
        fx.grad(lambda x: x**2)(ones(1))
    assert all(w in str(caught.value) for w in ("y.sum()", "fx.jacrev", "y[0]"))
    h = fx.custom_vjp(lambda x: x)
    h.defvjp(lambda x: (x, ()), lambda res, g: (np.ones(10),))
    for g in (fx.grad(h), fx.jit(fx.grad(h)), fx.grad(fx.jit(h))):
        with pytest.raises(ValueError, match=r"bwd of custom_vjp .* output 0 has shape \(10,\), argument has shape \(\)"):
            g(3.14)


def test_the_helper_sees_every_mode() -> None:
    """`gradient` fails when a single mode is wrong."""

    def only_under(name: str) -> F:
        def f(x: Any) -> Any:
            trace = x._trace
            while trace is not None and trace.transform != name:
                trace = trace.parent
            return x * (3.0 if trace is not None else 2.0)

        return f

    for name in ("jit", "jvp", "vjp", "vmap", "checkpoint", "value_and_grad", "linearize"):
        with pytest.raises(AssertionError):
            gradient(only_under(name), 1.0, 2.0)
    gradient(only_under("nothing"), 1.0, 2.0)
