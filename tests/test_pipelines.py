"""Products with what leads to them and what follows, row by row: which steps are joined, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import pipelines as p
from fxgrad.compile.lower import forget_executables
from fxgrad.testing.bits import assert_same_bits

F = np.float32


@pytest.fixture(autouse=True)
def small_values_are_worth_it(monkeypatch):
    monkeypatch.setattr(p, "WORTH", 0)
    forget_executables()
    yield
    forget_executables()


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def norm(x):
    c = x - np.mean(x, axis=-1, keepdims=True)
    return c / np.sqrt(np.mean(c * c, axis=-1, keepdims=True) + F(1e-5))


def joined(f, *args):
    """Titles of the compiled steps; on the way f is compared, to the bit, with itself unfused and on several threads."""
    executable = fx.jit(f).lower(*args).compile()
    with fx.disable_jit():
        want = fx.jit(f)(*args)
    before = fx.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            fx.set_num_threads(threads)
            assert_same_bits(fx.jit(f)(*args), want)
    finally:
        fx.set_num_threads(before)
    return [s.title for s in executable.steps if s.title != "pack"]


W, V, BIAS = values(64, 80), values(80, 48, seed=1), values(80, seed=2)


@pytest.mark.parametrize("rows", [1, 7, 24, 95, 240, 301])
def test_epilogues_and_prologues(rows):
    x = values(rows, 64)
    steps = joined(lambda x: np.tanh(x @ W + BIAS), x)
    if rows > 80:  # else units of work are columns
        assert steps == ["matmul | add tanh"]
        assert len(joined(lambda x: norm(x) @ W, x)) == 1
        assert len(joined(lambda x: np.maximum(x @ W + BIAS, F(0)) @ V + x[:, :48], x)) == 1
        assert len(joined(lambda x: norm(x + np.tanh(norm(x) @ W) @ values(80, 64)), x)) == 1
        assert len(joined(lambda x: np.tanh(np.tanh(x @ W) @ values(80, 64)) @ W, x)) == 2  # two products each


@pytest.mark.parametrize("batch, length", [((2,), 20), ((3, 4), 33), ((64,), 128)])
def test_attention_is_one_step(batch, length):
    q, k, v = (values(*batch, length, 16, seed=i) for i in range(3))
    steps = joined(lambda q, k, v: softmax(q @ np.swapaxes(k, -1, -2) * F(0.25)) @ v, q, k, v)
    assert len(steps) == 1 and steps[0].count("matmul") == 2


def test_heads_are_rows_of_their_batch():
    x, w = values(3, 40, 32), values(32, 96, seed=1)

    def f(x):
        parts = np.reshape(x @ w, (3, 40, 3, 4, 8))
        q, k, v = (np.transpose(parts[:, :, i], (0, 2, 1, 3)) for i in range(3))
        return np.reshape(np.transpose(softmax(q @ np.swapaxes(k, -1, -2)) @ v, (0, 2, 1, 3)), (3, 40, 32)) @ w

    assert any(title.count("matmul") == 2 and "exp" in title for title in joined(f, x))


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) * F(0.25)) @ v


@pytest.mark.parametrize("batch, length", [((5,), 20), ((3, 4), 33), ((9,), 128)])
def test_the_gradient_of_attention_goes_head_by_head(batch, length):
    q, k, v, w = (values(*batch, length, 16, seed=i) for i in range(4))
    steps = joined(fx.grad(lambda q, k, v: np.sum(attention(q, k, v) * w), (0, 1, 2)), q, k, v)
    assert max(title.count("matmul") for title in steps) >= 3  # by rows no more than two products go together


@pytest.mark.parametrize(
    "f, count",
    [
        (lambda x, y: np.swapaxes(np.tanh(x @ y), -1, -2) @ x, 1),  # a matrix turned around
        (lambda x, y: y @ np.tanh(x @ y), 1),  # the right operand
        (lambda x, y: (s := np.tanh(x @ y)) @ s, 1),  # both operands
        (lambda x, y: np.swapaxes(s := np.tanh(x @ y), -1, -2) @ s @ x, 1),
        (lambda x, y: np.roll(x @ y, 1, axis=0) @ x, 2),  # another matrix
        (lambda x, y: np.tanh(x @ y)[::-1] @ x, 2),
        (lambda x, y: np.swapaxes(np.tanh(x @ y), 0, 1) @ values(24, 24), 2),
        (lambda x, y: np.tanh(x @ y)[0] @ x, 2),
        (lambda x, y: np.reshape(np.tanh(x @ y), (14, 12, 24)) @ values(24, 8), 2),
    ],
)
def test_whole_matrices(f, count):
    x, y = values(7, 24, 24), values(7, 24, 24, seed=1)
    assert sum("matmul" in title for title in joined(f, x, y)) == count


def test_what_passes_from_kernel_to_kernel_takes_a_block():
    q, k, v = (values(64, 128, 16, seed=i) for i in range(3))
    compiled = fx.jit(attention).lower(q, k, v).compile()
    assert compiled.plan_text().count("[passes]") == 2  # scores (written over) and probabilities
    assert compiled.memory_analysis().temp_bytes < 64 * 128 * 128 * 4

    def both(q, k, v):
        chances = softmax(q @ np.swapaxes(k, -1, -2) * F(0.25))
        return chances @ v, chances

    assert fx.jit(both).lower(q, k, v).compile().plan_text().count("[passes]") == 1  # one is a result
    joined(attention, q, k, v)


def test_blocks_of_rows_that_batches_cut(cut_finely):
    x = values(3, 100, 64)
    joined(lambda x: np.tanh(np.tanh(x @ W) @ V), x)
    joined(lambda x: softmax(np.tanh(norm(x) @ W)) @ V, x)
    q, k, v = (values(5, 33, 16, seed=i) for i in range(3))
    joined(fx.grad(lambda q, k, v: np.sum(attention(q, k, v) ** 2), (0, 1, 2)), q, k, v)


def test_gradients():
    x = values(120, 64)
    loss = lambda x, w: np.sum(np.tanh(norm(x) @ w + BIAS) @ V)  # noqa: E731
    assert any("|" in title for title in joined(fx.grad(loss, (0, 1)), x, W))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x @ W).T + F(1),  # another order of rows
        lambda x: np.sum(x @ W, axis=0),  # all rows
        lambda x: np.roll(x @ W, 1, axis=0),
        lambda x: (x @ W)[::-1] * F(2),
        lambda x: (x @ W)[1:] + (x @ W)[:-1],
        lambda x: (x @ W).T @ x,  # the left operand turned
        lambda x: x.T @ np.tanh(x @ W),  # the right operand
        lambda x: np.tanh(x @ x.T) @ np.tanh(x @ x.T).T,
        lambda x: np.reshape(x @ W, (150, 160)) * values(150, 160),
        lambda x: np.cumsum(x @ W, axis=0),
    ],
)
def test_what_needs_other_rows_stays_right(f):
    joined(f, values(300, 64))


def test_rows_in_other_shapes():
    x = values(4, 60, 64)
    assert joined(lambda x: np.tanh(np.reshape(x @ W, (240, 80)) + BIAS), x) == ["matmul | add tanh"]
    assert joined(lambda x: softmax(np.reshape(x @ W, (4, 60, 2, 40))), x)[0].startswith("matmul | ")


def test_small_values_are_left_alone(monkeypatch):
    monkeypatch.setattr(p, "WORTH", 1 << 19)
    forget_executables()
    assert joined(lambda x: np.tanh(x @ W + BIAS), values(60, 64)) == ["matmul", "add tanh"]


def test_the_loop_over_steps_is_linear():
    """Many products side by side, none of which follows another."""
    xs = [values(24, 8, seed=i) for i in range(60)]
    w = values(8, 8)
    steps = joined(lambda *xs: [np.tanh(x @ w) for x in xs], *xs)
    assert len(steps) == 60
