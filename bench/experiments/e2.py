"""E2: forward against reverse mode: the cost of a full Jacobian, where the two meet, and ten million parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fxgrad as fx
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.lab import Lab
from bench.experiments.pictures import GREY, beside, figure, loglog
from examples import forward_vs_reverse as example

THREADS = 1
TITLE = "Forward against reverse mode: the full Jacobian"
QUESTION = "For n inputs and m outputs, when does each mode win, and by how much for a loss of ten million parameters?"
DERIVATION = """
The chain f(x) = tanh(C tanh(B tanh(A x))) has n inputs, m outputs and two hidden layers of H. A pass of forward mode multiplies
one tangent with A, B and C, a pass of reverse mode one cotangent with their transposes: both cost 2(nH + H^2 + Hm) operations.
Forward mode needs a pass for each input, reverse mode one for each output, and both need the values once:

    forward / reverse = n / m, so they meet at **n = m**, for every m.

That counts operations. Time goes otherwise at the edges: a single pass reads every matrix for two operations a number and is
bound by bytes, 8(nH + H^2 + Hm) / B; many passes at once are a product of matrices, bound by the peak P. So for n inputs and
one output

    forward / reverse = (bytes / B + 2n (H^2 + H) / P) / (2 bytes / B),

which is flatter than n. The meeting point does not move, the two modes being mirror images of each other.

*Ten million parameters.* For a layer Y = X W a pass forward is one product. Its tangent with respect to W and X is two
products, X W' and X' W; its pullback is two as well, X^T Y' and Y' W^T. So a tangent pass costs what a cotangent pass costs,
twice the values, and

    time of forward mode / time of reverse mode = n passes of 2 units / 1 pass of 2 units and 1 for the values = 2n/3,

if forward mode computes the values once (`linearize`), and n if every pass computes them again (`jvp`). The document says 5e6
for n = 1e7 and a forward pass of 10 ms, which needs a reverse pass of 20 ms in all; by its own rule of 1 + 2 passes it takes 30
ms, which gives 3.3e6. Both count a tangent pass as one forward pass; it is three with the values, two without.
"""
SIZES = ((1, 4, 16, 64, 256), (1, 8))
LAYERS = ((2236, 2, 128), (128, 2, 16))  # width, layers, rows: 10 million parameters


def layers(lab: Lab) -> tuple[list[np.ndarray], np.ndarray]:
    width, count, rows = LAYERS[lab.quick]
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((width, width), dtype=np.float32) / np.float32(math.sqrt(width)) for _ in range(count)]
    return weights, rng.standard_normal((rows, width), dtype=np.float32)


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = np.tanh(x @ w)
    return np.mean(x * x)


def predict(lab: Lab) -> list[Prediction]:
    weights, _ = layers(lab)
    n = sum(w.size for w in weights)
    count = len(weights)
    # the first layer's input needs neither a tangent nor a cotangent: one product less
    forward, reverse = count + count + (count - 1), count + count + (count - 1)
    middle, largest = SIZES[lab.quick][len(SIZES[lab.quick]) // 2], SIZES[lab.quick][-1]
    return [
        Prediction("crossing", f"inputs at which the two meet, for {middle} outputs", float(middle), "", "n = m.", 1.6),
        Prediction(
            "wide",
            f"forward over reverse, {largest} inputs and one output",
            widest(lab, largest),
            "x",
            f"One pass by bytes, {largest} by the peak of {shown(lab.constants.limits(1).peak_float64, 'flop/s')}.",
            1.6,
        ),
        Prediction(
            "pass_ratio",
            "one tangent pass (jvp, values included) over one gradient",
            forward / reverse,
            "x",
            f"{forward} products against {reverse}.",
            1.25,
        ),
        Prediction("reverse_units", "gradient over values", reverse / count, "x", f"{reverse} products against {count}.", 1.25),
        Prediction(
            "extrapolated",
            f"forward over reverse, {shown(n / 1e6)} million parameters",
            n * forward / reverse,
            "x",
            "n tangent passes.",
            1.3,
        ),
        Prediction(
            "extrapolated_source",
            f"forward over reverse, {shown(n / 1e6)} million parameters",
            5e6 * n / 1e7,
            "x",
            "The document's figure.",
            1.3,
            source="p13",
        ),
    ]


def widest(lab: Lab, n: int) -> float:
    """Forward over reverse for n inputs and one output, from bandwidth and peak, and from what a call costs."""
    c, h = lab.constants, example.WIDTH
    size = 8 * (n * h + h * h + h)
    one_pass = size / c.rate(size, "read", 1)
    forward = c.call + one_pass + max(one_pass, 2 * n * (h * h + h) / c.limits(1).peak_float64)
    return forward / (c.call + 2 * one_pass)


def measure(lab: Lab, result: Result) -> None:
    sizes, figures = list(SIZES[lab.quick]), result.figures
    found = example.run(sizes, lab.size(9, 2), lab.size(0.02, 0.002))
    rows = [[m, n, *found[n, m], found[n, m][0] / found[n, m][1]] for m in sizes for n in sizes]
    columns = [("outputs m", ""), ("inputs n", ""), ("jacfwd", "s"), ("jacrev", "s"), ("forward / reverse", "x")]
    result.tables["jacobian"] = Table("The whole Jacobian, compiled, float64, hidden width 256", columns, rows)
    crossings = {m: crossing(sizes, [found[n, m][0] / found[n, m][1] for n in sizes]) for m in sizes}
    rows = [[m, m, crossings[m]] for m in sizes]
    result.tables["crossings"] = Table("Where the two meet", [("outputs m", ""), ("derived n", ""), ("measured n", "")], rows)
    middle = sizes[len(sizes) // 2]
    figures["crossing"] = crossings[middle]
    figures["wide"] = found[sizes[-1], 1][0] / found[sizes[-1], 1][1]
    figures["tall"] = found[1, sizes[-1]][1] / found[1, sizes[-1]][0]
    ten_million(lab, result)


def crossing(sizes: list[int], ratios: list[float]) -> float:
    """The n at which the line through the logarithms of all ratios passes 1."""
    power, at_one = np.polyfit(np.log(sizes), np.log(ratios), 1)
    return float(np.exp(-at_one / power)) if power > 0 else float(sizes[-1])


def ten_million(lab: Lab, result: Result) -> None:
    """One pass of each kind, timed; all of forward mode's by multiplication."""
    figures, peak = result.figures, lab.constants.limits(1).peak_float32
    weights, x = layers(lab)
    n = sum(w.size for w in weights)
    directions = [w[::-1].copy() for w in weights]
    value, gradient = fx.jit(loss), fx.jit(fx.value_and_grad(loss))
    tangent = fx.jit(lambda w, v, x: fx.jvp(lambda w: loss(w, x), (w,), (v,)))
    times = lab.times(
        {
            "values": lambda: value(weights, x),
            "tangent": lambda: tangent(weights, directions, x),
            "gradient": lambda: gradient(weights, x),
        },
        repeat=5,
        block=0.05,
    )
    forward = n * times["tangent"]
    figures["pass_ratio"], figures["reverse_units"] = times["tangent"] / times["gradient"], times["gradient"] / times["values"]
    figures["extrapolated"] = figures["extrapolated_source"] = forward / times["gradient"]
    figures["days"], figures["parameters"] = forward / 86400, n
    figures["gradient_seconds"] = times["gradient"]
    # (n tangents that share the values) over a gradient
    figures["shared"] = (times["values"] + n * (times["tangent"] - times["values"])) / times["gradient"]
    product = 2 * x.shape[0] * x.shape[1] ** 2
    counts = {"values": len(weights), "tangent": 3 * len(weights) - 1, "gradient": 3 * len(weights) - 1}
    says = {"values": "values", "tangent": "one tangent pass, with the values", "gradient": "loss and gradient"}
    rows = [
        [says[name], counts[name], t, t / times["values"], counts[name] * product / t, counts[name] * product / t / peak]
        for name, t in times.items()
    ]
    columns = [
        ("", ""), ("products", ""), ("time", "s"), ("in units of the values", "x"), ("reached", "flop/s"), ("of the peak", "%"),
    ]  # fmt: skip
    title = f"A network of {shown(n / 1e6)} million parameters, {x.shape[0]} rows, float32, one thread"
    result.tables["passes"] = Table(title, columns, rows)


