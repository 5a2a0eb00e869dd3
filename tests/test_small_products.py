"""Products too small for blocks and tiles: the same sums as every other product, strong ones among zeros, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile.lower import compile_program
from fxgrad.primitives.dot import dot
from fxgrad.testing.bits import assert_same_bits

RNG = np.random.default_rng(0)


def special(*shape, dtype):
    """Numbers, among them zeros of both signs, infinities, NaN, and some whose products underflow."""
    x = RNG.normal(size=shape).astype(dtype)
    tiny = np.finfo(dtype).tiny
    for value, share in ((0.0, 0.15), (-0.0, 0.1), (np.inf, 0.03), (np.nan, 0.03), (-tiny, 0.1), (tiny / 2, 0.05)):
        x[RNG.random(shape) < share] = value
    return x


def product(contract, strong, batch=((), ())):
    return lambda x, y: dot(x, y, contract=contract, batch=batch, strong=strong)


def kernels(f, *args):
    return [k.form for s in compile_program(fx.make_ir(f)(*args)).steps for k in s.all_kernels]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strong", [None, 0, 1])
@pytest.mark.parametrize("m", [2, 3, 16, 17, 31, 64, 65, 100])
def test_small_matrix_times_vector(m, strong, dtype):
    for k in (2, 5, 33, 163, 256):
        a, x = special(k, m, dtype=dtype), special(k, dtype=dtype)
        f = product(((0,), (0,)), strong)
        used = kernels(f, a, x)
        assert ("matvec_small" in used) == (m * k <= 1 << 14), used
        assert_same_bits(fx.jit(f)(a, x), f(a, x))
        backwards = product(((0,), (0,)), None if strong is None else 1 - strong)
        assert_same_bits(fx.jit(backwards)(x, a[:, ::-1][:, ::-1]), backwards(x, a))


OUTER = [
    ((4,), (5,), ((), ()), ((), ())),
    ((4, 1), (1, 70), ((1,), (0,)), ((), ())),
    ((3, 4), (5, 3, 2), ((), ()), ((0,), (1,))),
    ((2, 6), (6, 2), ((), ()), ((0, 1), (1, 0))),
    ((1,), (1,), ((0,), (0,)), ((), ())),
    ((1, 3, 2), (4, 2, 1), ((0,), (2,)), ((2,), (1,))),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strong", [None, 0, 1])
@pytest.mark.parametrize("case", OUTER, ids=str)
def test_a_sum_of_one_term_is_a_map(case, strong, dtype):
    """Its zeros are +0, as those of a sum that begins with 0."""
    x_shape, y_shape, contract, batch = case
    f = product(contract, strong, batch)
    for _ in range(5):
        x, y = special(*x_shape, dtype=dtype), special(*y_shape, dtype=dtype)
        assert kernels(f, x, y) == ["map"]
        assert_same_bits(fx.jit(f)(x, y), f(x, y))
