"""Control flow: loops and branches equal what plain Python does, to the bit, in values and in every derivative."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.ir.check import check
from fxgrad.ir.program import Program
from fxgrad.runtime import loops
from fxgrad.testing.bits import assert_same_bits

F = Callable[..., Any]


def same(a: Any, b: Any) -> None:
    assert fx.tree.structure(a) == fx.tree.structure(b)
    assert_same_bits(fx.tree.leaves(a), fx.tree.leaves(b))


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(-1.5, 1.5, shape)


def unrolled(f: F, init: Any, xs: Any, reverse: bool = False) -> Any:
    """What scan computes, by a Python loop."""
    n = len(fx.tree.leaves(xs)[0])
    carry, ys = init, [None] * n
    for i in reversed(range(n)) if reverse else range(n):
        carry, ys[i] = f(carry, fx.tree.map(lambda x: x[i], xs))
    return carry, fx.tree.map(lambda *rows: fnp.stack(rows), *ys)


# ---- scan against the unrolled loop --------------------------------------------------------------------------------------


def lstm(state: Any, x: Any, w: Any) -> Any:
    h, c = state
    z = fnp.tanh(w["w"] @ h + w["u"] @ x + w["b"])
    gate = 1 / (1 + fnp.exp(-(w["u"] @ h)))
    c = gate * c + (1 - gate) * z
    h = gate * fnp.tanh(c)
    return (h, c), h


def lstm_loss(loop: F, init: Any, w: Any, xs: Any) -> Any:
    (h, c), ys = loop(lambda s, x: lstm(s, x, w), init, xs)
    return fnp.sum(h * c) + fnp.sum(ys * ys * ys)


LSTM = (
    (draw(3), draw(3, seed=1)),
    {"w": draw(3, 3), "u": draw(3, 3, seed=1), "b": draw(3, seed=2)},
    draw(6, 3),
)


def plain_zeros(x: Any) -> Any:
    """-0.0 as 0.0: indexing rows of xs adds their gradients to zeros, stacking them does not."""
    return fx.tree.map(lambda a: a + 0.0, x)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_unrolled_loop(reverse: bool) -> None:
    def looped(*args: Any) -> Any:
        return lstm_loss(lambda f, i, x: fx.scan(f, i, x, reverse=reverse), *args)

    def by_hand(*args: Any) -> Any:
        return lstm_loss(lambda f, i, x: unrolled(f, i, x, reverse), *args)

    both = fx.value_and_grad(looped, (0, 1, 2)), fx.value_and_grad(by_hand, (0, 1, 2))
    want = plain_zeros(both[1](*LSTM))
    same(plain_zeros(both[0](*LSTM)), want)
    same(plain_zeros(fx.jit(both[0])(*LSTM)), want)
    same(fx.jvp(looped, LSTM, LSTM), fx.jvp(by_hand, LSTM, LSTM))
    same(fx.jit(lambda *a: fx.jvp(looped, a, a))(*LSTM), fx.jvp(by_hand, LSTM, LSTM))
    y, f_jvp = fx.linearize(looped, *LSTM)
    same((y, f_jvp(*LSTM)), fx.jvp(by_hand, LSTM, LSTM))
    same(plain_zeros(fx.hvp(looped, LSTM, LSTM)), plain_zeros(fx.hvp(by_hand, LSTM, LSTM)))


def test_scan_in_every_mode() -> None:
    def loss(*args: Any) -> Any:
        return lstm_loss(fx.scan, *args)

    want = fx.grad(loss, (0, 1, 2))(*LSTM)
    same(fx.grad(fx.jit(loss), (0, 1, 2))(*LSTM), want)
    with fx.disable_jit():
        same(fx.grad(loss, (0, 1, 2))(*LSTM), want)
    for policy in ("nothing_saveable", "everything_saveable", "dots_saveable"):
        same(fx.grad(fx.checkpoint(loss, policy=getattr(fx.checkpoint_policies, policy)), (0, 1, 2))(*LSTM), want)
    kept = fx.checkpoint(lstm)

    def with_checkpoints(loop: F) -> F:
        return lambda init, w, xs: lstm_loss(lambda f, i, x: loop(lambda s, y: kept(s, y, w), i, x), init, w, xs)

    same(
        plain_zeros(fx.grad(with_checkpoints(fx.scan), (0, 1, 2))(*LSTM)),
        plain_zeros(fx.grad(with_checkpoints(unrolled), (0, 1, 2))(*LSTM)),
    )
    states = fx.tree.map(lambda a: np.stack([a, a * 0.5, -a]), LSTM[0])
    found = fx.vmap(fx.grad(loss, (0, 1, 2)), (0, None, None))(states, *LSTM[1:])
    for i in range(3):
        each = fx.grad(loss, (0, 1, 2))(fx.tree.map(lambda a: a[i], states), *LSTM[1:])
        same(fx.tree.map(lambda a: a[i], found), each)
    xs = np.stack([LSTM[2], LSTM[2] + 1])
    same(fx.vmap(loss, (None, None, 0))(*LSTM[:2], xs)[1], loss(*LSTM[:2], xs[1]))


OPS: list[tuple[str, F]] = [
    ("add", lambda a, b: a + b),
    ("mul", lambda a, b: a * b),
    ("sub", lambda a, b: a - 0.5 * b),
    ("sin", lambda a, b: fnp.sin(a)),
    ("tanh", lambda a, b: fnp.tanh(a + b)),
    ("max", lambda a, b: fnp.maximum(a, b)),
    ("dot", lambda a, b: fnp.dot(a, b) * a),
    ("where", lambda a, b: fnp.where(a > b, a, b * 2)),
    ("sum", lambda a, b: a / (1.5 + fnp.sum(b * b))),
    ("flip", lambda a, b: a[::-1] + b),
    ("branch", lambda a, b: fx.cond(a[0] > b[1], lambda a, b: a * b, lambda a, b: fnp.sin(a) + b, a, b)),
    ("inner", lambda a, b: fx.scan(lambda c, y: (c * 0.5 + y, None), a, fnp.stack([b, a]))[0]),
]


@st.composite
def bodies(draw_: Any) -> tuple[list[tuple[int, int, int]], list[int], bool]:
    """Steps (operation, operand, operand) on a growing list of values; which values are the carries and the ys; the direction."""

    def step(i: int) -> tuple[int, int, int]:
        return tuple(draw_(st.integers(0, most)) for most in (len(OPS) - 1, 3 + i, 3 + i))

    steps = [step(i) for i in range(draw_(st.integers(1, 6)))]
    outs = [draw_(st.integers(0, 3 + len(steps))) for _ in range(4)]
    outs[2:] = [4 if i == 3 else i for i in outs[2:]]  # as y a constant's cotangents are added before all others
    return steps, outs, draw_(st.booleans())


def body_of(steps: list, outs: list, const: Any) -> F:
    def body(carry: Any, x: Any) -> Any:
        values = [carry[0], carry[1], x, const]
        for op, i, j in steps:
            values.append(OPS[op][1](values[i], values[j]))
        squashed = [fnp.tanh(values[i]) for i in outs[:2]]
        return (squashed[0], squashed[1]), (squashed[0], values[outs[2]], values[outs[3]])

    return body


@given(bodies())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_bodies(drawn: Any) -> None:
    steps, outs, reverse = drawn

    def result(loop: F, init: Any, const: Any, xs: Any) -> Any:
        return loop(body_of(steps, outs, const), init, xs, reverse)

    def looped(*args: Any) -> Any:
        return result(lambda f, i, x, r: fx.scan(f, i, x, reverse=r), *args)

    def by_hand(*args: Any) -> Any:
        return result(unrolled, *args)

    def loss(f: F) -> F:
        return lambda *args: sum(fnp.sum(y * y) for y in fx.tree.leaves(f(*args)))

    args = ((draw(3), draw(3, seed=3)), draw(3, seed=4), draw(4, 3))
    same(looped(*args), by_hand(*args))
    check(fx.make_ir(fx.grad(loss(looped), (0, 1, 2)))(*args))
    tangents = fx.tree.map(lambda a: a * 0.7 + 2.0, args)
    same(plain_zeros(fx.jvp(looped, args, tangents)), plain_zeros(fx.jvp(by_hand, args, tangents)))
    gradient = fx.grad(loss(looped), (0, 1, 2))
    want = plain_zeros(gradient(*args))
    same(want, plain_zeros(fx.grad(loss(by_hand), (0, 1, 2))(*args)))
    wide = fx.vmap(gradient, ((0, None), None, None))((np.stack([args[0][0], draw(3, seed=9)]), args[0][1]), *args[1:])
    same(plain_zeros(fx.tree.map(lambda a: a[0], wide)), want)


def test_random_bodies_compiled() -> None:
    """A fixed body with everything in it, compiled."""
    steps = [(i, i % 4, (i + 1) % 4) for i in range(len(OPS))]
    body = [steps, [7, 12, 15, 10]]

    def loss(init: Any, const: Any, xs: Any) -> Any:
        return sum(fnp.sum(y * y) for y in fx.tree.leaves(fx.scan(body_of(*body, const), init, xs)))  # type: ignore[arg-type]

    args = ((draw(3), draw(3, seed=3)), draw(3, seed=4), draw(4, 3))
    gradient = fx.value_and_grad(loss, (0, 1, 2))
    same(fx.jit(gradient)(*args), gradient(*args))


def test_sums_go_on_where_the_rest_of_the_program_left_them() -> None:
    """A weight used before, in and after a loop or a branch: its gradient is summed in the order of plain Python's."""

    def f(loop: F, choose: F) -> F:
        def loss(w: Any, x: Any, xs: Any) -> Any:
            h = fnp.tanh(w @ x)
            h, _ = loop(lambda h, x: (fnp.sin(w @ h) + w @ x * w[0], None), h, xs)
            h = choose(h[0] > -9.0, lambda h: w @ h * w[1], lambda h: h, h)
            return fnp.sum(fnp.exp(w @ h) * w[1])

        return loss

    def plain(f: F, init: Any, xs: Any) -> Any:
        for x in xs:
            init = f(init, x)[0]
        return init, None

    args = draw(3, 3), draw(3), draw(5, 3)
    want = fx.grad(f(plain, lambda p, a, b, h: a(h)))(*args)
    same(fx.grad(f(fx.scan, fx.cond))(*args), want)
    same(fx.jit(fx.grad(f(fx.scan, fx.cond)))(*args), want)