def explain(result: Result) -> list[str]:
    f = result.figures
    crossing = result.predicted_value("crossing")
    return [
        (
            f"They meet at n = {f['crossing']:.3g} for m = {crossing:.0f}. Away from it the ratio is flatter than n/m: one "
            "pass is bound by reading the matrices, many at once are one product that runs near the peak. So the widest case "
            f"is {shown(f['wide'], 'x')} ({shown(result.predicted_value('wide'), 'x')} predicted that way), and the tallest "
            f"{shown(f['tall'], 'x')} the other way."
        ),
        (
            f"With {shown(f['parameters'] / 1e6)} million parameters one tangent pass takes {shown(f['pass_ratio'], 'x')} the "
            f"time of the whole gradient, so forward mode takes {shown(f['extrapolated'], 'x')} as long ({f['days']:.0f} days "
            f"against {shown(f['gradient_seconds'], 's')}), or {shown(f['shared'], 'x')} if all passes share the values. The "
            f"document's {shown(result.predicted_value('extrapolated_source'), 'x')} counts a tangent pass as a forward pass "
            "and the gradient as two: the direction of the argument is right, the figure is too kind to forward mode."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (left, right) = figure(2, width=10.5)
    table = result.tables["jacobian"]
    ms = sorted(set(table.column("outputs m")))
    shades = ["#c1272d", "#e06c00", "#2a9d5c", "#4d77cf", "#8e6bbf"]
    for m, shade in zip(ms, shades, strict=False):
        rows = [r for r in table.rows if r[0] == m]
        n = [r[1] for r in rows]
        left.plot(n, [r[4] for r in rows], "o-", color=shade, label=f"m = {m}")
        left.plot(n, [x / m for x in n], color=shade, linestyle=":", linewidth=0.9)
    left.axhline(1, color=GREY, linewidth=0.8)
    loglog(left, "inputs n", "time of forward / time of reverse", "Full Jacobian; dotted: n/m")
    left.legend(frameon=False, fontsize=8)
    middle = ms[len(ms) // 2]
    rows = [r for r in table.rows if r[0] == middle]
    n = [r[1] for r in rows]
    right.plot(n, [r[2] * 1e6 for r in rows], "o-", color="#4d77cf", label="forward: a tangent for each input")
    right.plot(n, [r[3] * 1e6 for r in rows], "s-", color="#c1272d", label="reverse: a cotangent for each output")
    right.axvline(middle, color=GREY, linestyle=":", linewidth=1)
    beside(right, middle, min(r[3] for r in rows) * 1e6, "derived: n = m")
    loglog(right, "inputs n", "microseconds", f"Cost of the Jacobian, {middle} outputs")
    right.legend(frameon=False, fontsize=8)
    return {"": made}
