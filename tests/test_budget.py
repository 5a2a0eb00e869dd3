"""Memory budgets: of compiled functions (`jit(memory_budget=)`) and of what a checkpoint keeps (`memory_budget(bytes)`)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from bench import frontier
from fxgrad.compile import budget as budgets
from fxgrad.compile import lower
from fxgrad.compile.inline import flatten
from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import TAPE, Aval, Var
from fxgrad.primitives import transcendental
from fxgrad.runtime.eager import run_program
from fxgrad.testing.bits import assert_same_bits
from fxgrad.transforms.cut import Network
from fxgrad.transforms.recompute import Graph
from tests.four_parts import assert_four_parts, raised
from tests.programs import random_inputs, random_program

P = fx.checkpoint_policies
ROWS, WIDTH, DEPTH = 64, 8, 8


def same(a: Any, b: Any) -> None:
    assert_same_bits(fx.tree.leaves(a), fx.tree.leaves(b))


def params_of(seed: int = 0) -> tuple[list[Any], np.ndarray]:
    rng = np.random.default_rng(seed)
    params = [(rng.normal(size=(WIDTH, 4 * WIDTH)) / 8, rng.normal(size=(4 * WIDTH, WIDTH)) / 8) for _ in range(DEPTH)]
    return params, rng.normal(size=(ROWS, WIDTH))


def block(x: Any, p: Any) -> Any:
    w, v = p
    return x + fnp.exp(fnp.sin(x @ w)) @ v


def loss(params: Any, x: Any) -> Any:
    for p in params:
        x = block(x, p)
    return fnp.sum(fnp.square(x))


ARGS = params_of()
step = fx.value_and_grad(loss)


def compiled(f: Callable[..., Any], budget: int | None, *args: Any) -> Any:
    return fx.jit(f, memory_budget=budget).lower(*args).compile()


def peak(f: Callable[..., Any], budget: int | None, *args: Any) -> int:
    return compiled(f, budget, *args).memory_analysis().peak_bytes


def least(f: Callable[..., Any], *args: Any) -> int:
    """How low it says it can go."""
    with pytest.raises(fx.FxError, match="does not run within memory_budget=0") as caught:
        fx.jit(f, memory_budget=0)(*args)
    found = re.search(r"it needs (\d+) bytes", str(caught.value))
    assert found is not None
    return int(found[1])


# ---- jit(memory_budget=) -----------------------------------------------------------------------------------------------------


def test_any_budget_is_kept_with_the_same_bits() -> None:
    want, plain, low = step(*ARGS), peak(step, None, *ARGS), least(step, *ARGS)
    assert low < 0.6 * plain
    flops = []
    for part in np.linspace(1, 0, 10):
        budget = int(low + part * (plain - low))
        executable = compiled(step, budget, *ARGS)
        assert executable.memory_analysis().peak_bytes <= budget
        same(fx.jit(step, memory_budget=budget)(*ARGS), want)
        flops.append(executable.flops)
    assert all(a <= 1.05 * b for a, b in itertools.pairwise(flops))  # the least work, as it is estimated
    assert flops[0] < flops[-1] < 2.5 * flops[0]


def test_a_budget_that_is_no_limit_changes_nothing() -> None:
    plain = compiled(step, None, *ARGS)
    for budget in (plain.memory_analysis().peak_bytes, 1 << 40):
        assert compiled(step, budget, *ARGS).plan_text() == plain.plan_text()


def test_an_impossible_budget_says_how_low_it_can_go() -> None:
    low = least(step, *ARGS)
    g = fx.jit(step, memory_budget=low - 1)
    error = raised(lambda: g(*ARGS), ValueError)
    words = [f"memory_budget={low - 1}", f"it needs {low} bytes"]
    assert_four_parts(error, what=words, line="g(*ARGS)", why="results", fix=[f"memory_budget={low}", "smaller batch"])
    assert peak(step, low, *ARGS) <= low
    same(fx.jit(step, memory_budget=low)(*ARGS), step(*ARGS))


@pytest.mark.parametrize("wrong", [2.5, "200MB", True, [1]])
def test_a_budget_is_a_number_of_bytes(wrong: Any) -> None:
    for call in (lambda: fx.jit(step, memory_budget=wrong), lambda: P.memory_budget(wrong)):
        error = raised(call, TypeError)
        assert_four_parts(error, what=repr(wrong), line="for call in", why="whole bytes", fix="200 * 2**20")


def test_a_budget_is_not_negative() -> None:
    error = raised(lambda: fx.jit(step, memory_budget=-1), ValueError)
    assert_four_parts(error, what="-1 bytes", line="memory_budget=-1", why="less than no memory", fix="positive")
    assert "-5 bytes" in str(raised(lambda: P.memory_budget(-5), ValueError))


def afresh(f: Callable[..., Any], budget: int, *args: Any) -> Any:
    """Compiled without a look at what is remembered."""
    return lower._compile(fx.jit(f).lower(*args).program, True, budget=budget)


def test_the_same_choice_every_time() -> None:
    budget = (peak(step, None, *ARGS) + least(step, *ARGS)) // 2
    plans = [afresh(step, budget, *ARGS) for _ in range(2)]
    assert plans[0] is not plans[1]
    assert plans[0].plan_text() == plans[1].plan_text() and plans[0].flat == plans[1].flat


@fx.custom_vjp
def halved(x: Any) -> Any:
    return fnp.sin(x) / 2


halved.defvjp(lambda x: (fnp.sin(x) / 2, fnp.cos(x)), lambda c, g: (g * c,))


def with_calls(x: Any, rows: Any) -> Any:
    """Calls, checkpoints, loops, branches, library calls, custom rules, indexing, updates in place."""
    y = fx.jit(lambda x: fnp.exp(fnp.sin(x)) * x)(x)
    y = fx.checkpoint(lambda y: fnp.tanh(y) * fnp.cos(y))(y)
    y, stacked = fx.scan(lambda c, r: (fnp.tanh(c * r) + c, c * c), y, y[:5])
    y = fx.fori_loop(0, 3, lambda i, y: fnp.sin(y) * 1.1, y)
    y = fx.cond(y[0, 0] > 0, lambda y: y * fnp.exp(-y), lambda y: y + 1, y)
    y = halved(y) + fnp.linalg.solve(fnp.eye(ROWS) * 3 + 0.01 * (y @ y.T), y)
    y = y[::-1][rows] * fnp.cumsum(y, axis=0)
    y[3:9] *= 2.0
    return fnp.sum(y * y) + fnp.sum(stacked)


def test_programs_of_all_kinds() -> None:
    x = np.random.default_rng(1).normal(size=(ROWS, WIDTH))
    g = fx.value_and_grad(with_calls)
    args = x, np.arange(ROWS) // 2
    low = least(g, *args)
    assert low <= peak(g, None, *args)
    same(fx.jit(g, memory_budget=low)(*args), g(*args))
    flat = lowest_of(fx.jit(g).lower(*args).program)
    assert flat is not None
    same(lower._compile(flat, True)(*args), g(*args))


def test_loops_of_layers() -> None:
    """Layers in a scan, whose bodies are checkpointed: the loops stay whole, what is around them is computed again."""
    params, x = ARGS
    stacked = fx.tree.map(lambda *ps: np.stack(ps), *params)

    def f(stacked: Any, x: Any) -> Any:
        x = fnp.exp(fnp.sin(x)) * x
        x, _ = fx.scan(lambda x, p: (fx.checkpoint(block)(x, p), None), x, stacked)
        return fnp.sum(fnp.square(fnp.tanh(fnp.exp(-x) * x)))

    g = fx.grad(f, (0, 1))
    low = least(g, stacked, x)
    assert low <= peak(g, None, stacked, x)
    same(fx.jit(g, memory_budget=low)(stacked, x), g(stacked, x))


def test_second_order_batches_and_nested_jit() -> None:
    params, x = ARGS
    t = np.ones_like(x)
    second = lambda x: fx.hvp(lambda x: loss(params, x), (x,), (t,))  # noqa: E731
    low = least(second, x)
    assert low < peak(second, None, x)
    same(fx.jit(second, memory_budget=low)(x), second(x))
    xs = np.stack([x, -x])
    g = lambda xs: fx.vmap(fx.grad(lambda x: loss(params, x)))(xs)  # noqa: E731
    low = least(g, xs)
    same(fx.jit(g, memory_budget=low)(xs), g(xs))
    inner = fx.jit(fx.grad(loss), memory_budget=0)  # has a budget where it is called, not inside another function
    same(fx.jit(lambda *args: inner(*args))(*ARGS), step(*ARGS)[1])
    same(fx.grad(fx.jit(loss, memory_budget=1 << 30))(*ARGS), step(*ARGS)[1])


def test_donated_arguments() -> None:
    def sgd(params: Any, x: Any) -> Any:
        return fx.tree.map(lambda p, g: p - 0.1 * g, params, fx.grad(loss)(params, x))

    params, x = params_of()
    want = sgd(params, x)
    g = fx.jit(sgd, donate_argnums=0, memory_budget=least(sgd, params, x))
    same(g(fx.tree.map(np.copy, params), x), want)
    same(g(fx.tree.map(np.copy, params), x), want)


def test_without_fusion_and_without_jit() -> None:
    want = step(*ARGS)
    old, fx.config.fusion = fx.config.fusion, False
    try:
        low = least(step, *ARGS)
        same(fx.jit(step, memory_budget=low)(*ARGS), want)
    finally:
        fx.config.fusion = old
    with fx.disable_jit():
        same(fx.jit(step, memory_budget=0)(*ARGS), want)


def test_another_size_takes_over_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a budget: the choice is made once, and then the plan without it is not even made, if it is sure to be worse."""
    made: list[Any] = []
    plan = lower._planned
    monkeypatch.setattr(lower, "_planned", lambda *args: made.append(plan(*args)) or made[-1])

    def layers(ws: Any, x: Any) -> Any:
        for w in ws:
            h = x @ w
            x = (h * h + h) @ w.T
        return fnp.sum(x)

    def compiled_for(rows: int) -> Any:
        made.clear()
        ws = [np.ones((128, 256))] * 4
        return lower._compile(fx.jit(fx.grad(layers)).lower(ws, np.ones((rows, 128))).program, True)

    budgets._found.clear()
    compiled_for(1 << 14)
    assert len(made) > 2  # it has looked
    quick = compiled_for(40000)
    assert len(made) == 1 and "late" in str(quick.flat)
    for found in budgets._found.values():
        found.spaces.clear()
    careful = compiled_for(40000)
    assert len(made) == 2 and made[0].memory_analysis().temp_bytes > careful.memory_analysis().temp_bytes
    assert quick.plan_text() == careful.plan_text() and quick.as_text() == careful.as_text()
    assert "late" not in str(compiled_for(8).flat)  # too little work space for it to matter
    assert len(made) == 1


