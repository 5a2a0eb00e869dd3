"""E5: what a backward pass costs next to its forward pass, operation by operation and for the block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxgrad as fx
from bench.block import Problem
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab
from bench.experiments.pictures import GREY, figure

TITLE = "Backward over forward, per operation and for the block"
QUESTION = "A backward pass is said to cost twice a forward pass. For which operations is that so?"
DERIVATION = """
The rule comes from matrix products: C = A B costs one product, its pullback two, C' B^T and A^T C' (the document derives it).
Nothing of the kind follows for operations that are bound by memory, whose cost is bytes. There count arrays of N elements, for
the value alone and for value and gradient together, compiled as one program:

- y = tanh(x): x read, y written, **2**. With the gradient: x and the cotangent read, y and dx written, **4**; the slope comes
  from y while it is in a register. The backward pass costs 4/2 - 1 = **1** forward pass.
- y = a*b: 3, and with the gradient a, b, ct read, y, da, db written: 6. **1**.
- y = sum(x): x read, 1; with the gradient dx is written too: 2. **1**, and a little more, a byte written being dearer than a
  byte read.
- softmax, layer norm: a row stays in cache between its passes, so 2 and 4 as for tanh. **1**.
- a layer gelu(x W + b) is a matrix product with an epilogue: **2**.
- the transformer block is matrix products for the most part: **2** by their count of operations.

So two rules: 2 where arithmetic of products bounds, 1 where bytes do and the two passes are fused into one.
"""


@dataclass(frozen=True)
class Case:
    """`moved`: arrays moved by the value and by value and gradient, or None where products bound."""

    name: str
    f: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    moved: tuple[int, int] | None
    quick: tuple[tuple[int, ...], ...]
    flops: int = 0

    @property
    def expected(self) -> float:
        return 2.0 if self.moved is None else self.moved[1] / self.moved[0] - 1


def _norm(x: Any, gain: Any, bias: Any) -> Any:
    return fx.nn.layer_norm(x, gain, bias)


ROWS, TINY = (4096, 1024), (64, 64)
CASES = (
    Case("exp(x)", np.exp, (ROWS,), (2, 4), (TINY,)),
    Case("tanh(x)", np.tanh, (ROWS,), (2, 4), (TINY,)),
    Case("a * b", lambda a, b: a * b, (ROWS, ROWS), (3, 6), (TINY, TINY)),
    Case("a + b", lambda a, b: a + b, (ROWS, ROWS), (3, 6), (TINY, TINY)),
    Case("relu(a*b + c)", lambda a, b, c: np.maximum(a * b + c, 0), (ROWS,) * 3, (4, 8), (TINY,) * 3),
    Case("sum(x)", np.sum, (ROWS,), (1, 2), (TINY,)),
    Case("max over rows", lambda x: np.max(x, axis=-1), (ROWS,), (1, 2), (TINY,)),
    Case("softmax", lambda x: fx.nn.softmax(x), (ROWS,), (2, 4), (TINY,)),
    Case("layer norm", _norm, (ROWS, (1024,), (1024,)), (2, 4), (TINY, (64,), (64,))),
    Case("a @ b", lambda a, b: a @ b, ((768, 768), (768, 768)), None, ((32, 32), (32, 32))),
    Case(
        "gelu(x @ w + b)",
        lambda x, w, b: fx.nn.gelu(x @ w + b),
        ((1024, 512), (512, 512), (512,)),
        None,
        ((32, 32), (32, 32), (32,)),
    ),
)
BLOCK = ((8, 128, 256, 8), (1, 4, 8, 2))
PREDICTED = ("tanh(x)", "a * b", "sum(x)", "softmax", "layer norm", "a @ b", "gelu(x @ w + b)")


def key(name: str) -> str:
    return "ratio " + name


def predict(lab: Lab) -> list[Prediction]:
    by_name = {c.name: c for c in CASES}
    out = []
    for name in PREDICTED:
        c = by_name[name]
        why = (
            "Two products for one." if c.moved is None else f"{c.moved[1]} arrays moved with the gradient, {c.moved[0]} without."
        )
        out.append(Prediction(key(name), f"backward over forward, {name}", c.expected, "x", why, 1.3))
    out.append(Prediction("tanh_source", "backward over forward, tanh(x)", 2.0, "x", "The document's rule.", 1.3, source="p13"))
    out.append(Prediction("block", "backward over forward, the block", 2.0, "x", "Its products by count.", 1.25, source="p13"))
    return out


def pair(case: Case, shapes: tuple[tuple[int, ...], ...]) -> tuple[dict[str, Callable[[], Any]], int]:
    """The value, and value and gradient for a cotangent, both compiled; the bytes of the first argument."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    value = fx.jit(case.f)
    ct = np.ones_like(np.asarray(value(*args)))

    def both(ct: Any, *args: Any) -> Any:
        y, pullback = fx.vjp(case.f, *args)
        return y, pullback(ct)

    compiled = fx.jit(both)
    return {"value": lambda: value(*args), "both": lambda: compiled(ct, *args)}, args[0].nbytes


