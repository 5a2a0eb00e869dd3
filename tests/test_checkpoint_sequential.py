"""Chains checkpointed in segments, and that what a checkpoint computes again waits until it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.compile import inline, late, lower
from fxgrad.compile.fuse import partition
from fxgrad.compile.lower import compile_program
from fxgrad.ir.program import Program
from fxgrad.runtime.eager import run_program
from fxgrad.testing.bits import assert_same_bits
from tests.four_parts import assert_four_parts, raised
from tests.programs import random_inputs, random_program

SEGMENTS: list[Any] = [1, 2, 3, 7, "sqrt", "log"]
P = fx.checkpoint_policies


def layer(x: Any, p: Any) -> Any:
    return x + fnp.tanh(x @ p["w"] + p["b"])


def problem(n: int, rows: int = 5, width: int = 4) -> tuple[list[Any], np.ndarray]:
    rng = np.random.default_rng(n)
    params = [{"w": rng.normal(size=(width, width)) / width, "b": rng.normal(size=width)} for _ in range(n)]
    return params, rng.normal(size=(rows, width))


def loss(chain: Any) -> Any:
    return lambda params, x: fnp.sum(fnp.square(chain(x, params)))


def loop(x: Any, params: Any) -> Any:
    for p in params:
        x = layer(x, p)
    return x


def same(a: Any, b: Any) -> None:
    assert_same_bits(fx.tree.leaves(a), fx.tree.leaves(b))


@pytest.mark.parametrize("segments", SEGMENTS)
def test_results_and_gradients_are_those_of_the_loop(segments: Any) -> None:
    params, x = problem(7)
    plain = fx.value_and_grad(loss(loop), (0, 1))
    chain = fx.checkpoint_sequential([layer] * 7, segments)
    g = fx.value_and_grad(loss(chain), (0, 1))
    want = plain(params, x)
    same(chain(x, params), loop(x, params))
    same(g(params, x), want)
    same(fx.jit(g)(params, x), want)
    for policy in (P.dots_saveable, P.everything_saveable, P.memory_budget(200)):
        same(fx.jit(fx.value_and_grad(loss(fx.checkpoint_sequential([layer] * 7, segments, policy)), (0, 1)))(params, x), want)


@pytest.mark.parametrize("segments", ["sqrt", "log"])
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_any_number_of_functions(n: int, segments: str) -> None:
    params, x = problem(n)
    chain = fx.checkpoint_sequential([layer] * n, segments)
    same(fx.grad(loss(chain))(params, x), fx.grad(loss(loop))(params, x))


def test_functions_that_close_over_their_parameters_and_take_trees() -> None:
    params, x = problem(5)

    def closed(params: Any, x: Any, segments: Any) -> Any:
        fs = [lambda s, p=p: {"x": layer(s["x"], p), "turn": s["turn"] + 1} for p in params]
        out = fx.checkpoint_sequential(fs, segments)({"x": x, "turn": 0})
        return fnp.sum(out["x"] * out["turn"])

    want = fx.grad(lambda params, x: closed(params, x, 1))(params, x)
    for segments in (3, "sqrt", "log"):
        same(fx.jit(fx.grad(lambda params, x, s=segments: closed(params, x, s)))(params, x), want)


def test_second_order_and_batches() -> None:
    params, x = problem(6)
    chain = fx.checkpoint_sequential([layer] * 6, "sqrt")
    t = np.ones_like(x)

    def along(f: Any) -> Any:
        return fx.jit(lambda x: fx.hvp(lambda x: loss(f)(params, x), (x,), (t,)))(x)

    same(along(chain), along(loop))
    xs = np.stack([x, 2 * x, -x])
    g = fx.grad(loss(chain), 1)
    same(fx.jit(fx.vmap(g, in_axes=(None, 0)))(params, xs), np.stack([g(params, x) for x in xs]))


def test_errors() -> None:
    params, x = problem(3)
    chain = fx.checkpoint_sequential([layer] * 3)
    with pytest.raises(fx.FxError) as caught:
        chain(x, params[:2])
    error = caught.value
    assert_four_parts(
        error, what="of 3 functions got 2 params", line="chain(x, params[:2])", why="one entry", fix="in their order"
    )
    error = raised(lambda: fx.checkpoint_sequential([layer] * 3, 4), ValueError)
    assert_four_parts(error, what="segments=4", line="checkpoint_sequential", why="one function or several", fix="from 1 to 3")
    for wrong in (0, -1, 2.0, "cube", True, None):
        assert f"segments={wrong!r}" in str(raised(lambda wrong=wrong: fx.checkpoint_sequential([layer] * 3, wrong), ValueError))
    error = raised(lambda: fx.checkpoint_sequential([]), ValueError)
    assert_four_parts(error, what="no functions", line="checkpoint_sequential([])", why="one after the other", fix="[f, g, h]")
    assert "no function" in str(raised(lambda: fx.checkpoint_sequential([layer, 3]), ValueError))  # type: ignore[list-item]


# ---- memory and time to compile ----------------------------------------------------------------------------------------------


def work_space(params: Any, x: np.ndarray, segments: Any) -> float:
    """In arrays like x."""
    g = fx.jit(fx.value_and_grad(loss(fx.checkpoint_sequential([layer] * len(params), segments))))
    return g.lower(params, x).compile().memory_analysis().temp_bytes / x.nbytes


def test_memory_follows_the_rule() -> None:
    """Two values a layer are kept: sums before tanh are not, its results and the layers' inputs are."""
    n = 64
    params, x = problem(n, 448, 8)  # less than 4 MiB in all: what is kept is as the user says
    plain, root, log = (work_space(params, x, s) for s in (1, "sqrt", "log"))
    assert plain > 2 * n - 2
    assert root < 8 + 2 * 8 + 8
    assert log < 6 + 2 * 2 + 4
    assert 1.5 * work_space(params, x, 32) < plain  # a segment has two layers


