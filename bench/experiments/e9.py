"""E9: peak memory with and without reuse of buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.block import Problem
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.e3 import network
from bench.experiments.inside import built
from bench.experiments.lab import Lab
from bench.experiments.pictures import figure
from bench.experiments.processes import peak

TITLE = "Peak memory with and without reuse of buffers"
QUESTION = (
    "Values that never live together can share memory, and an operation can write over what it reads last. What does that save?"
)
DERIVATION = """
Without reuse every value that goes to memory has memory of its own, and the peak is their sum. With it, the peak cannot be less
than the most that lives at one time, except that an operation done in place lets its result and its dying operand count once.

- *A chain of K operations* on N numbers, fusion off: K - 1 values between argument and result. Without reuse (K - 1) 4N bytes;
  with it every one may lie in the result: **0**.
- *The gradient of L tanh layers* (a = bytes of one activation): forward writes L a, which live until their turn in the backward
  pass. That writes, for each layer, the cotangent behind tanh and the one in front of the product, 2 a: without reuse about 3 L
  a; with it L a and one or two in flight. The saving is 3 L / (L + 2), **2.4** for L = 8.
- *The block's step*: of everything above, and the packed right operands of its products. The most that lives at one time is
  read off the plan without reuse: the arena should be within 5 % of it, or below.