def test_lengths_and_trees() -> None:
    carry, ys = fx.scan(lambda c, _: ({"a": c["a"] + 1}, (c["a"], None)), {"a": 1}, None, length=3)
    same((carry, ys), ({"a": np.int64(4)}, (np.array([1, 2, 3]), None)))
    same(fx.scan(lambda c, x: (c + x, c), 1.0, np.zeros(0)), (np.float64(1.0), np.zeros(0)))  # reported case 18
    same(fx.grad(lambda c: fx.scan(lambda c, x: (c * x, c), c, np.zeros(0))[0])(2.0), np.float64(1.0))
    same(fx.scan(lambda c, x: (c, {"y": x * 2}), (), np.arange(3), reverse=True), ((), {"y": np.array([0, 2, 4])}))
    same(fx.scan(lambda c, x: (c + x, None), np.float32(0), np.arange(3, dtype=np.float32))[0], np.float32(3))
    same(fx.scan(lambda c, x: (c + x, None), 0, np.arange(3, dtype=np.float32))[0], np.float32(3))  # a number takes x's dtype
    same(fx.scan(lambda c, x: (0.0, c), np.float32(2), np.zeros(2)), (np.float32(0), np.array([2, 0], np.float32)))
    same(fx.jit(lambda xs: fx.scan(lambda c, x: (c + x, c), 1.0, xs))(np.zeros(0)), (np.float64(1.0), np.zeros(0)))


