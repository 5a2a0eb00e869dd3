"""Optimizers: PyTorch's steps on the transformer block, schedules, states as trees, one answer in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from examples import transformer_parity as block
from fxgrad import optim
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

STEPS = 100
HEADS = 2
SIZE = block.Size(2, 4, 8, HEADS)
RATE = 1e-2
OPTIMIZERS: dict[str, tuple[optim.Transformation, Callable[[Any], Any]]] = {
    "sgd": (optim.sgd(RATE), lambda p: torch.optim.SGD(p, RATE)),
    "momentum": (optim.sgd(RATE, 0.9), lambda p: torch.optim.SGD(p, RATE, momentum=0.9)),
    "nesterov": (optim.sgd(RATE, 0.9, nesterov=True), lambda p: torch.optim.SGD(p, RATE, momentum=0.9, nesterov=True)),
    "adam": (optim.adam(RATE), lambda p: torch.optim.Adam(p, RATE)),
    "adamw": (optim.adamw(RATE, weight_decay=1e-2), lambda p: torch.optim.AdamW(p, RATE)),
    "rmsprop": (optim.rmsprop(RATE, 0.99, eps_in_sqrt=False), lambda p: torch.optim.RMSprop(p, RATE)),
    "centered": (
        optim.rmsprop(RATE, 0.99, eps_in_sqrt=False, centered=True),
        lambda p: torch.optim.RMSprop(p, RATE, centered=True),
    ),
    "adagrad": (optim.adagrad(RATE, 0.0, eps=1e-10, eps_in_sqrt=False), lambda p: torch.optim.Adagrad(p, RATE)),
}


def step_of(optimizer: optim.Transformation) -> Callable[..., Any]:
    """(parameters, state, input, target) -> (parameters, state, loss)."""

    def step(params: Any, state: Any, x: Any, target: Any) -> Any:
        loss, g = fx.value_and_grad(lambda p: block.loss_of(HEADS, target)(p, x))(params)
        updates, state = optimizer.update(g, state, params)
        return optim.apply_updates(params, updates), state, loss

    return step


def without_key_bias(bias: Any) -> None:
    """Set the gradient of the key's bias to zero. It is zero but for rounding, which adaptive steps would make large."""
    width = SIZE.width
    bias[width : 2 * width] = 0.0


