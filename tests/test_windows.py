"""Pooling and reduce_window: PyTorch's numbers, ties, NaN, one answer in every mode, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised
from tests.works import check, work

F = torch.nn.functional
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def few_values(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Full of ties."""
    return np.random.default_rng(3).integers(0, 4, shape).astype(dtype)


def compare(f: Callable, theirs: Callable, x: np.ndarray) -> None:
    """Values and the cotangent of x, channels last against PyTorch's channels first."""
    xt = torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)
    yt = theirs(xt)
    y, pullback = fx.vjp(f, x)
    g = drawn(*y.shape, dtype=x.dtype, seed=1)
    yt.backward(torch.tensor(np.moveaxis(g, -1, 1).copy()))
    assert xt.grad is not None
    (gx,) = pullback(g)
    tolerance = 1e-5 if x.dtype == np.float32 else 1e-12
    for actual, expected in ((y, yt.detach()), (gx, xt.grad)):
        wanted = np.moveaxis(expected.numpy(), 1, -1)
        assert actual.dtype == x.dtype
        np.testing.assert_allclose(actual, wanted, tolerance, tolerance)
    assert_same_bits(fx.jit(lambda x, g: fx.vjp(f, x)[1](g)[0])(x, g), gx)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pools_are_torchs_with_ties(count: int) -> None:
    shape = (2, *(7, 6, 5)[:count], 3)
    for k, s, p, dtype in ((2, 2, 0, np.float32), (2, 1, 1, np.float64), (3, 2, 1, np.float64), (2, 3, 1, np.float64)):
        x, pads = few_values(*shape, dtype=dtype), [(p, p)] * count
        compare(
            lambda x, k=k, s=s, p=pads: nn.max_pool(x, (k,) * count, s, p), lambda x, k=k, s=s, p=p: MAX[count](x, k, s, p), x
        )
        for whole in (True, False) if p else (True,):
            compare(
                lambda x, k=k, s=s, p=pads, w=whole: nn.avg_pool(x, (k,) * count, s, p, w),
                lambda x, k=k, s=s, p=p, w=whole: AVG[count](x, k, s, p, False, w),
                x,
            )


def test_large_windows() -> None:
    for k, s, p in ((6, 1, 3), (5, 2, 2), (12, 12, 0), (7, 7, 0)):
        x = few_values(2, 12, 13, 2)
        pads = [(p, p)] * 2
        compare(lambda x, k=k, s=s, p=pads: nn.max_pool(x, (k, k), s, p), lambda x, k=k, s=s, p=p: F.max_pool2d(x, k, s, p), x)
        compare(lambda x, k=k, s=s, p=pads: nn.avg_pool(x, (k, k), s, p), lambda x, k=k, s=s, p=p: F.avg_pool2d(x, k, s, p), x)


def test_max_pool_of_nan_and_infinities() -> None:
    x = np.array([1.0, np.nan, 3.0, 2.0, -np.inf, -np.inf, 5.0, 4.0, 7.0, np.nan]).reshape(1, 10, 1)
    y = nn.max_pool(x, 2, 2)[0, :, 0]
    assert_same_bits(y, np.array([np.nan, 3.0, -np.inf, 5.0, np.nan]))
    assert_same_bits(nn.min_pool(x, 2, 2)[0, :, 0], np.array([np.nan, 2.0, -np.inf, 4.0, np.nan]))
    g = fx.vjp(lambda x: nn.max_pool(x, 2, 2), x)[1](np.arange(1.0, 6.0).reshape(1, 5, 1))[0]
    assert_same_bits(g[0, :, 0], np.array([0.0, 1, 2, 0, 3, 0, 4, 0, 0, 5]))
    assert_same_bits(nn.max_pool(-np.ones((1, 3, 1)), 3, 1, "SAME"), -np.ones((1, 3, 1)))  # padding is never the largest
    integers = np.arange(8, dtype=np.int32).reshape(1, 8, 1)
    assert_same_bits(nn.max_pool(integers, 3, 2)[0, :, 0], np.array([2, 4, 6], np.int32))
    assert_same_bits(nn.min_pool(integers, 3, 2, "SAME")[0, :, 0], np.array([0, 2, 4, 6], np.int32))


