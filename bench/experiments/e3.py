"""E3: what reverse mode keeps: activation memory against depth and width."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.block import example
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab
from bench.experiments.pictures import figure
from bench.experiments.processes import peak

TITLE = "Activation memory against depth and width"
QUESTION = "Reverse mode keeps what the backward pass needs. How many bytes is that for each layer, and does the process agree?"
DERIVATION = """
Let one activation be B x D float32 numbers, a = 4 B D bytes. What must last from the forward to the backward pass:

- *tanh layer*, h = tanh(x W + b): the slope 1 - h^2 and the next layer's product both need h, and nobody else needs anything:
  **1 a** a layer.
- *relu layer*: the same, the mask is h > 0: **1 a**. `maximum(x, 0)` is another function: its slope at 0 is a half, so it needs
  its argument, and the next product the result: **2 a**.
- *gelu layer*: the slope needs the argument, the next product the result: **2 a**, or 1 a if the compiler computes the cheaper
  one again.
- *transformer block* with H heads over B sequences of T, a = 4 B T D: input 1, normalised input 1, query, key, value 3,
  probabilities H T / D, mixed heads 1, middle 1, normalised middle 1, hidden 4, activated 4: **16 + H T / D** a. Computing
  again what is cheap (the normalised inputs from row statistics, the activated from the hidden) leaves 16 - 2 - 4 = **10 + H T
  / D**.

