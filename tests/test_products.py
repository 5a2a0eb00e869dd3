"""Products in compiled programs: kernels that read operands where they lie, with the bits of evaluation op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.config import config
from fxgrad.primitives.dot import dot
from fxgrad.testing.bits import assert_same_bits
from fxgrad.tree import leaves

B, T, D, H = 2, 24, 32, 4


def values(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(-9, 9, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else rng.standard_normal(shape).astype(dtype)


def steps(f: Callable, *args: Any) -> list[tuple[str, str]]:
    """Kind and title of every step of the compiled function, whose results are those of evaluation op by op."""
    compiled = fx.jit(f)
    found = compiled(*args)
    with fx.disable_jit():
        expected = fx.jit(f)(*args)
    for x, y in zip(leaves(found), leaves(expected), strict=True):
        assert_same_bits(np.asarray(x), np.asarray(y))
    return [(s.kind, s.title) for s in compiled.lower(*args).compile().steps]


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    q, k, v = ((x @ w).reshape(B, T, H, D // H).transpose(0, 2, 1, 3) for w in (wq, wk, wv))
    scores = q @ k.transpose(0, 1, 3, 2) / np.float32(3.0)
    p = fnp.exp(scores - fnp.max(scores, -1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(B, T, D) @ wo


def test_attention_and_its_gradient_copy_nothing_and_call_nothing() -> None:
    args = [values(B, T, D), *(values(D, D, seed=i) for i in range(4))]
    assert [t for _, t in steps(attention, *args)].count("matmul") == 6
    found = steps(fx.grad(lambda *a: fnp.sum(attention(*a) ** 2), argnums=(0, 1, 2, 3, 4)), *args)
    assert {kind for kind, _ in found} == {"kernel"}
    titles = [t for _, t in found]
    assert titles.count("matmul") == 18 and "copy" not in titles


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint32", "uint64"])
def test_operands_are_read_through_views(dtype: str) -> None:
    x, y = values(3, 10, 20, dtype=dtype), values(20, 15, dtype=dtype)
    for f in (
        lambda a, b: a @ b,
        lambda a, b: a[:, ::-2, 1::3] @ b[::-3, ::2][:7],
        lambda a, b: b.T @ a.transpose(0, 2, 1),
        lambda a, b: (a @ b).transpose(2, 1, 0),
        lambda a, b: fnp.swapaxes((a @ b).transpose(2, 0, 1), 0, 1),
        lambda a, b: fnp.broadcast_to(a[:1], (4, 10, 20)) @ b,
        lambda a, b: a @ fnp.broadcast_to(b[:, :1], (20, 9)),
        lambda a, b: fnp.einsum("abk,kc->cba", a, b),
        lambda a, b: fnp.tensordot(a[0, 0], b, 1),
        lambda a, b: fnp.tensordot(a.reshape(3, 10, 4, 5), b.reshape(4, 5, 15), 2),
    ):
        found = steps(f, x, y)
        # a result whose first axis becomes its last has neither rows nor columns to write: it is brought in order afterwards
        assert [t for _, t in found] in (["matmul"], ["matvec"], ["matmul", "copy"]), found


@pytest.mark.parametrize(
    "f",
    [
        lambda a: fnp.tensordot(a, a, ((1, 2), (2, 1))),  # k walked in different orders
        lambda a: fnp.einsum("abcd,dbae->ceab", a, a),
        lambda a: fnp.einsum("abcd,abcd->", a, a[::-1]),
        lambda a: fnp.ones((4, 4), np.float32) @ a,
        lambda a: fx.vmap(fx.vmap(fx.vmap(fnp.dot, (1, 0)), (2, 0)), (0, 1))(a, a),
    ],
)
def test_what_no_loop_can_walk_is_copied(f: Callable) -> None:
    found = steps(f, values(4, 4, 4, 4))
    assert {kind for kind, _ in found} == {"kernel"}
    assert found.count(("kernel", "copy")) <= 2


def test_nothing_to_add_up_or_to_write() -> None:
    assert steps(lambda a, b: a @ b, values(3, 0), values(0, 4)) == [("kernel", "copy")]
    assert steps(lambda a, b: a @ b, values(0, 3), values(3, 4)) == [("fill", "no elements")]


def test_what_has_no_kernel_is_a_library_call() -> None:
    x = values(5, 5)
    assert steps(lambda a: a @ a, x.astype(np.float16)) == [("host", "dot")]
    config.matmul = "blas"
    try:
        assert steps(lambda a: a @ a, x) == [("host", "dot")]
    finally:
        config.matmul = "own"
    assert steps(lambda a: a @ a, x) == [("kernel", "matmul")]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_eager_products_take_any_operand(dtype: Any) -> None:
    """What has been prepared for the usual layout also answers for others, for other byte orders, and when settings change."""
    x, y = values(6, 300, dtype=dtype), values(300, 5, dtype=dtype)
    expected = fnp.matmul(x, y)
    others = [np.asfortranarray(x), np.repeat(x, 2, 0)[::2], x[::-1][::-1], x.astype(x.dtype.newbyteorder()), x.view(np.ndarray)]
    for other in others:
        assert_same_bits(fnp.matmul(other, np.asfortranarray(y)), expected)
        assert_same_bits(fnp.matmul(other, y), expected)
    for row in (x[2], np.repeat(x, 2, 0)[4]):
        assert_same_bits(fnp.matmul(row, y), expected[2])
        assert_same_bits(np.asarray(fnp.dot(row, y[:, 1])), np.asarray(expected[2, 1]))
    assert_same_bits(fnp.matmul(y.T, x.T), expected.T)
    config.matmul = "blas"
    try:
        assert_same_bits(fnp.matmul(x, y), np.matmul(x, y))
    finally:
        config.matmul = "own"
    assert_same_bits(fnp.matmul(x, y), expected)


def test_a_batch_of_products_is_a_loop() -> None:
    x, y = values(4, 3, 70, 300), values(4, 300, 40)

    def f(a: Any, b: Any) -> Any:
        return fnp.swapaxes(a @ b, 0, 1)

    expected = np.stack([fx.jit(f)(a, b) for a, b in zip(x, y, strict=True)])
    assert_same_bits(fx.jit(fx.vmap(f))(x, y), expected)
    assert_same_bits(fx.vmap(f)(x, y), expected)
    shared = np.stack([fx.jit(f)(a, y[0]) for a in x])
    assert_same_bits(fx.jit(fx.vmap(f, (0, None)))(x, y[0]), shared)


def test_a_product_that_is_a_result_is_stored_as_it_is() -> None:
    x, y = values(5, 7), values(7, 9)
    found = steps(lambda a, b: (z := a @ b, z.T, z.T + np.float32(1)), x, y)
    assert found[0] == ("kernel", "matmul")
    assert steps(lambda a, b: (a @ b).T, x, y) == [("kernel", "matmul")]


# ---- strong products -----------------------------------------------------------------------------------------------------


def strong_reference(a: np.ndarray, b: np.ndarray, strong: int) -> np.ndarray:
    """The fixed sum in the definition's words; zeros of the operand `strong` annihilate (with small integers no rounding)."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float64)
    for i, row in enumerate(a):
        terms = row[:, None].astype(np.float64) * b
        zero = (row[:, None], b)[strong] == 0
        plain = terms.sum(0)
        c[i] = np.where(np.isnan(plain), np.where(zero, 0, terms).sum(0), plain)
    return c.astype(a.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strong", [0, 1])
@pytest.mark.parametrize(
    "shape", [(5, 300, 40), (130, 300, 300), (1, 300, 40), (40, 300, 1), (1, 900, 1), (2, 9000, 3), (3, 7, 2)]
)
@np.errstate(all="ignore")
def test_zeros_annihilate_in_strong_products(dtype: Any, strong: int, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    pool = np.array([0.0, -0.0, 1.0, -2.0, 3.0], dtype)
    a, b = rng.choice(pool, (m, k)), rng.choice(pool, (k, n))
    for x in (a, b):
        x.ravel()[rng.integers(0, x.size, 3)] = [np.inf, -np.inf, np.nan]

    def f(x: Any, y: Any) -> Any:
        return dot(x, y, contract=((1,), (0,)), batch=((), ()), strong=strong)

    expected = strong_reference(a, b, strong)
    turned = (np.ascontiguousarray(a.T).T, np.ascontiguousarray(b.T).T)
    for args in ((a, b), turned, (turned[0], b), (a, turned[1])):
        assert_same_bits(np.asarray(f(*args)), expected)
        assert_same_bits(np.asarray(fx.jit(lambda x, y: f(x.T, y.T))(args[0].T, args[1].T)), expected)


def test_gradients_past_infinities_are_the_same_compiled() -> None:
    x, w = values(6, 5), values(5, 4)
    x[2, 3] = np.inf

    def loss(x: Any, w: Any) -> Any:
        return fnp.sum(fnp.where(fnp.isfinite(x @ w), x @ w, np.float32(0)))

    found = fx.jit(fx.grad(loss, (0, 1)))(x, w)
    for f, e in zip(found, fx.grad(loss, (0, 1))(x, w), strict=True):
        assert_same_bits(f, e)
        assert np.isfinite(f).all()