@pytest.mark.usefixtures("cut_finely")
def test_modes_agree(use_threads: Callable[[int], None]) -> None:
    x = few_values(3, 9, 8, 5, dtype=np.float32)

    def f(x: Any) -> Any:
        y = nn.max_pool(x, (3, 3), 2, "SAME")
        return nn.avg_pool(nn.min_pool(nn.relu(y) + y, (2, 2)), (2, 3), (1, 2), [(0, 1), (1, 1)], False)

    def loss(x: Any) -> Any:
        return (f(x) ** 2).sum()

    assert check([work("pools", f, x), work("gradient", fx.grad(loss), x)], use_threads) >= 2
    assert_same_bits(fx.jit(fx.grad(loss))(x), fx.grad(loss)(x))
    assert_same_bits(fx.grad(fx.checkpoint(loss))(x), fx.grad(loss)(x))
    for h in (f, fx.grad(loss)):
        assert_same_bits(fx.vmap(lambda image, h=h: h(image[None])[0])(x), np.concatenate([h(image[None]) for image in x]))
    hot = fx.hvp(loss, (x,), (np.ones_like(x),))
    assert_same_bits(fx.jit(lambda x: fx.hvp(loss, (x,), (np.ones_like(x),)))(x), hot)


def by_definition(f: Any, x: Any, init: Any, window: Any, strides: Any, padding: Any, base: Any, inside: Any) -> np.ndarray:
    """reduce_window of two axes, place by place, as XLA's Operation Semantics has it."""
    base, inside = base or (1, 1), inside or (1, 1)
    holes = np.full([(n - 1) * b + 1 for n, b in zip(x.shape, base, strict=True)], init, x.dtype)
    holes[:: base[0], :: base[1]] = x
    reach = [(w - 1) * d + 1 for w, d in zip(window, inside, strict=True)]
    if padding == "SAME":
        needed = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(holes.shape, strides, reach, strict=True)]
        padding = [(t // 2, t - t // 2) for t in needed]
    padded = holes if padding == "VALID" else np.pad(holes, padding, constant_values=init)
    y = np.full([(n - r) // s + 1 for n, r, s in zip(padded.shape, reach, strides, strict=True)], init, x.dtype)
    for i, j in np.ndindex(*y.shape):
        for a, b in itertools.product(*map(range, window)):
            y[i, j] = f(y[i, j], padded[i * strides[0] + a * inside[0], j * strides[1] + b * inside[1]])
    return y


def test_reduce_window_is_its_definition() -> None:
    x = few_values(5, 7, dtype=np.float32)  # small integers: exact in any order
    functions = {"max": (np.maximum, -np.inf), "min": (np.minimum, np.inf), "add": (np.add, 0.0), "mul": (np.multiply, 1.0)}
    for window, strides, padding, base, inside in [
        ((2, 3), (1, 2), "VALID", None, None),
        ((2, 3), (2, 1), "SAME", None, (2, 1)),
        ((1, 4), (1, 1), [(0, 0), (2, 1)], (1, 2), None),
        ((3, 2), (1, 1), [(1, 0), (0, 2)], (2, 1), (1, 2)),
    ]:
        for name, (f, init) in functions.items():
            options = {"base_dilation": base, "window_dilation": inside}
            y = lax.reduce_window(x, init, getattr(lax, name), window, strides, padding, **options)
            assert_same_bits(y, by_definition(f, x, init, window, strides, padding, base, inside))


def test_reduce_window_begins_with_init() -> None:
    x = np.array([1.0, -2.0, 3.0, 4.0])
    assert_same_bits(lax.reduce_window(x, 2.0, lax.max, (2,), (2,), "VALID"), np.array([2.0, 4.0]))
    assert_same_bits(lax.reduce_window(x, 10.0, np.add, (2,), (2,), "VALID"), np.array([9.0, 17.0]))
    assert_same_bits(lax.reduce_window(x, 0.0, fnp.minimum, (2,), (2,), "VALID"), np.array([-2.0, 0.0]))
    g = fx.grad(lambda i: lax.reduce_window(x, i, lax.add, (2,), (2,), [(1, 1)]).sum())(1.0)
    assert g == 5.0  # three windows, and two places of padding
    flags = np.array([True, False, False, False])
    assert_same_bits(lax.reduce_window(flags, False, lax.bitwise_or, (2,), (2,), "VALID"), np.array([True, False]))
    assert_same_bits(lax.reduce_window(flags, False, lax.max, (2,), (2,), "VALID"), np.array([True, False]))


def test_sizes_of_nothing() -> None:
    assert nn.max_pool(np.ones((0, 4, 2)), 2, 2).shape == (0, 2, 2)
    assert nn.max_pool(np.ones((2, 1, 2)), 2, 2).shape == (2, 0, 2)
    assert_same_bits(fx.grad(lambda x: nn.max_pool(x, 2, 2).sum())(np.ones((2, 1, 2))), np.zeros((2, 1, 2)))
    assert_same_bits(fx.grad(lambda x: nn.avg_pool(x, 2, 2).sum())(np.ones((2, 1, 2))), np.zeros((2, 1, 2)))


def test_pooling_is_one_kernel() -> None:
    x = drawn(2, 8, 8, 16, dtype=np.float32)
    forward = fx.jit(lambda x: nn.relu(nn.max_pool(x, (3, 2), (2, 2)))).lower(x).compile()
    assert forward.as_text().count("kernel map") == 1 and forward.memory_analysis().temp_bytes == 0


def test_errors() -> None:
    x = np.ones((2, 8, 8, 4))
    e = raised(lambda: nn.max_pool(x, (2, 2, 2, 2)), ValueError)  # rank
    assert_four_parts(e, what="window (2, 2, 2, 2)", line="# rank", why="for each spatial dimension", fix="window_shape=(2, 2)")
    e = raised(lambda: nn.avg_pool(x, (2, 2), (1,)), ValueError)  # strides
    assert_four_parts(e, what="strides=(1,) does not fit 2", line="# strides", why=">= 1", fix="strides=(1, 1)")
    e = raised(lambda: nn.min_pool(x, (2, 0)), ValueError)  # zero
    assert_four_parts(e, what="window_shape=(2, 0)", line="# zero", why=">= 1", fix="window_shape=(1, 1)")
    e = raised(lambda: nn.max_pool(x, (2, 2), 2, [(0, -1), (0, 0)]), ValueError)  # negative
    assert_four_parts(e, what="padding=[(0, -1), (0, 0)]", line="# negative", why="not negative", fix="Slice")
    e = raised(lambda: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"), ValueError)  # window
    assert_four_parts(e, what="window_dimensions=(2, 2) does not fit 4", line="# window", why="one for each", fix="(1, 1, 1, 1)")
    e = raised(lambda: lax.reduce_window(x, np.zeros(2), lax.add, (2,) * 4, (1,) * 4, "VALID"), ValueError)  # init
    assert_four_parts(e, what="shape (2,)", line="# init", why="begins with the same number", fix="0.0 for sums")
    e = raised(lambda: lax.reduce_window(x, 0.0, lambda a, b: 1.0, (2,) * 4, (1,) * 4, "VALID"), ValueError)  # f
    assert_four_parts(e, what="answered shape None", line="# f", why="element by element", fix="lax.max")
    e = raised(lambda: nn.max_pool(x + 1j, 2, 2), TypeError)  # complex
    assert_four_parts(e, what="window_extreme got c128", line="# complex", why="complex numbers are not", fix="astype")