def measure(lab: Lab, result: Result) -> None:
    rows, figures = [], result.figures
    for case in CASES:
        runs, size = pair(case, case.quick if lab.quick else case.shapes)
        times = lab.times(runs)
        ratio = times["both"] / times["value"] - 1
        figures[key(case.name)] = ratio
        rate = case.moved[1] * size / times["both"] if case.moved else None
        bound = "products" if case.moved is None else "bytes"
        rows.append([case.name, bound, times["value"], times["both"], case.expected, ratio, rate])
    figures["tanh_source"] = figures[key("tanh(x)")]
    problem = Problem(BLOCK[lab.quick], "float32")
    loss = problem.example.loss_of(problem.size.heads, problem.target)
    value, both = fx.jit(loss), fx.jit(fx.value_and_grad(loss, (0, 1)))
    times = lab.times(
        {"value": lambda: value(problem.params, problem.x), "both": lambda: both(problem.params, problem.x)}, block=0.05
    )
    figures["block"] = times["both"] / times["value"] - 1
    figures["block_flops"], figures["block_peak"] = problem.flops / times["both"], lab.constants.limits().peak_float32
    rows.append(["transformer block", "products", times["value"], times["both"], 2.0, figures["block"], None])
    columns = [
        ("operation", ""),
        ("bound by", ""),
        ("value", "s"),
        ("value and gradient", "s"),
        ("derived", "x"),
        ("measured", "x"),
        ("reached", "B/s"),
    ]
    result.tables["ratios"] = Table("Backward over forward, float32", columns, rows)


def explain(result: Result) -> list[str]:
    f, rows = result.figures, result.tables["ratios"].rows
    memory = [r for r in rows if r[1] == "bytes"]
    low, high = min(memory, key=lambda r: r[5]), max(memory, key=lambda r: r[5])
    return [
        (
            f"Products: {shown(f[key('a @ b')], 'x')} for a @ b and {shown(f[key('gelu(x @ w + b)')], 'x')} for a layer, "
            "where 2 was derived; gelu's slope is arithmetic that the value does not need."
        ),
        (
            f"Bytes: between {shown(low[5], 'x')} ({low[0]}) and {shown(high[5], 'x')} ({high[0]}), where 1 was derived. What "
            "differs from 1 is the price of writing: gradients write more of their bytes than values do, and a written byte "
            "is dearer than a read one (E8); and where the value costs arithmetic besides bytes (exp, tanh), that is paid "
            "once for both passes, which pulls the ratio below 1."
        ),
        (
            f"The rule of 2 predicts tanh's gradient {2 / max(f['tanh_source'], 1e-9):.1f} times too dear. It is a rule about "
            f"products, and the block, being products for the most part, obeys it: {shown(f['block'], 'x')}. Its gradient "
            f"reaches {shown(f['block_flops'], 'flop/s')} of {shown(f['block_peak'], 'flop/s')}."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (axes,) = figure(1, width=7.5, height=4.4)
    rows = result.tables["ratios"].rows[::-1]
    colours = ["#c1272d" if r[1] == "products" else "#4d77cf" for r in rows]
    axes.barh(range(len(rows)), [r[5] for r in rows], 0.7, color=colours)
    for i, r in enumerate(rows):
        axes.plot([r[4], r[4]], [i - 0.42, i + 0.42], color="black", linewidth=1.8)
        axes.annotate(f"{r[5]:.2f}", (max(r[5], 0), i), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [r[0] for r in rows])
    axes.axvline(2, color=GREY, linestyle=":", linewidth=0.9)
    axes.set(xlabel="time of the backward pass over that of the forward pass", xlim=(0, None))
    axes.set_title("Black: derived. Blue: bound by bytes, red: by products", fontsize=9.5, loc="left")
    return {"": made}
