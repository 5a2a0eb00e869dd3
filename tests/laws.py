"""The laws every operation obeys, as functions of a case: the generic tests call them, and so do the tests of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.cases import Case

STEP = 1e-4
F = Callable[..., Any]


def random_like(x: Any, seed: int) -> np.ndarray:
    x = np.asarray(x)
    return np.asarray(np.random.default_rng(seed).uniform(-1, 1, x.shape)).astype(x.dtype)


def central_difference(f: F, args: Sequence[np.ndarray], tangents: Sequence[np.ndarray]) -> np.ndarray:
    """Fourth-order central difference of f along the tangents."""

    def at(h: float) -> np.ndarray:
        return np.asarray(f(*[a + h * t for a, t in zip(args, tangents, strict=True)]), np.float64)

    return (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP))) / (12 * STEP)


def close(actual: Any, expected: Any, rtol: float, what: str) -> None:
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    worst = float(np.max(np.abs(actual - expected), initial=0.0))
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert worst <= rtol * scale, f"{what}: off by {worst:.3g} at scale {scale:.3g}, allowed {rtol:.1g}"


def value(case: Case, args: Sequence[np.ndarray]) -> None:
    """Shape, dtype and value against the oracle; operands unchanged."""
    before = [a.copy() for a in args]
    actual = fx.jit(case.f)(*args)
    assert case.oracle is not None
    expected = np.asarray(case.oracle(*args))
    assert np.shape(actual) == expected.shape
    single = any(a.dtype == np.float32 for a in args)
    if expected.dtype.kind == "f":
        assert np.asarray(actual).dtype == (np.float32 if single else np.float64)
        eps = np.finfo(np.float32 if single else np.float64).eps
        exact = case.oracle(*[a.astype(np.float64) for a in args]) if single and case.name != "convert" else expected
        close(actual, exact, (case.rtol or 4) * float(eps), f"value of {case.name}")
    else:
        assert_same_bits(np.asarray(actual).astype(expected.dtype), expected)
    for a, b in zip(args, before, strict=True):
        assert_same_bits(a, b)


def eager_is_compiled(case: Case, args: Sequence[np.ndarray]) -> None:
    """The same bits from jit, from jit with fusion off, op by op, and from the traced program run eagerly."""
    compiled = fx.jit(case.f)(*args)
    with fx.disable_jit():
        assert_same_bits(fx.jit(case.f)(*args), compiled)
    assert_same_bits(case.f(*args), compiled)


def derivatives_are_compiled(case: Case, args: Sequence[np.ndarray]) -> None:
    """value_and_grad: eager == jit(grad) == grad(jit) == grad of the checkpointed function."""
    loss = _loss(case.f, args)
    numbers = tuple(range(len(args)))
    eager = fx.value_and_grad(loss, numbers)(*args)
    assert_same_bits(fx.jit(fx.value_and_grad(loss, numbers))(*args), eager)
    assert_same_bits(fx.value_and_grad(fx.jit(loss), numbers)(*args), eager)
    assert_same_bits(fx.value_and_grad(fx.checkpoint(loss), numbers)(*args), eager)


def _loss(f: F, args: Sequence[np.ndarray]) -> F:
    """A scalar function: f weighted by fixed numbers, so that every output counts differently."""
    weights = random_like(np.asarray(f(*args)), 7)

    def loss(*xs: Any) -> Any:
        return fnp.sum(f(*xs) * weights)

    return loss


def jvp_is_difference(case: Case, args: Sequence[np.ndarray]) -> None:
    tangents = [random_like(a, i) for i, a in enumerate(args)]
    y, t = fx.jvp(case.f, args, tangents)
    close(t, central_difference(case.f, args, tangents), 2e-7, f"jvp of {case.name}")
    assert_same_bits(y, case.f(*args))


def dot_product_identity(case: Case, args: Sequence[np.ndarray]) -> None:
    """<J v, w> = <v, J' w>."""
    tangents = [random_like(a, i) for i, a in enumerate(args)]
    y, pullback = fx.vjp(case.f, *args)
    w = random_like(y, 11)
    _, jv = fx.jvp(case.f, args, tangents)
    left = float(np.sum(np.asarray(jv) * w))
    right = sum(float(np.sum(np.asarray(g) * t)) for g, t in zip(pullback(w), tangents, strict=True))
    close(right, left, 1e-10, f"dot-product identity of {case.name}")


def vjp_is_difference(case: Case, args: Sequence[np.ndarray]) -> None:
    tangents = [random_like(a, i) for i, a in enumerate(args)]
    loss = _loss(case.f, args)
    gradients = fx.grad(loss, tuple(range(len(args))))(*args)
    slope = sum(float(np.sum(np.asarray(g) * t)) for g, t in zip(gradients, tangents, strict=True))
    close(slope, central_difference(loss, args, tangents), 1e-6, f"gradient of {case.name}")


def gradients_match_inputs(case: Case, args: Sequence[np.ndarray]) -> None:
    """Each gradient has its input's shape and dtype, is C-contiguous, writable and owned."""
    gradients = fx.grad(_loss(case.f, args), tuple(range(len(args))))(*args)
    for g, a in zip(gradients, args, strict=True):
        assert np.shape(g) == a.shape
        assert g.dtype == a.dtype
        if a.ndim:
            assert g.flags.c_contiguous and g.flags.writeable and g.base is None