def lowest_of(program: Program) -> Program | None:
    """The program with the lowest plan, if that has something computed again."""
    plan = lower._planned(flatten(program), True, (), True)
    search = budgets._Search(plan, lambda flat: lower._planned(flat, True, (), True))
    found = min((search.planned(c) for c in search.graph.least()), key=budgets._peak)
    return None if len(found.flat.eqns) == len(plan.flat.eqns) else found.flat


def test_random_programs() -> None:
    """Whatever is computed again, in whatever segments, the bits are the same."""
    changed = 0
    for seed in range(40):
        program = random_program(seed)
        flat = lowest_of(program)
        if flat is not None:
            changed += 1
            args = random_inputs(program, seed)
            assert_same_bits(lower._compile(flat, True)(*args), run_program(program, args), f"seed {seed}")
    assert changed > 12


def test_a_wrong_recomputation_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: where exp is computed again, it is expm1."""
    right = budgets._run_again

    def wrong(group: Any, needed: Any, eqns: list[Eqn], env: Any) -> None:
        n = len(eqns)
        right(group, needed, eqns, env)
        for i, e in enumerate(eqns[n:], n):
            if e.prim is transcendental.exp:
                eqns[i] = Eqn(transcendental.expm1, e.inputs, e.params, e.outputs, e.source)

    low, leaves = least(step, *ARGS), fx.tree.leaves(ARGS)
    want = fx.tree.leaves(step(*ARGS))
    assert_same_bits(afresh(step, low, *ARGS)(*leaves), want)
    monkeypatch.setattr(budgets, "_run_again", wrong)
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(afresh(step, low, *ARGS)(*leaves), want)


def test_without_places_less_would_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what is computed again is not kept apart, so it joins the first kernels that read the same biases."""

    def biased(params: Any, x: Any) -> Any:
        for p in params:
            x = x + fnp.exp(fnp.sin(x @ p["w"] + p["b"]))
        return fnp.sum(fnp.square(x))

    params = [{"w": np.eye(WIDTH) / (2 + i), "b": np.arange(1.0 * WIDTH)} for i in range(DEPTH)]
    args = params, ARGS[1]
    low = least(fx.grad(biased), *args)
    monkeypatch.setattr(budgets, "behind", lambda atoms, eqns, source=None: list(atoms))
    with pytest.raises(fx.FxError, match="does not run within"):
        afresh(fx.grad(biased), low, *args)