def largest_difference(mine: np.ndarray, other: np.ndarray) -> float:
    """Absolute, or relative to the largest element if that is beyond 1."""
    return float(np.abs(mine - other).max() / max(1.0, np.abs(other).max()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_hundred_steps_follow_pytorch(name: str, dtype: str) -> None:
    """The transformer block trained on one batch: all parameters after 100 steps.

    In float64 each side computes its own gradients. In float32 those differ by rounding, which 100 adaptive steps magnify, so
    there PyTorch gets ours, and steps in float64: what is left is our rounding.
    """
    optimizer, peer = OPTIMIZERS[name]
    params, x, target = block.make_problem(SIZE, dtype, seed=0)
    exact = {g: {k: a.astype(np.float64) for k, a in q.items()} for g, q in params.items()}
    tensors = {g: {k: torch.from_numpy(a).requires_grad_() for k, a in q.items()} for g, q in exact.items()}
    reference = peer([t for q in tensors.values() for t in q.values()])
    tx, ttarget = torch.from_numpy(x), torch.from_numpy(target)
    gradient, state = fx.jit(fx.grad(block.loss_of(HEADS, target))), optimizer.init(params)
    update = fx.jit(optimizer.update)
    for _ in range(STEPS):
        g = gradient(params, x)
        without_key_bias(g["attention"]["qkv_bias"])
        updates, state = update(g, state, params)
        params = optim.apply_updates(params, updates)
        reference.zero_grad()
        if dtype == "float64":
            block.torch_loss(torch, tensors, tx, ttarget, HEADS).backward()
            without_key_bias(tensors["attention"]["qkv_bias"].grad)
        else:
            for group, q in g.items():
                for key, ours in q.items():
                    tensors[group][key].grad = torch.from_numpy(ours.astype(np.float64))
        reference.step()
    for group, q in params.items():
        for key, mine in q.items():
            other = tensors[group][key].detach().numpy()
            assert mine.dtype == dtype
            assert largest_difference(mine, other) <= (1e-6 if dtype == "float32" else 1e-12), f"{group}.{key}"


@pytest.mark.parametrize("name", [*OPTIMIZERS, "lion"])
def test_one_answer(name: str) -> None:
    """Compiled or not: parameters and states to the bit; and the step changes no argument."""
    optimizer = OPTIMIZERS[name][0] if name in OPTIMIZERS else optim.lion(RATE)
    params, x, target = block.make_problem(SIZE, "float32", seed=1)
    state = optimizer.init(params)
    jitted = fx.jit(step_of(optimizer))
    for _ in range(3):
        before = [np.copy(a) for a in fx.tree.leaves((params, state))]
        with fx.disable_jit():
            plain = jitted(params, state, x, target)
        compiled = jitted(params, state, x, target)
        for a, b in zip(fx.tree.leaves(compiled), fx.tree.leaves(plain), strict=True):
            assert_same_bits(a, b)
        for a, b in zip(fx.tree.leaves((params, state)), before, strict=True):
            assert_same_bits(a, b)
        params, state, _ = compiled
    assert jitted.cache_info().misses == 1


def test_lion_and_decay_by_hand() -> None:
    optimizer, p, g = optim.lion(0.1, weight_decay=0.5), np.array([1.0, -2.0]), np.array([3.0, 0.5])
    state = optimizer.init(p)
    updates, state = optimizer.update(g, state, p)
    np.testing.assert_allclose(updates, -0.1 * (np.sign(g) + 0.5 * p), rtol=1e-15)
    updates, state = optimizer.update(-g, state, p)
    np.testing.assert_allclose(updates, -0.1 * (np.sign(-0.1 * g + 0.9 * 0.01 * g) + 0.5 * p), rtol=1e-15)
    masked = optim.adamw(0.1, weight_decay=1.0, mask=lambda params: {"w": True, "b": False})
    params = {"w": np.ones(2), "b": np.ones(2)}
    updates, _ = masked.update({"w": np.zeros(2), "b": np.zeros(2)}, masked.init(params), params)
    assert_same_bits(updates["w"], np.full(2, -0.1))
    assert_same_bits(updates["b"], np.zeros(2) * -0.1)


def test_clipping() -> None:
    g = {"a": np.array([3.0, -4.0]), "b": np.array([[12.0]])}
    assert optim.global_norm(g) == 13.0
    assert optim.global_norm({"a": None, "b": ()}) == 0.0
    clipped, _ = optim.clip_by_global_norm(6.5).update(g, ())
    np.testing.assert_allclose(clipped["a"], [1.5, -2.0], rtol=1e-15)
    same, _ = optim.clip_by_global_norm(14.0).update(g, ())
    assert_same_bits(same["b"], g["b"])
    assert_same_bits(optim.clip(3.5).update(g, ())[0]["a"], np.array([3.0, -3.5]))
    assert optim.clip_by_global_norm(1.0).update({}, ())[0] == {}
    half, _ = optim.clip_by_global_norm(1.0).update(np.float16([3.0, 4.0]), ())
    assert half.dtype == np.float16
    none, _ = optim.clip_by_global_norm(1.0).update(np.zeros(3), ())
    assert_same_bits(none, np.zeros(3))


def test_schedules_inside_and_outside_jit() -> None:
    rates = {
        "constant": optim.constant_schedule(0.3),
        "linear": optim.linear_schedule(1.0, 0.0, 5, transition_begin=2),
        "exponential": optim.exponential_decay(1.0, 3, 0.5, end_value=0.2),
        "cosine": optim.cosine_decay_schedule(1.0, 7, alpha=0.1),
        "warm": optim.warmup_cosine_decay_schedule(0.0, 1.0, 3, 9, 0.1),
        "pieces": optim.piecewise_constant_schedule(1.0, {2: 0.1, 5: 10.0}),
    }
    for name, rate in rates.items():
        compiled = fx.jit(rate)
        for count in range(12):
            assert_same_bits(compiled(np.int32(count)), np.float64(rate(count)), name)
    assert [round(float(rates["linear"](i)), 12) for i in (0, 2, 3, 7, 9)] == [1.0, 1.0, 0.8, 0.0, 0.0]
    assert float(rates["exponential"](30)) == 0.2
    for schedule in (optim.linear_schedule(0.1, 0.0, 4), lambda count: 0.1 / (1.0 + count)):
        optimizer, p = optim.sgd(schedule), np.float32([1.0, 2.0])
        state, seen = optimizer.init(p), []
        for _ in range(3):
            updates, state = fx.jit(optimizer.update)(np.ones(2, np.float32), state)
            assert updates.dtype == np.float32
            seen.append(float(updates[0]))
        np.testing.assert_allclose(seen, [-float(schedule(i)) for i in range(3)], rtol=1e-6)


def test_training_runs_in_a_scan_and_is_differentiable() -> None:
    """A whole training run as one program, and its result by the learning rate."""
    rng = np.random.default_rng(0)
    x, w0 = rng.standard_normal((20, 3)), np.zeros(3)
    y = x @ np.array([1.0, -2.0, 0.5])

    def trained(rate: Any) -> Any:
        optimizer = optim.sgd(lambda count: rate, momentum=0.5)

        def step(carry: Any, _: Any) -> Any:
            w, state = carry
            g = fx.grad(lambda w: fnp.mean((x @ w - y) ** 2))(w)
            updates, state = optimizer.update(g, state, w)
            return (optim.apply_updates(w, updates), state), None

        (w, _), _ = fx.scan(step, (fnp.asarray(w0), optimizer.init(w0)), None, length=10)
        return fnp.mean((x @ w - y) ** 2)

    g = fx.grad(trained)(0.05)
    assert_same_bits(fx.jit(fx.grad(trained))(0.05), g)
    np.testing.assert_allclose(g, (trained(0.05 + 1e-6) - trained(0.05 - 1e-6)) / 2e-6, rtol=1e-6)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"was not given the parameters"):
        optim.adamw(0.1).update(np.ones(2), optim.adamw(0.1).init(np.ones(2)))
    with pytest.raises(ValueError, match="a chain of 2 transformations got the states of 1"):
        optim.adam(0.1).update(np.ones(2), ((),))
    for shape in ((2, 3), (1,), ()):
        with pytest.raises(ValueError, match=r"update \[.w.\] of shape \(.*\) for parameter of shape \(3,\)"):
            optim.apply_updates({"w": np.ones(3)}, {"w": np.ones(shape)})
    with pytest.raises(fx.TreeMismatchError):
        optim.sgd(0.1, 0.9).update({"a": np.ones(2)}, optim.sgd(0.1, 0.9).init({"b": np.ones(2)}))
    with pytest.raises(ValueError, match="boundaries"):
        optim.join_schedules([optim.constant_schedule(1.0)], [3])
    with pytest.raises(ValueError, match="decay_steps"):
        optim.cosine_decay_schedule(1.0, 0)
    with pytest.raises(ValueError, match="warmup_steps=5"):
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 5, 5)


