"""Faults that a new user's programs found, each with the program that showed it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.errors import FxFloatingPointError
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised


def rows(f: Any, batch: np.ndarray) -> np.ndarray:
    """What vmap(f) must give: the results of a loop over the rows."""
    return np.stack([f(row) for row in batch])


def test_a_write_into_what_a_library_call_answered() -> None:
    """jit of a batched scatter, which is a library call, with a write into its result ended in a KeyError."""

    def costs(x: Any) -> Any:
        d = fnp.full((3, 3), 5.0)
        d[fnp.triu_indices(3, 1)] = x
        fnp.fill_diagonal(d, 0.0)
        return d

    batch = np.random.default_rng(0).random((4, 3))
    assert_same_bits(fx.jit(fx.vmap(costs))(batch), rows(costs, batch))
    assert_same_bits(fx.vmap(fx.jit(costs))(batch), rows(costs, batch))


def test_the_parts_of_complex_numbers_are_views() -> None:
    """A write into z.real, z.imag or a view of them was refused as one into a read-only view; in NumPy it changes z."""

    def program(np: Any) -> Any:
        def f(x: Any) -> Any:
            z = np.zeros(6, complex)
            z[:] = x
            z.real[1] = 3.0
            z.imag[::2] += x[:3]
            z.imag = z.imag * 2.0 + 1.0
            part = np.real(z.reshape(2, 3))[1]
            part *= x[0]
            z[4] *= 2j
            return (z.real * np.arange(6.0)).sum() + (z.imag**2).sum() + part.sum()

        return f

    x = np.linspace(0.5, 1.5, 6)
    f = program(fnp)
    want, g = fx.value_and_grad(f)(x)
    np.testing.assert_allclose(want, program(np)(x), rtol=1e-14)
    assert_same_bits(fx.jit(fx.value_and_grad(f))(x), (want, g))
    for i, unit in enumerate(np.eye(6)):
        slope = (program(np)(x + 1e-6 * unit) - program(np)(x - 1e-6 * unit)) / 2e-6
        np.testing.assert_allclose(g[i], slope, rtol=1e-6, atol=1e-8)
    fx.grad(lambda x: fnp.real(x).sum() + fnp.imag(x).sum())(x)  # of real numbers: the array itself, and zeros


@pytest.mark.parametrize("f", [fnp.max, fnp.min, fnp.ptp])
def test_extrema_of_complex_numbers(f: Any) -> None:
    """An error of np.iinfo came through."""
    error = raised(lambda: fx.jit(lambda z: f(z))(np.array([1j, 2.0])), TypeError)
    assert_four_parts(
        error,
        what="of complex numbers (complex128) is not supported",
        line="fx.jit(lambda z: f(z))",
        why="They have no order",
        fix="np.abs(z)",
    )


@pytest.mark.parametrize("name", ["maximum", "minimum", "multiply", "divide", "power"])
@pytest.mark.parametrize("pairs", [False, True])
def test_ufunc_at_with_traced_indices(name: str, pairs: bool) -> None:
    """Indices that occur twice were refused where they are traced, and a constant of fxgrad.numpy is."""
    rng = np.random.default_rng(0)
    x, v = rng.random((4, 3)), rng.random((6, 3))
    i, j = np.array([0, 2, 2, 3, 0, 2]), np.array([1, 1, 0, 2, 1, 1])
    if pairs:
        v = v[:, 0]

    def f(x: Any, v: Any, i: Any, j: Any) -> Any:
        y = x.copy()
        getattr(np, name).at(y, (i, j) if pairs else i, v)
        return y

    want = f(x, v, i, j)
    assert_same_bits(fx.jit(f)(x, v, i, j), fx.jit(lambda x, v: f(x, v, i, j))(x, v))
    np.testing.assert_allclose(fx.jit(f)(x, v, i, j), want, rtol=1e-14)

    def total(x: Any, v: Any, i: Any, j: Any) -> Any:
        return (f(x, v, i, j) ** 2).sum()

    known = fx.grad(lambda x, v: total(x, v, i, j), (0, 1))(x, v)
    for got, g in zip(fx.jit(fx.grad(total, (0, 1)))(x, v, i, j), known, strict=True):
        np.testing.assert_allclose(got, g, rtol=1e-13)
    both = fx.jit(fx.vmap(f))(np.stack([x, x]), np.stack([v, v]), np.stack([i, i]), np.stack([j, j]))
    assert_same_bits(both[1], fx.jit(f)(x, v, i, j))
    with pytest.raises(IndexError):
        fx.jit(f)(x, v, i + 1, j)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: fx.scan(lambda c, _: (c + np.random.rand(), None), x, None, length=3),  # noqa: NPY002
        lambda x: fx.fori_loop(0, 3, lambda i, c: c + RNG.normal(), x),
        lambda x: fx.while_loop(lambda c: c < 3, lambda c: c + random.random(), x),
        lambda x: fx.while_loop(lambda c: c < 3 * RNG.random(), lambda c: c + 1, x),
        lambda x: fx.lax.map(lambda t: t * RNG.normal(), np.ones(3)),
        fx.grad(lambda x: fx.scan(lambda c, _: (c * RNG.random(), None), x, None, length=3)[0]),
    ],
)
def test_random_draws_in_a_loop(call: Any) -> None:
    """The body runs once for all turns: each of them had the same number, silently."""
    for _ in range(2):
        error = raised(lambda: call(1.0), fx.UnsupportedError)
        assert_four_parts(
            error, what=["draws random numbers", "in a turn of"], line="lambda", why="the same random numbers", fix="fx.random"
        )


def test_a_traced_value_in_another_thread() -> None:
    """The message said that the value had escaped from its transform, which was still running."""

    def f(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return sum(pool.map(lambda k: np.sum(x * k), [1.0, 2.0]))

    for transform in (fx.grad, fx.jit):
        error = raised(lambda transform=transform: transform(f)(np.ones(2)), fx.LeakedTracerError)  # type: ignore[misc]
        assert_four_parts(error, what="used in another thread", line="np.sum(x * k)", why="recorded", fix="fx.vmap")


@pytest.mark.parametrize(
    "call, what, fix",
    [
        (lambda x: fx.lax.dynamic_slice(x, (0, 0), (2,)), "2 start indices for an array of shape (3,)", "Pass 1 of them"),
        (lambda x: fx.lax.dynamic_slice(x, (0,), (5,)), "slice_sizes=(5,)", "np.pad"),
        (lambda x: fx.lax.dynamic_slice(x, (0,), (2, 2)), "slice_sizes=(2, 2)", "np.pad"),
        (lambda x: fx.lax.dynamic_update_slice(x, x[:1], ()), "0 start indices", "Pass 1 of them"),
        (lambda x: fx.lax.top_k(x, 5), "k=5 for an axis of length 3", "min(k, x.shape[axis])"),
        (lambda x: fx.lax.top_k(x, -1), "k=-1", "min(k, x.shape[axis])"),
    ],
)
def test_windows_that_do_not_fit(call: Any, what: str, fix: str) -> None:
    """An error of zip came through, or fewer elements than asked for came back."""
    for f in (call, fx.jit(call)):
        error = raised(lambda f=f: f(np.ones(3)), ValueError)  # type: ignore[misc]
        assert_four_parts(error, what=what, line="lambda x: fx.lax", why="", fix=fix)


# ---- fx.config.debug_nans ------------------------------------------------------------------------------------------------


@pytest.fixture
def debug_nans() -> Iterator[None]:
    fx.config.debug_nans = True
    yield
    fx.config.debug_nans = False


def loss(x: Any) -> Any:
    y = np.exp(x)
    return np.sum(np.log(y - 5.0) * 2.0)


@pytest.mark.usefixtures("debug_nans")
@pytest.mark.parametrize(
    "call",
    [
        fx.jit(loss),
        fx.grad(lambda x: loss(x) ** 2),
        fx.jit(fx.grad(lambda x: loss(x) ** 2)),
        fx.grad(fx.jit(lambda x: loss(x) ** 2)),
        fx.grad(lambda x: fx.checkpoint(loss)(x) ** 2),
        lambda x: fx.jit(fx.vmap(loss))(np.stack([x, x])),
        lambda x: fx.scan(lambda c, t: (c + loss(t * x), c), 0.0, np.ones(2)),
        lambda x: fx.jit(lambda x: fx.cond(x[0] > 0, loss, np.sum, x))(x),
    ],
)
def test_debug_nans_names_the_operation(call: Any) -> None:
    """A NaN had no answer to where it came from."""
    error = raised(lambda: call(np.ones(3)), FloatingPointError)
    assert isinstance(error, FxFloatingPointError)
    assert_four_parts(error, what=["'log' of f64", "made a NaN"], line="np.log(y - 5.0)", why="debug_nans is on", fix="np.where")


@pytest.mark.usefixtures("debug_nans")
def test_debug_nans_backward() -> None:
    """The derivative's NaN has the line of what it is the derivative of."""

    def f(x: Any) -> Any:
        return np.sum(np.sqrt(x) - np.sqrt(2.0 * x))

    assert fx.jit(f)(np.zeros(2)) == 0.0
    for call in (fx.grad(f), fx.jit(fx.grad(f)), fx.jacfwd(f)):
        error = raised(lambda call=call: call(np.zeros(2)), FloatingPointError)  # type: ignore[misc]
        assert_four_parts(error, what="made a NaN", line="np.sqrt(x) - np.sqrt(2.0 * x)", why="debug_nans is on", fix="np.where")