def test_constants_are_captured() -> None:
    w = draw(3, 3)

    def f(x: Any, k: Any) -> Any:
        y = fnp.sin(x)  # a traced value that the body closes over
        return fnp.sum(fx.scan(lambda c, _: (fnp.tanh(w @ c) * y * k, None), x, None, length=3)[0])

    def by_hand(x: Any, k: Any) -> Any:
        c, y = x, fnp.sin(x)
        for _ in range(3):
            c = fnp.tanh(w @ c) * y * k
        return fnp.sum(c)

    same(fx.value_and_grad(f, (0, 1))(draw(3), 0.5), fx.value_and_grad(by_hand, (0, 1))(draw(3), 0.5))
    same(fx.jit(fx.grad(f, (0, 1)))(draw(3), 0.5), fx.grad(by_hand, (0, 1))(draw(3), 0.5))


def equations(program: Program, name: str) -> list[Any]:
    return [e for e in program.eqns if e.prim.name == name]


def test_invariant_residuals_are_not_stacked() -> None:
    """Reported case 40: the gradient needs W.T once, not once a turn."""
    w = np.random.default_rng(0).random((500, 500)) / 250.0

    def f(h: Any) -> Any:
        return fx.scan(lambda h, _: (w @ h, None), h, None, length=200)[0].sum()

    def by_hand(h: Any) -> Any:
        for _ in range(200):
            h = w @ h
        return h.sum()

    gradient = fx.grad(f)
    gradient(np.ones(500))  # what is made once
    tracemalloc.start()
    found = gradient(np.ones(500))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8e6  # 200 * 500 numbers and a matrix; 200 matrices are 400 MB
    same(found, fx.grad(by_hand)(np.ones(500)))
    same(fx.jit(gradient)(np.ones(500)), found)

    def trained(w: Any) -> Any:  # the residuals: h in every turn, exp(w) once
        return fx.scan(lambda h, _: (fnp.exp(w) @ h * 1e-2, None), np.ones(500), None, length=3)[0].sum()

    for eqn in equations(fx.make_ir(fx.grad(trained))(w), "scan"):
        assert all(v.aval.size <= 500 * 500 for v in [*eqn.inputs, *eqn.outputs])