ALL = {name: pair[0] for name, pair in OPTIMIZERS.items()} | {"lion": optim.lion(RATE), "schedule": optim.sgd(lambda n: 0.1)}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("leaf", [np.ones(3, int), np.ones(3, bool), 3, True])
def test_parameters_without_a_derivative_are_refused(name: str, leaf: Any) -> None:
    assert_four_parts(
        raised(lambda: ALL[name].init({"w": np.ones(2), "a": [leaf]}), fx.errors.FxTypeError),
        what=["parameter ['a'][0]", str(np.asarray(leaf).dtype)],
        line="ALL[name].init(",
        why="no derivative",
        fix=".astype(np.float32)",
    )


def test_complex_parameters_where_the_rule_is_linear() -> None:
    z = np.array([1.0 + 2.0j, -1.0j])
    for optimizer in (optim.sgd(0.5), optim.sgd(0.5, 0.9)):
        updates, _ = optimizer.update(z, optimizer.init(z), z)
        assert_same_bits(optim.apply_updates(z, updates), z + -0.5 * z)
    for name in ("adam", "rmsprop", "adagrad", "lion"):
        error = raised(lambda name=name: ALL[name].init(z), fx.errors.FxTypeError)
        assert_four_parts(error, what="real parameters", line="ALL[name].init(z)", why="squares", fix="two parameters")


def test_settings_are_looked_at() -> None:
    for make in (optim.sgd, optim.adam, optim.adamw, optim.rmsprop, optim.adagrad, optim.lion):
        error = raised(lambda make=make: make(-1), ValueError)
        assert_four_parts(error, what="learning_rate=-1", line="make(-1)", why="not below 0", fix="uphill")
        for wrong in ("x", None, True, [0.1], np.ones(2)):
            error = raised(lambda make=make, wrong=wrong: make(wrong), TypeError)
            assert_four_parts(error, what="learning_rate=", line="make(wrong)", why="a schedule", fix="learning_rate=0.1")
        assert make(np.float32(0.1)) and make(np.array(0.1)) and make(1) and make(0.0)
    error = raised(lambda: optim.adam(0.1, b2=1.5), ValueError)
    assert_four_parts(error, what="b2=1.5", line="b2=1.5", why="between 0 and 1", fix="b2")
    raised(lambda: optim.sgd(float("nan")), ValueError)
    with pytest.raises(ValueError, match="weight_decay=-1"):
        optim.adamw(0.1, weight_decay=-1)
    learned = fx.jit(lambda rate: optim.sgd(rate).update(np.ones(2), ((),))[0])
    assert_same_bits(learned(0.5), np.full(2, -0.5))


@pytest.mark.parametrize("name", ALL)
def test_gradients_unlike_the_parameters(name: str) -> None:
    optimizer, p = ALL[name], {"a": np.ones(3), "b": np.ones(2)}
    state = optimizer.init(p)
    for wrong in (np.ones(()), np.ones((3, 1)), np.ones(2)):
        error = raised(lambda wrong=wrong: optimizer.update({**p, "a": wrong}, state, p), ValueError)
        assert_four_parts(error, what=["gradient ['a']", "(3,)"], line="optimizer.update(", why="own gradient", fix="(3,)")
    error = raised(lambda: optimizer.update({"a": np.ones(3)}, state, p), fx.TreeMismatchError)
    assert_four_parts(error, what="gradients", line="optimizer.update(", why="", fix="")
    error = raised(lambda: optim.apply_updates(p, {**p, "b": np.ones((1, 2))}), ValueError)
    assert_four_parts(error, what="update ['b']", line="optim.apply_updates(", why="own", fix="(2,)")
