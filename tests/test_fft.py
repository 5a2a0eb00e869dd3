"""Discrete Fourier transforms: NumPy's values and dtypes, derivatives, one answer in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

F = Callable[..., Any]
REAL = {"rfft", "ihfft", "rfft2", "rfftn"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"norm": norm, "n": n}) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
      for norm, n in ((None, None), ("ortho", 5), ("forward", 8), ("backward", 1))),
    *((name, options) for name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
      for options in ({}, {"s": (3, 8), "axes": (0, 2)}, {"axes": (1, 0), "norm": "ortho"})),
    ("fft", {"axis": 0}), ("rfft", {"axis": 1, "n": 7}), ("irfft", {"axis": 0}), ("irfft", {"axis": -2, "n": 6}),
]  # fmt: skip


def array(name: str, dtype: str = "complex128", shape: tuple[int, ...] = (4, 5, 6)) -> np.ndarray:
    rng = np.random.default_rng(len(name))
    z = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return z.real.copy() if name in REAL else z


@pytest.mark.parametrize("name, options", CALLS)
def test_values_and_modes(name: str, options: dict[str, Any]) -> None:
    f: F = lambda x: getattr(fnp.fft, name)(x, **options)  # noqa: E731
    for dtype in ("complex128", "complex64"):
        x = array(name, dtype)
        want = getattr(np.fft, name)(x, **options)
        got = f(x)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=0, atol=8 * np.finfo(dtype).eps * np.max(np.abs(want)))
        assert_same_bits(fx.jit(f)(x), got)
        assert_same_bits(fx.jit(lambda x: getattr(np.fft, name)(x, **options))(x), got)
        batch = np.stack([x, x[::-1], 2 * x])
        assert_same_bits(fx.vmap(f)(batch), np.stack([f(b) for b in batch]))


@pytest.mark.parametrize("name, options", CALLS)
def test_derivatives(name: str, options: dict[str, Any]) -> None:
    """Linear: the jvp is the transform; <F t, w> = <t, F' w> in the pairing that does not conjugate."""
    f: F = lambda x: getattr(fnp.fft, name)(x, **options)  # noqa: E731
    x, t = array(name), np.roll(array(name), 1, 0) * 0.7
    y, moved = fx.jvp(f, (x,), (t,))
    assert_same_bits(moved, f(t))
    w = np.exp(1j * np.arange(y.size)).reshape(y.shape)
    w = w.real.copy() if y.dtype.kind == "f" else w
    (g,) = fx.vjp(f, x)[1](w)
    assert g.dtype == x.dtype and g.shape == x.shape
    np.testing.assert_allclose(np.real(np.sum(g * t)), np.real(np.sum(w * moved)), rtol=1e-12)
    g2 = fx.grad(lambda x: fnp.sum(fnp.abs(f(x)) ** 2))
    assert_same_bits(fx.jit(g2)(x), g2(x))
    np.testing.assert_allclose(fx.jvp(g2, (x,), (t,))[1], g2(x + t) - g2(x), rtol=1e-9, atol=1e-9)  # of a quadratic function


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies_and_shifts(n: int) -> None:
    for d in (1.0, 0.25):
        assert_same_bits(fnp.fft.fftfreq(n, d), np.fft.fftfreq(n, d))
        assert_same_bits(fx.jit(lambda d: fnp.fft.rfftfreq(n, d))(d), np.fft.rfftfreq(n, d))
    assert fnp.fft.fftfreq(n, dtype=np.float32).dtype == np.float32
    x = np.arange(n * 3.0).reshape(n, 3)
    for axes in (None, 0, (0, 1), -1):
        for name in ("fftshift", "ifftshift"):
            assert_same_bits(fx.jit(lambda x: getattr(fnp.fft, name)(x, axes))(x), getattr(np.fft, name)(x, axes))


def test_empty_batches_and_integers() -> None:
    assert fnp.fft.fft(np.zeros((0, 4))).shape == (0, 4) and fnp.fft.rfft(np.zeros((0, 4))).shape == (0, 3)
    assert fnp.fft.irfft(np.zeros((0, 3), complex)).shape == (0, 4)
    np.testing.assert_allclose(fnp.fft.fft(np.arange(4)), np.fft.fft(np.arange(4)))
    assert fnp.fft.fft(np.ones(4, np.float16)).dtype == np.fft.fft(np.ones(4, np.float16)).dtype


def test_convolution_by_transforms_has_the_derivative_of_a_convolution() -> None:
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=30), rng.normal(size=5)

    def by_fft(x: Any, k: Any) -> Any:
        n = x.shape[0] + k.shape[0] - 1
        return np.fft.irfft(np.fft.rfft(x, n) * np.fft.rfft(k, n), n)

    np.testing.assert_allclose(by_fft(x, k), np.convolve(x, k), rtol=1e-12, atol=1e-12)
    for found, want in zip(
        fx.grad(lambda x, k: np.sum(by_fft(x, k) ** 3), (0, 1))(x, k),
        fx.grad(lambda x, k: np.sum(np.convolve(x, k) ** 3), (0, 1))(x, k),
        strict=True,
    ):
        np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize(
    "f, kind, what, why, fix",
    [
        (lambda: fnp.fft.fft(np.ones(4), 0), fx.errors.FxValueError, "number of FFT data points (0)", "at least one", "n="),
        (lambda: fnp.fft.fft(np.ones(4), norm="x"), fx.errors.FxValueError, "Invalid norm value x", "divided", "backward"),
        (lambda: fnp.fft.rfft(np.ones(4) * 1j), fx.errors.FxTypeError, "real array got complex128", "half", "np.fft.fft"),
        (lambda: fnp.fft.fftn(np.ones((4, 4)), (2,), (0, 1)), fx.errors.FxValueError, "different lengths", "each axis", "s="),
    ],
)  # fmt: skip
def test_errors(f: F, kind: type[Exception], what: str, why: str, fix: str) -> None:
    assert_four_parts(raised(f, kind), what=what, line="fnp.fft", why=why, fix=fix)
    with pytest.raises(np.exceptions.AxisError):
        fnp.fft.fft(np.ones(4), axis=1)