def linearize_is_jvp(case: Case, args: Sequence[np.ndarray]) -> None:
    tangents = [random_like(a, i) for i, a in enumerate(args)]
    y, t = fx.jvp(case.f, args, tangents)
    y2, f_jvp = fx.linearize(case.f, *args)
    assert_same_bits(y2, y)
    assert_same_bits(f_jvp(*tangents), t)


def second_order(case: Case, args: Sequence[np.ndarray]) -> None:
    """Forward over reverse and reverse over reverse against differences of the gradient."""
    numbers = tuple(range(len(args)))
    tangents = [random_like(a, i + 3) for i, a in enumerate(args)]
    gradient = fx.grad(_loss(case.f, args), numbers)

    def directional(*xs: Any) -> Any:
        return sum(fnp.sum(g * t) for g, t in zip(gradient(*xs), tangents, strict=True))

    expected = [central_difference(lambda *xs, i=i: gradient(*xs)[i], args, tangents) for i in numbers]
    forward = fx.jvp(lambda *xs: gradient(*xs), args, tangents)[1]
    reverse = fx.grad(directional, numbers)(*args)
    for name, found in (("forward over reverse", forward), ("reverse over reverse", reverse)):
        for g, e in zip(found, expected, strict=True):
            close(g, e, 2e-6, f"{name} of {case.name}")


def vmap_is_loop(case: Case, args: Sequence[np.ndarray]) -> None:
    size = 3
    batches = [np.stack([a, a * 0.9, a * 0.95]) for a in args]
    mapped = fx.vmap(case.f)(*batches)
    looped = np.stack([np.asarray(case.f(*[b[i] for b in batches])) for i in range(size)])
    assert_same_bits(np.asarray(mapped), looped)
    if len(args) > 1:
        mapped = fx.vmap(case.f, in_axes=(0, *[None] * (len(args) - 1)))(batches[0], *args[1:])
        looped = np.stack([np.asarray(case.f(batches[0][i], *args[1:])) for i in range(size)])
        assert_same_bits(np.asarray(mapped), looped)
        mapped = fx.vmap(case.f, in_axes=(*[None] * (len(args) - 1), 0))(*args[:-1], batches[-1])
        looped = np.stack([np.asarray(case.f(*args[:-1], batches[-1][i])) for i in range(size)])
        assert_same_bits(np.asarray(mapped), looped)


def vmap_of_gradient_is_loop(case: Case, args: Sequence[np.ndarray]) -> None:
    loss, numbers = _loss(case.f, args), tuple(range(len(args)))
    gradient = fx.grad(loss, numbers)
    batches = [np.stack([a, a * 0.9, a * 0.95]) for a in args]
    mapped = fx.vmap(gradient)(*batches)
    for i in range(3):
        for m, g in zip(mapped, gradient(*[b[i] for b in batches]), strict=True):
            assert_same_bits(np.asarray(m[i]), np.asarray(g))


def layouts_do_not_matter(case: Case, args: Sequence[np.ndarray]) -> None:
    """Strided, reversed, Fortran-ordered and broadcast operands give the bits of contiguous ones, eager and compiled."""
    expected = case.f(*args)
    for make in (_strided, _reversed, _fortran):
        odd = [make(a) for a in args]
        assert_same_bits(case.f(*odd), expected)
        assert_same_bits(fx.jit(case.f)(*odd), expected)
        if case.differentiable:
            loss, numbers = _loss(case.f, args), tuple(range(len(args)))
            assert_same_bits(fx.grad(loss, numbers)(*odd), fx.grad(loss, numbers)(*args))


def _strided(a: np.ndarray) -> np.ndarray:
    if not a.ndim:
        return a
    big = np.zeros((*a.shape[:-1], 3 * a.shape[-1]), a.dtype)
    view = big[..., 1::3]
    view[...] = a
    return view


def _fortran(a: np.ndarray) -> np.ndarray:
    return np.asfortranarray(a) if a.ndim else a


def _reversed(a: np.ndarray) -> np.ndarray:
    return a if not a.ndim else np.ascontiguousarray(np.flip(a))[tuple([slice(None, None, -1)] * a.ndim)]


def prints_and_parses(case: Case, args: Sequence[np.ndarray]) -> None:
    from fxgrad.ir.check import check

    programs = [fx.make_ir(case.f)(*args)]
    if case.differentiable:
        programs.append(fx.make_ir(fx.grad(_loss(case.f, args)))(*args))
        programs.append(fx.make_ir(lambda *xs: fx.vmap(case.f)(*xs))(*[np.stack([a, a]) for a in args]))
    for program in programs:
        check(program)
        assert fx.parse_ir(str(program)) == program


def three_uses_sum(case: Case, args: Sequence[np.ndarray]) -> None:
    """A value used three times receives three contributions."""
    loss = _loss(case.f, args)

    def thrice(x: Any) -> Any:
        return loss(x, *args[1:]) + loss(x, *args[1:]) + loss(x, *args[1:])

    once = np.asarray(fx.grad(loss)(*args))
    close(fx.grad(thrice)(args[0]), 3 * once, 1e-13, f"three uses of {case.name}")