def test_four_hundred_layers_take_a_twelfth() -> None:
    """bench/cases/budget.py measures a thousand."""
    params, x = problem(400, 64, 8)

    def planned(segments: Any) -> int:
        g = fx.grad(loss(fx.checkpoint_sequential([layer] * 400, segments)))
        return lower._planned(inline.flatten(fx.jit(g).lower(params, x).program), True, (), True).memory.arena

    assert planned("sqrt") < planned(1) / 12


def test_what_is_computed_again_is_no_part_of_the_first_kernels() -> None:
    """A checkpointed function of large arrays; without `late` its replay would share kernels with the first computation."""

    def f(x: Any) -> Any:
        return fnp.sum(fx.checkpoint(lambda x: fnp.exp(fnp.sin(fnp.cumsum(x) * x)))(x) ** 2)

    x = np.linspace(0, 1, 4096)
    flat = inline.flatten(fx.jit(fx.grad(f)).lower(x).program)
    place = next(i for i, e in enumerate(flat.eqns) if e.prim is late.late)
    a, tasks = partition(flat)
    for t in tasks:
        epochs = {a.epochs[a.producer[v]] > 0 for v in t.stored}
        assert len(epochs) == 1
    assert a.epochs[:place] == [0] * place and any(a.epochs)
    small = inline.flatten(fx.jit(fx.grad(f)).lower(x[:16]).program)
    assert not any(e.prim is late.late for e in small.eqns)  # not worth it


def with_random_places(program: Program, seed: int) -> Program:
    """The program with some values handed on by `late`, somewhere."""
    rng = np.random.default_rng(seed)
    flat = inline.flatten(program)
    eqns, env = [], {}
    for e in flat.eqns:
        if rng.random() < 0.2:
            known = [v for p in eqns for v in p.outputs] + list(flat.inputs)
            some = [known[i] for i in sorted(rng.choice(len(known), min(4, len(known)), replace=False))]
            env.update(zip(some, late.behind(some, eqns), strict=True))
        eqns.append(type(e)(e.prim, [env.get(a, a) for a in e.inputs], e.params, e.outputs, e.source))
    return late.postponed(Program(flat.inputs, eqns, [env.get(o, o) for o in flat.outputs]))


@pytest.mark.parametrize("seed", range(40))
def test_places_change_no_bit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs with `late` at random places: the kernels differ, no circle arises, results do not change."""
    program = random_program(seed)
    args = random_inputs(program, seed)
    want = run_program(program, args)
    moved = with_random_places(program, seed)
    monkeypatch.setattr(inline, "_simplified", lambda p: p)  # would take them for copies
    assert_same_bits(compile_program(moved)(*args), want)


@pytest.mark.parametrize("policy", [P.nothing_saveable, P.dots_saveable, P.memory_budget(100)], ids=lambda p: p[0])
def test_small_programs_with_places(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested checkpoints, a loop and a branch, all with `late`, that small arrays go without."""
    monkeypatch.setattr(late, "SMALL", 0)
    keep = lambda f: fx.checkpoint(f, policy)  # noqa: E731

    def f(x: Any, wrap: Any) -> Any:
        inner = wrap(lambda x: fnp.sin(x) * fnp.exp(x))
        y = fnp.sum(wrap(lambda x: inner(inner(x)) @ x)(x))
        z, zs = fx.scan(lambda c, r: (wrap(lambda c: fnp.tanh(c * r) + c)(c), fnp.sum(c)), x[0], x)
        u = fx.cond(y > 0, wrap(lambda y: fnp.sin(y) * y), lambda y: -y, y)
        return y + fnp.sum(z * z) + fnp.sum(zs) + u + wrap(lambda s: fnp.sin(s) ** 2)(x[0, 0])

    x = np.random.default_rng(0).normal(size=(3, 3))
    want = fx.value_and_grad(lambda x: f(x, lambda g: g))(x)
    same(fx.jit(fx.value_and_grad(lambda x: f(x, keep)))(x), want)
    same(fx.value_and_grad(fx.jit(lambda x: f(x, keep)))(x), want)