def test_unused_parts_are_dropped() -> None:
    def f(x: Any) -> Any:
        (a, _), ys = fx.scan(lambda c, _: ((c[0] * 2.0, fnp.sin(c[1])), (c[1], c[0])), (x, x), None, length=4)
        return a + ys[1][2]

    (eqn,) = equations(fx.make_ir(f)(1.0), "scan")
    assert (eqn.params["carry"], len(eqn.outputs)) == (1, 2)
    program = fx.make_ir(fx.grad(f))(1.0)
    assert all(len(e.outputs) <= 2 for e in equations(program, "scan"))
    assert fx.parse_ir(str(program)) == program


# ---- while_loop ------------------------------------------------------------------------------------------------------------


def power(x: Any) -> Any:
    return fx.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * c[0], c[1] + 1), (x, 0))[0]


def test_reverse_mode_of_while() -> None:
    """Reported case 34."""
    want = fx.grad(lambda x: ((x * x) * (x * x)) * ((x * x) * (x * x)))(1.1)
    found = fx.grad(power)(1.1)
    np.testing.assert_allclose(found, 8 * 1.1**7, rtol=1e-14)
    np.testing.assert_allclose(found, want, rtol=1e-14)
    for g in (
        fx.jit(fx.grad(power)),
        fx.grad(fx.jit(power)),
        fx.grad(fx.checkpoint(power)),
        lambda x: fx.vjp(power, x)[1](1.0)[0],
    ):
        same(g(1.1), found)
    with fx.disable_jit():
        same(fx.grad(power)(1.1), found)
    same(fx.jvp(power, (1.1,), (1.0,))[0], power(1.1))
    np.testing.assert_allclose(fx.grad(fx.grad(power))(1.1), 56 * 1.1**6, rtol=1e-13)
    np.testing.assert_allclose(fx.jit(fx.grad(fx.grad(fx.grad(power))))(1.1), 336 * 1.1**5, rtol=1e-13)
    np.testing.assert_allclose(
        fx.hessian(lambda x: fnp.sum(power(x)))(np.array([1.1, 0.9])), np.diag(56 * np.array([1.1, 0.9]) ** 6)
    )


def wander(x: Any, n: Any, a: Any) -> Any:
    """n turns, as many as the data say; a residual that is a constant, one in every turn, and a checkpoint."""

    def body(c: Any) -> Any:
        i, h = c
        return i + 1, fx.checkpoint(lambda h: fnp.tanh(fnp.exp(a) * h + fx.asarray(x)[i % 3]))(h) * 1.25

    return fnp.sum(fx.while_loop(lambda c: c[0] < n, body, (0, x))[1])


def wander_by_hand(x: Any, n: int, a: Any) -> Any:
    h = x
    for i in range(n):
        h = fnp.tanh(fnp.exp(a) * h + fx.asarray(x)[i % 3]) * 1.25
    return fnp.sum(h)


@pytest.mark.parametrize("turns", [0, 1, 15, 16, 17, 50, 120])
def test_tapes_grow(turns: int) -> None:
    x, a = draw(3), draw(3, seed=1)
    found = fx.value_and_grad(wander, (0, 2))(x, turns, a)
    value, gradient = fx.value_and_grad(wander_by_hand, (0, 2))(x, turns, a)
    same(found[0], value)
    np.testing.assert_allclose(found[1][0], gradient[0], rtol=1e-12)  # x is used outside the loop too: another order
    same(plain_zeros(found[1][1]), plain_zeros(gradient[1])) if turns < 2 else np.testing.assert_allclose(
        found[1][1], gradient[1]
    )
    same(fx.jit(fx.value_and_grad(wander, (0, 2)))(x, turns, a), found)


def test_batched_while() -> None:
    """Each lane stops when it is done, keeps its value to the bit, and cannot fail or leak afterwards."""
    xs, ns, a = draw(5, 3), np.array([0, 7, 3, 20, 1]), draw(3, seed=1)
    for f in (
        wander,
        fx.grad(wander, (0, 2)),
        fx.grad(fx.checkpoint(wander), (0, 2)),
        fx.grad(lambda *v: fx.jvp(wander, v, (v[0], None, v[2]))[1], (0, 2)),
    ):
        want = [f(x, n, a) for x, n in zip(xs, ns, strict=True)]
        for g in (fx.vmap(f, (0, 0, None)), fx.jit(fx.vmap(f, (0, 0, None)))):
            found = g(xs, ns, a)
            for i, w in enumerate(want):
                same(plain_zeros(fx.tree.map(lambda v: v[i], found)), plain_zeros(w))
    together = fx.grad(lambda xs: fnp.sum(fx.vmap(wander, (0, 0, None))(xs, ns, a)))(xs)
    same(plain_zeros(together), plain_zeros(fx.vmap(fx.grad(wander), (0, 0, None))(xs, ns, a)))