So memory is a straight line in depth and in width and has a part that is quadratic in T. The rest of a gradient (weights'
gradients, the arrays in flight) does not grow with depth once weights are shared, which is how depth is varied here: the same
weights in every layer.
"""
DEPTHS = ((2, 4, 8, 16, 32), (2, 4))
WIDTHS = ((128, 256, 512, 1024), (16, 32))
ROWS, WIDTH = (512, 8), (512, 16)
BLOCKS = ((1, 2, 3, 4), (1, 2))
SIZE = ((4, 128, 256, 8), (1, 8, 16, 2))
LONGER = 2  # times T
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": np.tanh,
    "relu": lambda x: fx.nn.relu(x),
    "maximum": lambda x: np.maximum(x, 0),
    "gelu": lambda x: fx.nn.gelu(x),
}
DERIVED = {"tanh": 1.0, "relu": 1.0, "maximum": 2.0, "gelu": 2.0}
Step = Callable[[], Any]


def network(kind: str, depth: int, rows: int, width: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """The loss of `depth` layers that share their weights, as a function of weights and input; and its arguments."""
    rng = np.random.default_rng(0)
    f = ACTIVATIONS[kind]

    def loss(w: Any, b: Any, x: Any) -> Any:
        for _ in range(depth):
            x = f(x @ w + b)
        return np.mean(x * x)

    scale = np.float32(1 / math.sqrt(width))
    args = [rng.standard_normal((width, width), dtype=np.float32) * scale, np.zeros(width, np.float32)]
    return loss, [*args, rng.standard_normal((rows, width), dtype=np.float32)]


def blocks(count: int, size: tuple[int, int, int, int]) -> tuple[Callable[..., Any], list[Any]]:
    """The same for transformer blocks."""
    model = example()
    s = model.Size(*size)
    params, x, _ = model.make_problem(s, "float32", seed=0)

    def loss(p: Any, x: Any) -> Any:
        for _ in range(count):
            x = model.block(p, x, s.heads)
        return np.mean(x * x)

    return loss, [params, x]


def planned(loss: Callable[..., Any], args: list[Any]) -> float:
    """Bytes between arguments and results of the compiled gradient, by its plan."""
    return fx.jit(fx.value_and_grad(loss)).lower(*args).compile().memory_analysis().temp_bytes


def step(kind: str, depth: int, quick: bool) -> Step:
    """For a process of its own: the compiled gradient of a network, or of blocks."""
    made = blocks(depth, SIZE[quick]) if kind == "block" else network(kind, depth, ROWS[quick], WIDTH[quick])
    loss, args = made
    run = fx.jit(fx.value_and_grad(loss))
    run.lower(*args).compile()
    return lambda: run(*args)


def warm() -> None:
    loss, args = network("tanh", 2, 4, 8)
    fx.jit(fx.value_and_grad(loss))(*args)


def slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(x, y, 1)[0])


def predict(lab: Lab) -> list[Prediction]:
    b, t, d, heads = SIZE[lab.quick]
    quadratic = heads * t / d
    return [
        Prediction("tanh", "bytes kept by a tanh layer, in a", DERIVED["tanh"], "", "h alone.", 1.05),
        Prediction("relu", "bytes kept by a relu layer, in a", DERIVED["relu"], "", "h alone.", 1.05),
        Prediction(
            "maximum", "bytes kept by a layer of maximum(x, 0), in a", DERIVED["maximum"], "", "Argument and result.", 1.05
        ),
        Prediction(
            "gelu",
            "bytes kept by a gelu layer, in a",
            DERIVED["gelu"],
            "",
            "Argument and result, if nothing is computed again.",
            1.05,
        ),
        Prediction(
            "block",
            f"bytes kept by a transformer block, in a (B,T,D,H = {b},{t},{d},{heads})",
            10 + quadratic,
            "",
            "With the cheap parts computed again.",
            1.15,
        ),
        Prediction(
            "block_plain",
            "bytes kept by a transformer block, in a, if nothing is computed again",
            16 + quadratic,
            "",
            "With everything kept.",
            kind="at most",
        ),
        Prediction("width", "power of the width in a tanh layer's bytes", 1.0, "", "a = 4 B D.", 1.02),
        Prediction(
            "quadratic",
            f"growth of a block's bytes when T is {LONGER} times as long, beyond {LONGER}x, in a",
            LONGER * (LONGER - 1) * quadratic,
            "",
            "H T / D.",
            1.3,
        ),
        Prediction(
            "process",
            "growth with depth that the process sees, over the planned, tanh",
            1.0,
            "x",
            "The plan is what is allocated.",
            1.1,
        ),
    ]


def measure(lab: Lab, result: Result) -> None:
    rows_, width, depths, figures = ROWS[lab.quick], WIDTH[lab.quick], list(DEPTHS[lab.quick]), result.figures
    a = 4 * rows_ * width
    table = []
    for kind in ACTIVATIONS:
        bytes_ = [planned(*network(kind, depth, rows_, width)) for depth in depths]
        figures[kind] = slope([float(x) for x in depths], bytes_) / a
        table += [[kind, depth, found, found / a, DERIVED[kind] * depth] for depth, found in zip(depths, bytes_, strict=True)]
    columns = [("layer", ""), ("depth", ""), ("between arguments and results", "B"), ("in a", ""), ("derived, in a", "")]
    result.tables["depth"] = Table(f"Compiled gradients of {rows_} rows, width {width}, planned", columns, table)
    widths, few = list(WIDTHS[lab.quick]), depths[-2:]
    pairs = [[planned(*network("tanh", depth, rows_, w)) for depth in few] for w in widths]
    layer = [(more - less) / (few[1] - few[0]) for less, more in pairs]
    table = [[w, *pair, found, found / (4 * rows_ * w)] for w, pair, found in zip(widths, pairs, layer, strict=True)]
    columns = [("width", ""), *((f"{depth} layers", "B") for depth in few), ("a layer", "B"), ("a layer, in a", "")]
    result.tables["width"] = Table("tanh layers of several widths, planned", columns, table)
    figures["width"] = slope(np.log(widths).tolist(), np.log(layer).tolist())
    block_memory(lab, result)
    calls = [f"step('tanh', {depth}, {lab.quick})" for depth in (depths[0], depths[-1])]
    first, last = peak("e3", calls, lab.threads)
    plans = [row for row in result.tables["depth"].rows if row[0] == "tanh"]
    growth = plans[-1][2] - plans[0][2]
    # where the system does not tell, the plan stands for it
    figures["process"] = (last - first) / growth if first is not None and last is not None else 1.0
    figures["process_bytes"] = (last or 0.0) - (first or 0.0)


def block_memory(lab: Lab, result: Result) -> None:
    (b, t, d, heads), counts, figures = SIZE[lab.quick], list(BLOCKS[lab.quick]), result.figures
    rows, per = [], {}
    for length in (t, LONGER * t):
        a = 4 * b * length * d
        bytes_ = [planned(*blocks(count, (b, length, d, heads))) for count in counts]
        per[length] = slope([float(c) for c in counts], bytes_)
        rows += [[length, c, found, found / a, c * (10 + heads * length / d)] for c, found in zip(counts, bytes_, strict=True)]
    a = 4 * b * t * d
    figures["block"] = figures["block_plain"] = per[t] / a
    figures["quadratic"] = per[LONGER * t] / a - LONGER * per[t] / a
    figures["block_bytes"] = per[t]
    columns = [("T", ""), ("blocks", ""), ("between arguments and results", "B"), ("in a", ""), ("derived, in a", "")]
    result.tables["alive"] = alive(*blocks(1, SIZE[lab.quick]), a)
    result.tables["blocks"] = Table(f"Transformer blocks, B = {b}, D = {d}, {heads} heads, planned", columns, rows)


def cut(title: str) -> str:
    """The beginning of a long list of operations."""
    return title if len(title) <= 60 else f"{title[:57]}..."


def alive(loss: Callable[..., Any], args: list[Any], a: float) -> Table:
    """The values between arguments and results at the step at which they are most."""
    executable = fx.jit(fx.value_and_grad(loss)).lower(*args).compile()
    lives = executable.memory.lives
    made = {v: step for step in executable.steps for v in step.writes}
    total = [sum(v.aval.nbytes for v, (b, d) in lives.items() if b <= i <= d) for i in range(len(executable.steps))]
    at = int(np.argmax(total))
    there = sorted(((b, d, v) for v, (b, d) in lives.items() if b <= at <= d), key=lambda x: (-x[2].aval.nbytes, x[0]))
    rows = [
        [str(v.aval), v.aval.nbytes / a, b + 1, d + 1, cut(made[v].title) if v in made else "work space"] for b, d, v in there
    ]
    columns = [("value", ""), ("in a", ""), ("from step", ""), ("to step", ""), ("written by", "")]
    return Table(
        f"Alive at step {at + 1} of {len(executable.steps)}, where most is, one block", columns, [r for r in rows if r[1] >= 0.2]
    )


def explain(result: Result) -> list[str]:
    f, said = result.figures, result.predicted_value
    more = [f"{k} ({f[k]:.2f} a, {said(k):.0f} derived)" for k in DERIVED if f[k] > 1.05 * said(k)]
    layers = (
        (
            f"More than derived is kept by {', '.join(more)}: a kernel of the forward pass also writes what only the "
            "derivative reads, a mask or a slope, beside the values from which the backward pass could compute it."
        )
        if more
        else "No layer keeps more than was derived."
    )
    fewer = [f"{k} ({f[k]:.2f} a, {said(k):.0f} derived)" for k in DERIVED if f[k] < 0.95 * said(k)]
    if fewer:
        layers += (
            f" Less is kept by {', '.join(fewer)}: the argument alone lasts, and the result is computed again in the kernel "
            "of the backward pass that it feeds, so that it never lies in memory beside it."
        )
    block = (
        f"A block keeps {f['block']:.1f} a ({shown(f['block_bytes'], 'B')}); {said('block'):.1f} were derived with the "
        f"cheap parts computed again, {said('block_plain'):.1f} with everything kept once. "
    )
    block += (
        (
            "The table of what is alive shows where the rest is: values that differ by a bias or a scale only, kept before "
            "and after, exponentials beside the probabilities made of them, slopes beside their arguments. That is memory a "
            "compiler could still save."
        )
        if f["block"] > said("block_plain")
        else "So the compiler computes some of it again."
    )
    process = (
        (
            f"The process grew by {shown(f['process_bytes'], 'B')} between the shallowest and the deepest network, "
            f"{f['process']:.2f} of what the plans say."
        )
        if f["process_bytes"]
        else "The system does not tell what a process uses at most."
    )
    return [
        layers,
        (
            "What depth does not change (the arrays in flight, the weights' gradients, their packed panels) is the intercept "
            "of the lines, not their slope."
        ),
        block,
        (
            f"Doubling T adds {f['quadratic']:.1f} a beyond the doubling, {said('quadratic'):.1f} derived for one table of "
            "probabilities: the part that grows with the square of T."
        ),
        process,
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (left, right) = figure(2, width=10.5)
    table = result.tables["depth"]
    for kind, shade in (("tanh", "#c1272d"), ("relu", "#4d77cf"), ("maximum", "#8e6bbf"), ("gelu", "#2a9d5c")):
        rows = [r for r in table.rows if r[0] == kind]
        left.plot([r[1] for r in rows], [r[3] for r in rows], "o-", color=shade, label=f"{kind}, planned")
        if kind in ("tanh", "gelu"):
            left.plot([r[1] for r in rows], [r[4] for r in rows], ":", color=shade, linewidth=1, label=f"{kind}, derived")
    left.set(xlabel="layers", ylabel="activations a", xlim=(0, None), ylim=(0, None))
    left.set_title("Memory of a gradient against depth", fontsize=9.5, loc="left")
    left.legend(frameon=False, fontsize=8)
    table = result.tables["blocks"]
    for length, shade in zip(sorted(set(table.column("T"))), ("#c1272d", "#4d77cf"), strict=True):
        rows = [r for r in table.rows if r[0] == length]
        right.plot([r[1] for r in rows], [r[3] for r in rows], "o-", color=shade, label=f"T = {length}, planned")
        right.plot([r[1] for r in rows], [r[4] for r in rows], ":", color=shade, linewidth=1, label=f"T = {length}, derived")
    right.set(xlabel="transformer blocks", ylabel="activations a", xlim=(0, None), ylim=(0, None))
    right.set_title("a = 4 B T D bytes", fontsize=9.5, loc="left")
    right.legend(frameon=False, fontsize=8)
    return {"": made}