@pytest.mark.usefixtures("debug_nans")
def test_debug_nans_lets_pass_what_is_no_fault() -> None:
    """NaNs that np.where drops, or that the arguments have."""
    x = np.array([-1.0, 0.0, 4.0])
    assert_same_bits(fx.grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0)))(x), np.array([0.0, 0.0, 0.25]))
    assert_same_bits(fx.jit(lambda x: x * 2.0)(np.array([np.nan, 1.0])), np.array([np.nan, 2.0]))
    assert_same_bits(fx.grad(np.linalg.norm)(np.zeros(3)), np.zeros(3))


# ---- loops of no turns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_gradient_of_a_loop_whose_body_drops_the_carry(turns: int) -> None:
    """Of a while_loop that takes no turn the gradient by the start of a carry that the body does not read was 0."""

    def by_while(x: Any, n: Any) -> Any:
        return fx.while_loop(lambda s: s[1] < n, lambda s: (np.sin(x) * s[2], s[1] + 1, s[2] * 0.5), (x**3, 0, x))[0]

    def by_python(x: Any) -> Any:
        y, z = x**3, x
        for _ in range(turns):
            y, z = np.sin(x) * z, z * 0.5
        return y

    x = 1.25
    n = np.int64(turns)
    want = fx.grad(by_python)(x)
    assert_same_bits(fx.grad(by_while)(x, n), want)
    assert_same_bits(fx.jit(fx.grad(by_while))(x, n), want)
    assert_same_bits(fx.grad(fx.checkpoint(by_while))(x, n), want)
    np.testing.assert_allclose(fx.jacfwd(by_while)(x, n), want, rtol=1e-14)
    np.testing.assert_allclose(fx.grad(fx.grad(by_while))(x, n), fx.grad(fx.grad(by_python))(x), rtol=1e-14)
    lanes = fx.jit(fx.vmap(fx.grad(by_while)))(np.array([x, x]), np.array([turns, 2]))
    assert_same_bits(lanes[0], want)
    both = fx.grad(lambda x: fx.vmap(by_while, in_axes=(None, 0))(x, np.array([turns, 0])).sum())(x)
    np.testing.assert_allclose(both, want + 3 * x**2, rtol=1e-14)
    by_fori = fx.jit(fx.grad(lambda x, n: fx.fori_loop(0, n, lambda i, c: np.sin(x), x**3)))(x, n)
    assert_same_bits(by_fori, np.cos(x) if turns else 3 * x**2)