def test_lanes_that_are_done_do_not_run_on() -> None:
    table = np.array([1.0, 2.0, 3.0])

    def total(n: Any, x: Any) -> Any:  # one more turn would look beyond the table
        return fx.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * fx.asarray(table)[c[0]]), (0, x))[1]

    same(fx.vmap(total)(np.array([3, 0, 2]), np.ones(3)), np.array([6.0, 1.0, 2.0]))

    def halve(x: Any) -> Any:  # log of what is 0 when it is done
        return fx.while_loop(lambda c: c > 1.0, lambda c: fnp.log(c), x)

    same(fx.vmap(fx.grad(halve))(np.array([0.0, 5.0])), np.array([1.0, 1 / 5.0 / np.log(5.0)]))


def test_loops_in_loops() -> None:
    def f(x: Any) -> Any:
        def inner(c: Any, i: Any) -> Any:
            c = fx.while_loop(lambda d: d < 5.0 + i, lambda d: d * 1.5 + x, c)
            return fx.cond(i > 1, lambda c: c * x, lambda c: fnp.sin(c), c), c

        last, ys = fx.scan(inner, x, np.arange(4))
        return last + fnp.sum(ys)

    def by_hand(x: Any) -> Any:
        c, total = x, 0.0
        for i in range(4):
            while c < 5.0 + i:
                c = c * 1.5 + x
            total, c = total + c, c * x if i > 1 else fnp.sin(c)
        return c + total

    np.testing.assert_allclose(fx.grad(f)(1.2), fx.grad(by_hand)(1.2), rtol=1e-13)
    same(fx.jit(fx.grad(f))(1.2), fx.grad(f)(1.2))
    xs = np.array([1.2, 0.7, 2.0])
    for g in (f, fx.grad(f), fx.grad(fx.grad(f))):
        same(fx.vmap(g)(xs), np.stack([g(x) for x in xs]))
    np.testing.assert_allclose(fx.grad(fx.grad(f))(1.2), (fx.grad(f)(1.2 + 1e-6) - fx.grad(f)(1.2 - 1e-6)) / 2e-6, rtol=1e-6)
    program = fx.make_ir(fx.grad(f))(1.2)
    check(program)
    assert fx.parse_ir(str(program)) == program


def test_residuals_on_tapes_are_few() -> None:
    """What is the same in every turn is no tape; what can be rearranged again is not kept."""

    def f(w: Any, x: Any) -> Any:
        return fnp.sum(fx.while_loop(lambda c: fnp.sum(c) < 10.0, lambda c: fnp.exp(w) @ c + 1.0, x))

    program = fx.make_ir(fx.grad(f, (0, 1)))(draw(3, 3), draw(3))
    (forward,) = equations(program, "while_tape")
    assert [v.aval.shape for v in forward.params["body"].out_avals[1:] and forward.params["body"].outputs[1:]] == [(3,)]


def test_pullbacks_hold_tapes() -> None:
    """A pullback that outlives its forward pass keeps the tape; it may be batched, compiled, differentiated and called often."""

    def f(x: Any) -> Any:
        return fx.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, fnp.sin(c[1])), (0, x))[1]

    x = draw(2)
    slope = fx.grad(lambda v: fnp.sum(f(v)))(x)
    _, pullback = fx.vjp(f, x)
    same(fx.jacrev(f)(x), np.diag(slope))
    same(fx.jit(fx.jacrev(f))(x), np.diag(slope))
    same(fx.vmap(pullback)(np.eye(2))[0], np.diag(slope))
    same(fx.jit(pullback)(np.ones(2))[0], slope)
    same(fx.linearize(f, x)[1](np.ones(2)), slope)
    np.testing.assert_allclose(fx.grad(lambda g: fnp.sum(pullback(g)[0] ** 2))(np.ones(2)), 2 * slope**2, rtol=1e-14)
    np.testing.assert_allclose(fx.jacfwd(f)(x), np.diag(slope), rtol=1e-14)
    for _ in range(40):
        same(pullback(np.ones(2))[0], slope)