"""
CHAIN = (10, 4)
ELEMENTS = (1_000_000, 10_000)
LAYERS, ROWS, WIDTH = 8, (1024, 16), (512, 16)
BLOCK = ((8, 128, 256, 8), (1, 4, 8, 2))
NAMES = ("chain", "layers", "block")


def program(name: str, quick: bool) -> tuple[Callable[..., Any], list[Any], bool]:
    """(function, arguments, fused)."""
    if name == "chain":
        k = CHAIN[quick]

        def chain(x: Any) -> Any:
            for i in range(k):
                x = x * np.float32(1.5) if i % 2 == 0 else x + np.float32(0.5)
            return x

        return chain, [np.ones(ELEMENTS[quick], np.float32)], False
    if name == "layers":
        loss, args = network("tanh", LAYERS, ROWS[quick], WIDTH[quick])
        return fx.value_and_grad(loss, (0, 1)), args, True
    problem = Problem(BLOCK[quick], "float32")
    heads, target = problem.size.heads, problem.target
    loss_of = problem.example.loss_of

    def step(p: Any, x: Any, target: Any) -> Any:
        return fx.value_and_grad(loss_of(heads, target), (0, 1))(p, x)

    return step, [problem.params, problem.x, target], True


def executable(name: str, quick: bool, reuse: bool) -> tuple[Any, list[Any]]:
    f, args, fused = program(name, quick)
    return built(f, args, fusion=fused, reuse=reuse)


def step(name: str, quick: bool, reuse: bool) -> Callable[[], Any]:
    """For a process of its own."""
    run, args = executable(name, quick, reuse)
    return lambda: run(*args)


def warm() -> None:
    run, args = executable("layers", True, True)
    run(*args)


def alive(run: Any) -> int:
    """The most bytes of values between arguments and results that live at one time, by the plan without reuse."""
    lives = run.memory.lives
    last = max([death for _, death in lives.values()], default=-1)
    return max([sum(v.aval.nbytes for v, (b, d) in lives.items() if b <= i <= d) for i in range(last + 1)], default=0)


def predict(lab: Lab) -> list[Prediction]:
    k, n = CHAIN[lab.quick], ELEMENTS[lab.quick]
    return [
        Prediction(
            "chain_without",
            f"a chain of {k}, without reuse, between argument and result",
            float((k - 1) * 4 * n),
            "B",
            f"(K - 1) 4N, N = {shown(n)}.",
            1.01,
        ),
        Prediction(
            "chain_with",
            f"a chain of {k}, with reuse, between argument and result",
            0.0,
            "B",
            "All of it lies in the result.",
            kind="at most",
        ),
        Prediction(
            "layers_saving",
            f"gradient of {LAYERS} tanh layers: without reuse over with it",
            3 * LAYERS / (LAYERS + 2),
            "x",
            "3L / (L + 2).",
            1.25,
        ),
        Prediction(
            "block_bound",
            "the block's arena over the most that lives at one time",
            1.05,
            "x",
            "In place it may even be below 1.",
            kind="at most",
        ),
        Prediction(
            "process",
            "what the process saves over what the plans save, the block",
            1.0,
            "x",
            "The plan is what is allocated.",
            1.15,
        ),
    ]


def measure(lab: Lab, result: Result) -> None:
    figures, rows = result.figures, []
    calls = [f"step({name!r}, {lab.quick}, {reuse})" for name in NAMES for reuse in (False, True)]
    peaks = peak("e9", calls, lab.threads)
    for i, name in enumerate(NAMES):
        without, _ = executable(name, lab.quick, False)
        reused, args = executable(name, lab.quick, True)
        for got, want in zip(reused(*args), without(*args), strict=True):
            assert np.array_equal(got, want), "reuse of memory is not to change a bit"
        m0, m1 = without.memory_analysis(), reused.memory_analysis()
        bound = alive(without)
        process = peaks[2 * i], peaks[2 * i + 1]
        rows.append([name, m1.output_bytes, m0.temp_bytes, bound, m1.temp_bytes, *process])
        figures[f"{name}_without"], figures[f"{name}_with"], figures[f"{name}_alive"] = m0.temp_bytes, m1.temp_bytes, bound
        figures[f"{name}_peak_saving"] = (m0.temp_bytes + m0.output_bytes) / (m1.temp_bytes + m1.output_bytes)
        if None not in process:
            figures[f"{name}_process_without"], figures[f"{name}_process_with"] = process
    figures["layers_saving"] = figures["layers_without"] / figures["layers_with"]
    figures["block_saving"] = figures["block_without"] / figures["block_with"]
    figures["block_bound"] = figures["block_with"] / figures["block_alive"]
    saved = figures["block_without"] - figures["block_with"]
    # where the system does not tell, the plan stands for it
    known = "block_process_with" in figures
    figures["process"] = (figures["block_process_without"] - figures["block_process_with"]) / saved if known else 1.0
    columns = [
        ("program", ""),
        ("results", "B"),
        ("between: without reuse", "B"),
        ("alive at one time", "B"),
        ("between: with reuse", "B"),
        ("process, without", "B"),
        ("process, with", "B"),
    ]
    result.tables["memory"] = Table("Planned, and the growth of the process (results included)", columns, rows)


def explain(result: Result) -> list[str]:
    f = result.figures
    process = (
        (
            f" The process agrees: it grew by {shown(f['block_process_without'], 'B')} without reuse and "
            f"{shown(f['block_process_with'], 'B')} with it, results included."
        )
        if "block_process_with" in f
        else ""
    )
    return [
        (
            f"Without reuse the block's step needs {shown(f['block_without'], 'B')} between arguments and results, with it "
            f"{shown(f['block_with'], 'B')}: {shown(f['block_saving'], 'x')} less, and {f['block_bound']:.2f} of the most "
            f"that lives at one time by the other plan.{process}"
        ),
        (
            f"The layers' gradient saves {shown(f['layers_saving'], 'x')} where "
            f"{shown(result.predicted_value('layers_saving'), 'x')} was derived. The derivation counts one array behind tanh "
            "and one in front of each product; where a kernel joins the two (tanh's slope in the prologue or epilogue of a "
            "product), one of them is never stored, and there is less to save."
        ),
        (f"The chain needs {shown(f['chain_with'], 'B')} besides its result, {shown(f['chain_without'], 'B')} without reuse.")
        + (
            " Results that bypass the caches get memory of their own."
            if f["chain_with"]
            else " Each operation writes over what it reads."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (axes,) = figure(1, width=7.5, height=3.6)
    table = result.tables["memory"]
    series = (("between: without reuse", "#eb9c9f"), ("alive at one time", "#8c8c8c"), ("between: with reuse", "#c1272d"))
    for j, (name, shade) in enumerate(series):
        values = [v / 1e6 for v in table.column(name)]
        at = [3.6 * i + j for i in range(len(values))]
        axes.barh(at, values, 0.9, color=shade, label=name)
        for y, v in zip(at, values, strict=True):
            axes.annotate(f"{v:.3g} MB", (v, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(
        [3.6 * i + 1 for i in range(len(table.rows))], ["chain of operations", "gradient of 8 layers", "step of the block"]
    )
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set(xlabel="MB between arguments and results")
    axes.legend(frameon=False, fontsize=8)
    return {"": made}