# ---- checkpoint(f, memory_budget(bytes)) -------------------------------------------------------------------------------------


def handed_over(f: Callable[..., Any], policy: Any, *args: Any) -> list[Aval]:
    """What grad of the checkpointed f hands from its first half to its second, beside f's inputs."""
    program = fx.make_ir(fx.grad(lambda *args: fnp.sum(fnp.square(fx.checkpoint(f, policy)(*args))), 1))(*args)
    first, second = (e for e in program.eqns if e.prim.name == "checkpoint")
    made = set(first.outputs)
    return [a.aval for a in dict.fromkeys(second.inputs) if a in made]


def kept_bytes(f: Callable[..., Any], policy: Any, *args: Any) -> int:
    return sum(aval.nbytes for aval in handed_over(f, policy, *args))


def blocks(params: Any, x: Any) -> Any:
    for p in params:
        x = block(x, p)
    return x


def test_a_checkpoint_keeps_what_its_budget_allows() -> None:
    everything = kept_bytes(blocks, P.everything_saveable, *ARGS)
    squares = lambda policy: fx.grad(lambda *args: fnp.sum(fnp.square(fx.checkpoint(blocks, policy)(*args))), (0, 1))  # noqa: E731
    want = squares(P.nothing_saveable)(*ARGS)
    kept, flops = [], []
    for budget in [0, everything // 16, everything // 8, everything // 4, everything // 2, everything]:
        g = squares(P.memory_budget(budget))
        kept.append(kept_bytes(blocks, P.memory_budget(budget), *ARGS))
        assert kept[-1] <= budget
        same(g(*ARGS), want)
        same(fx.jit(g)(*ARGS), want)
        flops.append(compiled(g, None, *ARGS).flops)
    assert kept == sorted(kept) and kept[0] == 0 and kept[-1] > everything / 3
    assert flops == sorted(flops, reverse=True) and flops[-1] < 0.8 * flops[0]


@pytest.mark.parametrize("turns", [3, 40])
def test_loops_of_unknown_length_fit_in_no_budget(turns: int) -> None:
    """How long a tape gets is not known when the choice is made, so the loop is run again."""
    scale, x = np.float64(0.5), ARGS[1]

    def f(scale: Any, x: Any) -> Any:
        y = fx.while_loop(lambda s: s[0] < turns, lambda s: (s[0] + 1, fnp.sin(fnp.exp(s[1]))), (0, fnp.cos(scale * x)))[1]
        return y * fnp.exp(y)

    want = fx.grad(lambda *args: fnp.sum(f(*args)), (0, 1))(scale, x)
    for budget in (0, 8, x.nbytes, 1 << 30):
        policy = P.memory_budget(budget)
        g = fx.grad(lambda *args, policy=policy: fnp.sum(fx.checkpoint(f, policy)(*args)), (0, 1))
        same(g(scale, x), want)
        same(fx.jit(g)(scale, x), want)
        kept = handed_over(f, policy, scale, x)
        assert all(a.dtype != TAPE for a in kept) and sum(a.nbytes for a in kept) <= budget
    assert any(a.dtype == TAPE for a in handed_over(f, P.everything_saveable, scale, x))


def test_budgets_of_checkpoints_compose() -> None:
    policy = P.memory_budget(ROWS * WIDTH * 8 * 10)
    f = lambda params, x: fnp.sum(fx.checkpoint(fx.jit(blocks), policy)(params, x) ** 2)  # noqa: E731
    params, x = ARGS
    t = np.ones_like(x)
    plain = lambda x: fnp.sum(blocks(params, x) ** 2)  # noqa: E731
    same(fx.hvp(lambda x: f(params, x), (x,), (t,)), fx.hvp(plain, (x,), (t,)))
    xs = np.stack([x, -x])
    g = fx.grad(lambda x: f(params, x))
    same(fx.jit(fx.vmap(g))(xs), np.stack([g(x) for x in xs]))
    same(fx.jit(g, memory_budget=least(g, x))(x), fx.grad(plain)(x))


def test_policies_look_into_calls_and_loops() -> None:
    """Products in a loop are stacked, those in a compiled function are kept, and a budget chooses inside compiled functions."""
    params, x = ARGS
    stacked = fx.tree.map(lambda *ps: np.stack(ps), *params)
    layers = lambda stacked, x: fx.scan(lambda x, p: (block(x, p), fnp.sum(x)), x, stacked)[0]  # noqa: E731
    hidden = DEPTH * ROWS * 4 * WIDTH * 8
    assert kept_bytes(layers, P.dots_saveable, stacked, x) >= hidden
    assert kept_bytes(layers, P.nothing_saveable, stacked, x) == 0
    assert kept_bytes(fx.jit(blocks), P.dots_saveable, params, x) >= hidden
    assert 0 < kept_bytes(fx.jit(blocks), P.memory_budget(hidden // 2), params, x) <= hidden // 2
    named = lambda x, p: (x + fx.checkpoint_name(fnp.exp(fnp.sin(x @ p[0])), "h") @ p[1], None)  # noqa: E731
    by_name = lambda stacked, x: fx.scan(named, x, stacked)[0]  # noqa: E731
    assert kept_bytes(by_name, P.save_only_these_names("h"), stacked, x) == hidden
    want = fx.grad(lambda s, x: fnp.sum(fnp.square(layers(s, x))), (0, 1))(stacked, x)
    for f in (layers, by_name):
        for policy in (P.dots_saveable, P.save_only_these_names("h"), P.memory_budget(hidden), P.nothing_saveable):
            g = fx.grad(lambda s, x, f=f, p=policy: fnp.sum(fnp.square(fx.checkpoint(f, p)(s, x))), (0, 1))
            same(g(stacked, x), want)
            same(fx.jit(g)(stacked, x), want)


def test_contributions_arrive_in_the_order_of_the_function_inlined() -> None:
    """x is used inside and outside, twice in one call, and passed through: sums of cotangents have one order."""
    x = np.random.default_rng(2).normal(size=500)

    def f(wrap: Callable[..., Any]) -> Callable[..., Any]:
        two = wrap(lambda a, b: a * fnp.sin(b) + b * fnp.exp(a) * a)

        def g(x: Any) -> Any:
            y = two(x, x) + fnp.cos(x) * two(x + 1.0, x)
            z, w = wrap(lambda x: (fnp.sin(x) * x, x))(x)
            return fnp.sum(y * z + w * fnp.tanh(w) * x + fnp.sin(w) + fnp.cos(x) * w)

        return g

    want = fx.grad(f(lambda h: h))(x)
    for wrap in (fx.jit, fx.checkpoint, lambda h: fx.checkpoint(fx.jit(h)), lambda h: fx.checkpoint(h, P.memory_budget(5000))):
        same(fx.grad(f(wrap))(x), want)
        same(fx.jit(fx.grad(f(wrap)))(x), want)


# ---- the solver --------------------------------------------------------------------------------------------------------------


def test_minimum_cuts_of_all_small_networks() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        n = int(rng.integers(2, 7))
        edges = [(a, b, int(rng.integers(1, 9))) for a in range(n) for b in range(n) if a != b and rng.random() < 0.5]
        network = Network(n)
        for a, b, room in edges:
            network.add(a, b, room)
        side = network.cut(0, 1)
        crossing = lambda side: sum(room for a, b, room in edges if side[a] and not side[b])  # noqa: E731
        sides = ([True, False, *rest] for rest in itertools.product([True, False], repeat=n - 2))
        assert side[0] and not side[1]
        assert crossing(side) == min(map(crossing, sides))


def graph_of(rng: np.random.Generator, n: int) -> Graph:
    """Equations that read up to two earlier results, of random sizes and costs."""
    program = random_program(0)
    prim = program.eqns[0].prim
    values = [Var(program.in_avals[0]) for _ in range(n)]
    eqns = []
    for i, v in enumerate(values):
        reads = [values[j] for j in sorted(rng.choice(i, min(i, 2), replace=False))] if i else []
        eqns.append(Eqn(prim, reads, {}, [v]))
    sizes = {v: int(rng.integers(1, 20)) for v in values}
    needed = [v for v in values if rng.random() < 0.6]
    return Graph(eqns, needed, set(), [int(c) for c in rng.integers(0, 30, n)], sizes.__getitem__, {})


def allowed(graph: Graph, again: frozenset[int], kept: set[Var]) -> bool:
    """Whether all that is needed, and all that it takes to compute it again, is there."""
    wanted = [*graph.needed, *(v for i in again for v in graph.reads[i])]
    return all(v in kept or graph.maker[v] in again for v in wanted)


def test_choices_fit_and_are_the_best_for_their_price() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        graph = graph_of(rng, 8)
        ways = []
        for flags in itertools.product([False, True], repeat=8):
            again = frozenset(i for i, f in enumerate(flags) if f)
            ways.append((sum(map(graph.size, graph.kept(again))), sum(graph.cost[i] or 0 for i in again)))
        found = [(w.kept, w.cost) for w in graph.ways(0, 8, set())]
        for price in (1 / 16, 0.25, 1, 4, 32):  # of a byte, in work: exact, since it is a minimum cut
            assert min(price * size + cost for size, cost in found) == min(price * size + cost for size, cost in ways)
        for most in range(0, graph.bytes + 1, 5):
            choice = graph.choice(most, transient=False)
            assert choice is not None
            kept = set(graph.kept(choice.again))
            assert allowed(graph, choice.again, kept)
            assert sum(map(graph.size, kept)) <= most
            assert choice.cost <= min(cost for size, cost in found if size <= most)
        for work in range(0, 120, 10):
            choices = graph.within(work)
            for choice in choices:
                kept = set(graph.kept(choice.again))
                assert choice.cost <= work and allowed(graph, choice.again, kept)
                assert sum(map(graph.size, kept)) <= choice.bytes
            assert choices[0].bytes <= min(size for size, cost in found if cost <= work)


# ---- the frontier --------------------------------------------------------------------------------------------------------------


def test_the_page_of_the_frontier(tmp_path: Path) -> None:
    """The tables, what they say of what was asked for, and the picture; nothing is measured here."""

    def point(space: int, grown: int, seconds: float) -> frontier.Point:
        return frontier.Point(space + 1000, space, grown + 1000, seconds, 0.1, "same", 500, 10)

    gpt = {
        name: point(s, s + 90, 0.1)
        for name, s in {"plain": 9000, "budget 5 kB": 5000, "block": 4000, "sqrt": 6000, "log": 3000}.items()
    }
    chain = {"1": point(24000, 24000, 1.0), "sqrt": point(2000, 2000, 1.4), "log": point(700, 700, 2.0)}
    where = {"processor": "one", "cores": 2, "date": "2026-11-30", "busy": None}
    found = frontier.Frontier(gpt, chain, ((2, 2, 16, 2, 8), (9, 32, 8)), where)
    found.write(tmp_path)
    page = (tmp_path / "frontier.md").read_text()
    assert page.count(": met") == 3 and "**missed**" not in page and "| budget 5 kB |" in page
    assert "<svg" in (tmp_path / "frontier.svg").read_text()
    chain["sqrt"] = point(2001, 2001, 1.46)
    gpt["block"] = point(4000, 4600, 0.1)
    found.write(tmp_path)
    assert (tmp_path / "frontier.md").read_text().count("**missed**") == 3
    stored = frontier.Frontier.from_json(json.loads((tmp_path / "frontier.json").read_text()))
    assert stored.page() == found.page()


def test_the_frontiers_page_is_its_figures() -> None:
    stored = frontier.Frontier.from_json(json.loads((frontier.OUT / "frontier.json").read_text()))
    assert (frontier.OUT / "frontier.md").read_text() == stored.page()


def test_what_the_frontier_measures_runs() -> None:
    sizes = (1, 2, 8, 2, 4)
    step, args = frontier.gpt_step(sizes, None, None)
    want = step(*args)
    low = frontier.least_peak(sizes)
    for checkpoint, budget in (("block", None), (None, low)):
        again, _ = frontier.gpt_step(sizes, checkpoint, budget)
        same(again(*args), want)
    chains = [frontier.chain_step((5, 8, 4), s) for s in (1, "sqrt", "log")]
    for step, args in chains:
        same(step(*args), chains[0][0](*args))
