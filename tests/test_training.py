"""Memory of training steps: what is donated, when parameters are updated, what is computed again rather than kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile import budget, lower
from fxgrad.testing.bits import assert_same_bits

WIDTH, HIDDEN, ROWS, DEPTH = 256, 1024, 512, 3


def params() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)

    def normal(n: int, m: int) -> np.ndarray:
        return (rng.standard_normal((n, m)) / np.sqrt(n)).astype("f4")

    return [{"up": normal(WIDTH, HIDDEN), "b": np.zeros(HIDDEN, "f4"), "down": normal(HIDDEN, WIDTH)} for _ in range(DEPTH)]


def loss(layers: Any, x: Any) -> Any:
    for p in layers:
        x = x + fx.nn.gelu(fx.nn.layer_norm(x) @ p["up"] + p["b"]) @ p["down"]
    return np.mean(x * x)


OPTIMIZER = fx.optim.adamw(1e-2)


def step(layers: Any, state: Any, x: Any) -> tuple[Any, Any, Any]:
    value, grads = fx.value_and_grad(loss)(layers, x)
    updates, state = OPTIMIZER.update(grads, state, layers)
    return fx.optim.apply_updates(layers, updates), state, value


X = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype("f4")
WEIGHT = WIDTH * HIDDEN * 4  # bytes
HUGE = 1 << 40  # a budget that asks for nothing


@pytest.fixture
def everything_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is large enough to be computed again; programs compiled within HUGE bytes are compiled so."""
    monkeypatch.setattr(budget, "_LARGE", 1 << 62)


def analysis(f: Callable[..., Any], **options: Any) -> Any:
    start = params()
    return fx.jit(f, **options).lower(start, OPTIMIZER.init(start), X).compile().memory_analysis()


def test_weights_and_moments_are_updated_in_the_memory_that_was_donated() -> None:
    found = analysis(step, donate_argnums=(0, 1))
    assert found.alias_bytes >= 3 * 2 * DEPTH * WEIGHT


def test_gradients_do_not_wait_for_each_other() -> None:
    """Each weight is updated when its gradient is there, before the next product."""
    start = params()
    found = fx.jit(step, donate_argnums=(0, 1)).lower(start, OPTIMIZER.init(start), X).compile()
    products = [i for i, s in enumerate(found.steps) if "matmul" in s.title]
    updates = [i for i, s in enumerate(found.steps) if s.title.count("sqrt") == 1 and s.bytes_written == 3 * WEIGHT]
    assert len(updates) == 2 * DEPTH
    assert sum(i < products[-1] for i in updates) >= 2 * DEPTH - 1


def test_activations_are_computed_again_where_that_costs_little(request: pytest.FixtureRequest) -> None:
    found = analysis(step)
    request.getfixturevalue("everything_kept")
    assert found.temp_bytes < 0.75 * analysis(step, memory_budget=HUGE).temp_bytes


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_stay(threads: int, use_threads: Callable[[int], None], request: pytest.FixtureRequest) -> None:
    """Of three steps, with donation, with and without what is computed again, and operation by operation."""
    use_threads(threads)
    compiled = [fx.jit(step, donate_argnums=(0, 1)), fx.jit(step, memory_budget=HUGE), step]
    found = []
    for f in compiled:
        layers = params()
        state = OPTIMIZER.init(layers)
        values = []
        for _ in range(3):
            layers, state, value = f(layers, state, X)
            values.append(value)
        found.append(fx.tree.leaves((layers, state, values)))
        request.getfixturevalue("everything_kept")  # for those that follow
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


def test_an_update_that_others_read_comes_in_order() -> None:
    """A parameter that is read after its update, and one whose old value is a result too, in donated memory."""

    def f(p: Any, x: Any) -> Any:
        g = fx.grad(lambda p: np.sum(np.tanh(x @ p) ** 2))(p)
        new = p - 0.1 * g
        return new, np.sum(x @ new), np.sum(x @ p) + np.sum(p), p * 2.0

    p, x = (np.random.default_rng(i).standard_normal((300, 300)).astype("f4") for i in range(2))
    with fx.disable_jit():
        want = fx.jit(f)(p, x)
    assert_same_bits(fx.jit(f, donate_argnums=0)(p.copy(), x), want)
    assert_same_bits(fx.jit(f)(p, x), want)


def test_an_update_from_what_is_written_in_pieces_waits_for_all_of_them() -> None:
    """Gradients of slices are put together piece by piece; the sum of all rows began after the first."""

    def f(p: Any, w: Any, x: Any) -> Any:
        def loss(p: Any, w: Any) -> Any:
            h = x @ w + p
            a, b, c = h[:, :64], h[:, 64:128], h[:, 128:]
            return np.sum(np.tanh(a @ b.T) @ c)

        grads = fx.grad(loss, (0, 1))(p, w)
        return p - 0.1 * grads[0], w - 0.1 * grads[1]

    p, w, x = (np.random.default_rng(i).standard_normal(s).astype("f4") for i, s in enumerate(((192,), (64, 192), (128, 64))))
    with fx.disable_jit():
        want = fx.jit(f)(p, w, x)
    assert_same_bits(fx.jit(f)(p, w, x), want)
    assert_same_bits(fx.jit(f, donate_argnums=(0, 1))(p.copy(), w.copy(), x), want)


def test_another_size_takes_over_what_is_computed_again() -> None:
    """Looking for it takes ten times as long as planning; a program that differs in sizes only is planned once."""
    plans = []

    def planner(flat: Any) -> Any:
        plans.append(flat)
        return lower._planned(flat, True, frozenset(), True)

    def planned(rows: int) -> Any:
        program = fx.make_ir(fx.value_and_grad(loss))(params(), X[:rows]).without_consts()
        flat = lower.flatten(program)
        plan = lower._planned(flat, True, frozenset(), True)
        plans.clear()
        found = budget.fitted(flat, None, planner)
        assert found.memory_analysis().temp_bytes < 0.75 * plan.memory_analysis().temp_bytes
        return len(plans)

    budget._found.clear()
    assert planned(ROWS) > 2
    assert planned(ROWS - 64) == 1


def test_an_order_that_reads_too_early_is_refused() -> None:
    """A planted fault: steps backwards. Without the check the program would answer with what was in memory before."""
    program = fx.make_ir(lambda x: np.tanh(np.tanh(x @ x) @ x))(np.ones((8, 8))).without_consts()
    a, steps, _ = lower.lowered(lower.flatten(program), True)
    lower.plan_memory(steps, a.program.inputs, {})
    with pytest.raises(AssertionError, match="reads what a later one writes"):
        lower.plan_memory(steps[::-1], a.program.inputs, {})
