"""E4: the frontier of checkpointing: memory against time, by the square root and by budget."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.block import example
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab
from bench.experiments.pictures import GREY, beside, figure, loglog
from bench.experiments.processes import peak

TITLE = "The checkpointing frontier: square root and budget"
QUESTION = (
    "How much memory does recomputation save, what does it cost in time, and does a budget given in bytes find the frontier?"
)
DERIVATION = """
A chain of n equal layers keeps n activations of a bytes for its backward pass. Cut into s segments of n/s layers, it keeps s
boundaries and, while one segment is replayed, its n/s activations:

    memory = (s + n/s) a, least at s = sqrt(n), where it is **2 sqrt(n) a**: a saving of sqrt(n) / 2.

Every segment but the last is run forward once more (the last one's values are there when the backward pass begins). With a
forward pass of one unit and a backward pass of two, time = (3 + 1 - 1/s) / 3: **1.33** for many segments. The document's "+100
% forward" is the upper bound that replays the last segment too. Its table says 6 for ten layers: with s = round(sqrt(10)) = 3
segments of at most 4 layers it is 3 + 4 = **7**.

By *budget*: a solver that knows the bytes and the cost of each value keeps what is cheap to keep and dear to recompute. In a
transformer block the products cost most of the time and row statistics, gelu and normalised inputs almost none, so the first
bytes should be nearly free: half of the activations should go for less than a sixth of the time, and every budget should be
kept to. All ways give the same bits.
"""
LAYERS = ((16, 64, 256, 1000), (4, 9, 16))
ROWS, WIDTH = (256, 8), (128, 8)
SEGMENTS = ((1, 2, 4, 8, 16, 32, 64, 256), (1, 2, 4))
CHAIN = (256, 16)
BLOCKS, SIZE = (6, 2), ((4, 128, 256, 8), (1, 8, 16, 2))
BUDGETS = (10, 3)
HALF = 0.5


# ---- programs --------------------------------------------------------------------------------------------------------------


def chain(n: int, segments: int | str | None, quick: bool) -> tuple[Callable[..., Any], list[Any]]:
    """The loss of n tanh layers with weights of their own, and its arguments."""
    rng = np.random.default_rng(0)
    rows, width = ROWS[quick], WIDTH[quick]
    weights = [rng.standard_normal((width, width), dtype=np.float32) / np.float32(math.sqrt(width)) for _ in range(n)]
    layers = [lambda x, w: np.tanh(x @ w)] * n
    through = fx.checkpoint_sequential(layers, segments=segments) if segments is not None else plain(layers)

    def loss(weights: Any, x: Any) -> Any:
        y = through(x, weights)
        return np.mean(y * y)

    return loss, [weights, rng.standard_normal((rows, width), dtype=np.float32)]


def plain(layers: list[Callable[..., Any]]) -> Callable[..., Any]:
    def through(x: Any, weights: Any) -> Any:
        for f, w in zip(layers, weights, strict=True):
            x = f(x, w)
        return x

    return through


def blocks(quick: bool) -> tuple[Callable[..., Any], list[Any]]:
    """The loss of several transformer blocks with weights of their own."""
    model, count = example(), BLOCKS[quick]
    size = model.Size(*SIZE[quick])
    made = [model.make_problem(size, "float32", seed=seed) for seed in range(count)]

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            x = model.block(p, x, size.heads)
        return np.mean(x * x)

    return loss, [[m[0] for m in made], made[0][1]]


def gradient(loss: Callable[..., Any], budget: int | None = None) -> Any:
    return fx.jit(fx.value_and_grad(loss), memory_budget=budget)


def temp(step: Any, args: list[Any]) -> int:
    """Bytes between arguments and results, as planned."""
    return step.lower(*args).compile().memory_analysis().temp_bytes


def whole(step: Any, args: list[Any]) -> int:
    """All bytes of a call, as planned: what a budget is about."""
    return step.lower(*args).compile().memory_analysis().peak_bytes


def step(budget: int | None, quick: bool) -> Callable[[], Any]:
    """For a process of its own."""
    loss, args = blocks(quick)
    run = gradient(loss, budget)
    run.lower(*args).compile()
    return lambda: run(*args)


def warm() -> None:
    loss, args = chain(4, None, True)
    gradient(loss)(*args)


# ---- predict ---------------------------------------------------------------------------------------------------------------


def predict(lab: Lab) -> list[Prediction]:
    n, several = LAYERS[lab.quick][-1], CHAIN[lab.quick]
    s = math.isqrt(n)
    return [
        Prediction(
            "saving", f"memory of {n} layers: plain over square root", n / (s + n / s), "x", "n over s + n/s, in a.", 1.35
        ),
        Prediction(
            "saving_source",
            f"memory of {n} layers: plain over square root",
            math.sqrt(n) / 2,
            "x",
            "n over 2 round(sqrt(n)).",
            1.35,
            source="p13",
        ),
        Prediction(
            "slower",
            f"time of {n} layers: square root over plain",
            (4 - 1 / s) / 3,
            "x",
            "One forward pass more, without the last segment.",
            1.12,
        ),
        Prediction("best", f"segments at which {several} layers take least memory", math.sqrt(several), "", "sqrt(n).", 2.1),
        Prediction(
            "ten", "activations of ten layers under the square root", 7.0, "", "3 boundaries, and 4 layers of one segment.", 1.1
        ),
        Prediction(
            "ten_source", "activations of ten layers under the square root", 6.0, "", "The document's table.", 1.1, source="p13"
        ),
        Prediction(
            "budget_kept",
            f"planned peak over the budget, worst of {BUDGETS[lab.quick]} budgets",
            1.0,
            "x",
            "A budget is a promise.",
            kind="at most",
        ),
        Prediction(
            "half",
            f"time when half of what recomputation can save is saved, {BLOCKS[lab.quick]} blocks, over plain",
            1 + 1 / 6,
            "x",
            "What is cheap to recompute goes first.",
            kind="at most",
        ),
        Prediction("process", "growth of the process over the plan, worst budget", 1.0, "x", "Plans are what is allocated.", 1.1),
        Prediction(
            "unequal",
            "results whose bits differ from the plain gradient's",
            0.0,
            "",
            "Replay is the same program.",
            kind="at most",
        ),
    ]


# ---- measure ---------------------------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> int:
    """How many arrays of two results differ in a bit."""
    pairs = zip(fx.tree.leaves(a), fx.tree.leaves(b), strict=True)
    return sum(np.asarray(x).tobytes() != np.asarray(y).tobytes() for x, y in pairs)


def measure(lab: Lab, result: Result) -> None:
    result.figures["unequal"] = 0
    square_root(lab, result)
    by_segments(lab, result)
    by_budget(lab, result)


def square_root(lab: Lab, result: Result) -> None:
    figures, rows = result.figures, []
    a = 4 * ROWS[lab.quick] * WIDTH[lab.quick]
    for n in LAYERS[lab.quick]:
        plain_bytes, sqrt_bytes, slower, unequal = compared(lab, n)
        s, ratio = math.isqrt(n), plain_bytes / sqrt_bytes
        held = s + n / s
        rows.append([n, plain_bytes, plain_bytes / a, sqrt_bytes, sqrt_bytes / a, held, ratio, n / held, slower])
        figures["saving"], figures["slower"] = ratio, slower
        figures["unequal"] += unequal
    figures["saving_source"], figures["layers"] = figures["saving"], LAYERS[lab.quick][-1]
    figures["ten"] = figures["ten_source"] = ten_layers(lab.quick)
    columns = [
        ("layers", ""),
        ("plain", "B"),
        ("in a", ""),
        ("square root", "B"),
        ("in a ", ""),
        ("derived, in a", ""),
        ("saving", "x"),
        ("derived", "x"),
        ("time", "x"),
    ]
    result.tables["sqrt"] = Table("Plain against square root, between arguments and results, planned", columns, rows)


def compared(lab: Lab, n: int) -> tuple[int, int, float, int]:
    """Of n layers: bytes plain and under the square root, time of the second over the first, results that differ."""
    (loss, args), (cut, _) = chain(n, None, lab.quick), chain(n, "sqrt", lab.quick)
    before, after = gradient(loss), gradient(cut)
    unequal = same(before(*args), after(*args))
    times = lab.times({"plain": lambda: before(*args), "sqrt": lambda: after(*args)}, repeat=5, block=0.05)
    return temp(before, args), temp(after, args), times["sqrt"] / times["plain"], unequal


def ten_layers(quick: bool) -> float:
    """Activations of ten layers under the square root, as planned."""
    loss, args = chain(10, "sqrt", quick)
    return temp(gradient(loss), args) / (4 * ROWS[quick] * WIDTH[quick])


def by_segments(lab: Lab, result: Result) -> None:
    n, rows, times = CHAIN[lab.quick], [], {}
    a = 4 * ROWS[lab.quick] * WIDTH[lab.quick]
    runs = {}
    for s in SEGMENTS[lab.quick]:
        loss, args = chain(n, s, lab.quick)
        runs[s] = gradient(loss)
    loss, args = chain(n, None, lab.quick)
    before = gradient(loss)
    times = lab.times(
        {"plain": lambda: before(*args)} | {str(s): lambda f=f: f(*args) for s, f in runs.items()}, repeat=5, block=0.05
    )
    rows = [["plain", temp(before, args) / a, float(n), 1.0, 1.0]]
    for s, run in runs.items():
        rows.append([str(s), temp(run, args) / a, s + n / s, times[str(s)] / times["plain"], (4 - 1 / s) / 3])
    least = min(rows[1:], key=lambda r: r[1])
    result.figures["best"] = float(least[0])
    columns = [("segments", ""), ("memory, in a", ""), ("derived", ""), ("time", "x"), ("derived ", "x")]
    result.tables["segments"] = Table(f"{n} layers in segments", columns, rows)


def by_budget(lab: Lab, result: Result) -> None:
    figures, rows = result.figures, []
    loss, args = blocks(lab.quick)
    free = gradient(loss)
    most, least = whole(free, args), least_bytes(loss, args)
    budgets = [int(least + (most - least) * k / (BUDGETS[lab.quick] - 1)) for k in range(BUDGETS[lab.quick])]
    runs = {budget: gradient(loss, budget) for budget in budgets}
    wanted = free(*args)
    for run in runs.values():
        figures["unequal"] += same(wanted, run(*args))
    del wanted
    times = lab.times(
        {"plain": lambda: free(*args)} | {str(b): lambda f=f: f(*args) for b, f in runs.items()}, repeat=5, block=0.1
    )
    grown = peak("e4", [f"step({b}, {lab.quick})" for b in budgets], lab.threads)
    given = sum(np.asarray(x).nbytes for x in fx.tree.leaves(tuple(args)))
    for budget, process in zip(budgets, grown, strict=True):
        planned = whole(runs[budget], args)
        ratio = None if process is None else process / (planned - given)
        rows.append(
            [
                budget,
                planned,
                planned / budget,
                process,
                ratio,
                (planned - least) / max(most - least, 1),
                times[str(budget)] / times["plain"],
            ]
        )
    figures["budget_kept"] = max(r[2] for r in rows)
    known = [r[4] for r in rows if r[4] is not None]
    # where the system does not tell, the plan stands for it; small steps are less than what a process grows by anyway
    figures["process"] = max(known, key=lambda x: abs(math.log(x))) if known else 1.0
    saved = [1 - r[5] for r in rows]
    order = np.argsort(saved)
    figures["half"] = float(np.interp(HALF, np.array(saved)[order], np.array([r[6] for r in rows])[order]))
    figures["plain_bytes"], figures["least_bytes"] = most, least
    figures["least_time"] = rows[0][6]
    columns = [
        ("budget", "B"),
        ("planned peak", "B"),
        ("of the budget", "x"),
        ("growth of the process", "B"),
        ("of the plan, without arguments", "x"),
        ("of what can be saved, still there", "%"),
        ("time", "x"),
    ]
    result.tables["budgets"] = Table(f"{BLOCKS[lab.quick]} transformer blocks under budgets", columns, rows)


def least_bytes(loss: Callable[..., Any], args: list[Any]) -> int:
    """The lowest budget that can be kept: what the error for an impossible one names."""
    try:
        whole(gradient(loss, 1), args)
    except fx.FxError as problem:
        return max(int(number) for number in re.findall(r"memory_budget=(\d+)", str(problem)))
    raise AssertionError("a budget of one byte was accepted")


def explain(result: Result) -> list[str]:
    f, said = result.figures, result.predicted_value
    return [
        (
            f"**Square root.** {f['layers']:.0f} layers keep {shown(f['saving'], 'x')} less, {shown(said('saving'), 'x')} "
            f"derived, at {shown(f['slower'], 'x')} of the time, {shown(said('slower'), 'x')} derived. The derivation counts "
            "activations; the plan also holds the arrays in flight, which weigh most where little else is left."
        ),
        ("For ten layers the document's table reads 6; three segments of at most four layers hold 3 + 4 = 7. Its \"+100 % "),
        (
            f"**Segments.** {f['best']:.0f} segments take least memory, sqrt(n) derived; the curve is flat there, so a factor "
            "of two in the number of segments costs little."
        ),
        (
            f"**Budget.** Plain, the blocks take {shown(f['plain_bytes'], 'B')}, at least {shown(f['least_bytes'], 'B')}. "
            f"Half of the difference is saved at {shown(f['half'], 'x')} of the time, all of it at "
            f"{shown(f['least_time'], 'x')}. The worst plan takes {shown(f['budget_kept'], 'x')} of its budget, the process "
            f"{shown(f['process'], 'x')} of the plan."
        ),
        f"{f['unequal']:.0f} results differ in a bit.",
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (left, middle, right) = figure(3, width=13.5)
    table = result.tables["sqrt"]
    n = table.column("layers")
    left.plot(n, table.column("in a"), "o-", color="#8c8c8c", label="plain")
    left.plot(n, table.column("in a "), "o-", color="#c1272d", label="square root")
    left.plot(n, table.column("derived, in a"), ":", color=GREY, label="derived: 2 sqrt(n)")
    loglog(left, "layers n", "activations kept", "Memory against depth")
    left.legend(frameon=False, fontsize=8)
    rows = result.tables["segments"].rows[1:]
    s = [float(r[0]) for r in rows]
    middle.plot(s, [r[1] for r in rows], "o-", color="#c1272d", label="planned")
    middle.plot(s, [r[2] for r in rows], ":", color=GREY, label="derived: s + n/s")
    for r in rows:
        beside(middle, float(r[0]), r[1], f"{r[3]:.2f}x", color="#c1272d")
    loglog(middle, "segments s", "activations kept", f"{CHAIN[result.quick]} layers; numbers: time over plain")
    middle.legend(frameon=False, fontsize=8)
    rows = result.tables["budgets"].rows
    right.plot([r[1] / 1e6 for r in rows], [r[6] for r in rows], "o-", color="#c1272d", label="by budget")
    right.axhline(1, color=GREY, linestyle=":", linewidth=1)
    right.set(xlabel="planned peak, MB", ylabel="time over plain", xlim=(0, None))
    right.set_title(f"{BLOCKS[result.quick]} transformer blocks: the frontier", fontsize=9.5, loc="left")
    return {"": made}
