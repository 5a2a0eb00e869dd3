"""Vectors times what is too large for the caches, which is read in an order of its own: the sums are the fixed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.kernels.matmul import MatvecKernel, SumKernel
from fxgrad.kernels.matmul_plan import Matrix, Product, Run, plan_product
from fxgrad.testing.bits import assert_same_bits
from tests.test_matmul import reference


def plans(k: int, n: int, dtype: str) -> list[Run]:
    """Of x @ a, with x of k elements and a of k by n."""
    t = np.dtype(dtype)
    x, a, y = (Matrix(0, 0, 0, length * t.itemsize, t.itemsize) for length in (k, n, n))
    return plan_product(Product(t, 1, 1, 1, n, k, x, a, y))


def same_for_any_number_of_threads(f: Callable[..., Any], x: np.ndarray, y: np.ndarray, expected: Any) -> None:
    before = fx.get_num_threads()
    try:
        for threads in (1, 2, 3):
            fx.set_num_threads(threads)
            assert_same_bits(f(x, y), expected)
    finally:
        fx.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k, n", [(2048, 512), (2305, 333), (4100, 129)])
def test_blocks_of_rows_are_shared(k: int, n: int, dtype: str) -> None:
    rng = np.random.default_rng(k)
    x, a = rng.standard_normal(k).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    expected = reference(x[None, None], a[None])[0, 0]
    if a.nbytes >= 1 << 21:
        assert [type(r.kernel) for r in plans(k, n, dtype)] == [MatvecKernel, SumKernel]
    same_for_any_number_of_threads(fx.jit(lambda x, a: x @ a), x, a, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("more", [1, 8 * 256, 13 * 256 + 77])
def test_dot_from_afar(more: int, dtype: str) -> None:
    rng = np.random.default_rng(more)
    x, y = rng.standard_normal((2, (1 << 20) // np.dtype(dtype).itemsize + more)).astype(dtype)
    expected = reference(x[None, None], y[None, :, None])[0, 0, 0]
    same_for_any_number_of_threads(fx.jit(lambda x, y: x @ y), x, y, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_from_afar(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((333, 1113)).astype(dtype), rng.standard_normal(1113).astype(dtype)
    assert a.nbytes > 1 << 20
    same_for_any_number_of_threads(fx.jit(lambda a, x: a @ x), a, x, reference(a[None], x[None, :, None])[0, :, 0])


def test_strips_that_are_wide_are_shared_as_they_are() -> None:
    assert [type(r.kernel) for r in plans(2048, 1 << 15, "float32")] == [MatvecKernel]
    first, *_ = plans(1024, 1024, "float32")
    assert first.plan[1] * 16 * 4 >= 1024  # bytes of a strip


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_zeros_of_a_cotangent_annihilate(special: float) -> None:
    a, x = np.ones((2304, 300), np.float32), np.ones(2304, np.float32)
    a[700], x[700] = special, 0.0
    got = fx.jit(lambda a, x: fx.vjp(lambda v: a @ v, np.ones(300, np.float32))[1](x))(a, x)
    assert_same_bits(got[0], np.full(300, 2303.0, np.float32))