def test_a_branch_that_hands_on_a_tape() -> None:
    """Compiled code copied a tape, a Python object, byte by byte: it had one owner too few, which ended in crashes."""
    w = np.array([0.3, 0.6, 0.9])

    def f(x: Any) -> Any:
        def long(c: Any) -> Any:
            def body(s: Any) -> Any:
                ys = fx.scan(lambda c1, t: (np.where(c1 > 1.0, c, x * c) * 0.7, c1 * 1.16 + s[0] * t), x, w)[1]
                return ys.sum(0) * 0.24, s[1] + 1

            return fx.while_loop(lambda s: s[1] < 2, body, (c, 0))[0]

        def short(c: Any) -> Any:
            return fx.while_loop(lambda s: s[1] < 4, lambda s: (np.tanh(s[0] * x), s[1] + 1), (c, 0))[0]

        return fx.cond(x.sum() > 0.7, long, short, x).sum() ** 2

    for x in (np.array([0.2, 0.5, 0.8]), np.array([0.1, 0.2, 0.3])):
        with fx.disable_jit():
            want = fx.jacrev(fx.grad(f))(x)
        for _ in range(5):
            assert_same_bits(fx.jacrev(fx.grad(f))(x), want)
            assert_same_bits(fx.jit(fx.jacrev(fx.grad(f)))(x), want)
            np.testing.assert_allclose(fx.jit(fx.hessian(f))(x), want, rtol=1e-12)