def test_changes_in_place_in_bodies() -> None:
    def body(i: Any, c: Any, x: Any) -> Any:
        c = c.copy()
        c[i % 3] = c[(i + 1) % 3] * 1.5 + x[0]
        c[1:] += 0.5
        return c.at[0].multiply(x[1])

    def f(x: Any) -> Any:
        return fnp.sum(fx.fori_loop(0, 5, lambda i, c: body(i, c, x), x))

    def by_hand(x: Any) -> Any:
        c = x
        for i in range(5):
            c = body(i, c, x)
        return fnp.sum(c)

    x = draw(3)
    same(f(x), fx.jit(by_hand)(x))
    np.testing.assert_allclose(fx.grad(f)(x), fx.grad(by_hand)(x), rtol=1e-14)  # x is read outside the loop too
    same(fx.jit(fx.grad(f))(x), fx.grad(f)(x))


@pytest.mark.parametrize("patience", [0.0, 1e-4])
def test_long_loops_are_compiled_on_the_way(patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside jit a loop that takes long is started again compiled, with the same bits."""

    def f(x: Any, n: Any) -> Any:
        h = fx.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, fnp.sin(c[1]) * 1.1), (0, x))[1]
        return fnp.sum(fx.scan(lambda c, y: (c * 0.9 + y, None), h, fnp.stack([x, x, h]))[0])

    x = draw(4)
    with fx.disable_jit():
        want = f(x, 40), fx.grad(f)(x, 40)
    monkeypatch.setattr(loops, "PATIENCE", patience)
    fx.clear_caches()
    for _ in range(2):
        same((f(x, 40), fx.grad(f)(x, 40)), want)


# ---- cond --------------------------------------------------------------------------------------------------------------------


def safe_log(x: Any) -> Any:
    return fx.cond(x > 0, lambda x: fnp.log(x), lambda x: 0.0 * x, x)


def test_branch_not_taken_leaks_nothing() -> None:
    """Reported case 35."""
    x = np.array([1.0, 0.0])
    for f in (fx.vmap(fx.grad(safe_log)), fx.grad(lambda x: fnp.sum(fx.vmap(safe_log)(x)))):
        same(f(x), np.array([1.0, 0.0]))
        same(fx.jit(f)(x), np.array([1.0, 0.0]))


def test_branch_not_taken_does_not_run() -> None:
    table = np.arange(3.0)

    def f(i: Any) -> Any:  # the other branch would fail, or never end
        return fx.cond(i < 3, lambda i: fx.asarray(table)[i], lambda i: fx.while_loop(lambda c: c > 0, lambda c: c, 1.0), i)

    for g in (f, fx.jit(f)):
        same(g(np.int64(2)), np.float64(2.0))

    def g(i: Any) -> Any:
        return fx.cond(i < 3, lambda i: fx.asarray(table)[i], lambda i: -1.0, i)

    same(fx.vmap(g)(np.array([2, 3, 7, 0])), np.array([2.0, -1.0, -1.0, 0.0]))
    same(fx.vmap(g)(np.array([3, 7])), np.array([-1.0, -1.0]))


@pytest.mark.parametrize("x", [2.0, 0.5])
def test_cond_is_if(x: float) -> None:
    def f(x: Any, w: Any) -> Any:
        return fnp.sum(fx.cond(x > 1, lambda y: fnp.sin(w * y) * x, lambda y: y**2 * fnp.cos(y) * w[::-1], x))

    def by_hand(x: Any, w: Any) -> Any:
        return fnp.sum(fnp.sin(w * x) * x if x > 1 else x**2 * fnp.cos(x) * w[::-1])

    w = draw(3)
    want = fx.value_and_grad(by_hand, (0, 1))(x, w)
    for g in (fx.value_and_grad(f, (0, 1)), fx.jit(fx.value_and_grad(f, (0, 1))), fx.value_and_grad(fx.checkpoint(f), (0, 1))):
        found = g(x, w)
        same(found[0], want[0])
        np.testing.assert_allclose(found[1][0], want[1][0], rtol=1e-14)
        same(found[1][1], want[1][1])
    xs = np.array([2.0, 0.5, 1.0])
    for h in (f, fx.grad(f, (0, 1)), fx.grad(fx.grad(f))):
        found = fx.vmap(h, (0, None))(xs, w)
        for i, xi in enumerate(xs):
            same(plain_zeros(fx.tree.map(lambda v: v[i], found)), plain_zeros(h(xi, w)))


def test_forms_of_cond() -> None:
    same(fx.cond(True, lambda x: x + 1, lambda x: x, operand=1.0), np.float64(2.0))
    same(fx.cond(False, 1.0, lambda a: a, 2.0, lambda b: b * 3), np.float64(6.0))
    same(fx.cond(0, lambda: 1.0, lambda: 2.0), np.float64(2.0))
    same(fx.cond(np.float64(0.5), lambda: 1, lambda: 2.5), np.float64(1.0))
    same(fx.jit(lambda p: fx.cond(p, lambda: 1, lambda: np.float32(2.5)))(True), np.float32(1))
    same(fx.switch(7, [lambda x: x, lambda x: -x], 3.0), np.float64(-3.0))
    f = fx.jit(lambda i, x: fx.switch(i, [fnp.sin, fnp.cos, lambda x: x * x], x))
    same([f(i, 0.3) for i in (-5, 0, 1, 2, 9)], [np.sin(0.3), np.sin(0.3), np.cos(0.3), 0.3 * 0.3, 0.3 * 0.3])
    same(fx.vmap(f, (0, None))(np.array([-5, 1, 9]), 0.3), np.array([np.sin(0.3), np.cos(0.3), 0.3 * 0.3]))
    same(lax.add(np.ones(2), np.ones(2)), np.full(2, 2.0))
    with pytest.raises(TypeError, match=r"lax.add got shapes"):  # by the builtin map, not by lax.map
        lax.add(np.ones(2), np.ones(3))
    assert lax.cond is fx.cond and lax.switch is fx.switch and lax.scan is fx.scan


# ---- fori_loop, map, associative_scan ----------------------------------------------------------------------------------------


def test_fori_loop() -> None:
    def f(x: Any, n: Any) -> Any:
        return fx.fori_loop(1, n, lambda i, v: v * x + i, 1.0)

    def by_hand(x: Any, n: int) -> Any:
        v = 1.0
        for i in range(1, n):
            v = v * x + i
        return v

    want = fx.value_and_grad(by_hand)(0.7, 6)
    same(fx.value_and_grad(lambda x: f(x, 6))(0.7), want)
    same(fx.jit(fx.value_and_grad(f))(0.7, 6), want)
    same(fx.vmap(f, (None, 0))(0.7, np.array([6, 1, -3])), np.stack([by_hand(0.7, n) for n in (6, 1, -3)]))
    same(fx.fori_loop(np.int32(0), np.int32(3), lambda i, x: x * i, np.ones(2, np.float32)), np.zeros(2, np.float32))


def test_map() -> None:
    xs = draw(7, 3)

    def f(x: Any) -> Any:
        return {"s": fnp.sum(x * x), "t": fnp.tanh(x)}

    want = fx.vmap(f)(xs)
    for size in (None, 1, 3, 7, 20):
        same(lax.map(f, xs, batch_size=size), want)
        same(fx.jit(lambda xs, size=size: lax.map(f, xs, batch_size=size))(xs), want)
    same(fx.grad(lambda xs: fnp.sum(lax.map(f, xs, batch_size=3)["s"]))(xs), 2 * xs)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(n: int, reverse: bool) -> None:
    def affine(a: Any, b: Any) -> Any:  # composition of x -> m*x + c
        return {"m": a["m"] * b["m"], "c": a["c"] * b["m"] + b["c"]}

    elems = {"m": np.arange(2 * n).reshape(2, n) % 5 - 2, "c": np.arange(2 * n).reshape(2, n) % 3}
    found = lax.associative_scan(affine, elems, reverse=reverse, axis=-1)
    order = range(n)[::-1] if reverse else range(n)
    total = None
    for i in order:
        here = fx.tree.map(lambda x: x[:, i], elems)
        total = here if total is None else affine(total, here)
        same(fx.tree.map(lambda x: x[:, i], found), total)
    assert found["m"].shape == (2, n)
    same(fx.jit(lambda e: lax.associative_scan(affine, e, reverse=reverse, axis=1))(elems), found)


def test_associative_scan_has_log_depth() -> None:
    program = fx.make_ir(lambda x: lax.associative_scan(fnp.add, x))(np.ones(1 << 12))
    assert len(equations(program, "add")) <= 24


# ---- errors ------------------------------------------------------------------------------------------------------------------

# fmt: off
ERRORS: dict[str, tuple[F, type, list[str]]] = {
    "carry dtype": (
        lambda: fx.scan(lambda c, _: ({"a": c["a"].astype(np.float64)}, None), {"a": np.float32(0)}, None, length=2),
        TypeError,
        ["['a']", "float32", "float64", "scan", ".astype("],
    ),
    "carry shape": (
        lambda: fx.fori_loop(0, 3, lambda i, c: (c[0], fnp.stack([c[1], c[1]])), (1, np.float64(0))),
        TypeError,
        ["carry[1]", "()", "(2,)", "fori_loop"],
    ),
    "carry tree": (lambda: fx.while_loop(lambda c: c[0], lambda c: [c[0]], (True,)), ValueError, ["list", "tuple", "while_loop"]),
    "no pair": (lambda: fx.scan(lambda c, x: c, 0.0, np.zeros(2)), TypeError, ["pair (carry, y)", "return carry, None"]),
    "lengths": (lambda: fx.scan(lambda c, x: (c, x), 0, {"a": np.zeros(2), "b": np.zeros(3)}),
        ValueError, ["['a']", "['b']", "2", "3"]),
    "no length": (lambda: fx.scan(lambda c, x: (c, x), 0, None), ValueError, ["length=n"]),
    "wrong length": (lambda: fx.scan(lambda c, x: (c, x), 0, np.zeros(2), length=3), ValueError, ["length is 3"]),
    "scalar xs": (lambda: fx.scan(lambda c, x: (c, x), 0, [1.0, 2.0]), ValueError, ["xs[0]", "np.asarray"]),
    "traced length": (lambda: fx.jit(lambda n: fx.scan(lambda c, x: (c, x), 0, None, length=n))(3),
        TypeError, ["length", "fx.while_loop"]),
    "test": (lambda: fx.while_loop(lambda c: c, lambda c: c, np.ones(2)), TypeError, ["scalar bool", "(2,)", "np.any"]),
    "pred": (lambda: fx.cond(np.ones(2) > 0, lambda: 1, lambda: 2), TypeError, ["pred", "(2,)", "np.where"]),
    "index": (lambda: fx.switch(1.5, [lambda: 1, lambda: 2]), TypeError, ["float64", "integer"]),
    "no branches": (lambda: fx.switch(0, []), ValueError, ["no branches"]),
    "branch dtypes": (
        lambda: fx.cond(True, lambda x: {"y": x}, lambda x: {"y": x.astype(np.float32)}, np.ones(2)),
        TypeError,
        ["['y']", "float32", "float64", "true_fun", "false_fun", ".astype("],
    ),
    "branch shapes": (lambda: fx.switch(0, [lambda x: x, lambda x: x[0]], np.ones(2)),
        TypeError, ["branch 0", "branch 1", "(2,)", "()"]),
    "branch trees": (lambda: fx.cond(True, lambda: (1,), lambda: [1]), ValueError, ["list", "tuple", "true_fun"]),
    "no function": (lambda: fx.cond(True, 1.0, 2.0), TypeError, ["true_fun", "lambda"]),
    "bounds": (lambda: fx.fori_loop(0, 2.5, lambda i, c: c, 0), TypeError, ["upper", "float64"]),
    "bool of a carry": (
        lambda: fx.scan(lambda c, x: (c if c > 0 else -c, x), 0.0, np.zeros(2)),
        TypeError,
        ["Python bool", "c if c > 0", "scan", "np.where", "fx.cond"],
    ),
    "batch size": (lambda: lax.map(lambda x: x, np.zeros(2), batch_size=0), ValueError, ["batch_size=0"]),
    "axis": (lambda: lax.associative_scan(fnp.add, np.zeros(2), axis=1), ValueError, ["axis 1", "(2,)"]),
    "uneven": (lambda: lax.associative_scan(lambda a, b: a, (np.zeros(2), np.zeros(3))), ValueError, ["[2, 3]"]),
}
# fmt: on


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, parts = ERRORS[name]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, fx.FxError)
    message = str(caught.value)
    assert "test_control.py" in message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"


def test_custom_rules_in_bodies() -> None:
    @fx.custom_vjp
    def clipped(x: Any) -> Any:
        return fnp.sin(x)

    clipped.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: (g * 0.5,))

    @fx.custom_jvp
    def tripled(x: Any) -> Any:
        return x * 1.0

    tripled.defjvp(lambda p, t: (tripled(p[0]), fx.fori_loop(0, 3, lambda i, s: s + t[0], fnp.zeros_like(t[0]))))

    def f(x: Any) -> Any:
        return fx.fori_loop(0, 3, lambda i, c: tripled(clipped(c)), x)

    np.testing.assert_allclose(fx.grad(f)(0.3), (3 * 0.5) ** 3)
    np.testing.assert_allclose(fx.vmap(fx.jit(fx.grad(f)))(np.ones(2)), (3 * 0.5) ** 3)
    np.testing.assert_allclose(fx.grad(lambda x: fx.while_loop(lambda c: c < 1.5, lambda c: tripled(c) * 2, x))(1.0), 6.0)
