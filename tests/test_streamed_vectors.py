"""A vector times a large matrix: its blocks of rows are the units of work, and the sums are the fixed ones."""

from __future__ import annotations

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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k, n", [(2048, 512), (2305, 333), (4100, 129)])
def test_blocks_of_rows_are_shared(k: int, n: int, dtype: str) -> None:
    rng = np.random.default_rng(k)
    x, a = rng.standard_normal(k).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    expected = reference(x[None, None], a[None])[0, 0]
    if a.nbytes >= 1 << 21:
        assert [type(r.kernel) for r in plans(k, n, dtype)] == [MatvecKernel, SumKernel]
    f = fx.jit(lambda x, a: x @ a)
    before = fx.get_num_threads()
    try:
        for threads in (1, 2, 3):
            fx.set_num_threads(threads)
            assert_same_bits(f(x, a), expected)
    finally:
        fx.set_num_threads(before)


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
